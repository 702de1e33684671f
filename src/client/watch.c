/* Following what becomes of nodes: a superpeer is asked again and again what has happened since. And of zones that cannot be
 * brought back as they were: after each change of the view, until nothing is under way, all superpeers are asked for a list. */
#include <stdlib.h>
#include <string.h>

#include "client/client_int.h"
#include "client/watch_int.h"
#include "cluster/proto.h"

/* Between questions that had nothing for an answer: as often as nodes hear it, or oftener. */
#define PAUSE_NS UINT64_C(50000000)
/* For a superpeer that may be gone, while there are others. */
#define PATIENCE_NS UINT64_C(500000000)
#define ZONES_NS UINT64_C(500000000) /* between two lists of zones */

struct watch {
    shoal *store;
    bool (*each)(void *arg, const struct shoal_event *event);
    void *arg;
    uint64_t log;
    struct sh_view view; /* as it was told; epoch 0: nothing yet */
    uint64_t epoch;      /* of the event that is being told */
    bool is_first;
    bool goes_on;
    bool was_told;  /* something, by the last answer */
    unsigned asked; /* which superpeer, in turn */
    struct sh_watched_zones zones;
};

static void tell(struct watch *watch, const struct sh_node *node, const struct sh_node *before)
{
    struct shoal_event event = {.epoch = watch->epoch};
    if (!watch->goes_on)
        return;
    /* Only its traits are others: nothing became of it. */
    if (!watch->is_first && before && before->state == node->state &&
        before->instance == node->instance && strcmp(before->address, node->address) == 0)
        return;
    if (watch->is_first)
        event.kind = SHOAL_EVENT_PRESENT;
    else if (before && before->state == node->state && node->state != SH_NODE_UP)
        event.kind = SHOAL_EVENT_MOVED; /* started anew elsewhere, and not up again yet */
    else if (node->state == SH_NODE_LEFT)
        event.kind = SHOAL_EVENT_LEFT;
    else if (node->state == SH_NODE_AWAY)
        event.kind = SHOAL_EVENT_AWAY;
    else if (node->state == SH_NODE_FAILED)
        event.kind = SHOAL_EVENT_FAILED;
    else if (before && before->instance == node->instance && before->state == SH_NODE_FAILED)
        event.kind = SHOAL_EVENT_RETURNED;
    else if (before && before->instance == node->instance && before->state == SH_NODE_UP)
        event.kind = SHOAL_EVENT_MOVED;
    else
        event.kind = SHOAL_EVENT_JOINED;
    event.node = sh_client_node(node);
    watch->was_told = true;
    watch->goes_on = watch->each(watch->arg, &event);
}

static void tell_change(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    struct watch *watch = arg;
    struct sh_node gone;
    if (!new && old->state != SH_NODE_UP)
        return; /* forgotten: that it left or failed was told */
    if (!new) {
        gone = *old;
        gone.state = SH_NODE_LEFT;
        new = &gone;
    }
    tell(watch, new, old);
}

/* Whether a registry that superpeers shared has been begun anew, and its epochs with it: all disks
 * were lost. A log of a superpeer's own, an odd number, may be behind another one's. */
static bool is_anew(const struct watch *watch, uint64_t log)
{
    return log != watch->log && log % 2 == 0;
}

static enum shoal_err view_read(struct watch *watch, struct sh_reader *r, uint64_t log)
{
    struct sh_view view = {0};
    enum shoal_err err = sh_view_get(r, &view);
    if (err || (!watch->is_first && view.epoch <= watch->view.epoch && !is_anew(watch, log))) {
        sh_view_destroy(&view); /* of a superpeer that is behind the one before */
        return err;
    }
    if (view.epoch <= watch->view.epoch)
        watch->zones.epoch =
            0; /* epochs have begun anew: lists of before say nothing of this registry */
    watch->epoch = view.epoch;
    sh_view_diff(&watch->view, &view, tell_change, watch);
    sh_view_destroy(&watch->view);
    watch->view = view;
    watch->is_first = false;
    return SHOAL_OK;
}

static enum shoal_err event_read(struct watch *watch, struct sh_reader *r, uint64_t known)
{
    uint64_t epoch = sh_get64(r);
    struct sh_node node;
    enum shoal_err err = sh_node_get(r, &node);
    if (err || epoch <= known)
        return err;
    const struct sh_node *found = sh_view_find(&watch->view, node.nid);
    struct sh_node before = found ? *found : (struct sh_node){.nid = SHOAL_NID_NONE};
    err = sh_view_put(&watch->view, &node);
    if (err)
        return err;
    watch->epoch = epoch;
    tell(watch, &node, before.nid.v ? &before : NULL);
    return SHOAL_OK;
}

static enum shoal_err answer_read(struct watch *watch, struct sh_bytes answer)
{
    struct sh_reader r = sh_reader_make(answer);
    uint64_t log = sh_get64(&r), epoch = sh_get64(&r), known = watch->view.epoch;
    uint8_t flags = sh_get8(&r);
    size_t count = sh_get16(&r);
    enum shoal_err err = SHOAL_OK;
    if (!sh_reader_ok(&r) || (flags & ~SH_ANSWER_VIEW))
        return SHOAL_EPROTO;
    if (flags & SH_ANSWER_VIEW)
        err = view_read(watch, &r, log);
    for (size_t i = 0; !err && i < count; i++)
        err = event_read(watch, &r, known);
    if (!err && !sh_reader_done(&r))
        err = SHOAL_EPROTO;
    watch->log = log;
    if (!err && epoch > watch->view.epoch)
        watch->view.epoch = epoch;
    return err;
}

/* One of the superpeers that are up as far as is known, another one after each failure; NONE. */
static shoal_nid superpeer_pick(struct watch *watch)
{
    shoal_nid up[SH_SUPERPEERS_MAX];
    unsigned count = 0;
    struct sh_node node;
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        shoal_nid nid = {i};
        if (!sh_directory_node(watch->store->directory, nid, &node) && node.state == SH_NODE_UP)
            up[count++] = nid;
    }
    return count ? up[watch->asked % count] : SHOAL_NID_NONE;
}

static enum shoal_err ask(struct watch *watch)
{
    shoal *store = watch->store;
    uint8_t request[SH_EVENTS_BYTES];
    uint8_t *answer;
    size_t size;
    shoal_nid superpeer = superpeer_pick(watch);
    if (!superpeer.v)
        return SHOAL_EUNREACHABLE;
    sh_store64(request, watch->log);
    sh_store64(request + 8, watch->view.epoch);
    struct sh_caller caller = sh_client_caller(store);
    enum shoal_err err =
        sh_call(&caller, superpeer, SH_CLUSTER_EVENTS, sh_bytes_make(request, sizeof request),
                store->timeout_ns < PATIENCE_NS ? store->timeout_ns : PATIENCE_NS, &answer, &size,
                sh_client_detail());
    if (err)
        return err;
    err = answer_read(watch, sh_bytes_make(answer, size));
    free(answer);
    return err;
}

/* --- Zones ------------------------------------------------------------------------------------- */

/* Of a zone that is lost: the node that failed; of one that came back: the owner, which has it now. */
static struct shoal_node zone_node(const struct watch *watch, const struct sh_watched_news *news)
{
    const struct sh_zone *zone = &news->zone;
    bool is_former = news->kind == SHOAL_EVENT_ZONE_LOST && zone->former.v;
    shoal_nid nid = is_former ? zone->former : zone->owner;
    const struct sh_node *node = sh_view_find(&watch->view, nid);
    return node ? sh_client_node(node) : (struct shoal_node){.nid = nid, .role = SHOAL_PEER};
}

static void zones_tell(struct watch *watch)
{
    for (size_t i = 0; i < watch->zones.news_count && watch->goes_on; i++) {
        const struct sh_watched_news *news = &watch->zones.news[i];
        struct shoal_event event = {.epoch = watch->view.epoch,
                                    .kind = news->kind,
                                    .node = zone_node(watch, news),
                                    .zone = news->zone.id,
                                    .first = news->zone.first,
                                    .last = news->zone.last};
        watch->was_told = true;
        watch->goes_on = watch->each(watch->arg, &event);
    }
}

/* Where the superpeers do not answer for all shards now, they are asked again. */
static enum shoal_err zones_look(struct watch *watch)
{
    shoal *store = watch->store;
    struct sh_watched_zones *zones = &watch->zones;
    uint64_t epoch = 0;
    if (!watch->goes_on || !sh_watched_zones_are_old(zones, watch->view.epoch) ||
        sh_now(&store->env.clock) < zones->due_ns)
        return SHOAL_OK;
    sh_watched_zones_begin(zones);
    enum shoal_err err =
        sh_client_recoveries_within(store, PATIENCE_NS, sh_watched_zones_take, zones, &epoch);
    err = sh_watched_zones_end(zones, err, epoch);
    zones->due_ns = sh_now(&store->env.clock) + ZONES_NS;
    if (!err)
        zones_tell(watch);
    return err == SHOAL_ENOMEM || err == SHOAL_EPROTO ? err : SHOAL_OK;
}

static void pause_for(shoal *store, uint64_t ns)
{
    struct sh_waiter nobody = {0};
    (void)sh_crew_wait(store->crew, 0, &nobody, sh_now(&store->env.clock) + ns);
}

static enum shoal_err follow(struct watch *watch)
{
    shoal *store = watch->store;
    uint64_t heard_ns = sh_now(&store->env.clock);
    while (watch->goes_on) {
        watch->was_told = false;
        enum shoal_err err = ask(watch);
        uint64_t now_ns = sh_now(&store->env.clock);
        if (!err) {
            heard_ns = now_ns;
            err = zones_look(watch);
            if (err)
                return err;
        } else if (err == SHOAL_ENOMEM || err == SHOAL_EPROTO || err == SHOAL_ENOTYPE ||
                   now_ns >= heard_ns + store->timeout_ns) {
            return err;
        } else {
            watch->asked++;
            if (sh_client_refresh(store, now_ns + PATIENCE_NS))
                sh_client_detail_set("no superpeer answers");
        }
        if (!watch->was_told && watch->goes_on) {
            watch->goes_on = watch->each(watch->arg, NULL);
            pause_for(store, err ? SH_ROUND_PAUSE_NS : PAUSE_NS);
        }
    }
    return SHOAL_OK;
}

enum shoal_err shoal_watch(shoal *store, bool (*each)(void *arg, const struct shoal_event *event),
                           void *arg)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !each)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded)
        return SHOAL_EROLE;
    struct watch watch = {
        .store = store, .each = each, .arg = arg, .is_first = true, .goes_on = true};
    err = follow(&watch);
    sh_view_destroy(&watch.view);
    sh_watched_zones_destroy(&watch.zones);
    return err;
}
