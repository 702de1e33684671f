/* One end of messaging for a benchmark: wire, messages and a crew of one transport thread and as
 * many handler threads as are asked for, idle as the placement says. spin: for ever; one-core and
 * cross-core: they sleep at once; free: the policy that nodes have by default, unless --idle names
 * another. */
#ifndef SH_BENCH_ENDPOINT_H
#define SH_BENCH_ENDPOINT_H

#include "base/crew.h"
#include "bench/bench.h"
#include "env/env.h"
#include "msg/call.h"
#include "msg/msg.h"

struct sh_endpoint {
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_crew *crew;
    struct sh_clock clock;
    unsigned handlers;
};

struct sh_endpoint_config {
    shoal_nid nid;         /* NONE: a client */
    bool lends;            /* application threads may run the transport step while they wait */
    const char *transport; /* borrowed; NULL: tcp */
    const char *idle;      /* borrowed; spin, park, sleep, node; NULL: as the placement says */
    unsigned handlers;     /* threads that run pooled handlers; 0: there are inline ones only */
    uint32_t links_max;    /* 0: 1024 */
    enum sh_placement placement;
    size_t payload_bytes_max;
    uint32_t requests_max;
};

/* The crew's idle policy for a placement, or for a word of --idle (NULL: none). */
struct sh_idle_policy sh_endpoint_idle(enum sh_placement placement, const char *idle);

/* Makes it; handlers may be set and listen called before start. The endpoint must stay where it
 * is. Close it also after a failure. */
SHOAL_NODISCARD enum shoal_err sh_endpoint_open(struct sh_endpoint *endpoint,
                                                const struct sh_endpoint_config *config);
SHOAL_NODISCARD enum shoal_err sh_endpoint_start(struct sh_endpoint *endpoint);
void sh_endpoint_close(struct sh_endpoint *endpoint);

struct sh_caller sh_endpoint_caller(const struct sh_endpoint *endpoint);

#endif
