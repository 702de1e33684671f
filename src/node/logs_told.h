/* Answers the LOG_TABLE and LOG_SCRUB of proto/logs.h. */
#ifndef SH_NODE_LOGS_TOLD_H
#define SH_NODE_LOGS_TOLD_H

#include "backup/backup.h"
#include "backup/keeper.h"
#include "node/logs_dump.h"
#include "proto/logs.h"

struct sh_logs_told {
    struct sh_replog *log; /* NULL: there is none, and nothing is told */
    struct sh_backup *backup;
    struct sh_keeper *keeper; /* NULL: it keeps nothing for others */
    struct sh_logs_dump *dump;
};

/* In the thread of the transport step, which is the log's. */
void sh_logs_table_answer(const struct sh_logs_told *told, struct sh_msg_in *in);
void sh_logs_scrub_answer(const struct sh_logs_told *told, struct sh_msg_in *in);
/* To LOG_DUMP. */
void sh_logs_dump_answer(const struct sh_logs_told *told, uint64_t now_ns, struct sh_msg_in *in);

#endif
