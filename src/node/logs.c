#include "node/logs.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backup/keeper.h"
#include "backup/placement.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/life.h"
#include "base/log.h"
#include "cluster/zones.h"
#include "recover/former.h"
#include "recover/home.h"
#include "recover/home_log.h"
#include "recover/restorer.h"

#define DETAIL_BYTES 256

#define BLOCK_BYTES 4096u
#define CREDIT_BYTES (1u << 20)
#define KEPT_ZONES_MAX (1u << 16)
#define DISK_RESERVE_PERCENT 5
#define RESERVE_BYTES (UINT64_C(64) << 20) /* of the disk, which no zone gets in any case */
#define COPIES_SLOW_NS UINT64_C(100000000) /* from one zone that is read to the next */

struct sh_logs {
    struct sh_logs_config config;
    struct sh_backup *backup;
    struct sh_zones *zones; /* NULL: it asks nothing about zones */
    bool is_self;           /* the chunks are in the own log */
    struct sh_keeper *keeper;
    struct sh_restorer
        *restorer; /* NULL: it keeps nothing for others, or can't have zones of others */
    struct sh_former_zones former;
    struct sh_replog *log; /* NULL: it is neither made nor open */
    bool is_open;
    struct sh_completion *completed;
    size_t completed_count, completed_room;
    struct sh_view view;  /* the last one */
    struct sh_view first; /* the first one in which this life is up; none: it has not come yet */
    shoal_nid nid;        /* whose log it is, */
    uint64_t cluster;     /* and of which cluster */
    struct sh_logs_dump dump; /* that somebody reads */
    struct sh_write last;     /* all that was written before the end */
    _Atomic bool is_synced;
};

static uint32_t seconds_now(const struct sh_clock *clock)
{
    return (uint32_t)(clock->wall_ns(clock->arg) / 1000000000);
}

enum sh_level sh_logs_level(const struct sh_options *options)
{
    if (strcmp(options->durability, "async") == 0)
        return SH_LEVEL_ASYNC;
    return strcmp(options->durability, "durable") == 0 ? SH_LEVEL_DURABLE : SH_LEVEL_REPLICATED;
}

bool sh_logs_is_self(const struct sh_logs *logs)
{
    return logs->is_self;
}

bool sh_logs_has_zones(const struct sh_logs *logs)
{
    return logs->zones;
}

/* --- Making it --------------------------------------------------------------------------------- */

struct sh_log_place sh_logs_place(const struct sh_options *options)
{
    struct sh_log_place place = {.path = options->data_dir};
    bool is_known = sh_log_access_of(options->log_access,
                                     strcmp(options->replicas_at, "peers") == 0, &place.access);
    SH_ASSERT(is_known);
    if (place.access == SH_LOG_RAW)
        place.path = options->log_device;
    return place;
}

/* Whether the peer's log is a device. */
static bool is_raw(const struct sh_logs *logs)
{
    return logs->config.folder && logs->config.folder != logs->config.env.disk &&
           sh_logs_place(logs->config.options).access == SH_LOG_RAW;
}

static enum shoal_err may_be(const struct sh_logs_config *config, char *detail)
{
    const struct sh_options *options = config->options;
    if (!options->replicas && config->folder && sh_log_place_is_used(config->folder)) {
        snprintf(detail, DETAIL_BYTES,
                 "data_dir has a log of chunks (" SH_HOME_LOG_NAME ", or " SH_LOG_NOTE_NAME
                 ", which names its device): start this peer with replicas; or remove the file, "
                 "and what is in the log is lost");
        return SHOAL_EINVAL;
    }
    if (options->replicas && !config->env.disk) {
        snprintf(detail, DETAIL_BYTES,
                 "replicas %" PRIu64 ": a peer that keeps chunks in a log needs a data_dir",
                 options->replicas);
        return SHOAL_EINVAL;
    }
    return SHOAL_OK;
}

/* Looks a life up in the view. The view counts once it has this process: then it is later than all that this disk has seen. */
static enum sh_keeper_life life_of(void *arg, shoal_nid nid, uint64_t life)
{
    const struct sh_logs *logs = arg;
    const struct sh_node *self = sh_view_find(&logs->view, logs->nid);
    const struct sh_node *node = sh_view_find(&logs->view, nid);
    if (!self || self->instance != logs->config.life || self->state != SH_NODE_UP || !node)
        return SH_KEEPER_LIFE_UNKNOWN;
    if (node->instance == life)
        return node->state == SH_NODE_UP ? SH_KEEPER_LIFE_UP : SH_KEEPER_LIFE_OVER;
    return sh_life_is_former(life, node->instance) ? SH_KEEPER_LIFE_OVER : SH_KEEPER_LIFE_UNKNOWN;
}

/* A node that is not in the first view has joined since. */
static bool is_younger(void *arg, shoal_nid nid, uint64_t life)
{
    struct sh_logs *logs = arg;
    const struct sh_node *node = sh_view_find(&logs->first, nid);
    return logs->first.epoch && (!node || sh_life_is_former(node->instance, life));
}

static void keeper_wake(void *arg)
{
    const struct sh_logs *logs = arg;
    logs->config.wake(logs->config.arg);
}

static void view_wanted(void *arg)
{
    const struct sh_logs *logs = arg;
    logs->config.view_wanted(logs->config.arg);
}

static bool is_confirmed(void *arg)
{
    const struct sh_logs *logs = arg;
    return logs->config.is_confirmed(logs->config.arg);
}

static void record_get(void *arg, uint64_t zone, struct sh_zone_op *op)
{
    struct sh_logs *logs = arg;
    sh_zones_get(logs->zones, zone, op);
}

static enum shoal_err keeper_create(struct sh_logs *logs)
{
    const struct sh_logs_config *config = &logs->config;
    const struct sh_keeper_config kept = {.msg = config->msg,
                                          /* A device's room is that of the log's segments. */
                                          .disk = is_raw(logs) ? NULL : config->env.disk,
                                          .clock = config->env.clock,
                                          .zones_max = KEPT_ZONES_MAX,
                                          .credit_bytes = CREDIT_BYTES,
                                          .life_of = life_of,
                                          .is_younger = is_younger,
                                          .is_confirmed = is_confirmed,
                                          .view_wanted = view_wanted,
                                          .record_get = record_get,
                                          .wake = keeper_wake,
                                          .arg = logs};
    return sh_keeper_create(&kept, &logs->keeper);
}

static enum shoal_err restorer_create(struct sh_logs *logs)
{
    const struct sh_logs_config *config = &logs->config;
    const struct sh_restorer_config restorer = {.msg = config->msg,
                                                .keeper = logs->keeper,
                                                .backup = logs->backup,
                                                .store = config->store,
                                                .zones = logs->zones,
                                                .clock = config->env.clock,
                                                .life = config->life,
                                                .directory = config->directory,
                                                .is_confirmed = config->is_confirmed,
                                                .may_take = config->may_take,
                                                .may_have = config->may_have,
                                                .serves = config->serves,
                                                .completed = config->completed,
                                                .make_room = config->make_room,
                                                .wake = config->wake,
                                                .arg = config->arg};
    return sh_restorer_create(&restorer, &logs->restorer);
}

static enum shoal_err zones_create(struct sh_logs *logs)
{
    const struct sh_zones_config zones = {.msg = logs->config.msg,
                                          .directory = logs->config.directory,
                                          .clock = logs->config.env.clock};
    return sh_zones_create(&zones, &logs->zones);
}

static enum shoal_err backup_create(const struct sh_logs_config *config, struct sh_zones *zones,
                                    struct sh_backup **backup_out)
{
    const struct sh_options *options = config->options;
    struct sh_backup_config backed = {.store = config->store,
                                      .zone_bytes = options->zone_bytes,
                                      .window_bytes = options->replicas ? SH_HOME_WINDOW_BYTES : 0,
                                      .wake = config->wake,
                                      .results = zones ? config->results : NULL,
                                      .arg = config->arg};
    if (zones)
        backed.cluster = (struct sh_backup_cluster){.msg = config->msg,
                                                    .zones = zones,
                                                    .life = config->life,
                                                    .random = config->env.random,
                                                    .replicas = (uint8_t)options->replicas,
                                                    .placement = SH_PLACEMENT_DISJOINT,
                                                    .has_copysets = options->copysets,
                                                    .scatter = (uint16_t)options->scatter_width,
                                                    .domains = SH_DOMAIN_ALL,
                                                    .reserve_percent = DISK_RESERVE_PERCENT,
                                                    .copies_max = (unsigned)options->copies_max,
                                                    .copy_bytes_per_s = options->copy_bytes_per_s};
    return sh_backup_create(&backed, backup_out);
}

enum shoal_err sh_logs_create(const struct sh_logs_config *config, struct sh_backup **backup_out,
                              struct sh_logs **logs_out, char *detail)
{
    *logs_out = NULL;
    *backup_out = NULL;
    enum shoal_err err = may_be(config, detail);
    if (err)
        return err;
    if (!config->options->replicas)
        return backup_create(config, NULL, backup_out);
    struct sh_logs *logs = calloc(1, sizeof *logs);
    if (!logs)
        return SHOAL_ENOMEM;
    logs->config = *config;
    *logs_out = logs;
    logs->is_self = strcmp(config->options->replicas_at, "peers") != 0;
    if (!logs->is_self || config->options->keeps_replicas)
        err = zones_create(logs);
    if (!err && config->options->keeps_replicas)
        err = keeper_create(logs);
    if (!err)
        err = backup_create(config, logs->is_self ? NULL : logs->zones, backup_out);
    logs->backup = *backup_out;
    if (!err && !logs->is_self && logs->keeper)
        err = restorer_create(logs);
    logs->former = (struct sh_former_zones){.zones = logs->zones,
                                            .clock = config->env.clock,
                                            .life = config->life,
                                            .wake = config->wake,
                                            .arg = config->arg};
    return err;
}

/* The log writes what other nodes' zones have only in memory, while the keeper and the backup, which it tells, are there. */
static void flush(struct sh_logs *logs)
{
    SH_ASSERT(logs->keeper && logs->backup);
    enum shoal_err err = sh_replog_flush(logs->log);
    if (err)
        SH_WARN("node", "replicas lack what was written last, and get it from their owners",
                SH_ERR(err));
}

void sh_logs_leave(struct sh_logs *logs)
{
    if (!logs)
        return;
    if (logs->is_open && logs->keeper)
        flush(logs);
    sh_zones_destroy(logs->zones);
    logs->zones = NULL;
    sh_restorer_destroy(logs->restorer);
    logs->restorer = NULL;
    if (!logs->is_self && logs->backup)
        sh_backup_leave(logs->backup);
    sh_keeper_destroy(logs->keeper);
    logs->keeper = NULL;
}

/* --- Opening it -------------------------------------------------------------------------------- */

/* Whose a zone is, the log does not know: the keeper does. */
static void on_handed(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct sh_logs *logs = arg;
    if (sh_logs_is_self(logs) && sh_replog_zone_id(zone) >> 48 == logs->nid.v)
        sh_backup_handed(logs->backup, zone, sequence);
}

static void on_durable(void *arg, struct sh_replog_zone *zone, uint64_t sequence)
{
    struct sh_logs *logs = arg;
    if (logs->keeper && sh_keeper_durable(logs->keeper, zone, sequence))
        return;
    if (sh_logs_is_self(logs) && sh_replog_zone_id(zone) >> 48 == logs->nid.v)
        sh_backup_durable(logs->backup, zone, sequence);
}

/* The keeper reports the replica as lost, and its owner makes another one. Of the peer's own zones the backup writes all chunks once more. */
static void on_damaged(void *arg, struct sh_replog_zone *zone, uint32_t slot, uint64_t offset)
{
    struct sh_logs *logs = arg;
    if (logs->keeper)
        sh_keeper_damaged(logs->keeper, zone);
    if (zone && sh_logs_is_self(logs) && sh_replog_zone_id(zone) >> 48 == logs->nid.v)
        sh_backup_damaged(logs->backup, zone, slot, offset);
    SH_ERROR("node", "a segment of the log is damaged: see `shoal log verify`",
             SH_U64("zone", zone ? sh_replog_zone_id(zone) : 0), SH_U64("segment", slot),
             SH_U64("offset", offset));
}

/* The log of the options, of the node and cluster that are known by now. */
static struct sh_home_log home_of(struct sh_logs *logs)
{
    const struct sh_options *options = logs->config.options;
    const struct sh_env *env = &logs->config.env;
    const struct sh_log_place place = sh_logs_place(options);
    return (struct sh_home_log){
        .disk = env->disk,
        .random = env->random,
        .handed = on_handed,
        .durable = on_durable,
        .damaged = on_damaged,
        .reserve_bytes = RESERVE_BYTES,
        .scrub_bytes = options->log_scrub_bytes,
        .completions = sh_backup_completions(logs->backup),
        .arg = logs,
        .cluster = logs->cluster,
        .nid = logs->nid,
        .store_bytes_max = options->replicas * options->store_bytes_max,
        .zone_bytes = options->zone_bytes,
        .slot_bytes = (uint32_t)options->log_segment_bytes,
        .primary_blocks = (uint32_t)(options->log_primary_bytes / BLOCK_BYTES),
        .is_one_level = !options->log_two_level,
        .buffer_bytes = options->log_buffer_bytes,
        .selection = sh_replog_selection_of(options->log_selection),
        .bytes_max = options->log_bytes_max,
        .device_bytes = is_raw(logs) ? sh_log_place_bytes(&place, env->disk) : 0};
}

/* Where the log is, for a sentence. */
#define WHERE_BYTES 96
static const char *where(const struct sh_logs *logs, char text_out[WHERE_BYTES])
{
    if (is_raw(logs))
        snprintf(text_out, WHERE_BYTES, "log_device %.80s",
                 sh_logs_place(logs->config.options).path);
    else
        snprintf(text_out, WHERE_BYTES, SH_HOME_LOG_NAME " in data_dir");
    return text_out;
}

/* On a device: what opening it has found there. True: it has been said. */
static bool explain_device(struct sh_logs *logs, enum shoal_err err, char *detail)
{
    char text[WHERE_BYTES], least[SH_NUMBER_TEXT_MAX], bytes[SH_NUMBER_TEXT_MAX];
    const struct sh_home_log home = home_of(logs);
    if (!is_raw(logs))
        return false;
    if (err == SHOAL_ENOSPC)
        snprintf(
            detail, DETAIL_BYTES,
            "%s has %s: a new log takes at least %s, with two zones of zone_bytes; and one that "
            "is there already needs all the bytes that it had when it was made",
            where(logs, text), sh_number_format(home.device_bytes, "bytes", bytes),
            sh_number_format(sh_home_log_least(&home), "bytes", least));
    else if (err == SHOAL_ECORRUPT || err == SHOAL_EVERSION)
        snprintf(
            detail, DETAIL_BYTES,
            "%s has something on it that is no log of this version, and was left as it is: if it "
            "may go, write zeros over its first MiB",
            where(logs, text));
    else
        return false;
    return true;
}

/* Says why the log can't be opened, or its zones can't be brought back, which have begun once it is open. */
static void explain(struct sh_logs *logs, enum shoal_err err, const struct sh_recovered *found,
                    char *detail)
{
    char text[WHERE_BYTES];
    (void)where(logs, text);
    if (!logs->log && explain_device(logs, err, detail))
        return;
    if (err == SHOAL_ECLUSTER && !logs->nid.v)
        snprintf(
            detail, DETAIL_BYTES,
            "%s is the log of another node, and this peer has been none yet: give this peer a %s "
            "of its own",
            text, is_raw(logs) ? "device" : "folder");
    else if (err == SHOAL_ECLUSTER)
        snprintf(detail, DETAIL_BYTES,
                 "%s is the log of another node than node %u of this cluster: give this peer a "
                 "%s of its own",
                 text, logs->nid.v, is_raw(logs) ? "device" : "folder");
    else if (err == SHOAL_EVERSION)
        snprintf(detail, DETAIL_BYTES,
                 "%s has another format than this version's logs (%u): start the version that "
                 "wrote it, or %s to begin a new log without its replicas",
                 text, SH_LOG_FORMAT,
                 is_raw(logs) ? "write zeros over its first MiB" : "remove it");
    else if (err == SHOAL_ECORRUPT)
        snprintf(detail, DETAIL_BYTES,
                 "%s is damaged (zone %" PRIu64 "): see `shoal log verify`; %s to lose all chunks",
                 text, found->zone, is_raw(logs) ? "write zeros over its first MiB" : "remove it");
    else if (err == SHOAL_EFULL || err == SHOAL_ETOOBIG)
        snprintf(detail, DETAIL_BYTES,
                 "the chunks of %s are more, or larger, than store_bytes_max and "
                 "chunk_bytes_max allow: zone %" PRIu64 ", after %" PRIu64 " chunks",
                 text, found->zone, found->chunks);
    else if (err == SHOAL_EINVAL)
        snprintf(detail, DETAIL_BYTES,
                 "log_bytes_max is not enough for two zones of zone_bytes and what is moved in "
                 "cleaning");
    else if (err == SHOAL_ERANGE)
        snprintf(detail, DETAIL_BYTES,
                 "log_buffer_bytes is not enough for %s, whose segments are larger than "
                 "log_segment_bytes, or which has one level",
                 text);
    else
        snprintf(detail, DETAIL_BYTES, "%s: %s", text, shoal_err_text(err));
}

static enum shoal_err log_open(struct sh_logs *logs)
{
    const struct sh_env *env = &logs->config.env;
    const struct sh_home_log home = home_of(logs);
    const struct sh_log_place place = sh_logs_place(logs->config.options);
    enum shoal_err err =
        sh_home_log_open(&home, sh_now(&env->clock), seconds_now(&env->clock), &logs->log);
    if (err)
        return err;
    bool has_two = sh_replog_look(logs->log).primary_bytes > 0;
    if (has_two != logs->config.options->log_two_level)
        SH_WARN("node", "the log keeps the levels that it was made with: see log_two_level",
                SH_U64("levels", has_two ? 2 : 1));
    return is_raw(logs) ? sh_log_place_note(&place, logs->config.folder) : SHOAL_OK;
}

static void on_completed(void *arg, const struct sh_completion *completion)
{
    struct sh_logs *logs = arg;
    if (logs->completed_count == logs->completed_room) {
        size_t room = logs->completed_room ? 2 * logs->completed_room : 64;
        struct sh_completion *grown = realloc(logs->completed, room * sizeof *grown);
        if (!grown) {
            SH_WARN("node", "out of memory: a request that is repeated may be done twice",
                    SH_U64("number", completion->number));
            return;
        }
        logs->completed = grown;
        logs->completed_room = room;
    }
    logs->completed[logs->completed_count++] = *completion;
}

void sh_logs_completed(struct sh_logs *logs,
                       void (*each)(void *arg, const struct sh_completion *completion), void *arg)
{
    if (!logs)
        return;
    for (size_t i = 0; i < logs->completed_count; i++)
        each(arg, &logs->completed[i]);
    free(logs->completed);
    logs->completed = NULL;
    logs->completed_count = logs->completed_room = 0;
}

/* Brings the chunks back that the own log has. */
static enum shoal_err home_open(struct sh_logs *logs, struct sh_recovered *found)
{
    const struct sh_recover_home home = {.log = logs->log,
                                         .disk = logs->config.env.disk,
                                         .backup = logs->backup,
                                         .store = logs->config.store,
                                         .nid = logs->nid,
                                         .is_nameless = true,
                                         .clock = logs->config.env.clock,
                                         .completed = on_completed,
                                         .arg = logs};
    enum shoal_err err = sh_recover_home_run(&home, found);
    if (!err)
        sh_backup_home_set(logs->backup, logs->log);
    return err;
}

/* Whether the log has zones that this peer has kept by itself. A replica of a zone that a former life of it has made is another peer's by now, in a later
 * incarnation. */
static bool has_own(const struct sh_logs *logs)
{
    struct sh_replog_zone *zone;
    uint64_t above = (uint64_t)(logs->nid.v + 1) << 48;
    while ((zone = sh_replog_zone_below(logs->log, above)) &&
           sh_replog_zone_id(zone) >> 48 == logs->nid.v) {
        if (sh_replog_zone_known(zone).incarnation == SH_HOME_INCARNATION)
            return true;
        above = sh_replog_zone_id(zone);
    }
    return false;
}

/* The chunks are in the logs of others. */
static enum shoal_err peers_open(struct sh_logs *logs, char *detail)
{
    if (has_own(logs)) {
        char text[WHERE_BYTES];
        snprintf(detail, DETAIL_BYTES,
                 "%s has chunks of this peer, which would be lost: start it with replicas_at self",
                 where(logs, text));
        return SHOAL_EINVAL;
    }
    sh_backup_begin(logs->backup);
    return SHOAL_OK;
}

/* The disk that replicas are on is named by the node that it makes (node/identity.h): who has lost it is another node. */
static uint64_t disk_id(shoal_nid nid, uint64_t cluster)
{
    return sh_mix64(cluster ^ (uint64_t)nid.v << 48) | 1;
}

/* The superpeers have admitted this life: from then on they know that the node's former ones are over, and may be asked for zones of these. */
static void joined_look(struct sh_logs *logs)
{
    const struct sh_node *self = sh_view_find(&logs->view, logs->nid);
    if (!self || self->instance != logs->config.life)
        return;
    logs->former.nid = logs->nid;
    if (!logs->first.epoch && sh_view_copy(&logs->first, &logs->view))
        SH_WARN("node", "no memory for the view in which this peer has joined");
}

enum shoal_err sh_logs_make(struct sh_logs *logs, char *detail)
{
    const struct sh_recovered found = {0};
    SH_ASSERT(!logs->log);
    enum shoal_err err = log_open(logs);
    if (err)
        explain(logs, err, &found, detail);
    return err;
}

enum shoal_err sh_logs_open(struct sh_logs *logs, shoal_nid nid, uint64_t cluster, char *detail)
{
    struct sh_recovered found = {0};
    SH_ASSERT(nid.v && !logs->is_open);
    if (!cluster) {
        snprintf(detail, DETAIL_BYTES,
                 "replicas: in a cluster with registry memory a peer that is started again is "
                 "another node, which has none of its chunks");
        return SHOAL_EINVAL;
    }
    logs->nid = nid;
    logs->cluster = cluster;
    sh_backup_nid_set(logs->backup, nid);
    enum shoal_err err = logs->log ? sh_replog_name(logs->log, cluster, nid.v) : log_open(logs);
    if (!err)
        err = sh_logs_is_self(logs) ? home_open(logs, &found) : peers_open(logs, detail);
    if (err) {
        if (!*detail)
            explain(logs, err, &found, detail);
        sh_replog_close(logs->log);
        logs->log = NULL;
        return err;
    }
    logs->is_open = true;
    if (logs->keeper)
        sh_keeper_log_set(logs->keeper, logs->log, disk_id(nid, cluster));
    if (logs->restorer)
        sh_restorer_begin(logs->restorer, logs->log, nid);
    joined_look(logs); /* the view may have come while the log was being opened */
    SH_INFO("node", "the log is open", SH_U64("zones", found.zones), SH_U64("chunks", found.chunks),
            SH_U64("completions", found.completions), SH_U64("bytes", found.payload_bytes));
    return SHOAL_OK;
}

bool sh_logs_is_open(const struct sh_logs *logs)
{
    return logs->is_open;
}

void sh_logs_close(struct sh_logs *logs)
{
    if (!logs)
        return;
    sh_logs_dump_end(&logs->dump);
    sh_replog_close(logs->log);
    free(logs->completed);
    sh_view_destroy(&logs->view);
    sh_view_destroy(&logs->first);
    free(logs);
}

/* --- The cluster ------------------------------------------------------------------------------- */

void sh_logs_view(struct sh_logs *logs, const struct sh_view *view)
{
    enum shoal_err err = sh_view_copy(&logs->view, view);
    enum shoal_err backup_err =
        sh_logs_is_self(logs) ? SHOAL_OK : sh_backup_view(logs->backup, view);
    if (err || backup_err)
        SH_WARN("node", "the view is not known to the peer's logs", SH_ERR(err ? err : backup_err));
    if (logs->keeper)
        sh_keeper_view_changed(logs->keeper);
    joined_look(logs);
}

bool sh_logs_are_former_over(const struct sh_logs *logs)
{
    return !logs || !logs->zones || sh_former_zones_are_over(&logs->former);
}

bool sh_logs_is_opening(const struct sh_logs *logs)
{
    return logs && logs->restorer && sh_restorer_is_opening(logs->restorer);
}

bool sh_logs_is_filling(const struct sh_logs *logs)
{
    return logs && logs->restorer && sh_restorer_is_filling(logs->restorer);
}

bool sh_logs_are_former_lost(const struct sh_logs *logs)
{
    return logs && logs->zones && sh_former_zones_are_lost(&logs->former);
}

void sh_logs_link_event(struct sh_logs *logs, const struct sh_msg_event *event)
{
    if (!sh_logs_is_self(logs))
        sh_backup_link_event(logs->backup, event);
    if (logs->keeper)
        sh_keeper_link_event(logs->keeper, event);
}

/* --- The step ---------------------------------------------------------------------------------- */

static unsigned run(void *arg)
{
    struct sh_logs *logs = arg;
    const struct sh_clock *clock = &logs->config.env.clock;
    uint64_t now_ns = sh_now(clock);
    uint32_t seconds = seconds_now(clock);
    if (!logs->is_open)
        return 0;
    sh_logs_dump_step(&logs->dump, now_ns);
    unsigned work = sh_backup_step(logs->backup, now_ns, seconds);
    if (!sh_logs_is_self(logs)) /* else the backup has */
        work += sh_replog_step(logs->log, now_ns, seconds);
    if (logs->restorer)
        work += sh_restorer_step(logs->restorer, now_ns);
    if (logs->restorer && sh_restorer_is_reading(logs->restorer))
        sh_backup_copies_slow(logs->backup, now_ns + COPIES_SLOW_NS);
    if (logs->zones)
        sh_former_zones_step(&logs->former, now_ns);
    return work + (logs->keeper ? sh_keeper_step(logs->keeper, now_ns) : 0);
}

static uint64_t due_ns(void *arg)
{
    const struct sh_logs *logs = arg;
    if (!logs->is_open)
        return SH_NEVER;
    uint64_t due = sh_backup_due_ns(logs->backup), log_due = sh_replog_due_ns(logs->log);
    uint64_t keeper_due = logs->keeper ? sh_keeper_due_ns(logs->keeper) : SH_NEVER;
    uint64_t dump_due = sh_logs_dump_due_ns(&logs->dump);
    uint64_t restorer_due = logs->restorer ? sh_restorer_due_ns(logs->restorer) : SH_NEVER;
    uint64_t former_due = logs->zones ? sh_former_zones_due_ns(&logs->former) : SH_NEVER;
    if (restorer_due < due)
        due = restorer_due;
    if (former_due < due)
        due = former_due;
    if (log_due < due)
        due = log_due;
    if (dump_due < due)
        due = dump_due;
    return keeper_due < due ? keeper_due : due;
}

struct sh_step sh_logs_step(struct sh_logs *logs)
{
    return (struct sh_step){.name = "log", .run = run, .due_ns = due_ns, .arg = logs};
}

struct sh_step sh_logs_zones_step(struct sh_logs *logs)
{
    return sh_zones_step(logs->zones);
}

/* --- The end ----------------------------------------------------------------------------------- */

static void on_synced(void *arg, enum shoal_err err)
{
    struct sh_logs *logs = arg;
    if (err)
        SH_ERROR("node", "what was written last may be lost", SH_ERR(err));
    atomic_store(&logs->is_synced, true);
}

void sh_logs_sync_begin(struct sh_logs *logs)
{
    sh_write_begin(&logs->last, SH_LEVEL_DURABLE);
    sh_backup_write_all(logs->backup, &logs->last);
    if (!sh_write_wait(logs->backup, &logs->last, on_synced, logs))
        atomic_store(&logs->is_synced, true);
}

bool sh_logs_is_synced(struct sh_logs *logs)
{
    return atomic_load(&logs->is_synced);
}

bool sh_logs_is_repaired(const struct sh_logs *logs)
{
    return !sh_backup_is_damaged(logs->backup);
}

struct sh_logs_told sh_logs_told(struct sh_logs *logs)
{
    if (!logs || !logs->is_open)
        return (struct sh_logs_told){.log = NULL};
    return (struct sh_logs_told){
        .log = logs->log, .backup = logs->backup, .keeper = logs->keeper, .dump = &logs->dump};
}
