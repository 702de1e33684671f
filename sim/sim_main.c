/* shoal-sim: simulated worlds for as long as you like. docs/simulation.md. */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/env.h"
#include "sim/cluster_cli.h"
#include "sim/msg_load.h"

#define NS_PER_MINUTE UINT64_C(60000000000)
/* Reports of progress are this far apart. */
#define REPORT_NS UINT64_C(10000000000)

enum { EXIT_HOLDS = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct request {
    uint64_t seeds;   /* 0: no limit */
    uint64_t minutes; /* 0: no limit */
    uint64_t seed;
    uint64_t nodes; /* 0: 2 and 5 in turn */
    bool trace;
    bool help;
};

static const char usage[] =
    "usage: shoal-sim [--seeds N] [--minutes M] [--seed S] [--nodes K] [--trace]\n"
    "       shoal-sim cluster ... (see shoal-sim cluster --help)\n"
    "\n"
    "Runs simulated nodes that exchange messages under faults, one world per seed and size, until\n"
    "a checker fails; with cluster, whole clusters.\n"
    "A failing seed is printed and replayed with its trace.\n"
    "\n"
    "  --seeds N    stop after N seeds (default 100; 0: no limit, with --minutes)\n"
    "  --minutes M  stop after M minutes\n"
    "  --seed S     begin with seed S (default: random, and printed)\n"
    "  --nodes K    nodes of each world, 2 to 8 (default: 2, then 5)\n"
    "  --trace      print the trace of each world; with --seed and without --seeds: of that one\n"
    "\n"
    "Exit status: 0 every world held, 1 a checker failed, 2 wrong usage.\n"
    "\n"
    "  shoal-sim --minutes 60\n"
    "  shoal-sim --seed 1234 --nodes 5 --trace\n";

static bool read_number(const char *flag, const char *text, uint64_t *number_out)
{
    char *end;
    errno = 0;
    uint64_t number = strtoull(text, &end, 0);
    if (errno || end == text || *end || strchr(text, '-')) {
        fprintf(stderr, "shoal-sim: %s takes a number, not \"%s\"\n", flag, text);
        return false;
    }
    *number_out = number;
    return true;
}

static bool read_flags(int argc, char **argv, struct request *request)
{
    static const struct option flags[] = {{"seeds", required_argument, NULL, 'n'},
                                          {"minutes", required_argument, NULL, 'm'},
                                          {"seed", required_argument, NULL, 's'},
                                          {"nodes", required_argument, NULL, 'k'},
                                          {"trace", no_argument, NULL, 't'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    bool has_seeds = false;
    bool has_seed = false;
    bool good = true;
    int flag;
    while (good && (flag = getopt_long(argc, argv, "h", flags, NULL)) != -1) {
        switch (flag) {
        case 'n':
            has_seeds = true;
            good = read_number("--seeds", optarg, &request->seeds);
            break;
        case 'm':
            good = read_number("--minutes", optarg, &request->minutes);
            break;
        case 's':
            has_seed = true;
            good = read_number("--seed", optarg, &request->seed);
            break;
        case 'k':
            good = read_number("--nodes", optarg, &request->nodes);
            break;
        case 't':
            request->trace = true;
            break;
        case 'h':
            request->help = true;
            break;
        default:
            good = false;
            break;
        }
    }
    if (!has_seeds)
        request->seeds = request->minutes ? 0 : has_seed && request->trace ? 1 : 100;
    if (good && request->nodes && (request->nodes < 2 || request->nodes > SH_MSG_LOAD_NODES_MAX)) {
        fprintf(stderr, "shoal-sim: --nodes is 2 to %d\n", SH_MSG_LOAD_NODES_MAX);
        good = false;
    }
    return good && optind == argc;
}

static void run_world(uint64_t seed, unsigned nodes, FILE *trace, struct sh_msg_load_result *result)
{
    struct sh_msg_load_config config = sh_msg_load_config_of(seed, nodes);
    config.trace = trace;
    sh_msg_load_run(&config, result);
}

/* Runs one seed's worlds; true when all held. */
static bool run_seed(const struct request *request, uint64_t seed)
{
    static const unsigned sizes[] = {2, 5};
    unsigned worlds = request->nodes ? 1 : 2;
    for (unsigned i = 0; i < worlds; i++) {
        unsigned nodes = request->nodes ? (unsigned)request->nodes : sizes[i];
        struct sh_msg_load_result result;
        run_world(seed, nodes, request->trace ? stdout : NULL, &result);
        if (request->trace)
            printf("seed %" PRIu64 ", %u nodes: trace hash %016" PRIx64 "\n", seed, nodes,
                   result.trace_hash);
        if (!result.failed)
            continue;
        if (!request->trace)
            run_world(seed, nodes, stdout, &result);
        printf("failed: seed %" PRIu64 ", %u nodes: %s\n", seed, nodes, result.text);
        printf("replay: shoal-sim --seed %" PRIu64 " --nodes %u --trace\n", seed, nodes);
        return false;
    }
    return true;
}

static int run_all(const struct request *request)
{
    struct sh_clock clock = sh_real_clock();
    uint64_t started_ns = sh_now(&clock);
    uint64_t reported_ns = started_ns;
    uint64_t done = 0;
    printf("seeds from %" PRIu64 "\n", request->seed);
    for (;;) {
        if (!run_seed(request, request->seed + done))
            return EXIT_FAILED;
        done++;
        uint64_t now_ns = sh_now(&clock);
        bool over = request->seeds && done >= request->seeds;
        over =
            over || (request->minutes && (now_ns - started_ns) / NS_PER_MINUTE >= request->minutes);
        if (over || now_ns - reported_ns >= REPORT_NS) {
            printf("%" PRIu64 " seeds held in %" PRIu64 " s\n", done,
                   (now_ns - started_ns) / UINT64_C(1000000000));
            fflush(stdout);
            reported_ns = now_ns;
        }
        if (over)
            return EXIT_HOLDS;
    }
}

int main(int argc, char **argv)
{
    struct sh_random random = sh_real_random();
    struct request request = {.seed = sh_random64(&random) >> 16};
    if (argc > 1 && strcmp(argv[1], "cluster") == 0)
        return sh_cluster_cli(argc - 1, argv + 1);
    if (!read_flags(argc, argv, &request)) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (request.help) {
        fputs(usage, stdout);
        return EXIT_HOLDS;
    }
    const char *bad;
    size_t bad_len;
    /* Refused and lost connections are what these worlds are made of. */
    if (sh_log_levels_set("error", &bad, &bad_len))
        return EXIT_USAGE;
    return run_all(&request);
}
