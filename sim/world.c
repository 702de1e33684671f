/* The world: nodes, events, virtual time, the trace. */
#include "sim/world.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "sim/net_int.h"
#include "sim/world_int.h"

/* Every node's clock begins here, so that negative offsets have room. */
#define CLOCK_START_NS UINT64_C(1000000000000)
/* 2026-01-01: wall clocks of a world begin on the same day in every run. */
#define WALL_START_NS UINT64_C(1767225600000000000)
/* A step that says it is due and then finds nothing to do is asked again after this. */
#define OVERDUE_NS 1000
/* So often, one after the other, is a wait of 2 ms by turning: steps are to say when they are due. */
#define OVERDUE_MAX 2000
#define DRIFT_PPM_MAX 100000
/* Of a disk that fails. */
#define READ_ERR_PPM 20000
#define WRITE_ERR_PPM 200000

struct node {
    struct sh_world *world;
    unsigned number;
    struct sh_world_node config;
    struct sh_env env;
    struct sh_disk *inner_disk;   /* NULL: it was not asked for */
    enum sh_disk_trouble trouble; /* of its disk */
    bool is_disk_slow;
    struct sh_prng random;
    struct sh_step steps[SH_WORLD_STEPS_MAX];
    unsigned step_count;
    bool up;
    bool paused;
    bool is_awake;    /* something may have happened to it since its steps found no work */
    uint64_t due_ns;  /* otherwise: when a step of it is due next, in the world's time */
    unsigned overdue; /* how often its steps were due and found no work, since they found some */
    /* Stopped in the middle of a step (sh_world_stop_inside). */
    unsigned stop_looks; /* at its clock, until it stops; 0: it does not */
    uint64_t stop_ns;    /* for how long it then stops */
    uint64_t goes_on_ns; /* until when it is stopped, in the world's time */
};

struct event {
    uint64_t at_ns;
    uint64_t number; /* in order of their making: ties are broken by it */
    sh_world_event event;
    void *arg;
    uint64_t a;
    uint64_t b;
    bool wakes_all;
};

struct sh_world {
    struct sh_world_config config;
    uint64_t now_ns;
    uint64_t hash;
    struct sh_prng order;   /* of steps */
    struct sh_prng test;    /* for the test */
    struct sh_prng sources; /* of the nodes' streams */
    struct sh_sim_net *net;
    struct event *events; /* a binary heap, the earliest first */
    size_t event_count;
    size_t event_room;
    uint64_t event_number;
    struct node *nodes[SH_WORLD_NODES_MAX];
    unsigned node_count;
    /* By node: when it is due, if it is up and was neither woken nor stopped since that was found; 0:
     * look at the node. In one place, as a world of a thousand nodes looks at all in each round. */
    uint64_t idle_until_ns[SH_WORLD_NODES_MAX];
    bool in_round;
    const struct node *running; /* whose step is being run; NULL: nobody's */
};

void sh_sim_wake(struct sh_world *world, unsigned number)
{
    world->nodes[number]->is_awake = true;
    world->idle_until_ns[number] = 0;
}

/* What is done from outside may concern any node. */
static void wake_all(struct sh_world *world)
{
    for (unsigned i = 0; i < world->node_count; i++)
        sh_sim_wake(world, i);
}

#define MILLION INT64_C(1000000)

/* The time at which a node is: the world's, or when it goes on if it is stopped inside a step. */
static uint64_t time_of(const struct node *node)
{
    uint64_t now_ns = node->world->now_ns;
    return node->goes_on_ns > now_ns ? node->goes_on_ns : now_ns;
}

uint64_t sh_sim_now(const struct sh_world *world)
{
    return world->running ? time_of(world->running) : world->now_ns;
}

/* What a node's clocks show more than its time: where they began, and what they have gained or lost
 * since. Never less at a later time, as the drift is above minus a million. */
static uint64_t clock_lead_ns(const struct node *node)
{
    int64_t now = (int64_t)time_of(node);
    int64_t drift = node->config.clock_drift_ppm;
    int64_t gained = now / MILLION * drift + now % MILLION * drift / MILLION;
    return (uint64_t)(node->config.clock_offset_ns + gained);
}

/* A look at the clock may be where a node stops. */
static void clock_looked(struct node *node)
{
    struct sh_world *world = node->world;
    if (world->running != node || !node->stop_looks || --node->stop_looks)
        return;
    node->goes_on_ns = world->now_ns + node->stop_ns;
    sh_sim_wake(world, node->number);
    sh_world_trace(world, node->number, "stop inside(ns)", node->stop_ns, 0, (struct sh_bytes){0});
}

static uint64_t node_now_ns(void *arg)
{
    struct node *node = arg;
    clock_looked(node);
    return CLOCK_START_NS + time_of(node) + clock_lead_ns(node);
}

static uint64_t node_wall_ns(void *arg)
{
    const struct node *node = arg;
    return WALL_START_NS + time_of(node) + clock_lead_ns(node);
}

static void node_fill(void *arg, void *into, size_t size)
{
    struct node *node = arg;
    sh_prng_fill(&node->random, into, size);
}

struct sh_world *sh_world_create(const struct sh_world_config *config)
{
    struct sh_world *world = sh_sim_alloc(sizeof *world);
    world->config = *config;
    if (!world->config.step_cost_ns_max)
        world->config.step_cost_ns_max = 1000;
    struct sh_prng root = sh_prng_make(sh_mix64(config->seed ^ UINT64_C(0x73686f616c)));
    world->order = sh_prng_split(&root);
    world->test = sh_prng_split(&root);
    world->sources = sh_prng_split(&root);
    world->net = sh_sim_net_create(world, sh_prng_split(&root), &config->wire);
    return world;
}

void sh_world_destroy(struct sh_world *world)
{
    if (!world)
        return;
    SH_ASSERT(!world->in_round);
    sh_sim_net_destroy(world->net);
    for (unsigned i = 0; i < world->node_count; i++) {
        free(world->nodes[i]->inner_disk);
        sh_sim_disk_free(world->nodes[i]->env.disk);
        free(world->nodes[i]);
    }
    free(world->events);
    free(world);
}

uint64_t sh_world_now(const struct sh_world *world)
{
    return world->now_ns;
}

struct sh_prng *sh_world_prng(struct sh_world *world)
{
    return &world->test;
}

static struct node *node_of(const struct sh_world *world, unsigned node)
{
    SH_ASSERT(node < world->node_count);
    return world->nodes[node];
}

const struct sh_env *sh_world_env(const struct sh_world *world, unsigned node)
{
    return &node_of(world, node)->env;
}

bool sh_world_is_up(const struct sh_world *world, unsigned node)
{
    return node_of(world, node)->up;
}

bool sh_world_is_paused(const struct sh_world *world, unsigned node)
{
    const struct node *asked = node_of(world, node);
    return asked->paused || asked->goes_on_ns > world->now_ns;
}

static void node_boot(struct sh_world *world, unsigned number)
{
    struct node *node = node_of(world, number);
    sh_world_trace(world, number, "boot()", 0, 0, (struct sh_bytes){0});
    node->up = true;
    sh_sim_wake(world, number);
    if (node->config.boot)
        node->config.boot(node->config.arg, world, number);
}

unsigned sh_world_node_add(struct sh_world *world, const struct sh_world_node *config)
{
    SH_ASSERT(!world->in_round);
    SH_ASSERT(world->node_count < SH_WORLD_NODES_MAX);
    SH_ASSERT(config->clock_offset_ns > -(int64_t)CLOCK_START_NS);
    SH_ASSERT(config->clock_drift_ppm >= -DRIFT_PPM_MAX &&
              config->clock_drift_ppm <= DRIFT_PPM_MAX);
    unsigned number = world->node_count;
    struct node *node = sh_sim_alloc(sizeof *node);
    node->world = world;
    node->number = number;
    node->config = *config;
    node->random = sh_prng_split(&world->sources);
    node->env.clock = (struct sh_clock){node_now_ns, node_wall_ns, node};
    node->env.random = (struct sh_random){node_fill, node};
    node->env.disk =
        sh_sim_disk_create(world, number, sh_prng_split(&world->sources), &world->config.disk);
    node->env.wire = sh_sim_net_wire_add(world->net, number);
    world->nodes[world->node_count++] = node;
    node_boot(world, number);
    return number;
}

struct sh_env sh_world_env_inner(struct sh_world *world, unsigned number)
{
    struct node *node = node_of(world, number);
    struct sh_env env = node->env;
    if (!node->inner_disk)
        node->inner_disk = sh_sim_disk_inner(env.disk);
    env.disk = node->inner_disk;
    env.wire = sh_sim_net_wire_inner(world->net, number);
    return env;
}

void sh_world_step_add(struct sh_world *world, unsigned number, struct sh_step step)
{
    struct node *node = node_of(world, number);
    SH_ASSERT(!world->in_round);
    SH_ASSERT(node->step_count < SH_WORLD_STEPS_MAX);
    SH_ASSERT(step.run);
    node->steps[node->step_count++] = step;
    sh_sim_wake(world, number);
}

void sh_world_crash(struct sh_world *world, unsigned number)
{
    struct node *node = node_of(world, number);
    SH_ASSERT(!world->in_round);
    SH_ASSERT(node->up);
    sh_world_trace(world, number, "crash()", 0, 0, (struct sh_bytes){0});
    world->idle_until_ns[number] = 0;
    node->up = false;
    node->paused = false;
    node->stop_looks = 0;
    node->goes_on_ns = 0;
    node->step_count = 0;
    sh_sim_net_wire_down(world->net, number);
    sh_sim_disk_crash(node->env.disk);
    if (node->config.crash)
        node->config.crash(node->config.arg, world, number);
}

void sh_world_restart(struct sh_world *world, unsigned number)
{
    struct node *node = node_of(world, number);
    SH_ASSERT(!world->in_round);
    SH_ASSERT(!node->up);
    sh_sim_net_wire_up(world->net, number);
    sh_sim_disk_up(node->env.disk);
    node_boot(world, number);
}

void sh_world_pause(struct sh_world *world, unsigned number)
{
    SH_ASSERT(!world->in_round);
    sh_world_trace(world, number, "pause()", 0, 0, (struct sh_bytes){0});
    node_of(world, number)->paused = true;
    world->idle_until_ns[number] = 0;
}

void sh_world_resume(struct sh_world *world, unsigned number)
{
    SH_ASSERT(!world->in_round);
    sh_world_trace(world, number, "resume()", 0, 0, (struct sh_bytes){0});
    node_of(world, number)->paused = false;
    sh_sim_wake(world, number);
}

void sh_world_stop_inside(struct sh_world *world, unsigned number, unsigned looks, uint64_t stop_ns)
{
    struct node *node = node_of(world, number);
    SH_ASSERT(!world->in_round);
    SH_ASSERT(looks && stop_ns);
    node->stop_looks = looks;
    node->stop_ns = stop_ns;
}

void sh_world_stop_inside_not(struct sh_world *world, unsigned number)
{
    node_of(world, number)->stop_looks = 0;
}

void sh_world_partition(struct sh_world *world, uint64_t from_mask, uint64_t to_mask, bool one_way)
{
    sh_world_trace(world, SH_WORLD_NOBODY, one_way ? "part one way(from, to)" : "part(from, to)",
                   from_mask, to_mask, (struct sh_bytes){0});
    sh_sim_net_partition(world->net, from_mask, to_mask);
    if (!one_way)
        sh_sim_net_partition(world->net, to_mask, from_mask);
}

void sh_world_heal(struct sh_world *world)
{
    sh_world_trace(world, SH_WORLD_NOBODY, "heal()", 0, 0, (struct sh_bytes){0});
    sh_sim_net_heal(world->net);
}

bool sh_world_is_parted(const struct sh_world *world, unsigned a, unsigned b)
{
    return sim_is_blocked(world->net, a, b) || sim_is_blocked(world->net, b, a);
}

void sh_world_cut(struct sh_world *world, unsigned a, unsigned b)
{
    sh_world_trace(world, SH_WORLD_NOBODY, "cut(node, node)", a, b, (struct sh_bytes){0});
    sh_sim_net_cut(world->net, a, b);
}

uint64_t sh_world_losses(const struct sh_world *world, unsigned node)
{
    return sh_sim_net_losses(world->net, node);
}

void sh_world_wire_faults_set(struct sh_world *world, const struct sh_wire_faults *faults)
{
    sh_sim_net_faults_set(world->net, faults);
}

void sh_world_disk_faults_set(struct sh_world *world, const struct sh_disk_faults *faults)
{
    for (unsigned i = 0; i < world->node_count; i++)
        sh_sim_disk_faults_set(world->nodes[i]->env.disk, faults);
    world->config.disk = *faults;
}

void sh_world_disk_delay_set(struct sh_world *world, unsigned node, uint64_t min_ns,
                             uint64_t max_ns)
{
    struct sh_disk_faults faults = world->config.disk;
    sh_world_trace(world, node, "disk takes(min, max)", min_ns, max_ns, (struct sh_bytes){0});
    if (max_ns) {
        faults.delay_ns_min = min_ns;
        faults.delay_ns_max = max_ns;
    }
    node_of(world, node)->trouble = SH_DISK_WELL;
    node_of(world, node)->is_disk_slow = max_ns != 0;
    sh_sim_disk_faults_set(node_of(world, node)->env.disk, &faults);
}

bool sh_world_disk_is_slow(const struct sh_world *world, unsigned node)
{
    return node_of(world, node)->is_disk_slow;
}

void sh_world_disk_trouble_set(struct sh_world *world, unsigned node, enum sh_disk_trouble trouble)
{
    struct sh_disk_faults faults = world->config.disk;
    sh_world_trace(world, node, "disk is(trouble)", trouble, 0, (struct sh_bytes){0});
    if (trouble == SH_DISK_FAILS) {
        faults.read_err_ppm = READ_ERR_PPM;
        faults.write_err_ppm = WRITE_ERR_PPM;
        faults.sync_err_ppm = WRITE_ERR_PPM;
    } else if (trouble == SH_DISK_FULL) {
        faults.quota_bytes = 1;
    }
    node_of(world, node)->trouble = trouble;
    sh_sim_disk_faults_set(node_of(world, node)->env.disk, &faults);
}

enum sh_disk_trouble sh_world_disk_trouble(const struct sh_world *world, unsigned node)
{
    return node_of(world, node)->trouble;
}

const struct sh_image *sh_world_disk_file(const struct sh_world *world, unsigned node,
                                          const char *name)
{
    return sh_sim_disk_file(node_of(world, node)->env.disk, name);
}

void sh_world_disk_lose(struct sh_world *world, unsigned node)
{
    SH_ASSERT(!sh_world_is_up(world, node));
    sh_sim_disk_lose(node_of(world, node)->env.disk);
}

void sh_world_disk_flip(struct sh_world *world, unsigned node, const char *name, uint64_t bit)
{
    sh_sim_disk_flip(node_of(world, node)->env.disk, name, bit);
}

static bool is_earlier(const struct event *x, const struct event *y)
{
    return x->at_ns != y->at_ns ? x->at_ns < y->at_ns : x->number < y->number;
}

static void event_add(struct sh_world *world, uint64_t at_ns, sh_world_event event, void *arg,
                      uint64_t a, uint64_t b, bool wakes_all)
{
    SH_ASSERT(event);
    if (world->event_count == world->event_room) {
        world->event_room = world->event_room ? 2 * world->event_room : 64;
        world->events = sh_sim_realloc(world->events, world->event_room * sizeof *world->events);
    }
    struct event made = {at_ns < world->now_ns ? world->now_ns : at_ns,
                         world->event_number++,
                         event,
                         arg,
                         a,
                         b,
                         wakes_all};
    size_t at = world->event_count++;
    while (at > 0 && is_earlier(&made, &world->events[(at - 1) / 2])) {
        world->events[at] = world->events[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    world->events[at] = made;
}

void sh_world_at(struct sh_world *world, uint64_t at_ns, sh_world_event event, void *arg,
                 uint64_t a, uint64_t b)
{
    event_add(world, at_ns, event, arg, a, b, true);
}

void sh_sim_at(struct sh_world *world, uint64_t at_ns, sh_world_event event, void *arg, uint64_t a,
               uint64_t b)
{
    event_add(world, at_ns, event, arg, a, b, false);
}

static struct event take_earliest(struct sh_world *world)
{
    SH_ASSERT(world->event_count > 0);
    struct event earliest = world->events[0];
    struct event last = world->events[--world->event_count];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= world->event_count)
            break;
        if (child + 1 < world->event_count &&
            is_earlier(&world->events[child + 1], &world->events[child]))
            child++;
        if (!is_earlier(&world->events[child], &last))
            break;
        world->events[at] = world->events[child];
        at = child;
    }
    world->events[at] = last;
    return earliest;
}

static void fire_due_events(struct sh_world *world)
{
    while (world->event_count && world->events[0].at_ns <= world->now_ns) {
        struct event event = take_earliest(world);
        event.event(event.arg, event.a, event.b);
        if (event.wakes_all)
            wake_all(world);
    }
}

struct turn {
    unsigned node;
    const struct sh_step *step;
};

static bool is_runnable(const struct sh_world *world, const struct node *node)
{
    return node->up && !node->paused && node->goes_on_ns <= world->now_ns &&
           (node->is_awake || node->due_ns <= world->now_ns);
}

/* Every step that may find work now, in an order drawn from the seed. */
static unsigned draw_turns(struct sh_world *world, struct turn *turns, unsigned *nodes_out,
                           unsigned *node_count_out)
{
    unsigned count = 0;
    *node_count_out = 0;
    for (unsigned i = 0; i < world->node_count; i++) {
        struct node *node = world->nodes[i];
        if (world->idle_until_ns[i] > world->now_ns || !is_runnable(world, node))
            continue;
        node->is_awake = false;
        nodes_out[(*node_count_out)++] = i;
        for (unsigned k = 0; k < node->step_count; k++)
            turns[count++] = (struct turn){i, &node->steps[k]};
    }
    for (unsigned i = count; i > 1; i--) {
        unsigned other = (unsigned)sh_prng_below(&world->order, i);
        struct turn kept = turns[i - 1];
        turns[i - 1] = turns[other];
        turns[other] = kept;
    }
    return count;
}

/* When a step of the node is due first, in the world's time: later than now. */
static uint64_t node_due_ns(const struct sh_world *world, struct node *node)
{
    uint64_t due_ns = sh_steps_due_ns(node->steps, node->step_count);
    if (due_ns == SH_NEVER) {
        node->overdue = 0;
        return SH_NEVER;
    }
    uint64_t node_now = node_now_ns(node);
    uint64_t left = due_ns > node_now ? due_ns - node_now : 0;
    /* By a fast clock it comes sooner. Two more nanoseconds make up for what rounding takes off. */
    uint64_t rate = (uint64_t)(MILLION + node->config.clock_drift_ppm);
    if (node->config.clock_drift_ppm)
        left = left / rate * MILLION + left % rate * MILLION / rate + 2;
    node->overdue = due_ns <= node_now ? node->overdue + 1 : 0;
    SH_ASSERT(node->overdue <= OVERDUE_MAX); /* it waits by turning, and would heat a core */
    if (node->overdue)
        left = OVERDUE_NS;
    return left < SH_NEVER - world->now_ns ? world->now_ns + left : SH_NEVER;
}

/* Runs each step that may find work once, or leaves it out; true if any worked or was left out. */
static bool run_round(struct sh_world *world)
{
    struct turn turns[SH_WORLD_NODES_MAX * SH_WORLD_STEPS_MAX];
    unsigned nodes[SH_WORLD_NODES_MAX], node_count;
    unsigned count = draw_turns(world, turns, nodes, &node_count);
    bool busy = false;
    world->in_round = true;
    for (unsigned i = 0; i < count; i++) {
        const struct sh_step *step = turns[i].step;
        const struct node *node = world->nodes[turns[i].node];
        bool is_late = sh_prng_chance(&world->order, world->config.skip_ppm);
        unsigned worked = 0;
        if (node->goes_on_ns > world->now_ns)
            continue; /* another step of it has stopped it */
        world->running = node;
        if (!is_late)
            worked = step->run(step->arg);
        world->running = NULL;
        if (!worked && !is_late)
            continue;
        busy = true;
        sh_sim_wake(world, turns[i].node);
        if (!worked)
            continue;
        world->nodes[turns[i].node]->overdue = 0;
        world->now_ns += sh_prng_between(&world->order, 1, world->config.step_cost_ns_max);
        sh_world_trace(world, turns[i].node, step->name ? step->name : "step", worked, 0,
                       (struct sh_bytes){0});
    }
    world->in_round = false;
    for (unsigned i = 0; i < node_count; i++) {
        struct node *node = world->nodes[nodes[i]];
        if (node->is_awake)
            continue;
        node->due_ns = node_due_ns(world, node);
        world->idle_until_ns[nodes[i]] = node->due_ns;
    }
    return busy;
}

/* No step found work: time jumps to where there may be some, at most to the deadline. */
static void advance(struct sh_world *world, uint64_t deadline_ns)
{
    uint64_t due_ns = deadline_ns;
    for (unsigned i = 0; i < world->node_count; i++) {
        if (world->idle_until_ns[i] > world->now_ns) {
            due_ns = world->idle_until_ns[i] < due_ns ? world->idle_until_ns[i] : due_ns;
            continue;
        }
        const struct node *node = world->nodes[i];
        bool is_stopped = node->goes_on_ns > world->now_ns;
        uint64_t node_due_ns = is_stopped ? node->goes_on_ns : node->due_ns;
        if (node->up && !node->paused && node_due_ns < due_ns)
            due_ns = node_due_ns;
    }
    if (world->event_count && world->events[0].at_ns < due_ns)
        due_ns = world->events[0].at_ns;
    if (due_ns > world->now_ns)
        world->now_ns = due_ns;
}

bool sh_world_run_until(struct sh_world *world, bool (*predicate)(void *arg), void *arg,
                        uint64_t deadline_ns)
{
    SH_ASSERT(!world->in_round);
    wake_all(world);
    for (;;) {
        if (predicate && predicate(arg))
            return true;
        if (world->now_ns >= deadline_ns)
            return false;
        fire_due_events(world);
        if (run_round(world))
            /* Left-out steps cost time too, or a world of nothing else would stand still. */
            world->now_ns += 1;
        else
            advance(world, deadline_ns);
    }
}

void sh_world_trace(struct sh_world *world, unsigned node, const char *kind, uint64_t a, uint64_t b,
                    struct sh_bytes bytes)
{
    uint64_t bytes_hash = bytes.size ? sh_hash64(bytes, 0) : 0;
    uint64_t parts[] = {world->now_ns, node, sh_hash64(sh_bytes_text(kind), 0), a, b, bytes_hash};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        world->hash = sh_mix64(world->hash * UINT64_C(0x9e3779b97f4a7c15) + parts[i]);
    if (!world->config.trace)
        return;
    fprintf(world->config.trace, "%14.6f ms  ", (double)world->now_ns / 1e6);
    if (node == SH_WORLD_NOBODY)
        fprintf(world->config.trace, "world   ");
    else
        fprintf(world->config.trace, "node%-4u", node);
    fprintf(world->config.trace, "%-28s %" PRIu64 " %" PRIu64, kind, a, b);
    if (bytes.size)
        fprintf(world->config.trace, "  #%016" PRIx64, bytes_hash);
    fputc('\n', world->config.trace);
}

uint64_t sh_world_trace_hash(const struct sh_world *world)
{
    return world->hash;
}
