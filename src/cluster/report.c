#include "cluster/report.h"

#include <string.h>

#include "base/assert.h"
#include "cluster/view.h"

#define FORMAT 6
#define FLAG_CURRENT 1u
#define FLAG_RECOVERING 2u
#define FLAGS (FLAG_CURRENT | FLAG_RECOVERING)
#define FLAG_HERE 1u
#define FLAG_KNOWN 2u
#define FLAG_MORE 4u
#define FLAG_SEARCHING 8u
#define SHARD_FLAGS (FLAG_HERE | FLAG_KNOWN | FLAG_MORE | FLAG_SEARCHING)
#define HEAD_BYTES 8

/* The numbers in their order on the wire. */
static void numbers_of(struct sh_report *report, uint64_t *numbers[SH_REPORT_NUMBERS])
{
    uint64_t *const all[SH_REPORT_NUMBERS] = {
        &report->epoch,
        &report->peers_up,
        &report->peers_left,
        &report->peers_failed,
        &report->peers_away,
        &report->superpeers_up,
        &report->superpeers_failed,
        &report->registry_bytes,
        &report->term,
        &report->commit,
        &report->applied,
        &report->raft_last,
        &report->voters,
        &report->learners,
        &report->resident_bytes,
        &report->lookups,
        &report->lookups_nobody,
        &report->present,
        &report->journal_batches,
        &report->journal_bytes,
        &report->journal_snapshots,
        &report->journal_snapshot_bytes,
        &report->journal_saving_ns,
    };
    memcpy(numbers, all, sizeof all);
}

static void shard_numbers_of(struct sh_report_shard *shard,
                             uint64_t *numbers[SH_REPORT_SHARD_NUMBERS])
{
    uint64_t *const all[SH_REPORT_SHARD_NUMBERS] = {
        &shard->version,        &shard->replicas,         &shard->applied,       &shard->ranges,
        &shard->moved,          &shard->sources,          &shard->names,         &shard->zones,
        &shard->zones_short,    &shard->zones_recovering, &shard->zones_lost,    &shard->bytes,
        &shard->origin_version, &shard->copy_epoch,       &shard->copy_sequence, &shard->missing,
    };
    memcpy(numbers, all, sizeof all);
}

size_t sh_report_size(const struct sh_report *report)
{
    return HEAD_BYTES + 8 * SH_REPORT_NUMBERS + 2 +
           report->shard_count * (4 + 8 * (size_t)SH_REPORT_SHARD_NUMBERS);
}

void sh_report_put(struct sh_writer *w, const struct sh_report *report)
{
    SH_ASSERT(report->shard_count == 0 || report->shard_count == SH_SHARDS);
    struct sh_report copy = *report;
    uint64_t *numbers[SH_REPORT_NUMBERS];
    numbers_of(&copy, numbers);
    sh_put8(w, FORMAT);
    sh_put8(w, (uint8_t)report->kind);
    sh_put8(w, (uint8_t)((report->is_current ? FLAG_CURRENT : 0) |
                         (report->is_recovering ? FLAG_RECOVERING : 0)));
    sh_put8(w, (uint8_t)report->role);
    sh_put16(w, report->nid.v);
    sh_put16(w, report->leader.v);
    for (unsigned i = 0; i < SH_REPORT_NUMBERS; i++)
        sh_put64(w, *numbers[i]);
    sh_put16(w, (uint16_t)report->shard_count);
    for (unsigned i = 0; i < report->shard_count; i++) {
        uint64_t *of_shard[SH_REPORT_SHARD_NUMBERS];
        shard_numbers_of(&copy.shards[i], of_shard);
        sh_put8(w, copy.shards[i].owner);
        sh_put8(w, (uint8_t)((copy.shards[i].is_here ? FLAG_HERE : 0) |
                             (copy.shards[i].is_known ? FLAG_KNOWN : 0) |
                             (copy.shards[i].has_more ? FLAG_MORE : 0) |
                             (copy.shards[i].is_searching ? FLAG_SEARCHING : 0)));
        sh_put8(w, copy.shards[i].origin);
        sh_put8(w, copy.shards[i].copy_nid);
        for (unsigned k = 0; k < SH_REPORT_SHARD_NUMBERS; k++)
            sh_put64(w, *of_shard[k]);
    }
}

static bool shard_get(struct sh_reader *r, struct sh_report_shard *shard)
{
    uint64_t *numbers[SH_REPORT_SHARD_NUMBERS];
    shard_numbers_of(shard, numbers);
    shard->owner = sh_get8(r);
    unsigned flags = sh_get8(r);
    shard->is_here = flags & FLAG_HERE;
    shard->is_known = flags & FLAG_KNOWN;
    shard->has_more = flags & FLAG_MORE;
    shard->is_searching = flags & FLAG_SEARCHING;
    shard->origin = sh_get8(r);
    shard->copy_nid = sh_get8(r);
    for (unsigned i = 0; i < SH_REPORT_SHARD_NUMBERS; i++)
        *numbers[i] = sh_get64(r);
    return sh_reader_ok(r) && (flags & ~SHARD_FLAGS) == 0 && shard->owner <= SH_SUPERPEERS_MAX &&
           shard->origin <= SH_ORIGIN_PEERS && shard->copy_nid <= SH_SUPERPEERS_MAX;
}

enum shoal_err sh_report_get(struct sh_reader *r, struct sh_report *report_out)
{
    struct sh_report report = {0};
    uint64_t *numbers[SH_REPORT_NUMBERS];
    numbers_of(&report, numbers);
    unsigned format = sh_get8(r), kind = sh_get8(r), flags = sh_get8(r), role = sh_get8(r);
    report.nid.v = sh_get16(r);
    report.leader.v = sh_get16(r);
    if (sh_reader_ok(r) && format != FORMAT)
        return SHOAL_EVERSION;
    for (unsigned i = 0; i < SH_REPORT_NUMBERS; i++)
        *numbers[i] = sh_get64(r);
    report.shard_count = sh_get16(r);
    if (!sh_reader_ok(r) || kind < SH_REPORT_MEMORY || kind > SH_REPORT_ZOOKEEPER ||
        (flags & ~FLAGS) || role >= SH_REPORT_ROLES || report.nid.v > SH_SUPERPEERS_MAX ||
        report.leader.v > SH_SUPERPEERS_MAX ||
        (report.shard_count != 0 && report.shard_count != SH_SHARDS))
        return SHOAL_EPROTO;
    report.kind = (enum sh_report_kind)kind;
    report.role = (enum sh_report_role)role;
    report.is_current = flags & FLAG_CURRENT;
    report.is_recovering = flags & FLAG_RECOVERING;
    for (unsigned i = 0; i < report.shard_count; i++)
        if (!shard_get(r, &report.shards[i]))
            return SHOAL_EPROTO;
    if (!sh_reader_done(r))
        return SHOAL_EPROTO;
    *report_out = report;
    return SHOAL_OK;
}
