/* DXMem's workload mem-var: threads that create, read, write and remove chunks of all sizes.
 *
 * There, every thread draws from all chunks under one lock. Here each has chunks of its own, dealt
 * in turn, and no lock: what is measured is the store. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "bench/store_bench_int.h"

/* Percent of the operations beside the gets; the rest are removals, as many as creations. */
#define CREATES 10
#define PUTS 20

/* A chunk that lives, or below the living ones, a handle that is free. */
struct slot {
    uint64_t handle;
    uint64_t key; /* of its content */
    uint32_t size;
};

/* A thread and its chunks. */
struct actor {
    pthread_t thread;
    struct sh_memvar *memvar;
    enum sh_placement placement;
    unsigned index;
    struct slot *slots;
    uint64_t live; /* slots[0] to slots[live - 1] */
    uint64_t room;
    uint64_t state;
    uint64_t keys_used;
    uint8_t *bytes; /* of a batch */
    uint64_t ops;
    uint64_t moved;
    bool failed;
    struct sh_hist latency_ns;
};

struct sh_memvar {
    struct sh_subject *subject;
    struct actor *actors;
};

static uint64_t actor_random(struct actor *actor)
{
    actor->state += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(actor->state);
}

static uint64_t scaled(uint64_t random, uint64_t below)
{
    return (uint64_t)(((unsigned __int128)random * below) >> 64);
}

/* A creation, then a put of the contents. */
static bool some_create(struct actor *actor, unsigned count)
{
    struct sh_subject *subject = actor->memvar->subject;
    uint32_t sizes[SH_STORE_BATCH_MAX];
    uint64_t handles[SH_STORE_BATCH_MAX];
    struct sh_touch touches[SH_STORE_BATCH_MAX];
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    SH_ASSERT(actor->live + count <= actor->room);
    for (unsigned i = 0; i < count; i++) {
        sizes[i] = sh_sizes_draw(&subject->plan->sizes, actor_random(actor));
        handles[i] = actor->slots[actor->live + i].handle;
    }
    if (sh_subject_create(subject, sizes, count, handles) != SHOAL_OK)
        return false;
    uint64_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t key = (uint64_t)actor->index << 40 | actor->keys_used++;
        actor->slots[actor->live++] = (struct slot){handles[i], key, sizes[i]};
        touches[i] = (struct sh_touch){handles[i], actor->bytes + used, sizes[i]};
        sh_store_content_make(key, 0, actor->bytes + used, sizes[i]);
        used += sizes[i];
    }
    actor->moved += used;
    return sh_subject_put(subject, touches, count);
}

static bool some_remove(struct actor *actor, unsigned count)
{
    uint64_t handles[SH_STORE_BATCH_MAX];
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    for (unsigned i = 0; i < count; i++) {
        uint64_t at = scaled(actor_random(actor), actor->live);
        struct slot gone = actor->slots[at];
        actor->slots[at] = actor->slots[--actor->live];
        actor->slots[actor->live] = gone;
        handles[i] = gone.handle;
    }
    return sh_subject_remove(actor->memvar->subject, handles, count);
}

static bool some_touch(struct actor *actor, unsigned count, bool writes)
{
    struct sh_subject *subject = actor->memvar->subject;
    struct sh_touch touches[SH_STORE_BATCH_MAX];
    uint64_t keys[SH_STORE_BATCH_MAX];
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    uint64_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        const struct slot *slot = &actor->slots[scaled(actor_random(actor), actor->live)];
        touches[i] = (struct sh_touch){slot->handle, actor->bytes + used, slot->size};
        keys[i] = slot->key;
        if (writes)
            sh_store_content_make(slot->key, 0, actor->bytes + used, slot->size);
        used += slot->size;
    }
    actor->moved += used;
    if (writes)
        return sh_subject_put(subject, touches, count);
    bool good = sh_subject_get(subject, touches, count);
    for (unsigned i = 0; i < count && subject->plan->verify; i++)
        good &= sh_store_content_check(keys[i], touches[i].bytes, touches[i].size);
    return good;
}

static bool actor_act(struct actor *actor)
{
    unsigned batch = actor->memvar->subject->plan->batch;
    unsigned draw = (unsigned)scaled(actor_random(actor), 100);
    if (draw < SH_MEMVAR_GETS)
        return some_touch(actor, batch, false);
    if (draw < SH_MEMVAR_GETS + PUTS)
        return some_touch(actor, batch, true);
    /* At its bounds an actor does the opposite, so that its number stays about what was loaded. */
    bool creates = draw < SH_MEMVAR_GETS + PUTS + CREATES;
    creates = creates ? actor->live + batch <= actor->room : actor->live < 2 * (uint64_t)batch;
    return creates ? some_create(actor, batch) : some_remove(actor, batch);
}

static void *actor_main(void *arg)
{
    struct actor *actor = arg;
    const struct sh_store_plan *plan = actor->memvar->subject->plan;
    sh_bench_pin(actor->placement, actor->index % 2);
    uint64_t now_ns = sh_bench_now_ns();
    uint64_t deadline_ns = now_ns + (uint64_t)(plan->seconds * 1e9);
    while (!actor->failed && now_ns < deadline_ns) {
        bool good = true;
        for (unsigned i = 0; i < SH_STORE_SAMPLE_EVERY - 1 && plan->batch == 1; i++) {
            good &= actor_act(actor);
            actor->ops++;
        }
        uint64_t start_ns = sh_bench_now_ns();
        good &= actor_act(actor);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&actor->latency_ns, now_ns - start_ns);
        actor->ops += plan->batch;
        actor->failed = !good;
    }
    return NULL;
}

/* Gives an actor its room, of which each slot has a handle that no other has. */
static enum shoal_err actor_init(struct actor *actor, struct sh_memvar *memvar, unsigned index)
{
    const struct sh_store_plan *plan = memvar->subject->plan;
    actor->memvar = memvar;
    actor->index = index;
    actor->state = plan->seed * 1000003 + index;
    uint64_t share = plan->count / plan->threads + 1;
    actor->room = share + share / 8 + 2 * (uint64_t)plan->batch + plan->load_batch;
    actor->slots = calloc(actor->room, sizeof *actor->slots);
    uint64_t most = plan->batch > plan->load_batch ? plan->batch : plan->load_batch;
    actor->bytes = malloc(most * plan->sizes.most + 8);
    if (!actor->slots || !actor->bytes)
        return SHOAL_ENOMEM;
    for (uint64_t i = 0; i < actor->room; i++)
        actor->slots[i].handle = ((uint64_t)index << 40) + i + 1;
    while (actor->live < share) {
        uint64_t left = share - actor->live;
        if (!some_create(actor, left < plan->load_batch ? (unsigned)left : plan->load_batch))
            return SHOAL_ENOMEM;
    }
    return SHOAL_OK;
}

enum shoal_err sh_memvar_open(struct sh_subject *subject, struct sh_memvar **memvar_out)
{
    const struct sh_store_plan *plan = subject->plan;
    struct sh_memvar *memvar = calloc(1, sizeof *memvar);
    if (!memvar)
        return SHOAL_ENOMEM;
    memvar->subject = subject;
    memvar->actors = calloc(plan->threads, sizeof *memvar->actors);
    uint64_t chunks = plan->count + plan->count / 4 +
                      plan->threads * (2 * (uint64_t)plan->batch + plan->load_batch + 2);
    enum shoal_err err = memvar->actors ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err)
        err = sh_subject_open(subject, chunks, chunks * plan->sizes.most);
    for (unsigned i = 0; i < plan->threads && !err; i++)
        err = actor_init(&memvar->actors[i], memvar, i);
    if (err) {
        sh_memvar_close(memvar);
        return err;
    }
    *memvar_out = memvar;
    return SHOAL_OK;
}

void sh_memvar_close(struct sh_memvar *memvar)
{
    if (!memvar)
        return;
    for (unsigned i = 0; memvar->actors && i < memvar->subject->plan->threads; i++) {
        free(memvar->actors[i].slots);
        free(memvar->actors[i].bytes);
    }
    free(memvar->actors);
    free(memvar);
}

static enum shoal_err actors_run(struct sh_memvar *memvar, enum sh_placement placement,
                                 struct sh_bench_result *result)
{
    unsigned count = memvar->subject->plan->threads;
    unsigned started = 0;
    bool failed = false;
    for (; started < count; started++) {
        struct actor *actor = &memvar->actors[started];
        actor->placement = placement;
        actor->ops = 0;
        actor->moved = 0;
        sh_hist_reset(&actor->latency_ns);
        if (pthread_create(&actor->thread, NULL, actor_main, actor) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++) {
        (void)pthread_join(memvar->actors[i].thread, NULL);
        failed |= memvar->actors[i].failed;
        result->ops += memvar->actors[i].ops;
        result->bytes += memvar->actors[i].moved;
        sh_hist_merge(&result->latency_ns, &memvar->actors[i].latency_ns);
    }
    if (started < count)
        return SHOAL_ENOMEM;
    return failed ? SHOAL_EINTERNAL : SHOAL_OK;
}

/* Every chunk that lives is there, of its size, with its content: one of each 1 + live / 4096. */
static enum shoal_err actors_check(struct sh_memvar *memvar)
{
    struct sh_subject *subject = memvar->subject;
    for (unsigned i = 0; i < subject->plan->threads; i++) {
        struct actor *actor = &memvar->actors[i];
        uint64_t step = subject->plan->verify ? 1 : 1 + actor->live / 4096;
        for (uint64_t at = 0; at < actor->live; at += step) {
            const struct slot *slot = &actor->slots[at];
            struct sh_touch touch = {slot->handle, actor->bytes, slot->size};
            if (!sh_subject_get(subject, &touch, 1) ||
                !sh_store_content_check(slot->key, actor->bytes, slot->size))
                return SHOAL_EINTERNAL;
        }
    }
    return SHOAL_OK;
}

enum shoal_err sh_store_memvar_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct sh_memvar *memvar = arg;
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    enum shoal_err err = actors_run(memvar, placement, result_out);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    /* What was done depends on how long the run was, so the digest is of what it is done to. */
    result_out->digest = sh_store_plan_payload(memvar->subject->plan, 0);
    return err ? err : actors_check(memvar);
}
