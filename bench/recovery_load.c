#include "bench/recovery_load.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "bench/zipf.h"

#define SECOND_NS UINT64_C(1000000000)

struct sh_recovery_loader {
    struct sh_recovery_load *load;
    const struct sh_filled *filled; /* that it calls for */
    pthread_t thread;
    struct sh_keys keys;
    uint8_t *bytes, *expected;
    uint64_t calls[SH_RECOVERY_PHASES], lost, longest_ns;
    struct sh_hist latency_ns;
    struct sh_recovery_load_second each[SH_RECOVERY_LOAD_SECONDS_MAX];
};

/* Reads or writes one chunk. */
static enum shoal_err call_run(struct sh_recovery_loader *loader)
{
    const struct sh_recovery_load *load = loader->load;
    const struct sh_filled *filled = loader->filled;
    uint64_t key = sh_keys_next(&loader->keys);
    bool is_read = sh_keys_random(&loader->keys) % 100 < load->reads;
    shoal_cid cid = sh_filled_cid(filled, key);
    uint32_t size = sh_filled_size(filled, key), got = 0;
    sh_filled_bytes(filled, key, loader->expected, size);
    if (!is_read)
        return shoal_put(load->store, cid, loader->expected, size);
    enum shoal_err err = shoal_get(load->store, cid, loader->bytes, filled->sizes.most + 1, &got);
    if (!err && (got != size || memcmp(loader->bytes, loader->expected, size) != 0))
        err = SHOAL_EDIFFERS;
    return err;
}

static void call_note(struct sh_recovery_loader *loader, uint64_t begin_ns, uint64_t end_ns)
{
    const struct sh_recovery_load *load = loader->load;
    uint64_t took_ns = end_ns - begin_ns;
    uint64_t second = (end_ns - load->began_ns[SH_RECOVERY_BEFORE]) / SECOND_NS;
    /* relaxed: a call that ends as a phase does may be counted in either */
    loader->calls[atomic_load_explicit(&load->phase, memory_order_relaxed)]++;
    sh_hist_add(&loader->latency_ns, took_ns);
    if (took_ns > loader->longest_ns)
        loader->longest_ns = took_ns;
    if (second >= SH_RECOVERY_LOAD_SECONDS_MAX)
        return;
    struct sh_recovery_load_second *each = &loader->each[second];
    each->calls++;
    if (took_ns > each->longest_ns)
        each->longest_ns = took_ns;
}

static void *loader_main(void *arg)
{
    struct sh_recovery_loader *loader = arg;
    /* relaxed: only says when to end */
    while (!atomic_load_explicit(&loader->load->is_over, memory_order_relaxed)) {
        uint64_t begin_ns = sh_bench_now_ns();
        enum shoal_err err = call_run(loader);
        call_note(loader, begin_ns, sh_bench_now_ns());
        if (err && !loader->lost++)
            SH_ERROR("bench", "a call was lost", SH_ERR(err),
                     SH_TEXT("detail", shoal_error_detail()));
    }
    return NULL;
}

static enum shoal_err loader_start(struct sh_recovery_load *load, unsigned index)
{
    struct sh_recovery_loader *loader = &load->loaders[index];
    loader->load = load;
    loader->filled = index % 2 ? load->others : load->filled;
    loader->keys =
        (struct sh_keys){.state = load->filled->seed + index, .count = loader->filled->made};
    loader->bytes = malloc(loader->filled->sizes.most + 1);
    loader->expected = malloc(loader->filled->sizes.most + 1);
    if (!loader->bytes || !loader->expected)
        return SHOAL_ENOMEM;
    return sh_thread_start(&loader->thread, loader_main, loader, "bench-load") ? SHOAL_EINTERNAL
                                                                               : SHOAL_OK;
}

static void loaders_end(struct sh_recovery_load *load, unsigned started)
{
    atomic_store_explicit(&load->is_over, true, memory_order_relaxed);
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(load->loaders[i].thread, NULL);
}

static void loaders_free(struct sh_recovery_load *load)
{
    for (unsigned i = 0; load->loaders && i < load->threads; i++) {
        free(load->loaders[i].bytes);
        free(load->loaders[i].expected);
    }
    free(load->loaders);
    load->loaders = NULL;
}

enum shoal_err sh_recovery_load_start(struct sh_recovery_load *load)
{
    unsigned started = 0;
    SH_ASSERT(load->threads && load->threads <= SH_RECOVERY_LOAD_THREADS_MAX);
    SH_ASSERT(load->filled->made && load->others->made);
    load->loaders = calloc(load->threads, sizeof *load->loaders);
    enum shoal_err err = load->loaders ? SHOAL_OK : SHOAL_ENOMEM;
    atomic_store_explicit(&load->is_over, false, memory_order_relaxed);
    atomic_store_explicit(&load->phase, SH_RECOVERY_BEFORE, memory_order_relaxed);
    load->began_ns[SH_RECOVERY_BEFORE] = sh_bench_now_ns();
    while (!err && started < load->threads) {
        err = loader_start(load, started);
        started += !err;
    }
    if (err) {
        loaders_end(load, started);
        loaders_free(load);
    }
    return err;
}

/* The phase that is under way ends at this time. */
static void phase_end(struct sh_recovery_load *load, unsigned phase, uint64_t now_ns)
{
    load->seconds[phase] = (double)(now_ns - load->began_ns[phase]) / 1e9;
}

void sh_recovery_load_next(struct sh_recovery_load *load)
{
    uint64_t now_ns = sh_bench_now_ns();
    unsigned phase = atomic_load_explicit(&load->phase, memory_order_relaxed);
    SH_ASSERT(phase + 1 < SH_RECOVERY_PHASES);
    phase_end(load, phase, now_ns);
    load->began_ns[phase + 1] = now_ns;
    /* relaxed: the threads only count by it */
    atomic_store_explicit(&load->phase, phase + 1, memory_order_relaxed);
}

static void loader_add(struct sh_recovery_load *load, const struct sh_recovery_loader *loader)
{
    for (unsigned i = 0; i < SH_RECOVERY_PHASES; i++) {
        load->calls[i] += loader->calls[i];
        load->others_calls[i] += loader->filled == load->filled ? 0 : loader->calls[i];
    }
    load->lost += loader->lost;
    if (loader->longest_ns > load->longest_ns)
        load->longest_ns = loader->longest_ns;
    sh_hist_merge(&load->latency_ns, &loader->latency_ns);
    for (unsigned i = 0; i < SH_RECOVERY_LOAD_SECONDS_MAX; i++) {
        load->each[i].calls += loader->each[i].calls;
        if (loader->each[i].longest_ns > load->each[i].longest_ns)
            load->each[i].longest_ns = loader->each[i].longest_ns;
    }
}

void sh_recovery_load_stop(struct sh_recovery_load *load)
{
    loaders_end(load, load->threads);
    uint64_t now_ns = sh_bench_now_ns();
    uint64_t seconds = (now_ns - load->began_ns[SH_RECOVERY_BEFORE]) / SECOND_NS;
    phase_end(load, atomic_load_explicit(&load->phase, memory_order_relaxed), now_ns);
    for (unsigned i = 0; i < load->threads; i++)
        loader_add(load, &load->loaders[i]);
    load->seconds_count = seconds < SH_RECOVERY_LOAD_SECONDS_MAX ? (unsigned)seconds + 1
                                                                 : SH_RECOVERY_LOAD_SECONDS_MAX;
    loaders_free(load);
}

double sh_recovery_load_rate(const struct sh_recovery_load *load, enum sh_recovery_phase phase,
                             bool of_others)
{
    uint64_t calls = of_others ? load->others_calls[phase] : load->calls[phase];
    return load->seconds[phase] > 0 ? (double)calls / load->seconds[phase] : 0;
}
