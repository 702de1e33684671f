/* A server's journal on a disk in memory, for the tests of raft alone. */
#ifndef SH_RAFT_RAFT_JOURNAL_TEST_H
#define SH_RAFT_RAFT_JOURNAL_TEST_H

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "env/env.h"
#include "journal/journal.h"
#include "raft/raft.h"

struct memory_journal {
    struct sh_disk *disk;
    struct sh_journal *journal;
    uint64_t now_ns;
    uint64_t draws;
    uint64_t segment_bytes; /* 0: 65536 */
};

static inline uint64_t memory_now_ns(void *arg)
{
    return ((struct memory_journal *)arg)->now_ns;
}

static inline void memory_fill(void *arg, void *bytes, size_t size)
{
    struct memory_journal *memory = arg;
    for (size_t i = 0; i < size; i++)
        ((uint8_t *)bytes)[i] = (uint8_t)sh_mix64(++memory->draws);
}

/* Opens the journal on the disk, which may hold one, and gives raft what it holds. */
static inline enum shoal_err memory_journal_load(struct memory_journal *memory,
                                                 struct sh_raft *raft)
{
    struct sh_journal_stream stream = sh_raft_stream(raft);
    struct sh_journal_config config = {.env = {.clock = {memory_now_ns, memory_now_ns, memory},
                                               .random = {memory_fill, memory},
                                               .disk = memory->disk},
                                       .label = sh_bytes_text("test"),
                                       .segment_bytes =
                                           memory->segment_bytes ? memory->segment_bytes : 65536,
                                       .bytes_kept = 4 * 65536,
                                       .streams = &stream,
                                       .streams_count = 1};
    return sh_journal_open(&config, &memory->journal);
}

static inline void memory_journal_open(struct memory_journal *memory, struct sh_raft *raft)
{
    enum shoal_err err = sh_memory_disk_create(&memory->disk);
    SH_ASSERT(!err);
    err = memory_journal_load(memory, raft);
    SH_ASSERT(!err);
}

/* Stores all that raft has said so far; false: that was stored before. */
static inline bool memory_journal_sync(struct memory_journal *memory, struct sh_raft *raft,
                                       uint64_t now_ns)
{
    if (sh_journal_synced(memory->journal) == sh_journal_last(memory->journal))
        return false;
    memory->now_ns = now_ns;
    while (sh_journal_synced(memory->journal) != sh_journal_last(memory->journal))
        (void)sh_journal_step(memory->journal, now_ns);
    sh_raft_synced(raft, now_ns);
    return true;
}

/* Before raft is destroyed; what is on the disk stays there. */
static inline void memory_journal_close(struct memory_journal *memory)
{
    sh_journal_close(memory->journal);
    memory->journal = NULL;
}

#endif
