/* Completion records: what came of numbered requests (msg/once.h), in the stream of the zone that each has changed, so that whoever
 * serves the zone later answers a request that is repeated and does not do it again. RIFL (Lee and others, SOSP 2015) §3 and 4.1: the
 * record is written atomically with the change. docs/backup.md
 *
 * A record, of 20 to 35 bytes, little-endian:
 *
 *   u8    bits 0-3 bytes of the number, 1 to 8; 4 value, 5 create, 6 another node
 *   u64   client
 *   1-8   number
 *   u16   how much higher it is than what the client had acknowledged, 1 to SH_ONCE_WINDOW; of another node's request, that node
 *   u64   chunk
 *   u64   value, if there is one
 *
 * Only a change has one: a request that was answered with an error has changed nothing, and is worked out anew. The result of a request that another
 * node ran, on a chunk that has moved here since, has one, too: what the client had acknowledged there is not known here. */
#ifndef SH_BACKUP_COMPLETION_H
#define SH_BACKUP_COMPLETION_H

#include "base/bytes.h"
#include "shoal/err.h"

struct sh_completion {
    uint64_t client; /* not 0 */
    uint64_t number; /* not 0; that the client gave it, for the node that ran it */
    uint64_t
        acknowledged; /* numbers up to it nobody asks for; below number. Of another node's request 0 */
    uint16_t
        node; /* another node that ran it; 0: the owner of the zone, or one of its lives before */
    uint64_t chunk; /* with its creator */
    bool is_create; /* the chunk is what came of it */
    uint64_t value; /* of an addition, what was there before; else 0 */
    /* Not in the record; who reads it says so: neither the zone's maker nor its last owner ran it; that had it with the chunk, perhaps of a batch that was never
     * decided. So it counts where the chunk is. */
    bool is_with_chunk;
};
#define SH_COMPLETION_BYTES_MAX 35
/* Returns its bytes. */
size_t sh_completion_put(const struct sh_completion *completion, uint8_t *into);
/* False: it is none. */
bool sh_completion_get(struct sh_bytes bytes, struct sh_completion *completion_out);

/* The requests that clients have acknowledged, as far as is known: for the cleaners of logs, which keep a record that nobody asks for only where that
 * is not known (struct sh_replog_completions). 128 KiB. One thread at a time. */
struct sh_acknowledged;
/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_acknowledged_create(struct sh_acknowledged **acknowledged_out);
void sh_acknowledged_destroy(struct sh_acknowledged *acknowledged); /* NULL is allowed */
/* A record was seen, of a zone of that owner. */
void sh_acknowledged_note(void *acknowledged, uint16_t owner, struct sh_bytes completion);
/* Whether nobody asks for a record any more. False: not that it were known. */
bool sh_acknowledged_has(void *acknowledged, uint16_t owner, struct sh_bytes completion);

#endif
