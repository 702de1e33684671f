/* shoal recovery --accept-loss: has the superpeers remove the records of zones that are lost. The command looks at all zones that the operator names first: if one is not
 * lost, it removes nothing. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/recovery_int.h"
#include "cmd/text_int.h"

#define NODES_TEXT_MAX 64

/* A zone that is to be accepted. */
struct loss {
    uint64_t zone;
    bool is_listed; /* recovery is what the superpeers say of it */
    struct sh_recovery recovery;
};

struct losses {
    bool are_all;         /* that are lost; else those that were named */
    struct loss *entries; /* ascending, each zone once, if they were named */
    size_t count, room;
    bool is_short; /* of memory */
};

/* --- Words ------------------------------------------------------------------------------------- */

static int order_of(const void *a, const void *b)
{
    uint64_t x = ((const struct loss *)a)->zone, y = ((const struct loss *)b)->zone;
    return x < y ? -1 : x > y;
}

static bool is_all(const char *word)
{
    return strcmp(word, "all") == 0;
}

/* Reads the zones that are named. */
static int zones_take(struct sh_cmd *cmd, struct losses *losses)
{
    losses->entries = calloc(cmd->word_count, sizeof *losses->entries);
    if (!losses->entries)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%zu zones", cmd->word_count);
    for (size_t i = 0; i < cmd->word_count; i++) {
        shoal_cid zone;
        if (sh_cid_parse(cmd->words[i], &zone) != SHOAL_OK || !sh_zone_is_id(zone.v))
            return sh_cmd_usage(cmd,
                                "--accept-loss: \"%.40s\" is no zone; write zones as `shoal "
                                "recovery` lists them, such as 64:1, or all",
                                cmd->words[i]);
        losses->entries[i].zone = zone.v;
    }
    qsort(losses->entries, cmd->word_count, sizeof *losses->entries, order_of);
    for (size_t i = 0; i < cmd->word_count; i++) {
        if (!losses->count || losses->entries[losses->count - 1].zone != losses->entries[i].zone)
            losses->entries[losses->count++] = losses->entries[i];
    }
    return SH_EXIT_OK;
}

static int words_take(struct sh_cmd *cmd, struct losses *losses)
{
    if (cmd->flags.until_back)
        return sh_cmd_usage(cmd, "--wait does not go with --accept-loss: wait first");
    if (!cmd->word_count)
        return sh_cmd_usage(cmd, "--accept-loss needs the zones, as `shoal recovery` lists them, "
                                 "or all");
    losses->are_all = cmd->word_count == 1 && is_all(cmd->words[0]);
    for (size_t i = 0; i < cmd->word_count; i++) {
        if (is_all(cmd->words[i]) && !losses->are_all)
            return sh_cmd_usage(cmd, "--accept-loss takes either zones or all");
    }
    return losses->are_all ? SH_EXIT_OK : zones_take(cmd, losses);
}

/* --- What the superpeers say of them ----------------------------------------------------------- */

static bool loss_append(struct losses *losses, const struct sh_recovery *recovery)
{
    if (losses->count == losses->room) {
        size_t room = losses->room ? 2 * losses->room : 64;
        struct loss *entries = realloc(losses->entries, room * sizeof *entries);
        losses->is_short = !entries;
        if (!entries)
            return false;
        losses->entries = entries;
        losses->room = room;
    }
    losses->entries[losses->count++] =
        (struct loss){.zone = recovery->zone.id, .is_listed = true, .recovery = *recovery};
    return true;
}

static bool on_listed(void *arg, const struct sh_recovery *recovery)
{
    struct losses *losses = arg;
    const struct loss key = {.zone = recovery->zone.id};
    if (losses->are_all)
        return recovery->state != SH_RECOVERY_LOST || loss_append(losses, recovery);
    struct loss *loss =
        bsearch(&key, losses->entries, losses->count, sizeof *losses->entries, order_of);
    if (loss) {
        loss->is_listed = true;
        loss->recovery = *recovery;
    }
    return true;
}

/* The nodes that a zone waits for, such as "66, 67". */
static const char *awaited_format(const struct sh_recovery *recovery, char text[NODES_TEXT_MAX])
{
    size_t at = 0;
    text[0] = 0;
    for (unsigned i = 0; i < recovery->zone.count; i++) {
        if (recovery->waits >> i & 1)
            at += (size_t)snprintf(text + at, NODES_TEXT_MAX - at, "%s%u", at ? ", " : "",
                                   (unsigned)recovery->zone.backups[i].nid.v);
    }
    return text;
}

/* Says why the loss of a zone can't be accepted, and what to do. */
static int loss_refuse(struct sh_cmd *cmd, const struct loss *loss)
{
    char zone[SH_CID_TEXT_MAX], nodes[NODES_TEXT_MAX], detail[256];
    const struct sh_recovery *recovery = &loss->recovery;
    const char *hint = "nothing was accepted; `shoal recovery --wait TIME` waits for it";
    enum shoal_err err = SHOAL_EINVAL;
    (void)sh_cid_format((shoal_cid){loss->zone}, zone);
    if (!loss->is_listed) {
        err = SHOAL_ENONAME;
        snprintf(detail, sizeof detail, "zone %s is not among those that `shoal recovery` lists",
                 zone);
        hint = "nothing was accepted; that zone is with its owner, was never there, or its loss "
               "was accepted before: repeat that with the others, or with all";
    } else if (recovery->state == SH_RECOVERY_WAITS) {
        snprintf(detail, sizeof detail,
                 "zone %s is not lost: it waits for the disk of node %s, which may have it", zone,
                 awaited_format(recovery, nodes));
        hint = "nothing was accepted; start that node, or if its data_dir is lost for good, `shoal "
               "node lost NID`";
    } else if (recovery->state == SH_RECOVERY_ASKS) {
        snprintf(detail, sizeof detail, "zone %s is not lost: its backups are being asked", zone);
    } else if (recovery->state == SH_RECOVERY_RESTORES) {
        snprintf(detail, sizeof detail, "zone %s is not lost: node %u brings it back", zone,
                 (unsigned)recovery->zone.owner.v);
    } else {
        snprintf(detail, sizeof detail, "zone %s is not lost: it is back, with node %u", zone,
                 (unsigned)recovery->zone.owner.v);
        hint = "nothing was accepted; leave that zone out";
    }
    return sh_cmd_fail_hint(cmd, err, detail, hint);
}

/* Asks the superpeers about all, and refuses if one is not lost. */
static int losses_look(struct sh_cmd *cmd, struct losses *losses)
{
    enum shoal_err err = sh_client_recoveries(cmd->store, on_listed, losses);
    if (losses->is_short)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%zu zones that are lost", losses->count);
    if (err)
        return sh_cmd_fail(cmd, err, "%s", shoal_error_detail());
    for (size_t i = 0; i < losses->count; i++) {
        const struct loss *loss = &losses->entries[i];
        if (!loss->is_listed || loss->recovery.state != SH_RECOVERY_LOST)
            return loss_refuse(cmd, loss);
    }
    return SH_EXIT_OK;
}

/* --- Accepting --------------------------------------------------------------------------------- */

static void loss_print(struct sh_cmd *cmd, const struct sh_recovery *recovery)
{
    const struct sh_zone *zone = &recovery->zone;
    char id[SH_CID_TEXT_MAX], first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
    fprintf(cmd->out, "Accepted that zone %s of node %u is lost, ",
            sh_cid_format((shoal_cid){zone->id}, id), (unsigned)sh_recovery_former(recovery).v);
    if (sh_recovery_has_bounds(zone))
        fprintf(cmd->out, "with its creator's chunks from %s to %s, and perhaps others.\n",
                sh_cid_format(zone->first, first), sh_cid_format(zone->last, last));
    else
        fputs("whose chunk IDs are not known.\n", cmd->out);
}

/* Has the superpeers remove one record after the other. Zones that the command came to before an error stay accepted, and superpeers list them no more. */
static int losses_accept(struct sh_cmd *cmd, const struct losses *losses, struct sh_json *accepted)
{
    for (size_t i = 0; i < losses->count; i++) {
        const struct sh_recovery *recovery = &losses->entries[i].recovery;
        char id[SH_CID_TEXT_MAX];
        enum shoal_err err =
            sh_client_loss_accept(cmd->store, recovery->zone.id, recovery->zone.version);
        if (err) {
            const char *detail = shoal_error_detail();
            return sh_cmd_fail(cmd, err, "zone %s, after %zu of %zu zones%s%s",
                               sh_cid_format((shoal_cid){recovery->zone.id}, id), i, losses->count,
                               *detail ? ": " : "", detail);
        }
        if (cmd->flags.json)
            sh_json_append(accepted, sh_recovery_zone_json(recovery));
        else
            loss_print(cmd, recovery);
    }
    return SH_EXIT_OK;
}

static int losses_run(struct sh_cmd *cmd, struct losses *losses)
{
    int status = words_take(cmd, losses);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = losses_look(cmd, losses);
    if (status != SH_EXIT_OK)
        return status;
    struct sh_json *accepted = sh_json_array();
    status = losses_accept(cmd, losses, accepted);
    if (status != SH_EXIT_OK || !cmd->flags.json) {
        sh_json_free(accepted);
        if (status == SH_EXIT_OK && !losses->count)
            fputs("No zone is lost.\n", cmd->out);
        return status;
    }
    struct sh_json *root = sh_json_object();
    sh_json_set(root, "accepted", accepted);
    return sh_cmd_answer(cmd, root);
}

int sh_recovery_accept(struct sh_cmd *cmd)
{
    struct losses losses = {0};
    int status = losses_run(cmd, &losses);
    free(losses.entries);
    return status;
}
