/* A shard's state: chunks that were moved, decisions about batches, and its bytes. */
#include "metadata/metadata.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/node_ids.h"
#include "metadata/metadata_int.h"

/* What an image says of a shard's being known: some of these. */
enum { IMAGE_KNOWN = 1, IMAGE_SHORT = 2, IMAGE_PARTIAL = 4 };

enum shoal_err sh_metadata_create(struct sh_metadata **metadata_out)
{
    *metadata_out = calloc(1, sizeof **metadata_out);
    return *metadata_out ? SHOAL_OK : SHOAL_ENOMEM;
}

void sh_metadata_destroy(struct sh_metadata *metadata)
{
    for (unsigned i = 0; metadata && i < SH_SHARDS; i++)
        sh_metadata_clear(metadata, i);
    free(metadata);
}

static void shard_clear(struct sh_metadata_shard *shard)
{
    sh_ranges_destroy(shard->ranges);
    free(shard->sources);
    sh_metadata_names_clear(shard);
    sh_metadata_services_clear(shard);
    *shard = (struct sh_metadata_shard){0};
}

void sh_metadata_clear(struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    shard_clear(&metadata->shards[number]);
}

void sh_metadata_begin(struct sh_metadata *metadata, unsigned number, uint64_t incarnation,
                       bool is_known)
{
    SH_ASSERT(incarnation);
    sh_metadata_clear(metadata, number);
    metadata->shards[number].incarnation = incarnation;
    metadata->shards[number].is_known = is_known;
}

uint64_t sh_metadata_incarnation(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].incarnation;
}

bool sh_metadata_is_known(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].is_known;
}

bool sh_metadata_is_whole(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    return shard->is_known && !shard->is_partial;
}

bool sh_metadata_is_short(const struct sh_metadata *metadata, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return metadata->shards[number].is_short;
}

/* What was not found room for is asked for again with the rest, once all are asked again. */
static enum shoal_err known_set(struct sh_metadata_shard *shard, uint8_t condition, uint64_t missed)
{
    if (condition && shard->is_short)
        return SHOAL_ELIMIT;
    if (condition && missed != shard->missed)
        return SHOAL_EBUSY;
    shard->is_short = false;
    shard->is_known = condition;
    shard->is_partial = condition == SH_METADATA_PARTIAL;
    return SHOAL_OK;
}

struct sh_metadata_result sh_metadata_apply(struct sh_metadata *metadata, unsigned number,
                                            const struct sh_metadata_update *update)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_metadata_shard *shard = &metadata->shards[number];
    switch (update->kind) {
    case SH_METADATA_MOVE:
    case SH_METADATA_REFUSE:
    case SH_METADATA_RESOLVE:
    case SH_METADATA_CLAIM:
        return sh_metadata_move_apply(shard, update);
    case SH_METADATA_NAMES_KNOWN:
        shard->names_known = true;
        if (shard->name_changes < update->number)
            shard->name_changes = update->number;
        if (shard->name_base < update->sequence)
            shard->name_base = update->sequence;
        /* What came of the updates that the list has in it, nobody knows. They had lower numbers.
         */
        if (update->sequence) {
            if (shard->updates < update->number)
                shard->updates = update->number;
            shard->forgotten = shard->updates;
        }
        return (struct sh_metadata_result){.err = SHOAL_OK};
    case SH_METADATA_KNOWN:
        return (struct sh_metadata_result){
            .err = known_set(shard, update->condition, update->sequence)};
    default:
        return sh_metadata_service_apply(shard, update);
    }
}

/* --- Updates as bytes ------------------------------------------------------------------------ */

static bool is_batch(uint8_t kind)
{
    return kind == SH_METADATA_MOVE || kind == SH_METADATA_REFUSE || kind == SH_METADATA_RESOLVE ||
           kind == SH_METADATA_CLAIM;
}

enum shoal_err sh_metadata_reserve(struct sh_metadata *metadata, unsigned number,
                                   const struct sh_metadata_update *update)
{
    SH_ASSERT(number < SH_SHARDS);
    return is_batch(update->kind) ? sh_metadata_moves_reserve(&metadata->shards[number]) : SHOAL_OK;
}

/* MOVE, REFUSE, RESOLVE, CLAIM: u16 from, u16 to, u64 sequence, u16 count, runs. KNOWN: u8
 * condition, u64 sequence. NAMES_KNOWN: u64 number, u64 sequence. Before all of them, and of those
 * in metadata_services.c, u8 kind. */
void sh_metadata_update_put(struct sh_writer *w, const struct sh_metadata_update *update)
{
    sh_put8(w, update->kind);
    if (update->kind == SH_METADATA_KNOWN) {
        sh_put8(w, update->condition);
        sh_put64(w, update->sequence);
        return;
    }
    if (update->kind == SH_METADATA_NAMES_KNOWN) {
        sh_put64(w, update->number);
        sh_put64(w, update->sequence);
        return;
    }
    if (!is_batch(update->kind)) {
        sh_metadata_service_put(w, update);
        return;
    }
    sh_put16(w, update->from.v);
    sh_put16(w, update->to.v);
    sh_put64(w, update->sequence);
    sh_put16(w, (uint16_t)update->count);
    for (size_t i = 0; i < update->count; i++) {
        sh_put64(w, update->runs[i].first.v);
        sh_put64(w, update->runs[i].last.v);
    }
}

static bool is_peer(shoal_nid nid)
{
    return nid.v >= SH_PEER_NID_MIN && nid.v <= SH_PEER_NID_MAX;
}

/* A CLAIM has no number, and may be about what the node has itself; of what it gave away it must
 * be the creator. */
static bool is_claim_good(const struct sh_metadata_update *update)
{
    return update->from.v == update->to.v ||
           update->from.v == shoal_cid_creator(update->runs[0].first).v;
}

static bool batch_get(struct sh_reader *r, unsigned shard, struct sh_metadata_update *update)
{
    bool is_claim = update->kind == SH_METADATA_CLAIM;
    update->from.v = sh_get16(r);
    update->to.v = sh_get16(r);
    update->sequence = sh_get64(r);
    update->count = sh_get16(r);
    if (!sh_reader_ok(r) || !is_peer(update->from) || !is_peer(update->to) ||
        update->sequence > UINT64_MAX >> 1 || !update->count ||
        update->count > SH_METADATA_RUNS_MAX ||
        (!is_claim && (update->from.v == update->to.v || !update->sequence)) ||
        (update->kind == SH_METADATA_RESOLVE && update->count > 1))
        return false;
    for (size_t i = 0; i < update->count; i++) {
        struct sh_metadata_run *run = &update->runs[i];
        run->first.v = sh_get64(r);
        run->last.v = sh_get64(r);
        shoal_nid creator = shoal_cid_creator(run->first);
        if (run->last.v < run->first.v || shoal_cid_creator(run->last).v != creator.v ||
            !is_peer(creator) || sh_arc_shard(creator) != shard ||
            (i > 0 &&
             (run->first.v <= run[-1].last.v || shoal_cid_creator(run[-1].first).v != creator.v)))
            return false;
    }
    return !is_claim || is_claim_good(update);
}

enum shoal_err sh_metadata_update_get(struct sh_bytes bytes, unsigned shard,
                                      struct sh_metadata_update *update_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    memset(update_out, 0, sizeof *update_out);
    update_out->kind = sh_get8(&r);
    bool is_good = true;
    switch (update_out->kind) {
    case SH_METADATA_MOVE:
    case SH_METADATA_REFUSE:
    case SH_METADATA_RESOLVE:
    case SH_METADATA_CLAIM:
        is_good = batch_get(&r, shard, update_out);
        break;
    case SH_METADATA_KNOWN:
        update_out->condition = sh_get8(&r);
        update_out->sequence = sh_get64(&r);
        is_good = update_out->condition <= SH_METADATA_PARTIAL;
        break;
    case SH_METADATA_NAMES_KNOWN:
        update_out->number = sh_get64(&r);
        update_out->sequence = sh_get64(&r);
        is_good = update_out->sequence < update_out->number;
        break;
    default:
        is_good = sh_metadata_service_get(&r, shard, update_out);
    }
    return is_good && sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
}

enum shoal_err sh_metadata_update_get_any(struct sh_bytes bytes,
                                          struct sh_metadata_update *update_out)
{
    /* Which shard it is of, only the update says. */
    enum shoal_err err = SHOAL_EPROTO;
    for (unsigned shard = 0; err && shard < SH_SHARDS; shard++)
        err = sh_metadata_update_get(bytes, shard, update_out);
    return err;
}

unsigned sh_metadata_shard(const struct sh_metadata_update *update)
{
    if (update->kind >= SH_METADATA_NAME && update->kind < SH_METADATA_CLAIM)
        return sh_metadata_service_shard(update);
    SH_ASSERT(is_batch(update->kind) && update->count);
    return sh_arc_shard(shoal_cid_creator(update->runs[0].first));
}

/* --- Images ---------------------------------------------------------------------------------- */

#define RANGE_BYTES 18
#define SOURCE_BYTES 18
#define NAME_BYTES 10 /* with the length */

size_t sh_metadata_image_size(const struct sh_metadata *metadata, unsigned number)
{
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    size_t size = 29 + SOURCE_BYTES * shard->source_count + NAME_BYTES * shard->name_count;
    if (shard->ranges)
        size += RANGE_BYTES * sh_ranges_count(shard->ranges);
    for (size_t i = 0; i < shard->name_count; i++)
        size += shard->names[i].size;
    return size + sh_metadata_services_size(shard);
}

static uint8_t known_of(const struct sh_metadata_shard *shard)
{
    return (uint8_t)((shard->is_known ? IMAGE_KNOWN : 0) | (shard->is_short ? IMAGE_SHORT : 0) |
                     (shard->is_partial ? IMAGE_PARTIAL : 0));
}

void sh_metadata_image_put(const struct sh_metadata *metadata, unsigned number, struct sh_writer *w)
{
    const struct sh_metadata_shard *shard = &metadata->shards[number];
    struct sh_range range;
    shoal_cid from = {0};
    sh_put64(w, shard->incarnation);
    sh_put8(w, known_of(shard));
    sh_put64(w, shard->missed);
    sh_put32(w, shard->ranges ? (uint32_t)sh_ranges_count(shard->ranges) : 0);
    while (shard->ranges && sh_ranges_next(shard->ranges, from, &range)) {
        sh_put64(w, range.first.v);
        sh_put64(w, range.last.v);
        sh_put16(w, (uint16_t)range.value);
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
    sh_put32(w, (uint32_t)shard->source_count);
    for (size_t i = 0; i < shard->source_count; i++) {
        sh_put16(w, shard->sources[i].nid.v);
        sh_put64(w, shard->sources[i].decided);
        sh_put64(w, shard->sources[i].before);
    }
    sh_put32(w, (uint32_t)shard->name_count);
    for (size_t i = 0; i < shard->name_count; i++) {
        sh_put64(w, shard->names[i].cid.v);
        sh_put_text(w, sh_bytes_make(shard->names[i].bytes, shard->names[i].size));
    }
    sh_metadata_services_put(shard, w);
}

static enum shoal_err ranges_get(struct sh_metadata_shard *shard, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_METADATA_CLAIMS_MAX)
        return SHOAL_EPROTO;
    enum shoal_err err = count ? sh_metadata_ranges(shard) : SHOAL_OK;
    for (uint32_t i = 0; !err && i < count; i++) {
        struct sh_range range = {.first = {sh_get64(r)}};
        range.last.v = sh_get64(r);
        range.value = sh_get16(r);
        if (!sh_reader_ok(r) || range.last.v < range.first.v)
            return SHOAL_EPROTO;
        err = sh_ranges_set(shard->ranges, range.first, range.last, range.value);
    }
    return err;
}

static enum shoal_err names_get(struct sh_metadata_shard *shard, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    if (count > SH_METADATA_NAMES_MAX)
        return SHOAL_EPROTO;
    for (uint32_t i = 0; i < count; i++) {
        shoal_cid cid = {sh_get64(r)};
        struct sh_bytes name = sh_get_text(r);
        bool is_found;
        if (!sh_reader_ok(r) || !cid.v || !sh_metadata_is_name(name))
            return SHOAL_EPROTO;
        if (sh_metadata_name_lower(shard, name, &is_found) != i || is_found)
            return SHOAL_EPROTO; /* not in order */
        enum shoal_err err = sh_metadata_name_insert(shard, i, name, cid);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

static enum shoal_err sources_get(struct sh_metadata_shard *shard, struct sh_reader *r)
{
    uint32_t count = sh_get32(r);
    for (uint32_t i = 0; i < count; i++) {
        shoal_nid nid = {sh_get16(r)};
        uint64_t decided = sh_get64(r), before = sh_get64(r);
        if (!sh_reader_ok(r))
            return SHOAL_EPROTO;
        struct sh_metadata_source *source = sh_metadata_source(shard, nid);
        if (!source)
            return SHOAL_ENOMEM;
        source->decided = decided;
        source->before = before;
    }
    return SHOAL_OK;
}

static enum shoal_err known_get(struct sh_metadata_shard *shard, uint8_t flags)
{
    if (flags > (IMAGE_KNOWN | IMAGE_SHORT | IMAGE_PARTIAL))
        return SHOAL_EPROTO;
    shard->is_known = flags & IMAGE_KNOWN;
    shard->is_short = flags & IMAGE_SHORT;
    shard->is_partial = flags & IMAGE_PARTIAL;
    return shard->is_partial && !shard->is_known ? SHOAL_EPROTO : SHOAL_OK;
}

enum shoal_err sh_metadata_image_get(struct sh_metadata *metadata, unsigned number,
                                     struct sh_bytes image)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_metadata_shard fresh = {0};
    struct sh_reader r = sh_reader_make(image);
    fresh.incarnation = sh_get64(&r);
    enum shoal_err err = known_get(&fresh, sh_get8(&r));
    fresh.missed = sh_get64(&r);
    if (!err)
        err = ranges_get(&fresh, &r);
    if (!err)
        err = sources_get(&fresh, &r);
    if (!err)
        err = names_get(&fresh, &r);
    if (!err)
        err = sh_metadata_services_get(&fresh, &r);
    if (!err && !sh_reader_done(&r))
        err = SHOAL_EPROTO;
    if (err) {
        shard_clear(&fresh);
        return err;
    }
    shard_clear(&metadata->shards[number]);
    metadata->shards[number] = fresh;
    return SHOAL_OK;
}
