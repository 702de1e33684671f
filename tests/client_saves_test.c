/* Safety copies between a client and a peer in this process: blocks that are asked for again, readers that go, chunks that come back. */
#include "tests/client_rig.h"

#include "base/hash.h"

#define TIMEOUT_NS UINT64_C(20000000000)
#define CHUNKS 9000u
#define SIZE 100u

static struct rig_node superpeer, peer;
static shoal *store;
static shoal_nid nid;
static shoal_cid cids[CHUNKS];

static int setup(void **state)
{
    (void)state;
    rig_node_run(&superpeer, "superpeer", "127.0.0.1:0", "");
    rig_node_run(&peer, "peer", "127.0.0.1:0", sh_node_address(superpeer.node));
    nid = sh_node_nid(peer.node);
    store = rig_open(sh_node_address(superpeer.node), TIMEOUT_NS);
    if (shoal_create_many(store, nid, SIZE, CHUNKS, cids))
        return 1;
    for (unsigned i = 0; i < CHUNKS; i++) {
        uint8_t bytes[SIZE];
        memset(bytes, (int)i, sizeof bytes);
        if (shoal_put(store, cids[i], bytes, SIZE))
            return 1;
    }
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    shoal_close(store);
    rig_node_end(&peer);
    rig_node_end(&superpeer);
    return 0;
}

/* Counts a block's records, and looks at the last chunk. */
static unsigned records_count(struct sh_bytes records, uint8_t *last_out)
{
    struct sh_reader r = sh_reader_make(records);
    struct sh_cut_record record;
    unsigned count = 0;
    while (sh_cut_record_get(&r, &record)) {
        count++;
        if (record.cid.v == cids[CHUNKS - 1].v)
            *last_out = record.bytes.at[SIZE - 1];
    }
    assert_true(sh_reader_ok(&r));
    return count;
}

static void test_blocks_are_asked_for_again(void **state)
{
    (void)state;
    struct sh_client_save save, other;
    struct sh_saves_block block, again;
    struct sh_bytes records, records_again;
    uint8_t *answer, *answer_again, bytes[SIZE], last = 77;
    unsigned count = 0;
    uint64_t instance, arrivals;
    memset(bytes, 255, sizeof bytes);
    assert_int_equal(sh_client_save_begin(store, nid, &save), SHOAL_OK);
    assert_int_equal(sh_client_save_begin(store, nid, &other), SHOAL_EBUSY);
    do {
        assert_int_equal(sh_client_save_read(&save, &block, &answer, &records), SHOAL_OK);
        if (count == 0) /* written after the moment */
            assert_int_equal(shoal_put(store, cids[CHUNKS - 1], bytes, SIZE), SHOAL_OK);
        count += records_count(records, &last);
        save.block--;
        assert_int_equal(sh_client_save_read(&save, &again, &answer_again, &records_again),
                         SHOAL_OK);
        assert_int_equal(block.crc, again.crc);
        assert_int_equal(block.chunks, again.chunks);
        assert_int_equal(block.is_last, again.is_last);
        assert_int_equal(records.size, records_again.size);
        assert_memory_equal(records.at, records_again.at, records.size);
        free(answer);
        free(answer_again);
    } while (!block.is_last);
    assert_true(save.block > 2);
    assert_int_equal(count, CHUNKS);
    assert_int_equal(block.chunks, CHUNKS);
    assert_int_equal(block.payload_bytes, CHUNKS * SIZE);
    assert_int_equal(last, (uint8_t)(CHUNKS - 1));
    assert_int_equal(sh_client_arrivals(store, nid, &instance, &arrivals), SHOAL_OK);
    assert_int_equal(instance, block.instance);
    assert_int_equal(arrivals, block.arrivals);
    save.block += 2;
    assert_int_equal(sh_client_save_read(&save, &block, &answer, &records), SHOAL_ENONAME);
    sh_client_save_end(&save);
    save.block = 0;
    assert_int_equal(sh_client_save_read(&save, &block, &answer, &records), SHOAL_ENONAME);
}

/* Who goes leaves the copy to the next one. */
static void test_a_reader_that_is_gone(void **state)
{
    (void)state;
    struct sh_client_save save;
    struct sh_saves_block block;
    struct sh_bytes records;
    uint8_t *answer;
    shoal *leaving = rig_open(sh_node_address(superpeer.node), TIMEOUT_NS);
    assert_int_equal(sh_client_save_begin(leaving, nid, &save), SHOAL_OK);
    assert_int_equal(sh_client_save_read(&save, &block, &answer, &records), SHOAL_OK);
    free(answer);
    shoal_close(leaving);
    enum shoal_err err = SHOAL_EBUSY;
    for (unsigned i = 0; err == SHOAL_EBUSY && i < 20000; i++)
        err = sh_client_save_begin(store, nid, &save);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(sh_client_save_read(&save, &block, &answer, &records), SHOAL_OK);
    free(answer);
    sh_client_save_end(&save);
}

static struct sh_bytes record_of(uint8_t *at, shoal_cid cid, uint8_t value, uint32_t size)
{
    struct sh_writer w = sh_writer_make(at, 4096);
    sh_put64(&w, cid.v);
    sh_put32(&w, size);
    if (!(size & SH_SAVES_ZEROS)) {
        memset(w.at, value, size);
        (void)sh_writer_take(&w, size);
    }
    return sh_bytes_make(at, (size_t)(w.at - at));
}

static void test_chunks_come_back(void **state)
{
    (void)state;
    struct sh_client_restored sums = {.made = 0};
    uint8_t request[4096], got[SIZE];
    uint64_t instance, before, after;
    uint32_t size;
    struct sh_bytes record = record_of(request, cids[5], 9, SIZE);
    assert_int_equal(sh_client_arrivals(store, nid, &instance, &before), SHOAL_OK);
    assert_int_equal(shoal_remove(store, cids[5]), SHOAL_OK);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_OK);
    assert_int_equal(sums.made, 1);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_OK);
    assert_int_equal(sums.same, 1);
    record = record_of(request, cids[5], 10, SIZE);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_EEXIST);
    assert_int_equal(sums.cid.v, cids[5].v);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_SKIP, record, &sums), SHOAL_OK);
    assert_int_equal(shoal_get(store, cids[5], got, SIZE, &size), SHOAL_OK);
    assert_int_equal(got[0], 9);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_OVERWRITE, record, &sums), SHOAL_OK);
    assert_int_equal(shoal_get(store, cids[5], got, SIZE, &size), SHOAL_OK);
    assert_int_equal(got[SIZE - 1], 10);
    record = record_of(request, cids[5], 11, 3);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_OVERWRITE, record, &sums), SHOAL_OK);
    assert_int_equal(shoal_size(store, cids[5], &size), SHOAL_OK);
    assert_int_equal(size, 3);
    assert_int_equal(sums.skipped, 1);
    assert_int_equal(sums.replaced, 2);
    assert_int_equal(shoal_remove(store, cids[6]), SHOAL_OK);
    record = record_of(request, cids[6], 0, SH_SAVES_ZEROS | 100000);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_OK);
    assert_int_equal(shoal_size(store, cids[6], &size), SHOAL_OK);
    assert_int_equal(size, 100000);
    assert_int_equal(sh_client_arrivals(store, nid, &instance, &after), SHOAL_OK);
    assert_int_equal(after, before + 3);
}

static void test_what_is_no_restore(void **state)
{
    (void)state;
    struct sh_client_restored sums = {.made = 0};
    uint8_t request[4096];
    shoal_cid elsewhere = shoal_cid_make((shoal_nid){nid.v == 99 ? 98 : 99}, 1);
    struct sh_bytes record = record_of(request, elsewhere, 1, 10);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_EINVAL);
    record = record_of(request, shoal_cid_make(nid, 0), 1, 10);
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_EINVAL);
    record = record_of(request, shoal_cid_make(nid, 1u << 20), 1, 10);
    record.size--;
    assert_int_equal(sh_client_restore(store, nid, SH_SAVES_REFUSE, record, &sums), SHOAL_EPROTO);
    record = record_of(request, shoal_cid_make(nid, 1u << 20), 1, 10);
    assert_int_equal(sh_client_restore(store, nid, (enum sh_saves_policy)3, record, &sums),
                     SHOAL_EPROTO);
    assert_int_equal(sums.made, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_are_asked_for_again),
        cmocka_unit_test(test_a_reader_that_is_gone),
        cmocka_unit_test(test_chunks_come_back),
        cmocka_unit_test(test_what_is_no_restore),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
