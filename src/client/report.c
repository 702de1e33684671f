/* Asking a superpeer what it has. */
#include <stdlib.h>

#include "client/client_int.h"
#include "cluster/proto.h"

enum shoal_err sh_client_report(shoal *store, shoal_nid superpeer, struct sh_report *report_out)
{
    struct sh_node node;
    uint8_t *answer;
    size_t size;
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK)
        err = sh_directory_node(store->directory, superpeer, &node);
    if (err == SHOAL_OK && node.role != SH_ROLE_SUPERPEER)
        err = SHOAL_EROLE;
    if (err != SHOAL_OK)
        return err;
    struct sh_caller caller = sh_client_caller(store);
    err = sh_call(&caller, superpeer, SH_CLUSTER_REPORT, (struct sh_bytes){NULL, 0},
                  store->timeout_ns, &answer, &size, sh_client_detail());
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    err = sh_report_get(&r, report_out);
    free(answer);
    return err;
}
