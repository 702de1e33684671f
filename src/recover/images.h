/* What the log of a zone has, put into a store: the chunks of one zone after the other, and what else comes with them.
 *
 * A zone's chunks are those that it claims (docs/backup.md). Zones that the node has read before keep what they claim. Of such a chunk the image is *left*, and the zone gets a removal of it; so is
 * one that the zone itself does not claim: of a large chunk whose claim was still to come, or which an earlier restorer has let go of, as another zone has it.
 *
 * The log hands a chunk out before it knows all versions, and has it dropped when it finds a newer one (struct sh_replog_read). Chunks wait in the log's
 * memory until the log's step ends, and go into the store by groups.
 *
 * Memory: 32 bytes a claim, 16 a chunk that is left, 8 one that another zone claims without having it; and 4 KiB. One thread. */
#ifndef SH_RECOVER_IMAGES_H
#define SH_RECOVER_IMAGES_H

#include "backup/backup.h"
#include "log/replog.h"
#include "metadata/metadata.h"
#include "recover/completions.h"

/* A chunk that is left; or, until the zone is settled, one of which the log has dropped what was left: the note with the highest turn counts. */
struct sh_images_left {
    uint64_t chunk;
    uint32_t turn;
    bool is_dropped;
};

#define SH_IMAGES_OPS 64 /* chunks that wait together */

struct sh_images {
    /* The caller's. */
    struct sh_store *store;
    struct sh_backup *backup;
    shoal_nid nid;    /* whose store it is */
    bool is_nameless; /* the store has no node ID, its own chunks are that node's */
    bool
        is_online; /* the store is in use, and the backup on: nothing of this is recorded (sh_store_witness_pause) */
    shoal_nid
        completer; /* the node that ran the requests whose completion records name none; NONE: this one */
    struct sh_completions *completions; /* borrowed; NULL: nobody wants to know */
    /* Whether a chunk is that zone's, of that number, which claims it; NULL: so. A chunk that was here before and has moved away may be claimed still. */
    bool (*counts)(void *arg, shoal_cid cid, uint64_t number);
    void *arg;
    bool
        counts_missing; /* where the store has no room, the rest of the zone is counted (missing), and EFULL is not an error */
    /* Of the zone. */
    uint64_t
        missing; /* bytes of chunks that found no room, as they count for a zone; too many where the log has handed out what turned out to be outdated */
    uint64_t *
        returned; /* chunks that another zone claimed when they were put into the store, which did not count */
    size_t returned_count, returned_room;
    struct sh_zone_claim *claims; /* by their places; those that are not there are empty */
    size_t claims_count, claims_room;
    struct sh_metadata_run
        *runs; /* its claims in order, without overlaps, once it is settled; NULL: not yet */
    size_t runs_count;
    struct sh_images_left *left;
    size_t left_count, left_room;
    struct sh_zone_claim *
        hulls; /* of each creator, within which all of its chunks are that were put into the store */
    size_t hulls_count, hulls_room;
    uint64_t live; /* bytes of its chunks, as they count for a zone */
    uint64_t chunks, payload_bytes;
    bool has_completions;
    struct sh_store_op ops[SH_IMAGES_OPS]; /* chunks that wait: their bytes are the log's */
    size_t ops_count;
    uint64_t leave_from, undo_from; /* where these go on; 0: they begin */
    size_t settle_hull;             /* the same of settle */
    uint64_t settle_from;
    size_t returned_at, returned_kept;
};

/* The name that the store has for a chunk. */
shoal_cid sh_images_cid(const struct sh_images *images, uint64_t chunk);
/* Begins with a zone. */
void sh_images_begin(struct sh_images *images);
/* Takes, drops and flushes what the zone holds (struct sh_replog_read): a flush follows before the zone is settled, or undone. EFULL, ETOOBIG: the store has no room. ECORRUPT, ENOMEM; ELIMIT:
 * too much is left. EAGAIN of drop: the chunk is pinned. */
SHOAL_NODISCARD enum shoal_err sh_images_take(struct sh_images *images,
                                              const struct sh_replog_item *item);
SHOAL_NODISCARD enum shoal_err sh_images_drop(struct sh_images *images, uint16_t creator,
                                              uint64_t local_id);
SHOAL_NODISCARD enum shoal_err sh_images_flush(struct sh_images *images);
/* The zone has no more, and no number in the backup yet: chunks that it does not claim go out of the store again, and are left; `left` has each chunk once, in order, and `returned` no chunk that was dropped; what
 * is in `returned`, and another zone has by now, is left as well. ENOMEM; EAGAIN,
 * EBUSY as of sh_images_leave. */
SHOAL_NODISCARD enum shoal_err sh_images_settle(struct sh_images *images);
/* Takes all chunks from that ID to that one out of the store again that are the zone's, which has that number in the backup: they are left. EAGAIN: some of them, the
 * same call goes on with the others. ENOMEM; EBUSY: a chunk is pinned, the same call tries again. */
SHOAL_NODISCARD enum shoal_err sh_images_leave(struct sh_images *images, uint64_t number,
                                               uint64_t first, uint64_t last);
/* Takes all of the zone out of the store again: of one that no zone of the backup has yet (number 0), all that none has. EAGAIN, EBUSY: as of leave. */
SHOAL_NODISCARD enum shoal_err sh_images_undo(struct sh_images *images, uint64_t number);
/* Frees what there is of the zone; its counts stay. */
void sh_images_end(struct sh_images *images);

#endif
