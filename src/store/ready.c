/* The thread that makes huge pages ready ahead of use. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "store/slots_int.h"
#include "store/store_int.h"

struct sh_ready {
    struct sh_alloc *alloc;
    pthread_t thread;
    sem_t wanted;
    _Atomic bool is_wanted, is_over;
};

/* Called by takers, with the lock held. */
static void wanted(void *arg)
{
    struct sh_ready *ready = arg;
    /* relaxed: the semaphore orders */
    if (!atomic_exchange_explicit(&ready->is_wanted, true, memory_order_relaxed))
        sem_post(&ready->wanted);
}

static void *ready_main(void *arg)
{
    struct sh_ready *ready = arg;
    for (;;) {
        while (sem_wait(&ready->wanted) && errno == EINTR) {
        }
        if (atomic_load_explicit(&ready->is_over, memory_order_relaxed))
            return NULL;
        atomic_store_explicit(&ready->is_wanted, false, memory_order_relaxed);
        sh_lock_take(&ready->alloc->lock);
        while (sh_slots_ready(ready->alloc)) {
        }
        sh_lock_release(&ready->alloc->lock);
    }
}

enum shoal_err sh_ready_open(struct sh_alloc *alloc, struct sh_ready **ready_out)
{
    struct sh_ready *ready = calloc(1, sizeof *ready);
    if (!ready)
        return SHOAL_ENOMEM;
    ready->alloc = alloc;
    int failed = sem_init(&ready->wanted, 0, 0);
    SH_ASSERT(!failed);
    failed = sh_thread_start(&ready->thread, ready_main, ready, "store-pages");
    if (failed) {
        SH_ERROR("store", "no thread for the store's pages", SH_I64("errno", failed));
        sem_destroy(&ready->wanted);
        free(ready);
        return SHOAL_ENOMEM;
    }
    alloc->pages_wanted = wanted;
    alloc->pages_arg = ready;
    *ready_out = ready;
    return SHOAL_OK;
}

void sh_ready_close(struct sh_ready *ready)
{
    if (!ready)
        return;
    ready->alloc->pages_wanted = NULL;
    atomic_store_explicit(&ready->is_over, true, memory_order_relaxed);
    sem_post(&ready->wanted);
    pthread_join(ready->thread, NULL);
    sem_destroy(&ready->wanted);
    free(ready);
}
