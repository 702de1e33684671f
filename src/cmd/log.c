/* shoal log info, and opening a log for the other commands. */
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "cmd/log_int.h"
#include "cmd/text_int.h"
#include "recover/log_place.h"

#define FILE_NAME "replicas.log"
#define PATH_FORMAT "%.600s"

/* --- A log in a folder, or on a device --------------------------------------------------------- */

static const char *file_of(const struct sh_cmd *cmd)
{
    return cmd->flags.log_file ? cmd->flags.log_file : FILE_NAME;
}

/* Says why a file can't be looked at. */
static int open_fail(struct sh_cmd *cmd, const struct sh_log_look *look, enum shoal_err err)
{
    char detail[1024];
    const char *path = look->path, *hint = shoal_err_hint(err);
    switch (err) {
    case SHOAL_ENONAME:
        snprintf(detail, sizeof detail, PATH_FORMAT " has no file %.200s", cmd->words[0],
                 look->name);
        hint = "name the folder of a log, and with --file its file if that has another name; or "
               "its device";
        break;
    case SHOAL_EPARSE:
        snprintf(detail, sizeof detail, PATH_FORMAT " is empty: no log was made in it yet", path);
        hint = "there is nothing to look at; a node that is started on it makes the log";
        break;
    case SHOAL_ECORRUPT:
        snprintf(detail, sizeof detail,
                 PATH_FORMAT " is no log, or its first block is damaged: the rest can't be read "
                             "without that",
                 path);
        hint = "check the path; if it was a log, its zones need other replicas";
        break;
    case SHOAL_EVERSION:
        snprintf(detail, sizeof detail,
                 PATH_FORMAT " is a log in another format than this version's (%u)", path,
                 SH_LOG_FORMAT);
        hint = "use the version that wrote it; a node of this version begins a new log, without "
               "its replicas, once the file is removed or the device's first MiB is zero";
        break;
    default:
        snprintf(detail, sizeof detail, PATH_FORMAT, path);
        break;
    }
    (void)sh_cmd_fail_hint(cmd, err, detail, hint);
    return SH_EXIT_FAILED;
}

static int folder_fail(struct sh_cmd *cmd, const char *folder, enum shoal_err err)
{
    char detail[1024];
    const char *hint = shoal_err_hint(err);
    snprintf(detail, sizeof detail, PATH_FORMAT, folder);
    if (err == SHOAL_ENONAME) {
        snprintf(detail, sizeof detail, "there is no folder " PATH_FORMAT, folder);
        hint = "name the folder of a log";
    } else if (err == SHOAL_EBUSY) {
        snprintf(detail, sizeof detail, "a node, or another command, uses " PATH_FORMAT, folder);
        hint = "stop the node first, or copy the log and look at the copy";
    }
    (void)sh_cmd_fail_hint(cmd, err, detail, hint);
    return SH_EXIT_FAILED;
}

static int device_fail(struct sh_cmd *cmd, const char *path, enum shoal_err err)
{
    char detail[1024];
    const char *hint = "the file " SH_LOG_NOTE_NAME " in the folder names the log's device";
    if (err == SHOAL_EBUSY)
        return folder_fail(cmd, path, err);
    if (err == SHOAL_ENONAME)
        snprintf(detail, sizeof detail, "there is no device " PATH_FORMAT, path);
    else if (err == SHOAL_EINVAL)
        snprintf(detail, sizeof detail, PATH_FORMAT " is neither a device nor a file", path);
    else
        return folder_fail(cmd, path, err);
    (void)sh_cmd_fail_hint(cmd, err, detail, hint);
    return SH_EXIT_FAILED;
}

int sh_log_zone_take(struct sh_cmd *cmd, uint64_t *zone_out)
{
    shoal_cid zone = {0};
    if (cmd->flags.zone && sh_cid_parse(cmd->flags.zone, &zone) != SHOAL_OK)
        return sh_cmd_usage(cmd,
                            "--zone: \"%.40s\" is no zone; write its owner's node ID and its "
                            "number, as 64:1 (see `shoal log info`)",
                            cmd->flags.zone);
    *zone_out = zone.v;
    return SH_EXIT_OK;
}

/* Whether the first word names a device, or a file: the log itself, and not its folder. */
static bool is_file(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && (S_ISREG(facts.st_mode) || S_ISBLK(facts.st_mode));
}

/* Checks the words and flags, and takes the zone from them. */
static int words_take(struct sh_cmd *cmd, struct sh_log_look *look)
{
    if (!*cmd->words[0])
        return sh_cmd_usage(cmd, "the folder has no name");
    if (!*file_of(cmd) || strchr(file_of(cmd), '/'))
        return sh_cmd_usage(cmd, "--file: \"%.60s\" is not the name of a file in the folder",
                            file_of(cmd));
    if (cmd->flags.log_file && is_file(cmd->words[0]))
        return sh_cmd_usage(cmd, "--file: \"%.60s\" is no folder", cmd->words[0]);
    return sh_log_zone_take(cmd, &look->zone);
}

/* Opens a folder, and locks it. */
static int folder_open(struct sh_cmd *cmd, const char *path, struct sh_disk **disk_out)
{
    struct sh_disk *disk;
    enum shoal_err err = sh_real_disk_look(path, &disk);
    if (err)
        return folder_fail(cmd, path, err);
    err = sh_real_disk_take(disk);
    if (err) {
        disk->ops->destroy(disk);
        return folder_fail(cmd, path, err);
    }
    *disk_out = disk;
    return SH_EXIT_OK;
}

/* Opens a device, or a file as one, whose path is known; nobody has it open meanwhile. */
static int device_open(struct sh_cmd *cmd, struct sh_log_look *look)
{
    look->name = FILE_NAME;
    enum shoal_err err = sh_raw_disk_look(look->path, look->name, &look->disk);
    return err ? device_fail(cmd, look->path, err) : SH_EXIT_OK;
}

/* A file may be a log in a node's folder, of which the node has locked the folder alone. */
static int file_look(struct sh_cmd *cmd, struct sh_log_look *look)
{
    char folder[sizeof look->path];
    snprintf(look->path, sizeof look->path, "%.4095s", cmd->words[0]);
    snprintf(folder, sizeof folder, "%s", look->path);
    char *slash = strrchr(folder, '/');
    if (slash)
        slash[slash == folder] = '\0';
    int status = folder_open(cmd, slash ? folder : ".", &look->folder);
    return status == SH_EXIT_OK ? device_open(cmd, look) : status;
}

/* The folder's file; or the device that the folder names as the place of its node's log. */
static int folder_look(struct sh_cmd *cmd, struct sh_log_look *look)
{
    char noted[SH_LOG_PATH_MAX];
    int status = folder_open(cmd, cmd->words[0], &look->folder);
    if (status != SH_EXIT_OK)
        return status;
    if (!cmd->flags.log_file && sh_log_note_read(look->folder, noted) == SHOAL_OK) {
        memcpy(look->path, noted, strlen(noted) + 1);
        return device_open(cmd, look);
    }
    look->name = file_of(cmd);
    snprintf(look->path, sizeof look->path, "%.4095s/%.255s", cmd->words[0], look->name);
    look->disk = look->folder;
    look->folder = NULL;
    return SH_EXIT_OK;
}

int sh_log_look_open(struct sh_cmd *cmd, struct sh_log_look *look_out)
{
    struct sh_log_look look = {.disk = NULL};
    int status = words_take(cmd, &look);
    if (status == SH_EXIT_OK)
        status = is_file(cmd->words[0]) ? file_look(cmd, &look) : folder_look(cmd, &look);
    enum shoal_err err = SHOAL_OK;
    if (status == SH_EXIT_OK)
        err = sh_inspect_open(look.disk, look.name, &look.inspect);
    if (err)
        status = open_fail(cmd, &look, err);
    if (status == SH_EXIT_OK)
        *look_out = look;
    else
        sh_log_look_close(&look);
    return status;
}

void sh_log_look_close(struct sh_log_look *look)
{
    sh_inspect_close(look->inspect);
    if (look->disk)
        look->disk->ops->destroy(look->disk);
    if (look->folder)
        look->folder->ops->destroy(look->folder);
}

int sh_log_look_read(struct sh_cmd *cmd, struct sh_log_look *look,
                     const struct sh_inspect_calls *calls)
{
    enum shoal_err err = sh_inspect_read(look->inspect, look->zone, calls);
    if (err && err != SHOAL_EIO) /* those places are counted */
        return sh_cmd_fail(cmd, err, "%s", cmd->words[0]);
    if (!look->zone || sh_inspect_zone_find(look->inspect, look->zone))
        return SH_EXIT_OK;
    return sh_cmd_fail_hint(cmd, SHOAL_ENONAME, "the log has nothing of that zone",
                            "`shoal log info` lists the zones");
}

const char *sh_zone_format(uint64_t id, char text_out[SH_ZONE_TEXT_MAX])
{
    return sh_cid_format((shoal_cid){id}, text_out);
}

const char *sh_log_kind_name(enum sh_log_slot_kind kind)
{
    static const char *const names[] = {[SH_SLOT_ENTRIES] = "entries",
                                        [SH_SLOT_VERSIONS] = "versions",
                                        [SH_SLOT_SURVIVORS] = "survivors",
                                        [SH_SLOT_DROPPED] = "dropped"};
    return names[kind];
}

/* --- shoal log info ---------------------------------------------------------------------------- */

static uint32_t slots_of(const struct sh_inspect_zone *zone)
{
    return zone->slots[SH_SLOT_ENTRIES] + zone->slots[SH_SLOT_SURVIVORS] +
           zone->slots[SH_SLOT_VERSIONS];
}

static struct sh_json *lives_json(const struct sh_inspect_zone *zone)
{
    struct sh_json *lives = sh_json_array();
    for (unsigned i = 0; i < zone->lives_count; i++) {
        struct sh_json *life = sh_json_object();
        sh_json_set_u64(life, "life", zone->lives[i].life);
        sh_json_set_u64(life, "first", zone->lives[i].first);
        sh_json_append(lives, life);
    }
    return lives;
}

static struct sh_json *zone_json(const struct sh_inspect_zone *zone)
{
    char id[SH_ZONE_TEXT_MAX];
    struct sh_json *row = sh_json_object();
    sh_json_set_text(row, "zone", sh_zone_format(zone->id, id));
    sh_json_set_u64(row, "owner", zone->owner);
    sh_json_set_u64(row, "incarnation", zone->incarnation);
    sh_json_set_u64(row, "slots", slots_of(zone));
    sh_json_set_u64(row, "entries_bytes", zone->bytes[SH_SLOT_ENTRIES]);
    sh_json_set_u64(row, "survivors_bytes", zone->bytes[SH_SLOT_SURVIVORS]);
    sh_json_set_u64(row, "versions_bytes", zone->bytes[SH_SLOT_VERSIONS]);
    sh_json_set_u64(row, "versions_tuples", zone->tuples);
    sh_json_set_u64(row, "versions_flush", zone->flushes);
    sh_json_set_u64(row, "primary_bytes", zone->primary_bytes);
    sh_json_set_u64(row, "entries", zone->entries);
    sh_json_set_u64(row, "removals", zone->removals);
    sh_json_set_u64(row, "payload_bytes", zone->payload_bytes);
    if (zone->has_numbers) {
        sh_json_set_u64(row, "first", zone->first);
        sh_json_set_u64(row, "last", zone->last);
    }
    sh_json_set_u64(row, "whole", zone->whole);
    sh_json_set(row, "lives", lives_json(zone));
    sh_json_set_u64(row, "damaged", zone->damaged);
    sh_json_set_u64(row, "torn", zone->torn);
    return row;
}

static int info_json(struct sh_cmd *cmd, const struct sh_log_look *look)
{
    const struct sh_inspect_seen *seen = sh_inspect_seen(look->inspect);
    struct sh_json *root = sh_json_object(), *zones = sh_json_array();
    const struct sh_inspect_zone *zone;
    sh_json_set_u64(root, "format", SH_LOG_FORMAT);
    sh_json_set_u64(root, "cluster", seen->file.cluster);
    sh_json_set_u64(root, "node", seen->file.node);
    sh_json_set_u64(root, "file_bytes", seen->file_bytes);
    sh_json_set_u64(root, "slot_bytes", seen->file.slot_bytes);
    sh_json_set_u64(root, "slots", seen->file.slots);
    sh_json_set_u64(root, "slots_used", seen->slots_used);
    sh_json_set_u64(root, "slots_free", seen->file.slots - seen->slots_used);
    sh_json_set_u64(root, "primary_bytes",
                    (uint64_t)seen->file.primary_blocks * SH_SLOT_HEAD_BYTES);
    sh_json_set_u64(root, "primary_lap", seen->lap);
    sh_json_set_u64(root, "primary_used_bytes", seen->primary_bytes);
    sh_json_set_u64(root, "damaged", seen->damaged);
    sh_json_set_u64(root, "torn", seen->torn);
    for (size_t i = 0; (zone = sh_inspect_zone_at(look->inspect, i)); i++)
        sh_json_append(zones, zone_json(zone));
    sh_json_set(root, "zones", zones);
    return sh_cmd_answer(cmd, root);
}

static void zone_print(FILE *out, const struct sh_inspect_zone *zone)
{
    char id[SH_ZONE_TEXT_MAX], log[SH_SIZE_TEXT_MAX], versions[SH_SIZE_TEXT_MAX];
    char first[24] = "-", last[24] = "-";
    if (zone->has_numbers) {
        snprintf(first, sizeof first, "%" PRIu64, zone->first);
        snprintf(last, sizeof last, "%" PRIu64, zone->last);
    }
    uint64_t bytes = zone->bytes[SH_SLOT_ENTRIES] + zone->bytes[SH_SLOT_SURVIVORS];
    fprintf(out,
            "%-14s %6u %11u %6u %10s %10s %10" PRIu64 " %10" PRIu64 " %10s %10s %10" PRIu64
            " %6u%s\n",
            sh_zone_format(zone->id, id), (unsigned)zone->owner, zone->incarnation, slots_of(zone),
            sh_size_format(bytes, log), sh_size_format(zone->bytes[SH_SLOT_VERSIONS], versions),
            zone->entries, zone->removals, first, last, zone->whole, zone->lives_count,
            zone->damaged ? "  damaged" : "");
}

static void info_print(struct sh_cmd *cmd, const struct sh_log_look *look)
{
    const struct sh_inspect_seen *seen = sh_inspect_seen(look->inspect);
    const struct sh_inspect_zone *zone;
    char slot[SH_SIZE_TEXT_MAX], file[SH_SIZE_TEXT_MAX], ring[SH_SIZE_TEXT_MAX],
        used[SH_SIZE_TEXT_MAX];
    FILE *out = cmd->out;
    fprintf(out,
            "Log of node %u in the cluster %" PRIu64 ", format %u, file of %s.\n"
            "%u slots of %s: %u in use, %u free.\n",
            (unsigned)seen->file.node, seen->file.cluster, SH_LOG_FORMAT,
            sh_size_format(seen->file_bytes, file), seen->file.slots,
            sh_size_format(seen->file.slot_bytes, slot), seen->slots_used,
            seen->file.slots - seen->slots_used);
    if (seen->file.primary_blocks)
        fprintf(out,
                "Primary log of %s, in lap %u: %" PRIu64
                " spans, %s, which a start would copy to slots.\n",
                sh_size_format((uint64_t)seen->file.primary_blocks * SH_SLOT_HEAD_BYTES, ring),
                seen->lap, seen->primary_spans, sh_size_format(seen->primary_bytes, used));
    else
        fputs("No primary log.\n", out);
    if (seen->slots_dropped)
        fprintf(out, "%u slots are of zones that were being dropped: a start frees them.\n",
                seen->slots_dropped);
    if (sh_inspect_zone_at(look->inspect, 0))
        fprintf(out, "\n%-14s %6s %11s %6s %10s %10s %10s %10s %10s %10s %10s %6s\n", "ZONE",
                "OWNER", "INCARNATION", "SLOTS", "LOG", "VERSIONS", "ENTRIES", "REMOVALS", "FIRST",
                "LAST", "WHOLE", "LIVES");
    for (size_t i = 0; (zone = sh_inspect_zone_at(look->inspect, i)); i++)
        zone_print(out, zone);
    if (seen->damaged)
        fprintf(out, "\nDamaged places: %u; `shoal log verify` says which.\n", seen->damaged);
}

int sh_cmd_run_log_info(struct sh_cmd *cmd)
{
    struct sh_log_look look;
    const struct sh_inspect_calls none = {.slot = NULL};
    if (sh_log_is_of_node(cmd))
        return sh_log_node_info(cmd);
    int status = sh_log_look_open(cmd, &look);
    if (status != SH_EXIT_OK)
        return status;
    status = sh_log_look_read(cmd, &look, &none);
    if (status == SH_EXIT_OK && cmd->flags.json)
        status = info_json(cmd, &look);
    else if (status == SH_EXIT_OK)
        info_print(cmd, &look);
    sh_log_look_close(&look);
    return status;
}
