/* A peer tells people of its logs and backups (`shoal log info NID`), and looks into its log for them (`shoal log scrub NID`, `dump NID`): tables of numbers, whose columns have names, so that
 * a client shows columns that it does not know, and misses none that it asks for by position.
 *
 *   LOG_TABLE     u8 table (enum sh_log_table_kind), u64 cursor: 0, or the `next` of the page before
 *     answer      u64 next: 0, that was all; u16 columns, each: text name; u32 rows, each: u64 for each column
 *     errors      ENONAME: the node has no log, or its log is not open yet. EPROTO: there is no such table
 *
 * Pages are of different moments: a zone or slot that comes or goes between two of them may be missing, or there twice.
 *
 *   LOG_SCRUB     u64 zone, or 0 for all; u64 bytes a second, up to 1 GiB; 0: 64 MiB; never less than in the background
 *     answer      u64 its number. It ends a scrub that was asked for before. How it goes, and what it has found, tables say
 *     errors      ENONAME: the node has no log, or the log nothing of the zone. EIO: the log is out of service. EPROTO
 *   LOG_DUMP      u64 dump: 0 begins one; u64 zone, u64 chunk, or 0 for all; u32 page: 1, or the `next` of the page before
 *     answer      u64 dump, and a page as a table's, of the zone's entries. No rows, and `next` the page itself: ask again a little later
 *     errors      EBUSY: somebody else reads a dump, or did so until ten seconds ago. ENONAME as above; ECANCELED: nobody has asked for ten
 *                 seconds, or the page is not the one that is read, nor the next one. EFULL: too many chunks for the memory of a dump: name one. EIO, ENOMEM, EPROTO
 *
 * Memory: 68 KiB a table, which is a page. Threads: plain values. */
#ifndef SH_PROTO_LOGS_H
#define SH_PROTO_LOGS_H

#include "base/bytes.h"
#include "msg/msg.h"

#define SH_NODE_LOG_DUMP SH_MSG_TYPE(2, 59)
#define SH_NODE_LOG_TABLE SH_MSG_TYPE(2, 62)
#define SH_NODE_LOG_SCRUB SH_MSG_TYPE(2, 63)

/* Numbers on the wire. */
enum sh_log_table_kind {
    SH_LOG_TABLE_METRICS, /* one row: what the log, the own zones and the kept ones have done since the process started */
    SH_LOG_TABLE_OWN, /* a row for each backup of each own zone, or one with node 0 for a zone without any */
    SH_LOG_TABLE_KEPT,   /* a row for each zone that the log has, whoever owns it */
    SH_LOG_TABLE_SLOTS,  /* a row for each slot of the log that is in use */
    SH_LOG_TABLE_SCRUB,  /* one row: the scrub that was asked for last */
    SH_LOG_TABLE_PLACES, /* a row for each place that it has found */
    SH_LOG_TABLE_DUMP,   /* one row: the last dump */
};
#define SH_LOG_TABLES 7

/* In the column `flags` of a dump's entries. */
#define SH_LOG_DUMP_REMOVAL 1u
#define SH_LOG_DUMP_ZEROS 2u     /* it has no bytes, but for zeros */
#define SH_LOG_DUMP_WITH_NEXT 4u /* it has the number of the next entry */

/* Names of the column `state` of own zones' backups, by enum sh_sink_state of backup.h; "unknown" beyond. */
const char *sh_log_sink_name(uint64_t state);

#define SH_LOG_COLUMNS_MAX 128
#define SH_LOG_NAME_MAX 32 /* with the NUL */
#define SH_LOG_VALUES_MAX 8192
struct sh_log_table {
    uint64_t next;
    uint16_t columns;
    uint32_t rows;
    char names[SH_LOG_COLUMNS_MAX][SH_LOG_NAME_MAX];
    uint64_t values[SH_LOG_VALUES_MAX]; /* row by row */
};

/* The value in a row's column of that name; 0 where there is none. */
uint64_t sh_log_table_value(const struct sh_log_table *table, uint32_t row, const char *name);

/* Encoded and decoded: bytes; and false when they are no such answer, with more columns or values than there is room for, rows
 * without columns, or names that are empty, too long or not printable. */
size_t sh_log_table_bytes(const struct sh_log_table *table);
void sh_log_table_put(struct sh_writer *w, const struct sh_log_table *table);
SHOAL_NODISCARD bool sh_log_table_get(struct sh_reader *r, struct sh_log_table *table_out);

struct sh_log_dump_ask {
    uint64_t dump, zone, chunk;
    uint32_t page;
};
#define SH_LOG_DUMP_ASK_BYTES 28
void sh_log_dump_ask_put(struct sh_writer *w, const struct sh_log_dump_ask *ask);
/* False: these are not its bytes, or no page is asked for. */
SHOAL_NODISCARD bool sh_log_dump_ask_get(struct sh_reader *r, struct sh_log_dump_ask *ask_out);
/* An answer to it: the dump's number, which is not 0, and a page. */
SHOAL_NODISCARD bool sh_log_dump_get(struct sh_reader *r, uint64_t *dump_out,
                                     struct sh_log_table *table_out);

#endif
