/* The operations of the real disk: through io_uring, or a worker where the kernel refuses it.
 *
 * io_uring: submit prepares an entry, and the entries go to the kernel together, when a few have
 * gathered or at the next poll. The kernel may do less than was asked; the rest is sent again from
 * the completion until the operation is whole, so callers see whole operations only.
 *
 * Bulk operations (disk.h) are held back while others are in flight, all but one. Measured with a synced block each
 * millisecond beside bulk writes, on a disk that takes 2.6 GB/s, behind mq-deadline, which goes on in the order
 * of sectors; p50 and p99 of the block, in milliseconds:
 *
 *     bulk                  all at once   held back   bulk meanwhile, GB/s
 *     4 writes of 8 MiB     199, 447      11, 17      2.3, 2.6
 *     8 writes of 1 MiB     75, 253       2, 6        3.7, 3.3
 *     8 reads of 1 MiB      36, 43        7, 10       1.4, 1.3
 *
 * What is left is what was under way when the block came. Of the kernel's own priorities the levels of best
 * effort changed nothing, and the idle class as much as this (2, 13 with 8 MiB): but what is in that class waits
 * for whatever other processes do, and only some schedulers know it.
 *
 * A worker (disk_worker.c): a thread carries out one operation after another; poll calls done.
 *
 * Waking: the kernel adds to an eventfd with each completion, and a thread that waits for that
 * calls what the owner has set. Having the owner's own epoll wait for the eventfd was no faster,
 * and needs a way into each wire; the thread costs a switch only where an owner sleeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "env/disk_real_int.h"

#define OPS_MAX SH_REAL_DISK_OPS_MAX
#define GATHER_MAX 8                      /* entries prepared before they are sent unasked */
#define CLOSES_MAX 16                     /* files that the ring lets go of at once */
#define PIECE_BYTES_MAX ((size_t)1 << 30) /* one kernel transfer is below 2 GiB; stay aligned */
#define DIRECT_BYTES 4096

/* Sends what was prepared. A kernel short of memory refuses for a while: the entries stay where
 * they are, and the next call sends them. */
static void send_gathered(struct sh_real_disk *real, unsigned wait_count)
{
    int sent = wait_count ? io_uring_submit_and_wait(&real->ring, wait_count)
                          : io_uring_submit(&real->ring);
    if (sent < 0)
        SH_ASSERT(sent == -EINTR || sent == -EAGAIN || sent == -EBUSY || sent == -ENOMEM);
    real->gathered = io_uring_sq_ready(&real->ring);
}

/* Lets go of it. Freeing a large file takes the kernel a good part of a second for each GiB, for
 * which no step may wait: a thread of the ring's does it, or the worker. */
void sh_real_disk_let_go(struct sh_real_disk *real, int file)
{
    if (file < 0)
        return;
    if (!real->uring) {
        if (!sh_disk_worker_close_file(real->worker, file))
            (void)close(file);
        return;
    }
    struct io_uring_sqe *entry = real->closing < CLOSES_MAX ? io_uring_get_sqe(&real->ring) : NULL;
    if (!entry) {
        (void)close(file);
        return;
    }
    io_uring_prep_close(entry, file);
    io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
    io_uring_sqe_set_data(entry, NULL);
    real->closing++;
    real->gathered++;
    send_gathered(real, 0);
}

static const char *kind_text(enum sh_disk_kind kind)
{
    static const char *const texts[] = {"read",         "write",   "sync",    "sync folder",
                                        "synced write", "discard", "allocate"};
    return texts[kind];
}

void sh_disk_pieces_skip(struct sh_disk_op *op, size_t bytes)
{
    while (op->pieces_count && bytes >= op->pieces->iov_len) {
        bytes -= op->pieces->iov_len;
        op->pieces++;
        op->pieces_count--;
    }
    if (bytes) {
        SH_ASSERT(op->pieces_count);
        op->pieces->iov_base = (char *)op->pieces->iov_base + bytes;
        op->pieces->iov_len -= bytes;
    }
}

/* Discards of a block device: the ring's command for them, of Linux 6.12, which older headers do not name. */
#define DEVICE_DISCARD _IO(0x12, 0)

/* In done_bytes of a device's discard: that was refused. */
#define ASKED_FOR_ZEROS 1

static bool is_device_discard(const struct sh_real_disk *real, const struct sh_disk_op *op)
{
    return real->is_device && op->kind == SH_DISK_DISCARD && op->done_bytes != ASKED_FOR_ZEROS;
}

static void prepare_device_discard(struct io_uring_sqe *entry, const struct sh_disk_op *op)
{
    io_uring_prep_rw(IORING_OP_URING_CMD, entry, op->file, NULL, 0, 0);
    entry->cmd_op = DEVICE_DISCARD;
    entry->addr = op->offset;
    entry->addr3 = op->size;
}

/* The same, by the worker. */
static int device_discard(const struct sh_disk_op *op)
{
    uint64_t range[2] = {op->offset, op->size};
    return ioctl(op->file, BLKDISCARD, range);
}

/* An operation has failed for good. */
static void op_failed(struct sh_disk_op *op, int code)
{
    op->err = sh_disk_err_of(code) == SHOAL_ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
    SH_ERROR("env", "disk operation failed", SH_TEXT("kind", kind_text(op->kind)),
             SH_U64("offset", op->offset), SH_U64("size", op->size),
             SH_TEXT("cause", strerror(code)));
}

/* The same as piece_done, of a discard or an allocation. A device that refuses a discard, or a kernel that has no
 * command for it, is asked for zeros, which may give the space back, too. */
static bool range_done(const struct sh_real_disk *real, struct sh_disk_op *op, int result)
{
    bool is_refused = result == -EOPNOTSUPP || result == -EINVAL || result == -ENOTTY;
    if (is_refused && is_device_discard(real, op)) {
        op->done_bytes = ASKED_FOR_ZEROS;
        return false;
    }
    op->done_bytes = result < 0 ? 0 : op->size;
    if (result == -ENOSPC && op->kind == SH_DISK_ALLOCATE)
        op->err = SHOAL_ENOSPC; /* no failure: it was asked whether there is room, and is again */
    else if (result < 0 && result != -EOPNOTSUPP && result != -ENOSYS)
        op_failed(op, -result);
    return true;
}

/* What the kernel's answer to one piece means: 0 or more bytes done, or a negative error number.
 * True when the operation is over, and then op->err is set. */
static bool piece_done(const struct sh_real_disk *real, struct sh_disk_op *op, int result)
{
    /* ECANCELED: the thread that handed it over has ended, and with it what the kernel's workers had not begun for it; whoever polls hands it
     * over again. */
    if (result == -EINTR || result == -EAGAIN || result == -ECANCELED)
        return false;
    if (sh_disk_is_range(op))
        return range_done(real, op, result);
    if (result < 0) {
        op_failed(op, -result);
        return true;
    }
    op->err = SHOAL_OK;
    if (op->kind == SH_DISK_SYNC || op->kind == SH_DISK_SYNC_DIR)
        return true;
    op->done_bytes += (size_t)result;
    SH_ASSERT(op->done_bytes <= op->size);
    if (op->pieces_count)
        sh_disk_pieces_skip(op, (size_t)result);
    if (op->done_bytes == op->size)
        return true;
    if (op->kind == SH_DISK_READ) {
        /* A direct read can't go on from an odd place, and only the file's end leaves it there. */
        return result == 0 || (real->direct && op->done_bytes % DIRECT_BYTES != 0);
    }
    if (result == 0)
        op->err = SHOAL_EIO; /* a write that does nothing would be sent for ever */
    return result == 0;
}

static size_t piece_size(const struct sh_disk_op *op)
{
    size_t left = op->size - op->done_bytes;
    return left < PIECE_BYTES_MAX ? left : PIECE_BYTES_MAX;
}

static int range_mode(const struct sh_disk_op *op)
{
    return op->kind == SH_DISK_DISCARD ? FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE : 0;
}

static int write_flags(const struct sh_disk_op *op)
{
    return op->kind == SH_DISK_WRITE_SYNC ? RWF_DSYNC : 0;
}

/* Does one piece of an operation now; returns what the kernel would in a completion. By the worker.
 */
static int do_piece(const struct sh_real_disk *real, const struct sh_disk_op *op)
{
    off_t at = (off_t)(op->offset + op->done_bytes);
    ssize_t result;
    switch (op->kind) {
    case SH_DISK_READ:
        result = pread(op->file, (char *)op->data + op->done_bytes, piece_size(op), at);
        break;
    case SH_DISK_SYNC:
        result = fdatasync(op->file);
        break;
    case SH_DISK_SYNC_DIR:
        result = fsync(real->folder_fd);
        break;
    case SH_DISK_DISCARD:
    case SH_DISK_ALLOCATE:
        if (real->is_device && op->kind == SH_DISK_ALLOCATE)
            result = 0; /* it has its space */
        else if (is_device_discard(real, op))
            result = device_discard(op);
        else
            result = fallocate(op->file, range_mode(op), (off_t)op->offset, (off_t)op->size);
        break;
    default: {
        const struct iovec whole = {(char *)op->data + op->done_bytes, piece_size(op)};
        result = pwritev2(op->file, op->pieces_count ? op->pieces : &whole,
                          op->pieces_count ? (int)op->pieces_count : 1, at, write_flags(op));
        break;
    }
    }
    return result < 0 ? -errno : (int)result;
}

static void run_op(void *arg, struct sh_disk_op *op)
{
    const struct sh_real_disk *real = arg;
    while (!piece_done(real, op, do_piece(real, op)))
        continue;
}

/* Prepares an entry for the operation's next piece. There is always one free: the ring has OPS_MAX
 * and each operation in flight uses one at most. */
static void prepare_piece(struct sh_real_disk *real, struct sh_disk_op *op)
{
    struct io_uring_sqe *entry = io_uring_get_sqe(&real->ring);
    SH_ASSERT(entry);
    void *at = (char *)op->data + op->done_bytes;
    uint64_t offset = op->offset + op->done_bytes;
    switch (op->kind) {
    case SH_DISK_READ:
        io_uring_prep_read(entry, op->file, at, (unsigned)piece_size(op), offset);
        break;
    case SH_DISK_WRITE:
    case SH_DISK_WRITE_SYNC:
        if (op->pieces_count)
            io_uring_prep_writev(entry, op->file, op->pieces, op->pieces_count, offset);
        else
            io_uring_prep_write(entry, op->file, at, (unsigned)piece_size(op), offset);
        entry->rw_flags = write_flags(op);
        /* A file system that can write without waiting would sync within the submit. */
        if (op->kind == SH_DISK_WRITE_SYNC)
            io_uring_sqe_set_flags(entry, IOSQE_ASYNC);
        break;
    case SH_DISK_SYNC:
        io_uring_prep_fsync(entry, op->file, IORING_FSYNC_DATASYNC);
        break;
    case SH_DISK_SYNC_DIR:
        io_uring_prep_fsync(entry, real->folder_fd, 0);
        break;
    case SH_DISK_DISCARD:
    case SH_DISK_ALLOCATE:
        if (real->is_device && op->kind == SH_DISK_ALLOCATE)
            io_uring_prep_nop(entry); /* it has its space */
        else if (is_device_discard(real, op))
            prepare_device_discard(entry, op);
        else
            io_uring_prep_fallocate(entry, op->file, range_mode(op), (off_t)op->offset,
                                    (off_t)op->size);
        break;
    }
    io_uring_sqe_set_data(entry, op);
    real->gathered++;
}

/* Whether the kernel may have one more bulk operation. */
static bool may_begin_bulk(const struct sh_real_disk *real)
{
    return real->urgent == 0 || real->bulk == 0;
}

/* Prepares an operation, or holds it back. */
static void op_begin(struct sh_real_disk *real, struct sh_disk_op *op)
{
    if (!op->is_bulk) {
        real->urgent++;
        prepare_piece(real, op);
    } else if (may_begin_bulk(real)) {
        SH_ASSERT(!real->held_count);
        real->bulk++;
        prepare_piece(real, op);
    } else {
        SH_ASSERT(real->held_count < OPS_MAX);
        real->held[(real->held_first + real->held_count++) % OPS_MAX] = op;
    }
}

/* An operation is over: what waited for that is prepared. */
static void op_end(struct sh_real_disk *real, const struct sh_disk_op *op)
{
    unsigned *count = op->is_bulk ? &real->bulk : &real->urgent;
    SH_ASSERT(*count > 0 && real->in_flight > 0);
    --*count;
    real->in_flight--;
    while (real->held_count && may_begin_bulk(real)) {
        real->bulk++;
        prepare_piece(real, real->held[real->held_first]);
        real->held_first = (real->held_first + 1) % OPS_MAX;
        real->held_count--;
    }
}

enum shoal_err sh_real_disk_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    SH_ASSERT(op->done);
    SH_ASSERT((unsigned)op->kind <= SH_DISK_ALLOCATE);
    SH_ASSERT(!sh_disk_is_range(op) || sh_disk_range_is_sound(op));
    SH_ASSERT(!op->pieces_count || (sh_disk_is_write(op) && op->size <= PIECE_BYTES_MAX &&
                                    op->pieces_count <= SH_DISK_PIECES_MAX));
    bool has_end = real->is_raw && op->kind != SH_DISK_READ && op->kind != SH_DISK_SYNC &&
                   op->kind != SH_DISK_SYNC_DIR;
    if (has_end && (op->size > real->bytes_max || op->offset > real->bytes_max - op->size))
        return SHOAL_ENOSPC;
    if (real->in_flight == OPS_MAX)
        return SHOAL_EAGAIN;
    op->done_bytes = 0;
    op->err = SHOAL_OK;
    if (real->uring) {
        op_begin(real, op);
        if (real->gathered >= GATHER_MAX)
            send_gathered(real, 0);
    } else {
        sh_disk_worker_add(real->worker, op);
    }
    real->in_flight++;
    return SHOAL_OK;
}

/* Takes one completion, if there is one, and returns its operation, if that is over. */
static bool take_completion(struct sh_real_disk *real, struct sh_disk_op **op_out)
{
    struct io_uring_cqe *completion;
    if (io_uring_peek_cqe(&real->ring, &completion))
        return false;
    struct sh_disk_op *op = io_uring_cqe_get_data(completion);
    int result = completion->res;
    io_uring_cqe_seen(&real->ring, completion);
    *op_out = op;
    if (!op) {
        SH_ASSERT(real->closing > 0);
        real->closing--;
        return true;
    }
    if (piece_done(real, op, result)) {
        op_end(real, op);
    } else {
        prepare_piece(real, op);
        *op_out = NULL;
    }
    return true;
}

/* The finished operations that one poll may report: what was in flight when it began, so that a
 * done which submits again can't keep it going. */
static unsigned poll_uring(struct sh_real_disk *real, bool wait)
{
    unsigned reported = 0;
    unsigned most = real->in_flight;
    do {
        bool must_wait = wait && !reported && real->in_flight;
        if (real->gathered || must_wait)
            send_gathered(real, must_wait ? 1 : 0);
        struct sh_disk_op *op;
        while (reported < most && take_completion(real, &op)) {
            if (!op)
                continue;
            reported++;
            op->done(op);
        }
    } while (wait && !reported && real->in_flight);
    if (real->gathered)
        send_gathered(real, 0);
    return reported;
}

static unsigned poll_worker(struct sh_real_disk *real, bool wait)
{
    unsigned most = real->in_flight, reported = 0;
    struct sh_disk_op *op;
    while (reported < most && (op = sh_disk_worker_take(real->worker, wait && !reported))) {
        real->in_flight--;
        reported++;
        op->done(op);
    }
    return reported;
}

unsigned sh_real_disk_poll(struct sh_disk *disk, bool wait)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!real->in_flight)
        return 0;
    return real->uring ? poll_uring(real, wait) : poll_worker(real, wait);
}

/* --- Waking ---------------------------------------------------------------------------------- */

static void *waker_main(void *arg)
{
    struct sh_real_disk *real = arg;
    eventfd_t count;
    while (eventfd_read(real->completions, &count) == 0 || errno == EINTR) {
        /* acquire: the end of the thread; pairs with release in waker_stop */
        if (atomic_load_explicit(&real->waker_ends, memory_order_acquire))
            break;
        real->wake(real->wake_arg);
    }
    return NULL;
}

static void waker_stop(struct sh_real_disk *real)
{
    if (real->completions < 0)
        return;
    (void)io_uring_unregister_eventfd(&real->ring);
    /* release: pairs with acquire in waker_main */
    atomic_store_explicit(&real->waker_ends, true, memory_order_release);
    int failed = eventfd_write(real->completions, 1);
    SH_ASSERT(!failed); /* it holds far more than the ring can complete */
    pthread_join(real->waker, NULL);
    close(real->completions);
    real->completions = -1;
}

static enum shoal_err waker_start(struct sh_real_disk *real)
{
    int completions = eventfd(0, EFD_CLOEXEC);
    if (completions < 0)
        return sh_disk_fail("eventfd failed", "", errno);
    int failed = -io_uring_register_eventfd(&real->ring, completions);
    if (failed) {
        close(completions);
        return sh_disk_fail("io_uring takes no eventfd", "", failed);
    }
    real->completions = completions;
    atomic_store(&real->waker_ends, false);
    if (!sh_thread_start(&real->waker, waker_main, real, "disk-waker"))
        return SHOAL_OK;
    (void)io_uring_unregister_eventfd(&real->ring);
    close(completions);
    real->completions = -1;
    return SHOAL_ENOMEM;
}

enum shoal_err sh_real_disk_wake_set(struct sh_disk *disk, void (*wake)(void *arg), void *arg)
{
    struct sh_real_disk *real = sh_real_disk_of(disk);
    if (!real->uring) {
        sh_disk_worker_wake_set(real->worker, wake, arg);
        return SHOAL_OK;
    }
    waker_stop(real);
    real->wake = wake;
    real->wake_arg = arg;
    if (!wake)
        return SHOAL_OK;
    enum shoal_err err = waker_start(real);
    if (!err && real->in_flight)
        wake(arg); /* what has completed meanwhile was said to nobody */
    return err;
}

/* Makes the ring if this kernel lets us and knows the operations that we use. */
static bool uring_init(struct io_uring *ring)
{
    int refused = io_uring_queue_init(OPS_MAX + CLOSES_MAX, ring, 0);
    if (refused) {
        SH_INFO("env", "io_uring refused, disk works through a thread",
                SH_TEXT("cause", strerror(-refused)));
        return false;
    }
    struct io_uring_probe *probe = io_uring_get_probe_ring(ring);
    bool known = probe && io_uring_opcode_supported(probe, IORING_OP_READ) &&
                 io_uring_opcode_supported(probe, IORING_OP_WRITE) &&
                 io_uring_opcode_supported(probe, IORING_OP_FSYNC) &&
                 io_uring_opcode_supported(probe, IORING_OP_FALLOCATE) &&
                 io_uring_opcode_supported(probe, IORING_OP_CLOSE);
    if (probe)
        io_uring_free_probe(probe);
    if (!known) {
        SH_INFO("env", "io_uring lacks operations, disk works through a thread");
        io_uring_queue_exit(ring);
    }
    return known;
}

enum shoal_err sh_real_disk_start(struct sh_real_disk *real, bool uring)
{
    real->completions = -1;
    real->uring = uring && uring_init(&real->ring);
    return real->uring ? SHOAL_OK : sh_disk_worker_create(run_op, real, &real->worker);
}

void sh_real_disk_stop(struct sh_real_disk *real)
{
    waker_stop(real);
    sh_disk_worker_destroy(real->worker);
    if (!real->uring)
        return;
    /* The kernel may still write to the callers' memory: wait until it has let go. */
    while (real->in_flight || real->closing) {
        send_gathered(real, 1);
        struct sh_disk_op *op;
        while (take_completion(real, &op))
            continue;
    }
    io_uring_queue_exit(&real->ring);
}
