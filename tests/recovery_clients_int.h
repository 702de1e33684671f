/* The clients of world_recovery_test.c: programs on libshoal with several calls under way each. What is known of each chunk:
 * recovery_chunks_int.h. */
#ifndef TESTS_RECOVERY_CLIENTS_INT_H
#define TESTS_RECOVERY_CLIENTS_INT_H

#include "tests/recovery_chunks_int.h"

/* --- Answers ------------------------------------------------------------------------------------ */

static inline void rc_slot_end(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    if (slot->chunk && slot->op != RC_GET)
        slot->chunk->writers--;
    slot->op = RC_NONE;
    slot->pause_until_ns = rc_now(slot->client) + rw_below(rc->rw, 6 * MS);
}

static inline struct rc_chunk *rc_chunk_find(struct rc *rc, shoal_cid cid)
{
    for (unsigned i = 0; i < rc->chunk_count; i++) {
        if (rc->chunks[i].cid.v == cid.v)
            return &rc->chunks[i];
    }
    return NULL;
}

static inline void rc_created(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    shoal_cid cid = slot->call.cid;
    struct rc_chunk *chunk = rc_chunk_find(rc, cid);
    if (slot->counter || slot->word) {
        *(slot->counter ? &slot->counter->cid : &slot->word->cid) = cid;
        if (chunk)
            chunk->is_loose = chunk->is_over = true;
        return;
    }
    if (!chunk) {
        SH_ASSERT(rc->chunk_count < RC_CHUNKS);
        chunk = &rc->chunks[rc->chunk_count++];
        *chunk = (struct rc_chunk){.cid = cid, .seen = RC_ABSENT};
    } else if (!rc_may_be(chunk, RC_ABSENT, rc_needed(rc, chunk))) {
        rc_chunk_print(chunk);
        RW_FAIL(rc->rw, "chunk %" PRIx64 " was created twice", cid.v);
    }
    if (chunk->writers && chunk->writes[chunk->count - 1].op != RC_REMOVE)
        RW_FAIL(rc->rw, "chunk %" PRIx64 " was created while it is written", cid.v);
    if (chunk->count > RC_WRITES - 2 || (chunk->is_loose && chunk->is_over)) {
        chunk->is_over = true; /* there is no place for what it is now */
        chunk->is_loose = true;
        return;
    }
    chunk->is_loose = slot->is_loose;
    chunk->writes[chunk->count++] = (struct rc_write){
        .op = RC_CREATE, .level = slot->level, .size = slot->size, .acked = ++rc->rw->moment};
}

static inline void rc_read(struct rc_slot *slot, int state)
{
    struct rc *rc = slot->client->rc;
    struct rc_chunk *chunk = slot->chunk;
    rc->reads++;
    if (state == RC_ANEW)
        return;
    if (!rc_may_be(chunk, state, slot->least)) {
        print_message("%s%s\n", shoal_err_name(slot->call.err),
                      chunk->may_be_lost ? ", of a chunk that may be lost" : "");
        rc_chunk_print(chunk);
        rc->where(chunk->cid);
        RW_FAIL(rc->rw, "chunk %" PRIx64 " is read as of write %d, after %d was acknowledged",
                chunk->cid.v, state, slot->least);
    }
    if (state >= 0 && state > chunk->seen && rc_is_firm(rc, chunk->writes[state].level))
        chunk->seen = state;
}

/* A loose chunk may be gone, also with a zone that is lost, or of another size than was acknowledged. */
static inline bool rc_loose_ends(struct rc_slot *slot, enum shoal_err err)
{
    bool may_be = slot->chunk && slot->chunk->is_loose &&
                  (err == SHOAL_ENOCHUNK || err == SHOAL_ELOST || err == SHOAL_ESIZE ||
                   err == SHOAL_EDIFFERS);
    if (may_be) {
        slot->chunk->is_over = true;
        slot->client->rc->gone++;
    }
    return may_be;
}

static inline void rc_added(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    struct rc_counter *counter = slot->counter;
    uint64_t before = slot->call.value;
    if (before >= RC_VALUES || before >= counter->begun || before < slot->expected ||
        counter->is_told[before])
        RW_FAIL(rc->rw,
                "counter %" PRIx64 ": an addition finds %" PRIu64
                " (told before: %d), after %" PRIu64 " were made and %" PRIu64 " begun",
                counter->cid.v, before, before < RC_VALUES && counter->is_told[before],
                slot->expected, counter->begun);
    counter->is_told[before] = true;
    counter->added++;
    rc->adds++;
}

static inline void rc_word_seen(struct rc *rc, struct rc_word *word, uint64_t value)
{
    if (value >= word->count || word->values[value].state == RC_VALUE_NOT)
        RW_FAIL(rc->rw,
                "word %" PRIx64 " has value %" PRIu64
                ", of which somebody was told that it was not put",
                word->cid.v, value);
}

static inline void rc_word_put(struct rc_slot *slot, bool is_put)
{
    struct rc *rc = slot->client->rc;
    struct rc_word *word = slot->word;
    word->values[slot->value].state = is_put ? RC_VALUE_PUT : RC_VALUE_NOT;
    if (!is_put) {
        rc->words_not++;
        return;
    }
    if (word->values[slot->expected].is_followed)
        RW_FAIL(rc->rw, "word %" PRIx64 ": value %" PRIu64 " was replaced twice", word->cid.v,
                slot->expected);
    word->values[slot->expected].is_followed = true;
    rc->words_put++;
}

/* Whether an error is one that a call may end with: where a node is alone for seconds there is no backup. A create names a peer, which may be gone. */
static inline bool rc_may_fail(const struct rc_slot *slot, enum shoal_err err)
{
    if (slot->op != RC_CREATE)
        return err == SHOAL_ENOBACKUP || (slot->op == RC_RESIZE && err == SHOAL_EFULL);
    return err == SHOAL_ENONODE || err == SHOAL_EFAILED || err == SHOAL_EFULL ||
           err == SHOAL_ECONNLOST || err == SHOAL_ENOBACKUP || err == SHOAL_EUNREACHABLE ||
           err == SHOAL_ETIMEOUT || err == SHOAL_ESTOPPED;
}

static inline bool rc_failed(struct rc_slot *slot, enum shoal_err err)
{
    struct rc *rc = slot->client->rc;
    /* LOST: it is not there, and a zone of its node is lost, which may have had it: as one that never had backups is. */
    if (slot->op == RC_GET && err == SHOAL_ELOST && slot->chunk->may_be_lost) {
        rc->told_lost++;
        return false;
    }
    if (slot->op == RC_GET && (err == SHOAL_ENOCHUNK || err == SHOAL_ELOST)) {
        rc_read(slot, RC_ABSENT);
        return false;
    }
    if (slot->op == RC_WORD_PUT && err == SHOAL_EDIFFERS) {
        rc_word_put(slot, false);
        return false;
    }
    if (rc_loose_ends(slot, err))
        return false;
    if (rc_may_fail(slot, err)) {
        if (slot->op == RC_CREATE && slot->counter)
            slot->counter->cid.v = 0;
        if (slot->op == RC_CREATE && slot->word)
            slot->word->cid.v = 0;
        if (slot->op == RC_RESIZE)
            slot->chunk->is_loose = slot->chunk->is_over = true;
        rc->refused++;
        return false;
    }
    if (slot->chunk)
        rc_chunk_print(slot->chunk);
    shoal_cid cid = slot->chunk     ? slot->chunk->cid
                    : slot->counter ? slot->counter->cid
                    : slot->word    ? slot->word->cid
                                    : SHOAL_CID_NONE;
    rc->where(cid);
    RW_FAIL(rc->rw,
            "a call (kind %d, level %d, chunk %" PRIx64 ") ends with %s after %" PRIu64 " ms",
            (int)slot->op, (int)slot->level, cid.v, shoal_err_name(err),
            (rc_now(slot->client) - slot->begun_ns) / MS);
    return true;
}

static inline void rc_wrote(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    slot->chunk->writes[slot->write].acked = ++rc->rw->moment;
    rc->removes += slot->op == RC_REMOVE;
    rc->resizes += slot->op == RC_RESIZE;
    rc->large += slot->op == RC_PUT && slot->size > 40000;
}

static inline void rc_answered(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    enum shoal_err err = slot->call.err;
    uint64_t ns = rc_now(slot->client) - slot->begun_ns;
    rc->longest_ns = ns > rc->longest_ns ? ns : rc->longest_ns;
    rc->calls++;
    if (slot->op == RC_GET && slot->chunk->is_over && slot->chunk->is_loose) {
        rc_slot_end(slot); /* the ID may be another's by now */
        return;
    }
    if (err) {
        (void)rc_failed(slot, err);
        rc_slot_end(slot);
        return;
    }
    switch (slot->op) {
    case RC_CREATE:
        rc_created(slot);
        break;
    case RC_GET:
        rc_read(slot, rc_state_of(rc, slot->chunk, slot->bytes, slot->call.size));
        break;
    case RC_ADD:
        rc_added(slot);
        break;
    case RC_WORD_GET:
        rc_word_seen(rc, slot->word, sh_load64(slot->bytes));
        slot->expected = sh_load64(slot->bytes);
        break;
    case RC_WORD_PUT:
        rc_word_put(slot, true);
        break;
    default:
        rc_wrote(slot);
        break;
    }
    rc_slot_end(slot);
}

static inline void rc_done(struct shoal_call *call)
{
    ((struct rc_slot *)call->arg)->is_done = true;
}

/* --- What a slot does next ---------------------------------------------------------------------- */

/* Whether the call has begun: too many may be under way, or there is no peer for a create. */
static inline bool rc_begun(enum shoal_err err)
{
    return !err;
}

static inline enum shoal_level rc_level(struct rc *rc, bool is_loose)
{
    return is_loose ? SHOAL_ASYNC
                    : (enum shoal_level)(rc->firm + rw_below(rc->rw, SHOAL_DURABLE - rc->firm + 1));
}

static inline void rc_call_begin(struct rc_slot *slot, enum rc_op op, enum shoal_level level)
{
    enum shoal_err err = shoal_level_use(level);
    SH_ASSERT(!err);
    slot->op = op;
    slot->level = level;
    slot->is_done = false;
    slot->begun_ns = rc_now(slot->client);
    slot->call = (struct shoal_call){.done = rc_done, .arg = slot};
}

static inline shoal_nid rc_where(struct rc *rc)
{
    for (unsigned tries = 0; tries < 20; tries++) {
        const struct rw_host *host = &rc->rw->hosts[rw_below(rc->rw, rc->rw->count)];
        if (host->is_peer && rw_is_joined(host))
            return host->nid;
    }
    return SHOAL_NID_NONE;
}

static inline bool rc_create_begin(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    slot->chunk = NULL;
    slot->is_loose = rw_below(rc->rw, 8) == 0;
    uint64_t most = rw_below(rc->rw, rc->large_one_in) ? RC_SMALL_MAX : RW_CHUNK_BYTES_MAX;
    slot->size = (uint32_t)(RC_SIZE_MIN + rw_below(rc->rw, most - RC_SIZE_MIN));
    if (slot->counter || slot->word) {
        slot->is_loose = false;
        slot->size = slot->word ? 16 : 8;
    } else if (rc->chunk_count > RC_CHUNKS - RC_CLIENTS_MAX * RC_SLOTS) {
        return false;
    }
    shoal_nid where = rc_where(rc);
    rc_call_begin(slot, RC_CREATE, rc_level(rc, slot->is_loose));
    return rc_begun(shoal_create_async(slot->client->store, where, slot->size, &slot->call));
}

/* Counters and words are made when they are used first. */
static inline bool rc_shared_begin(struct rc_slot *slot, bool is_counter)
{
    struct rc *rc = slot->client->rc;
    shoal *store = slot->client->store;
    shoal_cid *cid;
    if (is_counter)
        cid = &(slot->counter = &rc->counters[rw_below(rc->rw, RC_COUNTERS)])->cid;
    else
        cid = &(slot->word = &rc->words[rw_below(rc->rw, RC_WORDS)])->cid;
    if (cid->v == 1)
        return false; /* it is being made */
    if (!cid->v) {
        if (!rc_create_begin(slot))
            return false;
        cid->v = 1;
        return true;
    }
    enum shoal_level level = rc_level(rc, false);
    if (is_counter) {
        slot->expected = slot->counter->added;
        if (slot->counter->begun == RC_VALUES)
            return false;
        slot->counter->begun++;
        rc_call_begin(slot, RC_ADD, level);
        if (rc_begun(shoal_add_async(store, *cid, 0, 8, 1, &slot->call)))
            return true;
        slot->counter->begun--;
        return false;
    }
    rc_call_begin(slot, RC_WORD_GET, level);
    return rc_begun(shoal_get_async(store, *cid, slot->bytes, 16, &slot->call));
}

/* What was read is replaced by a value of this slot's. */
static inline bool rc_word_put_begin(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    struct rc_word *word = slot->word;
    if (word->count == RC_VALUES)
        return false;
    slot->value = word->count++;
    word->values[slot->value].state = RC_VALUE_BEGUN;
    memset(slot->expected_bytes, 0, 16);
    memset(slot->bytes, 0, 16);
    sh_store64(slot->expected_bytes, slot->expected);
    sh_store64(slot->bytes, slot->value);
    rc_call_begin(slot, RC_WORD_PUT, rc_level(rc, false));
    if (rc_begun(shoal_put_if_async(slot->client->store, word->cid, slot->expected_bytes, 16,
                                    slot->bytes, 16, &slot->call)))
        return true;
    word->values[slot->value].state = RC_VALUE_NOT;
    return false;
}

static inline struct rc_chunk *rc_chunk_pick(struct rc *rc, bool to_write)
{
    for (unsigned tries = 0; rc->chunk_count && tries < 40; tries++) {
        struct rc_chunk *chunk = &rc->chunks[rw_below(rc->rw, rc->chunk_count)];
        bool is_there = chunk->writes[chunk->count - 1].op != RC_REMOVE;
        bool is_free = !chunk->writers && !chunk->is_over && chunk->count < RC_WRITES - 3;
        if (chunk->is_over && chunk->is_loose)
            continue;
        if (!to_write || (is_there && is_free))
            return chunk;
    }
    return NULL;
}

static inline bool rc_write_begin(struct rc_slot *slot, enum rc_op op)
{
    struct rc *rc = slot->client->rc;
    struct rc_chunk *chunk = slot->chunk;
    shoal *store = slot->client->store;
    uint32_t size = chunk->writes[chunk->count - 1].size;
    enum shoal_level level =
        rc_level(rc, chunk->is_loose || (op == RC_PUT && rw_below(rc->rw, 4) == 0));
    enum shoal_err err;
    if (op == RC_RESIZE) {
        uint64_t most = rw_below(rc->rw, rc->large_one_in) ? 2 * RC_SMALL_MAX : RW_CHUNK_BYTES_MAX;
        uint32_t other = (uint32_t)(RC_SIZE_MIN + rw_below(rc->rw, most - RC_SIZE_MIN));
        size = other == size ? size + 1 : other;
    }
    slot->size = size;
    slot->write = chunk->count++;
    chunk->writes[slot->write] = (struct rc_write){.op = op, .level = level, .size = size};
    chunk->writers++;
    rc_call_begin(slot, op, level);
    if (op == RC_PUT) {
        rc_content_make(slot->bytes, size, chunk->cid, slot->write);
        err = shoal_put_async(store, chunk->cid, slot->bytes, size, &slot->call);
    } else if (op == RC_RESIZE) {
        err = shoal_resize_async(store, chunk->cid, size, &slot->call);
    } else {
        err = shoal_remove_async(store, chunk->cid, &slot->call);
    }
    if (rc_begun(err))
        return true;
    chunk->count--;
    chunk->writers--;
    return false;
}

static inline bool rc_get_begin(struct rc_slot *slot, struct rc_chunk *chunk)
{
    slot->chunk = chunk;
    slot->least = chunk->is_loose ? RC_ABSENT : rc_needed(slot->client->rc, chunk);
    rc_call_begin(slot, RC_GET, SHOAL_ASYNC);
    return rc_begun(shoal_get_async(slot->client->store, chunk->cid, slot->bytes,
                                    RW_CHUNK_BYTES_MAX, &slot->call));
}

static inline bool rc_slot_begin(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    if (slot->word && slot->expected != UINT64_MAX) {
        bool is_begun = rc_word_put_begin(slot);
        slot->expected = is_begun ? slot->expected : UINT64_MAX;
        return is_begun;
    }
    slot->chunk = NULL;
    slot->counter = NULL;
    slot->word = NULL;
    uint64_t drawn = rw_below(rc->rw, 100);
    if (drawn < 12)
        return rc_shared_begin(slot, true);
    if (drawn < 20)
        return rc_shared_begin(slot, false);
    struct rc_chunk *chunk = drawn < 35 ? NULL : rc_chunk_pick(rc, drawn < 80);
    if (!chunk)
        return rc_create_begin(slot);
    slot->chunk = chunk;
    if (drawn >= 80)
        return rc_get_begin(slot, chunk);
    return rc_write_begin(slot, drawn < 65 ? RC_PUT : drawn < 74 ? RC_RESIZE : RC_REMOVE);
}

/* The next chunk that nobody has read since all are to be. */
static inline bool rc_read_next(struct rc_slot *slot)
{
    struct rc *rc = slot->client->rc;
    slot->counter = NULL;
    slot->word = NULL;
    while (rc->read_next < rc->chunk_count) {
        struct rc_chunk *chunk = &rc->chunks[rc->read_next++];
        if (chunk->is_over && chunk->is_loose)
            continue;
        return rc_get_begin(slot, chunk);
    }
    return false;
}

static inline unsigned rc_client_run(void *arg)
{
    struct rc_client *client = arg;
    struct rc *rc = client->rc;
    uint64_t now = rc_now(client);
    unsigned work = 0;
    bool writes = client->is_open && !client->is_dying && !client->is_operator;
    for (unsigned i = 0; writes && i < RC_SLOTS; i++) {
        struct rc_slot *slot = &client->slots[i];
        if (slot->op && slot->is_done) {
            bool is_word = slot->op == RC_WORD_GET;
            bool had_word = slot->op == RC_WORD_PUT;
            rc_answered(slot);
            if (had_word || !is_word)
                slot->expected = UINT64_MAX;
            work++;
        }
        if (slot->op || now < slot->pause_until_ns || (rc->is_still && !rc->is_reading_all))
            continue;
        bool is_begun = rc->is_reading_all ? rc_read_next(slot) : rc_slot_begin(slot);
        work += is_begun;
        if (!is_begun) {
            slot->op = RC_NONE;
            slot->word = NULL;
            slot->pause_until_ns = now + 5 * MS;
        }
    }
    return work;
}

static inline bool rc_is_idle(void *arg)
{
    const struct rc *rc = arg;
    for (unsigned i = 0; i < rc->client_count; i++) {
        for (unsigned k = 0; k < RC_SLOTS; k++) {
            if (rc->clients[i].slots[k].op)
                return false;
        }
    }
    return !rc->is_reading_all || rc->read_next >= rc->chunk_count;
}

static inline uint64_t rc_client_due(void *arg)
{
    const struct rc_client *client = arg;
    uint64_t due = SH_NEVER;
    for (unsigned i = 0; client->is_open && !client->is_operator && i < RC_SLOTS; i++) {
        const struct rc_slot *slot = &client->slots[i];
        if (slot->op && slot->is_done)
            return 0;
        if (!slot->op && (!client->rc->is_still || client->rc->is_reading_all) &&
            slot->pause_until_ns < due)
            due = slot->pause_until_ns;
    }
    return due;
}

/* No call is under way: each value that a counter had before an addition was told to somebody. */
static inline void rc_counters_check(const struct rc *rc)
{
    for (unsigned i = 0; i < RC_COUNTERS; i++) {
        const struct rc_counter *counter = &rc->counters[i];
        for (uint64_t k = 0; k < counter->added; k++) {
            if (!counter->is_told[k])
                RW_FAIL(rc->rw,
                        "counter %" PRIx64 ": of %" PRIu64 " additions nobody was told %" PRIu64,
                        counter->cid.v, counter->added, k);
        }
    }
}

/* --- The library's outside ---------------------------------------------------------------------- */

static inline uint64_t rc_on_now(void *arg)
{
    return rc_now(arg);
}

static inline uint64_t rc_on_wall(void *arg)
{
    const struct rc_client *client = arg;
    const struct sh_env *env = sh_world_env(client->rc->rw->world, client->node);
    return env->clock.wall_ns(env->clock.arg);
}

static inline void rc_step_add(void *arg, struct sh_step step)
{
    struct rc_client *client = arg;
    SH_ASSERT(client->step_count < RC_STEPS);
    client->steps[client->step_count++] = step;
}

static inline unsigned rc_library_run(void *arg)
{
    struct rc_client *client = arg;
    unsigned work = 0;
    for (unsigned i = 0; i < client->step_count; i++)
        work += client->steps[i].run(client->steps[i].arg);
    return work;
}

static inline uint64_t rc_library_due(void *arg)
{
    const struct rc_client *client = arg;
    return sh_steps_due_ns(client->steps, client->step_count);
}

static inline bool rc_wait(void *arg, struct sh_waiter *waiter, uint64_t deadline_ns)
{
    struct rc_client *client = arg;
    if (!client->is_in_fiber) { /* it is closed: time runs ahead */
        while (!sh_waiter_done(waiter) && rc_now(client) < deadline_ns) {
            if (!rc_library_run(client))
                client->jump_ns += S;
        }
        return sh_waiter_done(waiter);
    }
    client->waiter = waiter;
    client->deadline_ns = deadline_ns;
    sh_fiber_pause();
    client->waiter = NULL;
    return sh_waiter_done(waiter);
}

static inline void rc_sleep(struct rc_client *client, uint64_t ns)
{
    struct sh_waiter nobody = {0};
    (void)rc_wait(client, &nobody, rc_now(client) + ns);
}

/* Moves some chunks of a peer to another one. What is in the way is nobody's fault. */
static inline void rc_move(struct rc_client *client)
{
    struct rc *rc = client->rc;
    struct shoal_migration_sums sums = {0};
    shoal_nid from = rc_where(rc), to = rc_where(rc);
    if (!from.v || !to.v || from.v == to.v)
        return;
    const struct shoal_migration migration = {.first = {1},
                                              .last = {UINT64_MAX},
                                              .target = to,
                                              .bytes_max = 1 + rw_below(rc->rw, 200 << 10)};
    enum shoal_err err = shoal_migrate(client->store, from, &migration, NULL, NULL, &sums);
    (void)err;
    rc->moved += sums.chunks;
}

static inline bool rc_report_add(void *arg, const struct sh_recovery *recovery)
{
    struct rc *rc = arg;
    if (recovery->state == SH_RECOVERY_LOST) {
        SH_ASSERT(rc->reported_count < RC_REPORTED);
        rc->reported[rc->reported_count++] = recovery->zone.id;
    }
    return true;
}

/* A disk can't be declared lost while its node counts as up, nor once its node is forgotten. */
static inline void rc_operate(struct rc_client *client)
{
    struct rc *rc = client->rc;
    while (!client->is_dying && rc->disks_declared < rc->disks_lost_count) {
        enum shoal_err err = sh_client_disk_lost(client->store, rc->disks_lost[rc->disks_declared]);
        if (err && err != SHOAL_ENONODE)
            break;
        rc->disks_declared++;
    }
    if (!client->is_dying && rc->is_report_wanted) {
        rc->reported_count = 0;
        rc->is_report_wanted = sh_client_recoveries(client->store, rc_report_add, rc) != SHOAL_OK;
    }
}

static inline void rc_fiber(void *arg)
{
    struct rc_client *client = arg;
    struct rc *rc = client->rc;
    while (!client->is_dying && !client->is_open) {
        client->step_count = 0;
        if (sh_client_open_in(&client->outside, &client->options, &client->store)) {
            client->step_count = 0;
            rc_sleep(client, 50 * MS);
        } else {
            client->is_open = true;
        }
    }
    while (!client->is_dying) {
        rc_sleep(client, (20 + rw_below(rc->rw, 200)) * MS);
        if (!client->is_dying && client->is_operator)
            rc_operate(client);
        else if (!client->is_dying && rc->moves && !rc->is_still)
            rc_move(client);
    }
}

static inline unsigned rc_fiber_run(void *arg)
{
    struct rc_client *client = arg;
    if (sh_fiber_ended(client->fiber) ||
        (client->waiter && !sh_waiter_done(client->waiter) && rc_now(client) < client->deadline_ns))
        return 0;
    client->is_in_fiber = true;
    sh_fiber_resume(client->fiber);
    client->is_in_fiber = false;
    return 1;
}

static inline uint64_t rc_fiber_due(void *arg)
{
    const struct rc_client *client = arg;
    if (sh_fiber_ended(client->fiber))
        return SH_NEVER;
    return client->waiter && !sh_waiter_done(client->waiter) ? client->deadline_ns : 0;
}

/* --- Life --------------------------------------------------------------------------------------- */

static inline void rc_options(struct rc_client *client)
{
    const struct rw *rw = client->rc->rw;
    struct sh_options_error error;
    char text[RW_SUPERPEERS_MAX * SH_MSG_ADDRESS_MAX] = "";
    for (size_t used = 0, i = 0; i < rw->superpeer_count; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", i ? "," : "",
                                 rw->addresses[i]);
    enum shoal_err err = sh_options_init(&client->options);
    if (!err)
        err = sh_options_set(&client->options, "cluster", "test", "test", &error);
    if (!err)
        err = sh_options_set(&client->options, "connect", text, "test", &error);
    SH_ASSERT(!err);
    client->options.request_timeout_ns = RC_TIMEOUT_NS;
    client->options.connect_timeout_ns = S / 2;
    client->options.ring_bytes = 256 << 10;
    client->options.cache_ranges_max = 64;
}

static inline void rc_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct rc_client *client = arg;
    client->node = node;
    client->outside.env = *sh_world_env(world, node);
    client->outside.env.clock =
        (struct sh_clock){.now_ns = rc_on_now, .wall_ns = rc_on_wall, .arg = client};
    client->outside.crew =
        (struct sh_crew_world){.step_add = rc_step_add, .wait = rc_wait, .arg = client};
    client->fiber = sh_fiber_create(rc_fiber, client);
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "library", .run = rc_library_run, .due_ns = rc_library_due, .arg = client});
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "fiber", .run = rc_fiber_run, .due_ns = rc_fiber_due, .arg = client});
    sh_world_step_add(
        world, node,
        (struct sh_step){
            .name = "slots", .run = rc_client_run, .due_ns = rc_client_due, .arg = client});
}

static inline void rc_crash(void *arg, struct sh_world *world, unsigned node)
{
    struct rc_client *client = arg;
    (void)world;
    (void)node;
    client->is_dying = true;
    while (!sh_fiber_ended(client->fiber)) {
        if (!rc_library_run(client) && !rc_fiber_run(client))
            client->jump_ns += S;
        (void)rc_fiber_run(client);
    }
    shoal_close(client->store);
    sh_fiber_destroy(client->fiber);
    sh_options_destroy(&client->options);
}

static inline void rc_open(struct rc *rc, struct rw *rw, unsigned clients)
{
    *rc = (struct rc){.rw = rw,
                      .firm = SHOAL_REPLICATED,
                      .moves = true,
                      .large_one_in = rw->seed % 3 ? 12 : 4,
                      .client_count = clients};
    rc->chunks = calloc(RC_CHUNKS, sizeof *rc->chunks);
    rc->counters = calloc(RC_COUNTERS, sizeof *rc->counters);
    rc->words = calloc(RC_WORDS, sizeof *rc->words);
    rc->scratch = malloc(RW_CHUNK_BYTES_MAX);
    assert_true(rc->chunks && rc->counters && rc->words && rc->scratch);
    for (unsigned i = 0; i < RC_WORDS; i++) {
        rc->words[i].count = 1;
        rc->words[i].values[0].state = RC_VALUE_PUT;
    }
    for (unsigned i = 0; i <= clients; i++) {
        struct rc_client *client = &rc->clients[i];
        client->rc = rc;
        client->is_operator = i == clients;
        rc_options(client);
        for (unsigned k = 0; k < RC_SLOTS; k++) {
            client->slots[k] = (struct rc_slot){.client = client, .expected = UINT64_MAX};
            client->slots[k].bytes = malloc(RW_CHUNK_BYTES_MAX);
            assert_non_null(client->slots[k].bytes);
        }
        const struct sh_world_node node = {.boot = rc_boot, .crash = rc_crash, .arg = client};
        (void)sh_world_node_add(rw->world, &node);
    }
}

/* Before the world is. */
static inline void rc_close(struct rc *rc)
{
    for (unsigned i = 0; i <= rc->client_count; i++) {
        sh_world_crash(rc->rw->world, rc->clients[i].node);
        for (unsigned k = 0; k < RC_SLOTS; k++)
            free(rc->clients[i].slots[k].bytes);
    }
    free(rc->chunks);
    free(rc->counters);
    free(rc->words);
    free(rc->scratch);
}

#endif
