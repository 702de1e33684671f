/* Shared by the commands `shoal log ...`: a log in a folder, opened to be looked at. */
#ifndef SH_CMD_LOG_INT_H
#define SH_CMD_LOG_INT_H

#include "cmd/command_int.h"
#include "log/inspect.h"

struct sh_log_look {
    struct sh_disk *disk;
    struct sh_inspect *inspect;
    uint64_t zone; /* of --zone; 0: all */
};

/* Opens the log of the folder that the first word names. An exit status; when it is not SH_EXIT_OK it has said why. */
int sh_log_look_open(struct sh_cmd *cmd, struct sh_log_look *look_out);
void sh_log_look_close(struct sh_log_look *look);

/* Reads all of it, or the zone of --zone. An exit status, as above; places that can't be read are counted, and no failure. */
int sh_log_look_read(struct sh_cmd *cmd, struct sh_log_look *look,
                     const struct sh_inspect_calls *calls);

/* A zone as people write it: its owner and its number, as a chunk's ID. Returns text_out. */
#define SH_ZONE_TEXT_MAX 24
const char *sh_zone_format(uint64_t id, char text_out[SH_ZONE_TEXT_MAX]);

const char *sh_log_kind_name(enum sh_log_slot_kind kind);

/* Takes --zone; 0: all. An exit status. */
int sh_log_zone_take(struct sh_cmd *cmd, uint64_t *zone_out);

/* Whether the first word names a node; and the commands on one. */
bool sh_log_is_of_node(const struct sh_cmd *cmd);
int sh_log_node_info(struct sh_cmd *cmd);
int sh_log_node_segments(struct sh_cmd *cmd);

#endif
