#include "bench/log_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/assert.h"

#define DIGESTED 256
#define HOT_EVERY 10
#define HOT_PERCENT 90
#define SIZE 64
#define SIZE_MAX_ONE (UINT32_C(512) << 10) /* of a write (sh_replog_piece_max) */
#define FILL 50
#define SEGMENT_BYTES_MIN (UINT64_C(64) << 10)
#define SEGMENT_MULTIPLE 4096u
#define BUFFER_BYTES_MIN (UINT64_C(1) << 20)
#define BUFFER_MULTIPLE 65536u

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

/* --- What the flags ask for -------------------------------------------------------------------- */

static uint64_t or_default(uint64_t given, uint64_t otherwise)
{
    return given ? given : otherwise;
}

void sh_log_plan_make(const struct sh_bench_flags *flags, const struct sh_log_defaults *defaults,
                      struct sh_log_plan *plan)
{
    plan->size = (uint32_t)or_default(flags->size, SIZE);
    plan->zones = flags->zones ? flags->zones : defaults->zones;
    plan->segment_bytes = (uint32_t)or_default(flags->segment_bytes, defaults->segment_bytes);
    plan->buffer_bytes = or_default(flags->buffer_bytes, defaults->buffer_bytes);
    plan->zone_bytes = or_default(flags->zone_bytes, defaults->zone_bytes);
    uint64_t each = plan->size + SH_LOG_ENTRY_BYTES;
    plan->chunks = flags->count ? flags->count / plan->zones : plan->zone_bytes / each;
    plan->zone_bytes = plan->chunks * each;
    plan->log_bytes = plan->zone_bytes * 100 / or_default(flags->fill, FILL);
    plan->slots_each = sh_replog_slots_for(plan->segment_bytes, plan->log_bytes);
    plan->selection =
        flags->selection ? sh_replog_selection_of(flags->selection) : SH_REPLOG_COST_BENEFIT;
    plan->is_direct = !flags->access || strcmp(flags->access, "cached") != 0;
    plan->is_raw = flags->access && strcmp(flags->access, "raw") == 0;
    plan->sync_every = flags->sync_every;
    plan->disk_writes = flags->disk_writes;
    plan->has_primary = flags->levels != 1;
    plan->seed = flags->seed;
    plan->seconds = flags->seconds;
}

enum shoal_err sh_log_plan_check(struct sh_bench *bench, const struct sh_log_plan *plan)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    if (flags->count && flags->zone_bytes)
        return sh_bench_refuse(bench,
                               "--count and --zone-bytes both say how many chunks there are: "
                               "give one of them");
    if (plan->segment_bytes % SEGMENT_MULTIPLE || plan->segment_bytes < SEGMENT_BYTES_MIN)
        return sh_bench_refuse(bench, "--segment-bytes is a multiple of 4096, at least 64 KiB");
    if (plan->buffer_bytes % BUFFER_MULTIPLE || plan->buffer_bytes < BUFFER_BYTES_MIN)
        return sh_bench_refuse(bench, "--buffer-bytes is a multiple of 64 KiB, at least 1 MiB");
    if (plan->size > plan->segment_bytes / 4 || plan->size > SIZE_MAX_ONE)
        return sh_bench_refuse(bench,
                               "--size is at most a quarter of --segment-bytes, and 512 KiB");
    if (!plan->chunks || sh_log_plan_count(plan) < 2)
        return sh_bench_refuse(bench,
                               "there is not a chunk for each zone, or two in all: give fewer "
                               "--zones, or more --count or --zone-bytes");
    return SHOAL_OK;
}

enum shoal_err sh_log_space_check(struct sh_bench *bench, const char *folder, uint64_t wanted)
{
    char text[400];
    struct statvfs facts;
    if (statvfs(folder, &facts) != 0)
        return SHOAL_EIO;
    uint64_t there = (uint64_t)facts.f_bavail * facts.f_frsize;
    if (there >= wanted)
        return SHOAL_OK;
    snprintf(text, sizeof text,
             "%s has %" PRIu64 " MiB free, and a run may take %" PRIu64
             ": give fewer --zones, smaller --zone-bytes, or another --folder",
             folder, there >> 20, wanted >> 20);
    return sh_bench_refuse(bench, text);
}
