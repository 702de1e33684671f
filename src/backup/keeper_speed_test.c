/* How many entries of 64 bytes a second the keeper takes, beside what the log takes by itself. The times are printed only; all is
 * taken.
 *
 * SHOAL_TEST_ENTRIES: how many (default 20000). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "backup/keeper_int.h"
#include "backup/keeper_test.h"

#define EACH 700u    /* of a message */
#define CHUNKS 2048u /* no epoch ends in a message */

static uint64_t thread_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void message_make(struct rig_append *append, uint64_t number, bool is_random)
{
    static const uint8_t image[64] = "sixty-four bytes";
    rig_append_begin(append, 0, 1, number, 0, SH_REPLICATION_NONE);
    for (unsigned i = 0; i < EACH; i++) {
        uint64_t chunk = is_random ? (number + i) * 2654435761u % CHUNKS : (number + i) % CHUNKS;
        const struct sh_replication_entry entry = {.chunk = rig_chunk((unsigned)chunk),
                                                   .size = sizeof image,
                                                   .pieces = 1,
                                                   .bytes = {image, sizeof image}};
        sh_replication_entry_put(&append->w, &entry);
    }
}

static struct sh_replog_write writes[EACH];

/* The same for the log alone. */
static void writes_make(const struct rig_append *append)
{
    struct sh_replication_append head;
    struct sh_replication_entry entry;
    struct sh_reader r = sh_reader_make(sh_bytes_make(append->bytes, rig_append_size(append)));
    assert_true(sh_replication_append_get(&r, &head));
    for (unsigned i = 0; i < EACH; i++) {
        assert_true(sh_replication_entry_get(&r, &entry));
        writes[i] =
            (struct sh_replog_write){.local_id = shoal_cid_local((shoal_cid){entry.chunk}),
                                     .creator = shoal_cid_creator((shoal_cid){entry.chunk}).v,
                                     .pieces = 1,
                                     .payload = entry.bytes};
    }
}

static void writes_take(struct sh_replog_zone *zone)
{
    for (unsigned i = 0; i < EACH; i++) {
        enum shoal_err err = sh_replog_append(zone, &writes[i]);
        SH_ASSERT(!err);
    }
}

/* Returns ns an entry. */
static double measure(bool is_keeper, bool is_random, uint64_t entries)
{
    static struct rig rig;
    static struct rig_append append;
    struct sh_replication_opened opened;
    rig_open(&rig, 4711);
    struct sh_replication_open open = rig_open_of(&rig.owners[0], 0, 1, 1);
    assert_int_equal(rig_zone_open(&rig.owners[0], &open, &opened), SHOAL_OK);
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone(0));
    uint64_t spent_ns = 0, number = 1;
    while (number <= entries) {
        message_make(&append, number, is_random);
        struct sh_msg_in in = {.msg = rig.backup.msg,
                               .type = SH_REPLICATION_APPEND,
                               .reply_to = {.nid = rig.owners[0].nid}};
        in.payload = sh_reader_make(sh_bytes_make(append.bytes, rig_append_size(&append)));
        writes_make(&append);
        uint64_t begun_ns = thread_ns();
        if (is_keeper)
            sh_keeper_on_append(rig.keeper, &in);
        else
            writes_take(zone);
        spent_ns += thread_ns() - begun_ns;
        number += EACH;
        assert_int_equal(sh_replog_next(zone), number);
        for (unsigned i = 0; i < 10; i++) /* to the disk, and cleaned */
            rig_pass(&rig, 10 * RIG_MS);
    }
    rig_close(&rig);
    return (double)spent_ns / (double)(number - 1);
}

static void test_entries_a_second(void **state)
{
    (void)state;
    const char *text = getenv("SHOAL_TEST_ENTRIES");
    uint64_t entries = text ? strtoull(text, NULL, 0) : 20000;
    for (unsigned i = 0; i < 2; i++) {
        double keeper_ns = measure(true, i, entries), log_ns = measure(false, i, entries);
        print_message("%s: %.1f ns an entry by the keeper, %.1f by the log, decoded before: %.1f M "
                      "a second\n",
                      i ? "random" : "in a row", keeper_ns, log_ns, 1000 / keeper_ns);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_entries_a_second)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
