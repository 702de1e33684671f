#include <stdint.h>
#include <string.h>

#include "base/options.h"

/* Longer words than this have no neighbours. */
#define WORD_MAX 63

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Optimal string alignment: insertions, deletions, replacements and swaps of neighbours. Three
 * rows of the usual table are enough: row i needs those of i - 1 and, for swaps, i - 2. */
static unsigned distance(const char *a, size_t a_size, const char *b, size_t b_size)
{
    unsigned rows[3][WORD_MAX + 1];
    for (size_t j = 0; j <= b_size; j++)
        rows[0][j] = (unsigned)j;
    for (size_t i = 1; i <= a_size; i++) {
        unsigned *row = rows[i % 3], *before = rows[(i + 2) % 3], *second = rows[(i + 1) % 3];
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_size; j++) {
            unsigned changed = before[j - 1] + (a[i - 1] != b[j - 1]);
            row[j] = least(changed, least(before[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], second[j - 2] + 1);
        }
    }
    return rows[a_size % 3][b_size];
}

const char *sh_nearest_word(const char *word, const char *const *known, size_t known_count)
{
    size_t size = strlen(word);
    if (size > WORD_MAX)
        return NULL;
    const char *nearest = NULL;
    unsigned nearest_distance = (unsigned)size / 3 + 1;
    for (size_t i = 0; i < known_count; i++) {
        size_t known_size = strlen(known[i]);
        if (known_size > WORD_MAX)
            continue;
        unsigned at = distance(word, size, known[i], known_size);
        if (at < nearest_distance) {
            nearest = known[i];
            nearest_distance = at;
        }
    }
    return nearest;
}
