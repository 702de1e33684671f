/* A fuzz target with a planted mistake, which the fuzzer must find within seconds. ./test passes
 * only when this fails: it proves that the alarm rings. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size >= 3 && data[0] == 'b' && data[1] == 'u' && data[2] == 'g') {
        fputs("canary: the planted mistake was found\n", stderr);
        abort();
    }
    return 0;
}
