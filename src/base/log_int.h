/* What log.c and log_line.c share: one line being put together. */
#ifndef SH_BASE_LOG_INT_H
#define SH_BASE_LOG_INT_H

#include "base/log.h"

struct sh_log_line {
    size_t size;
    bool cut; /* something did not fit */
    char text[SH_LOG_LINE_BYTES_MAX];
};

struct sh_log_event {
    uint64_t wall_ns; /* since 1970, UTC */
    enum sh_log_level level;
    uint16_t node; /* 0: none */
    const char *module;
    const char *event;
    const struct sh_field *fields;
    size_t field_count;
};

/* Lays the event out as one whole line that ends with a newline. */
void sh_log_line_make(struct sh_log_line *line, const struct sh_log_event *event,
                      enum sh_log_format format);

#endif
