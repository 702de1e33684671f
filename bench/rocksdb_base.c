#include "bench/rocksdb_base.h"

#include "base/log.h"

#ifdef SHOAL_HAS_ROCKSDB

#include <rocksdb/c.h>
#include <stdio.h>

#include "bench/cluster.h"

#define CLOCK_EVERY 64
#define PATH_BYTES 512

struct rocks {
    const struct sh_log_plan *plan;
    rocksdb_t *db;
    rocksdb_options_t *options;
    rocksdb_writeoptions_t *write;
    char path[PATH_BYTES];
};

/* Takes the text; says whether there was one. */
static enum shoal_err failed(char *text)
{
    if (!text)
        return SHOAL_OK;
    SH_ERROR("bench", "RocksDB failed", SH_TEXT("cause", text));
    rocksdb_free(text);
    return SHOAL_EIO;
}

static enum shoal_err rocks_open(struct rocks *rocks)
{
    char *text = NULL;
    snprintf(rocks->path, sizeof rocks->path, "%s/rocksdb", rocks->plan->folder);
    rocks->options = rocksdb_options_create();
    rocks->write = rocksdb_writeoptions_create();
    rocksdb_options_set_create_if_missing(rocks->options, 1);
    rocks->db = rocksdb_open(rocks->options, rocks->path, &text);
    return failed(text);
}

static void rocks_close(struct rocks *rocks)
{
    if (rocks->db)
        rocksdb_close(rocks->db);
    rocksdb_writeoptions_destroy(rocks->write);
    rocksdb_options_destroy(rocks->options);
    sh_bench_folder_remove(rocks->path);
}

static enum shoal_err put(const struct rocks *rocks, const struct sh_log_target *target,
                          struct sh_bytes payload)
{
    uint8_t key[8];
    char *text = NULL;
    sh_store64(key, __builtin_bswap64(sh_log_key(rocks->plan, target))); /* in their order */
    rocksdb_put(rocks->db, rocks->write, (const char *)key, sizeof key, (const char *)payload.at,
                payload.size, &text);
    return failed(text);
}

static enum shoal_err drawn_put(const struct rocks *rocks, struct sh_log_draws *draws,
                                uint64_t deadline_ns)
{
    struct sh_log_target target;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_log_draw(draws, &target)) {
        err = put(rocks, &target, sh_log_payload(draws));
        if (draws->drawn % CLOCK_EVERY == 0 && sh_bench_now_ns() >= deadline_ns)
            break;
    }
    return err;
}

static enum shoal_err rocks_measure(const struct rocks *rocks, struct sh_bench_result *result_out)
{
    const struct sh_log_plan *plan = rocks->plan;
    struct sh_log_draws draws;
    char *text = NULL;
    enum shoal_err err = SHOAL_OK;
    sh_log_draws_init(&draws, plan, true);
    if (plan->what != SH_LOG_LOAD)
        err = drawn_put(rocks, &draws, UINT64_MAX);
    if (err)
        return err;
    sh_log_draws_init(&draws, plan, false);
    uint64_t begin_ns = sh_bench_now_ns(), cpu_ns = sh_bench_cpu_ns();
    err = drawn_put(rocks, &draws, sh_log_plan_deadline_ns(plan, begin_ns));
    if (err)
        return err;
    rocksdb_flush_wal(rocks->db, 1, &text);
    result_out->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result_out->cpu_ns = sh_bench_cpu_ns() - cpu_ns;
    result_out->ops = draws.drawn;
    result_out->bytes = draws.drawn * plan->size;
    result_out->digest = draws.digest;
    return failed(text);
}

enum shoal_err sh_rocksdb_base_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    struct rocks rocks = {.plan = arg};
    (void)flags;
    sh_bench_pin(placement, 0);
    enum shoal_err err = rocks_open(&rocks);
    if (!err)
        err = rocks_measure(&rocks, result_out);
    rocks_close(&rocks);
    return err;
}

#else

enum shoal_err sh_rocksdb_base_run(void *arg, const struct sh_bench_flags *flags,
                                   enum sh_placement placement, struct sh_bench_result *result_out)
{
    (void)arg;
    (void)flags;
    (void)placement;
    (void)result_out;
    SH_ERROR("bench", "shoal was built without this library; install its package and build again",
             SH_TEXT("library", "rocksdb"), SH_TEXT("package", "librocksdb-dev"));
    return SHOAL_EINVAL;
}

#endif
