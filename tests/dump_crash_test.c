/* Power failures during a dump: whatever the disk has lost, torn or kept, the file of that name is
 * the old one or the new one, whole; and the new one once the dump has said so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random_test.h"
#include "sim/prng.h"
#include "sim/world.h"
#include "store/dump.h"

#define MIB (UINT64_C(1) << 20)
#define SEEDS 60
#define OLD_CHUNKS 300
#define NEW_CHUNKS 500

static struct sh_store *store_make(unsigned chunks, uint8_t value)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {.bytes_max = 8 * MIB, .chunk_bytes_max = 1u << 20, .nid = {7}};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    for (unsigned i = 1; i <= chunks; i++) {
        /* One is so long that it comes in pieces. */
        static uint8_t bytes[600000];
        size_t size = i == 200 ? sizeof bytes : i;
        memset(bytes, value, size);
        shoal_cid cid = {(UINT64_C(7) << 48) + i};
        assert_int_equal(sh_store_adopt(store, cid, sh_bytes_make(bytes, size)), SHOAL_OK);
    }
    return store;
}

/* Loads the file and says whose it is: the number of its chunks, all of which are right. */
static uint64_t file_check(struct sh_disk *disk)
{
    struct sh_store *store = store_make(0, 0);
    struct sh_dump_sums sums;
    struct sh_load_fault fault = {0, {0}, ""};
    enum shoal_err err = sh_store_load(store, disk, "x", NULL, NULL, &sums, &fault);
    if (err)
        print_message("%s at %llu: %s\n", shoal_err_name(err), (unsigned long long)fault.offset,
                      fault.what);
    assert_int_equal(err, SHOAL_OK);
    uint8_t value = sums.chunks == OLD_CHUNKS ? 'o' : 'n';
    for (unsigned i = 1; i <= sums.chunks; i++) {
        static uint8_t bytes[600000];
        uint32_t size;
        shoal_cid cid = {(UINT64_C(7) << 48) + i};
        assert_int_equal(sh_store_get(store, cid, bytes, sizeof bytes, &size), SHOAL_OK);
        for (uint32_t b = 0; b < size; b++)
            assert_int_equal(bytes[b], value);
    }
    sh_store_destroy(store);
    return sums.chunks;
}

/* Runs some steps of a dump; true when it was over, which was a success. */
static bool dump_some(struct sh_dump *dump, struct sh_disk *disk, unsigned steps)
{
    struct sh_dump_state state = sh_dump_state_get(dump);
    for (unsigned i = 0; i < steps && !state.is_over; i++) {
        if (sh_dump_step(dump, 4000) == 0)
            (void)sh_disk_poll(disk, true);
        state = sh_dump_state_get(dump);
    }
    if (state.is_over)
        assert_int_equal(state.err, SHOAL_OK);
    return state.is_over;
}

static void test_power_fails(void **state)
{
    (void)state;
    const char *bad;
    size_t bad_size;
    uint64_t first = test_seed(1);
    unsigned olds = 0, news = 0, overs = 0;
    assert_int_equal(sh_log_levels_set("error", &bad, &bad_size), SHOAL_OK);
    struct sh_store *old = store_make(OLD_CHUNKS, 'o'), *new = store_make(NEW_CHUNKS, 'n');
    for (uint64_t seed = first; seed < first + SEEDS; seed++) {
        struct sh_world_config config = {.seed = seed,
                                         .disk = {.delay_ns_min = 1000,
                                                  .delay_ns_max = 1000000,
                                                  .again_ppm = 100000,
                                                  .survive_ppm = 400000,
                                                  .torn_ppm = 300000}};
        struct sh_world *world = sh_world_create(&config);
        struct sh_world_node node = {0};
        struct sh_disk *disk = sh_world_env(world, sh_world_node_add(world, &node))->disk;
        struct sh_dump_sums sums;
        struct sh_dump *dump;
        struct sh_dump_config dumped = {.store = new, .disk = disk, .name = "x"};
        assert_int_equal(sh_store_dump(old, disk, "x", NULL, NULL, &sums), SHOAL_OK);
        assert_int_equal(sh_dump_begin(&dumped, &dump), SHOAL_OK);
        bool is_over = dump_some(dump, disk, (unsigned)sh_prng_below(sh_world_prng(world), 130));
        sh_world_crash(world, 0);
        sh_dump_end(dump);
        sh_world_restart(world, 0);
        uint64_t chunks = file_check(disk);
        assert_true(chunks == OLD_CHUNKS || chunks == NEW_CHUNKS);
        if (is_over)
            assert_int_equal(chunks, NEW_CHUNKS);
        olds += chunks == OLD_CHUNKS;
        news += chunks == NEW_CHUNKS;
        overs += is_over;
        /* And the next one is none the worse for what was left. */
        assert_int_equal(sh_store_dump(new, disk, "x", NULL, NULL, &sums), SHOAL_OK);
        assert_int_equal(file_check(disk), NEW_CHUNKS);
        sh_world_destroy(world);
    }
    print_message("%u old, %u new, %u of them over\n", olds, news, overs);
    assert_true(olds > 0 && news > 0 && overs > 0);
    sh_store_destroy(old);
    sh_store_destroy(new);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_power_fails)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
