/* What the servers of raft_rig_int.h have on their disks for sure, and what must follow from that. The
 * checker looks at disks, not at what servers say of them:
 *
 *   a leader commits an entry of its own term, which a majority of the voters that are not recovering
 *                    has stored, itself included only if it has
 *                    (one that lost its folder may have said before that it has: it votes no more
 *                    until it has caught up, so no majority without the entry is there meanwhile)
 *   a server leads   in a term that a majority of the voters has stored
 *   a follower       knows nothing as committed that no leader has committed */
#ifndef TESTS_RAFT_DURABLE_INT_H
#define TESTS_RAFT_DURABLE_INT_H

#include "base/assert.h"
#include "raft/raft.h"
#include "tests/disk_notes_int.h"

/* What a server would have after a crash. */
struct durable_state {
    struct disk_note note;
    uint64_t term;
    bool is_recovering;
    uint64_t through, last; /* entries up to through are in a snapshot, and committed */
    uint64_t terms[];       /* of the entries behind that */
};

/* Of one server: its disk; what its folder had that was lost last; and in which term it led last, and
 * how far it had committed then. */
struct durable {
    struct disk_notes disk;
    struct disk_note *lost;
    uint64_t led_term, committed;
};

static inline struct disk_note *durable_state_make(const struct sh_raft *raft)
{
    uint64_t term, last = sh_raft_last(raft), through = last;
    struct sh_bytes bytes;
    while (through && sh_raft_entry(raft, through, &term, &bytes))
        through--;
    struct durable_state *state = malloc(sizeof *state + (last - through) * sizeof term);
    SH_ASSERT(state);
    *state = (struct durable_state){.term = sh_raft_term(raft),
                                    .is_recovering = sh_raft_is_recovering(raft),
                                    .through = through,
                                    .last = last};
    for (uint64_t at = through + 1; at <= last; at++)
        (void)sh_raft_entry(raft, at, &state->terms[at - through - 1], &bytes);
    return &state->note;
}

static inline bool durable_holds(const struct durable_state *state, uint64_t index, uint64_t term)
{
    return index <= state->through ||
           (index <= state->last && state->terms[index - state->through - 1] == term);
}

/* The server's folder is emptied. */
static inline void durable_lose(struct durable *durable)
{
    free(durable->lost);
    durable->lost = durable->disk.now;
    durable->disk.now = NULL;
    disk_notes_clear(&durable->disk);
}

static inline void durable_clear(struct durable *durable)
{
    durable_lose(durable);
    free(durable->lost);
    durable->lost = NULL;
}

/* Whether a server has that entry, or had it when it last could say so; index 0: that term. */
static inline bool durable_has(const struct durable *durable, uint64_t index, uint64_t term)
{
    const struct durable_state *state = (const struct durable_state *)durable->disk.now;
    bool is_behind = !state || state->is_recovering;
    if (is_behind && !index && state && state->term >= term)
        return true;
    if (is_behind)
        state = (const struct durable_state *)durable->lost;
    return state && (index ? durable_holds(state, index, term) : state->term >= term);
}

/* Whether a majority of the voters has that entry; index 0: that term. */
static inline bool durable_majority(const struct durable *const *durables, unsigned count,
                                    uint64_t voters, uint64_t index, uint64_t term)
{
    unsigned have = 0;
    for (unsigned i = 0; i < count; i++)
        have += (voters >> (i + 1) & 1) && durable_has(durables[i], index, term);
    return 2 * have > (unsigned)__builtin_popcountll(voters);
}

/* What is wrong with a server that leads; NULL: nothing. durables are all servers', by number less one. */
static inline const char *durable_check_leader(struct durable *own, const struct sh_raft *raft,
                                               const struct durable *const *durables,
                                               unsigned count)
{
    uint64_t term = sh_raft_term(raft), commit = sh_raft_commit(raft), of = 0;
    uint64_t voters = sh_raft_members(raft).voters;
    struct sh_bytes bytes;
    if (own->led_term != term) {
        own->led_term = term;
        own->committed = commit;
        if (!durable_majority(durables, count, voters, 0, term))
            return "a server leads in a term that no majority has stored";
    }
    if (commit <= own->committed || !sh_raft_entry(raft, commit, &of, &bytes))
        return NULL;
    own->committed = commit;
    if (of != term)
        return "a leader committed by an entry of an older term";
    return durable_majority(durables, count, voters, commit, term)
               ? NULL
               : "a leader committed what no majority has stored";
}

#endif
