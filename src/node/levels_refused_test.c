/* What a node does not promise: a change at a level that only a log can keep, on a node without one. */
#include "node/levels_test.h"

static uint64_t chunks_count(void)
{
    struct sh_store_status status;
    sh_store_status_get(test.rig.store, &status);
    return status.chunks;
}

/* On a node without a log: who names a level that only a log can keep is refused, and nothing was done, so that the same request, under the same
 * number, can still be done; who names none, or async, is answered at once. */
static void unlogged_check(const struct row *row, unsigned level)
{
    static struct ask refused, done; /* a failed test leaves them to the teardown */
    static uint8_t bytes[LARGE];
    bool has_promise = level == SH_LEVEL_REPLICATED || level == SH_LEVEL_DURABLE;
    sh_msg_type type = level == SH_LEVELS ? row->form : SH_CHUNKS_AT(row->form, level);
    shoal_cid cid = chunk_of(row);
    struct sh_bytes payload = payload_of(row, cid);
    uint64_t chunks = chunks_count();
    uint32_t size;
    if (has_promise) {
        ask_send(&refused, type, payload);
        if (!refused.is_done || refused.err != SHOAL_ENOBACKUP)
            fail_msg("%s, level %u: %s", row->name, level,
                     refused.is_done ? shoal_err_name(refused.err) : "not answered");
        assert_int_equal(chunks_count(), chunks);
        if (row->chunk_bytes) {
            sh_lid lid = {shoal_cid_local(cid)};
            assert_int_equal(sh_store_get(test.rig.store, lid, bytes, sizeof bytes, &size),
                             SHOAL_OK);
            assert_int_equal(size, row->chunk_bytes);
            assert_memory_equal(bytes, pattern, size);
        }
        type = SH_CHUNKS_AT(row->form, SH_LEVEL_ASYNC);
    }
    ask_send(&done, type, payload);
    assert_answered(row, "there is no log", &done, true);
    assert_int_equal(done.err, SHOAL_OK);
    if (cid.v)
        chunks_drop(cid, 1);
    else
        chunks_drop((shoal_cid){sh_load64(done.answer)}, sh_load32(done.answer + 8));
}

static void test_unlogged(void **state)
{
    (void)state;
    static struct ask sync; /* a failed test leaves them to the teardown */
    const struct row all = {"sync", SH_CHUNKS_SYNC, 0, 0, false};
    for (size_t i = 0; i < CHANGES; i++) {
        for (unsigned level = 0; level <= SH_LEVELS; level++)
            unlogged_check(&changes[i], level);
    }
    ask_send(&sync, SH_CHUNKS_SYNC, payload_of(&all, (shoal_cid){0}));
    assert_true(sync.is_done && sync.err == SHOAL_ENOBACKUP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_unlogged, setup_unlogged, teardown),
    };
    return cmocka_run_group_tests_name("refused levels", tests, NULL, NULL);
}
