/* Completion records that were found in logs, as many as somebody may still ask for: those that their clients had not acknowledged by
 * the others that were found. Records come in any order, and may come twice.
 *
 * Memory: 24 bytes a client, 56 a record that is kept; a client has at most SH_ONCE_WINDOW of these. One thread. */
#ifndef SH_RECOVER_COMPLETIONS_H
#define SH_RECOVER_COMPLETIONS_H

#include "backup/completion.h"

struct sh_completions;

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_completions_create(struct sh_completions **completions_out);
void sh_completions_destroy(struct sh_completions *completions); /* NULL is allowed */
/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_completions_add(struct sh_completions *completions,
                                                  const struct sh_completion *completion);
/* Calls each for those that are left; nothing is added meanwhile. */
void sh_completions_each(const struct sh_completions *completions,
                         void (*each)(void *arg, const struct sh_completion *completion),
                         void *arg);

/* The same of the next ones, some of at most so many; *at_inout: 0 at first. False: there are no more. */
bool sh_completions_some(const struct sh_completions *completions, size_t most, size_t *at_inout,
                         void (*each)(void *arg, const struct sh_completion *completion),
                         void *arg);

#endif
