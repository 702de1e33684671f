/* `shoal bench store`: the chunk memory alone, in one process.
 *
 * load, load-one, sizes
 *        creates --count chunks and fills them, --batch (1024) at a time, or one; in `sizes` they
 *        are as long as associations in Facebook's graph cache. A run is one load, in a process of
 *        its own. bytes_per_chunk is the growth of its resident set: everything counted.
 * create, create-one, recreate, recreate-one
 *        the same without contents; recreate measures the second time, in memory touched before.
 * churn  replaces every chunk three times by one of another size, in scattered order, and
 *        defragments once; then the resident set is looked at.
 * get, multiget, put, mixed
 *        --threads threads touch random chunks for --seconds; multiget takes --batch (32) at a
 *        time; a put includes making the content. In `get` each key depends on what the get before
 *        it read, so that gets do not overlap.
 * scaling-create, scaling-get, scaling-put
 *        two threads (or --threads), beside one; creation as in recreate.
 * churned-reads
 *        gets while one more thread creates and removes as fast as it can, beside the same in
 * peace. facebook-a to -f, ycsb-a to -c, mem-var DXMem's workloads (hhu-bsinfo/dxmem at b443a74,
 * package benchmark.workload). There an operation is a batch; here it is a chunk.
 *
 * A chunk's content is drawn from its key alone, so the digest, taken over a fixed sample of keys,
 * is the same for both systems and after any number of puts. --verify adds a version to each put
 * and checks everything that is read: a torn read fails the run.
 *
 * Prediction: a get is two dependent cache misses (entry, data), each with a miss of the TLB where
 * the store is large; the baseline's is the same (slot, object). A multiget overlaps them. */
#include <string.h>

#include "base/assert.h"
#include "bench/benches.h"
#include "bench/store_bench_int.h"

#define SIZE_MOST (UINT64_C(1) << 20)
#define LOAD_BATCH 1024
#define TEN_MILLION UINT64_C(10000000)

const char *const sh_bench_store_cases[] = {
    "load",           "load-one",    "sizes",       "create",        "create-one", "recreate",
    "recreate-one",   "churn",       "get",         "multiget",      "put",        "mixed",
    "scaling-create", "scaling-get", "scaling-put", "churned-reads", "facebook-a", "facebook-b",
    "facebook-c",     "facebook-d",  "facebook-e",  "facebook-f",    "ycsb-a",     "ycsb-b",
    "ycsb-c",         "mem-var",     NULL};
const char *const sh_bench_store_baselines[] = {"malloc", "mimalloc", NULL};

/* One case under way. */
struct measurement {
    struct sh_bench *bench;
    const char *name;
    const struct sh_store_plan *plan;
    bool loads; /* the batch of the row is that of the load */
    struct sh_bench_system systems[SH_BENCH_SYSTEMS_MAX];
    unsigned count;
    bool is_vs;
    struct sh_bench_medians medians[SH_BENCH_SYSTEMS_MAX];
    enum sh_placement placement; /* of the medians */
    char extra[160];
};

/* The cases' bars, and what else is measured beside a case to tell how far it is from one. */
enum bar {
    BAR_NONE,
    BAR_BATCHED,     /* bytes over the payload */
    BAR_ONE_BY_ONE,  /* the same, created one by one */
    BAR_SIZES,       /* the same, of drawn sizes */
    BAR_CHURN,       /* percent over the payload */
    BAR_FRESH,       /* times memcpy to fresh memory */
    BAR_TOUCHED,     /* millions a second, on memory touched before */
    BAR_TOUCHED_ONE, /* the same, one by one */
    BAR_MISSES,      /* times two dependent misses */
    BAR_MULTI,       /* ns a chunk, and times the gets of the table */
    BAR_PUT,         /* times a get */
    BAR_SCALING,     /* times one thread */
    BAR_CHURNED      /* of the reads in peace */
};

static void system_add(struct measurement *m, const char *name, sh_bench_run run, void *arg)
{
    SH_ASSERT(m->count < SH_BENCH_SYSTEMS_MAX);
    m->systems[m->count++] = (struct sh_bench_system){name, run, arg};
}

static double per(double amount, double by)
{
    return by > 0 ? amount / by : 0;
}

/* cpu: the figure by processor time; 0 where there is none. */
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

/* The store's own account must agree with the kernel's, where the pages of the program and of small
 * allocations do not count any more. */
static void status_bar_print(const struct measurement *m)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    double off = ours->status_per_chunk - ours->bytes_per_chunk;
    if (m->plan->count >= TEN_MILLION / 10 && ours->bytes_per_chunk > 0)
        bar_print(m, "percent between status and resident set",
                  100 * (off < 0 ? -off : off) / ours->bytes_per_chunk, 0, 2, false);
}

static void memory_bars_print(const struct measurement *m, enum bar bar)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    double payload = ours->bytes_per_chunk - ours->over_per_chunk;
    if (bar == BAR_CHURN)
        bar_print(m, "percent over the payload", 100 * per(ours->over_per_chunk, payload), 0, 10,
                  false);
    else if (bar == BAR_SIZES)
        bar_print(m, "bytes over the payload", ours->over_per_chunk, 0, 3, false);
    else
        bar_print(m, "bytes over the payload", ours->over_per_chunk, 0,
                  bar == BAR_BATCHED ? 2.5 : 3.5, false);
    status_bar_print(m);
}

static void multi_bars_print(const struct measurement *m)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    const struct sh_bench_medians *base = &m->medians[1];
    bar_print(m, "ns a chunk", per(1e9, ours->ops_per_s), ours->cpu_ns_per_op,
              m->plan->count > TEN_MILLION ? 80 : 45, false);
    if (m->is_vs)
        bar_print(m, "times the gets of the table", per(ours->ops_per_s, base->ops_per_s),
                  per(base->cpu_ns_per_op, ours->cpu_ns_per_op), 1.5, true);
}

/* Two threads' processor time for an operation, held against one thread's, is what they cost each
 * other, however many cores they got. What the machine itself makes of two threads that miss is the
 * limit of that. */
static void scaling_bar_print(const struct measurement *m)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    const struct sh_bench_medians *one = &m->medians[m->is_vs ? 2 : 1];
    if (one + 1 < m->medians + m->count)
        bar_print(m, "times one thread, the machine's two misses",
                  per(one[2].ops_per_s, one[1].ops_per_s),
                  per(m->plan->threads * one[1].cpu_ns_per_op, one[2].cpu_ns_per_op), 1.8, true);
    bar_print(m, "times one thread", per(ours->ops_per_s, one->ops_per_s),
              per(m->plan->threads * one->cpu_ns_per_op, ours->cpu_ns_per_op), 1.8, true);
}

static void bars_print(const struct measurement *m, enum bar bar)
{
    const struct sh_bench_medians *ours = &m->medians[0];
    const struct sh_bench_medians *limit = &m->medians[m->count - 1];
    double times = per(limit->ops_per_s, ours->ops_per_s);
    double times_cpu = per(ours->cpu_ns_per_op, limit->cpu_ns_per_op);
    double million_cpu = per(1e3, ours->cpu_ns_per_op);
    switch (bar) {
    case BAR_NONE:
        break;
    case BAR_BATCHED:
    case BAR_ONE_BY_ONE:
    case BAR_SIZES:
    case BAR_CHURN:
        memory_bars_print(m, bar);
        break;
    case BAR_FRESH:
        bar_print(m, "times memcpy to fresh memory", times, times_cpu, 1.3, false);
        break;
    case BAR_TOUCHED:
    case BAR_TOUCHED_ONE:
        bar_print(m, "million a second in touched memory", ours->ops_per_s / 1e6, million_cpu,
                  bar == BAR_TOUCHED ? 20 : 8, true);
        break;
    case BAR_MISSES:
        bar_print(m, "times two dependent misses", times, times_cpu, 1.2, false);
        break;
    case BAR_MULTI:
        multi_bars_print(m);
        break;
    case BAR_PUT:
        bar_print(m, "times a get", times, times_cpu, 1.3, false);
        break;
    case BAR_SCALING:
        scaling_bar_print(m);
        break;
    case BAR_CHURNED:
        bar_print(m, "of the reads in peace", per(ours->ops_per_s, limit->ops_per_s), 0, 0.7, true);
        break;
    }
}

static void extra_print(struct measurement *m)
{
    const struct sh_store_plan *plan = m->plan;
    size_t room = sizeof m->extra;
    bool fixed = strcmp(plan->sizes.name, "fixed") == 0;
    int length = fixed ? snprintf(m->extra, room, "size=%u", plan->sizes.most)
                       : snprintf(m->extra, room, "sizes=%s", plan->sizes.name);
    length += snprintf(m->extra + length, room - (size_t)length, " count=%llu batch=%u",
                       (unsigned long long)plan->count, m->loads ? plan->load_batch : plan->batch);
    if (m->loads && plan->threads > 1)
        length += snprintf(m->extra + length, room - (size_t)length, " threads=%u", plan->threads);
    if (!m->loads)
        length += snprintf(m->extra + length, room - (size_t)length, " threads=%u keys=%s reads=%u",
                           plan->threads, plan->zipf ? "zipfian" : "uniform", plan->reads);
    if (plan->small_pages)
        length += snprintf(m->extra + length, room - (size_t)length, " pages=small");
    if (plan->verify)
        snprintf(m->extra + length, room - (size_t)length, " verify=yes");
}

/* Measures a case in every placement, and holds it against its bar. */
static enum shoal_err case_measure(struct measurement *m, enum bar bar)
{
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(m->bench, placements);
    enum shoal_err err = SHOAL_OK;
    extra_print(m);
    for (unsigned i = 0; i < count && !err; i++) {
        m->placement = placements[i];
        err = sh_bench_measure_all(m->bench, m->name, m->placement, m->extra, m->systems, m->count,
                                   m->is_vs, m->medians);
        if (!err)
            bars_print(m, bar);
    }
    return err;
}

/* --- Cases that load. */

static const struct load_case {
    const char *name;
    sh_bench_run run;
    bool one_by_one;
    const char *limit_name; /* NULL: none */
    sh_bench_run limit_run;
    enum bar bar;
} load_cases[] = {
    {"load", sh_store_load_run, false, NULL, NULL, BAR_BATCHED},
    {"load-one", sh_store_load_run, true, NULL, NULL, BAR_ONE_BY_ONE},
    {"sizes", sh_store_load_run, false, NULL, NULL, BAR_SIZES},
    {"create", sh_store_create_run, false, "memcpy-fresh", sh_store_memcpy_fresh_run, BAR_FRESH},
    {"create-one", sh_store_create_run, true, "memcpy-fresh", sh_store_memcpy_fresh_run, BAR_NONE},
    {"recreate", sh_store_recreate_run, false, "memcpy-touched", sh_store_memcpy_touched_run,
     BAR_TOUCHED},
    {"recreate-one", sh_store_recreate_run, true, "memcpy-touched", sh_store_memcpy_touched_run,
     BAR_TOUCHED_ONE},
    {"churn", sh_store_churn_run, false, NULL, NULL, BAR_CHURN},
    {"scaling-create", sh_store_together_run, false, "one-thread", sh_store_together_run,
     BAR_SCALING},
};

static enum shoal_err load_case_run(struct sh_bench *bench, const struct sh_store_plan *base_plan,
                                    const struct sh_allocator *allocator,
                                    const struct load_case *what)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct sh_store_plan plan = *base_plan;
    plan.load_batch = what->one_by_one ? 1 : plan.load_batch;
    if (!flags->sizes && !flags->size && what->bar == BAR_SIZES)
        sh_sizes_init(&plan.sizes, "assocs", 0);
    if (!flags->sizes && !flags->size && what->bar == BAR_CHURN)
        sh_sizes_uniform(&plan.sizes, 16, 128);
    if (what->bar == BAR_CHURN)
        plan.load_batch = plan.batch;
    plan.threads = what->bar != BAR_SCALING ? 1 : plan.threads < 2 ? 2 : plan.threads;
    struct sh_store_plan limit_plan = plan;
    if (what->bar == BAR_SCALING)
        limit_plan.threads = 1;
    struct sh_subject ours = {.plan = &plan};
    struct sh_subject base = {.plan = &plan, .allocator = allocator};
    struct sh_subject limit = {.plan = &limit_plan};
    struct measurement m = {.bench = bench, .name = what->name, .plan = &plan, .loads = true};
    system_add(&m, "shoal", what->run, &ours);
    if (allocator)
        system_add(&m, flags->vs, what->run, &base);
    m.is_vs = allocator != NULL;
    if (what->limit_run)
        system_add(&m, what->limit_name, what->limit_run, &limit);
    return case_measure(&m, what->bar);
}

/* --- Cases that touch what is loaded. */

static const struct touch_case {
    const char *name;
    unsigned batch; /* 0: --batch */
    unsigned reads; /* percent; 0: none; MIXED: --reads */
    unsigned size;  /* 0: as flags say */
    enum bar bar;
} touch_cases[] = {
#define MIXED 101
    {"get", 1, 100, 0, BAR_MISSES},
    {"multiget", 0, 100, 0, BAR_MULTI},
    {"put", 1, 0, 0, BAR_PUT},
    {"mixed", 1, MIXED, 0, BAR_NONE},
    {"scaling-get", 1, 100, 0, BAR_SCALING},
    {"scaling-put", 1, 0, 0, BAR_SCALING},
    {"churned-reads", 1, 100, 0, BAR_CHURNED},
    {"facebook-a", 1, 50, 32, BAR_NONE},
    {"facebook-b", 1, 95, 32, BAR_NONE},
    {"facebook-c", 24, 50, 32, BAR_NONE},
    {"facebook-d", 24, 95, 32, BAR_NONE},
    {"facebook-e", 1, 50, 64, BAR_NONE},
    {"facebook-f", 1, 95, 64, BAR_NONE},
    {"ycsb-a", 10, 50, 100, BAR_NONE},
    {"ycsb-b", 10, 95, 100, BAR_NONE},
    {"ycsb-c", 10, 100, 100, BAR_NONE},
};
#define TOUCH_CASES (sizeof touch_cases / sizeof *touch_cases)

/* What is loaded, for the cases that touch it one after the other. */
struct loaded {
    struct sh_bench *bench;
    struct sh_store_plan plan;
    struct sh_subject ours;
    struct sh_subject base;
    bool is_loaded;
};

static enum shoal_err loaded_open(struct loaded *loaded)
{
    enum shoal_err err = SHOAL_OK;
    if (loaded->is_loaded)
        return err;
    loaded->is_loaded = true;
    loaded->ours.plan = &loaded->plan;
    loaded->base.plan = &loaded->plan;
    err = sh_subject_load(&loaded->ours, true);
    if (!err && loaded->base.allocator)
        err = sh_subject_load(&loaded->base, true);
    return err;
}

static void loaded_close(struct loaded *loaded)
{
    sh_subject_close(&loaded->ours);
    sh_subject_close(&loaded->base);
    loaded->is_loaded = false;
}

/* The plan of the system beside ours that the bar is about. */
static struct sh_store_plan beside_of(const struct sh_store_plan *plan, enum bar bar)
{
    struct sh_store_plan beside = *plan;
    beside.churned = false;
    if (bar == BAR_SCALING)
        beside.threads = 1;
    if (bar == BAR_PUT)
        beside.reads = 100;
    return beside;
}

static const char *beside_name(enum bar bar)
{
    return bar == BAR_PUT ? "get" : bar == BAR_SCALING ? "one-thread" : "in-peace";
}

static enum shoal_err touch_case_run(struct loaded *loaded, const struct touch_case *what)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(loaded->bench);
    enum shoal_err err = loaded_open(loaded);
    if (err)
        return err;
    struct sh_store_plan plan = loaded->plan;
    plan.batch = what->batch ? what->batch : plan.batch;
    plan.reads = what->reads == MIXED ? plan.reads : what->reads;
    plan.threads = what->bar == BAR_SCALING && plan.threads < 2 ? 2 : plan.threads;
    plan.chained = what->bar == BAR_MISSES;
    plan.churned = what->bar == BAR_CHURNED;
    struct sh_store_plan beside_plan = beside_of(&plan, what->bar);
    struct sh_toucher ours = {.subject = &loaded->ours, .plan = &plan};
    struct sh_toucher base = {.subject = &loaded->base, .plan = &plan};
    struct sh_toucher beside = {.subject = &loaded->ours, .plan = &beside_plan};
    struct sh_misses misses = {.plan = NULL};
    struct measurement m = {.bench = loaded->bench, .name = what->name, .plan = &plan};
    system_add(&m, "shoal", sh_store_touch_run, &ours);
    if (loaded->base.allocator)
        system_add(&m, flags->vs, sh_store_touch_run, &base);
    m.is_vs = loaded->base.allocator != NULL;
    if (what->bar == BAR_MISSES || what->bar == BAR_SCALING)
        err = sh_misses_open(&plan, &misses);
    struct sh_misses misses_one = misses;
    misses_one.plan = &beside_plan;
    if (what->bar == BAR_MISSES)
        system_add(&m, "two-misses", sh_store_misses_run, &misses);
    if (what->bar == BAR_PUT || what->bar == BAR_SCALING || what->bar == BAR_CHURNED)
        system_add(&m, beside_name(what->bar), sh_store_touch_run, &beside);
    if (what->bar == BAR_SCALING) {
        system_add(&m, "one-misses", sh_store_misses_run, &misses_one);
        system_add(&m, "all-misses", sh_store_misses_run, &misses);
    }
    if (!err)
        err = case_measure(&m, what->bar);
    sh_misses_close(&misses);
    if (!err && plan.churned) {
        char note[96];
        snprintf(note, sizeof note, "the other thread created and removed %.2f million a second",
                 ours.churned_per_s / 1e6);
        sh_bench_note(loaded->bench, note);
    }
    return err;
}

/* All wanted cases; those of a size of their own are loaded for each. */
static enum shoal_err touch_cases_run(struct sh_bench *bench, const struct sh_store_plan *plan,
                                      const struct sh_allocator *allocator)
{
    struct loaded loaded = {.bench = bench, .plan = *plan, .base = {.allocator = allocator}};
    unsigned size = 0;
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < TOUCH_CASES && !err; i++) {
        if (!sh_bench_case_wanted(bench, touch_cases[i].name))
            continue;
        if (touch_cases[i].size != size) {
            loaded_close(&loaded);
            size = touch_cases[i].size;
            sh_sizes_init(&loaded.plan.sizes, "fixed", size);
        }
        err = touch_case_run(&loaded, &touch_cases[i]);
    }
    loaded_close(&loaded);
    return err;
}

static enum shoal_err memvar_run(struct sh_bench *bench, const struct sh_store_plan *base_plan,
                                 const struct sh_allocator *allocator)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct sh_store_plan plan = *base_plan;
    if (!flags->sizes && !flags->size)
        sh_sizes_uniform(&plan.sizes, 16, 2048);
    if (!flags->batch)
        plan.batch = 1;
    plan.reads = SH_MEMVAR_GETS;
    struct sh_subject ours = {.plan = &plan};
    struct sh_subject base = {.plan = &plan, .allocator = allocator};
    struct sh_memvar *our_memvar = NULL;
    struct sh_memvar *base_memvar = NULL;
    struct measurement m = {.bench = bench, .name = "mem-var", .plan = &plan};
    enum shoal_err err = sh_memvar_open(&ours, &our_memvar);
    system_add(&m, "shoal", sh_store_memvar_run, our_memvar);
    if (!err && allocator) {
        err = sh_memvar_open(&base, &base_memvar);
        system_add(&m, flags->vs, sh_store_memvar_run, base_memvar);
        m.is_vs = true;
    }
    if (!err)
        err = case_measure(&m, BAR_NONE);
    sh_memvar_close(our_memvar);
    sh_memvar_close(base_memvar);
    sh_subject_close(&ours);
    sh_subject_close(&base);
    return err;
}

static enum shoal_err plan_make(struct sh_bench *bench, struct sh_store_plan *plan_out)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    uint64_t size = flags->size ? flags->size : 64;
    struct sh_store_plan plan = {
        .count = flags->count ? flags->count : 1000000,
        .threads = flags->threads ? flags->threads : 1,
        .batch = flags->batch ? flags->batch : 32,
        .load_batch = flags->batch ? flags->batch : LOAD_BATCH,
        .reads = flags->reads ? flags->reads : 95,
        .seconds = flags->seconds > 0 ? flags->seconds : 1,
        .seed = flags->seed,
        .verify = flags->verify,
        .small_pages = flags->small_pages,
    };
    if (size > SIZE_MOST || plan.count < 2 || plan.count > UINT64_C(1) << 36 ||
        plan.threads > SH_STORE_THREADS_MAX || plan.batch > SH_STORE_BATCH_MAX) {
        sh_bench_note(bench,
                      "store takes --size to 1 MiB, --count from 2 to 2^36, --threads to 128 "
                      "and --batch to 4096");
        return SHOAL_ERANGE;
    }
    sh_sizes_init(&plan.sizes, flags->sizes, (uint32_t)size);
    *plan_out = plan;
    return SHOAL_OK;
}

enum shoal_err sh_bench_store(struct sh_bench *bench)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct sh_store_plan plan;
    const struct sh_allocator *allocator = NULL;
    struct sh_zipf zipf;
    enum shoal_err err = plan_make(bench, &plan);
    if (!err && flags->vs)
        err = sh_allocator_find(flags->vs, &allocator);
    for (size_t i = 0; i < sizeof load_cases / sizeof *load_cases && !err; i++) {
        if (sh_bench_case_wanted(bench, load_cases[i].name))
            err = load_case_run(bench, &plan, allocator, &load_cases[i]);
    }
    if (!err && flags->keys && strcmp(flags->keys, "zipfian") == 0) {
        sh_zipf_init(&zipf, plan.count);
        plan.zipf = &zipf;
    }
    if (!err)
        err = touch_cases_run(bench, &plan, allocator);
    if (!err && sh_bench_case_wanted(bench, "mem-var"))
        err = memvar_run(bench, &plan, allocator);
    return err;
}
