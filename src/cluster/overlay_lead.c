/* A sector's owner: what it sends, when something is done, what it asks the registry for. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/overlay_int.h"

void sh_overlay_lead_forget(struct sh_overlay_sector *sector, unsigned nid)
{
    SH_ASSERT(sector->owns);
    sector->progress[nid] = (struct sh_overlay_progress){.next = sh_overlay_log_last(sector) + 1};
    sector->counted &= ~sh_arc_bit(nid);
    /* It is asked for in the life that is over, and would be in vain. */
    if (sector->change.kind == SH_ARC_ADD && sector->change.nid == nid)
        sector->change.kind = 0;
}

void sh_overlay_lead_begin(struct sh_overlay *ring, uint64_t now_ns, unsigned number,
                           bool was_owner)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    const struct sh_sector *now = &ring->arcs.sectors[number];
    sector->owns = true;
    sector->is_handing = sector->has_handed = false;
    sector->change.kind = 0;
    sh_overlay_image_drop(&sector->coming);
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        struct sh_overlay_progress *progress = &sector->progress[nid];
        /* Who does not hold it has to say in this version that he has it: he may have dropped it.
         */
        if (!was_owner || !(now->holders & sh_arc_bit(nid)))
            sh_overlay_lead_forget(sector, nid);
        progress->is_waiting = false;
        progress->resend_ns = 0;
        if (!progress->since_ns)
            progress->since_ns = now_ns;
    }
    sector->counted = 0;
    if (was_owner)
        return;
    sector->serve_from = sh_overlay_log_last(sector);
    SH_DEBUG("ring", "owns", SH_U64("sector", number), SH_U64("version", now->version),
             SH_U64("applied", sector->applied), SH_U64("last", sector->serve_from));
}

void sh_overlay_lead_end(struct sh_overlay_sector *sector)
{
    sector->owns = sector->is_handing = sector->has_handed = false;
    sector->change.kind = 0;
    sector->counted = 0;
    sh_overlay_image_drop(&sector->image);
}

/* --- Sending --------------------------------------------------------------------------------- */

/* All but this one who hold the sector, or are to, or were to and may be added yet. */
static uint64_t others(const struct sh_overlay *ring, unsigned number)
{
    const struct sh_overlay_sector *sector = &ring->sectors[number];
    return (ring->arcs.sectors[number].holders | sector->wanted | sector->counted) &
           ~sh_overlay_own(ring);
}

static void image_take(struct sh_overlay *ring, unsigned number)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    const struct sh_overlay_fsm *fsm = &ring->config.fsm;
    size_t size = fsm->image_size(fsm->arg, number);
    if (size > SH_OVERLAY_IMAGE_BYTES_MAX) {
        SH_ERROR("ring", "a sector is too large to be copied", SH_U64("sector", number),
                 SH_U64("bytes", size));
        return;
    }
    struct sh_overlay_image image = {.sequence = sector->applied, .size = (uint32_t)size};
    bool is_known = sh_overlay_log_epoch(sector, image.sequence, &image.epoch);
    SH_ASSERT(is_known);
    image.bytes = malloc(size ? size : 1);
    if (!image.bytes)
        return; /* tried again in the next step */
    struct sh_writer w = sh_writer_make(image.bytes, size);
    fsm->image_put(fsm->arg, number, &w);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    sector->image = image;
}

static void send_image(struct sh_overlay *ring, unsigned number, uint8_t to)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    struct sh_overlay_progress *progress = &sector->progress[to];
    if (!sector->image.bytes)
        image_take(ring, number);
    const struct sh_overlay_image *image = &sector->image;
    if (!image->bytes)
        return;
    if (progress->image != image->sequence || progress->image_at > image->size) {
        progress->image = image->sequence;
        progress->image_at = 0;
    }
    uint32_t size = image->size - progress->image_at;
    if (size > ring->config.piece_bytes)
        size = ring->config.piece_bytes;
    struct sh_writer w = sh_overlay_message_begin(ring, to, number, SH_OVERLAY_IMAGE, 0,
                                                  SH_OVERLAY_IMAGE_BYTES + size);
    sh_put64(&w, image->sequence);
    sh_put64(&w, image->epoch);
    sh_put32(&w, image->size);
    sh_put32(&w, progress->image_at);
    sh_put_raw(&w, sh_bytes_make(image->bytes + progress->image_at, size));
}

static void send_entries(struct sh_overlay *ring, unsigned number, uint8_t to,
                         uint64_t before_epoch)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t next = sector->progress[to].next;
    uint64_t last = sh_overlay_log_last(sector);
    size_t size = SH_OVERLAY_APPEND_BYTES;
    uint32_t count = 0;
    while (next + count <= last && size < ring->config.piece_bytes) {
        size += SH_OVERLAY_ENTRY_BYTES + sh_overlay_log_at(sector, next + count)->size;
        count++;
    }
    struct sh_writer w = sh_overlay_message_begin(ring, to, number, SH_OVERLAY_APPEND, 0, size);
    sh_put64(&w, next - 1);
    sh_put64(&w, before_epoch);
    sh_put64(&w, sector->applied);
    sh_put32(&w, count);
    for (uint32_t i = 0; i < count; i++) {
        const struct sh_overlay_entry *entry = sh_overlay_log_at(sector, next + i);
        sh_put64(&w, entry->epoch);
        sh_put32(&w, entry->size);
        sh_put_raw(&w, sh_bytes_make(entry->bytes, entry->size));
    }
}

static void tell(struct sh_overlay *ring, uint64_t now_ns, unsigned number, uint8_t to)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    struct sh_overlay_progress *progress = &sector->progress[to];
    bool owes = progress->version != ring->arcs.sectors[number].version ||
                progress->match < sh_overlay_log_last(sector) || progress->wants_image;
    if (!owes)
        progress->since_ns = 0;
    else if (!progress->since_ns)
        progress->since_ns = now_ns;
    if (!owes && progress->applied >= sector->applied)
        return;
    /* That something is done, others learn with the next entries or after a while. */
    if ((progress->is_waiting || !owes) && now_ns < progress->resend_ns)
        return;
    progress->is_waiting = true;
    progress->resend_ns = now_ns + ring->config.resend_ns;
    uint64_t epoch = 0;
    SH_ASSERT(progress->next);
    /* What it lacks may be forgotten here by now. */
    if (!sh_overlay_log_epoch(sector, progress->next - 1, &epoch))
        progress->wants_image = true;
    if (progress->wants_image)
        send_image(ring, number, to);
    else
        send_entries(ring, number, to, epoch);
}

static void tell_all(struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    bool is_image_wanted = false;
    for (uint64_t left = others(ring, number); left; left &= left - 1) {
        uint8_t to = (uint8_t)__builtin_ctzll(left);
        tell(ring, now_ns, number, to);
        is_image_wanted |= sector->progress[to].wants_image;
    }
    if (!is_image_wanted)
        sh_overlay_image_drop(&sector->image);
}

/* --- Deciding -------------------------------------------------------------------------------- */

/* Applies what all have who are awaited. */
static void apply(struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t awaited =
        (ring->arcs.sectors[number].holders | sector->counted) & ~sh_overlay_own(ring);
    uint64_t done = sh_overlay_log_last(sector);
    for (; awaited; awaited &= awaited - 1) {
        uint64_t match = sector->progress[__builtin_ctzll(awaited)].match;
        done = match < done ? match : done;
    }
    if (done > sector->applied && now_ns < ring->lease_ns)
        sh_overlay_log_apply(ring, number, done);
}

static void ask(struct sh_overlay *ring, uint64_t now_ns, unsigned number, enum sh_arc_kind kind,
                unsigned nid)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .sector = (uint8_t)number,
                                   .nid = (uint8_t)nid,
                                   .version = ring->arcs.sectors[number].version,
                                   .life = ring->arcs.lives[nid]};
    if (sector->change.kind != change.kind || sector->change.nid != change.nid)
        sector->change_ns = now_ns;
    sector->change = change;
}

/* Somebody who is awaited and answers nothing; 0: nobody. */
static unsigned silent(const struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    const struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t awaited =
        (ring->arcs.sectors[number].holders | sector->counted) & ~sh_overlay_own(ring);
    for (; awaited; awaited &= awaited - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(awaited);
        uint64_t since_ns = sector->progress[nid].since_ns;
        if (since_ns && now_ns >= since_ns + ring->config.patience_ns)
            return nid;
    }
    return 0;
}

/* Somebody who is to hold the sector, does not, and has all that was answered, also by an owner
 * before this one; 0: nobody. Who is added may be the next owner. */
static unsigned ready(const struct sh_overlay *ring, unsigned number)
{
    const struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t version = ring->arcs.sectors[number].version;
    uint64_t answered = sector->applied > sector->serve_from ? sector->applied : sector->serve_from;
    uint64_t missing = sector->wanted & ~ring->arcs.sectors[number].holders;
    for (; missing; missing &= missing - 1) {
        unsigned nid = (unsigned)__builtin_ctzll(missing);
        const struct sh_overlay_progress *progress = &sector->progress[nid];
        if (progress->version == version && progress->match >= answered && !progress->wants_image)
            return nid;
    }
    return 0;
}

/* What should be otherwise, by urgency; each change brings another version, and the next one. */
static void decide(struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t holders = ring->arcs.sectors[number].holders;
    if (sector->has_handed)
        return;
    unsigned nid = silent(ring, now_ns, number);
    if (nid) {
        ask(ring, now_ns, number, SH_ARC_DROP, nid);
        return;
    }
    nid = ready(ring, number);
    if (nid) {
        sector->counted |= sh_arc_bit(nid); /* until the version is another one */
        ask(ring, now_ns, number, SH_ARC_ADD, nid);
        return;
    }
    nid = sector->heir;
    sector->is_handing = nid && nid != ring->config.server && (holders & sh_arc_bit(nid));
    if (sector->is_handing && sector->applied == sh_overlay_log_last(sector)) {
        sector->has_handed = true;
        ask(ring, now_ns, number, SH_ARC_HAND, nid);
        return;
    }
    uint64_t surplus = holders & ~sector->wanted & ~sh_overlay_own(ring);
    if (surplus && nid && !(sector->wanted & ~holders) && !sector->is_handing)
        ask(ring, now_ns, number, SH_ARC_DROP, (unsigned)__builtin_ctzll(surplus));
    else
        sector->change.kind = 0; /* what was asked for before may still come */
}

void sh_overlay_lead_step(struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    SH_ASSERT(ring->sectors[number].owns && ring->sectors[number].has);
    apply(ring, now_ns, number);
    tell_all(ring, now_ns, number);
    decide(ring, now_ns, number);
}

/* --- Answers --------------------------------------------------------------------------------- */

void sh_overlay_on_answer(struct sh_overlay *ring, uint64_t now_ns,
                          const struct sh_overlay_head *head, struct sh_reader *r)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    struct sh_overlay_progress *progress = &sector->progress[head->from];
    uint64_t sequence = sh_get64(r);
    uint64_t epoch = sh_get64(r);
    uint64_t applied = sh_get64(r);
    uint64_t known;
    if (!sh_reader_done(r) || !(others(ring, head->sector) & sh_arc_bit(head->from)))
        return;
    progress->is_waiting = false;
    bool agrees = !(head->flags & SH_OVERLAY_EMPTY) &&
                  sh_overlay_log_epoch(sector, sequence, &known) && known == epoch;
    if ((head->flags & SH_OVERLAY_YES) && agrees) {
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
    sh_overlay_lead_step(ring, now_ns, head->sector);
}

void sh_overlay_on_image_answer(struct sh_overlay *ring, uint64_t now_ns,
                                const struct sh_overlay_head *head, struct sh_reader *r)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    struct sh_overlay_progress *progress = &sector->progress[head->from];
    uint64_t sequence = sh_get64(r);
    uint32_t offset = sh_get32(r);
    if (!sh_reader_done(r) || !progress->wants_image || sequence != progress->image ||
        !sector->image.bytes || sequence != sector->image.sequence || offset > sector->image.size)
        return;
    progress->is_waiting = false;
    if (offset > progress->image_at)
        progress->since_ns = now_ns;
    progress->image_at = offset;
    sh_overlay_lead_step(ring, now_ns, head->sector);
}
