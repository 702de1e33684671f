/* Error numbers that came from another process. */
#ifndef SH_BASE_ERR_H
#define SH_BASE_ERR_H

#include <stdbool.h>

#include "shoal/err.h"

/* Whether this version has an error of that number. */
bool sh_err_is_known(unsigned number);

/* The error of that number; EPROTO when there is none. */
static inline enum shoal_err sh_err_get(unsigned number)
{
    return sh_err_is_known(number) ? (enum shoal_err)number : SHOAL_EPROTO;
}

#endif
