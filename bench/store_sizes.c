#include "bench/store_sizes.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"

/* A bin holds the sizes from the end of the one before it to below `end`, all alike. */
struct bin {
    uint32_t end;
    uint32_t weight;
};

/* clang-format off */
/* Both are made from sizes.json of CacheLib's cachebench configurations graph_cache_leader_assocs
 * and graph_cache_leader_fbobj (facebook/CacheLib at 278ffc7, Apache-2.0). Their bins are 32 bytes
 * wide throughout; ours are to 1 KiB, and wider ones are their sums, eight to a power of two. The
 * means, 1408 and 326 bytes, are kept within half a percent. */
static const struct bin assocs[] = {
    {32, 26773061}, {64, 7892060}, {96, 3301445}, {128, 2060869}, {160, 2845977}, {192, 1868443},
    {224, 1208956}, {256, 572254}, {288, 368673}, {320, 570631}, {352, 479444}, {384, 178736},
    {416, 107278}, {448, 523575}, {480, 64577}, {512, 268386}, {544, 87612}, {576, 361327},
    {608, 48743}, {640, 125280}, {672, 51245}, {704, 333246}, {736, 44970}, {768, 30054},
    {800, 232029}, {832, 29716}, {864, 23479}, {896, 94540}, {928, 32360}, {960, 173473},
    {992, 22258}, {1024, 83517}, {1152, 204358}, {1280, 171669}, {1408, 224266}, {1536, 171510},
    {1664, 126136}, {1792, 122571}, {1920, 141923}, {2048, 111139}, {2304, 275168}, {2560, 153893},
    {2816, 151534}, {3072, 145997}, {3328, 125453}, {3584, 118718}, {3840, 109650}, {4096, 105854},
    {4608, 147733}, {5120, 177434}, {5632, 207331}, {6144, 143663}, {6656, 142736}, {7168, 109953},
    {7680, 140115}, {8192, 139872}, {9216, 143076}, {10240, 151924}, {11264, 84664},
    {12288, 102485}, {13312, 68528}, {14336, 57969}, {15360, 48405}, {16384, 72589},
    {18432, 71937}, {20480, 101228}, {22528, 68342}, {24576, 56390}, {26624, 69032},
    {28672, 36840}, {30720, 30632}, {32768, 31501}, {36864, 39215}, {40960, 41259}, {45056, 26641},
    {49152, 21565}, {53248, 19259}, {57344, 17461}, {61440, 15748}, {65536, 14068}, {73728, 18165},
    {81920, 20651}, {90112, 13346}, {98304, 10673}, {106496, 10470}, {114688, 8789},
    {122880, 8239}, {131072, 7142}, {147456, 9006}, {163840, 18182}, {180224, 6974},
    {196608, 4813}, {212992, 5123}, {229376, 13106}, {245760, 18251}, {262144, 15319},
    {294912, 4545}, {327680, 1700}, {360448, 1663}, {393216, 617}, {425984, 600}, {458752, 443},
    {491520, 450}, {524288, 333}, {589824, 569}, {655360, 433}, {720896, 252}, {786432, 356},
    {851968, 1046}, {917504, 146}, {983040, 103}, {1048576, 120}, {1179648, 562}, {1310720, 16},
    {1441792, 1}, {1572864, 0}, {1703936, 1}, {1835008, 0}, {1966080, 0}, {2097152, 0},
    {2359296, 0}, {2611456, 1},
};
static const struct bin objects[] = {
    {32, 5027425}, {64, 5946604}, {96, 3970846}, {128, 4614831}, {160, 3737292}, {192, 5407117},
    {224, 4619793}, {256, 5816579}, {288, 2643665}, {320, 2502781}, {352, 3949655}, {384, 2801034},
    {416, 1944396}, {448, 1473601}, {480, 1189619}, {512, 786310}, {544, 361599}, {576, 317533},
    {608, 256380}, {640, 290523}, {672, 246313}, {704, 248417}, {736, 216892}, {768, 192908},
    {800, 156701}, {832, 136705}, {864, 122799}, {896, 138708}, {928, 160596}, {960, 380332},
    {992, 651795}, {1024, 280757}, {1152, 497992}, {1280, 230149}, {1408, 171658}, {1536, 137020},
    {1664, 88258}, {1792, 151183}, {1920, 80867}, {2048, 30878}, {2304, 59178}, {2560, 106701},
    {2816, 77964}, {3072, 53576}, {3328, 72826}, {3584, 23815}, {3840, 11794}, {4096, 5853},
    {4608, 157061}, {5120, 7797}, {5632, 3885}, {6144, 3460}, {6656, 4611}, {7168, 14278},
    {7680, 4802}, {8192, 1922}, {9216, 3383}, {10240, 2642}, {11264, 2143}, {12288, 1888},
    {13312, 1738}, {14336, 1498}, {15360, 1357}, {16384, 1282}, {18432, 2025}, {20480, 1857},
    {22528, 1623}, {24576, 1595}, {26624, 1587}, {28672, 1787}, {30720, 2330}, {32768, 2948},
    {36864, 8309}, {40960, 14375}, {45056, 8098}, {49152, 860}, {53248, 725}, {57344, 692},
    {61440, 624}, {65536, 452}, {73728, 470}, {81920, 246}, {90112, 118}, {98304, 57},
    {106496, 41}, {114688, 29}, {122880, 29}, {131072, 8}, {147456, 18}, {163840, 5}, {180224, 1},
    {196608, 1}, {209728, 2},
};
/* clang-format on */

/* Values of Facebook's ETC pool: Atikoglu et al., "Workload Analysis of a Large-Scale Key-Value
 * Store" (SIGMETRICS 2012), table 5 and section 5: the sizes 0 to 14 one by one in parts per
 * 100,000, and above them a generalised Pareto distribution from 15 on. */
static const uint32_t etc_small[] = {536, 47,  17820, 9239, 18, 2740, 65,  606,
                                     23,  837, 837,   8989, 92, 326,  1980};
#define ETC_SMALL (sizeof etc_small / sizeof *etc_small)
#define ETC_SCALE 214.476
#define ETC_SHAPE 0.348238
#define ETC_MAX (UINT32_C(1) << 20) /* the largest value that the pool's servers took */

const char *const sh_sizes_names[] = {"fixed", "assocs", "objects", "etc", NULL};

static void bins_set(struct sh_sizes *sizes, const struct bin *bins, unsigned count)
{
    SH_ASSERT(count > 0 && count <= SH_SIZES_BINS_MAX);
    uint64_t sum = 0;
    for (unsigned i = 0; i < count; i++) {
        sum += bins[i].weight;
        sizes->ends[i] = bins[i].end;
        sizes->sums[i] = sum;
    }
    sizes->bins = count;
    sizes->most = bins[count - 1].end - 1;
}

void sh_sizes_init(struct sh_sizes *sizes, const char *name, uint32_t fixed)
{
    memset(sizes, 0, sizeof *sizes);
    sizes->most = fixed;
    sizes->name = name ? name : "fixed";
    if (strcmp(sizes->name, "assocs") == 0)
        bins_set(sizes, assocs, sizeof assocs / sizeof *assocs);
    else if (strcmp(sizes->name, "objects") == 0)
        bins_set(sizes, objects, sizeof objects / sizeof *objects);
    else if (strcmp(sizes->name, "etc") == 0)
        sizes->most = ETC_MAX;
    else
        SH_ASSERT(strcmp(sizes->name, "fixed") == 0);
    sizes->is_etc = strcmp(sizes->name, "etc") == 0;
}

void sh_sizes_uniform(struct sh_sizes *sizes, uint32_t least, uint32_t most)
{
    SH_ASSERT(least > 0 && least <= most);
    memset(sizes, 0, sizeof *sizes);
    sizes->name = "uniform";
    /* Two bins: nothing below the least, and all of the rest. */
    sizes->ends[0] = least;
    sizes->ends[1] = most + 1;
    sizes->sums[1] = 1;
    sizes->bins = 2;
    sizes->most = most;
}

/* 0 to below `below`, from the bits of a random number. */
static uint64_t scaled(uint64_t random, uint64_t below)
{
    return (uint64_t)(((unsigned __int128)random * below) >> 64);
}

static uint32_t etc_draw(uint64_t random)
{
    uint64_t part = scaled(random, 100000);
    for (unsigned i = 0; i < ETC_SMALL; i++) {
        if (part < etc_small[i])
            return i;
        part -= etc_small[i];
    }
    double uniform = (double)(sh_mix64(random) >> 11) * 0x1p-53;
    double over = ETC_SCALE / ETC_SHAPE * (pow(1 - uniform, -ETC_SHAPE) - 1);
    return over < ETC_MAX - 15 ? 15 + (uint32_t)over : ETC_MAX;
}

uint32_t sh_sizes_draw(const struct sh_sizes *sizes, uint64_t random)
{
    if (sizes->is_etc)
        return etc_draw(random);
    if (sizes->bins == 0)
        return sizes->most;
    uint64_t mark = scaled(random, sizes->sums[sizes->bins - 1]);
    unsigned low = 0;
    unsigned high = sizes->bins - 1;
    while (low < high) {
        unsigned middle = (low + high) / 2;
        if (mark < sizes->sums[middle])
            high = middle;
        else
            low = middle + 1;
    }
    uint32_t begin = low ? sizes->ends[low - 1] : 0;
    uint32_t size = begin + (uint32_t)scaled(sh_mix64(random + 1), sizes->ends[low] - begin);
    SH_ASSERT(size <= sizes->most);
    return size;
}
