#include "node/promoted.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "env/env.h"
#include "node/node_int.h"
#include "superpeer/superpeer.h"

#define DETAIL_BYTES 256

struct sh_promoted {
    const struct sh_options *peer;
    const struct sh_node_world *world; /* the peer's; NULL: the real one */
    struct sh_options options;         /* borrows the texts of the peer's, and of what follows */
    char role[16], listen[SH_MSG_ADDRESS_MAX + 8], advertise[SH_MSG_ADDRESS_MAX + 8];
    char empty[1];
    char addresses[SH_SUPERPEERS_MAX][SH_MSG_ADDRESS_MAX];
    struct sh_lock lock;
    struct sh_node_run *node; /* NULL: it does not run, or is about to end; under lock */
    pthread_t thread;
    void *world_thread; /* in its place, in a world */
    bool has_thread;    /* that is to be joined */
};

enum shoal_err sh_promoted_create(const struct sh_options *options,
                                  const struct sh_node_world *world,
                                  struct sh_promoted **promoted_out)
{
    struct sh_promoted *promoted = calloc(1, sizeof *promoted);
    if (!promoted)
        return SHOAL_ENOMEM;
    promoted->peer = options;
    promoted->world = world;
    sh_lock_init(&promoted->lock, SH_LOCK_NODE);
    *promoted_out = promoted;
    return SHOAL_OK;
}

static void join(struct sh_promoted *promoted)
{
    if (promoted->has_thread && promoted->world)
        promoted->world->thread_join(promoted->world->arg, promoted->world_thread);
    else if (promoted->has_thread)
        pthread_join(promoted->thread, NULL);
    promoted->has_thread = false;
}

void sh_promoted_destroy(struct sh_promoted *promoted)
{
    if (!promoted)
        return;
    sh_lock_take(&promoted->lock);
    if (promoted->node)
        sh_node_stop(promoted->node);
    sh_lock_release(&promoted->lock);
    join(promoted);
    sh_lock_destroy(&promoted->lock);
    free(promoted);
}

enum shoal_err sh_promoted_stored(const struct sh_promoted *promoted, bool *is_stored_out)
{
    struct sh_env env = {.clock = sh_real_clock(), .random = sh_real_random()};
    uint16_t index;
    bool has_disk = *promoted->peer->data_dir && strcmp(promoted->peer->registry, "memory") != 0;
    enum shoal_err err = SHOAL_ENONAME;
    if (has_disk && promoted->world) {
        err = sh_superpeer_stored(&promoted->world->env, &index);
    } else if (has_disk) {
        err = sh_real_disk_create(promoted->peer->data_dir, false, &env.disk);
        if (err)
            return err;
        err = sh_superpeer_stored(&env, &index);
        env.disk->ops->destroy(env.disk);
    }
    if (err && err != SHOAL_ENONAME)
        return err;
    *is_stored_out = !err;
    return SHOAL_OK;
}

/* The thread that waits until the superpeer has stopped, and takes it apart. */
static void *wait_for_end(void *arg)
{
    struct sh_promoted *promoted = arg;
    sh_lock_take(&promoted->lock);
    struct sh_node_run *node = promoted->node;
    sh_lock_release(&promoted->lock);
    (void)sh_node_wait_ready(node);
    enum shoal_err err = sh_node_wait_stopped(node);
    if (err)
        SH_ERROR("node", "the superpeer of this peer had to stop", SH_ERR(err));
    sh_lock_take(&promoted->lock);
    promoted->node = NULL;
    sh_lock_release(&promoted->lock);
    sh_node_destroy(node);
    return NULL;
}

static bool thread_start(struct sh_promoted *promoted)
{
    const struct sh_node_world *world = promoted->world;
    if (!world)
        return pthread_create(&promoted->thread, NULL, wait_for_end, promoted) == 0;
    promoted->world_thread = world->thread_start(world->arg, wait_for_end, promoted);
    return true;
}

/* The host of an address, with another port. */
static void host_with_port(const char *address, uint64_t port, char *out, size_t size)
{
    const char *colon = strrchr(address, ':');
    int host = colon ? (int)(colon - address) : (int)strlen(address);
    snprintf(out, size, "%.*s:%u", host, address, (unsigned)port);
}

/* Where the port is noted that was free: others look for the superpeer there when its process is started again,
 * and if all were, they know nobody else to ask. */
#define PORT_FILE "superpeer-port"

static void port_path(const struct sh_promoted *promoted, char *path, size_t size)
{
    snprintf(path, size, "%s/%s", promoted->peer->data_dir, PORT_FILE);
}

/* The port of before; 0: there was none, or another one is set. */
static unsigned port_noted(const struct sh_promoted *promoted)
{
    char path[PATH_MAX];
    unsigned port = 0;
    if (promoted->peer->superpeer_port || !*promoted->peer->data_dir || promoted->world)
        return 0;
    port_path(promoted, path, sizeof path);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    if (fscanf(file, "%u", &port) != 1 || port > UINT16_MAX)
        port = 0;
    (void)fclose(file);
    return port;
}

/* Writes it to a file that takes the other's place when it is on the disk. */
static bool port_write(const char *path, const char *port)
{
    char fresh[PATH_MAX + 4];
    snprintf(fresh, sizeof fresh, "%s.new", path);
    FILE *file = fopen(fresh, "we");
    if (!file)
        return false;
    bool is_written = fprintf(file, "%s\n", port) > 0 && !fflush(file) && !fsync(fileno(file));
    if (!fclose(file) && is_written && !rename(fresh, path))
        return true;
    (void)unlink(fresh);
    return false;
}

/* That it is not noted costs a new port at the next start. */
static void port_note(const struct sh_promoted *promoted, const char *address, unsigned noted)
{
    char path[PATH_MAX];
    const char *colon = strrchr(address, ':');
    if (promoted->peer->superpeer_port || !*promoted->peer->data_dir || promoted->world || !colon ||
        strtoul(colon + 1, NULL, 10) == noted)
        return;
    port_path(promoted, path, sizeof path);
    if (!port_write(path, colon + 1))
        SH_WARN("node",
                "the superpeer's port can't be noted: with superpeer_port it is always the same",
                SH_TEXT("file", path));
}

/* The peer's options, but a superpeer's, on another port of the peer's hosts. Others are told the
 * port that it listens on. */
static void options_make(struct sh_promoted *promoted, unsigned port, const char *const *addresses,
                         size_t count)
{
    struct sh_options *options = &promoted->options;
    *options = *promoted->peer;
    host_with_port(options->listen, port, promoted->listen, sizeof promoted->listen);
    if (*options->advertise)
        host_with_port(options->advertise, 0, promoted->advertise, sizeof promoted->advertise);
    snprintf(promoted->role, sizeof promoted->role, "superpeer");
    options->listen = promoted->listen;
    options->advertise = promoted->advertise;
    options->roles.count = 1;
    options->roles.items[0] = promoted->role;
    options->local_socket = promoted->empty;
    options->threads = 1;
    options->superpeers.count = 0;
    for (size_t i = 0; i < count && i < SH_SUPERPEERS_MAX; i++) {
        snprintf(promoted->addresses[i], SH_MSG_ADDRESS_MAX, "%s", addresses[i]);
        options->superpeers.items[options->superpeers.count++] = promoted->addresses[i];
    }
}

static enum shoal_err start(struct sh_promoted *promoted, char *address_out, char *detail)
{
    struct sh_node_run *node;
    const struct sh_node_origin origin = {.is_inner = true};
    enum shoal_err err =
        sh_node_create_from(&promoted->options, promoted->world ? promoted->world->inner : NULL,
                            &origin, &node, detail);
    if (err)
        return err;
    err = sh_node_start(node);
    if (err) {
        sh_node_destroy(node);
        return err;
    }
    snprintf(address_out, SH_MSG_ADDRESS_MAX, "%s", sh_node_address(node));
    sh_lock_take(&promoted->lock);
    promoted->node = node;
    sh_lock_release(&promoted->lock);
    promoted->has_thread = thread_start(promoted);
    if (promoted->has_thread)
        return SHOAL_OK;
    promoted->node = NULL;
    sh_node_stop(node);
    err = sh_node_wait_stopped(node);
    sh_node_destroy(node);
    return err ? err : SHOAL_ENOMEM;
}

enum shoal_err sh_promoted_start(struct sh_promoted *promoted, const char *const *addresses,
                                 size_t count, char *address_out, char *detail)
{
    if (sh_promoted_runs(promoted, address_out)) {
        snprintf(detail, DETAIL_BYTES, "the node has a superpeer already");
        return SHOAL_EEXIST;
    }
    bool needs_data_dir = strcmp(promoted->peer->registry, "memory") != 0;
    if ((needs_data_dir && !*promoted->peer->data_dir) || !count) {
        snprintf(detail, DETAIL_BYTES,
                 count ? "the node has no data_dir, which a superpeer needs for its registry"
                       : "the node knows no superpeer");
        return SHOAL_EINVAL;
    }
    join(promoted);
    unsigned noted = port_noted(promoted);
    options_make(promoted, noted ? noted : (unsigned)promoted->peer->superpeer_port, addresses,
                 count);
    enum shoal_err err = start(promoted, address_out, detail);
    if (err == SHOAL_EADDRINUSE && noted) {
        *detail = 0;
        options_make(promoted, 0, addresses, count);
        err = start(promoted, address_out, detail);
    }
    if (!err)
        port_note(promoted, address_out, noted);
    return err;
}

bool sh_promoted_runs(struct sh_promoted *promoted, char *address_out)
{
    sh_lock_take(&promoted->lock);
    bool runs = promoted->node;
    if (runs)
        snprintf(address_out, SH_MSG_ADDRESS_MAX, "%s", sh_node_address(promoted->node));
    sh_lock_release(&promoted->lock);
    return runs;
}

struct sh_node_run *sh_promoted_node(struct sh_promoted *promoted)
{
    sh_lock_take(&promoted->lock);
    struct sh_node_run *node = promoted->node;
    sh_lock_release(&promoted->lock);
    return node;
}
