/* A superpeer's part in the ring: what it keeps, names, and the requests that wait for updates.
 *
 *   METADATA, COMMIT --> ring ----RING----> replicas --> ring: apply --> answered
 *   ARC, RING ---------> the registry's log: changes of shards; this process has begun */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "journal/journal.h"
#include "metadata/snapshot.h"
#include "superpeer/superpeer_ring_int.h"

#define ENTRIES_KEPT 128
#define PIECE_BYTES 16384
#define WAITING_MAX 4096
#define SWEEP_CELLS 16 /* of states that are not used any more, in a step */

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- Answers --------------------------------------------------------------------------------- */

static struct sh_ring_waiting **waiting_find(struct sh_superpeer_ring *part, unsigned shard,
                                             uint64_t epoch, uint64_t sequence)
{
    struct sh_ring_waiting **at = &part->waiting;
    while (*at && ((*at)->shard != shard || (*at)->epoch != epoch || (*at)->sequence != sequence))
        at = &(*at)->next;
    return at;
}

static void waiting_end(struct sh_superpeer_ring *part, struct sh_ring_waiting **at)
{
    struct sh_ring_waiting *waiting = *at;
    SH_ASSERT(waiting && part->waiting_count > 0);
    *at = waiting->next;
    part->waiting_count--;
    free(waiting);
}

/* --- The state ------------------------------------------------------------------------------- */

static void apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    struct sh_superpeer_ring *part = arg;
    SH_ASSERT(shard < SH_SHARDS);
    struct sh_metadata_update update = {.kind = 0};
    struct sh_metadata_result result = {.err = SHOAL_EPROTO}; /* at all replicas alike */
    if (!sh_metadata_update_get(command, shard, &update))
        result = sh_metadata_apply(part->metadata, shard, &update);
    SH_ASSERT(result.err != SHOAL_ENOMEM); /* reserved before it was taken */
    if (update.kind == SH_METADATA_CLAIM && result.err == SHOAL_ELIMIT)
        sh_superpeer_gather_full(part->superpeer, shard);
    if (update.kind == SH_METADATA_RESTORED) {
        part->gather.gathered[shard] = false; /* what was heard was of the state before */
        sh_superpeer_salvage_done(part->superpeer, shard);
    }
    if (update.kind >= SH_METADATA_ZONE_NEW && update.kind <= SH_METADATA_ZONE_REMOVE)
        sh_superpeer_recoveries_changed(part->superpeer, &update);
    sh_superpeer_services_changed(part->superpeer, shard);
    struct sh_ring_waiting **at = waiting_find(part, shard, epoch, sequence);
    if (!*at)
        return;
    if ((*at)->type == SH_CLUSTER_METADATA)
        sh_superpeer_metadata_answer(part->superpeer, (*at)->reply_to, (*at)->type, SHOAL_NID_NONE,
                                     &result);
    else if ((*at)->type == SH_CLUSTER_ZONE)
        sh_superpeer_zone_answer(part->superpeer, (*at)->reply_to, (*at)->type, update.zone.id,
                                 result.err);
    else if ((*at)->type == SH_CLUSTER_TAKE || (*at)->type == SH_CLUSTER_ACCEPT_LOSS)
        sh_superpeer_result_answer(part->superpeer, (*at)->reply_to, (*at)->type, result.err);
    else
        sh_superpeer_moves_answer(part->superpeer, (*at)->reply_to, (*at)->type, &result);
    waiting_end(part, at);
}

static bool is_volatile(void *arg, unsigned shard, struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    return command.size && (command.at[0] == SH_METADATA_SCRATCH_PUT ||
                            command.at[0] == SH_METADATA_SCRATCH_REMOVE);
}

static enum shoal_err snapshot_begin(void *arg, unsigned shard, void **snapshot_out)
{
    struct sh_superpeer_ring *part = arg;
    struct sh_metadata_snapshot *snapshot;
    enum shoal_err err =
        sh_metadata_snapshot_begin(part->metadata, shard, SH_METADATA_ALL, &snapshot);
    if (!err)
        *snapshot_out = snapshot;
    return err;
}

static size_t snapshot_next(void *arg, void *snapshot, uint8_t *into, size_t room)
{
    (void)arg;
    return sh_metadata_snapshot_next(snapshot, into, room);
}

static void snapshot_end(void *arg, void *snapshot)
{
    (void)arg;
    sh_metadata_snapshot_end(snapshot);
}

static enum shoal_err restore_begin(void *arg, unsigned shard, void **restore_out)
{
    struct sh_superpeer_ring *part = arg;
    struct sh_metadata_restore *restore;
    enum shoal_err err = sh_metadata_restore_begin(part->metadata, shard, &restore);
    if (!err)
        *restore_out = restore;
    return err;
}

static enum shoal_err restore_piece(void *arg, void *restore, struct sh_bytes piece)
{
    (void)arg;
    return sh_metadata_restore_piece(restore, piece);
}

static enum shoal_err restore_end(void *arg, void *restore, bool install)
{
    (void)arg;
    return sh_metadata_restore_end(restore, install);
}

static void clear(void *arg, unsigned shard)
{
    struct sh_superpeer_ring *part = arg;
    sh_metadata_clear(part->metadata, shard);
}

static void build(void *arg, unsigned shard, uint64_t version)
{
    struct sh_superpeer_ring *part = arg;
    SH_ASSERT(shard < SH_SHARDS);
    part->is_built[shard] = false;
    part->build_version[shard] = version;
}

_Static_assert(SH_METADATA_AHEAD_MAX >= 2 * SH_RING_BACKLOG_MAX,
               "a holder may have taken as many as all have, and as many again");

static enum shoal_err reserve(void *arg, unsigned shard, struct sh_bytes command)
{
    struct sh_superpeer_ring *part = arg;
    struct sh_metadata_update update;
    return sh_metadata_update_get(command, shard, &update)
               ? SHOAL_OK
               : sh_metadata_reserve(part->metadata, shard, &update);
}

/* --- Requests -------------------------------------------------------------------------------- */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

enum shoal_err sh_superpeer_ring_reads(struct sh_superpeer *superpeer, unsigned shard,
                                       shoal_nid *other_out)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    *other_out = SHOAL_NID_NONE;
    if (!part)
        return SHOAL_EBUSY;
    enum shoal_err err = sh_ring_reads(part->ring, now_of(superpeer), shard);
    if (!err && sh_superpeer_salvage_is_due(superpeer, shard))
        return SHOAL_EBUSY;
    other_out->v = err == SHOAL_EROLE ? sh_ring_owner(part->ring, shard) : 0;
    return err == SHOAL_EROLE && !other_out->v ? SHOAL_EBUSY : err;
}

/* Lets the ring do what it can, and its journal: the ring looks at the journal before it writes, for
 * what may be said, and behind, so that what is taken is written at once. */
static unsigned log_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    SH_ASSERT(part && superpeer->journal);
    unsigned work = sh_ring_step(part->ring, now_ns);
    work += sh_superpeer_journal_step(superpeer, now_ns);
    return work + sh_ring_step(part->ring, now_ns);
}

void sh_superpeer_ring_update(struct sh_superpeer *superpeer, struct sh_msg_in *in, unsigned shard,
                              struct sh_bytes bytes)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    SH_ASSERT(shard < SH_SHARDS);
    uint64_t now_ns = now_of(superpeer);
    struct sh_ring_waiting *waiting =
        part->waiting_count < WAITING_MAX ? calloc(1, sizeof *waiting) : NULL;
    if (!waiting) {
        refuse(in, SHOAL_EBUSY, NULL);
        return;
    }
    waiting->shard = shard;
    waiting->reply_to = in->reply_to;
    waiting->type = in->type;
    waiting->deadline_ns = now_ns + superpeer->failure_ns;
    waiting->next = part->waiting;
    part->waiting = waiting;
    part->waiting_count++;
    enum shoal_err err =
        sh_ring_update(part->ring, now_ns, shard, bytes, &waiting->epoch, &waiting->sequence);
    if (err) {
        waiting_end(part, &part->waiting);
        refuse(in, err, "the shard is changing hands");
    } else if (in->type != SH_CLUSTER_METADATA) {
        part->batches[shard] = waiting->sequence;
    }
}

bool sh_superpeer_ring_is_deciding(const struct sh_superpeer *superpeer, unsigned shard)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    SH_ASSERT(shard < SH_SHARDS);
    uint64_t sequence = part->batches[shard];
    return sequence > sh_ring_applied(part->ring, shard) &&
           sequence <= sh_ring_last(part->ring, shard);
}

/* Whether a scratch value is beyond what this superpeer wants to keep. What others have to do alike
 * is not asked for; a repetition may have been done, which the state alone can tell. */
static bool is_too_much(const struct sh_superpeer *superpeer, const struct sh_metadata *metadata,
                        const struct sh_metadata_update *update)
{
    return update->kind == SH_METADATA_SCRATCH_PUT && !update->is_repeat &&
           sh_metadata_scratch_bytes(metadata, update->name, update->value.size) >
               superpeer->scratch_bytes_max;
}

static void on_metadata(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_metadata_update update;
    struct sh_metadata *metadata;
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    /* The others come with messages of their own, or from the owner alone. */
    if (sh_metadata_update_get_any(bytes, &update) || update.kind < SH_METADATA_NAME ||
        update.kind >= SH_METADATA_BARRIER_GONE) {
        refuse(in, SHOAL_EPROTO, NULL);
        return;
    }
    shoal_nid other;
    unsigned shard = sh_metadata_shard(&update);
    enum shoal_err err = sh_superpeer_services_state(superpeer, shard, &metadata, &other);
    if (err == SHOAL_EROLE)
        sh_superpeer_metadata_answer(superpeer, in->reply_to, in->type, other,
                                     &(struct sh_metadata_result){0});
    else if (err)
        refuse(in, SHOAL_EBUSY, "the shard is changing hands");
    else if (is_too_much(superpeer, metadata, &update))
        sh_superpeer_metadata_answer(superpeer, in->reply_to, in->type, SHOAL_NID_NONE,
                                     &(struct sh_metadata_result){.err = SHOAL_ELIMIT});
    else
        sh_superpeer_ring_update(superpeer, in, shard, bytes);
}

enum shoal_err sh_superpeer_ring_order(struct sh_superpeer *superpeer, unsigned shard,
                                       const struct sh_metadata_update *update)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    uint64_t epoch, sequence;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, update);
    SH_ASSERT(sh_writer_ok(&w));
    enum shoal_err err =
        sh_ring_update(superpeer->ring->ring, now_of(superpeer), shard,
                       sh_bytes_make(bytes, (size_t)(w.at - bytes)), &epoch, &sequence);
    if (!err && (update->kind == SH_METADATA_GONE || update->kind == SH_METADATA_ZONE_CHANGE))
        superpeer->ring->batches[shard] = sequence;
    return err;
}

/* --- Between superpeers ---------------------------------------------------------------------- */

static void on_ring(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&in->payload, size), size);
    /* One that takes no part any more has closed its ring, and may be sent to until it has stopped. */
    if (superpeer->ring && sh_shared_is_other(superpeer, in->reply_to.nid))
        sh_ring_receive(superpeer->ring->ring, now_of(superpeer), (uint8_t)in->reply_to.nid.v,
                        bytes);
}

/* --- Step ------------------------------------------------------------------------------------ */

/* Says when all shards are held as often as they are to be: then nothing is lost with the next
 * superpeer that fails. */
static void whole_note(struct sh_superpeer_ring *part, const struct sh_arcs *arcs)
{
    bool is_whole = part->is_started;
    for (unsigned i = 0; is_whole && i < SH_SHARDS; i++)
        is_whole = arcs->shards[i].owner && arcs->shards[i].replicas == sh_arc_wanted(arcs->up, i);
    if (is_whole && !part->is_whole)
        SH_INFO("cluster", "the ring is whole",
                SH_U64("copies", (uint64_t)__builtin_popcountll(arcs->shards[0].replicas)));
    part->is_whole = is_whole;
}

/* Whether a table has been told of this process's start, and the disk says so. On a new disk this is where
 * its life comes from. */
static bool is_started_in(struct sh_superpeer_ring *part, const struct sh_arcs *arcs)
{
    struct sh_superpeer *superpeer = part->superpeer;
    uint64_t life = arcs->lives[superpeer->index + 1];
    bool is_counted = sh_life_starts(superpeer->life);
    if (is_counted ? life == superpeer->life : (uint32_t)life == (uint32_t)superpeer->life) {
        sh_superpeer_journal_confirm(superpeer, life);
        return sh_superpeer_journal_is_confirmed(superpeer);
    }
    if (is_counted && !part->is_stale && sh_life_starts(life) >= sh_life_starts(superpeer->life)) {
        part->is_stale = true;
        SH_ERROR(
            "cluster",
            "data_dir is a copy of this superpeer's, or an old backup: another process has run "
            "on it since. This one takes no part. Start it on the newest data_dir, or on an "
            "empty one with the others' addresses",
            SH_U64("starts", sh_life_starts(superpeer->life)),
            SH_U64("known", sh_life_starts(life)));
    }
    return false;
}

/* Tells msg and the consensus which process of each superpeer is the latest. */
static void lives_tell(struct sh_superpeer *superpeer, const struct sh_arcs *arcs)
{
    struct sh_consensus *consensus = superpeer->shared->consensus;
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        if (arcs->lives[i] == superpeer->ring->seen.lives[i])
            continue;
        if (sh_shared_is_other(superpeer, (shoal_nid){i}))
            sh_msg_node_instance_set(superpeer->msg, (shoal_nid){i}, arcs->lives[i]);
        if (consensus->ops->life_set)
            consensus->ops->life_set(consensus, (shoal_nid){i}, arcs->lives[i]);
    }
}

/* Tells the ring what the registry says. */
static void arcs_step(struct sh_superpeer_ring *part, uint64_t now_ns)
{
    const struct sh_arcs *arcs = sh_registry_arcs(part->superpeer->registry);
    bool starts = !part->is_started && is_started_in(part, arcs);
    if (!starts && memcmp(arcs, &part->seen, sizeof part->seen) == 0)
        return;
    /* A registry that others made is what they made it. */
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (arcs->shards[i].version < part->seen.shards[i].version)
            return;
    }
    lives_tell(part->superpeer, arcs);
    part->seen = *arcs;
    if (starts)
        sh_ring_start(part->ring, now_ns, arcs);
    else if (part->is_started)
        sh_ring_arcs_set(part->ring, now_ns, arcs);
    part->is_started |= starts;
    whole_note(part, arcs);
}

/* What nobody holds any more begins empty, until the nodes have said what they have. */
static void build_step(struct sh_superpeer_ring *part, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = part->superpeer;
    uint64_t built = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (part->is_built[i])
            continue;
        part->is_built[i] = true;
        built |= UINT64_C(1) << i;
        sh_superpeer_gather_begin(superpeer, i);
        bool is_known = sh_superpeer_gather_is_whole(superpeer);
        uint64_t incarnation = sh_mix64(part->salt ^ sh_mix64(part->build_version[i])) | 1;
        sh_metadata_begin(part->metadata, i, incarnation, is_known);
        sh_ring_built(part->ring, now_ns, i, part->build_version[i]);
    }
    sh_superpeer_salvage_empty(superpeer, built);
}

static unsigned effects_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct sh_arc_change change;
    struct sh_ring_message *message;
    unsigned work = 0;
    while (sh_ring_change_next(part->ring, now_ns, &change)) {
        work++;
        uint8_t bytes[SH_ARC_CHANGE_BYTES];
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_arc_change_put(&w, &change);
        struct sh_command command = {.kind = SH_COMMAND_ARC,
                                     .address = sh_bytes_make(bytes, sizeof bytes)};
        sh_shared_decide(superpeer, &command);
    }
    while ((message = sh_ring_message_next(part->ring))) {
        sh_shared_send(superpeer, (shoal_nid){message->to}, SH_CLUSTER_RING,
                       sh_bytes_make(message->bytes, message->size));
        free(message);
        work++;
    }
    return work;
}

static void waiting_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    struct sh_ring_waiting **at = &part->waiting;
    while (*at) {
        bool is_owner = sh_ring_owner(part->ring, (*at)->shard) == superpeer->index + 1;
        if (is_owner && now_ns < (*at)->deadline_ns) {
            at = &(*at)->next;
            continue;
        }
        sh_msg_reply_error(superpeer->msg, (*at)->reply_to, (*at)->type, SHOAL_ETIMEOUT,
                           "it may or may not have been done");
        waiting_end(part, at);
    }
}

/* Until it takes part nobody is answered, so it hurries. */
static unsigned beat_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    if (now_ns < part->beat_ns)
        return 0;
    part->beat_ns = now_ns + superpeer->heartbeat_ns / (part->is_started ? 1 : 4) + 1;
    struct sh_command command = {.kind = SH_COMMAND_RING,
                                 .state = superpeer->memory_disk != NULL,
                                 .nid = {(uint16_t)(superpeer->index + 1)},
                                 .instance = superpeer->life};
    const struct sh_node *own = sh_view_find(sh_registry_view(superpeer->registry), command.nid);
    bool has_left = own && own->state == SH_NODE_LEFT;
    if (!part->is_started && !part->is_stale && !has_left && sh_superpeer_journal_lives(superpeer))
        sh_shared_decide(superpeer, &command);
    if (superpeer->env.disk)
        sh_superpeer_salvage_refused(superpeer);
    return 1;
}

unsigned sh_superpeer_ring_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    if (!part)
        return 0;
    sh_superpeer_journal_cluster_note(superpeer, sh_registry_cluster(superpeer->registry));
    arcs_step(part, now_ns);
    unsigned work = beat_step(superpeer, now_ns);
    uint64_t lease_ns = sh_shared_own_lease_ns(superpeer, now_ns);
    if (lease_ns)
        sh_ring_lease_set(part->ring, now_ns, now_ns + lease_ns);
    build_step(part, now_ns);
    sh_superpeer_salvage_step(superpeer);
    sh_superpeer_save_step(superpeer, now_ns);
    work += log_step(superpeer, now_ns);
    work += effects_step(superpeer, now_ns);
    work += sh_metadata_sweep(part->metadata, SWEEP_CELLS);
    waiting_step(superpeer, now_ns);
    return work + sh_superpeer_gather_step(superpeer, now_ns);
}

uint64_t sh_superpeer_ring_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    if (!part)
        return SH_NEVER;
    uint64_t due_ns = sh_ring_due_ns(part->ring);
    uint64_t journal_ns = sh_journal_due_ns(superpeer->journal, now_of(superpeer));
    due_ns = journal_ns < due_ns ? journal_ns : due_ns;
    uint64_t gather_ns = sh_superpeer_gather_due_ns(superpeer);
    due_ns = gather_ns < due_ns ? gather_ns : due_ns;
    return part->beat_ns < due_ns ? part->beat_ns : due_ns;
}

/* --- Life ------------------------------------------------------------------------------------ */

enum shoal_err sh_superpeer_ring_open(struct sh_superpeer *superpeer)
{
    SH_ASSERT(!superpeer->ring && superpeer->index < SH_SUPERPEERS_MAX);
    struct sh_superpeer_ring *part = calloc(1, sizeof *part);
    if (!part)
        return SHOAL_ENOMEM;
    superpeer->ring = part;
    part->superpeer = superpeer;
    part->salt = sh_random64(&superpeer->env.random);
    memset(part->is_built, true, sizeof part->is_built);
    struct sh_ring_config config = {
        .server = (uint8_t)(superpeer->index + 1),
        .resend_ns = superpeer->heartbeat_ns,
        .patience_ns = superpeer->failure_ns,
        .entries_kept = ENTRIES_KEPT,
        .piece_bytes = PIECE_BYTES,
        .fsm = {.apply = apply,
                .is_volatile = is_volatile,
                .reserve = reserve,
                .snapshot_begin = snapshot_begin,
                .snapshot_next = snapshot_next,
                .snapshot_end = snapshot_end,
                .restore_begin = restore_begin,
                .restore_piece = restore_piece,
                .restore_end = restore_end,
                .clear = clear,
                .build = build,
                .arg = part},
    };
    enum shoal_err err = sh_metadata_create(&part->metadata);
    if (!err)
        err = sh_ring_create(&config, &part->ring);
    if (!err)
        err = sh_superpeer_journal_open(superpeer, part->ring);
    if (err)
        return err; /* close frees the rest */
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_RING, SH_MSG_INLINE, on_ring, superpeer);
    return SHOAL_OK;
}

uint64_t sh_superpeer_incarnation(const struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    return superpeer->ring ? sh_metadata_incarnation(superpeer->ring->metadata, shard) : 0;
}

void sh_superpeer_ring_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_METADATA, SH_MSG_INLINE, on_metadata, superpeer);
    sh_superpeer_moves_handlers(superpeer);
    sh_superpeer_zone_handlers(superpeer);
    sh_superpeer_take_handlers(superpeer);
    sh_superpeer_loss_handlers(superpeer);
}

void sh_superpeer_ring_close(struct sh_superpeer *superpeer)
{
    struct sh_superpeer_ring *part = superpeer->ring;
    if (!part)
        return;
    sh_superpeer_gather_cancel(superpeer);
    while (part->waiting) {
        sh_msg_reply_error(superpeer->msg, part->waiting->reply_to, part->waiting->type,
                           SHOAL_ESTOPPED, NULL);
        waiting_end(part, &part->waiting);
    }
    sh_superpeer_journal_close(superpeer);
    sh_superpeer_save_close(superpeer);
    sh_ring_destroy(part->ring);
    sh_metadata_destroy(part->metadata);
    superpeer->ring = NULL;
    free(part);
}
