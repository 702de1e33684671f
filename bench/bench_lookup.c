/* `shoal bench lookup`: which node has a chunk, asked by a client of a superpeer and --nodes peers
 * (16), which are threads of a child process and reached over loopback TCP. The client touches
 * --count chunks (a million), drawn uniformly.
 *
 * cached    nothing has moved. Each run begins with an empty cache.
 * migrated  --percent of the chunks have moved, in runs of --length; without the two, 1, 5 and 10 %
 *           in runs of 1 and of 100. As cached; the cache has its default bound of 262144
 *           ranges.
 * network   without the cache: each lookup is a question to the superpeer, one at a time. The
 *           baseline is a bare round trip of as many bytes.
 *
 * An operation is a lookup, whether it hits or misses; bytes_per_chunk is the cache's memory by its
 * own account. The digest is taken over the owners of drawn chunks.
 *
 * Prediction: a hit walks a tree of a node or two in the first level's cache: 15 to 30 ns, of which
 * two increments and the draw are 10. In migrated, 10 % in runs of 1 are 200000 ranges; an answer
 * brings 64, so 3 to 10 thousand questions would fill a cache that has room for all. The network
 * costs what a request costs (docs/benchmarks.md, Messages): near the bare round trip. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/benches.h"
#include "bench/lookup_server.h"
#include "bench/tcp_base.h"
#include "client/client.h"
#include "cluster/directory.h"
#include "cluster/proto.h"

#define THREADS_MAX 64
#define SAMPLE_EVERY 64
#define DIGEST_KEYS 4096
#define TIMEOUT_NS UINT64_C(30000000000)
/* A message's header in front of the request. */
#define REQUEST_BYTES (10 + SH_LOOKUP_BYTES)

const char *const sh_bench_lookup_cases[] = {"cached", "migrated", "network", NULL};
const char *const sh_bench_lookup_baselines[] = {"tcp", NULL};

/* What the client's threads share in one run. */
struct client {
    const struct sh_lookup_shape *shape;
    enum sh_placement placement;
    bool is_cached; /* false: each lookup forgets first */
    struct sh_child server;
    shoal *store;
    struct sh_directory *directory;
    shoal_nid peers[SH_LOOKUP_PEERS_MAX];
    uint64_t start_ns, deadline_ns;
};

struct worker {
    struct client *client;
    unsigned index;
    uint64_t ops;
    double first_percent; /* of the first count lookups that hit */
    enum shoal_err err;
    struct sh_hist latency_ns;
};

/* What a case measures, and what it has found in its last run. */
struct subject {
    struct sh_lookup_shape shape;
    bool is_cached;
    double first_percent;
    struct sh_directory_stats stats;
};

static shoal_cid cid_draw(const struct client *client, uint64_t at)
{
    const struct sh_lookup_shape *shape = client->shape;
    uint64_t drawn = sh_mix64(shape->seed + at * UINT64_C(0x9e3779b97f4a7c15));
    uint64_t chunk = (uint64_t)((unsigned __int128)drawn * sh_lookup_each(shape) >> 64);
    uint64_t peer = (drawn & UINT32_MAX) * shape->nodes >> 32;
    return shoal_cid_make(client->peers[peer], chunk + 1);
}

static enum shoal_err look(struct client *client, uint64_t at, shoal_nid *owner_out)
{
    shoal_cid cid = cid_draw(client, at);
    if (!client->is_cached)
        sh_directory_forget(client->directory, cid);
    return sh_client_locate(client->store, cid, 0, owner_out);
}

/* Whether the thread goes on. With a cache it touches as many chunks as there are, at least. */
static bool goes_on(const struct worker *worker, uint64_t now_ns)
{
    const struct client *client = worker->client;
    bool is_filling =
        client->is_cached && worker->ops * client->shape->threads < client->shape->count;
    return !worker->err && (is_filling || now_ns < client->deadline_ns);
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct client *client = worker->client;
    uint64_t at = (uint64_t)worker->index << 40;
    uint64_t now_ns = client->start_ns;
    uint64_t untimed = client->is_cached ? SAMPLE_EVERY - 1 : 0;
    shoal_nid owner;
    bool is_counted = false;
    if (worker->index)
        sh_bench_pin(client->placement, 0);
    while (goes_on(worker, now_ns)) {
        for (uint64_t i = 0; i < untimed && !worker->err; i++)
            worker->err = look(client, at + worker->ops++, &owner);
        uint64_t begin_ns = sh_bench_now_ns();
        if (!worker->err)
            worker->err = look(client, at + worker->ops++, &owner);
        now_ns = sh_bench_now_ns();
        sh_hist_add(&worker->latency_ns, now_ns - begin_ns);
        if (!is_counted && worker->ops * client->shape->threads >= client->shape->count) {
            struct sh_lookups_stats stats = sh_directory_stats(client->directory).cache;
            worker->first_percent =
                100.0 * (1 - (double)stats.misses / ((double)stats.hits + (double)stats.misses));
            is_counted = true;
        }
    }
    return NULL;
}

/* Runs the workers, the first on the calling thread. */
static enum shoal_err workers_run(struct client *client, struct worker *workers,
                                  struct sh_bench_result *result)
{
    pthread_t threads[THREADS_MAX];
    unsigned count = client->shape->threads, made = 1;
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < count; i++) {
        workers[i] = (struct worker){.client = client, .index = i};
        sh_hist_reset(&workers[i].latency_ns);
    }
    uint64_t cpu_ns = sh_children_cpu_ns(&client->server, 1);
    client->start_ns = sh_bench_now_ns();
    client->deadline_ns = client->start_ns + (uint64_t)(client->shape->seconds * 1e9);
    while (made < count && !err) {
        if (pthread_create(&threads[made], NULL, worker_main, &workers[made]) == 0)
            made++;
        else
            err = SHOAL_ENOMEM;
    }
    if (!err)
        worker_main(&workers[0]);
    for (unsigned i = 1; i < made; i++)
        (void)pthread_join(threads[i], NULL);
    result->seconds = (double)(sh_bench_now_ns() - client->start_ns) / 1e9;
    result->cpu_ns = sh_children_cpu_ns(&client->server, 1) - cpu_ns;
    for (unsigned i = 0; i < count; i++) {
        err = err ? err : workers[i].err;
        result->ops += workers[i].ops;
        sh_hist_merge(&result->latency_ns, &workers[i].latency_ns);
    }
    return err;
}

static enum shoal_err digest_take(struct client *client, uint64_t *digest_out)
{
    uint64_t digest = 1;
    for (uint64_t i = 0; i < DIGEST_KEYS; i++) {
        shoal_nid owner;
        enum shoal_err err = look(client, i, &owner);
        if (err)
            return err;
        /* By its place: IDs are not the same in each run. */
        uint64_t place = 0;
        while (place < client->shape->nodes && client->peers[place].v != owner.v)
            place++;
        digest = sh_mix64(digest ^ place);
    }
    *digest_out = digest;
    return SHOAL_OK;
}

static enum shoal_err client_open(struct client *client)
{
    size_t count = 0;
    enum shoal_err err = sh_lookup_server_start(client->shape, client->placement, &client->server);
    if (err)
        return err;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%u", client->server.port);
    struct shoal_options options = {
        .addresses = address, .cluster = "bench", .timeout_ns = TIMEOUT_NS, .spin_ns = 1};
    if (sh_bench_spins(client->placement))
        options.spin_ns = UINT64_MAX;
    else if (client->placement == SH_PLACE_FREE)
        options.spin_ns = 0;
    sh_bench_pin(client->placement, 0);
    err = shoal_open(&options, &client->store);
    if (!err)
        err = sh_client_peers(client->store, client->peers, SH_LOOKUP_PEERS_MAX, &count);
    if (!err && count != client->shape->nodes)
        err = SHOAL_ENONODE;
    if (err) {
        SH_ERROR("bench", "no cluster to ask", SH_ERR(err),
                 SH_TEXT("detail", shoal_error_detail()));
        return err;
    }
    client->directory = sh_client_directory(client->store);
    return SHOAL_OK;
}

static enum shoal_err lookup_run(void *arg, const struct sh_bench_flags *flags,
                                 enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)flags;
    struct subject *subject = arg;
    struct client client = {
        .shape = &subject->shape, .placement = placement, .is_cached = subject->is_cached};
    struct worker *workers = calloc(subject->shape.threads, sizeof *workers);
    enum shoal_err err = workers ? client_open(&client) : SHOAL_ENOMEM;
    sh_hist_reset(&result_out->latency_ns);
    if (!err)
        err = workers_run(&client, workers, result_out);
    if (!err) {
        subject->first_percent = workers[0].first_percent;
        subject->stats = sh_directory_stats(client.directory);
        result_out->bytes_per_chunk =
            (double)subject->stats.cache.bytes / (double)subject->shape.count;
        client.is_cached = true;
        err = digest_take(&client, &result_out->digest);
    }
    shoal_close(client.store);
    sh_child_stop(&client.server);
    free(workers);
    return err;
}

/* --- Cases ----------------------------------------------------------------------------------- */

struct measurement {
    struct sh_bench *bench;
    const char *name;
    enum sh_placement placement;
    char extra[160];
};

static void bar_print(const struct measurement *m, const char *what, double figure, double cpu,
                      double limit, bool at_least)
{
    struct sh_bench_bar bar = {.case_name = m->name,
                               .placement = m->placement,
                               .extra = m->extra,
                               .what = what,
                               .figure = figure,
                               .figure_cpu = cpu,
                               .limit = limit,
                               .at_least = at_least};
    sh_bench_bar_print(m->bench, &bar);
}

static void stats_note(const struct measurement *m, const struct subject *subject)
{
    const struct sh_directory_stats *stats = &subject->stats;
    char text[256];
    snprintf(text, sizeof text,
             "%s: %.3f %% of the first lookups hit; in all %llu hits, %llu misses, %llu questions, "
             "%llu evictions; %llu ranges in %llu bytes",
             m->name, subject->first_percent, (unsigned long long)stats->cache.hits,
             (unsigned long long)stats->cache.misses, (unsigned long long)stats->requests,
             (unsigned long long)stats->cache.evictions, (unsigned long long)stats->cache.ranges,
             (unsigned long long)stats->cache.bytes);
    sh_bench_note(m->bench, text);
}

static enum shoal_err case_measure(struct sh_bench *bench, const char *name,
                                   struct subject *subject)
{
    const struct sh_lookup_shape *shape = &subject->shape;
    const char *vs = subject->is_cached ? NULL : sh_bench_flags_get(bench)->vs;
    struct measurement m = {.bench = bench, .name = name};
    struct sh_bench_flags base = {.size = REQUEST_BYTES,
                                  .threads = shape->threads,
                                  .outstanding = 1,
                                  .connections = 1,
                                  .seconds = shape->seconds,
                                  .seed = shape->seed};
    struct sh_bench_system systems[2] = {{"shoal", lookup_run, subject},
                                         {vs, sh_tcp_base_request, &base}};
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    snprintf(m.extra, sizeof m.extra,
             "count=%llu nodes=%u threads=%u percent=%llu length=%llu transport=tcp",
             (unsigned long long)shape->count, shape->nodes, shape->threads,
             (unsigned long long)shape->percent, (unsigned long long)shape->length);
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < count && !err; i++) {
        struct sh_bench_medians medians[2];
        m.placement = placements[i];
        err = sh_bench_measure_all(bench, name, m.placement, m.extra, systems, vs ? 2 : 1,
                                   vs != NULL, medians);
        if (err || !subject->is_cached)
            continue;
        stats_note(&m, subject);
        bar_print(&m, "percent of the first lookups hit", subject->first_percent, 0, 99, true);
        if (!shape->percent)
            bar_print(&m, "ns a lookup", 1e9 * shape->threads / medians[0].ops_per_s,
                      medians[0].cpu_ns_per_op, 100, false);
    }
    return err;
}

static enum shoal_err migrated_measure(struct sh_bench *bench, const struct sh_lookup_shape *shape)
{
    static const uint64_t percents[] = {1, 5, 10};
    static const uint64_t lengths[] = {1, 100};
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    enum shoal_err err = SHOAL_OK;
    for (size_t p = 0; p < (flags->percent ? 1 : 3) && !err; p++) {
        for (size_t l = 0; l < (flags->length ? 1 : 2) && !err; l++) {
            struct subject subject = {.shape = *shape, .is_cached = true};
            subject.shape.percent = flags->percent ? flags->percent : percents[p];
            subject.shape.length = flags->length ? flags->length : lengths[l];
            err = case_measure(bench, "migrated", &subject);
        }
    }
    return err;
}

enum shoal_err sh_bench_lookup(struct sh_bench *bench)
{
    const struct sh_bench_flags *flags = sh_bench_flags_get(bench);
    struct sh_lookup_shape shape = {
        .count = flags->count ? flags->count : 1000000,
        .nodes = flags->nodes ? flags->nodes : 16,
        .length = 1,
        .threads = flags->threads ? flags->threads : 1,
        .seconds = flags->seconds > 0 ? flags->seconds : 1,
        .seed = flags->seed,
    };
    if (shape.nodes < 2 || shape.nodes > SH_LOOKUP_PEERS_MAX || shape.threads > THREADS_MAX ||
        shape.count < 50 * (uint64_t)shape.nodes || shape.count > UINT64_C(1) << 36)
        return sh_bench_refuse(bench, "it takes --nodes from 2 to 64, --threads to 64, and --count "
                                      "from 50 for each node to 2^36");
    enum shoal_err err = SHOAL_OK;
    struct subject subject = {.shape = shape, .is_cached = true};
    if (sh_bench_case_wanted(bench, "cached"))
        err = case_measure(bench, "cached", &subject);
    if (!err && sh_bench_case_wanted(bench, "migrated"))
        err = migrated_measure(bench, &shape);
    subject.is_cached = false;
    if (!err && sh_bench_case_wanted(bench, "network"))
        err = case_measure(bench, "network", &subject);
    return err;
}
