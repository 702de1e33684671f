/* Programs on libshoal in a simulated cluster: each is a client with several fibers, which call the
 * library's public functions one after the other. What they see is recorded and judged.
 *
 *   program -- shoal handle (the real one, on the world's clock, wire and steps)
 *        \---- fibers: two on chunks, two on names, two on barriers, one that watches the nodes,
 *                  one that lets superpeers and peers come and go, and chunks move, two on locks, one
 *                  on many chunks at once */
#ifndef SIM_CLUSTER_PROGRAMS_INT_H
#define SIM_CLUSTER_PROGRAMS_INT_H

#include "client/client.h"
#include "ring/arcs.h"
#include "shoal/names.h"
#include "sim/cluster_world_int.h"
#include "sim/fiber.h"
#include "sim/linear.h"

#define CW_FIBERS 11
#define CW_FIRST_LOCKER 8 /* this fiber and those behind it draw from numbers of their own */
#define CW_LOCKERS 2
#define CW_MULTI 10
#define CW_OWNERS (SH_CLUSTER_PROGRAMS_MAX * CW_LOCKERS) /* of locks */
#define CW_LIBRARY_STEPS 4
#define CW_NAMES 6
#define CW_WORDS 8 /* chunks that programs share */
#define CW_FORMER_WORDS 8
#define CW_BARRIERS 2 /* at a time */
#define CW_EVENTS 4096
#define CW_MEMBERS 256 /* of a barrier, in all rounds */
#define CW_BARRIER_ROUNDS 256

struct cw_fiber {
    struct cw_program *program;
    unsigned index;
    struct sh_fiber *fiber;
    struct sh_waiter *waiter; /* what it waits for; NULL: it runs, or has not begun */
    uint64_t deadline_ns;     /* by the program's clock */
    bool is_busy;             /* an operation is under way */
};

struct cw_program {
    struct cw_host *host;
    struct sh_prng prng, locks_prng, multi_prng;
    struct sh_client_world outside;
    struct sh_options options;
    shoal *store;
    bool is_open, is_dying;
    uint64_t jump_ns; /* a dying program's clock runs ahead, so that all it waits for is over */
    struct sh_step steps[CW_LIBRARY_STEPS];
    unsigned step_count;
    struct cw_fiber fibers[CW_FIBERS];
    struct cw_fiber *current;
    struct cw_replica *replica; /* the nodes, as its watch was told */
};

/* A register's history (sim/linear.h). */
struct cw_register {
    bool is_over; /* nothing more is recorded: what comes may be as it likes */
    unsigned count, pending;
    unsigned generation; /* how many histories it has had */
    struct linear_op ops[LINEAR_OPS_MAX];
    char text[40]; /* what it is, for people */
};

/* An operation that is being recorded. */
struct cw_recording {
    struct cw_register *of;
    unsigned at, generation;
};

/* How a call at a barrier ended; UNCLEAR: it may be signed on, or be taken for dead. */
enum cw_member_end { CW_WAITS, CW_RELEASED, CW_SIGNED_OFF, CW_UNCLEAR, CW_DIED };

struct cw_member {
    enum cw_member_end end;
    uint64_t begun_ns, ended_ns; /* in world time; 0: not yet */
    uint64_t id;                 /* the library's; 0: not known */
    uint64_t seen;               /* in which open round somebody saw it; 0: in none */
    uint64_t round;              /* that was over with it; 0: none is known */
};

/* What a member was told of a round. */
struct cw_round {
    uint64_t number, hash;
};

struct cw_barrier {
    bool is_there, survivors;
    bool is_freed;       /* or is being freed */
    bool is_empty;       /* as it was seen last, since cw_barriers_ask */
    unsigned generation; /* another one each time that the place is used anew */
    shoal_barrier id;
    unsigned size;
    unsigned count; /* calls so far */
    struct cw_member members[CW_MEMBERS];
    struct cw_round rounds[CW_BARRIER_ROUNDS];
};

/* A chunk that programs share. */
struct cw_word {
    bool is_there, is_removing;
    shoal_cid cid;
    uint64_t last; /* what was seen or written last: for conditions that often hold */
    struct cw_register history;
};

/* What a program was told of a node in an epoch. */
struct cw_event {
    uint64_t key, hash;
};

/* What is known of one owner's lock on one chunk. */
struct cw_hold {
    unsigned generation; /* of the chunk's history */
    unsigned node;       /* the owner's, in the world */
    shoal_cid cid;
    int mode; /* in which it surely holds it, an enum shoal_lock_mode; 0: in none */
    uint64_t until_ns, losses;  /* so long at least, and while no connection is lost */
    uint64_t may_until_ns;      /* so long it may hold it, or wait for it */
    uint64_t is_clear_since_ns; /* requests of which nobody knows what came of them are past then */
    uint64_t lease_ns;          /* the longest that it may have */
    uint64_t away_ns;           /* the programs' away_ns, from when on it may have been granted */
    uint64_t asked_ns, granted_ns; /* of the last call that gave it the lock */
};

struct cw_programs {
    uint64_t tick, values; /* the last ones */
    uint64_t barriers_begun,
        barriers_freed; /* calls that may have created one, and that did free one */
    struct cw_register names[CW_NAMES];
    uint64_t name_values[CW_NAMES];   /* what was given last: for conditions that often hold */
    bool is_name_read[CW_NAMES];      /* since cw_names_ask */
    uint64_t incarnations[SH_SHARDS]; /* of the metadata's shards; 0: not seen yet */
    struct cw_barrier barriers[CW_BARRIERS];
    struct cw_word words[CW_WORDS];
    /* By place. Behind the places: the last state of a lock on a chunk whose place another chunk has taken. */
    struct cw_hold holds[CW_WORDS + CW_FORMER_WORDS][CW_OWNERS];
    unsigned former_holds; /* how many there were */
    /* How long, in all, some chunk with locks was on its way: no node served it for writing. */
    uint64_t away_ns, away_watched_ns;
    bool is_away;
    struct cw_event events[CW_EVENTS]; /* the last ones, by epoch */
};

static inline uint64_t cw_draw(struct cw_fiber *fiber, uint64_t limit)
{
    struct cw_program *program = fiber->program;
    struct sh_prng *prng = fiber->index == CW_MULTI          ? &program->multi_prng
                           : fiber->index >= CW_FIRST_LOCKER ? &program->locks_prng
                                                             : &program->prng;
    return sh_prng_below(prng, limit);
}

static inline struct cw_world *cw_world_of(const struct cw_fiber *fiber)
{
    return fiber->program->host->world;
}

/* --- cluster_programs.c ------------------------------------------------------------------------
 */

/* The program's clock. */
uint64_t cw_program_now(const struct cw_program *program);
/* In a fiber. */
void cw_fiber_sleep(struct cw_fiber *fiber, uint64_t ns);
/* Adds a line to the story, and its text to the trace. */
void cw_say(struct cw_world *world, unsigned node, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- cluster_history.c -------------------------------------------------------------------------
 */

/* Begins a history, of what `text` says; the one before is judged if it was not. */
void cw_register_begin(struct cw_world *world, struct cw_register *of, const char *text);
/* Whether there is room for another operation, and not too much is unclear. */
bool cw_register_has_room(const struct cw_register *of);
/* Judges it, if that was not done: from then on nothing is recorded. */
void cw_register_end(struct cw_world *world, struct cw_register *of);
/* Judges what there is so far. */
void cw_register_check(struct cw_world *world, struct cw_register *of);

/* Records the beginning of an operation: its kind and what it was given. */
struct cw_recording cw_record(struct cw_world *world, struct cw_register *of,
                              const struct linear_op *op);
/* Its end: what it said. */
void cw_record_end(struct cw_world *world, const struct cw_recording *recording,
                   enum linear_result result, uint64_t got);
/* It certainly did nothing, or said nothing. */
void cw_record_drop(const struct cw_recording *recording);

/* --- cluster_names.c ---------------------------------------------------------------------------
 */

void cw_names_do(struct cw_fiber *fiber);
/* From now on each name is to be read once more; reads one of them; whether all were. */
void cw_names_ask(struct cw_world *world);
void cw_names_look(struct cw_fiber *fiber);
bool cw_names_are_read(const struct cw_world *world);
/* Shards that superpeers have lost. */
void cw_shards_watch(struct cw_world *world);
void cw_names_check(struct cw_world *world);

/* --- cluster_words.c ---------------------------------------------------------------------------
 */

void cw_words_do(struct cw_fiber *fiber);
/* A call on one of them has ended: records what it said. */
void cw_word_ended(struct cw_world *world, struct cw_word *word,
                   const struct cw_recording *recording, const struct linear_op *op,
                   enum shoal_err err, uint64_t got);
/* Has one of them moved to another peer. */
void cw_words_move(struct cw_fiber *fiber);
/* What is not as it should be in the end; NULL: all is. */
const char *cw_words_wait(struct cw_world *world);
void cw_words_check(struct cw_world *world);

/* --- cluster_events.c --------------------------------------------------------------------------
 */

void cw_replica_open(struct cw_program *program);
void cw_replica_close(struct cw_program *program);
/* Until the program dies. */
void cw_events_follow(struct cw_fiber *fiber);
/* As cw_words_wait. */
const char *cw_events_wait(struct cw_world *world);

/* --- cluster_spares.c --------------------------------------------------------------------------
 */

/* Lets a superpeer or a peer come or go, or has a chunk moved. */
void cw_operate(struct cw_fiber *fiber);

/* --- cluster_drains.c --------------------------------------------------------------------------
 */

/* Has a peer drained, and stopped if that succeeds. */
void cw_drain_something(struct cw_fiber *fiber);

/* --- cluster_multi.c ---------------------------------------------------------------------------
 */

void cw_multi_do(struct cw_fiber *fiber);

/* --- cluster_locks.c ---------------------------------------------------------------------------
 */

void cw_locks_do(struct cw_fiber *fiber);
/* Looks whether chunks with locks are on their way. */
void cw_locks_watch(struct cw_world *world);

/* --- cluster_barriers.c ------------------------------------------------------------------------
 */

void cw_barriers_do(struct cw_fiber *fiber);
/* Looks at those of which it is not known that nobody waits there. */
void cw_barriers_look(struct cw_fiber *fiber);
/* From now on somebody is to look. */
void cw_barriers_ask(struct cw_world *world);
/* Nobody is seen to wait at any: what died is gone, too. */
bool cw_barriers_are_empty(struct cw_world *world);
#endif
