/* A shard's owner: what it sends, when something is done, what it asks the registry for. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "ring/ring_int.h"

void sh_ring_lead_forget(struct sh_ring_shard *shard, unsigned nid)
{
    SH_ASSERT(shard->owns);
    shard->progress[nid] = (struct sh_ring_progress){.next = sh_ring_log_last(shard) + 1};
    shard->counted &= ~sh_arc_bit(nid);
    /* It is asked for in the life that is over, and would be in vain. */
    if (shard->change.kind == SH_ARC_ADD && shard->change.nid == nid)
        shard->change.kind = 0;
}

void sh_ring_lead_begin(struct sh_ring *ring, uint64_t now_ns, unsigned number, bool was_owner)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_shard *now = &ring->arcs.shards[number];
    shard->owns = true;
    shard->is_handing = shard->has_handed = false;
    shard->change.kind = 0;
    sh_ring_image_drop(&shard->coming);
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        struct sh_ring_progress *progress = &shard->progress[nid];
        /* Who does not hold it has to say in this version that he has it: he may have dropped it.
         */
        if (!was_owner || !(now->replicas & sh_arc_bit(nid)))
            sh_ring_lead_forget(shard, nid);
        progress->is_waiting = false;
        progress->resend_ns = 0;
        if (!progress->since_ns)
            progress->since_ns = now_ns;
    }
    shard->counted = 0;
    if (was_owner)
        return;
    shard->serve_from = sh_ring_log_last(shard);
    SH_DEBUG("ring", "owns", SH_U64("shard", number), SH_U64("version", now->version),
             SH_U64("applied", shard->applied), SH_U64("last", shard->serve_from));
}

void sh_ring_lead_end(struct sh_ring_shard *shard)
{
    shard->owns = shard->is_handing = shard->has_handed = false;
    shard->change.kind = 0;
    shard->counted = 0;
    sh_ring_image_drop(&shard->image);
}

/* --- Sending --------------------------------------------------------------------------------- */

/* All but this one who hold the shard, or are to, or were to and may be added yet. */
static uint64_t others(const struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    return (ring->arcs.shards[number].replicas | shard->wanted | shard->counted) &
           ~sh_ring_own(ring);
}

static void image_take(struct sh_ring *ring, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    size_t size = fsm->image_size(fsm->arg, number);
    if (size > SH_RING_IMAGE_BYTES_MAX) {
        SH_ERROR("ring", "a shard is too large to be copied", SH_U64("shard", number),
                 SH_U64("bytes", size));
        return;
    }
    struct sh_ring_image image = {.sequence = shard->applied, .size = (uint32_t)size};
    bool is_known = sh_ring_log_epoch(shard, image.sequence, &image.epoch);
    SH_ASSERT(is_known);
    image.bytes = malloc(size ? size : 1);
    if (!image.bytes)
        return; /* tried again in the next step */
    struct sh_writer w = sh_writer_make(image.bytes, size);
    fsm->image_put(fsm->arg, number, &w);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    shard->image = image;
}

static void send_image(struct sh_ring *ring, unsigned number, uint8_t to)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_ring_progress *progress = &shard->progress[to];
    if (!shard->image.bytes)
        image_take(ring, number);
    const struct sh_ring_image *image = &shard->image;
    if (!image->bytes)
        return;
    if (progress->image != image->sequence || progress->image_at > image->size) {
        progress->image = image->sequence;
        progress->image_at = 0;
    }
    uint32_t size = image->size - progress->image_at;
    if (size > ring->config.piece_bytes)
        size = ring->config.piece_bytes;
    struct sh_writer w =
        sh_ring_message_begin(ring, to, number, SH_RING_IMAGE, 0, SH_RING_IMAGE_BYTES + size);
    sh_put64(&w, image->sequence);
    sh_put64(&w, image->epoch);
    sh_put32(&w, image->size);
    sh_put32(&w, progress->image_at);
    sh_put_raw(&w, sh_bytes_make(image->bytes + progress->image_at, size));
}

static void send_entries(struct sh_ring *ring, unsigned number, uint8_t to, uint64_t before_epoch)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t next = shard->progress[to].next;
    uint64_t last = sh_ring_log_last(shard);
    size_t size = SH_RING_APPEND_BYTES;
    uint32_t count = 0;
    while (next + count <= last && size < ring->config.piece_bytes) {
        size += SH_RING_ENTRY_BYTES + sh_ring_log_at(shard, next + count)->size;
        count++;
    }
    struct sh_writer w = sh_ring_message_begin(ring, to, number, SH_RING_APPEND, 0, size);
    sh_put64(&w, next - 1);
    sh_put64(&w, before_epoch);
    sh_put64(&w, shard->applied);
    sh_put32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sh_ring_entry *entry = sh_ring_log_at(shard, next + i);
        sh_put64(&w, entry->epoch);
        sh_put32(&w, entry->size);
        sh_put_raw(&w, sh_bytes_make(entry->bytes, entry->size));
    }
}

static void tell(struct sh_ring *ring, uint64_t now_ns, unsigned number, uint8_t to)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_ring_progress *progress = &shard->progress[to];
    bool owes = progress->version != ring->arcs.shards[number].version ||
                progress->match < sh_ring_log_last(shard) || progress->wants_image;
    if (!owes)
        progress->since_ns = 0;
    else if (!progress->since_ns)
        progress->since_ns = now_ns;
    if (!owes && progress->applied >= shard->applied)
        return;
    /* That something is done, others learn with the next entries or after a while. */
    if ((progress->is_waiting || !owes) && now_ns < progress->resend_ns)
        return;
    progress->is_waiting = true;
    progress->resend_ns = now_ns + ring->config.resend_ns;
    uint64_t epoch = 0;
    SH_ASSERT(progress->next);
    /* What it lacks may be forgotten here by now. */
    if (!sh_ring_log_epoch(shard, progress->next - 1, &epoch))
        progress->wants_image = true;
    if (progress->wants_image)
        send_image(ring, number, to);
    else
        send_entries(ring, number, to, epoch);
}

static void tell_all(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    bool is_image_wanted = false;
    for (uint64_t left = others(ring, number); left; left &= left - 1) {
        uint8_t to = (uint8_t)__builtin_ctzll(left);
        tell(ring, now_ns, number, to);
        is_image_wanted |= shard->progress[to].wants_image;
    }
    if (!is_image_wanted)
        sh_ring_image_drop(&shard->image);
}

/* --- Deciding -------------------------------------------------------------------------------- */

/* Applies what all have who are awaited. */
static void apply(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t awaited = (ring->arcs.shards[number].replicas | shard->counted) & ~sh_ring_own(ring);
    uint64_t done = sh_ring_log_last(shard);
    for (; awaited; awaited &= awaited - 1) {
        uint64_t match = shard->progress[__builtin_ctzll(awaited)].match;
        done = match < done ? match : done;
    }
    if (done > shard->applied && now_ns < ring->lease_ns)
        sh_ring_log_apply(ring, number, done);
}

static void ask(struct sh_ring *ring, uint64_t now_ns, unsigned number, enum sh_arc_kind kind,
                unsigned nid)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .shard = (uint8_t)number,
                                   .nid = (uint8_t)nid,
                                   .version = ring->arcs.shards[number].version,
                                   .life = ring->arcs.lives[nid]};
    if (shard->change.kind != change.kind || shard->change.nid != change.nid)
        shard->change_ns = now_ns;
    shard->change = change;
}

/* Somebody who is awaited and answers nothing; 0: nobody. */
static unsigned silent(const struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t awaited = (ring->arcs.shards[number].replicas | shard->counted) & ~sh_ring_own(ring);
    for (; awaited; awaited &= awaited - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(awaited);
        uint64_t since_ns = shard->progress[nid].since_ns;
        if (since_ns && now_ns >= since_ns + ring->config.patience_ns)
            return nid;
    }
    return 0;
}

/* Somebody who is to hold the shard, does not, and has all that was answered, also by an owner
 * before this one; 0: nobody. Who is added may be the next owner. */
static unsigned ready(const struct sh_ring *ring, unsigned number)
{
    const struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t version = ring->arcs.shards[number].version;
    uint64_t answered = shard->applied > shard->serve_from ? shard->applied : shard->serve_from;
    uint64_t missing = shard->wanted & ~ring->arcs.shards[number].replicas;
    for (; missing; missing &= missing - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(missing);
        const struct sh_ring_progress *progress = &shard->progress[nid];
        if (progress->version == version && progress->match >= answered && !progress->wants_image)
            return nid;
    }
    return 0;
}

/* What should be otherwise, by urgency; each change brings another version, and the next one. */
static void decide(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t replicas = ring->arcs.shards[number].replicas;
    if (shard->has_handed)
        return;
    unsigned nid = silent(ring, now_ns, number);
    if (nid) {
        ask(ring, now_ns, number, SH_ARC_DROP, nid);
        return;
    }
    nid = ready(ring, number);
    if (nid) {
        shard->counted |= sh_arc_bit(nid); /* until the version is another one */
        ask(ring, now_ns, number, SH_ARC_ADD, nid);
        return;
    }
    nid = shard->successor;
    shard->is_handing = nid && nid != ring->config.server && (replicas & sh_arc_bit(nid));
    if (shard->is_handing && shard->applied == sh_ring_log_last(shard)) {
        shard->has_handed = true;
        ask(ring, now_ns, number, SH_ARC_HAND, nid);
        return;
    }
    uint64_t surplus = replicas & ~shard->wanted & ~sh_ring_own(ring);
    if (surplus && nid && !(shard->wanted & ~replicas) && !shard->is_handing)
        ask(ring, now_ns, number, SH_ARC_DROP, (unsigned)__builtin_ctzll(surplus));
    else
        shard->change.kind = 0; /* what was asked for before may still come */
}

void sh_ring_lead_step(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    SH_ASSERT(ring->shards[number].owns && ring->shards[number].has);
    apply(ring, now_ns, number);
    tell_all(ring, now_ns, number);
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
    if (!sh_reader_done(r) || !(others(ring, head->shard) & sh_arc_bit(head->from)))
        return;
    progress->is_waiting = false;
    bool agrees = !(head->flags & SH_RING_EMPTY) && sh_ring_log_epoch(shard, sequence, &known) &&
                  known == epoch;
    if ((head->flags & SH_RING_YES) && agrees) {
        if (sequence > progress->match || progress->version != head->version)
            progress->since_ns = now_ns;
        progress->version = head->version;
        if (sequence > progress->match)
            progress->match = sequence;
        if (applied > progress->applied)
            progress->applied = applied;
        progress->next = progress->match + 1;
        progress->wants_image = false;
    } else if (agrees) {
        progress->next = sequence + 1;
        progress->wants_image = false;
    } else {
        progress->wants_image = true;
    }
    sh_ring_lead_step(ring, now_ns, head->shard);
}

void sh_ring_on_image_answer(struct sh_ring *ring, uint64_t now_ns, const struct sh_ring_head *head,
                             struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    struct sh_ring_progress *progress = &shard->progress[head->from];
    uint64_t sequence = sh_get64(r);
    uint32_t offset = sh_get32(r);
    if (!sh_reader_done(r) || !progress->wants_image || sequence != progress->image ||
        !shard->image.bytes || sequence != shard->image.sequence || offset > shard->image.size)
        return;
    progress->is_waiting = false;
    if (offset > progress->image_at)
        progress->since_ns = now_ns;
    progress->image_at = offset;
    sh_ring_lead_step(ring, now_ns, head->shard);
}
