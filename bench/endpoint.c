#include "bench/endpoint.h"

#include <string.h>

#include "base/assert.h"
#include "msg/wires.h"

#define LINKS_MAX 1024
#define SPIN_NS 10000
#define PARK_NS 20000
#define RING_BYTES (1u << 20)
#define REQUEST_TIMEOUT_NS UINT64_C(30000000000)
#define CONNECT_TIMEOUT_NS UINT64_C(10000000000)
/* Where many nodes share few cores, and one address space whose lock each page fault takes, one may
 * stand still for seconds; a run is to measure that, not to end by it. */
#define SILENCE_NS UINT64_C(30000000000)

struct sh_idle_policy sh_endpoint_idle(enum sh_placement placement, const char *idle)
{
    if (idle && strcmp(idle, "spin") == 0)
        return (struct sh_idle_policy){.spin_ns = SH_NEVER};
    if (idle && strcmp(idle, "park") == 0)
        return (struct sh_idle_policy){
            .spin_ns = 0, .park_ns = PARK_NS, .silence_ns = UINT64_C(1000000000)};
    if (idle && strcmp(idle, "sleep") == 0)
        return (struct sh_idle_policy){.spin_ns = 0};
    if (idle)
        placement = SH_PLACE_FREE;
    switch (placement) {
    case SH_PLACE_SPIN:
        return (struct sh_idle_policy){.spin_ns = SH_NEVER};
    case SH_PLACE_ONE_CORE:
    case SH_PLACE_CROSS_CORE:
        return (struct sh_idle_policy){.spin_ns = 0};
    case SH_PLACE_FREE:
        break;
    }
    return (struct sh_idle_policy){
        .spin_ns = SPIN_NS, .park_ns = PARK_NS, .silence_ns = UINT64_C(1000000000)};
}

static void wake_transport(void *arg)
{
    struct sh_endpoint *endpoint = arg;
    sh_crew_wake(endpoint->crew, 0);
}

static void wake_handler(void *arg, unsigned handler)
{
    struct sh_endpoint *endpoint = arg;
    sh_crew_wake(endpoint->crew, handler + 1);
}

static enum shoal_err msg_open(struct sh_endpoint *endpoint,
                               const struct sh_endpoint_config *config)
{
    uint64_t ring_bytes = RING_BYTES;
    while (ring_bytes < 4 * (uint64_t)config->payload_bytes_max && ring_bytes < UINT32_C(1) << 30)
        ring_bytes *= 2;
    struct sh_msg_config msg = {
        .nid = config->nid,
        .cluster = "bench",
        .connections_max = (config->links_max ? config->links_max : LINKS_MAX) / 2,
        .requests_max = config->requests_max,
        .ring_bytes = (uint32_t)ring_bytes,
        .payload_bytes_max = (uint32_t)config->payload_bytes_max,
        .request_timeout_ns = REQUEST_TIMEOUT_NS,
        .connect_timeout_ns = CONNECT_TIMEOUT_NS,
        .silence_ns = SILENCE_NS,
        .env = {.clock = endpoint->clock, .random = sh_real_random(), .wire = endpoint->wire},
        .wake_transport = wake_transport,
        .wake_handler = wake_handler,
        .arg = endpoint,
    };
    return sh_msg_create(&msg, &endpoint->msg);
}

static enum shoal_err wire_open(const struct sh_endpoint_config *config, struct sh_wire **wire_out)
{
    uint32_t links_max = config->links_max ? config->links_max : LINKS_MAX;
    return sh_wire_create(config->transport ? config->transport : "tcp", links_max, wire_out);
}

enum shoal_err sh_endpoint_open(struct sh_endpoint *endpoint,
                                const struct sh_endpoint_config *config)
{
    SH_ASSERT(config->payload_bytes_max > 0);
    SH_ASSERT(config->handlers < SH_CREW_THREADS_MAX);
    memset(endpoint, 0, sizeof *endpoint);
    endpoint->clock = sh_real_clock();
    endpoint->handlers = config->handlers;
    enum shoal_err err = wire_open(config, &endpoint->wire);
    if (!err)
        err = msg_open(endpoint, config);
    if (err)
        return err;
    struct sh_idle_policy idle = sh_endpoint_idle(config->placement, config->idle);
    struct sh_crew_config crew = {
        .name = config->nid.v ? "server" : "client",
        .threads = 1 + config->handlers,
        .lends = config->lends,
        .spin_forced = sh_bench_spins(config->placement),
        .idle = idle,
        .now_ns = endpoint->clock.now_ns,
        .now_arg = endpoint->clock.arg,
    };
    err = sh_crew_create(&crew, &endpoint->crew);
    if (err)
        return err;
    sh_crew_parker_set(endpoint->crew, 0, sh_msg_parker(endpoint->msg));
    sh_crew_step_add(endpoint->crew, 0, sh_msg_transport_step(endpoint->msg));
    for (unsigned thread = 1; thread <= config->handlers; thread++)
        sh_crew_step_add(endpoint->crew, thread, sh_msg_handler_step(endpoint->msg));
    return SHOAL_OK;
}

enum shoal_err sh_endpoint_start(struct sh_endpoint *endpoint)
{
    return sh_crew_start(endpoint->crew);
}

void sh_endpoint_close(struct sh_endpoint *endpoint)
{
    if (endpoint->crew)
        sh_crew_stop(endpoint->crew);
    if (endpoint->msg)
        sh_msg_destroy(endpoint->msg);
    if (endpoint->wire)
        endpoint->wire->ops->destroy(endpoint->wire);
    sh_crew_destroy(endpoint->crew);
    memset(endpoint, 0, sizeof *endpoint);
}

struct sh_caller sh_endpoint_caller(const struct sh_endpoint *endpoint)
{
    return (struct sh_caller){
        .msg = endpoint->msg, .crew = endpoint->crew, .thread = 0, .clock = &endpoint->clock};
}
