#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "msg/outring_int.h"

#define CLOSED (UINT64_C(1) << 63)
#define POSITION_MASK ((UINT64_C(1) << SH_OUTRING_POSITION_BITS) - 1)
#define SLOT_MASK ((1u << SH_OUTRING_SLOT_BITS) - 1)
#define GENERATION_SHIFT (SH_OUTRING_POSITION_BITS + SH_OUTRING_SLOT_BITS)
#define SLOTS_BYTES (SH_OUTRING_SLOTS * sizeof(uint32_t))

static uint64_t pack(uint32_t generation, uint32_t slot, uint64_t position)
{
    return (uint64_t)(generation & SH_OUTRING_GENERATION_MASK) << GENERATION_SHIFT |
           (uint64_t)(slot & SLOT_MASK) << SH_OUTRING_POSITION_BITS | (position & POSITION_MASK);
}

static uint64_t position_of(uint64_t word)
{
    return word & POSITION_MASK;
}

static uint32_t slot_of(uint64_t word)
{
    return (uint32_t)(word >> SH_OUTRING_POSITION_BITS) & SLOT_MASK;
}

static uint32_t generation_of(uint64_t word)
{
    return (uint32_t)(word >> GENERATION_SHIFT) & SH_OUTRING_GENERATION_MASK;
}

/* --- Memory -------------------------------------------------------------------------------- */

/* Maps room bytes twice in a row, and the slots behind. NULL: out of memory. */
static uint8_t *memory_map(uint64_t room)
{
    int file = memfd_create("shoal-ring", MFD_CLOEXEC);
    if (file < 0)
        return NULL;
    uint8_t *base = MAP_FAILED;
    if (ftruncate(file, (off_t)room) == 0)
        base = mmap(NULL, 2 * room + SLOTS_BYTES, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base != MAP_FAILED) {
        int how = MAP_SHARED | MAP_FIXED;
        if (mmap(base, room, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED ||
            mmap(base + room, room, PROT_READ | PROT_WRITE, how, file, 0) == MAP_FAILED) {
            munmap(base, 2 * room + SLOTS_BYTES);
            base = MAP_FAILED;
        }
    }
    close(file);
    return base == MAP_FAILED ? NULL : base;
}

static void memory_unmap(struct sh_outring *ring, uint8_t *base, uint64_t room)
{
    if (base)
        sh_unmaps_add(ring->unmaps, base, 2 * room + SLOTS_BYTES, room);
}

static uint64_t power_of_two_above(uint64_t value)
{
    uint64_t power = 4096;
    while (power < value)
        power *= 2;
    return power;
}

/* --- Writers ------------------------------------------------------------------------------- */

void sh_outring_init(struct sh_outring *ring, struct sh_unmaps *unmaps)
{
    *ring = (struct sh_outring){.unmaps = unmaps};
    atomic_init(&ring->reserved, CLOSED);
}

enum sh_outring_result sh_outring_reserve(struct sh_outring *ring, uint32_t generation,
                                          uint64_t bytes, uint64_t limit,
                                          struct sh_outring_place *place_out)
{
    /* acquire: the memory's place; pairs with release in sh_outring_open, through the chain of
     * swaps that follow it */
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_acquire);
    for (;;) {
        if (word & CLOSED || generation_of(word) != (generation & SH_OUTRING_GENERATION_MASK))
            return SH_OUTRING_CLOSED;
        /* acquire: the consumer has read what it gave back; pairs with release in give_back. Read
         * after the word: an older value only makes the ring look fuller. */
        uint64_t done = atomic_load_explicit(&ring->done, memory_order_acquire);
        uint64_t used = (position_of(word) - position_of(done)) & POSITION_MASK;
        uint32_t slots_used = (slot_of(word) - slot_of(done)) & SLOT_MASK;
        if (used + bytes > limit || slots_used >= SH_OUTRING_SLOTS)
            return SH_OUTRING_FULL;
        uint64_t next = pack(generation, slot_of(word) + 1, position_of(word) + bytes);
        if (atomic_compare_exchange_weak_explicit(&ring->reserved, &word, next,
                                                  memory_order_acq_rel, memory_order_acquire))
            break;
    }
    place_out->at = ring->base + (position_of(word) & (ring->room - 1));
    place_out->slot = slot_of(word) % SH_OUTRING_SLOTS;
    place_out->end = (position_of(word) + bytes) & POSITION_MASK;
    return SH_OUTRING_OK;
}

void sh_outring_complete(struct sh_outring *ring, uint32_t slot, uint32_t bytes)
{
    SH_ASSERT(bytes > 0);
    /* release: the message; pairs with acquire in sh_outring_collect */
    atomic_store_explicit(&ring->slots[slot], bytes, memory_order_release);
}

/* --- The owner ----------------------------------------------------------------------------- */

bool sh_outring_is_open(const struct sh_outring *ring)
{
    return !(atomic_load_explicit(&ring->reserved, memory_order_relaxed) & CLOSED);
}

void sh_outring_close(struct sh_outring *ring)
{
    /* acq_rel: reservations are before it or find it closed */
    atomic_fetch_or_explicit(&ring->reserved, CLOSED, memory_order_acq_rel);
}

void sh_outring_open(struct sh_outring *ring, uint32_t generation)
{
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_relaxed);
    SH_ASSERT((word & CLOSED) && ring->room > 0 && !ring->draining);
    /* release: base, room and slots; pairs with acquire in sh_outring_reserve */
    atomic_store_explicit(&ring->reserved, pack(generation, slot_of(word), position_of(word)),
                          memory_order_release);
}

static uint64_t head_of(const struct sh_outring *ring)
{
    return position_of(atomic_load_explicit(&ring->done, memory_order_relaxed));
}

static uint32_t back_of(const struct sh_outring *ring)
{
    return slot_of(atomic_load_explicit(&ring->done, memory_order_relaxed));
}

static void give_back(struct sh_outring *ring, uint32_t slot, uint64_t head)
{
    /* release: slots cleared and bytes read; pairs with acquire in sh_outring_reserve */
    atomic_store_explicit(&ring->done, pack(0, slot, head), memory_order_release);
}

void sh_outring_collect(struct sh_outring *ring)
{
    if (!ring->slots)
        return;
    uint32_t back = back_of(ring);
    const uint32_t first = back;
    for (;;) {
        _Atomic uint32_t *slot = &ring->slots[back % SH_OUTRING_SLOTS];
        /* acquire: the message; pairs with release in sh_outring_complete */
        uint32_t bytes = atomic_load_explicit(slot, memory_order_acquire);
        if (bytes == 0)
            break;
        /* relaxed: published to its next user by give_back */
        atomic_store_explicit(slot, 0, memory_order_relaxed);
        ring->ready = (ring->ready + bytes) & POSITION_MASK;
        back = (back + 1) & SLOT_MASK;
        if (((back - first) & SLOT_MASK) == SH_OUTRING_SLOTS)
            break; /* a full lap: the rest may be reserved anew only after this is given back */
    }
    ring->messages += (back - first) & SLOT_MASK;
    if (back != first)
        give_back(ring, back, head_of(ring));
}

bool sh_outring_append(struct sh_outring *ring, uint64_t bytes, struct sh_outring_place *place_out)
{
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_relaxed);
    SH_ASSERT(word & CLOSED);
    uint32_t slots_used = (slot_of(word) - back_of(ring)) & SLOT_MASK;
    if (sh_outring_used(ring) + bytes > ring->room || slots_used >= SH_OUTRING_SLOTS)
        return false;
    uint64_t end = position_of(word) + bytes;
    *place_out =
        (struct sh_outring_place){.at = ring->base + (position_of(word) & (ring->room - 1)),
                                  .slot = slot_of(word) % SH_OUTRING_SLOTS,
                                  .end = end & POSITION_MASK};
    /* release: as in sh_outring_reserve. While it is closed nobody swaps. */
    atomic_store_explicit(&ring->reserved,
                          CLOSED | pack(generation_of(word), slot_of(word) + 1, end),
                          memory_order_release);
    return true;
}

bool sh_outring_is_quiet(const struct sh_outring *ring)
{
    return slot_of(atomic_load_explicit(&ring->reserved, memory_order_acquire)) == back_of(ring);
}

uint64_t sh_outring_used(const struct sh_outring *ring)
{
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_relaxed);
    return (position_of(word) - head_of(ring)) & POSITION_MASK;
}

uint64_t sh_outring_before(const struct sh_outring *ring, uint64_t position)
{
    return (position - head_of(ring)) & POSITION_MASK;
}

struct sh_bytes sh_outring_take(struct sh_outring *ring)
{
    if (!sh_outring_drained(ring))
        return (struct sh_bytes){NULL, 0}; /* what is completed now belongs to a lost connection */
    sh_outring_collect(ring);
    uint64_t head = head_of(ring);
    struct sh_bytes bytes = {NULL, (ring->ready - head) & POSITION_MASK};
    if (bytes.size > 0)
        bytes.at = ring->base + (head & (ring->room - 1));
    ring->sending = bytes.size > 0;
    return bytes;
}

static void retired_free(struct sh_outring *ring)
{
    memory_unmap(ring, ring->retired, ring->retired_room);
    ring->retired = NULL;
}

/* Everything has been sent and collected: starts again at the front, unless somebody reserves
 * first. Until the swap, writers that see the new head count the ring fuller than it is. */
static bool start_again(struct sh_outring *ring)
{
    uint64_t done = atomic_load_explicit(&ring->done, memory_order_relaxed);
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_relaxed);
    if (position_of(word) != ring->ready || slot_of(word) != slot_of(done))
        return false;
    give_back(ring, slot_of(done), 0);
    uint64_t front = (word & CLOSED) | pack(generation_of(word), slot_of(word), 0);
    if (atomic_compare_exchange_strong_explicit(&ring->reserved, &word, front, memory_order_acq_rel,
                                                memory_order_relaxed)) {
        ring->ready = 0;
        return true;
    }
    atomic_store_explicit(&ring->done, done, memory_order_release);
    return false;
}

void sh_outring_sent(struct sh_outring *ring, uint64_t bytes, uint64_t usual)
{
    ring->sending = false;
    retired_free(ring);
    uint64_t head = (head_of(ring) + bytes) & POSITION_MASK;
    SH_ASSERT(bytes <= ((ring->ready - head_of(ring)) & POSITION_MASK));
    give_back(ring, back_of(ring), head);
    if (head != ring->ready || !start_again(ring) || ring->room <= power_of_two_above(usual))
        return;
    sh_outring_close(ring);
    if (sh_outring_is_quiet(ring))
        sh_outring_unmap(ring);
}

enum shoal_err sh_outring_grow(struct sh_outring *ring, uint64_t bytes, uint64_t usual)
{
    SH_ASSERT(!sh_outring_is_open(ring) && sh_outring_is_quiet(ring));
    uint64_t used = sh_outring_used(ring);
    /* More could not be told from less by positions. */
    if (bytes > POSITION_MASK || used > POSITION_MASK - bytes)
        return SHOAL_ENOMEM;
    uint64_t room = power_of_two_above(used + bytes > usual ? used + bytes : usual);
    if (room <= ring->room)
        return SHOAL_OK;
    uint8_t *base = memory_map(room);
    if (!base)
        return SHOAL_ENOMEM;
    uint64_t head = head_of(ring);
    if (used)
        memcpy(base + (head & (room - 1)), ring->base + (head & (ring->room - 1)), used);
    if (ring->sending && !ring->retired) {
        ring->retired = ring->base;
        ring->retired_room = ring->room;
    } else {
        memory_unmap(ring, ring->base, ring->room);
    }
    ring->base = base;
    ring->room = room;
    ring->slots = (_Atomic uint32_t *)(base + 2 * room);
    return SHOAL_OK;
}

bool sh_outring_drained(struct sh_outring *ring)
{
    if (!ring->draining)
        return true;
    sh_outring_collect(ring);
    if (!sh_outring_is_quiet(ring))
        return false;
    ring->draining = false;
    sh_outring_unmap(ring);
    return true;
}

void sh_outring_drop(struct sh_outring *ring)
{
    SH_ASSERT(!ring->sending);
    sh_outring_close(ring);
    ring->draining = true;
    (void)sh_outring_drained(ring); /* or later, when those that write are through */
}

void sh_outring_unmap(struct sh_outring *ring)
{
    memory_unmap(ring, ring->base, ring->room);
    retired_free(ring);
    ring->base = NULL;
    ring->slots = NULL;
    ring->room = 0;
    /* Nothing is in it any more: what was complete and unsent is dropped. */
    uint64_t word = atomic_load_explicit(&ring->reserved, memory_order_relaxed);
    ring->ready = position_of(word);
    give_back(ring, slot_of(word), ring->ready);
}
