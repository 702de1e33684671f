/* The ring's table, refusal by refusal: a change that may not be done raises the version and does
 * nothing else. Each case makes the table by hand that only its rule refuses. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "ring/arcs.h"

#define SHARD 5

static struct sh_arcs arcs;

static uint64_t set(unsigned a, unsigned b, unsigned c)
{
    return (a ? sh_arc_bit(a) : 0) | (b ? sh_arc_bit(b) : 0) | (c ? sh_arc_bit(c) : 0);
}

/* Superpeers 1 to 4 are up, and hold nothing. */
static int setup(void **state)
{
    (void)state;
    memset(&arcs, 0, sizeof arcs);
    for (unsigned nid = 1; nid <= 4; nid++) {
        arcs.up |= sh_arc_bit(nid);
        arcs.lives[nid] = UINT64_C(1) << 32 | nid;
        arcs.incarnations[nid] = 1;
    }
    arcs.present = arcs.up;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        arcs.shards[i] = (struct sh_shard){.version = 10, .owner = 1};
    return 0;
}

static struct sh_shard *shard(void)
{
    return &arcs.shards[SHARD];
}

static void held(unsigned owner, uint64_t replicas)
{
    shard()->owner = (uint8_t)owner;
    shard()->replicas = replicas;
}

static struct sh_arc_change change_of(enum sh_arc_kind kind, unsigned nid)
{
    return (struct sh_arc_change){.kind = (uint8_t)kind,
                                  .shard = SHARD,
                                  .nid = (uint8_t)nid,
                                  .version = shard()->version,
                                  .incarnation = arcs.incarnations[nid],
                                  .copy_epoch = 7,
                                  .copy_sequence = 8};
}

static void assert_refused(struct sh_arc_change change)
{
    struct sh_arcs before = arcs;
    assert_true(sh_arcs_change(&arcs, &change));
    before.shards[SHARD].version++;
    assert_memory_equal(&before, &arcs, sizeof arcs);
}

static void assert_done(struct sh_arc_change change, unsigned owner, uint64_t replicas)
{
    assert_true(sh_arcs_change(&arcs, &change));
    assert_int_equal(shard()->owner, owner);
    assert_true(shard()->replicas == replicas);
}

static void only_that_version_is_changed(void **state)
{
    (void)state;
    held(1, set(1, 0, 0));
    struct sh_arc_change change = change_of(SH_ARC_ADD, 2);
    struct sh_arcs before = arcs;
    for (unsigned i = 0; i < 2; i++) {
        change.version = i ? shard()->version + 1 : shard()->version - 1;
        assert_false(sh_arcs_change(&arcs, &change));
        assert_memory_equal(&before, &arcs, sizeof arcs);
    }
}

static void replicas_are_added(void **state)
{
    (void)state;
    held(1, set(1, 0, 0));
    assert_done(change_of(SH_ARC_ADD, 2), 1, set(1, 2, 0));
    struct sh_arc_change stale = change_of(SH_ARC_ADD, 3);
    stale.incarnation--; /* it was started since: what it said of its copy is out of date */
    assert_refused(stale);
    arcs.up &= ~sh_arc_bit(3); /* it is retiring */
    assert_refused(change_of(SH_ARC_ADD, 3));
    held(1, 0); /* who has nothing can add nobody */
    assert_refused(change_of(SH_ARC_ADD, 2));
}

static void replicas_are_dropped(void **state)
{
    (void)state;
    held(1, set(1, 2, 3));
    assert_refused(change_of(SH_ARC_DROP, 1)); /* the owner */
    assert_done(change_of(SH_ARC_DROP, 3), 1, set(1, 2, 0));
    assert_refused(change_of(SH_ARC_DROP, 2)); /* one would be left */
    /* Of three replicas one is down: without the next one a single one would be up. */
    held(1, set(1, 2, 3));
    arcs.up &= ~sh_arc_bit(3);
    assert_refused(change_of(SH_ARC_DROP, 2));
    assert_done(change_of(SH_ARC_DROP, 3), 1, set(1, 2, 0));
}

static void shards_are_handed_over(void **state)
{
    (void)state;
    held(1, set(1, 2, 0));
    assert_refused(change_of(SH_ARC_HAND, 3)); /* it has nothing of it */
    arcs.up &= ~sh_arc_bit(2);
    assert_refused(change_of(SH_ARC_HAND, 2)); /* it is retiring */
    arcs.up |= sh_arc_bit(2);
    assert_done(change_of(SH_ARC_HAND, 2), 2, set(1, 2, 0));
}

static void what_is_lost_is_salvaged(void **state)
{
    (void)state;
    held(1, set(1, 2, 0)); /* it is not lost */
    assert_refused(change_of(SH_ARC_SALVAGE, 3));
    held(1, 0);
    struct sh_arc_change stale = change_of(SH_ARC_SALVAGE, 3);
    stale.incarnation--;
    assert_refused(stale);
    arcs.up &= ~sh_arc_bit(4);
    arcs.present &= ~sh_arc_bit(4);
    assert_refused(change_of(SH_ARC_SALVAGE, 4));
    arcs.up &= ~sh_arc_bit(3); /* who is retiring may have the only copy */
    assert_done(change_of(SH_ARC_SALVAGE, 3), 3, set(3, 0, 0));
    assert_int_equal(shard()->origin, SH_ORIGIN_COPY);
    assert_true(shard()->copy_nid == 3 && shard()->copy_epoch == 7 && shard()->copy_sequence == 8);
    assert_true(shard()->origin_version == shard()->version);
}

static void only_the_owner_begins_a_shard(void **state)
{
    (void)state;
    held(1, 0);
    assert_refused(change_of(SH_ARC_BUILT, 2));
    assert_done(change_of(SH_ARC_BUILT, 1), 1, set(1, 0, 0));
    assert_int_equal(shard()->origin, SH_ORIGIN_NEW);
    assert_true(shard()->origin_version == shard()->version);
    assert_refused(change_of(SH_ARC_BUILT, 1)); /* there is a state by now */
}

/* A process that begins has forgotten what it was told and promised: others must ask it anew, and who
 * can goes on in its place. */
static void a_start_changes_what_it_has(void **state)
{
    (void)state;
    held(1, set(1, 2, 0));
    arcs.shards[SHARD + 1].owner = 2;
    arcs.shards[SHARD + 1].replicas = set(2, 3, 0);
    uint64_t version = shard()->version;
    assert_int_equal(sh_arcs_start(&arcs, 1, UINT64_C(1) << 32 | 9), SH_ARCS_STALE); /* a copy */
    assert_int_equal(sh_arcs_start(&arcs, 1, UINT64_C(2) << 32 | 9), SH_ARCS_STARTED);
    assert_int_equal(arcs.incarnations[1], 2);
    assert_int_equal(shard()->version, version + 1);
    assert_int_equal(shard()->owner, 2);
    assert_int_equal(arcs.shards[SHARD + 1].version, version); /* none of its */
    struct sh_arcs before = arcs;
    assert_int_equal(sh_arcs_start(&arcs, 1, UINT64_C(2) << 32 | 9), SH_ARCS_STARTED);
    assert_memory_equal(&before, &arcs, sizeof arcs); /* said again */
}

static void a_start_gives_nothing_to_who_is_not_up(void **state)
{
    (void)state;
    held(1, set(1, 2, 0));
    arcs.up &= ~sh_arc_bit(2);
    assert_int_equal(sh_arcs_start(&arcs, 1, UINT64_C(2) << 32 | 9), SH_ARCS_STARTED);
    assert_int_equal(shard()->owner, 1);
}

static void who_is_gone_owns_only_what_it_alone_has(void **state)
{
    for (unsigned down = 2; down <= 3; down++) {
        (void)setup(state);
        held(1, set(1, 2, 3));
        arcs.up &= ~sh_arc_bit(down);
        assert_true(sh_arcs_gone(&arcs, 1));
        assert_int_equal(arcs.incarnations[1], 2);
        /* Who is up, first. */
        assert_true(shard()->owner == 5 - down && shard()->replicas == set(2, 3, 0));
        assert_true(sh_arcs_gone(&arcs, 5 - down) && sh_arcs_gone(&arcs, down));
        /* The shard waits for the last one. */
        assert_true(shard()->owner == down && shard()->replicas == set(down, 0, 0));
        assert_false(sh_arcs_gone(&arcs, down));
    }
}

/* A replica that fails changes no owner. */
static void who_owns_goes_on_without_a_replica(void **state)
{
    for (unsigned owner = 2; owner <= 3; owner++) {
        (void)setup(state);
        held(owner, set(1, 2, 3));
        assert_true(sh_arcs_gone(&arcs, 1));
        assert_true(shard()->owner == owner && shard()->replicas == set(2, 3, 0));
    }
    held(3, 0);
    assert_false(sh_arcs_is_bare(&arcs, 3));
}

/* A superpeer whose disk is new. */
static void an_empty_disk_has_nothing(void **state)
{
    (void)state;
    held(1, set(1, 2, 0));
    assert_int_equal(sh_arcs_start_empty(&arcs, 1, 77, false), SH_ARCS_STARTED);
    assert_true(shard()->owner == 2 && shard()->replicas == set(2, 0, 0));
    assert_true(arcs.lives[1] == (UINT64_C(2) << 32 | 77));
    assert_true(arcs.incarnations[1] > 1);
    /* Superpeer 2 is the last one: its former disk is waited for. */
    struct sh_arcs before = arcs;
    assert_int_equal(sh_arcs_start_empty(&arcs, 2, 78, false), SH_ARCS_STALE);
    assert_memory_equal(&before, &arcs, sizeof arcs);
    /* A disk in memory is lost for sure. */
    assert_int_equal(sh_arcs_start_empty(&arcs, 2, 78, true), SH_ARCS_STARTED);
    assert_true(shard()->replicas == 0 && shard()->owner);
}

/* Only who is away is declared lost; its former disk, and copies of it, count as old for ever. */
static void a_lost_disk_does_not_come_back(void **state)
{
    (void)state;
    held(2, set(2, 0, 0));
    assert_false(sh_arcs_forget(&arcs, 2));
    assert_true(sh_arcs_gone(&arcs, 2));
    assert_true(sh_arcs_forget(&arcs, 2));
    assert_true(shard()->replicas == 0);
    assert_int_equal(sh_arcs_start(&arcs, 2, UINT64_C(1000) << 32 | 9), SH_ARCS_STALE);
    assert_false(sh_arcs_forget(&arcs, 9)); /* it was never there */
}

static void the_last_one_can_not_retire(void **state)
{
    (void)state;
    for (unsigned nid = 1; nid <= 3; nid++)
        assert_true(sh_arcs_retire(&arcs, nid));
    assert_false(sh_arcs_retire(&arcs, 4));
    assert_false(sh_arcs_retire(&arcs, 3)); /* it does already */
    assert_true(arcs.up == set(4, 0, 0));
}

/* What nobody has is given to whoever is there, in another version; what somebody has stays. */
static void what_nobody_has_changes_hands(void **state)
{
    (void)state;
    held(1, set(1, 2, 0));
    shard()[1] = (struct sh_shard){.version = 10, .owner = 2, .replicas = set(2, 1, 0)};
    shard()[2] = (struct sh_shard){.version = 10, .owner = 2, .replicas = set(2, 3, 0)};
    shard()[3].owner = 3;
    assert_false(sh_arcs_is_bare(&arcs, 1));
    assert_false(sh_arcs_is_bare(&arcs, 3));
    assert_true(sh_arcs_retire(&arcs, 1));
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        bool is_held = i >= SHARD && i < SHARD + 4; /* or owned by another one */
        assert_int_equal(arcs.shards[i].version, is_held ? 10 : 11);
        assert_true(is_held || (arcs.shards[i].owner && arcs.shards[i].owner != 1));
    }
    assert_true(shard()->owner == 1 && shard()->replicas == set(1, 2, 0)); /* to be handed over */
    assert_true(sh_arcs_gone(&arcs, 1));
    assert_true(shard()->version == 11 && shard()->owner == 2);
    assert_true(shard()[1].version == 11 && shard()[1].owner == 2);
    assert_true(shard()[2].version == 10 && shard()[2].owner == 2);
    assert_int_equal(arcs.shards[0].version, 11);
    assert_true(sh_arcs_is_bare(&arcs, 1));
    for (unsigned nid = 2; nid <= 4; nid++)
        assert_true(sh_arcs_gone(&arcs, nid));
    assert_int_equal(arcs.shards[0].owner, 0);
    uint64_t version = arcs.shards[0].version;
    assert_false(sh_arcs_up(&arcs, 9)); /* it was never there */
    assert_true(sh_arcs_up(&arcs, 4));
    assert_false(sh_arcs_up(&arcs, 4));
    assert_true(arcs.shards[0].owner == 4 && arcs.shards[0].version == version + 1);
    assert_true(shard()[2].owner != 4); /* it waits for its last replica */
}

/* A replica that is started again keeps others' shards theirs, in another version. */
static void a_start_takes_nothing_from_an_owner(void **state)
{
    (void)state;
    held(1, set(1, 2, 3));
    assert_int_equal(sh_arcs_start(&arcs, 2, UINT64_C(2) << 32 | 9), SH_ARCS_STARTED);
    assert_true(shard()->owner == 1 && shard()->version == 11);
    assert_true(shard()->replicas == set(1, 2, 3));
    assert_int_equal(arcs.shards[0].version, 10);
}

/* Whoever is forced to go on alone has nothing of what was decided, in versions that nobody else was in; the
 * other disks count as lost. */
static void who_is_forced_begins_all_anew(void **state)
{
    (void)state;
    held(1, set(1, 2, 3));
    uint64_t life = arcs.lives[3];
    sh_arcs_force(&arcs, 3);
    assert_true(arcs.up == set(3, 0, 0) && arcs.present == arcs.up);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        assert_true(arcs.shards[i].owner == 3 && arcs.shards[i].replicas == 0);
        assert_true(arcs.shards[i].version > UINT64_C(1) << 40);
    }
    assert_true(arcs.lives[3] == life);
    assert_int_equal(sh_arcs_start(&arcs, 1, UINT64_C(1000) << 32 | 9), SH_ARCS_STALE);
}

/* A table of bytes that no registry wrote is none. */
static void only_tables_are_taken(void **state)
{
    static uint8_t bytes[SH_ARCS_BYTES];
    struct sh_arcs got;
    for (unsigned i = 0; i <= 12; i++) {
        (void)setup(state);
        held(1, set(1, 2, 0));
        switch (i) {
        case 1:
            arcs.present |= 1;
            break;
        case 2:
            arcs.lives[3] = 0;
            break;
        case 3:
            shard()->replicas |= 1;
            break;
        case 4:
            shard()->owner = SH_SUPERPEERS_MAX + 1;
            break;
        case 5:
            shard()->origin = SH_ORIGIN_PEERS + 1;
            break;
        case 6:
            shard()->copy_nid = SH_SUPERPEERS_MAX + 1;
            break;
        case 7:
            shard()->origin_version = shard()->version + 1;
            break;
        case 8:
            shard()->owner = 3; /* which has nothing of it */
            break;
        case 9:
            shard()->replicas |= sh_arc_bit(9); /* which is away, beside others that are not */
            break;
        case 10:
            held(9, 0); /* which is away */
            break;
        case 11:
            arcs.up |= sh_arc_bit(9);
            break;
        case 12:
            held(9, sh_arc_bit(9)); /* the last one: it is waited for */
            break;
        default:
            break;
        }
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_arcs_put(&w, &arcs);
        assert_true(sh_writer_ok(&w) && w.at == w.end);
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
        assert_int_equal(sh_arcs_get(&r, &got), i && i < 12 ? SHOAL_EPROTO : SHOAL_OK);
        r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes - 1));
        assert_int_equal(sh_arcs_get(&r, &got), SHOAL_EPROTO);
    }
}

static void only_changes_are_taken(void **state)
{
    uint8_t bytes[SH_ARC_CHANGE_BYTES];
    struct sh_arc_change got;
    (void)state;
    for (unsigned i = 0; i < 8; i++) {
        struct sh_arc_change change = change_of(SH_ARC_SALVAGE, SH_SUPERPEERS_MAX);
        change.kind = i == 1 ? 0 : i == 2 ? SH_ARC_SALVAGE + 1 : i == 3 ? SH_ARC_ADD : change.kind;
        change.shard = i == 4 ? SH_SHARDS : i == 5 ? SH_SHARDS - 1 : change.shard;
        change.nid = i == 6 ? 0 : i == 7 ? SH_SUPERPEERS_MAX + 1 : change.nid;
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_arc_change_put(&w, &change);
        assert_true(sh_writer_ok(&w) && w.at == w.end);
        struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
        bool is_good = i == 0 || i == 3 || i == 5;
        assert_int_equal(sh_arc_change_get(&r, &got), is_good ? SHOAL_OK : SHOAL_EPROTO);
        r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes - 1));
        assert_int_equal(sh_arc_change_get(&r, &got), SHOAL_EPROTO);
    }
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup(name, setup)
    const struct CMUnitTest tests[] = {
        CASE(only_that_version_is_changed),
        CASE(replicas_are_added),
        CASE(replicas_are_dropped),
        CASE(shards_are_handed_over),
        CASE(what_is_lost_is_salvaged),
        CASE(only_the_owner_begins_a_shard),
        CASE(a_start_changes_what_it_has),
        CASE(a_start_gives_nothing_to_who_is_not_up),
        CASE(who_is_gone_owns_only_what_it_alone_has),
        CASE(who_owns_goes_on_without_a_replica),
        CASE(an_empty_disk_has_nothing),
        CASE(a_lost_disk_does_not_come_back),
        CASE(the_last_one_can_not_retire),
        CASE(what_nobody_has_changes_hands),
        CASE(a_start_takes_nothing_from_an_owner),
        CASE(who_is_forced_begins_all_anew),
        CASE(only_tables_are_taken),
        CASE(only_changes_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
