#include "bench/kv.h"

#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/log.h"

#define DIGESTED_MAX 256
#define GETS_TO_A_PUT 19

unsigned sh_kv_batch(const struct sh_kv_shape *shape)
{
    return shape->what == SH_KV_MULTI ? shape->flags.batch : 1;
}

void sh_kv_source_init(struct sh_kv_source *source, const struct sh_kv_shape *shape,
                       unsigned thread)
{
    SH_ASSERT(shape->flags.count > 0 && sh_kv_batch(shape) > 0);
    source->shape = shape;
    source->keys = (struct sh_keys){.state = sh_mix64(shape->flags.seed + thread),
                                    .count = shape->flags.count,
                                    .zipf = shape->zipf};
    source->dice = (struct sh_keys){.state = sh_mix64(~shape->flags.seed + thread),
                                    .count = GETS_TO_A_PUT + 1};
}

void sh_kv_next(struct sh_kv_source *source, struct sh_kv_op *op)
{
    enum sh_kv_case what = source->shape->what;
    op->put = what == SH_KV_PUT || what == SH_KV_ADD ||
              (what == SH_KV_MIXED && sh_keys_next(&source->dice) == 0);
    op->count = sh_kv_batch(source->shape);
    for (unsigned i = 0; i < op->count; i++)
        op->indexes[i] = sh_keys_next(&source->keys);
}

static uint64_t value_word(uint64_t index)
{
    return sh_mix64(index + UINT64_C(0x2545f4914f6cdd1d));
}

void sh_kv_value(uint64_t index, uint8_t *into, size_t size)
{
    uint8_t word[8];
    sh_store64(word, value_word(index));
    size_t head = size < sizeof word ? size : sizeof word;
    memcpy(into, word, head);
    memset(into + head, (int)(index & 0xff), size - head);
}

bool sh_kv_value_is(uint64_t index, const uint8_t *value, size_t size, size_t expected)
{
    uint8_t word[8];
    sh_store64(word, value_word(index));
    return size == expected && memcmp(value, word, size < sizeof word ? size : sizeof word) == 0;
}

void sh_kv_drawn(struct sh_kv_tally *tally, const struct sh_kv_op *op)
{
    for (unsigned i = 0; i < op->count && tally->digested < DIGESTED_MAX; i++) {
        tally->digest += sh_mix64(value_word(op->indexes[i]) + op->put + tally->digested);
        tally->digested++;
    }
}

enum shoal_err sh_kv_sum(const struct sh_kv_tally *tallies, unsigned count, size_t size,
                         struct sh_bench_result *result)
{
    SH_ASSERT(count > 0);
    uint64_t begin_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    uint64_t wrong = 0;
    for (unsigned i = 0; i < count; i++) {
        begin_ns = tallies[i].begin_ns < begin_ns ? tallies[i].begin_ns : begin_ns;
        end_ns = tallies[i].end_ns > end_ns ? tallies[i].end_ns : end_ns;
        wrong += tallies[i].wrong;
        result->ops += tallies[i].objects;
        result->digest += tallies[i].digest;
        sh_hist_merge(&result->latency_ns, &tallies[i].latency_ns);
    }
    SH_ASSERT(end_ns >= begin_ns);
    result->seconds = (double)(end_ns - begin_ns) / 1e9;
    result->bytes = result->ops * size;
    if (wrong == 0)
        return SHOAL_OK;
    SH_ERROR("bench", "values that were read are not those that were written",
             SH_U64("wrong", wrong));
    return SHOAL_EINTERNAL;
}
