/* Chunk memory: many small objects, packed, found by ID. DESIGN: Chunk memory; DXRAM thesis §1.3.4.
 *
 * One store holds the chunks of one node: those that it created itself (own), and those that other
 * nodes created and that moved here (foreign). A chunk is an ID and 0 to chunk_bytes_max bytes.
 *
 *   chunk ID --> group (32 bytes, for 16 consecutive IDs) --> block: the 16 chunks, packed
 *                                                                |
 *                                                  long chunks: a block of their own
 *
 * A 64-byte chunk costs 66 resident bytes, a get two cache misses. Own local IDs are handed out in
 * sequence from 1 (0 is kept for the node's own names chunk) and reused, smallest first, after a
 * removal, so that IDs form long ranges.
 *
 * Threads: every function but create and destroy may be called from any thread. A get never sees
 * half of a put to the same chunk, takes no lock and writes nothing that others read, unless it
 * lost against writers several times. Puts to different chunks never wait for each other; creating,
 * removing and resizing a chunk make those of its group of 16 wait for a copy of at most 20 KiB
 * (resizing one of more bytes: of as many). Nothing here blocks on anything but a short lock, and
 * nothing calls back except sh_store_read, and what changes chunks the witness.
 *
 * Reclamation: the reserved address ranges stay mapped for the store's life. A reader that lost a
 * race reads bytes that are something else by now, or zeros where pages went back to the kernel;
 * the group's sequence word then differs from what it was before, and the reader tries again. It
 * never follows a pointer before it has checked the word that was read with it. Whoever writes
 * bytes that somebody may still be reading writes whole atomic words (group_int.h, copy_int.h).
 */
#ifndef SH_STORE_STORE_H
#define SH_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"
#include "shoal/types.h"

struct sh_store;

/* An own chunk is named by its chunk ID. A store without a node ID (0) has chunk IDs that are their
 * local IDs, which is what programs and tests without a cluster use. */
typedef shoal_cid sh_lid;

struct sh_store_config {
    uint64_t bytes_max;       /* most bytes for chunks, tables and all else; at least 1 MiB */
    uint32_t chunk_bytes_max; /* largest chunk, at most 1 GiB */
    shoal_nid nid;            /* whose IDs are created; may come later: sh_store_nid_set */
    /* What creating and growing must leave of bytes_max, so that removing, defragmenting and
     * sh_store_adopt work in a full store. 0: a 64th. */
    uint64_t reserve_bytes;
    bool small_pages; /* never huge pages for chunks. Without it, chunks of a store over 64 MiB lie
                       * in huge pages where the kernel has any: no more resident memory, and fewer
                       * page faults and TLB misses */
    bool defers;  /* somebody calls sh_store_defrag again and again, in whose calls blocks of more
                  * than 256 KiB go back to the kernel, and not where they come free */
    bool readies; /* a thread of the store's own makes huge pages ready ahead of use, a 32nd of the
                   * store and 32 MiB at most: a call that touches the first byte of one waits for
                   * the kernel for 0.4 ms, or 5 where that must move other memory. Without effect
                   * with small_pages */
};

/* Reserves the address ranges. ENOMEM, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_store_create(const struct sh_store_config *config,
                                               struct sh_store **store_out);
/* Frees everything. NULL is allowed. No other thread may be using it. */
void sh_store_destroy(struct sh_store *store);

/* Sets the node ID of a store that was created without one. IDs that it gave out before are its
 * local IDs and become those of the node. The same again is allowed, another is not. */
void sh_store_nid_set(struct sh_store *store, shoal_nid nid);
/* Whether it was: else the IDs that it has created are without a node's. */
bool sh_store_has_nid(const struct sh_store *store);

/* IDs in which an earlier life of the node may have created chunks are never handed out again: local
 * IDs begin above base, and stay below end, which the caller has stored for the next life. Before
 * the first chunk is created, at most once; base is a multiple of SH_STORE_IDS_BLOCK, below end, which is
 * at most SHOAL_LOCAL_ID_MAX. A chunk of an earlier life may be adopted, as another node's may. */
#define SH_STORE_IDS_BLOCK (UINT64_C(1) << 20)
void sh_store_ids_begin(struct sh_store *store, uint64_t base, uint64_t end);
/* Local IDs up to this one, which may be 0, are an earlier life's. */
uint64_t sh_store_ids_base(const struct sh_store *store);
/* Moves the end up. Any thread. */
void sh_store_ids_allow(struct sh_store *store, uint64_t end);
/* Local IDs below this one were handed out, or asked for in vain. Any thread. */
uint64_t sh_store_ids_wanted(const struct sh_store *store);

/* --- Creating ------------------------------------------------------------------------------ */

/* Creates count own chunks of the given sizes, all zero bytes, and writes their IDs, in order, to
 * cids_out. All or nothing: EFULL (no chunk memory left; sh_store_shortage_last says by how much)
 * and ETOOBIG (a size over the limit) leave the store as it was, and cids_out with no meaning; so does
 * EBUSY (so many IDs are not allowed yet: sh_store_ids_allow). Who
 * iterates meanwhile may see a part of the batch. Runs of fresh IDs are consecutive. */
SHOAL_NODISCARD enum shoal_err sh_store_new(struct sh_store *store, const uint32_t *sizes,
                                            size_t count, shoal_cid *cids_out);
/* The same for count chunks of one size. */
SHOAL_NODISCARD enum shoal_err sh_store_new_many(struct sh_store *store, uint32_t size,
                                                 size_t count, shoal_cid *cids_out);

struct sh_store_wish {
    const uint32_t *sizes; /* borrowed; NULL: all are of one size */
    uint32_t size;
    size_t count;
    bool consecutive; /* IDs must follow each other; EFULL when no such run is left */
    bool partial;     /* stop where memory, or the witness's room, ends instead of undoing */
    bool reserve;     /* only reserve the IDs: sizes are ignored, chunks do not exist before
                       * sh_store_fill; memory for tables is taken now */
    bool retain;      /* where it succeeds, the caller retains the IDs (below); not with partial */
};
/* The general form of the above. *made_out: how many of cids_out are set; with partial, OK when
 * that is at least one. May be NULL. */
SHOAL_NODISCARD enum shoal_err sh_store_new_as(struct sh_store *store,
                                               const struct sh_store_wish *wish,
                                               shoal_cid *cids_out, size_t *made_out);

/* Who retains the IDs of chunks may remove the chunks by ID later, though others may have removed
 * some of them meanwhile: the ID of a removed chunk is handed out to nobody before this call. Once
 * for each ID, by who retains it; those of removed chunks are free afterwards. Any thread. */
void sh_store_unretain(struct sh_store *store, const shoal_cid *cids, size_t count);

/* The same in pieces, for steps: begin, step until it returns true, end. Wish (its sizes, not
 * itself) and cids are kept until the end; partial and retain are not for this, and count is 1 to
 * 2^20. Until it is over it may yet fail and undo what it has made; others can see, and remove,
 * what is made. cids means something when end says OK. One thread at a time. begin: ETOOBIG, EFULL,
 * ENOMEM; of a wish of many sizes, which are looked at in steps, end says so. */
struct sh_store_making;
SHOAL_NODISCARD enum shoal_err sh_store_making_begin(struct sh_store *store,
                                                     const struct sh_store_wish *wish,
                                                     shoal_cid *cids,
                                                     struct sh_store_making **making_out);
/* Does the next piece: makes or undoes about so many chunks, but zeroes no more than
 * SH_STORE_PIECE_BYTES of long ones, or looks at some sizes (2^15), or takes or gives back as many
 * IDs (consecutive ones are taken all at once), or gives the kernel 2 MiB of what free slots hold.
 * Where the witness has no room it makes none, and the next step goes on. */
SHOAL_NODISCARD bool sh_store_making_step(struct sh_store_making *making, size_t chunks_most);
/* Lets it undo what it has made and fail with that (not EFULL), unless it is about to be over. */
void sh_store_making_fail(struct sh_store_making *making, enum shoal_err err);
/* Frees it, once it is over. */
SHOAL_NODISCARD enum shoal_err sh_store_making_end(struct sh_store_making *making);

/* Makes the chunk of a reserved ID, with its bytes. ENOCHUNK when the ID is not reserved (or filled
 * already); EFULL and ETOOBIG leave it reserved. The local ID 0, which is never given out, counts as
 * reserved while it has no chunk, but for data of more than SH_STORE_PIECE_BYTES in pieces. */
SHOAL_NODISCARD enum shoal_err sh_store_fill(struct sh_store *store, shoal_cid cid,
                                             struct sh_bytes data);
/* Gives a reserved ID back unfilled. ENOCHUNK when it is not reserved. */
SHOAL_NODISCARD enum shoal_err sh_store_unreserve(struct sh_store *store, shoal_cid cid);

/* Creates a chunk under a given ID, own or foreign, with its bytes: for migration, recovery and
 * load. May use the reserve. EEXIST when it exists or is reserved, and of an own ID also for a
 * moment while another thread creates or removes it, when gets do not find it; EFULL, ETOOBIG;
 * EINVAL for an own local ID of 2^40 or more, or a foreign local ID of 2^48 or more. */
SHOAL_NODISCARD enum shoal_err sh_store_adopt(struct sh_store *store, shoal_cid cid,
                                              struct sh_bytes data);

/* Lets go of a chunk that is another node's from now on: as sh_store_remove, but an own ID stays
 * taken, as if it was reserved, since the chunk still exists elsewhere. ENOCHUNK; EBUSY while it is
 * pinned. */
SHOAL_NODISCARD enum shoal_err sh_store_release(struct sh_store *store, shoal_cid cid);
/* The same of a chunk that was taken over a moment ago, and goes back: no witness refuses it
 * (SH_STORE_UNMADE). */
SHOAL_NODISCARD enum shoal_err sh_store_hand_back(struct sh_store *store, shoal_cid cid);
/* Takes a chunk, own or foreign, that moves here from another node: as sh_store_adopt, but an own
 * ID is one that was let go of, and ENOCHUNK says that it was not. */
SHOAL_NODISCARD enum shoal_err sh_store_take_over(struct sh_store *store, shoal_cid cid,
                                                  struct sh_bytes data);

/* What the calling thread's last EFULL was about. */
struct sh_store_shortage {
    uint64_t needed_bytes; /* what the call would have needed, at least */
    uint64_t left_bytes;   /* what was left of bytes_max, less the reserve */
};
struct sh_store_shortage sh_store_shortage_last(void);
/* The same for people, with what the store uses, as "64 of 128 bytes are used: ...". */
void sh_store_shortage_text(const struct sh_store *store, char *text_out, size_t room);

/* --- One chunk: all may fail with ENOCHUNK ------------------------------------------------- */

SHOAL_NODISCARD enum shoal_err sh_store_size(struct sh_store *store, shoal_cid cid,
                                             uint32_t *size_out);

/* Copies the whole chunk into `into`. ESIZE when room is smaller than the chunk: then *size_out is
 * its size and nothing that means anything is copied. */
SHOAL_NODISCARD enum shoal_err sh_store_get(struct sh_store *store, shoal_cid cid, void *into,
                                            size_t room, uint32_t *size_out);
/* Copies bytes offset to offset + size of it. ESIZE when the chunk ends before. */
SHOAL_NODISCARD enum shoal_err sh_store_get_part(struct sh_store *store, shoal_cid cid,
                                                 uint32_t offset, void *into, uint32_t size);

/* Replaces the chunk's bytes. data.size must be the chunk's size, else ESIZE. */
SHOAL_NODISCARD enum shoal_err sh_store_put(struct sh_store *store, shoal_cid cid,
                                            struct sh_bytes data);
/* Replaces its bytes from offset on. ESIZE when the chunk ends before. */
SHOAL_NODISCARD enum shoal_err sh_store_put_part(struct sh_store *store, shoal_cid cid,
                                                 uint32_t offset, struct sh_bytes data);

/* Replaces the chunk's bytes if they are `expected` (put_if: byte for byte; put_if_hash: by
 * sh_hash64 with seed 0). EDIFFERS when they are not: nothing is changed. ESIZE as in put; an
 * `expected` of another size is EDIFFERS. */
SHOAL_NODISCARD enum shoal_err sh_store_put_if(struct sh_store *store, shoal_cid cid,
                                               struct sh_bytes expected, struct sh_bytes data);
SHOAL_NODISCARD enum shoal_err sh_store_put_if_hash(struct sh_store *store, shoal_cid cid,
                                                    uint64_t expected, struct sh_bytes data);

/* Adds to a little-endian field of width 4 or 8 bytes at offset, modulo its width, and says what
 * was there before. Any alignment. ESIZE when the chunk ends before. */
SHOAL_NODISCARD enum shoal_err sh_store_add(struct sh_store *store, shoal_cid cid, uint32_t offset,
                                            unsigned width, uint64_t delta, uint64_t *old_out);

/* Changes the chunk's size; what it loses is gone, what it gains is zero bytes. EBUSY while it is
 * pinned; EFULL and ETOOBIG leave it as it was. Getting shorter may use the reserve: a long chunk
 * is copied. */
SHOAL_NODISCARD enum shoal_err sh_store_resize(struct sh_store *store, shoal_cid cid,
                                               uint32_t size);

/* Removes the chunk; an own ID may be handed out again at once. EBUSY while it is pinned. */
SHOAL_NODISCARD enum shoal_err sh_store_remove(struct sh_store *store, shoal_cid cid);

/* Keeps the chunk where it is, and in being, until as many unpins, and says where: an address that
 * is a multiple of 8. The caller may read and write there, unordered with everybody else: gets by
 * others then are whole only as far as the caller's own rules make them. No witness is told of what
 * is written there: sh_store_retell does it. EFULL; ELIMIT at 2^31 pins. */
SHOAL_NODISCARD enum shoal_err sh_store_pin(struct sh_store *store, shoal_cid cid, uint8_t **at_out,
                                            uint32_t *size_out);
/* EINVAL when it is not pinned. */
SHOAL_NODISCARD enum shoal_err sh_store_unpin(struct sh_store *store, shoal_cid cid);

/* Reads a chunk in place: calls read with its bytes, which are stable during the call (writers to
 * it wait). read must be short, must not call the store, and gets arg. */
SHOAL_NODISCARD enum shoal_err sh_store_read(struct sh_store *store, shoal_cid cid,
                                             void (*read)(void *arg, struct sh_bytes chunk),
                                             void *arg);

/* --- One large chunk in pieces ------------------------------------------------------------- */

/* What takes long with a large chunk, for steps: begun, stepped until it is over, and ended. Each
 * step copies, compares or zeroes SH_STORE_STEP_BYTES at most, and nothing is held from one to the
 * next: others may read and write the chunk meanwhile, and what comes of it is as if all had been
 * done at once. Reading sees by the chunk's stamp that it was written to, and starts again. Writing
 * makes a second block beside the chunk's own, with the new bytes, and puts it in its place.
 *
 * Where that does not work, it is done at once, by the functions above: a write where there is no
 * memory for a second block, or where the chunk is pinned; and anything that others have made start
 * again SH_STORE_TRIES times. The step then takes as long as a copy of the chunk, of
 * chunk_bytes_max at most: 10 to 30 ms for 64 MiB. With a witness it is never done at once (see
 * there): no memory for a second block is EFULL, a pinned chunk EBUSY. */
#define SH_STORE_PIECE_BYTES (UINT32_C(256) << 10)
/* Into memory that is touched for the first time this takes 50 to 250 us, by machine: a page fault
 * for each 4 KiB. */
#define SH_STORE_STEP_BYTES (UINT32_C(64) << 10)
#define SH_STORE_TRIES 8

/* Of sh_store_get_part; all of a chunk is a part of it. Owned by the caller, who sets what comes
 * first, and to whom `into` means something once it is over. */
struct sh_store_reading {
    shoal_cid cid;
    uint8_t *into;
    uint32_t offset, size;
    bool is_whole; /* ESIZE also where the chunk is longer */
    /* The store's; zeros. */
    uint32_t done;
    unsigned tries;
    uint64_t block, stamp;
};
/* Does a piece; true: it is over, and *err_out is set. */
SHOAL_NODISCARD bool sh_store_reading_step(struct sh_store *store, struct sh_store_reading *reading,
                                           enum shoal_err *err_out);

enum sh_store_rewrite_kind {
    SH_STORE_PUT,
    SH_STORE_PUT_PART,
    SH_STORE_PUT_IF,
    SH_STORE_PUT_IF_HASH,
    SH_STORE_RESIZE,
    SH_STORE_FILL,
    SH_STORE_ADD,
    SH_STORE_RETELL,
};

/* One of the functions of these names; which members count, its arguments say. */
struct sh_store_rewrite {
    enum sh_store_rewrite_kind kind;
    shoal_cid cid;
    uint32_t offset;
    uint32_t size;
    unsigned width;
    uint64_t hash, delta;
    struct sh_bytes expected, data; /* borrowed until the end */
    uint64_t *old_out;              /* of an addition; borrowed as well */
};
struct sh_store_rewriting;
/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_store_rewriting_begin(struct sh_store *store,
                                                        const struct sh_store_rewrite *rewrite,
                                                        struct sh_store_rewriting **rewriting_out);
/* Does a piece; true: it is over. False may also mean that the witness had no room: then the next step
 * asks it again, so that EAGAIN is never the end of it. */
SHOAL_NODISCARD bool sh_store_rewriting_step(struct sh_store_rewriting *rewriting);
/* Frees it, and says what came of it. Before it is over: nothing did, ECANCELED. */
SHOAL_NODISCARD enum shoal_err sh_store_rewriting_end(struct sh_store_rewriting *rewriting);
/* All at once, by the function of that name. */
SHOAL_NODISCARD enum shoal_err sh_store_rewrite_do(struct sh_store *store,
                                                   const struct sh_store_rewrite *rewrite);

/* Of sh_store_take_over: a chunk of more than SH_STORE_PIECE_BYTES that comes in pieces, written in
 * order. Nobody sees it before its end, and others may do to its ID what they like until then. Owned
 * by the caller; the members are the store's. */
struct sh_store_arriving {
    shoal_cid cid;
    uint32_t size, done;
    struct sh_store_telling {
        uint32_t told; /* bytes that the witness has been told */
        bool has_begun;
    } telling;
    uint64_t block; /* 0: it is over */
};
/* Takes the memory. ETOOBIG, EFULL. */
SHOAL_NODISCARD enum shoal_err sh_store_arriving_begin(struct sh_store *store, shoal_cid cid,
                                                       uint32_t size,
                                                       struct sh_store_arriving *arriving_out);
/* Writes the next bytes, no more than are missing. */
void sh_store_arriving_put(struct sh_store *store, struct sh_store_arriving *arriving,
                           struct sh_bytes data);
/* Once no byte is missing: makes the chunk. Errors of sh_store_take_over; it is dropped then. But
 * EAGAIN, which only comes where there is a witness, drops nothing: the witness has been told a piece,
 * or has no room for it, and this is to be called again in a later step. */
SHOAL_NODISCARD enum shoal_err sh_store_arriving_end(struct sh_store *store,
                                                     struct sh_store_arriving *arriving);
/* Gives the memory back. Of no effect once it is over. */
void sh_store_arriving_drop(struct sh_store *store, struct sh_store_arriving *arriving);

/* --- Several chunks ------------------------------------------------------------------------ */

/* One of several operations; err, and size for a get, are set by the call. */
struct sh_store_op {
    shoal_cid lid;
    void *data; /* get: where to; put, adopt: what (read only); adopt: NULL is zeros */
    uint32_t
        size; /* get: room, then the chunk's size; put, adopt: bytes of data; resize: the new size */
    enum shoal_err err;
};

/* Does count gets, puts, resizes or removes, overlapping their cache misses. Each op has its own
 * err; returns how many succeeded. */
size_t sh_store_get_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
size_t sh_store_put_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
size_t sh_store_resize_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
size_t sh_store_remove_multi(struct sh_store *store, const shoal_cid *cids, size_t count,
                             enum shoal_err *errs_out);
/* Adopts count chunks, each as sh_store_adopt does, whose errors each op may have. Chunks that follow each other in ops, with
 * ascending IDs of one group (of 16: local ID / 16), are made at once. Where the caller brings whole groups, a chunk costs a
 * quarter of what it does alone. */
size_t sh_store_adopt_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
/* The same of sh_store_take_over; own chunks are taken over alone. */
size_t sh_store_take_over_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);

/* Asks the caches for a chunk that is about to be used: first for its group, and some dozens of
 * nanoseconds later, best after asking for others', for its data. Changes nothing. */
enum sh_store_part { SH_STORE_ENTRY, SH_STORE_DATA };
void sh_store_prefetch(const struct sh_store *store, shoal_cid cid, enum sh_store_part part);

/* The next range of existing IDs at or after `from`: first_out to last_out, both included and of
 * one creator, as long as it gets, cut at 2^13 IDs. Own chunks come under their chunk IDs among the
 * others, in rising order. False when there is none. Concurrent creates and removes may or may not
 * be seen. It looks at each group up to the range's end, so a call takes time with the free IDs
 * that come before: 2 bytes to be read for each. */
bool sh_store_range(struct sh_store *store, shoal_cid from, shoal_cid *first_out,
                    shoal_cid *last_out);
/* The first of that range alone: for who takes chunks one by one, to whom the rest of a long range is said again and again. */
bool sh_store_next(const struct sh_store *store, shoal_cid from, shoal_cid *cid_out);

/* --- The witness --------------------------------------------------------------------------- */

/* A witness is told of every change of a chunk, in the order of the changes to that chunk: module
 * backup is one, which copies each new image to other nodes.
 *
 * It is told within the chunk's write section: with the chunk, or its group of 16, held, so that
 * nobody else changes or reads it meanwhile. A section asks first (admit), then changes, then tells
 * (record), or says that nothing came of it (cancel); a create, or an adoption of several, may ask for
 * up to 16 chunks of its group, in a row, before it tells of them in the same order. Sections of different chunks are open
 * at the same time, in different threads, so between an admit and its record others may come.
 *
 * The witness must be quick, must not block and must not call the store; nor may a lock that it takes
 * be held by anybody who calls the store, or who waits for such a one: a caller waits for the chunk
 * that the witness's caller holds. Its locks' ranks are above STORE_LEASES.
 *
 * Without a witness nothing here happens. With one:
 *   - What the witness returns from admit, the operation returns, and has changed nothing. EAGAIN, no
 *     room now, is the store's only EAGAIN (but for that of sh_store_arriving_end). Operations in
 *     pieces and sh_store_making go on in a later step instead.
 *   - An image of more than SH_STORE_PIECE_BYTES is told in pieces, which only sh_store_rewriting_* and
 *     sh_store_arriving_* do. The functions that do all at once (put, put_part, put_if, put_if_hash,
 *     add, resize, fill, adopt, take_over, retell, and those for several) refuse such a one with ELIMIT,
 *     changing nothing. Chunks that are removed, and those that are all zeros (created, or resized from
 *     0 bytes), are told at once, whatever their size.
 *   - A create of several chunks that fails in the middle removes those that it has made, and
 *     sh_store_hand_back one; the witness cannot refuse that (SH_STORE_UNMADE).
 *   - Reserving an ID, pinning a chunk, moving its block, and a write through a pin change no chunk:
 *     nobody is told. */
enum sh_store_event {
    SH_STORE_MADE,     /* created, filled, adopted or taken over */
    SH_STORE_WRITTEN,  /* another image, maybe of another size; or the same, retold */
    SH_STORE_REMOVED,  /* and its ID may be another chunk's from now on */
    SH_STORE_RELEASED, /* it is another node's now */
    SH_STORE_UNMADE,   /* removed, as the create or move that made it fails */
};

struct sh_store_witness {
    /* Before anything has changed: is there room for an image of so many bytes, 0 for a removal, in the place
     * of one of size_before, 0 of a chunk that is made? Each OK
     * is followed by one record or cancel, in the same thread and section. Of SH_STORE_UNMADE it must
     * be OK. */
    enum shoal_err (*admit)(void *arg, shoal_cid cid, enum sh_store_event event,
                            uint32_t size_before, uint32_t size);
    /* It has happened, and nobody has seen it yet. The image is all of the chunk's bytes, stable during
     * the call; at NULL with a size, as many zeros; nothing of a removal. */
    void (*record)(void *arg, shoal_cid cid, enum sh_store_event event, struct sh_bytes image);
    /* Instead of record: it failed after all. */
    void (*cancel)(void *arg, shoal_cid cid, enum sh_store_event event, uint32_t size);
    /* A large image is about to be told in pieces. From OK to pieces_end the witness admits no other
     * change of this chunk, but SH_STORE_UNMADE, and none of any chunk of which it wants to keep the
     * order with this one. What it has admitted before may still be recorded. Called from no section;
     * EAGAIN: later. */
    enum shoal_err (*pieces_begin)(void *arg, shoal_cid cid, uint32_t size_before, uint32_t size);
    /* The next bytes, at most SH_STORE_STEP_BYTES, in order and without a gap. EAGAIN: later, the same
     * again. The last ones stay until pieces_end says that it was made. The chunk may be held. */
    enum shoal_err (*piece)(void *arg, shoal_cid cid, uint32_t offset, struct sh_bytes bytes,
                            bool is_last);
    /* Made: within the section in which that image becomes the chunk's, before anybody sees it, and
     * after the last piece. Else, at any time, even after the last piece: none of it counts. */
    void (*pieces_end)(void *arg, shoal_cid cid, uint32_t size_before, bool is_made);
    void *arg;
};
/* Before other threads use the store. Copies the struct, and keeps its arg until the store's end or
 * another witness; NULL: nobody is told, as at first. Chunks that are there already are not told of:
 * sh_store_retell. */
void sh_store_witness_set(struct sh_store *store, const struct sh_store_witness *witness);
/* From now on the calling thread makes, fills and removes chunks of which the witness knows already, or is not to hear: recovery, of
 * chunks that nobody else uses. false: no more. */
void sh_store_witness_pause(bool is_paused);

/* Tells the witness of a chunk as it is (SH_STORE_WRITTEN), though nothing has changed: to copy what was
 * there before, or was written through a pin. ENOCHUNK, ELIMIT: a large one is retold by rewriting it
 * (SH_STORE_RETELL), which needs no second block, and may be pinned. */
SHOAL_NODISCARD enum shoal_err sh_store_retell(struct sh_store *store, shoal_cid cid);

/* --- Memory -------------------------------------------------------------------------------- */

/* Where the memory goes. Bytes are resident bytes unless said otherwise. Exact while no thread is
 * at work; else each figure is recent, and they need not agree. */
struct sh_store_status {
    uint64_t chunks;
    uint64_t payload_bytes; /* sum of the chunks' sizes */
    uint64_t table_bytes;   /* groups, and the bitmap of free IDs */
    uint64_t block_bytes;   /* blocks in use, with what is free in them */
    uint64_t free_bytes;    /* touched but free: can be used again without the kernel */
    uint64_t other_bytes;   /* allocator's and store's own structures */
    uint64_t used_bytes;    /* table + block + free + other: what counts against bytes_max */
    uint64_t bytes_max;
    uint64_t reserve_bytes;
    uint64_t creates, removes, gets, puts; /* operations since the start */
};
void sh_store_status_get(const struct sh_store *store, struct sh_store_status *status_out);

/* Defragmentation: packs groups whose blocks are too large for them, moves the blocks of packs that
 * are mostly free into fuller ones, folds unpinned chunks back, and gives memory to the kernel. It
 * goes over all groups in rounds, about `budget` groups (of 16 IDs) each call, and other operations
 * run meanwhile. Returns how many groups it looked at; 0: there was nothing to do, or another
 * thread is at it. A round begins when the waste passes a threshold (sh_store_waste_is_high), or
 * with `force`. */
unsigned sh_store_defrag(struct sh_store *store, unsigned budget, bool force);
/* One whole round, forced, to its end. */
void sh_store_defrag_all(struct sh_store *store);
/* True when more than a 16th of what blocks hold, and 1 MiB, is waste. Cheap. */
bool sh_store_waste_is_high(const struct sh_store *store);

#endif
