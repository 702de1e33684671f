/* What has become of nodes, in the order in which it became so: the last SH_REGISTRY_EVENTS_MAX
 * changes of the view, for those who follow it. */
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cluster/changes.h"
#include "superpeer/registry_int.h"

static struct sh_registry_event *event_at(const struct sh_registry *registry, uint64_t number)
{
    return &registry->events[number % SH_REGISTRY_EVENTS_MAX];
}

static void record(struct sh_registry *registry, const struct sh_node *node, bool is_forgotten)
{
    struct sh_registry_event *event = event_at(registry, registry->events_count);
    if (registry->events_count >= SH_REGISTRY_EVENTS_MAX)
        registry->events_floor = event->epoch;
    *event = (struct sh_registry_event){
        .epoch = registry->view.epoch, .is_forgotten = is_forgotten, .node = *node};
    registry->events_count++;
}

void sh_registry_touch_node(struct sh_registry *registry, const struct sh_node *node)
{
    sh_registry_touch(registry);
    record(registry, node, false);
}

void sh_registry_touch_forgotten(struct sh_registry *registry, const struct sh_node *node)
{
    sh_registry_touch(registry);
    record(registry, node, true);
}

static void record_change(void *arg, const struct sh_node *old, const struct sh_node *new)
{
    record(arg, new ? new : old, !new);
}

static void events_differ(struct sh_registry *registry, const struct sh_view *before)
{
    sh_view_diff(before, &registry->view, record_change, registry);
}

void sh_registry_events_begin(struct sh_registry *registry)
{
    registry->events_count = 0;
    registry->events_floor = registry->view.epoch;
}

void sh_registry_events_take(struct sh_registry *registry, const struct sh_registry *from)
{
    /* What came between two epochs is not known; those who know a part of it would hear it twice.
     */
    if (registry->events_log != from->events_log || from->view.epoch + 1 < registry->view.epoch) {
        sh_registry_events_begin(registry);
        return;
    }
    memcpy(registry->events, from->events, SH_REGISTRY_EVENTS_MAX * sizeof registry->events[0]);
    registry->events_count = from->events_count;
    registry->events_floor = from->events_floor;
    events_differ(registry, &from->view);
}

uint64_t sh_registry_events_log(const struct sh_registry *registry)
{
    return registry->events_log;
}

void sh_registry_events_name(struct sh_registry *registry, uint64_t instance)
{
    if (registry->events_log != 1 || !instance)
        return;
    registry->events_log = sh_mix64(instance) & ~UINT64_C(1);
    if (!registry->cluster_id)
        registry->cluster_id = sh_mix64(~instance) | 1;
    registry->changes++;
}

size_t sh_registry_events_after(const struct sh_registry *registry, uint64_t epoch,
                                uint64_t *first_out)
{
    uint64_t count = registry->events_count;
    uint64_t least = count > SH_REGISTRY_EVENTS_MAX ? count - SH_REGISTRY_EVENTS_MAX : 0;
    if (epoch < registry->events_floor)
        return SIZE_MAX;
    uint64_t first = count;
    while (first > least && event_at(registry, first - 1)->epoch > epoch)
        first--;
    *first_out = first;
    return (size_t)(count - first);
}

/* Puts an ID in its place, if it is not there; returns how many there are. */
static size_t nid_insert(shoal_nid *nids, size_t count, shoal_nid nid)
{
    size_t at = count;
    while (at > 0 && nids[at - 1].v > nid.v)
        at--;
    if (at > 0 && nids[at - 1].v == nid.v)
        return count;
    memmove(&nids[at + 1], &nids[at], (count - at) * sizeof nids[0]);
    nids[at] = nid;
    return count + 1;
}

size_t sh_registry_changed_since(const struct sh_registry *registry, uint64_t epoch,
                                 shoal_nid *nids_out)
{
    _Static_assert(SH_REGISTRY_EVENTS_MAX <= SH_CHANGES_MAX, "all that is known can be told");
    uint64_t first;
    shoal_nid nids[SH_CHANGES_MAX + 1];
    size_t events = sh_registry_events_after(registry, epoch, &first), count = 0;
    if (events == SIZE_MAX || epoch > registry->view.epoch)
        return SIZE_MAX;
    for (size_t i = 0; i < events; i++) {
        count = nid_insert(nids, count, event_at(registry, first + i)->node.nid);
    }
    SH_ASSERT(count <= events && events <= SH_CHANGES_MAX);
    memcpy(nids_out, nids, count * sizeof nids[0]);
    return count;
}

uint64_t sh_registry_digest(struct sh_registry *registry)
{
    if (registry->digest_epoch != registry->view.epoch ||
        registry->digest_changes != registry->changes) {
        registry->digest = sh_view_digest(&registry->view);
        registry->digest_epoch = registry->view.epoch;
        registry->digest_changes = registry->changes;
    }
    return registry->digest;
}

const struct sh_registry_event *sh_registry_event(const struct sh_registry *registry,
                                                  uint64_t number)
{
    SH_ASSERT(number < registry->events_count);
    return event_at(registry, number);
}
