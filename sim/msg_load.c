/* The messaging load: actors on the nodes, and the run from start to proof. */
#include "sim/msg_load.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/msg_load_int.h"
#include "sim/world_int.h"

#define MS UINT64_C(1000000)
#define REQUEST_SLOTS 48
#define LATER_SLOTS 32
#define SEND_GAP_NS_MAX (2 * MS)
#define REQUEST_TIMEOUT_NS (200 * MS)
/* All faults are over: nothing may take longer than this to complete, or to flow again. */
#define SETTLE_NS (5000 * MS)
/* One in so many sends is broken, if the load is to be broken at all. */
#define BREAK_ONE_IN 20
#define PATTERN_BYTES_MIN 8

enum load_type {
    TYPE_INLINE = SH_MSG_TYPE(60, 1),
    TYPE_ORDERED = SH_MSG_TYPE(60, 2),
    TYPE_ASK_INLINE = SH_MSG_TYPE(60, 3),
    TYPE_ASK_POOLED = SH_MSG_TYPE(60, 4),
};

/* What the asker wants done with its request. */
enum answer_how { ANSWER_NOW, ANSWER_ERROR, ANSWER_LATER, ANSWER_NEVER, ANSWER_HOWS };

struct actor;

struct asked {
    struct sh_request request; /* the first member */
    struct actor *actor;
    uint32_t id;
    unsigned to;
    enum answer_how how;
    bool used;
};

struct later {
    struct sh_reply_to reply_to;
    sh_msg_type type;
    uint32_t id;
    uint64_t due_ns;
    bool used;
};

struct load;

struct actor {
    struct load *load;
    unsigned node;
    unsigned boots;
    struct sh_msg *msg; /* NULL while crashed */
    struct sh_prng prng;
    uint64_t next_ns;
    struct asked asked[REQUEST_SLOTS];
    struct later later[LATER_SLOTS];
    bool proved[SH_MSG_LOAD_NODES_MAX];
    bool proving[SH_MSG_LOAD_NODES_MAX];
};

enum phase { PHASE_LOAD, PHASE_SETTLE, PHASE_PROVE };

struct load {
    const struct sh_msg_load_config *config;
    struct sh_world *world;
    struct check check;
    enum phase phase;
    struct actor actors[SH_MSG_LOAD_NODES_MAX];
};

static shoal_nid nid_of(unsigned node)
{
    return (shoal_nid){(uint16_t)(node + 1)};
}

static uint64_t actor_now(const struct actor *actor)
{
    return sh_now(&sh_world_env(actor->load->world, actor->node)->clock);
}

static bool breaks(struct actor *actor, enum sh_msg_load_break how)
{
    return actor->load->config->broken == how && sh_prng_below(&actor->prng, BREAK_ONE_IN) == 0;
}

/* Mostly short, at times longer than the wire's windows and the outgoing rings. */
static size_t draw_size(struct actor *actor)
{
    uint64_t most = sh_prng_below(&actor->prng, 20) ? 300 : LOAD_PAYLOAD_MAX;
    return (size_t)sh_prng_between(&actor->prng, LOAD_HEAD_BYTES + PATTERN_BYTES_MIN, most);
}

/* Every payload: four numbers, a key made of them, and bytes made of the key. */
static uint64_t key_of(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    return sh_mix64(((uint64_t)a << 32 | b) + sh_mix64((uint64_t)c << 32 | d));
}

static void payload_write(struct sh_out *out, size_t size, const uint32_t numbers[4])
{
    uint64_t key = key_of(numbers[0], numbers[1], numbers[2], numbers[3]);
    for (unsigned i = 0; i < 4; i++)
        sh_put32(&out->w, numbers[i]);
    sh_put64(&out->w, key);
    uint8_t *rest = sh_writer_take(&out->w, size - LOAD_HEAD_BYTES);
    SH_ASSERT(rest && sh_writer_ok(&out->w));
    pattern_write(rest, size - LOAD_HEAD_BYTES, key);
}

static bool payload_read(struct check *check, struct sh_reader *payload, uint32_t numbers_out[4])
{
    size_t size = sh_reader_left(payload);
    for (unsigned i = 0; i < 4; i++)
        numbers_out[i] = sh_get32(payload);
    uint64_t key = sh_get64(payload);
    size_t left = sh_reader_left(payload);
    struct sh_bytes rest = sh_bytes_make(sh_reader_take(payload, left), left);
    uint64_t expected = key_of(numbers_out[0], numbers_out[1], numbers_out[2], numbers_out[3]);
    if (left >= PATTERN_BYTES_MIN && key == expected && pattern_holds(rest, key))
        return true;
    check_fail(check, "payload(size, first) is not what was sent:", size, numbers_out[0]);
    return false;
}

/* --- One-way messages --------------------------------------------------------------------------
 */

static bool send_numbered(struct actor *actor, unsigned to, enum load_kind kind, uint32_t number)
{
    struct check *check = &actor->load->check;
    struct channel *channel = &check->channels[actor->node][to][kind];
    sh_msg_type type = kind == LOAD_INLINE ? TYPE_INLINE : TYPE_ORDERED;
    size_t size = draw_size(actor);
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(actor->msg, nid_of(to), type, size, &out);
    if (err != SHOAL_OK && err != SHOAL_EAGAIN)
        check_fail(check, "begin(node, error) failed oddly:", to, err);
    if (err != SHOAL_OK)
        return false;
    payload_write(&out, size, (uint32_t[]){channel->epoch, number, actor->node, to});
    sh_msg_end(actor->msg, &out);
    return true;
}

static void send_message(struct actor *actor, unsigned to)
{
    enum load_kind kind = (enum load_kind)sh_prng_below(&actor->prng, LOAD_KINDS);
    uint32_t *next = &actor->load->check.channels[actor->node][to][kind].next_sent;
    if (breaks(actor, SH_MSG_LOAD_LATE)) {
        (void)send_numbered(actor, to, kind, *next + 1);
        (void)send_numbered(actor, to, kind, *next);
        *next += 2;
        return;
    }
    bool sent = breaks(actor, SH_MSG_LOAD_DROP) || send_numbered(actor, to, kind, *next);
    if (sent && breaks(actor, SH_MSG_LOAD_TWICE))
        (void)send_numbered(actor, to, kind, *next);
    *next += sent;
}

static void on_message(void *arg, struct sh_msg_in *in)
{
    struct actor *actor = arg;
    struct check *check = &actor->load->check;
    uint32_t numbers[4];
    if (!payload_read(check, &in->payload, numbers))
        return;
    if (in->is_request || numbers[3] != actor->node || nid_of(numbers[2]).v != in->reply_to.nid.v) {
        check_fail(check, "message(from, at) went astray:", numbers[2], actor->node);
        return;
    }
    enum load_kind kind = in->type == TYPE_INLINE ? LOAD_INLINE : LOAD_ORDERED;
    sh_world_trace(actor->load->world, actor->node, "message(from, number)", numbers[2], numbers[1],
                   (struct sh_bytes){0});
    uint64_t connection = (uint64_t)actor->boots << 32 | in->reply_to.generation;
    check_received(check, numbers[2], actor->node, kind, connection, numbers);
}

/* --- Requests ----------------------------------------------------------------------------------
 */

static void check_answer(struct asked *asked, enum shoal_err err, struct sh_reader *payload)
{
    struct check *check = &asked->actor->load->check;
    bool is_error = asked->how == ANSWER_ERROR;
    if (err == SHOAL_EBUSY && !is_error)
        check_fail(check, "request(id, how) got the wrong error:", asked->id, asked->how);
    if (err != SHOAL_OK)
        return;
    uint32_t numbers[4];
    if (!payload_read(check, payload, numbers))
        return;
    bool may_answer = asked->how == ANSWER_NOW || asked->how == ANSWER_LATER;
    if (!may_answer || numbers[0] != asked->id || numbers[1] != asked->to)
        check_fail(check, "request(id, other) got another's answer:", asked->id, numbers[0]);
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = (struct asked *)request;
    struct actor *actor = asked->actor;
    struct check *check = &actor->load->check;
    sh_world_trace(actor->load->world, actor->node, "done(id, error)", asked->id, err,
                   (struct sh_bytes){0});
    if (!asked->used) {
        check_fail(check, "request(id, error) completed though it was over:", asked->id, err);
        return;
    }
    check_answer(asked, err, payload);
    check_completed(check, asked->id, err, breaks(actor, SH_MSG_LOAD_SILENCE));
    asked->used = false;
    if (actor->load->phase == PHASE_PROVE) {
        actor->proving[asked->to] = false;
        actor->proved[asked->to] = actor->proved[asked->to] || err == SHOAL_OK;
    }
}

static bool send_request(struct actor *actor, unsigned to, enum answer_how how)
{
    struct load *load = actor->load;
    unsigned at = 0;
    while (at < REQUEST_SLOTS && actor->asked[at].used)
        at++;
    if (at == REQUEST_SLOTS)
        return false;
    struct asked *asked = &actor->asked[at];
    size_t size = draw_size(actor);
    bool pooled = sh_prng_below(&actor->prng, 2);
    *asked = (struct asked){.request = {.done = on_done}, .actor = actor, .to = to, .how = how};
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(actor->msg, nid_of(to), pooled ? TYPE_ASK_POOLED : TYPE_ASK_INLINE, size,
                       &asked->request, &out);
    if (err != SHOAL_OK && err != SHOAL_EAGAIN && err != SHOAL_ELIMIT)
        check_fail(&load->check, "request(node, error) failed oddly:", to, err);
    if (err != SHOAL_OK)
        return false;
    asked->used = true;
    asked->id = check_request(&load->check, actor->node, to, actor->boots);
    payload_write(&out, size, (uint32_t[]){asked->id, actor->node, to, how});
    sh_msg_end(actor->msg, &out);
    return true;
}

static void cancel_one(struct actor *actor)
{
    struct asked *asked = &actor->asked[sh_prng_below(&actor->prng, REQUEST_SLOTS)];
    if (!asked->used)
        return;
    if (!sh_msg_cancel(actor->msg, &asked->request)) {
        check_fail(&actor->load->check, "request(id, node) can't be canceled:", asked->id,
                   actor->node);
        return;
    }
    check_canceled(&actor->load->check, asked->id);
    asked->used = false;
}

static void answer(struct actor *actor, struct sh_reply_to to, sh_msg_type type, uint32_t id)
{
    size_t size = draw_size(actor);
    struct sh_out out;
    enum shoal_err err = sh_msg_reply(actor->msg, to, type, size, &out);
    if (err != SHOAL_OK && err != SHOAL_ECONNLOST)
        check_fail(&actor->load->check, "reply(id, error) failed oddly:", id, err);
    if (err != SHOAL_OK)
        return;
    uint32_t said = breaks(actor, SH_MSG_LOAD_MIX_UP) ? id + 1 : id;
    payload_write(&out, size, (uint32_t[]){said, actor->node, 0, 0});
    sh_msg_end(actor->msg, &out);
}

static void answer_later(struct actor *actor, const struct sh_msg_in *in, uint32_t id)
{
    for (unsigned i = 0; i < LATER_SLOTS; i++) {
        struct later *later = &actor->later[i];
        if (later->used)
            continue;
        uint64_t due_ns = actor_now(actor) + sh_prng_below(&actor->prng, 2 * REQUEST_TIMEOUT_NS);
        *later = (struct later){in->reply_to, in->type, id, due_ns, true};
        return;
    }
    answer(actor, in->reply_to, in->type, id);
}

static void on_request(void *arg, struct sh_msg_in *in)
{
    struct actor *actor = arg;
    struct check *check = &actor->load->check;
    uint32_t numbers[4];
    if (!payload_read(check, &in->payload, numbers))
        return;
    if (!in->is_request || nid_of(numbers[1]).v != in->reply_to.nid.v) {
        check_fail(check, "request(id, from) came as something else:", numbers[0], numbers[1]);
        return;
    }
    sh_world_trace(actor->load->world, actor->node, "request(from, id)", numbers[1], numbers[0],
                   (struct sh_bytes){0});
    check_handled(check, numbers[0], numbers[1], actor->node);
    switch ((enum answer_how)numbers[3]) {
    case ANSWER_NOW:
        answer(actor, in->reply_to, in->type, numbers[0]);
        break;
    case ANSWER_ERROR:
        sh_msg_reply_error(actor->msg, in->reply_to, in->type, SHOAL_EBUSY, "as you wished");
        break;
    case ANSWER_LATER:
        answer_later(actor, in, numbers[0]);
        break;
    default:
        break;
    }
}

/* --- The actor's step ---------------------------------------------------------------------------
 */

static unsigned answer_due(struct actor *actor)
{
    unsigned worked = 0;
    for (unsigned i = 0; i < LATER_SLOTS; i++) {
        struct later *later = &actor->later[i];
        if (!later->used || later->due_ns > actor_now(actor))
            continue;
        later->used = false;
        answer(actor, later->reply_to, later->type, later->id);
        worked++;
    }
    return worked;
}

static void act(struct actor *actor)
{
    unsigned others = actor->load->config->nodes - 1;
    unsigned to = (unsigned)(actor->node + 1 + sh_prng_below(&actor->prng, others));
    to %= actor->load->config->nodes;
    uint64_t drawn = sh_prng_below(&actor->prng, 100);
    /* One in ten of the requests that are to be answered is not, or late. */
    static const enum answer_how hows[] = {ANSWER_NOW,   ANSWER_NOW,   ANSWER_NOW, ANSWER_ERROR,
                                           ANSWER_NOW,   ANSWER_LATER, ANSWER_NOW, ANSWER_NOW,
                                           ANSWER_LATER, ANSWER_NEVER};
    if (drawn < 55)
        send_message(actor, to);
    else if (drawn < 95)
        (void)send_request(actor, to, hows[drawn % 10]);
    else
        cancel_one(actor);
}

static unsigned prove(struct actor *actor)
{
    unsigned worked = 0;
    for (unsigned to = 0; to < actor->load->config->nodes; to++) {
        if (to == actor->node || actor->proved[to] || actor->proving[to])
            continue;
        actor->proving[to] = send_request(actor, to, ANSWER_NOW);
        worked += actor->proving[to];
    }
    return worked;
}

static unsigned actor_run(void *arg)
{
    struct actor *actor = arg;
    unsigned worked = answer_due(actor);
    if (actor->load->phase == PHASE_PROVE)
        return worked + prove(actor);
    if (actor->load->phase == PHASE_LOAD && actor_now(actor) >= actor->next_ns) {
        actor->next_ns = actor_now(actor) + sh_prng_below(&actor->prng, SEND_GAP_NS_MAX);
        act(actor);
        worked++;
    }
    return worked;
}

static uint64_t actor_due(void *arg)
{
    struct actor *actor = arg;
    uint64_t due_ns = actor->load->phase == PHASE_LOAD ? actor->next_ns : SH_NEVER;
    for (unsigned i = 0; i < LATER_SLOTS; i++) {
        if (actor->later[i].used && actor->later[i].due_ns < due_ns)
            due_ns = actor->later[i].due_ns;
    }
    return due_ns;
}

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct actor *actor = arg;
    struct load *load = actor->load;
    sh_world_trace(load->world, actor->node,
                   event->kind == SH_MSG_UP       ? "up(nid, )"
                   : event->kind == SH_MSG_CLOSED ? "closed(nid, )"
                                                  : "lost(nid, error)",
                   event->nid.v, event->err, (struct sh_bytes){0});
    if (event->nid.v == 0 || event->nid.v > load->config->nodes) {
        check_fail(&load->check, "event(nid, kind) of an unknown node:", event->nid.v, event->kind);
        return;
    }
    /* Closed in good order: the numbers go on, so that the checkers see what was left out. */
    if (event->kind == SH_MSG_UP || event->kind == SH_MSG_CLOSED)
        return;
    if (event->err != SHOAL_ECONNLOST && event->err != SHOAL_EUNREACHABLE &&
        event->err != SHOAL_ESTOPPED && event->err != SHOAL_ELIMIT)
        check_fail(&load->check, "connection(nid, error) lost oddly:", event->nid.v, event->err);
    load->check.result->losses++;
    check_lost(&load->check, actor->node, event->nid.v - 1u);
}

/* Every round of a world looks at every step: nobody needs to be woken. */
static void wake_nobody(void *arg)
{
    (void)arg;
}

static void address_of(unsigned node, char *text_out)
{
    snprintf(text_out, SH_MSG_ADDRESS_MAX, "node%u:4100", node);
}

static void actor_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct actor *actor = arg;
    char address[SH_MSG_ADDRESS_MAX];
    char bound[SH_MSG_ADDRESS_MAX];
    struct sh_msg_config config = {.nid = nid_of(node),
                                   .cluster = "simulated",
                                   .secret = sh_bytes_text("a secret"),
                                   /* Few, so that idle ones close for others. */
                                   .connections_max = actor->load->config->nodes,
                                   .requests_max = 64,
                                   .ring_bytes = 16384,
                                   .payload_bytes_max = LOAD_PAYLOAD_MAX,
                                   .flow_window_bytes = 16384,
                                   .request_timeout_ns = REQUEST_TIMEOUT_NS,
                                   .connect_timeout_ns = 300 * MS,
                                   .silence_ns = 300 * MS,
                                   .env = *sh_world_env(world, node),
                                   .on_event = on_event,
                                   .wake_transport = wake_nobody,
                                   .wake_handlers = wake_nobody,
                                   .arg = actor};
    actor->node = node;
    actor->boots++;
    enum shoal_err err = sh_msg_create(&config, &actor->msg);
    SH_ASSERT(!err);
    address_of(node, address);
    err = sh_msg_listen(actor->msg, address, bound);
    SH_ASSERT(!err);
    for (unsigned other = 0; other < actor->load->config->nodes; other++) {
        address_of(other, address);
        err = other == node ? SHOAL_OK : sh_msg_node_set(actor->msg, nid_of(other), address);
        SH_ASSERT(!err);
    }
    sh_msg_handler_set(actor->msg, TYPE_INLINE, SH_MSG_INLINE, on_message, actor);
    sh_msg_handler_set(actor->msg, TYPE_ORDERED, SH_MSG_ORDERED, on_message, actor);
    sh_msg_handler_set(actor->msg, TYPE_ASK_INLINE, SH_MSG_INLINE, on_request, actor);
    sh_msg_handler_set(actor->msg, TYPE_ASK_POOLED, SH_MSG_POOLED, on_request, actor);
    actor->next_ns = actor_now(actor);
    sh_world_step_add(world, node, sh_msg_transport_step(actor->msg));
    sh_world_step_add(world, node, sh_msg_handler_step(actor->msg));
    sh_world_step_add(world, node, sh_msg_handler_step(actor->msg));
    struct sh_step step = {.name = "actor", .run = actor_run, .due_ns = actor_due, .arg = actor};
    sh_world_step_add(world, node, step);
}

/* Takes the node's objects down. Whatever it still waited for must have failed by then. */
static void actor_crash(void *arg, struct sh_world *world, unsigned node)
{
    struct actor *actor = arg;
    struct check *check = &actor->load->check;
    (void)world;
    sh_msg_destroy(actor->msg);
    actor->msg = NULL;
    for (unsigned i = 0; i < REQUEST_SLOTS; i++) {
        if (actor->asked[i].used)
            check_fail(check, "request(id, node) was left by destroy:", actor->asked[i].id, node);
        actor->asked[i].used = false;
    }
    memset(actor->later, 0, sizeof actor->later);
    for (unsigned to = 0; to < actor->load->config->nodes; to++)
        check_lost(check, node, to);
}

/* --- The run ------------------------------------------------------------------------------------
 */

static bool has_failed(void *arg)
{
    return ((struct load *)arg)->check.result->failed;
}

static bool has_settled(void *arg)
{
    return has_failed(arg) || ((struct load *)arg)->check.pending == 0;
}

static bool has_proved(void *arg)
{
    struct load *load = arg;
    for (unsigned from = 0; from < load->config->nodes; from++) {
        for (unsigned to = 0; to < load->config->nodes; to++) {
            if (from != to && !load->actors[from].proved[to])
                return has_failed(load);
        }
    }
    return true;
}

static const struct sh_wire_faults calm_wire = {.delay_ns_min = 5000,
                                                .delay_ns_max = MS / 2,
                                                .slow_ppm = 20000,
                                                .slow_ns_max = 20 * MS,
                                                .piece_ppm = 300000,
                                                .lost_ns_max = 50 * MS,
                                                .give_up_ns_max = 200 * MS,
                                                .window_bytes_min = 64,
                                                .window_bytes_max = 65536};

static struct sh_wire_faults rough_wire(const struct sh_msg_load_config *config)
{
    struct sh_wire_faults faults = calm_wire;
    faults.cut_ppm = 1000;
    faults.refuse_ppm = 50000;
    faults.abrupt_ppm = 100000;
    faults.lie = config->lie;
    faults.lie_ppm = 10000;
    return faults;
}

static void load_phases(struct load *load)
{
    const struct sh_msg_load_config *config = load->config;
    struct check *check = &load->check;
    struct sh_chaos_config faults = {.nodes = config->nodes,
                                     .reach = config->nodes,
                                     .gap_ns_max = 60 * MS,
                                     .length_ns_max = 400 * MS,
                                     .cuts = 3,
                                     .partitions = 2,
                                     .pauses = 3,
                                     .crashes = config->crashes ? 1 : 0};
    struct sh_chaos *chaos = sh_chaos_start(load->world, &faults);
    (void)sh_world_run_until(load->world, has_failed, load, config->faults_ns);
    sh_chaos_stop(chaos);
    sh_world_wire_faults_set(load->world, &calm_wire);
    load->phase = PHASE_SETTLE;
    uint64_t deadline_ns = sh_world_now(load->world) + SETTLE_NS;
    if (!sh_world_run_until(load->world, has_settled, load, deadline_ns))
        check_fail(check, "requests(pending, sent) never completed:", check->pending,
                   check->record_count);
    load->phase = PHASE_PROVE;
    deadline_ns = sh_world_now(load->world) + SETTLE_NS;
    if (!sh_world_run_until(load->world, has_proved, load, deadline_ns))
        check_fail(check, "nodes(all, sent) do not all answer again:", config->nodes,
                   check->record_count);
    check->result->trace_hash = sh_world_trace_hash(load->world);
    check->result->ended_ns = sh_world_now(load->world);
    for (unsigned i = 0; i < config->nodes; i++)
        sh_world_crash(load->world, i);
    sh_world_destroy(load->world);
    sh_chaos_destroy(chaos);
}

struct sh_msg_load_config sh_msg_load_config_of(uint64_t seed, unsigned nodes)
{
    return (struct sh_msg_load_config){
        .seed = seed, .nodes = nodes, .faults_ns = 1000 * MS, .crashes = seed % 2 == 0};
}

void sh_msg_load_run(const struct sh_msg_load_config *config, struct sh_msg_load_result *result_out)
{
    SH_ASSERT(config->nodes >= 2 && config->nodes <= SH_MSG_LOAD_NODES_MAX);
    struct load *load = sh_sim_alloc(sizeof *load);
    struct sh_world_config world = {.seed = config->seed,
                                    .wire = rough_wire(config),
                                    .skip_ppm = 50000,
                                    .trace = config->trace};
    *result_out = (struct sh_msg_load_result){0};
    load->config = config;
    load->world = sh_world_create(&world);
    load->check.world = load->world;
    load->check.result = result_out;
    for (unsigned i = 0; i < config->nodes; i++) {
        struct actor *actor = &load->actors[i];
        actor->load = load;
        actor->prng = sh_prng_split(sh_world_prng(load->world));
        uint64_t offset_ns = sh_prng_below(&actor->prng, 100000 * MS);
        struct sh_world_node node = {.clock_offset_ns = (int64_t)offset_ns,
                                     .boot = actor_boot,
                                     .crash = actor_crash,
                                     .arg = actor};
        sh_world_node_add(load->world, &node);
    }
    load_phases(load);
    check_free(&load->check);
    free(load);
}
