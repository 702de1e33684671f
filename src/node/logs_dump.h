/* A dump of a zone out of a peer's log, which somebody reads in pages (LOG_DUMP of proto/logs.h).
 *
 *   begun ──► the page fills ──(it is full, or all has been told)──► it is read, as often as it is asked for ──(the next one is)──► fills
 *
 * One at a time. A dump of which nobody has asked for a page for ten seconds ends. Memory: a page, and that of the log (log/replog_dump.h),
 * while there is one. Threads: that of the log. */
#ifndef SH_NODE_LOGS_DUMP_H
#define SH_NODE_LOGS_DUMP_H

#include "log/replog_dump.h"
#include "proto/logs.h"

/* All zero: there has been none. */
struct sh_logs_dump {
    struct sh_replog *log; /* borrowed, while it goes on in there; NULL: it does not */
    uint64_t number;       /* of the last one; 0: there was none */
    uint64_t zone;
    struct sh_log_table *page; /* NULL: nobody reads one */
    uint32_t page_number;
    bool is_full, is_over;
    bool is_read;                   /* somebody was told the last page */
    struct sh_replog_dumped dumped; /* when it is_over */
    enum shoal_err err;
    uint64_t asked_ns; /* when a page was asked for last */
};

/* Begins one, if nobody reads another. Errors of sh_replog_dump_begin. */
SHOAL_NODISCARD enum shoal_err sh_logs_dump_begin(struct sh_logs_dump *dump, struct sh_replog *log,
                                                  uint64_t zone, uint64_t chunk, uint64_t now_ns);
/* Why that was EBUSY. */
const char *sh_logs_dump_busy(const struct sh_logs_dump *dump);
/* The page that is asked for. *page_out is borrowed; its `next` is that of the protocol. NULL: it is not filled yet. Errors of LOG_DUMP. */
SHOAL_NODISCARD enum shoal_err sh_logs_dump_page(struct sh_logs_dump *dump, uint64_t number,
                                                 uint32_t page, uint64_t now_ns,
                                                 const struct sh_log_table **page_out);
/* Ends a dump that nobody reads any more; when that may be. */
void sh_logs_dump_step(struct sh_logs_dump *dump, uint64_t now_ns);
uint64_t sh_logs_dump_due_ns(const struct sh_logs_dump *dump);
/* The log is being closed. */
void sh_logs_dump_end(struct sh_logs_dump *dump);

#endif
