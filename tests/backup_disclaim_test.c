/* What a zone that is brought back has, no other zone of this node claims any more before that zone opens (backup/disclaim.c): a recovery of the node's own zones, which outweigh it, would
 * find nothing of these chunks, and take them for removed. */
#include "tests/backup_cases_int.h"

#define FORMER UINT64_C(90)
#define ZONE (FORMER << 48 | 5)
#define OWN_DISK 7
#define END 10

static struct sh_zone record;
static uint64_t own, number;

static uint64_t chunk_of(uint64_t local)
{
    return FORMER << 48 | local;
}

/* What the backups have been told of the claims of this node's own zone, by place. */
static struct sh_zone_claim told[FAKE_BACKUPS][8];

static void on_entry(const struct fake_backup *backup, const struct fake_zone *zone,
                     const struct sh_replication_entry *entry)
{
    uint64_t place = entry->chunk - 1;
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

static void record_apply(uint8_t kind, shoal_nid from, uint64_t life)
{
    struct sh_metadata *metadata = owner.superpeer.metadata;
    const struct sh_metadata_update update = {.kind = kind,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = from,
                                              .sequence = life,
                                              .zone = record};
    unsigned shard = sh_zone_shard(ZONE);
    if (!sh_metadata_incarnation(metadata, shard))
        sh_metadata_begin(metadata, shard, 1, true);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
}

static void record_make(void)
{
    record = (struct sh_zone){.id = ZONE,
                              .owner = {FORMER},
                              .life = 99,
                              .incarnation = 1,
                              .version = 1,
                              .wanted = 2,
                              .count = 1,
                              .backups = {{{FAKE_OWNER}, OWN_DISK}}};
    record_apply(SH_METADATA_ZONE_NEW, (shoal_nid){FORMER}, 99);
    sh_zone_former_set(&record, (shoal_nid){FORMER}, 99);
    record.owner = (shoal_nid){FAKE_OWNER};
    record.life = FAKE_LIFE;
    record_apply(SH_METADATA_ZONE_CHANGE, (shoal_nid){FAKE_SUPERPEER}, 1);
    assert_true(sh_metadata_zone(owner.superpeer.metadata, ZONE, &record));
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
    record_make();
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(claims_go_before_the_zone_opens),
        cmocka_unit_test(a_zone_without_backups_is_waited_for),
        cmocka_unit_test(a_zone_that_never_had_one_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
