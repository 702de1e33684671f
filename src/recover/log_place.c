#include "recover/log_place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "log/slot.h"
#include "recover/home_log.h"

#define PART_NAME SH_LOG_NOTE_NAME ".part"

bool sh_log_access_of(const char *word, bool is_at_peers, enum sh_log_access *access_out)
{
    if (strcmp(word, "auto") == 0)
        *access_out = is_at_peers ? SH_LOG_DIRECT : SH_LOG_CACHED;
    else if (strcmp(word, "cached") == 0)
        *access_out = SH_LOG_CACHED;
    else if (strcmp(word, "direct") == 0)
        *access_out = SH_LOG_DIRECT;
    else if (strcmp(word, "raw") == 0)
        *access_out = SH_LOG_RAW;
    else
        return false;
    return true;
}

/* --- The note ---------------------------------------------------------------------------------- */

enum shoal_err sh_log_note_read(struct sh_disk *folder, char path_out[SH_LOG_PATH_MAX])
{
    int file;
    enum shoal_err err = sh_disk_open(folder, SH_LOG_NOTE_NAME, false, &file);
    if (err)
        return err;
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = file, .data = path_out, .size = SH_LOG_PATH_MAX};
    err = sh_disk_do(folder, &op);
    folder->ops->close(folder, file);
    if (err)
        return err;
    bool is_line = op.done_bytes > 1 && path_out[0] == '/' && path_out[op.done_bytes - 1] == '\n';
    if (!is_line || memchr(path_out, '\n', op.done_bytes - 1) ||
        memchr(path_out, '\0', op.done_bytes))
        return SHOAL_ECORRUPT;
    path_out[op.done_bytes - 1] = '\0';
    return SHOAL_OK;
}

/* Makes a new file that has the note; it has its name only when it is on the disk. */
static enum shoal_err note_write(struct sh_disk *folder, const char *path)
{
    char text[SH_LOG_PATH_MAX + 1];
    int file, size = snprintf(text, sizeof text, "%s\n", path);
    SH_ASSERT(size > 1 && size <= SH_LOG_PATH_MAX);
    enum shoal_err err = folder->ops->remove(folder, PART_NAME);
    if (!err || err == SHOAL_ENONAME)
        err = sh_disk_open(folder, PART_NAME, true, &file);
    if (err)
        return err;
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE_SYNC, .file = file, .data = text, .size = (size_t)size};
    err = sh_disk_do(folder, &op);
    if (!err && op.done_bytes != op.size)
        err = SHOAL_ENOSPC;
    if (!err)
        err = folder->ops->rename(folder, PART_NAME, SH_LOG_NOTE_NAME);
    op = (struct sh_disk_op){.kind = SH_DISK_SYNC_DIR, .file = file};
    if (!err)
        err = sh_disk_do(folder, &op);
    folder->ops->close(folder, file);
    return err;
}

enum shoal_err sh_log_place_note(const struct sh_log_place *place, struct sh_disk *folder)
{
    char noted[SH_LOG_PATH_MAX];
    if (place->access != SH_LOG_RAW)
        return SHOAL_OK;
    if (sh_log_note_read(folder, noted) == SHOAL_OK && strcmp(noted, place->path) == 0)
        return SHOAL_OK;
    return note_write(folder, place->path);
}

static bool has_file(struct sh_disk *folder, const char *name)
{
    int file;
    if (sh_disk_open(folder, name, false, &file))
        return false;
    folder->ops->close(folder, file);
    return true;
}

bool sh_log_place_is_used(struct sh_disk *folder)
{
    return has_file(folder, SH_HOME_LOG_NAME) || has_file(folder, SH_LOG_NOTE_NAME);
}

/* --- Opening ----------------------------------------------------------------------------------- */

static void device_explain(enum shoal_err err, const char *path, char *detail)
{
    const char *why = shoal_err_text(err);
    if (err == SHOAL_EBUSY)
        why = "is in use: another process has it, or it is mounted";
    else if (err == SHOAL_ENONAME)
        why = "is not there: name a partition, or a file that has its size already";
    else if (err == SHOAL_EINVAL)
        why = "is neither a block device nor a file";
    else if (err == SHOAL_EIO)
        why = "can't be opened to be read and written: see to its permissions, and whether it is "
              "read-only";
    snprintf(detail, SH_LOG_PLACE_DETAIL, "log_device %.128s %s", path, why);
}

/* Whether the device begins with zeros, as one does that never had a log. */
static enum shoal_err is_empty(struct sh_disk *disk, bool *is_empty_out)
{
    struct sh_log_file head;
    int file;
    uint8_t *block = aligned_alloc(SH_SLOT_HEAD_BYTES, SH_SLOT_HEAD_BYTES);
    if (!block)
        return SHOAL_ENOMEM;
    memset(block, 0, SH_SLOT_HEAD_BYTES);
    enum shoal_err err = sh_disk_open(disk, SH_HOME_LOG_NAME, false, &file);
    if (!err) {
        struct sh_disk_op op = {
            .kind = SH_DISK_READ, .file = file, .data = block, .size = SH_SLOT_HEAD_BYTES};
        err = sh_disk_do(disk, &op);
        disk->ops->close(disk, file);
    }
    if (!err)
        *is_empty_out = sh_log_file_get(block, &head) == SHOAL_ENONAME;
    free(block);
    return err;
}

/* noted: where the log is by the folder's note; NULL: there is no note. */
static enum shoal_err device_open(const struct sh_log_place *place, const char *noted,
                                  struct sh_disk **disk_out, char *detail)
{
    const char *path = place->path;
    struct sh_disk *disk;
    bool has_none = false;
    enum shoal_err err = sh_raw_disk_create(path, SH_HOME_LOG_NAME, true, &disk);
    if (err) {
        device_explain(err, path, detail);
        return err;
    }
    if (noted || place->is_nameless)
        err = is_empty(disk, &has_none);
    if (err)
        snprintf(detail, SH_LOG_PLACE_DETAIL, "log_device %.128s can't be read: %s", path,
                 shoal_err_text(err));
    bool is_noted = noted && strcmp(noted, path) == 0;
    if (!err && !is_noted && place->is_nameless && !has_none) {
        snprintf(detail, SH_LOG_PLACE_DETAIL,
                 "log_device %.50s has something on it, and data_dir does not say that it is this "
                 "store's log: if it is, write the device's path and a new line into the "
                 "file " SH_LOG_NOTE_NAME " there",
                 path);
        err = SHOAL_EINVAL;
    }
    if (!err && noted && has_none) {
        snprintf(detail, SH_LOG_PLACE_DETAIL,
                 "log_device %.50s has no log, and this node's was on %.50s: name that one; or "
                 "remove " SH_LOG_NOTE_NAME " in data_dir, and all that was in the log is lost",
                 path, noted);
        err = SHOAL_EINVAL;
    }
    if (err)
        disk->ops->destroy(disk);
    else
        *disk_out = disk;
    return err;
}

enum shoal_err sh_log_place_open(const struct sh_log_place *place, struct sh_disk *folder,
                                 struct sh_disk **disk_out, char *detail)
{
    char noted[SH_LOG_PATH_MAX];
    SH_ASSERT(place->path && place->path[0]);
    enum shoal_err err = sh_log_note_read(folder, noted);
    bool has_note = !err;
    if (err && err != SHOAL_ENONAME) {
        snprintf(detail, SH_LOG_PLACE_DETAIL,
                 "the file " SH_LOG_NOTE_NAME " in data_dir, which names the device of this node's "
                 "log: %s; write the device's path and a new line into it",
                 shoal_err_text(err));
        return err;
    }
    if (place->access == SH_LOG_RAW && has_file(folder, SH_HOME_LOG_NAME)) {
        snprintf(detail, SH_LOG_PLACE_DETAIL,
                 "data_dir has this node's log (" SH_HOME_LOG_NAME "): start it with another "
                 "log_access than raw; or remove the file, and all that is in it is lost");
        return SHOAL_EINVAL;
    }
    if (place->access == SH_LOG_RAW)
        return device_open(place, has_note ? noted : NULL, disk_out, detail);
    if (has_note) {
        snprintf(detail, SH_LOG_PLACE_DETAIL,
                 "this node's log is on %.80s: start it with log_access raw, and that as "
                 "log_device; or remove " SH_LOG_NOTE_NAME " in data_dir, and all that is in the "
                 "log is lost",
                 noted);
        return SHOAL_EINVAL;
    }
    *disk_out = NULL;
    err = place->access == SH_LOG_DIRECT ? sh_real_disk_create(place->path, true, disk_out)
                                         : SHOAL_OK;
    if (err)
        snprintf(detail, SH_LOG_PLACE_DETAIL, "the log's disk, in %.128s: %s", place->path,
                 shoal_err_text(err));
    return err;
}

uint64_t sh_log_place_bytes(const struct sh_log_place *place, struct sh_disk *disk)
{
    uint64_t bytes, left;
    if (place->access != SH_LOG_RAW || sh_disk_space(disk, &bytes, &left))
        return 0;
    return bytes;
}
