/* `shoal bench store`: the chunk memory alone, in one process.
 *
 * load   creates --count chunks of --size bytes, --batch at a time, and fills them; a run is one
 *        load. bytes_per_chunk is the growth of the process's resident set: everything counted.
 * get, put, multiget
 *        --threads threads touch random chunks for --seconds; multiget takes --batch at a time; a
 *        put includes making the content.
 *
 * A chunk's content is drawn from its key alone, so the digest, taken over a fixed sample of keys,
 * is the same for both systems and after any number of puts.
 *
 * Prediction: a get is two dependent cache misses (entry, data), each with a miss of the TLB where
 * the store is large; the baseline's is the same (slot, object). A multiget overlaps them. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "bench/bench.h"
#include "bench/benches.h"
#include "bench/malloc_base.h"
#include "bench/zipf.h"
#include "store/store.h"

#define THREADS_MAX 256
#define BATCH_MAX 4096
#define SIZE_MOST (UINT64_C(1) << 20)
/* Single operations are timed one in so many, so that the clock costs little. */
#define SAMPLE_EVERY 64
#define DIGEST_KEYS 65536

const char *const sh_bench_store_cases[] = {"load", "get", "multiget", "put", NULL};
const char *const sh_bench_store_baselines[] = {"malloc", NULL};

enum action { ACTION_GET, ACTION_MULTIGET, ACTION_PUT };

struct plan {
    uint64_t size;
    uint64_t count;
    unsigned threads;
    unsigned batch;
    double seconds;
    uint64_t seed;
    struct sh_zipf *zipf; /* NULL: uniform */
    enum action action;
};

/* One of the two systems, with what it holds. */
struct subject {
    const struct plan *plan;
    bool is_base;
    struct sh_store *store;
    struct sh_malloc_base *base;
};

static void content_make(uint64_t key, uint8_t *bytes, uint64_t size)
{
    for (uint64_t at = 0; at < size; at += 8) {
        uint64_t word = sh_mix64(key + at * UINT64_C(0x9e3779b97f4a7c15) + 1);
        memcpy(bytes + at, &word, size - at < 8 ? size - at : 8);
    }
}

/* A store of its own that holds count chunks hands out the local IDs 1 to count. */
static sh_lid lid_of(uint64_t key)
{
    return (sh_lid){key + 1};
}

static void subject_empty(struct subject *subject)
{
    sh_store_destroy(subject->store);
    sh_malloc_base_destroy(subject->base);
    subject->store = NULL;
    subject->base = NULL;
}

static enum shoal_err batch_load(struct subject *subject, uint64_t first, unsigned count,
                                 uint8_t *bytes)
{
    uint64_t size = subject->plan->size;
    struct sh_store_op ops[BATCH_MAX];
    sh_lid lids[BATCH_MAX];
    if (!subject->is_base) {
        enum shoal_err err = sh_store_new_many(subject->store, (uint32_t)size, count, lids);
        if (err)
            return err;
    }
    for (unsigned i = 0; i < count; i++) {
        uint8_t *at = bytes + i * size;
        content_make(first + i, at, size);
        if (!subject->is_base) {
            SH_ASSERT(lids[i].v == lid_of(first + i).v);
            ops[i] = (struct sh_store_op){lids[i], at, (uint32_t)size, SHOAL_OK};
            continue;
        }
        enum shoal_err err = sh_malloc_base_add(subject->base, first + i, (uint32_t)size);
        if (err)
            return err;
        if (!sh_malloc_base_put(subject->base, first + i, at, (uint32_t)size))
            return SHOAL_EINTERNAL;
    }
    if (!subject->is_base && sh_store_put_multi(subject->store, ops, count) != count)
        return SHOAL_EINTERNAL;
    return SHOAL_OK;
}

/* Fills an empty subject. */
static enum shoal_err subject_load(struct subject *subject)
{
    const struct plan *plan = subject->plan;
    /* 16 bytes a chunk for tables and rounding, and a page where a chunk is long. */
    uint64_t each = plan->size + plan->size / 4 + 16;
    struct sh_store_config config = {plan->count * each + (UINT64_C(64) << 20),
                                     (uint32_t)SIZE_MOST};
    enum shoal_err err = subject->is_base ? sh_malloc_base_create(plan->count, &subject->base)
                                          : sh_store_create(&config, &subject->store);
    if (err)
        return err;
    uint8_t *bytes = malloc(plan->batch * plan->size + 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    for (uint64_t first = 0; first < plan->count && !err; first += plan->batch) {
        uint64_t left = plan->count - first;
        err = batch_load(subject, first, left < plan->batch ? (unsigned)left : plan->batch, bytes);
    }
    free(bytes);
    return err;
}

static bool one_get(struct subject *subject, uint64_t key, uint8_t *into)
{
    uint32_t size = (uint32_t)subject->plan->size;
    if (subject->is_base)
        return sh_malloc_base_get(subject->base, key, into, size);
    return sh_store_get(subject->store, lid_of(key), into, size, &size) == SHOAL_OK;
}

static bool one_put(struct subject *subject, uint64_t key, const uint8_t *from)
{
    uint64_t size = subject->plan->size;
    if (subject->is_base)
        return sh_malloc_base_put(subject->base, key, from, (uint32_t)size);
    return sh_store_put(subject->store, lid_of(key), sh_bytes_make(from, size)) == SHOAL_OK;
}

/* Of the contents of a fixed sample of keys. */
static enum shoal_err subject_digest(struct subject *subject, uint64_t *digest_out)
{
    const struct plan *plan = subject->plan;
    struct sh_keys keys = {.state = plan->seed, .count = plan->count};
    uint8_t *bytes = malloc(plan->size + 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    uint64_t digest = 0;
    bool good = true;
    for (unsigned i = 0; i < DIGEST_KEYS && good; i++) {
        uint64_t key = sh_keys_next(&keys);
        good = one_get(subject, key, bytes);
        digest = good ? digest + sh_hash64(sh_bytes_make(bytes, plan->size), key) : digest;
    }
    free(bytes);
    *digest_out = digest;
    return good ? SHOAL_OK : SHOAL_EINTERNAL;
}

/* The process's resident bytes; 0 where the kernel does not tell. */
static uint64_t resident_bytes(void)
{
    FILE *file = fopen("/proc/self/smaps_rollup", "re");
    if (!file)
        return 0;
    char line[256];
    unsigned long long kib = 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "Rss: %llu kB", &kib) == 1)
            break;
    fclose(file);
    return kib * 1024;
}

static enum shoal_err load_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct subject *subject = arg;
    const struct plan *plan = subject->plan;
    sh_bench_pin(placement, 0);
    uint64_t resident = resident_bytes();
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    enum shoal_err err = subject_load(subject);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = plan->count;
    result_out->bytes = plan->count * plan->size;
    uint64_t after = resident_bytes();
    if (after > resident)
        result_out->bytes_per_chunk = (double)(after - resident) / (double)plan->count;
    if (!err)
        err = subject_digest(subject, &result_out->digest);
    subject_empty(subject);
    return err;
}

/* A thread of a timed run. */
struct worker {
    pthread_t thread;
    struct subject *subject;
    enum sh_placement placement;
    unsigned index;
    uint64_t deadline_ns;
    uint64_t ops;
    bool failed;
    struct sh_hist latency_ns;
};

static bool batch_get(struct worker *worker, struct sh_keys *keys, uint8_t *bytes)
{
    struct subject *subject = worker->subject;
    const struct plan *plan = subject->plan;
    struct sh_store_op ops[BATCH_MAX];
    bool good = true;
    for (unsigned i = 0; i < plan->batch; i++) {
        uint64_t key = sh_keys_next(keys);
        uint8_t *at = bytes + i * plan->size;
        if (subject->is_base)
            good &= one_get(subject, key, at);
        else
            ops[i] = (struct sh_store_op){lid_of(key), at, (uint32_t)plan->size, SHOAL_OK};
    }
    if (!subject->is_base)
        good = sh_store_get_multi(subject->store, ops, plan->batch) == plan->batch;
    return good;
}

static bool worker_act(struct worker *worker, struct sh_keys *keys, uint8_t *bytes)
{
    const struct plan *plan = worker->subject->plan;
    if (plan->action == ACTION_MULTIGET)
        return batch_get(worker, keys, bytes);
    uint64_t key = sh_keys_next(keys);
    if (plan->action == ACTION_GET)
        return one_get(worker->subject, key, bytes);
    content_make(key, bytes, plan->size);
    return one_put(worker->subject, key, bytes);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    const struct plan *plan = worker->subject->plan;
    bool multi = plan->action == ACTION_MULTIGET;
    unsigned each = multi ? plan->batch : 1;
    unsigned untimed = multi ? 0 : SAMPLE_EVERY - 1;
    struct sh_keys keys = {
        .state = plan->seed * 1000003 + worker->index, .count = plan->count, .zipf = plan->zipf};
    sh_bench_pin(worker->placement, worker->index % 2);
    uint8_t *bytes = malloc(plan->batch * plan->size + 8);
    worker->failed = !bytes;
    uint64_t now_ns = sh_bench_now_ns();
    worker->deadline_ns = now_ns + (uint64_t)(plan->seconds * 1e9);
    while (!worker->failed && now_ns < worker->deadline_ns) {
        bool good = true;
        for (unsigned i = 0; i < untimed; i++)
            good &= worker_act(worker, &keys, bytes);
        uint64_t start_ns = sh_bench_now_ns();
        good &= worker_act(worker, &keys, bytes);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&worker->latency_ns, now_ns - start_ns);
        worker->ops += (untimed + 1) * (uint64_t)each;
        worker->failed = !good;
    }
    free(bytes);
    return NULL;
}

/* Starts the workers, waits for them and sums them up. ENOMEM when not all could be started,
 * EINTERNAL when an operation failed. Each runs its own --seconds: starting takes microseconds. */
static enum shoal_err workers_run(struct worker *workers, unsigned count,
                                  struct sh_bench_result *result)
{
    unsigned started = 0;
    while (started < count &&
           pthread_create(&workers[started].thread, NULL, worker_main, &workers[started]) == 0)
        started++;
    bool failed = false;
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(workers[i].thread, NULL);
        failed |= workers[i].failed;
        result->ops += workers[i].ops;
        sh_hist_merge(&result->latency_ns, &workers[i].latency_ns);
    }
    if (started < count)
        return SHOAL_ENOMEM;
    return failed ? SHOAL_EINTERNAL : SHOAL_OK;
}

static enum shoal_err touch_run(void *arg, const struct sh_bench_flags *flags,
                                enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct subject *subject = arg;
    const struct plan *plan = subject->plan;
    struct worker *workers = calloc(plan->threads, sizeof *workers);
    if (!workers)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < plan->threads; i++) {
        workers[i].subject = subject;
        workers[i].placement = placement;
        workers[i].index = i;
        sh_hist_reset(&workers[i].latency_ns);
    }
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    enum shoal_err err = workers_run(workers, plan->threads, result_out);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->bytes = result_out->ops * plan->size;
    free(workers);
    return err ? err : subject_digest(subject, &result_out->digest);
}

static enum shoal_err plan_make(struct sh_bench *bench, struct plan *plan_out)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct plan plan = {
        .size = flags->size ? flags->size : 64,
        .count = flags->count ? flags->count : 1000000,
        .threads = flags->threads ? flags->threads : 1,
        .batch = flags->batch ? flags->batch : 32,
        .seconds = flags->seconds > 0 ? flags->seconds : 1,
        .seed = flags->seed,
    };
    if (plan.size > SIZE_MOST || plan.count < 2 || plan.count > UINT64_C(1) << 36 ||
        plan.threads > THREADS_MAX || plan.batch > BATCH_MAX) {
        sh_bench_note(bench,
                      "store takes --size to 1 MiB, --count from 2 to 2^36, --threads to 256 "
                      "and --batch to 4096");
        return SHOAL_ERANGE;
    }
    *plan_out = plan;
    return SHOAL_OK;
}

static void extra_print(const struct plan *plan, bool load, char *into, size_t room)
{
    int length =
        snprintf(into, room, "size=%llu count=%llu batch=%u", (unsigned long long)plan->size,
                 (unsigned long long)plan->count, plan->batch);
    if (!load && length > 0 && (size_t)length < room)
        snprintf(into + length, room - (size_t)length, " threads=%u keys=%s", plan->threads,
                 plan->zipf ? "zipfian" : "uniform");
}

/* Measures a case in every placement; both subjects are as the run needs them. */
static enum shoal_err case_measure(struct sh_bench *bench, const char *name, sh_bench_run run,
                                   struct subject *ours, struct subject *base)
{
    const char *vs = sh_bench_flags_get(bench)->vs;
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    char extra[128];
    extra_print(ours->plan, run == load_run, extra, sizeof extra);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < count && !err; i++)
        err = sh_bench_measure(bench, name, placements[i], extra, run, ours, vs, vs ? run : NULL,
                               base);
    return err;
}

static enum shoal_err touch_cases(struct sh_bench *bench, struct plan *plan, struct subject *ours,
                                  struct subject *base)
{
    static const struct {
        const char *name;
        enum action action;
    } cases[] = {{"get", ACTION_GET}, {"multiget", ACTION_MULTIGET}, {"put", ACTION_PUT}};
    bool loaded = false;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (!sh_bench_case_wanted(bench, cases[i].name))
            continue;
        enum shoal_err err = loaded ? SHOAL_OK : subject_load(ours);
        if (!err && !loaded && sh_bench_flags_get(bench)->vs)
            err = subject_load(base);
        loaded = true;
        plan->action = cases[i].action;
        if (!err)
            err = case_measure(bench, cases[i].name, touch_run, ours, base);
        if (err)
            return err;
    }
    return SHOAL_OK;
}

enum shoal_err sh_bench_store(struct sh_bench *bench)
{
    struct plan plan;
    enum shoal_err err = plan_make(bench, &plan);
    if (err)
        return err;
    struct subject ours = {.plan = &plan};
    struct subject base = {.plan = &plan, .is_base = true};
    struct sh_zipf zipf;
    if (sh_bench_case_wanted(bench, "load"))
        err = case_measure(bench, "load", load_run, &ours, &base);
    const char *keys = sh_bench_flags_get(bench)->keys;
    if (keys && strcmp(keys, "zipfian") == 0) {
        sh_zipf_init(&zipf, plan.count);
        plan.zipf = &zipf;
    }
    if (!err)
        err = touch_cases(bench, &plan, &ours, &base);
    subject_empty(&ours);
    subject_empty(&base);
    return err;
}
