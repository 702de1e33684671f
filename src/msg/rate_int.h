/* A bound on how often something is logged, so that strangers can't fill the log: so many lines in
 * a period, and the first line of the next says how many were left out. One thread. */
#ifndef SH_MSG_RATE_INT_H
#define SH_MSG_RATE_INT_H

#include <stdbool.h>
#include <stdint.h>

#define SH_RATE_LINES 10
#define SH_RATE_PERIOD_NS UINT64_C(10000000000)

struct sh_rate {
    uint64_t until_ns; /* the period's end; 0: none has begun */
    unsigned lines;    /* in it, so far */
    uint64_t left_out; /* since the last line */
};

/* True when a line may be written; *left_out_out: how many were not, since the last one. */
static inline bool sh_rate_allows(struct sh_rate *rate, uint64_t now_ns, uint64_t *left_out_out)
{
    if (now_ns >= rate->until_ns) {
        rate->until_ns = now_ns + SH_RATE_PERIOD_NS;
        rate->lines = 0;
    }
    if (rate->lines == SH_RATE_LINES) {
        rate->left_out++;
        return false;
    }
    rate->lines++;
    *left_out_out = rate->left_out;
    rate->left_out = 0;
    return true;
}

#endif
