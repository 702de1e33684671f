/* Answers to lookups out of any bytes, and the cache that they fill: what is read is in order and
 * holds the chunk, what is cached is what was read last, and the bound holds. */
#include <stdint.h>

#include "base/assert.h"
#include "cluster/directory_int.h"

#define RANGES_MAX 32

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_gap(const struct sh_range *range)
{
    return range->value == SH_LOOKUP_NOBODY || range->value == SH_LOOKUP_FAILED ||
           range->value == SH_LOOKUP_LOST;
}

static void answer_check(const struct sh_lookup_answer *answer, shoal_cid cid)
{
    SH_ASSERT(answer->count > 0 && answer->count <= SH_LOOKUP_RANGES_MAX);
    SH_ASSERT(answer->ranges[0].first.v <= cid.v && cid.v <= answer->ranges[0].last.v);
    for (size_t i = 0; i < answer->count; i++) {
        const struct sh_range *range = &answer->ranges[i];
        SH_ASSERT(range->first.v <= range->last.v);
        SH_ASSERT(i == 0 || range->first.v > answer->ranges[i - 1].last.v);
        SH_ASSERT(range->value <= SH_PEER_NID_MAX || is_gap(range));
        SH_ASSERT(range->value >= SH_PEER_NID_MIN || answer->count == 1 || is_gap(range));
    }
}

/* One answer: u8 ranges, u64 chunk ID, ranges as on the wire. */
static void answer_take(struct sh_lookups *lookups, struct sh_reader *r)
{
    size_t size = (size_t)sh_get8(r) * SH_LOOKUP_ANSWER_BYTES;
    shoal_cid cid = {sh_get64(r)};
    if (!sh_reader_ok(r))
        return;
    size = size < sh_reader_left(r) ? size : sh_reader_left(r);
    struct sh_reader one = sh_reader_make(sh_bytes_make(sh_reader_take(r, size), size));
    struct sh_lookup_answer answer;
    if (sh_lookup_answer_get(&one, cid, &answer))
        return;
    answer_check(&answer, cid);
    if (is_gap(&answer.ranges[0]))
        return;
    sh_lookups_put_many(lookups, answer.ranges, answer.count);
    shoal_nid owner;
    bool is_there = sh_lookups_find(lookups, cid, &owner);
    SH_ASSERT(is_there && owner.v == answer.ranges[0].value);
    SH_ASSERT(sh_lookups_stats(lookups).ranges <= RANGES_MAX);
    if (cid.v % 4 == 0) {
        sh_lookups_drop(lookups, cid);
        SH_ASSERT(!sh_lookups_find(lookups, cid, &owner));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_lookups *lookups = NULL;
    enum shoal_err err = sh_lookups_create(RANGES_MAX, &lookups);
    SH_ASSERT(!err);
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    while (sh_reader_ok(&r) && sh_reader_left(&r) > 0)
        answer_take(lookups, &r);
    sh_lookups_destroy(lookups);
    return 0;
}
