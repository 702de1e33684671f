/* The ring under kills, restarts, pauses, partitions, losses, superpeers that come and go: what
 * must hold is in ring_rig_int.h.
 *
 * SHOAL_TEST_SEEDS: how many fresh seeds (default 40). SHOAL_TEST_SEED: the first of them. */
#include "tests/ring_rig_int.h"
#include "tests/seed_int.h"

#define UNDECIDED_MAX 12

/* --- Clients --------------------------------------------------------------------------------- */

static bool read_begin(struct rig *rig, const struct server *server, unsigned key,
                       struct linear_op *op)
{
    if (!answers(server, key_shards[key]))
        return false;
    const struct state *state = &server->states[key_shards[key]];
    op->end = sh_world_now(rig->world) + 1;
    op->result = state->present ? LINEAR_OK : LINEAR_ABSENT;
    op->got = state->value;
    rig->answered++;
    return true;
}

static bool update_begin(struct rig *rig, struct server *server, unsigned at)
{
    const struct linear_op *op = &rig->ops[at];
    struct call *call = &rig->calls[at];
    unsigned shard = key_shards[call->key];
    bool was_present = server->states[shard].present;
    uint8_t command[COMMAND_BYTES];
    command_put(command, op);
    call->is_open = true;
    if (sh_ring_update(server->ring, now_at(server), shard, sh_bytes_make(command, sizeof command),
                       &call->epoch, &call->sequence))
        return false;
    if (rig->answers_early && call->is_open && op->kind == LINEAR_PUT && was_present)
        call_end(rig, at, LINEAR_OK);
    return true;
}

static void call_begin(struct rig *rig, struct server *server, unsigned key, enum linear_kind kind)
{
    if (rig->ops_count == CALLS_MAX || !server->ring || server->is_paused)
        return;
    unsigned at = rig->ops_count++;
    rig->ops[at] = (struct linear_op){.key = key,
                                      .begin = sh_world_now(rig->world),
                                      .end = LINEAR_PENDING,
                                      .kind = kind,
                                      .arg = 1000 + at,
                                      .expected = 1000 + sh_prng_below(&rig->prng, at + 1)};
    rig->calls[at] = (struct call){.boot = server->boot, .server = server->nid, .key = key};
    bool is_begun = kind == LINEAR_GET ? read_begin(rig, server, key, &rig->ops[at])
                                       : update_begin(rig, server, at);
    if (!is_begun)
        rig->ops_count--; /* refused: as if it had never been made */
}

/* Calls on a register that may have been done and may still be: each doubles what the check has to try. */
static unsigned undecided(const struct rig *rig, unsigned key)
{
    unsigned count = 0;
    for (unsigned i = 0; i < rig->ops_count; i++)
        count += rig->ops[i].key == key && rig->ops[i].end == LINEAR_PENDING;
    return count;
}

/* A superpeer is asked: mostly the one that owns the shard, else one that may believe so. */
static void client_acts(struct rig *rig)
{
    static const enum linear_kind kinds[] = {LINEAR_GET, LINEAR_GET, LINEAR_PUT,
                                             LINEAR_PUT, LINEAR_CAS, LINEAR_CREATE};
    unsigned key = (unsigned)sh_prng_below(&rig->prng, KEYS);
    uint8_t owner = rig->arcs.shards[key_shards[key]].owner;
    struct server *server = &rig->servers[sh_prng_below(&rig->prng, rig->count)];
    if (owner && sh_prng_below(&rig->prng, 3))
        server = &rig->servers[owner - 1];
    bool may_update = undecided(rig, key) < UNDECIDED_MAX;
    call_begin(rig, server, key, kinds[sh_prng_below(&rig->prng, may_update ? 6 : 2)]);
}

/* --- Faults ---------------------------------------------------------------------------------- */

static void come_or_go(struct rig *rig, struct server *server)
{
    bool is_up = rig->arcs.up & sh_arc_bit(server->nid);
    if (!server->ring) {
        sh_world_restart(rig->world, server->node);
    } else if (is_up && has_quorum(rig) && __builtin_popcountll(rig->arcs.up) > 2) {
        if (sh_arcs_retire(&rig->arcs, server->nid))
            table_changed(rig);
    }
}

/* Who has handed everything over ends. */
static void retired_end(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        struct server *server = &rig->servers[i];
        uint64_t bit = sh_arc_bit(server->nid);
        if (!(rig->arcs.present & ~rig->arcs.up & bit) || !server->ring ||
            !sh_arcs_is_bare(&rig->arcs, server->nid) || !has_quorum(rig))
            continue;
        (void)sh_arcs_gone(&rig->arcs, server->nid);
        table_changed(rig);
        rig->retired[i] = true;
        server->is_absent = true;
        sh_world_resume(rig->world, server->node);
        kill_server(server, false);
    }
}

static void fault(struct rig *rig)
{
    struct server *server = &rig->servers[sh_prng_below(&rig->prng, rig->count)];
    switch (sh_prng_below(&rig->prng, 12)) {
    case 0:
    case 1:
        if (!server->ring)
            sh_world_restart(rig->world, server->node);
        else if (!server->is_paused)
            kill_server(server, sh_prng_below(&rig->prng, 2));
        break;
    case 2:
        if (server->ring) {
            sh_world_pause(rig->world, server->node);
            server->is_paused = true;
        }
        break;
    case 3:
        if (server->ring)
            sh_world_resume(rig->world, server->node);
        server->is_paused = false;
        break;
    case 4:
        server->is_cut = !server->is_cut;
        break;
    case 5:
        lines_cut(&rig->lines, &rig->prng, rig->count);
        break;
    case 6:
        lines_heal(&rig->lines);
        break;
    case 7: /* a disk that takes long, or does no longer */
        sh_world_disk_delay_set(rig->world, server->node, 0,
                                sh_prng_below(&rig->prng, 2) ? 0 : 2 * PATIENCE);
        break;
    case 8: /* all are killed */
        for (unsigned i = 0; sh_prng_below(&rig->prng, 3) == 0 && i < rig->count; i++)
            if (rig->servers[i].ring)
                kill_server(&rig->servers[i], false);
        break;
    case 9:
        for (unsigned i = 0; i < rig->count; i++)
            if (!rig->servers[i].ring)
                sh_world_restart(rig->world, i);
        break;
    default:
        come_or_go(rig, server);
        break;
    }
}

static void all_well(struct rig *rig)
{
    lines_heal(&rig->lines);
    rig->lines.drop_ppm = 0;
    for (unsigned i = 0; i < rig->count; i++) {
        struct server *server = &rig->servers[i];
        server->is_cut = server->is_paused = false;
        sh_world_disk_delay_set(rig->world, i, 0, 0);
        if (server->ring)
            sh_world_resume(rig->world, i);
        else
            sh_world_restart(rig->world, i);
        if (!(rig->arcs.up & sh_arc_bit(server->nid)) &&
            (rig->arcs.present & sh_arc_bit(server->nid)))
            (void)sh_arcs_up(&rig->arcs, server->nid); /* it was to retire */
    }
    table_changed(rig);
}

/* --- Seeds ----------------------------------------------------------------------------------- */

static void registers_check(struct rig *rig)
{
    for (unsigned i = 0; i < KEYS && !rig->broken; i++) {
        enum linear_verdict verdict = linear_check(rig->ops, rig->ops_count, i);
        rig->unjudged += verdict == LINEAR_TOO_LARGE;
        if (verdict == LINEAR_NO)
            violated(rig, "a register's history is not linearizable");
    }
}

static void all_answering(struct rig *rig)
{
    for (unsigned i = 0; i < SH_SHARDS; i++)
        (void)answering(rig, i);
}

static void run_seed(struct rig *rig, uint64_t seed)
{
    unsigned count = 3 + (unsigned)(seed % 3) * 2;
    rig_open(rig, seed);
    for (unsigned i = 0; i < count; i++)
        (void)server_add(rig);
    if (!rig_run(rig, has_converged, 10 * S))
        violated(rig, "a new ring does not begin");
    rig->lines.drop_ppm = sh_prng_below(&rig->prng, 2) ? 0 : 50000;
    rig->lines.twice_ppm = 20000;
    unsigned rounds = 60 + (unsigned)sh_prng_below(&rig->prng, 120);
    uint32_t fault_ppm = (uint32_t)sh_prng_below(&rig->prng, 300000);
    for (unsigned i = 0; i < rounds && !rig->broken; i++) {
        (void)rig_run(rig, NULL, sh_prng_below(&rig->prng, 40 * MS));
        for (unsigned j = 0; j < 3; j++)
            client_acts(rig);
        if (sh_prng_chance(&rig->prng, fault_ppm))
            fault(rig);
        retired_end(rig);
        all_answering(rig);
    }
    all_well(rig);
    if (!rig->broken && !rig_run(rig, has_converged, 10 * S))
        violated(rig, "no agreement long after the last fault");
    registers_check(rig);
}

static void print_shards(const struct rig *rig)
{
    print_error("  up %" PRIx64 ", present %" PRIx64 "\n", rig->arcs.up, rig->arcs.present);
    for (unsigned i = 0; i < KEYS; i++) {
        const struct sh_shard *shard = &rig->arcs.shards[key_shards[i]];
        print_error("  shard %u: version %" PRIu64 ", owner %u, replicas %" PRIx64 ":",
                    key_shards[i], shard->version, shard->owner, shard->replicas);
        for (unsigned j = 0; j < rig->count; j++) {
            const struct server *server = &rig->servers[j];
            if (server->ring)
                print_error(" %u=%" PRIu64 "/%" PRIu64, server->nid,
                            sh_ring_applied(server->ring, key_shards[i]),
                            sh_ring_last(server->ring, key_shards[i]));
        }
        print_error("\n");
    }
}

struct sum {
    unsigned answered, snapshots, builds, unjudged;
};

static void run_whole(uint64_t seed, struct sum *sum)
{
    static struct rig rig;
    run_seed(&rig, seed);
    const char *broken = rig.broken;
    sum->answered += rig.answered;
    sum->snapshots += rig.snapshots;
    sum->builds += rig.builds;
    sum->unjudged += rig.unjudged;
    if (broken)
        print_shards(&rig);
    if (broken && getenv("SHOAL_TEST_LOG"))
        linear_print(stderr, rig.ops, rig.ops_count);
    rig_close(&rig);
    if (broken)
        fail_msg("seed %" PRIu64 ": %s", seed, broken);
}

static void sum_print(const struct sum *sum)
{
    print_message("%u calls answered, %u snapshots, %u shards built, %u histories unjudged\n",
                  sum->answered, sum->snapshots, sum->builds, sum->unjudged);
}

static void fixed_seeds_hold(void **state)
{
    (void)state;
    struct sum sum = {0};
    for (uint64_t seed = 1; seed <= 30; seed++)
        run_whole(seed, &sum);
    sum_print(&sum);
    /* Neither so calm nor so rough that nothing is seen. */
    assert_true(sum.answered > 30 * 40);
    assert_true(sum.snapshots > 30 * SH_SHARDS);
    assert_in_range(sum.unjudged, 0, 30 * KEYS / 10);
}

static struct sum fresh;
static unsigned fresh_count;

static void fresh_seed(uint64_t seed, uint64_t at)
{
    fresh_count = (unsigned)at + 1;
    run_whole(seed, &fresh);
}

static void fresh_seeds_hold(void **state)
{
    (void)state;
    test_fresh_seeds(40, fresh_seed);
    sum_print(&fresh);
    assert_in_range(fresh.unjudged, 0, 1 + fresh_count * KEYS / 5);
}

/* The alarm works: owners that answer without a lease are found out, and such that answer before
 * all replicas have an update. */
static void plant(bool leases_never_end, bool answers_early)
{
    static struct rig rig;
    unsigned found = 0;
    uint64_t seed = 1;
    for (; seed <= 300 && !found; seed++) {
        rig.leases_never_end = leases_never_end;
        rig.answers_early = answers_early;
        run_seed(&rig, seed);
        found += rig.broken && !strstr(rig.broken, "agreement");
        rig_close(&rig);
    }
    rig.leases_never_end = rig.answers_early = false;
    assert_true(found);
    print_message("found with seed %" PRIu64 "\n", seed - 1);
}

static void leases_without_end_are_noticed(void **state)
{
    (void)state;
    plant(true, false);
}

static void early_answers_are_noticed(void **state)
{
    (void)state;
    plant(false, true);
}

static void same_seed_same_trace(void **state)
{
    (void)state;
    static struct rig rig;
    uint64_t hashes[2];
    for (unsigned i = 0; i < 2; i++) {
        run_seed(&rig, 7);
        hashes[i] = sh_world_trace_hash(rig.world);
        rig_close(&rig);
    }
    assert_true(hashes[0] == hashes[1]);
}

/* --- One thing at a time --------------------------------------------------------------------- */

static void open_with(struct rig *rig, unsigned count)
{
    rig_open(rig, 99);
    for (unsigned i = 0; i < count; i++)
        (void)server_add(rig);
    assert_true(rig_run(rig, has_converged, 10 * S));
}

static void put(struct rig *rig, unsigned key, enum linear_kind kind)
{
    unsigned before = rig->answered;
    struct server *owner = &rig->servers[rig->arcs.shards[key_shards[key]].owner - 1];
    call_begin(rig, owner, key, kind);
    (void)rig_run(rig, NULL, S / 2);
    assert_int_equal(rig->answered, before + 1);
}

static uint64_t value_at_owner(struct rig *rig, unsigned key)
{
    const struct server *owner = answering(rig, key_shards[key]);
    assert_non_null(owner);
    return owner->states[key_shards[key]].value;
}

/* A killed owner's successor answers as soon as the registry has called the owner gone. */
static bool all_answer(void *arg)
{
    struct rig *rig = arg;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (!answering(rig, i))
            return false;
    }
    return true;
}

static void successor_takes_over(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 5);
    put(&rig, 0, LINEAR_CREATE);
    uint64_t value = value_at_owner(&rig, 0);
    for (unsigned i = 0; i < 2; i++) {
        struct server *owner = answering(&rig, key_shards[0]);
        uint64_t killed_ns = sh_world_now(rig.world);
        kill_server(owner, true);
        (void)rig_run(&rig, NULL, MS);
        assert_true(rig_run(&rig, all_answer, S));
        print_message("all shards answer %" PRIu64 " ms after a superpeer was killed\n",
                      (sh_world_now(rig.world) - killed_ns) / MS);
        assert_true(value_at_owner(&rig, 0) == value);
    }
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_null(rig.broken);
    rig_close(&rig);
}

/* Arcs are split by those who come, and merged when they go; nothing is lost by either. */
static void superpeers_come_and_go(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 1);
    put(&rig, 0, LINEAR_CREATE);
    put(&rig, 1, LINEAR_CREATE);
    uint64_t values[2] = {value_at_owner(&rig, 0), value_at_owner(&rig, 1)};
    for (unsigned i = 0; i < 5; i++) {
        (void)server_add(&rig);
        (void)rig_run(&rig, NULL, S / 5); /* it is heard of */
        assert_true(rig_run(&rig, has_converged, 10 * S));
    }
    for (unsigned i = 0; i < 4; i++) {
        assert_true(value_at_owner(&rig, 0) == values[0]);
        assert_true(value_at_owner(&rig, 1) == values[1]);
        assert_true(sh_arcs_retire(&rig.arcs, i + 1));
        table_changed(&rig);
        assert_true(rig_run(&rig, has_converged, 10 * S));
        assert_true(sh_arcs_is_bare(&rig.arcs, i + 1));
        retired_end(&rig);
        assert_null(rig.servers[i].ring);
    }
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_true(value_at_owner(&rig, 0) == values[0]);
    assert_int_equal(rig.builds, SH_SHARDS); /* at the beginning */
    assert_null(rig.broken);
    rig_close(&rig);
}

/* All are killed at once, and started again: what was answered is there. */
static void all_are_killed(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 3);
    put(&rig, 0, LINEAR_CREATE);
    uint64_t value = value_at_owner(&rig, 0);
    for (unsigned i = 0; i < 3; i++)
        kill_server(&rig.servers[i], false);
    (void)rig_run(&rig, NULL, 10 * MS);
    for (unsigned i = 0; i < 3; i++)
        sh_world_restart(rig.world, i);
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_int_equal(rig.builds, SH_SHARDS);
    assert_true(value_at_owner(&rig, 0) == value);
    put(&rig, 0, LINEAR_CREATE);
    assert_int_equal(rig.ops[rig.ops_count - 1].result, LINEAR_EXISTS);
    assert_null(rig.broken);
    rig_close(&rig);
}

/* An owner that the registry hears goes on without a replica that it can't reach, as long as two are
 * left. */
static void unreachable_replica_is_dropped(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 3);
    put(&rig, 0, LINEAR_CREATE);
    struct server *owner = answering(&rig, key_shards[0]);
    unsigned cut = (owner->node + 1) % 3;
    rig.lines.blocked[owner->node][cut] = true;
    put(&rig, 0, LINEAR_PUT);
    assert_int_equal(rig.arcs.shards[key_shards[0]].replicas,
                     (sh_arc_bit(1) | sh_arc_bit(2) | sh_arc_bit(3)) & ~sh_arc_bit(cut + 1));
    lines_heal(&rig.lines);
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_null(rig.broken);
    rig_close(&rig);
}

static bool other_answers(void *arg)
{
    struct rig *rig = arg;
    const struct server *found = answering(rig, key_shards[0]);
    return found && found->nid != rig->left_alone;
}

/* An owner that reaches no replica hands over, though the registry hears it; one that nobody hears
 * answers nothing any more. */
static void partitions(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 3);
    put(&rig, 0, LINEAR_CREATE);
    struct server *owner = answering(&rig, key_shards[0]);
    uint64_t value = value_at_owner(&rig, 0);
    rig.left_alone = owner->nid;
    for (unsigned i = 0; i < 3; i++)
        rig.lines.blocked[owner->node][i] = true;
    call_begin(&rig, owner, 0, LINEAR_PUT);
    assert_true(rig_run(&rig, other_answers, 10 * S));
    assert_true(value_at_owner(&rig, 0) == value); /* what one has alone was never answered */
    put(&rig, 0, LINEAR_PUT);
    value = value_at_owner(&rig, 0);
    lines_heal(&rig.lines);
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_ptr_equal(answering(&rig, key_shards[0]), owner);
    assert_true(value_at_owner(&rig, 0) == value);
    owner->is_cut = true;
    (void)rig_run(&rig, NULL, LEASE + 2 * rig.lines.delay_ns_max);
    assert_false(answers(owner, key_shards[0]));
    (void)rig_run(&rig, NULL, S);
    assert_ptr_not_equal(answering(&rig, key_shards[0]), owner);
    assert_true(value_at_owner(&rig, 0) == value);
    owner->is_cut = false;
    (void)rig_run(&rig, NULL, S / 5);
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_ptr_equal(answering(&rig, key_shards[0]), owner);
    assert_true(value_at_owner(&rig, 0) == value);
    assert_null(rig.broken);
    rig_close(&rig);
}

/* An owner whose disk does not advance leaves the shard to a replica, which goes on without it. */
static void stalled_disk_is_done_without(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 3);
    put(&rig, 0, LINEAR_CREATE);
    struct server *owner = answering(&rig, key_shards[0]);
    uint64_t value = value_at_owner(&rig, 0);
    rig.left_alone = owner->nid;
    sh_world_disk_delay_set(rig.world, owner->node, 1000 * S, 1000 * S);
    call_begin(&rig, owner, 0, LINEAR_PUT);
    assert_true(rig_run(&rig, other_answers, 10 * S));
    call_begin(&rig, answering(&rig, key_shards[0]), 0, LINEAR_PUT);
    (void)rig_run(&rig, NULL, 3 * S);
    assert_true(value_at_owner(&rig, 0) != value);
    assert_false(rig.arcs.shards[key_shards[0]].replicas & sh_arc_bit(owner->nid));
    kill_server(owner, true);
    sh_world_disk_delay_set(rig.world, owner->node, 0, 0);
    sh_world_restart(rig.world, owner->node);
    assert_true(rig_run(&rig, has_converged, 10 * S));
    assert_null(rig.broken);
    rig_close(&rig);
}

#define LARGE (512u << 10)
#define WRITES_MAX 3 /* that are under way when an update comes, with the update, and one more */

static bool last_is_answered(void *arg)
{
    struct rig *rig = arg;
    return !rig->calls[rig->ops_count - 1].is_open;
}

/* While a large shard's snapshot is written, to a slow disk, updates of another shard wait for a few writes
 * of the disk each, not for the snapshot. */
static void snapshots_stall_nothing(void **state)
{
    (void)state;
    static struct rig rig;
    open_with(&rig, 1);
    put(&rig, 1, LINEAR_CREATE);
    struct server *owner = answering(&rig, key_shards[1]);
    struct sh_journal_counts before, after = sh_journal_counts(owner->journal);
    unsigned meanwhile = 0;
    uint64_t writes_max = 0;
    rig.padding = LARGE;
    sh_world_disk_delay_set(rig.world, owner->node, 4 * MS, 4 * MS);
    while (after.snapshot_bytes < LARGE) {
        before = after;
        assert_true(rig.ops_count < CALLS_MAX);
        call_begin(&rig, owner, 1, LINEAR_PUT);
        assert_true(rig_run(&rig, last_is_answered, S));
        after = sh_journal_counts(owner->journal);
        uint64_t writes = after.batches - before.batches;
        writes_max = writes > writes_max ? writes : writes_max;
        meanwhile += after.snapshot_bytes - before.snapshot_bytes > SNAPSHOT_BYTES;
    }
    print_message("%u updates were answered while a snapshot was written, after %" PRIu64
                  " writes at most\n",
                  meanwhile, writes_max);
    assert_in_range(writes_max, 1, WRITES_MAX);
    assert_true(meanwhile > 50);
    assert_null(rig.broken);
    rig_close(&rig);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(successor_takes_over),
        cmocka_unit_test(superpeers_come_and_go),
        cmocka_unit_test(all_are_killed),
        cmocka_unit_test(unreachable_replica_is_dropped),
        cmocka_unit_test(partitions),
        cmocka_unit_test(stalled_disk_is_done_without),
        cmocka_unit_test(snapshots_stall_nothing),
        cmocka_unit_test(fixed_seeds_hold),
        cmocka_unit_test(fresh_seeds_hold),
        cmocka_unit_test(leases_without_end_are_noticed),
        cmocka_unit_test(early_answers_are_noticed),
        cmocka_unit_test(same_seed_same_trace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
