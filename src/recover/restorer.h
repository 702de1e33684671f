/* Brings zones back whose owners have failed, of which this node has a replica (docs/recovery.md): a superpeer has the zone's record name this node as its
 * owner, and tells it (RECOVER, cluster/proto.h).
 *
 *   RECOVER ─► record ─► order ─► ends ─► taken ─► read ─► sifted ─► taken over ─► whose ─► open ─► dropped
 *              whose the  no zone   how far   own      chunks   which are  noted as     which    its       this node's
 *              zone is    goes      the other replica  into the the zone's this node's  chunks   record    own replica, once
 *                         first     backups   sealed   store                            are its            others have one
 *
 * Until a zone is open nobody is served anything of it. What fails on the way takes all of it out of the store again, and gives the replica back: the superpeer tells the
 * owner again, this node or another one. What fails for lack of room waits until room is made here, or goes on to a backup that has room.
 *
 * Zones are read one after the other, as the log does; all else goes side by side.
 *
 * Threads: that of msg's transport step, which is the log's and the backup's. */
#ifndef SH_RECOVER_RESTORER_H
#define SH_RECOVER_RESTORER_H

#include "backup/backup.h"
#include "backup/completion.h"
#include "backup/keeper.h"
#include "cluster/directory.h"
#include "cluster/zones.h"
#include "env/env.h"
#include "msg/msg.h"

struct sh_restorer;

/* A zone for which this node's store has no room. Bytes are as they count for a zone: SH_ZONE_CHUNK_BYTES come with each chunk. */
struct sh_room_wish {
    const struct sh_zone *record; /* borrowed */
    uint64_t zone_bytes;          /* of all of its chunks */
    uint64_t missing_bytes;       /* of those that found no room */
    uint64_t
        closed_bytes; /* of other zones that are in the store and not served yet: they can't move */
    bool may_move;    /* chunks of this node to other peers */
};

/* Where there is room. */
struct sh_room_found {
    shoal_nid backup; /* at that recorded backup; NONE: here */
    bool
        has_moved; /* chunks have been moved, or were to be, also where there is no room all the same */
};

struct sh_restorer_config {
    struct sh_msg *msg;       /* kept, like all of these */
    struct sh_keeper *keeper; /* that has the log */
    struct sh_backup *backup; /* in a cluster */
    struct sh_store *store;
    struct sh_zones *zones;
    struct sh_clock clock;
    uint64_t life; /* of this process */
    struct sh_directory *directory;
    /* Whether the disk says that this process's life was admitted (backup/keeper.h): before that the restorer takes nothing, which the node's next process would have by its life, and
     * know nothing of. RECOVER is answered with EBUSY. NULL: it says so. */
    bool (*is_confirmed)(void *arg);
    /* Whether no batch of chunks is here that the former owner has sent, and of which it is not known what became of it; NULL: so. */
    bool (*may_take)(void *arg, shoal_nid former);
    /* Whether a chunk is this node's already, or may be. One that is not, and that a zone of this node claims, was here before, and has moved away; NULL: all are that
     * are claimed. */
    bool (*may_have)(void *arg, shoal_cid cid);
    /* Chunk IDs from the first to the last are this node's, and served, from now on. False: not now, again in a later step. */
    bool (*serves)(void *arg, shoal_cid first, shoal_cid last);
    /* What came of a request that another node ran (completion.node); before `serves`. */
    void (*completed)(void *arg, const struct sh_completion *completion);
    /* Has room made for a zone, of which nothing is in the store. EAGAIN: it is being looked for, or made, for this zone or another one: the same again in a later step, until something else is said. OK: there is room now. EFULL:
     * there is none; EBUSY: chunks can't move now. *found_out is set unless EAGAIN. NULL: EFULL. */
    enum shoal_err (*make_room)(void *arg, const struct sh_room_wish *wish,
                                struct sh_room_found *found_out);
    void (*wake)(void *arg);
    void *arg;
};

/* Registers the handler, before msg's steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_restorer_create(const struct sh_restorer_config *config,
                                                  struct sh_restorer **restorer_out);
/* The log is open: zones may be brought back from now on. */
void sh_restorer_begin(struct sh_restorer *restorer, struct sh_replog *log, shoal_nid nid);
/* Zones are destroyed already, and have ended all questions; the keeper, the backup and the log are not yet, and the log is closed without a step in between. NULL is allowed. */
void sh_restorer_destroy(struct sh_restorer *restorer);

unsigned sh_restorer_step(struct sh_restorer *restorer, uint64_t now_ns);
uint64_t sh_restorer_due_ns(const struct sh_restorer *restorer);

/* Whether the log of a zone is being read. */
bool sh_restorer_is_reading(const struct sh_restorer *restorer);
/* Whether chunks of a zone are being put into the store, which the backup does not know as that zone's yet: one that came from elsewhere meanwhile would be
 * taken for one of them. */
bool sh_restorer_is_filling(const struct sh_restorer *restorer);
/* Whether a zone is to be served as soon as its record says so, or as what came of requests is told. */
bool sh_restorer_is_opening(const struct sh_restorer *restorer);

struct sh_restorer_status {
    uint64_t begun, restored, failed; /* zones */
    uint64_t chunks, payload_bytes;   /* of those that were restored */
    uint64_t longest_ns;              /* from RECOVER until a zone was open */
    unsigned zones;                   /* that are on their way */
};
void sh_restorer_status_get(const struct sh_restorer *restorer,
                            struct sh_restorer_status *status_out);

#endif
