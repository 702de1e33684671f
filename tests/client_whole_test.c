/* Dumps, loads and analyses through libshoal: on a cluster of nodes in this process, and embedded.
 */
#include "tests/client_rig.h"

#include <dirent.h>

#include "node/dumps.h"

#define TIMEOUT_NS UINT64_C(20000000000)

static char folder[64];

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-whole-XXXXXX");
    return !mkdtemp(folder);
}

/* Removes a folder in ours, or, with "", ours. */
static int folder_clear(const char *name)
{
    char path[128], file[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    DIR *listed = opendir(path);
    for (const struct dirent *entry; listed && (entry = readdir(listed));) {
        snprintf(file, sizeof file, "%s/%s", path, entry->d_name);
        (void)unlink(file);
    }
    if (listed)
        closedir(listed);
    return rmdir(path);
}

static int teardown(void **state)
{
    (void)state;
    return folder_clear("");
}

static bool there_is(const char *name)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, F_OK) == 0;
}

struct cluster {
    struct rig_node superpeer, peer;
    shoal *store;
    shoal_nid nid;
};

static void cluster_open(struct cluster *cluster, const char *data_dir, const char *threads)
{
    char detail[256];
    char registry[128];
    struct rig_node *peer = &cluster->peer, *superpeer = &cluster->superpeer;
    /* One that keeps its registry gives the IDs of a new cluster in order. */
    snprintf(registry, sizeof registry, "%s/registry", folder);
    assert_int_equal(sh_options_init(&superpeer->options), SHOAL_OK);
    rig_set(&superpeer->options, "roles", "superpeer");
    rig_set(&superpeer->options, "listen", "127.0.0.1:0");
    rig_set(&superpeer->options, "data_dir", registry);
    assert_int_equal(sh_node_create(&superpeer->options, &superpeer->node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(superpeer->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(superpeer->node));
    assert_int_equal(sh_options_init(&peer->options), SHOAL_OK);
    rig_set(&peer->options, "roles", "peer");
    rig_set(&peer->options, "listen", "127.0.0.1:0");
    rig_set(&peer->options, "superpeers", sh_node_address(cluster->superpeer.node));
    rig_set(&peer->options, "store_bytes_max", "64MiB");
    if (*data_dir) { /* a new node of a new cluster, with the dumps of the one before */
        char identity[512];
        (void)snprintf(identity, sizeof identity, "%s/identity", data_dir);
        (void)unlink(identity);
    }
    rig_set(&peer->options, "data_dir", data_dir);
    rig_set(&peer->options, "threads", threads);
    assert_int_equal(sh_node_create(&peer->options, &peer->node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(peer->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(peer->node));
    cluster->nid = sh_node_nid(peer->node);
    cluster->store = rig_open(sh_node_address(cluster->superpeer.node), TIMEOUT_NS);
}

static void cluster_close(struct cluster *cluster)
{
    shoal_close(cluster->store);
    rig_node_end(&cluster->peer);
    rig_node_end(&cluster->superpeer);
    folder_clear("registry");
}

#define CHUNKS 2000

static uint32_t size_of(unsigned i)
{
    return i == 7 ? 700000 : i % 300;
}

/* Creates chunks whose bytes follow from their place. */
static void chunks_make(shoal *store, shoal_nid nid, shoal_cid *cids)
{
    static uint32_t sizes[CHUNKS];
    static uint8_t bytes[700000];
    for (unsigned i = 0; i < CHUNKS; i++)
        sizes[i] = size_of(i);
    assert_int_equal(shoal_create_sizes(store, nid, sizes, CHUNKS, cids), SHOAL_OK);
    for (unsigned i = 0; i < CHUNKS; i++) {
        memset(bytes, (int)(i * 37), sizes[i]);
        assert_int_equal(shoal_put(store, cids[i], bytes, sizes[i]), SHOAL_OK);
    }
}

static void chunks_check(shoal *store, const shoal_cid *cids)
{
    static uint8_t bytes[700000];
    uint32_t size;
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_int_equal(shoal_get(store, cids[i], bytes, sizeof bytes, &size), SHOAL_OK);
        assert_int_equal(size, size_of(i));
        for (uint32_t b = 0; b < size; b++)
            assert_int_equal(bytes[b], (uint8_t)(i * 37));
    }
}

static uint64_t chunks_count(shoal *store, shoal_nid nid)
{
    struct shoal_status status;
    assert_int_equal(shoal_status(store, nid, &status), SHOAL_OK);
    return status.chunks;
}

struct told {
    unsigned calls;
    uint64_t done;
    const char *phase;
};

static bool tell(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    struct told *told = arg;
    assert_true(done <= all);
    assert_true(*phase != '\0');
    told->calls++;
    return true;
}

static void round_trip(const char *threads)
{
    struct cluster cluster;
    shoal_cid cids[CHUNKS];
    struct shoal_dump_sums dumped, loaded;
    struct shoal_analysis before, after;
    struct told told = {0};
    cluster_open(&cluster, folder, threads);
    chunks_make(cluster.store, cluster.nid, cids);
    assert_int_equal(shoal_dump(cluster.store, cluster.nid, "x", tell, &told, &dumped), SHOAL_OK);
    assert_int_equal(dumped.chunks, CHUNKS);
    assert_true(there_is("x.dump") && !there_is("x.dump.tmp"));
    assert_int_equal(shoal_analyze(cluster.store, cluster.nid, tell, &told, &before), SHOAL_OK);
    assert_int_equal(before.chunks, CHUNKS);
    assert_int_equal(before.payload_bytes, dumped.payload_bytes);
    assert_int_equal(before.longest_used[0].first.v, cids[0].v);
    assert_int_equal(before.longest_used[0].count, CHUNKS);

    /* Its IDs are in use: nothing changes. */
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "x", SHOAL_LOAD_SAME, NULL, NULL, &loaded),
        SHOAL_EEXIST);
    assert_non_null(strstr(shoal_error_detail(), "x.dump at byte 32"));
    chunks_check(cluster.store, cids);
    cluster_close(&cluster);

    /* A new cluster, whose peer gets the same ID. */
    cluster_open(&cluster, folder, threads);
    assert_int_equal(shoal_cid_creator(cids[0]).v, cluster.nid.v);
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "x", SHOAL_LOAD_SAME, tell, &told, &loaded),
        SHOAL_OK);
    assert_memory_equal(&dumped, &loaded, sizeof dumped);
    chunks_check(cluster.store, cids);
    assert_int_equal(shoal_analyze(cluster.store, cluster.nid, NULL, NULL, &after), SHOAL_OK);
    assert_memory_equal(before.exact, after.exact, sizeof before.exact);
    assert_memory_equal(before.powers, after.powers, sizeof before.powers);
    assert_memory_equal(before.longest_used, after.longest_used, sizeof before.longest_used);
    /* New chunks get other IDs. */
    shoal_cid next;
    assert_int_equal(shoal_create(cluster.store, cluster.nid, 1, &next), SHOAL_OK);
    assert_int_equal(next.v, cids[CHUNKS - 1].v + 1);
    cluster_close(&cluster);
}

static void test_round_trip(void **state)
{
    (void)state;
    round_trip("1");
}

static void test_round_trip_threads(void **state)
{
    (void)state;
    round_trip("3");
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"", ".x", "../x", "a/b", "x y", "\xc3\xa4", "x\n"};
    struct cluster cluster;
    struct shoal_dump_sums sums;
    struct shoal_analysis found;
    char longest[SH_DUMP_LABEL_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    cluster_open(&cluster, folder, "1");
    shoal *store = cluster.store;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(shoal_dump(store, cluster.nid, bad[i], NULL, NULL, &sums), SHOAL_EINVAL);
        assert_non_null(strstr(shoal_error_detail(), "name"));
        assert_int_equal(shoal_load(store, cluster.nid, bad[i], SHOAL_LOAD_SAME, NULL, NULL, &sums),
                         SHOAL_EINVAL);
    }
    assert_int_equal(shoal_dump(store, cluster.nid, longest, NULL, NULL, &sums), SHOAL_EINVAL);
    longest[SH_DUMP_LABEL_MAX] = '\0';
    assert_int_equal(shoal_dump(store, cluster.nid, longest, NULL, NULL, NULL), SHOAL_OK);
    assert_int_equal(shoal_dump(store, cluster.nid, NULL, NULL, NULL, &sums), SHOAL_EINVAL);
    assert_int_equal(shoal_load(store, cluster.nid, "none", SHOAL_LOAD_SAME, NULL, NULL, &sums),
                     SHOAL_ENONAME);
    assert_non_null(strstr(shoal_error_detail(), "none.dump"));
    assert_int_equal(shoal_dump(store, (shoal_nid){1}, "x", NULL, NULL, &sums), SHOAL_EROLE);
    assert_int_equal(shoal_dump(store, (shoal_nid){99}, "x", NULL, NULL, &sums), SHOAL_ENONODE);
    assert_int_equal(shoal_analyze(store, cluster.nid, NULL, NULL, NULL), SHOAL_EINVAL);
    cluster_close(&cluster);
    cluster_open(&cluster, "", "1");
    assert_int_equal(shoal_dump(cluster.store, cluster.nid, "x", NULL, NULL, &sums), SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_detail(), "data_dir"));
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "x", SHOAL_LOAD_SAME, NULL, NULL, &sums),
        SHOAL_EINVAL);
    assert_int_equal(shoal_analyze(cluster.store, cluster.nid, NULL, NULL, &found), SHOAL_OK);
    cluster_close(&cluster);
}

/* A damaged file, and one of another node. */
static void test_files_refused(void **state)
{
    (void)state;
    struct cluster cluster;
    struct shoal_dump_sums sums;
    shoal_cid cids[CHUNKS];
    char path[128];
    cluster_open(&cluster, folder, "1");
    chunks_make(cluster.store, cluster.nid, cids);
    assert_int_equal(shoal_dump(cluster.store, cluster.nid, "bad", NULL, NULL, &sums), SHOAL_OK);
    cluster_close(&cluster);
    snprintf(path, sizeof path, "%s/bad.dump", folder);
    FILE *file = fopen(path, "r+be");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)sums.file_bytes - 200, SEEK_SET), 0);
    fputc(99, file);
    assert_int_equal(fclose(file), 0);
    /* Embedded, where the node's ID is 1. */
    shoal *store = NULL;
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 10, 5, cids), SHOAL_OK);
    snprintf(path, sizeof path, "%s/other.dump", folder);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, &sums), SHOAL_OK);
    /* A folder that is not there is a mistake, and is not made. */
    snprintf(path, sizeof path, "%s/mistyped/other.dump", folder);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, NULL, NULL, &sums), SHOAL_ENONAME);
    snprintf(path, sizeof path, "%s/mistyped", folder);
    assert_int_not_equal(access(path, F_OK), 0);
    shoal_close(store);
    cluster_open(&cluster, folder, "1");
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "bad", SHOAL_LOAD_SAME, NULL, NULL, &sums),
        SHOAL_ECORRUPT);
    assert_non_null(strstr(shoal_error_detail(), "checksum"));
    assert_non_null(strstr(shoal_error_detail(), "at byte"));
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "other", SHOAL_LOAD_SAME, NULL, NULL, &sums),
        SHOAL_EINVAL);
    assert_non_null(strstr(shoal_error_detail(), "another node created (chunk 1:1)"));
    assert_int_equal(chunks_count(cluster.store, cluster.nid), 0);
    assert_int_equal(
        shoal_load(cluster.store, cluster.nid, "other", SHOAL_LOAD_RENAMED, NULL, NULL, &sums),
        SHOAL_OK);
    assert_int_equal(sums.chunks, 5);
    uint8_t bytes[10];
    uint32_t size;
    assert_int_equal(shoal_get(cluster.store, shoal_cid_make(cluster.nid, 5), bytes, 10, &size),
                     SHOAL_OK);
    assert_int_equal(size, 10);
    cluster_close(&cluster);
}

static bool cancel(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    struct told *told = arg;
    (void)done;
    (void)all;
    told->calls++;
    return told->phase && strcmp(phase, told->phase) != 0;
}

struct busy {
    struct cluster *cluster;
    unsigned seen;
};

static bool ask_meanwhile(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    struct busy *busy = arg;
    struct shoal_dump_sums sums;
    (void)phase;
    (void)done;
    (void)all;
    enum shoal_err err = shoal_load(busy->cluster->store, busy->cluster->nid, "none",
                                    SHOAL_LOAD_SAME, NULL, NULL, &sums);
    assert_true(err == SHOAL_EBUSY || err == SHOAL_ENONAME);
    busy->seen += err == SHOAL_EBUSY;
    return true;
}

/* Jobs that take a while: one at a time, and canceled in the middle. */
static void test_canceled(void **state)
{
    (void)state;
    struct cluster cluster;
    struct shoal_dump_sums sums;
    static shoal_cid cids[60000];
    cluster_open(&cluster, folder, "1");
    shoal *store = cluster.store;
    assert_int_equal(shoal_create_many(store, cluster.nid, 400, 60000, cids), SHOAL_OK);
    struct busy busy = {.cluster = &cluster};
    for (unsigned i = 0; i < 200 && busy.seen == 0; i++)
        assert_int_equal(shoal_dump(store, cluster.nid, "big", ask_meanwhile, &busy, &sums),
                         SHOAL_OK);
    assert_true(busy.seen > 0);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < 200 && err == SHOAL_OK; i++) {
        struct told told = {0};
        err = shoal_dump(store, cluster.nid, "gone", cancel, &told, &sums);
        assert_true(err == SHOAL_OK || err == SHOAL_ECANCELED);
        assert_int_equal(there_is("gone.dump"), err == SHOAL_OK || i > 0);
    }
    assert_int_equal(err, SHOAL_ECANCELED);
    assert_false(there_is("gone.dump.tmp"));
    cluster_close(&cluster);
    cluster_open(&cluster, folder, "1");
    static const char *const phases[] = {"check", "create"};
    for (unsigned p = 0; p < 2; p++) {
        err = SHOAL_OK;
        for (unsigned i = 0; i < 200 && err == SHOAL_OK; i++) {
            struct told told = {.phase = phases[p]};
            err = shoal_load(cluster.store, cluster.nid, "big", SHOAL_LOAD_SAME, cancel, &told,
                             &sums);
            assert_true(err == SHOAL_OK || err == SHOAL_ECANCELED);
            if (err == SHOAL_OK) {
                struct shoal_op *ops = calloc(60000, sizeof *ops);
                assert_non_null(ops);
                for (unsigned c = 0; c < 60000; c++)
                    ops[c].cid = cids[c];
                assert_int_equal(shoal_multi_remove(cluster.store, ops, 60000), SHOAL_OK);
                free(ops);
            }
        }
        assert_int_equal(err, SHOAL_ECANCELED);
        assert_int_equal(chunks_count(cluster.store, cluster.nid), 0);
    }
    cluster_close(&cluster);
}

/* A question that is repeated begins nothing; a job's state can be asked for by anybody. */
static void test_repeated(void **state)
{
    (void)state;
    struct cluster cluster;
    uint8_t request[9] = {1, 2, 3, 4, 5, 6, 7, 8, 'r'};
    uint8_t last[8] = {0};
    uint8_t *answer;
    size_t size;
    struct sh_job job;
    cluster_open(&cluster, folder, "1");
    struct sh_caller caller = sh_client_caller(cluster.store);
    assert_int_equal(sh_call(&caller, cluster.nid, SH_DUMPS_JOB, sh_bytes_make(request, 8),
                             TIMEOUT_NS, NULL, NULL, NULL),
                     SHOAL_ENONAME);
    for (unsigned i = 0; i < 5; i++)
        assert_int_equal(sh_call(&caller, cluster.nid, SH_DUMPS_DUMP,
                                 sh_bytes_make(request, sizeof request), TIMEOUT_NS, NULL, NULL,
                                 NULL),
                         SHOAL_OK);
    uint64_t deadline = rig_now() + DEADLINE_NS;
    do {
        assert_int_equal(sh_call(&caller, cluster.nid, SH_DUMPS_JOB, sh_bytes_make(last, 8),
                                 TIMEOUT_NS, &answer, &size, NULL),
                         SHOAL_OK);
        struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
        assert_true(sh_job_get(&r, &job));
        free(answer);
        assert_int_equal(job.number, sh_load64(request));
        assert_int_equal(job.kind, SH_JOB_DUMP);
    } while (!job.is_over && rig_now() < deadline);
    assert_true(job.is_over);
    assert_int_equal(job.err, SHOAL_OK);
    assert_true(there_is("r.dump"));
    /* What is malformed is refused. */
    for (unsigned operation = 30; operation <= 35; operation++)
        for (size_t some = 0; some < 8; some++)
            assert_int_equal(sh_call(&caller, cluster.nid, (sh_msg_type)SH_MSG_TYPE(2, operation),
                                     sh_bytes_make(request, some), TIMEOUT_NS, NULL, NULL, NULL),
                             SHOAL_EPROTO);
    /* A dump has no analysis. */
    assert_int_equal(sh_call(&caller, cluster.nid, SH_DUMPS_ANALYSIS, sh_bytes_make(request, 8),
                             TIMEOUT_NS, NULL, NULL, NULL),
                     SHOAL_ENONAME);
    cluster_close(&cluster);
}

static void test_embedded(void **state)
{
    (void)state;
    shoal *store = NULL, *other = NULL;
    shoal_cid cids[CHUNKS];
    struct shoal_dump_sums dumped, loaded;
    struct shoal_analysis found;
    struct told told = {0};
    char path[128], missing[128];
    snprintf(path, sizeof path, "%s/embedded", folder);
    snprintf(missing, sizeof missing, "%s/missing/embedded", folder);
    assert_int_equal(shoal_open(NULL, &store), SHOAL_OK);
    assert_int_equal(shoal_open(NULL, &other), SHOAL_OK);
    chunks_make(store, SHOAL_NID_NONE, cids);
    assert_int_equal(shoal_load(other, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, NULL, NULL, &loaded),
                     SHOAL_ENONAME);
    assert_int_equal(
        shoal_load(other, SHOAL_NID_NONE, missing, SHOAL_LOAD_SAME, NULL, NULL, &loaded),
        SHOAL_ENONAME);
    assert_false(there_is("missing"));
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, "", NULL, NULL, &dumped), SHOAL_EINVAL);
    assert_int_equal(shoal_dump(store, SHOAL_NID_NONE, path, cancel, &told, &dumped),
                     SHOAL_ECANCELED);
    assert_false(there_is("embedded") || there_is("embedded.tmp"));
    assert_int_equal(shoal_dump(store, (shoal_nid){1}, path, tell, &told, &dumped), SHOAL_OK);
    told.phase = "create";
    assert_int_equal(
        shoal_load(other, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, cancel, &told, &loaded),
        SHOAL_ECANCELED);
    assert_int_equal(chunks_count(other, SHOAL_NID_NONE), 0);
    assert_int_equal(shoal_load(other, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, tell, &told, &loaded),
                     SHOAL_OK);
    assert_memory_equal(&dumped, &loaded, sizeof dumped);
    chunks_check(other, cids);
    assert_int_equal(shoal_load(other, SHOAL_NID_NONE, path, SHOAL_LOAD_SAME, NULL, NULL, &loaded),
                     SHOAL_EEXIST);
    assert_non_null(strstr(shoal_error_detail(), "1:1"));
    assert_int_equal(shoal_analyze(other, SHOAL_NID_NONE, NULL, NULL, &found), SHOAL_OK);
    assert_int_equal(found.chunks, CHUNKS);
    assert_int_equal(found.longest_used[0].first.v, cids[0].v);
    assert_int_equal(shoal_analyze(other, (shoal_nid){2}, NULL, NULL, &found), SHOAL_ENONODE);
    shoal_close(store);
    shoal_close(other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip), cmocka_unit_test(test_round_trip_threads),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_files_refused),
        cmocka_unit_test(test_canceled),   cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_embedded),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
