/* A superpeer's names, barriers and scratch: who asks what is there, who waits for something to be
 * there, and which members of barriers are still heard. The state is the ring's
 * (superpeer_ring.c), which also takes the updates. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/metadata_answers.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

_Static_assert(SH_RECOVERIES_PAGE_BYTES <= SH_METADATA_PAGE_BYTES, "one buffer is for both");

#define ASKERS_MAX 4096
#define WAIT_MS_MAX 10000
#define ANSWERS_MAX 32 /* of a step to those that wait; a round's can be 75 KB each */
/* A member that waits asks again each second; who does not is gone. One whose connection was lost
 * has failure_ns to come back. */
#define SILENCE_NS UINT64_C(5000000000)
#define LOOK_NS UINT64_C(250000000)

struct ask {
    uint8_t kind, shard;
    uint32_t wait_ms;
    uint64_t barrier, round, member;
    struct sh_bytes key, after;
};

/* Who waits for an answer. */
struct asker {
    struct asker *next;
    struct ask ask;
    struct sh_reply_to reply_to;
    uint64_t deadline_ns;
    uint8_t key[SH_NAME_BYTES_MAX];
};

struct sh_services {
    struct asker *askers;
    size_t asker_count;
    uint64_t changed; /* shards */
    uint64_t due_ns;  /* the askers' */
    uint64_t look_ns; /* when it was looked at the barriers' members last; 0: not yet */
    /* The same of each shard, while this superpeer was its owner. */
    uint64_t looked_ns[SH_SHARDS];
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

enum shoal_err sh_superpeer_services_state(struct sh_superpeer *superpeer, unsigned shard,
                                           struct sh_metadata **metadata_out, shoal_nid *other_out)
{
    enum shoal_err err = sh_superpeer_ring_reads(superpeer, shard, other_out);
    if (err)
        return err;
    *metadata_out = superpeer->ring->metadata;
    return SHOAL_OK;
}

static void refuse(struct sh_superpeer *superpeer, struct sh_reply_to to, sh_msg_type type,
                   enum shoal_err err)
{
    const char *text = NULL;
    if (err == SHOAL_EBUSY)
        text = "the shard is changing hands, or is being saved by several already";
    sh_msg_reply_error(superpeer->msg, to, type, err, text);
}

/* --- Answers --------------------------------------------------------------------------------- */

static void redirect(struct sh_superpeer *superpeer, struct sh_reply_to to, shoal_nid other)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, SH_CLUSTER_ASK, 2, &out))
        return;
    sh_put16(&out.w, other.v);
    sh_msg_end(superpeer->msg, &out);
}

/* Sends the answer behind the zeros that say whose it is. */
static void answer(struct sh_superpeer *superpeer, struct sh_reply_to to, struct sh_bytes bytes)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, SH_CLUSTER_ASK, 2 + bytes.size, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(superpeer->msg, &out);
}

static void barrier_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                           const struct sh_barrier *barrier, const struct sh_barrier_round *round)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, SH_CLUSTER_ASK, 2 + sh_barrier_answer_size(round), &out))
        return;
    sh_put16(&out.w, 0);
    sh_barrier_answer_put(&out.w, barrier, round);
    sh_msg_end(superpeer->msg, &out);
}

/* Answers about a barrier; EAGAIN: the round is not over, and nothing was answered. is_new: the
 * member has just asked, and so is alive; that it waits for an answer does not say that. */
static enum shoal_err barrier_ask(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                  const struct sh_metadata *metadata, const struct ask *ask,
                                  bool is_new)
{
    struct sh_barrier *barrier = sh_metadata_barrier(metadata, ask->barrier);
    if (!barrier)
        return SHOAL_ENONAME;
    struct sh_barrier_member *member;
    const struct sh_barrier_round *round;
    enum shoal_err err = sh_barrier_look(barrier, ask->round, ask->member, &member, &round);
    if (err == SHOAL_EAGAIN && is_new) {
        member->heard_ns = now_of(superpeer);
        member->nid = to.nid;
    }
    if (err)
        return err;
    barrier_answer(superpeer, to, barrier, round);
    return SHOAL_OK;
}

/* Answers with a piece of a snapshot: the save in `barrier`, the piece in `round`. */
static enum shoal_err copy_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                  const struct ask *ask)
{
    struct sh_bytes piece;
    struct sh_out out;
    uint64_t number;
    enum shoal_err err =
        sh_superpeer_save_piece(superpeer, ask->shard, ask->barrier, ask->round, &number, &piece);
    if (err || sh_msg_reply(superpeer->msg, to, SH_CLUSTER_ASK, 2 + 8 + piece.size, &out))
        return err;
    sh_put16(&out.w, 0);
    sh_put64(&out.w, number);
    sh_put_raw(&out.w, piece);
    sh_msg_end(superpeer->msg, &out);
    return SHOAL_OK;
}

/* Answers, or says why not: EAGAIN: what is asked for is not there yet. */
static enum shoal_err try_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                 const struct ask *ask, bool is_new)
{
    struct sh_metadata *metadata;
    shoal_nid other;
    enum shoal_err err = sh_superpeer_services_state(superpeer, ask->shard, &metadata, &other);
    if (err == SHOAL_EROLE) {
        redirect(superpeer, to, other);
        return SHOAL_OK;
    }
    if (err)
        return err;
    struct sh_bytes value = {NULL, 0};
    shoal_cid cid = SHOAL_CID_NONE;
    uint8_t bytes[8], page[SH_METADATA_PAGE_BYTES];
    size_t size;
    switch (ask->kind) {
    case SH_ASK_NAME:
        err = sh_metadata_lookup(metadata, ask->key, &cid);
        sh_store64(bytes, cid.v);
        if (!err)
            answer(superpeer, to, sh_bytes_make(bytes, sizeof bytes));
        break;
    case SH_ASK_SCRATCH:
        err = sh_metadata_scratch_get(metadata, ask->key, &value);
        if (!err)
            answer(superpeer, to, value);
        break;
    case SH_ASK_UPDATES:
        sh_store64(bytes, sh_metadata_updates(metadata, ask->shard));
        answer(superpeer, to, sh_bytes_make(bytes, sizeof bytes));
        break;
    case SH_ASK_BARRIER:
        return barrier_ask(superpeer, to, metadata, ask, is_new);
    case SH_ASK_COPY:
        return copy_answer(superpeer, to, ask);
    case SH_ASK_RECOVERIES:
        size = sh_superpeer_recoveries_page(superpeer, ask->shard, ask->barrier, page);
        answer(superpeer, to, sh_bytes_make(page, size));
        break;
    case SH_ASK_BARRIERS:
        size = sh_barriers_put(metadata, ask->shard, page);
        answer(superpeer, to, sh_bytes_make(page, size));
        break;
    default:
        size = sh_metadata_page_put(metadata, ask->kind, ask->shard, ask->key, ask->after, page);
        answer(superpeer, to, sh_bytes_make(page, size));
        break;
    }
    return err == SHOAL_ENONAME && ask->wait_ms ? SHOAL_EAGAIN : err;
}

/* --- Those that wait ------------------------------------------------------------------------- */

static bool ask_get(struct sh_reader *r, struct ask *ask_out)
{
    struct ask ask = {.kind = sh_get8(r)};
    ask.shard = sh_get8(r);
    ask.wait_ms = sh_get32(r);
    ask.barrier = sh_get64(r);
    ask.round = sh_get64(r);
    ask.member = sh_get64(r);
    ask.key = sh_get_text(r);
    ask.after = sh_get_text(r);
    if (!sh_reader_done(r) || ask.key.size > SH_NAME_BYTES_MAX ||
        ask.after.size > SH_NAME_BYTES_MAX || ask.shard >= SH_SHARDS || ask.wait_ms > WAIT_MS_MAX ||
        ask.kind < SH_ASK_NAME || ask.kind > SH_ASK_RECOVERIES)
        return false;
    if (ask.kind == SH_ASK_BARRIER)
        ask.shard = (uint8_t)sh_barrier_shard(ask.barrier);
    else if (ask.kind == SH_ASK_NAME || ask.kind == SH_ASK_SCRATCH)
        ask.shard = (uint8_t)sh_arc_shard_of_name(ask.key);
    bool has_key = ask.kind == SH_ASK_NAME || ask.kind == SH_ASK_SCRATCH;
    *ask_out = ask;
    return !has_key || ask.key.size;
}

static bool asker_add(struct sh_superpeer *superpeer, struct sh_reply_to to, const struct ask *ask)
{
    SH_ASSERT(ask->wait_ms && ask->shard < SH_SHARDS && ask->key.size <= SH_NAME_BYTES_MAX);
    struct sh_services *services = superpeer->services;
    struct asker *asker = services->asker_count < ASKERS_MAX ? malloc(sizeof *asker) : NULL;
    if (!asker)
        return false;
    *asker = (struct asker){.next = services->askers, .ask = *ask, .reply_to = to};
    if (ask->key.size)
        memcpy(asker->key, ask->key.at, ask->key.size);
    asker->ask.key = sh_bytes_make(asker->key, ask->key.size);
    asker->ask.after.size = 0;
    asker->deadline_ns = now_of(superpeer) + ask->wait_ms * UINT64_C(1000000);
    services->askers = asker;
    services->asker_count++;
    if (asker->deadline_ns < services->due_ns)
        services->due_ns = asker->deadline_ns;
    return true;
}

static void on_ask(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct ask ask;
    enum shoal_err err = SHOAL_EPROTO;
    if (ask_get(&in->payload, &ask))
        err = try_answer(superpeer, in->reply_to, &ask, true);
    if (err == SHOAL_EAGAIN && ask.wait_ms && asker_add(superpeer, in->reply_to, &ask))
        return;
    if (err)
        refuse(superpeer, in->reply_to, in->type, err);
}

/* Answers those of changed shards, and those whose time is over, some at a time. Who waits at a
 * superpeer that does not own the shard any more is sent on by its next look. */
static unsigned askers_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_services *services = superpeer->services;
    uint64_t changed = services->changed;
    unsigned work = 0;
    bool is_due = now_ns >= services->due_ns;
    if (!changed && !is_due)
        return 0;
    services->changed = 0;
    if (is_due || services->due_ns > now_ns + superpeer->heartbeat_ns)
        services->due_ns = now_ns + superpeer->heartbeat_ns;
    struct asker **at = &services->askers;
    while (*at) {
        struct asker *asker = *at;
        bool is_over = now_ns >= asker->deadline_ns;
        if (!is_over && !is_due && !(changed >> asker->ask.shard & 1)) {
            at = &asker->next;
            continue;
        }
        enum shoal_err err = try_answer(superpeer, asker->reply_to, &asker->ask, false);
        if (err == SHOAL_EAGAIN && !is_over) {
            if (asker->deadline_ns < services->due_ns)
                services->due_ns = asker->deadline_ns;
            at = &asker->next;
            continue;
        }
        if (err)
            refuse(superpeer, asker->reply_to, SH_CLUSTER_ASK, err);
        SH_ASSERT(services->asker_count > 0);
        *at = asker->next;
        services->asker_count--;
        free(asker);
        if (++work < ANSWERS_MAX)
            continue;
        services->changed |= changed;
        if (is_due)
            services->due_ns = now_ns;
        break;
    }
    if (!services->askers)
        services->due_ns = SH_NEVER;
    return work;
}

void sh_superpeer_services_changed(struct sh_superpeer *superpeer, unsigned shard)
{
    SH_ASSERT(shard < SH_SHARDS);
    if (superpeer->services && superpeer->services->askers)
        superpeer->services->changed |= UINT64_C(1) << shard;
}

/* --- Members of barriers --------------------------------------------------------------------- */

static void member_gone(struct sh_superpeer *superpeer, const struct sh_barrier *barrier,
                        uint64_t member)
{
    struct sh_metadata_update update = {.kind = SH_METADATA_BARRIER_GONE,
                                        .barrier = barrier->id,
                                        .member = member,
                                        .round = barrier->open.number};
    enum shoal_err err = sh_superpeer_ring_order(superpeer, sh_barrier_shard(barrier->id), &update);
    if (err) /* said again with the next look */
        SH_DEBUG("cluster", "a dead member is not out yet", SH_ERR(err));
}

/* One member that is not heard any more is enough for a look: the barrier may have changed. */
static void barrier_look(struct sh_superpeer *superpeer, struct sh_barrier *barrier,
                         uint64_t now_ns, bool was_away)
{
    for (size_t i = 0; i < barrier->open.count; i++) {
        struct sh_barrier_member *member = sh_barrier_member(&barrier->open, i);
        if (!member->heard_ns || was_away)
            member->heard_ns = now_ns;
        if (now_ns - member->heard_ns >= SILENCE_NS) {
            member_gone(superpeer, barrier, member->id);
            return;
        }
    }
}

static void members_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_services *services = superpeer->services;
    if (services->look_ns && now_ns < services->look_ns + LOOK_NS)
        return;
    services->look_ns = now_ns;
    for (unsigned shard = 0; shard < SH_SHARDS; shard++) {
        struct sh_metadata *metadata;
        struct sh_barrier *barrier;
        shoal_nid other;
        if (sh_superpeer_services_state(superpeer, shard, &metadata, &other))
            continue;
        /* Who could not look could not listen either, or another superpeer did. */
        bool was_away = now_ns > services->looked_ns[shard] + 4 * LOOK_NS;
        services->looked_ns[shard] = now_ns;
        for (size_t i = 0; (barrier = sh_metadata_barrier_at(metadata, shard, i)); i++)
            barrier_look(superpeer, barrier, now_ns, was_away);
    }
}

void sh_superpeer_services_lost(struct sh_superpeer *superpeer, shoal_nid nid)
{
    uint64_t patience_ns = superpeer->failure_ns < SILENCE_NS ? superpeer->failure_ns : SILENCE_NS;
    uint64_t now_ns = now_of(superpeer);
    struct asker *asker = superpeer->services ? superpeer->services->askers : NULL;
    for (; asker; asker = asker->next) {
        if (asker->reply_to.nid.v != nid.v)
            continue;
        asker->deadline_ns = 0; /* nobody hears the answer */
        superpeer->services->due_ns = 0;
    }
    for (unsigned shard = 0; superpeer->services && shard < SH_SHARDS; shard++) {
        struct sh_metadata *metadata;
        struct sh_barrier *barrier;
        shoal_nid other;
        if (sh_superpeer_services_state(superpeer, shard, &metadata, &other))
            continue;
        for (size_t i = 0; (barrier = sh_metadata_barrier_at(metadata, shard, i)); i++) {
            for (size_t j = 0; j < barrier->open.count; j++) {
                struct sh_barrier_member *member = sh_barrier_member(&barrier->open, j);
                if (member->heard_ns && member->nid.v == nid.v && now_ns > SILENCE_NS)
                    member->heard_ns = now_ns - SILENCE_NS + patience_ns;
            }
        }
    }
}

/* --- Updates ----------------------------------------------------------------------- */

void sh_superpeer_metadata_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                  sh_msg_type type, shoal_nid other,
                                  const struct sh_metadata_result *result)
{
    struct sh_out out;
    if (sh_msg_reply(superpeer->msg, to, type, SH_METADATA_ANSWER_BYTES, &out))
        return;
    sh_put16(&out.w, other.v);
    sh_put16(&out.w, (uint16_t)result->err);
    sh_put8(&out.w, result->is_committed);
    sh_put64(&out.w, result->cid.v);
    sh_msg_end(superpeer->msg, &out);
}

/* --- Life ------------------------------------------------------------------------------------ */

unsigned sh_superpeer_services_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    members_step(superpeer, now_ns);
    return askers_step(superpeer, now_ns);
}

uint64_t sh_superpeer_services_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_services *services = superpeer->services;
    uint64_t look_ns = services->look_ns + LOOK_NS;
    if (services->changed)
        return 0;
    return services->due_ns < look_ns ? services->due_ns : look_ns;
}

enum shoal_err sh_superpeer_services_open(struct sh_superpeer *superpeer)
{
    struct sh_services *services = calloc(1, sizeof *services);
    if (!services)
        return SHOAL_ENOMEM;
    services->due_ns = SH_NEVER;
    superpeer->services = services;
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ASK, SH_MSG_INLINE, on_ask, superpeer);
    return SHOAL_OK;
}

void sh_superpeer_services_close(struct sh_superpeer *superpeer)
{
    struct sh_services *services = superpeer->services;
    if (!services)
        return;
    while (services->askers) {
        struct asker *asker = services->askers;
        services->askers = asker->next;
        refuse(superpeer, asker->reply_to, SH_CLUSTER_ASK, SHOAL_ESTOPPED);
        free(asker);
    }
    superpeer->services = NULL;
    free(services);
}

struct sh_superpeer_kept sh_superpeer_kept(const struct sh_superpeer *superpeer)
{
    const struct sh_metadata *metadata = superpeer->ring ? superpeer->ring->metadata : NULL;
    struct sh_superpeer_kept kept = {
        .askers = superpeer->services ? superpeer->services->asker_count : 0};
    for (unsigned shard = 0; metadata && shard < SH_SHARDS; shard++) {
        for (size_t i = 0; sh_metadata_barrier_at(metadata, shard, i); i++)
            kept.barriers++;
    }
    return kept;
}
