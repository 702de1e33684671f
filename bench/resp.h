/* The Redis protocol (RESP2), as little of it as the baseline's client needs. */
#ifndef SH_BENCH_RESP_H
#define SH_BENCH_RESP_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

/* Bytes that a command with `count` keys, and a value if there is one, takes at most. */
#define SH_RESP_COMMAND_BYTES(count, value_bytes) (64 + 36 * (size_t)(count) + (value_bytes))

/* Write a command at `into` and return its end. Keys are numbers, as decimal text. */
uint8_t *sh_resp_mget(uint8_t *into, const uint64_t *keys, unsigned count);
uint8_t *sh_resp_get(uint8_t *into, uint64_t key);
/* Leaves value_bytes for the value at *value_out, for the caller to fill. */
uint8_t *sh_resp_set(uint8_t *into, uint64_t key, size_t value_bytes, uint8_t **value_out);

enum sh_resp_kind {
    SH_RESP_PARTIAL, /* more bytes are needed */
    SH_RESP_BAD,     /* no reply, or one that the baseline never asks for */
    SH_RESP_STATUS,  /* +OK */
    SH_RESP_ERROR,   /* -ERR ...: the text is in bytes */
    SH_RESP_BULK,    /* $N: the value is in bytes */
    SH_RESP_NIL,     /* $-1 */
    SH_RESP_ARRAY,   /* *N: N values follow as replies of their own */
};

struct sh_resp {
    enum sh_resp_kind kind;
    struct sh_bytes bytes; /* borrowed from the input */
    uint32_t count;        /* ARRAY: how many follow */
    size_t taken;          /* bytes of the input */
};

/* Reads the reply at the input's front. Never reads past it, whatever the bytes are. */
struct sh_resp sh_resp_read(struct sh_bytes input);

#endif
