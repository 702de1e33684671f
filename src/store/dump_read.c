#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/dump_int.h"

/* A chunk that comes in pieces. */
struct pieces {
    uint64_t cid;
    uint32_t size;
    uint32_t have;  /* == size: none is under way */
    uint8_t *bytes; /* the second pass only */
    size_t room;
};

/* One pass over a file. */
struct pass {
    struct sh_store *store; /* NULL: only check */
    const struct sh_load_source *source;
    uint64_t offset;  /* of the section at hand */
    uint8_t *payload; /* room for one */
    struct pieces pieces;
    struct sh_dump_sums sums;
    bool ended;
    struct sh_load_fault fault;
    sh_dump_progress progress;
    void *arg;
};

struct section {
    unsigned kind;
    uint32_t size, records, crc;
    uint64_t index;
};

static enum shoal_err fault(struct pass *pass, enum shoal_err err, const char *what)
{
    pass->fault.offset = pass->offset;
    pass->fault.what = what;
    return err;
}

static enum shoal_err corrupt(struct pass *pass, const char *what)
{
    return fault(pass, SHOAL_ECORRUPT, what);
}

static enum shoal_err read_all(struct pass *pass, uint64_t offset, void *into, size_t size)
{
    size_t got = 0;
    if (size > pass->source->bytes || offset > pass->source->bytes - size)
        return fault(pass, SHOAL_ETRUNCATED, "the file ends before its end section");
    enum shoal_err err = pass->source->read(pass->source->arg, offset, into, size, &got);
    if (err)
        return fault(pass, err, "");
    return got == size ? SHOAL_OK : fault(pass, SHOAL_ETRUNCATED, "the file became shorter");
}

static bool crc_is_good(const uint8_t *header)
{
    return sh_load32(header + SH_SECTION_CRC_AT) ==
           sh_crc32c(0, sh_bytes_make(header, SH_SECTION_CRC_AT));
}

static enum shoal_err header_read(struct pass *pass)
{
    uint8_t bytes[SH_DUMP_HEADER_BYTES];
    enum shoal_err err = read_all(pass, 0, bytes, sizeof bytes);
    if (err)
        return err;
    if (memcmp(bytes, SH_DUMP_MAGIC, 8) != 0)
        return corrupt(pass, "it does not begin as a dump does");
    if (!crc_is_good(bytes))
        return corrupt(pass, "the checksum of the file's header is wrong");
    if (sh_load16(bytes + 8) != SH_DUMP_VERSION)
        return fault(pass, SHOAL_EVERSION, "a dump of another version");
    for (unsigned i = 10; i < SH_SECTION_CRC_AT; i++)
        if (bytes[i] != 0)
            return corrupt(pass, "reserved bytes of the file's header are set");
    pass->offset = SH_DUMP_HEADER_BYTES;
    return SHOAL_OK;
}

static enum shoal_err section_read(struct pass *pass, struct section *section)
{
    uint8_t bytes[SH_SECTION_HEADER_BYTES];
    enum shoal_err err = read_all(pass, pass->offset, bytes, sizeof bytes);
    if (err)
        return err;
    if (memcmp(bytes, SH_SECTION_MAGIC, 4) != 0 || !crc_is_good(bytes))
        return corrupt(pass, "a section's header is damaged");
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes + 4, sizeof bytes - 4));
    section->kind = sh_get16(&r);
    uint16_t reserved = sh_get16(&r);
    section->index = sh_get64(&r);
    section->size = sh_get32(&r);
    section->records = sh_get32(&r);
    section->crc = sh_get32(&r);
    if (reserved || section->index != pass->sums.sections || section->size == 0 ||
        section->size > SH_SECTION_BYTES_MAX)
        return corrupt(pass, "a section's header makes no sense here");
    err = read_all(pass, pass->offset + sizeof bytes, pass->payload, section->size);
    if (err)
        return err;
    if (sh_crc32c(0, sh_bytes_make(pass->payload, section->size)) != section->crc)
        return corrupt(pass, "the checksum of a section's payload is wrong");
    return SHOAL_OK;
}

static enum shoal_err chunk_take(struct pass *pass, uint64_t cid, struct sh_bytes bytes)
{
    enum shoal_err err =
        pass->store ? sh_store_adopt(pass->store, (shoal_cid){cid}, bytes) : SHOAL_OK;
    if (err) {
        pass->fault.cid.v = cid;
        return fault(pass, err, "a chunk can't be created");
    }
    pass->sums.chunks++;
    pass->sums.payload_bytes += bytes.size;
    return SHOAL_OK;
}

static enum shoal_err chunks_take(struct pass *pass, const struct section *section)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(pass->payload, section->size));
    uint32_t records = 0;
    while (sh_reader_left(&r) > 0) {
        uint64_t cid = sh_get64(&r);
        uint32_t count = sh_get32(&r);
        records++;
        if (count == 0 || cid + count < cid)
            return corrupt(pass, "a run of chunks makes no sense");
        for (uint32_t i = 0; i < count; i++) {
            uint32_t size = sh_get32(&r);
            const uint8_t *bytes = sh_reader_take(&r, size);
            if (!sh_reader_ok(&r))
                return corrupt(pass, "a chunk is longer than its section");
            enum shoal_err err = chunk_take(pass, cid + i, sh_bytes_make(bytes, size));
            if (err)
                return err;
        }
    }
    if (!sh_reader_done(&r) || records != section->records)
        return corrupt(pass, "a section of chunks holds another number of records");
    return SHOAL_OK;
}

/* Makes room for the pieces so far, twice as much each time: a size that a file only claims never
 * costs memory. */
static bool pieces_room(struct pieces *pieces, size_t needed)
{
    if (needed <= pieces->room)
        return true;
    size_t room = pieces->room * 2 > needed ? pieces->room * 2 : needed;
    uint8_t *bytes = realloc(pieces->bytes, room);
    if (!bytes)
        return false;
    pieces->bytes = bytes;
    pieces->room = room;
    return true;
}

static enum shoal_err piece_take(struct pass *pass, const struct section *section)
{
    struct pieces *pieces = &pass->pieces;
    struct sh_reader r = sh_reader_make(sh_bytes_make(pass->payload, section->size));
    uint64_t cid = sh_get64(&r);
    uint32_t size = sh_get32(&r);
    uint32_t offset = sh_get32(&r);
    uint32_t some = (uint32_t)sh_reader_left(&r);
    const uint8_t *bytes = sh_reader_take(&r, some);
    bool begins = pieces->have == pieces->size;
    if (!sh_reader_ok(&r) || section->records != 1 || some == 0)
        return corrupt(pass, "a piece of a chunk is malformed");
    if (begins)
        *pieces =
            (struct pieces){.cid = cid, .size = size, .bytes = pieces->bytes, .room = pieces->room};
    if (cid != pieces->cid || size != pieces->size || offset != pieces->have ||
        some > size - offset)
        return corrupt(pass, "pieces of a chunk do not follow each other");
    if (pass->store) {
        if (!pieces_room(pieces, (size_t)offset + some))
            return fault(pass, SHOAL_ENOMEM, "no memory for a long chunk");
        memcpy(pieces->bytes + offset, bytes, some);
    }
    pieces->have += some;
    if (pieces->have < size)
        return SHOAL_OK;
    return chunk_take(pass, cid, sh_bytes_make(pieces->bytes, size));
}

static enum shoal_err end_take(struct pass *pass, const struct section *section)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(pass->payload, section->size));
    bool same = sh_get64(&r) == pass->sums.chunks;
    same &= sh_get64(&r) == pass->sums.payload_bytes;
    same &= sh_get64(&r) == pass->sums.sections;
    pass->ended = true;
    if (!sh_reader_done(&r) || section->records != 1 || !same)
        return corrupt(pass, "the end section does not agree with what was before it");
    return SHOAL_OK;
}

static enum shoal_err section_take(struct pass *pass, const struct section *section)
{
    bool inside = pass->pieces.have < pass->pieces.size;
    if (inside && section->kind != SH_SECTION_PIECE)
        return corrupt(pass, "a chunk's last pieces are missing");
    switch (section->kind) {
    case SH_SECTION_CHUNKS:
        return chunks_take(pass, section);
    case SH_SECTION_PIECE:
        return piece_take(pass, section);
    case SH_SECTION_END:
        return end_take(pass, section);
    default:
        return corrupt(pass, "a section of an unknown kind");
    }
}

static enum shoal_err pass_run(struct pass *pass, uint64_t done_bytes)
{
    enum shoal_err err = header_read(pass);
    while (!err && !pass->ended) {
        struct section section;
        err = section_read(pass, &section);
        if (!err)
            err = section_take(pass, &section);
        if (err)
            break;
        pass->offset += SH_SECTION_HEADER_BYTES + section.size;
        pass->sums.sections += !pass->ended;
        if (pass->progress)
            pass->progress(pass->arg, done_bytes + pass->offset, 2 * pass->source->bytes);
    }
    if (!err && pass->offset != pass->source->bytes)
        err = corrupt(pass, "there is more behind the end section");
    pass->sums.file_bytes = pass->offset;
    return err;
}

enum shoal_err sh_store_load_from(struct sh_store *store, const struct sh_load_source *source,
                                  sh_dump_progress progress, void *arg,
                                  struct sh_dump_sums *sums_out, struct sh_load_fault *fault_out)
{
    struct pass checked = {.source = source, .progress = progress, .arg = arg};
    struct pass loaded = {.store = store, .source = source, .progress = progress, .arg = arg};
    checked.fault.what = "";
    loaded.fault.what = "";
    uint8_t *payload = malloc(SH_SECTION_BYTES_MAX);
    if (!payload)
        return SHOAL_ENOMEM;
    checked.payload = payload;
    loaded.payload = payload;
    enum shoal_err err = pass_run(&checked, 0);
    const struct sh_load_fault *found = &checked.fault;
    if (!err) {
        err = pass_run(&loaded, source->bytes);
        found = &loaded.fault;
    }
    free(loaded.pieces.bytes);
    free(payload);
    *sums_out = loaded.sums;
    if (err && fault_out)
        *fault_out = *found;
    if (err)
        SH_WARN("store", "not loaded", SH_TEXT("cause", shoal_err_text(err)),
                SH_TEXT("what", found->what), SH_U64("at", found->offset),
                SH_U64("chunk", found->cid.v), SH_U64("chunks_loaded", loaded.sums.chunks));
    return err;
}

/* --- From a disk --------------------------------------------------------------------------- */

struct on_disk {
    struct sh_disk *disk;
    int file;
};

static void note_done(struct sh_disk_op *op)
{
    *(bool *)op->arg = true;
}

static enum shoal_err disk_read(void *arg, uint64_t offset, void *into, size_t size,
                                size_t *got_out)
{
    const struct on_disk *on = arg;
    bool done = false;
    struct sh_disk_op op = {.kind = SH_DISK_READ,
                            .file = on->file,
                            .offset = offset,
                            .data = into,
                            .size = size,
                            .done = note_done,
                            .arg = &done};
    enum shoal_err err;
    while ((err = sh_disk_submit(on->disk, &op)) == SHOAL_EAGAIN)
        (void)sh_disk_poll(on->disk, true);
    while (!err && !done)
        (void)sh_disk_poll(on->disk, true);
    *got_out = op.done_bytes;
    return err ? err : op.err;
}

enum shoal_err sh_store_load(struct sh_store *store, struct sh_disk *disk, const char *name,
                             sh_dump_progress progress, void *arg, struct sh_dump_sums *sums_out,
                             struct sh_load_fault *fault_out)
{
    struct on_disk on = {.disk = disk};
    struct sh_load_source source = {.read = disk_read, .arg = &on};
    *sums_out = (struct sh_dump_sums){0};
    enum shoal_err err = sh_disk_open(disk, name, false, &on.file);
    if (err)
        return err;
    err = disk->ops->size(disk, on.file, &source.bytes);
    if (!err)
        err = sh_store_load_from(store, &source, progress, arg, sums_out, fault_out);
    disk->ops->close(disk, on.file);
    return err;
}
