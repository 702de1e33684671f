/* The bytes of a simulated file, in blocks that copies share until one of them is written: a crash
 * copies each file of a node, of which it changed little. Blocks of zeros, as in files that were written
 * to their end beforehand, take no memory.
 *
 * An image of zeros is an empty one. Threads: one. */
#ifndef SIM_IMAGE_H
#define SIM_IMAGE_H

#include <stddef.h>
#include <stdint.h>

struct sh_image_block;

struct sh_image {
    struct sh_image_block **blocks; /* NULL: zeros */
    size_t blocks_count;
    size_t size; /* bytes */
};

/* Writes size bytes (borrowed) from offset on; the image grows as needed, by zeros up to there. */
void sh_image_write(struct sh_image *image, uint64_t offset, const uint8_t *bytes, size_t size);
/* Reads size bytes from offset on, all of which are in the image. */
void sh_image_read(const struct sh_image *image, uint64_t offset, uint8_t *bytes_out, size_t size);
/* Makes `to`, which may have had something else, the same as `from`. */
void sh_image_copy(struct sh_image *to, const struct sh_image *from);
/* Makes it empty. */
void sh_image_clear(struct sh_image *image);

#endif
