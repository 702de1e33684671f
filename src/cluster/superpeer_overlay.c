/* A superpeer's part in the ring: its messages, its lease, and the requests that wait for updates.
 *
 *   METADATA --> ring ----RING----> holders --> ring: apply --> answered
 *   LEASE -----> leader, who has heard this superpeer then and will not call it failed for a while
 *   ARC, RING -> the registry's log: changes of sectors; this process has begun */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/metadata.h"
#include "cluster/overlay.h"
#include "cluster/proto.h"
#include "cluster/report.h"
#include "cluster/superpeer_shared_int.h"

#define ENTRIES_KEPT 128
#define PIECE_BYTES 16384
#define WAITING_MAX 4096

/* A request that waits for its update to be applied. */
struct waiting {
    struct waiting *next;
    unsigned sector;
    uint64_t epoch, sequence;
    struct sh_reply_to reply_to;
    sh_msg_type type;
    uint64_t deadline_ns;
};

struct sh_superpeer_overlay {
    struct sh_superpeer *superpeer;
    struct sh_overlay *ring;
    struct sh_metadata *metadata;
    bool is_joined, is_started;
    struct sh_arcs seen; /* the table that the ring was told */
    uint64_t beat_ns;
    /* A leader's: the question to the others whether it still is, and when the last one that they
     * have affirmed was asked; 0: never. */
    struct sh_raft_read read;
    bool is_reading;
    uint64_t read_ns, confirmed_ns;
    bool is_built[SH_SECTORS]; /* false: to be built in that version */
    uint64_t build_version[SH_SECTORS];
    struct waiting *waiting;
    size_t waiting_count;
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- Answers --------------------------------------------------------------------------------- */

static void metadata_answer(struct sh_superpeer *superpeer, struct sh_reply_to to, sh_msg_type type,
                            uint8_t superpeer_nid, const struct sh_metadata_result *result)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, type, SH_METADATA_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, superpeer_nid);
    sh_put16(&out.w, (uint16_t)result->err);
    sh_put8(&out.w, result->is_committed);
    sh_put64(&out.w, result->cid.v);
    sh_msg_end(superpeer->msg, &out);
}

static struct waiting **waiting_find(struct sh_superpeer_overlay *part, unsigned sector,
                                     uint64_t epoch, uint64_t sequence)
{
    struct waiting **at = &part->waiting;
    while (*at && ((*at)->sector != sector || (*at)->epoch != epoch || (*at)->sequence != sequence))
        at = &(*at)->next;
    return at;
}

static void waiting_end(struct sh_superpeer_overlay *part, struct waiting **at)
{
    struct waiting *waiting = *at;
    *at = waiting->next;
    part->waiting_count--;
    free(waiting);
}

/* --- The state ------------------------------------------------------------------------------- */

static void apply(void *arg, unsigned sector, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    struct sh_superpeer_overlay *part = arg;
    struct sh_metadata_update update;
    struct sh_metadata_result result = {.err = SHOAL_EPROTO}; /* at all holders alike */
    if (!sh_metadata_update_get(command, sector, &update))
        result = sh_metadata_apply(part->metadata, sector, &update);
    struct waiting **at = waiting_find(part, sector, epoch, sequence);
    if (!*at)
        return;
    metadata_answer(part->superpeer, (*at)->reply_to, (*at)->type, 0, &result);
    waiting_end(part, at);
}

static size_t image_size(void *arg, unsigned sector)
{
    struct sh_superpeer_overlay *part = arg;
    return sh_metadata_image_size(part->metadata, sector);
}

static void image_put(void *arg, unsigned sector, struct sh_writer *w)
{
    struct sh_superpeer_overlay *part = arg;
    sh_metadata_image_put(part->metadata, sector, w);
}

static enum shoal_err image_get(void *arg, unsigned sector, struct sh_bytes image)
{
    struct sh_superpeer_overlay *part = arg;
    return sh_metadata_image_get(part->metadata, sector, image);
}

static void clear(void *arg, unsigned sector)
{
    struct sh_superpeer_overlay *part = arg;
    sh_metadata_clear(part->metadata, sector);
}

static void build(void *arg, unsigned sector, uint64_t version)
{
    struct sh_superpeer_overlay *part = arg;
    part->is_built[sector] = false;
    part->build_version[sector] = version;
}

/* --- Requests -------------------------------------------------------------------------------- */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* Whether the update can't be ordered, by what is not in the sector's state. */
static enum shoal_err update_check(const struct sh_superpeer *superpeer,
                                   const struct sh_metadata_update *update)
{
    if (update->kind == SH_METADATA_FORGET)
        return SHOAL_EPROTO;
    if (update->kind != SH_METADATA_MOVE)
        return SHOAL_OK;
    const struct sh_node *to = sh_view_find(sh_registry_view(superpeer->registry), update->to);
    return to && to->state == SH_NODE_UP ? SHOAL_OK : SHOAL_ENONODE;
}

static void update_begin(struct sh_superpeer *superpeer, struct sh_msg_in *in, unsigned sector,
                         struct sh_bytes bytes)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    uint64_t now_ns = now_of(superpeer);
    struct waiting *waiting = part->waiting_count < WAITING_MAX ? calloc(1, sizeof *waiting) : NULL;
    if (!waiting) {
        refuse(in, SHOAL_EBUSY, NULL);
        return;
    }
    waiting->sector = sector;
    waiting->reply_to = in->reply_to;
    waiting->type = in->type;
    waiting->deadline_ns = now_ns + superpeer->failure_ns;
    waiting->next = part->waiting;
    part->waiting = waiting;
    part->waiting_count++;
    /* It may be applied, and answered, within this call; it is the first of the list until then. */
    enum shoal_err err =
        sh_overlay_update(part->ring, now_ns, sector, bytes, &waiting->epoch, &waiting->sequence);
    if (err) {
        waiting_end(part, &part->waiting);
        refuse(in, err, "the sector is changing hands");
    }
}

static void on_metadata(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    struct sh_metadata_update update;
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    enum shoal_err err = SHOAL_EPROTO;
    unsigned sector = 0;
    /* Which sector it is of, only the update says. */
    for (; err && sector < SH_SECTORS; sector++)
        err = sh_metadata_update_get(bytes, sector, &update);
    if (!err)
        err = update_check(superpeer, &update);
    if (err) {
        refuse(in, err, err == SHOAL_ENONODE ? "the target is not up" : NULL);
        return;
    }
    sector = sh_metadata_sector(&update);
    err = sh_overlay_reads(part->ring, now_of(superpeer), sector);
    uint8_t owner = sh_overlay_owner(part->ring, sector);
    if (err == SHOAL_EROLE && owner)
        metadata_answer(superpeer, in->reply_to, in->type, owner, &(struct sh_metadata_result){0});
    else if (err)
        refuse(in, SHOAL_EBUSY, "the sector is changing hands");
    else
        update_begin(superpeer, in, sector, bytes);
}

static void on_name_get(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    struct sh_bytes name = sh_get_text(&in->payload);
    if (!sh_reader_done(&in->payload) || !name.size || name.size > SH_NAME_BYTES_MAX) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    unsigned sector = sh_arc_sector_of_name(name);
    enum shoal_err err = sh_overlay_reads(part->ring, now_of(superpeer), sector);
    uint8_t owner = 0;
    shoal_cid cid = SHOAL_CID_NONE;
    if (err == SHOAL_EROLE) {
        owner = sh_overlay_owner(part->ring, sector);
        err = owner ? SHOAL_OK : SHOAL_EBUSY;
    } else if (!err) {
        err = sh_metadata_lookup(part->metadata, name, &cid);
    }
    struct sh_out out;
    if (err) {
        refuse(in, err, err == SHOAL_EBUSY ? "the sector is changing hands" : NULL);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, SH_NAME_ANSWER_BYTES, &out)) {
        sh_put16(&out.w, owner);
        sh_put64(&out.w, cid.v);
        sh_msg_end(in->msg, &out);
    }
}

enum shoal_err sh_superpeer_overlay_lookup(struct sh_superpeer *superpeer, shoal_cid cid,
                                           struct sh_range *range_out)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    shoal_nid creator = shoal_cid_creator(cid);
    if (!part) /* in ZooKeeper: nothing is known of chunks but their creators */
        return sh_registry_lookup(superpeer->registry, cid, range_out);
    if (creator.v < SH_PEER_NID_MIN || creator.v > SH_PEER_NID_MAX)
        return SHOAL_ENOCHUNK;
    unsigned sector = sh_arc_sector(creator);
    enum shoal_err err = sh_overlay_reads(part->ring, now_of(superpeer), sector);
    uint8_t owner = sh_overlay_owner(part->ring, sector);
    if (err == SHOAL_EROLE && owner) {
        *range_out = (struct sh_range){cid, cid, owner};
        return SHOAL_OK;
    }
    if (err)
        return SHOAL_EBUSY;
    return sh_registry_lookup(superpeer->registry, cid, range_out);
}

/* --- Between superpeers ---------------------------------------------------------------------- */

static void on_ring(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    if (sh_shared_is_other(superpeer, in->reply_to.nid))
        sh_overlay_receive(superpeer->shared->ring->ring, now_of(superpeer),
                           (uint8_t)in->reply_to.nid.v, bytes);
}

static void lease_send(struct sh_superpeer *superpeer, shoal_nid to, bool is_answer,
                       uint64_t time_ns)
{
    struct sh_out out;
    if (sh_msg_begin(superpeer->msg, to, SH_CLUSTER_LEASE, SH_LEASE_BYTES, &out))
        return; /* asked for again with the next heartbeat */
    sh_put8(&out.w, is_answer);
    sh_put64(&out.w, time_ns);
    sh_msg_end(superpeer->msg, &out);
}

/* Who has a lease may answer for half of failure_ns after it asked for it. A leader gives one to
 * whom it has heard within a quarter of failure_ns, so it will not call that one failed before. Nor
 * will another leader, who gives everybody failure_ns anew: he can't have been elected before this
 * one was confirmed by a majority last, which also was within a quarter. */
static void on_lease(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_shared *shared = superpeer->shared;
    bool is_answer = sh_get8(&in->payload);
    uint64_t time_ns = sh_get64(&in->payload);
    uint64_t now_ns = now_of(superpeer);
    shoal_nid from = in->reply_to.nid;
    if (!sh_reader_done(&in->payload) || !sh_shared_is_other(superpeer, from))
        return;
    if (is_answer) {
        if (time_ns <= now_ns && sh_raft_leader(shared->raft) == from.v)
            sh_overlay_lease_set(shared->ring->ring, now_ns, time_ns + superpeer->failure_ns / 2);
    } else if (sh_raft_role(shared->raft) == SH_RAFT_LEADER) {
        uint64_t heard_ns = sh_raft_heard_ns(shared->raft, (uint8_t)from.v);
        uint64_t confirmed_ns = shared->ring->confirmed_ns;
        uint64_t quarter_ns = superpeer->failure_ns / 4;
        if (heard_ns && now_ns < heard_ns + quarter_ns && confirmed_ns &&
            now_ns < confirmed_ns + quarter_ns)
            lease_send(superpeer, from, true, time_ns);
    }
}

static void lease_renew(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_superpeer_overlay *part = shared->ring;
    uint8_t leader = sh_raft_leader(shared->raft);
    if (sh_raft_role(shared->raft) != SH_RAFT_LEADER) {
        if (leader)
            lease_send(superpeer, (shoal_nid){leader}, false, now_ns);
    } else if (!part->is_reading && !sh_raft_read_begin(shared->raft, &part->read)) {
        part->is_reading = true;
        part->read_ns = now_ns;
    }
}

/* Looks whether this leader has been confirmed: then it has a lease, too. */
static void confirm_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    if (!part->is_reading)
        return;
    enum shoal_err err = sh_raft_read_done(superpeer->shared->raft, &part->read);
    if (err == SHOAL_EAGAIN)
        return;
    part->is_reading = false;
    if (err)
        return;
    part->confirmed_ns = part->read_ns;
    sh_overlay_lease_set(part->ring, now_ns, part->read_ns + superpeer->failure_ns / 2);
}

/* --- Step ------------------------------------------------------------------------------------ */

void sh_shared_overlay_joined(struct sh_superpeer *superpeer)
{
    superpeer->shared->ring->is_joined = true;
}

/* Tells the ring what the registry says. */
static void arcs_step(struct sh_superpeer_overlay *part, uint64_t now_ns)
{
    const struct sh_arcs *arcs = sh_registry_arcs(part->superpeer->registry);
    bool starts = part->is_joined && !part->is_started;
    if (!starts && memcmp(arcs, &part->seen, sizeof part->seen) == 0)
        return;
    part->seen = *arcs;
    if (starts)
        sh_overlay_start(part->ring, now_ns, arcs);
    else if (part->is_started)
        sh_overlay_arcs_set(part->ring, now_ns, arcs);
    part->is_started |= starts;
}

/* What nobody holds any more begins empty: that chunks have moved is not known to anybody else. */
static void build_step(struct sh_superpeer_overlay *part, uint64_t now_ns)
{
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        if (part->is_built[i])
            continue;
        part->is_built[i] = true;
        sh_overlay_built(part->ring, now_ns, i, part->build_version[i]);
    }
}

static unsigned effects_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    struct sh_arc_change change;
    struct sh_overlay_message *message;
    unsigned work = 0;
    while (sh_overlay_change_next(part->ring, now_ns, &change)) {
        uint8_t bytes[SH_ARC_CHANGE_BYTES];
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_arc_change_put(&w, &change);
        struct sh_command command = {.kind = SH_COMMAND_ARC,
                                     .address = sh_bytes_make(bytes, sizeof bytes)};
        sh_shared_decide(superpeer, &command);
        work++;
    }
    while ((message = sh_overlay_message_next(part->ring))) {
        struct sh_out out;
        /* What can't be sent is lost: the ring says it again. */
        if (sh_shared_is_other(superpeer, (shoal_nid){message->to}) &&
            !sh_msg_begin(superpeer->msg, (shoal_nid){message->to}, SH_CLUSTER_RING, message->size,
                          &out)) {
            sh_put_raw(&out.w, sh_bytes_make(message->bytes, message->size));
            sh_msg_end(superpeer->msg, &out);
        }
        free(message);
        work++;
    }
    return work;
}

static void waiting_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    struct waiting **at = &part->waiting;
    while (*at) {
        bool is_owner = sh_overlay_owner(part->ring, (*at)->sector) == superpeer->index + 1;
        if (is_owner && now_ns < (*at)->deadline_ns) {
            at = &(*at)->next;
            continue;
        }
        sh_msg_reply_error(superpeer->msg, (*at)->reply_to, (*at)->type, SHOAL_ETIMEOUT,
                           "it may or may not have been done");
        waiting_end(part, at);
    }
}

unsigned sh_shared_overlay_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    unsigned work = 0;
    if (!part)
        return 0;
    arcs_step(part, now_ns);
    if (now_ns >= part->beat_ns) {
        /* Until it takes part nobody is answered, so it hurries. */
        part->beat_ns = now_ns + superpeer->heartbeat_ns / (part->is_started ? 1 : 4) + 1;
        lease_renew(superpeer, now_ns);
        struct sh_command command = {.kind = SH_COMMAND_RING,
                                     .nid = {(uint16_t)(superpeer->index + 1)},
                                     .instance = superpeer->shared->instance};
        if (!part->is_joined)
            sh_shared_decide(superpeer, &command);
        work++;
    }
    confirm_step(superpeer, now_ns);
    build_step(part, now_ns);
    sh_overlay_tick(part->ring, now_ns);
    work += effects_step(superpeer, now_ns);
    waiting_step(superpeer, now_ns);
    return work;
}

uint64_t sh_shared_overlay_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_superpeer_overlay *part = superpeer->shared->ring;
    uint64_t due_ns = sh_overlay_due_ns(part->ring);
    return part->beat_ns < due_ns ? part->beat_ns : due_ns;
}

void sh_shared_overlay_report(const struct sh_superpeer *superpeer, struct sh_report *report)
{
    const struct sh_superpeer_overlay *part = superpeer->shared->ring;
    const struct sh_arcs *arcs = sh_registry_arcs(superpeer->registry);
    report->sector_count = SH_SECTORS;
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_metadata_sizes sizes = sh_metadata_measure(part->metadata, i);
        report->sectors[i] = (struct sh_report_sector){
            .owner = arcs->sectors[i].owner,
            .is_here = sh_overlay_holds(part->ring, i),
            .version = arcs->sectors[i].version,
            .holders = arcs->sectors[i].holders,
            .applied = sh_overlay_applied(part->ring, i),
            .ranges = sizes.ranges,
            .sources = sizes.sources,
            .names = sizes.names,
            .bytes = sizes.bytes,
        };
    }
}

/* --- Life ------------------------------------------------------------------------------------ */

enum shoal_err sh_shared_overlay_open(struct sh_superpeer *superpeer)
{
    struct sh_superpeer_overlay *part = calloc(1, sizeof *part);
    if (!part)
        return SHOAL_ENOMEM;
    superpeer->shared->ring = part;
    part->superpeer = superpeer;
    memset(part->is_built, true, sizeof part->is_built);
    struct sh_overlay_config config = {
        .server = (uint8_t)(superpeer->index + 1),
        .resend_ns = superpeer->heartbeat_ns,
        .patience_ns = superpeer->failure_ns,
        .entries_kept = ENTRIES_KEPT,
        .piece_bytes = PIECE_BYTES,
        .fsm = {apply, image_size, image_put, image_get, clear, build, part},
    };
    enum shoal_err err = sh_metadata_create(&part->metadata);
    if (!err)
        err = sh_overlay_create(&config, &part->ring);
    if (err)
        return err; /* close frees the rest */
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_CLUSTER_RING, on_ring},
        {SH_CLUSTER_LEASE, on_lease},
        {SH_CLUSTER_METADATA, on_metadata},
        {SH_CLUSTER_NAME_GET, on_name_get},
    };
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(superpeer->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           superpeer);
    return SHOAL_OK;
}

void sh_shared_overlay_close(struct sh_superpeer *superpeer)
{
    struct sh_superpeer_overlay *part = superpeer->shared->ring;
    if (!part)
        return;
    while (part->waiting) {
        sh_msg_reply_error(superpeer->msg, part->waiting->reply_to, part->waiting->type,
                           SHOAL_ESTOPPED, NULL);
        waiting_end(part, &part->waiting);
    }
    sh_overlay_destroy(part->ring);
    sh_metadata_destroy(part->metadata);
    superpeer->shared->ring = NULL;
    free(part);
}
