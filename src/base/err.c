#include "base/err.h"

#include <stddef.h>

static const struct {
    const char *name;
    const char *text;
    const char *hint;
} errors[] = {
#define X(name, number, text, hint) [number] = {"SHOAL_" #name, text, hint},
#include "shoal/err.def"
#undef X
};

#define ERROR_COUNT (sizeof errors / sizeof errors[0])

bool sh_err_is_known(unsigned number)
{
    return number < ERROR_COUNT && errors[number].name != NULL;
}

const char *shoal_err_name(enum shoal_err err)
{
    return sh_err_is_known(err) ? errors[err].name : "SHOAL_E?";
}

const char *shoal_err_text(enum shoal_err err)
{
    return sh_err_is_known(err) ? errors[err].text : "an error that this version does not know";
}

const char *shoal_err_hint(enum shoal_err err)
{
    return sh_err_is_known(err) ? errors[err].hint : "upgrade this program";
}
