/* A stream of a journal in which only a count is kept: how often its disk was started. */
#ifndef TESTS_STARTS_INT_H
#define TESTS_STARTS_INT_H

#include "journal/journal.h"

static inline enum shoal_err starts_load(void *arg, struct sh_bytes state)
{
    uint32_t *starts = arg;
    *starts = state.size == 4 ? sh_load32(state.at) : 0;
    return SHOAL_OK;
}

static inline bool starts_snapshot(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    *index_out = *term_out = 0;
    return true;
}

static inline void starts_entries(void *arg)
{
    (void)arg;
}

static inline size_t starts_snapshot_next(void *arg, uint8_t *into, size_t room)
{
    (void)arg;
    (void)into;
    (void)room;
    return 0;
}

static inline void starts_snapshot_end(void *arg, bool is_done)
{
    (void)arg;
    (void)is_done;
}

static inline enum shoal_err starts_load_begin(void *arg, uint64_t index, uint64_t term,
                                               bool is_first)
{
    (void)arg;
    (void)is_first;
    return index || term ? SHOAL_ECORRUPT : SHOAL_OK;
}

static inline enum shoal_err starts_load_end(void *arg, bool is_reset)
{
    (void)arg;
    return is_reset ? SHOAL_ECORRUPT : SHOAL_OK;
}

static inline struct sh_journal_stream starts_stream(uint32_t *starts)
{
    return (struct sh_journal_stream){.load_state = starts_load,
                                      .load_snapshot_begin = starts_load_begin,
                                      .load_snapshot_end = starts_load_end,
                                      .snapshot_begin = starts_snapshot,
                                      .snapshot_entries = starts_entries,
                                      .snapshot_next = starts_snapshot_next,
                                      .snapshot_end = starts_snapshot_end,
                                      .arg = starts};
}

#endif
