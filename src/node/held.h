/* Answers, and those of them that are held until what they tell is acknowledged (backup/backup.h).
 *
 *   change:  sh_held_begin --> sh_backup_*(sh_held_write) --> sh_held_saw if it failed --\
 *   read:                      sh_store_get ----------------> sh_held_saw ---------------> sh_answer_*
 *                                                                                             |
 *                        what it tells is acknowledged: sent at once <------------------------+
 *                        else kept, with its bytes, and sent from the backup's step <---------'
 *
 * An answer tells of a chunk what it was asked, and also that it is not there, is of another size, or has other bytes; so a
 * handler that has looked at a chunk says so (sh_held_saw) before it answers, also with an error.
 *
 * Where nothing is backed up all of this is one load for each request: there are no held ones (NULL), and answers go straight into the
 * connection's ring. A held one takes 400 bytes from a pool, and memory for its bytes if they are many.
 *
 * Threads: any. */
#ifndef SH_NODE_HELD_H
#define SH_NODE_HELD_H

#include "backup/backup.h"
#include "msg/bulk.h"
#include "msg/msg.h"

/* An answer that may have to wait. */
struct sh_held;
struct sh_helds;

struct sh_helds_config {
    struct sh_msg *msg;       /* kept, like the backup */
    struct sh_backup *backup; /* of the chunks that are told of */
    enum sh_level level;      /* of requests that name none */
    uint32_t count_max;       /* answers at once; 0: 65536 */
    uint64_t bytes_max;       /* of held answers to reads; 0: 64 MiB */
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_helds_create(const struct sh_helds_config *config,
                                               struct sh_helds **helds_out);
/* Drops the answers that are held. After msg is destroyed or its steps have stopped, and before the backup is destroyed. NULL is
 * allowed. */
void sh_helds_destroy(struct sh_helds *helds);
uint32_t sh_helds_count(struct sh_helds *helds);

/* The level of a request's type (proto/chunks.h). */
enum sh_level sh_helds_level(const struct sh_helds *helds, sh_msg_type type);

/* --- What an answer waits for ------------------------------------------------------------------ */

/* Begins a request that changes chunks, before anything has changed. *held_out: NULL where nothing is backed up. False: it has been answered, as too
 * many are held (EBUSY), or as it names a level for which there is no backup (ENOBACKUP). */
SHOAL_NODISCARD bool sh_held_begin(struct sh_helds *helds, const struct sh_msg_in *in,
                                   struct sh_held **held_out);
/* For whom its changes are made, at the request's level. NULL of NULL. */
struct sh_write *sh_held_write(struct sh_held *held);
/* The request has looked at a chunk, which it may have found missing: *held_inout, which may be NULL, waits for what was seen as well. After a
 * change that was made, there is no need. False: too many are held; it has been answered (EBUSY), as nothing was done, and there is
 * no held one any more. */
SHOAL_NODISCARD bool sh_held_saw(struct sh_helds *helds, const struct sh_msg_in *in, shoal_cid lid,
                                 struct sh_held **held_inout);
/* The same of all chunks that there are. */
SHOAL_NODISCARD bool sh_held_saw_all(struct sh_helds *helds, const struct sh_msg_in *in,
                                     struct sh_held **held_inout);
/* Nothing comes of the request. NULL is allowed. */
void sh_held_drop(struct sh_held *held);

/* --- Answers: all take the held one, which may be NULL ----------------------------------------- */

struct sh_answer {
    struct sh_writer *w; /* exactly the announced bytes are to be written */
    struct sh_out out;
    struct sh_held *held;
};
/* False: the asker is lost, or there is no memory, which the asker has been told. */
SHOAL_NODISCARD bool sh_answer_begin(const struct sh_msg_in *in, struct sh_held *held, size_t bytes,
                                     struct sh_answer *answer_out);
void sh_answer_end(const struct sh_msg_in *in, struct sh_answer *answer);
void sh_answer_ok(const struct sh_msg_in *in, struct sh_held *held);
/* text may be NULL. */
void sh_answer_error(const struct sh_msg_in *in, struct sh_held *held, enum shoal_err err,
                     const char *text);
/* Takes the bulk, which has so many bytes, and is complete (sh_bulk_reply). */
void sh_answer_bulk(const struct sh_msg_in *in, struct sh_held *held, struct sh_bulk *bulk,
                    size_t bytes, bool is_read);

#endif
