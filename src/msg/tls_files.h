/* Certificate, private key and authorities, from files. */
#ifndef SH_MSG_TLS_FILES_H
#define SH_MSG_TLS_FILES_H

#include <openssl/ssl.h>

#include "msg/tls.h"

/* Reads the files that config names into the context. ETLS: one can't be used; detail
 * (SH_TLS_DETAIL_BYTES) says which and why. */
SHOAL_NODISCARD enum shoal_err sh_tls_files_load(SSL_CTX *context,
                                                 const struct sh_tls_config *config, char *detail);

#endif
