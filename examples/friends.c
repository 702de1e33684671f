/* A small social network on a cluster: one chunk for each person, many at a time.
 *
 *     shoal up 3         # prints the addresses; any of them will do
 *     cc friends.c $(pkg-config --cflags --libs shoal) -o friends && ./friends HOST:PORT
 *
 * Each person's chunk holds the chunk IDs of two friends. The program writes all of them with one
 * multi-put, and then follows the friendships of the first person with a multi-get for each step.
 * Without an address it works on a store inside this process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <shoal/shoal.h>

#define PEOPLE 1000
#define STEPS_MAX 32

/* What a person's chunk holds. Chunks are bytes: the layout is the program's business, and so is
 * the byte order where machines of different kinds share a cluster. */
struct person {
    shoal_cid friends[2];
    uint32_t number;
    uint32_t reserved;
};

static int complain(const char *what, enum shoal_err err)
{
    fprintf(stderr, "friends: %s: %s (%s) %s\n", what, shoal_err_text(err), shoal_err_hint(err),
            shoal_error_detail());
    return 1;
}

/* Person i knows i + 1 and 2 i (modulo PEOPLE), so that everybody is few steps away. */
static int write_people(shoal *store, const shoal_cid *cids)
{
    static struct person people[PEOPLE];
    static struct shoal_op ops[PEOPLE];

    for (uint32_t i = 0; i < PEOPLE; i++) {
        people[i] = (struct person){
            .friends = {cids[(i + 1) % PEOPLE], cids[2 * i % PEOPLE]},
            .number = i,
        };
        ops[i] = (struct shoal_op){
            .cid = cids[i],
            .data = &people[i],
            .size = sizeof people[i],
        };
    }
    enum shoal_err err = shoal_multi_put(store, ops, PEOPLE);
    return err == SHOAL_OK ? 0 : complain("multi put", err);
}

/* Gets the given people with one call and collects those of their friends that are new, marking
 * them in seen. Returns how many, or -1. */
static int step(shoal *store, const shoal_cid *cids, const uint32_t *frontier, int count,
                uint32_t *next, char *seen)
{
    static struct person people[PEOPLE];
    static struct shoal_op ops[PEOPLE];
    int found = 0;

    for (int i = 0; i < count; i++) {
        ops[i] = (struct shoal_op){
            .cid = cids[frontier[i]],
            .data = &people[i],
            .size = sizeof people[i],
        };
    }
    enum shoal_err err = shoal_multi_get(store, ops, (size_t)count);
    if (err != SHOAL_OK) {
        complain("multi get", err);
        return -1;
    }
    for (int i = 0; i < count; i++) {
        uint32_t friends[2] = {(people[i].number + 1) % PEOPLE, 2 * people[i].number % PEOPLE};
        for (int j = 0; j < 2; j++) {
            if (people[i].friends[j].v != cids[friends[j]].v) {
                fprintf(stderr, "friends: person %u holds wrong bytes\n", people[i].number);
                return -1;
            }
            if (!seen[friends[j]]) {
                seen[friends[j]] = 1;
                next[found++] = friends[j];
            }
        }
    }
    return found;
}

static int follow(shoal *store, const shoal_cid *cids)
{
    static uint32_t frontier[PEOPLE];
    static uint32_t next[PEOPLE];
    static char seen[PEOPLE];
    int count = 1;
    int reached = 1;

    seen[1] = 1;
    frontier[0] = 1;
    for (int steps = 0; count > 0 && steps < STEPS_MAX; steps++) {
        printf("%d steps away: %d people\n", steps, count);
        count = step(store, cids, frontier, count, next, seen);
        if (count < 0) {
            return 1;
        }
        memcpy(frontier, next, sizeof frontier);
        reached += count;
    }
    printf("reached %d of %d\n", reached, PEOPLE);
    return reached == PEOPLE ? 0 : 1;
}

int main(int argc, char **argv)
{
    static shoal_cid cids[PEOPLE];
    struct shoal_options options = {.addresses = argc > 1 ? argv[1] : NULL};
    shoal *store;

    enum shoal_err err = shoal_open(&options, &store);
    if (err != SHOAL_OK) {
        return complain("open", err);
    }
    /* All people on one peer: IDs made together are consecutive, which keeps lookups few. */
    err = shoal_create_many(store, SHOAL_NID_NONE, sizeof(struct person), PEOPLE, cids);
    int status = err == SHOAL_OK ? write_people(store, cids) : complain("create", err);
    if (status == 0) {
        status = follow(store, cids);
    }
    shoal_close(store);
    return status;
}
