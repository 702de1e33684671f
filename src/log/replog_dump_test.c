/* A dump of a zone out of a log that runs shows what `inspect.h` shows of the same log when no process has it open. */
#include "log/replog_dump.h"

#include "log/replog_cut_test.h"

#define ENTRIES_MAX 20000u

/* Entries that a dump has told of. */
struct list {
    unsigned count;
    struct row {
        uint64_t chunk, sequence, size;
        struct sh_replog_version version;
        uint32_t slot;
        uint16_t piece;
        uint8_t kind, standing;
        uint8_t first_byte;
        bool is_removal, is_with_next;
    } rows[ENTRIES_MAX];
    uint64_t draws;     /* for when nothing is taken; 0: all is */
    unsigned not_taken; /* in a row */
    bool is_over;
    struct sh_replog_dumped dumped;
    enum shoal_err err;
};
static struct list lists[2];

static void row_add(struct list *list, const struct sh_inspect_entry *found)
{
    const struct sh_replog_entry *entry = &found->entry;
    assert_true(list->count < ENTRIES_MAX);
    list->rows[list->count++] =
        (struct row){.chunk = sh_replog_chunk_of(entry),
                     .sequence = found->kind == SH_SLOT_ENTRIES ? found->sequence : 0,
                     .size = entry->payload.size,
                     .version = entry->version,
                     .slot = found->slot,
                     .piece = entry->piece,
                     .kind = (uint8_t)found->kind,
                     .standing = (uint8_t)found->standing,
                     .first_byte = sh_replog_entry_stored(entry) ? entry->payload.at[0] : 0,
                     .is_removal = entry->is_removal,
                     .is_with_next = entry->is_with_next};
}

static bool on_entry(void *arg, const struct sh_inspect_entry *found)
{
    struct list *list = arg;
    if (list->draws && test_draw(&list->draws) % 4 == 0) {
        list->not_taken++;
        return false;
    }
    row_add(list, found);
    return true;
}

static void on_done(void *arg, const struct sh_replog_dumped *dumped, enum shoal_err err)
{
    struct list *list = arg;
    assert_false(list->is_over);
    list->is_over = true;
    list->dumped = *dumped;
    list->err = err;
}

static struct list *begin(unsigned zone, uint64_t chunk, uint64_t draws)
{
    struct list *list = &lists[0];
    const struct sh_replog_dump_config config = {
        .zone = rig_zone_id(zone), .chunk = chunk, .take = on_entry, .done = on_done, .arg = list};
    memset(list, 0, sizeof *list);
    list->draws = draws;
    assert_int_equal(sh_replog_dump_begin(rig.log, &config), SHOAL_OK);
    return list;
}

static void finish(const struct list *list)
{
    for (unsigned i = 0; !list->is_over; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
}

static bool on_slot_entry(void *arg, const struct sh_inspect_entry *found)
{
    if (found->slot != SH_INSPECT_PRIMARY)
        row_add(arg, found);
    return true;
}

/* The log, which is shut, tells the same of its slots. */
static void assert_same(const struct list *list, unsigned zone)
{
    struct list *expected = &lists[1];
    struct sh_inspect *inspect;
    const struct sh_inspect_calls none = {.slot = NULL};
    memset(expected, 0, sizeof *expected);
    assert_int_equal(sh_inspect_open(rig.config.disk, rig.config.name, &inspect), SHOAL_OK);
    assert_int_equal(sh_inspect_read(inspect, rig_zone_id(zone), &none), SHOAL_OK);
    assert_int_equal(sh_inspect_dump(inspect, rig_zone_id(zone), 0, on_slot_entry, expected),
                     SHOAL_OK);
    assert_true(expected->count > 5);
    assert_int_equal(list->count, expected->count);
    for (unsigned i = 0; i < list->count; i++)
        assert_memory_equal(&list->rows[i], &expected->rows[i], sizeof list->rows[i]);
    sh_inspect_close(inspect);
}

static void write_some(unsigned zone, unsigned count, uint64_t *draws)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned chunk = (unsigned)(test_draw(draws) % 300);
        size_t size = test_draw(draws) % 20 == 0 ? 0 : 20 + test_draw(draws) % 900;
        append(zone, chunk, i, size);
    }
}

/* Each chunk is there as it was written last, and nothing else counts. */
static void assert_current(const struct list *list, unsigned zone)
{
    static bool is_there[RIG_CHUNKS];
    memset(is_there, 0, sizeof is_there);
    for (unsigned i = 0; i < list->count; i++) {
        const struct row *row = &list->rows[i];
        unsigned chunk = (unsigned)((row->chunk & SH_REPLOG_LOCAL_ID_MAX) - 1);
        assert_true(row->kind != SH_SLOT_ENTRIES || row->sequence < list->dumped.end);
        assert_int_not_equal(row->standing, SH_INSPECT_VOID);
        if (row->standing != SH_INSPECT_CURRENT)
            continue;
        const struct rig_chunk *of = &rig.zones[zone].chunks[chunk];
        assert_int_equal(row->size, of->size);
        assert_int_equal(row->is_removal, of->is_removal);
        is_there[chunk] = true;
    }
    for (unsigned i = 0; i < RIG_CHUNKS; i++)
        assert_int_equal(is_there[i], rig.zones[zone].chunks[i].is_there);
}

/* All that was appended is told, though some of it was in memory alone when the dump began; in one go, or with pauses. */
static void test_of_a_zone(void **state)
{
    (void)state;
    uint64_t draws = test_seed(91);
    rig.config.versions_max = 256; /* so that it has a version log */
    rig_open(&rig);
    for (unsigned zone = 0; zone < 2; zone++) {
        rig_zone_add(&rig, zone, 1, 0);
        write_some(zone, 1500, &draws);
    }
    for (unsigned again = 0; again < 3; again++) {
        write_some(1, 20, &draws);
        uint64_t next = sh_replog_next(rig.zones[1].zone);
        struct list *list = begin(1, 0, again ? test_draw(&draws) | 1 : 0);
        finish(list);
        assert_int_equal(list->err, SHOAL_OK);
        assert_int_equal(list->dumped.end, next);
        assert_true(list->dumped.slots > 1 && !list->dumped.slots_gone);
        assert_int_equal(again > 0, list->not_taken > 0);
        assert_current(list, 1);
    }
    shut();
    cut_power(cut_of(rig.config.disk));
    assert_same(&lists[0], 1);
}

/* Of a zone that nobody has loaded, which has had lives of which something does not count. */
static void test_of_a_zone_that_was_found(void **state)
{
    (void)state;
    uint64_t draws = test_seed(92);
    rig_open(&rig);
    for (unsigned life = 0; life < 3; life++) {
        rig_zone_add(&rig, 0, 1, life ? rig_load(&rig, 0).end : 0);
        write_some(0, 500, &draws);
        rig_sync(&rig, 1);
        write_some(0, 100, &draws);
        for (unsigned i = 0; i < 3; i++)
            rig_step(&rig, RIG_MS);
        shut();
        cut_power(cut_of(rig.config.disk));
        rig_open(&rig);
        struct list *list = begin(0, 0, life ? test_draw(&draws) | 1 : 0);
        finish(list);
        assert_int_equal(list->err, SHOAL_OK);
        shut();
        assert_same(list, 0);
        rig_open(&rig);
    }
    assert_int_equal(rig_load(&rig, 0).end, lists[0].dumped.end);
}

/* The last of a row of writes has survived a power cut, those before have not; then the owner gives their numbers again, and more: what the former life
 * wrote is void, be it behind the gap or among them. */
static void test_of_what_is_void(void **state)
{
    (void)state;
    struct cut *cut = cut_of(rig.config.disk);
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    for (unsigned i = 0; i < 5; i++)
        append(0, i, i, 100);
    rig_sync(&rig, 1);
    cut->holds = holds_slots;
    for (unsigned i = 10; i < 60 && !cut->count; i++) { /* to a slot, which does not get them */
        append(0, i, i, 500);
        rig_step(&rig, 0);
    }
    assert_true(cut->count > 0);
    append(0, 100, 2000, 100); /* to the primary log, which does */
    sh_replog_sync(rig.zones[0].zone);
    for (unsigned i = 0; i < 50; i++)
        rig_step(&rig, RIG_MS);
    uint64_t next = sh_replog_next(rig.zones[0].zone);
    assert_int_equal(sh_replog_durable(rig.zones[0].zone), 5);
    for (unsigned life = 0; life < 2; life++) {
        shut();
        cut_power(cut);
        rig_open(&rig);
        struct list *list = begin(0, 0, 0);
        finish(list);
        unsigned voids = 0;
        for (unsigned i = 0; i < list->count; i++) {
            const struct row *row = &list->rows[i];
            bool is_former = row->chunk >> 48 == RIG_OWNER &&
                             (row->chunk & SH_REPLOG_LOCAL_ID_MAX) == 101 && row->size == 100;
            voids += row->standing == SH_INSPECT_VOID;
            assert_int_equal(row->standing == SH_INSPECT_VOID, is_former);
        }
        assert_int_equal(voids, 1);
        assert_int_equal(list->dumped.end, life ? next + 5 : 5);
        shut();
        assert_same(list, 0);
        rig_open(&rig);
        if (life)
            break;
        rig_zone_add(&rig, 0, 1, rig_load(&rig, 0).end);
        append(0, 100, 1000, 200);
        while (sh_replog_next(rig.zones[0].zone) < next + 5)
            append(0, 7, 1, 300);
        rig_sync(&rig, 1);
    }
}

/* One chunk alone, and what is refused; another dump begins once the first was stopped. */
static void test_one_chunk(void **state)
{
    (void)state;
    uint64_t draws = test_seed(93), chunk = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    write_some(0, 800, &draws);
    struct list *list = begin(0, 0, 0);
    struct sh_replog_dump_config config = {
        .zone = rig_zone_id(0), .take = on_entry, .done = on_done, .arg = list};
    assert_int_equal(sh_replog_dump_begin(rig.log, &config), SHOAL_EBUSY);
    finish(list);
    chunk = list->rows[0].chunk;
    unsigned expected = 0, current = 0;
    for (unsigned i = 0; i < list->count; i++)
        expected += list->rows[i].chunk == chunk;
    list = begin(0, chunk, 0);
    finish(list);
    assert_int_equal(list->count, expected);
    for (unsigned i = 0; i < list->count; i++) {
        assert_int_equal(list->rows[i].chunk, chunk);
        current += list->rows[i].standing == SH_INSPECT_CURRENT;
    }
    assert_int_equal(current, 1);
    config.zone = rig_zone_id(5);
    assert_int_equal(sh_replog_dump_begin(rig.log, &config), SHOAL_ENONAME);
    list = begin(0, 0, test_draw(&draws) | 1);
    for (unsigned i = 0; list->not_taken < 3; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    sh_replog_dump_stop(rig.log);
    rig_step(&rig, RIG_MS);
    rig_step(&rig, RIG_MS);
    assert_false(list->is_over);
    finish(begin(0, 0, 0));
    (void)begin(0, 0, 0); /* the log is shut with one that goes on */
    rig_step(&rig, RIG_MS);
}

/* While the zone is written to and cleaned: what is given away meanwhile is said, and what is shown was written. */
static void test_while_written(void **state)
{
    (void)state;
    uint64_t draws = test_seed(94);
    unsigned dumps = 0, gone = 0;
    rig_open(&rig);
    rig_zone_add(&rig, 0, 1, 0);
    write_some(0, 2000, &draws);
    struct list *list = begin(0, 0, 7);
    uint64_t next = sh_replog_next(rig.zones[0].zone);
    for (unsigned i = 0; dumps < 20 || !gone; i++) {
        assert_true(i < 200000);
        append(0, (unsigned)(test_draw(&draws) % 300), i, 20 + test_draw(&draws) % 900);
        if (i % 2 == 0)
            rig_step(&rig, RIG_MS / 2);
        if (!list->is_over)
            continue;
        assert_int_equal(list->err, SHOAL_OK);
        assert_true(list->dumped.end >= next && !list->dumped.slots_unreadable);
        gone += list->dumped.slots_gone;
        dumps++;
        for (unsigned k = 0; k < list->count; k++)
            assert_true(list->rows[k].chunk >> 48 == RIG_OWNER &&
                        list->rows[k].standing != SH_INSPECT_VOID);
        list = begin(0, 0, 7 + i);
        next = sh_replog_next(rig.zones[0].zone);
    }
    assert_true(status().slots_cleaned > 10);
    sh_replog_dump_stop(rig.log);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

static void on_dropped(void *arg, uint64_t id, enum shoal_err err)
{
    assert_int_equal(id, rig_zone_id(0));
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

/* The zone is dropped before the dump has shown anything, or while it shows. */
static void test_of_a_zone_that_goes(void **state)
{
    (void)state;
    uint64_t draws = test_seed(95);
    rig_open(&rig);
    for (unsigned again = 0; again < 2; again++) {
        bool is_dropped = false;
        rig_zone_add(&rig, 0, 1 + again, 0);
        write_some(0, 1500, &draws);
        struct list *list = begin(0, 0, 3);
        for (unsigned i = 0; again && list->count < 10; i++) {
            assert_true(i < 100000);
            rig_step(&rig, RIG_MS);
        }
        assert_int_equal(sh_replog_zone_drop(rig.zones[0].zone, on_dropped, &is_dropped), SHOAL_OK);
        finish(list);
        assert_int_equal(list->err, again ? SHOAL_OK : SHOAL_ENONAME);
        unsigned steps = 0;
        while (!is_dropped) {
            assert_true(steps++ < 100000);
            rig_step(&rig, RIG_MS);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_of_a_zone, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_a_zone_that_was_found, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_what_is_void, setup, teardown),
        cmocka_unit_test_setup_teardown(test_one_chunk, setup, teardown),
        cmocka_unit_test_setup_teardown(test_while_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_of_a_zone_that_goes, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
