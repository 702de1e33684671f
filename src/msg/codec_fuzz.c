/* Hostile bytes for a description, whole and in pieces: both ways must agree, and what is read must
 * write the same bytes again. The first byte of an input is the size of the pieces. */
#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "msg/codec.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX 64

struct thing {
    uint8_t a;
    uint32_t b;
    char text[24];
    size_t count;
    struct {
        uint64_t number;
        char name[6];
    } records[MAX];
    size_t bytes_count;
    uint8_t bytes[MAX];
    size_t numbers_count;
    uint64_t compacts[MAX], longs[MAX];
};

static void describe(struct sh_codec *c, void *object)
{
    struct thing *thing = object;
    sh_codec_u8(c, &thing->a);
    if (sh_codec_reading(c) && thing->a > 200)
        sh_codec_fail(c, SHOAL_EINVAL);
    if (thing->a & 1)
        sh_codec_u32(c, &thing->b);
    sh_codec_text(c, thing->text, sizeof thing->text);
    sh_codec_length(c, &thing->count, MAX);
    for (struct sh_codec_loop l = sh_codec_loop(c, thing->count); sh_codec_next(c, &l); l.index++) {
        sh_codec_compact(c, &thing->records[l.index].number);
        sh_codec_text(c, thing->records[l.index].name, sizeof thing->records[l.index].name);
    }
    sh_codec_length(c, &thing->bytes_count, MAX);
    sh_codec_bytes(c, thing->bytes, thing->bytes_count);
    sh_codec_length(c, &thing->numbers_count, MAX);
    sh_codec_compacts(c, thing->compacts, thing->numbers_count);
    sh_codec_array64(c, thing->longs, thing->numbers_count);
}

static enum shoal_err read_in(struct thing *thing, const uint8_t *data, size_t size, size_t piece)
{
    struct sh_codec c = sh_codec_reader(size);
    enum shoal_err err = SHOAL_OK;
    memset(thing, 0, sizeof *thing);
    do {
        size_t left = size - (size_t)c.passed;
        err = sh_codec_read(&c, describe, thing,
                            sh_bytes_make(data + c.passed, left < piece ? left : piece));
    } while (err == SHOAL_OK && !sh_codec_is_done(&c));
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct thing whole, cut;
    static uint8_t again[1 << 16];
    if (size < 1 || size > sizeof again)
        return 0;
    size_t piece = 1 + *data++ % 40;
    size--;
    enum shoal_err err = read_in(&whole, data, size, SIZE_MAX);
    SH_ASSERT(read_in(&cut, data, size, piece) == err);
    if (err != SHOAL_OK)
        return 0;
    SH_ASSERT(memcmp(&whole, &cut, sizeof whole) == 0);
    SH_ASSERT(sh_codec_size(describe, &cut) == size);
    struct sh_codec c = sh_codec_writer(size);
    do {
        sh_codec_write(&c, describe, &cut, again + c.passed, piece);
    } while (!sh_codec_is_done(&c));
    SH_ASSERT(memcmp(again, data, size) == 0);
    return 0;
}
