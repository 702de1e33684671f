#include <stdint.h>

#include "base/assert.h"
#include "bench/resp.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_bytes input = sh_bytes_make(data, size);
    for (;;) {
        struct sh_resp reply = sh_resp_read(input);
        if (reply.kind == SH_RESP_PARTIAL || reply.kind == SH_RESP_BAD)
            return 0;
        SH_ASSERT(reply.taken > 0 && reply.taken <= input.size);
        if (reply.kind == SH_RESP_BULK)
            SH_ASSERT(reply.bytes.at + reply.bytes.size <= input.at + reply.taken);
        input = sh_bytes_make(input.at + reply.taken, input.size - reply.taken);
    }
}
