/* A shard's owner: what it sends, when an update is done, what it asks the registry for. */
#include "base/assert.h"
#include "base/log.h"
#include "ring/ring_int.h"

/* A superpeer that is dropped from one shard as its disk stores nothing would hold up the updates of each other
 * shard for as long again: for so many spans it is waited for for a part only. */
#define STALLED_SPANS 4
#define STALLED_PART 8
/* Entries on their way to one superpeer in one step, in messages of piece_bytes. */
#define MESSAGES_A_STEP 8

void sh_ring_lead_forget(struct sh_ring *ring, unsigned number, unsigned nid)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    SH_ASSERT(shard->owns);
    SH_ASSERT(nid && nid <= SH_SUPERPEERS_MAX);
    sh_ring_outgoing_drop(ring, &shard->progress[nid]);
    shard->progress[nid] = (struct sh_ring_progress){.next = sh_entries_last(&shard->entries) + 1};
    shard->counted &= ~sh_arc_bit(nid);
    /* It was asked for in an incarnation that is over, and would be in vain. */
    if (shard->change.kind == SH_ARC_ADD && shard->change.nid == nid)
        shard->change.kind = 0;
}

void sh_ring_lead_begin(struct sh_ring *ring, uint64_t now_ns, unsigned number, bool was_owner)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_shard *now = &ring->arcs.shards[number];
    SH_ASSERT(shard->has && shard->has_lsn <= ring->synced && now->owner == ring->config.server);
    SH_ASSERT(now->replicas & sh_ring_own(ring));
    SH_ASSERT(shard->applied <= sh_entries_last(&shard->entries));
    shard->owns = true;
    shard->is_handing = shard->has_handed = shard->owes_answer = false;
    shard->change.kind = 0;
    shard->stalled_ns = 0;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        struct sh_ring_progress *progress = &shard->progress[nid];
        /* A superpeer that is not a replica must confirm, in this version, that it has the shard:
         * it may have dropped it. */
        if (!was_owner || !(now->replicas & sh_arc_bit(nid)))
            sh_ring_lead_forget(ring, number, nid);
        progress->resend_ns = 0; /* what was sent in the last version was of no use */
        progress->since_ns = now_ns;
    }
    if (was_owner)
        return;
    shard->serve_from = sh_entries_last(&shard->entries);
    SH_DEBUG("ring", "owns", SH_U64("shard", number), SH_U64("version", now->version),
             SH_U64("applied", shard->applied), SH_U64("last", shard->serve_from));
}

void sh_ring_lead_end(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++)
        sh_ring_outgoing_drop(ring, &shard->progress[nid]);
    shard->owns = shard->is_handing = shard->has_handed = false;
    shard->change.kind = 0;
}

/* --- Sending --------------------------------------------------------------------------------- */

/* All other superpeers that are replicas, or are to be, or were to and may be added yet. */
static uint64_t superpeers_to_send(const struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    return (ring->arcs.shards[number].replicas | shard->wanted | shard->counted) &
           ~sh_ring_own(ring);
}

/* The superpeers without whose disks nothing is done, but for this one. */
static uint64_t superpeers_awaited(const struct sh_ring *ring, unsigned number)
{
    return (ring->arcs.shards[number].replicas | ring->shards[number].counted) & ~sh_ring_own(ring);
}

/* Sends entries from `next` on, and how far updates are applied. */
static void entries_send(struct sh_ring *ring, unsigned number, uint8_t to)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_ring_progress *progress = &shard->progress[to];
    SH_ASSERT(shard->owns && progress->next && progress->sending != SH_RING_TRANSFER);
    uint64_t last = sh_entries_last(&shard->entries);
    uint64_t before_epoch;
    bool is_known = sh_entries_term(&shard->entries, progress->next - 1, &before_epoch);
    SH_ASSERT(is_known);
    size_t size = SH_RING_APPEND_BYTES;
    uint32_t count = 0;
    while (progress->next + count <= last && size < ring->config.piece_bytes) {
        size += SH_RING_ENTRY_BYTES + sh_entries_at(&shard->entries, progress->next + count)->size;
        count++;
    }
    struct sh_writer w = sh_ring_message_begin(ring, to, number, SH_RING_APPEND, 0, size);
    sh_put64(&w, progress->next - 1);
    sh_put64(&w, before_epoch);
    sh_put64(&w, shard->applied);
    sh_put32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sh_entry *entry = sh_entries_at(&shard->entries, progress->next + i);
        sh_put64(&w, entry->term);
        sh_put32(&w, entry->size);
        sh_put_raw(&w, sh_bytes_make(entry->bytes, entry->size));
    }
    if (progress->sending == SH_RING_STREAM)
        progress->next += count;
}

/* Whether a superpeer's log on its disk is behind, as far as is known here. */
static bool is_behind(const struct sh_ring *ring, unsigned number, uint8_t nid)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_progress *progress = &shard->progress[nid];
    return progress->version != ring->arcs.shards[number].version ||
           progress->match < sh_entries_last(&shard->entries);
}

/* Goes back to where the logs were known to agree, as what came since may have got lost. */
static void fall_back(struct sh_ring_progress *progress)
{
    if (progress->sending != SH_RING_STREAM || progress->next == progress->match + 1)
        return;
    progress->sending = SH_RING_PROBE;
    progress->next = progress->match + 1;
}

/* What a superpeer lacks may be forgotten here: also while entries are sent to it, as nobody waits for
 * one that is to become a replica. */
static void forgotten_look(const struct sh_ring_shard *shard, struct sh_ring_progress *progress)
{
    uint64_t epoch;
    SH_ASSERT(progress->next || progress->sending == SH_RING_TRANSFER);
    if (progress->sending != SH_RING_TRANSFER &&
        !sh_entries_term(&shard->entries, progress->next - 1, &epoch))
        progress->sending = SH_RING_TRANSFER;
}

/* Sends to one superpeer what it lacks and was not sent yet, or was sent long ago. */
static void other_step(struct sh_ring *ring, uint64_t now_ns, unsigned number, uint8_t to)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_ring_progress *progress = &shard->progress[to];
    SH_ASSERT(shard->owns && to != ring->config.server);
    bool owes = is_behind(ring, number, to) || progress->sending == SH_RING_TRANSFER;
    if (!owes)
        progress->since_ns = 0;
    else if (!progress->since_ns)
        progress->since_ns = now_ns;
    bool is_late = now_ns >= progress->resend_ns;
    /* That an update is applied, others learn with the next entries or after a while. */
    if (!owes && (progress->applied >= shard->applied || !is_late))
        return;
    if (owes && is_late)
        fall_back(progress);
    forgotten_look(shard, progress);
    if (progress->sending != SH_RING_STREAM && !is_late)
        return;
    uint64_t last = sh_entries_last(&shard->entries);
    bool is_under_way = progress->sending == SH_RING_STREAM && owes && progress->next > last &&
                        progress->next > progress->match + 1;
    if (is_under_way)
        return;
    if (progress->sending == SH_RING_TRANSFER)
        sh_ring_snapshot_send(ring, number, to);
    else
        entries_send(ring, number, to);
    bool is_stream = progress->sending == SH_RING_STREAM;
    for (unsigned i = 1; is_stream && i < MESSAGES_A_STEP && progress->next <= last; i++)
        entries_send(ring, number, to);
    if (is_stream && progress->next <= last)
        sh_ring_touch(ring, number);
    progress->resend_ns = now_ns + ring->config.resend_ns;
}

/* --- Deciding -------------------------------------------------------------------------------- */

/* Applies what all awaited superpeers and this one have on their disks. */
static void apply(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t done = shard->synced;
    for (uint64_t left = superpeers_awaited(ring, number); left; left &= left - 1) {
        uint64_t match = shard->progress[__builtin_ctzll(left)].match;
        done = match < done ? match : done;
    }
    if (done > shard->applied && now_ns < ring->lease_ns)
        sh_ring_log_apply(ring, number, done);
    if (shard->synced == sh_entries_last(&shard->entries))
        shard->stalled_ns = 0;
    else if (!shard->stalled_ns)
        shard->stalled_ns = now_ns;
}

/* An awaited superpeer whose log does not advance; 0: there is none. */
static unsigned awaited_but_silent(const struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    for (uint64_t left = superpeers_awaited(ring, number); left; left &= left - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(left);
        uint64_t since_ns = shard->progress[nid].since_ns, patience_ns = ring->config.patience_ns;
        if (now_ns < ring->stalled_until_ns[nid])
            patience_ns /= STALLED_PART;
        if (since_ns && now_ns >= since_ns + patience_ns)
            return nid;
    }
    return 0;
}

/* A superpeer that is to be a replica, is none, and has all that was answered, also by an owner
 * before this one; 0: there is none. A superpeer that is added may be the next owner. */
static unsigned candidate_caught_up(const struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t version = ring->arcs.shards[number].version;
    uint64_t answered = shard->applied > shard->serve_from ? shard->applied : shard->serve_from;
    uint64_t missing = shard->wanted & ~ring->arcs.shards[number].replicas;
    for (; missing; missing &= missing - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(missing);
        const struct sh_ring_progress *progress = &shard->progress[nid];
        if (progress->version == version && progress->match >= answered &&
            progress->sending != SH_RING_TRANSFER)
            return nid;
    }
    return 0;
}

/* Whether a superpeer is a replica whose disk keeps up, so that it may own the shard. */
static bool keeps_up(const struct sh_ring *ring, uint64_t now_ns, unsigned number, unsigned nid)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_progress *progress = &shard->progress[nid];
    bool is_there = ring->arcs.shards[number].replicas & ring->arcs.up & sh_arc_bit(nid);
    return is_there && progress->version == ring->arcs.shards[number].version &&
           (!progress->since_ns || now_ns < progress->since_ns + ring->config.patience_ns / 4);
}

/* Whether no awaited superpeer advances, though others are there: then it is this one that is cut
 * off from them. */
static bool is_isolated(const struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    uint64_t left = superpeers_awaited(ring, number);
    if (__builtin_popcountll(ring->arcs.up) < 3)
        return false;
    for (; left; left &= left - 1) {
        const struct sh_ring_progress *progress =
            &ring->shards[number].progress[__builtin_ctzll(left)];
        if (!progress->since_ns || now_ns < progress->since_ns + 2 * ring->config.patience_ns)
            return false;
    }
    return true;
}

/* A replica to take over from an owner whose own disk does not advance, or that reaches no replica
 * and may drop none; 0: there is no need, or none that is up. */
static unsigned stand_in(const struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t left = ring->arcs.shards[number].replicas & ring->arcs.up & ~sh_ring_own(ring);
    bool is_stalled = shard->stalled_ns && now_ns >= shard->stalled_ns + ring->config.patience_ns;
    bool is_alone = is_isolated(ring, now_ns, number);
    for (; (is_stalled || is_alone) && left; left &= left - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(left);
        if (is_alone || keeps_up(ring, now_ns, number, nid))
            return nid;
    }
    return 0;
}

/* Any replica has all that was answered; what was not may be lost, which an owner that has handed
 * over tells nobody. */
static void hand(struct sh_ring *ring, uint64_t now_ns, unsigned number, unsigned nid)
{
    SH_ASSERT(!ring->shards[number].has_handed && nid != ring->config.server);
    SH_ASSERT(ring->arcs.shards[number].replicas & sh_arc_bit(nid));
    ring->shards[number].has_handed = true;
    sh_ring_ask(ring, now_ns, number, SH_ARC_HAND, nid);
}

/* What should be otherwise, by urgency; each change brings another version, and the next one. */
static void decide(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t replicas = ring->arcs.shards[number].replicas;
    SH_ASSERT(shard->owns && (replicas & sh_ring_own(ring)));
    if (shard->has_handed)
        return;
    unsigned nid = stand_in(ring, now_ns, number);
    if (nid) {
        SH_WARN("ring", "own disk or connections do not advance; handing the shard over",
                SH_U64("shard", number), SH_U64("to", nid));
        hand(ring, now_ns, number, nid);
        return;
    }
    nid = awaited_but_silent(ring, now_ns, number);
    if (nid && sh_arcs_may_drop(&ring->arcs, number, nid)) {
        ring->stalled_until_ns[nid] = now_ns + STALLED_SPANS * ring->config.patience_ns;
        sh_ring_ask(ring, now_ns, number, SH_ARC_DROP, nid);
        return;
    }
    nid = candidate_caught_up(ring, number);
    if (nid) {
        shard->counted |= sh_arc_bit(nid); /* until the version is another one */
        sh_ring_ask(ring, now_ns, number, SH_ARC_ADD, nid);
        return;
    }
    nid = shard->successor;
    shard->is_handing = keeps_up(ring, now_ns, number, nid);
    if (shard->is_handing && shard->applied == sh_entries_last(&shard->entries)) {
        hand(ring, now_ns, number, nid);
        return;
    }
    uint64_t surplus = replicas & ~shard->wanted & ~sh_ring_own(ring);
    if (surplus && nid && !(shard->wanted & ~replicas) && !shard->is_handing)
        sh_ring_ask(ring, now_ns, number, SH_ARC_DROP, (unsigned)__builtin_ctzll(surplus));
    else
        shard->change.kind = 0; /* what was asked for before may still come */
}

void sh_ring_lead_step(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    SH_ASSERT(ring->shards[number].owns && ring->shards[number].has);
    apply(ring, now_ns, number);
    for (uint64_t left = superpeers_to_send(ring, number); left; left &= left - 1)
        other_step(ring, now_ns, number, (uint8_t)__builtin_ctzll(left));
    decide(ring, now_ns, number);
}

/* --- Answers --------------------------------------------------------------------------------- */

void sh_ring_on_answer(struct sh_ring *ring, uint64_t now_ns, const struct sh_ring_head *head,
                       struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    struct sh_ring_progress *progress = &shard->progress[head->from];
    uint64_t sequence = sh_get64(r);
    uint64_t epoch = sh_get64(r);
    uint64_t applied = sh_get64(r);
    uint64_t known;
    SH_ASSERT(shard->owns);
    SH_ASSERT(head->from != ring->config.server);
    if (!sh_reader_done(r))
        return;
    bool agrees = sh_entries_term(&shard->entries, sequence, &known) && known == epoch;
    if ((head->flags & SH_RING_YES) && agrees) {
        if (sequence > progress->match || progress->version != head->version) {
            progress->since_ns = now_ns;
            progress->resend_ns = now_ns + ring->config.resend_ns;
        }
        progress->version = head->version;
        /* The first answer in a version may be about entries that the superpeer stored long ago. */
        if (progress->match && sequence > progress->match)
            ring->stalled_until_ns[head->from] = 0;
        if (sequence > progress->match)
            progress->match = sequence;
        if (applied > progress->applied)
            progress->applied = applied;
        if (progress->sending != SH_RING_STREAM)
            progress->next = progress->match + 1;
        else if (progress->next <= progress->match)
            progress->next = progress->match + 1;
        sh_ring_outgoing_drop(ring, progress);
        progress->sending = SH_RING_STREAM;
    } else if (head->flags & SH_RING_YES) {
        return; /* so far back that it is forgotten here: a later one says more */
    } else if (agrees) {
        progress->sending = SH_RING_PROBE;
        progress->next = sequence + 1;
        progress->resend_ns = now_ns;
    } else {
        progress->sending = SH_RING_TRANSFER;
        progress->resend_ns = now_ns;
    }
    sh_ring_touch(ring, head->shard);
}
