/* Where room is made for zones (node/room.h): the plan alone, and in models of clusters whose peers go by it.
 *
 * SHOAL_TEST_SEED: of the models (default 1; printed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random_test.h"
#include "node/room.h"

#define MIB (UINT64_C(1) << 20)

static const struct sh_zone record = {.id = 1};

static struct sh_room_wish wish_of(uint64_t zone_bytes, uint64_t missing_bytes)
{
    return (struct sh_room_wish){.record = &record,
                                 .zone_bytes = zone_bytes,
                                 .missing_bytes = missing_bytes,
                                 .may_move = true};
}

/* --- One plan ---------------------------------------------------------------------------------- */

static void a_store_is_never_filled(void **state)
{
    (void)state;
    assert_in_range(sh_room_bytes(64 * MIB, 0, 0), 40 * MIB, 63 * MIB);
    assert_int_equal(sh_room_bytes(64 * MIB, 64 * MIB, 0), 0);
    assert_int_equal(sh_room_bytes(64 * MIB, 63 * MIB, 0), 0); /* its reserve */
    assert_int_equal(
        sh_room_bytes(64 * MIB, 64 * MIB, 10 * MIB), /* what is free in blocks counts */
        sh_room_bytes(64 * MIB, 54 * MIB, 0));
    assert_int_equal(sh_room_bytes(64 * MIB, 10 * MIB, 20 * MIB), /* figures need not agree */
                     sh_room_bytes(64 * MIB, 0, 0));
}

static void a_backup_with_room_goes_first(void **state)
{
    (void)state;
    const struct sh_room_peer peers[] = {
        {{70}, 5 * MIB, true, false}, {{71}, 9 * MIB, true, false}, {{72}, 50 * MIB, false, false}};
    struct sh_room_plan plan;
    struct sh_room_wish wish = wish_of(6 * MIB, 2 * MIB);
    assert_true(sh_room_plan_make(peers, 3, &wish, 3 * MIB, &plan));
    assert_true(plan.backup.v == 71 && !plan.target.v);
    wish.may_move = false;
    assert_true(sh_room_plan_make(peers, 3, &wish, 3 * MIB, &plan));
    assert_int_equal(plan.backup.v, 71);
    wish = wish_of(10 * MIB, 2 * MIB);
    assert_true(sh_room_plan_make(peers, 3, &wish, 3 * MIB, &plan));
    assert_true(!plan.backup.v && plan.target.v == 72 && plan.bytes == 3 * MIB);
}

static void nothing_moves_without_use(void **state)
{
    (void)state;
    const struct sh_room_peer peers[] = {{{70}, 4 * MIB, true, false},
                                         {{71}, 3 * MIB, false, false}};
    struct sh_room_plan plan;
    struct sh_room_wish wish = wish_of(20 * MIB, 5 * MIB);
    uint64_t wanted = sh_room_wanted(5 * MIB, 50 * MIB);
    assert_in_range(wanted, 6 * MIB, 7 * MIB);
    assert_int_equal(sh_room_wanted(5 * MIB, 5 * MIB), 5 * MIB); /* all of it */
    assert_int_equal(sh_room_wanted(5 * MIB, 5 * MIB - 1), 0);   /* would not be enough */
    assert_true(sh_room_plan_make(peers, 2, &wish, wanted, &plan));
    assert_true(plan.target.v == 70 && plan.bytes == 4 * MIB);
    assert_false(sh_room_plan_make(peers, 2, &wish, 0, &plan));
    /* The others have less than that, all together. */
    assert_false(sh_room_plan_make(peers, 2, &wish, 7 * MIB + 1, &plan));
    assert_false(sh_room_plan_make(peers, 0, &wish, wanted, &plan));
    /* Nor does what a peer has free count that takes nothing. */
    const struct sh_room_peer busy[] = {{{70}, 40 * MIB, true, true},
                                        {{71}, 3 * MIB, false, false}};
    wish.zone_bytes = 50 * MIB;
    assert_false(sh_room_plan_make(busy, 2, &wish, wanted, &plan));
    assert_true(sh_room_plan_make(busy, 2, &wish, 3 * MIB, &plan));
    assert_true(plan.target.v == 71 && plan.bytes == 3 * MIB);
    wish.zone_bytes = 30 * MIB; /* it may bring the zone back all the same */
    assert_true(sh_room_plan_make(busy, 2, &wish, wanted, &plan));
    assert_int_equal(plan.backup.v, 70);
    wish.may_move = false;
    assert_false(sh_room_plan_make(peers, 2, &wish, wanted, &plan));
}

/* --- Models ------------------------------------------------------------------------------------ */

#define PEERS 8u
#define ZONES 12u
#define ROUNDS 200u

static struct {
    uint64_t random;
    unsigned peers, zones;
    uint64_t max[PEERS], used[PEERS]; /* the store's bytes */
    struct {
        uint64_t bytes;
        unsigned backups[2], at; /* who brings it back, of these */
        bool is_back;
    } zone[ZONES];
    uint64_t moved, missed; /* bytes in all, and the most that they may be */
} model;

static uint64_t draw(uint64_t below)
{
    model.random = model.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (model.random >> 20) % below;
}

static void model_make(uint64_t seed)
{
    memset(&model, 0, sizeof model);
    model.random = seed;
    model.peers = 3 + (unsigned)draw(PEERS - 2);
    model.zones = 1 + (unsigned)draw(ZONES);
    for (unsigned i = 0; i < model.peers; i++) {
        model.max[i] = (8 + draw(64)) * MIB;
        model.used[i] = draw(2) ? model.max[i] - draw(2 * MIB) : draw(model.max[i]);
    }
    for (unsigned i = 0; i < model.zones; i++) {
        model.zone[i].bytes = MIB + draw(7 * MIB);
        model.zone[i].backups[0] = (unsigned)draw(model.peers);
        model.zone[i].backups[1] =
            (model.zone[i].backups[0] + 1 + (unsigned)draw(model.peers - 1)) % model.peers;
    }
}

static uint64_t room_left(void)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i < model.peers; i++)
        sum += sh_room_bytes(model.max[i], model.used[i], 0);
    return sum;
}

/* A peer makes room for a zone, as sh_room_make does. True: it has, or *to_out is a backup that has. */
static bool peer_makes_room(unsigned zone, unsigned self, uint64_t missing, shoal_nid *to_out)
{
    struct sh_room_wish wish = wish_of(model.zone[zone].bytes, missing);
    struct sh_room_plan plan;
    for (uint64_t wanted = sh_room_wanted(missing, model.used[self]);;) {
        struct sh_room_peer peers[PEERS];
        size_t count = 0;
        for (unsigned i = 0; i < model.peers; i++) {
            bool is_backup = i == model.zone[zone].backups[0] || i == model.zone[zone].backups[1];
            if (i != self)
                peers[count++] =
                    (struct sh_room_peer){{(uint16_t)(100 + i)},
                                          sh_room_bytes(model.max[i], model.used[i], 0),
                                          is_backup,
                                          false};
        }
        if (!sh_room_plan_make(peers, count, &wish, wanted, &plan))
            return false;
        *to_out = plan.backup;
        if (plan.backup.v)
            return true;
        unsigned target = plan.target.v - 100u;
        assert_true(plan.bytes && plan.bytes <= wanted);
        uint64_t bytes = plan.bytes < model.used[self] ? plan.bytes : model.used[self];
        model.used[self] -= bytes;
        model.used[target] += bytes;
        assert_true(model.used[target] <= model.max[target]);
        model.moved += bytes;
        wanted -= bytes;
        if (!wanted)
            return true;
    }
}

static void zone_try(unsigned zone)
{
    for (unsigned tries = 0; tries < 4; tries++) {
        unsigned self = model.zone[zone].backups[model.zone[zone].at];
        uint64_t left = model.max[self] - model.used[self], bytes = model.zone[zone].bytes;
        shoal_nid to = SHOAL_NID_NONE;
        if (left >= bytes) {
            model.used[self] += bytes;
            model.zone[zone].is_back = true;
            return;
        }
        uint64_t moved = model.moved;
        bool is_made = peer_makes_room(zone, self, bytes - left, &to);
        if (model.moved > moved) {
            model.missed += sh_room_wanted(bytes - left, UINT64_MAX);
            assert_true(is_made && !to.v); /* what has moved is of use */
        }
        if (!is_made || to.v)
            model.zone[zone].at ^= 1;
        if (!is_made)
            return;
    }
    fail_msg("a zone goes round");
}

/* Zones come back, one by one, for as long as there is room, and then nothing moves any more. */
static void a_model(uint64_t seed)
{
    model_make(seed);
    uint64_t moved_at_last = 0;
    for (unsigned round = 0; round < ROUNDS; round++) {
        if (round == ROUNDS / 2)
            moved_at_last = model.moved;
        for (unsigned zone = 0; zone < model.zones; zone++) {
            if (!model.zone[zone].is_back)
                zone_try(zone);
        }
    }
    assert_int_equal(model.moved, moved_at_last);
    assert_true(model.moved <= model.missed);
    for (unsigned zone = 0; zone < model.zones; zone++) {
        bool is_waiting = !model.zone[zone].is_back;
        uint64_t bytes = model.zone[zone].bytes, wanted = bytes + bytes / 4;
        for (unsigned i = 0; is_waiting && i < 2; i++) {
            unsigned backup = model.zone[zone].backups[i];
            is_waiting &= model.used[backup] >= bytes; /* what it has would do, if it moved */
            uint64_t own = sh_room_bytes(model.max[backup], model.used[backup], 0);
            if (is_waiting && room_left() - own >= wanted)
                fail_msg("seed %llu: a zone of %llu bytes waits, and there is room",
                         (unsigned long long)seed, (unsigned long long)bytes);
        }
    }
}

static void models(void **state)
{
    (void)state;
    uint64_t seed = test_seed(1);
    for (uint64_t i = 0; i < 3000; i++)
        a_model(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_store_is_never_filled),
        cmocka_unit_test(a_backup_with_room_goes_first),
        cmocka_unit_test(nothing_moves_without_use),
        cmocka_unit_test(models),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
