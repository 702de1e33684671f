/* Migration in a simulated world: links are cut, networks divided, nodes stopped, killed,
 * superpeers started anew, while clients add to fields of chunks that move from peer to peer all
 * the time. What must hold: no chunk is served by two nodes; an addition is done once; a read sees
 * all that was acknowledged before it began; in the end every chunk that was not on a node that
 * died, or whose life was over as it was stopped or cut off for too long, is there, once.
 *
 * SHOAL_TEST_SEED: the first world (default: from the clock; printed). SHOAL_TEST_WORLDS: how
 * many. */
#include "tests/migrate_rig_int.h"
#include "tests/seed_int.h"

/* --- Faults ---------------------------------------------------------------------------------- */

static struct host *any_peer(struct world *world)
{
    struct host *host;
    do
        host = &world->hosts[world->superpeers + below(world, world->peers)];
    while (host->is_dead);
    return host;
}

static void on_moved(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct host *host = request->arg;
    (void)payload;
    host->is_moving = false;
    host->world->moves_begun += err == SHOAL_OK;
}

/* Asks some peer to move some chunks to another. */
static void move_something(struct world *world)
{
    struct host *client = &world->hosts[world->superpeers + world->peers];
    const struct host *from = any_peer(world), *to = any_peer(world);
    unsigned first = world->only_large ? LARGE : (unsigned)below(world, CHUNKS);
    unsigned last = world->only_large ? LARGE : first + (unsigned)below(world, CHUNKS - first);
    struct sh_out out;
    if (client->is_moving || from == to || !sh_msg_nid(from->msg).v || !sh_msg_nid(to->msg).v)
        return;
    client->move = (struct sh_request){.done = on_moved, .arg = client};
    if (sh_msg_request(client->msg, sh_msg_nid(from->msg), SH_MOVES_MOVE, SH_MOVE_BYTES,
                       &client->move, &out))
        return;
    client->is_moving = true;
    sh_put64(&out.w, below(world, UINT64_MAX) | 1);
    sh_put64(&out.w, world->cids[first].v);
    sh_put64(&out.w, world->cids[last].v);
    sh_put16(&out.w, below(world, 4) ? sh_msg_nid(to->msg).v : 0);
    sh_put8(&out.w, 0);
    sh_put64(&out.w, 0);
    sh_put64(&out.w, 0);
    sh_msg_end(client->msg, &out);
}

static void kill_peer(struct world *world)
{
    struct host *host = any_peer(world);
    if (world->dead + 2 > world->peers || !sh_world_is_up(world->sim, host->node))
        return;
    mourn(world, host);
    host->is_dead = true;
    world->dead++;
    sh_world_crash(world->sim, host->node);
}

enum faults { NO_FAULTS = 0, CUTS = 1, PAUSES = 2, RESTARTS = 4, KILLS = 8 };

static void fault(struct world *world, unsigned faults)
{
    unsigned a = (unsigned)below(world, world->count), b = (unsigned)below(world, world->count);
    uint64_t for_ns = 1 + below(world, below(world, 4) ? 300 * MS : 2 * FAILURE);
    unsigned which = 1u << below(world, 4);
    if (!(which & faults))
        return;
    if (which == CUTS && below(world, 3)) {
        sh_world_cut(world->sim, a, b);
    } else if (which == CUTS) {
        uint64_t mask = 1 + below(world, (UINT64_C(1) << world->count) - 2);
        uint64_t others = ((UINT64_C(1) << world->count) - 1) & ~mask;
        sh_world_partition(world->sim, mask, others, below(world, 2));
        run_for(world, for_ns);
        sh_world_heal(world->sim);
    } else if (which == PAUSES && sh_world_is_up(world->sim, a)) {
        sh_world_pause(world->sim, a);
        run_for(world, for_ns);
        sh_world_resume(world->sim, a);
    } else if (which == RESTARTS) {
        unsigned superpeer = (unsigned)below(world, world->superpeers);
        sh_world_crash(world->sim, superpeer);
        run_for(world, for_ns / 4);
        sh_world_restart(world->sim, superpeer);
    } else if (which == KILLS && below(world, 4) == 0) {
        kill_peer(world);
    }
}

/* --- Worlds ---------------------------------------------------------------------------------- */

/* Says who waits for what. */
static void fail_stuck(struct world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        if (world->hosts[i].superpeer)
            print_message("superpeer %u: epoch %" PRIu64 "\n", i,
                          sh_superpeer_view(world->hosts[i].superpeer)->epoch);
        else if (world->hosts[i].directory)
            print_message("host %u: epoch %" PRIu64 "\n", i,
                          sh_directory_epoch(world->hosts[i].directory));
        struct sh_node nodes[32];
        size_t count = world->hosts[i].directory
                           ? sh_directory_nodes(world->hosts[i].directory, nodes, 32)
                           : 0;
        for (size_t k = 0; k < count; k++)
            print_message(" %u:%d", nodes[k].nid.v, nodes[k].state);
        print_message("\n");
    }
    for (unsigned i = world->superpeers + world->peers; i < world->count; i++) {
        for (unsigned k = 0; k < SLOTS; k++) {
            const struct slot *slot = &world->hosts[i].slots[k];
            shoal_nid owner = SHOAL_NID_NONE;
            shoal_cid cid = world->cids[slot->chunk];
            if (!slot->is_busy)
                continue;
            if (sh_directory_owner(world->hosts[i].directory, cid, &owner) != SHOAL_OK)
                owner = SHOAL_NID_NONE;
            print_message("client %u: chunk %u:%" PRIu64 ", number %" PRIu64
                          " of node %u%s, owner %u\n",
                          i, shoal_cid_creator(cid).v, shoal_cid_local(cid), slot->number,
                          slot->number_nid.v, slot->is_unclear ? " (unclear)" : "", owner.v);
            print_message("  %s, last said: %s%s\n", slot->is_read ? "read" : "addition",
                          shoal_err_name(slot->err),
                          world->hosts[i].is_refreshing ? ", wants a view" : "");
            for (unsigned h = 0; h < world->count; h++) {
                struct host *host = &world->hosts[h];
                shoal_cid last;
                shoal_nid nid;
                if (host->chunks)
                    print_message(
                        "  node %u (%u): %d, to %u\n", h, sh_msg_nid(host->msg).v,
                        sh_holdings_find(sh_chunks_holdings(host->chunks), cid, &last, &nid),
                        nid.v);
            }
        }
    }
    fail_msg("seed %" PRIu64 ": the clients do not come to an end", seed);
}

/* The clients come to an end, and then all that is under way. */
static void world_end(struct world *world)
{
    world->ends = true;
    if (!sh_world_run_until(world->sim, clients_idle, world, sh_world_now(world->sim) + 60 * S))
        fail_stuck(world);
    sh_world_heal(world->sim);
    run_for(world, 10 * S); /* jobs end, and what is staged is asked about */
    check_end(world);
}

static void world_run(unsigned superpeers, unsigned peers, bool has_disk, unsigned faults)
{
    static struct world world;
    world_open(&world, superpeers, peers, has_disk);
    for (unsigned round = 0; round < 60; round++) {
        move_something(&world);
        run_for(&world, below(&world, 60 * MS));
        fault(&world, faults);
    }
    world_end(&world);
    if (getenv("SHOAL_TEST_VERBOSE"))
        print_message("%" PRIu64 " additions, %" PRIu64 " reads, %" PRIu64 " jobs, %" PRIu64
                      " outcomes\n",
                      world.adds, world.reads, world.moves_begun, world.outcomes);
    /* But where the node with all the chunks died first. */
    assert_true((world.adds > 0 && world.moves_begun > 0) || world.dead + world.fenced > 0);
    world_close(&world);
}

static void worlds_run_of(unsigned superpeers, bool has_disk, unsigned faults, unsigned count)
{
    const char *wish = getenv("SHOAL_TEST_WORLDS");
    uint64_t first = seed;
    if (wish)
        count = (unsigned)strtoul(wish, NULL, 10);
    for (unsigned i = 0; i < count; i++, seed++) {
        has_large = i % 3 == 0;
        world_run(superpeers, 3 + (unsigned)(seed % 3), has_disk, faults);
    }
    seed = first;
}

static void worlds_run(bool has_disk, unsigned faults, unsigned count)
{
    worlds_run_of(faults ? 1 : 2, has_disk, faults, count);
}

static void quiet(void **state)
{
    (void)state;
    worlds_run(true, NO_FAULTS, 2);
}

static void cuts(void **state)
{
    (void)state;
    worlds_run(true, CUTS, 4);
}

static void pauses(void **state)
{
    (void)state;
    worlds_run(true, CUTS | PAUSES, 4);
}

static void restarts(void **state)
{
    (void)state;
    worlds_run(true, CUTS | RESTARTS, 4);
}

static void kills(void **state)
{
    (void)state;
    worlds_run(true, CUTS | KILLS, 4);
}

static void everything(void **state)
{
    (void)state;
    worlds_run(true, CUTS | PAUSES | RESTARTS | KILLS, 6);
}

/* Three that share their registry, of which one after the other is started anew. */
static void several_superpeers(void **state)
{
    (void)state;
    worlds_run_of(3, true, CUTS | PAUSES | RESTARTS | KILLS, 4);
}

/* A large chunk goes to and fro, in pieces, of which many are lost. */
static void in_pieces(void **state)
{
    (void)state;
    uint64_t first = seed;
    const char *wish = getenv("SHOAL_TEST_WORLDS");
    unsigned count = wish ? (unsigned)strtoul(wish, NULL, 10) : 12;
    has_large = true;
    for (unsigned i = 0; i < count; i++, seed++) {
        static struct world world;
        world_open(&world, 1, 2 + (unsigned)(seed % 2), true);
        world.only_large = true;
        for (unsigned round = 0; round < 60; round++) {
            move_something(&world);
            run_for(&world, below(&world, 60 * MS));
            if (below(&world, 2))
                sh_world_cut(world.sim, any_peer(&world)->node, any_peer(&world)->node);
        }
        world_end(&world);
        world_close(&world);
    }
    seed = first;
}

/* Peers lose each other in the midst of a batch, and both go on with the superpeer and clients: a
 * chunk stands still for a while only, though neither hears of the other any more. */
static void peers_apart(void **state)
{
    (void)state;
    uint64_t first = seed;
    for (unsigned i = 0; i < 12; i++, seed++) {
        static struct world world;
        world_open(&world, 1, 2, true);
        for (unsigned round = 0; round < 4; round++) {
            move_something(&world);
            run_for(&world, below(&world, 15 * MS));
        }
        sh_world_partition(world.sim, 1u << 1, 1u << 2, false);
        run_for(&world, 100 * MS);
        world_end(&world);
        world_close(&world);
    }
    seed = first;
}

/* For run_until: whether a batch was committed whose target has not heard of that. */
static bool is_committed_unheard(void *arg)
{
    struct world *world = arg;
    struct host *source = &world->hosts[world->superpeers];
    (void)watch(world);
    for (unsigned i = 0; i < CHUNKS && world->cids[0].v; i++) {
        shoal_cid last;
        shoal_nid nid;
        if (sh_holdings_find(sh_chunks_holdings(source->chunks), world->cids[i], &last, &nid) ==
                SH_HOLDING_AWAY &&
            servers_of(world, world->cids[i]) == 0)
            return true;
    }
    return false;
}

/* For run_until: takes the other peer's lease away again and again. */
static bool keep_fenced(void *arg)
{
    struct world *world = arg;
    sh_msg_lease_set(world->hosts[world->superpeers + 1].msg, 0);
    return watch(world);
}

/* A target that loses its lease between the decision and the word of it refuses the word; the batch
 * is its own all the same, and nobody has another copy. */
static void target_fenced(void **state)
{
    (void)state;
    uint64_t first = seed;
    unsigned fenced = 0;
    for (unsigned i = 0; i < 12; i++, seed++) {
        static struct world world;
        world_open(&world, 1, 2, true);
        bool is_met = false;
        for (unsigned round = 0; round < 20 && !is_met; round++) {
            move_something(&world);
            is_met = sh_world_run_until(world.sim, is_committed_unheard, &world,
                                        sh_world_now(world.sim) + 20 * MS);
        }
        fenced += is_met;
        if (is_met)
            (void)sh_world_run_until(world.sim, keep_fenced, &world,
                                     sh_world_now(world.sim) + 100 * MS + below(&world, S));
        world_end(&world);
        world_close(&world);
    }
    assert_true(fenced > 0);
    seed = first;
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quiet),
        cmocka_unit_test(cuts),
        cmocka_unit_test(pauses),
        cmocka_unit_test(restarts),
        cmocka_unit_test(kills),
        cmocka_unit_test(everything),
        cmocka_unit_test(several_superpeers),
        cmocka_unit_test(in_pieces),
        cmocka_unit_test(peers_apart),
        cmocka_unit_test(target_fenced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
