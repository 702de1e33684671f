#include "msg/codec.h"

#include "base/assert.h"

/* True when the field is to be worked on: it is not done yet, and the piece has not ended. */
static bool enter(struct sh_codec *c)
{
    if (c->is_cut || c->err != SHOAL_OK)
        return false;
    return c->field++ >= c->fields_done;
}

static void leave(struct sh_codec *c)
{
    c->fields_done = c->field;
    c->part_bytes = 0;
    c->run_done = 0;
}

static void wrong(struct sh_codec *c, enum shoal_err err)
{
    c->err = err;
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Moves the next bytes between the piece and memory; returns how many there were. */
static size_t move(struct sh_codec *c, void *at, uint64_t size)
{
    size_t now = (size_t)at_most(size, c->left);
    if (now == 0)
        return 0;
    if (c->mode == SH_CODEC_READ) {
        memcpy(at, c->from, now);
        c->from += now;
    } else {
        memcpy(c->into, at, now);
        c->into += now;
    }
    c->left -= now;
    c->passed += now;
    return now;
}

/* Writes what is left of a short field, whose encoding is given whole each time. */
static void short_write(struct sh_codec *c, uint8_t *encoded, unsigned size)
{
    SH_ASSERT(c->part_bytes < size);
    c->part_bytes += (uint8_t)move(c, encoded + c->part_bytes, size - c->part_bytes);
    c->is_cut = c->part_bytes < size;
}

static void value(struct sh_codec *c, void *at, unsigned size)
{
    if (!enter(c))
        return;
    if (c->mode == SH_CODEC_SIZE) {
        c->bytes += size;
    } else if (c->mode == SH_CODEC_WRITE) {
        short_write(c, at, size);
    } else if (c->part_bytes == 0 && c->left >= size) {
        move(c, at, size);
    } else {
        /* Kept aside, so that the description never sees half a value. */
        c->part_bytes += (uint8_t)move(c, c->part + c->part_bytes, size - c->part_bytes);
        c->is_cut = c->part_bytes < size;
        if (!c->is_cut)
            memcpy(at, c->part, size);
    }
    if (!c->is_cut)
        leave(c);
}

void sh_codec_u8(struct sh_codec *c, uint8_t *at)
{
    value(c, at, sizeof *at);
}

void sh_codec_u16(struct sh_codec *c, uint16_t *at)
{
    value(c, at, sizeof *at);
}

void sh_codec_u32(struct sh_codec *c, uint32_t *at)
{
    value(c, at, sizeof *at);
}

void sh_codec_u64(struct sh_codec *c, uint64_t *at)
{
    value(c, at, sizeof *at);
}

/* --- Compact numbers ----------------------------------------------------------------------- */

static unsigned compact_encode(uint64_t number, uint8_t *into)
{
    unsigned size = 0;
    while (number >= 0x80) {
        into[size++] = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    into[size++] = (uint8_t)number;
    return size;
}

/* What the part holds, which is complete. False: it is not the number's shortest form, or over 64
 * bits. */
static bool compact_decode(const struct sh_codec *c, uint64_t *number_out)
{
    unsigned size = c->part_bytes;
    SH_ASSERT(size >= 1 && size <= SH_CODEC_COMPACT_MAX);
    uint8_t last = c->part[size - 1];
    if ((size > 1 && last == 0) || (size == SH_CODEC_COMPACT_MAX && last > 1))
        return false;
    uint64_t number = 0;
    for (unsigned i = 0; i < size; i++)
        number |= (uint64_t)(c->part[i] & 0x7F) << 7 * i;
    *number_out = number;
    return true;
}

/* One compact number, or what there is of it: cut or wrong when it is not through. */
static void compact_read(struct sh_codec *c, uint64_t *number_out)
{
    bool is_last = false;
    while (!is_last && c->part_bytes < SH_CODEC_COMPACT_MAX) {
        if (move(c, &c->part[c->part_bytes], 1) == 0) {
            c->is_cut = true;
            return;
        }
        is_last = !(c->part[c->part_bytes++] & 0x80);
    }
    if (!is_last || !compact_decode(c, number_out))
        wrong(c, SHOAL_EPROTO);
    c->part_bytes = 0;
}

static void compact(struct sh_codec *c, uint64_t *number)
{
    uint8_t encoded[SH_CODEC_COMPACT_MAX];
    if (c->mode == SH_CODEC_READ) {
        compact_read(c, number);
        return;
    }
    unsigned size = compact_encode(*number, encoded);
    if (c->mode == SH_CODEC_SIZE) {
        c->bytes += size;
        return;
    }
    short_write(c, encoded, size);
    if (!c->is_cut)
        c->part_bytes = 0;
}

void sh_codec_compact(struct sh_codec *c, uint64_t *at)
{
    if (!enter(c))
        return;
    compact(c, at);
    if (!c->is_cut && c->err == SHOAL_OK)
        leave(c);
}

void sh_codec_compacts(struct sh_codec *c, uint64_t *values, size_t count)
{
    if (!enter(c))
        return;
    if (c->mode == SH_CODEC_READ && count - c->run_done > c->bytes - c->passed) {
        wrong(c, SHOAL_EPROTO);
        return;
    }
    while (c->run_done < count) {
        compact(c, &values[c->run_done]);
        if (c->is_cut || c->err != SHOAL_OK)
            return;
        c->run_done++;
    }
    leave(c);
}

void sh_codec_length(struct sh_codec *c, size_t *count, size_t max)
{
    if (!enter(c))
        return;
    uint64_t number = *count;
    SH_ASSERT(c->mode == SH_CODEC_READ || number <= max);
    compact(c, &number);
    if (c->is_cut || c->err != SHOAL_OK)
        return;
    if (c->mode == SH_CODEC_READ) {
        if (number > max || number > c->bytes - c->passed) {
            wrong(c, SHOAL_EPROTO);
            return;
        }
        *count = (size_t)number;
    }
    leave(c);
}

/* --- Runs ---------------------------------------------------------------------------------- */

void sh_codec_bytes(struct sh_codec *c, void *at, size_t size)
{
    if (!enter(c))
        return;
    if (c->mode == SH_CODEC_SIZE) {
        c->bytes += size;
    } else {
        SH_ASSERT(at != NULL || size == 0);
        SH_ASSERT(c->run_done <= size);
        if (c->mode == SH_CODEC_READ && size - c->run_done > c->bytes - c->passed) {
            wrong(c, SHOAL_EPROTO);
            return;
        }
        if (size > 0)
            c->run_done += move(c, (uint8_t *)at + c->run_done, size - c->run_done);
        c->is_cut = c->run_done < size;
    }
    if (!c->is_cut)
        leave(c);
}

/* An array's bytes are the wire's, since machine and wire are both little-endian (bytes.h). */
static void array(struct sh_codec *c, void *values, size_t count, size_t value_bytes)
{
    SH_ASSERT(c->mode == SH_CODEC_READ || count <= SIZE_MAX / value_bytes);
    if (count > SIZE_MAX / value_bytes)
        sh_codec_fail(c, SHOAL_EPROTO);
    else
        sh_codec_bytes(c, values, count * value_bytes);
}

void sh_codec_array16(struct sh_codec *c, uint16_t *values, size_t count)
{
    array(c, values, count, sizeof *values);
}

void sh_codec_array32(struct sh_codec *c, uint32_t *values, size_t count)
{
    array(c, values, count, sizeof *values);
}

void sh_codec_array64(struct sh_codec *c, uint64_t *values, size_t count)
{
    array(c, values, count, sizeof *values);
}

void sh_codec_text(struct sh_codec *c, char *text, size_t room)
{
    SH_ASSERT(room > 0);
    size_t size = c->mode == SH_CODEC_READ ? (size_t)c->text_size : strnlen(text, room);
    SH_ASSERT(c->mode == SH_CODEC_READ || size < room);
    sh_codec_length(c, &size, room - 1);
    /* A text that is done is skipped whole, whatever size is: only the cut one's is remembered. */
    c->text_size = size;
    uint64_t before = c->fields_done;
    sh_codec_bytes(c, text, size);
    if (c->mode != SH_CODEC_READ || c->fields_done == before || c->is_cut)
        return;
    text[size] = '\0';
    if (memchr(text, '\0', size))
        wrong(c, SHOAL_EPROTO);
}

/* --- Control ------------------------------------------------------------------------------- */

struct sh_codec_loop sh_codec_loop(struct sh_codec *c, size_t count)
{
    /* A field of no bytes, so that no other loop begins at the same one. */
    if (enter(c))
        leave(c);
    struct sh_codec_loop loop = {.count = count, .start = c->field};
    if (c->loop_start == loop.start) {
        loop.index = (size_t)c->loop_index;
        c->field = c->loop_field;
    }
    return loop;
}

bool sh_codec_next(struct sh_codec *c, const struct sh_codec_loop *loop)
{
    /* When the piece has ended the count may not have been read. */
    if (c->is_cut || c->err != SHOAL_OK || loop->index >= loop->count)
        return false;
    c->loop_start = loop->start;
    c->loop_index = loop->index;
    c->loop_field = c->field;
    return true;
}

bool sh_codec_reading(const struct sh_codec *c)
{
    return c->mode == SH_CODEC_READ && !c->is_cut && c->err == SHOAL_OK;
}

void sh_codec_fail(struct sh_codec *c, enum shoal_err err)
{
    SH_ASSERT(err != SHOAL_OK);
    if (sh_codec_reading(c))
        wrong(c, err);
}

/* --- Those who send and receive ------------------------------------------------------------ */

uint64_t sh_codec_size(sh_codec_describe describe, void *object)
{
    struct sh_codec c = {.mode = SH_CODEC_SIZE};
    describe(&c, object);
    return c.bytes;
}

struct sh_codec sh_codec_writer(uint64_t bytes)
{
    return (struct sh_codec){.mode = SH_CODEC_WRITE, .bytes = bytes};
}

struct sh_codec sh_codec_reader(uint64_t bytes)
{
    return (struct sh_codec){.mode = SH_CODEC_READ, .bytes = bytes};
}

static void run(struct sh_codec *c, sh_codec_describe describe, void *object, uint64_t bytes)
{
    c->left = bytes;
    c->field = 0;
    c->is_cut = false;
    describe(c, object);
}

size_t sh_codec_write(struct sh_codec *c, sh_codec_describe describe, void *object, void *into,
                      size_t room)
{
    SH_ASSERT(c->mode == SH_CODEC_WRITE && c->passed <= c->bytes);
    uint64_t now = at_most(room, c->bytes - c->passed);
    c->into = into;
    run(c, describe, object, now);
    SH_ASSERT(c->left == 0);                        /* the object has not become smaller */
    SH_ASSERT(c->is_cut == (c->passed < c->bytes)); /* nor larger */
    return (size_t)now;
}

enum shoal_err sh_codec_read(struct sh_codec *c, sh_codec_describe describe, void *object,
                             struct sh_bytes piece)
{
    SH_ASSERT(c->mode == SH_CODEC_READ && c->err == SHOAL_OK);
    SH_ASSERT(piece.size <= c->bytes - c->passed);
    c->from = piece.at;
    run(c, describe, object, piece.size);
    if (c->err == SHOAL_OK && c->is_cut == sh_codec_is_done(c))
        wrong(c, SHOAL_EPROTO);
    SH_ASSERT(c->err != SHOAL_OK || c->left == 0);
    return c->err;
}
