/* Chunk memory: many small objects, packed, found by ID. DESIGN: Chunk memory; DXRAM thesis §1.3.4.
 *
 * One store holds the chunks that one node created: a chunk is a local ID (48 bits) and 0 to
 * chunk_bytes_max bytes. Memory is one reserved address range that is touched as it is needed;
 * tables map local IDs to blocks of it; blocks carry no header. Local IDs are handed out in
 * sequence from 1 (0 is kept for the node's own names chunk) and reused, smallest first, after a
 * removal, so that IDs form long ranges.
 *
 * Threads: every function but create and destroy may be called from any thread. A get never sees
 * half of a put to the same chunk. Operations on different chunks wait for each other only
 * briefly. Nothing here blocks on anything but a short lock, and nothing calls back except
 * sh_store_each.
 */
#ifndef SH_STORE_STORE_H
#define SH_STORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

struct sh_store;

/* A chunk's local ID: the lower 48 bits of its chunk ID. */
typedef struct sh_lid {
    uint64_t v;
} sh_lid;

struct sh_store_config {
    uint64_t bytes_max;       /* most bytes for chunks, tables and all else; at least 1 MiB */
    uint32_t chunk_bytes_max; /* largest chunk, at most 1 GiB */
};

/* Reserves the address range. ENOMEM, EINVAL. */
SHOAL_NODISCARD enum shoal_err sh_store_create(const struct sh_store_config *config,
                                               struct sh_store **store_out);
/* Frees everything. NULL is allowed. No other thread may be using it. */
void sh_store_destroy(struct sh_store *store);

/* Creates count chunks of the given sizes, all zero bytes, and writes their IDs, in order, to
 * lids_out. All or nothing: EFULL (no chunk memory left) and ETOOBIG (a size over the limit)
 * leave the store as it was, and lids_out with no meaning; nobody sees a part of the batch. Runs of
 * fresh IDs are consecutive. */
SHOAL_NODISCARD enum shoal_err sh_store_new(struct sh_store *store, const uint32_t *sizes,
                                            size_t count, sh_lid *lids_out);
/* The same for count chunks of one size. */
SHOAL_NODISCARD enum shoal_err sh_store_new_many(struct sh_store *store, uint32_t size,
                                                 size_t count, sh_lid *lids_out);

/* The chunk's size. ENOCHUNK. */
SHOAL_NODISCARD enum shoal_err sh_store_size(struct sh_store *store, sh_lid lid,
                                             uint32_t *size_out);

/* Copies the whole chunk into `into`. ENOCHUNK; ESIZE when room is smaller than the chunk: then
 * *size_out is its size and nothing is copied. */
SHOAL_NODISCARD enum shoal_err sh_store_get(struct sh_store *store, sh_lid lid, void *into,
                                            size_t room, uint32_t *size_out);

/* Replaces the chunk's bytes. data.size must be the chunk's size, else ESIZE. ENOCHUNK. */
SHOAL_NODISCARD enum shoal_err sh_store_put(struct sh_store *store, sh_lid lid,
                                            struct sh_bytes data);

/* Removes the chunk; its ID may be handed out again at once. ENOCHUNK. */
SHOAL_NODISCARD enum shoal_err sh_store_remove(struct sh_store *store, sh_lid lid);

/* One of several operations; err, and size for a get, are set by the call. */
struct sh_store_op {
    sh_lid lid;
    void *data;    /* get: where to; put: what (read only) */
    uint32_t size; /* get: room, then the chunk's size; put: bytes at data */
    enum shoal_err err;
};

/* Does count gets, puts or removes, overlapping their cache misses. Each op has its own err;
 * returns how many succeeded. */
size_t sh_store_get_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
size_t sh_store_put_multi(struct sh_store *store, struct sh_store_op *ops, size_t count);
size_t sh_store_remove_multi(struct sh_store *store, const sh_lid *lids, size_t count,
                             enum shoal_err *errs_out);

/* Asks the caches for a chunk that is about to be used: first for its table entry, and some dozens
 * of nanoseconds later, best after asking for others', for its data. Changes nothing. Any thread.
 */
enum sh_store_part { SH_STORE_ENTRY, SH_STORE_DATA };
void sh_store_prefetch(const struct sh_store *store, sh_lid lid, enum sh_store_part part);

/* Reads a chunk in place: calls read with its bytes, which are stable during the call (writers to
 * it and other readers of it wait). read must be short, must not call the store, and gets arg.
 * ENOCHUNK. */
SHOAL_NODISCARD enum shoal_err sh_store_read(struct sh_store *store, sh_lid lid,
                                             void (*read)(void *arg, struct sh_bytes chunk),
                                             void *arg);

/* The next range of existing IDs at or after `from`: first_out to last_out, both included, as
 * long as it gets, cut at 2^16 IDs. False when there is none. Concurrent creates and removes may
 * or may not be seen. */
bool sh_store_range(struct sh_store *store, sh_lid from, sh_lid *first_out, sh_lid *last_out);

/* Where the memory goes. Bytes are resident bytes unless said otherwise. Exact while no thread is
 * at work; else each figure is recent, and they need not agree. */
struct sh_store_status {
    uint64_t chunks;
    uint64_t payload_bytes; /* sum of the chunks' sizes */
    uint64_t table_bytes;   /* ID tables */
    uint64_t block_bytes;   /* blocks in use, with what rounding wastes in them */
    uint64_t free_bytes;    /* touched but free: can be used again without the kernel */
    uint64_t other_bytes;   /* allocator's and store's own structures */
    uint64_t used_bytes;    /* table + block + free + other: what counts against bytes_max */
    uint64_t bytes_max;
    uint64_t creates, removes, gets, puts; /* operations since the start */
};
void sh_store_status_get(const struct sh_store *store, struct sh_store_status *status_out);

#endif
