/* Programs lock the chunks that they share, for reading and for writing, and wait for that. Each
 * fiber is an owner of its own. Of each owner and chunk it is known from outside
 *   - when it surely holds a lock: its call succeeded, counted from when it was sent, as long as none
 *     of its connections has been lost (a lock falls with its connection);
 *   - until when it may hold one or wait: a call is under way, or its lease may last.
 * So no writer may surely be beside anyone; who surely holds a lock can't be told that there is none;
 * and nobody may be told to have waited in vain, or that another is in the way, where nobody else
 * may have been. */
#include "base/assert.h"
#include "sim/cluster_programs_int.h"

#define LOCKED_WORDS 3 /* few, so that owners meet */
#define LEASE_SHORT_NS (4 * CW_S)
#define LEASE_LONG_NS (100 * CW_S) /* longer than a cluster has to settle */
#define AGAIN_NS (50 * CW_MS)
#define GIVE_UP_TRIES 300
/* Clocks differ by 2 % in all. */
#define LEAST(ns) ((ns) - (ns) / 50)
#define MOST(ns) ((ns) + (ns) / 40)
/* A request that was sent on a connection that is lost may still be granted for so long. */
#define LATE_NS (5 * CW_S)
/* Where nothing fails, a request is there by then, and its answer. */
#define CALM_NS (300 * CW_MS)

/* A call on a lock. */
struct attempt {
    struct cw_fiber *fiber;
    unsigned at; /* the chunk's place */
    shoal_cid cid;
    unsigned generation; /* of what is known of the chunk */
    uint64_t began_ns, began_there_ns, losses, lease_ns, wait_ns, away_ns;
    struct cw_hold before;
};

static unsigned owner_of(const struct cw_fiber *fiber)
{
    return fiber->program->host->index * CW_LOCKERS + (fiber->index - CW_FIRST_LOCKER);
}

static struct cw_hold *hold_of(const struct attempt *attempt)
{
    return &cw_world_of(attempt->fiber)->programs->holds[attempt->at][owner_of(attempt->fiber)];
}

static uint64_t losses_of(const struct cw_fiber *fiber)
{
    return sh_world_losses(cw_world_of(fiber)->sim, fiber->program->host->node);
}

/* Whether all that is known of the chunk is still of this one. */
static bool is_known(struct cw_world *world, unsigned at, unsigned generation)
{
    const struct cw_word *word = &world->programs->words[at];
    return word->is_there && !word->is_removing && word->history.generation == generation;
}

static bool is_sure(struct cw_world *world, unsigned at, const struct cw_hold *hold)
{
    return hold->mode && sh_world_now(world->sim) < hold->until_ns &&
           is_known(world, at, hold->generation) &&
           hold->losses == sh_world_losses(world->sim, hold->node);
}

/* --- Judging -----------------------------------------------------------------------------------
 */

void cw_locks_watch(struct cw_world *world)
{
    struct cw_programs *all = world->programs;
    uint64_t now = sh_world_now(world->sim);
    bool was_away = all->is_away;
    all->is_away = false;
    for (unsigned at = 0; at < LOCKED_WORDS; at++) {
        const struct cw_word *word = &all->words[at];
        all->is_away |= word->is_there && !word->is_removing && !cw_is_writable(world, word->cid);
    }
    if (was_away || all->is_away)
        all->away_ns += now - all->away_watched_ns;
    all->away_watched_ns = now;
}

/* Until when an owner may hold a lock or wait. On the way to another node a lock's time stands still, so one that was
 * not given back lasts for as much longer as chunks have been on their way since. */
static uint64_t may_last_ns(const struct cw_world *world, const struct cw_hold *hold)
{
    bool may_travel = hold->lease_ns && hold->may_until_ns < SH_NEVER;
    return hold->may_until_ns + (may_travel ? world->programs->away_ns - hold->away_ns : 0);
}

/* Until when anybody else may have held or waited: also a former process in the program's place, which
 * died with the lock (one that moved with its chunk lasts for its lease, whatever the program in its place
 * has locked since), and one that goes on with a chunk that was removed, whose ID has been given again. */
static uint64_t others_until_ns(struct cw_world *world, const struct attempt *attempt)
{
    uint64_t until_ns =
        attempt->before.mode ? attempt->before.is_clear_since_ns : attempt->before.may_until_ns;
    for (unsigned i = 0; i < (CW_WORDS + CW_FORMER_WORDS) * CW_OWNERS; i++) {
        const struct cw_hold *other = &world->programs->holds[i / CW_OWNERS][i % CW_OWNERS];
        if (i % CW_OWNERS != owner_of(attempt->fiber) && other->cid.v == attempt->cid.v &&
            may_last_ns(world, other) > until_ns)
            until_ns = may_last_ns(world, other);
    }
    return until_ns;
}

static void conflicts_none(struct cw_world *world, const struct attempt *attempt)
{
    const struct cw_hold *hold = hold_of(attempt);
    for (unsigned i = 0; i < CW_OWNERS && is_sure(world, attempt->at, hold); i++) {
        const struct cw_hold *other = &world->programs->holds[attempt->at][i];
        bool is_alone = hold->mode == SHOAL_LOCK_WRITE || other->mode == SHOAL_LOCK_WRITE;
        CW_HOLDS(world, other == hold || !is_alone || !is_sure(world, attempt->at, other),
                 "chunk %u:%" PRIu64 " is locked by two programs, one of which writes",
                 shoal_cid_creator(attempt->cid).v, shoal_cid_local(attempt->cid));
    }
}

/* Where nothing fails and no chunk moves, who waits is served in order of arrival. */
static void nobody_overtook(struct cw_world *world, const struct attempt *attempt)
{
    if (!world->config.is_quiet || !world->config.is_still || !attempt->wait_ns ||
        attempt->before.may_until_ns >= attempt->began_ns)
        return;
    for (unsigned i = 0; i < CW_OWNERS; i++) {
        const struct cw_hold *other = &world->programs->holds[attempt->at][i];
        bool overtook = other->asked_ns > attempt->began_ns + CALM_NS &&
                        other->granted_ns + CALM_NS < sh_world_now(world->sim);
        CW_HOLDS(world, !overtook || i == owner_of(attempt->fiber),
                 "a program waited for chunk %u:%" PRIu64 ", and another that came later had it",
                 shoal_cid_creator(attempt->cid).v, shoal_cid_local(attempt->cid));
    }
}

/* A lock was granted or extended. */
static void granted(struct attempt *attempt, enum shoal_lock_mode mode)
{
    struct cw_world *world = cw_world_of(attempt->fiber);
    struct cw_hold *hold = hold_of(attempt);
    uint64_t now = sh_world_now(world->sim);
    bool was_sure = is_sure(world, attempt->at, hold);
    bool is_fresh = attempt->before.may_until_ns < attempt->began_ns;
    hold->until_ns = was_sure ? hold->until_ns : 0;
    if (attempt->began_ns + LEAST(attempt->lease_ns) > hold->until_ns)
        hold->until_ns = attempt->began_ns + LEAST(attempt->lease_ns);
    hold->mode = mode;
    hold->losses = attempt->losses;
    conflicts_none(world, attempt);
    nobody_overtook(world, attempt);
    if (is_fresh) {
        hold->asked_ns = attempt->began_ns;
        hold->granted_ns = now;
    }
    world->result->leases++;
}

/* Another was in the way: there must have been another. */
static void refused(struct attempt *attempt, enum shoal_err err)
{
    struct cw_world *world = cw_world_of(attempt->fiber);
    const struct cw_program *program = attempt->fiber->program;
    uint64_t past_ns = cw_program_now(program) - attempt->began_there_ns;
    /* A lock for reading that it holds already is made one for writing at once, or not at all. */
    bool is_upgrade = may_last_ns(world, &attempt->before) >= attempt->began_ns;
    uint64_t waited_ns = LEAST(attempt->wait_ns) - attempt->wait_ns / 50;
    CW_HOLDS(world, past_ns >= waited_ns || (err == SHOAL_EBUSY && is_upgrade),
             "a program was told %s after %" PRIu64 " ns, and was to wait for %" PRIu64,
             shoal_err_name(err), past_ns, attempt->wait_ns);
    nobody_overtook(world, attempt);
    if (err == SHOAL_EBUSY)
        waited_ns = 0;
    uint64_t until_ns = others_until_ns(world, attempt);
    uint64_t least_ns = attempt->began_ns + waited_ns;
    CW_HOLDS(world, until_ns >= least_ns || least_ns - until_ns <= AGAIN_NS,
             "a program could not lock chunk %u:%" PRIu64 " (%s), though nobody else had",
             shoal_cid_creator(attempt->cid).v, shoal_cid_local(attempt->cid), shoal_err_name(err));
}

/* --- Calls -------------------------------------------------------------------------------------
 */

/* Nothing is known of a chunk that another had the ID of, but until when the owner may hold it: it may
 * have gone on with the former chunk, in another place, when the ID had been given again. */
static struct cw_hold unknown_of(const struct attempt *attempt)
{
    struct cw_world *world = cw_world_of(attempt->fiber);
    struct cw_hold hold = {.generation = attempt->generation,
                           .node = attempt->fiber->program->host->node};
    for (unsigned at = 0; at < CW_WORDS + CW_FORMER_WORDS; at++) {
        const struct cw_hold *former = &world->programs->holds[at][owner_of(attempt->fiber)];
        if (former->cid.v != attempt->cid.v || former->may_until_ns < attempt->began_ns)
            continue;
        hold.lease_ns = former->lease_ns > hold.lease_ns ? former->lease_ns : hold.lease_ns;
        if (may_last_ns(world, former) > may_last_ns(world, &hold)) {
            hold.may_until_ns = former->may_until_ns;
            hold.away_ns = former->away_ns;
        }
        if (former->is_clear_since_ns > hold.is_clear_since_ns)
            hold.is_clear_since_ns = former->is_clear_since_ns;
    }
    return hold;
}

/* Another chunk is in the place of the one that something is known of. */
static void former_keep(const struct attempt *attempt)
{
    struct cw_programs *all = cw_world_of(attempt->fiber)->programs;
    const struct cw_hold *hold = hold_of(attempt);
    if (hold->cid.v && hold->may_until_ns >= attempt->began_ns)
        all->holds[CW_WORDS + all->former_holds++ % CW_FORMER_WORDS][owner_of(attempt->fiber)] =
            *hold;
}

static struct attempt begin(struct cw_fiber *fiber, unsigned at, shoal_cid cid, unsigned generation,
                            uint64_t lease_ns, uint64_t wait_ns)
{
    struct attempt attempt = {.fiber = fiber,
                              .at = at,
                              .cid = cid,
                              .generation = generation,
                              .began_ns = sh_world_now(cw_world_of(fiber)->sim),
                              .began_there_ns = cw_program_now(fiber->program),
                              .losses = losses_of(fiber),
                              .lease_ns = lease_ns,
                              .wait_ns = wait_ns,
                              .away_ns = cw_world_of(fiber)->programs->away_ns};
    struct cw_hold *hold = hold_of(&attempt);
    if (hold->generation != generation || hold->cid.v != cid.v) {
        former_keep(&attempt);
        *hold = unknown_of(&attempt);
    }
    attempt.before = *hold;
    hold->cid = cid;
    hold->may_until_ns = SH_NEVER;
    if (lease_ns > hold->lease_ns)
        hold->lease_ns = lease_ns;
    return attempt;
}

/* True: it is over, and what came of it counts. */
static bool end(struct attempt *attempt, const char *what, enum shoal_err err, bool frees)
{
    struct cw_world *world = cw_world_of(attempt->fiber);
    struct cw_hold *hold = hold_of(attempt);
    if (attempt->fiber->program->is_dying)
        return false;
    uint64_t now = sh_world_now(world->sim);
    cw_say(world, attempt->fiber->program->host->node, "%s %u:%" PRIu64 " as owner %u: %s", what,
           shoal_cid_creator(attempt->cid).v, shoal_cid_local(attempt->cid), attempt->fiber->index,
           shoal_err_name(err));
    if (hold->generation != attempt->generation)
        return false;
    bool is_clear = attempt->losses == losses_of(attempt->fiber) && hold->is_clear_since_ns <= now;
    bool has_none = frees || err == SHOAL_EBUSY || err == SHOAL_ENOLOCK || err == SHOAL_ENOCHUNK;
    hold->may_until_ns = now + (has_none && is_clear ? 0 : MOST(hold->lease_ns));
    hold->away_ns = attempt->away_ns;
    if (err == SHOAL_EBUSY && may_last_ns(world, &attempt->before) > may_last_ns(world, hold)) {
        hold->may_until_ns = attempt->before.may_until_ns;
        hold->away_ns = attempt->before.away_ns;
    }
    if (!is_clear || (err && !has_none)) {
        hold->may_until_ns += LATE_NS;
        hold->is_clear_since_ns = hold->may_until_ns;
    }
    if (has_none && is_clear)
        hold->lease_ns = err == SHOAL_EBUSY ? attempt->before.lease_ns : 0;
    bool was_sure = is_sure(world, attempt->at, &attempt->before);
    CW_HOLDS(world, err != SHOAL_ENOLOCK || !was_sure,
             "a program that had locked chunk %u:%" PRIu64 " was told that it had not",
             shoal_cid_creator(attempt->cid).v, shoal_cid_local(attempt->cid));
    CW_HOLDS(world, err != SHOAL_ECANCELED, "a program was told that it had asked twice");
    if (err)
        return false;
    return true;
}

/* Whether a node must have said so: the library tells a node's silence only when its time is over. */
static bool is_answered(const struct attempt *attempt)
{
    const struct cw_program *program = attempt->fiber->program;
    uint64_t past_ns = cw_program_now(program) - attempt->began_there_ns;
    return past_ns < attempt->wait_ns + program->options.request_timeout_ns / 2;
}

static enum shoal_err lock(struct cw_fiber *fiber, unsigned at, shoal_cid cid, unsigned generation,
                           enum shoal_lock_mode mode, uint64_t lease_ns, uint64_t wait_ns)
{
    struct attempt attempt = begin(fiber, at, cid, generation, lease_ns, wait_ns);
    shoal_owner owner = {fiber->index};
    cw_say(cw_world_of(fiber), fiber->program->host->node,
           "locks %u:%" PRIu64 " as owner %u to %s for %" PRIu64 " ns, waits for %" PRIu64 " ns",
           shoal_cid_creator(cid).v, shoal_cid_local(cid), fiber->index,
           mode == SHOAL_LOCK_READ ? "read" : "write", lease_ns, wait_ns);
    enum shoal_err err = shoal_lock(fiber->program->store, cid, owner, mode, lease_ns, wait_ns);
    bool is_refused = (err == SHOAL_EBUSY || err == SHOAL_ETIMEOUT) && is_answered(&attempt);
    bool was_free = attempt.before.may_until_ns < attempt.began_ns;
    if (end(&attempt, "locked", err, is_refused && was_free)) {
        bool writes = attempt.before.mode == SHOAL_LOCK_WRITE &&
                      is_sure(cw_world_of(fiber), at, &attempt.before);
        granted(&attempt, writes ? SHOAL_LOCK_WRITE : mode);
    } else if (!fiber->program->is_dying && is_refused &&
               is_known(cw_world_of(fiber), at, generation)) {
        refused(&attempt, err);
    }
    return err;
}

/* Extends it, changes its mode, or asks for it once more. */
static void keep(struct cw_fiber *fiber, unsigned at, shoal_cid cid, unsigned generation,
                 uint64_t lease_ns)
{
    shoal_owner owner = {fiber->index};
    enum shoal_lock_mode wanted = cw_draw(fiber, 2) ? SHOAL_LOCK_READ : SHOAL_LOCK_WRITE;
    uint64_t drawn = cw_draw(fiber, 3);
    if (drawn == 0) {
        (void)lock(fiber, at, cid, generation, wanted, lease_ns, 0);
        return;
    }
    struct attempt attempt = begin(fiber, at, cid, generation, lease_ns, 0);
    struct cw_hold *hold = hold_of(&attempt);
    enum shoal_err err;
    if (drawn == 1) {
        err = shoal_lock_extend(fiber->program->store, cid, owner, lease_ns);
        wanted = hold->mode == SHOAL_LOCK_WRITE ? SHOAL_LOCK_WRITE : SHOAL_LOCK_READ;
    } else {
        /* Until its answer it reads at least. */
        hold->mode = hold->mode ? SHOAL_LOCK_READ : 0;
        err = shoal_lock_swap(fiber->program->store, cid, owner, wanted, lease_ns);
    }
    if (end(&attempt, drawn == 1 ? "extended" : "changed", err, false))
        granted(&attempt, wanted);
}

static bool is_over(enum shoal_err err)
{
    return err == SHOAL_OK || err == SHOAL_ENOLOCK || err == SHOAL_ENOCHUNK;
}

/* Until it is known to be free: a long lease would outlast the world's patience. */
static void unlock(struct cw_fiber *fiber, unsigned at, shoal_cid cid, unsigned generation)
{
    enum shoal_err err;
    unsigned tries = 0;
    do {
        struct attempt attempt = begin(fiber, at, cid, generation, 0, 0);
        hold_of(&attempt)->mode = 0;
        err = shoal_unlock(fiber->program->store, cid, (shoal_owner){fiber->index});
        (void)end(&attempt, "unlocked", err, err == SHOAL_OK);
        if (fiber->program->is_dying || is_over(err))
            return;
        tries = cw_servers_of(cw_world_of(fiber), cid) ? 0 : tries + 1;
        cw_fiber_sleep(fiber, AGAIN_NS);
    } while (!fiber->program->is_dying && tries < GIVE_UP_TRIES);
}

void cw_locks_do(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned at = (unsigned)cw_draw(fiber, LOCKED_WORDS);
    const struct cw_word *word = &world->programs->words[at];
    enum shoal_lock_mode mode = cw_draw(fiber, 3) ? SHOAL_LOCK_READ : SHOAL_LOCK_WRITE;
    bool is_long = cw_draw(fiber, 6) == 0, runs_out = cw_draw(fiber, 8) == 0 && !is_long;
    uint64_t lease_ns =
        is_long ? LEASE_LONG_NS : LEASE_SHORT_NS / 10 + cw_draw(fiber, LEASE_SHORT_NS);
    uint64_t wait_ns = cw_draw(fiber, 3) ? CW_MS + cw_draw(fiber, 4 * CW_S) : 0;
    unsigned keeps = (unsigned)cw_draw(fiber, 4), generation = word->history.generation;
    shoal_cid cid = word->cid;
    if (!word->is_there || word->is_removing)
        return;
    enum shoal_err err = lock(fiber, at, cid, generation, mode, lease_ns, wait_ns);
    for (unsigned i = 0; !err && i < keeps && !fiber->program->is_dying; i++) {
        cw_fiber_sleep(fiber, 1 + cw_draw(fiber, CW_S / 2));
        if (!fiber->program->is_dying)
            keep(fiber, at, cid, generation, lease_ns);
    }
    bool has_none = err == SHOAL_EBUSY || err == SHOAL_ENOCHUNK;
    if (!fiber->program->is_dying && !runs_out && !has_none)
        unlock(fiber, at, cid, generation);
}

/* --- Deaths ------------------------------------------------------------------------------------
 */

void cw_locks_dropped(struct cw_host *host)
{
    struct cw_programs *all = host->world->programs;
    uint64_t now = sh_world_now(host->world->sim);
    for (unsigned at = 0; at < CW_WORDS + CW_FORMER_WORDS; at++) {
        for (unsigned i = 0; i < CW_LOCKERS; i++) {
            struct cw_hold *hold = &all->holds[at][host->index * CW_LOCKERS + i];
            hold->mode = 0;
            if (hold->may_until_ns < now)
                continue;
            hold->may_until_ns = now + MOST(hold->lease_ns) + LATE_NS;
            hold->is_clear_since_ns = hold->may_until_ns;
        }
    }
}
