/* One-sided writes around any wire: a wire whose links are those of another one, with
 * SH_WIRE_WRITES emulated by frames of its own below what is pushed (docs/wire-format.md). So mcast
 * and xfer run where no hardware writes into a peer's memory: over epoll, io_uring, Unix-domain
 * sockets, and TLS (the wire for writes goes outermost, so that what is written is encrypted as
 * well). Both ends of a link must have it.
 *
 *      push, write  --> frames --> inner wire --> frames --> pull, or the region's memory
 *
 * What differs from writes by hardware: they land when the owner of the memory polls (or pulls),
 * and they wait behind bytes that it has not pulled yet, since both come over one stream. Who
 * writes can't know what the other side has registered: a write that names no region of it, or
 * does not fit, costs the link, at both ends, as it does on InfiniBand. A write whose region is
 * removed while it comes does the same.
 *
 * Keys are 64 bits, 58 of them random: who was not told one can't guess it, even if it has proven
 * nothing yet. */
#ifndef SH_MSG_WRITES_H
#define SH_MSG_WRITES_H

#include "env/env.h"
#include "env/wire.h"

/* Regions that a wire can have at once. */
#define SH_WRITES_REGIONS_MAX 64

/* Makes a wire around another one, which it takes on success: destroy destroys both. Its links have
 * the numbers of the inner one's. Keeps clock and random. Besides what env/wire.h says: who was
 * told that push took less than all pushes the rest next, from the front, as under TLS: up to
 * 64 KiB of it may be under way already. LOST may carry EPROTO: the other side sent what is no
 * frame, or wrote where it may not; the log names it. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_writes_create(struct sh_wire *inner, struct sh_clock clock,
                                                struct sh_random random, struct sh_wire **wire_out);

#endif
