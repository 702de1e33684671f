#include "sim/cluster_cli.h"

#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "env/env.h"
#include "sim/cluster_world.h"
#include "sim/record.h"

#define NS_PER_S UINT64_C(1000000000)
#define REPORT_NS (10 * NS_PER_S)

enum { EXIT_HOLDS = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };

struct request {
    uint64_t seeds, minutes, seed;                 /* seeds and minutes: 0 is no limit */
    uint64_t superpeers, peers, clients, programs; /* 0: drawn from the seed */
    bool trace, story, help, has_seed, has_seeds, has_programs, zookeeper;
    const char *log, *record;
};

struct totals {
    uint64_t seeds, virtual_ns, operations, moves, lost, crashes, flips, judged, unjudged, recruits,
        dismissals, drains, zones, renewals;
    uint64_t started_ns, reported_ns;
};

static const char usage[] =
    "usage: shoal-sim cluster [--seed S] [--seeds N] [--minutes M] [--superpeers N] [--peers N]\n"
    "                         [--clients N] [--programs N] [--zookeeper] [--story] [--trace]\n"
    "                         [--log LEVELS] [--record DIR]\n"
    "\n"
    "Runs whole simulated clusters under faults, one per seed, until a checker fails. The failing\n"
    "seed is printed with the command that replays it, after the story of its clients and faults.\n"
    "\n"
    "  --seed S        begin with seed S (default: random, and printed)\n"
    "  --seeds N       stop after N seeds (default 100, 1 with --seed; 0: no limit)\n"
    "  --minutes M     stop after M minutes\n"
    "  --superpeers N  1 to 5 (default: drawn from the seed, like the next two)\n"
    "  --peers N       2 to 20\n"
    "  --clients N     1 to 20\n"
    "  --programs N    0 to 5, clients that use libshoal itself\n"
    "  --zookeeper     keep each registry in the model of a ZooKeeper (default: one world in "
    "eight)\n"
    "  --story         print what clients did and which nodes failed\n"
    "  --trace         print everything that happened, event by event, and a hash of it\n"
    "  --log LEVELS    what the nodes log (default: error)\n"
    "  --record DIR    write samples of the messages to DIR, as seeds of the fuzz targets\n"
    "\n"
    "Exit status: 0 every world held, 1 a checker failed, 2 wrong usage.\n"
    "\n"
    "  shoal-sim cluster --minutes 60\n"
    "  shoal-sim cluster --seed 1234 --story\n";

static bool read_number(const char *flag, uint64_t min, uint64_t max, uint64_t *number_out)
{
    char *end;
    errno = 0;
    uint64_t number = strtoull(optarg, &end, 0);
    if (errno || end == optarg || *end || strchr(optarg, '-') || number < min || number > max) {
        fprintf(stderr, "shoal-sim: --%s is a number from %" PRIu64 " to %" PRIu64 "\n", flag, min,
                max);
        return false;
    }
    *number_out = number;
    return true;
}

static const struct option flags[] = {
    {"seeds", required_argument, NULL, 'n'},    {"minutes", required_argument, NULL, 'm'},
    {"seed", required_argument, NULL, 's'},     {"superpeers", required_argument, NULL, 'S'},
    {"peers", required_argument, NULL, 'P'},    {"clients", required_argument, NULL, 'C'},
    {"programs", required_argument, NULL, 'p'}, {"trace", no_argument, NULL, 't'},
    {"story", no_argument, NULL, 'y'},          {"log", required_argument, NULL, 'l'},
    {"record", required_argument, NULL, 'r'},   {"zookeeper", no_argument, NULL, 'z'},
    {"help", no_argument, NULL, 'h'},           {NULL, 0, NULL, 0}};

static bool read_flag(struct request *request, int flag)
{
    switch (flag) {
    case 'n':
        request->has_seeds = true;
        return read_number("seeds", 0, UINT64_MAX, &request->seeds);
    case 'm':
        return read_number("minutes", 1, UINT64_C(1) << 24, &request->minutes);
    case 's':
        request->has_seed = true;
        return read_number("seed", 0, UINT64_MAX, &request->seed);
    case 'S':
        return read_number("superpeers", 1, SH_CLUSTER_SUPERPEERS_MAX, &request->superpeers);
    case 'P':
        return read_number("peers", 2, SH_CLUSTER_PEERS_MAX, &request->peers);
    case 'C':
        return read_number("clients", 1, SH_CLUSTER_CLIENTS_MAX, &request->clients);
    case 'p':
        request->has_programs = true;
        return read_number("programs", 0, SH_CLUSTER_PROGRAMS_MAX, &request->programs);
    case 't':
        request->trace = true;
        return true;
    case 'y':
        request->story = true;
        return true;
    case 'l':
        request->log = optarg;
        return true;
    case 'r':
        request->record = optarg;
        return true;
    case 'z':
        request->zookeeper = true;
        return true;
    case 'h':
        request->help = true;
        return true;
    default:
        return false;
    }
}

static bool read_flags(int argc, char **argv, struct request *request)
{
    int flag;
    optind = 1;
    while ((flag = getopt_long(argc, argv, "h", flags, NULL)) != -1) {
        if (!read_flag(request, flag))
            return false;
    }
    if (!request->has_seeds)
        request->seeds = request->minutes ? 0 : request->has_seed ? 1 : 100;
    return optind == argc;
}

static void run_world(const struct request *request, uint64_t seed, bool story,
                      struct sh_cluster_world_result *result)
{
    struct sh_cluster_world_config config = sh_cluster_world_config_of(
        seed, (unsigned)request->superpeers, (unsigned)request->peers, (unsigned)request->clients);
    if (request->has_programs)
        config.programs = (unsigned)request->programs;
    config.is_zookeeper |= request->zookeeper;
    config.trace = request->trace ? stdout : NULL;
    config.story = story && !request->trace ? stdout : NULL;
    sh_cluster_world_run(&config, result);
}

static void print_replay(const struct request *request, uint64_t seed)
{
    printf("replay: shoal-sim cluster --seed %" PRIu64, seed);
    if (request->superpeers)
        printf(" --superpeers %" PRIu64, request->superpeers);
    if (request->peers)
        printf(" --peers %" PRIu64, request->peers);
    if (request->clients)
        printf(" --clients %" PRIu64, request->clients);
    if (request->has_programs)
        printf(" --programs %" PRIu64, request->programs);
    if (request->zookeeper)
        printf(" --zookeeper");
    printf(" --story\n");
}

/* True when the seed's world held. */
static bool run_seed(const struct request *request, uint64_t seed, struct totals *totals)
{
    struct sh_cluster_world_result result;
    run_world(request, seed, request->story, &result);
    if (request->trace)
        printf("seed %" PRIu64 ": trace hash %016" PRIx64 "\n", seed, result.trace_hash);
    totals->seeds++;
    totals->virtual_ns += result.virtual_ns;
    totals->operations +=
        result.creates + result.puts + result.gets + result.removes + result.locks;
    totals->moves += result.moves;
    totals->lost += result.lost;
    totals->crashes += result.crashes;
    totals->renewals += result.renewals;
    totals->flips += result.flips;
    totals->recruits += result.recruits;
    totals->dismissals += result.dismissals;
    totals->drains += result.drains;
    totals->zones += result.zones;
    totals->judged += result.judged;
    totals->unjudged += result.unjudged;
    if (!result.failed)
        return true;
    char text[sizeof result.text];
    memcpy(text, result.text, sizeof text);
    if (!request->trace && !request->story)
        run_world(request, seed, true, &result);
    printf("failed: seed %" PRIu64 ": %s\n", seed, text);
    print_replay(request, seed);
    return false;
}

static void report(const struct totals *totals, uint64_t now_ns)
{
    double real_s = (double)(now_ns - totals->started_ns) / 1e9;
    double virtual_s = (double)totals->virtual_ns / 1e9;
    printf("%" PRIu64 " seeds held, %.2f virtual hours in %.0f s (%.0f virtual seconds a second); "
           "%" PRIu64 " operations, %" PRIu64 " moves, %" PRIu64 " crashes, %" PRIu64
           " lives declared failed and followed, %" PRIu64 " flipped bits noticed, %" PRIu64
           " chunks died, %" PRIu64 " peers drained, %" PRIu64 " superpeers came and %" PRIu64
           " went, %" PRIu64 " answers about zones; of programs %" PRIu64 " calls judged, %" PRIu64
           " histories without a verdict\n",
           totals->seeds, virtual_s / 3600, real_s, real_s > 0 ? virtual_s / real_s : 0,
           totals->operations, totals->moves, totals->crashes, totals->renewals, totals->flips,
           totals->lost, totals->drains, totals->recruits, totals->dismissals, totals->zones,
           totals->judged, totals->unjudged);
    (void)fflush(stdout);
}

static int run_all(const struct request *request)
{
    struct sh_clock clock = sh_real_clock();
    struct totals totals = {.started_ns = sh_now(&clock)};
    totals.reported_ns = totals.started_ns;
    printf("seeds from %" PRIu64 "\n", request->seed);
    for (;;) {
        if (!run_seed(request, request->seed + totals.seeds, &totals))
            return EXIT_FAILED;
        uint64_t now_ns = sh_now(&clock);
        uint64_t minutes = (now_ns - totals.started_ns) / (60 * NS_PER_S);
        bool is_over = (request->seeds && totals.seeds >= request->seeds) ||
                       (request->minutes && minutes >= request->minutes);
        if (is_over || now_ns - totals.reported_ns >= REPORT_NS) {
            report(&totals, now_ns);
            totals.reported_ns = now_ns;
        }
        if (is_over)
            return EXIT_HOLDS;
    }
}

int sh_cluster_cli(int argc, char **argv)
{
    struct sh_random random = sh_real_random();
    struct request request = {.seed = sh_random64(&random) >> 16, .log = "error"};
    const char *bad;
    size_t bad_len;
    if (!read_flags(argc, argv, &request) ||
        sh_log_levels_set(request.log, &bad, &bad_len) != SHOAL_OK) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    }
    if (request.help) {
        fputs(usage, stdout);
        return EXIT_HOLDS;
    }
    if (request.record)
        sh_record_begin();
    int status = run_all(&request);
    return request.record && !sh_record_end(request.record) ? EXIT_FAILED : status;
}
