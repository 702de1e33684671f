#include "sim/record.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "cluster/proto.h"
#include "node/chunks.h"
#include "node/locks.h"
#include "node/moves.h"
#include "superpeer/superpeer_fuzz.h"

#define BYTES_MAX 250
#define SHORT_MAX 127 /* raft_fuzz and ring_fuzz have sizes below 128 */
#define SAMPLES 16
#define SAMPLES_PLAIN 4 /* of a type whose payload does not begin with a type of its own */
#define ROUTES_MAX 96
#define PATH_BYTES 512
/* Of an input: what stands before a sample, and two words at most. */
/* What the targets have in the place of what the simulated nodes had. */
#define NODE_NID 5
#define CHUNKS 4

/* enum sh_kind, which is msg's own. */
enum { MESSAGE, REQUEST, ANSWER };

enum target { SUPERPEER, RAFT, RING, UPDATE, MEMBER, LOOKUPS, CHUNKS_OF_NODE, LOCKS, MOVES };
static const char *const targets[] = {"superpeer", "raft",   "ring",  "ring", "member",
                                      "lookups",   "chunks", "locks", "moves"};

struct sample {
    bool is_one_way;
    size_t size;
    uint8_t bytes[BYTES_MAX];
};

/* Where messages of a type, or answers to it, go, and what stands for the type there. */
struct route {
    enum target target;
    sh_msg_type type;
    uint8_t what;
    unsigned count;
    struct sample samples[SAMPLES];
};

static struct route routes[ROUTES_MAX];
static unsigned routes_count;

/* A member's questions, in the order in which it asks them. */
static const sh_msg_type member_types[] = {SH_CLUSTER_JOIN, SH_CLUSTER_HEARTBEAT, SH_CLUSTER_LEAVE};
/* In the order of moves_fuzz.c. */
static const sh_msg_type moves_types[] = {
    SH_MOVES_STAGE, SH_MOVES_DONE,   SH_MOVES_OUTCOME, SH_MOVES_MOVE,
    SH_MOVES_JOB,   SH_MOVES_CANCEL, SH_CLUSTER_HOLDS, SH_MOVES_UNDRAIN,
};
static const sh_msg_type locks_types[] = {SH_LOCKS_LOCK, SH_LOCKS_UNLOCK, SH_LOCKS_EXTEND,
                                          SH_LOCKS_SWAP, SH_LOCKS_LIST};
static const sh_msg_type chunks_types[] = {
    SH_CHUNKS_CREATE,        SH_CHUNKS_GET,         SH_CHUNKS_PUT,          SH_CHUNKS_REMOVE,
    SH_CHUNKS_MULTI_GET,     SH_CHUNKS_MULTI_PUT,   SH_CHUNKS_MULTI_REMOVE, SH_CHUNKS_RANGES,
    SH_CHUNKS_CREATE_ONCE,   SH_CHUNKS_PUT_ONCE,    SH_CHUNKS_REMOVE_ONCE,  SH_CHUNKS_GET_PART,
    SH_CHUNKS_PUT_PART_ONCE, SH_CHUNKS_RESIZE_ONCE, SH_CHUNKS_PUT_IF_ONCE,  SH_CHUNKS_PUT_HASH_ONCE,
    SH_CHUNKS_ADD_ONCE,      SH_CHUNKS_FILL_ONCE,   SH_CHUNKS_FREE_ONCE,    SH_CHUNKS_MULTI_RESIZE,
};

static void routes_add(enum target target, const sh_msg_type *types, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        SH_ASSERT(routes_count < ROUTES_MAX);
        routes[routes_count++] =
            (struct route){.target = target,
                           .type = types[i],
                           .what = (uint8_t)(target == CHUNKS_OF_NODE ? types[i] & 0x3f : i)};
    }
}

#define ADD(target, types) routes_add(target, types, sizeof(types) / sizeof(types)[0])

void sh_record_begin(void)
{
    static const sh_msg_type raft[] = {SH_CLUSTER_RAFT}, ring[] = {SH_CLUSTER_RING},
                             update[] = {SH_CLUSTER_METADATA}, lookup[] = {SH_CLUSTER_LOOKUP};
    ADD(SUPERPEER, superpeer_fuzz_types);
    ADD(RAFT, raft);
    ADD(RING, ring);
    ADD(UPDATE, update);
    ADD(MEMBER, member_types);
    ADD(LOOKUPS, lookup);
    ADD(CHUNKS_OF_NODE, chunks_types);
    ADD(LOCKS, locks_types);
    ADD(MOVES, moves_types);
}

/* --- Samples -------------------------------------------------------------------------------------- */

/* Whether payloads begin with a type of their own, of which each is to be there. */
static bool has_types(const struct route *route)
{
    return route->type == SH_CLUSTER_RAFT || route->type == SH_CLUSTER_RING ||
           route->type == SH_CLUSTER_METADATA || route->type == SH_CLUSTER_ASK ||
           route->type == SH_CLUSTER_PROPOSE;
}

static bool is_alike(const struct route *route, const struct sample *sample, struct sh_bytes bytes)
{
    if (!has_types(route) || !bytes.size || !sample->size)
        return sample->size == bytes.size;
    return sample->bytes[0] == bytes.at[0] && sample->size / 32 == bytes.size / 32;
}

static void sample_take(struct route *route, bool is_one_way, struct sh_bytes bytes)
{
    size_t bytes_max = route->target == RAFT || route->target == RING ? SHORT_MAX : BYTES_MAX;
    if (bytes.size > bytes_max || route->count == (has_types(route) ? SAMPLES : SAMPLES_PLAIN))
        return;
    for (unsigned i = 0; i < route->count; i++) {
        if (is_alike(route, &route->samples[i], bytes))
            return;
    }
    struct sample *sample = &route->samples[route->count++];
    sample->is_one_way = is_one_way;
    sample->size = bytes.size;
    if (bytes.size)
        memcpy(sample->bytes, bytes.at, bytes.size);
}

/* msg's own (dispatch.c), as the linker has it. */
int __real_sh_dispatch(void *msg, void *stream, int kind, sh_msg_type type, uint32_t id,
                       struct sh_bytes payload);
int __wrap_sh_dispatch(void *msg, void *stream, int kind, sh_msg_type type, uint32_t id,
                       struct sh_bytes payload);

int __wrap_sh_dispatch(void *msg, void *stream, int kind, sh_msg_type type, uint32_t id,
                       struct sh_bytes payload)
{
    for (unsigned i = 0; i < routes_count; i++) {
        struct route *route = &routes[i];
        bool wants_answers = route->target == MEMBER || route->target == LOOKUPS;
        if (route->type == type && (wants_answers ? kind == ANSWER : kind <= REQUEST))
            sample_take(route, kind == MESSAGE, payload);
    }
    return __real_sh_dispatch(msg, stream, kind, type, id, payload);
}

/* --- Inputs --------------------------------------------------------------------------------------- */

/* Of a chunk ID at that place, the node and the chunk are ones that the target has. */
static void cid_fit(struct sample *sample, size_t at)
{
    if (sample->size < at + 8)
        return;
    uint64_t local = sh_load64(sample->bytes + at) & 0xff;
    sh_store64(sample->bytes + at, (uint64_t)NODE_NID << 48 | (1 + local % CHUNKS));
}

/* The bytes of the peer's ID and instance, which the target puts in front itself. */
static size_t own_bytes(sh_msg_type type)
{
    if (type == SH_CLUSTER_COMMIT || type == SH_CLUSTER_RESOLVE)
        return 10;
    return type == SH_CLUSTER_HEARTBEAT || type == SH_CLUSTER_LEAVE ? 12 : 0;
}

static bool is_of_superpeers(sh_msg_type type)
{
    return type == SH_CLUSTER_RAFT || type == SH_CLUSTER_RING || type == SH_CLUSTER_PROPOSE ||
           type == SH_CLUSTER_HERE || type == SH_CLUSTER_DISMISSED || type == SH_CLUSTER_HEARD ||
           type == SH_CLUSTER_REFERS || type == SH_CLUSTER_REFUSED || type == SH_CLUSTER_FORMER;
}

static void superpeer_put(struct sh_writer *w, const struct route *route, struct sample *sample)
{
    size_t own = own_bytes(route->type);
    own = own <= sample->size ? own : 0;
    unsigned how = is_of_superpeers(route->type) ? 0 : 1;
    sh_put8(w, route->what);
    sh_put8(w, (uint8_t)(how | (sample->is_one_way ? 4u : 0) | (own ? 8u : 0)));
    sh_put8(w, (uint8_t)(sample->size - own));
    sh_put_raw(w, sh_bytes_make(sample->bytes + own, sample->size - own));
}

static void sample_put(struct sh_writer *w, const struct route *route, struct sample *sample)
{
    size_t size = sample->size;
    switch (route->target) {
    case SUPERPEER:
        superpeer_put(w, route, sample);
        return;
    case RAFT:
    case RING:
        sh_put8(w, (uint8_t)size);
        sh_put8(w, route->target == RAFT ? 2 : 2 | 4);
        if (route->target == RAFT && size > 12)
            sample->bytes[12] = 0; /* of the target's log */
        break;
    case MEMBER:
        sh_put8(w, 30); /* units of 5 ms: more than a heartbeat */
        sh_put8(w, 0);
        sh_put8(w, (uint8_t)size);
        break;
    case LOOKUPS:
        sh_put8(w, (uint8_t)(size / 18)); /* ranges; of the first the first chunk */
        sh_put_raw(w, sh_bytes_make(sample->bytes, size < 8 ? size : 8));
        break;
    case CHUNKS_OF_NODE:
        cid_fit(sample, 0);
        cid_fit(sample, 24);
        sh_put8(w, route->what | 0x40u | (sample->is_one_way ? 0x80u : 0));
        sh_put16(w, (uint16_t)size);
        break;
    case LOCKS:
        cid_fit(sample, 0);
        /* fall through */
    case MOVES:
        sh_put8(w, route->what);
        sh_put8(w, 4);
        sh_put8(w, (uint8_t)size);
        break;
    case UPDATE:
        break;
    }
    sh_put_raw(w, sh_bytes_make(sample->bytes, size));
}

/* What an input of the target begins with, if it begins with anything. */
static void head_put(struct sh_writer *w, const struct route *route)
{
    if (route->target == SUPERPEER)
        sh_put8(w, is_of_superpeers(route->type));
    else if (route->target <= MEMBER)
        sh_put8(w, route->target == UPDATE);
}

static bool file_write(const char *dir, enum target target, const char *name, const uint8_t *bytes,
                       size_t size)
{
    char path[PATH_BYTES];
    (void)snprintf(path, sizeof path, "%s/%s_fuzz", dir, targets[target]);
    bool is_made = !mkdir(path, 0777) || errno == EEXIST;
    (void)snprintf(path, sizeof path, "%s/%s_fuzz/%s", dir, targets[target], name);
    FILE *file = is_made ? fopen(path, "wb") : NULL;
    bool is_written = file && fwrite(bytes, 1, size, file) == size;
    if (file && fclose(file))
        is_written = false;
    if (!is_written)
        fprintf(stderr, "shoal-sim: %s: %s\n", path, strerror(errno));
    return is_written;
}

/* One file of a type; of updates, one for each. */
static bool route_write(const char *dir, struct route *route)
{
    static uint8_t room[SAMPLES * (BYTES_MAX + 16) + 16];
    char name[32];
    bool is_done = true;
    struct sh_writer w = sh_writer_make(room, sizeof room);
    head_put(&w, route);
    for (unsigned i = 0; is_done && i < route->count; i++) {
        sample_put(&w, route, &route->samples[i]);
        SH_ASSERT(sh_writer_ok(&w));
        if (route->target == UPDATE || i + 1 == route->count) {
            const char *kind = route->target == UPDATE ? "sim_update" : "sim";
            (void)snprintf(name, sizeof name, "%s_%04x_%u", kind, route->type, i);
            is_done = file_write(dir, route->target, name, room, (size_t)(w.at - room));
            w = sh_writer_make(room, sizeof room);
            head_put(&w, route);
        }
    }
    return is_done;
}

/* All of a target behind one another, as they come in a life. */
static bool all_write(const char *dir, enum target target)
{
    static uint8_t room[64 << 10];
    struct sh_writer w = sh_writer_make(room, sizeof room);
    bool is_any = false;
    for (unsigned i = 0; i < routes_count; i++) {
        struct route *route = &routes[i];
        if (route->target != target || !route->count)
            continue;
        if (!is_any)
            head_put(&w, route);
        is_any = true;
        for (unsigned k = 0; k < route->count; k++)
            sample_put(&w, route, &route->samples[k]);
    }
    SH_ASSERT(sh_writer_ok(&w));
    return !is_any || file_write(dir, target, "sim_all", room, (size_t)(w.at - room));
}

bool sh_record_end(const char *dir)
{
    bool is_done = !mkdir(dir, 0777) || errno == EEXIST;
    if (!is_done)
        fprintf(stderr, "shoal-sim: %s: %s\n", dir, strerror(errno));
    for (unsigned i = 0; is_done && i < routes_count; i++)
        is_done = route_write(dir, &routes[i]);
    for (enum target target = SUPERPEER; is_done && target <= MOVES; target++) {
        bool has_one_type = target == RAFT || target == RING || target == LOOKUPS;
        if (target != UPDATE && !has_one_type)
            is_done = all_write(dir, target);
    }
    return is_done;
}
