/* shoal log dump. */
#include <inttypes.h>

#include "cmd/log_int.h"
#include "cmd/text_int.h"

#define FIRST_BYTES 16 /* of a payload, that are shown */

static const char *const standings[] = {[SH_INSPECT_CURRENT] = "current",
                                        [SH_INSPECT_SUPERSEDED] = "superseded",
                                        [SH_INSPECT_VOID] = "void"};

static struct sh_bytes first_bytes(const struct sh_replog_entry *entry)
{
    size_t stored = sh_replog_entry_stored(entry);
    size_t size = stored < FIRST_BYTES ? stored : FIRST_BYTES;
    return sh_bytes_make(entry->payload.at, size);
}

static bool is_zeros(const struct sh_replog_entry *entry)
{
    return sh_replog_entry_stored(entry) < entry->payload.size;
}

static shoal_cid cid_of(const struct sh_replog_entry *entry)
{
    return (shoal_cid){entry->local_id | (uint64_t)entry->creator << 48};
}

static void entry_json(FILE *out, const struct sh_inspect_entry *found)
{
    const struct sh_replog_entry *entry = &found->entry;
    char cid[SH_CID_TEXT_MAX], hex[2 * FIRST_BYTES + 1] = "";
    struct sh_bytes first = first_bytes(entry);
    struct sh_json *row = sh_json_object();
    for (size_t i = 0; i < first.size; i++)
        snprintf(hex + 2 * i, 3, "%02x", first.at[i]);
    sh_json_set_text(row, "chunk", sh_cid_format(cid_of(entry), cid));
    sh_json_set_u64(row, "epoch", entry->version.epoch);
    sh_json_set_u64(row, "number", entry->version.number);
    sh_json_set_text(row, "standing", standings[found->standing]);
    sh_json_set_bool(row, "removal", entry->is_removal);
    sh_json_set_u64(row, "seconds", entry->seconds);
    sh_json_set_u64(row, "size", entry->payload.size);
    if (found->kind == SH_SLOT_ENTRIES)
        sh_json_set_u64(row, "sequence", found->sequence);
    sh_json_set_u64(row, "piece", entry->piece);
    sh_json_set_u64(row, "pieces", entry->pieces);
    if (entry->pieces > 1) {
        sh_json_set_u64(row, "offset", entry->offset);
        sh_json_set_u64(row, "total", entry->total);
    }
    sh_json_set_bool(row, "zeros", is_zeros(entry));
    sh_json_set_bool(row, "with_next", entry->is_with_next);
    sh_json_set_u64(row, "life", found->life);
    sh_json_set_u64(row, "incarnation", found->incarnation);
    if (found->slot == SH_INSPECT_PRIMARY)
        sh_json_set_u64(row, "lap", found->lap);
    else
        sh_json_set_u64(row, "slot", found->slot);
    sh_json_set_text(row, "first_bytes", hex);
    sh_json_print(row, out);
    sh_json_free(row);
}

static void entry_print(FILE *out, const struct sh_inspect_entry *found)
{
    const struct sh_replog_entry *entry = &found->entry;
    char cid[SH_CID_TEXT_MAX], version[32], sequence[24] = "-", piece[16] = "-", range[32] = "-",
                                            place[24];
    snprintf(version, sizeof version, "%u.%u", (unsigned)entry->version.epoch,
             entry->version.number);
    if (found->kind == SH_SLOT_ENTRIES)
        snprintf(sequence, sizeof sequence, "%" PRIu64 "%s", found->sequence,
                 entry->is_with_next ? "+" : "");
    if (entry->pieces > 1) {
        snprintf(piece, sizeof piece, "%u/%u", entry->piece + 1u, (unsigned)entry->pieces);
        snprintf(range, sizeof range, "%u/%u", entry->offset, entry->total);
    }
    if (found->slot == SH_INSPECT_PRIMARY)
        snprintf(place, sizeof place, "lap %u", found->lap);
    else
        snprintf(place, sizeof place, "slot %u", found->slot);
    fprintf(out, "%-20s %12s %-10s %10u %9zu %12s %7s %17s  %-12s ",
            sh_cid_format(cid_of(entry), cid), version, standings[found->standing], entry->seconds,
            entry->payload.size, sequence, piece, range, place);
    if (entry->is_removal)
        fputs("removed", out);
    else if (is_zeros(entry))
        fputs("zeros", out);
    else
        sh_hex_print(first_bytes(entry), out);
    fputc('\n', out);
}

void sh_log_entries_begin(struct sh_cmd *cmd)
{
    if (!cmd->flags.json)
        fprintf(cmd->out, "%-20s %12s %-10s %10s %9s %12s %7s %17s  %-12s %s\n", "CHUNK", "VERSION",
                "STANDING", "SECONDS", "BYTES", "SEQUENCE", "PIECE", "OFFSET/TOTAL", "PLACE",
                "FIRST BYTES");
}

void sh_log_entry_show(struct sh_cmd *cmd, const struct sh_inspect_entry *found)
{
    if (cmd->flags.json)
        entry_json(cmd->out, found);
    else
        entry_print(cmd->out, found);
}

static bool on_entry(void *arg, const struct sh_inspect_entry *found)
{
    struct sh_cmd *cmd = arg;
    sh_log_entry_show(cmd, found);
    return !ferror(cmd->out);
}

int sh_cmd_run_log_dump(struct sh_cmd *cmd)
{
    struct sh_log_look look;
    const struct sh_inspect_calls none = {.slot = NULL};
    shoal_cid chunk = {0};
    if (!cmd->flags.zone)
        return sh_cmd_usage(cmd, "it needs --zone ZONE; `shoal log info` lists the zones");
    if (cmd->flags.chunk && sh_cid_parse(cmd->flags.chunk, &chunk) != SHOAL_OK)
        return sh_cmd_usage(cmd, "--chunk: \"%.40s\" is no chunk ID; write NODE:LOCAL",
                            cmd->flags.chunk);
    if (sh_log_is_of_node(cmd))
        return sh_log_node_dump(cmd, chunk);
    int status = sh_log_look_open(cmd, &look);
    if (status != SH_EXIT_OK)
        return status;
    status = sh_log_look_read(cmd, &look, &none);
    if (status == SH_EXIT_OK) {
        sh_log_entries_begin(cmd);
        enum shoal_err err = sh_inspect_dump(look.inspect, look.zone, chunk.v, on_entry, cmd);
        if (err)
            status = sh_cmd_fail(cmd, err, "%s", cmd->words[0]);
    }
    sh_log_look_close(&look);
    return status;
}
