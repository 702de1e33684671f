/* A file's bytes beside a model: of each sector, the values that it may have after a crash. */
#include "sim/stored.h"

#include <stdbool.h>
#include <string.h>

#include "base/random_test.h"
#include "sim/disk.h"

#define SECTOR SH_SIM_SECTOR_BYTES
#define BLOCK SH_IMAGE_BLOCK_BYTES
#define IN_BLOCK (BLOCK / SECTOR)
#define BLOCKS 6
#define SECTORS (BLOCKS * IN_BLOCK)
#define VALUES 32 /* a discard's is 0 */

/* Of a sector. Three arrays, of which gcc 12 walks those of other strides with one induction variable, would have
 * model_sync taken for a function without effects, and its calls left out. */
struct model {
    uint8_t seen;
    uint32_t may;      /* bits: the values that a crash may leave */
    bool is_abandoned; /* a sync of its last change failed */
};

static struct sh_prng prng;
static struct sh_stored stored;
static struct model model[SECTORS];
static uint64_t survivors;

static void told(void *arg, uint64_t offset, uint64_t size)
{
    (void)arg;
    (void)offset;
    survivors += size > 0;
}

static const struct sh_stored_luck luck = {
    .prng = &prng, .survive_ppm = SH_PRNG_MILLION / 2, .told = told};

/* Changes so many sectors to a value. */
static void model_change(unsigned first, unsigned count, uint8_t value)
{
    for (unsigned i = first; i < first + count; i++) {
        model[i].seen = value;
        model[i].may |= UINT32_C(1) << value;
        model[i].is_abandoned = false;
    }
}

static void model_sync(unsigned first, unsigned count, bool failed)
{
    for (unsigned i = first; i < first + count; i++) {
        uint32_t bit = UINT32_C(1) << model[i].seen;
        if (failed)
            model[i].is_abandoned |= model[i].may != bit;
        else if (!model[i].is_abandoned)
            model[i].may = bit;
    }
}

/* A random number of whole blocks, or of sectors. */
static void pick(unsigned unit, unsigned *first_out, unsigned *count_out)
{
    unsigned units = SECTORS / unit;
    unsigned first = (unsigned)sh_prng_below(&prng, units);
    *first_out = first * unit;
    *count_out = (unsigned)sh_prng_between(&prng, 1, units - first) * unit;
}

static void write_some(bool is_synced)
{
    uint8_t bytes[SECTORS * SECTOR];
    unsigned first, count;
    pick(1, &first, &count);
    uint8_t value = (uint8_t)sh_prng_between(&prng, 1, VALUES - 1);
    memset(bytes, value, sizeof bytes);
    uint64_t offset = (uint64_t)first * SECTOR;
    size_t size = (size_t)count * SECTOR;
    sh_stored_change(&stored, SH_DISK_WRITE, offset, bytes, size);
    model_change(first, count, value);
    if (is_synced) {
        bool failed = sh_prng_below(&prng, 8) == 0;
        sh_stored_sync(&stored, stored.change_number, offset, offset + size, failed, &luck);
        /* A failed one may take all that was not synced with it. */
        if (failed)
            model_sync(0, SECTORS, true);
        else
            model_sync(first, count, false);
    }
}

static void range_change(enum sh_disk_kind kind)
{
    unsigned first, count;
    pick(IN_BLOCK, &first, &count);
    sh_stored_change(&stored, kind, (uint64_t)first * SECTOR, NULL, (size_t)count * SECTOR);
    if (kind == SH_DISK_DISCARD)
        model_change(first, count, 0);
}

static void sync_all(bool failed)
{
    sh_stored_sync(&stored, stored.change_number, 0, UINT64_MAX, failed, &luck);
    model_sync(0, SECTORS, failed);
}

static void compare_seen(void)
{
    uint8_t bytes[SECTORS * SECTOR];
    assert_int_equal(stored.seen.size, sizeof bytes);
    sh_image_read(&stored.seen, 0, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], model[i / SECTOR].seen);
}

/* Each sector has a value that it may have; the process goes on with these. */
static void crash(void)
{
    uint8_t bytes[SECTORS * SECTOR];
    sh_stored_crash(&stored, &luck);
    sh_stored_reset(&stored);
    assert_int_equal(stored.seen.size, sizeof bytes);
    sh_image_read(&stored.seen, 0, bytes, sizeof bytes);
    for (unsigned i = 0; i < SECTORS; i++) {
        uint8_t value = bytes[(size_t)i * SECTOR];
        for (size_t k = 1; k < SECTOR; k++)
            assert_int_equal(bytes[(size_t)i * SECTOR + k], value);
        assert_true(value < VALUES && model[i].may >> value & 1);
        model[i].seen = value;
        model[i].may = UINT32_C(1) << value;
        model[i].is_abandoned = false;
    }
}

static void begin(void)
{
    static const uint8_t zeros[SECTORS * SECTOR];
    memset(model, 0, sizeof model);
    sh_stored_change(&stored, SH_DISK_WRITE, 0, zeros, sizeof zeros);
    model_change(0, SECTORS, 0);
    sync_all(false);
    assert_int_equal(sh_image_space(&stored.stable), sizeof zeros);
}

static void test_model(void **state)
{
    (void)state;
    unsigned crashes = 0;
    prng = sh_prng_make(test_seed(1));
    begin();
    for (unsigned i = 0; i < 20000; i++) {
        switch (sh_prng_below(&prng, 16)) {
        case 0:
            crash();
            crashes++;
            break;
        case 1:
            sync_all(sh_prng_below(&prng, 4) == 0);
            break;
        case 2:
        case 3:
            write_some(true);
            break;
        case 4:
        case 5:
        case 6:
            range_change(SH_DISK_DISCARD);
            break;
        case 7:
            range_change(SH_DISK_ALLOCATE);
            break;
        default:
            write_some(false);
        }
        compare_seen();
    }
    assert_true(crashes > 500 && survivors > crashes);
    sh_stored_clear(&stored);
    assert_int_equal(stored.seen.size + stored.stable.size, 0);
}

/* A discard that a sync has made safe frees the space for good; one that none has, by chance. */
static void test_space_after_a_crash(void **state)
{
    (void)state;
    unsigned freed = 0;
    prng = sh_prng_make(test_seed(2));
    for (unsigned i = 0; i < 200; i++) {
        begin();
        sh_stored_change(&stored, SH_DISK_DISCARD, 0, NULL, 2 * BLOCK);
        sync_all(false);
        sh_stored_change(&stored, SH_DISK_DISCARD, 3 * BLOCK, NULL, BLOCK);
        assert_int_equal(sh_image_space(&stored.seen), (BLOCKS - 3) * BLOCK);
        sh_stored_crash(&stored, &luck);
        sh_stored_reset(&stored);
        uint64_t space = sh_image_space(&stored.seen);
        assert_true(space == (BLOCKS - 2) * BLOCK || space == (BLOCKS - 3) * BLOCK);
        freed += space == (BLOCKS - 3) * BLOCK;
        sh_stored_clear(&stored);
    }
    assert_in_range(freed, 50, 150);
}

/* A write whose sync failed does not come back in a crash once a discard of its place is safe. */
static void test_discarded_for_good(void **state)
{
    (void)state;
    uint8_t bytes[BLOCK];
    struct sh_stored_luck all = luck;
    all.survive_ppm = SH_PRNG_MILLION;
    prng = sh_prng_make(1);
    begin();
    memset(bytes, 5, sizeof bytes);
    sh_stored_change(&stored, SH_DISK_WRITE, BLOCK + SECTOR, bytes, sizeof bytes);
    sync_all(true);
    sh_stored_change(&stored, SH_DISK_DISCARD, BLOCK, NULL, BLOCK);
    sync_all(false);
    sh_stored_crash(&stored, &all);
    sh_stored_reset(&stored);
    sh_image_read(&stored.seen, BLOCK, bytes, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        assert_int_equal(bytes[i], 0);
    sh_image_read(&stored.seen, 2 * BLOCK, bytes, SECTOR);
    for (size_t i = 0; i < SECTOR; i++)
        assert_int_equal(bytes[i], 5);
    sh_stored_clear(&stored);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_discarded_for_good),
        cmocka_unit_test(test_space_after_a_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
