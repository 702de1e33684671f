/* The real disk: files in one folder, through io_uring, or a worker where the kernel refuses it.
 *
 * io_uring: submit prepares an entry, and the entries go to the kernel together, when a few have
 * gathered or at the next poll. The kernel may do less than was asked; the rest is sent again from
 * the completion until the operation is whole, so callers see whole operations only.
 *
 * A worker (disk_worker.c): a thread carries out one operation after another; poll calls done.
 *
 * Waking: the kernel adds to an eventfd with each completion, and a thread that waits for that
 * calls what the owner has set. Having the owner's own epoll wait for the eventfd was no faster,
 * and needs a way into each wire; the thread costs a switch only where an owner sleeps.
 */
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/thread.h"
#include "env/disk.h"
#include "env/disk_int.h"
#include "env/disk_worker_int.h"

#define OPS_MAX SH_REAL_DISK_OPS_MAX
#define CLAIM_TRIES 8                     /* files of a name that may go while we claim it */
#define GATHER_MAX 8                      /* entries prepared before they are sent unasked */
#define CLOSES_MAX 16                     /* files that the ring lets go of at once */
#define PIECE_BYTES_MAX ((size_t)1 << 30) /* one kernel transfer is below 2 GiB; stay aligned */
#define DIRECT_BYTES 4096

struct real_disk {
    struct sh_disk base;
    int folder_fd;
    int lock_fd; /* the folder once more, if it was taken; else -1 */
    bool direct;
    bool is_for_reading; /* alone */
    bool uring;
    struct io_uring ring;
    unsigned gathered;             /* entries prepared and not yet sent */
    unsigned in_flight;            /* submitted and done not yet called */
    unsigned closing;              /* descriptors that the ring closes (let_go) */
    struct sh_disk_worker *worker; /* without a ring */
    /* With a ring: the thread that wakes the owner, if it is to be woken. */
    int completions; /* an eventfd; -1: there is no thread */
    pthread_t waker;
    _Atomic bool waker_ends;
    void (*wake)(void *arg);
    void *wake_arg;
};

static struct real_disk *real_of(struct sh_disk *disk)
{
    return (struct real_disk *)disk;
}

static enum shoal_err err_of(int code)
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

static enum shoal_err fail(const char *event, const char *name, int code)
{
    SH_ERROR("env", event, SH_TEXT("name", name), SH_TEXT("cause", strerror(code)));
    return err_of(code);
}

static bool name_usable(const char *name)
{
    return name[0] && !strchr(name, '/') && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
}

static enum shoal_err real_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    struct real_disk *real = real_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    if (create && real->is_for_reading)
        return fail("open failed", name, EROFS);
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
        return fail("open failed", name, errno);
    *file_out = file;
    return SHOAL_OK;
}

static enum shoal_err real_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    (void)disk;
    struct stat facts;
    if (fstat(file, &facts))
        return fail("fstat failed", "", errno);
    *bytes_out = (uint64_t)facts.st_size;
    return SHOAL_OK;
}

/* Sends what was prepared. A kernel short of memory refuses for a while: the entries stay where
 * they are, and the next call sends them. */
static void send_gathered(struct real_disk *real, unsigned wait_count)
{
    int sent = wait_count ? io_uring_submit_and_wait(&real->ring, wait_count)
                          : io_uring_submit(&real->ring);
    if (sent < 0)
        SH_ASSERT(sent == -EINTR || sent == -EAGAIN || sent == -EBUSY || sent == -ENOMEM);
    real->gathered = io_uring_sq_ready(&real->ring);
}

/* A file that is about to lose a name, held so that it does not go with it; -1: there is none. */
static int hold(const struct real_disk *real, const char *name)
{
    return openat(real->folder_fd, name, O_PATH | O_CLOEXEC | O_NOFOLLOW);
}

/* Lets go of it. Freeing a large file takes the kernel a good part of a second for each GiB, for
 * which no step may wait: a thread of the ring's does it, or the worker. */
static void let_go(struct real_disk *real, int file)
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

static void real_close(struct sh_disk *disk, int file)
{
    struct real_disk *real = real_of(disk);
    struct stat facts;
    SH_ASSERT(file >= 0);
    /* A file that has no name goes with its last descriptor, which may be this one. */
    if (fstat(file, &facts) == 0 && facts.st_nlink == 0)
        let_go(real, file);
    else
        (void)close(file); /* a failure is nothing: what had to be stable was synced before */
}

static enum shoal_err real_rename(struct sh_disk *disk, const char *from, const char *to)
{
    struct real_disk *real = real_of(disk);
    if (!name_usable(from) || !name_usable(to))
        return SHOAL_EINVAL;
    int replaced = hold(real, to);
    int code = renameat(real->folder_fd, from, real->folder_fd, to) ? errno : 0;
    let_go(real, replaced);
    if (code == 0)
        return SHOAL_OK;
    return code == ENOENT ? SHOAL_ENONAME : fail("rename failed", from, code);
}

static enum shoal_err real_remove(struct sh_disk *disk, const char *name)
{
    struct real_disk *real = real_of(disk);
    if (!name_usable(name))
        return SHOAL_EINVAL;
    int removed = hold(real, name);
    int code = unlinkat(real->folder_fd, name, 0) ? errno : 0;
    let_go(real, removed);
    if (code == 0)
        return SHOAL_OK;
    return code == ENOENT ? SHOAL_ENONAME : fail("remove failed", name, code);
}

/* Locks an open file or folder for this descriptor alone; the kernel unlocks it when that is gone.
 * EBUSY: another one has it locked. */
static enum shoal_err lock_take(int file, const char *name)
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
static bool is_named(const struct real_disk *real, const struct stat *file, const char *name)
{
    struct stat named;
    return fstatat(real->folder_fd, name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           named.st_dev == file->st_dev && named.st_ino == file->st_ino;
}

static enum shoal_err real_claim(struct sh_disk *disk, const char *name, int *file_out)
{
    const struct real_disk *real = real_of(disk);
    for (unsigned i = 0; i < CLAIM_TRIES; i++) {
        int file;
        struct stat facts;
        enum shoal_err err = real_open(disk, name, true, &file);
        if (err)
            return err;
        err = lock_take(file, name);
        if (!err && fstat(file, &facts))
            err = fail("fstat failed", name, errno);
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

static const char *kind_text(enum sh_disk_kind kind)
{
    static const char *const texts[] = {"read", "write", "sync", "sync folder", "synced write"};
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

/* What the kernel's answer to one piece means: 0 or more bytes done, or a negative error number.
 * True when the operation is over, and then op->err is set. */
static bool piece_done(const struct real_disk *real, struct sh_disk_op *op, int result)
{
    if (result == -EINTR || result == -EAGAIN)
        return false;
    if (result < 0) {
        op->err = err_of(-result) == SHOAL_ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
        SH_ERROR("env", "disk operation failed", SH_TEXT("kind", kind_text(op->kind)),
                 SH_U64("offset", op->offset), SH_U64("size", op->size),
                 SH_TEXT("cause", strerror(-result)));
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

static int write_flags(const struct sh_disk_op *op)
{
    return op->kind == SH_DISK_WRITE_SYNC ? RWF_DSYNC : 0;
}

/* Does one piece of an operation now; returns what the kernel would in a completion. By the worker.
 */
static int do_piece(const struct real_disk *real, const struct sh_disk_op *op)
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
    const struct real_disk *real = arg;
    while (!piece_done(real, op, do_piece(real, op)))
        continue;
}

/* Prepares an entry for the operation's next piece. There is always one free: the ring has OPS_MAX
 * and each operation in flight uses one at most. */
static void prepare_piece(struct real_disk *real, struct sh_disk_op *op)
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
    }
    io_uring_sqe_set_data(entry, op);
    real->gathered++;
}

static enum shoal_err real_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct real_disk *real = real_of(disk);
    SH_ASSERT(op->done);
    SH_ASSERT((unsigned)op->kind <= SH_DISK_WRITE_SYNC);
    SH_ASSERT(!op->pieces_count || (sh_disk_is_write(op) && op->size <= PIECE_BYTES_MAX &&
                                    op->pieces_count <= SH_DISK_PIECES_MAX));
    if (real->in_flight == OPS_MAX)
        return SHOAL_EAGAIN;
    op->done_bytes = 0;
    op->err = SHOAL_OK;
    if (real->uring) {
        prepare_piece(real, op);
        if (real->gathered >= GATHER_MAX)
            send_gathered(real, 0);
    } else {
        sh_disk_worker_add(real->worker, op);
    }
    real->in_flight++;
    return SHOAL_OK;
}

/* Takes one completion, if there is one, and returns its operation, if that is over. */
static bool take_completion(struct real_disk *real, struct sh_disk_op **op_out)
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
    if (!piece_done(real, op, result)) {
        prepare_piece(real, op);
        *op_out = NULL;
    }
    return true;
}

/* The finished operations that one poll may report: what was in flight when it began, so that a
 * done which submits again can't keep it going. */
static unsigned poll_uring(struct real_disk *real, bool wait)
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
            real->in_flight--;
            reported++;
            op->done(op);
        }
    } while (wait && !reported && real->in_flight);
    if (real->gathered)
        send_gathered(real, 0);
    return reported;
}

static unsigned poll_worker(struct real_disk *real, bool wait)
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

static unsigned real_poll(struct sh_disk *disk, bool wait)
{
    struct real_disk *real = real_of(disk);
    if (!real->in_flight)
        return 0;
    return real->uring ? poll_uring(real, wait) : poll_worker(real, wait);
}

/* --- Waking ---------------------------------------------------------------------------------- */

static void *waker_main(void *arg)
{
    struct real_disk *real = arg;
    eventfd_t count;
    while (eventfd_read(real->completions, &count) == 0 || errno == EINTR) {
        /* acquire: the end of the thread; pairs with release in waker_stop */
        if (atomic_load_explicit(&real->waker_ends, memory_order_acquire))
            break;
        real->wake(real->wake_arg);
    }
    return NULL;
}

static void waker_stop(struct real_disk *real)
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

static enum shoal_err waker_start(struct real_disk *real)
{
    int completions = eventfd(0, EFD_CLOEXEC);
    if (completions < 0)
        return fail("eventfd failed", "", errno);
    int failed = -io_uring_register_eventfd(&real->ring, completions);
    if (failed) {
        close(completions);
        return fail("io_uring takes no eventfd", "", failed);
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

static enum shoal_err real_wake_set(struct sh_disk *disk, void (*wake)(void *arg), void *arg)
{
    struct real_disk *real = real_of(disk);
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

static void real_destroy(struct sh_disk *disk)
{
    struct real_disk *real = real_of(disk);
    if (!real)
        return;
    waker_stop(real);
    sh_disk_worker_destroy(real->worker);
    if (real->uring) {
        /* The kernel may still write to the callers' memory: wait until it has let go. */
        while (real->in_flight || real->closing) {
            send_gathered(real, 1);
            struct sh_disk_op *op;
            while (take_completion(real, &op))
                real->in_flight -= op ? 1 : 0;
        }
        io_uring_queue_exit(&real->ring);
    }
    if (real->lock_fd >= 0)
        close(real->lock_fd);
    close(real->folder_fd);
    free(real);
}

static const struct sh_disk_ops real_ops = {
    .open = real_open,
    .claim = real_claim,
    .close = real_close,
    .size = real_size,
    .rename = real_rename,
    .remove = real_remove,
    .submit = real_submit,
    .poll = real_poll,
    .wake_set = real_wake_set,
    .destroy = real_destroy,
};

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
                 io_uring_opcode_supported(probe, IORING_OP_CLOSE);
    if (probe)
        io_uring_free_probe(probe);
    if (!known) {
        SH_INFO("env", "io_uring lacks operations, disk works through a thread");
        io_uring_queue_exit(ring);
    }
    return known;
}

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
            err = fail("folder can't be made", path, errno);
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
    enum shoal_err err = SHOAL_OK;
    struct real_disk *real = calloc(1, sizeof *real);
    if (!real)
        return SHOAL_ENOMEM;
    real->base.ops = &real_ops;
    real->direct = direct;
    real->is_for_reading = is_for_reading;
    real->lock_fd = -1;
    real->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (real->folder_fd < 0) {
        err = is_for_reading && (errno == ENOENT || errno == ENOTDIR)
                  ? SHOAL_ENONAME
                  : fail("folder can't be opened", folder, errno);
        free(real);
        return err == SHOAL_ENONAME && !is_for_reading ? SHOAL_EIO : err;
    }
    real->completions = -1;
    real->uring = uring && uring_init(&real->ring);
    if (!real->uring)
        err = sh_disk_worker_create(run_op, real, &real->worker);
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
    struct real_disk *real = real_of(disk);
    if (real->lock_fd >= 0)
        return SHOAL_OK;
    /* Not folder_fd: a sync that is under way when the process is killed holds that open for a while. */
    int file = openat(real->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0)
        return fail("folder can't be opened", ".", errno);
    enum shoal_err err = lock_take(file, "the folder");
    if (err)
        close(file);
    else
        real->lock_fd = file;
    return err;
}

bool sh_real_disk_has_uring(const struct sh_disk *disk)
{
    return ((const struct real_disk *)disk)->uring;
}
