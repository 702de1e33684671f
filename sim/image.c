#include "sim/image.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/world_int.h"

#define BLOCK_BYTES SH_IMAGE_BLOCK_BYTES

struct sh_image_block {
    size_t images; /* that share it */
    uint8_t bytes[BLOCK_BYTES];
};

/* Stands in an image for each of its holes. */
static struct sh_image_block hole;

static bool is_zero_block(const struct sh_image_block *block)
{
    return !block || block == &hole;
}

static size_t blocks_of(size_t size)
{
    return (size + BLOCK_BYTES - 1) / BLOCK_BYTES;
}

static void block_release(struct sh_image_block *block)
{
    if (!is_zero_block(block) && --block->images == 0)
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
    SH_ASSERT(block != &hole);
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

/* The new blocks are holes. */
static void grow(struct sh_image *image, size_t size)
{
    size_t count = blocks_of(size);
    if (count > image->blocks_count) {
        size_t room = 2 * count;
        image->blocks = sh_sim_realloc(image->blocks, room * sizeof image->blocks[0]);
        memset(image->blocks + image->blocks_count, 0,
               (room - image->blocks_count) * sizeof image->blocks[0]);
        image->blocks_count = room;
    }
    for (size_t i = blocks_of(image->size); i < count; i++) {
        SH_ASSERT(!image->blocks[i]);
        image->blocks[i] = &hole;
        image->holes++;
    }
    if (size > image->size)
        image->size = size;
}

/* Has a block take space. */
static void fill(struct sh_image *image, size_t index)
{
    if (image->blocks[index] != &hole)
        return;
    image->blocks[index] = NULL;
    image->holes--;
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
    if (!size)
        return;
    size_t end = (size_t)offset + size;
    grow(image, end);
    for (size_t at = (size_t)offset, piece; at < end; at += piece, bytes += piece) {
        piece = piece_bytes(at, end - at);
        size_t index = at / BLOCK_BYTES;
        fill(image, index);
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
        if (!is_zero_block(block))
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
    to->holes = from->holes;
    for (size_t i = 0; i < blocks_of(from->size); i++) {
        to->blocks[i] = from->blocks[i];
        if (!is_zero_block(to->blocks[i]))
            to->blocks[i]->images++;
    }
}

void sh_image_discard(struct sh_image *image, uint64_t offset, size_t size)
{
    SH_ASSERT(offset % BLOCK_BYTES == 0 && size % BLOCK_BYTES == 0);
    size_t count = blocks_of(image->size);
    for (uint64_t i = offset / BLOCK_BYTES; i < (offset + size) / BLOCK_BYTES && i < count; i++) {
        if (image->blocks[i] == &hole)
            continue;
        block_release(image->blocks[i]);
        image->blocks[i] = &hole;
        image->holes++;
    }
}

void sh_image_reserve(struct sh_image *image, uint64_t offset, size_t size)
{
    SH_ASSERT(offset % BLOCK_BYTES == 0 && size % BLOCK_BYTES == 0);
    grow(image, (size_t)offset + size);
    for (size_t i = (size_t)offset / BLOCK_BYTES; i < ((size_t)offset + size) / BLOCK_BYTES; i++)
        fill(image, i);
}

/* How many bytes of an image of that size lie in a block. */
static uint64_t bytes_in(size_t size, size_t index)
{
    size_t at = index * BLOCK_BYTES;
    size_t left = at < size ? size - at : 0;
    return left < BLOCK_BYTES ? left : BLOCK_BYTES;
}

static bool takes_space(const struct sh_image *image, size_t index)
{
    return index < blocks_of(image->size) && image->blocks[index] != &hole;
}

uint64_t sh_image_space(const struct sh_image *image)
{
    size_t last = image->size / BLOCK_BYTES;
    uint64_t space = image->size - image->holes * (uint64_t)BLOCK_BYTES;
    bool is_last_short = image->size % BLOCK_BYTES && !takes_space(image, last);
    return is_last_short ? space + BLOCK_BYTES - image->size % BLOCK_BYTES : space;
}

uint64_t sh_image_more(const struct sh_image *image, uint64_t offset, size_t size)
{
    if (!size)
        return 0;
    size_t end = (size_t)offset + size;
    size_t new_size = end > image->size ? end : image->size;
    size_t last = image->size / BLOCK_BYTES, first = (size_t)offset / BLOCK_BYTES;
    uint64_t more = 0;
    if (last < first && takes_space(image, last))
        more = bytes_in(new_size, last) - bytes_in(image->size, last);
    for (size_t i = first; i < blocks_of(end); i++)
        more += bytes_in(new_size, i) - (takes_space(image, i) ? bytes_in(image->size, i) : 0);
    return more;
}

void sh_image_clear(struct sh_image *image)
{
    for (size_t i = 0; i < image->blocks_count; i++)
        block_release(image->blocks[i]);
    free(image->blocks);
    *image = (struct sh_image){.blocks = NULL};
}
