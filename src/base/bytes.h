/* Bytes in memory: spans, little-endian loads and stores, and cursors that read and write
 * encoded values without ever leaving their span.
 *
 * Every wire and disk record is encoded with these: fields in order, little-endian, no padding,
 * no raw structs. A writer that runs out of room and a reader that runs out of bytes turn `bad`
 * and stay so; check once at the end (sh_writer_ok, sh_reader_ok). A bad reader yields zeros. */
#ifndef SH_BASE_BYTES_H
#define SH_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* A borrowed, read-only run of bytes. */
struct sh_bytes {
    const uint8_t *at;
    size_t size;
};

static inline struct sh_bytes sh_bytes_make(const void *at, size_t size)
{
    return (struct sh_bytes){at, size};
}

static inline struct sh_bytes sh_bytes_text(const char *text)
{
    return (struct sh_bytes){(const uint8_t *)text, strlen(text)};
}

/* Whether they are one word: at least one byte, all of them visible ASCII, so no blank and nothing that could do
 * harm on a terminal. */
static inline bool sh_bytes_are_word(struct sh_bytes bytes)
{
    bool are_word = bytes.size > 0;
    for (size_t i = 0; are_word && i < bytes.size; i++)
        are_word = bytes.at[i] > ' ' && bytes.at[i] < 0x7f;
    return are_word;
}

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shoal's loads and stores assume a little-endian machine"
#endif

#define SH_BYTES_ACCESSORS(bits)                                                                   \
    static inline uint##bits##_t sh_load##bits(const uint8_t *at)                                  \
    {                                                                                              \
        uint##bits##_t value;                                                                      \
        memcpy(&value, at, sizeof value);                                                          \
        return value;                                                                              \
    }                                                                                              \
    static inline void sh_store##bits(uint8_t *at, uint##bits##_t value)                           \
    {                                                                                              \
        memcpy(at, &value, sizeof value);                                                          \
    }
SH_BYTES_ACCESSORS(16)
SH_BYTES_ACCESSORS(32)
SH_BYTES_ACCESSORS(64)
#undef SH_BYTES_ACCESSORS

/* A cursor that writes into a borrowed span. */
struct sh_writer {
    uint8_t *at;
    uint8_t *end;
    bool bad;
};

static inline struct sh_writer sh_writer_make(void *at, size_t size)
{
    return (struct sh_writer){at, (uint8_t *)at + size, false};
}

/* True when everything written fitted. */
static inline bool sh_writer_ok(const struct sh_writer *w)
{
    return !w->bad;
}

/* Takes size bytes of room and returns where they are, for the caller to fill; NULL if short. */
static inline uint8_t *sh_writer_take(struct sh_writer *w, size_t size)
{
    if (w->bad || (size_t)(w->end - w->at) < size) {
        w->bad = true;
        return NULL;
    }
    uint8_t *at = w->at;
    w->at += size;
    return at;
}

/* A cursor that reads from a borrowed span. */
struct sh_reader {
    const uint8_t *at;
    const uint8_t *end;
    bool bad;
};

static inline struct sh_reader sh_reader_make(struct sh_bytes bytes)
{
    /* No bytes may be at NULL, to which C lets nothing be added, not even 0. */
    const uint8_t *end = bytes.size ? bytes.at + bytes.size : bytes.at;
    return (struct sh_reader){bytes.at, end, false};
}

/* True when nothing was read past the end. */
static inline bool sh_reader_ok(const struct sh_reader *r)
{
    return !r->bad;
}

/* True when nothing was read past the end and nothing is left over. */
static inline bool sh_reader_done(const struct sh_reader *r)
{
    return !r->bad && r->at == r->end;
}

static inline size_t sh_reader_left(const struct sh_reader *r)
{
    return r->bad ? 0 : (size_t)(r->end - r->at);
}

/* Takes size bytes and returns where they are (valid as long as the span); NULL if short. */
static inline const uint8_t *sh_reader_take(struct sh_reader *r, size_t size)
{
    if (r->bad || (size_t)(r->end - r->at) < size) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->at;
    r->at += size;
    return at;
}

static inline void sh_put8(struct sh_writer *w, uint8_t value)
{
    uint8_t *at = sh_writer_take(w, 1);
    if (at)
        *at = value;
}

static inline uint8_t sh_get8(struct sh_reader *r)
{
    const uint8_t *at = sh_reader_take(r, 1);
    return at ? *at : 0;
}

#define SH_BYTES_FIELD(bits)                                                                       \
    static inline void sh_put##bits(struct sh_writer *w, uint##bits##_t value)                     \
    {                                                                                              \
        uint8_t *at = sh_writer_take(w, bits / 8);                                                 \
        if (at)                                                                                    \
            sh_store##bits(at, value);                                                             \
    }                                                                                              \
    static inline uint##bits##_t sh_get##bits(struct sh_reader *r)                                 \
    {                                                                                              \
        const uint8_t *at = sh_reader_take(r, bits / 8);                                           \
        return at ? sh_load##bits(at) : 0;                                                         \
    }
SH_BYTES_FIELD(16)
SH_BYTES_FIELD(32)
SH_BYTES_FIELD(64)
#undef SH_BYTES_FIELD

/* Raw bytes without a length before them. */
static inline void sh_put_raw(struct sh_writer *w, struct sh_bytes bytes)
{
    uint8_t *at = sh_writer_take(w, bytes.size);
    if (at && bytes.size)
        memcpy(at, bytes.at, bytes.size);
}

/* Bytes behind a 16-bit length: names, addresses, short texts. Longer than 65535 turns bad. */
static inline void sh_put_text(struct sh_writer *w, struct sh_bytes bytes)
{
    if (bytes.size > UINT16_MAX) {
        w->bad = true;
        return;
    }
    sh_put16(w, (uint16_t)bytes.size);
    sh_put_raw(w, bytes);
}

static inline struct sh_bytes sh_get_text(struct sh_reader *r)
{
    size_t size = sh_get16(r);
    const uint8_t *at = sh_reader_take(r, size);
    return at ? sh_bytes_make(at, size) : (struct sh_bytes){NULL, 0};
}

#endif
