/* An owner that compares its zones with the superpeers' records once a minute, and says which replicas others need not keep: records are lost, or
 * come back as an old copy, or too late, while answers are lost, and nobody writes. */
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)
#define STRAYS 20u /* more than an owner removes after one comparison */
#define NUMBERS_MAX 48u
#define ROUNDS (150 * SECOND) /* two comparisons at least, since the first is after 30 to 90 s */

static void open_and_write(unsigned backups, uint8_t replicas)
{
    owner.config.sparse_zones = UINT32_MAX; /* no chunk moves by itself */
    owner_open(&owner, &calm, backups, backups, replicas);
    owner.is_checking = true;
    owner.checks_one_in = 4;
    write_for(800 * FAKE_MS);
    owner_pass(&owner, SECOND);
    owner_settle(&owner);
}

static bool record_of(uint64_t number, struct sh_zone *record_out)
{
    return sh_metadata_zone(owner.superpeer.metadata, sh_zone_id((shoal_nid){FAKE_OWNER}, number),
                            record_out);
}

/* All zones have a record that is not old. */
static void records_check(void)
{
    struct sh_zone record = {.id = 0};
    struct sh_zone_state zone;
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
         from = zone.number + 1) {
        assert_true(record_of(zone.number, &record));
        assert_false(record.flags & SH_ZONE_OLD);
        assert_int_equal(record.incarnation, zone.incarnation);
    }
    assert_int_equal(owner_status(&owner).trouble, SHOAL_OK);
}

static struct sh_zone record_remove(uint64_t number)
{
    struct sh_zone record;
    assert_true(record_of(number, &record));
    const struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_REMOVE,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = record.owner,
                                              .sequence = record.life,
                                              .zone = record};
    assert_int_equal(sh_metadata_apply(owner.superpeer.metadata, fake_shard(), &update).err,
                     SHOAL_OK);
    return record;
}

static uint64_t first_number(void)
{
    struct sh_zone_state zone;
    assert_true(sh_backup_zone_state(owner.backup, 0, &zone));
    return zone.number;
}

/* --- Records ----------------------------------------------------------------------------------- */

/* Where nothing is lost, a comparison is a few questions, and changes nothing. */
static void nothing_is_changed_where_nothing_is_lost(void **state)
{
    (void)state;
    open_and_write(4, 3);
    unsigned changes = owner.superpeer.changes, pages = owner_records(&owner) / 4 + 1;
    owner_pass(&owner, 300 * SECOND);
    struct sh_backup_status status = owner_status(&owner);
    assert_in_range(status.compared, 4, 5);
    assert_true(owner.superpeer.lists <= status.compared * pages && !owner.superpeer.gets);
    assert_true(owner.superpeer.changes == changes && !status.records_lost);
    write_for(100 * FAKE_MS);
    owner_settle(&owner);
    owner_close(&owner);
}

/* All records are lost, and nobody writes: they are registered again, with the backups that the zones have. */
static void lost_records_are_registered_again(void **state)
{
    (void)state;
    open_and_write(4, 3);
    unsigned records = owner_records(&owner);
    fake_superpeer_lose(&owner.superpeer);
    owner_pass(&owner, ROUNDS);
    assert_true(records > 3 && owner_records(&owner) == records);
    assert_int_equal(owner_status(&owner).records_lost, records);
    assert_int_equal(owner_status(&owner).copies_done, 0);
    owner_settle(&owner);
    records_check();
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    owner_close(&owner);
}

/* The same of a single one, while every other answer is lost. */
static void one_lost_record_is_found(void **state)
{
    (void)state;
    struct sh_zone before, after;
    open_and_write(4, 3);
    uint64_t number = first_number();
    before = record_remove(number);
    owner.superpeer.is_doubtful = true;
    owner.superpeer.lost_ppm = owner.superpeer.refused_ppm = 300000;
    owner_pass(&owner, 2 * ROUNDS);
    owner.superpeer.lost_ppm = owner.superpeer.refused_ppm = 0;
    owner_pass(&owner, SECOND);
    assert_true(record_of(number, &after));
    assert_true(after.incarnation >= before.incarnation + SH_ZONE_JUMP);
    assert_int_equal(owner_status(&owner).records_lost, 1);
    owner_settle(&owner);
    records_check();
    owner_close(&owner);
}

/* No answer comes for long: nothing is changed, and the zones go on. */
static void silent_superpeers_change_nothing(void **state)
{
    (void)state;
    open_and_write(4, 3);
    owner.superpeer.lost_ppm = 1000000;
    unsigned changes = owner.superpeer.changes;
    owner_pass(&owner, 300 * SECOND);
    write_for(50 * FAKE_MS);
    owner_pass(&owner, SECOND);
    assert_int_equal(owner_status(&owner).compared, 0);
    owner.superpeer.lost_ppm = 0;
    owner_pass(&owner, ROUNDS);
    assert_true(owner_status(&owner).compared > 0 && owner.superpeer.changes >= changes);
    owner_settle(&owner);
    records_check();
    owner_close(&owner);
}

/* An old copy of the records takes their place, from before backups were replaced: each is changed to what the owner knows, with an incarnation above those
 * that backups know, which all stay. */
static void old_records_are_changed(void **state)
{
    (void)state;
    open_and_write(5, 3);
    fake_superpeer_save(&owner.superpeer);
    backup_fail(0, true);
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    uint64_t copies = owner_status(&owner).copies_done;
    assert_true(copies > 0);
    owner.is_checking = false; /* a recovery would go by the old records until then */
    fake_superpeer_age(&owner.superpeer);
    owner_pass(&owner, ROUNDS);
    assert_true(owner_status(&owner).records_lost >= owner.superpeer.saved_count / 2);
    assert_int_equal(owner_status(&owner).copies_done, copies);
    owner_settle(&owner);
    records_check();
    for (unsigned i = 1; i < 5; i++)
        assert_true(owner.backups[i].msg != NULL);
    backup_return(0);
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    records_check();
    owner_close(&owner);
}

/* The same, and the owner wants a record changed before it compares them. */
static void old_record_that_is_changed_first(void **state)
{
    (void)state;
    open_and_write(5, 3);
    fake_superpeer_save(&owner.superpeer);
    backup_fail(0, true);
    write_for(300 * FAKE_MS);
    owner_settle(&owner);
    owner.is_checking = false;
    fake_superpeer_age(&owner.superpeer);
    backup_fail(1, true);
    owner_pass(&owner, 10 * SECOND);
    owner_pass(&owner, ROUNDS);
    owner_settle(&owner);
    records_check();
    owner_close(&owner);
}

/* A record that is not there, though none was lost, is another owner's doing. */
static void removed_record_fences(void **state)
{
    (void)state;
    open_and_write(4, 3);
    (void)record_remove(first_number());
    owner_pass(&owner, ROUNDS);
    assert_int_equal(owner_status(&owner).trouble, SHOAL_EFENCED);
    owner_close(&owner);
}

/* A zone that this life has dropped; its number. */
static uint64_t dropped_number(void)
{
    struct sh_zone_state zone;
    uint64_t number = (FAKE_LIFE >> 32) << 24;
    owner.config.sparse_zones = 1; /* of the next owner */
    owner_open(&owner, &calm, 4, 4, 2);
    owner.config.sparse_zones = 0;
    write_for(1500 * FAKE_MS);
    owner_settle(&owner);
    assert_true(owner_status(&owner).dropped > 0);
    while (!number || (sh_backup_zone_state(owner.backup, number, &zone) && zone.number == number))
        number++;
    return number;
}

static void stray_put(uint64_t number, shoal_nid of, uint64_t life)
{
    const struct sh_zone stray = {.id = sh_zone_id((shoal_nid){FAKE_OWNER}, number),
                                  .owner = of,
                                  .life = life,
                                  .incarnation = SH_ZONE_JUMP + 1,
                                  .version = SH_ZONE_JUMP + 1,
                                  .wanted = 2};
    fake_record_put(&owner.superpeer, &stray);
}

/* The numbers that this life has made zones of which it has none any more. */
static unsigned dropped_numbers(uint64_t first, uint64_t *numbers_out, unsigned most)
{
    struct sh_zone_state zone;
    unsigned count = 0;
    for (uint64_t number = first; count < most && sh_backup_zone_state(owner.backup, number, &zone);
         number++) {
        if (zone.number != number)
            numbers_out[count++] = number;
    }
    return count;
}

/* Records of zones that were dropped come back, as requests that had registered them again come twice: their owner removes them, however many there are.
 * Those of another life, and those of another owner, are not its business. */
static void stray_records_are_removed(void **state)
{
    (void)state;
    struct sh_zone record;
    uint64_t numbers[NUMBERS_MAX];
    uint64_t first = dropped_number(), strange = first - (UINT64_C(1) << 24) + 1;
    owner.config.sparse_zones = 1;
    for (unsigned i = 0; dropped_numbers(first, numbers, STRAYS) < STRAYS; i++) {
        assert_true(i < 100);
        write_for(500 * FAKE_MS);
    }
    owner_settle(&owner);
    unsigned count = dropped_numbers(first, numbers, NUMBERS_MAX);
    for (unsigned i = 2; i < count; i++) {
        assert_false(record_of(numbers[i], &record));
        stray_put(numbers[i], (shoal_nid){FAKE_OWNER}, FAKE_LIFE);
    }
    stray_put(numbers[0], (shoal_nid){FAKE_OWNER}, 5);
    stray_put(numbers[1], (shoal_nid){FAKE_OWNER + 1}, FAKE_LIFE);
    stray_put(strange, (shoal_nid){FAKE_OWNER}, 5);
    owner.superpeer.is_doubtful = true;
    owner_pass(&owner, 2 * ROUNDS);
    for (unsigned i = 2; i < count; i++)
        assert_false(record_of(numbers[i], &record));
    assert_true(record_of(numbers[0], &record) && record_of(numbers[1], &record));
    assert_true(record_of(strange, &record));
    records_check();
    owner_close(&owner);
}

/* --- Words about replicas ---------------------------------------------------------------------- */

struct word {
    struct sh_request request;
    bool is_over;
    enum shoal_err err;
    uint64_t life;
    uint8_t need;
};

static void on_word(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct word *word = request->arg;
    word->is_over = true;
    word->err = err;
    if (err)
        return;
    word->life = sh_get64(payload);
    word->need = sh_get8(payload);
    assert_true(sh_reader_done(payload));
}

static bool is_word_there(void *arg)
{
    return ((const struct word *)arg)->is_over;
}

/* The owner's word to a backup about a replica. */
static enum sh_replication_need word_of(unsigned i, uint64_t id)
{
    struct word word = {.request = {.done = on_word, .arg = &word}};
    struct sh_out out;
    assert_int_equal(sh_msg_request(owner.backups[i].msg, (shoal_nid){FAKE_OWNER},
                                    SH_REPLICATION_KEPT, 8, &word.request, &out),
                     SHOAL_OK);
    sh_put64(&out.w, id);
    sh_msg_end(owner.backups[i].msg, &out);
    assert_true(
        sh_world_run_until(owner.world, is_word_there, &word, sh_world_now(owner.world) + SECOND));
    assert_int_equal(word.err, SHOAL_OK);
    assert_true(word.life == FAKE_LIFE);
    return (enum sh_replication_need)word.need;
}

static uint64_t own_id(uint64_t number)
{
    return sh_zone_id((shoal_nid){FAKE_OWNER}, number);
}

/* A backup is needed, other nodes are not; and nothing is said of what this life has not made. */
static void owner_says_what_it_knows(void **state)
{
    (void)state;
    struct sh_zone record;
    uint64_t dropped = dropped_number(), first = (FAKE_LIFE >> 32) << 24;
    uint64_t number = first_number();
    assert_true(record_of(number, &record) && record.count == 2);
    for (unsigned i = 0; i < 4; i++) {
        bool is_backup = sh_zone_has_backup(&record, owner.backups[i].nid, 0);
        assert_int_equal(word_of(i, record.id),
                         is_backup ? SH_REPLICATION_NEEDED : SH_REPLICATION_ELSEWHERE);
        assert_int_equal(word_of(i, own_id(dropped)), SH_REPLICATION_DROPPED);
        assert_int_equal(word_of(i, own_id(first - 1)), SH_REPLICATION_NEEDED);
        assert_int_equal(word_of(i, own_id(first + 1000)), SH_REPLICATION_NEEDED);
        assert_int_equal(word_of(i, record.id + (UINT64_C(1) << 48)), SH_REPLICATION_NEEDED);
    }
    owner_close(&owner);
}

/* The superpeers have given higher numbers than the owner knows of, to whomever: it goes on above them, and says nothing of those in between. */
static void owner_says_nothing_of_a_gap(void **state)
{
    (void)state;
    struct sh_zone_state zone;
    uint64_t last = 0, next = 0;
    open_and_write(4, 2);
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone); from = zone.number + 1)
        last = zone.number;
    const struct sh_zone strange = {.id = own_id(last + 3),
                                    .owner = {FAKE_OWNER},
                                    .life = 5,
                                    .incarnation = 1,
                                    .version = 1,
                                    .wanted = 2};
    fake_record_put(&owner.superpeer, &strange);
    owner.chunks_most = 120;
    write_for(1500 * FAKE_MS);
    owner_pass(&owner, SECOND);
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone); from = zone.number + 1)
        next = zone.number;
    assert_true(next > last + 3);
    for (uint64_t number = last + 1; number <= last + 3; number++)
        assert_int_equal(word_of(0, own_id(number)), SH_REPLICATION_NEEDED);
    owner_close(&owner);
}

/* While nobody knows what the record says, a node that it may name is needed. */
static void owner_in_doubt_says_nothing(void **state)
{
    (void)state;
    struct sh_zone record;
    open_and_write(4, 2);
    uint64_t number = first_number();
    assert_true(record_of(number, &record));
    unsigned failed = record.backups[0].nid.v - FAKE_OWNER - 1u;
    owner.superpeer.lost_ppm = 1000000;
    backup_fail(failed, true);
    for (unsigned round = 0; round < 20; round++) {
        owner_pass(&owner, 100 * FAKE_MS);
        for (unsigned i = 0; i < 4; i++) {
            bool is_named =
                record_of(number, &record) && sh_zone_has_backup(&record, owner.backups[i].nid, 0);
            if (i != failed && is_named)
                assert_int_equal(word_of(i, record.id), SH_REPLICATION_NEEDED);
        }
    }
    owner.superpeer.lost_ppm = 0;
    owner_pass(&owner, 20 * SECOND);
    owner_settle(&owner);
    owner_close(&owner);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_changed_where_nothing_is_lost),
        cmocka_unit_test(lost_records_are_registered_again),
        cmocka_unit_test(one_lost_record_is_found),
        cmocka_unit_test(silent_superpeers_change_nothing),
        cmocka_unit_test(old_records_are_changed),
        cmocka_unit_test(old_record_that_is_changed_first),
        cmocka_unit_test(removed_record_fences),
        cmocka_unit_test(stray_records_are_removed),
        cmocka_unit_test(owner_says_what_it_knows),
        cmocka_unit_test(owner_says_nothing_of_a_gap),
        cmocka_unit_test(owner_in_doubt_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
