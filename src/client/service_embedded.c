/* Names, barriers and scratch of a store in this process: the state machine that superpeers
 * replicate (metadata/metadata.h), once for the names, which may be found again (names_durable_int.h),
 * and once for the rest, which is gone with the handle. Each call of a thread is one update or
 * question. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "client/names_durable_int.h"
#include "client/service_int.h"
#include "cluster/metadata_answers.h"
#include "cluster/proto.h"
#include "ring/arcs.h"

#define CONDITION_WAIT_NS_MAX (UINT64_C(3600) * 1000000000) /* then it looks again */

struct sh_local_services {
    struct sh_local_state names, rest; /* no thread takes the locks of both */
};

static enum shoal_err state_open(struct sh_local_state *state)
{
    if (sh_metadata_create(&state->metadata))
        return SHOAL_ENOMEM;
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* the best that a condition takes */
    pthread_cond_init(&state->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sh_lock_init(&state->lock, SH_LOCK_CLIENT);
    return SHOAL_OK;
}

static void state_close(struct sh_local_state *state)
{
    if (!state->metadata)
        return;
    sh_metadata_destroy(state->metadata);
    sh_lock_destroy(&state->lock);
    pthread_cond_destroy(&state->changed);
}

enum shoal_err sh_local_services_open(shoal *store)
{
    store->local = calloc(1, sizeof *store->local);
    if (!store->local)
        return SHOAL_ENOMEM;
    enum shoal_err err = state_open(&store->local->names);
    return err ? err : state_open(&store->local->rest);
}

void sh_local_services_close(shoal *store)
{
    if (!store->local)
        return;
    state_close(&store->local->rest);
    state_close(&store->local->names);
    free(store->local);
    store->local = NULL;
}

struct sh_local_state *sh_local_names(shoal *store)
{
    return &store->local->names;
}

/* --- Updates and questions ------------------------------------------------------------------- */

static bool is_of_name(const struct sh_metadata_update *update)
{
    return update->kind == SH_METADATA_NAME || update->kind == SH_METADATA_UNNAME;
}

bool sh_local_is_durable(const shoal *store, const struct sh_metadata_update *update)
{
    return store->names && is_of_name(update);
}

struct changing {
    struct sh_name_change change;
    struct sh_waiter waiter;
};

static void on_changed(struct sh_name_change *change)
{
    struct changing *changing = change->arg;
    sh_waiter_complete(&changing->waiter);
}

/* Says what is with the disk, and with the change. */
static void trouble_explain(const struct sh_name_change *change)
{
    enum shoal_err err = change->result.err;
    if (err != SHOAL_EIO && err != SHOAL_ENOSPC)
        return;
    sh_client_detail_set("the names' journal in data_dir can't be written: %s; the change %s",
                         err == SHOAL_ENOSPC ? "make room on its disk"
                                             : "see to its disk, and whether that is read-only",
                         change->is_unclear ? "may still be done, once it can" : "was not done");
}

enum shoal_err sh_local_names_run(shoal *store, const struct sh_metadata_update *update,
                                  struct sh_metadata_result *result_out)
{
    struct changing changing = {.change = {.update = update, .done = on_changed}};
    changing.change.arg = &changing;
    sh_names_begin(store->names, &changing.change);
    bool is_done = sh_crew_wait(store->crew, 0, &changing.waiter, SH_NEVER);
    SH_ASSERT(is_done);
    trouble_explain(&changing.change);
    *result_out = changing.change.result;
    return result_out->err;
}

enum shoal_err sh_local_update(shoal *store, const struct sh_metadata_update *update,
                               struct sh_metadata_result *result_out)
{
    struct sh_local_services *local = store->local;
    struct sh_local_state *state = is_of_name(update) ? &local->names : &local->rest;
    if (sh_local_is_durable(store, update))
        return sh_local_names_run(store, update, result_out);
    sh_lock_take(&state->lock);
    *result_out = sh_metadata_apply(state->metadata, sh_metadata_shard(update), update);
    pthread_cond_broadcast(&state->changed);
    sh_lock_release(&state->lock);
    return result_out->err;
}

static enum shoal_err copy(struct sh_bytes bytes, uint8_t **answer_out, size_t *size_out)
{
    uint8_t *answer = malloc(bytes.size ? bytes.size : 1);
    if (!answer)
        return SHOAL_ENOMEM;
    if (bytes.size)
        memcpy(answer, bytes.at, bytes.size);
    *answer_out = answer;
    *size_out = bytes.size;
    return SHOAL_OK;
}

static enum shoal_err barrier_ask(const struct sh_metadata *metadata,
                                  const struct sh_service_ask *ask, uint8_t **answer_out,
                                  size_t *size_out)
{
    struct sh_barrier *barrier = sh_metadata_barrier(metadata, ask->barrier);
    struct sh_barrier_member *member;
    const struct sh_barrier_round *round;
    if (!barrier)
        return SHOAL_ENONAME;
    enum shoal_err err = sh_barrier_look(barrier, ask->round, ask->member, &member, &round);
    if (err)
        return err;
    size_t size = sh_barrier_answer_size(round);
    uint8_t *answer = malloc(size);
    if (!answer)
        return SHOAL_ENOMEM;
    struct sh_writer w = sh_writer_make(answer, size);
    sh_barrier_answer_put(&w, barrier, round);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    *answer_out = answer;
    *size_out = size;
    return SHOAL_OK;
}

static enum shoal_err ask_now(const struct sh_metadata *metadata, const struct sh_service_ask *ask,
                              uint8_t **answer_out, size_t *size_out)
{
    uint8_t bytes[SH_METADATA_PAGE_BYTES];
    struct sh_bytes value = {bytes, 8};
    shoal_cid cid;
    enum shoal_err err = SHOAL_OK;
    switch (ask->kind) {
    case SH_ASK_NAME:
        err = sh_metadata_lookup(metadata, ask->key, &cid);
        if (!err)
            sh_store64(bytes, cid.v);
        break;
    case SH_ASK_SCRATCH:
        err = sh_metadata_scratch_get(metadata, ask->key, &value);
        break;
    case SH_ASK_BARRIER:
        return barrier_ask(metadata, ask, answer_out, size_out);
    case SH_ASK_BARRIERS:
        value.size = sh_barriers_put(metadata, ask->shard, bytes);
        break;
    default:
        value.size =
            sh_metadata_page_put(metadata, ask->kind, ask->shard, ask->key, ask->after, bytes);
        break;
    }
    if (err == SHOAL_ENONAME && ask->wait_until_ns)
        return SHOAL_EAGAIN;
    return err ? err : copy(value, answer_out, size_out);
}

/* The time of the condition's clock when so long has passed. */
static struct timespec condition_time_in(uint64_t ns)
{
    struct timespec at;
    int failed = clock_gettime(CLOCK_MONOTONIC, &at);
    SH_ASSERT(!failed);
    ns = ns < CONDITION_WAIT_NS_MAX ? ns : CONDITION_WAIT_NS_MAX;
    ns += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

enum shoal_err sh_local_ask(shoal *store, const struct sh_service_ask *ask, uint8_t **answer_out,
                            struct sh_reader *r_out)
{
    bool is_of_names = ask->kind == SH_ASK_NAME || ask->kind == SH_ASK_NAMES;
    struct sh_local_state *state = is_of_names ? &store->local->names : &store->local->rest;
    uint64_t now_ns;
    size_t size = 0;
    sh_lock_take(&state->lock);
    enum shoal_err err = ask_now(state->metadata, ask, answer_out, &size);
    while (err == SHOAL_EAGAIN && (now_ns = sh_now(&store->env.clock)) < ask->wait_until_ns) {
        struct timespec until = condition_time_in(ask->wait_until_ns - now_ns);
        (void)pthread_cond_timedwait(&state->changed, &state->lock.mutex, &until);
        err = ask_now(state->metadata, ask, answer_out, &size);
    }
    sh_lock_release(&state->lock);
    if (!err)
        *r_out = sh_reader_make(sh_bytes_make(*answer_out, size));
    return err;
}
