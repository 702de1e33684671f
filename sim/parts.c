#include "sim/parts.h"

#include <stdio.h>

#include "base/assert.h"

#define SECOND_NS UINT64_C(1000000000)
#define CACHE_RANGES_MAX 8
#define STORE_BYTES_MAX (16 << 20)
#define LOCKS_MAX 1024
#define WAITERS_MAX 64

static void must(enum shoal_err err)
{
    SH_ASSERT(err == SHOAL_OK);
}

static void wake_nobody(void *arg)
{
    (void)arg;
}

struct sh_msg_config sh_sim_msg_config(const struct sh_env *env)
{
    return (struct sh_msg_config){.cluster = "test",
                                  .requests_max = 256,
                                  .ring_bytes = 65536,
                                  .payload_bytes_max = 1 << 20,
                                  .request_timeout_ns = SECOND_NS,
                                  .connect_timeout_ns = SECOND_NS / 2,
                                  .env = *env,
                                  .wake_transport = wake_nobody,
                                  .wake_handlers = wake_nobody};
}

void sh_sim_parts_talk(const struct sh_sim_parts *parts, const struct sh_msg_config *config,
                       struct sh_world *sim, unsigned node, char *bound_out)
{
    must(sh_msg_create(config, parts->msg));
    char address[SH_MSG_ADDRESS_MAX];
    (void)snprintf(address, sizeof address, "node%u:1", node);
    if (bound_out)
        must(sh_msg_listen(*parts->msg, address, bound_out));
    sh_world_step_add(sim, node, sh_msg_transport_step(*parts->msg));
    sh_world_step_add(sim, node, sh_msg_handler_step(*parts->msg));
}

void sh_sim_parts_know(const struct sh_sim_parts *parts, const struct sh_env *env, bool is_client)
{
    struct sh_directory_config config = {.msg = *parts->msg,
                                         .clock = env->clock,
                                         .cache_ranges_max = CACHE_RANGES_MAX,
                                         .is_client = is_client};
    must(sh_directory_create(&config, parts->directory));
}

void sh_sim_parts_hold(const struct sh_sim_parts *parts, const struct sh_env *env,
                       uint32_t chunk_bytes_max)
{
    struct sh_store_config stored = {.bytes_max = STORE_BYTES_MAX,
                                     .chunk_bytes_max = chunk_bytes_max};
    must(sh_store_create(&stored, parts->store));
    const struct sh_backup_config backed = {.store = *parts->store};
    must(sh_backup_create(&backed, parts->backup));
    const struct sh_chunks_config served = {.msg = *parts->msg,
                                            .store = *parts->store,
                                            .backup = *parts->backup,
                                            .chunk_bytes_max = chunk_bytes_max};
    must(sh_chunks_create(&served, parts->chunks));
    struct sh_locks_config locks = {.msg = *parts->msg,
                                    .store = *parts->store,
                                    .backup = *parts->backup,
                                    .helds = sh_chunks_helds(*parts->chunks),
                                    .holdings = sh_chunks_holdings(*parts->chunks),
                                    .clock = env->clock,
                                    .seed = sh_random64(&env->random),
                                    .locks_max = LOCKS_MAX,
                                    .waiters_max = WAITERS_MAX,
                                    .wake = wake_nobody};
    must(sh_locks_create(&locks, parts->locks));
    sh_chunks_remover_set(*parts->chunks, sh_locks_remove, *parts->locks);
    struct sh_moves_config moves = {.msg = *parts->msg,
                                    .store = *parts->store,
                                    .backup = *parts->backup,
                                    .chunks = *parts->chunks,
                                    .locks = *parts->locks,
                                    .directory = *parts->directory,
                                    .clock = env->clock,
                                    .are_former_over = parts->are_former_over,
                                    .are_former_lost = parts->are_former_lost,
                                    .arg = parts->arg};
    must(sh_moves_create(&moves, parts->moves));
}

void sh_sim_parts_drop(const struct sh_sim_parts *parts, bool is_client)
{
    sh_moves_destroy(*parts->moves);
    sh_member_destroy(*parts->member);
    sh_superpeer_destroy(*parts->superpeer);
    *parts->moves = NULL;
    *parts->member = NULL;
    *parts->superpeer = NULL;
    struct sh_locks *locks = *parts->locks;
    *parts->locks = NULL; /* msg's last events are not for them */
    if (is_client)
        sh_msg_destroy(*parts->msg);
    sh_directory_destroy(*parts->directory);
    if (!is_client)
        sh_msg_destroy(*parts->msg);
    sh_chunks_destroy(*parts->chunks);
    sh_locks_destroy(locks);
    sh_backup_destroy(*parts->backup);
    sh_store_destroy(*parts->store);
    *parts->directory = NULL;
    *parts->msg = NULL;
    *parts->chunks = NULL;
    *parts->backup = NULL;
    *parts->store = NULL;
}
