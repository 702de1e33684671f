/* Takes of chunks whose owner has failed (SH_METADATA_TAKE), beside an array that has the note of each chunk: chunks that
 * others have stay theirs, all of an update is done or nothing, and a repetition changes nothing.
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

#define CHUNKS 3000
#define PEERS 5
#define LIVES 3
#define ZONES 6
#define CREATOR 64
#define ROUNDS 4000
#define BATCH 100

static uint64_t seed, draws;

static uint64_t below(uint64_t bound)
{
    return test_draw(&draws) % bound;
}

/* The shard's note of each chunk, and each peer's last batch. */
static struct {
    struct sh_metadata_note notes[CHUNKS];
    uint64_t sequences[PEERS];
} model;

static shoal_nid peer_of(uint64_t at)
{
    return (shoal_nid){(uint16_t)(CREATOR + at)};
}

static shoal_cid cid_of(uint64_t chunk)
{
    return shoal_cid_make((shoal_nid){CREATOR}, chunk);
}

static unsigned shard_of(void)
{
    return sh_arc_shard((shoal_nid){CREATOR});
}

static struct sh_metadata *fresh(void)
{
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, shard_of(), 7, true);
    memset(&model, 0, sizeof model);
    for (unsigned i = 0; i < CHUNKS; i++)
        model.notes[i].owner.v = CREATOR;
    return metadata;
}

/* An update goes as bytes, and is reserved, as it is between superpeers. */
static enum shoal_err apply(struct sh_metadata *metadata, const struct sh_metadata_update *update)
{
    static uint8_t bytes[SH_METADATA_BYTES_MAX];
    static struct sh_metadata_update got;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, update);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(
        sh_metadata_update_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), shard_of(), &got),
        SHOAL_OK);
    assert_int_equal(sh_metadata_reserve(metadata, shard_of(), &got), SHOAL_OK);
    return sh_metadata_apply(metadata, shard_of(), &got).err;
}

static bool are_same(const struct sh_metadata_note *a, const struct sh_metadata_note *b)
{
    return a->owner.v == b->owner.v && a->life == b->life && a->zone == b->zone &&
           a->incarnation == b->incarnation;
}

static void note(const struct sh_metadata_run *run, struct sh_metadata_note noted)
{
    for (uint64_t at = run->first.v; at <= run->last.v; at++)
        model.notes[shoal_cid_local((shoal_cid){at})] = noted;
}

/* The zone, one of the creator's, is recovered by a peer's life for that of another. */
static struct sh_metadata_update take_of(shoal_nid owner, uint64_t life, shoal_nid former,
                                         uint64_t former_life, uint64_t zone)
{
    return (struct sh_metadata_update){.kind = SH_METADATA_TAKE,
                                       .zone = {.id = sh_zone_id((shoal_nid){CREATOR}, zone),
                                                .incarnation = 1,
                                                .owner = owner,
                                                .life = life,
                                                .former = former,
                                                .former_life = former_life}};
}

static struct sh_metadata_note noted_by(const struct sh_metadata_update *take)
{
    const struct sh_zone *zone = &take->zone;
    return (struct sh_metadata_note){zone->owner, zone->life, zone->id, zone->incarnation};
}

/* Written out once more: what the former owner had, not in another life, and what was taken for the zone before. */
static void taken(const struct sh_metadata_update *take)
{
    const struct sh_zone *zone = &take->zone;
    for (size_t i = 0; i < take->count; i++) {
        uint64_t last = shoal_cid_local(take->runs[i].last);
        for (uint64_t at = shoal_cid_local(take->runs[i].first); at <= last; at++) {
            struct sh_metadata_note *is = &model.notes[at];
            bool is_former = is->owner.v == zone->former.v;
            if ((is->life && is->life != zone->former_life) || zone->flags & SH_ZONE_TAKEN)
                is_former = false;
            bool is_before = is->zone == zone->id && is->incarnation <= zone->incarnation;
            if (is_former || is_before)
                *is = noted_by(take);
        }
    }
}

/* One run moves from its owner to another peer. */
static void act_move(struct sh_metadata *metadata)
{
    uint64_t first = below(CHUNKS), last = first, most = first + 1 + below(12);
    static struct sh_metadata_update update;
    shoal_nid from = model.notes[first].owner, to = peer_of(below(PEERS));
    if (from.v == to.v)
        return;
    while (last + 1 < CHUNKS && last + 1 < most && model.notes[last + 1].owner.v == from.v)
        last++;
    update = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                         .from = from,
                                         .to = to,
                                         .sequence = ++model.sequences[from.v - CREATOR],
                                         .count = 1,
                                         .runs = {{cid_of(first), cid_of(last)}}};
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    note(&update.runs[0], (struct sh_metadata_note){.owner = to});
}

/* Into how many parts the runs are cut, as each range of them is found. */
static size_t parts_of(const struct sh_metadata_update *update)
{
    size_t parts = 0;
    for (size_t i = 0; i < update->count; i++) {
        uint64_t first = shoal_cid_local(update->runs[i].first);
        uint64_t last = shoal_cid_local(update->runs[i].last);
        for (uint64_t at = first; at <= last; at++)
            parts += at == first || !are_same(&model.notes[at], &model.notes[at - 1]);
    }
    return parts;
}

static void take_draw(struct sh_metadata_update *update)
{
    uint64_t size = below(8) ? 1 + below(60) : 1 + below(CHUNKS);
    size_t count = 1 + below(below(8) ? 16 : SH_METADATA_RUNS_MAX);
    uint64_t life = 1 + below(LIVES), former_life = life + 1 + below(LIVES);
    *update =
        take_of(peer_of(below(PEERS)), life, peer_of(below(PEERS)), former_life, 1 + below(ZONES));
    update->zone.incarnation += (uint32_t)below(3);
    update->zone.flags = below(4) ? 0 : SH_ZONE_TAKEN;
    for (uint64_t at = below(CHUNKS); at < CHUNKS && update->count < count;) {
        uint64_t last = at + below(size);
        last = last < CHUNKS ? last : CHUNKS - 1;
        update->runs[update->count++] = (struct sh_metadata_run){cid_of(at), cid_of(last)};
        at = last + 1 + below(3);
    }
}

/* Returns what came of it. */
static enum shoal_err act_take(struct sh_metadata *metadata)
{
    static struct sh_metadata_update update;
    take_draw(&update);
    enum shoal_err expected = parts_of(&update) > SH_METADATA_TAKE_MAX ? SHOAL_ETOOBIG : SHOAL_OK;
    assert_int_equal(apply(metadata, &update), expected);
    if (!expected)
        taken(&update);
    if (!expected && below(4) == 0)
        assert_int_equal(apply(metadata, &update), SHOAL_OK);
    return expected;
}

/* Each range is as long as it can be. */
static void check(const struct sh_metadata *metadata)
{
    for (uint64_t at = 0, end; at < CHUNKS; at = end) {
        struct sh_metadata_range range = sh_metadata_find(metadata, cid_of(at));
        for (end = at + 1; end < CHUNKS && are_same(&model.notes[end], &model.notes[at]);)
            end++;
        assert_true(are_same(&range.note, &model.notes[at]));
        assert_true(range.first.v == cid_of(at).v);
        if (end < CHUNKS)
            assert_true(range.last.v == cid_of(end - 1).v);
    }
    struct sh_metadata_range behind = sh_metadata_find(metadata, cid_of(CHUNKS + 5));
    assert_int_equal(behind.note.owner.v, CREATOR);
    assert_int_equal(shoal_cid_local(behind.last), SHOAL_LOCAL_ID_MAX);
}

static uint64_t digest_of(struct sh_metadata *metadata)
{
    size_t size = image_size(metadata, shard_of());
    uint8_t *bytes = malloc(size);
    assert_non_null(bytes);
    struct sh_writer w = sh_writer_make(bytes, size);
    image_put(metadata, shard_of(), &w);
    uint64_t digest = sh_hash64(sh_bytes_make(bytes, size), 1);
    free(bytes);
    return digest;
}

static void takes_are_as_the_model(void **state)
{
    (void)state;
    draws = seed;
    unsigned refused = 0;
    struct sh_metadata *metadata = fresh();
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t moves = i % 1000 < 100 ? 30 : below(3);
        for (; moves; moves--)
            act_move(metadata);
        refused += act_take(metadata) != SHOAL_OK;
        if (i % BATCH == 0)
            check(metadata);
    }
    check(metadata);
    assert_in_range(refused, 5, ROUNDS / 2);
    sh_metadata_destroy(metadata);
}

/* Of all that the creator has by default a part is taken; it goes back by a batch: then no range is left but the default one. */
static void a_creator_s_own_are_taken_and_come_back(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    static struct sh_metadata_update update, other;
    update = take_of(peer_of(2), 1, peer_of(0), 1, 1);
    update.count = 2;
    update.runs[0] = (struct sh_metadata_run){cid_of(0), cid_of(9)};
    update.runs[1] = (struct sh_metadata_run){cid_of(20), cid_of(SHOAL_LOCAL_ID_MAX)};
    other = update;
    other.zone.former = peer_of(1); /* which has nothing there */
    uint64_t before = digest_of(metadata);
    assert_int_equal(apply(metadata, &other), SHOAL_OK);
    assert_true(digest_of(metadata) == before);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    assert_int_equal(sh_metadata_find(metadata, cid_of(5)).note.owner.v, peer_of(2).v);
    assert_int_equal(sh_metadata_find(metadata, cid_of(15)).note.owner.v, peer_of(0).v);
    assert_int_equal(sh_metadata_find(metadata, cid_of(CHUNKS)).note.owner.v, peer_of(2).v);
    assert_int_equal(sh_metadata_refs(metadata, shard_of(), peer_of(2)).ranges, 2);
    update.kind = SH_METADATA_MOVE;
    update.from = peer_of(2);
    update.to = peer_of(0);
    update.sequence = 1;
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    struct sh_metadata_range range = sh_metadata_find(metadata, cid_of(5));
    assert_true(range.note.owner.v == CREATOR && !range.note.life && !range.note.zone);
    assert_int_equal(shoal_cid_local(range.last), SHOAL_LOCAL_ID_MAX);
    assert_int_equal(sh_metadata_refs(metadata, shard_of(), peer_of(2)).ranges, 0);
    sh_metadata_destroy(metadata);
}

static void run_take(struct sh_metadata *metadata, struct sh_metadata_update take, uint64_t from,
                     uint64_t to)
{
    static struct sh_metadata_update update;
    update = take;
    update.count = 1;
    update.runs[0] = (struct sh_metadata_run){cid_of(from), cid_of(to)};
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
}

static bool is_noted(const struct sh_metadata *metadata, uint64_t chunk,
                     const struct sh_metadata_update *take)
{
    const struct sh_metadata_note is = sh_metadata_find(metadata, cid_of(chunk)).note;
    const struct sh_metadata_note expected = noted_by(take);
    return are_same(&is, &expected);
}

/* Zones of two lives of a node: what the second one has taken by a recovery is not of the first one's zones, whatever these claim; what the node has otherwise is of any. */
static void lives_are_told_apart(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    /* The second life of peer 1 brings back a zone of the creator's; then others bring back zones of both of its lives. */
    const struct sh_metadata_update by_second = take_of(peer_of(1), 2, peer_of(0), 1, 1);
    const struct sh_metadata_update of_first = take_of(peer_of(2), 1, peer_of(1), 1, 2);
    const struct sh_metadata_update of_second = take_of(peer_of(3), 1, peer_of(1), 2, 3);
    run_take(metadata, by_second, 10, 19);
    run_take(metadata, of_first, 0, 29);
    assert_true(is_noted(metadata, 10, &by_second) && is_noted(metadata, 19, &by_second));
    assert_int_equal(sh_metadata_find(metadata, cid_of(9)).note.owner.v, CREATOR);
    run_take(metadata, of_second, 15, 29);
    assert_true(is_noted(metadata, 14, &by_second) && is_noted(metadata, 15, &of_second));
    assert_int_equal(sh_metadata_find(metadata, cid_of(20)).note.owner.v, CREATOR);
    /* The same node brings back a zone of its own former life. */
    const struct sh_metadata_update by_itself = take_of(peer_of(1), 3, peer_of(1), 2, 4);
    run_take(metadata, by_itself, 0, 29);
    assert_true(is_noted(metadata, 14, &by_itself) && is_noted(metadata, 15, &of_second));
    sh_metadata_destroy(metadata);
}

/* A node has brought a zone back, and is the only one that had all of it: what it has otherwise is not the zone's. */
static void only_what_was_taken_for_the_zone(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    const struct sh_metadata_update before = take_of(peer_of(1), 2, peer_of(0), 1, 1);
    const struct sh_metadata_update other = take_of(peer_of(1), 2, peer_of(0), 1, 2);
    struct sh_metadata_update next = take_of(peer_of(2), 1, peer_of(1), 2, 1);
    next.zone.flags = SH_ZONE_TAKEN;
    next.zone.incarnation = 2;
    run_take(metadata, before, 0, 9);
    run_take(metadata, other, 10, 19);
    run_take(metadata, next, 0, 29);
    assert_true(is_noted(metadata, 0, &next) && is_noted(metadata, 9, &next));
    assert_true(is_noted(metadata, 10, &other) && is_noted(metadata, 19, &other));
    next.zone.flags = 0;
    run_take(metadata, next, 0, 29);
    assert_true(is_noted(metadata, 10, &next) && is_noted(metadata, 19, &next));
    sh_metadata_destroy(metadata);
}

/* A restorer takes a part of a zone and fails: the next one takes that, and the rest. What the first one asked for comes too late then; and what it had taken for another zone stays. */
static void the_next_restorer_takes_all(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    struct sh_metadata_update first = take_of(peer_of(1), 5, peer_of(0), 1, 1);
    struct sh_metadata_update next = take_of(peer_of(2), 6, peer_of(0), 1, 1);
    const struct sh_metadata_update other = take_of(peer_of(1), 5, peer_of(0), 1, 2);
    next.zone.incarnation = 2;
    run_take(metadata, first, 0, 4);
    run_take(metadata, other, 5, 9);
    run_take(metadata, next, 0, 19);
    assert_true(is_noted(metadata, 0, &next) && is_noted(metadata, 19, &next));
    assert_true(is_noted(metadata, 5, &other) && is_noted(metadata, 9, &other));
    run_take(metadata, first, 0, 19);
    assert_true(is_noted(metadata, 0, &next) && is_noted(metadata, 19, &next));
    first.zone.incarnation = 3; /* the zone is its again */
    run_take(metadata, first, 0, 19);
    assert_true(is_noted(metadata, 0, &first) && is_noted(metadata, 5, &other));
    sh_metadata_destroy(metadata);
}

/* A batch may be cut by notes of several recoveries. */
static void what_was_taken_moves(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    static struct sh_metadata_update update;
    run_take(metadata, take_of(peer_of(1), 5, peer_of(0), 1, 1), 0, 4);
    run_take(metadata, take_of(peer_of(1), 5, peer_of(0), 1, 2), 5, 9);
    update = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                         .from = peer_of(1),
                                         .to = peer_of(2),
                                         .sequence = 1,
                                         .count = 1,
                                         .runs = {{cid_of(2), cid_of(10)}}};
    assert_int_equal(apply(metadata, &update), SHOAL_ENOTOWNER);
    update.sequence = 2;
    update.runs[0].last = cid_of(8);
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    struct sh_metadata_range range = sh_metadata_find(metadata, cid_of(5));
    assert_true(range.first.v == cid_of(2).v && range.last.v == cid_of(8).v);
    assert_true(range.note.owner.v == peer_of(2).v && !range.note.life);
    sh_metadata_destroy(metadata);
}

/* What one update may do is bounded; half of it is done, or a chunk alone. */
static void too_many_parts_are_refused_as_a_whole(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    static struct sh_metadata_update update;
    for (uint64_t i = 0; i < SH_METADATA_TAKE_MAX; i += 2) {
        update = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                             .from = peer_of(0),
                                             .to = peer_of(1),
                                             .sequence = i + 1,
                                             .count = 1,
                                             .runs = {{cid_of(i), cid_of(i)}}};
        assert_int_equal(apply(metadata, &update), SHOAL_OK);
        note(&update.runs[0], (struct sh_metadata_note){.owner = peer_of(1)});
    }
    update = take_of(peer_of(2), 1, peer_of(1), 1, 1);
    update.count = 2;
    update.runs[0] = (struct sh_metadata_run){cid_of(0), cid_of(SH_METADATA_TAKE_MAX - 1)};
    update.runs[1] = (struct sh_metadata_run){cid_of(CHUNKS), cid_of(CHUNKS)};
    uint64_t before = digest_of(metadata);
    assert_int_equal(apply(metadata, &update), SHOAL_ETOOBIG);
    assert_true(digest_of(metadata) == before);
    update.count = 1;
    assert_int_equal(apply(metadata, &update), SHOAL_OK);
    taken(&update);
    check(metadata);
    sh_metadata_destroy(metadata);
}

/* Migrations that have used up their ranges are no reason to leave a failed peer's chunks alone. */
static void takes_have_room_beside_migrations(void **state)
{
    (void)state;
    struct sh_metadata *metadata = fresh();
    static struct sh_metadata_update update;
    enum shoal_err err = SHOAL_OK;
    uint64_t at = 0, sequence = 0;
    size_t most = SH_METADATA_RUNS_MAX;
    while (most) { /* smaller batches where a larger one finds no room */
        update = (struct sh_metadata_update){
            .kind = SH_METADATA_MOVE, .from = peer_of(0), .to = peer_of(1), .sequence = ++sequence};
        for (; update.count < most; at += 2)
            update.runs[update.count++] = (struct sh_metadata_run){cid_of(at), cid_of(at)};
        err = apply(metadata, &update);
        most = err ? most / 2 : most;
    }
    assert_int_equal(err, SHOAL_ELIMIT);
    run_take(metadata, take_of(peer_of(2), 1, peer_of(0), 1, 1), at + 100, at + 200);
    assert_int_equal(sh_metadata_find(metadata, cid_of(at + 150)).note.owner.v, peer_of(2).v);
    sh_metadata_destroy(metadata);
}

static void what_is_no_take(void **state)
{
    (void)state;
    static struct sh_metadata_update update, got;
    static uint8_t bytes[SH_METADATA_BYTES_MAX];
    struct sh_metadata_update good = take_of(peer_of(2), 7, peer_of(1), 8, 3);
    good.count = 2;
    good.runs[0] = (struct sh_metadata_run){cid_of(1), cid_of(2)};
    good.runs[1] = (struct sh_metadata_run){cid_of(4), cid_of(4)};
    const size_t size = 1 + 8 + 4 + 2 * (2 + 8) + 1 + 2 + 2 * 16;
#define READ(change, expected)                                                                     \
    do {                                                                                           \
        update = good;                                                                             \
        change;                                                                                    \
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);                                  \
        sh_metadata_update_put(&w, &update);                                                       \
        struct sh_bytes put = sh_bytes_make(bytes, (size_t)(w.at - bytes));                        \
        assert_int_equal(sh_metadata_update_get(put, shard_of(), &got), expected);                 \
    } while (0)
    READ((void)0, SHOAL_OK);
    assert_true(got.count == 2 && got.zone.owner.v == peer_of(2).v && got.zone.life == 7);
    assert_true(got.zone.former.v == peer_of(1).v && got.zone.former_life == 8);
    assert_true(got.zone.id == sh_zone_id(peer_of(0), 3) && got.zone.incarnation == 1);
    assert_int_equal(sh_metadata_update_get(sh_bytes_make(bytes, size - 1), shard_of(), &got),
                     SHOAL_EPROTO);
    READ(update.zone.flags = SH_ZONE_TAKEN, SHOAL_OK);
    assert_int_equal(got.zone.flags, SH_ZONE_TAKEN);
    bytes[1 + 8 + 4 + 2 * (2 + 8)] = SH_ZONE_AGAIN;
    assert_int_equal(sh_metadata_update_get(sh_bytes_make(bytes, size), shard_of(), &got),
                     SHOAL_EPROTO);
    READ(update.zone.former = update.zone.owner, SHOAL_OK); /* another life */
    READ((update.zone.former = update.zone.owner, update.zone.former_life = 7), SHOAL_EPROTO);
    READ(update.zone.former.v = 3, SHOAL_EPROTO);
    READ(update.zone.former_life = 0, SHOAL_EPROTO);
    READ(update.zone.owner.v = 0, SHOAL_EPROTO);
    READ(update.zone.life = 0, SHOAL_EPROTO);
    READ(update.zone.id = sh_zone_id(peer_of(0), 0), SHOAL_EPROTO);
    READ(update.zone.id = sh_zone_id((shoal_nid){3}, 1), SHOAL_EPROTO);
    READ(update.zone.incarnation = 0, SHOAL_EPROTO);
    READ(update.count = 0, SHOAL_EPROTO);
    READ(update.runs[1].first = cid_of(2), SHOAL_EPROTO);
    READ(update.runs[1].last = shoal_cid_make(peer_of(1), 9), SHOAL_EPROTO);
#undef READ
}

int main(void)
{
    seed = test_seed(UINT64_C(0x74616b65));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_are_as_the_model),
        cmocka_unit_test(a_creator_s_own_are_taken_and_come_back),
        cmocka_unit_test(lives_are_told_apart),
        cmocka_unit_test(only_what_was_taken_for_the_zone),
        cmocka_unit_test(the_next_restorer_takes_all),
        cmocka_unit_test(what_was_taken_moves),
        cmocka_unit_test(too_many_parts_are_refused_as_a_whole),
        cmocka_unit_test(takes_have_room_beside_migrations),
        cmocka_unit_test(what_is_no_take),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
