/* The ring as a table: places, shares, what each change does, and its bytes. */
#include "cluster/arcs.h"

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

/* What holds of every table. */
static void assert_sound(const struct sh_arcs *arcs)
{
    assert_int_equal(arcs->up & ~arcs->present, 0);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        const struct sh_sector *sector = &arcs->sectors[i];
        assert_int_equal(sector->holders & ~arcs->present, 0);
        if (sector->holders)
            assert_true(sector->holders & sh_arc_bit(sector->owner));
        else if (arcs->present)
            assert_true(arcs->present & sh_arc_bit(sector->owner));
    }
}

static void change(struct sh_arcs *arcs, enum sh_arc_kind kind, unsigned sector, unsigned nid)
{
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .sector = (uint8_t)sector,
                                   .nid = (uint8_t)nid,
                                   .version = arcs->sectors[sector].version,
                                   .life = arcs->lives[nid]};
    uint64_t before = change.version;
    assert_true(sh_arcs_change(arcs, &change));
    assert_int_equal(arcs->sectors[sector].version, before + 1);
    assert_false(sh_arcs_change(arcs, &change)); /* it counts once */
    assert_sound(arcs);
}

/* Each sector in the hands of those who are to have it. */
static void settle(struct sh_arcs *arcs)
{
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        uint64_t wanted = sh_arc_wanted(arcs->up, i);
        if (!arcs->sectors[i].holders)
            change(arcs, SH_ARC_BUILT, i, arcs->sectors[i].owner);
        for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
            if (wanted & ~arcs->sectors[i].holders & sh_arc_bit(nid))
                change(arcs, SH_ARC_ADD, i, nid);
        }
        unsigned heir = sh_arc_successor(arcs->up, i);
        if (arcs->sectors[i].owner != heir)
            change(arcs, SH_ARC_HAND, i, heir);
        for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++) {
            if (arcs->sectors[i].holders & ~wanted & sh_arc_bit(nid))
                change(arcs, SH_ARC_DROP, i, nid);
        }
        assert_int_equal(arcs->sectors[i].holders, wanted);
    }
}

static void test_places(void **state)
{
    (void)state;
    uint64_t places = 0;
    for (unsigned nid = 1; nid <= SH_SUPERPEERS_MAX; nid++)
        places |= UINT64_C(1) << sh_arc_place(nid);
    assert_int_equal(__builtin_popcountll(places), SH_SUPERPEERS_MAX);
    assert_int_equal(sh_arc_place(1), 0);
    assert_int_equal(sh_arc_place(2), 32);
    /* Peers that join one after the other are spread over the ring. */
    uint64_t sectors = 0;
    for (uint16_t nid = SH_PEER_NID_MIN; nid < SH_PEER_NID_MIN + SH_SECTORS; nid++)
        sectors |= UINT64_C(1) << sh_arc_sector((shoal_nid){nid});
    assert_true(sectors == UINT64_MAX);
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
        for (unsigned i = 0; i < SH_SECTORS; i++) {
            unsigned owner = sh_arc_successor(up, i);
            counts[owner]++;
            if (before && owner != sh_arc_successor(before, i)) {
                moved++;
                from |= sh_arc_bit(sh_arc_successor(before, i));
                assert_int_equal(owner, nid);
            }
        }
        unsigned least = SH_SECTORS, most = 0;
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
        assert_true(sh_arcs_up(&arcs, nid));
        assert_false(sh_arcs_up(&arcs, nid));
        assert_sound(&arcs);
    }
    settle(&arcs);
    struct sh_sector before = arcs.sectors[7];
    assert_true(sh_arcs_gone(&arcs, before.owner, false));
    assert_false(sh_arcs_gone(&arcs, before.owner, false));
    assert_sound(&arcs);
    /* The next holder takes over in the same change. */
    assert_int_equal(arcs.sectors[7].version, before.version + 1);
    assert_int_equal(arcs.sectors[7].owner,
                     sh_arc_successor(before.holders & ~sh_arc_bit(before.owner), 7));
    /* Who has been gone is not added by what was asked for in its former life. */
    struct sh_arc_change late = {
        .kind = SH_ARC_ADD, .sector = 7, .nid = before.owner, .version = arcs.sectors[7].version};
    assert_true(sh_arcs_up(&arcs, before.owner));
    assert_true(sh_arcs_change(&arcs, &late));
    assert_false(arcs.sectors[7].holders & sh_arc_bit(before.owner));
    settle(&arcs);
    /* All lose their memory, one after the other: nobody holds anything, but somebody owns it. */
    for (unsigned nid = 1; nid <= 5; nid++)
        assert_true(sh_arcs_gone(&arcs, nid, true));
    assert_sound(&arcs);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        assert_int_equal(arcs.sectors[i].holders, 0);
        assert_int_equal(arcs.sectors[i].owner, sh_arc_successor(arcs.up, i));
    }
    settle(&arcs);
}

static void test_retiring(void **state)
{
    (void)state;
    static struct sh_arcs arcs;
    memset(&arcs, 0, sizeof arcs);
    assert_true(sh_arcs_up(&arcs, 1));
    settle(&arcs);
    assert_false(sh_arcs_retire(&arcs, 1)); /* the only one */
    assert_true(sh_arcs_up(&arcs, 2));
    assert_true(sh_arcs_retire(&arcs, 1));
    assert_sound(&arcs);
    assert_false(sh_arcs_is_bare(&arcs, 1));
    assert_int_equal(arcs.sectors[0].owner, 1);
    settle(&arcs);
    assert_true(sh_arcs_is_bare(&arcs, 1));
    assert_true(sh_arcs_gone(&arcs, 1, false));
    for (unsigned i = 0; i < SH_SECTORS; i++)
        assert_int_equal(arcs.sectors[i].holders, sh_arc_bit(2));
    /* What can't be done any more raises the version, and does nothing else. */
    change(&arcs, SH_ARC_ADD, 3, 1);
    change(&arcs, SH_ARC_HAND, 3, 1);
    change(&arcs, SH_ARC_DROP, 3, 2);
    change(&arcs, SH_ARC_BUILT, 3, 2);
    assert_int_equal(arcs.sectors[3].owner, 2);
    assert_int_equal(arcs.sectors[3].holders, sh_arc_bit(2));
}

static void test_bytes(void **state)
{
    (void)state;
    static struct sh_arcs arcs, copy;
    uint8_t bytes[SH_ARCS_BYTES];
    uint64_t draws = 1;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 7; nid++)
        (void)sh_arcs_up(&arcs, nid);
    settle(&arcs);
    (void)sh_arcs_gone(&arcs, 3, false);
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_arcs_put(&w, &arcs);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
    assert_int_equal(sh_arcs_get(&r, &copy), SHOAL_OK);
    assert_true(sh_reader_done(&r));
    assert_int_equal(copy.up, arcs.up);
    for (unsigned i = 0; i < SH_SECTORS; i++) {
        assert_int_equal(copy.sectors[i].version, arcs.sectors[i].version);
        assert_int_equal(copy.sectors[i].holders, arcs.sectors[i].holders);
        assert_int_equal(copy.sectors[i].owner, arcs.sectors[i].owner);
    }
    for (unsigned i = 0; i < 20000; i++) {
        uint8_t damaged[SH_ARCS_BYTES];
        memcpy(damaged, bytes, sizeof bytes);
        draws = sh_mix64(draws + i);
        damaged[draws % sizeof damaged] ^= (uint8_t)(1 + (draws >> 32) % 255);
        r = sh_reader_make(sh_bytes_make(damaged, (draws >> 50) % 8 ? sizeof damaged : 100));
        if (!sh_arcs_get(&r, &copy))
            assert_sound(&copy);
    }
    struct sh_arc_change asked = {SH_ARC_ADD, 9, 4, 77, 2}, got;
    uint8_t small[SH_ARC_CHANGE_BYTES];
    w = sh_writer_make(small, sizeof small);
    sh_arc_change_put(&w, &asked);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    r = sh_reader_make(sh_bytes_make(small, sizeof small));
    assert_int_equal(sh_arc_change_get(&r, &got), SHOAL_OK);
    assert_true(got.kind == asked.kind && got.sector == 9 && got.nid == 4 && got.version == 77 &&
                got.life == 2);
    small[1] = SH_SECTORS;
    r = sh_reader_make(sh_bytes_make(small, sizeof small));
    assert_int_equal(sh_arc_change_get(&r, &got), SHOAL_EPROTO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),   cmocka_unit_test(test_shares),
        cmocka_unit_test(test_failures), cmocka_unit_test(test_retiring),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
