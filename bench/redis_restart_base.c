#include "bench/redis_restart_base.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "bench/cluster.h"
#include "bench/filled.h"
#include "bench/redis_client.h"
#include "bench/redis_server.h"

#define KEY_FIRST UINT64_C(10000000) /* 8 digits */
#define ROUND 256                    /* commands of one send; two rounds are in flight */
#define IN_BYTES (UINT32_C(1) << 20) /* and a value */
#define WAIT_S 60
#define LOAD_NS UINT64_C(600000000000) /* in which it has written its base, or loaded it */

struct client {
    const struct sh_filled *filled;
    struct sh_redis_client redis;
    uint8_t *out; /* a round */
    uint8_t *expected;
    bool sets; /* else it reads */
    uint64_t sent, answered;
};

/* --- All objects, set or read ------------------------------------------------------------------ */

static enum shoal_err round_send(struct client *client)
{
    uint8_t *at = client->out, *value;
    const struct sh_filled *filled = client->filled;
    for (unsigned i = 0; i < ROUND && client->sent < filled->count; i++, client->sent++) {
        uint32_t size = sh_filled_size(filled, client->sent);
        if (!client->sets) {
            at = sh_resp_get(at, KEY_FIRST + client->sent);
            continue;
        }
        at = sh_resp_set(at, KEY_FIRST + client->sent, size, &value);
        sh_filled_bytes(filled, client->sent, value, size);
    }
    return sh_redis_client_send(&client->redis, client->out, (size_t)(at - client->out));
}

/* Whether that is the answer to the oldest command that has none. */
static enum shoal_err reply_check(const struct client *client, const struct sh_resp *reply)
{
    uint32_t size = sh_filled_size(client->filled, client->answered);
    if (reply->kind != (client->sets ? SH_RESP_STATUS : SH_RESP_BULK) ||
        client->answered == client->sent) {
        SH_ERROR("bench", "unexpected reply from the Redis server",
                 SH_U64("kind", (uint64_t)reply->kind));
        return SHOAL_EPROTO;
    }
    if (client->sets)
        return SHOAL_OK;
    sh_filled_bytes(client->filled, client->answered, client->expected, size);
    if (reply->bytes.size == size && memcmp(reply->bytes.at, client->expected, size) == 0)
        return SHOAL_OK;
    SH_ERROR("bench", "an object of the Redis server does not hold what was written",
             SH_U64("key", client->answered));
    return SHOAL_EDIFFERS;
}

static enum shoal_err reply_take(void *arg, const struct sh_resp *reply)
{
    struct client *client = arg;
    enum shoal_err err = reply_check(client, reply);
    client->answered += !err;
    return err;
}

static enum shoal_err objects_run(struct client *client, bool sets)
{
    enum shoal_err err = SHOAL_OK;
    client->sets = sets;
    client->sent = client->answered = 0;
    while (!err && client->answered < client->filled->count) {
        bool may_send = client->sent < client->filled->count;
        if (may_send && client->sent - client->answered <= ROUND)
            err = round_send(client);
        else
            err = sh_redis_client_take(&client->redis, reply_take, client);
    }
    return err;
}

/* --- Other commands ---------------------------------------------------------------------------- */

/* Waits until no base is being written, or about to be. */
static enum shoal_err base_await(const struct client *client)
{
    char answer[8192];
    uint64_t deadline_ns = sh_bench_now_ns() + LOAD_NS;
    do {
        (void)poll(NULL, 0, 20);
        enum shoal_err err =
            sh_redis_client_ask(&client->redis, "INFO persistence\r\n", answer, sizeof answer);
        if (err)
            return err;
        if (strstr(answer, "aof_rewrite_in_progress:0") &&
            strstr(answer, "aof_rewrite_scheduled:0"))
            return strstr(answer, "aof_last_bgrewrite_status:ok") ? SHOAL_OK : SHOAL_EIO;
    } while (sh_bench_now_ns() < deadline_ns);
    return SHOAL_ETIMEOUT;
}

/* Has the server write a base of all objects. It may be writing another one, of those that it had when its file had doubled. */
static enum shoal_err base_write(const struct client *client)
{
    char answer[128];
    enum shoal_err err = base_await(client);
    if (!err)
        err = sh_redis_client_ask(&client->redis, "BGREWRITEAOF\r\n", answer, sizeof answer);
    if (!err && answer[0] != '+')
        err = SHOAL_EPROTO;
    if (!err)
        err = base_await(client);
    if (err)
        SH_ERROR("bench", "the Redis server has not rewritten its file", SH_ERR(err));
    return err;
}

static enum shoal_err count_check(const struct client *client)
{
    char answer[64];
    enum shoal_err err = sh_redis_client_ask(&client->redis, "DBSIZE\r\n", answer, sizeof answer);
    if (err || (answer[0] == ':' && strtoull(answer + 1, NULL, 10) == client->filled->count))
        return err;
    SH_ERROR("bench", "the Redis server does not have all objects", SH_TEXT("answer", answer));
    return SHOAL_EDIFFERS;
}

static void client_end(struct client *client)
{
    sh_redis_client_close(&client->redis);
    free(client->out);
    free(client->expected);
    client->out = client->expected = NULL;
}

static enum shoal_err client_begin(struct client *client, const struct sh_filled *filled,
                                   uint16_t port)
{
    size_t most = filled->sizes.most;
    *client = (struct client){.filled = filled,
                              .redis = {.fd = -1},
                              .out = malloc(ROUND * SH_RESP_COMMAND_BYTES(1, most)),
                              .expected = malloc(most + 1)};
    if (!client->out || !client->expected)
        return SHOAL_ENOMEM;
    return sh_redis_client_open(&client->redis, port, IN_BYTES + most, WAIT_S);
}

/* --- A run ------------------------------------------------------------------------------------- */

/* Writes all files below that folder to the disk, and takes them out of the page cache. */
static void folder_cool(const char *folder)
{
    char path[512];
    DIR *directory = opendir(folder);
    struct dirent *entry;
    while (directory && (entry = readdir(directory))) {
        int size = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] == '.' || size < 0 || (size_t)size >= sizeof path)
            continue;
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (entry->d_type == DT_DIR)
            folder_cool(path);
        else if (fd >= 0 && fsync(fd) == 0)
            (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        if (fd >= 0)
            close(fd);
    }
    if (directory)
        closedir(directory);
}

static void server_kill(struct sh_child *server)
{
    if (server->pid > 0)
        (void)kill(server->pid, SIGKILL);
    sh_child_stop(server);
}

/* Leaves the files of a server that had all objects, and was killed. */
static enum shoal_err files_make(const struct sh_filled *filled, const char *folder)
{
    struct sh_child server = {.pid = 0};
    struct client client = {.redis = {.fd = -1}};
    enum shoal_err err =
        sh_redis_server_start_logged(SH_PLACE_FREE, folder, SH_REDIS_START_NS, &server);
    if (!err)
        err = client_begin(&client, filled, server.port);
    if (!err)
        err = objects_run(&client, true);
    if (!err)
        err = base_write(&client);
    client_end(&client);
    server_kill(&server);
    folder_cool(folder);
    return err;
}

static enum shoal_err restart_measure(const struct sh_filled *filled, const char *folder,
                                      struct sh_bench_result *result)
{
    struct sh_child server = {.pid = 0};
    struct client client = {.redis = {.fd = -1}};
    uint64_t begin_ns = sh_bench_now_ns();
    enum shoal_err err = sh_redis_server_start_logged(SH_PLACE_FREE, folder, LOAD_NS, &server);
    result->seconds = (double)(sh_bench_now_ns() - begin_ns) / 1e9;
    result->cpu_ns = sh_child_cpu_ns(&server);
    if (!err)
        err = client_begin(&client, filled, server.port);
    if (!err)
        err = count_check(&client);
    if (!err)
        err = objects_run(&client, false);
    client_end(&client);
    server_kill(&server);
    return err;
}

enum shoal_err sh_redis_restart_base_run(void *arg, const struct sh_bench_flags *flags,
                                         enum sh_placement placement,
                                         struct sh_bench_result *result_out)
{
    const struct sh_redis_restart *restart = arg;
    struct sh_filled filled = {.count = restart->count, .seed = restart->seed};
    char folder[256];
    (void)flags;
    (void)placement;
    SH_ASSERT(restart->count && restart->size);
    sh_sizes_init(&filled.sizes, NULL, restart->size);
    enum shoal_err err = sh_bench_folder_make_in(restart->above, "redis", folder, sizeof folder);
    if (err)
        return err;
    err = files_make(&filled, folder);
    if (!err)
        err = restart_measure(&filled, folder, result_out);
    result_out->ops = restart->count;
    result_out->bytes = result_out->digest = restart->count * restart->size;
    sh_bench_folder_remove(folder);
    return err;
}
