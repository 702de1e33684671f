/* The bytes of a simulated file, in blocks that copies share until one of them is written: a crash
 * copies each file of a node, of which it changed little. Blocks of zeros, as in files that were written
 * to their end beforehand, take no memory. A hole is a block of zeros that takes no space on the disk either:
 * what a write beyond the end has left out, or what was discarded.
 *
 * An image of zeros is an empty one. Threads: one. */
#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#define SH_IMAGE_BLOCK_BYTES 4096u

struct sh_image_block;

struct sh_image {
    struct sh_image_block **blocks; /* NULL: zeros */
    size_t blocks_count;
    size_t holes; /* blocks */
    size_t size;  /* bytes */
};

/* Writes size bytes (borrowed) from offset on; the image grows as needed, by zeros up to there. No
 * bytes change nothing, as with pwrite. */
void sh_image_write(struct sh_image *image, uint64_t offset, const uint8_t *bytes, size_t size);
/* Reads size bytes from offset on, all of which are in the image. */
void sh_image_read(const struct sh_image *image, uint64_t offset, uint8_t *bytes_out, size_t size);
/* Makes `to`, which may have had something else, the same as `from`. */
void sh_image_copy(struct sh_image *to, const struct sh_image *from);
/* Makes holes of size bytes from offset on, whole blocks of SH_IMAGE_BLOCK_BYTES; what is beyond the image
 * stays so. */
void sh_image_discard(struct sh_image *image, uint64_t offset, size_t size);
/* Has all blocks there take space; the image grows as needed, by zeros. */
void sh_image_reserve(struct sh_image *image, uint64_t offset, size_t size);
/* How many bytes it takes on the disk. */
uint64_t sh_image_space(const struct sh_image *image);
/* How many more it would take with a write of so many bytes, or with so many reserved. */
uint64_t sh_image_more(const struct sh_image *image, uint64_t offset, size_t size);
/* Makes it empty. */
void sh_image_clear(struct sh_image *image);

#endif
