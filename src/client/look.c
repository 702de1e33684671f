/* Looking around: nodes, a node's ranges and memory; what programs of this house need. */
#include <stdio.h>
#include <stdlib.h>

#include "base/resident.h"
#include "client/client_int.h"
#include "cluster/proto.h"
#include "proto/chunks.h"

struct sh_caller sh_client_caller(shoal *store)
{
    SH_ASSERT(!store->is_embedded);
    return (struct sh_caller){
        .msg = store->msg, .crew = store->crew, .thread = 0, .clock = &store->env.clock};
}

uint64_t sh_client_deadline_ns(shoal *store)
{
    return sh_now(&store->env.clock) + store->timeout_ns;
}

/* A refresh that a thread waits for; the thread may give up before it ends. */
struct waited_refresh {
    struct sh_directory_op op;
    struct sh_waiter waiter;
    _Atomic unsigned owners; /* the thread and the refresh: the last one frees */
    enum shoal_err err;
    char detail[SH_DETAIL_BYTES];
};

static void release(struct waited_refresh *waited)
{
    /* acq_rel: whatever the other owner did with it comes before the free */
    if (atomic_fetch_sub_explicit(&waited->owners, 1, memory_order_acq_rel) == 1)
        free(waited);
}

static void on_refreshed(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct waited_refresh *waited = op->arg;
    waited->err = err;
    snprintf(waited->detail, sizeof waited->detail, "%s", err != SHOAL_OK ? detail : "");
    sh_waiter_complete(&waited->waiter);
    release(waited);
}

enum shoal_err sh_client_refresh(shoal *store, uint64_t deadline_ns)
{
    struct waited_refresh *waited = calloc(1, sizeof *waited);
    if (!waited)
        return SHOAL_ENOMEM;
    waited->op = (struct sh_directory_op){.done = on_refreshed, .arg = waited};
    atomic_init(&waited->owners, 2);
    sh_directory_refresh(store->directory, &waited->op);
    enum shoal_err err = SHOAL_ETIMEOUT;
    if (sh_crew_wait(store->crew, 0, &waited->waiter, deadline_ns)) {
        err = waited->err;
        snprintf(sh_client_detail(), SH_DETAIL_BYTES, "%s", waited->detail);
    } else {
        sh_client_detail_set("no node said in time who is in the cluster");
    }
    release(waited);
    return err;
}

static enum shoal_err peer_state(shoal *store, shoal_nid nid)
{
    struct sh_node node;
    enum shoal_err err = sh_directory_node(store->directory, nid, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_PEER)
        err = SHOAL_EROLE;
    if (err == SHOAL_OK && node.state != SH_NODE_UP)
        err = sh_node_may_return(&node) ? SHOAL_EFAILED : SHOAL_ENONODE;
    return err;
}

enum shoal_err sh_client_peer_check(shoal *store, shoal_nid nid)
{
    enum shoal_err err = peer_state(store, nid);
    if (err != SHOAL_OK && sh_client_refresh(store, sh_client_deadline_ns(store)) == SHOAL_OK)
        err = peer_state(store, nid);
    if (err != SHOAL_OK)
        sh_client_detail_set("node %u", nid.v);
    return err;
}

enum shoal_err sh_client_nodes(shoal *store, struct sh_node **nodes_out, size_t *count_out)
{
    enum shoal_err err = sh_client_refresh(store, sh_client_deadline_ns(store));
    if (err != SHOAL_OK)
        return err;
    for (size_t room = 64;; room *= 2) {
        struct sh_node *nodes = malloc(room * sizeof *nodes);
        if (!nodes)
            return SHOAL_ENOMEM;
        size_t count = sh_directory_nodes(store->directory, nodes, room);
        if (count <= room) {
            *nodes_out = nodes;
            *count_out = count;
            return SHOAL_OK;
        }
        free(nodes);
    }
}

struct shoal_node sh_client_node(const struct sh_node *node)
{
    struct shoal_node shown = {.nid = node->nid,
                               .role = (enum shoal_role)node->role,
                               .state = (enum shoal_node_state)node->state,
                               .keeps_replicas = node->traits.keeps_replicas,
                               .keeps_chunks = node->traits.keeps_chunks,
                               .is_disk_lost = node->is_disk_lost,
                               .back_ns = UINT64_C(1000000) * node->back_ms};
    _Static_assert(sizeof shown.address == sizeof node->address, "any address fits");
    _Static_assert(sizeof shown.rack == SH_DOMAIN_NAME_MAX, "any name fits");
    memcpy(shown.address, node->address, sizeof shown.address);
    memcpy(shown.machine, node->traits.domains[SH_DOMAIN_MACHINE], sizeof shown.machine);
    memcpy(shown.rack, node->traits.domains[SH_DOMAIN_RACK], sizeof shown.rack);
    memcpy(shown.network_switch, node->traits.domains[SH_DOMAIN_SWITCH],
           sizeof shown.network_switch);
    return shown;
}

enum shoal_err shoal_nodes(shoal *store, struct shoal_node *nodes, size_t room, size_t *count_out)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !count_out || (room > 0 && !nodes))
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded) {
        if (room > 0)
            nodes[0] = (struct shoal_node){.nid = {SH_EMBEDDED_NID},
                                           .role = SHOAL_PEER,
                                           .state = SHOAL_NODE_UP,
                                           .address = "in this process"};
        *count_out = 1;
        return SHOAL_OK;
    }
    struct sh_node *found;
    size_t count;
    err = sh_client_nodes(store, &found, &count);
    if (err != SHOAL_OK)
        return err;
    for (size_t i = 0; i < count && i < room; i++)
        nodes[i] = sh_client_node(&found[i]);
    free(found);
    *count_out = count;
    return SHOAL_OK;
}

enum shoal_err sh_client_peers(shoal *store, shoal_nid *peers, size_t room, size_t *count_out)
{
    struct sh_node *nodes;
    size_t node_count, count = 0;
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = sh_client_nodes(store, &nodes, &node_count);
    if (err != SHOAL_OK)
        return err;
    for (size_t i = 0; i < node_count; i++) {
        if (nodes[i].role != SH_ROLE_PEER || nodes[i].state != SH_NODE_UP)
            continue;
        if (count < room)
            peers[count] = nodes[i].nid;
        count++;
    }
    free(nodes);
    if (count == 0) {
        sh_client_detail_set("the cluster has no peer that is up");
        return SHOAL_ENONODE;
    }
    *count_out = count;
    return SHOAL_OK;
}

size_t sh_client_nodes_known(shoal *store)
{
    SH_ASSERT(!store->is_embedded);
    size_t room = sh_directory_nodes(store->directory, NULL, 0) + 16, count = 0;
    struct sh_node *nodes = malloc(room * sizeof *nodes);
    size_t there = nodes ? sh_directory_nodes(store->directory, nodes, room) : 0;
    for (size_t i = 0; i < there && i < room; i++)
        count += nodes[i].state == SH_NODE_UP;
    free(nodes);
    return count;
}

bool sh_client_awaits_peer(shoal *store, shoal_nid peer)
{
    SH_ASSERT(!store->is_embedded);
    return sh_directory_may_return(store->directory, peer, peer, true);
}

/* --- Ranges -------------------------------------------------------------------------------- */

typedef bool (*range_each)(void *arg, shoal_cid first, shoal_cid last);

static enum shoal_err ranges_embedded(shoal *store, range_each each, void *arg)
{
    sh_lid from = {0}, first, last;
    shoal_nid nid = {SH_EMBEDDED_NID};
    while (sh_store_range(store->store, from, &first, &last)) {
        if (!each(arg, shoal_cid_make(nid, first.v), shoal_cid_make(nid, last.v)))
            break;
        from.v = last.v + 1;
    }
    return SHOAL_OK;
}

/* A node tells its own chunks first. */
static uint64_t place_of(shoal_nid node, shoal_cid cid)
{
    return shoal_cid_creator(cid).v == node.v ? shoal_cid_local(cid) : cid.v;
}

/* Asks for the ranges from *from_inout on and moves it behind the last; *more_out: go on. */
static enum shoal_err ranges_page(shoal *store, shoal_nid node, uint64_t *from_inout,
                                  range_each each, void *arg, bool *more_out)
{
    uint8_t request[8];
    uint8_t *answer;
    size_t size;
    sh_store64(request, *from_inout);
    struct sh_caller caller = sh_client_caller(store);
    enum shoal_err err =
        sh_call(&caller, node, SH_CHUNKS_RANGES, sh_bytes_make(request, sizeof request),
                store->timeout_ns, &answer, &size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    bool goes_on = size > 0;
    while (goes_on && sh_reader_left(&r) > 0) {
        shoal_cid first = {sh_get64(&r)}, last = {sh_get64(&r)};
        if (!sh_reader_ok(&r) || last.v < first.v ||
            place_of(node, first) < place_of(node, (shoal_cid){*from_inout}) ||
            shoal_cid_creator(last).v != shoal_cid_creator(first).v ||
            shoal_cid_creator(first).v == 0 || shoal_cid_creator(first).v > SH_PEER_NID_MAX) {
            err = SHOAL_EPROTO;
            break;
        }
        goes_on = each(arg, first, last);
        *from_inout = last.v + 1;
    }
    free(answer);
    *more_out = goes_on && size == (size_t)SH_CHUNKS_RANGES_MAX * 16;
    return err;
}

enum shoal_err shoal_ranges(shoal *store, shoal_nid node, range_each each, void *arg)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !each)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded)
        return node.v == 0 || node.v == SH_EMBEDDED_NID ? ranges_embedded(store, each, arg)
                                                        : SHOAL_ENONODE;
    err = sh_client_peer_check(store, node);
    uint64_t from = shoal_cid_make(node, 0).v;
    bool more = true;
    while (err == SHOAL_OK && more)
        err = ranges_page(store, node, &from, each, arg, &more);
    return err;
}

/* --- Status -------------------------------------------------------------------------------- */

static enum shoal_err status_embedded(shoal *store, struct shoal_status *status_out)
{
    struct sh_store_status s;
    sh_store_status_get(store->store, &s);
    *status_out = (struct shoal_status){
        .chunks = s.chunks,
        .payload_bytes = s.payload_bytes,
        .table_bytes = s.table_bytes,
        .block_bytes = s.block_bytes,
        .free_bytes = s.free_bytes,
        .other_bytes = s.other_bytes,
        .used_bytes = s.used_bytes,
        .bytes_max = s.bytes_max,
        .creates = s.creates,
        .removes = s.removes,
        .gets = s.gets,
        .puts = s.puts,
        .resident_bytes = sh_resident_bytes(),
    };
    return SHOAL_OK;
}

static enum shoal_err status_read(struct sh_bytes answer, struct shoal_status *status_out)
{
    struct sh_reader r = sh_reader_make(answer);
    struct shoal_status s;
    uint64_t is_fenced, is_drained;
    uint64_t *const fields[] = {&s.chunks,         &s.payload_bytes, &s.table_bytes, &s.block_bytes,
                                &s.free_bytes,     &s.other_bytes,   &s.used_bytes,  &s.bytes_max,
                                &s.creates,        &s.removes,       &s.gets,        &s.puts,
                                &s.resident_bytes, &s.misdirected,   &s.fences,      &is_fenced,
                                &is_drained};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] = sh_get64(&r);
    if (!sh_reader_done(&r) || is_fenced > 1 || is_drained > 1)
        return SHOAL_EPROTO;
    s.is_fenced = is_fenced;
    s.is_drained = is_drained;
    *status_out = s;
    return SHOAL_OK;
}

enum shoal_err shoal_status(shoal *store, shoal_nid node, struct shoal_status *status_out)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !status_out)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded)
        return node.v == 0 || node.v == SH_EMBEDDED_NID ? status_embedded(store, status_out)
                                                        : SHOAL_ENONODE;
    err = sh_client_peer_check(store, node);
    if (err != SHOAL_OK)
        return err;
    uint8_t *answer;
    size_t size;
    struct sh_caller caller = sh_client_caller(store);
    err = sh_call(&caller, node, SH_CHUNKS_STATUS, (struct sh_bytes){NULL, 0}, store->timeout_ns,
                  &answer, &size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    err = status_read(sh_bytes_make(answer, size), status_out);
    free(answer);
    return err;
}

/* Asks any node something. */
static enum shoal_err ask_node(shoal *store, shoal_nid nid, sh_msg_type type,
                               struct sh_bytes payload, uint8_t **answer_out, size_t *size_out)
{
    struct sh_caller caller = sh_client_caller(store);
    struct sh_node node;
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = sh_directory_node(store->directory, nid, &node);
    if (err != SHOAL_OK)
        return err;
    return sh_call(&caller, nid, type, payload, store->timeout_ns, answer_out, size_out,
                   sh_client_detail());
}

/* Tells a node something that it answers with nothing. */
static enum shoal_err tell(shoal *store, shoal_nid nid, sh_msg_type type, struct sh_bytes payload)
{
    return ask_node(store, nid, type, payload, NULL, NULL);
}

enum shoal_err sh_client_steps(shoal *store, shoal_nid nid, struct sh_steps_row *rows_out,
                               size_t *count_out)
{
    uint8_t *answer;
    size_t size;
    enum shoal_err err =
        ask_node(store, nid, SH_NODE_STEPS, (struct sh_bytes){NULL, 0}, &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_steps_get(&r, rows_out, count_out))
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

enum shoal_err sh_client_log_table(shoal *store, shoal_nid nid, enum sh_log_table_kind kind,
                                   uint64_t cursor, struct sh_log_table *table_out)
{
    uint8_t ask[9], *answer;
    size_t size;
    struct sh_writer w = sh_writer_make(ask, sizeof ask);
    sh_put8(&w, (uint8_t)kind);
    sh_put64(&w, cursor);
    enum shoal_err err =
        ask_node(store, nid, SH_NODE_LOG_TABLE, sh_bytes_make(ask, sizeof ask), &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_log_table_get(&r, table_out))
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

enum shoal_err sh_client_log_scrub(shoal *store, shoal_nid nid, uint64_t zone, uint64_t rate,
                                   uint64_t *number_out)
{
    uint8_t ask[16], *answer;
    size_t size;
    struct sh_writer w = sh_writer_make(ask, sizeof ask);
    sh_put64(&w, zone);
    sh_put64(&w, rate);
    enum shoal_err err =
        ask_node(store, nid, SH_NODE_LOG_SCRUB, sh_bytes_make(ask, sizeof ask), &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    uint64_t number = sh_get64(&r);
    if (sh_reader_done(&r))
        *number_out = number;
    else
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

enum shoal_err sh_client_log_dump(shoal *store, shoal_nid nid, struct sh_log_dump_ask *ask,
                                  struct sh_log_table *table_out)
{
    uint8_t bytes[SH_LOG_DUMP_ASK_BYTES], *answer;
    size_t size;
    uint64_t dump;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_log_dump_ask_put(&w, ask);
    enum shoal_err err =
        ask_node(store, nid, SH_NODE_LOG_DUMP, sh_bytes_make(bytes, sizeof bytes), &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_log_dump_get(&r, &dump, table_out) || (ask->dump && dump != ask->dump))
        err = SHOAL_EPROTO;
    else
        ask->dump = dump;
    free(answer);
    return err;
}

enum shoal_err sh_client_stop_node(shoal *store, shoal_nid nid, uint32_t back_ms)
{
    uint8_t bytes[4];
    sh_store32(bytes, back_ms);
    return tell(store, nid, SH_NODE_STOP, sh_bytes_make(bytes, sizeof bytes));
}

enum shoal_err sh_client_log_levels(shoal *store, shoal_nid nid, const char *levels)
{
    return tell(store, nid, SH_NODE_LOG_LEVELS, sh_bytes_text(levels));
}

enum shoal_err sh_client_promote(shoal *store, shoal_nid peer, char *address_out)
{
    struct sh_caller caller = sh_client_caller(store);
    struct sh_node node;
    uint8_t *answer;
    size_t size;
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = sh_directory_node(store->directory, peer, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_PEER) {
        sh_client_detail_set("node %u is a superpeer already", (unsigned)peer.v);
        return SHOAL_EROLE;
    }
    if (err == SHOAL_OK)
        err = sh_call(&caller, peer, SH_NODE_PROMOTE, (struct sh_bytes){NULL, 0}, store->timeout_ns,
                      &answer, &size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    struct sh_bytes address = sh_get_text(&r);
    if (!sh_reader_done(&r) || !sh_address_is_valid(address)) {
        err = SHOAL_EPROTO;
    } else {
        memcpy(address_out, address.at, address.size);
        address_out[address.size] = 0;
    }
    free(answer);
    return err;
}

/* A superpeer that is up: not that one, if there is another. */
static shoal_nid superpeer_but(shoal *store, shoal_nid but)
{
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        struct sh_node node;
        if (i != but.v && !sh_directory_node(store->directory, (shoal_nid){i}, &node) &&
            node.state == SH_NODE_UP)
            return node.nid;
    }
    return but;
}

enum shoal_err sh_client_demote(shoal *store, shoal_nid superpeer)
{
    struct sh_node node;
    struct shoal_node first;
    size_t count;
    uint8_t bytes[2];
    /* With a fresh view: who was up a moment ago may be about to leave. */
    enum shoal_err err = shoal_nodes(store, &first, 1, &count);
    if (err == SHOAL_OK)
        err = sh_directory_node(store->directory, superpeer, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_SUPERPEER) {
        sh_client_detail_set("node %u is a peer", (unsigned)superpeer.v);
        err = SHOAL_EROLE;
    }
    if (err != SHOAL_OK)
        return err;
    sh_store16(bytes, superpeer.v);
    shoal_nid asked = superpeer_but(store, superpeer);
    err = tell(store, asked, SH_CLUSTER_DISMISS, sh_bytes_make(bytes, sizeof bytes));
    if (err != SHOAL_OK && !*shoal_error_detail())
        sh_client_detail_set("superpeer %u was asked", (unsigned)asked.v);
    return err == SHOAL_ENOTYPE ? SHOAL_EROLE : err;
}

enum shoal_err sh_client_disk_lost(shoal *store, shoal_nid nid)
{
    struct shoal_node first;
    size_t count;
    uint8_t bytes[2];
    enum shoal_err err = shoal_nodes(store, &first, 1, &count); /* with a fresh view */
    if (!err && !sh_nid_is_peer(nid) && (!nid.v || nid.v > SH_SUPERPEERS_MAX))
        err = SHOAL_ENONODE;
    if (err != SHOAL_OK)
        return err;
    sh_store16(bytes, nid.v);
    shoal_nid asked = superpeer_but(store, nid);
    err = tell(store, asked, SH_CLUSTER_LOST, sh_bytes_make(bytes, sizeof bytes));
    if (err != SHOAL_OK && !*shoal_error_detail())
        sh_client_detail_set("superpeer %u was asked", (unsigned)asked.v);
    return err == SHOAL_ENOTYPE ? SHOAL_EROLE : err;
}

enum shoal_err sh_client_forget(shoal *store, shoal_nid peer)
{
    struct shoal_node first;
    size_t count;
    uint8_t bytes[SH_FORGET_BYTES];
    enum shoal_err err = shoal_nodes(store, &first, 1, &count); /* with a fresh view */
    if (err != SHOAL_OK)
        return err;
    if (!sh_nid_is_peer(peer)) {
        sh_client_detail_set("only peers are forgotten: shoal node demote takes a superpeer out");
        return SHOAL_EROLE;
    }
    sh_store16(bytes, peer.v);
    return tell(store, superpeer_but(store, SHOAL_NID_NONE), SH_CLUSTER_FORGET,
                sh_bytes_make(bytes, sizeof bytes));
}
