/* State machines on a journal in a simulated world, for journal_test.c and journal_damage_test.c.
 * Each is a log whose state is a hash over its entries; what it was is noted for each LSN, and
 * after a restart it must be what it was at one of them, and not before what was synced. */
#ifndef TESTS_JOURNAL_RIG_INT_H
#define TESTS_JOURNAL_RIG_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "journal/journal.h"
#include "sim/world.h"
#include "tests/seed_int.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define STREAMS 3
#define SEGMENT_BYTES (32u << 10)
#define KEPT_BYTES (4 * SEGMENT_BYTES)
#define PIECE_BYTES 128
#define LABEL "a test"

/* A state machine: a log whose state is a hash over its entries, with padding, so that a snapshot
 * is in pieces. What is known of each index: the hash up to there. */
struct machine {
    bool is_there;
    struct sh_entries entries;
    uint64_t applied, hash; /* of all entries up to applied */
    uint32_t padding;       /* bytes of a snapshot behind 16 */
    uint64_t word;          /* its state, in the journal's sense; 0: none */
};

/* A snapshot that is being written, or read. */
struct snapshot {
    bool is_open;
    uint64_t index, term;
    size_t at, size;
    uint8_t bytes[16 + 4096];
};

struct rig;

struct stream {
    struct rig *rig;
    unsigned number;
    struct machine now;
    struct snapshot saving, loading;
};

/* What a stream was when an LSN was given out. */
struct note {
    sh_lsn lsn;
    unsigned stream;
    bool is_there;
    uint64_t last, hash, word; /* hash: of all entries up to last */
};

#define NOTES_MAX 4096

struct rig {
    struct sh_world *world;
    struct sh_prng prng;
    unsigned node;
    struct sh_journal *journal;
    struct stream streams[STREAMS];
    struct note notes[NOTES_MAX];
    size_t notes_count;
    unsigned boots, saves, installs, drops, troubles;
    enum shoal_err opened;
    bool is_damaged; /* an error of opening is expected */
};

/* --- The state machine ----------------------------------------------------------------------- */

static inline uint64_t hash_step(uint64_t hash, uint64_t term, struct sh_bytes bytes)
{
    return sh_mix64(hash + sh_mix64(term) + sh_crc32c(0, bytes));
}

/* The hash over all entries, applied or not. */
static inline uint64_t hash_of_all(const struct machine *machine)
{
    uint64_t hash = machine->hash;
    for (uint64_t i = machine->applied + 1; i <= sh_entries_last(&machine->entries); i++) {
        const struct sh_entry *entry = sh_entries_at(&machine->entries, i);
        hash = hash_step(hash, entry->term, sh_bytes_make(entry->bytes, entry->size));
    }
    return hash;
}

static inline void machine_clear(struct machine *machine)
{
    sh_entries_reset(&machine->entries, 0, 0);
    *machine = (struct machine){.is_there = false};
}

static inline void apply_to(struct machine *machine, uint64_t until)
{
    while (machine->applied < until) {
        const struct sh_entry *entry = sh_entries_at(&machine->entries, machine->applied + 1);
        machine->hash =
            hash_step(machine->hash, entry->term, sh_bytes_make(entry->bytes, entry->size));
        machine->applied++;
    }
}

static inline void snapshot_fill(struct snapshot *snapshot, const struct machine *machine)
{
    memset(snapshot, 0, sizeof *snapshot);
    snapshot->is_open = true;
    snapshot->index = machine->applied;
    bool is_known = sh_entries_term(&machine->entries, machine->applied, &snapshot->term);
    assert_true(is_known);
    sh_store64(snapshot->bytes, machine->applied);
    sh_store64(snapshot->bytes + 8, machine->hash);
    snapshot->size = 16 + machine->padding;
}

static inline size_t snapshot_piece(struct snapshot *snapshot, uint8_t *into, size_t room)
{
    size_t size = snapshot->size - snapshot->at < room ? snapshot->size - snapshot->at : room;
    memcpy(into, snapshot->bytes + snapshot->at, size);
    snapshot->at += size;
    return size;
}

static inline enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    struct stream *stream = arg;
    if (state.size != 8)
        return SHOAL_ECORRUPT;
    stream->now.word = sh_load64(state.at);
    stream->now.is_there = true;
    return SHOAL_OK;
}

static inline enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                        struct sh_bytes bytes)
{
    struct stream *stream = arg;
    struct machine *machine = &stream->now;
    if (kind != 7 || index <= machine->entries.base ||
        index > sh_entries_last(&machine->entries) + 1)
        return SHOAL_ECORRUPT;
    machine->is_there = true;
    if (index <= sh_entries_last(&machine->entries))
        sh_entries_cut(&machine->entries, index);
    return sh_entries_append(&machine->entries, term, kind, bytes);
}

static inline enum shoal_err load_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    struct stream *stream = arg;
    memset(&stream->loading, 0, sizeof stream->loading);
    stream->loading.is_open = true;
    stream->loading.index = index;
    stream->loading.term = term;
    if (is_first)
        sh_entries_reset(&stream->now.entries, index, term);
    return SHOAL_OK;
}

static inline enum shoal_err load_piece(void *arg, struct sh_bytes piece)
{
    struct snapshot *loading = &((struct stream *)arg)->loading;
    if (!loading->is_open || piece.size > sizeof loading->bytes - loading->size)
        return SHOAL_ECORRUPT;
    memcpy(loading->bytes + loading->size, piece.at, piece.size);
    loading->size += piece.size;
    return SHOAL_OK;
}

static inline enum shoal_err load_end(void *arg, bool is_reset)
{
    struct stream *stream = arg;
    struct snapshot *loading = &stream->loading;
    struct machine *machine = &stream->now;
    if (!loading->is_open || loading->size < 16 || sh_load64(loading->bytes) != loading->index)
        return SHOAL_ECORRUPT;
    loading->is_open = false;
    if (is_reset)
        sh_entries_reset(&machine->entries, loading->index, loading->term);
    else if (loading->index < machine->entries.base ||
             loading->index > sh_entries_last(&machine->entries))
        return SHOAL_ECORRUPT;
    else
        sh_entries_shift(&machine->entries, loading->index);
    machine->is_there = true;
    machine->applied = loading->index;
    machine->hash = sh_load64(loading->bytes + 8);
    machine->padding = (uint32_t)loading->size - 16;
    return SHOAL_OK;
}

static inline enum shoal_err load_drop(void *arg)
{
    machine_clear(&((struct stream *)arg)->now);
    return SHOAL_OK;
}

static inline bool save_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    struct stream *stream = arg;
    assert_false(stream->saving.is_open);
    if (sh_prng_below(&stream->rig->prng, 4) == 0)
        return false;
    snapshot_fill(&stream->saving, &stream->now);
    *index_out = stream->saving.index;
    *term_out = stream->saving.term;
    return true;
}

static inline void save_entries(void *arg)
{
    struct stream *stream = arg;
    struct machine *machine = &stream->now;
    for (uint64_t i = machine->applied + 1; i <= sh_entries_last(&machine->entries); i++) {
        const struct sh_entry *entry = sh_entries_at(&machine->entries, i);
        (void)sh_journal_append(stream->rig->journal, stream->number, i, entry->term, entry->kind,
                                sh_bytes_make(entry->bytes, entry->size));
    }
}

static inline size_t save_next(void *arg, uint8_t *into, size_t room)
{
    return snapshot_piece(&((struct stream *)arg)->saving, into, room);
}

static inline void save_end(void *arg, bool is_done)
{
    struct stream *stream = arg;
    assert_true(stream->saving.is_open);
    stream->saving.is_open = false;
    stream->rig->saves += is_done;
}

/* --- The rig --------------------------------------------------------------------------------- */

static inline uint64_t now_of(const struct rig *rig)
{
    return sh_now(&sh_world_env(rig->world, rig->node)->clock);
}

static inline unsigned journal_step(void *arg)
{
    struct rig *rig = arg;
    unsigned work = sh_journal_step(rig->journal, now_of(rig));
    rig->troubles += sh_journal_trouble(rig->journal) != SHOAL_OK && work;
    return work;
}

static inline uint64_t journal_due(void *arg)
{
    struct rig *rig = arg;
    return sh_journal_due_ns(rig->journal, now_of(rig));
}

static inline void streams_clear(struct rig *rig)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        struct stream *stream = &rig->streams[i];
        machine_clear(&stream->now);
        stream->saving.is_open = stream->loading.is_open = false;
        stream->rig = rig;
        stream->number = i;
    }
}

static inline struct sh_journal_config config_of(struct rig *rig, struct sh_journal_stream *streams)
{
    for (unsigned i = 0; i < STREAMS; i++)
        streams[i] = (struct sh_journal_stream){
            load_state, load_entry,   load_begin, load_piece, load_end,        load_drop,
            save_begin, save_entries, save_next,  save_end,   &rig->streams[i]};
    return (struct sh_journal_config){.env = *sh_world_env(rig->world, rig->node),
                                      .label = sh_bytes_text(LABEL),
                                      .segment_bytes = SEGMENT_BYTES,
                                      .bytes_kept = KEPT_BYTES,
                                      .piece_bytes = PIECE_BYTES,
                                      .streams = streams,
                                      .streams_count = STREAMS};
}

static inline void boot(void *arg, struct sh_world *world, unsigned node)
{
    struct rig *rig = arg;
    struct sh_journal_stream streams[STREAMS];
    rig->world = world;
    rig->node = node;
    rig->boots++;
    streams_clear(rig);
    struct sh_journal_config config = config_of(rig, streams);
    rig->opened = sh_journal_open(&config, &rig->journal);
    if (rig->opened) {
        rig->journal = NULL;
        return;
    }
    struct sh_step step = {
        .name = "journal", .run = journal_step, .due_ns = journal_due, .arg = rig};
    sh_world_step_add(world, node, step);
}

static inline void crash(void *arg, struct sh_world *world, unsigned node)
{
    struct rig *rig = arg;
    (void)world;
    (void)node;
    sh_journal_close(rig->journal);
    rig->journal = NULL;
}

static inline void rig_open(struct rig *rig, uint64_t seed, const struct sh_disk_faults *faults)
{
    memset(rig, 0, sizeof *rig);
    struct sh_prng prng = sh_prng_make(seed);
    rig->prng = sh_prng_split(&prng);
    struct sh_world_config config = {.seed = sh_prng_next(&prng), .disk = *faults};
    rig->world = sh_world_create(&config);
    struct sh_world_node node = {.boot = boot, .crash = crash, .arg = rig};
    rig->node = sh_world_node_add(rig->world, &node);
}

static inline void rig_close(struct rig *rig)
{
    sh_journal_close(rig->journal);
    streams_clear(rig);
    sh_world_destroy(rig->world);
}

static inline void rig_run(struct rig *rig, uint64_t for_ns)
{
    (void)sh_world_run_until(rig->world, NULL, NULL, sh_world_now(rig->world) + for_ns);
}

/* --- What is done ---------------------------------------------------------------------------- */

static inline void note(struct rig *rig, unsigned number)
{
    const struct machine *machine = &rig->streams[number].now;
    assert_true(rig->notes_count < NOTES_MAX);
    rig->notes[rig->notes_count++] = (struct note){.lsn = sh_journal_last(rig->journal),
                                                   .stream = number,
                                                   .is_there = machine->is_there,
                                                   .last = sh_entries_last(&machine->entries),
                                                   .hash = hash_of_all(machine),
                                                   .word = machine->word};
}

static inline void do_append(struct rig *rig, struct stream *stream)
{
    struct machine *machine = &stream->now;
    uint8_t bytes[2000];
    uint64_t last = sh_entries_last(&machine->entries), term = 1;
    size_t size = sh_prng_below(&rig->prng, sh_prng_below(&rig->prng, 8) ? 64 : sizeof bytes);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)sh_prng_next(&rig->prng);
    /* Now and then entries that were not applied are replaced by others. */
    if (last > machine->applied && sh_prng_below(&rig->prng, 6) == 0) {
        last -= 1 + sh_prng_below(&rig->prng, last - machine->applied);
        sh_entries_cut(&machine->entries, last + 1);
        term = 1 + sh_prng_below(&rig->prng, 1000);
    }
    machine->is_there = true;
    assert_int_equal(sh_entries_append(&machine->entries, term, 7, sh_bytes_make(bytes, size)),
                     SHOAL_OK);
    (void)sh_journal_append(rig->journal, stream->number, last + 1, term, 7,
                            sh_bytes_make(bytes, size));
}

static inline void do_install(struct rig *rig, struct stream *stream)
{
    struct machine *machine = &stream->now;
    uint64_t index = sh_entries_last(&machine->entries) + sh_prng_below(&rig->prng, 100);
    uint64_t term = 1 + sh_prng_below(&rig->prng, 1000);
    struct machine fresh = {.is_there = true,
                            .applied = index,
                            .hash = sh_prng_next(&rig->prng),
                            .padding = (uint32_t)sh_prng_below(&rig->prng, 4000),
                            .word = machine->word};
    uint8_t piece[PIECE_BYTES];
    struct snapshot snapshot;
    size_t size;
    sh_entries_reset(&fresh.entries, index, term);
    snapshot_fill(&snapshot, &fresh);
    sh_journal_install_begin(rig->journal, stream->number, index, term);
    while ((size = snapshot_piece(&snapshot, piece, sizeof piece))) {
        sh_journal_install_piece(rig->journal, stream->number, sh_bytes_make(piece, size));
        if (sh_prng_below(&rig->prng, 8) == 0)
            rig_run(rig, sh_prng_below(&rig->prng, MS));
        if (sh_prng_below(&rig->prng, 64) == 0) {
            sh_journal_install_cancel(rig->journal, stream->number);
            if (!machine->is_there)
                (void)sh_journal_drop(rig->journal, stream->number);
            return;
        }
    }
    (void)sh_journal_install_end(rig->journal, stream->number);
    machine_clear(machine);
    *machine = fresh;
    rig->installs++;
}

static inline void act(struct rig *rig)
{
    struct stream *stream = &rig->streams[sh_prng_below(&rig->prng, STREAMS)];
    struct machine *machine = &stream->now;
    uint8_t word[8];
    switch (sh_prng_below(&rig->prng, 24)) {
    case 0:
        machine->word = sh_prng_next(&rig->prng) | 1;
        machine->is_there = true;
        sh_store64(word, machine->word);
        (void)sh_journal_state_set(rig->journal, stream->number, sh_bytes_make(word, 8));
        break;
    case 1:
        if (sh_prng_below(&rig->prng, 4) == 0)
            do_install(rig, stream);
        break;
    case 2:
        if (sh_prng_below(&rig->prng, 12) == 0) {
            (void)sh_journal_drop(rig->journal, stream->number);
            machine_clear(machine);
            rig->drops++;
        }
        break;
    case 3:
    case 4:
        apply_to(machine,
                 machine->applied + sh_prng_below(&rig->prng, sh_entries_last(&machine->entries) -
                                                                  machine->applied + 1));
        break;
    case 5:
        if (machine->applied > machine->entries.base)
            sh_entries_shift(&machine->entries, machine->applied);
        break;
    default:
        do_append(rig, stream);
        break;
    }
    note(rig, stream->number);
}

/* Each stream is as it was at some time, not before what was synced of it. */
static inline void check(struct rig *rig, sh_lsn synced, uint64_t seed)
{
    for (unsigned i = 0; i < STREAMS; i++) {
        const struct machine *machine = &rig->streams[i].now;
        uint64_t last = sh_entries_last(&machine->entries), hash = hash_of_all(machine);
        bool is_good = !machine->is_there;
        for (size_t at = 0; at < rig->notes_count; at++) {
            const struct note *then = &rig->notes[at];
            if (then->stream != i)
                continue;
            bool is_same = then->is_there == machine->is_there && then->last == last &&
                           then->word == machine->word && (!then->is_there || then->hash == hash);
            if (then->lsn <= synced)
                is_good = is_same; /* this, or a later one */
            else
                is_good |= is_same;
        }
        if (!is_good)
            fail_msg("seed %" PRIu64 ", boot %u: stream %u is at %" PRIu64
                     ", which it was not since LSN %" PRIu64 " was synced",
                     seed, rig->boots, i, last, synced);
    }
}

/* What is there now is what there was: it counts from here on. */
static inline void notes_begin(struct rig *rig)
{
    rig->notes_count = 0;
    for (unsigned i = 0; i < STREAMS; i++) {
        note(rig, i);
        rig->notes[i].lsn = 0;
    }
}

#endif
