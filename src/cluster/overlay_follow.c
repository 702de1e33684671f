/* Who holds a sector, or is to hold it: takes what its owner sends. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/overlay_int.h"

static void answer(struct sh_overlay *ring, const struct sh_overlay_head *head, uint8_t flags,
                   uint64_t sequence)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    uint64_t epoch = 0;
    if (!(flags & SH_OVERLAY_EMPTY)) {
        bool is_known = sh_overlay_log_epoch(sector, sequence, &epoch);
        SH_ASSERT(is_known);
    }
    bool is_first = sector->agreed_version != head->version;
    if ((flags & SH_OVERLAY_YES) && (is_first || sequence > sector->agreed)) {
        sector->agreed_version = head->version;
        sector->agreed = sequence;
    }
    struct sh_writer w = sh_overlay_message_begin(ring, head->from, head->sector, SH_OVERLAY_ANSWER,
                                                  flags, SH_OVERLAY_ANSWER_BYTES);
    sh_put64(&w, sequence);
    sh_put64(&w, epoch);
    sh_put64(&w, sector->applied);
}

/* Takes one entry. False: it can't be taken. */
static bool entry_take(struct sh_overlay *ring, unsigned number, uint64_t sequence, uint64_t epoch,
                       struct sh_bytes bytes)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    uint64_t known;
    if (sequence <= sector->applied)
        return true; /* all who hold it have the same */
    if (sh_overlay_log_epoch(sector, sequence, &known)) {
        if (known == epoch)
            return true;
        sh_overlay_log_cut(sector, sequence); /* another owner's, which was never answered */
    }
    SH_ASSERT(sequence == sh_overlay_log_last(sector) + 1);
    return !sh_overlay_log_reserve(ring, number, bytes) &&
           !sh_overlay_log_append(sector, epoch, bytes);
}

void sh_overlay_on_append(struct sh_overlay *ring, const struct sh_overlay_head *head,
                          struct sh_reader *r)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    uint64_t before = sh_get64(r);
    uint64_t before_epoch = sh_get64(r);
    uint64_t applied = sh_get64(r);
    uint32_t count = sh_get32(r);
    uint64_t known;
    if (!sh_reader_ok(r))
        return;
    if (!sector->has) {
        answer(ring, head, SH_OVERLAY_EMPTY, 0);
        return;
    }
    if (before > sh_overlay_log_last(sector)) {
        answer(ring, head, 0, sh_overlay_log_last(sector));
        return;
    }
    /* Of what is applied and forgotten the epochs are not known any more: from there on, then. */
    if (!sh_overlay_log_epoch(sector, before, &known) || known != before_epoch) {
        answer(ring, head, 0, sector->applied);
        return;
    }
    uint64_t sequence = before;
    for (uint32_t i = 0; i < count; i++) {
        uint64_t epoch = sh_get64(r);
        uint32_t size = sh_get32(r);
        const uint8_t *at = sh_reader_take(r, size);
        if (!sh_reader_ok(r) || size > SH_OVERLAY_COMMAND_BYTES_MAX ||
            !entry_take(ring, head->sector, sequence + 1, epoch, sh_bytes_make(at, size)))
            break;
        sequence++;
    }
    if (applied > sequence)
        applied = sequence;
    if (applied > sector->applied)
        sh_overlay_log_apply(ring, head->sector, applied);
    answer(ring, head, SH_OVERLAY_YES, sequence);
}

/* --- Images ---------------------------------------------------------------------------------- */

static void image_answer(struct sh_overlay *ring, const struct sh_overlay_head *head,
                         uint64_t sequence, uint32_t wanted)
{
    struct sh_writer w = sh_overlay_message_begin(
        ring, head->from, head->sector, SH_OVERLAY_IMAGE_ANSWER, 0, SH_OVERLAY_IMAGE_ANSWER_BYTES);
    sh_put64(&w, sequence);
    sh_put32(&w, wanted);
}

static void image_install(struct sh_overlay *ring, const struct sh_overlay_head *head)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    const struct sh_overlay_fsm *fsm = &ring->config.fsm;
    struct sh_overlay_image image = sector->coming;
    sector->coming = (struct sh_overlay_image){0};
    enum shoal_err err =
        fsm->image_get(fsm->arg, head->sector, sh_bytes_make(image.bytes, image.size));
    if (!err) {
        sh_overlay_log_reset(sector, image.sequence, image.epoch);
        sector->has = true;
        answer(ring, head, SH_OVERLAY_YES, image.sequence);
    } else if (sector->has) {
        answer(ring, head, 0, sector->applied);
    } else {
        answer(ring, head, SH_OVERLAY_EMPTY, 0);
    }
    free(image.bytes);
}

/* Makes room for an image, unless a part of it is there. */
static bool image_expect(struct sh_overlay_image *coming, const struct sh_overlay_image *image)
{
    if (coming->bytes && coming->sequence == image->sequence && coming->epoch == image->epoch &&
        coming->size == image->size)
        return true;
    sh_overlay_image_drop(coming);
    *coming = *image;
    coming->at = 0;
    coming->bytes = malloc(image->size ? image->size : 1);
    return coming->bytes;
}

/* Whether an image came late: to install it would drop entries that the owner counts on. */
static bool is_superfluous(struct sh_overlay *ring, const struct sh_overlay_head *head,
                           const struct sh_overlay_image *image)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    bool holds = ring->arcs.sectors[head->sector].holders & sh_overlay_own(ring);
    uint64_t epoch;
    if (sector->agreed_version == head->version && image->sequence <= sector->agreed)
        answer(ring, head, SH_OVERLAY_YES, sector->agreed);
    else if (holds && image->sequence <= sector->applied)
        answer(ring, head, 0, sector->applied);
    else if (sh_overlay_log_epoch(sector, image->sequence, &epoch) && epoch == image->epoch)
        answer(ring, head, SH_OVERLAY_YES, image->sequence);
    else
        return false;
    return true;
}

void sh_overlay_on_image(struct sh_overlay *ring, const struct sh_overlay_head *head,
                         struct sh_reader *r)
{
    struct sh_overlay_sector *sector = &ring->sectors[head->sector];
    struct sh_overlay_image *coming = &sector->coming;
    struct sh_overlay_image image = {.sequence = sh_get64(r)};
    image.epoch = sh_get64(r);
    image.size = sh_get32(r);
    uint32_t offset = sh_get32(r);
    size_t size = sh_reader_left(r);
    if (!sh_reader_ok(r) || image.sequence > SH_OVERLAY_SEQUENCE_MAX ||
        image.size > SH_OVERLAY_IMAGE_BYTES_MAX || offset > image.size ||
        size > image.size - offset)
        return;
    if (sector->has && is_superfluous(ring, head, &image))
        return;
    if (!image_expect(coming, &image))
        return;
    if (offset == coming->at && size) {
        memcpy(coming->bytes + offset, sh_reader_take(r, size), size);
        coming->at += (uint32_t)size;
    }
    if (coming->at < coming->size)
        image_answer(ring, head, coming->sequence, coming->at);
    else
        image_install(ring, head);
}
