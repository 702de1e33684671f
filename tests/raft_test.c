/* Raft under kills, restarts, pauses, partitions, slow and failing disks, forgetful servers and
 * changes of members: what must hold is in raft_rig_int.h.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 200). SHOAL_TEST_SEED: the first of them. */
#include "tests/raft_rig_int.h"
#include "tests/seed_int.h"

/* --- Clients --------------------------------------------------------------------------------- */

static void call_begin(struct rig *rig, struct server *server, enum linear_kind kind)
{
    if (rig->ops_count == CALLS_MAX || !server->raft || !sh_world_is_up(rig->world, server->node))
        return;
    unsigned at = rig->ops_count;
    struct linear_op op = {.begin = sh_world_now(rig->world),
                           .end = LINEAR_PENDING,
                           .kind = kind,
                           .arg = 1000 + at,
                           .expected = 1000 + sh_prng_below(&rig->prng, at + 1)};
    struct call call = {.op = at, .life = server->boots + 1000 * server->number};
    enum shoal_err err = SHOAL_OK;
    if (kind == LINEAR_GET) {
        if (sh_raft_role(server->raft) != SH_RAFT_LEADER)
            return;
        call.what = CALL_READ;
        call.begin_ns = now_at(server);
        call.index = sh_raft_last(server->raft);
        call.term = sh_raft_term(server->raft);
    } else {
        uint8_t command[COMMAND_BYTES];
        command_put(command, &op);
        call.what = CALL_COMMAND;
        err = sh_raft_propose(server->raft, sh_bytes_make(command, sizeof command), &call.index,
                              &call.term);
    }
    if (err)
        return;
    rig->ops[at] = op;
    rig->calls[at] = call;
    rig->ops_count++;
}

/* Somebody who believes to lead is asked; mostly who does. */
static void client_acts(struct rig *rig)
{
    static const enum linear_kind kinds[] = {LINEAR_GET, LINEAR_GET, LINEAR_PUT, LINEAR_CAS,
                                             LINEAR_CREATE};
    struct server *server = leader_of(rig);
    if (!server || sh_prng_below(&rig->prng, 3) == 0)
        server = &rig->servers[sh_prng_below(&rig->prng, rig->count)];
    call_begin(rig, server, kinds[sh_prng_below(&rig->prng, 5)]);
}

/* --- Faults ---------------------------------------------------------------------------------- */

/* At most one server forgets at a time: what it may have promised is known to the others. And not
 * one of two voters, without whom there is no majority. */
static bool may_forget(const struct rig *rig)
{
    uint64_t voters;
    for (unsigned i = 0; i < rig->count; i++) {
        const struct server *server = &rig->servers[i];
        if (server->forgets || !server->raft || sh_raft_is_recovering(server->raft) ||
            !server->speaks)
            return false;
        voters = sh_raft_members(server->raft).voters;
        if (voters && __builtin_popcountll(voters) < 3)
            return false;
    }
    return true;
}

static void member_change(struct rig *rig)
{
    struct server *leader = leader_of(rig);
    if (!leader || rig->first.voters == (UINT64_C(2) << rig->count) - 2)
        return;
    struct sh_raft_members members = sh_raft_members(leader->raft);
    unsigned number = 1 + (unsigned)sh_prng_below(&rig->prng, rig->count);
    uint64_t bit = UINT64_C(1) << number;
    if (members.learners & bit) {
        members.learners &= ~bit;
        members.voters |= bit;
    } else if (members.voters & bit) {
        members.voters &= ~bit;
        if (__builtin_popcountll(members.voters) < 3)
            return; /* of two, each is needed, and one may be forgetful for ever */
    } else {
        members.learners |= bit;
    }
    rig->member_changes += !sh_raft_members_change(leader->raft, members);
}

/* Starts a server that is down, or whose disk let it down when it started last. */
static void server_restart(struct server *server)
{
    struct sh_world *world = server->rig->world;
    SH_ASSERT(!server->raft);
    if (sh_world_is_up(world, server->node))
        sh_world_crash(world, server->node);
    sh_world_restart(world, server->node);
}

static void fault(struct rig *rig)
{
    struct server *server = &rig->servers[sh_prng_below(&rig->prng, rig->count)];
    bool is_up = sh_world_is_up(rig->world, server->node);
    struct server *leader = leader_of(rig);
    if (sh_prng_below(&rig->prng, 3) == 0 && leader)
        server = leader;
    switch (sh_prng_below(&rig->prng, 8)) {
    case 0:
    case 1:
        if (!server->raft) {
            server_restart(server);
        } else if (server->raft && is_up) {
            if (may_forget(rig) && sh_prng_below(&rig->prng, 4) == 0) {
                server->forgets = true;
                server->life++;
            }
            sh_world_crash(rig->world, server->node);
        }
        break;
    case 2:
        if (server->raft && is_up)
            sh_world_pause(rig->world, server->node);
        break;
    case 3:
        if (server->raft)
            sh_world_resume(rig->world, server->node);
        break;
    case 4:
        lines_cut(&rig->lines, &rig->prng, rig->count);
        break;
    case 5:
        lines_heal(&rig->lines);
        break;
    default:
        member_change(rig);
        break;
    }
}

static void all_well(struct rig *rig)
{
    lines_heal(&rig->lines);
    rig->lines.drop_ppm = 0;
    sh_world_disk_faults_set(rig->world, &(struct sh_disk_faults){.delay_ns_max = MS});
    for (unsigned i = 0; i < rig->count; i++) {
        struct server *server = &rig->servers[i];
        if (server->raft)
            sh_world_resume(rig->world, i);
        else
            server_restart(server);
        if (server->boot_err)
            violated(rig, "a server did not start again");
    }
}

/* All members have applied everything, and a leader leads. */
static bool has_converged(void *arg)
{
    struct rig *rig = arg;
    struct server *leader = leader_of(rig);
    if (rig->broken)
        return true;
    if (!leader || sh_raft_commit(leader->raft) != sh_raft_last(leader->raft))
        return false;
    struct sh_raft_members members = sh_raft_members(leader->raft);
    for (unsigned i = 0; i < rig->count; i++) {
        const struct server *server = &rig->servers[i];
        if (!((members.voters | members.learners) >> server->number & 1))
            continue;
        if (!server->raft || sh_raft_applied(server->raft) != sh_raft_last(leader->raft) ||
            sh_raft_is_recovering(server->raft))
            return false;
    }
    return true;
}

static void check_logs(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        for (unsigned j = 0; j < i; j++) {
            const struct sh_raft *one = rig->servers[i].raft, *other = rig->servers[j].raft;
            bool must_agree = false;
            for (uint64_t at = one && other ? sh_raft_last(one) : 0; at > 0; at--) {
                uint64_t one_term, other_term;
                struct sh_bytes a, b;
                if (!sh_raft_entry(one, at, &one_term, &a) ||
                    !sh_raft_entry(other, at, &other_term, &b))
                    continue;
                bool agree = one_term == other_term;
                if ((agree || must_agree) &&
                    (!agree || a.size != b.size || (a.size && memcmp(a.at, b.at, a.size) != 0)))
                    violated(rig, "logs with the same term at an index differ before it");
                must_agree = agree;
            }
        }
    }
}

static void run_seed(struct rig *rig, uint64_t seed)
{
    unsigned count = seed % 2 ? 3 : 5;
    bool grows = seed % 5 == 0; /* the last one joins later, and members change */
    uint64_t voters = (UINT64_C(2) << count) - 2;
    if (grows)
        voters &= ~(UINT64_C(1) << count);
    rig_open(rig, seed, count, voters);
    rig_run(rig, NULL, S);
    unsigned rounds = 40 + (unsigned)sh_prng_below(&rig->prng, 80);
    uint32_t fault_ppm = (uint32_t)sh_prng_below(&rig->prng, 400000);
    for (unsigned i = 0; i < rounds && !rig->broken; i++) {
        rig_run(rig, NULL, sh_prng_below(&rig->prng, 100 * MS));
        client_acts(rig);
        if (sh_prng_chance(&rig->prng, fault_ppm))
            fault(rig);
        if (i % 16 == 0)
            check_logs(rig);
    }
    all_well(rig);
    rig_run(rig, has_converged, 20 * S);
    if (!has_converged(rig))
        violated(rig, "no agreement long after the last fault");
    check_logs(rig);
    enum linear_verdict verdict =
        rig->broken ? LINEAR_YES : linear_check(rig->ops, rig->ops_count, 0);
    rig->unjudged = verdict == LINEAR_TOO_LARGE;
    if (verdict == LINEAR_NO)
        violated(rig, "the register's history is not linearizable");
}

static void print_servers(const struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        const struct server *server = &rig->servers[i];
        const struct sh_raft *raft = server->raft;
        if (!raft) {
            print_error("  server %u: down, %s\n", server->number,
                        shoal_err_name(server->boot_err));
            continue;
        }
        struct sh_raft_members members = sh_raft_members(raft);
        print_error(
            "  server %u: role %d, leader %u, term %" PRIu64 ", last %" PRIu64 ", commit %" PRIu64
            ", applied %" PRIu64 ", voters %" PRIx64 ", learners %" PRIx64 "%s\n",
            server->number, (int)sh_raft_role(raft), sh_raft_leader(raft), sh_raft_term(raft),
            sh_raft_last(raft), sh_raft_commit(raft), sh_raft_applied(raft), members.voters,
            members.learners, sh_raft_is_recovering(raft) ? ", recovering" : "");
    }
}

static void run_whole(uint64_t seed, struct rig *sum)
{
    static struct rig rig;
    run_seed(&rig, seed);
    const char *broken = rig.broken;
    if (sum) {
        sum->answered += rig.answered;
        sum->unjudged += rig.unjudged;
        sum->leaders_count += rig.leaders_count;
        sum->snapshots += rig.snapshots;
        sum->chosen_last += rig.chosen_last;
        sum->member_changes += rig.member_changes;
    }
    if (broken)
        print_servers(&rig);
    if (broken && getenv("SHOAL_TEST_LOG"))
        linear_print(stderr, rig.ops, rig.ops_count);
    rig_close(&rig);
    if (broken)
        fail_msg("seed %" PRIu64 ": %s", seed, broken);
}

#define FIXED_SEEDS 120

static void fixed_seeds_hold(void **state)
{
    (void)state;
    struct rig sum = {0};
    for (uint64_t seed = 1; seed <= FIXED_SEEDS; seed++)
        run_whole(seed, &sum);
    print_message("%u calls answered, %u leaders, %u snapshots, %u changes of members, %" PRIu64
                  " entries, %u histories unjudged\n",
                  sum.answered, sum.leaders_count, sum.snapshots, sum.member_changes,
                  sum.chosen_last, sum.unjudged);
    /* Neither so calm nor so rough that nothing is seen. */
    assert_true(sum.answered > FIXED_SEEDS * 10);
    assert_true(sum.leaders_count > FIXED_SEEDS * 2);
    assert_true(sum.snapshots > 10);
    assert_true(sum.member_changes > 5);
    assert_in_range(sum.unjudged, 0, 40 / 10); /* a history that nobody judged proves nothing */
}

static struct rig fresh;
static unsigned fresh_count;

static void fresh_seed(uint64_t seed, uint64_t at)
{
    fresh_count = (unsigned)at + 1;
    run_whole(seed, &fresh);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(1000, fresh_seed);
    print_message("%u histories unjudged\n", fresh.unjudged);
    assert_in_range(fresh.unjudged, 0, 1 + fresh_count / 5);
}

/* The alarm works: leaders that answer reads without asking around are found out. */
static void stale_reads_are_noticed(void **state)
{
    (void)state;
    static struct rig rig;
    unsigned found = 0;
    for (uint64_t seed = 1; seed <= 1000 && !found; seed++) {
        rig.reads_at_once = true;
        run_seed(&rig, seed);
        found += rig.broken && strstr(rig.broken, "not linearizable");
        rig_close(&rig);
    }
    assert_true(found);
}

static void same_seed_same_trace(void **state)
{
    (void)state;
    static struct rig rig;
    uint64_t hashes[2];
    for (unsigned i = 0; i < 2; i++) {
        rig.reads_at_once = false;
        run_seed(&rig, 7);
        hashes[i] = sh_world_trace_hash(rig.world);
        rig_close(&rig);
    }
    assert_true(hashes[0] == hashes[1]);
}

/* --- Stories: a cluster that grew from one --------------------------------------------------- */

static struct rig story;

static void lines_set(unsigned one, unsigned other, bool is_blocked)
{
    story.lines.blocked[one - 1][other - 1] = is_blocked;
    story.lines.blocked[other - 1][one - 1] = is_blocked;
}

static struct sh_raft *raft_of(unsigned number)
{
    return story.servers[number - 1].raft;
}

static bool leads(unsigned number)
{
    return raft_of(number) && sh_raft_role(raft_of(number)) == SH_RAFT_LEADER;
}

static uint64_t raft_id(unsigned number)
{
    return sh_raft_log_id(raft_of(number));
}

static void run_until_leader(unsigned number)
{
    for (unsigned i = 0; i < 500 && !leads(number); i++)
        rig_run(&story, NULL, 10 * MS);
    assert_true(leads(number));
}

/* Proposes a put of that value at a server, which leads, and lets the others hear of it. */
static void put_at(unsigned number, uint64_t value)
{
    uint8_t command[COMMAND_BYTES];
    struct linear_op op = {.kind = LINEAR_CREATE, .arg = value};
    uint64_t index, term;
    command_put(command, &op);
    assert_int_equal(
        sh_raft_propose(raft_of(number), sh_bytes_make(command, sizeof command), &index, &term),
        SHOAL_OK);
    rig_run(&story, NULL, 100 * MS);
}

static void members_set(unsigned leader, uint64_t voters, uint64_t learners)
{
    struct sh_raft_members members = {.voters = voters, .learners = learners};
    enum shoal_err err = SHOAL_EBUSY;
    for (unsigned i = 0; i < 100 && err == SHOAL_EBUSY; i++) {
        err = sh_raft_members_change(raft_of(leader), members);
        rig_run(&story, NULL, 50 * MS);
    }
    assert_int_equal(err, SHOAL_OK);
}

/* Three calm servers. Server 1 founds the log alone; servers 2 and 3 wait to be added. */
static void story_open(void)
{
    story.snapshot_entries_told = 12;
    rig_open(&story, 1, 3, 1u << 1);
    story.lines = (struct lines){.delay_ns_max = MS};
    sh_world_disk_faults_set(story.world, &(struct sh_disk_faults){.delay_ns_max = MS});
}

/* Server 1 takes a first command and makes servers 2 and 3 voters: entries 1 to 6, all of term 1
 * (or of the term in which server 1 leads since its restart). */
static void story_grow(void)
{
    run_until_leader(1);
    put_at(1, 100);
    members_set(1, 1u << 1, 1u << 2);
    members_set(1, 1u << 1 | 1u << 2, 0);
    members_set(1, 1u << 1 | 1u << 2, 1u << 3);
    members_set(1, 14, 0);
    rig_run(&story, NULL, 500 * MS);
}

/* Server 1 starts again, on an empty folder, and as the only first member: as it did when the
 * cluster was new. */
static void server_1_loses_its_folder(void)
{
    struct server *server = &story.servers[0];
    sh_world_crash(story.world, 0);
    server->forgets = true;
    server->life++;
    server->is_apart = true;
    sh_world_restart(story.world, 0);
}

/* Server 1 loses its folder and leads a log of its own, whose first entries have the same terms as
 * those of the survivors. Server 2 leads the survivors and hears server 1, but no longer server 3.
 * Then server 2 stops, and server 3 hears server 1. Without an identity of the log, server 1
 * appends server 2's entries to its own, is elected with them by server 3, and replaces the state
 * of server 3 by its own. */
static void a_first_server_without_its_folder_harms_nobody(void **state)
{
    (void)state;
    story_open();
    story_grow();
    lines_set(1, 2, true);
    lines_set(1, 3, true);
    server_1_loses_its_folder();
    run_until_leader(1);
    put_at(1, 200);
    for (unsigned i = 0; i < 100 && !leads(2) && !leads(3); i++)
        rig_run(&story, NULL, 100 * MS);
    unsigned ahead = leads(2) ? 2 : 3, behind = 5 - ahead;
    assert_true(leads(ahead));
    rig_run(&story, NULL, S);
    lines_set(2, 3, true);
    lines_set(1, ahead, false);
    for (unsigned i = 0; i < 20 && leads(ahead); i++)
        put_at(ahead, 300 + i);
    sh_world_crash(story.world, ahead - 1);
    lines_set(1, behind, false);
    rig_run(&story, NULL, 5 * S);
    assert_int_equal(sh_raft_withdrawal(raft_of(1)), SH_RAFT_OTHER_LOG_THAN_MEMBERS);
    assert_true(sh_raft_refused_count(raft_of(1)) > 0);
    sh_world_restart(story.world, ahead - 1);
    lines_heal(&story.lines);
    rig_run(&story, NULL, 5 * S);
    if (story.broken)
        print_servers(&story);
    assert_null(story.broken);
    assert_int_equal(sh_raft_withdrawal(raft_of(ahead)), SH_RAFT_TAKES_PART);
    assert_int_equal(sh_raft_withdrawal(raft_of(behind)), SH_RAFT_TAKES_PART);
    assert_true(leads(2) || leads(3));
    assert_int_equal(sh_raft_applied(raft_of(2)), sh_raft_applied(raft_of(3)));
    assert_true(raft_id(2) && raft_id(2) == raft_id(3) && raft_id(1) != raft_id(2));
    rig_close(&story);
}

/* The disks of servers 2 and 3 stop storing for four seconds while a command is on its way to them:
 * server 1 leads on in the same term, and proves again and again that it does. The command is
 * committed when a disk goes on. */
static void a_leader_outlasts_followers_whose_disks_stall(void **state)
{
    (void)state;
    story_open();
    story_grow();
    uint64_t term = sh_raft_term(raft_of(1)), commit = sh_raft_commit(raft_of(1));
    sh_world_disk_delay_set(story.world, 1, 4 * S, 4 * S);
    sh_world_disk_delay_set(story.world, 2, 4 * S, 4 * S);
    put_at(1, 200);
    for (unsigned i = 0; i < 30; i++) {
        uint64_t before_ns = now_at(&story.servers[0]);
        rig_run(&story, NULL, 100 * MS);
        assert_true(leads(1));
        assert_true(sh_raft_led_ns(raft_of(1), now_at(&story.servers[0])) > before_ns - 100 * MS);
    }
    assert_int_equal(sh_raft_commit(raft_of(1)), commit);
    sh_world_disk_delay_set(story.world, 1, 0, 0);
    sh_world_disk_delay_set(story.world, 2, 0, 0);
    rig_run(&story, NULL, 20 * S);
    assert_int_equal(sh_raft_commit(raft_of(1)), commit + 1);
    assert_int_equal(sh_raft_term(raft_of(1)), term);
    assert_null(story.broken);
    rig_close(&story);
}

/* Server 3 is started on a backup of its folder, of which servers 1 and 2 know a later start: it
 * gives no vote and holds no entry, learns so, and withdraws. */
static void a_restored_backup_takes_no_part(void **state)
{
    (void)state;
    story_open();
    story_grow();
    uint64_t life = sh_raft_life(raft_of(3));
    for (unsigned i = 1; i <= 2; i++)
        sh_raft_life_set(raft_of(i), 3, life + (UINT64_C(2) << 32));
    sh_world_crash(story.world, 2);
    sh_world_crash(story.world, 1);
    sh_world_restart(story.world, 2); /* the second start: one too few */
    assert_int_equal(sh_raft_life(raft_of(3)) >> 32, (life >> 32) + 1);
    uint64_t commit = sh_raft_commit(raft_of(1));
    put_at(1, 200);
    rig_run(&story, NULL, S);
    assert_int_equal(sh_raft_commit(raft_of(1)), commit);
    assert_int_equal(sh_raft_withdrawal(raft_of(3)), SH_RAFT_OLDER_LIFE);
    sh_world_restart(story.world, 1);
    rig_run(&story, NULL, 3 * S);
    assert_true(sh_raft_commit(raft_of(1)) > commit);
    assert_true(leads(1) || leads(2));
    assert_null(story.broken);
    rig_close(&story);
}

/* Two copies of a folder have counted as many starts; their random bits tell them apart. */
static void a_clone_takes_no_part(void **state)
{
    (void)state;
    story_open();
    story_grow();
    uint64_t life = sh_raft_life(raft_of(3));
    sh_raft_life_set(raft_of(1), 3, life);
    rig_run(&story, NULL, S);
    assert_int_equal(sh_raft_refused_count(raft_of(1)), 0);
    sh_raft_life_set(raft_of(1), 3, life ^ 1);
    rig_run(&story, NULL, S);
    assert_true(sh_raft_refused_count(raft_of(1)) > 0);
    assert_int_equal(sh_raft_withdrawal(raft_of(3)), SH_RAFT_OLDER_LIFE);
    sh_raft_life_set(raft_of(2), 2, sh_raft_life(raft_of(2)) + (UINT64_C(1) << 32));
    assert_int_equal(sh_raft_withdrawal(raft_of(2)), SH_RAFT_OLDER_LIFE);
    rig_close(&story);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
        cmocka_unit_test(stale_reads_are_noticed),
        cmocka_unit_test(same_seed_same_trace),
        cmocka_unit_test(a_first_server_without_its_folder_harms_nobody),
        cmocka_unit_test(a_leader_outlasts_followers_whose_disks_stall),
        cmocka_unit_test(a_restored_backup_takes_no_part),
        cmocka_unit_test(a_clone_takes_no_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
