/* Printing docs/errors.md. */
#include "base/options.h"

static const char errors_head[] =
    "# Errors\n"
    "\n"
    "This page is generated from `include/shoal/err.def` by `shoal errors --markdown`.\n"
    "\n"
    "Functions of the C library return these as `enum shoal_err`; `shoal_err_text` and\n"
    "`shoal_err_hint` give the texts. The numbers are part of the wire format and never change.\n"
    "\n"
    "| name | number | what happened | what to do |\n"
    "|---|---|---|---|\n";

void sh_errors_print_markdown(FILE *out)
{
    static const enum shoal_err errors[] = {
#define X(name, number, text, hint) SHOAL_##name,
#include "shoal/err.def"
#undef X
    };
    fputs(errors_head, out);
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        fprintf(out, "| `%s` | %d | %s | %s |\n", shoal_err_name(errors[i]), (int)errors[i],
                shoal_err_text(errors[i]), shoal_err_hint(errors[i]));
}
