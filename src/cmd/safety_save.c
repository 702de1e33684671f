/* shoal backup save.
 *
 * A peer's chunks are of one moment (store/cut.h). A chunk that moves from one peer to another between their moments may be in neither's: so each peer
 * counts the chunks that come to it, and its file holds only while the count, in the same process, is what it was before the moment. When a round
 * finds all files so, each chunk that was there all the time is in one at least; if in several, the one with the latest moment has it last. */
#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/assert.h"
#include "client/client.h"
#include "cmd/process_int.h"
#include "cmd/safety_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"
#include "shoal/names.h"

#define ROUNDS_MAX 10 /* in which some peer's chunks are copied once more */
#define TRIES_MAX 3   /* of a peer with more changes than it can keep */
#define GO_ON_HINT "run it again: it goes on where it ended, and what is complete stays"

struct save {
    struct sh_safety_run run;
    uint64_t ordinal; /* of the last file */
    unsigned kept;    /* files that an earlier run has left */
};

/* --- Names --------------------------------------------------------------------------------------- */

struct names {
    struct sh_copy_writer writer;
    uint8_t block[SH_SAVES_BLOCK_BYTES];
    struct sh_writer w;
    uint64_t count, bytes;
    enum shoal_err err;
};

static void names_flush(struct names *names)
{
    size_t size = (size_t)(names->w.at - names->block);
    if (size && !names->err)
        names->err = sh_copy_write(&names->writer, sh_bytes_make(names->block, size));
    names->w = sh_writer_make(names->block, sizeof names->block);
}

static bool on_name(void *arg, const char *name, shoal_cid cid)
{
    struct names *names = arg;
    size_t size = strlen(name);
    SH_ASSERT(size && size <= SHOAL_NAME_MAX);
    if ((size_t)(names->w.end - names->w.at) < 9 + size)
        names_flush(names);
    sh_put64(&names->w, cid.v);
    sh_put8(&names->w, (uint8_t)size);
    sh_put_raw(&names->w, sh_bytes_make(name, size));
    names->count++;
    names->bytes += size;
    return !names->err;
}

static struct sh_copy_head head_of(const struct save *save, enum sh_copy_kind kind, shoal_nid node)
{
    const struct sh_copy_manifest *manifest = &save->run.folder.manifest;
    struct sh_copy_head head = {.kind = kind,
                                .node = node,
                                .copy = manifest->copy,
                                .ordinal = save->ordinal,
                                .seconds = (uint64_t)time(NULL)};
    memcpy(head.cluster, manifest->cluster, sizeof head.cluster);
    return head;
}

static enum shoal_err names_write(struct save *save, struct names *names)
{
    char path[SH_COPY_PATH_MAX];
    struct sh_copy_head head = head_of(save, SH_COPY_NAMES, SHOAL_NID_NONE);
    shoal *store = save->run.cmd->store;
    sh_copy_path(&save->run.folder, SHOAL_NID_NONE, path);
    enum shoal_err err = sh_copy_write_begin(&names->writer, path, &head);
    if (err)
        return sh_safety_note(&save->run, err, "%s", path);
    names->w = sh_writer_make(names->block, sizeof names->block);
    err = shoal_name_list(store, "", on_name, names);
    if (err) {
        sh_copy_write_drop(&names->writer);
        return sh_safety_note(&save->run, err, "names: %s", shoal_error_detail());
    }
    names_flush(names);
    err = names->err;
    if (err)
        sh_copy_write_drop(&names->writer);
    else
        err = sh_copy_write_end(&names->writer, names->count, names->bytes);
    return err ? sh_safety_note(&save->run, err, "%s", path) : SHOAL_OK;
}

/* Whether a file that an earlier run has left is to be written anew. */
static bool is_to_be_written(enum shoal_err err)
{
    return err == SHOAL_ENONAME || err == SHOAL_ECORRUPT || err == SHOAL_ETRUNCATED ||
           err == SHOAL_EPARSE || err == SHOAL_EDIFFERS;
}

/* All names, unless an earlier run has them: before any chunk, so a name's chunk is in the copy, if it was not removed. */
static enum shoal_err names_save(struct save *save)
{
    struct sh_copy_sums sums;
    enum shoal_err err =
        sh_safety_file_read(&save->run, SHOAL_NID_NONE, "names", NULL, NULL, NULL, &sums);
    if (is_to_be_written(err)) {
        struct names *names = calloc(1, sizeof *names);
        if (!names)
            return SHOAL_ENOMEM;
        err = names_write(save, names);
        free(names);
        if (!err)
            err = sh_safety_file_read(&save->run, SHOAL_NID_NONE, "names", NULL, NULL, NULL, &sums);
    }
    if (!err)
        save->run.folder.manifest.names = sums.records;
    return err;
}

/* --- A peer's chunks ----------------------------------------------------------------------------- */

/* A peer's file as it is on the disk. */
static enum shoal_err piece_add(struct save *save, shoal_nid node, const char *phase)
{
    struct sh_copy_head head;
    struct sh_copy_sums sums;
    enum shoal_err err = sh_safety_file_read(&save->run, node, phase, NULL, NULL, &head, &sums);
    if (err)
        return err;
    if (head.ordinal > save->ordinal)
        save->ordinal = head.ordinal;
    const struct sh_copy_piece piece = {.node = node,
                                        .ordinal = head.ordinal,
                                        .chunks = sums.records,
                                        .payload_bytes = sums.payload_bytes,
                                        .file_bytes = sums.file_bytes,
                                        .instance = head.instance,
                                        .arrivals = head.arrivals};
    return sh_copy_piece_set(&save->run.folder.manifest, &piece);
}

/* Writes the blocks of a copy, of which the first one has been read, to the last. */
static enum shoal_err blocks_write(struct save *save, struct sh_client_save *from,
                                   struct sh_copy_writer *writer, struct sh_saves_block *head,
                                   struct sh_bytes records, uint8_t *answer)
{
    char phase[16];
    snprintf(phase, sizeof phase, "node %u", from->node.v);
    for (;;) {
        enum shoal_err err = SHOAL_OK;
        if (records.size)
            err = sh_copy_write(writer, records);
        free(answer);
        if (err)
            return sh_safety_note(&save->run, err, "%s", writer->path);
        if (head->is_last)
            return SHOAL_OK;
        if (!sh_store_progress(&save->run.progress, phase, head->payload_bytes, head->all_bytes))
            return sh_safety_note(&save->run, SHOAL_ECANCELED, "node %u", from->node.v);
        err = sh_client_save_read(from, head, &answer, &records);
        if (err)
            return sh_safety_note_node(&save->run, err, from->node);
    }
}

static enum shoal_err piece_write(struct save *save, struct sh_client_save *from)
{
    char path[SH_COPY_PATH_MAX];
    struct sh_saves_block block;
    struct sh_copy_writer writer;
    struct sh_bytes records;
    uint8_t *answer;
    enum shoal_err err = sh_client_save_read(from, &block, &answer, &records);
    if (err)
        return sh_safety_note_node(&save->run, err, from->node);
    save->ordinal++;
    struct sh_copy_head head = head_of(save, SH_COPY_CHUNKS, from->node);
    head.instance = block.instance;
    head.arrivals = block.arrivals;
    sh_copy_path(&save->run.folder, from->node, path);
    err = sh_copy_write_begin(&writer, path, &head);
    if (err) {
        free(answer);
        return sh_safety_note(&save->run, err, "%s", path);
    }
    err = blocks_write(save, from, &writer, &block, records, answer);
    if (err) {
        sh_copy_write_drop(&writer);
        return err;
    }
    err = sh_copy_write_end(&writer, block.chunks, block.payload_bytes);
    return err ? sh_safety_note(&save->run, err, "%s", path) : SHOAL_OK;
}

/* Copies a peer's chunks, and reads the file again. */
static enum shoal_err piece_save(struct save *save, shoal_nid node)
{
    struct sh_client_save from;
    enum shoal_err err = SHOAL_ELIMIT;
    /* ENONAME: the connection was lost, and the copy with it. */
    for (unsigned i = 0; (err == SHOAL_ELIMIT || err == SHOAL_ENONAME) && i < TRIES_MAX; i++) {
        err = sh_client_save_begin(save->run.cmd->store, node, &from);
        if (err)
            return sh_safety_note_node(&save->run, err, node);
        err = piece_write(save, &from);
        sh_client_save_end(&from);
    }
    if (err == SHOAL_ELIMIT) {
        save->run.hint =
            "save when less is written, or from a machine with a faster network and disk";
        return sh_safety_note(&save->run, err,
                              "node %u: more was changed than the node keeps until it is copied",
                              node.v);
    }
    if (err)
        return err;
    err = piece_add(save, node, "check");
    if (!err)
        err = sh_copy_folder_sync(&save->run.folder);
    return err;
}

/* Takes over what an earlier run has left of this copy. */
static enum shoal_err pieces_keep(struct save *save)
{
    DIR *dir = opendir(save->run.folder.path);
    enum shoal_err err = dir ? SHOAL_OK : SHOAL_EIO;
    for (struct dirent *entry; !err && (entry = readdir(dir));) {
        unsigned node;
        int used = 0;
        if (sscanf(entry->d_name, "node-%5u.copy%n", &node, &used) != 1 || !used ||
            entry->d_name[used] || node == 0 || node > UINT16_MAX)
            continue;
        err = piece_add(save, (shoal_nid){(uint16_t)node}, "check");
        save->kept += !err;
        if (is_to_be_written(err))
            err = SHOAL_OK;
    }
    if (dir)
        (void)closedir(dir);
    return err;
}

/* --- All peers ----------------------------------------------------------------------------------- */

/* Whether a peer's file holds. */
static enum shoal_err piece_check(struct save *save, shoal_nid node, bool *holds_out)
{
    const struct sh_copy_piece *piece = sh_copy_piece_find(&save->run.folder.manifest, node);
    uint64_t instance, arrivals;
    *holds_out = false;
    if (!piece)
        return SHOAL_OK;
    enum shoal_err err = sh_client_arrivals(save->run.cmd->store, node, &instance, &arrivals);
    if (err)
        return sh_safety_note_node(&save->run, err, node);
    *holds_out = piece->instance == instance && piece->arrivals == arrivals;
    return SHOAL_OK;
}

static enum shoal_err failed_refuse(struct save *save, const struct shoal_node *node)
{
    bool may_return = node->state == SHOAL_NODE_FAILED || node->state == SHOAL_NODE_AWAY;
    if (!may_return || save->run.cmd->flags.partial ||
        sh_copy_piece_find(&save->run.folder.manifest, node->nid))
        return SHOAL_OK;
    save->run.hint =
        "start it again, or leave out its chunks with --partial; if it is gone for good, "
        "`shoal node forget` has the cluster forget it";
    return sh_safety_note(&save->run, SHOAL_EFAILED, "node %u: its chunks would be missing",
                          node->nid.v);
}

/* Copies the chunks of each peer that is up and has no file that holds. *is_more_out: there was one. */
static enum shoal_err round_run(struct save *save, const struct shoal_node *nodes, size_t count,
                                bool *is_more_out)
{
    enum shoal_err err = SHOAL_OK;
    *is_more_out = false;
    for (size_t i = 0; !err && i < count; i++) {
        bool holds = true;
        if (nodes[i].role != SHOAL_PEER)
            continue;
        err = failed_refuse(save, &nodes[i]);
        if (!err && nodes[i].state == SHOAL_NODE_UP)
            err = piece_check(save, nodes[i].nid, &holds);
        if (!err && !holds)
            err = piece_save(save, nodes[i].nid);
        *is_more_out |= !holds;
    }
    return err;
}

static enum shoal_err nodes_get(struct save *save, struct shoal_node **nodes_out, size_t *count_out)
{
    shoal *store = save->run.cmd->store;
    for (size_t room = 64;; room = *count_out) {
        struct shoal_node *nodes = calloc(room, sizeof *nodes);
        if (!nodes)
            return SHOAL_ENOMEM;
        enum shoal_err err = shoal_nodes(store, nodes, room, count_out);
        if (!err && *count_out <= room) {
            *nodes_out = nodes;
            return SHOAL_OK;
        }
        free(nodes);
        if (err)
            return sh_safety_note(&save->run, err, "%s", shoal_error_detail());
    }
}

static enum shoal_err peers_save(struct save *save)
{
    for (unsigned i = 0; i < ROUNDS_MAX; i++) {
        struct shoal_node *nodes = NULL;
        size_t count = 0;
        bool is_more;
        enum shoal_err err = nodes_get(save, &nodes, &count);
        if (err)
            return err;
        err = round_run(save, nodes, count, &is_more);
        free(nodes);
        if (err || !is_more)
            return err;
    }
    save->run.hint = "save when no chunks move: `shoal migrate`, `shoal drain`, restores";
    return sh_safety_note(&save->run, SHOAL_EBUSY, "chunks move from node to node all the time");
}

/* --- The command --------------------------------------------------------------------------------- */

static enum shoal_err folder_check(struct save *save)
{
    struct sh_copy_folder *folder = &save->run.folder;
    const char *cluster = save->run.cmd->options.cluster;
    uint64_t copy;
    if (folder->is_complete) {
        save->run.hint = "name a new folder";
        return sh_safety_note(&save->run, SHOAL_EEXIST, "%s has a complete safety copy",
                              folder->path);
    }
    if (folder->has_begun && strcmp(folder->manifest.cluster, cluster) != 0) {
        save->run.hint = "name a new folder";
        return sh_safety_note(&save->run, SHOAL_ECLUSTER,
                              "%s has a safety copy of the cluster \"%s\", not of \"%s\"",
                              folder->path, folder->manifest.cluster, cluster);
    }
    if (folder->has_begun)
        return SHOAL_OK;
    if (strlen(cluster) >= SH_COPY_CLUSTER_MAX)
        return sh_safety_note(&save->run, SHOAL_EINVAL, "the cluster's name is too long");
    if (getrandom(&copy, sizeof copy, 0) != sizeof copy)
        return sh_safety_note(&save->run, SHOAL_EIO, "getrandom");
    enum shoal_err err = sh_copy_folder_begin(folder, cluster, copy >> 1);
    return err ? sh_safety_note(&save->run, err, "%s", folder->fault) : SHOAL_OK;
}

static int saved_answer(const struct save *save, double seconds)
{
    struct sh_cmd *cmd = save->run.cmd;
    const struct sh_copy_manifest *manifest = &save->run.folder.manifest;
    const struct sh_copy_totals sums = sh_copy_totals(manifest);
    char payload_text[SH_SIZE_TEXT_MAX], file_text[SH_SIZE_TEXT_MAX];
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "dir", cmd->words[0]);
        sh_json_set_u64(root, "nodes", manifest->count);
        sh_json_set_u64(root, "kept", save->kept);
        sh_json_set_u64(root, "chunks", sums.chunks);
        sh_json_set_u64(root, "payload_bytes", sums.payload_bytes);
        sh_json_set_u64(root, "file_bytes", sums.file_bytes);
        sh_json_set_u64(root, "names", manifest->names);
        sh_json_set_f64(root, "seconds", seconds);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "Saved %" PRIu64 " chunks (%s) of %zu nodes and %" PRIu64
            " names to %s (%s) in %.3f s.\n",
            sums.chunks, sh_size_format(sums.payload_bytes, payload_text), manifest->count,
            manifest->names, cmd->words[0], sh_size_format(sums.file_bytes, file_text), seconds);
    return SH_EXIT_OK;
}

int sh_cmd_run_backup_save(struct sh_cmd *cmd)
{
    struct save save = {.ordinal = 0};
    uint64_t begun_ms = sh_process_now_ms();
    int status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = sh_safety_open(&save.run, cmd, true);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = folder_check(&save);
    if (err)
        return sh_safety_fail(&save.run, err);
    sh_store_watch(&save.run.progress, "saving");
    err = names_save(&save);
    if (!err)
        err = pieces_keep(&save);
    if (!err)
        err = peers_save(&save);
    if (!err) {
        err = sh_copy_folder_complete(&save.run.folder);
        if (err)
            sh_safety_note(&save.run, err, "%s", save.run.folder.fault);
    }
    if (err) {
        save.run.hint = save.run.hint ? save.run.hint : GO_ON_HINT;
        return sh_safety_fail(&save.run, err);
    }
    sh_progress_end(&save.run.progress);
    return sh_safety_close(&save.run,
                           saved_answer(&save, (double)(sh_process_now_ms() - begun_ms) / 1e3));
}
