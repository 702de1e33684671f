/* Nodes with several threads each, whose chunks are in logs: handlers on some threads change chunks while the first thread moves the changes
 * to the logs, copies zones to a backup that was away, and answers what it has held. The thread sanitizer watches; in the end, each chunk is as
 * it was written last, also of a peer that has its own log, and was started again. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "base/log.h"
#include "client/client.h"
#include "node/node.h"

#define PEERS 3
#define WRITERS 3
#define CHUNKS 24
#define ROUNDS 25
#define SMALL 48
#define LARGE (150u << 10)

struct running {
    struct sh_options options;
    struct sh_node_run *node;
};

struct writer {
    pthread_t thread;
    shoal *store;
    shoal_nid nid;
    unsigned index;
    shoal_cid cids[CHUNKS]; /* the last one is large */
    uint8_t values[CHUNKS]; /* that each was filled with last */
    unsigned refused;       /* calls that ended with an error that may be */
};

static struct running superpeer, peers[PEERS];
static struct writer writers[WRITERS];
static _Atomic unsigned rounds_done;

static void set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error;
    assert_int_equal(sh_options_set(options, name, value, "test", &error), SHOAL_OK);
}

static void node_begin(struct running *running, const char *role, const char *name,
                       const char *replicas_at)
{
    char path[64], detail[256];
    struct sh_options *options = &running->options;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(sh_options_init(options), SHOAL_OK);
    set(options, "roles", role);
    set(options, "listen", "127.0.0.1:0");
    set(options, "data_dir", path);
    set(options, "heartbeat_ns", "50ms");
    set(options, "failure_ns", "10s");
    set(options, "threads", "3");
    if (strcmp(role, "peer") == 0) {
        set(options, "superpeers", sh_node_address(superpeer.node));
        set(options, "store_bytes_max", "32MiB");
        set(options, "chunk_bytes_max", "1MiB");
        set(options, "zone_bytes", "1MiB");
        set(options, "log_segment_bytes", "256KiB");
        set(options, "replicas_at", replicas_at);
        set(options, "replicas", strcmp(replicas_at, "self") == 0 ? "1" : "2");
        set(options, "copies_max", "3");
        set(options, "copy_bytes_per_s", "30MiB");
    }
    enum shoal_err err = sh_node_create(options, &running->node, detail);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), detail);
    assert_int_equal(sh_node_start(running->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(running->node));
}

static void node_end(struct running *running)
{
    sh_node_stop(running->node);
    assert_int_equal(sh_node_wait_stopped(running->node), SHOAL_OK);
    sh_node_destroy(running->node);
    sh_options_destroy(&running->options);
}

static void peer_begin(unsigned i, const char *replicas_at)
{
    char name[16];
    snprintf(name, sizeof name, "peer%u", i);
    node_begin(&peers[i], "peer", name, replicas_at);
}

static shoal *store_open(void)
{
    const struct shoal_options options = {.addresses = sh_node_address(superpeer.node),
                                          .timeout_ns = UINT64_C(60000000000)};
    shoal *store = NULL;
    enum shoal_err err = shoal_open(&options, &store);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

/* --- Writing ------------------------------------------------------------------------------------ */

static uint32_t size_of(unsigned chunk)
{
    return chunk == CHUNKS - 1 ? LARGE : SMALL;
}

/* All chunks but the large one in one call, which a pooled handler runs; then the large one, and a get. */
static bool round_run(struct writer *writer, unsigned round, uint8_t *bytes)
{
    struct shoal_op ops[CHUNKS];
    uint32_t size;
    bool is_good = true;
    for (unsigned i = 0; i < CHUNKS - 1; i++) {
        writer->values[i] = (uint8_t)(1 + round * 7 + i);
        memset(bytes + i * SMALL, writer->values[i], SMALL);
        ops[i] = (struct shoal_op){
            .cid = writer->cids[i], .data = bytes + (size_t)i * SMALL, .size = SMALL};
    }
    is_good &= shoal_multi_put(writer->store, ops, CHUNKS - 1) == SHOAL_OK;
    if (round % 4 == 0) {
        writer->values[CHUNKS - 1] = (uint8_t)(1 + round);
        memset(bytes, writer->values[CHUNKS - 1], LARGE);
        is_good &= shoal_put(writer->store, writer->cids[CHUNKS - 1], bytes, LARGE) == SHOAL_OK;
    }
    is_good &= shoal_get(writer->store, writer->cids[round % (CHUNKS - 1)], bytes, SMALL, &size) ==
               SHOAL_OK;
    return is_good && bytes[0] == writer->values[round % (CHUNKS - 1)];
}

static void *writer_run(void *arg)
{
    struct writer *writer = arg;
    uint8_t *bytes = malloc(LARGE);
    static const enum shoal_level levels[] = {SHOAL_ASYNC, SHOAL_REPLICATED, SHOAL_DURABLE};
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (shoal_level_use(levels[(round + writer->index) % 3]) ||
            !round_run(writer, round, bytes))
            writer->refused++;
        atomic_fetch_add(&rounds_done, 1);
    }
    free(bytes);
    return NULL;
}

static void writers_begin(shoal *store)
{
    atomic_store(&rounds_done, 0);
    for (unsigned w = 0; w < WRITERS; w++) {
        struct writer *writer = &writers[w];
        *writer =
            (struct writer){.store = store, .nid = sh_node_nid(peers[w % 2].node), .index = w};
        for (unsigned i = 0; i < CHUNKS; i++)
            assert_int_equal(shoal_create_many(store, writer->nid, size_of(i), 1, &writer->cids[i]),
                             SHOAL_OK);
    }
    for (unsigned w = 0; w < WRITERS; w++)
        assert_int_equal(pthread_create(&writers[w].thread, NULL, writer_run, &writers[w]), 0);
}

static void writers_wait(unsigned rounds)
{
    while (atomic_load(&rounds_done) < rounds)
        usleep(1000);
}

static void writers_join(void)
{
    for (unsigned w = 0; w < WRITERS; w++) {
        assert_int_equal(pthread_join(writers[w].thread, NULL), 0);
        assert_int_equal(writers[w].refused, 0);
    }
}

static void assert_written(shoal *store)
{
    uint8_t *bytes = malloc(LARGE), *expected = malloc(LARGE);
    uint32_t size;
    for (unsigned w = 0; w < WRITERS; w++) {
        for (unsigned i = 0; i < CHUNKS; i++) {
            assert_int_equal(shoal_get(store, writers[w].cids[i], bytes, LARGE, &size), SHOAL_OK);
            assert_int_equal(size, size_of(i));
            memset(expected, writers[w].values[i], size);
            assert_memory_equal(bytes, expected, size);
        }
    }
    free(bytes);
    free(expected);
}

/* The peer copies its zones as its options say. */
static void assert_copies(shoal *store)
{
    struct sh_log_table *table = malloc(sizeof *table);
    shoal_nid nid = sh_node_nid(peers[0].node);
    assert_int_equal(sh_client_log_table(store, nid, SH_LOG_TABLE_METRICS, 0, table), SHOAL_OK);
    assert_int_equal(sh_log_table_value(table, 0, "own_copies_max"), 3);
    assert_int_equal(sh_log_table_value(table, 0, "own_copy_bytes_per_s"), 30 << 20);
    free(table);
}

/* --- Cases -------------------------------------------------------------------------------------- */

/* A backup stops in order and comes back, so that zones are copied to it, while all three write. It does so several times, also while it still reads its
 * replicas. */
static void logs_of_other_peers(void **state)
{
    (void)state;
    node_begin(&superpeer, "superpeer", "super", "");
    for (unsigned i = 0; i < PEERS; i++)
        peer_begin(i, "peers");
    shoal *store = store_open();
    assert_int_equal(shoal_level_use(SHOAL_DURABLE), SHOAL_OK);
    writers_begin(store);
    writers_wait(WRITERS * 4);
    node_end(&peers[2]);
    writers_wait(WRITERS * 12);
    for (unsigned i = 0; i < 5; i++) {
        peer_begin(2, "peers");
        usleep(15000 * i);
        node_end(&peers[2]);
    }
    peer_begin(2, "peers");
    writers_join();
    assert_written(store);
    assert_int_equal(shoal_sync(store), SHOAL_OK);
    assert_copies(store);
    shoal_close(store);
    for (unsigned i = 0; i < PEERS; i++)
        node_end(&peers[i]);
    node_end(&superpeer);
}

/* Two peers with logs of their own, which are started again in the end. */
static void logs_of_their_own(void **state)
{
    (void)state;
    node_begin(&superpeer, "superpeer", "super", "");
    for (unsigned i = 0; i < 2; i++)
        peer_begin(i, "self");
    shoal *store = store_open();
    assert_int_equal(shoal_level_use(SHOAL_DURABLE), SHOAL_OK);
    writers_begin(store);
    writers_join();
    shoal_close(store);
    for (unsigned i = 0; i < 2; i++) {
        node_end(&peers[i]);
        peer_begin(i, "self");
    }
    store = store_open();
    assert_written(store);
    shoal_close(store);
    for (unsigned i = 0; i < 2; i++)
        node_end(&peers[i]);
    node_end(&superpeer);
}

/* The nodes' folders, too: each with "folder" as its name for a moment. */
static int folders_remove(void **state)
{
    static const char *const names[] = {"super", "peer0", "peer1", "peer2"};
    char all[sizeof folder];
    strcpy(all, folder);
    for (unsigned i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(folder, sizeof folder, "%.23s/%s", all, names[i]);
        (void)folder_remove(state); /* a case may have fewer */
    }
    strcpy(folder, all);
    return folder_remove(state);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(logs_of_other_peers, folder_make, folders_remove),
        cmocka_unit_test_setup_teardown(logs_of_their_own, folder_make, folders_remove),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
