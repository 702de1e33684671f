/* Vertices that move, come back and vanish: traversals find what is there, wait for what is on its way, and never leave out a vertex
 * in silence. Chunks are moved by hand here, as a node would (node/holdings.h). */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/random_test.h"
#include "graph/bfs.h"
#include "graph/manifest_int.h"
#include "graph/test_world_int.h"
#include "graph/wire_int.h"

#define VERTICES 3000u

/* --- A graph whose results are known: a ring, and chords from each tenth vertex ------------------ */

static void ring_load(struct world *world, bool replace)
{
    size_t room = VERTICES * 40, size = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (unsigned i = 0; i < VERTICES; i++) {
        size += (size_t)snprintf(text + size, room - size, "%u %u next\n", i, (i + 1) % VERTICES);
        if (i % 10 == 0)
            size +=
                (size_t)snprintf(text + size, room - size, "%u %u over\n", i, (i + 700) % VERTICES);
    }
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, true, replace, &report, &problem), SHOAL_OK);
    assert_int_equal(report.vertices, VERTICES);
    free(text);
}

struct known {
    uint64_t depth, levels_hash;
};

static enum shoal_err traverse(struct world *world, uint64_t root, struct known *known_out,
                               struct sh_graph_problem *problem)
{
    struct sh_graph_bfs_result result;
    enum shoal_err err = sh_graph_bfs(&world->caller, world->peers, world->peer_count, root, false,
                                      &result, problem);
    if (err)
        return err;
    assert_int_equal(result.reached, VERTICES);
    assert_int_equal(result.edges_traversed, VERTICES + VERTICES / 10);
    known_out->depth = result.depth;
    known_out->levels_hash =
        sh_hash64(sh_bytes_make(result.levels, (result.depth + 1) * sizeof *result.levels), 0);
    sh_graph_bfs_result_free(&result);
    return SHOAL_OK;
}

static void check(struct world *world, uint64_t root, const struct known *known)
{
    struct known now;
    struct sh_graph_problem problem = {0};
    enum shoal_err err = traverse(world, root, &now, &problem);
    if (err)
        print_message("%s: %s\n", shoal_err_name(err), problem.detail);
    assert_int_equal(err, SHOAL_OK);
    assert_memory_equal(&now, known, sizeof now);
    shoal_cid cid;
    shoal_nid owner;
    assert_int_equal(sh_graph_vertex(&world->caller, world->peers, world->peer_count, root, &cid,
                                     &owner, &problem),
                     SHOAL_OK);
    struct sh_types *types;
    assert_int_equal(
        sh_graph_types(&world->caller, world->peers, world->peer_count, &types, &problem),
        SHOAL_OK);
    assert_int_equal(sh_types_count(types), 2);
    sh_types_destroy(types);
    struct sh_graph_status status;
    assert_int_equal(sh_graph_status_get(&world->caller, world->peers, world->peer_count, NULL,
                                         &status, &problem),
                     SHOAL_OK);
    assert_true(status.loaded && status.typed);
    assert_int_equal(status.vertices, VERTICES);
    assert_int_equal(status.all_vertices, VERTICES);
    assert_int_equal(status.edges, VERTICES + VERTICES / 10);
}

/* --- Chunks, moved by hand -------------------------------------------------------------------------- */

static shoal_nid nid_of(unsigned peer)
{
    return (shoal_nid){(uint16_t)(peer + 1)};
}

/* The store's name of a chunk on a peer. */
static sh_lid lid_at(unsigned peer, shoal_cid cid)
{
    return shoal_cid_creator(cid).v == nid_of(peer).v ? (sh_lid){shoal_cid_local(cid)} : cid;
}

/* A chunk out of a store. */
struct kept {
    shoal_cid cid;
    uint32_t size;
    uint8_t *bytes;
};
struct box {
    struct kept *at;
    size_t count;
};

/* Copies the chunks of a peer from first to last. */
static void box_fill(struct box *box, const struct world *world, unsigned peer, shoal_cid first,
                     shoal_cid last)
{
    struct sh_store *store = world->nodes[peer].store;
    sh_lid from = {0}, begin, end;
    *box = (struct box){calloc(2 * VERTICES, sizeof *box->at), 0};
    assert_non_null(box->at);
    while (sh_store_range(store, from, &begin, &end)) {
        for (sh_lid lid = begin; lid.v <= end.v; lid.v++) {
            shoal_cid cid = shoal_cid_creator(lid).v ? lid : shoal_cid_make(nid_of(peer), lid.v);
            struct kept *kept = &box->at[box->count];
            if (cid.v < first.v || cid.v > last.v)
                continue;
            assert_true(box->count < 2 * VERTICES);
            kept->cid = cid;
            assert_int_equal(sh_store_size(store, lid, &kept->size), SHOAL_OK);
            kept->bytes = malloc(kept->size + 1);
            assert_non_null(kept->bytes);
            assert_int_equal(sh_store_get(store, lid, kept->bytes, kept->size, &kept->size),
                             SHOAL_OK);
            box->count++;
        }
        from.v = end.v + 1;
    }
}

static void box_empty(struct box *box, struct world *world, unsigned peer, bool takes_over)
{
    for (size_t i = 0; i < box->count; i++) {
        struct kept *kept = &box->at[i];
        struct sh_bytes bytes = sh_bytes_make(kept->bytes, kept->size);
        struct sh_store *store = world->nodes[peer].store;
        sh_lid lid = lid_at(peer, kept->cid);
        /* Of an own one that was away when the peer was started again, the store does not know. */
        enum shoal_err err = takes_over ? sh_store_take_over(store, lid, bytes) : SHOAL_ENOCHUNK;
        if (err == SHOAL_ENOCHUNK)
            err = sh_store_adopt(store, lid, bytes);
        assert_int_equal(err, SHOAL_OK);
        free(kept->bytes);
    }
    free(box->at);
}

/* The chunks from first to last that are at `from` leave it; where they are on their way. */
static void leave(struct world *world, unsigned from, shoal_cid first, shoal_cid last,
                  struct box *box)
{
    box_fill(box, world, from, first, last);
    node_tell(&world->nodes[from], first, last, false);
    for (size_t i = 0; i < box->count; i++)
        assert_int_equal(sh_store_release(world->nodes[from].store, lid_at(from, box->at[i].cid)),
                         SHOAL_OK);
    atomic_store(&world->nodes[from].told.left, false);
}

static void arrive(struct world *world, unsigned to, shoal_cid first, shoal_cid last,
                   struct box *box)
{
    box_empty(box, world, to, true);
    node_tell(&world->nodes[to], first, last, true);
}

static void move(struct world *world, unsigned from, unsigned to, shoal_cid first, shoal_cid last)
{
    struct box box;
    leave(world, from, first, last, &box);
    arrive(world, to, first, last, &box);
}

static void move_all(struct world *world, unsigned from, unsigned to, unsigned creator)
{
    move(world, from, to, shoal_cid_make(nid_of(creator), 0),
         shoal_cid_make(nid_of(creator), SHOAL_LOCAL_ID_MAX));
}

/* Ends a peer and starts it again with the chunks that it had, or with those of another moment. */
static void restart(struct world *world, unsigned peer, struct box *box)
{
    struct box own;
    if (!box) {
        box_fill(&own, world, peer, (shoal_cid){0}, (shoal_cid){UINT64_MAX});
        box = &own;
    }
    if (world->nodes[peer].crew)
        node_kill(&world->nodes[peer]);
    node_open(world, peer, STORE_BYTES, 0);
    box_empty(box, world, peer, false);
    for (unsigned i = 0; i <= world->peer_count; i++) {
        if (i == peer || !world->nodes[i].crew)
            continue;
        test_ok(sh_msg_node_set(world->nodes[i].msg, nid_of(peer), world->nodes[peer].address));
        if (i < world->peer_count)
            test_ok(sh_msg_node_set(world->nodes[peer].msg, nid_of(i), world->nodes[i].address));
    }
    test_ok(sh_crew_start(world->nodes[peer].crew));
    /* What is sent over a connection of before is lost. */
    struct sh_graph_status status;
    while (sh_graph_status_get(&world->caller, &world->peers[peer], 1, NULL, &status, NULL))
        continue;
    for (unsigned creator = 0; creator < world->peer_count; creator++)
        node_tell(&world->nodes[peer], shoal_cid_make(nid_of(creator), 0),
                  shoal_cid_make(nid_of(creator), SHOAL_LOCAL_ID_MAX), true);
}

static struct world *world_loaded(unsigned peers, struct known *known)
{
    struct world *world = world_open(peers, STORE_BYTES, 0);
    ring_load(world, false);
    assert_int_equal(traverse(world, 5, known, NULL), SHOAL_OK);
    return world;
}

/* --- Tests -------------------------------------------------------------------------------------------- */

static void drained(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(3, &known);
    move_all(world, 0, 1, 0);
    check(world, 5, &known);
    move_all(world, 1, 2, 1); /* and those that were moved to it: */
    move_all(world, 1, 2, 0);
    check(world, 5, &known);
    /* A peer that has none any more may stop. */
    node_kill(&world->nodes[0]);
    const shoal_nid all[] = {world->peers[0], world->peers[1], world->peers[2]};
    world->peers[0] = all[2];
    world->peers[1] = all[1];
    world->peer_count = 2;
    check(world, 5, &known);
    world->peers[0] = all[0];
    world->peers[1] = all[1];
    world->peer_count = 3;
    world_close(world);
}

static uint64_t draw(uint64_t *state)
{
    return sh_mix64(++*state * UINT64_C(0x9e3779b97f4a7c15));
}

/* Where each vertex is: ranges are moved from wherever they are. */
static void random_moves(struct world *world, uint64_t *rng, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        unsigned creator = (unsigned)(draw(rng) % world->peer_count);
        unsigned from = (unsigned)(draw(rng) % world->peer_count);
        unsigned to = (unsigned)(draw(rng) % world->peer_count);
        uint64_t first = draw(rng) % 1200, size = draw(rng) % (draw(rng) % 4 ? 30 : 700);
        if (from != to)
            move(world, from, to, shoal_cid_make(nid_of(creator), first),
                 shoal_cid_make(nid_of(creator), first + size));
    }
}

static void moved_at_random(void **state)
{
    (void)state;
    uint64_t rng = test_seed(12);
    struct known known;
    struct world *world = world_loaded(3, &known);
    for (unsigned round = 0; round < 12; round++) {
        random_moves(world, &rng, 1 + (unsigned)(draw(&rng) % 20));
        check(world, 5, &known);
        if (round % 4 == 3) {
            restart(world, (unsigned)(draw(&rng) % 3), NULL);
            check(world, 5, &known);
        }
    }
    /* All of it goes, wherever it is, and no ID is kept. */
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, NULL), SHOAL_OK);
    wait_for_chunks(world, 0);
    world_close(world);
}

static void cold_start(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(3, &known);
    struct box boxes[3];
    for (unsigned i = 0; i < 3; i++) {
        box_fill(&boxes[i], world, i, (shoal_cid){0}, (shoal_cid){UINT64_MAX});
        node_kill(&world->nodes[i]);
    }
    for (unsigned i = 0; i < 3; i++)
        restart(world, i, &boxes[i]);
    check(world, 5, &known);
    /* It can be replaced as ever. */
    ring_load(world, true);
    check(world, 5, &known);
    wait_for_chunks(world, VERTICES + 3);
    world_close(world);
}

/* Vertices that are on their way when the graph is removed, or replaced, go when they are there. */
static void late(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(3, &known);
    const shoal_cid first = shoal_cid_make(nid_of(1), 0), last = shoal_cid_make(nid_of(1), 2000);
    struct box box;
    leave(world, 1, first, last, &box);
    ring_load(world, true);
    arrive(world, 2, first, last, &box);
    wait_for_chunks(world, VERTICES + 3);
    check(world, 5, &known);
    leave(world, 0, shoal_cid_make(nid_of(0), 0), shoal_cid_make(nid_of(0), 2000), &box);
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, NULL), SHOAL_OK);
    arrive(world, 2, shoal_cid_make(nid_of(0), 0), shoal_cid_make(nid_of(0), 2000), &box);
    wait_for_chunks(world, 0);
    world_close(world);
}

struct traverser {
    struct world *world;
    enum shoal_err err;
    struct known known;
    struct sh_graph_problem problem;
    _Atomic bool stops;
    unsigned count, wrong;
};

static void *traverse_once(void *arg)
{
    struct traverser *traverser = arg;
    traverser->err = traverse(traverser->world, 5, &traverser->known, &traverser->problem);
    return NULL;
}

/* Vertices on their way are waited for, and not left out. */
static void on_their_way(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(3, &known);
    const shoal_cid first = shoal_cid_make(nid_of(1), 100), last = shoal_cid_make(nid_of(1), 200);
    struct box box;
    leave(world, 1, first, last, &box);
    struct traverser traverser = {.world = world};
    (void)traverse_once(&traverser);
    assert_int_equal(traverser.err, SHOAL_EFAILED);
    assert_string_equal(traverser.problem.detail,
                        "2899 of the graph's 3000 vertices are served now");
    struct sh_graph_status status;
    assert_int_equal(sh_graph_status_get(&world->caller, world->peers, 3, NULL, &status, NULL),
                     SHOAL_OK);
    assert_false(status.loaded);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, traverse_once, &traverser), 0);
    nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
    arrive(world, 2, first, last, &box);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(traverser.err, SHOAL_OK);
    assert_memory_equal(&traverser.known, &known, sizeof known);
    check(world, 5, &known);
    world_close(world);
}

static void *traverse_on(void *arg)
{
    struct traverser *traverser = arg;
    struct known first = traverser->known;
    while (!atomic_load(&traverser->stops)) {
        enum shoal_err err = traverse(traverser->world, 5, &traverser->known, &traverser->problem);
        traverser->count++;
        traverser->wrong += err || memcmp(&first, &traverser->known, sizeof first) != 0;
    }
    return NULL;
}

/* Chunks that move under traversals, without asking: whatever a traversal ends with is right. */
static void moved_meanwhile(void **state)
{
    (void)state;
    uint64_t rng = test_seed(31);
    struct traverser traverser = {0};
    struct world *world = world_loaded(3, &traverser.known);
    traverser.world = world;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, traverse_on, &traverser), 0);
    for (unsigned i = 0; i < 60; i++) {
        random_moves(world, &rng, 1);
        nanosleep(&(struct timespec){.tv_nsec = (long)(draw(&rng) % 40000000)}, NULL);
    }
    atomic_store(&traverser.stops, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
    print_message("%u traversals, %s\n", traverser.count, traverser.problem.detail);
    assert_true(traverser.count > 0);
    assert_int_equal(traverser.wrong, 0);
    world_close(world);
}

/* A peer that was away while its graph was replaced, or dropped, comes back with the old one. */
static void old_graph(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(3, &known);
    struct box old[3];
    for (unsigned i = 0; i < 3; i++)
        box_fill(&old[i], world, i, (shoal_cid){0}, (shoal_cid){UINT64_MAX});
    ring_load(world, true);
    wait_for_chunks(world, VERTICES + 3);
    struct box now;
    box_fill(&now, world, 1, (shoal_cid){0}, (shoal_cid){UINT64_MAX});
    /* With both: what is left of the older one goes. */
    struct box both = {calloc(old[1].count + now.count, sizeof *both.at), 0};
    assert_non_null(both.at);
    for (size_t i = 0; i < old[1].count; i++)
        both.at[both.count++] = old[1].at[i];
    for (size_t i = 0; i < now.count; i++)
        both.at[both.count++] = now.at[i];
    restart(world, 1, &both);
    wait_for_chunks(world, VERTICES + 3);
    check(world, 5, &known);
    /* With the older one only, the newer graph lacks vertices; dropping it takes both. */
    restart(world, 0, &old[0]);
    struct traverser traverser = {.world = world};
    (void)traverse_once(&traverser);
    assert_int_equal(traverser.err, SHOAL_EFAILED);
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, NULL), SHOAL_OK);
    wait_for_chunks(world, 0);
    free(old[1].at);
    free(now.at);
    for (size_t i = 0; i < old[2].count; i++)
        free(old[2].at[i].bytes);
    free(old[2].at);
    world_close(world);
}

/* Chunks that look like a vertex, or a manifest, and are none. */
static void copies(void **state)
{
    (void)state;
    struct known known;
    struct world *world = world_loaded(2, &known);
    struct box box;
    box_fill(&box, world, 0, (shoal_cid){0}, (shoal_cid){UINT64_MAX});
    for (size_t i = 0; i < box.count; i++) {
        uint32_t size = box.at[i].size;
        shoal_cid cid;
        struct sh_store *store = world->nodes[0].store;
        struct sh_bytes bytes = sh_bytes_make(box.at[i].bytes, size);
        assert_int_equal(sh_store_new(store, &size, 1, &cid), SHOAL_OK);
        assert_int_equal(sh_store_put(store, cid, bytes), SHOAL_OK);
        free(box.at[i].bytes);
    }
    uint64_t copied = box.count;
    free(box.at);
    restart(world, 0, NULL);
    check(world, 5, &known);
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 2, NULL), SHOAL_OK);
    wait_for_chunks(world, copied);
    world_close(world);
}

/* --- The manifest --------------------------------------------------------------------------------------- */

static void manifests(void **state)
{
    (void)state;
    static const uint8_t peers[] = {1, 0, 2, 0}, types[] = {1, 0, 'a', 2, 0, 'b', 'c'};
    const struct sh_manifest manifest = {.graph_id = 7,
                                         .generation = 8,
                                         .typed = true,
                                         .vertices = 9,
                                         .edges = 10,
                                         .peer_count = 2,
                                         .peers = peers,
                                         .types_count = 2,
                                         .types = sh_bytes_make(types, sizeof types)};
    const shoal_cid cid = {77};
    uint8_t bytes[128];
    size_t size = (size_t)sh_manifest_bytes(2, sizeof types);
    struct sh_manifest found;
    sh_manifest_encode(bytes, size, cid, &manifest);
    assert_int_equal(sh_manifest_decode(sh_bytes_make(bytes, size), cid, &found), SHOAL_OK);
    assert_int_equal(found.graph_id, 7);
    assert_int_equal(found.generation, 8);
    assert_true(found.typed);
    assert_int_equal(found.vertices, 9);
    assert_int_equal(found.edges, 10);
    assert_int_equal(found.peer_count, 2);
    assert_int_equal(found.types_count, 2);
    assert_int_equal(sh_manifest_decode(sh_bytes_make(bytes, size), (shoal_cid){78}, &found),
                     SHOAL_ECORRUPT);
    for (size_t cut = 0; cut < size; cut++)
        assert_int_equal(sh_manifest_decode(sh_bytes_make(bytes, cut), cid, &found),
                         SHOAL_ECORRUPT);
    for (size_t i = 0; i < size; i++) {
        bytes[i] ^= 0x10;
        assert_int_equal(sh_manifest_decode(sh_bytes_make(bytes, size), cid, &found),
                         SHOAL_ECORRUPT);
        bytes[i] ^= 0x10;
    }
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    assert_int_equal(sh_log_levels_set("error", &bad, &bad_len), SHOAL_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(manifests),
        cmocka_unit_test(drained),
        cmocka_unit_test(moved_at_random),
        cmocka_unit_test(cold_start),
        cmocka_unit_test(on_their_way),
        cmocka_unit_test(moved_meanwhile),
        cmocka_unit_test(old_graph),
        cmocka_unit_test(copies),
        cmocka_unit_test(late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
