/* The outgoing ring alone: many writers against one consumer, closing, growing and dropping. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include <pthread.h>
#include <sched.h>

#include "base/hash.h"
#include "base/lock.h"
#include "msg/outring_int.h"

#define USUAL 8192
#define WRITERS 6
#define MESSAGES 30000

struct owner {
    struct sh_outring ring;
    struct sh_unmaps unmaps;
    struct sh_spin lock;
    uint32_t generation;
    _Atomic bool is_over;
};

static void owner_init(struct owner *owner)
{
    sh_unmaps_init(&owner->unmaps);
    sh_outring_init(&owner->ring, &owner->unmaps);
    sh_spin_init(&owner->lock, SH_LOCK_MSG_CONN);
    owner->generation = 1;
}

static void owner_open(struct owner *owner, uint64_t bytes)
{
    assert_int_equal(sh_outring_grow(&owner->ring, bytes, USUAL), SHOAL_OK);
    sh_outring_open(&owner->ring, owner->generation);
}

/* Writes one message: u32 length of all, u32 writer, u64 number, and a filling that follows from
 * them. */
static void message_write(uint8_t *at, uint32_t bytes, uint32_t writer, uint64_t number)
{
    sh_store32(at, bytes);
    sh_store32(at + 4, writer);
    sh_store64(at + 8, number);
    memset(at + 16, (int)(writer * 31 + number) & 0xFF, bytes - 16);
}

static uint32_t length_of(uint32_t writer, uint64_t number)
{
    return 16 + (uint32_t)(sh_mix64(number * 64 + writer) % 300);
}

struct writer {
    struct owner *owner;
    uint32_t number;
    uint64_t dropped; /* refused because the ring was closed */
};

static void *writer_main(void *arg)
{
    struct writer *writer = arg;
    struct owner *owner = writer->owner;
    for (uint64_t i = 0; i < MESSAGES;) {
        uint32_t bytes = length_of(writer->number, i);
        struct sh_outring_place place;
        enum sh_outring_result result =
            sh_outring_reserve(&owner->ring, owner->generation, bytes, USUAL, &place);
        if (result != SH_OUTRING_OK) {
            sched_yield();
            continue;
        }
        message_write(place.at, bytes, writer->number, i);
        if (sh_mix64(i) % 256 == 0)
            sched_yield(); /* be overtaken */
        sh_outring_complete(&owner->ring, place.slot, bytes);
        i++;
    }
    return NULL;
}

/* Checks whole messages, in each writer's order. Returns the bytes consumed. */
static uint64_t check(struct sh_bytes bytes, uint64_t *next)
{
    uint64_t at = 0;
    while (bytes.size - at >= 16) {
        uint32_t size = sh_load32(bytes.at + at), writer = sh_load32(bytes.at + at + 4);
        uint64_t number = sh_load64(bytes.at + at + 8);
        assert_true(writer < WRITERS);
        assert_int_equal(number, next[writer]);
        assert_int_equal(size, length_of(writer, number));
        if (size > bytes.size - at)
            break;
        for (uint32_t i = 16; i < size; i++)
            assert_int_equal(bytes.at[at + i], (writer * 31 + number) & 0xFF);
        next[writer]++;
        at += size;
    }
    return at;
}

static void consume_all(struct owner *owner, bool close_now_and_then)
{
    uint64_t next[WRITERS] = {0}, total = 0, rounds = 0;
    while (total < (uint64_t)WRITERS * MESSAGES) {
        sh_spin_take(&owner->lock);
        struct sh_bytes bytes = sh_outring_take(&owner->ring);
        if (close_now_and_then && rounds % 64 == 0 && sh_outring_is_open(&owner->ring)) {
            /* Grow under load, while what was taken is still being read. */
            sh_outring_close(&owner->ring);
            sh_outring_collect(&owner->ring);
            if (sh_outring_is_quiet(&owner->ring))
                assert_int_equal(sh_outring_grow(&owner->ring, USUAL * (2 + rounds % 5), USUAL),
                                 SHOAL_OK);
            sh_outring_open(&owner->ring, owner->generation);
        }
        sh_spin_release(&owner->lock);
        uint64_t used = bytes.size ? check(bytes, next) : 0;
        total = 0;
        for (int i = 0; i < WRITERS; i++)
            total += next[i];
        if (bytes.size) {
            sh_spin_take(&owner->lock);
            sh_outring_sent(&owner->ring, used, USUAL);
            if (!sh_outring_is_open(&owner->ring)) {
                /* It has shrunk, or could not, because somebody had begun to write. */
                if (owner->ring.room == 0)
                    assert_int_equal(sh_outring_grow(&owner->ring, 1, USUAL), SHOAL_OK);
                sh_outring_open(&owner->ring, owner->generation);
            }
            sh_spin_release(&owner->lock);
        } else {
            sched_yield();
        }
        rounds++;
    }
}

static void stress(bool close_now_and_then)
{
    struct owner owner;
    owner_init(&owner);
    owner_open(&owner, 1);
    pthread_t threads[WRITERS];
    struct writer writers[WRITERS];
    for (uint32_t i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.owner = &owner, .number = i};
        assert_int_equal(pthread_create(&threads[i], NULL, writer_main, &writers[i]), 0);
    }
    consume_all(&owner, close_now_and_then);
    for (int i = 0; i < WRITERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(sh_outring_used(&owner.ring), 0);
    assert_true(sh_outring_is_quiet(&owner.ring));
    sh_outring_unmap(&owner.ring);
}

static void test_writers(void **state)
{
    (void)state;
    stress(false);
}

static void test_writers_while_it_grows(void **state)
{
    (void)state;
    stress(true);
}

static struct sh_outring_place reserve(struct owner *owner, uint64_t bytes)
{
    struct sh_outring_place place;
    assert_int_equal(sh_outring_reserve(&owner->ring, owner->generation, bytes, USUAL, &place),
                     SH_OUTRING_OK);
    return place;
}

/* A fast writer leaves at once; nothing of it is taken before the slow one is through. */
static void test_overtaken(void **state)
{
    (void)state;
    struct owner owner;
    owner_init(&owner);
    owner_open(&owner, 1);
    struct sh_outring_place slow = reserve(&owner, 100), fast = reserve(&owner, 50);
    sh_outring_complete(&owner.ring, fast.slot, 50);
    assert_int_equal(sh_outring_take(&owner.ring).size, 0);
    assert_false(sh_outring_is_quiet(&owner.ring));
    sh_outring_complete(&owner.ring, slow.slot, 100);
    struct sh_bytes bytes = sh_outring_take(&owner.ring);
    assert_int_equal(bytes.size, 150);
    assert_ptr_equal(bytes.at, slow.at);
    sh_outring_sent(&owner.ring, 120, USUAL);
    assert_int_equal(sh_outring_used(&owner.ring), 30);
    assert_int_equal(sh_outring_take(&owner.ring).size, 30);
    sh_outring_sent(&owner.ring, 30, USUAL);
    /* Empty: it starts at the front again. */
    assert_ptr_equal(reserve(&owner, 10).at, slow.at);
    sh_outring_unmap(&owner.ring);
}

static void test_full(void **state)
{
    (void)state;
    struct owner owner;
    owner_init(&owner);
    struct sh_outring_place place;
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 1, USUAL, &place), SH_OUTRING_CLOSED);
    owner_open(&owner, 1);
    assert_int_equal(sh_outring_reserve(&owner.ring, 2, 1, USUAL, &place), SH_OUTRING_CLOSED);
    place = reserve(&owner, USUAL);
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 1, USUAL, &place), SH_OUTRING_FULL);
    sh_outring_complete(&owner.ring, place.slot, USUAL);
    assert_int_equal(sh_outring_take(&owner.ring).size, USUAL);
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 1, USUAL, &place), SH_OUTRING_FULL);
    sh_outring_sent(&owner.ring, USUAL, USUAL);
    /* Slots run out before bytes do, and come back with collecting, before anything is sent. */
    for (int i = 0; i < SH_OUTRING_SLOTS; i++)
        sh_outring_complete(&owner.ring, reserve(&owner, 1).slot, 1);
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 1, USUAL, &place), SH_OUTRING_FULL);
    sh_outring_collect(&owner.ring);
    place = reserve(&owner, 1);
    sh_outring_complete(&owner.ring, place.slot, 1);
    assert_int_equal(sh_outring_take(&owner.ring).size, SH_OUTRING_SLOTS + 1);
    sh_outring_sent(&owner.ring, SH_OUTRING_SLOTS + 1, USUAL);
    sh_outring_unmap(&owner.ring);
}

/* A drop while somebody writes: nothing of the old is ever taken, and the ring opens again only
 * when the writer is through. */
static void test_drop(void **state)
{
    (void)state;
    struct owner owner;
    owner_init(&owner);
    owner_open(&owner, 1);
    struct sh_outring_place done = reserve(&owner, 40), open = reserve(&owner, 60), place;
    sh_outring_complete(&owner.ring, done.slot, 40);
    sh_outring_drop(&owner.ring);
    assert_false(sh_outring_drained(&owner.ring));
    assert_int_equal(sh_outring_take(&owner.ring).size, 0);
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 1, USUAL, &place), SH_OUTRING_CLOSED);
    memset(open.at, 1, 60); /* its memory is still there */
    sh_outring_complete(&owner.ring, open.slot, 60);
    assert_true(sh_outring_drained(&owner.ring));
    assert_int_equal(owner.ring.room, 0);
    owner.generation = 2;
    owner_open(&owner, 1);
    assert_int_equal(sh_outring_take(&owner.ring).size, 0);
    place = reserve(&owner, 7);
    sh_outring_complete(&owner.ring, place.slot, 7);
    assert_int_equal(sh_outring_take(&owner.ring).size, 7);
    sh_outring_sent(&owner.ring, 7, USUAL);
    sh_outring_drop(&owner.ring);
    assert_int_equal(owner.ring.room, 0);
}

/* A message larger than the ring: it grows around what is in it, and shrinks when that is sent. */
static void test_grow(void **state)
{
    (void)state;
    struct owner owner;
    owner_init(&owner);
    owner_open(&owner, 1);
    struct sh_outring_place first = reserve(&owner, 100);
    memset(first.at, 7, 100);
    sh_outring_complete(&owner.ring, first.slot, 100);
    struct sh_bytes taken = sh_outring_take(&owner.ring);
    sh_outring_close(&owner.ring);
    owner_open(&owner, 100000);
    assert_int_equal(taken.at[99], 7); /* still readable: the push is not over */
    struct sh_outring_place big;
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, 100000, owner.ring.room, &big),
                     SH_OUTRING_OK);
    memset(big.at, 9, 100000);
    sh_outring_complete(&owner.ring, big.slot, 100000);
    sh_outring_sent(&owner.ring, 50, USUAL);
    taken = sh_outring_take(&owner.ring);
    assert_int_equal(taken.size, 100050);
    assert_int_equal(taken.at[49], 7);
    assert_int_equal(taken.at[50], 9);
    sh_outring_sent(&owner.ring, taken.size, USUAL);
    assert_int_equal(owner.ring.room, 0);
    assert_false(sh_outring_is_open(&owner.ring));
}

/* A ring that is dropped costs its owner nothing: its memory is unmapped in pieces, and with each
 * piece of the first of its two mappings the kernel has the pages back. */
static void test_unmapped_in_pieces(void **state)
{
    (void)state;
    const uint64_t room = 4 * SH_UNMAP_BYTES;
    struct owner owner;
    owner_init(&owner);
    owner_open(&owner, room);
    assert_int_equal(owner.ring.room, room);
    struct sh_outring_place place;
    assert_int_equal(sh_outring_reserve(&owner.ring, 1, room, room, &place), SH_OUTRING_OK);
    memset(place.at, 1, room);
    sh_outring_complete(&owner.ring, place.slot, (uint32_t)room);
    uint8_t *base = owner.ring.base;
    void *watch = mremap(base, 0, room, MREMAP_MAYMOVE); /* a third mapping of the file */
    assert_true(watch != MAP_FAILED);
    unsigned char pages[4 * SH_UNMAP_BYTES / 4096];
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    sh_outring_drop(&owner.ring);
    assert_int_equal(owner.ring.room, 0);
    /* Two mappings of 4 pieces each, and the slots behind. */
    uint64_t left = 2 * room + SH_OUTRING_SLOTS * sizeof(uint32_t);
    while (left > 0) {
        assert_int_equal(sh_unmaps_run(&owner.unmaps), 1);
        left -= left < SH_UNMAP_BYTES ? left : SH_UNMAP_BYTES;
        assert_int_equal(mincore(watch, room, pages), 0);
        size_t there = 0;
        for (size_t i = 0; i < room / page; i++)
            there += pages[i] & 1;
        assert_int_equal(there, (left < room ? left : room) / page);
    }
    assert_int_equal(sh_unmaps_run(&owner.unmaps), 0);
    munmap(watch, room);
}

/* More than positions can tell apart is refused. Memory that nobody touches costs nothing. */
static void test_too_much(void **state)
{
    (void)state;
    static struct owner owner;
    const uint64_t all = (UINT64_C(1) << SH_OUTRING_POSITION_BITS) - 1, bytes = UINT32_MAX;
    struct sh_outring_place place;
    owner_init(&owner);
    assert_int_equal(sh_outring_grow(&owner.ring, all + 1, USUAL), SHOAL_ENOMEM);
    assert_int_equal(owner.ring.room, 0);
    assert_int_equal(sh_outring_grow(&owner.ring, all, USUAL), SHOAL_OK);
    sh_outring_open(&owner.ring, 1);
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sh_outring_reserve(&owner.ring, 1, bytes, owner.ring.room, &place),
                         SH_OUTRING_OK);
        sh_outring_complete(&owner.ring, place.slot, UINT32_MAX);
    }
    sh_outring_close(&owner.ring);
    sh_outring_collect(&owner.ring);
    assert_true(sh_outring_is_quiet(&owner.ring));
    assert_int_equal(sh_outring_grow(&owner.ring, 1, USUAL), SHOAL_OK); /* it fits */
    assert_int_equal(sh_outring_grow(&owner.ring, 2, USUAL), SHOAL_ENOMEM);
    assert_int_equal(sh_outring_used(&owner.ring), 2 * bytes);
    sh_outring_unmap(&owner.ring);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_overtaken), cmocka_unit_test(test_full),
        cmocka_unit_test(test_drop),      cmocka_unit_test(test_grow),
        cmocka_unit_test(test_writers),   cmocka_unit_test(test_writers_while_it_grows),
        cmocka_unit_test(test_too_much),  cmocka_unit_test(test_unmapped_in_pieces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
