/* What must hold in a simulated cluster, seen from outside of its nodes. */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "sim/cluster_world_int.h"

#define WATCH_NS (2 * CW_MS)

void cw_fail(struct cw_world *world, const char *format, ...)
{
    struct sh_cluster_world_result *result = world->result;
    if (result->failed)
        return;
    result->failed = true;
    char what[200];
    va_list list;
    va_start(list, format);
    (void)vsnprintf(what, sizeof what, format, list);
    va_end(list);
    (void)snprintf(result->text, sizeof result->text, "at %.6f s: %s",
                   (double)sh_world_now(world->sim) / 1e9, what);
    if (world->config.story)
        fprintf(world->config.story, "%s\n", result->text);
}

void cw_tell(struct cw_world *world, unsigned node, const char *kind, uint64_t a, uint64_t b)
{
    sh_world_trace(world->sim, node, kind, a, b, (struct sh_bytes){0});
    if (!world->config.story)
        return;
    const struct cw_host *host = &world->hosts[node];
    static const char *const kinds[] = {"superpeer", "peer", "client", "program", "spare"};
    fprintf(world->config.story, "%14.6f ms  %s %u (ID %u) %s: %" PRIu64 ", %" PRIu64 "\n",
            (double)sh_world_now(world->sim) / 1e6, kinds[host->kind], host->index,
            host->msg ? sh_msg_nid(host->msg).v : 0, kind, a, b);
}

/* --- Views -------------------------------------------------------------------------------------
 */

static uint64_t view_hash(const struct sh_view *view)
{
    uint64_t hash = view->superpeers;
    for (size_t i = 0; i < view->count; i++) {
        const struct sh_node *node = &view->nodes[i];
        hash = sh_mix64(hash * 31 + ((uint64_t)node->nid.v << 16 ^ (uint64_t)node->state << 8 ^
                                     (uint64_t)node->role));
        hash = sh_mix64(hash + node->instance + sh_hash64(sh_bytes_text(node->address), 0));
        hash = sh_traits_digest(&node->traits, hash);
    }
    return hash | 1;
}

static void view_is_sound(struct cw_world *world, const struct sh_view *view)
{
    for (size_t i = 0; i < view->count; i++) {
        for (size_t k = i + 1; k < view->count; k++) {
            const struct sh_node *a = &view->nodes[i], *b = &view->nodes[k];
            CW_HOLDS(world, a->nid.v < b->nid.v, "node %u is in the view twice", a->nid.v);
            bool both_up = a->state == SH_NODE_UP && b->state == SH_NODE_UP;
            CW_HOLDS(world, !both_up || !a->instance || a->instance != b->instance,
                     "one process is up as node %u and node %u", a->nid.v, b->nid.v);
            CW_HOLDS(world, !both_up || strcmp(a->address, b->address) != 0,
                     "nodes %u and %u are up at one address", a->nid.v, b->nid.v);
        }
    }
}

void cw_view_seen(struct cw_host *host, uint64_t *epoch, const struct sh_view *view)
{
    struct cw_world *world = host->world;
    CW_HOLDS(world, view->epoch >= *epoch,
             "host %u was at epoch %" PRIu64 " and is now at %" PRIu64, host->node, *epoch,
             view->epoch);
    *epoch = view->epoch;
    cw_leases_view_seen(world, view);
    if (view->epoch >= CW_EPOCHS)
        return;
    uint64_t hash = view_hash(view);
    uint64_t *known = &world->views[view->epoch];
    if (*known == hash)
        return;
    CW_HOLDS(world, !*known, "host %u has another view of epoch %" PRIu64 " than others",
             host->node, view->epoch);
    *known = hash;
    view_is_sound(world, view);
    cw_tell(world, host->node, "first with view(epoch, nodes)", view->epoch, view->count);
}

/* --- Registers ---------------------------------------------------------------------------------
 */

void cw_content_make(uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t value)
{
    if (!value) { /* as it was created */
        memset(bytes, 0, size);
        return;
    }
    sh_store64(bytes, value);
    uint64_t word = sh_mix64(cid.v ^ sh_mix64(value));
    uint8_t tail[8];
    sh_store64(tail, word);
    for (uint32_t at = 8; at < size; at++)
        bytes[at] = tail[at % 8];
}

bool cw_content_read(const uint8_t *bytes, uint32_t size, shoal_cid cid, uint64_t *value_out)
{
    if (!bytes || size < 8)
        return false;
    uint64_t value = sh_load64(bytes);
    uint8_t tail[8];
    sh_store64(tail, value ? sh_mix64(cid.v ^ sh_mix64(value)) : 0);
    for (uint32_t at = 8; at < size; at++) {
        if (bytes[at] != tail[at % 8])
            return false;
    }
    *value_out = value;
    return true;
}

static void lost_set(struct cw_world *world, struct cw_chunk *chunk, bool is_lost)
{
    if (is_lost && !chunk->is_lost)
        world->result->lost++;
    else if (!is_lost && chunk->is_lost)
        world->result->lost--;
    chunk->is_lost = is_lost;
}

void cw_created(struct cw_slot *slot, shoal_cid cid)
{
    struct cw_world *world = slot->host->world;
    unsigned place;
    for (unsigned i = 0; i < CW_CHUNKS; i++) {
        struct cw_chunk *chunk = &world->chunks[i];
        if (chunk->state == CW_FREE || chunk->cid.v != cid.v)
            continue;
        CW_HOLDS(world, chunk->state == CW_GONE || chunk->is_lost || chunk->is_removing,
                 "chunk %u:%" PRIu64 " was created twice", shoal_cid_creator(cid).v,
                 shoal_cid_local(cid));
        chunk->state = CW_FREE;
        chunk->generation = ++world->generations;
    }
    world->result->creates++;
    if (!cw_place_find(world, &place))
        return;
    world->chunks[place] = (struct cw_chunk){.state = CW_LIVE,
                                             .cid = cid,
                                             .size = slot->size,
                                             .generation = ++world->generations,
                                             .has_writer = true,
                                             .writer = slot->host->index,
                                             .writer_slot = slot->index};
    /* A node that had it may have died meanwhile. */
    lost_set(world, &world->chunks[place],
             slot->deaths != world->deaths && cw_servers_of(world, cid) == 0);
    cw_tell(world, slot->host->node, "created(chunk, bytes)", cid.v, slot->size);
}

void cw_read_seen(struct cw_slot *slot, const uint8_t *bytes, uint32_t size)
{
    struct cw_world *world = slot->host->world;
    struct cw_chunk *chunk = &world->chunks[slot->chunk];
    unsigned creator = shoal_cid_creator(chunk->cid).v;
    uint64_t local = shoal_cid_local(chunk->cid), value = 0;
    bool is_good = cw_content_read(bytes, size, chunk->cid, &value);
    cw_tell(world, slot->host->node, "read(chunk, value)", chunk->cid.v, value);
    if ((slot->was_gone || chunk->is_removing) && is_good && size == CW_WORD_BYTES)
        return;           /* the ID was given to a program, which judges by itself what is read */
    if (slot->was_gone) { /* the ID may have been given out anew, to one who never heard of it */
        CW_HOLDS(world, is_good && value == 0,
                 "chunk %u:%" PRIu64 " was read, value %" PRIu64 ", after it had been removed",
                 creator, local, value);
        return;
    }
    if (chunk->is_removing && value == 0)
        return; /* as above: the removal was done meanwhile */
    CW_HOLDS(world, is_good && size == chunk->size,
             "chunk %u:%" PRIu64 " has bytes that nobody wrote", creator, local);
    CW_HOLDS(world, value >= slot->least,
             "a stale read: chunk %u:%" PRIu64 " has value %" PRIu64 ", and had %" PRIu64
             " before the read began",
             creator, local, value, slot->least);
    CW_HOLDS(world, value <= chunk->begun,
             "chunk %u:%" PRIu64 " has value %" PRIu64 ", which nobody has written", creator, local,
             value);
    if (value > chunk->seen)
        chunk->seen = value;
}

/* --- Locks -------------------------------------------------------------------------------------
 */

void cw_locked(struct cw_slot *slot)
{
    struct cw_world *world = slot->host->world;
    struct cw_chunk *chunk = &world->chunks[slot->chunk];
    uint64_t now = sh_world_now(world->sim), now_there = cw_now(slot->host);
    uint64_t until_there = slot->sent_ns + slot->lease_ns;
    /* The lease began when the request arrived, so the holder counts from when it was sent. Clocks
     * may differ by 2 % in all, which is left out at its end. */
    uint64_t left = until_there > now_there ? until_there - now_there : 0;
    const struct cw_slot *owner = chunk->lock_owner;
    /* A client's locks fall with its connection. */
    bool is_held = owner && now < chunk->lock_until_ns &&
                   chunk->lock_losses == sh_world_losses(world->sim, owner->host->node);
    cw_tell(world, slot->host->node, "locked(chunk, token)", chunk->cid.v, slot->token);
    if (chunk->state != CW_LIVE || chunk->is_removing)
        return; /* its locks fell with it, and the ID may be another chunk's by now */
    if (!left)
        return; /* the answer comes when the lease is over, and another may have had it since */
    CW_HOLDS(world, !is_held, "chunk %u:%" PRIu64 " is locked twice",
             shoal_cid_creator(chunk->cid).v, shoal_cid_local(chunk->cid));
    uint64_t margin = slot->lease_ns / 50 + left / 20;
    chunk->lock_owner = slot;
    chunk->lock_until_ns = now + (left > margin ? left - margin : 0);
    chunk->lock_losses = slot->sent_losses; /* it may have fallen before its answer came */
    world->result->locks++;
}

void cw_unlocked(struct cw_slot *slot)
{
    struct cw_chunk *chunk = &slot->host->world->chunks[slot->chunk];
    if (chunk->lock_owner == slot)
        chunk->lock_owner = NULL;
}

/* --- Copies ------------------------------------------------------------------------------------
 */

/* A node says of all chunks that it created that it has them, unless it gave them away; also of those of
 * its former lives, and of others' that those had, which are gone. A process whose life is over serves nothing, whatever
 * it says. */
static bool serves(const struct cw_host *host, shoal_cid cid)
{
    sh_lid lid;
    uint32_t size;
    if (!host->chunks || cw_is_over(host))
        return false;
    shoal_nid self = sh_msg_nid(host->msg);
    if (sh_holdings_look(sh_chunks_holdings(host->chunks), self, cid, false, &lid))
        return false;
    bool may_be_former =
        shoal_cid_creator(cid).v != self.v || shoal_cid_local(cid) <= host->ids_base;
    return !may_be_former || !sh_store_size(host->store, lid, &size);
}

unsigned cw_servers_of(struct cw_world *world, shoal_cid cid)
{
    unsigned servers = 0;
    for (unsigned i = 0; i < world->config.peers; i++)
        servers += serves(cw_peer(world, i), cid);
    return servers;
}

bool cw_is_writable(struct cw_world *world, shoal_cid cid)
{
    for (unsigned i = 0; i < world->config.peers; i++) {
        const struct cw_host *host = cw_peer(world, i);
        sh_lid lid;
        if (serves(host, cid) && !sh_holdings_look(sh_chunks_holdings(host->chunks),
                                                   sh_msg_nid(host->msg), cid, true, &lid))
            return true;
    }
    return false;
}

void cw_copies_lost(struct cw_host *host)
{
    struct cw_world *world = host->world;
    shoal_nid self = sh_msg_nid(host->msg);
    world->deaths++;
    for (unsigned i = 0; i < CW_CHUNKS; i++) {
        struct cw_chunk *chunk = &world->chunks[i];
        uint32_t size;
        if (chunk->state != CW_LIVE || chunk->is_lost || !host->store)
            continue;
        bool has = !sh_store_size(host->store, sh_holdings_lid(self, chunk->cid), &size);
        if (!has && !chunk->is_removing)
            continue;
        /* What others serve is not lost with an old copy, nor with one that was to replace it. The
         * same with what it has just removed, and has not said so. */
        lost_set(world, chunk,
                 serves(host, chunk->cid) || (has && cw_servers_of(world, chunk->cid) == 0));
    }
    cw_words_lost(host);
}

static void watch_chunk(struct cw_world *world, struct cw_chunk *chunk)
{
    unsigned servers = cw_servers_of(world, chunk->cid);
    CW_HOLDS(world, servers <= 1, "chunk %u:%" PRIu64 " is served by two nodes",
             shoal_cid_creator(chunk->cid).v, shoal_cid_local(chunk->cid));
    if (servers)
        lost_set(world, chunk, false); /* it was moving, and its move has ended well */
}

bool cw_watch(void *arg)
{
    struct cw_world *world = arg;
    uint64_t now = sh_world_now(world->sim);
    if (world->result->failed)
        return true;
    if (now < world->watched_ns + WATCH_NS)
        return false;
    world->watched_ns = now;
    world->watched_part = (world->watched_part + 1) % CW_WATCH_PARTS;
    cw_leases_watch(world);
    cw_available_watch(world);
    for (unsigned i = world->watched_part; i < CW_CHUNKS; i += CW_WATCH_PARTS) {
        if (world->chunks[i].state == CW_LIVE)
            watch_chunk(world, &world->chunks[i]);
    }
    cw_programs_watch(world);
    return world->result->failed;
}

/* --- The end -----------------------------------------------------------------------------------
 */

/* Whether it runs, and has that view in all its parts. */
static bool has_view(const struct cw_host *host, uint64_t epoch)
{
    if (!host->superpeer && !host->directory)
        return false;
    return (!host->superpeer || sh_superpeer_view(host->superpeer)->epoch == epoch) &&
           (!host->directory || sh_directory_epoch(host->directory) == epoch);
}

/* A host that is not as it should be yet, and why; NULL: all are. */
static const struct cw_host *host_behind(struct cw_world *world, const char **why_out)
{
    const struct cw_host *first = &world->hosts[0];
    uint64_t epoch = first->superpeer ? sh_superpeer_view(first->superpeer)->epoch : 0;
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        *why_out = "has another view";
        bool is_node = host->kind < CW_CLIENT || (host->kind == CW_SPARE && host->superpeer);
        if (is_node && !has_view(host, epoch))
            return host;
        *why_out = "has not joined";
        if (host->kind == CW_PEER && !cw_is_joined(host))
            return host;
        struct sh_node *found = NULL;
        if (host->kind == CW_PEER && world->hosts[0].superpeer)
            found =
                sh_view_find(sh_superpeer_view(world->hosts[0].superpeer), sh_msg_nid(host->msg));
        *why_out = "is not up in the view";
        if (host->kind == CW_PEER && (!found || found->state != SH_NODE_UP))
            return host;
        *why_out = "is in the view with other traits than its process was given";
        if (found && !cw_has_traits(host, &found->traits))
            return host;
    }
    return NULL;
}

static const struct cw_slot *slot_busy(struct cw_world *world)
{
    for (unsigned i = world->config.superpeers + world->config.peers; i < world->count; i++) {
        for (unsigned k = 0; k < CW_SLOTS; k++) {
            const struct cw_slot *slot = &world->hosts[i].slots[k];
            if (slot->op == CW_NONE || slot->op == CW_UNLOCK)
                continue;
            /* What died with its node while nobody knew is looked for in vain. */
            const struct cw_chunk *chunk = &world->chunks[slot->chunk];
            bool is_lost =
                slot->op != CW_CREATE && chunk->is_lost && cw_servers_of(world, chunk->cid) == 0;
            if (!is_lost)
                return slot;
        }
    }
    return NULL;
}

/* A chunk that should be there, and is not served by exactly one node. */
static const struct cw_chunk *chunk_unserved(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_CHUNKS; i++) {
        const struct cw_chunk *chunk = &world->chunks[i];
        if (chunk->state == CW_LIVE && !chunk->is_lost && !chunk->is_removing &&
            cw_servers_of(world, chunk->cid) != 1)
            return chunk;
    }
    return NULL;
}

bool cw_has_settled(void *arg)
{
    struct cw_world *world = arg;
    const struct cw_host *host;
    shoal_cid cid;
    const char *why;
    return cw_watch(world) ||
           (!cw_programs_wait(world) && !cw_zones_wait(world) && !host_behind(world, &why) &&
            !slot_busy(world) && !chunk_unserved(world) && !cw_leftover(world, &host, &cid));
}

/* Who has what of a chunk, for the story. */
static void tell_copies(struct cw_world *world, shoal_cid cid)
{
    for (unsigned i = 0; i < world->config.peers; i++) {
        struct cw_host *host = cw_peer(world, i);
        if (!host->chunks)
            continue;
        shoal_nid other = SHOAL_NID_NONE;
        shoal_cid last;
        uint32_t size = 0;
        enum sh_holding holding =
            sh_holdings_find(sh_chunks_holdings(host->chunks), cid, &last, &other);
        bool has = !sh_store_size(host->store, sh_holdings_lid(sh_msg_nid(host->msg), cid), &size);
        cw_tell(world, host->node, "has(chunk, bytes)", cid.v, has ? size : 0);
        cw_tell(world, host->node, "holds it as(kind, node)", (uint64_t)holding, other.v);
    }
}

void cw_not_settled(struct cw_world *world)
{
    const char *why = "";
    const struct cw_host *host = host_behind(world, &why);
    const struct cw_slot *slot = slot_busy(world);
    const struct cw_chunk *chunk = chunk_unserved(world);
    shoal_cid cid;
    static const char *const ops[] = {"nothing", "create", "put",   "get",
                                      "remove",  "lock",   "unlock"};
    for (unsigned i = 0; i < world->count; i++)
        cw_tell(world, i, "is at(epoch, that of the one beside)", world->hosts[i].epoch,
                world->hosts[i].inner_epoch);
    if (slot && slot->op != CW_CREATE)
        tell_copies(world, world->chunks[slot->chunk].cid);
    if (chunk)
        tell_copies(world, chunk->cid);
    if (host)
        cw_fail(world, "long after the last fault host %u %s", host->node, why);
    else if (slot)
        cw_fail(world,
                "long after the last fault a %s of client %u still fails with %s (chunk %u:%" PRIu64
                ")",
                ops[slot->op], slot->host->index, shoal_err_name(slot->err),
                shoal_cid_creator(world->chunks[slot->chunk].cid).v,
                shoal_cid_local(world->chunks[slot->chunk].cid));
    else if (chunk)
        cw_fail(world, "long after the last fault chunk %u:%" PRIu64 " is served by %u nodes",
                shoal_cid_creator(chunk->cid).v, shoal_cid_local(chunk->cid),
                cw_servers_of(world, chunk->cid));
    else if (cw_programs_wait(world))
        cw_fail(world, "long after the last fault %s", cw_programs_wait(world));
    else if (cw_zones_wait(world))
        cw_fail(world, "long after the last fault %s", cw_zones_wait(world));
    else if ((why = cw_leftover(world, &host, &cid))) {
        tell_copies(world, cid);
        cw_fail(world, "long after the last fault host %u has %s (%u:%" PRIu64 ")", host->node, why,
                shoal_cid_creator(cid).v, shoal_cid_local(cid));
    } else
        cw_fail(world, "long after the last fault all is well, but never at the same time");
}

/* What the stores hold, looked at from outside. */
static void chunk_check(struct cw_world *world, const struct cw_host *host,
                        const struct cw_chunk *chunk)
{
    uint32_t size = 0;
    uint64_t value = 0;
    sh_lid lid = sh_holdings_lid(sh_msg_nid(host->msg), chunk->cid);
    enum shoal_err err = sh_store_get(host->store, lid, world->scratch, CW_CHUNK_BYTES_MAX, &size);
    bool is_good = err == SHOAL_OK && size == chunk->size &&
                   cw_content_read(world->scratch, size, chunk->cid, &value);
    CW_HOLDS(
        world, is_good && value >= chunk->acked && value >= chunk->seen && value <= chunk->begun,
        "in the end chunk %u:%" PRIu64 " has value %" PRIu64 " (%s), acknowledged was %" PRIu64,
        shoal_cid_creator(chunk->cid).v, shoal_cid_local(chunk->cid), value, shoal_err_name(err),
        chunk->acked);
}

void cw_check_end(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_CHUNKS; i++) {
        const struct cw_chunk *chunk = &world->chunks[i];
        if (chunk->state != CW_LIVE || chunk->is_removing)
            continue;
        for (unsigned k = 0; k < world->config.peers; k++) {
            if (serves(cw_peer(world, k), chunk->cid))
                chunk_check(world, cw_peer(world, k), chunk);
        }
    }
    cw_programs_check(world);
}
