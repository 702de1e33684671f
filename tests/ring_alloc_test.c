/* Superpeers of the ring, of which at each of their allocations one fails once, or memory is short for
 * a while: nothing that was acknowledged is lost, and they go on once memory is back (the checks are
 * those of ring_rig_int.h). */
#include "tests/alloc_int.h"
#include "tests/ring_rig_int.h"

static struct rig story;

static enum shoal_err put(unsigned key, uint64_t value)
{
    uint8_t command[COMMAND_BYTES];
    struct linear_op op = {.kind = LINEAR_PUT, .arg = value};
    uint64_t epoch, sequence;
    struct server *owner = answering(&story, key_shards[key]);
    command_put(command, &op);
    return owner ? sh_ring_update(owner->ring, now_at(owner), key_shards[key],
                                  sh_bytes_make(command, sizeof command), &epoch, &sequence)
                 : SHOAL_EAGAIN;
}

/* Superpeer 3 ends, which makes others owners; another one comes, and is given copies. */
static void life_with_failures(void)
{
    for (unsigned i = 0; i < 6; i++) {
        (void)put(i % KEYS, i);
        (void)rig_run(&story, NULL, 10 * MS);
    }
    kill_server(&story.servers[2], true);
    for (unsigned i = 0; i < 6; i++) {
        (void)put(i % KEYS, 10 + i);
        (void)rig_run(&story, NULL, 30 * MS);
    }
}

static void story_open(void)
{
    rig_open(&story, 1);
    story.lines = (struct lines){.delay_ns_max = MS};
    for (unsigned i = 0; i < 4; i++)
        (void)server_add(&story);
    assert_true(rig_run(&story, has_converged, 10 * S));
}

static bool run_story(size_t due, size_t times)
{
    story_open();
    alloc_fail_at(due, times);
    life_with_failures();
    size_t failed = alloc_fail_end();
    sh_world_restart(story.world, story.servers[2].node);
    if (!rig_run(&story, has_converged, 20 * S))
        fail_msg("allocation %zu: no agreement after memory is back", due);
    for (unsigned key = 0; key < KEYS; key++)
        assert_int_equal(put(key, 1000), SHOAL_OK);
    if (!rig_run(&story, has_converged, S))
        fail_msg("allocation %zu: a shard stands still", due);
    if (story.broken)
        fail_msg("allocation %zu: %s", due, story.broken);
    rig_close(&story);
    return failed > 0;
}

static void each_allocation(size_t times)
{
    size_t due = 1;
    for (size_t stride = 1; run_story(due, times); due += stride)
        stride = 1 + due / 20; /* what is the same for each shard comes again and again */
    print_message("%zu allocations\n", due - 1);
    assert_true(due > 100);
}

static void each_fails_once(void **state)
{
    (void)state;
    each_allocation(1);
}

static void from_each_on_many_fail(void **state)
{
    (void)state;
    each_allocation(40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_fails_once),
        cmocka_unit_test(from_each_on_many_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
