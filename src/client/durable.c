/* A store in this process that is found again when it is opened again: its node alone backs up to its own disk
 * (backup/backup.h), in the folder that shoal_options names. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/options.h"
#include "client/names_durable_int.h"
#include "client/service_int.h"
#include "log/replog.h"
#include "recover/home.h"
#include "recover/home_log.h"
#include "recover/log_place.h"

#define LOG_CLUSTER UINT64_C(0x65626d6564646564) /* of no cluster: of a store in a process */
#define CALLS_PAUSE_NS UINT64_C(1000000)
#define REPAIRS_NS UINT64_C(10000000000) /* for which a close waits */

struct sh_durable {
    struct sh_disk *disk;     /* of the folder */
    struct sh_disk *log_disk; /* NULL: the log shares that */
    struct sh_log_place place;
    struct sh_replog *log;
    uint64_t log_least; /* bytes that a new log takes at least */
};

static struct sh_disk *log_disk_of(const struct sh_durable *durable)
{
    return durable->log_disk ? durable->log_disk : durable->disk;
}

/* --- The step ------------------------------------------------------------------------------ */

static void wake(void *arg)
{
    struct shoal *store = arg;
    if (store->crew)
        sh_crew_wake(store->crew, 0);
}

static uint32_t seconds_now(const struct shoal *store)
{
    return (uint32_t)(store->env.clock.wall_ns(store->env.clock.arg) / 1000000000);
}

static unsigned run(void *arg)
{
    struct shoal *store = arg;
    return sh_backup_step(store->backup, sh_now(&store->env.clock), seconds_now(store));
}

static uint64_t due_ns(void *arg)
{
    struct shoal *store = arg;
    return sh_backup_due_ns(store->backup);
}

struct sh_step sh_durable_step(struct shoal *store)
{
    return (struct sh_step){.name = "log", .run = run, .due_ns = due_ns, .arg = store};
}

static unsigned names_run(void *arg)
{
    struct shoal *store = arg;
    return sh_names_step(store->names);
}

static uint64_t names_due_ns(void *arg)
{
    struct shoal *store = arg;
    return sh_names_due_ns(store->names);
}

struct sh_step sh_durable_names_step(struct shoal *store)
{
    return (struct sh_step){
        .name = "names", .run = names_run, .due_ns = names_due_ns, .arg = store};
}

/* --- Opening and closing ------------------------------------------------------------------- */

enum shoal_err sh_embedded_backup(struct shoal *store, const char *data_dir)
{
    const struct sh_backup_config config = {
        .store = store->store,
        .nid = {SH_EMBEDDED_NID},
        .zone_bytes =
            store->durable_sizes.zone_bytes ? store->durable_sizes.zone_bytes : SH_HOME_ZONE_BYTES,
        .window_bytes = data_dir ? SH_HOME_WINDOW_BYTES : 0,
        .wake = wake,
        .arg = store,
    };
    return sh_backup_create(&config, &store->backup);
}

static enum shoal_err log_open(struct shoal *store, uint64_t store_bytes_max)
{
    struct sh_durable *durable = store->durable;
    const struct sh_durable_sizes *sizes = &store->durable_sizes;
    struct sh_disk *disk = log_disk_of(durable);
    const struct sh_home_log home = {.disk = disk,
                                     .random = store->env.random,
                                     .handed = sh_backup_handed,
                                     .durable = sh_backup_durable,
                                     .damaged = sh_backup_damaged,
                                     .scrub_bytes = sizes->scrub_bytes ? sizes->scrub_bytes
                                                                       : SH_HOME_SCRUB_BYTES,
                                     .completions = sh_backup_completions(store->backup),
                                     .arg = store->backup,
                                     .cluster = LOG_CLUSTER,
                                     .nid = {SH_EMBEDDED_NID},
                                     .store_bytes_max = store_bytes_max,
                                     .zone_bytes = sizes->zone_bytes,
                                     .slot_bytes = sizes->slot_bytes,
                                     .bytes_max = sizes->log_bytes_max,
                                     .primary_blocks = sizes->primary_blocks,
                                     .device_bytes = sh_log_place_bytes(&durable->place, disk)};
    durable->log_least = sh_home_log_least(&home);
    enum shoal_err err =
        sh_home_log_open(&home, sh_now(&store->env.clock), seconds_now(store), &durable->log);
    return err ? err : sh_log_place_note(&durable->place, durable->disk);
}

static struct sh_env names_env(const struct shoal *store)
{
    struct sh_env env = store->env;
    env.disk = store->durable->disk;
    return env;
}

static void names_explain(enum shoal_err err, const char *data_dir)
{
    if (err == SHOAL_ECLUSTER)
        sh_client_detail_set(
            "%s has the journal of a superpeer (journal.*): give the store a folder of its own",
            data_dir);
    else if (err == SHOAL_ECORRUPT)
        sh_client_detail_set("the names of the store in %s are damaged (journal.*): put the folder "
                             "back from a copy, or remove these files to lose the names only",
                             data_dir);
    else if (err != SHOAL_OK)
        sh_client_detail_set("the names of the store in %s (journal.*) can't be read or written",
                             data_dir);
}

/* Before anything is written into a folder that may be a node's. */
static enum shoal_err names_check(struct shoal *store, const char *data_dir)
{
    const struct sh_env env = names_env(store);
    enum shoal_err err = sh_names_check(&env);
    names_explain(err, data_dir);
    return err;
}

static enum shoal_err names_open(struct shoal *store, const char *data_dir)
{
    const struct sh_names_config config = {
        .env = names_env(store),
        .state = sh_local_names(store),
        .segment_bytes = store->durable_sizes.names_segment_bytes,
        .bytes_kept = store->durable_sizes.names_bytes_kept,
        .wake = wake,
        .arg = store,
    };
    enum shoal_err err = sh_names_open(&config, &store->names);
    names_explain(err, data_dir);
    return err;
}

/* On a device: what opening the log has found there. True: it has been said. */
static bool explain_device(enum shoal_err err, const struct sh_durable *durable)
{
    const struct sh_log_place *place = &durable->place;
    char least[SH_NUMBER_TEXT_MAX];
    if (place->access != SH_LOG_RAW)
        return false;
    if (err == SHOAL_ENOSPC)
        sh_client_detail_set(
            "log_device %s has too few bytes: a new log takes at least %s, and one "
            "that is there already needs all the bytes that it had when it was made",
            place->path, sh_number_format(durable->log_least, "bytes", least));
    else if (err == SHOAL_EVERSION || err == SHOAL_ECORRUPT)
        sh_client_detail_set(
            "log_device %s has something on it that is no log of this version, and "
            "was left as it is: if it may go, write zeros over its first MiB",
            place->path);
    else if (err == SHOAL_ECLUSTER)
        sh_client_detail_set(
            "log_device %s has the log of a node of a cluster, not of a store in a process",
            place->path);
    else
        return false;
    return true;
}

static void explain(enum shoal_err err, const struct sh_durable *durable, const char *data_dir,
                    const struct sh_recovered *found)
{
    char path[SH_LOG_PATH_MAX + 16];
    bool is_raw = durable->place.access == SH_LOG_RAW;
    snprintf(path, sizeof path, "%.4095s%s", is_raw ? durable->place.path : data_dir,
             is_raw ? "" : "/" SH_HOME_LOG_NAME);
    if (!durable->log && explain_device(err, durable))
        return;
    if (err == SHOAL_EBUSY)
        sh_client_detail_set(
            "%s is in use: another process, or another handle of this one, has the store open",
            data_dir);
    else if (err == SHOAL_ECLUSTER)
        sh_client_detail_set("%s is the log of a node of a cluster, not of a store in a process",
                             path);
    else if (err == SHOAL_ECORRUPT)
        sh_client_detail_set("%s is damaged (zone %llu): see `shoal log verify %s`", path,
                             (unsigned long long)found->zone, data_dir);
    else if (err == SHOAL_EFULL)
        sh_client_detail_set(
            "the store in %s has more than store_bytes_max allows: zone %llu, after %llu chunks",
            data_dir, (unsigned long long)found->zone, (unsigned long long)found->chunks);
    else
        sh_client_detail_set("the store in %s can't be opened", data_dir);
}

static void wakes_stop(struct sh_durable *durable)
{
    if (durable->disk)
        sh_disk_wake_stop(durable->disk);
    if (durable->log_disk)
        sh_disk_wake_stop(durable->log_disk);
}

/* From the start of the crew on the disk is its steps', so it is told before whom to wake. */
static enum shoal_err crew_begin(struct shoal *store)
{
    enum shoal_err err = sh_embedded_crew_make(store, &store->crew);
    if (err != SHOAL_OK)
        return err;
    err = sh_disk_wake_set(store->durable->disk, wake, store);
    if (err == SHOAL_OK)
        err = sh_disk_wake_set(log_disk_of(store->durable), wake, store);
    if (err == SHOAL_OK)
        err = sh_crew_start(store->crew);
    if (err != SHOAL_OK) {
        wakes_stop(store->durable);
        sh_crew_destroy(store->crew);
        store->crew = NULL;
    }
    return err;
}

/* Takes the place of the log from the options. EINVAL, with its detail. */
static enum shoal_err place_take(const struct shoal_options *options,
                                 struct sh_log_place *place_out)
{
    const char *access = options->log_access && *options->log_access ? options->log_access : "auto";
    const char *device = options->log_device ? options->log_device : "";
    struct sh_log_place place = {.path = options->data_dir, .is_nameless = true};
    if (!sh_log_access_of(access, false, &place.access)) {
        sh_client_detail_set("options.log_access is cached, direct or raw, not %s", access);
        return SHOAL_EINVAL;
    }
    bool is_raw = place.access == SH_LOG_RAW;
    size_t size = strlen(device);
    if (is_raw != (size > 0) || (is_raw && *device != '/') || size > SH_LOG_PATH_MAX - 2 ||
        strchr(device, '\n')) {
        sh_client_detail_set(
            "options.log_device is a path from / on, and goes with log_access raw only");
        return SHOAL_EINVAL;
    }
    if (is_raw)
        place.path = device;
    *place_out = place;
    return SHOAL_OK;
}

/* The folder's disk, which is this store's alone from here on, and that of the log. */
static enum shoal_err disks_open(struct shoal *store, const char *data_dir)
{
    struct sh_durable *durable = store->durable;
    char detail[SH_LOG_PLACE_DETAIL] = "";
    enum shoal_err err = sh_real_disk_create(data_dir, false, &durable->disk);
    if (err == SHOAL_OK)
        err = sh_real_disk_take(durable->disk);
    if (err == SHOAL_OK)
        err = names_check(store, data_dir);
    if (err == SHOAL_OK)
        err = sh_log_place_open(&durable->place, durable->disk, &durable->log_disk, detail);
    if (*detail)
        sh_client_detail_set("%s", detail);
    return err;
}

/* Brings the chunks back. */
static enum shoal_err chunks_open(struct shoal *store, struct sh_recovered *found)
{
    struct sh_durable *durable = store->durable;
    const struct sh_recover_home home = {.log = durable->log,
                                         .backup = store->backup,
                                         .store = store->store,
                                         .nid = {SH_EMBEDDED_NID},
                                         .is_nameless = true,
                                         .clock = store->env.clock,
                                         .disk = log_disk_of(durable)};
    return sh_recover_home_run(&home, found);
}

enum shoal_err sh_durable_open(struct shoal *store, const struct shoal_options *options,
                               uint64_t store_bytes_max)
{
    struct sh_recovered found = {0};
    const char *data_dir = options->data_dir;
    struct sh_durable *durable = store->durable = calloc(1, sizeof *durable);
    if (!durable)
        return SHOAL_ENOMEM;
    enum shoal_err err = place_take(options, &durable->place);
    if (err == SHOAL_OK)
        err = disks_open(store, data_dir);
    if (err == SHOAL_OK)
        err = log_open(store, store_bytes_max);
    if (err == SHOAL_OK)
        err = names_open(store, data_dir);
    if (err == SHOAL_OK)
        err = chunks_open(store, &found);
    if (err != SHOAL_OK) {
        if (!*sh_client_detail())
            explain(err, durable, data_dir, &found);
        return err;
    }
    durable->place.path = NULL; /* the caller's */
    sh_backup_home_set(store->backup, durable->log);
    return crew_begin(store);
}

/* None begins any more; those that are under way end as what they wait for comes. */
static void calls_await(struct shoal *store)
{
    /* acquire: what their completions did */
    while (atomic_load_explicit(&store->awaited, memory_order_acquire)) {
        struct sh_waiter pause = {0};
        (void)sh_crew_wait(store->crew, 0, &pause, sh_now(&store->env.clock) + CALLS_PAUSE_NS);
    }
}

/* The store writes chunks whose zone is damaged in the log once more, while it has them: an open would refuse the log. */
static void repairs_await(struct shoal *store)
{
    uint64_t end_ns = sh_now(&store->env.clock) + REPAIRS_NS;
    while (sh_backup_is_damaged(store->backup) && sh_now(&store->env.clock) < end_ns) {
        struct sh_waiter pause = {0};
        (void)sh_crew_wait(store->crew, 0, &pause, sh_now(&store->env.clock) + CALLS_PAUSE_NS);
    }
    if (sh_backup_is_damaged(store->backup))
        SH_ERROR("client", "a damaged zone of the log is not repaired: see `shoal log verify`");
}

void sh_durable_sync(struct shoal *store)
{
    if (!store->durable || !store->crew)
        return;
    calls_await(store);
    struct sh_write write;
    struct sh_metadata_result none;
    repairs_await(store);
    sh_write_begin(&write, SH_LEVEL_DURABLE);
    sh_backup_write_all(store->backup, &write);
    enum shoal_err err = sh_embedded_settle(store, &write);
    enum shoal_err names_err = sh_local_names_run(store, NULL, &none);
    if (names_err != SHOAL_OK)
        SH_ERROR("client", "names that were set last may be lost", SH_ERR(names_err));
    if (err != SHOAL_OK)
        SH_ERROR("client", "what was written last may be lost", SH_ERR(err));
}

void sh_durable_quiet(struct shoal *store)
{
    if (store->durable)
        wakes_stop(store->durable);
    sh_names_close(store->names);
    store->names = NULL;
}

void sh_durable_close(struct shoal *store)
{
    struct sh_durable *durable = store->durable;
    if (!durable)
        return;
    sh_replog_close(durable->log);
    if (durable->log_disk)
        durable->log_disk->ops->destroy(durable->log_disk);
    if (durable->disk)
        durable->disk->ops->destroy(durable->disk);
    free(durable);
    store->durable = NULL;
}
