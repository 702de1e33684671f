/* The ring's life: which shards are whose, reads and updates, messages. */
#include "ring/ring.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "ring/ring_int.h"

/* --- Life ------------------------------------------------------------------------------------ */

enum shoal_err sh_ring_create(const struct sh_ring_config *config, struct sh_ring **ring_out)
{
    SH_ASSERT(config->server && config->server <= SH_SUPERPEERS_MAX);
    SH_ASSERT(config->resend_ns && config->patience_ns);
    SH_ASSERT(config->entries_kept && config->piece_bytes >= 64);
    struct sh_ring *ring = calloc(1, sizeof *ring);
    if (!ring)
        return SHOAL_ENOMEM;
    ring->config = *config;
    ring->messages_end = &ring->messages;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        ring->shards[i].ring = ring;
    *ring_out = ring;
    return SHOAL_OK;
}

void sh_ring_destroy(struct sh_ring *ring)
{
    if (!ring)
        return;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_ring_shard *shard = &ring->shards[i];
        const struct sh_ring_fsm *fsm = &ring->config.fsm;
        SH_ASSERT(!shard->saving);
        sh_ring_lead_end(ring, i);
        if (shard->incoming.restore)
            (void)fsm->restore_end(fsm->arg, shard->incoming.restore, false);
        if (shard->loading)
            (void)fsm->restore_end(fsm->arg, shard->loading, false);
        sh_entries_reset(&shard->entries, 0, 0);
    }
    while (ring->messages) {
        struct sh_ring_message *message = ring->messages;
        ring->messages = message->next;
        free(message);
    }
    free(ring);
}

/* --- What the registry says ------------------------------------------------------------------ */

/* Whether all superpeers that are to be replicas of a shard are, so that no other copy is needed.
 * Until then any old copy may be what is left of the shard after the next disks were lost. */
static bool is_whole(const struct sh_ring *ring, unsigned number)
{
    uint64_t wanted = ring->shards[number].wanted;
    return wanted && !(wanted & ~ring->arcs.shards[number].replicas);
}

/* A shard has another version: this superpeer owns or holds it, or not, as the table says. */
static void version_take(struct sh_ring *ring, uint64_t now_ns, unsigned number,
                         const struct sh_shard *before)
{
    SH_ASSERT(ring->is_active && number < SH_SHARDS);
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_shard *now = &ring->arcs.shards[number];
    bool is_own = now->owner == ring->config.server;
    bool holds = now->replicas & sh_ring_own(ring);
    /* Over a version that was missed, others may have changed what they had answered. */
    bool was_owner = shard->owns && now->version == before->version + 1;
    shard->is_built = shard->search.is_open = false;
    if (!holds && is_whole(ring, number))
        sh_ring_shard_clear(ring, number);
    SH_ASSERT(!holds || shard->has); /* it was added when it had said that it has everything */
    if (is_own && holds) {
        sh_ring_incoming_drop(ring, number);
        sh_ring_lead_begin(ring, now_ns, number, was_owner);
        return;
    }
    sh_ring_lead_end(ring, number);
    if (is_own && !now->replicas)
        sh_ring_search_begin(ring, number);
}

static void arcs_take(struct sh_ring *ring, uint64_t now_ns, const struct sh_arcs *arcs,
                      bool is_start)
{
    struct sh_arcs before = ring->arcs;
    ring->arcs = *arcs;
    if (!ring->is_active)
        return;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        if (arcs->incarnations[nid] != before.incarnations[nid])
            ring->stalled_until_ns[nid] = 0;
    }
    for (unsigned i = 0; (is_start || arcs->up != before.up) && i < SH_SHARDS; i++) {
        ring->shards[i].wanted = sh_arc_wanted(arcs->up, i);
        ring->shards[i].successor = (uint8_t)sh_arc_successor(arcs->up, i);
    }
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_ring_shard *shard = &ring->shards[i];
        SH_ASSERT(arcs->shards[i].version >= before.shards[i].version);
        for (unsigned nid = 1; shard->owns && nid <= SH_SUPERPEERS_MAX; nid++) {
            if (arcs->incarnations[nid] != before.incarnations[nid])
                sh_ring_lead_forget(ring, i, nid);
        }
        if (is_start || arcs->shards[i].version != before.shards[i].version)
            version_take(ring, now_ns, i, &before.shards[i]);
        sh_ring_touch(ring, i);
    }
}

void sh_ring_start(struct sh_ring *ring, uint64_t now_ns, const struct sh_arcs *arcs)
{
    SH_ASSERT(!ring->is_active && ring->journal);
    ring->is_active = true;
    arcs_take(ring, now_ns, arcs, true);
}

void sh_ring_arcs_set(struct sh_ring *ring, uint64_t now_ns, const struct sh_arcs *arcs)
{
    arcs_take(ring, now_ns, arcs, false);
}

void sh_ring_lease_set(struct sh_ring *ring, uint64_t now_ns, uint64_t until_ns)
{
    if (now_ns >= ring->lease_ns)
        ring->dirty = UINT64_MAX; /* what waited for the lease alone */
    if (until_ns > ring->lease_ns)
        ring->lease_ns = until_ns;
}

/* --- Step ------------------------------------------------------------------------------------ */

/* A state that was made for a shard without replicas is on the disk: the registry may know. */
static void built_step(struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    struct sh_ring_shard *shard = &ring->shards[number];
    if (!shard->is_built || shard->has_lsn > ring->synced || shard->change.kind)
        return;
    SH_ASSERT(shard->has && !shard->owns);
    sh_ring_ask(ring, now_ns, number, SH_ARC_BUILT, ring->config.server);
}

unsigned sh_ring_step(struct sh_ring *ring, uint64_t now_ns)
{
    sh_lsn synced = sh_journal_synced(ring->journal);
    if (!ring->is_active)
        return 0;
    bool is_synced = synced != ring->synced;
    ring->synced = synced;
    bool is_due = now_ns >= ring->due_ns;
    if (is_due)
        ring->due_ns = now_ns + ring->config.resend_ns / 2;
    unsigned work = 0;
    uint64_t dirty = ring->dirty;
    ring->dirty = 0; /* what is left to do is for the next step */
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_ring_shard *shard = &ring->shards[i];
        bool is_dirty = dirty >> i & 1;
        if (is_due)
            sh_ring_incoming_tick(ring, i);
        is_dirty |= is_synced && sh_ring_log_sync(ring, i);
        is_dirty |= is_synced && (shard->is_built || shard->owes_answer || shard->search.is_open);
        if (!is_dirty && !(is_due && (shard->owns || shard->search.is_open)))
            continue;
        work += is_dirty;
        (void)sh_ring_log_sync(ring, i); /* what is volatile is as good as synced */
        if (shard->owns)
            sh_ring_lead_step(ring, now_ns, i);
        else
            sh_ring_follow_step(ring, i);
        sh_ring_search_step(ring, now_ns, i);
        built_step(ring, now_ns, i);
    }
    return work;
}

uint64_t sh_ring_due_ns(const struct sh_ring *ring)
{
    if (!ring->is_active)
        return SH_NEVER;
    return ring->dirty ? 0 : ring->due_ns;
}

/* --- Reads and updates ----------------------------------------------------------------------- */

enum shoal_err sh_ring_reads(const struct sh_ring *ring, uint64_t now_ns, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_ring_shard *shard = &ring->shards[number];
    if (ring->arcs.shards[number].owner != ring->config.server)
        return SHOAL_EROLE;
    bool serves = shard->owns && !shard->has_handed && shard->applied >= shard->serve_from;
    return serves && now_ns < ring->lease_ns ? SHOAL_OK : SHOAL_EBUSY;
}

enum shoal_err sh_ring_update(struct sh_ring *ring, uint64_t now_ns, unsigned number,
                              struct sh_bytes command, uint64_t *epoch_out, uint64_t *sequence_out)
{
    enum shoal_err err = sh_ring_reads(ring, now_ns, number);
    if (err)
        return err;
    struct sh_ring_shard *shard = &ring->shards[number];
    uint64_t sequence = sh_entries_last(&shard->entries) + 1;
    if (command.size > SH_RING_COMMAND_BYTES_MAX)
        return SHOAL_ETOOBIG;
    if (shard->is_handing || sequence > shard->applied + SH_RING_BACKLOG_MAX ||
        sh_journal_is_full(ring->journal))
        return SHOAL_EBUSY;
    uint64_t epoch = ring->arcs.shards[number].version;
    err = sh_ring_log_take(ring, number, sequence, epoch, command);
    if (err)
        return err;
    *epoch_out = epoch;
    *sequence_out = sequence;
    return SHOAL_OK;
}

void sh_ring_built(struct sh_ring *ring, uint64_t now_ns, unsigned number, uint64_t version)
{
    SH_ASSERT(number < SH_SHARDS);
    struct sh_ring_shard *shard = &ring->shards[number];
    const struct sh_shard *now = &ring->arcs.shards[number];
    (void)now_ns;
    if (!ring->is_active || now->version != version || now->owner != ring->config.server ||
        now->replicas)
        return;
    if (sh_ring_log_begin(ring, number, version)) {
        shard->search.is_open = true; /* all have answered: the next step has it built again */
        return;
    }
    shard->is_built = true;
    SH_ASSERT(shard->has && !shard->owns);
}

bool sh_ring_change_next(struct sh_ring *ring, uint64_t now_ns, struct sh_arc_change *change_out)
{
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        struct sh_ring_shard *shard = &ring->shards[i];
        if (!shard->change.kind || now_ns < shard->change_ns)
            continue;
        SH_ASSERT(shard->change.version == ring->arcs.shards[i].version);
        shard->change_ns = now_ns + ring->config.resend_ns;
        *change_out = shard->change;
        return true;
    }
    return false;
}

void sh_ring_ask(struct sh_ring *ring, uint64_t now_ns, unsigned number, enum sh_arc_kind kind,
                 unsigned nid)
{
    SH_ASSERT(number < SH_SHARDS && nid && nid <= SH_SUPERPEERS_MAX);
    SH_ASSERT(ring->arcs.shards[number].owner == ring->config.server);
    struct sh_ring_shard *shard = &ring->shards[number];
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .shard = (uint8_t)number,
                                   .nid = (uint8_t)nid,
                                   .version = ring->arcs.shards[number].version,
                                   .incarnation = ring->arcs.incarnations[nid]};
    if (kind == SH_ARC_SALVAGE) {
        change.copy_epoch = shard->search.epoch;
        change.copy_sequence = shard->search.sequence;
    }
    if (shard->change.kind != change.kind || shard->change.nid != change.nid)
        shard->change_ns = now_ns;
    shard->change = change;
}

uint8_t sh_ring_owner(const struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return ring->arcs.shards[number].owner;
}

bool sh_ring_holds(const struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return ring->shards[number].has && (ring->arcs.shards[number].replicas & sh_ring_own(ring));
}

uint64_t sh_ring_applied(const struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return ring->shards[number].applied;
}

uint64_t sh_ring_last(const struct sh_ring *ring, unsigned number)
{
    SH_ASSERT(number < SH_SHARDS);
    return sh_entries_last(&ring->shards[number].entries);
}

bool sh_ring_copy(const struct sh_ring *ring, unsigned number, uint64_t *epoch_out,
                  uint64_t *sequence_out)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_ring_shard *shard = &ring->shards[number];
    *sequence_out = sh_entries_last(&shard->entries);
    return shard->has && sh_entries_term(&shard->entries, *sequence_out, epoch_out);
}

bool sh_ring_searches(const struct sh_ring *ring, unsigned number, uint64_t *missing_out)
{
    SH_ASSERT(number < SH_SHARDS);
    const struct sh_ring_search *search = &ring->shards[number].search;
    if (!search->is_open)
        return false;
    *missing_out = ring->arcs.present & ~search->answered;
    return true;
}

/* --- Messages -------------------------------------------------------------------------------- */

struct sh_writer sh_ring_message_begin(struct sh_ring *ring, uint8_t to, unsigned number,
                                       enum sh_ring_type type, uint8_t flags, size_t size)
{
    SH_ASSERT(ring->is_active && number < SH_SHARDS);
    SH_ASSERT(to && to <= SH_SUPERPEERS_MAX && to != ring->config.server);
    struct sh_writer none = {.bad = true};
    size += SH_RING_HEAD_BYTES;
    if (ring->messages_count >= SH_RING_MESSAGES_MAX)
        return none;
    struct sh_ring_message *message = calloc(1, sizeof *message + size);
    if (!message)
        return none;
    message->to = to;
    message->size = size;
    *ring->messages_end = message;
    ring->messages_end = &message->next;
    ring->messages_count++;
    struct sh_writer w = sh_writer_make(message->bytes, size);
    sh_put8(&w, (uint8_t)type);
    sh_put8(&w, (uint8_t)number);
    sh_put8(&w, flags);
    sh_put8(&w, 0);
    sh_put64(&w, ring->arcs.shards[number].version);
    sh_put64(&w, ring->arcs.incarnations[ring->config.server]);
    return w;
}

struct sh_ring_message *sh_ring_message_next(struct sh_ring *ring)
{
    struct sh_ring_message *message = ring->messages;
    if (!message)
        return NULL;
    SH_ASSERT(ring->messages_count > 0);
    ring->messages = message->next;
    if (!ring->messages)
        ring->messages_end = &ring->messages;
    ring->messages_count--;
    message->next = NULL;
    return message;
}

void sh_ring_receive(struct sh_ring *ring, uint64_t now_ns, uint8_t from, struct sh_bytes message)
{
    struct sh_reader r = sh_reader_make(message);
    struct sh_ring_head head = {.type = sh_get8(&r)};
    head.shard = sh_get8(&r);
    head.flags = sh_get8(&r);
    unsigned zero = sh_get8(&r);
    head.version = sh_get64(&r);
    head.incarnation = sh_get64(&r);
    head.from = from;
    /* What is of another version waits: it is said again, when both have heard of theirs. */
    if (!sh_reader_ok(&r) || zero || head.shard >= SH_SHARDS || !ring->is_active || !from ||
        from > SH_SUPERPEERS_MAX || from == ring->config.server ||
        head.version != ring->arcs.shards[head.shard].version ||
        head.incarnation != ring->arcs.incarnations[from])
        return;
    const struct sh_shard *shard = &ring->arcs.shards[head.shard];
    bool is_owner = shard->owner == from && (shard->replicas & sh_arc_bit(from));
    bool is_maker = shard->owner == from && !shard->replicas;
    bool owns = ring->shards[head.shard].owns;
    if (head.type == SH_RING_APPEND && is_owner)
        sh_ring_on_append(ring, &head, &r);
    else if (head.type == SH_RING_SNAPSHOT && is_owner)
        sh_ring_on_snapshot(ring, &head, &r);
    else if (head.type == SH_RING_ANSWER && owns)
        sh_ring_on_answer(ring, now_ns, &head, &r);
    else if (head.type == SH_RING_SNAPSHOT_ANSWER && owns)
        sh_ring_on_snapshot_answer(ring, now_ns, &head, &r);
    else if (head.type == SH_RING_COPY_ASK && is_maker)
        sh_ring_on_copy_ask(ring, &head, &r);
    else if (head.type == SH_RING_COPY_ANSWER && ring->shards[head.shard].search.is_open)
        sh_ring_on_copy_answer(ring, &head, &r);
}
