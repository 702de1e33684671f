/* A backup that keeps other nodes' replicas, on a real disk with O_DIRECT, with a recorder at the disk door (recorder_int.h). Two owners send it
 * the streams of four zones, with all that befalls them (backup/keeper_stream_test.h): connections are lost, the log stalls until it is full, the backup's
 * process starts again, owners are taken over and tell all of a zone once more. Then the run is cut at any place, and the log that the disk may have had there
 * is opened: each zone has exactly what its stream had before some number, not before the last one that the keeper's ACKs told to be durable,
 * nor behind what was sent; nothing counts as damaged; and what is written from there on, over two more starts, is what the zone has then.
 *
 * SHOAL_TEST_STATES: how many states of the run (default 1500). SHOAL_TEST_TRACE: the record is written to this file, with ".keeper" behind the
 * name (recorder_trace_int.h). SHOAL_TEST_SEED: of what is drawn; the times are the real disk's, so that a seed does not give the
 * same record again, and a failure says all that is known of its state. */
#include "backup/keeper_stream_test.h"
#include "base/hash.h"
#include "log/inspect.h"
#include "tests/recorder_folder_int.h"
#include "tests/recorder_trace_int.h"
#include "tests/seed_int.h"

#define LOG_NAME "replicas.log"
#define WRITES 2000u /* of a zone */
#define EDITIONS 128u
#define RUN_NS_MAX UINT64_C(120000000000)
#define MORE_WRITES 12u /* of a zone, after a state was opened */
#define STEPS_MAX 1000000u

/* A zone's stream as one incarnation of it has it. Where a later one goes on from its middle, the entries are copied. */
struct edition {
    uint32_t incarnation;
    bool is_anew; /* the backup is told all of it */
    const struct sent_entry *entries;
    uint64_t *hashes; /* of the entries; 0: not known yet */
    size_t count;
};

/* The owner knew this from a place of the record on, by numbers of writes. */
struct fact {
    size_t place;
    unsigned edition;
    bool is_open; /* the backup has answered OPEN */
    uint64_t sent, durable;
};

struct history {
    struct edition editions[EDITIONS];
    unsigned count;
    struct fact *facts;
    size_t facts_count, facts_room;
};

struct run {
    struct model model;
    uint64_t seed;
    struct sh_disk *real;
    struct recorder *recorder;
    struct history histories[ZONES];
};

static struct run run;
static struct sent_entry entries_now[ZONES][ENTRIES_MAX];
static uint64_t hashes_now[ZONES][ENTRIES_MAX];

/* --- The run ----------------------------------------------------------------------------------- */

static uint64_t number_at(const struct stream *stream, size_t index)
{
    uint64_t number;
    uint32_t part;
    place_of(stream, index, &number, &part);
    return number;
}

/* Before which number all is durable, as the last ACK says that has come, though the owner has not looked at it yet. */
static uint64_t durable_told(const struct stream *stream)
{
    const struct rig_told *told = &stream->owner->told[stream->zone];
    uint64_t known = number_at(stream, stream->durable);
    bool is_its = told->count && stream->is_open && told->last.incarnation == stream->incarnation &&
                  !told->of_state[SH_REPLICATION_GONE];
    return is_its && told->last.durable > known ? told->last.durable : known;
}

static void fact_note(unsigned zone)
{
    const struct stream *stream = &run.model.streams[zone];
    struct history *history = &run.histories[zone];
    const struct fact *last =
        history->facts_count ? &history->facts[history->facts_count - 1] : NULL;
    const struct fact fact = {.place = run.recorder->events_count,
                              .edition = history->count - 1,
                              .is_open = stream->is_open,
                              .sent = number_at(stream, stream->sent),
                              .durable = durable_told(stream)};
    if (last && last->edition == fact.edition && last->is_open == fact.is_open &&
        last->sent == fact.sent && last->durable == fact.durable)
        return;
    if (last && fact.durable > last->durable) {
        recorder_acked(run.recorder);
        recorder_mark(run.recorder, "durable zone %u incarnation %u before %llu", zone,
                      stream->incarnation, (unsigned long long)fact.durable);
    }
    history->facts = recorder_more(history->facts, history->facts_count, &history->facts_room,
                                   sizeof *history->facts);
    history->facts[history->facts_count++] = fact;
}

static void edition_add(unsigned zone, bool is_anew)
{
    struct history *history = &run.histories[zone];
    assert_true(history->count < EDITIONS);
    if (is_anew)
        recorder_mark(run.recorder, "anew zone %u incarnation %u", zone,
                      run.model.streams[zone].incarnation);
    history->editions[history->count++] =
        (struct edition){.incarnation = run.model.streams[zone].incarnation,
                         .is_anew = is_anew,
                         .entries = entries_now[zone],
                         .hashes = hashes_now[zone]};
}

/* The zone's entries are about to change: editions that are still the stream's own have a copy from now on, which they share. */
static void editions_freeze(unsigned zone)
{
    const struct stream *stream = &run.model.streams[zone];
    struct history *history = &run.histories[zone];
    struct sent_entry *copy = malloc((stream->count + 1) * sizeof *copy);
    uint64_t *hashes = calloc(stream->count + 1, sizeof *hashes);
    assert_true(copy && hashes);
    memcpy(copy, stream->entries, stream->count * sizeof *copy);
    for (unsigned i = 0; i < history->count; i++) {
        struct edition *edition = &history->editions[i];
        if (edition->entries != entries_now[zone])
            continue;
        edition->entries = copy;
        edition->hashes = hashes;
        edition->count = stream->count;
    }
}

static void stream_go(unsigned zone)
{
    struct stream *stream = &run.model.streams[zone];
    uint32_t incarnation = stream->incarnation;
    stream_step(&run.model, stream);
    if (stream->incarnation != incarnation)
        edition_add(zone, true);
    fact_note(zone);
}

static void owner_over(struct rig_owner *owner)
{
    struct model *model = &run.model;
    if (model->cuts == model->cuts_max)
        return;
    for (unsigned i = 0; i < ZONES; i++) {
        if (model->streams[i].owner == owner)
            editions_freeze(i);
    }
    take_over(model, owner);
    for (unsigned i = 0; i < ZONES; i++) {
        if (model->streams[i].owner != owner)
            continue;
        edition_add(i, false);
        fact_note(i);
    }
}

/* The keeper's log moves from the rig's memory to the recorder; the rig keeps its own disk. */
static void run_open(const char *folder)
{
    struct model *model = &run.model;
    struct sh_prng prng = sh_prng_make(run.seed);
    *model = (struct model){.seed = run.seed | 1, .cuts_max = SH_MEMWIRE_LINKS - 4};
    rig_open(&model->rig, run.seed);
    rig_stop(&model->rig);
    assert_int_equal(sh_real_disk_create(folder, true, &run.real), SHOAL_OK);
    run.recorder = recorder_create(run.real, prng);
    struct sh_replog_config *log = &model->rig.logged;
    log->disk = &run.recorder->base;
    log->name = LOG_NAME;
    log->slot_bytes = 256 << 10;
    log->slots = 300;
    log->primary_blocks = 256;
    log->batch_bytes = 32 << 10;
    log->linger_ns = 20 * RIG_MS;
    log->versions_max = 1024;
    rig_start(&model->rig);
    for (unsigned i = 0; i < ZONES; i++) {
        model->streams[i] = (struct stream){.owner = &model->rig.owners[i % 2],
                                            .zone = i,
                                            .entries = entries_now[i],
                                            .number = 1,
                                            .writes = WRITES,
                                            .bytes_max = 1 << 20,
                                            .incarnation = 1,
                                            .since = 1,
                                            .begun = 1,
                                            .keeps_all = draw(model, 2)};
        edition_add(i, true);
        fact_note(i);
    }
}

/* The backup goes on by a step, and what it has told counts from there on. */
static void backup_go(void)
{
    (void)rig_round(&run.model.rig);
    for (unsigned i = 0; i < ZONES; i++)
        fact_note(i);
}

static void time_pass(uint64_t ns)
{
    struct rig *rig = &run.model.rig;
    rig->backup.memwire.now_ns += ns;
    for (unsigned i = 0; i < RIG_OWNERS; i++)
        rig->owners[i].end.memwire.now_ns += ns;
}

/* The streams go on until all is told and durable. Time goes faster than the disk. */
static void run_record(void)
{
    struct model *model = &run.model;
    struct rig *rig = &model->rig;
    const struct sh_clock clock = sh_real_clock();
    uint64_t began = sh_now(&clock);
    while (!streams_are_over(model)) {
        if (sh_now(&clock) - began > RUN_NS_MAX) {
            streams_print(model);
            fail_msg("seed %llu: the streams do not get on", (unsigned long long)run.seed);
        }
        for (unsigned i = 0; i < ZONES; i++) {
            if (draw(model, 4) == 0)
                stream_go(i);
        }
        unsigned what = draw(model, 2000);
        if (what < 2)
            owner_cut(model, &rig->owners[what]);
        else if (what < 4)
            backup_restart(model);
        else if (what < 7)
            owner_over(&rig->owners[what % 2]);
        else if (what < 20)
            rig->is_stalled = !rig->is_stalled;
        else if (what < 600)
            time_pass(draw(model, 5) * RIG_MS);
        for (unsigned i = draw(model, 4); i > 0; i--)
            backup_go();
        if (model->cuts == model->cuts_max)
            rig->is_stalled = false;
        if (draw(model, 4)) /* waits for the disk, but not for what the recorder holds back */
            (void)sh_disk_poll(run.real, true);
    }
    for (unsigned i = 0; i < ZONES; i++) {
        fact_note(i);
        for (unsigned k = 0; k < run.histories[i].count; k++) {
            struct edition *edition = &run.histories[i].editions[k];
            if (edition->entries == entries_now[i])
                edition->count = model->streams[i].count;
        }
    }
}

static void run_print(void)
{
    const struct model *model = &run.model;
    struct sh_replog_status status;
    sh_replog_status_get(model->rig.log, &status);
    print_message("%zu events, %llu KiB written, %zu acknowledgements; %u restarts, %u lives more, "
                  "%u times anew, %u full, %u again; of the last process %llu packs, %llu syncs, "
                  "%llu slots cleaned\n",
                  run.recorder->events_count, (unsigned long long)run.recorder->bytes >> 10,
                  run.recorder->acks_count, model->restarts, model->takeovers, model->anews,
                  model->fulls, model->agains, (unsigned long long)status.primary_writes,
                  (unsigned long long)status.syncs, (unsigned long long)status.slots_cleaned);
    assert_true(model->restarts && model->takeovers && model->anews);
    assert_true(run.recorder->acks_count > 200);
}

static void run_close(void)
{
    rig_close(&run.model.rig);
    run.real->ops->destroy(run.real);
    recorder_destroy(run.recorder);
    for (unsigned i = 0; i < ZONES; i++) {
        struct history *history = &run.histories[i];
        const struct sent_entry *freed = entries_now[i];
        for (unsigned k = 0; k < history->count; k++) {
            struct edition *edition = &history->editions[k];
            if (edition->entries == freed || edition->entries == entries_now[i])
                continue;
            freed = edition->entries;
            free((void *)edition->entries);
            free(edition->hashes);
        }
        free(history->facts);
    }
}

/* --- A zone's contents ------------------------------------------------------------------------- */

struct content {
    bool is_there;
    uint32_t total;
    uint64_t sum;    /* of the hashes of its pieces */
    uint64_t pieces; /* that were found: a bit for each */
};

struct contents {
    struct content own[CHUNKS + 1], notes[NOTES + 1]; /* by local ID */
};

/* bytes NULL: zeros. */
static uint64_t piece_hash(uint32_t offset, uint32_t size, const uint8_t *bytes)
{
    uint64_t salt = (uint64_t)offset << 32 | size;
    return bytes && size ? sh_hash64(sh_bytes_make(bytes, size), salt) : sh_mix64(salt + 1);
}

static uint64_t entry_hash(const struct edition *edition, size_t index)
{
    static uint8_t bytes[64 << 10];
    const struct sent_entry *sent = &edition->entries[index];
    const struct sh_replication_entry *entry = &sent->entry;
    uint64_t *hash = &edition->hashes[index];
    if (*hash)
        return *hash;
    bool is_image = entry->kind == SH_REPLICATION_IMAGE;
    for (uint32_t i = 0; is_image && i < entry->size; i++)
        bytes[i] = byte_of(sent->stamp, sent->offset + i);
    return *hash = piece_hash(sent->offset, entry->size, is_image ? bytes : NULL);
}

static struct content *content_of(struct contents *contents, uint64_t chunk)
{
    uint64_t local = chunk & 0xFFFF;
    return chunk >> 48 ? &contents->own[local] : &contents->notes[local];
}

/* A replica that has taken an edition's writes before `end` has this. */
static void contents_expect(const struct edition *edition, uint64_t end, struct contents *out)
{
    const struct sh_replication_entry *with = NULL;
    uint64_t sum = 0, with_sum = 0;
    memset(out, 0, sizeof *out);
    for (size_t i = 0; i < edition->count && edition->entries[i].number < end; i++) {
        const struct sh_replication_entry *entry = &edition->entries[i].entry;
        if (entry->kind == SH_REPLICATION_ABANDON) {
            with = NULL;
            continue;
        }
        uint64_t hash = entry_hash(edition, i);
        if (entry->with_next) {
            with = entry;
            with_sum = hash;
            continue;
        }
        sum = entry->piece ? sum + hash : hash;
        if (entry->piece + 1 < entry->pieces)
            continue;
        *content_of(out, entry->chunk) =
            (struct content){.is_there = entry->kind != SH_REPLICATION_REMOVAL,
                             .total = entry->pieces > 1 ? entry->total : entry->size,
                             .sum = sum};
        if (with)
            *content_of(out, with->chunk) =
                (struct content){.is_there = with->kind != SH_REPLICATION_REMOVAL,
                                 .total = with->size,
                                 .sum = with_sum};
        with = NULL;
    }
}

/* Whether what was found is that; else which chunk is not. */
static bool contents_are(const struct contents *found, const struct contents *expected,
                         uint64_t *chunk_out)
{
    for (uint64_t i = 0; i <= CHUNKS + NOTES; i++) {
        uint64_t chunk = i <= CHUNKS ? UINT64_C(1) << 48 | i : i - CHUNKS;
        const struct content *a = content_of((struct contents *)found, chunk);
        const struct content *b = content_of((struct contents *)expected, chunk);
        *chunk_out = chunk;
        if (a->is_there != b->is_there ||
            (a->is_there && (a->total != b->total || a->sum != b->sum)))
            return false;
    }
    return true;
}

/* --- Checking ---------------------------------------------------------------------------------- */

struct cut {
    size_t number, place;
    bool is_power;
    enum replay_luck luck;
    unsigned starts; /* since the state was opened first */
    struct state_disk disk;
    struct rig rig; /* of which only the log and its random numbers are used */
    uint64_t now_ns;
    uint64_t ends[ZONES];
    struct contents expected[ZONES];
    uint64_t behind; /* numbers that were found behind what was durable */
};

static void cut_fail(const struct cut *cut, const char *why, unsigned zone, uint64_t about)
{
    const struct history *history = &run.histories[zone];
    for (size_t i = 0; i < history->facts_count; i++) {
        const struct fact *fact = &history->facts[i];
        if (fact->place + 200 > cut->place && fact->place <= cut->place + 20)
            print_message(
                "at %zu: edition %u (incarnation %u, anew %d), open %d, sent before %llu, "
                "durable before %llu\n",
                fact->place, fact->edition, history->editions[fact->edition].incarnation,
                history->editions[fact->edition].is_anew, fact->is_open,
                (unsigned long long)fact->sent, (unsigned long long)fact->durable);
    }
    fail_msg("seed %llu, state %zu (place %zu of %zu, %s, luck %u), start %u, zone %u: %s (%llx)",
             (unsigned long long)run.seed, cut->number, cut->place, run.recorder->events_count,
             cut->is_power ? "power failure" : "end of process", cut->luck, cut->starts, zone, why,
             (unsigned long long)about);
}

/* A zone's replica may be one of these at a place: an edition from the first to the last, no further than was sent of each, and at least what was durable. */
struct bounds {
    unsigned first, last;
    uint64_t least, most[EDITIONS];
};

static void bounds_at(const struct history *history, size_t place, struct bounds *out)
{
    memset(out, 0, sizeof *out);
    out->least = 1;
    for (size_t i = 0; i < history->facts_count && history->facts[i].place <= place; i++) {
        const struct fact *fact = &history->facts[i];
        if (fact->edition != out->last && history->editions[fact->edition].is_anew)
            out->least = 1; /* the backup may have let go of what it had */
        out->last = fact->edition;
        if (fact->is_open)
            out->first = fact->edition;
        if (fact->durable > out->least)
            out->least = fact->durable;
        if (fact->sent > out->most[fact->edition])
            out->most[fact->edition] = fact->sent;
    }
}

struct reading {
    const struct cut *cut;
    unsigned zone;
    bool is_over;
    enum shoal_err err;
    uint64_t end;
    struct contents contents;
};

static enum shoal_err on_item(void *arg, struct sh_replog_zone *zone,
                              const struct sh_replog_item *item)
{
    struct reading *reading = arg;
    (void)zone;
    if (item->local_id > (item->creator ? CHUNKS : NOTES) || item->piece >= 64)
        cut_fail(reading->cut, "a chunk that nobody wrote", reading->zone, item->local_id);
    struct content *content =
        content_of(&reading->contents, (uint64_t)item->creator << 48 | item->local_id);
    uint64_t bit = UINT64_C(1) << item->piece;
    content->is_there = true;
    content->total = item->total;
    if (!(content->pieces & bit))
        content->sum += piece_hash(item->offset, (uint32_t)item->payload.size, item->payload.at);
    content->pieces |= bit;
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

static void cut_step(struct cut *cut)
{
    cut->now_ns += RIG_MS;
    (void)sh_replog_step(cut->rig.log, cut->now_ns, (uint32_t)(cut->now_ns / (1000 * RIG_MS)));
}

/* Reads a zone of the state's log; false: the log has nothing of it, and its end is 0. */
static bool zone_read(struct cut *cut, unsigned zone, struct reading *reading)
{
    struct sh_replog_zone *logged = sh_replog_zone_find(cut->rig.log, rig_zone(zone));
    memset(reading, 0, sizeof *reading);
    reading->cut = cut;
    reading->zone = zone;
    const struct sh_replog_read read = {.take = on_item, .done = on_read, .arg = reading};
    if (!logged)
        return false;
    assert_int_equal(sh_replog_zone_read(logged, &read), SHOAL_OK);
    for (unsigned i = 0; !reading->is_over; i++) {
        assert_true(i < STEPS_MAX);
        cut_step(cut);
    }
    if (reading->err)
        cut_fail(cut, shoal_err_name(reading->err), zone, reading->end);
    return true;
}

/* How what was found differs from each edition that it may be. */
static void differences_print(const struct contents *found, const struct history *history,
                              const struct bounds *bounds, uint64_t end, struct contents *room)
{
    print_message("found before %llu; editions %u to %u, of which the last has %zu entries\n",
                  (unsigned long long)end, bounds->first, bounds->last,
                  history->editions[bounds->last].count);
    for (unsigned i = bounds->first; i <= bounds->last; i++) {
        unsigned printed = 0;
        const struct edition *edition = &history->editions[i];
        print_message("edition %u (incarnation %u, anew %d), sent before %llu:\n", i,
                      edition->incarnation, edition->is_anew, (unsigned long long)bounds->most[i]);
        contents_expect(edition, end, room);
        for (uint64_t k = 0; k <= CHUNKS + NOTES && printed < 8; k++) {
            uint64_t chunk = k <= CHUNKS ? UINT64_C(1) << 48 | k : k - CHUNKS;
            const struct content *a = content_of((struct contents *)found, chunk);
            const struct content *b = content_of(room, chunk);
            if (a->is_there == b->is_there && (!a->is_there || a->sum == b->sum))
                continue;
            printed++;
            print_message("  chunk %llx: found %d of %u bytes, expected %d of %u bytes; written by",
                          (unsigned long long)chunk, a->is_there, a->total, b->is_there, b->total);
            for (size_t n = 0; n < edition->count; n++) {
                const struct sent_entry *sent = &edition->entries[n];
                if ((sent->entry.chunk & 0xffff) == (chunk & 0xffff) &&
                    !(sent->entry.chunk >> 48) == !(chunk >> 48) && !sent->entry.piece)
                    print_message(" %llu", (unsigned long long)sent->number);
            }
            print_message("\n");
        }
    }
}

/* A zone of a state is what its stream was before some number, which the acknowledgements allow. */
static void zone_check(struct cut *cut, unsigned zone)
{
    static struct reading reading;
    static struct bounds bounds;
    const struct history *history = &run.histories[zone];
    uint64_t chunk = 0;
    (void)zone_read(cut, zone, &reading);
    uint64_t end = reading.end > 1 ? reading.end : 1;
    bounds_at(history, cut->place, &bounds);
    cut->ends[zone] = reading.end;
    if (end < bounds.least)
        cut_fail(cut, "what was acknowledged as durable is not there", zone, end);
    cut->behind += end - bounds.least;
    for (unsigned i = bounds.last + 1; i-- > bounds.first;) {
        if (end > bounds.most[i] && end > 1)
            continue;
        contents_expect(&history->editions[i], end, &cut->expected[zone]);
        if (contents_are(&reading.contents, &cut->expected[zone], &chunk))
            return;
    }
    differences_print(&reading.contents, history, &bounds, end, &cut->expected[zone]);
    cut_fail(cut, "the zone is not what its stream was before some number", zone,
             chunk ? chunk : end);
}

static void log_open(struct cut *cut)
{
    enum shoal_err err = sh_replog_open(&cut->rig.logged, cut->now_ns,
                                        (uint32_t)(cut->now_ns / (1000 * RIG_MS)), &cut->rig.log);
    if (err)
        cut_fail(cut, shoal_err_name(err), 0, 0);
}

/* Nothing of the state passes for damage. */
static void harm_check(struct cut *cut)
{
    struct sh_inspect *inspect;
    enum shoal_err err = sh_inspect_open(&cut->disk.base, LOG_NAME, &inspect);
    if (err == SHOAL_ENONAME || err == SHOAL_EPARSE)
        return;
    assert_int_equal(err, SHOAL_OK);
    const struct sh_inspect_calls calls = {.slot = NULL};
    assert_int_equal(sh_inspect_read(inspect, 0, &calls), SHOAL_OK);
    if (sh_inspect_seen(inspect)->damaged)
        cut_fail(cut, "what a crash has left passes for damage", 0,
                 sh_inspect_seen(inspect)->damaged);
    sh_inspect_close(inspect);
}

/* Writes to each zone from where it ends, in an epoch that is new. The draws are the rig's. */
static void more_written(struct cut *cut, struct sh_prng *prng)
{
    static uint8_t bytes[200];
    for (unsigned zone = 0; zone < ZONES; zone++) {
        struct sh_replog_zone *logged = sh_replog_zone_find(cut->rig.log, rig_zone(zone));
        if (!logged)
            continue;
        const struct sh_replog_zone_config config = {.id = rig_zone(zone),
                                                     .owner = RIG_OWNER_NID,
                                                     .incarnation =
                                                         sh_replog_zone_known(logged).incarnation,
                                                     .first = cut->ends[zone],
                                                     .bytes_max = 1 << 20,
                                                     .range_first = rig_chunk(0),
                                                     .range_count = 1000,
                                                     .rest_max = 1000};
        assert_int_equal(sh_replog_zone_add(cut->rig.log, &config, &logged), SHOAL_OK);
        for (unsigned i = 0; i < MORE_WRITES; i++) {
            uint64_t chunk = rig_chunk((unsigned)sh_prng_below(prng, CHUNKS));
            memset(bytes, (int)sh_prng_below(prng, 256), sizeof bytes);
            const struct sh_replog_write write = {.local_id = chunk & 0xFFFF,
                                                  .creator = RIG_OWNER_NID,
                                                  .pieces = 1,
                                                  .payload = {bytes, sizeof bytes}};
            enum shoal_err err; /* a zone that is full grows, as the keeper has it */
            while ((err = sh_replog_append(logged, &write)) == SHOAL_EAGAIN ||
                   (err == SHOAL_ENOSPC && !sh_replog_zone_grow(logged)))
                cut_step(cut);
            assert_int_equal(err, SHOAL_OK);
            *content_of(&cut->expected[zone], chunk) = (struct content){
                .is_there = true, .total = sizeof bytes, .sum = piece_hash(0, sizeof bytes, bytes)};
        }
        sh_replog_sync(logged);
        for (unsigned i = 0; sh_replog_durable(logged) < sh_replog_next(logged); i++) {
            assert_true(i < STEPS_MAX);
            cut_step(cut);
        }
        cut->ends[zone] = sh_replog_next(logged);
    }
}

/* The log that a state has goes on for two more starts: each zone has what it had, and what was written since. */
static void goes_on(struct cut *cut, struct sh_prng *prng)
{
    static struct reading reading;
    for (cut->starts = 1; cut->starts <= 2; cut->starts++) {
        uint64_t chunk;
        more_written(cut, prng);
        sh_replog_close(cut->rig.log);
        log_open(cut);
        for (unsigned zone = 0; zone < ZONES; zone++) {
            if (!zone_read(cut, zone, &reading))
                continue;
            if (reading.end != cut->ends[zone])
                cut_fail(cut, "not all is there that was written since", zone, reading.end);
            if (!contents_are(&reading.contents, &cut->expected[zone], &chunk))
                cut_fail(cut, "a zone is not what was written since", zone, chunk);
        }
    }
    cut->starts = 0;
}

static void state_check(struct cut *cut, const struct replay *replay, struct sh_prng *prng)
{
    state_disk_init(&cut->disk, LOG_NAME);
    cut->disk.is_there = replay_state(replay, cut->is_power, cut->luck, prng, &cut->disk.image);
    if (cut->number % 4 == 0)
        harm_check(cut);
    log_open(cut);
    for (unsigned i = 0; i < ZONES; i++)
        zone_check(cut, i);
    if (cut->number % 4 == 1)
        goes_on(cut, prng);
    sh_replog_close(cut->rig.log);
    sh_image_clear(&cut->disk.image);
}

static void states_check(size_t count)
{
    static struct replay replay;
    static struct cut cut;
    struct sh_prng prng = sh_prng_make(run.seed ^ 1);
    size_t *places = recorder_places(run.recorder, count, &prng);
    replay = (struct replay){.recorder = run.recorder};
    cut = (struct cut){.now_ns = UINT64_C(1) << 40, .rig.random = sh_mix64(run.seed) | 1};
    cut.rig.logged = run.model.rig.logged;
    cut.rig.logged.disk = &cut.disk.base;
    cut.rig.logged.random.arg = &cut.rig;
    cut.rig.logged.durable = NULL;
    for (size_t i = 0; i < count; i++) {
        replay_to(&replay, places[i]);
        cut.number = i;
        cut.place = places[i];
        cut.is_power = sh_prng_below(&prng, 4) != 0;
        cut.luck = (enum replay_luck)sh_prng_below(&prng, REPLAY_LUCKS);
        state_check(&cut, &replay, &prng);
    }
    sh_image_clear(&replay.image);
    free(places);
    print_message("%zu states: %llu writes found behind what was acknowledged\n", count,
                  (unsigned long long)cut.behind);
    assert_true(cut.behind > count);
}

static void recorded_direct_keeper_holds(void **state)
{
    recorder_folder_needs_direct(*state);
    memset(&run, 0, sizeof run);
    run.seed = test_seed_fresh();
    run_open(*state);
    run_record();
    run_print();
    recorder_trace(run.recorder, "keeper");
    states_check(recorder_states(1500));
    run_close();
}

static int folder_remove(void **state)
{
    return recorder_folder_remove(*state, LOG_NAME);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(recorded_direct_keeper_holds, recorder_folder_make,
                                        folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
