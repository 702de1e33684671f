/* Is a recorded history of one register linearizable? Wing and Gong's search ("Testing and
 * Verifying Concurrent Objects", 1993) with the memory of visited states of Lowe ("Testing for
 * linearizability", 2017). Registers are independent: a history of many is checked key by key.
 * The caller's threads record; the check itself belongs to one thread. */
#ifndef TESTS_LINEAR_INT_H
#define TESTS_LINEAR_INT_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINEAR_OPS_MAX 512        /* of one key */
#define LINEAR_PENDING UINT64_MAX /* the end of a call whose answer nobody saw */
#define LINEAR_WORDS (LINEAR_OPS_MAX / 64)
#define LINEAR_SEEN_MAX (1U << 16) /* states remembered; a power of two */

enum linear_kind { LINEAR_GET, LINEAR_CREATE, LINEAR_PUT, LINEAR_REMOVE, LINEAR_CAS, LINEAR_ADD };
enum linear_result { LINEAR_OK, LINEAR_ABSENT, LINEAR_EXISTS, LINEAR_DIFFERS };
enum linear_verdict { LINEAR_YES, LINEAR_NO, LINEAR_TOO_LARGE };

/* begin < end on one clock shared by all threads. got: what a get read, or the sum after an add. */
struct linear_op {
    uint64_t key, begin, end, expected, arg, got;
    enum linear_kind kind;
    enum linear_result result;
};

struct linear_state {
    uint64_t done[LINEAR_WORDS];
    uint64_t value;
    uint64_t present;
};

/* Applies op to s if its recorded answer is the one that s gives; a pending one fits always. */
static inline bool linear_apply(struct linear_state *s, const struct linear_op *op)
{
    enum linear_result r = s->present ? LINEAR_OK : LINEAR_ABSENT;
    if (op->kind == LINEAR_CREATE)
        r = s->present ? LINEAR_EXISTS : LINEAR_OK;
    else if (op->kind == LINEAR_CAS && s->present && s->value != op->expected)
        r = LINEAR_DIFFERS;
    uint64_t sum = s->value + op->arg;
    if (op->end != LINEAR_PENDING) {
        uint64_t got = op->kind == LINEAR_GET ? s->value : sum;
        bool reads = op->kind == LINEAR_GET || op->kind == LINEAR_ADD;
        if (r != op->result || (reads && r == LINEAR_OK && got != op->got))
            return false;
    }
    if (r != LINEAR_OK || op->kind == LINEAR_GET)
        return true;
    s->present = op->kind != LINEAR_REMOVE;
    s->value = op->kind == LINEAR_REMOVE ? 0 : op->kind == LINEAR_ADD ? sum : op->arg;
    return true;
}

static inline bool linear_is_done(const struct linear_state *s, unsigned i)
{
    return (s->done[i / 64] >> (i % 64) & 1) != 0;
}

/* Adds s to the states seen: 1 if it is new, 0 if not, -1 if the table is three quarters full. */
static inline int linear_remember(struct linear_state *seen, bool *used, unsigned *count,
                                  const struct linear_state *s)
{
    uint64_t h = s->value * UINT64_C(0x9e3779b97f4a7c15) + s->present;
    for (unsigned w = 0; w < LINEAR_WORDS; w++)
        h = (h ^ s->done[w] ^ h >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    unsigned at = (unsigned)(h >> 40) % LINEAR_SEEN_MAX;
    for (; used[at]; at = (at + 1) % LINEAR_SEEN_MAX)
        if (memcmp(&seen[at], s, sizeof *s) == 0)
            return 0;
    if (*count >= LINEAR_SEEN_MAX / 4 * 3)
        return -1;
    used[at] = true;
    seen[at] = *s;
    ++*count;
    return 1;
}

/* The search: a stack of states, of which each has its calls that may come next tried once. */
static inline enum linear_verdict linear_search(const struct linear_op *ops, unsigned n,
                                                struct linear_state *seen, bool *used,
                                                struct linear_state *todo)
{
    unsigned count = 0, depth = 0;
    memset(&todo[depth++], 0, sizeof *todo);
    while (depth > 0) {
        struct linear_state s = todo[--depth];
        uint64_t first_end = LINEAR_PENDING;
        for (unsigned i = 0; i < n; i++)
            if (!linear_is_done(&s, i) && ops[i].end < first_end)
                first_end = ops[i].end;
        if (first_end == LINEAR_PENDING)
            return LINEAR_YES; /* what is left may never have happened */
        for (unsigned i = 0; i < n; i++) {
            struct linear_state next = s;
            if (linear_is_done(&s, i) || ops[i].begin > first_end || !linear_apply(&next, &ops[i]))
                continue;
            next.done[i / 64] |= UINT64_C(1) << (i % 64);
            int is_new = linear_remember(seen, used, &count, &next);
            if (is_new < 0)
                return LINEAR_TOO_LARGE;
            if (is_new > 0)
                todo[depth++] = next; /* each state once, hence at most LINEAR_SEEN_MAX */
        }
    }
    return LINEAR_NO;
}

/* Checks key's calls among ops, which start from an absent register. TOO_LARGE is no verdict. */
static inline enum linear_verdict linear_check(const struct linear_op *ops, size_t n, uint64_t key)
{
    struct linear_op own[LINEAR_OPS_MAX];
    unsigned count = 0;
    for (size_t i = 0; i < n; i++) {
        if (ops[i].key != key)
            continue;
        if (count == LINEAR_OPS_MAX)
            return LINEAR_TOO_LARGE;
        own[count++] = ops[i];
    }
    struct linear_state *seen = calloc(LINEAR_SEEN_MAX, sizeof *seen);
    struct linear_state *todo = calloc(LINEAR_SEEN_MAX, sizeof *todo);
    bool *used = calloc(LINEAR_SEEN_MAX, sizeof *used);
    enum linear_verdict v = LINEAR_TOO_LARGE;
    if (seen != NULL && todo != NULL && used != NULL)
        v = linear_search(own, count, seen, used, todo);
    free(used);
    free(todo);
    free(seen);
    return v;
}

/* Writes to part_out, room for LINEAR_OPS_MAX, the shortest beginning of key's history that is not
 * linearizable, and returns its calls; 0 if there is none. Calls still running at its last answer
 * are in it as pending: had the recording stopped there, that is what it would hold. */
static inline unsigned linear_shortest(const struct linear_op *ops, size_t n, uint64_t key,
                                       struct linear_op *part_out)
{
    uint64_t cut = 0;
    for (;;) {
        uint64_t next = LINEAR_PENDING;
        for (size_t i = 0; i < n; i++)
            if (ops[i].key == key && ops[i].end > cut && ops[i].end < next)
                next = ops[i].end;
        if (next == LINEAR_PENDING)
            return 0;
        cut = next;
        unsigned count = 0;
        for (size_t i = 0; i < n; i++) {
            if (ops[i].key != key || ops[i].begin > cut)
                continue;
            if (count == LINEAR_OPS_MAX)
                return 0;
            part_out[count] = ops[i];
            if (ops[i].end > cut)
                part_out[count].end = LINEAR_PENDING;
            count++;
        }
        if (linear_check(part_out, count, key) == LINEAR_NO)
            return count;
    }
}

/* One line per call, for a person. */
static inline void linear_print(FILE *to, const struct linear_op *ops, unsigned n)
{
    static const char *const kinds[] = {"get", "create", "put", "remove", "cas", "add"};
    static const char *const results[] = {"ok", "absent", "exists", "differs"};
    for (unsigned i = 0; i < n; i++) {
        const struct linear_op *o = &ops[i];
        fprintf(to, "%" PRIu64 ": %s expected=%" PRIu64 " arg=%" PRIu64, o->begin, kinds[o->kind],
                o->expected, o->arg);
        if (o->end == LINEAR_PENDING)
            fprintf(to, " -> pending\n");
        else
            fprintf(to, " -> %s got=%" PRIu64 " at %" PRIu64 "\n", results[o->result], o->got,
                    o->end);
    }
}

#endif
