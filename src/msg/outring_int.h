/* The outgoing ring: any number of threads write messages into one stretch of memory side by side,
 * and one consumer takes out, in order, what is complete. DXNet 2018 §IV.
 *
 *        done                    ready                         reserved
 *          |  complete, not sent   |  being written, some done   |
 *   -------+-----------------------+-----------------------------+------
 *   slots:                          0    74    0    22            one for each message reserved
 *
 * A writer reserves bytes and a slot with one compare-and-swap on one word, writes, and leaves the
 * message's length in its slot; it never waits for one before it. The consumer goes from slot to
 * slot as long as there are lengths: those are the catch-up slots of the paper, whose notes are
 * read by a slower writer there and by the consumer here, so that a writer does the same whether it
 * was overtaken or not. Positions grow for ever (mod 2^33); the memory is mapped twice in a row, so
 * that every message and every push is contiguous and there is no wrap to write around.
 *
 * The word: 1 bit closed, 4 bits generation, 26 bits slot, 33 bits position. While it is closed
 * nobody reserves. A ring that is closed and quiet (every slot has been collected) may be grown,
 * emptied or unmapped by its owner.
 *
 * Threads: reserve and complete from any; all else under the owner's lock. Reclamation: the memory
 * changes hands only while the ring is closed and quiet, so no writer holds a pointer into it; what
 * the consumer pushes without the lock it keeps as `retired` until the push is over.
 *
 * What is left to chance: a writer that stalls between its look at the word and its swap, while
 * exactly 2^26 messages (or a multiple) pass and the position comes back to the same byte, would
 * not notice, and could count on room that is taken again. Below the limit that does no harm, since
 * a ring cannot hold more than its position says; above it, it takes such a stall, of 10 s and more
 * at 6 million messages a second, to end at one message of 67 million. */
#ifndef SH_MSG_OUTRING_INT_H
#define SH_MSG_OUTRING_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/unmap.h"
#include "shoal/err.h"

#define SH_OUTRING_SLOTS 1024
#define SH_OUTRING_POSITION_BITS 33
#define SH_OUTRING_SLOT_BITS 26
#define SH_OUTRING_GENERATION_MASK 0xFu

struct sh_outring {
    _Alignas(64) _Atomic uint64_t reserved;
    /* What the consumer has given back: slots collected, bytes sent. 26 bits slot, 33 position. */
    _Alignas(64) _Atomic uint64_t done;
    /* Written while closed and quiet; read by whoever has reserved, and under the lock. */
    uint8_t *base;
    uint64_t room; /* 0: not mapped; else a power of two and a multiple of the page size */
    /* Message lengths, header included; 0: not complete. Mapped with the ring. */
    _Atomic uint32_t *slots;
    /* Under the lock. */
    uint64_t ready;
    uint64_t messages; /* collected since the ring was born */
    bool sending;
    bool draining; /* dropped while some were writing: opened again when they are through */
    uint8_t *retired;
    uint64_t retired_room;
    struct sh_unmaps *unmaps;
};

struct sh_outring_place {
    uint8_t *at;
    uint32_t slot;
    uint64_t end; /* the position behind it */
};

enum sh_outring_result {
    SH_OUTRING_OK,
    SH_OUTRING_FULL,   /* as far as can be seen without the lock */
    SH_OUTRING_CLOSED, /* or of another generation */
};

/* A ring is born closed and without memory. What it gives back it adds to unmaps, which it keeps. */
void sh_outring_init(struct sh_outring *ring, struct sh_unmaps *unmaps);

/* Reserves bytes for one message, if no more than limit are then waiting (or nothing is, when the
 * ring has the room) and the ring is open in that generation. Any thread; never waits. */
enum sh_outring_result sh_outring_reserve(struct sh_outring *ring, uint32_t generation,
                                          uint64_t bytes, uint64_t limit,
                                          struct sh_outring_place *place_out);

/* Hands a reserved message to the consumer. Any thread; never waits. */
void sh_outring_complete(struct sh_outring *ring, uint32_t slot, uint32_t bytes);

/* --- Under the owner's lock -------------------------------------------------------------- */

bool sh_outring_is_open(const struct sh_outring *ring);
void sh_outring_close(struct sh_outring *ring);
/* Opens a closed ring; it must have memory (sh_outring_grow) and not be draining. */
void sh_outring_open(struct sh_outring *ring, uint32_t generation);

/* Reserves in a closed ring, where nobody else does, as far as its memory goes. False: there is no
 * room, or no slot. */
bool sh_outring_append(struct sh_outring *ring, uint64_t bytes, struct sh_outring_place *place_out);

/* Takes note of what has been completed: ready moves on, slots become free. */
void sh_outring_collect(struct sh_outring *ring);
/* True when nobody is writing: everything reserved has been collected. */
bool sh_outring_is_quiet(const struct sh_outring *ring);
/* Bytes reserved and not sent. */
uint64_t sh_outring_used(const struct sh_outring *ring);

/* How many unsent bytes are before a position, which is not sent yet or has just been. */
uint64_t sh_outring_before(const struct sh_outring *ring, uint64_t position);

/* What is complete and unsent; the consumer may read it without the lock until sh_outring_sent. */
struct sh_bytes sh_outring_take(struct sh_outring *ring);
/* The first `bytes` of what was taken have been sent. An empty ring starts again at the front of
 * its memory, whose cache lines are warm; one that had grown beyond `usual` gives it back. */
void sh_outring_sent(struct sh_outring *ring, uint64_t bytes, uint64_t usual);

/* Makes the memory large enough for what is in it and `bytes` more, at least `usual`. Closed and
 * quiet. ENOMEM, also when that would be 2^33 bytes and more, changes nothing. */
SHOAL_NODISCARD enum shoal_err sh_outring_grow(struct sh_outring *ring, uint64_t bytes,
                                               uint64_t usual);

/* Closes it and drops everything unsent. If somebody is writing it drains: call
 * sh_outring_drained until true. Its memory is given back when it is quiet. */
void sh_outring_drop(struct sh_outring *ring);
bool sh_outring_drained(struct sh_outring *ring);

/* Gives all memory back. Nobody may be writing. */
void sh_outring_unmap(struct sh_outring *ring);

#endif
