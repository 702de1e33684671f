/* What a chunk of a campaign has: a head that says which value it is, and bytes that follow from that, to any length. So who reads it
 * knows whether each byte is of that value. */
#ifndef TESTS_CAMPAIGN_CONTENT_H
#define TESTS_CAMPAIGN_CONTENT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define CONTENT_MAGIC UINT64_C(0x6e676961706d6163)
#define CONTENT_BYTES_MIN 64u
#define CONTENT_BYTES_MAX (512u << 10)

struct content_head {
    uint64_t magic, key, version, size;
};
_Static_assert(sizeof(struct content_head) < CONTENT_BYTES_MIN, "a chunk has a whole head");

static inline uint64_t content_mix(uint64_t v)
{
    v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
    return v ^ v >> 31;
}

/* Writes the first `length` bytes, CONTENT_BYTES_MIN at least, of the `size` bytes that are version (from 1 on) of the chunk that key
 * names. */
static inline void content_make(uint8_t *bytes, uint64_t key, uint64_t version, uint32_t size,
                                uint32_t length)
{
    const struct content_head head = {CONTENT_MAGIC, key, version, size};
    memcpy(bytes, &head, sizeof head);
    for (uint32_t at = sizeof head; at < length; at += sizeof(uint64_t)) {
        uint64_t word = content_mix(key * UINT64_C(0x9e3779b97f4a7c15) +
                                    content_mix(version + ((uint64_t)size << 32)) + at);
        uint32_t left = length - at;
        memcpy(bytes + at, &word, left < sizeof word ? left : sizeof word);
    }
}

/* Whether these are the bytes of some version, which may have been cut off by a change of size, and filled up with zeros: which version,
 * and how many bytes before the zeros. Version 0 is all zeros, and of no key. room has CONTENT_BYTES_MAX bytes. */
static inline bool content_read(const uint8_t *bytes, uint32_t size, uint8_t *room,
                                uint64_t *key_out, uint64_t *version_out, uint32_t *length_out)
{
    struct content_head head;
    uint32_t length = size;
    if (size < CONTENT_BYTES_MIN || size > CONTENT_BYTES_MAX)
        return false;
    while (length > 0 && bytes[length - 1] == 0)
        length--;
    memcpy(&head, bytes, sizeof head);
    if (length == 0)
        head = (struct content_head){0};
    else if (head.magic != CONTENT_MAGIC || head.version == 0 || length > head.size)
        return false;
    else
        content_make(room, head.key, head.version, (uint32_t)head.size, size);
    if (memcmp(bytes, room, length) != 0)
        return false;
    *key_out = head.key;
    *version_out = head.version;
    *length_out = length;
    return true;
}

#endif
