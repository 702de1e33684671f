/* Who holds a shard, or is to hold it: takes what its owner sends. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "ring/ring_int.h"

static void answer(struct sh_ring *ring, const struct sh_ring_head *head, uint8_t flags,
                   uint64_t sequence)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    uint64_t epoch = 0;
    if (!(flags & SH_RING_EMPTY)) {
        bool is_known = sh_ring_log_epoch(shard, sequence, &epoch);
        SH_ASSERT(is_known);
    }
    bool is_first = shard->agreed_version != head->version;
    if ((flags & SH_RING_YES) && (is_first || sequence > shard->agreed)) {
        shard->agreed_version = head->version;
        shard->agreed = sequence;
    }
    struct sh_writer w = sh_ring_message_begin(ring, head->from, head->shard, SH_RING_ANSWER, flags,
                                               SH_RING_ANSWER_BYTES);
    sh_put64(&w, sequence);
    sh_put64(&w, epoch);
    sh_put64(&w, shard->applied);
}

/* Takes one entry. False: it can't be taken. */
static bool entry_take(struct sh_ring *ring, unsigned number, uint64_t sequence, uint64_t epoch,
                       struct sh_bytes bytes)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t known;
    if (sequence <= shard->applied)
        return true; /* all who hold it have the same */
    if (sh_ring_log_epoch(shard, sequence, &known)) {
        if (known == epoch)
            return true;
        sh_ring_log_cut(shard, sequence); /* another owner's, which was never answered */
    }
    SH_ASSERT(sequence == sh_ring_log_last(shard) + 1);
    return !sh_ring_log_reserve(ring, number, bytes) && !sh_ring_log_append(shard, epoch, bytes);
}

void sh_ring_on_append(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    uint64_t before = sh_get64(r);
    uint64_t before_epoch = sh_get64(r);
    uint64_t applied = sh_get64(r);
    uint32_t count = sh_get32(r);
    uint64_t known;
    if (!sh_reader_ok(r))
        return;
    if (!shard->has) {
        answer(ring, head, SH_RING_EMPTY, 0);
        return;
    }
    if (before > sh_ring_log_last(shard)) {
        answer(ring, head, 0, sh_ring_log_last(shard));
        return;
    }
    /* Of what is applied and forgotten the epochs are not known any more: from there on, then. */
    if (!sh_ring_log_epoch(shard, before, &known) || known != before_epoch) {
        answer(ring, head, 0, shard->applied);
        return;
    }
    uint64_t sequence = before;
    for (uint32_t i = 0; i < count; i++) {
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
    answer(ring, head, SH_RING_YES, sequence);
}

/* --- Images ---------------------------------------------------------------------------------- */

static void image_answer(struct sh_ring *ring, const struct sh_ring_head *head, uint64_t sequence,
                         uint32_t wanted)
{
    struct sh_writer w = sh_ring_message_begin(ring, head->from, head->shard, SH_RING_IMAGE_ANSWER,
                                               0, SH_RING_IMAGE_ANSWER_BYTES);
    sh_put64(&w, sequence);
    sh_put32(&w, wanted);
}

static void image_install(struct sh_ring *ring, const struct sh_ring_head *head)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    const struct sh_ring_fsm *fsm = &ring->config.fsm;
    struct sh_ring_image image = shard->coming;
    shard->coming = (struct sh_ring_image){0};
    enum shoal_err err =
        fsm->image_get(fsm->arg, head->shard, sh_bytes_make(image.bytes, image.size));
    if (!err) {
        sh_ring_log_reset(shard, image.sequence, image.epoch);
        shard->has = true;
        answer(ring, head, SH_RING_YES, image.sequence);
    } else if (shard->has) {
        answer(ring, head, 0, shard->applied);
    } else {
        answer(ring, head, SH_RING_EMPTY, 0);
    }
    free(image.bytes);
}

/* Makes room for an image, unless a part of it is there. */
static bool image_expect(struct sh_ring_image *coming, const struct sh_ring_image *image)
{
    if (coming->bytes && coming->sequence == image->sequence && coming->epoch == image->epoch &&
        coming->size == image->size)
        return true;
    sh_ring_image_drop(coming);
    *coming = *image;
    coming->at = 0;
    coming->bytes = malloc(image->size ? image->size : 1);
    return coming->bytes;
}

/* Whether an image came late: to install it would drop entries that the owner counts on. */
static bool is_superfluous(struct sh_ring *ring, const struct sh_ring_head *head,
                           const struct sh_ring_image *image)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    bool holds = ring->arcs.shards[head->shard].replicas & sh_ring_own(ring);
    uint64_t epoch;
    if (shard->agreed_version == head->version && image->sequence <= shard->agreed)
        answer(ring, head, SH_RING_YES, shard->agreed);
    else if (holds && image->sequence <= shard->applied)
        answer(ring, head, 0, shard->applied);
    else if (sh_ring_log_epoch(shard, image->sequence, &epoch) && epoch == image->epoch)
        answer(ring, head, SH_RING_YES, image->sequence);
    else
        return false;
    return true;
}

void sh_ring_on_image(struct sh_ring *ring, const struct sh_ring_head *head, struct sh_reader *r)
{
    struct sh_ring_shard *shard = &ring->shards[head->shard];
    struct sh_ring_image *coming = &shard->coming;
    struct sh_ring_image image = {.sequence = sh_get64(r)};
    image.epoch = sh_get64(r);
    image.size = sh_get32(r);
    uint32_t offset = sh_get32(r);
    size_t size = sh_reader_left(r);
    if (!sh_reader_ok(r) || image.sequence > SH_RING_SEQUENCE_MAX ||
        image.size > SH_RING_IMAGE_BYTES_MAX || offset > image.size || size > image.size - offset)
        return;
    if (shard->has && is_superfluous(ring, head, &image))
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
