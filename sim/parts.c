#include "sim/parts.h"

#include "base/assert.h"

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

void sh_sim_parts_hold(const struct sh_sim_parts *parts, const struct sh_env *env,
                       uint32_t chunk_bytes_max)
{
    struct sh_store_config stored = {.bytes_max = STORE_BYTES_MAX,
                                     .chunk_bytes_max = chunk_bytes_max};
    must(sh_store_create(&stored, parts->store));
    must(sh_chunks_create(*parts->msg, *parts->store, chunk_bytes_max, parts->chunks));
    struct sh_locks_config locks = {.msg = *parts->msg,
                                    .store = *parts->store,
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
                                    .chunks = *parts->chunks,
                                    .locks = *parts->locks,
                                    .directory = *parts->directory,
                                    .clock = env->clock};
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
    sh_store_destroy(*parts->store);
    *parts->directory = NULL;
    *parts->msg = NULL;
    *parts->chunks = NULL;
    *parts->store = NULL;
}
