/* An owner of zones in a simulated world, who changes chunks at random, remembers each state of each chunk and which of them were
 * acknowledged; and the check that the recorded backups have these. */
#ifndef TESTS_BACKUP_OWNER_INT_H
#define TESTS_BACKUP_OWNER_INT_H

#include "backup/backup.h"
#include "cluster/directory.h"
#include "tests/backup_fakes_int.h"

#define OWNER_ZONE_BYTES (UINT64_C(256) << 10)
#define OWNER_CHUNK_MAX (700u << 10)
#define OWNER_OPS 24u
#define OWNER_STATES 4096u /* of one chunk */

enum owner_kind { OWNER_NEW, OWNER_PUT, OWNER_RESIZE, OWNER_REMOVE, OWNER_KINDS };

struct owner;

/* A change that is on its way. */
struct owner_op {
    struct owner *owner;
    bool is_busy, waits;
    enum owner_kind kind;
    uint64_t local; /* 0: none yet */
    uint32_t size;
    uint8_t *bytes;
    struct sh_write write;
    struct sh_store_rewriting *rewriting;
    unsigned state; /* of the chunk, that it made */
};

/* A chunk's states, from its first on. */
struct owner_chunk {
    struct fake_chunk *states;
    unsigned count;
    unsigned acked[SH_LEVELS]; /* the last that is acknowledged */
    struct owner_op *op;       /* that changes it */
    bool is_there;
};

struct owner {
    struct sh_world *world;
    unsigned node;
    struct sh_msg *msg;
    struct sh_directory *directory;
    struct sh_zones *zones;
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_backup_config config;
    struct owner_chunk chunks[FAKE_CHUNKS];
    struct owner_op ops[OWNER_OPS];
    struct fake_superpeer superpeer;
    struct fake_backup backups[FAKE_BACKUPS];
    unsigned backups_count;
    bool are_failed[FAKE_BACKUPS]; /* not up */
    bool are_away[FAKE_BACKUPS];   /* of these: stopped in order, and to be back */
    uint64_t epoch;
    /* Of backups that are not fakes; NULL: all are. */
    struct sh_world_node (*backup_node)(struct owner *owner, unsigned i);
    uint64_t zone_bytes, zone_bytes_next; /* the latter: of the next owner; 0: as usual */
    uint32_t size_most;
    unsigned in_use;        /* ops at a time */
    unsigned chunks_most;   /* that there are */
    bool is_quiet;          /* begins nothing */
    bool is_checking;       /* at acknowledgements, */
    unsigned checks_one_in; /* at one of so many */
    uint64_t next_ns, stamp;
    unsigned changes, acknowledged, refused_bare, checks;
    uint8_t *scratch;
};

static inline struct sh_prng *owner_prng(struct owner *owner)
{
    return sh_world_prng(owner->world);
}

static inline uint32_t owner_draw(struct owner *owner, uint32_t bound)
{
    return (uint32_t)sh_prng_below(owner_prng(owner), bound);
}

static inline shoal_cid owner_cid(uint64_t local)
{
    return (shoal_cid){(uint64_t)FAKE_OWNER << 48 | local};
}

/* --- Chunks of the store --------------------------------------------------------------------- */

/* The chunk as the store has it now. */
static inline struct fake_chunk owner_look(struct owner *owner, uint64_t local)
{
    uint32_t size;
    struct fake_chunk chunk = {.is_there = false};
    enum shoal_err err =
        sh_store_get(owner->store, owner_cid(local), owner->scratch, OWNER_CHUNK_MAX, &size);
    if (!err)
        chunk = (struct fake_chunk){true, size, fake_hash(0, owner->scratch, size)};
    else
        assert_int_equal(err, SHOAL_ENOCHUNK);
    return chunk;
}

static inline bool owner_is_same(const struct fake_chunk *a, const struct fake_chunk *b)
{
    return a->is_there == b->is_there &&
           (!a->is_there || (a->size == b->size && a->hash == b->hash));
}

/* A chunk's new state, before anybody is told of it. */
static inline void owner_note(struct owner_op *op)
{
    struct owner *owner = op->owner;
    struct owner_chunk *chunk = &owner->chunks[op->local];
    if (!chunk->states) {
        chunk->states = calloc(OWNER_STATES, sizeof *chunk->states);
        chunk->count = 1; /* not there */
    }
    assert_true(chunk->count < OWNER_STATES);
    chunk->states[chunk->count] = owner_look(owner, op->local);
    chunk->is_there = chunk->states[chunk->count].is_there;
    op->state = chunk->count++;
    owner->changes++;
}

/* --- Replicas of the backups ----------------------------------------------------------------- */

/* The replica of a zone that recovery would read, by the record: of any backup in it, and nothing where it has none. NULL: nobody can tell. */
static inline const struct fake_replica *owner_replica(struct owner *owner, uint64_t id,
                                                       bool is_durable)
{
    static const struct fake_replica nothing;
    struct sh_zone record;
    if (!sh_metadata_zone(owner->superpeer.metadata, id, &record))
        return NULL;
    if (!record.count)
        return &nothing;
    shoal_nid nid = record.backups[owner_draw(owner, record.count)].nid;
    if (nid.v == FAKE_OWNER)
        return NULL; /* its own disk */
    assert_true(nid.v > FAKE_OWNER && nid.v <= FAKE_OWNER + FAKE_BACKUPS);
    struct fake_zone *zone = fake_find(&owner->backups[nid.v - FAKE_OWNER - 1], id);
    /* Writes that were not durable may be lost with the power of a backup; recovery takes another one, if there is one. */
    if (!zone || zone->is_lost || (!is_durable && zone->now.next < zone->cut))
        return NULL;
    return is_durable ? &zone->durable : &zone->now;
}

static inline bool owner_is_claimed(const struct fake_replica *replica, uint64_t local)
{
    uint64_t chunk = owner_cid(local).v;
    for (size_t i = 0; i < replica->claims_count; i++) {
        if (replica->claims[i].first <= chunk && chunk <= replica->claims[i].last)
            return true;
    }
    return false;
}

/* Each chunk as recovery would find it, from one backup of each zone: in a state that was acknowledged, or came later. */
static inline void owner_check(struct owner *owner, enum sh_level level)
{
    static const struct fake_replica *replicas[FAKE_ZONES * 4];
    unsigned zones = 0;
    struct sh_zone record = {.id = 0};
    bool is_incomplete = false;
    unsigned shard = sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1));
    while (sh_metadata_zone_next(owner->superpeer.metadata, shard, record.id, &record)) {
        assert_true(zones < FAKE_ZONES * 4);
        replicas[zones] = owner_replica(owner, record.id, level == SH_LEVEL_DURABLE);
        is_incomplete |= !replicas[zones];
        zones++;
    }
    for (uint64_t local = 1; local < FAKE_CHUNKS && !is_incomplete; local++) {
        const struct owner_chunk *chunk = &owner->chunks[local];
        struct fake_chunk found = {.is_there = false};
        for (unsigned i = zones; i-- > 0;) {
            if (!owner_is_claimed(replicas[i], local))
                continue;
            found = replicas[i]->chunks[local];
            break;
        }
        unsigned at = chunk->count;
        while (at > chunk->acked[level] && !owner_is_same(&chunk->states[at - 1], &found))
            at--;
        bool is_good = chunk->count ? at > chunk->acked[level] : !found.is_there;
        for (unsigned i = 0; i < zones && !is_good; i++)
            print_message("zone %u of %u: claimed %d, there %d, next %llu\n", i, zones,
                          owner_is_claimed(replicas[i], local), replicas[i]->chunks[local].is_there,
                          (unsigned long long)replicas[i]->next);
        if (!is_good)
            fail_msg("chunk %llu: %d, %u bytes, hash %llx is none of its states %u to %u, level %d",
                     (unsigned long long)local, found.is_there, found.size,
                     (unsigned long long)found.hash, chunk->acked[level], chunk->count - 1,
                     (int)level);
    }
    owner->checks += !is_incomplete;
}

/* --- Changes ----------------------------------------------------------------------------------- */

static inline void owner_op_end(struct owner_op *op)
{
    /* The ID of a chunk that was removed may be another one's by now. */
    if (op->local && op->owner->chunks[op->local].op == op)
        op->owner->chunks[op->local].op = NULL;
    free(op->bytes);
    op->bytes = NULL;
    op->is_busy = false;
}

static inline void owner_on_acked(void *arg, enum shoal_err err)
{
    struct owner_op *op = arg;
    struct owner *owner = op->owner;
    struct owner_chunk *chunk = &owner->chunks[op->local];
    if (!err) {
        for (unsigned level = 0; level <= (unsigned)op->write.level; level++) {
            if (chunk->acked[level] < op->state)
                chunk->acked[level] = op->state;
        }
        owner->acknowledged += op->write.level > SH_LEVEL_ASYNC;
        if (owner->is_checking && op->write.level > SH_LEVEL_ASYNC &&
            !owner_draw(owner, owner->checks_one_in))
            owner_check(owner, op->write.level);
    }
    owner_op_end(op);
}

static inline void owner_on_room(void *arg, enum shoal_err err)
{
    struct owner_op *op = arg;
    (void)err;
    op->waits = false;
}

static inline enum shoal_err owner_new(struct owner_op *op)
{
    const struct sh_store_wish wish = {.size = op->size, .count = 1};
    shoal_cid cid;
    enum shoal_err err = sh_backup_new_as(op->owner->backup, &op->write, &wish, &cid, NULL);
    if (err)
        return err;
    op->local = cid.v & FAKE_LOCALS;
    assert_true(op->local < FAKE_CHUNKS);
    op->owner->chunks[op->local].op = op;
    return SHOAL_OK;
}

/* Goes on with a change that may take several steps. EAGAIN: not over. */
static inline enum shoal_err owner_rewrite(struct owner_op *op)
{
    struct owner *owner = op->owner;
    const struct sh_store_rewrite rewrite = {
        .kind = op->kind == OWNER_PUT ? SH_STORE_PUT : SH_STORE_RESIZE,
        .cid = owner_cid(op->local),
        .size = op->size,
        .data = sh_bytes_make(op->bytes, op->bytes ? op->size : 0)};
    if (!op->rewriting) {
        enum shoal_err err = sh_backup_rewrite(owner->backup, &op->write, &rewrite);
        if (err != SHOAL_ELIMIT)
            return err;
        err = sh_store_rewriting_begin(owner->store, &rewrite, &op->rewriting);
        assert_int_equal(err, SHOAL_OK);
    }
    if (!sh_backup_rewriting_step(owner->backup, &op->write, op->rewriting))
        return SHOAL_EAGAIN;
    enum shoal_err err = sh_store_rewriting_end(op->rewriting);
    op->rewriting = NULL;
    return err;
}

static inline void owner_op_run(struct owner_op *op)
{
    struct owner *owner = op->owner;
    enum shoal_err err;
    if (op->kind == OWNER_NEW)
        err = owner_new(op);
    else if (op->kind == OWNER_REMOVE)
        err = sh_backup_remove(owner->backup, &op->write, owner_cid(op->local));
    else
        err = owner_rewrite(op);
    if (err == SHOAL_EAGAIN) {
        if (sh_write_was_refused(&op->write)) {
            op->waits = true;
            sh_backup_room_wait(owner->backup, &op->write, owner_on_room, op);
        }
        return;
    }
    if (err) {
        assert_true(err == SHOAL_ENOBACKUP || err == SHOAL_EFULL || err == SHOAL_EFENCED);
        owner->refused_bare += err == SHOAL_ENOBACKUP;
        owner_op_end(op);
        return;
    }
    owner_note(op);
    op->waits = true;
    if (!sh_write_wait(owner->backup, &op->write, owner_on_acked, op))
        owner_on_acked(op, SHOAL_OK);
}

static inline uint32_t owner_size(struct owner *owner)
{
    switch (owner_draw(owner, 40)) {
    case 0:
        return 250000 + owner_draw(owner, owner->size_most - 250000); /* in pieces, most */
    case 1:
    case 2:
        return 33000 + owner_draw(owner, 100000);
    case 3:
    case 4:
    case 5:
        return 2000 + owner_draw(owner, 16000);
    default:
        return 16 + owner_draw(owner, 500);
    }
}

static inline uint64_t owner_pick(struct owner *owner)
{
    unsigned tries = 20;
    while (tries-- > 0) {
        uint64_t local = 1 + owner_draw(owner, FAKE_CHUNKS - 1);
        if (owner->chunks[local].is_there && !owner->chunks[local].op)
            return local;
    }
    return 0;
}

static inline unsigned owner_there(const struct owner *owner)
{
    unsigned count = 0;
    for (unsigned i = 0; i < FAKE_CHUNKS; i++)
        count += owner->chunks[i].is_there;
    for (unsigned i = 0; i < OWNER_OPS; i++)
        count += owner->ops[i].is_busy && owner->ops[i].kind == OWNER_NEW;
    return count;
}

static inline void owner_fill(struct owner_op *op, uint32_t size)
{
    op->size = size;
    op->bytes = malloc(size ? size : 1);
    uint64_t stamp = ++op->owner->stamp;
    for (uint32_t i = 0; i < size; i++)
        op->bytes[i] =
            (uint8_t)((stamp * UINT64_C(0x9E3779B97F4A7C15)) >> (8 * (i % 8))) ^ (uint8_t)(i >> 3);
}

/* A change at random; false: there is nothing to do. */
static inline bool owner_begin(struct owner *owner)
{
    unsigned i = 0;
    while (i < owner->in_use && owner->ops[i].is_busy)
        i++;
    if (i == owner->in_use)
        return false;
    struct owner_op *op = &owner->ops[i];
    uint64_t local = owner_pick(owner);
    unsigned drawn = owner_draw(owner, 100);
    *op = (struct owner_op){.owner = owner};
    op->kind = drawn < 60   ? OWNER_PUT
               : drawn < 75 ? OWNER_RESIZE
               : drawn < 85 ? OWNER_REMOVE
                            : OWNER_NEW;
    if (owner_there(owner) < owner->chunks_most / 2)
        op->kind = OWNER_NEW;
    if (op->kind == OWNER_NEW && owner_there(owner) >= owner->chunks_most)
        op->kind = OWNER_REMOVE;
    if (op->kind != OWNER_NEW && !local)
        return false;
    if (op->kind == OWNER_NEW || op->kind == OWNER_RESIZE)
        op->size = owner_size(owner);
    if (op->kind == OWNER_PUT)
        owner_fill(op, owner->chunks[local].states[owner->chunks[local].count - 1].size);
    op->is_busy = true;
    if (op->kind != OWNER_NEW) {
        op->local = local;
        owner->chunks[local].op = op;
    }
    sh_write_begin(&op->write, (enum sh_level)owner_draw(owner, SH_LEVELS));
    return true;
}

static inline unsigned owner_run(void *arg)
{
    struct owner *owner = arg;
    uint64_t now_ns = sh_now(&sh_world_env(owner->world, owner->node)->clock);
    unsigned work = 0;
    if (!owner->is_quiet && now_ns >= owner->next_ns) {
        owner->next_ns = now_ns + owner_draw(owner, FAKE_MS);
        work += owner_begin(owner);
    }
    for (unsigned i = 0; i < OWNER_OPS; i++) {
        if (owner->ops[i].is_busy && !owner->ops[i].waits) {
            owner_op_run(&owner->ops[i]);
            work++;
        }
    }
    return work + sh_backup_step(owner->backup, now_ns, (uint32_t)(now_ns / 1000000000));
}

static inline uint64_t owner_due(void *arg)
{
    const struct owner *owner = arg;
    uint64_t due_ns = sh_backup_due_ns(owner->backup);
    return !owner->is_quiet && owner->next_ns < due_ns ? owner->next_ns : due_ns;
}

/* --- The world --------------------------------------------------------------------------------- */

static inline void owner_on_event(void *arg, const struct sh_msg_event *event)
{
    struct owner *owner = arg;
    if (owner->backup)
        sh_backup_link_event(owner->backup, event);
}

static inline void owner_random(void *arg, void *into, size_t size)
{
    struct owner *owner = arg;
    uint8_t *at = into;
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)owner_draw(owner, 256);
}

static inline void owner_node_put(struct sh_view *view, uint16_t nid, unsigned node,
                                  enum sh_node_state state, uint64_t life)
{
    struct sh_node entry = {.nid = {nid},
                            .role = nid < FAKE_OWNER ? SH_ROLE_SUPERPEER : SH_ROLE_PEER,
                            .state = state,
                            .instance = life};
    entry.traits.keeps_replicas = nid >= FAKE_OWNER;
    snprintf(entry.address, sizeof entry.address, "node%u:4100", node);
    assert_int_equal(sh_view_put(view, &entry), SHOAL_OK);
}

/* The owner and the superpeer hear of the nodes as they are. */
static inline void owner_view(struct owner *owner)
{
    struct sh_view view = {.epoch = ++owner->epoch, .superpeers = 1};
    owner_node_put(&view, FAKE_SUPERPEER, 0, SH_NODE_UP, 1);
    owner_node_put(&view, FAKE_OWNER, 1, SH_NODE_UP, FAKE_LIFE);
    for (unsigned i = 0; i < owner->backups_count; i++) {
        bool is_failed = owner->are_failed[i];
        owner_node_put(&view, (uint16_t)(FAKE_OWNER + 1 + i), 2 + i,
                       !is_failed           ? SH_NODE_UP
                       : owner->are_away[i] ? SH_NODE_AWAY
                                            : SH_NODE_FAILED,
                       owner->backups[i].life);
        owner->superpeer.are_down[i] = is_failed;
    }
    assert_int_equal(sh_directory_view_apply(owner->directory, &view), SHOAL_OK);
    assert_int_equal(sh_backup_view(owner->backup, &view), SHOAL_OK);
    sh_view_destroy(&view);
}

static inline void owner_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct owner *owner = arg;
    owner->world = world;
    owner->node = node;
    owner->msg = fake_msg(world, node, FAKE_OWNER, FAKE_LIFE, owner_on_event, owner);
    const struct sh_clock clock = sh_world_env(world, node)->clock;
    const struct sh_directory_config directory = {
        .msg = owner->msg, .clock = clock, .cache_ranges_max = 16, .is_client = true};
    assert_int_equal(sh_directory_create(&directory, &owner->directory), SHOAL_OK);
    const struct sh_zones_config zones = {
        .msg = owner->msg, .directory = owner->directory, .clock = clock};
    assert_int_equal(sh_zones_create(&zones, &owner->zones), SHOAL_OK);
    const struct sh_store_config store = {.bytes_max = UINT64_C(96) << 20,
                                          .chunk_bytes_max = OWNER_CHUNK_MAX,
                                          .nid = {FAKE_OWNER},
                                          .small_pages = true};
    assert_int_equal(sh_store_create(&store, &owner->store), SHOAL_OK);
    owner->config.store = owner->store;
    owner->config.nid = (shoal_nid){FAKE_OWNER};
    owner->config.zone_bytes = owner->zone_bytes;
    owner->config.window_bytes = UINT64_C(4) << 20;
    owner->config.wake = fake_wake;
    owner->config.cluster.msg = owner->msg;
    owner->config.cluster.zones = owner->zones;
    owner->config.cluster.life = FAKE_LIFE;
    owner->config.cluster.random = (struct sh_random){owner_random, owner};
    assert_int_equal(sh_backup_create(&owner->config, &owner->backup), SHOAL_OK);
    sh_backup_begin(owner->backup);
    sh_world_step_add(world, node, sh_zones_step(owner->zones));
    sh_world_step_add(
        world, node,
        (struct sh_step){.name = "owner", .run = owner_run, .due_ns = owner_due, .arg = owner});
}

/* backups: how many nodes there are; the first of them are up. */
static inline void owner_open_with(struct owner *owner, const struct sh_world_config *config,
                                   unsigned backups, unsigned up, uint8_t replicas,
                                   struct sh_world_node (*backup_node)(struct owner *owner,
                                                                       unsigned i))
{
    const struct sh_backup_config base = owner->config;
    bool has_copysets = owner->config.cluster.has_copysets;
    uint32_t sparse_zones = owner->config.sparse_zones;
    unsigned placement = owner->config.cluster.placement;
    unsigned copies_max = owner->config.cluster.copies_max;
    uint64_t copy_bytes_per_s = owner->config.cluster.copy_bytes_per_s;
    uint64_t zone_bytes = owner->zone_bytes_next;
    memset(owner, 0, sizeof *owner);
    owner->config.results = base.results;
    owner->config.sparse_zones = sparse_zones;
    owner->config.cluster.copies_max = copies_max;
    owner->config.cluster.copy_bytes_per_s = copy_bytes_per_s;
    owner->config.cluster.has_copysets = has_copysets;
    owner->config.cluster.placement = placement;
    owner->backup_node = backup_node;
    owner->config.cluster.replicas = replicas;
    /* Of real backups, a zone's log has room for two of the largest chunks, and the pieces of a third. */
    owner->zone_bytes = backup_node ? 1 << 20 : OWNER_ZONE_BYTES;
    if (zone_bytes)
        owner->zone_bytes = zone_bytes;
    owner->size_most = backup_node ? 300 << 10 : OWNER_CHUNK_MAX;
    owner->in_use = OWNER_OPS;
    owner->checks_one_in = 1;
    owner->chunks_most = 60;
    owner->is_quiet = true;
    owner->backups_count = backups;
    owner->scratch = malloc(OWNER_CHUNK_MAX);
    struct sh_world *world = sh_world_create(config);
    const struct sh_world_node superpeer = {.boot = fake_superpeer_boot, .arg = &owner->superpeer};
    const struct sh_world_node own = {.boot = owner_boot, .arg = owner};
    (void)sh_world_node_add(world, &superpeer);
    (void)sh_world_node_add(world, &own);
    for (unsigned i = 0; i < backups; i++) {
        struct fake_backup *backup = &owner->backups[i];
        backup->nid = (shoal_nid){(uint16_t)(FAKE_OWNER + 1 + i)};
        backup->disk = 1000 + i;
        backup->keeps = true;
        backup->life = (UINT64_C(1) << 32) | (i + 1);
        owner->are_failed[i] = i >= up;
        struct sh_world_node node = {
            .boot = fake_backup_boot, .crash = fake_backup_crash, .arg = backup};
        if (backup_node)
            node = backup_node(owner, i);
        (void)sh_world_node_add(world, &node);
    }
    owner_view(owner);
}

static inline void owner_open(struct owner *owner, const struct sh_world_config *config,
                              unsigned backups, unsigned up, uint8_t replicas)
{
    owner_open_with(owner, config, backups, up, replicas, NULL);
}

static inline void owner_close(struct owner *owner)
{
    for (unsigned i = 0; i < OWNER_OPS; i++) {
        struct owner_op *op = &owner->ops[i];
        if (op->rewriting)
            assert_int_equal(sh_store_rewriting_end(op->rewriting), SHOAL_ECANCELED);
        free(op->bytes);
    }
    sh_zones_destroy(owner->zones);
    sh_backup_destroy(owner->backup);
    owner->backup = NULL;
    sh_directory_destroy(owner->directory);
    sh_msg_destroy(owner->msg);
    sh_store_destroy(owner->store);
    for (unsigned i = 0; i < FAKE_CHUNKS; i++)
        free(owner->chunks[i].states);
    free(owner->scratch);
    sh_msg_destroy(owner->superpeer.msg);
    sh_metadata_destroy(owner->superpeer.metadata);
    for (unsigned i = 0; i < owner->backups_count; i++) {
        if (owner->backups[i].msg)
            sh_msg_destroy(owner->backups[i].msg);
    }
    sh_world_destroy(owner->world);
}

/* Begins a change; the owner's step does it, and notes when it is acknowledged. */
static inline struct owner_op *owner_op_begin(struct owner *owner, enum owner_kind kind,
                                              uint64_t local, uint32_t size, enum sh_level level)
{
    unsigned i = 0;
    while (owner->ops[i].is_busy)
        i++;
    assert_true(i < OWNER_OPS);
    struct owner_op *op = &owner->ops[i];
    *op = (struct owner_op){
        .owner = owner, .is_busy = true, .kind = kind, .local = local, .size = size};
    if (kind == OWNER_PUT)
        owner_fill(op, size);
    if (local)
        owner->chunks[local].op = op;
    sh_write_begin(&op->write, level);
    return op;
}

static inline bool owner_op_is_over(void *arg)
{
    const struct owner_op *op = arg;
    return !op->is_busy;
}

static inline void owner_until(struct owner *owner, bool (*predicate)(void *arg), void *arg)
{
    assert_true(sh_world_run_until(owner->world, predicate, arg,
                                   sh_world_now(owner->world) + 60000 * FAKE_MS));
}

/* Makes a change, and waits for it; returns the chunk's local ID. */
static inline uint64_t owner_change(struct owner *owner, enum owner_kind kind, uint64_t local,
                                    uint32_t size)
{
    struct owner_op *op = owner_op_begin(owner, kind, local, size, SH_LEVEL_DURABLE);
    owner_until(owner, owner_op_is_over, op);
    return op->local;
}

static inline void owner_pass(struct owner *owner, uint64_t ns)
{
    (void)sh_world_run_until(owner->world, NULL, NULL, sh_world_now(owner->world) + ns);
}

static inline struct sh_backup_status owner_status(struct owner *owner)
{
    struct sh_backup_status status;
    sh_backup_status_get(owner->backup, &status);
    return status;
}

static inline unsigned owner_records(struct owner *owner)
{
    unsigned shard = sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1)), count = 0;
    struct sh_zone record = {.id = 0};
    while (sh_metadata_zone_next(owner->superpeer.metadata, shard, record.id, &record))
        count++;
    return count;
}

/* Whether nothing is on its way, all zones have what they are to have, and all backups have all of it, durably. */
static inline bool owner_is_settled(void *arg)
{
    struct sh_zone record;
    struct owner *owner = arg;
    struct sh_zone_state zone;
    for (unsigned i = 0; i < OWNER_OPS; i++) {
        if (owner->ops[i].is_busy)
            return false;
    }
    /* A zone that is being made has a record, and is none of its zones yet. */
    if (owner_status(owner).under_replicated || owner_status(owner).zones != owner_records(owner))
        return false;
    for (uint64_t from = 0; sh_backup_zone_state(owner->backup, from, &zone);
         from = zone.number + 1) {
        if (zone.count != zone.wanted)
            return false;
        uint64_t id = sh_zone_id((shoal_nid){FAKE_OWNER}, zone.number);
        if (sh_metadata_zone(owner->superpeer.metadata, id, &record) &&
            record.incarnation != zone.incarnation)
            return false; /* a change of the record is under way */
        for (unsigned i = 0; i < zone.count; i++) {
            const struct sh_zone_state_backup *backup = &zone.backups[i];
            if (backup->state != SH_SINK_STREAMING || !backup->is_recorded ||
                backup->acked[SH_LEVEL_DURABLE] != zone.next || backup->pending_bytes)
                return false;
        }
    }
    return true;
}

/* All backups of all zones know the zone's incarnation. */
static inline void owner_check_incarnations(struct owner *owner)
{
    unsigned shard = sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1));
    struct sh_zone record = {.id = 0};
    while (sh_metadata_zone_next(owner->superpeer.metadata, shard, record.id, &record)) {
        for (unsigned i = 0; i < record.count && !owner->backup_node; i++) {
            const struct fake_zone *zone =
                fake_find(&owner->backups[record.backups[i].nid.v - FAKE_OWNER - 1], record.id);
            if (!zone || zone->incarnation != record.incarnation)
                fail_msg("zone %llu at node %u: there %d, in incarnation %u instead of %u",
                         (unsigned long long)(record.id & FAKE_LOCALS), record.backups[i].nid.v,
                         zone != NULL, zone ? zone->incarnation : 0, record.incarnation);
        }
    }
}

/* All backups of all zones have just what the store has. */
static inline void owner_check_equal(struct owner *owner)
{
    owner_check_incarnations(owner);
    for (unsigned i = 0; i < FAKE_CHUNKS; i++) {
        struct owner_chunk *chunk = &owner->chunks[i];
        for (unsigned level = 0; level < SH_LEVELS && chunk->count; level++)
            chunk->acked[level] = chunk->count - 1;
    }
    for (unsigned i = 0; i < 20; i++) {
        owner_check(owner, SH_LEVEL_REPLICATED);
        owner_check(owner, SH_LEVEL_DURABLE);
    }
}

static inline void owner_settle_only(struct owner *owner)
{
    owner->is_quiet = true;
    if (!sh_world_run_until(owner->world, owner_is_settled, owner,
                            sh_world_now(owner->world) + 900000 * FAKE_MS)) {
        struct sh_zone_state zone;
        struct sh_backup_status status = owner_status(owner);
        print_message("not settled: trouble %d, %u zones, %u under, %u bare, %u copies\n",
                      (int)status.trouble, status.zones, status.under_replicated, status.bare,
                      status.copies);
        for (unsigned i = 0; i < OWNER_OPS; i++) {
            if (owner->ops[i].is_busy)
                print_message("op %u: kind %d of %llu, %u bytes, waits %d, level %d\n", i,
                              (int)owner->ops[i].kind, (unsigned long long)owner->ops[i].local,
                              owner->ops[i].size, owner->ops[i].waits,
                              (int)owner->ops[i].write.level);
        }
        for (uint64_t from = 0; sh_backup_zone_state(owner->backup, from, &zone);
             from = zone.number + 1) {
            print_message("zone %llu: incarnation %u, next %llu, acked %llu %llu\n",
                          (unsigned long long)zone.number, zone.incarnation,
                          (unsigned long long)zone.next, (unsigned long long)zone.acked[1],
                          (unsigned long long)zone.acked[2]);
            for (unsigned i = 0; i < zone.count; i++)
                print_message("  node %u: %s, recorded %d, pending %llu, acked %llu %llu\n",
                              zone.backups[i].nid.v, sh_sink_state_name(zone.backups[i].state),
                              zone.backups[i].is_recorded,
                              (unsigned long long)zone.backups[i].pending_bytes,
                              (unsigned long long)zone.backups[i].acked[1],
                              (unsigned long long)zone.backups[i].acked[2]);
        }
        fail_msg("it does not come to rest");
    }
}

/* Lets things come to rest, and looks at the replicas. */
static inline void owner_settle(struct owner *owner)
{
    owner_settle_only(owner);
    owner_check_equal(owner);
}

#endif
