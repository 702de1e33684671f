/* Fibers: functions that can be stopped in the midst of what they do and go on later, on stacks of
 * their own. So a simulated program can call what blocks: libshoal's public functions, which wait
 * in one place (sh_crew_wait), where the fiber pauses and the world goes on.
 *
 * Threads: one for all. A fiber may not create or resume fibers. */
#ifndef SIM_FIBER_H
#define SIM_FIBER_H

#include <stdbool.h>

struct sh_fiber;

/* Asserts that memory suffices. run begins at the first resume. */
struct sh_fiber *sh_fiber_create(void (*run)(void *arg), void *arg);
/* It must have ended, or never have been resumed. NULL is allowed. */
void sh_fiber_destroy(struct sh_fiber *fiber);

/* Lets it run until it pauses or ends. It has not ended yet. */
void sh_fiber_resume(struct sh_fiber *fiber);
bool sh_fiber_ended(const struct sh_fiber *fiber);
/* In a fiber: back to who resumed it. */
void sh_fiber_pause(void);

#endif
