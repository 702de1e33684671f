#include "bench/log_plan.h"

#include <stdlib.h>

#include "base/assert.h"

#define DIGESTED 256
#define HOT_EVERY 10
#define HOT_PERCENT 90

void sh_log_draws_init(struct sh_log_draws *draws, const struct sh_log_plan *plan, bool loads)
{
    uint64_t count = sh_log_plan_count(plan);
    SH_ASSERT(plan->zones > 0 && plan->chunks > 0 && plan->batch > 0);
    *draws = (struct sh_log_draws){.plan = plan,
                                   .loads = loads || plan->what == SH_LOG_LOAD,
                                   .keys = {.state = plan->seed, .count = count}};
    draws->count = draws->loads ? count : 2 * count;
    draws->next.zone = plan->zones - 1;
    if (plan->what == SH_LOG_ZIPF)
        draws->keys.zipf = &plan->zipf;
}

/* A row of the hot ones, or of the others. Where there is one row, or none of a kind, it is hot. */
static uint64_t hotcold_row(struct sh_log_draws *draws, uint64_t rows)
{
    uint64_t hot = (rows + HOT_EVERY - 1) / HOT_EVERY;
    bool is_hot = sh_keys_random(&draws->keys) % 100 < HOT_PERCENT;
    draws->keys.count = is_hot || hot == rows ? hot : rows - hot;
    uint64_t row = sh_keys_next(&draws->keys);
    if (is_hot || hot == rows)
        return row * HOT_EVERY;
    return row / (HOT_EVERY - 1) * HOT_EVERY + row % (HOT_EVERY - 1) + 1;
}

static void row_begin(struct sh_log_draws *draws)
{
    const struct sh_log_plan *plan = draws->plan;
    uint64_t key;
    draws->left = plan->batch;
    if (draws->loads || plan->what == SH_LOG_SEQUENTIAL) {
        draws->left = plan->chunks;
        draws->next.zone = (draws->next.zone + 1) % plan->zones;
        draws->next.chunk = 0;
        return;
    }
    if (plan->what == SH_LOG_HOTCOLD) {
        uint64_t each = (plan->chunks + plan->batch - 1) / plan->batch; /* rows of a zone */
        uint64_t row = hotcold_row(draws, each * plan->zones);
        key = row / each * plan->chunks + row % each * plan->batch;
    } else {
        key = sh_keys_next(&draws->keys);
    }
    draws->next.zone = (unsigned)(key / plan->chunks);
    draws->next.chunk = key % plan->chunks;
}

bool sh_log_draw(struct sh_log_draws *draws, struct sh_log_target *target_out)
{
    if (draws->drawn == draws->count)
        return false;
    if (!draws->left)
        row_begin(draws);
    *target_out = draws->next;
    SH_ASSERT(target_out->zone < draws->plan->zones && target_out->chunk < draws->plan->chunks);
    if (draws->drawn++ < DIGESTED)
        draws->digest = sh_mix64(draws->digest + sh_log_key(draws->plan, target_out) + 1);
    draws->left--;
    if (++draws->next.chunk == draws->plan->chunks)
        draws->next.chunk = 0;
    return true;
}

struct sh_bytes sh_log_payload(const struct sh_log_draws *draws)
{
    uint64_t at = draws->drawn * 64 % SH_LOG_SOURCE_BYTES;
    return sh_bytes_make(draws->plan->source + at, draws->plan->size);
}

uint8_t *sh_log_source_make(const struct sh_log_plan *plan)
{
    size_t size = (SH_LOG_SOURCE_BYTES + plan->size + 7) / 8 * 8;
    uint8_t *bytes = malloc(size);
    struct sh_keys keys = {.state = plan->seed};
    for (size_t i = 0; bytes && i < size; i += 8)
        sh_store64(bytes + i, sh_keys_random(&keys));
    return bytes;
}
