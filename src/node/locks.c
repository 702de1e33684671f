#include "node/locks.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "node/locks_int.h"

#define LOCKS_MAX (UINT32_C(1) << 20)
#define WAITERS_MAX (UINT32_C(1) << 16)
/* What one run of the step does at most. */
#define ENDS_AT_ONCE 64
#define EXPIRED_AT_ONCE 256
/* Of a node or client that is gone, in one call. */
#define DROPPED_AT_ONCE 4096
/* How many locks and waits of a chunk are looked at for one who is in the way. */
#define LOOKED_AT 16
#define NONE UINT32_MAX

/* What a request asks for. */
struct asked {
    shoal_cid cid;
    struct sh_lease_owner owner;
    enum sh_lease_mode mode;
    uint64_t lease_ns;
    uint64_t wait_ns;
};

/* --- Answers ------------------------------------------------------------------------------- */

/* Of those who hold the chunk, or else wait for it, and are not the owner, the first. */
static bool in_the_way(struct sh_locks *locks, shoal_cid cid, struct sh_lease_owner owner,
                       struct sh_lease *lease_out)
{
    struct sh_lease found[LOOKED_AT];
    struct sh_lease_owner first = {0};
    size_t count = sh_leases_list(locks->leases, cid, first, found, LOOKED_AT);
    for (int waits = 0; waits < 2; waits++) {
        for (size_t i = 0; i < count && found[i].cid.v == cid.v; i++) {
            bool is_self =
                found[i].owner.nid.v == owner.nid.v && found[i].owner.token == owner.token;
            if (is_self || found[i].waiting != waits)
                continue;
            *lease_out = found[i];
            return true;
        }
    }
    return false;
}

static uint64_t left_ns(uint64_t deadline_ns, uint64_t now_ns)
{
    if (deadline_ns == SH_LEASES_NEVER)
        return SH_LEASES_NEVER;
    return deadline_ns > now_ns ? deadline_ns - now_ns : 0;
}

static void answer_put(struct sh_writer *w, enum shoal_err err, const struct sh_lease *other,
                       uint64_t left)
{
    sh_put16(w, (uint16_t)err);
    sh_put8(w, (uint8_t)other->mode);
    sh_put16(w, other->owner.nid.v);
    sh_put64(w, other->owner.token);
    sh_put64(w, left);
}

static sh_lid lid_of(const struct sh_locks *locks, shoal_cid cid)
{
    return sh_holdings_lid(sh_msg_nid(locks->config.msg), cid);
}

/* Where the answer tells whether there is the chunk, and that may yet be undone, it is given later, to whoever hears it; *is_held_out then. Takes the held
 * one, which may be NULL. EBUSY: too many answers are held, and the asker has been told. */
static enum shoal_err answer_held(struct sh_locks *locks, const struct sh_msg_in *in, shoal_cid cid,
                                  struct sh_held *held, enum shoal_err err, bool *is_held_out)
{
    const struct sh_lease nobody = {0};
    struct sh_answer answer;
    bool tells = in->type == SH_LOCKS_LOCK && (err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    *is_held_out = false;
    if (!locks->config.helds || !tells) {
        sh_held_drop(held);
        return SHOAL_OK;
    }
    if (!sh_held_saw(locks->config.helds, in, lid_of(locks, cid), &held))
        return SHOAL_EBUSY;
    *is_held_out = held != NULL;
    if (held && sh_answer_begin(in, held, SH_LOCKS_ANSWER_BYTES, &answer)) {
        answer_put(answer.w, err, &nobody, 0);
        sh_answer_end(in, &answer);
    }
    return SHOAL_OK;
}

/* Answers a request, now or when its wait is over; takes the held one, which may be NULL. ECONNLOST: nobody is there to hear it. EBUSY: the asker has
 * heard that instead, as there was no room for an answer that has to wait. */
static enum shoal_err answer(struct sh_locks *locks, struct sh_reply_to to, sh_msg_type type,
                             shoal_cid cid, struct sh_lease_owner owner, struct sh_held *held,
                             enum shoal_err err)
{
    const struct sh_msg_in in = {.msg = locks->config.msg, .type = type, .reply_to = to};
    struct sh_lease other = {0};
    struct sh_out out;
    uint64_t left = 0;
    bool is_refused = err == SHOAL_EBUSY || err == SHOAL_ETIMEOUT, is_held;
    enum shoal_err sent = answer_held(locks, &in, cid, held, err, &is_held);
    if (sent != SHOAL_OK || is_held)
        return sent;
    if (is_refused && in_the_way(locks, cid, owner, &other))
        left = left_ns(other.deadline_ns, sh_now(&locks->config.clock));
    sent = sh_msg_reply(locks->config.msg, to, type, SH_LOCKS_ANSWER_BYTES, &out);
    if (sent != SHOAL_OK)
        return sent;
    answer_put(&out.w, err, &other, left);
    sh_msg_end(locks->config.msg, &out);
    return SHOAL_OK;
}

/* --- Waiting ------------------------------------------------------------------------------- */

static uint32_t waiting_take(struct sh_locks *locks, struct sh_reply_to to)
{
    uint32_t place = locks->free_first;
    if (place != NONE)
        locks->free_first = locks->waiting[place].next_free;
    else if (locks->waiting_used < locks->waiting_max)
        place = locks->waiting_used++;
    else
        return NONE;
    locks->waiting[place].reply_to = to;
    return place;
}

static struct sh_reply_to waiting_give(struct sh_locks *locks, uint32_t place)
{
    SH_ASSERT(place < locks->waiting_used);
    struct sh_reply_to to = locks->waiting[place].reply_to;
    locks->waiting[place].next_free = locks->free_first;
    locks->free_first = place;
    return to;
}

/* Answers at most ENDS_AT_ONCE of those whose wait is over; returns how many. */
static unsigned ends_answer(struct sh_locks *locks)
{
    struct sh_lease_end ends[ENDS_AT_ONCE];
    size_t count = sh_leases_ended(locks->leases, ends, ENDS_AT_ONCE);
    for (size_t i = 0; i < count; i++) {
        const struct sh_lease_end *end = &ends[i];
        struct sh_reply_to to = waiting_give(locks, (uint32_t)end->cookie);
        if (end->err == SHOAL_ENOTOWNER) { /* as any request about a chunk that moves */
            sh_msg_reply_error(locks->config.msg, to, SH_LOCKS_LOCK, end->err, NULL);
            continue;
        }
        enum shoal_err sent =
            answer(locks, to, SH_LOCKS_LOCK, end->cid, end->owner, NULL, end->err);
        if (sent == SHOAL_OK || end->err != SHOAL_OK)
            continue;
        /* The owner can't be told that it has the lock: the next in line gets it, and an owner that
         * asks again stands at the end. */
        enum shoal_err err =
            sh_leases_release(locks->leases, end->cid, end->owner, sh_now(&locks->config.clock));
        SH_ASSERT(err == SHOAL_OK || err == SHOAL_ENOLOCK);
    }
    return (unsigned)count;
}

/* After whatever may have ended waits on this thread. The step does what is more. */
static void ends_answer_some(struct sh_locks *locks)
{
    if (sh_leases_ended_count(locks->leases) > 0)
        (void)ends_answer(locks);
}

/* --- Requests ------------------------------------------------------------------------------ */

static bool exists(const struct sh_locks *locks, shoal_cid cid)
{
    uint32_t size;
    return sh_store_size(locks->config.store, lid_of(locks, cid), &size) == SHOAL_OK;
}

/* A chunk that is about to move takes its locks with it: none may change meanwhile. */
static enum shoal_err is_here(const struct sh_locks *locks, shoal_cid cid)
{
    shoal_nid self = sh_msg_nid(locks->config.msg);
    sh_lid lid;
    if (locks->config.holdings) {
        enum shoal_err err = sh_holdings_look(locks->config.holdings, self, cid, true, &lid);
        if (err == SHOAL_ENOTOWNER)
            sh_holdings_stray_note(locks->config.holdings, self, cid);
        return err;
    }
    return self.v != 0 && shoal_cid_creator(cid).v == self.v ? SHOAL_OK : SHOAL_ENOTOWNER;
}

/* Reads what the requests have in common, in their order; false: refused. */
static bool asked_read(struct sh_locks *locks, struct sh_msg_in *in, struct asked *asked_out)
{
    struct sh_reader *r = &in->payload;
    struct asked asked = {.mode = SH_LEASE_WRITER, .lease_ns = 1};
    asked.cid.v = sh_get64(r);
    asked.owner = (struct sh_lease_owner){.token = sh_get64(r), .nid = in->reply_to.nid};
    if (in->type != SH_LOCKS_UNLOCK)
        asked.lease_ns = sh_get64(r);
    if (in->type == SH_LOCKS_LOCK)
        asked.wait_ns = sh_get64(r);
    uint8_t mode = SH_LEASE_WRITER;
    if (in->type == SH_LOCKS_LOCK || in->type == SH_LOCKS_SWAP)
        mode = sh_get8(r);
    uint64_t client = sh_reader_left(r) == 8 ? sh_get64(r) : 0;
    bool is_mode = mode == SH_LEASE_READER || mode == SH_LEASE_WRITER;
    if (!sh_reader_done(r) || !is_mode || asked.lease_ns == 0) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO,
                           "no such request on a lock");
        return false;
    }
    enum shoal_err err = is_here(locks, asked.cid);
    if (err == SHOAL_ELOST && in->type != SH_LOCKS_LOCK)
        err = SHOAL_OK; /* the owner may still have the lock of a chunk that was removed */
    if (err != SHOAL_OK) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
        return false;
    }
    if (client != 0 && sh_locks_is_alias(asked.owner.nid)) {
        locks->clients[asked.owner.nid.v - SH_MSG_ALIAS_MIN] = client;
        sh_locks_stray_claim(locks, asked.cid, asked.owner, client);
    }
    asked.mode = (enum sh_lease_mode)mode;
    if (asked.lease_ns > SH_LEASE_NS_MAX)
        asked.lease_ns = SH_LEASE_NS_MAX;
    *asked_out = asked;
    return true;
}

static void answer_now(struct sh_locks *locks, const struct sh_msg_in *in,
                       const struct asked *asked, enum shoal_err err)
{
    enum shoal_err sent =
        answer(locks, in->reply_to, in->type, asked->cid, asked->owner, NULL, err);
    /* A lock whose answer has nobody to hear it falls with the connection, or runs out. */
    (void)sent;
    ends_answer_some(locks);
}

static enum shoal_err acquire(struct sh_locks *locks, const struct asked *asked,
                              struct sh_reply_to to)
{
    uint64_t now = sh_now(&locks->config.clock), deadline;
    struct sh_lease_wish wish = {.cid = asked->cid,
                                 .owner = asked->owner,
                                 .mode = asked->mode,
                                 .lease_ns = asked->lease_ns,
                                 .wait_until_ns = now};
    /* What has run out is in nobody's way, also if the step has not been here. */
    if (sh_leases_due_ns(locks->leases) <= now)
        (void)sh_leases_expire(locks->leases, now, EXPIRED_AT_ONCE);
    uint32_t place = NONE;
    if (asked->wait_ns > 0) {
        wish.wait_until_ns =
            asked->wait_ns < SH_LEASES_NEVER - now ? now + asked->wait_ns : SH_LEASES_NEVER;
        place = waiting_take(locks, to);
        wish.cookie = place;
        if (place == NONE)
            wish.wait_until_ns = now; /* there may be nothing to wait for */
    }
    struct sh_lock *stripe = sh_stripe_of(&locks->stripes, asked->cid);
    sh_lock_take(stripe);
    enum shoal_err err = exists(locks, asked->cid) ? SHOAL_OK : SHOAL_ENOCHUNK;
    if (err == SHOAL_OK)
        err = sh_leases_acquire(locks->leases, &wish, now, &deadline);
    sh_lock_release(stripe);
    if (err == SHOAL_EBUSY && asked->wait_ns > 0 && place == NONE)
        err = SHOAL_ELIMIT;
    if (err != SHOAL_EAGAIN && place != NONE)
        (void)waiting_give(locks, place);
    return err;
}

/* Answers a LOCK that does not wait. A lock that its owner can't be told of is given back; had: the owner has had it before, and keeps it. */
static void lock_answer(struct sh_locks *locks, const struct sh_msg_in *in,
                        const struct asked *asked, struct sh_held *held, bool had,
                        enum shoal_err err)
{
    enum shoal_err sent =
        answer(locks, in->reply_to, in->type, asked->cid, asked->owner, held, err);
    if (sent == SHOAL_EBUSY && err == SHOAL_OK && !had) {
        enum shoal_err released = sh_leases_release(locks->leases, asked->cid, asked->owner,
                                                    sh_now(&locks->config.clock));
        SH_ASSERT(released == SHOAL_OK || released == SHOAL_ENOLOCK); /* the chunk was removed */
    }
    ends_answer_some(locks);
}

/* The answer may have to wait until the chunk that it tells of is logged: where there is no room for it, nothing is granted. */
static void on_lock(void *arg, struct sh_msg_in *in)
{
    struct sh_locks *locks = arg;
    struct sh_helds *helds = locks->config.helds;
    struct sh_held *held = NULL;
    struct asked asked;
    if (!asked_read(locks, in, &asked))
        return;
    if (!in->is_request)
        return; /* nobody would hear that it is held */
    if (helds && !sh_held_saw(helds, in, lid_of(locks, asked.cid), &held))
        return;
    /* A grant to this owner that is still to be told, and that nobody hears any more, would be
     * taken back after this request has extended it. */
    while (sh_leases_ended_count(locks->leases) > 0)
        (void)ends_answer(locks);
    bool had = helds && !held &&
               sh_leases_holds(locks->leases, asked.cid, asked.owner, SH_LEASE_READER,
                               sh_now(&locks->config.clock));
    enum shoal_err err = acquire(locks, &asked, in->reply_to);
    if (err != SHOAL_EAGAIN) {
        lock_answer(locks, in, &asked, held, had, err);
        return;
    }
    sh_held_drop(held);
    ends_answer_some(locks);
}

static void on_unlock(void *arg, struct sh_msg_in *in)
{
    struct sh_locks *locks = arg;
    struct asked asked;
    if (!asked_read(locks, in, &asked))
        return;
    enum shoal_err err =
        sh_leases_quit(locks->leases, asked.cid, asked.owner, sh_now(&locks->config.clock));
    answer_now(locks, in, &asked, err);
}

static void on_extend(void *arg, struct sh_msg_in *in)
{
    struct sh_locks *locks = arg;
    struct asked asked;
    uint64_t deadline;
    if (!asked_read(locks, in, &asked))
        return;
    enum shoal_err err = sh_leases_extend(locks->leases, asked.cid, asked.owner, asked.lease_ns,
                                          sh_now(&locks->config.clock), &deadline);
    answer_now(locks, in, &asked, err);
}

static void on_swap(void *arg, struct sh_msg_in *in)
{
    struct sh_locks *locks = arg;
    struct asked asked;
    uint64_t deadline;
    if (!asked_read(locks, in, &asked))
        return;
    enum shoal_err err = sh_leases_swap(locks->leases, asked.cid, asked.owner, asked.mode,
                                        asked.lease_ns, sh_now(&locks->config.clock), &deadline);
    answer_now(locks, in, &asked, err);
}

static void on_list(void *arg, struct sh_msg_in *in)
{
    struct sh_locks *locks = arg;
    struct sh_out out;
    shoal_cid from = {sh_get64(&in->payload)};
    struct sh_lease_owner owner = {.nid = {sh_get16(&in->payload)}};
    owner.token = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO,
                           "a list of locks begins with 18 bytes");
        return;
    }
    struct sh_lease *found = malloc(SH_LOCKS_LIST_MAX * sizeof *found);
    if (!found) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOMEM, NULL);
        return;
    }
    size_t count = sh_leases_list(locks->leases, from, owner, found, SH_LOCKS_LIST_MAX);
    uint64_t now = sh_now(&locks->config.clock);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, count * SH_LOCKS_LIST_BYTES, &out) ==
        SHOAL_OK) {
        for (size_t i = 0; i < count; i++) {
            sh_put64(&out.w, found[i].cid.v);
            sh_put64(&out.w, found[i].owner.token);
            sh_put16(&out.w, found[i].owner.nid.v);
            sh_put8(&out.w, (uint8_t)found[i].mode);
            sh_put8(&out.w, found[i].waiting);
            sh_put64(&out.w, left_ns(found[i].deadline_ns, now));
            sh_put32(&out.w, found[i].holders);
            sh_put32(&out.w, found[i].waiters);
        }
        sh_msg_end(in->msg, &out);
    }
    free(found);
}

size_t sh_locks_list(const struct sh_locks *locks, shoal_cid from, struct sh_lease_owner from_owner,
                     struct sh_lease *leases_out, size_t max)
{
    return sh_leases_list(locks->leases, from, from_owner, leases_out, max);
}

uint32_t sh_locks_waiting(const struct sh_locks *locks)
{
    uint32_t waiting = locks->waiting_used;
    for (uint32_t place = locks->free_first; place != NONE;
         place = locks->waiting[place].next_free) {
        SH_ASSERT(waiting > 0);
        waiting--;
    }
    return waiting;
}

/* --- What falls ---------------------------------------------------------------------------- */

static void node_drop(struct sh_locks *locks, shoal_nid nid)
{
    size_t dropped, all = 0;
    do {
        dropped =
            sh_leases_node_drop(locks->leases, nid, sh_now(&locks->config.clock), DROPPED_AT_ONCE);
        all += dropped;
        ends_answer_some(locks);
    } while (dropped == DROPPED_AT_ONCE);
    if (all > 0)
        SH_INFO("node", "locks fell with their owner", SH_U64("owner", nid.v),
                SH_U64("locks", all));
}

void sh_locks_link_event(struct sh_locks *locks, const struct sh_msg_event *event)
{
    if (!sh_locks_is_alias(event->nid))
        return;
    locks->clients[event->nid.v - SH_MSG_ALIAS_MIN] = 0;
    if (event->kind != SH_MSG_UP)
        node_drop(locks, event->nid);
}

static void node_changed(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    struct sh_locks *locks = arg;
    if (old && (!new || new->state != SH_NODE_UP || new->instance != old->instance))
        node_drop(locks, old->nid);
}

void sh_locks_view(struct sh_locks *locks, const struct sh_view *view)
{
    sh_view_diff(&locks->view, view, node_changed, locks);
    enum shoal_err err = sh_view_copy(&locks->view, view);
    if (err != SHOAL_OK)
        SH_WARN("node", "the view can't be kept for locks", SH_ERR(err)); /* the next one may */
}

enum shoal_err sh_locks_remove(void *arg, struct sh_write *write, shoal_cid cid, sh_lid lid)
{
    struct sh_locks *locks = arg;
    struct sh_lock *stripe = sh_stripe_of(&locks->stripes, cid);
    size_t dropped = 0;
    sh_lock_take(stripe);
    enum shoal_err err = sh_backup_remove(locks->config.backup, write, lid);
    if (err == SHOAL_OK)
        dropped = sh_leases_chunk_drop(locks->leases, cid);
    sh_lock_release(stripe);
    if (dropped > 0)
        locks->config.wake(locks->config.arg);
    return err;
}

/* --- The step ------------------------------------------------------------------------------ */

static unsigned run(void *arg)
{
    struct sh_locks *locks = arg;
    uint64_t due = sh_leases_due_ns(locks->leases);
    size_t done = 0;
    if (due != SH_LEASES_NEVER) {
        uint64_t now = sh_now(&locks->config.clock);
        if (due <= now)
            done = sh_leases_expire(locks->leases, now, EXPIRED_AT_ONCE);
    }
    if (sh_leases_ended_count(locks->leases) > 0)
        done += ends_answer(locks);
    return (unsigned)done;
}

static uint64_t due_ns(void *arg)
{
    struct sh_locks *locks = arg;
    return sh_leases_ended_count(locks->leases) > 0 ? 0 : sh_leases_due_ns(locks->leases);
}

struct sh_step sh_locks_step(struct sh_locks *locks)
{
    return (struct sh_step){.name = "locks", .run = run, .due_ns = due_ns, .arg = locks};
}

/* --- Making it ----------------------------------------------------------------------------- */

enum shoal_err sh_locks_create(const struct sh_locks_config *config, struct sh_locks **locks_out)
{
    struct sh_locks *locks = calloc(1, sizeof *locks);
    if (!locks)
        return SHOAL_ENOMEM;
    locks->config = *config;
    sh_stripes_init(&locks->stripes);
    locks->free_first = NONE;
    uint32_t locks_max = config->locks_max ? config->locks_max : LOCKS_MAX;
    locks->waiting_max = config->waiters_max ? config->waiters_max : WAITERS_MAX;
    if (locks->waiting_max > locks_max)
        locks->waiting_max = locks_max;
    locks->waiting = calloc(locks->waiting_max, sizeof *locks->waiting);
    locks->clients = calloc(SH_LOCKS_ALIASES, sizeof *locks->clients);
    struct sh_leases_config leases = {
        .locks_max = locks_max,
        .waiters_max = locks->waiting_max,
        .seed = config->seed,
    };
    enum shoal_err err = SHOAL_ENOMEM;
    if (locks->waiting && locks->clients)
        err = sh_leases_create(&leases, &locks->leases);
    if (err != SHOAL_OK) {
        sh_locks_destroy(locks);
        return err;
    }
    sh_msg_handler_set(config->msg, SH_LOCKS_LOCK, SH_MSG_INLINE, on_lock, locks);
    sh_msg_handler_set(config->msg, SH_LOCKS_UNLOCK, SH_MSG_INLINE, on_unlock, locks);
    sh_msg_handler_set(config->msg, SH_LOCKS_EXTEND, SH_MSG_INLINE, on_extend, locks);
    sh_msg_handler_set(config->msg, SH_LOCKS_SWAP, SH_MSG_INLINE, on_swap, locks);
    sh_msg_handler_set(config->msg, SH_LOCKS_LIST, SH_MSG_POOLED, on_list, locks);
    *locks_out = locks;
    return SHOAL_OK;
}

void sh_locks_destroy(struct sh_locks *locks)
{
    if (!locks)
        return;
    sh_leases_destroy(locks->leases);
    sh_stripes_destroy(&locks->stripes);
    sh_view_destroy(&locks->view);
    free(locks->waiting);
    free(locks->clients);
    free(locks);
}
