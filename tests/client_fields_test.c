/* libshoal's calls on parts, sizes and conditions: the same checks on an embedded store and on a
 * cluster of real nodes, blocking and asynchronous. */
#include <pthread.h>

#include "tests/client_rig.h"

#define THREADS 4
#define ADDITIONS 200

struct cluster {
    struct rig_node superpeer, peer;
};

static void cluster_run(struct cluster *cluster)
{
    rig_node_run(&cluster->superpeer, "superpeer", "127.0.0.1:0", "");
    rig_node_run(&cluster->peer, "peer", "127.0.0.1:0", sh_node_address(cluster->superpeer.node));
}

static void cluster_end(struct cluster *cluster)
{
    rig_node_end(&cluster->peer);
    rig_node_end(&cluster->superpeer);
}

static shoal_cid create(shoal *store, uint32_t size)
{
    shoal_cid cid = SHOAL_CID_NONE;
    assert_int_equal(shoal_create(store, SHOAL_NID_NONE, size, &cid), SHOAL_OK);
    return cid;
}

static void check_content(shoal *store, shoal_cid cid, const void *expected, uint32_t size)
{
    uint8_t *back = malloc(size + 1);
    uint32_t got = 0;
    assert_non_null(back);
    assert_int_equal(shoal_get(store, cid, back, size, &got), SHOAL_OK);
    assert_int_equal(got, size);
    assert_memory_equal(back, expected, size);
    free(back);
}

/* --- Checks that hold on any store --------------------------------------------------------- */

static void check_parts(shoal *store)
{
    char back[16] = "";
    shoal_cid cid = create(store, 10);
    assert_int_equal(shoal_put(store, cid, "0123456789", 10), SHOAL_OK);
    assert_int_equal(shoal_get_part(store, cid, 3, back, 4), SHOAL_OK);
    assert_memory_equal(back, "3456", 5);
    assert_int_equal(shoal_put_part(store, cid, 8, "xy", 2), SHOAL_OK);
    assert_int_equal(shoal_put_part(store, cid, 0, "a", 1), SHOAL_OK);
    check_content(store, cid, "a1234567xy", 10);
    /* The end of the chunk is a place, where there is nothing. */
    assert_int_equal(shoal_get_part(store, cid, 10, NULL, 0), SHOAL_OK);
    assert_int_equal(shoal_put_part(store, cid, 10, NULL, 0), SHOAL_OK);
    assert_int_equal(shoal_get_part(store, cid, 7, back, 4), SHOAL_ESIZE);
    assert_non_null(strstr(shoal_error_detail(), "10 bytes"));
    assert_int_equal(shoal_get_part(store, cid, 11, NULL, 0), SHOAL_ESIZE);
    assert_int_equal(shoal_get_part(store, cid, UINT32_MAX, back, 4), SHOAL_ESIZE);
    assert_int_equal(shoal_put_part(store, cid, 9, "pq", 2), SHOAL_ESIZE);
    assert_non_null(strstr(shoal_error_detail(), "10 bytes"));
    check_content(store, cid, "a1234567xy", 10);
    assert_int_equal(shoal_get_part(store, cid, 0, NULL, 1), SHOAL_EINVAL);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_get_part(store, cid, 0, back, 1), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_put_part(store, cid, 0, back, 1), SHOAL_ENOCHUNK);
}

/* Parts too large for the stack of who answers. */
static void check_large_parts(shoal *store)
{
    const uint32_t size = 3u << 20;
    shoal_cid cid = create(store, size);
    uint8_t *data = malloc(size), *back = malloc(size);
    assert_non_null(data);
    assert_non_null(back);
    for (uint32_t i = 0; i < size; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    assert_int_equal(shoal_put_part(store, cid, 1000, data + 1000, size - 2000), SHOAL_OK);
    assert_int_equal(shoal_get_part(store, cid, 5000, back, size - 7000), SHOAL_OK);
    assert_memory_equal(back, data + 5000, size - 7000);
    assert_int_equal(shoal_get_part(store, cid, size - 2000, back, 2000), SHOAL_OK);
    assert_memory_equal(back, data + size - 2000, 1000);
    assert_int_equal(back[1000] | back[1999], 0);
    assert_int_equal(shoal_get_part(store, cid, 1, back, size), SHOAL_ESIZE);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    free(back);
    free(data);
}

/* Content that no node would even read to its end is refused for what it is, at once. */
static void check_too_much(shoal *store)
{
    const uint32_t size = 200u << 20;
    uint8_t *data = calloc(1, size), *little = calloc(1, 20u << 20);
    shoal_cid cid = create(store, 10);
    assert_non_null(data);
    assert_non_null(little);
    assert_int_equal(shoal_put(store, cid, little, 20u << 20), SHOAL_ESIZE);
    assert_int_equal(shoal_put(store, cid, data, size), SHOAL_ESIZE);
    assert_non_null(strstr(shoal_error_detail(), "10 bytes"));
    assert_int_equal(shoal_put_part(store, cid, 5, data, size), SHOAL_ESIZE);
    assert_non_null(strstr(shoal_error_detail(), "10 bytes"));
    assert_int_equal(shoal_put_if_hash(store, cid, 1, data, size), SHOAL_ESIZE);
    assert_int_equal(shoal_put(store, cid, data, (1u << 30) + 1), SHOAL_ETOOBIG);
    assert_int_equal(shoal_get_part(store, cid, 0, data, size), SHOAL_ESIZE);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_put(store, cid, data, size), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_reserve(store, SHOAL_NID_NONE, 1, &cid), SHOAL_OK);
    assert_int_equal(shoal_fill(store, cid, data, (64u << 20) + 1), SHOAL_ETOOBIG);
    assert_string_not_equal(shoal_error_detail(), "");
    assert_int_equal(shoal_fill(store, cid, data, 40u << 20), SHOAL_EFULL);
    assert_int_equal(shoal_unreserve(store, cid), SHOAL_OK);
    free(little);
    free(data);
}

static void check_sizes(shoal *store)
{
    uint32_t size = 0;
    shoal_cid cid = create(store, 4);
    assert_int_equal(shoal_put(store, cid, "abcd", 4), SHOAL_OK);
    assert_int_equal(shoal_resize(store, cid, 6), SHOAL_OK);
    check_content(store, cid, "abcd\0\0", 6);
    assert_int_equal(shoal_resize(store, cid, 2), SHOAL_OK);
    check_content(store, cid, "ab", 2);
    assert_int_equal(shoal_resize(store, cid, 100000), SHOAL_OK);
    assert_int_equal(shoal_size(store, cid, &size), SHOAL_OK);
    assert_int_equal(size, 100000);
    assert_int_equal(shoal_resize(store, cid, (64u << 20) + 1), SHOAL_ETOOBIG);
    assert_string_not_equal(shoal_error_detail(), "");
    assert_int_equal(shoal_resize(store, cid, 40u << 20), SHOAL_EFULL);
    assert_string_not_equal(shoal_error_detail(), "");
    assert_int_equal(shoal_resize(store, cid, 0), SHOAL_OK);
    assert_int_equal(shoal_size(store, cid, &size), SHOAL_OK);
    assert_int_equal(size, 0);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_resize(store, cid, 1), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_size(store, cid, &size), SHOAL_ENOCHUNK);
}

static void check_conditions(shoal *store)
{
    shoal_cid cid = create(store, 3);
    assert_int_equal(shoal_put_if(store, cid, "\0\0\0", 3, "abc", 3), SHOAL_OK);
    assert_int_equal(shoal_put_if(store, cid, "abd", 3, "xyz", 3), SHOAL_EDIFFERS);
    assert_int_equal(shoal_put_if(store, cid, "ab", 2, "xyz", 3), SHOAL_EDIFFERS);
    assert_int_equal(shoal_put_if(store, cid, NULL, 0, "xyz", 3), SHOAL_EDIFFERS);
    assert_int_equal(shoal_put_if(store, cid, "abc", 3, "xyz!", 4), SHOAL_ESIZE);
    check_content(store, cid, "abc", 3);
    assert_int_equal(shoal_put_if_hash(store, cid, shoal_hash("abc", 3), "def", 3), SHOAL_OK);
    assert_int_equal(shoal_put_if_hash(store, cid, shoal_hash("abc", 3), "ghi", 3), SHOAL_EDIFFERS);
    check_content(store, cid, "def", 3);
    assert_int_equal(shoal_put_if(store, cid, NULL, 1, "x", 1), SHOAL_EINVAL);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_put_if(store, cid, "abc", 3, "def", 3), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_put_if_hash(store, cid, 1, "def", 3), SHOAL_ENOCHUNK);
    cid = create(store, 0);
    assert_int_equal(shoal_put_if(store, cid, NULL, 0, NULL, 0), SHOAL_OK);
    assert_int_equal(shoal_put_if_hash(store, cid, shoal_hash(NULL, 0), NULL, 0), SHOAL_OK);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
}

static void check_add(shoal *store)
{
    uint8_t back[13];
    uint64_t old = 1;
    shoal_cid cid = create(store, 13);
    assert_int_equal(shoal_add(store, cid, 1, 8, 1000, &old), SHOAL_OK);
    assert_int_equal(old, 0);
    assert_int_equal(shoal_add(store, cid, 1, 8, (uint64_t)-1, &old), SHOAL_OK);
    assert_int_equal(old, 1000);
    assert_int_equal(shoal_add(store, cid, 9, 4, (uint64_t)-2, NULL), SHOAL_OK);
    assert_int_equal(shoal_add(store, cid, 9, 4, 3, &old), SHOAL_OK);
    assert_int_equal(old, 0xfffffffe);
    assert_int_equal(shoal_get(store, cid, back, sizeof back, NULL), SHOAL_OK);
    assert_memory_equal(back, "\0\xe7\x03\0\0\0\0\0\0\x01\0\0\0", 13);
    assert_int_equal(shoal_add(store, cid, 6, 8, 1, &old), SHOAL_ESIZE);
    assert_int_equal(shoal_add(store, cid, 0, 2, 1, &old), SHOAL_EINVAL);
    assert_int_equal(shoal_add(store, cid, 0, 260, 1, &old), SHOAL_EINVAL);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
    assert_int_equal(shoal_add(store, cid, 0, 8, 1, &old), SHOAL_ENOCHUNK);
}

static void check_reserved(shoal *store)
{
    shoal_cid cids[20];
    uint64_t links[2];
    uint32_t size;
    assert_int_equal(shoal_create_consecutive(store, SHOAL_NID_NONE, 8, 20, cids), SHOAL_OK);
    for (size_t i = 1; i < 20; i++)
        assert_int_equal(cids[i].v, cids[0].v + i);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(shoal_remove(store, cids[i]), SHOAL_OK);
    /* Two chunks that know each other from the start. */
    assert_int_equal(shoal_reserve(store, SHOAL_NID_NONE, 3, cids), SHOAL_OK);
    assert_int_equal(shoal_size(store, cids[0], &size), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_put(store, cids[0], "", 0), SHOAL_ENOCHUNK);
    links[0] = cids[1].v;
    links[1] = cids[0].v;
    assert_int_equal(shoal_fill(store, cids[0], &links[0], 8), SHOAL_OK);
    assert_int_equal(shoal_fill(store, cids[1], &links[1], 8), SHOAL_OK);
    assert_int_equal(shoal_fill(store, cids[1], &links[1], 8), SHOAL_ENOCHUNK);
    check_content(store, cids[0], &links[0], 8);
    check_content(store, cids[1], &links[1], 8);
    assert_int_equal(shoal_unreserve(store, cids[2]), SHOAL_OK);
    assert_int_equal(shoal_unreserve(store, cids[2]), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_unreserve(store, cids[1]), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_fill(store, cids[2], "", 0), SHOAL_ENOCHUNK);
    assert_int_equal(shoal_remove(store, cids[0]), SHOAL_OK);
    assert_int_equal(shoal_remove(store, cids[1]), SHOAL_OK);
}

static void check_multi_resize(shoal *store)
{
    enum { COUNT = 100 };
    shoal_cid cids[COUNT];
    struct shoal_op ops[COUNT];
    uint32_t size;
    assert_int_equal(shoal_create_many(store, SHOAL_NID_NONE, 8, COUNT, cids), SHOAL_OK);
    for (size_t i = 0; i < COUNT; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .size = (uint32_t)i * 7};
    assert_int_equal(shoal_multi_resize(store, ops, COUNT), SHOAL_OK);
    for (size_t i = 0; i < COUNT; i++) {
        assert_int_equal(shoal_size(store, cids[i], &size), SHOAL_OK);
        assert_int_equal(size, i * 7);
    }
    assert_int_equal(shoal_remove(store, cids[3]), SHOAL_OK);
    assert_int_equal(shoal_multi_resize(store, ops, COUNT), SHOAL_ENOCHUNK);
    assert_int_equal(ops[3].err, SHOAL_ENOCHUNK);
    assert_int_equal(ops[4].err, SHOAL_OK);
    assert_int_equal(shoal_multi_remove(store, ops, COUNT), SHOAL_ENOCHUNK);
}

static void check_async(shoal *store)
{
    struct shoal_call call = {0};
    char back[4] = "";
    shoal_cid cid, reserved;
    assert_int_equal(shoal_reserve(store, SHOAL_NID_NONE, 1, &reserved), SHOAL_OK);
    cid = reserved;
    assert_int_equal(shoal_fill_async(store, cid, "abcd", 4, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_resize_async(store, cid, 12, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_add_async(store, cid, 4, 8, 5, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(call.value, 0);
    assert_int_equal(shoal_add_async(store, cid, 4, 8, 5, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(call.value, 5);
    assert_int_equal(shoal_put_part_async(store, cid, 2, "xy", 2, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_get_part_async(store, cid, 1, back, 3, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(call.size, 3);
    assert_memory_equal(back, "bxy", 3);
    assert_int_equal(shoal_get_part_async(store, cid, 10, back, 3, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_ESIZE);
    assert_int_equal(call.size, 12);
    assert_int_equal(shoal_resize_async(store, cid, 2, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_put_if_async(store, cid, "ab", 2, "cd", 2, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_OK);
    assert_int_equal(shoal_put_if_hash_async(store, cid, 7, "ef", 2, &call), SHOAL_OK);
    assert_int_equal(shoal_wait(store, &call), SHOAL_EDIFFERS);
    check_content(store, cid, "cd", 2);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
}

struct counter {
    pthread_t thread;
    shoal *store;
    shoal_cid cid;
};

/* Counts twice each time: by adding, and by comparing and putting until that goes through. */
static void *counter_main(void *arg)
{
    struct counter *counter = arg;
    for (unsigned i = 0; i < ADDITIONS; i++) {
        uint64_t old, fields[2], next[2];
        enum shoal_err err = shoal_add(counter->store, counter->cid, 0, 8, 1, &old);
        assert_int_equal(err, SHOAL_OK);
        do {
            assert_int_equal(shoal_get(counter->store, counter->cid, fields, 16, NULL), SHOAL_OK);
            next[0] = fields[0];
            next[1] = fields[1] + 1;
            err = shoal_put_if(counter->store, counter->cid, fields, 16, next, 16);
        } while (err == SHOAL_EDIFFERS);
        assert_int_equal(err, SHOAL_OK);
    }
    return NULL;
}

static void check_threads(shoal *store)
{
    struct counter counters[THREADS];
    uint64_t fields[2];
    shoal_cid cid = create(store, 16);
    for (unsigned i = 0; i < THREADS; i++) {
        counters[i] = (struct counter){.store = store, .cid = cid};
        assert_int_equal(pthread_create(&counters[i].thread, NULL, counter_main, &counters[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(counters[i].thread, NULL);
    assert_int_equal(shoal_get(store, cid, fields, sizeof fields, NULL), SHOAL_OK);
    assert_int_equal(fields[0], THREADS * ADDITIONS);
    assert_int_equal(fields[1], THREADS * ADDITIONS);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
}

static void check_all(shoal *store)
{
    struct shoal_status status;
    shoal_cid cid = create(store, 1);
    check_parts(store);
    check_large_parts(store);
    check_too_much(store);
    check_sizes(store);
    check_conditions(store);
    check_add(store);
    check_reserved(store);
    check_multi_resize(store);
    check_async(store);
    check_threads(store);
    assert_int_equal(shoal_status(store, shoal_cid_creator(cid), &status), SHOAL_OK);
    assert_int_equal(status.chunks, 1);
    assert_int_equal(shoal_remove(store, cid), SHOAL_OK);
}

static void test_embedded(void **state)
{
    (void)state;
    shoal *store = rig_open(NULL, 60 * 1000 * MS);
    check_all(store);
    shoal_close(store);
}

static void test_cluster(void **state)
{
    (void)state;
    struct cluster cluster;
    cluster_run(&cluster);
    shoal *store = rig_open(sh_node_address(cluster.superpeer.node), 60 * 1000 * MS);
    check_all(store);
    shoal_close(store);
    cluster_end(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_embedded),
                                       cmocka_unit_test(test_cluster)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
