/* What the files of msg share; no other module sees it.
 *
 * Who owns what: streams, wire, timers and hello state belong to the transport step alone. A
 * connection's ring and state are guarded by its lock, the request table by its own, so that any
 * thread may send. Lock order: MSG_TABLE, MSG_CONN, MSG_REQUESTS, MSG_BLOCKS, UNMAPS (base/locks.def). */
#ifndef SH_MSG_MSG_INT_H
#define SH_MSG_MSG_INT_H

#include <stdatomic.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/queue.h"
#include "base/steptime.h"
#include "base/unmap.h"
#include "msg/codec.h"
#include "msg/flow_int.h"
#include "msg/msg.h"
#include "msg/outring_int.h"
#include "msg/rate_int.h"

enum sh_kind { SH_KIND_MESSAGE, SH_KIND_REQUEST, SH_KIND_ANSWER, SH_KIND_ERROR };

/* The operations of module 0, whose one-way messages are between the ends themselves. */
enum sh_control {
    SH_CONTROL_LIMIT = 1, /* flow_int.h */
    SH_CONTROL_BEAT = 2,  /* beat.c */
    SH_CONTROL_CLOSE = 3, /* these: close.c */
    SH_CONTROL_CLOSED = 4,
    SH_CONTROL_KEEP = 5,
    SH_CONTROL_EPOCH = 6, /* lease.c */
};

/* The three sizes of receive blocks: for a stream with little to say, for a busy one, and for what
 * does not fit these. Larger messages get blocks of their own. */
#define SH_BLOCK_SIZES 3
#define SH_BLOCK_SMALL_BYTES (4 * 1024)
#define SH_BLOCK_BYTES (64 * 1024)
#define SH_BLOCK_LARGE_BYTES (1024 * 1024)
/* What all connections together may have under way in each direction before the window and the ring
 * of each become smaller than configured, and how small they become at most. Without it many
 * senders fill the memory that the kernel has for sockets, and then nobody gets on. */
#define SH_SHARED_BYTES (UINT32_C(8) << 20)
#define SH_SHARE_BYTES_MIN (UINT32_C(64) << 10)
#define SH_RECEIVE_BYTES_MAX (UINT64_C(64) << 20) /* where the configuration names none */
/* With more than this unsent a connection takes no answer any more: it is given up. */
#define SH_UNSENT_BYTES_MAX (UINT64_C(64) << 20)
#define SH_EVENTS_MAX 64
#define SH_WHEEL_SLOTS 512
#define SH_WHEEL_TICK_NS UINT64_C(4000000)
#define SH_STREAM_BUCKETS 256
#define SH_WORKS_MAX 4096
#define SH_HELLO_BYTES 48
#define SH_PROOF_BYTES 32
#define SH_WELCOME_BYTES (SH_HELLO_BYTES + SH_PROOF_BYTES)
#define SH_PROOF_FRAME_BYTES (8 + SH_PROOF_BYTES)
#define SH_HELLO_FRAME_MAX 256
#define SH_ERROR_TEXT_MAX 255

/* Received bytes, shared by the stream that fills it and the works that still read it. */
struct sh_block {
    struct sh_block *next; /* in the pool */
    _Atomic uint32_t refs;
    uint32_t room;
    bool is_held; /* the stream has moved on: counts towards receive_bytes_max */
    _Alignas(8) uint8_t bytes[];
};

enum sh_conn_state {
    SH_CONN_IDLE,    /* no stream, nothing to send */
    SH_CONN_WANTED,  /* something to send: the transport step shall open it */
    SH_CONN_OPENING, /* a stream is being opened */
    SH_CONN_OPEN,
    SH_CONN_CLOSING, /* open; the other side was asked whether it may close */
};

struct sh_room_waiter {
    struct sh_room_waiter *next;
    struct sh_waiter *waiter;
    uint64_t used_max; /* room enough: no more than this is waiting to be sent */
};

struct sh_work;

/* sole.c; of the transport step. */
struct sh_sole {
    uint64_t turned_away, turned_ns; /* the process that was last, and since when; 0: none */
    uint64_t lost_ns;                /* when the connection was lost last */
};

/* The connection to one node (or alias). Made on first use; lives as long as the sh_msg. */
struct sh_conn {
    struct sh_spin lock; /* guards what follows, down to the next comment */
    enum sh_conn_state state;
    bool close_agreed;     /* CLOSING: both have asked, so nothing more is sent */
    struct sh_outring out; /* its own header says what needs no lock */
    struct sh_room_waiter *room_waiters;
    struct sh_room_waiter *room_free; /* as many as ever waited at once */
    struct sh_work *ordered_first, *ordered_last;
    /* Objects that are streamed, in the order of their headers in the ring. */
    struct sh_object_out *objects_first, *objects_last;
    struct sh_late *late_first, *late_last; /* late.c */
    _Atomic uint64_t late_bytes;            /* of them; read without the lock too */
    _Atomic uint32_t objects_count; /* of them; read by the transport step without the lock */
    _Atomic uint64_t objects_bytes; /* of memory that they have beside (memory_bytes); likewise */
    bool ordered_running;
    bool is_known; /* may be opened: address is set */
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t expected; /* the instance that the node is said to have; 0: any */
    uint64_t met;      /* the one that is connected, or was last; 0: none yet */
    /* Fixed. */
    shoal_nid nid;
    struct sh_conn *made_next;
    /* Any thread. */
    _Atomic uint32_t generation; /* rises, under the lock, whenever the connection is lost */
    _Atomic bool dirty;          /* is in msg->dirty */
    struct sh_conn *dirty_next;
    _Atomic bool close_wanted;
    _Atomic uint32_t awaited; /* answers that somebody waits for; under the requests' lock */
    uint32_t slots_first;     /* requests whose answer is still expected; under the same lock */
    _Atomic uint32_t works;   /* that its messages have */
    _Atomic uint64_t room_waits, window_waits, retries;
    _Atomic uint64_t epoch_least; /* what leased messages of this node must know at least */
    _Atomic uint64_t epoch_heard; /* what it knows; written by the transport step */
    /* Written by the transport step only. */
    _Atomic uint64_t bytes_out, blocks_out, messages_in, bytes_in, opened;
    /* Transport step only. */
    struct sh_stream *dialled, *accepted;
    struct sh_stream *sends_on; /* one of the two */
    struct sh_sole sole;
    bool was_refused;    /* the last attempt to open it: nobody listens there */
    uint64_t epoch_told; /* over this connection; 0: none */
    struct sh_flow flow; /* its own header says what any thread may do */
    struct sh_conn *beat_next, *beat_prev;
    uint64_t beat_due_ns;    /* the next look; 0: not open */
    uint64_t beat_bytes_out; /* bytes_out at the last look */
    uint64_t heard_ns;       /* when a look found that something was */
    unsigned looks_silent;   /* since then */
    uint64_t beat_polls;     /* msg->polls at the last look */
    uint64_t used;           /* msg->uses when it last carried a message */
    bool is_closing;         /* counted in closing_count; a verdict is awaited */
    struct sh_conn *closing_next;
    uint64_t closing_due_ns; /* when it is given up */
    /* Streams of before, until the other side has closed them; written by the transport step. */
    _Atomic uint32_t lingering;
    unsigned close_heard; /* bits: controls of close.c to be seen to */
    struct sh_conn *dial_next;
    uint64_t dial_due_ns; /* when it gives up to wait for room; 0: does not wait */
    bool is_streaming;    /* the first object's header was sent, its payload is next */
    bool was_heard;       /* since the last look */
    bool push_blocked;    /* the wire took less than all; WRITABLE will come */
    /* A large message under way: large.c, under its lock. */
    uint64_t large_bytes; /* 0: none; changed under the connection's lock too, but for HELD_NS */
    uint64_t large_due_ns;
    struct sh_conn *large_next, *large_prev;
    bool large_waits; /* is in large_waits_first */
    struct sh_conn *large_wait_next;
    uint64_t answers_allowed; /* stall.c: so much may be unsent when a request is handled */
    uint64_t answers_seen;    /* bytes_out when they were last looked at */
    uint64_t answers_due_ns;  /* when more are allowed, unless some are sent */
};

/* Why reading from a stream is paused. */
enum sh_stall {
    SH_STALL_NONE,
    SH_STALL_WORKS,   /* its next message waits for a free work, or for held blocks to be read */
    SH_STALL_ANSWERS, /* its next request waits until answers to its node have been sent */
    SH_STALL_TURN,    /* the step has spent its share: its next message waits for the next round */
    SH_STALL_HELD,    /* its last message is handled in pieces, and not over */
};

enum sh_stream_state {
    SH_STREAM_OPENING,      /* dialled: the wire has not opened it yet */
    SH_STREAM_WAIT_WELCOME, /* dialled: hello sent */
    SH_STREAM_WAIT_HELLO,   /* accepted */
    SH_STREAM_WAIT_PROOF,   /* accepted: welcome sent */
    SH_STREAM_READY,
    SH_STREAM_LINGERS, /* no connection's any more: sends what it has until the other side closes */
};

/* What is done with the messages of a type: a handler, or a description with begin and done. */
struct sh_handler_entry {
    sh_msg_handler handler;
    sh_msg_prefetch prefetch; /* may be NULL */
    sh_codec_describe describe;
    sh_msg_object_begin begin;
    sh_msg_object_done done;
    void *arg;
    struct sh_step_time time; /* of handling one */
    enum sh_msg_mode mode;
    bool is_leased; /* runs only while this end's lease holds: lease.c */
};

/* A message or an answer with a description whose bytes are decoded as they come. */
struct sh_partial {
    bool is_active;
    struct sh_handler_entry *entry; /* of a message or request; NULL: it is an answer */
    struct sh_msg_in in;            /* likewise */
    void *object;                   /* likewise; NULL: refused, its bytes are passed over */
    /* An answer: who awaited it when it began, to be compared only, and its ID. NULL: nobody. */
    const struct sh_request *request;
    uint32_t id;
    enum shoal_err err; /* not OK: the rest is passed over */
    uint64_t left;      /* payload bytes that have not come; 0: waits to be handed on */
    struct sh_codec codec;
};

/* One link of the wire. */
struct sh_stream {
    struct sh_stream *bucket_next;
    struct sh_stream *hello_next, *hello_prev; /* until READY */
    uint16_t version;                          /* of the wire, from READY on */
    sh_link link;
    enum sh_stream_state state;
    bool is_dialled;
    bool has_carried;            /* a message of the other side has come over it */
    struct sh_conn *conn;        /* dialled: from the start; accepted: from READY on */
    bool is_unread;              /* LINGERS: the last of lingers_for may not have been read */
    struct sh_conn *lingers_for; /* LINGERS: who is not opened again before it ends, or NULL */
    struct sh_block *block;
    uint32_t fill;   /* bytes received into the block */
    uint32_t parsed; /* bytes of it that are done with */
    enum sh_stall stall;
    bool is_paused;                            /* the wire says nothing of what it has received */
    struct sh_stream *stall_next, *stall_prev; /* among the stalled */
    uint8_t block_size;                        /* of the next block: an index of sh_block_rooms */
    uint8_t quiet; /* pulls in a row that a small block would have done for */
    uint64_t deadline_ns;
    uint8_t hello[SH_HELLO_BYTES];
    uint8_t welcome[SH_WELCOME_BYTES];
    uint8_t control[SH_HELLO_FRAME_MAX]; /* hello frames that the wire has not taken yet */
    uint32_t control_size;
    struct sh_partial partial;
    struct sh_held *held; /* its message that is handled in pieces; NULL: none */
};

/* A message whose inline handler does its work in pieces. */
struct sh_held {
    struct sh_held *next;
    struct sh_stream *stream; /* that it came over; NULL: gone */
    struct sh_block *block;   /* where the payload lies */
    struct sh_handler_entry *entry;
    struct sh_msg_in in;
};

/* A received message on its way to a handler step. */
struct sh_work {
    struct sh_work *next;
    struct sh_block *block; /* where the payload lies; NULL: in the object, or there is none */
    struct sh_conn *conn;
    struct sh_msg_in in;
    uint64_t bytes;     /* of the message, where it has a block */
    void *object;       /* decoded while its bytes came; NULL: not yet */
    enum shoal_err err; /* of decoding it */
    bool is_turn;       /* no message: run the next ordered one of conn */
};

/* One of the handler steps; its thread alone uses it. */
struct sh_handler_step {
    struct sh_msg *msg;
    unsigned index;
    bool is_busy;               /* has taken a work since it last found none */
    struct sh_work *unfinished; /* is handled in pieces, and not over; NULL: none */
};

struct sh_request_slot {
    struct sh_request *request; /* NULL: free, or given up and its answer still expected */
    uint32_t next, prev; /* among the free ones (next alone), or those of nid; SH_NO_SLOT: none */
    uint32_t old_next, old_prev; /* among the old ones; SH_NO_SLOT: none */
    uint16_t generation;
    uint16_t nid;   /* whose answer is still expected; 0: nobody's */
    bool is_old;    /* in the list of those that are the last to be used again */
    bool is_marked; /* an answer to an earlier generation may still come */
};

#define SH_NO_SLOT UINT32_MAX
#define SH_REQUEST_PIECE_SLOTS 4096
#define SH_REQUEST_PIECES 256 /* 2^20 slots */

struct sh_requests {
    struct sh_spin lock;
    /* Slots, made as they are needed; 128 KiB a piece. A piece stays where it is. */
    struct sh_request_slot *pieces[SH_REQUEST_PIECES];
    _Atomic uint32_t count; /* slots made; changed under the lock */
    uint32_t free_head;     /* index, or SH_NO_SLOT */
    /* Slots that may be used again, the oldest first, when no other is left: those whose requests
     * were given up, and free ones that are marked. */
    uint32_t old_head, old_tail;
    _Atomic uint32_t pending;
    struct sh_request *wheel[SH_WHEEL_SLOTS];
    uint64_t wheel_tick; /* the last tick that was looked at */
    /* Whose answer the transport step is writing just now. Set under the lock and cleared without
     * it, by the transport step; who cancels that one waits for it. */
    struct sh_request *_Atomic feeding;
    /* Armed when their connection had been lost already; changed under the lock. */
    struct sh_request *_Atomic late;
};

/* Streams whose hello is not over, in order of age, which is that of their deadlines. */
struct sh_hellos {
    struct sh_stream *first, *last;
    uint32_t count;
};

struct sh_msg {
    struct sh_msg_config config;
    uint64_t cluster_hash;
    uint64_t instance;
    _Atomic uint16_t nid;
    _Atomic bool is_stopping;
    _Atomic bool is_fenced; /* lease.c; written by the transport step */
    bool has_served;        /* had a lease at some time; of the transport step, as the next */
    uint64_t fenced_ns, fenced_before; /* since when it is fenced, and what was refused before */
    shoal_nid sole_last; /* nodes up to that ID are one process at a time; NONE: none is */
    uint64_t sole_wait_ns;
    shoal_nid lease_spares;    /* nodes up to that ID are sent nothing that needs a lease */
    _Atomic uint64_t lease_ns; /* when the lease runs out; SH_NEVER: none is needed */
    _Atomic uint64_t epoch;
    _Atomic(struct sh_conn *) *conns; /* 65536 */
    _Atomic(struct sh_conn *) made;   /* all of them, the youngest first */
    struct sh_lock table_lock;        /* making conns, aliases */
    uint16_t alias_next;
    /* By alias, a hash of the address that its connection has or had; 0: never one. Written under the
     * connection's lock, read without: whoever finds a hash there looks at the address itself. */
    _Atomic uint32_t alias_hashes[SH_MSG_ALIAS_MAX - SH_MSG_ALIAS_MIN + 1];
    struct sh_handler_entry *handlers[64]; /* by module; 256 each */
    struct sh_requests requests;
    /* Blocks. */
    struct sh_spin blocks_lock;
    struct sh_block *blocks_free[SH_BLOCK_SIZES];
    uint32_t blocks_free_count[SH_BLOCK_SIZES];
    struct sh_block *larger_free;
    uint64_t larger_free_bytes;  /* of those */
    struct sh_unmaps unmaps;     /* larger ones that are given back, and rings */
    _Atomic uint64_t held_bytes; /* of blocks that only works hold */
    /* 1: a stream waits for works, so a free one wakes the transport step. Here, because who frees
     * a work writes to this line anyway. */
    _Atomic uint32_t works_wanted;
    /* Works. */
    struct sh_work *works;
    struct sh_queue *works_free;
    struct sh_queue *works_ready;
    /* Handler steps: handlers.c. */
    struct sh_handler_step handler_steps[SH_CREW_THREADS_MAX];
    unsigned handler_steps_count;
    _Atomic uint64_t handlers_idle;  /* by index: 64 at most */
    _Atomic uint32_t handler_called; /* index + 1 of the one that was woken; 0: nobody */
    /* Connections with something for the transport step: a stack that it takes whole. */
    _Atomic(struct sh_conn *) dirty;
    /* Transport step only. */
    struct sh_conn *dirty_left; /* taken off that, and not seen to yet */
    struct sh_wire_event events[SH_EVENTS_MAX];
    unsigned events_count;
    unsigned events_seen; /* of them */
    uint64_t polls;       /* counts up */
    bool events_gathered; /* by the parker: the next run need not poll */
    bool poll_skipped;    /* nor the one after it, which finds nothing or other work */
    struct sh_stream *buckets[SH_STREAM_BUCKETS];
    uint32_t streams_count;
    _Atomic uint32_t share_bytes; /* of SH_SHARED_BYTES, for each of them */
    struct sh_hellos dialled_hellos, accepted_hellos;
    struct sh_conn *beats_first, *beats_last;     /* open connections by beat_due_ns */
    uint64_t uses;                                /* counts up */
    uint32_t closing_count;                       /* connections that are closing, */
    struct sh_conn *closing_first;                /* and those by closing_due_ns; few */
    struct sh_conn *dials_first, *dials_last;     /* that wait for room, by dial_due_ns */
    struct sh_rate refusals, cut_offs, overflows; /* lines in the log: blame.c, msg.c, conn.c */
    /* Large messages: large.c. */
    struct sh_spin large_lock;
    uint64_t large_bytes_max, large_bytes;
    struct sh_conn *large_first, *large_last; /* that have some under way, the oldest first */
    struct sh_conn *large_waits_first, *large_waits_last;
    _Atomic uint64_t large_due_ns;
    _Atomic bool large_freed;
    /* Stalled streams: stall.c. */
    struct sh_stream *stalled_first, *stalled_last; /* in the order of being tried again */
    uint32_t stalled_count;
    uint32_t stalled_for_works; /* of them */
    uint32_t stalled_for_turn;  /* likewise */
    uint64_t stalls_due_ns;     /* when those that wait for answers are to be tried again */
    struct sh_held *helds_first, *helds_last; /* the first is at work; transport step */
    /* Where the time of the transport step goes, but for handlers: the parts, and when the one at
     * hand began (sh_step_ticks). Transport step. */
    struct sh_step_time part_times[SH_MSG_PARTS];
    uint64_t part_began;
    struct sh_step_time *message_time; /* what the last message counts as */
    unsigned messages_untimed;         /* since then */
    unsigned messages_one_by_one;      /* so many more are timed by themselves */
    /* Counters. */
    _Atomic uint64_t messages_out, messages_in;
    _Atomic uint64_t bytes_out, blocks_out, bytes_in;
    _Atomic uint64_t opened, lost, refused, timed_out, dropped, retries, repeats, fenced, fences;
};

static inline void sh_count(_Atomic uint64_t *counter, uint64_t by)
{
    /* relaxed: a statistic that publishes nothing */
    atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* For counters that only the transport step adds to: no locked instruction. */
static inline void sh_count_alone(_Atomic uint64_t *counter, uint64_t by)
{
    /* relaxed, one writer */
    uint64_t now = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, now + by, memory_order_relaxed);
}

/* Says that what the transport step has done since the last call was that part, or a handler. */
static inline void sh_part_done(struct sh_msg *msg, struct sh_step_time *time)
{
    uint64_t now = sh_step_ticks();
    sh_step_time_add(time, msg->part_began, now);
    msg->part_began = now;
}

/* Short messages share a reading of the clock: base/steptime.h. */
#define SH_MESSAGES_GROUP 16
#define SH_MESSAGES_ONE_BY_ONE 1024

/* Times what was handled since the last part ended: by its type if that is one message or one that
 * was long. */
void sh_messages_done(struct sh_msg *msg);

/* A message was handled, which counts as that. */
static inline void sh_message_done(struct sh_msg *msg, struct sh_step_time *time)
{
    msg->message_time = time;
    if (++msg->messages_untimed >= SH_MESSAGES_GROUP || sh_step_is_long ||
        msg->messages_one_by_one > 0)
        sh_messages_done(msg);
}

/* Whether the round has taken its share of time, as the last part's end has it. */
static inline bool sh_round_is_spent(const struct sh_msg *msg)
{
    return sh_step_spent_at(msg->part_began);
}

/* msg.c: transport step. A link was closed: what the last poll said of it and has not been seen to
 * is not about the link that gets its number next. */
void sh_events_forget(struct sh_msg *msg, sh_link link);

/* block.c */
extern const uint32_t sh_block_rooms[SH_BLOCK_SIZES];           /* bytes, ascending */
struct sh_block *sh_block_get(struct sh_msg *msg, size_t room); /* NULL: out of memory */
/* Gives the kernel pages of a larger block with bytes that are not needed any more: those before
 * `passed`, of which `released` have gone before. Returns how many more have: SH_UNMAP_BYTES at most;
 * the rest with the next call, or with the block. */
#define SH_RELEASE_BYTES ((size_t)64 * 1024)
size_t sh_block_release_some(struct sh_block *block, size_t released, size_t passed);
void sh_block_share(struct sh_block *block);
/* The stream gives its block up: what works still read of it is held by them. */
void sh_block_leave(struct sh_msg *msg, struct sh_block *block);
/* True when works hold as much as they may: nothing more is handed to handler steps. */
bool sh_blocks_are_many(const struct sh_msg *msg);
void sh_block_release(struct sh_msg *msg, struct sh_block *block);
void sh_blocks_free(struct sh_msg *msg);

/* out.c: all but flush from any thread */
void sh_out_flush(struct sh_msg *msg, struct sh_conn *conn);
void sh_conn_mark_dirty(struct sh_msg *msg, struct sh_conn *conn);
uint64_t sh_out_unsent(struct sh_conn *conn);
void sh_room_waiters_complete(struct sh_conn *conn, struct sh_room_waiter *list);
void sh_room_waiters_free(struct sh_conn *conn);
/* The connection for sending to a node: ESTOPPED, ETOOBIG, EUNREACHABLE (nobody ever named it). */
SHOAL_NODISCARD enum shoal_err sh_out_conn(struct sh_msg *msg, shoal_nid to, uint64_t payload_bytes,
                                           struct sh_conn **conn_out);
/* Puts an object behind the others, as its header is behind theirs. The lock is held. */
void sh_object_append(struct sh_conn *conn, struct sh_object_out *object,
                      const struct sh_outring_place *place);
/* True when all that was given to the wire ends with a message, and nothing complete waits: so that
 * a control message may go beside the ring. Transport step. */
bool sh_out_is_between(struct sh_conn *conn);
/* Begins a message whose header alone goes through the ring, and puts its object in its place among
 * those of the connection. From then on the object's done may be called. */
SHOAL_NODISCARD enum shoal_err sh_out_begin_object(struct sh_msg *msg, struct sh_conn *conn,
                                                   enum sh_kind kind, sh_msg_type type, uint32_t id,
                                                   struct sh_object_out *object,
                                                   uint32_t *generation, struct sh_out *out);

/* out_object.c */
/* Pushes the next piece of the connection's first object, whose header was sent. False: the lease
 * has run out, and nothing was pushed. Transport step. */
bool sh_object_push(struct sh_msg *msg, struct sh_conn *conn);
/* Takes all objects off a connection that is lost, for sh_objects_fail. Its lock is held. */
struct sh_object_out *sh_objects_take(struct sh_conn *conn);
void sh_objects_fail(struct sh_msg *msg, struct sh_object_out *list, enum shoal_err err);
/* Completes those who wait and have room now, after the flow was opened again. Transport step. */
void sh_out_room_changed(struct sh_conn *conn);
/* Begins a control message, which always finds room. ECONNLOST, ENOMEM. Transport step. */
SHOAL_NODISCARD enum shoal_err sh_out_control(struct sh_msg *msg, struct sh_conn *conn,
                                              enum sh_control control, size_t payload_bytes,
                                              struct sh_out *out);

/* late.c: answers that the ring can't take now; the connection's lock is held, but for end. */
#define SH_LATE_SLOT UINT32_MAX /* the slot of their place */
struct sh_late;
/* Adds one, which is written at the place. object: NULL, or it is its header. False: out of memory.
 */
bool sh_late_add(struct sh_conn *conn, uint64_t bytes, struct sh_object_out *object,
                 struct sh_outring_place *place_out);
/* It is complete. Any thread, without the lock; the transport step must be told. */
void sh_late_end(uint8_t *data);
/* Moves into the ring what is complete, if there is any; reopens it when none is left. */
void sh_late_move(const struct sh_msg *msg, struct sh_conn *conn);
/* Drops all; appends their objects to a list. */
void sh_late_drop(struct sh_conn *conn, struct sh_object_out **objects);

/* large.c: messages larger than a connection's share (sh_share_of of ring_bytes). Any thread. */
/* Counts one on its way. False: too many bytes of such messages are under way, try again later. The
 * connection's lock is held. */
bool sh_large_take(struct sh_msg *msg, struct sh_conn *conn, uint64_t bytes);
/* True when one would be let in now. */
bool sh_large_may_enter(struct sh_msg *msg, uint64_t bytes);
/* False when it would be let in; else conn's room waiters are completed when it may be. The
 * connection's lock is held. */
bool sh_large_wait(struct sh_msg *msg, struct sh_conn *conn, uint64_t bytes);
/* Gives back what the connection's large message took, if it has one: unsent, or lost. The
 * transport step must be told. */
void sh_large_give_back(struct sh_msg *msg, struct sh_conn *conn);
/* The same if it has been sent and processed. Transport step; the connection's lock is held. */
void sh_large_settle(struct sh_msg *msg, struct sh_conn *conn);
/* Transport step: tells those who wait. */
void sh_large_run(struct sh_msg *msg, uint64_t now_ns);
uint64_t sh_large_due(const struct sh_msg *msg);

/* control.c: transport step */
#define SH_CONTROL_PAYLOAD_MAX 8
/* Sends a control message, whether others are in the middle of theirs or not. False: ECONNLOST,
 * ENOMEM. */
bool sh_control_send(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                     struct sh_bytes payload);
/* Tells the other side a new limit if that is due. */
void sh_control_flow(struct sh_msg *msg, struct sh_conn *conn);
void sh_control_receive(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                        struct sh_bytes payload);
/* Sends one before all that is in the ring; only right after the connection has opened. */
void sh_control_send_first(struct sh_msg *msg, struct sh_conn *conn, enum sh_control control,
                           struct sh_bytes payload);

/* lease.c */
void sh_lease_init(struct sh_msg *msg);
/* Transport step, before it handles and before it sends: enters the fence or leaves it. */
void sh_lease_look(struct sh_msg *msg);
/* Whether the lease has run out since the last look, so that nothing may be sent. Transport step.
 */
bool sh_lease_forbids(const struct sh_msg *msg);
/* Answers a message of a leased type that may not be handled; false: it may. */
bool sh_lease_refuses(struct sh_msg *msg, const struct sh_conn *conn, const struct sh_msg_in *in);
/* Transport step: says which epoch this end knows, if the other side does not know that. */
void sh_epoch_tell(struct sh_msg *msg, struct sh_conn *conn, bool is_first);
bool sh_epoch_hear(struct sh_conn *conn, struct sh_reader *payload);

/* conn.c */
struct sh_conn *sh_conn_find(struct sh_msg *msg, shoal_nid nid); /* NULL: none yet */
struct sh_conn *sh_conn_make(struct sh_msg *msg, shoal_nid nid); /* NULL: out of memory */
void sh_conn_service(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns);
void sh_conn_lost(struct sh_msg *msg, struct sh_conn *conn, enum shoal_err err);
/* An idle connection is over in good order; its streams are gone or linger. */
void sh_conn_closed(struct sh_msg *msg, struct sh_conn *conn);
/* Opens those that waited for room, or gives them up. */
void sh_conns_dial(struct sh_msg *msg, uint64_t now_ns);
/* Binds an accepted, proven stream to its connection; false (and a reason) refuses it. */
/* Notes with which instance the node has said hello. False: it is not the one that is expected. */
bool sh_conn_meet(struct sh_msg *msg, struct sh_conn *conn, uint64_t instance, bool is_dialled);
bool sh_conn_attach(struct sh_msg *msg, struct sh_stream *stream, shoal_nid real_nid);

/* sole.c: transport step. Whether a node is one process at a time; then meet is in the place of
 * sh_conn_meet. */
bool sh_sole_is(const struct sh_msg *msg, shoal_nid nid);
bool sh_sole_meet(struct sh_msg *msg, struct sh_conn *conn, uint64_t instance);
void sh_sole_lost(const struct sh_msg *msg, struct sh_conn *conn);

/* beat.c: transport step */
void sh_beat_start(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns);
void sh_beat_stop(struct sh_msg *msg, struct sh_conn *conn); /* if it was started */
uint64_t sh_beats_due(const struct sh_msg *msg);
void sh_beats_run(struct sh_msg *msg, uint64_t now_ns);

/* close.c: transport step */
/* Notes that a connection carried a message. */
static inline void sh_close_used(struct sh_msg *msg, struct sh_conn *conn)
{
    conn->used = ++msg->uses;
}
/* Begins to close the least recently used idle connection. False: none is idle. */
bool sh_close_one(struct sh_msg *msg);
/* True if the header is that word's. */
bool sh_close_is_word(const uint8_t *header, enum sh_control control);
/* The other side has read all: conn's streams need not linger any longer. */
void sh_close_confirmed(struct sh_msg *msg, struct sh_conn *conn);
/* The other side opens conn anew: if it has not said that it has read all, that counts as lost. */
void sh_close_unconfirmed(struct sh_msg *msg, struct sh_conn *conn);
/* Tries another one if room is still wanted, after a KEEP. Called now and then, so that two ends do
 * not ask each other all the time. */
void sh_close_again(struct sh_msg *msg);
/* In close_heard: answers were expected when the control came. */
#define SH_CLOSE_AWAITED 1u
/* Sees to the controls that were heard. */
void sh_close_service(struct sh_msg *msg, struct sh_conn *conn);
/* No verdict is awaited any more, if one was. */
void sh_close_over(struct sh_msg *msg, struct sh_conn *conn);
/* Gives up those who were asked whether they may be closed and have not said for too long. */
void sh_closes_expire(struct sh_msg *msg, uint64_t now_ns);
uint64_t sh_closes_due(const struct sh_msg *msg);
/* A wanted connection waits for room. */
void sh_dial_wait(struct sh_msg *msg, struct sh_conn *conn, uint64_t now_ns);
/* Takes the first one off that has room now, or has waited too long; NULL: none. */
struct sh_conn *sh_dial_next(struct sh_msg *msg, uint64_t now_ns);
uint64_t sh_dials_due(const struct sh_msg *msg);

/* The configured size, or a connection's share where that is less. Any thread. */
static inline uint32_t sh_share_of(const struct sh_msg *msg, uint32_t configured)
{
    /* relaxed: a recent value will do */
    uint32_t share = atomic_load_explicit(&msg->share_bytes, memory_order_relaxed);
    return configured < share ? configured : share;
}

/* stream.c */
struct sh_stream *sh_stream_add(struct sh_msg *msg, sh_link link, bool is_dialled, uint64_t now_ns);
struct sh_stream *sh_stream_find(struct sh_msg *msg, sh_link link);
/* Removes the stream from everything and frees it; closes its link unless that is gone. */
void sh_stream_drop(struct sh_msg *msg, struct sh_stream *stream, bool close_link);
/* Leaves a stream open until the other side closes it. conn, which had it, is not opened again
 * before; NULL: may be. */
void sh_stream_linger(struct sh_msg *msg, struct sh_stream *stream, struct sh_conn *conn);
/* The stream can't go on: reports it and drops it, with its connection if it had one. */
void sh_stream_fail(struct sh_msg *msg, struct sh_stream *stream, enum shoal_err err,
                    bool close_link);
void sh_stream_readable(struct sh_msg *msg, struct sh_stream *stream);
void sh_stream_control(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes);
bool sh_stream_control_flush(struct sh_msg *msg, struct sh_stream *stream);
/* Takes a stream off those whose hello is not over, if it is among them. */
void sh_stream_hello_over(struct sh_msg *msg, struct sh_stream *stream);
uint64_t sh_streams_due(const struct sh_msg *msg);
void sh_streams_expire(struct sh_msg *msg, uint64_t now_ns);

/* stall.c: transport step */
void sh_stream_stall(struct sh_msg *msg, struct sh_stream *stream, enum sh_stall why);
void sh_stream_unstall(struct sh_msg *msg, struct sh_stream *stream); /* if it is stalled */
/* Lets the wire say nothing of a stalled stream until it goes on. */
void sh_stream_pause(struct sh_msg *msg, struct sh_stream *stream);
/* True when a request of conn's node may be handled; false: too many answers to it are unsent. May
 * send some. */
bool sh_answers_have_room(struct sh_msg *msg, struct sh_conn *conn);
/* Tries the stalled streams again; returns how many got on. */
unsigned sh_streams_resume(struct sh_msg *msg, uint64_t now_ns);
uint64_t sh_stalls_due(const struct sh_msg *msg);

/* blame.c: transport step */
/* Says in the log who is refused or cut off, and why, if that is the other side's doing. The link
 * is still there. */
void sh_stream_blame(struct sh_msg *msg, const struct sh_stream *stream, enum shoal_err err);

/* hello.c */
/* Makes a first proof, which takes the library 2 ms, so that no step does. */
void sh_hello_init(void);
void sh_hello_begin(struct sh_msg *msg, struct sh_stream *stream);
/* Who the hello of a stream that WAITs for its PROOF says it is. */
shoal_nid sh_hello_nid(const struct sh_stream *stream);
/* Reads one hello frame from the front of bytes: how many bytes it took, 0 when it is incomplete.
 * Failures are reported through *err_out; the stream must then be failed with it. */
size_t sh_hello_step(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes,
                     enum shoal_err *err_out);
/* What it means that a message is longer than any may be: its header (SH_MSG_HEADER_BYTES) is a
 * REFUSAL of what we took for accepted, and the error that it gives; or EPROTO. */
enum shoal_err sh_hello_refused(const struct sh_stream *stream, const uint8_t *header);

/* request.c */
SHOAL_NODISCARD enum shoal_err sh_requests_init(struct sh_msg *msg);
void sh_requests_destroy(struct sh_msg *msg);
/* A request is entered in two halves, so that it is either refused or completed, never both:
 * reserve an ID, begin the message with it, then arm the request (or free the ID). ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_requests_reserve(struct sh_msg *msg, uint32_t *id_out);
/* If the connection was lost since its generation was read, sh_requests_late fails the request. */
void sh_requests_arm(struct sh_msg *msg, uint32_t id, struct sh_conn *conn, uint32_t generation,
                     struct sh_request *request);
void sh_requests_free(struct sh_msg *msg, uint32_t id);
void sh_requests_fail(struct sh_msg *msg, struct sh_conn *conn, enum shoal_err err);
void sh_requests_answer(struct sh_msg *msg, shoal_nid from, uint32_t id, enum sh_kind kind,
                        struct sh_bytes payload);
/* An answer that comes in pieces (partial->id, from the node). begin: false when it must be
 * collected, because who awaits it names no description. feed: decodes one, if its request still
 * waits for it. end: completes the request, or drops the answer. Transport step. */
bool sh_requests_answer_begin(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial);
void sh_requests_answer_feed(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial,
                             struct sh_bytes bytes);
void sh_requests_answer_end(struct sh_msg *msg, shoal_nid from, struct sh_partial *partial);
/* Fails those that were armed too late. Called by the transport step after a message's end (which
 * wakes it), and at the end. */
unsigned sh_requests_late(struct sh_msg *msg, enum shoal_err err);
unsigned sh_requests_expire(struct sh_msg *msg, uint64_t now_ns);
uint64_t sh_requests_due(const struct sh_msg *msg);

/* dispatch.c */
enum sh_dispatched { SH_DISPATCHED, SH_DISPATCH_LATER };
enum sh_dispatched sh_dispatch(struct sh_msg *msg, struct sh_stream *stream, enum sh_kind kind,
                               sh_msg_type type, uint32_t id, struct sh_bytes payload);
struct sh_msg_in sh_msg_in_make(struct sh_msg *msg, const struct sh_conn *conn, enum sh_kind kind,
                                sh_msg_type type, uint32_t id, struct sh_bytes payload);
struct sh_handler_entry *sh_handler_of(const struct sh_msg *msg, sh_msg_type type);
struct sh_handler_entry *sh_handler_add(struct sh_msg *msg, sh_msg_type type);
/* True when a connection may have another work, and `spare` more: when it has fewer than are free.
 * So one whose handlers are slow gets half of them at most, and always leaves some to the others.
 * Transport step. */
bool sh_works_have_room(const struct sh_msg *msg, struct sh_conn *conn, uint32_t spare);
/* Queues a work like this one for the handler steps, and shares its block. False when too many of
 * its connection wait already, or all hold too much. */
bool sh_work_add(struct sh_msg *msg, const struct sh_work *what, enum sh_msg_mode mode);
/* Runs a work that was ready. True: its handler goes on, and it is to be run again. */
SHOAL_NODISCARD bool sh_work_run(struct sh_msg *msg, struct sh_work *work);
/* Calls a handler; sees to the lease before its first call. */
void sh_message_run(const struct sh_handler_entry *entry, const struct sh_conn *conn,
                    struct sh_msg_in *in);
/* Asks the caches for what the inline handler of a message will touch, if it says so. */
void sh_dispatch_prefetch(struct sh_msg *msg, sh_msg_type type, struct sh_bytes payload,
                          unsigned round);
/* Gives back works that will not run. */
void sh_works_drop(struct sh_msg *msg, struct sh_work *list);
SHOAL_NODISCARD enum shoal_err sh_dispatch_init(struct sh_msg *msg);
void sh_dispatch_destroy(struct sh_msg *msg);

/* held.c: messages that inline handlers handle in pieces. Transport step. */
/* Its handler goes on: keeps the message, whose payload lies in the stream's block. */
void sh_held_add(struct sh_msg *msg, struct sh_stream *stream, struct sh_handler_entry *entry,
                 const struct sh_msg_in *in);
/* Does a piece of the first, if there is one; returns how many it did. */
unsigned sh_held_run(struct sh_msg *msg);
/* The stream is about to be freed. */
void sh_held_forget_stream(struct sh_stream *stream);
/* Ends all early. */
void sh_helds_end(struct sh_msg *msg);

/* handlers.c: a work was queued: wakes a handler step for it, if one is idle and none was woken
 * that is still to come. Any thread. */
void sh_handlers_wake(struct sh_msg *msg);

/* dispatch_object.c */
/* Decodes a message that has come whole, and says done. Any thread. */
void sh_object_receive(const struct sh_handler_entry *entry, struct sh_msg_in *in);
/* Begins to decode a message that has not come whole: false when it is to be waited for, because it
 * has no description or is short. The rest: transport step. */
bool sh_partial_begin(struct sh_msg *msg, struct sh_stream *stream, enum sh_kind kind,
                      sh_msg_type type, uint32_t id, uint64_t payload_bytes);
/* Takes more bytes of it, and returns how many. */
size_t sh_partial_feed(struct sh_msg *msg, struct sh_stream *stream, struct sh_bytes bytes);
/* Hands on what has come whole; false: later. */
bool sh_partial_end(struct sh_msg *msg, struct sh_stream *stream);
/* The stream is gone: what was being decoded is given back. An answer's request is left to
 * sh_requests_fail. */
void sh_partial_drop(struct sh_msg *msg, struct sh_stream *stream);

#endif
