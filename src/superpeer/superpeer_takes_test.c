/* What a peer asks that recovers a zone (cluster/zones.h), of a superpeer that keeps its state in a journal: chunks that
 * become its own, which zones go first, and whose the chunks are. */
#include "superpeer/superpeer_zones_test.h"

#include "ring/arcs.h"

#define RUN(first, last)                                                                           \
    {                                                                                              \
        shoal_cid_make(peers[0], first), shoal_cid_make(peers[0], last)                            \
    }

static unsigned shard_of(void)
{
    return sh_arc_shard(peers[0]);
}

/* Whether all nodes have said what they have of the chunks. */
static void known_set(bool is_known)
{
    struct sh_metadata_update update = {.kind = is_known ? SH_METADATA_KNOWN : SH_METADATA_RESTORED,
                                        .sequence = 99};
    assert_int_equal(sh_metadata_apply(superpeer.ring->metadata, shard_of(), &update).err,
                     SHOAL_OK);
}

static int takes_setup(void **state)
{
    (void)zones_setup(state);
    sh_superpeer_take_handlers(&superpeer);
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_TREE, SH_MSG_INLINE, sh_superpeer_tree_handler,
                       &superpeer);
    known_set(true);
    return 0;
}

static struct sh_metadata_note note_of(uint64_t chunk)
{
    return sh_metadata_find(superpeer.ring->metadata, shoal_cid_make(peers[0], chunk)).note;
}

static shoal_nid owner_of(uint64_t chunk)
{
    return note_of(chunk).owner;
}

/* --- Taking ---------------------------------------------------------------------------------- */

static struct {
    struct sh_take_op op;
    unsigned done;
    enum shoal_err err;
} taken;

static void taken_done(struct sh_take_op *op, enum shoal_err err)
{
    assert_ptr_equal(op, &taken.op);
    taken.done++;
    taken.err = err;
}

/* The peer brings back a zone that the other one has made. */
static struct sh_zone taking(unsigned peer, uint64_t life)
{
    return (struct sh_zone){.id = sh_zone_id(peers[!peer], 3),
                            .incarnation = 2,
                            .owner = peers[peer],
                            .life = life,
                            .former = peers[!peer],
                            .former_life = LIFE(!peer)};
}

static void take_begin(unsigned peer, uint64_t life, const struct sh_metadata_run *runs,
                       size_t count)
{
    const struct sh_zone record = taking(peer, life);
    memset(&taken, 0, sizeof taken);
    taken.op = (struct sh_take_op){.done = taken_done, .deadline_ns = now_ns + S};
    sh_zones_take(zones, &record, runs, count, &taken.op);
    assert_int_equal(taken.done, 0); /* never from the call itself */
}

/* As a next life is, under the number that the tests know. */
static void up_again(shoal_nid nid)
{
    struct sh_node *node = sh_view_find(sh_registry_view(superpeer.registry), nid);
    node->state = SH_NODE_UP;
    sh_registry_touch_node(superpeer.registry, node);
}

static enum shoal_err take_end(void)
{
    for (unsigned i = 0; i < 200 && !taken.done; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(taken.done, 1);
    return taken.err;
}

/* The peer takes chunks of the other one, over which the first one has been the creator. */
static enum shoal_err take(unsigned peer, const struct sh_metadata_run *runs, size_t count)
{
    take_begin(peer, LIFE(peer), runs, count);
    return take_end();
}

static void chunks_of_a_failed_peer_are_taken(void **state)
{
    (void)state;
    const struct sh_metadata_run runs[] = {RUN(10, 19), RUN(30, 39)}, inner[] = {RUN(5, 35)};
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    act_as(1);
    assert_int_equal(take(1, runs, 2), SHOAL_OK);
    assert_int_equal(take(1, runs, 2), SHOAL_OK); /* the answer was lost, say */
    assert_int_equal(owner_of(9).v, peers[0].v);
    struct sh_metadata_note note = note_of(10);
    assert_true(note.owner.v == peers[1].v && note.life == LIFE(1) && note.incarnation == 2);
    assert_true(note.zone == sh_zone_id(peers[0], 3));
    assert_int_equal(owner_of(20).v, peers[0].v);
    assert_int_equal(owner_of(39).v, peers[1].v);
    /* The creator takes back what it finds as the other one's, and nothing else of it. */
    up_again(peers[0]);
    act_as(0);
    assert_int_equal(take(0, inner, 1), SHOAL_OK);
    assert_int_equal(owner_of(35).v, peers[0].v);
    assert_int_equal(owner_of(36).v, peers[1].v);
    /* What was answered is in the journal. */
    sh_superpeer_ring_close(&superpeer);
    ring_open();
    settle();
    assert_int_equal(owner_of(39).v, peers[1].v);
    assert_int_equal(owner_of(15).v, peers[0].v);
}

static void who_may_take(void **state)
{
    (void)state;
    const struct sh_metadata_run runs[] = {RUN(10, 19)};
    act_as(1);
    take_begin(1, 77, runs, 1); /* a life that the superpeer does not know, and may be newer */
    assert_int_equal(take_end(), SHOAL_EBUSY);
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    assert_int_equal(take(1, runs, 1), SHOAL_EFENCED);
    assert_int_equal(owner_of(10).v, peers[0].v);
    up_again(peers[1]);
    known_set(false);
    assert_int_equal(take(1, runs, 1), SHOAL_EBUSY);
    known_set(true);
    assert_int_equal(take(1, runs, 1), SHOAL_OK);
}

static void what_is_told_of_too_many_parts(void **state)
{
    (void)state;
    const struct sh_metadata_run whole[] = {RUN(0, 2 * SH_METADATA_TAKE_MAX)},
                                 half[] = {RUN(0, SH_METADATA_TAKE_MAX - 1)};
    for (uint64_t i = 0; i < SH_METADATA_TAKE_MAX; i++) {
        struct sh_metadata_update update = {.kind = SH_METADATA_MOVE,
                                            .from = peers[0],
                                            .to = {200},
                                            .sequence = i + 1,
                                            .count = 1,
                                            .runs = {RUN(2 * i, 2 * i)}};
        assert_int_equal(sh_metadata_apply(superpeer.ring->metadata, shard_of(), &update).err,
                         SHOAL_OK);
    }
    act_as(1);
    assert_int_equal(take(1, whole, 1), SHOAL_ETOOBIG);
    assert_int_equal(owner_of(1).v, peers[0].v);
    assert_int_equal(take(1, half, 1), SHOAL_OK);
    assert_int_equal(owner_of(1).v, peers[1].v);
    assert_int_equal(owner_of(2).v, 200);
}

/* Nobody is told whose chunks are while a take of them is under way. */
static void a_take_under_way_is_waited_for(void **state)
{
    (void)state;
    const struct sh_metadata_run runs[] = {RUN(10, 19)};
    act_as(1);
    take_begin(1, LIFE(1), runs, 1);
    struct sh_step own = sh_zones_step(zones);
    (void)own.run(own.arg);
    carry();
    assert_true(sh_superpeer_ring_is_deciding(&superpeer, shard_of()));
    assert_int_equal(take_end(), SHOAL_OK);
    assert_false(sh_superpeer_ring_is_deciding(&superpeer, shard_of()));
}

static struct {
    struct sh_request request;
    unsigned done;
    enum shoal_err err;
} raw;

static void raw_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)payload;
    raw.done++;
    raw.err = err;
}

/* What a superpeer answers to those bytes. */
static enum shoal_err raw_ask(struct sh_msg *from, sh_msg_type type, struct sh_bytes bytes)
{
    struct sh_out out;
    memset(&raw, 0, sizeof raw);
    raw.request = (struct sh_request){.done = raw_done};
    assert_int_equal(sh_msg_request(from, (shoal_nid){OWN}, type, bytes.size, &raw.request, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(from, &out);
    carry();
    settle();
    assert_int_equal(raw.done, 1);
    return raw.err;
}

static struct sh_bytes take_bytes(uint8_t room[SH_TAKE_BYTES_MAX], shoal_nid former, uint16_t count,
                                  uint64_t step_between)
{
    struct sh_writer w = sh_writer_make(room, SH_TAKE_BYTES_MAX);
    sh_put64(&w, LIFE(1));
    sh_put16(&w, former.v);
    sh_put64(&w, LIFE(0));
    sh_put64(&w, sh_zone_id(peers[0], 3));
    sh_put32(&w, 2);
    sh_put8(&w, 0);
    sh_put16(&w, count);
    for (uint64_t i = 0; i < count && i < SH_TAKE_RUNS_MAX; i++) {
        sh_put64(&w, shoal_cid_make(peers[0], i * step_between).v);
        sh_put64(&w, shoal_cid_make(peers[0], i * step_between).v);
    }
    return sh_bytes_make(room, (size_t)(w.at - room));
}

static void what_is_no_take(void **state)
{
    (void)state;
    uint8_t room[SH_TAKE_BYTES_MAX];
    const sh_msg_type type = SH_CLUSTER_TAKE;
    act_as(1);
    struct sh_bytes good = take_bytes(room, peers[0], SH_TAKE_RUNS_MAX, 2);
    assert_int_equal(raw_ask(asker, type, good), SHOAL_OK);
    assert_int_equal(raw_ask(other, type, good), SHOAL_EINVAL); /* superpeers have no chunks */
    good.size--;
    assert_int_equal(raw_ask(asker, type, good), SHOAL_EPROTO);
    assert_int_equal(raw_ask(asker, type, take_bytes(room, (shoal_nid){3}, 1, 2)), SHOAL_EPROTO);
    assert_int_equal(raw_ask(asker, type, take_bytes(room, peers[0], 0, 2)), SHOAL_EPROTO);
    assert_int_equal(raw_ask(asker, type, take_bytes(room, peers[0], SH_TAKE_RUNS_MAX + 1, 2)),
                     SHOAL_EPROTO);
    assert_int_equal(raw_ask(asker, type, take_bytes(room, peers[0], 2, 0)), SHOAL_EPROTO);
}

/* --- Order ----------------------------------------------------------------------------------- */

static struct {
    struct sh_order_op op;
    unsigned done;
    enum shoal_err err;
    uint64_t zone;
} ordered;

static void ordered_done(struct sh_order_op *op, enum shoal_err err, uint64_t zone)
{
    assert_ptr_equal(op, &ordered.op);
    ordered.done++;
    ordered.err = err;
    ordered.zone = zone;
}

/* Which zone that a life of the first peer had goes first; SH_ZONE_NUMBER_MAX: it is not known yet. */
static uint64_t first_of_life(uint64_t life, uint64_t number, bool near)
{
    memset(&ordered, 0, sizeof ordered);
    ordered.op = (struct sh_order_op){.done = ordered_done, .deadline_ns = now_ns + S};
    sh_zones_order(zones, peers[0], life, number ? sh_zone_id(peers[0], number) : 0, near,
                   &ordered.op);
    assert_int_equal(ordered.done, 0);
    for (unsigned i = 0; i < 200 && !ordered.done; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(ordered.done, 1);
    if (ordered.err == SHOAL_EBUSY)
        return SH_ZONE_NUMBER_MAX;
    assert_int_equal(ordered.err, SHOAL_OK);
    assert_true(!ordered.zone || sh_zone_creator(ordered.zone).v == peers[0].v);
    return sh_zone_number(ordered.zone);
}

static uint64_t first_above(uint64_t number, bool near)
{
    return first_of_life(LIFE(0), number, near);
}

/* The zone's owner has failed: that node brings it back. */
static void given(struct sh_zone *zone, shoal_nid nid, uint64_t life)
{
    sh_zone_former_set(zone, zone->owner, zone->life);
    zone->owner = nid;
    zone->life = life;
    zone_change(zone);
}

/* Of a failed owner's zones those with a higher number go first until they are recovered. */
static void later_zones_go_first(void **state)
{
    (void)state;
    struct sh_zone first = zone_of(0, 3), second = zone_of(0, 5), own = zone_of(1, 9);
    zone_put(&first);
    zone_put(&second);
    zone_put(&own);
    act_as(1);
    assert_int_equal(first_above(0, false), 0); /* the owner is up */
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    assert_int_equal(first_above(0, false), 3);
    assert_int_equal(first_above(3, false), 5);
    assert_int_equal(first_above(4, false), 5);
    assert_int_equal(first_above(5, false), 0);
    given(&second, peers[1], LIFE(1));
    assert_int_equal(first_above(3, false), 5);                /* it is being recovered */
    assert_int_equal(first_of_life(LIFE(0) + 1, 0, false), 0); /* another life had neither */
    sh_zone_former_set(&second, SHOAL_NID_NONE, 0);
    zone_change(&second);
    assert_int_equal(first_above(3, false), 0);
    assert_int_equal(first_above(0, false), 3);
    assert_false(ordered.op.has_lost);
    first.flags = SH_ZONE_LOST; /* none waits for what will never be */
    zone_change(&first);
    assert_int_equal(first_above(0, false), 0);
    assert_true(ordered.op.has_lost);
    assert_int_equal(first_above(3, false), 0);
    assert_false(ordered.op.has_lost); /* no zone below has what this one had */
    assert_int_equal(first_of_life(LIFE(0) + 1, 0, false), 0);
    assert_false(ordered.op.has_lost);
}

/* Before it reads a zone, a node asks for what it is to read first: zones that another node brings back are none of these. */
static void zones_near_go_first(void **state)
{
    (void)state;
    struct sh_zone there = zone_of(0, 3), here = zone_of(0, 5), nobodys = zone_of(0, 7);
    zone_put(&there);
    zone_put(&here);
    zone_put(&nobodys);
    shoal_nid third;
    assert_int_equal(sh_registry_join(superpeer.registry, now_ns, sh_bytes_text("loop:peer2"), 77,
                                      SHOAL_NID_NONE, NULL, &third),
                     SHOAL_OK);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    act_as(1);
    given(&there, third, 77);
    given(&here, peers[1], LIFE(1));
    assert_int_equal(first_above(0, false), 3);
    assert_int_equal(first_above(0, true), 5);
    assert_int_equal(first_above(5, true), 7);
    assert_int_equal(first_above(7, true), 0);
    /* Nobody brings that one back any more. */
    sh_registry_fail(superpeer.registry, third, "a test");
    act_as(1);
    assert_int_equal(first_above(0, true), 3);
}

/* Nobody is told that no zone is left by a superpeer that has yet to hear that the owner failed, or of a life. */
static void an_order_is_as_new_as_the_asker(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 5);
    zone.life = 77;
    zone_put(&zone);
    act_as(1);
    /* A node without a disk has one life: 77 was given up. */
    assert_int_equal(first_of_life(77, 0, false), 5);
    struct sh_view *view = &superpeer.registry->view;
    struct sh_node *node = sh_view_find(view, peers[0]);
    struct sh_zone next = zone_of(0, 6);
    next.life = UINT64_C(9) << 32 | 1;
    zone_put(&next);
    node->instance = UINT64_C(8) << 32 | 1;
    assert_int_equal(first_of_life(next.life, 5, false), SH_ZONE_NUMBER_MAX);
    node->instance = next.life;
    assert_int_equal(first_of_life(next.life, 5, false), 0);
    node->instance = UINT64_C(10) << 32 | 1;
    assert_int_equal(first_of_life(next.life, 5, false), 6);
    /* The asker has a view of which this superpeer has not heard. */
    view->epoch += 5;
    act_as(1);
    view->epoch -= 5;
    assert_int_equal(first_of_life(next.life, 5, false), SH_ZONE_NUMBER_MAX);
    view->epoch += 5;
    assert_int_equal(first_of_life(next.life, 5, false), 6);
}

/* More zones than are looked at at once: the question goes on where it ended. */
static void an_order_looks_at_many(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    zone.count = 0;
    for (uint64_t i = 1; i <= 5000; i++) {
        zone.id = sh_zone_id(peers[0], i);
        zone.flags = i == 4999 ? 0 : SH_ZONE_LOST;
        zone.life = i <= 4096 || i == 4999 ? LIFE(0) : LIFE(0) + 1;
        zone_put(&zone);
    }
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    act_as(1);
    assert_int_equal(first_above(0, false), 4999);
    assert_true(ordered.op.has_lost); /* also of those that were looked at first */
    assert_int_equal(first_above(4999, false), 0);
    assert_false(ordered.op.has_lost);
}

static void what_is_no_order(void **state)
{
    (void)state;
    const struct {
        uint16_t former;
        uint64_t after;
        uint8_t near;
        enum shoal_err err;
    } cases[] = {
        {peers[0].v, 0, 1, SHOAL_OK},
        {peers[0].v, sh_zone_id(peers[0], 3), 0, SHOAL_OK},
        {peers[0].v, sh_zone_id(peers[1], 3), 0, SHOAL_EPROTO},
        {peers[0].v, 0, 2, SHOAL_EPROTO},
        {3, 0, 1, SHOAL_EPROTO},
    };
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t room[SH_ORDER_BYTES];
        struct sh_writer w = sh_writer_make(room, sizeof room);
        sh_put16(&w, cases[i].former);
        sh_put64(&w, LIFE(0));
        sh_put64(&w, 0);
        sh_put64(&w, cases[i].after);
        sh_put8(&w, cases[i].near);
        assert_int_equal(raw_ask(asker, SH_CLUSTER_ORDER, sh_bytes_make(room, sizeof room)),
                         cases[i].err);
        assert_int_equal(raw_ask(asker, SH_CLUSTER_ORDER, sh_bytes_make(room, sizeof room - 1)),
                         SHOAL_EPROTO);
    }
}

/* --- The tree -------------------------------------------------------------------------------- */

static struct {
    struct sh_tree_op op;
    unsigned done, count;
    enum shoal_err err;
    bool is_more;
    shoal_cid first, last; /* of all that was told */
    struct sh_metadata_note notes[8];
} tree;

static void tree_each(struct sh_tree_op *op, const struct sh_metadata_range *range)
{
    assert_ptr_equal(op, &tree.op);
    if (tree.count)
        assert_true(range->first.v == tree.last.v + 1);
    else
        tree.first = range->first;
    tree.last = range->last;
    if (tree.count < 8)
        tree.notes[tree.count] = range->note;
    tree.count++;
}

static void tree_done(struct sh_tree_op *op, enum shoal_err err, bool is_more)
{
    assert_ptr_equal(op, &tree.op);
    tree.done++;
    tree.err = err;
    tree.is_more = is_more;
}

static enum shoal_err tree_ask(uint64_t chunk)
{
    memset(&tree, 0, sizeof tree);
    tree.op = (struct sh_tree_op){.each = tree_each, .done = tree_done, .deadline_ns = now_ns + S};
    sh_zones_tree(zones, shoal_cid_make(peers[0], chunk), &tree.op);
    for (unsigned i = 0; i < 200 && !tree.done; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(tree.done, 1);
    return tree.err;
}

static void the_tree_says_whose_chunks_are(void **state)
{
    (void)state;
    const struct sh_metadata_run runs[] = {RUN(10, 19), RUN(30, 39)};
    act_as(1);
    assert_int_equal(tree_ask(5), SHOAL_OK);
    assert_true(tree.count == 1 && !tree.is_more && tree.notes[0].owner.v == peers[0].v);
    assert_int_equal(take(1, runs, 2), SHOAL_OK);
    assert_int_equal(tree_ask(15), SHOAL_OK);
    assert_true(tree.count == 4 && !tree.is_more);
    assert_true(shoal_cid_local(tree.first) == 10 &&
                shoal_cid_local(tree.last) == SHOAL_LOCAL_ID_MAX);
    for (unsigned i = 0; i < 4; i++) {
        const struct sh_metadata_note *note = &tree.notes[i];
        assert_int_equal(note->owner.v, peers[i % 2 == 0].v);
        assert_true(note->life == (i % 2 ? 0 : LIFE(1)) && note->incarnation == (i % 2 ? 0 : 2));
        assert_true(note->zone == (i % 2 ? 0 : sh_zone_id(peers[0], 3)));
    }
    known_set(false);
    assert_int_equal(tree_ask(15), SHOAL_EBUSY);
    assert_int_equal(tree.count, 0);
}

/* By a view in which a life is up that the asker knows to be over, that one could still give chunks away. */
static void a_tree_is_of_no_older_view(void **state)
{
    static const int64_t ahead[] = {-1, 0, 1};
    (void)state;
    act_as(1);
    for (unsigned i = 0; i < 4; i++) {
        uint8_t room[SH_TREE_BYTES];
        uint64_t epoch = superpeer.registry->view.epoch;
        sh_store64(room, shoal_cid_make(peers[0], 1).v);
        sh_store64(room + 8, i < 3 ? epoch + (uint64_t)ahead[i] : 0);
        assert_int_equal(raw_ask(asker, SH_CLUSTER_TREE, sh_bytes_make(room, sizeof room)),
                         i == 2 ? SHOAL_EBUSY : SHOAL_OK);
        assert_int_equal(raw_ask(asker, SH_CLUSTER_TREE, sh_bytes_make(room, sizeof room - 1)),
                         SHOAL_EPROTO);
    }
}

/* More than one answer has room for. */
static void a_tree_goes_on(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < SH_TREE_RANGES_MAX; i++) {
        struct sh_metadata_update update = {.kind = SH_METADATA_MOVE,
                                            .from = peers[0],
                                            .to = peers[1],
                                            .sequence = i + 1,
                                            .count = 1,
                                            .runs = {RUN(2 * i, 2 * i)}};
        assert_int_equal(sh_metadata_apply(superpeer.ring->metadata, shard_of(), &update).err,
                         SHOAL_OK);
    }
    assert_int_equal(tree_ask(0), SHOAL_OK);
    assert_true(tree.is_more && tree.count == SH_TREE_RANGES_MAX);
    assert_int_equal(tree_ask(shoal_cid_local(tree.last) + 1), SHOAL_OK);
    assert_true(!tree.is_more && tree.count == SH_TREE_RANGES_MAX);
    assert_true(shoal_cid_local(tree.last) == SHOAL_LOCAL_ID_MAX);
}

/* --- Superpeers that are to be asked ---------------------------------------------------------- */

static unsigned redirected;

static void on_asked_there(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    const size_t *size = arg;
    redirected++;
    assert_int_equal(sh_msg_reply(other, in->reply_to, in->type, *size, &out), SHOAL_OK);
    sh_put16(&out.w, OWN);
    for (size_t i = 2; i < *size; i++)
        sh_put8(&out.w, 0);
    sh_msg_end(other, &out);
}

static void another_superpeer_is_asked(void **state)
{
    (void)state;
    static const size_t sizes[] = {SH_TAKE_ANSWER_BYTES, SH_ORDER_ANSWER_BYTES,
                                   SH_TREE_ANSWER_BYTES};
    static const sh_msg_type types[] = {SH_CLUSTER_TAKE, SH_CLUSTER_ORDER, SH_CLUSTER_TREE};
    const struct sh_metadata_run runs[] = {RUN(10, 19)};
    act_as(1);
    redirected = 0;
    for (unsigned i = 0; i < 3; i++) {
        sh_msg_handler_set(other, types[i], SH_MSG_INLINE, on_asked_there,
                           (void *)(uintptr_t)&sizes[i]);
        sh_directory_superpeer_set(directory, (shoal_nid){peers[0].v}, (shoal_nid){OTHER});
        if (i == 0)
            assert_int_equal(take(1, runs, 1), SHOAL_OK);
        else if (i == 1)
            assert_int_equal(first_above(0, true), 0);
        else
            assert_int_equal(tree_ask(0), SHOAL_OK);
        assert_int_equal(redirected, i + 1);
    }
}

/* Whoever asked is told when the node stops. */
static void what_is_under_way_ends_with_the_node(void **state)
{
    (void)state;
    const struct sh_metadata_run runs[] = {RUN(10, 19)};
    act_as(1);
    take_begin(1, LIFE(1), runs, 1);
    sh_zones_destroy(zones);
    zones = NULL;
    assert_true(taken.done == 1 && taken.err == SHOAL_ESTOPPED);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, takes_setup, zones_teardown)
    const struct CMUnitTest tests[] = {
        CASE(chunks_of_a_failed_peer_are_taken),
        CASE(who_may_take),
        CASE(what_is_told_of_too_many_parts),
        CASE(a_take_under_way_is_waited_for),
        CASE(what_is_no_take),
        CASE(later_zones_go_first),
        CASE(zones_near_go_first),
        CASE(an_order_is_as_new_as_the_asker),
        CASE(an_order_looks_at_many),
        CASE(what_is_no_order),
        CASE(the_tree_says_whose_chunks_are),
        CASE(a_tree_is_of_no_older_view),
        CASE(a_tree_goes_on),
        CASE(another_superpeer_is_asked),
        CASE(what_is_under_way_ends_with_the_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
