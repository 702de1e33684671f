/* What the files of client share. */
#ifndef SH_CLIENT_CLIENT_INT_H
#define SH_CLIENT_CLIENT_INT_H

#include <stdatomic.h>

#include "backup/backup.h"
#include "base/assert.h"
#include "base/err.h"
#include "base/lock.h"
#include "base/stripes.h"
#include "client/client.h"
#include "cluster/directory.h"
#include "cluster/secret.h"
#include "env/env.h"
#include "msg/once.h"
#include "store/leases.h"
#include "store/store.h"

#define SH_DETAIL_BYTES SH_CALL_DETAIL_BYTES
#define SH_EMBEDDED_NID 1

/* A client looks for a newer view when it calls and the one it has is older than this: it is no
 * member, so nobody tells it who has joined. One small question a second is answered with a byte
 * where nothing has changed. */
#define SH_VIEW_AGE_NS UINT64_C(1000000000)
/* Pauses before another attempt: after a failure, and when only room was missing. */
#define SH_ROUND_PAUSE_NS UINT64_C(20000000)
#define SH_ROOM_PAUSE_NS UINT64_C(1000000)
#define SH_RETRY_QUEUES 2

/* Calls that wait for another attempt, by time. */
struct sh_retry_queue {
    struct sh_call_state *first, *last;
};

/* Sizes of a log that is new, and of the names' journal (journal.h); 0: the usual ones. */
struct sh_durable_sizes {
    uint32_t slot_bytes, primary_blocks;
    uint64_t zone_bytes;
    uint64_t log_bytes_max, scrub_bytes;
    uint64_t names_segment_bytes, names_bytes_kept;
};

struct shoal {
    bool is_embedded;
    enum shoal_level level; /* of changes by threads that have chosen none */
    uint64_t timeout_ns;
    struct sh_store *store;     /* embedded, as the next seven */
    struct sh_backup *backup;   /* what changes the store goes through it */
    struct sh_durable *durable; /* durable.c; NULL: the chunks are gone with the handle */
    struct sh_durable_sizes durable_sizes;
    _Atomic uint32_t awaited; /* calls that wait for room in a log, or for their acknowledgement */
    uint32_t chunk_bytes_max;
    struct sh_leases *leases;
    struct sh_stripes stripes;
    struct sh_lock crew_lock; /* guards the making of the crew, by the first lock that may wait */
    struct sh_local_services *local; /* service_embedded.c */
    struct sh_names *names; /* names_durable_int.h; NULL: the names are gone with the handle */
    /* A cluster's client. */
    struct sh_secret secret;
    struct sh_env env;
    struct sh_msg *msg;
    struct sh_crew *crew;
    struct sh_directory *directory;
    _Atomic bool is_closing;
    _Atomic uint64_t completions; /* calls completed, for shoal_poll */
    _Atomic uint32_t in_flight;   /* asynchronous calls begun and not completed */
    struct sh_spin retry_lock;
    struct sh_retry_queue retries[SH_RETRY_QUEUES]; /* under retry_lock */
    _Atomic uint64_t retry_due_ns;                  /* SH_NEVER: none waits */
    /* What changes one chunk is numbered for each node, so that it can be repeated. */
    uint64_t once_client;
    struct sh_once_numbers **numbers; /* by node ID; under retry_lock */
    _Atomic uint64_t refresh_due_ns;  /* a call that begins after it looks for a newer view */
    _Atomic uint32_t refreshes;       /* those that have ended, well or not */
    _Atomic bool is_refreshing;       /* then refresh_op is in use */
    struct sh_directory_op refresh_op;
    struct sh_services_of_client *services; /* service.c */
    struct sh_service_ops *service_ops;     /* service_async.c; embedded, too */
};

enum sh_call_kind {
    SH_CALL_CREATE,
    SH_CALL_GET,
    SH_CALL_PUT,
    SH_CALL_REMOVE,
    SH_CALL_GET_PART,
    SH_CALL_PUT_PART,
    SH_CALL_RESIZE,
    SH_CALL_PUT_IF,
    SH_CALL_PUT_HASH,
    SH_CALL_ADD,
    SH_CALL_FILL,
    SH_CALL_FREE, /* gives a reserved ID back */
    SH_CALL_LOCK, /* this and those behind it are on locks */
    SH_CALL_UNLOCK,
    SH_CALL_EXTEND,
    SH_CALL_SWAP
};

static inline bool sh_call_reads(enum sh_call_kind kind)
{
    return kind == SH_CALL_GET || kind == SH_CALL_GET_PART;
}

static inline bool sh_call_is_lock(enum sh_call_kind kind)
{
    return kind >= SH_CALL_LOCK;
}

/* Reads and all on locks may be repeated as they are. The others carry a number, and with it their
 * node does them once. */
static inline bool sh_call_is_numbered(enum sh_call_kind kind)
{
    return !sh_call_reads(kind) && !sh_call_is_lock(kind);
}

/* What a call asks for; the kind says which members count. */
struct sh_ask {
    union {
        void *into;
        const void *from;
        shoal_owner owner; /* of a lock */
    };
    union {
        size_t size; /* get: room; create, resize: the chunk's; else bytes at into or from */
        uint64_t lease_ns;
    };
    union {
        const void *expected;   /* put_if */
        uint64_t value;         /* add: what; put_hash: the hash */
        uint64_t wait_ns;       /* lock: how long, as the program says it */
        uint64_t wait_until_ns; /* lock: until when, once the call has begun */
    };
    uint32_t expected_size;
    uint32_t offset; /* of a part or field */
    enum sh_call_kind kind;
    shoal_nid where; /* create: the peer asked for, or NONE */
    union {
        uint8_t width; /* add */
        uint8_t mode;  /* lock, swap: an enum shoal_lock_mode */
    };
    uint8_t level; /* of a change: an enum shoal_level; set as the call begins */
};

/* The library's part of struct shoal_call. */
struct sh_call_state {
    union {
        struct sh_request request;
        struct sh_locate locate;
        struct { /* embedded */
            struct sh_write write;
            struct sh_store_rewriting *rewriting; /* of a large chunk; NULL: nothing is under way */
            enum shoal_err outcome;               /* once it is only waited for */
        };
    };
    struct shoal *store;
    struct sh_call_state *next; /* in a retry queue or the completion list */
    struct sh_waiter waiter;
    uint64_t deadline_ns;
    uint64_t retry_ns; /* in a retry queue: when it is due */
    struct sh_ask ask;
    uint32_t got_size; /* a read: as the answer says it, with got_err */
    uint32_t got_bytes;
    uint16_t got_err;
    char *detail;         /* of the thread that waits in a blocking call; or NULL */
    uint32_t refreshes;   /* the store's count when the call began */
    shoal_nid number_nid; /* whose number it is; of a read: who was asked last, or NONE */
    /* An unclear call whose node's zones are all with others, who are asked what came of it: the last one that does not know, or ASKED_NOBODY. NONE: not so. */
    shoal_nid asked;
    uint32_t number_life; /* and of which of its lives (sh_directory_life) */
    uint16_t asked_epoch; /* of the view by which they are asked, its lowest bits */
    bool is_blocking : 1;
    bool is_retry : 1; /* it was sent, or tried, before */
    bool
        is_unclear : 1; /* may have been done, under this number: a lost connection left no answer */
    bool is_unknown : 1; /* unclear, and the chunk's owner does not know what came of it */
    bool was_lost : 1; /* unlock: a connection was lost meanwhile, and with it the owner's locks */
    uint64_t number;   /* 0: none yet, or a call that needs none */
    union {
        uint64_t first_ns; /* when it got the number */
        uint64_t
            failed_ns; /* of a lock: since when its node is known to have failed; 0: it is not */
    };
};

_Static_assert(sizeof(struct sh_call_state) <= sizeof((struct shoal_call *)0)->reserved,
               "the library's part of a call must fit into its reserved words");

static inline struct sh_call_state *sh_call_state_of(struct shoal_call *call)
{
    return (struct sh_call_state *)call->reserved;
}

static inline struct shoal_call *sh_call_of(struct sh_call_state *state)
{
    return (struct shoal_call *)((char *)state - offsetof(struct shoal_call, reserved));
}

/* detail.c: this thread's text for shoal_error_detail. */
char *sh_client_detail(void);
/* Begins a blocking public call: clears the detail. EBUSY within a completion callback. */
SHOAL_NODISCARD enum shoal_err sh_client_blocking(void);

/* complete.c */
void sh_call_complete(struct sh_call_state *state, enum shoal_err err);
bool sh_completing(void);

/* look.c: a fresh copy of the view's nodes; the caller frees it. */
SHOAL_NODISCARD enum shoal_err sh_client_nodes(struct shoal *store, struct sh_node **nodes_out,
                                               size_t *count_out);

/* api.c */
/* Checks what is asked for, and runs it to its end, or begins it. Results are in *call. cid is
 * 0 for a create. */
SHOAL_NODISCARD enum shoal_err sh_ask_run(struct shoal *store, const struct sh_ask *ask,
                                          shoal_cid cid, struct shoal_call *call);
SHOAL_NODISCARD enum shoal_err sh_ask_begin(struct shoal *store, const struct sh_ask *ask,
                                            shoal_cid cid, struct shoal_call *call);

/* ask.c: how what is asked for, and the answer, look on the wire. */
sh_msg_type sh_ask_type(const struct sh_ask *ask);
size_t sh_ask_bytes(const struct sh_ask *ask);
/* id is not looked at for a read. */
void sh_ask_write(const struct sh_ask *ask, const struct sh_once_id *id, shoal_cid cid,
                  struct sh_writer *w);
/* Describes the answer to a read: its object is the call's state, its bytes land where the caller
 * wants them while they come. */
sh_codec_describe sh_ask_describe(enum sh_call_kind kind);
/* Takes the results out of a good answer. The error that it says, or EPROTO. */
enum shoal_err sh_ask_answer(struct sh_call_state *state, struct sh_reader *r);

/* call.c */
/* Begins a call whose kind, buffers and blocking have been filled in. EBUSY: the connection's ring
 * is full, or too many requests wait, and the call is not blocking (a blocking one waits). */
SHOAL_NODISCARD enum shoal_err sh_call_start(struct shoal *store, struct shoal_call *call);
/* ask.c: describes what follows the head of a get's answer, once that has been read: the chunk's
 * bytes, which land at `into`. EPROTO when they do not fit the room, or ESIZE says so though they
 * do. */
void sh_call_describe_bytes(struct sh_codec *c, unsigned err, uint32_t size, void *into,
                            size_t room);
/* Another attempt at a call that was begun: whatever happens completes it or leads to the next. */
void sh_call_attempt(struct sh_call_state *state);

/* number.c */
/* The number under which a call is sent to a node: the one that it has for that node, or a new one.
 * ELIMIT: SH_ONCE_WINDOW of them are open. ENOMEM. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_call_number(struct sh_call_state *state, shoal_nid nid,
                                              struct sh_once_id *id_out);
/* Gives the number back, if there is one: it will not be sent again. */
void sh_call_number_finish(struct sh_call_state *state);
/* May the call be repeated under its number, after its connection was lost? */
bool sh_call_may_repeat(const struct sh_call_state *state, uint64_t now_ns);
void sh_client_numbers_free(struct shoal *store);

/* retry.c */
/* Whether an attempt that ended so certainly did nothing; of one before it, that says nothing. */
bool sh_call_was_not_done(enum shoal_err err);
/* May this failure be tried again without doing anything twice, by one who has no number for it? */
bool sh_call_may_retry(enum sh_call_kind kind, enum shoal_err err);
/* Whether an operation that fails so waits for a node that has failed, until the call's time is over: the node's next life has the chunks of the
 * one before, or other nodes bring them back. asked, creator: as of sh_directory_may_return. */
bool sh_client_awaits_node(struct shoal *store, enum shoal_err err, shoal_nid asked,
                           shoal_nid creator);
/* The same of a create at that node, which no other one can do. */
bool sh_client_awaits_maker(struct shoal *store, enum shoal_err err, shoal_nid nid);
/* The same of a call on one chunk; the next life knows what came of its requests, too, but of locks, which have fallen. One on a lock waits for
 * timeout_ns at most since the node was found to have failed. */
bool sh_call_awaits_node(struct sh_call_state *state, enum shoal_err err);
/* Tries the call again in a while, with a newer view if that may help; completes it if it may not
 * be tried again or its time is over. Any thread. */
void sh_call_retry_later(struct sh_call_state *state, enum shoal_err err);
/* Looks for a newer view, if nobody does already; if the one there is old. Never block. */
void sh_client_refresh_begin(struct shoal *store);
void sh_client_refresh_if_due(struct shoal *store, uint64_t now_ns);
bool sh_client_closing(struct shoal *store);
struct sh_step sh_client_retry_step(struct shoal *store);
/* Ends all that wait with ESTOPPED, once no step runs any more. */
void sh_client_retries_fail(struct shoal *store);

/* service.c: names, barriers, scratch */
SHOAL_NODISCARD enum shoal_err sh_client_services_open(struct shoal *store);
void sh_client_services_close(struct shoal *store);

/* service_async.c: the same without waiting. */
SHOAL_NODISCARD enum shoal_err sh_service_ops_open(struct shoal *store);
void sh_service_ops_close(struct shoal *store);
struct sh_step sh_service_ops_step(struct shoal *store);
/* Ends all that pause with ESTOPPED, once no step runs any more. */
void sh_service_ops_fail(struct shoal *store);

/* service_embedded.c: the same in this process. */
SHOAL_NODISCARD enum shoal_err sh_local_services_open(struct shoal *store);
void sh_local_services_close(struct shoal *store);

/* names_dumped.c: blocking. Writes names into a peer's chunk with the local ID 0, before a dump;
 * gives the names in that chunk, but those that somebody has given, after a load, and drops it;
 * drops it. ENOMEM, ETOOBIG, ECORRUPT, EVERSION, and what the calls on chunks and names say. */
SHOAL_NODISCARD enum shoal_err sh_names_dumped_put(struct shoal *store, shoal_nid node);
SHOAL_NODISCARD enum shoal_err sh_names_dumped_give(struct shoal *store, shoal_nid node);
void sh_names_dumped_drop(struct shoal *store, shoal_nid node);

/* look.c */
/* Fetches the view and waits for it until the deadline; the detail says why not. */
SHOAL_NODISCARD enum shoal_err sh_client_refresh(shoal *store, uint64_t deadline_ns);
/* When a call that begins now must be over. */
uint64_t sh_client_deadline_ns(shoal *store);
/* OK when a node is a peer and up. ENONODE, EROLE, EFAILED, with the detail set. */
/* A node of the view as callers of the library see it. */
struct shoal_node sh_client_node(const struct sh_node *node);
/* Asks a peer what may be repeated, until it answers or the time-out is over. answer_out may be NULL. */
SHOAL_NODISCARD enum shoal_err sh_client_ask_again(shoal *store, shoal_nid node, sh_msg_type type,
                                                   struct sh_bytes request, uint8_t **answer_out,
                                                   size_t *size_out);
SHOAL_NODISCARD enum shoal_err sh_client_peer_check(shoal *store, shoal_nid nid);

/* open.c: opens a store in this process, with a log of other sizes, for tests. */
SHOAL_NODISCARD enum shoal_err sh_embedded_open(const struct shoal_options *options,
                                                const struct sh_durable_sizes *sizes,
                                                struct shoal **store_out);

/* embedded.c: runs a call on the store in this process; creates as wished. The detail says more
 * about some errors. */
SHOAL_NODISCARD enum shoal_err
sh_embedded_create_as(struct shoal *store, const struct sh_store_wish *wish, shoal_cid *cids_out);
/* Begins a call that is not on a lock; true: it is over. Else it will be completed: there is no room in a backlog now, or what it
 * did is not acknowledged yet. */
bool sh_embedded_start(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out);
/* Wait in the calling thread until what the write stands for is acknowledged, or until there may be room. EIO. */
SHOAL_NODISCARD enum shoal_err sh_embedded_settle(struct shoal *store, struct sh_write *write);
SHOAL_NODISCARD enum shoal_err sh_embedded_room(struct shoal *store, struct sh_write *write);
/* Changes a chunk, of any size, as soon as there is room. */
SHOAL_NODISCARD enum shoal_err sh_embedded_change(struct shoal *store, struct sh_write *write,
                                                  const struct sh_store_rewrite *rewrite);
/* Says, for people, what an error is about. */
void sh_embedded_explain(struct shoal *store, sh_lid lid, enum shoal_err err);
SHOAL_NODISCARD enum shoal_err sh_embedded_lid(shoal_cid cid, sh_lid *lid_out);

/* lock.c */
size_t sh_lock_request_bytes(enum sh_call_kind kind);
sh_msg_type sh_lock_request_type(enum sh_call_kind kind);
/* Writes a request on a lock; one that waits, waits for what is left of its time. */
void sh_lock_request_write(const struct sh_ask *ask, shoal_cid cid, uint64_t client,
                           uint64_t now_ns, struct sh_writer *w);
/* Reads the answer: the call's result. The detail says who is in the way. */
SHOAL_NODISCARD enum shoal_err sh_lock_answer_read(struct sh_call_state *state,
                                                   struct sh_reader *payload);
/* Says, for people, who is in the way; left_ns: for how much longer. */
void sh_lock_explain(char *detail, shoal_nid node, uint64_t owner, unsigned mode, uint64_t left_ns);
SHOAL_NODISCARD enum shoal_err sh_lock_check(const struct sh_ask *ask);

/* lock_embedded.c: locks of a store in this process. Runs a call; false: it has to wait, and is
 * completed later. */
bool sh_embedded_lock(struct shoal *store, struct shoal_call *call, enum shoal_err *err_out);
enum shoal_err sh_embedded_locks(struct shoal *store,
                                 bool (*each)(void *arg, const struct shoal_lock_info *lock),
                                 void *arg);
/* Removes a chunk, and its locks with it. */
SHOAL_NODISCARD enum shoal_err sh_embedded_remove(struct shoal *store, struct sh_write *write,
                                                  sh_lid lid);
/* Makes and starts the crew, unless it is there; makes one that is not started. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_embedded_crew(struct shoal *store);
SHOAL_NODISCARD enum shoal_err sh_embedded_crew_make(struct shoal *store,
                                                     struct sh_crew **crew_out);

/* levels.c: the level of a change that the calling thread makes now. On a cluster it is SHOAL_LEVEL_DEFAULT where nobody has chosen:
 * then it is the node's. */
enum sh_level sh_embedded_level(const struct shoal *store);
enum shoal_level sh_client_level(const struct shoal *store);
/* The thread writes at that level from here on; returns which it had chosen before. */
enum shoal_level sh_client_level_swap(enum shoal_level level);
/* Of a store in this process, before something is written: ENOBACKUP, with the detail, when the thread or the store's options name a level that
 * only a log can keep, and there is none. */
SHOAL_NODISCARD enum shoal_err sh_embedded_level_check(const struct shoal *store);
/* The type of a request that changes chunks (proto/chunks.h), at a level. */
sh_msg_type sh_client_type(sh_msg_type form, enum shoal_level level);

/* durable.c: a store in this process that logs to its own disk. */
/* data_dir NULL: what has no log. */
SHOAL_NODISCARD enum shoal_err sh_embedded_backup(struct shoal *store, const char *data_dir);
/* Opens the log and fills the store; options has a data_dir. */
SHOAL_NODISCARD enum shoal_err
sh_durable_open(struct shoal *store, const struct shoal_options *options, uint64_t store_bytes_max);
struct sh_step sh_durable_step(struct shoal *store);
/* The step of the names' journal. It comes before sh_durable_step: they share a disk, and what the
 * journal's poll of the disk completes is the log's, whose step has to come then. */
struct sh_step sh_durable_names_step(struct shoal *store);
/* Makes all durable, before the crew stops; lets the disk wake the crew no more, and closes the names'
 * journal, before the crew is destroyed; closes the log, after the backup was destroyed. */
void sh_durable_sync(struct shoal *store);
void sh_durable_quiet(struct shoal *store);
void sh_durable_close(struct shoal *store);

/* Ends all that wait, with ESTOPPED, while the store closes. */
void sh_embedded_locks_fail(struct shoal *store);

/* lookup.c: a lookup that a thread waits for, in two steps, so that several can be under way. mark:
 * sh_directory_mark's, or 0. */
struct sh_waited_locate {
    struct sh_locate locate;
    struct sh_waiter waiter;
    enum shoal_err err;
    shoal_nid nid;
};
void sh_client_locate_begin(shoal *store, shoal_cid cid, uint64_t deadline_ns, uint64_t mark,
                            struct sh_waited_locate *waited);
/* Errors as of sh_client_locate. */
SHOAL_NODISCARD enum shoal_err sh_client_locate_wait(shoal *store, struct sh_waited_locate *waited,
                                                     shoal_nid *nid_out);

/* recoveries.c: as sh_client_recoveries, with the time for each answer. *epoch_out: of the oldest view by which a superpeer has answered. */
struct sh_recovery;
SHOAL_NODISCARD enum shoal_err
sh_client_recoveries_within(shoal *store, uint64_t patience_ns,
                            bool (*each)(void *arg, const struct sh_recovery *recovery), void *arg,
                            uint64_t *epoch_out);

#endif
