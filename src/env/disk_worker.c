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

/* The jobs are a ring, in the order of their adding: the owner has taken those below `taken`, the
 * thread has done those below `done`. */
struct sh_disk_worker {
    void (*run)(void *run_arg, struct sh_disk_op *op);
    void *run_arg;
    pthread_t thread;
    struct sh_lock lock; /* guards all below */
    pthread_cond_t added_some, done_some, woken;
    struct job jobs[JOBS_MAX];
    uint64_t added, done, taken;
    unsigned closing; /* jobs that close files, not taken yet */
    bool is_ending;
    void (*wake)(void *arg);
    void *wake_arg;
    bool is_waking; /* the thread is calling it */
};

/* Does the next job, without the lock. */
static void job_do(struct sh_disk_worker *worker)
{
    struct job job = worker->jobs[worker->done % JOBS_MAX];
    sh_lock_release(&worker->lock);
    if (job.op)
        worker->run(worker->run_arg, job.op);
    else
        (void)close(job.file);
    sh_lock_take(&worker->lock);
    worker->done++;
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
    while (worker->done < worker->added || !worker->is_ending) {
        if (worker->done == worker->added) {
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

static void job_add(struct sh_disk_worker *worker, struct job job)
{
    sh_lock_assert_held(&worker->lock);
    SH_ASSERT(worker->added - worker->taken < JOBS_MAX);
    worker->jobs[worker->added++ % JOBS_MAX] = job;
    pthread_cond_signal(&worker->added_some);
}

void sh_disk_worker_add(struct sh_disk_worker *worker, struct sh_disk_op *op)
{
    sh_lock_take(&worker->lock);
    SH_ASSERT(op && worker->added - worker->taken - worker->closing < SH_REAL_DISK_OPS_MAX);
    job_add(worker, (struct job){.op = op});
    sh_lock_release(&worker->lock);
}

bool sh_disk_worker_close_file(struct sh_disk_worker *worker, int file)
{
    sh_lock_take(&worker->lock);
    bool has_room = worker->closing < CLOSES_MAX;
    if (has_room) {
        worker->closing++;
        job_add(worker, (struct job){.file = file});
    }
    sh_lock_release(&worker->lock);
    return has_room;
}

struct sh_disk_op *sh_disk_worker_take(struct sh_disk_worker *worker, bool wait)
{
    struct sh_disk_op *op = NULL;
    sh_lock_take(&worker->lock);
    while (!op && worker->taken < worker->added) {
        if (worker->taken < worker->done) {
            op = worker->jobs[worker->taken++ % JOBS_MAX].op;
            worker->closing -= op ? 0 : 1;
            continue;
        }
        if (!wait || worker->added - worker->taken == worker->closing)
            break;
        pthread_cond_wait(&worker->done_some, &worker->lock.mutex);
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
