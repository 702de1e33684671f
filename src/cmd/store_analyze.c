/* shoal store analyze. */
#include <inttypes.h>
#include <stdlib.h>

#include "cmd/store_int.h"
#include "cmd/text_int.h"

/* Exact sizes that are listed, the most frequent first. */
#define SIZES_MAX 8

/* Where memory goes beyond the payload, in the order of the table. */
struct cause {
    const char *name; /* in JSON with "_bytes" behind it */
    uint64_t bytes;
    const char *meaning;
};

#define CAUSES 7

static void causes_make(const struct shoal_analysis *found, struct cause causes[CAUSES])
{
    const struct cause made[CAUSES] = {
        {"table", found->table_bytes, "groups of IDs, and which IDs are free"},
        {"pointer", found->pointer_bytes, "where long chunks are"},
        {"header", found->header_bytes, "sizes and pins of longer chunks"},
        {"rounding", found->rounding_bytes, "blocks, up to the allocator's sizes"},
        {"room", found->room_bytes, "kept in blocks for chunks to come"},
        {"free", found->free_bytes, "touched, but in no block"},
        {"other", found->other_bytes, "the allocator's and the store's own"},
    };
    for (unsigned i = 0; i < CAUSES; i++)
        causes[i] = made[i];
}

/* The smallest and the largest size of a class. */
static uint64_t class_first(unsigned power)
{
    return power == 0 ? 0 : UINT64_C(1) << (power - 1);
}

static uint64_t class_last(unsigned power)
{
    return power == 0 ? 0 : (UINT64_C(1) << power) - 1;
}

/* The exact sizes that most chunks have; returns how many there are. */
static unsigned frequent_find(const struct shoal_analysis *found, unsigned sizes_out[SIZES_MAX])
{
    unsigned count = 0;
    for (unsigned size = 0; size < SHOAL_ANALYSIS_EXACT; size++) {
        unsigned at = count;
        while (at > 0 && found->exact[size] > found->exact[sizes_out[at - 1]])
            at--;
        if (found->exact[size] == 0 || at == SIZES_MAX)
            continue;
        count += count < SIZES_MAX;
        for (unsigned i = count - 1; i > at; i--)
            sizes_out[i] = sizes_out[i - 1];
        sizes_out[at] = size;
    }
    return count;
}

/* --- JSON ---------------------------------------------------------------------------------- */

static struct sh_json *runs_json(const struct shoal_id_run *runs)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < SHOAL_ANALYSIS_RUNS && runs[i].count > 0; i++) {
        struct sh_json *row = sh_json_object();
        char first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
        shoal_cid end = {runs[i].first.v + runs[i].count - 1};
        sh_json_set_text(row, "first", sh_cid_format(runs[i].first, first));
        sh_json_set_text(row, "last", sh_cid_format(end, last));
        sh_json_set_u64(row, "ids", runs[i].count);
        sh_json_append(list, row);
    }
    return list;
}

static struct sh_json *sizes_json(const struct shoal_analysis *found)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < SHOAL_ANALYSIS_POWERS; i++) {
        const struct shoal_size_class *power = &found->powers[i];
        if (power->chunks == 0)
            continue;
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "first", class_first(i));
        sh_json_set_u64(row, "last", class_last(i));
        sh_json_set_u64(row, "chunks", power->chunks);
        sh_json_set_u64(row, "payload_bytes", power->payload_bytes);
        sh_json_append(list, row);
    }
    return list;
}

static struct sh_json *exact_json(const struct shoal_analysis *found)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < SHOAL_ANALYSIS_EXACT; i++) {
        if (found->exact[i] == 0)
            continue;
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "size", i);
        sh_json_set_u64(row, "chunks", found->exact[i]);
        sh_json_append(list, row);
    }
    return list;
}

static int answer_json(struct sh_cmd *cmd, shoal_nid nid, const struct shoal_analysis *found)
{
    struct cause causes[CAUSES];
    char key[32];
    struct sh_json *root = sh_json_object(), *overhead = sh_json_object();
    sh_json_set_u64(root, "nid", nid.v);
    sh_json_set_u64(root, "chunks", found->chunks);
    sh_json_set_u64(root, "payload_bytes", found->payload_bytes);
    sh_json_set_u64(root, "used_bytes", found->used_bytes);
    sh_json_set_u64(root, "bytes_max", found->bytes_max);
    sh_json_set_u64(root, "packed", found->packed);
    sh_json_set_u64(root, "long", found->longs);
    sh_json_set_u64(root, "pinned", found->pinned);
    sh_json_set_u64(root, "foreign", found->foreign);
    sh_json_set_u64(root, "reserved", found->reserved);
    sh_json_set_u64(root, "groups", found->groups);
    causes_make(found, causes);
    for (unsigned i = 0; i < CAUSES; i++) {
        snprintf(key, sizeof key, "%s_bytes", causes[i].name);
        sh_json_set_u64(overhead, key, causes[i].bytes);
    }
    sh_json_set(root, "overhead", overhead);
    sh_json_set(root, "sizes", sizes_json(found));
    sh_json_set(root, "exact_sizes", exact_json(found));
    sh_json_set_u64(root, "used_runs", found->used_runs);
    sh_json_set_u64(root, "free_ids", found->free_ids);
    sh_json_set_u64(root, "free_runs", found->free_runs);
    sh_json_set(root, "longest_used", runs_json(found->longest_used));
    sh_json_set(root, "longest_free", runs_json(found->longest_free));
    return sh_cmd_answer(cmd, root);
}

/* --- Text ---------------------------------------------------------------------------------- */

static double percent(uint64_t part, uint64_t whole)
{
    return whole ? 100.0 * (double)part / (double)whole : 0;
}

static void sizes_print(FILE *out, const struct shoal_analysis *found)
{
    char size[SH_SIZE_TEXT_MAX], range[48];
    unsigned frequent[SIZES_MAX];
    fprintf(out, "\n%-24s %14s %7s %12s %7s\n", "SIZE (BYTES)", "CHUNKS", "", "PAYLOAD", "");
    for (unsigned i = 0; i < SHOAL_ANALYSIS_POWERS; i++) {
        const struct shoal_size_class *power = &found->powers[i];
        if (power->chunks == 0)
            continue;
        if (class_first(i) == class_last(i))
            snprintf(range, sizeof range, "%" PRIu64, class_first(i));
        else
            snprintf(range, sizeof range, "%" PRIu64 " to %" PRIu64, class_first(i), class_last(i));
        fprintf(out, "%-24s %14" PRIu64 " %6.1f%% %12s %6.1f%%\n", range, power->chunks,
                percent(power->chunks, found->chunks), sh_size_format(power->payload_bytes, size),
                percent(power->payload_bytes, found->payload_bytes));
    }
    unsigned count = frequent_find(found, frequent);
    if (count > 0)
        fprintf(out, "\n%-24s %14s\n", "MOST FREQUENT, TO 255", "CHUNKS");
    for (unsigned i = 0; i < count; i++)
        fprintf(out, "%-24u %14" PRIu64 " %6.1f%%\n", frequent[i], found->exact[frequent[i]],
                percent(found->exact[frequent[i]], found->chunks));
}

static void overhead_print(FILE *out, const struct shoal_analysis *found)
{
    struct cause causes[CAUSES];
    char size[SH_SIZE_TEXT_MAX];
    double share = found->chunks ? 1.0 / (double)found->chunks : 0; /* of a chunk */
    uint64_t sum = 0;
    causes_make(found, causes);
    fprintf(out, "\n%-10s %12s %12s %8s  %s\n", "OVERHEAD", "", "A CHUNK", "", "WHAT IT IS");
    for (unsigned i = 0; i < CAUSES; i++) {
        sum += causes[i].bytes;
        fprintf(out, "%-10s %12s %10.2f B %7.1f%%  %s\n", causes[i].name,
                sh_size_format(causes[i].bytes, size), (double)causes[i].bytes * share,
                percent(causes[i].bytes, found->payload_bytes), causes[i].meaning);
    }
    fprintf(out, "%-10s %12s %10.2f B %7.1f%%  of the payload\n", "all", sh_size_format(sum, size),
            (double)sum * share, percent(sum, found->payload_bytes));
}

static void runs_print(FILE *out, const char *what, const struct shoal_id_run *runs)
{
    char first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
    if (runs[0].count == 0)
        return;
    fprintf(out, "\n%-22s %-22s %14s\n", what, "LAST", "IDS");
    for (unsigned i = 0; i < SHOAL_ANALYSIS_RUNS && runs[i].count > 0; i++) {
        shoal_cid end = {runs[i].first.v + runs[i].count - 1};
        fprintf(out, "%-22s %-22s %14" PRIu64 "\n", sh_cid_format(runs[i].first, first),
                sh_cid_format(end, last), runs[i].count);
    }
}

static void answer_print(FILE *out, shoal_nid nid, const struct shoal_analysis *found)
{
    char payload[SH_SIZE_TEXT_MAX], used[SH_SIZE_TEXT_MAX], most[SH_SIZE_TEXT_MAX];
    fprintf(out, "Node %u: %" PRIu64 " chunks, %s payload, %s of %s used\n", nid.v, found->chunks,
            sh_size_format(found->payload_bytes, payload), sh_size_format(found->used_bytes, used),
            sh_size_format(found->bytes_max, most));
    fprintf(out,
            "  %" PRIu64 " packed in %" PRIu64 " groups, %" PRIu64 " long, %" PRIu64
            " pinned, %" PRIu64 " of other creators; %" PRIu64 " IDs reserved\n",
            found->packed, found->groups, found->longs, found->pinned, found->foreign,
            found->reserved);
    if (found->chunks > 0)
        sizes_print(out, found);
    overhead_print(out, found);
    runs_print(out, "LONGEST RUNS OF CHUNKS", found->longest_used);
    runs_print(out, "LONGEST RUNS OF FREE", found->longest_free);
    fprintf(out,
            "\n%" PRIu64 " runs of chunks; %" PRIu64 " free IDs below the largest, in %" PRIu64
            " runs\n",
            found->used_runs, found->free_ids, found->free_runs);
}

int sh_cmd_run_store_analyze(struct sh_cmd *cmd)
{
    struct sh_progress progress;
    struct shoal_analysis found;
    shoal_nid nid;
    int status = sh_store_open(cmd, "analyzing", &progress, &nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_analyze(cmd->store, nid, sh_store_progress, &progress, &found);
    sh_progress_end(&progress);
    if (err != SHOAL_OK)
        return sh_store_fail(cmd, err, nid);
    if (cmd->flags.json)
        return answer_json(cmd, nid, &found);
    answer_print(cmd->out, nid, &found);
    return SH_EXIT_OK;
}
