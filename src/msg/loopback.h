/* The loopback wire: env/wire.h between ends in one process, by copying memory.
 *
 * For measuring what messaging costs without a network, and for tests. Addresses are loop:NAME, a
 * name of the process (loop:0 picks a free number); the ends may belong to different threads. Each
 * direction of a link holds up to SH_LOOPBACK_ROOM bytes. It has one-sided writes. */
#ifndef SH_MSG_LOOPBACK_H
#define SH_MSG_LOOPBACK_H

#include "env/wire.h"

#define SH_LOOPBACK_ROOM (256u << 10)

/* Makes one end, with at most links_max open links, up to 2^20 - 2. ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_loopback_create(uint32_t links_max, struct sh_wire **wire_out);

#endif
