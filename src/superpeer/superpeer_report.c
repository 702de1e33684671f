/* What a superpeer says of itself to whoever asks (report.h). */
#include "base/assert.h"
#include "base/resident.h"
#include "cluster/proto.h"
#include "cluster/report.h"
#include "superpeer/superpeer_ring_int.h"

static void nodes_report(const struct sh_superpeer *superpeer, struct sh_report *report)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    report->epoch = view->epoch;
    for (size_t i = 0; i < view->count; i++) {
        bool is_peer = view->nodes[i].role == SH_ROLE_PEER;
        report->peers_up += is_peer && view->nodes[i].state == SH_NODE_UP;
        report->peers_left += is_peer && view->nodes[i].state == SH_NODE_LEFT;
        report->peers_failed += is_peer && view->nodes[i].state == SH_NODE_FAILED;
        report->superpeers_up += !is_peer && view->nodes[i].state == SH_NODE_UP;
        report->superpeers_failed += !is_peer && view->nodes[i].state == SH_NODE_FAILED;
    }
}

/* All of it takes 2 ms at most. */
static void ring_report(const struct sh_superpeer *superpeer, struct sh_report *report)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    const struct sh_arcs *arcs = sh_registry_arcs(superpeer->registry);
    report->shard_count = SH_SHARDS;
    report->present = arcs->present;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_report_shard *shard = &report->shards[i];
        shard->owner = arcs->shards[i].owner;
        shard->version = arcs->shards[i].version;
        shard->replicas = arcs->shards[i].replicas;
        shard->origin = arcs->shards[i].origin;
        shard->copy_nid = arcs->shards[i].copy_nid;
        shard->origin_version = arcs->shards[i].origin_version;
        shard->copy_epoch = arcs->shards[i].copy_epoch;
        shard->copy_sequence = arcs->shards[i].copy_sequence;
        shard->is_searching = sh_ring_searches(part->ring, i, &shard->missing);
        shard->is_here = sh_ring_holds(part->ring, i);
        if (!shard->is_here)
            continue;
        struct sh_metadata_sizes sizes = sh_metadata_measure(part->metadata, i);
        shard->is_known = sh_metadata_is_known(part->metadata, i);
        shard->has_more = sizes.ranges > SH_METADATA_WALK_MAX;
        shard->applied = sh_ring_applied(part->ring, i);
        shard->ranges = sizes.ranges;
        shard->moved = sizes.moved;
        shard->sources = sizes.sources;
        shard->names = sizes.names;
        shard->bytes = sizes.bytes;
    }
}

static void journal_report(const struct sh_journal *journal, struct sh_report *report)
{
    struct sh_journal_counts counts = sh_journal_counts(journal);
    report->journal_batches = counts.batches;
    report->journal_bytes = counts.bytes;
    report->journal_snapshots = counts.snapshots;
    report->journal_snapshot_bytes = counts.snapshot_bytes;
    report->journal_saving_ns = counts.saving_ns;
}

static void on_report(void *arg, struct sh_msg_in *in)
{
    const struct sh_superpeer *superpeer = arg;
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    const struct sh_consensus *consensus = superpeer->shared->consensus;
    struct sh_report report = {.nid = sh_msg_nid(superpeer->msg)};
    if (report.nid.v > SH_SUPERPEERS_MAX)
        report.nid = SHOAL_NID_NONE; /* it has no ID yet */
    nodes_report(superpeer, &report);
    sh_registry_report(superpeer->registry, &report);
    report.resident_bytes = sh_resident_bytes();
    report.lookups = superpeer->lookups;
    report.lookups_nobody = superpeer->lookups_nobody;
    report.is_current = sh_superpeer_shared_is_current(superpeer);
    consensus->ops->report(consensus, &report);
    if (report.role == SH_REPORT_LEADER)
        report.leader = report.nid;
    if (superpeer->ring)
        ring_report(superpeer, &report);
    if (superpeer->journal)
        journal_report(superpeer->journal, &report);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sh_report_size(&report), &out))
        return;
    sh_report_put(&out.w, &report);
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_report_handler(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_REPORT, SH_MSG_INLINE, on_report, superpeer);
}
