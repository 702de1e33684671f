/* Structured logging: one event a line, as text for people or JSON for programs.
 *
 *   SH_INFO("msg", "connection lost", SH_U64("nid", nid.v), SH_TEXT("reason", text));
 *   2026-11-20T23:01:02.345678Z info  msg  connection lost nid=3 reason="reset by peer"
 *   {"time":"...","level":"info","module":"msg","event":"connection lost","nid":3,"reason":"..."}
 *
 * Levels are set for all modules and for single ones, at any time ("info,msg=debug"). A line that
 * can't be written (full disk, closed pipe) is counted and dropped; the first failure is said once
 * on stderr, and again when writing works again with the number that was lost. Any thread; a line
 * is written with one write(2) call under the LOG lock. The event text is a constant: no "%".
 *
 * Texts may hold any bytes: controls, bad UTF-8 and what would move or reorder a terminal's text is
 * escaped. A line has at most SH_LOG_LINE_BYTES_MAX bytes: a text that is too long is cut, fields
 * that do not fit are left out, and the line says truncated=true. */
#ifndef SH_BASE_LOG_H
#define SH_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "shoal/err.h"

#define SH_LOG_LINE_BYTES_MAX 8192
#define SH_LOG_FIELDS_MAX 16

enum sh_log_level { SH_LOG_ERROR, SH_LOG_WARN, SH_LOG_INFO, SH_LOG_DEBUG, SH_LOG_TRACE };
enum sh_log_format { SH_LOG_AS_TEXT, SH_LOG_AS_JSON };

enum sh_field_kind { SH_FIELD_U64, SH_FIELD_I64, SH_FIELD_F64, SH_FIELD_TEXT, SH_FIELD_ERR };

struct sh_field {
    const char *key;
    enum sh_field_kind kind;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        const char *text; /* borrowed; NULL prints as empty; any bytes, escaped on output */
        enum shoal_err err;
    };
};

#define SH_U64(k, v) ((struct sh_field){.key = (k), .kind = SH_FIELD_U64, .u64 = (v)})
#define SH_I64(k, v) ((struct sh_field){.key = (k), .kind = SH_FIELD_I64, .i64 = (v)})
#define SH_F64(k, v) ((struct sh_field){.key = (k), .kind = SH_FIELD_F64, .f64 = (v)})
#define SH_TEXT(k, v) ((struct sh_field){.key = (k), .kind = SH_FIELD_TEXT, .text = (v)})
#define SH_ERR(v) ((struct sh_field){.key = "error", .kind = SH_FIELD_ERR, .err = (v)})

/* Sets the levels from a list like "info" or "warn,msg=debug,store=trace", replacing all that were
 * set before; without a level for all, that is info. A module's name has 1 to 15 of a-z, 0-9 and _;
 * at most 16 may be named. EPARSE names the bad word through bad_out (borrowed from spec, with its
 * length) and changes nothing. Any thread; lines that are logged meanwhile go by the old or the new
 * levels. */
SHOAL_NODISCARD enum shoal_err sh_log_levels_set(const char *spec, const char **bad_out,
                                                 size_t *bad_len_out);

/* Only checks such a list. */
SHOAL_NODISCARD enum shoal_err sh_log_levels_check(const char *spec, const char **bad_out,
                                                   size_t *bad_len_out);

/* Sends lines to a file (created, appended to) in the given format; path NULL or "" or "-" means
 * stderr. EIO/ENOSPC when it can't be opened: the old output stays. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_log_output_set(const char *path, enum sh_log_format format);

/* The node that this process is: put into every line from now on as node=NID; 0: into none. Any
 * thread. */
void sh_log_node_set(uint16_t nid);

/* Where the lines' times come from (ns since 1970, UTC): handed in by who has a clock of its own,
 * such as a simulation. NULL: the system's. The callback is called under the LOG lock. */
void sh_log_clock_set(uint64_t (*wall_ns)(void *arg), void *arg);

/* Lines dropped so far because they could not be written. */
uint64_t sh_log_dropped(void);

bool sh_log_enabled(enum sh_log_level level, const char *module);

/* Writes one event; the macros below call it with the count of the fields. At most
 * SH_LOG_FIELDS_MAX fields. */
void sh_log_write(enum sh_log_level level, const char *module, const char *event,
                  const struct sh_field *fields, size_t field_count);

#define SH_LOG(level, module, event, ...)                                                          \
    do {                                                                                           \
        if (sh_log_enabled(level, module)) {                                                       \
            const struct sh_field sh_fields_[] = {__VA_ARGS__ __VA_OPT__(, ){.key = NULL}};        \
            sh_log_write(level, module, event, sh_fields_,                                         \
                         sizeof sh_fields_ / sizeof sh_fields_[0] - 1);                            \
        }                                                                                          \
    } while (0)

#define SH_ERROR(module, ...) SH_LOG(SH_LOG_ERROR, module, __VA_ARGS__)
#define SH_WARN(module, ...) SH_LOG(SH_LOG_WARN, module, __VA_ARGS__)
#define SH_INFO(module, ...) SH_LOG(SH_LOG_INFO, module, __VA_ARGS__)
#define SH_DEBUG(module, ...) SH_LOG(SH_LOG_DEBUG, module, __VA_ARGS__)
#define SH_TRACE(module, ...) SH_LOG(SH_LOG_TRACE, module, __VA_ARGS__)

#endif
