/* Copying a zone to a backup that is added: all that was written before it was attached is told once more, for it alone.
 *
 *   CLAIMS ──► CHUNKS ──► RESULTS ──► SETTLES ──────────────────► JOINS ──► (in the record: over)
 *                                      all of it is on its disk    acknowledgements wait for it, too
 *
 * Results are what came of requests that clients may still repeat: a recovery from this backup must know them as well. Those that were run since the backup was attached come with
 * the stream, so it is enough to ask once behind the chunks.
 *
 * A chunk's changes meanwhile come with the stream, before or after the chunk is retold: in the order in which it happened, since
 * retelling is a write of the chunk as any other. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "backup/completion.h"
#include "base/assert.h"
#include "base/log.h"
#include "msg/once.h"

#define COPIES_DEFAULT 2u
#define RATE_DEFAULT (UINT64_C(256) << 20)
#define CHUNKS_A_STEP 128u
#define CHUNK_COST 64u /* bytes that each chunk counts beside its own */
#define RATE_SLICE 20u /* what may be copied at once is that part of a second's */
#define FULL_NS UINT64_C(1000000)
#define SLOWER 64u         /* a part of the rate that copies get while chunks are brought back */
#define RESULTS_IDS 16384u /* of a claim, whose results are asked for at once */

unsigned sh_copies_max(const struct sh_backup *backup)
{
    unsigned most = backup->config.cluster.copies_max;
    if (!most)
        most = COPIES_DEFAULT;
    return most < SH_COPIES_MAX ? most : SH_COPIES_MAX;
}

uint64_t sh_copies_rate(const struct sh_backup *backup)
{
    uint64_t rate = backup->config.cluster.copy_bytes_per_s;
    return rate ? rate : RATE_DEFAULT;
}

bool sh_copy_is_free(const struct sh_backup *backup)
{
    unsigned busy = 0;
    for (unsigned i = 0; i < SH_COPIES_MAX; i++)
        busy += backup->copies[i].zone != NULL;
    return busy < sh_copies_max(backup);
}

void sh_backup_copies_slow(struct sh_backup *backup, uint64_t until_ns)
{
    backup->copies_slow_ns = until_ns;
}

void sh_copy_begin(struct sh_sink *sink)
{
    struct sh_backup *backup = sink->zone->backup;
    unsigned i = 0;
    SH_ASSERT(!sink->zone->copy && sh_copy_is_free(backup));
    while (backup->copies[i].zone)
        i++;
    backup->copies[i] = (struct sh_copy){.zone = sink->zone, .sink = sink};
    sink->zone->copy = &backup->copies[i];
    sh_zone_watch(sink->zone);
}

void sh_copy_go_on(struct sh_sink *sink)
{
    sh_copy_begin(sink);
    sink->zone->copy->phase = SH_COPY_SETTLES;
    sink->needed = sh_backlog_next(&sink->zone->backlog);
    sh_zone_dirty(sink->zone);
}

void sh_copy_cancel(struct sh_copy *copy)
{
    if (copy->rewriting) {
        enum shoal_err err = sh_store_rewriting_end(copy->rewriting);
        (void)err; /* what was told of it is abandoned */
    }
    struct sh_backup *backup = copy->zone->backup;
    free(copy->results);
    copy->zone->copy = NULL;
    *copy = (struct sh_copy){.zone = NULL};
    sh_zones_tend(backup);                        /* another zone may wait for the place */
    atomic_store(&backup->zones.has_empty, true); /* or to be emptied */
}

static uint8_t only_of(const struct sh_copy *copy)
{
    return (uint8_t)(copy->sink->cursor.slot + 1);
}

/* --- Chunks ------------------------------------------------------------------------------------ */

void sh_copy_budget_take(struct sh_backup *backup, uint64_t bytes)
{
    backup->copied_bytes += bytes;
    backup->copy_bytes -= (int64_t)(bytes + CHUNK_COST);
}

static void copied_count(struct sh_copy *copy, uint64_t bytes)
{
    copy->bytes += bytes;
    sh_copy_budget_take(copy->zone->backup, bytes);
}

/* A piece of a large chunk. EAGAIN: there is more of it; *has_room_out: and room for that, perhaps. */
static enum shoal_err large_step(struct sh_copy *copy, bool *has_room_out)
{
    uint64_t before = sh_backlog_pending(&copy->sink->cursor);
    sh_backup_teller_set(copy->zone, only_of(copy));
    bool is_over = sh_store_rewriting_step(copy->rewriting);
    enum shoal_err err = is_over ? sh_store_rewriting_end(copy->rewriting) : SHOAL_EAGAIN;
    sh_backup_teller_set(NULL, 0);
    if (is_over)
        copy->rewriting = NULL;
    uint64_t told = sh_backlog_pending(&copy->sink->cursor) - before;
    *has_room_out = told > 0;
    if (told)
        copied_count(copy, told);
    return err;
}

/* Retells a chunk, or begins to where it is a large one. EAGAIN: not now. */
static enum shoal_err chunk_retell(struct sh_copy *copy, shoal_cid cid)
{
    struct sh_backup *backup = copy->zone->backup;
    struct sh_store *store = backup->config.store;
    uint32_t size = 0;
    enum shoal_err err = sh_store_size(store, cid, &size);
    if (err)
        return err;
    if (sh_backlog_is_half_full(&copy->zone->backlog))
        return SHOAL_EAGAIN;
    sh_backup_teller_set(copy->zone, only_of(copy));
    err = sh_store_retell(store, cid);
    sh_backup_teller_set(NULL, 0);
    if (err == SHOAL_ELIMIT) {
        const struct sh_store_rewrite rewrite = {.kind = SH_STORE_RETELL, .cid = cid};
        return sh_store_rewriting_begin(store, &rewrite, &copy->rewriting);
    }
    if (!err)
        copied_count(copy, sh_zone_bytes_of(size));
    return err;
}

bool sh_backup_chunk_next(const struct sh_backup *backup, const struct sh_zone_claim *claim,
                          uint64_t from, uint64_t *chunk_out)
{
    shoal_cid first;
    if (claim->first > claim->last || from > claim->last ||
        !sh_store_next(backup->config.store, sh_backup_store_cid(backup, from), &first))
        return false;
    *chunk_out = sh_backup_chunk(backup, first);
    return *chunk_out >= from && *chunk_out <= claim->last;
}

/* Retells the next chunk of the claim; false: not now. */
static bool claim_step(struct sh_copy *copy, const struct sh_zone_claim *claim)
{
    struct sh_backup *backup = copy->zone->backup;
    uint64_t from = copy->chunk > claim->first ? copy->chunk : claim->first;
    enum shoal_err err;
    if (copy->rewriting) {
        bool has_room;
        err = large_step(copy, &has_room);
        if (copy->rewriting)
            return has_room;
    } else if (!sh_backup_chunk_next(backup, claim, from, &copy->chunk)) {
        copy->slot++;
        copy->chunk = 0;
        return true;
    } else {
        err = chunk_retell(copy, sh_backup_store_cid(backup, copy->chunk));
        if (copy->rewriting)
            return true;
    }
    /* Removed chunks, and those that have moved to another zone, are passed over. */
    bool is_over = !err || err == SHOAL_ENOCHUNK || err == SHOAL_ENOTOWNER;
    copy->chunk += is_over;
    return is_over;
}

/* --- Results ----------------------------------------------------------------------------------- */

static void result_take(void *arg, const struct sh_completion *completion)
{
    struct sh_copy *copy = arg;
    SH_ASSERT(completion->node);
    if (copy->results_count == copy->results_room) {
        size_t room = copy->results_room ? 2 * copy->results_room : 64;
        struct sh_completion *grown = realloc(copy->results, room * sizeof *grown);
        copy->is_results_cut |= !grown;
        if (!grown)
            return;
        copy->results = grown;
        copy->results_room = room;
    }
    copy->results[copy->results_count++] = *completion;
}

/* Tells one to the backup alone, with the removal of a chunk that nobody has. False: there is no room now. */
static bool result_tell(struct sh_copy *copy, struct sh_completion completion)
{
    struct sh_own_zone *zone = copy->zone;
    struct sh_backlog_entry entry = {.chunk = SH_BACKLOG_NO_CHUNK,
                                     .kind = SH_BACKLOG_REMOVAL,
                                     .pieces = 1,
                                     .only = only_of(copy)};
    /* The node that has made the zone is not named, but where it is not known what the client had acknowledged: of requests to a former life, which another node has told of. */
    bool is_maker = !zone->adopted && completion.node == zone->backup->config.nid.v;
    if (is_maker && completion.number - completion.acknowledged <= SH_ONCE_WINDOW)
        completion.node = 0;
    else
        completion.acknowledged = 0;
    entry.completion_size = (uint8_t)sh_completion_put(&completion, entry.completion);
    uint64_t bytes = sh_backlog_bytes(true, 0) + entry.completion_size;
    if (sh_backlog_is_half_full(&zone->backlog) || sh_backlog_admit(&zone->backlog, bytes))
        return false;
    (void)sh_backlog_record(&zone->backlog, NULL, &entry);
    copied_count(copy, bytes);
    sh_zone_dirty(zone);
    return true;
}

/* Asks for those of the next part of a claim, and passes on. False: not now. */
static bool results_collect(struct sh_copy *copy, const struct sh_zone_claim *claim)
{
    const struct sh_backup_config *config = &copy->zone->backup->config;
    uint64_t from = copy->chunk > claim->first ? copy->chunk : claim->first;
    uint64_t to = from | (RESULTS_IDS - 1);
    to = to < claim->last ? to : claim->last;
    copy->results_count = copy->results_told = 0;
    copy->is_results_cut = false;
    if (claim->first <= claim->last)
        config->results(config->arg, from, to, result_take, copy);
    if (copy->is_results_cut) {
        copy->results_count = 0;
        return false;
    }
    bool is_over = claim->first > claim->last || to == claim->last;
    copy->slot += is_over;
    copy->chunk = is_over ? 0 : to + 1;
    return true;
}

static bool results_step(struct sh_copy *copy)
{
    struct sh_zone_claim claim;
    if (copy->results_told < copy->results_count) {
        bool is_told = result_tell(copy, copy->results[copy->results_told]);
        copy->results_told += is_told;
        return is_told;
    }
    if (copy->zone->backup->config.results && sh_zone_claim_get(copy->zone, copy->slot, &claim))
        return results_collect(copy, &claim);
    copy->sink->needed = sh_backlog_next(&copy->zone->backlog);
    copy->phase = SH_COPY_SETTLES;
    sh_zone_dirty(copy->zone);
    return true;
}

/* --- The step ---------------------------------------------------------------------------------- */

static bool claims_step(struct sh_copy *copy)
{
    enum shoal_err err = sh_zone_claim_retell(copy->zone, copy->slot, only_of(copy));
    if (err == SHOAL_EAGAIN)
        return false;
    copy->slot++;
    if (err == SHOAL_ENONAME) {
        copy->slot = 0;
        copy->phase = SH_COPY_CHUNKS;
    }
    sh_zone_dirty(copy->zone);
    return true;
}

static bool chunks_step(struct sh_copy *copy)
{
    struct sh_zone_claim claim;
    if (sh_zone_claim_get(copy->zone, copy->slot, &claim))
        return claim_step(copy, &claim);
    copy->slot = 0;
    copy->chunk = 0;
    copy->phase = SH_COPY_RESULTS;
    return true;
}

/* Does the next of a copy; false: nothing can be done now. */
static bool copy_one(struct sh_copy *copy)
{
    struct sh_sink *sink = copy->sink;
    bool is_open = sink->state == SH_SINK_STREAMING;
    switch (copy->phase) {
    case SH_COPY_CLAIMS:
        return is_open && claims_step(copy);
    case SH_COPY_CHUNKS:
        /* A large chunk that was begun keeps others from writing to the zone until it is over. */
        return (is_open || copy->rewriting) && chunks_step(copy);
    case SH_COPY_RESULTS:
        return is_open && results_step(copy);
    case SH_COPY_SETTLES:
        if (sink->acked[SH_LEVEL_DURABLE] < sink->needed || !is_open)
            return false;
        sink->counts = true;
        copy->phase = SH_COPY_JOINS;
        sh_zones_tend(copy->zone->backup);
        return true;
    case SH_COPY_JOINS:
        return false;
    }
    return false;
}

/* Chunks that nobody can read go first, but not before zones of which there is no backup at all. */
static uint64_t rate_now(const struct sh_backup *backup, uint64_t now_ns)
{
    uint64_t rate = sh_copies_rate(backup);
    bool is_slow = now_ns < backup->copies_slow_ns && now_ns >= backup->copies_hurry_ns;
    return is_slow ? rate / SLOWER : rate;
}

/* A token bucket. A chunk is copied when there is something in the bucket, and may take more than there is: what is missing then, of a large chunk
 * very much, is paid off before the next one. */
void sh_copy_budget_fill(struct sh_backup *backup, uint64_t now_ns)
{
    uint64_t rate = rate_now(backup, now_ns);
    int64_t most = (int64_t)(rate / RATE_SLICE) + SH_STORE_STEP_BYTES;
    uint64_t passed_ns = now_ns - backup->copy_ns;
    if (passed_ns > 1000000000)
        passed_ns = 1000000000;
    uint64_t more = rate / 1000000 * passed_ns / 1000 + rate % 1000000 * passed_ns / 1000000000;
    if (!more)
        return; /* it is counted later, with more */
    backup->copy_ns = now_ns;
    backup->copy_bytes += (int64_t)more;
    if (backup->copy_bytes > most)
        backup->copy_bytes = most;
}

unsigned sh_copies_step(struct sh_backup *backup, uint64_t now_ns)
{
    unsigned work = 0;
    sh_copy_budget_fill(backup, now_ns);
    for (unsigned i = 0; i < SH_COPIES_MAX; i++) {
        struct sh_copy *copy = &backup->copies[i];
        unsigned done = 0;
        while (copy->zone && done < CHUNKS_A_STEP &&
               (backup->copy_bytes > 0 || copy->rewriting || copy->phase >= SH_COPY_SETTLES) &&
               copy_one(copy))
            done++;
        work += done;
    }
    return work;
}

uint64_t sh_copies_due_ns(const struct sh_backup *backup)
{
    for (unsigned i = 0; i < SH_COPIES_MAX; i++) {
        if (backup->copies[i].zone && backup->copies[i].phase < SH_COPY_SETTLES)
            return backup->now_ns + FULL_NS;
    }
    return UINT64_MAX;
}
