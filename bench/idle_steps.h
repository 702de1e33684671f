/* The noise of the machine: how long steps seem to take that call nothing and touch no memory. A hypervisor takes
 * cores from a virtual machine at times, and the guest's kernel charges that time, or its interrupts, to
 * the running thread: a step of 0.3 ms then seems to take milliseconds of processor time. */
#ifndef SH_BENCH_IDLE_STEPS_H
#define SH_BENCH_IDLE_STEPS_H

#include <stdint.h>

#include "shoal/err.h"

struct sh_idle_steps {
    uint64_t count, over_1ms, longest_ns; /* processor time of the step's thread */
    unsigned cores;
};

/* Runs steps of some 250 us for `seconds`, in as many threads as the program may use cores. ENOMEM: *steps_out stays as
 * it was. */
SHOAL_NODISCARD enum shoal_err sh_idle_steps_measure(double seconds,
                                                     struct sh_idle_steps *steps_out);

#endif
