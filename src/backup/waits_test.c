/* Who waits for what: marks, levels, guards, room; zones without a log, whose acknowledgements the test gives. */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "backup/backup_int.h"
#include "base/random_test.h"

#define ZONES 6u
#define NID UINT64_C(3)

static struct sh_store *store;
static struct sh_backup *backup;
static struct sh_own_zone *zones[ZONES];
static unsigned wakes, dones;
static enum shoal_err done_err;

static void wake(void *arg)
{
    (void)arg;
    wakes++;
}

static void on_done(void *arg, enum shoal_err err)
{
    (void)arg;
    dones++;
    done_err = err;
}

static int setup(void **state)
{
    (void)state;
    const struct sh_store_config config = {
        .bytes_max = 16 << 20, .chunk_bytes_max = 1 << 20, .nid = {NID}, .small_pages = true};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    const struct sh_backup_config backed = {
        .store = store, .nid = {NID}, .zone_bytes = 1 << 20, .window_bytes = 4 << 20, .wake = wake};
    assert_int_equal(sh_backup_create(&backed, &backup), SHOAL_OK);
    for (unsigned i = 0; i < ZONES; i++) {
        assert_int_equal(sh_zone_make(backup, i, 10, &zones[i]), SHOAL_OK);
        /* Zone i claims the IDs from 1000 i on. */
        const struct sh_zone_claim claim = {NID << 48 | (1000 * i + 1),
                                            NID << 48 | (1000 * i + 999)};
        assert_int_equal(sh_zone_claimed(zones[i], &claim), SHOAL_OK);
    }
    backup->is_on = true;
    wakes = dones = 0;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    backup->is_on = false;
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    return 0;
}

/* A write of one chunk of each of those zones, all with that number. */
static void write_of(struct sh_write *write, enum sh_level level, unsigned zones_count,
                     uint64_t number)
{
    sh_write_begin(write, level);
    for (unsigned i = 0; i < zones_count; i++)
        sh_write_mark(backup, write, NID << 48 | (1000 * i + 1), zones[i], number);
}

static bool is_clean(unsigned zone)
{
    struct sh_write seen;
    return sh_backup_read_is_clean(backup, (shoal_cid){NID << 48 | (1000 * zone + 1)}, &seen);
}

/* Acknowledged is what comes before the number, not that number; and only at that level. */
static void test_number(void **state)
{
    (void)state;
    struct sh_write write;
    write_of(&write, SH_LEVEL_REPLICATED, 1, 12);
    assert_false(is_clean(0));
    assert_true(sh_write_wait(backup, &write, on_done, NULL));
    assert_true(atomic_load(&zones[0]->is_dirty) && wakes == 1);
    assert_int_equal(zones[0]->wanted[SH_LEVEL_REPLICATED], 13);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, 13);
    assert_int_equal(sh_waits_call(backup), 0);
    sh_zone_acked(zones[0], SH_LEVEL_REPLICATED, 12);
    assert_int_equal(sh_waits_call(backup), 0);
    assert_false(is_clean(0));
    sh_zone_acked(zones[0], SH_LEVEL_REPLICATED, 13);
    assert_int_equal(sh_waits_call(backup), 1);
    assert_true(dones == 1 && done_err == SHOAL_OK);
    assert_true(is_clean(0));
    /* What is acknowledged already is not waited for. */
    write_of(&write, SH_LEVEL_REPLICATED, 1, 12);
    assert_false(sh_write_wait(backup, &write, on_done, NULL));
    assert_true(is_clean(0));
    write_of(&write, SH_LEVEL_ASYNC, 1, 99);
    assert_true(is_clean(0));
    assert_false(sh_write_wait(backup, &write, on_done, NULL));
}

/* A write that has changed something and seen what others wait for waits at the higher level of the two; who sees its changes waits at its own. */
static void test_joined(void **state)
{
    (void)state;
    struct sh_write write, others, seen;
    write_of(&others, SH_LEVEL_DURABLE, 2, 12);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, 13);
    assert_true(sh_write_wait(backup, &others, on_done, NULL));
    zones[1]->backlog.next = 13;
    write_of(&write, SH_LEVEL_REPLICATED, 1, 14);
    assert_false(sh_backup_read_is_clean(backup, (shoal_cid){NID << 48 | (1000 * 1 + 1)}, &seen));
    sh_write_join(&write, &seen);
    assert_true(sh_write_wait(backup, &write, on_done, NULL));
    for (unsigned i = 0; i < 2; i++)
        sh_zone_acked(zones[i], SH_LEVEL_REPLICATED, 15);
    (void)sh_waits_call(backup);
    assert_int_equal(dones, 0);
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, 15);
    (void)sh_waits_call(backup);
    assert_int_equal(dones, 1); /* the other one */
    assert_false(sh_backup_read_is_clean(backup, (shoal_cid){NID << 48 | 1}, &seen));
    assert_int_equal(seen.level, SH_LEVEL_REPLICATED);
    sh_zone_acked(zones[0], SH_LEVEL_DURABLE, 15);
    (void)sh_waits_call(backup);
    assert_int_equal(dones, 2);
    assert_true(is_clean(0) && is_clean(1));
    for (unsigned i = 0; i < SH_GUARDS; i++)
        assert_int_equal(backup->guards[i], 0);
}

/* Whichever zone is the last to acknowledge, it is waited for: of few zones, and of more than there are marks for. */
static void test_zones(void **state)
{
    (void)state;
    for (unsigned count = 1; count <= ZONES; count++) {
        for (unsigned last = 0; last < count; last++) {
            uint64_t number = 10 + 10 * count + last;
            struct sh_write write;
            write_of(&write, SH_LEVEL_DURABLE, count, number);
            for (unsigned i = 0; i < count && count > SH_WRITE_MARKS; i++)
                zones[i]->backlog.next = number + 1; /* all zones are asked how far they are */
            assert_true(sh_write_wait(backup, &write, on_done, NULL));
            for (unsigned i = 0; i < ZONES; i++) {
                if (i != last)
                    sh_zone_acked(zones[i], SH_LEVEL_DURABLE, number + 1);
            }
            assert_int_equal(sh_waits_call(backup), 0);
            sh_zone_acked(zones[last], SH_LEVEL_DURABLE, number + 1);
            assert_int_equal(sh_waits_call(backup), 1);
            for (unsigned i = 0; i < ZONES; i++)
                assert_true(is_clean(i));
        }
    }
}

/* Many wait for one zone, in no order; each is called when its number is there. */
static void test_order(void **state)
{
    (void)state;
    static const uint64_t numbers[] = {30, 20, 40, 20, 10, 35, 40, 11};
    struct sh_write writes[8];
    for (unsigned i = 0; i < 8; i++) {
        write_of(&writes[i], SH_LEVEL_REPLICATED, 1, numbers[i]);
        assert_true(sh_write_wait(backup, &writes[i], on_done, NULL));
    }
    unsigned called = 0;
    for (uint64_t acked = 11; acked <= 41; acked++) {
        unsigned due = 0;
        for (unsigned i = 0; i < 8; i++)
            due += numbers[i] < acked;
        sh_zone_acked(zones[0], SH_LEVEL_REPLICATED, acked);
        called += sh_waits_call(backup);
        assert_int_equal(called, due);
        assert_int_equal(is_clean(0), due == 8);
    }
}

/* A read waits for writes of its chunk at the level that they are waited for with; also for those of many chunks. */
static void test_reads(void **state)
{
    (void)state;
    struct sh_write one, many, seen;
    zones[0]->backlog.next = 51;
    write_of(&one, SH_LEVEL_REPLICATED, 1, 50);
    assert_true(is_clean(1));
    assert_false(sh_backup_read_is_clean(backup, (shoal_cid){1}, &seen)); /* without the node ID */
    assert_true(seen.level == SH_LEVEL_REPLICATED && seen.marks[0].number == 50);
    sh_write_begin(&many, SH_LEVEL_DURABLE);
    for (unsigned i = 0; i < 3 * SH_WRITE_GUARDS; i++)
        sh_write_mark(backup, &many, NID << 48 | (1000 + i), zones[1], 20 + i);
    zones[1]->backlog.next = 20 + 3 * SH_WRITE_GUARDS;
    assert_false(sh_backup_read_is_clean(backup, (shoal_cid){1900}, &seen));
    assert_int_equal(seen.level, SH_LEVEL_DURABLE);
    assert_true(sh_write_wait(backup, &seen, on_done, NULL));
    assert_true(sh_write_wait(backup, &many, on_done, NULL));
    assert_true(sh_write_wait(backup, &one, on_done, NULL));
    sh_zone_acked(zones[1], SH_LEVEL_DURABLE, 20 + 3 * SH_WRITE_GUARDS);
    assert_int_equal(sh_waits_call(backup), 2);
    assert_true(is_clean(1) && !is_clean(0));
    sh_zone_acked(zones[0], SH_LEVEL_REPLICATED, 51);
    assert_int_equal(sh_waits_call(backup), 1);
    assert_true(is_clean(0));
}

/* Room that came between the refusal and the wait is not missed. */
static void test_room(void **state)
{
    (void)state;
    struct sh_write write, other;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    sh_write_begin(&other, SH_LEVEL_ASYNC);
    write.room_seen = other.room_seen = backup->rooms;
    sh_backup_room_wait(backup, &write, on_done, NULL);
    assert_int_equal(sh_waits_call(backup), 0);
    sh_waits_room(backup);
    sh_backup_room_wait(backup, &other, on_done, NULL);
    assert_int_equal(sh_waits_call(backup), 2);
    assert_int_equal(dones, 2);
}

/* When the log is out of service, all are told, also those that come later. */
static void test_failed(void **state)
{
    (void)state;
    struct sh_write write, all, room, late;
    write_of(&write, SH_LEVEL_REPLICATED, 2, 20);
    sh_write_begin(&all, SH_LEVEL_DURABLE);
    sh_backup_write_all(backup, &all);
    zones[3]->backlog.next = 12;
    sh_write_begin(&room, SH_LEVEL_ASYNC);
    assert_true(sh_write_wait(backup, &write, on_done, NULL));
    assert_true(sh_write_wait(backup, &all, on_done, NULL));
    sh_backup_room_wait(backup, &room, on_done, NULL);
    atomic_store(&backup->trouble, SHOAL_EIO);
    sh_waits_fail(backup);
    write_of(&late, SH_LEVEL_REPLICATED, 1, 30);
    assert_true(sh_write_wait(backup, &late, on_done, NULL));
    assert_int_equal(sh_waits_call(backup), 4);
    assert_true(dones == 4 && done_err == SHOAL_EIO);
    /* Readers see the bytes of these writes, but get no acknowledgement, for ever. */
    struct sh_write seen;
    for (unsigned zone = 0; zone < 2; zone++) {
        const shoal_cid cid = {NID << 48 | (1000 * zone + 1)};
        assert_false(sh_backup_read_is_clean(backup, cid, &seen));
        assert_true(sh_write_wait(backup, &seen, on_done, NULL));
        done_err = SHOAL_OK;
        assert_int_equal(sh_waits_call(backup), 1);
        assert_int_equal(done_err, SHOAL_EIO);
    }
}

/* --- Threads ----------------------------------------------------------------------------------- */

#define ROUNDS TEST_ROUNDS(20000u)

static _Atomic unsigned begun, ended;

static void *waiter(void *arg)
{
    _Atomic unsigned *over = arg;
    for (unsigned round = 1; round <= ROUNDS; round++) {
        struct sh_write write;
        write_of(&write, SH_LEVEL_REPLICATED, 1, 20);
        while (atomic_load(&begun) < round)
            sched_yield();
        assert_true(sh_write_wait(backup, &write, on_done, NULL));
        atomic_store(&ended, round);
        /* The write is on this stack until it was called. */
        while (atomic_load(over) < round)
            sched_yield();
    }
    return NULL;
}

/* Who begins to wait while the log goes out of service is told, too. */
static void test_fails_meanwhile(void **state)
{
    (void)state;
    pthread_t thread;
    static _Atomic unsigned over;
    assert_int_equal(pthread_create(&thread, NULL, waiter, &over), 0);
    for (unsigned round = 1; round <= ROUNDS; round++) {
        atomic_store(&backup->trouble, SHOAL_OK);
        atomic_store(&begun, round);
        for (volatile unsigned pause = 0; pause < round % 64; pause++)
            continue;
        atomic_store(&backup->trouble, SHOAL_EIO);
        sh_waits_fail(backup);
        while (atomic_load(&ended) < round)
            sched_yield();
        (void)sh_waits_call(backup);
        assert_int_equal(dones, round);
        atomic_store(&over, round);
    }
    pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_number, setup, teardown),
        cmocka_unit_test_setup_teardown(test_joined, setup, teardown),
        cmocka_unit_test_setup_teardown(test_zones, setup, teardown),
        cmocka_unit_test_setup_teardown(test_order, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reads, setup, teardown),
        cmocka_unit_test_setup_teardown(test_room, setup, teardown),
        cmocka_unit_test_setup_teardown(test_failed, setup, teardown),
        cmocka_unit_test_setup_teardown(test_fails_meanwhile, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
