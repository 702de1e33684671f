/* What one operation of a simulated client asks for, and what its answer means. */
#include "base/assert.h"
#include "sim/cluster_world_int.h"

/* --- Beginning ------------------------------------------------------------------------------- */

/* A place for a chunk: an unused one, or one whose history is over. */
bool cw_place_find(struct cw_world *world, unsigned *place_out)
{
    for (unsigned tries = 0; tries < 16; tries++) {
        unsigned place = (unsigned)cw_below(world, CW_CHUNKS);
        const struct cw_chunk *chunk = &world->chunks[place];
        /* Chunks whose client died are watched for a while. */
        bool is_over = chunk->state == CW_GONE ||
                       (!chunk->has_writer && (chunk->is_lost || cw_below(world, 8) == 0));
        if (chunk->state != CW_FREE && !is_over)
            continue;
        *place_out = place;
        return true;
    }
    return false;
}

static struct cw_chunk *chunk_of(const struct cw_slot *slot)
{
    return &slot->host->world->chunks[slot->chunk];
}

/* Some chunk of the slot's, or of anybody's. */
static bool chunk_pick(struct cw_slot *slot, bool own, unsigned *chunk_out)
{
    struct cw_world *world = slot->host->world;
    for (unsigned tries = 0; tries < 2 * CW_CHUNKS; tries++) {
        unsigned at = (unsigned)cw_below(world, CW_CHUNKS);
        const struct cw_chunk *chunk = &world->chunks[at];
        bool is_own = chunk->has_writer && chunk->writer == slot->host->index &&
                      chunk->writer_slot == slot->index && chunk->state == CW_LIVE;
        if (chunk->state == CW_FREE || (own && !is_own))
            continue;
        *chunk_out = at;
        return true;
    }
    return false;
}

void cw_slot_begin_at(struct cw_slot *slot, enum cw_op op, unsigned at)
{
    slot->is_unclear = slot->is_asking_outcome = false;
    slot->begun_ns = cw_now(slot->host);
    slot->op = op;
    slot->chunk = at;
    struct cw_chunk *chunk = chunk_of(slot);
    slot->generation = chunk->generation;
    slot->least = chunk->acked > chunk->seen ? chunk->acked : chunk->seen;
    slot->was_gone = chunk->state == CW_GONE;
    if (op == CW_PUT)
        slot->value = ++chunk->begun;
    if (op == CW_REMOVE)
        chunk->is_removing = true;
    if (op == CW_LOCK) {
        slot->lease_ns = 100 * CW_MS + cw_below(slot->host->world, 2 * CW_S);
        slot->token = ++slot->host->world->tokens;
    }
}

bool cw_slot_begin(struct cw_slot *slot)
{
    struct cw_world *world = slot->host->world;
    uint64_t drawn = cw_below(world, 100);
    unsigned at = 0;
    slot->is_unclear = slot->is_asking_outcome = false;
    slot->begun_ns = cw_now(slot->host);
    if (!sh_directory_epoch(slot->host->directory))
        return false;
    if (drawn < 40 && chunk_pick(slot, false, &at)) {
        cw_slot_begin_at(slot, CW_GET, at);
    } else if (drawn < 78 && chunk_pick(slot, true, &at)) {
        cw_slot_begin_at(slot, CW_PUT, at);
    } else if (drawn < 84 && chunk_pick(slot, true, &at)) {
        cw_slot_begin_at(slot, CW_REMOVE, at);
    } else if (drawn < 90 && chunk_pick(slot, false, &at) && world->chunks[at].state == CW_LIVE) {
        cw_slot_begin_at(slot, CW_LOCK, at);
    } else {
        if (!cw_place_find(world, &at))
            return false;
        slot->op = CW_CREATE;
        slot->deaths = world->deaths;
        uint64_t most = cw_below(world, 8) ? 500 : CW_CHUNK_BYTES_MAX - CW_WORD_BYTES;
        slot->size = (uint32_t)(CW_WORD_BYTES + 1 + cw_below(world, most));
    }
    if (slot->op == CW_PUT || slot->op == CW_REMOVE)
        cw_tell(world, slot->host->node,
                slot->op == CW_PUT ? "puts(chunk, value)" : "removes(chunk)", chunk_of(slot)->cid.v,
                slot->value);
    return true;
}

bool cw_slot_target(struct cw_slot *slot, shoal_nid *nid_out)
{
    if (slot->number) { /* a create whose answer was lost is asked for where it may be */
        *nid_out = slot->number_nid;
        return true;
    }
    return sh_directory_pick_peer(slot->host->directory, nid_out) == SHOAL_OK;
}

/* --- Answers --------------------------------------------------------------------------------- */

/* The place in the world's table has become another chunk's while the operation was under way. */
static bool is_outdated(const struct cw_slot *slot)
{
    return chunk_of(slot)->generation != slot->generation;
}

static void removed(struct cw_slot *slot)
{
    struct cw_chunk *chunk = chunk_of(slot);
    cw_tell(slot->host->world, slot->host->node, "removed(chunk)", chunk->cid.v, 0);
    chunk->state = CW_GONE;
    chunk->has_writer = false;
    slot->host->world->result->removes++;
}

void cw_slot_absent(struct cw_slot *slot, enum shoal_err err)
{
    struct cw_world *world = slot->host->world;
    if (is_outdated(slot)) {
        cw_slot_over(slot);
        return;
    }
    struct cw_chunk *chunk = chunk_of(slot);
    bool may_be_absent = chunk->is_lost || chunk->is_removing;
    CW_HOLDS(world, may_be_absent,
             "chunk %u:%" PRIu64 " is gone (%s), though nobody removed it and no node with it died",
             shoal_cid_creator(chunk->cid).v, shoal_cid_local(chunk->cid), shoal_err_name(err));
    if (slot->op == CW_REMOVE && !chunk->is_lost && err == SHOAL_EFAILED) {
        cw_slot_again(slot, err);
        return;
    }
    if (slot->op == CW_REMOVE && err == SHOAL_ENOCHUNK)
        removed(slot);
    else if (slot->op == CW_PUT || slot->op == CW_REMOVE)
        chunk->has_writer = false;
    cw_slot_over(slot);
}

static void wrote(struct cw_slot *slot)
{
    struct cw_world *world = slot->host->world;
    struct cw_chunk *chunk = chunk_of(slot);
    SH_ASSERT(!is_outdated(slot));
    if (slot->op == CW_REMOVE) {
        removed(slot);
    } else {
        chunk->acked = slot->value;
        world->result->puts++;
        cw_tell(world, slot->host->node, "put(chunk, value)", chunk->cid.v, slot->value);
    }
    cw_slot_over(slot);
}

/* What came of a request that another node had run. */
static void outcome_read(struct cw_slot *slot, struct sh_reader *r)
{
    struct cw_world *world = slot->host->world;
    bool is_known = sh_get8(r);
    enum shoal_err err = (enum shoal_err)sh_get16(r);
    if (!is_known) {
        cw_number_finish(slot);
        slot->pause_until_ns = 0;
        return;
    }
    CW_HOLDS(world, err == SHOAL_OK || err == SHOAL_ENOCHUNK, "a write had ended with %s",
             shoal_err_name(err));
    if (err == SHOAL_OK)
        wrote(slot);
    else
        cw_slot_absent(slot, err);
}

static void got(struct cw_slot *slot, struct sh_reader *r)
{
    struct cw_world *world = slot->host->world;
    enum shoal_err err = (enum shoal_err)sh_get16(r);
    uint32_t size = sh_get32(r);
    if (err == SHOAL_ENOCHUNK) {
        cw_slot_absent(slot, err);
        return;
    }
    if (!is_outdated(slot)) {
        CW_HOLDS(world, err == SHOAL_OK, "a read ended with %s", shoal_err_name(err));
        if (err == SHOAL_OK)
            cw_read_seen(slot, sh_reader_take(r, size), size);
    }
    world->result->gets++;
    cw_slot_over(slot);
}

static void lock_answered(struct cw_slot *slot, struct sh_reader *r)
{
    enum shoal_err err = (enum shoal_err)sh_get16(r);
    if (slot->op == CW_UNLOCK) {
        cw_slot_over(slot);
        return;
    }
    if (err != SHOAL_OK || is_outdated(slot)) {
        cw_slot_over(slot);
        return;
    }
    cw_locked(slot);
    slot->op = CW_UNLOCK;
    slot->pause_until_ns = cw_now(slot->host) + cw_below(slot->host->world, slot->lease_ns);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct cw_slot *slot = request->arg;
    bool writes = slot->op == CW_PUT || slot->op == CW_REMOVE || slot->op == CW_CREATE;
    if (slot->host->is_dropping || slot->op == CW_NONE)
        return;
    if (err == SHOAL_OK)
        cw_leases_answered(slot->host->world, slot->asked_nid, slot->asked_ns);
    if (slot->op != CW_CREATE && is_outdated(slot)) {
        cw_slot_over(slot);
    } else if (slot->op == CW_LOCK || slot->op == CW_UNLOCK) {
        if (err == SHOAL_OK)
            lock_answered(slot, payload);
        else
            cw_slot_over(slot); /* it falls with its lease, if it was granted */
    } else if (err == SHOAL_OK && slot->is_asking_outcome) {
        outcome_read(slot, payload);
    } else if (err == SHOAL_OK && slot->op == CW_GET) {
        got(slot, payload);
    } else if (err == SHOAL_OK && slot->op == CW_CREATE) {
        cw_created(slot, (shoal_cid){sh_get64(payload)});
        cw_slot_over(slot);
    } else if (err == SHOAL_OK) {
        wrote(slot);
    } else if (slot->op != CW_CREATE &&
               (err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED || err == SHOAL_ELOST)) {
        cw_slot_absent(slot, err);
    } else {
        if ((err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT) && writes && !slot->is_asking_outcome)
            slot->is_unclear = true;
        else if (slot->op == CW_CREATE)
            cw_number_finish(slot); /* it was refused: another node may take it */
        cw_slot_again(slot, err);
    }
}

/* --- Requests -------------------------------------------------------------------------------- */

static enum shoal_err outcome_send(struct cw_slot *slot, shoal_nid nid)
{
    struct cw_host *host = slot->host;
    struct sh_out out;
    enum shoal_err err = sh_msg_request(host->msg, nid, SH_MOVES_OUTCOME, SH_MOVES_OUTCOME_BYTES,
                                        &slot->request, &out);
    if (err)
        return err;
    slot->is_asking_outcome = true;
    sh_put64(&out.w, chunk_of(slot)->cid.v);
    sh_put64(&out.w, host->client);
    sh_put16(&out.w, slot->number_nid.v);
    sh_put64(&out.w, slot->number);
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

static enum shoal_err write_send(struct cw_slot *slot, shoal_nid nid)
{
    struct cw_host *host = slot->host;
    struct cw_world *world = host->world;
    const struct cw_chunk *chunk = chunk_of(slot);
    if (slot->number && slot->number_nid.v != nid.v)
        cw_number_finish(slot);
    if (!slot->number)
        slot->number = sh_once_number(cw_numbers_of(host, nid));
    slot->number_nid = nid;
    struct sh_once_id id = {host->client, slot->number, cw_numbers_of(host, nid)->finished};
    sh_msg_type type = slot->op == CW_CREATE ? SH_CHUNKS_CREATE_ONCE
                       : slot->op == CW_PUT  ? SH_CHUNKS_PUT_ONCE
                                             : SH_CHUNKS_REMOVE_ONCE;
    size_t bytes = slot->op == CW_CREATE ? 4 : slot->op == CW_PUT ? 8 + chunk->size : 8;
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(host->msg, nid, type, SH_ONCE_PREFIX_BYTES + bytes, &slot->request, &out);
    if (err)
        return err;
    sh_once_id_put(&out.w, &id);
    if (slot->op == CW_CREATE)
        sh_put32(&out.w, slot->size);
    else
        sh_put64(&out.w, chunk->cid.v);
    if (slot->op == CW_PUT) {
        cw_content_make(world->scratch, chunk->size, chunk->cid, slot->value);
        sh_put_raw(&out.w, sh_bytes_make(world->scratch, chunk->size));
    }
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

static enum shoal_err get_send(struct cw_slot *slot, shoal_nid nid)
{
    struct sh_out out;
    enum shoal_err err =
        sh_msg_request(slot->host->msg, nid, SH_CHUNKS_GET, 12, &slot->request, &out);
    if (err)
        return err;
    sh_put64(&out.w, chunk_of(slot)->cid.v);
    sh_put32(&out.w, CW_CHUNK_BYTES_MAX);
    sh_msg_end(slot->host->msg, &out);
    return SHOAL_OK;
}

static enum shoal_err lock_send(struct cw_slot *slot, shoal_nid nid)
{
    struct cw_host *host = slot->host;
    bool locks = slot->op == CW_LOCK;
    struct sh_out out;
    enum shoal_err err = sh_msg_request(host->msg, nid, locks ? SH_LOCKS_LOCK : SH_LOCKS_UNLOCK,
                                        locks ? 41 : 24, &slot->request, &out);
    if (err)
        return err;
    slot->sent_losses = sh_world_losses(host->world->sim, host->node);
    if (locks)
        slot->sent_ns = cw_now(host);
    else
        cw_unlocked(slot);
    sh_put64(&out.w, chunk_of(slot)->cid.v);
    sh_put64(&out.w, slot->token);
    if (locks) {
        sh_put64(&out.w, slot->lease_ns);
        sh_put64(&out.w, 1); /* it does not wait */
        sh_put8(&out.w, 2);  /* to write */
    }
    sh_put64(&out.w, host->client);
    sh_msg_end(host->msg, &out);
    return SHOAL_OK;
}

void cw_slot_send(struct cw_slot *slot, shoal_nid nid)
{
    struct cw_host *host = slot->host;
    bool is_elsewhere = slot->is_unclear && slot->number_nid.v != nid.v;
    bool is_late = slot->is_unclear && cw_now(host) > slot->begun_ns + CW_REPEAT_NS;
    bool is_outdated_now = slot->op != CW_CREATE && is_outdated(slot);
    if (is_outdated_now || is_late) {
        if (!is_outdated_now && slot->op != CW_CREATE)
            chunk_of(slot)->has_writer = false; /* its last write stays unclear for good */
        cw_slot_over(slot);
        return;
    }
    slot->request = (struct sh_request){.done = on_answer, .arg = slot};
    slot->pause_until_ns = UINT64_MAX; /* until the answer */
    slot->asked_ns = sh_world_now(host->world->sim);
    slot->asked_nid = nid;
    slot->is_asking_outcome = false;
    enum shoal_err err;
    if (slot->op == CW_GET)
        err = get_send(slot, nid);
    else if (slot->op == CW_LOCK || slot->op == CW_UNLOCK)
        err = lock_send(slot, nid);
    else if (slot->op != CW_CREATE && is_elsewhere)
        err = outcome_send(slot, nid);
    else
        err = write_send(slot, nid);
    if (!err)
        return;
    if (slot->op == CW_CREATE && err != SHOAL_EAGAIN && err != SHOAL_EBUSY) {
        cw_slot_over(slot); /* the node is gone: if it created something, nobody knows the ID */
        return;
    }
    cw_slot_again(slot, err);
}

/* --- Moving chunks -----------------------------------------------------------------------------
 */

static void on_moved(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct cw_host *host = request->arg;
    (void)payload;
    host->is_moving = false;
    host->world->result->moves += err == SHOAL_OK;
}

void cw_move_something(struct cw_host *client)
{
    struct cw_world *world = client->world;
    client->move_after_ns = cw_now(client) + cw_below(world, world->config.move_gap_ns_max);
    if (world->config.is_still)
        return;
    const struct cw_host *from = cw_peer(world, (unsigned)cw_below(world, world->config.peers));
    const struct cw_host *to = cw_peer(world, (unsigned)cw_below(world, world->config.peers));
    const struct cw_chunk *chunk = &world->chunks[cw_below(world, CW_CHUNKS)];
    for (unsigned tries = 0; tries < 32 && chunk->state != CW_LIVE; tries++)
        chunk = &world->chunks[cw_below(world, CW_CHUNKS)];
    bool is_many = cw_below(world, 2);
    uint64_t job = cw_below(world, UINT64_MAX) | 1;
    bool anywhere = cw_below(world, 4) == 0;
    if (from == to || chunk->state == CW_FREE || !from->msg || !to->msg ||
        !sh_msg_nid(from->msg).v || !sh_msg_nid(to->msg).v)
        return;
    struct sh_out out;
    client->move = (struct sh_request){.done = on_moved, .arg = client};
    if (sh_msg_request(client->msg, sh_msg_nid(from->msg), SH_MOVES_MOVE, SH_MOVE_BYTES,
                       &client->move, &out))
        return;
    client->is_moving = true;
    shoal_nid creator = shoal_cid_creator(chunk->cid);
    sh_put64(&out.w, job);
    sh_put64(&out.w, is_many ? shoal_cid_make(creator, 1).v : chunk->cid.v);
    sh_put64(&out.w,
             is_many ? shoal_cid_make(creator, shoal_cid_local(chunk->cid) + 20).v : chunk->cid.v);
    sh_put16(&out.w, anywhere ? 0 : sh_msg_nid(to->msg).v);
    sh_put8(&out.w, 0);
    sh_put64(&out.w, 0);
    sh_put64(&out.w, 0);
    sh_msg_end(client->msg, &out);
    cw_tell(world, client->node, "asks to move(node, chunk)", sh_msg_nid(from->msg).v,
            chunk->cid.v);
}
