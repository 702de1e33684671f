/* Opening and closing a store: embedded, or a cluster's client. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/client_int.h"
#include "msg/tls.h"
#include "msg/wires.h"

#define CLIENT_LINKS_MAX 1024
#define REQUESTS_MAX (1u << 16)
#define STORE_BYTES_MAX (UINT64_C(8) << 30)
#define CHUNK_BYTES_MAX (UINT32_C(64) << 20)
#define LOCKS_MAX (UINT32_C(1) << 20) /* embedded: with those that wait for them */
#define ADDRESSES_MAX 64
/* Longer time-outs mean this one (146 years), so that no deadline overflows. */
#define TIMEOUT_MAX_NS (UINT64_C(1) << 62)

/* What a client needs to know, from the public options or the programs'. */
struct client_config {
    const char *addresses[ADDRESSES_MAX];
    size_t address_count;
    const char *cluster;
    const char *secret_file;
    const char *transport;
    bool has_tls;
    const char *tls_cert_file, *tls_key_file, *tls_ca_file; /* never NULL with TLS */
    enum shoal_level level;
    uint64_t timeout_ns;
    uint64_t connect_timeout_ns;
    uint64_t peer_silence_ns; /* 0: what msg has */
    uint32_t ring_bytes;
    uint32_t cache_ranges_max;
    struct sh_idle_policy idle;
    const struct sh_client_world *world; /* NULL: the real one */
};

static void wake(void *arg)
{
    struct shoal *store = arg;
    sh_crew_wake(store->crew, 0);
}

static bool busy(void *arg)
{
    struct shoal *store = arg;
    return atomic_load_explicit(&store->in_flight, memory_order_acquire) > 0;
}

static enum shoal_err open_crew(struct shoal *store, const struct client_config *config)
{
    struct sh_crew_config crew = {
        .world = config->world ? &config->world->crew : NULL,
        .name = "shoal-client",
        .threads = 1,
        .lends = true,
        .spin_forced = config->idle.spin_ns == SH_NEVER,
        .idle = config->idle,
        .now_ns = store->env.clock.now_ns,
        .now_arg = store->env.clock.arg,
        .busy = busy,
        .busy_arg = store,
    };
    return sh_crew_create(&crew, &store->crew);
}

static enum shoal_err open_wire(struct shoal *store, const struct client_config *config)
{
    if (config->world) /* its wire is there */
        return SHOAL_OK;
    if (!sh_wire_is_known(config->transport)) {
        sh_client_detail_set("transport is tcp, epoll or uring, not %s", config->transport);
        return SHOAL_EINVAL;
    }
    enum shoal_err err = sh_wire_create(config->transport, CLIENT_LINKS_MAX, &store->env.wire);
    if (err != SHOAL_OK || !config->has_tls)
        return err;
    struct sh_tls_config tls = {.cert_file = config->tls_cert_file,
                                .key_file = config->tls_key_file,
                                .ca_file = config->tls_ca_file,
                                .clock = store->env.clock,
                                .handshake_timeout_ns = config->connect_timeout_ns};
    return sh_tls_create(store->env.wire, &tls, &store->env.wire, sh_client_detail());
}

/* A node that can't be reached may be dead: somebody is told who finds out. */
static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct shoal *store = arg;
    if (event->kind == SH_MSG_LOST && store->directory && !sh_client_closing(store))
        sh_directory_suspect(store->directory, event->nid);
}

static enum shoal_err open_msg(struct shoal *store, const struct client_config *config)
{
    enum shoal_err err = open_wire(store, config);
    if (err != SHOAL_OK)
        return err;
    struct sh_msg_config msg = {
        .nid = SHOAL_NID_NONE,
        .cluster = config->cluster,
        .secret = sh_secret_bytes(&store->secret),
        .connections_max = CLIENT_LINKS_MAX,
        .requests_max = REQUESTS_MAX,
        .ring_bytes = config->ring_bytes,
        .payload_bytes_max = UINT32_MAX - SH_MSG_HEADER_BYTES,
        .request_timeout_ns = store->timeout_ns,
        .connect_timeout_ns = config->connect_timeout_ns,
        .silence_ns = config->peer_silence_ns,
        .env = store->env,
        .on_event = on_event,
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = store,
    };
    return sh_msg_create(&msg, &store->msg);
}

/* A bootstrap that a thread waits for. */
struct bootstrap {
    struct sh_directory_op op;
    struct sh_waiter waiter;
    enum shoal_err err;
    char *detail;
};

static void on_bootstrapped(struct sh_directory_op *op, enum shoal_err err, const char *detail)
{
    struct bootstrap *bootstrap = op->arg;
    bootstrap->err = err;
    if (err != SHOAL_OK)
        snprintf(bootstrap->detail, SH_DETAIL_BYTES, "%s", detail);
    sh_waiter_complete(&bootstrap->waiter);
}

static enum shoal_err bootstrap_once(struct shoal *store, const struct client_config *config)
{
    struct bootstrap bootstrap = {.op = {.done = on_bootstrapped}, .detail = sh_client_detail()};
    bootstrap.op.arg = &bootstrap;
    sh_directory_bootstrap(store->directory, config->addresses, config->address_count,
                           &bootstrap.op);
    bool is_done = sh_crew_wait(store->crew, 0, &bootstrap.waiter, SH_NEVER);
    SH_ASSERT(is_done);
    return bootstrap.err;
}

/* Nodes that are there but do not know the cluster yet (a superpeer that was restarted, a peer that
 * is joining) are asked again until the time-out. */
static enum shoal_err bootstrap_until_known(struct shoal *store, const struct client_config *config)
{
    uint64_t deadline = sh_client_deadline_ns(store);
    for (;;) {
        enum shoal_err err = bootstrap_once(store, config);
        uint64_t pause_end = sh_now(&store->env.clock) + SH_ROUND_PAUSE_NS;
        if ((err != SHOAL_EBUSY && err != SHOAL_EAGAIN) || pause_end >= deadline)
            return err;
        struct sh_waiter pause = {0};
        (void)sh_crew_wait(store->crew, 0, &pause, pause_end);
    }
}

static enum shoal_err open_cluster(struct shoal *store, const struct client_config *config)
{
    store->env = (struct sh_env){.clock = sh_real_clock(), .random = sh_real_random()};
    if (config->world)
        store->env = config->world->env;
    sh_spin_init(&store->retry_lock, SH_LOCK_CLIENT);
    atomic_init(&store->retry_due_ns, SH_NEVER);
    store->once_client = sh_random64(&store->env.random) | 1;
    store->numbers = calloc(UINT16_MAX + 1, sizeof *store->numbers);
    if (!store->numbers)
        return SHOAL_ENOMEM;
    atomic_init(&store->refresh_due_ns, sh_now(&store->env.clock) + SH_VIEW_AGE_NS);
    enum shoal_err err = sh_client_services_open(store);
    if (err == SHOAL_OK)
        err = sh_service_ops_open(store);
    if (err == SHOAL_OK)
        err = sh_secret_read(config->secret_file, &store->secret, sh_client_detail());
    if (err == SHOAL_OK)
        err = open_crew(store, config);
    if (err == SHOAL_OK)
        err = open_msg(store, config);
    if (err != SHOAL_OK)
        return err;
    struct sh_directory_config known = {.msg = store->msg,
                                        .clock = store->env.clock,
                                        .cache_ranges_max = config->cache_ranges_max,
                                        .is_client = true};
    err = sh_directory_create(&known, &store->directory);
    if (err != SHOAL_OK)
        return err;
    sh_crew_parker_set(store->crew, 0, sh_msg_parker(store->msg));
    sh_crew_step_add(store->crew, 0, sh_msg_transport_step(store->msg));
    sh_crew_step_add(store->crew, 0, sh_msg_handler_step(store->msg));
    sh_crew_step_add(store->crew, 0, sh_client_retry_step(store));
    sh_crew_step_add(store->crew, 0, sh_service_ops_step(store));
    err = sh_crew_start(store->crew);
    if (err != SHOAL_OK)
        return err;
    return bootstrap_until_known(store, config);
}

static enum shoal_err open_with(const struct client_config *config, struct shoal **store_out)
{
    struct shoal *store = calloc(1, sizeof *store);
    if (!store)
        return SHOAL_ENOMEM;
    store->level = config->level;
    store->timeout_ns = config->timeout_ns < TIMEOUT_MAX_NS ? config->timeout_ns : TIMEOUT_MAX_NS;
    enum shoal_err err = open_cluster(store, config);
    if (err != SHOAL_OK) {
        shoal_close(store);
        return err;
    }
    *store_out = store;
    return SHOAL_OK;
}

static bool is_set(const char *text)
{
    return text && text[0] != '\0';
}

enum shoal_err sh_embedded_open(const struct shoal_options *options,
                                const struct sh_durable_sizes *sizes, struct shoal **store_out)
{
    if (!is_set(options->data_dir) &&
        (is_set(options->log_access) || is_set(options->log_device))) {
        sh_client_detail_set("log_access and log_device go with a data_dir only");
        return SHOAL_EINVAL;
    }
    struct shoal *store = calloc(1, sizeof *store);
    if (!store)
        return SHOAL_ENOMEM;
    store->is_embedded = true;
    store->durable_sizes = *sizes;
    store->level = options->level;
    store->chunk_bytes_max = CHUNK_BYTES_MAX;
    struct sh_store_config config = {
        .bytes_max = options->store_bytes_max ? options->store_bytes_max : STORE_BYTES_MAX,
        .chunk_bytes_max = CHUNK_BYTES_MAX,
        .small_pages = options->small_pages,
    };
    store->env = (struct sh_env){.clock = sh_real_clock(), .random = sh_real_random()};
    sh_lock_init(&store->crew_lock, SH_LOCK_CLIENT);
    sh_stripes_init(&store->stripes);
    struct sh_leases_config leases = {
        .locks_max = LOCKS_MAX, .waiters_max = LOCKS_MAX, .seed = sh_random64(&store->env.random)};
    const char *data_dir = is_set(options->data_dir) ? options->data_dir : NULL;
    enum shoal_err err = sh_store_create(&config, &store->store);
    if (err == SHOAL_OK)
        err = sh_embedded_backup(store, data_dir);
    if (err == SHOAL_OK)
        err = sh_leases_create(&leases, &store->leases);
    if (err == SHOAL_OK)
        err = sh_local_services_open(store);
    if (err == SHOAL_OK)
        err = sh_service_ops_open(store);
    if (err == SHOAL_OK && data_dir)
        err = sh_durable_open(store, options, config.bytes_max);
    if (err != SHOAL_OK) {
        shoal_close(store);
        return err;
    }
    *store_out = store;
    return SHOAL_OK;
}

/* Cuts "a, b,c" into addresses in place; false when there are too many or empty ones. */
static bool addresses_split(char *text, struct client_config *config)
{
    for (char *at = text; at;) {
        char *comma = strchr(at, ',');
        if (comma)
            *comma = '\0';
        at += strspn(at, " ");
        at[strcspn(at, " ")] = '\0';
        if (config->address_count == ADDRESSES_MAX || at[0] == '\0')
            return false;
        config->addresses[config->address_count++] = at;
        at = comma ? comma + 1 : NULL;
    }
    return true;
}

static struct sh_idle_policy idle_policy(uint64_t spin_ns)
{
    struct sh_idle_policy idle = {.spin_ns = 10000, .park_ns = 20000, .silence_ns = 1000000000};
    if (spin_ns == UINT64_MAX)
        idle.spin_ns = SH_NEVER;
    else if (spin_ns == 1)
        idle = (struct sh_idle_policy){0};
    else if (spin_ns > 0)
        idle.spin_ns = spin_ns;
    return idle;
}

enum shoal_err shoal_open(const struct shoal_options *options, shoal **store_out)
{
    enum shoal_err err = sh_client_blocking();
    struct shoal_options none = {0};
    if (!options)
        options = &none;
    if (err != SHOAL_OK || !store_out)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (options->level > SHOAL_DURABLE) {
        sh_client_detail_set(
            "options.level is SHOAL_LEVEL_DEFAULT, _ASYNC, _REPLICATED or _DURABLE");
        return SHOAL_EINVAL;
    }
    if (!options->addresses || options->addresses[0] == '\0')
        return sh_embedded_open(options, &(struct sh_durable_sizes){0}, store_out);
    struct client_config config = {
        .cluster = options->cluster ? options->cluster : "shoal",
        .secret_file = options->secret_file ? options->secret_file : "",
        .transport = options->transport ? options->transport : "tcp",
        .has_tls = options->tls_cert_file || options->tls_key_file || options->tls_ca_file,
        .tls_cert_file = options->tls_cert_file ? options->tls_cert_file : "",
        .tls_key_file = options->tls_key_file ? options->tls_key_file : "",
        .tls_ca_file = options->tls_ca_file ? options->tls_ca_file : "",
        .timeout_ns = options->timeout_ns ? options->timeout_ns : UINT64_C(5000000000),
        .connect_timeout_ns = UINT64_C(3000000000),
        .ring_bytes = 1 << 20,
        .cache_ranges_max = 262144,
        .idle = idle_policy(options->spin_ns),
        .level = options->level,
    };
    char *text = strdup(options->addresses);
    if (!text)
        return SHOAL_ENOMEM;
    if (!addresses_split(text, &config)) {
        sh_client_detail_set("addresses must be 1 to %d of HOST:PORT, separated by commas",
                             ADDRESSES_MAX);
        err = SHOAL_EADDRESS;
    }
    if (err == SHOAL_OK)
        err = open_with(&config, store_out);
    free(text);
    return err;
}

static enum shoal_err open_by_options(const struct sh_client_world *world,
                                      const struct sh_options *options, shoal **store_out)
{
    const struct sh_list *list =
        options->connect.count > 0 ? &options->connect : &options->superpeers;
    struct client_config config = {
        .world = world,
        .address_count = list->count,
        .cluster = options->cluster,
        .secret_file = options->secret_file,
        .transport = options->transport,
        .has_tls = strcmp(options->tls, "on") == 0,
        .tls_cert_file = options->tls_cert_file,
        .tls_key_file = options->tls_key_file,
        .tls_ca_file = options->tls_ca_file,
        .timeout_ns = options->request_timeout_ns,
        .connect_timeout_ns = options->connect_timeout_ns,
        .peer_silence_ns = options->peer_silence_ns,
        .ring_bytes = (uint32_t)options->ring_bytes,
        .cache_ranges_max = (uint32_t)options->cache_ranges_max,
        .idle = {options->spin_ns, options->park_ns, options->silence_ns},
    };
    for (size_t i = 0; i < list->count; i++)
        config.addresses[i] = list->items[i];
    sh_client_detail()[0] = '\0';
    enum shoal_err err = SHOAL_EINVAL;
    if (list->count > 0)
        err = open_with(&config, store_out);
    else
        sh_client_detail_set("no address of a cluster was given");
    return err;
}

enum shoal_err sh_client_open_in(const struct sh_client_world *world,
                                 const struct sh_options *options, shoal **store_out)
{
    return open_by_options(world, options, store_out);
}

enum shoal_err sh_client_open(const struct sh_options *options, shoal **store_out, char *detail)
{
    enum shoal_err err = open_by_options(NULL, options, store_out);
    if (err != SHOAL_OK && detail)
        snprintf(detail, SH_DETAIL_BYTES, "%s", sh_client_detail());
    return err;
}

void shoal_close(shoal *store)
{
    if (!store)
        return;
    SH_ASSERT(!sh_completing()); /* a completion runs in the midst of what is torn down here */
    /* release: pairs with the acquire in sh_client_closing */
    atomic_store_explicit(&store->is_closing, true, memory_order_release);
    sh_durable_sync(store);
    if (store->crew)
        sh_crew_stop(store->crew);
    sh_durable_quiet(store);
    sh_directory_destroy(store->directory);
    sh_msg_destroy(store->msg);
    if (store->crew && !store->is_embedded) {
        sh_client_retries_fail(store);
        sh_service_ops_fail(store);
    }
    if (store->leases)
        sh_embedded_locks_fail(store);
    sh_leases_destroy(store->leases);
    sh_crew_destroy(store->crew);
    if (store->is_embedded) {
        sh_lock_destroy(&store->crew_lock);
        sh_stripes_destroy(&store->stripes);
        sh_local_services_close(store);
    }
    if (store->env.wire)
        store->env.wire->ops->destroy(store->env.wire);
    sh_backup_destroy(store->backup);
    sh_durable_close(store);
    sh_store_destroy(store->store);
    sh_client_services_close(store);
    sh_service_ops_close(store);
    sh_client_numbers_free(store);
    free(store);
}
