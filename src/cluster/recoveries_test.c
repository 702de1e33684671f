/* What superpeers say of zones being brought back, as bytes; and what none of them says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cluster/recoveries.h"
#include "ring/arcs.h"

static const shoal_nid node = {64}, failed = {70};

static uint8_t page[1024];
static struct sh_writer w;
static unsigned told;

static struct sh_recovery recovery_of(uint64_t number, enum sh_recovery_state state)
{
    struct sh_recovery recovery = {
        .state = state,
        .waits = state == SH_RECOVERY_WAITS ? 2 : 0,
        .zone = {.id = sh_zone_id(node, number),
                 .owner = {65},
                 .life = 5,
                 .incarnation = 2,
                 .version = 3,
                 .flags = state == SH_RECOVERY_LOST ? SH_ZONE_LOST : 0,
                 .count = 2,
                 .wanted = 2,
                 .backups = {{{66}, 1}, {{67}, 2}}},
    };
    if (state == SH_RECOVERY_RESTORES) {
        sh_zone_former_set(&recovery.zone, failed, 7);
        recovery.progress = (struct sh_restore_progress){SH_RESTORE_READS, 5, 6, 1000};
    }
    if (state == SH_RECOVERY_OLDER)
        sh_zone_older_set(&recovery.zone, 4);
    return recovery;
}

static void begin(bool is_more, uint64_t until)
{
    const struct sh_recoveries_head head = {
        .is_more = is_more, .after = sh_zone_id(node, until), .epoch = 8};
    w = sh_writer_make(page, sizeof page);
    sh_recoveries_head_put(&w, &head);
    told = 0;
}

static void put(uint64_t number, enum sh_recovery_state state)
{
    struct sh_recovery recovery = recovery_of(number, state);
    sh_recovery_put(&w, &recovery);
    assert_true(sh_writer_ok(&w));
}

static bool on_told(void *arg, const struct sh_recovery *recovery)
{
    enum sh_recovery_state state = SH_RECOVERY_ASKS + told++;
    struct sh_recovery expected = recovery_of(told, state);
    assert_int_equal(recovery->state, state);
    assert_int_equal(recovery->waits, expected.waits);
    assert_int_equal(recovery->zone.older, expected.zone.older);
    assert_memory_equal(&recovery->progress, &expected.progress, sizeof expected.progress);
    assert_true(sh_zone_is_same(&recovery->zone, &expected.zone));
    return told != *(unsigned *)arg;
}

static enum shoal_err read_page(size_t size, uint64_t after, unsigned most,
                                struct sh_recoveries_head *head)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(page, size));
    told = 0;
    return sh_recoveries_page_get(&r, sh_arc_shard(node), after ? sh_zone_id(node, after) : 0,
                                  on_told, &most, head);
}

static size_t all_put(bool is_more)
{
    begin(is_more, 9);
    for (unsigned i = 0; i < 5; i++)
        put(1 + i, SH_RECOVERY_ASKS + i);
    return (size_t)(w.at - page);
}

static void what_is_said_is_read(void **state)
{
    (void)state;
    struct sh_recoveries_head head;
    for (unsigned i = 0; i < 2; i++) {
        size_t size = all_put(i);
        assert_int_equal(read_page(size, 0, 9, &head), SHOAL_OK);
        assert_int_equal(told, 5);
        assert_true(head.is_more == i && head.epoch == 8 && head.after == sh_zone_id(node, 9));
        assert_int_equal(read_page(size, 0, 2, &head), SHOAL_OK); /* who reads wants no more */
        assert_int_equal(told, 2);
    }
}

static void what_is_cut_is_refused(void **state)
{
    (void)state;
    struct sh_recoveries_head head;
    size_t size = all_put(false);
    unsigned whole = 0;
    for (size_t cut = 0; cut < size; cut++)
        whole += read_page(cut, 0, 9, &head) == SHOAL_OK; /* behind the head, or a zone */
    assert_int_equal(whole, 5);
}

static void what_no_superpeer_says_is_refused(void **state)
{
    (void)state;
    struct sh_recoveries_head head;
    size_t size = all_put(false);
    const size_t first = SH_RECOVERIES_HEAD_BYTES;
    assert_int_equal(read_page(size, 1, 9, &head), SHOAL_EPROTO);  /* no zone again */
    assert_int_equal(read_page(size, 10, 9, &head), SHOAL_EPROTO); /* no way back */
    page[0] = 2;
    assert_int_equal(read_page(size, 0, 9, &head), SHOAL_EPROTO);
    begin(false, 4); /* zones behind that one are not looked at */
    assert_int_equal(read_page(size, 0, 9, &head), SHOAL_EPROTO);
    begin(true, 9); /* a page that brings nothing has no end */
    assert_int_equal(read_page(first, 9, 9, &head), SHOAL_EPROTO);
    const struct {
        size_t at;
        uint8_t is;
    } bad[] = {
        {0, 0}, {0, 6},     {0, SH_RECOVERY_WAITS}, {0, SH_RECOVERY_LOST}, {0, SH_RECOVERY_OLDER},
        {1, 1}, {2 + 6, 63}};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        (void)all_put(false);
        page[first + bad[i].at] = bad[i].is;
        assert_int_equal(read_page(size, 0, 9, &head), SHOAL_EPROTO);
    }
    begin(false, 9);
    put(1, SH_RECOVERY_WAITS);
    page[first + 1] = 4; /* there are two backups */
    assert_int_equal(read_page((size_t)(w.at - page), 0, 9, &head), SHOAL_EPROTO);
    static const struct {
        size_t at;
        uint8_t is;
    } bad_progress[] = {{2, SH_RESTORE_PHASES}, {3, 7}, {11, 4}};
    for (unsigned i = 0; i < sizeof bad_progress / sizeof bad_progress[0]; i++) {
        begin(false, 9);
        put(1, SH_RECOVERY_RESTORES);
        page[first + bad_progress[i].at] = bad_progress[i].is;
        assert_int_equal(read_page((size_t)(w.at - page), 0, 9, &head), SHOAL_EPROTO);
    }
    begin(false, 9);
    put(1, SH_RECOVERY_LOST);
    page[first] = SH_RECOVERY_ASKS;
    assert_int_equal(read_page((size_t)(w.at - page), 0, 9, &head), SHOAL_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_read),
        cmocka_unit_test(what_is_cut_is_refused),
        cmocka_unit_test(what_no_superpeer_says_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
