/* The file's numbers, for those that write it and those that read it (dump.h). */
#ifndef SH_STORE_DUMP_INT_H
#define SH_STORE_DUMP_INT_H

#include "store/dump.h"

#define SH_DUMP_MAGIC "shoaldmp"
#define SH_DUMP_VERSION 1
#define SH_DUMP_HEADER_BYTES 32
#define SH_SECTION_MAGIC "shsc"
#define SH_SECTION_HEADER_BYTES 32
#define SH_SECTION_CRC_AT 28 /* the checksum of what is before it, in both headers */
#define SH_SECTION_BYTES_MAX (UINT32_C(1) << 20)
#define SH_RUN_HEADER_BYTES 12
#define SH_PIECE_HEADER_BYTES 16
#define SH_END_BYTES 24
/* A chunk up to this size goes into a section of chunks. */
#define SH_WHOLE_BYTES_MAX (SH_SECTION_BYTES_MAX - SH_RUN_HEADER_BYTES - 4)

enum sh_section_kind { SH_SECTION_CHUNKS = 1, SH_SECTION_PIECE, SH_SECTION_END };

#endif
