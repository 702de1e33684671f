/* What a watch tells of zones, out of one list after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/watch_int.h"

static const shoal_nid node = {64};
static struct sh_watched_zones zones;

static void take(uint64_t number, enum sh_recovery_state state, uint32_t older)
{
    struct sh_recovery recovery = {.state = state, .zone = {.id = sh_zone_id(node, number)}};
    sh_zone_older_set(&recovery.zone, older);
    assert_true(sh_watched_zones_take(&zones, &recovery));
}

static void end(enum shoal_err err, uint64_t epoch, size_t news)
{
    assert_int_equal(sh_watched_zones_end(&zones, err, epoch), err);
    assert_int_equal(zones.news_count, news);
}

static void is_news(size_t at, uint64_t number, enum shoal_event_kind kind)
{
    assert_true(at < zones.news_count);
    assert_int_equal(zones.news[at].kind, kind);
    assert_int_equal(sh_zone_number(zones.news[at].zone.id), number);
}

/* Each loss is told once, and each time that a zone comes back older once, not before it is back. */
static void each_is_told_once(void **state)
{
    (void)state;
    sh_watched_zones_begin(&zones);
    take(1, SH_RECOVERY_LOST, 0);
    take(2, SH_RECOVERY_WAITS, 0);
    take(3, SH_RECOVERY_RESTORES, 1);
    end(SHOAL_OK, 5, 1);
    is_news(0, 1, SHOAL_EVENT_ZONE_LOST);
    assert_true(sh_watched_zones_are_old(&zones, 5));
    sh_watched_zones_begin(&zones);
    take(1, SH_RECOVERY_LOST, 0);
    take(2, SH_RECOVERY_LOST, 0);
    take(3, SH_RECOVERY_OLDER, 1);
    end(SHOAL_OK, 5, 2);
    is_news(0, 2, SHOAL_EVENT_ZONE_LOST);
    is_news(1, 3, SHOAL_EVENT_ZONE_OLDER);
    assert_false(sh_watched_zones_are_old(&zones, 5));
    assert_true(sh_watched_zones_are_old(&zones, 6));
    sh_watched_zones_begin(&zones);
    take(2, SH_RECOVERY_LOST, 0); /* the record of the first is gone */
    take(3, SH_RECOVERY_RESTORES, 1);
    end(SHOAL_OK, 7, 0);
    sh_watched_zones_begin(&zones);
    take(2, SH_RECOVERY_LOST, 0);
    take(3, SH_RECOVERY_OLDER, 1); /* it has come back whole */
    end(SHOAL_OK, 8, 0);
    sh_watched_zones_begin(&zones);
    take(2, SH_RECOVERY_LOST, 0);
    take(3, SH_RECOVERY_OLDER, 3);
    end(SHOAL_OK, 9, 1);
    is_news(0, 3, SHOAL_EVENT_ZONE_OLDER);
    sh_watched_zones_destroy(&zones);
}

/* What was read of a list that failed is told with the next one. */
static void a_list_that_fails_tells_nothing(void **state)
{
    (void)state;
    sh_watched_zones_begin(&zones);
    take(1, SH_RECOVERY_LOST, 0);
    end(SHOAL_ETIMEOUT, 0, 0);
    assert_true(sh_watched_zones_are_old(&zones, 1));
    sh_watched_zones_begin(&zones);
    for (unsigned i = 1; i < 100; i++)
        take(i, SH_RECOVERY_LOST, 0);
    end(SHOAL_OK, 1, 99);
    sh_watched_zones_begin(&zones);
    for (unsigned i = 1; i < 101; i++)
        take(i, SH_RECOVERY_LOST, 0);
    end(SHOAL_OK, 2, 1);
    is_news(0, 100, SHOAL_EVENT_ZONE_LOST);
    sh_watched_zones_destroy(&zones);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_is_told_once),
        cmocka_unit_test(a_list_that_fails_tells_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
