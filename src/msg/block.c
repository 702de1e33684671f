/* Receive blocks: pools of three sizes, and larger blocks for messages that need them, of which a
 * few are kept too: to get each from the kernel anew, and give it back, costs more than to fill it,
 * and all threads of the process wait for each other meanwhile.
 *
 * A larger block is a mapping of its own, which the transport step unmaps in pieces. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "msg/msg_int.h"

const uint32_t sh_block_rooms[SH_BLOCK_SIZES] = {SH_BLOCK_SMALL_BYTES, SH_BLOCK_BYTES,
                                                 SH_BLOCK_LARGE_BYTES};

/* Enough of each to keep for reuse: 2, 8 and 8 MiB. */
static const uint32_t kept_max[SH_BLOCK_SIZES] = {512, 128, 8};

/* Of larger ones; each is larger than 1 MiB, so there are 24 at most. */
#define LARGER_BYTES_KEPT (UINT64_C(24) << 20)

static size_t mapping_bytes(size_t room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (sizeof(struct sh_block) + room + page - 1) / page * page;
}

static struct sh_block *block_make(size_t room)
{
    if (room <= SH_BLOCK_LARGE_BYTES)
        return malloc(sizeof(struct sh_block) + room);
    void *at =
        mmap(NULL, mapping_bytes(room), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void block_free(struct sh_block *block)
{
    if (block->room <= SH_BLOCK_LARGE_BYTES)
        free(block);
    else
        munmap(block, mapping_bytes(block->room));
}

/* Leaves a larger block to the transport step. */
static void unmap_later(struct sh_msg *msg, struct sh_block *block)
{
    sh_unmaps_add(&msg->unmaps, block, mapping_bytes(block->room), 0);
    msg->config.wake_transport(msg->config.arg);
}

/* The smallest size with that room; SH_BLOCK_SIZES: none. */
static unsigned size_for(size_t room)
{
    unsigned size = 0;
    while (size < SH_BLOCK_SIZES && sh_block_rooms[size] < room)
        size++;
    return size;
}

static struct sh_block *kept_take(struct sh_msg *msg, unsigned size)
{
    sh_spin_assert_held(&msg->blocks_lock);
    struct sh_block *block = msg->blocks_free[size];
    if (block) {
        msg->blocks_free[size] = block->next;
        msg->blocks_free_count[size]--;
    }
    return block;
}

static bool kept_add(struct sh_msg *msg, unsigned size, struct sh_block *block)
{
    sh_spin_assert_held(&msg->blocks_lock);
    if (msg->blocks_free_count[size] == kept_max[size])
        return false;
    block->next = msg->blocks_free[size];
    msg->blocks_free[size] = block;
    msg->blocks_free_count[size]++;
    return true;
}

/* Takes a larger one that has the room and not far more. There are 24 at
 * most. */
static struct sh_block *larger_take(struct sh_msg *msg, size_t room)
{
    sh_spin_assert_held(&msg->blocks_lock);
    struct sh_block **at = &msg->larger_free;
    while (*at && ((*at)->room < room || (*at)->room / 2 > room))
        at = &(*at)->next;
    struct sh_block *block = *at;
    if (block) {
        *at = block->next;
        msg->larger_free_bytes -= block->room;
    }
    return block;
}

/* False: enough are kept, or it is too large for that. */
static bool larger_keep(struct sh_msg *msg, struct sh_block *block)
{
    sh_spin_assert_held(&msg->blocks_lock);
    if (msg->larger_free_bytes + block->room > LARGER_BYTES_KEPT)
        return false;
    block->next = msg->larger_free;
    msg->larger_free = block;
    msg->larger_free_bytes += block->room;
    return true;
}

struct sh_block *sh_block_get(struct sh_msg *msg, size_t room)
{
    unsigned size = size_for(room);
    if (size < SH_BLOCK_SIZES)
        room = sh_block_rooms[size];
    sh_spin_take(&msg->blocks_lock);
    struct sh_block *block = size < SH_BLOCK_SIZES ? kept_take(msg, size) : larger_take(msg, room);
    sh_spin_release(&msg->blocks_lock);
    if (!block) {
        block = block_make(room);
        if (!block)
            return NULL;
        block->room = (uint32_t)room;
    }
    block->next = NULL;
    block->is_held = false;
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

void sh_block_leave(struct sh_msg *msg, struct sh_block *block)
{
    SH_ASSERT(!block->is_held);
    /* acquire: nobody else has it, and nobody can get it from somebody else */
    if (atomic_load_explicit(&block->refs, memory_order_acquire) > 1) {
        block->is_held = true; /* published to the last holder by the release below */
        /* seq_cst: pairs with sh_block_release and sh_streams_resume */
        atomic_fetch_add(&msg->held_bytes, block->room);
    }
    sh_block_release(msg, block);
}

bool sh_blocks_are_many(const struct sh_msg *msg)
{
    uint64_t most = msg->config.receive_bytes_max;
    /* seq_cst: who stops looks after it has said so (sh_streams_resume) */
    return atomic_load(&msg->held_bytes) >= (most ? most : SH_RECEIVE_BYTES_MAX);
}

void sh_block_release(struct sh_msg *msg, struct sh_block *block)
{
    /* acq_rel: reads of the bytes by every holder come before their reuse */
    if (atomic_fetch_sub_explicit(&block->refs, 1, memory_order_acq_rel) != 1)
        return;
    if (block->is_held)
        atomic_fetch_sub(&msg->held_bytes, block->room);
    unsigned size = size_for(block->room);
    SH_ASSERT(size == SH_BLOCK_SIZES || block->room == sh_block_rooms[size]);
    sh_spin_take(&msg->blocks_lock);
    bool is_kept = size < SH_BLOCK_SIZES ? kept_add(msg, size, block) : larger_keep(msg, block);
    sh_spin_release(&msg->blocks_lock);
    if (is_kept)
        return;
    if (size < SH_BLOCK_SIZES)
        free(block);
    else
        unmap_later(msg, block);
}

size_t sh_block_release_some(struct sh_block *block, size_t released, size_t passed)
{
    /* The first page has the block's own fields. */
    size_t first = SH_RELEASE_BYTES + released;
    if (block->room <= SH_BLOCK_LARGE_BYTES || passed < first + 2 * SH_RELEASE_BYTES)
        return 0;
    size_t some = (passed - first) / SH_RELEASE_BYTES * SH_RELEASE_BYTES - SH_RELEASE_BYTES;
    some = some < SH_UNMAP_BYTES ? some : SH_UNMAP_BYTES;
    if (madvise((uint8_t *)block + first, some, MADV_DONTNEED) != 0)
        return 0;
    return some;
}

void sh_blocks_free(struct sh_msg *msg)
{
    /* atomic, and no thread is left: whatever was held has been released */
    SH_ASSERT(atomic_load(&msg->held_bytes) == 0);
    for (unsigned size = 0; size < SH_BLOCK_SIZES; size++) {
        while (msg->blocks_free[size]) {
            struct sh_block *block = msg->blocks_free[size];
            msg->blocks_free[size] = block->next;
            free(block);
        }
    }
    while (msg->larger_free) {
        struct sh_block *block = msg->larger_free;
        msg->larger_free = block->next;
        block_free(block);
    }
    while (sh_unmaps_run(&msg->unmaps) > 0)
        continue;
}
