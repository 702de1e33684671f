/* The choice of the zone that is cleaned next, and of its slots.
 *
 * A zone is on the log's list from 60 % of its slots on. It is cleaned
 *
 *   from 60 %        while the log is idle: nothing was written for a second
 *   from 75 %        now: the fullest zone first, but every third choice is drawn from all that are on the list
 *   without a place  before all others: its next batch has none, and its writers wait
 *
 * Of a zone's slots, it would be best to take those of which the least is current; but what supersedes an entry does not know where that
 * lies (an index would take 16 bytes a chunk). So that share is estimated. Of entries that last L, by the writes of the zone, L / (L + age) are
 * still current when their slot was written `age` ago. That is so of chunks of which some are written often and most of them seldom; where all are
 * written equally often it is not quite so, but puts slots into the right order. Where L comes from is what the strategies differ in:
 *
 *   cost-benefit  from cleanings of slots of the same generation (0: writes; 1: what was copied once, ...): of entries at the age a, a share k was
 *                 kept, so L = a k / (1 - k)
 *   timestamps    from the entries: L is how old those of a slot were when they were copied; for writes, as above
 *
 * With u = fill L / (L + age), what is current of all of the slot, cleaning it gains 1 - u for as long as its entries have lasted, and costs to
 * read the slot and to write u of it (Rosenblum, Ousterhout, The design and implementation of a log-structured file system, 1992, 3.6):
 *
 *   benefit / cost = age (1 - u) / (1 + u)
 *
 * It grows with age, so each slot's time comes. age-fill is that of the DXRAM thesis, 6 VIII.1: age times fill, nothing else is known. With
 * timestamps the thesis multiplies the fill with how old all entries are on average (6 VIII.2), which takes the coldest slots again and again. */
#include <string.h>

#include "base/assert.h"
#include "log/replog_int.h"

#define IDLE_PERCENT 60 /* of the slots that a zone may have */
#define FULL_PERCENT 75
#define FULL_WRITES_PERCENT 80       /* of those that its writes may have */
#define DISK_FULL_PERCENT 30         /* of these, while the disk is full */
#define CALM_NS UINT64_C(1000000000) /* without a write, and the log is idle */
#define SOLID_NS                                                                                   \
    UINT64_C(60000000000) /* before a zone without a gain is cleaned for what is older now */
#define RANDOM_EACH 3     /* choice of a zone */
#define AGE_MAX (UINT64_C(1) << 39) /* so that a benefit has 64 bits */
#define KEPT_PART 16                /* no less is kept, or dropped, as far as is learned */
#define MARKS_PART 32               /* of what is kept: more than that are many marks */
#define ENTRY_BYTES 16              /* are counted for an entry beside its payload */

const char *const sh_replog_selection_names[] = {"cost-benefit", "timestamps", "age-fill",
                                                 "oldest",       "random",     NULL};

enum sh_replog_selection sh_replog_selection_of(const char *name)
{
    unsigned i = 0;
    while (i < SH_REPLOG_SELECTIONS && strcmp(sh_replog_selection_names[i], name) != 0)
        i++;
    SH_ASSERT(i < SH_REPLOG_SELECTIONS);
    return (enum sh_replog_selection)i;
}

/* --- Which zone -------------------------------------------------------------------------------- */

/* Whether all of its slots have been cleaned one after the other since the last write, and not one was gained. */
static bool is_solid(const struct sh_replog_zone *zone)
{
    return zone->is_damaged || zone->is_dropping || zone->fruitless >= zone->slots.count;
}

static bool is_being_cleaned(const struct sh_replog_zone *zone)
{
    const struct sh_replog_clean *clean = zone->log->clean;
    return clean && sh_replog_clean_zone(clean) == zone;
}

bool sh_replog_is_cleaned(const struct sh_replog_zone *zone)
{
    return zone->urgency >= SH_REPLOG_FULL || is_being_cleaned(zone);
}

bool sh_replog_may_gain(const struct sh_replog_zone *zone)
{
    return sh_replog_is_cleaned(zone) || !is_solid(zone);
}

static bool has_percent(const struct sh_replog_zone *zone, uint64_t of, unsigned percent)
{
    return (uint64_t)zone->slots.count * 100 >= of * percent;
}

/* Of a small zone the two slots that only the cleaner takes are many, so those that its writes may have count as well. */
static bool is_full(const struct sh_replog_zone *zone)
{
    uint64_t of_writes = zone->slots_max - SH_REPLOG_SPARE_ZONE_SLOTS;
    if (zone->log->room.is_full)
        return has_percent(zone, of_writes, DISK_FULL_PERCENT);
    return has_percent(zone, zone->slots_max, FULL_PERCENT) ||
           has_percent(zone, of_writes, FULL_WRITES_PERCENT);
}

static enum sh_replog_urgency urgency_of(struct sh_replog_zone *zone)
{
    const struct sh_replog *log = zone->log;
    if (!zone->versions || sh_replog_is_refusing(zone) || zone->is_damaged ||
        log->now_ns < zone->clean_again_ns)
        return SH_REPLOG_NOT;
    if (sh_replog_eon_is_due(zone))
        return sh_replog_eon_is_over(zone) ? SH_REPLOG_URGENT : SH_REPLOG_FULL;
    if (is_solid(zone))
        return SH_REPLOG_NOT;
    if (is_full(zone))
        return sh_replog_slots_have_room(zone) ? SH_REPLOG_FULL : SH_REPLOG_URGENT;
    return has_percent(zone, zone->slots_max, IDLE_PERCENT) ? SH_REPLOG_IDLE : SH_REPLOG_NOT;
}

/* A zone that was cleaned in vain is cleaned once more after a while, if it has what goes with time; or it would stay full, as writes are
 * refused. */
static void grow_older(struct sh_replog_zone *zone)
{
    if (!zone->keeps_passing || zone->log->now_ns < zone->fruitless_ns + SOLID_NS)
        return;
    zone->fruitless = 0;
    zone->keeps_passing = false;
}

void sh_replog_clean_leave(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    struct sh_replog_zone **at = &log->to_clean;
    if (!zone->urgency)
        return;
    while (*at != zone)
        at = &(*at)->next_to_clean;
    *at = zone->next_to_clean;
    if (!*at)
        log->to_clean_end = at;
    log->to_clean_count[zone->urgency]--;
    zone->urgency = SH_REPLOG_NOT;
}

void sh_replog_clean_if_full(struct sh_replog_zone *zone)
{
    struct sh_replog *log = zone->log;
    grow_older(zone);
    if (is_being_cleaned(zone))
        return;
    enum sh_replog_urgency urgency = urgency_of(zone);
    if (!urgency) {
        sh_replog_clean_leave(zone);
        return;
    }
    if (!zone->urgency) {
        zone->next_to_clean = NULL;
        *log->to_clean_end = zone;
        log->to_clean_end = &zone->next_to_clean;
    } else {
        log->to_clean_count[zone->urgency]--;
    }
    log->to_clean_count[urgency]++;
    zone->urgency = (uint8_t)urgency;
}

void sh_replog_clean_put_off(struct sh_replog_zone *zone, uint64_t pause_ns)
{
    struct sh_replog *log = zone->log;
    if (sh_replog_is_refusing(zone) || zone->is_damaged)
        return; /* it is not cleaned again */
    zone->clean_again_ns = log->now_ns + pause_ns;
    if (!log->clean_again_ns || zone->clean_again_ns < log->clean_again_ns)
        log->clean_again_ns = zone->clean_again_ns;
}

/* Zones whose cleaning was put off until now are on the list again, though nobody writes to them. */
static void put_off_look(struct sh_replog *log)
{
    if (!log->clean_again_ns || log->now_ns < log->clean_again_ns)
        return;
    log->clean_again_ns = 0;
    for (unsigned i = 0; i < SH_REPLOG_BUCKETS; i++) {
        for (struct sh_replog_zone *zone = log->buckets[i]; zone; zone = zone->next) {
            uint64_t at_ns = zone->clean_again_ns;
            if (at_ns > log->now_ns && (!log->clean_again_ns || at_ns < log->clean_again_ns))
                log->clean_again_ns = at_ns;
            if (!at_ns || at_ns > log->now_ns)
                continue;
            zone->clean_again_ns = 0;
            sh_replog_clean_if_full(zone);
        }
    }
}

static bool is_calm(const struct sh_replog *log)
{
    return !log->fresh.count && !log->ready.count && !log->writing &&
           log->now_ns >= log->appended_ns + CALM_NS;
}

uint64_t sh_replog_select_due_ns(const struct sh_replog *log)
{
    if (log->to_clean_count[SH_REPLOG_FULL] || log->to_clean_count[SH_REPLOG_URGENT])
        return log->now_ns;
    uint64_t due_ns = log->clean_again_ns ? log->clean_again_ns : UINT64_MAX;
    uint64_t calm_ns =
        log->to_clean_count[SH_REPLOG_IDLE] ? log->appended_ns + CALM_NS : UINT64_MAX;
    return calm_ns < due_ns ? calm_ns : due_ns;
}

/* Whether nothing keeps it from being cleaned now: its versions are not just on their way. */
static bool is_ready(const struct sh_replog_zone *zone)
{
    return !zone->is_ending && !zone->versions_batch && !zone->is_eon_ending;
}

static bool is_fuller(const struct sh_replog_zone *zone, const struct sh_replog_zone *other)
{
    return (uint64_t)zone->slots.count * other->slots_max >
           (uint64_t)other->slots.count * zone->slots_max;
}

static struct sh_replog_zone *fullest(const struct sh_replog *log, enum sh_replog_urgency least)
{
    struct sh_replog_zone *best = NULL;
    for (struct sh_replog_zone *zone = log->to_clean; zone; zone = zone->next_to_clean) {
        if (zone->urgency >= least && is_ready(zone) && (!best || is_fuller(zone, best)))
            best = zone;
    }
    return best;
}

/* A zone of the list at random: the first that is ready, behind so many. */
static struct sh_replog_zone *drawn(struct sh_replog *log)
{
    uint64_t all = 0, at = 0;
    for (unsigned i = SH_REPLOG_NOT + 1; i < SH_REPLOG_URGENCIES; i++)
        all += log->to_clean_count[i];
    uint64_t skipped = sh_random64(&log->config.random) % all;
    struct sh_replog_zone *first = NULL;
    for (struct sh_replog_zone *zone = log->to_clean; zone; zone = zone->next_to_clean, at++) {
        if (!is_ready(zone))
            continue;
        if (at >= skipped)
            return zone;
        first = first ? first : zone;
    }
    return first;
}

struct sh_replog_zone *sh_replog_select_zone(struct sh_replog *log)
{
    struct sh_replog_zone *zone = NULL;
    put_off_look(log);
    if (log->to_clean_count[SH_REPLOG_URGENT])
        zone = fullest(log, SH_REPLOG_URGENT);
    bool is_time = log->to_clean_count[SH_REPLOG_FULL] ||
                   (log->to_clean_count[SH_REPLOG_IDLE] && is_calm(log));
    if (!zone && is_time && log->choices % RANDOM_EACH == RANDOM_EACH - 1)
        zone = drawn(log);
    else if (!zone && is_time)
        zone = fullest(log, log->to_clean_count[SH_REPLOG_FULL] ? SH_REPLOG_FULL : SH_REPLOG_IDLE);
    if (!zone)
        return NULL;
    log->choices++;
    sh_replog_clean_leave(zone);
    return urgency_of(zone) ? zone : NULL; /* something may have changed since */
}

/* --- What is known of slots -------------------------------------------------------------------- */

uint64_t sh_replog_age(const struct sh_replog_zone *zone, const struct sh_log_slot *slot)
{
    const struct sh_replog *log = zone->log;
    bool is_timed = log->config.selection == SH_REPLOG_TIMESTAMPS;
    uint64_t now = is_timed ? log->seconds : zone->next_sequence;
    uint64_t then = is_timed ? slot->since : slot->end;
    uint64_t age = now > then ? now - then + 1 : 1;
    return age < AGE_MAX ? age : AGE_MAX;
}

uint64_t sh_replog_benefit(uint64_t age, uint64_t lasts, unsigned fill)
{
    SH_ASSERT(age && age <= AGE_MAX && fill <= 256);
    uint64_t current = lasts * fill / 256;
    uint64_t gained = ((lasts + age - current) << 16) / (lasts + age + current); /* of 2^16 */
    return age * gained;
}

/* How long entries of that generation last, by this one's cleanings, or the nearest one's below of which something is known. */
static uint64_t lasts_by_generation(const struct sh_replog_zone *zone, unsigned generation)
{
    while (generation && !zone->lasts[generation])
        generation--;
    return zone->lasts[generation];
}

static uint64_t lasts_of(const struct sh_replog_zone *zone, const struct sh_log_slot *slot)
{
    bool is_timed = zone->log->config.selection == SH_REPLOG_TIMESTAMPS;
    return is_timed && slot->generation ? slot->mean_age
                                        : lasts_by_generation(zone, slot->generation);
}

static uint64_t score(const struct sh_replog_zone *zone, uint32_t at)
{
    const struct sh_log_slot *slot = &zone->log->slots.slots[at];
    unsigned fill = (unsigned)((uint64_t)slot->filled * 256 / zone->log->slots.bytes);
    uint64_t age = sh_replog_age(zone, slot);
    if (zone->log->config.selection == SH_REPLOG_AGE_FILL)
        return age * fill;
    return sh_replog_benefit(age, lasts_of(zone, slot), fill);
}

void sh_replog_tally_slot(struct sh_replog_tally *tallies, const struct sh_replog_zone *zone,
                          const struct sh_log_slot *slot)
{
    if (slot->is_found) /* its age is not known */
        return;
    tallies[slot->generation].age += sh_replog_age(zone, slot);
    tallies[slot->generation].slots++;
}

void sh_replog_tally_entry(struct sh_replog_tally *tallies, const struct sh_log_slot *slot,
                           const struct sh_replog_entry *entry, bool is_kept)
{
    struct sh_replog_tally *tally = &tallies[slot->generation];
    uint64_t bytes = sh_replog_entry_stored(entry) + ENTRY_BYTES;
    if (slot->is_found)
        return;
    tally->seen += bytes;
    tally->kept += is_kept ? bytes : 0;
    tally->marks += is_kept && entry->is_removal ? bytes : 0;
}

void sh_replog_tally_end(const struct sh_replog_tally *tallies, struct sh_replog_zone *zone)
{
    uint64_t marks = 0, all = 0;
    for (unsigned i = 0; i <= SH_SLOT_GENERATION_MAX; i++) {
        const struct sh_replog_tally *tally = &tallies[i];
        marks += tally->marks;
        all += tally->kept;
        if (!tally->seen || !tally->slots)
            continue;
        uint64_t age = tally->age / tally->slots, least = tally->seen / KEPT_PART + 1;
        uint64_t kept = tally->kept > least ? tally->kept : least;
        uint64_t dropped = tally->seen > kept + least ? tally->seen - kept : least;
        uint64_t share = (kept << 8) / dropped; /* at most KEPT_PART, in 256ths */
        uint64_t lasts = age * share / 256 + 1;
        zone->lasts[i] = zone->lasts[i] ? (3 * zone->lasts[i] + lasts) / 4 : lasts;
    }
    zone->has_marks = marks * MARKS_PART > all;
}

void sh_replog_survivor_note(struct sh_replog_batch *batch, const struct sh_log_slot *from,
                             const struct sh_replog_entry *entry)
{
    uint32_t now = batch->zone->log->seconds, bytes = ENTRY_BYTES;
    bytes += (uint32_t)sh_replog_entry_stored(entry);
    if (!batch->age_bytes)
        batch->generation =
            (uint8_t)(from->generation < SH_SLOT_GENERATION_MAX ? from->generation + 1
                                                                : SH_SLOT_GENERATION_MAX);
    batch->age_sum += now > entry->seconds ? (uint64_t)(now - entry->seconds) * bytes : 0;
    batch->age_bytes += bytes;
}

void sh_replog_survivors_note(struct sh_log_slot *slot, const struct sh_replog_batch *batch,
                              uint32_t bytes)
{
    if (!batch->age_bytes) /* it only names lives */
        return;
    uint64_t before = slot->filled - SH_SLOT_HEAD_BYTES, age = batch->age_sum / batch->age_bytes;
    uint64_t mean = (slot->mean_age * before + age * bytes) / (before + bytes);
    if (!slot->generation)
        slot->generation = batch->generation;
    slot->mean_age = mean < SH_SLOT_MEAN_AGE_MAX ? (uint32_t)mean : SH_SLOT_MEAN_AGE_MAX;
}

/* --- Which slots ------------------------------------------------------------------------------- */

/* Whether it is cleaned first, for what would have to be read or kept for it: all entries from an earlier process, as long as some are left, for versions
 * that a crash has lost; the same for entries that may be there twice; and lives, where it may have pieces of a chunk that was abandoned. */
static bool is_from_before(const struct sh_replog_zone *zone, uint32_t at)
{
    const struct sh_log_slot *slot = &zone->log->slots.slots[at];
    return slot->is_found || slot->order < zone->twice_order ||
           (zone->has_void && slot->order < zone->void_order);
}

/* Moves one of them to the front; the others stay in their order. */
static void bring(uint32_t *slots, unsigned from)
{
    uint32_t slot = slots[from];
    memmove(slots + 1, slots, from * sizeof *slots);
    slots[0] = slot;
}

/* Where the next one that is cleaned lies; of equal ones the first. */
static unsigned next_of(struct sh_replog_zone *zone, const uint32_t *slots, unsigned count)
{
    if (zone->log->config.selection == SH_REPLOG_RANDOM)
        return (unsigned)(sh_random64(&zone->log->config.random) % count);
    unsigned best = 0;
    uint64_t most = score(zone, slots[0]);
    for (unsigned i = 1; i < count; i++) {
        uint64_t its = score(zone, slots[i]);
        if (its <= most)
            continue;
        most = its;
        best = i;
    }
    return best;
}

/* A slot is hotter whose entries were copied less often; among these, the one that was written last. */
static bool is_hotter(const struct sh_log_slot *slot, const struct sh_log_slot *other)
{
    if (slot->generation != other->generation)
        return slot->generation < other->generation;
    return slot->end > other->end;
}

static void hot_to_cold(const struct sh_replog_zone *zone, uint32_t *slots, unsigned count)
{
    const struct sh_log_slot *all = zone->log->slots.slots;
    for (unsigned i = 1; i < count; i++) {
        unsigned to = 0;
        while (to < i && !is_hotter(&all[slots[i]], &all[slots[to]]))
            to++;
        bring(slots + to, i - to);
    }
}

void sh_replog_select_slots(struct sh_replog_zone *zone, uint32_t *slots, unsigned count,
                            unsigned most)
{
    unsigned before = 0;
    SH_ASSERT(most <= count);
    while (before < most && is_from_before(zone, slots[before]))
        before++;
    /* Where the last cleaning has gained nothing, all slots are gone through, so that nothing that can be gained is missed; and where it has
     * kept many marks, so that nothing is left which is older. */
    bool is_by_order =
        zone->log->config.selection == SH_REPLOG_OLDEST || zone->fruitless || zone->has_marks;
    if (is_by_order)
        return;
    for (unsigned i = before; i < most; i++)
        bring(slots + i, next_of(zone, slots + i, count - i));
    hot_to_cold(zone, slots + before, most - before);
}
