#include "msg/tls_files.h"

#include <openssl/err.h>
#include <stdio.h>
#include <string.h>

/* Without this OpenSSL would ask on the terminal. */
static int no_password(char *into, int room, int is_writing, void *arg)
{
    (void)into;
    (void)room;
    (void)is_writing;
    (void)arg;
    return -1;
}

static enum shoal_err complain(char *detail, const char *option, const char *path)
{
    unsigned long code = ERR_peek_error();
    const char *reason = ERR_SYSTEM_ERROR(code) ? strerror((int)ERR_GET_REASON(code))
                                                : ERR_reason_error_string(code);
    snprintf(detail, SH_TLS_DETAIL_BYTES, "%s %s: %s", option, path[0] ? path : "is not set",
             reason ? reason : "can't be used");
    return SHOAL_ETLS;
}

enum shoal_err sh_tls_files_load(SSL_CTX *context, const struct sh_tls_config *config, char *detail)
{
    ERR_clear_error();
    SSL_CTX_set_default_passwd_cb(context, no_password);
    if (SSL_CTX_use_certificate_chain_file(context, config->cert_file) != 1)
        return complain(detail, "tls_cert_file", config->cert_file);
    if (SSL_CTX_use_PrivateKey_file(context, config->key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(context) != 1)
        return complain(detail, "tls_key_file", config->key_file);
    if (SSL_CTX_load_verify_locations(context, config->ca_file, NULL) != 1)
        return complain(detail, "tls_ca_file", config->ca_file);
    return SHOAL_OK;
}
