/* Dumps and loads in steps: of every size, on a disk that takes its time, canceled or failing at
 * every step. */
#include "store/dump_test.h"

#define OWN (UINT64_C(7) << 48)

/* A disk that completes an operation some polls later, refuses some at first, and fails those from
 * a given one on. */
struct slow {
    struct sh_disk base;
    unsigned polls; /* that an operation takes */
    unsigned left;  /* operations that do not fail */
    unsigned refusals;
    struct sh_disk_op *waiting;
    unsigned wait_polls;
};

static struct slow *slow_of(struct sh_disk *on)
{
    return (struct slow *)on;
}

static enum shoal_err slow_open(struct sh_disk *on, const char *name, bool create, int *file_out)
{
    (void)on;
    return sh_disk_open(disk, name, create, file_out);
}

static enum shoal_err slow_claim(struct sh_disk *on, const char *name, int *file_out)
{
    (void)on;
    return disk->ops->claim(disk, name, file_out);
}

static void slow_close(struct sh_disk *on, int file)
{
    (void)on;
    disk->ops->close(disk, file);
}

static enum shoal_err slow_size(struct sh_disk *on, int file, uint64_t *bytes_out)
{
    (void)on;
    return disk->ops->size(disk, file, bytes_out);
}

static enum shoal_err slow_rename(struct sh_disk *on, const char *from, const char *to)
{
    (void)on;
    return disk->ops->rename(disk, from, to);
}

static enum shoal_err slow_remove(struct sh_disk *on, const char *name)
{
    (void)on;
    return disk->ops->remove(disk, name);
}

static enum shoal_err slow_submit(struct sh_disk *on, struct sh_disk_op *op)
{
    struct slow *slow = slow_of(on);
    if (slow->refusals++ % 3 == 2)
        return SHOAL_EAGAIN;
    assert_null(slow->waiting);
    slow->waiting = op;
    slow->wait_polls = slow->polls;
    return SHOAL_OK;
}

/* Does what waits, on the real disk. */
static void slow_do(struct slow *slow)
{
    struct sh_disk_op *op = slow->waiting;
    struct sh_disk_op real = *op;
    slow->waiting = NULL;
    if (slow->left == 0) {
        op->err = op->kind == SH_DISK_WRITE ? SHOAL_ENOSPC : SHOAL_EIO;
        op->done_bytes = 0;
        op->done(op);
        return;
    }
    slow->left--;
    op->err = sh_disk_do(disk, &real);
    op->done_bytes = real.done_bytes;
    op->done(op);
}

static unsigned slow_poll(struct sh_disk *on, bool wait)
{
    struct slow *slow = slow_of(on);
    if (!slow->waiting)
        return 0;
    if (!wait && slow->wait_polls > 0) {
        slow->wait_polls--;
        return 0;
    }
    slow_do(slow);
    return 1;
}

static struct slow slow_make(unsigned polls, unsigned left)
{
    static const struct sh_disk_ops ops = {.open = slow_open,
                                           .claim = slow_claim,
                                           .close = slow_close,
                                           .size = slow_size,
                                           .rename = slow_rename,
                                           .remove = slow_remove,
                                           .submit = slow_submit,
                                           .poll = slow_poll};
    return (struct slow){.base = {&ops}, .polls = polls, .left = left};
}

/* Runs a dump or load in steps of a size, canceled before step cancel_at. */
static struct sh_dump_state dump_steps(struct sh_store *store, struct sh_disk *on, const char *name,
                                       unsigned budget, unsigned cancel_at)
{
    struct sh_dump_config config = {.store = store, .disk = on, .name = name};
    struct sh_dump *dump;
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    struct sh_dump_state state = sh_dump_state_get(dump);
    uint64_t told = 0;
    for (unsigned step = 0; !state.is_over; step++) {
        if (step == cancel_at)
            sh_dump_cancel(dump);
        (void)sh_dump_step(dump, budget);
        state = sh_dump_state_get(dump);
        assert_in_range(state.done_bytes, told, state.all_bytes);
        told = state.done_bytes;
    }
    assert_int_equal(sh_dump_step(dump, budget), 0);
    sh_dump_end(dump);
    return state;
}

static struct sh_dump_state load_steps(struct sh_store *store, struct sh_disk *on, const char *name,
                                       unsigned budget, unsigned cancel_at)
{
    struct sh_dump_config config = {.store = store, .disk = on, .name = name};
    struct sh_load *load;
    assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
    struct sh_dump_state state = sh_load_state_get(load);
    uint64_t told = 0;
    for (unsigned step = 0; !state.is_over; step++) {
        if (step == cancel_at)
            sh_load_cancel(load);
        (void)sh_load_step(load, budget);
        state = sh_load_state_get(load);
        assert_in_range(state.done_bytes, told, state.all_bytes);
        told = state.done_bytes;
    }
    assert_int_equal(sh_load_step(load, budget), 0);
    sh_load_end(load);
    return state;
}

static bool there_is(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

static uint8_t *file_bytes(const char *name, size_t *size_out)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rbe");
    assert_non_null(file);
    uint8_t *bytes = malloc(4 * MIB);
    assert_non_null(bytes);
    *size_out = fread(bytes, 1, 4 * MIB, file);
    fclose(file);
    return bytes;
}

/* Own and foreign chunks, packed, long, and in pieces. */
static struct sh_store *store_mixed(void)
{
    struct sh_store *store = store_make(16 * MIB);
    for (uint64_t i = 1; i <= 60; i++)
        chunk_add(store, OWN + i * 3 + i % 3, (uint32_t)(i * 13 % 400));
    for (uint64_t i = 0; i < 20; i++)
        chunk_add(store, (UINT64_C(9) << 48) + i * 7, (uint32_t)(i * 11));
    chunk_add(store, OWN + 1000, 300000);
    return store;
}

static void test_every_step_size(void **state)
{
    (void)state;
    static const unsigned budgets[] = {1, 7, 64, 65, 100, 1000, 20000, 1u << 20};
    struct sh_store *store = store_mixed();
    struct sh_dump_sums sums;
    size_t size, other_size;
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    uint8_t *bytes = file_bytes("a", &size);
    for (size_t i = 0; i < sizeof budgets / sizeof budgets[0]; i++) {
        for (unsigned polls = 0; polls < 3; polls++) {
            struct slow slow = slow_make(polls, UINT32_MAX);
            struct sh_dump_state done = dump_steps(store, &slow.base, "b", budgets[i], UINT32_MAX);
            assert_int_equal(done.err, SHOAL_OK);
            assert_memory_equal(&done.sums, &sums, sizeof sums);
            uint8_t *other_bytes = file_bytes("b", &other_size);
            assert_int_equal(other_size, size);
            assert_memory_equal(other_bytes, bytes, size);
            free(other_bytes);
            struct sh_store *other = store_make(16 * MIB);
            done = load_steps(other, &slow.base, "b", budgets[i], UINT32_MAX);
            assert_int_equal(done.err, SHOAL_OK);
            assert_memory_equal(&done.sums, &sums, sizeof sums);
            assert_int_equal(done.done_bytes, 2 * size);
            same(store, other);
            sh_store_destroy(other);
        }
    }
    free(bytes);
    sh_store_destroy(store);
}

/* What becomes of a long chunk while a dump copies it. */
enum fate { FATE_REMOVED, FATE_SHORTER, FATE_LONGER, FATE_CANCELED, FATE_ENDED, FATES };

/* The copy that is of no use any more is given up in pieces, as it was made; the dump has the chunk as it
 * is in the end. */
static void long_chunk_changes(enum fate fate, unsigned copied)
{
    enum { PIECES = 16, SIZE = PIECES * SH_STORE_PIECE_BYTES };
    static const uint32_t sizes[FATES] = {
        [FATE_REMOVED] = 0, [FATE_SHORTER] = SIZE / 2 + 5, [FATE_LONGER] = SIZE + 9};
    struct sh_store *store = store_make(64 * MIB), *other = store_make(64 * MIB);
    shoal_cid cid = {OWN + 10};
    for (uint64_t i = 1; i <= 20; i++)
        chunk_add(store, OWN + i, i == 10 ? SIZE : 3);
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a"};
    struct sh_dump *dump;
    unsigned done = 0, pieces = 0;
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    for (unsigned i = 0; i < copied; i += done == SH_STORE_STEP_BYTES)
        done = sh_dump_step(dump, 1);
    if (fate == FATE_CANCELED)
        sh_dump_cancel(dump);
    else
        assert_int_equal(sh_store_remove(store, cid), SHOAL_OK);
    if (sizes[fate])
        chunk_add(store, cid.v, sizes[fate]);
    while (!sh_dump_state_get(dump).is_over && (fate != FATE_ENDED || pieces < PIECES / 2)) {
        done = sh_dump_step(dump, 1);
        assert_in_range(done, 0, 2 * SH_STORE_PIECE_BYTES);
        pieces += done >= SH_STORE_STEP_BYTES;
    }
    enum shoal_err err = sh_dump_state_get(dump).err;
    sh_dump_end(dump);
    if (fate < FATE_CANCELED) {
        struct sh_dump_sums sums;
        assert_int_equal(err, SHOAL_OK);
        /* To give it up, and to copy it anew. */
        assert_true(pieces >= PIECES + sizes[fate] / SH_STORE_PIECE_BYTES);
        assert_int_equal(sh_store_load(other, disk, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
        same(store, other);
    } else {
        assert_false(there_is("a.tmp"));
    }
    sh_store_destroy(other);
    sh_store_destroy(store);
}

static void test_long_chunk_changes(void **state)
{
    (void)state;
    for (unsigned fate = 0; fate < FATES; fate++) {
        long_chunk_changes((enum fate)fate, 1);
        long_chunk_changes((enum fate)fate, 9);
    }
}

/* A step never does much more than it was told, whatever the store holds. */
static void test_steps_are_bounded(void **state)
{
    (void)state;
    struct sh_store *store = store_make(64 * MIB);
    shoal_cid *cids = malloc(200000 * sizeof *cids);
    assert_non_null(cids);
    /* Many empty chunks, then nothing for a long way, then one. */
    assert_int_equal(sh_store_new_many(store, 0, 200000, cids), SHOAL_OK);
    for (unsigned i = 100000; i < 199999; i++)
        assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    free(cids);
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a"};
    struct sh_dump *dump;
    struct sh_load *load;
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    unsigned steps = 0;
    for (; !sh_dump_state_get(dump).is_over; steps++)
        assert_true(sh_dump_step(dump, 4096) <= 4096 + 2 * SH_SECTION_BYTES_WRITTEN / 4);
    assert_true(steps > 100001 * SH_DUMP_CHUNK_COST / 4096);
    sh_dump_end(dump);
    struct sh_store *other = store_make(64 * MIB);
    config.store = other;
    assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
    for (steps = 0; !sh_load_state_get(load).is_over; steps++)
        assert_true(sh_load_step(load, 4096) <= 4096 + 2 * SH_SECTION_BYTES_WRITTEN / 4);
    assert_true(steps > 2 * 100001 * SH_DUMP_CHUNK_COST / 4096);
    assert_int_equal(sh_load_state_get(load).err, SHOAL_OK);
    sh_load_end(load);
    same(store, other);
    sh_store_destroy(other);
    sh_store_destroy(store);
}

static void test_canceled(void **state)
{
    (void)state;
    struct sh_store *store = store_mixed();
    struct sh_store *few = store_make(4 * MIB);
    chunk_add(few, OWN + 5, 5);
    size_t size, other_size;
    struct sh_dump_sums sums;
    assert_int_equal(sh_store_dump(few, disk, "b", NULL, NULL, &sums), SHOAL_OK);
    uint8_t *bytes = file_bytes("b", &size);
    struct sh_dump_state done = {.err = SHOAL_ECANCELED};
    unsigned step = 0;
    for (; done.err; step++) {
        struct slow slow = slow_make(1, UINT32_MAX);
        done = dump_steps(store, &slow.base, "b", 1000, step);
        assert_true(done.err == SHOAL_OK || done.err == SHOAL_ECANCELED);
        assert_false(there_is("b.tmp"));
        if (!done.err)
            break;
        uint8_t *other_bytes = file_bytes("b", &other_size);
        assert_int_equal(other_size, size);
        assert_memory_equal(other_bytes, bytes, size);
        free(other_bytes);
    }
    assert_true(step > 20);
    free(bytes);
    /* Ended before it is over. */
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a"};
    struct sh_dump *dump;
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    (void)sh_dump_step(dump, 1000);
    sh_dump_end(dump);
    assert_false(there_is("a.tmp"));
    done.err = SHOAL_ECANCELED;
    for (step = 0; done.err; step++) {
        struct slow slow = slow_make(1, UINT32_MAX);
        struct sh_store *other = store_make(16 * MIB);
        chunk_add(other, OWN + 5000, 17);
        done = load_steps(other, &slow.base, "b", 1000, step);
        assert_true(done.err == SHOAL_OK || done.err == SHOAL_ECANCELED);
        if (done.err) {
            assert_int_equal(done.sums.chunks, 0);
            assert_int_equal(status_of(other).chunks, 1);
            assert_int_equal(status_of(other).payload_bytes, 17);
        }
        sh_store_destroy(other);
    }
    assert_true(step > 30);
    sh_store_destroy(few);
    sh_store_destroy(store);
}

static void test_failing_at_every_operation(void **state)
{
    (void)state;
    struct sh_store *store = store_mixed();
    struct sh_dump_sums sums;
    struct sh_dump_state done = {.err = SHOAL_EIO};
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    for (unsigned left = 0; done.err; left++) {
        struct slow slow = slow_make(0, left);
        done = dump_steps(store, &slow.base, "b", 1000, UINT32_MAX);
        assert_true(done.err == SHOAL_OK || done.err == SHOAL_ENOSPC || done.err == SHOAL_EIO);
        assert_false(there_is("b.tmp"));
        assert_true(left < 20);
    }
    done.err = SHOAL_EIO;
    for (unsigned left = 0; done.err; left++) {
        struct slow slow = slow_make(0, left);
        struct sh_store *other = store_make(16 * MIB);
        done = load_steps(other, &slow.base, "b", 1000, UINT32_MAX);
        /* Where the disk fails for good nothing can be undone, and the sums say so. */
        assert_int_equal(done.sums.chunks, status_of(other).chunks);
        assert_int_equal(done.sums.payload_bytes, status_of(other).payload_bytes);
        assert_true(left < 20);
        sh_store_destroy(other);
    }
    sh_store_destroy(store);
}

/* Somebody creates a chunk under one of the file's IDs after the check; another is pinned. */
static void test_undone(void **state)
{
    (void)state;
    struct sh_store *store = store_mixed();
    struct sh_dump_sums sums;
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    for (unsigned with_pin = 0; with_pin < 2; with_pin++) {
        struct sh_store *other = store_make(16 * MIB);
        struct sh_dump_config config = {.store = other, .disk = disk, .name = "a"};
        struct sh_load *load;
        uint8_t *at;
        uint32_t size;
        shoal_cid early = {OWN + 4}, late = {OWN + 1000};
        assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
        while (sh_load_state_get(load).phase == SH_LOAD_CHECKING)
            (void)sh_load_step(load, 100);
        chunk_add(other, late.v, 3);
        while (sh_store_size(other, early, &size))
            (void)sh_load_step(load, 100);
        if (with_pin)
            assert_int_equal(sh_store_pin(other, early, &at, &size), SHOAL_OK);
        while (!sh_load_state_get(load).is_over)
            (void)sh_load_step(load, 100);
        struct sh_dump_state done = sh_load_state_get(load);
        assert_int_equal(done.err, SHOAL_EEXIST);
        assert_int_equal(done.fault.cid.v, late.v);
        assert_int_equal(done.sums.chunks, with_pin);
        assert_int_equal(done.sums.payload_bytes, with_pin ? size : 0);
        assert_int_equal(status_of(other).chunks, 1 + with_pin);
        sh_load_end(load);
        sh_store_destroy(other);
    }
    sh_store_destroy(store);
}

/* A store without a node ID, whose own chunks stand in the file under one. */
static void test_own(void **state)
{
    (void)state;
    struct sh_store_config local = {.bytes_max = 16 * MIB, .chunk_bytes_max = 1u << 20};
    struct sh_store *store, *other, *mixed = store_mixed();
    struct sh_dump_sums sums;
    assert_int_equal(sh_store_create(&local, &store), SHOAL_OK);
    assert_int_equal(sh_store_create(&local, &other), SHOAL_OK);
    for (uint64_t i = 1; i < 40; i++)
        chunk_add(store, i * 3, (uint32_t)i);
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a", .own = {7}};
    struct sh_dump *dump;
    struct sh_load *load;
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    while (!sh_dump_state_get(dump).is_over)
        (void)sh_dump_step(dump, 100);
    sh_dump_end(dump);
    config.store = other;
    for (uint16_t own = 8; own >= 7; own--) {
        config.own.v = own;
        assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
        while (!sh_load_state_get(load).is_over)
            (void)sh_load_step(load, 100);
        struct sh_dump_state done = sh_load_state_get(load);
        sh_load_end(load);
        assert_int_equal(done.err, own == 8 ? SHOAL_EINVAL : SHOAL_OK);
        assert_int_equal(status_of(other).chunks, own == 8 ? 0 : 39);
        if (own == 8)
            assert_int_equal(done.fault.cid.v, OWN + 3);
    }
    same(store, other);
    /* Renamed, all chunks of another creator become own ones; but of one only. */
    sh_store_destroy(other);
    assert_int_equal(sh_store_create(&local, &other), SHOAL_OK);
    config = (struct sh_dump_config){
        .store = other, .disk = disk, .name = "a", .own = {8}, .rename = true};
    assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
    while (!sh_load_state_get(load).is_over)
        (void)sh_load_step(load, 100);
    assert_int_equal(sh_load_state_get(load).err, SHOAL_OK);
    sh_load_end(load);
    same(store, other);
    /* Another creator's chunk at the end of a file is found before anything is created. */
    assert_int_equal(sh_store_dump(mixed, disk, "b", NULL, NULL, &sums), SHOAL_OK);
    struct sh_store *third = store_make(16 * MIB);
    config = (struct sh_dump_config){.store = third, .disk = disk, .name = "b", .own = {7}};
    for (unsigned rename = 0; rename < 2; rename++) {
        config.rename = rename;
        assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
        while (!sh_load_state_get(load).is_over) {
            (void)sh_load_step(load, 100);
            assert_int_equal(status_of(third).chunks, 0);
        }
        assert_int_equal(sh_load_state_get(load).err, SHOAL_EINVAL);
        sh_load_end(load);
    }
    sh_store_destroy(third);
    sh_store_destroy(mixed);
    sh_store_destroy(other);
    sh_store_destroy(store);
}

static void test_names(void **state)
{
    (void)state;
    struct sh_store *store = store_make(4 * MIB);
    char longest[SH_DUMP_NAME_BYTES_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    const char *const bad[] = {"", ".", "..", "a/b", "../a", "/a", "a.tmp", longest};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sh_dump_config config = {.store = store, .disk = disk, .name = bad[i]};
        struct sh_dump *dump;
        struct sh_load *load;
        assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_EINVAL);
        if (strcmp(bad[i], "a.tmp") != 0)
            assert_int_equal(sh_load_begin(&config, &load), SHOAL_EINVAL);
    }
    sh_store_destroy(store);
}

/* Two nodes with one folder, or two programs: the second writer of a file is refused, and neither
 * takes the first one's bytes nor removes them; one of another file is not. */
static void test_second_writer(void **state)
{
    (void)state;
    struct sh_store *store = store_make(32 * MIB), *other = store_make(32 * MIB);
    struct sh_store *loaded = store_make(32 * MIB);
    struct sh_disk *second;
    struct sh_dump *dump, *late;
    struct sh_dump_sums sums;
    unsigned refusals = 0;
    assert_int_equal(sh_real_disk_create(folder, false, &second), SHOAL_OK);
    for (uint64_t i = 1; i <= 5; i++)
        chunk_add(store, (UINT64_C(7) << 48) + i, 1u << 20);
    chunk_add(other, (UINT64_C(7) << 48) + 1, 9);
    struct sh_dump_config config = {.store = store, .disk = disk, .name = "a"};
    struct sh_dump_config rival = {.store = other, .disk = second, .name = "a"};
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    for (struct sh_dump_state at = sh_dump_state_get(dump); !at.is_over;
         at = sh_dump_state_get(dump)) {
        enum shoal_err err = sh_dump_begin(&rival, &late);
        if (err == SHOAL_OK) { /* the first has its name, and the folder is being synced */
            assert_int_equal(sh_store_load(loaded, second, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
            sh_store_destroy(loaded);
            loaded = store_make(32 * MIB);
            sh_dump_end(late);
        } else {
            assert_int_equal(err, SHOAL_EBUSY);
            refusals++;
        }
        (void)sh_dump_step(dump, 100000);
    }
    assert_true(refusals > 5);
    assert_int_equal(sh_dump_state_get(dump).err, SHOAL_OK);
    sh_dump_end(dump);
    assert_int_equal(sh_store_load(loaded, disk, "a", NULL, NULL, &sums, NULL), SHOAL_OK);
    same(store, loaded);
    /* One that is canceled lets go as well, and the name can be had again. */
    assert_int_equal(sh_dump_begin(&config, &dump), SHOAL_OK);
    assert_int_equal(sh_store_dump(other, second, "b", NULL, NULL, &sums), SHOAL_OK);
    sh_dump_end(dump);
    assert_int_equal(sh_store_dump(other, second, "a", NULL, NULL, &sums), SHOAL_OK);
    second->ops->destroy(second);
    sh_store_destroy(loaded);
    sh_store_destroy(other);
    sh_store_destroy(store);
}

/* How a load goes on. */
enum rest { REST_CREATED, REST_UNDONE, REST_STUCK /* it is to be undone, but the disk fails */ };

/* While a load is under way somebody removes two of its chunks, and somebody creates others: those
 * stay, whatever becomes of the load, and afterwards the IDs of the removed ones are free. */
static void beside_others(enum rest rest)
{
    struct slow slow = slow_make(0, UINT32_MAX);
    struct sh_store *store = store_make(16 * MIB);
    struct sh_dump_config config = {.store = store, .disk = &slow.base, .name = "a"};
    struct sh_load *load;
    shoal_cid strangers[3], fresh[2];
    assert_int_equal(sh_load_begin(&config, &load), SHOAL_OK);
    while (sh_load_state_get(load).phase != SH_LOAD_CREATING ||
           sh_load_state_get(load).sums.chunks < 60)
        (void)sh_load_step(load, 64);
    assert_int_equal(sh_store_remove(store, (shoal_cid){OWN + 20}), SHOAL_OK);
    assert_int_equal(sh_store_remove(store, (shoal_cid){OWN + 1}), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 9, 3, strangers), SHOAL_OK);
    if (rest != REST_CREATED)
        sh_load_cancel(load);
    slow.left = rest == REST_STUCK ? 0 : UINT32_MAX;
    while (!sh_load_state_get(load).is_over)
        (void)sh_load_step(load, 64);
    assert_int_equal(sh_load_state_get(load).err,
                     rest == REST_CREATED ? SHOAL_OK : SHOAL_ECANCELED);
    sh_load_end(load);
    for (unsigned i = 0; i < 3; i++) {
        uint32_t size;
        assert_int_equal(sh_store_size(store, strangers[i], &size), SHOAL_OK);
        assert_int_equal(size, 9);
    }
    static const unsigned kept[] = {[REST_CREATED] = 59, [REST_UNDONE] = 0, [REST_STUCK] = 58};
    assert_int_equal(status_of(store).chunks, kept[rest] + 3);
    assert_int_equal(sh_store_new_many(store, 1, 2, fresh), SHOAL_OK);
    assert_int_equal(fresh[0].v, OWN + 1);
    assert_int_equal(fresh[1].v, OWN + (rest == REST_UNDONE ? 2 : 20));
    sh_store_destroy(store);
}

static void test_beside_others(void **state)
{
    (void)state;
    struct sh_store *store = store_make(16 * MIB);
    struct sh_dump_sums sums;
    for (uint64_t i = 1; i <= 60; i++)
        chunk_add(store, OWN + i, (uint32_t)i);
    chunk_add(store, OWN + 100000, 7);
    assert_int_equal(sh_store_dump(store, disk, "a", NULL, NULL, &sums), SHOAL_OK);
    beside_others(REST_CREATED);
    beside_others(REST_UNDONE);
    beside_others(REST_STUCK);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_step_size),
        cmocka_unit_test(test_steps_are_bounded),
        cmocka_unit_test(test_long_chunk_changes),
        cmocka_unit_test(test_canceled),
        cmocka_unit_test(test_failing_at_every_operation),
        cmocka_unit_test(test_undone),
        cmocka_unit_test(test_beside_others),
        cmocka_unit_test(test_own),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_second_writer),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
