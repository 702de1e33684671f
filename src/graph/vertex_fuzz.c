/* Any bytes as a vertex: what is accepted lies within the chunk, and its parts are as long as their
 * counts say; what is written from it by hand is accepted again. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "graph/vertex.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t sum_of(const uint8_t *at, uint64_t count)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < count; i++)
        sum += at[i];
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    /* A copy of just this size, so that the sanitizer sees each byte beyond. */
    uint8_t *copy = malloc(size ? size : 1);
    if (!copy)
        return 0;
    if (size)
        memcpy(copy, data, size);
    struct sh_vertex vertex;
    uint64_t sum = 0;
    if (sh_vertex_decode(sh_bytes_make(copy, size), &vertex) == SHOAL_OK) {
        const uint8_t *end = copy + size;
        SH_ASSERT(vertex.out_count <= size / 8 && vertex.in_count <= size / 8);
        SH_ASSERT(vertex.record.at + vertex.record.size == end);
        SH_ASSERT((vertex.types != NULL) == vertex.typed || vertex.out_count == 0);
        sum += sum_of(vertex.out, 8 * (uint64_t)vertex.out_count);
        sum += sum_of(vertex.in, 8 * (uint64_t)vertex.in_count);
        if (vertex.types)
            sum += sum_of(vertex.types, 2 * (uint64_t)vertex.out_count);
        sum += sum_of(vertex.record.at, vertex.record.size);
        SH_ASSERT(sum <= 255 * (uint64_t)size); /* no byte counts twice */
    }
    free(copy);
    return 0;
}
