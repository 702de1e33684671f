/* A node alone, on a real disk: its store, its backup and its log, with a recorder at the disk door (recorder_int.h). The run is
 * cut at any place, and what the disk may have had there is brought back: the store opens; each write that was acknowledged before
 * the place, at the level that the failure spares, is there, or a later one of its chunk; nothing is there that nobody wrote; and of
 * each zone's writes none is there while an earlier one is missing.
 *
 * The log goes through the page cache and syncs later, as a node alone has it; then with O_DIRECT and packs that are synced themselves, as
 * a peer has it whose replicas are at others.
 *
 * SHOAL_TEST_STATES: how many states of each run (default 1000). SHOAL_TEST_TRACE: the records are written to this file, with ".cached" and
 * ".direct" behind the name (recorder_trace_int.h). SHOAL_TEST_SEED: of what is drawn; the times are the real disk's, so
 * that a seed does not give the same record again, and a failure says all that is known of its state. */
#include "tests/backup_recorded_int.h"
#include "tests/recorder_folder_int.h"
#include "tests/recorder_trace_int.h"
#include "tests/seed_int.h"

/* --- Checking ---------------------------------------------------------------------------------- */

/* A place of the record, and how the power or the process ended there. */
struct cut {
    const struct run *run;
    size_t place;
    bool is_power;
    enum replay_luck luck;
    uint64_t number;
    /* Of each zone, by the chunks that were looked at: the last write that is there, and the first that is not. */
    uint32_t there[ZONES], missing[ZONES];
    unsigned there_id[ZONES], missing_id[ZONES]; /* of which chunks they are */
    uint64_t later, bounds, undone;
};

static void cut_fail(const struct cut *cut, const char *why, unsigned id)
{
    fail_msg("%s, seed %llu, state %llu (place %zu of %zu, %s, luck %u): %s (%u)",
             cut->run->is_direct ? "direct" : "cached", (unsigned long long)cut->run->seed,
             (unsigned long long)cut->number, cut->place, cut->run->recorder->events_count,
             cut->is_power ? "power failure" : "end of process", cut->luck, why, id);
}

static bool is_possible(const struct state *state, size_t place)
{
    return state->made <= place && place < state->gone;
}

/* The first state that a chunk may be in, counted from 1; 0: it may never have been there. */
static size_t first_allowed(const struct cut *cut, const struct chunk *chunk)
{
    enum sh_level level = cut->is_power ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED;
    for (size_t i = chunk->count; i > 0; i--) {
        const struct state *state = &chunk->states[i - 1];
        if (state->acked[level] <= cut->place && is_possible(state, cut->place))
            return i;
    }
    return 0;
}

static void zone_has(struct cut *cut, unsigned id, const struct state *state)
{
    if (state->is_retold)
        return;
    if (cut->there[state->zone] < state->write) {
        cut->there[state->zone] = state->write;
        cut->there_id[state->zone] = id;
    }
    cut->bounds++;
}

static void zone_lacks(struct cut *cut, unsigned id, const struct state *state)
{
    if (cut->missing[state->zone] > state->write) {
        cut->missing[state->zone] = state->write;
        cut->missing_id[state->zone] = id;
    }
}

/* Whether it may be so, in that state or a later one; 0: the first. */
static bool has_state(const struct cut *cut, const struct chunk *chunk, size_t first, uint64_t hash)
{
    bool has = false;
    for (size_t i = first ? first - 1 : 0; i < chunk->count && !has; i++)
        has = chunk->states[i].hash == hash && is_possible(&chunk->states[i], cut->place);
    return has;
}

static void states_print(const struct chunk *chunk, uint64_t is, size_t first)
{
    print_message("its hash is %llx, allowed from state %zu on of these:\n", (unsigned long long)is,
                  first);
    for (size_t i = 0; i < chunk->count; i++) {
        const struct state *state = &chunk->states[i];
        print_message("%zu: %llx, made at %zu, gone at %zd, acknowledged at %zd and %zd, zone %u, "
                      "write %u, retold %d\n",
                      i + 1, (unsigned long long)state->hash, state->made, (ssize_t)state->gone,
                      (ssize_t)state->acked[SH_LEVEL_REPLICATED],
                      (ssize_t)state->acked[SH_LEVEL_DURABLE], state->zone, state->write,
                      state->is_retold);
    }
}

/* Whether a chunk of zeros and that size, which is in the scratch, may be left of a create that was taken back. */
static bool is_undone(const struct cut *cut, uint32_t size)
{
    const struct run *run = cut->run;
    bool is_one = false;
    for (size_t i = 0; i < run->undone_count && !is_one; i++)
        is_one = run->undone[i].size == size && run->undone[i].place <= cut->place;
    for (uint32_t i = 0; i < size && is_one; i++)
        is_one = scratch[i] == 0;
    return is_one;
}

/* Whether a create that was taken back may have had the chunk's ID while it was in that state, absent. That may be in another zone, which has the chunk then, or its
 * removal, while the removal before is not there. */
static bool may_be_undone(const struct cut *cut, const struct chunk *chunk, size_t state)
{
    const struct run *run = cut->run;
    size_t end = state + 1 < chunk->count ? chunk->states[state + 1].made : NEVER;
    size_t low = 0, high = run->undone_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (run->undone[middle].place < chunk->states[state].made)
            low = middle + 1;
        else
            high = middle;
    }
    return low < run->undone_count && run->undone[low].place <= end &&
           run->undone[low].place <= cut->place;
}

/* Which chunks may be there: those of creates that were taken back are the next ones. */
static unsigned ids_end(const struct run *run)
{
    return run->ids + CHANGES < IDS ? run->ids + CHANGES : IDS;
}

/* Returns the state in which a chunk is, counted from 1, the last one if there are several; 0: it was never there. */
static size_t chunk_check(struct cut *cut, const struct backup_node *node, unsigned id)
{
    const struct chunk *chunk = &cut->run->chunks[id];
    uint32_t size = 0;
    enum shoal_err err = sh_store_get(node->store, cid_of(id), scratch, sizeof scratch, &size);
    if (err && err != SHOAL_ENOCHUNK)
        cut_fail(cut, "a chunk can't be read", id);
    uint64_t is = err ? 0 : hash_of(scratch, size);
    size_t first = first_allowed(cut, chunk), last = 0;
    if (!err && !has_state(cut, chunk, first, is) && is_undone(cut, size)) {
        cut->undone++;
        is = 0;
    }
    unsigned fitting = first == 0 && !is;
    bool is_found = fitting;
    for (size_t i = first ? first : 1; i <= chunk->count; i++) {
        const struct state *state = &chunk->states[i - 1];
        if (!is_possible(state, cut->place) || state->hash != is)
            continue;
        is_found = true;
        fitting++;
        last = i;
    }
    if (!is_found) {
        states_print(chunk, is, first);
        cut_fail(cut, "a chunk is in no state that it may be in", id);
    }
    if (fitting == 1 && last && !(is == 0 && may_be_undone(cut, chunk, last - 1)))
        zone_has(cut, id, &chunk->states[last - 1]);
    for (size_t i = last; i < chunk->count; i++) {
        if (is_possible(&chunk->states[i], cut->place))
            zone_lacks(cut, id, &chunk->states[i]);
    }
    cut->later += last > first;
    return last;
}

static void zones_check(struct cut *cut)
{
    for (uint32_t zone = 0; zone < ZONES; zone++) {
        if (cut->there[zone] <= cut->missing[zone])
            continue;
        print_message("zone %u has write %u, and lacks write %u\n", zone, cut->there[zone],
                      cut->missing[zone]);
        states_print(&cut->run->chunks[cut->there_id[zone]], 0, 0);
        states_print(&cut->run->chunks[cut->missing_id[zone]], 0, 0);
        cut_fail(cut, "a zone has a later write, and lacks an earlier one", zone);
    }
}

static void cut_init(struct cut *cut)
{
    memset(cut->there, 0, sizeof cut->there);
    memset(cut->missing, 0xff, sizeof cut->missing);
    cut->undone = 0;
}

/* The node is open again: what it did not find is gone, and what it found is what the chunks are. */
static void run_found(struct run *run)
{
    static struct cut cut;
    cut = (struct cut){.run = run, .place = run->recorder->events_count};
    cut_init(&cut);
    for (unsigned id = 1, end = ids_end(run); id < end; id++) {
        struct chunk *chunk = &run->chunks[id];
        size_t is = chunk_check(&cut, &run->node, id);
        for (size_t i = is; i < chunk->count; i++) {
            if (chunk->states[i].gone == NEVER)
                chunk->states[i].gone = cut.place;
        }
        uint32_t size;
        enum shoal_err err =
            sh_store_get(run->node.store, cid_of(id), scratch, sizeof scratch, &size);
        chunk_now(run, chunk, scratch, err ? ABSENT : size);
        chunk->zone = zone_now(run, id);
    }
    zones_check(&cut);
}

/* --- The run ----------------------------------------------------------------------------------- */

static void run_live(struct run *run)
{
    unsigned large = all.large;
    /* However slow the disk is, one large chunk at least comes to its end. */
    for (unsigned i = 0; i < ACTS || (all.large == large && i < 4 * ACTS);) {
        i += act(run);
        /* Where nobody waits for a sync, much that is not synced comes together. */
        if (sh_prng_below(&run->prng, 300) == 0)
            run->levels = run->levels == SH_LEVELS ? SH_LEVEL_DURABLE : SH_LEVELS;
        unsigned steps = (unsigned)sh_prng_below(&run->prng, 4);
        /* Now and then all comes to rest. */
        if (sh_prng_below(&run->prng, 100) == 0)
            steps += 200;
        for (unsigned k = 0; k < steps; k++)
            step(run);
    }
}

/* The node's lives, each of which ends in the middle of what it does. */
static void run_record(struct run *run)
{
    for (unsigned life = 0; life < LIVES; life++) {
        run->seconds -= (uint32_t)sh_prng_below(&run->prng, SECONDS_BACK);
        enum shoal_err err = backup_node_open(&run->node, &run->recorder->base, clock_of(run));
        if (err)
            fail_msg("seed %llu, life %u: %s", (unsigned long long)run->seed, life,
                     shoal_err_name(err));
        run->evacuated = 0;
        run_found(run);
        run_live(run);
        struct sh_replog_status status;
        sh_replog_status_get(run->node.log, &status);
        print_message("life %u: %zu events, %llu KiB written, %llu syncs, %llu slots cleaned, %u "
                      "zones, %llu chunks found\n",
                      life, run->recorder->events_count,
                      (unsigned long long)run->recorder->bytes >> 10,
                      (unsigned long long)status.syncs, (unsigned long long)status.slots_cleaned,
                      status.zones, (unsigned long long)run->node.found.chunks);
        struct sh_backup_status backup;
        sh_backup_status_get(run->node.backup, &backup);
        all.dropped += backup.dropped;
        all.marks_dropped += status.marks_dropped;
        all.cleaned += status.slots_cleaned;
        for (unsigned i = 0; i < OPS; i++)
            op_end(&run->ops[i]);
        backup_node_close(&run->node);
    }
}

/* --- The states -------------------------------------------------------------------------------- */

static uint64_t clock_fast(void *arg)
{
    return *(uint64_t *)arg += NODE_MS; /* nobody waits for the real one */
}

static void state_check(struct cut *cut, const struct replay *replay, struct sh_prng *prng)
{
    static uint64_t now;
    struct state_disk disk;
    struct backup_node node = {.syncs_at_once = cut->run->is_direct};
    state_disk_init(&disk, NODE_LOG);
    disk.is_there = replay_state(replay, cut->is_power, cut->luck, prng, &disk.image);
    const struct sh_clock clock = {.now_ns = clock_fast, .wall_ns = clock_fast, .arg = &now};
    enum shoal_err err = backup_node_open(&node, &disk.base, clock);
    if (err)
        cut_fail(cut, shoal_err_name(err), (unsigned)node.found.zone);
    cut_init(cut);
    uint64_t chunks = 0;
    for (unsigned id = 1; id < ids_end(cut->run); id++) {
        size_t is = chunk_check(cut, &node, id);
        chunks += is && cut->run->chunks[id].states[is - 1].hash != 0;
    }
    struct sh_store_status status;
    sh_store_status_get(node.store, &status);
    if (status.chunks != chunks + cut->undone)
        cut_fail(cut, "there are chunks that nobody created",
                 (unsigned)(status.chunks - chunks - cut->undone));
    zones_check(cut);
    backup_node_close(&node);
    sh_image_clear(&disk.image);
}

static void states_check(const struct run *run, size_t count)
{
    static struct replay replay;
    static struct cut cut;
    size_t opened = 0;
    struct sh_prng prng = sh_prng_make(run->seed ^ 1);
    size_t *places = recorder_places(run->recorder, count, &prng);
    replay = (struct replay){.recorder = run->recorder};
    cut = (struct cut){.run = run};
    for (size_t i = 0; i < count; i++) {
        replay_to(&replay, places[i]);
        cut.number = i;
        cut.place = places[i];
        cut.is_power = sh_prng_below(&prng, 4) != 0;
        cut.luck = (enum replay_luck)sh_prng_below(&prng, REPLAY_LUCKS);
        state_check(&cut, &replay, &prng);
        opened++;
    }
    sh_image_clear(&replay.image);
    free(places);
    print_message("%zu states: %llu chunks in a state behind the last that was acknowledged, %llu "
                  "bounds of zones\n",
                  opened, (unsigned long long)cut.later, (unsigned long long)cut.bounds);
    assert_true(cut.later > count && cut.bounds > 10 * count);
}

static void run_free(struct run *run)
{
    for (unsigned i = 0; i < IDS; i++) {
        free(run->chunks[i].bytes);
        free(run->chunks[i].states);
    }
    free(run->undone);
    recorder_destroy(run->recorder);
}

static void run_holds(const char *folder, bool is_direct)
{
    static struct run run;
    run = (struct run){.seed = test_seed_fresh(),
                       .levels = SH_LEVELS,
                       .is_direct = is_direct,
                       .seconds = SECONDS_BEGIN};
    memset(&all, 0, sizeof all);
    run.prng = sh_prng_make(run.seed);
    run.node.syncs_at_once = is_direct;
    for (unsigned i = 0; i < OPS; i++)
        run.ops[i].run = &run;
    assert_int_equal(sh_real_disk_create(folder, is_direct, &run.real), SHOAL_OK);
    run.recorder = recorder_create(run.real, sh_prng_split(&run.prng));
    run_record(&run);
    run.real->ops->destroy(run.real);
    print_message("%u, %u, %u changes acknowledged by level, %u refused, %u large, %u given up, %u "
                  "grown, %u removed, %u moved, %u evacuated, %llu zones dropped, %llu marks "
                  "dropped\n",
                  all.acked[0], all.acked[1], all.acked[2], all.refused, all.large, all.abandoned,
                  all.grown, all.removed, all.moved, all.evacuated, (unsigned long long)all.dropped,
                  (unsigned long long)all.marks_dropped);
    assert_true(all.acked[0] > 1000 && all.acked[1] > 1000 && all.acked[2] > 1000);
    assert_true(all.large > 2 && all.grown > 20 && all.removed > 100 && all.moved > 0 &&
                all.evacuated > 0);
    /* Removals are forgotten, as seconds pass, within a life already; not by a run whose disk was so slow that the cleaner had little to do. */
    assert_true(all.marks_dropped > 0 || all.removed < 3000 || all.cleaned < 150);
    recorder_trace(run.recorder, is_direct ? "direct" : "cached");
    states_check(&run, recorder_states(1000));
    run_free(&run);
}

static void recorded_run_holds(void **state)
{
    run_holds(*state, false);
}

static void recorded_direct_run_holds(void **state)
{
    recorder_folder_needs_direct(*state);
    run_holds(*state, true);
}

static int folder_remove(void **state)
{
    return recorder_folder_remove(*state, NODE_LOG);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(recorded_run_holds, recorder_folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(recorded_direct_run_holds, recorder_folder_make,
                                        folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
