/* Two dependent misses, in memory of the store's size. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "bench/store_bench_int.h"

#define TABLE_BYTES_EACH 2 /* for each chunk */
#define WORD sizeof(uint64_t)
/* Tables ask for huge pages from this size on, as the store's do. */
#define HUGE_FROM (UINT64_C(32) << 20)

/* Memory that was written once, so that each page is one of its own. */
static uint64_t *words_map(uint64_t words, bool asks_huge)
{
    uint64_t *map =
        mmap(NULL, words * WORD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (map == MAP_FAILED)
        return NULL;
    /* Advice: where huge pages are off, there are none, for the store neither. */
    if (asks_huge && words * WORD >= HUGE_FROM)
        (void)madvise(map, words * WORD, MADV_HUGEPAGE);
    for (uint64_t at = 0; at < words; at += 4096 / WORD)
        map[at] = 1;
    for (uint64_t at = 0; at < words; at += 4096 / WORD)
        map[at] = 0;
    return map;
}

enum shoal_err sh_misses_open(const struct sh_store_plan *plan, struct sh_misses *misses_out)
{
    SH_ASSERT(plan->count > 0);
    struct sh_misses misses = {.plan = plan};
    misses.table_words = plan->count * TABLE_BYTES_EACH / WORD + 1;
    misses.data_words = sh_store_plan_payload(plan, 0) / WORD + 1;
    misses.table = words_map(misses.table_words, true);
    misses.data = words_map(misses.data_words, !plan->small_pages);
    if (!misses.table || !misses.data) {
        sh_misses_close(&misses);
        return SHOAL_ENOMEM;
    }
    *misses_out = misses;
    return SHOAL_OK;
}

void sh_misses_close(struct sh_misses *misses)
{
    if (misses->table)
        munmap(misses->table, misses->table_words * WORD);
    if (misses->data)
        munmap(misses->data, misses->data_words * WORD);
    misses->table = NULL;
    misses->data = NULL;
}

static uint64_t scaled(uint64_t key, uint64_t count, uint64_t words)
{
    return (uint64_t)((unsigned __int128)key * words / count);
}

/* All words are 0, which the compiler can't know, so that each place waits for the word before. */
static uint64_t pair_read(const struct sh_misses *misses, struct sh_keys *keys)
{
    uint64_t count = misses->plan->count;
    uint64_t key = sh_keys_next(keys);
    uint64_t entry = misses->table[scaled(key, count, misses->table_words)];
    uint64_t word = misses->data[scaled(key, count, misses->data_words) + entry];
    keys->state += word;
    return word;
}

/* A thread that misses. */
struct misser {
    pthread_t thread;
    const struct sh_misses *misses;
    enum sh_placement placement;
    unsigned index;
    uint64_t ops;
    uint64_t digest;
    struct sh_hist latency_ns;
};

static void *misser_main(void *arg)
{
    struct misser *misser = arg;
    const struct sh_misses *misses = misser->misses;
    const struct sh_store_plan *plan = misses->plan;
    struct sh_keys keys = {
        .state = plan->seed * 1000003 + misser->index, .count = plan->count, .zipf = plan->zipf};
    sh_bench_pin(misser->placement, misser->index % 2);
    uint64_t now_ns = sh_bench_now_ns();
    uint64_t deadline_ns = now_ns + (uint64_t)(plan->seconds * 1e9);
    while (now_ns < deadline_ns) {
        for (unsigned i = 0; i < SH_STORE_SAMPLE_EVERY - 1; i++)
            misser->digest += pair_read(misses, &keys);
        uint64_t start_ns = sh_bench_now_ns();
        misser->digest += pair_read(misses, &keys);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&misser->latency_ns, now_ns - start_ns);
        misser->ops += SH_STORE_SAMPLE_EVERY;
    }
    return NULL;
}

enum shoal_err sh_store_misses_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    const struct sh_misses *misses = arg;
    unsigned count = misses->plan->threads;
    struct misser *missers = calloc(count, sizeof *missers);
    if (!missers)
        return SHOAL_ENOMEM;
    uint64_t begin_ns = sh_bench_now_ns();
    uint64_t cpu_ns = sh_bench_cpu_ns();
    unsigned started = 0;
    for (; started < count; started++) {
        struct misser *misser = &missers[started];
        misser->misses = misses;
        misser->placement = placement;
        misser->index = started;
        sh_hist_reset(&misser->latency_ns);
        if (pthread_create(&misser->thread, NULL, misser_main, misser) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(missers[i].thread, NULL);
        result_out->ops += missers[i].ops;
        result_out->digest += missers[i].digest;
        sh_hist_merge(&result_out->latency_ns, &missers[i].latency_ns);
    }
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    free(missers);
    return started < count ? SHOAL_ENOMEM : SHOAL_OK;
}
