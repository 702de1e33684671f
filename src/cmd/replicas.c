#include "cmd/replicas_int.h"

#include <inttypes.h>
#include <stdlib.h>

#include "client/client.h"
#include "cmd/text_int.h"

static void row_take(struct sh_replicas_row *row, const struct sh_log_table *table)
{
    row->has_log = true;
    row->zones = sh_log_table_value(table, 0, "own_zones");
    row->under_replicated = sh_log_table_value(table, 0, "own_zones_under_replicated");
    row->bare = sh_log_table_value(table, 0, "own_zones_bare");
    row->copies = sh_log_table_value(table, 0, "own_copies");
    row->stalled = sh_log_table_value(table, 0, "own_backups_stalled");
    row->kept = sh_log_table_value(table, 0, "kept_zones");
    row->free_bytes = sh_log_table_value(table, 0, "log_space_free_bytes");
    row->trouble = (enum shoal_err)sh_log_table_value(table, 0, "log_trouble");
}

void sh_replicas_ask(struct sh_cmd *cmd, const struct shoal_node *node,
                     struct sh_replicas_row *row_out)
{
    struct sh_log_table *table = malloc(sizeof *table);
    *row_out = (struct sh_replicas_row){.nid = node->nid, .is_self = node->keeps_chunks};
    enum shoal_err err = SHOAL_ENOMEM;
    if (table)
        err = sh_client_log_table(cmd->store, node->nid, SH_LOG_TABLE_METRICS, 0, table);
    if (err == SHOAL_OK && table->rows > 0)
        row_take(row_out, table);
    free(table);
    row_out->unknown = err == SHOAL_ENONAME || err == SHOAL_ENOTYPE ? SHOAL_OK : err;
}

void sh_replicas_json(struct sh_json *node, const struct sh_replicas_row *row)
{
    struct sh_json *object = row->has_log || row->unknown ? sh_json_object() : NULL;
    if (!object)
        return;
    if (row->unknown) {
        sh_json_set_text(object, "error", shoal_err_name(row->unknown));
        sh_json_set(node, "replicas", object);
        return;
    }
    sh_json_set_text(object, "at", row->is_self ? "self" : "peers");
    sh_json_set_u64(object, "zones", row->zones);
    sh_json_set_u64(object, "under_replicated", row->under_replicated);
    sh_json_set_u64(object, "without_backup", row->bare);
    sh_json_set_u64(object, "copies_under_way", row->copies);
    sh_json_set_u64(object, "backups_stalled", row->stalled);
    sh_json_set_u64(object, "kept_zones", row->kept);
    sh_json_set_u64(object, "log_free_bytes", row->free_bytes);
    if (row->trouble)
        sh_json_set_text(object, "log_error", shoal_err_name(row->trouble));
    sh_json_set(node, "replicas", object);
}

void sh_replicas_print(FILE *out, const struct sh_replicas_row *rows, size_t count)
{
    char bytes[SH_SIZE_TEXT_MAX];
    bool is_any = false;
    for (size_t i = 0; i < count; i++) {
        const struct sh_replicas_row *row = &rows[i];
        if (!row->has_log && !row->unknown)
            continue;
        if (!is_any)
            fprintf(out, "\n%5s  %-5s %9s %16s %14s %9s %8s %10s %11s\n", "NODE", "AT", "ZONES",
                    "UNDER-REPLICATED", "WITHOUT BACKUP", "COPIES", "STALLED", "KEPT ZONES",
                    "LOG FREE");
        is_any = true;
        if (row->unknown) {
            fprintf(out, "%5u  not known: %s\n", (unsigned)row->nid.v,
                    shoal_err_text(row->unknown));
            continue;
        }
        fprintf(out,
                "%5u  %-5s %9" PRIu64 " %16" PRIu64 " %14" PRIu64 " %9" PRIu64 " %8" PRIu64
                " %10" PRIu64 " %11s%s%s\n",
                (unsigned)row->nid.v, row->is_self ? "self" : "peers", row->zones,
                row->under_replicated, row->bare, row->copies, row->stalled, row->kept,
                sh_size_format(row->free_bytes, bytes), row->trouble ? "  out of service: " : "",
                row->trouble ? shoal_err_name(row->trouble) : "");
    }
}
