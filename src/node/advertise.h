/* The address under which other nodes and clients find a node: the option advertise, or where that
 * is empty, the address that its option listen was bound to. */
#ifndef SH_NODE_ADVERTISE_H
#define SH_NODE_ADVERTISE_H

#include "msg/msg.h"
#include "shoal/err.h"

#define SH_ADVERTISE_DETAIL_BYTES 256

/* The address that others are told. advertise: that option, HOST:PORT as sh_options_check takes it,
 * or empty; with port 0 it gets the port of bound. bound: the address listened on, with its port.
 * EADDRESS: bound is a wildcard and advertise is empty (a name may be the name of one), or the
 * address is too long; detail_out, SH_ADVERTISE_DETAIL_BYTES, says what to set. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_advertise_choose(const char *advertise, const char *bound,
                                                   char address_out[SH_MSG_ADDRESS_MAX],
                                                   char *detail_out);

#endif
