/* Zones are copied to a backup that is added at so many bytes a second, whatever the size of their chunks, and so many at a time; writes go on meanwhile. */
#include "backup/completion.h"
#include "tests/backup_cases_int.h"
#include "tests/seed_int.h"

#define SECOND (1000 * FAKE_MS)
#define RATE 400000u   /* bytes a second */
#define LARGE 600000u  /* bytes of a chunk, which has a zone of its own, and comes in pieces */
#define MEDIUM 100000u /* of one that comes at once, and is more than a step's part of the rate */
#define LARGES 4u
#define MEDIUMS 12u
#define SMALLS 8u
#define CHUNKS (LARGES + MEDIUMS + SMALLS)

static uint64_t locals[CHUNKS];

static uint32_t size_of(unsigned i)
{
    return i < LARGES ? LARGE : i < LARGES + MEDIUMS ? MEDIUM : 100;
}

/* Two backups of three are up, and have all zones; then the one fails, and the third one is to get all that it had. */
static uint64_t zones_make(unsigned copies_max, uint64_t copy_bytes_per_s)
{
    uint64_t bytes = 0;
    owner.config.cluster.copies_max = copies_max;
    owner.config.cluster.copy_bytes_per_s = copy_bytes_per_s;
    owner_open(&owner, &calm, 3, 2, 2);
    owner.config.cluster.copies_max = 0; /* of the next owner */
    owner.config.cluster.copy_bytes_per_s = 0;
    owner.is_checking = true;
    owner.checks_one_in = 8;
    for (unsigned i = 0; i < CHUNKS; i++) {
        locals[i] = owner_change(&owner, OWNER_NEW, 0, size_of(i));
        (void)owner_change(&owner, OWNER_PUT, locals[i], size_of(i));
        bytes += size_of(i);
    }
    owner_settle(&owner);
    owner.are_failed[2] = false;
    backup_fail(1, true);
    return bytes;
}

/* Puts go to all chunks in turn, one after the other; counts them. */
struct puts {
    struct owner_op *op;
    unsigned next, done;
    uint64_t longest_ns, begun_ns;
};

static void puts_go_on(struct puts *puts)
{
    uint64_t now_ns = sh_world_now(owner.world);
    if (puts->op && puts->op->is_busy)
        return;
    if (puts->op && now_ns - puts->begun_ns > puts->longest_ns)
        puts->longest_ns = now_ns - puts->begun_ns;
    puts->done += puts->op != NULL;
    /* Large ones are left alone: each put of one of these would be what the time goes into. */
    unsigned i = LARGES + puts->next++ % (CHUNKS - LARGES);
    puts->begun_ns = now_ns;
    puts->op = owner_op_begin(&owner, OWNER_PUT, locals[i], size_of(i), SH_LEVEL_REPLICATED);
}

/* At no time more was copied than the rate allows, but for what may come at once: the part of a second, and one chunk. */
static void a_copy_keeps_to_the_rate(void **state)
{
    (void)state;
    uint64_t bytes = zones_make(1, RATE);
    struct puts puts = {.next = 0};
    uint64_t begin_ns = sh_world_now(owner.world), passed_ns = 0;
    while (owner_status(&owner).under_replicated || !owner_status(&owner).copies_done) {
        puts_go_on(&puts);
        owner_pass(&owner, 5 * FAKE_MS);
        passed_ns = sh_world_now(owner.world) - begin_ns;
        const struct sh_backup_status status = owner_status(&owner);
        uint64_t most = RATE * (passed_ns / FAKE_MS) / 1000 + RATE / 20 + (64 << 10) + LARGE;
        assert_true(status.copied_bytes <= most && status.copies <= 1);
        assert_true(passed_ns < 60 * SECOND);
    }
    uint64_t least_ns = (bytes - LARGE - RATE / 20 - (64 << 10)) * 1000 / RATE * FAKE_MS;
    assert_in_range(owner_status(&owner).copied_bytes, bytes, bytes + bytes / 10);
    assert_in_range(passed_ns, least_ns, 2 * least_ns);
    /* A put waits for a large chunk that comes in pieces to its own zone, never for the rate. */
    assert_true(puts.done > 20 * passed_ns / SECOND && puts.longest_ns < SECOND / 4);
    owner_settle(&owner);
    owner_close(&owner);
}

static void most_copies(unsigned copies_max, unsigned expected)
{
    unsigned most = 0;
    (void)zones_make(copies_max, 4 * RATE);
    for (unsigned i = 0; i < 4000 && !(i > 100 && !owner_status(&owner).under_replicated); i++) {
        const struct sh_backup_status status = owner_status(&owner);
        most = status.copies > most ? status.copies : most;
        assert_true(status.copied_bytes <= (uint64_t)4 * RATE * i / 100 + RATE / 5 + (64 << 10) +
                                               (uint64_t)expected * LARGE);
        owner_pass(&owner, 10 * FAKE_MS);
    }
    assert_int_equal(most, expected);
    owner_settle(&owner);
    owner_close(&owner);
}

static void so_many_zones_are_copied_at_a_time(void **state)
{
    (void)state;
    most_copies(0, 2);
    most_copies(3, 3);
}

/* A copy is shown to begin with nothing, and to end with all of the zone. */
static void a_copy_shows_how_far_it_is(void **state)
{
    (void)state;
    struct sh_zone_state zone;
    uint64_t last = 0, number = 0;
    unsigned shown = 0, nearly_all = 0;
    (void)zones_make(1, RATE);
    while (owner_status(&owner).copies_done < 3) {
        owner_pass(&owner, 20 * FAKE_MS);
        for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone);
             from = zone.number + 1) {
            for (unsigned i = 0; i < zone.count; i++) {
                if (!zone.backups[i].is_added)
                    continue;
                uint64_t copied = zone.backups[i].copied_bytes;
                assert_true(!zone.backups[i].is_recorded &&
                            zone.backups[i].nid.v == FAKE_OWNER + 3);
                assert_true(copied <= zone.live_bytes + zone.live_bytes / 100);
                assert_true(number != zone.number || copied >= last);
                number = zone.number;
                last = copied;
                shown++;
                nearly_all += copied > zone.live_bytes / 4 * 3;
            }
        }
    }
    assert_true(shown > 20 && nearly_all > 0);
    owner_settle(&owner);
    owner_close(&owner);
}

/* A backup that is added is slow: when it has all of the copy, more was acknowledged by the other one. It is recorded once it has that, too, though
 * nothing else happens by then. */
static void a_copy_that_is_behind_is_recorded_later(void **state)
{
    (void)state;
    owner_open(&owner, &calm, 2, 1, 2);
    owner_pass(&owner, 3 * SECOND);
    uint64_t local = owner_change(&owner, OWNER_NEW, 0, 100);
    owner.backups[1].pace_ns = 20 * FAKE_MS;
    owner.are_failed[1] = false;
    owner_view(&owner);
    for (unsigned i = 0; i < 100; i++) {
        (void)owner_op_begin(&owner, OWNER_PUT, local, 100, SH_LEVEL_ASYNC);
        owner_pass(&owner, 5 * FAKE_MS);
    }
    owner_pass(&owner, 8 * SECOND);
    const struct sh_backup_status status = owner_status(&owner);
    assert_true(status.copies_done > 0 && !status.copies && !status.under_replicated);
    owner_settle(&owner);
    owner_close(&owner);
}

static bool is_at(uint64_t number, unsigned i)
{
    struct sh_zone record;
    return sh_metadata_zone(owner.superpeer.metadata, sh_zone_id((shoal_nid){FAKE_OWNER}, number),
                            &record) &&
           sh_zone_has_backup(&record, owner.backups[i].nid, owner.backups[i].disk);
}

static uint64_t zone_of(uint64_t local)
{
    uint64_t number;
    assert_true(sh_backup_zone_number(owner.backup, owner_cid(local), &number));
    return number;
}

/* A large chunk has moved to another zone, whose backup's disk hangs, so that the move is not durable: its old zone is copied with it all the same. */
static void a_large_chunk_that_has_left_is_copied(void **state)
{
    (void)state;
    owner.zone_bytes_next = 1 << 20;
    owner_open(&owner, &calm, 3, 2, 2);
    owner.zone_bytes_next = 0;
    owner.is_checking = true;
    uint64_t moves = owner_change(&owner, OWNER_NEW, 0, 300000);
    (void)owner_change(&owner, OWNER_PUT, moves, 300000);
    (void)owner_change(&owner, OWNER_NEW, 0, 400000);
    (void)owner_change(&owner, OWNER_NEW, 0, 300000);
    (void)owner_change(&owner, OWNER_NEW, 0, 100000);
    uint64_t former = zone_of(moves);
    owner.backups[0].is_stuck = true;
    struct owner_op *op = owner_op_begin(&owner, OWNER_RESIZE, moves, 500000, SH_LEVEL_REPLICATED);
    owner_until(&owner, owner_op_is_over, op);
    assert_int_not_equal(zone_of(moves), former);
    owner.are_failed[2] = false;
    backup_fail(1, true);
    owner_pass(&owner, SECOND);
    assert_true(is_at(former, 2));
    owner.backups[0].is_stuck = false;
    owner_settle(&owner);
    owner_close(&owner);
}

#define RESULTS                                                                                    \
    5000u /* more than a client may have under way: of the last ones to a former life it is not known what was acknowledged */
#define FORMER_LIFE 4999u

static uint64_t asked_for; /* chunk */
static struct {
    unsigned count;
    bool are_known[RESULTS + 1]; /* by number */
} got[3];

/* What came of requests on one chunk: the node ran each second one itself, and another node the others, before the chunk came here. */
static void results(void *arg, uint64_t first, uint64_t last,
                    void (*each)(void *each_arg, const struct sh_completion *completion),
                    void *each_arg)
{
    (void)arg;
    assert_true(first <= last && first >> 48 == last >> 48);
    for (uint64_t i = 1; i <= RESULTS && first <= asked_for && asked_for <= last; i++) {
        bool is_own = i % 2;
        const struct sh_completion completion = {.client = 5,
                                                 .number = i,
                                                 .acknowledged =
                                                     is_own && i != FORMER_LIFE ? i - 1 : 0,
                                                 .node = is_own ? FAKE_OWNER : 77,
                                                 .chunk = asked_for,
                                                 .value = 1000 + i};
        each(each_arg, &completion);
    }
}

static void on_entry(const struct fake_backup *backup, const struct fake_zone *zone,
                     const struct sh_replication_entry *entry)
{
    unsigned i = backup->nid.v - FAKE_OWNER - 1u;
    struct sh_completion completion;
    (void)zone;
    if (!entry->completion.size)
        return;
    assert_true(sh_completion_get(entry->completion, &completion));
    assert_true(entry->kind == SH_REPLICATION_REMOVAL && completion.chunk == asked_for);
    uint64_t number = completion.number;
    assert_true(completion.client == 5 && number <= RESULTS && completion.value == 1000 + number);
    bool is_former = number == FORMER_LIFE;
    assert_int_equal(completion.node, is_former ? FAKE_OWNER : number % 2 ? 0 : 77);
    assert_true(is_former || number % 2 == 0 || completion.acknowledged == number - 1);
    got[i].count += !got[i].are_known[number];
    got[i].are_known[number] = true;
}

/* A backup that is added gets what came of requests before, too, and gets it alone: clients may repeat these, and a recovery may be from that backup. */
static void results_are_copied(void **state)
{
    (void)state;
    memset(got, 0, sizeof got);
    owner.config.results = results;
    owner_open(&owner, &calm, 3, 2, 3);
    owner.config.results = NULL; /* of the next owner */
    for (unsigned i = 0; i < 3; i++)
        owner.backups[i].on_entry = on_entry;
    asked_for = shoal_cid_make((shoal_nid){FAKE_OWNER}, owner_change(&owner, OWNER_NEW, 0, 100)).v;
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(is_at(zone_of(shoal_cid_local((shoal_cid){asked_for})), 0) && !got[0].count);
    owner.are_failed[2] = false;
    owner_view(&owner);
    owner_settle(&owner);
    assert_true(is_at(zone_of(shoal_cid_local((shoal_cid){asked_for})), 2));
    assert_int_equal(got[2].count, RESULTS);
    assert_true(!got[0].count && !got[1].count);
    owner_close(&owner);
}

/* As if zones were brought back for so long. */
static void pass_slowly(uint64_t ns)
{
    for (uint64_t passed_ns = 0; passed_ns < ns; passed_ns += SECOND / 10) {
        sh_backup_copies_slow(owner.backup,
                              sh_now(&sh_world_env(owner.world, 1)->clock) + SECOND / 5);
        owner_pass(&owner, SECOND / 10);
    }
}

/* Chunks that are brought back go first: meanwhile copies get a small part of the rate. */
static void copies_are_slow(void **state)
{
    (void)state;
    uint64_t bytes = zones_make(1, 16 * RATE);
    pass_slowly(10 * SECOND);
    uint64_t copied = owner_status(&owner).copied_bytes;
    assert_in_range(copied, 1, 10 * RATE / 4 + LARGE + 16 * RATE / 20 + (64 << 10));
    assert_true(copied < bytes / 2 + LARGE);
    owner_pass(&owner, 4 * SECOND);
    assert_int_equal(owner_status(&owner).under_replicated, 0);
    owner_settle(&owner);
    owner_close(&owner);
}

/* But where a zone has no backup at all, no write is acknowledged before it has one: also if copies of others have begun, and are slow. */
static void copies_of_bare_zones_are_not(void **state)
{
    (void)state;
    uint64_t bytes = zones_make(1, 16 * RATE);
    pass_slowly(SECOND);
    backup_fail(0, true);
    pass_slowly(8 * SECOND);
    assert_true(owner_status(&owner).copied_bytes >= bytes);
    for (unsigned i = 0; i < CHUNKS; i++)
        (void)owner_change(&owner, OWNER_PUT, locals[i], size_of(i));
    owner_close(&owner);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_keeps_to_the_rate),
        cmocka_unit_test(so_many_zones_are_copied_at_a_time),
        cmocka_unit_test(a_copy_shows_how_far_it_is),
        cmocka_unit_test(a_copy_that_is_behind_is_recorded_later),
        cmocka_unit_test(a_large_chunk_that_has_left_is_copied),
        cmocka_unit_test(results_are_copied),
        cmocka_unit_test(copies_are_slow),
        cmocka_unit_test(copies_of_bare_zones_are_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
