#include "bench/names.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "shoal/names.h"

#define PREFIX "name/"
#define WINDOW_NS UINT64_C(20000000)
#define DIGEST_DRAWS 256

void sh_bench_name(uint64_t index, char into[SH_BENCH_NAME_BYTES])
{
    snprintf(into, SH_BENCH_NAME_BYTES, PREFIX "%08llu", (unsigned long long)(index % 100000000));
}

static shoal_cid cid_of(uint64_t index)
{
    return (shoal_cid){sh_mix64(index) | 1};
}

struct run;

/* One update under way. */
struct update {
    struct shoal_call call;
    struct run *run;
    uint64_t index, begun_ns;
    char name[SH_BENCH_NAME_BYTES];
};

struct run {
    shoal *store;
    const struct sh_bench_names *names;
    struct sh_bench_result *result;
    uint64_t deadline_ns;
    pthread_mutex_t lock; /* guards all below: completions come from the library's threads */
    pthread_cond_t over;
    uint64_t next;
    unsigned under_way;
    enum shoal_err err;
    struct sh_hist window; /* of updates that ended since names->counts was asked last */
    struct update updates[SH_BENCH_NAMES_OUTSTANDING_MAX];
};

/* Gives the next name's index within `count`; false: that was all. With the lock. */
static bool next_draw(struct run *run, uint64_t *index_out)
{
    const struct sh_bench_names *names = run->names;
    bool is_time = run->deadline_ns && sh_bench_now_ns() >= run->deadline_ns;
    if (run->err || is_time || (!names->is_drawn && run->next == names->count))
        return false;
    uint64_t at = run->next++;
    *index_out = names->is_drawn ? sh_mix64(names->seed << 40 | at) % names->count : at;
    if (at < DIGEST_DRAWS) /* so that a longer run has the same one */
        run->result->digest ^= sh_mix64(*index_out + at);
    return true;
}

/* An update is over. With the lock. */
static void update_count(struct run *run, const struct update *update, enum shoal_err err)
{
    if (err) {
        run->err = err;
        return;
    }
    sh_hist_add(run->names->counts ? &run->window : &run->result->latency_ns,
                sh_bench_now_ns() - update->begun_ns);
    if (++run->result->ops == run->names->hook_at && run->names->hook)
        run->names->hook(run->names->hook_arg);
    if (run->names->acknowledged)
        run->names->acknowledged[update->index] = 1;
}

static void update_prepare(struct update *update)
{
    sh_bench_name(update->run->names->first + update->index, update->name);
    update->begun_ns = sh_bench_now_ns();
}

/* Begins the next update in this place, if there is one more. */
static void update_begin(struct update *update)
{
    struct run *run = update->run;
    enum shoal_err err = SHOAL_OK;
    pthread_mutex_lock(&run->lock);
    bool is_there = next_draw(run, &update->index);
    if (!is_there && --run->under_way == 0)
        pthread_cond_signal(&run->over);
    pthread_mutex_unlock(&run->lock);
    if (!is_there)
        return;
    update_prepare(update);
    err = shoal_name_set_async(run->store, update->name, cid_of(run->names->first + update->index),
                               SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, &update->call);
    if (!err)
        return;
    pthread_mutex_lock(&run->lock);
    update_count(run, update, err);
    if (--run->under_way == 0)
        pthread_cond_signal(&run->over);
    pthread_mutex_unlock(&run->lock);
}

static void on_done(struct shoal_call *call)
{
    struct update *update = call->arg;
    pthread_mutex_lock(&update->run->lock);
    update_count(update->run, update, call->err);
    pthread_mutex_unlock(&update->run->lock);
    update_begin(update);
}

/* Waits for the end of the run, or of the window. With the lock. */
static void wait_some(struct run *run)
{
    struct timespec until;
    if (!run->names->counts) {
        pthread_cond_wait(&run->over, &run->lock);
        return;
    }
    uint64_t until_ns = sh_bench_now_ns() + WINDOW_NS;
    until.tv_sec = (time_t)(until_ns / UINT64_C(1000000000));
    until.tv_nsec = (long)(until_ns % UINT64_C(1000000000));
    (void)pthread_cond_timedwait(&run->over, &run->lock, &until);
}

/* The window is over: keeps its times if they count. With the lock, which it gives up meanwhile. */
static void window_end(struct run *run)
{
    if (!run->names->counts)
        return;
    pthread_mutex_unlock(&run->lock);
    bool is_kept = run->names->counts(run->names->counts_arg);
    pthread_mutex_lock(&run->lock);
    if (is_kept)
        sh_hist_merge(&run->result->latency_ns, &run->window);
    sh_hist_reset(&run->window);
}

static void several_run(struct run *run)
{
    unsigned count = run->names->outstanding;
    run->under_way = count;
    for (unsigned i = 0; i < count; i++) {
        struct update *update = &run->updates[i];
        update->run = run;
        update->call.done = on_done;
        update->call.arg = update;
        update_begin(update);
    }
    pthread_mutex_lock(&run->lock);
    while (run->under_way) {
        wait_some(run);
        window_end(run);
    }
    pthread_mutex_unlock(&run->lock);
}

static void one_run(struct run *run)
{
    struct update *update = &run->updates[0];
    update->run = run;
    while (next_draw(run, &update->index)) {
        update_prepare(update);
        update_count(run, update,
                     shoal_name_set(run->store, update->name,
                                    cid_of(run->names->first + update->index), SHOAL_NAME_ALWAYS,
                                    SHOAL_CID_NONE, NULL));
    }
}

enum shoal_err sh_bench_names_set(shoal *store, const struct sh_bench_names *names,
                                  struct sh_bench_result *result_out)
{
    SH_ASSERT(names->outstanding && names->outstanding <= SH_BENCH_NAMES_OUTSTANDING_MAX);
    SH_ASSERT(names->count && (names->seconds > 0 || !names->is_drawn));
    struct run *run = calloc(1, sizeof *run);
    if (!run)
        return SHOAL_ENOMEM;
    uint64_t begun_ns = sh_bench_now_ns();
    run->store = store;
    run->names = names;
    run->result = result_out;
    run->deadline_ns = names->seconds > 0 ? begun_ns + (uint64_t)(names->seconds * 1e9) : 0;
    pthread_condattr_t monotonic;
    (void)pthread_condattr_init(&monotonic);
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&run->lock, NULL);
    pthread_cond_init(&run->over, &monotonic);
    (void)pthread_condattr_destroy(&monotonic);
    if (names->outstanding == 1 && !names->counts)
        one_run(run);
    else
        several_run(run);
    result_out->seconds += (double)(sh_bench_now_ns() - begun_ns) / 1e9;
    enum shoal_err err = names->may_end ? SHOAL_OK : run->err;
    if (err)
        SH_ERROR("bench", "a name was not set", SH_ERR(err),
                 SH_TEXT("detail", shoal_error_detail()));
    pthread_cond_destroy(&run->over);
    pthread_mutex_destroy(&run->lock);
    free(run);
    return err;
}

struct check {
    uint8_t *seen;
    uint64_t count;
    uint64_t wrong;
};

static bool on_name(void *arg, const char *name, shoal_cid cid)
{
    struct check *check = arg;
    char *end;
    uint64_t index = strtoull(name + strlen(PREFIX), &end, 10);
    if (*end || index >= check->count || cid.v != cid_of(index).v)
        check->wrong++;
    else
        check->seen[index] = 1;
    return true;
}

enum shoal_err sh_bench_names_check(shoal *store, uint64_t count, const uint8_t *acknowledged,
                                    uint64_t acknowledged_count)
{
    struct check check = {.count = count + acknowledged_count};
    uint64_t missing = 0;
    check.seen = calloc(check.count, 1);
    if (!check.seen)
        return SHOAL_ENOMEM;
    enum shoal_err err = shoal_name_list(store, PREFIX, on_name, &check);
    for (uint64_t i = 0; i < check.count; i++)
        missing += !check.seen[i] && (i < count || acknowledged[i - count]);
    free(check.seen);
    if (!err && (missing || check.wrong)) {
        SH_ERROR("bench", "names are lost", SH_U64("missing", missing),
                 SH_U64("wrong", check.wrong));
        err = SHOAL_EDIFFERS;
    }
    return err;
}
