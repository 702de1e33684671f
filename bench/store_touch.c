/* Threads that read and write what was loaded before. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bench/store_bench_int.h"

/* The other thread of churned reads: batches of chunks it keeps alive at a time. */
#define CHURN_BATCH 32
#define CHURN_BATCHES 64

/* A thread of a timed run. */
struct worker {
    pthread_t thread;
    struct sh_subject *subject;
    const struct sh_store_plan *plan;
    enum sh_placement placement;
    unsigned index;
    uint64_t state; /* of what is drawn beside keys */
    struct sh_keys keys;
    uint8_t *bytes;     /* of a batch */
    uint64_t link_mask; /* 0: keys do not depend on what was read */
    uint64_t ops;
    uint64_t moved; /* bytes read and written */
    bool failed;
    struct sh_hist latency_ns;
};

/* The thread that creates and removes meanwhile. */
struct churner {
    pthread_t thread;
    struct sh_subject *subject;
    const struct sh_store_plan *plan;
    enum sh_placement placement;
    _Atomic bool stops;
    uint64_t chunks;
    bool failed;
};

/* Draws the keys of one operation, and makes what is written. */
static void touches_draw(struct worker *worker, struct sh_touch *touches, bool writes)
{
    const struct sh_store_plan *plan = worker->plan;
    uint64_t used = 0;
    for (unsigned i = 0; i < plan->batch; i++) {
        uint64_t key = sh_keys_next(&worker->keys);
        uint32_t size = sh_store_plan_size(plan, key, 0);
        uint8_t *at = worker->bytes + used;
        if (writes) {
            uint16_t version = plan->verify ? (uint16_t)sh_mix64(worker->keys.state) : 0;
            sh_store_content_make(key, version, at, size);
        }
        touches[i] = (struct sh_touch){key + 1, at, size};
        used += size;
    }
    worker->moved += used;
}

static bool contents_check(const struct sh_touch *touches, unsigned count)
{
    bool good = true;
    for (unsigned i = 0; i < count; i++)
        good &= sh_store_content_check(touches[i].handle - 1, touches[i].bytes, touches[i].size);
    return good;
}

static bool worker_act(struct worker *worker, struct sh_touch *touches)
{
    const struct sh_store_plan *plan = worker->plan;
    bool reads = plan->reads == 100;
    if (plan->reads > 0 && plan->reads < 100) {
        worker->state += UINT64_C(0x9e3779b97f4a7c15);
        reads = (sh_mix64(worker->state) >> 32) * 100 >> 32 < plan->reads;
    }
    touches_draw(worker, touches, !reads);
    if (!reads)
        return sh_subject_put(worker->subject, touches, plan->batch);
    bool good = sh_subject_get(worker->subject, touches, plan->batch);
    if (plan->verify)
        good &= contents_check(touches, plan->batch);
    uint64_t word = 0;
    memcpy(&word, worker->bytes, touches->size < 8 ? touches->size : 8);
    worker->keys.state += word & worker->link_mask;
    return good;
}

/* 0, as the compiler can't know: ANDed with what was read it makes the next key wait for that. */
static volatile uint64_t nothing = 0;

static void worker_loop(struct worker *worker)
{
    const struct sh_store_plan *plan = worker->plan;
    struct sh_touch touches[SH_STORE_BATCH_MAX];
    unsigned untimed = plan->batch > 1 ? 0 : SH_STORE_SAMPLE_EVERY - 1;
    uint64_t now_ns = sh_bench_now_ns();
    uint64_t deadline_ns = now_ns + (uint64_t)(plan->seconds * 1e9);
    while (!worker->failed && now_ns < deadline_ns) {
        bool good = true;
        for (unsigned i = 0; i < untimed; i++)
            good &= worker_act(worker, touches);
        uint64_t start_ns = sh_bench_now_ns();
        good &= worker_act(worker, touches);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&worker->latency_ns, now_ns - start_ns);
        worker->ops += (untimed + 1) * (uint64_t)plan->batch;
        worker->failed = !good;
    }
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    const struct sh_store_plan *plan = worker->plan;
    sh_bench_pin(worker->placement, worker->index % 2);
    worker->keys = (struct sh_keys){
        .state = plan->seed * 1000003 + worker->index, .count = plan->count, .zipf = plan->zipf};
    worker->state = plan->seed * 31 + worker->index;
    worker->bytes = calloc(plan->batch, (uint64_t)plan->sizes.most + 8);
    worker->failed = !worker->bytes;
    worker->link_mask = plan->chained ? nothing : 0;
    if (!worker->failed)
        worker_loop(worker);
    free(worker->bytes);
    return NULL;
}

/* Creates CHURN_BATCHES batches and removes each again, over and over, under handles that no reader
 * has. */
static bool churner_round(struct churner *churner, uint64_t (*handles)[CHURN_BATCH],
                          const uint32_t *sizes)
{
    uint64_t next = churner->plan->count + 1;
    bool good = true;
    for (unsigned i = 0; i < CHURN_BATCHES && good; i++) {
        for (unsigned k = 0; k < CHURN_BATCH; k++)
            handles[i][k] = next++;
        good = sh_subject_create(churner->subject, sizes, CHURN_BATCH, handles[i]) == SHOAL_OK;
    }
    for (unsigned i = 0; i < CHURN_BATCHES && good; i++)
        good = sh_subject_remove(churner->subject, handles[i], CHURN_BATCH);
    return good;
}

static void *churner_main(void *arg)
{
    struct churner *churner = arg;
    uint64_t handles[CHURN_BATCHES][CHURN_BATCH];
    uint32_t sizes[CHURN_BATCH];
    sh_bench_pin(churner->placement, 1);
    for (unsigned i = 0; i < CHURN_BATCH; i++)
        sizes[i] = sh_store_plan_size(churner->plan, i, 1);
    bool good = true;
    /* relaxed: only says that it is time to stop */
    while (good && !atomic_load_explicit(&churner->stops, memory_order_relaxed)) {
        good = churner_round(churner, handles, sizes);
        churner->chunks += CHURN_BATCHES * CHURN_BATCH;
    }
    churner->failed = !good;
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
        result->bytes += workers[i].moved;
        sh_hist_merge(&result->latency_ns, &workers[i].latency_ns);
    }
    if (started < count)
        return SHOAL_ENOMEM;
    return failed ? SHOAL_EINTERNAL : SHOAL_OK;
}

/* The workers, with the churner beside them where the plan has one. */
static enum shoal_err all_run(struct sh_toucher *toucher, struct worker *workers,
                              enum sh_placement placement, struct sh_bench_result *result)
{
    const struct sh_store_plan *plan = toucher->plan;
    struct churner churner = {.subject = toucher->subject, .plan = plan, .placement = placement};
    if (plan->churned && pthread_create(&churner.thread, NULL, churner_main, &churner) != 0)
        return SHOAL_ENOMEM;
    enum shoal_err err = workers_run(workers, plan->threads, result);
    if (!plan->churned)
        return err;
    atomic_store_explicit(&churner.stops, true, memory_order_relaxed);
    (void)pthread_join(churner.thread, NULL);
    toucher->churned_per_s = (double)churner.chunks / plan->seconds;
    return !err && churner.failed ? SHOAL_EINTERNAL : err;
}

enum shoal_err sh_store_touch_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct sh_toucher *toucher = arg;
    const struct sh_store_plan *plan = toucher->plan;
    struct worker *workers = calloc(plan->threads, sizeof *workers);
    if (!workers)
        return SHOAL_ENOMEM;
    for (unsigned i = 0; i < plan->threads; i++) {
        workers[i].subject = toucher->subject;
        workers[i].plan = plan;
        workers[i].placement = placement;
        workers[i].index = i;
        sh_hist_reset(&workers[i].latency_ns);
    }
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    enum shoal_err err = all_run(toucher, workers, placement, result_out);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    free(workers);
    return err ? err : sh_subject_digest(toucher->subject, &result_out->digest);
}
