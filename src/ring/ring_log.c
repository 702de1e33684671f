/* A shard's log in memory and in the journal: taking entries, applying them, and what the journal
 * gives back when it is opened. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "ring/ring_int.h"

enum shoal_err sh_ring_log_take(struct sh_ring *ring, unsigned number, uint64_t sequence,
                                uint64_t epoch, struct sh_bytes command)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    SH_ASSERT(shard->has && sequence > shard->applied);
    SH_ASSERT(sequence <= sh_entries_last(&shard->entries) + 1);
    SH_ASSERT(number < SH_SHARDS && shard->applied <= sh_entries_last(&shard->entries));
    enum shoal_err err = fsm->reserve ? fsm->reserve(fsm->arg, number, command) : SHOAL_OK;
    if (err)
        return err;
    if (sequence <= sh_entries_last(&shard->entries))
        sh_entries_cut(&shard->entries, sequence);
    if (shard->synced >= sequence)
        shard->synced = sequence - 1;
    err = sh_entries_append(&shard->entries, epoch, 0, command);
    if (err)
        return err; /* what was dropped was never answered */
    sh_lsn lsn = sh_journal_append(ring->journal, sh_ring_stream_of(ring, number), sequence, epoch,
                                   0, command);
    bool is_volatile = fsm->is_volatile && fsm->is_volatile(fsm->arg, number, command);
    sh_entries_at(&shard->entries, sequence)->lsn = is_volatile ? 0 : lsn;
    sh_ring_touch(ring, number);
    return SHOAL_OK;
}

bool sh_ring_log_sync(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t before = shard->synced;
    SH_ASSERT(ring->is_active);
    SH_ASSERT(before >= shard->entries.base && before <= sh_entries_last(&shard->entries));
    while (shard->synced < sh_entries_last(&shard->entries) &&
           sh_entries_at(&shard->entries, shard->synced + 1)->lsn <= ring->synced)
        shard->synced++;
    if (shard->synced > before)
        shard->stalled_ns = 0;
    return shard->synced > before;
}

void sh_ring_log_apply(struct sh_ring *ring, unsigned number, uint64_t until)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    uint64_t kept = ring->config.entries_kept;
    SH_ASSERT(shard->has && until <= sh_entries_last(&shard->entries));
    while (shard->applied < until) {
        const struct sh_entry *entry = sh_entries_at(&shard->entries, shard->applied + 1);
        shard->applied++;
        fsm->apply(fsm->arg, number, entry->term, shard->applied,
                   sh_bytes_make(entry->bytes, entry->size));
    }
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        struct sh_ring_progress *progress = &shard->progress[nid];
        if (progress->outgoing &&
            shard->applied > progress->outgoing->sequence + SH_RING_SNAPSHOT_AGE * kept)
            sh_ring_outgoing_drop(ring, progress); /* another one, rather than ever more entries */
    }
    /* What is not synced here is what the journal may still have to be given again. */
    uint64_t needed = sh_ring_outgoing_lowest(shard, shard->applied);
    needed = shard->synced < needed ? shard->synced : needed;
    if (needed >= shard->entries.base + 2 * kept)
        sh_entries_shift(&shard->entries, needed - kept);
    SH_ASSERT(shard->entries.base <= shard->applied && shard->entries.base <= shard->synced);
}

void sh_ring_log_install(struct sh_ring *ring, unsigned number, uint64_t sequence, uint64_t epoch,
                         sh_lsn lsn)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    SH_ASSERT(!shard->owns && sequence <= SH_RING_SEQUENCE_MAX);
    sh_entries_reset(&shard->entries, sequence, epoch);
    shard->has = true;
    shard->has_lsn = lsn;
    shard->applied = shard->synced = sequence;
    sh_ring_touch(ring, number);
}

enum shoal_err sh_ring_log_begin(struct sh_ring *ring, unsigned number, uint64_t epoch)
{
    SH_ASSERT(number < SH_SHARDS && !ring->shards[number].owns);
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    unsigned stream = sh_ring_stream_of(ring, number);
    void *snapshot;
    uint8_t *piece = malloc(ring->config.piece_bytes);
    if (!piece)
        return SHOAL_ENOMEM;
    enum shoal_err err = fsm->snapshot_begin(fsm->arg, number, &snapshot);
    if (!err) {
        sh_journal_install_begin(ring->journal, stream, 0, epoch);
        size_t size;
        while ((size = fsm->snapshot_next(fsm->arg, snapshot, piece, ring->config.piece_bytes)))
            sh_journal_install_piece(ring->journal, stream, sh_bytes_make(piece, size));
        fsm->snapshot_end(fsm->arg, snapshot);
        sh_ring_log_install(ring, number, 0, epoch, sh_journal_install_end(ring->journal, stream));
    }
    free(piece);
    return err;
}

static void shard_forget(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    bool had = shard->has;
    sh_ring_lead_end(ring, number);
    sh_ring_incoming_drop(ring, number);
    sh_entries_reset(&shard->entries, 0, 0);
    shard->has = shard->owes_answer = shard->is_built = false;
    shard->applied = shard->synced = shard->agreed_version = 0;
    if (had)
        ring->config.fsm.clear(ring->config.fsm.arg, number);
}

void sh_ring_shard_clear(struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS && ring->journal);
    if (ring->shards[number].has)
        (void)sh_journal_drop(ring->journal, sh_ring_stream_of(ring, number));
    shard_forget(ring, number);
}

/* --- What the journal gives back ------------------------------------------------------------- */

static unsigned number_of(const struct sh_ring_shard *shard)
{
    return (unsigned)(shard - shard->ring->shards);
}

static void loading_drop(struct sh_ring_shard *shard)
{
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    if (shard->loading)
        (void)fsm->restore_end(fsm->arg, shard->loading, false);
    shard->loading = NULL;
}

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    (void)arg;
    (void)state;
    return SHOAL_ECORRUPT; /* shards have none */
}

static enum shoal_err load_entry(void *arg, uint64_t sequence, uint64_t epoch, uint8_t kind,
                                 struct sh_bytes command)
{
    struct sh_ring_shard *shard = arg;
    SH_ASSERT(!shard->ring->journal);
    if (kind || command.size > SH_RING_COMMAND_BYTES_MAX || sequence <= shard->entries.base ||
        sequence > sh_entries_last(&shard->entries) + 1)
        return SHOAL_ECORRUPT;
    if (sequence <= sh_entries_last(&shard->entries))
        sh_entries_cut(&shard->entries, sequence);
    enum shoal_err err = sh_entries_append(&shard->entries, epoch, 0, command);
    if (!err)
        sh_entries_at(&shard->entries, sequence)->lsn = 0;
    return err;
}

static enum shoal_err load_snapshot_begin(void *arg, uint64_t sequence, uint64_t epoch,
                                          bool is_first)
{
    struct sh_ring_shard *shard = arg;
    SH_ASSERT(!shard->ring->journal);
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    loading_drop(shard);
    if (is_first)
        sh_entries_reset(&shard->entries, sequence, epoch);
    shard->loading_sequence = sequence;
    shard->loading_epoch = epoch;
    return fsm->restore_begin(fsm->arg, number_of(shard), &shard->loading);
}

static enum shoal_err load_snapshot_piece(void *arg, struct sh_bytes piece)
{
    struct sh_ring_shard *shard = arg;
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    if (!shard->loading)
        return SHOAL_ECORRUPT;
    enum shoal_err err = fsm->restore_piece(fsm->arg, shard->loading, piece);
    return err == SHOAL_EPROTO ? SHOAL_ECORRUPT : err;
}

static enum shoal_err load_snapshot_end(void *arg, bool is_reset)
{
    struct sh_ring_shard *shard = arg;
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    uint64_t sequence = shard->loading_sequence;
    if (!shard->loading)
        return SHOAL_ECORRUPT;
    if (is_reset)
        sh_entries_reset(&shard->entries, sequence, shard->loading_epoch);
    else if (sequence < shard->entries.base || sequence > sh_entries_last(&shard->entries))
        return SHOAL_ECORRUPT;
    else
        sh_entries_shift(&shard->entries, sequence);
    void *restore = shard->loading;
    shard->loading = NULL;
    enum shoal_err err = fsm->restore_end(fsm->arg, restore, true);
    if (err)
        return err == SHOAL_EPROTO ? SHOAL_ECORRUPT : err;
    shard->has = true;
    shard->applied = sequence;
    return SHOAL_OK;
}

static enum shoal_err load_drop(void *arg)
{
    struct sh_ring_shard *shard = arg;
    SH_ASSERT(!shard->ring->journal);
    loading_drop(shard);
    shard_forget(shard->ring, number_of(shard));
    return SHOAL_OK;
}

/* --- What the journal takes ------------------------------------------------------------------ */

static bool snapshot_begin(void *arg, uint64_t *sequence_out, uint64_t *epoch_out)
{
    struct sh_ring_shard *shard = arg;
    struct sh_ring *ring = shard->ring;
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    unsigned number = number_of(shard);
    SH_ASSERT(!shard->saving);
    if (!shard->has || !sh_entries_term(&shard->entries, shard->applied, epoch_out) ||
        fsm->snapshot_begin(fsm->arg, number, &shard->saving)) {
        shard->saving = NULL;
        return false;
    }
    *sequence_out = shard->applied;
    return true;
}

static void snapshot_entries(void *arg)
{
    struct sh_ring_shard *shard = arg;
    struct sh_ring *ring = shard->ring;
    for (uint64_t i = shard->applied + 1; i <= sh_entries_last(&shard->entries); i++) {
        const struct sh_entry *entry = sh_entries_at(&shard->entries, i);
        (void)sh_journal_append(ring->journal, sh_ring_stream_of(ring, number_of(shard)), i,
                                entry->term, 0, sh_bytes_make(entry->bytes, entry->size));
    }
}

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    struct sh_ring_shard *shard = arg;
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    SH_ASSERT(shard->saving);
    return fsm->snapshot_next(fsm->arg, shard->saving, into, room);
}

static void snapshot_end(void *arg, bool is_done)
{
    struct sh_ring_shard *shard = arg;
    const struct sh_ring_fsm *fsm = &shard->ring->config.fsm;
    (void)is_done;
    SH_ASSERT(shard->saving);
    fsm->snapshot_end(fsm->arg, shard->saving);
    shard->saving = NULL;
}

struct sh_journal_stream sh_ring_stream(struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return (struct sh_journal_stream){.load_state = load_state,
                                      .load_entry = load_entry,
                                      .load_snapshot_begin = load_snapshot_begin,
                                      .load_snapshot_piece = load_snapshot_piece,
                                      .load_snapshot_end = load_snapshot_end,
                                      .load_drop = load_drop,
                                      .snapshot_begin = snapshot_begin,
                                      .snapshot_entries = snapshot_entries,
                                      .snapshot_next = snapshot_next,
                                      .snapshot_end = snapshot_end,
                                      .arg = &ring->shards[number]};
}

/* Entries that were read may be applied: fsm must have the memory before it takes more. If it has
 * not, it says so when they are applied. */
static void reserve_all(struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    for (uint64_t i = shard->applied + 1; i <= sh_entries_last(&shard->entries); i++) {
        const struct sh_entry *entry = sh_entries_at(&shard->entries, i);
        if (fsm->reserve)
            (void)fsm->reserve(fsm->arg, number, sh_bytes_make(entry->bytes, entry->size));
    }
}

void sh_ring_journal_set(struct sh_ring *ring, struct sh_journal *journal, unsigned first_stream)
{
    SH_ASSERT(!ring->is_active && !ring->journal);
    ring->journal = journal;
    ring->first_stream = first_stream;
    ring->synced = sh_journal_synced(journal);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_ring_shard *shard = &ring->shards[i];
        loading_drop(shard);
        shard->synced = sh_entries_last(&shard->entries);
        /* Without a snapshot there is nothing that entries could change. */
        if (shard->has) {
            reserve_all(ring, i);
            continue;
        }
        sh_entries_reset(&shard->entries, 0, 0);
        shard->synced = 0;
        (void)sh_journal_drop(journal, sh_ring_stream_of(ring, i));
    }
}
