/* Is a recorded history of one register linearizable? Wing and Gong's search ("Testing and
 * Verifying Concurrent Objects", 1993) with the memory of visited states of Lowe ("Testing for
 * linearizability", 2017). Registers are independent: a history of many is checked key by key.
 * The caller's threads record; the check itself belongs to one thread. */
#ifndef SIM_LINEAR_H
#define SIM_LINEAR_H

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

enum linear_kind {
    LINEAR_GET,
    LINEAR_CREATE,
    LINEAR_PUT,
    LINEAR_REMOVE,
    LINEAR_CAS,
    LINEAR_ADD,
    LINEAR_RESIZE,
    /* Of names: a value is given whether one is there or not; removed whichever it is, or if it is
     * `expected`. They say in `got` what was there before, 0 for nothing. */
    LINEAR_SET,
    LINEAR_TAKE,
    LINEAR_TAKE_IF
};
enum linear_result { LINEAR_OK, LINEAR_ABSENT, LINEAR_EXISTS, LINEAR_DIFFERS, LINEAR_SIZE };
enum linear_verdict { LINEAR_YES, LINEAR_NO, LINEAR_TOO_LARGE };

/* begin < end on one clock shared by all threads. got: what a get read, the sum after an add, or of
 * the last three kinds what was there before.
 *
 * A register has a size and holds its value over and over, but for zeros at its end where it has
 * grown: `filled` bytes of it are the value's. A value of 0 fills nothing. Creating and putting
 * (of which size must be the register's) fill it, resizing to `size` cuts it or adds zeros. Whoever
 * has registers of one size leaves all sizes 0. */
struct linear_op {
    uint64_t key, begin, end, expected, arg, got;
    uint32_t size;                 /* given */
    uint32_t got_size, got_filled; /* of a get */
    enum linear_kind kind;
    enum linear_result result;
};

struct linear_state {
    uint64_t done[LINEAR_WORDS];
    uint64_t value;
    uint64_t present;
    uint32_t size, filled;
};

/* What a call that could be done does to s. */
static inline void linear_change(struct linear_state *s, const struct linear_op *op)
{
    switch (op->kind) {
    case LINEAR_GET:
        break;
    case LINEAR_REMOVE:
    case LINEAR_TAKE:
    case LINEAR_TAKE_IF:
        s->present = s->value = s->size = s->filled = 0;
        break;
    case LINEAR_ADD:
        s->value += op->arg;
        break;
    case LINEAR_RESIZE:
        s->size = op->size;
        s->filled = s->filled < s->size ? s->filled : s->size;
        break;
    default:
        s->present = 1;
        s->value = op->arg;
        s->size = op->size;
        s->filled = op->arg ? op->size : 0;
        break;
    }
}

/* Whether `got` says something. */
static inline bool linear_reads(enum linear_kind kind)
{
    return kind == LINEAR_GET || kind == LINEAR_ADD || kind >= LINEAR_SET;
}

static inline enum linear_result linear_outcome(const struct linear_state *s,
                                                const struct linear_op *op)
{
    bool puts = op->kind == LINEAR_PUT || op->kind == LINEAR_CAS;
    if (op->kind == LINEAR_CREATE)
        return s->present ? LINEAR_EXISTS : LINEAR_OK;
    if (op->kind == LINEAR_SET)
        return LINEAR_OK;
    if (!s->present)
        return LINEAR_ABSENT;
    if (puts && s->size != op->size)
        return LINEAR_SIZE;
    bool is_expected = s->value == op->expected && s->filled == (op->expected ? op->size : 0);
    bool expects = op->kind == LINEAR_CAS || op->kind == LINEAR_TAKE_IF;
    return expects && !is_expected ? LINEAR_DIFFERS : LINEAR_OK;
}

/* Applies op to s if its recorded answer is the one that s gives; a pending one fits always. */
static inline bool linear_apply(struct linear_state *s, const struct linear_op *op)
{
    enum linear_result r = linear_outcome(s, op);
    if (op->end != LINEAR_PENDING) {
        uint64_t got = op->kind == LINEAR_ADD ? s->value + op->arg : s->value;
        bool reads = linear_reads(op->kind);
        if (r != op->result || (reads && r == LINEAR_OK && got != op->got))
            return false;
        if (op->kind == LINEAR_GET && r == LINEAR_OK &&
            (s->size != op->got_size || s->filled != op->got_filled))
            return false;
    }
    if (r == LINEAR_OK)
        linear_change(s, op);
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
    uint64_t h = s->value * UINT64_C(0x9e3779b97f4a7c15) + s->present +
                 ((uint64_t)s->size << 40 ^ (uint64_t)s->filled << 20);
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

/* Takes out of a history of one key that is not linearizable what it does not need for that: calls
 * that changed nothing (an order that explains all of a history explains it without them too).
 * Sorts the rest by beginning, and returns how many these are. */
static inline unsigned linear_shrink(struct linear_op *ops, unsigned n)
{
    for (unsigned i = n; i-- > 0;) {
        struct linear_op op = ops[i];
        bool changes =
            op.end == LINEAR_PENDING || (op.kind != LINEAR_GET && op.result == LINEAR_OK);
        if (changes)
            continue;
        memmove(&ops[i], &ops[i + 1], (n - i - 1) * sizeof *ops);
        if (linear_check(ops, n - 1, op.key) == LINEAR_NO) {
            n--;
            continue;
        }
        memmove(&ops[i + 1], &ops[i], (n - i - 1) * sizeof *ops);
        ops[i] = op;
    }
    for (unsigned i = 1; i < n; i++) {
        struct linear_op op = ops[i];
        unsigned at = i;
        for (; at > 0 && ops[at - 1].begin > op.begin; at--)
            ops[at] = ops[at - 1];
        ops[at] = op;
    }
    return n;
}

static inline const char *linear_kind_name(enum linear_kind kind)
{
    static const char *const kinds[] = {"get", "create", "put", "remove", "cas",
                                        "add", "resize", "set", "take",   "take-if"};
    return kinds[kind];
}

/* One line per call, for a person. */
static inline void linear_print(FILE *to, const struct linear_op *ops, unsigned n)
{
    static const char *const results[] = {"ok", "absent", "exists", "differs", "size"};
    for (unsigned i = 0; i < n; i++) {
        const struct linear_op *o = &ops[i];
        bool puts = o->kind == LINEAR_CREATE || o->kind == LINEAR_PUT || o->kind == LINEAR_CAS ||
                    o->kind == LINEAR_SET;
        fprintf(to, "  %6" PRIu64 " ", o->begin);
        if (o->end == LINEAR_PENDING)
            fprintf(to, "          %s", linear_kind_name(o->kind));
        else
            fprintf(to, "to %6" PRIu64 " %s", o->end, linear_kind_name(o->kind));
        if (o->kind == LINEAR_CAS || o->kind == LINEAR_TAKE_IF)
            fprintf(to, " from %" PRIu64, o->expected);
        if (puts || o->kind == LINEAR_ADD)
            fprintf(to, " %" PRIu64, o->arg);
        if (o->size > 0)
            fprintf(to, " (%" PRIu32 " bytes)", o->size);
        if (o->end == LINEAR_PENDING) {
            fprintf(to, ": pending\n");
            continue;
        }
        fprintf(to, ": %s", results[o->result]);
        if (o->result == LINEAR_OK && linear_reads(o->kind))
            fprintf(to, ", %" PRIu64, o->got);
        if (o->got_size > 0)
            fprintf(to, " (%" PRIu32 " of %" PRIu32 " bytes)", o->got_filled, o->got_size);
        fputc('\n', to);
    }
}

#endif
