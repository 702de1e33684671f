/* The registry's two files. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/superpeer_int.h"

#define DISK_POLL_NS UINT64_C(200000)
#define IMAGE_BYTES_MAX ((uint64_t)16 << 20) /* 57,280 nodes with long addresses take 4.5 MB */

static const char *const names[2] = {"registry.0", "registry.1"};

static bool room_make(struct sh_store_files *files, size_t size)
{
    if (files->image_room >= size)
        return true;
    uint8_t *image = realloc(files->image, size);
    if (!image)
        return false;
    files->image = image;
    files->image_room = size;
    return true;
}

static void note_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

/* Does one operation at start-up, waiting for it. */
static enum shoal_err do_now(struct sh_store_files *files, struct sh_disk_op *op)
{
    bool done = false;
    op->done = note_done;
    op->arg = &done;
    enum shoal_err err = sh_disk_submit(files->disk, op);
    if (err)
        return err;
    while (!done)
        (void)sh_disk_poll(files->disk, true);
    return op->err;
}

/* Reads a file whole into memory of the caller's; *image_out is empty if it is not there. */
static enum shoal_err read_file(struct sh_store_files *files, unsigned which,
                                struct sh_bytes *image_out, bool *is_there_out)
{
    *is_there_out = false;
    enum shoal_err err = sh_disk_open(files->disk, names[which], false, &files->file[which]);
    if (err == SHOAL_ENONAME)
        return SHOAL_OK;
    if (err)
        return err;
    files->is_open[which] = true;
    uint64_t size;
    err = files->disk->ops->size(files->disk, files->file[which], &size);
    if (err)
        return err;
    *is_there_out = true;
    if (!size || size > IMAGE_BYTES_MAX)
        return SHOAL_OK; /* bad, which the check of the image will find */
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return SHOAL_ENOMEM;
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = files->file[which], .data = bytes, .size = size};
    err = do_now(files, &op);
    if (err) {
        free(bytes);
        return err;
    }
    *image_out = sh_bytes_make(bytes, op.done_bytes);
    return SHOAL_OK;
}

static enum shoal_err image_make(struct sh_superpeer *superpeer, size_t *size_out)
{
    struct sh_store_files *files = &superpeer->files;
    size_t size = sh_registry_image_size(superpeer->registry);
    if (!room_make(files, size))
        return SHOAL_ENOMEM;
    struct sh_writer w = sh_writer_make(files->image, size);
    sh_registry_image_put(&w, superpeer->registry, files->sequence + 1);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    *size_out = size;
    return SHOAL_OK;
}

/* Writes and syncs both files anew, one after the other, and the folder: so that from then on a
 * file that is missing means that this was not finished, and nothing was ever promised. */
static enum shoal_err create_files(struct sh_superpeer *superpeer)
{
    struct sh_store_files *files = &superpeer->files;
    for (unsigned i = 0; i < 2; i++) {
        unsigned which = (files->sequence + 1) & 1;
        enum shoal_err err = SHOAL_OK;
        if (!files->is_open[which])
            err = sh_disk_open(files->disk, names[which], true, &files->file[which]);
        if (err)
            return err;
        files->is_open[which] = true;
        size_t size;
        err = image_make(superpeer, &size);
        if (err)
            return err;
        struct sh_disk_op op = {
            .kind = SH_DISK_WRITE, .file = files->file[which], .data = files->image, .size = size};
        err = do_now(files, &op);
        op.kind = SH_DISK_SYNC;
        if (!err)
            err = do_now(files, &op);
        op.kind = SH_DISK_SYNC_DIR;
        if (!err)
            err = do_now(files, &op);
        if (err)
            return err;
        files->sequence++;
    }
    return SHOAL_OK;
}

/* Chooses the newer good one of two images; -1: none is good. EVERSION if one is of the future. */
static enum shoal_err choose(const struct sh_bytes *images, uint64_t *sequence_out, int *which_out)
{
    *which_out = -1;
    for (int i = 0; i < 2; i++) {
        uint64_t sequence;
        enum shoal_err err = sh_registry_image_check(images[i], &sequence);
        if (err == SHOAL_EVERSION)
            return err;
        if (!err && (*which_out < 0 || sequence > *sequence_out)) {
            *which_out = i;
            *sequence_out = sequence;
        }
    }
    return SHOAL_OK;
}

static enum shoal_err load(struct sh_superpeer *superpeer, uint64_t now_ns,
                           const struct sh_bytes *images, const bool *are_there)
{
    struct sh_store_files *files = &superpeer->files;
    int which;
    enum shoal_err err = choose(images, &files->sequence, &which);
    if (!err && which < 0 && are_there[0] && are_there[1])
        err = SHOAL_ECORRUPT;
    if (err) {
        SH_ERROR("cluster",
                 "both copies of the registry are unusable: restore registry.0 or "
                 "registry.1 in data_dir, or remove both to start a new cluster",
                 SH_ERR(err));
        return err;
    }
    if (which < 0) {
        SH_INFO("cluster", "new registry");
        return SHOAL_OK;
    }
    if (!are_there[0] || !are_there[1])
        SH_WARN("cluster", "a copy of the registry is missing; written anew");
    err = sh_registry_image_load(superpeer->registry, now_ns, images[which]);
    if (!err)
        SH_INFO("cluster", "registry loaded", SH_TEXT("file", names[which]),
                SH_U64("nodes", sh_registry_view(superpeer->registry)->count));
    return err;
}

enum shoal_err sh_superpeer_files_open(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_store_files *files = &superpeer->files;
    files->disk = superpeer->env.disk;
    if (!files->disk) {
        SH_INFO("cluster", "no data_dir: the registry is kept in memory only");
        return SHOAL_OK;
    }
    int shared;
    if (!sh_disk_open(files->disk, "raft.log", false, &shared)) {
        files->disk->ops->close(files->disk, shared);
        SH_ERROR("cluster",
                 "data_dir holds the registry of several superpeers (raft.log): name all "
                 "of them in the option superpeers");
        return SHOAL_ECLUSTER;
    }
    struct sh_bytes images[2] = {{NULL, 0}, {NULL, 0}};
    bool are_there[2] = {false, false};
    enum shoal_err err = read_file(files, 0, &images[0], &are_there[0]);
    if (!err)
        err = read_file(files, 1, &images[1], &are_there[1]);
    if (err)
        SH_ERROR("cluster", "registry can't be read", SH_ERR(err));
    if (!err)
        err = load(superpeer, now_ns, images, are_there);
    free((void *)images[0].at);
    free((void *)images[1].at);
    if (err)
        return err;
    err = create_files(superpeer);
    if (err)
        SH_ERROR("cluster", "registry can't be stored", SH_ERR(err));
    files->saved_changes = sh_registry_changes(superpeer->registry);
    return err;
}

void sh_superpeer_files_close(struct sh_superpeer *superpeer)
{
    struct sh_store_files *files = &superpeer->files;
    while (files->saving != SH_SAVE_NONE && sh_disk_poll(files->disk, true))
        continue;
    for (unsigned i = 0; i < 2; i++) {
        if (files->is_open[i])
            files->disk->ops->close(files->disk, files->file[i]);
    }
    free(files->image);
}

static void save_end(struct sh_store_files *files, enum shoal_err err)
{
    if (err)
        SH_ERROR("cluster", "registry not stored; tried again in a second", SH_ERR(err));
    files->saving = SH_SAVE_NONE;
    files->err = err;
    files->is_ended = true;
    if (!err) {
        files->sequence++;
        files->saved_changes = files->saving_changes;
    }
}

static void on_disk(struct sh_disk_op *op)
{
    struct sh_store_files *files = op->arg;
    if (!op->err && files->saving == SH_SAVE_WRITE) {
        files->saving = SH_SAVE_SYNC;
        op->kind = SH_DISK_SYNC;
        enum shoal_err err = sh_disk_submit(files->disk, op);
        if (err)
            save_end(files, err);
        return;
    }
    save_end(files, op->err);
}

static void save_begin(struct sh_superpeer *superpeer)
{
    struct sh_store_files *files = &superpeer->files;
    size_t size;
    enum shoal_err err = image_make(superpeer, &size);
    files->saving_changes = sh_registry_changes(superpeer->registry);
    if (!err) {
        files->op = (struct sh_disk_op){.kind = SH_DISK_WRITE,
                                        .file = files->file[(files->sequence + 1) & 1],
                                        .data = files->image,
                                        .size = size,
                                        .done = on_disk,
                                        .arg = files};
        files->saving = SH_SAVE_WRITE;
        err = sh_disk_submit(files->disk, &files->op);
    }
    if (err)
        save_end(files, err);
}

unsigned sh_superpeer_files_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_store_files *files = &superpeer->files;
    if (!files->disk) {
        files->saved_changes = sh_registry_changes(superpeer->registry);
        return 0;
    }
    unsigned work = 0;
    if (files->saving != SH_SAVE_NONE)
        work += sh_disk_poll(files->disk, false);
    if (files->saving == SH_SAVE_NONE && now_ns >= files->retry_ns &&
        files->saved_changes != sh_registry_changes(superpeer->registry)) {
        save_begin(superpeer);
        work++;
    }
    if (files->is_ended && files->err)
        files->retry_ns = now_ns + SH_SAVE_RETRY_NS;
    return work;
}

uint64_t sh_superpeer_files_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_store_files *files = &superpeer->files;
    if (files->saving != SH_SAVE_NONE)
        return sh_now(&superpeer->env.clock) + DISK_POLL_NS; /* the disk wakes nobody */
    if (files->disk && files->saved_changes != sh_registry_changes(superpeer->registry))
        return files->retry_ns;
    return SH_NEVER;
}
