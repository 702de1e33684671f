/* The worker of a real disk without io_uring. */
#include "env/disk_worker_int.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/thread.h"
#include "env/disk_int.h"

#define CLOSES_MAX 16
#define JOBS_MAX (SH_REAL_DISK_OPS_MAX + CLOSES_MAX)

/* An operation, or a file to close (op is NULL). */
struct job {
    struct sh_disk_op *op;
    int file;
};

/* A ring of jobs in the order of their adding. */
struct jobs {
    struct job ring[JOBS_MAX];
    unsigned first, count;
};

struct sh_disk_worker {
    void (*run)(void *run_arg, struct sh_disk_op *op);
    void *run_arg;
    pthread_t thread;
    struct sh_lock lock; /* guards all below */
    pthread_cond_t added_some, done_some, woken;
    struct jobs urgent, bulk, done; /* done: operations that the owner has not taken */
    unsigned under_way;             /* operations that the owner has not taken */
    unsigned closing;               /* jobs that close files */
    unsigned turn;                  /* urgent jobs done since a bulk one, while one waited */
    bool is_ending;
    void (*wake)(void *arg);
    void *wake_arg;
    bool is_waking; /* the thread is calling it */
};

static void jobs_put(struct jobs *jobs, struct job job)
{
    SH_ASSERT(jobs->count < JOBS_MAX);
    jobs->ring[(jobs->first + jobs->count++) % JOBS_MAX] = job;
}

static struct job jobs_take(struct jobs *jobs)
{
    SH_ASSERT(jobs->count > 0);
    struct job job = jobs->ring[jobs->first];
    jobs->first = (jobs->first + 1) % JOBS_MAX;
    jobs->count--;
    return job;
}

/* The job that is next. */
static struct job job_choose(struct sh_disk_worker *worker)
{
    bool is_bulk =
        worker->bulk.count && (!worker->urgent.count || worker->turn >= SH_DISK_WORKER_TURN);
    worker->turn = is_bulk || !worker->bulk.count ? 0 : worker->turn + 1;
    return jobs_take(is_bulk ? &worker->bulk : &worker->urgent);
}

/* Does the next job, without the lock. */
static void job_do(struct sh_disk_worker *worker)
{
    struct job job = job_choose(worker);
    sh_lock_release(&worker->lock);
    if (job.op)
        worker->run(worker->run_arg, job.op);
    else
        (void)close(job.file);
    sh_lock_take(&worker->lock);
    if (job.op)
        jobs_put(&worker->done, job);
    else
        worker->closing--;
    pthread_cond_signal(&worker->done_some);
}

static void wake_call(struct sh_disk_worker *worker)
{
    void (*wake)(void *arg) = worker->wake;
    void *arg = worker->wake_arg;
    if (!wake)
        return;
    worker->is_waking = true;
    sh_lock_release(&worker->lock);
    wake(arg);
    sh_lock_take(&worker->lock);
    worker->is_waking = false;
    pthread_cond_broadcast(&worker->woken);
}

static void *worker_main(void *arg)
{
    struct sh_disk_worker *worker = arg;
    sh_lock_take(&worker->lock);
    for (;;) {
        if (!worker->urgent.count && !worker->bulk.count) {
            if (worker->is_ending)
                break;
            pthread_cond_wait(&worker->added_some, &worker->lock.mutex);
            continue;
        }
        job_do(worker);
        wake_call(worker);
    }
    sh_lock_release(&worker->lock);
    return NULL;
}

static void worker_free(struct sh_disk_worker *worker)
{
    pthread_cond_destroy(&worker->added_some);
    pthread_cond_destroy(&worker->done_some);
    pthread_cond_destroy(&worker->woken);
    sh_lock_destroy(&worker->lock);
    free(worker);
}

enum shoal_err sh_disk_worker_create(void (*run)(void *run_arg, struct sh_disk_op *op),
                                     void *run_arg, struct sh_disk_worker **worker_out)
{
    struct sh_disk_worker *worker = calloc(1, sizeof *worker);
    if (!worker)
        return SHOAL_ENOMEM;
    worker->run = run;
    worker->run_arg = run_arg;
    sh_lock_init(&worker->lock, SH_LOCK_DISK);
    pthread_cond_init(&worker->added_some, NULL);
    pthread_cond_init(&worker->done_some, NULL);
    pthread_cond_init(&worker->woken, NULL);
    if (sh_thread_start(&worker->thread, worker_main, worker, "disk")) {
        worker_free(worker);
        return SHOAL_ENOMEM;
    }
    *worker_out = worker;
    return SHOAL_OK;
}

void sh_disk_worker_destroy(struct sh_disk_worker *worker)
{
    if (!worker)
        return;
    sh_lock_take(&worker->lock);
    worker->is_ending = true;
    worker->wake = NULL;
    pthread_cond_signal(&worker->added_some);
    sh_lock_release(&worker->lock);
    pthread_join(worker->thread, NULL);
    worker_free(worker);
}

void sh_disk_worker_add(struct sh_disk_worker *worker, struct sh_disk_op *op)
{
    sh_lock_take(&worker->lock);
    SH_ASSERT(op && worker->under_way < SH_REAL_DISK_OPS_MAX);
    worker->under_way++;
    jobs_put(op->is_bulk ? &worker->bulk : &worker->urgent, (struct job){.op = op});
    pthread_cond_signal(&worker->added_some);
    sh_lock_release(&worker->lock);
}

bool sh_disk_worker_close_file(struct sh_disk_worker *worker, int file)
{
    sh_lock_take(&worker->lock);
    bool has_room = worker->closing < CLOSES_MAX;
    if (has_room) {
        worker->closing++;
        jobs_put(&worker->bulk, (struct job){.file = file});
        pthread_cond_signal(&worker->added_some);
    }
    sh_lock_release(&worker->lock);
    return has_room;
}

struct sh_disk_op *sh_disk_worker_take(struct sh_disk_worker *worker, bool wait)
{
    struct sh_disk_op *op = NULL;
    sh_lock_take(&worker->lock);
    while (wait && worker->under_way && !worker->done.count)
        pthread_cond_wait(&worker->done_some, &worker->lock.mutex);
    if (worker->done.count) {
        op = jobs_take(&worker->done).op;
        worker->under_way--;
    }
    sh_lock_release(&worker->lock);
    return op;
}

void sh_disk_worker_wake_set(struct sh_disk_worker *worker, void (*wake)(void *arg), void *arg)
{
    sh_lock_take(&worker->lock);
    worker->wake = wake;
    worker->wake_arg = arg;
    while (worker->is_waking)
        pthread_cond_wait(&worker->woken, &worker->lock.mutex);
    sh_lock_release(&worker->lock);
}
