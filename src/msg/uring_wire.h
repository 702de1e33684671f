/* The wire on sockets and io_uring: the same addresses and links as msg/tcp.h. */
#ifndef SH_MSG_URING_WIRE_H
#define SH_MSG_URING_WIRE_H

#include "env/wire.h"

/* Makes a wire that receives through multishot receives into buffers of its own and sends what was
 * pushed since the last flush with one system call. Where the kernel refuses io_uring, or lacks
 * something of it, says so in the log and makes the wire of msg/tcp.h instead. Threads may take
 * turns at it; it serves best the one that stays. ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_uring_create(uint32_t links_max, struct sh_wire **wire_out);

#endif
