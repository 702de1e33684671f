#include "graph/vertex.h"

#include "base/assert.h"

#define VERSION 2u
#define VERSION_MASK 0x0fu
#define TYPED 0x10u
#define WIDE 0x20u
#define KNOWN (VERSION_MASK | TYPED | WIDE)

bool sh_vertex_may_begin(uint8_t format)
{
    return (format & VERSION_MASK) == VERSION && !(format & ~KNOWN);
}

enum shoal_err sh_vertex_decode(struct sh_bytes chunk, struct sh_vertex *vertex_out)
{
    struct sh_reader r = sh_reader_make(chunk);
    uint8_t format = sh_get8(&r);
    if (!sh_vertex_may_begin(format))
        return SHOAL_ECORRUPT;
    struct sh_vertex vertex = {.typed = format & TYPED, .seal = sh_get32(&r)};
    vertex.out_count = format & WIDE ? sh_get32(&r) : sh_get8(&r);
    vertex.in_count = format & WIDE ? sh_get32(&r) : sh_get8(&r);
    vertex.name = sh_get64(&r);
    /* Sizes are products of 32-bit counts: they can't overflow 64 bits. */
    vertex.out = sh_reader_take(&r, (size_t)vertex.out_count * 8);
    vertex.in = sh_reader_take(&r, (size_t)vertex.in_count * 8);
    if (vertex.typed)
        vertex.types = sh_reader_take(&r, (size_t)vertex.out_count * 2);
    if (!sh_reader_ok(&r))
        return SHOAL_ECORRUPT;
    vertex.record = sh_bytes_make(r.at, sh_reader_left(&r));
    *vertex_out = vertex;
    return SHOAL_OK;
}

struct sh_vertex_room sh_vertex_encode(uint8_t *chunk, size_t size, uint32_t seal, uint64_t name,
                                       uint32_t out_count, uint32_t in_count, bool typed,
                                       struct sh_bytes record)
{
    SH_ASSERT(size == sh_vertex_bytes(out_count, in_count, typed, record.size));
    bool wide = out_count > UINT8_MAX || in_count > UINT8_MAX;
    struct sh_writer w = sh_writer_make(chunk, size);
    sh_put8(&w, (uint8_t)(VERSION | (typed ? TYPED : 0) | (wide ? WIDE : 0)));
    sh_put32(&w, seal);
    if (wide) {
        sh_put32(&w, out_count);
        sh_put32(&w, in_count);
    } else {
        sh_put8(&w, (uint8_t)out_count);
        sh_put8(&w, (uint8_t)in_count);
    }
    sh_put64(&w, name);
    struct sh_vertex_room room = {0};
    room.out = sh_writer_take(&w, (size_t)out_count * 8);
    room.in = sh_writer_take(&w, (size_t)in_count * 8);
    if (typed)
        room.types = sh_writer_take(&w, (size_t)out_count * 2);
    sh_put_raw(&w, record);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    return room;
}
