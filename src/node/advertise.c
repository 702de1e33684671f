#include "node/advertise.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/options.h"

enum shoal_err sh_advertise_choose(const char *advertise, const char *bound,
                                   char address_out[SH_MSG_ADDRESS_MAX], char *detail_out)
{
    const char *bound_port = strrchr(bound, ':');
    SH_ASSERT(bound_port && strlen(bound) < SH_MSG_ADDRESS_MAX);
    if (*advertise == '\0') {
        if (sh_address_is_wildcard(bound)) {
            snprintf(detail_out, SH_ADVERTISE_DETAIL_BYTES,
                     "listen is bound to all addresses (%s): set the option advertise to the "
                     "HOST:PORT that other nodes reach",
                     bound);
            return SHOAL_EADDRESS;
        }
        memcpy(address_out, bound, strlen(bound) + 1);
        return SHOAL_OK;
    }
    const char *port = strrchr(advertise, ':');
    SH_ASSERT(port); /* sh_options_check saw it */
    bool is_same_port = strspn(port + 1, "0") == strlen(port + 1);
    char address[SH_MSG_ADDRESS_MAX];
    int size = snprintf(address, sizeof address, "%.*s%s", (int)(port - advertise), advertise,
                        is_same_port ? bound_port : port);
    if (size < 0 || (size_t)size >= sizeof address) {
        snprintf(detail_out, SH_ADVERTISE_DETAIL_BYTES,
                 "advertise %s: with its port it has more than %d bytes", advertise,
                 SH_MSG_ADDRESS_MAX - 1);
        return SHOAL_EADDRESS;
    }
    memcpy(address_out, address, sizeof address);
    return SHOAL_OK;
}
