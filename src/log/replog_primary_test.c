/* The primary log has its room on the disk from the beginning on, however small it is. */
#include "log/replog_cut_test.h"

#define CHUNKS 200u

static struct cut *disk_of(void)
{
    return cut_of(rig.config.disk);
}

/* Blocks of the file before its slots. */
static uint64_t blocks_before(void)
{
    return 1 + rig.config.primary_blocks;
}

static enum shoal_err open_some(void)
{
    return sh_replog_open(&rig.config, rig.now_ns, (uint32_t)(rig.now_ns / (1000 * RIG_MS)),
                          &rig.log);
}

/* Another disk, of which nothing is used. */
static void disk_anew(uint32_t primary_blocks)
{
    disk_of()->base.ops->destroy(rig.config.disk);
    rig_config(&rig, cut_create((size_t)64 << 20));
    rig.config.primary_blocks = primary_blocks;
    memset(rig.zones, 0, sizeof rig.zones);
}

/* Writes that go through the primary log one by one, so many times around it. */
static void laps(unsigned count, unsigned *stamp)
{
    uint32_t last = rig.log->lap + count;
    for (unsigned i = 0; rig.log->lap < last; i++) {
        assert_true(i < 100000);
        append(0, (unsigned)(*stamp % CHUNKS), *stamp, 20 + *stamp % 300);
        ++*stamp;
        rig_sync(&rig, 1);
    }
}

/* On a disk that has no room for the primary log, or for the head before it, none is made; once there is room, one is. */
static void test_a_disk_without_room(void **state)
{
    (void)state;
    for (unsigned i = 0; i < 3; i++) {
        disk_of()->limit = blocks_before() - 1 - 100 * i;
        assert_int_equal(open_some(), SHOAL_ENOSPC);
    }
    disk_of()->limit = blocks_before() + 100 * rig.config.slot_bytes / 4096;
    rig_open(&rig);
    assert_true(disk_of()->used >= blocks_before());
    rig_zone_add(&rig, 0, 1, 0);
    unsigned stamp = 0;
    laps(1, &stamp);
    (void)rig_assert_all(&rig, 1);
}

/* All blocks of the ring have their room when the log has been made. So writes go to it, lap by lap, when others have filled the disk;
 * and a start finds them. */
static void test_a_full_disk(void **state)
{
    (void)state;
    struct cut *disk = disk_of();
    rig_open(&rig);
    for (uint64_t i = 0; i < blocks_before(); i++)
        assert_true(disk->backed[i]);
    rig_zone_add(&rig, 0, 1, 0);
    unsigned stamp = 0;
    append(0, 0, stamp++, 100);
    rig_sync(&rig, 1);
    disk->limit = disk->used;
    uint64_t packs = status().primary_writes;
    laps(3, &stamp);
    assert_true(status().primary_writes - packs > rig.config.primary_blocks);
    assert_int_equal(sh_replog_trouble(rig.log), SHOAL_OK);
    append(0, 1, stamp++, 100);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
    shut();
    cut_power(disk);
    disk->limit = 0; /* what only the primary log has goes to slots */
    rig_open(&rig);
    assert_int_equal(rig_load(&rig, 0).err, SHOAL_OK);
    (void)rig_assert_all(&rig, 1);
}

/* A ring of less than two packs works, whatever its size; one of less than a pack is refused. */
static void test_a_small_one(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {256, 257, 300, 511};
    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        disk_anew(sizes[i]);
        unsigned stamp = 0;
        for (unsigned life = 0; life < 3; life++) {
            rig_open(&rig);
            rig_zone_add(&rig, 0, 1, life ? rig_load(&rig, 0).end : 0);
            laps(2, &stamp);
            for (unsigned k = 0; k < 400; k++) /* packs that are large, too */
                append(0, k % CHUNKS, ++stamp, 3000);
            rig_sync(&rig, 1);
            (void)rig_assert_all(&rig, 1);
            shut();
            cut_power(disk_of());
        }
    }
    static const uint32_t refused[] = {1, 255};
    for (unsigned i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        disk_anew(refused[i]);
        assert_int_equal(open_some(), SHOAL_EINVAL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_disk_without_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_full_disk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_small_one, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
