/* A node that was started again asks the superpeers which zones of its former lives are still to be brought back, and which are lost (recover/former.h): until none
 * is, as far as operators have accepted that. */
#include "recover/former.h"

#include "ring/arcs.h"
#include "tests/backup_cases_int.h"

#define SECOND (1000 * FAKE_MS)
#define NODE 90 /* whose zones are asked for; nobody else has any to do with it */
#define LIFE (FAKE_LIFE + 5)

static struct {
    struct sh_former_zones former;
    unsigned woken, questions;
    bool is_refusing;
} own;

static void wake(void *arg)
{
    (void)arg;
    own.woken++;
}

/* Answers ZONES with all records of the shard that name the node. */
static void on_zones(void *arg, struct sh_msg_in *in)
{
    uint8_t page[8 * SH_ZONE_BYTES_MAX];
    struct sh_writer w = sh_writer_make(page, sizeof page);
    struct sh_reader r = in->payload;
    struct sh_zone zone = {.id = 0};
    struct sh_out out;
    if (sh_get8(&r) != SH_ZONES_OF_FORMER) {
        fake_on_zones(arg, in);
        return;
    }
    own.questions++;
    if (own.is_refusing) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    unsigned shard = sh_get8(&r);
    assert_int_equal(sh_get16(&r), NODE);
    while (sh_metadata_zone_next(owner.superpeer.metadata, shard, zone.id, &zone)) {
        if (sh_zone_creator(zone.id).v == NODE)
            sh_zone_put(&w, &zone);
    }
    assert_true(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - page);
    assert_int_equal(
        sh_msg_reply(in->msg, in->reply_to, in->type, SH_ZONES_ANSWER_BYTES + size, &out),
        SHOAL_OK);
    sh_put16(&out.w, 0);
    sh_put8(&out.w, 0);
    sh_put64(&out.w, zone.id);
    sh_put_raw(&out.w, sh_bytes_make(page, size));
    sh_msg_end(in->msg, &out);
}

/* A zone that the node has made. life: by which it is owned. */
static struct sh_zone zone_of(uint64_t number, uint64_t life)
{
    return (struct sh_zone){.id = sh_zone_id((shoal_nid){NODE}, number),
                            .owner = {NODE},
                            .life = life,
                            .incarnation = 1,
                            .version = 1,
                            .wanted = 2,
                            .count = 1,
                            .backups = {{{FAKE_OWNER + 1}, 7}}};
}

static void record_apply(uint8_t kind, struct sh_zone *zone)
{
    struct sh_metadata *metadata = owner.superpeer.metadata;
    const struct sh_metadata_update update = {.kind = kind,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = zone->owner,
                                              .sequence = zone->life,
                                              .zone = *zone};
    unsigned shard = sh_zone_shard(zone->id);
    if (!sh_metadata_incarnation(metadata, shard))
        sh_metadata_begin(metadata, shard, 1, true);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    zone->version += kind == SH_METADATA_ZONE_CHANGE;
}

static void pass(uint64_t ns)
{
    const struct sh_clock clock = sh_world_env(owner.world, 1)->clock;
    for (uint64_t until_ns = sh_now(&clock) + ns; sh_now(&clock) < until_ns;) {
        sh_former_zones_step(&own.former, sh_now(&clock));
        owner_pass(&owner, 5 * FAKE_MS);
    }
}

static bool is_over(void)
{
    return sh_former_zones_are_over(&own.former);
}

static bool is_lost(void)
{
    return sh_former_zones_are_lost(&own.former);
}

static int setup(void **state)
{
    (void)state;
    memset(&own, 0, sizeof own);
    owner_open(&owner, &calm, 1, 1, 1);
    sh_msg_handler_set(owner.superpeer.msg, SH_CLUSTER_ZONES, SH_MSG_INLINE, on_zones,
                       &owner.superpeer);
    own.former = (struct sh_former_zones){.zones = owner.zones,
                                          .clock = sh_world_env(owner.world, 1)->clock,
                                          .nid = {NODE},
                                          .life = LIFE,
                                          .wake = wake};
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    owner_close(&owner);
    return 0;
}

/* Without zones of former lives it asks once. */
static void nothing_is_left(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(1, LIFE); /* its own, of this life */
    record_apply(SH_METADATA_ZONE_NEW, &zone);
    assert_false(is_over());
    pass(SECOND);
    assert_true(is_over() && !is_lost() && own.woken);
    unsigned questions = own.questions;
    pass(60 * SECOND);
    assert_int_equal(own.questions, questions);
    assert_true(sh_former_zones_due_ns(&own.former) == SH_NEVER);
}

static void a_zone_is_brought_back(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(1, FAKE_LIFE);
    record_apply(SH_METADATA_ZONE_NEW, &zone);
    pass(3 * SECOND);
    assert_false(is_over() || is_lost());
    record_apply(SH_METADATA_ZONE_REMOVE, &zone);
    pass(SECOND);
    assert_true(is_over() && !is_lost());
}

/* It asks now and then whether the loss is accepted by now, and goes by what it was told last meanwhile. */
static void a_loss_is_accepted(void **state)
{
    (void)state;
    struct sh_zone lost[] = {zone_of(1, FAKE_LIFE), zone_of(2, FAKE_LIFE)};
    for (unsigned i = 0; i < 2; i++) {
        lost[i].flags = SH_ZONE_LOST;
        record_apply(SH_METADATA_ZONE_NEW, &lost[i]);
    }
    pass(SECOND);
    assert_true(is_over() && is_lost());
    own.questions = 0;
    pass(60 * SECOND);
    assert_in_range(own.questions, 5 * SH_SHARDS, 20 * SH_SHARDS);
    record_apply(SH_METADATA_ZONE_REMOVE, &lost[0]);
    pass(20 * SECOND);
    assert_true(is_over() && is_lost());
    own.is_refusing = true;
    record_apply(SH_METADATA_ZONE_REMOVE, &lost[1]);
    pass(20 * SECOND);
    assert_true(is_over() && is_lost());
    own.is_refusing = false;
    pass(20 * SECOND);
    assert_true(is_over() && !is_lost());
    assert_true(sh_former_zones_due_ns(&own.former) == SH_NEVER);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(nothing_is_left),
        CASE(a_zone_is_brought_back),
        CASE(a_loss_is_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
