/* The ring's life: which sectors are whose, reads and updates, messages. */
#include "cluster/overlay.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/overlay_int.h"

/* --- Life ------------------------------------------------------------------------------------ */

enum shoal_err sh_overlay_create(const struct sh_overlay_config *config,
                                 struct sh_overlay **ring_out)
{
    SH_ASSERT(config->server && config->server <= SH_SUPERPEERS_MAX);
    SH_ASSERT(config->resend_ns && config->patience_ns);
    SH_ASSERT(config->entries_kept && config->piece_bytes >= 64);
    struct sh_overlay *ring = calloc(1, sizeof *ring);
    if (!ring)
        return SHOAL_ENOMEM;
    ring->config = *config;
    ring->messages_end = &ring->messages;
    *ring_out = ring;
    return SHOAL_OK;
}

static void sector_free(struct sh_overlay_sector *sector)
{
    sh_overlay_lead_end(sector);
    sh_overlay_image_drop(&sector->coming);
    sh_overlay_log_reset(sector, 0, 0);
    sector->has = false;
    sector->agreed_version = 0;
}

void sh_overlay_destroy(struct sh_overlay *ring)
{
    if (!ring)
        return;
    for (unsigned i = 0; i < SH_SECTORS; i++)
        sector_free(&ring->sectors[i]);
    while (ring->messages) {
        struct sh_overlay_message *message = ring->messages;
        ring->messages = message->next;
        free(message);
    }
    free(ring);
}

void sh_overlay_sector_clear(struct sh_overlay *ring, unsigned number)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    bool had = sector->has;
    sector_free(sector);
    if (had)
        ring->config.fsm.clear(ring->config.fsm.arg, number);
}

/* --- What the registry says ------------------------------------------------------------------ */

static void version_take(struct sh_overlay *ring, uint64_t now_ns, unsigned number,
                         const struct sh_sector *before)
{
    struct sh_overlay_sector *sector = &ring->sectors[number];
    const struct sh_sector *now = &ring->arcs.sectors[number];
    bool is_own = now->owner == ring->config.server;
    bool holds = now->holders & sh_overlay_own(ring);
    /* Over a version that was missed, others may have changed what they had answered. */
    bool was_owner = sector->owns && now->version == before->version + 1;
    /* Whoever may still be added goes by what was answered in the version in force. */
    bool is_of_use = (sector->wanted & sh_overlay_own(ring)) && now->holders &&
                     !(before->holders & sh_overlay_own(ring));
    if (!holds && !is_of_use)
        sh_overlay_sector_clear(ring, number);
    SH_ASSERT(!holds || sector->has); /* who is added has answered that he has everything */
    if (is_own && holds) {
        sh_overlay_lead_begin(ring, now_ns, number, was_owner);
        return;
    }
    sh_overlay_lead_end(sector);
    if (is_own && !now->holders)
        ring->config.fsm.build(ring->config.fsm.arg, number, now->version);
}

static void arcs_take(struct sh_overlay *ring, uint64_t now_ns, const struct sh_arcs *arcs,
                      bool is_start)
{
    struct sh_arcs before = ring->arcs;
    ring->arcs = *arcs;
    if (!ring->is_active)
        return;
    for (unsigned i = 0; (is_start || arcs->up != before.up) && i < SH_SECTORS; i++) {
        ring->sectors[i].wanted = sh_arc_wanted(arcs->up, i);
        ring->sectors[i].heir = (uint8_t)sh_arc_successor(arcs->up, i);
    }
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_overlay_sector *sector = &ring->sectors[i];
        SH_ASSERT(arcs->sectors[i].version >= before.sectors[i].version);
        for (unsigned nid = 1; sector->owns && nid <= SH_SUPERPEERS_MAX; nid++) {
            if (arcs->lives[nid] != before.lives[nid])
                sh_overlay_lead_forget(sector, nid);
        }
        if (is_start || arcs->sectors[i].version != before.sectors[i].version)
            version_take(ring, now_ns, i, &before.sectors[i]);
        if (sector->owns)
            sh_overlay_lead_step(ring, now_ns, i);
    }
}

void sh_overlay_start(struct sh_overlay *ring, uint64_t now_ns, const struct sh_arcs *arcs)
{
    SH_ASSERT(!ring->is_active);
    ring->is_active = true;
    for (unsigned i = 0; i < SH_SECTORS; i++)
        SH_ASSERT(!(arcs->sectors[i].holders & sh_overlay_own(ring)));
    arcs_take(ring, now_ns, arcs, true);
}

void sh_overlay_arcs_set(struct sh_overlay *ring, uint64_t now_ns, const struct sh_arcs *arcs)
{
    arcs_take(ring, now_ns, arcs, false);
}

void sh_overlay_lease_set(struct sh_overlay *ring, uint64_t now_ns, uint64_t until_ns)
{
    bool had = now_ns < ring->lease_ns;
    if (until_ns > ring->lease_ns)
        ring->lease_ns = until_ns;
    for (unsigned i = 0; !had && i < SH_SECTORS; i++) {
        if (ring->sectors[i].owns)
            sh_overlay_lead_step(ring, now_ns, i); /* what waited for it alone */
    }
}

void sh_overlay_tick(struct sh_overlay *ring, uint64_t now_ns)
{
    if (now_ns < ring->due_ns)
        return;
    ring->due_ns = now_ns + ring->config.resend_ns / 2;
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        if (ring->sectors[i].owns)
            sh_overlay_lead_step(ring, now_ns, i);
    }
}

uint64_t sh_overlay_due_ns(const struct sh_overlay *ring)
{
    return ring->due_ns;
}

/* --- Reads and updates ----------------------------------------------------------------------- */

enum shoal_err sh_overlay_reads(const struct sh_overlay *ring, uint64_t now_ns, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    const struct sh_overlay_sector *sector = &ring->sectors[number];
    if (ring->arcs.sectors[number].owner != ring->config.server)
        return SHOAL_EROLE;
    bool serves = sector->owns && !sector->has_handed && sector->applied >= sector->serve_from;
    return serves && now_ns < ring->lease_ns ? SHOAL_OK : SHOAL_EBUSY;
}

enum shoal_err sh_overlay_update(struct sh_overlay *ring, uint64_t now_ns, unsigned number,
                                 struct sh_bytes command, uint64_t *epoch_out,
                                 uint64_t *sequence_out)
{
    enum shoal_err err = sh_overlay_reads(ring, now_ns, number);
    if (err)
        return err;
    struct sh_overlay_sector *sector = &ring->sectors[number];
    if (command.size > SH_OVERLAY_COMMAND_BYTES_MAX)
        return SHOAL_ETOOBIG;
    if (sector->is_handing ||
        sh_overlay_log_last(sector) >= sector->applied + SH_OVERLAY_BACKLOG_MAX)
        return SHOAL_EBUSY;
    uint64_t epoch = ring->arcs.sectors[number].version;
    err = sh_overlay_log_reserve(ring, number, command);
    if (!err)
        err = sh_overlay_log_append(sector, epoch, command);
    if (err)
        return err;
    *epoch_out = epoch;
    *sequence_out = sh_overlay_log_last(sector);
    sh_overlay_lead_step(ring, now_ns, number);
    return SHOAL_OK;
}

void sh_overlay_built(struct sh_overlay *ring, uint64_t now_ns, unsigned number, uint64_t version)
{
    SH_ASSERT(number < SH_SECTORS);
    struct sh_overlay_sector *sector = &ring->sectors[number];
    const struct sh_sector *now = &ring->arcs.sectors[number];
    if (!ring->is_active || now->version != version || now->owner != ring->config.server ||
        now->holders)
        return;
    sh_overlay_log_reset(sector, 0, version);
    sector->has = true;
    sector->change = (struct sh_arc_change){.kind = SH_ARC_BUILT,
                                            .sector = (uint8_t)number,
                                            .nid = ring->config.server,
                                            .version = version};
    sector->change_ns = now_ns;
}

bool sh_overlay_change_next(struct sh_overlay *ring, uint64_t now_ns,
                            struct sh_arc_change *change_out)
{
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        struct sh_overlay_sector *sector = &ring->sectors[i];
        if (!sector->change.kind || now_ns < sector->change_ns)
            continue;
        SH_ASSERT(sector->change.version == ring->arcs.sectors[i].version);
        sector->change_ns = now_ns + ring->config.resend_ns;
        *change_out = sector->change;
        return true;
    }
    return false;
}

uint8_t sh_overlay_owner(const struct sh_overlay *ring, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    return ring->arcs.sectors[number].owner;
}

bool sh_overlay_holds(const struct sh_overlay *ring, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    return ring->sectors[number].has && (ring->arcs.sectors[number].holders & sh_overlay_own(ring));
}

uint64_t sh_overlay_applied(const struct sh_overlay *ring, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    return ring->sectors[number].applied;
}

uint64_t sh_overlay_last(const struct sh_overlay *ring, unsigned number)
{
    SH_ASSERT(number < SH_SECTORS);
    return sh_overlay_log_last(&ring->sectors[number]);
}

/* --- Messages -------------------------------------------------------------------------------- */

struct sh_writer sh_overlay_message_begin(struct sh_overlay *ring, uint8_t to, unsigned number,
                                          enum sh_overlay_type type, uint8_t flags, size_t size)
{
    struct sh_writer none = {.bad = true};
    size += SH_OVERLAY_HEAD_BYTES;
    if (ring->messages_count >= SH_OVERLAY_MESSAGES_MAX)
        return none;
    struct sh_overlay_message *message = calloc(1, sizeof *message + size);
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
    sh_put64(&w, ring->arcs.sectors[number].version);
    sh_put64(&w, ring->arcs.lives[ring->config.server]);
    return w;
}

struct sh_overlay_message *sh_overlay_message_next(struct sh_overlay *ring)
{
    struct sh_overlay_message *message = ring->messages;
    if (!message)
        return NULL;
    ring->messages = message->next;
    if (!ring->messages)
        ring->messages_end = &ring->messages;
    ring->messages_count--;
    message->next = NULL;
    return message;
}

void sh_overlay_receive(struct sh_overlay *ring, uint64_t now_ns, uint8_t from,
                        struct sh_bytes message)
{
    struct sh_reader r = sh_reader_make(message);
    struct sh_overlay_head head = {.type = sh_get8(&r)};
    head.sector = sh_get8(&r);
    head.flags = sh_get8(&r);
    unsigned zero = sh_get8(&r);
    head.version = sh_get64(&r);
    head.life = sh_get64(&r);
    head.from = from;
    /* What is of another version waits: it is said again, when both have heard of theirs. */
    if (!sh_reader_ok(&r) || zero || head.sector >= SH_SECTORS || !ring->is_active || !from ||
        from > SH_SUPERPEERS_MAX || from == ring->config.server ||
        head.version != ring->arcs.sectors[head.sector].version ||
        head.life != ring->arcs.lives[from])
        return;
    const struct sh_sector *sector = &ring->arcs.sectors[head.sector];
    bool is_owner = sector->owner == from && (sector->holders & sh_arc_bit(from));
    bool owns = ring->sectors[head.sector].owns;
    if (head.type == SH_OVERLAY_APPEND && is_owner)
        sh_overlay_on_append(ring, &head, &r);
    else if (head.type == SH_OVERLAY_IMAGE && is_owner)
        sh_overlay_on_image(ring, &head, &r);
    else if (head.type == SH_OVERLAY_ANSWER && owns)
        sh_overlay_on_answer(ring, now_ns, &head, &r);
    else if (head.type == SH_OVERLAY_IMAGE_ANSWER && owns)
        sh_overlay_on_image_answer(ring, now_ns, &head, &r);
}
