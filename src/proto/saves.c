#include "proto/saves.h"

void sh_saves_block_put(struct sh_writer *w, const struct sh_saves_block *block)
{
    sh_put64(w, block->instance);
    sh_put64(w, block->arrivals);
    sh_put64(w, block->chunks);
    sh_put64(w, block->payload_bytes);
    sh_put64(w, block->all_bytes);
    sh_put32(w, block->crc);
    sh_put32(w, block->is_last);
}

bool sh_saves_block_get(struct sh_reader *r, struct sh_saves_block *block_out)
{
    struct sh_saves_block block = {.instance = sh_get64(r)};
    block.arrivals = sh_get64(r);
    block.chunks = sh_get64(r);
    block.payload_bytes = sh_get64(r);
    block.all_bytes = sh_get64(r);
    block.crc = sh_get32(r);
    uint32_t flags = sh_get32(r);
    block.is_last = flags;
    if (!sh_reader_ok(r) || flags > 1 || sh_reader_left(r) > SH_SAVES_BLOCK_BYTES)
        return false;
    *block_out = block;
    return true;
}

void sh_saves_restored_put(struct sh_writer *w, const struct sh_saves_restored *restored)
{
    sh_put32(w, (uint32_t)restored->err);
    sh_put32(w, restored->records);
    sh_put32(w, restored->made);
    sh_put32(w, restored->same);
    sh_put32(w, restored->skipped);
    sh_put32(w, restored->replaced);
    sh_put64(w, restored->cid.v);
}

bool sh_saves_restored_get(struct sh_reader *r, struct sh_saves_restored *restored_out)
{
    struct sh_saves_restored restored = {.err = (enum shoal_err)sh_get32(r)};
    restored.records = sh_get32(r);
    restored.made = sh_get32(r);
    restored.same = sh_get32(r);
    restored.skipped = sh_get32(r);
    restored.replaced = sh_get32(r);
    restored.cid.v = sh_get64(r);
    bool is_known =
        restored.err == SHOAL_OK || restored.err == SHOAL_EAGAIN || restored.err == SHOAL_EEXIST;
    uint64_t sum = (uint64_t)restored.made + restored.same + restored.skipped + restored.replaced;
    if (!sh_reader_done(r) || !is_known || sum != restored.records)
        return false;
    *restored_out = restored;
    return true;
}
