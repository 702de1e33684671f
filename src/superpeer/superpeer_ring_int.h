/* The inside of a superpeer's part in the ring: superpeer_ring.c (what is kept, names, life),
 * superpeer_moves.c (lookups and migrations), superpeer_zones.c (zones), superpeer_takes.c (what peers ask that
 * recover zones),
 * superpeer_losses.c (losses that an operator accepts),
 * superpeer_gather.c (what the nodes have, after a loss), superpeer_salvage.c (shards whose last
 * replica was lost).
 *
 * The ring's table is in the registry. */
#ifndef SH_SUPERPEER_SUPERPEER_RING_INT_H
#define SH_SUPERPEER_SUPERPEER_RING_INT_H

#include "metadata/metadata.h"
#include "ring/ring.h"
#include "superpeer/superpeer_shared_int.h"

/* A request that waits for its update to be applied. */
struct sh_ring_waiting {
    struct sh_ring_waiting *next;
    unsigned shard;
    uint64_t epoch, sequence;
    struct sh_reply_to reply_to;
    sh_msg_type type;
    uint64_t deadline_ns;
};

/* The questions to the nodes what they have. */
struct sh_gather {
    struct sh_request request;
    bool is_asking;
    bool is_stale;  /* what is being answered belongs to an earlier round */
    shoal_nid nid;  /* the node at hand */
    shoal_cid from; /* where its next page begins; 0: the next node is to be asked */
    uint64_t due_ns;
    bool gathered[SH_SHARDS];      /* here, since it was lost */
    bool has_noted;                /* some node had chunks in one of these */
    bool is_full[SH_SHARDS];       /* a claim had no room: the shard can't be known */
    uint64_t asked[SH_NIDS_WORDS]; /* by node ID: the nodes that have sent their last page */
};

struct sh_saves; /* superpeer_save.c */

struct sh_superpeer_ring {
    struct sh_superpeer *superpeer;
    struct sh_saves *saves; /* NULL: no snapshot of a shard was ever asked for */
    struct sh_ring *ring;
    struct sh_metadata *metadata;
    bool is_started, is_whole, is_stale, is_refused;
    struct sh_arcs seen; /* the table that the ring was told */
    uint64_t beat_ns;
    bool is_built[SH_SHARDS]; /* false: to be built in that version */
    uint64_t build_version[SH_SHARDS];
    uint64_t salt;                        /* of incarnations */
    uint64_t restored_version[SH_SHARDS]; /* in which RESTORED was ordered last */
    struct sh_ring_waiting *waiting;
    size_t waiting_count;
    /* The sequence of the last COMMIT, GONE, TAKE or update of a zone that was ordered here. */
    uint64_t batches[SH_SHARDS];
    struct sh_gather gather;
};

/* superpeer_ring.c. Whether this superpeer may answer for a shard now: EROLE, with the superpeer to be
 * asked instead, or EBUSY. */
enum shoal_err sh_superpeer_ring_reads(struct sh_superpeer *superpeer, unsigned shard,
                                       shoal_nid *other_out);
/* Orders an update; its request is answered when it is applied. */
void sh_superpeer_ring_update(struct sh_superpeer *superpeer, struct sh_msg_in *in, unsigned shard,
                              struct sh_bytes update);
/* Whether the commit of a batch, a take, an update of a zone, or that a peer's chunks are lost, was ordered here and is
 * not decided yet; the request that asked for it may have been given up. */
bool sh_superpeer_ring_is_deciding(const struct sh_superpeer *superpeer, unsigned shard);
/* Orders an update of the owner's own. OK does not promise that the update is carried out; EROLE, EBUSY
 * and ENOMEM say that it is not. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_ring_order(struct sh_superpeer *superpeer,
                                                       unsigned shard,
                                                       const struct sh_metadata_update *update);

/* superpeer_salvage.c. Whether a shard's state is an old copy that has not been made the beginning
 * of a new incarnation yet, so that nothing may be answered with it. */
bool sh_superpeer_salvage_is_due(const struct sh_superpeer *superpeer, unsigned shard);
/* Orders the update that begins the new incarnation, where it is due. */
void sh_superpeer_salvage_step(struct sh_superpeer *superpeer);
/* An update of that kind was carried out here. */
void sh_superpeer_salvage_done(const struct sh_superpeer *superpeer, unsigned shard);
/* Says in the log that shards begin without any copy: bit n is shard n. */
void sh_superpeer_salvage_empty(const struct sh_superpeer *superpeer, uint64_t shards);
/* Says so, once, if this process on a new disk is refused since the former disk has the last replica of
 * shards. */
void sh_superpeer_salvage_refused(struct sh_superpeer *superpeer);

/* superpeer_save.c. A piece of a snapshot of a shard that this superpeer owns, borrowed until the next
 * call; empty: there are no more. number 0: begins one, with piece 0, and says its number. ENONAME: there
 * is no such snapshot any more, or the piece is not its last or its next one. EBUSY, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_save_piece(struct sh_superpeer *superpeer,
                                                       unsigned shard, uint64_t number,
                                                       uint64_t piece, uint64_t *number_out,
                                                       struct sh_bytes *bytes_out);
void sh_superpeer_save_step(struct sh_superpeer *superpeer, uint64_t now_ns);
void sh_superpeer_save_close(struct sh_superpeer *superpeer);

/* superpeer_moves.c. Answers COMMIT or RESOLVE. */
void sh_superpeer_moves_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                               sh_msg_type type, const struct sh_metadata_result *result);
void sh_superpeer_moves_handlers(struct sh_superpeer *superpeer);
/* Asks those who have ranges of a peer's chunks, of which it has left and this superpeer has the shard, to
 * give back the first of them where no chunks are left. */
void sh_superpeer_moves_vacate(struct sh_superpeer *superpeer, shoal_nid creator);
/* Whether the owner of a range is up, in the life that has it; ENOCHUNK, EFAILED, ELOST; EBUSY: that is not known. */
enum shoal_err sh_superpeer_moves_holder(const struct sh_superpeer *superpeer,
                                         const struct sh_metadata_range *range);

/* superpeer_zones.c. Answers ZONE or ZONE_GET: with what came of it, and the zone's record as it is now. */
void sh_superpeer_zone_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                              sh_msg_type type, uint64_t id, enum shoal_err result);
/* Answers TAKE or ACCEPT_LOSS: with what came of it alone. */
void sh_superpeer_result_answer(struct sh_superpeer *superpeer, struct sh_reply_to to,
                                sh_msg_type type, enum shoal_err result);
/* Orders an update of a zone for a request, which is answered once that is carried out. */
void sh_superpeer_zone_order(struct sh_superpeer *superpeer, struct sh_msg_in *in,
                             const struct sh_metadata_update *update);
void sh_superpeer_zone_handlers(struct sh_superpeer *superpeer);
/* Whether this superpeer may answer for a shard now; if not, the request is answered: with the superpeer to be asked, in an
 * answer of `size` bytes, or with an error. */
bool sh_superpeer_zone_may_answer(struct sh_superpeer *superpeer, struct sh_msg_in *in,
                                  unsigned shard, size_t size);
/* Whether a life of a peer is up (OK), or can't be any more (EFENCED): it counts as failed, has left, or is
 * a former one. EBUSY: this superpeer does not know; the registry may be ahead of it. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_life_check(const struct sh_superpeer *superpeer,
                                                       shoal_nid nid, uint64_t life);
/* The same of a zone's owner. */
SHOAL_NODISCARD enum shoal_err sh_superpeer_owner_check(const struct sh_superpeer *superpeer,
                                                        const struct sh_zone *zone);

/* superpeer_takes.c */
void sh_superpeer_take_handlers(struct sh_superpeer *superpeer);

/* superpeer_losses.c */
void sh_superpeer_loss_handlers(struct sh_superpeer *superpeer);

/* superpeer_gather.c. Whether all peers that are up have said what they have; and with them all that
 * have failed, whose next lives may have chunks. */
bool sh_superpeer_gather_is_over(const struct sh_superpeer *superpeer);
bool sh_superpeer_gather_is_whole(const struct sh_superpeer *superpeer);
/* Whether a shard can say what refers to peers that are not up: it is known, or waits for such peers
 * only. */
bool sh_superpeer_gather_may_refer(const struct sh_superpeer *superpeer, unsigned shard);
/* A shard was lost: everybody is to be asked. */
void sh_superpeer_gather_begin(struct sh_superpeer *superpeer, unsigned shard);
/* A claim had no room in a shard. */
void sh_superpeer_gather_full(struct sh_superpeer *superpeer, unsigned shard);
unsigned sh_superpeer_gather_step(struct sh_superpeer *superpeer, uint64_t now_ns);
uint64_t sh_superpeer_gather_due_ns(const struct sh_superpeer *superpeer);
void sh_superpeer_gather_cancel(struct sh_superpeer *superpeer);

#endif
