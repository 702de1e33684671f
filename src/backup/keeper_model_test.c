/* Random streams against a model. Two owners write to a few zones; connections are lost, the log stalls until its buffer is full, messages
 * are sent twice, in part and with gaps; the backup's process ends and starts again, with what its memory had gone; owners fail, and their
 * next life finds more or less than the backup has, and gives the numbers again. Then everything is told, durably, and each replica has
 * exactly what was written.
 *
 * On the way: what was told to be taken is never asked for again by the same process, and what was told to be durable by none.
 *
 * SHOAL_TEST_SEEDS: how many cases (default 24). SHOAL_TEST_SEED: the first one's. */
#include "backup/keeper_stream_test.h"

#define WRITES 300u /* of a zone */
#define ROUNDS_MAX 20000u
#define CUTS_MAX 24u

static void run(struct model *model)
{
    struct rig *rig = &model->rig;
    for (unsigned i = 0; !streams_are_over(model); i++) {
        if (i == ROUNDS_MAX) {
            streams_print(model);
            fail();
        }
        for (unsigned k = 0; k < ZONES; k++)
            stream_step(model, &model->streams[k]);
        unsigned what = draw(model, 400);
        if (what < 6)
            owner_cut(model, &rig->owners[what % 2]);
        else if (what < 8)
            backup_restart(model);
        else if (what < 10)
            take_over(model, &rig->owners[what % 2]);
        else if (what < 30)
            rig->is_stalled = !rig->is_stalled;
        else if (what < 200)
            rig_round(rig);
        else
            rig_pass(rig, draw(model, 5) * RIG_MS);
        if (model->cuts >= CUTS_MAX)
            rig->is_stalled = false;
    }
}

/* --- What the replica has ---------------------------------------------------------------------- */

struct state {
    bool is_there;
    uint32_t total, stamp; /* stamp 0: zeros */
    uint32_t found;        /* bytes */
    uint64_t pieces;       /* that were found */
};

struct reading {
    bool is_over;
    enum shoal_err err;
    uint64_t end;
    struct state own[CHUNKS + 1], notes[NOTES + 1]; /* by local ID */
};

static void state_set(struct reading *reading, const struct sent_entry *sent)
{
    const struct sh_replication_entry *entry = &sent->entry;
    uint64_t local = entry->chunk & 0xFFFF;
    struct state *state = entry->chunk >> 48 ? &reading->own[local] : &reading->notes[local];
    bool is_removal = entry->kind == SH_REPLICATION_REMOVAL;
    *state = (struct state){.is_there = !is_removal,
                            .total = entry->pieces > 1 ? entry->total : entry->size,
                            .stamp = entry->kind == SH_REPLICATION_IMAGE ? sent->stamp : 0};
}

/* The replica should have of each chunk the last write that came to its end. */
static void reading_expect(struct reading *reading, const struct stream *stream)
{
    const struct sent_entry *with = NULL;
    for (size_t i = 0; i < stream->count; i++) {
        const struct sent_entry *sent = &stream->entries[i];
        if (sent->entry.kind == SH_REPLICATION_ABANDON) {
            with = NULL;
            continue;
        }
        if (sent->entry.with_next) {
            with = sent;
            continue;
        }
        if (sent->entry.piece + 1 < sent->entry.pieces)
            continue;
        state_set(reading, sent);
        if (with)
            state_set(reading, with);
        with = NULL;
    }
}

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct reading *reading = arg;
    (void)zone;
    assert_true(item->local_id <= (item->creator ? CHUNKS : NOTES));
    struct state *state =
        item->creator ? &reading->own[item->local_id] : &reading->notes[item->local_id];
    uint64_t bit = UINT64_C(1) << item->piece;
    assert_true(state->is_there && item->total == state->total);
    if (!(state->pieces & bit))
        state->found += (uint32_t)item->payload.size;
    state->pieces |= bit;
    for (uint32_t i = 0; i < item->payload.size; i++) {
        uint8_t is = item->payload.at ? item->payload.at[i] : 0;
        assert_int_equal(is, state->stamp ? byte_of(state->stamp, item->offset + i) : 0);
    }
    return SHOAL_OK;
}

static void on_read(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct reading *reading = arg;
    (void)zone;
    reading->is_over = true;
    reading->err = err;
    reading->end = end;
}

static void stream_check(struct model *model, const struct stream *stream)
{
    static struct reading reading;
    reading = (struct reading){.is_over = false};
    reading_expect(&reading, stream);
    const struct sh_replog_read read = {.take = on_item, .done = on_read, .arg = &reading};
    struct sh_replog_zone *zone = sh_replog_zone_find(model->rig.log, rig_zone(stream->zone));
    if (!zone) {
        assert_int_equal(stream->count, 0);
        return;
    }
    assert_int_equal(sh_replog_zone_read(zone, &read), SHOAL_OK);
    for (unsigned i = 0; !reading.is_over; i++) {
        assert_true(i < 10000);
        rig_pass(&model->rig, RIG_MS);
    }
    assert_int_equal(reading.err, SHOAL_OK);
    assert_int_equal(reading.end, stream->number);
    for (unsigned i = 0; i <= CHUNKS; i++)
        assert_true(!reading.own[i].is_there || reading.own[i].found == reading.own[i].total);
    for (unsigned i = 0; i <= NOTES; i++)
        assert_true(!reading.notes[i].is_there || reading.notes[i].found == reading.notes[i].total);
}

static void case_run(struct model *model, uint64_t seed)
{
    static struct sent_entry entries[ZONES][ENTRIES_MAX];
    *model = (struct model){.seed = seed, .cuts_max = CUTS_MAX};
    rig_open(&model->rig, seed);
    for (unsigned i = 0; i < ZONES; i++)
        model->streams[i] = (struct stream){.owner = &model->rig.owners[i % 2],
                                            .zone = i,
                                            .entries = entries[i],
                                            .number = 1,
                                            .writes = WRITES,
                                            .bytes_max = 8 << 20,
                                            .incarnation = 1,
                                            .since = 1,
                                            .begun = 1,
                                            .keeps_all = draw(model, 2)};
    run(model);
    model->rig.is_stalled = false;
    rig_stop(&model->rig);
    rig_start(&model->rig);
    for (unsigned i = 0; i < ZONES; i++)
        stream_check(model, &model->streams[i]);
    rig_close(&model->rig);
}

static void test_random_streams(void **state)
{
    static struct model model;
    const char *text = getenv("SHOAL_TEST_SEEDS");
    unsigned cases = text ? (unsigned)strtoul(text, NULL, 0) : 24;
    unsigned restarts = 0, takeovers = 0, anews = 0, fulls = 0, agains = 0;
    uint64_t first = test_seed(20261126);
    const char *bad;
    size_t bad_size;
    (void)state;
    SH_ASSERT(!sh_log_levels_set("error", &bad, &bad_size));
    for (unsigned i = 0; i < cases; i++) {
        uint64_t seed = first + i * UINT64_C(7919);
        print_message("seed %llu\n", (unsigned long long)seed);
        case_run(&model, seed);
        restarts += model.restarts;
        takeovers += model.takeovers;
        anews += model.anews;
        fulls += model.fulls;
        agains += model.agains;
    }
    print_message("%u restarts, %u lives more, %u times anew, %u full, %u again\n", restarts,
                  takeovers, anews, fulls, agains);
    if (cases >= 24)
        assert_true(restarts && takeovers && anews && fulls && agains);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
