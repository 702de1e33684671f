/* Local IDs of a node that had lives before: none is handed out twice, none before it is allowed, and
 * chunks of earlier lives can be had again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/store_int.h"

#define BASE (3 * SH_STORE_IDS_BLOCK)
#define OTHER 65

static struct sh_store *store_make(shoal_nid nid)
{
    struct sh_store *store = NULL;
    struct sh_store_config config = {
        .bytes_max = UINT64_C(64) << 20, .chunk_bytes_max = 1 << 20, .nid = nid};
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static shoal_cid own(shoal_nid nid, uint64_t local)
{
    return shoal_cid_make(nid, local);
}

static void assert_holds(struct sh_store *store, shoal_cid cid, const char *text)
{
    char bytes[32];
    uint32_t size;
    assert_int_equal(sh_store_get(store, cid, bytes, sizeof bytes, &size), SHOAL_OK);
    assert_int_equal(size, strlen(text));
    assert_memory_equal(bytes, text, size);
}

/* With a node ID, and without one, as nodes and their stores agree on. */
static const shoal_nid nids[] = {{64}, {0}};

static void ids_begin_above_the_base(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        struct sh_store *store = store_make(nids[n]);
        shoal_cid cids[200];
        sh_store_ids_begin(store, BASE, BASE + 101);
        assert_int_equal(sh_store_new_many(store, 8, 100, cids), SHOAL_OK);
        for (size_t i = 0; i < 100; i++)
            assert_true(cids[i].v == own(nids[n], BASE + 1 + i).v);
        assert_true(sh_store_ids_wanted(store) == BASE + 101);
        /* What is not allowed yet is refused, said, and handed out when it is. */
        assert_int_equal(sh_store_new_many(store, 8, 50, cids + 100), SHOAL_EBUSY);
        assert_true(sh_store_ids_wanted(store) == BASE + 151);
        assert_int_equal(sh_store_remove(store, cids[7]), SHOAL_OK);
        assert_int_equal(sh_store_new_many(store, 8, 1, cids + 100), SHOAL_OK);
        assert_true(cids[100].v == cids[7].v);
        sh_store_ids_allow(store, BASE + SH_STORE_IDS_BLOCK);
        assert_int_equal(sh_store_new_many(store, 8, 50, cids + 100), SHOAL_OK);
        assert_true(cids[149].v == own(nids[n], BASE + 150).v);
        /* A batch that fails in the middle gives its IDs back. */
        uint32_t sizes[] = {8, 1 << 20, 1 << 20};
        struct sh_store_wish wish = {.size = 1 << 20, .count = 100};
        assert_int_equal(sh_store_new_as(store, &wish, cids + 100, NULL), SHOAL_EFULL);
        assert_int_equal(sh_store_new(store, sizes, 3, cids + 100), SHOAL_OK);
        assert_true(cids[100].v == own(nids[n], BASE + 151).v);
        sh_store_destroy(store);
    }
}

static void chunks_of_earlier_lives(void **state)
{
    (void)state;
    for (size_t n = 0; n < 2; n++) {
        struct sh_store *store = store_make(nids[n]);
        shoal_cid cid, first, last;
        sh_store_ids_begin(store, BASE, BASE + SH_STORE_IDS_BLOCK);
        shoal_cid old = own(nids[n], 7), edge = own(nids[n], BASE), names = own(nids[n], 0);
        shoal_cid foreign = own((shoal_nid){OTHER}, 7);
        uint32_t size;
        assert_int_equal(sh_store_size(store, old, &size), SHOAL_ENOCHUNK);
        assert_int_equal(sh_store_adopt(store, old, sh_bytes_text("old")), SHOAL_OK);
        assert_int_equal(sh_store_adopt(store, old, sh_bytes_text("old")), SHOAL_EEXIST);
        assert_int_equal(sh_store_adopt(store, edge, sh_bytes_text("edge")), SHOAL_OK);
        assert_int_equal(sh_store_adopt(store, names, sh_bytes_text("names")), SHOAL_OK);
        assert_int_equal(sh_store_adopt(store, foreign, sh_bytes_text("foreign")), SHOAL_OK);
        assert_int_equal(sh_store_new_many(store, 3, 1, &cid), SHOAL_OK);
        assert_int_equal(sh_store_put(store, cid, sh_bytes_text("new")), SHOAL_OK);
        const shoal_cid all[] = {names, old, edge, cid, foreign};
        const char *const texts[] = {"names", "old", "edge", "new", "foreign"};
        shoal_cid from = {0};
        for (size_t i = 0; i < 5; i++) {
            assert_holds(store, all[i], texts[i]);
            assert_true(sh_store_range(store, from, &first, &last));
            assert_true(first.v == all[i].v || (i == 2 && first.v == edge.v));
            assert_true(last.v == first.v);
            assert_true(sh_store_next(store, from, &from));
            assert_int_equal(from.v, first.v);
            from.v = last.v + 1;
        }
        assert_false(sh_store_range(store, from, &first, &last));
        /* Removed, or moved away, it is nobody's again, and never handed out. */
        assert_int_equal(sh_store_remove(store, old), SHOAL_OK);
        assert_int_equal(sh_store_release(store, edge), SHOAL_OK);
        assert_int_equal(sh_store_take_over(store, edge, sh_bytes_text("back")), SHOAL_OK);
        assert_holds(store, edge, "back");
        assert_int_equal(sh_store_new_many(store, 3, 1, &cid), SHOAL_OK);
        assert_true(cid.v == own(nids[n], BASE + 2).v);
        sh_store_destroy(store);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_begin_above_the_base),
        cmocka_unit_test(chunks_of_earlier_lives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
