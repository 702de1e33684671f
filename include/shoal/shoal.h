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
 * A chunk is an ID and 0 bytes to chunk_bytes_max (64 MiB unless configured otherwise; 1 GiB at
 * most). New chunks are all zero bytes, and keep their size until shoal_resize. Gets and puts move
 * whole chunks or a part of one, and a get never sees half of a put. The ID of a removed chunk is
 * given to a new one sooner or later: keep no ID of what was removed.
 *
 * Errors: every call that can fail returns enum shoal_err and leaves its outputs untouched on
 * failure, but for what it says otherwise; a get's buffer may hold part of an answer.
 * shoal_error_detail says more, for people. Any call may fail with EINVAL (NULL, or a count over
 * the limit), ENOMEM and, on a cluster, with
 *   ETIMEOUT, ECONNLOST        a put, create or other change may or may not have been done
 *   EUNREACHABLE, EBUSY,       it has not been done; EFENCED: the node is out of touch with the
 *   EFENCED                    superpeers, and may not serve until it hears of them
 *   EFAILED                    the node that holds the chunk has failed; if its chunks are in its own
 *                              log (replicas_at self), it has not come back within the time-out
 *   ELOST                      no replica is left of the zone that the chunk was in, so it never comes
 *                              back; also of IDs that were never given out, or whose chunk was removed,
 *                              as nobody can tell these from lost ones. ENOCHUNK, once an operator has
 *                              accepted the loss (shoal recovery --accept-loss)
 *   EPROTO                     a node answered what no node should
 *   ESTOPPED                   the node is stopping, or the store was closed
 * What certainly was not done is tried again by this library while the time-out lasts, and so are
 * gets. A put, create or other change of one chunk whose connection was lost is repeated as well,
 * for a minute at most, and its node does it once: ECONNLOST means that no repetition was answered.
 * What may have been done of calls that create or reserve many and of the multi forms is left to
 * the program.
 *
 * Threads: any thread may call anything with the same handle, except shoal_close. Calls in flight
 * together have no order, also when one thread began them: wait for a put before the get that shall
 * see it. Blocking calls return when done or when their time-out is over; in a completion callback
 * they fail with EBUSY. A thread that waits for a cluster lends itself to the messaging, so that a
 * program with one thread pays for no hand-over. A handle does not survive fork.
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

/* How far a write must get before its call returns. */
enum shoal_level {
    SHOAL_LEVEL_DEFAULT, /* what shoal_options says, or else SHOAL_REPLICATED; of a cluster, or else what
                            the chunk's node says (its option durability) */
    SHOAL_ASYNC,         /* the store, or the chunk's node, has it; a crash may lose it */
    SHOAL_REPLICATED, /* survives its process: the kernel has it, or each backup of a node */
    SHOAL_DURABLE,    /* survives a power failure: it is on the disk, or the backups' disks */
};

/* Zero or NULL means the default. All borrowed during shoal_open. */
struct shoal_options {
    /* HOST:PORT or unix:PATH of any nodes of a cluster, separated by commas: one that answers is
     * enough. NULL
     * or "": no cluster, but a whole node inside this process, with no daemon and no socket. */
    const char *addresses;
    /* Embedded: the folder, made if need be, in which the store keeps its chunks and names: they are
     * found again when it is opened again, by one handle at a time. NULL or "": they live as long as
     * the handle. */
    const char *data_dir;
    /* Of writes by threads that have chosen none. SHOAL_REPLICATED and SHOAL_DURABLE are refused (ENOBACKUP) where nothing is
     * logged: embedded without a data_dir, and on nodes that have no replicas. */
    enum shoal_level level;
    const char *cluster;      /* the cluster's name; "shoal" */
    const char *secret_file;  /* file with the cluster's secret */
    uint64_t timeout_ns;      /* for each call; 5 s. UINT64_MAX: as good as for ever */
    uint64_t store_bytes_max; /* embedded: most memory for chunks and tables, at least 1 MiB; 8 GiB.
                                 Taken from the machine as it is needed */
    bool small_pages; /* embedded: no huge pages for chunks. Without it, those of a store over 64
                         MiB lie in huge pages where the kernel has them; they make gets faster */
    /* How bytes are moved: "tcp" (what measures best, the default), "epoll", or "uring" (io_uring;
     * epoll where the kernel refuses it). */
    const char *transport;
    uint64_t spin_ns; /* how long a waiting thread spins before it sleeps: UINT64_MAX for ever, 0
                         the default (10 us), 1 not at all */
    /* TLS, for a cluster whose nodes have the option tls on: files in PEM with this program's
     * certificate, its private key, and the authority that signs the cluster's certificates. All
     * three, or none: no TLS. */
    const char *tls_cert_file, *tls_key_file, *tls_ca_file;
    /* Embedded, with data_dir: how the log of chunks is read and written: "cached" (through the page
     * cache, the default), "direct" (around it), or "raw": direct, on log_device. */
    const char *log_access;
    /* With log_access "raw", and only then: path, from / on, of a partition, or of a file that is used
     * as one and keeps its size; this store has it alone. A new log is only made where the first MiB
     * is zero. data_dir has the names, and a note of the device (the file replicas.device): without
     * that, a device that has a log is not taken for this store's. */
    const char *log_device;
};

/* Opens a store. options may be NULL: embedded. Addresses are asked in turn, each for at most
 * timeout_ns, until one answers; blocks meanwhile. EADDRESS, EUNREACHABLE (no address answered),
 * ESECRET, ECLUSTER, EVERSION, ETLS (one side has TLS and the other has not, a certificate was not
 * accepted, or a file can't be used), ENOMEM, EIO and ERANGE (secret_file), EINVAL
 * (store_bytes_max, transport, level; log_access or log_device, or the log is elsewhere), EBUSY (the cluster is just starting, and was for timeout_ns). */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_open(const struct shoal_options *options,
                                                    shoal **store_out);
/* Closes it: asynchronous calls in flight end before it returns, with their result or ESTOPPED; the
 * completions are called from this thread or the library's, and calls that they begin fail with
 * ESTOPPED. Of calls without a done function, err is valid afterwards. Embedded: its chunks are
 * gone, or with a data_dir, on the disk. NULL is allowed. No other thread may be in a call; never in a completion callback. */
SHOAL_API void shoal_close(shoal *store);

/* The level of what the calling thread writes from here on, on any store; SHOAL_LEVEL_DEFAULT: each
 * store's own. EINVAL. Where nothing is logged, writes at SHOAL_REPLICATED and SHOAL_DURABLE fail with ENOBACKUP, and change nothing. A read waits until what it has seen is acknowledged to its writer, unless that was
 * written with SHOAL_ASYNC: nobody sees what a crash would undo. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_level_use(enum shoal_level level);
/* Returns once all that was written before, by anybody and at any level, is durable; of a cluster, on all peers that are
 * up. EIO: a log is out of service. ENOBACKUP: the store has no data_dir, or a peer has no replicas, and all others have synced. Of a cluster,
 * errors of other calls, too: then some peers may have synced. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_sync(shoal *store);

/* More about this thread's last failed call, for people; "" if there is nothing more. Valid until
 * this thread's next call. Of asynchronous calls only what their beginning said. */
SHOAL_API const char *shoal_error_detail(void);

/* --- Chunks ------------------------------------------------------------------------------ */

/* Creates chunks of zero bytes on one peer: `where`, or, with SHOAL_NID_NONE, one that the client
 * picks, in turn. One; count of one size; count of given sizes. All or nothing. IDs are written in
 * order, and are mostly consecutive. At most 2^20 chunks a call. EFULL, ETOOBIG; ENONODE: there is
 * no such peer, or none at all; EROLE: that node is no peer. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create(shoal *store, shoal_nid where, uint32_t size,
                                                      shoal_cid *cid_out);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_create_many(shoal *store, shoal_nid where, uint32_t size, size_t count, shoal_cid *cids_out);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create_sizes(shoal *store, shoal_nid where,
                                                            const uint32_t *sizes, size_t count,
                                                            shoal_cid *cids_out);
/* The same for count of one size whose IDs follow each other. EFULL also when no such run of IDs is
 * left. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create_consecutive(shoal *store, shoal_nid where,
                                                                  uint32_t size, size_t count,
                                                                  shoal_cid *cids_out);
/* Reserves IDs, for chunks that refer to each other before they are written. The chunks do not
 * exist (ENOCHUNK) until each is filled; reserved IDs are gone with their node. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_reserve(shoal *store, shoal_nid where, size_t count,
                                                       shoal_cid *cids_out);
/* Makes the chunk of a reserved ID, with its bytes. ENOCHUNK: it is not reserved, or filled
 * already. EFULL, ETOOBIG and ENONODE (its node is being drained) leave it reserved. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_fill(shoal *store, shoal_cid cid, const void *data,
                                                    uint32_t size);
/* Gives a reserved ID back unfilled. ENOCHUNK: it is not reserved. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_unreserve(shoal *store, shoal_cid cid);

/* Copies the chunk into `into` (room bytes) and its size into *size_out (may be NULL). ENOCHUNK.
 * ESIZE: room is too small; *size_out, as an exception, is the size needed. The bytes are written
 * to `into` as they come: after an error it may hold a part of them, within its room. Nothing is
 * written there any more once the call is over, however it ended. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get(shoal *store, shoal_cid cid, void *into,
                                                   size_t room, uint32_t *size_out);
/* Replaces the chunk's bytes; size must be the chunk's size (ESIZE). ENOCHUNK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put(shoal *store, shoal_cid cid, const void *data,
                                                   uint32_t size);
/* ENOCHUNK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_remove(shoal *store, shoal_cid cid);

/* Says how many bytes the chunk has. ENOCHUNK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_size(shoal *store, shoal_cid cid,
                                                    uint32_t *size_out);
/* Copies size bytes of the chunk, from offset on, into `into`; or replaces them. ENOCHUNK; ESIZE:
 * the chunk ends before, and nothing was replaced. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get_part(shoal *store, shoal_cid cid,
                                                        uint32_t offset, void *into, uint32_t size);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_put_part(shoal *store, shoal_cid cid, uint32_t offset, const void *data, uint32_t size);
/* Changes the chunk's size; what it loses is gone, what it gains is zero bytes. ENOCHUNK; EFULL and
 * ETOOBIG leave it as it was. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_resize(shoal *store, shoal_cid cid, uint32_t size);

/* Replaces the chunk's bytes, like shoal_put, if they are `expected`, byte for byte or by their
 * shoal_hash, in one step: nobody writes in between. EDIFFERS: they are not, or they are not
 * expected_size many, and nothing was changed. ENOCHUNK; ESIZE: size is not the chunk's. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put_if(shoal *store, shoal_cid cid,
                                                      const void *expected, uint32_t expected_size,
                                                      const void *data, uint32_t size);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_put_if_hash(shoal *store, shoal_cid cid, uint64_t expected, const void *data, uint32_t size);
/* XXH3 with 64 bits and seed 0: the same in every version and on every machine. Needs no store;
 * NULL is allowed with size 0. */
SHOAL_API uint64_t shoal_hash(const void *data, size_t size);

/* Adds delta to the little-endian field of width 4 or 8 bytes at offset, in one step and modulo the
 * field's width, and writes what was there before to *old_out (may be NULL). To subtract, add
 * (uint64_t)-n. ENOCHUNK; ESIZE: the chunk ends before; EINVAL: another width. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_add(shoal *store, shoal_cid cid, uint32_t offset,
                                                   unsigned width, uint64_t delta,
                                                   uint64_t *old_out);

/* One of several operations. */
struct shoal_op {
    shoal_cid cid;
    void *data;         /* get: where to; put: what, only read */
    uint32_t size;      /* get: room, then the chunk's size; put: bytes at data; resize: the new
                         * size; remove: unused */
    enum shoal_err err; /* set by the call */
};

/* Does count (up to 2^20) operations, batched per peer, in no particular order. Each op gets its
 * own err; the result is OK when all succeeded, else the err of the first (by place) that failed.
 * After a result that is not of an op (EINVAL, EBUSY, ENOMEM) every err is as it was or EAGAIN. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_get(shoal *store, struct shoal_op *ops,
                                                         size_t count);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_put(shoal *store, struct shoal_op *ops,
                                                         size_t count);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_remove(shoal *store, struct shoal_op *ops,
                                                            size_t count);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_multi_resize(shoal *store, struct shoal_op *ops,
                                                            size_t count);

/* --- Asynchronous forms ------------------------------------------------------------------ */

/* A call in flight: owned by the program and kept by the library until it is done. Fill in done
 * and arg, or leave done NULL and use shoal_wait; the rest need not be set. Reuse it, or free it,
 * once it is done: in its own completion at the earliest. */
struct shoal_call {
    /* Called once, from a thread of the library, from one that waits in it, or from the one that
     * begins the call, maybe before the beginning has returned (embedded: always so, except within
     * another completion, after which it is called, for a lock that has to wait, and with a data_dir
     * for what waits for its disk). Be short, do not block or call blocking functions of the library;
     * starting asynchronous calls is fine. */
    void (*done)(struct shoal_call *call);
    void *arg;
    /* The result, valid once done: */
    enum shoal_err err;
    shoal_cid cid;  /* create: the new chunk; else the chunk that was meant */
    uint32_t size;  /* get: the chunk's size; get_part: the bytes read, or with ESIZE the chunk's */
    uint64_t value; /* add: what was there before */
    /* The library's own. */
    uint64_t reserved[40];
};

/* Begin a call; never block. Buffers are kept until it is done. An error returned here means that
 * the call has not begun and done is not called (shoal_wait would return it at once); all later
 * ones come through call->err. EBUSY: too many calls in flight; let some complete (shoal_poll). */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_create_async(shoal *store, shoal_nid where,
                                                            uint32_t size, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get_async(shoal *store, shoal_cid cid, void *into,
                                                         size_t room, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put_async(shoal *store, shoal_cid cid,
                                                         const void *data, uint32_t size,
                                                         struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_remove_async(shoal *store, shoal_cid cid,
                                                            struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_get_part_async(shoal *store, shoal_cid cid,
                                                              uint32_t offset, void *into,
                                                              uint32_t size,
                                                              struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put_part_async(shoal *store, shoal_cid cid,
                                                              uint32_t offset, const void *data,
                                                              uint32_t size,
                                                              struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_resize_async(shoal *store, shoal_cid cid,
                                                            uint32_t size, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_put_if_async(shoal *store, shoal_cid cid, const void *expected, uint32_t expected_size,
                   const void *data, uint32_t size, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_put_if_hash_async(shoal *store, shoal_cid cid,
                                                                 uint64_t expected,
                                                                 const void *data, uint32_t size,
                                                                 struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_add_async(shoal *store, shoal_cid cid,
                                                         uint32_t offset, unsigned width,
                                                         uint64_t delta, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_fill_async(shoal *store, shoal_cid cid,
                                                          const void *data, uint32_t size,
                                                          struct shoal_call *call);

/* Waits until a call without a done function, which must have been begun, is done; returns its err.
 * One thread at a time for each call. EINVAL: it has a done function. */
SHOAL_API enum shoal_err shoal_wait(shoal *store, struct shoal_call *call);

/* Lets the library use the calling thread for a bounded amount of ready work: completions are
 * called from it. Returns how many calls were completed meanwhile, by whichever thread. Never
 * blocks. For programs that poll. Embedded: there is nothing to do. */
SHOAL_API unsigned shoal_poll(shoal *store);

/* --- Locks ------------------------------------------------------------------------------- */

/* A lock on a chunk is a lease: its owner holds it until it unlocks it, or its time is over, or the
 * chunk is removed, or the owner's connection to the chunk's node is lost (its process died, or the
 * network failed). A chunk's node keeps its locks; they are gone with the node.
 *
 * Locks are advisory: they keep others from locking, but nobody from getting, putting or removing.
 * Many owners may hold a chunk for reading, or one for writing. Who waits is served in order of
 * arrival, so that no stream of readers keeps a writer out.
 *
 * Times count from when the node grants the lock, by its clock. Who must not go on without the lock
 * extends it in time, and counts the time that it has from before the call that extended it. */
enum shoal_lock_mode { SHOAL_LOCK_READ = 1, SHOAL_LOCK_WRITE = 2 };

/* Who holds a lock: an owner of this handle; the program tells them apart by numbers of its choice.
 * For a handle that one thread uses SHOAL_OWNER_HANDLE will do. Different handles are different
 * owners, whatever their numbers. */
typedef struct shoal_owner {
    uint64_t v;
} shoal_owner;
#ifdef __cplusplus
#define SHOAL_OWNER_HANDLE (shoal_owner{0})
#else
#define SHOAL_OWNER_HANDLE ((shoal_owner){0})
#endif
/* The calling thread as an owner: a number, 2^63 or more, that no other thread of the process has
 * or had. */
SHOAL_API shoal_owner shoal_owner_thread(void);

/* A longer lease means this one: 24 hours. */
#define SHOAL_LEASE_MAX_NS UINT64_C(86400000000000)

/* Locks a chunk for lease_ns (1 at least) and waits for that up to wait_ns (UINT64_MAX: as long as
 * it takes); the handle's time-out comes on top. An owner that holds the chunk already, in that
 * mode or for writing, keeps it as it is for lease_ns more, and may so repeat the call; one that
 * holds it for reading and asks for writing is answered at once, as by shoal_lock_swap.
 *   EBUSY      another holds it or waits for it, and wait_ns is 0; the detail says who, how long
 *   ETIMEOUT   waited in vain; or the node did not answer, and then, as with ECONNLOST, the lock
 *              may have been taken, for lease_ns at most
 *   ENOCHUNK   there is no such chunk, or it was removed during the wait
 *   ECANCELED  during the wait this owner asked for the chunk once more, or unlocked it
 *   ELIMIT     the node has no room for more locks or waiters
 *   EFAILED    the chunk's node has failed, and all locks that it kept have fallen. If its chunks are in
 *              its own log it has not come back within the time-out, which is all that a lock waits for
 *              its node */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_lock(shoal *store, shoal_cid cid, shoal_owner owner,
                                                    enum shoal_lock_mode mode, uint64_t lease_ns,
                                                    uint64_t wait_ns);
/* Gives the lock back, or ends the owner's wait for it. ENOLOCK: the owner does not hold the chunk
 * and does not wait for it; its lease was over, the connection was lost, or the chunk's node was
 * killed, and is back. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_unlock(shoal *store, shoal_cid cid,
                                                      shoal_owner owner);
/* Makes the lease last for lease_ns from now, unless it lasts longer already. ENOLOCK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_lock_extend(shoal *store, shoal_cid cid,
                                                           shoal_owner owner, uint64_t lease_ns);
/* Changes a lock's mode, never giving it up in between, and extends it. To reading: always, and
 * readers that wait come in. To writing: when no other owner holds the chunk, whoever waits; else
 * EBUSY, and all is as it was. ENOLOCK. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_lock_swap(shoal *store, shoal_cid cid,
                                                         shoal_owner owner,
                                                         enum shoal_lock_mode mode,
                                                         uint64_t lease_ns);

/* The same without waiting for the answer; see Asynchronous forms. Embedded, too, a lock that has
 * to wait is completed later: from the call that frees the chunk, or a thread of the library. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_lock_async(shoal *store, shoal_cid cid, shoal_owner owner, enum shoal_lock_mode mode,
                 uint64_t lease_ns, uint64_t wait_ns, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_unlock_async(shoal *store, shoal_cid cid, shoal_owner owner, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_lock_extend_async(shoal *store, shoal_cid cid,
                                                                 shoal_owner owner,
                                                                 uint64_t lease_ns,
                                                                 struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_lock_swap_async(shoal *store, shoal_cid cid, shoal_owner owner, enum shoal_lock_mode mode,
                      uint64_t lease_ns, struct shoal_call *call);

/* A lock, or one who waits for one. */
struct shoal_lock_info {
    shoal_cid cid;
    shoal_owner owner;
    shoal_nid node; /* of the owner: a node, or the chunk's node's name for a client (0xE000 on) */
    enum shoal_lock_mode mode;
    bool is_waiting;
    uint64_t left_ns; /* of the lease, or of the wait (UINT64_MAX: it has no end) */
    uint32_t holders; /* of the chunk, in all */
    uint32_t waiters; /* likewise */
};
/* The locks on a node's chunks and those who wait for them, by chunk ID: calls each(arg, lock) for
 * each until it returns false. What changes meanwhile may be missed. each is called from this
 * thread and may call anything but shoal_close. ENONODE, EROLE, EFAILED. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_locks(shoal *store, shoal_nid node,
            bool (*each)(void *arg, const struct shoal_lock_info *lock), void *arg);

/* --- Looking around ---------------------------------------------------------------------- */

enum shoal_role { SHOAL_SUPERPEER = 1, SHOAL_PEER = 2 };
/* AWAY: a peer that was stopped in order, and is to be back soon (back_ns). */
enum shoal_node_state { SHOAL_NODE_UP, SHOAL_NODE_LEFT, SHOAL_NODE_FAILED, SHOAL_NODE_AWAY };

struct shoal_node {
    shoal_nid nid;
    enum shoal_role role;
    enum shoal_node_state state;
    char address[64];
    /* Of a peer, as it said when it joined: whether it keeps replicas for others, whether its own chunks are in its own log, so that they come
     * back with it when it has failed, and the names of its failure domains; empty: not known. */
    bool keeps_replicas, keeps_chunks;
    /* An operator has declared that the disk of the peer, which left or failed, never comes back (`shoal node lost`). */
    bool is_disk_lost;
    char machine[32], rack[32], network_switch[32];
    uint64_t
        back_ns; /* AWAY: for how long the node is waited for, from when it stopped; it counts as failed then */
};

/* The nodes that the cluster knows, also those that left or failed, by NID: writes at most room of
 * them and the number that there are to *count_out. Embedded: the one node, with the ID 1. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_nodes(shoal *store, struct shoal_node *nodes,
                                                     size_t room, size_t *count_out);

/* What becomes of nodes. PRESENT: it is known when the watch begins, in the state that it has.
 * JOINED: also that a node which failed, left or was away was started again, on what its disk has of its chunks.
 * RETURNED: a superpeer had been declared failed, and is up again; a peer never is without having joined. MOVED: a
 * superpeer has another address, in whatever state it is. AWAY: a peer was stopped in order, and is to be back soon.
 * And of zones, the parts into which a peer with replicas at others divides its chunks, once the peer has failed. ZONE_LOST: no
 * replica is left, so none of its chunks comes back (ELOST). ZONE_OLDER: its chunks are back, from a replica in which the last changes that were
 * not durable may be missing. Both are also told when the watch begins, of what happened before. */
enum shoal_event_kind {
    SHOAL_EVENT_PRESENT,
    SHOAL_EVENT_JOINED,
    SHOAL_EVENT_LEFT,
    SHOAL_EVENT_FAILED,
    SHOAL_EVENT_RETURNED,
    SHOAL_EVENT_MOVED,
    SHOAL_EVENT_ZONE_LOST,
    SHOAL_EVENT_ZONE_OLDER,
    SHOAL_EVENT_AWAY
};

struct shoal_event {
    uint64_t epoch; /* rises; those of one epoch are in no order that matters */
    enum shoal_event_kind kind;
    struct shoal_node node; /* ZONE_LOST: that failed; ZONE_OLDER: that has the zone now */
    /* ZONE_LOST, ZONE_OLDER: the zone's ID, and between which IDs its creator's chunks in it are; both 0 where that is not known, as chunks
     * were still being created in it: then any of that peer's may be. Chunks that had moved to the peer may be in it as well. Else 0. */
    uint64_t zone;
    shoal_cid first, last;
};

/* Follows the cluster's membership: calls each(arg, event) first for every node that is known, then
 * for whatever becomes of one, in order, each once, until it returns false; and each(arg, NULL)
 * while nothing happens, some times a second. What happened while no superpeer could be reached is
 * told later; of a node that changed more than once meanwhile perhaps only how it is then, if more
 * than 256 things happened. Blocks; each is called from this thread and may call anything but shoal_close. EUNREACHABLE, ETIMEOUT and others: no
 * superpeer answered for the time of a request. EROLE: an embedded store has none. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_watch(shoal *store, bool (*each)(void *arg, const struct shoal_event *event), void *arg);

/* The IDs of a node's chunks, as ranges: calls each(arg, first, last) for each, both ends included,
 * until it returns false; first those that it created, then those that moved there, each in
 * ascending order. Chunks made or removed meanwhile may be missed. each is called from this thread
 * and may call anything but shoal_close. ENONODE, EROLE, EFAILED. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_ranges(shoal *store, shoal_nid node, bool (*each)(void *arg, shoal_cid first, shoal_cid last),
             void *arg);

/* A peer's chunk memory, in bytes. used = table + block + free + other. Counts are since it
 * started. */
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
    uint64_t misdirected; /* requests on chunks that are elsewhere: each heals a client's cache */
    uint64_t fences; /* how often it had to stop serving for a while, its lease having run out */
    bool is_fenced;  /* it is so now: EFENCED */
    bool is_drained; /* a drain has begun or is over: it takes no chunks, until shoal_undrain */
};
/* ENONODE, EROLE, EFAILED. Embedded: node is SHOAL_NID_NONE or 1. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_status(shoal *store, shoal_nid node,
                                                      struct shoal_status *status_out);

/* What has come of this client's lookups of where chunks are, since the store was opened. */
struct shoal_lookups {
    uint64_t hits, misses; /* of its cache */
    uint64_t healed;       /* cached ranges that were taken out, since they were out of date */
    uint64_t questions;    /* to superpeers */
    uint64_t ranges;       /* cached now */
    uint64_t bytes;        /* of memory for them */
};
/* Never blocks. All 0 for an embedded store. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_lookups(shoal *store,
                                                       struct shoal_lookups *lookups_out);

/* --- A whole store ----------------------------------------------------------------------- */

/* Called now and then, from the calling thread, while a call of this section goes on: the phase
 * ("write", "check", "create", "undo", "analyze"), what is done and what there is in all, in bytes
 * (of an analysis in groups of 16 IDs). False cancels it: the call then ends with ECANCELED, once
 * nothing of it is left (of a migration: but for what was moved). May call anything but
 * shoal_close. */
typedef bool (*shoal_progress)(void *arg, const char *phase, uint64_t done, uint64_t all);

struct shoal_dump_sums {
    uint64_t chunks;
    uint64_t payload_bytes; /* sum of the chunks' sizes */
    uint64_t file_bytes;
};

/* Write all chunks of a peer into a file and load them again. The file is on the peer's machine:
 * NAME.dump in the folder of its option data_dir; a name is 1 to 128 letters, digits, '.', '-' and
 * '_', and does not begin with '.'. Embedded: node is SHOAL_NID_NONE or 1, and name is the path of
 * the file, whose folder exists.
 *
 * A dump goes on beside everything else: each chunk is whole, but they are not all of one moment.
 * It takes the file's place when all of it is on the disk; until then, and after an error, a file
 * of that name stays what it was. The names of chunks that the peer created are in it (embedded:
 * all names), as the chunk with the local ID 0, which the peer has meanwhile.
 *
 * A load creates the chunks under the IDs that they had. The file is checked first: ECORRUPT,
 * ETRUNCATED, EVERSION, EEXIST (one of its IDs is in use), EINVAL (one of its chunks was created by
 * another node: a chunk is looked for at its creator), ETOOBIG and EFULL leave the peer as it was.
 * With SHOAL_LOAD_RENAMED the chunks may be those of one other node, say of the peer before it was
 * started again and got another ID: this peer's ID takes its place in theirs (65:17 becomes 66:17);
 * IDs that chunks hold in their bytes stay what they were. Others see chunks while they are
 * created; where they create chunks under the same IDs meanwhile it fails with EEXIST too, and what
 * was created is removed again. When all are there, the names in the file are given, but those that
 * somebody has given since; with SHOAL_LOAD_RENAMED they follow their chunks. Where that fails the
 * chunks stay, and so does the one with the local ID 0.
 *
 * Block until it is over, however long that takes; the time-out is for each answer of the peer, and
 * ETIMEOUT or ECONNLOST mean that it may still go on there. progress and sums_out may be NULL.
 * EBUSY: another call of this section is under way on that peer. EINVAL: a bad name, or the peer
 * has no data_dir. ENONAME: there is no such file or folder. ENOSPC, EIO, ENONODE (for
 * a load also: it is being drained), EROLE, EFAILED. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_dump(shoal *store, shoal_nid node, const char *name,
                                                    shoal_progress progress, void *arg,
                                                    struct shoal_dump_sums *sums_out);
enum shoal_load_ids { SHOAL_LOAD_SAME, SHOAL_LOAD_RENAMED };
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_load(shoal *store, shoal_nid node, const char *name,
                                                    enum shoal_load_ids ids,
                                                    shoal_progress progress, void *arg,
                                                    struct shoal_dump_sums *sums_out);

/* What a migration moves, and how. All zeros but first and last: the range, to the other peers. */
struct shoal_migration {
    shoal_cid first, last; /* both included; of these, what the node has */
    shoal_nid target;      /* NONE: all other peers that are up, in turn */
    /* The node takes no chunks from now on, new or moved, and the migration goes on until it has
     * none and none can come back to it: also when a target is overloaded or may not serve for a
     * while. The node stays in the cluster; stop it when the call has succeeded, or let it create
     * chunks again with shoal_undrain. */
    bool drain;
    uint64_t bytes_per_s; /* at most; 0: as fast as it goes */
    uint64_t bytes_max;   /* it ends once so many bytes were moved; 0: no such end */
};

struct shoal_migration_sums {
    uint64_t chunks;
    uint64_t bytes; /* sum of the chunks' sizes */
    uint64_t batches;
    uint64_t locked;    /* chunks that could not be moved as the owner of a lock told no number, as
                         * programs without this library may; all were in the end, unless it was
                         * canceled or ended with EBUSY */
    uint64_t freeze_ns; /* the longest time that one batch of chunks could not be written */
};

/* Moves chunks from a peer to others, while everybody goes on reading and writing: only some
 * hundred chunks at a time, for about a millisecond, have to wait. IDs stay what they are. Nothing
 * that was acknowledged is lost, and nothing is done twice. Locks move along (docs/migration.md).
 *
 * Blocks until it is over, calls progress ("move", in chunks; after a second without any "move
 * waits: " and the name of the error that is in the way) as the calls above; sums_out is written
 * also when it was canceled or failed, and what was moved by then stays where it is. EBUSY: that
 * peer moves chunks already, a graph is loaded, or for a drain a dump is being loaded; or all that
 * is left for 30 s are chunks with locks that can't move, of which the detail names one; or a drain
 * can't end, as the detail says, since nodes can't be asked that were to hear of a batch. ELIMIT: a
 * target or superpeer keeps no more ranges, or results of requests. EFULL: no target has room.
 * ENONODE: a target or source that is no peer, not up, or drained itself. EINVAL: source and target
 * are the same, or it is an embedded store. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_migrate(shoal *store, shoal_nid node,
                                                       const struct shoal_migration *migration,
                                                       shoal_progress progress, void *arg,
                                                       struct shoal_migration_sums *sums_out);

/* Lets a peer take chunks again that was drained; a drain that is under way ends with ECANCELED.
 * Chunks that were moved stay where they are. ENONODE, EROLE, EFAILED, EINVAL. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_undrain(shoal *store, shoal_nid node);

#define SHOAL_ANALYSIS_EXACT 256
#define SHOAL_ANALYSIS_POWERS 32
#define SHOAL_ANALYSIS_RUNS 8

struct shoal_size_class {
    uint64_t chunks;
    uint64_t payload_bytes;
};

struct shoal_id_run {
    shoal_cid first;
    uint64_t count; /* 0: there is no such run */
};

/* What a peer's chunk memory is made of. used = payload + table + pointer + header + rounding +
 * room
 * + free + other bytes, while no thread is at work; else each figure is of some moment. */
struct shoal_analysis {
    uint64_t chunks;
    uint64_t payload_bytes;
    uint64_t packed;         /* chunks that share a block with their neighbours */
    uint64_t longs;          /* chunks with a block of their own */
    uint64_t pinned;         /* of these: they stay where they are */
    uint64_t foreign;        /* chunks that other nodes created */
    uint64_t reserved;       /* IDs that are handed out and have no chunk yet */
    uint64_t groups;         /* groups of 16 IDs with a chunk */
    uint64_t table_bytes;    /* groups, and the bitmap of free IDs */
    uint64_t pointer_bytes;  /* long chunks' places in their groups */
    uint64_t header_bytes;   /* long chunks' sizes and pins */
    uint64_t rounding_bytes; /* of blocks to the sizes that the allocator has */
    uint64_t room_bytes;     /* in blocks, for chunks that are yet to be created */
    uint64_t free_bytes;     /* touched and in no block */
    uint64_t other_bytes;    /* the allocator's and the store's own structures */
    uint64_t used_bytes;
    uint64_t bytes_max;
    uint64_t free_ids; /* IDs below the largest that is in use */
    uint64_t free_runs;
    uint64_t used_runs;
    struct shoal_id_run longest_used[SHOAL_ANALYSIS_RUNS]; /* runs of chunks, the longest first */
    struct shoal_id_run longest_free[SHOAL_ANALYSIS_RUNS];
    uint64_t exact[SHOAL_ANALYSIS_EXACT]; /* chunks of exactly so many bytes */
    /* By powers of two: size 0; 1; 2 to 3; 4 to 7; ... */
    struct shoal_size_class powers[SHOAL_ANALYSIS_POWERS];
};
/* Goes over all of a peer's chunks. ENOMEM, and as above. Embedded: as above. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_analyze(shoal *store, shoal_nid node,
                                                       shoal_progress progress, void *arg,
                                                       struct shoal_analysis *analysis_out);

/* The library's version, "MAJOR.MINOR.PATCH". */
SHOAL_API const char *shoal_version(void);

#ifdef __cplusplus
}
#endif

#endif
