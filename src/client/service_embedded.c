/* Names, barriers and scratch of a store in this process: the state machine that superpeers
 * replicate (metadata/metadata.h), once, under a lock. Each call of a thread is one update or
 * question; who waits sleeps until something has changed. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "client/service_int.h"
#include "cluster/metadata_answers.h"
#include "cluster/proto.h"
#include "ring/arcs.h"

#define CONDITION_WAIT_NS_MAX (UINT64_C(3600) * 1000000000) /* then it looks again */

struct sh_local_services {
    struct sh_lock lock; /* guards the state */
    pthread_cond_t changed;
    struct sh_metadata *metadata;
};

enum shoal_err sh_local_services_open(shoal *store)
{
    struct sh_local_services *local = calloc(1, sizeof *local);
    if (!local || sh_metadata_create(&local->metadata)) {
        free(local);
        return SHOAL_ENOMEM;
    }
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC); /* the best that a condition takes */
    pthread_cond_init(&local->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    sh_lock_init(&local->lock, SH_LOCK_CLIENT);
    store->local = local;
    return SHOAL_OK;
}

void sh_local_services_close(shoal *store)
{
    struct sh_local_services *local = store->local;
    if (!local)
        return;
    store->local = NULL;
    sh_metadata_destroy(local->metadata);
    sh_lock_destroy(&local->lock);
    pthread_cond_destroy(&local->changed);
    free(local);
}

/* --- Updates and questions ------------------------------------------------------------------- */

enum shoal_err sh_local_update(shoal *store, const struct sh_metadata_update *update,
                               struct sh_metadata_result *result_out)
{
    struct sh_local_services *local = store->local;
    sh_lock_take(&local->lock);
    *result_out = sh_metadata_apply(local->metadata, sh_metadata_shard(update), update);
    pthread_cond_broadcast(&local->changed);
    sh_lock_release(&local->lock);
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
    struct sh_local_services *local = store->local;
    uint64_t now_ns;
    size_t size = 0;
    sh_lock_take(&local->lock);
    enum shoal_err err = ask_now(local->metadata, ask, answer_out, &size);
    while (err == SHOAL_EAGAIN && (now_ns = sh_now(&store->env.clock)) < ask->wait_until_ns) {
        struct timespec until = condition_time_in(ask->wait_until_ns - now_ns);
        (void)pthread_cond_timedwait(&local->changed, &local->lock.mutex, &until);
        err = ask_now(local->metadata, ask, answer_out, &size);
    }
    sh_lock_release(&local->lock);
    if (!err)
        *r_out = sh_reader_make(sh_bytes_make(*answer_out, size));
    return err;
}
