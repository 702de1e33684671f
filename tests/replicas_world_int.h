/* A cluster for world_replicas_test.c: whole nodes, by the node's own code, in a simulated world. Each peer's chunks are in the logs of
 * other peers. The process of a node is what shoald is: its main thread is a fiber that waits until the node stops.
 *
 * replicas_clients_int.h has what is written, replicas_logs_int.h what the peers' logs have of it in the end. */
#ifndef TESTS_REPLICAS_WORLD_INT_H
#define TESTS_REPLICAS_WORLD_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "cluster/zones.h"
#include "node/node.h"
#include "recover/home_log.h"
#include "sim/fiber.h"
#include "sim/image.h"
#include "sim/parts.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#ifndef RW_SUPERPEERS_MAX
#define RW_SUPERPEERS_MAX 3
#endif
#ifndef RW_PEERS /* at most */
#define RW_PEERS 5
#endif
#define RW_HOSTS_MAX (RW_SUPERPEERS_MAX + RW_PEERS)
#define RW_FAILURE_NS S
#define RW_AGAIN_NS (20 * MS)
#define RW_STORE_BYTES (UINT64_C(16) << 20)
#define RW_ZONE_BYTES (UINT64_C(1) << 20)
#define RW_SEGMENT_BYTES (256u << 10)
#define RW_RING_BLOCKS 4097u /* of a log's file, with its head */
#define RW_CHUNK_BYTES_MAX (100u << 10)

struct rw;
struct rw_host;

struct rw_step {
    struct rw_process *process;
    struct sh_step step;
};

struct rw_process {
    struct rw_host *host;
    struct sh_options options;
    struct sh_node_world world;
    struct sh_node_run *node; /* NULL: its main thread has destroyed it */
    struct rw_step steps[SH_CREW_STEPS_MAX];
    unsigned step_count;
    struct sh_fiber *fiber;
    const struct sh_waiter *waiter; /* of the fiber; NULL: it has not begun */
    uint64_t deadline_ns;
    bool is_over; /* the node's steps have ended */
};

struct rw_host {
    struct rw *rw;
    unsigned node;
    bool is_peer;
    struct rw_process *process; /* NULL: it does not run */
    struct sh_member *member;   /* of a peer that runs */
    struct sh_msg *msg;
    uint64_t boots; /* how often its process has begun: a life */
    shoal_nid nid;  /* NONE: it has never joined */
    uint64_t cluster;
    /* A peer's, as a backup: the moment (rw->moment) since which its process has run without an end, on a disk that did not fail. */
    uint64_t sound_since;
    bool is_sick;    /* its disk has failed since then */
    bool flips;      /* a bit of its log goes bad now and then while it is down */
    bool is_flipped; /* one has: its log may lack anything, but tells nothing that is wrong */
    uint64_t flip;   /* which bit; 0: none that a start may not have liked */
    bool is_read;    /* its process is one that reads its log, and nothing else */
    bool is_young;   /* it was killed a short while ago: what it had in memory only is gone */
    bool is_dead;    /* for good */
    uint64_t doomed; /* a life that stood still for so long that it may have failed; 0: none */
    struct sh_replog *log;
};

struct rw {
    uint64_t seed;
    struct sh_world *world;
    struct sh_disk_faults disk;
    struct rw_host hosts[RW_HOSTS_MAX];
    unsigned count, superpeer_count;
    uint64_t replicas;
    char addresses[RW_SUPERPEERS_MAX][SH_MSG_ADDRESS_MAX];
    const char *superpeers[RW_SUPERPEERS_MAX];
    uint64_t moment; /* counts what happens */
    unsigned crashes, kills, stops, flips, troubles;
};

#define RW_FAIL(rw, ...) rw_fail(rw, __LINE__, __VA_ARGS__)

static inline void rw_fail(const struct rw *rw, int line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static inline void rw_fail(const struct rw *rw, int line, const char *format, ...)
{
    char text[400];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("seed %" PRIu64 ", at %" PRIu64 " ns (line %d): %s", rw->seed, sh_world_now(rw->world),
             line, text);
}

static inline uint64_t rw_below(struct rw *rw, uint64_t limit)
{
    return sh_prng_below(sh_world_prng(rw->world), limit);
}

static inline uint64_t rw_now(const struct rw_host *host)
{
    return sh_now(&sh_world_env(host->rw->world, host->node)->clock);
}

static inline struct rw_host *rw_peer(struct rw *rw, unsigned index)
{
    return &rw->hosts[rw->superpeer_count + index];
}

static inline bool rw_is_joined(const struct rw_host *host)
{
    return host->member && sh_member_joined(host->member);
}

static inline void rw_run(struct rw *rw, uint64_t ns)
{
    (void)sh_world_run_until(rw->world, NULL, NULL, sh_world_now(rw->world) + ns);
}

/* --- A process ---------------------------------------------------------------------------------- */

static inline void rw_step_add(void *arg, struct sh_step step)
{
    struct rw_process *process = arg;
    SH_ASSERT(process->step_count < SH_CREW_STEPS_MAX);
    process->steps[process->step_count++] = (struct rw_step){process, step};
}

static inline void rw_steps_stop(void *arg)
{
    ((struct rw_process *)arg)->is_over = true;
}

static inline unsigned rw_step_run(void *arg)
{
    struct rw_step *step = arg;
    struct rw_host *host = step->process->host;
    unsigned work = step->process->is_over ? 0 : step->step.run(step->step.arg);
    if (work && rw_is_joined(host)) {
        host->nid = sh_msg_nid(host->msg);
        host->cluster = sh_member_cluster(host->member);
    }
    return work;
}

static inline uint64_t rw_step_due(void *arg)
{
    const struct rw_step *step = arg;
    return step->process->is_over ? SH_NEVER : step->step.due_ns(step->step.arg);
}

static inline bool rw_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    struct rw_process *process = arg;
    process->waiter = waiter;
    process->deadline_ns = deadline_ns;
    if (!process->world.has_crashed)
        sh_fiber_pause();
    return sh_waiter_done(waiter);
}

static inline void rw_view(void *arg, const struct sh_view *view)
{
    (void)arg;
    (void)view;
}

static inline void rw_start_later(struct rw_host *host, uint64_t in_ns);

/* A bit of its log that has gone bad is right again, as from a mirror. False: none has. */
static inline bool rw_flip_mend(struct rw_host *host)
{
    if (!host->flip)
        return false;
    sh_world_disk_flip(host->rw->world, host->node, SH_HOME_LOG_NAME, host->flip);
    host->flip = 0;
    return true;
}

/* A process that ends by itself, or does not begin, has a reason. */
static inline void rw_ended(struct rw_host *host, enum shoal_err err, const char *detail)
{
    bool is_damaged = err == SHOAL_ECORRUPT || err == SHOAL_EVERSION || err == SHOAL_ECLUSTER;
    bool is_of_disk = err == SHOAL_EIO || err == SHOAL_ENOSPC;
    bool is_troubled = host->is_sick || sh_world_disk_trouble(host->rw->world, host->node);
    bool is_told = !err || err == SHOAL_EFAILED || err == SHOAL_EEXIST || err == SHOAL_EFENCED;
    bool has_cause = is_told || (is_of_disk && is_troubled) || (is_damaged && host->flip);
    host->sound_since =
        ++host->rw->moment; /* an orderly end does not wait for what it has taken, either */
    if (!has_cause)
        RW_FAIL(host->rw, "host %u ends with %s: %s", host->node, shoal_err_name(err), detail);
    rw_start_later(host, RW_AGAIN_NS);
}

/* Does for a node that is made the same as shoald. */
static inline void rw_main(void *arg)
{
    struct rw_process *process = arg;
    struct rw_host *host = process->host;
    (void)sh_node_wait_ready(process->node);
    enum shoal_err err = sh_node_wait_stopped(process->node);
    host->member = NULL;
    host->msg = NULL;
    sh_node_destroy(process->node);
    process->node = NULL;
    if (!process->world.has_crashed)
        rw_ended(host, err, "it was started");
}

static inline unsigned rw_main_run(void *arg)
{
    struct rw_process *process = arg;
    if (sh_fiber_ended(process->fiber)) /* and the waiter is gone with the node */
        return 0;
    bool waits = process->waiter && !sh_waiter_done(process->waiter) &&
                 rw_now(process->host) < process->deadline_ns;
    if (waits && !process->world.has_crashed)
        return 0;
    sh_fiber_resume(process->fiber);
    return 1;
}

static inline uint64_t rw_main_due(void *arg)
{
    const struct rw_process *process = arg;
    if (sh_fiber_ended(process->fiber))
        return SH_NEVER;
    bool waits = process->waiter && !sh_waiter_done(process->waiter);
    return waits ? process->deadline_ns : 0;
}

static inline void rw_option(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error;
    enum shoal_err err = sh_options_set(options, name, value, "test", &error);
    SH_ASSERT(err == SHOAL_OK);
}

static inline void rw_options(struct rw_process *process)
{
    const struct rw_host *host = process->host;
    const struct rw *rw = host->rw;
    struct sh_options *options = &process->options;
    char text[RW_SUPERPEERS_MAX * SH_MSG_ADDRESS_MAX] = "";
    enum shoal_err err = sh_options_init(options);
    SH_ASSERT(err == SHOAL_OK);
    for (size_t used = 0, i = 0; i < rw->superpeer_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                                 rw->addresses[i]);
    rw_option(options, "superpeers", text);
    rw_option(options, "cluster", "test");
    rw_option(options, "roles", host->is_peer ? "peer" : "superpeer");
    (void)snprintf(text, sizeof text, "node%u:1", host->node);
    rw_option(options, "listen", text);
    rw_option(options, "data_dir", "data");
    rw_option(options, "replicas_at", "peers");
    (void)snprintf(text, sizeof text, "node%u", host->node);
    rw_option(options, "machine", text);
    options->replicas = rw->replicas;
    options->zone_bytes = RW_ZONE_BYTES;
    options->log_segment_bytes = RW_SEGMENT_BYTES;
    options->huge_pages = false;
    options->store_bytes_max = RW_STORE_BYTES;
    options->chunk_bytes_max = RW_CHUNK_BYTES_MAX;
    options->connections_max = 64;
    options->ring_bytes = 256 << 10;
    options->request_timeout_ns = S;
    options->connect_timeout_ns = S / 2;
    options->heartbeat_ns = RW_FAILURE_NS / 10;
    options->failure_ns = RW_FAILURE_NS;
    options->forget_ns = 100 * S;
    options->cache_ranges_max = 16;
}

static inline void rw_process_free(struct rw_host *host)
{
    struct rw_process *process = host->process;
    sh_fiber_destroy(process->fiber);
    sh_options_destroy(&process->options);
    free(process);
    host->process = NULL;
}

static inline void rw_process_drop(struct rw_host *host)
{
    struct rw_process *process = host->process;
    if (!process)
        return;
    process->world.has_crashed = true;
    while (rw_main_run(process))
        ;
    rw_process_free(host);
    host->member = NULL;
    host->msg = NULL;
}

static inline void rw_process_steps(struct rw_process *process)
{
    struct rw_host *host = process->host;
    for (unsigned i = 0; i < process->step_count; i++) {
        struct rw_step *step = &process->steps[i];
        sh_world_step_add(host->rw->world, host->node,
                          (struct sh_step){.name = step->step.name,
                                           .run = rw_step_run,
                                           .due_ns = step->step.due_ns ? rw_step_due : NULL,
                                           .arg = step});
    }
    process->fiber = sh_fiber_create(rw_main, process);
    sh_world_step_add(
        host->rw->world, host->node,
        (struct sh_step){
            .name = "main", .run = rw_main_run, .due_ns = rw_main_due, .arg = process});
}

static inline void rw_process_start(struct rw_host *host)
{
    char detail[256] = "";
    struct rw_process *process = calloc(1, sizeof *process);
    SH_ASSERT(process && !host->process);
    host->process = process;
    process->host = host;
    rw_options(process);
    process->world = (struct sh_node_world){
        .env = *sh_world_env(host->rw->world, host->node),
        .crew = {.step_add = rw_step_add, .stop = rw_steps_stop, .wait = rw_wait, .arg = process},
        .on_view = rw_view,
        .arg = process};
    enum shoal_err err =
        sh_node_create_in(&process->options, &process->world, &process->node, detail);
    if (!err)
        err = sh_node_start(process->node);
    if (err) {
        sh_node_destroy(process->node);
        rw_process_free(host);
        rw_ended(host, err, detail);
        return;
    }
    struct sh_node_parts parts = sh_node_parts(process->node);
    host->member = parts.member;
    host->msg = parts.msg;
    rw_process_steps(process);
}

/* --- A host ------------------------------------------------------------------------------------- */

static inline void rw_log_open(struct rw_host *host)
{
    const struct sh_env *env = sh_world_env(host->rw->world, host->node);
    const struct sh_home_log home = {.disk = env->disk,
                                     .random = env->random,
                                     .cluster = host->cluster,
                                     .nid = host->nid,
                                     .store_bytes_max = host->rw->replicas * RW_STORE_BYTES,
                                     .zone_bytes = RW_ZONE_BYTES,
                                     .slot_bytes = RW_SEGMENT_BYTES};
    enum shoal_err err = sh_home_log_open(&home, rw_now(host), 1, &host->log);
    if (err && rw_flip_mend(host))
        err = sh_home_log_open(&home, rw_now(host), 1, &host->log);
    if (err && !host->is_flipped)
        RW_FAIL(host->rw, "the log of node %u can't be opened: %s", host->nid.v,
                shoal_err_name(err));
}

static inline void rw_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct rw_host *host = arg;
    (void)world;
    host->node = node;
    if (host->is_read) {
        rw_log_open(host);
        return;
    }
    host->boots++;
    rw_process_start(host);
}

/* A bit of what its log has goes bad, in every third case in the primary log. */
static inline void rw_flip(struct rw_host *host)
{
    struct rw *rw = host->rw;
    const struct sh_image *file = sh_world_disk_file(rw->world, host->node, SH_HOME_LOG_NAME);
    uint8_t block[SH_IMAGE_BLOCK_BYTES];
    uint64_t blocks = file ? file->size / sizeof block : 0;
    bool is_ring = rw_below(rw, 3) == 0;
    uint64_t from = is_ring ? 1 : RW_RING_BLOCKS, to = is_ring ? RW_RING_BLOCKS : blocks;
    for (unsigned tries = 0; blocks > RW_RING_BLOCKS && tries < 2000; tries++) {
        uint64_t at = from + rw_below(rw, to - from);
        uint64_t byte = rw_below(rw, sizeof block);
        sh_image_read(file, at * sizeof block, block, sizeof block);
        if (!block[byte])
            continue;
        host->flip = 8 * (at * sizeof block + byte) + rw_below(rw, 8);
        host->is_flipped = true;
        rw->flips++;
        sh_world_disk_flip(rw->world, host->node, SH_HOME_LOG_NAME, host->flip);
        return;
    }
}

/* Its process has ended, by whatever: what it had taken and not written is gone. */
static inline void rw_crashed(void *arg, struct sh_world *world, unsigned node)
{
    struct rw_host *host = arg;
    (void)world;
    (void)node;
    rw_process_drop(host);
    sh_replog_close(host->log);
    host->log = NULL;
    host->sound_since = ++host->rw->moment;
    host->is_sick = sh_world_disk_trouble(host->rw->world, host->node) == SH_DISK_FAILS;
}

static inline void rw_on_start(void *arg, uint64_t boots, uint64_t unused)
{
    struct rw_host *host = arg;
    struct sh_world *world = host->rw->world;
    (void)unused;
    if (host->boots != boots || host->is_read)
        return;
    if (sh_world_is_up(world, host->node) && sh_world_is_paused(world, host->node)) {
        rw_start_later(host, RW_AGAIN_NS);
        return;
    }
    bool has_ended = sh_world_is_up(world, host->node);
    if (has_ended)
        sh_world_crash(world, host->node);
    if (has_ended && host->flip)
        (void)rw_flip_mend(host);
    else if (host->flips && !host->flip && rw_below(host->rw, 2))
        rw_flip(host);
    sh_world_restart(world, host->node);
}

/* Starts its process again, unless it has been started by then. */
static inline void rw_start_later(struct rw_host *host, uint64_t in_ns)
{
    sh_world_at(host->rw->world, sh_world_now(host->rw->world) + in_ns, rw_on_start, host,
                host->boots, 0);
}

static inline void rw_host_add(struct rw *rw, bool is_peer)
{
    struct rw_host *host = &rw->hosts[rw->count++];
    *host = (struct rw_host){.rw = rw, .is_peer = is_peer};
    struct sh_world_node node = {.boot = rw_boot, .crash = rw_crashed, .arg = host};
    (void)sh_world_node_add(rw->world, &node);
}

/* Networks and disks as bad as the seed has it; disks answer within disk_delay_ns. */
static inline struct sh_world_config rw_config(uint64_t seed, uint64_t disk_delay_ns)
{
    const uint64_t ms = 1000000;
    return (struct sh_world_config){.seed = seed,
                                    .wire = {.delay_ns_min = ms / 20,
                                             .delay_ns_max = seed % 2 ? ms : 4 * ms,
                                             .piece_ppm = 50000,
                                             .lost_ns_max = 5 * ms,
                                             .give_up_ns_max = RW_FAILURE_NS / 4,
                                             .window_bytes_min = 1 << 14,
                                             .window_bytes_max = 1 << 18},
                                    .disk = {.delay_ns_min = ms / 20,
                                             .delay_ns_max = disk_delay_ns,
                                             .again_ppm = 20000,
                                             .survive_ppm = 400000,
                                             .torn_ppm = 200000},
                                    .skip_ppm = 20000};
}

static inline void rw_open_some(struct rw *rw, const struct sh_world_config *config,
                                unsigned superpeers, unsigned peers, uint64_t replicas)
{
    SH_ASSERT(peers <= RW_PEERS);
    *rw = (struct rw){.seed = config->seed,
                      .disk = config->disk,
                      .superpeer_count = superpeers,
                      .replicas = replicas};
    rw->world = sh_world_create(config);
    for (unsigned i = 0; i < superpeers; i++) {
        (void)snprintf(rw->addresses[i], sizeof rw->addresses[i], "node%u:1", i);
        rw->superpeers[i] = rw->addresses[i];
    }
    for (unsigned i = 0; i < superpeers + peers; i++)
        rw_host_add(rw, i >= superpeers);
}

static inline void rw_open(struct rw *rw, const struct sh_world_config *config, unsigned superpeers,
                           uint64_t replicas)
{
    rw_open_some(rw, config, superpeers, RW_PEERS, replicas);
}

/* All hosts but those that crashed before are dropped. */
static inline void rw_close(struct rw *rw)
{
    for (unsigned i = 0; i < rw->count; i++) {
        if (sh_world_is_up(rw->world, i))
            sh_world_crash(rw->world, i);
    }
    sh_world_destroy(rw->world);
}

/* The machine loses its power; or only its process ends, and what that had handed to the kernel is there. */
static inline void rw_crash(struct rw_host *host, bool is_kill)
{
    struct rw *rw = host->rw;
    struct sh_disk_faults kept = rw->disk;
    kept.keeps_done = true;
    if (is_kill)
        sh_world_disk_faults_set(rw->world, &kept);
    sh_world_crash(rw->world, host->node);
    sh_world_disk_faults_set(rw->world, &rw->disk);
    rw->crashes += !is_kill;
    rw->kills += is_kill;
}

#endif
