#include "cmd/shards_int.h"

#include <inttypes.h>
#include <string.h>

const char *sh_set_format(uint64_t set, char text[SH_SET_TEXT_MAX])
{
    size_t at = 0;
    strcpy(text, "-");
    for (unsigned i = 0; i < 64; i++)
        if (set >> i & 1)
            at += (size_t)snprintf(text + at, SH_SET_TEXT_MAX - at, "%s%u", at ? " " : "", i);
    return text;
}

struct sh_json *sh_set_json(uint64_t set)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < 64; i++)
        if (set >> i & 1)
            sh_json_append_u64(list, i);
    return list;
}

/* The shards that wait for that set of superpeers, each of which has all of them. */
static uint64_t waiting_for(const struct sh_report *report, uint64_t replicas)
{
    uint64_t shards = 0;
    for (unsigned i = 0; i < report->shard_count; i++)
        if (sh_report_waits(report, i) && report->shards[i].replicas == replicas)
            shards |= UINT64_C(1) << i;
    return shards;
}

/* Whether a shard is the first one that waits for its set of superpeers. */
static bool is_first(const struct sh_report *report, unsigned shard)
{
    uint64_t before = (UINT64_C(1) << shard) - 1;
    return sh_report_waits(report, shard) &&
           !(waiting_for(report, report->shards[shard].replicas) & before);
}

void sh_shards_waiting_print(FILE *out, const struct sh_report *report)
{
    char shards[SH_SET_TEXT_MAX], nids[SH_SET_TEXT_MAX];
    for (unsigned i = 0; i < report->shard_count; i++) {
        uint64_t replicas = report->shards[i].replicas;
        if (!is_first(report, i))
            continue;
        fprintf(out,
                "\nWaiting for the disk of superpeer %s, which alone has the shards %s: start it; "
                "or if its data_dir is lost for good, `shoal node lost %u`.\n",
                sh_set_format(replicas, nids), sh_set_format(waiting_for(report, replicas), shards),
                (unsigned)__builtin_ctzll(replicas));
    }
}

struct sh_json *sh_shards_waiting_json(const struct sh_report *report)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < report->shard_count; i++) {
        uint64_t replicas = report->shards[i].replicas;
        if (!is_first(report, i))
            continue;
        struct sh_json *row = sh_json_object();
        sh_json_set(row, "superpeers", sh_set_json(replicas));
        sh_json_set(row, "shards", sh_set_json(waiting_for(report, replicas)));
        sh_json_append(list, row);
    }
    return list;
}

void sh_shards_searched_print(FILE *out, const struct sh_report *report)
{
    char shards[SH_SET_TEXT_MAX], nids[SH_SET_TEXT_MAX];
    uint64_t searching = 0, missing = 0;
    for (unsigned i = 0; i < report->shard_count; i++) {
        searching |= (uint64_t)report->shards[i].is_searching << i;
        missing |= report->shards[i].is_searching ? report->shards[i].missing : 0;
    }
    if (searching)
        fprintf(
            out,
            "\nSuperpeer %u looks for old copies of the shards %s, and waits for the answers of: "
            "%s.\n",
            (unsigned)report->nid.v, sh_set_format(searching, shards),
            sh_set_format(missing, nids));
}

void sh_shards_restored_print(FILE *out, const struct sh_report *report)
{
    char shards[SH_SET_TEXT_MAX];
    uint64_t empty = 0;
    bool is_any = false;
    for (unsigned i = 0; i < report->shard_count; i++) {
        const struct sh_report_shard *shard = &report->shards[i];
        empty |= (uint64_t)(shard->origin == SH_ORIGIN_PEERS) << i;
        if (shard->origin != SH_ORIGIN_COPY)
            continue;
        if (!is_any)
            fprintf(
                out,
                "\nRestored from old copies, after their last replica was lost. Names, barriers "
                "and scratch values\nthat were changed after the copy's last update are missing; "
                "where chunks are, the peers say.\n%-8s %8s  %12s  %10s\n",
                "SHARD", "COPY OF", "LAST UPDATE", "OF VERSION");
        is_any = true;
        fprintf(out, "%-8u %8u  %12" PRIu64 "  %10" PRIu64 "\n", i, (unsigned)shard->copy_nid,
                shard->copy_sequence, shard->copy_epoch);
    }
    if (empty)
        fprintf(out,
                "\nThe shards %s were lost, and no superpeer had an old copy: names, barriers and "
                "scratch values\nare missing that no peer reported; where chunks are, the peers "
                "say.\n",
                sh_set_format(empty, shards));
}

void sh_shard_origin_json(struct sh_json *row, const struct sh_report *report, unsigned at)
{
    static const char *const origins[] = {[SH_ORIGIN_NONE] = "none",
                                          [SH_ORIGIN_NEW] = "new",
                                          [SH_ORIGIN_COPY] = "copy",
                                          [SH_ORIGIN_PEERS] = "peers"};
    const struct sh_report_shard *shard = &report->shards[at];
    sh_json_set_bool(row, "waits", sh_report_waits(report, at));
    sh_json_set_bool(row, "searching", shard->is_searching);
    sh_json_set_text(row, "origin", origins[shard->origin]);
    if (shard->origin != SH_ORIGIN_COPY)
        return;
    sh_json_set_u64(row, "copy_of", shard->copy_nid);
    sh_json_set_u64(row, "copy_version", shard->copy_epoch);
    sh_json_set_u64(row, "copy_sequence", shard->copy_sequence);
}
