#include <stdlib.h>

#include "base/assert.h"
#include "log/replog_int.h"

#define READ_BYTES ((size_t)1 << 20) /* in one operation */

enum shoal_err sh_replog_reader_begin(struct sh_replog_reader *reader, struct sh_replog *log)
{
    *reader = (struct sh_replog_reader){.log = log};
    for (unsigned i = 0; i < 2; i++)
        reader->buffers[i] = aligned_alloc(SH_BLOCK_BYTES, log->head.slot_bytes);
    if (reader->buffers[0] && reader->buffers[1])
        return SHOAL_OK;
    sh_replog_reader_end(reader);
    return SHOAL_ENOMEM;
}

void sh_replog_reader_begin_in(struct sh_replog_reader *reader, struct sh_replog *log,
                               uint8_t *const buffers[2])
{
    *reader = (struct sh_replog_reader){
        .log = log, .buffers = {buffers[0], buffers[1]}, .is_borrowed = true};
}

void sh_replog_reader_end(struct sh_replog_reader *reader)
{
    if (!reader->is_borrowed) {
        free(reader->buffers[0]);
        free(reader->buffers[1]);
    }
    *reader = (struct sh_replog_reader){.log = NULL};
}

void sh_replog_reader_slots(struct sh_replog_reader *reader, uint32_t *slots, unsigned count)
{
    SH_ASSERT(sh_replog_reader_is_over(reader) && !sh_replog_reader_is_busy(reader));
    reader->slots = slots;
    reader->count = count;
    reader->read = reader->next = 0;
}

bool sh_replog_reader_is_busy(const struct sh_replog_reader *reader)
{
    return reader->reading[0].count || reader->reading[1].count;
}

enum shoal_err sh_replog_reader_err(const struct sh_replog_reader *reader)
{
    return reader->reading[0].err ? reader->reading[0].err : reader->reading[1].err;
}

unsigned sh_replog_reader_step(struct sh_replog_reader *reader)
{
    struct sh_replog *log = reader->log;
    size_t slot_bytes = log->head.slot_bytes;
    unsigned work = 0;
    while (reader->read < reader->count && reader->read <= reader->next + 1) {
        unsigned which = reader->read % 2;
        size_t left = slot_bytes - reader->asked, size = left < READ_BYTES ? left : READ_BYTES;
        uint64_t offset = sh_log_slot_at(&log->head, reader->slots[reader->read]);
        if (!sh_replog_submit_read(log, offset + reader->asked,
                                   reader->buffers[which] + reader->asked, size, reader->is_bulk,
                                   &reader->reading[which]))
            break;
        work++;
        log->status.clean_read_bytes += reader->is_bulk && !reader->is_of_dump ? size : 0;
        reader->asked += size;
        if (reader->asked < slot_bytes)
            continue;
        reader->asked = 0;
        reader->read++;
    }
    return work;
}

const uint8_t *sh_replog_reader_bytes(const struct sh_replog_reader *reader)
{
    unsigned which = reader->next % 2;
    bool is_there = reader->next < reader->read && !reader->reading[which].count;
    return is_there ? reader->buffers[which] : NULL;
}
