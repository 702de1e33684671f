/* libshoal: a store for billions of small objects, in this process or on a cluster.
 *
 *     struct shoal_options options = {.addresses = "127.0.0.1:4100"};
 *     shoal *store;
 *     enum shoal_err err = shoal_open(&options, &store);
 *     ...
 *     shoal_cid cid;
 *     err = shoal_create(store, SHOAL_NID_NONE, 64, &cid);
 *     err = shoal_put(store, cid, data, 64);
 *     err = shoal_get(store, cid, data, sizeof data, &size);
 *     shoal_close(store);
 *
 * A chunk is an ID and 0 bytes to chunk_bytes_max (64 MiB unless configured otherwise). Its size
 * is fixed when it is created; new chunks are all zero bytes. Gets and puts move whole chunks, and
 * a get never sees half of a put.
 *
 * Errors: every call that can fail returns enum shoal_err and leaves its outputs untouched on
 * failure. shoal_error_detail says more, for people. After ETIMEOUT or ECONNLOST a put, create or
 * remove may or may not have been done; a get may be repeated freely, and this library repeats it
 * by itself while the timeout lasts.
 *
 * Threads: any thread may call anything with the same handle, except shoal_close. Blocking calls
 * return when done or when their timeout is over; in a completion callback they fail with EBUSY. A
 * thread that waits for a cluster lends itself to the messaging, so that a program with one thread
 * pays for no hand-over.
 */
#ifndef SHOAL_SHOAL_H
#define SHOAL_SHOAL_H

#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"
#include "shoal/types.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct shoal shoal;

/* Zero or NULL means the default. All borrowed during shoal_open. */
struct shoal_options {
    /* HOST:PORT of any nodes of a cluster, separated by commas: one that answers is enough. NULL
     * or "": no cluster, but a whole node inside this process, with no daemon and no socket; its
     * chunks live as long as the handle. */
    const char *addresses;
    const char *cluster;      /* the cluster's name; "shoal" */
    const char *secret_file;  /* file with the cluster's secret */
    uint64_t timeout_ns;      /* for each call; 5 s */
    uint64_t store_bytes_max; /* embedded: most memory for chunks and tables; 8 GiB */
    uint64_t spin_ns; /* how long a waiting thread spins before it sleeps: UINT64_MAX for ever, 0
                         the default (10 us), 1 not at all */
};

/* Opens a store. options may be NULL. EADDRESS, EUNREACHABLE (no address answered), ESECRET,
 * ECLUSTER, EVERSION, ENOMEM, EIO (secret_file). */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_open(const struct shoal_options *options,
                                                    shoal **store_out);
/* Closes it: calls in flight end with ESTOPPED. Embedded: its chunks are gone. NULL is allowed. */
SHOAL_API void shoal_close(shoal *store);

/* More about this thread's last failed call, as one sentence; "" if there is nothing more. Valid
 * until this thread's next call. */
SHOAL_API const char *shoal_error_detail(void);

/* --- Chunks ------------------------------------------------------------------------------ */

/* Creates chunks of zero bytes on one peer: `where`, or, with SHOAL_NID_NONE, one that the client
 * picks, in turn. One; count of one size; count of given sizes. All or nothing. IDs are written in
 * order. At most 2^20 chunks a call. EFULL, ETOOBIG, ENONODE. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create(shoal *store, shoal_nid where, uint32_t size,
                                                      shoal_cid *cid_out);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_create_many(shoal *store, shoal_nid where, uint32_t size, size_t count, shoal_cid *cids_out);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create_sizes(shoal *store, shoal_nid where,
                                                            const uint32_t *sizes, size_t count,
                                                            shoal_cid *cids_out);

/* Copies the chunk into `into` (room bytes) and its size into *size_out (may be NULL). ENOCHUNK.
 * ESIZE: room is too small; *size_out, as an exception, is the size needed. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get(shoal *store, shoal_cid cid, void *into,
                                                   size_t room, uint32_t *size_out);
/* Replaces the chunk's bytes; size must be the chunk's size (ESIZE). ENOCHUNK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put(shoal *store, shoal_cid cid, const void *data,
                                                   uint32_t size);
/* ENOCHUNK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_remove(shoal *store, shoal_cid cid);

/* One of several operations. */
struct shoal_op {
    shoal_cid cid;
    void *data;         /* get: where to; put: what, only read */
    uint32_t size;      /* get: room, then the chunk's size; put: bytes at data; remove: unused */
    enum shoal_err err; /* set by the call */
};

/* Does count (up to 2^20) operations, batched per peer. Each op gets its own err; the result is OK
 * when all succeeded, else the err of the first that failed. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_get(shoal *store, struct shoal_op *ops,
                                                         size_t count);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_put(shoal *store, struct shoal_op *ops,
                                                         size_t count);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_remove(shoal *store, struct shoal_op *ops,
                                                            size_t count);

/* --- Asynchronous forms ------------------------------------------------------------------ */

/* A call in flight: owned by the program and kept by the library until it is done. Fill in done
 * and arg, or leave done NULL and use shoal_wait. Reuse it after that. */
struct shoal_call {
    /* Called once, from a thread of the library or from one that waits in it: be short, do not
     * block or call blocking functions of the library; starting asynchronous calls is fine. */
    void (*done)(struct shoal_call *call);
    void *arg;
    /* The result, valid once done: */
    enum shoal_err err;
    shoal_cid cid; /* create: the new chunk; else the chunk that was meant */
    uint32_t size; /* get: the chunk's size */
    /* The library's own. */
    uint64_t reserved[32];
};

/* Begin a call. Buffers are kept until it is done. An error returned here means that the call has
 * not begun and done is not called; all later ones come through call->err. EBUSY: too many calls in
 * flight; wait for some. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create_async(shoal *store, shoal_nid where,
                                                            uint32_t size, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get_async(shoal *store, shoal_cid cid, void *into,
                                                         size_t room, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put_async(shoal *store, shoal_cid cid,
                                                         const void *data, uint32_t size,
                                                         struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_remove_async(shoal *store, shoal_cid cid,
                                                            struct shoal_call *call);

/* Waits until a call without a done function is done; returns its err. */
SHOAL_API enum shoal_err shoal_wait(shoal *store, struct shoal_call *call);

/* Lets the library use the calling thread for a bounded amount of ready work: completions are
 * called from it. Returns how much was done. For programs that poll. */
SHOAL_API unsigned shoal_poll(shoal *store);

/* --- Looking around ---------------------------------------------------------------------- */

enum shoal_role { SHOAL_SUPERPEER = 1, SHOAL_PEER = 2 };
enum shoal_node_state { SHOAL_NODE_UP, SHOAL_NODE_LEFT, SHOAL_NODE_FAILED };

struct shoal_node {
    shoal_nid nid;
    enum shoal_role role;
    enum shoal_node_state state;
    char address[64];
};

/* The nodes that the cluster knows, by NID: writes at most room of them and the number that there
 * are to *count_out. Embedded: the one node. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_nodes(shoal *store, struct shoal_node *nodes,
                                                     size_t room, size_t *count_out);

/* The IDs of a node's chunks, as ranges, in ascending order: calls each(arg, first, last) for each,
 * both ends included, until it returns false. Chunks made or removed meanwhile may be missed. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_ranges(shoal *store, shoal_nid node, bool (*each)(void *arg, shoal_cid first, shoal_cid last),
             void *arg);

/* A peer's chunk memory, in bytes. used = table + block + free + other. */
struct shoal_status {
    uint64_t chunks;
    uint64_t payload_bytes;
    uint64_t table_bytes;
    uint64_t block_bytes;
    uint64_t free_bytes;
    uint64_t other_bytes;
    uint64_t used_bytes;
    uint64_t bytes_max;
    uint64_t creates, removes, gets, puts;
    uint64_t resident_bytes; /* of the whole process */
};
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_status(shoal *store, shoal_nid node,
                                                      struct shoal_status *status_out);

/* The library's version, "MAJOR.MINOR.PATCH". */
SHOAL_API const char *shoal_version(void);

#ifdef __cplusplus
}
#endif

#endif
