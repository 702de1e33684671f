/* Looking up names beside the transport step, since a name server may take seconds to answer.
 *
 * The wire adds a name for a link, and is signalled when something is known; then its poll takes
 * what was found. Threads, at most SH_RESOLVER_THREADS at a time, are started as names come and end
 * when there are none. They share the resolver with the wire, so that a wire can be destroyed while
 * a lookup is under way. */
#ifndef SH_MSG_RESOLVE_INT_H
#define SH_MSG_RESOLVE_INT_H

#include "env/wire.h"
#include "msg/sock_int.h"

#define SH_RESOLVER_THREADS 4

struct sh_resolver;

struct sh_resolved {
    sh_link link;
    bool is_found;
    struct sh_sock_address address; /* is_found */
};

/* All but add accept NULL, and are called by the thread that runs the wire. */

/* Begins to look up an address (HOST:PORT, at most SH_WIRE_ADDRESS_MAX bytes with the NUL) for a
 * link; makes *resolver if it is NULL. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_resolver_add(struct sh_resolver **resolver, struct sh_wire *wire,
                                               const char *address, sh_link link);
/* Takes one of those that were found or not; false: none. */
bool sh_resolver_take(struct sh_resolver *resolver, struct sh_resolved *resolved_out);
/* Forgets what is looked up for a link: it has been closed. */
void sh_resolver_cancel(struct sh_resolver *resolver, sh_link link);
/* The wire is not signalled any more once this has returned. */
void sh_resolver_destroy(struct sh_resolver *resolver);

#endif
