/* The file raft.log. */
#include "raft/raft_disk.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/hash.h"
#include "base/log.h"

#define NAME "raft.log"
#define NAME_NEW "raft.new"
#define MAGIC UINT64_C(0x5446524c414f4853) /* "SHOALRFT" */
#define FORMAT 2
#define HEAD_BYTES 40
#define CRC_AT 36
#define SECTOR 512u
#define FILE_BYTES_MAX (UINT64_C(1) << 30)
/* Behind so much, and twice the base's size, the file is written anew. */
#define GROWTH_BYTES (UINT64_C(1) << 20)
#define POLL_NS UINT64_C(200000)
#define RETRY_NS UINT64_C(1000000000)

enum phase { IDLE, BATCH_WRITE, BATCH_SYNC, BASE_WRITE, BASE_SYNC, BASE_NAME };

struct sh_raft_disk {
    struct sh_env env;
    struct sh_raft *raft;
    int file, new_file;
    bool is_open, new_is_open;
    uint64_t nonce, number; /* of the next batch */
    uint64_t new_nonce;
    uint64_t size, base_size;
    enum phase phase;
    bool is_done;    /* the operation of the phase has ended */
    bool is_waiting; /* the disk had no room for it: submitted again */
    bool again;      /* everything is to be written anew */
    uint64_t retry_ns;
    enum shoal_err trouble;
    struct sh_disk_op op;
    uint8_t *buffer;
    size_t room, used;
};

static uint32_t crc_of(const uint8_t *batch, size_t size)
{
    static const uint8_t zero[4];
    uint32_t crc = sh_crc32c(0, sh_bytes_make(batch, CRC_AT));
    crc = sh_crc32c(crc, sh_bytes_make(zero, sizeof zero));
    return sh_crc32c(crc, sh_bytes_make(batch + HEAD_BYTES, size - HEAD_BYTES));
}

static size_t padded(size_t size)
{
    return (size + SECTOR - 1) / SECTOR * SECTOR;
}

static void on_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

/* --- Loading --------------------------------------------------------------------------------- */

/* Does one operation, waiting for it. */
static enum shoal_err do_now(struct sh_disk *files, struct sh_disk_op *op)
{
    bool is_done = false;
    op->done = on_done;
    op->arg = &is_done;
    enum shoal_err err;
    do {
        err = sh_disk_submit(files, op);
    } while (err == SHOAL_EAGAIN && sh_disk_poll(files, true) + 1);
    while (!err && !is_done)
        (void)sh_disk_poll(files, true);
    return err ? err : op->err;
}

static enum shoal_err read_file(struct sh_raft_disk *disk, uint8_t **bytes_out, size_t *size_out)
{
    struct sh_disk *files = disk->env.disk;
    uint64_t size;
    enum shoal_err err = files->ops->size(files, disk->file, &size);
    if (err)
        return err;
    if (size > FILE_BYTES_MAX)
        return SHOAL_ECORRUPT;
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    struct sh_disk_op op = {.kind = SH_DISK_READ, .file = disk->file, .data = bytes, .size = size};
    err = do_now(files, &op);
    if (err) {
        free(bytes);
        return err;
    }
    *bytes_out = bytes;
    *size_out = op.done_bytes;
    return SHOAL_OK;
}

/* The records of the batch at that place; false: it is not a good one of that number. */
static bool batch_at(const uint8_t *bytes, size_t size, size_t at, uint64_t nonce, uint64_t number,
                     struct sh_bytes *records_out)
{
    const uint8_t *head = bytes + at;
    if (size - at < HEAD_BYTES || sh_load64(head) != MAGIC || sh_load64(head + 16) != nonce ||
        sh_load64(head + 24) != number)
        return false;
    size_t records = sh_load32(head + 12);
    if (records > size - at - HEAD_BYTES || sh_load16(head + 10) || sh_load32(head + 32) ||
        sh_load32(head + CRC_AT) != crc_of(head, HEAD_BYTES + records))
        return false;
    *records_out = sh_bytes_make(head + HEAD_BYTES, records);
    return true;
}

/* Whether a good batch with a higher number lies behind a bad one. */
static bool goes_on(const uint8_t *bytes, size_t size, size_t at, uint64_t nonce, uint64_t number)
{
    struct sh_bytes records;
    for (; size - at >= HEAD_BYTES && at < size; at += SECTOR) {
        uint64_t found = sh_load64(bytes + at + 24);
        if (found > number && batch_at(bytes, size, at, nonce, found, &records))
            return true;
        if (size - at <= SECTOR)
            break;
    }
    return false;
}

static bool is_of_other_version(const uint8_t *bytes, size_t size)
{
    return size >= HEAD_BYTES && sh_load64(bytes) == MAGIC && sh_load16(bytes + 8) != FORMAT;
}

static enum shoal_err load(struct sh_raft_disk *disk, const uint8_t *bytes, size_t size)
{
    if (is_of_other_version(bytes, size))
        return SHOAL_EVERSION;
    uint64_t nonce = size >= HEAD_BYTES ? sh_load64(bytes + 16) : 0;
    uint64_t number = 0;
    struct sh_bytes records;
    size_t at = 0;
    while (at < size && batch_at(bytes, size, at, nonce, number, &records)) {
        enum shoal_err err = sh_raft_load(disk->raft, records);
        if (err)
            return err;
        at += padded(HEAD_BYTES + records.size);
        number++;
    }
    if (!number || (at < size && goes_on(bytes, size, at, nonce, number)))
        return SHOAL_ECORRUPT;
    SH_INFO("raft", "log loaded", SH_U64("batches", number), SH_U64("bytes", at),
            SH_U64("last", sh_raft_last(disk->raft)));
    return SHOAL_OK;
}

static void unusable(enum shoal_err err)
{
    if (err == SHOAL_EVERSION)
        SH_ERROR("raft",
                 "the file raft.log in data_dir was written by another version of shoal: start "
                 "that version again, or remove the file (of all superpeers, which begins a new "
                 "registry, or of this one, to catch up from the others)",
                 SH_ERR(err));
    else
        SH_ERROR("raft",
                 "the file raft.log in data_dir is unusable: restore it, or remove it and start "
                 "this superpeer with the others' addresses, to catch up from them",
                 SH_ERR(err));
}

static enum shoal_err open_file(struct sh_raft_disk *disk, bool *is_new_out)
{
    *is_new_out = false;
    enum shoal_err err = sh_disk_open(disk->env.disk, NAME, false, &disk->file);
    if (err == SHOAL_ENONAME) {
        *is_new_out = true;
        return SHOAL_OK;
    }
    if (err)
        return err;
    disk->is_open = true;
    uint8_t *bytes;
    size_t size;
    err = read_file(disk, &bytes, &size);
    if (err)
        return err;
    err = load(disk, bytes, size);
    free(bytes);
    return err;
}

enum shoal_err sh_raft_disk_open(const struct sh_env *env, struct sh_raft *raft,
                                 struct sh_raft_disk **disk_out, bool *is_new_out)
{
    struct sh_raft_disk *disk = calloc(1, sizeof *disk);
    if (!disk)
        return SHOAL_ENOMEM;
    disk->env = *env;
    disk->raft = raft;
    bool is_new;
    enum shoal_err err = open_file(disk, &is_new);
    if (err) {
        unusable(err);
        sh_raft_disk_close(disk);
        return err;
    }
    *disk_out = disk;
    *is_new_out = is_new;
    return SHOAL_OK;
}

void sh_raft_disk_close(struct sh_raft_disk *disk)
{
    if (!disk)
        return;
    struct sh_disk *files = disk->env.disk;
    while (disk->phase != IDLE && !disk->is_done && !disk->is_waiting && sh_disk_poll(files, true))
        continue;
    if (disk->is_open)
        files->ops->close(files, disk->file);
    if (disk->new_is_open)
        files->ops->close(files, disk->new_file);
    free(disk->buffer);
    free(disk);
}

enum shoal_err sh_raft_disk_server(const struct sh_env *env, uint8_t *server_out)
{
    struct sh_raft_disk disk = {.env = *env};
    enum shoal_err err = sh_disk_open(env->disk, NAME, false, &disk.file);
    if (err)
        return err;
    uint8_t *bytes;
    size_t size;
    struct sh_bytes records;
    err = read_file(&disk, &bytes, &size);
    env->disk->ops->close(env->disk, disk.file);
    if (!err) {
        if (is_of_other_version(bytes, size))
            err = SHOAL_EVERSION;
        else if (size < HEAD_BYTES ||
                 !batch_at(bytes, size, 0, sh_load64(bytes + 16), 0, &records) || records.size < 4)
            err = SHOAL_ECORRUPT;
        else
            *server_out = records.at[3]; /* each batch begins with the record of the vote */
        free(bytes);
    }
    if (err)
        unusable(err);
    return err;
}

void sh_raft_disk_remove(const struct sh_env *env)
{
    (void)env->disk->ops->remove(env->disk, NAME_NEW);
    enum shoal_err err = env->disk->ops->remove(env->disk, NAME);
    if (err == SHOAL_ENONAME)
        return;
    struct sh_disk_op op = {.kind = SH_DISK_SYNC_DIR};
    if (!err)
        err = do_now(env->disk, &op);
    if (err)
        SH_ERROR("raft", "raft.log can't be removed", SH_ERR(err));
}

/* --- Storing --------------------------------------------------------------------------------- */

static void fail(struct sh_raft_disk *disk, uint64_t now_ns, enum shoal_err err)
{
    if (disk->trouble != err)
        SH_ERROR("raft", "raft.log can't be written; tried again every second", SH_ERR(err));
    disk->trouble = err;
    disk->phase = IDLE;
    disk->again = true;
    disk->retry_ns = now_ns + RETRY_NS;
    if (disk->new_is_open)
        disk->env.disk->ops->close(disk->env.disk, disk->new_file);
    disk->new_is_open = false;
}

static void submit_op(struct sh_raft_disk *disk, uint64_t now_ns)
{
    enum shoal_err err = sh_disk_submit(disk->env.disk, &disk->op);
    disk->is_waiting = err == SHOAL_EAGAIN;
    if (err && err != SHOAL_EAGAIN)
        fail(disk, now_ns, err);
}

static void submit(struct sh_raft_disk *disk, uint64_t now_ns, enum phase phase,
                   enum sh_disk_kind kind, int file, uint64_t offset)
{
    disk->op = (struct sh_disk_op){.kind = kind,
                                   .file = file,
                                   .offset = offset,
                                   .data = disk->buffer,
                                   .size = disk->used,
                                   .done = on_done,
                                   .arg = &disk->is_done};
    disk->phase = phase;
    disk->is_done = false;
    submit_op(disk, now_ns);
}

static bool batch_make(struct sh_raft_disk *disk, struct sh_bytes records, uint64_t nonce,
                       uint64_t number)
{
    size_t size = HEAD_BYTES + records.size;
    if (padded(size) > disk->room) {
        uint8_t *buffer = realloc(disk->buffer, padded(size));
        if (!buffer)
            return false;
        disk->buffer = buffer;
        disk->room = padded(size);
    }
    struct sh_writer w = sh_writer_make(disk->buffer, size);
    sh_put64(&w, MAGIC);
    sh_put16(&w, FORMAT);
    sh_put16(&w, 0);
    sh_put32(&w, (uint32_t)records.size);
    sh_put64(&w, nonce);
    sh_put64(&w, number);
    sh_put32(&w, 0);
    sh_put32(&w, 0);
    sh_put_raw(&w, records);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    sh_store32(disk->buffer + CRC_AT, crc_of(disk->buffer, size));
    disk->used = padded(size);
    memset(disk->buffer + size, 0, disk->used - size);
    return true;
}

static void begin_base(struct sh_raft_disk *disk, uint64_t now_ns)
{
    struct sh_disk *files = disk->env.disk;
    enum shoal_err err = files->ops->remove(files, NAME_NEW);
    if (!err || err == SHOAL_ENONAME)
        err = sh_disk_open(files, NAME_NEW, true, &disk->new_file);
    if (err) {
        fail(disk, now_ns, err);
        return;
    }
    disk->new_is_open = true;
    submit(disk, now_ns, BASE_WRITE, SH_DISK_WRITE, disk->new_file, 0);
}

static bool begin(struct sh_raft_disk *disk, uint64_t now_ns)
{
    bool grown = disk->size > disk->base_size * 3 + GROWTH_BYTES;
    struct sh_raft_batch batch;
    if (now_ns < disk->retry_ns || !sh_raft_store_next(disk->raft, disk->again || grown, &batch))
        return false;
    SH_ASSERT(batch.is_base || disk->is_open); /* the first one after start is a base */
    if (batch.is_base)
        disk->new_nonce = sh_random64(&disk->env.random);
    if (!batch_make(disk, batch.bytes, batch.is_base ? disk->new_nonce : disk->nonce,
                    batch.is_base ? 0 : disk->number)) {
        fail(disk, now_ns, SHOAL_ENOMEM);
        return true;
    }
    if (batch.is_base)
        begin_base(disk, now_ns);
    else
        submit(disk, now_ns, BATCH_WRITE, SH_DISK_WRITE, disk->file, disk->size);
    return true;
}

static void stored(struct sh_raft_disk *disk, uint64_t now_ns)
{
    if (disk->trouble)
        SH_INFO("raft", "raft.log is written again");
    disk->trouble = SHOAL_OK;
    disk->again = false;
    disk->phase = IDLE;
    sh_raft_stored(disk->raft, now_ns);
}

/* raft.new becomes raft.log, which is certain after the folder's sync. */
static void name_base(struct sh_raft_disk *disk, uint64_t now_ns)
{
    struct sh_disk *files = disk->env.disk;
    enum shoal_err err = files->ops->rename(files, NAME_NEW, NAME);
    if (err) {
        fail(disk, now_ns, err);
        return;
    }
    if (disk->is_open)
        files->ops->close(files, disk->file);
    disk->file = disk->new_file;
    disk->is_open = true;
    disk->new_is_open = false;
    disk->nonce = disk->new_nonce;
    disk->number = 1;
    disk->size = disk->base_size = disk->used;
    submit(disk, now_ns, BASE_NAME, SH_DISK_SYNC_DIR, disk->file, 0);
}

static void go_on(struct sh_raft_disk *disk, uint64_t now_ns)
{
    enum phase phase = disk->phase;
    if (disk->op.err || (disk->op.kind == SH_DISK_WRITE && disk->op.done_bytes != disk->used)) {
        fail(disk, now_ns, disk->op.err ? disk->op.err : SHOAL_EIO);
        return;
    }
    switch (phase) {
    case BATCH_WRITE:
        submit(disk, now_ns, BATCH_SYNC, SH_DISK_SYNC, disk->file, 0);
        break;
    case BASE_WRITE:
        submit(disk, now_ns, BASE_SYNC, SH_DISK_SYNC, disk->new_file, 0);
        break;
    case BASE_SYNC:
        name_base(disk, now_ns);
        break;
    case BATCH_SYNC:
        disk->size += disk->used;
        disk->number++;
        stored(disk, now_ns);
        break;
    case BASE_NAME:
        stored(disk, now_ns);
        break;
    case IDLE:
        break;
    }
}

unsigned sh_raft_disk_step(struct sh_raft_disk *disk, uint64_t now_ns)
{
    unsigned work = 0;
    if (disk->phase != IDLE)
        work += sh_disk_poll(disk->env.disk, false);
    if (disk->phase != IDLE && disk->is_waiting)
        submit_op(disk, now_ns);
    if (disk->phase != IDLE && disk->is_done) {
        go_on(disk, now_ns);
        work++;
    }
    if (disk->phase == IDLE)
        work += begin(disk, now_ns);
    return work;
}

uint64_t sh_raft_disk_due_ns(const struct sh_raft_disk *disk, uint64_t now_ns)
{
    if (disk->phase != IDLE)
        return now_ns + POLL_NS; /* the disk wakes nobody */
    return disk->again ? disk->retry_ns : SH_NEVER;
}

enum shoal_err sh_raft_disk_trouble(const struct sh_raft_disk *disk)
{
    return disk->trouble;
}
