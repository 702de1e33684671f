/* Peers and coordinators that are lost in the middle: errors that name the peer, nothing left
 * behind, nothing that hangs, and one end of a load for all peers. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/log.h"
#include "graph/bfs.h"
#include "graph/test_world_int.h"
#include "graph/wire_int.h"

#define LOAD_ID 4242

/* --- A coordinator played by hand --------------------------------------------------------------
 */

static enum shoal_err tell(struct world *world, unsigned peer, enum sh_graph_op op,
                           struct sh_bytes payload)
{
    return sh_call(&world->caller, world->peers[peer], SH_GRAPH_TYPE(op), payload, 0, NULL, NULL,
                   NULL);
}

static enum shoal_err tell_id(struct world *world, unsigned peer, enum sh_graph_op op)
{
    uint8_t payload[8];
    sh_store64(payload, LOAD_ID);
    return tell(world, peer, op, sh_bytes_make(payload, sizeof payload));
}

/* Begins to replace whatever is loaded by the path 1 -> 2 -> ... -> 100. */
static void stage_path(struct world *world)
{
    for (unsigned peer = 0; peer < world->peer_count; peer++) {
        uint8_t bytes[8 + 99 * 16];
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, LOAD_ID);
        sh_put64(&w, UINT64_MAX); /* newer than all */
        sh_put8(&w, SH_GRAPH_FLAG_REPLACE);
        sh_put32(&w, peer);
        sh_put32(&w, world->peer_count);
        for (unsigned i = 0; i < world->peer_count; i++)
            sh_put16(&w, world->peers[i].v);
        assert_int_equal(
            tell(world, peer, SH_GRAPH_BEGIN, sh_bytes_make(bytes, (size_t)(w.at - bytes))),
            SHOAL_OK);
        w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, LOAD_ID);
        for (uint64_t v = 1; v < 100; v++) {
            if (sh_graph_place(v, world->peer_count) != peer &&
                sh_graph_place(v + 1, world->peer_count) != peer)
                continue;
            sh_put64(&w, v);
            sh_put64(&w, v + 1);
        }
        assert_int_equal(
            tell(world, peer, SH_GRAPH_EDGES, sh_bytes_make(bytes, (size_t)(w.at - bytes))),
            SHOAL_OK);
    }
}

/* Has one peer reach a goal. */
static void advance(struct world *world, unsigned peer, enum sh_graph_goal goal)
{
    uint8_t payload[25];
    sh_store64(payload, LOAD_ID);
    payload[8] = (uint8_t)goal;
    sh_store64(payload + 9, 100);
    sh_store64(payload + 17, 99);
    size_t payload_size = goal == SH_GRAPH_GOAL_PREPARE ? sizeof payload : 9;
    for (bool reached = false; !reached;) {
        uint8_t *answer;
        size_t size;
        assert_int_equal(sh_call(&world->caller, world->peers[peer],
                                 SH_GRAPH_TYPE(SH_GRAPH_ADVANCE),
                                 sh_bytes_make(payload, payload_size), 0, &answer, &size, NULL),
                         SHOAL_OK);
        assert_true(size > 0);
        reached = answer[0] == 1;
        free(answer);
    }
}

static void stage_and_link(struct world *world)
{
    stage_path(world);
    for (unsigned peer = 0; peer < world->peer_count; peer++)
        advance(world, peer, SH_GRAPH_GOAL_SEAL);
    /* Each of them only links what the others have sealed. */
    for (unsigned peer = 0; peer < world->peer_count; peer++)
        advance(world, peer, SH_GRAPH_GOAL_LINK);
}

/* Waits until no peer is loading any more. */
static struct sh_graph_status settled(struct world *world)
{
    uint64_t deadline = sh_now(&world->clock) + UINT64_C(60000000000);
    for (;;) {
        struct sh_graph_status status;
        assert_int_equal(sh_graph_status_get(&world->caller, world->peers, world->peer_count, NULL,
                                             &status, NULL),
                         SHOAL_OK);
        if (!status.loading)
            return status;
        assert_true(sh_now(&world->clock) < deadline);
        nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    }
}

static uint64_t reached_from(struct world *world, uint64_t root)
{
    struct sh_graph_bfs_result result;
    assert_int_equal(
        sh_graph_bfs(&world->caller, world->peers, world->peer_count, root, false, &result, NULL),
        SHOAL_OK);
    sh_graph_bfs_result_free(&result);
    return result.reached;
}

/* A world that holds 7 -> 8 -> 9 and has linked a replacement. */
static struct world *world_replacing(unsigned peers)
{
    struct world *world = world_open(peers, STORE_BYTES, UINT64_C(2000000000));
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, "7 8\n8 9\n", NULL, false, false, &report, &problem),
                     SHOAL_OK);
    stage_and_link(world);
    return world;
}

/* The coordinator vanishes after `prepared` peers were prepared and `ended` heard END. */
static void vanish(unsigned peers, unsigned prepared, unsigned ended)
{
    struct world *world = world_replacing(peers);
    for (unsigned peer = 0; peer < prepared; peer++)
        advance(world, peer, SH_GRAPH_GOAL_PREPARE);
    for (unsigned peer = 0; peer < ended; peer++)
        assert_int_equal(tell_id(world, peer, SH_GRAPH_END), SHOAL_OK);
    bool live = prepared == peers;
    struct sh_graph_status status = settled(world);
    assert_true(status.loaded);
    assert_int_equal(status.vertices, live ? 100 : 3);
    assert_int_equal(status.graph_id == LOAD_ID, live);
    assert_int_equal(reached_from(world, live ? 1 : 7), live ? 100 : 3);
    wait_for_chunks(world, (live ? 100 : 3) + peers);
    if (live) { /* one that wakes up again is told so */
        for (unsigned peer = 0; peer < peers; peer++)
            assert_int_equal(tell_id(world, peer, SH_GRAPH_END), SHOAL_OK);
    }
    world_close(world);
}

static void coordinator_vanishes(void **state)
{
    (void)state;
    vanish(3, 3, 1); /* one went live: so do the others */
    vanish(3, 3, 0); /* all could have: all do */
    vanish(1, 1, 0);
    vanish(3, 2, 0); /* one could not: nobody does */
    vanish(3, 0, 0);
}

/* END before all is prepared is refused; so is a goal out of turn. */
static void out_of_turn(void **state)
{
    (void)state;
    struct world *world = world_replacing(2);
    assert_int_equal(tell_id(world, 0, SH_GRAPH_END), SHOAL_EPROTO);
    uint8_t goal[25] = {0};
    sh_store64(goal, LOAD_ID);
    for (unsigned wrong = 0; wrong < 256; wrong += wrong ? 63 : 4) {
        goal[8] = (uint8_t)(wrong ? wrong : 0);
        assert_int_equal(tell(world, 0, SH_GRAPH_ADVANCE, sh_bytes_make(goal, 9)), SHOAL_EPROTO);
    }
    assert_int_equal(tell(world, 0, SH_GRAPH_OUTCOME, sh_bytes_make(goal, 7)), SHOAL_EPROTO);
    /* Asked by a peer that lost the coordinator, one that is not prepared drops the load. */
    assert_int_equal(tell_id(world, 1, SH_GRAPH_OUTCOME), SHOAL_OK);
    goal[8] = SH_GRAPH_GOAL_PREPARE;
    assert_int_equal(tell(world, 1, SH_GRAPH_ADVANCE, sh_bytes_make(goal, sizeof goal)),
                     SHOAL_ECANCELED);
    assert_int_equal(tell_id(world, 0, SH_GRAPH_ABORT), SHOAL_OK);
    wait_for_chunks(world, 3 + 2);
    assert_int_equal(reached_from(world, 7), 3);
    world_close(world);
}

/* --- Chunks of others --------------------------------------------------------------------------
 */

/* Somebody removes a vertex's chunk, and somebody creates two; those are theirs. */
static void strangers_make(struct sh_store *store, sh_lid *lids_out)
{
    shoal_cid first, last;
    assert_true(sh_store_range(store, (shoal_cid){0}, &first, &last));
    assert_int_equal(sh_store_remove(store, first), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 3, 2, lids_out), SHOAL_OK);
}

/* A graph that is dropped, or whose load fails, takes no chunks along that others have created
 * since, and the IDs of its own ones are free then. */
static void chunks_of_others(void **state)
{
    (void)state;
    struct world *world = world_open(1, STORE_BYTES, 0);
    struct sh_store *store = world->nodes[0].store;
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    sh_lid lids[4], fresh;
    uint32_t size;
    stage_path(world);
    advance(world, 0, SH_GRAPH_GOAL_SEAL);
    strangers_make(store, lids);
    assert_int_equal(tell_id(world, 0, SH_GRAPH_ABORT), SHOAL_OK);
    wait_for_chunks(world, 2);
    assert_int_equal(load_text(world, "7 8\n8 9\n", NULL, false, false, &report, &problem),
                     SHOAL_OK);
    strangers_make(store, lids + 2);
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 1, &problem), SHOAL_OK);
    wait_for_chunks(world, 4);
    for (unsigned i = 0; i < 4; i++)
        assert_int_equal(sh_store_size(store, lids[i], &size), SHOAL_OK);
    assert_int_equal(sh_store_new_many(store, 0, 1, &fresh), SHOAL_OK);
    assert_int_equal(fresh.v, 1);
    world_close(world);
}

/* --- A peer that is lost -----------------------------------------------------------------------
 */

struct killer {
    struct world *world;
    const char *phase; /* of the load in which the peer dies */
};

static void kill_in_phase(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    struct killer *killer = arg;
    (void)total;
    bool early = strcmp(phase, "edges") == 0 && done == 0;
    if (killer->phase && !early && strcmp(phase, killer->phase) == 0) {
        killer->phase = NULL;
        node_kill(&killer->world->nodes[1]);
    }
}

static void lost_while(const char *phase)
{
    struct world *world = world_open(3, STORE_BYTES, 0);
    size_t room = 2u << 20;
    size_t size = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (unsigned i = 0; i < 100000; i++)
        size += (size_t)snprintf(text + size, room - size, "%u %u\n", i, i * 7 % 50000);
    char path[32];
    file_make(path, text, size);
    free(text);
    struct killer killer = {.world = world, .phase = phase};
    struct sh_graph_load_options options = {
        .edges_path = path, .progress = kill_in_phase, .arg = &killer};
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    enum shoal_err err =
        sh_graph_load(&world->caller, world->peers, 3, &options, &report, &problem);
    unlink(path);
    print_message("lost in %s: %s: %s\n", phase, shoal_err_name(err), problem.detail);
    assert_null(killer.phase);
    assert_int_not_equal(err, SHOAL_OK);
    assert_non_null(strstr(problem.detail, "peer 2"));
    /* The other two forgot it and take another load. */
    wait_for_chunks(world, 0);
    const shoal_nid left[] = {world->peers[0], world->peers[2]};
    char small[32];
    file_make(small, "1 2\n2 3\n", 8);
    options = (struct sh_graph_load_options){.edges_path = small};
    assert_int_equal(sh_graph_load(&world->caller, left, 2, &options, &report, &problem), SHOAL_OK);
    unlink(small);
    wait_for_chunks(world, 3 + 2);
    world_close(world);
}

static void lost_in_a_load(void **state)
{
    (void)state;
    lost_while("edges");
    lost_while("sort");
    lost_while("link");
}

struct traverser {
    struct world *world;
    enum shoal_err err;
    struct sh_graph_problem problem;
    uint64_t reached;
};

static void *traverse(void *arg)
{
    struct traverser *traverser = arg;
    struct sh_graph_bfs_result result;
    traverser->err = sh_graph_bfs(&traverser->world->caller, traverser->world->peers, 3, 0, false,
                                  &result, &traverser->problem);
    if (traverser->err)
        return NULL;
    traverser->reached = result.reached;
    sh_graph_bfs_result_free(&result);
    return NULL;
}

static unsigned runs_at(struct world *world, unsigned peer)
{
    struct sh_graph_status status;
    assert_int_equal(
        sh_graph_status_get(&world->caller, &world->peers[peer], 1, NULL, &status, NULL), SHOAL_OK);
    return status.runs;
}

#define PATH 100000 /* edges */

/* Loads a path, which needs as many levels as it has vertices: a traversal is under way for seconds. */
static void load_path(struct world *world, bool replace)
{
    size_t room = 2u << 20;
    size_t size = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (unsigned i = 0; i < PATH; i++)
        size += (size_t)snprintf(text + size, room - size, "%u %u\n", i, i + 1);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, false, replace, &report, &problem), SHOAL_OK);
    free(text);
}

static void lost_in_a_traversal(void **state)
{
    (void)state;
    struct world *world = world_open(3, STORE_BYTES, 0);
    load_path(world, false);
    struct traverser traverser = {.world = world};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, traverse, &traverser), 0);
    while (runs_at(world, 1) == 0)
        ;
    node_kill(&world->nodes[1]);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("lost in a traversal: %s: %s\n", shoal_err_name(traverser.err),
                  traverser.problem.detail);
    assert_int_not_equal(traverser.err, SHOAL_OK);
    assert_non_null(strstr(traverser.problem.detail, "peer 2"));
    assert_int_equal(runs_at(world, 0), 0);
    assert_int_equal(runs_at(world, 2), 0);
    /* A new one fails at once, and ends everywhere too. */
    traverse(&traverser);
    assert_int_not_equal(traverser.err, SHOAL_OK);
    assert_non_null(strstr(traverser.problem.detail, "peer 2"));
    assert_int_equal(traverser.problem.peer.v, world->peers[1].v);
    assert_int_equal(runs_at(world, 0), 0);
    world_close(world);
}

/* Peers forget a traversal when its graph goes, as one does that is started again. Its coordinator begins anew: with the graph that has taken
 * that one's place, or, if none has, to say so. */
static void forgotten_in_a_traversal(void **state)
{
    (void)state;
    struct world *world = world_open(3, STORE_BYTES, 0);
    load_path(world, false);
    for (int round = 0; round < 2; round++) {
        struct traverser traverser = {.world = world};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, traverse, &traverser), 0);
        while (runs_at(world, 1) == 0)
            ;
        if (round == 0)
            load_path(world, true);
        else
            assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, NULL), SHOAL_OK);
        assert_int_equal(pthread_join(thread, NULL), 0);
        assert_int_equal(traverser.err, round == 0 ? SHOAL_OK : SHOAL_ENONAME);
        if (round == 0)
            assert_int_equal(traverser.reached, PATH + 1);
        else
            assert_string_equal(traverser.problem.detail, "no graph is loaded");
    }
    world_close(world);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    assert_int_equal(sh_log_levels_set("error", &bad, &bad_len), SHOAL_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinator_vanishes), cmocka_unit_test(out_of_turn),
        cmocka_unit_test(chunks_of_others),     cmocka_unit_test(lost_in_a_load),
        cmocka_unit_test(lost_in_a_traversal),  cmocka_unit_test(forgotten_in_a_traversal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
