/* What the journal of a store's names gives back when it is opened, and the snapshots that it takes.
 *
 * Reading, a shard's state is the last snapshot that has ended; entries are kept until all is read, and
 * then applied in their order, with the results that they had before, of which nobody hears. */
#include "base/assert.h"
#include "client/names_durable_int.h"
#include "metadata/snapshot.h"

#define TERM 1 /* of all entries: nobody else writes any */

static unsigned number_of(const struct sh_names_shard *shard)
{
    return (unsigned)(shard - shard->names->shards);
}

static struct sh_local_state *state_of(const struct sh_names_shard *shard)
{
    return shard->names->config.state;
}

/* --- Reading ----------------------------------------------------------------------------------- */

static void loading_drop(struct sh_names_shard *shard)
{
    enum shoal_err err = sh_metadata_restore_end(shard->loading, false);
    SH_ASSERT(!err);
    shard->loading = NULL;
}

static bool is_name_update(struct sh_bytes bytes, unsigned shard,
                           struct sh_metadata_update *update_out)
{
    return !sh_metadata_update_get(bytes, shard, update_out) &&
           (update_out->kind == SH_METADATA_NAME || update_out->kind == SH_METADATA_UNNAME);
}

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    (void)arg;
    (void)state;
    return SHOAL_ECORRUPT; /* shards have none */
}

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    struct sh_names_shard *shard = arg;
    struct sh_metadata_update update;
    if (kind || term != TERM || index != sh_entries_last(&shard->entries) + 1 ||
        !is_name_update(bytes, number_of(shard), &update))
        return SHOAL_ECORRUPT;
    return sh_entries_append(&shard->entries, term, 0, bytes);
}

static enum shoal_err load_snapshot_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    struct sh_names_shard *shard = arg;
    loading_drop(shard);
    if (is_first)
        sh_entries_reset(&shard->entries, index, term);
    shard->loading_index = index;
    return sh_metadata_restore_begin(state_of(shard)->metadata, number_of(shard), &shard->loading);
}

static enum shoal_err load_snapshot_piece(void *arg, struct sh_bytes piece)
{
    struct sh_names_shard *shard = arg;
    if (!shard->loading)
        return SHOAL_ECORRUPT;
    enum shoal_err err = sh_metadata_restore_piece(shard->loading, piece);
    return err == SHOAL_EPROTO ? SHOAL_ECORRUPT : err;
}

static enum shoal_err load_snapshot_end(void *arg, bool is_reset)
{
    struct sh_names_shard *shard = arg;
    uint64_t index = shard->loading_index;
    if (!shard->loading || is_reset || index < shard->entries.base ||
        index > sh_entries_last(&shard->entries))
        return SHOAL_ECORRUPT;
    struct sh_metadata_restore *restore = shard->loading;
    shard->loading = NULL;
    enum shoal_err err = sh_metadata_restore_end(restore, true);
    if (err)
        return err == SHOAL_EPROTO ? SHOAL_ECORRUPT : err;
    sh_entries_shift(&shard->entries, index);
    return SHOAL_OK;
}

static enum shoal_err load_drop(void *arg)
{
    (void)arg;
    return SHOAL_ECORRUPT; /* no stream is ever dropped */
}

void sh_names_load_end(struct sh_names *names)
{
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        loading_drop(&names->shards[i]);
        sh_entries_reset(&names->shards[i].entries, 0, 0);
    }
}

enum shoal_err sh_names_loaded(struct sh_names *names)
{
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_names_shard *shard = &names->shards[i];
        shard->last = sh_entries_last(&shard->entries);
        for (shard->applied = shard->entries.base; shard->applied < shard->last; shard->applied++) {
            const struct sh_entry *entry = sh_entries_at(&shard->entries, shard->applied + 1);
            struct sh_metadata_update update;
            if (!is_name_update(sh_bytes_make(entry->bytes, entry->size), i, &update))
                return SHOAL_ECORRUPT;
            struct sh_metadata_result result =
                sh_metadata_apply(state_of(shard)->metadata, i, &update);
            if (result.err == SHOAL_ENOMEM)
                return SHOAL_ENOMEM;
        }
    }
    sh_names_load_end(names);
    names->is_garbage = true;
    return SHOAL_OK;
}

/* --- Snapshots --------------------------------------------------------------------------------- */

static bool snapshot_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    struct sh_names_shard *shard = arg;
    struct sh_local_state *state = state_of(shard);
    SH_ASSERT(!shard->saving);
    sh_lock_take(&state->lock);
    enum shoal_err err = sh_metadata_snapshot_begin(state->metadata, number_of(shard),
                                                    SH_METADATA_DURABLE, &shard->saving);
    sh_lock_release(&state->lock);
    if (err) {
        shard->saving = NULL;
        return false;
    }
    *index_out = shard->applied;
    *term_out = TERM;
    return true;
}

static void snapshot_entries(void *arg)
{
    struct sh_names_shard *shard = arg;
    struct sh_names *names = shard->names;
    uint64_t index = shard->applied;
    for (unsigned i = 0; i < names->pending_count; i++) {
        const struct sh_names_pending *pending = sh_names_pending_at(names, i);
        if (!pending->size || pending->shard != number_of(shard))
            continue;
        index++;
        SH_ASSERT(pending->index == index);
        (void)sh_journal_append(names->journal, number_of(shard), pending->index, TERM, 0,
                                sh_bytes_make(pending->bytes, pending->size));
    }
    SH_ASSERT(index == shard->last);
}

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    struct sh_names_shard *shard = arg;
    struct sh_local_state *state = state_of(shard);
    SH_ASSERT(shard->saving);
    sh_lock_take(&state->lock);
    size_t size = sh_metadata_snapshot_next(shard->saving, into, room);
    sh_lock_release(&state->lock);
    return size;
}

static void snapshot_end(void *arg, bool is_done)
{
    struct sh_names_shard *shard = arg;
    struct sh_local_state *state = state_of(shard);
    (void)is_done;
    SH_ASSERT(shard->saving);
    sh_lock_take(&state->lock);
    sh_metadata_snapshot_end(shard->saving);
    sh_lock_release(&state->lock);
    shard->saving = NULL;
    shard->names->is_garbage = true;
}

struct sh_journal_stream sh_names_stream(struct sh_names *names, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
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
                                      .arg = &names->shards[shard]};
}
