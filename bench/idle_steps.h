/* What the machine itself makes of short steps. A virtual machine's cores are taken from it at times, and the
 * kernel may charge that, or its interrupts, to the thread that runs: then a step seems to take milliseconds
 * of processor time that takes a fraction. So steps that call nothing and touch no memory are measured
 * beside those of the nodes. */
#ifndef SH_BENCH_IDLE_STEPS_H
#define SH_BENCH_IDLE_STEPS_H

#include <stdint.h>

#include "shoal/err.h"

struct sh_idle_steps {
    uint64_t count, over_1ms, longest_ns; /* processor time of the step's thread */
    unsigned cores;
};

/* Runs steps of some 250 us for `seconds`, a thread on each core that the program may use. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_idle_steps_measure(double seconds,
                                                     struct sh_idle_steps *steps_out);

#endif
