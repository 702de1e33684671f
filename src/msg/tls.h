/* TLS 1.3 around any wire: a wire whose links are those of another one, encrypted.
 *
 * Both sides show a certificate and verify the other's: it must be signed, directly or through a
 * chain that comes with it, by an authority in ca_file. Names in certificates are not judged, so
 * the authority must be one that signs for this cluster only. The hello with its proof of the
 * secret goes on inside, as on any other wire.
 *
 * A link counts as open once each side has verified the other: the dialler waits for the session
 * ticket that the acceptor sends after it (nothing is ever resumed with it), so that a refusal
 * arrives as such and not as a connection that was cut. An accepted link is not announced before
 * its handshake is over, and is closed if that takes too long, or if it is the oldest of too many.
 *
 * Where one side has TLS and the other has not, both learn it: this wire answers a plain hello with
 * a plain REFUSAL of ETLS, and the hello refuses TLS in the same way (docs/wire-format.md). */
#ifndef SH_MSG_TLS_H
#define SH_MSG_TLS_H

#include "env/env.h"
#include "env/wire.h"

#define SH_TLS_DETAIL_BYTES 256

struct sh_tls_config {
    const char *cert_file;         /* borrowed; PEM: our certificate, then its chain if any */
    const char *key_file;          /* borrowed; PEM: its private key, without a password */
    const char *ca_file;           /* borrowed; PEM: who may sign the other side's certificate */
    struct sh_clock clock;         /* kept */
    uint64_t handshake_timeout_ns; /* for accepted links; the owner times those that it opens */
    uint32_t handshakes_max;       /* accepted links in handshake; 0: 128 */
};

/* Makes a wire around another one, which it takes on success: destroy destroys both. Its links have
 * the numbers of the inner one's; one-sided writes it has none, since they would go past the
 * encryption: put msg/writes.h around it for those. Besides what env/wire.h says, LOST may carry
 * ETLS; the log has the reason. Who was told that push took less than all pushes the rest next,
 * from the front: part of it may be encrypted already.
 *
 * ETLS: a file can't be used; detail (SH_TLS_DETAIL_BYTES) says which and why. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_tls_create(struct sh_wire *inner,
                                             const struct sh_tls_config *config,
                                             struct sh_wire **wire_out, char *detail);

#endif
