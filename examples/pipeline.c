/* Asynchronous calls: keeps a window of gets in flight instead of waiting for each.
 *
 *     cc pipeline.c $(pkg-config --cflags --libs shoal) -o pipeline && ./pipeline [HOST:PORT]
 *
 * A slot is a call with its buffer. All slots start a get; whenever one is done, its completion
 * checks the bytes and starts the next get from the same slot, so that WINDOW of them are always
 * on their way. The main thread lends itself to the library with shoal_poll until all are done. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include <shoal/shoal.h>

#define CHUNKS 1024
#define GETS 20000
#define WINDOW 64

struct pipeline {
    shoal *store;
    shoal_cid cids[CHUNKS];
    atomic_int started;  /* gets begun; the number is taken before each */
    atomic_int finished; /* gets done, right or wrong */
    atomic_int wrong;    /* gets that failed or returned other bytes than were put */
};

struct slot {
    struct shoal_call call;
    struct pipeline *pipeline;
    uint64_t value; /* what the get writes */
    int number;     /* which get this is */
};

static void begin_next(struct slot *slot);

/* Called by the library once per get: short, and starting the next call is allowed. */
static void get_done(struct shoal_call *call)
{
    struct slot *slot = call->arg;
    struct pipeline *pipeline = slot->pipeline;

    if (call->err != SHOAL_OK || slot->value != (uint64_t)(slot->number % CHUNKS)) {
        atomic_fetch_add(&pipeline->wrong, 1);
    }
    begin_next(slot);
    /* Last: once all are counted, main closes the store. */
    atomic_fetch_add(&pipeline->finished, 1);
}

/* Starts the slot's next get. One that can't begin counts as done and wrong, and the next is tried,
 * so that the count always comes to its end. */
static void begin_next(struct slot *slot)
{
    struct pipeline *pipeline = slot->pipeline;
    enum shoal_err err;

    do {
        slot->number = atomic_fetch_add(&pipeline->started, 1);
        if (slot->number >= GETS) {
            return;
        }
        slot->call = (struct shoal_call){.done = get_done, .arg = slot};
        err = shoal_get_async(pipeline->store, pipeline->cids[slot->number % CHUNKS], &slot->value,
                              sizeof slot->value, &slot->call);
        if (err != SHOAL_OK) {
            atomic_fetch_add(&pipeline->wrong, 1);
            atomic_fetch_add(&pipeline->finished, 1);
        }
    } while (err != SHOAL_OK);
}

static int complain(const char *what, enum shoal_err err)
{
    fprintf(stderr, "pipeline: %s: %s (%s) %s\n", what, shoal_err_text(err), shoal_err_hint(err),
            shoal_error_detail());
    return 1;
}

/* Chunk i holds the number i. Puts are asynchronous too, here without completion functions: begin
 * a window of them, then wait for each. */
static enum shoal_err fill(struct pipeline *pipeline)
{
    static struct shoal_call calls[WINDOW];
    static uint64_t values[WINDOW];
    enum shoal_err first = SHOAL_OK;

    for (int from = 0; from < CHUNKS && first == SHOAL_OK; from += WINDOW) {
        int begun = 0;
        for (; begun < WINDOW && first == SHOAL_OK; begun++) {
            values[begun] = (uint64_t)(from + begun);
            calls[begun] = (struct shoal_call){.done = NULL};
            first = shoal_put_async(pipeline->store, pipeline->cids[from + begun], &values[begun],
                                    sizeof values[begun], &calls[begun]);
            if (first != SHOAL_OK) {
                break;
            }
        }
        for (int i = 0; i < begun; i++) {
            enum shoal_err err = shoal_wait(pipeline->store, &calls[i]);
            if (first == SHOAL_OK) {
                first = err;
            }
        }
    }
    return first;
}

static int get_all(struct pipeline *pipeline)
{
    static struct slot slots[WINDOW];

    for (int i = 0; i < WINDOW; i++) {
        slots[i].pipeline = pipeline;
        begin_next(&slots[i]);
    }
    while (atomic_load(&pipeline->finished) < GETS) {
        shoal_poll(pipeline->store);
    }
    printf("%d gets, %d in flight at a time, %d wrong\n", GETS, WINDOW,
           atomic_load(&pipeline->wrong));
    return atomic_load(&pipeline->wrong) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
    static struct pipeline pipeline;
    struct shoal_options options = {.addresses = argc > 1 ? argv[1] : NULL};

    enum shoal_err err = shoal_open(&options, &pipeline.store);
    if (err != SHOAL_OK) {
        return complain("open", err);
    }
    err =
        shoal_create_many(pipeline.store, SHOAL_NID_NONE, sizeof(uint64_t), CHUNKS, pipeline.cids);
    if (err == SHOAL_OK) {
        err = fill(&pipeline);
    }
    int status = err == SHOAL_OK ? get_all(&pipeline) : complain("create or put", err);
    shoal_close(pipeline.store);
    return status;
}
