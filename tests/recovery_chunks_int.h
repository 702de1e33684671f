/* What the clients of world_recovery_test.c (recovery_clients_int.h) know of each chunk:
 *
 *   plain     one writer at a time; each write is remembered, so that what a read finds can be told
 *   counters  all clients add 1, at a level that counts: what was there before is told to one of them only
 *   words     all clients compare and put values that nobody else puts: each value is followed by one other, at most
 *
 * A write counts (is *firm*) at a level that the faults of the world can't undo. Loose chunks are written below it, and may be as of any write, or gone. */
#ifndef TESTS_RECOVERY_CHUNKS_INT_H
#define TESTS_RECOVERY_CHUNKS_INT_H

#include "base/hash.h"
#include "client/client.h"
#include "shoal/shoal.h"
#include "tests/replicas_world_int.h"

#define RC_CLIENTS_MAX 3
#define RC_SLOTS 16
#define RC_CHUNKS 400
#define RC_WRITES 32
#define RC_COUNTERS 8
#define RC_WORDS 8
#define RC_VALUES 4000 /* of a counter, and of a word */
#define RC_SIZE_MIN 24u
#define RC_SMALL_MAX 1500u
#define RC_STEPS 16
#define RC_TIMEOUT_NS (120 * S) /* longer than any recovery */
#define RC_DISKS 64
#define RC_REPORTED 512
#define RC_ABSENT (-1)
#define RC_ANEW (-2)

enum rc_op {
    RC_NONE,
    RC_CREATE,
    RC_PUT,
    RC_RESIZE,
    RC_REMOVE,
    RC_GET,
    RC_ADD,
    RC_WORD_GET,
    RC_WORD_PUT,
};

struct rc_write {
    enum rc_op op;
    enum shoal_level level;
    uint32_t size;
    uint64_t acked; /* moment; 0: nobody was told of it */
};

struct rc_chunk {
    shoal_cid cid;
    bool is_loose, is_over;
    unsigned writers; /* two, where a removal has given the ID away and has not been answered */
    unsigned count;
    bool may_be_lost; /* a zone of its node has no replica left */
    int seen;         /* a read has shown it so, at a level that counts */
    struct rc_write writes[RC_WRITES];
};

struct rc_counter {
    shoal_cid cid;
    uint64_t begun, added;
    bool is_told[RC_VALUES]; /* that value was there before somebody's addition */
};

/* A value is its place in `values`; 0: as it was created. */
struct rc_word {
    shoal_cid cid;
    unsigned count;
    struct {
        enum { RC_VALUE_BEGUN, RC_VALUE_PUT, RC_VALUE_NOT } state;
        bool is_followed;
    } values[RC_VALUES];
};

struct rc;
struct rc_client;

struct rc_slot {
    struct rc_client *client;
    enum rc_op op;
    enum shoal_level level;
    shoal_nid where;
    struct rc_chunk *chunk;
    struct rc_counter *counter;
    struct rc_word *word;
    unsigned write; /* of the chunk's */
    int least;
    uint64_t value, expected; /* of a counter or a word */
    uint32_t size;
    bool is_loose, is_done;
    uint64_t pause_until_ns, begun_ns;
    struct shoal_call call;
    uint8_t *bytes; /* RW_CHUNK_BYTES_MAX */
    uint8_t expected_bytes[16];
};

struct rc_client {
    struct rc *rc;
    unsigned node;
    struct sh_client_world outside;
    struct sh_options options;
    struct sh_step steps[RC_STEPS];
    unsigned step_count;
    shoal *store;
    struct sh_fiber *fiber; /* opens the cluster, and moves chunks */
    struct sh_waiter *waiter;
    uint64_t deadline_ns, jump_ns;
    bool is_operator; /* writes nothing */
    bool is_dying, is_open, is_in_fiber;
    struct rc_slot slots[RC_SLOTS];
};

struct rc {
    struct rw *rw;
    enum shoal_level firm; /* the lowest level that counts */
    bool is_still, moves;
    unsigned read_next, reads_left; /* all are read once */
    bool is_reading_all;
    struct rc_client clients[RC_CLIENTS_MAX + 1]; /* the last one is the operator's */
    unsigned client_count;
    unsigned large_one_in;
    struct rc_chunk *chunks; /* RC_CHUNKS */
    unsigned chunk_count;
    struct rc_counter *counters; /* RC_COUNTERS */
    unsigned counter_count;
    struct rc_word *words; /* RC_WORDS */
    unsigned word_count;
    uint8_t *scratch;
    uint64_t calls, refused, adds, words_put, words_not, large, resizes, removes, reads, moved,
        gone;
    uint64_t longest_ns;
    /* What an operator does: declares disks lost; lists the zones that are lost, whenever asked. */
    shoal_nid disks_lost[RC_DISKS];
    unsigned disks_lost_count, disks_declared;
    bool is_report_wanted;
    uint64_t reported[RC_REPORTED]; /* zones that the superpeers say are lost */
    unsigned reported_count;
    uint64_t told_lost;           /* reads that ended with ELOST, of chunks that may be */
    void (*where)(shoal_cid cid); /* says where a chunk is of which something is wrong */
};

static inline uint64_t rc_now(const struct rc_client *client)
{
    return sh_now(&sh_world_env(client->rc->rw->world, client->node)->clock) + client->jump_ns;
}

static inline bool rc_is_firm(const struct rc *rc, enum shoal_level level)
{
    return level >= rc->firm;
}

/* --- Contents ----------------------------------------------------------------------------------- */

static inline void rc_content_make(uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t write)
{
    uint64_t mixed = 0;
    sh_store64(bytes, cid.v);
    sh_store64(bytes + 8, write);
    for (uint32_t i = 16; i < size; i++) {
        if (i % 8 == 0)
            mixed = sh_mix64(cid.v + write * 1000003 + i);
        bytes[i] = (uint8_t)(mixed >> 8 * (i % 8));
    }
}

/* Whether these are the chunk's bytes after that write, of which `kept` bytes are left by resizes behind it. */
static inline bool rc_is_as_of(struct rc *rc, const struct rc_chunk *chunk, unsigned write,
                               uint32_t kept, const uint8_t *bytes, uint32_t size);

/* A resize keeps what it finds. That need not be what was acknowledged last: writes that do not count may have been lost before the resize was carried out, as it may wait for
 * a recovery. */
static inline bool rc_is_resized(struct rc *rc, const struct rc_chunk *chunk, unsigned write,
                                 uint32_t kept, const uint8_t *bytes, uint32_t size)
{
    for (unsigned found = write; found-- > 0;) {
        const struct rc_write *before = &chunk->writes[found];
        if (rc_is_as_of(rc, chunk, found, kept, bytes, size))
            return true;
        if ((before->acked && rc_is_firm(rc, before->level)) || before->op == RC_CREATE)
            return false;
    }
    return false;
}

static inline bool rc_is_as_of(struct rc *rc, const struct rc_chunk *chunk, unsigned write,
                               uint32_t kept, const uint8_t *bytes, uint32_t size)
{
    const struct rc_write *last = &chunk->writes[write];
    kept = last->size < kept ? last->size : kept;
    if (last->op == RC_RESIZE)
        return rc_is_resized(rc, chunk, write, kept, bytes, size);
    memset(rc->scratch, 0, size > last->size ? size : last->size);
    if (last->op == RC_PUT) {
        rc_content_make(rc->scratch, last->size, chunk->cid, write);
        memset(rc->scratch + kept, 0, last->size - kept);
    }
    return memcmp(rc->scratch, bytes, size) == 0;
}

static inline void rc_chunk_print(const struct rc_chunk *chunk)
{
    for (unsigned i = 0; i < chunk->count; i++)
        print_message("  write %u: kind %d at level %d, %u bytes, acked %" PRIu64 "\n", i,
                      (int)chunk->writes[i].op, (int)chunk->writes[i].level, chunk->writes[i].size,
                      chunk->writes[i].acked);
}

static inline int rc_state_of(struct rc *rc, const struct rc_chunk *chunk, const uint8_t *bytes,
                              uint32_t size)
{
    /* The ID of a chunk that is gone may have been given to another one, which has not been told of yet, and may have the size of a former one. */
    if (chunk->writes[chunk->count - 1].op == RC_REMOVE && size && !bytes[0] &&
        memcmp(bytes, bytes + 1, size - 1) == 0)
        return RC_ANEW;
    for (int i = (int)chunk->count - 1; i >= 0; i--) {
        if (chunk->writes[i].size != size || chunk->writes[i].op == RC_REMOVE)
            continue;
        if (rc_is_as_of(rc, chunk, (unsigned)i, size, bytes, size))
            return i;
    }
    if (chunk->is_loose)
        return RC_ANEW; /* any of its changes may have been undone */
    rc_chunk_print(chunk);
    RW_FAIL(rc->rw, "chunk %" PRIx64 " has %u bytes that nobody has written", chunk->cid.v, size);
    return RC_ANEW;
}

/* The last write that counts; RC_ABSENT: none does. */
static inline int rc_needed(const struct rc *rc, const struct rc_chunk *chunk)
{
    for (int i = (int)chunk->count - 1; i >= 0; i--) {
        if (i == chunk->seen || (chunk->writes[i].acked && rc_is_firm(rc, chunk->writes[i].level)))
            return i;
    }
    return RC_ABSENT;
}

/* Whether a chunk may be so of which that write counts. */
static inline bool rc_may_be(const struct rc_chunk *chunk, int state, int needed)
{
    if (state != RC_ABSENT)
        return state >= needed;
    if (needed == RC_ABSENT)
        return true;
    for (unsigned i = (unsigned)needed; i < chunk->count; i++) {
        if (chunk->writes[i].op == RC_REMOVE)
            return true;
    }
    return false;
}

#endif
