/* What a registry has, in numbers. */
#include "cluster/registry_int.h"
#include "cluster/report.h"

/* Ranges that are looked at to count those that have moved: 2 ms at most, in the step. */
#define WALK_MAX 16384

void sh_registry_report(const struct sh_registry *registry, struct sh_report *report)
{
    size_t arc_nids = (size_t)registry->arc_last.v - registry->arc_first.v + 1;
    report->arc_first = registry->arc_first.v;
    report->arc_last = registry->arc_last.v;
    report->ranges = sh_ranges_count(registry->ranges);
    report->registry_bytes =
        sizeof *registry + sh_ranges_bytes(registry->ranges) +
        registry->view.room * sizeof registry->view.nodes[0] +
        arc_nids * (sizeof registry->heard_ns[0] + sizeof registry->failed_epochs[0]) +
        (SH_PEER_NID_MAX + 1) * sizeof registry->sources[0];
    struct sh_range range;
    shoal_cid from = {0};
    uint64_t walked = 0;
    while (walked < WALK_MAX && sh_ranges_next(registry->ranges, from, &range)) {
        report->moved += range.value != shoal_cid_creator(range.first).v;
        walked++;
        if (range.last.v == UINT64_MAX)
            break;
        from.v = range.last.v + 1;
    }
    report->has_more = walked < report->ranges;
}
