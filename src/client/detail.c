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

void sh_client_detail_take(char *into, const struct sh_reader *text)
{
    size_t size = sh_reader_left(text);
    if (!into)
        return;
    if (size >= SH_DETAIL_BYTES)
        size = SH_DETAIL_BYTES - 1;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = text->at[i];
        into[i] = byte >= ' ' && byte != 0x7f ? (char)byte : '?';
    }
    into[size] = '\0';
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
