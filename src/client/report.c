/* Asking a superpeer what it has. */
#include <stdlib.h>

#include "client/client_int.h"
#include "cluster/proto.h"

/* One that has been declared failed may live, and be cut off from the others only. msg has
 * forgotten it, so it is asked at its address; the detail says what it is in any case. */
static enum shoal_err ask(shoal *store, const struct sh_node *node, uint8_t **answer_out,
                          size_t *size_out)
{
    struct sh_caller caller = sh_client_caller(store);
    bool is_failed = node->state == SH_NODE_FAILED;
    shoal_nid to = node->nid;
    enum shoal_err err = SHOAL_OK;
    if (is_failed)
        err = sh_msg_contact(store->msg, node->address, &to);
    if (err == SHOAL_OK)
        err = sh_call(&caller, to, SH_CLUSTER_REPORT, (struct sh_bytes){NULL, 0}, store->timeout_ns,
                      answer_out, size_out, sh_client_detail());
    if (is_failed && to.v != node->nid.v)
        sh_msg_node_remove(store->msg, to);
    if (is_failed && err != SHOAL_OK)
        sh_client_detail_set("the superpeers have declared it failed");
    return err;
}

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
    err = ask(store, &node, &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    err = sh_report_get(&r, report_out);
    free(answer);
    return err;
}
