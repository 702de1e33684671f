/* The real disk, on io_uring and on its worker, with and without O_DIRECT. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/assert.h"
#include "base/open_files_test.h"
#include "env/disk.h"
#include "env/disk_int.h"
#include "env/refuse_test.h"

#define BLOCK_BYTES 4096
#define BLOCKS 64
#define FOLDER_BYTES 256

struct variant {
    bool uring;
    bool direct;
};

static char root[FOLDER_BYTES];

static int make_root(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/shoal-disk-XXXXXX", base ? base : "/tmp");
    return mkdtemp(root) ? 0 : -1;
}

static int remove_root(void **state)
{
    (void)state;
    char path[FOLDER_BYTES + 32];
    snprintf(path, sizeof path, "%s/a/b", root);
    rmdir(path);
    snprintf(path, sizeof path, "%s/a", root);
    rmdir(path);
    return rmdir(root);
}

static void count_done(struct sh_disk_op *op)
{
    ++*(unsigned *)op->arg;
}

/* Submits an operation and waits until it is done. */
static void run_op(struct sh_disk *disk, struct sh_disk_op *op)
{
    unsigned done = 0;
    op->done = count_done;
    op->arg = &done;
    assert_int_equal(sh_disk_submit(disk, op), SHOAL_OK);
    while (!done)
        (void)sh_disk_poll(disk, true);
    assert_int_equal(done, 1);
}

static struct sh_disk *open_disk(const struct variant *variant)
{
    char folder[FOLDER_BYTES + 32];
    snprintf(folder, sizeof folder, "%s/a/b", root);
    struct sh_disk *disk;
    assert_int_equal(sh_real_disk_create_as(folder, variant->direct, variant->uring, &disk),
                     SHOAL_OK);
    if (!variant->uring)
        assert_false(sh_real_disk_has_uring(disk));
    return disk;
}

static uint8_t *make_blocks(size_t count)
{
    void *blocks = aligned_alloc(BLOCK_BYTES, count * BLOCK_BYTES);
    assert_non_null(blocks);
    return blocks;
}

/* More operations than may be in flight, of which each block is written, synced and read back. */
static void many_writes_are_read_back(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    int file;
    assert_int_equal(sh_disk_open(disk, "blocks", true, &file), SHOAL_OK);
    uint8_t *blocks = make_blocks(BLOCKS);
    uint8_t *back = make_blocks(BLOCKS);
    struct sh_disk_op ops[4 * BLOCKS];
    unsigned done = 0;
    unsigned submitted = 0;
    unsigned refused = 0;
    for (size_t i = 0; i < BLOCKS * BLOCK_BYTES; i++)
        blocks[i] = (uint8_t)(i * 7 + i / BLOCK_BYTES);
    while (submitted < 4 * BLOCKS) {
        size_t at = (size_t)(submitted % BLOCKS) * BLOCK_BYTES;
        ops[submitted] =
            (struct sh_disk_op){.kind = submitted % 3 ? SH_DISK_WRITE : SH_DISK_WRITE_SYNC,
                                .file = file,
                                .offset = at,
                                .data = blocks + at,
                                .size = BLOCK_BYTES,
                                .done = count_done,
                                .arg = &done};
        enum shoal_err err = sh_disk_submit(disk, &ops[submitted]);
        if (err == SHOAL_EAGAIN) {
            refused++;
            (void)sh_disk_poll(disk, true);
            continue;
        }
        assert_int_equal(err, SHOAL_OK);
        submitted++;
    }
    while (done < submitted)
        assert_true(sh_disk_poll(disk, true) > 0);
    assert_int_equal(sh_disk_poll(disk, true), 0);
    assert_true(refused > 0);
    for (unsigned i = 0; i < submitted; i++) {
        assert_int_equal(ops[i].err, SHOAL_OK);
        assert_int_equal(ops[i].done_bytes, BLOCK_BYTES);
    }
    run_op(disk, &(struct sh_disk_op){.kind = SH_DISK_SYNC, .file = file});
    run_op(disk, &(struct sh_disk_op){.kind = SH_DISK_SYNC_DIR});
    struct sh_disk_op read = {
        .kind = SH_DISK_READ, .file = file, .data = back, .size = BLOCKS * BLOCK_BYTES};
    run_op(disk, &read);
    assert_int_equal(read.err, SHOAL_OK);
    assert_int_equal(read.done_bytes, BLOCKS * BLOCK_BYTES);
    assert_memory_equal(back, blocks, BLOCKS * BLOCK_BYTES);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "blocks"), SHOAL_OK);
    free(blocks);
    free(back);
    disk->ops->destroy(disk);
}

/* A write gathers pieces that lie anywhere, in their order. */
static void writes_gather(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    int file;
    assert_int_equal(sh_disk_open(disk, "gathered", true, &file), SHOAL_OK);
    uint8_t *blocks = make_blocks(BLOCKS);
    uint8_t *back = make_blocks(BLOCKS);
    for (size_t i = 0; i < BLOCKS * BLOCK_BYTES; i++)
        blocks[i] = (uint8_t)(i * 7 + i / BLOCK_BYTES);
    for (unsigned kind = 0; kind < 2; kind++) {
        struct iovec pieces[] = {{blocks + 40 * BLOCK_BYTES, BLOCK_BYTES},
                                 {blocks, 3 * BLOCK_BYTES},
                                 {blocks + 20 * BLOCK_BYTES, 2 * BLOCK_BYTES}};
        struct sh_disk_op op = {.kind = kind ? SH_DISK_WRITE_SYNC : SH_DISK_WRITE,
                                .file = file,
                                .offset = (uint64_t)kind * 8 * BLOCK_BYTES,
                                .size = 6 * BLOCK_BYTES,
                                .pieces = pieces,
                                .pieces_count = 3};
        run_op(disk, &op);
        assert_int_equal(op.err, SHOAL_OK);
        assert_int_equal(op.done_bytes, 6 * BLOCK_BYTES);
        struct sh_disk_op read = {.kind = SH_DISK_READ,
                                  .file = file,
                                  .offset = (uint64_t)kind * 8 * BLOCK_BYTES,
                                  .data = back,
                                  .size = 6 * BLOCK_BYTES};
        run_op(disk, &read);
        assert_int_equal(read.done_bytes, 6 * BLOCK_BYTES);
        assert_memory_equal(back, blocks + 40 * BLOCK_BYTES, BLOCK_BYTES);
        assert_memory_equal(back + BLOCK_BYTES, blocks, 3 * BLOCK_BYTES);
        assert_memory_equal(back + 4 * BLOCK_BYTES, blocks + 20 * BLOCK_BYTES, 2 * BLOCK_BYTES);
    }
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "gathered"), SHOAL_OK);
    free(blocks);
    free(back);
    disk->ops->destroy(disk);
}

/* What the kernel has done of a gathered write is not sent again, wherever it ended. */
static void gathered_writes_go_on(void **state)
{
    (void)state;
    uint8_t bytes[12];
    for (unsigned done = 0; done <= sizeof bytes; done++) {
        struct iovec pieces[] = {{bytes, 4}, {bytes + 4, 3}, {bytes + 7, 5}};
        struct sh_disk_op op = {.pieces = pieces, .pieces_count = 3};
        sh_disk_pieces_skip(&op, done);
        size_t left = 0;
        for (unsigned i = 0; i < op.pieces_count; i++) {
            assert_ptr_equal(op.pieces[i].iov_base, bytes + done + left);
            assert_true(op.pieces[i].iov_len > 0);
            left += op.pieces[i].iov_len;
        }
        assert_int_equal(left, sizeof bytes - done);
    }
}

/* An owner that sleeps until it is woken, as a crew thread does. */
struct sleeper {
    pthread_mutex_t mutex;
    pthread_cond_t rung;
    unsigned rings, seen;
};

static void ring(void *arg)
{
    struct sleeper *sleeper = arg;
    pthread_mutex_lock(&sleeper->mutex);
    sleeper->rings++;
    pthread_cond_signal(&sleeper->rung);
    pthread_mutex_unlock(&sleeper->mutex);
}

static void sleep_until_rung(struct sleeper *sleeper)
{
    pthread_mutex_lock(&sleeper->mutex);
    while (sleeper->rings == sleeper->seen)
        pthread_cond_wait(&sleeper->rung, &sleeper->mutex);
    sleeper->seen = sleeper->rings;
    pthread_mutex_unlock(&sleeper->mutex);
}

static void completions_wake_the_owner(void **state)
{
    unsigned before = test_open_files();
    struct sh_disk *disk = open_disk(*state);
    struct sleeper sleeper = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    struct sleeper other = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, 0};
    int file;
    unsigned done = 0, rings;
    uint8_t *block = make_blocks(1);
    memset(block, 3, BLOCK_BYTES);
    assert_int_equal(sh_disk_open(disk, "woken", true, &file), SHOAL_OK);
    assert_int_equal(sh_disk_wake_set(disk, ring, &other), SHOAL_OK);
    assert_int_equal(sh_disk_wake_set(disk, ring, &sleeper), SHOAL_OK);
    for (unsigned i = 0; i < 200; i++) {
        struct sh_disk_op op = {.kind = i % 2 ? SH_DISK_WRITE_SYNC : SH_DISK_SYNC_DIR,
                                .file = file,
                                .offset = (uint64_t)(i % 8) * BLOCK_BYTES,
                                .data = block,
                                .size = BLOCK_BYTES,
                                .done = count_done,
                                .arg = &done};
        assert_int_equal(sh_disk_submit(disk, &op), SHOAL_OK);
        (void)sh_disk_poll(disk, false); /* sends it; may see it done, or not */
        while (done <= i) {
            sleep_until_rung(&sleeper);
            (void)sh_disk_poll(disk, false);
        }
        assert_int_equal(op.err, SHOAL_OK);
    }
    assert_int_equal(sh_disk_wake_set(disk, NULL, NULL), SHOAL_OK);
    rings = sleeper.rings;
    run_op(disk, &(struct sh_disk_op){.kind = SH_DISK_SYNC_DIR});
    assert_int_equal(sleeper.rings, rings);
    assert_int_equal(other.rings, 0);
    /* Destroyed with a waker, and with an operation under way. */
    assert_int_equal(sh_disk_wake_set(disk, ring, &sleeper), SHOAL_OK);
    struct sh_disk_op last = {.kind = SH_DISK_SYNC_DIR, .done = count_done, .arg = &done};
    assert_int_equal(sh_disk_submit(disk, &last), SHOAL_OK);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "woken"), SHOAL_OK);
    disk->ops->destroy(disk);
    free(block);
    assert_int_equal(test_open_files(), before);
}

/* Reads of pipes: each ends when its pipe has a byte. */
struct pipe_read {
    int ends[2];
    unsigned done;
    uint8_t byte;
    struct sh_disk_op op;
};

static void pipe_fill(struct pipe_read *read)
{
    assert_int_equal(write(read->ends[1], "p", 1), 1);
}

static void pipe_begin(struct sh_disk *disk, struct pipe_read *read, bool is_bulk, bool is_full)
{
    assert_int_equal(pipe(read->ends), 0);
    if (is_full)
        pipe_fill(read);
    read->done = 0;
    read->op = (struct sh_disk_op){.kind = SH_DISK_READ,
                                   .file = read->ends[0],
                                   .data = &read->byte,
                                   .size = 1,
                                   .is_bulk = is_bulk,
                                   .done = count_done,
                                   .arg = &read->done};
    assert_int_equal(sh_disk_submit(disk, &read->op), SHOAL_OK);
}

static void pipe_await(struct sh_disk *disk, struct pipe_read *read)
{
    while (!read->done)
        assert_true(sh_disk_poll(disk, true) > 0);
    assert_int_equal(read->op.err, SHOAL_OK);
    assert_int_equal(read->op.done_bytes, 1);
}

static void pipe_end(struct pipe_read *read)
{
    close(read->ends[0]);
    close(read->ends[1]);
}

/* One bulk operation at a time while another one is in flight, and all of them when there is none. */
static void bulk_is_held_back(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    struct pipe_read urgent, empty, full, other;
    struct sh_disk_op sync = {.kind = SH_DISK_SYNC_DIR};
    if (!sh_real_disk_has_uring(disk)) {
        disk->ops->destroy(disk);
        skip(); /* the kernel refuses it here; disk_worker_test has the worker */
    }
    /* Alone, they overtake one another. */
    pipe_begin(disk, &empty, true, false);
    pipe_begin(disk, &full, true, true);
    pipe_await(disk, &full);
    assert_int_equal(empty.done, 0);
    pipe_end(&full);
    /* Beside an urgent one the second waits for the first, whatever urgent ones come and go. */
    pipe_begin(disk, &urgent, false, false);
    pipe_begin(disk, &full, true, true);
    pipe_begin(disk, &other, true, true);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(sh_disk_do(disk, &sync), SHOAL_OK);
    assert_int_equal(empty.done + full.done + other.done + urgent.done, 0);
    pipe_fill(&empty);
    pipe_await(disk, &empty);
    pipe_await(disk, &full);
    pipe_await(disk, &other);
    assert_int_equal(urgent.done, 0);
    pipe_end(&empty);
    pipe_end(&full);
    pipe_end(&other);
    /* Without it nothing holds the second back. */
    pipe_begin(disk, &empty, true, false);
    pipe_begin(disk, &full, true, true);
    assert_int_equal(sh_disk_do(disk, &sync), SHOAL_OK);
    assert_int_equal(full.done, 0);
    pipe_fill(&urgent);
    pipe_await(disk, &urgent);
    pipe_await(disk, &full);
    assert_int_equal(empty.done, 0);
    pipe_end(&urgent);
    pipe_end(&full);
    /* What is held back is done before the disk goes. */
    pipe_begin(disk, &urgent, false, true);
    pipe_begin(disk, &full, true, true);
    pipe_fill(&empty);
    full.byte = 0;
    disk->ops->destroy(disk);
    assert_int_equal(full.byte, 'p');
    assert_int_equal(full.done, 0);
    pipe_end(&urgent);
    pipe_end(&empty);
    pipe_end(&full);
}

static void reads_end_with_the_file(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    int file;
    assert_int_equal(sh_disk_open(disk, "short", true, &file), SHOAL_OK);
    uint8_t *blocks = make_blocks(4);
    memset(blocks, 0x5a, 4 * BLOCK_BYTES);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE, .file = file, .data = blocks, .size = BLOCK_BYTES};
    run_op(disk, &op);
    assert_int_equal(op.err, SHOAL_OK);
    op = (struct sh_disk_op){
        .kind = SH_DISK_READ, .file = file, .data = blocks, .size = 4 * BLOCK_BYTES};
    run_op(disk, &op);
    assert_int_equal(op.err, SHOAL_OK);
    assert_int_equal(op.done_bytes, BLOCK_BYTES);
    op = (struct sh_disk_op){.kind = SH_DISK_READ,
                             .file = file,
                             .offset = 8 * BLOCK_BYTES,
                             .data = blocks,
                             .size = BLOCK_BYTES};
    run_op(disk, &op);
    assert_int_equal(op.err, SHOAL_OK);
    assert_int_equal(op.done_bytes, 0);
    uint64_t bytes;
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    assert_int_equal(bytes, BLOCK_BYTES);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "short"), SHOAL_OK);
    free(blocks);
    disk->ops->destroy(disk);
}

static void names_open_rename_and_vanish(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    int file;
    assert_int_equal(sh_disk_open(disk, "none", false, &file), SHOAL_ENONAME);
    assert_int_equal(sh_disk_open(disk, "up/there", true, &file), SHOAL_EINVAL);
    assert_int_equal(sh_disk_open(disk, "..", true, &file), SHOAL_EINVAL);
    assert_int_equal(sh_disk_open(disk, "", true, &file), SHOAL_EINVAL);
    assert_int_equal(disk->ops->rename(disk, "none", "some"), SHOAL_ENONAME);
    assert_int_equal(disk->ops->remove(disk, "none"), SHOAL_ENONAME);
    int other;
    assert_int_equal(sh_disk_open(disk, "first", true, &file), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "second", true, &other), SHOAL_OK);
    assert_int_equal(disk->ops->rename(disk, "first", "second"), SHOAL_OK);
    disk->ops->close(disk, file);
    disk->ops->close(disk, other);
    assert_int_equal(sh_disk_open(disk, "first", false, &file), SHOAL_ENONAME);
    assert_int_equal(sh_disk_open(disk, "second", false, &file), SHOAL_OK);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "second"), SHOAL_OK);
    disk->ops->destroy(disk);
}

/* More files lose their names than the ring lets go of at once, with other operations between and
 * without; no descriptor is left, and no operation is lost. */
static void many_files_vanish(void **state)
{
    unsigned before = test_open_files();
    struct sh_disk *disk = open_disk(*state);
    for (unsigned i = 0; i < 100; i++) {
        int file;
        assert_int_equal(sh_disk_open(disk, "new", true, &file), SHOAL_OK);
        disk->ops->close(disk, file);
        assert_int_equal(disk->ops->rename(disk, "new", "old"), SHOAL_OK);
        if (i % 7 == 0)
            assert_int_equal(disk->ops->remove(disk, "old"), SHOAL_OK);
        struct sh_disk_op sync = {.kind = SH_DISK_SYNC_DIR};
        if (i > 40 && i % 3 == 0) {
            run_op(disk, &sync);
            assert_int_equal(sync.err, SHOAL_OK);
        }
    }
    assert_int_equal(disk->ops->remove(disk, "old"), SHOAL_OK);
    disk->ops->destroy(disk);
    assert_int_equal(test_open_files(), before);
}

/* A done that submits again must not keep poll going, and destroy waits for what is in flight. */
struct chain {
    struct sh_disk *disk;
    struct sh_disk_op op;
    unsigned done;
};

static void chain_done(struct sh_disk_op *op)
{
    struct chain *chain = op->arg;
    chain->done++;
    assert_int_equal(sh_disk_submit(chain->disk, op), SHOAL_OK);
}

static void done_may_submit_again(void **state)
{
    struct sh_disk *disk = open_disk(*state);
    struct chain chain = {.disk = disk};
    chain.op = (struct sh_disk_op){.kind = SH_DISK_SYNC_DIR, .done = chain_done, .arg = &chain};
    assert_int_equal(sh_disk_submit(disk, &chain.op), SHOAL_OK);
    for (unsigned i = 1; i <= 5; i++) {
        assert_int_equal(sh_disk_poll(disk, true), 1);
        assert_int_equal(chain.done, i);
    }
    disk->ops->destroy(disk);
    assert_int_equal(chain.done, 5);
}

/* Failures of the device reach the operation: a size limit stands in for a full or broken one. */
static void failed_writes_say_so(void **state)
{
    static const enum sh_disk_kind kinds[] = {SH_DISK_WRITE, SH_DISK_WRITE_SYNC};
    const struct variant *variant = *state;
    struct sh_disk *disk = open_disk(variant);
    int file;
    assert_int_equal(sh_disk_open(disk, "limited", true, &file), SHOAL_OK);
    uint8_t *block = make_blocks(1);
    memset(block, 1, BLOCK_BYTES);
    for (unsigned i = 0; i < 2; i++) {
        struct sh_disk_op op = {.kind = kinds[i],
                                .file = file,
                                .offset = UINT64_C(1) << 62, /* beyond any file system's limit */
                                .data = block,
                                .size = BLOCK_BYTES};
        run_op(disk, &op);
        assert_true(op.err == SHOAL_EIO || op.err == SHOAL_ENOSPC);
        assert_int_equal(op.done_bytes, 0);
    }
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "limited"), SHOAL_OK);
    free(block);
    disk->ops->destroy(disk);
}

/* One writer for a file, whichever disks: the second is refused, until the first one has let go. */
static void claims_keep_others_away(void **state)
{
    unsigned before = test_open_files();
    struct sh_disk *disk = open_disk(*state), *other = open_disk(*state);
    uint8_t *block = make_blocks(1);
    int file, second;
    uint64_t bytes;
    memset(block, 1, BLOCK_BYTES);
    /* What was left by somebody who is gone. */
    assert_int_equal(sh_disk_open(disk, "claimed", true, &file), SHOAL_OK);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE, .file = file, .data = block, .size = BLOCK_BYTES};
    run_op(disk, &op);
    assert_int_equal(op.err, SHOAL_OK);
    disk->ops->close(disk, file);

    assert_int_equal(disk->ops->claim(disk, "claimed", &file), SHOAL_OK);
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    assert_int_equal(bytes, 0);
    op.file = file;
    run_op(disk, &op);
    assert_int_equal(op.err, SHOAL_OK);
    assert_int_equal(disk->ops->claim(disk, "claimed", &second), SHOAL_EBUSY);
    assert_int_equal(other->ops->claim(other, "claimed", &second), SHOAL_EBUSY);
    /* With its new name it is no longer what others want. */
    assert_int_equal(disk->ops->rename(disk, "claimed", "whole"), SHOAL_OK);
    assert_int_equal(other->ops->claim(other, "claimed", &second), SHOAL_OK);
    disk->ops->close(disk, file);
    assert_int_equal(other->ops->remove(other, "claimed"), SHOAL_OK);
    other->ops->close(other, second);
    assert_int_equal(sh_disk_open(disk, "whole", false, &file), SHOAL_OK);
    assert_int_equal(disk->ops->size(disk, file, &bytes), SHOAL_OK);
    assert_int_equal(bytes, BLOCK_BYTES);
    disk->ops->close(disk, file);
    assert_int_equal(disk->ops->remove(disk, "whole"), SHOAL_OK);
    assert_int_equal(disk->ops->claim(disk, "a/b", &file), SHOAL_EINVAL);
    free(block);
    disk->ops->destroy(disk);
    other->ops->destroy(other);
    assert_int_equal(test_open_files(), before);
}

static void folder_is_taken_once(void **state)
{
    struct sh_disk *disk = open_disk(*state), *other = open_disk(*state);
    assert_int_equal(sh_real_disk_take(disk), SHOAL_OK);
    assert_int_equal(sh_real_disk_take(other), SHOAL_EBUSY);
    disk->ops->destroy(disk);
    assert_int_equal(sh_real_disk_take(other), SHOAL_OK);
    other->ops->destroy(other);
}

/* A disk that looks reads what is there, makes nothing, and changes nothing. */
static void look_only_reads(void **state)
{
    char folder[FOLDER_BYTES + 32];
    struct sh_disk *disk = open_disk(*state), *look;
    int file;
    uint8_t *block = make_blocks(1);
    memset(block, 7, BLOCK_BYTES);
    assert_int_equal(sh_disk_open(disk, "there", true, &file), SHOAL_OK);
    run_op(disk, &(struct sh_disk_op){
                     .kind = SH_DISK_WRITE, .file = file, .data = block, .size = BLOCK_BYTES});
    disk->ops->close(disk, file);
    snprintf(folder, sizeof folder, "%s/a/none", root);
    assert_int_equal(sh_real_disk_look(folder, &look), SHOAL_ENONAME);
    snprintf(folder, sizeof folder, "%s/a/b", root);
    assert_int_equal(sh_real_disk_look(folder, &look), SHOAL_OK);
    assert_int_equal(sh_disk_open(look, "none", false, &file), SHOAL_ENONAME);
    assert_int_not_equal(sh_disk_open(look, "none", true, &file), SHOAL_OK);
    assert_int_equal(sh_disk_open(disk, "none", false, &file), SHOAL_ENONAME);
    assert_int_equal(sh_disk_open(look, "there", false, &file), SHOAL_OK);
    struct sh_disk_op op = {
        .kind = SH_DISK_WRITE, .file = file, .data = block, .size = BLOCK_BYTES};
    run_op(look, &op);
    assert_int_equal(op.err, SHOAL_EIO);
    memset(block, 0, BLOCK_BYTES);
    op =
        (struct sh_disk_op){.kind = SH_DISK_READ, .file = file, .data = block, .size = BLOCK_BYTES};
    run_op(look, &op);
    assert_int_equal(op.done_bytes, BLOCK_BYTES);
    assert_int_equal(block[BLOCK_BYTES - 1], 7);
    look->ops->close(look, file);
    look->ops->destroy(look);
    assert_int_equal(disk->ops->remove(disk, "there"), SHOAL_OK);
    disk->ops->destroy(disk);
    free(block);
}

static void folder_must_be_a_folder(void **state)
{
    (void)state;
    char path[FOLDER_BYTES + 32];
    snprintf(path, sizeof path, "%s/plain", root);
    int file = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    close(file);
    struct sh_disk *disk;
    assert_int_equal(sh_real_disk_create(path, false, &disk), SHOAL_EIO);
    char below[FOLDER_BYTES + 64];
    snprintf(below, sizeof below, "%s/below", path);
    assert_int_equal(sh_real_disk_create(below, false, &disk), SHOAL_EIO);
    assert_int_equal(unlink(path), 0);
}

static int use_disk_refused(void)
{
    if (!test_refuse(__NR_io_uring_setup, false, 0, EPERM))
        return TEST_NO_FILTERS;
    struct sh_disk *disk;
    char folder[FOLDER_BYTES + 32];
    snprintf(folder, sizeof folder, "%s/a", root);
    if (sh_real_disk_create(folder, false, &disk) || sh_real_disk_has_uring(disk))
        return 1;
    int file;
    unsigned done = 0;
    char bytes[] = "refused";
    struct sh_disk_op op = {.kind = SH_DISK_WRITE,
                            .data = bytes,
                            .size = sizeof bytes,
                            .done = count_done,
                            .arg = &done};
    if (sh_disk_open(disk, "refused", true, &file))
        return 2;
    op.file = file;
    if (sh_disk_submit(disk, &op) || done || sh_disk_poll(disk, true) != 1 || done != 1)
        return 3;
    if (op.err || op.done_bytes != sizeof bytes)
        return 4;
    disk->ops->close(disk, file);
    if (disk->ops->remove(disk, "refused"))
        return 5;
    disk->ops->destroy(disk);
    return 0;
}

static void refused_uring_falls_back(void **state)
{
    (void)state;
    test_in_child(use_disk_refused); /* without filters the worker is tested above all the same */
}

#define LEFT_OPS 48u
#define LEFT_BYTES (128u << 10)

struct left {
    struct sh_disk *disk;
    int file;
    uint8_t *bytes;
    struct sh_disk_op ops[LEFT_OPS];
    unsigned submitted, done;
};

static void *submit_and_end(void *arg)
{
    struct left *left = arg;
    for (unsigned i = 0; i < LEFT_OPS; i++) {
        left->ops[i] = (struct sh_disk_op){.kind = SH_DISK_WRITE_SYNC,
                                           .file = left->file,
                                           .offset = (uint64_t)i * LEFT_BYTES,
                                           .data = left->bytes,
                                           .size = LEFT_BYTES,
                                           .done = count_done,
                                           .arg = &left->done};
        left->submitted += sh_disk_submit(left->disk, &left->ops[i]) == SHOAL_OK;
    }
    (void)sh_disk_poll(left->disk, false);
    return NULL;
}

/* The disk does all that a thread has handed over when it ends, though the kernel cancels operations that it had not begun. */
static void a_thread_ends(void **state)
{
    struct left left = {.disk = open_disk(*state), .bytes = make_blocks(LEFT_BYTES / BLOCK_BYTES)};
    pthread_t thread;
    memset(left.bytes, 7, LEFT_BYTES);
    for (unsigned round = 0; round < 4; round++) {
        left.submitted = left.done = 0;
        assert_int_equal(sh_disk_open(left.disk, "left", true, &left.file), SHOAL_OK);
        assert_int_equal(pthread_create(&thread, NULL, submit_and_end, &left), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(left.submitted, LEFT_OPS);
        while (left.done < LEFT_OPS)
            (void)sh_disk_poll(left.disk, true);
        for (unsigned i = 0; i < LEFT_OPS; i++)
            assert_int_equal(left.ops[i].err, SHOAL_OK);
        left.disk->ops->close(left.disk, left.file);
        assert_int_equal(left.disk->ops->remove(left.disk, "left"), SHOAL_OK);
    }
    free(left.bytes);
    left.disk->ops->destroy(left.disk);
}

static struct variant uring_cached = {.uring = true};
static struct variant uring_direct = {.uring = true, .direct = true};
static struct variant worker_cached;
static struct variant worker_direct = {.direct = true};

#define VARIANTS(test)                                                                             \
    {#test " uring cached", test, NULL, NULL, &uring_cached},                                      \
        {#test " uring direct", test, NULL, NULL, &uring_direct},                                  \
        {#test " worker cached", test, NULL, NULL, &worker_cached},                                \
    {                                                                                              \
#test " worker direct", test, NULL, NULL, &worker_direct                                   \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        VARIANTS(many_writes_are_read_back),
        VARIANTS(writes_gather),
        VARIANTS(reads_end_with_the_file),
        VARIANTS(names_open_rename_and_vanish),
        VARIANTS(many_files_vanish),
        VARIANTS(done_may_submit_again),
        VARIANTS(failed_writes_say_so),
        VARIANTS(claims_keep_others_away),
        VARIANTS(folder_is_taken_once),
        VARIANTS(look_only_reads),
        VARIANTS(completions_wake_the_owner),
        VARIANTS(a_thread_ends),
        {"bulk_is_held_back uring", bulk_is_held_back, NULL, NULL, &uring_cached},
        cmocka_unit_test(gathered_writes_go_on),
        cmocka_unit_test(folder_must_be_a_folder),
        cmocka_unit_test(refused_uring_falls_back),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
