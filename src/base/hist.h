/* Histograms of durations or sizes: log-linear buckets, percentiles to 99.99 within 1.6 %.
 *
 * 64 linear buckets per power of two; about 30 KiB, no allocation. Values from 2^63 share the last
 * bucket (a duration of 292 years). The sum wraps at 2^64. Owned by one
 * thread; merge for totals. */
#ifndef SH_BASE_HIST_H
#define SH_BASE_HIST_H

#include <stdint.h>

#define SH_HIST_SUB_BITS 6
#define SH_HIST_BUCKETS ((64 - SH_HIST_SUB_BITS) << SH_HIST_SUB_BITS)

struct sh_hist {
    uint64_t count;
    uint64_t sum;
    uint64_t min; /* of the recorded values; meaningless while count is 0 */
    uint64_t max;
    uint64_t buckets[SH_HIST_BUCKETS];
};

void sh_hist_reset(struct sh_hist *hist);
void sh_hist_add(struct sh_hist *hist, uint64_t value);
void sh_hist_merge(struct sh_hist *into, const struct sh_hist *from);

/* The smallest recorded value that at least `percent` (0 to 100) of the values do not exceed,
 * rounded up to its bucket's upper edge, never above max. 0 when empty. */
uint64_t sh_hist_percentile(const struct sh_hist *hist, double percent);

/* Arithmetic mean; 0 when empty. */
double sh_hist_mean(const struct sh_hist *hist);

#endif
