/* The process of a simulated peer or superpeer, as shoald's main function is: it makes the node, starts
 * it, waits until it is to stop, and takes it apart, all by the node's own code (node/node.h). The main
 * thread, and the one that looks after the superpeer that a peer was promoted to, are fibers. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/options.h"
#include "node/identity.h"
#include "node/node.h"
#include "sim/cluster_world_int.h"
#include "sim/fiber.h"
#include "sim/world_int.h"

#define THREADS_MAX 4
#define ADDRESS_LIST_BYTES (SH_CLUSTER_SUPERPEERS_MAX * SH_MSG_ADDRESS_MAX)
#define STORE_BYTES_MAX (16 << 20)
#define LOOK_NS CW_MS

struct thread {
    struct cw_process *process;
    struct sh_fiber *fiber; /* NULL: the place is free */
    void *(*run)(void *arg);
    void *arg;
    const struct sh_waiter *waiter; /* NULL: it has not begun */
    uint64_t deadline_ns;
};

struct guarded {
    struct cw_process *process;
    struct sh_step step;
};

struct cw_process {
    struct cw_host *host;
    struct sh_options options;
    struct sh_node_world world, inner;
    struct sh_node_run *node;
    struct guarded steps[SH_CREW_STEPS_MAX];
    unsigned step_count, steps_begun; /* steps_begun: that the world runs, in each life the same */
    struct sh_step inner_steps[SH_CREW_STEPS_MAX]; /* of the superpeer inside */
    unsigned inner_count;
    struct thread threads[THREADS_MAX]; /* the first is the main one */
    struct thread *current;
    bool is_over; /* the node's steps have ended */
    bool is_told; /* to stop */
};

/* --- Its parts, for the checkers ---------------------------------------------------------------
 */

static void parts_take(struct cw_process *process)
{
    struct cw_host *host = process->host;
    struct sh_node_parts parts = sh_node_parts(process->node);
    host->msg = parts.msg;
    host->directory = parts.directory;
    host->member = parts.member;
    host->identity = parts.identity;
    host->store = parts.store;
    host->chunks = parts.chunks;
    host->locks = parts.locks;
    host->moves = parts.moves;
    if (parts.promoted)
        parts = sh_node_parts(parts.promoted);
    host->superpeer = parts.superpeer;
    host->superpeer_msg = parts.superpeer ? parts.msg : NULL;
}

static void superpeer_forget(struct cw_host *host)
{
    host->superpeer = NULL;
    host->superpeer_msg = NULL;
}

/* Of a peer all but the superpeer beside it, which has a life of its own. */
static void parts_forget(struct cw_host *host)
{
    cw_zones_drop(host);
    if (host->kind != CW_PEER)
        superpeer_forget(host);
    host->msg = NULL;
    host->directory = NULL;
    host->member = NULL;
    host->identity = NULL;
    host->store = NULL;
    host->chunks = NULL;
    host->locks = NULL;
    host->moves = NULL;
}

/* One that was a recruit has become a superpeer. */
static void superpeer_look(struct cw_process *process)
{
    struct cw_host *host = process->host;
    if (host->superpeer || process->is_over)
        return;
    parts_take(process);
    if (!host->superpeer)
        return;
    cw_tell(host->world, host->node, "is a superpeer(node)", sh_msg_nid(host->superpeer_msg).v, 0);
    host->world->result->recruits++;
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct cw_process *process = arg;
    if (!process->world.has_crashed)
        cw_view_seen(process->host, &process->host->epoch, view);
}

static void on_inner_view(void *arg, const struct sh_view *view)
{
    struct cw_process *process = arg;
    if (!process->world.has_crashed)
        cw_view_seen(process->host, &process->host->inner_epoch, view);
}

/* --- Its steps ---------------------------------------------------------------------------------
 */

static void on_step_add(void *arg, struct sh_step step)
{
    struct cw_process *process = arg;
    SH_ASSERT(process->step_count < SH_CREW_STEPS_MAX);
    process->steps[process->step_count++] = (struct guarded){process, step};
}

static void on_stop(void *arg)
{
    struct cw_process *process = arg;
    process->is_over = true;
}

static unsigned guarded_run(void *arg)
{
    struct guarded *guarded = arg;
    if (guarded->process->is_over)
        return 0;
    unsigned worked = guarded->step.run(guarded->step.arg);
    if (worked && guarded->process->host->kind == CW_SPARE)
        superpeer_look(guarded->process);
    return worked;
}

static uint64_t guarded_due(void *arg)
{
    struct guarded *guarded = arg;
    return guarded->process->is_over ? SH_NEVER : guarded->step.due_ns(guarded->step.arg);
}

static void on_inner_step_add(void *arg, struct sh_step step)
{
    struct cw_process *process = arg;
    SH_ASSERT(process->inner_count < SH_CREW_STEPS_MAX);
    process->inner_steps[process->inner_count++] = step;
}

static void on_inner_stop(void *arg)
{
    struct cw_process *process = arg;
    process->inner_count = 0;
    process->host->inner_epoch = 0;
    superpeer_forget(process->host);
}

/* They may begin within a round, so the world has one step for all of them. */
static unsigned inner_run(void *arg)
{
    struct cw_process *process = arg;
    unsigned worked = 0;
    for (unsigned i = 0; i < process->inner_count; i++)
        worked += process->inner_steps[i].run(process->inner_steps[i].arg);
    if (worked)
        superpeer_look(process);
    return worked;
}

static uint64_t inner_due(void *arg)
{
    struct cw_process *process = arg;
    return sh_steps_due_ns(process->inner_steps, process->inner_count);
}

static void steps_begin(struct cw_process *process)
{
    struct cw_host *host = process->host;
    process->steps_begun = process->step_count;
    for (unsigned i = 0; i < process->step_count; i++) {
        struct guarded *guarded = &process->steps[i];
        sh_world_step_add(host->world->sim, host->node,
                          (struct sh_step){.name = guarded->step.name,
                                           .run = guarded_run,
                                           .due_ns = guarded->step.due_ns ? guarded_due : NULL,
                                           .arg = guarded});
    }
    if (process->world.inner)
        sh_world_step_add(
            host->world->sim, host->node,
            (struct sh_step){
                .name = "inner", .run = inner_run, .due_ns = inner_due, .arg = process});
}

/* --- Its threads -------------------------------------------------------------------------------
 */

static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    struct cw_process *process = arg;
    struct thread *thread = process->current;
    SH_ASSERT(thread);
    thread->waiter = waiter;
    thread->deadline_ns = deadline_ns;
    if (!process->world.has_crashed)
        sh_fiber_pause();
    return sh_waiter_done(waiter);
}

static void thread_run(void *arg)
{
    struct thread *thread = arg;
    (void)thread->run(thread->arg);
}

static void *on_thread_start(void *arg, void *(*run)(void *run_arg), void *run_arg)
{
    struct cw_process *process = arg;
    struct thread *thread = process->threads;
    while (thread->fiber)
        thread++;
    SH_ASSERT(thread < process->threads + THREADS_MAX);
    *thread = (struct thread){.process = process, .run = run, .arg = run_arg};
    thread->fiber = sh_fiber_create(thread_run, thread);
    return thread;
}

static void on_thread_join(void *arg, void *joined)
{
    struct cw_process *process = arg;
    struct thread *thread = joined;
    SH_ASSERT(process->current || sh_fiber_ended(thread->fiber)); /* a step can't wait */
    while (!sh_fiber_ended(thread->fiber)) {
        struct sh_waiter nobody = {0};
        process->current->waiter = &nobody;
        process->current->deadline_ns = cw_now(process->host) + LOOK_NS;
        sh_fiber_pause();
    }
    sh_fiber_destroy(thread->fiber);
    thread->fiber = NULL;
}

static bool can_go_on(const struct thread *thread, uint64_t now_ns)
{
    if (!thread->fiber || sh_fiber_ended(thread->fiber))
        return false;
    return !thread->waiter || sh_waiter_done(thread->waiter) || now_ns >= thread->deadline_ns ||
           thread->process->world.has_crashed;
}

static unsigned threads_run(void *arg)
{
    struct cw_process *process = arg;
    uint64_t now_ns = cw_now(process->host);
    unsigned work = 0;
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        struct thread *thread = &process->threads[i];
        if (!can_go_on(thread, now_ns))
            continue;
        process->current = thread;
        sh_fiber_resume(thread->fiber);
        process->current = NULL;
        work++;
    }
    return work;
}

static uint64_t threads_due(void *arg)
{
    struct cw_process *process = arg;
    uint64_t due_ns = SH_NEVER;
    for (unsigned i = 0; i < THREADS_MAX; i++) {
        const struct thread *thread = &process->threads[i];
        if (!thread->fiber || sh_fiber_ended(thread->fiber))
            continue;
        if (!thread->waiter || sh_waiter_done(thread->waiter))
            return 0;
        due_ns = thread->deadline_ns < due_ns ? thread->deadline_ns : due_ns;
    }
    return due_ns;
}

/* A peer's next life begins in its process. The world runs the steps that it has run before, whose objects are others by
 * now. */
static enum shoal_err renew(struct cw_process *process)
{
    struct cw_host *host = process->host;
    const struct sh_superpeer *superpeer = host->superpeer;
    char detail[256];
    host->epoch = 0;
    process->step_count = 0;
    enum shoal_err err = sh_node_renew(&process->node, detail);
    if (err)
        return err;
    SH_ASSERT(process->step_count == process->steps_begun);
    err = sh_node_start(process->node);
    if (err)
        return err;
    process->is_over = false;
    parts_take(process);
    CW_HOLDS(host->world, host->superpeer == superpeer,
             "the superpeer beside peer %u did not run on when the peer's life ended", host->index);
    cw_host_lives(host);
    cw_zones_boot(host);
    sh_sim_wake(host->world->sim, host->node);
    return SHOAL_OK;
}

static enum shoal_err live(struct cw_process *process)
{
    (void)sh_node_wait_ready(process->node);
    enum shoal_err err = sh_node_wait_stopped(process->node);
    if (!process->world.has_crashed)
        cw_host_stops(process->host);
    parts_forget(process->host);
    return err;
}

/* What shoald does once its node is made. */
static void *main_run(void *arg)
{
    struct cw_process *process = arg;
    struct cw_host *host = process->host;
    enum shoal_err err = live(process);
    while (!process->world.has_crashed && !process->is_told && sh_node_is_over(process->node)) {
        cw_tell(host->world, host->node, "begins its next life(error)", (uint64_t)err, 0);
        host->world->result->renewals++;
        err = renew(process);
        if (err)
            break;
        err = live(process);
    }
    bool has_crashed = process->world.has_crashed;
    sh_node_destroy(process->node);
    process->node = NULL;
    if (!has_crashed && !process->world.has_crashed)
        cw_host_stopped(host, err);
    return NULL;
}

/* --- Its life ----------------------------------------------------------------------------------
 */

static void option_set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error;
    enum shoal_err err = sh_options_set(options, name, value, "simulation", &error);
    SH_ASSERT(err == SHOAL_OK);
}

/* Where a host is changes now and then while it is down. */
static void place_name(const struct cw_host *host, char name[SH_DOMAIN_NAME_MAX])
{
    uint64_t place = sh_mix64(host->world->config.seed + 1000 * host->node + host->boots / 2);
    if (place % 4)
        (void)snprintf(name, SH_DOMAIN_NAME_MAX, "r%u", (unsigned)(place % 4));
}

bool cw_has_traits(const struct cw_host *host, const struct sh_traits *traits)
{
    const struct sh_options *options = &host->process->options;
    SH_ASSERT(host->kind == CW_PEER);
    return traits->keeps_replicas == (options->keeps_replicas && options->replicas) &&
           strcmp(traits->domains[SH_DOMAIN_MACHINE], options->machine) == 0 &&
           strcmp(traits->domains[SH_DOMAIN_RACK], options->rack) == 0 &&
           strcmp(traits->domains[SH_DOMAIN_SWITCH], options->network_switch) == 0;
}

static void options_make(struct cw_process *process)
{
    const struct cw_host *host = process->host;
    const struct cw_world *world = host->world;
    struct sh_options *options = &process->options;
    char text[ADDRESS_LIST_BYTES] = "";
    enum shoal_err err = sh_options_init(options);
    SH_ASSERT(err == SHOAL_OK);
    for (size_t used = 0, i = 0; i < world->config.superpeers; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                                 world->addresses[i]);
    option_set(options, "superpeers", text);
    option_set(options, "cluster", "test");
    option_set(options, "roles", host->kind == CW_PEER ? "peer" : "superpeer");
    (void)snprintf(text, sizeof text, "node%u:1", host->node);
    option_set(options, "listen", text);
    option_set(options, "data_dir", "data");
    char rack[SH_DOMAIN_NAME_MAX] = "";
    place_name(host, rack);
    option_set(options, "rack", rack);
    (void)snprintf(text, sizeof text, "node%u", host->node);
    option_set(options, "machine", text);
    options->keeps_replicas = host->node % 4;
    if (world->zookeeper) {
        sh_zookeeper_model_servers(host->node, text);
        option_set(options, "registry", "zookeeper");
        option_set(options, "zookeeper", text);
    }
    options->huge_pages = false;
    options->store_bytes_max = STORE_BYTES_MAX;
    options->chunk_bytes_max = CW_CHUNK_BYTES_MAX;
    options->connections_max = 128;
    options->ring_bytes = 65536;
    options->request_timeout_ns = CW_S;
    options->connect_timeout_ns = CW_S / 2;
    options->heartbeat_ns = CW_FAILURE_NS / 10;
    options->failure_ns = CW_FAILURE_NS;
    options->forget_ns = CW_FORGET_NS;
    options->cache_ranges_max = 16;
}

static void process_free(struct cw_host *host)
{
    struct cw_process *process = host->process;
    for (unsigned i = 0; i < THREADS_MAX; i++)
        sh_fiber_destroy(process->threads[i].fiber);
    sh_options_destroy(&process->options);
    free(process);
    host->process = NULL;
}

enum shoal_err cw_process_start(struct cw_host *host, char *detail)
{
    struct sh_world *sim = host->world->sim;
    struct cw_process *process = sh_sim_alloc(sizeof *process);
    SH_ASSERT(!host->process);
    host->process = process;
    process->host = host;
    options_make(process);
    process->world = (struct sh_node_world){
        .env = *sh_world_env(sim, host->node),
        .crew = {.step_add = on_step_add, .stop = on_stop, .wait = on_wait, .arg = process},
        .thread_start = on_thread_start,
        .thread_join = on_thread_join,
        .on_view = on_view,
        .arg = process};
    process->inner = (struct sh_node_world){.crew = {.step_add = on_inner_step_add,
                                                     .stop = on_inner_stop,
                                                     .wait = on_wait,
                                                     .arg = process},
                                            .on_view = on_inner_view,
                                            .arg = process};
    if (cw_may_promote(host)) {
        process->inner.env = sh_world_env_inner(sim, host->node);
        process->world.inner = &process->inner;
        /* The superpeer goes on with the files when the peer's life ends. */
        process->world.env.disk = process->inner.env.disk;
    }
    enum shoal_err err =
        sh_node_create_in(&process->options, &process->world, &process->node, detail);
    if (!err) {
        err = sh_node_start(process->node);
        parts_take(process);
    }
    if (err) {
        parts_forget(host);
        sh_node_destroy(process->node);
        process_free(host);
        return err;
    }
    steps_begin(process);
    if (host->kind == CW_PEER) {
        cw_zones_boot(host);
        cw_zones_step_add(host);
    }
    (void)on_thread_start(process, main_run, process);
    sh_world_step_add(
        sim, host->node,
        (struct sh_step){
            .name = "threads", .run = threads_run, .due_ns = threads_due, .arg = process});
    return SHOAL_OK;
}

void cw_process_stop(struct cw_host *host)
{
    if (host->process)
        host->process->is_told = true;
    if (host->process && host->process->node)
        sh_node_stop(host->process->node);
    sh_sim_wake(host->world->sim, host->node);
}

void cw_process_drop(struct cw_host *host)
{
    struct cw_process *process = host->process;
    if (!process)
        return;
    process->world.has_crashed = process->inner.has_crashed = true;
    while (threads_run(process))
        ;
    process_free(host);
}
