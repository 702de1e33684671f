/* A peer tells people of its logs and backups (`shoal log info NID`): tables of numbers, whose columns have names, so that
 * a client shows columns that it does not know, and misses none that it asks for by position.
 *
 *   LOG_TABLE     u8 table (enum sh_log_table_kind), u64 cursor: 0, or the `next` of the page before
 *     answer      u64 next: 0, that was all; u16 columns, each: text name; u32 rows, each: u64 for each column
 *     errors      ENONAME: the node has no log, or its log is not open yet. EPROTO: there is no such table
 *
 * Pages are of different moments: a zone or slot that comes or goes between two of them may be missing, or there twice.
 *
 * Memory: 68 KiB a table, which is a page. Threads: plain values. */
#ifndef SH_PROTO_LOGS_H
#define SH_PROTO_LOGS_H

#include "base/bytes.h"
#include "msg/msg.h"

#define SH_NODE_LOG_TABLE SH_MSG_TYPE(2, 62)

/* Numbers on the wire. */
enum sh_log_table_kind {
    SH_LOG_TABLE_METRICS, /* one row: what the log, the own zones and the kept ones have done since the process started */
    SH_LOG_TABLE_OWN, /* a row for each backup of each own zone, or one with node 0 for a zone without any */
    SH_LOG_TABLE_KEPT,  /* a row for each zone that the log has, whoever owns it */
    SH_LOG_TABLE_SLOTS, /* a row for each slot of the log that is in use */
};
#define SH_LOG_TABLES 4

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

#endif
