/* A program that loads, looks up and traverses graphs, with peers that lie: whatever they answer,
 * nothing breaks, and what is handed out is as graph/load.h and graph/bfs.h say.
 *
 * All runs in the one thread: while a call waits, the liars' steps and the program's run in turn,
 * and when none has work, time goes on.
 *
 * The input is any number of calls, each
 *   u8 call (modulo the table's size), u16 size, and so many bytes: the answers to what the call
 *   asks, in that order, each u8 error (0: none), u8 size (255: all that is left), and so many bytes.
 * When the input has no answers left, the liars answer ENOTYPE. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/err.h"
#include "base/log.h"
#include "env/env_fuzz.h"
#include "graph/bfs.h"
#include "graph/load.h"
#include "graph/wire_int.h"
#include "msg/loopback.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MS UINT64_C(1000000)
#define CALLS_MAX 8
enum { LIARS = 2, OWN = LIARS, ENDS };

static const char *const addresses[ENDS] = {"loop:64", "loop:65", "loop:own"};
static const uint16_t nids[ENDS] = {64, 65, 0};
static const shoal_nid peers[LIARS] = {{64}, {65}};

static struct {
    struct sh_wire *wires[ENDS];
    struct sh_msg *msgs[ENDS];
    struct sh_step transports[ENDS], handlers[ENDS];
    struct sh_crew *crew;
    struct sh_caller caller;
    struct sh_reader answers;
} rig;
static struct sh_clock clock_of_rig;

static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct sh_reader *r = &rig.answers;
    struct sh_out out;
    (void)arg;
    if (!in->is_request)
        return;
    uint8_t err = sh_reader_left(r) ? sh_get8(r) : SHOAL_ENOTYPE;
    size_t size = sh_reader_left(r) ? sh_get8(r) : 0, left = sh_reader_left(r);
    size = size < left && size != UINT8_MAX ? size : left;
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    if (err) {
        char text[UINT8_MAX + 1] = "";
        if (size)
            memcpy(text, bytes.at, size < UINT8_MAX ? size : UINT8_MAX);
        sh_msg_reply_error(in->msg, in->reply_to, in->type, sh_err_get(err), text);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, size, &out)) {
        sh_put_raw(&out.w, bytes);
        sh_msg_end(in->msg, &out);
    }
}

static void end_open(unsigned which)
{
    char bound[SH_MSG_ADDRESS_MAX];
    if (sh_loopback_create(8, &rig.wires[which]))
        abort();
    struct sh_msg_config config = {
        .nid = {nids[which]},
        .cluster = "fuzz",
        .connections_max = 8,
        .requests_max = 256,
        .ring_bytes = 1 << 17,
        .payload_bytes_max = 1 << 17,
        .request_timeout_ns = 60000 * MS,
        .connect_timeout_ns = 1000 * MS,
        .env = {.clock = clock_of_rig, .random = {random_fill, NULL}, .wire = rig.wires[which]},
        .wake_transport = wake,
        .wake_handlers = wake};
    if (sh_msg_create(&config, &rig.msgs[which]) ||
        sh_msg_listen(rig.msgs[which], addresses[which], bound))
        abort();
    for (unsigned op = 1; which != OWN && op < SH_GRAPH_OPS; op++)
        sh_msg_handler_set(rig.msgs[which], SH_GRAPH_TYPE(op), SH_MSG_INLINE, on_asked, NULL);
    rig.transports[which] = sh_msg_transport_step(rig.msgs[which]);
    rig.handlers[which] = sh_msg_handler_step(rig.msgs[which]);
}

static unsigned carry(void)
{
    unsigned work = 0;
    for (unsigned i = 0; i < ENDS; i++) {
        work += rig.transports[i].run(rig.transports[i].arg);
        work += rig.handlers[i].run(rig.handlers[i].arg);
    }
    return work;
}

static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    (void)arg;
    for (unsigned idle = 0; !sh_waiter_done(waiter) && now_ns < deadline_ns;) {
        idle = carry() ? 0 : idle + 1;
        if (idle < 2 || sh_waiter_done(waiter))
            continue;
        now_ns = deadline_ns - now_ns < 100 * MS ? deadline_ns : now_ns + 100 * MS;
        idle = 0;
    }
    return sh_waiter_done(waiter);
}

static void on_step_add(void *arg, struct sh_step step)
{
    (void)arg;
    (void)step;
}

static const struct sh_crew_world world = {.step_add = on_step_add, .wait = on_wait};

static void rig_open(void)
{
    const char *bad;
    size_t bad_size;
    memset(&rig, 0, sizeof rig);
    outside_begin();
    clock_of_rig = (struct sh_clock){clock_now, clock_now, NULL};
    if (sh_log_levels_set("error", &bad, &bad_size))
        abort();
    struct sh_crew_config crew = {
        .world = &world, .name = "fuzz", .threads = 1, .lends = true, .now_ns = clock_now};
    for (unsigned i = 0; i < ENDS; i++)
        end_open(i);
    if (sh_crew_create(&crew, &rig.crew))
        abort();
    for (unsigned i = 0; i < LIARS; i++) {
        if (sh_msg_node_set(rig.msgs[OWN], peers[i], addresses[i]))
            abort();
    }
    rig.caller = (struct sh_caller){.msg = rig.msgs[OWN], .crew = rig.crew, .clock = &clock_of_rig};
}

/* --- The calls --------------------------------------------------------------------------------- */

static enum shoal_err status(struct sh_graph_problem *problem)
{
    struct sh_graph_status each[LIARS], all;
    enum shoal_err err = sh_graph_status_get(&rig.caller, peers, LIARS, each, &all, problem);
    SH_ASSERT(err || !all.loaded || all.peers <= LIARS);
    return err;
}

static enum shoal_err vertex(struct sh_graph_problem *problem)
{
    shoal_cid cid;
    shoal_nid owner;
    enum shoal_err err = sh_graph_vertex(&rig.caller, peers, LIARS, 7, &cid, &owner, problem);
    SH_ASSERT(err || cid.v);
    return err;
}

static enum shoal_err types(struct sh_graph_problem *problem)
{
    struct sh_types *found;
    enum shoal_err err = sh_graph_types(&rig.caller, peers, LIARS, &found, problem);
    if (!err) {
        for (size_t i = 0; i < sh_types_count(found); i++)
            SH_ASSERT(sh_types_name(found, (uint16_t)i).size);
        sh_types_destroy(found);
    }
    return err;
}

static enum shoal_err bfs(struct sh_graph_problem *problem)
{
    struct sh_graph_bfs_result result;
    enum shoal_err err = sh_graph_bfs(&rig.caller, peers, LIARS, 7, false, &result, problem);
    if (!err) {
        SH_ASSERT(result.levels[0] == 1 && (!result.depth || result.levels[result.depth]));
        sh_graph_bfs_result_free(&result);
    }
    return err;
}

static enum shoal_err drop(struct sh_graph_problem *problem)
{
    return sh_graph_drop(&rig.caller, peers, LIARS, problem);
}

/* A file of some edges, whose name stays good. */
static const char *edges_path(void)
{
    static char path[32];
    static const char edges[] = "1 2 a\n2 3 b\n3 1 a\n";
    if (!path[0]) {
        int fd = memfd_create("edges", 0);
        if (fd < 0 || write(fd, edges, sizeof edges - 1) != sizeof edges - 1)
            abort();
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    return path;
}

static enum shoal_err load(struct sh_graph_problem *problem)
{
    struct sh_graph_load_options options = {.edges_path = edges_path(), .typed = true};
    struct sh_graph_load_report report;
    return sh_graph_load(&rig.caller, peers, LIARS, &options, &report, problem);
}

/* Seeds name them by number: new ones at the end. */
static enum shoal_err (*const calls[])(struct sh_graph_problem *) = {status, vertex, types,
                                                                     bfs,    drop,   load};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_graph_problem problem;
    rig_open();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    for (unsigned i = 0; i < CALLS_MAX && sh_reader_left(&r) >= 3; i++) {
        uint8_t what = sh_get8(&r) % (sizeof calls / sizeof calls[0]);
        size_t bytes = sh_get16(&r), left = sh_reader_left(&r);
        bytes = bytes < left ? bytes : left;
        rig.answers = sh_reader_make(sh_bytes_make(sh_reader_take(&r, bytes), bytes));
        enum shoal_err err = calls[what](&problem);
        SH_ASSERT(sh_err_get(err) == err);
        for (const char *at = problem.detail; err && *at; at++)
            SH_ASSERT((unsigned char)*at >= ' ' && *at != 0x7f);
    }
    sh_msg_destroy(rig.msgs[OWN]);
    for (unsigned i = 0; i < LIARS; i++)
        sh_msg_destroy(rig.msgs[i]);
    sh_crew_destroy(rig.crew);
    for (unsigned i = 0; i < ENDS; i++)
        rig.wires[i]->ops->destroy(rig.wires[i]);
    return 0;
}
