/* The part of `shoal status` about the replicas of each peer's chunks. */
#ifndef SH_CMD_REPLICAS_INT_H
#define SH_CMD_REPLICAS_INT_H

#include "base/json.h"
#include "cmd/command_int.h"

/* A peer's zones, and what waits. */
struct sh_replicas_row {
    shoal_nid nid;
    bool has_log;
    bool is_self;                           /* its backup is its own disk */
    uint64_t zones, under_replicated, bare; /* bare: without a backup that takes writes */
    uint64_t copies;                        /* backups that are being added */
    uint64_t stalled;                       /* backups that stand still, and writes wait for them */
    uint64_t kept;                          /* zones of others in its log */
    uint64_t free_bytes;                    /* of its log */
    enum shoal_err unknown;                 /* why the peer did not say; 0: it did */
    enum shoal_err trouble;                 /* why the log is out of service; 0: it is not */
};

/* Asks a peer that is up. One without a log has none, and that is no error. */
void sh_replicas_ask(struct sh_cmd *cmd, const struct shoal_node *node,
                     struct sh_replicas_row *row_out);
/* Adds an object `replicas` to the peer's own, with an `error` only if it did not say; none where the peer has no log. */
void sh_replicas_json(struct sh_json *node, const struct sh_replicas_row *row);
/* A table of the peers that have a log; nothing without any. */
void sh_replicas_print(FILE *out, const struct sh_replicas_row *rows, size_t count);

#endif
