/* Zones as a peer asks for them (cluster/zones.h), and a superpeer that keeps their records in its journal: what
 * is asked twice is done once, and who may ask for what. */
#include "superpeer/superpeer_zones_test.h"

/* --- Records --------------------------------------------------------------------------------- */

static void a_zone_is_made_changed_and_removed(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1), again = zone;
    assert_int_equal(get(zone.id), SHOAL_ENONAME);
    assert_true(asked.answer.last == 0 && !asked.answer.is_there && !asked.answer.is_doubtful);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    assert_true(sh_zone_is_same(&asked.answer.zone, &zone) && asked.answer.zone.version == 1);
    again.count = 1; /* once more, drawn anew: what was made first stays */
    assert_int_equal(made(0, &again), SHOAL_OK);
    assert_true(sh_zone_is_same(&asked.answer.zone, &zone));
    zone.count = 1;
    assert_int_equal(change(0, &zone), SHOAL_OK);
    assert_true(asked.answer.zone.version == 2 && asked.answer.zone.incarnation == 2);
    assert_int_equal(change(0, &zone), SHOAL_OK); /* its answer was lost, say */
    assert_int_equal(asked.answer.zone.version, 2);
    zone.wanted = 3;
    assert_int_equal(change(0, &zone), SHOAL_EDIFFERS);
    assert_int_equal(asked.answer.zone.version, 2);
    zone.version = 2;
    zone.flags = SH_ZONE_CONCLUDED;
    zone.first = shoal_cid_make(peers[0], 1);
    zone.last = shoal_cid_make(peers[0], 99);
    assert_int_equal(change(0, &zone), SHOAL_OK);
    assert_true(asked.answer.zone.version == 3 && asked.answer.zone.incarnation == 2);
    assert_int_equal(get(zone.id), SHOAL_OK);
    assert_true(sh_zone_is_same(&asked.answer.zone, &zone) && asked.answer.zone.version == 3);
    assert_int_equal(removal(0, zone.id, 2), SHOAL_EDIFFERS);
    assert_int_equal(removal(0, zone.id, 3), SHOAL_OK);
    assert_int_equal(removal(0, zone.id, 3), SHOAL_OK);
    assert_int_equal(get(zone.id), SHOAL_ENONAME);
    zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_ECANCELED); /* its ID is used up */
    assert_true(asked.answer.last == 1 && !asked.answer.is_there);
    assert_int_equal(removal(0, sh_zone_id(peers[0], 2), 1), SHOAL_ENONAME);
}

/* What was answered is in the journal. */
static void a_zone_outlives_its_superpeer(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 4);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.count = 1;
    assert_int_equal(change(0, &zone), SHOAL_OK);
    sh_superpeer_ring_close(&superpeer);
    ring_open();
    settle();
    assert_int_equal(get(zone.id), SHOAL_OK);
    assert_true(sh_zone_is_same(&asked.answer.zone, &zone) && asked.answer.zone.version == 2);
    assert_true(asked.answer.last == 4);
    struct sh_metadata_sizes sizes =
        sh_metadata_measure(superpeer.ring->metadata, sh_zone_shard(zone.id));
    assert_true(sizes.zones == 1 && sizes.zones_short == 1);
}

static const struct sh_disk_ops *disk_ops;

static unsigned poll_unless_held(struct sh_disk *polled, bool wait)
{
    return is_disk_held && !wait ? 0 : disk_ops->poll(polled, wait);
}

/* An update is answered when it is on the disk, and not before. */
static void a_zone_is_stored_before_it_is_answered(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    static struct sh_disk_ops holding;
    holding = *disk->ops;
    disk_ops = disk->ops;
    holding.poll = poll_unless_held;
    disk->ops = &holding;
    is_disk_held = true;
    begin();
    sh_zones_new(zones, LIFE(0), &zone, &asked.op);
    for (unsigned i = 0; i < 8; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(asked.done, 0);
    is_disk_held = false;
    assert_int_equal(end(), SHOAL_OK);
}

/* A peer that has failed is started again, as another life. */
static uint64_t next_life(unsigned peer)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer.registry), peers[peer]);
    uint64_t life = node->instance + (UINT64_C(1) << 32);
    shoal_nid nid;
    assert_int_equal(sh_registry_restart(superpeer.registry, now_ns, sh_bytes_text(node->address),
                                         life, peers[peer], NULL, &nid),
                     SHOAL_OK);
    return life;
}

/* --- Who may ask ----------------------------------------------------------------------------- */

/* Another peer has no say while the owner is up, and takes the zone when the owner has failed; the owner's next
 * life finds it taken. */
static void a_zone_is_taken_from_who_is_gone(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    act_as(1);
    struct sh_zone taken = zone;
    taken.count = 1;
    assert_int_equal(change(1, &taken), SHOAL_ENOTOWNER); /* for the owner, which is another one */
    taken.owner = peers[1];
    taken.life = LIFE(1);
    sh_zone_former_set(&taken, peers[0], LIFE(0));
    assert_int_equal(change(1, &taken), SHOAL_ENOTOWNER);
    assert_int_equal(removal(1, zone.id, 1), SHOAL_ENOTOWNER);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    assert_int_equal(removal(1, zone.id, 1), SHOAL_ENOTOWNER);
    act_as(0);
    zone.count = 1;
    assert_int_equal(change(0, &zone), SHOAL_EFENCED); /* though nobody has taken it yet */
    assert_int_equal(made(0, &zone), SHOAL_EFENCED);
    assert_int_equal(removal(0, zone.id, 1), SHOAL_EFENCED);
    act_as(1);
    assert_int_equal(change(1, &taken), SHOAL_OK);
    assert_true(asked.answer.zone.owner.v == peers[1].v && asked.answer.zone.incarnation == 2);
    assert_int_equal(change(1, &taken), SHOAL_OK);
    act_as(0);
    zone.version = 2;
    assert_int_equal(change(0, &zone), SHOAL_EFENCED);
    zone.life = next_life(0);
    begin();
    sh_zones_change(zones, zone.life, &zone, &asked.op);
    assert_int_equal(end(), SHOAL_ENOTOWNER);
    assert_true(asked.answer.zone.owner.v == peers[1].v);
}

/* A node that the superpeers have given up has left, with an instance that no process has. */
static void a_zone_is_taken_from_who_was_given_up(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    assert_int_equal(sh_registry_give_up(superpeer.registry, peers[0], LIFE(0)), SHOAL_OK);
    act_as(1);
    zone.owner = peers[1];
    zone.life = LIFE(1);
    assert_int_equal(change(1, &zone), SHOAL_EINVAL); /* it was a zone of the other one's */
    sh_zone_former_set(&zone, peers[0], LIFE(0));
    assert_int_equal(change(1, &zone), SHOAL_OK);
}

/* The owner may give a zone to a life that is up. */
static void a_zone_is_given_away(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.owner = peers[1];
    zone.life = LIFE(1);
    assert_int_equal(change(0, &zone), SHOAL_OK);
    zone.version = 2;
    assert_int_equal(change(0, &zone), SHOAL_ENOTOWNER);
    act_as(1);
    zone.wanted = 1;
    assert_int_equal(change(1, &zone), SHOAL_OK);
    assert_true(asked.answer.zone.version == 3 && asked.answer.zone.incarnation == 2);
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    zone.version = 3;
    zone.owner = peers[0];
    zone.life = LIFE(0);
    assert_int_equal(change(1, &zone), SHOAL_ENONODE);
}

/* A life that this superpeer does not know may be newer than its registry: it is asked again until the time is
 * over. */
static void a_life_that_is_not_known_waits(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    zone.life = 77;
    begin();
    asked.op.deadline_ns = now_ns + S;
    sh_zones_new(zones, zone.life, &zone, &asked.op);
    uint64_t begun_ns = now_ns;
    assert_int_equal(end(), SHOAL_EBUSY);
    assert_true(now_ns - begun_ns >= S - HEARTBEAT && !asked.is_answered);
    /* One that has been started since is over. */
    const uint64_t lives[] = {UINT64_C(5) << 32 | 1, UINT64_C(6) << 32 | 1};
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    struct sh_zone of_dead = zone_of(0, 3);
    of_dead.life = lives[0];
    struct sh_metadata_update update = {
        .kind = SH_METADATA_ZONE_NEW, .from = peers[0], .sequence = lives[0], .zone = of_dead};
    assert_int_equal(sh_superpeer_ring_order(&superpeer, sh_zone_shard(of_dead.id), &update),
                     SHOAL_OK);
    settle();
    struct sh_node *node = sh_view_find(sh_registry_view(superpeer.registry), peers[0]);
    node->instance = lives[1];
    begin();
    of_dead.wanted = 1;
    sh_zones_change(zones, lives[0], &of_dead, &asked.op);
    assert_int_equal(end(), SHOAL_EFENCED);
    of_dead.life = lives[1];
    begin();
    sh_zones_change(zones, lives[1], &of_dead, &asked.op);
    assert_int_equal(end(), SHOAL_OK);
}

/* Only who is up becomes a backup; one that has failed may stay until another has taken its place. */
static void new_backups_are_up(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    assert_int_equal(made(0, &zone), SHOAL_ENONODE);
    zone.count = 1;
    zone.backups[0] = zone.backups[1];
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.count = 2;
    zone.backups[1] = (struct sh_zone_backup){peers[1], 7};
    assert_int_equal(change(0, &zone), SHOAL_ENONODE);
    (void)next_life(1); /* on the same disk */
    assert_int_equal(change(0, &zone), SHOAL_OK);
    sh_registry_fail(superpeer.registry, peers[1], "a test");
    zone.version = 2;
    zone.wanted = 3;
    assert_int_equal(change(0, &zone), SHOAL_OK);
    zone.version = 3;
    zone.backups[1].disk = 9; /* another disk of a node that is down */
    assert_int_equal(change(0, &zone), SHOAL_ENONODE);
    zone.count = 1;
    assert_int_equal(change(0, &zone), SHOAL_OK);
}

static void a_zone_is_made_by_its_creator(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    zone.id = sh_zone_id(peers[1], 1);
    assert_int_equal(made(0, &zone), SHOAL_EINVAL);
    zone.id = sh_zone_id(peers[0], 1);
    sh_zone_former_set(&zone, peers[1], LIFE(1));
    assert_int_equal(made(0, &zone), SHOAL_EINVAL); /* a new one is nobody's that failed */
}

/* Where records may be missing, their zones' owners register them again, in any order. A new zone's number is above
 * all, there too. */
static void lost_records_are_registered_again(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 5), own = zone_of(0, 3), taken = zone_of(1, 4);
    own.version = own.incarnation = taken.version = taken.incarnation = SH_ZONE_JUMP + 1;
    taken.id = sh_zone_id(peers[0], 4);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    assert_int_equal(made(0, &own), SHOAL_ECANCELED); /* nothing is missing */
    superpeer.registry->arcs.shards[sh_zone_shard(zone.id)].origin = SH_ORIGIN_PEERS;
    assert_int_equal(made(0, &own), SHOAL_OK);
    assert_true(asked.answer.is_doubtful && asked.answer.last == 5);
    assert_true(asked.answer.zone.version == SH_ZONE_JUMP + 1);
    zone.id = sh_zone_id(peers[0], 2);
    assert_int_equal(made(0, &zone), SHOAL_ECANCELED);
    act_as(1);
    assert_int_equal(made(1, &taken), SHOAL_OK);
    assert_true(asked.answer.zone.owner.v == peers[1].v);
    taken.version = SH_ZONE_JUMP;
    taken.id = sh_zone_id(peers[0], 1);
    assert_int_equal(made(1, &taken), SHOAL_EINVAL);
}

static struct {
    struct sh_request request;
    unsigned done;
    enum shoal_err err, result;
} raw;

static void raw_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    raw.done++;
    raw.err = err;
    (void)sh_get16(payload);
    raw.result = err ? SHOAL_OK : (enum shoal_err)sh_get16(payload);
}

/* Sends an update as another superpeer, or as whoever it says. */
static enum shoal_err raw_ask(struct sh_msg *from, struct sh_metadata_update *update)
{
    uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_out out;
    sh_metadata_update_put(&w, update);
    memset(&raw, 0, sizeof raw);
    raw.request = (struct sh_request){.done = raw_done};
    size_t size = (size_t)(w.at - bytes);
    assert_int_equal(
        sh_msg_request(from, (shoal_nid){OWN}, SH_CLUSTER_ZONE, size, &raw.request, &out),
        SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(from, &out);
    carry();
    settle();
    assert_int_equal(raw.done, 1);
    return raw.err ? raw.err : raw.result;
}

/* Superpeers say what they coordinate: that a zone is lost, whoever owned it. Nobody speaks for another, and only
 * the superpeer says that an update need not be its owner's. */
static void who_speaks_for_others(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.flags = SH_ZONE_LOST;
    struct sh_metadata_update update = {
        .kind = SH_METADATA_ZONE_CHANGE, .from = {OTHER}, .sequence = 5, .zone = zone};
    assert_int_equal(raw_ask(other, &update), SHOAL_OK);
    assert_int_equal(get(zone.id), SHOAL_OK);
    assert_int_equal(asked.answer.zone.flags, SH_ZONE_LOST);
    update.zone.version = 2;
    update.from = peers[0];
    update.sequence = LIFE(0);
    assert_int_equal(raw_ask(other, &update), SHOAL_EINVAL);
    update.condition = SH_ZONE_BY_OTHER;
    assert_int_equal(raw_ask(asker, &update), SHOAL_EPROTO);
    update.condition = SH_ZONE_BY_OWNER;
    assert_int_equal(raw_ask(asker, &update), SHOAL_OK);
}

/* A superpeer names the owner that recovers a zone, once the owner's life is over, and that owner says when the zone
 * is recovered. */
static void a_superpeer_names_who_recovers(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    assert_int_equal(made(0, &zone), SHOAL_OK);
    zone.owner = peers[1];
    zone.life = LIFE(1);
    sh_zone_former_set(&zone, peers[0], LIFE(0));
    struct sh_metadata_update update = {
        .kind = SH_METADATA_ZONE_CHANGE, .from = {OTHER}, .sequence = 5, .zone = zone};
    assert_int_equal(raw_ask(other, &update), SHOAL_ENOTOWNER); /* the owner is up */
    sh_registry_fail(superpeer.registry, peers[0], "a test");
    update.zone.life = 77;
    assert_int_equal(raw_ask(other, &update), SHOAL_EBUSY);
    update.zone.life = LIFE(1);
    assert_int_equal(raw_ask(other, &update), SHOAL_OK);
    assert_int_equal(raw_ask(other, &update), SHOAL_OK);
    update.zone.version = 2;
    sh_zone_former_set(&update.zone, SHOAL_NID_NONE, 0);
    assert_int_equal(raw_ask(other, &update), SHOAL_EINVAL);
    act_as(1);
    zone.version = 2;
    sh_zone_former_set(&zone, SHOAL_NID_NONE, 0);
    assert_int_equal(change(1, &zone), SHOAL_OK);
    assert_true(asked.answer.zone.incarnation == 2 && !asked.answer.zone.former.v);
}

/* --- Lists ----------------------------------------------------------------------------------- */

static struct {
    struct sh_zone_list list;
    unsigned done, count;
    enum shoal_err err;
    uint64_t sum;
} listed;

static void listed_each(struct sh_zone_list *list, const struct sh_zone *zone)
{
    assert_ptr_equal(list, &listed.list);
    listed.count++;
    listed.sum += sh_zone_number(zone->id);
}

static void listed_done(struct sh_zone_list *list, enum shoal_err err)
{
    assert_false(list->is_doubtful);
    listed.done++;
    listed.err = err;
}

static unsigned list(enum sh_zones_of by, shoal_nid nid, uint64_t disk_id)
{
    memset(&listed, 0, sizeof listed);
    listed.list = (struct sh_zone_list){.each = listed_each, .done = listed_done};
    sh_zones_list(zones, by, nid, disk_id, &listed.list);
    assert_int_equal(listed.done, 0);
    for (unsigned i = 0; i < 200 && !listed.done; i++)
        step(HEARTBEAT / 10);
    assert_int_equal(listed.done, 1);
    assert_int_equal(listed.err, SHOAL_OK);
    return listed.count;
}

/* More than fit into a page, and more than are looked at at once. */
static void lists_have_many_pages(void **state)
{
    (void)state;
    const unsigned many = 5000;
    for (unsigned peer = 0; peer < 2; peer++) {
        struct sh_zone zone = zone_of(peer, 1);
        for (unsigned i = 1; i <= many; i++) {
            zone.id = sh_zone_id(peers[peer], i);
            zone.count = 1 + (i % 2);
            zone.backups[1].disk = i % 1000 ? 8 : OTHER_DISK;
            struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_NEW,
                                                .from = peers[peer],
                                                .sequence = LIFE(peer),
                                                .zone = zone};
            struct sh_metadata_result result =
                sh_metadata_apply(superpeer.ring->metadata, sh_zone_shard(zone.id), &update);
            assert_int_equal(result.err, SHOAL_OK);
        }
    }
    const uint64_t sum = (uint64_t)many * (many + 1) / 2;
    assert_int_equal(list(SH_ZONES_OF_CREATOR, peers[0], 0), many);
    assert_true(listed.sum == sum);
    assert_int_equal(list(SH_ZONES_OF_OWNER, peers[1], 0), many);
    assert_true(listed.sum == sum);
    assert_int_equal(list(SH_ZONES_OF_BACKUP, peers[1], 0), 2 * many);
    assert_true(listed.sum == 2 * sum);
    assert_int_equal(list(SH_ZONES_OF_BACKUP, peers[0], 0), many); /* each second one */
    assert_int_equal(list(SH_ZONES_OF_BACKUP, peers[1], 8), 0);
    assert_int_equal(list(SH_ZONES_OF_BACKUP, peers[1], 7), 2 * many);
    assert_int_equal(list(SH_ZONES_OF_BACKUP, SHOAL_NID_NONE, 8), many);
    assert_int_equal(list(SH_ZONES_OF_FORMER, peers[0], 0), many);
    assert_int_equal(list(SH_ZONES_OF_OWNER, (shoal_nid){200}, 0), 0);
    /* One that another peer recovers, and one whose owner is another life. */
    struct sh_zone zone = zone_of(0, 7);
    zone.owner = peers[1];
    zone.count = 2;
    sh_zone_former_set(&zone, peers[0], LIFE(0));
    for (unsigned i = 0; i < 2; i++) {
        struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_CHANGE,
                                            .condition = SH_ZONE_BY_OTHER,
                                            .from = {OTHER},
                                            .sequence = 1,
                                            .zone = zone};
        assert_int_equal(
            sh_metadata_apply(superpeer.ring->metadata, sh_zone_shard(zone.id), &update).err,
            SHOAL_OK);
        zone = zone_of(0, 8);
        zone.life++;
    }
    assert_int_equal(list(SH_ZONES_OF_FORMER, peers[0], 0), many);
    assert_true(listed.sum == sum);
    assert_int_equal(list(SH_ZONES_OF_OWNER, peers[0], 0), many - 1);
    assert_int_equal(list(SH_ZONES_OF_CREATOR, (shoal_nid){200}, 0), 0);
    /* One that it was bringing back when it failed, until that is another one's. */
    assert_int_equal(list(SH_ZONES_OF_FORMER, peers[1], 0), many + 1);
    zone = zone_of(0, 7);
    zone.version = 2;
    sh_zone_former_set(&zone, peers[0], LIFE(0));
    zone.owner = (shoal_nid){peers[1].v + 100};
    const struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_CHANGE,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = {OTHER},
                                              .sequence = 1,
                                              .zone = zone};
    assert_int_equal(
        sh_metadata_apply(superpeer.ring->metadata, sh_zone_shard(zone.id), &update).err, SHOAL_OK);
    assert_int_equal(list(SH_ZONES_OF_FORMER, peers[1], 0), many);
    assert_int_equal(list(SH_ZONES_OF_OWNER, peers[1], 0), many);
}

/* --- Superpeers that are to be asked ---------------------------------------------------------- */

static struct {
    unsigned count, busy;
    bool is_silent;
    shoal_nid points_to;
} there;

/* The other superpeer owns nothing. */
static void on_zone_there(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    there.count++;
    if (there.is_silent)
        return;
    if (there.busy) {
        there.busy--;
        sh_msg_reply_error(other, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    assert_int_equal(sh_msg_reply(other, in->reply_to, in->type, SH_ZONE_ANSWER_BYTES, &out),
                     SHOAL_OK);
    sh_put16(&out.w, there.points_to.v);
    for (unsigned i = 2; i < SH_ZONE_ANSWER_BYTES; i++)
        sh_put8(&out.w, 0);
    sh_msg_end(other, &out);
}

static void there_begin(void)
{
    memset(&there, 0, sizeof there);
    there.points_to.v = OWN;
    sh_msg_handler_set(other, SH_CLUSTER_ZONE, SH_MSG_INLINE, on_zone_there, NULL);
    sh_msg_handler_set(other, SH_CLUSTER_ZONE_GET, SH_MSG_INLINE, on_zone_there, NULL);
    for (unsigned i = 0; i < 64; i++)
        sh_directory_superpeer_set(directory, (shoal_nid){(uint16_t)(64 + i)}, (shoal_nid){OTHER});
}

static void another_superpeer_is_asked(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    there_begin();
    there.busy = 3;
    assert_int_equal(made(0, &zone), SHOAL_OK);
    assert_int_equal(there.count, 4);
    assert_int_equal(get(zone.id), SHOAL_OK); /* it has been told whom to ask */
    assert_int_equal(there.count, 4);
}

/* Two superpeers that name each other, while a shard changes hands, are not asked without a pause. */
static void they_may_point_at_each_other(void **state)
{
    (void)state;
    there_begin();
    there.points_to.v = OTHER;
    begin();
    asked.op.deadline_ns = now_ns + S;
    sh_zones_get(zones, sh_zone_id(peers[0], 1), &asked.op);
    assert_int_equal(end(), SHOAL_EBUSY);
    assert_in_range(there.count, 10, 60);
}

/* Nobody knows whether a superpeer that says nothing has carried it out. */
static void silence_is_unclear(void **state)
{
    (void)state;
    struct sh_zone zone = zone_of(0, 1);
    there_begin();
    there.is_silent = true;
    begin();
    asked.op.deadline_ns = now_ns + 5 * S;
    sh_zones_new(zones, LIFE(0), &zone, &asked.op);
    uint64_t begun_ns = now_ns;
    assert_int_equal(end(), SHOAL_ETIMEOUT);
    assert_false(asked.is_answered);
    assert_in_range(there.count, 4, 5); /* one after the other */
    assert_true(now_ns - begun_ns <= 5 * S + HEARTBEAT);
    begin();
    sh_zones_get(zones, zone.id, &asked.op);
    step(HEARTBEAT);
    sh_zones_destroy(zones);
    zones = NULL;
    assert_int_equal(asked.done, 1);
    assert_int_equal(asked.err, SHOAL_ESTOPPED);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
#define CASE(name) cmocka_unit_test_setup_teardown(name, zones_setup, zones_teardown)
    const struct CMUnitTest tests[] = {
        CASE(a_zone_is_made_changed_and_removed),
        CASE(a_zone_outlives_its_superpeer),
        CASE(a_zone_is_stored_before_it_is_answered),
        CASE(a_zone_is_taken_from_who_is_gone),
        CASE(a_zone_is_taken_from_who_was_given_up),
        CASE(a_zone_is_given_away),
        CASE(a_life_that_is_not_known_waits),
        CASE(new_backups_are_up),
        CASE(a_zone_is_made_by_its_creator),
        CASE(lost_records_are_registered_again),
        CASE(who_speaks_for_others),
        CASE(a_superpeer_names_who_recovers),
        CASE(lists_have_many_pages),
        CASE(another_superpeer_is_asked),
        CASE(they_may_point_at_each_other),
        CASE(silence_is_unclear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
