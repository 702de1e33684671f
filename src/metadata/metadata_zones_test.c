/* A shard's zones beside a slow, obvious model: zones that are made, changed, removed and asked for again;
 * images; shards that go on from an old copy; bytes that are no record.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "metadata/image_test.h"
#include "metadata/metadata.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "ring/arcs.h"

#define ROUNDS 30000
#define CREATORS 3
#define NUMBERS 40
#define NODES 6
#define NODE 100 /* the first of those that own zones or have backups */

static uint64_t seed, draws;

static uint64_t below(uint64_t bound)
{
    return test_draw(&draws) % bound;
}

struct model {
    bool is_there[CREATORS][NUMBERS], is_old[CREATORS][NUMBERS];
    struct sh_zone zones[CREATORS][NUMBERS];
    uint64_t lasts[CREATORS];
};

static shoal_nid creator_of(unsigned at)
{
    return (shoal_nid){(uint16_t)(64 + at)};
}

static struct sh_zone zone_make(unsigned creator, uint64_t number, unsigned node, unsigned backups)
{
    struct sh_zone zone = {.id = sh_zone_id(creator_of(creator), number),
                           .owner = {(uint16_t)(NODE + node)},
                           .life = 1 + node % 2,
                           .incarnation = 1,
                           .version = 1,
                           .wanted = 3,
                           .count = (uint8_t)backups};
    for (unsigned i = 0; i < backups; i++)
        zone.backups[i] =
            (struct sh_zone_backup){{(uint16_t)(NODE + (node + 1 + i) % NODES)}, 70 + i};
    return zone;
}

/* An update goes as bytes, as it does between superpeers. */
static enum shoal_err apply(struct sh_metadata *metadata, const struct sh_metadata_update *update)
{
    static struct sh_metadata_update got;
    uint8_t bytes[256];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    unsigned shard = update->kind == SH_METADATA_RESTORED ? sh_arc_shard(creator_of(0))
                                                          : sh_metadata_shard(update);
    sh_metadata_update_put(&w, update);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(
        sh_metadata_update_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), shard, &got),
        SHOAL_OK);
    return sh_metadata_apply(metadata, shard, &got).err;
}

static struct sh_metadata_update update_of(uint8_t kind, const struct sh_zone *zone)
{
    return (struct sh_metadata_update){
        .kind = kind, .from = zone->owner, .sequence = zone->life, .zone = *zone};
}

static struct sh_metadata *fresh(void)
{
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        sh_metadata_begin(metadata, i, 7 + i, true);
    return metadata;
}

/* All shards go as images to another one, which is then the same. */
static struct sh_metadata *copied(struct sh_metadata *metadata)
{
    struct sh_metadata *copy;
    assert_int_equal(sh_metadata_create(&copy), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        size_t size = image_size(metadata, i);
        uint8_t *bytes = malloc(size);
        assert_non_null(bytes);
        struct sh_writer w = sh_writer_make(bytes, size);
        image_put(metadata, i, &w);
        assert_int_equal(image_get(copy, i, sh_bytes_make(bytes, size)), SHOAL_OK);
        assert_int_equal(image_size(copy, i), size);
        free(bytes);
    }
    sh_metadata_destroy(metadata);
    return copy;
}

/* --- The model ------------------------------------------------------------------------------- */

static void act_new(struct sh_metadata *metadata, struct model *model, unsigned creator)
{
    uint64_t last = model->lasts[creator];
    unsigned number = (unsigned)(1 + below(last + 2 < NUMBERS ? last + 2 : NUMBERS - 1));
    struct sh_zone zone = zone_make(creator, number, (unsigned)below(NODES), (unsigned)below(5));
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    const struct sh_zone *there = &model->zones[creator][number];
    enum shoal_err expected = SHOAL_OK;
    if (model->is_there[creator][number])
        expected =
            there->owner.v == zone.owner.v && there->life == zone.life ? SHOAL_OK : SHOAL_EEXIST;
    else if (number <= last)
        expected = SHOAL_ECANCELED;
    assert_int_equal(apply(metadata, &update), expected);
    if (expected || model->is_there[creator][number])
        return;
    model->is_there[creator][number] = true;
    model->is_old[creator][number] = false;
    model->zones[creator][number] = zone;
    model->lasts[creator] = number;
}

/* Draws what a zone is to be, from what it is. */
static struct sh_zone drawn(const struct sh_zone *from)
{
    struct sh_zone zone = *from;
    struct sh_zone other = zone_make(0, 1, (unsigned)below(NODES), (unsigned)below(5));
    shoal_nid creator = sh_zone_creator(from->id);
    switch (below(8)) {
    case 0:
        zone.owner = other.owner;
        zone.life = other.life;
        break;
    case 6:
        if (!zone.former.v && below(4))
            sh_zone_former_set(&zone, zone.owner, below(8) ? zone.life : zone.life + 1);
        zone.owner = other.owner;
        zone.life = other.life;
        break;
    case 7:
        if (below(2))
            sh_zone_former_set(&zone, SHOAL_NID_NONE, 0);
        else
            sh_zone_former_set(&zone, other.owner, other.life);
        break;
    case 1:
        zone.count = other.count;
        memcpy(zone.backups, other.backups, sizeof zone.backups);
        break;
    case 2:
        zone.flags |= SH_ZONE_CONCLUDED;
        zone.first = below(3) ? shoal_cid_make(creator, below(3)) : SHOAL_CID_NONE;
        zone.last = zone.first.v ? shoal_cid_make(creator, 2 + below(3)) : SHOAL_CID_NONE;
        break;
    case 3:
        zone.flags ^= SH_ZONE_LOST;
        break;
    case 4:
        zone.flags &= (uint8_t)~SH_ZONE_CONCLUDED;
        zone.first = zone.last = SHOAL_CID_NONE;
        break;
    default:
        zone.wanted = (uint8_t)below(5);
    }
    if (!below(8))
        sh_zone_older_set(&zone, (uint32_t)below(4));
    return zone;
}

static bool are_bounds_kept(const struct sh_zone *old, const struct sh_zone *zone)
{
    return !(old->flags & SH_ZONE_CONCLUDED) ||
           (zone->flags & SH_ZONE_CONCLUDED && zone->first.v == old->first.v &&
            zone->last.v == old->last.v);
}

/* Whether the former owner stays, is the owner that the zone is taken from, or is taken out by the owner. */
static bool is_former_sound(const struct sh_zone *old, const struct sh_zone *zone, bool is_owner)
{
    bool is_taken = old->owner.v != zone->owner.v;
    bool is_new_life = !is_taken && old->life != zone->life;
    bool stays = zone->former.v == old->former.v && zone->former_life == old->former_life;
    if (old->former.v)
        return stays || (is_owner && !zone->former.v);
    if (is_taken || is_new_life)
        return (zone->former.v == old->owner.v && zone->former_life == old->life) ||
               (stays && (is_owner || is_new_life));
    return stays;
}

static bool has_other_holders(const struct sh_zone *old, const struct sh_zone *zone)
{
    if (old->owner.v != zone->owner.v || old->life != zone->life || old->count != zone->count)
        return true;
    for (unsigned i = 0; i < zone->count; i++)
        if (old->backups[i].nid.v != zone->backups[i].nid.v ||
            old->backups[i].disk != zone->backups[i].disk)
            return true;
    return false;
}

static void act_change(struct sh_metadata *metadata, struct model *model, unsigned creator)
{
    unsigned number = (unsigned)(1 + below(NUMBERS - 1));
    struct sh_zone *there = &model->zones[creator][number];
    bool is_there = model->is_there[creator][number], *is_old = &model->is_old[creator][number];
    struct sh_zone from = is_there ? *there : zone_make(creator, number, 0, 1);
    struct sh_zone asked = drawn(&from);
    bool is_higher = !below(4);
    asked.version += !below(6);
    asked.incarnation += is_higher;
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_CHANGE, &asked);
    if (below(4)) { /* as the owner that the record names, or as any life */
        update.from = from.owner;
        update.sequence = from.life;
    }
    update.condition = below(8) ? SH_ZONE_BY_OWNER : SH_ZONE_BY_OTHER;
    bool is_owner = update.from.v == from.owner.v && update.sequence == from.life;
    enum shoal_err expected = SHOAL_OK;
    if (!is_there)
        expected = SHOAL_ENONAME;
    else if (asked.version != from.version)
        expected = SHOAL_EDIFFERS;
    else if (!is_owner && update.condition == SH_ZONE_BY_OWNER)
        expected = SHOAL_ENOTOWNER;
    else if (!are_bounds_kept(&from, &asked) || !is_former_sound(&from, &asked, is_owner))
        expected = SHOAL_EINVAL;
    assert_int_equal(apply(metadata, &update), expected);
    if (expected)
        return;
    uint32_t step = *is_old ? SH_ZONE_JUMP : 1;
    *there = asked;
    sh_zone_older_set(there, asked.older > from.older ? asked.older : from.older);
    there->version = from.version + step;
    bool rises = has_other_holders(&from, &asked) || *is_old || (is_higher && is_owner);
    there->incarnation = from.incarnation + (rises ? step : 0);
    *is_old = false;
    /* Once more: it was done. */
    assert_int_equal(sh_metadata_zone_look(metadata, &update), SHOAL_OK);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
}

static void act_remove(struct sh_metadata *metadata, struct model *model, unsigned creator)
{
    unsigned number = (unsigned)(1 + below(NUMBERS - 1));
    bool *is_there = &model->is_there[creator][number];
    struct sh_zone zone =
        *is_there ? model->zones[creator][number] : zone_make(creator, number, 0, 1);
    zone.version += !below(4);
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_REMOVE, &zone);
    enum shoal_err expected = number <= model->lasts[creator] ? SHOAL_OK : SHOAL_ENONAME;
    if (*is_there && zone.version != model->zones[creator][number].version)
        expected = SHOAL_EDIFFERS;
    if (*is_there && !expected && !below(4)) {
        update.sequence += 2;
        expected = SHOAL_ENOTOWNER;
    }
    assert_int_equal(apply(metadata, &update), expected);
    if (!expected)
        *is_there = false;
}

/* What was written before an old copy took a shard's place is old; its last numbers are as the copy has them. */
static void act_restore(struct sh_metadata *metadata, struct model *model)
{
    unsigned shard = sh_arc_shard(creator_of(0));
    struct sh_metadata_update update = {.kind = SH_METADATA_RESTORED,
                                        .sequence = test_draw(&draws) | 1};
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    for (unsigned i = 0; i < CREATORS; i++)
        for (unsigned k = 0; sh_arc_shard(creator_of(i)) == shard && k < NUMBERS; k++)
            model->is_old[i][k] = true;
}

static void check_zone(const struct sh_metadata *metadata, const struct model *model,
                       unsigned creator, unsigned number, size_t *there)
{
    struct sh_zone zone;
    bool is_there = sh_metadata_zone(metadata, sh_zone_id(creator_of(creator), number), &zone);
    assert_int_equal(is_there, model->is_there[creator][number]);
    if (!is_there)
        return;
    const struct sh_zone *expected = &model->zones[creator][number];
    ++*there;
    assert_true(sh_zone_is_same(&zone, expected));
    assert_int_equal(zone.older, expected->older);
    assert_int_equal(zone.version, expected->version);
    assert_int_equal(zone.incarnation, expected->incarnation);
    assert_int_equal((zone.flags & SH_ZONE_OLD) != 0, model->is_old[creator][number]);
}

static void check(const struct sh_metadata *metadata, const struct model *model)
{
    size_t there = 0, listed = 0, refs = 0, refs_expected = 0;
    for (unsigned i = 0; i < CREATORS; i++) {
        assert_true(sh_metadata_zone_last(metadata, creator_of(i)) == model->lasts[i]);
        for (unsigned k = 1; k < NUMBERS; k++) {
            check_zone(metadata, model, i, k, &there);
            refs_expected +=
                model->is_there[i][k] &&
                (model->zones[i][k].owner.v == NODE || model->zones[i][k].former.v == NODE ||
                 sh_zone_has_backup(&model->zones[i][k], (shoal_nid){NODE}, 0));
        }
    }
    for (unsigned shard = 0; shard < SH_SHARDS; shard++) {
        struct sh_zone zone = {.id = 0};
        while (sh_metadata_zone_next(metadata, shard, zone.id, &zone))
            listed++;
        refs += sh_metadata_refs(metadata, shard, (shoal_nid){NODE}).zones;
    }
    assert_int_equal(listed, there);
    assert_int_equal(refs, refs_expected);
}

static void test_model(void **state)
{
    (void)state;
    static struct model model;
    memset(&model, 0, sizeof model);
    draws = seed;
    struct sh_metadata *metadata = fresh();
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned creator = (unsigned)below(CREATORS);
        uint64_t which = below(100);
        if (which < 10)
            act_new(metadata, &model, creator);
        else if (which < 98)
            act_change(metadata, &model, creator);
        else
            act_remove(metadata, &model, creator);
        if (below(3000) == 0)
            act_restore(metadata, &model);
        if (i % 100 == 0)
            check(metadata, &model);
        if (i % 1000 == 0)
            metadata = copied(metadata);
        if (model.lasts[creator] + 1 == NUMBERS && below(200) == 0) { /* and all over again */
            sh_metadata_destroy(metadata);
            metadata = fresh();
            memset(&model, 0, sizeof model);
        }
    }
    check(metadata, &model);
    sh_metadata_destroy(metadata);
}

/* --- Stories --------------------------------------------------------------------------------- */

/* A life that owned a zone has no say once another one does, even if it knows the version. */
static void test_a_former_owner_changes_nothing(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(0, 1, 0, 2), there;
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    struct sh_zone taken = zone;
    taken.owner.v = NODE + 3;
    taken.life = 9;
    sh_zone_former_set(&taken, zone.owner, zone.life);
    update = update_of(SH_METADATA_ZONE_CHANGE, &taken);
    assert_int_equal(apply(metadata, &update), SHOAL_ENOTOWNER); /* nobody has seen to it */
    update.condition = SH_ZONE_BY_OTHER;
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    struct sh_metadata_update late = update_of(SH_METADATA_ZONE_CHANGE, &zone);
    late.zone.count = 1;
    assert_int_equal(apply(metadata, &late), SHOAL_EDIFFERS);
    late.zone.version = 2;
    assert_int_equal(apply(metadata, &late), SHOAL_ENOTOWNER);
    late.zone.owner = zone.owner; /* back to itself */
    late.zone.life = zone.life + 1;
    late.sequence = zone.life;
    assert_int_equal(apply(metadata, &late), SHOAL_ENOTOWNER);
    late = update_of(SH_METADATA_ZONE_REMOVE, &zone);
    late.zone.version = 2;
    assert_int_equal(apply(metadata, &late), SHOAL_ENOTOWNER);
    assert_true(sh_metadata_zone(metadata, zone.id, &there));
    assert_int_equal(there.owner.v, NODE + 3);
    assert_int_equal(there.incarnation, 2);
    sh_metadata_destroy(metadata);
}

/* The record says whose zone it was until the owner has recovered it, whoever takes it from whom meanwhile. */
static void test_a_former_owner_stays_until_recovered(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(0, 1, 0, 2), there;
    const shoal_nid first = zone.owner, second = {NODE + 3}, third = {NODE + 4};
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    unsigned shard = sh_metadata_shard(&update);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    update.kind = SH_METADATA_ZONE_CHANGE;
    update.condition = SH_ZONE_BY_OTHER;
    update.from.v = 5; /* a superpeer */
    update.zone.owner = second;
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL);
    sh_zone_former_set(&update.zone, third, zone.life);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL);
    sh_zone_former_set(&update.zone, first, zone.life + 1);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL); /* another life of it */
    sh_zone_former_set(&update.zone, first, zone.life);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    assert_int_equal(sh_metadata_refs(metadata, shard, first).zones, 1);
    update.zone.version = 2;
    update.zone.owner = third;
    sh_zone_former_set(&update.zone, second, zone.life);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL);
    sh_zone_former_set(&update.zone, first, zone.life + 1);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL);
    sh_zone_former_set(&update.zone, first, zone.life);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    assert_int_equal(sh_metadata_refs(metadata, shard, second).zones, 0);
    update.zone.version = 3;
    update.zone.flags |= SH_ZONE_AGAIN | SH_ZONE_TAKEN;
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    update.zone.version = 4;
    update.zone.owner = second;
    update.zone.flags &= (uint8_t)~SH_ZONE_AGAIN;
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL); /* others stay out until it is back */
    update.zone.flags ^= SH_ZONE_AGAIN | SH_ZONE_TAKEN;
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL); /* nor is it told otherwise */
    update.zone.owner = third;
    sh_zone_former_set(&update.zone, SHOAL_NID_NONE, 0);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL); /* the superpeer cannot know */
    metadata = copied(metadata);
    assert_true(sh_metadata_zone(metadata, zone.id, &there));
    assert_true(there.former.v == first.v && there.former_life == zone.life &&
                there.flags == (SH_ZONE_FORMER | SH_ZONE_AGAIN | SH_ZONE_TAKEN));
    update.from = third;
    update.sequence = zone.life;
    update.condition = SH_ZONE_BY_OWNER;
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    assert_int_equal(sh_metadata_refs(metadata, shard, first).zones, 0);
    assert_int_equal(sh_metadata_refs(metadata, shard, second).zones, 0);
    assert_true(sh_metadata_zone(metadata, zone.id, &there));
    assert_true(there.owner.v == third.v && !there.former.v && there.incarnation == 3 &&
                !there.flags);
    update.zone.version = 5;
    sh_zone_former_set(&update.zone, first, zone.life);
    assert_int_equal(apply(metadata, &update), SHOAL_EINVAL); /* and not again */
    sh_metadata_destroy(metadata);
}

/* A NEW that arrives after its zone was removed makes no zone of that ID again. */
static void test_an_id_is_used_once(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(1, 5, 0, 2), there;
    struct sh_metadata_update made = update_of(SH_METADATA_ZONE_NEW, &zone);
    struct sh_metadata_update removed = update_of(SH_METADATA_ZONE_REMOVE, &zone);
    assert_int_equal(apply(metadata, &removed), SHOAL_ENONAME);
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    assert_int_equal(apply(metadata, &removed), SHOAL_OK);
    metadata = copied(metadata);
    assert_int_equal(apply(metadata, &removed), SHOAL_OK);
    assert_int_equal(apply(metadata, &made), SHOAL_ECANCELED);
    assert_false(sh_metadata_zone(metadata, zone.id, &there));
    assert_true(sh_metadata_zone_last(metadata, creator_of(1)) == 5);
    made.zone.id = sh_zone_id(creator_of(1), 4);
    assert_int_equal(apply(metadata, &made), SHOAL_ECANCELED);
    sh_metadata_destroy(metadata);
}

/* But a record that was lost is made again, in any order, and numbers of new zones stay above all. */
static void test_a_lost_record_is_made_again(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(1, 5, 0, 2), there;
    struct sh_metadata_update made = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    made.condition = SH_ZONE_BY_OTHER;
    made.zone.version = made.zone.incarnation = SH_ZONE_JUMP + 3;
    for (uint64_t number = 4; number > 2; number--) {
        made.zone.id = sh_zone_id(creator_of(1), number);
        assert_int_equal(apply(metadata, &made), SHOAL_OK);
        assert_true(sh_metadata_zone(metadata, made.zone.id, &there));
        assert_true(there.version == SH_ZONE_JUMP + 3 && there.incarnation == SH_ZONE_JUMP + 3);
        assert_true(sh_metadata_zone_last(metadata, creator_of(1)) == 5);
    }
    made.zone.id = sh_zone_id(creator_of(1), 9);
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    metadata = copied(metadata);
    assert_true(sh_metadata_zone_last(metadata, creator_of(1)) == 9);
    made.condition = SH_ZONE_BY_OWNER;
    made.zone.id = sh_zone_id(creator_of(1), 7);
    assert_int_equal(apply(metadata, &made), SHOAL_ECANCELED);
    sh_metadata_destroy(metadata);
}

/* A repeated NEW is answered with what the first one made, and what became of it since. */
static void test_a_repeated_new_changes_nothing(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(0, 1, 0, 2), there;
    struct sh_metadata_update made = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    made.zone.count = 1;
    assert_int_equal(apply(metadata, &made), SHOAL_OK);
    assert_true(sh_metadata_zone(metadata, zone.id, &there) && there.count == 2);
    made.zone.life = made.sequence = zone.life + 1;
    assert_int_equal(apply(metadata, &made), SHOAL_EEXIST);
    sh_metadata_destroy(metadata);
}

/* Numbers do not begin anew, and the record says so itself. */
static void test_numbers_end(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(0, 1, 0, 2);
    zone.version = UINT32_MAX;
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    update.kind = SH_METADATA_ZONE_CHANGE;
    update.zone.count = 1;
    assert_int_equal(apply(metadata, &update), SHOAL_ELIMIT);
    zone = zone_make(0, 2, 0, 2);
    zone.incarnation = UINT32_MAX;
    update = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    update.kind = SH_METADATA_ZONE_CHANGE;
    update.zone.count = 1;
    assert_int_equal(apply(metadata, &update), SHOAL_ELIMIT);
    update.zone.count = 2;
    update.zone.wanted = 4; /* of no concern to backups */
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    sh_metadata_destroy(metadata);
}

/* --- Bytes ----------------------------------------------------------------------------------- */

static enum shoal_err read_back(const struct sh_zone *zone, uint8_t flags)
{
    uint8_t bytes[SH_ZONE_BYTES_MAX];
    struct sh_zone got;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_zone_put(&w, zone);
    assert_true(sh_writer_ok(&w));
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    enum shoal_err err = sh_zone_get(&r, flags, &got);
    if (!err)
        assert_true(sh_reader_done(&r) && sh_zone_is_same(&got, zone) && got.older == zone->older);
    return err;
}

static void test_what_is_no_record(void **state)
{
    (void)state;
    const uint8_t both = SH_ZONE_CONCLUDED | SH_ZONE_LOST;
    uint8_t bytes[SH_ZONE_BYTES_MAX];
    struct sh_zone zone = zone_make(0, 3, 0, 4);
    assert_int_equal(read_back(&zone, both), SHOAL_OK);
    zone.flags = both;
    zone.first = shoal_cid_make(creator_of(0), 5);
    zone.last = shoal_cid_make(creator_of(0), 5);
    assert_int_equal(read_back(&zone, both), SHOAL_OK);
    assert_int_equal(read_back(&zone, SH_ZONE_LOST), SHOAL_EPROTO);
#define BAD(change)                                                                                \
    do {                                                                                           \
        struct sh_zone good = zone;                                                                \
        change;                                                                                    \
        assert_int_equal(read_back(&zone, both), SHOAL_EPROTO);                                    \
        zone = good;                                                                               \
    } while (0)
    BAD(zone.id = sh_zone_id(creator_of(0), 0));
    BAD(zone.id = sh_zone_id((shoal_nid){3}, 3));
    BAD(zone.owner.v = 63);
    BAD(zone.life = 0);
    BAD(zone.incarnation = 0);
    BAD(zone.version = 0);
    BAD(zone.flags |= SH_ZONE_OLD);
    BAD(zone.flags |= 128);
    BAD(sh_zone_former_set(&zone, creator_of(1), 7));
    BAD(zone.wanted = SH_ZONE_BACKUPS_MAX + 1);
    BAD(zone.backups[2].disk = zone.backups[0].disk);
    BAD(zone.backups[3].disk = 0);
    BAD(zone.backups[1].nid.v = 0);
    BAD(zone.first.v = 0);
    BAD(zone.last = shoal_cid_make(creator_of(0), 4));
    BAD(zone.last = shoal_cid_make(creator_of(1), 6));
#undef BAD
    /* A record without a former owner has the bytes that it always had. */
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_zone_put(&w, &zone);
    assert_int_equal(w.at - bytes, SH_ZONE_BYTES_MAX - 14);
    sh_zone_former_set(&zone, creator_of(1), 7);
    assert_int_equal(read_back(&zone, SH_ZONE_RECORDED), SHOAL_OK);
    sh_zone_older_set(&zone, 3);
    assert_int_equal(read_back(&zone, SH_ZONE_RECORDED), SHOAL_OK);
    assert_int_equal(read_back(&zone, SH_ZONE_RECORDED & ~SH_ZONE_OLDER), SHOAL_EPROTO);
    w = sh_writer_make(bytes, sizeof bytes);
    sh_zone_put(&w, &zone);
    assert_true(sh_writer_ok(&w) && w.at == w.end);
    sh_store32(w.end - 4, 0); /* none at all has no flag */
    struct sh_zone got;
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, sizeof bytes));
    assert_int_equal(sh_zone_get(&r, SH_ZONE_RECORDED, &got), SHOAL_EPROTO);
    sh_zone_older_set(&zone, 0);
    sh_zone_former_set(&zone, (shoal_nid){3}, 7);
    assert_int_equal(read_back(&zone, SH_ZONE_RECORDED), SHOAL_EPROTO);
}

/* A snapshot's zones without their creators' last numbers, or with lower ones, is none. */
static void test_images_of_lasts(void **state)
{
    (void)state;
    unsigned shard = sh_arc_shard(creator_of(0));
    struct sh_metadata *metadata = fresh(), *copy = fresh();
    struct sh_zone zone = zone_make(0, 3, 0, 4), there;
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    uint8_t bytes[4096];
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    size_t size = image_size(metadata, shard);
    assert_true(size <= sizeof bytes);
    struct sh_writer w = sh_writer_make(bytes, size);
    image_put(metadata, shard, &w);
    /* The last item before the record of the end (9 bytes) is the number, behind its kind, sizes and node. */
    const size_t end = 9, item = 4 + 2 + 8;
    struct {
        size_t skip;
        uint8_t number;
        enum shoal_err err;
    } cases[] = {{0, 3, SHOAL_OK}, {0, 9, SHOAL_OK}, {0, 2, SHOAL_EPROTO}, {item, 3, SHOAL_EPROTO}};
    for (unsigned i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t made[sizeof bytes];
        memcpy(made, bytes, size);
        made[size - end - 8] = cases[i].number;
        memmove(made + size - end - cases[i].skip, made + size - end, end);
        size_t made_size = size - cases[i].skip;
        made[made_size - 8] -= cases[i].skip != 0; /* records */
        sh_store32(made, (uint32_t)(made_size - 4));
        sh_store32(made + 4, sh_crc32c(0, sh_bytes_make(made + 8, made_size - 8)));
        assert_int_equal(image_get(copy, shard, sh_bytes_make(made, made_size)), cases[i].err);
        assert_true(sh_metadata_zone(copy, zone.id, &there));
    }
    assert_true(sh_metadata_zone_last(copy, creator_of(0)) == 9);
    sh_metadata_destroy(metadata);
    sh_metadata_destroy(copy);
}

/* An image of the version before had no zones, and other numbers for its records. */
static void test_an_image_of_before(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh(), *copy = fresh();
    const struct sh_bytes key = sh_bytes_text("a");
    unsigned shard = sh_arc_shard_of_name(key);
    shoal_cid cid = {5};
    struct sh_bytes value;
    struct sh_metadata_update update = {.kind = SH_METADATA_NAME, .cid = cid, .name = key};
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    update = (struct sh_metadata_update){
        .kind = SH_METADATA_SCRATCH_PUT, .name = key, .value = sh_bytes_text("old")};
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    uint8_t bytes[256];
    size_t size = image_size(metadata, shard);
    assert_true(size <= sizeof bytes);
    struct sh_writer w = sh_writer_make(bytes, size);
    image_put(metadata, shard, &w);
    /* Head, name, scratch, end: the kinds of all but the name, and the version. */
    const size_t head = 12, name = head + 28, scratch = name + 4 + 1 + 8, end = scratch + 4 + 1 + 3;
    const size_t kinds[] = {head, scratch, end};
    assert_int_equal(size, end + 9);
    for (unsigned i = 0; i < 3; i++)
        bytes[kinds[i]] -= 2;
    bytes[head + 1] = 3;
    sh_store32(bytes + 4, sh_crc32c(0, sh_bytes_make(bytes + 8, size - 8)));
    assert_int_equal(image_get(copy, shard, sh_bytes_make(bytes, size)), SHOAL_OK);
    cid.v = 0;
    assert_int_equal(sh_metadata_lookup(copy, key, &cid), SHOAL_OK);
    assert_true(cid.v == 5);
    assert_int_equal(sh_metadata_scratch_get(copy, key, &value), SHOAL_OK);
    assert_int_equal(value.size, 3);
    bytes[head + 1] = 4; /* this version's number, with the other's kinds */
    sh_store32(bytes + 4, sh_crc32c(0, sh_bytes_make(bytes + 8, size - 8)));
    assert_int_equal(image_get(copy, shard, sh_bytes_make(bytes, size)), SHOAL_EPROTO);
    sh_metadata_destroy(metadata);
    sh_metadata_destroy(copy);
}

/* A million zones of one shard: what zone.h says that they take. */
static void test_a_million(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* a million updates, by one thread */
#endif
    unsigned shard = sh_arc_shard(creator_of(0));
    struct sh_metadata *metadata = fresh();
    struct sh_zone zone = zone_make(0, 1, 0, 3);
    for (uint64_t i = 1; i <= SH_METADATA_ZONES_MAX; i++) {
        zone.id = sh_zone_id(creator_of(0), i);
        struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
        assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
        update.kind = SH_METADATA_ZONE_CHANGE;
        update.zone.flags = SH_ZONE_CONCLUDED;
        update.zone.first = shoal_cid_make(creator_of(0), 100 * i);
        update.zone.last = shoal_cid_make(creator_of(0), 100 * i + 99);
        assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    }
    struct sh_metadata_sizes sizes = sh_metadata_measure(metadata, shard);
    print_message("%zu zones take %zu MiB, %zu bytes each\n", sizes.zones, sizes.bytes >> 20,
                  sizes.bytes / sizes.zones);
    assert_int_equal(sizes.zones, SH_METADATA_ZONES_MAX);
    assert_true(sizes.bytes / sizes.zones < 150);
    zone.id = sh_zone_id(creator_of(0), SH_METADATA_ZONES_MAX + 1);
    struct sh_metadata_update update = update_of(SH_METADATA_ZONE_NEW, &zone);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_ELIMIT);
    sh_metadata_destroy(metadata);
}

int main(void)
{
    seed = test_seed(UINT64_C(0x7a6f6e65));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_a_former_owner_changes_nothing),
        cmocka_unit_test(test_a_former_owner_stays_until_recovered),
        cmocka_unit_test(test_an_id_is_used_once),
        cmocka_unit_test(test_a_lost_record_is_made_again),
        cmocka_unit_test(test_a_repeated_new_changes_nothing),
        cmocka_unit_test(test_numbers_end),
        cmocka_unit_test(test_what_is_no_record),
        cmocka_unit_test(test_images_of_lasts),
        cmocka_unit_test(test_an_image_of_before),
        cmocka_unit_test(test_a_million),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
