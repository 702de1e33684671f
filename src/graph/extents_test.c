/* Extents beside an array that has a place for each ID. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "graph/extents_int.h"

#define IDS 300

struct model {
    bool is_in[IDS], is_retained[IDS];
    uint64_t name[IDS];
    uint32_t count;
};

static uint64_t draw(uint64_t *state)
{
    return sh_mix64(++*state * UINT64_C(0x9e3779b97f4a7c15));
}

static void check(struct sh_extents *extents, const struct model *model)
{
    uint32_t index = 0, hint = 0;
    sh_extents_number(extents);
    assert_int_equal(extents->vertices, model->count);
    for (uint32_t i = 0; i < extents->count; i++) {
        const struct sh_extent *extent = &extents->at[i];
        assert_true(extent->count > 0);
        assert_true(i == 0 || extent[-1].first.v + extent[-1].count <= extent->first.v);
        for (uint32_t k = 0; k < extent->count; k++) {
            uint64_t name = model->name[extent->first.v + k];
            assert_true(name >= extent->name_first && name <= extent->name_last);
            assert_true(k == 0 || model->name[extent->first.v + k - 1] < name);
        }
    }
    for (uint64_t id = 0; id < IDS; id++) {
        const struct sh_extent *extent = sh_extents_find(extents, (sh_lid){id}, &hint);
        assert_int_equal(extent != NULL, model->is_in[id]);
        if (!extent)
            continue;
        assert_int_equal(extent->is_retained, model->is_retained[id]);
        assert_int_equal(extent->index + (id - extent->first.v), index);
        assert_int_equal(sh_extents_lid(extents, index).v, id);
        index++;
    }
}

static void add(struct sh_extents *extents, struct model *model, uint64_t id, uint64_t name,
                bool is_retained)
{
    const struct sh_extent extent = {.first = {id},
                                     .count = 1,
                                     .name_first = name,
                                     .name_last = name,
                                     .is_retained = is_retained};
    if (model->is_in[id])
        return;
    assert_int_equal(sh_extents_add(extents, &extent), SHOAL_OK);
    model->is_in[id] = true;
    model->is_retained[id] = is_retained;
    model->name[id] = name;
    model->count++;
}

static void cut(struct sh_extents *extents, struct model *model, uint64_t first, uint64_t last)
{
    struct sh_extent gone;
    bool is_lost;
    while (sh_extents_cut(extents, (sh_lid){first}, (sh_lid){last}, &gone, &is_lost)) {
        assert_false(is_lost);
        for (uint64_t id = gone.first.v; id < gone.first.v + gone.count; id++) {
            assert_true(id >= first && id <= last && model->is_in[id]);
            assert_int_equal(model->is_retained[id], gone.is_retained);
            model->is_in[id] = false;
            model->count--;
        }
    }
    for (uint64_t id = first; id <= last; id++)
        assert_false(model->is_in[id]);
}

static void random_changes(void **state)
{
    (void)state;
    uint64_t rng = test_seed(99);
    for (unsigned round = 0; round < 30; round++) {
        struct sh_extents extents = {0};
        static struct model model;
        memset(&model, 0, sizeof model);
        for (unsigned i = 0; i < 400; i++) {
            uint64_t id = draw(&rng) % IDS;
            if (draw(&rng) % 4) { /* names ascend with IDs, but for some */
                bool is_odd = draw(&rng) % 8 == 0;
                add(&extents, &model, id, is_odd ? draw(&rng) % IDS : 1000 + id, round % 3 == 0);
            } else {
                uint64_t last = id + draw(&rng) % 20;
                cut(&extents, &model, id, last < IDS ? last : IDS - 1);
            }
            if (i % 20 == 0)
                check(&extents, &model);
        }
        check(&extents, &model);
        cut(&extents, &model, 0, IDS - 1);
        assert_int_equal(extents.count, 0);
        sh_extents_free(&extents);
    }
}

/* As after a load: in ascending order there is one extent, also after holes were filled again. */
static void one_extent(void **state)
{
    (void)state;
    struct sh_extents extents = {0};
    static struct model model;
    for (uint64_t id = 0; id < IDS; id++)
        add(&extents, &model, id, id * 10, true);
    assert_int_equal(extents.count, 1);
    cut(&extents, &model, 100, 199);
    assert_int_equal(extents.count, 2);
    check(&extents, &model);
    sh_extents_free(&extents);
    memset(&model, 0, sizeof model);
    for (uint64_t id = 0; id < IDS; id += 2)
        add(&extents, &model, id, id * 10, true);
    assert_int_equal(extents.count, IDS / 2);
    for (uint64_t id = 1; id < IDS; id += 2)
        add(&extents, &model, id, id * 10, true);
    assert_int_equal(extents.count, 1);
    /* The last ID that there is. */
    const struct sh_extent end = {.first = {UINT64_MAX - 1}, .count = 1};
    assert_int_equal(sh_extents_add(&extents, &end), SHOAL_OK);
    uint32_t hint = 0;
    assert_non_null(sh_extents_find(&extents, end.first, &hint));
    sh_extents_free(&extents);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_changes),
        cmocka_unit_test(one_extent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
