/* The load's parts: the actors on the nodes (msg_load.c) and what watches them (msg_check.c). */
#ifndef SIM_MSG_LOAD_INT_H
#define SIM_MSG_LOAD_INT_H

#include "msg/msg.h"
#include "sim/msg_load.h"

#define LOAD_PAYLOAD_MAX 20000
#define LOAD_HEAD_BYTES 24

/* The kinds of one-way messages, by how they are handled. */
enum load_kind { LOAD_INLINE, LOAD_ORDERED, LOAD_KINDS };

enum record_state { RECORD_PENDING, RECORD_DONE, RECORD_CANCELED };

/* What the checkers know of one request. */
struct record {
    enum record_state state;
    unsigned from;
    unsigned to;
    unsigned handled;
    unsigned boot; /* of the sender, when it was sent */
};

/* The next number expected in one kind from one sender to one receiver, by epoch: a sender's epoch
 * for a receiver rises with every LOST event. */
struct channel {
    uint32_t epoch;
    uint32_t next_sent;
    uint32_t *next_received;   /* by epoch */
    uint64_t connection;       /* the receiver's, over which the last came */
    uint32_t connection_epoch; /* the sender's epoch of that message */
    uint32_t epochs;           /* entries in next_received */
};

struct check {
    struct sh_world *world;
    struct sh_msg_load_result *result;
    struct record *records;
    uint32_t record_count;
    uint32_t record_room;
    uint32_t pending;
    struct channel channels[SH_MSG_LOAD_NODES_MAX][SH_MSG_LOAD_NODES_MAX][LOAD_KINDS];
};

/* Fails the run; only the first failure counts. */
void check_fail(struct check *check, const char *what, uint64_t a, uint64_t b);
void check_free(struct check *check);

/* One-way messages: what the sender writes, and what the receiver found. connection: a number
 * of the receiver's own, never 0, that rises with every connection and with every start. */
void check_lost(struct check *check, unsigned from, unsigned to);
void check_received(struct check *check, unsigned from, unsigned to, enum load_kind kind,
                    uint64_t connection, const uint32_t epoch_and_number[2]);

/* Requests. */
uint32_t check_request(struct check *check, unsigned from, unsigned to, unsigned boot);
void check_handled(struct check *check, uint32_t id, unsigned from, unsigned at);
void check_completed(struct check *check, uint32_t id, enum shoal_err err, bool broken);
void check_canceled(struct check *check, uint32_t id);

/* The bytes of a message that carries key: written and held against what arrived. */
void pattern_write(uint8_t *at, size_t size, uint64_t key);
bool pattern_holds(struct sh_bytes bytes, uint64_t key);

#endif
