/* Durable stores in a process, through libshoal, on the real disk: found again after they were closed, and after the process
 * was killed; refused where they are in use, another node's, or damaged. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "base/random_test.h"
#include "log/replog.h"
#include "shoal/names.h"
#include "shoal/shoal.h"

#define LOG "replicas.log"

static enum shoal_err try_open(shoal **store_out, uint64_t store_bytes_max)
{
    const struct shoal_options options = {.data_dir = folder,
                                          .store_bytes_max =
                                              store_bytes_max ? store_bytes_max : 256 << 20,
                                          .small_pages = true};
    return shoal_open(&options, store_out);
}

static shoal *open_store(void)
{
    shoal *store;
    enum shoal_err err = try_open(&store, 0);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

/* Bytes that tell which chunk and which write they are. */
static void fill(uint8_t *bytes, uint32_t size, uint64_t stamp)
{
    for (uint32_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(stamp * 31 + i * 7 + (i >> 8));
}

static void assert_is(shoal *store, shoal_cid cid, uint32_t size, uint64_t stamp)
{
    uint8_t *is = malloc(size + 1), *expected = malloc(size + 1);
    uint32_t got;
    assert_int_equal(shoal_get(store, cid, is, size + 1, &got), SHOAL_OK);
    assert_int_equal(got, size);
    fill(expected, size, stamp);
    assert_int_equal(memcmp(is, expected, size), 0);
    free(is);
    free(expected);
}

static void put(shoal *store, shoal_cid cid, uint32_t size, uint64_t stamp)
{
    uint8_t *bytes = malloc(size + 1);
    fill(bytes, size, stamp);
    assert_int_equal(shoal_put(store, cid, bytes, size), SHOAL_OK);
    free(bytes);
}

/* Chunks of all sizes, changed by each kind of call. */
static void test_found_again(void **state)
{
    (void)state;
    static const uint32_t sizes[] = {0,     1,      64,     127,     128,     4000,    40000,
                                     70000, 262144, 262145, 1000000, 5000000, 33 << 20};
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    shoal_cid cids[COUNT], gone, counter, copy;
    shoal *store = open_store();
    uint64_t old;
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(shoal_create(store, SHOAL_NID_NONE, sizes[i], &cids[i]), SHOAL_OK);
        put(store, cids[i], sizes[i], i);
    }
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 64, &gone), SHOAL_OK);
    assert_int_equal(shoal_remove(store, gone), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 3000000, &counter), SHOAL_OK);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(shoal_add(store, counter, 2999992, 8, 7, &old), SHOAL_OK);
    assert_int_equal(old, 28);
    assert_int_equal(shoal_put_part(store, cids[11], 17, "hello", 5), SHOAL_OK);
    assert_int_equal(shoal_reserve(store, SHOAL_NID_NONE, 1, &copy), SHOAL_OK);
    assert_int_equal(shoal_fill(store, copy, "filled", 6), SHOAL_OK);
    assert_int_equal(shoal_resize(store, cids[8], 300), SHOAL_OK);
    shoal_close(store);

    store = open_store();
    for (unsigned i = 0; i < COUNT; i++) {
        if (i != 8 && i != 11)
            assert_is(store, cids[i], sizes[i], i);
    }
    assert_is(store, cids[8], 300, 8);
    uint8_t hello[5], value[8];
    uint32_t size;
    assert_int_equal(shoal_get_part(store, cids[11], 17, hello, 5), SHOAL_OK);
    assert_memory_equal(hello, "hello", 5);
    assert_int_equal(shoal_get_part(store, counter, 2999992, value, 8), SHOAL_OK);
    assert_int_equal(value[0], 35);
    assert_int_equal(shoal_get(store, copy, hello, 5, &size), SHOAL_ESIZE);
    assert_int_equal(size, 6);
    /* An ID is given to nobody who may mistake it, but for that of what was removed. */
    shoal_cid fresh[100];
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 100, fresh), SHOAL_OK);
    for (unsigned i = 0; i < 100; i++) {
        for (unsigned k = 0; k < COUNT; k++)
            assert_true(fresh[i].v != cids[k].v && fresh[i].v != counter.v);
    }
    shoal_close(store);
}

/* Many chunks in few calls, over several lives. */
static void test_many(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    static shoal_cid cids[COUNT];
    static uint8_t bytes[COUNT][16];
    static struct shoal_op ops[COUNT];
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 16, COUNT, cids), SHOAL_OK);
    for (unsigned life = 0; life < 3; life++) {
        for (unsigned i = 0; i < COUNT; i++) {
            fill(bytes[i], 16, i + life);
            ops[i] = (struct shoal_op){.cid = cids[i], .data = bytes[i], .size = 16};
        }
        assert_int_equal(shoal_multi_put(store, ops, COUNT / 2), SHOAL_OK);
        if (life == 2) {
            assert_int_equal(shoal_multi_remove(store, ops + COUNT / 2, COUNT / 4), SHOAL_OK);
        }
        shoal_close(store);
        store = open_store();
        for (unsigned i = 0; i < COUNT; i++) {
            memset(bytes[i], 0xee, 16);
            ops[i].size = 16;
        }
        enum shoal_err err = shoal_multi_get(store, ops, COUNT);
        assert_int_equal(err, life == 2 ? SHOAL_ENOCHUNK : SHOAL_OK);
        for (unsigned i = 0; i < COUNT; i++) {
            uint8_t expected[16] = {0};
            bool is_gone = life == 2 && i >= COUNT / 2 && i < COUNT / 2 + COUNT / 4;
            if (i < COUNT / 2)
                fill(expected, 16, i + life);
            assert_int_equal(ops[i].err, is_gone ? SHOAL_ENOCHUNK : SHOAL_OK);
            if (!is_gone)
                assert_memory_equal(bytes[i], expected, 16);
        }
    }
    shoal_close(store);
}

/* --- Killed ------------------------------------------------------------------------------------ */

#define KILLED_CHUNKS 50u

struct acked {
    uint32_t chunk;
    uint32_t value;
};

/* Writes until it is killed, and says what was acknowledged. */
static void victim(int out, const shoal_cid *cids, uint64_t seed, enum shoal_level level)
{
    shoal *store;
    if (try_open(&store, 0) || shoal_level_use(level))
        _exit(1);
    for (uint32_t value = 1;; value++) {
        uint32_t chunk = (uint32_t)(test_draw(&seed) % KILLED_CHUNKS);
        const struct acked acked = {chunk, value};
        /* Even chunks are written whole, odd ones added to. */
        uint64_t old;
        uint8_t bytes[64];
        memset(bytes, 0, sizeof bytes);
        memcpy(bytes, &value, 4);
        enum shoal_err err = chunk % 2 ? shoal_add(store, cids[chunk], 0, 4, 1, &old)
                                       : shoal_put(store, cids[chunk], bytes, 64);
        if (err || write(out, &acked, sizeof acked) != sizeof acked)
            _exit(2);
    }
}

/* Whatever was acknowledged when the process was killed is there, and no addition twice. */
static void test_killed(void **state)
{
    (void)state;
    shoal_cid cids[KILLED_CHUNKS];
    uint32_t last[KILLED_CHUNKS] = {0}, adds[KILLED_CHUNKS] = {0};
    uint64_t seed = test_seed(77);
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 64, KILLED_CHUNKS, cids), SHOAL_OK);
    shoal_close(store);
    for (unsigned round = 0; round < 6; round++) {
        int ends[2], status;
        struct acked acked;
        unsigned count = 0, most = 20 + (unsigned)(test_draw(&seed) % 3000);
        assert_int_equal(pipe(ends), 0);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            close(ends[0]);
            victim(ends[1], cids, test_draw(&seed), round == 1 ? SHOAL_DURABLE : SHOAL_REPLICATED);
        }
        close(ends[1]);
        while (read(ends[0], &acked, sizeof acked) == sizeof acked) {
            if (acked.chunk % 2)
                adds[acked.chunk]++;
            else
                last[acked.chunk] = acked.value;
            if (++count == most)
                kill(pid, SIGKILL);
        }
        close(ends[0]);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        assert_true(count >= most);
        store = open_store();
        for (unsigned i = 0; i < KILLED_CHUNKS; i++) {
            uint8_t bytes[64];
            uint32_t size, value;
            assert_int_equal(shoal_get(store, cids[i], bytes, sizeof bytes, &size), SHOAL_OK);
            memcpy(&value, bytes, 4);
            /* One more may have been done that nobody was told of. */
            if (i % 2)
                assert_in_range(value, adds[i], adds[i] + 1);
            else
                assert_true(value >= last[i]);
            adds[i] = value;
            last[i] = 0;
        }
        shoal_close(store);
    }
}

/* --- Threads ----------------------------------------------------------------------------------- */

#define THREADS 4u
#define SHARED 20u

struct adder {
    shoal *store;
    const shoal_cid *cids;
    uint64_t seed;
    uint64_t added[SHARED];
    unsigned wrong;
};

static void *adder(void *arg)
{
    struct adder *self = arg;
    for (unsigned i = 0; i < TEST_ROUNDS(2000u); i++) {
        unsigned chunk = (unsigned)(test_draw(&self->seed) % SHARED);
        uint64_t old, value = test_draw(&self->seed) % 100;
        uint8_t bytes[64];
        uint32_t size;
        self->wrong += shoal_level_use((enum shoal_level)(i % 4)) != SHOAL_OK;
        self->wrong += shoal_add(self->store, self->cids[chunk], 0, 8, value, &old) != SHOAL_OK;
        self->wrong += shoal_get(self->store, self->cids[chunk], bytes, 64, &size) != SHOAL_OK;
        self->added[chunk] += value;
    }
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct adder adders[THREADS] = {0};
    pthread_t threads[THREADS];
    shoal_cid cids[SHARED];
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 64, SHARED, cids), SHOAL_OK);
    for (unsigned i = 0; i < THREADS; i++) {
        adders[i] = (struct adder){.store = store, .cids = cids, .seed = test_seed(5) + i};
        assert_int_equal(pthread_create(&threads[i], NULL, adder, &adders[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < SHARED; i++) {
        uint64_t expected = 0, value;
        uint8_t bytes[64];
        uint32_t size;
        for (unsigned k = 0; k < THREADS; k++)
            expected += adders[k].added[i];
        assert_int_equal(shoal_get(store, cids[i], bytes, 64, &size), SHOAL_OK);
        memcpy(&value, bytes, 8);
        assert_int_equal(value, expected);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(adders[i].wrong, 0);
    shoal_close(store);
}

/* --- Asynchronous ------------------------------------------------------------------------------ */

static void test_async(void **state)
{
    (void)state;
    enum { COUNT = 3000 };
    static struct shoal_call calls[COUNT];
    static uint8_t bytes[COUNT][100];
    static shoal_cid cids[COUNT];
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 100, COUNT, cids), SHOAL_OK);
    for (unsigned i = 0; i < COUNT; i++) {
        fill(bytes[i], 100, i);
        assert_int_equal(shoal_put_async(store, cids[i], bytes[i], 100, &calls[i]), SHOAL_OK);
    }
    for (unsigned i = 0; i < COUNT; i++)
        assert_int_equal(shoal_wait(store, &calls[i]), SHOAL_OK);
    assert_int_equal(shoal_sync(store), SHOAL_OK);
    shoal_close(store);
    store = open_store();
    for (unsigned i = 0; i < COUNT; i++)
        assert_is(store, cids[i], 100, i);
    shoal_close(store);
}

/* --- Refused ----------------------------------------------------------------------------------- */

static void test_in_use(void **state)
{
    (void)state;
    shoal *store = open_store(), *other;
    assert_int_equal(try_open(&other, 0), SHOAL_EBUSY);
    assert_non_null(strstr(shoal_error_detail(), "in use"));
    pid_t pid = fork();
    if (pid == 0)
        _exit(try_open(&other, 0) == SHOAL_EBUSY ? 0 : 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    shoal_close(store);
    store = open_store();
    shoal_close(store);
}

static void file_change(long at, uint8_t with)
{
    char path[128];
    snprintf(path, sizeof path, "%s/" LOG, folder);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, at, SEEK_SET), 0);
    assert_int_equal(fputc(with, file), with);
    assert_int_equal(fclose(file), 0);
}

static void test_not_ours(void **state)
{
    (void)state;
    shoal *store = open_store();
    shoal_close(store);
    file_change(0, 'x');
    assert_int_equal(try_open(&store, 0), SHOAL_ECORRUPT);
    assert_non_null(strstr(shoal_error_detail(), folder));
}

static void test_too_small(void **state)
{
    (void)state;
    shoal_cid cids[40];
    shoal *store = open_store();
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 100000, 40, cids), SHOAL_OK);
    for (unsigned i = 0; i < 40; i++)
        put(store, cids[i], 100000, i);
    shoal_close(store);
    assert_int_equal(try_open(&store, 2 << 20), SHOAL_EFULL);
    assert_non_null(strstr(shoal_error_detail(), "store_bytes_max"));
    store = open_store();
    for (unsigned i = 0; i < 40; i++)
        assert_is(store, cids[i], 100000, i);
    shoal_close(store);
}

/* What makes no sense is said. */
static void test_words(void **state)
{
    (void)state;
    shoal *memory;
    assert_int_equal(shoal_open(NULL, &memory), SHOAL_OK);
    assert_int_equal(shoal_sync(memory), SHOAL_ENOBACKUP);
    assert_non_null(strstr(shoal_error_detail(), "data_dir"));
    assert_int_equal(shoal_level_use((enum shoal_level)9), SHOAL_EINVAL);
    shoal_close(memory);
}

/* Of a store that logs to no disk: all that writes is refused at the level that is in force, and what reads is not. */
static void assert_refuses(shoal *store, shoal_cid cid)
{
    static struct shoal_call call;
    char text[8];
    struct shoal_op op = {.cid = cid, .data = text, .size = 8};
    shoal_cid made, many[300];
    uint64_t old;
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &made), SHOAL_ENOBACKUP);
    assert_non_null(strstr(shoal_error_detail(), "data_dir"));
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, 300, many), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_put(store, cid, "changed!", 8), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_put_async(store, cid, "changed!", 8, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_add(store, cid, 0, 8, 1, &old), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_resize(store, cid, 9), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_remove(store, cid), SHOAL_ENOBACKUP);
    memcpy(text, "changed!", 8);
    assert_int_equal(shoal_multi_put(store, &op, 1), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_multi_remove(store, &op, 1), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_name_set(store, "n", cid, SHOAL_NAME_ALWAYS, cid, NULL),
                     SHOAL_ENOBACKUP);
    call = (struct shoal_call){0};
    assert_int_equal(
        shoal_name_set_async(store, "n", cid, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, &call),
        SHOAL_ENOBACKUP);
    assert_int_equal(shoal_multi_get(store, &op, 1), SHOAL_OK);
    assert_memory_equal(text, "as first", 8);
    assert_int_equal(shoal_lock(store, cid, SHOAL_OWNER_HANDLE, SHOAL_LOCK_WRITE, 1000000000, 0),
                     SHOAL_OK);
    assert_int_equal(shoal_unlock(store, cid, SHOAL_OWNER_HANDLE), SHOAL_OK);
}

static void test_memory_promises_nothing(void **state)
{
    (void)state;
    shoal *store;
    shoal_cid cid;
    const struct shoal_options durable = {.level = SHOAL_DURABLE};
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, "as first", 8), SHOAL_OK);
    for (int level = SHOAL_REPLICATED; level <= SHOAL_DURABLE; level++) {
        assert_int_equal(shoal_level_use((enum shoal_level)level), SHOAL_OK);
        assert_refuses(store, cid);
    }
    assert_int_equal(shoal_level_use(SHOAL_ASYNC), SHOAL_OK);
    assert_int_equal(shoal_name_set(store, "n", cid, SHOAL_NAME_ALWAYS, cid, NULL), SHOAL_OK);
    /* A dump writes the names into a chunk of its own, at whatever level its thread writes. */
    assert_int_equal(shoal_level_use(SHOAL_DURABLE), SHOAL_OK);
    char path[] = "/tmp/shoal-levels-XXXXXX";
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, NULL), SHOAL_OK);
    unlink(path);
    assert_int_equal(shoal_level_use(SHOAL_LEVEL_DEFAULT), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, "changed!", 8), SHOAL_OK);
    shoal_close(store);

    assert_int_equal(shoal_open(&durable, &store), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_ENOBACKUP);
    assert_int_equal(shoal_level_use(SHOAL_ASYNC), SHOAL_OK);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_OK);
    assert_int_equal(shoal_level_use(SHOAL_LEVEL_DEFAULT), SHOAL_OK);
    shoal_close(store);
}

static bool async_done;

static void on_async(struct shoal_call *call)
{
    (void)call;
    async_done = true;
}

/* Who writes with SHOAL_ASYNC waits for nothing, also not for what others wrote to the chunk; who reads it does. */
static void test_async_level(void **state)
{
    (void)state;
    shoal *store = open_store();
    shoal_cid cid;
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 8, &cid), SHOAL_OK);
    for (unsigned i = 0; i < 20; i++) {
        struct shoal_call durable = {0}, async = {0};
        assert_int_equal(shoal_level_use(SHOAL_DURABLE), SHOAL_OK);
        assert_int_equal(shoal_put_async(store, cid, "durable!", 8, &durable), SHOAL_OK);
        assert_int_equal(shoal_level_use(SHOAL_ASYNC), SHOAL_OK);
        async.err = SHOAL_EINVAL;
        async.done = on_async;
        async_done = false;
        assert_int_equal(shoal_put_async(store, cid, "at once!", 8, &async), SHOAL_OK);
        assert_true(async_done && async.err == SHOAL_OK);
        assert_int_equal(shoal_wait(store, &durable), SHOAL_OK);
    }
    assert_int_equal(shoal_level_use(SHOAL_LEVEL_DEFAULT), SHOAL_OK);
    shoal_close(store);
}

/* --- Closing while calls are in flight ------------------------------------------------------------ */

#define CHAINS 20u

static uint8_t chain_bytes[300000]; /* one of a zone comes at a time, the others wait for room */
static unsigned chains_ended;
static shoal *chain_store;

/* Begins the same once more, until it can't. */
static void on_link(struct shoal_call *call)
{
    if (call->err == SHOAL_OK) {
        enum shoal_err err =
            shoal_put_async(chain_store, call->cid, chain_bytes, sizeof chain_bytes, call);
        if (err == SHOAL_OK)
            return;
        assert_int_equal(err, SHOAL_ESTOPPED);
    }
    chains_ended++;
}

/* All that are in flight are over when it was closed, also those that go on and on. */
static void test_closed_in_flight(void **state)
{
    (void)state;
    struct shoal_call calls[CHAINS];
    shoal_cid cids[CHAINS];
    chain_store = open_store();
    chains_ended = 0;
    assert_int_equal(
        shoal_create_many(chain_store, SHOAL_NID_NONE, sizeof chain_bytes, CHAINS, cids), SHOAL_OK);
    for (unsigned i = 0; i < CHAINS; i++) {
        calls[i] = (struct shoal_call){.done = on_link};
        assert_int_equal(
            shoal_put_async(chain_store, cids[i], chain_bytes, sizeof chain_bytes, &calls[i]),
            SHOAL_OK);
    }
    shoal_close(chain_store);
    assert_int_equal(chains_ended, CHAINS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_found_again, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_many, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_killed, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_threads, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_async, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_in_use, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_not_ours, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_too_small, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_async_level, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(test_closed_in_flight, folder_make, folder_remove),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_memory_promises_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
