/* A work queue: a dispatcher hands out numbers, workers say whether they are prime; the dispatcher
 * prints its statistics while they work.
 *
 *     cc workqueue.c $(pkg-config --cflags --libs shoalmsg) -o workqueue && ./workqueue
 *
 * A worker asks for work with a request (TAKE) and sends what it found as a message (DONE), without
 * waiting for anybody. Both go over one connection in order, so a worker's result is there before
 * its next TAKE: the dispatcher needs no other book-keeping. */
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <pthread.h>

#include <shoalmsg/call.h>
#include <shoalmsg/crew.h>
#include <shoalmsg/msg.h>
#include <shoalmsg/tcp.h>

#define TAKE SH_MSG_TYPE(1, 1) /* empty; answer: u64 number, 0 when there are no more */
#define DONE SH_MSG_TYPE(1, 2) /* u64 number, u8 1 if it is prime */
#define JOBS UINT64_C(20000)
#define PRIMES_UP_TO_JOBS 2262
#define WORKERS 2

struct end {
    struct sh_clock clock;
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_crew *crew;
};

struct dispatcher {
    struct end end;
    atomic_uint_fast64_t given; /* the last number that was handed out */
    atomic_uint_fast64_t done, primes;
};

struct worker {
    struct end end;
    pthread_t thread;
    enum shoal_err err;
};

static const shoal_nid dispatcher_nid = {1};

/* --- The dispatcher's handlers: pooled, so they may run in several threads at once ---------- */

static void on_take(void *arg, struct sh_msg_in *in)
{
    struct dispatcher *dispatcher = arg;
    struct sh_out out;
    uint64_t number = atomic_fetch_add(&dispatcher->given, 1) + 1;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out) == SHOAL_OK) {
        sh_put64(&out.w, number <= JOBS ? number : 0);
        sh_msg_end(in->msg, &out);
    }
}

static void on_done(void *arg, struct sh_msg_in *in)
{
    struct dispatcher *dispatcher = arg;
    (void)sh_get64(&in->payload);
    uint8_t is_prime = sh_get8(&in->payload);
    if (sh_reader_done(&in->payload)) { /* else it was malformed: not one of our workers */
        atomic_fetch_add(&dispatcher->primes, is_prime);
        atomic_fetch_add(&dispatcher->done, 1);
    }
}

/* --- A worker ------------------------------------------------------------------------------- */

static uint8_t is_prime(uint64_t number)
{
    for (uint64_t by = 2; by * by <= number; by++) {
        if (number % by == 0) {
            return 0;
        }
    }
    return number > 1;
}

static enum shoal_err take(const struct sh_caller *caller, uint64_t *number_out)
{
    uint8_t *answer = NULL;
    size_t size = 0;
    enum shoal_err err =
        sh_call(caller, dispatcher_nid, TAKE, sh_bytes_make("", 0), 0, &answer, &size, NULL);
    if (err == SHOAL_OK) {
        struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
        *number_out = sh_get64(&r);
        err = sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
    }
    free(answer);
    return err;
}

/* Sends without waiting for an answer; a full ring is waited for. */
static enum shoal_err report(const struct sh_caller *caller, uint64_t number, uint8_t prime)
{
    struct sh_out out;
    enum shoal_err err;
    while ((err = sh_msg_begin(caller->msg, dispatcher_nid, DONE, 9, &out)) == SHOAL_EAGAIN) {
        uint64_t deadline_ns = sh_now(caller->clock) + 5000000000;
        err = sh_call_wait_room(caller, dispatcher_nid, 9, deadline_ns);
        if (err != SHOAL_OK) {
            return err;
        }
    }
    if (err == SHOAL_OK) {
        sh_put64(&out.w, number);
        sh_put8(&out.w, prime);
        sh_msg_end(caller->msg, &out);
    }
    return err;
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct sh_caller caller = {
        .msg = worker->end.msg, .crew = worker->end.crew, .clock = &worker->end.clock};
    uint64_t number = 0;
    do {
        worker->err = take(&caller, &number);
        if (worker->err == SHOAL_OK && number != 0) {
            worker->err = report(&caller, number, is_prime(number));
        }
    } while (worker->err == SHOAL_OK && number != 0);
    return NULL;
}

/* --- Ends ----------------------------------------------------------------------------------- */

static void wake(void *arg)
{
    struct end *end = arg;
    sh_crew_wake(end->crew, 0);
}

static enum shoal_err end_open(struct end *end, uint16_t number)
{
    end->clock = sh_real_clock();
    struct sh_crew_config crew = {
        .name = number == dispatcher_nid.v ? "dispatcher" : "worker",
        .threads = 1,
        .lends = true,
        .idle = {.spin_ns = 10000, .park_ns = 20000, .silence_ns = 1000000000},
        .now_ns = end->clock.now_ns,
        .now_arg = end->clock.arg,
    };
    enum shoal_err err = sh_crew_create(&crew, &end->crew);
    if (err == SHOAL_OK) {
        err = sh_tcp_create(64, &end->wire);
    }
    if (err != SHOAL_OK) {
        return err;
    }
    struct sh_msg_config config = {
        .nid = {number},
        .cluster = "workqueue",
        .secret = sh_bytes_text("both sides must know this"),
        .connections_max = 16,
        .requests_max = 1024,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = 5000000000,
        .connect_timeout_ns = 3000000000,
        .env = {.clock = end->clock, .random = sh_real_random(), .wire = end->wire},
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = end,
    };
    err = sh_msg_create(&config, &end->msg);
    if (err != SHOAL_OK) {
        return err;
    }
    sh_crew_parker_set(end->crew, 0, sh_msg_parker(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_transport_step(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_handler_step(end->msg));
    return SHOAL_OK;
}

static void end_close(struct end *end)
{
    if (end->crew) {
        sh_crew_stop(end->crew);
    }
    if (end->msg) {
        sh_msg_destroy(end->msg);
    }
    if (end->wire) {
        end->wire->ops->destroy(end->wire);
    }
    sh_crew_destroy(end->crew);
}

/* --- All together --------------------------------------------------------------------------- */

/* Of all connections, and of each worker's; both may be asked for at any time. */
static void print_stats(const struct sh_msg *msg)
{
    struct sh_msg_stats all;
    sh_msg_stats_get(msg, &all);
    printf("in: %" PRIu64 " messages, %" PRIu64 " bytes; out: %" PRIu64 " messages, %" PRIu64
           " bytes\n",
           all.messages_in, all.bytes_in, all.messages_out, all.bytes_out);
    for (uint16_t i = 0; i < WORKERS; i++) {
        struct sh_msg_conn_stats one;
        if (sh_msg_conn_stats_get(msg, (shoal_nid){(uint16_t)(10 + i)}, &one)) {
            printf("  worker %u: in: %" PRIu64 " messages; out: %" PRIu64
                   " messages, %.1f sent at once\n",
                   i, one.messages_in, one.messages_out,
                   one.blocks_out ? (double)one.messages_out / (double)one.blocks_out : 0.0);
        }
    }
}

/* Waits until a count is reached, running the dispatcher's steps meanwhile, and prints. */
static enum shoal_err wait_done(struct dispatcher *dispatcher, uint64_t count)
{
    struct end *end = &dispatcher->end;
    uint64_t deadline_ns = sh_now(&end->clock) + 30000000000;
    while (atomic_load(&dispatcher->done) < count) {
        struct sh_waiter pause = {0}; /* nobody completes it: it is a pause */
        if (sh_now(&end->clock) >= deadline_ns) {
            return SHOAL_ETIMEOUT;
        }
        (void)sh_crew_wait(end->crew, 0, &pause, sh_now(&end->clock) + 1000000);
    }
    print_stats(end->msg);
    return SHOAL_OK;
}

static enum shoal_err run(struct dispatcher *dispatcher, struct worker *workers)
{
    char address[SH_MSG_ADDRESS_MAX];
    int started = 0;

    enum shoal_err err = end_open(&dispatcher->end, dispatcher_nid.v);
    if (err == SHOAL_OK) {
        sh_msg_handler_set(dispatcher->end.msg, TAKE, SH_MSG_POOLED, on_take, dispatcher);
        sh_msg_handler_set(dispatcher->end.msg, DONE, SH_MSG_POOLED, on_done, dispatcher);
        err = sh_msg_listen(dispatcher->end.msg, "127.0.0.1:0", address);
    }
    if (err == SHOAL_OK) {
        err = sh_crew_start(dispatcher->end.crew);
    }
    for (int i = 0; i < WORKERS && err == SHOAL_OK; i++) {
        struct worker *worker = &workers[i];
        err = end_open(&worker->end, (uint16_t)(10 + i));
        if (err == SHOAL_OK) {
            err = sh_msg_node_set(worker->end.msg, dispatcher_nid, address);
        }
        if (err == SHOAL_OK) {
            err = sh_crew_start(worker->end.crew);
        }
        if (err == SHOAL_OK && pthread_create(&worker->thread, NULL, work, worker) != 0) {
            err = SHOAL_ENOMEM;
        }
        started += err == SHOAL_OK;
    }
    if (err == SHOAL_OK) {
        err = wait_done(dispatcher, JOBS / 2);
    }
    if (err == SHOAL_OK) {
        err = wait_done(dispatcher, JOBS);
    }
    for (int i = 0; i < started; i++) {
        pthread_join(workers[i].thread, NULL);
        if (err == SHOAL_OK) {
            err = workers[i].err;
        }
    }
    return err;
}

int main(void)
{
    static struct dispatcher dispatcher;
    static struct worker workers[WORKERS];

    enum shoal_err err = run(&dispatcher, workers);
    for (int i = 0; i < WORKERS; i++) {
        end_close(&workers[i].end);
    }
    end_close(&dispatcher.end);
    if (err != SHOAL_OK) {
        fprintf(stderr, "workqueue: %s (%s)\n", shoal_err_text(err), shoal_err_hint(err));
        return 1;
    }
    uint64_t primes = atomic_load(&dispatcher.primes);
    printf("%" PRIu64 " of %" PRIu64 " numbers are prime\n", primes, JOBS);
    return primes == PRIMES_UP_TO_JOBS ? 0 : 1;
}
