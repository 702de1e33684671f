/* What a registry has, in numbers. */
#include "cluster/report.h"
#include "superpeer/registry_int.h"

void sh_registry_report(const struct sh_registry *registry, struct sh_report *report)
{
    /* The room for all nodes that there may be takes memory as they come. */
    report->registry_bytes =
        sizeof *registry + registry->view.count * sizeof registry->view.nodes[0] +
        SH_PEER_NIDS * (sizeof registry->heard_ns[0] + sizeof registry->spoke_ns[0]);
}
