/* The ring as a table: places, shares, what each change does, and its bytes. */
#include "ring/arcs.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"

static uint64_t life_of(uint32_t starts, uint32_t random)
{
    return (uint64_t)starts << 32 | random;
}

static void start(struct sh_arcs *arcs, unsigned nid)
{
    uint64_t life = life_of(sh_life_starts(arcs->lives[nid]) + 1, nid);
    assert_int_equal(sh_arcs_start(arcs, nid, life), SH_ARCS_STARTED);
}

/* What holds of every table. */
static void assert_sound(const struct sh_arcs *arcs)
{
    assert_int_equal(arcs->up & ~arcs->present, 0);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        const struct sh_shard *shard = &arcs->shards[i];
        uint64_t absent = shard->replicas & ~arcs->present;
        assert_true(!absent || absent == shard->replicas);
        if (shard->replicas)
            assert_true(shard->replicas & sh_arc_bit(shard->owner));
        else if (arcs->present)
            assert_true(arcs->present & sh_arc_bit(shard->owner));
    }
}

static void change(struct sh_arcs *arcs, enum sh_arc_kind kind, unsigned shard, unsigned nid)
{
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .shard = (uint8_t)shard,
                                   .nid = (uint8_t)nid,
                                   .version = arcs->shards[shard].version,
                                   .incarnation = arcs->incarnations[nid]};
    uint64_t before = change.version;
    assert_true(sh_arcs_change(arcs, &change));
    assert_int_equal(arcs->shards[shard].version, before + 1);
    assert_false(sh_arcs_change(arcs, &change)); /* it counts once */
    assert_sound(arcs);
}

/* Each shard in the hands of those who are to have it. */
static void settle(struct sh_arcs *arcs)
{
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        uint64_t wanted = sh_arc_wanted(arcs->up, i);
        if (!arcs->shards[i].replicas)
            change(arcs, SH_ARC_BUILT, i, arcs->shards[i].owner);
        for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
            if (wanted & ~arcs->shards[i].replicas & sh_arc_bit(nid))
                change(arcs, SH_ARC_ADD, i, nid);
        }
        unsigned successor = sh_arc_successor(arcs->up, i);
        if (arcs->shards[i].owner != successor)
            change(arcs, SH_ARC_HAND, i, successor);
        for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
            if (arcs->shards[i].replicas & ~wanted & sh_arc_bit(nid))
                change(arcs, SH_ARC_DROP, i, nid);
        }
        assert_int_equal(arcs->shards[i].replicas, wanted);
    }
}

static void test_places(void **state)
{
    (void)state;
    uint64_t all = 0, owners = 0;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++)
        all |= sh_arc_bit(nid);
    for (unsigned shard = 0; shard < SH_SHARDS; shard++)
        owners |= sh_arc_bit(sh_arc_successor(all, shard));
    assert_true(owners == all); /* each has a place of its own */
    assert_int_equal(sh_arc_successor(all, 0), 1);
    assert_int_equal(sh_arc_successor(all, 32), 2);
    /* Peers that join one after the other are spread over the ring. */
    uint64_t shards = 0;
    for (uint16_t nid = SH_PEER_NID_MIN; nid < SH_PEER_NID_MIN + SH_SHARDS; nid++)
        shards |= UINT64_C(1) << sh_arc_shard((shoal_nid){nid});
    assert_true(shards == UINT64_MAX);
    assert_int_equal(sh_arc_successor(0, 5), 0);
    assert_int_equal(sh_arc_successor(sh_arc_bit(1) | sh_arc_bit(2), 0), 1);
    assert_int_equal(sh_arc_successor(sh_arc_bit(1) | sh_arc_bit(2), 1), 2);
    assert_int_equal(sh_arc_successor(sh_arc_bit(1) | sh_arc_bit(2), 33), 1);
}

/* As superpeers come by rising ID, each splits one arc, the largest share is at most twice the
 * smallest, and what moves is that arc's half only. */
static void test_shares(void **state)
{
    (void)state;
    uint64_t up = 0;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
        unsigned counts[SH_SUPERPEERS_MAX + 1] = {0};
        unsigned moved = 0;
        uint64_t before = up, from = 0;
        up |= sh_arc_bit(nid);
        for (unsigned i = 0; i < SH_SHARDS; i++) {
            unsigned owner = sh_arc_successor(up, i);
            counts[owner]++;
            if (before && owner != sh_arc_successor(before, i)) {
                moved++;
                from |= sh_arc_bit(sh_arc_successor(before, i));
                assert_int_equal(owner, nid);
            }
        }
        unsigned least = SH_SHARDS, most = 0;
        for (unsigned i = 1; i <= nid; i++) {
            least = counts[i] < least ? counts[i] : least;
            most = counts[i] > most ? counts[i] : most;
        }
        assert_true(most <= 2 * least);
        if (before) {
            assert_int_equal(__builtin_popcountll(from), 1);
            assert_int_equal(moved, counts[nid]);
        }
        unsigned copies = nid < SH_ARC_COPIES ? nid : SH_ARC_COPIES;
        assert_int_equal(__builtin_popcountll(sh_arc_wanted(up, nid)), copies);
    }
}

static void test_failures(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 5; nid++) {
        assert_false(sh_arcs_up(&arcs, nid)); /* never started */
        start(&arcs, nid);
        assert_sound(&arcs);
    }
    settle(&arcs);
    struct sh_shard before = arcs.shards[7];
    uint64_t incarnation = arcs.incarnations[before.owner];
    assert_true(sh_arcs_gone(&arcs, before.owner));
    assert_false(sh_arcs_gone(&arcs, before.owner));
    assert_sound(&arcs);
    /* The next replica takes over in the same change. */
    assert_int_equal(arcs.shards[7].version, before.version + 1);
    assert_int_equal(arcs.shards[7].owner,
                     sh_arc_successor(before.replicas & ~sh_arc_bit(before.owner), 7));
    /* A superpeer that was gone is not added by what was asked for before that. */
    struct sh_arc_change late = {.kind = SH_ARC_ADD,
                                 .shard = 7,
                                 .nid = before.owner,
                                 .version = arcs.shards[7].version,
                                 .incarnation = incarnation};
    assert_true(sh_arcs_up(&arcs, before.owner));
    assert_true(sh_arcs_change(&arcs, &late));
    assert_false(arcs.shards[7].replicas & sh_arc_bit(before.owner));
    settle(&arcs);
    /* All fail, one after the other: the last replica of a shard stays what it is. */
    uint64_t had[SH_SHARDS];
    for (unsigned i = 0; i < SH_SHARDS; i++)
        had[i] = arcs.shards[i].replicas;
    for (unsigned nid = 1; nid <= 5; nid++)
        assert_true(sh_arcs_gone(&arcs, nid));
    assert_sound(&arcs);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        assert_int_equal(__builtin_popcountll(arcs.shards[i].replicas), 1);
        assert_false(arcs.shards[i].replicas & ~had[i]);
    }
    /* One that had none of shard i left comes first, and owns nothing that others hold. */
    unsigned first = arcs.shards[0].owner % 5 + 1;
    start(&arcs, first);
    assert_sound(&arcs);
    assert_int_not_equal(arcs.shards[0].owner, first);
    for (unsigned nid = 1; nid <= 5; nid++)
        start(&arcs, nid);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        assert_int_equal(__builtin_popcountll(arcs.shards[i].replicas), 1);
    settle(&arcs);
}

/* A process that begins anew on its disk changes the versions of what it holds, and leaves what it
 * owned to a replica that has not begun anew. */
static void test_starts(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    start(&arcs, 1);
    settle(&arcs);
    struct sh_shard before = arcs.shards[9];
    start(&arcs, 1);
    assert_int_equal(arcs.shards[9].version, before.version + 1);
    assert_int_equal(arcs.shards[9].owner, 1);
    assert_int_equal(arcs.shards[9].replicas, sh_arc_bit(1));
    start(&arcs, 2);
    start(&arcs, 3);
    settle(&arcs);
    before = arcs.shards[9];
    unsigned owner = before.owner;
    uint64_t life = arcs.lives[owner];
    start(&arcs, owner);
    assert_int_equal(arcs.shards[9].version, before.version + 1);
    assert_int_not_equal(arcs.shards[9].owner, owner);
    assert_int_equal(arcs.shards[9].replicas, before.replicas);
    assert_sound(&arcs);
    /* The same again changes nothing; an older disk, and a copy of this one, are refused. */
    struct sh_arcs now = arcs;
    assert_int_equal(sh_arcs_start(&arcs, owner, arcs.lives[owner]), SH_ARCS_STARTED);
    assert_int_equal(sh_arcs_start(&arcs, owner, life), SH_ARCS_STALE);
    assert_int_equal(sh_arcs_start(&arcs, owner, arcs.lives[owner] ^ 1), SH_ARCS_STALE);
    assert_memory_equal(&now, &arcs, sizeof arcs);
}

/* A superpeer that is only slow is not dropped where one alone would be left. */
static void test_drops(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 3; nid++)
        start(&arcs, nid);
    settle(&arcs);
    unsigned owner = arcs.shards[5].owner;
    unsigned first = owner % 3 + 1, second = first % 3 + 1;
    change(&arcs, SH_ARC_DROP, 5, first);
    assert_int_equal(arcs.shards[5].replicas, sh_arc_bit(owner) | sh_arc_bit(second));
    change(&arcs, SH_ARC_DROP, 5, second);
    assert_int_equal(arcs.shards[5].replicas, sh_arc_bit(owner) | sh_arc_bit(second));
    assert_true(sh_arcs_gone(&arcs, second));
    assert_int_equal(arcs.shards[5].replicas, sh_arc_bit(owner));
}

/* Only an operator's word takes the last replica; then an old copy may be made one, or a new shard.
 */
static void test_forgotten(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    start(&arcs, 1);
    settle(&arcs);
    start(&arcs, 2);
    assert_false(sh_arcs_forget(&arcs, 1)); /* it is up */
    assert_false(sh_arcs_forget(&arcs, 3)); /* there is none */
    assert_true(sh_arcs_gone(&arcs, 1));
    assert_int_equal(arcs.shards[3].owner, 1);
    uint64_t life = arcs.lives[1];
    assert_true(sh_arcs_forget(&arcs, 1));
    assert_sound(&arcs);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        assert_int_equal(arcs.shards[i].replicas, 0);
        assert_int_equal(arcs.shards[i].owner, 2);
    }
    assert_int_equal(sh_arcs_start(&arcs, 1, life_of(sh_life_starts(life) + 1, 9)), SH_ARCS_STALE);
    assert_int_equal(arcs.shards[3].origin, SH_ORIGIN_NEW);
    struct sh_arc_change salvage = {SH_ARC_SALVAGE,       3,  2, arcs.shards[3].version,
                                    arcs.incarnations[2], 17, 4};
    assert_true(sh_arcs_change(&arcs, &salvage));
    const struct sh_shard *shard = &arcs.shards[3];
    assert_int_equal(shard->replicas, sh_arc_bit(2));
    assert_int_equal(shard->origin, SH_ORIGIN_COPY);
    assert_int_equal(shard->origin_version, shard->version);
    assert_true(shard->copy_nid == 2 && shard->copy_epoch == 17 && shard->copy_sequence == 4);
    settle(&arcs);
    assert_int_equal(arcs.shards[4].origin, SH_ORIGIN_PEERS);
    /* A new disk may take the place of the lost one, as often as disks are lost. */
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(sh_arcs_start_empty(&arcs, 1, 7 + i, false), SH_ARCS_STARTED);
        assert_true(sh_arcs_gone(&arcs, 1));
        assert_true(sh_arcs_forget(&arcs, 1));
    }
    assert_sound(&arcs);
}

/* One superpeer goes on alone, from an old table: no version is one that the others may have seen. */
static void test_forced(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 3; nid++)
        start(&arcs, nid);
    settle(&arcs);
    struct sh_arcs before = arcs;
    sh_arcs_force(&arcs, 2);
    assert_sound(&arcs);
    assert_int_equal(arcs.up, sh_arc_bit(2));
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        assert_true(arcs.shards[i].version > before.shards[i].version + (UINT64_C(1) << 32));
        assert_int_equal(arcs.shards[i].replicas, 0);
        assert_int_equal(arcs.shards[i].owner, 2);
    }
    start(&arcs, 2);
    uint64_t life = life_of(sh_life_starts(before.lives[1]) + 1, 9);
    assert_int_equal(sh_arcs_start(&arcs, 1, life), SH_ARCS_STALE);
    settle(&arcs);
}

/* All replicas of the shard are away. */
static bool is_waiting(const struct sh_arcs *arcs, unsigned shard)
{
    return arcs->shards[shard].replicas && !(arcs->shards[shard].replicas & arcs->present);
}

/* Which shards wait for a superpeer that is away. */
static void test_waits(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    start(&arcs, 1);
    settle(&arcs);
    start(&arcs, 2);
    change(&arcs, SH_ARC_ADD, 3, 2);
    assert_true(sh_arcs_gone(&arcs, 1));
    assert_false(is_waiting(&arcs, 3));
    assert_true(is_waiting(&arcs, 4));
    assert_true(sh_arcs_forget(&arcs, 1));
    assert_false(is_waiting(&arcs, 4));
}

/* The last replica has been called failed, which its process does not know yet, and asks for another
 * one: that counts only once it is back. */
static void test_absent_adds_nobody(void **state)
{
    (void)state;
    struct sh_arcs arcs = {.up = 0};
    start(&arcs, 1);
    settle(&arcs);
    start(&arcs, 2);
    assert_true(sh_arcs_gone(&arcs, 1));
    change(&arcs, SH_ARC_ADD, 0, 2);
    assert_int_equal(arcs.shards[0].replicas, sh_arc_bit(1));
    assert_true(sh_arcs_up(&arcs, 1));
    change(&arcs, SH_ARC_ADD, 0, 2);
    assert_int_equal(arcs.shards[0].replicas, sh_arc_bit(1) | sh_arc_bit(2));
}

static void test_retiring(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    start(&arcs, 1);
    settle(&arcs);
    assert_false(sh_arcs_retire(&arcs, 1)); /* the only one */
    start(&arcs, 2);
    assert_true(sh_arcs_retire(&arcs, 1));
    assert_sound(&arcs);
    assert_false(sh_arcs_is_bare(&arcs, 1));
    assert_int_equal(arcs.shards[0].owner, 1);
    settle(&arcs);
    assert_true(sh_arcs_is_bare(&arcs, 1));
    assert_true(sh_arcs_gone(&arcs, 1));
    for (unsigned i = 0; i < SH_SHARDS; i++)
        assert_int_equal(arcs.shards[i].replicas, sh_arc_bit(2));
    /* What can't be done any more raises the version, and does nothing else. */
    change(&arcs, SH_ARC_ADD, 3, 1);
    change(&arcs, SH_ARC_HAND, 3, 1);
    change(&arcs, SH_ARC_DROP, 3, 2);
    change(&arcs, SH_ARC_BUILT, 3, 2);
    assert_int_equal(arcs.shards[3].owner, 2);
    assert_int_equal(arcs.shards[3].replicas, sh_arc_bit(2));
}

static void test_bytes(void **state)
{
    (void)state;
    static struct sh_arcs arcs, copy;
    uint8_t bytes[SH_ARCS_BYTES];
    uint64_t draws = 1;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 7; nid++)
        start(&arcs, nid);
    settle(&arcs);
    (void)sh_arcs_gone(&arcs, 3);
    arcs.shards[5].origin = SH_ORIGIN_COPY;
    arcs.shards[5].copy_nid = 2;
    arcs.shards[5].copy_epoch = 3;
    arcs.shards[5].copy_sequence = 4;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_arcs_put(&w, &arcs);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
    assert_int_equal(sh_arcs_get(&r, &copy), SHOAL_OK);
    assert_true(sh_reader_done(&r));
    assert_int_equal(copy.up, arcs.up);
    assert_memory_equal(&copy.shards, &arcs.shards, sizeof arcs.shards);
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t damaged[SH_ARCS_BYTES];
        memcpy(damaged, bytes, sizeof bytes);
        draws = sh_mix64(draws + i);
        damaged[draws % sizeof damaged] ^= (uint8_t)(1 + (draws >> 32) % 255);
        r = sh_reader_make(sh_bytes_make(damaged, (draws >> 50) % 8 ? sizeof damaged : 100));
        if (!sh_arcs_get(&r, &copy))
            assert_sound(&copy);
    }
    struct sh_arc_change asked = {SH_ARC_ADD, 9, 4, 77, 2, 5, 6}, got;
    uint8_t small[SH_ARC_CHANGE_BYTES];
    w = sh_writer_make(small, sizeof small);
    sh_arc_change_put(&w, &asked);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    r = sh_reader_make(sh_bytes_make(small, sizeof small));
    assert_int_equal(sh_arc_change_get(&r, &got), SHOAL_OK);
    assert_true(got.kind == asked.kind && got.shard == 9 && got.nid == 4 && got.version == 77 &&
                got.incarnation == 2 && got.copy_epoch == 5 && got.copy_sequence == 6);
    small[1] = SH_SHARDS;
    r = sh_reader_make(sh_bytes_make(small, sizeof small));
    assert_int_equal(sh_arc_change_get(&r, &got), SHOAL_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_starts),
        cmocka_unit_test(test_drops),
        cmocka_unit_test(test_forgotten),
        cmocka_unit_test(test_retiring),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_forced),
        cmocka_unit_test(test_waits),
        cmocka_unit_test(test_absent_adds_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
