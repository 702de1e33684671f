/* Any bytes as an edge list, typed and untyped, and as vertex records: no crash, no wild read. The
 * first byte chooses the way of reading. */
#include "graph/edges.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void drain(struct sh_edges *reader, bool records)
{
    for (bool end = false; !end;) {
        struct sh_edge edge;
        struct sh_record record;
        enum shoal_err err =
            records ? sh_records_next(reader, &record, &end) : sh_edges_next(reader, &edge, &end);
        if (err)
            return;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    struct sh_types *types = NULL;
    struct sh_edges *reader;
    if ((data[0] & 1) && sh_types_create(&types))
        return 0;
    if (!sh_edges_open_bytes(sh_bytes_make(data + 1, size - 1), types, &reader)) {
        drain(reader, data[0] & 2);
        sh_edges_close(reader);
    }
    sh_types_destroy(types);
    return 0;
}
