/* The TCP wire: env/wire.h over non-blocking sockets and epoll. */
#ifndef SH_MSG_TCP_H
#define SH_MSG_TCP_H

#include "env/wire.h"

/* Makes a wire that serves addresses of the form HOST:PORT (IPv4, [IPv6] or a name that the
 * system's files resolve); links_max open links at once. ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_tcp_create(uint32_t links_max, struct sh_wire **wire_out);

#endif
