/* libshoal against a superpeer and two peers that lie: the calls are made one after the other, and
 * what the liars answer is the input. Nothing is written outside a caller's buffers, what is handed
 * out is as its header says, each call ends, and no assertion fails. Only a lie tells the client of
 * the second peer, which is 65 at loop:65.
 *
 * All runs in the one thread: while a call waits, the liars' steps and the client's run in turn, and
 * when none has work, time goes on to when something is due.
 *
 * The input is any number of calls, each
 *   u8 call (client_fuzz's table, modulo its size)
 *   u8 flags: 1 VIEW_GET is answered from the input, else with a good view; 2 LOOKUP likewise; 4 an
 *      answer about a job begins with the number that was asked for
 *   u16 size, and so many bytes: the answers to what the call asks, in that order, each
 *      u8 error (0 none, 255: silence), u8 size (255: all that is left), and so many bytes.
 * When the input has no answers left, the liars answer ENOTYPE. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/client_int.h"
#include "cluster/proto.h"
#include "env/env_fuzz.h"
#include "msg/loopback.h"
#include "proto/chunks.h"
#include "proto/dumps.h"
#include "proto/locks.h"
#include "proto/moves.h"
#include "ring/arcs.h"
#include "shoal/names.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MS UINT64_C(1000000)
#define TIMEOUT_NS (500 * MS)
#define CALLS_MAX 16
#define STEPS_MAX 8
#define EACH_MAX 4096 /* callbacks until a list is given up */
#define PEER 64
#define ROOM 16
#define CANARY 0xA5
#define SILENCE 255
enum { SUPERPEER, NODE, OTHER, LIARS };
#define KNOWN 2 /* those that a good view has */

static const char *const addresses[LIARS] = {"loop:1", "loop:64", "loop:65"};
static const uint16_t nids[LIARS] = {1, PEER, PEER + 1};

static struct {
    struct sh_wire *wires[LIARS];
    struct sh_msg *msgs[LIARS];
    struct sh_step transports[LIARS], handlers[LIARS];
    struct sh_step steps[STEPS_MAX]; /* the client's */
    unsigned step_count;
    struct sh_client_world world;
    struct sh_options options;
    shoal *store;
    struct sh_reader answers;
    bool lies_of_views, lies_of_owners, echoes;
    unsigned each_count; /* callbacks of the call that is made */
    uint64_t sum;        /* of what was handed out, so that it is read */
} rig;

/* --- The liars ------------------------------------------------------------------------------- */

static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    if (!in->is_request)
        return;
    struct sh_reader *r = &rig.answers;
    uint8_t err = sh_reader_left(r) ? sh_get8(r) : SHOAL_ENOTYPE;
    size_t size = sh_reader_left(r) ? sh_get8(r) : 0, left = sh_reader_left(r);
    size = size < left && size != UINT8_MAX ? size : left;
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    if (err == SILENCE)
        return;
    if (err) {
        char text[UINT8_MAX + 1] = "";
        size = size < UINT8_MAX ? size : UINT8_MAX;
        if (size)
            memcpy(text, bytes.at, size);
        sh_msg_reply_error(in->msg, in->reply_to, in->type, sh_err_get(err), text);
        return;
    }
    bool is_job = in->type == SH_MOVES_JOB || in->type == SH_DUMPS_JOB;
    size_t echoed = rig.echoes && is_job && sh_reader_left(&in->payload) >= 8 ? 8 : 0;
    struct sh_bytes echo = sh_bytes_make(sh_reader_take(&in->payload, echoed), echoed);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, echoed + size, &out))
        return;
    sh_put_raw(&out.w, echo);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(in->msg, &out);
}

static void on_view_get(void *arg, struct sh_msg_in *in)
{
    struct sh_node nodes[KNOWN] = {{.role = SH_ROLE_SUPERPEER}, {.role = SH_ROLE_PEER}};
    struct sh_view view = {.epoch = 5, .superpeers = 1, .count = KNOWN, .nodes = nodes};
    struct sh_out out;
    if (rig.lies_of_views) {
        on_asked(arg, in);
        return;
    }
    for (unsigned i = 0; i < KNOWN; i++) {
        nodes[i].nid.v = nids[i];
        nodes[i].instance = nids[i];
        memcpy(nodes[i].address, addresses[i], strlen(addresses[i]));
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 1 + sh_view_size(&view), &out))
        return;
    sh_put8(&out.w, SH_ANSWER_VIEW);
    sh_view_put_all(&out.w, &view);
    sh_msg_end(in->msg, &out);
}

static void on_lookup(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    if (rig.lies_of_owners) {
        on_asked(arg, in);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_LOOKUP_ANSWER_BYTES, &out))
        return;
    sh_put64(&out.w, shoal_cid_make((shoal_nid){PEER}, 0).v);
    sh_put64(&out.w, shoal_cid_make((shoal_nid){PEER}, SHOAL_LOCAL_ID_MAX).v);
    sh_put16(&out.w, PEER);
    sh_msg_end(in->msg, &out);
}

static void liar_open(unsigned which)
{
    char bound[SH_MSG_ADDRESS_MAX];
    if (sh_loopback_create(8, &rig.wires[which]))
        abort();
    struct sh_msg_config config = {.nid = {nids[which]},
                                   .cluster = "shoal",
                                   .connections_max = 8,
                                   .requests_max = 256,
                                   .ring_bytes = 1 << 16,
                                   .payload_bytes_max = 1 << 16,
                                   .request_timeout_ns = TIMEOUT_NS,
                                   .connect_timeout_ns = TIMEOUT_NS,
                                   .env = {.clock = {clock_now, clock_now, NULL},
                                           .random = {random_fill, NULL},
                                           .wire = rig.wires[which]},
                                   .wake_transport = wake,
                                   .wake_handlers = wake};
    if (sh_msg_create(&config, &rig.msgs[which]))
        abort();
    sh_msg_instance_set(rig.msgs[which], nids[which]);
    if (sh_msg_listen(rig.msgs[which], addresses[which], bound))
        abort();
    for (unsigned code = 1; code < 64; code++) {
        sh_msg_handler_set(rig.msgs[which], SH_MSG_TYPE(1, code), SH_MSG_INLINE, on_asked, NULL);
        sh_msg_handler_set(rig.msgs[which], SH_MSG_TYPE(2, code), SH_MSG_INLINE, on_asked, NULL);
    }
    sh_msg_handler_set(rig.msgs[which], SH_CLUSTER_VIEW_GET, SH_MSG_INLINE, on_view_get, NULL);
    sh_msg_handler_set(rig.msgs[which], SH_CLUSTER_LOOKUP, SH_MSG_INLINE, on_lookup, NULL);
    rig.transports[which] = sh_msg_transport_step(rig.msgs[which]);
    rig.handlers[which] = sh_msg_handler_step(rig.msgs[which]);
}

/* --- The client's outside ---------------------------------------------------------------------- */

static void on_step_add(void *arg, struct sh_step step)
{
    (void)arg;
    SH_ASSERT(rig.step_count < STEPS_MAX);
    rig.steps[rig.step_count++] = step;
}

static unsigned carry(void)
{
    unsigned work = 0;
    for (unsigned i = 0; i < rig.step_count; i++)
        work += rig.steps[i].run(rig.steps[i].arg);
    for (unsigned i = 0; i < LIARS; i++) {
        work += rig.transports[i].run(rig.transports[i].arg);
        work += rig.handlers[i].run(rig.handlers[i].arg);
    }
    return work;
}

/* To when a step of the client is due, or the wait is over: 1 ms on at least, 100 ms at most. */
static void time_pass(uint64_t deadline_ns)
{
    uint64_t until_ns = now_ns + 100 * MS;
    for (unsigned i = 0; i < rig.step_count; i++) {
        uint64_t due_ns = rig.steps[i].due_ns ? rig.steps[i].due_ns(rig.steps[i].arg) : SH_NEVER;
        until_ns = due_ns < until_ns ? due_ns : until_ns;
    }
    until_ns = until_ns < now_ns + MS ? now_ns + MS : until_ns;
    now_ns = deadline_ns < until_ns ? deadline_ns : until_ns;
}

static bool on_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    (void)arg;
    for (unsigned idle = 0; !sh_waiter_done(waiter) && now_ns < deadline_ns;) {
        idle = carry() ? 0 : idle + 1;
        if (idle < 2 || sh_waiter_done(waiter))
            continue;
        time_pass(deadline_ns);
        idle = 0;
    }
    return sh_waiter_done(waiter);
}

static void client_open(void)
{
    struct sh_options_error error;
    struct sh_wire *wire;
    if (sh_options_init(&rig.options) ||
        sh_options_set(&rig.options, "connect", addresses[SUPERPEER], "fuzz", &error) ||
        sh_loopback_create(8, &wire))
        abort();
    rig.options.request_timeout_ns = TIMEOUT_NS;
    rig.options.connect_timeout_ns = TIMEOUT_NS;
    rig.options.ring_bytes = 1 << 16;
    rig.options.cache_ranges_max = 64;
    rig.world = (struct sh_client_world){
        .env = {.clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .wire = wire},
        .crew = {.step_add = on_step_add, .wait = on_wait}};
    enum shoal_err err = sh_client_open_in(&rig.world, &rig.options, &rig.store);
    SH_ASSERT(err == SHOAL_OK);
}

/* --- What is handed out ------------------------------------------------------------------------ */

static void read_bytes(const void *bytes, size_t size)
{
    const uint8_t *at = bytes;
    for (size_t i = 0; i < size; i++)
        rig.sum += at[i];
}

static bool is_enough(void)
{
    return ++rig.each_count < EACH_MAX;
}

static bool on_name(void *arg, const char *name, shoal_cid cid)
{
    (void)arg;
    SH_ASSERT(*name && strlen(name) <= SHOAL_NAME_MAX);
    rig.sum += cid.v;
    return is_enough();
}

static bool on_scratch(void *arg, const char *key, uint32_t size)
{
    return on_name(arg, key, (shoal_cid){size});
}

static bool on_barrier(void *arg, const struct shoal_barrier_info *info)
{
    (void)arg;
    rig.sum += info->barrier.v + info->count;
    return is_enough();
}

static bool on_range(void *arg, shoal_cid first, shoal_cid last)
{
    (void)arg;
    SH_ASSERT(first.v <= last.v);
    return is_enough();
}

static bool on_lookup_range(void *arg, const struct sh_client_lookup *range)
{
    return on_range(arg, range->first, range->last);
}

static bool on_lock(void *arg, const struct shoal_lock_info *lock)
{
    (void)arg;
    SH_ASSERT(lock->mode == SHOAL_LOCK_READ || lock->mode == SHOAL_LOCK_WRITE);
    return is_enough();
}

/* Follows until nothing is told any more. */
static bool on_node_event(void *arg, const struct shoal_event *event)
{
    (void)arg;
    if (!event)
        return sh_reader_left(&rig.answers) > 0 && is_enough();
    SH_ASSERT(event->kind <= SHOAL_EVENT_MOVED && event->node.nid.v);
    SH_ASSERT(strlen(event->node.address) < sizeof event->node.address);
    return is_enough();
}

static bool on_progress(void *arg, const char *phase, uint64_t done, uint64_t all)
{
    (void)arg;
    rig.sum += strlen(phase) + done + all;
    return sh_reader_left(&rig.answers) > 0;
}

static void round_check(enum shoal_err err, struct shoal_barrier_round *round)
{
    SH_ASSERT(err == SHOAL_OK || err == SHOAL_EBROKEN || !round);
    for (uint32_t i = 0; round && i < round->count; i++)
        read_bytes(round->members[i].data, round->members[i].size);
    SH_ASSERT(!round || round->count <= SHOAL_BARRIER_SIZE_MAX);
    shoal_barrier_round_free(round);
}

/* A buffer of ROOM bytes with canaries around it. */
struct guarded {
    uint8_t before[32], at[ROOM], after[32];
};

static void guard_check(const struct guarded *guarded)
{
    for (unsigned i = 0; i < 32; i++)
        SH_ASSERT(guarded->before[i] == CANARY && guarded->after[i] == CANARY);
    read_bytes(guarded->at, ROOM);
}

static shoal_cid own(uint64_t local)
{
    return shoal_cid_make((shoal_nid){PEER}, local);
}

/* --- The calls --------------------------------------------------------------------------------- */

static enum shoal_err barrier_create(struct guarded *g)
{
    shoal_barrier barrier;
    (void)g;
    return shoal_barrier_create(rig.store, 3, SHOAL_BARRIER_SURVIVORS, &barrier);
}

static enum shoal_err barrier_resize(struct guarded *g)
{
    (void)g;
    return shoal_barrier_resize(rig.store, (shoal_barrier){7}, 2);
}

static enum shoal_err barrier_status(struct guarded *g)
{
    struct shoal_barrier_round *round = NULL;
    (void)g;
    enum shoal_err err = shoal_barrier_status(rig.store, (shoal_barrier){7}, &round);
    SH_ASSERT((err == SHOAL_OK) == (round != NULL));
    round_check(err, round);
    return err;
}

static enum shoal_err barrier_list(struct guarded *g)
{
    (void)g;
    return shoal_barrier_list(rig.store, on_barrier, NULL);
}

static enum shoal_err barrier_wait(struct guarded *g)
{
    struct shoal_barrier_round *round = NULL;
    enum shoal_err err =
        shoal_barrier_wait(rig.store, (shoal_barrier){7}, g->at, ROOM, 300 * MS, &round);
    round_check(err, round);
    return err;
}

static enum shoal_err name_set(struct guarded *g)
{
    shoal_cid previous;
    (void)g;
    return shoal_name_set(rig.store, "a", own(1), SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, &previous);
}

static enum shoal_err name_get(struct guarded *g)
{
    shoal_cid cid;
    (void)g;
    return shoal_name_get(rig.store, "a", &cid);
}

static enum shoal_err name_wait(struct guarded *g)
{
    shoal_cid cid;
    (void)g;
    return shoal_name_wait(rig.store, "a", 300 * MS, &cid);
}

static enum shoal_err name_list(struct guarded *g)
{
    (void)g;
    return shoal_name_list(rig.store, "", on_name, NULL);
}

static enum shoal_err scratch_get(struct guarded *g)
{
    uint32_t size;
    enum shoal_err err = shoal_scratch_get(rig.store, "a", g->at, ROOM, &size);
    SH_ASSERT(err || size <= ROOM);
    return err;
}

static enum shoal_err scratch_list(struct guarded *g)
{
    (void)g;
    return shoal_scratch_list(rig.store, "", on_scratch, NULL);
}

/* Three at once. */
static enum shoal_err names_async(struct guarded *g)
{
    struct shoal_call calls[3] = {{.done = NULL}};
    enum shoal_err errs[3] = {
        shoal_name_set_async(rig.store, "b", own(1), SHOAL_NAME_ABSENT, SHOAL_CID_NONE, &calls[0]),
        shoal_name_get_async(rig.store, "b", &calls[1]),
        shoal_scratch_get_async(rig.store, "b", g->at, ROOM, &calls[2])};
    for (unsigned i = 0; i < 3; i++) {
        if (!errs[i])
            errs[i] = shoal_wait(rig.store, &calls[i]);
    }
    SH_ASSERT(errs[2] || calls[2].size <= ROOM);
    return errs[0];
}

static enum shoal_err watch(struct guarded *g)
{
    (void)g;
    return shoal_watch(rig.store, on_node_event, NULL);
}

static enum shoal_err lock(struct guarded *g)
{
    (void)g;
    return shoal_lock(rig.store, own(1), (shoal_owner){1}, SHOAL_LOCK_WRITE, 1000 * MS, 100 * MS);
}

static enum shoal_err unlock(struct guarded *g)
{
    (void)g;
    return shoal_unlock(rig.store, own(1), (shoal_owner){1});
}

static enum shoal_err lock_swap(struct guarded *g)
{
    (void)g;
    return shoal_lock_swap(rig.store, own(1), (shoal_owner){1}, SHOAL_LOCK_READ, 1000 * MS);
}

static enum shoal_err locks(struct guarded *g)
{
    (void)g;
    return shoal_locks(rig.store, (shoal_nid){PEER}, on_lock, NULL);
}

static enum shoal_err migrate(struct guarded *g)
{
    struct shoal_migration what = {.first = own(0), .last = own(SHOAL_LOCAL_ID_MAX), .drain = true};
    struct shoal_migration_sums sums;
    (void)g;
    return shoal_migrate(rig.store, (shoal_nid){PEER}, &what, on_progress, NULL, &sums);
}

static enum shoal_err dump(struct guarded *g)
{
    struct shoal_dump_sums sums;
    (void)g;
    return shoal_dump(rig.store, (shoal_nid){PEER}, "a", on_progress, NULL, &sums);
}

static enum shoal_err load(struct guarded *g)
{
    struct shoal_dump_sums sums;
    (void)g;
    return shoal_load(rig.store, (shoal_nid){PEER}, "a", SHOAL_LOAD_SAME, on_progress, NULL, &sums);
}

static enum shoal_err analyze(struct guarded *g)
{
    static struct shoal_analysis analysis;
    (void)g;
    return shoal_analyze(rig.store, (shoal_nid){PEER}, on_progress, NULL, &analysis);
}

static enum shoal_err status(struct guarded *g)
{
    struct shoal_status found;
    (void)g;
    return shoal_status(rig.store, (shoal_nid){PEER}, &found);
}

static enum shoal_err ranges(struct guarded *g)
{
    (void)g;
    return shoal_ranges(rig.store, (shoal_nid){PEER}, on_range, NULL);
}

static enum shoal_err get(struct guarded *g)
{
    uint32_t size;
    enum shoal_err err = shoal_get(rig.store, own(1), g->at, ROOM, &size);
    SH_ASSERT(err || size <= ROOM);
    return err;
}

static enum shoal_err get_part(struct guarded *g)
{
    return shoal_get_part(rig.store, own(1), 3, g->at, 8);
}

static enum shoal_err multi_get(struct guarded *g)
{
    struct shoal_op ops[2] = {{.cid = own(1), .data = g->at, .size = 8},
                              {.cid = own(2), .data = g->at + 8, .size = 8}};
    return shoal_multi_get(rig.store, ops, 2);
}

static enum shoal_err multi_remove(struct guarded *g)
{
    struct shoal_op ops[2] = {{.cid = own(1)}, {.cid = own(2)}};
    (void)g;
    return shoal_multi_remove(rig.store, ops, 2);
}

static enum shoal_err put(struct guarded *g)
{
    return shoal_put(rig.store, own(1), g->at, ROOM);
}

static enum shoal_err add(struct guarded *g)
{
    uint64_t old;
    (void)g;
    return shoal_add(rig.store, own(1), 0, 8, 1, &old);
}

static enum shoal_err create_one(struct guarded *g)
{
    shoal_cid cid = {0};
    (void)g;
    enum shoal_err err = shoal_create(rig.store, SHOAL_NID_NONE, 8, &cid);
    SH_ASSERT(err || shoal_cid_creator(cid).v);
    return err;
}

static enum shoal_err create_many(struct guarded *g)
{
    shoal_cid cids[3] = {{0}};
    (void)g;
    enum shoal_err err = shoal_create_many(rig.store, SHOAL_NID_NONE, 8, 3, cids);
    for (unsigned i = 0; i < 3; i++)
        SH_ASSERT(err ? !cids[i].v : shoal_cid_creator(cids[i]).v != 0);
    return err;
}

static enum shoal_err shard_save(struct guarded *g)
{
    uint8_t *bytes;
    size_t size;
    (void)g;
    enum shoal_err err = sh_client_shard_save(rig.store, 3, &bytes, &size);
    if (!err) {
        read_bytes(bytes, size);
        free(bytes);
    }
    return err;
}

static enum shoal_err steps(struct guarded *g)
{
    static struct sh_steps_row rows[SH_STEPS_ROWS_MAX];
    size_t count;
    (void)g;
    enum shoal_err err = sh_client_steps(rig.store, (shoal_nid){PEER}, rows, &count);
    SH_ASSERT(err || count <= SH_STEPS_ROWS_MAX);
    return err;
}

static enum shoal_err log_table(struct guarded *g)
{
    static struct sh_log_table table;
    (void)g;
    enum shoal_err err =
        sh_client_log_table(rig.store, (shoal_nid){PEER}, SH_LOG_TABLE_OWN, 0, &table);
    SH_ASSERT(err || (size_t)table.rows * table.columns <= SH_LOG_VALUES_MAX);
    return err;
}

static enum shoal_err log_scrub(struct guarded *g)
{
    uint64_t number = 0;
    (void)g;
    enum shoal_err err = sh_client_log_scrub(rig.store, (shoal_nid){PEER}, 0, 0, &number);
    rig.sum += (unsigned)number;
    return err;
}

static enum shoal_err log_dump(struct guarded *g)
{
    static struct sh_log_table table;
    struct sh_log_dump_ask ask = {.zone = 1, .page = 1};
    (void)g;
    enum shoal_err err = sh_client_log_dump(rig.store, (shoal_nid){PEER}, &ask, &table);
    SH_ASSERT(err || (ask.dump && (size_t)table.rows * table.columns <= SH_LOG_VALUES_MAX));
    return err;
}

static enum shoal_err promote(struct guarded *g)
{
    char address[SH_MSG_ADDRESS_MAX];
    (void)g;
    enum shoal_err err = sh_client_promote(rig.store, (shoal_nid){PEER}, address);
    rig.sum += err ? 0 : strlen(address);
    return err;
}

static enum shoal_err report(struct guarded *g)
{
    static struct sh_report found;
    (void)g;
    return sh_client_report(rig.store, (shoal_nid){1}, &found);
}

static enum shoal_err lookup(struct guarded *g)
{
    struct sh_client_lookup found;
    (void)g;
    enum shoal_err err = sh_client_lookup(rig.store, own(1), &found);
    SH_ASSERT(err || (found.first.v <= own(1).v && own(1).v <= found.last.v));
    return err;
}

static enum shoal_err lookup_tree(struct guarded *g)
{
    (void)g;
    return sh_client_lookup_tree(rig.store, (shoal_nid){PEER}, on_lookup_range, NULL);
}

static enum shoal_err look_at_nodes(struct guarded *g)
{
    struct shoal_node nodes[4];
    size_t count;
    (void)g;
    return shoal_nodes(rig.store, nodes, 4, &count);
}

/* Seeds name them by number: new ones at the end. */
static enum shoal_err (*const calls[])(struct guarded *g) = {
    barrier_create, barrier_resize, barrier_status, barrier_list, barrier_wait, name_set,
    name_get,       name_wait,      name_list,      scratch_get,  scratch_list, names_async,
    watch,          lock,           unlock,         lock_swap,    locks,        migrate,
    dump,           load,           analyze,        status,       ranges,       get,
    get_part,       multi_get,      multi_remove,   put,          add,          create_one,
    create_many,    shard_save,     steps,          promote,      report,       lookup,
    lookup_tree,    look_at_nodes,  log_table,      log_scrub,    log_dump,
};

static void call_one(struct sh_reader *r)
{
    struct guarded guarded;
    uint8_t what = sh_get8(r) % (sizeof calls / sizeof calls[0]), flags = sh_get8(r);
    size_t size = sh_get16(r), left = sh_reader_left(r);
    size = size < left ? size : left;
    rig.answers = sh_reader_make(sh_bytes_make(sh_reader_take(r, size), size));
    rig.lies_of_views = flags & 1;
    rig.lies_of_owners = flags & 2;
    rig.echoes = flags & 4;
    rig.each_count = 0;
    memset(&guarded, CANARY, sizeof guarded);
    enum shoal_err err = calls[what](&guarded);
    SH_ASSERT(sh_err_get(err) == err);
    for (const char *at = shoal_error_detail(); *at; at++)
        SH_ASSERT((unsigned char)*at >= ' ' && *at != 0x7f);
    guard_check(&guarded);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bad;
    size_t bad_size;
    memset(&rig, 0, sizeof rig);
    outside_begin();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    rig.answers = sh_reader_make(sh_bytes_make(data, 0));
    if (sh_log_levels_set("error", &bad, &bad_size))
        abort();
    for (unsigned i = 0; i < LIARS; i++)
        liar_open(i);
    client_open();
    for (unsigned i = 0; i < CALLS_MAX && sh_reader_left(&r) >= 4; i++)
        call_one(&r);
    shoal_close(rig.store);
    sh_options_destroy(&rig.options);
    for (unsigned i = 0; i < LIARS; i++)
        sh_msg_destroy(rig.msgs[i]);
    for (unsigned i = 0; i < LIARS; i++)
        rig.wires[i]->ops->destroy(rig.wires[i]);
    return 0;
}
