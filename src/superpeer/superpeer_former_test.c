/* What superpeers tell each other of owners that failed, and what a superpeer says of chunks by that. */
#include "base/random_test.h"

#include "superpeer/superpeer_recover_test.h"

#define ALL UINT64_MAX

/* --- The other superpeer ----------------------------------------------------------------------- */

static struct {
    unsigned count;
    struct sh_looked looked; /* the last one */
} heard;

static void on_former_there(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_reader *r = &in->payload;
    assert_false(in->is_request);
    heard.count++;
    memset(&heard.looked, 0, sizeof heard.looked);
    heard.looked.epoch = sh_get64(r);
    heard.looked.shards = sh_get64(r);
    while (sh_reader_left(r) > 0) {
        unsigned word = sh_get16(r);
        assert_true(sh_reader_ok(r) && word < SH_NIDS_WORDS);
        heard.looked.owners.undone[word] = sh_get64(r);
        heard.looked.owners.lost[word] = sh_get64(r);
    }
    assert_true(sh_reader_done(r));
}

static int former_setup(void **state)
{
    (void)recover_setup(state);
    memset(&heard, 0, sizeof heard);
    sh_msg_handler_set(other, SH_CLUSTER_FORMER, SH_MSG_INLINE, on_former_there, NULL);
    return 0;
}

static void bytes_send(struct sh_msg *from, struct sh_bytes bytes)
{
    struct sh_out out;
    assert_int_equal(sh_msg_begin(from, (shoal_nid){OWN}, SH_CLUSTER_FORMER, bytes.size, &out),
                     SHOAL_OK);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(from, &out);
    carry();
}

static struct sh_bytes encoded(const struct sh_looked *looked)
{
    static uint8_t bytes[SH_FORMER_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, looked->epoch);
    sh_put64(&w, looked->shards);
    for (unsigned i = 0; i < SH_NIDS_WORDS; i++) {
        if (!(looked->owners.undone[i] | looked->owners.lost[i]))
            continue;
        sh_put16(&w, (uint16_t)i);
        sh_put64(&w, looked->owners.undone[i]);
        sh_put64(&w, looked->owners.lost[i]);
    }
    assert_true(sh_writer_ok(&w));
    return sh_bytes_make(bytes, (size_t)(w.at - bytes));
}

static void bit_put(uint64_t *bits, shoal_nid nid)
{
    bits[nid.v / 64] |= UINT64_C(1) << nid.v % 64;
}

/* The other superpeer tells of these shards, in a view of that epoch, that zones of one node are to be recovered, and of another one are lost; 0: of none. */
static void say(uint64_t epoch, uint64_t shards, shoal_nid undone, shoal_nid lost)
{
    static struct sh_looked looked;
    memset(&looked, 0, sizeof looked);
    looked.epoch = epoch;
    looked.shards = shards;
    if (undone.v)
        bit_put(looked.owners.undone, undone);
    if (lost.v)
        bit_put(looked.owners.lost, lost);
    bytes_send(other, encoded(&looked));
}

static uint64_t epoch_now(void)
{
    return sh_registry_view(superpeer.registry)->epoch;
}

/* --- What is said of chunks -------------------------------------------------------------------- */

/* A shard beside the one of the first peer's records, which another superpeer has. */
static unsigned elsewhere(uint8_t owner)
{
    unsigned shard = (sh_arc_shard(peers[0]) + 1) % SH_SHARDS;
    shard_owner_set(shard, owner);
    (void)run_for(100 * MS);
    return shard;
}

/* The node may have had zones that others made: what has become of these, the other superpeer tells. */
static void lookups_go_by_what_is_told(void **state)
{
    (void)state;
    fails(peers[0]);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    uint64_t shard = UINT64_C(1) << elsewhere(OTHER);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), shard, peers[0], SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), shard, peers[0], peers[0]);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), shard, SHOAL_NID_NONE, peers[0]);
    assert_int_equal(lookup(), SHOAL_ELOST);
    say(epoch_now(), shard, peers[1], nodes[2].nid);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    say(epoch_now(), ~shard, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), ALL, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    /* What this superpeer's own records say counts as well. */
    put(1, 2);
    (void)run_for(50 * MS);
    fails(nodes[3].nid);
    (void)run_for(50 * MS);
    say(epoch_now(), ALL, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
}

/* Of a view that is older than this superpeer's nothing counts, as the node may have had another life since. */
static void an_older_view_does_not_count(void **state)
{
    (void)state;
    fails(peers[0]);
    uint64_t shard = UINT64_C(1) << elsewhere(OTHER), epoch = epoch_now();
    say(epoch, shard, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    fails(nodes[3].nid);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch, shard, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now() + 1, shard, SHOAL_NID_NONE, SHOAL_NID_NONE); /* it is ahead */
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

/* A shard counts as known by what its owner tells, and by nobody else: the next owner looks at its records first. */
static void a_shard_moves_on(void **state)
{
    (void)state;
    fails(peers[0]);
    unsigned shard = elsewhere(OTHER);
    say(epoch_now(), ALL, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    shard_owner_set(shard, 3);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), ALL, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    shard_owner_set(shard, 0); /* there is none */
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    shard_owner_set(shard, OWN);
    (void)run_for(100 * MS);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

/* Of a node that has left nobody knows whether it comes back: who asks, asks again until that is known. */
static void who_left_is_asked_about_again(void **state)
{
    (void)state;
    assert_int_equal(sh_registry_leave(superpeer.registry, peers[0], LIFE(0)), SHOAL_OK);
    unsigned shard = elsewhere(OTHER);
    assert_int_equal(lookup(), SHOAL_EBUSY);
    say(epoch_now(), UINT64_C(1) << shard, peers[0], SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    say(epoch_now(), UINT64_C(1) << shard, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

/* The same of chunks that other nodes made. */
static void chunks_of_others(void **state)
{
    (void)state;
    struct sh_range range;
    shoal_cid cid = shoal_cid_make(nodes[3].nid, 7);
    struct sh_metadata_update update = {.kind = SH_METADATA_MOVE,
                                        .from = nodes[3].nid,
                                        .to = peers[0],
                                        .sequence = 1,
                                        .count = 1,
                                        .runs = {{cid, cid}}};
    assert_int_equal(
        sh_metadata_apply(superpeer.ring->metadata, sh_arc_shard(nodes[3].nid), &update).err,
        SHOAL_OK);
    assert_int_equal(sh_superpeer_lookup(&superpeer, cid, &range), SHOAL_OK);
    assert_int_equal(range.value, peers[0].v);
    fails(peers[0]);
    unsigned shard = (sh_arc_shard(nodes[3].nid) + 1) % SH_SHARDS;
    shard_owner_set(shard, OTHER);
    (void)run_for(100 * MS);
    assert_int_equal(sh_superpeer_lookup(&superpeer, cid, &range), SHOAL_EFAILED);
    say(epoch_now(), ALL, SHOAL_NID_NONE, peers[0]);
    assert_int_equal(sh_superpeer_lookup(&superpeer, cid, &range), SHOAL_ELOST);
    say(epoch_now(), ALL, SHOAL_NID_NONE, SHOAL_NID_NONE);
    assert_int_equal(sh_superpeer_lookup(&superpeer, cid, &range), SHOAL_ENOCHUNK);
}

static void chunk_update(uint8_t kind, const struct sh_zone *zone, shoal_nid to, uint64_t local)
{
    const struct sh_metadata_update update = {
        .kind = kind,
        .from = peers[0],
        .to = to,
        .sequence = local,
        .zone = *zone,
        .count = 1,
        .runs = {{shoal_cid_make(peers[0], local), shoal_cid_make(peers[0], local)}}};
    assert_int_equal(
        sh_metadata_apply(superpeer.ring->metadata, sh_arc_shard(peers[0]), &update).err, SHOAL_OK);
}

/* The first peer fails, and a node begins to bring back its zone, and takes chunk 5. */
static struct node *restorer_begin(void)
{
    put(1, 3);
    fails(peers[0]);
    (void)run_for(500 * MS);
    unsigned first = 0;
    while (!is_with(1, &nodes[first]))
        assert_in_range(++first, 0, 2);
    known_of(nodes[first].nid)->traits.is_replicated = true;
    const struct sh_zone zone = record_of(1);
    chunk_update(SH_METADATA_TAKE, &zone, SHOAL_NID_NONE, 5);
    return &nodes[first];
}

/* What a restorer had taken for a zone when it failed is noted as the restorer's, until the next one has taken it. */
static void restorer_fails(bool is_back)
{
    struct node *restorer = restorer_begin();
    assert_int_equal(lookup(), SHOAL_OK);
    fails(restorer->nid);
    (void)run_for(5 * S);
    assert_true(!is_with(1, restorer));
    assert_int_equal(lookup(), SHOAL_EFAILED);
    /* Another process of that node has nothing of what this one took. */
    if (is_back)
        back(restorer, true);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    recovered(1);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
}

static void a_restorer_that_failed_is_waited_for(void **state)
{
    (void)state;
    restorer_fails(false);
}

static void a_restorer_that_is_up_again_is_not_asked(void **state)
{
    (void)state;
    restorer_fails(true);
}

static unsigned vacated; /* ranges that nodes were asked to give back */

static void on_vacate_there(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    (void)in;
    vacated++;
}

static unsigned vacate(void)
{
    vacated = 0;
    sh_superpeer_moves_vacate(&superpeer, peers[0]);
    (void)run_for(50 * MS);
    return vacated;
}

/* A node that finds no chunks in a range gives it back to a creator that has left; but what a former life of it had may be coming back at another one. */
static void only_the_life_that_has_a_range_gives_it_back(void **state)
{
    (void)state;
    struct node *node = restorer_begin(), *keeper = &nodes[(node - nodes + 1) % 3];
    const struct sh_zone zone = record_of(1);
    sh_msg_handler_set(node->msg, SH_CLUSTER_VACATE, SH_MSG_INLINE, on_vacate_there, NULL);
    assert_int_equal(vacate(), 1);
    fails(node->nid);
    back(node, true);
    (void)run_for(S);
    assert_int_equal(vacate(), 0);
    recovered(1);
    (void)run_for(S);
    assert_int_equal(vacate(), 1); /* nothing comes back any more */
    /* What has moved to it without a recovery: while a zone of its former life is to be recovered it may be of that one. */
    chunk_update(SH_METADATA_MOVE, &zone, node->nid, 7);
    assert_int_equal(vacate(), 2);
    struct sh_zone before = zone_at(2, 0);
    before.owner = node->nid;
    before.life = zone.life;
    before.wanted = before.count = 1;
    before.backups[0] = (struct sh_zone_backup){keeper->nid, DISK(keeper - nodes)};
    keeper->err = SHOAL_EBUSY;
    zone_put(&before);
    sh_registry_touch_node(superpeer.registry, known_of(node->nid)); /* so it looks again */
    (void)run_for(S);
    assert_int_equal(vacate(), 0);
}

/* A shard of which all replicas were lost may lack the node's records. */
static void a_shard_is_not_known(void **state)
{
    (void)state;
    unsigned shard = (sh_arc_shard(peers[0]) + 1) % SH_SHARDS;
    fails(peers[0]);
    (void)run_for(S);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    assert_true(heard.looked.shards == ALL);
    shard_known_set(shard, false);
    assert_int_equal(lookup(), SHOAL_EFAILED);
    (void)run_for(S);
    assert_true(heard.looked.shards == ~(UINT64_C(1) << shard));
    shard_known_set(shard, true);
    assert_int_equal(lookup(), SHOAL_ENOCHUNK);
    (void)run_for(S);
    assert_true(heard.looked.shards == ALL);
}

/* --- What is told ------------------------------------------------------------------------------ */

static bool is_heard(const uint64_t *bits, shoal_nid nid)
{
    return bits[nid.v / 64] >> nid.v % 64 & 1;
}

static void looks_are_told(void **state)
{
    (void)state;
    const struct sh_former_owners *owners = &heard.looked.owners;
    put(1, 2);
    put(2, 1);
    (void)run_for(50 * MS);
    assert_true(heard.count == 1 && heard.looked.epoch == epoch_now() &&
                heard.looked.shards == ALL);
    assert_false(is_heard(owners->undone, peers[0]));
    nodes[0].err = nodes[1].err = SHOAL_EBUSY;
    fails(peers[0]);
    (void)run_for(50 * MS);
    assert_true(heard.count == 2 && heard.looked.epoch == epoch_now());
    assert_true(is_heard(owners->undone, peers[0]) && !is_heard(owners->lost, peers[0]));
    fails(nodes[3].nid); /* which changes the view, and no more */
    (void)run_for(50 * MS);
    assert_true(heard.count == 3 && heard.looked.epoch == epoch_now());
    nodes[0].err = SHOAL_ENONAME;
    nodes[1].err = SHOAL_OK;
    (void)run_for(5 * S);
    assert_true(record_of(2).flags & SH_ZONE_LOST);
    assert_true(is_heard(owners->undone, peers[0]) && is_heard(owners->lost, peers[0]));
    recovered(1);
    (void)run_for(200 * MS);
    assert_true(!is_heard(owners->undone, peers[0]) && is_heard(owners->lost, peers[0]));
    assert_true(heard.looked.epoch == epoch_now() && heard.looked.shards == ALL);
    elsewhere(OTHER);
    assert_int_equal(__builtin_popcountll(heard.looked.shards), SH_SHARDS - 1);
}

/* A message may be lost, or be told to a process that has ended. */
static void it_is_told_again(void **state)
{
    (void)state;
    (void)run_for(50 * MS);
    assert_int_equal(heard.count, 1);
    (void)run_for(20 * HEARTBEAT);
    assert_in_range(heard.count, 4, 8);
    assert_true(heard.looked.epoch == epoch_now() && heard.looked.shards == ALL);
    assert_true(sh_superpeer_former_due_ns(&superpeer) > now_ns);
    /* Not while this superpeer does not know it itself. */
    fails(peers[0]);
    assert_true(sh_superpeer_former_due_ns(&superpeer) == SH_NEVER);
    assert_int_equal(sh_superpeer_former_step(&superpeer, now_ns), 0);
    (void)run_for(50 * MS);
    /* Nor where nobody is to be told. */
    superpeer.registry->view.superpeers = 1;
    assert_true(sh_superpeer_former_due_ns(&superpeer) == SH_NEVER);
    unsigned count = heard.count;
    (void)run_for(2 * S);
    assert_int_equal(heard.count, count);
}

/* --- Bytes ------------------------------------------------------------------------------------- */

static void bad_bytes_change_nothing(void **state)
{
    (void)state;
    static uint8_t bytes[SH_FORMER_BYTES + 2 * SH_FORMER_WORD_BYTES];
    static const struct {
        unsigned words[2];
        uint64_t bits;
        size_t size;
    } cases[] = {{{1, 1}, 1, sizeof bytes},
                 {{2, 1}, 1, sizeof bytes},
                 {{1, SH_NIDS_WORDS}, 1, sizeof bytes},
                 {{1, 2}, 0, sizeof bytes},
                 {{1, 2}, 1, sizeof bytes - 1},
                 {{1, 2}, 1, SH_FORMER_BYTES + 1},
                 {{1, 2}, 1, SH_FORMER_BYTES - 1},
                 {{1, 2}, 1, 0}};
    fails(peers[0]);
    elsewhere(OTHER);
    say(epoch_now(), ALL, SHOAL_NID_NONE, peers[0]);
    assert_int_equal(lookup(), SHOAL_ELOST);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, epoch_now());
        sh_put64(&w, ALL);
        for (unsigned k = 0; k < 2; k++) {
            sh_put16(&w, (uint16_t)cases[i].words[k]);
            sh_put64(&w, cases[i].bits);
            sh_put64(&w, 0);
        }
        bytes_send(other, sh_bytes_make(bytes, cases[i].size));
        assert_int_equal(lookup(), SHOAL_ELOST);
    }
    /* Nor from a peer. */
    static struct sh_looked looked;
    looked.epoch = epoch_now();
    looked.shards = ALL;
    assert_int_equal(sh_msg_node_set(nodes[0].msg, (shoal_nid){OWN}, "loop:own"), SHOAL_OK);
    bytes_send(nodes[0].msg, encoded(&looked));
    assert_int_equal(lookup(), SHOAL_ELOST);
}

static enum shoal_err expected(const struct sh_former_owners *owners, shoal_nid nid)
{
    if (is_heard(owners->undone, nid))
        return SHOAL_EFAILED;
    return is_heard(owners->lost, nid) ? SHOAL_ELOST : SHOAL_ENOCHUNK;
}

/* Any nodes, and all of them. */
static void any_nodes_are_told_of(void **state)
{
    (void)state;
    static struct sh_looked looked;
    uint64_t seed = test_seed(5);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        shard_owner_set(i, OTHER);
    (void)run_for(100 * MS);
    for (unsigned round = 0; round < 20; round++) {
        memset(&looked, 0, sizeof looked);
        looked.epoch = epoch_now();
        looked.shards = ALL;
        unsigned nodes_count = (unsigned)(test_draw(&seed) % 200);
        for (unsigned i = 0; i < nodes_count; i++) {
            shoal_nid nid = {(uint16_t)test_draw(&seed)};
            bit_put(i % 2 ? looked.owners.undone : looked.owners.lost, nid);
        }
        if (round == 0)
            memset(looked.owners.lost, 0xff, sizeof looked.owners.lost);
        bytes_send(other, encoded(&looked));
        for (unsigned nid = 1; nid <= UINT16_MAX; nid++)
            assert_int_equal(sh_superpeer_former_of(&superpeer, (shoal_nid){(uint16_t)nid}),
                             expected(&looked.owners, (shoal_nid){(uint16_t)nid}));
    }
}

/* Of these, too, and of no others. */
static void many_nodes_are_told(void **state)
{
    (void)state;
    static struct sh_former_owners owners;
    uint64_t seed = test_seed(6);
    memset(&owners, 0, sizeof owners);
    for (uint64_t i = 1; i <= 300; i++) {
        struct sh_zone zone = zone_at(i, 1);
        zone.owner.v =
            (uint16_t)(SH_PEER_NID_MIN + test_draw(&seed) % (SH_PEER_NID_MAX - SH_PEER_NID_MIN));
        zone.flags |= SH_ZONE_LOST;
        zone_put(&zone);
        bit_put(owners.lost, zone.owner);
        bit_put(owners.lost, sh_zone_creator(zone.id));
    }
    (void)run_for(50 * MS);
    assert_int_equal(heard.count, 1);
    assert_memory_equal(&heard.looked.owners, &owners, sizeof owners);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, former_setup, recover_teardown)
    const struct CMUnitTest tests[] = {
        CASE(lookups_go_by_what_is_told),
        CASE(an_older_view_does_not_count),
        CASE(a_shard_moves_on),
        CASE(who_left_is_asked_about_again),
        CASE(chunks_of_others),
        CASE(a_restorer_that_failed_is_waited_for),
        CASE(a_restorer_that_is_up_again_is_not_asked),
        CASE(only_the_life_that_has_a_range_gives_it_back),
        CASE(a_shard_is_not_known),
        CASE(looks_are_told),
        CASE(it_is_told_again),
        CASE(bad_bytes_change_nothing),
        CASE(any_nodes_are_told_of),
        CASE(many_nodes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
