/* Asking the superpeers: each shard has an owner, who is asked; who is not it says who is. While
 * superpeers fail or change hands the question is repeated until its time is over. */
#include <stdlib.h>
#include <string.h>

#include "client/service_int.h"
#include "cluster/proto.h"
#include "ring/arcs.h"

#define CALLERS 64
#define HOPS_MAX 4
#define WAIT_NS UINT64_C(1000000000)      /* of one question, for what is not there yet */
#define COUNT_AGE_NS UINT64_C(1000000000) /* of a count of updates, until it is asked for anew */

struct sh_services_of_client {
    uint8_t owners[SH_SHARDS]; /* who has answered last; 0: not known; under retry_lock, as all */
    uint64_t callers_taken;    /* a bit for each */
    uint64_t caller_base;      /* random; the lowest bits are the slot */
    uint64_t numbers[CALLERS];
    /* What each shard's count of updates was, and when: metadata.h. */
    struct {
        uint64_t count;
        uint64_t asked_ns; /* 0: not asked yet */
    } updates[SH_SHARDS];
};

enum shoal_err sh_client_services_open(struct shoal *store)
{
    store->services = calloc(1, sizeof *store->services);
    if (!store->services)
        return SHOAL_ENOMEM;
    /* Not 0, also with the slot 0. */
    store->services->caller_base = (sh_random64(&store->env.random) | CALLERS) & ~UINT64_C(63);
    return SHOAL_OK;
}

void sh_client_services_close(struct shoal *store)
{
    free(store->services);
    store->services = NULL;
}

enum shoal_err sh_service_begin(shoal *store)
{
    enum shoal_err err = sh_client_blocking();
    if (err)
        return err;
    if (!store)
        return SHOAL_EINVAL;
    if (!store->is_embedded)
        sh_client_refresh_if_due(store, sh_now(&store->env.clock));
    return SHOAL_OK;
}

enum shoal_err sh_service_key(const char *text, struct sh_bytes *key_out)
{
    size_t size = text ? strlen(text) : 0;
    if (!size || size > SHOAL_NAME_MAX) {
        sh_client_detail_set("a name is 1 to %d bytes", SHOAL_NAME_MAX);
        return SHOAL_EINVAL;
    }
    *key_out = sh_bytes_make(text, size);
    return SHOAL_OK;
}

/* --- Whom to ask ----------------------------------------------------------------------------- */

static bool is_superpeer_up(shoal *store, unsigned nid)
{
    struct sh_node node;
    return nid &&
           sh_directory_node(store->directory, (shoal_nid){(uint16_t)nid}, &node) == SHOAL_OK &&
           node.role == SH_ROLE_SUPERPEER && node.state == SH_NODE_UP;
}

/* The shard's owner as far as is known, or another superpeer at each try, who will point to it. */
shoal_nid sh_exchange_whom(shoal *store, unsigned shard, unsigned tries)
{
    sh_spin_take(&store->retry_lock);
    unsigned owner = store->services->owners[shard];
    sh_spin_release(&store->retry_lock);
    if (is_superpeer_up(store, owner))
        return (shoal_nid){(uint16_t)owner};
    unsigned up[SH_SUPERPEERS_MAX], count = 0;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++)
        if (is_superpeer_up(store, nid))
            up[count++] = nid;
    if (!count)
        return SHOAL_NID_NONE;
    return (shoal_nid){(uint16_t)up[(shard + tries) % count]};
}

static void owner_set(shoal *store, unsigned shard, uint16_t owner)
{
    sh_spin_take(&store->retry_lock);
    store->services->owners[shard] = owner <= SH_SUPERPEERS_MAX ? (uint8_t)owner : 0;
    sh_spin_release(&store->retry_lock);
}

/* --- One exchange ---------------------------------------------------------------------------- */

static bool may_repeat(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EBUSY:
    case SHOAL_ELIMIT:
    case SHOAL_ENONODE:
    case SHOAL_EUNREACHABLE:
    case SHOAL_ECONNLOST:
    case SHOAL_ETIMEOUT:
    case SHOAL_ESTOPPED:
        return true;
    default:
        return false;
    }
}

static enum shoal_err pause_before(shoal *store, uint64_t until_ns)
{
    struct sh_waiter pause = {0};
    (void)sh_crew_wait(store->crew, 0, &pause, until_ns);
    return SHOAL_OK;
}

/* Asks one superpeer. The answer's first two bytes are taken off: *redirect_out. */
static enum shoal_err ask_one(shoal *store, struct sh_exchange *ex, shoal_nid to, uint64_t now_ns,
                              uint8_t **answer_out, size_t *size_out, uint16_t *redirect_out)
{
    struct sh_caller caller = sh_client_caller(store);
    uint64_t timeout_ns = ex->wait_ns + SH_SERVICE_PATIENCE_NS;
    if (timeout_ns > ex->deadline_ns - now_ns)
        timeout_ns = ex->deadline_ns - now_ns;
    enum shoal_err err = sh_call(&caller, to, ex->type, ex->payload, timeout_ns, answer_out,
                                 size_out, sh_client_detail());
    if (err)
        return sh_err_get(err);
    if (*size_out < 2) {
        free(*answer_out);
        return SHOAL_EPROTO;
    }
    *redirect_out = sh_load16(*answer_out);
    return SHOAL_OK;
}

/* What to say when the time is over. */
static enum shoal_err give_up(const struct sh_exchange *ex, enum shoal_err err)
{
    if (ex->is_unclear && ex->is_update) {
        sh_client_detail_set(
            "no superpeer said in time what came of it: it may or may not have been done");
        return SHOAL_ETIMEOUT;
    }
    if (may_repeat(err) && !*sh_client_detail())
        sh_client_detail_set("no superpeer that can tell answered in time");
    return err;
}

enum sh_verdict sh_exchange_after(shoal *store, struct sh_exchange *ex, shoal_nid to,
                                  enum shoal_err err, uint16_t redirect, enum shoal_err *err_out)
{
    *err_out = err;
    if (!err && !redirect) {
        owner_set(store, ex->shard, to.v);
        return SH_VERDICT_OVER;
    }
    if (!err) {
        owner_set(store, ex->shard, redirect);
        if (redirect != to.v && ex->hops++ < HOPS_MAX)
            return SH_VERDICT_AGAIN;
        err = SHOAL_EBUSY;
    }
    bool may = may_repeat(err) && !sh_client_closing(store);
    if (may) {
        owner_set(store, ex->shard, 0);
        ex->is_unclear |= err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT || err == SHOAL_ESTOPPED;
        ex->hops = 0;
    }
    if (!may || sh_now(&store->env.clock) + SH_ROUND_PAUSE_NS >= ex->deadline_ns) {
        *err_out = give_up(ex, err);
        return SH_VERDICT_OVER;
    }
    sh_client_refresh_begin(store);
    return SH_VERDICT_PAUSE;
}

enum shoal_err sh_exchange_run(shoal *store, struct sh_exchange *ex, uint8_t **answer_out,
                               size_t *size_out)
{
    for (;;) {
        uint64_t now_ns = sh_now(&store->env.clock);
        uint16_t redirect = 0;
        shoal_nid to = sh_exchange_whom(store, ex->shard, ex->tries++);
        enum shoal_err err = SHOAL_ENONODE;
        if (now_ns >= ex->deadline_ns)
            return give_up(ex, SHOAL_ETIMEOUT);
        if (to.v)
            err = ask_one(store, ex, to, now_ns, answer_out, size_out, &redirect);
        if (!err && redirect)
            free(*answer_out);
        enum sh_verdict verdict = sh_exchange_after(store, ex, to, err, redirect, &err);
        if (verdict == SH_VERDICT_OVER)
            return err;
        if (ex->repeat && ex->is_unclear)
            *ex->repeat = 1;
        if (verdict == SH_VERDICT_PAUSE)
            pause_before(store, sh_now(&store->env.clock) + SH_ROUND_PAUSE_NS);
    }
}

/* --- Questions ------------------------------------------------------------------------------- */

unsigned sh_service_ask_shard(const struct sh_service_ask *ask)
{
    if (ask->kind == SH_ASK_BARRIER)
        return (unsigned)(ask->barrier & 63);
    return ask->kind == SH_ASK_NAME || ask->kind == SH_ASK_SCRATCH ? sh_arc_shard_of_name(ask->key)
                                                                   : ask->shard;
}

void sh_service_ask_put(struct sh_writer *w, const struct sh_service_ask *ask, uint64_t wait_ns)
{
    sh_put8(w, ask->kind);
    sh_put8(w, ask->shard);
    sh_put32(w, (uint32_t)((wait_ns + 999999) / 1000000));
    sh_put64(w, ask->barrier);
    sh_put64(w, ask->round);
    sh_put64(w, ask->member);
    sh_put_text(w, ask->key);
    sh_put_text(w, ask->after);
    SH_ASSERT(sh_writer_ok(w));
}

enum shoal_err sh_service_ask(shoal *store, const struct sh_service_ask *ask, uint8_t **answer_out,
                              struct sh_reader *r_out)
{
    uint8_t bytes[SH_SERVICE_ASK_BYTES_MAX];
    if (store->is_embedded)
        return sh_local_ask(store, ask, answer_out, r_out);
    for (;;) {
        uint64_t now_ns = sh_now(&store->env.clock);
        uint64_t wait_ns = ask->wait_until_ns > now_ns ? ask->wait_until_ns - now_ns : 0;
        wait_ns = wait_ns < WAIT_NS ? wait_ns : WAIT_NS;
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_service_ask_put(&w, ask, wait_ns);
        struct sh_exchange ex = {.type = SH_CLUSTER_ASK,
                                 .shard = sh_service_ask_shard(ask),
                                 .payload = sh_bytes_make(bytes, (size_t)(w.at - bytes)),
                                 .wait_ns = wait_ns,
                                 .deadline_ns = ask->deadline_ns};
        size_t size;
        enum shoal_err err = sh_exchange_run(store, &ex, answer_out, &size);
        if (!err) {
            *r_out = sh_reader_make(sh_bytes_make(*answer_out + 2, size - 2));
            return SHOAL_OK;
        }
        if (err != SHOAL_EAGAIN)
            return err;
        now_ns = sh_now(&store->env.clock);
        if (now_ns >= ask->wait_until_ns)
            return SHOAL_EAGAIN;
        /* At once, where too many wait for the superpeer to remember one more. */
        if (now_ns + SH_ROUND_PAUSE_NS < ask->wait_until_ns)
            pause_before(store, now_ns + SH_ROOM_PAUSE_NS);
    }
}

/* --- Updates --------------------------------------------------------------------------------- */

bool sh_service_caller_try(shoal *store, struct sh_service_caller *caller_out)
{
    struct sh_services_of_client *services = store->services;
    sh_spin_take(&store->retry_lock);
    uint64_t taken = services->callers_taken;
    unsigned slot = ~taken ? (unsigned)__builtin_ctzll(~taken) : CALLERS;
    if (slot < CALLERS)
        services->callers_taken |= UINT64_C(1) << slot;
    sh_spin_release(&store->retry_lock);
    if (slot == CALLERS)
        return false;
    *caller_out = (struct sh_service_caller){slot, services->caller_base | slot};
    return true;
}

enum shoal_err sh_service_caller_take(shoal *store, uint64_t deadline_ns,
                                      struct sh_service_caller *caller_out)
{
    if (store->is_embedded) {
        *caller_out = (struct sh_service_caller){0};
        return SHOAL_OK;
    }
    while (!sh_service_caller_try(store, caller_out)) {
        uint64_t now_ns = sh_now(&store->env.clock);
        if (now_ns >= deadline_ns) {
            sh_client_detail_set("%d calls of this store are under way", CALLERS);
            return SHOAL_ELIMIT;
        }
        pause_before(store, now_ns + SH_ROOM_PAUSE_NS);
    }
    return SHOAL_OK;
}

void sh_service_caller_release(shoal *store, const struct sh_service_caller *caller)
{
    if (store->is_embedded)
        return;
    sh_spin_take(&store->retry_lock);
    store->services->callers_taken &= ~(UINT64_C(1) << caller->slot);
    sh_spin_release(&store->retry_lock);
}

bool sh_service_count(shoal *store, unsigned shard, uint64_t *count_out)
{
    struct sh_services_of_client *services = store->services;
    uint64_t now_ns = sh_now(&store->env.clock);
    sh_spin_take(&store->retry_lock);
    uint64_t asked_ns = services->updates[shard].asked_ns;
    bool is_fresh = asked_ns && now_ns - asked_ns < COUNT_AGE_NS;
    if (is_fresh)
        *count_out = services->updates[shard].count;
    sh_spin_release(&store->retry_lock);
    return is_fresh;
}

void sh_service_count_set(shoal *store, unsigned shard, uint64_t count, uint64_t asked_ns)
{
    sh_spin_take(&store->retry_lock);
    store->services->updates[shard].count = count;
    store->services->updates[shard].asked_ns = asked_ns;
    sh_spin_release(&store->retry_lock);
}

/* The shard's count of updates, a second old at most: an update that is sent for the first time
 * from now on can be told from those before. */
static enum shoal_err count_get(shoal *store, unsigned shard, uint64_t deadline_ns,
                                uint64_t *count_out)
{
    if (sh_service_count(store, shard, count_out))
        return SHOAL_OK;
    struct sh_service_ask ask = {
        .kind = SH_ASK_UPDATES, .shard = (uint8_t)shard, .deadline_ns = deadline_ns};
    uint64_t now_ns = sh_now(&store->env.clock);
    uint8_t *answer;
    struct sh_reader r;
    enum shoal_err err = sh_service_ask(store, &ask, &answer, &r);
    if (err)
        return err;
    uint64_t count = sh_get64(&r);
    bool is_good = sh_reader_done(&r);
    free(answer);
    if (!is_good)
        return SHOAL_EPROTO;
    sh_service_count_set(store, shard, count, now_ns ? now_ns : 1);
    *count_out = count;
    return SHOAL_OK;
}

uint64_t sh_service_number(shoal *store, const struct sh_service_caller *caller)
{
    return ++store->services->numbers[caller->slot]; /* who has taken it may */
}

enum shoal_err sh_service_result_get(struct sh_reader *r, const struct sh_exchange *ex,
                                     struct sh_metadata_result *result_out)
{
    struct sh_metadata_result result = {.err = sh_err_get(sh_get16(r))};
    result.is_committed = sh_get8(r);
    result.cid.v = sh_get64(r);
    if (!sh_reader_done(r))
        return SHOAL_EPROTO;
    /* A first try that came too late; but it is not the only one that was sent. */
    if (result.err == SHOAL_EAGAIN && ex->is_unclear)
        result.err = SHOAL_ETIMEOUT;
    *result_out = result;
    return result.err;
}

/* Once, with the count of now. */
static enum shoal_err update_try(shoal *store, const struct sh_service_caller *caller,
                                 struct sh_metadata_update *update, uint64_t deadline_ns,
                                 struct sh_metadata_result *result_out)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    unsigned shard = sh_metadata_shard(update);
    enum shoal_err err = count_get(store, shard, deadline_ns, &update->since);
    if (err)
        return err;
    update->caller = caller->id;
    update->number = sh_service_number(store, caller);
    sh_metadata_update_put(&w, update);
    SH_ASSERT(sh_writer_ok(&w));
    struct sh_exchange ex = {.type = SH_CLUSTER_METADATA,
                             .shard = shard,
                             .payload = sh_bytes_make(bytes, (size_t)(w.at - bytes)),
                             .is_update = true,
                             .repeat = &bytes[SH_METADATA_REPEAT_AT],
                             .deadline_ns = deadline_ns};
    uint8_t *answer;
    size_t size;
    err = sh_exchange_run(store, &ex, &answer, &size);
    if (err)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer + 2, size - 2));
    err = sh_service_result_get(&r, &ex, result_out);
    free(answer);
    if (err == SHOAL_ETIMEOUT)
        sh_client_detail_set("it may or may not have been done");
    return err;
}

enum shoal_err sh_service_update_as(shoal *store, const struct sh_service_caller *caller,
                                    struct sh_metadata_update *update, uint64_t deadline_ns,
                                    struct sh_metadata_result *result_out)
{
    enum shoal_err err;
    if (store->is_embedded)
        return sh_local_update(store, update, result_out);
    for (;;) {
        err = update_try(store, caller, update, deadline_ns, result_out);
        if (err == SHOAL_ETIMEOUT || err == SHOAL_EAGAIN)
            sh_service_count_set(store, sh_metadata_shard(update), 0, 0);
        if (err != SHOAL_EAGAIN || sh_now(&store->env.clock) >= deadline_ns)
            return err;
    }
}

enum shoal_err sh_service_update(shoal *store, struct sh_metadata_update *update,
                                 struct sh_metadata_result *result_out)
{
    struct sh_service_caller caller;
    uint64_t deadline_ns = sh_client_deadline_ns(store);
    enum shoal_err err = sh_service_caller_take(store, deadline_ns, &caller);
    if (err)
        return err;
    err = sh_service_update_as(store, &caller, update, deadline_ns, result_out);
    sh_service_caller_release(store, &caller);
    return err;
}

/* --- Lists ----------------------------------------------------------------------------------- */

static bool is_above(struct sh_bytes key, const char *after)
{
    size_t size = strlen(after);
    int order = memcmp(key.at, after, key.size < size ? key.size : size);
    return order ? order > 0 : key.size > size;
}

/* One page: calls back, and leaves the last key in `after`. */
static enum shoal_err page_read(struct sh_reader *r, uint8_t kind, char *after, bool *more_out,
                                bool (*each)(void *arg, const char *text, uint64_t value),
                                void *arg)
{
    uint8_t more = sh_get8(r);
    bool goes_on = true;
    if (more && !sh_reader_left(r))
        return SHOAL_EPROTO;
    *more_out = more;
    while (goes_on && sh_reader_left(r) > 0) {
        struct sh_bytes key = sh_get_text(r);
        uint64_t value = kind == SH_ASK_NAMES ? sh_get64(r) : sh_get32(r);
        /* Each key is above the one before, or the list would have no end. */
        if (!sh_reader_ok(r) || !key.size || key.size > SHOAL_NAME_MAX ||
            memchr(key.at, 0, key.size) || !is_above(key, after))
            return SHOAL_EPROTO;
        memcpy(after, key.at, key.size);
        after[key.size] = 0;
        goes_on = each(arg, after, value);
    }
    if (!goes_on)
        return SHOAL_ECANCELED;
    return sh_reader_done(r) && more <= 1 ? SHOAL_OK : SHOAL_EPROTO;
}

enum shoal_err sh_service_list(shoal *store, uint8_t kind, const char *prefix,
                               bool (*each)(void *arg, const char *text, uint64_t value), void *arg)
{
    enum shoal_err err = sh_service_begin(store);
    if (err || !prefix || !each || strlen(prefix) > SHOAL_NAME_MAX)
        return err ? err : SHOAL_EINVAL;
    for (unsigned shard = 0; !err && shard < SH_SHARDS; shard++) {
        char after[SHOAL_NAME_MAX + 1] = "";
        bool more = true;
        while (!err && more) {
            struct sh_service_ask ask = {.kind = kind,
                                         .shard = (uint8_t)shard,
                                         .key = sh_bytes_text(prefix),
                                         .after = sh_bytes_text(after),
                                         .deadline_ns = sh_client_deadline_ns(store)};
            uint8_t *answer;
            struct sh_reader r;
            err = sh_service_ask(store, &ask, &answer, &r);
            if (err)
                break;
            err = page_read(&r, kind, after, &more, each, arg);
            free(answer);
        }
    }
    return err == SHOAL_ECANCELED ? SHOAL_OK : err; /* that was the callback */
}
