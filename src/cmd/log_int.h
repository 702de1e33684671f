/* Shared by the commands `shoal log ...`: a log in a folder, opened to be looked at. */
#ifndef SH_CMD_LOG_INT_H
#define SH_CMD_LOG_INT_H

#include "cmd/command_int.h"
#include "log/inspect.h"
#include "proto/logs.h"

struct sh_log_look {
    struct sh_disk *disk;
    struct sh_disk *folder; /* where it is locked as well; NULL: nowhere */
    const char *name;       /* of the file on the disk */
    char path[4400];        /* of the file or device, for people */
    struct sh_inspect *inspect;
    uint64_t zone; /* of --zone; 0: all */
};

/* Opens the log of the folder, file or device that the first word names; of a folder whose node has its log on a device, that. An exit status; when it is not SH_EXIT_OK it has said why. */
int sh_log_look_open(struct sh_cmd *cmd, struct sh_log_look *look_out);
void sh_log_look_close(struct sh_log_look *look);

/* Reads all of it, or the zone of --zone. An exit status, as above; places that can't be read are counted, and no failure. */
int sh_log_look_read(struct sh_cmd *cmd, struct sh_log_look *look,
                     const struct sh_inspect_calls *calls);

/* A zone as people write it: its owner and its number, as a chunk's ID. Returns text_out. */
#define SH_ZONE_TEXT_MAX 24
const char *sh_zone_format(uint64_t id, char text_out[SH_ZONE_TEXT_MAX]);

const char *sh_log_kind_name(enum sh_log_slot_kind kind);
/* Of a number that a node tells; "unknown" beyond. */
const char *sh_log_kind_name_of(uint64_t kind);

/* Takes --zone; 0: all. An exit status. */
int sh_log_zone_take(struct sh_cmd *cmd, uint64_t *zone_out);

/* Whether the first word names a node; and the commands on one. */
bool sh_log_is_of_node(const struct sh_cmd *cmd);
int sh_log_node_info(struct sh_cmd *cmd);
int sh_log_node_segments(struct sh_cmd *cmd);
int sh_log_node_verify(struct sh_cmd *cmd);
/* chunk 0: all. */
int sh_log_node_dump(struct sh_cmd *cmd, shoal_cid chunk);

/* Opens the cluster for a command on a node. An exit status. */
int sh_log_node_open(struct sh_cmd *cmd, shoal_nid *nid_out);
/* Says what failed at a node. The exit status. */
int sh_log_node_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid);
/* Calls `show` for each row of a table of the node, page by page. An exit status. */
int sh_log_node_table(struct sh_cmd *cmd, shoal_nid nid, enum sh_log_table_kind kind,
                      void (*show)(void *arg, const struct sh_log_table *table, uint32_t row),
                      void *arg);

/* Entries of a dump, as lines or objects. */
void sh_log_entries_begin(struct sh_cmd *cmd);
void sh_log_entry_show(struct sh_cmd *cmd, const struct sh_inspect_entry *found);

#endif
