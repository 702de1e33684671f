/* A disk of one file: a block device, or a file of a fixed size, instead of a folder.
 *
 * Each open of the one name is a duplicate of the same descriptor. The lock is with another one, as with a folder:
 * an operation that is under way when the process is killed holds the first for a while. A device is opened exclusively
 * for that, which also keeps away who would mount it.
 *
 * Such an operation may be a direct write, which nothing calls back: after the kill it may still go over what the next process writes. So
 * the first descriptor has a lock, too, which goes with the last operation that uses it, and the next process waits for that. */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "env/disk_real_int.h"

struct raw_disk {
    struct sh_real_disk real; /* folder_fd is the file */
    char *name;
};

static struct raw_disk *raw_of(struct sh_disk *disk)
{
    return (struct raw_disk *)disk;
}

static enum shoal_err raw_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    const struct raw_disk *raw = raw_of(disk);
    if (strcmp(name, raw->name) != 0)
        return create ? SHOAL_EINVAL : SHOAL_ENONAME;
    int file = fcntl(raw->real.folder_fd, F_DUPFD_CLOEXEC, 0);
    if (file < 0)
        return sh_disk_fail("open failed", name, errno);
    *file_out = file;
    return SHOAL_OK;
}

static enum shoal_err raw_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    (void)disk, (void)name, (void)file_out;
    return SHOAL_EINVAL;
}

static void raw_close(struct sh_disk *disk, int file)
{
    (void)disk;
    SH_ASSERT(file >= 0);
    (void)close(file);
}

static enum shoal_err raw_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    (void)file;
    *bytes_out = raw_of(disk)->real.bytes_max;
    return SHOAL_OK;
}

static enum shoal_err raw_rename(struct sh_disk *disk, const char *from, const char *to)
{
    (void)disk, (void)from, (void)to;
    return SHOAL_EINVAL;
}

static enum shoal_err raw_remove(struct sh_disk *disk, const char *name)
{
    (void)disk, (void)name;
    return SHOAL_EINVAL;
}

static enum shoal_err raw_space(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out)
{
    *bytes_out = raw_of(disk)->real.bytes_max;
    *free_out = 0;
    return SHOAL_OK;
}

static void raw_free(struct raw_disk *raw)
{
    if (raw->real.folder_fd >= 0)
        close(raw->real.folder_fd);
    if (raw->real.lock_fd >= 0)
        close(raw->real.lock_fd);
    free(raw->name);
    free(raw);
}

static void raw_destroy(struct sh_disk *disk)
{
    if (!disk)
        return;
    sh_real_disk_stop(sh_real_disk_of(disk));
    raw_free(raw_of(disk));
}

static const struct sh_disk_ops raw_ops = {
    .open = raw_open,
    .claim = raw_claim,
    .close = raw_close,
    .size = raw_size,
    .rename = raw_rename,
    .remove = raw_remove,
    .space = raw_space,
    .submit = sh_real_disk_submit,
    .poll = sh_real_disk_poll,
    .wake_set = sh_real_disk_wake_set,
    .destroy = raw_destroy,
};

static enum shoal_err open_failed(const char *path, int code)
{
    return code == EBUSY ? SHOAL_EBUSY : sh_disk_fail("open failed", path, code);
}

static int mode_of(const struct sh_real_disk *real)
{
    return real->is_for_reading ? O_RDONLY : O_RDWR;
}

/* Opens the lock, and takes it: the kernel gives a device to one exclusive opener at a time, and a file's lock is its
 * own. */
static enum shoal_err raw_take(struct raw_disk *raw, const char *path, struct stat *facts_out)
{
    struct sh_real_disk *real = &raw->real;
    if (stat(path, facts_out))
        return sh_disk_fail("no such file or device", path, errno);
    if (!S_ISREG(facts_out->st_mode) && !S_ISBLK(facts_out->st_mode)) {
        SH_ERROR("env", "neither a file nor a block device", SH_TEXT("name", path));
        return SHOAL_EINVAL;
    }
    real->is_device = S_ISBLK(facts_out->st_mode);
    real->lock_fd = open(path, mode_of(real) | O_CLOEXEC | (real->is_device ? O_EXCL : 0));
    if (real->lock_fd < 0)
        return open_failed(path, errno);
    return real->is_device ? SHOAL_OK : sh_disk_lock_take(real->lock_fd, path);
}

#define AWAIT_MS 30000u /* a device that takes longer for one write has failed */

/* Waits until no operation of a process before is under way. EBUSY: one still is. */
static enum shoal_err raw_await(const struct sh_real_disk *real, const char *path)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct flock whole = {.l_type = real->is_for_reading ? F_RDLCK : F_WRLCK, .l_whence = SEEK_SET};
    for (unsigned i = 0; i < AWAIT_MS; i++) {
        if (fcntl(real->folder_fd, F_OFD_SETLK, &whole) == 0)
            return SHOAL_OK;
        if (errno != EAGAIN && errno != EACCES) {
            SH_WARN("env", "no such locks here: a write of a killed process may come late",
                    SH_TEXT("name", path), SH_TEXT("cause", strerror(errno)));
            return SHOAL_OK;
        }
        (void)nanosleep(&pause, NULL);
    }
    SH_ERROR("env", "a write of a process before does not end", SH_TEXT("name", path));
    return SHOAL_EBUSY;
}

/* Opens what operations use, which must be what was locked, and finds how large it is. */
static enum shoal_err raw_begin(struct raw_disk *raw, const char *path, const struct stat *locked)
{
    struct sh_real_disk *real = &raw->real;
    struct stat facts;
    int flags = mode_of(real) | O_CLOEXEC;
    real->folder_fd = open(path, flags | (real->direct ? O_DIRECT : 0));
    if (real->folder_fd < 0 && errno == EINVAL && real->direct) {
        SH_WARN("env", "file system refuses O_DIRECT", SH_TEXT("name", path));
        real->folder_fd = open(path, flags);
    }
    if (real->folder_fd < 0)
        return open_failed(path, errno);
    if (fstat(real->folder_fd, &facts))
        return sh_disk_fail("fstat failed", path, errno);
    if (facts.st_dev != locked->st_dev || facts.st_ino != locked->st_ino)
        return SHOAL_EBUSY; /* replaced since then */
    enum shoal_err err = raw_await(real, path);
    if (err)
        return err;
    real->bytes_max = (uint64_t)facts.st_size;
    if (real->is_device && ioctl(real->folder_fd, BLKGETSIZE64, &real->bytes_max))
        return sh_disk_fail("size of the device is not known", path, errno);
    return SHOAL_OK;
}

struct raw_how {
    bool direct, uring, is_for_reading;
};

static enum shoal_err create(const char *path, const char *name, struct raw_how how,
                             struct sh_disk **disk_out)
{
    SH_ASSERT(path && path[0]);
    SH_ASSERT(name && name[0] && disk_out);
    struct raw_disk *raw = calloc(1, sizeof *raw);
    if (!raw)
        return SHOAL_ENOMEM;
    struct stat facts;
    raw->real.base.ops = &raw_ops;
    raw->real.direct = how.direct;
    raw->real.is_for_reading = how.is_for_reading;
    raw->real.is_raw = true;
    raw->real.lock_fd = raw->real.folder_fd = -1;
    raw->name = strdup(name);
    enum shoal_err err = raw->name ? raw_take(raw, path, &facts) : SHOAL_ENOMEM;
    if (!err)
        err = raw_begin(raw, path, &facts);
    if (!err)
        err = sh_real_disk_start(&raw->real, how.uring);
    if (err) {
        raw_free(raw);
        return err;
    }
    *disk_out = &raw->real.base;
    return SHOAL_OK;
}

enum shoal_err sh_raw_disk_create_as(const char *path, const char *name, bool direct, bool uring,
                                     struct sh_disk **disk_out)
{
    return create(path, name, (struct raw_how){.direct = direct, .uring = uring}, disk_out);
}

enum shoal_err sh_raw_disk_create(const char *path, const char *name, bool direct,
                                  struct sh_disk **disk_out)
{
    return sh_raw_disk_create_as(path, name, direct, true, disk_out);
}

enum shoal_err sh_raw_disk_look(const char *path, const char *name, struct sh_disk **disk_out)
{
    return create(path, name, (struct raw_how){.uring = true, .is_for_reading = true}, disk_out);
}
