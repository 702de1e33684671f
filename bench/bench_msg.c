/* `shoal bench msg`: what is measured, against whom, and with which defaults. */
#include <stdio.h>
#include <string.h>

#include "bench/benches.h"
#include "bench/msg_bench_int.h"
#include "bench/nng_base.h"
#include "bench/tcp_base.h"
#include "bench/zeromq_base.h"
#include "msg/wires.h"

const char *const sh_bench_msg_cases[] = {"request", "oneway", "alltoall", "silence", NULL};
const char *const sh_bench_msg_baselines[] = {"tcp", "zeromq", "nng", NULL};

/* A baseline's runs. */
static const struct base {
    const char *name;
    sh_bench_run request;
    sh_bench_run oneway;
} bases[] = {
    {"tcp", sh_tcp_base_request, sh_tcp_base_oneway},
    {"zeromq", sh_zeromq_base_request, sh_zeromq_base_oneway},
    {"nng", sh_nng_base_request, sh_nng_base_oneway},
};

static struct sh_bench_flags shape_of(const struct sh_bench_flags *flags)
{
    struct sh_bench_flags shape = *flags;
    shape.size = shape.size ? shape.size : 64;
    shape.threads = shape.threads ? shape.threads : 1;
    shape.outstanding = shape.outstanding ? shape.outstanding : 1;
    shape.connections = shape.connections ? shape.connections : 1;
    shape.nodes = shape.nodes ? shape.nodes : 2;
    shape.processes = shape.processes ? shape.processes : 1;
    shape.transport = shape.transport ? shape.transport : "tcp";
    if (shape.seconds <= 0 && shape.count == 0)
        shape.seconds = 1;
    return shape;
}

/* The parameters as a row shows them. */
static void extra_print(const struct sh_bench_flags *shape, bool all, char *into, size_t room)
{
    int length = snprintf(
        into, room, "size=%llu threads=%u handlers=%u connections=%u outstanding=%u transport=%s",
        (unsigned long long)shape->size, shape->threads, shape->handlers, shape->connections,
        shape->outstanding, shape->transport);
    if (all)
        length = snprintf(into, room,
                          "size=%llu threads=%u handlers=%u nodes=%u processes=%u transport=%s",
                          (unsigned long long)shape->size, shape->threads, shape->handlers,
                          shape->nodes, shape->processes, shape->transport);
    if (shape->idle)
        length += snprintf(into + length, room - (size_t)length, " idle=%s", shape->idle);
    if (shape->catch_up)
        length += snprintf(into + length, room - (size_t)length, " catch_up=%s", shape->catch_up);
    if (shape->count)
        (void)snprintf(into + length, room - (size_t)length, " count=%llu",
                       (unsigned long long)shape->count);
}

/* What each flag alone can't show to be wrong. */
static enum shoal_err shape_check(struct sh_bench *bench, const struct sh_bench_flags *shape)
{
    bool many = shape->processes > 1;
    const char *wrong = NULL;
    if (shape->nodes < 2 || (many && shape->processes != shape->nodes))
        wrong = "alltoall takes --nodes from 2, and --processes 1 or as many as nodes";
    else if (many && strcmp(shape->transport, "loopback") == 0)
        wrong = "loopback does not leave the process: --processes 1";
    else if (!sh_wire_is_known(shape->transport))
        wrong = "this transport is not built in here";
    return wrong ? sh_bench_refuse(bench, wrong) : SHOAL_OK;
}

static const struct base *base_find(const char *name)
{
    for (size_t i = 0; name && i < sizeof bases / sizeof *bases; i++) {
        if (strcmp(bases[i].name, name) == 0)
            return &bases[i];
    }
    return NULL;
}

enum shoal_err sh_bench_msg(struct sh_bench *bench)
{
    struct sh_bench_flags shape = shape_of(sh_bench_flags_get(bench));
    enum shoal_err err = shape_check(bench, &shape);
    if (err)
        return err;
    enum sh_placement placements[SH_PLACEMENTS];
    unsigned count = sh_bench_placements(bench, placements);
    const struct base *base = base_find(shape.vs);
    const struct {
        const char *name;
        sh_bench_run run;
        sh_bench_run base_run;
    } cases[] = {
        {"request", sh_msg_request_run, base ? base->request : NULL},
        {"oneway", sh_msg_oneway_run, base ? base->oneway : NULL},
        {"alltoall", sh_msg_alltoall_run, NULL},
        {"silence", sh_msg_silence_run, NULL},
    };
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        if (!sh_bench_case_wanted(bench, cases[c].name))
            continue;
        if (shape.vs && !cases[c].base_run)
            sh_bench_note(bench, "alltoall and silence have no baseline: --vs is for request and "
                                 "oneway");
        char extra[256];
        extra_print(&shape, cases[c].run == sh_msg_alltoall_run, extra, sizeof extra);
        for (unsigned i = 0; !err && i < count; i++)
            err = sh_bench_measure(bench, cases[c].name, placements[i], extra, cases[c].run, &shape,
                                   shape.vs, cases[c].base_run, &shape);
    }
    return err;
}
