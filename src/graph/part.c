#include "graph/part_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "graph/pages_int.h"

#define REMOVE_AT_ONCE 256

enum shoal_err sh_part_create(uint64_t graph_id, uint32_t peer_count, struct sh_part **part_out)
{
    struct sh_part *part = calloc(1, sizeof *part);
    if (!part)
        return SHOAL_ENOMEM;
    part->graph_id = graph_id;
    part->peer_count = peer_count;
    part->peers = calloc(peer_count ? peer_count : 1, sizeof *part->peers);
    if (!part->peers) {
        free(part);
        return SHOAL_ENOMEM;
    }
    *part_out = part;
    return SHOAL_OK;
}

static void draft_free(struct sh_part *part, struct sh_unmaps *unmaps)
{
    sh_pages_discard(part->names, part->names_room * sizeof *part->names, unmaps);
    free(part->runs);
    part->names = NULL;
    part->runs = NULL;
    part->names_room = part->run_room = part->run_count = part->count = 0;
}

void sh_part_free(struct sh_part *part, struct sh_unmaps *unmaps)
{
    if (!part)
        return;
    SH_ASSERT(sh_part_vertices(part) == 0); /* the IDs of its chunks are retained */
    draft_free(part, unmaps);
    sh_extents_free(&part->extents);
    free(part->manifests);
    free(part->peers);
    sh_pages_discard(part->types, part->types_room, unmaps);
    free(part);
}

/* --- A draft ---------------------------------------------------------------------------------- */

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
    SH_ASSERT(!part->is_finished);
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

static int compare_runs(const void *a, const void *b)
{
    uint64_t lid_a = ((const struct sh_part_run *)a)->lid;
    uint64_t lid_b = ((const struct sh_part_run *)b)->lid;
    return lid_a < lid_b ? -1 : lid_a > lid_b;
}

/* Makes the extents, in the order of their IDs: IDs that were free before come out of the order of names. */
static enum shoal_err extents_make(struct sh_part *part)
{
    struct sh_part_run *runs = malloc((part->run_count + 1) * sizeof *runs);
    if (!runs)
        return SHOAL_ENOMEM;
    if (part->run_count)
        memcpy(runs, part->runs, part->run_count * sizeof *runs);
    qsort(runs, part->run_count, sizeof *runs, compare_runs);
    enum shoal_err err = SHOAL_OK;
    for (uint32_t i = 0; i < part->run_count && !err; i++) {
        const struct sh_extent extent = {.first = {runs[i].lid},
                                         .count = runs[i].count,
                                         .name_first = part->names[runs[i].first],
                                         .name_last =
                                             part->names[runs[i].first + runs[i].count - 1],
                                         .is_retained = true};
        err = sh_extents_add(&part->extents, &extent);
    }
    free(runs);
    if (err)
        sh_extents_free(&part->extents);
    return err;
}

enum shoal_err sh_part_finish(struct sh_part *part)
{
    SH_ASSERT(!part->is_finished);
    if (part->count > 0) {
        sh_pages_trim(part->names, part->names_room * sizeof *part->names,
                      part->count * sizeof *part->names);
        part->names_room = part->count;
    }
    enum shoal_err err = extents_make(part);
    part->is_finished = !err;
    SH_ASSERT(err || part->extents.vertices == part->count);
    return err;
}

void sh_part_publish(struct sh_part *part, struct sh_unmaps *unmaps)
{
    SH_ASSERT(part->is_finished);
    draft_free(part, unmaps);
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

/* --- Live ------------------------------------------------------------------------------------- */

enum shoal_err sh_part_manifest_add(struct sh_part *part, sh_lid lid, bool is_retained)
{
    for (uint32_t i = 0; i < part->manifest_count; i++) {
        if (part->manifests[i].lid.v == lid.v)
            return SHOAL_EEXIST;
    }
    if (part->manifest_count == part->manifest_room) {
        uint32_t room = part->manifest_room ? part->manifest_room * 2 : 1;
        struct sh_part_manifest *grown = realloc(part->manifests, room * sizeof *grown);
        if (!grown)
            return SHOAL_ENOMEM;
        part->manifests = grown;
        part->manifest_room = room;
    }
    part->manifests[part->manifest_count++] = (struct sh_part_manifest){lid, is_retained};
    return SHOAL_OK;
}

enum shoal_err sh_part_learn(struct sh_part *part, const struct sh_manifest *manifest)
{
    SH_ASSERT(part->graph_id == manifest->graph_id);
    if (part->knows_all)
        return SHOAL_OK;
    SH_ASSERT(part->types_room == 0);
    shoal_nid *peers = calloc(manifest->peer_count, sizeof *peers);
    uint8_t *types =
        manifest->types.size ? sh_pages_grow(NULL, 0, manifest->types.size) : part->types;
    if (!peers || (manifest->types.size && !types)) {
        free(peers);
        sh_pages_discard(types, manifest->types.size, NULL);
        return SHOAL_ENOMEM;
    }
    for (uint32_t i = 0; i < manifest->peer_count; i++)
        peers[i].v = sh_load16(manifest->peers + (size_t)i * 2);
    if (manifest->types.size)
        memcpy(types, manifest->types.at, manifest->types.size);
    free(part->peers);
    part->peers = peers;
    part->peer_count = manifest->peer_count;
    part->types = types;
    part->types_size = part->types_room = manifest->types.size;
    part->types_count = manifest->types_count;
    part->typed = manifest->typed;
    part->generation = manifest->generation;
    part->all_vertices = manifest->vertices;
    part->all_edges = manifest->edges;
    part->knows_all = true;
    return SHOAL_OK;
}

enum shoal_err sh_part_enter(struct sh_part *part, sh_lid lid, const struct sh_vertex *vertex,
                             size_t size)
{
    uint32_t hint = UINT32_MAX;
    const struct sh_extent extent = {
        .first = lid, .count = 1, .name_first = vertex->name, .name_last = vertex->name};
    if (sh_extents_find(&part->extents, lid, &hint))
        return SHOAL_EEXIST;
    enum shoal_err err = sh_extents_add(&part->extents, &extent);
    if (err)
        return err;
    part->edges += vertex->out_count;
    part->records += vertex->record.size > 0;
    part->record_bytes += vertex->record.size;
    part->chunk_bytes += size;
    return SHOAL_OK;
}

/* What a part counts of a vertex that leaves it. */
static void count_leaving(void *arg, struct sh_bytes chunk)
{
    struct sh_part *part = arg;
    struct sh_vertex vertex;
    if (sh_vertex_decode(chunk, &vertex))
        return;
    part->edges -= vertex.out_count < part->edges ? vertex.out_count : part->edges;
    part->records -= vertex.record.size > 0 && part->records > 0;
    part->record_bytes -=
        vertex.record.size < part->record_bytes ? vertex.record.size : part->record_bytes;
    part->chunk_bytes -= chunk.size < part->chunk_bytes ? chunk.size : part->chunk_bytes;
}

static void extent_leave(struct sh_part *part, struct sh_store *store,
                         const struct sh_extent *extent)
{
    for (uint32_t i = 0; i < extent->count; i++) {
        sh_lid lid = {extent->first.v + i};
        /* One that others have removed is counted as before. */
        (void)!sh_store_read(store, lid, count_leaving, part);
        if (extent->is_retained)
            sh_store_unretain(store, &lid, 1);
    }
}

uint64_t sh_part_leave(struct sh_part *part, struct sh_store *store, sh_lid first, sh_lid last,
                       bool *lost_out)
{
    struct sh_extent extent;
    bool is_lost;
    uint64_t left = 0;
    SH_ASSERT(part->is_finished);
    *lost_out = false;
    while (sh_extents_cut(&part->extents, first, last, &extent, &is_lost)) {
        extent_leave(part, store, &extent);
        *lost_out |= is_lost;
        left += extent.count;
    }
    for (uint32_t i = 0; i < part->manifest_count;) {
        const struct sh_part_manifest manifest = part->manifests[i];
        if (manifest.lid.v < first.v || manifest.lid.v > last.v) {
            i++;
            continue;
        }
        if (manifest.is_retained)
            sh_store_unretain(store, &manifest.lid, 1);
        part->manifests[i] = part->manifests[--part->manifest_count];
        left++;
    }
    return left;
}

struct naming {
    uint64_t name;
    bool is_vertex;
};

static void take_name(void *arg, struct sh_bytes chunk)
{
    struct naming *naming = arg;
    struct sh_vertex vertex;
    naming->is_vertex = sh_vertex_decode(chunk, &vertex) == SHOAL_OK;
    naming->name = naming->is_vertex ? vertex.name : 0;
}

/* Binary search, which goes past the vertices that others have removed or overwritten. */
static bool look_up_in(const struct sh_extent *extent, struct sh_store *store, uint64_t name,
                       sh_lid *lid_out)
{
    uint32_t low = 0;
    uint32_t high = extent->count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        struct naming naming = {0};
        uint32_t at = middle;
        while (at < high) {
            if (sh_store_read(store, (sh_lid){extent->first.v + at}, take_name, &naming) ==
                    SHOAL_OK &&
                naming.is_vertex)
                break;
            at++;
        }
        if (at < high && naming.name == name) {
            lid_out->v = extent->first.v + at;
            return true;
        }
        if (at < high && naming.name < name)
            low = at + 1;
        else
            high = middle;
    }
    return false;
}

bool sh_part_look_up(const struct sh_part *part, struct sh_store *store, uint64_t name,
                     sh_lid *lid_out)
{
    for (uint32_t i = 0; i < part->extents.count; i++) {
        const struct sh_extent *extent = &part->extents.at[i];
        if (extent->name_first <= name && name <= extent->name_last &&
            look_up_in(extent, store, name, lid_out))
            return true;
    }
    return false;
}

/* --- On the way out ----------------------------------------------------------------------------- */

/* Some chunks of a part that is to go. */
struct victims {
    sh_lid lids[REMOVE_AT_ONCE];
    bool is_retained[REMOVE_AT_ONCE];
    size_t count;
    bool are_manifests;
};

static void victim_add(struct victims *victims, sh_lid lid, bool is_retained)
{
    SH_ASSERT(victims->count < REMOVE_AT_ONCE);
    victims->lids[victims->count] = lid;
    victims->is_retained[victims->count++] = is_retained;
}

/* The last vertices of the part, the last one first; before these the manifests, so that nobody takes what is left after a crash for a
 * graph. */
static void last_ones(const struct sh_part *part, struct victims *victims)
{
    victims->count = 0;
    victims->are_manifests = part->manifest_count > 0;
    for (uint32_t i = part->manifest_count; i > 0 && victims->count < REMOVE_AT_ONCE; i--)
        victim_add(victims, part->manifests[i - 1].lid, part->manifests[i - 1].is_retained);
    if (victims->are_manifests)
        return;
    if (!part->is_finished) {
        for (uint32_t i = part->run_count; i > 0; i--) {
            const struct sh_part_run *run = &part->runs[i - 1];
            for (uint32_t k = run->count; k > 0 && victims->count < REMOVE_AT_ONCE; k--)
                victim_add(victims, (sh_lid){run->lid + k - 1}, true);
        }
        return;
    }
    for (uint32_t i = part->extents.count; i > 0; i--) {
        const struct sh_extent *extent = &part->extents.at[i - 1];
        for (uint32_t k = extent->count; k > 0 && victims->count < REMOVE_AT_ONCE; k--)
            victim_add(victims, (sh_lid){extent->first.v + k - 1}, extent->is_retained);
    }
}

static void runs_drop(struct sh_part *part, size_t count)
{
    SH_ASSERT(count <= part->count);
    part->count -= (uint32_t)count;
    while (count > 0) {
        struct sh_part_run *run = &part->runs[part->run_count - 1];
        uint32_t some = run->count < count ? run->count : (uint32_t)count;
        run->count -= some;
        count -= some;
        part->run_count -= run->count == 0;
    }
}

/* Takes the first `count` victims off the part, and lets others have their IDs. */
static void victims_drop(struct sh_part *part, struct sh_store *store,
                         const struct victims *victims, size_t count)
{
    sh_lid lids[REMOVE_AT_ONCE];
    size_t retained = 0;
    for (size_t i = 0; i < count; i++) {
        if (victims->is_retained[i])
            lids[retained++] = victims->lids[i];
    }
    sh_store_unretain(store, lids, retained);
    if (victims->are_manifests) {
        part->manifest_count -= (uint32_t)count;
    } else if (!part->is_finished) {
        runs_drop(part, count);
    } else {
        for (size_t i = 0; i < count; i++) {
            struct sh_extent extent;
            bool is_lost;
            bool is_cut = sh_extents_cut(&part->extents, victims->lids[i], victims->lids[i],
                                         &extent, &is_lost);
            SH_ASSERT(is_cut && !is_lost); /* from the end of an extent */
        }
    }
}

struct proof {
    const struct sh_part *part;
    shoal_cid cid;
    bool is_ours;
};

static void prove(void *arg, struct sh_bytes chunk)
{
    struct proof *proof = arg;
    struct sh_vertex vertex;
    struct sh_manifest manifest;
    if (sh_vertex_decode(chunk, &vertex) == SHOAL_OK)
        proof->is_ours = vertex.seal == sh_vertex_seal(proof->part->graph_id, proof->cid);
    else if (sh_manifest_decode(chunk, proof->cid, &manifest) == SHOAL_OK)
        proof->is_ours = manifest.graph_id == proof->part->graph_id;
}

/* Whether the chunk of an ID that is not retained is still the graph's: others may have removed that one, and may have been given its ID. */
static bool is_ours(const struct sh_part *part, shoal_nid self, struct sh_store *store, sh_lid lid)
{
    struct proof proof = {.part = part, .cid = sh_part_cid(self, lid)};
    return sh_store_read(store, lid, prove, &proof) == SHOAL_OK && proof.is_ours;
}

/* How many of the victims, from the first on, do not stand still. */
static size_t victims_served(const struct victims *victims, const struct sh_part_removal *removal)
{
    shoal_cid last;
    size_t count = 0;
    if (!removal->serves)
        return victims->count;
    while (count < victims->count &&
           removal->serves(removal->arg, sh_part_cid(removal->self, victims->lids[count]), &last))
        count++;
    return count;
}

bool sh_part_remove_some(struct sh_part *part, const struct sh_part_removal *removal,
                         size_t *done_out)
{
    struct victims victims;
    sh_lid lids[REMOVE_AT_ONCE];
    size_t places[REMOVE_AT_ONCE], count = 0;
    enum shoal_err errs[REMOVE_AT_ONCE];
    last_ones(part, &victims);
    size_t gone = victims_served(&victims, removal);
    for (size_t i = 0; i < gone; i++) {
        if (!victims.is_retained[i] &&
            !is_ours(part, removal->self, removal->store, victims.lids[i]))
            continue;
        places[count] = i;
        lids[count++] = victims.lids[i];
    }
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    /* A chunk that somebody else removed already is as gone as it should be, and its ID is no other
     * chunk's, since it was retained. */
    (void)sh_backup_remove_multi(removal->backup, &write, lids, count, errs);
    /* Those for which the log has no room are removed later; of what stands behind them, some may be gone. */
    for (size_t i = count; i > 0; i--) {
        if (errs[i - 1] == SHOAL_EAGAIN)
            gone = places[i - 1];
    }
    victims_drop(part, removal->store, &victims, gone);
    *done_out = gone;
    return sh_part_vertices(part) == 0 && part->manifest_count == 0;
}

void sh_part_let_go(struct sh_part *part, struct sh_store *store)
{
    struct victims victims;
    while (sh_part_vertices(part) > 0 || part->manifest_count > 0) {
        last_ones(part, &victims);
        victims_drop(part, store, &victims, victims.count);
    }
}

uint64_t sh_part_index_bytes(const struct sh_part *part)
{
    return sizeof *part + part->names_room * sizeof *part->names +
           part->run_room * sizeof *part->runs + part->extents.room * sizeof *part->extents.at +
           part->types_room + part->peer_count * sizeof *part->peers +
           part->manifest_room * sizeof *part->manifests;
}

uint64_t sh_part_payload_bytes(const struct sh_part *part)
{
    return (uint64_t)sh_part_vertices(part) * 8 + part->edges * (part->typed ? 10 : 8) +
           part->record_bytes;
}
