#include <stdarg.h>
#include <stdio.h>

#include "client/client_int.h"

static _Thread_local char detail[SH_DETAIL_BYTES];

char *sh_client_detail(void)
{
    return detail;
}

void sh_client_detail_set(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(detail, sizeof detail, format, arguments);
    va_end(arguments);
}

const char *shoal_error_detail(void)
{
    return detail;
}

enum shoal_err sh_client_blocking(void)
{
    detail[0] = '\0';
    if (!sh_completing())
        return SHOAL_OK;
    sh_client_detail_set("a completion callback must not block: use the asynchronous calls");
    return SHOAL_EBUSY;
}

const char *shoal_version(void)
{
    return SHOAL_VERSION;
}
