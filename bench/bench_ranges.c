/* `shoal bench ranges`: where --count chunks are, of which --percent have migrated in runs of
 * --length; without the two, 1, 5 and 10 % in runs of 1 and of 100.
 *
 * fill     the layout at once: the tree from sorted ranges, a table one entry for each chunk; a run
 *          is one fill, an operation a chunk. bytes_per_chunk is the growth of the resident set.
 * migrate  all chunks at home; then the runs migrate in drawn order, each an operation.
 * lookup   drawn ranges' first IDs for --seconds, one after the other: each waits for the answer
 *          before, as it does where the answer is used. Here a table has an entry for each range,
 *          as many as the tree: what a lookup costs, not how many entries there are.
 * multi    the same, 32 at a time: in the tree by its call for many, in a table with nothing that
 *          one lookup has to wait for in another.
 *
 * The digest is taken over values of drawn IDs and the same for all systems.
 *
 * Prediction: 10 million touching ranges take 64 MB of leaves when filled. A lookup misses the
 * caches for one inner node of the lowest level (in the third level's 2 MB, so that it mostly hits
 * there) and for one leaf, whose lines are fetched together; the flat table misses once. So the
 * tree should take under twice the table's time. A billion chunks with 10 % migrated one by one are
 * 190 million ranges, 1.2 GB: one level of inner nodes more in memory, 300 to 400 ns. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/resident.h"
#include "bench/bench.h"
#include "bench/benches.h"
#include "bench/glib_base.h"
#include "bench/ranges_layout.h"
#include "bench/store_bench_int.h"
#include "bench/table_base.h"

#define CHUNKS_MOST (UINT64_C(1) << 36)
#define KEYS_MOST (UINT64_C(1) << 22)
#define DIGEST_KEYS 4096
#define SAMPLE_EVERY 64
#define BATCH 32
#define MILLION 1e6
#define BILLION 1e9
/* What GLib's table takes for an entry at least: key, value and hash, when it is full. */
#define GLIB_ENTRY_BYTES 20

const char *const sh_bench_ranges_cases[] = {"fill", "migrate", "lookup", "multi", NULL};
const char *const sh_bench_ranges_baselines[] = {"table", "glib", NULL};

enum system { SYSTEM_OURS, SYSTEM_TABLE, SYSTEM_GLIB };

/* One of the systems, with what it holds. */
struct subject {
    enum system system;
    const struct sh_layout *layout;
    double seconds;
    struct sh_ranges *ranges;
    struct sh_table_base table;
    struct sh_glib_base *glib;
    const uint64_t *keys; /* lookup's */
    uint64_t key_count;
    /* Of the last run: */
    size_t count; /* ranges in the tree */
    double taken; /* resident bytes */
};

static void subject_empty(struct subject *subject)
{
    sh_ranges_destroy(subject->ranges);
    sh_table_base_destroy(&subject->table);
    sh_glib_base_destroy(subject->glib);
    subject->ranges = NULL;
    subject->glib = NULL;
}

static enum shoal_err subject_create(struct subject *subject, uint64_t entries)
{
    switch (subject->system) {
    case SYSTEM_OURS: {
        /* Two boundaries for each run, 40 in the emptiest leaf that is usual. */
        uint64_t leaves = subject->layout->runs / 20 + 4096;
        return sh_ranges_create(leaves, &subject->ranges);
    }
    case SYSTEM_TABLE:
        return sh_table_base_create(entries, &subject->table);
    default:
        return sh_glib_base_create(&subject->glib);
    }
}

static void entry_set(struct subject *subject, uint64_t key, uint64_t value)
{
    if (subject->system == SYSTEM_TABLE) {
        *sh_table_base_slot(&subject->table, key) = (struct sh_table_slot){key, value};
        return;
    }
    sh_glib_base_set(subject->glib, key, value);
}

/* Gives chunks a value: a range in ours, each for itself in a table. */
static enum shoal_err chunks_set(struct subject *subject, const struct sh_range *range)
{
    if (subject->system == SYSTEM_OURS)
        return sh_ranges_set(subject->ranges, range->first, range->last, range->value);
    for (uint64_t key = range->first.v; key <= range->last.v; key++)
        entry_set(subject, key, range->value);
    return SHOAL_OK;
}

static uint64_t value_get(struct subject *subject, uint64_t key)
{
    if (subject->system == SYSTEM_OURS) {
        struct sh_range range;
        return sh_ranges_find(subject->ranges, (shoal_cid){key}, &range) ? range.value : 0;
    }
    if (subject->system == SYSTEM_TABLE)
        return sh_table_base_slot(&subject->table, key)->value;
    return sh_glib_base_get(subject->glib, key);
}

/* The whole layout into an empty subject; by_range: into a table, one entry for each range. */
static enum shoal_err subject_fill(struct subject *subject, bool by_range)
{
    struct sh_layout_source source = {.layout = subject->layout};
    if (subject->system == SYSTEM_OURS)
        return sh_ranges_fill(subject->ranges, sh_layout_next, &source);
    struct sh_range range;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_layout_next(&source, &range)) {
        if (by_range)
            range.last = range.first;
        err = chunks_set(subject, &range);
    }
    return err;
}

/* Mixes the values of drawn chunks; 0 if one is nowhere. */
static uint64_t subject_digest(struct subject *subject)
{
    uint64_t digest = 1;
    for (uint64_t i = 0; i < DIGEST_KEYS; i++) {
        uint64_t drawn = sh_mix64(subject->layout->seed + i) % subject->layout->chunks;
        uint64_t value = value_get(subject, SH_LAYOUT_FIRST + drawn);
        if (!value)
            return 0;
        digest = sh_mix64(digest ^ value);
    }
    return digest;
}

static void taken_note(struct subject *subject, uint64_t resident,
                       struct sh_bench_result *result_out)
{
    uint64_t now = sh_resident_bytes();
    subject->taken = now > resident ? (double)(now - resident) : 0;
    subject->count = subject->ranges ? sh_ranges_count(subject->ranges) : 0;
    result_out->bytes_per_chunk = subject->taken / (double)subject->layout->chunks;
}

static enum shoal_err fill_run(void *arg, const struct sh_bench_flags *flags,
                               enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct subject *subject = arg;
    sh_bench_pin(placement, 0);
    uint64_t resident = sh_resident_bytes();
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    enum shoal_err err = subject_create(subject, subject->layout->chunks);
    if (!err)
        err = subject_fill(subject, false);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = subject->layout->chunks;
    taken_note(subject, resident, result_out);
    if (!err)
        result_out->digest = subject_digest(subject);
    subject_empty(subject);
    return err || result_out->digest ? err : SHOAL_EINTERNAL;
}

static enum shoal_err runs_migrate(struct subject *subject, struct sh_bench_result *result_out)
{
    const struct sh_layout *layout = subject->layout;
    enum shoal_err err = SHOAL_OK;
    for (uint64_t i = 0; i < layout->runs && !err; i++) {
        struct sh_range run = sh_layout_run(layout, sh_layout_order(layout, i));
        bool is_timed = i % SAMPLE_EVERY == 0;
        uint64_t start_ns = is_timed ? sh_bench_now_ns() : 0;
        err = chunks_set(subject, &run);
        if (is_timed)
            sh_hist_add(&result_out->latency_ns, sh_bench_now_ns() - start_ns);
    }
    return err;
}

static enum shoal_err migrate_run(void *arg, const struct sh_bench_flags *flags,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct subject *subject = arg;
    const struct sh_layout *layout = subject->layout;
    struct sh_range all = {
        {SH_LAYOUT_FIRST}, {SH_LAYOUT_FIRST + layout->chunks - 1}, SH_LAYOUT_HOME};
    sh_bench_pin(placement, 0);
    sh_hist_reset(&result_out->latency_ns);
    uint64_t resident = sh_resident_bytes();
    enum shoal_err err = subject_create(subject, layout->chunks);
    if (!err)
        err = chunks_set(subject, &all);
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    if (!err)
        err = runs_migrate(subject, result_out);
    result_out->seconds = (double)(sh_bench_now_ns() - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = layout->runs;
    taken_note(subject, resident, result_out);
    if (!err)
        result_out->digest = subject_digest(subject);
    subject_empty(subject);
    return err || result_out->digest ? err : SHOAL_EINTERNAL;
}

/* The key of the next lookup. `before`, an answer, has to be there first: no owner's number is so
 * large that it changes anything. */
static uint64_t key_after(const struct subject *subject, uint64_t at, uint64_t before)
{
    return subject->keys[at % subject->key_count + (before >> 63)];
}

/* Looks keys up one after the other; false if one was nowhere. */
static bool keys_look(struct subject *subject, uint64_t from, uint64_t count)
{
    uint64_t missed = 0;
    uint64_t value = 0;
    for (uint64_t i = from; i < from + count; i++) {
        uint64_t key = key_after(subject, i, value);
        if (subject->system == SYSTEM_OURS) {
            struct sh_range range = {.value = 0};
            missed += !sh_ranges_find(subject->ranges, (shoal_cid){key}, &range);
            value = range.value;
        } else if (subject->system == SYSTEM_TABLE) {
            value = sh_table_base_slot(&subject->table, key)->value;
            missed += !value;
        } else {
            value = sh_glib_base_get(subject->glib, key);
            missed += !value;
        }
    }
    return !missed;
}

/* Looks BATCH keys up that don't wait for each other. */
static bool batch_look(struct subject *subject, uint64_t from)
{
    shoal_cid cids[BATCH];
    uint64_t found = 0;
    for (uint64_t i = 0; i < BATCH; i++)
        cids[i].v = key_after(subject, from + i, 0);
    if (subject->system == SYSTEM_OURS) {
        struct sh_range ranges[BATCH];
        return sh_ranges_find_multi(subject->ranges, cids, BATCH, ranges) == BATCH;
    }
    for (uint64_t i = 0; i < BATCH; i++)
        found += subject->system == SYSTEM_TABLE
                     ? sh_table_base_slot(&subject->table, cids[i].v)->value != 0
                     : sh_glib_base_get(subject->glib, cids[i].v) != 0;
    return found == BATCH;
}

static enum shoal_err lookups_run(struct subject *subject, bool is_multi,
                                  enum sh_placement placement, struct sh_bench_result *result_out)
{
    sh_bench_pin(placement, 0);
    sh_hist_reset(&result_out->latency_ns);
    uint64_t cpu_ns = sh_bench_cpu_ns();
    uint64_t start_ns = sh_bench_now_ns();
    uint64_t now_ns = start_ns;
    uint64_t deadline_ns = start_ns + (uint64_t)(subject->seconds * 1e9);
    bool good = true;
    while (good && now_ns < deadline_ns) {
        uint64_t timed = is_multi ? BATCH : 1;
        uint64_t untimed = SAMPLE_EVERY - 1;
        if (!is_multi)
            good = keys_look(subject, result_out->ops, untimed);
        for (uint64_t i = 0; i < untimed && is_multi && good; i++)
            good = batch_look(subject, result_out->ops + i * BATCH);
        result_out->ops += untimed * timed;
        uint64_t one_ns = sh_bench_now_ns();
        good = good && (is_multi ? batch_look(subject, result_out->ops)
                                 : keys_look(subject, result_out->ops, 1));
        now_ns = sh_bench_now_ns();
        sh_hist_add(&result_out->latency_ns, now_ns - one_ns);
        result_out->ops += timed;
    }
    result_out->seconds = (double)(now_ns - start_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    uint64_t digest = 1;
    for (uint64_t i = 0; i < DIGEST_KEYS; i++)
        digest = sh_mix64(digest ^ value_get(subject, subject->keys[i % subject->key_count]));
    result_out->digest = digest;
    return good ? SHOAL_OK : SHOAL_EINTERNAL;
}

static enum shoal_err lookup_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return lookups_run(arg, false, placement, result_out);
}

static enum shoal_err multi_run(void *arg, const struct sh_bench_flags *flags,
                                enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    return lookups_run(arg, true, placement, result_out);
}

struct measurement {
    struct sh_bench *bench;
    struct sh_layout layout;
    const char *name;
    enum sh_placement placement;
    char extra[128];
    struct subject ours, base;
    const char *vs; /* NULL: none, or too large for this machine */
    struct sh_bench_medians medians[2];
};

static void bar_print(const struct measurement *m, const char *what, double figure, double cpu,
                      double limit, bool at_least)
{
    struct sh_bench_bar bar = {.case_name = m->name,
                               .placement = m->placement,
                               .extra = m->extra,
                               .what = what,
                               .figure = figure,
                               .figure_cpu = cpu,
                               .limit = limit,
                               .at_least = at_least};
    sh_bench_bar_print(m->bench, &bar);
}

static void memory_bars_print(const struct measurement *m)
{
    const struct subject *ours = &m->ours;
    const struct sh_layout *layout = &m->layout;
    if ((double)ours->count >= MILLION)
        bar_print(m, "bytes a range", ours->taken / (double)ours->count, 0, 16, false);
    if ((double)layout->chunks < BILLION || layout->percent != 1 || ours->taken <= 0)
        return;
    double limit = layout->length == 1 ? 50 : layout->length == 100 ? 1000 : 0;
    if (limit <= 0)
        return;
    double chunks = (double)layout->chunks;
    bar_print(m, "times smaller than a flat table (its bytes by arithmetic)",
              SH_TABLE_BASE_ENTRY_BYTES * chunks / ours->taken, 0, limit, true);
    bar_print(m, "times smaller than GLib's table (its least bytes by arithmetic)",
              GLIB_ENTRY_BYTES * chunks / ours->taken, 0, limit, true);
}

static void lookup_bars_print(const struct measurement *m)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    const struct sh_bench_medians *base = &m->medians[1];
    size_t count = sh_ranges_count(m->ours.ranges);
    if (m->vs && m->base.system == SYSTEM_TABLE && (double)count >= 9 * MILLION)
        bar_print(m, "times the flat table's time for as many entries",
                  base->ops_per_s / ours->ops_per_s, ours->cpu_ns_per_op / base->cpu_ns_per_op, 2,
                  false);
    if ((double)m->layout.chunks >= BILLION && m->layout.percent == 10)
        bar_print(m, "ns a lookup", 1e9 / ours->ops_per_s, ours->cpu_ns_per_op, 1000, false);
}

static enum shoal_err placements_measure(struct measurement *m, sh_bench_run run)
{
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(m->bench, placements);
    struct sh_bench_system systems[2] = {{"shoal", run, &m->ours}, {m->vs, run, &m->base}};
    for (unsigned i = 0; i < count; i++) {
        m->placement = placements[i];
        enum shoal_err err =
            sh_bench_measure_all(m->bench, m->name, m->placement, m->extra, systems, m->vs ? 2 : 1,
                                 m->vs != NULL, m->medians);
        if (err)
            return err;
        if (run == lookup_run)
            lookup_bars_print(m);
        else if (run != multi_run)
            memory_bars_print(m);
    }
    return SHOAL_OK;
}

/* Draws ranges' first IDs: a run's, or that of what follows it. */
static uint64_t *keys_draw(const struct sh_layout *layout, uint64_t count)
{
    uint64_t *keys = malloc(count * sizeof *keys);
    for (uint64_t i = 0; keys && i < count; i++) {
        uint64_t drawn = sh_mix64(~layout->seed + i * UINT64_C(0x9e3779b97f4a7c15));
        struct sh_range run = sh_layout_run(layout, (drawn >> 1) % layout->runs);
        bool is_after = drawn & 1 && run.last.v + 1 < SH_LAYOUT_FIRST + layout->chunks;
        keys[i] = is_after ? run.last.v + 1 : run.first.v;
    }
    return keys;
}

static enum shoal_err lookup_measure(struct measurement *m, sh_bench_run run)
{
    uint64_t count = 2 * m->layout.runs < KEYS_MOST ? 2 * m->layout.runs : KEYS_MOST;
    uint64_t *keys = keys_draw(&m->layout, count);
    if (!keys)
        return SHOAL_ENOMEM;
    struct subject *subjects[] = {&m->ours, &m->base};
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < (m->vs ? 2 : 1) && !err; i++) {
        subjects[i]->keys = keys;
        subjects[i]->key_count = count;
        err = subject_create(subjects[i], 2 * m->layout.runs + 1);
        if (!err)
            err = subject_fill(subjects[i], true);
    }
    if (!err)
        err = placements_measure(m, run);
    subject_empty(&m->ours);
    subject_empty(&m->base);
    free(keys);
    return err;
}

/* One case of one layout. A table that this machine has no room for is left out. */
static enum shoal_err case_measure(struct sh_bench *bench, const char *name,
                                   const struct sh_layout *layout)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct measurement m = {.bench = bench, .layout = *layout, .name = name, .vs = flags->vs};
    double seconds = flags->seconds > 0 ? flags->seconds : 1;
    m.ours = (struct subject){.system = SYSTEM_OURS, .layout = &m.layout, .seconds = seconds};
    m.base = m.ours;
    m.base.system = m.vs && strcmp(m.vs, "glib") == 0 ? SYSTEM_GLIB : SYSTEM_TABLE;
    snprintf(m.extra, sizeof m.extra, "count=%llu percent=%llu length=%llu",
             (unsigned long long)layout->chunks, (unsigned long long)layout->percent,
             (unsigned long long)layout->length);
    bool is_multi = strcmp(name, "multi") == 0;
    bool is_lookup = is_multi || strcmp(name, "lookup") == 0;
    /* GLib's is twice as large while it grows, up to 60 bytes an entry. */
    double each = m.base.system == SYSTEM_GLIB ? 60 : SH_TABLE_BASE_ENTRY_BYTES;
    double entries = is_lookup ? 2 * (double)layout->runs : (double)layout->chunks;
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    if (m.vs && each * entries > 0.75 * memory) {
        sh_bench_note(bench, "this machine has no memory for the baseline's table: left out");
        m.vs = NULL;
    }
    if (is_lookup)
        return lookup_measure(&m, is_multi ? multi_run : lookup_run);
    return placements_measure(&m, strcmp(name, "fill") == 0 ? fill_run : migrate_run);
}

static enum shoal_err layout_measure(struct sh_bench *bench, uint64_t chunks, uint64_t percent,
                                     uint64_t length)
{
    struct sh_layout layout = {.chunks = chunks,
                               .percent = percent,
                               .length = length,
                               .seed = sh_bench_flags_get(bench)->seed};
    layout.runs = (uint64_t)((unsigned __int128)chunks * percent / 100 / length);
    if (!layout.runs)
        layout.runs = 1;
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; sh_bench_ranges_cases[i] && !err; i++)
        if (sh_bench_case_wanted(bench, sh_bench_ranges_cases[i]))
            err = case_measure(bench, sh_bench_ranges_cases[i], &layout);
    return err;
}

enum shoal_err sh_bench_ranges(struct sh_bench *bench)
{
    static const uint64_t percents[] = {1, 5, 10};
    static const uint64_t lengths[] = {1, 100};
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    uint64_t chunks = flags->count ? flags->count : 1000000;
    if (chunks < 1000 || chunks > CHUNKS_MOST) {
        return sh_bench_refuse(bench, "it takes --count from 1000 to 2^36");
    }
    enum shoal_err err = SHOAL_OK;
    for (size_t p = 0; p < 3 && !err; p++) {
        if (flags->percent && p)
            break;
        for (size_t l = 0; l < 2 && !err; l++) {
            if (flags->length && l)
                break;
            err = layout_measure(bench, chunks, flags->percent ? flags->percent : percents[p],
                                 flags->length ? flags->length : lengths[l]);
        }
    }
    return err;
}
