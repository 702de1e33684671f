/* What is not said to be lost any more: zones whose loss an operator has accepted, and zones that never had a backup. */
#include "base/err.h"
#include "superpeer/superpeer_recover_test.h"

/* --- Asking ------------------------------------------------------------------------------------ */

static struct {
    struct sh_request request;
    unsigned done;
    enum shoal_err err, result;
    uint16_t redirect;
} accepted;

static void on_accepted(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    accepted.done++;
    accepted.err = err;
    if (err)
        return;
    accepted.redirect = sh_get16(payload);
    accepted.result = sh_err_get(sh_get16(payload));
    assert_true(sh_reader_done(payload));
}

static void bytes_ask(const uint8_t *bytes, size_t size)
{
    struct sh_out out;
    memset(&accepted, 0, sizeof accepted);
    accepted.request = (struct sh_request){.done = on_accepted, .timeout_ns = 60 * S};
    assert_int_equal(sh_msg_request(asker, (shoal_nid){OWN}, SH_CLUSTER_ACCEPT_LOSS, size,
                                    &accepted.request, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(asker, &out);
    carry();
}

static void accept_begin(uint64_t id, uint32_t version)
{
    uint8_t bytes[SH_ACCEPT_LOSS_BYTES];
    sh_store64(bytes, id);
    sh_store32(bytes + 8, version);
    bytes_ask(bytes, sizeof bytes);
}

static enum shoal_err accept_end(void)
{
    for (unsigned i = 0; i < 200 && !accepted.done; i++)
        (void)run_for(10 * MS);
    assert_int_equal(accepted.done, 1);
    assert_true(!accepted.err && !accepted.redirect);
    (void)run_for(10 * MS);
    return accepted.result;
}

/* What comes of accepting the loss of the first peer's zone in that version. */
static enum shoal_err accept(uint64_t number, uint32_t version)
{
    accept_begin(sh_zone_id(peers[0], number), version);
    return accept_end();
}

static bool is_recorded(uint64_t number)
{
    struct sh_zone zone;
    return sh_metadata_zone(superpeer.ring->metadata, sh_zone_id(peers[0], number), &zone);
}

static uint32_t zones_that_name(shoal_nid nid)
{
    return sh_metadata_refs(superpeer.ring->metadata, sh_arc_shard(peers[0]), nid).zones;
}

/* So many zones with one backup, which has no replica, of an owner that fails. */
static void lose(unsigned count)
{
    for (unsigned i = 1; i <= count; i++)
        put(i, 1);
    nodes[0].err = SHOAL_ENONAME;
    fails(peers[0]);
    (void)run_for(S);
    for (unsigned i = 1; i <= count; i++)
        assert_int_equal(record_of(i).flags, SH_ZONE_LOST);
    assert_int_equal(lookup(), SHOAL_ELOST);
}

/* --- Losses that are accepted ------------------------------------------------------------------ */

static void an_accepted_loss_is_told_no_more(void **state)
{
    (void)state;
    lose(2);
    assert_int_equal(accept(1, record_of(1).version), SHOAL_OK);
    assert_false(is_recorded(1));
    assert_int_equal(lookup(), SHOAL_ELOST); /* the other one may have had the chunk */
    assert_int_equal(accept(2, record_of(2).version), SHOAL_OK);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    assert_true(!zones_that_name(peers[0]) && !zones_that_name(nodes[0].nid));
    assert_true(is_idle());
}

static void a_loss_is_accepted_twice(void **state)
{
    (void)state;
    lose(1);
    uint32_t version = record_of(1).version;
    accept_begin(sh_zone_id(peers[0], 1), version);
    assert_int_equal(accept_end(), SHOAL_OK);
    assert_int_equal(accept(1, version), SHOAL_OK);
    assert_int_equal(accept(1, version + 1), SHOAL_OK);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

/* A zone stays that is with its owner, is asked about, waits for a disk, or is being brought back. */
static void what_is_not_lost_stays(void **state)
{
    (void)state;
    put(1, 2);
    nodes[0].flags = nodes[1].flags = 0;
    assert_int_equal(accept(1, 1), SHOAL_EINVAL);
    nodes[1].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(accept(1, 1), SHOAL_EINVAL);
    fails(nodes[0].nid);
    (void)run_for(S);
    assert_int_equal(accept(1, 1), SHOAL_EINVAL);
    disk_lost(&nodes[0]);
    nodes[1].err = SHOAL_OK;
    (void)run_for(S);
    assert_true(is_with(1, &nodes[1]));
    assert_int_equal(accept(1, record_of(1).version), SHOAL_EINVAL);
    assert_true(is_with(1, &nodes[1]));
    recovered(1);
    assert_int_equal(accept(1, record_of(1).version), SHOAL_EINVAL);
    assert_true(is_recorded(1));
}

static void what_is_no_loss(void **state)
{
    (void)state;
    uint8_t bytes[SH_ACCEPT_LOSS_BYTES + 1] = {0};
    lose(1);
    uint32_t version = record_of(1).version;
    assert_int_equal(accept(1, version - 1), SHOAL_EDIFFERS);
    assert_int_equal(accept(1, version + 1), SHOAL_EDIFFERS);
    assert_int_equal(accept(2, 1), SHOAL_ENONAME);
    const struct {
        uint64_t id;
        uint32_t version;
        size_t size;
    } bad[] = {{sh_zone_id(peers[0], 1), version, SH_ACCEPT_LOSS_BYTES - 1},
               {sh_zone_id(peers[0], 1), version, SH_ACCEPT_LOSS_BYTES + 1},
               {sh_zone_id(peers[0], 1), 0, SH_ACCEPT_LOSS_BYTES},
               {sh_zone_id(peers[0], 0), version, SH_ACCEPT_LOSS_BYTES},
               {sh_zone_id((shoal_nid){OTHER}, 1), version, SH_ACCEPT_LOSS_BYTES},
               {0, 0, 0}};
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        sh_store64(bytes, bad[i].id);
        sh_store32(bytes + 8, bad[i].version);
        bytes_ask(bytes, bad[i].size);
        assert_true(accepted.done == 1 && accepted.err == SHOAL_EPROTO);
    }
    assert_int_equal(record_of(1).version, version);
}

/* The record is looked at again when the update is carried out: another one may have come before. */
static void a_record_that_changes_meanwhile_stays(void **state)
{
    (void)state;
    lose(1);
    struct sh_zone zone = record_of(1);
    accept_begin(zone.id, zone.version); /* ordered, and carried out in the next step */
    assert_int_equal(accepted.done, 0);
    zone.flags = 0;
    zone_change(&zone);
    assert_int_equal(accept_end(), SHOAL_EDIFFERS);
    assert_true(is_recorded(1));
}

/* A superpeer that does not have the shard says which one does. */
static void the_owner_of_the_shard_is_asked(void **state)
{
    (void)state;
    lose(1);
    struct sh_zone zone = record_of(1);
    shard_owner_set(sh_zone_shard(zone.id), OTHER);
    (void)run_for(100 * MS);
    accept_begin(zone.id, zone.version);
    assert_int_equal(accepted.done, 1);
    assert_true(!accepted.err && accepted.redirect == OTHER);
    assert_true(is_recorded(1));
}

static struct {
    unsigned count;
    bool has_lost; /* the last one */
} heard;

static void on_former_there(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    heard.count++;
    heard.has_lost = sh_reader_left(&in->payload) > SH_FORMER_BYTES;
}

/* Lookups of chunks in other superpeers' shards go by it as well. */
static void other_superpeers_hear_of_an_accepted_loss(void **state)
{
    (void)state;
    sh_msg_handler_set(other, SH_CLUSTER_FORMER, SH_MSG_INLINE, on_former_there, NULL);
    lose(1);
    assert_true(heard.has_lost);
    heard.count = 0;
    assert_int_equal(accept(1, record_of(1).version), SHOAL_OK);
    (void)run_for(20 * MS); /* sooner than what was told is told again */
    assert_true(heard.count && !heard.has_lost);
}

/* --- Zones that never had a backup ------------------------------------------------------------- */

/* Nothing in it was acknowledged as replicated. */
static void a_zone_that_never_had_a_backup_is_not_lost(void **state)
{
    (void)state;
    put(1, 0);
    put(2, 2);
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_false(is_recorded(1));
    assert_int_equal(lookup(), SHOAL_EFAILED); /* the other one may have the chunk */
    assert_true(is_with(2, &nodes[0]) || is_with(2, &nodes[1]));
    recovered(2);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    assert_true(is_idle());
}

static void it_is_the_owners_only_zone(void **state)
{
    (void)state;
    put(1, 0);
    (void)run_for(S);
    assert_true(is_recorded(1)); /* while its owner is up */
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_false(is_recorded(1));
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    assert_int_equal(zones_that_name(peers[0]), 0);
    assert_true(is_idle());
}

/* What it had acknowledged may be lost. */
static void a_zone_that_had_a_backup_is_lost(void **state)
{
    (void)state;
    put(1, 1);
    struct sh_zone zone = record_of(1);
    zone.count = 0;
    zone_change(&zone);
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(record_of(1).flags, SH_ZONE_LOST);
    assert_int_equal(lookup(), SHOAL_ELOST);
}

/* A record out of an old copy of the shard may lack the change that named the backups. */
static void an_old_record_may_have_had_a_backup(void **state)
{
    (void)state;
    put(1, 0);
    known_set(false);
    known_set(true);
    assert_int_equal(record_of(1).flags, SH_ZONE_OLD);
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(record_of(1).flags, SH_ZONE_LOST);
}

static int losses_setup(void **state)
{
    (void)recover_setup(state);
    sh_superpeer_loss_handlers(&superpeer);
    memset(&heard, 0, sizeof heard);
    return 0;
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, losses_setup, recover_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(an_accepted_loss_is_told_no_more),
        CASE(a_loss_is_accepted_twice),
        CASE(what_is_not_lost_stays),
        CASE(what_is_no_loss),
        CASE(a_record_that_changes_meanwhile_stays),
        CASE(the_owner_of_the_shard_is_asked),
        CASE(other_superpeers_hear_of_an_accepted_loss),
        CASE(a_zone_that_never_had_a_backup_is_not_lost),
        CASE(it_is_the_owners_only_zone),
        CASE(a_zone_that_had_a_backup_is_lost),
        CASE(an_old_record_may_have_had_a_backup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
