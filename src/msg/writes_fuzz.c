/* Hostile bytes for the wire that emulates one-sided writes: nothing is written outside the region,
 * and what the owner pulls is what came, without frames. The first byte of an input is the size of
 * the pieces that it arrives in. The region's key is 0, for the random numbers are zeros. */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "msg/memwire.h"
#include "msg/writes.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REGION_BYTES 64
#define CANARY_BYTES 64
#define CANARY 0xC5

static void zeros(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 0, size);
}

static size_t poll_and_pull(struct sh_wire *wire)
{
    struct sh_wire_event events[4];
    uint8_t pulled[100];
    size_t total = 0, got;
    unsigned count = wire->ops->poll(wire, events, 4, 0);
    for (unsigned i = 0; i < count; i++) {
        if (events[i].kind != SH_WIRE_READABLE)
            continue;
        while ((got = wire->ops->pull(wire, events[i].link, pulled, sizeof pulled)) > 0)
            total += got;
    }
    return total;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 1)
        return 0;
    struct sh_memwire memwire;
    struct sh_wire *wire;
    uint8_t memory[CANARY_BYTES + REGION_BYTES + CANARY_BYTES];
    uint64_t key;
    size_t piece = data[0] ? data[0] : 256, pulled = 0;
    sh_memwire_init(&memwire);
    memset(memory, CANARY, sizeof memory);
    struct sh_env env = sh_memwire_env(&memwire);
    enum shoal_err err =
        sh_writes_create(env.wire, env.clock, (struct sh_random){zeros, NULL}, &wire);
    SH_ASSERT(err == SHOAL_OK);
    err = wire->ops->region_add(wire, memory + CANARY_BYTES, REGION_BYTES, &key);
    SH_ASSERT(err == SHOAL_OK && key == 0);
    sh_link link = sh_memwire_accept(&memwire);
    pulled += poll_and_pull(wire);
    for (size_t at = 1; at < size && memwire.links[link].is_there; at += piece) {
        size_t part = size - at < piece ? size - at : piece;
        sh_memwire_feed(&memwire, link, sh_bytes_make(data + at, part));
        pulled += poll_and_pull(wire);
    }
    SH_ASSERT(pulled < size);
    for (size_t i = 0; i < CANARY_BYTES; i++) {
        SH_ASSERT(memory[i] == CANARY);
        SH_ASSERT(memory[CANARY_BYTES + REGION_BYTES + i] == CANARY);
    }
    wire->ops->destroy(wire);
    sh_memwire_free(&memwire);
    return 0;
}
