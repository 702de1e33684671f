/* A model witness: keeps what it is told, in the order told, and looks at the store from within each
 * call: is the chunk held, is what is there what was told before (admit) or what is told now (record)?
 * Threads can't assert by cmocka, so it counts what is wrong, and remembers the first.
 *
 * Chunks belong to ZONES zones by their IDs; pieces keep all else out of a zone, as module backup does. */
#ifndef SH_STORE_WITNESS_TEST_H
#define SH_STORE_WITNESS_TEST_H

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "store/store_int.h"

#define WITNESS_ZONES 4
#define WITNESS_SLOTS 65536 /* a power of two */

struct told {
    uint64_t cid; /* 0: unused */
    bool exists;
    bool is_loose; /* written through a pin since */
    uint32_t size;
    uint8_t *bytes;
};

struct zone {
    unsigned admitted; /* and neither recorded nor cancelled yet */
    bool is_in_pieces; /* of this chunk: */
    uint64_t cid;
    uint32_t size, told;
    uint8_t *bytes;
};

struct witness {
    struct sh_store *store;
    pthread_mutex_t mutex;
    uint64_t rng;
    unsigned refuse_of; /* admits, begins and pieces are refused once in so many; 0: never */
    long admit_left;    /* admits until one is refused, and all after it; negative: none */
    struct told *slots;
    struct zone zones[WITNESS_ZONES];
    /* So often. */
    unsigned admits, records, cancels, refusals, begins, pieces, made, not_made;
    unsigned events[SH_STORE_UNMADE + 1]; /* of the records */
    unsigned wrong;
    const char *what;
    unsigned long long about;
};

static inline void witness_wrong_if(struct witness *witness, bool condition, const char *what,
                                    shoal_cid cid)
{
    if (!condition)
        return;
    if (witness->wrong++ == 0) {
        witness->what = what;
        witness->about = cid.v;
        fprintf(stderr, "witness: %s, chunk %llx\n", what, (unsigned long long)cid.v);
    }
}

static inline struct zone *witness_zone(struct witness *witness, shoal_cid cid)
{
    return &witness->zones[cid.v / 8 % WITNESS_ZONES];
}

/* The chunk's place; made where it is not there yet. ID 0 has another number. */
static inline struct told *witness_told(struct witness *witness, shoal_cid cid)
{
    uint64_t key = cid.v + 1, at = sh_mix64(key) % WITNESS_SLOTS;
    unsigned seen = 0;
    for (; witness->slots[at].cid != 0 && witness->slots[at].cid != key; seen++)
        at = seen < WITNESS_SLOTS ? (at + 1) % WITNESS_SLOTS : (abort(), 0);
    witness->slots[at].cid = key;
    return &witness->slots[at];
}

static inline bool witness_draws_refusal(struct witness *witness)
{
    bool is = witness->refuse_of > 0 && test_draw(&witness->rng) % witness->refuse_of == 0;
    witness->refusals += is;
    return is;
}

/* Whether the chunk is held, as far as its group says, and where it is. */
static inline bool witness_spot(struct witness *witness, shoal_cid cid, bool *exists_out,
                                struct sh_spot *spot_out)
{
    const struct sh_group *group = sh_store_group(witness->store, cid);
    unsigned index = sh_store_index(cid);
    *exists_out = false;
    if (!group)
        return false;
    uint64_t sequence = atomic_load_explicit(&group->sequence, memory_order_relaxed);
    struct sh_layout layout = sh_group_layout(group);
    *exists_out = sh_store_spot(witness->store, &layout, index, spot_out);
    return (sequence & (SH_GROUP_LAYOUT | UINT64_C(1) << index)) != 0;
}

static inline bool bytes_are(const uint8_t *at, struct sh_bytes image)
{
    if (image.size == 0)
        return true;
    if (image.at)
        return memcmp(at, image.at, image.size) == 0;
    return at[0] == 0 && memcmp(at, at + 1, image.size - 1) == 0;
}

/* Within a section the chunk is this one, or none. */
static inline void witness_check(struct witness *witness, shoal_cid cid, bool exists,
                                 struct sh_bytes image, const char *what)
{
    struct sh_spot spot;
    bool is_there;
    witness_wrong_if(witness, !witness_spot(witness, cid, &is_there, &spot), "not held", cid);
    witness_wrong_if(witness, is_there != exists, what, cid);
    if (is_there && exists)
        witness_wrong_if(witness, spot.size != image.size || !bytes_are(spot.at, image), what, cid);
}

static inline void witness_keep(struct witness *witness, shoal_cid cid, bool exists,
                                struct sh_bytes image)
{
    struct told *told = witness_told(witness, cid);
    free(told->bytes);
    told->exists = exists;
    told->is_loose = false;
    told->size = (uint32_t)image.size;
    told->bytes = exists && image.size > 0 ? calloc(1, image.size) : NULL;
    if (told->bytes && image.at)
        memcpy(told->bytes, image.at, image.size);
}

/* Whether a change says how large the chunk is that it changes. */
static inline void witness_size_check(struct witness *witness, shoal_cid cid, uint32_t size_before)
{
    const struct told *told = witness_told(witness, cid);
    witness_wrong_if(witness, size_before != (told->exists ? told->size : 0), "a wrong size before",
                     cid);
}

static inline enum shoal_err witness_admit(void *arg, shoal_cid cid, enum sh_store_event event,
                                           uint32_t size_before, uint32_t size)
{
    struct witness *witness = arg;
    enum shoal_err err = SHOAL_OK;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    struct told *told = witness_told(witness, cid);
    bool is_removal = event != SH_STORE_MADE && event != SH_STORE_WRITTEN;
    witness->admits++;
    witness_size_check(witness, cid, size_before);
    if (!told->is_loose)
        witness_check(witness, cid, told->exists, sh_bytes_make(told->bytes, told->size),
                      "changed before it was admitted");
    witness_wrong_if(witness, told->exists == (event == SH_STORE_MADE), "wrong event", cid);
    witness_wrong_if(witness, is_removal && size != 0, "a removal with a size", cid);
    if (event == SH_STORE_UNMADE) {
        zone->admitted++;
    } else if (zone->is_in_pieces || witness_draws_refusal(witness) || witness->admit_left == 0) {
        err = SHOAL_EAGAIN;
    } else {
        zone->admitted++;
        witness->admit_left -= witness->admit_left > 0;
    }
    pthread_mutex_unlock(&witness->mutex);
    return err;
}

static inline void witness_record(void *arg, shoal_cid cid, enum sh_store_event event,
                                  struct sh_bytes image)
{
    struct witness *witness = arg;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    bool exists = event == SH_STORE_MADE || event == SH_STORE_WRITTEN;
    witness_wrong_if(witness, zone->admitted == 0, "recorded, not admitted", cid);
    witness_check(witness, cid, exists, image, "not what was recorded");
    witness_keep(witness, cid, exists, image);
    zone->admitted -= zone->admitted > 0;
    witness->records++;
    witness->events[event]++;
    pthread_mutex_unlock(&witness->mutex);
}

static inline void witness_cancel(void *arg, shoal_cid cid, enum sh_store_event event,
                                  uint32_t size)
{
    struct witness *witness = arg;
    (void)event;
    (void)size;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    struct told *told = witness_told(witness, cid);
    witness_wrong_if(witness, zone->admitted == 0, "cancelled, not admitted", cid);
    if (!told->is_loose)
        witness_check(witness, cid, told->exists, sh_bytes_make(told->bytes, told->size),
                      "changed though it was cancelled");
    zone->admitted -= zone->admitted > 0;
    witness->cancels++;
    pthread_mutex_unlock(&witness->mutex);
}

static inline enum shoal_err witness_begin(void *arg, shoal_cid cid, uint32_t size_before,
                                           uint32_t size)
{
    struct witness *witness = arg;
    (void)size_before; /* others may change it until this was OK */
    enum shoal_err err = SHOAL_EAGAIN;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    witness_wrong_if(witness, size <= SH_STORE_PIECE_BYTES, "pieces of a small one", cid);
    if (!zone->is_in_pieces && !witness_draws_refusal(witness)) {
        err = SHOAL_OK;
        zone->is_in_pieces = true;
        zone->cid = cid.v;
        zone->size = size;
        zone->told = 0;
        zone->bytes = malloc(size);
        witness->begins++;
    }
    pthread_mutex_unlock(&witness->mutex);
    return err;
}

static inline enum shoal_err witness_piece(void *arg, shoal_cid cid, uint32_t offset,
                                           struct sh_bytes bytes, bool is_last)
{
    struct witness *witness = arg;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    enum shoal_err err = witness_draws_refusal(witness) ? SHOAL_EAGAIN : SHOAL_OK;
    bool is_good = zone->is_in_pieces && zone->cid == cid.v && offset == zone->told &&
                   bytes.size > 0 && bytes.size <= SH_STORE_STEP_BYTES &&
                   bytes.size <= zone->size - offset &&
                   is_last == (offset + bytes.size == zone->size);
    witness_wrong_if(witness, !is_good, "a wrong piece", cid);
    if (is_good && !err) {
        memcpy(zone->bytes + offset, bytes.at, bytes.size);
        zone->told += (uint32_t)bytes.size;
        witness->pieces++;
    }
    pthread_mutex_unlock(&witness->mutex);
    return err;
}

static inline void witness_end(void *arg, shoal_cid cid, uint32_t size_before, bool is_made)
{
    struct witness *witness = arg;
    pthread_mutex_lock(&witness->mutex);
    struct zone *zone = witness_zone(witness, cid);
    witness_wrong_if(witness, !zone->is_in_pieces || zone->cid != cid.v, "pieces not begun", cid);
    witness_wrong_if(witness, is_made && zone->told != zone->size, "pieces are missing", cid);
    if (is_made && zone->is_in_pieces) {
        witness_size_check(witness, cid, size_before);
        witness_check(witness, cid, true, sh_bytes_make(zone->bytes, zone->size),
                      "not what the pieces were");
        witness_keep(witness, cid, true, sh_bytes_make(zone->bytes, zone->size));
    }
    witness->made += is_made;
    witness->not_made += !is_made;
    free(zone->bytes);
    zone->bytes = NULL;
    zone->is_in_pieces = false;
    pthread_mutex_unlock(&witness->mutex);
}

/* Becomes the store's. */
static inline void witness_open(struct witness *witness, struct sh_store *store, uint64_t seed)
{
    *witness = (struct witness){.store = store, .rng = seed, .admit_left = -1};
    pthread_mutex_init(&witness->mutex, NULL);
    witness->slots = calloc(WITNESS_SLOTS, sizeof *witness->slots);
    assert_non_null(witness->slots);
    struct sh_store_witness functions = {.admit = witness_admit,
                                         .record = witness_record,
                                         .cancel = witness_cancel,
                                         .pieces_begin = witness_begin,
                                         .piece = witness_piece,
                                         .pieces_end = witness_end,
                                         .arg = witness};
    sh_store_witness_set(store, &functions);
}

static inline void witness_close(struct witness *witness)
{
    sh_store_witness_set(witness->store, NULL);
    for (unsigned i = 0; i < WITNESS_SLOTS; i++)
        free(witness->slots[i].bytes);
    free(witness->slots);
    pthread_mutex_destroy(&witness->mutex);
}

/* Whether a chunk is in the store what was told last. No other thread is at work. */
static inline bool witness_is_right(struct witness *witness, shoal_cid cid)
{
    static uint8_t bytes[4 << 20];
    uint32_t size = 0;
    const struct told *told = witness_told(witness, cid);
    enum shoal_err err = sh_store_get(witness->store, cid, bytes, sizeof bytes, &size);
    if (err || !told->exists)
        return err == SHOAL_ENOCHUNK && !told->exists;
    return size == told->size && bytes_are(bytes, sh_bytes_make(told->bytes, size));
}

/* Nothing is wrong or open, and the store has what was told, and nothing else. */
static inline void witness_compare(struct witness *witness)
{
    size_t told = 0, there = 0;
    assert_int_equal(witness->wrong, 0);
    for (unsigned i = 0; i < WITNESS_SLOTS; i++) {
        if (witness->slots[i].cid != 0 &&
            !witness_is_right(witness, (shoal_cid){witness->slots[i].cid - 1}))
            fail_msg("chunk %llx is not what was told",
                     (unsigned long long)witness->slots[i].cid - 1);
        told += witness->slots[i].exists;
    }
    shoal_cid first, last, from = {0};
    while (sh_store_range(witness->store, from, &first, &last)) {
        there += last.v - first.v + 1;
        from = (shoal_cid){last.v + 1};
    }
    assert_int_equal(there, told);
    for (unsigned i = 0; i < WITNESS_ZONES; i++)
        assert_int_equal(witness->zones[i].admitted, 0);
}

#endif
