/* A superpeer that is a replica of a shard, or is to be one: takes what the owner sends, and
 * answers when it is on the disk. */
#include "base/assert.h"
#include "ring/ring_int.h"

static void append_answer(struct sh_ring *ring, uint8_t to, unsigned number, uint8_t flags,
                          uint64_t sequence)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    SH_ASSERT(!shard->owns);
    uint64_t epoch = 0;
    if (!(flags & SH_RING_EMPTY)) {
        bool is_known = sh_entries_term(&shard->entries, sequence, &epoch);
        SH_ASSERT(is_known);
    }
    struct sh_writer w =
        sh_ring_message_begin(ring, to, number, SH_RING_ANSWER, flags, SH_RING_ANSWER_BYTES);
    sh_put64(&w, sequence);
    sh_put64(&w, epoch);
    sh_put64(&w, shard->applied);
}

void sh_ring_follow_agree(struct sh_ring *ring, const struct sh_ring_head *head, uint64_t sequence)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    SH_ASSERT(shard->has && sequence <= sh_entries_last(&shard->entries));
    SH_ASSERT(!shard->owns);
    sh_ring_incoming_drop(ring, head->shard); /* a snapshot is not needed any more */
    if (shard->agreed_version != head->version) {
        shard->agreed_version = head->version;
        shard->agreed = shard->answered = 0;
    }
    if (sequence > shard->agreed)
        shard->agreed = sequence;
    shard->owes_answer = true;
    sh_ring_touch(ring, head->shard);
}

void sh_ring_follow_refuse(struct sh_ring *ring, const struct sh_ring_head *head, uint8_t flags,
                           uint64_t sequence)
{
    append_answer(ring, head->from, head->shard, flags, sequence);
}

/* The owner of the version in which the log agrees is told up to where that is on the disk: all
 * that was asked about, or as much as has been added. */
void sh_ring_follow_step(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_shard *now = &ring->arcs.shards[number];
    if (!shard->owes_answer || shard->agreed_version != now->version || !shard->has ||
        shard->has_lsn > ring->synced || shard->owns || now->owner == ring->config.server)
        return;
    SH_ASSERT(now->owner && shard->answered <= shard->agreed);
    uint64_t reached = shard->agreed < shard->synced ? shard->agreed : shard->synced;
    uint64_t epoch;
    if (reached < shard->agreed && reached <= shard->answered)
        return;
    if (!sh_entries_term(&shard->entries, reached, &epoch))
        return; /* so far back the owner has heard of more already */
    shard->answered = reached;
    shard->owes_answer = reached < shard->agreed;
    append_answer(ring, now->owner, number, SH_RING_YES, reached);
}

/* Takes one entry. False: it can't be taken. */
static bool entry_take(struct sh_ring *ring, unsigned number, uint64_t sequence, uint64_t epoch,
                       struct sh_bytes bytes)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    SH_ASSERT(shard->has && !shard->owns);
    uint64_t known;
    if (sequence <= shard->applied)
        return true; /* all replicas have the same */
    if (sh_entries_term(&shard->entries, sequence, &known) && known == epoch)
        return true;
    /* Another owner's, which was never answered, goes. */
    return !sh_ring_log_take(ring, number, sequence, epoch, bytes);
}

void sh_ring_on_append(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    uint64_t before = sh_get64(r);
    uint64_t before_epoch = sh_get64(r);
    uint64_t applied = sh_get64(r);
    uint32_t count = sh_get32(r);
    uint64_t known;
    SH_ASSERT(!shard->owns);
    if (!sh_reader_ok(r))
        return;
    if (!shard->has) {
        sh_ring_follow_refuse(ring, head, SH_RING_EMPTY, 0);
        return;
    }
    if (before > sh_entries_last(&shard->entries)) {
        sh_ring_follow_refuse(ring, head, 0, sh_entries_last(&shard->entries));
        return;
    }
    /* Of what is applied and forgotten the epochs are not known any more: from there on, then. */
    if (!sh_entries_term(&shard->entries, before, &known) || known != before_epoch) {
        sh_ring_follow_refuse(ring, head, 0, shard->applied);
        return;
    }
    uint64_t sequence = before;
    for (uint32_t i = 0; i < count && !sh_journal_is_full(ring->journal); i++) {
        uint64_t epoch = sh_get64(r);
        uint32_t size = sh_get32(r);
        const uint8_t *at = sh_reader_take(r, size);
        if (!sh_reader_ok(r) || size > SH_RING_COMMAND_BYTES_MAX ||
            !entry_take(ring, head->shard, sequence + 1, epoch, sh_bytes_make(at, size)))
            break;
        sequence++;
    }
    if (applied > sequence)
        applied = sequence;
    if (applied > shard->applied)
        sh_ring_log_apply(ring, head->shard, applied);
    sh_ring_follow_agree(ring, head, sequence);
}
