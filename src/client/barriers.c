/* The public calls on barriers. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/service_int.h"
#include "cluster/proto.h"
#include "metadata/metadata_barriers.h"
#include "ring/arcs.h"

#define DRAWS_MAX 8
#define GIVE_UP_NS UINT64_C(1000000000)

_Static_assert(SHOAL_BARRIER_SIZE_MAX == SH_BARRIER_MEMBERS_MAX &&
                   SHOAL_BARRIER_DATA_MAX == SH_BARRIER_DATA_MAX &&
                   SHOAL_BARRIER_ROUND_MAX == SH_BARRIER_ROUND_BYTES_MAX,
               "the library's limits are the superpeers'");

static enum shoal_err size_check(uint32_t size)
{
    if (size && size <= SHOAL_BARRIER_SIZE_MAX)
        return SHOAL_OK;
    sh_client_detail_set("a barrier is for 1 to %d members", SHOAL_BARRIER_SIZE_MAX);
    return SHOAL_EINVAL;
}

enum shoal_err shoal_barrier_create(shoal *store, uint32_t size, enum shoal_barrier_death death,
                                    shoal_barrier *barrier_out)
{
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    if (!err && (!barrier_out || (unsigned)death > SHOAL_BARRIER_SURVIVORS))
        err = SHOAL_EINVAL;
    if (!err)
        err = size_check(size);
    if (err)
        return err;
    for (unsigned i = 0; i < DRAWS_MAX; i++) {
        struct sh_metadata_update update = {
            .kind = SH_METADATA_BARRIER_NEW,
            .barrier = sh_random64(&store->env.random) >> 16, /* short enough to be typed */
            .size = size,
            .flags = death == SHOAL_BARRIER_SURVIVORS ? SH_BARRIER_SURVIVORS : 0};
        err = sh_service_update(store, &update, &result);
        if (!err)
            barrier_out->v = update.barrier;
        if (err != SHOAL_EEXIST && err != SHOAL_ELIMIT)
            return err;
    }
    return err;
}

enum shoal_err shoal_barrier_resize(shoal *store, shoal_barrier barrier, uint32_t size)
{
    struct sh_metadata_update update = {
        .kind = SH_METADATA_BARRIER_RESIZE, .barrier = barrier.v, .size = size};
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    if (!err)
        err = size_check(size);
    return err ? err : sh_service_update(store, &update, &result);
}

enum shoal_err shoal_barrier_free(shoal *store, shoal_barrier barrier)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_BARRIER_FREE, .barrier = barrier.v};
    struct sh_metadata_result result;
    enum shoal_err err = sh_service_begin(store);
    return err ? err : sh_service_update(store, &update, &result);
}

/* --- Rounds ---------------------------------------------------------------------------------- */

/* Reads the members, whose data stays where the answer is: a copy of it behind the round. */
static enum shoal_err members_get(struct sh_reader *r, struct shoal_barrier_round *round)
{
    for (uint32_t i = 0; i < round->count; i++) {
        struct shoal_barrier_member *member = &round->members[i];
        member->id = sh_get64(r);
        struct sh_bytes data = sh_get_text(r);
        member->data = data.at;
        member->size = (uint32_t)data.size;
    }
    return sh_reader_done(r) ? SHOAL_OK : SHOAL_EPROTO;
}

/* One block: the round, its members, the answer's bytes. `number`: the round asked for, 0: the
 * open one. */
static enum shoal_err round_get(struct sh_reader *from, uint64_t number,
                                struct shoal_barrier_round **round_out)
{
    size_t size = sh_reader_left(from);
    struct sh_reader r = *from;
    struct shoal_barrier_round head = {.size = sh_get32(&r)};
    head.survivors = sh_get8(&r) & SH_BARRIER_SURVIVORS;
    uint64_t open = sh_get64(&r);
    uint32_t open_count = sh_get32(&r);
    uint8_t has_members = sh_get8(&r);
    head.number = number ? number : open;
    if (has_members) {
        head.gone = sh_get64(&r);
        head.count = sh_get32(&r);
    }
    if (!sh_reader_ok(&r) || has_members > 1 || head.count > SHOAL_BARRIER_SIZE_MAX ||
        open_count > SHOAL_BARRIER_SIZE_MAX || head.number > open)
        return SHOAL_EPROTO;
    size_t used = size - sh_reader_left(&r);
    size_t members_bytes = head.count * sizeof *head.members;
    struct shoal_barrier_round *round = malloc(sizeof *round + members_bytes + size);
    if (!round)
        return SHOAL_ENOMEM;
    *round = head;
    round->members = (struct shoal_barrier_member *)(round + 1);
    uint8_t *bytes = (uint8_t *)(round + 1) + members_bytes;
    memcpy(bytes, from->at, size);
    r = sh_reader_make(sh_bytes_make(bytes + used, size - used));
    enum shoal_err err = members_get(&r, round);
    if (err)
        free(round);
    else
        *round_out = round;
    return err;
}

void shoal_barrier_round_free(struct shoal_barrier_round *round)
{
    free(round);
}

static enum shoal_err round_ask(shoal *store, const struct sh_service_ask *ask,
                                struct shoal_barrier_round **round_out)
{
    uint8_t *answer;
    struct sh_reader r;
    enum shoal_err err = sh_service_ask(store, ask, &answer, &r);
    if (err)
        return err;
    err = round_get(&r, ask->round, round_out);
    free(answer);
    return err;
}

enum shoal_err shoal_barrier_status(shoal *store, shoal_barrier barrier,
                                    struct shoal_barrier_round **round_out)
{
    enum shoal_err err = sh_service_begin(store);
    if (err || !round_out)
        return err ? err : SHOAL_EINVAL;
    struct sh_service_ask ask = {
        .kind = SH_ASK_BARRIER, .barrier = barrier.v, .deadline_ns = sh_client_deadline_ns(store)};
    return round_ask(store, &ask, round_out);
}

enum shoal_err shoal_barrier_list(shoal *store, shoal_barrier_each each, void *arg)
{
    enum shoal_err err = sh_service_begin(store);
    bool goes_on = true;
    if (!err && !each)
        err = SHOAL_EINVAL;
    for (uint8_t shard = 0; !err && goes_on && shard < SH_SHARDS; shard++) {
        struct sh_service_ask ask = {
            .kind = SH_ASK_BARRIERS, .shard = shard, .deadline_ns = sh_client_deadline_ns(store)};
        uint8_t *answer;
        struct sh_reader r;
        err = sh_service_ask(store, &ask, &answer, &r);
        if (err)
            break;
        while (goes_on && sh_reader_left(&r) > 0) {
            struct shoal_barrier_info info = {.barrier.v = sh_get64(&r)};
            info.size = sh_get32(&r);
            info.survivors = sh_get8(&r) & SH_BARRIER_SURVIVORS;
            info.round = sh_get64(&r);
            info.count = sh_get32(&r);
            if (sh_reader_ok(&r))
                goes_on = each(arg, &info);
        }
        if (!sh_reader_ok(&r))
            err = SHOAL_EPROTO;
        free(answer);
    }
    return err;
}

/* A place among the calls under way is taken for the update alone, not while a member waits: a
 * barrier may have more members than there are places. */
static enum shoal_err update_by(shoal *store, struct sh_metadata_update *update,
                                uint64_t deadline_ns, struct sh_metadata_result *result_out)
{
    struct sh_service_caller caller;
    enum shoal_err err = sh_service_caller_take(store, deadline_ns, &caller);
    if (err)
        return err;
    err = sh_service_update_as(store, &caller, update, deadline_ns, result_out);
    sh_service_caller_release(store, &caller);
    return err;
}

static enum shoal_err off(shoal *store, const struct sh_service_ask *ask, uint64_t deadline_ns)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_BARRIER_OFF,
                                        .barrier = ask->barrier,
                                        .member = ask->member,
                                        .round = ask->round};
    struct sh_metadata_result result;
    return update_by(store, &update, deadline_ns, &result);
}

/* Others are still missing: signs off, or if the round is over by now gets it all the same. */
static enum shoal_err sign_off(shoal *store, struct sh_service_ask *ask,
                               struct shoal_barrier_round **round_out)
{
    uint64_t deadline_ns = sh_client_deadline_ns(store);
    enum shoal_err err = off(store, ask, deadline_ns);
    if (err == SHOAL_ECANCELED) {
        ask->wait_until_ns = 0;
        ask->deadline_ns = deadline_ns;
        return round_ask(store, ask, round_out);
    }
    if (!err)
        sh_client_detail_set("others have not signed on");
    return err ? err : SHOAL_ETIMEOUT;
}

/* The call fails, and may have signed on: others must not wait for it, nor lose their round when it
 * is found dead. As far as that can be said within a second. */
static void give_up(shoal *store, struct sh_service_ask *ask)
{
    struct shoal_barrier_round *round;
    uint64_t deadline_ns = sh_now(&store->env.clock) + GIVE_UP_NS;
    struct sh_service_ask which = {
        .kind = SH_ASK_BARRIER, .barrier = ask->barrier, .deadline_ns = deadline_ns};
    char detail[SH_DETAIL_BYTES];
    memcpy(detail, sh_client_detail(), sizeof detail);
    if (!ask->round && round_ask(store, &which, &round) == SHOAL_OK) {
        ask->round = round->number;
        free(round);
    }
    if (ask->round && off(store, ask, deadline_ns))
        SH_DEBUG("client", "a member of a barrier is not off", SH_U64("barrier", ask->barrier));
    memcpy(sh_client_detail(), detail, sizeof detail);
}

static enum shoal_err sign_and_wait(shoal *store, uint64_t member, shoal_barrier barrier,
                                    struct sh_bytes data, uint64_t timeout_ns,
                                    struct shoal_barrier_round **round_out)
{
    struct sh_metadata_update update = {
        .kind = SH_METADATA_BARRIER_SIGN, .barrier = barrier.v, .member = member, .value = data};
    struct sh_metadata_result result;
    uint64_t longest_ns = UINT64_MAX / 4;
    uint64_t until_ns =
        sh_now(&store->env.clock) + (timeout_ns < longest_ns ? timeout_ns : longest_ns);
    struct sh_service_ask ask = {.kind = SH_ASK_BARRIER,
                                 .barrier = barrier.v,
                                 .member = member,
                                 .wait_until_ns = until_ns,
                                 .deadline_ns = until_ns + store->timeout_ns};
    enum shoal_err err = update_by(store, &update, sh_client_deadline_ns(store), &result);
    if (!err) {
        ask.round = result.cid.v;
        err = round_ask(store, &ask, round_out);
        if (err == SHOAL_EAGAIN)
            return sign_off(store, &ask, round_out);
    }
    /* It is not there any more, or never was. */
    if (err && err != SHOAL_EBROKEN && err != SHOAL_ENONAME && err != SHOAL_ELIMIT)
        give_up(store, &ask);
    return err;
}

static bool is_among(const struct shoal_barrier_round *round, uint64_t member)
{
    uint32_t at = 0;
    while (at < round->count && round->members[at].id != member)
        at++;
    return at < round->count;
}

enum shoal_err shoal_barrier_wait(shoal *store, shoal_barrier barrier, const void *data,
                                  uint32_t size, uint64_t timeout_ns,
                                  struct shoal_barrier_round **round_out)
{
    struct shoal_barrier_round *round = NULL;
    enum shoal_err err = sh_service_begin(store);
    if (round_out)
        *round_out = NULL;
    if (!err && size && !data)
        err = SHOAL_EINVAL;
    if (!err && size > SHOAL_BARRIER_DATA_MAX) {
        sh_client_detail_set("a member's data is at most %d bytes", SHOAL_BARRIER_DATA_MAX);
        err = SHOAL_ETOOBIG;
    }
    if (err)
        return err;
    uint64_t member = sh_random64(&store->env.random) | 1; /* not 0 */
    err = sign_and_wait(store, member, barrier, sh_bytes_make(data, size), timeout_ns, &round);
    /* The round may have been over without this member, which was taken for dead; or so many are
     * over by now that nobody can tell. */
    if (!err && (round->gone || !is_among(round, member)))
        err = SHOAL_EBROKEN;
    if (round)
        round->self = member;
    if (round_out && round)
        *round_out = round;
    else
        free(round);
    return err;
}
