/* Gets of a chunk that another thread resizes or removes between two looks of the node at it: the answer is of one moment, or tells the asker to
 * ask again, and never that the chunk is gone while it is there. */
#include "node/chunks_int.h"
#include "node/levels_test.h"

/* The change that the hook makes to the chunk between the looks. */
struct turn {
    shoal_cid cid;
    uint32_t size; /* that it gets; 0: it is removed */
    unsigned looks;
};

static void change_size(const struct turn *turn)
{
    struct sh_write write;
    struct sh_store_rewriting *rewriting;
    sh_lid lid = {shoal_cid_local(turn->cid)};
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    if (!turn->size) {
        assert_int_equal(sh_backup_remove(test.rig.backup, &write, lid), SHOAL_OK);
        return;
    }
    const struct sh_store_rewrite resize = {
        .kind = SH_STORE_RESIZE, .cid = lid, .size = turn->size};
    assert_int_equal(sh_store_rewriting_begin(test.rig.store, &resize, &rewriting), SHOAL_OK);
    while (!sh_backup_rewriting_step(test.rig.backup, &write, rewriting))
        continue;
    assert_int_equal(sh_store_rewriting_end(rewriting), SHOAL_OK);
}

static void on_looked(void *arg)
{
    struct turn *turn = arg;
    if (turn->looks++ == 0)
        change_size(turn);
}

/* Sends the row's request; its chunk gets that size meanwhile. The answer begins with an error, and a size. */
static void ask_meanwhile(const struct row *row, uint32_t size, struct ask *ask_out)
{
    struct turn turn = {.cid = chunk_make(row->chunk_bytes), .size = size};
    ask_out->is_done = false;
    test.rig.chunks->looked = on_looked;
    test.rig.chunks->looked_arg = &turn;
    ask_send(ask_out, row->form, payload_of(row, turn.cid));
    test.rig.chunks->looked = NULL;
    assert_true(turn.looks > 0);
    assert_true(ask_out->is_done);
    assert_int_equal(ask_out->err, SHOAL_OK);
    chunks_drop(turn.cid, 1);
}

static void get_check(const struct row *row, uint32_t size, enum shoal_err err, uint32_t says,
                      uint32_t bytes)
{
    static struct ask ask; /* a failed test leaves it to the teardown */
    ask_meanwhile(row, size, &ask);
    if (sh_load16(ask.answer) != err || sh_load32(ask.answer + 2) != says)
        fail_msg("%s, resized to %u: %s, %u", row->name, size,
                 shoal_err_name((enum shoal_err)sh_load16(ask.answer)), sh_load32(ask.answer + 2));
    assert_int_equal(ask.size, SH_CHUNKS_GET_HEAD_BYTES + bytes);
    if (err == SHOAL_OK && bytes)
        assert_memory_equal(ask.answer + SH_CHUNKS_GET_HEAD_BYTES, pattern,
                            ANSWER_MAX - SH_CHUNKS_GET_HEAD_BYTES);
}

/* Where nothing happens in between, what is read is answered. */
static void test_get_unchanged(void **state)
{
    (void)state;
    const struct row get = {"get", SH_CHUNKS_GET, MEDIUM, 2 * LARGE, false};
    const struct row multi = {"multi get", SH_CHUNKS_MULTI_GET, MEDIUM, 2 * LARGE, false};
    get_check(&get, MEDIUM, SHOAL_OK, MEDIUM, MEDIUM);
    get_check(&multi, MEDIUM, SHOAL_OK, MEDIUM, MEDIUM);
}

/* With a log, what is read waits in memory for its answer: that is made for what was read. */
static void test_get_logged(void **state)
{
    (void)state;
    const struct row get = {"get", SH_CHUNKS_GET, MEDIUM, 2 * LARGE, false};
    const struct row small = {"get with little room", SH_CHUNKS_GET, MEDIUM, MEDIUM, false};
    get_check(&get, 2 * MEDIUM, SHOAL_OK, 2 * MEDIUM, 2 * MEDIUM);
    get_check(&get, SMALL, SHOAL_OK, SMALL, SMALL);
    get_check(&get, LARGE, SHOAL_OK, LARGE, LARGE);
    get_check(&get, 0, SHOAL_ENOCHUNK, 0, 0);
    get_check(&small, 2 * MEDIUM, SHOAL_ESIZE, 2 * MEDIUM, 0);
    get_check(&small, LARGE, SHOAL_ESIZE, LARGE, 0);
}

/* Without one it is read into an answer of the size that was seen first. */
static void test_get_unlogged(void **state)
{
    (void)state;
    const struct row get = {"get", SH_CHUNKS_GET, MEDIUM, 2 * LARGE, false};
    get_check(&get, 2 * MEDIUM, SHOAL_EBUSY, MEDIUM, MEDIUM);
    get_check(&get, SMALL, SHOAL_EBUSY, MEDIUM, MEDIUM);
    get_check(&get, LARGE, SHOAL_EBUSY, MEDIUM, MEDIUM);
    get_check(&get, 0, SHOAL_ENOCHUNK, MEDIUM, MEDIUM);
}

static void test_multi_get(void **state)
{
    (void)state;
    const struct row get = {"multi get", SH_CHUNKS_MULTI_GET, MEDIUM, 2 * LARGE, false};
    const struct row large = {"multi get, large", SH_CHUNKS_MULTI_GET, LARGE, 2 * LARGE, false};
    get_check(&get, 2 * MEDIUM, SHOAL_EBUSY, MEDIUM, MEDIUM);
    get_check(&get, SMALL, SHOAL_EBUSY, MEDIUM, MEDIUM);
    get_check(&get, 0, SHOAL_ENOCHUNK, MEDIUM, MEDIUM);
    get_check(&large, LARGE + 8, SHOAL_EBUSY, LARGE, LARGE);
    get_check(&large, 0, SHOAL_ENOCHUNK, LARGE, LARGE);
}

/* A part that the chunk was too short for is looked at again, to say how long it is. */
static void test_get_part(void **state)
{
    (void)state;
    static struct ask ask; /* a failed test leaves it to the teardown */
    static const uint32_t parts[] = {2 * SMALL, MEDIUM};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const struct row get = {"get part", SH_CHUNKS_GET_PART, SMALL, parts[i], false};
        ask_meanwhile(&get, parts[i], &ask);
        assert_int_equal(sh_load16(ask.answer), SHOAL_EBUSY);
        ask_meanwhile(&get, SMALL + 8, &ask);
        assert_int_equal(sh_load16(ask.answer), SHOAL_ESIZE);
        assert_int_equal(sh_load32(ask.answer + 2), SMALL + 8);
        ask_meanwhile(&get, 0, &ask);
        assert_int_equal(sh_load16(ask.answer), SHOAL_ENOCHUNK);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_get_unchanged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_unchanged, setup_unlogged, teardown),
        cmocka_unit_test_setup_teardown(test_get_logged, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_unlogged, setup_unlogged, teardown),
        cmocka_unit_test_setup_teardown(test_multi_get, setup, teardown),
        cmocka_unit_test_setup_teardown(test_multi_get, setup_unlogged, teardown),
        cmocka_unit_test_setup_teardown(test_get_part, setup, teardown),
        cmocka_unit_test_setup_teardown(test_get_part, setup_unlogged, teardown),
    };
    return cmocka_run_group_tests_name("reads", tests, NULL, NULL);
}
