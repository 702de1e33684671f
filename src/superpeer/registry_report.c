/* What a registry has, in numbers. */
#include "cluster/report.h"
#include "superpeer/registry_int.h"

void sh_registry_report(const struct sh_registry *registry, struct sh_report *report)
{
    size_t arc_nids = (size_t)registry->arc_last.v - registry->arc_first.v + 1;
    report->arc_first = registry->arc_first.v;
    report->arc_last = registry->arc_last.v;
    report->registry_bytes =
        sizeof *registry + registry->view.room * sizeof registry->view.nodes[0] +
        arc_nids * (sizeof registry->heard_ns[0] + sizeof registry->spoke_ns[0] +
                    sizeof registry->failed_epochs[0]);
}
