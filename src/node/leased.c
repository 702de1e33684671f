#include "node/leased.h"

#include "node/chunks.h"
#include "node/dumps.h"
#include "node/moves.h"
#include "node/saves.h"
#include "node/steps.h"
#include "proto/logs.h"

/* Of message types: those of chunks.h and its neighbours, and of graph.h. */
#define SH_MODULE_NODE 2
#define SH_MODULE_GRAPH 3

void sh_node_leased_types_set(struct sh_msg *msg)
{
    static const sh_msg_type free_types[] = {
        SH_CHUNKS_STATUS,    SH_NODE_STOP,      SH_NODE_LOG_LEVELS, SH_NODE_PROMOTE,
        SH_NODE_STEPS,       SH_NODE_LOG_TABLE, SH_NODE_LOG_SCRUB,  SH_NODE_LOG_DUMP,
        SH_DUMPS_JOB_CANCEL, SH_MOVES_CANCEL,   SH_SAVES_END};
    for (unsigned operation = 0; operation < 256; operation++) {
        sh_msg_leased_set(msg, SH_MSG_TYPE(SH_MODULE_NODE, operation), true);
        sh_msg_leased_set(msg, SH_MSG_TYPE(SH_MODULE_GRAPH, operation), true);
    }
    for (size_t i = 0; i < sizeof free_types / sizeof free_types[0]; i++)
        sh_msg_leased_set(msg, free_types[i], false);
}
