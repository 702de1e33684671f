/* What the parts of the simulated cluster know of each other. */
#ifndef SIM_CLUSTER_WORLD_INT_H
#define SIM_CLUSTER_WORLD_INT_H

#include <inttypes.h>

#include "cluster/directory.h"
#include "cluster/member.h"
#include "msg/once.h"
#include "node/chunks.h"
#include "node/holdings.h"
#include "node/locks.h"
#include "node/moves.h"
#include "ring/arcs.h"
#include "sim/cluster_world.h"
#include "sim/world.h"
#include "sim/zookeeper_model.h"
#include "superpeer/superpeer.h"

#define CW_MS UINT64_C(1000000)
#define CW_S UINT64_C(1000000000)
#define CW_FAILURE_NS CW_S
#define CW_FORGET_NS (3 * CW_S)
#define CW_SLOTS 3
#define CW_CHUNKS 128
#define CW_CHUNK_BYTES_MAX 40000
#define CW_EPOCHS 65536
#define CW_NUMBERS 128
#define CW_LIVES 16
/* Programs' chunks; those of the other clients are bigger, so that one is told from the other. */
#define CW_WORD_BYTES 8
/* In all that programs write into chunks, but for what they add. */
#define CW_WORD_MARK (UINT64_C(1) << 62)
#define CW_ROUNDS_MAX 8
/* Each time a part of the chunks and shards is looked at, and each of them every so many times. */
#define CW_WATCH_PARTS 4
/* And a client for the check after each round. */
#define CW_HOSTS_MAX                                                                               \
    (SH_CLUSTER_SUPERPEERS_MAX + SH_CLUSTER_PEERS_MAX + SH_CLUSTER_CLIENTS_MAX +                   \
     SH_CLUSTER_PROGRAMS_MAX + SH_CLUSTER_SPARES_MAX + CW_ROUNDS_MAX)
/* A client does not repeat a removal for longer: a server may have forgotten that it did it. */
#define CW_REPEAT_NS (50 * CW_S)

_Static_assert(CW_HOSTS_MAX <= SH_WORLD_MASKED_MAX, "a mask of nodes has a bit for each");

enum cw_kind { CW_SUPERPEER, CW_PEER, CW_CLIENT, CW_PROGRAM, CW_SPARE };
enum cw_op { CW_NONE, CW_CREATE, CW_PUT, CW_GET, CW_REMOVE, CW_LOCK, CW_UNLOCK };

struct sh_chaos;
struct cw_process;
struct cw_zones;
struct cw_zone_peer;
struct cw_program;
struct cw_programs;
struct cw_world;
struct cw_host;

/* What is known of a chunk from outside. */
struct cw_chunk {
    enum { CW_FREE, CW_LIVE, CW_GONE } state; /* GONE: its removal was acknowledged */
    shoal_cid cid;
    uint32_t size;
    uint64_t generation;         /* another one each time that the place is used anew */
    uint64_t acked, begun, seen; /* values: acknowledged, perhaps written, read by anybody */
    bool is_removing;            /* a removal was begun */
    /* The life of the node is over that served it; or of one that had a copy while it was moving, and nobody has
     * served it since. */
    bool is_lost;
    bool has_writer;
    unsigned writer, writer_slot; /* a client's index and which of its slots */
    /* Who may think that he has the write lock, and until when at the earliest he stops. */
    uint64_t lock_until_ns; /* world time */
    const struct cw_slot *lock_owner;
    uint64_t lock_losses; /* of its owner's connections, when it was asked for */
};

/* One operation after the other of a client. */
struct cw_slot {
    struct cw_host *host;
    unsigned index;
    enum cw_op op;
    bool is_unclear, is_asking_outcome;
    unsigned chunk; /* which one; not of a create */
    uint64_t generation;
    uint64_t value, least; /* a put's; what a get must see */
    bool was_gone;         /* a get: the removal had been acknowledged before */
    uint32_t size;         /* a create's */
    uint64_t deaths;       /* of peers, before it was begun */
    uint64_t begun_ns;     /* by the client's clock */
    uint64_t asked_ns;     /* when the last request went out, by the world's */
    shoal_nid asked_nid;   /* to whom */
    uint64_t pause_until_ns;
    uint64_t number;
    shoal_nid number_nid;
    uint64_t lease_ns, sent_ns, token; /* a lock's */
    uint64_t sent_losses;              /* of the host's connections, when it was asked for */
    uint64_t held_until_ns;            /* by the client's clock: it unlocks before */
    enum shoal_err err;                /* of the last attempt */
    struct sh_request request;
    struct sh_locate locate;
};

struct cw_host {
    struct cw_world *world;
    unsigned node;
    enum cw_kind kind;
    uint16_t index;
    bool is_dropping;   /* a client's */
    uint64_t epoch;     /* the last that it was told */
    uint64_t instance;  /* a peer's */
    bool is_drained;    /* a peer's: since it began, also if that is still under way */
    bool is_empty;      /* a peer's: it was drained, and stops */
    uint64_t paused_ns; /* a superpeer's: when it was last seen paused, by the world's time */
    struct {            /* a superpeer's: a bit of its journal that went bad */
        bool is_there;
        unsigned slot;
        uint64_t bit;
    } flip;
    struct cw_process *process; /* a peer's or superpeer's; NULL: it does not run */
    struct sh_msg *msg;
    /* A superpeer's, or those of the superpeer beside a peer; NULL: it is none. */
    struct sh_superpeer *superpeer;
    struct sh_msg *superpeer_msg;
    uint64_t inner_epoch; /* the last that the one beside a peer was told */
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_identity *identity; /* a peer's */
    uint64_t ids_base;            /* up to this local ID its former lives may have created */
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    struct sh_locks *locks;
    struct sh_moves *moves;
    /* A client's. */
    uint64_t client;
    struct cw_slot slots[CW_SLOTS];
    struct sh_once_numbers *numbers; /* CW_NUMBERS of them */
    struct sh_directory_op refresh;
    bool is_refreshing;
    uint64_t bootstrap_ns; /* it asks for the cluster again then, if it does not know it */
    struct sh_request move;
    bool is_moving;
    uint64_t move_after_ns;
    struct cw_program *program; /* a program's */
    struct cw_zone_peer *zones; /* a peer's; NULL: it does not run, or the world has none */
    uint64_t boots;             /* how often its process has begun */
    bool is_wanted;             /* a spare superpeer's: it is to come, or has */
};

/* When something was seen last, by the world's time (cluster_available.c). */
struct cw_available {
    uint64_t looked_ns, led_ns;
    uint64_t superpeer_ns[CW_HOSTS_MAX]; /* a host was not a superpeer that is well */
    uint64_t peer_ns[CW_HOSTS_MAX];      /* a host was not a peer that is well */
    uint64_t leased_ns[CW_HOSTS_MAX];    /* a peer had a lease */
    uint64_t parted_ns[CW_HOSTS_MAX][CW_HOSTS_MAX];
    uint64_t answered_ns[SH_SHARDS]; /* a superpeer answered for a shard */
    uint64_t members;                /* the IDs of the superpeers that there are to be */
    uint64_t changed_ns;             /* they were others before */
    uint64_t whole, gone; /* the superpeers when all were well, and which of them were not since */
    uint64_t gone_ns;     /* the first of them */
};

struct cw_world {
    struct sh_cluster_world_config config;
    struct sh_cluster_world_result *result;
    struct sh_world *sim;
    struct sh_prng *prng;
    struct sh_zookeeper_model *zookeeper; /* NULL: the superpeers agree by Raft */
    struct cw_host hosts[CW_HOSTS_MAX];
    unsigned count;
    char addresses[SH_CLUSTER_SUPERPEERS_MAX][SH_MSG_ADDRESS_MAX];
    const char *superpeers[SH_CLUSTER_SUPERPEERS_MAX];
    struct cw_chunk chunks[CW_CHUNKS];
    uint64_t generations, tokens;
    uint64_t deaths;           /* how often a peer has died or stopped with chunks */
    uint64_t views[CW_EPOCHS]; /* by epoch: a hash of the view, 0: not seen */
    /* By node ID: when its last life was declared failed; 0: it was not, or the next one is up. */
    uint64_t failed_ns[CW_NUMBERS];
    uint64_t declared_epoch;             /* of the view that says so */
    uint64_t over[CW_NUMBERS][CW_LIVES]; /* lives that were seen not to be up, the last ones */
    unsigned over_count[CW_NUMBERS];
    uint64_t watched_ns;
    unsigned watched_part;
    bool ends;                 /* clients begin nothing */
    unsigned drains, draining; /* begun so far, and under way */
    unsigned mortals;          /* the first peers, which may die */
    uint64_t bad_disk_mask;    /* whose disks may fail or be full in this round */
    unsigned clients_added;
    struct cw_host *end_client; /* the one that looks at everything in the end; NULL: not now */
    unsigned end_next;          /* what it does next: a chunk's index twice, read and write */
    struct cw_available available;
    struct sh_chaos *chaos[CW_ROUNDS_MAX];
    unsigned chaos_count;
    struct cw_programs *programs; /* what they all did */
    struct cw_zones *zones;       /* what is known of them; NULL: there are none in this world */
    uint8_t *scratch;             /* CW_CHUNK_BYTES_MAX bytes */
};

static inline uint64_t cw_below(struct cw_world *world, uint64_t limit)
{
    return sh_prng_below(world->prng, limit);
}

static inline uint64_t cw_now(const struct cw_host *host)
{
    return sh_now(&sh_world_env(host->world->sim, host->node)->clock);
}

/* Whether a peer runs, and is a member. */
static inline bool cw_is_joined(const struct cw_host *host)
{
    return host->member && sh_member_joined(host->member);
}

/* Whether it is a peer that may be made a superpeer too. */
static inline bool cw_may_promote(const struct cw_host *host)
{
    return host->kind == CW_PEER && host->world->config.spares && !host->world->zookeeper;
}

static inline struct cw_host *cw_peer(struct cw_world *world, unsigned index)
{
    return &world->hosts[world->config.superpeers + index];
}

/* --- cluster_hosts.c ---------------------------------------------------------------------------
 */

struct cw_host *cw_host_add(struct cw_world *world, enum cw_kind kind, uint16_t index);
void cw_host_drop(struct cw_host *host);
/* A client ends for good. */
void cw_host_leave(struct cw_host *host);
/* A peer's life has begun, with its process or in it. */
void cw_host_lives(struct cw_host *host);
/* Its process has stopped in order, or its life has: before its objects go. And its process has, after that. */
void cw_host_stops(struct cw_host *host);
void cw_host_stopped(struct cw_host *host, enum shoal_err err);
/* Whether its disk holds a superpeer. */
bool cw_host_has_superpeer(const struct cw_host *host);
/* A program wants it to be a superpeer. */
void cw_spare_want(struct cw_host *host);

/* --- cluster_process.c: peers and superpeers, by the node's own code ---------------------------
 */

/* As sh_node_create and sh_node_start; detail: 256 bytes. */
SHOAL_NODISCARD enum shoal_err cw_process_start(struct cw_host *host, char *detail);
/* Whether these are the traits that a peer's process was given, which runs. */
bool cw_has_traits(const struct cw_host *host, const struct sh_traits *traits);
/* Asks it to stop in order, as SIGTERM does. */
void cw_process_stop(struct cw_host *host);
/* It has crashed, or the world ends: frees it. NULL is allowed. */
void cw_process_drop(struct cw_host *host);

/* --- cluster_load.c: what clients do -----------------------------------------------------------
 */

void cw_client_boot(struct cw_host *host);
/* Its operations are over, and nobody knows how they ended. Before its objects go. */
void cw_client_crash(struct cw_host *host);
/* An attempt failed: looks the chunk's node up anew, and tries again in a moment. */
void cw_slot_again(struct cw_slot *slot, enum shoal_err err);
void cw_slot_over(struct cw_slot *slot);

/* cluster_ops.c: one operation: its request and its answer. */
bool cw_place_find(struct cw_world *world, unsigned *place_out);
bool cw_slot_begin(struct cw_slot *slot);
void cw_slot_begin_at(struct cw_slot *slot, enum cw_op op, unsigned chunk);
/* False: there is no node to ask now. */
bool cw_slot_target(struct cw_slot *slot, shoal_nid *nid_out);
void cw_slot_send(struct cw_slot *slot, shoal_nid nid);
/* Its chunk is not there. */
void cw_slot_absent(struct cw_slot *slot, enum shoal_err err);
struct sh_once_numbers *cw_numbers_of(struct cw_host *host, shoal_nid nid);
void cw_number_finish(struct cw_slot *slot);
void cw_move_something(struct cw_host *client);

/* --- cluster_programs.c: programs on libshoal --------------------------------------------------
 */

void cw_programs_open(struct cw_world *world);
void cw_programs_close(struct cw_world *world);
void cw_program_boot(struct cw_host *host);
/* It dies, or the world ends. Nothing: it is no program, or does not run. */
void cw_program_drop(struct cw_host *host);
/* They are to end what they do; perhaps one dies as the last thing that goes wrong. */
void cw_programs_end(struct cw_world *world);
/* What is not as it should be then; NULL: all is. */
const char *cw_programs_wait(struct cw_world *world);
/* How many barriers there may be at most. */
uint64_t cw_barriers_most(const struct cw_world *world);
/* A program dies: what it has locked, nobody knows. */
void cw_locks_dropped(struct cw_host *host);
/* A peer dies: what it had of theirs. Before its objects go. */
void cw_words_lost(struct cw_host *host);
/* For cw_watch and cw_check_end. */
void cw_programs_watch(struct cw_world *world);
void cw_programs_check(struct cw_world *world);

/* --- cluster_zones.c: peers that make zones and change them ------------------------------------
 */

void cw_zones_open(struct cw_world *world);
void cw_zones_close(struct cw_world *world);
/* A peer's process has begun. */
void cw_zones_step_add(struct cw_host *host);
/* A life of it has, or ends: before its objects go. */
void cw_zones_boot(struct cw_host *host);
void cw_zones_drop(struct cw_host *host);
/* All are to be read once more. */
void cw_zones_end(struct cw_world *world);
/* What is not as it should be then; NULL: all is. */
const char *cw_zones_wait(struct cw_world *world);

/* --- cluster_flips.c: bits that go bad on superpeers' disks -----------------------------------
 */

/* Before the superpeer's process begins: perhaps flips a bit of its journal. */
void cw_flip(struct cw_host *host);
/* The superpeer says that its journal is damaged: mends it. False: it is not. */
bool cw_flip_mend(struct cw_host *host);

/* --- cluster_check.c ---------------------------------------------------------------------------
 */

/* Notes that something does not hold; the first one counts. */
void cw_fail(struct cw_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
#define CW_HOLDS(world, condition, ...)                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            cw_fail(world, __VA_ARGS__);                                                           \
    } while (0)

/* Adds a line to the story, and the event to the trace. */
void cw_tell(struct cw_world *world, unsigned node, const char *kind, uint64_t a, uint64_t b);

/* epoch: the last that was seen there. */
void cw_view_seen(struct cw_host *host, uint64_t *epoch, const struct sh_view *view);
/* A node's life is over, or its objects are about to go: what it had is lost. */
void cw_copies_lost(struct cw_host *host);
/* How many nodes serve a chunk. */
unsigned cw_servers_of(struct cw_world *world, shoal_cid cid);
/* Whether one of them runs requests that write to it. */
bool cw_is_writable(struct cw_world *world, shoal_cid cid);

/* --- cluster_end.c -----------------------------------------------------------------------------
 */

void cw_end_check(struct cw_world *world);
/* What its client does next; false: nothing. */
bool cw_end_slot_begin(struct cw_slot *slot);

/* --- cluster_leftovers.c -----------------------------------------------------------------------
 */

/* What a peer has left of what should be over once all is quiet, which peer, and of which chunk if it
 * is of one; NULL: nothing. */
const char *cw_leftover(const struct cw_world *world, const struct cw_host **host_out,
                        shoal_cid *cid_out);

/* --- cluster_leases.c --------------------------------------------------------------------------
 */

void cw_leases_watch(struct cw_world *world);
bool cw_has_lease(const struct cw_host *host);
/* Whether a peer's process runs on with a life that has failed or left by the newest view: it owns nothing any more. */
bool cw_is_over(const struct cw_host *host);
void cw_leases_view_seen(struct cw_world *world, const struct sh_view *view);
/* A peer did what a client asked it for at a time of the world. */
void cw_leases_answered(struct cw_world *world, shoal_nid nid, uint64_t asked_ns);

/* --- cluster_available.c -----------------------------------------------------------------------
 */

/* Looks whether those serve that nothing is in the way of. */
void cw_available_watch(struct cw_world *world);

/* --- cluster_check.c, on -----------------------------------------------------------------------
 */

/* The registers: content of a value, a write or read that ended. */
void cw_content_make(uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t value);
/* False: it is no value's content. */
bool cw_content_read(const uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t *value_out);
void cw_created(struct cw_slot *slot, shoal_cid cid);
void cw_read_seen(struct cw_slot *slot, const uint8_t *bytes, uint32_t size);
void cw_locked(struct cw_slot *slot);
void cw_unlocked(struct cw_slot *slot);

/* For sh_world_run_until: true once something does not hold. */
bool cw_watch(void *arg);
/* True once everything is as it should be some time after the last fault. */
bool cw_has_settled(void *arg);
/* Says what it still waits for. */
void cw_not_settled(struct cw_world *world);
/* The same for what can be told only then. */
void cw_check_end(struct cw_world *world);

#endif
