/* Programs on libshoal in a simulated cluster: how they run, and how they die. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/cluster_programs_int.h"
#include "sim/world_int.h"

#define IDLE_NS (50 * CW_MS)
#define JUMP_NS CW_S
#define DYING_ROUNDS_MAX 1000000

uint64_t cw_program_now(const struct cw_program *program)
{
    return cw_now(program->host) + program->jump_ns;
}

void cw_say(struct cw_world *world, unsigned node, const char *format, ...)
{
    char text[200];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(text, sizeof text, format, list);
    va_end(list);
    sh_world_trace(world->sim, node, "says()", 0, 0, sh_bytes_text(text));
    if (world->config.story)
        fprintf(world->config.story, "%14.6f ms  program %u: %s\n",
                (double)sh_world_now(world->sim) / 1e6, world->hosts[node].index, text);
}

/* --- The library's outside ---------------------------------------------------------------------
 */

static uint64_t on_now(void *arg)
{
    return cw_program_now(arg);
}

static uint64_t on_wall(void *arg)
{
    struct cw_program *program = arg;
    const struct sh_env *env = sh_world_env(program->host->world->sim, program->host->node);
    return env->clock.wall_ns(env->clock.arg);
}

static void on_step_add(void *arg, struct sh_step step)
{
    struct cw_program *program = arg;
    SH_ASSERT(program->step_count < CW_LIBRARY_STEPS);
    program->steps[program->step_count++] = step;
}

static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    struct cw_program *program = arg;
    struct cw_fiber *fiber = program->current;
    SH_ASSERT(fiber);
    fiber->waiter = waiter;
    fiber->deadline_ns = deadline_ns;
    sh_fiber_pause();
    fiber->waiter = NULL;
    return sh_waiter_done(waiter);
}

void cw_fiber_sleep(struct cw_fiber *fiber, uint64_t ns)
{
    struct sh_waiter nobody = {0};
    (void)on_wait(fiber->program, &nobody, cw_program_now(fiber->program) + ns);
}

/* --- Fibers ------------------------------------------------------------------------------------
 */

/* Until the cluster is found. A handle that was refused has left steps behind. */
static void store_open(struct cw_fiber *fiber)
{
    struct cw_program *program = fiber->program;
    while (!program->is_dying) {
        program->step_count = 0;
        enum shoal_err err =
            sh_client_open_in(&program->outside, &program->options, &program->store);
        if (err) {
            program->step_count = 0;
            cw_fiber_sleep(fiber, IDLE_NS);
            continue;
        }
        cw_say(program->host->world, program->host->node, "has opened the cluster");
        program->is_open = true;
        return;
    }
}

static void do_something(struct cw_fiber *fiber)
{
    switch (fiber->index) {
    case 2:
    case 3:
        cw_names_do(fiber);
        break;
    case 4:
    case 5:
        cw_barriers_do(fiber);
        break;
    case 7:
        cw_operate(fiber);
        break;
    case 8:
    case 9:
        cw_locks_do(fiber);
        break;
    case CW_MULTI:
        cw_multi_do(fiber);
        break;
    default:
        cw_words_do(fiber);
        break;
    }
}

static void fiber_run(void *arg)
{
    struct cw_fiber *fiber = arg;
    struct cw_world *world = cw_world_of(fiber);
    if (fiber->index == 0)
        store_open(fiber);
    if (fiber->index == 6)
        cw_events_follow(fiber);
    while (!fiber->program->is_dying) {
        if (world->ends) {
            if (fiber->index == 2)
                cw_names_look(fiber);
            if (fiber->index == 4)
                cw_barriers_look(fiber);
            cw_fiber_sleep(fiber, IDLE_NS);
            continue;
        }
        fiber->is_busy = true;
        do_something(fiber);
        fiber->is_busy = false;
        if (!fiber->program->is_dying)
            cw_fiber_sleep(fiber, 1 + cw_draw(fiber, world->config.think_ns_max));
    }
}

static bool can_go_on(const struct cw_fiber *fiber)
{
    const struct cw_program *program = fiber->program;
    if (sh_fiber_ended(fiber->fiber))
        return false;
    const struct sh_cluster_world_config *config = &program->host->world->config;
    if (fiber->index >= CW_FIRST_LOCKER &&
        !(fiber->index == CW_MULTI ? config->multis : config->locks))
        return false;
    if (!fiber->waiter)
        return !program->is_dying && (fiber->index == 0 || program->is_open);
    return sh_waiter_done(fiber->waiter) || cw_program_now(program) >= fiber->deadline_ns;
}

static unsigned fibers_run(void *arg)
{
    struct cw_program *program = arg;
    unsigned work = 0;
    for (unsigned i = 0; i < CW_FIBERS; i++) {
        struct cw_fiber *fiber = &program->fibers[i];
        if (!can_go_on(fiber))
            continue;
        program->current = fiber;
        sh_fiber_resume(fiber->fiber);
        program->current = NULL;
        work++;
    }
    return work;
}

static uint64_t fibers_due(void *arg)
{
    struct cw_program *program = arg;
    uint64_t due_ns = SH_NEVER;
    for (unsigned i = 0; i < CW_FIBERS; i++) {
        const struct cw_fiber *fiber = &program->fibers[i];
        if (can_go_on(fiber))
            return 0;
        if (fiber->waiter && fiber->deadline_ns < due_ns)
            due_ns = fiber->deadline_ns;
    }
    return due_ns;
}

/* --- The library's steps -----------------------------------------------------------------------
 */

static unsigned library_run(void *arg)
{
    struct cw_program *program = arg;
    unsigned work = 0;
    for (unsigned i = 0; i < program->step_count; i++)
        work += program->steps[i].run(program->steps[i].arg);
    return work;
}

static uint64_t library_due(void *arg)
{
    struct cw_program *program = arg;
    return sh_steps_due_ns(program->steps, program->step_count);
}

/* --- Life --------------------------------------------------------------------------------------
 */

static void options_set(struct cw_program *program)
{
    struct cw_world *world = program->host->world;
    struct sh_options_error error;
    char addresses[SH_CLUSTER_SUPERPEERS_MAX * SH_MSG_ADDRESS_MAX] = "";
    for (unsigned i = 0; i < world->config.superpeers; i++) {
        (void)strcat(addresses, i ? "," : "");
        (void)strcat(addresses, world->addresses[i]);
    }
    enum shoal_err err = sh_options_init(&program->options);
    if (!err)
        err = sh_options_set(&program->options, "cluster", "test", "simulation", &error);
    if (!err)
        err = sh_options_set(&program->options, "connect", addresses, "simulation", &error);
    SH_ASSERT(err == SHOAL_OK);
    program->options.request_timeout_ns = (3 + cw_below(world, 4)) * CW_S;
    program->options.connect_timeout_ns = CW_S / 2;
    program->options.ring_bytes = 65536;
    program->options.cache_ranges_max = 64;
}

void cw_program_boot(struct cw_host *host)
{
    struct cw_world *world = host->world;
    struct cw_program *program = sh_sim_alloc(sizeof *program);
    host->program = program;
    program->host = host;
    program->prng = sh_prng_split(world->prng);
    uint64_t life = sh_mix64(world->config.seed + 1000 * host->index + host->boots);
    program->locks_prng = sh_prng_make(life + UINT64_C(0x6c6f636b));
    program->multi_prng = sh_prng_make(life + UINT64_C(0x6d756c7469));
    options_set(program);
    cw_replica_open(program);
    program->outside.env = *sh_world_env(world->sim, host->node);
    program->outside.env.clock =
        (struct sh_clock){.now_ns = on_now, .wall_ns = on_wall, .arg = program};
    program->outside.crew =
        (struct sh_crew_world){.step_add = on_step_add, .wait = on_wait, .arg = program};
    for (unsigned i = 0; i < CW_FIBERS; i++) {
        program->fibers[i] = (struct cw_fiber){.program = program, .index = i};
        program->fibers[i].fiber = sh_fiber_create(fiber_run, &program->fibers[i]);
    }
    sh_world_step_add(
        world->sim, host->node,
        (struct sh_step){
            .name = "library", .run = library_run, .due_ns = library_due, .arg = program});
    sh_world_step_add(
        world->sim, host->node,
        (struct sh_step){
            .name = "fibers", .run = fibers_run, .due_ns = fibers_due, .arg = program});
}

static bool has_ended(const struct cw_program *program)
{
    for (unsigned i = 0; i < CW_FIBERS; i++) {
        const struct cw_fiber *fiber = &program->fibers[i];
        if (fiber->waiter && !sh_fiber_ended(fiber->fiber))
            return false;
    }
    return true;
}

/* Its calls end, one way or another, with a clock that runs ahead and a wire that is down or will
 * not be polled again: nobody hears of it, and nothing of it is recorded. */
void cw_program_drop(struct cw_host *host)
{
    struct cw_program *program = host->program;
    if (!program)
        return;
    program->is_dying = true;
    cw_locks_dropped(host);
    for (unsigned rounds = 0; !has_ended(program); rounds++) {
        SH_ASSERT(rounds < DYING_ROUNDS_MAX);
        if (!library_run(program) && !fibers_run(program))
            program->jump_ns += JUMP_NS;
        (void)fibers_run(program);
    }
    shoal_close(program->store);
    for (unsigned i = 0; i < CW_FIBERS; i++)
        sh_fiber_destroy(program->fibers[i].fiber);
    sh_options_destroy(&program->options);
    cw_replica_close(program);
    free(program);
    host->program = NULL;
}

const char *cw_programs_wait(struct cw_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_program *program = world->hosts[i].program;
        for (unsigned k = 0; program && k < CW_FIBERS; k++) {
            if (program->fibers[k].is_busy)
                return "a call of a program is not over";
        }
    }
    if (!world->config.programs)
        return NULL;
    if (!cw_barriers_are_empty(world))
        return "a member of a barrier is left, though nobody waits";
    if (!cw_names_are_read(world))
        return "a name can't be read";
    const char *why = cw_words_wait(world);
    return why ? why : cw_events_wait(world);
}

static void on_restart(void *arg, uint64_t node, uint64_t unused)
{
    struct cw_world *world = arg;
    (void)unused;
    sh_world_restart(world->sim, (unsigned)node);
}

/* A program that waits at a barrier, while nothing else goes wrong: the others are to be told. */
static void waiter_kill(struct cw_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_program *program = world->hosts[i].program;
        if (!program || (!program->fibers[4].is_busy && !program->fibers[5].is_busy))
            continue;
        sh_world_crash(world->sim, i);
        sh_world_at(world->sim, sh_world_now(world->sim) + CW_S, on_restart, world, i, 0);
        return;
    }
}

void cw_programs_end(struct cw_world *world)
{
    if (!world->config.is_quiet && world->config.programs > 1 && cw_below(world, 2))
        waiter_kill(world);
    cw_barriers_ask(world);
    cw_names_ask(world);
}

void cw_programs_watch(struct cw_world *world)
{
    cw_shards_watch(world);
    cw_locks_watch(world);
}

void cw_programs_check(struct cw_world *world)
{
    cw_names_check(world);
    cw_words_check(world);
}

void cw_programs_open(struct cw_world *world)
{
    world->programs = sh_sim_alloc(sizeof *world->programs);
}

void cw_programs_close(struct cw_world *world)
{
    free(world->programs);
}
