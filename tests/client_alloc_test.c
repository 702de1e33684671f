/* libshoal where memory is short for an answer: what was asked has been done, and no error says that it
 * was not. */
#include "base/alloc_test.h"

#include "tests/client_rig.h"

#define RESERVED 1000u
#define ANSWER_BYTES 12u /* one run: its first ID and how many there are */

static void test_answer_without_memory(void **state)
{
    static shoal_cid cids[RESERVED], later;
    struct rig_cluster cluster;
    (void)state;
    rig_cluster_spawn(&cluster);
    shoal *store = rig_open(cluster.superpeer.address, DEADLINE_NS);
    shoal_nid peer = cluster.peers[0].nid;
    assert_int_equal(shoal_reserve(store, peer, 1, cids), SHOAL_OK);
    shoal_cid first = cids[0];
    alloc_fail_sized(ANSWER_BYTES);
    enum shoal_err err = shoal_reserve(store, peer, RESERVED, cids);
    assert_int_equal(alloc_fail_end(), 1);
    assert_int_equal(err, SHOAL_ECONNLOST);
    assert_string_equal(shoal_error_detail(), "there was no memory for the answer");
    assert_int_equal(cids[0].v, first.v);
    assert_int_equal(shoal_reserve(store, peer, 1, &later), SHOAL_OK);
    assert_int_equal(later.v, first.v + RESERVED + 1);
    shoal_close(store);
    rig_cluster_kill(&cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
