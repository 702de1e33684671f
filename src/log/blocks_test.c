/* The write buffer's pool and its chains, against plain buffers. */
#include "base/alloc_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "log/blocks.h"

#define SLABS 6u
#define CHAINS 5u
#define ALL ((uint64_t)SLABS * SH_SLAB_BYTES)

static struct sh_blocks *pool_of(unsigned slabs)
{
    struct sh_blocks *blocks;
    assert_int_equal(sh_blocks_create((uint64_t)slabs * SH_SLAB_BYTES, &blocks), SHOAL_OK);
    return blocks;
}

/* The filled bytes of a chain are these, and each run of them begins at a block. */
static void assert_holds(const struct sh_blocks *blocks, const struct sh_chain *chain,
                         const uint8_t *expected)
{
    struct sh_chain_walk walk = {0};
    struct sh_bytes bytes;
    uint64_t seen = 0;
    const uint8_t *behind = NULL;
    while (sh_chain_next(blocks, chain, &walk, &bytes)) {
        assert_true((uintptr_t)bytes.at % SH_BLOCK_BYTES == 0 && bytes.size > 0);
        assert_ptr_not_equal(bytes.at, behind); /* or it would have come with the one before */
        assert_true(seen == 0 || seen % SH_BLOCK_BYTES == 0);
        assert_true(seen + bytes.size <= chain->bytes);
        assert_memory_equal(bytes.at, expected + seen, bytes.size);
        behind = bytes.at + bytes.size;
        seen += bytes.size;
    }
    assert_int_equal(seen, chain->bytes);
}

static uint64_t room_of(const struct sh_chain *chains)
{
    uint64_t room = 0;
    for (unsigned i = 0; i < CHAINS; i++)
        room += chains[i].room;
    return room;
}

/* Chains grow and are freed at random; the pool is always used up to the last block. */
static void test_random(void **state)
{
    static uint8_t expected[CHAINS][ALL];
    static uint8_t bytes[100000];
    uint64_t seed = test_seed(20);
    unsigned full = 0;
    (void)state;
    struct sh_chain chains[CHAINS] = {{0}};
    struct sh_blocks *blocks = pool_of(SLABS);
    for (unsigned round = 0; round < 4000; round++) {
        unsigned which = (unsigned)(test_draw(&seed) % CHAINS);
        struct sh_chain *chain = &chains[which];
        uint64_t draw = test_draw(&seed);
        if (draw % 29 == 0) {
            sh_chain_free(blocks, chain);
            assert_int_equal(chain->bytes + chain->room + chain->first, 0);
        } else {
            size_t size = draw % 7 == 0 ? draw / 8 % sizeof bytes : draw / 8 % 300;
            const struct sh_chain before = *chain;
            enum shoal_err err = sh_chain_reserve(blocks, chain, size);
            if (err) {
                assert_int_equal(err, SHOAL_EAGAIN);
                assert_memory_equal(chain, &before, sizeof before);
                assert_true(ALL - sh_blocks_used(blocks) < size);
                full++;
            } else {
                for (size_t i = 0; i < size; i++)
                    bytes[i] = (uint8_t)test_draw(&seed);
                memcpy(expected[which] + chain->bytes, bytes, size);
                sh_chain_put(blocks, chain, sh_bytes_make(bytes, size));
                assert_int_equal(chain->bytes, before.bytes + size);
            }
        }
        assert_holds(blocks, chain, expected[which]);
        assert_int_equal(sh_blocks_used(blocks), room_of(chains));
    }
    assert_true(full > 10);
    for (unsigned i = 0; i < CHAINS; i++)
        sh_chain_free(blocks, &chains[i]);
    assert_int_equal(sh_blocks_used(blocks), 0);
    sh_blocks_destroy(blocks);
}

/* Sixteen blocks, then slabs; what lies side by side is one run. */
static void test_pieces(void **state)
{
    (void)state;
    struct sh_blocks *blocks = pool_of(3);
    struct sh_chain chain = {0};
    struct sh_chain_walk walk = {0};
    struct sh_bytes bytes;
    size_t left;
    assert_null(sh_chain_end(blocks, &chain, &left));
    assert_int_equal(left, 0);
    assert_false(sh_chain_next(blocks, &chain, &walk, &bytes));
    assert_int_equal(sh_chain_reserve(blocks, &chain, 1), SHOAL_OK);
    assert_int_equal(chain.room, SH_BLOCK_BYTES);
    assert_ptr_equal(sh_chain_end(blocks, &chain, &left), sh_chain_begin(blocks, &chain));
    assert_int_equal(left, SH_BLOCK_BYTES);
    assert_int_equal(sh_chain_reserve(blocks, &chain, SH_SLAB_BYTES), SHOAL_OK);
    assert_int_equal(chain.pieces, 16);
    assert_int_equal(sh_chain_reserve(blocks, &chain, SH_SLAB_BYTES + 1), SHOAL_OK);
    assert_int_equal(chain.pieces, 17);
    assert_int_equal(sh_blocks_used(blocks), 2 * SH_SLAB_BYTES);
    /* Filled in place. */
    while (chain.bytes < chain.room) {
        uint8_t *end = sh_chain_end(blocks, &chain, &left);
        memset(end, (int)(chain.bytes / SH_BLOCK_BYTES), left);
        sh_chain_filled(&chain, left);
    }
    assert_true(sh_chain_next(blocks, &chain, &walk, &bytes));
    assert_int_equal(bytes.size, 2 * SH_SLAB_BYTES);
    assert_int_equal(bytes.at[15 * SH_BLOCK_BYTES], 15);
    assert_int_equal(bytes.at[16 * SH_BLOCK_BYTES], 16);
    assert_false(sh_chain_next(blocks, &chain, &walk, &bytes));
    sh_chain_free(blocks, &chain);
    sh_blocks_destroy(blocks);
}

/* A block here and there of each slab: a long chain goes on with what is left, to the last block. */
static void test_scattered(void **state)
{
    (void)state;
    static struct sh_chain ones[SLABS * 16];
    struct sh_chain chain = {0};
    struct sh_blocks *blocks = pool_of(SLABS);
    for (unsigned i = 0; i < SLABS * 16; i++)
        assert_int_equal(sh_chain_reserve(blocks, &ones[i], 1), SHOAL_OK);
    assert_int_equal(sh_chain_reserve(blocks, &chain, 1), SHOAL_EAGAIN);
    for (unsigned i = 0; i < SLABS * 16; i++) {
        if (i % 16 != 7)
            sh_chain_free(blocks, &ones[i]);
    }
    uint64_t left = ALL - SLABS * SH_BLOCK_BYTES;
    assert_int_equal(sh_chain_reserve(blocks, &chain, left + 1), SHOAL_EAGAIN);
    assert_int_equal(sh_blocks_used(blocks), SLABS * SH_BLOCK_BYTES);
    assert_int_equal(sh_chain_reserve(blocks, &chain, left), SHOAL_OK);
    assert_int_equal(sh_blocks_used(blocks), ALL);
    sh_chain_free(blocks, &chain);
    for (unsigned i = 0; i < SLABS * 16; i++)
        sh_chain_free(blocks, &ones[i]);
    /* Now slabs can be had in one piece again. */
    assert_int_equal(sh_chain_reserve(blocks, &chain, ALL), SHOAL_OK);
    assert_int_equal(chain.pieces, 16 + SLABS - 1);
    sh_chain_free(blocks, &chain);
    sh_blocks_destroy(blocks);
}

static void test_without_memory(void **state)
{
    (void)state;
    for (size_t due = 1; due <= 3; due++) {
        struct sh_blocks *blocks = NULL;
        alloc_fail_at(due, 1);
        assert_int_equal(sh_blocks_create(SH_SLAB_BYTES, &blocks), SHOAL_ENOMEM);
        assert_int_equal(alloc_fail_end(), 1);
        assert_null(blocks);
    }
    struct sh_blocks *blocks = NULL;
    assert_int_equal(sh_blocks_create(UINT64_C(1) << 36, &blocks), SHOAL_OK); /* only reserved */
    sh_blocks_destroy(blocks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_scattered),
        cmocka_unit_test(test_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
