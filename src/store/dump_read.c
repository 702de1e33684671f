#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "store/dump_int.h"
#include "store/witness_int.h"

/* What is read at a time: the largest section. */
#define WINDOW_BYTES (SH_SECTION_HEADER_BYTES + SH_SECTION_BYTES_MAX)

#define ANY UINT32_MAX

/* A chunk that comes in pieces. */
struct pieces {
    uint64_t cid;
    uint32_t size;
    uint32_t have;  /* == size: none is under way */
    uint8_t *bytes; /* when chunks are created only */
    size_t room;
};

struct section {
    unsigned kind;
    uint32_t size, records, crc;
    uint64_t index;
};

enum place { AT_HEADER, AT_SECTION, IN_SECTION, AT_END };

struct sh_load {
    struct sh_store *store;
    struct sh_dump_io io;
    const struct sh_load_source *source; /* NULL: the file on the disk */
    int file;
    bool is_open, is_canceled, is_over, is_reading;
    bool is_refused; /* the witness has no room for the chunk at hand, or more is to be told */
    struct sh_store_telling telling; /* of a large chunk: */
    shoal_cid told;
    enum shoal_err err;
    shoal_nid own;    /* NONE: chunks keep their whole IDs */
    uint32_t creator; /* of all chunks, with own; ANY: that of the first */
    bool (*is_elsewhere)(void *arg, shoal_cid cid);
    void *arg;
    uint64_t file_bytes;
    /* What is in memory of the file. */
    uint8_t *window;
    uint64_t window_at;
    size_t window_bytes;
    /* The pass at hand, and where it is. */
    enum sh_dump_phase phase;
    enum place place;
    uint64_t offset; /* of the section at hand */
    uint64_t index;  /* of the section at hand */
    struct section section;
    struct sh_reader r; /* what is left of its payload */
    uint32_t records;   /* of it that have begun */
    uint64_t run_cid;
    uint32_t run_left;
    struct pieces pieces;
    struct sh_dump_sums sums; /* of the pass; undoing: what is still there */
    uint64_t undo_left;       /* chunks that were created and are still to be looked at */
    /* IDs of the pool that the file's chunks have are from made_first on to before made_end. Of the
     * chunks that were created the load retains the IDs, and has a bit for each. */
    uint64_t made_first, made_end;
    struct sh_vm made;
    uint64_t made_word; /* ending: IDs are retained no more up to there */
    bool is_ending;
    struct sh_load_fault fault;
    uint64_t done_bytes;
};

static enum shoal_err fault(struct sh_load *load, enum shoal_err err, const char *what)
{
    if (load->phase == SH_LOAD_UNDOING)
        return err; /* what led here is what is told */
    load->fault.offset = load->offset;
    load->fault.what = what;
    return err;
}

static enum shoal_err chunk_fault(struct sh_load *load, enum shoal_err err, uint64_t cid,
                                  const char *what)
{
    if (load->phase != SH_LOAD_UNDOING)
        load->fault.cid.v = cid;
    return fault(load, err, what);
}

static enum shoal_err corrupt(struct sh_load *load, const char *what)
{
    return fault(load, SHOAL_ECORRUPT, what);
}

/* --- The file ------------------------------------------------------------------------------ */

/* Has bytes of the file in memory from load->offset on. EAGAIN: they must be read first. */
static enum shoal_err have(struct sh_load *load, size_t size, const uint8_t **at_out)
{
    if (size > load->file_bytes || load->offset > load->file_bytes - size)
        return fault(load, SHOAL_ETRUNCATED, "the file ends before its end section");
    if (load->offset < load->window_at ||
        load->offset + size > load->window_at + load->window_bytes)
        return SHOAL_EAGAIN;
    *at_out = load->window + (load->offset - load->window_at);
    return SHOAL_OK;
}

/* Begins to read what follows load->offset. */
static void window_read(struct sh_load *load)
{
    uint64_t left = load->file_bytes - load->offset;
    size_t size = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
    load->window_at = load->offset;
    load->window_bytes = 0;
    load->is_reading = true;
    if (load->source) {
        load->io.op = (struct sh_disk_op){.size = size};
        load->io.op.err = load->source->read(load->source->arg, load->offset, load->window, size,
                                             &load->io.op.done_bytes);
        return;
    }
    sh_dump_io_begin(&load->io, &(struct sh_disk_op){.kind = SH_DISK_READ,
                                                     .file = load->file,
                                                     .offset = load->offset,
                                                     .data = load->window,
                                                     .size = size});
}

/* What was read is there. */
static enum shoal_err window_take(struct sh_load *load, enum shoal_err err)
{
    load->is_reading = false;
    if (err)
        return fault(load, err, "");
    if (load->io.op.done_bytes < load->io.op.size)
        return fault(load, SHOAL_ETRUNCATED, "the file became shorter");
    load->window_bytes = load->io.op.done_bytes;
    return SHOAL_OK;
}

static bool crc_is_good(const uint8_t *header)
{
    return sh_load32(header + SH_SECTION_CRC_AT) ==
           sh_crc32c(0, sh_bytes_make(header, SH_SECTION_CRC_AT));
}

static enum shoal_err header_take(struct sh_load *load)
{
    const uint8_t *bytes;
    enum shoal_err err = have(load, SH_DUMP_HEADER_BYTES, &bytes);
    if (err)
        return err;
    if (memcmp(bytes, SH_DUMP_MAGIC, 8) != 0)
        return corrupt(load, "it does not begin as a dump does");
    if (!crc_is_good(bytes))
        return corrupt(load, "the checksum of the file's header is wrong");
    if (sh_load16(bytes + 8) != SH_DUMP_VERSION)
        return fault(load, SHOAL_EVERSION, "a dump of another version");
    for (unsigned i = 10; i < SH_SECTION_CRC_AT; i++)
        if (bytes[i] != 0)
            return corrupt(load, "reserved bytes of the file's header are set");
    load->offset = SH_DUMP_HEADER_BYTES;
    load->place = AT_SECTION;
    return SHOAL_OK;
}

static enum shoal_err section_header(struct sh_load *load, const uint8_t *bytes)
{
    struct section *section = &load->section;
    if (memcmp(bytes, SH_SECTION_MAGIC, 4) != 0 || !crc_is_good(bytes))
        return corrupt(load, "a section's header is damaged");
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes + 4, SH_SECTION_HEADER_BYTES - 4));
    section->kind = sh_get16(&r);
    uint16_t reserved = sh_get16(&r);
    section->index = sh_get64(&r);
    section->size = sh_get32(&r);
    section->records = sh_get32(&r);
    section->crc = sh_get32(&r);
    if (reserved || section->index != load->index || section->size == 0 ||
        section->size > SH_SECTION_BYTES_MAX)
        return corrupt(load, "a section's header makes no sense here");
    return SHOAL_OK;
}

/* Begins the section at hand, once all of it is in memory and has been checked. */
static enum shoal_err section_begin(struct sh_load *load)
{
    const uint8_t *bytes;
    enum shoal_err err = have(load, SH_SECTION_HEADER_BYTES, &bytes);
    if (!err)
        err = section_header(load, bytes);
    if (!err)
        err = have(load, SH_SECTION_HEADER_BYTES + (size_t)load->section.size, &bytes);
    if (err)
        return err;
    struct sh_bytes payload = sh_bytes_make(bytes + SH_SECTION_HEADER_BYTES, load->section.size);
    if (sh_crc32c(0, payload) != load->section.crc)
        return corrupt(load, "the checksum of a section's payload is wrong");
    bool inside = load->pieces.have < load->pieces.size;
    if (inside && load->section.kind != SH_SECTION_PIECE)
        return corrupt(load, "a chunk's last pieces are missing");
    load->r = sh_reader_make(payload);
    load->records = 0;
    load->run_left = 0;
    load->place = IN_SECTION;
    return SHOAL_OK;
}

static void section_over(struct sh_load *load)
{
    bool is_end = load->section.kind == SH_SECTION_END;
    load->offset += SH_SECTION_HEADER_BYTES + load->section.size;
    load->index++;
    load->place = is_end ? AT_END : AT_SECTION;
    if (load->phase == SH_LOAD_UNDOING)
        return;
    load->sums.sections += !is_end;
    load->done_bytes = load->offset + (load->phase == SH_LOAD_CREATING ? load->file_bytes : 0);
}

/* --- Chunks -------------------------------------------------------------------------------- */

/* The chunk's ID for the store's calls. */
static shoal_cid store_cid(const struct sh_load *load, uint64_t cid)
{
    return (shoal_cid){load->own.v ? shoal_cid_local((shoal_cid){cid}) : cid};
}

/* What it is, or would be, called here. */
static uint64_t here(const struct sh_load *load, uint64_t cid)
{
    return load->own.v ? shoal_cid_make(load->own, shoal_cid_local((shoal_cid){cid})).v : cid;
}

/* Whether a chunk's ID is one of the pool, for the load to retain: an own one but 0, which is never
 * handed out, as far as the table can grow. */
static bool is_of_pool(const struct sh_load *load, uint64_t cid)
{
    shoal_cid at = store_cid(load, cid);
    if (!sh_store_is_own(load->store, at))
        return false;
    uint64_t place = sh_store_place(load->store, at);
    return place != 0 && place < load->store->table.ids_max;
}

/* The word that has the ID's bit. NULL: the file had no chunk of that ID when it was checked. */
static uint64_t *made_bit(const struct sh_load *load, uint64_t cid, uint64_t *bit_out)
{
    uint64_t lid = shoal_cid_local((shoal_cid){cid});
    if (lid < load->made_first || lid >= load->made_end)
        return NULL;
    *bit_out = UINT64_C(1) << (lid & 63);
    return (uint64_t *)(void *)load->made.at + ((lid - load->made_first) >> 6);
}

static void lid_note(struct sh_load *load, uint64_t cid)
{
    uint64_t lid = shoal_cid_local((shoal_cid){cid});
    if (!is_of_pool(load, cid))
        return;
    if (load->made_end == 0 || lid < load->made_first)
        load->made_first = lid & ~UINT64_C(63);
    if (lid >= load->made_end)
        load->made_end = lid + 1;
}

static enum shoal_err chunk_check(struct sh_load *load, uint64_t cid, uint32_t size)
{
    uint32_t other;
    uint16_t creator = shoal_cid_creator((shoal_cid){cid}).v;
    if (load->creator == ANY)
        load->creator = creator;
    if (load->own.v != 0 && creator != load->creator)
        return chunk_fault(load, SHOAL_EINVAL, cid, "a chunk that another node created");
    if (size > load->store->chunk_bytes_max)
        return chunk_fault(load, SHOAL_ETOOBIG, cid, "a chunk is larger than this store takes");
    if (sh_store_size(load->store, store_cid(load, cid), &other) == SHOAL_OK)
        return chunk_fault(load, SHOAL_EEXIST, here(load, cid), "a chunk's ID is in use");
    if (load->is_elsewhere && load->is_elsewhere(load->arg, (shoal_cid){here(load, cid)}))
        return chunk_fault(load, SHOAL_EEXIST, here(load, cid), "a chunk is on another node");
    lid_note(load, cid);
    return SHOAL_OK;
}

/* Creates a chunk. EAGAIN: later, the same again. */
static enum shoal_err chunk_create(struct sh_load *load, uint64_t cid, struct sh_bytes data)
{
    struct sh_store *store = load->store;
    shoal_cid at = store_cid(load, cid);
    uint64_t bit = 0, *word = NULL;
    bool retain = is_of_pool(load, cid);
    if (retain) {
        word = made_bit(load, cid, &bit);
        if (!word)
            return SHOAL_ECORRUPT; /* the file was another when it was checked */
    }
    enum shoal_err err = SHOAL_OK;
    load->told = at;
    if (sh_store_is_witnessed(store) && data.size > SH_STORE_PIECE_BYTES)
        err = sh_witness_tell(store, at, data.at, (uint32_t)data.size, &load->telling);
    if (!err)
        err = sh_store_adopt_as(store, at, data, retain,
                                load->telling.has_begun ? &load->telling : NULL);
    if (!err && retain)
        *word |= bit;
    return err;
}

/* Removes a chunk that was created, unless all have been. Others may have removed it already: then
 * its ID is nobody's, since the load retains it. EAGAIN: later. */
static enum shoal_err chunk_undo(struct sh_load *load, uint64_t cid, uint32_t size)
{
    if (load->undo_left == 0)
        return SHOAL_OK;
    uint64_t bit;
    const uint64_t *word = made_bit(load, cid, &bit);
    enum shoal_err err = SHOAL_EBUSY;
    /* Else the file was another when the chunks were created. */
    if (!is_of_pool(load, cid) || (word && *word & bit))
        err = sh_store_remove(load->store, store_cid(load, cid));
    if (err == SHOAL_EAGAIN)
        return err;
    load->undo_left--;
    if (err && err != SHOAL_ENOCHUNK)
        return SHOAL_OK;
    load->sums.chunks--;
    load->sums.payload_bytes -= size;
    return SHOAL_OK;
}

/* bytes means something only where chunks are created. */
static enum shoal_err chunk_take(struct sh_load *load, uint64_t cid, const uint8_t *bytes,
                                 uint32_t size)
{
    enum shoal_err err = SHOAL_OK;
    switch (load->phase) {
    case SH_LOAD_CHECKING:
        err = chunk_check(load, cid, size);
        break;
    case SH_LOAD_CREATING:
        err = chunk_create(load, cid, sh_bytes_make(bytes, size));
        if (err && err != SHOAL_EAGAIN)
            chunk_fault(load, err, cid, "a chunk can't be created");
        break;
    default:
        err = chunk_undo(load, cid, size);
        load->is_refused = err == SHOAL_EAGAIN;
        return err;
    }
    load->is_refused = err == SHOAL_EAGAIN;
    if (!err) {
        load->sums.chunks++;
        load->sums.payload_bytes += size;
    }
    return err;
}

/* Goes on with a section of chunks, until the budget is used up or it is over. */
static enum shoal_err chunks_take(struct sh_load *load, unsigned budget, unsigned *done_inout)
{
    while (*done_inout < budget) {
        if (load->run_left == 0 && sh_reader_left(&load->r) == 0) {
            if (load->records != load->section.records)
                return corrupt(load, "a section of chunks holds another number of records");
            section_over(load);
            return SHOAL_OK;
        }
        if (load->run_left == 0) {
            load->run_cid = sh_get64(&load->r);
            load->run_left = sh_get32(&load->r);
            load->records++;
            if (load->run_left == 0 || load->run_cid + load->run_left < load->run_cid)
                return corrupt(load, "a run of chunks makes no sense");
        }
        const struct sh_reader before = load->r;
        uint32_t size = sh_get32(&load->r);
        const uint8_t *bytes = sh_reader_take(&load->r, size);
        if (!sh_reader_ok(&load->r))
            return corrupt(load, "a chunk is longer than its section");
        *done_inout += SH_DUMP_CHUNK_COST + size;
        enum shoal_err err = chunk_take(load, load->run_cid, bytes, size);
        if (err) {
            load->r = before;
            return err;
        }
        load->run_cid++;
        load->run_left--;
    }
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

static enum shoal_err piece_take(struct sh_load *load)
{
    struct pieces *pieces = &load->pieces;
    struct sh_reader *r = &load->r, before = *r;
    uint64_t cid = sh_get64(r);
    uint32_t size = sh_get32(r);
    uint32_t offset = sh_get32(r);
    uint32_t some = (uint32_t)sh_reader_left(r);
    const uint8_t *bytes = sh_reader_take(r, some);
    bool begins = pieces->have == pieces->size;
    if (!sh_reader_ok(r) || load->section.records != 1 || some == 0)
        return corrupt(load, "a piece of a chunk is malformed");
    if (begins)
        *pieces =
            (struct pieces){.cid = cid, .size = size, .bytes = pieces->bytes, .room = pieces->room};
    if (cid != pieces->cid || size != pieces->size || offset != pieces->have ||
        some > size - offset)
        return corrupt(load, "pieces of a chunk do not follow each other");
    if (load->phase == SH_LOAD_CREATING) {
        if (!pieces_room(pieces, (size_t)offset + some))
            return fault(load, SHOAL_ENOMEM, "no memory for a long chunk");
        memcpy(pieces->bytes + offset, bytes, some);
    }
    pieces->have += some;
    enum shoal_err err = SHOAL_OK;
    if (pieces->have == size)
        err = chunk_take(load, cid, pieces->bytes, size);
    if (err) { /* where the chunk is refused, its last piece is taken again */
        pieces->have -= some;
        load->r = before;
        return err;
    }
    section_over(load);
    return SHOAL_OK;
}

static enum shoal_err end_take(struct sh_load *load)
{
    struct sh_reader *r = &load->r;
    uint64_t chunks = sh_get64(r), payload_bytes = sh_get64(r), sections = sh_get64(r);
    if (!sh_reader_done(r) || load->section.records != 1)
        return corrupt(load, "the end section is malformed");
    if (load->phase != SH_LOAD_UNDOING &&
        (chunks != load->sums.chunks || payload_bytes != load->sums.payload_bytes ||
         sections != load->sums.sections))
        return corrupt(load, "the end section does not agree with what was before it");
    section_over(load);
    if (load->offset != load->file_bytes)
        return corrupt(load, "there is more behind the end section");
    return SHOAL_OK;
}

static enum shoal_err section_take(struct sh_load *load, unsigned budget, unsigned *done_inout)
{
    switch (load->section.kind) {
    case SH_SECTION_CHUNKS:
        return chunks_take(load, budget, done_inout);
    case SH_SECTION_PIECE:
        *done_inout += load->section.size;
        return piece_take(load);
    case SH_SECTION_END:
        return end_take(load);
    default:
        return corrupt(load, "a section of an unknown kind");
    }
}

/* --- Passes -------------------------------------------------------------------------------- */

static void pass_begin(struct sh_load *load, enum sh_dump_phase phase)
{
    load->phase = phase;
    load->place = AT_HEADER;
    load->offset = 0;
    load->index = 0;
    load->pieces.have = load->pieces.size = 0;
    load->window_bytes = 0; /* the file may have changed; what it says is checked anew */
    load->window_at = 0;
}

/* Gets the bits for the IDs of the chunks that are to be created. */
static enum shoal_err made_begin(struct sh_load *load)
{
    uint64_t words = (load->made_end - load->made_first + 63) >> 6;
    if (words == 0 || sh_vm_reserve(sh_pages(words * 8) << SH_PAGE_BITS, &load->made) == SHOAL_OK)
        return SHOAL_OK;
    return fault(load, SHOAL_ENOMEM, "no memory to note which chunks are created");
}

#define END_WORDS 16
#define PAGE_WORDS (SH_PAGE_BYTES / 8)
_Static_assert(PAGE_WORDS % END_WORDS == 0, "a piece is in one page");

/* Retains some IDs no more. Returns how many bytes of a budget that was; 0: none was left. */
static unsigned made_end_some(struct sh_load *load)
{
    sh_lid lids[END_WORDS * 64];
    uint64_t words = (load->made_end - load->made_first + 63) >> 6, end;
    size_t count = 0;
    if (!load->made.at || load->made_word == words)
        return 0;
    end = words - load->made_word < END_WORDS ? words : load->made_word + END_WORDS;
    for (; load->made_word < end; load->made_word++) {
        const uint64_t *made = (const uint64_t *)(void *)load->made.at;
        uint64_t first = load->made_first + load->made_word * 64;
        for (uint64_t bits = made[load->made_word]; bits != 0; bits &= bits - 1)
            lids[count++] = (sh_lid){first + (uint64_t)__builtin_ctzll(bits)};
    }
    sh_idpool_unretain(load->store->pool, lids, count);
    if (end % PAGE_WORDS == 0) /* little is left to be unmapped at once */
        (void)sh_vm_discard(&load->made, (end - PAGE_WORDS) * 8, SH_PAGE_BYTES);
    return SH_DUMP_CHUNK_COST + (unsigned)count * SH_DUMP_GROUP_COST;
}

/* Nothing is left to create or to undo; then IDs are let go of. */
static void finish(struct sh_load *load)
{
    if (load->is_open)
        load->io.disk->ops->close(load->io.disk, load->file);
    load->is_open = false;
    load->is_ending = true;
    load->sums.file_bytes = load->err ? 0 : load->offset;
    load->sums.sections = load->err ? 0 : load->sums.sections;
    free(load->pieces.bytes);
    load->pieces.bytes = NULL;
    if (load->err && load->err != SHOAL_ECANCELED)
        SH_WARN("store", "not loaded", SH_TEXT("cause", shoal_err_text(load->err)),
                SH_TEXT("what", load->fault.what), SH_U64("at", load->fault.offset),
                SH_U64("chunk", load->fault.cid.v), SH_U64("chunks_left", load->sums.chunks));
}

/* The witness hears no more of a chunk of which it was told a part. */
static void telling_end(struct sh_load *load)
{
    sh_witness_end(load->store, load->told, &load->telling, 0, false);
}

/* A pass can't go on. */
static void give_up(struct sh_load *load, enum shoal_err err)
{
    telling_end(load);
    enum sh_dump_phase phase = load->phase;
    if (phase != SH_LOAD_UNDOING)
        load->err = err;
    if (phase == SH_LOAD_CHECKING)
        load->sums = (struct sh_dump_sums){0};
    if (phase == SH_LOAD_CREATING && load->sums.chunks > 0) {
        load->undo_left = load->sums.chunks;
        pass_begin(load, SH_LOAD_UNDOING);
        return;
    }
    finish(load);
}

/* Whether the file's chunks can't fit, so that they need not be tried. */
static bool is_hopeless(const struct sh_load *load)
{
    struct sh_store_status status;
    sh_store_status_get(load->store, &status);
    uint64_t taken = status.used_bytes - status.free_bytes;
    return taken > status.bytes_max || load->sums.payload_bytes > status.bytes_max - taken;
}

/* The end section of a pass has been read. */
static void pass_over(struct sh_load *load)
{
    if (load->phase != SH_LOAD_CHECKING) {
        finish(load);
        return;
    }
    if (is_hopeless(load)) {
        give_up(load, fault(load, SHOAL_EFULL, "its chunks are more than the store has room for"));
        return;
    }
    enum shoal_err err = made_begin(load);
    if (err) {
        give_up(load, err);
        return;
    }
    load->sums = (struct sh_dump_sums){0};
    pass_begin(load, SH_LOAD_CREATING);
}

static enum shoal_err place_run(struct sh_load *load, unsigned budget, unsigned *done_inout)
{
    switch (load->place) {
    case AT_HEADER:
        return header_take(load);
    case AT_SECTION:
        if (load->phase == SH_LOAD_UNDOING && load->undo_left == 0)
            finish(load);
        else
            return section_begin(load);
        return SHOAL_OK;
    case IN_SECTION:
        return section_take(load, budget, done_inout);
    case AT_END:
        pass_over(load);
        return SHOAL_OK;
    }
    SH_ASSERT(false);
    return SHOAL_EINTERNAL;
}

static unsigned end_some(struct sh_load *load)
{
    unsigned done = made_end_some(load);
    if (done == 0) {
        sh_vm_release(&load->made);
        load->is_over = true;
    }
    return done;
}

unsigned sh_load_step(struct sh_load *load, unsigned budget_bytes)
{
    unsigned done = 0;
    while (!load->is_ending && done < budget_bytes) {
        enum shoal_err err;
        if (!sh_dump_io_settled(&load->io, &err))
            break;
        err = load->is_reading ? window_take(load, err) : SHOAL_OK;
        if (!err && load->is_canceled && load->phase != SH_LOAD_UNDOING)
            err = fault(load, SHOAL_ECANCELED, "canceled");
        if (!err) {
            bool begins = load->place == AT_SECTION;
            err = place_run(load, budget_bytes, &done);
            if (begins && load->place == IN_SECTION)
                done += load->section.size / 4;
        }
        if (err == SHOAL_EAGAIN && load->is_refused) {
            load->is_refused = false;
            break;
        }
        if (err == SHOAL_EAGAIN)
            window_read(load);
        else if (err)
            give_up(load, err);
    }
    while (load->is_ending && !load->is_over && done < budget_bytes)
        done += end_some(load);
    return done;
}

/* --- Beginning and end --------------------------------------------------------------------- */

static enum shoal_err load_make(const struct sh_dump_config *config, struct sh_load **load_out)
{
    shoal_nid nid = sh_store_nid(config->store);
    SH_ASSERT(config->own.v == 0 || nid.v == 0 || config->own.v == nid.v);
    SH_ASSERT(config->own.v != 0 || !config->rename);
    struct sh_load *load = calloc(1, sizeof *load);
    if (!load)
        return SHOAL_ENOMEM;
    load->window = malloc(WINDOW_BYTES);
    if (!load->window) {
        free(load);
        return SHOAL_ENOMEM;
    }
    load->store = config->store;
    load->own = config->own;
    load->is_elsewhere = config->is_elsewhere;
    load->arg = config->arg;
    load->creator = config->rename ? ANY : config->own.v;
    load->fault.what = "";
    pass_begin(load, SH_LOAD_CHECKING);
    *load_out = load;
    return SHOAL_OK;
}

enum shoal_err sh_load_begin(const struct sh_dump_config *config, struct sh_load **load_out)
{
    if (!sh_dump_name_is_good(config->name))
        return SHOAL_EINVAL;
    struct sh_load *load;
    struct sh_disk *disk = config->disk;
    enum shoal_err err = load_make(config, &load);
    if (err)
        return err;
    load->io.disk = disk;
    err = sh_disk_open(disk, config->name, false, &load->file);
    load->is_open = !err;
    if (!err)
        err = disk->ops->size(disk, load->file, &load->file_bytes);
    if (err) {
        sh_load_end(load);
        return err;
    }
    *load_out = load;
    return SHOAL_OK;
}

struct sh_dump_state sh_load_state_get(const struct sh_load *load)
{
    return (struct sh_dump_state){.is_over = load->is_over,
                                  .err = load->err,
                                  .phase = load->phase,
                                  .done_bytes = load->done_bytes,
                                  .all_bytes = 2 * load->file_bytes,
                                  .sums = load->sums,
                                  .fault = load->fault};
}

void sh_load_cancel(struct sh_load *load)
{
    load->is_canceled = true;
}

void sh_load_end(struct sh_load *load)
{
    if (!load)
        return;
    sh_dump_io_wait(&load->io);
    if (load->is_open)
        load->io.disk->ops->close(load->io.disk, load->file);
    while (made_end_some(load) > 0)
        continue;
    sh_vm_release(&load->made);
    telling_end(load);
    free(load->pieces.bytes);
    free(load->window);
    free(load);
}

#define BUDGET_BYTES (1u << 20)

/* Does all of a load and ends it. */
static enum shoal_err load_run(struct sh_load *load, sh_dump_progress progress, void *arg,
                               struct sh_dump_sums *sums_out, struct sh_load_fault *fault_out)
{
    struct sh_dump_state state;
    do {
        if (sh_load_step(load, BUDGET_BYTES) == 0)
            sh_dump_io_wait(&load->io);
        state = sh_load_state_get(load);
        if (progress)
            progress(arg, state.done_bytes, state.all_bytes);
    } while (!state.is_over);
    sh_load_end(load);
    *sums_out = state.sums;
    if (state.err && fault_out)
        *fault_out = state.fault;
    return state.err;
}

enum shoal_err sh_store_load_from(struct sh_store *store, const struct sh_load_source *source,
                                  sh_dump_progress progress, void *arg,
                                  struct sh_dump_sums *sums_out, struct sh_load_fault *fault_out)
{
    struct sh_load *load;
    struct sh_dump_config config = {.store = store};
    *sums_out = (struct sh_dump_sums){0};
    enum shoal_err err = load_make(&config, &load);
    if (err)
        return err;
    load->source = source;
    load->file_bytes = source->bytes;
    return load_run(load, progress, arg, sums_out, fault_out);
}

enum shoal_err sh_store_load(struct sh_store *store, struct sh_disk *disk, const char *name,
                             sh_dump_progress progress, void *arg, struct sh_dump_sums *sums_out,
                             struct sh_load_fault *fault_out)
{
    struct sh_dump_config config = {.store = store, .disk = disk, .name = name};
    struct sh_load *load;
    *sums_out = (struct sh_dump_sums){0};
    enum shoal_err err = sh_load_begin(&config, &load);
    if (err)
        return err;
    return load_run(load, progress, arg, sums_out, fault_out);
}
