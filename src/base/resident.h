/* How much memory this process has resident. */
#ifndef SH_BASE_RESIDENT_H
#define SH_BASE_RESIDENT_H

#include <stdint.h>

/* Bytes; 0 when the kernel does not say. Any thread. */
uint64_t sh_resident_bytes(void);

#endif
