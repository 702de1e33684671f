#include "bench/msg_base.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/msg_bench_int.h"

#define COUNTED_TIMEOUT_NS UINT64_C(30000000000)
#define QUEUE_BYTES (UINT64_C(64) << 20)
#define NS_PER_S 1e9

struct run {
    const struct sh_msg_base_ops *ops;
    const struct sh_bench_flags *shape;
    enum sh_placement placement;
    struct sh_msg_base_server what;
    struct sh_msg_board *board;
    struct sh_child *servers;
    struct sender *senders;
    void *client;
    uint8_t *payload;
};

/* One application thread. */
struct sender {
    const struct run *run;
    void **sockets;   /* one for each server */
    uint64_t *stamps; /* when each message in flight was sent; a ring */
    uint64_t share;   /* messages to send; UINT64_MAX: until the deadline */
    uint64_t issued;
    uint64_t done;
    uint64_t begin_ns, deadline_ns, end_ns;
    enum shoal_err err;
    struct sh_hist latency_ns;
};

int sh_msg_base_queue(size_t size)
{
    uint64_t messages = QUEUE_BYTES / size;
    return messages < 16 ? 16 : messages > 100000 ? 100000 : (int)messages;
}

static bool goes_on(const struct sender *sender, uint64_t now_ns)
{
    return sender->issued < sender->share && now_ns < sender->deadline_ns;
}

/* Message number n goes to server n % connections, so the oldest in flight is that number's. */
static enum shoal_err issue(struct sender *sender, uint64_t now_ns)
{
    const struct run *run = sender->run;
    uint64_t window = (uint64_t)run->shape->outstanding * run->shape->connections;
    sender->stamps[sender->issued % window] = now_ns;
    enum shoal_err err = run->ops->send(sender->sockets[sender->issued % run->shape->connections],
                                        run->payload, run->shape->size);
    sender->issued += !err;
    return err;
}

static enum shoal_err request_drive(struct sender *sender)
{
    const struct run *run = sender->run;
    uint64_t window = (uint64_t)run->shape->outstanding * run->shape->connections;
    uint64_t now_ns = sender->begin_ns;
    enum shoal_err err = SHOAL_OK;
    while (!err && sender->issued < window && goes_on(sender, now_ns))
        err = issue(sender, sh_bench_now_ns());
    while (!err && sender->done < sender->issued) {
        err = run->ops->receive(sender->sockets[sender->done % run->shape->connections],
                                run->shape->size);
        if (err)
            break;
        now_ns = sh_bench_now_ns();
        sh_hist_add(&sender->latency_ns, now_ns - sender->stamps[sender->done % window]);
        sender->done++;
        if (goes_on(sender, now_ns))
            err = issue(sender, now_ns);
    }
    return err;
}

static enum shoal_err oneway_drive(struct sender *sender)
{
    const struct run *run = sender->run;
    uint64_t now_ns = sender->begin_ns;
    enum shoal_err err = SHOAL_OK;
    while (!err && goes_on(sender, now_ns)) {
        err = run->ops->send(sender->sockets[sender->issued % run->shape->connections],
                             run->payload, run->shape->size);
        sender->issued += !err;
        if (sender->issued % SH_MSG_BENCH_CLOCK_EVERY == 0 || run->shape->size > 4096)
            now_ns = sh_bench_now_ns();
    }
    sender->done = sender->issued;
    return err;
}

static void *sender_thread(void *arg)
{
    struct sender *sender = arg;
    const struct sh_bench_flags *shape = sender->run->shape;
    sh_bench_pin(sender->run->placement, 0);
    sender->begin_ns = sh_bench_now_ns();
    sender->deadline_ns = UINT64_MAX;
    if (sender->share == UINT64_MAX)
        sender->deadline_ns = sender->begin_ns + (uint64_t)(shape->seconds * NS_PER_S);
    sender->err = sender->run->what.echoes ? request_drive(sender) : oneway_drive(sender);
    sender->end_ns = sh_bench_now_ns();
    return NULL;
}

static enum shoal_err senders_run(struct sender *senders, unsigned threads)
{
    pthread_t ids[SH_MSG_BENCH_THREADS_MAX];
    SH_ASSERT(threads >= 1 && threads <= SH_MSG_BENCH_THREADS_MAX);
    enum shoal_err err = SHOAL_OK;
    unsigned made = 1;
    while (made < threads && !err) {
        if (pthread_create(&ids[made], NULL, sender_thread, &senders[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        sender_thread(&senders[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(ids[i], NULL);
    for (unsigned i = 0; !err && i < threads; i++)
        err = senders[i].err;
    return err;
}

/* Waits until the servers have counted what was sent. */
static enum shoal_err counted_await(const struct run *run, uint64_t sent)
{
    uint64_t deadline_ns = sh_bench_now_ns() + COUNTED_TIMEOUT_NS;
    /* relaxed: a sum, and nothing else is read by it */
    while (atomic_load_explicit(&run->board->received, memory_order_relaxed) != sent) {
        if (sh_bench_now_ns() > deadline_ns) {
            SH_ERROR("bench", "baseline servers do not count all that was sent",
                     SH_TEXT("baseline", run->ops->name), SH_U64("sent", sent));
            return SHOAL_ETIMEOUT;
        }
        (void)sched_yield();
    }
    return SHOAL_OK;
}

static enum shoal_err senders_sum(const struct run *run, struct sh_bench_result *result)
{
    uint64_t begin_ns = UINT64_MAX;
    uint64_t end_ns = 0;
    for (unsigned i = 0; i < run->shape->threads; i++) {
        const struct sender *sender = &run->senders[i];
        begin_ns = sender->begin_ns < begin_ns ? sender->begin_ns : begin_ns;
        end_ns = sender->end_ns > end_ns ? sender->end_ns : end_ns;
        result->ops += sender->done;
        sh_hist_merge(&result->latency_ns, &sender->latency_ns);
    }
    result->bytes = result->ops * run->shape->size;
    result->digest = sh_mix64(run->shape->seed ^ result->bytes);
    if (!run->what.echoes) {
        enum shoal_err err = counted_await(run, result->bytes);
        if (err)
            return err;
        end_ns = sh_bench_now_ns();
    }
    result->seconds = (double)(end_ns - begin_ns) / NS_PER_S;
    return SHOAL_OK;
}

static void server_main(void *arg, int report_fd)
{
    const struct run *run = arg;
    run->ops->serve(&run->what, report_fd);
}

static enum shoal_err servers_start(struct run *run)
{
    const struct sh_bench_flags *shape = run->shape;
    run->board = sh_msg_shared_alloc(sizeof *run->board);
    run->servers = calloc(shape->connections, sizeof *run->servers);
    run->senders = calloc(shape->threads, sizeof *run->senders);
    run->payload = malloc(shape->size);
    if (!run->board || !run->servers || !run->senders || !run->payload)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < shape->size; i++)
        run->payload[i] = (uint8_t)sh_mix64(shape->seed + i);
    run->what.received = &run->board->received;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < shape->connections; i++)
        err = sh_child_start(server_main, run, run->placement, &run->servers[i]);
    return err;
}

/* Opens the sockets and, where there are answers, exchanges one message over each. */
static enum shoal_err sender_open(struct run *run, struct sender *sender, unsigned number)
{
    const struct sh_bench_flags *shape = run->shape;
    sender->run = run;
    sender->sockets = calloc(shape->connections, sizeof *sender->sockets);
    sender->stamps =
        calloc((size_t)shape->outstanding * shape->connections, sizeof *sender->stamps);
    if (!sender->sockets || !sender->stamps)
        return SHOAL_ENOMEM;
    sender->share = UINT64_MAX;
    if (shape->count)
        sender->share = shape->count / shape->threads + (number < shape->count % shape->threads);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < shape->connections; i++) {
        err = run->ops->open(run->client, &run->what, run->servers[i].port, &sender->sockets[i]);
        if (!err && run->what.echoes)
            err = run->ops->send(sender->sockets[i], run->payload, shape->size);
        if (!err && run->what.echoes)
            err = run->ops->receive(sender->sockets[i], shape->size);
    }
    return err;
}

static void senders_close(struct run *run)
{
    const struct sh_bench_flags *shape = run->shape;
    for (unsigned i = 0; run->senders && i < shape->threads; i++) {
        struct sender *sender = &run->senders[i];
        for (unsigned c = 0; sender->sockets && c < shape->connections; c++) {
            if (sender->sockets[c])
                run->ops->close(sender->sockets[c]);
        }
        free(sender->sockets);
        free(sender->stamps);
    }
    if (run->client)
        run->ops->client_close(run->client);
}

/* The client's side, with servers that run. */
static enum shoal_err client_run(struct run *run, struct sh_bench_result *result)
{
    const struct sh_bench_flags *shape = run->shape;
    sh_bench_pin(run->placement, 0);
    enum shoal_err err = run->ops->client_open(&run->client);
    for (unsigned i = 0; !err && i < shape->threads; i++)
        err = sender_open(run, &run->senders[i], i);
    uint64_t cpu_ns = sh_children_cpu_ns(run->servers, shape->connections);
    if (!err)
        err = senders_run(run->senders, shape->threads);
    if (!err)
        err = senders_sum(run, result);
    if (!err)
        result->cpu_ns = sh_children_cpu_ns(run->servers, shape->connections) - cpu_ns;
    senders_close(run);
    return err;
}

/* What the client's process leaves behind. */
struct outcome {
    enum shoal_err err;
    struct sh_bench_result result;
};

/* Runs the client's side in a process of its own, since nng refuses to run in a process forked from
 * one where it has run, as the servers of the next run would be. */
static enum shoal_err client_fork(struct run *run, struct sh_bench_result *result_out)
{
    struct outcome *outcome = sh_msg_shared_alloc(sizeof *outcome);
    if (!outcome)
        return SHOAL_ENOMEM;
    outcome->err = SHOAL_EIO; /* unless it says otherwise: it died */
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
            _exit(1);
        outcome->err = client_run(run, &outcome->result);
        _exit(0);
    }
    if (pid > 0) {
        int status = 0;
        pid_t ended = waitpid(pid, &status, 0);
        SH_ASSERT(ended == pid);
        if (!WIFEXITED(status))
            outcome->err = SHOAL_EIO;
    }
    enum shoal_err err = outcome->err;
    if (!err)
        *result_out = outcome->result;
    sh_msg_shared_free(outcome, sizeof *outcome);
    return err;
}

static void run_close(struct run *run)
{
    for (unsigned i = 0; run->servers && i < run->shape->connections; i++)
        sh_child_stop(&run->servers[i]);
    sh_msg_shared_free(run->board, sizeof *run->board);
    free(run->servers);
    free(run->senders);
    free(run->payload);
}

enum shoal_err sh_msg_base_run(const struct sh_msg_base_ops *ops,
                               const struct sh_bench_flags *shape, enum sh_placement placement,
                               bool echoes, struct sh_bench_result *result_out)
{
    SH_ASSERT(shape->size > 0 && shape->outstanding > 0 && shape->connections > 0);
    if (!ops->is_built) {
        SH_ERROR("bench", "shoal was built without this baseline; install its package, build again",
                 SH_TEXT("baseline", ops->name), SH_TEXT("package", ops->package));
        return SHOAL_EINVAL;
    }
    struct run run = {
        .ops = ops,
        .shape = shape,
        .placement = placement,
        .what = {.size = shape->size, .echoes = echoes, .spins = sh_bench_spins(placement)}};
    enum shoal_err err = servers_start(&run);
    if (!err)
        err = client_fork(&run, result_out);
    run_close(&run);
    return err;
}
