/* The option huge_pages reaches the kernel, from a node's options and from an embedded store's, and
 * without it nothing is asked for. What is then resident stays near what is counted, as
 * docs/store.md says. */
#include <unistd.h>

#include "base/log.h"
#include "store/store.h"
#include "tests/client_rig.h"

#define MIB (UINT64_C(1) << 20)
/* A store reserves more addresses than this for blocks; nothing else does. */
#define LARGE_KIB (UINT64_C(4) << 20)

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

/* Large mappings for which huge pages were asked for. */
static unsigned huge_mappings(void)
{
    char line[512];
    unsigned long long kib = 0;
    unsigned count = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        unsigned long long size;
        if (sscanf(line, "Size: %llu kB", &size) == 1)
            kib = size;
        if (strncmp(line, "VmFlags:", 8) == 0 && strstr(line, " hg") && kib >= LARGE_KIB)
            count++;
    }
    fclose(file);
    return count;
}

static bool is_skipped(void)
{
    return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0;
}

static void test_embedded(void **state)
{
    (void)state;
    if (is_skipped())
        skip();
    struct shoal_options options = {.store_bytes_max = 64 * MIB};
    shoal *store;
    shoal_cid cid;
    unsigned before = huge_mappings();
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    assert_int_equal(huge_mappings(), before);
    shoal_close(store);
    options.huge_pages = true;
    assert_int_equal(shoal_open(&options, &store), SHOAL_OK);
    assert_int_equal(huge_mappings(), before + 1);
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, 64, &cid), SHOAL_OK);
    assert_int_equal(shoal_put_part(store, cid, 60, "last", 4), SHOAL_OK);
    shoal_close(store);
}

static void test_node(void **state)
{
    (void)state;
    if (is_skipped())
        skip();
    struct rig_node superpeer, peer;
    struct sh_options options;
    char detail[256];
    unsigned before = huge_mappings();
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    rig_node_run(&peer, "peer", "127.0.0.1:0", sh_node_address(superpeer.node));
    assert_int_equal(huge_mappings(), before);
    rig_node_end(&peer);

    assert_int_equal(sh_options_init(&options), SHOAL_OK);
    assert_false(options.huge_pages);
    rig_set(&options, "roles", "peer");
    rig_set(&options, "listen", "127.0.0.1:0");
    rig_set(&options, "superpeers", sh_node_address(superpeer.node));
    rig_set(&options, "store_bytes_max", "32MiB");
    rig_set(&options, "huge_pages", "true");
    assert_int_equal(sh_node_create(&options, &peer.node, detail), SHOAL_OK);
    assert_int_equal(huge_mappings(), before + 1);
    sh_node_destroy(peer.node);
    sh_options_destroy(&options);
    rig_node_end(&superpeer);
}

static uint64_t resident_bytes(void)
{
    unsigned long long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%llu %llu", &all, &resident), 2);
    fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Chunks of up to 16 KiB: counted and resident differ by some pieces of 2 MiB, however many chunks
 * there are, and after most of them are gone. */
static void test_bound(void **state)
{
    (void)state;
    if (HAS_SANITIZER)
        skip(); /* what it keeps itself is resident too */
    enum { COUNT = 60000, SIZE = 1000 };
    struct sh_store_config config = {
        .bytes_max = 128 * MIB, .chunk_bytes_max = SIZE, .huge_pages = true};
    struct sh_store *store;
    struct sh_store_status status;
    shoal_cid *cids = malloc(COUNT * sizeof *cids);
    assert_non_null(cids);
    memset(cids, 1, COUNT * sizeof *cids);
    uint64_t before = resident_bytes();
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, SIZE, COUNT, cids), SHOAL_OK);
    sh_store_status_get(store, &status);
    uint64_t resident = resident_bytes() - before;
    print_message("full: %llu counted, %llu resident\n", (unsigned long long)status.used_bytes,
                  (unsigned long long)resident);
    assert_true(resident < status.used_bytes + 6 * MIB);
    for (size_t i = 0; i < COUNT; i++) {
        if (i % 4)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
    sh_store_defrag_all(store);
    sh_store_status_get(store, &status);
    resident = resident_bytes() - before;
    print_message("a quarter: %llu counted, %llu resident\n", (unsigned long long)status.used_bytes,
                  (unsigned long long)resident);
    assert_true(status.used_bytes < 20 * MIB);
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
