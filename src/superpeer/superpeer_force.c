/* A majority of the superpeers is lost for good: one of the survivors is made the only superpeer of a
 * cluster that goes on from its folder. That is done to the folder, while no node runs on it:
 *
 *   the registry's log   gets another ID, so that its former members are strangers to it, the survivor
 *                        as its only member, and behind all that it holds the command FORCE
 *   FORCE, once applied  the other superpeers have left, and all shards are without replicas
 *                        (registry_shared.c); so the survivor's copies are salvaged like any old
 *                        ones (superpeer_salvage.c)
 *
 * Entries of the log that were perhaps never committed stay: which of them were, the lost members
 * alone could tell. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft.h"
#include "superpeer/superpeer_shared_int.h"

#define COMMAND_BYTES_MAX 64
#define SNAPSHOT_ENTRIES 1024
#define PIECE_BYTES 16384
#define TIME_MAX_NS UINT64_C(60000000000) /* of the disk */

struct forcing {
    struct sh_env env;
    const char *cluster;
    struct sh_raft *raft;
    struct sh_journal *journal;
    shoal_nid nid;
    bool has_started; /* by the registry: it has ever taken part in the ring */
};

/* --- What is read ---------------------------------------------------------------------------- */

/* The registry itself is not needed; but it must be this cluster's. */
static enum shoal_err image_get(void *arg, struct sh_bytes image)
{
    struct forcing *forcing = arg;
    uint64_t now_ns = sh_now(&forcing->env.clock), sequence;
    struct sh_registry_config config = {.cluster = forcing->cluster, .failure_ns = 1};
    struct sh_registry *registry;
    enum shoal_err err = sh_registry_image_check(image, &sequence);
    if (err)
        return err;
    err = sh_registry_create(&config, &registry);
    if (err)
        return err;
    err = sh_registry_image_load(registry, now_ns, image);
    if (!err)
        forcing->has_started = sh_registry_arcs(registry)->lives[forcing->nid.v];
    sh_registry_destroy(registry);
    return err;
}

/* Nothing is applied here, so there is never a later state than what was read. */
static void no_apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)command;
    SH_ASSERT(false);
}

static size_t no_size(void *arg)
{
    (void)arg;
    SH_ASSERT(false);
    return 0;
}

static void no_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    (void)w;
    SH_ASSERT(false);
}

/* What was read of the shards is not kept, so it can't be written again: its segments stay. */
static bool no_snapshot(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    (void)index_out;
    (void)term_out;
    return false;
}

/* --- Forcing --------------------------------------------------------------------------------- */

static enum shoal_err journal_open(struct forcing *forcing, unsigned nid)
{
    struct sh_journal_stream streams[SH_JOURNAL_STREAMS_MAX];
    char label[SH_JOURNAL_LABEL_BYTES_MAX];
    struct sh_journal_config config = {.env = forcing->env, .streams = streams};
    config.label = sh_superpeer_journal_label(nid, label);
    config.streams_count = sh_superpeer_journal_streams();
    for (unsigned i = 0; i < config.streams_count; i++)
        streams[i] = (struct sh_journal_stream){.snapshot_begin = no_snapshot};
    streams[SH_SUPERPEER_REGISTRY_STREAM] = sh_raft_stream(forcing->raft);
    return sh_journal_open(&config, &forcing->journal);
}

/* Waits until all is on the disk. */
static enum shoal_err synced_await(struct forcing *forcing)
{
    uint64_t start_ns = sh_now(&forcing->env.clock), now_ns = start_ns;
    struct sh_disk *disk = forcing->env.disk;
    while (sh_journal_synced(forcing->journal) < sh_journal_last(forcing->journal)) {
        unsigned work = sh_journal_step(forcing->journal, now_ns);
        enum shoal_err err = sh_journal_trouble(forcing->journal);
        now_ns = sh_now(&forcing->env.clock);
        if (err)
            return err;
        if (now_ns - start_ns > TIME_MAX_NS)
            return SHOAL_ETIMEOUT;
        if (!work)
            (void)disk->ops->poll(disk, true);
    }
    return SHOAL_OK;
}

/* Whether the survivor has ever begun on this disk, by the image and the entries behind it: the registry
 * goes on with none that has not. */
static bool has_started(const struct forcing *forcing)
{
    bool found = forcing->has_started;
    for (uint64_t i = sh_raft_applied(forcing->raft) + 1; i <= sh_raft_last(forcing->raft); i++) {
        uint64_t term;
        struct sh_bytes bytes;
        struct sh_command command;
        found |= sh_raft_entry(forcing->raft, i, &term, &bytes) && bytes.size &&
                 sh_command_get(bytes, &command) && command.kind == SH_COMMAND_RING &&
                 command.nid.v == forcing->nid.v;
    }
    return found;
}

static enum shoal_err force(struct forcing *forcing)
{
    uint8_t bytes[COMMAND_BYTES_MAX];
    struct sh_command command = {.kind = SH_COMMAND_FORCE,
                                 .nid = forcing->nid,
                                 .instance = sh_random64(&forcing->env.random) | 1};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_command_put(&w, &command);
    SH_ASSERT(sh_writer_ok(&w));
    enum shoal_err err =
        sh_raft_force(forcing->raft, forcing->journal, SH_SUPERPEER_REGISTRY_STREAM,
                      sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    return err ? err : synced_await(forcing);
}

enum shoal_err sh_superpeer_force(const struct sh_env *env, const char *cluster,
                                  uint16_t *index_out)
{
    struct forcing forcing = {.env = *env, .cluster = cluster};
    uint16_t index;
    SH_ASSERT(env->disk);
    enum shoal_err err = sh_superpeer_stored(env, &index);
    if (err)
        return err;
    forcing.nid.v = (uint16_t)(index + 1);
    struct sh_raft_config config = {
        .server = (uint8_t)(index + 1),
        .first = {.voters = UINT64_C(1) << (index + 1)},
        .election_ns = 2, /* no time passes */
        .heartbeat_ns = 1,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = PIECE_BYTES,
        .seed = sh_random64(&env->random),
        .fsm = {no_apply, no_size, no_put, image_get, &forcing},
    };
    err = sh_raft_create(&config, &forcing.raft);
    if (!err)
        err = journal_open(&forcing, index + 1u);
    if (!err && !sh_raft_is_new(forcing.raft) && !has_started(&forcing))
        err = SHOAL_ENONODE;
    if (!err)
        err = force(&forcing);
    sh_journal_close(forcing.journal);
    sh_raft_destroy(forcing.raft);
    if (!err)
        *index_out = index;
    return err;
}
