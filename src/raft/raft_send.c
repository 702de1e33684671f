/* Raft's messages on their way to the wires. */
#include <stdlib.h>

#include "base/assert.h"
#include "raft/raft_int.h"

struct sh_writer sh_raft_message_begin(struct sh_raft *raft, uint8_t to, enum sh_raft_type type,
                                       uint8_t flags, uint64_t term, size_t size, uint64_t after)
{
    struct sh_writer none = {.bad = true};
    size += SH_RAFT_HEAD_BYTES;
    if (raft->messages_count >= SH_RAFT_MESSAGES_MAX || raft->withdrawal)
        return none;
    struct sh_raft_message *message = calloc(1, sizeof *message + size);
    if (!message)
        return none;
    message->to = to;
    message->size = size;
    message->after = after > raft->life_lsn ? after : raft->life_lsn;
    *raft->messages_end = message;
    raft->messages_end = &message->next;
    raft->messages_count++;
    struct sh_writer w = sh_writer_make(message->bytes, size);
    sh_put8(&w, (uint8_t)type);
    sh_put8(&w, (uint8_t)(flags | (raft->config.is_memory ? SH_RAFT_MEMORY : 0)));
    sh_put16(&w, 0);
    sh_put64(&w, term);
    sh_put64(&w, raft->log_id);
    sh_put64(&w, raft->life);
    return w;
}

struct sh_raft_message *sh_raft_message_next(struct sh_raft *raft)
{
    for (struct sh_raft_message **at = &raft->messages; *at; at = &(*at)->next) {
        struct sh_raft_message *message = *at;
        if (!sh_raft_is_synced(raft, message->after))
            continue;
        *at = message->next;
        if (!message->next)
            raft->messages_end = at;
        raft->messages_count--;
        message->next = NULL;
        return message;
    }
    return NULL;
}
