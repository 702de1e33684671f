/* One order of changes, clients' requests on their way to it, and what is on its way back.
 *
 *   zoo_a... --> ops --process--> states: by node, in order
 *   callbacks <-- items, in order <--'      '--- watches of all clients
 */
#include "sim/zookeeper_model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zookeeper/zookeeper.h>

#include "base/assert.h"
#include "sim/world_int.h"

#define MS UINT64_C(1000000)
#define NODES 4   /* /shoal, the cluster's folder, registry, leader */
#define STATES 64 /* of a node that are remembered */
#define BEHIND_MAX 16
#define SESSIONS_MAX 4096
#define LEADERS_MAX 4096

enum kind { GET, CREATE, SET, SYNC, SESSION, CHANGED };

struct state {
    uint64_t zxid;
    bool exists;
    uint8_t *bytes;
    size_t size;
    struct Stat stat;
};

struct znode {
    char path[128];
    struct state states[STATES]; /* the last of them is number count - 1 */
    uint64_t count;
};

/* A request on its way, and what answers it on its way back. */
struct item {
    struct item *next;
    enum kind kind;
    int rc; /* SESSION: the state */
    struct znode *znode;
    uint8_t *bytes;
    size_t size;
    int version;
    bool is_watching, is_ephemeral;
    watcher_fn watcher;
    void *watcher_context;
    data_completion_t on_data;
    stat_completion_t on_stat;
    string_completion_t on_text;
    const void *question;
    struct Stat stat;
};

struct queue {
    struct item *first, **end;
    uint64_t last_ns; /* when the last one is through */
};

struct watch {
    bool is_set;
    uint64_t zxid;
    watcher_fn fn;
    void *context;
};

struct session {
    int64_t id; /* 0: none */
    unsigned node;
    uint64_t timeout_ns, heard_ns;
    bool is_over;
};

struct _zhandle {
    struct _zhandle *next;
    uint64_t id;
    struct sh_zookeeper_model *model;
    unsigned node;
    clientid_t client;
    struct session *session; /* NULL: not connected yet */
    uint64_t timeout_ns;
    bool is_connected, is_expired, is_dead; /* expired: the client knows */
    watcher_fn fn;
    void *context;
    uint64_t seen; /* the last change that its server has */
    struct watch watches[NODES];
    struct queue ops, items;
};

struct sh_zookeeper_model {
    struct sh_world *world;
    struct sh_prng prng;
    bool is_calm;
    uint64_t zxid, handles_made, stalled_until_ns;
    struct znode znodes[NODES];
    unsigned znodes_count;
    struct session sessions[SESSIONS_MAX];
    unsigned sessions_count;
    struct _zhandle *handles;
    struct {
        int64_t session;
        uint64_t from_ns, to_ns; /* to 0: still */
    } leaders[LEADERS_MAX];
    unsigned leaders_count;
};

static struct sh_zookeeper_model *model_now;

static uint64_t below(struct sh_zookeeper_model *model, uint64_t limit)
{
    return sh_prng_below(&model->prng, limit);
}

static uint64_t now_of(const struct sh_zookeeper_model *model)
{
    return sh_sim_now(model->world);
}

static uint64_t delay_ns(struct sh_zookeeper_model *model)
{
    uint64_t most = !model->is_calm && below(model, 50) == 0 ? 100 * MS : 2 * MS;
    return MS / 20 + below(model, most);
}

static void queue_init(struct queue *queue)
{
    queue->end = &queue->first;
}

static void queue_put(struct queue *queue, struct item *item)
{
    item->next = NULL;
    *queue->end = item;
    queue->end = &item->next;
}

static struct item *queue_take(struct queue *queue)
{
    struct item *item = queue->first;
    if (!item)
        return NULL;
    queue->first = item->next;
    if (!queue->first)
        queue->end = &queue->first;
    return item;
}

static struct _zhandle *handle_of(struct sh_zookeeper_model *model, uint64_t id)
{
    struct _zhandle *handle = model->handles;
    while (handle && handle->id != id)
        handle = handle->next;
    return handle;
}

/* --- What comes back --------------------------------------------------------------------------- */

/* Calls back. The handle may begin requests meanwhile, and is not closed. */
static void item_call(struct _zhandle *handle, struct item *item)
{
    const struct Stat *stat = item->rc == ZOK ? &item->stat : NULL;
    if (item->kind == SESSION || item->kind == CHANGED)
        item->watcher(handle, item->kind == SESSION ? ZOO_SESSION_EVENT : ZOO_CHANGED_EVENT,
                      item->kind == SESSION ? item->rc : ZOO_CONNECTED_STATE, "",
                      item->watcher_context);
    else if (item->on_data)
        item->on_data(item->rc, (const char *)item->bytes, stat ? (int)item->size : -1, stat,
                      item->question);
    else if (item->on_stat)
        item->on_stat(item->rc, stat, item->question);
    else
        item->on_text(item->rc, NULL, item->question);
    free(item->bytes);
    free(item);
}

static void on_deliver(void *arg, uint64_t id, uint64_t unused)
{
    struct sh_zookeeper_model *model = arg;
    struct _zhandle *handle = handle_of(model, id);
    (void)unused;
    struct item *item = handle && !handle->is_dead ? queue_take(&handle->items) : NULL;
    if (!item)
        return;
    if (item->kind == SESSION)
        handle->is_expired = item->rc == ZOO_EXPIRED_SESSION_STATE;
    sh_world_trace(model->world, handle->node, "zookeeper tells(kind, rc)", item->kind,
                   (uint64_t)(int64_t)item->rc, sh_bytes_make(item->bytes, item->size));
    item_call(handle, item);
}

static void at_next(struct _zhandle *handle, struct queue *queue, uint64_t from_ns,
                    sh_world_event event)
{
    uint64_t at_ns = from_ns + delay_ns(handle->model);
    if (at_ns <= queue->last_ns)
        at_ns = queue->last_ns + 1;
    queue->last_ns = at_ns;
    sh_sim_at(handle->model->world, at_ns, event, handle->model, handle->id, 0);
}

static void deliver(struct _zhandle *handle, struct item *item)
{
    queue_put(&handle->items, item);
    at_next(handle, &handle->items, now_of(handle->model), on_deliver);
}

static void told(struct _zhandle *handle, enum kind kind, int rc, watcher_fn fn, void *context)
{
    struct item *item = sh_sim_alloc(sizeof *item);
    *item = (struct item){.kind = kind, .rc = rc, .watcher = fn, .watcher_context = context};
    deliver(handle, item);
}

/* --- States ------------------------------------------------------------------------------------ */

static struct state *state_at(struct znode *znode, uint64_t zxid)
{
    struct state *found = &znode->states[0];
    uint64_t first = znode->count > STATES ? znode->count - STATES : 0;
    for (uint64_t i = first; i < znode->count; i++) {
        struct state *state = &znode->states[i % STATES];
        if (i == first || state->zxid <= zxid)
            found = state;
    }
    return found;
}

static struct state *last_of(struct znode *znode)
{
    return &znode->states[(znode->count - 1) % STATES];
}

/* A client hears of changes that its server has before it reads them. */
static void watches_fire(struct _zhandle *handle)
{
    struct sh_zookeeper_model *model = handle->model;
    for (unsigned i = 0; handle->is_connected && i < model->znodes_count; i++) {
        struct watch *watch = &handle->watches[i];
        if (!watch->is_set || state_at(&model->znodes[i], handle->seen)->zxid <= watch->zxid)
            continue;
        watch->is_set = false;
        told(handle, CHANGED, 0, watch->fn, watch->context);
    }
}

static void seen_set(struct _zhandle *handle, uint64_t zxid)
{
    if (zxid > handle->seen)
        handle->seen = zxid;
    watches_fire(handle);
}

static void on_spread(void *arg, uint64_t id, uint64_t zxid)
{
    struct _zhandle *handle = handle_of(arg, id);
    if (handle && handle->is_connected)
        seen_set(handle, zxid);
}

static void leader_note(struct sh_zookeeper_model *model, const struct state *state)
{
    unsigned count = model->leaders_count;
    if (count && !model->leaders[count - 1].to_ns)
        model->leaders[count - 1].to_ns = now_of(model);
    if (!state->exists)
        return;
    SH_ASSERT(count < LEADERS_MAX);
    model->leaders[count].session = state->stat.ephemeralOwner;
    model->leaders[count].from_ns = now_of(model);
    model->leaders[count].to_ns = 0;
    model->leaders_count++;
}

/* The next state of a node; bytes NULL: it is gone. */
static struct state *change(struct sh_zookeeper_model *model, struct znode *znode,
                            const uint8_t *bytes, size_t size, int64_t owner)
{
    struct state before = *last_of(znode);
    struct state *state = &znode->states[znode->count % STATES];
    if (znode->count >= STATES)
        free(state->bytes);
    znode->count++;
    *state = (struct state){.zxid = ++model->zxid, .exists = bytes != NULL, .size = size};
    if (bytes) {
        state->bytes = sh_sim_alloc(size ? size : 1);
        memcpy(state->bytes, bytes, size);
        state->stat.czxid = before.exists ? before.stat.czxid : (int64_t)model->zxid;
        state->stat.mzxid = (int64_t)model->zxid;
        state->stat.version = before.exists ? before.stat.version + 1 : 0;
        state->stat.ephemeralOwner = before.exists ? before.stat.ephemeralOwner : owner;
    }
    size_t length = strlen(znode->path);
    if (length > 7 && strcmp(znode->path + length - 7, "/leader") == 0)
        leader_note(model, state);
    for (struct _zhandle *handle = model->handles; handle; handle = handle->next)
        sh_sim_at(model->world, now_of(model) + delay_ns(model), on_spread, model, handle->id,
                  model->zxid);
    return state;
}

static struct znode *znode_of(struct sh_zookeeper_model *model, const char *path)
{
    for (unsigned i = 0; i < model->znodes_count; i++) {
        if (strcmp(model->znodes[i].path, path) == 0)
            return &model->znodes[i];
    }
    SH_ASSERT(model->znodes_count < NODES);
    struct znode *znode = &model->znodes[model->znodes_count++];
    int size = snprintf(znode->path, sizeof znode->path, "%s", path);
    SH_ASSERT(size > 0 && (size_t)size < sizeof znode->path);
    znode->count = 1; /* it never was there */
    return znode;
}

static bool has_parent(struct sh_zookeeper_model *model, const char *path)
{
    char parent[128];
    (void)snprintf(parent, sizeof parent, "%s", path);
    *strrchr(parent, '/') = 0;
    return !*parent || last_of(znode_of(model, parent))->exists;
}

/* --- Sessions ---------------------------------------------------------------------------------- */

static void session_end(struct sh_zookeeper_model *model, struct session *session)
{
    session->is_over = true;
    for (unsigned i = 0; i < model->znodes_count; i++) {
        struct state *state = last_of(&model->znodes[i]);
        if (state->exists && state->stat.ephemeralOwner == session->id)
            (void)change(model, &model->znodes[i], NULL, 0, 0);
    }
}

static void process(struct _zhandle *handle, struct item *op);

static void loss_set(struct item *item)
{
    item->rc = ZCONNECTIONLOSS;
    free(item->bytes);
    item->bytes = NULL;
    item->size = 0;
}

static void on_connect(void *arg, uint64_t id, uint64_t unused);

/* What is under way may have been done, and is answered with an error. */
static void disconnect(struct _zhandle *handle, uint64_t for_ns)
{
    struct sh_zookeeper_model *model = handle->model;
    struct item *op;
    if (!handle->is_connected)
        return;
    while ((op = queue_take(&handle->ops))) {
        if (below(model, 2))
            process(handle, op);
        else
            deliver(handle, op);
    }
    handle->is_connected = false;
    for (struct item *item = handle->items.first; item; item = item->next) {
        if (item->kind != SESSION && item->kind != CHANGED)
            loss_set(item);
    }
    told(handle, SESSION, ZOO_CONNECTING_STATE, handle->fn, handle->context);
    sh_sim_at(model->world, now_of(model) + for_ns, on_connect, model, handle->id, 0);
}

static void on_connect(void *arg, uint64_t id, uint64_t unused)
{
    struct sh_zookeeper_model *model = arg;
    struct _zhandle *handle = handle_of(model, id);
    (void)unused;
    if (!handle || handle->is_dead || handle->is_connected)
        return;
    if (sh_world_is_paused(model->world, handle->node)) {
        sh_sim_at(model->world, now_of(model) + 20 * MS, on_connect, model, id, 0);
        return;
    }
    if (!handle->session) {
        SH_ASSERT(model->sessions_count < SESSIONS_MAX);
        handle->session = &model->sessions[model->sessions_count++];
        *handle->session = (struct session){.id = (int64_t)model->sessions_count,
                                            .node = handle->node,
                                            .timeout_ns = handle->timeout_ns};
        handle->client.client_id = handle->session->id;
    }
    if (handle->session->is_over) {
        told(handle, SESSION, ZOO_EXPIRED_SESSION_STATE, handle->fn, handle->context);
        return;
    }
    handle->session->heard_ns = now_of(model);
    handle->is_connected = true;
    told(handle, SESSION, ZOO_CONNECTED_STATE, handle->fn, handle->context);
    watches_fire(handle);
}

/* Each tenth of a second: who is heard, whose time is over, and what goes wrong. */
static void on_weather(void *arg, uint64_t a, uint64_t b)
{
    struct sh_zookeeper_model *model = arg;
    uint64_t now_ns = now_of(model);
    (void)a;
    (void)b;
    for (struct _zhandle *handle = model->handles; handle; handle = handle->next) {
        if (!handle->is_connected || sh_world_is_paused(model->world, handle->node))
            continue;
        handle->session->heard_ns = now_ns;
        if (!model->is_calm && below(model, 60) == 0)
            disconnect(handle, below(model, 2) ? below(model, 50 * MS) : below(model, 3000 * MS));
    }
    for (unsigned i = 0; i < model->sessions_count; i++) {
        struct session *session = &model->sessions[i];
        uint64_t late_ns = model->is_calm ? 0 : below(model, session->timeout_ns);
        bool is_early = !model->is_calm && below(model, 300) == 0;
        if (session->is_over ||
            (!is_early && now_ns < session->heard_ns + session->timeout_ns + late_ns))
            continue;
        session_end(model, session);
        for (struct _zhandle *handle = model->handles; handle; handle = handle->next) {
            if (handle->session == session)
                disconnect(handle, below(model, 100 * MS));
        }
    }
    if (!model->is_calm && below(model, 80) == 0)
        model->stalled_until_ns = now_ns + below(model, 1500 * MS);
    sh_sim_at(model->world, now_ns + 100 * MS, on_weather, model, 0, 0);
}

/* --- Requests ---------------------------------------------------------------------------------- */

static void get(struct _zhandle *handle, struct item *op)
{
    struct sh_zookeeper_model *model = handle->model;
    uint64_t behind = !model->is_calm && below(model, 3) == 0 ? below(model, BEHIND_MAX) : 0;
    if (model->zxid > behind)
        seen_set(handle, model->zxid - behind);
    const struct state *state = state_at(op->znode, handle->seen);
    op->rc = state->exists ? ZOK : ZNONODE;
    if (state->exists) {
        op->size = state->size;
        op->bytes = sh_sim_alloc(state->size ? state->size : 1);
        memcpy(op->bytes, state->bytes, state->size);
        op->stat = state->stat;
        if (op->is_watching)
            handle->watches[op->znode - model->znodes] =
                (struct watch){true, handle->seen, op->watcher, op->watcher_context};
    }
}

static void create(struct _zhandle *handle, struct item *op)
{
    struct sh_zookeeper_model *model = handle->model;
    if (last_of(op->znode)->exists)
        op->rc = ZNODEEXISTS;
    else if (!has_parent(model, op->znode->path))
        op->rc = ZNONODE;
    else
        (void)change(model, op->znode, op->bytes, op->size,
                     op->is_ephemeral ? handle->session->id : 0);
    seen_set(handle, model->zxid);
}

static void set(struct _zhandle *handle, struct item *op)
{
    struct sh_zookeeper_model *model = handle->model;
    const struct state *state = last_of(op->znode);
    if (!state->exists)
        op->rc = ZNONODE;
    else if (op->version != -1 && op->version != state->stat.version)
        op->rc = ZBADVERSION;
    else
        op->stat = change(model, op->znode, op->bytes, op->size, 0)->stat;
    seen_set(handle, model->zxid);
}

static void process(struct _zhandle *handle, struct item *op)
{
    op->rc = ZOK;
    if (handle->session->is_over)
        op->rc = ZSESSIONEXPIRED;
    else if (op->kind == GET)
        get(handle, op);
    else if (op->kind == CREATE)
        create(handle, op);
    else if (op->kind == SET)
        set(handle, op);
    else
        seen_set(handle, handle->model->zxid);
    deliver(handle, op);
}

static void on_process(void *arg, uint64_t id, uint64_t unused)
{
    struct sh_zookeeper_model *model = arg;
    struct _zhandle *handle = handle_of(model, id);
    (void)unused;
    struct item *op = handle && handle->is_connected ? queue_take(&handle->ops) : NULL;
    if (op)
        process(handle, op);
}

static int ask(struct _zhandle *handle, const struct item *op, const char *bytes, int size)
{
    struct sh_zookeeper_model *model = handle->model;
    if (handle->is_expired || handle->is_dead)
        return ZINVALIDSTATE;
    struct item *copy = sh_sim_alloc(sizeof *copy);
    *copy = *op;
    if (bytes) {
        copy->size = (size_t)size;
        copy->bytes = sh_sim_alloc(size ? (size_t)size : 1);
        memcpy(copy->bytes, bytes, (size_t)size);
    }
    if (!handle->is_connected) {
        loss_set(copy);
        deliver(handle, copy);
        return ZOK;
    }
    queue_put(&handle->ops, copy);
    uint64_t from_ns = now_of(model);
    if (from_ns < model->stalled_until_ns)
        from_ns = model->stalled_until_ns;
    at_next(handle, &handle->ops, from_ns, on_process);
    return ZOK;
}

/* --- What superpeer/zookeeper.c calls ----------------------------------------------------------- */

void zoo_set_debug_level(ZooLogLevel logLevel)
{
    (void)logLevel;
}

const char *zerror(int c)
{
    return c == ZOK ? "ok" : "an error of the model";
}

zhandle_t *zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout,
                           const clientid_t *clientid, void *context, int flags,
                           log_callback_fn log_callback)
{
    (void)clientid;
    (void)flags;
    (void)log_callback;
    struct sh_zookeeper_model *model = model_now;
    unsigned node;
    SH_ASSERT(model && sscanf(host, "node%u", &node) == 1);
    struct _zhandle *handle = sh_sim_alloc(sizeof *handle);
    *handle = (struct _zhandle){.id = ++model->handles_made,
                                .model = model,
                                .node = node,
                                .timeout_ns = (uint64_t)recv_timeout * MS,
                                .fn = fn,
                                .context = context};
    queue_init(&handle->ops);
    queue_init(&handle->items);
    struct _zhandle **end = &model->handles;
    while (*end)
        end = &(*end)->next;
    *end = handle;
    sh_sim_at(model->world, now_of(model) + delay_ns(model), on_connect, model, handle->id, 0);
    return handle;
}

/* Answers what is under way with an error. */
static void drop_all(struct _zhandle *handle)
{
    struct item *item;
    handle->is_dead = true;
    handle->is_connected = false;
    while ((item = queue_take(&handle->items)) || (item = queue_take(&handle->ops))) {
        item->rc = ZCLOSING;
        if (item->kind != SESSION && item->kind != CHANGED)
            item_call(handle, item);
        else
            free(item);
    }
}

int zookeeper_close(zhandle_t *zh)
{
    struct _zhandle **at = &zh->model->handles;
    while (*at != zh)
        at = &(*at)->next;
    *at = zh->next;
    if (zh->is_connected && !zh->session->is_over)
        session_end(zh->model, zh->session);
    drop_all(zh);
    free(zh);
    return ZOK;
}

const clientid_t *zoo_client_id(zhandle_t *zh)
{
    return &zh->client;
}

int zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcherCtx,
              data_completion_t completion, const void *data)
{
    struct item op = {.kind = GET,
                      .znode = znode_of(zh->model, path),
                      .is_watching = watcher,
                      .watcher = watcher,
                      .watcher_context = watcherCtx,
                      .on_data = completion,
                      .question = data};
    return ask(zh, &op, NULL, 0);
}

int zoo_aget(zhandle_t *zh, const char *path, int watch, data_completion_t completion,
             const void *data)
{
    SH_ASSERT(!watch);
    return zoo_awget(zh, path, NULL, NULL, completion, data);
}

int zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data)
{
    struct item op = {
        .kind = SYNC, .znode = znode_of(zh->model, path), .on_text = completion, .question = data};
    return ask(zh, &op, NULL, 0);
}

int zoo_acreate(zhandle_t *zh, const char *path, const char *value, int valuelen,
                const struct ACL_vector *acl, int mode, string_completion_t completion,
                const void *data)
{
    (void)acl;
    struct item op = {.kind = CREATE,
                      .znode = znode_of(zh->model, path),
                      .is_ephemeral = mode == ZOO_EPHEMERAL,
                      .on_text = completion,
                      .question = data};
    return ask(zh, &op, value, valuelen);
}

int zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int buflen, int version,
             stat_completion_t completion, const void *data)
{
    struct item op = {.kind = SET,
                      .znode = znode_of(zh->model, path),
                      .version = version,
                      .on_stat = completion,
                      .question = data};
    return ask(zh, &op, buffer, buflen);
}

/* --- Life -------------------------------------------------------------------------------------- */

struct sh_zookeeper_model *sh_zookeeper_model_create(struct sh_world *world, uint64_t seed)
{
    SH_ASSERT(!model_now);
    struct sh_zookeeper_model *model = sh_sim_alloc(sizeof *model);
    memset(model, 0, sizeof *model);
    model->world = world;
    model->prng = sh_prng_make(sh_mix64(seed + UINT64_C(0x7a6f6f)));
    model_now = model;
    on_weather(model, 0, 0);
    return model;
}

void sh_zookeeper_model_destroy(struct sh_zookeeper_model *model)
{
    if (!model)
        return;
    SH_ASSERT(!model->handles && model_now == model);
    model_now = NULL;
    for (unsigned i = 0; i < model->znodes_count; i++) {
        for (unsigned k = 0; k < STATES; k++)
            free(model->znodes[i].states[k].bytes);
    }
    free(model);
}

void sh_zookeeper_model_servers(unsigned node, char into[SH_ZOOKEEPER_MODEL_SERVERS_BYTES])
{
    (void)snprintf(into, SH_ZOOKEEPER_MODEL_SERVERS_BYTES, "node%u", node);
}

void sh_zookeeper_model_crash(struct sh_zookeeper_model *model, unsigned node)
{
    for (struct _zhandle *handle = model ? model->handles : NULL; handle; handle = handle->next) {
        if (handle->node == node)
            drop_all(handle);
    }
}

void sh_zookeeper_model_calm_set(struct sh_zookeeper_model *model, bool is_calm)
{
    if (model)
        model->is_calm = is_calm;
}

bool sh_zookeeper_model_led(const struct sh_zookeeper_model *model, unsigned node, uint64_t at_ns)
{
    const struct _zhandle *handle = model->handles;
    while (handle && (handle->node != node || handle->is_dead))
        handle = handle->next;
    for (unsigned i = 0; handle && i < model->leaders_count; i++) {
        uint64_t to_ns = model->leaders[i].to_ns ? model->leaders[i].to_ns : UINT64_MAX;
        if (model->leaders[i].session == handle->client.client_id &&
            model->leaders[i].from_ns <= at_ns && at_ns <= to_ns)
            return true;
    }
    return false;
}
