/* A client of a campaign (campaign.py): makes calls one after the other, of all kinds, on chunks of its own and on those that all workers
 * share, and writes down each when it begins and when it ends. history.py says whether that is what a store may do.
 *
 *     campaign_worker ADDRESSES SECRET_FILE NUMBER SEED TABLE HISTORY TIMEOUT_S
 *
 *     B TIME NUMBER OP LEVEL CLASS USE ERA CID KEY VERSION SIZE OLD      a call begins
 *     E TIME NUMBER ERROR CID KEY VERSION SIZE LENGTH                    it has ended
 *
 * Times are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share. OP: C create, P put, I put-if, R resize, X remove, A add,
 * G get. VERSION is of a change the number of that change of that chunk, from 0 on; of a put-if of a word the new value, where OLD is the
 * one that is expected; of a get that has ended what was read, and of an addition what was there before; LENGTH: of a get,
 * how many bytes of it are before the zeros at its end. A get of bytes that are of no value
 * ends with TORN.
 *
 * Of a chunk a change of which has failed nobody knows what it is; its worker leaves it alone from then on. Ends in the phase PHASE_END; in PHASE_CHECK it
 * reads every chunk of the table once, and ends. */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "content.h"
#include "shoal/shoal.h"
#include "table.h"

#define REGISTERS 48u     /* of a worker, at a time */
#define SHARED_EACH 2u    /* counters and words of a class that a worker makes in an era */
#define PAUSE_NS 4000000u /* between two calls, at most */
#define WORKER_SHIFT 32   /* of the worker's number, in a key */

struct reg {
    uint64_t key;
    shoal_cid cid;
    enum class class;
    uint32_t era, size, changes;
    uint32_t version, put_size,
        length; /* of its bytes: the change that put them, how many, how many of them are left */
};

/* A call that is to be begun, or is under way. */
struct act {
    char op;
    enum shoal_level level;
    enum class class;
    enum use use;
    uint32_t era, size;
    uint64_t cid, key, version, old;
};

static shoal *store;
static struct table *table;
static FILE *history;
static uint64_t number, serial, calls, luck;
static struct reg regs[REGISTERS];
static unsigned reg_count;
static uint8_t bytes[CONTENT_BYTES_MAX], room[CONTENT_BYTES_MAX];

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static uint64_t below(uint64_t bound)
{
    luck += UINT64_C(0x9e3779b97f4a7c15);
    return content_mix(luck) % bound;
}

/* --- The history -------------------------------------------------------------------------------- */

static void act_begins(const struct act *act)
{
    fprintf(history,
            "B %" PRIu64 " %" PRIu64 " %c %c %c %c %u %" PRIx64 " %" PRIx64 " %" PRIu64
            " %u %" PRIu64 "\n",
            now_ns(), ++calls, act->op, act->level == SHOAL_DURABLE ? 'd' : 'r', "fsm"[act->class],
            "rcw"[act->use], act -> era, act -> cid, act -> key, act -> version, act -> size,
            act -> old);
    fflush(history);
}

static void act_ended(const char *error, uint64_t cid, uint64_t key, uint64_t version,
                      uint32_t size, uint32_t length)
{
    fprintf(history, "E %" PRIu64 " %" PRIu64 " %s %" PRIx64 " %" PRIx64 " %" PRIu64 " %u %u\n",
            now_ns(), calls, error, cid, key, version, size, length);
    fflush(history);
}

/* What the checker can't do anything with is explained to people. */
static void explain(const struct act *act, enum shoal_err err)
{
    fprintf(stderr, "call %" PRIu64 " (%c of %" PRIx64 "): %s: %s\n", calls, act->op, act->cid,
            shoal_err_name(err), shoal_error_detail());
}

static enum shoal_err changed(const struct act *act, enum shoal_err err, uint64_t before)
{
    act_ended(shoal_err_name(err), act->cid, act->key, before, act->size, 0);
    if (err && !(err == SHOAL_EDIFFERS && act->use == USE_WORD))
        explain(act, err);
    return err;
}

/* --- Calls -------------------------------------------------------------------------------------- */

static enum shoal_err level_use(enum class class, enum shoal_level *level_out)
{
    *level_out = class == CLASS_SOFT || (class == CLASS_MIXED && below(2) == 0) ? SHOAL_REPLICATED
                                                                                : SHOAL_DURABLE;
    return shoal_level_use(*level_out);
}

static struct act act_make(char op, enum use use, enum class class)
{
    struct act act = {.op = op, .use = use, .class = class, .era = atomic_load(&table->era)};
    bool is_put = op == 'P' || op == 'I';
    enum shoal_err err =
        level_use(class == CLASS_MIXED && !is_put ? CLASS_FIRM : class, &act.level);
    assert(!err);
    (void)err;
    return act;
}

static enum shoal_err create(enum use use, enum class class, uint32_t size, uint64_t *key_out,
                             shoal_cid *cid_out, uint32_t *era_out)
{
    struct act act = act_make('C', use, class);
    *key_out = act.key = number << WORKER_SHIFT | ++serial;
    *era_out = act.era;
    act.size = size;
    act_begins(&act);
    enum shoal_err err = shoal_create(store, SHOAL_NID_NONE, size, cid_out);
    act.cid = err ? 0 : cid_out->v;
    return changed(&act, err, 0);
}

static void publish(enum use use, enum class class, uint64_t key, shoal_cid cid, uint32_t era)
{
    uint32_t at = atomic_fetch_add(&table->count, 1);
    if (at >= ENTRIES_MAX) {
        atomic_store(&table->count, ENTRIES_MAX);
        return;
    }
    struct entry *entry = &table->entries[at];
    entry->key = key;
    entry->era = era;
    entry->use = (uint8_t)use;
    entry->class = (uint8_t) class;
    atomic_store(&entry->cid, cid.v);
}

/* A new register, or word or counter for all. */
static void make(enum use use, enum class class, uint32_t size)
{
    struct reg reg = {.class = class, .size = size};
    if (create(use, class, size, &reg.key, &reg.cid, &reg.era))
        return;
    publish(use, class, reg.key, reg.cid, reg.era);
    if (use == USE_REGISTER)
        regs[reg_count++] = reg;
}

static uint32_t size_drawn(void)
{
    static const uint32_t most[] = {256, 256, 4096, 4096, 40000, 400000};
    return CONTENT_BYTES_MIN + (uint32_t)below(most[below(sizeof most / sizeof most[0])]);
}

static void forget(struct reg *reg)
{
    *reg = regs[--reg_count];
}

/* The register's bytes, as its worker knows them, into `into`. */
static void remember(const struct reg *reg, uint8_t *into)
{
    memset(into, 0, reg->size);
    if (reg->version)
        content_make(into, reg->key, reg->version, reg->put_size, reg->length);
}

/* Changes one of its own registers. */
static void change(struct reg *reg)
{
    static const char ops[] = "PPPPPPPPPIIIRRX";
    char op = ops[below(sizeof ops - 1)];
    if (reg->class == CLASS_MIXED && (op == 'I' || op == 'R'))
        op = 'P';
    struct act act = act_make(op, USE_REGISTER, reg->class);
    act.cid = reg->cid.v;
    act.key = reg->key;
    act.version = reg->changes + 1;
    act.size = op == 'R' ? size_drawn() : reg->size;
    if (op == 'I')
        remember(reg, room);
    if (op == 'P' || op == 'I')
        content_make(bytes, reg->key, act.version, act.size, act.size);
    enum shoal_err err;
    act_begins(&act);
    if (op == 'P')
        err = shoal_put(store, reg->cid, bytes, act.size);
    else if (op == 'I')
        err = shoal_put_if(store, reg->cid, room, reg->size, bytes, act.size);
    else if (op == 'R')
        err = shoal_resize(store, reg->cid, act.size);
    else
        err = shoal_remove(store, reg->cid);
    changed(&act, err, 0);
    if (err || op == 'X') {
        forget(reg);
        return;
    }
    reg->changes++;
    if (op == 'R') {
        reg->length = reg->length < act.size ? reg->length : act.size;
        reg->size = act.size;
    } else {
        reg->version = reg->changes;
        reg->put_size = reg->length = act.size;
    }
}

/* Reads a chunk of any kind; its bytes are in `bytes` then. */
static enum shoal_err get(const struct entry *entry, uint64_t *version_out)
{
    struct act act = act_make('G', entry->use, entry->class);
    act.cid = atomic_load(&entry->cid);
    act.key = entry->key;
    uint32_t size = 0, length = 0;
    uint64_t key = 0, version = 0;
    act_begins(&act);
    enum shoal_err err = shoal_get(store, (shoal_cid){act.cid}, bytes, sizeof bytes, &size);
    const char *name = shoal_err_name(err);
    if (!err && size == sizeof version)
        memcpy(&version, bytes, sizeof version);
    else if (!err && !content_read(bytes, size, room, &key, &version, &length)) {
        name = "TORN";
        err = SHOAL_ECORRUPT;
        fprintf(stderr, "call %" PRIu64 ": torn, %u bytes:", calls, size);
        for (uint32_t i = 0; i < size && i < CONTENT_BYTES_MIN; i++)
            fprintf(stderr, " %02x", bytes[i]);
        fprintf(stderr, "\n");
    } else if (err && err != SHOAL_ENOCHUNK)
        explain(&act, err);
    act_ended(name, act.cid, key, version, size, length);
    *version_out = version;
    return err;
}

static void add(const struct entry *entry)
{
    struct act act = act_make('A', USE_COUNTER, entry->class);
    act.cid = atomic_load(&entry->cid);
    act.key = entry->key;
    uint64_t before = 0;
    act_begins(&act);
    enum shoal_err err = shoal_add(store, (shoal_cid){act.cid}, 0, 8, 1, &before);
    changed(&act, err, before);
}

/* Reads a word, and replaces it. */
static void replace(const struct entry *entry)
{
    static uint64_t values;
    struct act act = act_make('I', USE_WORD, entry->class);
    if (get(entry, &act.old))
        return;
    uint8_t new[CONTENT_BYTES_MIN];
    act.cid = atomic_load(&entry->cid);
    act.key = entry->key;
    act.version = number << WORKER_SHIFT | ++values;
    act.size = sizeof new;
    content_make(new, entry->key, act.version, sizeof new, sizeof new);
    act_begins(&act);
    enum shoal_err err =
        shoal_put_if(store, (shoal_cid){act.cid}, bytes, sizeof new, new, sizeof new);
    changed(&act, err, 0);
}

/* --- The workload ------------------------------------------------------------------------------- */

/* An entry of the table that may be used: a soft one only in its era. NULL where the draw finds none. */
static const struct entry *entry_drawn(bool is_shared)
{
    uint32_t count = atomic_load(&table->count);
    for (unsigned tries = 0; count && tries < 64; tries++) {
        /* Newer ones more often: the older a chunk is, the more likely it has been removed. */
        uint64_t back = 1 + (below(2) ? below(count) : below(count < 64 ? count : 64));
        const struct entry *entry = &table->entries[is_shared ? below(count) : count - back];
        bool is_useful = atomic_load(&entry->cid) != 0 &&
                         (entry->class != CLASS_SOFT || entry->era == atomic_load(&table->era));
        if (is_useful && (entry->use != USE_REGISTER || !is_shared))
            return entry;
    }
    return NULL;
}

/* Soft registers of an era that is over may be anything. */
static void registers_age(void)
{
    uint32_t era = atomic_load(&table->era);
    for (unsigned i = reg_count; i-- > 0;) {
        if (regs[i].class == CLASS_SOFT && regs[i].era != era)
            forget(&regs[i]);
    }
}

static void shared_make(enum class class)
{
    for (unsigned i = 0; i < SHARED_EACH; i++) {
        make(USE_COUNTER, class, sizeof(uint64_t));
        make(USE_WORD, class, CONTENT_BYTES_MIN);
    }
}

static void call_drawn(void)
{
    uint64_t draw = below(100);
    uint64_t version;
    if (draw < 35 && reg_count) {
        change(&regs[below(reg_count)]);
    } else if (draw < 45 && reg_count < REGISTERS) {
        make(USE_REGISTER, (enum class)below(CLASSES), size_drawn());
    } else {
        const struct entry *entry = entry_drawn(draw < 75);
        if (!entry)
            return;
        if (draw >= 75)
            (void)!get(entry, &version);
        else if (entry->use == USE_COUNTER)
            add(entry);
        else
            replace(entry);
    }
}

static void work(void)
{
    uint32_t era = UINT32_MAX;
    shared_make(CLASS_FIRM);
    while (atomic_load(&table->phase) == PHASE_WRITE) {
        if (era != atomic_load(&table->era)) {
            era = atomic_load(&table->era);
            shared_make(CLASS_SOFT);
        }
        registers_age();
        call_drawn();
        const struct timespec pause = {0, (long)below(PAUSE_NS)};
        nanosleep(&pause, NULL);
    }
}

static void check(void)
{
    uint32_t count = atomic_load(&table->count);
    uint64_t version;
    for (uint32_t i = 0; i < count && i < ENTRIES_MAX; i++)
        (void)!get(&table->entries[i], &version);
}

static struct table *table_map(const char *path)
{
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    void *found = mmap(NULL, sizeof(struct table), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return found == MAP_FAILED ? NULL : found;
}

int main(int argc, char **argv)
{
    if (argc != 8) {
        fprintf(
            stderr,
            "usage: campaign_worker ADDRESSES SECRET_FILE NUMBER SEED TABLE HISTORY TIMEOUT_S\n");
        return 2;
    }
    number = strtoull(argv[3], NULL, 10);
    luck = content_mix(strtoull(argv[4], NULL, 10) + number);
    table = table_map(argv[5]);
    history = fopen(argv[6], "a");
    if (!table || !history) {
        perror("campaign_worker");
        return 1;
    }
    struct shoal_options options = {.addresses = argv[1],
                                    .secret_file = argv[2][0] ? argv[2] : NULL,
                                    .timeout_ns =
                                        strtoull(argv[7], NULL, 10) * UINT64_C(1000000000),
                                    .spin_ns = 1};
    enum shoal_err err = shoal_open(&options, &store);
    if (err) {
        fprintf(stderr, "%s: %s: %s\n", argv[1], shoal_err_name(err), shoal_error_detail());
        return 1;
    }
    if (atomic_load(&table->phase) == PHASE_CHECK)
        check();
    else
        work();
    shoal_close(store);
    return fclose(history) == 0 ? 0 : 1;
}
