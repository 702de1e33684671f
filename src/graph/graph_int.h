/* A peer's state, owned by its one step. The pieces: graph.c takes messages in and runs the step;
 * serve.c answers questions; stage.c takes a load in; seal.c and link.c carry it out; outcome.c
 * ends it without its coordinator; expand.c traverses; ask.c asks other peers. */
#ifndef SH_GRAPH_GRAPH_INT_H
#define SH_GRAPH_GRAPH_INT_H

#include <stdatomic.h>

#include "base/queue.h"
#include "graph/graph.h"
#include "graph/part_int.h"
#include "graph/sort_int.h"
#include "graph/wire_int.h"

/* Entries, vertices or neighbours that a step handles at most; and how many of these it handles between
 * two looks at the time (sh_step_spent), which ends most steps before. */
#define SH_GRAPH_WORK 16384
#define SH_GRAPH_PIECE 1024
#define SH_GRAPH_TEXT_MAX 200

/* A message in the inbox. */
struct sh_graph_item {
    sh_msg_type type;
    struct sh_reply_to reply_to;
    size_t size;
    uint8_t bytes[];
};

/* A request to another peer. Its answer comes back through the ring `answers` to the load or run
 * that it names, or to nobody if that is over. */
struct sh_graph_ask {
    struct sh_request request;
    struct sh_graph *graph;
    uint64_t owner_id;
    sh_msg_type type;
    uint32_t rank; /* whom it goes to */
    enum shoal_err err;
    uint64_t unknown_since_ns; /* when it could first not be sent to an unknown peer; 0: never */
    uint8_t *answer;           /* a copy; after an error its text, if there was one */
    size_t answer_size;
    uint32_t count;
    uint64_t *places; /* RESOLVE: where in `uses` each name's uses begin */
    uint64_t ids[];   /* RESOLVE, VISIT: room for SH_GRAPH_BATCH_IDS */
};

enum sh_load_phase {
    SH_LOAD_STAGING, /* waits for batches and then for the goal SEAL */
    SH_LOAD_SORT_OUT,
    SH_LOAD_SORT_IN,
    SH_LOAD_SORT_RECORDS,
    SH_LOAD_CREATE,
    SH_LOAD_SEALED, /* waits for the goal LINK; answers RESOLVE from here on */
    SH_LOAD_USES_OUT,
    SH_LOAD_SORT_USES_OUT,
    SH_LOAD_RESOLVE_OUT,
    SH_LOAD_RESORT_OUT,
    SH_LOAD_USES_IN,
    SH_LOAD_SORT_USES_IN,
    SH_LOAD_RESOLVE_IN,
    SH_LOAD_RESORT_IN,
    SH_LOAD_FILL,
    SH_LOAD_LINKED,   /* waits for the goal PREPARE */
    SH_LOAD_PREPARED, /* waits for END; if none comes, asks the other peers: outcome.c */
    SH_LOAD_FAILED,   /* err and text say why; waits for ABORT */
    SH_LOAD_PHASES
};

/* A load under way. Peak memory: an edge is an entry of 24 bytes at its source's peer and another
 * at its target's, up to 96 together since arrays grow by doubling; resolving one side adds up to
 * 48 for its uses and 24 to sort them. So at most 168 bytes an edge over all peers, 72 a record,
 * and the records' texts. */
struct sh_load {
    uint64_t id;
    shoal_nid coordinator;
    bool replace;
    enum sh_load_phase phase;
    uint64_t heard_ns;    /* when the coordinator was last heard */
    struct sh_part *part; /* under construction */
    struct sh_entries out, in, records;
    uint8_t *text;
    size_t text_size, text_room;
    struct sh_sorter sorter;
    size_t at;                       /* cursor of the phase */
    size_t out_at, in_at, record_at; /* cursors of CREATE and FILL */
    struct sh_entries uses;          /* (neighbour's name, place of the entry) of one side */
    struct sh_graph_ask **filling;   /* a batch for each peer, NULL when empty */
    unsigned asks;                   /* requests in flight */
    uint64_t asked_ns;               /* PREPARED: when the others were last asked */
    uint32_t prepared;               /* and how many answered that they are prepared too */
    uint8_t *chunk;                  /* FILL: a chunk being encoded */
    size_t chunk_room;
    size_t chunk_size; /* of the encoded vertex that is not written yet; 0: there is none */
    struct sh_store_rewriting *rewriting; /* of one that is logged in pieces; NULL: there is none */
    bool waiting;                         /* somebody waits for a goal */
    struct sh_reply_to reply_to;
    uint64_t reply_ns; /* when to answer at the latest */
    enum shoal_err err;
    char why[SH_GRAPH_TEXT_MAX];
};

struct sh_ids {
    uint64_t *at;
    size_t count, room;
};

/* A traversal. 4 bytes a vertex for the queue and 1 bit for visited. Each vertex enters the queue
 * once, so that a level is a stretch of it. */
struct sh_bfs_run {
    uint64_t id;
    shoal_nid coordinator;
    const struct sh_part *part; /* the live one */
    bool undirected;
    uint64_t heard_ns;
    uint64_t level; /* that queue[head..level_end) belongs to */
    uint32_t *queue;
    uint32_t head, level_end, tail;
    uint64_t *visited;
    uint32_t out_at, in_at; /* where the expansion of queue[head] goes on */
    struct sh_ids *remote;  /* for each peer: local IDs to be visited there */
    uint32_t last_rank;
    uint32_t remote_at; /* the peer whose IDs are sent next */
    unsigned asks;
    bool expanding;
    uint64_t found; /* for the next level: here, and by what others answered */
    uint64_t edges;
    bool waiting;
    struct sh_reply_to reply_to;
    uint64_t reply_ns;
    enum shoal_err err;
    char why[SH_GRAPH_TEXT_MAX];
};

struct sh_graph {
    struct sh_graph_config config;
    struct sh_queue *inbox;   /* struct sh_graph_item, from handlers */
    struct sh_queue *answers; /* struct sh_graph_ask, from completions */
    _Atomic uint64_t inbox_bytes;
    unsigned asks;   /* in flight, over all */
    bool blocked;    /* a send had to be put off: try again soon */
    uint64_t now_ns; /* at the start of the round */
    /* The kind of work, and the traversal, that the next round begins with: those behind the last
     * ones that a round had the time for. */
    unsigned work_first, run_first;
    struct sh_part *live;
    struct sh_load *load;
    struct sh_part *dying; /* parts whose chunks are being removed */
    struct sh_unmaps unmaps;
    struct sh_bfs_run *runs[SH_GRAPH_RUNS_MAX];
};

/* --- ask.c ---------------------------------------------------------------------------------- */

/* A new ask without IDs; NULL: no memory. */
struct sh_graph_ask *sh_graph_ask_new(struct sh_graph *graph, sh_msg_type type, uint64_t owner_id,
                                      uint32_t rank);
/* Sends it: its header (owner_id, and for VISIT the level) and IDs; takes it on success. EAGAIN:
 * try again in a later round (graph->blocked is set). */
SHOAL_NODISCARD enum shoal_err sh_graph_ask_send(struct sh_graph *graph, struct sh_graph_ask *ask,
                                                 shoal_nid to, uint64_t level);
void sh_graph_ask_free(struct sh_graph_ask *ask);

/* --- serve.c -------------------------------------------------------------------------------- */

void sh_graph_reply_error(struct sh_graph *graph, const struct sh_graph_item *item,
                          enum shoal_err err, const char *text);
void sh_graph_reply_ok(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_status(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_lookup(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_drop(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_types_get(struct sh_graph *graph, const struct sh_graph_item *item);
/* Has the part's chunks removed, round by round. */
void sh_graph_bury(struct sh_graph *graph, struct sh_part *part);

/* --- stage.c; sh_graph_on_resolve and sh_load_answered are link.c's ----------------------------
 */

void sh_graph_on_begin(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_edges(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_records(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_types(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_advance(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_end(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_abort(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_resolve(struct sh_graph *graph, const struct sh_graph_item *item);
/* Works on the load; returns how much was done. */
unsigned sh_load_work(struct sh_graph *graph);
/* Fails the load: frees what was staged, buries its part, keeps the reason. */
void sh_load_fail(struct sh_graph *graph, enum shoal_err err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Ends a prepared load: its graph takes the place of the live one. */
void sh_load_go_live(struct sh_graph *graph);
void sh_load_free(struct sh_load *load);
uint64_t sh_load_bytes(const struct sh_load *load);
void sh_load_answered(struct sh_graph *graph, struct sh_graph_ask *ask);
/* When the load has to be looked at again if nothing comes. */
uint64_t sh_load_due_ns(const struct sh_graph *graph);

/* --- outcome.c ------------------------------------------------------------------------------ */

void sh_graph_on_outcome(struct sh_graph *graph, const struct sh_graph_item *item);
/* When a prepared load is to ask the other peers next. */
uint64_t sh_outcome_due_ns(const struct sh_graph *graph, const struct sh_load *load);
/* Both may end the load. */
void sh_outcome_ask(struct sh_graph *graph, struct sh_load *load);
void sh_outcome_answered(struct sh_graph *graph, const struct sh_graph_ask *ask);

/* --- seal.c, link.c -------------------------------------------------------------------------- */

/* The phases: each does a bounded piece and returns true when it is complete. */
bool sh_seal_sort(struct sh_graph *graph, struct sh_load *load, struct sh_entries *entries,
                  enum sh_sort_key key);
bool sh_seal_create(struct sh_graph *graph, struct sh_load *load);
bool sh_link_uses(struct sh_graph *graph, struct sh_load *load, const struct sh_entries *entries);
bool sh_link_resolve(struct sh_graph *graph, struct sh_load *load, struct sh_entries *entries);
bool sh_link_fill(struct sh_graph *graph, struct sh_load *load);

/* --- expand.c ------------------------------------------------------------------------------- */

void sh_graph_on_bfs_begin(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_level(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_visit(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_end(struct sh_graph *graph, const struct sh_graph_item *item);
unsigned sh_bfs_work(struct sh_graph *graph);
void sh_bfs_answered(struct sh_graph *graph, struct sh_graph_ask *ask);
/* Ends the runs over a part that goes away (all runs: NULL). */
void sh_bfs_end_all(struct sh_graph *graph, const struct sh_part *part);
unsigned sh_bfs_count(const struct sh_graph *graph);
uint64_t sh_bfs_due_ns(const struct sh_graph *graph);

#endif
