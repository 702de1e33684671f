/* Certificates for tests, made by the program openssl in a folder of their own: two authorities,
 * ca.pem and other-ca.pem, and a certificate of each, node.pem (node.key) and other.pem
 * (other.key). */
#ifndef SH_MSG_TLS_TEST_H
#define SH_MSG_TLS_TEST_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TLS_TEST_PATH_MAX 128

static char tls_test_folder[64];

static int tls_test_run(const char *format, const char *name)
{
    char command[1024];
    snprintf(command, sizeof command, format, tls_test_folder, name, name, name);
    return system(command);
}

/* 0: made. */
static inline int tls_test_setup(void **state)
{
    (void)state;
    snprintf(tls_test_folder, sizeof tls_test_folder, "/tmp/shoal-tls-test.XXXXXX");
    if (!mkdtemp(tls_test_folder))
        return 1;
    const char *authority = "cd %s && openssl req -x509 -newkey ec -pkeyopt "
                            "ec_paramgen_curve:P-256 -nodes -keyout %s.key -out %s.pem -subj "
                            "/CN=%s -days 3 2>openssl.log";
    const char *request = "cd %s && openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                          "-nodes -keyout %s.key -out %s.csr -subj /CN=%s 2>openssl.log";
    int failed = tls_test_run(authority, "ca") | tls_test_run(authority, "other-ca") |
                 tls_test_run(request, "node") | tls_test_run(request, "other");
    failed |= tls_test_run("cd %s && openssl x509 -req -in %s.csr -CA ca.pem -CAkey ca.key "
                           "-CAcreateserial -out %s.pem -days 3 2>openssl.log",
                           "node");
    failed |= tls_test_run("cd %s && openssl x509 -req -in %s.csr -CA other-ca.pem -CAkey "
                           "other-ca.key -CAcreateserial -out %s.pem -days 3 2>openssl.log",
                           "other");
    return failed ? 1 : 0;
}

static inline int tls_test_remove(const char *path, const struct stat *status, int kind,
                                  struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static inline int tls_test_teardown(void **state)
{
    (void)state;
    return nftw(tls_test_folder, tls_test_remove, 8, FTW_DEPTH | FTW_PHYS);
}

static inline void tls_test_path(char *out, const char *name)
{
    snprintf(out, TLS_TEST_PATH_MAX, "%s/%s", tls_test_folder, name);
}

#endif
