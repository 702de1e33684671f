/* Names of a durable store in a process, through libshoal: found again when it is opened again, by whichever call
 * they were set. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "base/random_test.h"
#include "env/env.h"
#include "journal/journal.h"
#include "shoal/names.h"
#include "shoal/shoal.h"

#define WAIT_NS UINT64_C(60000000000)

static const shoal_cid first = {UINT64_C(1) << 48 | 1}, second = {UINT64_C(1) << 48 | 2};

static enum shoal_err try_open(shoal **store_out)
{
    const struct shoal_options options = {
        .data_dir = folder, .store_bytes_max = 64 << 20, .small_pages = true};
    return shoal_open(&options, store_out);
}

static shoal *open_store(void)
{
    shoal *store;
    enum shoal_err err = try_open(&store);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

static enum shoal_err set(shoal *store, const char *name, shoal_cid cid)
{
    return shoal_name_set(store, name, cid, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL);
}

static uint64_t get(shoal *store, const char *name)
{
    shoal_cid cid = {0};
    enum shoal_err err = shoal_name_get(store, name, &cid);
    assert_int_equal(err, cid.v ? SHOAL_OK : SHOAL_ENONAME);
    return cid.v;
}

static bool name_count(void *arg, const char *name, shoal_cid cid)
{
    (void)name;
    assert_true(cid.v != 0);
    ++*(unsigned *)arg;
    return true;
}

static void test_found_again(void **state)
{
    (void)state;
    shoal *store = open_store();
    shoal_cid was;
    shoal_barrier barrier;
    char longest[SHOAL_NAME_MAX + 1];
    unsigned count = 0;
    memset(longest, 'x', SHOAL_NAME_MAX);
    longest[SHOAL_NAME_MAX] = '\0';
    assert_int_equal(set(store, "kept", first), SHOAL_OK);
    assert_int_equal(set(store, longest, second), SHOAL_OK);
    assert_int_equal(set(store, "replaced", first), SHOAL_OK);
    assert_int_equal(
        shoal_name_set(store, "replaced", second, SHOAL_NAME_ABSENT, SHOAL_CID_NONE, &was),
        SHOAL_EEXIST);
    assert_true(was.v == first.v);
    assert_int_equal(shoal_name_set(store, "replaced", second, SHOAL_NAME_CURRENT, first, NULL),
                     SHOAL_OK);
    assert_int_equal(set(store, "removed", first), SHOAL_OK);
    assert_int_equal(shoal_name_remove(store, "removed", SHOAL_NAME_CURRENT, second, &was),
                     SHOAL_EDIFFERS);
    assert_int_equal(shoal_name_remove(store, "removed", SHOAL_NAME_CURRENT, first, &was),
                     SHOAL_OK);
    assert_int_equal(shoal_scratch_put(store, "scratch", "value", 5), SHOAL_OK);
    assert_int_equal(shoal_barrier_create(store, 2, SHOAL_BARRIER_TELL, &barrier), SHOAL_OK);
    shoal_close(store);
    for (unsigned life = 0; life < 3; life++) {
        char value[8];
        uint32_t size;
        store = open_store();
        assert_int_equal(get(store, "kept"), first.v);
        assert_int_equal(get(store, longest), second.v);
        assert_int_equal(get(store, "replaced"), second.v);
        assert_int_equal(get(store, "removed"), 0);
        count = 0;
        assert_int_equal(shoal_name_list(store, "", name_count, &count), SHOAL_OK);
        assert_int_equal(count, 3);
        /* Scratch and barriers are gone with the handle. */
        assert_int_equal(shoal_scratch_get(store, "scratch", value, sizeof value, &size),
                         SHOAL_ENONAME);
        assert_int_equal(shoal_barrier_free(store, barrier), SHOAL_ENONAME);
        shoal_close(store);
    }
}

/* --- Asynchronous ------------------------------------------------------------------------------ */

static void test_async(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static struct shoal_call calls[COUNT];
    shoal *store = open_store();
    char name[32];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "async/%u", i % 1000);
        enum shoal_name_if when = i < 1000 ? SHOAL_NAME_ABSENT : SHOAL_NAME_ALWAYS;
        enum shoal_err err =
            i < 2000 ? shoal_name_set_async(store, name, (shoal_cid){1 + i}, when, SHOAL_CID_NONE,
                                            &calls[i])
                     : shoal_name_remove_async(store, name, SHOAL_NAME_CURRENT,
                                               (shoal_cid){i % 2 ? i - 999 : 1}, &calls[i]);
        assert_int_equal(err, SHOAL_OK);
    }
    for (unsigned i = 0; i < COUNT; i++) {
        enum shoal_err err = shoal_wait(store, &calls[i]);
        assert_int_equal(err, i >= 2000 && i % 2 == 0 ? SHOAL_EDIFFERS : SHOAL_OK);
        assert_int_equal(calls[i].cid.v, i < 1000 ? 0 : i - 999);
    }
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < 1000; i++) {
        snprintf(name, sizeof name, "async/%u", i);
        assert_int_equal(get(store, name), i % 2 ? 0 : 1001 + i);
    }
    shoal_close(store);
}

/* Completions begin the next change, and may not wait for one. */
#define LINKS 500u

struct chain {
    struct shoal_call call;
    shoal *store;
    unsigned links, wrong;
    _Atomic bool is_over;
};

static void on_link(struct shoal_call *call)
{
    struct chain *chain = call->arg;
    char name[32];
    chain->wrong += call->err != SHOAL_OK;
    chain->wrong += set(chain->store, "never", first) != SHOAL_EBUSY;
    if (++chain->links == LINKS) {
        atomic_store(&chain->is_over, true);
        return;
    }
    snprintf(name, sizeof name, "chain/%u", chain->links);
    chain->wrong += shoal_name_set_async(chain->store, name, (shoal_cid){chain->links},
                                         SHOAL_NAME_ABSENT, SHOAL_CID_NONE, call) != SHOAL_OK;
}

static void test_chain(void **state)
{
    (void)state;
    static struct chain chain;
    shoal *store = open_store();
    chain = (struct chain){.store = store, .call = {.done = on_link, .arg = &chain}};
    assert_int_equal(shoal_name_set_async(store, "chain/0", (shoal_cid){LINKS}, SHOAL_NAME_ABSENT,
                                          SHOAL_CID_NONE, &chain.call),
                     SHOAL_OK);
    while (!atomic_load(&chain.is_over))
        usleep(1000);
    assert_int_equal(chain.wrong, 0);
    shoal_close(store);
    store = open_store();
    for (unsigned i = 1; i < LINKS; i++) {
        char name[32];
        snprintf(name, sizeof name, "chain/%u", i);
        assert_int_equal(get(store, name), i);
    }
    assert_int_equal(get(store, "never"), 0);
    shoal_close(store);
}

/* Calls under way when the store is closed end before it is. */
static void test_closed(void **state)
{
    (void)state;
    enum { COUNT = 500 };
    static struct shoal_call calls[COUNT];
    shoal *store = open_store();
    char name[32];
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "closed/%u", i);
        assert_int_equal(shoal_name_set_async(store, name, (shoal_cid){1 + i}, SHOAL_NAME_ABSENT,
                                              SHOAL_CID_NONE, &calls[i]),
                         SHOAL_OK);
    }
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "closed/%u", i);
        assert_int_equal(calls[i].err, SHOAL_OK);
        assert_int_equal(get(store, name), 1 + i);
    }
    shoal_close(store);
}

/* --- Threads ----------------------------------------------------------------------------------- */

#define THREADS 3u
#define CONTENDED 300u

struct contender {
    pthread_t thread;
    shoal *store;
    unsigned number, wrong;
    bool has_won[CONTENDED];
};

/* Each name is given to the first thread; each thread counts up a name of its own. */
static void *contend(void *arg)
{
    struct contender *self = arg;
    char name[32], own[32];
    shoal_cid cid, was;
    snprintf(own, sizeof own, "own/%u", self->number);
    for (unsigned i = 0; i < CONTENDED; i++) {
        snprintf(name, sizeof name, "same/%u", i);
        enum shoal_err err = shoal_name_set(self->store, name, (shoal_cid){1 + self->number},
                                            SHOAL_NAME_ABSENT, SHOAL_CID_NONE, &was);
        self->has_won[i] = err == SHOAL_OK;
        self->wrong += err != SHOAL_OK && err != SHOAL_EEXIST;
        self->wrong += shoal_name_get(self->store, name, &cid) != SHOAL_OK;
        self->wrong += err == SHOAL_EEXIST && cid.v != was.v;
        err = shoal_name_set(self->store, own, (shoal_cid){1 + i},
                             i ? SHOAL_NAME_CURRENT : SHOAL_NAME_ABSENT, (shoal_cid){i}, NULL);
        self->wrong += err != SHOAL_OK;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    static struct contender contenders[THREADS];
    shoal *store = open_store();
    for (unsigned i = 0; i < THREADS; i++) {
        contenders[i] = (struct contender){.store = store, .number = i};
        assert_int_equal(pthread_create(&contenders[i].thread, NULL, contend, &contenders[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(contenders[i].thread, NULL), 0);
        assert_int_equal(contenders[i].wrong, 0);
    }
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < CONTENDED; i++) {
        unsigned winners = 0;
        char name[32];
        snprintf(name, sizeof name, "same/%u", i);
        uint64_t winner = get(store, name);
        for (unsigned k = 0; k < THREADS; k++) {
            winners += contenders[k].has_won[i];
            assert_true(!contenders[k].has_won[i] || winner == 1 + k);
        }
        assert_int_equal(winners, 1);
    }
    for (unsigned k = 0; k < THREADS; k++) {
        char own[32];
        snprintf(own, sizeof own, "own/%u", k);
        assert_int_equal(get(store, own), CONTENDED);
    }
    shoal_close(store);
}

static void *set_later(void *arg)
{
    usleep(10000);
    return (void *)(uintptr_t)set(arg, "awaited", second);
}

static void test_wait(void **state)
{
    (void)state;
    shoal *store = open_store();
    pthread_t thread;
    shoal_cid cid;
    void *err;
    assert_int_equal(shoal_name_wait(store, "awaited", 1000000, &cid), SHOAL_ETIMEOUT);
    assert_int_equal(pthread_create(&thread, NULL, set_later, store), 0);
    assert_int_equal(shoal_name_wait(store, "awaited", WAIT_NS, &cid), SHOAL_OK);
    assert_true(cid.v == second.v);
    assert_int_equal(pthread_join(thread, &err), 0);
    assert_int_equal((uintptr_t)err, SHOAL_OK);
    shoal_close(store);
}

/* --- Dumps -------------------------------------------------------------------------------------- */

static void test_dumps(void **state)
{
    (void)state;
    char path[128], name[32], bytes[8];
    shoal_cid cids[300];
    uint32_t size;
    snprintf(path, sizeof path, "%s-dump", folder);
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 300, cids), SHOAL_OK);
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "dumped/%u", i);
        assert_int_equal(shoal_put(store, cids[i], "12345678", 8), SHOAL_OK);
        assert_int_equal(set(store, name, cids[i]), SHOAL_OK);
    }
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, NULL), SHOAL_OK);
    shoal_close(store);
    folder_empty();
    store = open_store();
    assert_int_equal(get(store, "dumped/0"), 0);
    assert_int_equal(shoal_load(store, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, NULL, NULL, NULL),
                     SHOAL_OK);
    assert_int_equal(unlink(path), 0);
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < 300; i++) {
        snprintf(name, sizeof name, "dumped/%u", i);
        assert_int_equal(get(store, name), cids[i].v);
        assert_int_equal(shoal_get(store, cids[i], bytes, sizeof bytes, &size), SHOAL_OK);
        assert_memory_equal(bytes, "12345678", 8);
    }
    shoal_close(store);
}

/* --- Refused ------------------------------------------------------------------------------------ */

static void test_damaged(void **state)
{
    (void)state;
    char path[128], name[32];
    shoal *store = open_store();
    for (unsigned i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "name/%u", i);
        assert_int_equal(set(store, name, first), SHOAL_OK);
    }
    shoal_close(store);
    snprintf(path, sizeof path, "%s/journal.000", folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, 10 * 4096 + 50, SEEK_SET), 0);
    assert_int_equal(fwrite("damage", 1, 6, file), 6);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(try_open(&store), SHOAL_ECORRUPT);
    assert_non_null(strstr(shoal_error_detail(), folder));
    assert_non_null(strstr(shoal_error_detail(), "names"));
    assert_non_null(strstr(shoal_error_detail(), "journal."));
}

/* A superpeer's folder is refused, and nothing is written there. */
static void test_not_ours(void **state)
{
    (void)state;
    static const struct sh_journal_stream streams[1];
    struct sh_journal_config config = {
        .env = {.clock = sh_real_clock(), .random = sh_real_random()},
        .label = sh_bytes_text("superpeer shoal 1"),
        .streams = streams,
        .streams_count = 1};
    struct sh_journal *journal;
    shoal *store;
    char path[128];
    assert_int_equal(sh_real_disk_create(folder, false, &config.env.disk), SHOAL_OK);
    assert_int_equal(sh_journal_open(&config, &journal), SHOAL_OK);
    sh_journal_close(journal);
    config.env.disk->ops->destroy(config.env.disk);
    assert_int_equal(try_open(&store), SHOAL_ECLUSTER);
    assert_non_null(strstr(shoal_error_detail(), folder));
    snprintf(path, sizeof path, "%s/replicas.log", folder);
    assert_int_equal(access(path, F_OK), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_again, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_async, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_chain, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_closed, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_threads, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_wait, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_dumps, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_damaged, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_not_ours, folder_make, folder_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
