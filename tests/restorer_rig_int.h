/* A node that brings zones of a failed owner back, in a simulated world, with a log of its own that the test fills; and a superpeer that knows who has which of the former
 * owner's IDs, and refuses what it is told to. */
#ifndef TESTS_RESTORER_RIG_INT_H
#define TESTS_RESTORER_RIG_INT_H

#include "backup/completion.h"
#include "backup/keeper.h"
#include "cluster/recoveries.h"
#include "log/replog.h"
#include "recover/restorer.h"
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define FORMER 90
#define FAILED 91
#define OTHER 92 /* has failed as well; its zones have numbers as the former owner's */
#define FAILED_LIFE 55
#define FORMER_LIFE 99
#define OWN_DISK 7
#define IDS 1024u /* of the former owner, that are looked at */
#define EARLY 4   /* zones */
#define LATE 5
#define REFUSALS 80u /* by the type of a message to superpeers */

static inline uint64_t zone_of(uint64_t number)
{
    return (uint64_t)FORMER << 48 | number;
}

static inline uint64_t zone_of_other(uint64_t number)
{
    return (uint64_t)OTHER << 48 | number;
}

static inline shoal_cid cid_of(uint64_t local)
{
    return (shoal_cid){(uint64_t)FORMER << 48 | local};
}

/* --- The superpeer ----------------------------------------------------------------------------- */

static struct {
    struct sh_metadata_note notes[IDS]; /* of the former owner's IDs */
    /* So many questions of that type are answered with that error. */
    struct {
        enum shoal_err err;
        unsigned count;
    } refusals[REFUSALS];
    uint32_t busy_ppm, lost_ppm; /* questions that are put off, and that get no answer */
    bool is_late_unknown;        /* nobody knows of the later zone yet */
    bool has_no_more;            /* ranges: a TAKE of several runs is refused */
    bool has_lost;               /* another zone of the former owner's is lost */
    bool
        holds_orders; /* who asks for the order, and has read its zone, is answered later: the last of them */
    bool is_order_held;
    struct sh_reply_to held_order;
    unsigned takes, runs_most;
} ranges;

static inline uint16_t owner_of(uint64_t local)
{
    return ranges.notes[local].owner.v;
}

/* A node has IDs by itself, or since they moved there. */
static inline void node_note(unsigned first, unsigned last, uint16_t nid)
{
    for (unsigned id = first; id <= last; id++)
        ranges.notes[id] = (struct sh_metadata_note){.owner = {nid}};
}

/* A node has taken IDs by a recovery, in one of its lives. */
static inline void taken_note(unsigned first, unsigned last, uint16_t nid, uint64_t life,
                              uint64_t zone)
{
    for (unsigned id = first; id <= last; id++)
        ranges.notes[id] = (struct sh_metadata_note){{nid}, life, zone, 1};
}

static inline bool refuse(struct sh_msg_in *in)
{
    unsigned type = in->type & 0xff;
    SH_ASSERT(type < REFUSALS);
    if (fake_chance(owner.world, ranges.lost_ppm))
        return true;
    if (fake_chance(owner.world, ranges.busy_ppm)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return true;
    }
    if (!ranges.refusals[type].count)
        return false;
    ranges.refusals[type].count--;
    sh_msg_reply_error(in->msg, in->reply_to, in->type, ranges.refusals[type].err, NULL);
    return true;
}

static inline void on_take(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    if (refuse(in))
        return;
    struct sh_zone zone = {.owner = in->reply_to.nid, .life = sh_get64(&in->payload)};
    zone.former.v = sh_get16(&in->payload);
    zone.former_life = sh_get64(&in->payload);
    zone.id = sh_get64(&in->payload);
    zone.incarnation = sh_get32(&in->payload);
    zone.flags = sh_get8(&in->payload);
    assert_true(zone.owner.v == FAKE_OWNER && zone.life == FAKE_LIFE);
    unsigned count = sh_get16(&in->payload), parts = 0;
    struct sh_metadata_run runs[SH_TAKE_RUNS_MAX];
    for (unsigned i = 0; i < count; i++) {
        runs[i].first.v = sh_get64(&in->payload);
        runs[i].last.v = sh_get64(&in->payload);
        parts += (unsigned)(runs[i].last.v - runs[i].first.v) / 64 + 1;
    }
    assert_true(sh_reader_done(&in->payload));
    enum shoal_err err = ranges.runs_most && parts > ranges.runs_most ? SHOAL_ETOOBIG : SHOAL_OK;
    if (ranges.has_no_more && count > 1)
        err = SHOAL_ELIMIT;
    for (unsigned i = 0; i < count && !err; i++) {
        for (uint64_t id = runs[i].first.v; id <= runs[i].last.v; id++) {
            struct sh_metadata_note *note = &ranges.notes[shoal_cid_local((shoal_cid){id}) % IDS];
            if (sh_metadata_note_is_of(note, &zone))
                *note = (struct sh_metadata_note){zone.owner, zone.life, zone.id, zone.incarnation};
        }
    }
    ranges.takes += !err;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, 4, &out), SHOAL_OK);
    sh_put16(&out.w, 0);
    sh_put16(&out.w, (uint16_t)err);
    sh_msg_end(in->msg, &out);
}

static inline void on_tree(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    uint8_t told[3 * SH_TREE_RANGE_BYTES];
    struct sh_writer w = sh_writer_make(told, sizeof told);
    uint64_t at = shoal_cid_local((shoal_cid){sh_get64(&in->payload)});
    unsigned count = 0;
    (void)arg;
    if (refuse(in))
        return;
    bool is_more = true;
    for (; count < 3 && is_more; count++) {
        uint64_t last = at;
        const struct sh_metadata_note *note = &ranges.notes[at];
        while (last + 1 < IDS && !memcmp(&ranges.notes[last + 1], note, sizeof *note))
            last++;
        is_more = last + 1 < IDS;
        sh_put64(&w, cid_of(at).v);
        sh_put64(&w, cid_of(is_more ? last : SHOAL_LOCAL_ID_MAX).v);
        sh_put16(&w, note->owner.v);
        sh_put64(&w, note->life);
        sh_put64(&w, note->zone);
        sh_put32(&w, note->incarnation);
        at = last + 1;
    }
    size_t size = (size_t)(w.at - told);
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, 3 + size, &out), SHOAL_OK);
    sh_put16(&out.w, 0);
    sh_put8(&out.w, is_more);
    sh_put_raw(&out.w, sh_bytes_make(told, size));
    sh_msg_end(in->msg, &out);
}

static inline void order_answer(struct sh_reply_to to, bool is_there)
{
    struct sh_out out;
    assert_int_equal(
        sh_msg_reply(owner.superpeer.msg, to, SH_CLUSTER_ORDER, SH_ORDER_ANSWER_BYTES, &out),
        SHOAL_OK);
    sh_put16(&out.w, 0);
    sh_put8(&out.w, (uint8_t)((is_there ? SH_ORDER_WAIT : SH_ORDER_NONE) |
                              (ranges.has_lost ? SH_ORDER_LOST : 0)));
    sh_put64(&out.w, is_there ? zone_of(LATE) : 0);
    sh_msg_end(owner.superpeer.msg, &out);
}

/* The one zone that may go first. */
static inline void on_order(void *arg, struct sh_msg_in *in)
{
    struct sh_zone late;
    (void)arg;
    uint16_t former = sh_get16(&in->payload);
    uint64_t life = sh_get64(&in->payload);
    (void)sh_get64(&in->payload);
    uint64_t above = sh_get64(&in->payload);
    bool is_near = sh_get8(&in->payload);
    assert_true(sh_reader_done(&in->payload));
    if (ranges.holds_orders && !is_near) {
        ranges.is_order_held = true;
        ranges.held_order = in->reply_to;
        return;
    }
    if (refuse(in))
        return;
    bool is_there = former == FORMER && life == FORMER_LIFE && above < zone_of(LATE) &&
                    !ranges.is_late_unknown &&
                    sh_metadata_zone(owner.superpeer.metadata, zone_of(LATE), &late) &&
                    late.former.v;
    order_answer(in->reply_to, is_there);
}

static inline void on_zone(void *arg, struct sh_msg_in *in)
{
    if (!refuse(in))
        fake_on_zone(arg, in);
}

static inline void record_apply(uint8_t kind, const struct sh_zone *record, uint16_t from,
                                uint64_t life)
{
    struct sh_metadata *metadata = owner.superpeer.metadata;
    const struct sh_metadata_update update = {.kind = kind,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = {from},
                                              .sequence = life,
                                              .zone = *record};
    unsigned shard = sh_zone_shard(record->id);
    if (!sh_metadata_incarnation(metadata, shard))
        sh_metadata_begin(metadata, shard, 1, true);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
}

static inline struct sh_zone record_of(uint64_t number)
{
    struct sh_zone record;
    assert_true(sh_metadata_zone(owner.superpeer.metadata, zone_of(number), &record));
    return record;
}

/* Has this node bring a zone back that a node had in one of its lives. The first backup has a replica, too. */
static inline void record_make_of(uint64_t id, shoal_nid former, uint64_t life, bool has_failed_one)
{
    struct sh_zone record = {
        .id = id,
        .owner = former,
        .life = life,
        .incarnation = 1,
        .version = 1,
        .wanted = 1,
        .count = 2,
        .backups = {{{FAKE_OWNER}, OWN_DISK}, {owner.backups[0].nid, owner.backups[0].disk}}};
    record_apply(SH_METADATA_ZONE_NEW, &record, former.v, life);
    sh_zone_former_set(&record, former, life);
    if (has_failed_one) {
        record.owner = (shoal_nid){FAILED};
        record.life = FAILED_LIFE;
        record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
        assert_true(sh_metadata_zone(owner.superpeer.metadata, id, &record));
    }
    record.owner = (shoal_nid){FAKE_OWNER};
    record.life = FAKE_LIFE;
    record_apply(SH_METADATA_ZONE_CHANGE, &record, FAKE_SUPERPEER, 1);
}

/* One that its creator had in its first life. */
static inline void record_make_id(uint64_t id, bool has_failed_one)
{
    record_make_of(id, sh_zone_creator(id), FORMER_LIFE, has_failed_one);
}

static inline void record_make(uint64_t number, bool has_failed_one)
{
    record_make_id(zone_of(number), has_failed_one);
}

/* --- The other backup ---------------------------------------------------------------------------- */

static inline void on_prepare(void *arg, struct sh_msg_in *in)
{
    struct fake_backup *backup = arg;
    const struct fake_zone *zone = fake_find(backup, sh_get64(&in->payload));
    struct sh_out out;
    assert_int_equal(sh_msg_reply(in->msg, in->reply_to, in->type, SH_PREPARED_BYTES, &out),
                     SHOAL_OK);
    sh_put64(&out.w, zone ? zone->now.next : 1);
    sh_put64(&out.w, backup->disk);
    sh_put8(&out.w, SH_PREPARED_WHOLE);
    sh_msg_end(in->msg, &out);
}

static inline void replica_make_id(uint64_t id, uint64_t next)
{
    const struct sh_replication_open open = {.zone = id, .first = next};
    fake_begin(&owner.backups[0], &open)->incarnation = 1;
}

static inline void replica_make(uint64_t number, uint64_t next)
{
    replica_make_id(zone_of(number), next);
}

/* --- The node's own log ------------------------------------------------------------------------ */

static struct {
    struct sh_replog *log;
    struct sh_keeper *keeper;
    struct sh_restorer *restorer;
    bool is_served[IDS];
    bool holds_reads;    /* the log stands still while it has read a part of the earlier zone */
    bool has_none;       /* of the chunks that its own zones claim */
    bool is_unconfirmed; /* the disk does not say yet that the life was admitted */
    unsigned refuses;    /* so many times it serves nothing yet */
    uint16_t ran_by;     /* of results that are filled: another node; 0: the zone's owner */
    unsigned completed;
    uint64_t next[LATE + 1]; /* numbers of the zones' writes */
    /* Who makes room, and how often that was asked for; NULL: there is none. */
    enum shoal_err (*make_room)(const struct sh_room_wish *wish, struct sh_room_found *found_out);
    unsigned rooms;
} own;

static struct sh_restore_progress progress; /* that the node has said last */

static inline uint64_t now_of_owner(void)
{
    return sh_now(&sh_world_env(owner.world, 1)->clock);
}

static inline uint32_t seconds_now(void)
{
    return (uint32_t)(now_of_owner() / 1000000000);
}

static inline void on_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    (void)arg;
    if (own.keeper)
        (void)sh_keeper_durable(own.keeper, zone, sequence);
}

static inline void log_open(void)
{
    const struct sh_env *env = sh_world_env(owner.world, 1);
    const struct sh_replog_config config = {.disk = env->disk,
                                            .name = "replicas",
                                            .random = env->random,
                                            .cluster = 77,
                                            .node = FAKE_OWNER,
                                            .slot_bytes = 128 << 10,
                                            .slots = 200,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 4 << 20,
                                            .batch_bytes = 32 << 10,
                                            .linger_ns = 20 * FAKE_MS,
                                            .versions_max = 4096,
                                            .completions = sh_backup_completions(owner.backup),
                                            .durable = on_durable};
    assert_int_equal(sh_replog_open(&config, now_of_owner(), seconds_now(), &own.log), SHOAL_OK);
}

static struct sh_replog_zone *filled;
static uint64_t filled_number;

static inline void fill_begin_id(uint64_t id)
{
    const struct sh_replog_zone_config config = {.id = id,
                                                 .owner = sh_zone_creator(id).v,
                                                 .incarnation = 1,
                                                 .first = 1,
                                                 .bytes_max = 5 << 20,
                                                 .rest_max = 1000};
    assert_int_equal(sh_replog_zone_add(own.log, &config, &filled), SHOAL_OK);
    filled_number = sh_zone_number(id);
}

static inline void fill_begin(uint64_t number)
{
    fill_begin_id(zone_of(number));
}

static inline void fill(const struct sh_replog_write *write)
{
    assert_int_equal(sh_replog_append(filled, write), SHOAL_OK);
    own.next[filled_number] = sh_replog_next(filled);
}

static inline void fill_claim(uint64_t place, uint64_t first, uint64_t last)
{
    uint8_t range[16];
    sh_store64(range, first);
    sh_store64(range + 8, last);
    fill(&(const struct sh_replog_write){
        .local_id = 1 + place, .pieces = 1, .payload = {range, sizeof range}});
}

static inline void fill_image(uint64_t local, uint8_t stamp)
{
    uint8_t bytes[100], completion[SH_COMPLETION_BYTES_MAX];
    const struct sh_completion done = {
        .client = 8, .number = local, .node = own.ran_by, .chunk = cid_of(local).v, .value = 1};
    memset(bytes, stamp, sizeof bytes);
    fill(&(const struct sh_replog_write){
        .local_id = local,
        .creator = FORMER,
        .pieces = 1,
        .payload = {bytes, sizeof bytes},
        .completion = {completion, sh_completion_put(&done, completion)}});
}

/* All of it is on the disk, and the process begins anew. */
static inline void fill_end(void)
{
    struct sh_disk *disk = sh_world_env(owner.world, 1)->disk;
    for (uint64_t i = 0; i < 4; i++) {
        uint64_t number = EARLY + i % 2, id = i < 2 ? zone_of(number) : zone_of_other(number);
        struct sh_replog_zone *zone = sh_replog_zone_find(own.log, id);
        if (!zone)
            continue;
        sh_replog_sync(zone);
        while (sh_replog_durable(zone) < sh_replog_next(zone)) {
            (void)sh_replog_step(own.log, now_of_owner(), seconds_now());
            (void)sh_disk_poll(disk, true);
        }
    }
    sh_replog_close(own.log);
    log_open();
}

/* --- The node ------------------------------------------------------------------------------------ */

static inline enum sh_keeper_life life_of(void *arg, shoal_nid nid, uint64_t life)
{
    (void)arg;
    (void)life;
    return nid.v == FORMER || nid.v == OTHER ? SH_KEEPER_LIFE_OVER : SH_KEEPER_LIFE_UNKNOWN;
}

static inline bool serves(void *arg, shoal_cid first, shoal_cid last)
{
    (void)arg;
    if (own.refuses && own.refuses--)
        return false;
    for (uint64_t id = first.v; id <= last.v; id++)
        own.is_served[shoal_cid_local((shoal_cid){id}) % IDS] = true;
    return true;
}

static inline bool is_confirmed(void *arg)
{
    (void)arg;
    return !own.is_unconfirmed;
}

static inline bool may_have(void *arg, shoal_cid cid)
{
    (void)arg;
    return !own.has_none || own.is_served[shoal_cid_local(cid) % IDS];
}

static inline enum shoal_err make_room(void *arg, const struct sh_room_wish *wish,
                                       struct sh_room_found *found_out)
{
    (void)arg;
    own.rooms++;
    return own.make_room ? own.make_room(wish, found_out) : SHOAL_EFULL;
}

static inline void on_completed(void *arg, const struct sh_completion *completion)
{
    (void)arg;
    bool is_owners = completion->node == FORMER || completion->node == OTHER;
    assert_true(completion->client == 8 && (is_owners || completion->node == own.ran_by));
    assert_int_equal(completion->is_with_chunk, !is_owners);
    own.completed++;
}

static inline bool is_held(void)
{
    const struct sh_replog_zone *zone = sh_replog_zone_find(own.log, zone_of(EARLY));
    return own.holds_reads && zone && sh_replog_zone_progress(zone).read;
}

static inline unsigned own_run(void *arg)
{
    uint64_t now_ns = now_of_owner();
    (void)arg;
    if (!own.keeper)
        return 0;
    (void)sh_disk_poll(sh_world_env(owner.world, 1)->disk, false);
    unsigned work = is_held() ? 0 : sh_replog_step(own.log, now_ns, seconds_now());
    return work + sh_restorer_step(own.restorer, now_ns) + sh_keeper_step(own.keeper, now_ns);
}

static inline uint64_t own_due_ns(void *arg)
{
    (void)arg;
    if (!own.keeper)
        return UINT64_MAX;
    uint64_t due_ns = is_held() ? UINT64_MAX : sh_replog_due_ns(own.log),
             keeper_ns = sh_keeper_due_ns(own.keeper),
             restorer_ns = sh_restorer_due_ns(own.restorer);
    due_ns = keeper_ns < due_ns ? keeper_ns : due_ns;
    return restorer_ns < due_ns ? restorer_ns : due_ns;
}

static inline void rig_open(uint64_t seed)
{
    struct sh_world_config config = calm;
    config.seed = seed;
    memset(&own, 0, sizeof own);
    memset(&ranges, 0, sizeof ranges);
    memset(&progress, 0, sizeof progress);
    node_note(0, IDS - 1, FORMER);
    owner_open(&owner, &config, 2, 2, 1);
    struct sh_msg *msg = owner.superpeer.msg;
    assert_int_equal(sh_msg_node_set(msg, (shoal_nid){FAKE_OWNER}, "node1:4100"), SHOAL_OK);
    sh_msg_handler_set(msg, SH_CLUSTER_TAKE, SH_MSG_INLINE, on_take, &owner.superpeer);
    sh_msg_handler_set(msg, SH_CLUSTER_TREE, SH_MSG_INLINE, on_tree, &owner.superpeer);
    sh_msg_handler_set(msg, SH_CLUSTER_ORDER, SH_MSG_INLINE, on_order, &owner.superpeer);
    sh_msg_handler_set(msg, SH_CLUSTER_ZONE, SH_MSG_INLINE, on_zone, &owner.superpeer);
    for (unsigned i = 0; i < 2; i++) {
        owner.backups[i].is_lenient = true;
        sh_msg_handler_set(owner.backups[i].msg, SH_CLUSTER_PREPARE, SH_MSG_INLINE, on_prepare,
                           &owner.backups[i]);
    }
    log_open();
}

/* The log is filled: the node takes part. */
static inline void rig_begin(void)
{
    const struct sh_clock clock = sh_world_env(owner.world, 1)->clock;
    fill_end();
    const struct sh_keeper_config kept = {.msg = owner.msg,
                                          .log = own.log,
                                          .disk_id = OWN_DISK,
                                          .clock = clock,
                                          .zones_max = FAKE_ZONES,
                                          .credit_bytes = FAKE_CREDIT,
                                          .life_of = life_of,
                                          .wake = fake_wake};
    assert_int_equal(sh_keeper_create(&kept, &own.keeper), SHOAL_OK);
    const struct sh_restorer_config config = {.msg = owner.msg,
                                              .keeper = own.keeper,
                                              .backup = owner.backup,
                                              .store = owner.store,
                                              .zones = owner.zones,
                                              .clock = clock,
                                              .life = FAKE_LIFE,
                                              .directory = owner.directory,
                                              .is_confirmed = is_confirmed,
                                              .may_have = may_have,
                                              .serves = serves,
                                              .completed = on_completed,
                                              .make_room = make_room,
                                              .wake = fake_wake};
    assert_int_equal(sh_restorer_create(&config, &own.restorer), SHOAL_OK);
    sh_restorer_begin(own.restorer, own.log, (shoal_nid){FAKE_OWNER});
    sh_world_step_add(owner.world, 1,
                      (struct sh_step){.name = "restorer", .run = own_run, .due_ns = own_due_ns});
    owner_pass(&owner, 500 * FAKE_MS);
}

/* As node/logs.c, in the middle of whatever it does. */
static inline void rig_close(void)
{
    sh_zones_destroy(owner.zones);
    owner.zones = NULL;
    sh_restorer_destroy(own.restorer);
    sh_keeper_destroy(own.keeper);
    own.keeper = NULL;
    sh_replog_close(own.log);
    owner_close(&owner);
}

static inline void on_recovering(struct sh_request *request, enum shoal_err err,
                                 struct sh_reader *payload)
{
    /* The node may have ended, or the connection be lost: it is told again. */
    if (!err) {
        assert_true(sh_restore_progress_get(payload, &progress) && sh_reader_done(payload));
    }
    free(request);
}

/* The superpeer tells the node of a zone. */
static inline void recover_id(uint64_t id)
{
    struct sh_request *request = calloc(1, sizeof *request);
    struct sh_out out;
    request->done = on_recovering;
    if (sh_msg_request(owner.superpeer.msg, (shoal_nid){FAKE_OWNER}, SH_CLUSTER_RECOVER,
                       SH_RECOVER_BYTES, request, &out)) {
        free(request); /* the connection is lost: it is told again */
        return;
    }
    sh_put64(&out.w, id);
    sh_put64(&out.w, 1);
    sh_msg_end(owner.superpeer.msg, &out);
}

static inline void recover(uint64_t number)
{
    recover_id(zone_of(number));
}

static inline struct sh_restorer_status status(void)
{
    struct sh_restorer_status now;
    sh_restorer_status_get(own.restorer, &now);
    return now;
}

static inline bool is_back(void *arg)
{
    (void)arg;
    return status().restored == 1;
}

static inline bool are_both_back(void *arg)
{
    (void)arg;
    return status().restored == 2;
}

static inline bool is_over(void *arg)
{
    (void)arg;
    return !status().zones;
}

static inline bool has_failed(void *arg)
{
    (void)arg;
    return status().failed;
}

/* What the store has of a chunk; 0: nothing. */
static inline uint8_t stamp_of(uint64_t local)
{
    uint8_t bytes[100];
    uint32_t size;
    enum shoal_err err = sh_store_get(owner.store, cid_of(local), bytes, sizeof bytes, &size);
    return err ? 0 : bytes[0];
}

#endif
