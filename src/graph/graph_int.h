/* A peer's state, owned by its one step. The pieces: graph.c takes messages in and runs the step;
 * serve.c answers questions; stage.c takes a load in; seal.c and link.c carry it out; outcome.c
 * ends it without its coordinator; publish.c writes the manifest; scan.c follows the chunks; runs.c begins and ends
 * traversals, and expand.c does them; ask.c asks other peers. */
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
    SH_LOAD_CREATE_MANIFEST,
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
 * once, so that a level is a stretch of it. It goes by what was where when it began: if a vertex comes or leaves
 * meanwhile it ends, and its coordinator begins another. */
struct sh_bfs_run {
    uint64_t id;
    shoal_nid coordinator;
    const struct sh_part *part; /* the live one */
    shoal_nid self;
    bool is_nameless; /* the store has own chunks under their local IDs */
    bool is_disturbed;
    /* The coordinator's: the peers that take part, and what they have, by chunk ID. */
    uint32_t peer_count, rank;
    shoal_nid *peers;
    struct sh_route *routes;
    uint32_t route_count, route_room;
    bool is_routed;
    uint32_t own_hint, route_hint;
    bool undirected;
    uint64_t heard_ns;
    uint32_t vertices; /* here, as it began */
    uint64_t level;    /* that queue[head..level_end) belongs to */
    uint32_t *queue;
    uint32_t head, level_end, tail;
    uint64_t *visited;
    uint32_t out_at, in_at; /* where the expansion of queue[head] goes on */
    struct sh_ids *remote;  /* for each peer: chunk IDs to be visited there */
    uint32_t remote_at;     /* the peer whose IDs are sent next */
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

/* Chunks that are here now, to be looked at for vertices (scan.c). */
#define SH_SCAN_RANGES_MAX 4096 /* more than come with all batches of a few sources: 64 KiB */
struct sh_scan {
    struct sh_scan_range {
        sh_lid first, last;
    } ranges[SH_SCAN_RANGES_MAX];
    unsigned at,
        count; /* ranges[at] is being looked at, from its first on; and those behind it are still to be */
    bool is_long;    /* of more than what moves at a time */
    uint64_t looked; /* chunks, since there was nothing to look at */
};

/* Graphs whose vertices were removed here last; others of theirs may still be on their way. */
#define SH_GRAPH_BURIED_MAX 8

/* The graph's manifest is being written; and END waits for that. */
struct sh_publishing {
    struct sh_part *part; /* NULL: none is */
    uint8_t *bytes;
    size_t size;
    struct sh_store_rewriting *rewriting;
    struct sh_write write;
    bool is_waiting; /* for the log: keeps `write` */
    bool reply_wanted;
    struct sh_reply_to reply_to;
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
    struct sh_part
        *former; /* parts that a scan has found, of graphs that were before the live one */
    struct sh_load *load;
    struct sh_scan scan;
    struct sh_publishing publishing;
    uint64_t hold_ns; /* until then no chunks are to leave: a traversal is about to begin again */
    uint64_t turn_ns; /* until then chunks move, and no traversal begins */
    bool has_held;    /* chunks that were to leave have waited for traversals */
    struct sh_part *dying;                /* parts whose chunks are being removed */
    uint64_t buried[SH_GRAPH_BURIED_MAX]; /* 0: none */
    unsigned buried_next;
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

/* --- publish.c -------------------------------------------------------------------------------- */

/* Makes the chunk of a draft's manifest. False: again later, or the load has failed. */
bool sh_publish_create(struct sh_graph *graph, struct sh_load *load);
/* The live part has its manifest from now on. to: who waits for that; NULL: nobody. */
void sh_publish_begin(struct sh_graph *graph, struct sh_part *part, const struct sh_reply_to *to);
/* END once more. */
bool sh_publish_join(struct sh_graph *graph, const struct sh_reply_to *to);
unsigned sh_publish_work(struct sh_graph *graph);
/* The graph goes away, and nobody is told anything. */
void sh_publish_abandon(struct sh_graph *graph);
/* The part goes away. */
void sh_publish_end(struct sh_graph *graph, const struct sh_part *part);

/* --- scan.c ----------------------------------------------------------------------------------- */

/* Whether it is not known yet which vertices are here. */
bool sh_scan_is_on(const struct sh_graph *graph);
/* The same, for long: not only of what has just moved. */
bool sh_scan_is_long(const struct sh_graph *graph);
unsigned sh_scan_work(struct sh_graph *graph);
/* There is a graph of which nothing is known here: its vertices are looked for. ENOMEM; ENONAME: it is older than the live one. */
SHOAL_NODISCARD enum shoal_err sh_scan_learn(struct sh_graph *graph, uint64_t graph_id,
                                             uint64_t generation);
/* All parts but the live one go. */
void sh_scan_bury_former(struct sh_graph *graph);

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
/* Ends a prepared load: its graph takes the place of the live one. to: who is answered once its manifest is written; NULL: nobody. */
void sh_load_go_live(struct sh_graph *graph, const struct sh_reply_to *to);
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

/* --- runs.c ---------------------------------------------------------------------------------- */

void sh_graph_on_bfs_begin(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_level(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_extents(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_routes(struct sh_graph *graph, const struct sh_graph_item *item);
void sh_graph_on_bfs_end(struct sh_graph *graph, const struct sh_graph_item *item);
struct sh_bfs_run *sh_bfs_find(const struct sh_graph *graph, uint64_t id);
void sh_bfs_end(struct sh_graph *graph, struct sh_bfs_run *run);
/* Marks a vertex and queues it; true when it had not been reached yet. */
bool sh_bfs_reach(struct sh_bfs_run *run, uint32_t index);
/* Goes to the next level: all peers have completed the last one. */
void sh_bfs_enter_level(struct sh_bfs_run *run);
bool sh_bfs_level_complete(const struct sh_bfs_run *run);
/* Vertices of the part came or left: whatever goes by what was before ends. */
void sh_bfs_disturb(struct sh_graph *graph, const struct sh_part *part);
/* Ends the runs over a part that goes away (all runs: NULL). */
void sh_bfs_end_all(struct sh_graph *graph, const struct sh_part *part);
unsigned sh_bfs_count(const struct sh_graph *graph);
uint64_t sh_bfs_due_ns(const struct sh_graph *graph);

/* --- expand.c ------------------------------------------------------------------------------- */

void sh_graph_on_bfs_visit(struct sh_graph *graph, const struct sh_graph_item *item);
unsigned sh_bfs_work(struct sh_graph *graph);
void sh_bfs_answered(struct sh_graph *graph, struct sh_graph_ask *ask);

#endif
