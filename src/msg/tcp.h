/* The wire on sockets and epoll: env/wire.h over TCP and Unix-domain sockets. */
#ifndef SH_MSG_TCP_H
#define SH_MSG_TCP_H

#include "env/wire.h"

/* Makes a wire that serves addresses of the form HOST:PORT (IPv4, [IPv6] or a name that the
 * system's files resolve) and unix:PATH (PATH of at most 58 bytes; the file is made with mode 0600,
 * replaces one whose process is gone, and is removed with the wire). It may listen on up to four
 * addresses, of both forms; a further one is EADDRINUSE. links_max open links at once, up to
 * 2^20 - 2. ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_tcp_create(uint32_t links_max, struct sh_wire **wire_out);

#endif
