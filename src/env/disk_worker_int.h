/* A thread that carries out a disk's operations one after another, so that whoever submits them
 * does not wait: for the real disk where the kernel refuses io_uring. Bulk operations, and files that are to be
 * closed, wait for others, but for one after every SH_DISK_WORKER_TURN of those. */
#ifndef SH_ENV_DISK_WORKER_INT_H
#define SH_ENV_DISK_WORKER_INT_H

#include <pthread.h>

#include "env/disk.h"

#define SH_DISK_WORKER_TURN 8

struct sh_disk_worker;

/* Starts the thread. run carries an operation out as a whole, and sets its results; it is called by
 * the thread, with run_arg. ENOMEM, also where no thread can be had. */
SHOAL_NODISCARD enum shoal_err
sh_disk_worker_create(void (*run)(void *run_arg, struct sh_disk_op *op), void *run_arg,
                      struct sh_disk_worker **worker_out);
/* Carries out what is still waiting, and ends the thread. NULL is allowed. */
void sh_disk_worker_destroy(struct sh_disk_worker *worker);

/* The functions below: the disk's owner only. */

/* Hands an operation over; at most SH_REAL_DISK_OPS_MAX are under way (asserted). */
void sh_disk_worker_add(struct sh_disk_worker *worker, struct sh_disk_op *op);
/* Has the thread close a file; false: too many wait for that, and nothing was done. */
SHOAL_NODISCARD bool sh_disk_worker_close_file(struct sh_disk_worker *worker, int file);
/* The next operation that has been carried out, in the order in which they were; NULL: none has. wait:
 * waits for one, if any is under way. */
struct sh_disk_op *sh_disk_worker_take(struct sh_disk_worker *worker, bool wait);
/* What the thread calls behind each operation; NULL: nothing. The callback before it is under way
 * no more on return. */
void sh_disk_worker_wake_set(struct sh_disk_worker *worker, void (*wake)(void *arg), void *arg);

#endif
