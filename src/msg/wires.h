/* The real transports, chosen by name. */
#ifndef SH_MSG_WIRES_H
#define SH_MSG_WIRES_H

#include <stdbool.h>

#include "env/wire.h"

/* Makes a wire of a kind, for at most links_max open links:
 *
 *   tcp       the sockets that measure best (epoll; docs/messaging.md): what a node takes by itself
 *   epoll     TCP and Unix-domain sockets through epoll
 *   uring     the same through io_uring; through epoll, with a line in the log, where the kernel
 *             refuses it
 *   unix      as tcp: an address unix:PATH makes the difference
 *   loopback  copies memory between ends in one process; addresses loop:NAME
 *
 * EINVAL: no such name. ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err sh_wire_create(const char *name, uint32_t links_max,
                                              struct sh_wire **wire_out);

bool sh_wire_is_known(const char *name);

#endif
