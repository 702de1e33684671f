/* A wire: ordered streams of bytes between addresses. The transports of msg implement it (tcp), and
 * sim/ has one that delays, cuts and partitions.
 *
 * Each stream is a link. Links are opened by one side and accepted by the other; either may send
 * until it or the other closes; bytes arrive in order or the link is lost. The owner polls for
 * what happened, pushes bytes out and pulls bytes in. All from the one thread that runs the
 * owner's transport step, except signal.
 *
 * DXNet 2018 §VIII: the same five operations; here the core pulls received bytes into its own
 * buffers, so that they land where they are decoded.
 *
 * A wire may have one-sided writes too (SH_WIRE_WRITES): the peer names a stretch of its memory by
 * a key, and who has the key writes there over a link, without the peer's thread doing anything
 * (loopback), or no more than polling (any wire inside msg/writes.h). On wires without them who
 * needs them sends messages instead.
 */
#ifndef SH_ENV_WIRE_H
#define SH_ENV_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "shoal/err.h"

/* A link's number, 0 to 2^32 - 2, unique among the open ones of a wire. */
typedef uint32_t sh_link;
#define SH_LINK_NONE UINT32_MAX
/* Texts of addresses, with the NUL. */
#define SH_WIRE_ADDRESS_MAX 64

enum sh_wire_kind {
    SH_WIRE_OPENED,   /* a link from open is ready to push */
    SH_WIRE_ACCEPTED, /* another node opened a link to us */
    SH_WIRE_READABLE, /* pull will give bytes; repeated at each poll until pull gave 0 */
    SH_WIRE_WRITABLE, /* push took less than all before; it will take more now */
    SH_WIRE_LOST,     /* the link failed or was closed by the other side; it is gone already */
};

struct sh_wire_event {
    enum sh_wire_kind kind;
    sh_link link;
    uint64_t tag;       /* OPENED and LOST of a link that open made: the tag given there */
    enum shoal_err err; /* LOST: EUNREACHABLE (never opened), ECONNLOST */
    bool is_refused;    /* LOST: the host at that address has said that nobody listens there */
};

struct sh_wire;

/* What a wire can do beyond the first nine operations. */
#define SH_WIRE_WRITES 1u /* region_add, region_remove and write are there */

/* Bytes that one write carries at most. */
#define SH_WIRE_WRITE_MAX (64u << 10)

struct sh_wire_ops {
    /* Starts to accept links at address. EADDRINUSE, EADDRESS, EIO. The address really bound (with
     * the port filled in) is written to bound_out, at most 64 bytes with the NUL. */
    enum shoal_err (*listen)(struct sh_wire *wire, const char *address, char *bound_out);
    /* Begins to open a link; OPENED or LOST follows with the tag. EADDRESS, ELIMIT, ENOMEM. */
    enum shoal_err (*open)(struct sh_wire *wire, const char *address, uint64_t tag,
                           sh_link *link_out);
    /* Closes a link; pushed bytes are still sent if the network allows. No event follows. A link
     * that is gone already (its LOST may be among events not looked at yet) is left alone. */
    void (*close)(struct sh_wire *wire, sh_link link);
    /* Sends what can be sent now; returns how many bytes were taken, from the front. Fewer than
     * all means: wait for WRITABLE. A lost link takes 0 and is reported by poll. */
    size_t (*push)(struct sh_wire *wire, sh_link link, struct sh_bytes bytes);
    /* Receives at most room bytes; 0 when there are none now. */
    size_t (*pull)(struct sh_wire *wire, sh_link link, void *into, size_t room);
    /* Fills events with what happened; waits at most timeout_ns for the first. Returns how many. */
    unsigned (*poll)(struct sh_wire *wire, struct sh_wire_event *events, unsigned events_max,
                     uint64_t timeout_ns);
    /* Like poll but only waits and consumes nothing: for a thread that may not touch the wire. */
    void (*watch)(struct sh_wire *wire, uint64_t timeout_ns);
    /* Makes the current or next poll and watch return at once. Any thread. */
    void (*signal)(struct sh_wire *wire);
    void (*destroy)(struct sh_wire *wire);

    /* Hands on what push has taken and the wire still holds to send it with more. To be called
     * after a round of pushes by whoever may not poll next; poll does it too. NULL: push holds
     * nothing back. */
    void (*flush)(struct sh_wire *wire);

    /* From now on the kernel encrypts what is pushed over the link (kTLS); keys is what
     * setsockopt(SOL_TLS, TLS_TX) takes. All that was pushed before has been taken. False: it
     * can't, and nothing has changed. NULL: it never can. */
    bool (*encrypt)(struct sh_wire *wire, sh_link link, const void *keys, size_t size);

    /* Writes who is at the other end of an accepted link, as a text for people of at most
     * SH_WIRE_ADDRESS_MAX bytes with the NUL: to be named in a log. Empty: the wire does not know,
     * or the link is gone. NULL: it never knows. */
    void (*peer)(struct sh_wire *wire, sh_link link, char *text_out);

    /* While paused, no READABLE is said of the link, nor a LOST before its bytes: for an owner that
     * will not pull for a while. It may pull all the same. When it is paused no longer, READABLE is
     * said again if there are bytes. */
    void (*pause)(struct sh_wire *wire, sh_link link, bool is_paused);

    uint32_t abilities; /* SH_WIRE_... */
    /* Lets the other ends of this wire's links write into size bytes at memory, which stays the
     * caller's and is kept until region_remove has returned. The key is the caller's to tell them.
     * ELIMIT, ENOMEM. */
    enum shoal_err (*region_add)(struct sh_wire *wire, void *memory, size_t size,
                                 uint64_t *key_out);
    /* Ends that: no write touches the memory after it has returned. */
    void (*region_remove)(struct sh_wire *wire, uint64_t key);
    /* Writes bytes, at most SH_WIRE_WRITE_MAX, into the peer's region at offset. It is there before
     * anything that is pushed or written over the link afterwards; 8 bytes at an aligned address
     * arrive whole, and with release order. A write that was just made may be lost when the link is
     * closed. ENONAME: no such region, or not so long (a wire that can't know that loses the link
     * instead); ECONNLOST; EAGAIN: try again after WRITABLE. */
    enum shoal_err (*write)(struct sh_wire *wire, sh_link link, uint64_t key, uint64_t offset,
                            struct sh_bytes bytes);
};

/* The first member of every wire. */
struct sh_wire {
    const struct sh_wire_ops *ops;
};

/* The same as peer, for a wire that may not have it. */
static inline void sh_wire_peer(struct sh_wire *wire, sh_link link, char *text_out)
{
    text_out[0] = '\0';
    if (wire->ops->peer)
        wire->ops->peer(wire, link, text_out);
}

#endif
