/* What the files of the chunk handlers share. */
#ifndef SH_NODE_CHUNKS_INT_H
#define SH_NODE_CHUNKS_INT_H

#include "msg/once.h"
#include "node/chunks.h"
#include "node/held.h"
#include "node/holdings.h"

/* What is read up to this size is read once, into the stack; more goes straight to the ring. */
#define SH_CHUNKS_SMALL_BYTES 2048

struct sh_chunks {
    struct sh_msg *msg;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_helds *helds;
    struct sh_clock clock;
    uint8_t *
        medium; /* the transport step's: SH_STORE_PIECE_BYTES, where anything is backed up; NULL: not yet */
    struct sh_holdings holdings;
    _Atomic bool refuses_creates;
    _Atomic uint64_t misdirected; /* requests on chunks that are not here; relaxed: a counter */
    struct sh_once *once;         /* results of the forms that are done at most once */
    uint32_t chunk_bytes_max;
    sh_chunks_remover remove; /* NULL: the backup's own */
    void *remove_arg;
    /* Called between two looks of a get at a chunk, which other threads may change then; a test does. NULL in a node. */
    void (*looked)(void *arg);
    void *looked_arg;
};

static inline void sh_chunks_looked(const struct sh_chunks *chunks)
{
    if (chunks->looked)
        chunks->looked(chunks->looked_arg);
}

/* chunks.c */
/* The store's ID of a chunk that this node may serve now. ENOTOWNER (counted); EBUSY: it is moving;
 * EINVAL: a write to the node's own names. */
SHOAL_NODISCARD enum shoal_err sh_chunks_own(struct sh_chunks *chunks, uint64_t cid, bool writes,
                                             sh_lid *lid_out);
/* Answers with an error; text may be NULL. */
void sh_chunks_refuse(struct sh_msg_in *in, enum shoal_err err, const char *text);
/* The same, after the chunk was looked at, with the held answer, which may be NULL; says, for people, what a size error or a
 * full store is about. */
void sh_chunks_refuse_store(struct sh_chunks *chunks, const struct sh_msg_in *in,
                            struct sh_held *held, sh_lid lid, enum shoal_err err);
/* A change's error as its client gets it: a client asks a node again that has no room now. */
static inline enum shoal_err sh_chunks_change_err(enum shoal_err err)
{
    return err == SHOAL_EAGAIN ? SHOAL_EBUSY : err;
}
/* For whom a numbered request's changes are made, and what is to be kept of them; the request stays meanwhile. held: may be NULL. */
static inline void sh_chunks_request_set(struct sh_held *held, const struct sh_once_id *id,
                                         enum sh_write_result result,
                                         struct sh_write_request *request)
{
    *request = (struct sh_write_request){.client = id->client,
                                         .number = id->number,
                                         .acknowledged = id->acknowledged,
                                         .result = result};
    if (held && id->client)
        sh_write_request_set(sh_held_write(held), request);
}

/* For payloads that begin with a chunk's ID, or with the prefix of msg/once.h and that. */
void sh_chunks_prefetch(void *arg, struct sh_bytes payload, unsigned round);
void sh_chunks_prefetch_once(void *arg, struct sh_bytes payload, unsigned round);

/* Sets the handler of a request that changes chunks, at each level. prefetch may be NULL. */
void sh_chunks_changes_set(struct sh_chunks *chunks, sh_msg_type form, enum sh_msg_mode mode,
                           sh_msg_handler handler, sh_msg_prefetch prefetch);

/* Of what is done in pieces, for which a write has no room: whether it has been so for SH_CHUNKS_ROOM_NS, so that it is given up. *since_inout: 0
 * where there was room the last time. */
#define SH_CHUNKS_ROOM_NS UINT64_C(100000000)
bool sh_chunks_gives_up(const struct sh_chunks *chunks, uint64_t *since_inout);

/* create.c */
#define SH_CHUNKS_NO_CREATES "this node has not joined yet, or is being drained"
/* Sets the handlers of CREATE and CREATE_ONCE. */
void sh_create_register(struct sh_chunks *chunks);

/* changes.c */
SHOAL_NODISCARD enum shoal_err
sh_chunks_remove_one(struct sh_chunks *chunks, struct sh_write *write, uint64_t cid, sh_lid lid);

/* reads.c: what a get answers whose room was taken in its answer before it read: a chunk of another size by then is to be asked for again. */
enum shoal_err sh_chunks_got_err(enum shoal_err err, bool is_its_size);

/* reads.c, changes.c, multi.c: set the handlers of what reads one chunk, changes one, or does
 * either to many. */
void sh_reads_register(struct sh_chunks *chunks);
void sh_changes_register(struct sh_chunks *chunks);
void sh_multi_register(struct sh_chunks *chunks);

#endif
