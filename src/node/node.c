#include "node/node.h"

#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/directory.h"
#include "cluster/member.h"
#include "env/env.h"
#include "graph/graph.h"
#include "msg/tls.h"
#include "msg/wires.h"
#include "node/advertise.h"
#include "node/chunks.h"
#include "node/dumps.h"
#include "node/identity.h"
#include "node/leased.h"
#include "node/locks.h"
#include "node/moves.h"
#include "node/node_int.h"
#include "node/promoted.h"
#include "node/secret.h"
#include "node/steps.h"
#include "node/superhost.h"

#define REQUESTS_MAX (1u << 16)
#define PAYLOAD_BYTES_LEAST (16u << 20)
#define DETAIL_BYTES 256
#define LEASE_WAIT_NS UINT64_C(5000000000)

struct sh_node_run {
    const struct sh_options *options;
    struct sh_secret secret;
    struct sh_env env;
    struct sh_msg *msg;
    struct sh_crew *crew;
    char address[SH_MSG_ADDRESS_MAX]; /* the one that others are told */
    /* A superpeer's. */
    struct sh_superhost *superhost;
    /* A peer's. */
    struct sh_store *store;
    struct sh_identity *identity; /* NULL: it has no folder, and is another node with each start */
    unsigned defrag_rest;         /* rounds until the step looks again */
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
    struct sh_dumps *dumps;
    struct sh_graph *graph;
    struct sh_promoted *promoted;
    bool is_inner; /* a superpeer in a peer's process */
    /* Life cycle. The semaphore is posted whenever one of the flags changes. */
    sem_t changed;
    _Atomic bool is_ready;
    _Atomic bool is_stopping;
    _Atomic bool has_left;
    _Atomic int stop_reason;
    bool is_started;
};

static bool is_superpeer(const struct sh_options *options)
{
    return strcmp(options->roles.items[0], "superpeer") == 0;
}

static void wake_transport(void *arg)
{
    struct sh_node_run *node = arg;
    sh_crew_wake(node->crew, 0);
}

static void wake_handler(void *arg, unsigned handler)
{
    struct sh_node_run *node = arg;
    sh_crew_wake(node->crew, handler + (node->options->threads > 1));
}

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct sh_node_run *node = arg;
    if (node->superhost)
        sh_superhost_link_event(node->superhost, event);
    if (node->member)
        sh_member_link_event(node->member, event);
    if (node->directory && event->kind == SH_MSG_LOST)
        sh_directory_suspect(node->directory, event->nid);
    if (node->locks)
        sh_locks_link_event(node->locks, event);
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct sh_node_run *node = arg;
    sh_locks_view(node->locks, view);
}

static void set_flag(struct sh_node_run *node, _Atomic bool *flag)
{
    atomic_store(flag, true); /* seq_cst: seen by who was woken by the post */
    sem_post(&node->changed);
}

static void on_joined(void *arg, shoal_nid nid)
{
    struct sh_node_run *node = arg;
    sh_log_node_set(nid.v);
    SH_INFO("node", "joined", SH_U64("nid", nid.v), SH_TEXT("address", node->address));
    if (node->identity)
        sh_identity_joined(node->identity, nid, sh_member_cluster(node->member));
    sh_moves_joined(node->moves);
    set_flag(node, &node->is_ready);
}

static bool is_confirmed(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_identity_is_confirmed(node->identity);
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    if (err == SHOAL_OK)
        return;
    atomic_store(&node->stop_reason, (int)err);
    sh_node_stop(node);
}

static void on_left(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    if (err != SHOAL_OK)
        SH_WARN("node", "left without telling a superpeer", SH_ERR(err));
    set_flag(node, &node->has_left);
}

static void on_stop(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    SH_INFO("node", "told to stop", SH_U64("by", in->reply_to.nid.v));
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
    sh_node_stop(node);
}

static void on_log_levels(void *arg, struct sh_msg_in *in)
{
    char levels[1024], text[160];
    const char *bad = levels;
    size_t bad_len = 0, size = sh_reader_left(&in->payload);
    (void)arg;
    if (size >= sizeof levels) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ERANGE, NULL);
        return;
    }
    memcpy(levels, sh_reader_take(&in->payload, size), size);
    levels[size] = '\0';
    enum shoal_err err = sh_log_levels_set(levels, &bad, &bad_len);
    if (err == SHOAL_OK) {
        SH_INFO("node", "log levels changed", SH_TEXT("levels", levels));
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return;
    }
    snprintf(text, sizeof text, "\"%.*s\" is no level", bad_len > 60 ? 60 : (int)bad_len, bad);
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

static void on_steps(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    sh_steps_answer(node->crew, in);
}

/* --- Making it ----------------------------------------------------------------------------- */

static enum shoal_err open_wire(struct sh_node_run *node, char *detail)
{
    const struct sh_options *options = node->options;
    /* A few more than connections_max: msg accepts them while idle ones close. */
    uint32_t links_max = (uint32_t)options->connections_max + 16;
    enum shoal_err err = sh_wire_create(options->transport, links_max, &node->env.wire);
    if (err != SHOAL_OK || strcmp(options->tls, "on") != 0)
        return err;
    struct sh_tls_config tls = {.cert_file = options->tls_cert_file,
                                .key_file = options->tls_key_file,
                                .ca_file = options->tls_ca_file,
                                .clock = node->env.clock,
                                .handshake_timeout_ns = options->connect_timeout_ns,
                                .handshakes_max = (uint32_t)options->hellos_max};
    return sh_tls_create(node->env.wire, &tls, &node->env.wire, detail);
}

/* Others know the node by its option advertise, or by the address that listen is bound to. */
static enum shoal_err listen_all(struct sh_node_run *node, char *detail)
{
    const struct sh_options *options = node->options;
    char local[SH_MSG_ADDRESS_MAX], bound[SH_MSG_ADDRESS_MAX];
    enum shoal_err err = sh_msg_listen(node->msg, options->listen, bound);
    if (err != SHOAL_OK) {
        snprintf(detail, DETAIL_BYTES, "listen %s: %s", options->listen, shoal_err_text(err));
        return err;
    }
    err = sh_advertise_choose(options->advertise, bound, node->address, detail);
    if (err != SHOAL_OK)
        return err;
    if (strcmp(bound, node->address) != 0)
        SH_INFO("node", "listens", SH_TEXT("at", bound), SH_TEXT("advertises", node->address));
    if (*options->local_socket == '\0')
        return SHOAL_OK;
    snprintf(local, sizeof local, "unix:%s", options->local_socket);
    err = sh_msg_listen(node->msg, local, bound);
    if (err != SHOAL_OK)
        snprintf(detail, DETAIL_BYTES, "listen %s: %s", local, shoal_err_text(err));
    return err;
}

static void on_promote(void *arg, struct sh_msg_in *in);

static enum shoal_err open_msg(struct sh_node_run *node, char *detail)
{
    const struct sh_options *options = node->options;
    enum shoal_err err = open_wire(node, detail);
    if (err != SHOAL_OK)
        return err;
    /* A compare-and-put carries two contents: 2 GiB and a page at most. */
    uint64_t payload_max = 2 * options->chunk_bytes_max + 4096;
    struct sh_msg_config config = {
        .nid = SHOAL_NID_NONE,
        .cluster = options->cluster,
        .secret = sh_secret_bytes(&node->secret),
        .connections_max = (uint32_t)options->connections_max,
        .requests_max = REQUESTS_MAX,
        .hellos_max = (uint32_t)options->hellos_max,
        .ring_bytes = (uint32_t)options->ring_bytes,
        .receive_bytes_max = options->receive_bytes_max,
        .flow_window_bytes = (uint32_t)options->flow_window_bytes,
        .silence_ns = options->peer_silence_ns,
        .payload_bytes_max =
            (uint32_t)(payload_max > PAYLOAD_BYTES_LEAST ? payload_max : PAYLOAD_BYTES_LEAST),
        .request_timeout_ns = options->request_timeout_ns,
        .connect_timeout_ns = options->connect_timeout_ns,
        .env = node->env,
        .on_event = on_event,
        .wake_transport = wake_transport,
        .wake_handler = wake_handler,
        .arg = node,
    };
    err = sh_msg_create(&config, &node->msg);
    if (err != SHOAL_OK)
        return err;
    err = listen_all(node, detail);
    sh_msg_handler_set(node->msg, SH_NODE_STOP, SH_MSG_INLINE, on_stop, node);
    sh_msg_handler_set(node->msg, SH_NODE_LOG_LEVELS, SH_MSG_INLINE, on_log_levels, node);
    sh_msg_handler_set(node->msg, SH_NODE_STEPS, SH_MSG_INLINE, on_steps, node);
    if (!is_superpeer(options))
        sh_msg_handler_set(node->msg, SH_NODE_PROMOTE, SH_MSG_INLINE, on_promote, node);
    return err;
}

static enum shoal_err open_crew(struct sh_node_run *node)
{
    const struct sh_options *options = node->options;
    struct sh_crew_config config = {
        .name = "shoal",
        .threads = (unsigned)options->threads,
        .idle = {options->spin_ns, options->park_ns, options->silence_ns},
        .now_ns = node->env.clock.now_ns,
        .now_arg = node->env.clock.arg,
    };
    return sh_crew_create(&config, &node->crew);
}

static void on_serves(void *arg)
{
    struct sh_node_run *node = arg;
    shoal_nid nid = sh_node_nid(node);
    if (!node->is_inner)
        sh_log_node_set(nid.v);
    SH_INFO("node", "superpeer serves", SH_U64("nid", nid.v), SH_TEXT("address", node->address));
    set_flag(node, &node->is_ready);
}

/* The superpeer part has ended, and with it the node. */
static void on_over(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    atomic_store(&node->stop_reason, (int)err);
    sh_node_stop(node);
}

/* The folder for what must survive a restart, if there is one. A promoted superpeer shares that of
 * its peer, which has taken it. */
static enum shoal_err open_disk(struct sh_node_run *node, char *detail)
{
    const char *folder = node->options->data_dir;
    if (folder[0] == '\0')
        return SHOAL_OK;
    enum shoal_err err = sh_real_disk_create(folder, false, &node->env.disk);
    if (err == SHOAL_OK && !node->is_inner)
        err = sh_real_disk_take(node->env.disk);
    if (err == SHOAL_OK)
        err = sh_disk_wake_set(node->env.disk, wake_transport, node);
    if (err == SHOAL_EBUSY)
        snprintf(detail, DETAIL_BYTES,
                 "another node uses data_dir %.128s: stop it, or give this one a folder of its own",
                 folder);
    else if (err != SHOAL_OK)
        snprintf(detail, DETAIL_BYTES, "data_dir %s: %s", folder, shoal_err_text(err));
    return err;
}

static enum shoal_err open_superpeer(struct sh_node_run *node, char *detail)
{
    const struct sh_options *options = node->options;
    if (strcmp(options->registry, "memory") == 0)
        SH_WARN("node",
                "registry memory: when most superpeers are stopped at once, who is a member, "
                "names and where chunks are is lost");
    if (strcmp(options->registry, "memory") != 0) {
        if (!*options->data_dir) {
            snprintf(detail, DETAIL_BYTES,
                     "a superpeer needs a data_dir, with registry zookeeper as well; or, if all of "
                     "the cluster may be lost with its superpeers, registry memory on all of them");
            return SHOAL_EINVAL;
        }
        enum shoal_err err = open_disk(node, detail);
        if (err != SHOAL_OK)
            return err;
    }
    struct sh_superhost_config config = {
        .options = options,
        .msg = node->msg,
        .env = node->env,
        .address = node->address,
        .on_serves = on_serves,
        .on_over = on_over,
        .arg = node,
    };
    return sh_superhost_create(&config, &node->superhost, detail);
}

static enum shoal_err open_membership(struct sh_node_run *node)
{
    const struct sh_options *options = node->options;
    SH_ASSERT(options->superpeers.count > 0);
    struct sh_directory_config known = {
        .msg = node->msg,
        .clock = node->env.clock,
        .cache_ranges_max = (uint32_t)options->cache_ranges_max,
    };
    enum shoal_err err = sh_directory_create(&known, &node->directory);
    if (err != SHOAL_OK)
        return err;
    struct sh_member_config config = {
        .msg = node->msg,
        .directory = node->directory,
        .env = node->env,
        .superpeers = (const char *const *)options->superpeers.items,
        .superpeer_count = options->superpeers.count,
        .address = node->address,
        .instance = (uint32_t)(sh_random64(&node->env.random) | 1),
        .heartbeat_ns = options->heartbeat_ns,
        .failure_ns = options->failure_ns,
        .on_joined = on_joined,
        .on_view = on_view,
        .on_failed = on_failed,
        .arg = node,
    };
    if (node->identity) {
        config.instance = sh_identity_life(node->identity);
        config.nid = sh_identity_nid(node->identity);
        config.cluster = sh_identity_cluster(node->identity);
        config.is_confirmed = is_confirmed;
    }
    return sh_member_create(&config, &node->member);
}

static enum shoal_err open_locks(struct sh_node_run *node)
{
    struct sh_locks_config config = {
        .msg = node->msg,
        .store = node->store,
        .holdings = sh_chunks_holdings(node->chunks),
        .clock = node->env.clock,
        .seed = sh_random64(&node->env.random),
        .wake = wake_transport,
        .arg = node,
    };
    enum shoal_err err = sh_locks_create(&config, &node->locks);
    if (err == SHOAL_OK)
        sh_chunks_remover_set(node->chunks, sh_locks_remove, node->locks);
    return err;
}

/* A graph's index finds the chunks by where they are in this node's store. */
static bool has_no_graph(void *arg)
{
    struct sh_node_run *node = arg;
    return sh_graph_is_empty(node->graph);
}

static bool loads_no_dump(void *arg)
{
    struct sh_node_run *node = arg;
    return !sh_dumps_is_loading(node->dumps);
}

static bool is_not_drained(void *arg)
{
    struct sh_node_run *node = arg;
    return !sh_chunks_creates_refused(node->chunks);
}

static enum shoal_err open_dumps(struct sh_node_run *node)
{
    struct sh_dumps_config dumps = {.msg = node->msg,
                                    .store = node->store,
                                    .chunks = node->chunks,
                                    .disk = node->env.disk,
                                    .clock = node->env.clock};
    return sh_dumps_create(&dumps, &node->dumps);
}

static enum shoal_err open_peer(struct sh_node_run *node, char *detail)
{
    struct sh_store_config stored = {
        .bytes_max = node->options->store_bytes_max,
        .chunk_bytes_max = (uint32_t)node->options->chunk_bytes_max,
        .small_pages = !node->options->huge_pages,
        .defers = true, /* to the step "defrag" */
        .readies = true,
    };
    enum shoal_err err = sh_store_create(&stored, &node->store);
    if (err != SHOAL_OK) {
        snprintf(detail, DETAIL_BYTES, "chunk memory of store_bytes_max can't be reserved: %s",
                 shoal_err_text(err));
        return err;
    }
    err = open_disk(node, detail);
    if (err == SHOAL_OK && node->env.disk)
        err = sh_identity_open(&node->env, node->options->cluster, node->store, &node->identity,
                               detail);
    if (err == SHOAL_OK)
        err = open_membership(node);
    if (err == SHOAL_OK)
        err = sh_promoted_create(node->options, &node->promoted);
    if (err != SHOAL_OK)
        return err;
    err = sh_chunks_create(node->msg, node->store, stored.chunk_bytes_max, &node->chunks);
    if (err != SHOAL_OK)
        return err;
    err = open_locks(node);
    if (err != SHOAL_OK)
        return err;
    struct sh_moves_config moves = {
        .msg = node->msg,
        .store = node->store,
        .chunks = node->chunks,
        .locks = node->locks,
        .directory = node->directory,
        .clock = node->env.clock,
        .may_move = has_no_graph,
        .may_drain = loads_no_dump,
        .arg = node,
    };
    err = sh_moves_create(&moves, &node->moves);
    if (err != SHOAL_OK)
        return err;
    err = open_dumps(node);
    if (err != SHOAL_OK)
        return err;
    struct sh_graph_config graph = {
        .msg = node->msg,
        .store = node->store,
        .clock = &node->env.clock,
        .wake = wake_transport,
        .may_load = is_not_drained,
        .arg = node,
    };
    err = sh_graph_create(&graph, &node->graph);
    if (err == SHOAL_OK)
        sh_node_leased_types_set(node->msg);
    return err;
}

/* Packs chunk memory while the node is awake: looks now and then whether there is enough waste, and
 * then goes over some hundred groups each time. */
#define DEFRAG_LOOK_ROUNDS 4096
#define DEFRAG_GROUPS 128

static unsigned defrag_run(void *arg)
{
    struct sh_node_run *node = arg;
    if (node->defrag_rest > 0) {
        node->defrag_rest--;
        return 0;
    }
    unsigned done = sh_store_defrag(node->store, DEFRAG_GROUPS, false);
    if (done == 0)
        node->defrag_rest = DEFRAG_LOOK_ROUNDS;
    return done;
}

/* Deals the steps to the threads: the first has all but the handlers, the others those; a single
 * one has everything. */
static void deal_steps(struct sh_node_run *node)
{
    unsigned threads = (unsigned)node->options->threads;
    sh_crew_parker_set(node->crew, 0, sh_msg_parker(node->msg));
    sh_crew_step_add(node->crew, 0, sh_msg_transport_step(node->msg));
    if (node->superhost)
        sh_crew_step_add(node->crew, 0, sh_superhost_step(node->superhost));
    if (node->member)
        sh_crew_step_add(node->crew, 0, sh_member_step(node->member));
    if (node->locks)
        sh_crew_step_add(node->crew, 0, sh_locks_step(node->locks));
    if (node->moves)
        sh_crew_step_add(node->crew, 0, sh_moves_step(node->moves));
    if (node->graph)
        sh_crew_step_add(node->crew, 0, sh_graph_step(node->graph));
    if (node->dumps)
        sh_crew_step_add(node->crew, 0, sh_dumps_step(node->dumps));
    if (node->store)
        sh_crew_step_add(node->crew, 0,
                         (struct sh_step){.name = "defrag", .run = defrag_run, .arg = node});
    if (node->identity)
        sh_crew_step_add(node->crew, 0, sh_identity_step(node->identity));
    for (unsigned thread = threads > 1; thread < threads; thread++)
        sh_crew_step_add(node->crew, thread, sh_msg_handler_step(node->msg));
}

static enum shoal_err open_all(struct sh_node_run *node, char *detail)
{
    enum shoal_err err = sh_secret_read(node->options->secret_file, &node->secret, detail);
    if (err == SHOAL_OK)
        err = open_crew(node);
    if (err == SHOAL_OK)
        err = open_msg(node, detail);
    if (err == SHOAL_OK)
        err = is_superpeer(node->options) ? open_superpeer(node, detail) : open_peer(node, detail);
    if (err == SHOAL_OK)
        deal_steps(node);
    return err;
}

static enum shoal_err create(const struct sh_options *options, bool is_inner,
                             struct sh_node_run **node_out, char *detail)
{
    detail[0] = '\0';
    if (options->roles.count != 1) {
        snprintf(detail, DETAIL_BYTES, "roles must be one of superpeer and peer: run two nodes");
        return SHOAL_EROLE;
    }
    if (!is_superpeer(options) && options->superpeers.count == 0) {
        snprintf(detail, DETAIL_BYTES,
                 "a peer needs the option superpeers, the addresses of its superpeers "
                 "(--superpeers HOST:PORT,...); or is it one itself (--roles superpeer)?");
        return SHOAL_EINVAL;
    }
    struct sh_node_run *node = calloc(1, sizeof *node);
    if (!node)
        return SHOAL_ENOMEM;
    node->options = options;
    node->is_inner = is_inner;
    node->env = (struct sh_env){.clock = sh_real_clock(), .random = sh_real_random()};
    sem_init(&node->changed, 0, 0);
    enum shoal_err err = open_all(node, detail);
    if (err != SHOAL_OK) {
        sh_node_destroy(node);
        return err;
    }
    *node_out = node;
    return SHOAL_OK;
}

enum shoal_err sh_node_create(const struct sh_options *options, struct sh_node_run **node_out,
                              char *detail)
{
    return create(options, false, node_out, detail);
}

enum shoal_err sh_node_create_inner(const struct sh_options *options, struct sh_node_run **node_out,
                                    char *detail)
{
    return create(options, true, node_out, detail);
}

void sh_node_destroy(struct sh_node_run *node)
{
    if (!node)
        return;
    if (node->crew && node->is_started)
        sh_crew_stop(node->crew);
    sh_promoted_destroy(node->promoted);
    sh_moves_destroy(node->moves);
    sh_member_destroy(node->member);
    sh_superhost_destroy(node->superhost);
    sh_directory_destroy(node->directory);
    node->member = NULL;
    node->superhost = NULL;
    node->directory = NULL;
    sh_msg_destroy(node->msg);
    sh_graph_destroy(node->graph);
    sh_dumps_destroy(node->dumps);
    sh_chunks_destroy(node->chunks);
    sh_locks_destroy(node->locks);
    sh_identity_close(node->identity);
    sh_store_destroy(node->store);
    if (node->env.disk)
        sh_disk_wake_stop(node->env.disk);
    sh_crew_destroy(node->crew);
    if (node->env.disk)
        node->env.disk->ops->destroy(node->env.disk);
    if (node->env.wire)
        node->env.wire->ops->destroy(node->env.wire);
    sem_destroy(&node->changed);
    free(node);
}

/* --- Promotion ----------------------------------------------------------------------------- */

#define SUPERPEERS_ASKED_MAX SH_SUPERPEERS_MAX

/* Addresses of the superpeers in the view, or of the options. */
static size_t superpeers_known(struct sh_node_run *node, struct sh_node *nodes,
                               const char **addresses)
{
    size_t count = sh_directory_nodes(node->directory, nodes, SUPERPEERS_ASKED_MAX);
    size_t known = 0;
    for (size_t i = 0; i < count && i < SUPERPEERS_ASKED_MAX; i++) {
        if (nodes[i].role == SH_ROLE_SUPERPEER && nodes[i].state != SH_NODE_LEFT)
            addresses[known++] = nodes[i].address;
    }
    const struct sh_list *list = &node->options->superpeers;
    for (size_t i = 0; !known && i < list->count && i < SUPERPEERS_ASKED_MAX; i++)
        addresses[i] = list->items[i];
    return known ? known : list->count;
}

static enum shoal_err promote(struct sh_node_run *node, char *address_out, char *detail)
{
    const char *addresses[SUPERPEERS_ASKED_MAX];
    struct sh_node *nodes = calloc(SUPERPEERS_ASKED_MAX, sizeof *nodes);
    if (!nodes)
        return SHOAL_ENOMEM;
    size_t count = superpeers_known(node, nodes, addresses);
    enum shoal_err err = sh_promoted_start(node->promoted, addresses, count, address_out, detail);
    free(nodes);
    if (err == SHOAL_OK)
        SH_INFO("node", "this peer has a superpeer too", SH_TEXT("address", address_out));
    return err;
}

/* Opens files and a port in the transport step, which takes some milliseconds, once in a while. */
static void on_promote(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    char address[SH_MSG_ADDRESS_MAX], detail[DETAIL_BYTES] = "";
    struct sh_out out;
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    enum shoal_err err = promote(node, address, detail);
    if (err != SHOAL_OK) {
        SH_WARN("node", "can't be promoted", SH_ERR(err), SH_TEXT("detail", detail));
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, detail);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 2 + strlen(address), &out))
        return;
    sh_put_text(&out.w, sh_bytes_text(address));
    sh_msg_end(in->msg, &out);
}

/* At the start of a peer that was promoted when it ran before. Without its superpeer it does not start:
 * the cluster would lack a superpeer, and perhaps the last replica of a shard, and nobody would look. */
static enum shoal_err promote_again(struct sh_node_run *node)
{
    char address[SH_MSG_ADDRESS_MAX], detail[DETAIL_BYTES] = "";
    bool is_stored = false;
    enum shoal_err err = sh_promoted_stored(node->promoted, &is_stored);
    if (!err && is_stored)
        err = promote(node, address, detail);
    if (err)
        SH_ERROR(
            "node",
            "the superpeer of this peer can't start, so the peer does not either: restore the "
            "files journal.* in its data_dir; if they are lost, remove them, and the peer starts "
            "without a superpeer (shoal node lost and demote tell the others, promote makes a new "
            "one)",
            SH_ERR(err), SH_TEXT("detail", detail));
    return err;
}

/* --- Life cycle ---------------------------------------------------------------------------- */

enum shoal_err sh_node_start(struct sh_node_run *node)
{
    bool serves = node->superhost && sh_superhost_serves(node->superhost);
    enum shoal_err err = node->promoted ? promote_again(node) : SHOAL_OK;
    if (!err)
        err = sh_crew_start(node->crew);
    if (err != SHOAL_OK)
        return err;
    node->is_started = true;
    if (serves)
        on_serves(node);
    return SHOAL_OK;
}

void sh_node_stop(struct sh_node_run *node)
{
    set_flag(node, &node->is_stopping);
}

/* Waits for a condition at most so long. The interval only bounds how late it is noticed. */
static void wait_for(struct sh_node_run *node, bool (*holds)(struct sh_node_run *node),
                     uint64_t timeout_ns)
{
    uint64_t deadline = sh_now(&node->env.clock) + timeout_ns;
    while (!holds(node) && sh_now(&node->env.clock) < deadline) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += 2000000;
        if (until.tv_nsec >= 1000000000) {
            until.tv_sec++;
            until.tv_nsec -= 1000000000;
        }
        sem_timedwait(&node->changed, &until);
    }
}

static bool may_serve(struct sh_node_run *node)
{
    return !sh_msg_is_fenced(node->msg) || atomic_load(&node->is_stopping);
}

bool sh_node_wait_ready(struct sh_node_run *node)
{
    while (!atomic_load(&node->is_ready) && !atomic_load(&node->is_stopping))
        sem_wait(&node->changed);
    /* Its first lease comes right behind the join; a cluster in trouble is not waited for. */
    wait_for(node, may_serve, LEASE_WAIT_NS);
    return !atomic_load(&node->is_stopping);
}

static bool left(struct sh_node_run *node)
{
    return atomic_load(&node->has_left);
}

static bool drained(struct sh_node_run *node)
{
    return sh_msg_drained(node->msg);
}

enum shoal_err sh_node_wait_stopped(struct sh_node_run *node)
{
    while (!atomic_load(&node->is_stopping))
        sem_wait(&node->changed);
    SH_INFO("node", "stopping");
    if (node->member) {
        sh_member_leave(node->member, on_left, node);
        sh_crew_wake(node->crew, 0);
        wait_for(node, left, node->options->failure_ns + UINT64_C(1000000000));
    }
    wait_for(node, drained, UINT64_C(1000000000));
    sh_crew_stop(node->crew);
    node->is_started = false;
    SH_INFO("node", "stopped");
    return (enum shoal_err)atomic_load(&node->stop_reason);
}

const char *sh_node_address(const struct sh_node_run *node)
{
    return node->address;
}

shoal_nid sh_node_nid(const struct sh_node_run *node)
{
    return sh_msg_nid(node->msg);
}

struct sh_caller sh_node_caller(const struct sh_node_run *node)
{
    return (struct sh_caller){.msg = node->msg, .crew = node->crew, .clock = &node->env.clock};
}
