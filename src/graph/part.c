#include "graph/part_int.h"

#include <stdlib.h>

#include "base/assert.h"
#include "graph/pages_int.h"

#define REMOVE_AT_ONCE 256

enum shoal_err sh_part_create(uint64_t graph_id, uint32_t peer_count, struct sh_part **part_out)
{
    SH_ASSERT(peer_count > 0);
    struct sh_part *part = calloc(1, sizeof *part);
    if (!part)
        return SHOAL_ENOMEM;
    part->graph_id = graph_id;
    part->peer_count = peer_count;
    part->peers = calloc(peer_count, sizeof *part->peers);
    if (!part->peers) {
        free(part);
        return SHOAL_ENOMEM;
    }
    *part_out = part;
    return SHOAL_OK;
}

void sh_part_free(struct sh_part *part, struct sh_unmaps *unmaps)
{
    if (!part)
        return;
    SH_ASSERT(part->count == 0); /* the IDs of its chunks are retained */
    free(part->peers);
    sh_pages_discard(part->names, part->names_room * sizeof *part->names, unmaps);
    free(part->runs);
    free(part->runs_by_lid);
    sh_pages_discard(part->types, part->types_room, unmaps);
    free(part);
}

/* Makes room for another name and another run. */
static enum shoal_err make_room(struct sh_part *part)
{
    if (part->count == part->names_room) {
        uint64_t room = part->names_room ? (uint64_t)part->names_room * 2 : 1024;
        if (room > UINT32_MAX)
            room = UINT32_MAX;
        uint64_t *names =
            sh_pages_grow(part->names, part->names_room * sizeof *names, room * sizeof *names);
        if (!names)
            return SHOAL_ENOMEM;
        part->names = names;
        part->names_room = (uint32_t)room;
    }
    if (part->run_count == part->run_room) {
        uint64_t room = part->run_room ? (uint64_t)part->run_room * 2 : 16;
        if (room > UINT32_MAX)
            room = UINT32_MAX;
        struct sh_part_run *runs = realloc(part->runs, room * sizeof *runs);
        if (!runs)
            return SHOAL_ENOMEM;
        part->runs = runs;
        part->run_room = (uint32_t)room;
    }
    return SHOAL_OK;
}

enum shoal_err sh_part_add(struct sh_part *part, uint64_t name, sh_lid lid)
{
    SH_ASSERT(part->count == 0 || part->names[part->count - 1] < name);
    if (part->count == UINT32_MAX)
        return SHOAL_ELIMIT;
    enum shoal_err err = make_room(part);
    if (err)
        return err;
    struct sh_part_run *last = part->run_count ? &part->runs[part->run_count - 1] : NULL;
    if (last && last->lid + last->count == lid.v)
        last->count++;
    else
        part->runs[part->run_count++] = (struct sh_part_run){lid.v, part->count, 1};
    part->names[part->count++] = name;
    return SHOAL_OK;
}

static int compare_runs(const void *a, const void *b, void *arg)
{
    const struct sh_part_run *runs = arg;
    uint64_t lid_a = runs[*(const uint32_t *)a].lid;
    uint64_t lid_b = runs[*(const uint32_t *)b].lid;
    return lid_a < lid_b ? -1 : lid_a > lid_b;
}

enum shoal_err sh_part_finish(struct sh_part *part)
{
    part->runs_by_lid = malloc((size_t)(part->run_count + 1) * sizeof *part->runs_by_lid);
    if (!part->runs_by_lid)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < part->run_count; i++)
        part->runs_by_lid[i] = i;
    qsort_r(part->runs_by_lid, part->run_count, sizeof *part->runs_by_lid, compare_runs,
            part->runs);
    if (part->count > 0) {
        sh_pages_trim(part->names, part->names_room * sizeof *part->names,
                      part->count * sizeof *part->names);
        part->names_room = part->count;
    }
    return SHOAL_OK;
}

bool sh_part_find_name(const struct sh_part *part, uint64_t name, uint32_t *index_out)
{
    uint32_t low = 0;
    uint32_t high = part->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part->names[middle] < name)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == part->count || part->names[low] != name)
        return false;
    *index_out = low;
    return true;
}

bool sh_part_find_lid(const struct sh_part *part, sh_lid lid, uint32_t *index_out)
{
    uint32_t low = 0; /* the number of runs that begin at or before lid */
    uint32_t high = part->run_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (part->runs[part->runs_by_lid[middle]].lid <= lid.v)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == 0)
        return false;
    const struct sh_part_run *run = &part->runs[part->runs_by_lid[low - 1]];
    if (lid.v - run->lid >= run->count)
        return false;
    *index_out = run->first + (uint32_t)(lid.v - run->lid);
    return true;
}

sh_lid sh_part_lid(const struct sh_part *part, uint32_t index)
{
    SH_ASSERT(index < part->count);
    uint32_t low = 0;
    uint32_t high = part->run_count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (part->runs[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return (sh_lid){part->runs[low].lid + (index - part->runs[low].first)};
}

bool sh_part_find_peer(const struct sh_part *part, shoal_nid nid, uint32_t *rank_inout)
{
    /* From the last answer on: a vertex's neighbours ascend by chunk ID, hence by peer. */
    uint32_t rank = *rank_inout < part->peer_count ? *rank_inout : 0;
    for (uint32_t i = 0; i < part->peer_count; i++) {
        if (part->peers[rank].v == nid.v) {
            *rank_inout = rank;
            return true;
        }
        rank = rank + 1 < part->peer_count ? rank + 1 : 0;
    }
    return false;
}

/* The last vertices of the part, up to REMOVE_AT_ONCE, the last one first. */
static size_t last_ones(const struct sh_part *part, sh_lid *lids_out)
{
    size_t count = 0;
    for (uint32_t i = part->run_count; i > 0 && count < REMOVE_AT_ONCE; i--) {
        const struct sh_part_run *run = &part->runs[i - 1];
        for (uint32_t k = run->count; k > 0 && count < REMOVE_AT_ONCE; k--)
            lids_out[count++] = (sh_lid){run->lid + k - 1};
    }
    return count;
}

/* Takes so many vertices off the part's end, and lets others have their IDs. */
static void last_drop(struct sh_part *part, struct sh_store *store, const sh_lid *lids,
                      size_t count)
{
    SH_ASSERT(count <= part->count);
    sh_store_unretain(store, lids, count);
    part->count -= (uint32_t)count;
    while (count > 0) {
        struct sh_part_run *run = &part->runs[part->run_count - 1];
        uint32_t some = run->count < count ? run->count : (uint32_t)count;
        run->count -= some;
        count -= some;
        part->run_count -= run->count == 0;
    }
}

bool sh_part_remove_some(struct sh_part *part, struct sh_store *store, struct sh_backup *backup)
{
    sh_lid lids[REMOVE_AT_ONCE];
    enum shoal_err errs[REMOVE_AT_ONCE];
    size_t count = last_ones(part, lids), gone = 0;
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    /* A chunk that somebody else removed already is as gone as it should be, and its ID is no other
     * chunk's, since it was retained. */
    (void)sh_backup_remove_multi(backup, &write, lids, count, errs);
    /* Those for which the log has no room are removed later; of what stands behind them, some may be gone. */
    while (gone < count && errs[gone] != SHOAL_EAGAIN)
        gone++;
    last_drop(part, store, lids, gone);
    return part->count == 0;
}

void sh_part_let_go(struct sh_part *part, struct sh_store *store)
{
    sh_lid lids[REMOVE_AT_ONCE];
    while (part->count > 0)
        last_drop(part, store, lids, last_ones(part, lids));
}

uint64_t sh_part_index_bytes(const struct sh_part *part)
{
    return sizeof *part + part->names_room * sizeof *part->names +
           part->run_room * sizeof *part->runs + part->run_count * sizeof *part->runs_by_lid +
           part->types_room + part->peer_count * sizeof *part->peers;
}

uint64_t sh_part_payload_bytes(const struct sh_part *part)
{
    return (uint64_t)part->count * 8 + part->edges * (part->typed ? 10 : 8) + part->record_bytes;
}
