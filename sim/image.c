#include "sim/image.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/world_int.h"

#define BLOCK_BYTES 4096

struct sh_image_block {
    size_t images; /* that share it */
    uint8_t bytes[BLOCK_BYTES];
};

static void block_release(struct sh_image_block *block)
{
    if (block && --block->images == 0)
        free(block);
}

static bool is_zeros(const uint8_t *bytes, size_t size)
{
    return !bytes[0] && memcmp(bytes, bytes + 1, size - 1) == 0;
}

/* A block of the image that no other one shares. */
static struct sh_image_block *block_own(struct sh_image *image, size_t index)
{
    struct sh_image_block *block = image->blocks[index];
    if (block && block->images == 1)
        return block;
    struct sh_image_block *own = sh_sim_alloc(sizeof *own);
    if (block)
        memcpy(own->bytes, block->bytes, sizeof own->bytes);
    own->images = 1;
    block_release(block);
    image->blocks[index] = own;
    return own;
}

static void grow(struct sh_image *image, size_t size)
{
    size_t count = (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
    if (count > image->blocks_count) {
        size_t room = 2 * count;
        image->blocks = sh_sim_realloc(image->blocks, room * sizeof image->blocks[0]);
        memset(image->blocks + image->blocks_count, 0,
               (room - image->blocks_count) * sizeof image->blocks[0]);
        image->blocks_count = room;
    }
    if (size > image->size)
        image->size = size;
}

/* How many bytes from `at` on, `left` at most, lie in one block. */
static size_t piece_bytes(size_t at, size_t left)
{
    size_t in_block = BLOCK_BYTES - at % BLOCK_BYTES;
    return left < in_block ? left : in_block;
}

void sh_image_write(struct sh_image *image, uint64_t offset, const uint8_t *bytes, size_t size)
{
    SH_ASSERT(offset <= SIZE_MAX - size);
    size_t end = (size_t)offset + size;
    grow(image, end);
    for (size_t at = (size_t)offset, piece; at < end; at += piece, bytes += piece) {
        piece = piece_bytes(at, end - at);
        size_t index = at / BLOCK_BYTES;
        if (image->blocks[index] || !is_zeros(bytes, piece))
            memcpy(block_own(image, index)->bytes + at % BLOCK_BYTES, bytes, piece);
    }
}

void sh_image_read(const struct sh_image *image, uint64_t offset, uint8_t *bytes_out, size_t size)
{
    SH_ASSERT(size <= image->size && offset <= image->size - size);
    size_t end = (size_t)offset + size;
    for (size_t at = (size_t)offset, piece; at < end; at += piece, bytes_out += piece) {
        piece = piece_bytes(at, end - at);
        const struct sh_image_block *block = image->blocks[at / BLOCK_BYTES];
        if (block)
            memcpy(bytes_out, block->bytes + at % BLOCK_BYTES, piece);
        else
            memset(bytes_out, 0, piece);
    }
}

void sh_image_copy(struct sh_image *to, const struct sh_image *from)
{
    SH_ASSERT(to != from);
    sh_image_clear(to);
    grow(to, from->size);
    size_t count = (from->size + BLOCK_BYTES - 1) / BLOCK_BYTES;
    for (size_t i = 0; i < count; i++) {
        to->blocks[i] = from->blocks[i];
        if (to->blocks[i])
            to->blocks[i]->images++;
    }
}

void sh_image_clear(struct sh_image *image)
{
    for (size_t i = 0; i < image->blocks_count; i++)
        block_release(image->blocks[i]);
    free(image->blocks);
    *image = (struct sh_image){.blocks = NULL};
}
