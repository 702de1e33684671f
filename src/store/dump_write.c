#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/dump_int.h"
#include "store/walk_int.h"

/* CHUNKS --too long for a section of chunks--> COPY --> PIECES, or DROP --> CHUNKS; and after the
 * last one, END and what follows it. */
enum stage {
    DUMP_CHUNKS,
    DUMP_COPY,
    DUMP_DROP, /* a copy that is of no use, as the chunk was removed or resized meanwhile */
    DUMP_PIECES,
    DUMP_END,
    DUMP_SYNC,
    DUMP_RENAME,
    DUMP_FOLDER,
    DUMP_OVER
};

/* A file being written, one section at a time. */
struct sh_dump {
    struct sh_store *store;
    struct sh_dump_io io;
    enum stage stage;
    bool is_open, is_canceled;
    bool is_full;       /* the section is, while the one before is still being written */
    enum shoal_err err; /* once it is over; before, what it fails with when the disk is done */
    int file;
    shoal_nid own;
    char name[SH_DUMP_NAME_BYTES_MAX + 1];
    char temporary[SH_DUMP_NAME_BYTES_MAX + 8];
    struct sh_walk walk;
    struct sh_walk_group group;
    uint32_t mask;      /* the group's chunks that are still to be written */
    uint8_t *section;   /* header and payload */
    uint8_t *other;     /* the same of the one before, which may be on its way to the disk */
    struct sh_writer w; /* the payload */
    uint32_t records;
    uint8_t *run_count; /* where the open run's count is; NULL: no run is open */
    uint64_t run_next;  /* the ID that would continue it */
    /* A chunk that is too long for a section of chunks, on its way in pieces: a copy, so that all of
     * them are of the same moment. */
    struct sh_vm long_vm;
    struct sh_store_reading long_reading;
    uint32_t long_size, long_at;
    uint64_t long_cid;
    uint64_t begun_bytes; /* payload when the dump began */
    struct sh_dump_sums sums;
};

static void append(struct sh_dump *dump, void *bytes, size_t size)
{
    sh_dump_io_begin(&dump->io, &(struct sh_disk_op){.kind = SH_DISK_WRITE,
                                                     .file = dump->file,
                                                     .offset = dump->sums.file_bytes,
                                                     .data = bytes,
                                                     .size = size});
    dump->sums.file_bytes += size;
}

static void section_begin(struct sh_dump *dump)
{
    dump->w = sh_writer_make(dump->section + SH_SECTION_HEADER_BYTES, SH_SECTION_BYTES_WRITTEN);
    dump->records = 0;
    dump->run_count = NULL;
}

/* Hands the section, unless it is empty, to the disk, which must be idle and keeps its bytes until
 * it is done; goes on with the other. Returns what that counts. */
static unsigned section_end(struct sh_dump *dump, enum sh_section_kind kind)
{
    uint8_t *payload = dump->section + SH_SECTION_HEADER_BYTES;
    size_t size = (size_t)(dump->w.at - payload);
    SH_ASSERT(sh_writer_ok(&dump->w));
    if (size == 0)
        return 0;
    uint8_t header[SH_SECTION_HEADER_BYTES];
    struct sh_writer w = sh_writer_make(header, sizeof header);
    sh_put_raw(&w, sh_bytes_text(SH_SECTION_MAGIC));
    sh_put16(&w, (uint16_t)kind);
    sh_put16(&w, 0);
    sh_put64(&w, dump->sums.sections);
    sh_put32(&w, (uint32_t)size);
    sh_put32(&w, dump->records);
    sh_put32(&w, sh_crc32c(0, sh_bytes_make(payload, size)));
    sh_put32(&w, sh_crc32c(0, sh_bytes_make(header, SH_SECTION_CRC_AT)));
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    memcpy(dump->section, header, sizeof header);
    append(dump, dump->section, SH_SECTION_HEADER_BYTES + size);
    if (kind != SH_SECTION_END)
        dump->sums.sections++;
    uint8_t *written = dump->section;
    dump->section = dump->other;
    dump->other = written;
    section_begin(dump);
    return (unsigned)size / 4;
}

static bool section_is_empty(const struct sh_dump *dump)
{
    return dump->w.at == dump->section + SH_SECTION_HEADER_BYTES;
}

static void header_write(struct sh_dump *dump)
{
    /* Nothing is in the other section's place yet. */
    uint8_t *bytes = dump->other;
    memset(bytes, 0, SH_DUMP_HEADER_BYTES);
    struct sh_writer w = sh_writer_make(bytes, SH_DUMP_HEADER_BYTES);
    sh_put_raw(&w, sh_bytes_text(SH_DUMP_MAGIC));
    sh_put16(&w, SH_DUMP_VERSION);
    sh_store32(bytes + SH_SECTION_CRC_AT, sh_crc32c(0, sh_bytes_make(bytes, SH_SECTION_CRC_AT)));
    append(dump, bytes, SH_DUMP_HEADER_BYTES);
}

/* --- Chunks -------------------------------------------------------------------------------- */

/* The ID under which a chunk of the store stands in the file. */
static uint64_t file_cid(const struct sh_dump *dump, shoal_cid cid)
{
    return shoal_cid_creator(cid).v ? cid.v : shoal_cid_make(dump->own, cid.v).v;
}

/* Begins to copy a chunk that is too long for a section of chunks. ENOMEM. */
static enum shoal_err long_begin(struct sh_dump *dump, shoal_cid cid, uint32_t size)
{
    SH_ASSERT(!dump->long_vm.at && size > 0);
    enum shoal_err err = sh_vm_reserve(size, &dump->long_vm);
    if (err)
        return err;
    dump->long_reading = (struct sh_store_reading){
        .cid = cid, .into = dump->long_vm.at, .size = size, .is_whole = true};
    dump->long_size = size;
    dump->long_at = 0;
    dump->long_cid = file_cid(dump, cid);
    dump->stage = DUMP_COPY;
    return SHOAL_OK;
}

/* Copies the next piece. A chunk that was removed is passed over, and one of another size by now is
 * looked at once more. */
static enum shoal_err copy_some(struct sh_dump *dump, unsigned *done_inout)
{
    enum shoal_err err;
    *done_inout += SH_STORE_STEP_BYTES;
    if (!sh_store_reading_step(dump->store, &dump->long_reading, &err))
        return SHOAL_OK;
    if (err != SHOAL_ESIZE)
        dump->mask &= dump->mask - 1;
    if (err == SHOAL_OK) {
        dump->stage = DUMP_PIECES;
        dump->sums.chunks++;
        dump->sums.payload_bytes += dump->long_size;
        return SHOAL_OK;
    }
    dump->stage = DUMP_DROP;
    return err == SHOAL_ESIZE || err == SHOAL_ENOCHUNK ? SHOAL_OK : err;
}

/* Gives back the pages of what has been written, or is of no use, so that not all of them go at once
 * in the end. */
static void long_discard(struct sh_dump *dump, uint32_t from, uint32_t to)
{
    uint64_t first = from & ~(SH_PAGE_BYTES - 1), end = to & ~(SH_PAGE_BYTES - 1);
    if (end > first)
        (void)sh_vm_discard(&dump->long_vm, first, end - first);
}

static void long_over(struct sh_dump *dump)
{
    sh_vm_release(&dump->long_vm);
    dump->stage = DUMP_CHUNKS;
}

static void drop_some(struct sh_dump *dump, unsigned *done_inout)
{
    uint32_t left = dump->long_size - dump->long_at;
    uint32_t some = left < SH_STORE_PIECE_BYTES ? left : SH_STORE_PIECE_BYTES;
    long_discard(dump, dump->long_at, dump->long_at + some);
    dump->long_at += some;
    *done_inout += some;
    if (dump->long_at == dump->long_size)
        long_over(dump);
}

static unsigned piece_write(struct sh_dump *dump)
{
    uint32_t some = SH_SECTION_BYTES_WRITTEN - SH_PIECE_HEADER_BYTES;
    uint32_t left = dump->long_size - dump->long_at;
    some = left < some ? left : some;
    sh_put64(&dump->w, dump->long_cid);
    sh_put32(&dump->w, dump->long_size);
    sh_put32(&dump->w, dump->long_at);
    sh_put_raw(&dump->w, sh_bytes_make(dump->long_vm.at + dump->long_at, some));
    dump->records = 1;
    long_discard(dump, dump->long_at, dump->long_at + some);
    dump->long_at += some;
    unsigned done = some + section_end(dump, SH_SECTION_PIECE);
    if (dump->long_at == dump->long_size)
        long_over(dump);
    return done;
}

/* Tries to put a chunk into the section as it is. *size_out: its size, where it did not fit
 * (ESIZE). */
static enum shoal_err chunk_put(struct sh_dump *dump, shoal_cid cid, uint32_t *size_out)
{
    uint64_t in_file = file_cid(dump, cid);
    bool continues = dump->run_count && dump->run_next == in_file;
    size_t head = 4 + (continues ? 0 : SH_RUN_HEADER_BYTES);
    size_t left = (size_t)(dump->w.end - dump->w.at);
    if (left < head)
        return sh_store_size(dump->store, cid, size_out) ? SHOAL_ENOCHUNK : SHOAL_ESIZE;
    enum shoal_err err = sh_store_get(dump->store, cid, dump->w.at + head, left - head, size_out);
    if (err)
        return err;
    if (!continues) {
        sh_put64(&dump->w, in_file);
        dump->run_count = dump->w.at;
        sh_put32(&dump->w, 0);
        dump->records++;
    }
    sh_store32(dump->run_count, sh_load32(dump->run_count) + 1);
    sh_put32(&dump->w, *size_out);
    (void)sh_writer_take(&dump->w, *size_out); /* the get has put them there */
    dump->run_next = in_file + 1;
    dump->sums.chunks++;
    dump->sums.payload_bytes += *size_out;
    return SHOAL_OK;
}

/* Goes on with the group's next chunk: writes it, or makes room for it. */
static enum shoal_err chunk_run(struct sh_dump *dump, unsigned *done_inout)
{
    shoal_cid cid = sh_walk_cid(dump->store, &dump->group, (unsigned)__builtin_ctz(dump->mask));
    uint32_t size = 0;
    enum shoal_err err = chunk_put(dump, cid, &size);
    *done_inout += SH_DUMP_CHUNK_COST;
    if (err == SHOAL_OK)
        *done_inout += size;
    if (err == SHOAL_ESIZE && !section_is_empty(dump)) {
        dump->is_full = !sh_dump_io_is_idle(&dump->io);
        if (dump->is_full)
            return SHOAL_OK;
        *done_inout += section_end(dump, SH_SECTION_CHUNKS);
        return SHOAL_OK;
    }
    if (err == SHOAL_ESIZE)
        return long_begin(dump, cid, size);
    if (err && err != SHOAL_ENOCHUNK) /* which was removed in between */
        return err;
    dump->mask &= dump->mask - 1;
    return SHOAL_OK;
}

static uint32_t group_mask(const struct sh_group *group)
{
    struct sh_layout layout = sh_group_layout(group);
    uint32_t mask = 0;
    for (unsigned i = 0; i < SH_GROUP_IDS; i++)
        mask |= (uint32_t)(sh_layout_code(&layout, i) >= SH_CODE_FIRST) << i;
    return mask;
}

/* Goes on until the budget is used up, both sections are full, or all chunks are written. */
static enum shoal_err chunks_run(struct sh_dump *dump, unsigned budget, unsigned *done_inout)
{
    while (*done_inout < budget && dump->stage == DUMP_CHUNKS && !dump->is_full) {
        if (dump->mask != 0) {
            enum shoal_err err = chunk_run(dump, done_inout);
            if (err)
                return err;
            continue;
        }
        unsigned groups = (budget - *done_inout) / SH_DUMP_GROUP_COST + 1;
        unsigned had = groups;
        if (sh_walk_next(dump->store, &dump->walk, &groups, &dump->group))
            dump->mask = group_mask(dump->group.group);
        *done_inout += (had - groups) * SH_DUMP_GROUP_COST;
        if (dump->walk.is_over && !sh_dump_io_is_idle(&dump->io)) {
            dump->is_full = true;
        } else if (dump->walk.is_over) {
            *done_inout += section_end(dump, SH_SECTION_CHUNKS) + 1;
            dump->stage = DUMP_END;
        }
    }
    return SHOAL_OK;
}

/* --- Stages -------------------------------------------------------------------------------- */

static unsigned end_write(struct sh_dump *dump)
{
    sh_put64(&dump->w, dump->sums.chunks);
    sh_put64(&dump->w, dump->sums.payload_bytes);
    sh_put64(&dump->w, dump->sums.sections);
    dump->records = 1;
    dump->stage = DUMP_SYNC;
    return section_end(dump, SH_SECTION_END) + 1;
}

static void file_close(struct sh_dump *dump)
{
    if (dump->is_open)
        dump->io.disk->ops->close(dump->io.disk, dump->file);
    dump->is_open = false;
}

/* All of the file is on the disk: gives it its name. */
static enum shoal_err file_rename(struct sh_dump *dump)
{
    struct sh_disk *disk = dump->io.disk;
    enum shoal_err err = disk->ops->rename(disk, dump->temporary, dump->name);
    if (err)
        return err;
    file_close(dump);
    dump->stage = DUMP_FOLDER;
    sh_dump_io_begin(&dump->io, &(struct sh_disk_op){.kind = SH_DISK_SYNC_DIR});
    return SHOAL_OK;
}

static void finish(struct sh_dump *dump, enum shoal_err err)
{
    struct sh_disk *disk = dump->io.disk;
    SH_ASSERT(sh_dump_io_is_idle(&dump->io));
    /* In this order, as the temporary name is ours only while the file is open. */
    if (dump->stage < DUMP_FOLDER)
        (void)disk->ops->remove(disk, dump->temporary);
    file_close(dump);
    sh_vm_release(&dump->long_vm);
    dump->stage = DUMP_OVER;
    dump->err = err;
    if (err && err != SHOAL_ECANCELED)
        SH_ERROR("store", "not dumped", SH_TEXT("name", dump->name),
                 SH_TEXT("cause", shoal_err_text(err)), SH_U64("at", dump->sums.file_bytes));
}

static enum shoal_err stage_run(struct sh_dump *dump, unsigned budget, unsigned *done_inout)
{
    switch (dump->stage) {
    case DUMP_CHUNKS:
        return chunks_run(dump, budget, done_inout);
    case DUMP_COPY:
        return copy_some(dump, done_inout);
    case DUMP_DROP:
        drop_some(dump, done_inout);
        return SHOAL_OK;
    case DUMP_PIECES:
        *done_inout += piece_write(dump);
        return SHOAL_OK;
    case DUMP_END:
        *done_inout += end_write(dump);
        return SHOAL_OK;
    case DUMP_SYNC:
        sh_dump_io_begin(&dump->io, &(struct sh_disk_op){.kind = SH_DISK_SYNC, .file = dump->file});
        dump->stage = DUMP_RENAME;
        return SHOAL_OK;
    case DUMP_RENAME:
        return file_rename(dump);
    case DUMP_FOLDER:
        finish(dump, SHOAL_OK);
        return SHOAL_OK;
    case DUMP_OVER:
        break;
    }
    SH_ASSERT(false);
    return SHOAL_EINTERNAL;
}

unsigned sh_dump_step(struct sh_dump *dump, unsigned budget_bytes)
{
    unsigned done = 0;
    while (dump->stage != DUMP_OVER && done < budget_bytes) {
        enum shoal_err err = SHOAL_OK;
        bool is_settled = sh_dump_io_settled(&dump->io, &err);
        if (is_settled)
            dump->is_full = false;
        /* Chunks go into one section while the other is being written. */
        else if (dump->stage != DUMP_CHUNKS || dump->is_full || dump->err)
            break;
        if (!err)
            err = dump->err;
        if (!err && dump->is_canceled && dump->stage < DUMP_FOLDER)
            err = SHOAL_ECANCELED;
        if (!err)
            err = stage_run(dump, budget_bytes, &done);
        if (err && sh_dump_io_is_idle(&dump->io))
            finish(dump, err);
        else
            dump->err = err;
    }
    return done;
}

static void dump_free(struct sh_dump *dump)
{
    free(dump->section);
    free(dump->other);
    free(dump);
}

enum shoal_err sh_dump_begin(const struct sh_dump_config *config, struct sh_dump **dump_out)
{
    size_t size = strlen(config->name);
    if (!sh_dump_name_is_good(config->name) ||
        (size >= 4 && strcmp(config->name + size - 4, ".tmp") == 0))
        return SHOAL_EINVAL;
    shoal_nid nid = sh_store_nid(config->store);
    SH_ASSERT(config->own.v == 0 || nid.v == 0 || config->own.v == nid.v);
    struct sh_dump *dump = calloc(1, sizeof *dump);
    if (!dump)
        return SHOAL_ENOMEM;
    dump->section = malloc(SH_SECTION_HEADER_BYTES + SH_SECTION_BYTES_WRITTEN);
    dump->other = malloc(SH_SECTION_HEADER_BYTES + SH_SECTION_BYTES_WRITTEN);
    if (!dump->section || !dump->other) {
        dump_free(dump);
        return SHOAL_ENOMEM;
    }
    dump->store = config->store;
    dump->io.disk = config->disk;
    dump->own = config->own.v ? config->own : nid;
    snprintf(dump->name, sizeof dump->name, "%s", config->name);
    snprintf(dump->temporary, sizeof dump->temporary, "%s.tmp", config->name);
    struct sh_store_status status;
    sh_store_status_get(dump->store, &status);
    dump->begun_bytes = status.payload_bytes;
    enum shoal_err err = config->disk->ops->claim(config->disk, dump->temporary, &dump->file);
    if (err) {
        dump_free(dump);
        return err;
    }
    dump->is_open = true;
    section_begin(dump);
    header_write(dump);
    *dump_out = dump;
    return SHOAL_OK;
}

struct sh_dump_state sh_dump_state_get(const struct sh_dump *dump)
{
    uint64_t done = dump->sums.payload_bytes;
    return (struct sh_dump_state){.is_over = dump->stage == DUMP_OVER,
                                  .err = dump->err,
                                  .phase = SH_DUMP_WRITING,
                                  .done_bytes = done,
                                  .all_bytes = done > dump->begun_bytes ? done : dump->begun_bytes,
                                  .sums = dump->sums,
                                  .fault.what = ""};
}

void sh_dump_cancel(struct sh_dump *dump)
{
    dump->is_canceled = true;
}

void sh_dump_end(struct sh_dump *dump)
{
    if (!dump)
        return;
    sh_dump_io_wait(&dump->io);
    if (dump->stage != DUMP_OVER)
        finish(dump, SHOAL_ECANCELED);
    dump_free(dump);
}

#define BUDGET_BYTES (1u << 20)

enum shoal_err sh_store_dump(struct sh_store *store, struct sh_disk *disk, const char *name,
                             sh_dump_progress progress, void *arg, struct sh_dump_sums *sums_out)
{
    struct sh_dump_config config = {.store = store, .disk = disk, .name = name};
    struct sh_dump *dump;
    enum shoal_err err = sh_dump_begin(&config, &dump);
    if (err)
        return err;
    struct sh_dump_state state;
    do {
        if (sh_dump_step(dump, BUDGET_BYTES) == 0)
            sh_dump_io_wait(&dump->io);
        state = sh_dump_state_get(dump);
        if (progress)
            progress(arg, state.done_bytes, state.all_bytes);
    } while (!state.is_over);
    sh_dump_end(dump);
    if (!state.err)
        *sums_out = state.sums;
    return state.err;
}
