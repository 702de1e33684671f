/* The real disk: the files of one folder, by name. Their operations are in disk_ops.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "env/disk_real_int.h"

#define CLAIM_TRIES 8 /* files of a name that may go while we claim it */

enum shoal_err sh_disk_err_of(int code)
{
    switch (code) {
    case ENOENT:
        return SHOAL_ENONAME;
    case ENOSPC:
    case EDQUOT:
        return SHOAL_ENOSPC;
    case ENOMEM:
        return SHOAL_ENOMEM;
    default:
        return SHOAL_EIO;
    }
}

enum shoal_err sh_disk_fail(const char *event, const char *name, int code)
{
    SH_ERROR("env", event, SH_TEXT("name", name), SH_TEXT("cause", strerror(code)));
    return sh_disk_err_of(code);
}

static bool name_usable(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static enum shoal_err real_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    if (create && real->is_for_reading)
        return sh_disk_fail("open failed", name, EROFS);
    int flags = (real->is_for_reading ? O_RDONLY : O_RDWR) | O_CLOEXEC | (create ? O_CREAT : 0);
    int file = openat(real->folder_fd, name, flags | (real->direct ? O_DIRECT : 0), 0640);
    if (file < 0 && errno == EINVAL && real->direct) {
        /* Some file systems, older tmpfs among them, know no O_DIRECT. The bytes are as safe
         * through the page cache, since only a sync promises anything. */
        SH_WARN("env", "file system refuses O_DIRECT", SH_TEXT("name", name));
        file = openat(real->folder_fd, name, flags, 0640);
    }
    if (file < 0 && errno == ENOENT && !create)
        return SHOAL_ENONAME;
    if (file < 0)
        return sh_disk_fail("open failed", name, errno);
    *file_out = file;
    return SHOAL_OK;
}

static enum shoal_err real_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    (void)disk;
    struct stat facts;
    if (fstat(file, &facts))
        return sh_disk_fail("fstat failed", "", errno);
    *bytes_out = (uint64_t)facts.st_size;
    return SHOAL_OK;
}

/* A file that is about to lose a name, held so that it does not go with it; -1: there is none. */
static int hold(const struct sh_real_disk *real, const char *name)
{
    return openat(real->folder_fd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
}

static void real_close(struct sh_disk *disk, int file)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    struct stat facts;
    SH_ASSERT(file >= 0);
    /* A file that has no name goes with its last descriptor, which may be this one. */
    if (fstat(file, &facts) == 0 && facts.st_nlink == 0)
        sh_real_disk_let_go(real, file);
    else
        (void)close(file); /* a failure is nothing: what had to be stable was synced before */
}

static enum shoal_err real_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!name_usable(from) || !name_usable(to))
        return SHOAL_EINVAL;
    int replaced = hold(real, to);
    int code = renameat(real->folder_fd, from, real->folder_fd, to) ? errno : 0;
    sh_real_disk_let_go(real, replaced);
    if (code == 0)
        return SHOAL_OK;
    return code == ENOENT ? SHOAL_ENONAME : sh_disk_fail("rename failed", from, code);
}

static enum shoal_err real_remove(struct sh_disk *disk, const char *name)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    int removed = hold(real, name);
    int code = unlinkat(real->folder_fd, name, 0) ? errno : 0;
    sh_real_disk_let_go(real, removed);
    if (code == 0)
        return SHOAL_OK;
    return code == ENOENT ? SHOAL_ENONAME : sh_disk_fail("remove failed", name, code);
}

enum shoal_err sh_disk_lock_take(int file, const char *name)
{
    if (flock(file, LOCK_EX | LOCK_NB) == 0)
        return SHOAL_OK;
    if (errno == EWOULDBLOCK)
        return SHOAL_EBUSY;
    SH_WARN("env", "file system refuses locks: nothing keeps a second writer away",
            SH_TEXT("name", name), SH_TEXT("cause", strerror(errno)));
    return SHOAL_OK;
}

/* Whether a file still has its name. */
static bool is_named(const struct sh_real_disk *real, const struct stat *file, const char *name)
{
    struct stat named;
    return fstatat(real->folder_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == file->st_dev && named.st_ino == file->st_ino;
}

static enum shoal_err real_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    const struct sh_real_disk *real = sh_real_disk_of(disk);
    for (unsigned i = 0; i < CLAIM_TRIES; i++) {
        int file;
        struct stat facts;
        enum shoal_err err = real_open(disk, name, true, &file);
        if (err)
            return err;
        err = sh_disk_lock_take(file, name);
        if (!err && fstat(file, &facts))
            err = sh_disk_fail("fstat failed", name, errno);
        /* Its owner may have renamed or removed it between our opening and locking it. */
        bool is_ours = !err && is_named(real, &facts, name);
        if (is_ours && facts.st_size == 0) {
            *file_out = file;
            return SHOAL_OK;
        }
        /* Left by somebody who is gone; nobody else takes it while we have it locked. */
        if (is_ours)
            err = real_remove(disk, name);
        real_close(disk, file);
        if (err)
            return err;
    }
    return SHOAL_EBUSY;
}

static void real_destroy(struct sh_disk *disk)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!real)
        return;
    sh_real_disk_stop(real);
    if (real->lock_fd >= 0)
        close(real->lock_fd);
    close(real->folder_fd);
    free(real);
}

static enum shoal_err real_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    struct statvfs facts;
    if (fstatvfs(sh_real_disk_of(disk)->folder_fd, &facts))
        return sh_disk_fail("fstatvfs failed", "", errno);
    *bytes_out = (uint64_t)facts.f_frsize * facts.f_blocks;
    *free_out = (uint64_t)facts.f_frsize * facts.f_bavail;
    return SHOAL_OK;
}

static const struct sh_disk_ops real_ops = {
    .open = real_open,
    .claim = real_claim,
    .close = real_close,
    .size = real_size,
    .rename = real_rename,
    .remove = real_remove,
    .space = real_space,
    .submit = sh_real_disk_submit,
    .poll = sh_real_disk_poll,
    .wake_set = sh_real_disk_wake_set,
    .destroy = real_destroy,
};

/* Makes the folder and those above it. */
static enum shoal_err make_folder(const char *folder)
{
    char *path = strdup(folder);
    if (!path)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_OK;
    for (char *at = path + 1; !err; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        if (mkdir(path, 0750) && errno != EEXIST)
            err = sh_disk_fail("folder can't be made", path, errno);
        *at = kept;
        if (!kept)
            break;
    }
    free(path);
    return err == SHOAL_ENONAME ? SHOAL_EIO : err;
}

/* A disk on a folder that is there. */
static enum shoal_err create_on(const char *folder, bool direct, bool uring, bool is_for_reading,
                                struct sh_disk **disk_out)
{
    struct sh_real_disk *real = calloc(1, sizeof *real);
    if (!real)
        return SHOAL_ENOMEM;
    real->base.ops = &real_ops;
    real->direct = direct;
    real->is_for_reading = is_for_reading;
    real->lock_fd = -1;
    real->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (real->folder_fd < 0) {
        enum shoal_err err = is_for_reading && (errno == ENOENT || errno == ENOTDIR)
                                 ? SHOAL_ENONAME
                                 : sh_disk_fail("folder can't be opened", folder, errno);
        free(real);
        return err == SHOAL_ENONAME && !is_for_reading ? SHOAL_EIO : err;
    }
    enum shoal_err err = sh_real_disk_start(real, uring);
    if (err) {
        close(real->folder_fd);
        free(real);
        return err;
    }
    *disk_out = &real->base;
    return SHOAL_OK;
}

enum shoal_err sh_real_disk_create_as(const char *folder, bool direct, bool uring,
                                      struct sh_disk **disk_out)
{
    SH_ASSERT(folder && folder[0]);
    SH_ASSERT(disk_out);
    enum shoal_err err = make_folder(folder);
    return err ? err : create_on(folder, direct, uring, false, disk_out);
}

enum shoal_err sh_real_disk_look(const char *folder, struct sh_disk **disk_out)
{
    SH_ASSERT(folder && disk_out);
    return create_on(folder, false, true, true, disk_out);
}

enum shoal_err sh_real_disk_create(const char *folder, bool direct, struct sh_disk **disk_out)
{
    return sh_real_disk_create_as(folder, direct, true, disk_out);
}

enum shoal_err sh_real_disk_take(struct sh_disk *disk)
{
    SH_ASSERT(disk->ops == &real_ops);
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (real->lock_fd >= 0)
        return SHOAL_OK;
    /* Not folder_fd: a sync that is under way when the process is killed holds that open for a while. */
    int file = openat(real->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return sh_disk_fail("folder can't be opened", ".", errno);
    enum shoal_err err = sh_disk_lock_take(file, "the folder");
    if (err)
        close(file);
    else
        real->lock_fd = file;
    return err;
}

void sh_real_disk_hand_on(struct sh_disk *from, struct sh_disk *to)
{
    SH_ASSERT(from->ops == &real_ops && to->ops == &real_ops);
    SH_ASSERT(sh_real_disk_of(to)->lock_fd < 0);
    sh_real_disk_of(to)->lock_fd = sh_real_disk_of(from)->lock_fd;
    sh_real_disk_of(from)->lock_fd = -1;
}

bool sh_real_disk_has_uring(const struct sh_disk *disk)
{
    return ((const struct sh_real_disk *)disk)->uring;
}
