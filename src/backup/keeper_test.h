/* Shared by the tests of the keeper: a backup with a log on a disk in memory, and two nodes that own zones, over wires in memory, in
 * one thread and in a time that the test decides. */
#ifndef SH_BACKUP_KEEPER_TEST_H
#define SH_BACKUP_KEEPER_TEST_H

#include "backup/keeper.h"
#include "backup/replication.h"
#include "base/log.h"
#include "cluster/zones.h"
#include "msg/memwire.h"

#define RIG_NID 70
#define RIG_OWNER_NID 64 /* and the next one */
#define RIG_OWNERS 2
#define RIG_ZONES 8u
#define RIG_MS UINT64_C(1000000)
#define RIG_SILENCE_NS (UINT64_C(1) << 60) /* of no test */
#define RIG_DISK 4242
#define RIG_CREDIT (256u << 10)

struct rig_end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

/* The ACKs that an owner got for a zone. */
struct rig_told {
    struct sh_replication_ack last;
    unsigned count, of_state[SH_REPLICATION_LOST + 1];
    uint64_t arrived; /* the last one, in the order of all that owners hear */
};

static uint64_t rig_arrivals;

struct rig;

struct rig_owner {
    struct rig *rig;
    struct rig_end end;
    shoal_nid nid;
    uint64_t life;
    sh_link links[2]; /* the one that is up: its own number, and the backup's */
    bool is_up;
    size_t carried[2]; /* to the backup, from it */
    struct rig_told told[RIG_ZONES];
    unsigned messages; /* ACKS */
};

struct rig {
    struct rig_end backup;
    struct rig_owner owners[RIG_OWNERS];
    struct sh_disk *disk;
    struct sh_replog_config logged;
    struct sh_replog *log;
    struct sh_keeper *keeper;
    bool is_over[RIG_OWNERS]; /* the life that the owner has now */
    bool has_view;            /* else nothing is known of lives */
    uint64_t made_life;       /* that PREPARE names */
    bool is_younger;          /* than the keeper's process */
    bool is_stalled;          /* the log is not stepped */
    uint64_t credit;          /* of the keeper's configuration */
    uint64_t random;
    /* Records of zones, at the superpeers. */
    struct rig_record {
        bool is_there, is_silent; /* silent: no answer comes */
        struct sh_zone zone;
    } records[RIG_ZONES];
    struct sh_zone_op *asked; /* for one; NULL: none is */
    uint64_t asked_zone;
    unsigned gets;
    bool are_held;       /* the superpeers answer no question about records */
    uint64_t orphans_ns; /* 0: orphans are not looked for */
    unsigned not_ours;   /* zones of which the log has told, and that are not the keeper's */
    unsigned views_wanted;
    bool is_unconfirmed; /* the disk does not say yet that the life was admitted */
};

static inline uint64_t rig_zone(unsigned zone)
{
    return (uint64_t)RIG_OWNER_NID << 48 | (zone + 1);
}

static inline void rig_wake(void *arg)
{
    (void)arg;
}

static inline void rig_random_fill(void *arg, void *into, size_t size)
{
    struct rig *rig = arg;
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++) {
        rig->random ^= rig->random << 13;
        rig->random ^= rig->random >> 7;
        rig->random ^= rig->random << 17;
        at[i] = (uint8_t)rig->random;
    }
}

static inline enum sh_keeper_life rig_life_of(void *arg, shoal_nid nid, uint64_t life)
{
    const struct rig *rig = arg;
    unsigned i = nid.v - RIG_OWNER_NID;
    if (!rig->has_view || i >= RIG_OWNERS || life > rig->owners[i].life)
        return SH_KEEPER_LIFE_UNKNOWN;
    bool is_over = life < rig->owners[i].life || rig->is_over[i];
    return is_over ? SH_KEEPER_LIFE_OVER : SH_KEEPER_LIFE_UP;
}

static inline void rig_view_wanted(void *arg)
{
    struct rig *rig = arg;
    rig->views_wanted++;
}

static inline bool rig_is_confirmed(void *arg)
{
    const struct rig *rig = arg;
    return !rig->is_unconfirmed;
}

static inline bool rig_is_younger(void *arg, shoal_nid nid, uint64_t life)
{
    const struct rig *rig = arg;
    return nid.v >= RIG_OWNER_NID && life == rig->made_life && rig->is_younger;
}

static inline void rig_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct rig *rig = arg;
    rig->not_ours += !sh_keeper_durable(rig->keeper, zone, sequence);
}

static inline void rig_event(void *arg, const struct sh_msg_event *event)
{
    struct rig *rig = arg;
    if (rig->keeper)
        sh_keeper_link_event(rig->keeper, event);
}

static inline void rig_on_acks(void *arg, struct sh_msg_in *in)
{
    struct rig_owner *owner = arg;
    struct sh_replication_ack ack;
    owner->messages++;
    while (sh_reader_left(&in->payload)) {
        bool is_ack = sh_replication_ack_get(&in->payload, &ack);
        SH_ASSERT(is_ack);
        uint64_t zone = ack.zone - rig_zone(0);
        if (zone >= RIG_ZONES) /* of a message that was none of a rig's zones */
            continue;
        struct rig_told *told = &owner->told[zone];
        told->last = ack;
        told->arrived = ++rig_arrivals;
        told->count++;
        told->of_state[ack.state]++;
    }
}

static inline void rig_end_open(struct rig *rig, struct rig_end *end, uint16_t nid)
{
    sh_memwire_init(&end->memwire);
    end->memwire.random = 77u + nid;
    const struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "keeper",
        .connections_max = 8,
        .requests_max = 1024,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = RIG_SILENCE_NS / 4,
        .connect_timeout_ns = RIG_SILENCE_NS / 4,
        .silence_ns = RIG_SILENCE_NS,
        .env = sh_memwire_env(&end->memwire),
        .on_event = end == &rig->backup ? rig_event : NULL,
        .wake_transport = rig_wake,
        .wake_handlers = rig_wake,
        .arg = rig,
    };
    enum shoal_err err = sh_msg_create(&config, &end->msg);
    SH_ASSERT(!err);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
}

static inline uint64_t rig_now(const struct rig *rig)
{
    return rig->backup.memwire.now_ns;
}

static inline uint32_t rig_seconds(const struct rig *rig)
{
    return (uint32_t)(rig_now(rig) / (1000 * RIG_MS));
}

/* Answers the question about a record. */
static inline void rig_record_answer(struct rig *rig)
{
    struct sh_zone_op *op = rig->asked;
    const struct rig_record *record = &rig->records[rig->asked_zone - rig_zone(0)];
    const struct sh_zone_answer answer = {.is_there = record->is_there, .zone = record->zone};
    rig->asked = NULL;
    if (record->is_silent)
        op->done(op, SHOAL_ETIMEOUT, NULL);
    else
        op->done(op, record->is_there ? SHOAL_OK : SHOAL_ENONAME, &answer);
}

static inline void rig_record_get(void *arg, uint64_t zone, struct sh_zone_op *op)
{
    struct rig *rig = arg;
    SH_ASSERT(!rig->asked && zone - rig_zone(0) < RIG_ZONES);
    rig->asked = op;
    rig->asked_zone = zone;
    rig->gets++;
}

static inline struct sh_keeper_config rig_keeper_config(struct rig *rig)
{
    return (struct sh_keeper_config){.msg = rig->backup.msg,
                                     .log = rig->log,
                                     .disk_id = RIG_DISK,
                                     .clock = sh_memwire_env(&rig->backup.memwire).clock,
                                     .zones_max = RIG_ZONES - 1,
                                     .credit_bytes = RIG_CREDIT,
                                     .life_of = rig_life_of,
                                     .is_younger = rig_is_younger,
                                     .is_confirmed = rig_is_confirmed,
                                     .view_wanted = rig_view_wanted,
                                     .record_get = rig->orphans_ns ? rig_record_get : NULL,
                                     .orphans_ns = rig->orphans_ns,
                                     .wake = rig_wake,
                                     .arg = rig};
}

/* The backup's process begins. */
static inline void rig_start(struct rig *rig)
{
    enum shoal_err err = sh_replog_open(&rig->logged, rig_now(rig), rig_seconds(rig), &rig->log);
    SH_ASSERT(!err);
    const struct sh_keeper_config config = rig_keeper_config(rig);
    err = sh_keeper_create(&config, &rig->keeper);
    SH_ASSERT(!err);
}

/* It ends; what is only in memory is lost. */
static inline void rig_stop(struct rig *rig)
{
    sh_replog_close(rig->log);
    if (rig->asked)
        rig->asked->done(rig->asked, SHOAL_ESTOPPED, NULL);
    rig->asked = NULL;
    sh_keeper_destroy(rig->keeper);
    rig->log = NULL;
    rig->keeper = NULL;
}

static inline void rig_open(struct rig *rig, uint64_t seed)
{
    *rig = (struct rig){.has_view = true, .random = seed | 1};
    enum shoal_err err = sh_memory_disk_create(&rig->disk);
    SH_ASSERT(!err);
    rig->logged = (struct sh_replog_config){.disk = rig->disk,
                                            .name = "log",
                                            .random = {rig_random_fill, rig},
                                            .cluster = 77,
                                            .node = RIG_NID,
                                            .slot_bytes = 256 << 10,
                                            .slots = 200,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 2 << 20,
                                            .batch_bytes = 64 << 10,
                                            .linger_ns = 100 * RIG_MS,
                                            .versions_max = 4096,
                                            .durable = rig_durable,
                                            .arg = rig};
    rig_end_open(rig, &rig->backup, RIG_NID);
    for (unsigned i = 0; i < RIG_OWNERS; i++) {
        struct rig_owner *owner = &rig->owners[i];
        *owner = (struct rig_owner){
            .rig = rig, .nid = {(uint16_t)(RIG_OWNER_NID + i)}, .life = UINT64_C(1) << 32};
        rig_end_open(rig, &owner->end, owner->nid.v);
        sh_msg_handler_set(owner->end.msg, SH_REPLICATION_ACKS, SH_MSG_INLINE, rig_on_acks, owner);
        err = sh_msg_node_set(owner->end.msg, (shoal_nid){RIG_NID}, "backup:1");
        SH_ASSERT(!err);
    }
    rig_start(rig);
}

static inline void rig_close(struct rig *rig)
{
    rig_stop(rig);
    for (unsigned i = 0; i < RIG_OWNERS; i++) {
        sh_msg_destroy(rig->owners[i].end.msg);
        sh_memwire_free(&rig->owners[i].end.memwire);
    }
    sh_msg_destroy(rig->backup.msg);
    sh_memwire_free(&rig->backup.memwire);
    rig->disk->ops->destroy(rig->disk);
}

/* Carries what the owner and the backup have sent; the owner's first link is opened at the backup. */
static inline unsigned rig_carry(struct rig *rig, struct rig_owner *owner)
{
    struct sh_memwire *own = &owner->end.memwire, *far = &rig->backup.memwire;
    unsigned count = own->count;
    if (!owner->is_up && count && own->links[count - 1].is_there &&
        !own->links[count - 1].is_lost) {
        owner->links[0] = count - 1;
        owner->links[1] = sh_memwire_accept(far);
        owner->carried[0] = owner->carried[1] = 0;
        owner->is_up = true;
    }
    if (!owner->is_up)
        return 0;
    size_t done = sh_memwire_carry(own, owner->links[0], &owner->carried[0], far, owner->links[1]) +
                  sh_memwire_carry(far, owner->links[1], &owner->carried[1], own, owner->links[0]);
    return done > 0;
}

static inline unsigned rig_round(struct rig *rig)
{
    unsigned done = rig->backup.transport.run(rig->backup.msg);
    done += rig->backup.handlers.run(rig->backup.handlers.arg);
    if (rig->log && !rig->is_stalled)
        done += sh_replog_step(rig->log, rig_now(rig), rig_seconds(rig));
    if (rig->keeper)
        done += sh_keeper_step(rig->keeper, rig_now(rig));
    if (rig->asked && !rig->are_held) {
        rig_record_answer(rig);
        done++;
    }
    for (unsigned i = 0; i < RIG_OWNERS; i++) {
        struct rig_owner *owner = &rig->owners[i];
        done += owner->end.transport.run(owner->end.msg);
        done += rig_carry(rig, owner);
    }
    return done;
}

static inline void rig_settle(struct rig *rig)
{
    for (unsigned i = 0; rig_round(rig) > 0; i++)
        SH_ASSERT(i < 100000);
}

static inline void rig_pass(struct rig *rig, uint64_t ns)
{
    rig->backup.memwire.now_ns += ns;
    for (unsigned i = 0; i < RIG_OWNERS; i++)
        rig->owners[i].end.memwire.now_ns += ns;
    rig_settle(rig);
}

/* The connection is lost, with what is on its way; the next message opens another one. */
static inline void rig_cut(struct rig *rig, struct rig_owner *owner)
{
    if (!owner->is_up)
        return;
    sh_memwire_cut(&owner->end.memwire, owner->links[0]);
    sh_memwire_cut(&rig->backup.memwire, owner->links[1]);
    owner->is_up = false;
    (void)rig->backup.transport.run(rig->backup.msg);
    (void)owner->end.transport.run(owner->end.msg);
}

/* --- Requests ---------------------------------------------------------------------------------- */

struct rig_answer {
    struct sh_request request;
    bool is_over;
    uint64_t arrived; /* in the order of all that owners hear */
    enum shoal_err err;
    uint8_t bytes[64];
    size_t size;
};

static inline void rig_on_answer(struct sh_request *request, enum shoal_err err,
                                 struct sh_reader *payload)
{
    struct rig_answer *answer = request->arg;
    SH_ASSERT(!answer->is_over);
    answer->is_over = true;
    answer->arrived = ++rig_arrivals;
    answer->err = err;
    size_t left = err ? 0 : sh_reader_left(payload);
    SH_ASSERT(left <= sizeof answer->bytes);
    if (left)
        memcpy(answer->bytes, sh_reader_take(payload, left), left);
    answer->size = left;
}

/* Sends a request, which is answered later. False: there is no room for it on the way. */
static inline bool rig_ask(struct rig_owner *owner, sh_msg_type type, struct sh_bytes payload,
                           struct rig_answer *answer)
{
    struct sh_out out;
    *answer = (struct rig_answer){.request = {.done = rig_on_answer, .arg = answer}};
    enum shoal_err err = sh_msg_request(owner->end.msg, (shoal_nid){RIG_NID}, type, payload.size,
                                        &answer->request, &out);
    if (err == SHOAL_EAGAIN)
        return false;
    SH_ASSERT(!err);
    sh_put_raw(&out.w, payload);
    sh_msg_end(owner->end.msg, &out);
    return true;
}

static inline bool rig_open_ask(struct rig_owner *owner, const struct sh_replication_open *open,
                                struct rig_answer *answer)
{
    uint8_t bytes[SH_REPLICATION_OPEN_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_replication_open_put(&w, open);
    return rig_ask(owner, SH_REPLICATION_OPEN, sh_bytes_make(bytes, sizeof bytes), answer);
}

/* Asks until the answer is another one than EBUSY; time goes on. */
static inline enum shoal_err rig_zone_open(struct rig_owner *owner,
                                           const struct sh_replication_open *open,
                                           struct sh_replication_opened *opened_out)
{
    struct rig_answer answer;
    for (unsigned tries = 0; tries < 100; tries++) {
        rig_open_ask(owner, open, &answer);
        rig_settle(owner->rig);
        SH_ASSERT(answer.is_over);
        if (answer.err != SHOAL_EBUSY)
            break;
        rig_pass(owner->rig, RIG_MS);
    }
    if (answer.err)
        return answer.err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer.bytes, answer.size));
    bool is_opened = sh_replication_opened_get(&r, opened_out);
    SH_ASSERT(is_opened && opened_out->disk == RIG_DISK && opened_out->credit == RIG_CREDIT);
    return SHOAL_OK;
}

static inline enum shoal_err rig_zone_close(struct rig_owner *owner, unsigned zone,
                                            uint32_t incarnation)
{
    uint8_t bytes[SH_REPLICATION_CLOSE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    const struct sh_replication_close close = {
        .zone = rig_zone(zone), .incarnation = incarnation, .life = owner->life};
    sh_replication_close_put(&w, &close);
    struct rig_answer answer;
    rig_ask(owner, SH_REPLICATION_CLOSE, sh_bytes_make(bytes, sizeof bytes), &answer);
    rig_settle(owner->rig);
    SH_ASSERT(answer.is_over);
    return answer.err;
}

static inline struct sh_replication_open rig_open_of(const struct rig_owner *owner, unsigned zone,
                                                     uint32_t incarnation, uint64_t first)
{
    return (struct sh_replication_open){.zone = rig_zone(zone),
                                        .incarnation = incarnation,
                                        .life = owner->life,
                                        .first = first,
                                        .since = 1,
                                        .begun = 1,
                                        .bytes_max = 5 << 20,
                                        .range_first = (uint64_t)RIG_OWNER_NID << 48 | 1,
                                        .range_count = 1000};
}

/* --- Entries ----------------------------------------------------------------------------------- */

static inline uint64_t rig_chunk(unsigned chunk)
{
    return (uint64_t)RIG_OWNER_NID << 48 | (chunk + 1);
}

/* A message under construction. */
struct rig_append {
    uint8_t bytes[SH_REPLICATION_BYTES_MAX + 4096];
    struct sh_writer w;
};

static inline void rig_append_begin(struct rig_append *append, unsigned zone, uint32_t incarnation,
                                    uint64_t number, uint32_t part, uint8_t wish)
{
    append->w = sh_writer_make(append->bytes, sizeof append->bytes);
    const struct sh_replication_append head = {.zone = rig_zone(zone),
                                               .incarnation = incarnation,
                                               .number = number,
                                               .part = part,
                                               .wish = wish};
    sh_replication_append_put(&append->w, &head);
}

static inline size_t rig_append_size(const struct rig_append *append)
{
    SH_ASSERT(sh_writer_ok(&append->w));
    return (size_t)(append->w.at - append->bytes);
}

/* False: there is no room for it on the way. */
static inline bool rig_append_try(struct rig_owner *owner, const struct rig_append *append)
{
    struct sh_out out;
    size_t size = rig_append_size(append);
    enum shoal_err err =
        sh_msg_begin(owner->end.msg, (shoal_nid){RIG_NID}, SH_REPLICATION_APPEND, size, &out);
    if (err == SHOAL_EAGAIN)
        return false;
    SH_ASSERT(!err);
    sh_put_raw(&out.w, sh_bytes_make(append->bytes, size));
    sh_msg_end(owner->end.msg, &out);
    return true;
}

static inline void rig_append_send(struct rig_owner *owner, const struct rig_append *append)
{
    bool is_sent = rig_append_try(owner, append);
    SH_ASSERT(is_sent);
}

#endif
