/* Barriers, scratch, and that updates are done once: beside a slow, obvious model, with every
 * update as bytes and every state as an image now and then.
 *
 * SHOAL_TEST_SEED: which seed. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "env/env.h"
#include "metadata/image_test.h"
#include "metadata/metadata_barriers.h"
#include "ring/arcs.h"

#define BARRIERS 3
#define MEMBERS 6
#define KEYS 12

static uint64_t draws;

static uint64_t below(uint64_t bound)
{
    draws += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(draws) % bound;
}

static struct sh_metadata_result apply(struct sh_metadata *metadata,
                                       const struct sh_metadata_update *update)
{
    static uint8_t bytes[SH_METADATA_BYTES_MAX];
    static struct sh_metadata_update got;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, update);
    assert_true(sh_writer_ok(&w));
    size_t size = (size_t)(w.at - bytes);
    assert_int_equal(bytes[SH_METADATA_REPEAT_AT], update->is_repeat);
    assert_int_equal(sh_metadata_update_get_any(sh_bytes_make(bytes, size), &got), SHOAL_OK);
    unsigned shard = sh_metadata_shard(&got);
    for (size_t i = 0; i < size; i++) /* a part of it is nothing */
        assert_int_equal(sh_metadata_update_get(sh_bytes_make(bytes, i), shard, &got),
                         SHOAL_EPROTO);
    assert_int_equal(sh_metadata_update_get(sh_bytes_make(bytes, size), shard, &got), SHOAL_OK);
    return sh_metadata_apply(metadata, shard, &got);
}

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
        assert_true(sh_writer_ok(&w) && w.at == w.end);
        assert_int_equal(image_get(copy, i, sh_bytes_make(bytes, size - 1)), SHOAL_EPROTO);
        assert_int_equal(image_get(copy, i, sh_bytes_make(bytes, size)), SHOAL_OK);
        assert_int_equal(image_size(copy, i), size);
        free(bytes);
    }
    sh_metadata_destroy(metadata);
    return copy;
}

/* --- Barriers -------------------------------------------------------------------------------- */

struct model_round {
    unsigned count;
    uint64_t members[MEMBERS + 1], gone;
    uint8_t data[MEMBERS + 1];
};

struct model {
    bool is_there, survivors;
    uint32_t size;
    uint64_t number;
    struct model_round open, last;
};

static void model_release(struct model *model, uint64_t gone)
{
    model->last = model->open;
    model->last.gone = gone;
    model->open = (struct model_round){0};
    model->number++;
}

static void model_fill(struct model *model)
{
    if (model->open.count && model->open.count >= model->size)
        model_release(model, 0);
}

static void model_remove(struct model_round *round, unsigned at)
{
    round->count--;
    memmove(&round->members[at], &round->members[at + 1], (round->count - at) * 8);
    memmove(&round->data[at], &round->data[at + 1], round->count - at);
}

static unsigned model_find(const struct model_round *round, uint64_t member)
{
    unsigned at = 0;
    while (at < round->count && round->members[at] != member)
        at++;
    return at;
}

/* What is expected of an update of a barrier that is there. */
static enum shoal_err model_apply(struct model *model, const struct sh_metadata_update *update)
{
    struct model_round *round = &model->open;
    unsigned at = model_find(round, update->member);
    switch (update->kind) {
    case SH_METADATA_BARRIER_NEW:
        return SHOAL_EEXIST;
    case SH_METADATA_BARRIER_RESIZE:
        model->size = update->size;
        model_fill(model);
        return SHOAL_OK;
    case SH_METADATA_BARRIER_FREE:
        *model = (struct model){0};
        return SHOAL_OK;
    case SH_METADATA_BARRIER_SIGN:
        round->count += at == round->count;
        round->members[at] = update->member;
        round->data[at] = update->value.size ? update->value.at[0] : 0;
        model_fill(model);
        return SHOAL_OK;
    default:
        break;
    }
    if (update->round != model->number)
        return SHOAL_ECANCELED;
    if (at == round->count)
        return SHOAL_OK;
    model_remove(round, at);
    if (update->kind == SH_METADATA_BARRIER_GONE && !model->survivors) {
        model_release(model, update->member);
    } else if (update->kind == SH_METADATA_BARRIER_GONE) {
        model->size -= model->size > 1;
        model_fill(model);
    }
    return SHOAL_OK;
}

static void check_round(const struct sh_barrier_round *round, const struct model_round *model)
{
    assert_int_equal(round->count, model->count);
    assert_true(round->gone == model->gone);
    for (unsigned i = 0; i < model->count; i++) {
        const struct sh_barrier_member *member = sh_barrier_member(round, i);
        assert_true(member->id == model->members[i]);
        assert_int_equal(member->size ? member->bytes[0] : 0, model->data[i]);
    }
}

static void act_barrier(struct sh_metadata *metadata, struct model *models, uint64_t step)
{
    static struct sh_metadata_update update;
    unsigned which = (unsigned)below(BARRIERS);
    struct model *model = &models[which];
    static uint8_t data[SH_BARRIER_DATA_MAX];
    data[0] = (uint8_t)(1 + below(255));
    uint8_t kind = (uint8_t)(SH_METADATA_BARRIER_NEW + below(9));
    if (kind > SH_METADATA_BARRIER_GONE || (kind == SH_METADATA_BARRIER_FREE && below(4)))
        kind = SH_METADATA_BARRIER_SIGN;
    update = (struct sh_metadata_update){.kind = kind,
                                         .caller = 1 + below(3),
                                         .number = step,
                                         .barrier = which ? which * UINT64_C(0x123456789) : 7,
                                         .size = 1 + (uint32_t)below(MEMBERS),
                                         .flags = (uint8_t)below(2),
                                         .member = 1 + below(MEMBERS),
                                         .round = model->number + (below(4) == 0),
                                         .value = sh_bytes_make(data, below(2) ? sizeof data : 0)};
    update.round += update.round == 0;
    struct sh_metadata_result result = apply(metadata, &update);
    uint64_t number = model->number;
    if (!model->is_there && kind == SH_METADATA_BARRIER_NEW) {
        assert_int_equal(result.err, SHOAL_OK);
        *model = (struct model){
            .is_there = true, .survivors = update.flags, .size = update.size, .number = 1};
    } else {
        assert_int_equal(result.err, model->is_there ? model_apply(model, &update) : SHOAL_ENONAME);
        if (kind == SH_METADATA_BARRIER_SIGN && !result.err)
            assert_true(result.cid.v == number);
    }
    /* Once more is the same, and changes nothing. */
    update.is_repeat = true;
    struct sh_metadata_result again = apply(metadata, &update);
    assert_int_equal(again.err, result.err);
    assert_true(again.cid.v == result.cid.v);
    struct sh_barrier *barrier = sh_metadata_barrier(metadata, update.barrier);
    assert_int_equal(barrier != NULL, model->is_there);
    if (!barrier)
        return;
    assert_int_equal(barrier->size, model->size);
    assert_true(barrier->open.number == model->number);
    check_round(&barrier->open, &model->open);
    check_round(&barrier->last, &model->last);
}

static void test_barriers(void **state)
{
    (void)state;
    static struct model models[BARRIERS];
    struct sh_metadata *metadata;
    memset(models, 0, sizeof models);
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (uint64_t i = 1; i <= 4000; i++) {
        act_barrier(metadata, models, i);
        if (i % 200 == 0)
            metadata = copied(metadata);
    }
    sh_metadata_destroy(metadata);
}

/* --- Scratch --------------------------------------------------------------------------------- */

static struct sh_bytes key_of(unsigned i, char *into)
{
    return sh_bytes_make(into, (size_t)snprintf(into, 16, i % 2 ? "job/%u" : "%u", i * i));
}

static void test_scratch(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    static uint8_t value[SH_SCRATCH_VALUE_MAX];
    int sizes[KEYS];
    char text[16];
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < KEYS; i++)
        sizes[i] = -1;
    for (unsigned i = 0; i < 2000; i++) {
        unsigned at = (unsigned)below(KEYS);
        size_t size = below(3) ? below(sizeof value + 1) : 0;
        memset(value, (int)(at + size), size);
        bool is_put = below(3);
        update = (struct sh_metadata_update){.kind = is_put ? SH_METADATA_SCRATCH_PUT
                                                            : SH_METADATA_SCRATCH_REMOVE,
                                             .name = key_of(at, text)};
        if (is_put)
            update.value = sh_bytes_make(value, size);
        enum shoal_err expected = is_put || sizes[at] >= 0 ? SHOAL_OK : SHOAL_ENONAME;
        assert_int_equal(apply(metadata, &update).err, expected);
        sizes[at] = is_put ? (int)size : -1;
        if (i % 100 == 0)
            metadata = copied(metadata);
        unsigned there = 0, listed = 0;
        for (unsigned k = 0; k < KEYS; k++) {
            struct sh_bytes got = {NULL, 0};
            enum shoal_err err = sh_metadata_scratch_get(metadata, key_of(k, text), &got);
            assert_int_equal(err, sizes[k] < 0 ? SHOAL_ENONAME : SHOAL_OK);
            assert_int_equal(got.size, sizes[k] < 0 ? 0 : sizes[k]);
            for (size_t b = 0; b < got.size; b++)
                assert_int_equal(got.at[b], (uint8_t)(k + got.size));
            there += sizes[k] >= 0 && k % 2;
        }
        for (unsigned shard = 0; shard < SH_SHARDS; shard++) {
            struct sh_bytes key = {NULL, 0}, got;
            while (
                sh_metadata_scratch_next(metadata, shard, sh_bytes_text("job/"), key, &key, &got))
                listed++;
        }
        assert_int_equal(listed, there);
    }
    sh_metadata_destroy(metadata);
}

/* A shard takes so many bytes, and no more; what is replaced or removed makes room. */
static void test_scratch_is_bounded(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    static uint8_t value[SH_SCRATCH_VALUE_MAX];
    struct sh_metadata *metadata;
    char text[32], kept[32] = "";
    size_t count = 0;
    unsigned shard = sh_arc_shard_of_name(sh_bytes_text("0"));
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    update = (struct sh_metadata_update){.kind = SH_METADATA_SCRATCH_PUT,
                                         .value = sh_bytes_make(value, sizeof value)};
    struct sh_metadata_result result = {.err = SHOAL_OK};
    for (unsigned i = 0; !result.err; i++) {
        snprintf(text, sizeof text, "%u", i);
        update.name = sh_bytes_text(text);
        if (sh_arc_shard_of_name(update.name) != shard)
            continue;
        result = sh_metadata_apply(metadata, shard, &update);
        count += !result.err;
        if (!result.err)
            memcpy(kept, text, sizeof kept);
    }
    assert_int_equal(result.err, SHOAL_ELIMIT);
    assert_in_range(count, SH_SCRATCH_BYTES_MAX / (sizeof value + 16),
                    SH_SCRATCH_BYTES_MAX / sizeof value);
    update.name = sh_bytes_text(kept);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    update.kind = SH_METADATA_SCRATCH_REMOVE;
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    update.kind = SH_METADATA_SCRATCH_PUT;
    update.name = sh_bytes_text(text);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    sh_metadata_destroy(metadata);
}

/* --- Once ------------------------------------------------------------------------------------ */

/* All members get the data of all: a round has a bound of its own. */
static void test_round_is_bounded(void **state)
{
    (void)state;
    static uint8_t data[SH_BARRIER_DATA_MAX];
    struct sh_metadata *metadata;
    struct sh_metadata_update update = {
        .kind = SH_METADATA_BARRIER_NEW, .barrier = 5, .size = SH_BARRIER_MEMBERS_MAX};
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    update.kind = SH_METADATA_BARRIER_SIGN;
    update.value = sh_bytes_make(data, sizeof data);
    unsigned full = SH_BARRIER_ROUND_BYTES_MAX / sizeof data;
    for (update.member = 1; update.member <= full; update.member++)
        assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    assert_int_equal(apply(metadata, &update).err, SHOAL_ELIMIT);
    update.value.size = 1;
    assert_int_equal(apply(metadata, &update).err, SHOAL_ELIMIT);
    update.value.size = 0; /* who has no data is welcome */
    for (; update.member <= SH_BARRIER_MEMBERS_MAX; update.member++)
        assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    assert_int_equal(sh_metadata_barrier(metadata, 5)->last.count, SH_BARRIER_MEMBERS_MAX);
    sh_metadata_destroy(metadata);
}

/* C programs would read a name with a NUL as another one, and list it for ever. */
static void test_no_nul(void **state)
{
    (void)state;
    static const char with_nul[] = "lea\0der";
    static uint8_t bytes[SH_METADATA_BYTES_MAX];
    static struct sh_metadata_update update, got;
    const uint8_t kinds[] = {SH_METADATA_NAME, SH_METADATA_UNNAME, SH_METADATA_SCRATCH_PUT,
                             SH_METADATA_SCRATCH_REMOVE};
    for (unsigned i = 0; i < 2 * sizeof kinds; i++) {
        struct sh_bytes name = sh_bytes_make(with_nul, i % 2 ? sizeof with_nul - 1 : 3);
        update = (struct sh_metadata_update){.kind = kinds[i / 2], .cid = {1}, .name = name};
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_metadata_update_put(&w, &update);
        struct sh_bytes put = sh_bytes_make(bytes, (size_t)(w.at - bytes));
        assert_int_equal(sh_metadata_update_get_any(put, &got), i % 2 ? SHOAL_EPROTO : SHOAL_OK);
    }
    update = (struct sh_metadata_update){
        .kind = SH_METADATA_NAME, .cid = SHOAL_CID_NONE, .name = sh_bytes_text("leader")};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    struct sh_bytes put = sh_bytes_make(bytes, (size_t)(w.at - bytes));
    assert_int_equal(sh_metadata_update_get_any(put, &got), SHOAL_EPROTO);
    /* Nor does one come with an image. */
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    update.cid.v = 1;
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    unsigned shard = sh_metadata_shard(&update);
    size_t size = image_size(metadata, shard);
    w = sh_writer_make(bytes, sizeof bytes);
    image_put(metadata, shard, &w);
    uint8_t *at = memmem(bytes, size, "leader", 6);
    assert_non_null(at);
    at[3] = 0;
    assert_int_equal(image_get(metadata, shard, sh_bytes_make(bytes, size)), SHOAL_EPROTO);
    sh_metadata_destroy(metadata);
}

/* A shard that begins again does not know of updates that were done, and counts elsewhere. */
static void begun_again(struct sh_metadata *metadata, unsigned shard,
                        struct sh_metadata_update *first, struct sh_metadata_update *other)
{
    uint64_t before = sh_metadata_updates(metadata, shard);
    sh_metadata_begin(metadata, shard, UINT64_C(5) << 32, true);
    first->is_repeat = true;
    first->since = before;
    assert_int_equal(apply(metadata, first).err, SHOAL_ETIMEOUT);
    first->is_repeat = false;
    assert_int_equal(apply(metadata, first).err, SHOAL_EAGAIN);
    first->since = UINT64_MAX; /* a count of another incarnation, which had come further */
    assert_int_equal(apply(metadata, first).err, SHOAL_EAGAIN);
    first->since = sh_metadata_updates(metadata, shard);
    assert_int_equal(apply(metadata, first).err, SHOAL_OK);
    /* Also where it goes on from an old copy, but for what the copy knows to be done. */
    struct sh_metadata_update restored = {.kind = SH_METADATA_RESTORED,
                                          .sequence = UINT64_C(7) << 32};
    before = sh_metadata_updates(metadata, shard);
    assert_int_equal(sh_metadata_apply(metadata, shard, &restored).err, SHOAL_OK);
    assert_int_equal(apply(metadata, first).err, SHOAL_OK);
    other->caller = 1u << 20;
    other->is_repeat = true;
    other->since = before;
    assert_int_equal(apply(metadata, other).err, SHOAL_ETIMEOUT);
}

/* A conditional replacement whose answer was lost succeeds when it is sent again; an older one is
 * not done any more; and where nobody can tell, that is said. */
static void test_once(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    struct sh_metadata *metadata;
    struct sh_bytes name = sh_bytes_text("leader");
    shoal_cid cid;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    update = (struct sh_metadata_update){.kind = SH_METADATA_NAME,
                                         .condition = SH_NAME_ABSENT,
                                         .caller = 77,
                                         .number = 1,
                                         .cid = {10},
                                         .name = name};
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    update.is_repeat = true;
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    struct sh_metadata_update first = update;
    update.number = 2;
    update.condition = SH_NAME_CURRENT;
    update.expected.v = 10;
    update.cid.v = 20;
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    metadata = copied(metadata); /* another superpeer takes over */
    struct sh_metadata_result again = apply(metadata, &update);
    assert_int_equal(again.err, SHOAL_OK);
    assert_true(again.cid.v == 10);
    assert_int_equal(apply(metadata, &first).err, SHOAL_ECANCELED);
    assert_int_equal(sh_metadata_lookup(metadata, name, &cid), SHOAL_OK);
    assert_true(cid.v == 20);
    /* Others come until this caller is forgotten. */
    unsigned shard = sh_metadata_shard(&update);
    struct sh_metadata_update other = update;
    other.condition = SH_NAME_ANY;
    other.is_repeat = false;
    for (uint64_t i = 0; i < SH_METADATA_CALLERS_MAX; i++) {
        other.caller = 1000 + i;
        other.since = sh_metadata_updates(metadata, shard);
        assert_int_equal(apply(metadata, &other).err, SHOAL_OK);
    }
    metadata = copied(metadata);
    update.since = 1; /* it was sent when the first one was done, and may be the second */
    assert_int_equal(apply(metadata, &update).err, SHOAL_ETIMEOUT);
    /* Its first copy, long on its way, is not done once more either. */
    update.condition = SH_NAME_ANY;
    update.is_repeat = false;
    assert_int_equal(apply(metadata, &update).err, SHOAL_EAGAIN);
    /* What was sent after all that was forgotten is done, also as a repetition whose first try
     * never came. */
    update.is_repeat = true;
    update.number = 3;
    update.since = 2;
    assert_int_equal(apply(metadata, &update).err, SHOAL_OK);
    begun_again(metadata, shard, &first, &update);
    sh_metadata_destroy(metadata);
}

int main(void)
{
    struct sh_random random = sh_real_random();
    const char *given = getenv("SHOAL_TEST_SEED");
    draws = given ? strtoull(given, NULL, 0) : sh_random64(&random) >> 16;
    print_message("seed %" PRIu64 " (SHOAL_TEST_SEED)\n", draws);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_barriers),
        cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_scratch_is_bounded),
        cmocka_unit_test(test_round_is_bounded),
        cmocka_unit_test(test_no_nul),
        cmocka_unit_test(test_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
