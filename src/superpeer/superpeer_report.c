/* What a superpeer says of itself to whoever asks (report.h). Looking at all shards takes 2 ms, so
 * the handler does some in each call (msg/msg.h): each shard is as it was at a moment of its own. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/resident.h"
#include "base/steptime.h"
#include "cluster/proto.h"
#include "cluster/report.h"
#include "superpeer/superpeer_ring_int.h"

/* Shards that are looked at in one call where no step is timed. */
#define SHARDS_AT_ONCE 8

static void nodes_report(const struct sh_superpeer *superpeer, struct sh_report *report)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    report->epoch = view->epoch;
    for (size_t i = 0; i < view->count; i++) {
        bool is_peer = view->nodes[i].role == SH_ROLE_PEER;
        report->peers_up += is_peer && view->nodes[i].state == SH_NODE_UP;
        report->peers_left += is_peer && view->nodes[i].state == SH_NODE_LEFT;
        report->peers_failed += is_peer && view->nodes[i].state == SH_NODE_FAILED;
        report->peers_away += is_peer && view->nodes[i].state == SH_NODE_AWAY;
        report->superpeers_up += !is_peer && view->nodes[i].state == SH_NODE_UP;
        report->superpeers_failed += !is_peer && view->nodes[i].state == SH_NODE_FAILED;
    }
}

/* Takes 40 us at most: it walks SH_METADATA_WALK_MAX ranges. */
static void shard_report(const struct sh_superpeer *superpeer, unsigned number,
                         struct sh_report_shard *shard)
{
    const struct sh_superpeer_ring *part = superpeer->ring;
    const struct sh_shard *entry = &sh_registry_arcs(superpeer->registry)->shards[number];
    shard->owner = entry->owner;
    shard->version = entry->version;
    shard->replicas = entry->replicas;
    shard->origin = entry->origin;
    shard->copy_nid = entry->copy_nid;
    shard->origin_version = entry->origin_version;
    shard->copy_epoch = entry->copy_epoch;
    shard->copy_sequence = entry->copy_sequence;
    shard->is_searching = sh_ring_searches(part->ring, number, &shard->missing);
    shard->is_here = sh_ring_holds(part->ring, number);
    if (!shard->is_here)
        return;
    struct sh_metadata_sizes sizes = sh_metadata_measure(part->metadata, number);
    shard->is_known = sh_metadata_is_known(part->metadata, number);
    shard->has_more = sizes.ranges > SH_METADATA_WALK_MAX;
    shard->applied = sh_ring_applied(part->ring, number);
    shard->ranges = sizes.ranges;
    shard->moved = sizes.moved;
    shard->sources = sizes.sources;
    shard->names = sizes.names;
    shard->zones = sizes.zones;
    shard->zones_short = sizes.zones_short;
    shard->zones_recovering = sizes.zones_recovering;
    shard->zones_lost = sizes.zones_lost;
    shard->bytes = sizes.bytes;
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

/* An answer that is being made. */
struct report_job {
    struct sh_report report;
    unsigned next; /* shard */
};

static struct report_job *job_begin(struct sh_superpeer *superpeer)
{
    const struct sh_consensus *consensus = superpeer->shared->consensus;
    struct report_job *job = calloc(1, sizeof *job);
    if (!job)
        return NULL;
    struct sh_report *report = &job->report;
    report->nid = sh_msg_nid(superpeer->msg);
    if (report->nid.v > SH_SUPERPEERS_MAX)
        report->nid = SHOAL_NID_NONE; /* it has no ID yet */
    nodes_report(superpeer, report);
    sh_registry_report(superpeer->registry, report);
    report->resident_bytes = sh_resident_bytes();
    report->lookups = superpeer->lookups;
    report->lookups_nobody = superpeer->lookups_nobody;
    report->is_current = sh_superpeer_shared_is_current(superpeer);
    consensus->ops->report(consensus, report);
    if (report->role == SH_REPORT_LEADER)
        report->leader = report->nid;
    if (superpeer->ring) {
        report->shard_count = SH_SHARDS;
        report->present = sh_registry_arcs(superpeer->registry)->present;
    }
    if (superpeer->journal)
        journal_report(superpeer->journal, report);
    return job;
}

/* Looks at the next shards. True: there are no more. */
static bool job_go_on(const struct sh_superpeer *superpeer, struct report_job *job)
{
    struct sh_report *report = &job->report;
    if (!superpeer->ring)
        report->shard_count = 0; /* it was closed meanwhile */
    for (unsigned i = 0; job->next < report->shard_count; i++, job->next++) {
        if (i == SHARDS_AT_ONCE || (i > 0 && sh_step_spent()))
            return false;
        shard_report(superpeer, job->next, &report->shards[job->next]);
    }
    return true;
}

static void on_report(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct report_job *job = in->state;
    SH_ASSERT(!job == !in->goes_on);
    struct sh_out out;
    if (!job && !sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    if (!job && !(job = job_begin(superpeer))) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOMEM, NULL);
        return;
    }
    in->state = job;
    in->goes_on = !in->is_ending && !job_go_on(superpeer, job);
    if (in->goes_on)
        return;
    if (!in->is_ending &&
        !sh_msg_reply(in->msg, in->reply_to, in->type, sh_report_size(&job->report), &out)) {
        sh_report_put(&out.w, &job->report);
        sh_msg_end(in->msg, &out);
    }
    free(job);
    in->state = NULL;
}

void sh_superpeer_report_handler(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_REPORT, SH_MSG_INLINE, on_report, superpeer);
}
