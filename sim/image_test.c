/* Images beside plain arrays: what is written to one must not show in another that shares its blocks. */
#include "sim/image.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/random_test.h"
#include "sim/prng.h"

#define IMAGES 4
#define ROOM 45056

#define BLOCKS (ROOM / SH_IMAGE_BLOCK_BYTES)

struct model {
    uint8_t bytes[ROOM];
    bool takes_space[ROOM]; /* a block's is that of its first byte */
    size_t size;
};

static uint64_t model_space(const struct model *model)
{
    uint64_t space = 0;
    for (size_t i = 0; i < model->size; i++)
        space += model->takes_space[i - i % SH_IMAGE_BLOCK_BYTES];
    return space;
}

static void model_fill(struct model *model, size_t offset, size_t size)
{
    for (size_t i = offset; i < offset + size; i++)
        model->takes_space[i - i % SH_IMAGE_BLOCK_BYTES] = true;
    if (size && offset + size > model->size)
        model->size = offset + size;
}

static void same(const struct sh_image *image, const struct model *model)
{
    static uint8_t bytes[ROOM];
    assert_int_equal(image->size, model->size);
    sh_image_read(image, 0, bytes, model->size);
    assert_memory_equal(bytes, model->bytes, model->size);
    assert_int_equal(sh_image_space(image), model_space(model));
    size_t half = model->size / 2;
    sh_image_read(image, half, bytes, model->size - half);
    assert_memory_equal(bytes, model->bytes + half, model->size - half);
}

static void write_some(struct sh_prng *prng, struct sh_image *image, struct model *model)
{
    static uint8_t bytes[ROOM];
    size_t offset = (size_t)sh_prng_below(prng, ROOM);
    size_t size = (size_t)sh_prng_below(prng, ROOM - offset + 1);
    memset(bytes, (int)sh_prng_below(prng, 3), size);
    if (size && sh_prng_below(prng, 2))
        bytes[sh_prng_below(prng, size)] = 9;
    uint64_t space = sh_image_space(image) + sh_image_more(image, offset, size);
    sh_image_write(image, offset, bytes, size);
    memcpy(model->bytes + offset, bytes, size);
    model_fill(model, offset, size);
    assert_int_equal(sh_image_space(image), space);
}

static void range_pick(struct sh_prng *prng, size_t *offset_out, size_t *size_out)
{
    size_t first = (size_t)sh_prng_below(prng, BLOCKS);
    *offset_out = first * SH_IMAGE_BLOCK_BYTES;
    *size_out = (size_t)sh_prng_between(prng, 1, BLOCKS - first) * SH_IMAGE_BLOCK_BYTES;
}

static void reserve_some(struct sh_prng *prng, struct sh_image *image, struct model *model)
{
    size_t offset, size;
    range_pick(prng, &offset, &size);
    uint64_t space = sh_image_space(image) + sh_image_more(image, offset, size);
    sh_image_reserve(image, offset, size);
    model_fill(model, offset, size);
    assert_int_equal(sh_image_space(image), space);
}

static void discard_some(struct sh_prng *prng, struct sh_image *image, struct model *model)
{
    size_t offset, size;
    range_pick(prng, &offset, &size);
    sh_image_discard(image, offset, size);
    memset(model->bytes + offset, 0, size);
    memset(model->takes_space + offset, false, size);
}

static void test_model(void **state)
{
    (void)state;
    struct sh_prng prng = sh_prng_make(test_seed(1));
    struct sh_image images[IMAGES] = {{.blocks = NULL}};
    struct model *models = calloc(IMAGES, sizeof *models);
    assert_non_null(models);
    for (unsigned i = 0; i < 3000; i++) {
        size_t at = (size_t)sh_prng_below(&prng, IMAGES), other = (at + 1) % IMAGES;
        switch (sh_prng_below(&prng, 20)) {
        case 0:
            sh_image_clear(&images[at]);
            models[at] = (struct model){.size = 0};
            break;
        case 1:
        case 2:
        case 3:
            sh_image_copy(&images[at], &images[other]);
            models[at] = models[other];
            break;
        case 4:
            reserve_some(&prng, &images[at], &models[at]);
            break;
        case 5:
        case 6:
        case 7:
            discard_some(&prng, &images[at], &models[at]);
            break;
        default:
            write_some(&prng, &images[at], &models[at]);
        }
        same(&images[at], &models[at]);
        same(&images[other], &models[other]);
    }
    for (size_t i = 0; i < IMAGES; i++)
        sh_image_clear(&images[i]);
    free(models);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_model)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
