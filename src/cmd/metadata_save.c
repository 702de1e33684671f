/* shoal metadata save, shoal metadata restore. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/metadata_file_int.h"
#include "metadata/metadata_barriers.h"
#include "ring/arcs.h"
#include "shoal/names.h"

/* What a file holds that is restored. */
struct contents {
    uint64_t names, barriers, scratch;
};

static struct contents contents_count(const struct sh_metadata *metadata)
{
    struct contents contents = {.names = 0};
    struct sh_bytes all = {NULL, 0}, key, value, after;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        contents.names += sh_metadata_measure(metadata, i).names;
        for (after = all; sh_metadata_scratch_next(metadata, i, all, after, &key, &value);
             after = key)
            contents.scratch++;
        for (size_t at = 0; sh_metadata_barrier_at(metadata, i, at); at++)
            contents.barriers++;
    }
    return contents;
}

static int contents_answer(struct sh_cmd *cmd, const char *verb, const char *path,
                           const struct contents *contents)
{
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "file", path);
        sh_json_set_u64(root, "names", contents->names);
        sh_json_set_u64(root, "barriers", contents->barriers);
        sh_json_set_u64(root, "scratch", contents->scratch);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "%s %" PRIu64 " names, %" PRIu64 " barriers and %" PRIu64 " scratch values.\n", verb,
            contents->names, contents->barriers, contents->scratch);
    return SH_EXIT_OK;
}

static int file_fail(struct sh_cmd *cmd, enum shoal_err err, const char *path)
{
    if (err == SHOAL_ENONAME)
        return sh_cmd_fail_hint(cmd, err, path, "check the path of the file");
    if (err == SHOAL_EPARSE)
        return sh_cmd_fail(cmd, err, "%s is not a file of `shoal metadata save`", path);
    return sh_cmd_fail(cmd, err, "%s", path);
}

/* --- save ------------------------------------------------------------------------------------ */

static enum shoal_err shards_save(struct sh_cmd *cmd, struct sh_metadata_writer *writer)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        uint8_t *bytes;
        size_t size;
        err = sh_client_shard_save(cmd->store, i, &bytes, &size);
        if (err)
            break;
        err = sh_metadata_file_shard(writer, i, sh_bytes_make(bytes, size));
        free(bytes);
    }
    return err;
}

int sh_cmd_run_metadata_save(struct sh_cmd *cmd)
{
    const char *path = cmd->words[0];
    struct sh_metadata_writer writer;
    struct sh_metadata_saved saved;
    struct shoal_node *nodes;
    size_t count;
    int status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = sh_cmd_nodes(cmd, &nodes, &count);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_metadata_file_begin(&writer, path, cmd->options.cluster, nodes, count);
    free(nodes);
    if (!err)
        err = shards_save(cmd, &writer);
    enum shoal_err ended = sh_metadata_file_end(&writer, !err);
    err = err ? err : ended;
    if (!err)
        err = sh_metadata_file_read(path, &saved); /* what can't be read is no backup */
    if (err)
        return sh_cmd_fail(cmd, err, "%s", *shoal_error_detail() ? shoal_error_detail() : path);
    struct contents contents = contents_count(saved.metadata);
    sh_metadata_saved_free(&saved);
    return contents_answer(cmd, "Saved", path, &contents);
}

/* --- restore --------------------------------------------------------------------------------- */

static bool name_is_there(void *arg, const char *name, shoal_cid cid)
{
    (void)name;
    (void)cid;
    *(bool *)arg = true;
    return false;
}

static bool scratch_is_there(void *arg, const char *key, uint32_t size)
{
    (void)key;
    (void)size;
    *(bool *)arg = true;
    return false;
}

static bool barrier_is_there(void *arg, const struct shoal_barrier_info *info)
{
    (void)info;
    *(bool *)arg = true;
    return false;
}

/* EEXIST: the cluster has names, barriers or scratch values already. */
static enum shoal_err empty_check(shoal *store)
{
    bool is_any = false;
    enum shoal_err err = shoal_name_list(store, "", name_is_there, &is_any);
    if (!err && !is_any)
        err = shoal_barrier_list(store, barrier_is_there, &is_any);
    if (!err && !is_any)
        err = shoal_scratch_list(store, "", scratch_is_there, &is_any);
    return err ? err : is_any ? SHOAL_EEXIST : SHOAL_OK;
}

static enum shoal_err names_restore(shoal *store, const struct sh_metadata *metadata)
{
    struct sh_name_giver *giver = calloc(1, sizeof *giver);
    enum shoal_err err = SHOAL_OK;
    if (!giver)
        return SHOAL_ENOMEM;
    giver->store = store;
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        struct sh_bytes all = {NULL, 0}, name, after = all;
        shoal_cid cid;
        while (!err && sh_metadata_name_next(metadata, i, all, after, &name, &cid)) {
            err = sh_name_give(giver, name, cid);
            after = name;
        }
    }
    enum shoal_err last = sh_name_give_end(giver);
    err = err ? err : last;
    if (!err && giver->taken)
        err = SHOAL_EEXIST; /* somebody gives names beside this */
    free(giver);
    return err;
}

static enum shoal_err others_restore(shoal *store, const struct sh_metadata *metadata)
{
    enum shoal_err err = SHOAL_OK;
    const struct sh_barrier *barrier;
    for (unsigned i = 0; !err && i < SH_SHARDS; i++) {
        struct sh_bytes all = {NULL, 0}, key, value, after = all;
        char text[SHOAL_NAME_MAX + 1];
        while (!err && sh_metadata_scratch_next(metadata, i, all, after, &key, &value)) {
            memcpy(text, key.at, key.size);
            text[key.size] = '\0';
            err = shoal_scratch_put(store, text, value.at, (uint32_t)value.size);
            after = key;
        }
        for (size_t at = 0; !err && (barrier = sh_metadata_barrier_at(metadata, i, at)); at++)
            err = sh_client_barrier_put(store, barrier->id, barrier->size, barrier->flags);
    }
    return err;
}

static int restore(struct sh_cmd *cmd, const char *path, const struct sh_metadata_saved *saved)
{
    if (strcmp(saved->cluster, cmd->options.cluster) != 0)
        return sh_cmd_fail(cmd, SHOAL_ECLUSTER, "%s is of the cluster \"%s\", not of \"%s\"", path,
                           saved->cluster, cmd->options.cluster);
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = empty_check(cmd->store);
    if (err == SHOAL_EEXIST)
        return sh_cmd_fail_hint(cmd, err,
                                "the cluster has names, barriers or scratch values already",
                                "restore into a new cluster, before anybody uses it");
    if (!err)
        err = names_restore(cmd->store, saved->metadata);
    if (!err)
        err = others_restore(cmd->store, saved->metadata);
    if (err)
        return sh_cmd_fail_hint(
            cmd, err,
            *shoal_error_detail() ? shoal_error_detail() : "the cluster did not take all of it",
            "some of it is restored: begin a new cluster, and restore into that");
    struct contents contents = contents_count(saved->metadata);
    return contents_answer(cmd, "Restored", path, &contents);
}

int sh_cmd_run_metadata_restore(struct sh_cmd *cmd)
{
    const char *path = cmd->words[0];
    struct sh_metadata_saved saved;
    enum shoal_err err = sh_metadata_file_read(path, &saved);
    if (err)
        return file_fail(cmd, err, path);
    int status = restore(cmd, path, &saved);
    sh_metadata_saved_free(&saved);
    return status;
}
