/* A disk: files in one folder, written and read by asynchronous operations.
 *
 * Submit an operation, go on, and poll for its completion: nothing here blocks a step. Operations
 * on one file may complete in any order; only sync orders: it completes when every write to that
 * file that completed before it was submitted is on stable storage. A file's name is stable only
 * after SH_DISK_SYNC_DIR, rename replaces atomically. The space of a file that has lost its name
 * may be free a little later. All from one thread (the disk's owner); `done` is called from
 * sh_disk_poll. An owner that sleeps has itself woken (sh_disk_wake_set), and then polls.
 *
 * The real disk uses io_uring, and where the kernel refuses that, a thread of its own; sim/ has one
 * that loses unsynced writes, tears them and flips bits.
 */
#ifndef SH_ENV_DISK_H
#define SH_ENV_DISK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/uio.h>

#include "shoal/err.h"

#define SH_DISK_PIECES_MAX 512u

enum sh_disk_kind {
    SH_DISK_READ,     /* size bytes at offset into data; done_bytes may be short at the end */
    SH_DISK_WRITE,    /* size bytes at offset from data, extending the file if need be */
    SH_DISK_SYNC,     /* the file's bytes and size */
    SH_DISK_SYNC_DIR, /* the folder's names; file is ignored */
    /* A write that completes when its bytes, and the size that they need, are on stable storage.
     * When it fails they may be there in part, and no later sync makes them safe. */
    SH_DISK_WRITE_SYNC,
    /* Gives the space of size bytes at offset back, both multiples of 4096. The file keeps its size; what
     * is read there until it is written again is zeros, or, on a device, anything. Like a write, a sync makes
     * it safe; a crash before that leaves old bytes or zeros, block by block. done_bytes: size, or 0 where
     * the disk has no such operation: then nothing has changed. */
    SH_DISK_DISCARD,
    /* Reserves space for size bytes at offset, multiples of 4096, so that the next write there finds it; a
     * shorter file grows to their end, by zeros. A sync makes it safe. done_bytes: size, or 0 where the disk
     * has no such operation: then nothing has changed, and each write may still find the disk full. ENOSPC: there is
     * less, of which some may be reserved now. */
    SH_DISK_ALLOCATE,
};

struct sh_disk_op {
    enum sh_disk_kind kind;
    int file; /* from sh_disk_open */
    uint64_t offset;
    void *data;  /* kept until done */
    size_t size; /* of all pieces, if it has some */
    /* A write may gather its bytes, up to 1 GiB, from so many pieces, up to SH_DISK_PIECES_MAX, which
     * are kept until done; the disk may change these two, and the pieces. 0: they are in data. */
    struct iovec *pieces;
    unsigned pieces_count;
    /* Others are waited for more than this one. While operations that are not bulk are in flight, the real
     * disk has the kernel do one bulk operation at a time (its worker, one for every eight others), in the order
     * of their submits; the rest wait, whatever their number. So the others wait for what was under way when they
     * were submitted, which nothing calls back (have few bytes of bulk in flight), and share the disk with one
     * bulk operation from then on; and bulk ones always get on. Other disks treat all alike. */
    bool is_bulk;
    void (*done)(struct sh_disk_op *op);
    void *arg; /* the caller's */
    /* Set before done is called: */
    enum shoal_err err; /* OK, EIO, ENOSPC */
    size_t done_bytes;
};

#define SH_DISK_RANGE_BYTES 4096u /* what DISCARD and ALLOCATE count in */

/* Whether it is one of those two. */
static inline bool sh_disk_is_range(const struct sh_disk_op *op)
{
    return op->kind == SH_DISK_DISCARD || op->kind == SH_DISK_ALLOCATE;
}

static inline bool sh_disk_range_is_sound(const struct sh_disk_op *op)
{
    return op->size > 0 && op->size % SH_DISK_RANGE_BYTES == 0 &&
           op->offset % SH_DISK_RANGE_BYTES == 0;
}

static inline bool sh_disk_is_write(const struct sh_disk_op *op)
{
    return op->kind == SH_DISK_WRITE || op->kind == SH_DISK_WRITE_SYNC;
}

struct sh_disk;

struct sh_disk_ops {
    /* Opens a file by name (no slash), creating it if asked. ENONAME when it is not there. */
    enum shoal_err (*open)(struct sh_disk *disk, const char *name, bool create, int *file_out);
    /* Opens a new, empty file of that name, for its opener to write alone: until it is closed, a
     * claim of the same name in the same folder gets EBUSY, through this disk, another one or from
     * another process. What a claim that was cut off has left there goes. Rename or remove it
     * before closing it, while no one else can claim the name. EBUSY, EIO, ENOSPC. */
    enum shoal_err (*claim)(struct sh_disk *disk, const char *name, int *file_out);
    void (*close)(struct sh_disk *disk, int file);
    enum shoal_err (*size)(struct sh_disk *disk, int file, uint64_t *bytes_out);
    enum shoal_err (*rename)(struct sh_disk *disk, const char *from, const char *to);
    enum shoal_err (*remove)(struct sh_disk *disk, const char *name);
    /* How many bytes the disk has for all files, ours and others', and how many of them ours can still
     * take; UINT64_MAX where it sets no limit. EIO. */
    enum shoal_err (*space)(struct sh_disk *disk, uint64_t *bytes_out, uint64_t *free_out);
    /* Begins an operation; EAGAIN when too many are in flight: poll and retry. */
    enum shoal_err (*submit)(struct sh_disk *disk, struct sh_disk_op *op);
    /* Calls done for what has completed; returns how many. wait: blocks for at least one, if any
     * is in flight (start-up and shutdown only). */
    unsigned (*poll)(struct sh_disk *disk, bool wait);
    /* From now on wake(arg) is called, by any thread, when an operation may have completed that no
     * poll has seen; it may be called more often, and must neither wait nor call the disk. The one
     * that was set before is called no more after this has returned. NULL: nothing is called; so it
     * is at first. ENOMEM: nothing has changed, and the owner must poll. NULL: completions wake
     * the owner anyway (simulated), or never come later than the submit. */
    enum shoal_err (*wake_set)(struct sh_disk *disk, void (*wake)(void *arg), void *arg);
    /* Waits for what is in flight, without calling done, and frees the disk. Files that are still
     * open stay so: close them first. */
    void (*destroy)(struct sh_disk *disk);
};

/* The first member of every disk. */
struct sh_disk {
    const struct sh_disk_ops *ops;
};

SHOAL_NODISCARD static inline enum shoal_err sh_disk_open(struct sh_disk *disk, const char *name,
                                                          bool create, int *file_out)
{
    return disk->ops->open(disk, name, create, file_out);
}

SHOAL_NODISCARD static inline enum shoal_err sh_disk_space(struct sh_disk *disk,
                                                           uint64_t *bytes_out, uint64_t *free_out)
{
    return disk->ops->space(disk, bytes_out, free_out);
}

SHOAL_NODISCARD static inline enum shoal_err sh_disk_submit(struct sh_disk *disk,
                                                            struct sh_disk_op *op)
{
    return disk->ops->submit(disk, op);
}

static inline unsigned sh_disk_poll(struct sh_disk *disk, bool wait)
{
    return disk->ops->poll(disk, wait);
}

SHOAL_NODISCARD static inline enum shoal_err sh_disk_wake_set(struct sh_disk *disk,
                                                              void (*wake)(void *arg), void *arg)
{
    return disk->ops->wake_set ? disk->ops->wake_set(disk, wake, arg) : SHOAL_OK;
}

/* Ends that; the callback is called no more after this has returned. */
static inline void sh_disk_wake_stop(struct sh_disk *disk)
{
    enum shoal_err err = sh_disk_wake_set(disk, NULL, NULL);
    (void)err; /* only a callback can fail to be set */
}

/* Carries an operation out, waiting for it; done and arg are set here. Meanwhile others complete, and
 * their done is called. Returns its err, or why it could not begin; EIO when the disk has forgotten it, as
 * a simulated one does when its node crashes. How much was done is in op->done_bytes. */
SHOAL_NODISCARD enum shoal_err sh_disk_do(struct sh_disk *disk, struct sh_disk_op *op);

/* Copies the bytes of a write, for a disk that has to keep them. */
static inline void sh_disk_gather(const struct sh_disk_op *op, uint8_t *into)
{
    if (!op->pieces_count && op->size)
        memcpy(into, op->data, op->size);
    for (unsigned i = 0; i < op->pieces_count; i++) {
        memcpy(into, op->pieces[i].iov_base, op->pieces[i].iov_len);
        into += op->pieces[i].iov_len;
    }
}

/* A real disk on a folder, which is created (with its parents) if need be. direct: open files with
 * O_DIRECT (then offsets, sizes and data must be multiples of 4096). EIO, ENOSPC, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_real_disk_create(const char *folder, bool direct,
                                                   struct sh_disk **disk_out);

/* The same on a folder that is there, for reading alone: it creates neither folder nor files, and a write fails (EIO). ENONAME: there is
 * no such folder. */
SHOAL_NODISCARD enum shoal_err sh_real_disk_look(const char *folder, struct sh_disk **disk_out);

/* A disk of one file, of that name: a block device, or a regular file, whose size it has and keeps. Whoever
 * opens it finds what was there; it is not emptied, renamed, removed or claimed (EINVAL), and submit refuses
 * what would go beyond its end (ENOSPC). It is this disk's alone until that is destroyed or the process ends: EBUSY while another one has it, or a
 * device is mounted. Waits for operations that a process before left under way when it was killed. space: its size, and nothing free. ENONAME: there is no such path; EINVAL: it is something
 * else. EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_raw_disk_create(const char *path, const char *name, bool direct,
                                                  struct sh_disk **disk_out);

/* The same for reading alone: a write fails (EIO). It is not there for others meanwhile, as above. */
SHOAL_NODISCARD enum shoal_err sh_raw_disk_look(const char *path, const char *name,
                                                struct sh_disk **disk_out);

/* Takes a real disk's folder for this disk, until it is destroyed or the process ends, however it
 * ends. EBUSY: another one, of this process or another, has taken it. EIO. Disks that take nothing are
 * not kept out. A file system without such locks is used without one (a warning in the log). */
SHOAL_NODISCARD enum shoal_err sh_real_disk_take(struct sh_disk *disk);
/* The folder that one disk has taken is another disk's of the same folder from then on, without a moment in which a
 * third one could take it. */
void sh_real_disk_hand_on(struct sh_disk *from, struct sh_disk *to);

/* A disk in memory, for a superpeer that is to keep nothing beyond its process. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_memory_disk_create(struct sh_disk **disk_out);

#endif
