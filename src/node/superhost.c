#include "node/superhost.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "cluster/recruit.h"

#define DETAIL_BYTES 256

struct sh_superhost {
    struct sh_superhost_config config;
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t instance;
    struct sh_superpeer *superpeer; /* NULL: not yet */
    struct sh_recruit *recruit;     /* NULL: it never was one */
};

static void on_dismissed(void *arg)
{
    struct sh_superhost *host = arg;
    host->config.on_over(host->config.arg, SHOAL_OK);
}

static void on_enrolled(void *arg, enum shoal_err err)
{
    struct sh_superhost *host = arg;
    if (err)
        host->config.on_over(host->config.arg, err);
    else
        host->config.on_serves(host->config.arg);
}

static bool is_in_zookeeper(const struct sh_superhost *host)
{
    return strcmp(host->config.options->registry, "zookeeper") == 0;
}

static void on_view(void *arg, const struct sh_view *view)
{
    struct sh_superhost *host = arg;
    host->config.on_view(host->config.arg, view);
}

static enum shoal_err open_superpeer(struct sh_superhost *host, const char *const *addresses,
                                     size_t count, uint16_t index, const struct sh_view *recruited)
{
    const struct sh_options *options = host->config.options;
    struct sh_superpeer_config config = {
        .msg = host->config.msg,
        .env = host->config.env,
        .cluster = options->cluster,
        .address = host->address,
        .addresses = addresses,
        .count = (uint16_t)count,
        .index = index,
        .instance = host->instance,
        .recruited = recruited,
        .zookeeper = is_in_zookeeper(host) ? options->zookeeper : NULL,
        .on_enrolled = on_enrolled,
        .heartbeat_ns = options->heartbeat_ns,
        .failure_ns = options->failure_ns,
        .forget_ns = options->forget_ns,
        .scratch_bytes_max = (uint32_t)options->scratch_bytes_max,
        .on_view = host->config.on_view ? on_view : NULL,
        .on_dismissed = on_dismissed,
        .arg = host,
    };
    sh_msg_nid_set(host->config.msg, (shoal_nid){(uint16_t)(index + 1)});
    return sh_superpeer_create(&config, &host->superpeer);
}

static void on_recruited(void *arg, shoal_nid nid, const struct sh_view *view)
{
    struct sh_superhost *host = arg;
    const struct sh_list *list = &host->config.options->superpeers;
    enum shoal_err err = open_superpeer(host, (const char *const *)list->items, list->count,
                                        (uint16_t)(nid.v - 1), view);
    if (err)
        host->config.on_over(host->config.arg, err);
    else
        host->config.on_serves(host->config.arg);
}

static enum shoal_err open_recruit(struct sh_superhost *host)
{
    const struct sh_list *list = &host->config.options->superpeers;
    struct sh_recruit_config config = {
        .msg = host->config.msg,
        .env = host->config.env,
        .addresses = (const char *const *)list->items,
        .count = list->count,
        .address = host->address,
        .instance = host->instance,
        .failure_ns = host->config.options->failure_ns,
        .on_done = on_recruited,
        .arg = host,
    };
    SH_INFO("node", "asking the superpeers to be one of them", SH_TEXT("address", host->address));
    return sh_recruit_create(&config, &host->recruit);
}

/* This superpeer's place in the list of all; the list's size if it is not in it. */
static size_t place_in(const struct sh_superhost *host, const struct sh_list *list)
{
    size_t place = 0;
    while (place < list->count && strcmp(list->items[place], host->config.options->listen) != 0 &&
           strcmp(list->items[place], host->address) != 0)
        place++;
    return place;
}

static enum shoal_err open_it(struct sh_superhost *host, char *detail)
{
    const struct sh_list *list = &host->config.options->superpeers;
    const char *own[1] = {host->address};
    const char *const *addresses = list->count ? (const char *const *)list->items : own;
    size_t count = list->count ? list->count : 1;
    size_t place = list->count ? place_in(host, list) : 0;
    uint16_t stored;
    if (count > SH_SUPERPEERS_MAX) {
        snprintf(detail, DETAIL_BYTES, "superpeers must name at most %d addresses",
                 SH_SUPERPEERS_MAX);
        return SHOAL_EINVAL;
    }
    enum shoal_err err = SHOAL_ENONAME;
    if (host->config.env.disk)
        err = sh_superpeer_stored(&host->config.env, &stored);
    if (!err)
        return open_superpeer(host, addresses, count, stored, NULL);
    if (err != SHOAL_ENONAME)
        return err;
    if (is_in_zookeeper(host))
        return open_superpeer(host, addresses, count, SH_SUPERPEER_UNKNOWN, NULL);
    if (place < count && !host->config.is_promoted)
        return open_superpeer(host, addresses, count, (uint16_t)place, NULL);
    return open_recruit(host);
}

enum shoal_err sh_superhost_create(const struct sh_superhost_config *config,
                                   struct sh_superhost **host_out, char *detail)
{
    struct sh_superhost *host = calloc(1, sizeof *host);
    if (!host)
        return SHOAL_ENOMEM;
    host->config = *config;
    host->instance = sh_random64(&config->env.random) | 1;
    snprintf(host->address, sizeof host->address, "%s", config->address);
    enum shoal_err err = open_it(host, detail);
    if (err) {
        if (!*detail)
            snprintf(detail, DETAIL_BYTES, "the registry in %s %s: %s",
                     is_in_zookeeper(host) ? "zookeeper" : "data_dir",
                     is_in_zookeeper(host) ? config->options->zookeeper : config->options->data_dir,
                     shoal_err_text(err));
        sh_superhost_destroy(host);
        return err;
    }
    *host_out = host;
    return SHOAL_OK;
}

void sh_superhost_destroy(struct sh_superhost *host)
{
    if (!host)
        return;
    sh_superpeer_destroy(host->superpeer);
    sh_recruit_destroy(host->recruit);
    free(host);
}

static struct sh_step part(struct sh_superhost *host)
{
    return host->superpeer ? sh_superpeer_step(host->superpeer) : sh_recruit_step(host->recruit);
}

static unsigned run(void *arg)
{
    struct sh_step step = part(arg);
    return step.run(step.arg);
}

static uint64_t due_ns(void *arg)
{
    struct sh_step step = part(arg);
    return step.due_ns(step.arg);
}

struct sh_step sh_superhost_step(struct sh_superhost *host)
{
    return (struct sh_step){.name = "superpeer", .run = run, .due_ns = due_ns, .arg = host};
}

void sh_superhost_link_event(struct sh_superhost *host, const struct sh_msg_event *event)
{
    if (host->superpeer)
        sh_superpeer_link_event(host->superpeer, event);
}

bool sh_superhost_serves(const struct sh_superhost *host)
{
    return host->superpeer && sh_msg_nid(host->config.msg).v;
}

struct sh_superpeer *sh_superhost_superpeer(const struct sh_superhost *host)
{
    return host->superpeer;
}
