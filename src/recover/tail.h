/* The last writes of a zone, as its log hands them out, until the zone's backlog takes them (backup/backup.h). One thread. */
#ifndef SH_RECOVER_TAIL_H
#define SH_RECOVER_TAIL_H

#include "backup/backup.h"
#include "log/replog.h"

struct sh_tail_entry; /* of tail.c */

struct sh_tail {
    struct sh_tail_entry *entries;
    size_t count, room;
    uint8_t *bytes; /* of their payloads and completions */
    size_t bytes_used, bytes_room;
    uint64_t next; /* the number behind the last write; 0: there is none */
};

/* Copies a write, which comes behind the others. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_tail_add(struct sh_tail *tail, uint64_t number,
                                           const struct sh_replog_write *write);
/* Gives all of them to an adopted zone. Errors of sh_backup_adopt_write. */
SHOAL_NODISCARD enum shoal_err sh_tail_tell(const struct sh_tail *tail, struct sh_backup *backup,
                                            uint64_t zone);
void sh_tail_end(struct sh_tail *tail);

#endif
