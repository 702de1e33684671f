/* What the files of client share. */
#ifndef SH_CLIENT_CLIENT_INT_H
#define SH_CLIENT_CLIENT_INT_H

#include <stdatomic.h>

#include "base/assert.h"
#include "base/lock.h"
#include "client/client.h"
#include "cluster/directory.h"
#include "env/env.h"
#include "node/secret.h"
#include "store/store.h"

#define SH_DETAIL_BYTES 256
#define SH_EMBEDDED_NID 1

struct shoal {
    bool is_embedded;
    uint64_t timeout_ns;
    struct sh_store *store; /* embedded */
    uint32_t chunk_bytes_max;
    /* A cluster's client. */
    struct sh_secret secret;
    struct sh_env env;
    struct sh_msg *msg;
    struct sh_crew *crew;
    struct sh_directory *directory;
    _Atomic bool is_closing;
    _Atomic uint64_t completions; /* calls completed, for shoal_poll */
    _Atomic uint32_t in_flight;   /* asynchronous calls begun and not completed */
    /* Calls that wait to be tried again, oldest first. */
    struct sh_spin retry_lock;
    struct sh_call_state *retry_first, *retry_last;
    _Atomic uint64_t retry_due_ns; /* SH_NEVER: none waits */
    _Atomic bool is_refreshing;    /* then refresh_op is in use */
    struct sh_directory_op refresh_op;
};

enum sh_call_kind { SH_CALL_CREATE, SH_CALL_GET, SH_CALL_PUT, SH_CALL_REMOVE };

/* The library's part of struct shoal_call. */
struct sh_call_state {
    union {
        struct sh_request request;
        struct sh_locate locate;
    };
    struct shoal *store;
    struct sh_call_state *next; /* in the retry or completion list */
    struct sh_waiter waiter;
    uint64_t deadline_ns;
    union {
        void *into;
        const void *from;
    };
    size_t size;  /* get: room; put, create: bytes */
    char *detail; /* of the thread that waits in a blocking call; or NULL */
    enum sh_call_kind kind;
    shoal_nid where; /* create: the peer asked for, or NONE */
    bool is_blocking;
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

/* call.c */
/* Begins a call whose kind, buffers and blocking have been filled in. EBUSY: the connection's ring
 * is full and the call is not blocking (a blocking one waits). */
SHOAL_NODISCARD enum shoal_err sh_call_start(struct shoal *store, struct shoal_call *call);
struct sh_step sh_client_retry_step(struct shoal *store);
void sh_client_retries_fail(struct shoal *store);

/* look.c */
/* Fetches the view and waits for it; the detail says why not. */
SHOAL_NODISCARD enum shoal_err sh_client_refresh(shoal *store);
/* OK when a node is a peer and up. ENONODE, EROLE, EFAILED, with the detail set. */
SHOAL_NODISCARD enum shoal_err sh_client_peer_check(shoal *store, shoal_nid nid);

/* embedded.c: runs a call on the store in this process. */
enum shoal_err sh_embedded_run(struct shoal *store, struct shoal_call *call);
SHOAL_NODISCARD enum shoal_err sh_embedded_lid(shoal_cid cid, sh_lid *lid_out);

#endif
