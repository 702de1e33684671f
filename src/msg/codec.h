/* Descriptions of messages: one function per type tells the message's fields in order, and serves
 * to size it, to write it and to read it, in one go or in pieces cut at any byte.
 * DXNet 2018 §V, §VI.
 *
 *   static void describe(struct sh_codec *c, void *arg)
 *   {
 *       struct page *page = arg;
 *       sh_codec_u64(c, &page->number);
 *       sh_codec_text(c, page->name, sizeof page->name);
 *       sh_codec_length(c, &page->size, PAGE_BYTES_MAX);
 *       if (sh_codec_reading(c) && !page->bytes && !(page->bytes = pool_take(page->size)))
 *           sh_codec_fail(c, SHOAL_ENOMEM);
 *       sh_codec_bytes(c, page->bytes, page->size);
 *   }
 *
 * Where a piece ends in the middle, the description is run again with the next one: the fields that
 * are done are skipped, and the one that was cut goes on at its next byte. So a description
 *   - tells the same fields each time, as long as the fields that it has read say the same;
 *   - has no effects but those that it may repeat (above: the pool is asked once, for `bytes` was
 *     NULL; objects to be read start as zeros);
 *   - acts on what it has read only where sh_codec_reading says that it has been read.
 *
 * What lies on the wire: values little-endian; compact numbers in groups of 7 bits, the lowest
 * first, the top bit of a byte set when another follows (LEB128), in their shortest form; texts and
 * lengths begin with a compact number; runs of bytes and of values are just that.
 *
 * A codec belongs to one thread at a time. Nothing here allocates, and nothing that arrives can
 * make it write beyond the memory that the description names. */
#ifndef SH_MSG_CODEC_H
#define SH_MSG_CODEC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

#define SH_CODEC_COMPACT_MAX 10 /* bytes of the longest compact number */

enum sh_codec_mode { SH_CODEC_SIZE, SH_CODEC_WRITE, SH_CODEC_READ };

/* All of it is the codec's own. */
struct sh_codec {
    enum sh_codec_mode mode;
    enum shoal_err err; /* why reading can't go on */
    bool is_cut;        /* the piece ended within a field: the rest of this run does nothing */
    uint8_t part_bytes; /* of a value or compact number that was cut, in part */
    uint8_t part[SH_CODEC_COMPACT_MAX];
    const uint8_t *from; /* reading: the piece */
    uint8_t *into;       /* writing: the piece */
    uint64_t left;       /* bytes of the piece that are not used yet */
    uint64_t bytes;      /* of the whole message */
    uint64_t passed;     /* of these, done */
    uint64_t field;      /* told so far in this run */
    uint64_t fields_done;
    uint64_t run_done;  /* bytes, or numbers, of the run that was cut */
    uint64_t text_size; /* of the text that is being read */
    /* The loop that is remembered (0: none): its record, and the field that this begins after. */
    uint64_t loop_start, loop_index, loop_field;
};

typedef void (*sh_codec_describe)(struct sh_codec *c, void *object);

/* --- For descriptions ---------------------------------------------------------------------- */

void sh_codec_u8(struct sh_codec *c, uint8_t *value);
void sh_codec_u16(struct sh_codec *c, uint16_t *value);
void sh_codec_u32(struct sh_codec *c, uint32_t *value);
void sh_codec_u64(struct sh_codec *c, uint64_t *value);

/* A number in 1 to 10 bytes: 1 for those below 128. */
void sh_codec_compact(struct sh_codec *c, uint64_t *value);

/* How many there are of something that follows and takes a byte each at least; compact. Read: more
 * than max, or than bytes are left in the message, is EPROTO, so that what arrives can't ask for
 * more memory than its own size. Written: at most max (asserted). */
void sh_codec_length(struct sh_codec *c, size_t *count, size_t max);

/* A text that ends with a NUL in memory of `room` bytes (at least 1), and begins with its length on
 * the wire. A text that has no room, or a NUL in it, is EPROTO. */
void sh_codec_text(struct sh_codec *c, char *text, size_t room);

/* Bytes whose number both sides know. They are copied once, between the piece and `at` (NULL only
 * when there are none, or when the run does nothing any more). */
void sh_codec_bytes(struct sh_codec *c, void *at, size_t size);

/* Values whose number both sides know; a u64 takes 8 bytes. */
void sh_codec_array16(struct sh_codec *c, uint16_t *values, size_t count);
void sh_codec_array32(struct sh_codec *c, uint32_t *values, size_t count);
void sh_codec_array64(struct sh_codec *c, uint64_t *values, size_t count);
/* The same as compact numbers. */
void sh_codec_compacts(struct sh_codec *c, uint64_t *values, size_t count);

/* A loop over records that goes on where it was, so that n records cost n steps however many pieces
 * they come in:
 *     for (struct sh_codec_loop l = sh_codec_loop(c, n); sh_codec_next(c, &l); l.index++)
 * One loop is remembered, the last that began a record; loops around or before it are right as
 * well, but pass once more over what is done. */
struct sh_codec_loop {
    size_t index, count;
    uint64_t start; /* which loop it is */
};
struct sh_codec_loop sh_codec_loop(struct sh_codec *c, size_t count);
bool sh_codec_next(struct sh_codec *c, const struct sh_codec_loop *loop);

/* True while reading, when everything told so far has been read. */
bool sh_codec_reading(const struct sh_codec *c);

/* Says that what was read makes no sense, or can't be kept: nothing more is read. Ignored unless
 * sh_codec_reading. err is not OK. */
void sh_codec_fail(struct sh_codec *c, enum shoal_err err);

/* --- For those who send and receive -------------------------------------------------------- */

/* The bytes that an object takes. */
uint64_t sh_codec_size(sh_codec_describe describe, void *object);

/* Begins to write an object of that size, or to read a message of that size. */
struct sh_codec sh_codec_writer(uint64_t bytes);
struct sh_codec sh_codec_reader(uint64_t bytes);

/* Writes the next bytes of the object, up to `room`, and returns how many: fewer only at the end.
 * The object must be as it was when it was sized (asserted at the end). */
size_t sh_codec_write(struct sh_codec *c, sh_codec_describe describe, void *object, void *into,
                      size_t room);

/* Reads the next bytes of the message into the object; no more than the message has left. EPROTO
 * when the description and the message do not end together, or as the description said: then no
 * more may be read. */
SHOAL_NODISCARD enum shoal_err sh_codec_read(struct sh_codec *c, sh_codec_describe describe,
                                             void *object, struct sh_bytes piece);

/* True when all bytes have been written or read. */
static inline bool sh_codec_is_done(const struct sh_codec *c)
{
    return c->passed == c->bytes;
}

#endif
