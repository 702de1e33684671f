/* shoal log scrub, verify and dump of a node that runs, which reads its disk for them. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/client.h"
#include "cmd/log_int.h"
#include "cmd/process_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"
#include "log/replog.h"

#define REPLACED_MS 10000 /* for which a scrub waits until damaged segments are free */
#define PAGE_MS 60000     /* for which a dump waits for a page */

/* --- Scrub and verify --------------------------------------------------------------------------- */

struct scrub {
    struct sh_cmd *cmd;
    shoal_nid nid;
    bool is_verify;
    uint64_t number;
    /* As the node says. */
    uint64_t seen_number, slots, slots_done, slots_passed_over, bytes, places;
    bool is_running;
    /* Of the places that it keeps. */
    uint64_t told, harmed,
        waiting; /* harmed: more than a copy of a head; waiting: may be replaced */
    bool is_shown;
    struct sh_json *list;
};

static const struct {
    const char *name, *text;
} harms[] = {
    [SH_REPLOG_HARM_DAMAGED] = {"damaged", "fails its checksum, and had been on the disk"},
    [SH_REPLOG_HARM_HEAD] = {"head", "both copies of the segment's head fail their checksum"},
    [SH_REPLOG_HARM_HALF] = {"head_copy",
                             "a copy of the segment's head fails its checksum; the other one does "
                             "not"},
    [SH_REPLOG_HARM_UNREADABLE] = {"unreadable", "the disk reports an error"},
};

static void show_state(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct scrub *scrub = arg;
    scrub->seen_number = sh_log_table_value(table, row, "number");
    scrub->is_running = sh_log_table_value(table, row, "running");
    scrub->slots = sh_log_table_value(table, row, "slots");
    scrub->slots_done = sh_log_table_value(table, row, "slots_done");
    scrub->slots_passed_over = sh_log_table_value(table, row, "slots_passed_over");
    scrub->bytes = sh_log_table_value(table, row, "bytes");
    scrub->places = sh_log_table_value(table, row, "places");
}

static void place_json(struct scrub *scrub, const char *what, const char *kind, const char *zone,
                       const struct sh_log_table *table, uint32_t row)
{
    struct sh_json *json = sh_json_object();
    sh_json_set_text(json, "what", what);
    sh_json_set_text(json, "kind", kind);
    sh_json_set_u64(json, "slot", sh_log_table_value(table, row, "slot"));
    sh_json_set_u64(json, "offset", sh_log_table_value(table, row, "offset"));
    sh_json_set_text(json, "zone", zone);
    sh_json_set_bool(json, "is_replaced", sh_log_table_value(table, row, "gone"));
    sh_json_append(scrub->list, json);
}

static void show_place(void *arg, const struct sh_log_table *table, uint32_t row)
{
    struct scrub *scrub = arg;
    char zone[SH_ZONE_TEXT_MAX];
    uint64_t harm = sh_log_table_value(table, row, "harm");
    uint64_t kind = sh_log_table_value(table, row, "kind");
    uint64_t id = sh_log_table_value(table, row, "zone");
    bool is_gone = sh_log_table_value(table, row, "gone"), is_half = harm == SH_REPLOG_HARM_HALF;
    bool is_known = harm < sizeof harms / sizeof harms[0];
    scrub->told++;
    scrub->harmed += !is_half && !is_gone;
    scrub->waiting += !is_half && !is_gone && id;
    if (!scrub->is_shown)
        return;
    (void)sh_zone_format(id, zone);
    if (scrub->list) {
        place_json(scrub, is_known ? harms[harm].name : "unknown",
                   kind ? sh_log_kind_name_of(kind) : NULL, id ? zone : NULL, table, row);
        return;
    }
    fprintf(scrub->cmd->out, "slot %" PRIu64 ", offset %" PRIu64 ", zone %s: %s%s\n",
            sh_log_table_value(table, row, "slot"), sh_log_table_value(table, row, "offset"),
            id ? zone : "not known", is_known ? harms[harm].text : "damaged",
            !is_gone                   ? ""
            : id >> 48 == scrub->nid.v ? "; the segment is free, as the chunks are in others"
                                       : "; the segment is free, as the zone has another replica");
}

/* Reads the places; they are shown or only counted. An exit status. */
static int places_read(struct scrub *scrub, bool is_shown)
{
    scrub->told = scrub->harmed = scrub->waiting = 0;
    scrub->is_shown = is_shown;
    return sh_log_node_table(scrub->cmd, scrub->nid, SH_LOG_TABLE_PLACES, show_place, scrub);
}

/* Asks how far the scrub is. An exit status; it fails where the node's scrub is another one by now, which has taken the places of this one. */
static int state_read(struct scrub *scrub)
{
    int status = sh_log_node_table(scrub->cmd, scrub->nid, SH_LOG_TABLE_SCRUB, show_state, scrub);
    if (status == SH_EXIT_OK && scrub->seen_number != scrub->number)
        status = sh_cmd_fail_hint(
            scrub->cmd, SHOAL_ECANCELED,
            "somebody has begun another scrub of that node, which ended this one", "one at a time");
    return status;
}

/* Until the node has read all that it was to read. An exit status. */
static int scrub_wait(struct scrub *scrub)
{
    struct sh_progress progress;
    struct sh_cmd *cmd = scrub->cmd;
    int status;
    sh_store_watch(&progress, scrub->is_verify ? "verifying" : "scrubbing");
    for (;;) {
        status = state_read(scrub);
        if (status != SH_EXIT_OK || !scrub->is_running)
            break;
        if (!sh_store_progress(&progress, "segments", scrub->slots_done, scrub->slots)) {
            status = sh_cmd_fail_hint(cmd, SHOAL_ECANCELED, "the node goes on with the scrub", "");
            break;
        }
        sh_process_pause();
    }
    sh_progress_end(&progress);
    return status;
}

/* Until damaged segments are free, or that takes too long, or the user interrupts. An exit status. */
static int replaced_wait(struct scrub *scrub)
{
    uint64_t end_ms = sh_process_now_ms() + REPLACED_MS;
    struct sh_progress progress;
    sh_store_watch(&progress, "waiting for repairs");
    int status = places_read(scrub, false);
    while (
        status == SH_EXIT_OK && scrub->waiting && sh_process_now_ms() < end_ms &&
        sh_store_progress(&progress, "segments", scrub->harmed - scrub->waiting, scrub->harmed)) {
        sh_process_pause();
        status = places_read(scrub, false);
    }
    sh_progress_end(&progress);
    return status;
}

static void scrub_print(const struct scrub *scrub)
{
    char bytes[SH_SIZE_TEXT_MAX];
    FILE *out = scrub->cmd->out;
    if (scrub->places > scrub->told)
        fprintf(out, "and %" PRIu64 " more places\n", scrub->places - scrub->told);
    fprintf(out,
            "Read %" PRIu64 " segments of node %u, %s: ", scrub->slots - scrub->slots_passed_over,
            (unsigned)scrub->nid.v, sh_size_format(scrub->bytes, bytes));
    if (scrub->places)
        fprintf(out, "%" PRIu64 " damaged places", scrub->places);
    else
        fputs("no damage", out);
    if (scrub->slots_passed_over)
        fprintf(out,
                "; %" PRIu64 " segments were passed over, as they became free, or nothing in them "
                "was on the disk yet",
                scrub->slots_passed_over);
    fputs(".\n", out);
    if (scrub->waiting)
        fputs(
            "The owners of these zones were told, and have other replicas made; the chunks of the "
            "node's own zones are written once more.\n",
            out);
    else if (scrub->harmed)
        fputs("What is damaged is not replaced: stop the node, and see `shoal log verify` of its "
              "folder.\n",
              out);
}

static int scrub_show(struct scrub *scrub)
{
    struct sh_cmd *cmd = scrub->cmd;
    char zone[SH_ZONE_TEXT_MAX];
    uint64_t id = 0;
    if (cmd->flags.json)
        scrub->list = sh_json_array();
    int status = places_read(scrub, true);
    if (status == SH_EXIT_OK)
        status = state_read(scrub);
    if (status != SH_EXIT_OK) {
        sh_json_free(scrub->list);
        return status;
    }
    /* Nobody knows of those that the node does not keep whether they were replaced. */
    uint64_t left_out = scrub->places > scrub->told ? scrub->places - scrub->told : 0;
    bool is_bad = scrub->is_verify ? scrub->places : scrub->harmed || left_out;
    (void)sh_log_zone_take(cmd, &id);
    if (scrub->list) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "node", scrub->nid.v);
        sh_json_set_text(root, "zone", id ? sh_zone_format(id, zone) : NULL);
        sh_json_set_u64(root, "slots", scrub->slots);
        sh_json_set_u64(root, "slots_passed_over", scrub->slots_passed_over);
        sh_json_set_u64(root, "bytes", scrub->bytes);
        sh_json_set_u64(root, "damaged", scrub->places);
        sh_json_set_u64(root, "left_out", left_out);
        sh_json_set(root, "places", scrub->list);
        (void)sh_cmd_answer(cmd, root);
    } else {
        scrub_print(scrub);
    }
    return is_bad ? SH_EXIT_FAILED : SH_EXIT_OK;
}

static int scrub_run(struct sh_cmd *cmd, bool is_verify)
{
    struct scrub scrub = {.cmd = cmd, .is_verify = is_verify};
    uint64_t zone;
    int status = sh_log_zone_take(cmd, &zone);
    if (status == SH_EXIT_OK)
        status = sh_log_node_open(cmd, &scrub.nid);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err =
        sh_client_log_scrub(cmd->store, scrub.nid, zone, cmd->flags.rate.bytes, &scrub.number);
    if (err)
        return sh_log_node_fail(cmd, err, scrub.nid);
    status = scrub_wait(&scrub);
    if (status == SH_EXIT_OK && !is_verify)
        status = replaced_wait(&scrub);
    return status == SH_EXIT_OK ? scrub_show(&scrub) : status;
}

int sh_cmd_run_log_scrub(struct sh_cmd *cmd)
{
    return scrub_run(cmd, false);
}

int sh_log_node_verify(struct sh_cmd *cmd)
{
    return scrub_run(cmd, true);
}

/* --- Dump --------------------------------------------------------------------------------------- */

static void entry_show(struct sh_cmd *cmd, const struct sh_log_table *table, uint32_t row)
{
    uint8_t first[16];
    uint64_t chunk = sh_log_table_value(table, row, "chunk");
    uint64_t flags = sh_log_table_value(table, row, "flags");
    uint64_t standing = sh_log_table_value(table, row, "standing");
    const uint64_t bytes[] = {sh_log_table_value(table, row, "first_high"),
                              sh_log_table_value(table, row, "first_low")};
    for (unsigned i = 0; i < sizeof first; i++)
        first[i] = (uint8_t)(bytes[i / 8] >> (56 - 8 * (i % 8)));
    const struct sh_inspect_entry found = {
        .entry = {.local_id = chunk & SH_REPLOG_LOCAL_ID_MAX,
                  .creator = (uint16_t)(chunk >> 48),
                  .version = {(uint16_t)sh_log_table_value(table, row, "epoch"),
                              (uint32_t)sh_log_table_value(table, row, "number")},
                  .seconds = (uint32_t)sh_log_table_value(table, row, "seconds"),
                  .piece = (uint16_t)sh_log_table_value(table, row, "piece"),
                  .pieces = (uint16_t)sh_log_table_value(table, row, "pieces"),
                  .offset = (uint32_t)sh_log_table_value(table, row, "offset"),
                  .total = (uint32_t)sh_log_table_value(table, row, "total"),
                  .is_removal = flags & SH_LOG_DUMP_REMOVAL,
                  .is_with_next = flags & SH_LOG_DUMP_WITH_NEXT,
                  /* Only the first bytes are shown. */
                  .payload = sh_bytes_make(flags & SH_LOG_DUMP_ZEROS ? NULL : first,
                                           sh_log_table_value(table, row, "size"))},
        .kind = sh_log_table_value(table, row, "kind") == SH_SLOT_ENTRIES ? SH_SLOT_ENTRIES
                                                                          : SH_SLOT_SURVIVORS,
        .sequence = sh_log_table_value(table, row, "sequence"),
        .life = (uint16_t)sh_log_table_value(table, row, "life"),
        .incarnation = (uint32_t)sh_log_table_value(table, row, "incarnation"),
        .slot = (uint32_t)sh_log_table_value(table, row, "slot"),
        .standing =
            standing <= SH_INSPECT_VOID ? (enum sh_inspect_standing)standing : SH_INSPECT_VOID};
    sh_log_entry_show(cmd, &found);
}

/* Reads all pages. An exit status. */
static int pages_read(struct sh_cmd *cmd, shoal_nid nid, struct sh_log_dump_ask *ask,
                      struct sh_log_table *table)
{
    uint64_t end_ms = sh_process_now_ms() + PAGE_MS;
    while (!ferror(cmd->out)) {
        enum shoal_err err = sh_client_log_dump(cmd->store, nid, ask, table);
        if (err)
            return sh_log_node_fail(cmd, err, nid);
        for (uint32_t i = 0; i < table->rows; i++)
            entry_show(cmd, table, i);
        if (!table->next)
            break;
        if (table->rows) {
            ask->page++;
            end_ms = sh_process_now_ms() + PAGE_MS;
            continue;
        }
        if (sh_process_now_ms() > end_ms)
            return sh_log_node_fail(cmd, SHOAL_ETIMEOUT, nid);
        sh_process_pause();
    }
    return SH_EXIT_OK;
}

/* The command says beside a dump which entries it does not show. */
static void show_dumped(void *arg, const struct sh_log_table *table, uint32_t row)
{
    const uint64_t *dump = arg;
    uint64_t gone = sh_log_table_value(table, row, "slots_gone");
    uint64_t unreadable = sh_log_table_value(table, row, "slots_unreadable");
    if (sh_log_table_value(table, row, "number") != *dump)
        return;
    fprintf(stderr, "All writes before number %" PRIu64 " are considered.\n",
            sh_log_table_value(table, row, "end"));
    if (gone)
        fprintf(stderr,
                "%" PRIu64 " of %" PRIu64 " segments became free meanwhile, and are not shown.\n",
                gone, sh_log_table_value(table, row, "slots"));
    if (unreadable)
        fprintf(stderr, "%" PRIu64 " segments can't be read; see `shoal log verify`.\n",
                unreadable);
}

int sh_log_node_dump(struct sh_cmd *cmd, shoal_cid chunk)
{
    shoal_nid nid;
    struct sh_log_dump_ask ask = {.chunk = chunk.v, .page = 1};
    int status = sh_log_zone_take(cmd, &ask.zone);
    if (status == SH_EXIT_OK)
        status = sh_log_node_open(cmd, &nid);
    if (status != SH_EXIT_OK)
        return status;
    struct sh_log_table *table = malloc(sizeof *table);
    if (!table)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    sh_log_entries_begin(cmd);
    status = pages_read(cmd, nid, &ask, table);
    free(table);
    if (status == SH_EXIT_OK)
        status = sh_log_node_table(cmd, nid, SH_LOG_TABLE_DUMP, show_dumped, &ask.dump);
    return status;
}
