/* A zone that has become empty goes, phase by phase: its log is closed, its IDs leave the map, what others have for it is removed
 * there, its record goes at the superpeers, and then its replicas. Between any two events of that a
 * node fails, an answer is lost, a request is refused, a connection breaks, or a chunk is made; and after each event it is asked:
 *
 * - while the record is there, so are the replicas that it names;
 * - once it is gone, it stays away, and recovery finds each chunk in a state that was acknowledged;
 * - no number of a zone is given twice. */
#include "tests/backup_owner_int.h"
#include "tests/seed_int.h"

#define EVENTS_MAX 900 /* of one drop */
#define LARGE 270000u  /* bytes of a chunk that comes in pieces, and may stay in its zone */

static struct owner owner;
static uint32_t big; /* four chunks of that size fill a zone */

/* The faults that strike while a zone goes. */
enum fault {
    NOTHING,
    ANSWER_LOST,    /* of the superpeer; what was asked is done */
    REFUSED,        /* by the superpeer */
    FENCED,         /* the superpeers do not see the owner as up for a while */
    LINK_CUT,       /* to the superpeer */
    BACKUP_CUT,     /* the connection to a backup */
    BACKUP_CRASHES, /* its power fails, and comes back */
    BACKUP_FAILED,  /* the same, and the view says so */
    MADE,           /* a chunk is made under an ID of the zone */
    FAULTS
};

static struct watch {
    uint64_t zone;     /* its ID */
    unsigned events;   /* since the last chunk of the zone was removed */
    unsigned stop;     /* at that many */
    bool was_recorded; /* when it was looked at last */
    bool is_gone;      /* the record was there, and is not */
    bool is_dropped;   /* the owner has forgotten it, too */
    uint64_t above;    /* numbers of records that were seen */
    bool were_seen[256];
} watch;

static const struct sh_world_config calm = {.seed = 11,
                                            .wire = {.delay_ns_min = 20000,
                                                     .delay_ns_max = 400000,
                                                     .window_bytes_min = 1 << 16,
                                                     .window_bytes_max = 1 << 18}};

/* --- Chunks ------------------------------------------------------------------------------------ */

static struct owner_op *begin(enum owner_kind kind, uint64_t local, uint32_t size,
                              enum sh_level level)
{
    return owner_op_begin(&owner, kind, local, size, level);
}

static uint64_t change(enum owner_kind kind, uint64_t local, uint32_t size)
{
    return owner_change(&owner, kind, local, size);
}

/* --- Watching ---------------------------------------------------------------------------------- */

static bool is_recorded(uint64_t id, struct sh_zone *record_out)
{
    return sh_metadata_zone(owner.superpeer.metadata, id, record_out);
}

/* Each number that a record ever had is above all earlier ones. */
static void numbers_watch(void)
{
    unsigned shard = sh_zone_shard(sh_zone_id((shoal_nid){FAKE_OWNER}, 1));
    struct sh_zone record = {.id = 0};
    while (sh_metadata_zone_next(owner.superpeer.metadata, shard, record.id, &record)) {
        uint64_t number = record.id & FAKE_LOCALS;
        bool *was_seen = &watch.were_seen[number % 256]; /* there are fewer in a test */
        if (!*was_seen && number <= watch.above)
            fail_msg("zone %llu is new, after %llu", (unsigned long long)number,
                     (unsigned long long)watch.above);
        *was_seen = true;
        watch.above = number > watch.above ? number : watch.above;
    }
}

/* The replicas that the record names are there. */
static void replicas_watch(const struct sh_zone *record)
{
    for (unsigned i = 0; i < record->count; i++) {
        uint16_t nid = record->backups[i].nid.v;
        if (!fake_find(&owner.backups[nid - FAKE_OWNER - 1], record->id))
            fail_msg("event %u: the record of zone %llu names node %u, which has nothing of it",
                     watch.events, (unsigned long long)(record->id & FAKE_LOCALS), nid);
    }
}

static bool has_zone(uint64_t id)
{
    struct sh_zone_state zone;
    uint64_t number = id & FAKE_LOCALS;
    return sh_backup_zone_state(owner.backup, number, &zone) && zone.number == number;
}

/* Asks all that has to hold after an event; true: enough have happened, or the zone is gone. */
static bool on_event(void *arg)
{
    struct sh_zone record;
    bool *is_over = arg;
    bool is_there = is_recorded(watch.zone, &record);
    if (is_there) {
        assert_false(watch.is_gone);
        replicas_watch(&record);
    } else if (watch.was_recorded) {
        watch.is_gone = true;
        owner_check(&owner, SH_LEVEL_DURABLE);
    }
    watch.was_recorded = is_there;
    numbers_watch();
    watch.is_dropped = !has_zone(watch.zone);
    assert_true(!watch.is_dropped || watch.is_gone);
    *is_over = watch.is_dropped;
    return ++watch.events >= watch.stop || watch.is_dropped;
}

/* Lets so many events happen; true: the zone has gone. */
static bool events_pass(unsigned count)
{
    bool is_over = false;
    watch.stop = watch.events + count;
    (void)sh_world_run_until(owner.world, on_event, &is_over,
                             sh_world_now(owner.world) + 4000 * FAKE_MS);
    return is_over;
}

/* --- A zone that is about to go ---------------------------------------------------------------- */

/* Which zones the test has, and which one goes. */
enum scene {
    PLAIN,     /* a zone of four chunks */
    MOVED,     /* a zone to which a chunk has moved, that an earlier one still has an image of */
    MOVED_OUT, /* a zone from which a chunk has just moved to a later one */
    SPARSE,    /* a zone that has one small chunk, which is to move to a later one */
    SCENES
};

static uint64_t zone_numbered(uint64_t number)
{
    return sh_zone_id((shoal_nid){FAKE_OWNER}, number);
}

static uint64_t number_of_chunks(uint64_t *locals, unsigned count)
{
    uint64_t first = 0;
    struct sh_zone_state zone;
    for (unsigned i = 0; i < count; i++)
        locals[i] = change(OWNER_NEW, 0, big);
    for (uint64_t from = 0; sh_backup_zone_state(owner.backup, from, &zone); from = zone.number + 1)
        first = zone.live_bytes ? zone.number : first;
    return first;
}

/* The zone that goes has lost its last chunk when this returns, which no backup may know yet. */
static void scene_make(enum scene scene)
{
    uint64_t first[4], second[3], grown;
    uint64_t number = number_of_chunks(first, 4);
    uint64_t next = number_of_chunks(second, 3);
    assert_true(next > number);
    if (scene == PLAIN) {
        watch.zone = zone_numbered(number);
        for (unsigned i = 0; i < 4; i++)
            (void)begin(OWNER_REMOVE, first[i], 0, SH_LEVEL_REPLICATED);
        return;
    }
    if (scene == SPARSE) {
        watch.zone = zone_numbered(number);
        for (unsigned i = 1; i < 4; i++)
            (void)begin(OWNER_REMOVE, first[i], 0, SH_LEVEL_REPLICATED);
        (void)begin(OWNER_RESIZE, first[0], 100, SH_LEVEL_REPLICATED);
        return;
    }
    grown = first[0];
    (void)change(OWNER_RESIZE, grown, 2 * big); /* it outgrows its zone */
    if (scene == MOVED_OUT) {
        watch.zone = zone_numbered(number);
        for (unsigned i = 1; i < 4; i++)
            (void)begin(OWNER_REMOVE, first[i], 0, SH_LEVEL_REPLICATED);
        return;
    }
    watch.zone = zone_numbered(next);
    (void)change(OWNER_NEW, 0, 3 * big); /* that one is not where new chunks go any more */
    for (unsigned i = 0; i < 3; i++)
        (void)begin(OWNER_REMOVE, second[i], 0, SH_LEVEL_REPLICATED);
    (void)begin(OWNER_REMOVE, grown, 0, SH_LEVEL_REPLICATED);
}

/* --- Faults ------------------------------------------------------------------------------------ */

static shoal_nid backup_drawn(void)
{
    struct sh_zone record;
    if (!is_recorded(watch.zone, &record) || record.backups[0].nid.v == FAKE_OWNER)
        return (shoal_nid){FAKE_OWNER + 1};
    return record.backups[owner_draw(&owner, record.count)].nid;
}

static void fault_begin(enum fault fault, unsigned backup)
{
    switch (fault) {
    case ANSWER_LOST:
        owner.superpeer.lost_ppm = 1000000;
        break;
    case REFUSED:
        owner.superpeer.refused_ppm = 1000000;
        break;
    case FENCED:
        owner.superpeer.is_fencing = true;
        break;
    case LINK_CUT:
        sh_world_cut(owner.world, 1, 0);
        break;
    case BACKUP_CUT:
        sh_world_cut(owner.world, 1, 2 + backup);
        break;
    case BACKUP_FAILED:
    case BACKUP_CRASHES:
        sh_world_crash(owner.world, 2 + backup);
        owner.are_failed[backup] = fault == BACKUP_FAILED;
        if (fault == BACKUP_FAILED)
            owner_view(&owner);
        break;
    case MADE:
        (void)begin(OWNER_NEW, 0, big / 2, SH_LEVEL_DURABLE);
        break;
    default:
        break;
    }
}

static void fault_end(enum fault fault, unsigned backup)
{
    owner.superpeer.lost_ppm = owner.superpeer.refused_ppm = 0;
    owner.superpeer.is_fencing = false;
    if (fault != BACKUP_FAILED && fault != BACKUP_CRASHES)
        return;
    owner.backups[backup].life += UINT64_C(1) << 32;
    sh_world_restart(owner.world, 2 + backup);
    owner.are_failed[backup] = false;
    owner_view(&owner);
}

/* --- Tests ------------------------------------------------------------------------------------- */

static void open_one(enum scene scene)
{
    owner.config.sparse_zones = scene == SPARSE ? 1 : UINT32_MAX;
    memset(&watch, 0, sizeof watch);
    watch.was_recorded = true;
    owner_open(&owner, &calm, 4, 4, 2);
    big = (uint32_t)(owner.zone_bytes / 17 * 4);
    owner_pass(&owner, 300 * FAKE_MS);
}

/* Where the zone has gone, nothing is left of it. Backups are told once: one whose connection was lost, as by a long silence, finds out
 * when it asks, which these fakes do not (backup_orphans_test). */
static void end_check(enum fault fault)
{
    struct sh_zone record;
    bool were_told = fault == NOTHING || fault == LINK_CUT || fault == MADE;
    if (!watch.is_gone)
        return;
    assert_false(is_recorded(watch.zone, &record));
    for (unsigned i = 0; i < owner.backups_count && were_told; i++)
        assert_null(fake_find(&owner.backups[i], watch.zone));
}

/* One zone goes while one thing happens, after so many events; returns whether it had gone before that. */
static bool drop_once(enum scene scene, enum fault fault, unsigned at)
{
    open_one(scene);
    scene_make(scene);
    bool was_over = events_pass(at);
    unsigned backup = backup_drawn().v - FAKE_OWNER - 1u;
    bool was_gone = watch.is_gone;
    fault_begin(fault, backup);
    bool is_over = was_over || events_pass(EVENTS_MAX);
    owner_pass(&owner, 500 * FAKE_MS);
    fault_end(fault, backup);
    /* The chunk that was made came into the zone, which stays then, or into another one. */
    bool may_stay = fault == MADE && !was_gone;
    for (unsigned i = 0; !is_over && !may_stay && i < 20; i++)
        is_over = events_pass(EVENTS_MAX);
    if (!is_over && !may_stay)
        fail_msg("scene %d, fault %d at event %u: the zone does not go", (int)scene, (int)fault,
                 at);
    owner_settle(&owner);
    end_check(fault);
    assert_int_equal(owner_status(&owner).trouble, SHOAL_OK);
    owner_close(&owner);
    return was_over;
}

static void drops_hold(enum scene scene)
{
    assert_false(drop_once(scene, NOTHING, 1));
    unsigned last = watch.events;
    assert_true(last > 5 && last < EVENTS_MAX);
    unsigned stride = 1 + last / 25;
    for (int fault = ANSWER_LOST; fault < FAULTS; fault++) {
        for (unsigned at = 1 + (unsigned)fault % stride; at <= last; at += stride)
            (void)drop_once(scene, (enum fault)fault, at);
    }
    print_message("scene %d: %u events\n", (int)scene, last);
}

/* The node of the only backup of a zone. */
static unsigned backup_of(uint64_t id)
{
    struct sh_zone record;
    assert_true(is_recorded(id, &record) && record.count == 1);
    return 2u + record.backups[0].nid.v - FAKE_OWNER - 1u;
}

/* Opens an owner two of whose zones are on different disks: one of a small chunk and a large one, and one of three. Returns the node
 * that has the first one; the second one is to go. */
static unsigned open_apart(uint64_t *small, uint64_t *large, uint64_t *others)
{
    struct sh_world_config config = calm;
    uint64_t number, next;
    owner.config.sparse_zones = UINT32_MAX;
    do {
        memset(&watch, 0, sizeof watch);
        config.seed++;
        owner_open(&owner, &config, 4, 4, 1);
        big = (uint32_t)(owner.zone_bytes / 17 * 4);
        owner_pass(&owner, 300 * FAKE_MS);
        *small = change(OWNER_NEW, 0, 4000);
        number = number_of_chunks(large, 1);
        (void)change(OWNER_RESIZE, *large, LARGE);
        next = number_of_chunks(others, 3);
        assert_true(next > number);
        if (backup_of(zone_numbered(number)) == backup_of(zone_numbered(next)))
            owner_close(&owner);
        else
            watch.zone = zone_numbered(next);
    } while (!watch.zone);
    watch.was_recorded = true;
    return backup_of(zone_numbered(number));
}

/* Begins a change of a large chunk, and stops in the middle of its pieces: its zone takes no other change until it goes on. */
static struct owner_op *large_begin(uint64_t local)
{
    struct owner_op *op = begin(OWNER_PUT, local, LARGE, SH_LEVEL_ASYNC);
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = owner_cid(local), .data = sh_bytes_make(op->bytes, LARGE)};
    assert_int_equal(sh_store_rewriting_begin(owner.store, &put, &op->rewriting), SHOAL_OK);
    op->waits = true; /* the owner's step leaves it alone */
    struct sh_zone_state zone;
    do {
        assert_false(sh_backup_rewriting_step(owner.backup, &op->write, op->rewriting));
        assert_true(sh_backup_zone_state(owner.backup, 0, &zone));
    } while (!zone.backups[0].pending_bytes);
    return op;
}

/* A chunk moves to a zone that then goes, and what its first zone has of it is to be removed there for good before its new zone may
 * go. has_room: the removal is told, and its backup does not answer; else there is no room to tell it. */
static void wait_for_the_former_zone(bool has_room)
{
    uint64_t small, large, others[4];
    unsigned node = open_apart(&small, &large, others);
    struct owner_op *op = has_room ? NULL : large_begin(large);
    if (has_room)
        sh_world_pause(owner.world, node);
    (void)change(OWNER_RESIZE, small, big);
    (void)change(OWNER_NEW, 0, 3 * big);
    (void)change(OWNER_REMOVE, small, 0);
    for (unsigned i = 0; i < 3; i++)
        (void)begin(OWNER_REMOVE, others[i], 0, SH_LEVEL_DURABLE);
    assert_false(events_pass(EVENTS_MAX));
    assert_false(watch.is_gone);
    if (has_room)
        sh_world_resume(owner.world, node);
    else
        op->waits = false;
    bool is_over = false;
    for (unsigned i = 0; i < 20 && !is_over; i++)
        is_over = events_pass(EVENTS_MAX);
    assert_true(is_over);
    owner_settle(&owner);
    owner_close(&owner);
}

static void the_former_zone_is_left_first(void **state)
{
    (void)state;
    wait_for_the_former_zone(false);
}

static void the_former_zone_is_durable_first(void **state)
{
    (void)state;
    wait_for_the_former_zone(true);
}

/* While no disk of a backup syncs, no chunk leaves its sparse zone: a crash could keep the image that came later, and lose what came with the one
 * before. */
static void nothing_moves_before_it_is_durable(void **state)
{
    (void)state;
    uint64_t first[4], second[3];
    open_one(SPARSE);
    watch.zone = zone_numbered(number_of_chunks(first, 4));
    (void)number_of_chunks(second, 3);
    for (unsigned i = 0; i < owner.backups_count; i++)
        owner.backups[i].is_stuck = true;
    for (unsigned i = 1; i < 4; i++)
        (void)begin(OWNER_REMOVE, first[i], 0, SH_LEVEL_ASYNC);
    (void)begin(OWNER_RESIZE, first[0], 100, SH_LEVEL_ASYNC);
    owner_pass(&owner, 1000 * FAKE_MS);
    assert_int_equal(owner_status(&owner).evacuated, 0);
    for (unsigned i = 0; i < owner.backups_count; i++)
        owner.backups[i].is_stuck = false;
    assert_true(events_pass(EVENTS_MAX));
    assert_int_equal(owner_status(&owner).evacuated, 1);
    owner_settle(&owner);
    owner_close(&owner);
}

static void a_plain_zone_goes(void **state)
{
    (void)state;
    drops_hold(PLAIN);
}

static void a_zone_that_was_moved_to_goes(void **state)
{
    (void)state;
    drops_hold(MOVED);
}

static void a_zone_that_was_moved_from_goes(void **state)
{
    (void)state;
    drops_hold(MOVED_OUT);
}

static void a_sparse_zone_goes(void **state)
{
    (void)state;
    drops_hold(SPARSE);
}

int main(void)
{
    test_logs_set();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_plain_zone_goes),
        cmocka_unit_test(a_zone_that_was_moved_to_goes),
        cmocka_unit_test(a_zone_that_was_moved_from_goes),
        cmocka_unit_test(a_sparse_zone_goes),
        cmocka_unit_test(nothing_moves_before_it_is_durable),
        cmocka_unit_test(the_former_zone_is_left_first),
        cmocka_unit_test(the_former_zone_is_durable_first),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
