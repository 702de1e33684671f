/* A superpeer's journal: whose it is, which of its streams is what, and the life of its process.
 *
 *   stream 0           the registry's log (raft.h); empty if the registry is elsewhere
 *   streams 1 to 64    the shards of the ring (ring.h)
 *   stream 65          the identity: u64 life (arcs.h), u8 1: the registry has confirmed it. Before: u32
 *                      starts alone, which count as confirmed
 *   stream 66          u64 the cluster's ID (registry.h), once the registry has told it
 *
 * Starts count only those that the registry has confirmed:
 *
 *   [nothing] ----the registry counts: adopt----------> [confirmed] <----its table shows the life---.
 *                                                            |                                       |
 *                        a process begins: starts + 1, new random bits --> [unconfirmed] -----------'
 *                                                                             |  ^
 *                                                                             '--' another process begins:
 *                                                                                  goes on with that life
 * Each state is synced before anybody hears of it, and nothing is owned, held or answered for a shard
 * before [confirmed] is.
 *
 * 1. A life that was admitted, but not confirmed here, may be gone on with. The table's versions rose when
 *    it was admitted, and the process before has ordered and confirmed nothing in these, nor answered
 *    for a shard: nobody can tell the two from one process that was slow.
 * 2. Of two copies of one state only one gets in. Both propose starts + 1, with random bits of their own;
 *    the table takes the first one (sh_arcs_start), and refuses what is not above that. A copy that was
 *    refused stays unconfirmed, and is refused with every start, however often that is.
 * 3. Raft votes and stores entries under an unconfirmed life, as it must to have the registry admit
 *    anything. That is safe for the disk's next process, which finds promises and entries in stream 0. A
 *    copy's messages are dropped as soon as the table has the other's life (raft.h).
 * 4. So never copy a folder whose superpeer has not been admitted yet: both copies would be the same
 *    life. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "journal/journal.h"
#include "superpeer/superpeer_ring_int.h"

#define REGISTRY SH_SUPERPEER_REGISTRY_STREAM
#define FIRST_SHARD 1
#define IDENTITY SH_SUPERPEER_IDENTITY_STREAM
#define CLUSTER (IDENTITY + 1)
#define STREAMS (CLUSTER + 1)
#define MEMORY_SEGMENT (512u << 10) /* bytes, of a journal on a disk in memory */
#define STATE_BYTES 9
#define FORMER_STATE_BYTES 4
#define LABEL "superpeer "
/* What the registry was in before there was a journal. */
#define OLD_NAME "raft.log"

_Static_assert(IDENTITY == FIRST_SHARD + SH_SHARDS, "no stream is two things");
_Static_assert(STREAMS <= SH_JOURNAL_STREAMS_MAX, "the journal has that many streams");

/* --- The identity ---------------------------------------------------------------------------- */

static enum shoal_err life_load(void *arg, struct sh_bytes state)
{
    struct sh_superpeer *superpeer = arg;
    bool is_former = state.size == FORMER_STATE_BYTES;
    if (!is_former && (state.size != STATE_BYTES || state.at[8] > 1))
        return SHOAL_ECORRUPT;
    superpeer->life = is_former ? (uint64_t)sh_load32(state.at) << 32 : sh_load64(state.at);
    superpeer->is_confirmed = is_former || state.at[8];
    bool has_room = sh_life_starts(superpeer->life) < UINT32_MAX;
    return sh_life_starts(superpeer->life) && has_room ? SHOAL_OK : SHOAL_ECORRUPT;
}

/* What others hear first in each connection. */
static void life_set(struct sh_superpeer *superpeer, uint64_t life)
{
    superpeer->life = life;
    sh_msg_instance_set(superpeer->msg, life);
}

static void life_store(struct sh_superpeer *superpeer)
{
    uint8_t state[STATE_BYTES];
    SH_ASSERT(sh_life_starts(superpeer->life) && (uint32_t)superpeer->life);
    sh_store64(state, superpeer->life);
    state[8] = superpeer->is_confirmed;
    superpeer->life_lsn =
        sh_journal_state_set(superpeer->journal, IDENTITY, sh_bytes_make(state, sizeof state));
}

/* A process begins: its life is one start more than the last confirmed one, with random bits that no copy
 * of the disk has. On a new disk, or one in memory, it has the random bits only: the registry counts on
 * from what it knows. */
static void life_begin(struct sh_superpeer *superpeer)
{
    uint32_t random = (uint32_t)sh_random64(&superpeer->env.random) | 1;
    bool is_new = !superpeer->life, is_over = superpeer->is_confirmed;
    superpeer->is_confirmed = false;
    uint64_t next = ((superpeer->life >> 32) + 1) << 32 | random;
    life_set(superpeer, is_new ? random : is_over ? next : superpeer->life);
    if (is_over)
        life_store(superpeer);
}

void sh_superpeer_journal_confirm(struct sh_superpeer *superpeer, uint64_t life)
{
    SH_ASSERT(sh_life_starts(life) && (uint32_t)life == (uint32_t)superpeer->life);
    SH_ASSERT(!sh_life_starts(superpeer->life) || life == superpeer->life);
    if (superpeer->is_confirmed)
        return;
    life_set(superpeer, life);
    superpeer->is_confirmed = true;
    life_store(superpeer);
}

bool sh_superpeer_journal_lives(const struct sh_superpeer *superpeer)
{
    return sh_journal_synced(superpeer->journal) >= superpeer->life_lsn;
}

bool sh_superpeer_journal_is_confirmed(const struct sh_superpeer *superpeer)
{
    return superpeer->is_confirmed && sh_superpeer_journal_lives(superpeer);
}

/* --- The cluster ----------------------------------------------------------------------------- */

static enum shoal_err cluster_load(void *arg, struct sh_bytes state)
{
    struct sh_superpeer *superpeer = arg;
    if (state.size != 8 || !sh_load64(state.at))
        return SHOAL_ECORRUPT;
    superpeer->stored_cluster = sh_load64(state.at);
    return SHOAL_OK;
}

void sh_superpeer_journal_cluster_note(struct sh_superpeer *superpeer, uint64_t cluster)
{
    uint8_t state[8];
    if (!cluster || superpeer->stored_cluster == cluster)
        return;
    superpeer->stored_cluster = cluster;
    sh_store64(state, cluster);
    (void)sh_journal_state_set(superpeer->journal, CLUSTER, sh_bytes_make(state, sizeof state));
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
    return STREAMS;
}

enum shoal_err sh_superpeer_journal_open(struct sh_superpeer *superpeer, struct sh_ring *ring)
{
    struct sh_journal_stream streams[STREAMS] = {{.arg = NULL}};
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
    streams[IDENTITY] = (struct sh_journal_stream){.load_state = life_load, .arg = superpeer};
    streams[CLUSTER] = (struct sh_journal_stream){.load_state = cluster_load, .arg = superpeer};
    struct sh_journal_config config = {
        .env = env,
        .label = sh_superpeer_journal_label(superpeer->index + 1u, label),
        .segment_bytes = superpeer->memory_disk ? MEMORY_SEGMENT : 0,
        .bytes_kept = superpeer->memory_disk ? 8 * MEMORY_SEGMENT : 0,
        .streams = streams,
        .streams_count = STREAMS};
    enum shoal_err err = sh_journal_open(&config, &superpeer->journal);
    if (err)
        return err;
    life_begin(superpeer);
    sh_ring_journal_set(ring, superpeer->journal, FIRST_SHARD);
    SH_INFO("cluster", "journal opened", SH_U64("starts", sh_life_starts(superpeer->life)),
            SH_U64("confirmed", superpeer->is_confirmed));
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
