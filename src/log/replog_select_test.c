/* The choice of zones and slots to clean: some that are made up, and logs under each strategy.
 *
 * SHOAL_TEST_LAPS (8) and SHOAL_TEST_FILL (50): how long, and at which percentage of current data, strategies are compared. */
#include "base/options.h"
#include "log/replog_cut_test.h"

/* --- Made up ----------------------------------------------------------------------------------- */

#define SLOTS 12u
#define SLOT_BYTES 65536u
#define ZONES 6u

static struct {
    struct sh_replog log;
    struct sh_log_slot slots[SLOTS];
    struct sh_replog_zone zones[ZONES];
} made;

static struct sh_replog_zone *made_up(enum sh_replog_selection selection)
{
    struct sh_replog_zone *zone = &made.zones[0];
    memset(&made, 0, sizeof made);
    made.log.config.selection = selection;
    made.log.config.random = (struct sh_random){rig_random_fill, NULL};
    made.log.slots = (struct sh_log_slots){
        .slots = made.slots, .count = SLOTS, .bytes = SLOT_BYTES, .free_count = 100};
    made.log.to_clean_end = &made.log.to_clean;
    made.log.seconds = 1000;
    made.log.head.slot_bytes = SLOT_BYTES;
    zone->log = &made.log;
    zone->next_sequence = 1000;
    for (unsigned i = 0; i < SLOTS; i++) /* the older, the lower */
        made.slots[i] = (struct sh_log_slot){.filled = SLOT_BYTES,
                                             .order = i,
                                             .end = 100 + 50 * i,
                                             .since = 100 + 50 * i,
                                             .kind = SH_SLOT_ENTRIES};
    return zone;
}

static void survived(unsigned slot, unsigned generation, uint32_t mean_age)
{
    made.slots[slot].kind = SH_SLOT_SURVIVORS;
    made.slots[slot].generation = generation;
    made.slots[slot].mean_age = mean_age;
}

/* Which slots are taken, in this order. */
static void assert_taken(struct sh_replog_zone *zone, unsigned most, const unsigned *should)
{
    uint32_t slots[SLOTS];
    unsigned seen = 0;
    for (unsigned i = 0; i < SLOTS; i++)
        slots[i] = i;
    sh_replog_select_slots(zone, slots, SLOTS, most);
    for (unsigned i = 0; i < most; i++)
        assert_int_equal(slots[i], should[i]);
    for (unsigned i = 0; i < SLOTS; i++)
        seen |= 1u << slots[i];
    assert_int_equal(seen, (1u << SLOTS) - 1);
}
#define TAKES(zone, ...)                                                                           \
    assert_taken((zone), sizeof((unsigned[]){__VA_ARGS__}) / sizeof(unsigned),                     \
                 (unsigned[]){__VA_ARGS__})

static void test_oldest(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_OLDEST);
    made.slots[1].filled = 4096;
    survived(2, 1, 0);
    TAKES(zone, 0, 1, 2);
}

/* A slot that is nearly empty waits until it is much older. */
static void test_age_fill(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_AGE_FILL);
    made.slots[0].filled = SLOT_BYTES / 4;
    made.slots[2].filled = SLOT_BYTES / 2;
    survived(1, 3, 1 << 20);
    TAKES(zone, 4, 3, 1);
    made.slots[0].end = 0;
    zone->next_sequence = 700;
    made.slots[1].filled = made.slots[3].filled = 4096;
    TAKES(zone, 4);
}

/* The shares that cleanings have kept so far say which slots have the least that is current: writes are hot here, and entries that were copied once are cold. */
static void test_cost_benefit(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_COST_BENEFIT);
    for (unsigned i = 0; i < 6; i++)
        survived(i, i < 3 ? 1 : 3, 0);
    TAKES(zone, 1, 0); /* nothing is known */
    zone->lasts[0] = 50;
    zone->lasts[1] = 20000;
    TAKES(zone, 8, 7, 6);
    zone->lasts[3] = 10; /* more is known of what was copied thrice */
    TAKES(zone, 7, 6, 5, 4, 3);
    for (unsigned i = 0; i < 3; i++) /* their time comes */
        made.slots[i].end = 0;
    zone->next_sequence = 100000;
    for (unsigned i = 3; i < SLOTS; i++)
        made.slots[i].end = 99000;
    TAKES(zone, 0, 1, 2);
}

/* Of two slots that were copied at the same time, that goes first which has what was written later. */
static void test_timestamps(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_TIMESTAMPS);
    survived(0, 2, 100000);
    survived(1, 1, 3000);
    survived(2, 1, 30);
    survived(3, 2, 100);
    zone->lasts[0] = 1000;
    zone->lasts[1] = zone->lasts[2] = 1; /* says nothing here */
    TAKES(zone, 2);
    TAKES(zone, 2, 3);
    made.log.seconds += 1000000;
    TAKES(zone, 5, 4, 2, 3);
}

/* Each slot is taken as often as another. */
static void test_random(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_RANDOM);
    unsigned taken[SLOTS] = {0};
    for (unsigned round = 0; round < 3000; round++) {
        uint32_t slots[SLOTS];
        for (unsigned i = 0; i < SLOTS; i++)
            slots[i] = i;
        sh_replog_select_slots(zone, slots, SLOTS, 4);
        for (unsigned i = 0; i < 4; i++)
            taken[slots[i]]++;
    }
    for (unsigned i = 0; i < SLOTS; i++)
        assert_true(taken[i] > 850 && taken[i] < 1150);
}

/* Slots from an earlier process go first, and those that may have pieces of what was abandoned, or what is there twice; and once nothing was gained, or
 * many marks were kept, all of them in their order. */
static void test_others_go_first(void **state)
{
    (void)state;
    for (int selection = 0; selection < SH_REPLOG_SELECTIONS; selection++) {
        struct sh_replog_zone *zone = made_up((enum sh_replog_selection)selection);
        zone->lasts[0] = 1;
        zone->lasts[1] = 1 << 20;
        for (unsigned i = 0; i < 3; i++) {
            survived(i, 1, 1 << 20);
            made.slots[i].is_found = true;
        }
        TAKES(zone, 0, 1, 2);
        TAKES(zone, 0, 1);
        for (unsigned i = 0; i < 3; i++)
            made.slots[i].is_found = false;
        zone->has_void = true;
        zone->void_order = 2;
        TAKES(zone, 0, 1);
        zone->has_void = false;
        zone->twice_order = 2;
        TAKES(zone, 0, 1);
        zone->twice_order = 0;
        zone->fruitless = 1;
        TAKES(zone, 0, 1, 2, 3);
        zone->fruitless = 0;
        zone->has_marks = true;
        TAKES(zone, 0, 1);
    }
}

static void test_benefit(void **state)
{
    (void)state;
    for (uint64_t age = 1; age < UINT64_C(1) << 39; age = age * 3 + 1) {
        uint64_t last = UINT64_MAX;
        for (uint64_t lasts = 0; lasts < UINT64_C(1) << 43; lasts = lasts * 5 + 1) {
            for (unsigned fill = 1; fill <= 256; fill *= 2) {
                double current = (double)fill / 256 * (double)lasts / (double)(lasts + age);
                double should = (double)age * (1 - current) / (1 + current);
                double is = (double)sh_replog_benefit(age, lasts, fill) / 65536;
                /* As exact as L, of which fill takes a part, and 16 bits are. */
                assert_true(is >= should * (1 - 1e-9) - (double)age / 65536);
                assert_true(is <= should + 2 * (double)age / (double)(lasts + age) + 1e-9 * should);
            }
            uint64_t is = sh_replog_benefit(age, lasts, 256);
            assert_true(is <= last);
            last = is;
        }
    }
    assert_true(sh_replog_benefit(5, 100, 256) > sh_replog_benefit(4, 100, 256));
    assert_true(sh_replog_benefit(4, 100, 128) > sh_replog_benefit(4, 100, 256));
}

static void tally(struct sh_replog_zone *zone, unsigned slot, unsigned kept, unsigned dropped)
{
    struct sh_replog_tally tallies[SH_SLOT_GENERATION_MAX + 1] = {{0}};
    const struct sh_replog_entry entry = {.pieces = 1, .payload = {(const uint8_t *)"12345678", 8}};
    sh_replog_tally_slot(tallies, zone, &made.slots[slot]);
    for (unsigned i = 0; i < kept + dropped; i++)
        sh_replog_tally_entry(tallies, &made.slots[slot], &entry, i < kept);
    sh_replog_tally_end(tallies, zone);
}

/* The next cleaning goes by what one has found. */
static void test_tally(void **state)
{
    (void)state;
    struct sh_replog_zone *zone = made_up(SH_REPLOG_COST_BENEFIT);
    tally(zone, 0, 50, 50); /* at an age of 901 */
    assert_in_range(zone->lasts[0], 890, 910);
    tally(zone, 0, 0, 0);
    assert_in_range(zone->lasts[0], 890, 910);
    for (unsigned i = 0; i < 30; i++)
        tally(zone, 0, 75, 25);
    assert_in_range(zone->lasts[0], 2600, 2750);
    assert_int_equal(zone->lasts[1], 0);
    survived(1, 2, 0); /* 851 */
    tally(zone, 1, 100, 0);
    assert_in_range(zone->lasts[2], 12000, 851 * 16 + 1);
    survived(2, 3, 0); /* 801 */
    tally(zone, 2, 0, 100);
    assert_in_range(zone->lasts[3], 40, 801 / 15 + 2);
    made.slots[3].is_found = true; /* of what came before nobody knows when */
    uint64_t before = zone->lasts[0];
    tally(zone, 3, 0, 100);
    assert_int_equal(zone->lasts[0], before);
}

/* The option takes each name, and no other; by itself it says what a log does by itself. */
static void test_names(void **state)
{
    (void)state;
    struct sh_options options;
    struct sh_options_error error;
    assert_int_equal(sh_options_init(&options), SHOAL_OK);
    assert_int_equal(sh_replog_selection_of(options.log_selection), 0);
    for (unsigned i = 0; sh_replog_selection_names[i]; i++) {
        const char *name = sh_replog_selection_names[i];
        assert_true(i < SH_REPLOG_SELECTIONS);
        assert_int_equal(sh_options_set(&options, "log_selection", name, "test", &error), SHOAL_OK);
        assert_int_equal(sh_options_check(&options, &error), SHOAL_OK);
        assert_int_equal(sh_replog_selection_of(options.log_selection), i);
    }
    assert_int_equal(sh_options_set(&options, "log_selection", "best", "test", &error), SHOAL_OK);
    assert_int_equal(sh_options_check(&options, &error), SHOAL_EPARSE);
    sh_options_destroy(&options);
}

/* --- Zones ------------------------------------------------------------------------------------- */

/* Zones with so many of 100 slots. */
static void zones_make(const uint32_t *counts)
{
    (void)made_up(SH_REPLOG_OLDEST);
    made.log.now_ns = 1000 * RIG_MS;
    for (unsigned i = 0; i < ZONES; i++) {
        made.zones[i] = (struct sh_replog_zone){.log = &made.log,
                                                .id = i,
                                                .slots_max = 100,
                                                .versions = (struct sh_versions *)&made,
                                                .slots = {SH_SLOT_NONE, counts[i]}};
        sh_replog_clean_if_full(&made.zones[i]);
    }
}

static int zone_next(void)
{
    const struct sh_replog_zone *zone = sh_replog_select_zone(&made.log);
    return zone ? (int)zone->id : -1;
}

static void test_triggers(void **state)
{
    (void)state;
    zones_make((uint32_t[]){59, 60, 70, 40, 0, 65});
    made.log.appended_ns = made.log.now_ns;
    assert_int_equal(zone_next(), -1); /* somebody has just written */
    assert_int_equal(sh_replog_select_due_ns(&made.log), made.log.now_ns + 1000 * RIG_MS);
    made.log.now_ns += 1000 * RIG_MS;
    made.log.fresh.count = 1;
    assert_int_equal(zone_next(), -1); /* and something waits to be written */
    made.log.fresh.count = 0;
    assert_int_equal(zone_next(), 2);
    assert_int_equal(zone_next(), 5);
    assert_int_equal(zone_next(), 1);
    assert_int_equal(zone_next(), -1);
    assert_int_equal(sh_replog_select_due_ns(&made.log), UINT64_MAX);

    zones_make((uint32_t[]){74, 75, 77, 98, 40, 76});
    made.log.appended_ns = made.log.now_ns;
    assert_false(sh_replog_is_cleaned(&made.zones[0]));
    assert_true(sh_replog_is_cleaned(&made.zones[1]));
    assert_int_equal(sh_replog_select_due_ns(&made.log), made.log.now_ns);
    assert_int_equal(zone_next(), 3); /* has no place for what it writes */
    made.zones[2].is_ending = true;
    assert_int_equal(zone_next(), 5);
    made.zones[2].is_ending = false;
    made.log.choices = 1;
    made.zones[1].slots.count = 50; /* was made smaller meanwhile */
    assert_int_equal(zone_next(), 2);
    made.log.choices = 0;
    assert_int_equal(zone_next(), -1);
    assert_int_equal(zone_next(), -1);

    /* Where nothing was gained, nothing is tried again; a zone that is dropped leaves. */
    zones_make((uint32_t[]){80, 80, 40, 40, 40, 40});
    made.zones[0].fruitless = 80;
    sh_replog_clean_if_full(&made.zones[0]);
    sh_replog_clean_leave(&made.zones[1]);
    assert_int_equal(zone_next(), -1);
    assert_false(sh_replog_may_gain(&made.zones[0]));
}

/* Zones without a place come first each time. Of the others each third one is drawn, from 60 % on. */
static void test_drawn(void **state)
{
    (void)state;
    const uint32_t counts[] = {76, 59, 62, 64, 99, 66};
    unsigned chosen[ZONES] = {0};
    for (unsigned round = 0; round < 400; round++) {
        zones_make(counts);
        made.log.appended_ns = made.log.now_ns;
        made.log.choices = round * 4;
        assert_int_equal(zone_next(), 4);
        int zone = zone_next();
        assert_true(zone >= 0);
        chosen[zone]++;
    }
    assert_true(chosen[1] == 0 && chosen[4] == 0);
    assert_true(chosen[0] > 250);
    for (unsigned i = 2; i < ZONES; i++)
        assert_true(i == 4 || (chosen[i] > 15 && chosen[i] < 60));
}

/* --- Logs -------------------------------------------------------------------------------------- */

#define EACH 1000u  /* bytes of a chunk */
#define CHUNKS 960u /* 16 slots of them */
#define HOT 10u     /* one in so many */

static uint64_t seed;

/* Appends a write of a chunk of a zone that is not in the rig's model. */
static void write_chunk(unsigned chunk, size_t size)
{
    static uint8_t payload[EACH];
    const struct sh_replog_write write = {.local_id = chunk + 1,
                                          .creator = RIG_OWNER,
                                          .pieces = 1,
                                          .is_removal = !size,
                                          .payload = {payload, size}};
    enum shoal_err err;
    for (unsigned tries = 0; (err = sh_replog_append(rig.zones[0].zone, &write)) == SHOAL_EAGAIN;
         tries++) {
        assert_true(tries < 10000);
        rig_step(&rig, RIG_MS / 10);
    }
    assert_int_equal(err, SHOAL_OK);
}

static unsigned draw_uniform(void)
{
    return (unsigned)(test_draw(&seed) % CHUNKS);
}

static unsigned draw_hotcold(void)
{
    unsigned row = (unsigned)(test_draw(&seed) % (CHUNKS / HOT));
    if (test_draw(&seed) % 100 < 90)
        return row * HOT;
    return row * HOT + 1 + (unsigned)(test_draw(&seed) % (HOT - 1));
}

/* A number that an environment variable gives. */
static unsigned number_of(const char *name, unsigned otherwise)
{
    const char *given = getenv(name);
    return given ? (unsigned)strtoul(given, NULL, 0) : otherwise;
}

/* Slots of the zone, but those of its version log. */
static unsigned slots_of_entries(void)
{
    const struct sh_log_slot *slots = rig.log->slots.slots;
    unsigned count = 0;
    for (uint32_t i = rig.zones[0].zone->slots.first; i != SH_SLOT_NONE; i = slots[i].next)
        count += slots[i].kind != SH_SLOT_VERSIONS;
    return count;
}

struct measured {
    double amplification; /* entries that are put into slots for one that is written */
    double live;          /* what is current of the slots in use, on average */
};

/* A lap writes as many chunks as there are, and takes 100 seconds of the clock. As many laps are passed over first. */
static struct measured measure(enum sh_replog_selection selection, unsigned (*draw)(void),
                               unsigned laps, unsigned fill_percent)
{
    (void)setup(NULL);
    rig_random_state = 88172645463325252u;
    seed = 1;
    rig.config.selection = selection;
    rig.config.slots = 64;
    rig.config.batch_bytes = 60000; /* a slot's, so that what is measured is the selection */
    rig_open(&rig);
    struct sh_replog_zone_config config =
        rig_zone_config(0, 1, 0, (uint64_t)CHUNKS * (EACH + 12) * 100 / fill_percent);
    config.range_count = CHUNKS;
    zone_add_config(0, config);
    for (unsigned i = 0; i < CHUNKS; i++)
        write_chunk(i, EACH);
    struct sh_replog_status before = status();
    uint64_t slots = 0;
    for (unsigned i = 0; i < 2 * laps * CHUNKS; i++) {
        if (i == laps * CHUNKS) {
            before = status();
            slots = 0;
        }
        write_chunk(draw(), EACH);
        rig_step(&rig, 100 * 1000 * RIG_MS / CHUNKS);
        slots += slots_of_entries();
    }
    struct sh_replog_status after = status();
    double writes = (double)laps * CHUNKS;
    double mean_bytes = (double)slots / writes * (SLOT_BYTES - SH_SLOT_HEAD_BYTES);
    (void)teardown(NULL);
    return (struct measured){1 + (double)(after.entries_kept - before.entries_kept) / writes,
                             (double)CHUNKS * (EACH + 12) / mean_bytes};
}

/* Copies are what selections differ in; with the same seed the numbers are the same each time. */
static void test_amplification(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned (*draw)(void);
    } cases[] = {{"uniform", draw_uniform}, {"hotcold", draw_hotcold}};
    double is[2][SH_REPLOG_SELECTIONS];
    unsigned laps = number_of("SHOAL_TEST_LAPS", 8), fill = number_of("SHOAL_TEST_FILL", 50);
    for (unsigned c = 0; c < 2; c++) {
        for (int selection = 0; selection < SH_REPLOG_SELECTIONS; selection++) {
            struct measured of =
                measure((enum sh_replog_selection)selection, cases[c].draw, laps, fill);
            is[c][selection] = of.amplification;
            print_message("%s, %s: %.3f, of %.3f that is current\n", cases[c].name,
                          sh_replog_selection_names[selection], of.amplification, of.live);
        }
    }
    /* Where all chunks are alike, cost-benefit takes the oldest slots. */
    assert_true(is[0][SH_REPLOG_COST_BENEFIT] < 1.05 * is[0][SH_REPLOG_OLDEST]);
    assert_true(is[0][SH_REPLOG_TIMESTAMPS] < 1.1 * is[0][SH_REPLOG_OLDEST]);
    assert_true(is[0][SH_REPLOG_AGE_FILL] < 1.1 * is[0][SH_REPLOG_OLDEST]);
    assert_true(is[0][SH_REPLOG_RANDOM] > 1.25 * is[0][SH_REPLOG_OLDEST]);
    /* Where a few are written most of the time, it leaves alone what stays. */
    for (int selection = SH_REPLOG_AGE_FILL; selection < SH_REPLOG_SELECTIONS; selection++) {
        assert_true(is[1][SH_REPLOG_COST_BENEFIT] < 0.75 * is[1][selection]);
        assert_true(is[1][SH_REPLOG_TIMESTAMPS] < 0.75 * is[1][selection]);
    }
}

/* Steps for so long, in which a zone that is full enough is cleaned. */
static void step_for(uint64_t ns)
{
    for (uint64_t until = rig.now_ns + ns; rig.now_ns < until;)
        rig_step(&rig, 10 * RIG_MS);
}

/* From 60 % on a zone is cleaned once nobody has written for a second, and not before. */
static void test_idle(void **state)
{
    (void)state;
    rig.config.slots = 80;
    rig_open(&rig);
    zone_add_config(0, rig_zone_config(0, 1, 0, 36 * 65536));
    const struct sh_replog_zone *zone = rig.zones[0].zone;
    unsigned i = 0;
    for (; zone->slots.count < 26; i++) /* of 40 */
        append(0, i % 200, i, 1000);
    for (unsigned k = 0; k < 20; k++) {
        append(0, 201, ++i, 10);
        sh_replog_sync(rig.zones[0].zone);
        step_for(900 * RIG_MS);
    }
    assert_int_equal(status().slots_cleaned, 0);
    step_for(3000 * RIG_MS);
    assert_true(status().slots_cleaned > 0);
    assert_true(zone->slots.count < 24);
    uint64_t cleaned = status().slots_cleaned;
    step_for(10000 * RIG_MS); /* that was all */
    assert_int_equal(status().slots_cleaned, cleaned);
    rig_sync(&rig, 1);
    (void)rig_assert_all(&rig, 1);
}

/* Entries that are copied where half of the zone stays, and chunks come and go in the other half, each with an ID of its own. */
static uint64_t copied_with_marks(enum sh_replog_selection selection)
{
    (void)setup(NULL);
    rig_random_state = 88172645463325252u;
    rig.config.selection = selection;
    rig.config.batch_bytes = 60000;
    rig.config.slots = 64;
    rig.config.primary_blocks = 256;
    rig_open(&rig);
    struct sh_replog_zone_config config = rig_zone_config(0, 1, 0, 24 * SLOT_BYTES);
    config.range_count = CHUNKS / 2;
    config.rest_max = 1 << 20;
    zone_add_config(0, config);
    for (unsigned i = 0; i < CHUNKS / 2; i++)
        write_chunk(i, EACH);
    for (unsigned i = 0; i < 25000; i++) {
        write_chunk(CHUNKS + i, 100);
        if (i >= CHUNKS)
            write_chunk(i, 0);
        rig_step(&rig, 10 * RIG_MS);
    }
    uint64_t copied = status().entries_kept;
    (void)teardown(NULL);
    return copied;
}

/* A mark of a removal goes only once all slots have been cleaned that are older; so what is cold can't be left alone then. */
static void test_marks(void **state)
{
    (void)state;
    uint64_t oldest = copied_with_marks(SH_REPLOG_OLDEST);
    uint64_t by_cost = copied_with_marks(SH_REPLOG_COST_BENEFIT);
    print_message("copied, oldest first: %llu, cost-benefit: %llu\n", (unsigned long long)oldest,
                  (unsigned long long)by_cost);
    assert_true(by_cost < oldest * 3 / 2);
}

/* --- Nothing gets lost ------------------------------------------------------------------------- */

#define MODEL_CHUNKS 300u

/* Writes and removals, mostly of a few chunks; some chunks come in pieces. */
static void model_write(uint32_t stamp)
{
    bool is_hot = test_draw(&seed) % 4;
    unsigned chunk = (unsigned)(test_draw(&seed) % (is_hot ? 30 : MODEL_CHUNKS));
    size_t size = 50 + test_draw(&seed) % 1200;
    if (chunk % 100 == 7)
        size += 30000;
    bool is_removal = test_draw(&seed) % 8 == 0;
    assert_int_equal(rig_append(&rig, 0, chunk, stamp, size, is_removal), SHOAL_OK);
    rig_step(&rig, test_draw(&seed) % 100 ? RIG_MS : 2000 * RIG_MS);
}

/* Under each strategy the file has what was written last, before and after the power is cut, and all of it is handed out. */
static void test_model(void **state)
{
    (void)state;
    seed = test_seed(20);
    for (int selection = 0; selection < SH_REPLOG_SELECTIONS; selection++) {
        uint32_t stamp = 1;
        uint64_t cleaned = 0;
        (void)setup(NULL);
        rig.config.selection = (enum sh_replog_selection)selection;
        rig.config.versions_max = 64;
        rig_open(&rig);
        zone_add_config(0, rig_zone_config(0, 1, 0, 14 * 65536));
        for (unsigned round = 0; round < 3; round++) {
            for (unsigned i = 0; i < 3000; i++)
                model_write(stamp++);
            rig_sync(&rig, 1);
            (void)rig_assert_all(&rig, 1);
            cleaned += status().slots_cleaned;
            shut();
            cut_power(cut_of(rig.config.disk));
            rig_open(&rig);
            taken_is_all(0);
            uint64_t end = sh_replog_zone_find(rig.log, rig_zone_id(0))->end;
            zone_add_config(0, rig_zone_config(0, 1, end, 14 * 65536));
        }
        assert_true(cleaned > 50);
        (void)teardown(NULL);
    }
}

/* Under each strategy all entries are visited before an eon ends, also those that nobody writes any more: or it would not end. */
static void test_eons(void **state)
{
    (void)state;
    for (int selection = 0; selection < SH_REPLOG_SELECTIONS; selection++) {
        uint32_t stamp = 1;
        (void)setup(NULL);
        rig.config.selection = (enum sh_replog_selection)selection;
        rig.config.epoch_max = 16;
        rig.config.versions_max = 32;
        rig_open(&rig);
        rig_zone_add(&rig, 0, 1, 0);
        for (unsigned i = 0; i < 40; i++)
            append(0, i, stamp++, 1000);
        for (; status().eons < 3; stamp++) {
            assert_true(stamp < 50000);
            append(0, 40 + stamp % 300, stamp, 100);
        }
        rig_sync(&rig, 1);
        (void)rig_assert_all(&rig, 1);
        (void)teardown(NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oldest),
        cmocka_unit_test(test_age_fill),
        cmocka_unit_test(test_cost_benefit),
        cmocka_unit_test(test_timestamps),
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_others_go_first),
        cmocka_unit_test(test_benefit),
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_triggers),
        cmocka_unit_test(test_drawn),
        cmocka_unit_test(test_amplification),
        cmocka_unit_test(test_marks),
        cmocka_unit_test_setup_teardown(test_idle, setup, teardown),
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_eons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
