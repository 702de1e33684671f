#include "bench/server_node.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/options.h"
#include "bench/child.h"

enum shoal_err sh_server_node_run(const struct sh_server_setting *settings, size_t count,
                                  struct sh_node_run **node_out)
{
    struct sh_options *options = calloc(1, sizeof *options); /* the node borrows it */
    struct sh_options_error error = {""};
    struct sh_node_run *node = NULL;
    char detail[256] = "";
    enum shoal_err err = options ? sh_options_init(options) : SHOAL_ENOMEM;
    for (size_t i = 0; !err && i < count; i++) {
        if (settings[i].value)
            err = sh_options_set(options, settings[i].name, settings[i].value, "bench", &error);
    }
    if (!err)
        err = sh_options_check(options, &error);
    if (!err)
        err = sh_node_create(options, &node, detail);
    if (!err)
        err = sh_node_start(node);
    if (!err && !sh_node_wait_ready(node))
        err = SHOAL_ESTOPPED;
    if (err)
        SH_ERROR("bench", "no node to measure", SH_ERR(err), SH_TEXT("option", error.text),
                 SH_TEXT("detail", detail));
    else
        *node_out = node;
    return err;
}

uint16_t sh_server_port(const struct sh_node_run *node)
{
    const char *colon = strrchr(sh_node_address(node), ':');
    SH_ASSERT(colon != NULL);
    return (uint16_t)strtoul(colon + 1, NULL, 10);
}

void sh_server_serve(const struct sh_node_run *node, int report_fd)
{
    sh_child_report(report_fd, sh_server_port(node));
    for (;;)
        (void)pause();
}
