/* A shard's state on its way from the owner to a superpeer that is to be a replica: piece by piece,
 * the next one when the last one was taken.
 *
 *   owner: SNAPSHOT 0 --> 1 --> ... --> n LAST          replica: ANSWER (sequence), once it is
 * synced
 *              ^-- SNAPSHOT_ANSWER: the piece wanted next --'
 */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "ring/ring_int.h"

/* --- The owner ------------------------------------------------------------------------------- */

void sh_ring_outgoing_drop(struct sh_ring *ring, struct sh_ring_progress *progress)
{
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    if (!progress->outgoing)
        return;
    fsm->snapshot_end(fsm->arg, progress->outgoing->snapshot);
    free(progress->outgoing);
    progress->outgoing = NULL;
}

uint64_t sh_ring_outgoing_lowest(const struct sh_ring_shard *shard, uint64_t other)
{
    for (unsigned nid = 1; shard->owns && nid <= SH_SUPERPEERS_MAX; nid++) {
        const struct sh_ring_outgoing *outgoing = shard->progress[nid].outgoing;
        if (outgoing && outgoing->sequence < other)
            other = outgoing->sequence;
    }
    return other;
}

static void piece_take(struct sh_ring *ring, struct sh_ring_outgoing *outgoing)
{
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    outgoing->size =
        fsm->snapshot_next(fsm->arg, outgoing->snapshot, outgoing->bytes, ring->config.piece_bytes);
    outgoing->is_last = outgoing->size == 0;
}

/* Begins a snapshot for a superpeer; without memory it is tried again in a later step. */
static void outgoing_begin(struct sh_ring *ring, unsigned number, struct sh_ring_progress *progress)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    SH_ASSERT(shard->owns && shard->has && !progress->outgoing);
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    struct sh_ring_outgoing *outgoing = malloc(sizeof *outgoing + ring->config.piece_bytes);
    if (!outgoing)
        return;
    *outgoing =
        (struct sh_ring_outgoing){.transfer = ++ring->transfers, .sequence = shard->applied};
    bool is_known = sh_entries_term(&shard->entries, outgoing->sequence, &outgoing->epoch);
    SH_ASSERT(is_known);
    if (fsm->snapshot_begin(fsm->arg, number, &outgoing->snapshot)) {
        free(outgoing);
        return;
    }
    piece_take(ring, outgoing);
    progress->outgoing = outgoing;
}

void sh_ring_snapshot_send(struct sh_ring *ring, unsigned number, uint8_t to)
{
    struct sh_ring_progress *progress = &ring->shards[number].progress[to];
    SH_ASSERT(ring->shards[number].owns && progress->sending == SH_RING_TRANSFER);
    if (!progress->outgoing)
        outgoing_begin(ring, number, progress);
    const struct sh_ring_outgoing *outgoing = progress->outgoing;
    if (!outgoing)
        return;
    struct sh_writer w = sh_ring_message_begin(ring, to, number, SH_RING_SNAPSHOT,
                                               outgoing->is_last ? SH_RING_LAST : 0,
                                               SH_RING_SNAPSHOT_BYTES + outgoing->size);
    sh_put64(&w, outgoing->transfer);
    sh_put64(&w, outgoing->sequence);
    sh_put64(&w, outgoing->epoch);
    sh_put32(&w, outgoing->piece);
    sh_put_raw(&w, sh_bytes_make(outgoing->bytes, outgoing->size));
}

void sh_ring_on_snapshot_answer(struct sh_ring *ring, uint64_t now_ns,
                                const struct sh_ring_head *head, struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    struct sh_ring_progress *progress = &shard->progress[head->from];
    struct sh_ring_outgoing *outgoing = progress->outgoing;
    uint64_t transfer = sh_get64(r);
    uint32_t wanted = sh_get32(r);
    SH_ASSERT(shard->owns);
    if (!sh_reader_done(r) || !outgoing || outgoing->transfer != transfer)
        return;
    if (wanted == outgoing->piece + 1 && !outgoing->is_last) {
        outgoing->piece++;
        piece_take(ring, outgoing);
        progress->since_ns = now_ns;
    } else if (wanted < outgoing->piece) {
        sh_ring_outgoing_drop(ring, progress); /* it has lost what it had of this one */
    } else {
        return;
    }
    progress->resend_ns = now_ns;
    sh_ring_touch(ring, head->shard);
}

/* --- The replica ----------------------------------------------------------------------------- */

/* The journal keeps what there was before; if that was nothing, nothing. */
static void install_give_up(struct sh_ring *ring, unsigned number)
{
    unsigned stream = sh_ring_stream_of(ring, number);
    sh_journal_install_cancel(ring->journal, stream);
    if (!ring->shards[number].has)
        (void)sh_journal_drop(ring->journal, stream);
}

void sh_ring_incoming_drop(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_incoming *incoming = &ring->shards[number].incoming;
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    if (incoming->restore) {
        (void)fsm->restore_end(fsm->arg, incoming->restore, false);
        install_give_up(ring, number);
    }
    *incoming = (struct sh_ring_incoming){0};
}

void sh_ring_incoming_tick(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_incoming *incoming = &ring->shards[number].incoming;
    uint64_t tick_ns = ring->config.resend_ns / 2;
    if (incoming->restore && ++incoming->idle * tick_ns > 2 * ring->config.patience_ns)
        sh_ring_incoming_drop(ring, number);
}

static void wanted_answer(struct sh_ring *ring, const struct sh_ring_head *head)
{
    const struct sh_ring_incoming *incoming = &ring->shards[head->shard].incoming;
    struct sh_writer w = sh_ring_message_begin(
        ring, head->from, head->shard, SH_RING_SNAPSHOT_ANSWER, 0, SH_RING_SNAPSHOT_ANSWER_BYTES);
    sh_put64(&w, incoming->transfer);
    sh_put32(&w, incoming->piece);
}

/* Whether a snapshot came late: to install it would drop entries that the owner counts on. */
static bool is_superfluous(struct sh_ring *ring, const struct sh_ring_head *head,
                           const struct sh_ring_incoming *offered)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    bool holds = ring->arcs.shards[head->shard].replicas & sh_ring_own(ring);
    uint64_t epoch;
    if (!shard->has)
        return false;
    if (shard->agreed_version == head->version && offered->sequence <= shard->agreed)
        sh_ring_follow_agree(ring, head, shard->agreed);
    else if (holds && offered->sequence <= shard->applied)
        sh_ring_follow_refuse(ring, head, 0, shard->applied);
    else if (sh_entries_term(&shard->entries, offered->sequence, &epoch) && epoch == offered->epoch)
        sh_ring_follow_agree(ring, head, offered->sequence);
    else
        return false;
    return true;
}

/* Makes ready for a snapshot, unless it is the one that is coming already. */
static bool incoming_expect(struct sh_ring *ring, unsigned number,
                            const struct sh_ring_incoming *offered)
{
    SH_ASSERT(!ring->shards[number].owns);
    struct sh_ring_incoming *incoming = &ring->shards[number].incoming;
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    if (incoming->restore && incoming->version == offered->version &&
        incoming->transfer == offered->transfer)
        return true;
    sh_ring_incoming_drop(ring, number);
    void *restore;
    if (fsm->restore_begin(fsm->arg, number, &restore))
        return false;
    *incoming = *offered;
    incoming->restore = restore;
    incoming->piece = 0;
    sh_journal_install_begin(ring->journal, sh_ring_stream_of(ring, number), offered->sequence,
                             offered->epoch);
    return true;
}

static void install(struct sh_ring *ring, const struct sh_ring_head *head)
{
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    struct sh_ring_incoming incoming = shard->incoming;
    SH_ASSERT(incoming.restore && !shard->owns);
    unsigned stream = sh_ring_stream_of(ring, head->shard);
    shard->incoming = (struct sh_ring_incoming){0};
    enum shoal_err err = fsm->restore_end(fsm->arg, incoming.restore, true);
    if (err) {
        SH_WARN("ring", "a shard's snapshot can't be taken over; the owner sends another",
                SH_U64("shard", head->shard), SH_U64("from", head->from), SH_ERR(err));
        install_give_up(ring, head->shard);
        return;
    }
    sh_ring_log_install(ring, head->shard, incoming.sequence, incoming.epoch,
                        sh_journal_install_end(ring->journal, stream));
    sh_ring_follow_agree(ring, head, incoming.sequence);
}

void sh_ring_on_snapshot(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r)
{
    struct sh_ring_incoming *incoming = &ring->shards[head->shard].incoming;
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    struct sh_ring_incoming offered = {.version = head->version, .transfer = sh_get64(r)};
    offered.sequence = sh_get64(r);
    offered.epoch = sh_get64(r);
    offered.piece = sh_get32(r);
    size_t size = sh_reader_left(r);
    bool is_last = head->flags & SH_RING_LAST;
    SH_ASSERT(!ring->shards[head->shard].owns);
    if (!sh_reader_ok(r) || offered.sequence > SH_RING_SEQUENCE_MAX || (is_last && size) ||
        is_superfluous(ring, head, &offered) || !incoming_expect(ring, head->shard, &offered))
        return;
    if (offered.piece == incoming->piece && !is_last) {
        struct sh_bytes piece = sh_bytes_make(sh_reader_take(r, size), size);
        if (fsm->restore_piece(fsm->arg, incoming->restore, piece)) {
            sh_ring_incoming_drop(ring, head->shard); /* begun anew when it is sent again */
            return;
        }
        sh_journal_install_piece(ring->journal, sh_ring_stream_of(ring, head->shard), piece);
        incoming->piece++;
        incoming->idle = 0;
    } else if (offered.piece == incoming->piece) {
        install(ring, head);
        return;
    }
    wanted_answer(ring, head);
}
