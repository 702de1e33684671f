/* Programs wait at barriers. From outside it is known who waits, as what each member brings says
 * which call it is; so it can be told whether a round should have been over. */
#include <string.h>

#include "base/assert.h"
#include "sim/cluster_programs_int.h"

#define SIZE_MAX_MEMBERS 3
#define DATA_BYTES 12
/* The library says so where a member has certainly been signed off; else nobody knows. */
#define SIGNED_OFF "others have not signed on"

static struct cw_barrier *barrier_at(struct cw_world *world, unsigned at)
{
    return &world->programs->barriers[at];
}

static void forget(struct cw_barrier *barrier)
{
    unsigned generation = barrier->generation;
    *barrier = (struct cw_barrier){.generation = generation + 1};
}

/* --- Members -----------------------------------------------------------------------------------
 */

static void data_make(uint8_t *bytes, const struct cw_barrier *barrier, unsigned member)
{
    sh_store64(bytes, barrier->id.v);
    sh_store32(bytes + 8, member);
}

/* Which call a member is; NULL, and a failure: nobody's. */
static struct cw_member *member_of(struct cw_world *world, struct cw_barrier *barrier,
                                   const struct shoal_barrier_member *of)
{
    const uint8_t *bytes = of->data;
    bool is_good = of->size == DATA_BYTES && sh_load64(bytes) == barrier->id.v &&
                   sh_load32(bytes + 8) < barrier->count;
    struct cw_member *member = is_good ? &barrier->members[sh_load32(bytes + 8)] : NULL;
    CW_HOLDS(world, is_good, "a barrier has a member that nobody is");
    CW_HOLDS(world, !member || !member->id || member->id == of->id,
             "two members of a barrier have come with one call");
    if (member)
        member->id = of->id;
    return member;
}

/* Whether the superpeer may have taken it for dead: it was there for so long, and may have been cut
 * off. That it signed off later, it could all the same. */
static bool may_be_dead(const struct cw_world *world, const struct cw_member *member)
{
    uint64_t until_ns = member->ended_ns ? member->ended_ns : sh_world_now(world->sim);
    if (member->end == CW_DIED || member->end == CW_UNCLEAR)
        return true;
    return member->end != CW_RELEASED && until_ns - member->begun_ns >= CW_FAILURE_NS / 10 * 9;
}

/* How many seats of a barrier that survivors share may have gone with their members. */
static unsigned seats_lost(const struct cw_world *world, const struct cw_barrier *barrier)
{
    unsigned lost = 0;
    for (unsigned i = 0; i < barrier->count; i++)
        lost += may_be_dead(world, &barrier->members[i]);
    return barrier->survivors ? lost : 0;
}

/* --- Rounds ------------------------------------------------------------------------------------
 */

/* Who had been seen to wait in that round, and died without a word, must have broken it. */
static void deaths_were_told(struct cw_world *world, struct cw_barrier *barrier, uint64_t number)
{
    for (unsigned i = 0; i < barrier->count && !barrier->survivors; i++) {
        const struct cw_member *member = &barrier->members[i];
        CW_HOLDS(world, member->seen != number || member->end != CW_DIED || member->round == number,
                 "member %u of a barrier died in round %" PRIu64 ", and the others were not told",
                 i, number);
    }
}

static void round_seen(struct cw_world *world, struct cw_barrier *barrier,
                       const struct shoal_barrier_round *round)
{
    struct cw_round *known = &barrier->rounds[round->number % CW_BARRIER_ROUNDS];
    uint64_t hash = round->gone;
    for (uint32_t i = 0; i < round->count; i++) {
        struct cw_member *member = member_of(world, barrier, &round->members[i]);
        hash = sh_mix64(hash ^ sh_mix64(round->members[i].id));
        if (!member)
            return;
        CW_HOLDS(world, !member->round || member->round == round->number,
                 "member %u of a barrier was in rounds %" PRIu64 " and %" PRIu64,
                 (unsigned)(member - barrier->members), member->round, round->number);
        CW_HOLDS(world, member->end != CW_SIGNED_OFF,
                 "member %u of a barrier had signed off, and was in round %" PRIu64,
                 (unsigned)(member - barrier->members), round->number);
        member->round = round->number;
    }
    bool is_known = known->number == round->number;
    CW_HOLDS(world, !is_known || known->hash == hash,
             "two members were told different things of round %" PRIu64, round->number);
    *known = (struct cw_round){round->number, hash};
}

/* A member was let go on. */
static void released(struct cw_world *world, struct cw_barrier *barrier,
                     const struct shoal_barrier_round *round)
{
    unsigned lost = seats_lost(world, barrier);
    unsigned least = barrier->size > lost ? barrier->size - lost : 1;
    CW_HOLDS(world, round->count >= least && round->count <= barrier->size,
             "a barrier for %u let %u members go on (%u may be dead)", barrier->size, round->count,
             lost);
    round_seen(world, barrier, round);
    deaths_were_told(world, barrier, round->number);
    world->result->barriers++;
}

/* The superpeers keep the last round that is over: a member whose question arrives when the next one is
 * over, too, is told nothing of its own. That takes the members of two rounds. */
static bool is_forgotten(const struct cw_barrier *barrier, const struct shoal_barrier_round *round)
{
    return round && !round->gone && !round->count && barrier->count >= 2 * barrier->size;
}

static void broken(struct cw_world *world, struct cw_barrier *barrier, struct cw_member *self,
                   const struct shoal_barrier_round *round)
{
    CW_HOLDS(world, !world->config.is_quiet || is_forgotten(barrier, round),
             "a barrier broke where nobody had died");
    self->end = CW_UNCLEAR; /* perhaps it was taken for dead itself */
    if (!round || !round->gone || round->gone == round->self)
        return;
    CW_HOLDS(world, !barrier->survivors, "survivors were told that round %" PRIu64 " is broken",
             round->number);
    for (unsigned i = 0; i < barrier->count; i++) {
        const struct cw_member *member = &barrier->members[i];
        CW_HOLDS(world, member->id != round->gone || member->round != round->number,
                 "member %u of a barrier was let go on, and called dead, in round %" PRIu64, i,
                 round->number);
    }
    round_seen(world, barrier, round);
    self->end = CW_RELEASED;
}

static void wait_ended(struct cw_world *world, struct cw_barrier *barrier, struct cw_member *self,
                       enum shoal_err err, const struct shoal_barrier_round *round)
{
    self->end = CW_UNCLEAR;
    switch (err) {
    case SHOAL_OK:
        self->end = CW_RELEASED;
        released(world, barrier, round);
        break;
    case SHOAL_EBROKEN:
        broken(world, barrier, self, round);
        break;
    case SHOAL_ENONAME:
        CW_HOLDS(world, barrier->is_freed, "a barrier is gone, though nobody freed it");
        break;
    case SHOAL_ETIMEOUT:
        if (strcmp(shoal_error_detail(), SIGNED_OFF) == 0)
            self->end = CW_SIGNED_OFF;
        CW_HOLDS(world, self->end != CW_SIGNED_OFF || !self->round,
                 "a member that had signed off was in round %" PRIu64, self->round);
        break;
    default:
        break;
    }
}

/* --- Calls -------------------------------------------------------------------------------------
 */

static void create(struct cw_fiber *fiber, unsigned at)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned most = 2 * world->config.programs;
    if (most > SIZE_MAX_MEMBERS)
        most = SIZE_MAX_MEMBERS;
    unsigned size = 2 + (unsigned)cw_draw(fiber, most - 1), node = fiber->program->host->node;
    bool survivors = cw_draw(fiber, 3) == 0;
    shoal_barrier id;
    unsigned generation = barrier_at(world, at)->generation;
    world->programs->barriers_begun++;
    enum shoal_err err = shoal_barrier_create(
        fiber->program->store, size, survivors ? SHOAL_BARRIER_SURVIVORS : SHOAL_BARRIER_TELL, &id);
    struct cw_barrier *barrier = barrier_at(world, at);
    if (err || fiber->program->is_dying || barrier->generation != generation || barrier->is_there)
        return;
    forget(barrier);
    barrier->is_there = true;
    barrier->id = id;
    barrier->size = size;
    barrier->survivors = survivors;
    cw_say(world, node, "barrier %u is %" PRIx64 ", for %u%s", at, id.v, size,
           survivors ? ", survivors go on" : "");
}

/* Once its time was over, or that of its sign, it may have signed off before it died. */
static enum cw_member_end end_of_dead(const struct cw_fiber *fiber, uint64_t begun_ns,
                                      uint64_t timeout_ns)
{
    uint64_t least_ns = fiber->program->options.request_timeout_ns;
    if (timeout_ns < least_ns)
        least_ns = timeout_ns;
    uint64_t past_ns = sh_world_now(cw_world_of(fiber)->sim) - begun_ns;
    return past_ns < least_ns - least_ns / 20 ? CW_DIED : CW_UNCLEAR;
}

static void wait(struct cw_fiber *fiber, unsigned at)
{
    struct cw_world *world = cw_world_of(fiber);
    struct cw_barrier *barrier = barrier_at(world, at);
    unsigned node = fiber->program->host->node, generation = barrier->generation;
    unsigned number = barrier->count++;
    struct shoal_barrier_round *round = NULL;
    uint8_t data[DATA_BYTES];
    data_make(data, barrier, number);
    uint64_t timeout_ns = cw_draw(fiber, 8 * CW_S), begun_ns = sh_world_now(world->sim);
    barrier->members[number].begun_ns = begun_ns;
    cw_say(world, node, "waits at barrier %u as member %u", at, number);
    enum shoal_err err = shoal_barrier_wait(fiber->program->store, barrier->id, data, sizeof data,
                                            timeout_ns, &round);
    bool is_over = barrier->generation != generation;
    if (!is_over)
        barrier->members[number].ended_ns = sh_world_now(world->sim);
    if (fiber->program->is_dying) {
        if (!is_over)
            barrier->members[number].end = end_of_dead(fiber, begun_ns, timeout_ns);
    } else {
        cw_say(world, node, "waited at barrier %u as member %u: %s, round %" PRIu64 " of %u", at,
               number, shoal_err_name(err), round ? round->number : 0, round ? round->count : 0);
        if (!is_over && round)
            barrier->members[number].id = round->self;
        if (!is_over)
            wait_ended(world, barrier, &barrier->members[number], err, round);
    }
    shoal_barrier_round_free(round);
}

static void status(struct cw_fiber *fiber, unsigned at)
{
    struct cw_world *world = cw_world_of(fiber);
    struct cw_barrier *barrier = barrier_at(world, at);
    unsigned node = fiber->program->host->node, generation = barrier->generation;
    struct shoal_barrier_round *round = NULL;
    enum shoal_err err = shoal_barrier_status(fiber->program->store, barrier->id, &round);
    if (fiber->program->is_dying || barrier->generation != generation) {
        shoal_barrier_round_free(round);
        return;
    }
    CW_HOLDS(world, err != SHOAL_ENONAME || barrier->is_freed,
             "a barrier is gone, though nobody freed it");
    if (!err)
        cw_say(world, node, "barrier %u: round %" PRIu64 ", %u of %u have signed on", at,
               round->number, round->count, round->size);
    for (uint32_t i = 0; !err && i < round->count; i++) {
        struct cw_member *member = member_of(world, barrier, &round->members[i]);
        if (member)
            member->seen = round->number;
    }
    if (!err)
        barrier->is_empty = round->count == 0;
    shoal_barrier_round_free(round);
}

static void end(struct cw_fiber *fiber, unsigned at)
{
    struct cw_world *world = cw_world_of(fiber);
    struct cw_barrier *barrier = barrier_at(world, at);
    unsigned generation = barrier->generation;
    barrier->is_freed = true;
    enum shoal_err err = shoal_barrier_free(fiber->program->store, barrier->id);
    world->programs->barriers_freed += err == SHOAL_OK && !fiber->program->is_dying;
    if (!fiber->program->is_dying)
        cw_say(world, fiber->program->host->node, "frees barrier %u: %s", at, shoal_err_name(err));
    if (barrier->generation == generation)
        forget(barrier);
}

void cw_barriers_do(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned at = (unsigned)cw_draw(fiber, CW_BARRIERS);
    const struct cw_barrier *barrier = barrier_at(world, at);
    uint64_t drawn = cw_draw(fiber, 40);
    if (!barrier->is_there)
        create(fiber, at);
    else if (drawn == 0 || barrier->count == CW_MEMBERS)
        end(fiber, at);
    else if (drawn < 10)
        status(fiber, at);
    else
        wait(fiber, at);
}

void cw_barriers_look(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    for (unsigned i = 0; i < CW_BARRIERS && !fiber->program->is_dying; i++) {
        if (barrier_at(world, i)->is_there && !barrier_at(world, i)->is_empty)
            status(fiber, i);
    }
}

void cw_barriers_ask(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_BARRIERS; i++)
        barrier_at(world, i)->is_empty = false;
}

bool cw_barriers_are_empty(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_BARRIERS; i++) {
        if (barrier_at(world, i)->is_there && !barrier_at(world, i)->is_empty)
            return false;
    }
    return true;
}

uint64_t cw_barriers_most(const struct cw_world *world)
{
    return world->programs->barriers_begun - world->programs->barriers_freed;
}
