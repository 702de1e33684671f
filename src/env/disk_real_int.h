/* What the files of the real disk share: disk_real.c has the folder and its names, disk_raw.c a disk of one
 * file, disk_ops.c the operations of both. */
#ifndef SH_ENV_DISK_REAL_INT_H
#define SH_ENV_DISK_REAL_INT_H

#include <liburing.h>
#include <pthread.h>

#include "env/disk.h"
#include "env/disk_int.h"
#include "env/disk_worker_int.h"

struct sh_real_disk {
    struct sh_disk base;
    int folder_fd; /* of a disk of one file: that file */
    int lock_fd;   /* the folder once more, if it was taken; else -1 */
    bool direct;
    bool is_for_reading; /* alone */
    bool uring;
    bool is_raw;        /* a disk of one file (disk_raw.c) */
    bool is_device;     /* that is a block device */
    uint64_t bytes_max; /* its size */
    struct io_uring ring;
    unsigned gathered;  /* entries prepared and not yet sent */
    unsigned in_flight; /* submitted and done not yet called */
    /* With a ring: those of them that are not bulk, the bulk ones that the kernel has, and a ring of bulk ones
     * that wait until there are no such others, or no such bulk one. */
    unsigned urgent, bulk, held_count, held_first;
    struct sh_disk_op *held[SH_REAL_DISK_OPS_MAX];
    unsigned closing;              /* descriptors that the ring closes (let_go) */
    struct sh_disk_worker *worker; /* without a ring */
    /* With a ring: the thread that wakes the owner, if it is to be woken. */
    int completions; /* an eventfd; -1: there is no thread */
    pthread_t waker;
    _Atomic bool waker_ends;
    void (*wake)(void *arg);
    void *wake_arg;
};

static inline struct sh_real_disk *sh_real_disk_of(struct sh_disk *disk)
{
    return (struct sh_real_disk *)disk;
}

/* disk_real.c */

/* Logs what failed, of which name, and for which error number; returns our error for it. */
enum shoal_err sh_disk_fail(const char *event, const char *name, int code);
enum shoal_err sh_disk_err_of(int code);
/* Locks an open file or folder for this descriptor alone; the kernel unlocks it when that is gone.
 * EBUSY: another one has it locked. */
enum shoal_err sh_disk_lock_take(int file, const char *name);

/* disk_ops.c */

/* Starts what carries out operations: the ring, if `uring` and the kernel lets us, else the worker. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_real_disk_start(struct sh_real_disk *real, bool uring);
/* Waits for what is in flight, and ends that. */
void sh_real_disk_stop(struct sh_real_disk *real);
/* Has a descriptor closed by whoever carries out operations: it may be the last one of a large file that
 * has lost its name, which takes long. -1: nothing. */
void sh_real_disk_let_go(struct sh_real_disk *real, int file);

/* As in struct sh_disk_ops. */
enum shoal_err sh_real_disk_submit(struct sh_disk *disk, struct sh_disk_op *op);
unsigned sh_real_disk_poll(struct sh_disk *disk, bool wait);
enum shoal_err sh_real_disk_wake_set(struct sh_disk *disk, void (*wake)(void *arg), void *arg);

#endif
