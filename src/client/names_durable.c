/* Changes of names on their way through the journal into the state. */
#include "client/names_durable_int.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"

#define TERM 1
#define APPLIED_AT_ONCE 64u
#define APPENDED_AT_ONCE 256u
#define SWEPT_AT_ONCE 64u

_Static_assert(sizeof SH_NAMES_LABEL - 1 <= SH_JOURNAL_LABEL_BYTES_MAX,
               "the journal takes the label");

static void change_end(struct sh_name_change *change, enum shoal_err err, bool is_unclear)
{
    change->result = (struct sh_metadata_result){.err = err, .cid = SHOAL_CID_NONE};
    change->is_unclear = is_unclear;
    change->done(change);
}

/* --- Into the journal -------------------------------------------------------------------------- */

void sh_names_begin(struct sh_names *names, struct sh_name_change *change)
{
    SH_ASSERT(!change->update || change->update->kind == SH_METADATA_NAME ||
              change->update->kind == SH_METADATA_UNNAME);
    change->next = NULL;
    change->is_unclear = false;
    sh_spin_take(&names->queue_lock);
    *names->end = change;
    names->end = &change->next;
    sh_spin_release(&names->queue_lock);
    names->config.wake(names->config.arg);
}

static struct sh_name_change *queue_pop(struct sh_names *names)
{
    sh_spin_take(&names->queue_lock);
    struct sh_name_change *change = names->first;
    if (change)
        names->first = change->next;
    if (!names->first)
        names->end = &names->first;
    sh_spin_release(&names->queue_lock);
    return change;
}

/* Reserves the memory to apply an update. ENOMEM. */
static enum shoal_err reserve(struct sh_names *names, unsigned shard,
                              const struct sh_metadata_update *update)
{
    struct sh_local_state *state = names->config.state;
    sh_lock_take(&state->lock);
    enum shoal_err err = sh_metadata_reserve(state->metadata, shard, update);
    sh_lock_release(&state->lock);
    return err;
}

static void append(struct sh_names *names, struct sh_name_change *change)
{
    const struct sh_metadata_update *update = change->update;
    unsigned number = update ? sh_metadata_shard(update) : 0;
    struct sh_names_shard *shard = &names->shards[number];
    enum shoal_err err = names->is_stuck ? sh_journal_trouble(names->journal) : SHOAL_OK;
    if (!err && update)
        err = reserve(names, number, update);
    if (err) {
        change_end(change, err, false);
        return;
    }
    SH_ASSERT(names->pending_count < SH_NAMES_PENDING_MAX);
    struct sh_names_pending *pending = sh_names_pending_at(names, names->pending_count);
    pending->change = change;
    pending->shard = (uint8_t)number;
    pending->size = 0;
    pending->lsn = sh_journal_last(names->journal);
    if (update) {
        struct sh_writer w = sh_writer_make(pending->bytes, sizeof pending->bytes);
        sh_metadata_update_put(&w, update);
        SH_ASSERT(sh_writer_ok(&w));
        pending->size = (uint16_t)(w.at - pending->bytes);
        pending->index = ++shard->last;
        pending->lsn = sh_journal_append(names->journal, number, pending->index, TERM, 0,
                                         sh_bytes_make(pending->bytes, pending->size));
    }
    names->pending_count++;
}

/* Whether another change may be appended; or will be refused, which takes no room. */
static bool has_room(const struct sh_names *names)
{
    return names->is_stuck ||
           (names->pending_count < SH_NAMES_PENDING_MAX && !sh_journal_is_full(names->journal));
}

static unsigned queue_append(struct sh_names *names)
{
    unsigned count = 0;
    while (count < APPENDED_AT_ONCE && has_room(names)) {
        struct sh_name_change *change = queue_pop(names);
        if (!change)
            break;
        append(names, change);
        count++;
    }
    return count;
}

/* --- Into the state ---------------------------------------------------------------------------- */

static struct sh_metadata_result apply(struct sh_names *names,
                                       const struct sh_names_pending *pending)
{
    struct sh_names_shard *shard = &names->shards[pending->shard];
    struct sh_metadata_update update;
    if (!pending->size)
        return (struct sh_metadata_result){.err = SHOAL_OK};
    enum shoal_err err = sh_metadata_update_get(sh_bytes_make(pending->bytes, pending->size),
                                                pending->shard, &update);
    SH_ASSERT(!err && pending->index == shard->applied + 1);
    shard->applied++;
    struct sh_metadata_result result =
        sh_metadata_apply(names->config.state->metadata, pending->shard, &update);
    SH_ASSERT(result.err != SHOAL_ENOMEM); /* it was reserved */
    return result;
}

/* Applies what is synced, oldest first; then, without the lock, ends the changes. */
static unsigned synced_apply(struct sh_names *names)
{
    struct sh_local_state *state = names->config.state;
    struct sh_name_change *done = NULL, **end = &done;
    sh_lsn synced = sh_journal_synced(names->journal);
    unsigned count = 0;
    if (!names->pending_count || sh_names_pending_at(names, 0)->lsn > synced)
        return 0;
    sh_lock_take(&state->lock);
    while (count < APPLIED_AT_ONCE && names->pending_count) {
        const struct sh_names_pending *pending = sh_names_pending_at(names, 0);
        if (pending->lsn > synced)
            break;
        struct sh_metadata_result result = apply(names, pending);
        if (pending->change) {
            pending->change->result = result;
            *end = pending->change;
            end = &pending->change->next;
        }
        names->pending_first = (names->pending_first + 1) % SH_NAMES_PENDING_MAX;
        names->pending_count--;
        count++;
    }
    pthread_cond_broadcast(&state->changed);
    sh_lock_release(&state->lock);
    *end = NULL;
    for (struct sh_name_change *change = done, *next; change; change = next) {
        next = change->next;
        change->done(change);
    }
    return count;
}

/* --- A disk that takes nothing ----------------------------------------------------------------- */

/* Ends all changes that are in the journal with the disk's error. They stay in the journal, and so
 * among the pending: another process may find them, so this one has to apply them once they are synced. */
static unsigned pending_forsake(struct sh_names *names, enum shoal_err err)
{
    unsigned count = 0;
    for (unsigned i = 0; i < names->pending_count; i++) {
        struct sh_names_pending *pending = sh_names_pending_at(names, i);
        struct sh_name_change *change = pending->change;
        pending->change = NULL;
        if (change)
            change_end(change, err, pending->size > 0);
        count += change != NULL;
    }
    return count;
}

static unsigned trouble_look(struct sh_names *names, uint64_t now_ns)
{
    enum shoal_err trouble = sh_journal_trouble(names->journal);
    if (!trouble) {
        names->trouble_ns = 0;
        names->is_stuck = false;
        return 0;
    }
    if (!names->trouble_ns)
        names->trouble_ns = now_ns ? now_ns : 1;
    if (names->is_stuck || now_ns - names->trouble_ns < SH_NAMES_PATIENCE_NS)
        return 0;
    names->is_stuck = true;
    return 1 + pending_forsake(names, trouble);
}

/* --- The step ---------------------------------------------------------------------------------- */

static unsigned garbage_sweep(struct sh_names *names)
{
    struct sh_local_state *state = names->config.state;
    if (!names->is_garbage)
        return 0;
    sh_lock_take(&state->lock);
    names->is_garbage = sh_metadata_sweep(state->metadata, SWEPT_AT_ONCE);
    sh_lock_release(&state->lock);
    return names->is_garbage;
}

unsigned sh_names_step(struct sh_names *names)
{
    uint64_t now_ns = sh_now(&names->config.env.clock);
    unsigned work = queue_append(names);
    work += sh_journal_step(names->journal, now_ns);
    work += trouble_look(names, now_ns);
    work += synced_apply(names);
    return work + garbage_sweep(names);
}

uint64_t sh_names_due_ns(const struct sh_names *names)
{
    uint64_t due_ns = sh_journal_due_ns(names->journal, sh_now(&names->config.env.clock));
    uint64_t stuck_ns =
        names->trouble_ns && !names->is_stuck ? names->trouble_ns + SH_NAMES_PATIENCE_NS : SH_NEVER;
    return due_ns < stuck_ns ? due_ns : stuck_ns;
}

struct sh_journal_counts sh_names_counts(const struct sh_names *names)
{
    return sh_journal_counts(names->journal);
}

/* --- Life -------------------------------------------------------------------------------------- */

enum shoal_err sh_names_check(const struct sh_env *env)
{
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX];
    size_t size;
    enum shoal_err err = sh_journal_peek(env, label, sizeof label, &size);
    if (err)
        return err == SHOAL_ENONAME ? SHOAL_OK : err;
    bool is_own = size == sizeof SH_NAMES_LABEL - 1 && !memcmp(label, SH_NAMES_LABEL, size);
    return is_own ? SHOAL_OK : SHOAL_ECLUSTER;
}

static enum shoal_err journal_open(struct sh_names *names)
{
    struct sh_journal_stream streams[SH_SHARDS];
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        names->shards[i].names = names;
        streams[i] = sh_names_stream(names, i);
    }
    const struct sh_journal_config config = {
        .env = names->config.env,
        .label = sh_bytes_text(SH_NAMES_LABEL),
        .segment_bytes = names->config.segment_bytes,
        .bytes_kept = names->config.bytes_kept,
        .streams = streams,
        .streams_count = SH_SHARDS,
    };
    enum shoal_err err = sh_journal_open(&config, &names->journal);
    return err ? err : sh_names_loaded(names);
}

enum shoal_err sh_names_open(const struct sh_names_config *config, struct sh_names **names_out)
{
    struct sh_names *names = calloc(1, sizeof *names);
    if (!names)
        return SHOAL_ENOMEM;
    names->config = *config;
    names->end = &names->first;
    sh_spin_init(&names->queue_lock, SH_LOCK_CLIENT);
    names->pending = malloc(SH_NAMES_PENDING_MAX * sizeof *names->pending);
    enum shoal_err err = names->pending ? journal_open(names) : SHOAL_ENOMEM;
    if (err) {
        sh_names_load_end(names);
        sh_names_close(names);
        return err;
    }
    *names_out = names;
    return SHOAL_OK;
}

void sh_names_close(struct sh_names *names)
{
    if (!names)
        return;
    SH_ASSERT(!names->first);
    for (unsigned i = 0; i < names->pending_count; i++)
        SH_ASSERT(!sh_names_pending_at(names, i)->change);
    sh_journal_close(names->journal);
    free(names->pending);
    free(names);
}
