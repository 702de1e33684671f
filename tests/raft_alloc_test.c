/* Three servers of raft, of which at each of their allocations one fails once, or memory is short for
 * a while: nothing that was acknowledged is lost, and they go on once memory is back (the checks are
 * those of raft_rig_int.h). */
#include "tests/alloc_int.h"
#include "tests/raft_rig_int.h"

static struct rig story;

static bool has_led(void *arg)
{
    (void)arg;
    return leader_of(&story) != NULL;
}

/* All have applied what the leader has. */
static bool has_converged(void *arg)
{
    (void)arg;
    struct server *leader = leader_of(&story);
    for (unsigned i = 0; leader && i < story.count; i++) {
        if (sh_raft_applied(story.servers[i].raft) != sh_raft_last(leader->raft))
            return false;
    }
    return leader != NULL;
}

static enum shoal_err put(uint64_t value)
{
    uint8_t command[COMMAND_BYTES];
    struct linear_op op = {.kind = LINEAR_PUT, .arg = value};
    uint64_t index, term;
    struct server *leader = leader_of(&story);
    command_put(command, &op);
    return leader ? sh_raft_propose(leader->raft, sh_bytes_make(command, sizeof command), &index,
                                    &term)
                  : SHOAL_EAGAIN;
}

static void blocked_set(unsigned at, bool is_blocked)
{
    for (unsigned i = 0; i < story.count; i++)
        story.lines.blocked[at][i] = story.lines.blocked[i][at] = is_blocked;
}

/* Server 3 is away for longer than entries are kept, and is given a snapshot. */
static void life_with_failures(void)
{
    blocked_set(2, true);
    for (unsigned i = 0; i < 16; i++) {
        (void)put(i);
        rig_run(&story, NULL, 20 * MS);
    }
    blocked_set(2, false);
    for (unsigned i = 0; i < 4; i++) {
        (void)put(i);
        rig_run(&story, NULL, 100 * MS);
    }
}

static void story_open(void)
{
    story.snapshot_entries_told = 6;
    rig_open(&story, 1, 3, 14);
    story.lines = (struct lines){.delay_ns_max = MS};
    sh_world_disk_faults_set(story.world, &(struct sh_disk_faults){.delay_ns_max = MS});
    rig_run(&story, has_led, 20 * S);
    rig_run(&story, NULL, S);
    assert_non_null(leader_of(&story));
}

/* Returns whether as many allocations as that were tried. */
static bool run_story(size_t due, size_t times)
{
    story_open();
    alloc_fail_at(due, times);
    life_with_failures();
    size_t failed = alloc_fail_end();
    uint64_t committed = story.committed;
    rig_run(&story, has_converged, 20 * S);
    if (!has_converged(NULL))
        fail_msg("allocation %zu: no agreement after memory is back", due);
    assert_int_equal(put(1000), SHOAL_OK);
    rig_run(&story, NULL, S);
    for (unsigned i = 0; i < story.count; i++)
        if (sh_raft_applied(story.servers[i].raft) <= committed)
            fail_msg("allocation %zu: server %u stands still", due, i + 1);
    if (story.broken)
        fail_msg("allocation %zu: %s", due, story.broken);
    rig_close(&story);
    return failed > 0;
}

static void each_allocation(size_t times)
{
    size_t due = 1;
    while (run_story(due, times))
        due++;
    print_message("%zu allocations failed, one by one\n", due - 1);
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
