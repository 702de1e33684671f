/* A map of a billion objects on three servers, of which some have moved.
 *
 *   cc where.c $(pkg-config --cflags --libs shoalranges) && ./a.out
 *
 * Every server starts with a third of the IDs: three ranges, whatever the number of objects. Then
 * single objects move, each of which splits a range. A second thread looks objects up all the
 * while, without a lock. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include <shoalranges/ranges.h>

#define OBJECTS UINT64_C(1000000000)
#define MOVES 100000u

static struct sh_ranges *map;
static atomic_bool done;
static unsigned long long looked_up;

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 20;
}

static void *reader_main(void *arg)
{
    uint64_t state = 7;
    while (!atomic_load(&done)) {
        shoal_cid id = {random_next(&state) % OBJECTS};
        struct sh_range range;
        if (!sh_ranges_find(map, id, &range))
            return "an object is nowhere";
        looked_up++;
    }
    return arg;
}

/* Gives each server its third, then moves objects one by one. */
static enum shoal_err map_change(void)
{
    enum shoal_err err = SHOAL_OK;
    uint64_t state = 1;
    for (unsigned i = 0; i < MOVES && !err; i++) {
        shoal_cid id = {random_next(&state) % OBJECTS};
        err = sh_ranges_set(map, id, id, random_next(&state) % 3);
    }
    return err;
}

int main(void)
{
    enum shoal_err err = sh_ranges_create(1 << 16, &map);
    for (uint64_t server = 0; server < 3 && !err; server++) {
        shoal_cid first = {OBJECTS * server / 3};
        shoal_cid last = {OBJECTS * (server + 1) / 3 - 1};
        err = sh_ranges_set(map, first, last, server);
    }
    if (err) {
        fprintf(stderr, "%s\n", shoal_err_text(err));
        return 1;
    }
    printf("%llu objects: %zu ranges\n", (unsigned long long)OBJECTS, sh_ranges_count(map));
    pthread_t reader;
    if (pthread_create(&reader, NULL, reader_main, NULL) != 0)
        return 1;
    err = map_change();
    atomic_store(&done, true);
    void *complaint = NULL;
    pthread_join(reader, &complaint);
    if (err || complaint) {
        fprintf(stderr, "%s\n", err ? shoal_err_text(err) : (const char *)complaint);
        return 1;
    }
    printf("%u moved: %zu ranges in %zu KiB; %llu lookups meanwhile\n", MOVES, sh_ranges_count(map),
           sh_ranges_bytes(map) / 1024, looked_up);
    sh_ranges_destroy(map);
    return 0;
}
