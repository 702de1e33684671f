/* Creating and removing. Each run is a process of its own, forked for it: its resident set begins
 * as small as it can be, and no allocator keeps memory from one run to the next. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/resident.h"
#include "bench/store_bench_int.h"

#define CHURN_ROUNDS 3
#define WARM_CHUNKS 64

/* What parent and child share. */
struct apart {
    enum shoal_err err;
    struct sh_bench_result result;
};

/* What the child does; its subject is closed before. */
typedef enum shoal_err (*body)(struct sh_subject *subject, enum sh_placement placement,
                               struct sh_bench_result *result);

/* Brings in the pages of the program that the run needs, so that they are not counted with it. */
static enum shoal_err code_touch(const struct sh_subject *subject)
{
    struct sh_store_plan plan = *subject->plan;
    struct sh_subject small = {.plan = &plan, .allocator = subject->allocator};
    uint64_t digest = 0;
    plan.count = WARM_CHUNKS;
    enum shoal_err err = sh_subject_load(&small, true);
    if (!err)
        err = sh_subject_digest(&small, &digest);
    sh_subject_close(&small);
    return err;
}

static enum shoal_err child_main(struct sh_subject *subject, enum sh_placement placement, body act,
                                 struct sh_bench_result *result)
{
    sh_bench_pin(placement, 0);
    enum shoal_err err = code_touch(subject);
    if (!err)
        err = act(subject, placement, result);
    sh_subject_close(subject);
    return err;
}

static enum shoal_err run_apart(struct sh_subject *subject, enum sh_placement placement, body act,
                                struct sh_bench_result *result_out)
{
    struct apart *apart =
        mmap(NULL, sizeof *apart, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (apart == MAP_FAILED)
        return SHOAL_ENOMEM;
    apart->err = SHOAL_EINTERNAL;
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        apart->err = child_main(subject, placement, act, &apart->result);
        _exit(0);
    }
    int status = 0;
    enum shoal_err err = pid > 0 ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err && (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))) {
        SH_ERROR("bench", "a run's process was killed; is there memory enough?",
                 SH_U64("signal", WIFSIGNALED(status) ? (uint64_t)WTERMSIG(status) : 0));
        err = SHOAL_ENOMEM;
    }
    if (!err)
        err = apart->err;
    if (!err)
        *result_out = apart->result;
    munmap(apart, sizeof *apart);
    return err;
}

/* When and where a measurement began. */
struct mark {
    uint64_t resident;
    uint64_t cpu_ns;
    uint64_t now_ns;
};

static struct mark mark_take(void)
{
    return (struct mark){sh_resident_bytes(), sh_bench_cpu_ns(), sh_bench_now_ns()};
}

static void time_note(const struct mark *begin, uint64_t ops, uint64_t bytes,
                      struct sh_bench_result *result)
{
    result->seconds = (double)(sh_bench_now_ns() - begin->now_ns) / 1e9;
    result->cpu_ns = sh_bench_cpu_ns() - begin->cpu_ns;
    result->ops = ops;
    result->bytes = bytes;
}

static void memory_note(const struct sh_subject *subject, const struct mark *begin,
                        uint64_t payload, struct sh_bench_result *result)
{
    double count = (double)subject->plan->count;
    uint64_t resident = sh_resident_bytes();
    if (resident > begin->resident) {
        result->bytes_per_chunk = (double)(resident - begin->resident) / count;
        result->over_per_chunk = result->bytes_per_chunk - (double)payload / count;
    }
    if (!subject->store)
        return;
    struct sh_store_status status;
    sh_store_status_get(subject->store, &status);
    SH_ASSERT(status.chunks == subject->plan->count && status.payload_bytes == payload);
    result->status_per_chunk = (double)status.used_bytes / count;
}

static enum shoal_err load_body(struct sh_subject *subject, enum sh_placement placement,
                                struct sh_bench_result *result)
{
    (void)placement;
    const struct sh_store_plan *plan = subject->plan;
    uint64_t payload = sh_store_plan_payload(plan, 0);
    struct mark begin = mark_take();
    enum shoal_err err = sh_subject_open(subject, plan->count, payload);
    if (!err)
        err = sh_subject_load(subject, true);
    if (err)
        return err;
    time_note(&begin, plan->count, payload, result);
    memory_note(subject, &begin, payload, result);
    return sh_subject_digest(subject, &result->digest);
}

static enum shoal_err create_body(struct sh_subject *subject, enum sh_placement placement,
                                  struct sh_bench_result *result)
{
    (void)placement;
    const struct sh_store_plan *plan = subject->plan;
    uint64_t payload = sh_store_plan_payload(plan, 0);
    struct mark begin = mark_take();
    enum shoal_err err = sh_subject_open(subject, plan->count, payload);
    if (!err)
        err = sh_subject_load(subject, false);
    if (err)
        return err;
    time_note(&begin, plan->count, payload, result);
    memory_note(subject, &begin, payload, result);
    result->digest = payload;
    return SHOAL_OK;
}

static bool all_remove(struct sh_subject *subject)
{
    uint64_t handles[SH_STORE_BATCH_MAX];
    uint64_t count = subject->plan->count;
    bool good = true;
    for (uint64_t first = 1; first <= count; first += SH_STORE_BATCH_MAX) {
        uint64_t left = count - first + 1;
        unsigned some = left < SH_STORE_BATCH_MAX ? (unsigned)left : SH_STORE_BATCH_MAX;
        for (unsigned i = 0; i < some; i++)
            handles[i] = first + i;
        good &= sh_subject_remove(subject, handles, some);
    }
    return good;
}

static enum shoal_err recreate_body(struct sh_subject *subject, enum sh_placement placement,
                                    struct sh_bench_result *result)
{
    (void)placement;
    const struct sh_store_plan *plan = subject->plan;
    uint64_t payload = sh_store_plan_payload(plan, 0);
    struct mark opened = mark_take();
    enum shoal_err err = sh_subject_open(subject, plan->count, payload);
    if (!err)
        err = sh_subject_load(subject, true);
    if (!err && !all_remove(subject))
        err = SHOAL_EINTERNAL;
    if (err)
        return err;
    struct mark begin = mark_take();
    err = sh_subject_load(subject, false);
    time_note(&begin, plan->count, payload, result);
    if (!err)
        memory_note(subject, &opened, payload, result);
    result->digest = payload;
    return err;
}

/* A thread that creates its share of the chunks. */
struct creator {
    pthread_t thread;
    struct sh_subject *subject;
    enum sh_placement placement;
    unsigned index;
    enum shoal_err err;
};

static void *creator_main(void *arg)
{
    struct creator *creator = arg;
    const struct sh_store_plan *plan = creator->subject->plan;
    uint64_t first = plan->count * creator->index / plan->threads;
    uint64_t end = plan->count * (creator->index + 1) / plan->threads;
    uint32_t sizes[SH_STORE_BATCH_MAX];
    uint64_t handles[SH_STORE_BATCH_MAX];
    sh_bench_pin(creator->placement, creator->index % 2);
    while (first < end && !creator->err) {
        unsigned count =
            end - first < plan->load_batch ? (unsigned)(end - first) : plan->load_batch;
        for (unsigned i = 0; i < count; i++) {
            sizes[i] = sh_store_plan_size(plan, first + i, 0);
            handles[i] = first + i + 1;
        }
        creator->err = sh_subject_create(creator->subject, sizes, count, handles);
        first += count;
    }
    return NULL;
}

static enum shoal_err creators_run(struct sh_subject *subject, enum sh_placement placement)
{
    struct creator creators[SH_STORE_THREADS_MAX];
    unsigned started = 0;
    unsigned count = subject->plan->threads;
    SH_ASSERT(count > 0 && count <= SH_STORE_THREADS_MAX);
    for (; started < count; started++) {
        creators[started] =
            (struct creator){.subject = subject, .placement = placement, .index = started};
        if (pthread_create(&creators[started].thread, NULL, creator_main, &creators[started]) != 0)
            break;
    }
    enum shoal_err err = started < count ? SHOAL_ENOMEM : SHOAL_OK;
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(creators[i].thread, NULL);
        err = err ? err : creators[i].err;
    }
    return err;
}

/* Several threads create in memory touched before, where faults do not rule. */
static enum shoal_err together_body(struct sh_subject *subject, enum sh_placement placement,
                                    struct sh_bench_result *result)
{
    const struct sh_store_plan *plan = subject->plan;
    uint64_t payload = sh_store_plan_payload(plan, 0);
    enum shoal_err err = sh_subject_open(subject, plan->count, payload);
    if (!err)
        err = sh_subject_load(subject, true);
    if (!err && !all_remove(subject))
        err = SHOAL_EINTERNAL;
    if (err)
        return err;
    struct mark begin = mark_take();
    err = creators_run(subject, placement);
    time_note(&begin, plan->count, payload, result);
    result->digest = payload;
    /* Whatever the threads did to each other, every ID was given once. */
    if (!err && !all_remove(subject))
        err = SHOAL_EINTERNAL;
    return err;
}

/* Coprime to count, about 0.6 of it: its multiples visit every key once, far from each other. */
static uint64_t stride_of(uint64_t count)
{
    for (uint64_t stride = count * 3 / 5 + 1;; stride++) {
        uint64_t a = stride;
        uint64_t b = count;
        while (b) {
            uint64_t rest = a % b;
            a = b;
            b = rest;
        }
        if (a == 1)
            return stride;
    }
}

/* A churn under way: what each key's chunk is called, and room for one batch's contents. */
struct churn {
    struct sh_subject *subject;
    uint64_t *handles;
    uint8_t *bytes;
    uint64_t stride;
};

/* Replaces the chunks of count keys, from the first-th of the round on. */
static enum shoal_err some_replace(struct churn *churn, unsigned generation, uint64_t first,
                                   unsigned count)
{
    const struct sh_store_plan *plan = churn->subject->plan;
    uint64_t keys[SH_STORE_BATCH_MAX];
    uint64_t handles[SH_STORE_BATCH_MAX];
    uint32_t sizes[SH_STORE_BATCH_MAX];
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    for (unsigned i = 0; i < count; i++) {
        keys[i] = (uint64_t)((unsigned __int128)(first + i) * churn->stride % plan->count);
        handles[i] = churn->handles[keys[i]];
        sizes[i] = sh_store_plan_size(plan, keys[i], generation);
    }
    if (!sh_subject_remove(churn->subject, handles, count))
        return SHOAL_EINTERNAL;
    enum shoal_err err = sh_subject_create(churn->subject, sizes, count, handles);
    bool good = true;
    for (unsigned i = 0; i < count && !err; i++) {
        struct sh_touch touch = {handles[i], churn->bytes, sizes[i]};
        sh_store_content_make(keys[i], 0, churn->bytes, sizes[i]);
        good &= sh_subject_put(churn->subject, &touch, 1);
        churn->handles[keys[i]] = handles[i];
    }
    return good ? err : SHOAL_EINTERNAL;
}

/* Every chunk's content, or one in `step`. */
static enum shoal_err churned_digest(struct churn *churn, uint64_t step, uint64_t *digest_out)
{
    const struct sh_store_plan *plan = churn->subject->plan;
    uint64_t digest = 0;
    for (uint64_t key = 0; key < plan->count; key += step) {
        uint32_t size = sh_store_plan_size(plan, key, CHURN_ROUNDS);
        struct sh_touch touch = {churn->handles[key], churn->bytes, size};
        if (!sh_subject_get(churn->subject, &touch, 1) ||
            !sh_store_content_check(key, churn->bytes, size))
            return SHOAL_EINTERNAL;
        digest += sh_mix64(key) + size;
    }
    *digest_out = digest;
    return SHOAL_OK;
}

static enum shoal_err churn_act(struct churn *churn, struct sh_bench_result *result)
{
    struct sh_subject *subject = churn->subject;
    const struct sh_store_plan *plan = subject->plan;
    uint64_t payload = sh_store_plan_payload(plan, CHURN_ROUNDS);
    uint64_t payload_max = payload;
    for (unsigned round = 0; round < CHURN_ROUNDS; round++) {
        uint64_t other = sh_store_plan_payload(plan, round);
        payload_max = other > payload_max ? other : payload_max;
    }
    for (uint64_t key = 0; key < plan->count; key++)
        churn->handles[key] = key + 1;
    struct mark opened = mark_take();
    /* Twice the payload, so that it is defragmentation that brings memory back, not the limit. */
    enum shoal_err err = sh_subject_open(subject, plan->count, 2 * payload_max);
    if (!err)
        err = sh_subject_load(subject, true);
    struct mark begin = mark_take();
    for (unsigned round = 1; round <= CHURN_ROUNDS && !err; round++) {
        for (uint64_t first = 0; first < plan->count && !err; first += plan->batch) {
            uint64_t left = plan->count - first;
            err = some_replace(churn, round, first,
                               left < plan->batch ? (unsigned)left : plan->batch);
        }
    }
    time_note(&begin, CHURN_ROUNDS * plan->count, CHURN_ROUNDS * payload, result);
    if (err)
        return err;
    sh_subject_defragment(subject);
    memory_note(subject, &opened, payload, result);
    return churned_digest(churn, plan->verify ? 1 : 1 + plan->count / 65536, &result->digest);
}

static enum shoal_err churn_body(struct sh_subject *subject, enum sh_placement placement,
                                 struct sh_bench_result *result)
{
    (void)placement;
    const struct sh_store_plan *plan = subject->plan;
    struct churn churn = {.subject = subject, .stride = stride_of(plan->count)};
    churn.handles = malloc(plan->count * sizeof *churn.handles);
    churn.bytes = malloc((uint64_t)plan->sizes.most + 1);
    enum shoal_err err = SHOAL_ENOMEM;
    if (churn.handles && churn.bytes)
        err = churn_act(&churn, result);
    free(churn.bytes);
    free(churn.handles);
    return err;
}

/* Copies the plan's bytes to memory that is new, or was touched before. */
static enum shoal_err memory_copy(const struct sh_store_plan *plan, bool is_touched,
                                  struct sh_bench_result *result)
{
    uint64_t payload = sh_store_plan_payload(plan, 0);
    uint64_t piece = payload / plan->count * plan->load_batch + 1;
    piece = piece < SH_STORE_BATCH_BYTES ? piece : SH_STORE_BATCH_BYTES;
    uint8_t *from = malloc(piece);
    uint8_t *into =
        mmap(NULL, payload + 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!from || into == MAP_FAILED) {
        free(from);
        return SHOAL_ENOMEM;
    }
    /* Advice: where huge pages are off, there are none, for the store neither. */
    if (!plan->small_pages)
        (void)madvise(into, payload + 1, MADV_HUGEPAGE);
    memset(from, 0x5a, piece);
    if (is_touched)
        memset(into, 1, payload);
    struct mark begin = mark_take();
    for (uint64_t at = 0; at < payload; at += piece)
        memcpy(into + at, from, payload - at < piece ? payload - at : piece);
    time_note(&begin, plan->count, payload, result);
    result->digest = payload + into[payload / 2];
    munmap(into, payload + 1);
    free(from);
    return SHOAL_OK;
}

static enum shoal_err fresh_body(struct sh_subject *subject, enum sh_placement placement,
                                 struct sh_bench_result *result)
{
    (void)placement;
    return memory_copy(subject->plan, false, result);
}

static enum shoal_err touched_body(struct sh_subject *subject, enum sh_placement placement,
                                   struct sh_bench_result *result)
{
    (void)placement;
    return memory_copy(subject->plan, true, result);
}

enum shoal_err sh_store_load_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, load_body, result_out);
}

enum shoal_err sh_store_create_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, create_body, result_out);
}

enum shoal_err sh_store_recreate_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, recreate_body, result_out);
}

enum shoal_err sh_store_together_run(void *arg, const struct sh_bench_flags *flags,
                                     enum sh_placement placement,
                                     struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, together_body, result_out);
}

enum shoal_err sh_store_churn_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, churn_body, result_out);
}

enum shoal_err sh_store_memcpy_fresh_run(void *arg, const struct sh_bench_flags *flags,
                                         enum sh_placement placement,
                                         struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, fresh_body, result_out);
}

enum shoal_err sh_store_memcpy_touched_run(void *arg, const struct sh_bench_flags *flags,
                                           enum sh_placement placement,
                                           struct sh_bench_result *result_out)
{
    (void)flags;
    return run_apart(arg, placement, touched_body, result_out);
}
