#include "bench/zipf.h"

#include <math.h>

#include "base/assert.h"

#define THETA 0.99

static double zeta(uint64_t count)
{
    double sum = 0;
    for (uint64_t rank = 1; rank <= count; rank++)
        sum += pow((double)rank, -THETA);
    return sum;
}

void sh_zipf_init(struct sh_zipf *zipf, uint64_t count)
{
    SH_ASSERT(count >= 2);
    double first_two = 1 + pow(0.5, THETA);
    zipf->count = count;
    zipf->alpha = 1 / (1 - THETA);
    zipf->zeta_count = zeta(count);
    zipf->second = first_two;
    zipf->eta = (1 - pow(2.0 / (double)count, 1 - THETA)) / (1 - first_two / zipf->zeta_count);
}

uint64_t sh_zipf_rank(const struct sh_zipf *zipf, double random)
{
    SH_ASSERT(random >= 0 && random < 1);
    double scaled = random * zipf->zeta_count;
    if (scaled < 1)
        return 0;
    if (scaled < zipf->second || zipf->count == 2)
        return 1;
    double share = pow(zipf->eta * random - zipf->eta + 1, zipf->alpha);
    uint64_t rank = (uint64_t)((double)zipf->count * share);
    return rank < zipf->count ? rank : zipf->count - 1;
}
