/* What the tests of replicated state machines share (raft_rig_int.h, ring_rig_int.h): a register
 * as the replicated state, of which all copies must go through the same states; and the lines
 * between its servers, which lose, double, delay and are cut. */
#ifndef TESTS_COPIES_INT_H
#define TESTS_COPIES_INT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "sim/linear.h"
#include "sim/prng.h"

/* --- The register ---------------------------------------------------------------------------- */

#define COMMAND_BYTES 17
#define STATE_BYTES 32

/* A register and the history that made it. */
struct state {
    uint64_t value, present, applied;
    uint64_t hash; /* of all commands up to applied */
};

static inline void command_put(uint8_t command[COMMAND_BYTES], const struct linear_op *op)
{
    command[0] = (uint8_t)op->kind;
    sh_store64(command + 1, op->expected);
    sh_store64(command + 9, op->arg);
}

/* Changes value and present; what came of it, and the value that the command brought. */
static inline enum linear_result command_apply(struct state *state, struct sh_bytes command,
                                               uint64_t *value_out)
{
    struct sh_reader r = sh_reader_make(command);
    unsigned kind = sh_get8(&r);
    uint64_t expected = sh_get64(&r);
    *value_out = sh_get64(&r);
    enum linear_result result = LINEAR_OK;
    if (kind == LINEAR_CREATE)
        result = state->present ? LINEAR_EXISTS : LINEAR_OK;
    else if (!state->present)
        result = LINEAR_ABSENT;
    else if (kind == LINEAR_CAS && state->value != expected)
        result = LINEAR_DIFFERS;
    if (result == LINEAR_OK) {
        state->value = *value_out;
        state->present = 1;
    }
    return result;
}

static inline void state_put(struct sh_writer *w, const struct state *state)
{
    sh_put64(w, state->value);
    sh_put64(w, state->present);
    sh_put64(w, state->applied);
    sh_put64(w, state->hash);
}

static inline struct state state_get(struct sh_reader *r)
{
    struct state state = {.value = sh_get64(r)};
    state.present = sh_get64(r);
    state.applied = sh_get64(r);
    state.hash = sh_get64(r);
    return state;
}

/* The state that was seen first at a place of the history. */
struct chosen {
    struct state state;
    bool is_known;
};

/* All who get to a place must get there with the same state. */
static inline bool chosen_holds(struct chosen *chosen, const struct state *state)
{
    if (!chosen->is_known)
        *chosen = (struct chosen){.state = *state, .is_known = true};
    return memcmp(&chosen->state, state, sizeof *state) == 0;
}

/* --- The lines ------------------------------------------------------------------------------- */

#define LINES_MAX 8 /* servers */

struct lines {
    bool blocked[LINES_MAX][LINES_MAX]; /* from, to */
    uint32_t drop_ppm, twice_ppm;
    uint64_t delay_ns_max;
};

/* How many copies of a message arrive: two draws, whatever comes of them. */
static inline unsigned lines_copies(const struct lines *lines, struct sh_prng *prng)
{
    bool is_dropped = sh_prng_chance(prng, lines->drop_ppm);
    bool is_doubled = sh_prng_chance(prng, lines->twice_ppm);
    return !is_dropped + is_doubled;
}

static inline void lines_cut(struct lines *lines, struct sh_prng *prng, unsigned count)
{
    bool one_way = sh_prng_below(prng, 3) == 0;
    uint64_t side = sh_prng_next(prng);
    for (unsigned i = 0; i < count; i++) {
        for (unsigned j = 0; j < count; j++) {
            bool i_in = side >> i & 1, j_in = side >> j & 1;
            lines->blocked[i][j] = one_way ? i_in && !j_in : i_in != j_in;
        }
    }
}

static inline void lines_heal(struct lines *lines)
{
    memset(lines->blocked, 0, sizeof lines->blocked);
}

#endif
