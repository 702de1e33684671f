#include "node/outcomes.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/chunk_index.h"
#include "base/err.h"
#include "base/hash.h"

#define BUCKETS 32768

struct kept {
    struct sh_chunk_link about;
    struct sh_outcome outcome;
    bool is_void; /* it is as if it were not there */
    uint64_t kept_ns;
    struct kept *bucket_next;
    struct kept *newer;
};

struct sh_outcomes {
    uint32_t count;
    struct kept *oldest, *newest;
    struct kept *buckets[BUCKETS];
    struct sh_chunk_index by_chunk;
};

_Static_assert(offsetof(struct kept, about) == 0, "a link is taken for its outcome");

void sh_outcome_put(struct sh_writer *w, const struct sh_outcome *outcome)
{
    sh_put64(w, outcome->client);
    sh_put64(w, outcome->number);
    sh_put16(w, outcome->nid.v);
    sh_put16(w, (uint16_t)outcome->err);
    sh_put64(w, outcome->value);
    sh_put64(w, outcome->cid);
}

bool sh_outcome_get(struct sh_reader *r, struct sh_outcome *outcome_out)
{
    struct sh_outcome outcome = {.client = sh_get64(r)};
    outcome.number = sh_get64(r);
    outcome.nid.v = sh_get16(r);
    uint16_t err = sh_get16(r);
    outcome.value = sh_get64(r);
    outcome.cid = sh_get64(r);
    if (!sh_err_is_known(err))
        return false;
    outcome.err = (enum shoal_err)err;
    *outcome_out = outcome;
    return true;
}

enum shoal_err sh_outcomes_create(struct sh_outcomes **outcomes_out)
{
    struct sh_outcomes *outcomes = calloc(1, sizeof *outcomes);
    if (!outcomes)
        return SHOAL_ENOMEM;
    *outcomes_out = outcomes;
    return SHOAL_OK;
}

static struct kept **bucket_of(struct sh_outcomes *outcomes, uint64_t client, shoal_nid nid,
                               uint64_t number)
{
    return &outcomes->buckets[sh_mix64(client ^ sh_mix64(number << 16 | nid.v)) % BUCKETS];
}

static void oldest_forget(struct sh_outcomes *outcomes)
{
    struct kept *kept = outcomes->oldest;
    const struct sh_outcome *outcome = &kept->outcome;
    struct kept **at = bucket_of(outcomes, outcome->client, outcome->nid, outcome->number);
    while (*at != kept)
        at = &(*at)->bucket_next;
    *at = kept->bucket_next;
    outcomes->oldest = kept->newer;
    if (!outcomes->oldest)
        outcomes->newest = NULL;
    outcomes->count--;
    sh_chunk_unlink(&kept->about);
    free(kept);
}

void sh_outcomes_destroy(struct sh_outcomes *outcomes)
{
    while (outcomes && outcomes->oldest)
        oldest_forget(outcomes);
    free(outcomes);
}

uint32_t sh_outcomes_room(struct sh_outcomes *outcomes, uint64_t now_ns)
{
    while (outcomes->oldest && now_ns - outcomes->oldest->kept_ns >= SH_ONCE_KEEP_NS)
        oldest_forget(outcomes);
    return SH_OUTCOMES_MAX - outcomes->count;
}

static struct kept *find(const struct sh_outcomes *outcomes, uint64_t client, shoal_nid nid,
                         uint64_t number)
{
    struct kept *kept = *bucket_of((struct sh_outcomes *)(uintptr_t)outcomes, client, nid, number);
    while (kept && (kept->outcome.client != client || kept->outcome.nid.v != nid.v ||
                    kept->outcome.number != number))
        kept = kept->bucket_next;
    return kept;
}

const struct sh_outcome *sh_outcomes_find(const struct sh_outcomes *outcomes, uint64_t client,
                                          shoal_nid nid, uint64_t number)
{
    const struct kept *kept = find(outcomes, client, nid, number);
    return kept && !kept->is_void ? &kept->outcome : NULL;
}

void sh_outcomes_void(struct sh_outcomes *outcomes, const struct sh_outcome *outcome)
{
    struct kept *kept = find(outcomes, outcome->client, outcome->nid, outcome->number);
    if (kept)
        kept->is_void |= kept->outcome.is_with_chunk;
}

enum shoal_err sh_outcomes_add(struct sh_outcomes *outcomes, const struct sh_outcome *outcome,
                               uint64_t now_ns)
{
    struct kept *kept = find(outcomes, outcome->client, outcome->nid, outcome->number);
    if (kept && kept->is_void) {
        sh_chunk_unlink(&kept->about);
        kept->outcome = *outcome;
        kept->is_void = false;
        sh_chunk_link(&outcomes->by_chunk, &kept->about, outcome->cid);
    }
    if (kept) {
        kept->outcome.is_with_chunk &= outcome->is_with_chunk;
        return SHOAL_OK;
    }
    if (sh_outcomes_room(outcomes, now_ns) == 0)
        return SHOAL_ELIMIT;
    kept = malloc(sizeof *kept);
    if (!kept)
        return SHOAL_ENOMEM;
    struct kept **bucket = bucket_of(outcomes, outcome->client, outcome->nid, outcome->number);
    *kept = (struct kept){.outcome = *outcome, .kept_ns = now_ns, .bucket_next = *bucket};
    *bucket = kept;
    *(outcomes->newest ? &outcomes->newest->newer : &outcomes->oldest) = kept;
    outcomes->newest = kept;
    sh_chunk_link(&outcomes->by_chunk, &kept->about, outcome->cid);
    outcomes->count++;
    return SHOAL_OK;
}

struct each {
    void (*each)(void *arg, const struct sh_outcome *outcome);
    void *arg;
};

static void tell(void *arg, const struct sh_chunk_link *link)
{
    const struct each *to = arg;
    const struct kept *kept = (const struct kept *)link;
    if (!kept->is_void)
        to->each(to->arg, &kept->outcome);
}

void sh_outcomes_each(const struct sh_outcomes *outcomes, uint64_t first, uint64_t last,
                      void (*each)(void *arg, const struct sh_outcome *outcome), void *arg)
{
    struct each to = {each, arg};
    sh_chunk_index_each(&outcomes->by_chunk, first, last, tell, &to);
}
