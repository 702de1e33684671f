/* A group: 16 consecutive local IDs, described in 32 bytes, half a cache line.
 *
 *   block:     63..48 [capacity / 8]  47..0 [offset in the blocks' range]
 *   codes:     a byte for each ID: absent, reserved, length + 2 (0 to 247), medium, or long
 *   sequence:  63..17 [version]  16 [layout]  15..0 [write bit of each ID]
 *
 * The chunks lie packed in the block in the order of their IDs; where one begins is the sum of the
 * footprints before it. Four codes are medium lengths, 248 to 1271: the code is the high part, and
 * the low 8 bits are a byte at the block's end (the first medium chunk's is the last byte, the next
 * one's the one before it, and so on). A long chunk leaves 8 bytes in the block: the offset of a
 * block of its own, which starts with two words (size, and pins from bit 32 on; the stamp, by which
 * who reads it in pieces knows that it is as it was) and is followed by the bytes. An ID costs 2 bytes: 66.0 for a 64-byte chunk.
 *
 * Who writes bytes of one chunk sets its write bit, and in the end clears it and raises the version
 * with one addition, so that writers of different chunks never wait for each other. Whatever
 * changes codes or block (create, remove, resize, move) sets the layout bit, which keeps new write
 * bits out, and waits until those that are set are gone. A reader takes nothing: it loads the
 * sequence, works, and loads the sequence again. Only the allocator's lock and those of the witness are
 * taken while a bit is held, and their holders never wait for a bit, so that the bits have no rank. A node's steps hold one
 * for a copy of at most SH_STORE_PIECE_BYTES, or of a block and the chunks of a group below that,
 * 100 us; whoever waits for longer waits for a thread without a core, and sleeps (base/lock.h).
 *
 * Order, as in Boehm, "Can seqlocks get along with programming language memory models?" (2012):
 * the writer's release fence after setting its bit pairs with the reader's acquire fence before its
 * second load: who saw any of the new bytes sees the bit, or a later version. */
#ifndef SH_STORE_GROUP_INT_H
#define SH_STORE_GROUP_INT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include "base/lock.h"

#define SH_GROUP_BITS 4
#define SH_GROUP_IDS 16u
#define SH_CODE_ABSENT 0
#define SH_CODE_RESERVED 1
#define SH_CODE_FIRST 2    /* length 0 */
#define SH_CODE_MEDIUM 250 /* length 248 to 503; and so on in steps of 256 */
#define SH_CODE_LONG 254
#define SH_SHORT_MAX 247u
#define SH_PACKED_CHUNK_MAX 1271u /* longer ones are long */
#define SH_POINTER_BYTES 8u
#define SH_LONG_HEADER 16u
#define SH_GROUP_BYTES_MAX (SH_GROUP_IDS * SH_PACKED_CHUNK_MAX)

#define SH_GROUP_LAYOUT (UINT64_C(1) << 16)
#define SH_GROUP_WRITERS (SH_GROUP_LAYOUT - 1)
#define SH_GROUP_VERSION (UINT64_C(1) << 17)
#define SH_GROUP_OFFSET_MASK ((UINT64_C(1) << 48) - 1)

struct sh_group {
    _Atomic uint64_t block;
    _Atomic uint64_t codes[2]; /* byte i % 8 of word i / 8, lowest first */
    _Atomic uint64_t sequence;
};
_Static_assert(sizeof(struct sh_group) == 32, "2 bytes an ID");

/* What a group says of where its chunks are, at one moment. */
struct sh_layout {
    uint64_t block;
    uint64_t codes[2];
};

static inline unsigned sh_layout_code(const struct sh_layout *layout, unsigned index)
{
    return (unsigned)(layout->codes[index / 8] >> (index % 8 * 8)) & 255;
}

static inline void sh_layout_code_set(struct sh_layout *layout, unsigned index, unsigned code)
{
    unsigned shift = index % 8 * 8;
    uint64_t *word = &layout->codes[index / 8];
    *word = (*word & ~(UINT64_C(255) << shift)) | ((uint64_t)code << shift);
}

static inline uint64_t sh_layout_offset(const struct sh_layout *layout)
{
    return layout->block & SH_GROUP_OFFSET_MASK;
}

static inline uint32_t sh_layout_capacity(const struct sh_layout *layout)
{
    return (uint32_t)(layout->block >> 48) * 8;
}

static inline bool sh_code_is_medium(unsigned code)
{
    return code >= SH_CODE_MEDIUM && code < SH_CODE_LONG;
}

/* Bytes in the group's block of a chunk with that code, the least of a medium one. */
static inline uint32_t sh_code_footprint(unsigned code)
{
    if (sh_code_is_medium(code))
        return SH_SHORT_MAX + 1 + (code - SH_CODE_MEDIUM) * 256;
    if (code == SH_CODE_LONG)
        return SH_POINTER_BYTES;
    return code > SH_CODE_FIRST ? code - SH_CODE_FIRST : 0;
}

/* The code of a chunk of at most SH_PACKED_CHUNK_MAX bytes, and what it leaves to the low byte. */
static inline unsigned sh_code_of(uint32_t size, uint8_t *low_out)
{
    *low_out = 0;
    if (size <= SH_SHORT_MAX)
        return size + SH_CODE_FIRST;
    *low_out = (uint8_t)(size - SH_SHORT_MAX - 1);
    return SH_CODE_MEDIUM + (size - SH_SHORT_MAX - 1) / 256;
}

/* The low byte of the nth medium chunk. The layout may be torn: then it is any byte of the range.
 */
static inline uint8_t *sh_layout_low(const struct sh_layout *layout, uint8_t *block, unsigned nth)
{
    uint32_t capacity = sh_layout_capacity(layout);
    return block + (capacity > nth ? capacity - 1 - nth : 0);
}

/* Footprints of the chunks before `index`, 0 to 16, but for medium ones, which are told by a bit
 * each. */
static inline uint32_t sh_layout_sum(const struct sh_layout *layout, unsigned index,
                                     unsigned *mediums_out)
{
    uint64_t low =
        index >= 8 ? layout->codes[0] : layout->codes[0] & ((UINT64_C(1) << (index * 8)) - 1);
    uint64_t high = index <= 8    ? 0
                    : index >= 16 ? layout->codes[1]
                                  : layout->codes[1] & ((UINT64_C(1) << (index * 8 - 64)) - 1);
#if defined(__SSE2__)
    __m128i codes = _mm_set_epi64x((long long)high, (long long)low);
    __m128i is_long = _mm_cmpeq_epi8(codes, _mm_set1_epi8((char)SH_CODE_LONG));
    __m128i is_short = _mm_cmpeq_epi8(
        _mm_subs_epu8(codes, _mm_set1_epi8((char)(SH_CODE_MEDIUM - 1))), _mm_setzero_si128());
    __m128i bytes = _mm_and_si128(is_short, _mm_subs_epu8(codes, _mm_set1_epi8(SH_CODE_FIRST)));
    bytes = _mm_or_si128(bytes, _mm_and_si128(is_long, _mm_set1_epi8(SH_POINTER_BYTES)));
    __m128i sums = _mm_sad_epu8(bytes, _mm_setzero_si128());
    *mediums_out = ~(unsigned)_mm_movemask_epi8(_mm_or_si128(is_short, is_long)) & 0xffff;
    return (uint32_t)(_mm_cvtsi128_si32(sums) + _mm_cvtsi128_si32(_mm_srli_si128(sums, 8)));
#else
    uint32_t sum = 0;
    *mediums_out = 0;
    for (unsigned i = 0; i < index; i++) {
        unsigned code = (unsigned)((i < 8 ? low >> i * 8 : high >> (i - 8) * 8) & 255);
        if (code < SH_CODE_MEDIUM || code == SH_CODE_LONG)
            sum += sh_code_footprint(code);
        else
            *mediums_out |= 1u << i;
    }
    return sum;
#endif
}

/* Footprints of all chunks but medium ones, where a number without meaning is left; returns a bit
 * for each chunk that exists. */
static inline unsigned sh_layout_footprints(const struct sh_layout *layout, uint16_t *bytes_out)
{
#if defined(__SSE2__)
    const __m128i none = _mm_setzero_si128();
    __m128i codes = _mm_set_epi64x((long long)layout->codes[1], (long long)layout->codes[0]);
    __m128i is_long = _mm_cmpeq_epi8(codes, _mm_set1_epi8((char)SH_CODE_LONG));
    __m128i excess = _mm_set1_epi8((char)(SH_CODE_LONG - SH_CODE_FIRST - SH_POINTER_BYTES));
    __m128i bytes = _mm_subs_epu8(codes, _mm_set1_epi8(SH_CODE_FIRST));
    bytes = _mm_sub_epi8(bytes, _mm_and_si128(is_long, excess));
    _mm_storeu_si128((__m128i *)(void *)bytes_out, _mm_unpacklo_epi8(bytes, none));
    _mm_storeu_si128((__m128i *)(void *)(bytes_out + 8), _mm_unpackhi_epi8(bytes, none));
    __m128i is_none = _mm_cmpeq_epi8(_mm_subs_epu8(codes, _mm_set1_epi8(SH_CODE_FIRST - 1)), none);
    return ~(unsigned)_mm_movemask_epi8(is_none) & 0xffff;
#else
    unsigned present = 0;
    for (unsigned i = 0; i < SH_GROUP_IDS; i++) {
        unsigned code = sh_layout_code(layout, i);
        bytes_out[i] = (uint16_t)sh_code_footprint(code);
        present |= (unsigned)(code >= SH_CODE_FIRST) << i;
    }
    return present;
#endif
}

/* Footprints of some medium chunks, beginning with the first; each also to bytes_out by its index,
 * which may be NULL. */
uint32_t sh_layout_mediums(const struct sh_layout *layout, uint8_t *block, unsigned mediums,
                           uint16_t *bytes_out);

/* Where in the block a chunk begins, and its footprint. */
static inline uint32_t sh_layout_place(const struct sh_layout *layout, uint8_t *block,
                                       unsigned index, uint32_t *footprint_out)
{
    unsigned mediums;
    unsigned code = sh_layout_code(layout, index);
    uint32_t sum = sh_layout_sum(layout, index, &mediums);
    *footprint_out = sh_code_footprint(code);
    if (mediums)
        sum += sh_layout_mediums(layout, block, mediums, NULL);
    if (sh_code_is_medium(code))
        *footprint_out += __atomic_load_n(
            sh_layout_low(layout, block, (unsigned)__builtin_popcount(mediums)), __ATOMIC_RELAXED);
    return sum;
}

/* relaxed: what was read means something only once the sequence has been checked, or to who holds a
 * bit */
static inline struct sh_layout sh_group_layout(const struct sh_group *group)
{
    return (struct sh_layout){
        atomic_load_explicit(&group->block, memory_order_relaxed),
        {atomic_load_explicit(&group->codes[0], memory_order_relaxed),
         atomic_load_explicit(&group->codes[1], memory_order_relaxed)},
    };
}

static inline void sh_group_layout_set(struct sh_group *group, const struct sh_layout *layout)
{
    atomic_store_explicit(&group->block, layout->block, memory_order_relaxed);
    atomic_store_explicit(&group->codes[0], layout->codes[0], memory_order_relaxed);
    atomic_store_explicit(&group->codes[1], layout->codes[1], memory_order_relaxed);
}

/* The thread sanitizer knows no fences, and needs none here: all accesses are atomic. */
#if defined(__SANITIZE_THREAD__)
#define SH_GROUP_FENCE(order) ((void)0)
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SH_GROUP_FENCE(order) ((void)0)
#endif
#endif
#ifndef SH_GROUP_FENCE
#define SH_GROUP_FENCE(order) atomic_thread_fence(order)
#endif

/* Begins a read of one chunk. False: somebody is at it, try again. */
static inline bool sh_group_read_begin(const struct sh_group *group, unsigned index,
                                       uint64_t *sequence_out)
{
    /* acquire: layout and bytes of that version; pairs with the releases in sh_group_*_end */
    *sequence_out = atomic_load_explicit(&group->sequence, memory_order_acquire);
    return (*sequence_out & (SH_GROUP_LAYOUT | UINT64_C(1) << index)) == 0;
}

/* True when nothing that was read since sh_group_read_begin can be torn: neither layout nor chunk
 * changed. Write bits of other chunks may come and go. */
static inline bool sh_group_read_good(const struct sh_group *group, unsigned index,
                                      uint64_t sequence)
{
    SH_GROUP_FENCE(memory_order_acquire); /* pairs with the fences in sh_group_*_begin */
    uint64_t now = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    uint64_t matters = ~SH_GROUP_WRITERS | UINT64_C(1) << index;
    return ((now ^ sequence) & matters) == 0;
}

/* Holds one chunk of the group, so that no one else writes, moves or removes it. */
static inline void sh_group_write_begin(struct sh_group *group, unsigned index)
{
    uint64_t bit = UINT64_C(1) << index;
    unsigned spins = 0;
    uint64_t old = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    for (;;) {
        if (!(old & (bit | SH_GROUP_LAYOUT)) &&
            /* acquire: what was there before; pairs with the releases in sh_group_*_end */
            atomic_compare_exchange_weak_explicit(&group->sequence, &old, old | bit,
                                                  memory_order_acquire, memory_order_relaxed))
            break;
        sh_spin_wait(&spins);
        old = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    }
    SH_GROUP_FENCE(memory_order_release); /* pairs with the fence in sh_group_read_good */
}

/* Ends it. Only where the chunk exists may it have been changed: a group without chunks may be
 * zeroed by the kernel meanwhile, and then has no bit to subtract. */
static inline void sh_group_write_end(struct sh_group *group, unsigned index, bool is_changed)
{
    uint64_t bit = UINT64_C(1) << index;
    /* release: the bytes; pairs with the acquire loads above */
    if (is_changed)
        atomic_fetch_add_explicit(&group->sequence, SH_GROUP_VERSION - bit, memory_order_release);
    else
        atomic_fetch_and_explicit(&group->sequence, ~bit, memory_order_release);
}

/* Holds the whole group. */
static inline void sh_group_layout_begin(struct sh_group *group)
{
    unsigned spins = 0;
    uint64_t old = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    for (;;) {
        if (!(old & SH_GROUP_LAYOUT) &&
            atomic_compare_exchange_weak_explicit(&group->sequence, &old, old | SH_GROUP_LAYOUT,
                                                  memory_order_acquire, memory_order_relaxed))
            break;
        sh_spin_wait(&spins);
        old = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    }
    /* acquire: the last writers' bytes; pairs with the release in sh_group_write_end */
    while (atomic_load_explicit(&group->sequence, memory_order_acquire) & SH_GROUP_WRITERS)
        sh_spin_wait(&spins);
    SH_GROUP_FENCE(memory_order_release);
}

static inline void sh_group_layout_end(struct sh_group *group, bool is_changed)
{
    if (is_changed)
        atomic_fetch_add_explicit(&group->sequence, SH_GROUP_VERSION - SH_GROUP_LAYOUT,
                                  memory_order_release);
    else
        atomic_fetch_and_explicit(&group->sequence, ~SH_GROUP_LAYOUT, memory_order_release);
}

#endif
