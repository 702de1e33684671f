#include "base/hist.h"

#include <float.h>
#include <string.h>

#include "base/assert.h"

#define SUB_COUNT (UINT64_C(1) << SH_HIST_SUB_BITS)

/* Values below 64 have a bucket each. Above, a value whose highest bit is m falls into one of 64
 * equal parts of [2^m, 2^(m+1)), so a bucket is at most 1/64 of its values wide. Values from 2^63
 * share the last bucket. */
static unsigned bucket_of(uint64_t value)
{
    if (value < SUB_COUNT)
        return (unsigned)value;
    unsigned high_bit = 63 - (unsigned)__builtin_clzll(value);
    unsigned shift = high_bit - SH_HIST_SUB_BITS;
    uint64_t index = ((uint64_t)shift << SH_HIST_SUB_BITS) + (value >> shift);
    return index < SH_HIST_BUCKETS ? (unsigned)index : SH_HIST_BUCKETS - 1;
}

/* The largest value that falls into the bucket. */
static uint64_t bucket_edge(unsigned index)
{
    SH_ASSERT(index < SH_HIST_BUCKETS);
    if (index == SH_HIST_BUCKETS - 1)
        return UINT64_MAX;
    if (index < SUB_COUNT)
        return index;
    unsigned shift = (index >> SH_HIST_SUB_BITS) - 1;
    uint64_t part = SUB_COUNT + (index & (SUB_COUNT - 1));
    return ((part + 1) << shift) - 1;
}

void sh_hist_reset(struct sh_hist *hist)
{
    memset(hist, 0, sizeof *hist);
}

void sh_hist_add(struct sh_hist *hist, uint64_t value)
{
    if (hist->count == 0 || value < hist->min)
        hist->min = value;
    if (hist->count == 0 || value > hist->max)
        hist->max = value;
    hist->count++;
    hist->sum += value;
    hist->buckets[bucket_of(value)]++;
}

void sh_hist_merge(struct sh_hist *into, const struct sh_hist *from)
{
    SH_ASSERT(into != from);
    if (from->count == 0)
        return;
    if (into->count == 0 || from->min < into->min)
        into->min = from->min;
    if (into->count == 0 || from->max > into->max)
        into->max = from->max;
    into->count += from->count;
    into->sum += from->sum;
    for (unsigned i = 0; i < SH_HIST_BUCKETS; i++)
        into->buckets[i] += from->buckets[i];
}

/* How many values, counted from the smallest, make up at least that percentage; 1 to count. */
static uint64_t rank_of(uint64_t count, double percent)
{
    double exact = percent * (double)count / 100;
    uint64_t rank = exact < (double)count ? (uint64_t)exact : count;
    /* Round up, but not for what is only rounding: 99.99 % of 10000 must stay 9999. */
    if (rank < count && exact - (double)rank > exact * 4 * DBL_EPSILON)
        rank++;
    return rank > 0 ? rank : 1;
}

uint64_t sh_hist_percentile(const struct sh_hist *hist, double percent)
{
    SH_ASSERT(percent >= 0 && percent <= 100);
    if (hist->count == 0)
        return 0;
    uint64_t rank = rank_of(hist->count, percent);
    uint64_t seen = 0;
    unsigned index = 0;
    for (; index < SH_HIST_BUCKETS - 1; index++) {
        seen += hist->buckets[index];
        if (seen >= rank)
            break;
    }
    uint64_t edge = bucket_edge(index);
    return edge < hist->max ? edge : hist->max;
}

double sh_hist_mean(const struct sh_hist *hist)
{
    return hist->count == 0 ? 0 : (double)hist->sum / (double)hist->count;
}
