#include "node/node.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "msg/tls.h"
#include "msg/wires.h"
#include "node/advertise.h"
#include "node/leased.h"
#include "node/node_int.h"
#include "node/steps.h"

#define REQUESTS_MAX (1u << 16)
#define PAYLOAD_BYTES_LEAST (16u << 20)
#define DETAIL_BYTES SH_NODE_DETAIL_BYTES

static bool is_superpeer(const struct sh_options *options)
{
    return strcmp(options->roles.items[0], "superpeer") == 0;
}

void sh_node_wake(void *arg)
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
    if (node->saves)
        sh_saves_link_event(node->saves, event);
    if (node->logs)
        sh_logs_link_event(node->logs, event);
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct sh_node_run *node = arg;
    sh_locks_view(node->locks, view);
    if (node->logs)
        sh_logs_view(node->logs, view);
    if (node->world)
        node->world->on_view(node->world->arg, view);
}

/* Of a simulated process the log has many. */
static void log_as(const struct sh_node_run *node, shoal_nid nid)
{
    if (!node->world)
        sh_log_node_set(nid.v);
}

/* The log is this node's from now on. */
static void joined_go_on(struct sh_node_run *node)
{
    char detail[DETAIL_BYTES] = "";
    enum shoal_err err =
        sh_node_logs_open(node, sh_msg_nid(node->msg), sh_member_cluster(node->member), detail);
    if (err) {
        SH_ERROR("node", "there can be no log of this peer's chunks", SH_ERR(err),
                 SH_TEXT("detail", detail));
        atomic_store(&node->stop_reason, (int)err);
        sh_node_stop(node);
        return;
    }
    sh_moves_joined(node->moves);
    sh_node_flag_set(node, &node->is_ready);
}

static void on_joined(void *arg, shoal_nid nid)
{
    struct sh_node_run *node = arg;
    log_as(node, nid);
    SH_INFO("node", "joined", SH_U64("nid", nid.v), SH_TEXT("address", node->address));
    if (node->identity)
        sh_identity_joined(node->identity, nid, sh_member_cluster(node->member));
    /* A new peer's log is named once its next process would know the name, too: else that one could not use it. */
    bool is_named = !node->identity || sh_identity_is_confirmed(node->identity);
    if (is_named || !node->logs || sh_logs_is_open(node->logs))
        joined_go_on(node);
}

static void on_confirmed(void *arg)
{
    struct sh_node_run *node = arg;
    bool goes_on = sh_msg_nid(node->msg).v && !atomic_load(&node->stop_reason);
    if (goes_on && !atomic_load(&node->is_ready))
        joined_go_on(node);
}

static bool is_confirmed(void *arg)
{
    const struct sh_node_run *node = arg;
    return sh_identity_is_confirmed(node->identity) && (!node->logs || sh_logs_is_open(node->logs));
}

static void on_failed(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    SH_ASSERT(err);
    if (err == SHOAL_EFENCED && node->identity)
        sh_identity_spent(node->identity);
    atomic_store(&node->stop_reason, (int)err);
    sh_node_stop(node);
}

static void on_stop(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    uint32_t back_ms = sh_get32(&in->payload);
    if (!sh_reader_done(&in->payload) || back_ms > SH_BACK_MS_MAX) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    if (back_ms && (!node->member || !node->identity)) {
        sh_msg_reply_error(
            in->msg, in->reply_to, in->type, node->member ? SHOAL_EINVAL : SHOAL_EROLE,
            node->member ? "without a data_dir the peer would be another node"
                         : "only peers are waited for: stop the superpeer without that");
        return;
    }
    SH_INFO("node", "told to stop", SH_U64("by", in->reply_to.nid.v),
            SH_U64("back_within_ms", back_ms));
    atomic_store(&node->back_ms, back_ms);
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

static void on_log_table(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    const struct sh_logs_told told = sh_logs_told(node->logs);
    sh_logs_table_answer(&told, in);
}

static void on_log_scrub(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    const struct sh_logs_told told = sh_logs_told(node->logs);
    sh_logs_scrub_answer(&told, in);
}

static void on_log_dump(void *arg, struct sh_msg_in *in)
{
    struct sh_node_run *node = arg;
    const struct sh_logs_told told = sh_logs_told(node->logs);
    sh_logs_dump_answer(&told, sh_now(&node->env.clock), in);
}

/* --- Making it ----------------------------------------------------------------------------- */

static enum shoal_err open_wire(struct sh_node_run *node, char *detail)
{
    const struct sh_options *options = node->options;
    if (node->world)
        return SHOAL_OK;
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
        .wake_transport = sh_node_wake,
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
    sh_msg_handler_set(node->msg, SH_NODE_LOG_TABLE, SH_MSG_INLINE, on_log_table, node);
    sh_msg_handler_set(node->msg, SH_NODE_LOG_SCRUB, SH_MSG_INLINE, on_log_scrub, node);
    sh_msg_handler_set(node->msg, SH_NODE_LOG_DUMP, SH_MSG_INLINE, on_log_dump, node);
    if (!is_superpeer(options))
        sh_msg_handler_set(node->msg, SH_NODE_PROMOTE, SH_MSG_INLINE, sh_node_on_promote, node);
    return err;
}

static enum shoal_err open_crew(struct sh_node_run *node)
{
    const struct sh_options *options = node->options;
    struct sh_crew_config config = {
        .world = node->world ? &node->world->crew : NULL,
        .name = "shoal",
        .threads = (unsigned)options->threads,
        .idle = {options->spin_ns, options->park_ns, options->silence_ns},
        .now_ns = node->env.clock.now_ns,
        .now_arg = node->env.clock.arg,
    };
    return sh_crew_create(&config, &node->crew);
}

/* The superpeer part has ended, and with it the node. */
static void on_over(void *arg, enum shoal_err err)
{
    struct sh_node_run *node = arg;
    atomic_store(&node->stop_reason, (int)err);
    sh_node_stop(node);
}

/* The folder, as a disk that wakes the transport. */
static enum shoal_err disk_begin(struct sh_node_run *node, struct sh_disk **disk_out)
{
    enum shoal_err err = sh_real_disk_create(node->options->data_dir, false, disk_out);
    return err ? err : sh_disk_wake_set(*disk_out, sh_node_wake, node);
}

/* The folder for what must survive a restart, if there is one. A promoted superpeer shares that of
 * its peer, which has taken it. */
static enum shoal_err open_disk(struct sh_node_run *node, char *detail)
{
    const char *folder = node->options->data_dir;
    if (folder[0] == '\0' || node->world)
        return SHOAL_OK;
    enum shoal_err err = disk_begin(node, &node->env.disk);
    if (err == SHOAL_OK && node->origin->folder)
        sh_real_disk_hand_on(node->origin->folder, node->env.disk);
    else if (err == SHOAL_OK && !node->is_inner)
        err = sh_real_disk_take(node->env.disk);
    if (err == SHOAL_EBUSY)
        snprintf(detail, DETAIL_BYTES,
                 "another node uses data_dir %.128s: stop it, or give this one a folder of its own",
                 folder);
    else if (err != SHOAL_OK)
        snprintf(detail, DETAIL_BYTES, "data_dir %s: %s", folder, shoal_err_text(err));
    return err;
}

static void on_superpeer_view(void *arg, const struct sh_view *view)
{
    struct sh_node_run *node = arg;
    node->world->on_view(node->world->arg, view);
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
        .is_promoted = node->is_inner,
        .on_serves = sh_node_serves,
        .on_over = on_over,
        .on_view = node->world ? on_superpeer_view : NULL,
        .arg = node,
    };
    return sh_superhost_create(&config, &node->superhost, detail);
}

static struct sh_traits traits_of(const struct sh_options *options)
{
    const char *const names[] = {options->machine, options->rack, options->network_switch};
    struct sh_traits traits = {
        .keeps_replicas = options->keeps_replicas && options->replicas,
        .keeps_chunks = options->replicas && strcmp(options->replicas_at, "self") == 0,
        .is_replicated = options->replicas && strcmp(options->replicas_at, "peers") == 0};
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        SH_ASSERT(strlen(names[i]) < SH_DOMAIN_NAME_MAX);
        memcpy(traits.domains[i], names[i], strlen(names[i]) + 1);
    }
    return traits;
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
        .traits = traits_of(options),
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
        .backup = node->backup,
        .helds = sh_chunks_helds(node->chunks),
        .holdings = sh_chunks_holdings(node->chunks),
        .clock = node->env.clock,
        .seed = sh_random64(&node->env.random),
        .wake = sh_node_wake,
        .arg = node,
    };
    enum shoal_err err = sh_locks_create(&config, &node->locks);
    if (err == SHOAL_OK)
        sh_chunks_remover_set(node->chunks, sh_locks_remove, node->locks);
    return err;
}

/* Whether chunks may leave: not while a graph is being made of them. */
static bool makes_no_graph(void *arg)
{
    struct sh_node_run *node = arg;
    return sh_graph_may_move(node->graph);
}

static bool traverses_graph(void *arg)
{
    struct sh_node_run *node = arg;
    return sh_graph_holds(node->graph);
}

/* The graph follows the chunks: those that are served here, and those that are another node's. Chunks that stand still are neither. */
static void on_holding(void *arg, shoal_cid first, shoal_cid last, enum sh_holding what)
{
    struct sh_node_run *node = arg;
    bool is_own = shoal_cid_creator(first).v == sh_msg_nid(node->msg).v;
    if (what == (is_own ? SH_HOLDING_PLAIN : SH_HOLDING_HELD))
        sh_graph_chunks_came(node->graph, first, last);
    else if (what == (is_own ? SH_HOLDING_AWAY : SH_HOLDING_PLAIN))
        sh_graph_chunks_left(node->graph, first, last);
}

static bool serves_chunk(void *arg, shoal_cid cid, shoal_cid *last_out)
{
    struct sh_node_run *node = arg;
    return sh_holdings_serves(sh_chunks_holdings(node->chunks), sh_msg_nid(node->msg), cid,
                              last_out);
}

static bool finds_chunks(void *arg)
{
    struct sh_node_run *node = arg;
    return !sh_moves_knows_chunks(node->moves);
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

/* The dump may have vertices, of chunks that this node has made. */
static void on_dump_loaded(void *arg)
{
    struct sh_node_run *node = arg;
    shoal_nid self = sh_msg_nid(node->msg);
    sh_graph_chunks_loaded(node->graph, shoal_cid_make(self, 0),
                           shoal_cid_make(self, SHOAL_LOCAL_ID_MAX));
}

static enum shoal_err open_dumps(struct sh_node_run *node)
{
    struct sh_dumps_config dumps = {.msg = node->msg,
                                    .store = node->store,
                                    .backup = node->backup,
                                    .chunks = node->chunks,
                                    .disk = node->env.disk,
                                    .clock = node->env.clock,
                                    .loaded = on_dump_loaded,
                                    .arg = node};
    const struct sh_saves_config saves = {.msg = node->msg,
                                          .store = node->store,
                                          .backup = node->backup,
                                          .chunks = node->chunks,
                                          .clock = node->env.clock};
    enum shoal_err err = sh_dumps_create(&dumps, &node->dumps);
    return err ? err : sh_saves_create(&saves, &node->saves);
}

static enum shoal_err open_store(struct sh_node_run *node, char *detail)
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
    return SHOAL_OK;
}

static enum shoal_err open_identity(struct sh_node_run *node, char *detail)
{
    if (!node->env.disk)
        return SHOAL_OK;
    enum shoal_err err =
        sh_identity_open(&node->env, node->options->cluster, node->store, &node->identity, detail);
    if (err == SHOAL_OK)
        sh_identity_confirmed_set(node->identity, on_confirmed, node);
    return err;
}

static enum shoal_err open_chunks(struct sh_node_run *node)
{
    const struct sh_options *options = node->options;
    struct sh_chunks_config served = {.msg = node->msg,
                                      .store = node->store,
                                      .backup = node->backup,
                                      .chunk_bytes_max = (uint32_t)options->chunk_bytes_max,
                                      .level = sh_logs_level(options),
                                      .clock = node->env.clock};
    enum shoal_err err = sh_chunks_create(&served, &node->chunks);
    return err == SHOAL_OK ? open_locks(node) : err;
}

static enum shoal_err open_room(struct sh_node_run *node)
{
    const struct sh_room_config room = {.msg = node->msg,
                                        .store = node->store,
                                        .moves = node->moves,
                                        .directory = node->directory,
                                        .clock = node->env.clock};
    return sh_room_create(&room, &node->room);
}

static enum shoal_err open_peer(struct sh_node_run *node, char *detail)
{
    enum shoal_err err = open_store(node, detail);
    if (err == SHOAL_OK)
        err = open_disk(node, detail);
    if (err == SHOAL_OK)
        err = open_identity(node, detail);
    if (err == SHOAL_OK)
        err = open_membership(node);
    if (err == SHOAL_OK)
        err = sh_node_backup_open(node, detail);
    if (err == SHOAL_OK && !node->promoted)
        err = sh_promoted_create(node->options, node->world, &node->promoted);
    if (err == SHOAL_OK)
        err = open_chunks(node);
    if (err != SHOAL_OK)
        return err;
    struct sh_moves_config moves = {
        .msg = node->msg,
        .store = node->store,
        .backup = node->backup,
        .chunks = node->chunks,
        .locks = node->locks,
        .directory = node->directory,
        .clock = node->env.clock,
        .may_move = makes_no_graph,
        .must_wait = traverses_graph,
        .may_drain = loads_no_dump,
        .are_former_over = sh_node_former_are_over,
        .are_former_lost = sh_node_former_are_lost,
        .is_opening = sh_node_is_opening,
        .is_filling = sh_node_is_filling,
        .arg = node,
    };
    err = sh_moves_create(&moves, &node->moves);
    if (err == SHOAL_OK)
        err = open_room(node);
    if (err != SHOAL_OK)
        return err;
    sh_logs_completed(node->logs, sh_node_completed, node);
    err = open_dumps(node);
    if (err != SHOAL_OK)
        return err;
    struct sh_graph_config graph = {
        .msg = node->msg,
        .store = node->store,
        .backup = node->backup,
        .clock = &node->env.clock,
        .wake = sh_node_wake,
        .may_load = is_not_drained,
        .serves = serves_chunk,
        .finds_out = finds_chunks,
        .level = sh_logs_level(node->options),
        .arg = node,
    };
    err = sh_graph_create(&graph, &node->graph);
    if (err != SHOAL_OK)
        return err;
    sh_holdings_watch(sh_chunks_holdings(node->chunks), node, on_holding);
    sh_node_leased_types_set(node->msg);
    return SHOAL_OK;
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
    if (node->saves)
        sh_crew_step_add(node->crew, 0, sh_saves_step(node->saves));
    if (node->store)
        sh_crew_step_add(node->crew, 0,
                         (struct sh_step){.name = "defrag", .run = defrag_run, .arg = node});
    if (node->identity)
        sh_crew_step_add(node->crew, 0, sh_identity_step(node->identity));
    if (node->logs)
        sh_crew_step_add(node->crew, 0, sh_logs_step(node->logs));
    if (node->logs && sh_logs_has_zones(node->logs))
        sh_crew_step_add(node->crew, 0, sh_logs_zones_step(node->logs));
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

enum shoal_err sh_node_create_from(const struct sh_options *options,
                                   const struct sh_node_world *world,
                                   const struct sh_node_origin *origin,
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
    if (!node) {
        sh_promoted_destroy(origin->promoted);
        return SHOAL_ENOMEM;
    }
    node->origin = origin;
    node->promoted = origin->promoted;
    node->options = options;
    atomic_init(&node->back_ms, (uint32_t)((options->back_within_ns + 999999) / 1000000));
    node->world = world;
    node->is_inner = origin->is_inner;
    node->env =
        world ? world->env : (struct sh_env){.clock = sh_real_clock(), .random = sh_real_random()};
    sem_init(&node->changed, 0, 0);
    enum shoal_err err = open_all(node, detail);
    if (err != SHOAL_OK) {
        sh_node_destroy(node);
        return err;
    }
    node->origin = NULL;
    *node_out = node;
    return SHOAL_OK;
}

enum shoal_err sh_node_create(const struct sh_options *options, struct sh_node_run **node_out,
                              char *detail)
{
    return sh_node_create_in(options, NULL, node_out, detail);
}

enum shoal_err sh_node_create_in(const struct sh_options *options,
                                 const struct sh_node_world *world, struct sh_node_run **node_out,
                                 char *detail)
{
    const struct sh_node_origin origin = {.is_inner = false};
    return sh_node_create_from(options, world, &origin, node_out, detail);
}

void sh_node_destroy(struct sh_node_run *node)
{
    if (!node)
        return;
    if (node->crew && node->is_started)
        sh_crew_stop(node->crew);
    sh_promoted_destroy(node->promoted);
    sh_logs_leave(node->logs);
    sh_room_destroy(node->room);
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
    sh_saves_destroy(node->saves);
    sh_chunks_destroy(node->chunks);
    sh_locks_destroy(node->locks);
    sh_identity_close(node->identity);
    sh_backup_destroy(node->backup);
    sh_logs_close(node->logs);
    sh_store_destroy(node->store);
    if (node->log_disk)
        sh_disk_wake_stop(node->log_disk);
    if (node->env.disk)
        sh_disk_wake_stop(node->env.disk);
    sh_crew_destroy(node->crew);
    if (node->log_disk)
        node->log_disk->ops->destroy(node->log_disk);
    if (node->env.disk)
        node->env.disk->ops->destroy(node->env.disk);
    if (node->env.wire)
        node->env.wire->ops->destroy(node->env.wire);
    sem_destroy(&node->changed);
    free(node);
}
