/* shoal store dump, load; store_analyze.c has analyze. */
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "cmd/process_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    interrupted = number;
}

/* An interrupt cancels what the node does for us; the second one ends the command at once. */
static void interrupts_take(void)
{
    struct sigaction action = {.sa_handler = note_interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool sh_store_progress(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    bool is_bytes = strcmp(phase, "analyze") != 0 && strncmp(phase, "move", 4) != 0 &&
                    strcmp(phase, "segments") != 0;
    sh_progress_show(arg, phase, done, all, is_bytes, sh_process_now_ms());
    return !interrupted;
}

void sh_store_watch(struct sh_progress *progress, const char *what)
{
    interrupts_take();
    sh_progress_begin(progress, stderr, isatty(STDERR_FILENO), what, sh_process_now_ms());
}

int sh_store_open(struct sh_cmd *cmd, const char *what, struct sh_progress *progress,
                  shoal_nid *nid_out)
{
    int status = sh_cmd_open_for_node(cmd, nid_out);
    if (status != SH_EXIT_OK)
        return status;
    sh_store_watch(progress, what);
    return SH_EXIT_OK;
}

int sh_store_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid)
{
    const char *detail = shoal_error_detail();
    char text[512], usage[64];
    snprintf(usage, sizeof usage, "see `shoal %s --help`", cmd->command->name);
    if (strncmp(detail, "node ", 5) == 0)
        snprintf(text, sizeof text, "%s", detail);
    else
        snprintf(text, sizeof text, "node %u%s%s", nid.v, *detail ? ": " : "", detail);
    switch (err) {
    case SHOAL_ENONAME:
        return sh_cmd_fail_hint(cmd, err, text,
                                "dumps are the files NAME.dump in the node's data_dir");
    case SHOAL_EEXIST:
        return sh_cmd_fail_hint(cmd, err, text,
                                "load into a node that has not handed out these IDs, such as a "
                                "new one, or remove the chunks first");
    case SHOAL_EINVAL:
        if (strncmp(cmd->command->name, "store", 5) != 0)
            return sh_cmd_fail_node(cmd, err, nid);
        return sh_cmd_fail_hint(
            cmd, err, text,
            strstr(detail, "another node") ? "--rename gives all chunks the peer's own ID" : usage);
    default:
        return sh_cmd_fail_node(cmd, err, nid);
    }
}

static int sums_report(struct sh_cmd *cmd, shoal_nid nid, const struct shoal_dump_sums *sums,
                       bool is_dump, double seconds)
{
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "nid", nid.v);
        sh_json_set_text(root, "name", cmd->words[1]);
        sh_json_set_u64(root, "chunks", sums->chunks);
        sh_json_set_u64(root, "payload_bytes", sums->payload_bytes);
        sh_json_set_u64(root, "file_bytes", sums->file_bytes);
        sh_json_set_f64(root, "seconds", seconds);
        return sh_cmd_answer(cmd, root);
    }
    char payload[SH_SIZE_TEXT_MAX], file[SH_SIZE_TEXT_MAX];
    fprintf(cmd->out, "%s %" PRIu64 " chunks (%s) %s %s.dump (%s) %s node %u in %.3f s.\n",
            is_dump ? "Dumped" : "Loaded", sums->chunks,
            sh_size_format(sums->payload_bytes, payload), is_dump ? "to" : "from", cmd->words[1],
            sh_size_format(sums->file_bytes, file), is_dump ? "on" : "into", nid.v, seconds);
    return SH_EXIT_OK;
}

static int dump_or_load(struct sh_cmd *cmd, bool is_dump)
{
    struct sh_progress progress;
    struct shoal_dump_sums sums;
    shoal_nid nid;
    int status = sh_store_open(cmd, is_dump ? "dumping" : "loading", &progress, &nid);
    if (status != SH_EXIT_OK)
        return status;
    uint64_t begun_ms = sh_process_now_ms();
    enum shoal_err err =
        is_dump ? shoal_dump(cmd->store, nid, cmd->words[1], sh_store_progress, &progress, &sums)
                : shoal_load(cmd->store, nid, cmd->words[1],
                             cmd->flags.rename ? SHOAL_LOAD_RENAMED : SHOAL_LOAD_SAME,
                             sh_store_progress, &progress, &sums);
    sh_progress_end(&progress);
    if (err != SHOAL_OK)
        return sh_store_fail(cmd, err, nid);
    return sums_report(cmd, nid, &sums, is_dump, (double)(sh_process_now_ms() - begun_ms) / 1e3);
}

int sh_cmd_run_store_dump(struct sh_cmd *cmd)
{
    return dump_or_load(cmd, true);
}

int sh_cmd_run_store_load(struct sh_cmd *cmd)
{
    return dump_or_load(cmd, false);
}
