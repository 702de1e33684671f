/* Threads that add to one number, each alone for as long as it needs: locks on a chunk.
 *
 *     shoal up 3         # prints the addresses; any of them will do
 *     cc -pthread counter.c $(pkg-config --cflags --libs shoal) -o counter
 *     ./counter HOST:PORT
 *
 * Getting the number and putting it back is not one operation: two threads that did both at once
 * would lose additions. Without an address it works on a store inside this process. */
#include <pthread.h>
#include <stdio.h>

#include <shoal/shoal.h>

#define THREADS 4
#define ADDITIONS 100
/* Much longer than an addition takes: who is slower than that has lost the lock. */
#define LEASE_NS UINT64_C(10000000000)

struct worker {
    pthread_t thread;
    shoal *store;
    shoal_cid cid;
    int status;
};

static int complain(const char *what, enum shoal_err err)
{
    fprintf(stderr, "counter: %s: %s (%s) %s\n", what, shoal_err_text(err), shoal_err_hint(err),
            shoal_error_detail());
    return 1;
}

static int add_one(struct worker *worker, shoal_owner self)
{
    uint64_t number;
    enum shoal_err err =
        shoal_lock(worker->store, worker->cid, self, SHOAL_LOCK_WRITE, LEASE_NS, UINT64_MAX);
    if (err != SHOAL_OK)
        return complain("lock", err);
    err = shoal_get(worker->store, worker->cid, &number, sizeof number, NULL);
    number++;
    if (err == SHOAL_OK)
        err = shoal_put(worker->store, worker->cid, &number, sizeof number);
    enum shoal_err unlocked = shoal_unlock(worker->store, worker->cid, self);
    if (err == SHOAL_OK)
        err = unlocked;
    return err == SHOAL_OK ? 0 : complain("add", err);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    shoal_owner self = shoal_owner_thread(); /* the handle is shared; the lock must not be */
    for (int i = 0; i < ADDITIONS && worker->status == 0; i++)
        worker->status = add_one(worker, self);
    return NULL;
}

static int run(shoal *store)
{
    struct worker workers[THREADS];
    uint64_t number;
    shoal_cid cid;
    int status = 0, started = 0;
    enum shoal_err err = shoal_create(store, SHOAL_NID_NONE, sizeof number, &cid);
    if (err != SHOAL_OK)
        return complain("create", err);
    for (; started < THREADS; started++) {
        workers[started] = (struct worker){.store = store, .cid = cid};
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0)
            break;
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        status |= workers[i].status;
    }
    err = shoal_get(store, cid, &number, sizeof number, NULL);
    if (err != SHOAL_OK)
        return complain("get", err);
    printf("%d threads have counted to %llu\n", started, (unsigned long long)number);
    return status != 0 || number != (uint64_t)started * ADDITIONS;
}

int main(int argc, char **argv)
{
    struct shoal_options options = {.addresses = argc > 1 ? argv[1] : NULL};
    shoal *store;
    enum shoal_err err = shoal_open(&options, &store);
    if (err != SHOAL_OK)
        return complain("open", err);
    int status = run(store);
    shoal_close(store);
    return status;
}
