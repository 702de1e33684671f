#include "base/resident.h"

#include <stdio.h>
#include <unistd.h>

uint64_t sh_resident_bytes(void)
{
    unsigned long long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    if (!file)
        return 0;
    int found = fscanf(file, "%llu %llu", &total, &resident);
    fclose(file);
    return found == 2 ? resident * (uint64_t)sysconf(_SC_PAGESIZE) : 0;
}
