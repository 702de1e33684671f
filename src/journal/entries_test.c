/* The entries in memory, held against a model that keeps every entry that ever was. */
#include "journal/entries.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/random_test.h"

#define LAST_MAX 4000
#define BYTES_MAX 40
#define ROUNDS 40000

struct model {
    uint64_t base, base_term, last;
    struct {
        uint64_t term, lsn;
        uint8_t kind, size, bytes[BYTES_MAX];
    } at[LAST_MAX + 1];
};

static void compare(const struct sh_entries *entries, const struct model *model, uint64_t index)
{
    uint64_t term;
    bool is_known = index >= model->base && index <= model->last;
    assert_int_equal(sh_entries_term(entries, index, &term), is_known);
    if (!is_known)
        return;
    assert_int_equal(term, index == model->base ? model->base_term : model->at[index].term);
    if (index == model->base)
        return;
    const struct sh_entry *entry = sh_entries_at(entries, index);
    assert_int_equal(entry->term, term);
    assert_int_equal(entry->lsn, model->at[index].lsn);
    assert_int_equal(entry->kind, model->at[index].kind);
    assert_int_equal(entry->size, model->at[index].size);
    if (entry->size)
        assert_memory_equal(entry->bytes, model->at[index].bytes, entry->size);
    else
        assert_null(entry->bytes);
}

static void append(struct sh_entries *entries, struct model *model, uint64_t *random)
{
    uint64_t index = ++model->last;
    model->at[index].term = test_draw(random) % 100;
    model->at[index].lsn = test_draw(random);
    model->at[index].kind = (uint8_t)test_draw(random);
    model->at[index].size = (uint8_t)(test_draw(random) % (BYTES_MAX + 1));
    for (unsigned i = 0; i < model->at[index].size; i++)
        model->at[index].bytes[i] = (uint8_t)test_draw(random);
    struct sh_bytes bytes = sh_bytes_make(model->at[index].bytes, model->at[index].size);
    assert_int_equal(
        sh_entries_append(entries, model->at[index].term, model->at[index].kind, bytes), SHOAL_OK);
    assert_int_equal(sh_entries_at(entries, index)->lsn, 0);
    sh_entries_at(entries, index)->lsn = model->at[index].lsn;
}

static void change(struct sh_entries *entries, struct model *model, uint64_t *random)
{
    uint64_t some = model->last - model->base;
    uint64_t index = model->base + (some ? test_draw(random) % some : 0);
    switch (test_draw(random) % 64) {
    case 0:
        model->last = index;
        sh_entries_cut(entries, index + 1);
        break;
    case 1:
    case 2:
        index += some != 0;
        model->base_term = index == model->base ? model->base_term : model->at[index].term;
        model->base = index;
        sh_entries_shift(entries, index);
        break;
    case 3:
        if (test_draw(random) % 16 && model->last < LAST_MAX - 100)
            break;
        model->base = model->last = test_draw(random) % 100;
        model->base_term = test_draw(random) % 100;
        sh_entries_reset(entries, model->base, model->base_term);
        break;
    default:
        if (model->last < LAST_MAX)
            append(entries, model, random);
    }
}

static void entries_follow_the_model(void **state)
{
    (void)state;
    static struct model model;
    struct sh_entries entries = {.base = 0};
    uint64_t random = test_seed(11);
    for (unsigned round = 0; round < ROUNDS; round++) {
        change(&entries, &model, &random);
        assert_int_equal(sh_entries_last(&entries), model.last);
        assert_int_equal(entries.base, model.base);
        compare(&entries, &model, model.base);
        compare(&entries, &model, model.last);
        compare(&entries, &model, model.last + 1);
        compare(&entries, &model, test_draw(&random) % (LAST_MAX + 1));
        if (round % 1000 == 0)
            for (uint64_t i = 0; i <= LAST_MAX; i++)
                compare(&entries, &model, i);
    }
    sh_entries_reset(&entries, 0, 0);
}

/* A log that is shifted as fast as it grows keeps its memory. */
static void shifted_room_is_used_again(void **state)
{
    (void)state;
    struct sh_entries entries = {.base = 0};
    for (uint64_t i = 1; i <= 100000; i++) {
        assert_int_equal(sh_entries_append(&entries, i, 1, sh_bytes_text("x")), SHOAL_OK);
        if (i > 50)
            sh_entries_shift(&entries, i - 50);
    }
    assert_int_equal(sh_entries_last(&entries), 100000);
    assert_int_equal(entries.base, 99950);
    assert_in_range(entries.room, 50, 400);
    sh_entries_reset(&entries, 0, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(entries_follow_the_model),
        cmocka_unit_test(shifted_room_is_used_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
