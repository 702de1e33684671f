/* Whether huge pages are asked for is an option of a node and of an embedded store. What is then
 * resident stays near what is counted. */
#include <unistd.h>

#include "base/log.h"
#include "base/resident.h"
#include "store/store.h"
#include "tests/client_rig.h"

#define MIB (UINT64_C(1) << 20)
#define FEW (10 * MIB) /* 8 MiB may be made ready before the first look */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

/* Bytes of this process for which huge pages were asked. */
static uint64_t huge_bytes(void)
{
    char line[512];
    unsigned long long kib = 0, sum = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long long size;
        if (sscanf(line, "Size: %llu kB", &size) == 1)
            kib = size;
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg"))
            sum += kib;
    }
    fclose(file);
    return sum << 10;
}

static bool is_skipped(void)
{
    return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0;
}

/* What huge pages hold more after a store has got 100 MiB of chunks. A thread of the store's makes them ready; it is waited for, two seconds in all, while it is late. */
static uint64_t filled(shoal *store)
{
    enum { SIZE = 1000, EACH = 1000, TIMES = 100 };
    shoal_cid *cids = malloc(EACH * sizeof *cids);
    uint64_t before = huge_bytes();
    assert_non_null(cids);
    for (unsigned i = 0; i < TIMES; i++) {
        assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, SIZE, EACH, cids), SHOAL_OK);
        if (huge_bytes() - before < FEW)
            usleep(20000);
    }
    free(cids);
    return huge_bytes() - before;
}

static void test_embedded(void **state)
{
    (void)state;
    if (is_skipped())
        skip();
    struct shoal_options options = {.store_bytes_max = 256 * MIB};
    shoal *store;
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    assert_in_range(filled(store), FEW, 60 * MIB);
    shoal_close(store);
    options.small_pages = true;
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    assert_int_equal(filled(store), 0);
    shoal_close(store);
}

/* The same through a node whose option says so. */
static uint64_t filled_node(const char *superpeers, const char *huge_pages)
{
    struct rig_node peer;
    char detail[256];
    assert_int_equal(sh_options_init(&peer.options), SHOAL_OK);
    assert_true(peer.options.huge_pages);
    rig_set(&peer.options, "roles", "peer");
    rig_set(&peer.options, "listen", "127.0.0.1:0");
    rig_set(&peer.options, "superpeers", superpeers);
    rig_set(&peer.options, "store_bytes_max", "256MiB");
    rig_set(&peer.options, "huge_pages", huge_pages);
    rig_set(&peer.options, "heartbeat_ns", "50ms");
    rig_set(&peer.options, "failure_ns", "3s");
    assert_int_equal(sh_node_create(&peer.options, &peer.node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(peer.node), SHOAL_OK);
    assert_true(sh_node_wait_ready(peer.node));

    struct shoal_options options = {.addresses = sh_node_address(peer.node)};
    shoal *store;
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    uint64_t bytes = filled(store);
    shoal_close(store);
    rig_node_end(&peer);
    return bytes;
}

static void test_node(void **state)
{
    (void)state;
    if (is_skipped())
        skip();
    struct rig_node superpeer;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    const char *address = sh_node_address(superpeer.node);
    assert_in_range(filled_node(address, "true"), FEW, 60 * MIB);
    assert_int_equal(filled_node(address, "false"), 0);
    rig_node_end(&superpeer);
}

/* Counted and resident differ by some pieces of 2 MiB at most, however many chunks there are, and
 * after most of them are gone. */
static void test_bound(void **state)
{
    (void)state;
    if (HAS_SANITIZER)
        skip(); /* what it keeps itself is resident too */
    enum { COUNT = 120000, SIZE = 1000 };
    struct sh_store_config config = {.bytes_max = 256 * MIB, .chunk_bytes_max = SIZE};
    struct sh_store *store;
    struct sh_store_status status;
    shoal_cid *cids = malloc(COUNT * sizeof *cids);
    assert_non_null(cids);
    memset(cids, 1, COUNT * sizeof *cids);
    uint64_t before = sh_resident_bytes();
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, SIZE, COUNT, cids), SHOAL_OK);
    sh_store_status_get(store, &status);
    uint64_t resident = sh_resident_bytes() - before;
    print_message("full: %llu counted, %llu resident\n", (unsigned long long)status.used_bytes,
                  (unsigned long long)resident);
    assert_true(resident < status.used_bytes + 6 * MIB);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 4)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
    sh_store_defrag_all(store);
    sh_store_status_get(store, &status);
    resident = sh_resident_bytes() - before;
    print_message("a quarter: %llu counted, %llu resident\n", (unsigned long long)status.used_bytes,
                  (unsigned long long)resident);
    assert_true(status.used_bytes < 40 * MIB);
    assert_true(resident < status.used_bytes + 6 * MIB);
    sh_store_destroy(store);
    free(cids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_embedded), cmocka_unit_test(test_node),
                                       cmocka_unit_test(test_bound)};
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("warn", &bad, &bad_size) != SHOAL_OK)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
