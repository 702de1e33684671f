#include "node/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/node_ids.h"
#include "ring/arcs.h"
#include "store/store.h"

#define FILE_NAME "identity"
#define PART_NAME "identity.part"
#define MAGIC UINT64_C(0x4449504c414f4853) /* "SHOALPID" */
#define FORMAT 2
#define FORMAT_WITHOUT_FLAGS 1 /* its lives count as confirmed */
#define CONFIRMED 1            /* a flag */
#define FILE_BYTES 128
#define CRC_AT 12
#define NAME_MAX 63
#define DETAIL_BYTES 256
/* The end is so many blocks of IDs above what is wanted, and is moved up when half of that is left. */
#define BLOCKS_AHEAD 4
#define AGAIN_NS UINT64_C(1000000000)

/* What the file says. */
struct record {
    shoal_nid nid;
    uint64_t life, cluster, end;
    bool is_confirmed; /* the registry has admitted this life */
};

/* The write: [idle] --WRITE_SYNC--> [writing] --rename, SYNC_DIR--> [naming] --> [idle] */
enum state { IDLE, WRITING, NAMING };

struct sh_identity {
    struct sh_env env;
    struct sh_store *store;
    char name[NAME_MAX + 1];
    struct record stored, wanted, writing;
    enum state state;
    struct sh_disk_op op;
    int file;
    bool is_done;      /* the operation is */
    bool has_failed;   /* the last write did */
    uint64_t again_ns; /* after a failure */
    uint8_t bytes[FILE_BYTES];
    void (*confirmed)(void *arg); /* NULL: it has been called, or nobody asks */
    void *confirmed_arg;
};

static bool is_same(const struct record *a, const struct record *b)
{
    return a->nid.v == b->nid.v && a->life == b->life && a->cluster == b->cluster &&
           a->end == b->end && a->is_confirmed == b->is_confirmed;
}

/* --- Bytes ----------------------------------------------------------------------------------- */

static void record_put(struct sh_identity *identity, const struct record *record)
{
    memset(identity->bytes, 0, sizeof identity->bytes);
    struct sh_writer w = sh_writer_make(identity->bytes, sizeof identity->bytes);
    sh_put64(&w, MAGIC);
    sh_put16(&w, FORMAT);
    sh_put16(&w, record->nid.v);
    sh_put32(&w, 0);
    sh_put64(&w, record->life);
    sh_put64(&w, record->cluster);
    sh_put64(&w, record->end);
    sh_put16(&w, record->is_confirmed ? CONFIRMED : 0);
    sh_put_text(&w, sh_bytes_text(identity->name));
    SH_ASSERT(sh_writer_ok(&w));
    sh_store32(identity->bytes + CRC_AT,
               sh_crc32c(0, sh_bytes_make(identity->bytes, sizeof identity->bytes)));
}

/* What is read must be what put wrote: EVERSION, ECORRUPT, ECLUSTER. */
static enum shoal_err record_get(const struct sh_identity *identity, size_t size,
                                 struct record *record_out)
{
    uint8_t bytes[FILE_BYTES];
    if (size != FILE_BYTES || sh_load64(identity->bytes) != MAGIC)
        return SHOAL_ECORRUPT;
    memcpy(bytes, identity->bytes, sizeof bytes);
    sh_store32(bytes + CRC_AT, 0);
    if (sh_load32(identity->bytes + CRC_AT) != sh_crc32c(0, sh_bytes_make(bytes, sizeof bytes)))
        return SHOAL_ECORRUPT;
    uint16_t format = sh_load16(bytes + 8);
    if (format != FORMAT && format != FORMAT_WITHOUT_FLAGS)
        return SHOAL_EVERSION;
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes + 10, sizeof bytes - 10));
    struct record record = {.nid = {sh_get16(&r)}};
    (void)sh_get32(&r);
    record.life = sh_get64(&r);
    record.cluster = sh_get64(&r);
    record.end = sh_get64(&r);
    uint16_t flags = format == FORMAT ? sh_get16(&r) : CONFIRMED;
    record.is_confirmed = flags & CONFIRMED;
    struct sh_bytes name = sh_get_text(&r);
    if (!sh_reader_ok(&r) || (flags & ~CONFIRMED) || !sh_life_starts(record.life) ||
        (record.nid.v && !sh_nid_is_peer(record.nid)) || record.end % SH_STORE_IDS_BLOCK != 0)
        return SHOAL_ECORRUPT;
    if (name.size != strlen(identity->name) || memcmp(name.at, identity->name, name.size) != 0)
        return SHOAL_ECLUSTER;
    *record_out = record;
    return SHOAL_OK;
}

/* --- Writing --------------------------------------------------------------------------------- */

static void on_done(struct sh_disk_op *op)
{
    struct sh_identity *identity = op->arg;
    identity->is_done = true;
}

static enum shoal_err op_begin(struct sh_identity *identity, enum sh_disk_kind kind)
{
    identity->is_done = false;
    identity->op = (struct sh_disk_op){.kind = kind,
                                       .file = identity->file,
                                       .data = identity->bytes,
                                       .size = kind == SH_DISK_SYNC_DIR ? 0 : FILE_BYTES,
                                       .done = on_done,
                                       .arg = identity};
    return sh_disk_submit(identity->env.disk, &identity->op);
}

static void write_fail(struct sh_identity *identity, enum shoal_err err)
{
    if (!identity->has_failed)
        SH_ERROR(
            "node",
            "the identity can't be stored in data_dir; trying on: make room, or see to the disk "
            "and whether it is read-only",
            SH_ERR(err));
    identity->has_failed = true;
    identity->again_ns = sh_now(&identity->env.clock) + AGAIN_NS;
    identity->state = IDLE;
}

static enum shoal_err write_begin(struct sh_identity *identity)
{
    SH_ASSERT(identity->state == IDLE);
    struct sh_disk *disk = identity->env.disk;
    /* A new file each time, without a lock: the folder is this process's, and a write that was under way when
     * the process before was killed would hold a lock for a while. */
    enum shoal_err err = disk->ops->remove(disk, PART_NAME);
    if (!err || err == SHOAL_ENONAME)
        err = disk->ops->open(disk, PART_NAME, true, &identity->file);
    if (err)
        return err;
    identity->writing = identity->wanted;
    record_put(identity, &identity->writing);
    err = op_begin(identity, SH_DISK_WRITE_SYNC);
    if (err)
        disk->ops->close(disk, identity->file);
    else
        identity->state = WRITING;
    return err;
}

/* The file is written: it gets its name. */
static enum shoal_err name_begin(struct sh_identity *identity)
{
    struct sh_disk *disk = identity->env.disk;
    enum shoal_err err = identity->op.err;
    if (!err && identity->op.done_bytes != FILE_BYTES)
        err = SHOAL_ENOSPC;
    if (!err)
        err = disk->ops->rename(disk, PART_NAME, FILE_NAME);
    disk->ops->close(disk, identity->file);
    if (!err)
        err = op_begin(identity, SH_DISK_SYNC_DIR);
    if (!err)
        identity->state = NAMING;
    return err;
}

/* Goes on with the write that is under way, as far as the disk has come. */
static enum shoal_err write_go_on(struct sh_identity *identity)
{
    if (!identity->is_done)
        return SHOAL_OK;
    identity->is_done = false;
    if (identity->state == WRITING)
        return name_begin(identity);
    SH_ASSERT(identity->state == NAMING);
    identity->state = IDLE;
    if (identity->op.err)
        return identity->op.err;
    identity->stored = identity->writing;
    identity->has_failed = false;
    return SHOAL_OK;
}

/* The same, waiting for the disk. */
static enum shoal_err write_now(struct sh_identity *identity)
{
    enum shoal_err err = write_begin(identity);
    while (!err && identity->state != IDLE) {
        (void)sh_disk_poll(identity->env.disk, true);
        err = write_go_on(identity);
    }
    return err;
}

/* --- Life ------------------------------------------------------------------------------------ */

static enum shoal_err file_read(struct sh_identity *identity, struct record *record_out)
{
    struct sh_disk *disk = identity->env.disk;
    int file;
    enum shoal_err err = sh_disk_open(disk, FILE_NAME, false, &file);
    if (err)
        return err;
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = file, .data = identity->bytes, .size = FILE_BYTES};
    err = sh_disk_do(disk, &op);
    disk->ops->close(disk, file);
    return err ? err : record_get(identity, op.done_bytes, record_out);
}

static void detail_set(const struct sh_identity *identity, enum shoal_err err, char *detail)
{
    const char *hint = "";
    if (err == SHOAL_ECLUSTER)
        hint = ": data_dir belongs to a node of another cluster; give this one a folder of its "
               "own, or "
               "correct the option cluster";
    else if (err == SHOAL_ECORRUPT || err == SHOAL_EVERSION)
        hint = ": restore it; or remove it, and the peer joins as a new node";
    else if (err == SHOAL_ENOSPC)
        hint = ": free some room, or choose another data_dir";
    else if (err == SHOAL_EIO)
        hint = ": see to the disk, the folder's permissions, and whether it is read-only";
    (void)snprintf(detail, DETAIL_BYTES, "the file %s in data_dir, cluster %s: %s%s", FILE_NAME,
                   identity->name, shoal_err_text(err), hint);
}

/* This process's life, on the disk: the next one, or the one that a process before began and that the
 * registry never confirmed to it. */
static enum shoal_err life_begin(struct sh_identity *identity, struct record *record)
{
    uint32_t starts = sh_life_starts(record->life) + 1;
    if (!starts || record->end > SHOAL_LOCAL_ID_MAX / 2)
        return SHOAL_ELIMIT;
    if (record->is_confirmed || !record->life)
        record->life = (uint64_t)starts << 32 | (uint32_t)(sh_random64(&identity->env.random) | 1);
    record->is_confirmed = false;
    record->end += BLOCKS_AHEAD * SH_STORE_IDS_BLOCK;
    identity->wanted = *record;
    return write_now(identity);
}

enum shoal_err sh_identity_open(const struct sh_env *env, const char *cluster,
                                struct sh_store *store, struct sh_identity **identity_out,
                                char *detail)
{
    SH_ASSERT(env->disk && strlen(cluster) && strlen(cluster) <= NAME_MAX);
    struct sh_identity *identity = calloc(1, sizeof *identity);
    if (!identity)
        return SHOAL_ENOMEM;
    identity->env = *env;
    memcpy(identity->name, cluster, strlen(cluster));
    identity->store = store;
    struct record record = {.life = 0};
    enum shoal_err err = file_read(identity, &record);
    uint64_t base = record.end;
    if (!err || err == SHOAL_ENONAME)
        err = life_begin(identity, &record);
    if (err) {
        detail_set(identity, err, detail);
        free(identity);
        return err;
    }
    sh_store_ids_begin(store, base, identity->stored.end);
    *identity_out = identity;
    return SHOAL_OK;
}

void sh_identity_close(struct sh_identity *identity)
{
    if (!identity)
        return;
    while (identity->state != IDLE) {
        if (!identity->is_done && sh_disk_poll(identity->env.disk, true) == 0)
            break; /* it is a simulated one, and has crashed */
        enum shoal_err err = write_go_on(identity);
        if (err)
            write_fail(identity, err);
    }
    free(identity);
}

shoal_nid sh_identity_nid(const struct sh_identity *identity)
{
    return identity->wanted.nid;
}

uint64_t sh_identity_cluster(const struct sh_identity *identity)
{
    return identity->wanted.cluster;
}

uint64_t sh_identity_life(const struct sh_identity *identity)
{
    return identity->stored.life;
}

bool sh_identity_is_confirmed(const struct sh_identity *identity)
{
    return identity->stored.is_confirmed;
}

void sh_identity_joined(struct sh_identity *identity, shoal_nid nid, uint64_t cluster)
{
    SH_ASSERT(sh_nid_is_peer(nid));
    identity->wanted.nid = cluster ? nid : SHOAL_NID_NONE;
    identity->wanted.cluster = cluster;
    identity->wanted.is_confirmed = true;
}

void sh_identity_confirmed_set(struct sh_identity *identity, void (*confirmed)(void *arg),
                               void *arg)
{
    identity->confirmed = confirmed;
    identity->confirmed_arg = arg;
}

void sh_identity_spent(struct sh_identity *identity)
{
    identity->wanted.is_confirmed = true;
}

static void confirmed_tell(struct sh_identity *identity)
{
    void (*confirmed)(void *arg) = identity->confirmed;
    if (!identity->stored.is_confirmed || !confirmed)
        return;
    identity->confirmed = NULL;
    confirmed(identity->confirmed_arg);
}

static unsigned run(void *arg)
{
    struct sh_identity *identity = arg;
    const uint64_t ahead = BLOCKS_AHEAD * SH_STORE_IDS_BLOCK;
    uint64_t wanted = sh_store_ids_wanted(identity->store);
    enum shoal_err err = SHOAL_OK;
    if (wanted + ahead / 2 > identity->wanted.end)
        identity->wanted.end = (wanted / SH_STORE_IDS_BLOCK + 1) * SH_STORE_IDS_BLOCK + ahead;
    if (identity->state != IDLE) {
        (void)sh_disk_poll(identity->env.disk, false);
        if (!identity->is_done)
            return 0;
        err = write_go_on(identity);
        sh_store_ids_allow(identity->store, identity->stored.end);
        confirmed_tell(identity);
    } else if (is_same(&identity->stored, &identity->wanted) ||
               (identity->has_failed && sh_now(&identity->env.clock) < identity->again_ns)) {
        return 0;
    } else {
        err = write_begin(identity);
    }
    if (err)
        write_fail(identity, err);
    return 1;
}

static uint64_t due_ns(void *arg)
{
    struct sh_identity *identity = arg;
    if (identity->state != IDLE)
        return identity->is_done ? 0 : SH_NEVER;
    if (is_same(&identity->stored, &identity->wanted))
        return SH_NEVER;
    return identity->has_failed ? identity->again_ns : 0;
}

struct sh_step sh_identity_step(struct sh_identity *identity)
{
    return (struct sh_step){.name = "identity", .run = run, .due_ns = due_ns, .arg = identity};
}
