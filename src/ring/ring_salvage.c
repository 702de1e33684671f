/* A shard whose replicas were all lost: its owner asks every superpeer that is there what old copy
 * it has, and has the most advanced one made the shard's state.
 *
 *   owner: COPY_ASK --> all that are present --> COPY_ANSWER (epoch, sequence)
 *     all have answered:  a copy         SALVAGE to the registry: its superpeer is owner and replica
 *                         no copy        fsm.build
 *
 * Of two copies the one whose last update was ordered in the higher epoch is the more advanced, then
 * the longer one: an owner orders in an epoch only behind all that its replicas had, so a log with an
 * entry of an epoch contains whatever was answered in the epochs before. A copy without any update is
 * taken only where there is no other: its maker may have been killed before the registry heard of it.
 *
 * What a superpeer says it keeps until the shard's version is another one (ring.c: version_take). */
#include "base/assert.h"
#include "base/log.h"
#include "ring/ring_int.h"

void sh_ring_search_begin(struct sh_ring *ring, unsigned number)
{
    const struct sh_shard *now = &ring->arcs.shards[number];
    SH_ASSERT(now->owner == ring->config.server && !now->replicas);
    ring->shards[number].search = (struct sh_ring_search){.is_open = true};
    sh_ring_touch(ring, number);
}

/* Whether what there is of a copy, or that there is none, is on the disk. */
static bool is_settled(const struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    return !shard->has ||
           (shard->has_lsn <= ring->synced && shard->synced == sh_entries_last(&shard->entries));
}

/* A superpeer has a copy: the search keeps the more advanced one of that and the best so far. */
static void copy_compare(struct sh_ring_search *search, uint8_t nid, uint64_t epoch,
                         uint64_t sequence)
{
    SH_ASSERT(search->is_open && nid && nid <= SH_SUPERPEERS_MAX);
    bool is_later =
        epoch > search->epoch || (epoch == search->epoch && sequence > search->sequence);
    bool is_more = !search->nid || (sequence && (!search->sequence || is_later));
    if (!is_more)
        return;
    search->nid = nid;
    search->epoch = epoch;
    search->sequence = sequence;
}

/* A copy from a version that the registry has not reached can't become the state: its entries would count
 * as later than all that follow. It is not passed over either, since it may be the newest there is. */
static bool is_ahead(struct sh_ring *ring, unsigned number, uint8_t nid, uint64_t epoch)
{
    struct sh_ring_search *search = &ring->shards[number].search;
    uint64_t version = ring->arcs.shards[number].version;
    if (epoch <= version)
        return false;
    if (!(search->ahead & sh_arc_bit(nid)))
        SH_ERROR(
            "ring",
            "a superpeer's old copy of a shard is from after the registry, which was restored "
            "from an older state: restore a later one, or stop that superpeer and give up what "
            "it has, with `shoal node lost`; the shard waits",
            SH_U64("shard", number), SH_U64("superpeer", nid), SH_U64("epoch", epoch),
            SH_U64("version", version));
    search->ahead |= sh_arc_bit(nid);
    return true;
}

static void own_look(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_search *search = &ring->shards[number].search;
    SH_ASSERT(search->is_open);
    uint64_t epoch, sequence;
    if ((search->answered & sh_ring_own(ring)) || !is_settled(ring, number))
        return;
    bool has = sh_ring_copy(ring, number, &epoch, &sequence);
    if (has && is_ahead(ring, number, ring->config.server, epoch))
        return;
    search->answered |= sh_ring_own(ring);
    if (has)
        copy_compare(search, ring->config.server, epoch, sequence);
}

static void others_ask(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_search *search = &ring->shards[number].search;
    uint64_t left = ring->arcs.present & ~search->answered & ~sh_ring_own(ring);
    if (!left || now_ns < search->resend_ns)
        return;
    search->resend_ns = now_ns + ring->config.resend_ns;
    for (; left; left &= left - 1)
        (void)sh_ring_message_begin(ring, (uint8_t)__builtin_ctzll(left), number, SH_RING_COPY_ASK,
                                    0, 0);
}

void sh_ring_search_step(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_search *search = &ring->shards[number].search;
    const struct sh_shard *now = &ring->arcs.shards[number];
    if (!search->is_open)
        return;
    SH_ASSERT(now->owner == ring->config.server && !now->replicas);
    own_look(ring, number);
    others_ask(ring, now_ns, number);
    if (ring->arcs.present & ~search->answered)
        return;
    search->is_open = false;
    if (!search->nid) {
        ring->config.fsm.build(ring->config.fsm.arg, number, now->version);
        return;
    }
    SH_INFO("ring",
            "all replicas of a shard were lost: the most advanced old copy becomes its state",
            SH_U64("shard", number), SH_U64("superpeer", search->nid),
            SH_U64("epoch", search->epoch), SH_U64("sequence", search->sequence));
    sh_ring_ask(ring, now_ns, number, SH_ARC_SALVAGE, search->nid);
}

void sh_ring_on_copy_ask(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r)
{
    SH_ASSERT(!ring->shards[head->shard].owns);
    uint64_t epoch = 0, sequence = 0;
    if (!sh_reader_done(r) || !is_settled(ring, head->shard))
        return; /* asked again */
    bool has = sh_ring_copy(ring, head->shard, &epoch, &sequence);
    struct sh_writer w = sh_ring_message_begin(ring, head->from, head->shard, SH_RING_COPY_ANSWER,
                                               has ? 0 : SH_RING_EMPTY, SH_RING_COPY_ANSWER_BYTES);
    sh_put64(&w, has ? epoch : 0);
    sh_put64(&w, has ? sequence : 0);
}

void sh_ring_on_copy_answer(struct sh_ring *ring, const struct sh_ring_head *head,
                            struct sh_reader *r)
{
    uint64_t epoch = sh_get64(r);
    uint64_t sequence = sh_get64(r);
    bool is_empty = head->flags & SH_RING_EMPTY;
    struct sh_ring_search *search = &ring->shards[head->shard].search;
    if (!sh_reader_done(r) || sequence > SH_RING_SEQUENCE_MAX ||
        is_ahead(ring, head->shard, head->from, epoch))
        return;
    search->answered |= sh_arc_bit(head->from);
    if (!is_empty)
        copy_compare(search, head->from, epoch, sequence);
    sh_ring_touch(ring, head->shard);
}
