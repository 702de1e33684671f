/* Memory that goes back to the kernel: what it costs in mappings, and that it goes in pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "store/slots_int.h"
#include "store/store_int.h"

#define MIB (UINT64_C(1) << 20)
#define SIZE 1000u

static struct sh_store *store_make(uint64_t bytes_max, bool small_pages)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = 1u << 30, .small_pages = small_pages};
    struct sh_store *store = NULL;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static struct sh_store_status status_of(const struct sh_store *store)
{
    struct sh_store_status status;
    sh_alloc_check(store->alloc);
    sh_store_status_get(store, &status);
    return status;
}

static shoal_cid *filled(struct sh_store *store, size_t count)
{
    shoal_cid *cids = calloc(count, sizeof *cids);
    assert_non_null(cids);
    assert_int_equal(sh_store_new_many(store, SIZE, count, cids), SHOAL_OK);
    return cids;
}

/* Removes the chunks whose group's block lies in such slots, of which there are `of`. */
static void slots_empty(struct sh_store *store, const shoal_cid *cids, size_t count, uint32_t of)
{
    for (size_t i = 0; i < count; i++) {
        struct sh_layout layout = sh_group_layout(sh_store_group(store, cids[i]));
        if ((sh_layout_offset(&layout) >> SH_SLOT_BITS) % of != 0)
            assert_int_equal(sh_store_remove(store, cids[i]), SHOAL_OK);
    }
}

static unsigned mappings(void)
{
    unsigned count = 0;
    FILE *file = fopen("/proc/self/maps", "re");
    assert_non_null(file);
    for (int c; (c = getc(file)) != EOF;)
        count += c == '\n';
    fclose(file);
    return count;
}

/* Every other slot of huge pages goes to the kernel: that must not cost a mapping each. */
static void test_mappings(void **state)
{
    (void)state;
    enum { COUNT = 200000 };
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) != 0)
        skip();
    struct sh_store *store = store_make(512 * MIB, false);
    shoal_cid *cids = filled(store, COUNT);
    unsigned before = mappings();
    slots_empty(store, cids, COUNT, 2);
    sh_store_defrag_all(store);
    struct sh_store_status status = status_of(store);
    assert_true(status.used_bytes < status.payload_bytes + status.payload_bytes / 10 + 3 * MIB);
    unsigned after = mappings();
    print_message("%u mappings before, %u after\n", before, after);
    assert_true(after < before + 40);
    sh_store_destroy(store);
    free(cids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_mappings)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
