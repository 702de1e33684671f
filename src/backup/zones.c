/* Which zones an owner has, and which chunks each claims. */
#include <stdlib.h>

#include "backup/backup_int.h"
#include "base/assert.h"
#include "base/log.h"

#define MAP_NODES (1u << 20)
#define CLAIM_IDS UINT64_C(1024) /* fresh IDs that are claimed at a time */
/* Bytes that a zone may have above its limit before chunks that grow move to another one. */
#define SLACK(limit) ((limit) / 16)
/* Ranges up to which chunks move between zones: the map then has room to spare. */
#define MOVES_RANGES_MAX (MAP_NODES * 16u)

#define NUMBERS_BITS 24 /* of zones that a life may make before it comes to the next one's */
_Static_assert((1u << NUMBERS_BITS) % SH_ZONES_MAX == 0, "places begin with a life's numbers");

enum shoal_err sh_zones_make(struct sh_own_zones *zones, uint32_t starts)
{
    /* After 2^24 starts the numbers of zones would not do: a life then begins with what the superpeers say. */
    uint64_t begin = starts >> (48 - NUMBERS_BITS) ? 0 : (uint64_t)starts << NUMBERS_BITS;
    atomic_init(&zones->begin, begin);
    atomic_init(&zones->end, begin);
    zones->all = calloc(SH_ZONES_MAX, sizeof *zones->all);
    return zones->all ? sh_ranges_create(MAP_NODES, &zones->map) : SHOAL_ENOMEM;
}

static void zone_end(struct sh_own_zone *zone)
{
    for (unsigned i = 0; i < SH_SINKS_MAX; i++) {
        if (zone->sinks[i].cursor.backlog)
            (void)sh_backlog_detach(&zone->sinks[i].cursor);
    }
    sh_backlog_end(&zone->backlog);
    free(zone->claims);
    free(zone);
}

void sh_zone_free(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    if (!zone->backlog.is_closed)
        zone->backlog.is_closed = true; /* nobody has found it */
    zone->next_free = zones->free;
    zones->free = zone;
}

void sh_zones_end(struct sh_own_zones *zones)
{
    for (uint64_t i = 0; zones->all && i < sh_zones_places(zones); i++) {
        if (zones->all[i])
            zone_end(zones->all[i]);
    }
    for (struct sh_own_zone *zone = zones->free, *next; zone; zone = next) {
        next = zone->next_free;
        zone_end(zone);
    }
    sh_ranges_destroy(zones->map);
    free(zones->leftovers);
    free(zones->all);
    sh_lock_destroy(&zones->lock);
}

/* Makes a new zone of a former one; the numbers of its writes go on. */
static void zone_again(struct sh_own_zone *zone, uint64_t number)
{
    SH_ASSERT(!zone->log && !zone->left_here && !zone->left_behind && !zone->moves_away);
    zone->claims_count = zone->claims_found = zone->claims_retold = 0;
    zone->is_narrowed = zone->is_kept = false;
    zone->disclaims_ns = 0;
    zone->disclaimed = 0;
    zone->number = number;
    zone->before = sh_backlog_next(&zone->backlog);
    zone->record = (struct sh_zone){0};
    zone->is_removed = zone->is_missing = zone->is_old = zone->is_to_rise = false;
    zone->adopted = zone->end = zone->opens_at = 0;
    zone->evacuate_ns = zone->told_ns = zone->told_seen = 0;
    atomic_store(&zone->told, 0);
    atomic_store(&zone->is_concluded, false);
    atomic_store(&zone->is_evacuated, false);
    sh_backlog_open(&zone->backlog);
}

enum shoal_err sh_zone_new(struct sh_backup *backup, uint64_t number, uint64_t next,
                           struct sh_own_zone **zone_out)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *zone = zones->free;
    if (!zone)
        return sh_zone_fresh(backup, number, next, zone_out);
    if (number > SH_ZONE_NUMBER_MAX || zones->all[number % SH_ZONES_MAX])
        return SHOAL_ELIMIT;
    zones->free = zone->next_free;
    zone_again(zone, number);
    *zone_out = zone;
    return SHOAL_OK;
}

enum shoal_err sh_zone_fresh(struct sh_backup *backup, uint64_t number, uint64_t next,
                             struct sh_own_zone **zone_out)
{
    if (number > SH_ZONE_NUMBER_MAX || backup->zones.all[number % SH_ZONES_MAX])
        return SHOAL_ELIMIT;
    struct sh_own_zone *zone = calloc(1, sizeof *zone);
    if (!zone)
        return SHOAL_ENOMEM;
    zone->backup = backup;
    zone->number = number;
    zone->before = 1;
    sh_backlog_init(&zone->backlog, backup->pool, backup->window, next);
    sh_spin_init(&zone->waits_lock, SH_LOCK_BACKUP_WAITS);
    for (unsigned level = 0; level < SH_LEVELS; level++) {
        atomic_init(&zone->acked[level], next);
        zone->wanted[level] = next;
    }
    if (!sh_backup_is_clustered(backup))
        (void)sh_sink_home_add(zone);
    *zone_out = zone;
    return SHOAL_OK;
}

uint64_t sh_zones_next(const struct sh_backup *backup)
{
    /* Above all that there are, and the one that is being made; where a zone lives long, others have gone round. */
    const struct sh_own_zones *zones = &backup->zones;
    uint64_t end = zones->end, number;
    if (backup->making && backup->making->number >= end)
        end = backup->making->number + 1;
    for (number = end; number - end < SH_ZONES_MAX; number++) {
        bool is_made = backup->making && (backup->making->number - number) % SH_ZONES_MAX == 0;
        if (!is_made && !zones->all[number % SH_ZONES_MAX])
            break;
    }
    return number;
}

void sh_zone_enter(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    SH_ASSERT(!zones->all[zone->number % SH_ZONES_MAX]);
    zone->before_entered = zones->last;
    zone->next_entered = NULL;
    if (zones->last)
        zones->last->next_entered = zone;
    else
        zones->first = zone;
    zones->last = zone;
    zones->count++;
    atomic_store(&zones->all[zone->number % SH_ZONES_MAX], zone);
    if (zone->number < atomic_load_explicit(&zones->begin, memory_order_relaxed))
        atomic_store_explicit(&zones->begin, 0, memory_order_relaxed); /* of an earlier life */
    /* release: who finds the number in the map, or below the end, finds the zone */
    if (zone->number >= atomic_load_explicit(&zones->end, memory_order_relaxed))
        atomic_store_explicit(&zones->end, zone->number + 1, memory_order_release);
}

void sh_zone_withdraw(struct sh_own_zone *zone)
{
    struct sh_backup *backup = zone->backup;
    struct sh_own_zones *zones = &backup->zones;
    SH_ASSERT(zones->all[zone->number % SH_ZONES_MAX] == zone);
    if (backup->tend_at == zone)
        backup->tend_at = zone->next_entered;
    if (zone->before_entered)
        zone->before_entered->next_entered = zone->next_entered;
    else
        zones->first = zone->next_entered;
    if (zone->next_entered)
        zone->next_entered->before_entered = zone->before_entered;
    else
        zones->last = zone->before_entered;
    zones->count--;
    atomic_store(&zones->all[zone->number % SH_ZONES_MAX], NULL);
}

enum shoal_err sh_zone_make(struct sh_backup *backup, uint64_t number, uint64_t next,
                            struct sh_own_zone **zone_out)
{
    enum shoal_err err = sh_zone_new(backup, number, next, zone_out);
    if (!err)
        sh_zone_enter(*zone_out);
    return err;
}

struct sh_own_zone *sh_zones_find_numbered(struct sh_backup *backup, uint64_t chunk,
                                           uint64_t *number_out)
{
    struct sh_range range;
    struct sh_own_zone *zone = NULL;
    /* One that was dropped after the look at the map is out of the map by now. */
    while (!zone && sh_ranges_find(backup->zones.map, (shoal_cid){chunk}, &range))
        zone = atomic_load_explicit(&backup->zones.all[range.value % SH_ZONES_MAX],
                                    memory_order_acquire);
    *number_out = zone ? range.value : 0;
    return zone;
}

struct sh_own_zone *sh_zones_find(struct sh_backup *backup, uint64_t chunk)
{
    uint64_t number;
    return sh_zones_find_numbered(backup, chunk, &number);
}

bool sh_backup_zone_number(struct sh_backup *backup, shoal_cid cid, uint64_t *number_out)
{
    return sh_zones_find_numbered(backup, sh_backup_chunk(backup, cid), number_out) != NULL;
}

bool sh_backup_is_claimed(struct sh_backup *backup, uint64_t chunk)
{
    return sh_zones_find(backup, chunk) != NULL;
}

/* --- Claims ------------------------------------------------------------------------------------ */

/* The n-th claim of a zone is a chunk of its log that no node created. */
static struct sh_backlog_entry claim_entry(size_t slot, const struct sh_zone_claim *claim,
                                           uint8_t *room)
{
    sh_store64(room, claim->first);
    sh_store64(room + 8, claim->last);
    return (struct sh_backlog_entry){
        .chunk = 1 + slot, .kind = SH_BACKLOG_IMAGE, .pieces = 1, .size = 16, .at = room};
}

/* Room for one claim more than those that were promised room. */
static enum shoal_err claims_grow(struct sh_own_zone *zone)
{
    if (zone->claims_count + zone->claims_promised < zone->claims_room)
        return SHOAL_OK;
    size_t room = zone->claims_room ? 2 * zone->claims_room : 8;
    struct sh_zone_claim *claims = realloc(zone->claims, room * sizeof *claims);
    if (!claims)
        return SHOAL_ENOMEM;
    zone->claims = claims;
    zone->claims_room = room;
    return SHOAL_OK;
}

/* Whether a claim goes on where the zone's last one ends. */
static bool goes_on(const struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    return zone->claims_count && zone->claims[zone->claims_count - 1].last + 1 == claim->first &&
           zone->claims[zone->claims_count - 1].first >> 48 == claim->last >> 48;
}

/* Enters it, room was made; returns its slot. */
static size_t claim_add(struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    if (goes_on(zone, claim))
        zone->claims[zone->claims_count - 1].last = claim->last;
    else
        zone->claims[zone->claims_count++] = *claim;
    return zone->claims_count - 1;
}

static enum shoal_err map_set(struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    return sh_ranges_set(zone->backup->zones.map, (shoal_cid){claim->first},
                         (shoal_cid){claim->last}, zone->number);
}

enum shoal_err sh_zone_claim_enter(struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    enum shoal_err err = claims_grow(zone);
    if (!err)
        zone->claims[zone->claims_count++] = *claim;
    return err;
}

enum shoal_err sh_zone_claimed(struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    enum shoal_err err = sh_zone_claim_enter(zone, claim);
    if (err)
        return err;
    if (claim->first > claim->last)
        return SHOAL_OK; /* an empty place */
    /* Zones come from the highest number down: what is claimed already stays. */
    uint64_t at = claim->first;
    while (!err) {
        struct sh_range range;
        bool is_next =
            sh_ranges_next(zones->map, (shoal_cid){at}, &range) && range.first.v <= claim->last;
        struct sh_zone_claim part = {at, is_next ? range.first.v - 1 : claim->last};
        if (!is_next || range.first.v > at)
            err = map_set(zone, &part);
        if (!is_next || range.last.v >= claim->last)
            break;
        at = range.last.v + 1;
    }
    return err;
}

/* The fresh IDs around a chunk that nobody has claimed, up to CLAIM_IDS. */
static struct sh_zone_claim claim_around(const struct sh_own_zones *zones, uint64_t chunk)
{
    struct sh_zone_claim claim = {chunk - chunk % CLAIM_IDS,
                                  chunk - chunk % CLAIM_IDS + CLAIM_IDS - 1};
    struct sh_range range;
    for (uint64_t at = claim.first;
         sh_ranges_next(zones->map, (shoal_cid){at}, &range) && range.first.v <= claim.last;
         at = range.last.v + 1) {
        if (range.last.v < chunk) {
            claim.first = range.last.v + 1;
        } else {
            claim.last = range.first.v - 1;
            break;
        }
    }
    return claim;
}

/* --- Where a change goes ----------------------------------------------------------------------- */

static bool is_full(const struct sh_own_zone *zone)
{
    return atomic_load_explicit(&zone->is_full, memory_order_relaxed);
}

/* An empty one takes whatever it is: its log grows with it. */
static bool has_room(const struct sh_own_zone *zone, uint64_t bytes)
{
    uint64_t live = atomic_load_explicit(&zone->live, memory_order_relaxed);
    return !is_full(zone) && (!live || live + bytes <= zone->backup->config.zone_bytes);
}

/* The zone for new chunks; where it has no room for so many bytes, the next one. Where there is no next one, some of the room is only for
 * chunks that are not new, and move so that their zone can go: else nothing would ever make room again. */
static enum shoal_err open_zone(struct sh_backup *backup, uint64_t bytes, bool is_new,
                                struct sh_own_zone **zone_out)
{
    struct sh_own_zones *zones = &backup->zones;
    sh_lock_assert_held(&zones->lock);
    struct sh_own_zone *open = zones->open;
    if (is_new && !zones->spare)
        bytes += atomic_load_explicit(&zones->kept_bytes, memory_order_relaxed);
    if (!open || !has_room(open, bytes)) {
        open = zones->spare;
        if (!open) {
            enum shoal_err err = atomic_load(&backup->no_zone);
            return err ? err : SHOAL_EAGAIN;
        }
        if (zones->open)
            atomic_store(&zones->open->is_concluded, true);
        zones->open = open;
        zones->spare = NULL;
        backup->config.wake(backup->config.arg);
    }
    *zone_out = open;
    return SHOAL_OK;
}

/* A chunk that nobody has claimed is the open zone's from now on. */
static enum shoal_err claim_fresh(struct sh_backup *backup, uint64_t chunk, uint64_t bytes,
                                  struct sh_own_zone **zone_out)
{
    struct sh_own_zones *zones = &backup->zones;
    sh_lock_assert_held(&zones->lock);
    uint8_t room[16];
    enum shoal_err err = open_zone(backup, bytes, true, zone_out);
    if (!err)
        err = claims_grow(*zone_out);
    if (!err)
        err = sh_backlog_admit(&(*zone_out)->backlog, SH_CLAIM_BYTES);
    if (err)
        return err;
    struct sh_zone_claim claim = claim_around(zones, chunk);
    err = map_set(*zone_out, &claim);
    if (err) {
        sh_backlog_cancel(&(*zone_out)->backlog, SH_CLAIM_BYTES);
        return err;
    }
    size_t slot = claim_add(*zone_out, &claim);
    const struct sh_backlog_entry entry = claim_entry(slot, &(*zone_out)->claims[slot], room);
    (void)sh_backlog_record(&(*zone_out)->backlog, NULL, &entry);
    return SHOAL_OK;
}

bool sh_zone_claim_get(struct sh_own_zone *zone, size_t slot, struct sh_zone_claim *claim_out)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    sh_lock_take(&zones->lock);
    bool is_there = slot < zone->claims_count;
    if (is_there)
        *claim_out = zone->claims[slot];
    sh_lock_release(&zones->lock);
    return is_there;
}

bool sh_zone_is_final(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    sh_lock_take(&zones->lock);
    bool is_final = atomic_load(&zone->is_concluded) && !zone->claims_promised;
    sh_lock_release(&zones->lock);
    return is_final;
}

enum shoal_err sh_zone_claim_append(struct sh_own_zone *zone, const struct sh_zone_claim *claim)
{
    sh_lock_assert_held(&zone->backup->zones.lock);
    enum shoal_err err = sh_zone_claim_enter(zone, claim);
    if (err)
        return err;
    err = sh_zone_claim_record(zone, zone->claims_count - 1);
    zone->claims_count -= err != SHOAL_OK;
    return err;
}

enum shoal_err sh_zone_claim_record(struct sh_own_zone *zone, size_t slot)
{
    uint8_t room[16];
    sh_lock_assert_held(&zone->backup->zones.lock);
    SH_ASSERT(slot < zone->claims_count);
    enum shoal_err err = sh_backlog_admit(&zone->backlog, SH_CLAIM_BYTES);
    if (err)
        return err;
    const struct sh_backlog_entry entry = claim_entry(slot, &zone->claims[slot], room);
    (void)sh_backlog_record(&zone->backlog, NULL, &entry);
    return SHOAL_OK;
}

enum shoal_err sh_zone_claim_retell(struct sh_own_zone *zone, size_t slot, uint8_t only)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    uint8_t room[16];
    enum shoal_err err = SHOAL_OK;
    sh_lock_take(&zones->lock);
    if (slot >= zone->claims_count) {
        err = SHOAL_ENONAME;
    } else if (zone->claims[slot].first <= zone->claims[slot].last) {
        err = sh_backlog_admit(&zone->backlog, SH_CLAIM_BYTES);
        if (!err) {
            struct sh_backlog_entry entry = claim_entry(slot, &zone->claims[slot], room);
            entry.only = only;
            (void)sh_backlog_record(&zone->backlog, NULL, &entry);
        }
    }
    sh_lock_release(&zones->lock);
    return err;
}

/* --- Gates ------------------------------------------------------------------------------------- */

void sh_zone_told(struct sh_own_zone *zone, uint64_t number)
{
    uint64_t end = atomic_load_explicit(&zone->told_end, memory_order_relaxed);
    while (end <= number && !atomic_compare_exchange_weak(&zone->told_end, &end, number + 1))
        continue;
}

/* Whether a gate need not wait any more. In a full zone what is recorded may wait for ever, and moves out of it make room. */
static bool is_settled(const struct sh_own_zone *from, uint64_t end)
{
    return atomic_load(&from->acked[SH_LEVEL_DURABLE]) >= end || is_full(from);
}

/* A gate waits only for entries that were recorded before it: so no two zones wait for each other. Until it is set, whichever move is recorded first sets it for
 * all that share it: those are behind it then. */
static enum shoal_err gate_begin(struct sh_own_zone *from, struct sh_own_zone *to,
                                 uint64_t *number_out)
{
    struct sh_own_zones *zones = &from->backup->zones;
    struct sh_zone_gate *gate = &to->gate;
    sh_lock_assert_held(&zones->lock);
    uint64_t end = atomic_load(&from->told_end);
    *number_out = 0;
    if (sh_backup_is_clustered(from->backup) || is_settled(from, end))
        return SHOAL_OK;
    if (gate->from && (gate->is_set || gate->from != from)) {
        gate->is_wanted = true;
        return SHOAL_EAGAIN;
    }
    gate->number += !gate->from;
    gate->from = from;
    gate->end = gate->end > end ? gate->end : end;
    gate->under_way++;
    *number_out = gate->number;
    return SHOAL_OK;
}

static void gate_end(struct sh_zone_gate *gate)
{
    *gate = (struct sh_zone_gate){.number = gate->number};
}

/* Whether the move waits for a gate. The step opens a gate for all moves that move_begin has promised it. */
static bool has_gate(const struct sh_zone_place *place)
{
    const struct sh_zone_gate *gate = &place->zone->gate;
    bool has_one = place->gate && gate->from && gate->number == place->gate;
    SH_ASSERT(!has_one || gate->under_way);
    return has_one;
}

/* A move that has a gate is recorded next. */
static void gate_pass(struct sh_own_zone *zone)
{
    zone->gate.under_way--;
    if (zone->gate.is_set)
        return; /* another move has set it */
    zone->gate.is_set = true;
    sh_backlog_gate_set(&zone->backlog);
    atomic_fetch_add(&zone->backup->zones.gates, 1);
}

/* Returns whether somebody was refused for a gate that is none any more. */
static bool gate_leave(struct sh_own_zone *zone)
{
    struct sh_zone_gate *gate = &zone->gate;
    gate->under_way--;
    if (gate->is_set || gate->under_way)
        return false;
    bool was_wanted = gate->is_wanted;
    gate_end(gate);
    return was_wanted;
}

bool sh_zone_gate_look(struct sh_own_zone *zone)
{
    struct sh_own_zones *zones = &zone->backup->zones;
    if (!atomic_load(&zones->gates))
        return true;
    sh_lock_take(&zones->lock);
    const struct sh_zone_gate gate = zone->gate;
    bool is_set = gate.from && gate.is_set, opens = is_set && is_settled(gate.from, gate.end);
    if (opens) {
        gate_end(&zone->gate);
        sh_backlog_gate_open(&zone->backlog);
        atomic_fetch_sub(&zones->gates, 1);
    }
    sh_lock_release(&zones->lock);
    if (opens)
        sh_waits_room(zone->backup); /* for those that found the gate in their way */
    if (!is_set || opens)
        return true;
    sh_zone_hurry(gate.from, gate.end);
    return false;
}

/* --- Moves ------------------------------------------------------------------------------------- */

struct sh_large *sh_zones_large(const struct sh_own_zones *zones, uint64_t chunk)
{
    sh_lock_assert_held(&zones->lock);
    struct sh_large *large = zones->larges;
    while (large && large->chunk != chunk)
        large = large->next;
    return large;
}

/* A chunk of this zone has outgrown it, or the zone is evacuated: it moves to the open one with this change. is_durable: all that this zone has of it
 * is. EAGAIN also while a large image of it is on its way to this zone, where nobody would look for that image afterwards. */
static enum shoal_err move_begin(struct sh_backup *backup, uint64_t chunk, uint64_t after,
                                 bool is_new, bool is_durable, struct sh_zone_place *place)
{
    struct sh_own_zones *zones = &backup->zones;
    struct sh_own_zone *to;
    uint64_t gate = 0;
    sh_lock_take(&zones->lock);
    enum shoal_err err = SHOAL_EAGAIN;
    /* Of one that is closed nothing moves away any more: it is about to be forgotten. */
    if (sh_zone_is(place) && !sh_zone_is_closed(place->zone) && !sh_zones_large(zones, chunk))
        err = open_zone(backup, after, is_new, &to);
    if (!err && to != place->zone)
        err = sh_ranges_count(zones->map) < MOVES_RANGES_MAX ? claims_grow(to) : SHOAL_ELIMIT;
    if (!err && to != place->zone)
        err = sh_leftovers_grow(zones);
    if (!err && to != place->zone && !is_durable)
        err = gate_begin(place->zone, to, &gate);
    if (!err && to != place->zone) {
        to->claims_promised++;
        place->zone->moves_away++;
        zones->leftovers_promised++;
        *place = (struct sh_zone_place){
            .zone = to, .from = place->zone, .number = to->number, .gate = gate};
    }
    sh_lock_release(&zones->lock);
    return err;
}

/* Whether the zone is the open one, and there is no next one. */
static bool is_last(struct sh_own_zones *zones, const struct sh_own_zone *zone)
{
    return atomic_load_explicit(&zones->open, memory_order_relaxed) == zone &&
           !atomic_load_explicit(&zones->spare, memory_order_relaxed);
}

enum shoal_err sh_zones_place(struct sh_backup *backup, uint64_t chunk, uint64_t before,
                              uint64_t after, struct sh_zone_place *place_out)
{
    struct sh_own_zones *zones = &backup->zones;
    uint64_t number;
    struct sh_own_zone *zone = sh_zones_find_numbered(backup, chunk, &number);
    enum shoal_err err = SHOAL_OK;
    if (!zone) {
        sh_lock_take(&zones->lock);
        zone = sh_zones_find_numbered(backup, chunk, &number);
        if (!zone)
            err = claim_fresh(backup, chunk, after, &zone);
        if (!err)
            number = zone->number;
        sh_lock_release(&zones->lock);
    }
    *place_out = (struct sh_zone_place){.zone = zone, .number = number};
    if (err)
        return err;
    /* Where there is no room for it elsewhere, it stays. */
    if (after && sh_evacuation_moves(zone, chunk, before) &&
        !move_begin(backup, chunk, after, after > before, true, place_out))
        return SHOAL_OK;
    if (after <= before && !(after && is_full(zone)))
        return SHOAL_OK;
    uint64_t limit = backup->config.zone_bytes + SLACK(backup->config.zone_bytes);
    if (atomic_load_explicit(&zones->kept_bytes, memory_order_relaxed) && is_last(zones, zone))
        limit = backup->config.zone_bytes - atomic_load(&zones->kept_bytes);
    uint64_t live = atomic_load_explicit(&zone->live, memory_order_relaxed);
    /* A chunk that is all of its zone stays there, whatever its size: the zone's log grows with it. */
    if (!is_full(zone) && (live - before + after <= limit || live <= before))
        return SHOAL_OK;
    return move_begin(backup, chunk, after, true, false, place_out);
}

void sh_zones_move_cancel(struct sh_backup *backup, const struct sh_zone_place *place,
                          struct sh_write *write)
{
    bool gives = false;
    sh_lock_take(&backup->zones.lock);
    place->zone->claims_promised--;
    place->from->moves_away--;
    backup->zones.leftovers_promised--;
    if (has_gate(place))
        gives = gate_leave(place->zone);
    sh_lock_release(&backup->zones.lock);
    if (!gives)
        return;
    sh_waits_room_by(backup, write);
    backup->config.wake(backup->config.arg);
}

/* The chunk is the other zone's from now on; returns the claim that says so. */
static struct sh_backlog_entry moved(struct sh_backup *backup, uint64_t chunk,
                                     const struct sh_zone_place *place, uint8_t *room)
{
    struct sh_own_zones *zones = &backup->zones;
    const struct sh_zone_claim claim = {chunk, chunk};
    sh_lock_assert_held(&zones->lock);
    place->zone->claims_promised--;
    place->from->moves_away--;
    zones->leftovers_promised--;
    if (has_gate(place))
        gate_pass(place->zone);
    enum shoal_err err = map_set(place->zone, &claim);
    SH_ASSERT(!err); /* the place was given only where there was much room */
    size_t slot = claim_add(place->zone, &claim);
    return claim_entry(slot, &place->zone->claims[slot], room);
}

uint64_t sh_zones_move(struct sh_backup *backup, uint64_t chunk, const struct sh_zone_place *place,
                       bool is_new, const struct sh_backlog_entry *entry)
{
    struct sh_own_zones *zones = &backup->zones;
    uint8_t room[16];
    sh_lock_take(&zones->lock);
    struct sh_backlog_entry claim = moved(backup, chunk, place, room);
    claim.with_next = true;
    uint64_t number = sh_backlog_record(&place->zone->backlog, &claim, entry);
    sh_leftover_begin(zones, chunk, place, is_new, number);
    sh_lock_release(&zones->lock);
    return number;
}

uint64_t sh_zones_move_large(struct sh_backup *backup, const struct sh_large *large)
{
    struct sh_own_zones *zones = &backup->zones;
    uint8_t room[16];
    sh_lock_take(&zones->lock);
    struct sh_backlog_entry claim = moved(backup, large->chunk, &large->place, room);
    claim.completion_size = large->with_claim.completion_size;
    memcpy(claim.completion, large->with_claim.completion, claim.completion_size);
    uint64_t number = sh_backlog_hold_end(&large->place.zone->backlog, &large->last, &claim);
    sh_leftover_begin(zones, large->chunk, &large->place, large->is_new, number);
    sh_lock_release(&zones->lock);
    return number;
}
