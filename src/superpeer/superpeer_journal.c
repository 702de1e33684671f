/* A superpeer's journal: whose it is, which of its streams is what, and the count of its starts.
 *
 *   stream 0           the registry's log (raft.h); empty if the registry is elsewhere
 *   streams 1 to 64    the shards of the ring (ring.h)
 *   stream 65          the identity: u32 how often a process has begun on this disk */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal.h"
#include "superpeer/superpeer_ring_int.h"

#define REGISTRY SH_SUPERPEER_REGISTRY_STREAM
#define FIRST_SHARD 1
#define IDENTITY (FIRST_SHARD + SH_SHARDS)
#define MEMORY_SEGMENT (512u << 10) /* bytes, of a journal on a disk in memory */
#define LABEL "superpeer "
/* What the registry was in before there was a journal. */
#define OLD_NAME "raft.log"

_Static_assert(IDENTITY < SH_JOURNAL_STREAMS_MAX, "the journal has that many streams");

/* --- The identity ---------------------------------------------------------------------------- */

static enum shoal_err starts_load(void *arg, struct sh_bytes state)
{
    struct sh_superpeer *superpeer = arg;
    if (state.size != 4 || sh_load32(state.at) == UINT32_MAX)
        return SHOAL_ECORRUPT;
    superpeer->life = (uint64_t)sh_load32(state.at) << 32;
    return SHOAL_OK;
}

static void starts_store(struct sh_superpeer *superpeer)
{
    uint8_t starts[4];
    sh_store32(starts, sh_life_starts(superpeer->life));
    superpeer->life_lsn =
        sh_journal_state_set(superpeer->journal, IDENTITY, sh_bytes_make(starts, sizeof starts));
}

/* A process begins: its life is one start more, and random bits that no copy of the disk has. On a new
 * disk, or one in memory, it has the random bits only: the registry counts on from what it knows. */
static void life_begin(struct sh_superpeer *superpeer)
{
    uint32_t random = (uint32_t)sh_random64(&superpeer->env.random) | 1;
    if (!sh_life_starts(superpeer->life)) {
        superpeer->life = random;
        return;
    }
    superpeer->life = ((superpeer->life >> 32) + 1) << 32 | random;
    starts_store(superpeer);
}

void sh_superpeer_journal_adopt(struct sh_superpeer *superpeer, uint64_t life)
{
    SH_ASSERT(!sh_life_starts(superpeer->life) && (uint32_t)life == superpeer->life);
    superpeer->life = life;
    starts_store(superpeer);
}

bool sh_superpeer_journal_lives(const struct sh_superpeer *superpeer)
{
    return sh_journal_synced(superpeer->journal) >= superpeer->life_lsn;
}

/* --- The journal ----------------------------------------------------------------------------- */

struct sh_bytes sh_superpeer_journal_label(unsigned nid, char *into)
{
    int size = snprintf(into, SH_JOURNAL_LABEL_BYTES_MAX, LABEL "%u", nid);
    SH_ASSERT(size > 0 && size < SH_JOURNAL_LABEL_BYTES_MAX);
    return sh_bytes_make(into, (size_t)size);
}

unsigned sh_superpeer_journal_streams(void)
{
    return IDENTITY + 1;
}

enum shoal_err sh_superpeer_journal_open(struct sh_superpeer *superpeer, struct sh_ring *ring)
{
    struct sh_journal_stream streams[IDENTITY + 1] = {{.arg = NULL}};
    char label[SH_JOURNAL_LABEL_BYTES_MAX];
    struct sh_env env = superpeer->env;
    SH_ASSERT(!superpeer->journal);
    if (!env.disk) {
        enum shoal_err err = sh_memory_disk_create(&superpeer->memory_disk);
        if (err)
            return err;
        env.disk = superpeer->memory_disk;
    }
    struct sh_consensus *consensus = superpeer->shared->consensus;
    if (consensus->ops->stream)
        streams[REGISTRY] = consensus->ops->stream(consensus);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        streams[FIRST_SHARD + i] = sh_ring_stream(ring, i);
    /* The identity is all in the stream's state. */
    streams[IDENTITY] = (struct sh_journal_stream){.load_state = starts_load, .arg = superpeer};
    struct sh_journal_config config = {
        .env = env,
        .label = sh_superpeer_journal_label(superpeer->index + 1u, label),
        .segment_bytes = superpeer->memory_disk ? MEMORY_SEGMENT : 0,
        .bytes_kept = superpeer->memory_disk ? 8 * MEMORY_SEGMENT : 0,
        .streams = streams,
        .streams_count = IDENTITY + 1};
    enum shoal_err err = sh_journal_open(&config, &superpeer->journal);
    if (err)
        return err;
    life_begin(superpeer);
    sh_ring_journal_set(ring, superpeer->journal, FIRST_SHARD);
    SH_INFO("cluster", "journal opened", SH_U64("starts", sh_life_starts(superpeer->life)));
    return SHOAL_OK;
}

unsigned sh_superpeer_journal_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    unsigned work = sh_journal_step(superpeer->journal, now_ns);
    struct sh_consensus *consensus = superpeer->shared->consensus;
    if (consensus->ops->synced)
        consensus->ops->synced(consensus, now_ns);
    return work;
}

void sh_superpeer_journal_close(struct sh_superpeer *superpeer)
{
    sh_journal_close(superpeer->journal);
    superpeer->journal = NULL;
    if (superpeer->memory_disk)
        superpeer->memory_disk->ops->destroy(superpeer->memory_disk);
    superpeer->memory_disk = NULL;
}

void sh_superpeer_journal_remove(const struct sh_env *env)
{
    sh_journal_remove(env);
}

/* A raft.log of before names neither its registry nor its life, so it can't be gone on with. */
static enum shoal_err old_look(const struct sh_env *env)
{
    int file;
    enum shoal_err err = sh_disk_open(env->disk, OLD_NAME, false, &file);
    if (err)
        return err;
    env->disk->ops->close(env->disk, file);
    SH_ERROR("cluster",
             "data_dir has the registry of an older version of shoal, in the file " OLD_NAME
             ": start that version again, or remove the file: at all superpeers, which begins a "
             "new registry, or at this one, which catches up from the others (name them in the "
             "option superpeers)");
    return SHOAL_EVERSION;
}

enum shoal_err sh_superpeer_stored(const struct sh_env *env, uint16_t *index_out)
{
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX + 1];
    size_t size, head = strlen(LABEL);
    enum shoal_err err = sh_journal_peek(env, label, sizeof label - 1, &size);
    if (err == SHOAL_ENONAME)
        return old_look(env);
    if (err)
        return err;
    label[size] = 0;
    char *end = NULL;
    unsigned long nid = 0;
    if (size > head && memcmp(label, LABEL, head) == 0)
        nid = strtoul((const char *)label + head, &end, 10);
    if (!nid || nid > SH_SUPERPEERS_MAX || *end) {
        SH_ERROR("cluster", "the journal in data_dir is not a superpeer's");
        return SHOAL_ECORRUPT;
    }
    *index_out = (uint16_t)(nid - 1);
    return SHOAL_OK;
}
