/* Names at the peers (keeper.h): a superpeer sends the names of each shard that it owns to two
 * peers, when they have changed, and when all superpeers have forgotten a shard gathers them again
 * from whoever has the last list.
 *
 *   send     a shard at a time, piece by piece; a change is with the peers a second later
 *   gather   all peers that are up are asked what they have; each shard's last list is fetched,
 * and becomes updates of the shard. Until its end nothing is answered about names, barriers and
 * scratch of the shard
 *
 * A list's number is how often the shard's names have changed. A shard that was gathered, also
 * one of which nothing was found, begins far above the list that was found, its *base*, so that no
 * older list is taken for a newer one.
 *
 *   poll     each peer is asked what it has, one after the other, once in POLL_ROUND_NS
 *   late     a peer that was away while the others were asked may have a later list than the base,
 *            of another history: a poll shows it, and when it is sent the shard's list it says so.
 *            The names in it that are not there are added, as they may have been acknowledged, and
 *            its number is the base from then on. A name that was removed meanwhile comes back by
 *            that. The same with a list that a peer has loaded from a dump, but that has no number
 *            to go by: the peer is told when its names are there, and forgets it
 *   forget   so does a peer that is none of the two any more, once both have the last list: a dump
 *            of all nodes would have names in it that are gone */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "cluster/keeper.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define TARGETS 2
#define PAUSE_NS                                                                                   \
    UINT64_C(                                                                                      \
        1000000000) /* between two lists of a shard; and a second for each MB                 \
                          */
/* A peer that lost its superpeer asks for it again after 2 seconds at the latest. */
#define RETURN_NS UINT64_C(3000000000)
/* Until the ring has room for more updates. */
#define ORDER_PAUSE_NS UINT64_C(2000000)
#define NUMBER_STEP (UINT64_C(1) << 32)
#define POLL_ROUND_NS UINT64_C(2000000000)
#define POLL_PAUSE_NS UINT64_C(10000000) /* between two peers, at least */

/* A peer that is to have a shard's list. */
struct target {
    shoal_nid nid;
    uint64_t instance;
    uint64_t done; /* the number of the list that it has */
};

struct shard {
    struct target targets[TARGETS];
    uint64_t due_ns;
    struct {
        uint64_t number; /* of the last list that was found; 0: none */
        shoal_nid nid;
    } best;
    struct {
        uint64_t number; /* of a list that a peer has of a forgotten history; 0: none */
        shoal_nid nid;
    } late;
    /* A list that its peer need not have any more: a loaded one whose names were ordered, when they
     * are there, or one of a peer that is no target. */
    struct {
        uint64_t number; /* 0: none */
        uint64_t known;  /* changes of the shard's names by then */
        uint64_t incarnation;
        shoal_nid nid;
    } taken;
};

/* LATE: one list is fetched, from a peer that was away; then ORDER, too. */
enum gather_phase { GATHER_NONE, GATHER_LATE, GATHER_ASK, GATHER_FETCH, GATHER_ORDER };

struct sh_keep {
    struct shard shards[SH_SHARDS];
    uint64_t epoch;   /* of the view that the targets are of */
    uint64_t tick_ns; /* when something is to be done next */
    /* The list that is being sent. */
    struct sh_request send;
    bool is_sending;
    unsigned shard;
    struct target *target;
    uint64_t number;
    uint8_t after[SH_NAME_BYTES_MAX];
    size_t after_size, sent_bytes;
    bool is_last;
    /* What is being gathered. */
    struct sh_request ask;
    bool is_asking;
    enum gather_phase phase;
    uint64_t from_ns;   /* nobody is asked before */
    shoal_nid nid;      /* asked last */
    uint64_t asked_for; /* shards whose names were ordered, since the asking began */
    unsigned fetching;
    bool is_late;   /* the list that is fetched or ordered is a late one */
    uint8_t *bytes; /* of the shard that is fetched */
    uint32_t size, room;
    uint32_t ordered; /* bytes of it that have become updates */
    /* Who is polled next, and when. */
    shoal_nid polled;
    uint64_t poll_ns;
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static bool is_peer_up(const struct sh_node *node)
{
    return node && node->role == SH_ROLE_PEER && node->state == SH_NODE_UP;
}

/* --- Sending --------------------------------------------------------------------------------- */

/* The two peers for which a hash of them and the shard is highest: a peer that comes or goes
 * changes few. */
static void targets_set(const struct sh_view *view, unsigned shard, struct target *targets)
{
    uint64_t scores[TARGETS] = {0};
    struct target found[TARGETS] = {0};
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (!is_peer_up(node))
            continue;
        struct target one = {.nid = node->nid, .instance = node->instance};
        uint64_t score = sh_mix64((uint64_t)shard << 32 | node->nid.v) | 1;
        for (unsigned t = 0; t < TARGETS; t++) {
            if (targets[t].nid.v == node->nid.v && targets[t].instance == node->instance)
                one.done = targets[t].done;
        }
        for (unsigned t = 0; t < TARGETS; t++) {
            if (score <= scores[t])
                continue;
            uint64_t lower = scores[t];
            struct target other = found[t];
            scores[t] = score;
            found[t] = one;
            score = lower;
            one = other;
        }
    }
    memcpy(targets, found, sizeof found);
}

static void on_sent(struct sh_request *request, enum shoal_err err, struct sh_reader *payload);

/* Sends the next piece of the list; false: not now. */
static bool piece_send(struct sh_superpeer *superpeer, const struct sh_metadata *metadata)
{
    struct sh_keep *keep = superpeer->keep;
    uint8_t bytes[SH_KEEPER_PIECE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_bytes name = sh_bytes_make(keep->after_size ? keep->after : NULL, keep->after_size);
    struct sh_bytes none = {NULL, 0}, next;
    shoal_cid cid;
    bool is_first = keep->after_size == 0;
    keep->is_last = true;
    while (sh_metadata_name_next(metadata, keep->shard, none, name, &next, &cid)) {
        keep->is_last = (size_t)(w.end - w.at) >= next.size + 10;
        if (!keep->is_last)
            break;
        sh_put64(&w, cid.v);
        sh_put_text(&w, next);
        name = next;
    }
    size_t size = (size_t)(w.at - bytes);
    struct sh_out out;
    keep->send = (struct sh_request){
        .done = on_sent, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 2 + 1};
    if (sh_msg_request(superpeer->msg, keep->target->nid, SH_CLUSTER_KEEP, 26 + size, &keep->send,
                       &out))
        return false;
    sh_put8(&out.w, (uint8_t)keep->shard);
    sh_put8(&out.w, (uint8_t)((is_first ? SH_KEEP_FIRST : 0) | (keep->is_last ? SH_KEEP_LAST : 0)));
    sh_put64(&out.w, keep->number);
    sh_put64(&out.w, sh_metadata_incarnation(metadata, keep->shard));
    sh_put64(&out.w, sh_metadata_name_base(metadata, keep->shard));
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    keep->is_sending = true;
    keep->sent_bytes += size;
    if (name.size && name.at != keep->after) {
        memcpy(keep->after, name.at, name.size);
        keep->after_size = name.size;
    }
    sh_msg_end(superpeer->msg, &out);
    return true;
}

static void on_sent(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_keep *keep = superpeer->keep;
    struct shard *shard = &keep->shards[keep->shard];
    struct sh_metadata *metadata;
    shoal_nid other;
    uint64_t other_number = err ? 0 : sh_get64(payload);
    keep->is_sending = false;
    keep->tick_ns = 0;
    if (!err && !sh_reader_done(payload))
        err = SHOAL_EPROTO;
    if (!err && other_number) {
        SH_INFO("cluster", "a peer has names that were forgotten", SH_U64("shard", keep->shard),
                SH_U64("peer", keep->target->nid.v), SH_U64("changes", other_number));
        shard->late.number = other_number;
        shard->late.nid = keep->target->nid;
        err = SHOAL_EEXIST;
    }
    if (!err && !keep->is_last)
        err = sh_superpeer_services_state(superpeer, keep->shard, &metadata, &other);
    if (!err && !keep->is_last && piece_send(superpeer, metadata))
        return;
    if (!err && keep->is_last) {
        keep->target->done = keep->number;
        SH_DEBUG("cluster", "names are at a peer", SH_U64("shard", keep->shard),
                 SH_U64("peer", keep->target->nid.v), SH_U64("changes", keep->number));
    } else {
        SH_DEBUG("cluster", "names are not at a peer", SH_U64("node", keep->target->nid.v),
                 SH_U64("shard", keep->shard), SH_ERR(err));
    }
    /* The other peer gets it at once; then there is a pause. */
    bool is_done = true;
    for (unsigned t = 0; !err && t < TARGETS; t++)
        is_done &= !shard->targets[t].nid.v || shard->targets[t].done >= keep->number;
    if (is_done)
        shard->due_ns = now_of(superpeer) + PAUSE_NS + 1000 * keep->sent_bytes;
}

/* Begins to send a shard's list, if it has changed since a target got it. */
static bool shard_send(struct sh_superpeer *superpeer, unsigned number, uint64_t now_ns)
{
    struct sh_keep *keep = superpeer->keep;
    struct shard *shard = &keep->shards[number];
    struct sh_metadata *metadata;
    shoal_nid other;
    if (now_ns < shard->due_ns || sh_superpeer_services_state(superpeer, number, &metadata, &other))
        return false;
    uint64_t changes = sh_metadata_name_changes(metadata, number);
    for (unsigned t = 0; t < TARGETS; t++) {
        if (!shard->targets[t].nid.v || shard->targets[t].done == changes)
            continue;
        keep->shard = number;
        keep->target = &shard->targets[t];
        keep->number = changes;
        keep->after_size = keep->sent_bytes = 0;
        if (piece_send(superpeer, metadata))
            return true;
        shard->due_ns = now_ns + PAUSE_NS;
    }
    return false;
}

static unsigned send_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_keep *keep = superpeer->keep;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (keep->is_sending)
        return 0;
    if (view->epoch != keep->epoch) {
        keep->epoch = view->epoch;
        for (unsigned i = 0; i < SH_SHARDS; i++)
            targets_set(view, i, keep->shards[i].targets);
    }
    for (unsigned i = 1; i <= SH_SHARDS; i++)
        if (shard_send(superpeer, (keep->shard + i) % SH_SHARDS, now_ns))
            return 1;
    return 0;
}

/* --- Gathering ------------------------------------------------------------------------------- */

/* Forgets what was found, and begins to ask. */
static void gather_begin(struct sh_keep *keep)
{
    keep->phase = keep->is_late ? GATHER_NONE : GATHER_ASK; /* the peer says it again */
    keep->is_late = false;
    keep->nid = SHOAL_NID_NONE;
    keep->size = keep->ordered = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        keep->shards[i].best.number = 0;
}

static bool ask(struct sh_superpeer *superpeer, shoal_nid nid, uint64_t number,
                void (*done)(struct sh_request *, enum shoal_err, struct sh_reader *))
{
    struct sh_keep *keep = superpeer->keep;
    struct sh_out out;
    keep->ask = (struct sh_request){
        .done = done, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 4 + 1};
    if (sh_msg_request(superpeer->msg, nid, SH_CLUSTER_KEPT, 13, &keep->ask, &out))
        return false;
    keep->is_asking = true;
    sh_put8(&out.w, (uint8_t)keep->fetching);
    sh_put64(&out.w, number);
    sh_put32(&out.w, keep->size);
    sh_msg_end(superpeer->msg, &out);
    return true;
}

static void on_asked(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_keep *keep = superpeer->keep;
    uint64_t numbers[SH_SHARDS];
    keep->is_asking = false;
    keep->tick_ns = 0;
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        numbers[i] = sh_get64(payload);
        (void)sh_get64(payload); /* whichever history it is of */
        (void)sh_get64(payload); /* a loaded one comes with a poll, behind all others */
    }
    if (!err && !sh_reader_done(payload))
        err = SHOAL_EPROTO;
    if (err && err != SHOAL_ENOTYPE) { /* asked again, until it has failed */
        keep->nid.v--;
        keep->tick_ns = now_of(superpeer) + superpeer->heartbeat_ns / 2;
        return;
    }
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        if (numbers[i] <= keep->shards[i].best.number)
            continue;
        keep->shards[i].best.number = numbers[i];
        keep->shards[i].best.nid = keep->nid;
    }
}

/* Orders what is left of the list, and behind it that the names are known. EBUSY: goes on later. */
static enum shoal_err list_order(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    struct shard *shard = &keep->shards[keep->fetching];
    bool is_loaded = shard->best.number & SH_KEEP_LOADED_BIT;
    uint64_t base = is_loaded ? 0 : shard->best.number;
    uint64_t number = sh_metadata_name_changes(superpeer->ring->metadata, keep->fetching);
    struct sh_reader r = sh_reader_make(
        sh_bytes_make(keep->size ? keep->bytes + keep->ordered : NULL, keep->size - keep->ordered));
    while (sh_reader_left(&r) > 0) {
        struct sh_metadata_update update = {.kind = SH_METADATA_NAME,
                                            .condition =
                                                keep->is_late ? SH_NAME_ABSENT : SH_NAME_GATHERED};
        update.cid.v = sh_get64(&r);
        update.name = sh_get_text(&r);
        if (!sh_reader_ok(&r) || !update.cid.v || !update.name.size ||
            update.name.size > SH_NAME_BYTES_MAX || memchr(update.name.at, 0, update.name.size) ||
            sh_metadata_shard(&update) != keep->fetching)
            return SHOAL_EPROTO;
        enum shoal_err err = sh_superpeer_ring_order(superpeer, keep->fetching, &update);
        if (err)
            return err;
        keep->ordered = keep->size - (uint32_t)sh_reader_left(&r);
    }
    struct sh_metadata_update known = {.kind = SH_METADATA_NAMES_KNOWN,
                                       .sequence = base,
                                       .number = (number > base ? number : base) + NUMBER_STEP};
    enum shoal_err err = sh_superpeer_ring_order(superpeer, keep->fetching, &known);
    if (!err && is_loaded) {
        shard->taken.number = shard->best.number;
        shard->taken.nid = shard->best.nid;
        shard->taken.known = known.number;
        shard->taken.incarnation =
            sh_metadata_incarnation(superpeer->ring->metadata, keep->fetching);
    }
    return err;
}

static enum shoal_err piece_get(struct sh_keep *keep, struct sh_reader *r)
{
    uint32_t total = sh_get32(r);
    size_t size = sh_reader_left(r);
    const uint8_t *bytes = sh_reader_take(r, size);
    if (!sh_reader_ok(r) || total > SH_KEEPER_BYTES_MAX || size > total - keep->size ||
        (!size && keep->size < total))
        return SHOAL_EPROTO;
    if (total > keep->room) {
        uint8_t *room = realloc(keep->bytes, total);
        if (!room)
            return SHOAL_ENOMEM;
        keep->bytes = room;
        keep->room = total;
    }
    if (size)
        memcpy(keep->bytes + keep->size, bytes, size);
    keep->size += (uint32_t)size;
    if (keep->size == total)
        keep->phase = GATHER_ORDER;
    return SHOAL_OK;
}

static void on_fetched(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    struct sh_keep *keep = superpeer->keep;
    keep->is_asking = false;
    keep->tick_ns = 0;
    if (!err)
        err = piece_get(keep, payload);
    if (!err)
        return;
    /* It is gone, or has another list by now: who else has one? */
    SH_DEBUG("cluster", "names are not fetched", SH_U64("shard", keep->fetching), SH_ERR(err));
    keep->tick_ns = now_of(superpeer) + superpeer->heartbeat_ns / 2;
    gather_begin(keep);
}

/* The next peer that is up; NONE: all were asked. */
static shoal_nid peer_after(const struct sh_view *view, shoal_nid nid)
{
    for (size_t i = 0; i < view->count; i++)
        if (view->nodes[i].nid.v > nid.v && is_peer_up(&view->nodes[i]))
            return view->nodes[i].nid;
    return SHOAL_NID_NONE;
}

/* Whether this superpeer is to find the names of a shard: it owns it, and does not know them. */
static bool is_wanted(struct sh_superpeer *superpeer, unsigned shard)
{
    shoal_nid other;
    return !sh_superpeer_ring_reads(superpeer, shard, &other) &&
           !sh_metadata_names_known(superpeer->ring->metadata, shard);
}

/* Goes on with a list that is here. */
static void order_step(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    enum shoal_err err = list_order(superpeer);
    if (err == SHOAL_EBUSY || err == SHOAL_ENOMEM) {
        keep->tick_ns = now_of(superpeer) + ORDER_PAUSE_NS;
        return;
    }
    if (!err && keep->size)
        SH_INFO("cluster", "names gathered from a peer", SH_U64("shard", keep->fetching),
                SH_U64("peer", keep->shards[keep->fetching].best.nid.v));
    else if (err)
        SH_DEBUG("cluster", "names are not gathered", SH_U64("shard", keep->fetching), SH_ERR(err));
    keep->asked_for |= UINT64_C(1) << keep->fetching;
    keep->phase = keep->is_late ? GATHER_NONE : GATHER_FETCH;
    keep->is_late = false;
    keep->size = keep->ordered = 0;
}

/* Begins with a shard of which a peer has a late list. */
static void late_begin(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    for (unsigned i = 0; keep->phase == GATHER_NONE && i < SH_SHARDS; i++) {
        struct shard *shard = &keep->shards[i];
        struct sh_metadata *metadata;
        shoal_nid other;
        if (!shard->late.number)
            continue;
        shard->best.number = shard->late.number;
        shard->best.nid = shard->late.nid;
        shard->late.number = 0;
        if (sh_superpeer_services_state(superpeer, i, &metadata, &other))
            continue; /* the next owner is told, too */
        keep->fetching = i;
        keep->size = keep->ordered = 0;
        keep->is_late = true;
        keep->phase = GATHER_LATE;
    }
}

/* Fetches the list, or its next piece. */
static void best_ask(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    const struct shard *shard = &keep->shards[keep->fetching];
    if (!ask(superpeer, shard->best.nid, shard->best.number, on_fetched))
        gather_begin(keep); /* it is gone: who else has one? */
}

/* Fetches the next shard's list, or has it known that there is none. */
static void fetch_step(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (keep->asked_for >> i & 1 || !is_wanted(superpeer, i))
            continue;
        keep->fetching = i;
        if (keep->shards[i].best.number) {
            best_ask(superpeer);
            return;
        }
        order_step(superpeer);
    }
    keep->phase = GATHER_NONE;
}

/* --- Polling --------------------------------------------------------------------------------- */

/* Whether all targets of a shard, by the last view, have all its names, and the peer is none of
 * them. */
static bool is_spare(const struct sh_superpeer *superpeer, unsigned number, shoal_nid nid)
{
    const struct sh_keep *keep = superpeer->keep;
    const struct target *targets = keep->shards[number].targets;
    uint64_t changes = sh_metadata_name_changes(superpeer->ring->metadata, number);
    for (unsigned t = 0; t < TARGETS; t++) {
        if (targets[t].nid.v == nid.v || (targets[t].nid.v && targets[t].done != changes))
            return false;
    }
    return targets[0].nid.v && keep->epoch == sh_registry_view(superpeer->registry)->epoch;
}

/* What a peer has of a shard that is served here. */
static void polled_look(struct sh_superpeer *superpeer, unsigned number, uint64_t kept,
                        uint64_t incarnation, uint64_t loaded)
{
    struct sh_keep *keep = superpeer->keep;
    struct shard *shard = &keep->shards[number];
    struct sh_metadata *metadata;
    shoal_nid other;
    if ((!kept && !loaded) || shard->late.number ||
        sh_superpeer_services_state(superpeer, number, &metadata, &other))
        return;
    bool is_late = kept > sh_metadata_name_base(metadata, number) &&
                   incarnation != sh_metadata_incarnation(metadata, number) &&
                   !(kept & SH_KEEP_LOADED_BIT);
    if (!is_late && kept && !shard->taken.number && is_spare(superpeer, number, keep->polled)) {
        shard->taken.number = kept;
        shard->taken.known = 0;
        shard->taken.incarnation = sh_metadata_incarnation(metadata, number);
        shard->taken.nid = keep->polled;
    }
    if (!is_late && (!(loaded & SH_KEEP_LOADED_BIT) || shard->taken.number))
        return;
    SH_INFO("cluster", "a peer has names that are not here", SH_U64("shard", number),
            SH_U64("peer", keep->polled.v), SH_U64("loaded", !is_late));
    shard->late.number = is_late ? kept : loaded;
    shard->late.nid = keep->polled;
}

static void on_polled(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    superpeer->keep->is_asking = false;
    if (err || sh_reader_left(payload) != SH_KEPT_BYTES)
        return; /* it is asked again in the next round */
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        uint64_t kept = sh_get64(payload);
        uint64_t incarnation = sh_get64(payload);
        uint64_t loaded = sh_get64(payload);
        polled_look(superpeer, i, kept, incarnation, loaded);
    }
    superpeer->keep->tick_ns = 0;
}

static void on_told(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_superpeer *superpeer = request->arg;
    (void)payload;
    superpeer->keep->is_asking = false;
    superpeer->keep->tick_ns = 0;
    if (err) /* it says again that it has the list, whose names then are found to be there */
        SH_DEBUG("cluster", "a peer does not know that its names were taken", SH_ERR(err));
}

/* Tells a peer whose list is not needed any more, one at a time. */
static bool taken_tell(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct shard *shard = &keep->shards[i];
        uint64_t number = shard->taken.number;
        struct sh_metadata *metadata;
        shoal_nid other;
        struct sh_out out;
        if (!number)
            continue;
        bool is_here = !sh_superpeer_services_state(superpeer, i, &metadata, &other) &&
                       sh_metadata_incarnation(metadata, i) == shard->taken.incarnation;
        if (is_here && sh_metadata_name_changes(metadata, i) < shard->taken.known)
            continue;
        shard->taken.number = 0;
        if (!(number & SH_KEEP_LOADED_BIT))
            is_here = is_here && is_spare(superpeer, i, shard->taken.nid);
        keep->ask = (struct sh_request){
            .done = on_told, .arg = superpeer, .timeout_ns = superpeer->failure_ns / 4 + 1};
        if (!is_here ||
            sh_msg_request(superpeer->msg, shard->taken.nid, SH_CLUSTER_KEEP, 26, &keep->ask, &out))
            continue;
        keep->is_asking = true;
        sh_put8(&out.w, (uint8_t)i);
        sh_put8(&out.w, SH_KEEP_TAKEN);
        sh_put64(&out.w, number);
        sh_put64(&out.w, shard->taken.incarnation);
        sh_put64(&out.w, 0);
        sh_msg_end(superpeer->msg, &out);
        return true;
    }
    return false;
}

static unsigned poll_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_keep *keep = superpeer->keep;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    unsigned peers = 1;
    if (keep->phase != GATHER_NONE || keep->is_asking)
        return 0;
    if (taken_tell(superpeer))
        return 1;
    if (now_ns < keep->poll_ns)
        return 0;
    for (size_t i = 0; i < view->count; i++)
        peers += is_peer_up(&view->nodes[i]);
    uint64_t pause_ns = POLL_ROUND_NS / peers;
    keep->poll_ns = now_ns + (pause_ns > POLL_PAUSE_NS ? pause_ns : POLL_PAUSE_NS);
    keep->polled = peer_after(view, keep->polled);
    if (!keep->polled.v)
        keep->polled = peer_after(view, keep->polled);
    keep->size = 0;
    return keep->polled.v && ask(superpeer, keep->polled, 0, on_polled);
}

static unsigned gather_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_keep *keep = superpeer->keep;
    if (keep->is_asking)
        return 0;
    for (unsigned i = 0; keep->phase == GATHER_NONE && i < SH_SHARDS; i++) {
        if (!is_wanted(superpeer, i))
            continue;
        gather_begin(keep);
        keep->asked_for = 0;
    }
    late_begin(superpeer);
    if (keep->phase == GATHER_NONE)
        return 0;
    keep->tick_ns = now_ns + superpeer->heartbeat_ns / 2;
    if (keep->phase == GATHER_ASK) {
        shoal_nid nid = peer_after(sh_registry_view(superpeer->registry), keep->nid);
        if (nid.v && ask(superpeer, nid, 0, on_asked))
            keep->nid = nid;
        if (nid.v)
            return 1;
        keep->phase = GATHER_FETCH;
    }
    if (keep->phase == GATHER_LATE) {
        best_ask(superpeer);
        return 1;
    }
    if (keep->phase == GATHER_ORDER)
        order_step(superpeer);
    if (keep->phase == GATHER_FETCH)
        fetch_step(superpeer);
    return 1;
}

/* --- Life ------------------------------------------------------------------------------------ */

unsigned sh_superpeer_keep_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_keep *keep = superpeer->keep;
    if (now_ns < keep->tick_ns)
        return 0;
    keep->tick_ns = now_ns + superpeer->heartbeat_ns;
    unsigned work = gather_step(superpeer, now_ns) + poll_step(superpeer, now_ns);
    work += send_step(superpeer, now_ns);
    if (!keep->is_asking && keep->poll_ns < keep->tick_ns && keep->poll_ns > now_ns)
        keep->tick_ns = keep->poll_ns;
    return work;
}

uint64_t sh_superpeer_keep_due_ns(const struct sh_superpeer *superpeer)
{
    return superpeer->keep->tick_ns;
}

enum shoal_err sh_superpeer_keep_open(struct sh_superpeer *superpeer)
{
    superpeer->keep = calloc(1, sizeof *superpeer->keep);
    if (!superpeer->keep)
        return SHOAL_ENOMEM;
    /* Where the registry was forgotten too, peers have to come back first. */
    uint64_t wait_ns = superpeer->failure_ns < RETURN_NS ? superpeer->failure_ns : RETURN_NS;
    superpeer->keep->from_ns = now_of(superpeer) + wait_ns;
    return SHOAL_OK;
}

void sh_superpeer_keep_close(struct sh_superpeer *superpeer)
{
    struct sh_keep *keep = superpeer->keep;
    if (!keep)
        return;
    if (keep->is_sending)
        (void)sh_msg_cancel(superpeer->msg, &keep->send);
    if (keep->is_asking)
        (void)sh_msg_cancel(superpeer->msg, &keep->ask);
    free(keep->bytes);
    superpeer->keep = NULL;
    free(keep);
}
