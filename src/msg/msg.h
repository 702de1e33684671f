/* Messaging between nodes. DXNet 2018 §III-X; DESIGN: Messaging.
 *
 * One struct sh_msg is one node's end: it knows the other nodes by ID and address, opens
 * connections when something is sent, and carries messages of up to 4 GiB in order per connection.
 * Messages are serialized by their senders straight into the connection's outgoing ring, sent in
 * large blocks, and handed to handlers straight from the receive buffer.
 *
 *   sender --begin/put/end--> outgoing ring --transport step--> wire
 *   wire --transport step--> receive block --parse--> inline handler
 *                                              \----> pooled or ordered handler (handler step)
 *                                              \----> the request that it answers
 *
 * It leaves to others: threads (it offers steps), what messages mean, and who is a member.
 *
 * A message is a type (module and operation), a kind (message, request, answer or error) and a
 * payload; docs/wire-format.md has the bytes. Between two nodes there is one connection, made of
 * one stream, or of two when both opened at the same time; each side sends on the stream that it
 * had first, so that no message is doubled or overtaken (DXNet 2018 §IX.B; we need no second socket
 * otherwise, since TCP confirms in both directions). Messages over both streams are of two of the
 * sender's connections: the receiver's connection is lost before the second's are handled.
 *
 * Clients have no node ID. The node that accepts one calls it by an alias of its own, 0xE000 to
 * 0xFFFE, for as long as the connection lasts; nodes called by address (sh_msg_contact) likewise.
 */
#ifndef SH_MSG_MSG_H
#define SH_MSG_MSG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/crew.h"
#include "env/env.h"
#include "msg/codec.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_MSG_HEADER_BYTES 10
#define SH_MSG_VERSION 2     /* of the wire: the highest that we speak, */
#define SH_MSG_VERSION_MIN 1 /* and the lowest */
#define SH_MSG_NID_MAX 0xDFFF
#define SH_MSG_ALIAS_MIN 0xE000
#define SH_MSG_ALIAS_MAX 0xFFFE
#define SH_MSG_ADDRESS_MAX 64 /* with the NUL */

/* A message type, 0x100 to 0x3FFF: the module in the upper 6 bits, its operation in the lower 8.
 * Module 0 is msg's own. */
typedef uint16_t sh_msg_type;
#define SH_MSG_TYPE(module, operation) ((sh_msg_type)(((module) << 8) | (operation)))
#define SH_MSG_TYPES 0x4000

struct sh_msg;

enum sh_msg_event_kind { SH_MSG_UP, SH_MSG_LOST, SH_MSG_CLOSED };

/* What became of a connection. CLOSED: it was idle on both sides and closed in good order, because
 * one of them needed room for another; nothing is lost, and the next message opens it again (an
 * alias that was given to a client is over). LOST: err says why (ECONNLOST, EUNREACHABLE, ESECRET,
 * ECLUSTER, EVERSION, EPROTO, ESTOPPED); every request that waited on it has failed with that
 * error. LOST may follow CLOSED, if the other side has not confirmed the close within
 * connect_timeout_ns: then the last one-way messages may not have been read. */
struct sh_msg_event {
    enum sh_msg_event_kind kind;
    shoal_nid nid;      /* the other node, or its alias */
    shoal_nid real_nid; /* UP: what the other side says it is; NONE for a client */
    enum shoal_err err;
};

struct sh_msg_config {
    shoal_nid nid;          /* NONE: a client, or a node that has not joined yet */
    const char *cluster;    /* borrowed; the cluster's name */
    struct sh_bytes secret; /* borrowed; the cluster's secret, may be empty */
    /* When so many are open, the least recently used idle one closes for the next; if none is idle
     * that is refused. A few more may be open while others close. */
    uint32_t connections_max;
    uint32_t hellos_max;   /* accepted and not proven yet; the oldest makes room. 0: 128 */
    uint32_t requests_max; /* outstanding at once; a power of two up to 2^20 */
    uint32_t ring_bytes;   /* outgoing bytes a connection holds before begin says EAGAIN */
    uint32_t payload_bytes_max;
    /* What received messages that wait for handler steps may hold before streams with more of them
     * are not read any further, so that their senders are slowed down: in blocks of up to 1 MiB, or
     * one message where that is larger. Each stream may hold one block more. 0: 64 MiB. */
    uint64_t receive_bytes_max;
    /* Received bytes of one connection that handlers may still be at before its other side is told
     * to wait: flow_int.h. 0: 4 MiB; else 4096 at least. */
    uint32_t flow_window_bytes;
    uint64_t request_timeout_ns; /* for requests that name none */
    uint64_t connect_timeout_ns;
    /* A connection over which nothing is heard for so long is lost; over idle
     * ones a few bytes go at least twice in that time. 0: 3 s. */
    uint64_t silence_ns;
    struct sh_env env; /* clock, random, wire; kept; the wire stays the caller's */
    /* Called from the transport step, no lock held. May be NULL. */
    void (*on_event)(void *arg, const struct sh_msg_event *event);
    /* Wakes the thread that runs the transport step, and those that run handler steps. Called from
     * any thread after work has been published. Never NULL, but for wake_handlers where there is
     * wake_handler. */
    void (*wake_transport)(void *arg);
    void (*wake_handlers)(void *arg);
    /* NULL, or called instead of that: wakes the thread of one handler step, whose number is how
     * often sh_msg_handler_step had been called before it. */
    void (*wake_handler)(void *arg, unsigned handler);
    void *arg;
};

SHOAL_NODISCARD enum shoal_err sh_msg_create(const struct sh_msg_config *config,
                                             struct sh_msg **msg_out);
/* Closes everything, fails what waits with ESTOPPED, frees. No thread may be using it. */
void sh_msg_destroy(struct sh_msg *msg);

/* Starts to accept connections. bound_out gets the address with its port, SH_MSG_ADDRESS_MAX
 * bytes. EADDRINUSE, EADDRESS. Before the steps run, or from the transport step. */
SHOAL_NODISCARD enum shoal_err sh_msg_listen(struct sh_msg *msg, const char *address,
                                             char *bound_out);

/* The steps and the parker for a crew. Each step belongs to one thread; there is one transport
 * step, and a handler step for each thread that shall have one: SH_CREW_THREADS_MAX at most, made
 * before they run. */
struct sh_step sh_msg_transport_step(struct sh_msg *msg);
struct sh_step sh_msg_handler_step(struct sh_msg *msg);
struct sh_parker sh_msg_parker(struct sh_msg *msg);

/* --- Nodes ------------------------------------------------------------------------------- */

/* Gives this end its node ID, once it has joined: connections to nodes that it opens from now on
 * carry it. Those that are there go on as they are, under the other side's alias. Any thread. */
void sh_msg_nid_set(struct sh_msg *msg, shoal_nid nid);
shoal_nid sh_msg_nid(const struct sh_msg *msg);

/* Says where a node is (copied). A changed address closes the connection. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_msg_node_set(struct sh_msg *msg, shoal_nid nid,
                                               const char *address);
/* Says which process a node is: a connection to another one is closed, and refused from then on (ENONODE,
 * EEXIST), but for one that the node itself opens with a later instance: of two the one with the greater
 * upper half is the later. 0: any. Any thread. */
void sh_msg_node_instance_set(struct sh_msg *msg, shoal_nid nid, uint64_t instance);
/* Nodes with IDs up to that are one process at a time: while one is connected, another one that says it is
 * the node is refused (EEXIST), and for wait_ns after that connection is lost. Only the instance that
 * sh_msg_node_instance_set named takes the place at once, and closes nothing by being named. Before the
 * steps run, or from the transport step. */
void sh_msg_sole_set(struct sh_msg *msg, shoal_nid last, uint64_t wait_ns);
/* This process's own; else it is random. Before the steps run, or from the transport step: for hellos from
 * then on. */
void sh_msg_instance_set(struct sh_msg *msg, uint64_t instance);
uint64_t sh_msg_instance(const struct sh_msg *msg);
/* Forgets a node and closes the connection to it: what waits fails with ECONNLOST. Any thread. */
void sh_msg_node_remove(struct sh_msg *msg, shoal_nid nid);

/* Whether the last attempt to open a connection to a node or alias was refused by its host, which
 * says that nobody listens at that address: a process that did is gone. Thread of the transport
 * step. */
bool sh_msg_was_refused(struct sh_msg *msg, shoal_nid nid);

/* Whether there is a connection to a node or alias, whichever side has opened it. Thread of the transport step. */
bool sh_msg_is_connected(struct sh_msg *msg, shoal_nid nid);

/* An alias for whoever listens at an address, to send to before its node ID is known. The same
 * address gives the same alias. ELIMIT, EADDRESS. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_msg_contact(struct sh_msg *msg, const char *address,
                                              shoal_nid *alias_out);

/* --- Sending ----------------------------------------------------------------------------- */

/* A message under construction, on the sender's stack. Write exactly the announced payload through
 * w, then end it, without delay: the connection's bytes wait for it. */
struct sh_out {
    struct sh_writer w;
    /* msg's: */
    struct sh_conn *conn;
    uint32_t slot;
    uint32_t bytes;
};

/* Begins a one-way message. Returns at once: EAGAIN when the ring is full or the receiver does not
 * keep up (sh_msg_wait_room, or try again in a later step), EUNREACHABLE when the node is unknown,
 * ETOOBIG, ESTOPPED. On success the caller must write payload_bytes and call sh_msg_end. A message
 * that was sent when the connection is lost may or may not have arrived. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_msg_begin(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                                            size_t payload_bytes, struct sh_out *out);
void sh_msg_end(struct sh_msg *msg, struct sh_out *out);

/* A request. Owned by the caller and kept by msg from sh_msg_request until done has been called
 * (always, exactly once, unless sh_msg_cancel returned true). */
struct sh_request {
    /* Called when the answer is there (OK, and the answer's payload, valid during the call), or
     * when there will be none: the error that the handler sent (payload: its text), ETIMEOUT, or
     * a connection error. By the transport step (sh_msg_cancel_node: by its caller), no lock held;
     * must be short and not block; may send. The request may be freed or reused in it. */
    void (*done)(struct sh_request *request, enum shoal_err err, struct sh_reader *payload);
    void *arg;           /* the caller's */
    uint64_t timeout_ns; /* 0: the configured one */
    /* Where the answer goes. NULL: done gets its payload, which is collected first. Else the
     * description (codec.h) reads it into the object, piece by piece while it comes, so that an
     * answer of any size needs no buffer and its byte arrays land in the memory that the
     * description names; done gets an empty payload then, and EPROTO or what the description said
     * when it did not fit the answer. An error's text goes to done as ever.
     *
     * Object and named memory are kept like the request, and given back with it: whatever ends it,
     * a time-out or a lost connection or a cancel in the middle of the answer, nothing is written
     * there once done has been called or sh_msg_cancel has returned true, and the rest of the
     * answer is passed over. For each piece finds its request in the table anew, and writes only
     * if that still waits for this very answer. Time-outs, losses and done are the transport
     * step's, as is the writing, so none of them comes in between; a cancel by another thread
     * waits until the piece at hand (64 KiB at most) is written. What was read of an answer that
     * did not come to its end stays in the object, where only its owner can tell what to free.
     *
     * The description runs in the transport step, at any time from sh_msg_request on; it must be
     * short, take no lock that a thread holds while it cancels, and call nothing of this header. */
    sh_codec_describe describe;
    void *object;
    /* When it fails, by the clock; 0: timeout_ns from now. Saves reading the clock again where it
     * is known. Back to 0 once done. */
    uint64_t deadline_ns;
    /* msg's: */
    struct sh_request *next, *prev;
    const void *answering; /* the partial that its answer goes through; NULL: none yet */
    uint32_t id;
    shoal_nid to;
};

/* Begins a request; like sh_msg_begin. ELIMIT when requests_max are outstanding. On any error the
 * request is not kept and done is not called. */
SHOAL_NODISCARD enum shoal_err sh_msg_request(struct sh_msg *msg, shoal_nid to, sh_msg_type type,
                                              size_t payload_bytes, struct sh_request *request,
                                              struct sh_out *out);

/* Whom to answer; can be copied and used later, from any thread, once. */
struct sh_reply_to {
    shoal_nid nid;
    uint32_t id; /* 0: no answer is expected */
    uint32_t generation;
};

/* An object on its way to a node. Owned by the caller, kept by msg (with the object, which must not
 * change meanwhile) from the call that sends it until done has been called. */
struct sh_object_out {
    /* Called exactly once if the call returned OK: with OK when the object is not needed any more,
     * because all its bytes have been handed to the wire; or with why the connection was lost. By
     * the transport step, no lock held, or by the sender before the call returns. Must be short and
     * not block; may send; the memory may be reused in it. */
    void (*done)(struct sh_object_out *out, enum shoal_err err);
    void *arg; /* the caller's */
    /* msg's: */
    struct sh_object_out *next;
    uint64_t memory_bytes; /* bulk.h: what waits in memory until it is sent */
    sh_codec_describe describe;
    void *object;
    struct sh_codec codec;
    struct sh_block *stage; /* what is written and not pushed */
    uint32_t stage_at, stage_fill;
    uint64_t position;
};

/* Send what a description tells of an object: one-way, as a request, as an answer. What fits into
 * the ring is written into it at once. A larger message is streamed: the ring takes its header, the
 * transport step writes and sends the payload in pieces of 64 KiB when its turn has come, and what
 * is sent to that node meanwhile waits in the ring behind it. So no memory of the message's size is
 * needed at the sender, nor order lost; a request's time-out runs all the while. Errors as those of
 * sh_msg_begin, sh_msg_request and sh_msg_reply, and ENOMEM; on any error nothing is kept and done
 * is not called. (sh_msg_wait_room takes sh_codec_size for the payload.) DXNet 2018 §V. */
SHOAL_NODISCARD enum shoal_err sh_msg_send_object(struct sh_msg *msg, shoal_nid to,
                                                  sh_msg_type type, sh_codec_describe describe,
                                                  void *object, struct sh_object_out *out);
SHOAL_NODISCARD enum shoal_err sh_msg_request_object(struct sh_msg *msg, shoal_nid to,
                                                     sh_msg_type type, sh_codec_describe describe,
                                                     void *object, struct sh_request *request,
                                                     struct sh_object_out *out);
SHOAL_NODISCARD enum shoal_err sh_msg_reply_object(struct sh_msg *msg, struct sh_reply_to to,
                                                   sh_msg_type type, sh_codec_describe describe,
                                                   void *object, struct sh_object_out *out);

/* Cancels a request: true when done will never be called; false when it was called, is being
 * called, or is about to be. A late answer is dropped, or the rest of it; true is returned only
 * when nothing is being written for the request any more. Any thread; not from a description. */
bool sh_msg_cancel(struct sh_msg *msg, struct sh_request *request);

/* Ends all requests to a node that were sent and are not answered: done is called with ECANCELED,
 * by this thread, before it returns; late answers are dropped. Returns how many. Requests that
 * begin meanwhile may be among them. Any thread. */
unsigned sh_msg_cancel_node(struct sh_msg *msg, shoal_nid nid);

/* The configured time-out of requests, in ns. Any thread. */
uint64_t sh_msg_request_timeout(const struct sh_msg *msg);

/* Requests that are waiting for an answer. Any thread. */
uint32_t sh_msg_requests_pending(const struct sh_msg *msg);

/* True when the connection's ring has room for another payload of that size. */
bool sh_msg_has_room(struct sh_msg *msg, shoal_nid to, size_t payload_bytes);

/* Completes the waiter once, from the transport step, when the ring to a node has room for another
 * payload of that size and is half empty at least (or the connection is gone): what a sender does
 * after EAGAIN. The waiter is kept until then. At most one registration per waiter. Any thread; it
 * is completed at once if there is room already. */
void sh_msg_wait_room(struct sh_msg *msg, shoal_nid to, size_t payload_bytes,
                      struct sh_waiter *waiter);
/* Takes such a registration back: true when the waiter will never be completed by it; false when it
 * was, or is about to be. Any thread. */
bool sh_msg_wait_room_cancel(struct sh_msg *msg, shoal_nid to, struct sh_waiter *waiter);

/* True when nothing waits to be sent. For an orderly shutdown. Any thread. */
bool sh_msg_drained(const struct sh_msg *msg);

/* --- Receiving --------------------------------------------------------------------------- */

enum sh_msg_mode {
    SH_MSG_INLINE,  /* runs in the parse step: short and never waiting */
    SH_MSG_POOLED,  /* runs in any handler step, in any order */
    SH_MSG_ORDERED, /* in a handler step, one at a time per connection, in order of arrival */
};

/* A received message, valid during the handler's call.
 *
 * A handler that can't end within a step does its work in pieces: it sets goes_on, and is called
 * again with the same message, its reader where the handler left it, until it clears goes_on. Each
 * call should end once sh_step_spent, and after some bounded piece where no step is timed.
 *
 * The calls after the first, of an inline handler: one in each round of the transport step, for one
 * message at a time, in the order of the first calls. So what several of them find out and change
 * never mixes. The messages that follow on the same stream wait until it is over. Of a pooled one:
 * by the handler step that made the first, before it takes another message. Not for ordered ones.
 *
 * A message whose handler has begun is handled to its end, though its connection is lost or this
 * end is fenced meanwhile. Only sh_msg_destroy cuts that short: the handler is called once more
 * with is_ending, to give back what it holds, and may not send. */
struct sh_msg_in {
    struct sh_msg *msg;
    sh_msg_type type;
    bool is_request;
    bool goes_on;                /* false in the first call */
    bool is_ending;              /* sh_msg_destroy has begun */
    struct sh_reply_to reply_to; /* .nid is the sender */
    struct sh_reader payload;
    void *state; /* the handler's, from call to call; NULL at first */
};

typedef void (*sh_msg_handler)(void *arg, struct sh_msg_in *in);

/* Registers the handler of a type; before the steps run. A message whose type has none is answered
 * with ENOTYPE (a request) or dropped, with a line in the log at debug. */
void sh_msg_handler_set(struct sh_msg *msg, sh_msg_type type, enum sh_msg_mode mode,
                        sh_msg_handler handler, void *arg);
/* Takes all handlers with that arg away again, for an owner that could not be made after all. By the thread of the
 * steps, while none of them is at work on a message. */
void sh_msg_handlers_drop(struct sh_msg *msg, const void *arg);

/* Registers, for a type with an inline handler, what asks the caches for memory that the handler
 * will touch. Where several messages have arrived together it is called for the next few with round
 * 0, for the same with round 1 (memory found through what round 0 asked for), and then they are
 * handled. It must be quick and change nothing; the payload may be malformed. */
typedef void (*sh_msg_prefetch)(void *arg, struct sh_bytes payload, unsigned round);
void sh_msg_prefetch_set(struct sh_msg *msg, sh_msg_type type, sh_msg_prefetch prefetch);

/* Registers a type whose messages are decoded straight into an object of the receiver by a
 * description (codec.h), and piece by piece while they come when they come in pieces, so that a
 * message of any size needs no buffer; before the steps run. In place of a handler.
 *
 * begin names the object for a message of so many payload bytes, ready to be read into (zeros,
 * mostly), or NULL: then the message is passed over, and a request answered with ENOMEM. in has no
 * payload. done gets the object back, exactly once: with OK; with EPROTO or what the description
 * said, when it did not fit the message (a request is still to be answered); with ECONNLOST or
 * ESTOPPED when the rest of it will not come, or nobody waits for it any more.
 *
 * The mode says where done is called, in what order, as for handlers; a failed one of a connection
 * that was lost is given back by the transport step in each mode. begin and the description run in
 * the transport step when the message comes in pieces, else where done does. What was decoded
 * piece by piece and waits for a handler step counts as processed: begin must bound it. */
typedef void *(*sh_msg_object_begin)(void *arg, const struct sh_msg_in *in, size_t payload_bytes);
typedef void (*sh_msg_object_done)(void *arg, struct sh_msg_in *in, void *object,
                                   enum shoal_err err);
void sh_msg_object_set(struct sh_msg *msg, sh_msg_type type, enum sh_msg_mode mode,
                       sh_codec_describe describe, sh_msg_object_begin begin,
                       sh_msg_object_done done, void *arg);

/* Answers a request. Answers always find room (the ring grows; more requests of a node that does
 * not take its answers are not handled until it does, and with 64 MiB unsent its connection is
 * given up). ECONNLOST when the asker is gone: nothing more to do. EINVAL when it was a one-way
 * message, which any node can send: drop it. */
SHOAL_NODISCARD enum shoal_err sh_msg_reply(struct sh_msg *msg, struct sh_reply_to to,
                                            sh_msg_type type, size_t payload_bytes,
                                            struct sh_out *out);
/* Answers with an error and a text for people (may be NULL). Lost askers are ignored. */
void sh_msg_reply_error(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type,
                        enum shoal_err err, const char *text);
/* Answers with an empty payload. Lost askers are ignored. */
void sh_msg_reply_ok(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type);

/* Counts a request that is sent to a node once more, after it has failed. msg repeats nothing by
 * itself: who does so says it, for the counters. Any thread. */
void sh_msg_retried(struct sh_msg *msg, shoal_nid to);

/* --- Leases and epochs ----------------------------------------------------------------------- */

/* Until when this end may serve, by the clock of env. Once it has been set, and the clock has
 * passed it, this end is fenced: all connections are given up, so that no answer of before is sent
 * any more, and messages of leased types are refused with EFENCED (requests) or dropped, without
 * having been handled. A later lease ends that. Connections may be opened all the while. Any
 * thread. */
void sh_msg_lease_set(struct sh_msg *msg, uint64_t until_ns);
/* What was set last; UINT64_MAX: nothing. */
uint64_t sh_msg_lease_ns(const struct sh_msg *msg);
/* Connections to nodes with IDs up to that are not given up then: no messages of leased types come
 * over them. Before the steps run. */
void sh_msg_lease_spare(struct sh_msg *msg, shoal_nid last);
bool sh_msg_is_fenced(const struct sh_msg *msg);
/* Messages of that type are handled only under a lease, and only of senders that are not fenced by
 * sh_msg_node_fence. After its handler was set (nothing is done where it has none), before the
 * steps run. */
void sh_msg_leased_set(struct sh_msg *msg, sh_msg_type type, bool is_leased);

/* The epoch that this end knows, which only rises. Another end is told with what is sent to it next, so
 * that each message counts as marked with the epoch that its sender knew, or an older one: the first
 * behind a change may count as marked with the one before, the next does not. Any thread. */
void sh_msg_epoch_set(struct sh_msg *msg, uint64_t epoch);
/* From now on messages of leased types that come from a node, and are marked with an older epoch
 * than that, are refused as above. Any thread. */
void sh_msg_node_fence(struct sh_msg *msg, shoal_nid nid, uint64_t epoch);

/* --- Times --------------------------------------------------------------------------------- */

/* Parts of the transport step, beside handlers. */
enum sh_msg_part {
    SH_MSG_PART_POLL,    /* asking the wire, which does TLS handshakes in it */
    SH_MSG_PART_RECEIVE, /* taking bytes, and decoding what comes piece by piece */
    SH_MSG_PART_HELLO,   /* connections that are opened or accepted */
    SH_MSG_PART_ANSWER,  /* what is done with an answer */
    SH_MSG_PART_GROUP,   /* up to 16 short messages, of any types */
    SH_MSG_PART_UPKEEP,  /* time-outs, beats, losses */
    SH_MSG_PART_SEND,    /* pushing bytes */
    SH_MSG_PARTS
};
struct sh_step_report sh_msg_part_time(const struct sh_msg *msg, enum sh_msg_part part);
/* Calls each with the types of messages that were handled, and how long that took at most. Any
 * thread. */
void sh_msg_handler_times(const struct sh_msg *msg,
                          void (*each)(void *arg, sh_msg_type type, struct sh_step_report time),
                          void *arg);

/* --- Counters ---------------------------------------------------------------------------- */

struct sh_msg_stats {
    uint64_t messages_out, bytes_out, blocks_out; /* blocks: what was pushed to the wire at once */
    uint64_t messages_in, bytes_in;
    uint64_t connections_opened, connections_lost, hellos_refused;
    uint64_t requests_timed_out, answers_dropped;
    uint64_t retries; /* requests sent once more: sh_msg_retried */
    uint64_t repeats; /* requests that came once more, answered from their first result: once.h */
    uint64_t fenced;  /* messages refused with EFENCED */
    uint64_t fences;  /* how often a lease ran out, and was not renewed in time */
};
void sh_msg_stats_get(const struct sh_msg *msg, struct sh_msg_stats *stats_out);

/* The same of the connections there were to one node or alias. Messages divided by blocks is the
 * aggregation that was achieved. */
struct sh_msg_conn_stats {
    uint64_t messages_out, bytes_out, blocks_out; /* messages: those that were written to the end */
    uint64_t messages_in, bytes_in;
    uint64_t room_waits;   /* EAGAIN, because the ring was full */
    uint64_t window_waits; /* EAGAIN, because the receiver did not keep up */
    uint64_t retries;      /* requests sent to it once more: sh_msg_retried */
    uint64_t opened;       /* how often */
    uint64_t unsent_bytes; /* in the ring now */
};
/* False: nobody ever named that node. Any thread. */
bool sh_msg_conn_stats_get(const struct sh_msg *msg, shoal_nid nid,
                           struct sh_msg_conn_stats *stats_out);

#endif
