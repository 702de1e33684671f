/* A registry that the superpeers share: each holds it whole, and raft gives them all the same
 * commands in the same order.
 *
 *   join, leave ------> pending --PROPOSE--> leader --raft--> apply at each ----> answer, where it
 *                         '--- again until it was applied ---'                    was asked
 *   heartbeats -------> heard ----HEARD----> leader: who is silent has failed, who is not is back
 *   lost connection --> PING --FAIL--------> leader
 *
 * Only the leader decides who is silent, by what all superpeers have heard, so that a superpeer
 * that is cut off from a node blames nobody. Joins and leaves may be applied twice: an instance
 * that is a member gets the ID that it has.
 *
 * A command:
 *   0   u8   kind
 *   1   u8   state (SUPERPEER), else 0
 *   2   u16  node ID; JOIN: its previous one, or 0
 *   4   u64  number, by which its superpeer knows it again; 0: nobody waits
 *   12  u64  instance
 *   20  text address (JOIN) */
#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "cluster/raft.h"
#include "cluster/raft_disk.h"
#include "cluster/superpeer_int.h"

#define COMMAND_BYTES 22 /* with the length of the address */
#define RESEND_NS UINT64_C(100000000)
#define SNAPSHOT_ENTRIES 1024
#define PIECE_BYTES 16384
#define FAILURES_MAX 64 /* declared at once */
#define PENDING_MAX 4096
#define NIDS (SH_PEER_NID_MAX + 1)

enum command_kind {
    COMMAND_JOIN = 1,
    COMMAND_LEAVE,
    COMMAND_FAIL,
    COMMAND_BACK,
    COMMAND_SUPERPEER,
};

struct command {
    uint8_t kind, state;
    shoal_nid nid;
    uint64_t number, instance;
    struct sh_bytes address;
};

/* A request that waits for its command to be applied. */
struct pending {
    struct pending *next;
    uint64_t number;
    struct sh_reply_to reply_to;
    sh_msg_type type;
    uint64_t resend_ns, deadline_ns;
    size_t size;
    uint8_t command[];
};

struct sh_shared {
    struct sh_raft *raft;
    struct sh_raft_disk *disk;
    char cluster[64];
    char addresses[SH_SUPERPEERS_MAX][SH_MSG_ADDRESS_MAX];
    struct pending *pending, **pending_end;
    size_t pending_count;
    uint64_t number; /* of the last command */
    uint64_t watch_ns;
    uint64_t led_since_ns; /* 0: somebody else leads */
    uint64_t watched;      /* what the leader decided up to this entry must be applied first */
    uint64_t heard[NIDS / 64 + 1]; /* nodes heard since the last HEARD, by ID */
};

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

/* --- Commands -------------------------------------------------------------------------------- */

static size_t command_size(const struct command *command)
{
    return COMMAND_BYTES + command->address.size;
}

static void command_put(struct sh_writer *w, const struct command *command)
{
    sh_put8(w, command->kind);
    sh_put8(w, command->state);
    sh_put16(w, command->nid.v);
    sh_put64(w, command->number);
    sh_put64(w, command->instance);
    sh_put_text(w, command->address);
}

static bool command_get(struct sh_bytes bytes, struct command *command_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct command command = {.kind = sh_get8(&r)};
    command.state = sh_get8(&r);
    command.nid.v = sh_get16(&r);
    command.number = sh_get64(&r);
    command.instance = sh_get64(&r);
    command.address = sh_get_text(&r);
    if (!sh_reader_done(&r) || command.kind < COMMAND_JOIN || command.kind > COMMAND_SUPERPEER ||
        command.state > SH_NODE_FAILED || command.address.size >= SH_MSG_ADDRESS_MAX)
        return false;
    *command_out = command;
    return true;
}

/* Gives bytes to the leader, if there is one; whether they arrive, time will tell. */
static void hand_in(struct sh_superpeer *superpeer, struct sh_bytes bytes)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t index, term;
    if (sh_raft_role(shared->raft) == SH_RAFT_LEADER) {
        if (!sh_raft_propose(shared->raft, bytes, &index, &term))
            shared->watched = index;
        return;
    }
    struct sh_out out;
    uint8_t leader = sh_raft_leader(shared->raft);
    if (!leader ||
        sh_msg_begin(superpeer->msg, (shoal_nid){leader}, SH_CLUSTER_PROPOSE, bytes.size, &out))
        return;
    sh_put_raw(&out.w, bytes);
    sh_msg_end(superpeer->msg, &out);
}

/* Hands in a command without an address, for which nobody waits. */
static void decide(struct sh_superpeer *superpeer, uint8_t kind, enum sh_node_state state,
                   shoal_nid nid, uint64_t instance)
{
    uint8_t bytes[COMMAND_BYTES];
    struct command command = {
        .kind = kind, .state = (uint8_t)state, .nid = nid, .instance = instance};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    command_put(&w, &command);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    hand_in(superpeer, sh_bytes_make(bytes, sizeof bytes));
}

/* --- Requests that wait ---------------------------------------------------------------------- */

static void refuse(struct sh_superpeer *superpeer, const struct pending *pending,
                   enum shoal_err err, const char *text)
{
    sh_msg_reply_error(superpeer->msg, pending->reply_to, pending->type, err, text);
}

static void wait_for(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                     struct command *command)
{
    struct sh_shared *shared = superpeer->shared;
    size_t size = command_size(command);
    struct pending *pending = NULL;
    if (shared->pending_count < PENDING_MAX)
        pending = malloc(sizeof *pending + size);
    if (!pending) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    command->number = ++shared->number;
    uint64_t now_ns = now_of(superpeer);
    *pending = (struct pending){.number = command->number,
                                .reply_to = in->reply_to,
                                .type = in->type,
                                .resend_ns = now_ns + RESEND_NS,
                                .deadline_ns = now_ns + superpeer->failure_ns,
                                .size = size};
    struct sh_writer w = sh_writer_make(pending->command, size);
    command_put(&w, command);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    *shared->pending_end = pending;
    shared->pending_end = &pending->next;
    shared->pending_count++;
    hand_in(superpeer, sh_bytes_make(pending->command, size));
}

static struct pending *pending_take(struct sh_shared *shared, uint64_t number)
{
    struct pending **at = &shared->pending;
    while (*at && (*at)->number != number)
        at = &(*at)->next;
    struct pending *pending = *at;
    if (!pending)
        return NULL;
    *at = pending->next;
    if (!*at)
        shared->pending_end = at;
    shared->pending_count--;
    return pending;
}

static unsigned pending_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    unsigned work = 0;
    struct pending *next;
    for (struct pending *pending = shared->pending; pending; pending = next) {
        next = pending->next;
        if (now_ns >= pending->deadline_ns) {
            refuse(superpeer, pending, SHOAL_EBUSY, "no majority of the superpeers agrees");
            free(pending_take(shared, pending->number));
            work++;
        } else if (now_ns >= pending->resend_ns) {
            pending->resend_ns = now_ns + RESEND_NS;
            hand_in(superpeer, sh_bytes_make(pending->command, pending->size));
            work++;
        }
    }
    return work;
}

void sh_superpeer_shared_join(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                              struct sh_bytes address, uint64_t instance, shoal_nid previous)
{
    struct command command = {
        .kind = COMMAND_JOIN, .nid = previous, .instance = instance, .address = address};
    if (address.size >= SH_MSG_ADDRESS_MAX)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EINVAL, NULL);
    else
        wait_for(superpeer, in, &command);
}

void sh_superpeer_shared_leave(struct sh_superpeer *superpeer, const struct sh_msg_in *in,
                               shoal_nid nid, uint64_t instance)
{
    struct command command = {.kind = COMMAND_LEAVE, .nid = nid, .instance = instance};
    wait_for(superpeer, in, &command);
}

/* --- The state machine ----------------------------------------------------------------------- */

static void answer(struct sh_superpeer *superpeer, const struct command *command,
                   enum shoal_err err, shoal_nid nid)
{
    struct pending *pending = pending_take(superpeer->shared, command->number);
    if (!pending)
        return;
    if (err)
        refuse(superpeer, pending, err,
               err == SHOAL_EEXIST ? "another node has this node's ID by now" : NULL);
    else if (command->kind == COMMAND_JOIN)
        sh_superpeer_join_answer(superpeer, pending->reply_to, nid);
    else
        sh_msg_reply_ok(superpeer->msg, pending->reply_to, pending->type);
    free(pending);
}

/* Whether the command came from here in this run: the upper bits of a number are drawn at start. */
static bool is_own(const struct sh_shared *shared, uint64_t number)
{
    return number && number <= shared->number && number >> 24 == shared->number >> 24;
}

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes bytes)
{
    (void)index;
    (void)term;
    struct sh_superpeer *superpeer = arg;
    struct sh_registry *registry = superpeer->registry;
    uint64_t now_ns = now_of(superpeer);
    struct command command;
    if (!command_get(bytes, &command))
        return; /* at all superpeers alike */
    enum shoal_err err = SHOAL_OK;
    shoal_nid nid = command.nid;
    const struct sh_node *node;
    switch (command.kind) {
    case COMMAND_JOIN:
        err = sh_registry_join(registry, now_ns, command.address, command.instance, command.nid,
                               &nid);
        break;
    case COMMAND_LEAVE:
        err = sh_registry_leave(registry, command.nid, command.instance);
        break;
    case COMMAND_FAIL:
        node = sh_view_find(sh_registry_view(registry), command.nid);
        if (node && node->instance == command.instance)
            sh_registry_fail(registry, command.nid, "dead or silent");
        break;
    case COMMAND_BACK:
        sh_registry_back(registry, command.nid, command.instance);
        break;
    default:
        sh_registry_superpeer_set(registry, command.nid, command.state);
        break;
    }
    /* The others may have had the memory: going on would mean to differ from them for ever. */
    SH_ASSERT(err != SHOAL_ENOMEM);
    if (is_own(superpeer->shared, command.number))
        answer(superpeer, &command, err, nid);
}

static size_t image_size(void *arg)
{
    struct sh_superpeer *superpeer = arg;
    return sh_registry_image_size(superpeer->registry);
}

static void image_put(void *arg, struct sh_writer *w)
{
    struct sh_superpeer *superpeer = arg;
    sh_registry_image_put(w, superpeer->registry, 0);
}

static enum shoal_err registry_make(const struct sh_superpeer *superpeer,
                                    struct sh_registry **registry_out)
{
    const struct sh_shared *shared = superpeer->shared;
    const char *addresses[SH_SUPERPEERS_MAX];
    for (uint16_t i = 0; i < superpeer->count; i++)
        addresses[i] = shared->addresses[i];
    struct sh_registry_config config = {
        .cluster = shared->cluster,
        .addresses = addresses,
        .count = superpeer->count,
        .index = superpeer->index,
        .instance = 1,
        .failure_ns = superpeer->failure_ns,
        .is_shared = true,
    };
    return sh_registry_create(&config, now_of(superpeer), registry_out);
}

static enum shoal_err image_get(void *arg, struct sh_bytes image)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t sequence;
    enum shoal_err err = sh_registry_image_check(image, &sequence);
    if (err)
        return err;
    struct sh_registry *registry;
    err = registry_make(superpeer, &registry);
    if (err)
        return err;
    err = sh_registry_image_load(registry, now_of(superpeer), image);
    if (err) {
        sh_registry_destroy(registry);
        return err;
    }
    sh_registry_destroy(superpeer->registry);
    superpeer->registry = registry;
    return SHOAL_OK;
}

/* --- Who is alive ---------------------------------------------------------------------------- */

void sh_superpeer_shared_heard(struct sh_superpeer *superpeer, shoal_nid nid)
{
    if (nid.v < NIDS)
        superpeer->shared->heard[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
}

void sh_superpeer_shared_fail(struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    if (node && node->state == SH_NODE_UP)
        decide(superpeer, COMMAND_FAIL, SH_NODE_FAILED, nid, node->instance);
}

static bool is_heard(const struct sh_shared *shared, shoal_nid nid)
{
    return shared->heard[nid.v / 64] >> nid.v % 64 & 1;
}

/* Tells the leader who was heard here. */
static void report(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    uint16_t count = 0;
    for (size_t i = 0; i < sizeof shared->heard / sizeof shared->heard[0]; i++)
        count += (uint16_t)__builtin_popcountll(shared->heard[i]);
    uint8_t leader = sh_raft_leader(shared->raft);
    struct sh_out out;
    if (!count || !leader ||
        sh_msg_begin(superpeer->msg, (shoal_nid){leader}, SH_CLUSTER_HEARD, 2 + 2 * (size_t)count,
                     &out))
        return;
    sh_put16(&out.w, count);
    for (uint16_t nid = 0; nid < NIDS; nid++) {
        if (is_heard(shared, (shoal_nid){nid}))
            sh_put16(&out.w, nid);
    }
    sh_msg_end(superpeer->msg, &out);
}

static void watch_superpeers(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    for (uint16_t i = 0; i < superpeer->count; i++) {
        shoal_nid nid = {(uint16_t)(i + 1)};
        const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
        uint64_t heard_ns = i == superpeer->index ? now_ns : sh_raft_heard_ns(shared->raft, nid.v);
        uint64_t since_ns = heard_ns > shared->led_since_ns ? heard_ns : shared->led_since_ns;
        SH_ASSERT(node);
        if (node->state == SH_NODE_UP && now_ns >= since_ns + superpeer->failure_ns)
            decide(superpeer, COMMAND_SUPERPEER, SH_NODE_FAILED, nid, 0);
        else if (node->state == SH_NODE_FAILED && heard_ns + superpeer->failure_ns / 2 > now_ns)
            decide(superpeer, COMMAND_SUPERPEER, SH_NODE_UP, nid, 0);
    }
}

/* The leader's part: whoever is silent has failed, and whoever had failed and is heard is back. */
static void watch_all(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (!shared->led_since_ns) {
        /* What the others heard before, we do not know. */
        shared->led_since_ns = now_ns;
        shared->watched = 0;
        sh_registry_heard(superpeer->registry, now_ns, SHOAL_NID_NONE);
    }
    if (sh_raft_applied(shared->raft) < shared->watched)
        return; /* or the same would be decided again and again */
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->state == SH_NODE_FAILED && node->role != SH_ROLE_SUPERPEER &&
            is_heard(shared, node->nid))
            decide(superpeer, COMMAND_BACK, SH_NODE_UP, node->nid, node->instance);
    }
    shoal_nid from = {SH_PEER_NID_MIN};
    for (unsigned i = 0; i < FAILURES_MAX; i++) {
        shoal_nid nid = sh_registry_overdue(superpeer->registry, now_ns, from);
        if (!nid.v)
            break;
        sh_superpeer_shared_fail(superpeer, nid);
        from.v = nid.v + 1;
    }
    watch_superpeers(superpeer, now_ns);
    memset(shared->heard, 0, sizeof shared->heard);
}

static unsigned watch_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    bool leads = sh_raft_role(shared->raft) == SH_RAFT_LEADER;
    if (!leads)
        shared->led_since_ns = 0;
    if (now_ns < shared->watch_ns)
        return 0;
    shared->watch_ns = now_ns + superpeer->heartbeat_ns;
    if (leads && sh_raft_is_current(shared->raft)) {
        watch_all(superpeer, now_ns);
    } else if (!leads) {
        report(superpeer);
        memset(shared->heard, 0, sizeof shared->heard);
    }
    return 1;
}

/* --- Messages -------------------------------------------------------------------------------- */

static bool is_superpeer(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    return nid.v && nid.v <= superpeer->count && nid.v != superpeer->index + 1;
}

static struct sh_bytes rest_of(struct sh_msg_in *in)
{
    size_t size = sh_reader_left(&in->payload);
    return sh_bytes_make(sh_reader_take(&in->payload, size), size);
}

static void on_raft(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    if (is_superpeer(superpeer, in->reply_to.nid))
        sh_raft_receive(superpeer->shared->raft, now_of(superpeer), (uint8_t)in->reply_to.nid.v,
                        rest_of(in));
}

static void on_propose(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    struct sh_bytes bytes = rest_of(in);
    struct command command;
    if (is_superpeer(superpeer, in->reply_to.nid) && command_get(bytes, &command) &&
        sh_raft_role(superpeer->shared->raft) == SH_RAFT_LEADER)
        hand_in(superpeer, bytes);
}

static void on_heard(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint16_t count = sh_get16(&in->payload);
    if (!is_superpeer(superpeer, in->reply_to.nid) ||
        sh_reader_left(&in->payload) != 2 * (size_t)count ||
        sh_raft_role(superpeer->shared->raft) != SH_RAFT_LEADER)
        return;
    uint64_t now_ns = now_of(superpeer);
    while (count--) {
        shoal_nid nid = {sh_get16(&in->payload)};
        if (!nid.v)
            continue;
        sh_registry_heard(superpeer->registry, now_ns, nid);
        sh_superpeer_shared_heard(superpeer, nid);
    }
}

static unsigned send_all(struct sh_superpeer *superpeer)
{
    unsigned work = 0;
    struct sh_raft_message *message;
    while ((message = sh_raft_message_next(superpeer->shared->raft))) {
        struct sh_out out;
        /* What can't be sent is lost: raft says it again. */
        if (is_superpeer(superpeer, (shoal_nid){message->to}) &&
            !sh_msg_begin(superpeer->msg, (shoal_nid){message->to}, SH_CLUSTER_RAFT, message->size,
                          &out)) {
            sh_put_raw(&out.w, sh_bytes_make(message->bytes, message->size));
            sh_msg_end(superpeer->msg, &out);
        }
        free(message);
        work++;
    }
    return work;
}

void sh_superpeer_shared_connect(struct sh_superpeer *superpeer)
{
    for (uint16_t i = 0; i < superpeer->count; i++) {
        shoal_nid nid = {(uint16_t)(i + 1)};
        if (!is_superpeer(superpeer, nid))
            continue;
        enum shoal_err err = sh_msg_node_set(superpeer->msg, nid, superpeer->shared->addresses[i]);
        if (err)
            SH_WARN("cluster", "superpeer can't be connected to", SH_U64("node", nid.v),
                    SH_ERR(err));
    }
}

/* --- Life ------------------------------------------------------------------------------------ */

unsigned sh_superpeer_shared_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    unsigned work = 0;
    if (now_ns >= sh_raft_due_ns(shared->raft)) {
        sh_raft_tick(shared->raft, now_ns);
        work++;
    }
    work += watch_step(superpeer, now_ns);
    work += pending_step(superpeer, now_ns);
    work += sh_raft_disk_step(shared->disk, now_ns);
    work += send_all(superpeer);
    return work;
}

uint64_t sh_superpeer_shared_due_ns(const struct sh_superpeer *superpeer, uint64_t now_ns)
{
    const struct sh_shared *shared = superpeer->shared;
    uint64_t due_ns = sh_raft_due_ns(shared->raft);
    uint64_t disk_ns = sh_raft_disk_due_ns(shared->disk, now_ns);
    if (disk_ns < due_ns)
        due_ns = disk_ns;
    if (shared->watch_ns < due_ns)
        due_ns = shared->watch_ns; /* at most a heartbeat away: soon enough for what is pending */
    return due_ns;
}

bool sh_superpeer_shared_is_current(const struct sh_superpeer *superpeer)
{
    return sh_raft_is_current(superpeer->shared->raft);
}

static enum shoal_err raft_open(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    uint64_t voters = 0;
    for (uint16_t i = 1; i <= superpeer->count; i++)
        voters |= UINT64_C(1) << i;
    struct sh_raft_config config = {
        .server = (uint8_t)(superpeer->index + 1),
        .first = {.voters = voters},
        .election_ns = 4 * superpeer->heartbeat_ns,
        .heartbeat_ns = superpeer->heartbeat_ns > 1 ? superpeer->heartbeat_ns / 2 : 1,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = PIECE_BYTES,
        .seed = sh_random64(&superpeer->env.random),
        .fsm = {apply, image_size, image_put, image_get, superpeer},
    };
    enum shoal_err err = sh_raft_create(&config, &shared->raft);
    if (err)
        return err;
    bool is_new;
    err = sh_raft_disk_open(&superpeer->env, shared->raft, &shared->disk, &is_new);
    if (err)
        return err;
    if (sh_raft_members(shared->raft).voters != voters) {
        SH_ERROR("cluster", "the registry in data_dir is of another list of superpeers",
                 SH_U64("stored", sh_raft_members(shared->raft).voters >> 1),
                 SH_U64("given", voters >> 1));
        return SHOAL_ECLUSTER;
    }
    if (is_new)
        SH_INFO("cluster", "new registry: waiting for all superpeers, which share it",
                SH_U64("superpeers", superpeer->count));
    sh_raft_start(shared->raft, now_ns);
    return SHOAL_OK;
}

enum shoal_err sh_superpeer_shared_open(struct sh_superpeer *superpeer,
                                        const struct sh_superpeer_config *config, uint64_t now_ns)
{
    struct sh_shared *shared = calloc(1, sizeof *shared);
    if (!shared)
        return SHOAL_ENOMEM;
    superpeer->shared = shared;
    shared->pending_end = &shared->pending;
    shared->number = sh_random64(&superpeer->env.random) << 24;
    size_t name = strlen(config->cluster);
    SH_ASSERT(name && name < sizeof shared->cluster);
    memcpy(shared->cluster, config->cluster, name);
    for (uint16_t i = 0; i < config->count; i++) {
        size_t size = strlen(config->addresses[i]);
        if (size < SH_MSG_ADDRESS_MAX)
            memcpy(shared->addresses[i], config->addresses[i], size);
    }
    enum shoal_err err = registry_make(superpeer, &superpeer->registry); /* EADDRESS */
    if (!err)
        err = raft_open(superpeer, now_ns);
    if (err)
        return err;
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_RAFT, SH_MSG_INLINE, on_raft, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_PROPOSE, SH_MSG_INLINE, on_propose, superpeer);
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_HEARD, SH_MSG_INLINE, on_heard, superpeer);
    return SHOAL_OK;
}

void sh_superpeer_shared_close(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (!shared)
        return;
    sh_raft_disk_close(shared->disk);
    sh_raft_destroy(shared->raft);
    while (shared->pending) {
        struct pending *pending = shared->pending;
        refuse(superpeer, pending, SHOAL_ESTOPPED, NULL);
        free(pending_take(shared, pending->number));
    }
    superpeer->shared = NULL;
    free(shared);
}
