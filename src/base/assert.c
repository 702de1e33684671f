#include "base/assert.h"

#include <stdio.h>
#include <stdlib.h>

_Noreturn void sh_assert_fail(const char *condition, const char *file, int line)
{
    fprintf(stderr, "%s:%d: assertion failed: %s\n", file, line, condition);
    fflush(stderr);
    abort();
}
