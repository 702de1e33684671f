/* shoal log segments, shoal log verify. */
#include <inttypes.h>

#include "cmd/log_int.h"
#include "cmd/text_int.h"

#define PLACES_MAX 10000 /* that are told one by one */

/* --- shoal log segments ------------------------------------------------------------------------ */

struct segments {
    struct sh_cmd *cmd;
    struct sh_json *list; /* NULL: they are printed */
};

static const char *state_of(const struct sh_inspect_slot *slot)
{
    if (slot->is_unreadable)
        return "unreadable";
    if (slot->damaged)
        return "damaged";
    return slot->torn ? "torn" : "whole";
}

static void segment_json(struct sh_json *list, const struct sh_inspect_slot *slot)
{
    char zone[SH_ZONE_TEXT_MAX], use[24];
    struct sh_json *row = sh_json_object();
    bool is_versions = slot->head.kind == SH_SLOT_VERSIONS;
    snprintf(use, sizeof use, "%016" PRIx64, slot->head.use);
    sh_json_set_u64(row, "slot", slot->slot);
    sh_json_set_text(row, "zone", sh_zone_format(slot->head.zone, zone));
    sh_json_set_text(row, "kind", sh_log_kind_name(slot->head.kind));
    sh_json_set_text(row, "use", use);
    sh_json_set_u64(row, "incarnation", slot->head.incarnation);
    sh_json_set_u64(row, "begun_seconds", slot->head.seconds);
    sh_json_set_u64(row, "filled_bytes", slot->filled);
    sh_json_set_u64(row, is_versions ? "pieces" : "spans", slot->spans);
    sh_json_set_u64(row, is_versions ? "tuples" : "entries", slot->entries);
    if (!is_versions && slot->entries) {
        sh_json_set_u64(row, "first_seconds", slot->seconds_first);
        sh_json_set_u64(row, "last_seconds", slot->seconds_last);
    }
    sh_json_set_text(row, "state", state_of(slot));
    sh_json_append(list, row);
}

static void on_segment(void *arg, const struct sh_inspect_slot *slot)
{
    struct segments *segments = arg;
    char zone[SH_ZONE_TEXT_MAX], filled[SH_SIZE_TEXT_MAX], first[16] = "-", last[16] = "-";
    if (segments->list) {
        segment_json(segments->list, slot);
        return;
    }
    if (slot->head.kind != SH_SLOT_VERSIONS && slot->entries) {
        snprintf(first, sizeof first, "%u", slot->seconds_first);
        snprintf(last, sizeof last, "%u", slot->seconds_last);
    }
    fprintf(segments->cmd->out,
            "%8u %-14s %-9s %016" PRIx64 " %10s %8u %10" PRIu64 " %10s %10s  %s\n", slot->slot,
            sh_zone_format(slot->head.zone, zone), sh_log_kind_name(slot->head.kind),
            slot->head.use, sh_size_format(slot->filled, filled), slot->spans, slot->entries, first,
            last, state_of(slot));
}

int sh_cmd_run_log_segments(struct sh_cmd *cmd)
{
    struct sh_log_look look;
    if (sh_log_is_of_node(cmd))
        return sh_log_node_segments(cmd);
    int status = sh_log_look_open(cmd, &look);
    if (status != SH_EXIT_OK)
        return status;
    struct segments segments = {.cmd = cmd, .list = cmd->flags.json ? sh_json_array() : NULL};
    const struct sh_inspect_calls calls = {.slot = on_segment, .arg = &segments};
    if (!cmd->flags.json)
        fprintf(cmd->out, "%8s %-14s %-9s %-16s %10s %8s %10s %10s %10s  %s\n", "SLOT", "ZONE",
                "KIND", "USE", "FILLED", "SPANS", "ENTRIES", "FIRST AT", "LAST AT", "STATE");
    status = sh_log_look_read(cmd, &look, &calls);
    sh_log_look_close(&look);
    if (status == SH_EXIT_OK && segments.list) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "segments", segments.list);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(segments.list);
    return status;
}

/* --- shoal log verify -------------------------------------------------------------------------- */

struct harms {
    struct sh_cmd *cmd;
    struct sh_json *list; /* NULL: they are printed */
    unsigned told;
};

static const struct {
    const char *name, *text;
} harms_known[] = {
    [SH_INSPECT_TORN] = {"torn", "can't be read; it may not have been on the disk before a crash"},
    [SH_INSPECT_DAMAGED] = {"damaged", "fails its checksum, and had been on the disk"},
    [SH_INSPECT_HEAD] =
        {"head",
         "a copy of the segment's head fails its checksum; of both, a node does not use it"},
    [SH_INSPECT_UNREADABLE] = {"unreadable", "the disk reports an error"},
};

static void on_harm(void *arg, const struct sh_inspect_place *place)
{
    struct harms *harms = arg;
    char zone[SH_ZONE_TEXT_MAX] = "not known", slot[32] = "the primary log";
    if (harms->told++ >= PLACES_MAX)
        return;
    bool is_slot = place->slot < SH_INSPECT_UNKNOWN;
    if (place->zone)
        (void)sh_zone_format(place->zone, zone);
    if (!harms->list) {
        if (is_slot)
            snprintf(slot, sizeof slot, "slot %u", place->slot);
        else if (place->slot == SH_INSPECT_UNKNOWN)
            snprintf(slot, sizeof slot, "a slot that is not known");
        fprintf(harms->cmd->out, "%s, offset %" PRIu64 ", zone %s: %s\n", slot, place->offset, zone,
                harms_known[place->harm].text);
        return;
    }
    struct sh_json *row = sh_json_object();
    sh_json_set_text(row, "what", harms_known[place->harm].name);
    if (is_slot)
        sh_json_set_u64(row, "slot", place->slot);
    sh_json_set_bool(row, "primary", place->slot == SH_INSPECT_PRIMARY);
    sh_json_set_u64(row, "offset", place->offset);
    sh_json_set_text(row, "zone", place->zone ? zone : NULL);
    sh_json_append(harms->list, row);
}

static void verified_print(FILE *out, const struct sh_inspect *inspect, unsigned told)
{
    const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
    size_t zones = 0;
    while (sh_inspect_zone_at(inspect, zones))
        zones++;
    if (told > PLACES_MAX)
        fprintf(out, "and %u more places\n", told - PLACES_MAX);
    fprintf(out, "Read %" PRIu64 " entries of %zu zones in %u slots and the primary log: ",
            seen->entries, zones, seen->slots_used);
    if (seen->damaged)
        fprintf(out, "%u damaged places", seen->damaged);
    else
        fputs("no damage", out);
    fprintf(out, ", %u torn.\n", seen->torn);
    if (seen->damaged)
        fputs("What is damaged is lost here: these zones need another replica.\n", out);
}

static void verified_json(struct sh_json *root, const struct sh_inspect *inspect, unsigned told)
{
    const struct sh_inspect_seen *seen = sh_inspect_seen(inspect);
    sh_json_set_u64(root, "entries", seen->entries);
    sh_json_set_u64(root, "slots", seen->slots_used);
    sh_json_set_u64(root, "damaged", seen->damaged);
    sh_json_set_u64(root, "torn", seen->torn);
    sh_json_set_u64(root, "left_out", told > PLACES_MAX ? told - PLACES_MAX : 0);
}

int sh_cmd_run_log_verify(struct sh_cmd *cmd)
{
    struct sh_log_look look;
    if (sh_log_is_of_node(cmd))
        return sh_log_node_verify(cmd);
    if (cmd->flags.rate.is_given)
        return sh_cmd_usage(cmd, "--rate is for a node; %.40s is a folder", cmd->words[0]);
    int status = sh_log_look_open(cmd, &look);
    if (status != SH_EXIT_OK)
        return status;
    struct harms harms = {.cmd = cmd, .list = cmd->flags.json ? sh_json_array() : NULL};
    const struct sh_inspect_calls calls = {.harm = on_harm, .arg = &harms};
    status = sh_log_look_read(cmd, &look, &calls);
    if (status != SH_EXIT_OK) {
        sh_json_free(harms.list);
    } else if (harms.list) {
        struct sh_json *root = sh_json_object();
        verified_json(root, look.inspect, harms.told);
        sh_json_set(root, "places", harms.list);
        (void)sh_cmd_answer(cmd, root);
    } else {
        verified_print(cmd->out, look.inspect, harms.told);
    }
    if (status == SH_EXIT_OK && sh_inspect_seen(look.inspect)->damaged)
        status = SH_EXIT_FAILED;
    sh_log_look_close(&look);
    return status;
}
