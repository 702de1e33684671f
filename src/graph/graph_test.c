/* Loads, traversals against a plain one in memory, abandoned ones, and WordNet against its
 * published numbers. graph_loss_test.c loses peers and coordinators. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/random_test.h"
#include "graph/bfs.h"
#include "graph/test_world_int.h"
#include "graph/vertex.h"

/* Fetches a vertex's chunk out of the store of its owner. */
static size_t fetch(struct world *world, uint64_t name, uint8_t *into, size_t room)
{
    shoal_cid cid;
    shoal_nid owner;
    assert_int_equal(
        sh_graph_vertex(&world->caller, world->peers, world->peer_count, name, &cid, &owner, NULL),
        SHOAL_OK);
    assert_int_equal(shoal_cid_creator(cid).v, owner.v);
    uint32_t size;
    assert_int_equal(sh_store_get(world->nodes[owner.v - 1].store, (sh_lid){shoal_cid_local(cid)},
                                  into, room, &size),
                     SHOAL_OK);
    return size;
}

static void small_graph(void **state)
{
    (void)state;
    struct world *world = world_open(3, STORE_BYTES, 0);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(sh_graph_vertex(&world->caller, world->peers, 3, 1, &(shoal_cid){0},
                                     &(shoal_nid){0}, &problem),
                     SHOAL_ENONAME);
    assert_string_equal(problem.detail, "no graph is loaded");
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, &problem), SHOAL_ENONAME);
    assert_int_equal(load_text(world,
                               "1 2 knows\n1 2 likes\n1 2 knows\n2 3 knows\n3 3 self\n"
                               "18446744073709551615 1 likes\n",
                               "1\tfirst\tvertex\n9\talone\n", true, false, &report, &problem),
                     SHOAL_OK);
    assert_int_equal(report.vertices, 5);
    assert_int_equal(report.edges, 6);
    assert_int_equal(report.lines, 6);
    assert_int_equal(report.parallel, 1);
    assert_int_equal(report.records, 2);
    assert_int_equal(report.types, 3);
    uint8_t bytes[256];
    struct sh_vertex vertex;
    size_t size = fetch(world, 1, bytes, sizeof bytes);
    assert_int_equal(sh_vertex_decode(sh_bytes_make(bytes, size), &vertex), SHOAL_OK);
    assert_int_equal(vertex.name, 1);
    assert_int_equal(vertex.out_count, 3);
    assert_int_equal(vertex.in_count, 1);
    assert_int_equal(sh_vertex_out(&vertex, 0).v, sh_vertex_out(&vertex, 1).v);
    assert_int_equal(sh_vertex_type(&vertex, 0), 0);
    assert_int_equal(sh_vertex_type(&vertex, 1), 0);
    assert_int_equal(sh_vertex_type(&vertex, 2), 1);
    assert_int_equal(vertex.record.size, 12);
    assert_memory_equal(vertex.record.at, "first\tvertex", 12);
    struct sh_types *types;
    assert_int_equal(sh_graph_types(&world->caller, world->peers, 3, &types, NULL), SHOAL_OK);
    assert_int_equal(sh_types_count(types), 3);
    assert_memory_equal(sh_types_name(types, 2).at, "self", 4);
    sh_types_destroy(types);
    struct sh_graph_status status;
    struct sh_graph_status each[3];
    assert_int_equal(sh_graph_status_get(&world->caller, world->peers, 3, each, &status, NULL),
                     SHOAL_OK);
    assert_true(status.loaded && status.typed && !status.loading);
    assert_int_equal(status.vertices, 5);
    assert_int_equal(status.payload_bytes, 5 * 8 + 6 * 10 + 12 + 5);
    assert_int_equal(status.chunk_bytes, report.chunk_bytes);
    assert_int_equal(each[0].vertices + each[1].vertices + each[2].vertices, 5);
    assert_int_equal(chunks(world), 5 + 3); /* and a manifest on each peer */
    assert_int_equal(load_text(world, "1 2\n", NULL, false, false, &report, &problem),
                     SHOAL_EEXIST);
    assert_int_equal(load_text(world, "5 6\n", NULL, false, true, &report, &problem), SHOAL_OK);
    wait_for_chunks(world, 2 + 3);
    assert_int_equal(sh_graph_vertex(&world->caller, world->peers, 3, 1, &(shoal_cid){0},
                                     &(shoal_nid){0}, &problem),
                     SHOAL_ENONAME);
    assert_string_equal(problem.detail, "there is no vertex 1");
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 3, &problem), SHOAL_OK);
    assert_int_equal(chunks(world), 0);
    world_close(world);
}

static void failed_loads(void **state)
{
    (void)state;
    struct world *world = world_open(2, STORE_BYTES, 0);
    struct sh_graph_load_report report = {.vertices = 77};
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, "1 2\n3\n4 x\n", NULL, false, false, &report, &problem),
                     SHOAL_EPARSE);
    assert_int_equal(problem.wrong.count, 2);
    assert_int_equal(problem.wrong.lines[1].line, 3);
    assert_non_null(strstr(problem.detail, "2 wrong lines, the first is line 2: "));
    assert_int_equal(load_text(world, "1 2\n", "1 a\n1 b\n", false, false, &report, &problem),
                     SHOAL_EPARSE);
    assert_string_equal(problem.detail, "vertex 1 has 2 records");
    struct sh_graph_load_options options = {.edges_path = "/nonexistent/edges"};
    assert_int_equal(sh_graph_load(&world->caller, world->peers, 2, &options, &report, &problem),
                     SHOAL_EIO);
    assert_string_equal(problem.detail, "/nonexistent/edges: No such file or directory");
    char *huge = malloc(3u << 20);
    size_t size = 0;
    assert_non_null(huge);
    for (unsigned i = 0; i < 150000; i++)
        size += (size_t)snprintf(huge + size, (3u << 20) - size, "7 %u\n", i + 100);
    assert_int_equal(load_text(world, huge, NULL, false, false, &report, &problem), SHOAL_ETOOBIG);
    assert_non_null(strstr(problem.detail, "vertex 7 needs 1200021 bytes"));
    free(huge);
    assert_int_equal(chunks(world), 0);
    assert_int_equal(report.vertices, 77);
    /* A failed replacement leaves what was there. */
    assert_int_equal(load_text(world, "1 2\n", NULL, false, false, &report, &problem), SHOAL_OK);
    assert_int_equal(load_text(world, "1 2\n-3 4\n", NULL, false, true, &report, &problem),
                     SHOAL_EPARSE);
    assert_int_equal(chunks(world), 2 + 2);
    struct sh_graph_bfs_result result;
    assert_int_equal(sh_graph_bfs(&world->caller, world->peers, 2, 3, false, &result, &problem),
                     SHOAL_ENONAME);
    assert_string_equal(problem.detail, "there is no vertex 3");
    world_close(world);
}

/* More vertices than chunk memory holds: a clear error, nothing left, and a smaller graph fits. */
static void out_of_chunk_memory(void **state)
{
    (void)state;
    struct world *world = world_open(2, 2u << 20, 0);
    size_t room = 8u << 20;
    char *text = malloc(room);
    assert_non_null(text);
    size_t size = 0;
    for (unsigned i = 0; i < 200000; i++)
        size += (size_t)snprintf(text + size, room - size, "%u %u\n", i, i + 1000000);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, false, false, &report, &problem), SHOAL_EFULL);
    assert_non_null(strstr(problem.detail, "no chunk memory for more than"));
    free(text);
    assert_int_equal(chunks(world), 0);
    assert_int_equal(load_text(world, "1 2\n", NULL, false, false, &report, &problem), SHOAL_OK);
    world_close(world);
}

/* --- A log that has no room now and then -------------------------------------------------------- */

static unsigned asked; /* by one peer's step */

static enum shoal_err room_at_times(void)
{
    return ++asked % 1000 < 300 ? SHOAL_EAGAIN : SHOAL_OK;
}

static enum shoal_err on_admit(void *arg, shoal_cid cid, enum sh_store_event event, uint32_t before,
                               uint32_t size)
{
    (void)arg, (void)cid, (void)before, (void)size;
    return event == SH_STORE_UNMADE ? SHOAL_OK : room_at_times();
}

static void on_record(void *arg, shoal_cid cid, enum sh_store_event event, struct sh_bytes image)
{
    (void)arg, (void)cid, (void)event, (void)image;
}

static void on_cancel(void *arg, shoal_cid cid, enum sh_store_event event, uint32_t size)
{
    (void)arg, (void)cid, (void)event, (void)size;
}

static enum shoal_err on_pieces_begin(void *arg, shoal_cid cid, uint32_t before, uint32_t size)
{
    (void)arg, (void)cid, (void)before, (void)size;
    return room_at_times();
}

static enum shoal_err on_piece(void *arg, shoal_cid cid, uint32_t offset, struct sh_bytes bytes,
                               bool is_last)
{
    (void)arg, (void)cid, (void)offset, (void)bytes, (void)is_last;
    return room_at_times();
}

static void on_pieces_end(void *arg, shoal_cid cid, uint32_t before, bool is_made)
{
    unsigned *larges = arg;
    (void)cid, (void)before;
    *larges += is_made;
}

/* Vertices are made, written and removed though the log has no room for 300 of 1000 changes, in a row; one vertex of them in pieces. */
static void log_without_room(void **state)
{
    (void)state;
    struct world *world = world_open(1, STORE_BYTES, 0);
    unsigned larges = 0;
    const struct sh_store_witness witness = {.admit = on_admit,
                                             .record = on_record,
                                             .cancel = on_cancel,
                                             .pieces_begin = on_pieces_begin,
                                             .piece = on_piece,
                                             .pieces_end = on_pieces_end,
                                             .arg = &larges};
    sh_store_witness_set(world->nodes[0].store, &witness);
    const unsigned edges = 40000;
    size_t room = (size_t)edges * 16, size = 0;
    char *text = malloc(room);
    assert_non_null(text);
    for (unsigned i = 0; i < edges; i++)
        size += (size_t)snprintf(text + size, room - size, "7 %u\n", i + 100);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, false, false, &report, &problem), SHOAL_OK);
    free(text);
    assert_int_equal(report.vertices, edges + 1);
    assert_int_equal(report.edges, edges);
    assert_int_equal(larges, 1);
    struct sh_graph_bfs_result result;
    assert_int_equal(sh_graph_bfs(&world->caller, world->peers, 1, 7, false, &result, &problem),
                     SHOAL_OK);
    assert_int_equal(result.reached, edges + 1);
    sh_graph_bfs_result_free(&result);
    /* Another graph in its place: all of the first is removed. */
    assert_int_equal(load_text(world, "1 2\n", NULL, false, true, &report, &problem), SHOAL_OK);
    uint64_t deadline = sh_now(&world->clock) + UINT64_C(60000000000);
    while (chunks(world) != 2 + 1)
        assert_true(sh_now(&world->clock) < deadline);
    world_close(world);
}

/* A coordinator that begins and is never heard again: the peer forgets the load. */
static void abandoned_load(void **state)
{
    (void)state;
    struct world *world = world_open(1, STORE_BYTES, 200000000);
    uint8_t begin[27];
    struct sh_writer w = sh_writer_make(begin, sizeof begin);
    sh_put64(&w, 42);
    sh_put64(&w, 1);
    sh_put8(&w, 0);
    sh_put32(&w, 0);
    sh_put32(&w, 1);
    sh_put16(&w, 1);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    char detail[256];
    assert_int_equal(sh_call(&world->caller, world->peers[0], SH_MSG_TYPE(3, 2),
                             sh_bytes_make(begin, sizeof begin), 0, NULL, NULL, detail),
                     SHOAL_OK);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    uint64_t deadline = sh_now(&world->clock) + UINT64_C(30000000000);
    for (;;) {
        enum shoal_err err = load_text(world, "1 2\n", NULL, false, false, &report, &problem);
        if (err == SHOAL_OK)
            break;
        assert_int_equal(err, SHOAL_EBUSY);
        assert_string_equal(problem.detail, "another load is under way");
        assert_true(sh_now(&world->clock) < deadline);
    }
    world_close(world);
}

/* --- Traversals against a plain model ----------------------------------------------------------
 */

#define MODEL_VERTICES 3000u

struct model {
    unsigned edge_count;
    uint32_t (*edges)[2];
    uint64_t names[MODEL_VERTICES];
    bool exists[MODEL_VERTICES];
};

static uint64_t random_next(uint64_t *state)
{
    return sh_mix64(++*state * UINT64_C(0x9e3779b97f4a7c15));
}

/* Distance of every vertex from root (UINT32_MAX: none), and the sum of distinct neighbours of the
 * reached: by the definition, without any cleverness. */
static uint64_t model_bfs(const struct model *model, uint32_t root, bool undirected,
                          uint32_t *distance)
{
    for (uint32_t v = 0; v < MODEL_VERTICES; v++)
        distance[v] = v == root ? 0 : UINT32_MAX;
    for (bool changed = true; changed;) {
        changed = false;
        for (unsigned e = 0; e < model->edge_count; e++) {
            for (unsigned way = 0; way < (undirected ? 2 : 1); way++) {
                uint32_t from = model->edges[e][way];
                uint32_t to = model->edges[e][1 - way];
                if (distance[from] == UINT32_MAX || distance[to] <= distance[from] + 1)
                    continue;
                distance[to] = distance[from] + 1;
                changed = true;
            }
        }
    }
    uint8_t *matrix = calloc(MODEL_VERTICES, MODEL_VERTICES);
    assert_non_null(matrix);
    uint64_t traversed = 0;
    for (unsigned e = 0; e < model->edge_count; e++) {
        for (unsigned way = 0; way < (undirected ? 2 : 1); way++) {
            uint32_t from = model->edges[e][way];
            uint8_t *cell = &matrix[(size_t)from * MODEL_VERTICES + model->edges[e][1 - way]];
            bool loop = undirected && from == model->edges[e][1 - way];
            traversed += distance[from] != UINT32_MAX && *cell == 0 && !loop;
            *cell = 1;
        }
    }
    free(matrix);
    return traversed;
}

static void check_bfs(struct world *world, const struct model *model, uint32_t root,
                      bool undirected)
{
    static uint32_t distance[MODEL_VERTICES];
    static uint64_t levels[MODEL_VERTICES];
    uint64_t traversed = model_bfs(model, root, undirected, distance);
    uint64_t reached = 0;
    uint64_t depth = 0;
    memset(levels, 0, sizeof levels);
    for (uint32_t v = 0; v < MODEL_VERTICES; v++) {
        if (distance[v] == UINT32_MAX)
            continue;
        levels[distance[v]]++;
        reached++;
        if (distance[v] > depth)
            depth = distance[v];
    }
    struct sh_graph_bfs_result result;
    assert_int_equal(sh_graph_bfs(&world->caller, world->peers, world->peer_count,
                                  model->names[root], undirected, &result, NULL),
                     SHOAL_OK);
    assert_int_equal(result.reached, reached);
    assert_int_equal(result.depth, depth);
    for (uint64_t i = 0; i <= depth; i++)
        assert_int_equal(result.levels[i], levels[i]);
    assert_int_equal(result.edges_traversed, traversed);
    sh_graph_bfs_result_free(&result);
}

/* A random graph with a few hubs, a long tail, parallel edges, self loops and relations. */
static void random_graph(unsigned peer_count, uint64_t seed)
{
    static struct model model;
    uint64_t rng = seed;
    unsigned tail = 500;
    model.edge_count = 6000;
    model.edges = calloc(model.edge_count, sizeof *model.edges);
    size_t room = model.edge_count * 64;
    char *text = malloc(room);
    assert_true(model.edges && text);
    for (uint32_t v = 0; v < MODEL_VERTICES; v++) {
        model.names[v] = random_next(&rng);
        model.exists[v] = false;
    }
    size_t size = 0;
    for (unsigned e = 0; e < model.edge_count; e++) {
        uint32_t from = (uint32_t)(random_next(&rng) % (MODEL_VERTICES - tail));
        uint32_t to = (uint32_t)(random_next(&rng) % (MODEL_VERTICES - tail));
        if (e < tail) { /* a path: many levels of one vertex each */
            from = MODEL_VERTICES - tail + e - (e > 0);
            to = MODEL_VERTICES - tail + e;
        } else if (e % 4 == 0) {
            from = from % 3; /* hubs with far more than 255 neighbours */
        } else if (e % 61 == 0) {
            to = from; /* self loops, on the hubs too now and then */
        } else if (e % 7 == 0 && e > tail + 1) {
            from = model.edges[e - 1][0];
            to = model.edges[e - 1][1];
        }
        model.edges[e][0] = from;
        model.edges[e][1] = to;
        model.exists[from] = model.exists[to] = true;
        size += (size_t)snprintf(
            text + size, room - size, "%llu %llu r%llu\n", (unsigned long long)model.names[from],
            (unsigned long long)model.names[to], (unsigned long long)(random_next(&rng) % 3));
    }
    struct world *world = world_open(peer_count, STORE_BYTES, 0);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, seed & 1, false, &report, &problem), SHOAL_OK);
    assert_int_equal(report.edges, model.edge_count);
    const uint32_t roots[] = {0, 1, 700, MODEL_VERTICES - tail, MODEL_VERTICES - 1};
    for (size_t i = 0; i < sizeof roots / sizeof roots[0]; i++) {
        if (!model.exists[roots[i]])
            continue;
        check_bfs(world, &model, roots[i], false);
        check_bfs(world, &model, roots[i], true);
    }
    world_close(world);
    free(model.edges);
    free(text);
}

static void random_graphs(void **state)
{
    (void)state;
    uint64_t seed = test_seed(4711);
    for (unsigned peers = 1; peers <= PEERS_MAX; peers++)
        random_graph(peers, seed + peers);
}

/* Somebody removes or overwrites a vertex's chunk: the traversal says so and ends everywhere. */
static void damaged_vertex(void **state)
{
    (void)state;
    struct world *world = world_open(2, STORE_BYTES, 0);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, "1 2\n2 3\n3 4\n", NULL, false, false, &report, &problem),
                     SHOAL_OK);
    shoal_cid cid;
    shoal_nid owner;
    assert_int_equal(sh_graph_vertex(&world->caller, world->peers, 2, 3, &cid, &owner, &problem),
                     SHOAL_OK);
    struct sh_store *store = world->nodes[owner.v - 1].store;
    sh_lid lid = {shoal_cid_local(cid)};
    uint8_t bytes[64] = {0xff};
    uint32_t size;
    assert_int_equal(sh_store_size(store, lid, &size), SHOAL_OK);
    assert_int_equal(sh_store_put(store, lid, sh_bytes_make(bytes, size)), SHOAL_OK);
    struct sh_graph_bfs_result result;
    for (unsigned i = 0; i < 2 * SH_GRAPH_RUNS_MAX; i++) {
        assert_int_equal(sh_graph_bfs(&world->caller, world->peers, 2, 1, false, &result, &problem),
                         SHOAL_ECORRUPT);
        assert_non_null(strstr(problem.detail, " of a vertex, on peer "));
    }
    assert_int_equal(sh_store_remove(store, lid), SHOAL_OK);
    assert_int_equal(sh_graph_bfs(&world->caller, world->peers, 2, 1, false, &result, &problem),
                     SHOAL_ENOCHUNK);
    assert_int_equal(sh_graph_drop(&world->caller, world->peers, 2, &problem), SHOAL_OK);
    assert_int_equal(chunks(world), 0);
    world_close(world);
}

/* --- Published results -------------------------------------------------------------------------
 */

/* Reads "KEY NUMBER ..." out of a line after the given word. */
static uint64_t number_after(const char *line, const char *word)
{
    const char *at = strstr(line, word);
    assert_non_null(at);
    return strtoull(at + strlen(word), NULL, 10);
}

/* Holds one traversal against a line "bfs directed root 1 reached 5 depth 2 ... histogram 0:1 ...".
 */
static void check_line(struct world *world, const char *line)
{
    bool undirected = strncmp(line, "bfs undirected", 14) == 0;
    struct sh_graph_bfs_result result;
    struct sh_graph_problem problem;
    assert_int_equal(sh_graph_bfs(&world->caller, world->peers, world->peer_count,
                                  number_after(line, " root "), undirected, &result, &problem),
                     SHOAL_OK);
    assert_int_equal(result.reached, number_after(line, " reached "));
    assert_int_equal(result.depth, number_after(line, " depth "));
    assert_int_equal(result.edges_traversed, number_after(line, " edges_from_reached "));
    const char *at = strstr(line, " histogram ") + strlen(" histogram");
    for (uint64_t level = 0; level <= result.depth; level++) {
        char *end;
        assert_int_equal(strtoull(at, &end, 10), level);
        assert_int_equal(*end, ':');
        assert_int_equal(strtoull(end + 1, &end, 10), result.levels[level]);
        at = end;
    }
    sh_graph_bfs_result_free(&result);
}

static void check_published(struct world *world, const char *edges, const char *vertices,
                            bool typed, const char *expected)
{
    struct sh_graph_load_options options = {
        .edges_path = edges, .vertices_path = vertices, .typed = typed};
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    enum shoal_err err =
        sh_graph_load(&world->caller, world->peers, world->peer_count, &options, &report, &problem);
    if (err)
        print_message("%s: %s\n", shoal_err_name(err), problem.detail);
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(report.lines, report.edges);
    assert_int_equal(report.parallel, 13040);
    print_message("%u peers: %llu vertices and %llu edges in %.3f s (%.3f s reading), %llu bytes\n",
                  world->peer_count, (unsigned long long)report.vertices,
                  (unsigned long long)report.edges, report.seconds, report.seconds_reading,
                  (unsigned long long)report.chunk_bytes);
    static char line[16384];
    unsigned lines = 0;
    FILE *file = fopen(expected, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, "vertices ", 9) == 0)
            assert_int_equal(report.vertices, number_after(line, "vertices "));
        if (strncmp(line, "raw_edge_lines ", 15) == 0)
            assert_int_equal(report.edges, number_after(line, "raw_edge_lines "));
        if (strncmp(line, "bfs ", 4) == 0) {
            check_line(world, line);
            lines++;
        }
    }
    (void)fclose(file);
    assert_true(lines > 0);
}

static void wordnet(void **state)
{
    (void)state;
    char folder[512];
    char edges[600];
    char vertices[600];
    char expected[600];
    (void)snprintf(folder, sizeof folder, "%s", __FILE__);
    char *end = strstr(folder, "src/graph/");
    assert_non_null(end);
    *end = '\0';
    (void)snprintf(edges, sizeof edges, "%sdata/wordnet/wordnet.e.tsv.zst", folder);
    (void)snprintf(vertices, sizeof vertices, "%sdata/wordnet/wordnet.v.tsv.zst", folder);
    (void)snprintf(expected, sizeof expected, "%sdata/wordnet/expected.txt", folder);
    for (unsigned peers = 1; peers <= PEERS_MAX; peers += 2) {
        struct world *world = world_open(peers, STORE_BYTES, 0);
        check_published(world, edges, vertices, true, expected);
        struct sh_graph_status status;
        assert_int_equal(
            sh_graph_status_get(&world->caller, world->peers, peers, NULL, &status, NULL),
            SHOAL_OK);
        assert_int_equal(status.edges, 377592);
        world_close(world);
    }
}

/* --- Several traversals at once ----------------------------------------------------------------
 */

struct traverser {
    struct world *world;
    unsigned wrong;
};

/* Traverses a ring of 1000 vertices a few times. */
static void *traverse_ring(void *arg)
{
    struct traverser *traverser = arg;
    struct world *world = traverser->world;
    for (unsigned i = 0; i < 5; i++) {
        struct sh_graph_bfs_result result;
        enum shoal_err err = sh_graph_bfs(&world->caller, world->peers, world->peer_count, i * 7,
                                          true, &result, NULL);
        if (err) {
            traverser->wrong++;
            continue;
        }
        traverser->wrong += result.reached != 1000 || result.depth != 500;
        traverser->wrong += result.edges_traversed != 2000;
        sh_graph_bfs_result_free(&result);
    }
    return NULL;
}

static void several_traversals(void **state)
{
    (void)state;
    struct world *world = world_open(2, STORE_BYTES, 2000000000);
    char text[16384];
    size_t size = 0;
    for (unsigned i = 0; i < 1000; i++)
        size += (size_t)snprintf(text + size, sizeof text - size, "%u %u\n", i, (i + 1) % 1000);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    assert_int_equal(load_text(world, text, NULL, false, false, &report, &problem), SHOAL_OK);
    pthread_t threads[SH_GRAPH_RUNS_MAX];
    struct traverser traversers[SH_GRAPH_RUNS_MAX];
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        traversers[i] = (struct traverser){.world = world};
        assert_int_equal(pthread_create(&threads[i], NULL, traverse_ring, &traversers[i]), 0);
    }
    for (unsigned i = 0; i < SH_GRAPH_RUNS_MAX; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(traversers[i].wrong, 0);
    }
    world_close(world);
}

/* Coordinators that begin traversals and vanish: one more is refused, until the peer forgets. */
static void abandoned_traversals(void **state)
{
    (void)state;
    struct world *world = world_open(1, STORE_BYTES, 300000000);
    struct sh_graph_load_report report;
    struct sh_graph_problem problem;
    struct sh_graph_status status;
    assert_int_equal(load_text(world, "1 2\n", NULL, false, false, &report, &problem), SHOAL_OK);
    assert_int_equal(sh_graph_status_get(&world->caller, world->peers, 1, NULL, &status, NULL),
                     SHOAL_OK);
    for (uint64_t run = 1; run <= SH_GRAPH_RUNS_MAX; run++) {
        uint8_t begin[33] = {0};
        sh_store64(begin, run);
        sh_store64(begin + 8, status.graph_id);
        sh_store64(begin + 16, status.generation);
        sh_store64(begin + 24, 1);
        assert_int_equal(sh_call(&world->caller, world->peers[0], SH_MSG_TYPE(3, 13),
                                 sh_bytes_make(begin, sizeof begin), 0, NULL, NULL, NULL),
                         SHOAL_OK);
    }
    uint64_t deadline = sh_now(&world->clock) + UINT64_C(30000000000);
    for (;;) {
        struct sh_graph_bfs_result result;
        enum shoal_err err =
            sh_graph_bfs(&world->caller, world->peers, 1, 1, false, &result, &problem);
        if (!err) {
            assert_int_equal(result.reached, 2);
            sh_graph_bfs_result_free(&result);
            break;
        }
        assert_int_equal(err, SHOAL_EBUSY);
        assert_string_equal(problem.detail, "too many traversals at once");
        assert_true(sh_now(&world->clock) < deadline);
    }
    world_close(world);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    assert_int_equal(sh_log_levels_set("error", &bad, &bad_len), SHOAL_OK);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_graph),         cmocka_unit_test(failed_loads),
        cmocka_unit_test(out_of_chunk_memory), cmocka_unit_test(log_without_room),
        cmocka_unit_test(abandoned_load),      cmocka_unit_test(random_graphs),
        cmocka_unit_test(damaged_vertex),      cmocka_unit_test(wordnet),
        cmocka_unit_test(several_traversals),  cmocka_unit_test(abandoned_traversals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
