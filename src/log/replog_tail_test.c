/* The tail of a reading: the writes from a number on, compared with what was appended. */
#include "log/replog_cut_test.h"

#define ZONE 0u
#define NOTED_MAX 40000u
#define LARGE (12u << 20)

/* What was appended, piece by piece: a hash of all that a write has. */
static struct noted {
    uint64_t sequence, hash;
} noted[NOTED_MAX];
static unsigned noted_count;

static uint64_t hash_bytes(uint64_t hash, struct sh_bytes bytes)
{
    hash = (hash ^ bytes.size ^ (uint64_t)(bytes.at != NULL) << 40) * UINT64_C(0x100000001b3);
    for (size_t i = 0; bytes.at && i < bytes.size; i++)
        hash = (hash ^ bytes.at[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_of(const struct sh_replog_write *write)
{
    const uint64_t fields[] = {write->local_id,   write->creator,
                               write->is_removal, write->piece,
                               write->pieces,     write->pieces > 1 ? write->total : 0};
    uint64_t hash = hash_bytes(14695981039346656037u, write->payload);
    for (unsigned i = 0; i < sizeof fields / sizeof fields[0]; i++)
        hash = (hash ^ fields[i]) * UINT64_C(0x100000001b3);
    hash = hash_bytes(hash, write->completion);
    return write->with ? hash * 31 + hash_of(write->with) : hash;
}

/* Appends the pieces of a write up to that one, and takes note of them. */
static void note_write(unsigned chunk, uint32_t stamp, size_t size, unsigned pieces, bool has_with,
                       struct sh_bytes completion)
{
    struct sh_replog_zone *zone = rig.zones[ZONE].zone;
    for (unsigned piece = 0; piece < pieces;) {
        struct sh_replog_write write = rig_write(&rig, chunk, stamp, size, piece), with;
        if (has_with && !piece) {
            with = rig_write(&rig, RIG_OF_ZONE + stamp % 8, stamp, stamp % 3 ? 40 : 0, 0);
            write.with = &with;
        }
        if (piece + 1 == write.pieces)
            write.completion = completion;
        uint64_t sequence = sh_replog_next(zone);
        enum shoal_err err = sh_replog_append(zone, &write);
        assert_true(!err || err == SHOAL_EAGAIN);
        if (err) {
            rig_step(&rig, RIG_MS);
            continue;
        }
        assert_true(noted_count < NOTED_MAX);
        noted[noted_count++] = (struct noted){sequence, hash_of(&write)};
        piece++;
    }
}

static void note_random(uint64_t *seed, unsigned writes)
{
    uint8_t bytes[SH_REPLOG_COMPLETION_MAX];
    for (unsigned i = 0; i < writes; i++) {
        uint64_t draw = test_draw(seed);
        unsigned chunk = (unsigned)(draw >> 8) % RIG_OF_ZONE;
        size_t size = 4 + (draw >> 40) % (chunk % 50 == 7 ? 40000 : 200);
        size = (draw >> 20) % 10 == 0 ? 0 : size;
        size_t told = (draw >> 30) % 6 ? 0 : 1 + (draw >> 33) % sizeof bytes;
        memset(bytes, (int)draw, sizeof bytes);
        note_write(chunk, (uint32_t)(draw >> 32) | 1, size, rig_pieces(&rig, size), draw % 5 == 0,
                   sh_bytes_make(told ? bytes : NULL, told));
        if ((draw >> 56) % 16 == 0)
            rig_step(&rig, (draw >> 50 & 63) * 5 * RIG_MS);
    }
}

/* What did not count of what was noted goes. */
static void noted_cut(uint64_t end)
{
    while (noted_count && noted[noted_count - 1].sequence >= end)
        noted_count--;
}

/* --- Reading ------------------------------------------------------------------------------------- */

static struct reading {
    unsigned at, handed; /* in what was noted */
    uint64_t seed, end;
    enum shoal_err err, tail_err;
    bool drops, has_taken, is_over; /* drops: chunks are taken before the tail is */
} reading;

static enum shoal_err on_tail(void *arg, struct sh_replog_zone *zone, uint64_t sequence,
                              const struct sh_replog_write *write)
{
    (void)arg, (void)zone;
    assert_true((reading.drops || !reading.has_taken) && reading.at < noted_count);
    assert_int_equal(sequence, noted[reading.at].sequence);
    assert_true(hash_of(write) == noted[reading.at].hash);
    if (reading.tail_err)
        return reading.tail_err;
    if (reading.seed && test_draw(&reading.seed) % 100 == 0)
        return SHOAL_EAGAIN;
    reading.at++;
    reading.handed++;
    return SHOAL_OK;
}

static enum shoal_err on_take(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    (void)arg, (void)item;
    assert_true(reading.drops || sh_replog_zone_has_tail(zone) || !reading.handed);
    reading.has_taken = true;
    return SHOAL_OK;
}

static enum shoal_err on_drop(void *arg, struct sh_replog_zone *zone, uint16_t creator,
                              uint64_t local_id)
{
    (void)arg, (void)zone, (void)creator, (void)local_id;
    assert_true(reading.has_taken && !reading.is_over);
    return SHOAL_OK;
}

static void on_done(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)arg, (void)zone;
    reading.end = end;
    reading.err = err;
    reading.is_over = true;
}

/* Reads the zone; whether it had that tail. */
static bool has_tail(uint64_t from, size_t bytes_max, uint64_t seed)
{
    enum shoal_err tail_err = reading.tail_err;
    reading = (struct reading){.seed = seed, .drops = seed % 4 > 1, .tail_err = tail_err};
    while (reading.at < noted_count && noted[reading.at].sequence < from)
        reading.at++;
    const struct sh_replog_read read = {.take = on_take,
                                        .drop = reading.drops ? on_drop : NULL,
                                        .tail_from = from,
                                        .tail_bytes_max = bytes_max,
                                        .tail = on_tail,
                                        .done = on_done};
    struct sh_replog_zone *zone = sh_replog_zone_find(rig.log, rig_zone_id(ZONE));
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_OK);
    for (unsigned i = 0; !reading.is_over; i++) {
        assert_true(i < 100000);
        rig_step(&rig, RIG_MS);
    }
    bool has = sh_replog_zone_has_tail(zone);
    if (has && !tail_err)
        assert_int_equal(reading.at, noted_count);
    else if (!tail_err)
        assert_int_equal(reading.handed, 0);
    return has;
}

static void on_sealed(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    (void)zone, (void)end;
    assert_int_equal(err, SHOAL_OK);
    *(bool *)arg = true;
}

/* The zone is written to no more: it is sealed, or the process ends. Where it ends. */
static uint64_t writing_end(unsigned how)
{
    bool is_sealed = false;
    uint64_t next = sh_replog_next(rig.zones[ZONE].zone);
    if (how) {
        sh_replog_sync(rig.zones[ZONE].zone);
        for (unsigned i = 0; i < 300; i++)
            rig_step(&rig, RIG_MS);
        start_again(how == 1);
        return next;
    }
    assert_int_equal(sh_replog_zone_seal(rig.zones[ZONE].zone, on_sealed, &is_sealed), SHOAL_OK);
    while (!is_sealed)
        rig_step(&rig, RIG_MS);
    return next;
}

/* Pieces that no last one follows, perhaps abandoned. */
static void pieces_begin(uint64_t draw)
{
    unsigned count = noted_count;
    note_write(5, 3, 100000, 1 + draw % 6, draw >> 8 & 1, sh_bytes_make(NULL, 0));
    noted_count = count;
    if (draw >> 9 & 1)
        assert_int_equal(sh_replog_abandon(rig.zones[ZONE].zone), SHOAL_OK);
}

static unsigned there, not_there; /* tails */

/* Lives that end one way or the other, of a zone of so many bytes. is_cleaned: then it need not have its tail. */
static void tails_for_lives(uint64_t seed, uint64_t bytes_max, bool is_cleaned)
{
    uint64_t end = 1;
    noted_count = 0;
    rig.zeros_one_in = 9;
    rig.config.versions_max = 64;
    rig_open(&rig);
    for (unsigned life = 0; life < 6; life++) {
        zone_add_config(ZONE, rig_zone_config(ZONE, 1, end, bytes_max));
        for (unsigned i = 0; i < 3; i++) {
            note_random(&seed, is_cleaned ? 1000 : 200);
            uint64_t draw = test_draw(&seed);
            if (draw & 1)
                pieces_begin(draw >> 1 |
                             (i < 2 ? 1u << 9 : 0)); /* else the next write is refused */
        }
        end = writing_end((unsigned)(test_draw(&seed) % 3));
        noted_cut(end);
        const uint64_t froms[] = {1, end, end + 1, end - test_draw(&seed) % 100,
                                  1 + test_draw(&seed) % end};
        for (unsigned i = 0; i < 5; i++) {
            bool has = has_tail(froms[i], LARGE, i ? test_draw(&seed) | 1 : 0);
            assert_int_equal(reading.err, SHOAL_OK);
            assert_int_equal(reading.end, end);
            assert_true(has ? i != 2 : is_cleaned || i == 2);
            assert_true(has || i != 1);
            there += has && i != 1;
            not_there += !has && i != 2;
        }
    }
}

static void models(void **state, uint64_t seed, uint64_t bytes_max, bool is_cleaned)
{
    there = not_there = 0;
    for (unsigned i = 0; i < 4; i++) {
        tails_for_lives(test_draw(&seed), bytes_max, is_cleaned);
        (void)teardown(state);
        (void)setup(state);
    }
    assert_true(there > 5 && (is_cleaned ? not_there > 5 : !not_there));
}

static void test_model(void **state)
{
    models(state, test_seed(51), 300 * 65536, false);
}

static void test_model_cleaned(void **state)
{
    models(state, test_seed(52), 20 * 65536, true);
}

/* A tail that takes more memory than it may is not handed out; nor does the reading suffer. */
static void test_memory(void **state)
{
    (void)state;
    uint64_t seed = test_seed(53);
    noted_count = 0;
    rig_open(&rig);
    zone_add_config(ZONE, rig_zone_config(ZONE, 1, 1, 100 * 65536));
    note_random(&seed, 300);
    uint64_t payloads = status().appended_bytes, end = writing_end(2);
    size_t least = 0, most = LARGE;
    assert_true(has_tail(1, LARGE, 0));
    while (most - least > 256) {
        size_t middle = (least + most) / 2;
        bool has = has_tail(1, middle, 0);
        assert_true(reading.has_taken && reading.end == end && !reading.err);
        *(has ? &most : &least) = middle;
    }
    assert_true(least > payloads && least < payloads + 2 * 300 * 400);
    assert_false(has_tail(1, 0, 0));
    assert_true(has_tail(end, 0, 0));
}

/* An error of the taker ends the reading; a close within it frees all. */
static void test_errors(void **state)
{
    (void)state;
    uint64_t seed = test_seed(54);
    noted_count = 0;
    rig_open(&rig);
    zone_add_config(ZONE, rig_zone_config(ZONE, 1, 1, 100 * 65536));
    note_random(&seed, 300);
    (void)writing_end(1);
    reading.tail_err = SHOAL_EFULL;
    assert_false(has_tail(100, LARGE, 0));
    assert_int_equal(reading.err, SHOAL_EFULL);
    assert_false(reading.has_taken);
    reading.tail_err = SHOAL_EAGAIN; /* for ever */
    const struct sh_replog_read read = {.take = on_take,
                                        .tail_from = 100,
                                        .tail_bytes_max = LARGE,
                                        .tail = on_tail,
                                        .done = on_done};
    reading.at = 0;
    while (noted[reading.at].sequence < 100)
        reading.at++;
    assert_int_equal(sh_replog_zone_read(sh_replog_zone_find(rig.log, rig_zone_id(ZONE)), &read),
                     SHOAL_OK);
    for (unsigned i = 0; i < 300; i++)
        rig_step(&rig, RIG_MS);
    assert_true(rig.log->load && !reading.has_taken);
    shut();
    reading.tail_err = SHOAL_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_model, setup, teardown),
        cmocka_unit_test_setup_teardown(test_model_cleaned, setup, teardown),
        cmocka_unit_test_setup_teardown(test_memory, setup, teardown),
        cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
