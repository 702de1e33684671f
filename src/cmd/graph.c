/* shoal graph load, bfs, drop; graph_show.c has vertex and status. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/client.h"
#include "cmd/graph_int.h"
#include "cmd/process_int.h"
#include "cmd/progress_int.h"
#include "cmd/text_int.h"
#include "graph/bfs.h"

int sh_graph_open(struct sh_cmd *cmd, struct sh_graph_peers *peers_out)
{
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    shoal_nid *peers = calloc(SH_GRAPH_PEERS_MAX, sizeof *peers);
    size_t count = 0;
    enum shoal_err err =
        peers ? sh_client_peers(cmd->store, peers, SH_GRAPH_PEERS_MAX, &count) : SHOAL_ENOMEM;
    if (err == SHOAL_OK && count > SH_GRAPH_PEERS_MAX)
        err = SHOAL_ELIMIT;
    if (err != SHOAL_OK) {
        free(peers);
        if (err == SHOAL_ENONODE)
            return sh_cmd_fail_hint(cmd, err, "no peer is up",
                                    "start a peer: it is peers that hold the graph");
        return sh_cmd_fail(cmd, err, "%s", shoal_error_detail());
    }
    *peers_out = (struct sh_graph_peers){
        .caller = sh_client_caller(cmd->store), .nids = peers, .count = count};
    return SH_EXIT_OK;
}

bool sh_vertex_name_parse(const char *text, uint64_t *name_out)
{
    uint64_t name;
    if (sh_number_parse(text, "", &name) != SHOAL_OK)
        return false;
    *name_out = name;
    return true;
}

/* --- load ---------------------------------------------------------------------------------- */

static void load_progress(void *arg, const char *phase, uint64_t done, uint64_t total)
{
    bool bytes = strcmp(phase, "sort") != 0 && strcmp(phase, "link") != 0;
    sh_progress_show(arg, phase, done, total, bytes, sh_process_now_ms());
}

static void wrong_lines_json(const struct sh_wrong_lines *wrong, struct sh_json *root)
{
    struct sh_json *list = sh_json_array();
    for (unsigned i = 0; i < wrong->kept; i++) {
        struct sh_json *row = sh_json_object();
        sh_json_set_u64(row, "line", wrong->lines[i].line);
        sh_json_set_text(row, "text", wrong->lines[i].text);
        sh_json_append(list, row);
    }
    sh_json_set(root, "wrong_lines", list);
    sh_json_set_u64(root, "wrong_lines_count", wrong->count);
}

/* An error with the list of the wrong lines. */
static int load_parse_failed(struct sh_cmd *cmd, const struct sh_graph_problem *problem)
{
    const struct sh_wrong_lines *wrong = &problem->wrong;
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "error", shoal_err_name(SHOAL_EPARSE));
        sh_json_set_text(root, "text", shoal_err_text(SHOAL_EPARSE));
        sh_json_set_text(root, "detail", problem->detail);
        sh_json_set_text(root, "hint", shoal_err_hint(SHOAL_EPARSE));
        wrong_lines_json(wrong, root);
        sh_cmd_answer(cmd, root);
        return SH_EXIT_FAILED;
    }
    int status = sh_cmd_fail_hint(cmd, SHOAL_EPARSE, problem->detail, "");
    for (unsigned i = 0; i < wrong->kept; i++) {
        fprintf(stderr, "  line %" PRIu64 ": ", wrong->lines[i].line);
        sh_text_print(sh_bytes_text(wrong->lines[i].text), stderr);
        fputc('\n', stderr);
    }
    if (wrong->count > wrong->kept)
        fprintf(stderr, "  and %" PRIu64 " more\n", wrong->count - wrong->kept);
    return status;
}

static int load_report(struct sh_cmd *cmd, const struct sh_graph_load_report *report)
{
    double rate = report->seconds > 0 ? (double)report->lines / report->seconds : 0;
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "vertices", report->vertices);
        sh_json_set_u64(root, "edges", report->edges);
        sh_json_set_u64(root, "lines", report->lines);
        sh_json_set_u64(root, "parallel", report->parallel);
        sh_json_set_u64(root, "records", report->records);
        sh_json_set_u64(root, "relations", report->types);
        sh_json_set_u64(root, "chunk_bytes", report->chunk_bytes);
        sh_json_set_f64(root, "seconds", report->seconds);
        sh_json_set_f64(root, "seconds_reading", report->seconds_reading);
        sh_json_set_f64(root, "lines_per_second", rate);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "Loaded %" PRIu64 " vertices and %" PRIu64 " edges in %.3f s (%.2f million edges/s)\n",
            report->vertices, report->edges, report->seconds, rate / 1e6);
    if (report->parallel)
        fprintf(cmd->out, "  %" PRIu64 " edges repeat another's source, target and relation\n",
                report->parallel);
    if (report->records)
        fprintf(cmd->out, "  %" PRIu64 " vertex records\n", report->records);
    if (report->types)
        fprintf(cmd->out, "  %" PRIu64 " relations\n", report->types);
    return SH_EXIT_OK;
}

int sh_cmd_run_graph_load(struct sh_cmd *cmd)
{
    struct sh_graph_peers peers;
    struct sh_graph_problem problem = {0};
    struct sh_graph_load_report report;
    struct sh_progress progress;
    int status = sh_graph_open(cmd, &peers);
    if (status != SH_EXIT_OK)
        return status;
    sh_progress_begin(&progress, stderr, isatty(STDERR_FILENO), "loading", sh_process_now_ms());
    struct sh_graph_load_options options = {.edges_path = cmd->words[0],
                                            .vertices_path = cmd->flags.vertices,
                                            .typed = cmd->flags.types,
                                            .replace = cmd->flags.replace,
                                            .progress = load_progress,
                                            .arg = &progress};
    enum shoal_err err =
        sh_graph_load(&peers.caller, peers.nids, peers.count, &options, &report, &problem);
    sh_progress_end(&progress);
    if (err == SHOAL_OK)
        status = load_report(cmd, &report);
    else if (err == SHOAL_EPARSE)
        status = load_parse_failed(cmd, &problem);
    else if (err == SHOAL_EEXIST)
        status = sh_cmd_fail_hint(cmd, err, problem.detail,
                                  "add --replace, or remove it first with `shoal graph drop`");
    else
        status = sh_cmd_fail(cmd, err, "%s", problem.detail);
    free(peers.nids);
    return status;
}

/* --- bfs ----------------------------------------------------------------------------------- */

static int bfs_report(struct sh_cmd *cmd, const struct sh_graph_bfs_result *result)
{
    double teps = result->seconds > 0 ? (double)result->edges_traversed / result->seconds : 0;
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object(), *levels = sh_json_array();
        for (uint64_t i = 0; i <= result->depth; i++)
            sh_json_append_u64(levels, result->levels[i]);
        sh_json_set_u64(root, "root", result->root);
        sh_json_set_u64(root, "reached", result->reached);
        sh_json_set(root, "levels", levels);
        sh_json_set_u64(root, "edges_traversed", result->edges_traversed);
        sh_json_set_f64(root, "seconds", result->seconds);
        sh_json_set_f64(root, "teps", teps);
        return sh_cmd_answer(cmd, root);
    }
    fprintf(cmd->out,
            "Reached %" PRIu64 " vertices from %" PRIu64 " in %.3f s: %" PRIu64
            " edges, %.2f million a second\n",
            result->reached, result->root, result->seconds, result->edges_traversed, teps / 1e6);
    fprintf(cmd->out, "%5s %12s\n", "LEVEL", "VERTICES");
    for (uint64_t i = 0; i <= result->depth; i++)
        fprintf(cmd->out, "%5" PRIu64 " %12" PRIu64 "\n", i, result->levels[i]);
    return SH_EXIT_OK;
}

/* A traversal that is to be done. */
struct bfs {
    uint64_t root;
    bool undirected;
    struct sh_graph_bfs_result result;
};

static enum shoal_err bfs_ask(const struct sh_graph_peers *peers, void *arg,
                              struct sh_graph_problem *problem_out)
{
    struct bfs *bfs = arg;
    return sh_graph_bfs(&peers->caller, peers->nids, peers->count, bfs->root, bfs->undirected,
                        &bfs->result, problem_out);
}

int sh_cmd_run_graph_bfs(struct sh_cmd *cmd)
{
    struct sh_graph_peers peers;
    struct sh_graph_problem problem;
    struct bfs bfs = {.undirected = cmd->flags.undirected};
    if (!sh_vertex_name_parse(cmd->words[0], &bfs.root))
        return sh_cmd_usage(cmd, "\"%.40s\" is not a vertex: write its number", cmd->words[0]);
    int status = sh_graph_open(cmd, &peers);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_graph_persist(cmd, &peers, bfs_ask, &bfs, &problem);
    if (err == SHOAL_OK) {
        status = bfs_report(cmd, &bfs.result);
        sh_graph_bfs_result_free(&bfs.result);
    } else {
        status = sh_cmd_fail(cmd, err, "%s", problem.detail);
    }
    free(peers.nids);
    return status;
}

/* --- drop ---------------------------------------------------------------------------------- */

int sh_cmd_run_graph_drop(struct sh_cmd *cmd)
{
    struct sh_graph_peers peers;
    struct sh_graph_problem problem = {0};
    int status = sh_graph_open(cmd, &peers);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = sh_graph_drop(&peers.caller, peers.nids, peers.count, &problem);
    free(peers.nids);
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "%s", problem.detail);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_bool(root, "dropped", true);
        return sh_cmd_answer(cmd, root);
    }
    fputs("The graph is gone.\n", cmd->out);
    return SH_EXIT_OK;
}
