/* The witness, one thread: each operation tells of each change, once, within the section; what is
 * refused, or fails, changes nothing; large chunks are told in pieces. The model (witness_test.h) looks
 * into the store at each call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "store/witness_test.h"

#define MIB (UINT64_C(1) << 20)
#define LARGE (SH_STORE_PIECE_BYTES + 3 * SH_STORE_STEP_BYTES + 17)
#define LARGEST (3 * SH_STORE_PIECE_BYTES)
#define STEPS_MAX 2000
#define NID 5

static struct sh_store *store;
static struct witness witness;
static uint8_t data_a[LARGEST], data_b[LARGEST], data_c[LARGEST];

static void open_of(uint64_t bytes_max, uint64_t seed)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = LARGEST, .small_pages = true, .nid = {NID}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    witness_open(&witness, store, seed);
    for (size_t i = 0; i < LARGEST; i++) {
        data_a[i] = (uint8_t)sh_mix64(i);
        data_b[i] = (uint8_t)sh_mix64(i + LARGEST);
    }
}

static void close_all(void)
{
    witness_compare(&witness);
    sh_alloc_check(store->alloc);
    witness_close(&witness);
    sh_store_destroy(store);
}

static shoal_cid make(uint32_t size)
{
    shoal_cid cid;
    assert_int_equal(sh_store_new_many(store, size, 1, &cid), SHOAL_OK);
    return cid;
}

static enum shoal_err rest_of(struct sh_store_rewriting *rewriting)
{
    for (unsigned steps = 0; !sh_store_rewriting_step(rewriting); steps++)
        assert_true(steps < STEPS_MAX);
    return sh_store_rewriting_end(rewriting);
}

static enum shoal_err rewrite_all(const struct sh_store_rewrite *rewrite)
{
    struct sh_store_rewriting *rewriting;
    assert_int_equal(sh_store_rewriting_begin(store, rewrite, &rewriting), SHOAL_OK);
    return rest_of(rewriting);
}

/* A large chunk of data_a. */
static shoal_cid large_make(uint32_t size)
{
    shoal_cid cid = make(size);
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data_a, size)};
    assert_int_equal(rewrite_all(&put), SHOAL_OK);
    return cid;
}

/* --- Each operation ------------------------------------------------------------------------ */

enum does {
    PUT,
    PUT_PART,
    PUT_IF,
    PUT_HASH,
    ADD,
    RESIZE,
    RESIZE_LONG,
    REMOVE,
    RELEASE,
    RETELL,
    PUT_MULTI,
    RESIZE_MULTI,
    REMOVE_MULTI,
    DOES
};

static enum shoal_err many(size_t (*function)(struct sh_store *, struct sh_store_op *, size_t),
                           shoal_cid cid, uint32_t size)
{
    struct sh_store_op op = {.lid = cid, .data = data_b, .size = size};
    return function(store, &op, 1) == 1 ? SHOAL_OK : op.err;
}

/* To a chunk of data_a. */
static enum shoal_err apply(enum does does, shoal_cid cid, uint32_t size)
{
    uint64_t old;
    enum shoal_err err;
    struct sh_bytes is = sh_bytes_make(data_b, size), was = sh_bytes_make(data_a, size);
    switch (does) {
    case PUT:
        return sh_store_put(store, cid, is);
    case PUT_PART:
        return sh_store_put_part(store, cid, size / 2, sh_bytes_make(data_b, size / 4));
    case PUT_IF:
        return sh_store_put_if(store, cid, was, is);
    case PUT_HASH:
        return sh_store_put_if_hash(store, cid, sh_hash64(was, 0), is);
    case ADD:
        return sh_store_add(store, cid, size - 8, 8, 12345, &old);
    case RESIZE:
        return sh_store_resize(store, cid, size + 1);
    case RESIZE_LONG:
        return sh_store_resize(store, cid, size + 5000);
    case REMOVE:
        return sh_store_remove(store, cid);
    case RELEASE:
        return sh_store_release(store, cid);
    case RETELL:
        return sh_store_retell(store, cid);
    case PUT_MULTI:
        return many(sh_store_put_multi, cid, size);
    case RESIZE_MULTI:
        return many(sh_store_resize_multi, cid, size - 3);
    case REMOVE_MULTI:
        (void)!sh_store_remove_multi(store, &cid, 1, &err);
        return err;
    case DOES:
        break;
    }
    return SHOAL_EINTERNAL;
}

static enum sh_store_event event_of(enum does does)
{
    return does == REMOVE || does == REMOVE_MULTI ? SH_STORE_REMOVED
           : does == RELEASE                      ? SH_STORE_RELEASED
                                                  : SH_STORE_WRITTEN;
}

/* Refused, each leaves all as it was; admitted, it is told once. Chunks are named with their node's ID
 * or without, and are always told of with it. */
static void test_each_operation(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {8,    40,   247,   248,
                                     1271, 1272, 70000, SH_STORE_PIECE_BYTES - 5000};
    open_of(64 * MIB, 1);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (enum does does = 0; does < DOES; does++) {
            shoal_cid cid = make(sizes[i]), local = {shoal_cid_local(cid)};
            (void)make(3); /* a neighbour */
            assert_int_equal(shoal_cid_creator(cid).v, NID);
            assert_int_equal(sh_store_put(store, cid, sh_bytes_make(data_a, sizes[i])), SHOAL_OK);
            struct witness before = witness;
            witness.admit_left = 0;
            assert_int_equal(apply(does, local, sizes[i]), SHOAL_EAGAIN);
            assert_int_equal(witness.records, before.records);
            assert_true(witness_is_right(&witness, cid));
            witness.admit_left = 1;
            assert_int_equal(apply(does, does % 2 ? cid : local, sizes[i]), SHOAL_OK);
            assert_int_equal(witness.records, before.records + 1);
            assert_int_equal(witness.events[event_of(does)], before.events[event_of(does)] + 1);
            assert_true(witness_is_right(&witness, cid));
            witness.admit_left = -1;
            assert_int_equal(witness.wrong, 0);
        }
    }
    close_all();
}

/* The functions that make a chunk with its bytes. */
static enum shoal_err make_as(unsigned how, shoal_cid cid, struct sh_bytes data)
{
    switch (how) {
    case 0:
        return sh_store_fill(store, cid, data);
    case 1:
    case 2:
        return sh_store_adopt(store, cid, data);
    case 3:
        return sh_store_adopt_as(store, cid, data, true, NULL);
    default:
        return sh_store_take_over(store, cid, data);
    }
}

/* What names a chunk for that: reserved, foreign, unknown own, or let go of. */
static shoal_cid place_for(unsigned how, unsigned round)
{
    struct sh_store_wish wish = {.count = 1, .reserve = true};
    shoal_cid cid = shoal_cid_make((shoal_nid){NID}, 1000 + 10 * round + how);
    if (how == 0) {
        assert_int_equal(sh_store_new_as(store, &wish, &cid, NULL), SHOAL_OK);
    } else if (how == 1 || how == 5) {
        cid = shoal_cid_make((shoal_nid){NID + 1}, 100 * round + how);
    } else if (how == 4) {
        cid = make(100);
        assert_int_equal(sh_store_release(store, cid), SHOAL_OK);
    }
    return cid;
}

static void test_each_creation(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0, 1, 1271, 1272, SH_STORE_PIECE_BYTES};
    open_of(64 * MIB, 1);
    for (unsigned i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (unsigned how = 0; how < 6; how++) {
            shoal_cid cid = place_for(how, i);
            struct sh_bytes data = sh_bytes_make(data_a, sizes[i]);
            unsigned made = witness.events[SH_STORE_MADE];
            witness.admit_left = 0;
            assert_int_equal(make_as(how, cid, data), SHOAL_EAGAIN);
            assert_int_equal(witness.events[SH_STORE_MADE], made);
            witness.admit_left = -1;
            struct sh_bytes large = sh_bytes_make(data_a, LARGE);
            assert_int_equal(make_as(how, cid, large), SHOAL_ELIMIT);
            assert_int_equal(make_as(how, cid, data), SHOAL_OK);
            assert_int_equal(witness.events[SH_STORE_MADE], made + 1);
            assert_true(witness_is_right(&witness, cid));
            if (how == 3)
                sh_store_unretain(store, &cid, 1);
        }
    }
    close_all();
}

/* What was taken over may go back, though the witness refuses all else. */
static void test_hand_back(void **state)
{
    (void)state;
    open_of(16 * MIB, 1);
    shoal_cid cids[] = {make(100), shoal_cid_make((shoal_nid){NID + 1}, 3)};
    assert_int_equal(sh_store_release(store, cids[0]), SHOAL_OK);
    for (unsigned i = 0; i < 2; i++) {
        struct sh_bytes data = sh_bytes_make(data_a, 200);
        assert_int_equal(sh_store_take_over(store, cids[i], data), SHOAL_OK);
        witness.admit_left = 0;
        assert_int_equal(sh_store_release(store, cids[i]), SHOAL_EAGAIN);
        assert_int_equal(sh_store_hand_back(store, cids[i]), SHOAL_OK);
        assert_int_equal(witness.events[SH_STORE_UNMADE], i + 1);
        witness.admit_left = -1;
        assert_int_equal(sh_store_hand_back(store, cids[i]), SHOAL_ENOCHUNK);
        assert_int_equal(sh_store_take_over(store, cids[i], data), SHOAL_OK);
    }
    close_all();
}

/* What changes nothing is not told: the wrong bytes, size or ID, an ID alone, a pin, a move. */
static void test_nothing_to_tell(void **state)
{
    (void)state;
    open_of(16 * MIB, 1);
    shoal_cid cid = make(300), none = {shoal_cid_make((shoal_nid){NID}, 999).v};
    struct sh_bytes data = sh_bytes_make(data_b, 300);
    unsigned admits = witness.admits;
    uint64_t old;
    uint8_t *at;
    uint32_t size;
    assert_int_equal(sh_store_put_if(store, cid, data, data), SHOAL_EDIFFERS);
    assert_int_equal(sh_store_put_if_hash(store, cid, 7, data), SHOAL_EDIFFERS);
    assert_int_equal(sh_store_put(store, cid, sh_bytes_make(data_b, 299)), SHOAL_ESIZE);
    assert_int_equal(sh_store_put_part(store, cid, 100, data), SHOAL_ESIZE);
    assert_int_equal(sh_store_add(store, cid, 297, 4, 1, &old), SHOAL_ESIZE);
    for (enum does does = 0; does < DOES; does++)
        assert_int_equal(apply(does, none, 300), SHOAL_ENOCHUNK);
    assert_int_equal(sh_store_adopt(store, cid, data), SHOAL_EEXIST);
    assert_int_equal(sh_store_fill(store, cid, data), SHOAL_ENOCHUNK);
    struct sh_store_wish wish = {.count = 20, .reserve = true};
    shoal_cid reserved[20];
    assert_int_equal(sh_store_new_as(store, &wish, reserved, NULL), SHOAL_OK);
    assert_int_equal(sh_store_unreserve(store, reserved[7]), SHOAL_OK);
    assert_int_equal(sh_store_pin(store, cid, &at, &size), SHOAL_OK);
    assert_int_equal(sh_store_remove(store, cid), SHOAL_EBUSY);
    assert_int_equal(sh_store_resize(store, cid, 10), SHOAL_EBUSY);
    assert_int_equal(sh_store_unpin(store, cid), SHOAL_OK);
    sh_store_defrag_all(store);
    assert_int_equal(witness.admits, admits);
    close_all();
}

/* What is written through a pin is not told before it is retold. */
static void test_pins(void **state)
{
    (void)state;
    open_of(16 * MIB, 1);
    shoal_cid cids[] = {make(100), large_make(LARGE)};
    for (unsigned i = 0; i < 2; i++) {
        uint8_t *at;
        uint32_t size;
        assert_int_equal(sh_store_pin(store, cids[i], &at, &size), SHOAL_OK);
        at[size - 1] ^= 1;
        witness_told(&witness, cids[i])->is_loose = true;
        assert_false(witness_is_right(&witness, cids[i]));
        struct sh_store_rewrite retell = {.kind = SH_STORE_RETELL, .cid = cids[i]};
        assert_int_equal(rewrite_all(&retell), SHOAL_OK);
        assert_true(witness_is_right(&witness, cids[i]));
        assert_int_equal(sh_store_retell(store, cids[i]), i == 0 ? SHOAL_OK : SHOAL_ELIMIT);
        struct sh_store_rewrite put = {
            .kind = SH_STORE_PUT, .cid = cids[i], .data = sh_bytes_make(data_b, size)};
        assert_int_equal(rewrite_all(&put), i == 0 ? SHOAL_OK : SHOAL_EBUSY);
        assert_int_equal(sh_store_unpin(store, cids[i]), SHOAL_OK);
        assert_int_equal(rewrite_all(&put), SHOAL_OK);
        assert_true(witness_is_right(&witness, cids[i]));
    }
    close_all();
}

/* Chunks that were there before are told of by retelling, and nothing is without a witness. */
static void test_comes_later(void **state)
{
    (void)state;
    open_of(16 * MIB, 1);
    sh_store_witness_set(store, NULL);
    shoal_cid small = make(100), large = make(LARGE);
    assert_int_equal(sh_store_put(store, large, sh_bytes_make(data_a, LARGE)), SHOAL_OK);
    assert_int_equal(sh_store_put(store, small, sh_bytes_make(data_a, 100)), SHOAL_OK);
    assert_int_equal(sh_store_retell(store, small), SHOAL_OK);
    struct sh_store_rewrite retell = {.kind = SH_STORE_RETELL, .cid = large};
    assert_int_equal(rewrite_all(&retell), SHOAL_OK);
    assert_int_equal(witness.admits + witness.begins, 0);
    witness_close(&witness);
    witness_open(&witness, store, 1);
    *witness_told(&witness, small) = (struct told){small.v + 1, true, true, 100, NULL};
    *witness_told(&witness, large) = (struct told){large.v + 1, true, true, LARGE, NULL};
    assert_int_equal(sh_store_retell(store, small), SHOAL_OK);
    assert_int_equal(rewrite_all(&retell), SHOAL_OK);
    assert_int_equal(witness.records, 1);
    assert_int_equal(witness.made, 1);
    close_all();
}

/* --- Where memory ends --------------------------------------------------------------------- */

/* Does it to one chunk after the other until there is no memory: that one is cancelled. */
static void until_full(enum shoal_err (*function)(shoal_cid cid), const shoal_cid *cids,
                       size_t count)
{
    size_t i = 0;
    enum shoal_err err = SHOAL_OK;
    for (; !err; i++) {
        assert_true(i < count);
        witness_wrong_if(&witness, witness.cancels > 0, "cancelled without cause", cids[i]);
        err = function(cids[i]);
    }
    assert_int_equal(err, SHOAL_EFULL);
    assert_int_equal(witness.cancels, 1);
    assert_true(witness_is_right(&witness, cids[i - 1]));
    witness.cancels = 0;
}

static enum shoal_err resize_some(shoal_cid cid)
{
    return sh_store_resize(store, cid, 1200);
}

static enum shoal_err fill_some(shoal_cid cid)
{
    return sh_store_fill(store, cid, sh_bytes_make(data_a, 1200));
}

static void test_no_memory(void **state)
{
    (void)state;
    enum { COUNT = 4000 };
    static shoal_cid cids[COUNT], reserved[COUNT];
    open_of(2 * MIB, 1);
    struct sh_store_wish wish = {.count = COUNT, .reserve = true};
    assert_int_equal(sh_store_new_as(store, &wish, reserved, NULL), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 1, COUNT, cids), SHOAL_OK);
    until_full(resize_some, cids, COUNT);
    until_full(fill_some, reserved, COUNT);
    uint32_t sizes[] = {1200, 1200, 1200, 1200, 1200, 1200};
    enum shoal_err err = SHOAL_OK;
    while (!err)
        err = sh_store_new(store, sizes, 6, cids);
    assert_int_equal(err, SHOAL_EFULL);
    assert_true(witness.cancels > 0);
    close_all();
}

/* --- Creates of several -------------------------------------------------------------------- */

/* At each place where the witness may have no room: nothing is left, and all IDs are free again. */
static void test_batch_refused(void **state)
{
    (void)state;
    enum { COUNT = 50 };
    open_of(16 * MIB, 1);
    shoal_cid cids[COUNT], again[COUNT];
    uint32_t sizes[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        sizes[i] = i % 7 ? i * 5 : 2000;
    assert_int_equal(sh_store_new(store, sizes, COUNT, cids), SHOAL_OK);
    assert_int_equal(witness.events[SH_STORE_MADE], COUNT);
    assert_int_equal(sh_store_remove_multi(store, cids, COUNT, (enum shoal_err[COUNT]){0}), COUNT);
    for (long left = 0; left < COUNT; left++) {
        unsigned made = witness.events[SH_STORE_MADE], unmade = witness.events[SH_STORE_UNMADE];
        witness.admit_left = left;
        assert_int_equal(sh_store_new(store, sizes, COUNT, again), SHOAL_EAGAIN);
        made = witness.events[SH_STORE_MADE] - made;
        assert_true(made <= left && made + 16 > left);
        assert_int_equal(witness.events[SH_STORE_UNMADE] - unmade, made);
        witness.admit_left = -1;
        witness_compare(&witness);
    }
    assert_int_equal(sh_store_new(store, sizes, COUNT, again), SHOAL_OK);
    assert_memory_equal(cids, again, sizeof cids);
    close_all();
}

/* In part, it makes as many as there is room for, a group at a time. */
static void test_batch_partial(void **state)
{
    (void)state;
    open_of(16 * MIB, 1);
    shoal_cid cids[100];
    size_t made = 0;
    struct sh_store_wish wish = {.size = 10, .count = 100, .partial = true};
    witness.admit_left = 60;
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_OK);
    assert_true(made > 60 - 16 && made <= 60);
    assert_int_equal(witness.events[SH_STORE_MADE], made);
    assert_int_equal(witness.events[SH_STORE_UNMADE], 0);
    assert_int_equal(sh_store_new_as(store, &wish, cids, &made), SHOAL_EAGAIN);
    close_all();
}

/* In steps it waits for room; ended meanwhile, it takes back what it has made, which cannot be refused. */
static void test_making(void **state)
{
    (void)state;
    enum { COUNT = 100 };
    open_of(64 * MIB, 1);
    shoal_cid cids[COUNT];
    uint32_t sizes[COUNT];
    for (unsigned i = 0; i < COUNT; i++)
        sizes[i] = i % 9 ? i : i % 18 ? 3000 : LARGE;
    for (unsigned fails = 0; fails < 2; fails++) {
        struct sh_store_wish wish = {.sizes = sizes, .count = COUNT};
        struct sh_store_making *making;
        unsigned made = witness.events[SH_STORE_MADE], unmade = witness.events[SH_STORE_UNMADE];
        witness.admit_left = 30;
        assert_int_equal(sh_store_making_begin(store, &wish, cids, &making), SHOAL_OK);
        for (unsigned i = 0; i < 100; i++)
            assert_false(sh_store_making_step(making, 16));
        made = witness.events[SH_STORE_MADE] - made;
        assert_true(made > 0 && made <= 30);
        if (fails) {
            sh_store_making_fail(making, SHOAL_ESTOPPED);
        } else {
            witness.admit_left = -1;
            witness.refuse_of = 40;
        }
        for (unsigned i = 0; !sh_store_making_step(making, 16); i++)
            assert_true(i < STEPS_MAX);
        assert_int_equal(sh_store_making_end(making), fails ? SHOAL_ESTOPPED : SHOAL_OK);
        assert_int_equal(witness.events[SH_STORE_UNMADE] - unmade, fails ? made : 0);
        witness.refuse_of = 0;
        witness_compare(&witness);
    }
    assert_int_equal(witness.begins, 0); /* zeros are told at once */
    close_all();
}

/* --- Large chunks -------------------------------------------------------------------------- */

/* At once they are refused, but for what needs no image. */
static void test_large_at_once(void **state)
{
    (void)state;
    open_of(64 * MIB, 1);
    shoal_cid cid = large_make(LARGE), fresh = make(0);
    unsigned records = witness.records;
    for (enum does does = 0; does < DOES; does++)
        if (event_of(does) == SH_STORE_WRITTEN)
            assert_int_equal(apply(does, cid, LARGE), SHOAL_ELIMIT);
    assert_int_equal(witness.records, records);
    assert_int_equal(sh_store_resize(store, cid, SH_STORE_PIECE_BYTES), SHOAL_OK);
    assert_int_equal(sh_store_resize(store, cid, SH_STORE_PIECE_BYTES + 1), SHOAL_ELIMIT);
    assert_int_equal(sh_store_resize(store, fresh, LARGE), SHOAL_OK);
    assert_true(witness_is_right(&witness, fresh));
    witness.admit_left = 0;
    assert_int_equal(sh_store_remove(store, fresh), SHOAL_EAGAIN);
    witness.admit_left = -1;
    assert_int_equal(sh_store_remove(store, fresh), SHOAL_OK);
    assert_int_equal(sh_store_release(store, cid), SHOAL_OK);
    close_all();
}

static void image_check(shoal_cid cid, const uint8_t *bytes, uint32_t size)
{
    const struct told *told = witness_told(&witness, cid);
    assert_true(witness_is_right(&witness, cid));
    assert_int_equal(told->size, size);
    assert_memory_equal(told->bytes, bytes, size);
}

/* Each kind, with refusals at random: what is told is what it should be, in the end. */
static void test_large_kinds(void **state)
{
    (void)state;
    open_of(64 * MIB, test_seed(7));
    for (unsigned round = 0; round < 6; round++) {
        witness.refuse_of = 0;
        shoal_cid cid = large_make(LARGE), short_cid = make(1000);
        witness.refuse_of = round == 0 ? 0 : 2;
        struct sh_bytes a = sh_bytes_make(data_a, LARGE), b = sh_bytes_make(data_b, LARGE);
        struct sh_store_rewrite compare = {
            .kind = SH_STORE_PUT_IF, .cid = cid, .expected = a, .data = b};
        assert_int_equal(rewrite_all(&compare), SHOAL_OK);
        image_check(cid, data_b, LARGE);
        assert_int_equal(rewrite_all(&compare), SHOAL_EDIFFERS);
        struct sh_store_rewrite hash = {
            .kind = SH_STORE_PUT_IF_HASH, .cid = cid, .hash = sh_hash64(b, 0), .data = a};
        assert_int_equal(rewrite_all(&hash), SHOAL_OK);
        image_check(cid, data_a, LARGE);
        memcpy(data_c, data_a, LARGE);
        memcpy(data_c + 100, data_b, 50);
        struct sh_store_rewrite part = {.kind = SH_STORE_PUT_PART,
                                        .cid = cid,
                                        .offset = 100,
                                        .data = sh_bytes_make(data_b, 50)};
        assert_int_equal(rewrite_all(&part), SHOAL_OK);
        image_check(cid, data_c, LARGE);
        uint64_t old = 0, was = sh_load32(data_c + LARGE - 4);
        struct sh_store_rewrite add = {.kind = SH_STORE_ADD,
                                       .cid = cid,
                                       .offset = LARGE - 4,
                                       .width = 4,
                                       .delta = UINT64_C(0xfffffff0),
                                       .old_out = &old};
        assert_int_equal(rewrite_all(&add), SHOAL_OK);
        assert_int_equal(old, was);
        sh_store32(data_c + LARGE - 4, (uint32_t)(was + add.delta));
        image_check(cid, data_c, LARGE);
        add.offset++;
        assert_int_equal(rewrite_all(&add), SHOAL_ESIZE);
        memset(data_c + LARGE, 0, LARGEST - LARGE);
        struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = cid, .size = LARGEST - 1};
        assert_int_equal(rewrite_all(&resize), SHOAL_OK);
        image_check(cid, data_c, LARGEST - 1);
        resize.size = SH_STORE_PIECE_BYTES + 1;
        assert_int_equal(rewrite_all(&resize), SHOAL_OK);
        image_check(cid, data_c, resize.size);
        resize.cid = short_cid;
        part = (struct sh_store_rewrite){
            .kind = SH_STORE_PUT, .cid = short_cid, .data = sh_bytes_make(data_b, 1000)};
        assert_int_equal(rewrite_all(&part), SHOAL_OK);
        memset(data_c, 0, resize.size);
        memcpy(data_c, data_b, 1000);
        assert_int_equal(rewrite_all(&resize), SHOAL_OK);
        image_check(short_cid, data_c, resize.size);
        witness_compare(&witness);
        witness.refuse_of = 0;
        assert_int_equal(sh_store_remove(store, cid), SHOAL_OK);
        assert_int_equal(sh_store_remove(store, short_cid), SHOAL_OK);
    }
    assert_true(witness.refusals > 20);
    close_all();
}

static enum shoal_err arrive(shoal_cid cid, uint32_t size, unsigned ends_most)
{
    struct sh_store_arriving arriving;
    assert_int_equal(sh_store_arriving_begin(store, cid, size, &arriving), SHOAL_OK);
    sh_store_arriving_put(store, &arriving, sh_bytes_make(data_a, 1000));
    sh_store_arriving_put(store, &arriving, sh_bytes_make(data_a + 1000, size - 1000));
    enum shoal_err err = SHOAL_EAGAIN;
    for (unsigned i = 0; err == SHOAL_EAGAIN && i < ends_most; i++)
        err = sh_store_arriving_end(store, &arriving);
    sh_store_arriving_drop(store, &arriving);
    return err;
}

static void test_large_created(void **state)
{
    (void)state;
    open_of(64 * MIB, 5);
    shoal_cid foreign = shoal_cid_make((shoal_nid){NID + 1}, 12), reserved, fresh = make(0);
    struct sh_store_wish wish = {.count = 1, .reserve = true};
    witness.refuse_of = 2;
    assert_int_equal(arrive(foreign, LARGE, STEPS_MAX), SHOAL_OK);
    image_check(foreign, data_a, LARGE);
    assert_int_equal(arrive(foreign, LARGE, STEPS_MAX), SHOAL_EEXIST);
    unsigned not_made = witness.not_made;
    assert_int_equal(sh_store_new_as(store, &wish, &reserved, NULL), SHOAL_OK);
    assert_int_equal(arrive(reserved, LARGE, 6), SHOAL_EAGAIN); /* dropped halfway */
    assert_int_equal(witness.not_made, not_made + 1);
    assert_int_equal(arrive(fresh, LARGE, STEPS_MAX), SHOAL_ENOCHUNK);
    assert_int_equal(arrive(reserved, LARGE, STEPS_MAX), SHOAL_OK);
    image_check(reserved, data_a, LARGE);
    assert_int_equal(sh_store_new_as(store, &wish, &reserved, NULL), SHOAL_OK);
    struct sh_store_rewrite fill = {
        .kind = SH_STORE_FILL, .cid = reserved, .data = sh_bytes_make(data_b, LARGE)};
    assert_int_equal(rewrite_all(&fill), SHOAL_OK);
    image_check(reserved, data_b, LARGE);
    assert_int_equal(rewrite_all(&fill), SHOAL_ENOCHUNK);
    unsigned begins = witness.begins, records = witness.records;
    struct sh_store_rewrite resize = {.kind = SH_STORE_RESIZE, .cid = fresh, .size = LARGE};
    assert_int_equal(rewrite_all(&resize), SHOAL_OK);
    assert_int_equal(witness.begins, begins); /* zeros */
    assert_int_equal(witness.records, records + 1);
    close_all();
}

/* Begun, and ended after each number of steps: nothing has changed, and the zone is free. */
static void test_large_ended(void **state)
{
    (void)state;
    open_of(64 * MIB, 1);
    shoal_cid cid = large_make(LARGE);
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data_b, LARGE)};
    enum shoal_err err = SHOAL_ECANCELED;
    unsigned steps = 0;
    for (; err == SHOAL_ECANCELED; steps++) {
        struct sh_store_rewriting *rewriting;
        assert_int_equal(sh_store_rewriting_begin(store, &put, &rewriting), SHOAL_OK);
        for (unsigned i = 0; i < steps; i++)
            if (sh_store_rewriting_step(rewriting))
                assert_int_equal(i + 1, steps);
        err = sh_store_rewriting_end(rewriting);
        image_check(cid, err ? data_a : data_b, LARGE);
        assert_false(witness_zone(&witness, cid)->is_in_pieces);
    }
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(witness.not_made, LARGE / SH_STORE_STEP_BYTES + 2);
    close_all();
}

/* While pieces are told nobody else changes the chunk; a change before is seen. */
static void test_large_among_others(void **state)
{
    (void)state;
    open_of(64 * MIB, 1);
    shoal_cid cid = large_make(LARGE);
    struct sh_store_rewrite part = {
        .kind = SH_STORE_PUT_PART, .cid = cid, .data = sh_bytes_make(data_b, 10)};
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data_b, LARGE)};
    struct sh_store_rewriting *rewriting;
    unsigned begins = witness.begins;
    /* Its old bytes are copied, and others again and again write before it begins to tell. */
    assert_int_equal(sh_store_rewriting_begin(store, &part, &rewriting), SHOAL_OK);
    for (unsigned i = 0; i < SH_STORE_TRIES; i++) {
        for (unsigned k = 0; k < 4; k++)
            assert_false(sh_store_rewriting_step(rewriting));
        assert_int_equal(rewrite_all(&put), SHOAL_OK);
        assert_false(sh_store_rewriting_step(rewriting)); /* sees it */
    }
    begins = witness.begins - begins;
    assert_int_equal(begins, SH_STORE_TRIES);
    /* Now it begins right after it has looked. */
    for (unsigned i = 0; i < 2; i++)
        assert_false(sh_store_rewriting_step(rewriting));
    assert_true(witness_zone(&witness, cid)->is_in_pieces);
    assert_int_equal(sh_store_remove(store, cid), SHOAL_EAGAIN);
    assert_int_equal(sh_store_resize(store, cid, 10), SHOAL_EAGAIN);
    struct sh_store_rewriting *other;
    assert_int_equal(sh_store_rewriting_begin(store, &put, &other), SHOAL_OK);
    bool is_over = false;
    for (unsigned i = 0; !is_over; i++) {
        assert_true(i < STEPS_MAX);
        assert_false(sh_store_rewriting_step(other));
        is_over = sh_store_rewriting_step(rewriting);
    }
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_OK);
    assert_int_equal(rest_of(other), SHOAL_OK);
    image_check(cid, data_b, LARGE);
    close_all();
}

/* Pinned between the last piece and the swap, and no memory: nothing is made, nor done at once. */
static void test_large_hindered(void **state)
{
    (void)state;
    open_of(4 * MIB, 1);
    shoal_cid cid = large_make(LARGE);
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = sh_bytes_make(data_b, LARGE)};
    struct sh_store_rewriting *rewriting;
    uint8_t *at;
    uint32_t size;
    assert_int_equal(sh_store_rewriting_begin(store, &put, &rewriting), SHOAL_OK);
    while (witness_zone(&witness, cid)->told < LARGE || !witness_zone(&witness, cid)->is_in_pieces)
        assert_false(sh_store_rewriting_step(rewriting));
    unsigned not_made = witness.not_made;
    assert_int_equal(sh_store_pin(store, cid, &at, &size), SHOAL_OK);
    assert_int_equal(rest_of(rewriting), SHOAL_EBUSY);
    assert_int_equal(witness.not_made, not_made + 1);
    image_check(cid, data_a, LARGE);
    assert_int_equal(sh_store_unpin(store, cid), SHOAL_OK);
    enum shoal_err err = SHOAL_OK;
    while (!err)
        err = sh_store_new_many(store, 60000, 1, &(shoal_cid){0});
    assert_int_equal(rewrite_all(&put), SHOAL_EFULL);
    image_check(cid, data_a, LARGE);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_operation),
        cmocka_unit_test(test_each_creation),
        cmocka_unit_test(test_hand_back),
        cmocka_unit_test(test_nothing_to_tell),
        cmocka_unit_test(test_pins),
        cmocka_unit_test(test_comes_later),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_batch_refused),
        cmocka_unit_test(test_batch_partial),
        cmocka_unit_test(test_making),
        cmocka_unit_test(test_large_at_once),
        cmocka_unit_test(test_large_kinds),
        cmocka_unit_test(test_large_created),
        cmocka_unit_test(test_large_ended),
        cmocka_unit_test(test_large_among_others),
        cmocka_unit_test(test_large_hindered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
