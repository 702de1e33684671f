/* What a zone that is brought back has, no other zone of this node claims any more before that zone opens (backup/disclaim.c): a recovery of the node's own zones, which outweigh it, would
 * find nothing of these chunks, and take them for removed. */
#include "tests/backup_adopt_int.h"

static struct sh_zone record;
static uint64_t own, number;

/* What the first backup was told of the claims of the zone that is brought back, in order. */
static struct {
    uint64_t place;
    struct sh_zone_claim claim;
} retold[16];
static unsigned retold_count;

static void on_retold(const struct sh_replication_entry *entry)
{
    if (!(entry->chunk >> 48) && entry->kind == SH_REPLICATION_IMAGE && entry->size == 16) {
        assert_true(retold_count < 16);
        retold[retold_count].place = entry->chunk - 1;
        retold[retold_count++].claim =
            (struct sh_zone_claim){sh_load64(entry->bytes.at), sh_load64(entry->bytes.at + 8)};
    }
}

/* What the backups have been told of the claims of this node's own zone, by place. */
static struct sh_zone_claim told[FAKE_BACKUPS][8];

static void on_entry(const struct fake_backup *backup, const struct fake_zone *zone,
                     const struct sh_replication_entry *entry)
{
    uint64_t place = entry->chunk - 1;
    if (zone->id == ZONE && backup->nid.v == FAKE_OWNER + 1)
        on_retold(entry);
    if (zone->id == ZONE || entry->chunk >> 48 || entry->kind != SH_REPLICATION_IMAGE ||
        entry->size != 16 || place >= 8)
        return;
    told[backup->nid.v - FAKE_OWNER - 1u][place] =
        (struct sh_zone_claim){sh_load64(entry->bytes.at), sh_load64(entry->bytes.at + 8)};
}

static bool is_told_claimed(unsigned backup, uint64_t chunk)
{
    for (unsigned i = 0; i < 8; i++) {
        if (told[backup][i].first <= chunk && chunk <= told[backup][i].last)
            return true;
    }
    return false;
}

/* Chunk 5 of the former owner's was here once, in a zone of this node's own. */
static void own_claim(unsigned up)
{
    uint8_t bytes[64] = {1};
    memset(told, 0, sizeof told);
    for (unsigned i = 0; i < FAKE_BACKUPS; i++)
        for (unsigned k = 0; k < 8; k++)
            told[i][k].first = 1;
    owner_open(&owner, &calm, 2, up, 2);
    for (unsigned i = 0; i < 2; i++) {
        owner.backups[i].is_lenient = true;
        owner.backups[i].on_entry = on_entry;
    }
    owner_pass(&owner, 500 * FAKE_MS);
    shoal_cid cid = {chunk_of(5)};
    assert_int_equal(sh_store_take_over(owner.store, cid, sh_bytes_make(bytes, sizeof bytes)),
                     SHOAL_OK);
    assert_int_equal(sh_store_hand_back(owner.store, cid), SHOAL_OK);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(sh_backup_zone_number(owner.backup, cid, &own));
    for (unsigned i = 0; i < up; i++)
        assert_true(is_told_claimed(i, chunk_of(5)));
}

/* It comes back with a zone that was the former owner's. */
static void adopt(void)
{
    static const struct sh_zone_claim claim = {FORMER << 48 | 1, FORMER << 48 | 100};
    record = record_make(ZONE, 0);
    assert_int_equal(sh_backup_zone_adopt(owner.backup, &record, END, END, &number), SHOAL_OK);
    assert_int_equal(sh_backup_adopt_claims(owner.backup, number, &claim, 1, 100, false), SHOAL_OK);
    assert_int_equal(sh_backup_adopt_chunk(owner.backup, number, chunk_of(5)), SHOAL_OK);
}

static enum shoal_err keep(void)
{
    static const struct sh_metadata_run kept = {{FORMER << 48 | 1}, {FORMER << 48 | 100}};
    return sh_backup_adopt_keep(owner.backup, number, &kept, 1);
}

static void claims_go_before_the_zone_opens(void **state)
{
    (void)state;
    own_claim(2);
    adopt();
    assert_int_equal(keep(), SHOAL_EAGAIN);
    unsigned passed = 0;
    while (keep()) {
        owner_pass(&owner, FAKE_MS);
        assert_true(passed++ < 1000);
    }
    for (unsigned i = 0; i < 2; i++) {
        assert_true(is_told_claimed(i, chunk_of(0)) && is_told_claimed(i, chunk_of(101)));
        for (uint64_t local = 1; local <= 100; local++) /* whether there is a chunk or not */
            assert_false(is_told_claimed(i, chunk_of(local)));
    }
    owner_close(&owner);
}

/* The own zone has lost its backups, which are in its record still: they may come back, and be asked. They are waited for, though not for ever. */
static void a_zone_without_backups_is_waited_for(void **state)
{
    (void)state;
    for (unsigned returns = 0; returns < 2; returns++) {
        own_claim(2);
        backup_fail(0, true);
        backup_fail(1, true);
        owner_pass(&owner, 500 * FAKE_MS);
        adopt();
        owner_pass(&owner,
                   11000 * FAKE_MS); /* later zones come first: it waits from when it asks */
        for (unsigned i = 0; i < 90; i++) {
            assert_int_equal(keep(), SHOAL_EAGAIN);
            owner_pass(&owner, 100 * FAKE_MS);
        }
        if (returns) {
            backup_return(0);
            while (keep())
                owner_pass(&owner, FAKE_MS);
            assert_false(is_told_claimed(0, chunk_of(5)));
        } else {
            owner_pass(&owner, 2000 * FAKE_MS);
            assert_int_equal(keep(), SHOAL_OK);
        }
        owner_close(&owner);
    }
}

/* Its record names nobody: no recovery would find anything. */
static void a_zone_that_never_had_one_is_not(void **state)
{
    (void)state;
    own_claim(0);
    adopt();
    assert_int_equal(keep(), SHOAL_OK);
    owner_close(&owner);
}

/* --- What it keeps of its own claims --------------------------------------------------------------- */

/* Of the first two claims parts are not the zone's any more, nor is anything of the fourth; the third was empty, and the last is left as it is. */
#define CLAIMS 5u
static const struct sh_zone_claim found[CLAIMS] = {{FORMER << 48 | 1, FORMER << 48 | 100},
                                                   {FORMER << 48 | 101, FORMER << 48 | 200},
                                                   {UINT64_C(1), 0},
                                                   {FORMER << 48 | 300, FORMER << 48 | 310},
                                                   {FORMER << 48 | 400, FORMER << 48 | 410}};
static const struct sh_metadata_run left[] = {{{FORMER << 48 | 10}, {FORMER << 48 | 20}},
                                              {{FORMER << 48 | 40}, {FORMER << 48 | 50}},
                                              {{FORMER << 48 | 90}, {FORMER << 48 | 110}},
                                              {{FORMER << 48 | 150}, {FORMER << 48 | 150}},
                                              {{FORMER << 48 | 400}, {FORMER << 48 | 410}}};

static bool is_left(uint64_t chunk)
{
    for (unsigned i = 0; i < sizeof left / sizeof left[0]; i++) {
        if (left[i].first.v <= chunk && chunk <= left[i].last.v)
            return true;
    }
    return false;
}

/* Whether a replica claims the chunk that has the first so many of what was told. */
static bool is_claimed_after(unsigned count, uint64_t chunk)
{
    struct sh_zone_claim now[32];
    for (unsigned i = 0; i < 32; i++)
        now[i] = i < CLAIMS ? found[i] : (struct sh_zone_claim){.first = 1};
    for (unsigned i = 0; i < count; i++) {
        assert_true(retold[i].place < 32);
        now[retold[i].place] = retold[i].claim;
    }
    for (unsigned i = 0; i < 32; i++) {
        if (now[i].first <= chunk && chunk <= now[i].last)
            return true;
    }
    return false;
}

static void zone_adopt(void)
{
    owner_open(&owner, &calm, 2, 2, 2);
    owner.backups[0].is_lenient = true;
    owner.backups[0].on_entry = on_entry;
    owner_pass(&owner, 500 * FAKE_MS);
    record = record_make(ZONE, 1);
    (void)replica_make(0, ZONE, END);
    assert_int_equal(sh_backup_zone_adopt(owner.backup, &record, END, END, &number), SHOAL_OK);
    assert_int_equal(sh_backup_adopt_claims(owner.backup, number, found, CLAIMS, 100, false),
                     SHOAL_OK);
    retold_count = 0;
}

/* A restorer may fail after each of the claims that it records again. The next one finds in the replica all that is the zone's: what it does not claim it would take for others'. */
static void a_zone_claims_too_much_until_it_claims_its_own(void **state)
{
    (void)state;
    for (unsigned narrows = 0; narrows < 2; narrows++) {
        zone_adopt();
        if (narrows)
            assert_int_equal(sh_backup_adopt_narrow(owner.backup, number, left, 5), SHOAL_OK);
        while (sh_backup_adopt_keep(owner.backup, number, left, 5))
            owner_pass(&owner, FAKE_MS);
        owner_pass(&owner, 500 * FAKE_MS);
        assert_true(retold_count);
        for (uint64_t local = 1; local <= 500; local++) {
            for (unsigned told_first = 0; told_first < retold_count; told_first++)
                assert_true(!is_left(chunk_of(local)) ||
                            is_claimed_after(told_first, chunk_of(local)));
            assert_int_equal(is_claimed_after(retold_count, chunk_of(local)),
                             is_left(chunk_of(local)));
        }
        owner_close(&owner);
    }
}

/* Claims that are all kept are in the log as they are. */
static void claims_that_are_kept_are_not_told_again(void **state)
{
    static const struct sh_metadata_run all[] = {{{FORMER << 48 | 1}, {FORMER << 48 | 200}},
                                                 {{FORMER << 48 | 300}, {FORMER << 48 | 310}},
                                                 {{FORMER << 48 | 400}, {FORMER << 48 | 410}}};
    (void)state;
    zone_adopt();
    assert_int_equal(sh_backup_adopt_keep(owner.backup, number, all, 3), SHOAL_OK);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_int_equal(retold_count, 0);
    owner_close(&owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_go_before_the_zone_opens),
        cmocka_unit_test(a_zone_without_backups_is_waited_for),
        cmocka_unit_test(a_zone_that_never_had_one_is_not),
        cmocka_unit_test(a_zone_claims_too_much_until_it_claims_its_own),
        cmocka_unit_test(claims_that_are_kept_are_not_told_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
