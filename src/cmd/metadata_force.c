/* shoal metadata force. */
#include <string.h>

#include "cmd/command_int.h"
#include "node/forced.h"

#define DETAIL_BYTES 256

int sh_cmd_run_metadata_force(struct sh_cmd *cmd)
{
    char detail[DETAIL_BYTES];
    shoal_nid nid;
    enum shoal_err err = sh_node_force(cmd->words[0], cmd->options.cluster, &nid, detail);
    if (err == SHOAL_ENONAME)
        return sh_cmd_fail_hint(cmd, err, detail,
                                "name the data_dir of a superpeer that was stopped or killed");
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "%s", detail);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_bool(root, "forced", true);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "Superpeer %u is the only one of its cluster now. Start it on this folder as before; "
            "`shoal metadata` then shows what its shards go on from. Start other superpeers with "
            "empty folders and its address. Never start the former ones on their old folders.\n",
            (unsigned)nid.v);
    return SH_EXIT_OK;
}
