/* shoal backup verify, and what save and restore share with it. */
#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#include "cmd/safety_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"

enum shoal_err sh_safety_note(struct sh_safety_run *run, enum shoal_err err, const char *format,
                              ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(run->detail, sizeof run->detail, format, args);
    va_end(args);
    return err;
}

enum shoal_err sh_safety_note_node(struct sh_safety_run *run, enum shoal_err err, shoal_nid node)
{
    const char *detail = shoal_error_detail();
    if (strncmp(detail, "node ", 5) == 0)
        return sh_safety_note(run, err, "%s", detail);
    return sh_safety_note(run, err, "node %u%s%s", node.v, *detail ? ": " : "", detail);
}

int sh_safety_close(struct sh_safety_run *run, int status)
{
    sh_progress_end(&run->progress);
    sh_copy_folder_close(&run->folder);
    return status;
}

int sh_safety_fail(struct sh_safety_run *run, enum shoal_err err)
{
    sh_progress_end(&run->progress);
    int status = run->hint ? sh_cmd_fail_hint(run->cmd, err, run->detail, run->hint)
                           : sh_cmd_fail(run->cmd, err, "%s", run->detail);
    return sh_safety_close(run, status);
}

int sh_safety_open(struct sh_safety_run *run, struct sh_cmd *cmd, bool is_new)
{
    const char *path = cmd->words[0];
    *run = (struct sh_safety_run){.cmd = cmd};
    enum shoal_err err = sh_copy_folder_open(&run->folder, path, is_new);
    if (!err && !is_new && !run->folder.is_complete) {
        run->hint = "run `shoal backup save` with this folder again: it goes on where it ended";
        err = sh_safety_note(run, SHOAL_ETRUNCATED, "%s has a safety copy that is not complete",
                             path);
    } else if (err) {
        sh_safety_note(run, err, "%s", *run->folder.fault ? run->folder.fault : path);
        if (err == SHOAL_EEXIST || err == SHOAL_ENONAME)
            run->hint = is_new ? "name a new folder" : "check the path of the folder";
    }
    return err ? sh_safety_fail(run, err) : SH_EXIT_OK;
}

/* --- Reading ------------------------------------------------------------------------------------ */

static enum shoal_err file_note(struct sh_safety_run *run, enum shoal_err err, const char *path,
                                const struct sh_copy_reader *reader)
{
    if (err == SHOAL_ENONAME)
        return sh_safety_note(run, err, "%s is missing", path);
    return sh_safety_note(run, err, "%s at byte %" PRIu64 "%s%s", path, reader->offset,
                          *reader->fault ? ": " : "", reader->fault);
}

static enum shoal_err blocks_read(struct sh_safety_run *run, struct sh_copy_reader *reader,
                                  const char *phase, uint64_t all_bytes, sh_safety_block each,
                                  void *arg, const char *path)
{
    for (;;) {
        struct sh_bytes payload;
        enum shoal_err err = sh_copy_read(reader, &payload);
        if (err)
            return file_note(run, err, path, reader);
        if (!payload.size)
            return SHOAL_OK;
        if (each)
            err = each(arg, reader, payload);
        if (err)
            return err;
        if (!sh_store_progress(&run->progress, phase, reader->sums.file_bytes, all_bytes))
            return sh_safety_note(run, SHOAL_ECANCELED, "%s", run->folder.path);
    }
}

/* How long a file is, for the progress; 0: not known. */
static uint64_t bytes_of(FILE *file)
{
    long size = fseek(file, 0, SEEK_END) ? -1 : ftell(file);
    return size > 0 ? (uint64_t)size : 0;
}

enum shoal_err sh_safety_file_read(struct sh_safety_run *run, shoal_nid node, const char *phase,
                                   sh_safety_block each, void *arg, struct sh_copy_head *head_out,
                                   struct sh_copy_sums *sums_out)
{
    char path[SH_COPY_PATH_MAX];
    struct sh_copy_reader reader;
    sh_copy_path(&run->folder, node, path);
    FILE *file = fopen(path, "rb");
    uint64_t all_bytes = file ? bytes_of(file) : 0;
    if (file)
        (void)fclose(file);
    enum shoal_err err = sh_copy_read_begin(&reader, path);
    if (err)
        return file_note(run, err, path, &reader);
    if (reader.head.node.v != node.v || reader.head.copy != run->folder.manifest.copy ||
        strcmp(reader.head.cluster, run->folder.manifest.cluster) != 0)
        err = sh_safety_note(run, SHOAL_EDIFFERS, "%s is another safety copy's file", path);
    else
        err = blocks_read(run, &reader, phase, all_bytes, each, arg, path);
    if (!err && head_out)
        *head_out = reader.head;
    if (!err && sums_out)
        *sums_out = reader.sums;
    sh_copy_read_end(&reader);
    return err;
}

enum shoal_err sh_safety_piece_read(struct sh_safety_run *run, const struct sh_copy_piece *piece,
                                    const char *phase, sh_safety_block each, void *arg)
{
    struct sh_copy_head head;
    struct sh_copy_sums sums;
    shoal_nid node = piece ? piece->node : SHOAL_NID_NONE;
    enum shoal_err err = sh_safety_file_read(run, node, phase, each, arg, &head, &sums);
    if (err)
        return err;
    bool is_same = piece ? head.ordinal == piece->ordinal && sums.records == piece->chunks &&
                               sums.payload_bytes == piece->payload_bytes &&
                               sums.file_bytes == piece->file_bytes
                         : sums.records == run->folder.manifest.names;
    if (is_same)
        return SHOAL_OK;
    char path[SH_COPY_PATH_MAX];
    sh_copy_path(&run->folder, node, path);
    return sh_safety_note(run, SHOAL_ECORRUPT, "%s is not the file that manifest.json names", path);
}

/* --- Verify ------------------------------------------------------------------------------------- */

static int verified_answer(struct sh_cmd *cmd, const struct sh_copy_manifest *manifest)
{
    const struct sh_copy_totals sums = sh_copy_totals(manifest);
    char payload_text[SH_SIZE_TEXT_MAX], file_text[SH_SIZE_TEXT_MAX];
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "dir", cmd->words[0]);
        sh_json_set_text(root, "cluster", manifest->cluster);
        sh_json_set_u64(root, "begun", manifest->begun);
        sh_json_set_u64(root, "ended", manifest->ended);
        sh_json_set_u64(root, "nodes", manifest->count);
        sh_json_set_u64(root, "chunks", sums.chunks);
        sh_json_set_u64(root, "payload_bytes", sums.payload_bytes);
        sh_json_set_u64(root, "file_bytes", sums.file_bytes);
        sh_json_set_u64(root, "names", manifest->names);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "Verified %" PRIu64 " chunks (%s) of %zu nodes and %" PRIu64 " names in %s (%s).\n",
            sums.chunks, sh_size_format(sums.payload_bytes, payload_text), manifest->count,
            manifest->names, cmd->words[0], sh_size_format(sums.file_bytes, file_text));
    return SH_EXIT_OK;
}

int sh_cmd_run_backup_verify(struct sh_cmd *cmd)
{
    struct sh_safety_run run;
    int status = sh_safety_open(&run, cmd, false);
    if (status != SH_EXIT_OK)
        return status;
    sh_store_watch(&run.progress, "verifying");
    run.hint = "take another copy of the file, or another safety copy";
    enum shoal_err err = sh_safety_piece_read(&run, NULL, "names", NULL, NULL);
    for (size_t i = 0; !err && i < run.folder.manifest.count; i++) {
        char phase[16];
        snprintf(phase, sizeof phase, "node %u", run.folder.manifest.pieces[i].node.v);
        err = sh_safety_piece_read(&run, &run.folder.manifest.pieces[i], phase, NULL, NULL);
    }
    if (err)
        return sh_safety_fail(&run, err);
    sh_progress_end(&run.progress);
    return sh_safety_close(&run, verified_answer(cmd, &run.folder.manifest));
}
