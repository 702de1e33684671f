/* Names that go through a journal: nobody sees a change before it is synced, whatever the disk does, and what
 * was told is found again after any crash. */
#include "base/alloc_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "client/names_durable_int.h"

#define MS UINT64_C(1000000)
#define SEGMENT_BYTES (16u << 10)
#define BYTES_KEPT (64u << 10)
#define STEPS_MAX 100000u

/* --- A disk whose writes can be held up, lost or refused ---------------------------------------- */

#define GATE_OPS 64u

struct gate {
    struct sh_disk base;
    struct sh_disk *inner;
    bool is_held;
    enum shoal_err fails; /* of each write and sync; OK: none does */
    struct sh_disk_op *held[GATE_OPS], *failed[GATE_OPS];
    unsigned held_count, failed_count;
};

static struct gate *gate_of(struct sh_disk *disk)
{
    return (struct gate *)disk;
}

/* The disk in memory never lacks memory. */
static enum shoal_err inner_submit(struct gate *gate, struct sh_disk_op *op)
{
    alloc_plan.is_held = true;
    enum shoal_err err = sh_disk_submit(gate->inner, op);
    alloc_plan.is_held = false;
    return err;
}

static enum shoal_err gate_open(struct sh_disk *disk, const char *name, bool create, int *file_out)
{
    alloc_plan.is_held = true;
    enum shoal_err err = sh_disk_open(gate_of(disk)->inner, name, create, file_out);
    alloc_plan.is_held = false;
    return err;
}

static void gate_close(struct sh_disk *disk, int file)
{
    gate_of(disk)->inner->ops->close(gate_of(disk)->inner, file);
}

static enum shoal_err gate_size(struct sh_disk *disk, int file, uint64_t *bytes_out)
{
    return gate_of(disk)->inner->ops->size(gate_of(disk)->inner, file, bytes_out);
}

static enum shoal_err gate_remove(struct sh_disk *disk, const char *name)
{
    return gate_of(disk)->inner->ops->remove(gate_of(disk)->inner, name);
}

static enum shoal_err gate_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    struct gate *gate = gate_of(disk);
    if (op->kind == SH_DISK_READ)
        return inner_submit(gate, op);
    if (gate->fails) {
        assert_true(gate->failed_count < GATE_OPS);
        gate->failed[gate->failed_count++] = op;
        return SHOAL_OK;
    }
    if (!gate->is_held)
        return inner_submit(gate, op);
    assert_true(gate->held_count < GATE_OPS);
    gate->held[gate->held_count++] = op;
    return SHOAL_OK;
}

static unsigned gate_poll(struct sh_disk *disk, bool wait)
{
    struct gate *gate = gate_of(disk);
    unsigned count = gate->failed_count;
    gate->failed_count = 0;
    for (unsigned i = 0; i < count; i++) {
        gate->failed[i]->err = gate->fails ? gate->fails : SHOAL_EIO;
        gate->failed[i]->done_bytes = 0;
        gate->failed[i]->done(gate->failed[i]);
    }
    return count + sh_disk_poll(gate->inner, wait);
}

static const struct sh_disk_ops gate_ops = {.open = gate_open,
                                            .close = gate_close,
                                            .size = gate_size,
                                            .remove = gate_remove,
                                            .submit = gate_submit,
                                            .poll = gate_poll};

static void gate_release(struct gate *gate)
{
    gate->is_held = false;
    for (unsigned i = 0; i < gate->held_count; i++)
        assert_int_equal(inner_submit(gate, gate->held[i]), SHOAL_OK);
    gate->held_count = 0;
}

/* --- The rig ------------------------------------------------------------------------------------ */

struct rig {
    struct gate gate;
    struct sh_local_state state;
    struct sh_names *names;
    struct sh_names_config config;
    uint64_t now_ns, random;
    unsigned wakes;
};

static uint64_t rig_now(void *arg)
{
    return ((struct rig *)arg)->now_ns;
}

static void rig_fill(void *arg, void *into, size_t size)
{
    uint8_t *bytes = into;
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)test_draw(&((struct rig *)arg)->random);
}

static void rig_wake(void *arg)
{
    ((struct rig *)arg)->wakes++;
}

static void state_begin(struct rig *rig)
{
    assert_int_equal(sh_metadata_create(&rig->state.metadata), SHOAL_OK);
    assert_int_equal(pthread_cond_init(&rig->state.changed, NULL), 0);
    sh_lock_init(&rig->state.lock, SH_LOCK_CLIENT);
}

static void state_end(struct rig *rig)
{
    sh_metadata_destroy(rig->state.metadata);
    sh_lock_destroy(&rig->state.lock);
    pthread_cond_destroy(&rig->state.changed);
}

static enum shoal_err try_open(struct rig *rig)
{
    state_begin(rig);
    enum shoal_err err = sh_names_open(&rig->config, &rig->names);
    if (err)
        state_end(rig);
    return err;
}

static void rig_open(struct rig *rig)
{
    assert_int_equal(try_open(rig), SHOAL_OK);
}

static void rig_close(struct rig *rig)
{
    sh_names_close(rig->names);
    state_end(rig);
}

/* Nobody hears any more of the changes under way, nor does the disk see the writes that are held. */
static void rig_crash(struct rig *rig)
{
    for (unsigned i = 0; i < rig->names->pending_count; i++)
        sh_names_pending_at(rig->names, i)->change = NULL;
    rig->names->first = NULL;
    rig_close(rig);
    rig->gate.is_held = false;
    rig->gate.held_count = rig->gate.failed_count = 0;
    rig->gate.fails = SHOAL_OK;
}

static void rig_begin(struct rig *rig)
{
    *rig = (struct rig){.gate = {.base = {&gate_ops}}, .now_ns = 1000 * MS, .random = 11};
    assert_int_equal(sh_memory_disk_create(&rig->gate.inner), SHOAL_OK);
    rig->config = (struct sh_names_config){
        .env = {.clock = {.now_ns = rig_now, .wall_ns = rig_now, .arg = rig},
                .random = {.fill = rig_fill, .arg = rig},
                .disk = &rig->gate.base},
        .state = &rig->state,
        .segment_bytes = SEGMENT_BYTES,
        .bytes_kept = BYTES_KEPT,
        .wake = rig_wake,
        .arg = rig};
    rig_open(rig);
}

static void rig_end(struct rig *rig)
{
    rig_close(rig);
    rig->gate.inner->ops->destroy(rig->gate.inner);
}

/* Steps until there is nothing to do now, and no more is due before that time. */
static void run_until(struct rig *rig, uint64_t until_ns)
{
    for (unsigned i = 0; i < STEPS_MAX; i++) {
        if (sh_names_step(rig->names))
            continue;
        uint64_t due_ns = sh_names_due_ns(rig->names);
        if (due_ns > until_ns) {
            rig->now_ns = until_ns > rig->now_ns ? until_ns : rig->now_ns;
            return;
        }
        rig->now_ns = due_ns > rig->now_ns ? due_ns : rig->now_ns;
    }
    fail_msg("the step never rests");
}

static void run(struct rig *rig)
{
    run_until(rig, rig->now_ns);
}

/* A change, and what came of it. */
struct told {
    struct sh_name_change change;
    struct sh_metadata_update update;
    char name[16];
    unsigned done; /* the how manieth it was; 0: it is not done */
    unsigned *count;
};

static void on_done(struct sh_name_change *change)
{
    struct told *told = change->arg;
    assert_int_equal(told->done, 0);
    told->done = ++*told->count;
}

static void begin(struct rig *rig, struct told *told, unsigned *count, uint8_t kind,
                  const char *name, uint64_t cid, enum sh_name_condition when, uint64_t expected)
{
    *told = (struct told){
        .count = count,
        .update = {.kind = kind, .condition = (uint8_t)when, .cid = {cid}, .expected = {expected}}};
    assert_true(strlen(name) < sizeof told->name);
    strcpy(told->name, name);
    told->update.name = sh_bytes_text(told->name);
    told->change = (struct sh_name_change){.update = &told->update, .done = on_done, .arg = told};
    sh_names_begin(rig->names, &told->change);
}

static uint64_t lookup(struct rig *rig, const char *name)
{
    shoal_cid cid = {0};
    enum shoal_err err = sh_metadata_lookup(rig->state.metadata, sh_bytes_text(name), &cid);
    assert_int_equal(err, cid.v ? SHOAL_OK : SHOAL_ENONAME);
    return cid.v;
}

/* --- Tests -------------------------------------------------------------------------------------- */

static void test_synced_first(void **state)
{
    (void)state;
    struct rig rig;
    struct told one;
    unsigned count = 0;
    rig_begin(&rig);
    run(&rig);
    rig.gate.is_held = true;
    begin(&rig, &one, &count, SH_METADATA_NAME, "one", 7, SH_NAME_ANY, 0);
    assert_true(rig.wakes > 0);
    run_until(&rig, rig.now_ns + 5000 * MS);
    assert_true(rig.gate.held_count > 0);
    assert_int_equal(count, 0);
    assert_int_equal(lookup(&rig, "one"), 0);
    gate_release(&rig.gate);
    run(&rig);
    assert_int_equal(one.done, 1);
    assert_int_equal(one.change.result.err, SHOAL_OK);
    assert_int_equal(lookup(&rig, "one"), 7);
    rig_close(&rig);
    rig_open(&rig);
    assert_int_equal(lookup(&rig, "one"), 7);
    rig_end(&rig);
}

/* Conditions go by what the changes before have made, also if these are under way. */
static void test_conditions(void **state)
{
    (void)state;
    static const struct {
        uint8_t kind;
        uint64_t cid;
        enum sh_name_condition when;
        uint64_t expected;
        enum shoal_err err;
        uint64_t was;
    } rows[] = {
        {SH_METADATA_UNNAME, 0, SH_NAME_ANY, 0, SHOAL_ENONAME, 0},
        {SH_METADATA_NAME, 5, SH_NAME_CURRENT, 4, SHOAL_ENONAME, 0},
        {SH_METADATA_NAME, 5, SH_NAME_ABSENT, 0, SHOAL_OK, 0},
        {SH_METADATA_NAME, 6, SH_NAME_ABSENT, 0, SHOAL_EEXIST, 5},
        {SH_METADATA_NAME, 6, SH_NAME_CURRENT, 4, SHOAL_EDIFFERS, 5},
        {SH_METADATA_NAME, 6, SH_NAME_CURRENT, 5, SHOAL_OK, 5},
        {SH_METADATA_UNNAME, 0, SH_NAME_CURRENT, 5, SHOAL_EDIFFERS, 6},
        {SH_METADATA_UNNAME, 0, SH_NAME_CURRENT, 6, SHOAL_OK, 6},
        {SH_METADATA_NAME, 8, SH_NAME_ABSENT, 0, SHOAL_OK, 0},
        {SH_METADATA_NAME, 9, SH_NAME_ANY, 0, SHOAL_OK, 8},
    };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    struct told tolds[ROWS];
    struct rig rig;
    unsigned count = 0;
    rig_begin(&rig);
    for (unsigned i = 0; i < ROWS; i++)
        begin(&rig, &tolds[i], &count, rows[i].kind, "same", rows[i].cid, rows[i].when,
              rows[i].expected);
    run(&rig);
    for (unsigned i = 0; i < ROWS; i++) {
        assert_int_equal(tolds[i].done, i + 1);
        assert_int_equal(tolds[i].change.result.err, rows[i].err);
        assert_int_equal(tolds[i].change.result.cid.v, rows[i].was);
    }
    rig_close(&rig);
    rig_open(&rig);
    assert_int_equal(lookup(&rig, "same"), 9);
    rig_end(&rig);
}

/* More than may be under way: the others wait, in their order. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 3 * SH_NAMES_PENDING_MAX };
    static struct told tolds[COUNT];
    struct told all;
    struct rig rig;
    unsigned count = 0;
    char name[16];
    rig_begin(&rig);
    run(&rig);
    rig.gate.is_held = true;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "n%u", i);
        begin(&rig, &tolds[i], &count, SH_METADATA_NAME, name, 1 + i, SH_NAME_ABSENT, 0);
    }
    all = (struct told){.count = &count};
    all.change = (struct sh_name_change){.done = on_done, .arg = &all};
    sh_names_begin(rig.names, &all.change);
    run_until(&rig, rig.now_ns + 1000 * MS);
    assert_int_equal(count, 0);
    assert_int_equal(rig.names->pending_count, SH_NAMES_PENDING_MAX);
    gate_release(&rig.gate);
    run(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(tolds[i].done, i + 1);
        assert_int_equal(tolds[i].change.result.err, SHOAL_OK);
    }
    /* It changes nothing, and is done after all before it. */
    assert_int_equal(all.done, COUNT + 1);
    rig_close(&rig);
    rig_open(&rig);
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "n%u", i);
        assert_int_equal(lookup(&rig, name), 1 + i);
    }
    rig_end(&rig);
}

/* A disk that takes nothing for a while: changes wait, then end with its error. What is in the journal is
 * carried out once it is synced, the rest never. */
static void test_trouble(void **state)
{
    (void)state;
    struct rig rig;
    struct told before, waits, late, again;
    unsigned count = 0;
    rig_begin(&rig);
    begin(&rig, &before, &count, SH_METADATA_NAME, "name", 1, SH_NAME_ANY, 0);
    run(&rig);
    assert_int_equal(before.done, 1);
    uint64_t begun_ns = rig.now_ns;
    rig.gate.fails = SHOAL_ENOSPC;
    begin(&rig, &waits, &count, SH_METADATA_NAME, "name", 2, SH_NAME_CURRENT, 1);
    run_until(&rig, begun_ns + SH_NAMES_PATIENCE_NS / 2);
    assert_int_equal(waits.done, 0);
    run_until(&rig, begun_ns + SH_NAMES_PATIENCE_NS * 5 / 4);
    assert_int_equal(waits.done, 2);
    assert_int_equal(waits.change.result.err, SHOAL_ENOSPC);
    assert_true(waits.change.is_unclear);
    begin(&rig, &late, &count, SH_METADATA_NAME, "late", 3, SH_NAME_ANY, 0);
    run(&rig);
    assert_int_equal(late.done, 3);
    assert_int_equal(late.change.result.err, SHOAL_ENOSPC);
    assert_false(late.change.is_unclear);
    assert_int_equal(lookup(&rig, "name"), 1);
    /* The disk works again. */
    rig.gate.fails = SHOAL_OK;
    run_until(&rig, rig.now_ns + 2000 * MS);
    assert_int_equal(lookup(&rig, "name"), 2);
    assert_int_equal(lookup(&rig, "late"), 0);
    begin(&rig, &again, &count, SH_METADATA_NAME, "late", 4, SH_NAME_ABSENT, 0);
    run(&rig);
    assert_int_equal(again.done, 4);
    assert_int_equal(again.change.result.err, SHOAL_OK);
    rig_close(&rig);
    rig_open(&rig);
    assert_int_equal(lookup(&rig, "name"), 2);
    assert_int_equal(lookup(&rig, "late"), 4);
    rig_end(&rig);
}

/* A write that fails once is made good in another file, and nobody hears of it. */
static void test_trouble_for_a_moment(void **state)
{
    (void)state;
    struct rig rig;
    struct told one;
    unsigned count = 0;
    rig_begin(&rig);
    run(&rig);
    rig.gate.fails = SHOAL_EIO;
    begin(&rig, &one, &count, SH_METADATA_NAME, "one", 1, SH_NAME_ANY, 0);
    while (!sh_journal_trouble(rig.names->journal))
        assert_true(sh_names_step(rig.names) > 0);
    rig.gate.fails = SHOAL_OK;
    run_until(&rig, rig.now_ns + SH_NAMES_PATIENCE_NS * 3 / 4);
    assert_int_equal(one.done, 1);
    assert_int_equal(one.change.result.err, SHOAL_OK);
    assert_int_equal(lookup(&rig, "one"), 1);
    rig_end(&rig);
}

/* All that wait hear of the trouble, also those for which there was no room. */
static void test_trouble_of_many(void **state)
{
    (void)state;
    enum { COUNT = 2 * SH_NAMES_PENDING_MAX };
    static struct told tolds[COUNT];
    struct rig rig;
    unsigned count = 0, unclear = 0;
    char name[16];
    rig_begin(&rig);
    run(&rig);
    rig.gate.fails = SHOAL_EIO;
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "n%u", i);
        begin(&rig, &tolds[i], &count, SH_METADATA_NAME, name, 1 + i, SH_NAME_ABSENT, 0);
    }
    run_until(&rig, rig.now_ns + SH_NAMES_PATIENCE_NS * 5 / 4);
    assert_int_equal(count, COUNT);
    rig.gate.fails = SHOAL_OK;
    run_until(&rig, rig.now_ns + 2000 * MS);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(tolds[i].change.result.err, SHOAL_EIO);
        assert_int_equal(lookup(&rig, tolds[i].name), tolds[i].change.is_unclear ? 1 + i : 0);
        unclear += tolds[i].change.is_unclear;
    }
    assert_int_equal(unclear, SH_NAMES_PENDING_MAX);
    rig_end(&rig);
}

/* --- Crashes ------------------------------------------------------------------------------------- */

#define NAMES 60u
#define WINDOW 300u

struct model {
    uint64_t cids[NAMES]; /* 0: nobody's */
};

struct history {
    struct told tolds[WINDOW]; /* begun since the store was opened */
    unsigned begun, acked;
    struct model opened, now; /* what was found; with all that were begun */
};

static void name_of(char name[16], unsigned i)
{
    snprintf(name, 16, "name/%u", i);
}

static struct sh_metadata_result model_apply(struct model *model,
                                             const struct sh_metadata_update *update)
{
    unsigned i = (unsigned)strtoul((const char *)update->name.at + 5, NULL, 10);
    uint64_t is = model->cids[i];
    struct sh_metadata_result result = {.cid = {is}};
    if (update->condition == SH_NAME_ABSENT && is)
        result.err = SHOAL_EEXIST;
    else if (!is && (update->condition == SH_NAME_CURRENT || update->kind == SH_METADATA_UNNAME))
        result.err = SHOAL_ENONAME;
    else if (update->condition == SH_NAME_CURRENT && is != update->expected.v)
        result.err = SHOAL_EDIFFERS;
    else
        model->cids[i] = update->kind == SH_METADATA_NAME ? update->cid.v : 0;
    return result;
}

static void begin_any(struct rig *rig, struct history *history, uint64_t *seed)
{
    char name[16];
    unsigned i = (unsigned)(test_draw(seed) % NAMES);
    uint8_t kind = test_draw(seed) % 4 ? SH_METADATA_NAME : SH_METADATA_UNNAME;
    static const enum sh_name_condition whens[] = {SH_NAME_ANY, SH_NAME_CURRENT, SH_NAME_ABSENT};
    enum sh_name_condition when = whens[test_draw(seed) % (kind == SH_METADATA_NAME ? 3 : 2)];
    uint64_t cid = kind == SH_METADATA_NAME ? 1 + test_draw(seed) % 1000 : 0;
    uint64_t expected = test_draw(seed) % 5 ? history->now.cids[i] : 1001;
    if (history->begun == WINDOW)
        return;
    name_of(name, i);
    begin(rig, &history->tolds[history->begun++], &history->acked, kind, name, cid, when, expected);
    (void)model_apply(&history->now, &history->tolds[history->begun - 1].update);
}

/* What was told is what the model says, in the order of the changes. */
static void history_check(struct history *history)
{
    struct model model = history->opened;
    for (unsigned i = 0; i < history->acked; i++) {
        const struct told *told = &history->tolds[i];
        struct sh_metadata_result expected = model_apply(&model, &told->update);
        assert_int_equal(told->done, i + 1);
        assert_int_equal(told->change.result.err, expected.err);
        assert_int_equal(told->change.result.cid.v, expected.cid.v);
    }
}

static bool is_found(struct rig *rig, const struct model *model)
{
    char name[16];
    for (unsigned i = 0; i < NAMES; i++) {
        name_of(name, i);
        if (lookup(rig, name) != model->cids[i])
            return false;
    }
    return true;
}

/* What is found is the state after all changes that were told, and maybe some behind them. */
static void found_check(struct rig *rig, struct history *history)
{
    struct model model = history->opened;
    unsigned i = 0;
    for (; i < history->acked; i++)
        (void)model_apply(&model, &history->tolds[i].update);
    while (!is_found(rig, &model)) {
        if (i == history->begun)
            fail_msg("%u of %u changes were told, and others are found", history->acked,
                     history->begun);
        (void)model_apply(&model, &history->tolds[i++].update);
    }
    history->opened = history->now = model;
    history->begun = history->acked = 0;
}

static void test_crashes(void **state)
{
    (void)state;
    static struct history history;
    uint64_t seed = test_seed(4242), snapshots = 0;
    struct rig rig;
    memset(&history, 0, sizeof history);
    rig_begin(&rig);
    for (unsigned round = 0; round < 400; round++) {
        unsigned lasts = (unsigned)(test_draw(&seed) % 100);
        for (unsigned i = 0; i < lasts; i++) {
            unsigned more = (unsigned)(test_draw(&seed) % 8);
            while (more--)
                begin_any(&rig, &history, &seed);
            if (test_draw(&seed) % 8 == 0)
                gate_release(&rig.gate);
            else if (test_draw(&seed) % 8 == 0)
                rig.gate.is_held = true;
            (void)sh_names_step(rig.names);
            rig.now_ns += MS;
        }
        history_check(&history);
        snapshots += sh_names_counts(rig.names).snapshots;
        rig_crash(&rig);
        rig_open(&rig);
        found_check(&rig, &history);
    }
    assert_true(snapshots > 50);
    rig_end(&rig);
}

/* --- Journals that are not a store's ------------------------------------------------------------- */

static void journal_make(struct rig *rig, const char *label, uint64_t index, uint8_t kind)
{
    const struct sh_journal_stream streams[SH_SHARDS] = {{.arg = NULL}};
    const struct sh_journal_config config = {.env = rig->config.env,
                                             .label = sh_bytes_text(label),
                                             .segment_bytes = SEGMENT_BYTES,
                                             .streams = streams,
                                             .streams_count = SH_SHARDS};
    const struct sh_metadata_update update = {
        .kind = kind, .cid = {5}, .name = sh_bytes_text("x"), .value = sh_bytes_text("value")};
    struct sh_journal *journal;
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    sh_journal_remove(&rig->config.env);
    assert_int_equal(sh_journal_open(&config, &journal), SHOAL_OK);
    sh_lsn lsn = sh_journal_append(journal, sh_metadata_shard(&update), index, 1, 0,
                                   sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    for (unsigned i = 0; i < STEPS_MAX && sh_journal_synced(journal) < lsn; i++)
        (void)sh_journal_step(journal, rig->now_ns);
    sh_journal_close(journal);
}

static void test_not_ours(void **state)
{
    (void)state;
    struct rig rig;
    rig_begin(&rig);
    assert_int_equal(sh_names_check(&rig.config.env), SHOAL_OK);
    rig_close(&rig);
    assert_int_equal(sh_names_check(&rig.config.env), SHOAL_OK);
    journal_make(&rig, "superpeer 1", 1, SH_METADATA_NAME);
    assert_int_equal(sh_names_check(&rig.config.env), SHOAL_ECLUSTER);
    assert_int_equal(try_open(&rig), SHOAL_ECLUSTER);
    journal_make(&rig, SH_NAMES_LABEL, 1, SH_METADATA_SCRATCH_PUT);
    assert_int_equal(try_open(&rig), SHOAL_ECORRUPT);
    journal_make(&rig, SH_NAMES_LABEL, 2, SH_METADATA_NAME);
    assert_int_equal(try_open(&rig), SHOAL_ECORRUPT);
    journal_make(&rig, SH_NAMES_LABEL, 1, SH_METADATA_NAME);
    rig_open(&rig);
    assert_int_equal(lookup(&rig, "x"), 5);
    rig_end(&rig);
}

/* --- No memory ----------------------------------------------------------------------------------- */

static void test_no_memory(void **state)
{
    (void)state;
    struct rig rig;
    struct told one, filler;
    unsigned count = 0, refused = 0;
    char name[16];
    rig_begin(&rig);
    /* Without memory a change is refused, and nothing has changed. */
    for (unsigned i = 0; i < 2000 && !refused; i++) {
        snprintf(name, sizeof name, "f%u", i);
        alloc_fail_at(1, 1000);
        begin(&rig, &filler, &count, SH_METADATA_NAME, name, 1 + i, SH_NAME_ANY, 0);
        while (!filler.done)
            run_until(&rig, rig.now_ns + 20 * MS);
        alloc_fail_end();
        refused += filler.change.result.err == SHOAL_ENOMEM;
        assert_int_equal(lookup(&rig, name), filler.change.result.err == SHOAL_ENOMEM ? 0 : 1 + i);
    }
    assert_int_equal(refused, 1);
    begin(&rig, &one, &count, SH_METADATA_NAME, "one", 1, SH_NAME_ABSENT, 0);
    run(&rig);
    assert_int_equal(one.change.result.err, SHOAL_OK);
    rig_close(&rig);
    /* An opening without memory leaves all as it was. */
    enum shoal_err err = SHOAL_ENOMEM;
    for (size_t due = 1; err; due++) {
        assert_true(due < 10000);
        state_begin(&rig);
        alloc_fail_at(due, 1);
        err = sh_names_open(&rig.config, &rig.names);
        size_t failed = alloc_fail_end();
        if (err) {
            assert_int_equal(err, SHOAL_ENOMEM);
            assert_int_equal(failed, 1);
            state_end(&rig);
        }
    }
    assert_int_equal(lookup(&rig, "one"), 1);
    rig_end(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_synced_first),
        cmocka_unit_test(test_conditions),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_trouble),
        cmocka_unit_test(test_trouble_for_a_moment),
        cmocka_unit_test(test_trouble_of_many),
        cmocka_unit_test(test_crashes),
        cmocka_unit_test(test_not_ours),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
