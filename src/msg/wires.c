#include "msg/wires.h"

#include <string.h>

#include "msg/loopback.h"
#include "msg/tcp.h"
#include "msg/uring_wire.h"

static const struct {
    const char *name;
    enum shoal_err (*create)(uint32_t links_max, struct sh_wire **wire_out);
} kinds[] = {
    {"tcp", sh_tcp_create},  {"epoll", sh_tcp_create},         {"uring", sh_uring_create},
    {"unix", sh_tcp_create}, {"loopback", sh_loopback_create},
};

#define KINDS (sizeof kinds / sizeof *kinds)

enum shoal_err sh_wire_create(const char *name, uint32_t links_max, struct sh_wire **wire_out)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i].create(links_max, wire_out);
    }
    return SHOAL_EINVAL;
}

bool sh_wire_is_known(const char *name)
{
    for (size_t i = 0; i < KINDS; i++) {
        if (strcmp(kinds[i].name, name) == 0)
            return true;
    }
    return false;
}
