/* shoal lookup, lookup tree. */
#include <inttypes.h>
#include <stdlib.h>

#include "client/client.h"
#include "cmd/chunk_int.h"
#include "cmd/command_int.h"
#include "cmd/text_int.h"

static struct sh_json *range_json(const struct sh_client_lookup *range)
{
    char text[SH_CID_TEXT_MAX];
    struct sh_json *row = sh_json_object();
    sh_json_set_text(row, "first", sh_cid_format(range->first, text));
    sh_json_set_text(row, "last", sh_cid_format(range->last, text));
    sh_json_set_u64(row, "owner", range->owner.v);
    return row;
}

int sh_cmd_run_lookup(struct sh_cmd *cmd)
{
    shoal_cid cid;
    if (sh_cid_parse(cmd->words[0], &cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    struct sh_client_lookup found;
    enum shoal_err err = sh_client_lookup(cmd->store, cid, &found);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    char text[SH_CID_TEXT_MAX], first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
    if (cmd->flags.json) {
        struct sh_json *root = range_json(&found);
        sh_json_set_text(root, "cid", sh_cid_format(cid, text));
        sh_json_set_u64(root, "superpeer", found.superpeer.v);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "%s is with node %u, as all from %s to %s, says superpeer %u.\n",
            sh_cid_format(cid, text), (unsigned)found.owner.v, sh_cid_format(found.first, first),
            sh_cid_format(found.last, last), (unsigned)found.superpeer.v);
    return SH_EXIT_OK;
}

/* --- tree ------------------------------------------------------------------------------------ */

struct listing {
    struct sh_cmd *cmd;
    struct shoal_node *nodes; /* by ascending ID */
    size_t node_count;
    struct sh_json *ranges;
    uint64_t count;
    shoal_nid superpeer;
};

/* "up", "left", "failed" or "away", as the cluster has it now; "gone": it has forgotten the node;
 * "unknown": their creator gave them away, and nobody has said yet that it has them (owner 0). */
static const char *state_of(const struct listing *listing, shoal_nid nid)
{
    static const char *const names[] = {[SHOAL_NODE_UP] = "up",
                                        [SHOAL_NODE_LEFT] = "left",
                                        [SHOAL_NODE_FAILED] = "failed",
                                        [SHOAL_NODE_AWAY] = "away"};
    for (size_t i = 0; i < listing->node_count; i++)
        if (listing->nodes[i].nid.v == nid.v)
            return names[listing->nodes[i].state];
    return nid.v ? "gone" : "unknown";
}

static bool range_print(void *arg, const struct sh_client_lookup *range)
{
    struct listing *listing = arg;
    FILE *out = listing->cmd->out;
    char first[SH_CID_TEXT_MAX], last[SH_CID_TEXT_MAX];
    listing->superpeer = range->superpeer;
    const char *state = state_of(listing, range->owner);
    if (listing->cmd->flags.json) {
        struct sh_json *row = range_json(range);
        sh_json_set_text(row, "state", state);
        sh_json_append(listing->ranges, row);
    } else {
        if (listing->count == 0)
            fprintf(out, "%-22s %-22s %5s  %s\n", "FIRST", "LAST", "OWNER", "STATE");
        fprintf(out, "%-22s %-22s %5u  %s\n", sh_cid_format(range->first, first),
                sh_cid_format(range->last, last), (unsigned)range->owner.v, state);
    }
    listing->count++;
    return !ferror(out);
}

int sh_cmd_run_lookup_tree(struct sh_cmd *cmd)
{
    shoal_nid nid;
    int status = sh_cmd_open_for_node(cmd, &nid);
    struct listing listing = {.cmd = cmd};
    if (status == SH_EXIT_OK)
        status = sh_cmd_nodes(cmd, &listing.nodes, &listing.node_count);
    if (status != SH_EXIT_OK)
        return status;
    listing.ranges = sh_json_array();
    enum shoal_err err = sh_client_lookup_tree(cmd->store, nid, range_print, &listing);
    free(listing.nodes);
    if (err != SHOAL_OK || !cmd->flags.json) {
        sh_json_free(listing.ranges);
        if (err != SHOAL_OK)
            return sh_cmd_fail_node(cmd, err, nid);
        if (listing.count == 0)
            fprintf(cmd->out, "No node has chunks that node %u created.\n", (unsigned)nid.v);
        return SH_EXIT_OK;
    }
    struct sh_json *root = sh_json_object();
    sh_json_set_u64(root, "nid", nid.v);
    sh_json_set_u64(root, "superpeer", listing.superpeer.v);
    sh_json_set(root, "ranges", listing.ranges);
    return sh_cmd_answer(cmd, root);
}
