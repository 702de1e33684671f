/* Receive blocks: a pool of standard ones, and larger ones for messages that need it. */
#include <stdlib.h>

#include "msg/msg_int.h"

/* Enough standard blocks to keep for reuse: 16 MiB. */
#define BLOCKS_KEPT 256

struct sh_block *sh_block_get(struct sh_msg *msg, size_t room)
{
    struct sh_block *block = NULL;
    if (room <= SH_BLOCK_BYTES) {
        room = SH_BLOCK_BYTES;
        sh_spin_take(&msg->blocks_lock);
        block = msg->blocks_free;
        if (block) {
            msg->blocks_free = block->next;
            msg->blocks_free_count--;
        }
        sh_spin_release(&msg->blocks_lock);
    }
    if (!block) {
        block = malloc(sizeof *block + room);
        if (!block)
            return NULL;
        block->room = (uint32_t)room;
    }
    block->next = NULL;
    /* relaxed: nobody else knows the block yet */
    atomic_store_explicit(&block->refs, 1, memory_order_relaxed);
    return block;
}

void sh_block_share(struct sh_block *block)
{
    /* relaxed: the caller holds a reference, so the block can't go away */
    uint32_t before = atomic_fetch_add_explicit(&block->refs, 1, memory_order_relaxed);
    SH_ASSERT(before > 0);
}

void sh_block_release(struct sh_msg *msg, struct sh_block *block)
{
    /* acq_rel: reads of the bytes by every holder come before their reuse */
    if (atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (block->room == SH_BLOCK_BYTES) {
        sh_spin_take(&msg->blocks_lock);
        if (msg->blocks_free_count < BLOCKS_KEPT) {
            block->next = msg->blocks_free;
            msg->blocks_free = block;
            msg->blocks_free_count++;
            block = NULL;
        }
        sh_spin_release(&msg->blocks_lock);
    }
    free(block);
}

void sh_blocks_free(struct sh_msg *msg)
{
    while (msg->blocks_free) {
        struct sh_block *block = msg->blocks_free;
        msg->blocks_free = block->next;
        free(block);
    }
}
