/* Replicas of owners whose life is over: what PREPARE says of them, and who has them while a zone is brought back. */
#include "backup/keeper_case_test.h"
#include "cluster/proto.h"

/* --- PREPARE ----------------------------------------------------------------------------------- */

struct prepared {
    uint64_t end;
    bool is_whole;
};

static enum shoal_err prepare_once(unsigned zone, struct prepared *out)
{
    uint8_t bytes[SH_PREPARE_BYTES];
    struct rig_answer answer;
    sh_store64(bytes, rig_zone(zone));
    sh_store64(bytes + 8, rig.made_life);
    rig_ask(other, SH_CLUSTER_PREPARE, sh_bytes_make(bytes, sizeof bytes), &answer);
    rig_settle(&rig);
    assert_true(answer.is_over);
    if (answer.err)
        return answer.err;
    assert_int_equal(answer.size, SH_PREPARED_BYTES);
    assert_int_equal(sh_load64(answer.bytes + 8), RIG_DISK);
    uint8_t flags = answer.bytes[16];
    assert_true(!(flags & ~SH_PREPARED_WHOLE));
    *out = (struct prepared){sh_load64(answer.bytes), (flags & SH_PREPARED_WHOLE) != 0};
    return SHOAL_OK;
}

/* Asks once; the keeper answers at once. */
static void prepare_is(unsigned zone, uint64_t end, bool is_whole)
{
    struct prepared prepared;
    assert_int_equal(prepare_once(zone, &prepared), SHOAL_OK);
    assert_int_equal(prepared.end, end);
    assert_int_equal(prepared.is_whole, is_whole);
}

static void prepare_fails(unsigned zone, enum shoal_err err)
{
    struct prepared prepared;
    assert_int_equal(prepare_once(zone, &prepared), err);
}

/* The same of a replica that is loaded for it. */
static void prepare_loads(unsigned zone, uint64_t end)
{
    prepare_fails(zone, SHOAL_EBUSY);
    rig_pass(&rig, 10 * RIG_MS);
    prepare_is(zone, end, false);
}

static void owner_fail(void)
{
    rig.is_over[0] = true;
    sh_keeper_view_changed(rig.keeper);
    rig_settle(&rig);
}

static void again(void)
{
    rig_stop(&rig);
    rig_start(&rig);
}

/* A zone with a stream of so many images. */
static void make(unsigned zone, unsigned count, uint8_t wish)
{
    assert_int_equal(open_anew(owner, zone, 1, 1), SHOAL_OK);
    send_images(zone, 1, count, wish);
    rig_pass(&rig, 5 * RIG_MS);
    assert_int_equal(told(zone)->next, count + 1);
}

static void test_prepare_of_an_open_one(void **state)
{
    (void)state;
    make(0, 3, SH_REPLICATION_ACK);
    assert_int_equal(rig.views_wanted, 0);
    prepare_fails(0, SHOAL_EBUSY); /* its owner is up */
    assert_int_equal(rig.views_wanted, 1);
    rig.has_view = false;
    prepare_fails(0, SHOAL_EBUSY);
    assert_int_equal(rig.views_wanted, 2);
    rig.has_view = true;
    rig.is_over[0] = true; /* by the view that came just now */
    prepare_is(0, 4, true);
    assert_int_equal(rig.views_wanted, 2);
    owner_fail();
    prepare_is(0, 4, true);
    send_images(0, 4, 1, SH_REPLICATION_NONE);
    prepare_is(0, 4, true);
}

/* As long as the node's next process might live the same life, and have less. */
static void test_prepare_of_an_unconfirmed_life(void **state)
{
    (void)state;
    make(0, 3, SH_REPLICATION_ACK);
    owner_fail();
    rig.is_unconfirmed = true;
    prepare_fails(0, SHOAL_EBUSY);
    prepare_fails(1, SHOAL_EBUSY); /* of which it has nothing */
    rig.is_unconfirmed = false;
    prepare_is(0, 4, true);
}

static void test_prepare_of_a_malformed_request(void **state)
{
    (void)state;
    struct rig_answer answer;
    uint8_t bytes[SH_PREPARE_BYTES + 1] = {0};
    for (size_t size = SH_PREPARE_BYTES - 1; size <= sizeof bytes; size += 2) {
        rig_ask(other, SH_CLUSTER_PREPARE, sh_bytes_make(bytes, size), &answer);
        rig_settle(&rig);
        assert_int_equal(answer.err, SHOAL_EPROTO);
    }
}

/* A stream that was lost for another reason than the log leaves all that was acknowledged. */
static void test_prepare_of_a_lost_one(void **state)
{
    (void)state;
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 1);
    uint64_t next;
    uint32_t part;
    make(0, 2, SH_REPLICATION_ACK);
    for (unsigned i = 0; i < 2; i++) {
        begin(0, 3, 0, SH_REPLICATION_ACK);
        sh_put8(&append.w, 9);
        send();
        assert_int_equal(open_on(&on, owner, &next, &part), i ? SHOAL_EPROTO : SHOAL_OK);
    }
    make(1, 2, SH_REPLICATION_ACK);
    sh_keeper_damaged(rig.keeper, sh_replog_zone_find(rig.log, rig_zone(1)));
    owner_fail();
    assert_int_equal(status().lost, 2);
    prepare_is(0, 3, true);
    prepare_fails(1, SHOAL_ECORRUPT);
}

static void test_prepare_after_a_start(void **state)
{
    (void)state;
    make(0, 3, SH_REPLICATION_DURABLE);
    send_images(0, 4, 2, SH_REPLICATION_ACK); /* which are lost */
    make(1, 1, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    send_images(0, 6, 2, SH_REPLICATION_ACK);
    again();
    owner_fail();
    prepare_fails(0, SHOAL_EBUSY); /* which begins to load it */
    prepare_fails(1, SHOAL_EBUSY);
    rig_pass(&rig, 10 * RIG_MS);
    prepare_is(0, 6, false);
    prepare_is(1, 2, false);
}

/* Nor does the question keep an owner out that has written to it last, as one that is still to bring it back. */
static void test_prepare_keeps_nobody_out(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    assert_int_equal(open_anew(owner, 0, 3, 1), SHOAL_OK);
    rig_append_begin(&append, 0, 3, 1, 0, SH_REPLICATION_DURABLE);
    put_image(1, 64, 1);
    send();
    rig_pass(&rig, 200 * RIG_MS);
    again();
    prepare_loads(0, 2);
    struct sh_replication_open open = rig_open_of(owner, 0, 2, 1);
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_EFENCED);
    open = rig_open_of(owner, 0, 3, 1);
    assert_int_equal(open_on(&open, owner, &next, &part), SHOAL_OK);
    assert_int_equal(next, 2);
}

static void test_prepare_of_none(void **state)
{
    (void)state;
    prepare_is(0, 1, false); /* as far as this disk has it, nothing was ever written to it */
    rig.made_life = owner->life;
    prepare_is(0, 1, false); /* that life may have sent it to a process before this one */
    rig.is_younger = true;
    prepare_is(0, 1, true); /* it has not: nothing is acknowledged */
    rig.made_life = 0;
    prepare_is(0, 1, false);
    assert_int_equal(status().zones, 0);
    make(1, 2, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    rig.is_stalled = true;
    uint8_t bytes[SH_REPLICATION_CLOSE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_replication_close_put(&w, &(struct sh_replication_close){rig_zone(1), 1, owner->life});
    struct rig_answer closed;
    rig_ask(owner, SH_REPLICATION_CLOSE, sh_bytes_make(bytes, sizeof bytes), &closed);
    rig_settle(&rig);
    owner_fail();
    prepare_fails(1, SHOAL_EBUSY); /* it is being dropped */
    rig.is_stalled = false;
    rig_settle(&rig);
    assert_true(closed.is_over && !closed.err);
    prepare_is(1, 1, false);
    /* The node's own. */
    const struct sh_replog_zone_config own = {
        .id = rig_zone(2), .owner = RIG_NID, .incarnation = 1, .first = 1, .bytes_max = 1 << 20};
    struct sh_replog_zone *zone;
    assert_int_equal(sh_replog_zone_add(rig.log, &own, &zone), SHOAL_OK);
    prepare_fails(2, SHOAL_ENONAME);
}

static void test_prepare_where_no_log_is(void **state)
{
    (void)state;
    rig_stop(&rig);
    struct sh_keeper_config config = rig_keeper_config(&rig);
    config.log = NULL;
    config.disk_id = 0;
    assert_int_equal(sh_keeper_create(&config, &rig.keeper), SHOAL_OK);
    prepare_fails(0, SHOAL_EBUSY);
    sh_keeper_destroy(rig.keeper);
    rig.keeper = NULL;
    rig_start(&rig);
}

/* --- Taking ------------------------------------------------------------------------------------ */

struct taken {
    unsigned calls;
    struct sh_replog_zone *zone;
    uint64_t end;
    enum shoal_err err;
};

static void on_taken(void *arg, struct sh_replog_zone *zone, uint64_t end, enum shoal_err err)
{
    struct taken *taken = arg;
    taken->calls++;
    taken->zone = zone;
    taken->end = end;
    taken->err = err;
}

static enum shoal_err take_begin(unsigned zone, struct taken *taken)
{
    *taken = (struct taken){.calls = 0};
    return sh_keeper_take(rig.keeper, rig_zone(zone), on_taken, taken);
}

static struct taken take(unsigned zone)
{
    struct taken taken;
    assert_int_equal(take_begin(zone, &taken), SHOAL_OK);
    for (unsigned i = 0; !taken.calls; i++) {
        assert_true(i < 100);
        rig_pass(&rig, 10 * RIG_MS);
    }
    assert_true(taken.calls == 1 && !taken.err);
    return taken;
}

/* A new owner's OPEN, which goes on from what it has taken over. */
static struct sh_replication_open open_next(unsigned zone, uint64_t first, uint64_t begun)
{
    struct sh_replication_open open = rig_open_of(other, zone, 2, first);
    open.since = 2;
    open.begun = begun;
    return open;
}

static enum shoal_err ask_once(struct rig_owner *by, const struct sh_replication_open *open)
{
    struct rig_answer answer;
    rig_open_ask(by, open, &answer);
    rig_settle(&rig);
    assert_true(answer.is_over);
    return answer.err;
}

/* The new owner sends images of 64 bytes. */
static void next_send(unsigned zone, uint64_t number, unsigned count, uint8_t wish)
{
    rig_append_begin(&append, zone, 2, number, 0, wish);
    for (unsigned i = 0; i < count; i++)
        put_image((unsigned)number + i, 64, (uint8_t)(number + i));
    rig_append_send(other, &append);
    rig_pass(&rig, 5 * RIG_MS);
}

static void test_take_of_an_open_one(void **state)
{
    (void)state;
    struct taken taken, second;
    const struct sh_replication_open next_open = open_next(0, 1, 5);
    make(0, 4, SH_REPLICATION_NONE);
    begin(0, 5, 0, SH_REPLICATION_NONE); /* a chunk that is not complete */
    put_piece(100, 0, 4, 500, 1);
    send();
    assert_int_equal(take_begin(0, &taken), SHOAL_EBUSY); /* its owner is up */
    owner_fail();
    assert_int_equal(take_begin(0, &taken), SHOAL_OK);
    assert_int_equal(status().open, 0);
    /* It is sealed: nobody else gets it meanwhile, nor after that. */
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(taken.calls, i);
        rig.is_stalled = true;
        prepare_fails(0, SHOAL_EBUSY);
        assert_int_equal(ask_once(other, &next_open), SHOAL_EBUSY);
        assert_int_equal(rig_zone_close(other, 0, 2), SHOAL_EBUSY);
        assert_int_equal(rig_zone_close(other, 0, 1), SHOAL_EFENCED);
        assert_int_equal(take_begin(0, &second), SHOAL_EBUSY);
        assert_int_equal(second.calls, 0);
        send_images(0, 5, 1, SH_REPLICATION_NONE);
        assert_int_equal(told(0)->state, SH_REPLICATION_GONE);
        rig.is_stalled = false;
        rig_pass(&rig, 300 * RIG_MS);
    }
    assert_true(taken.calls == 1 && !taken.err && taken.end == 5);
    assert_ptr_equal(taken.zone, sh_replog_zone_find(rig.log, rig_zone(0)));
    assert_false(sh_replog_zone_known(taken.zone).is_added);
    const struct found *found = read_back(0);
    assert_true(found->end == 5 && found->count == 4);
}

/* Whoever took it could not bring the zone back: the next one finds it as it was. */
static void test_give_back(void **state)
{
    (void)state;
    struct taken taken;
    uint64_t next;
    uint32_t part;
    make(0, 4, SH_REPLICATION_NONE);
    owner_fail();
    (void)take(0);
    sh_keeper_give_back(rig.keeper, rig_zone(0));
    prepare_is(0, 5, true);
    assert_int_equal(take_begin(0, &taken), SHOAL_OK);
    assert_true(taken.calls == 1 && !taken.err && taken.end == 5 && taken.zone);
    prepare_fails(0, SHOAL_EBUSY);
    sh_keeper_give_back(rig.keeper, rig_zone(0));
    prepare_is(0, 5, true);
    /* Another node brings it back. */
    const struct sh_replication_open old = rig_open_of(owner, 0, 1, 1);
    assert_int_equal(ask_once(owner, &old), SHOAL_EFENCED);
    const struct sh_replication_open open = open_next(0, 3, 8);
    assert_int_equal(ask_once(other, &open), SHOAL_EBUSY); /* it is loaded */
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_OK);
    assert_true(next == 5 && !part);
    next_send(0, 5, 3, SH_REPLICATION_DURABLE);
    assert_int_equal(other->told[0].last.next, 8);
    const struct found *found = read_back(0);
    assert_true(found->end == 8 && found->count == 7);
}

/* The same of one that is found after a start: it is not known whether it is whole. */
static void test_give_back_of_a_found_one(void **state)
{
    (void)state;
    make(0, 4, SH_REPLICATION_DURABLE);
    make(1, 2, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    again();
    owner_fail();
    struct taken taken = take(0); /* it was not loaded, so its end is not known yet */
    assert_true(taken.zone && !taken.end);
    prepare_fails(0, SHOAL_EBUSY);
    prepare_loads(1, 3);
    assert_int_equal(take(1).end, 3);
    for (unsigned i = 0; i < 2; i++)
        sh_keeper_give_back(rig.keeper, rig_zone(i));
    assert_int_equal(status().zones, 0);
    prepare_loads(0, 5);
    prepare_loads(1, 3);
}

static void test_take_where_it_is_busy(void **state)
{
    (void)state;
    struct taken taken;
    make(0, 4, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    again();
    owner_fail();
    rig.is_stalled = true;
    prepare_fails(0, SHOAL_EBUSY);
    assert_int_equal(take_begin(0, &taken), SHOAL_EBUSY); /* it is loading */
    rig.is_stalled = false;
    rig_pass(&rig, 10 * RIG_MS);
    (void)take(0);
    assert_int_equal(sh_keeper_taken_drop(rig.keeper, rig_zone(0)), SHOAL_OK);
    assert_int_equal(take_begin(0, &taken), SHOAL_EBUSY); /* it is dropped */
    prepare_fails(0, SHOAL_EBUSY);
    rig_pass(&rig, 10 * RIG_MS);
    assert_int_equal(taken.calls, 0);
    assert_null(sh_replog_zone_find(rig.log, rig_zone(0)));
    assert_int_equal(status().zones, 0);
    prepare_is(0, 1, false);
    again();
    prepare_is(0, 1, false);
}

/* Of a zone of which nothing is in the log nothing is handed over, and it can be dropped. */
static void test_take_of_an_empty_one(void **state)
{
    (void)state;
    assert_int_equal(open_anew(owner, 0, 1, 1), SHOAL_OK);
    owner_fail();
    for (unsigned i = 0; i < 2; i++) {
        prepare_is(i, 1, !i);
        struct taken taken = take(i);
        assert_true(!taken.zone && taken.end == 1);
        prepare_fails(i, SHOAL_EBUSY);
        sh_keeper_give_back(rig.keeper, rig_zone(i));
        prepare_is(i, 1, !i);
        (void)take(i);
        assert_int_equal(sh_keeper_taken_drop(rig.keeper, rig_zone(i)), SHOAL_OK);
        rig_pass(&rig, 10 * RIG_MS);
        prepare_is(i, 1, false);
    }
    assert_int_equal(status().zones, 0);
    /* The zone may come here again. */
    assert_int_equal(open_anew(other, 0, 2, 7), SHOAL_OK);
}

static void test_take_of_what_is_not_to_be_had(void **state)
{
    (void)state;
    struct taken taken;
    make(0, 2, SH_REPLICATION_ACK);
    sh_keeper_damaged(rig.keeper, sh_replog_zone_find(rig.log, rig_zone(0)));
    owner_fail();
    assert_int_equal(take_begin(0, &taken), SHOAL_ECORRUPT);
    const struct sh_replog_zone_config own = {
        .id = rig_zone(2), .owner = RIG_NID, .incarnation = 1, .first = 1, .bytes_max = 1 << 20};
    struct sh_replog_zone *zone;
    assert_int_equal(sh_replog_zone_add(rig.log, &own, &zone), SHOAL_OK);
    assert_int_equal(take_begin(2, &taken), SHOAL_ENONAME);
    assert_int_equal(taken.calls, 0);
}

/* A sealed one is another owner's to drop. */
static void test_close_of_a_sealed_one(void **state)
{
    (void)state;
    make(0, 2, SH_REPLICATION_ACK);
    assert_int_equal(open_anew(owner, 1, 1, 1), SHOAL_OK);
    owner_fail();
    for (unsigned i = 0; i < 2; i++) {
        (void)take(i);
        sh_keeper_give_back(rig.keeper, rig_zone(i));
        assert_int_equal(rig_zone_close(owner, i, 1), SHOAL_EFENCED);
        assert_int_equal(rig_zone_close(other, i, 1), SHOAL_EFENCED);
        assert_int_equal(rig_zone_close(other, i, 2), SHOAL_OK);
        assert_null(sh_replog_zone_find(rig.log, rig_zone(i)));
        prepare_is(i, 1, false);
    }
}

/* --- The end, and the log's ---------------------------------------------------------------------- */

static void test_the_end_while_sealing(void **state)
{
    (void)state;
    struct taken taken;
    make(0, 3, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    send_images(0, 4, 2, SH_REPLICATION_NONE);
    owner_fail();
    rig.is_stalled = true;
    assert_int_equal(take_begin(0, &taken), SHOAL_OK);
    again();
    rig.is_stalled = false;
    assert_int_equal(taken.calls, 0);
    prepare_loads(0, 4);
}

/* A disk all of whose writes fail. */
static struct sh_disk_ops failing;
static const struct sh_disk_ops *working;
static struct sh_disk_op *failed[64];
static unsigned failed_count;

static enum shoal_err fail_submit(struct sh_disk *disk, struct sh_disk_op *op)
{
    if (op->kind == SH_DISK_READ)
        return working->submit(disk, op);
    assert_true(failed_count < 64);
    failed[failed_count++] = op;
    return SHOAL_OK;
}

static unsigned fail_poll(struct sh_disk *disk, bool wait)
{
    unsigned done = working->poll(disk, false);
    (void)wait;
    while (failed_count) {
        struct sh_disk_op *op = failed[--failed_count];
        op->err = SHOAL_EIO;
        op->done_bytes = 0;
        op->done(op);
        done++;
    }
    return done;
}

static void test_trouble_while_sealing(void **state)
{
    (void)state;
    struct taken taken, late;
    make(0, 3, SH_REPLICATION_NONE);
    make(1, 3, SH_REPLICATION_NONE);
    owner_fail();
    assert_int_equal(take_begin(0, &taken), SHOAL_OK);
    working = rig.disk->ops;
    failing = *working;
    failing.submit = fail_submit;
    failing.poll = fail_poll;
    rig.disk->ops = &failing;
    rig_pass(&rig, 300 * RIG_MS);
    assert_true(taken.calls == 1 && taken.err == SHOAL_EIO && !taken.zone);
    assert_int_equal(status().zones, 1);
    prepare_fails(0, SHOAL_EIO);
    prepare_fails(1, SHOAL_EIO);
    assert_int_equal(take_begin(0, &late), SHOAL_EIO);
    assert_int_equal(take_begin(1, &late), SHOAL_EIO);
    rig_stop(&rig);
    rig.disk->ops = working;
    rig_start(&rig);
}

/* --- Backups that do not bring it back ------------------------------------------------------------ */

/* After PREPARE the next owner goes on where the replica ends, and nothing is loaded. */
static void test_the_next_owner_goes_on(void **state)
{
    (void)state;
    struct sh_replication_open open = open_next(0, 3, 8);
    make(0, 4, SH_REPLICATION_ACK);
    owner_fail();
    prepare_is(0, 5, true);
    open.begun = 4; /* what the replica has beyond was never acknowledged */
    assert_int_equal(ask_once(other, &open), SHOAL_EDIFFERS);
    open.begun = open.first = 6; /* what it lacks is not to be had */
    assert_int_equal(ask_once(other, &open), SHOAL_EDIFFERS);
    open = open_next(0, 3, 8);
    assert_int_equal(ask_once(other, &open), SHOAL_OK);
    prepare_fails(0, SHOAL_EBUSY);
    next_send(0, 5, 1, SH_REPLICATION_ACK);
    assert_int_equal(other->told[0].last.next, 6);
    /* That one fails, too: what the first one acknowledged is still there. */
    rig.is_over[1] = true;
    sh_keeper_view_changed(rig.keeper);
    prepare_is(0, 6, true);
}

/* A replica that was found after a start lacks what was acknowledged, until an owner has sent it. */
static void test_when_a_found_one_is_whole(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    make(0, 3, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    again();
    owner_fail();
    prepare_loads(0, 4);
    struct sh_replication_open open = open_next(0, 3, 8);
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_OK);
    assert_int_equal(next, 4);
    for (uint64_t number = 4; number <= 8; number++) {
        rig.is_over[1] = true;
        prepare_is(0, number, number >= 8);
        rig.is_over[1] = false;
        next_send(0, number, 1, SH_REPLICATION_ACK);
    }
    rig.is_over[1] = true;
    struct taken taken = take(0);
    assert_int_equal(taken.end, 9);
    sh_keeper_give_back(rig.keeper, rig_zone(0));
    prepare_is(0, 9, true);
}

/* The same of one that is handed over in between, and of one to which nothing had been written. */
static void test_a_part_is_not_whole(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    const struct sh_replication_open open = open_next(0, 1, 8);
    assert_int_equal(open_on(&open, other, &next, &part), SHOAL_OK);
    next_send(0, 1, 3, SH_REPLICATION_DURABLE);
    rig.is_over[1] = true;
    prepare_is(0, 4, false);
    assert_int_equal(take(0).end, 4);
    sh_keeper_give_back(rig.keeper, rig_zone(0));
    prepare_loads(0, 4);
}

/* An owner that has made the zone has what it acknowledged, or can send it. */
static void test_a_replica_of_its_maker_is_whole(void **state)
{
    (void)state;
    uint64_t next;
    uint32_t part;
    make(0, 3, SH_REPLICATION_DURABLE);
    rig_pass(&rig, 200 * RIG_MS);
    again();
    const struct sh_replication_open on = rig_open_of(owner, 0, 1, 4);
    assert_int_equal(open_on(&on, owner, &next, &part), SHOAL_OK);
    assert_int_equal(open_anew(owner, 1, 1, 100), SHOAL_OK);
    owner_fail();
    prepare_is(0, 4, true);
    prepare_is(1, 100, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_prepare_of_an_open_one),
        TEST(test_prepare_of_an_unconfirmed_life),
        TEST(test_prepare_of_a_malformed_request),
        TEST(test_prepare_of_a_lost_one),
        TEST(test_prepare_after_a_start),
        TEST(test_prepare_keeps_nobody_out),
        TEST(test_prepare_of_none),
        TEST(test_prepare_where_no_log_is),
        TEST(test_take_of_an_open_one),
        TEST(test_give_back),
        TEST(test_give_back_of_a_found_one),
        TEST(test_take_where_it_is_busy),
        TEST(test_take_of_an_empty_one),
        TEST(test_take_of_what_is_not_to_be_had),
        TEST(test_close_of_a_sealed_one),
        TEST(test_the_end_while_sealing),
        TEST(test_trouble_while_sealing),
        TEST(test_the_next_owner_goes_on),
        TEST(test_when_a_found_one_is_whole),
        TEST(test_a_part_is_not_whole),
        TEST(test_a_replica_of_its_maker_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
