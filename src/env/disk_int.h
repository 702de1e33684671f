/* What the tests of the real disk see beyond its interface. */
#ifndef SH_ENV_DISK_INT_H
#define SH_ENV_DISK_INT_H

#include "env/disk.h"

/* Operations in flight at once; one more is refused with EAGAIN. */
#define SH_REAL_DISK_OPS_MAX 128

/* Like sh_real_disk_create and sh_raw_disk_create; uring false takes the worker even where io_uring works. */
SHOAL_NODISCARD enum shoal_err sh_real_disk_create_as(const char *folder, bool direct, bool uring,
                                                      struct sh_disk **disk_out);

SHOAL_NODISCARD enum shoal_err sh_raw_disk_create_as(const char *path, const char *name,
                                                     bool direct, bool uring,
                                                     struct sh_disk **disk_out);

/* Of a gathered write so many bytes more are done: the pieces left are what is still to be written. */
void sh_disk_pieces_skip(struct sh_disk_op *op, size_t bytes);

/* Whether the disk runs on io_uring. */
bool sh_real_disk_has_uring(const struct sh_disk *disk);

#endif
