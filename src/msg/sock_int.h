/* Sockets for the wires that work on them: addresses, listening, dialling, accepting. Two families
 * behind one kind of text:
 *
 *   HOST:PORT, [IPV6]:PORT   TCP; HOST may be a name that the system's files resolve
 *   unix:PATH                a Unix-domain socket, for clients on the same machine
 *
 * All sockets are non-blocking and closed on exec. The functions belong to whoever owns the wire;
 * none blocks, except that listen and find look up names. */
#ifndef SH_MSG_SOCK_INT_H
#define SH_MSG_SOCK_INT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/types.h>

#include "msg/rate_int.h"
#include "shoal/err.h"

/* Addresses that one wire may listen on at once. */
#define SH_SOCK_LISTENERS_MAX 4

struct sh_sock_listener {
    int fd;
    char path[64]; /* of a Unix-domain socket; else empty */
    dev_t device;  /* of the file at path, as we made it */
    ino_t inode;
};

/* Starts to listen. Writes the address that was bound, at most 64 bytes with the NUL. The file of a
 * Unix-domain socket is made with mode 0600 (a wider one is the operator's to give); one that
 * nobody listens on any more is replaced, anything else at its path is left alone: EADDRINUSE.
 * EADDRESS, EIO. */
SHOAL_NODISCARD enum shoal_err
sh_sock_listen(const char *address, struct sh_sock_listener *listener_out, char *bound_out);
/* Closes it and removes its file, unless somebody has put another there. */
void sh_sock_listener_close(struct sh_sock_listener *listener);

/* An address as the system takes it. */
struct sh_sock_address {
    struct sockaddr_storage bytes;
    socklen_t size;
};
/* The address that a text stands for. A name is looked up, which may take long: any thread.
 * EADDRESS. */
SHOAL_NODISCARD enum shoal_err sh_sock_address_find(const char *address,
                                                    struct sh_sock_address *address_out);

/* What became of dialling. */
enum sh_sock_dialled {
    SH_SOCK_CONNECTS, /* the socket becomes writable when that has ended */
    SH_SOCK_FAILED,   /* already, */
    SH_SOCK_REFUSED,  /* or because nobody listens there */
    SH_SOCK_IS_NAME,  /* the descriptor only holds a place: find its address, and dial at it */
};
/* Begins to connect; the descriptor is the caller's in each case. EADDRESS; ELIMIT: none. */
SHOAL_NODISCARD enum shoal_err sh_sock_dial(const char *address, int *fd_out,
                                            enum sh_sock_dialled *dialled_out);
/* Begins to connect, with a socket that takes the place of a descriptor. Never IS_NAME. */
enum sh_sock_dialled sh_sock_dial_at(int fd, const struct sh_sock_address *address);

/* What accepting needs beside the listener, one for all of a wire's. */
struct sh_sock_acceptor {
    /* A descriptor kept open: where they have run out it is closed to take the connection and
     * refuse it, since else the listener would stay readable and keep the thread busy for ever. -1:
     * none was to be had. */
    int spare;
    struct sh_rate warnings;
};
void sh_sock_acceptor_open(struct sh_sock_acceptor *acceptor);
void sh_sock_acceptor_close(struct sh_sock_acceptor *acceptor);

/* Who connected. Zero: not known. */
struct sh_sock_peer {
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } at;
    pid_t pid; /* of a Unix-domain socket's other end */
};
/* As a text of at most 64 bytes with the NUL; empty: not known. */
void sh_sock_peer_print(const struct sh_sock_peer *peer, char *out);

/* The next connection that waits, or -1 if there is none. */
int sh_sock_accept(const struct sh_sock_listener *listener, struct sh_sock_acceptor *acceptor,
                   struct sh_sock_peer *peer_out);
/* Closes an accepted connection for which the wire has no place, and says so. */
void sh_sock_refuse(struct sh_sock_acceptor *acceptor, int fd, uint32_t links_max);

/* Small messages go out at once (TCP_NODELAY; nothing on a Unix-domain socket). */
void sh_sock_tune(int fd);

#endif
