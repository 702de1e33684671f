/* shoal down: stops the cluster that `shoal up` started, and removes what it made. */
#include <inttypes.h>
#include <unistd.h>

#include "cmd/command_int.h"
#include "cmd/process_int.h"
#include "cmd/state_int.h"

#define STOP_DEADLINE_MS 30000

static int report(struct sh_cmd *cmd, const struct sh_state *state, size_t running, size_t forced)
{
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nodes", state->count);
        sh_json_set_u64(root, "stopped", running - forced);
        sh_json_set_u64(root, "killed", forced);
        sh_json_set_u64(root, "were_dead", state->count - running);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out, "Stopped %zu of %zu nodes", running - forced, state->count);
    if (forced)
        fprintf(cmd->out, "; %zu had to be killed", forced);
    if (running < state->count)
        fprintf(cmd->out, "; %zu had ended before", state->count - running);
    fputs(".\n", cmd->out);
    return SH_EXIT_OK;
}

int sh_cmd_run_down(struct sh_cmd *cmd)
{
    char folder[SH_STATE_PATH_MAX], detail[SH_STATE_TEXT_MAX] = "";
    struct sh_state state = {0};
    int lock = -1;
    enum shoal_err err = sh_state_folder(cmd->flags.dir, folder, detail);
    if (err == SHOAL_OK) {
        err = sh_state_read(folder, &state, detail);
        if (err == SHOAL_ENONAME)
            return sh_cmd_fail_hint(cmd, SHOAL_EUNREACHABLE, detail,
                                    "name the folder that was given to `shoal up` with --dir");
        sh_state_free(&state);
    }
    if (err == SHOAL_OK)
        err = sh_state_lock(folder, &lock, detail);
    /* Read again under the lock: an `up` or a `down` may have been at work meanwhile. */
    if (err == SHOAL_OK)
        err = sh_state_read(folder, &state, detail);
    if (err != SHOAL_OK) {
        if (lock >= 0)
            close(lock);
        return sh_cmd_fail(cmd, err, "%s", detail);
    }
    size_t running = sh_state_running(&state);
    size_t forced = sh_state_stop(&state, STOP_DEADLINE_MS);
    size_t left = sh_state_running(&state);
    int status;
    if (left > 0) {
        status = sh_cmd_fail(cmd, SHOAL_EBUSY, "%zu processes of %s can't be ended", left, folder);
    } else {
        sh_state_clear(folder, &state);
        status = report(cmd, &state, running, forced);
    }
    close(lock);
    sh_state_free(&state);
    return status;
}
