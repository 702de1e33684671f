/* A dump is read in pages: each as often as it is asked for, one dump at a time, and one that nobody reads ends. */
#include "node/logs_dump.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/crew.h"

#define MS UINT64_C(1000000)
#define SECOND_NS (1000 * MS)
#define ZONE (UINT64_C(64) << 48 | 1)
#define CHUNKS 1500u

static struct {
    struct sh_disk *disk;
    struct sh_replog *log;
    struct sh_logs_dump dump;
    uint64_t now_ns;
} rig;

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(i * 37 + 1);
}

static void step(void)
{
    rig.now_ns += MS;
    (void)sh_replog_step(rig.log, rig.now_ns, (uint32_t)(rig.now_ns / SECOND_NS));
    sh_logs_dump_step(&rig.dump, rig.now_ns);
}

static int setup(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof rig);
    rig.now_ns = 100 * SECOND_NS;
    if (sh_memory_disk_create(&rig.disk))
        return -1;
    const struct sh_replog_config config = {.disk = rig.disk,
                                            .name = "log",
                                            .random = {random_fill, NULL},
                                            .cluster = 77,
                                            .node = 65,
                                            .slot_bytes = 256 << 10,
                                            .slots = 60,
                                            .primary_blocks = 512,
                                            .buffer_bytes = 4 << 20,
                                            .batch_bytes = 16 << 10,
                                            .linger_ns = 100 * MS,
                                            .versions_max = 4096};
    const struct sh_replog_zone_config zone_config = {.id = ZONE,
                                                      .owner = 64,
                                                      .incarnation = 1,
                                                      .bytes_max = 4 << 20,
                                                      .range_first = ZONE,
                                                      .range_count = CHUNKS,
                                                      .rest_max = 100};
    struct sh_replog_zone *zone;
    if (sh_replog_open(&config, rig.now_ns, 100, &rig.log) ||
        sh_replog_zone_add(rig.log, &zone_config, &zone))
        return -1;
    for (unsigned i = 0; i < CHUNKS; i++) {
        uint8_t payload[20];
        memset(payload, (int)(i % 250 + 1), sizeof payload);
        const struct sh_replog_write write = {.local_id = i + 1,
                                              .creator = 64,
                                              .pieces = 1,
                                              .is_removal = i == 7,
                                              .payload = {payload, i == 7 ? 0 : sizeof payload}};
        if (sh_replog_append(zone, &write))
            return -1;
        step();
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    sh_logs_dump_end(&rig.dump);
    sh_replog_close(rig.log);
    rig.disk->ops->destroy(rig.disk);
    return 0;
}

static enum shoal_err begin(uint64_t zone)
{
    return sh_logs_dump_begin(&rig.dump, rig.log, zone, 0, rig.now_ns);
}

/* Asks until the page is there. */
static const struct sh_log_table *page(uint32_t number)
{
    const struct sh_log_table *table = NULL;
    for (unsigned i = 0; !table; i++) {
        assert_true(i < 10000);
        assert_int_equal(sh_logs_dump_page(&rig.dump, rig.dump.number, number, rig.now_ns, &table),
                         SHOAL_OK);
        step();
    }
    return table;
}

static void test_pages(void **state)
{
    (void)state;
    static struct sh_log_table before;
    unsigned rows = 0;
    uint32_t number = 1;
    assert_int_equal(begin(ZONE), SHOAL_OK);
    do {
        const struct sh_log_table *table = page(number);
        assert_true(sh_log_table_bytes(table) < 128 << 10);
        for (uint32_t i = 0; i < table->rows; i++, rows++) {
            uint64_t byte = rows == 7 ? 0 : rows % 250 + 1,
                     word = byte * UINT64_C(0x0101010101010101);
            assert_int_equal(sh_log_table_value(table, i, "chunk"), ZONE + rows);
            assert_int_equal(sh_log_table_value(table, i, "sequence"), rows);
            assert_int_equal(sh_log_table_value(table, i, "standing"), SH_INSPECT_CURRENT);
            assert_int_equal(sh_log_table_value(table, i, "size"), rows == 7 ? 0 : 20);
            assert_int_equal(sh_log_table_value(table, i, "flags"),
                             rows == 7 ? SH_LOG_DUMP_REMOVAL : 0);
            assert_true(sh_log_table_value(table, i, "first_high") == word &&
                        sh_log_table_value(table, i, "first_low") == word);
        }
        assert_true(!table->next || table->next == number + 1);
        before = *table;
        const struct sh_log_table *again = page(number);
        assert_int_equal(again->rows, before.rows);
        assert_memory_equal(again->values, before.values,
                            (size_t)before.rows * before.columns * sizeof before.values[0]);
        number = (uint32_t)again->next;
        assert_int_equal(begin(ZONE),
                         number ? SHOAL_EBUSY : SHOAL_OK); /* it ends the one that was read */
    } while (number);
    assert_int_equal(rows, CHUNKS);
}

/* A page that is behind, or too far ahead, and another dump's number. */
static void test_canceled(void **state)
{
    (void)state;
    const struct sh_log_table *table;
    assert_int_equal(sh_logs_dump_page(&rig.dump, 1, 1, rig.now_ns, &table), SHOAL_ECANCELED);
    assert_int_equal(begin(ZONE + 1), SHOAL_ENONAME);
    assert_int_equal(begin(ZONE), SHOAL_OK);
    uint64_t number = rig.dump.number;
    assert_int_equal(page(1)->next, 2);
    assert_int_equal(page(2)->next, 3);
    const uint32_t others[] = {1, 4};
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sh_logs_dump_page(&rig.dump, number, others[i], rig.now_ns, &table),
                         SHOAL_ECANCELED);
    assert_int_equal(sh_logs_dump_page(&rig.dump, number + 1, 2, rig.now_ns, &table),
                     SHOAL_ECANCELED);
    assert_int_equal(page(2)->next, 3);
}

/* Somebody reads it for as long as pages are asked for; ten seconds later the dump has ended, in the log, too. */
static void test_lapse(void **state)
{
    (void)state;
    const struct sh_log_table *table;
    assert_int_equal(sh_logs_dump_due_ns(&rig.dump), SH_NEVER);
    assert_int_equal(begin(ZONE), SHOAL_OK);
    uint64_t number = rig.dump.number;
    for (unsigned i = 0; i < 3; i++) {
        assert_int_equal(page(1)->next, 2);
        rig.now_ns += 9 * SECOND_NS;
        step();
        assert_int_equal(begin(ZONE), SHOAL_EBUSY);
    }
    assert_non_null(strstr(sh_logs_dump_busy(&rig.dump), "somebody reads"));
    assert_true(sh_logs_dump_due_ns(&rig.dump) <= rig.now_ns + SECOND_NS);
    rig.now_ns += SECOND_NS;
    /* From then on nobody does, but it ends with the log's next step. */
    assert_int_equal(begin(ZONE), SHOAL_EBUSY);
    assert_non_null(strstr(sh_logs_dump_busy(&rig.dump), "nobody reads"));
    step();
    step();
    assert_int_equal(sh_logs_dump_page(&rig.dump, number, 1, rig.now_ns, &table), SHOAL_ECANCELED);
    assert_int_equal(begin(ZONE), SHOAL_OK);
    assert_int_not_equal(rig.dump.number, number);
    assert_int_equal(page(1)->next, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_pages, setup, teardown),
        cmocka_unit_test_setup_teardown(test_canceled, setup, teardown),
        cmocka_unit_test_setup_teardown(test_lapse, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
