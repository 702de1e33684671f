/* Processes that keep a number in ZooKeeper, and lead by turns, in worlds in which sessions expire late
 * and early, connections are lost, watches come late, and processes crash and are stopped. No two of
 * them may be told that the same write was theirs; nobody reads an older value than before; and whoever
 * says since when it surely leads, did. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/random_test.h"
#include "env/env.h"
#include "sim/chaos.h"
#include "sim/world.h"
#include "sim/zookeeper_model.h"
#include "superpeer/zookeeper.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define HOSTS 3
#define NUMBERS 65536
#define FIXED_SEEDS 60
#define FRESH_SEEDS 20

struct host {
    struct test_world *world;
    unsigned node;
    struct sh_zookeeper *zookeeper;
    uint64_t written; /* what is being written; 0: nothing */
    uint64_t led_ns;
    uint64_t number; /* the highest that it has read, in any life */
};

struct test_world {
    struct sh_world *sim;
    struct sh_zookeeper_model *model;
    struct host hosts[HOSTS];
    bool is_acked[NUMBERS];
    uint64_t acked, led, highest;
    const char *broken;
};

static uint64_t now_of(const struct host *host)
{
    return sh_now(&sh_world_env(host->world->sim, host->node)->clock);
}

static void broken(struct test_world *world, const char *what)
{
    if (!world->broken)
        world->broken = what;
}

static uint64_t number_of(const struct host *host)
{
    struct sh_bytes value = sh_zookeeper_value(host->zookeeper);
    return value.size == 8 ? sh_load64(value.at) : 0;
}

static void written_look(struct host *host)
{
    struct test_world *world = host->world;
    enum shoal_err err = sh_zookeeper_written(host->zookeeper);
    if (!host->written || err == SHOAL_EAGAIN)
        return;
    if (!err && world->is_acked[host->written % NUMBERS])
        broken(world, "two were told that the same write was theirs");
    if (!err) {
        world->is_acked[host->written % NUMBERS] = true;
        world->acked++;
        if (host->written > world->highest)
            world->highest = host->written;
    }
    host->written = 0;
}

static unsigned run(void *arg)
{
    struct host *host = arg;
    struct test_world *world = host->world;
    uint64_t now_ns = now_of(host), ahead_ns = now_ns - sh_world_now(world->sim);
    unsigned work = sh_zookeeper_step(host->zookeeper, now_ns);
    written_look(host);
    if (sh_zookeeper_is_current(host->zookeeper) && number_of(host) < host->number)
        broken(world, "one reads an older value than before");
    if (number_of(host) > host->number)
        host->number = number_of(host);
    uint64_t led_ns = sh_zookeeper_led_ns(host->zookeeper);
    if (led_ns && led_ns != host->led_ns) {
        world->led++;
        if (!sh_zookeeper_model_led(world->model, host->node, led_ns - ahead_ns))
            broken(world, "one says that it led when it did not");
    }
    host->led_ns = led_ns;
    if (!host->written && sh_zookeeper_can_write(host->zookeeper)) {
        uint8_t bytes[8];
        uint64_t next = number_of(host) + 1;
        sh_store64(bytes, next);
        if (!sh_zookeeper_write(host->zookeeper, sh_bytes_make(bytes, sizeof bytes)))
            host->written = next;
    }
    return work;
}

static uint64_t due_ns(void *arg)
{
    struct host *host = arg;
    return sh_zookeeper_due_ns(host->zookeeper, now_of(host));
}

static void boot(void *arg, struct sh_world *sim, unsigned node)
{
    struct host *host = arg;
    char servers[SH_ZOOKEEPER_MODEL_SERVERS_BYTES];
    host->node = node;
    host->written = host->led_ns = 0;
    sh_zookeeper_model_servers(node, servers);
    assert_int_equal(sh_zookeeper_create(servers, "test", S, 50 * MS, &host->zookeeper), SHOAL_OK);
    sh_zookeeper_stand(host->zookeeper, (uint16_t)(node + 1));
    sh_world_step_add(
        sim, node,
        (struct sh_step){.name = "zookeeper", .run = run, .due_ns = due_ns, .arg = host});
}

static void crash(void *arg, struct sh_world *sim, unsigned node)
{
    struct host *host = arg;
    (void)sim;
    sh_zookeeper_model_crash(host->world->model, node);
    sh_zookeeper_destroy(host->zookeeper);
    host->zookeeper = NULL;
}

static bool is_broken(void *arg)
{
    return ((struct test_world *)arg)->broken;
}

/* All know the leader, who is one of them, and are current. */
static bool has_settled(void *arg)
{
    struct test_world *world = arg;
    unsigned leaders = 0;
    for (unsigned i = 0; i < HOSTS; i++) {
        const struct host *host = &world->hosts[i];
        if (!sh_zookeeper_is_current(host->zookeeper) ||
            sh_zookeeper_leader(host->zookeeper) != sh_zookeeper_leader(world->hosts[0].zookeeper))
            return false;
        leaders += sh_zookeeper_led_ns(host->zookeeper) != 0;
    }
    return leaders == 1;
}

static uint64_t run_seed(uint64_t seed)
{
    struct test_world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    struct sh_world_config config = {.seed = seed};
    world->sim = sh_world_create(&config);
    world->model = sh_zookeeper_model_create(world->sim, seed);
    for (unsigned i = 0; i < HOSTS; i++) {
        world->hosts[i].world = world;
        struct sh_world_node node = {.boot = boot, .crash = crash, .arg = &world->hosts[i]};
        (void)sh_world_node_add(world->sim, &node);
    }
    struct sh_chaos_config faults = {.nodes = HOSTS,
                                     .reach = HOSTS,
                                     .gap_ns_max = 2 * S,
                                     .length_ns_max = 3 * S,
                                     .pauses = 2,
                                     .crashes = 1,
                                     .restarts_soon = true};
    struct sh_chaos *chaos = sh_chaos_start(world->sim, &faults);
    (void)sh_world_run_until(world->sim, is_broken, world, 60 * S);
    sh_chaos_stop(chaos);
    sh_zookeeper_model_calm_set(world->model, true);
    if (!world->broken && !sh_world_run_until(world->sim, has_settled, world, 80 * S))
        broken(world, "they do not agree on a leader once nothing goes wrong");
    uint64_t last = 0, hash = sh_world_trace_hash(world->sim);
    for (unsigned i = 0; i < HOSTS; i++) {
        uint64_t number = world->hosts[i].zookeeper ? number_of(&world->hosts[i]) : 0;
        last = number > last ? number : last;
        crash(&world->hosts[i], world->sim, i);
    }
    if (!world->broken && last < world->highest)
        broken(world, "a write is lost that was acknowledged");
    if (!world->broken && (world->acked < 20 || world->led < 20))
        broken(world, "hardly anything was done");
    if (world->broken)
        print_message("seed %llu: %s\n", (unsigned long long)seed, world->broken);
    bool holds = !world->broken;
    sh_zookeeper_model_destroy(world->model);
    sh_world_destroy(world->sim);
    sh_chaos_destroy(chaos);
    free(world);
    assert_true(holds);
    return hash;
}

static void fixed_seeds(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= FIXED_SEEDS; seed++)
        (void)run_seed(seed);
}

static void fresh_seeds(void **state)
{
    (void)state;
    struct sh_random random = sh_real_random();
    uint64_t seed = test_seed(sh_random64(&random) >> 16);
    for (uint64_t i = 0; i < FRESH_SEEDS; i++)
        (void)run_seed(seed + i);
}

static void a_seed_is_a_world(void **state)
{
    (void)state;
    uint64_t once = run_seed(3), again = run_seed(3), other = run_seed(4);
    assert_true(once == again && once != other);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fixed_seeds),
        cmocka_unit_test(fresh_seeds),
        cmocka_unit_test(a_seed_is_a_world),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
