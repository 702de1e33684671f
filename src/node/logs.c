#include "node/logs.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "recover/home.h"
#include "recover/home_log.h"

#define DETAIL_BYTES 256

struct sh_logs {
    struct sh_logs_config config;
    struct sh_replog *log; /* NULL: it is not open yet */
    struct sh_write last;  /* all that was written before the end */
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

uint64_t sh_logs_window(const struct sh_options *options)
{
    return options->replicas ? SH_HOME_WINDOW_BYTES : 0;
}

/* --- Opening it -------------------------------------------------------------------------------- */

/* Whether data_dir has a log, though the peer is to have none. */
static bool has_log(struct sh_disk *disk)
{
    int file;
    if (!disk || sh_disk_open(disk, SH_HOME_LOG_NAME, false, &file) != SHOAL_OK)
        return false;
    disk->ops->close(disk, file);
    return true;
}

enum shoal_err sh_logs_create(const struct sh_logs_config *config, struct sh_logs **logs_out,
                              char *detail)
{
    *logs_out = NULL;
    if (!config->options->replicas && has_log(config->env.disk)) {
        snprintf(detail, DETAIL_BYTES,
                 "data_dir has the log of this peer's chunks (" SH_HOME_LOG_NAME
                 "): start it with replicas 1; or remove the file, and these chunks are lost");
        return SHOAL_EINVAL;
    }
    if (!config->options->replicas)
        return SHOAL_OK;
    if (!config->env.disk) {
        snprintf(detail, DETAIL_BYTES,
                 "replicas %" PRIu64 ": a peer that keeps its chunks in a log needs a data_dir",
                 config->options->replicas);
        return SHOAL_EINVAL;
    }
    if (config->options->replicas > 1)
        SH_WARN("node", "of the replicas there is one by now, in data_dir",
                SH_U64("wanted", config->options->replicas));
    struct sh_logs *logs = calloc(1, sizeof *logs);
    if (!logs)
        return SHOAL_ENOMEM;
    logs->config = *config;
    *logs_out = logs;
    return SHOAL_OK;
}

static void explain(enum shoal_err err, shoal_nid nid, const struct sh_recovered *found,
                    char *detail)
{
    if (err == SHOAL_ECLUSTER)
        snprintf(detail, DETAIL_BYTES,
                 SH_HOME_LOG_NAME " in data_dir is the log of another node than node %u of this "
                                  "cluster: give this peer a folder of its own",
                 nid.v);
    else if (err == SHOAL_ECORRUPT)
        snprintf(detail, DETAIL_BYTES,
                 SH_HOME_LOG_NAME " in data_dir is damaged (zone %" PRIu64
                                  "): see `shoal log verify`; remove it to lose all chunks",
                 found->zone);
    else if (err == SHOAL_EFULL || err == SHOAL_ETOOBIG)
        snprintf(detail, DETAIL_BYTES,
                 "the chunks of " SH_HOME_LOG_NAME " are more, or larger, than store_bytes_max and "
                 "chunk_bytes_max allow: zone %" PRIu64 ", after %" PRIu64 " chunks",
                 found->zone, found->chunks);
    else if (err == SHOAL_EINVAL)
        snprintf(detail, DETAIL_BYTES,
                 "log_bytes_max is not enough for two zones of zone_bytes and what is moved in "
                 "cleaning");
    else
        snprintf(detail, DETAIL_BYTES, SH_HOME_LOG_NAME " in data_dir: %s", shoal_err_text(err));
}

static enum shoal_err log_open(struct sh_logs *logs, shoal_nid nid, uint64_t cluster)
{
    const struct sh_options *options = logs->config.options;
    const struct sh_env *env = &logs->config.env;
    const struct sh_home_log home = {.disk = env->disk,
                                     .random = env->random,
                                     .backup = logs->config.backup,
                                     .cluster = cluster,
                                     .nid = nid,
                                     .store_bytes_max = options->store_bytes_max,
                                     .zone_bytes = options->zone_bytes,
                                     .slot_bytes = (uint32_t)options->log_segment_bytes,
                                     .bytes_max = options->log_bytes_max};
    return sh_home_log_open(&home, sh_now(&env->clock), seconds_now(&env->clock), &logs->log);
}

enum shoal_err sh_logs_open(struct sh_logs *logs, shoal_nid nid, uint64_t cluster, char *detail)
{
    struct sh_recovered found = {0};
    SH_ASSERT(nid.v && !logs->log);
    if (!cluster) {
        snprintf(detail, DETAIL_BYTES,
                 "replicas: in a cluster with registry memory a peer that is started again is "
                 "another node, which has none of its chunks");
        return SHOAL_EINVAL;
    }
    sh_backup_nid_set(logs->config.backup, nid);
    enum shoal_err err = log_open(logs, nid, cluster);
    if (!err) {
        const struct sh_recover_home home = {.log = logs->log,
                                             .disk = logs->config.env.disk,
                                             .backup = logs->config.backup,
                                             .store = logs->config.store,
                                             .nid = nid,
                                             .is_nameless = true,
                                             .clock = logs->config.env.clock};
        err = sh_recover_home_run(&home, &found);
    }
    if (err) {
        explain(err, nid, &found, detail);
        sh_replog_close(logs->log);
        logs->log = NULL;
        return err;
    }
    sh_backup_home_set(logs->config.backup, logs->log);
    SH_INFO("node", "the log is open", SH_U64("zones", found.zones), SH_U64("chunks", found.chunks),
            SH_U64("bytes", found.payload_bytes));
    return SHOAL_OK;
}

bool sh_logs_is_open(const struct sh_logs *logs)
{
    return logs->log != NULL;
}

void sh_logs_close(struct sh_logs *logs)
{
    if (!logs)
        return;
    sh_replog_close(logs->log);
    free(logs);
}

/* --- The step ---------------------------------------------------------------------------------- */

static unsigned run(void *arg)
{
    const struct sh_logs *logs = arg;
    const struct sh_clock *clock = &logs->config.env.clock;
    return logs->log ? sh_backup_step(logs->config.backup, sh_now(clock), seconds_now(clock)) : 0;
}

static uint64_t due_ns(void *arg)
{
    const struct sh_logs *logs = arg;
    return logs->log ? sh_backup_due_ns(logs->config.backup) : SH_NEVER;
}

struct sh_step sh_logs_step(struct sh_logs *logs)
{
    return (struct sh_step){.name = "log", .run = run, .due_ns = due_ns, .arg = logs};
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
    sh_backup_write_all(logs->config.backup, &logs->last);
    if (!sh_write_wait(logs->config.backup, &logs->last, on_synced, logs))
        atomic_store(&logs->is_synced, true);
}

bool sh_logs_is_synced(struct sh_logs *logs)
{
    return atomic_load(&logs->is_synced);
}
