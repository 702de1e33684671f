/* Images beside plain arrays: what is written to one must not show in another that shares its blocks. */
#include "sim/image.h"

#include <stdlib.h>
#include <string.h>

#include "base/random_test.h"
#include "sim/prng.h"

#define IMAGES 4
#define ROOM 40000

struct model {
    uint8_t bytes[ROOM];
    size_t size;
};

static void same(const struct sh_image *image, const struct model *model)
{
    static uint8_t bytes[ROOM];
    assert_int_equal(image->size, model->size);
    sh_image_read(image, 0, bytes, model->size);
    assert_memory_equal(bytes, model->bytes, model->size);
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
    sh_image_write(image, offset, bytes, size);
    memcpy(model->bytes + offset, bytes, size);
    if (offset + size > model->size)
        model->size = offset + size;
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
