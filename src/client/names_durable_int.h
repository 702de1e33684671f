/* Names of a store in this process that are found again: each change goes to a journal (journal.h) in
 * the store's folder, and into the state once it is synced.
 *
 *   begin (any thread) --> queue --step--> journal, pending --synced--> state --> done
 *
 * So nobody sees a name that a crash would undo; conditions are decided in the order of the journal,
 * by the state that all changes before have made, and a journal that is read again makes the same
 * state. Each of the 64 shards is a stream: an entry is an update (metadata.h), a snapshot the
 * shard's (metadata/snapshot.h). Many changes share a sync, as the journal commits in groups.
 *
 * A disk that takes nothing: for SH_NAMES_PATIENCE_NS changes wait, as the journal may go on in another
 * file. Then all that wait end with the disk's error, and others do at once, until the disk takes
 * something again. A change that is in the journal by then may still be synced: then it is carried out,
 * though its caller was told of the error (is_unclear).
 *
 * Threads: begin from any; the rest from the step, or while it does not run. */
#ifndef SH_CLIENT_NAMES_DURABLE_INT_H
#define SH_CLIENT_NAMES_DURABLE_INT_H

#include <pthread.h>

#include "base/crew.h"
#include "base/lock.h"
#include "env/env.h"
#include "journal/journal.h"
#include "metadata/metadata.h"
#include "ring/arcs.h"

/* Of the journal. */
#define SH_NAMES_LABEL "store in a process"
/* Two more tries of the journal. */
#define SH_NAMES_PATIENCE_NS UINT64_C(2500000000)
/* In the journal and not in the state; others stay in the queue, which has no bound of its own: a
 * change in it is a thread that waits, or one of the asynchronous calls that a store may have. */
#define SH_NAMES_PENDING_MAX 1024u
_Static_assert(SH_NAMES_PENDING_MAX <= SH_METADATA_AHEAD_MAX, "each has its memory reserved");

/* A state machine in this process, under a lock; a thread that waits for something sleeps until the
 * state has changed. */
struct sh_local_state {
    struct sh_lock lock; /* guards the metadata */
    pthread_cond_t changed;
    struct sh_metadata *metadata;
};

struct sh_name_change {
    /* NAME or UNNAME; kept until done. NULL: changes nothing, and is done after all before it. */
    const struct sh_metadata_update *update;
    /* Called once, by the step, without a lock. The change is the callee's again. */
    void (*done)(struct sh_name_change *change);
    void *arg;
    struct sh_metadata_result result; /* also the disk's error; ENOMEM */
    bool is_unclear;                  /* with the disk's error: it may come to be later */
    struct sh_name_change *next;
};

struct sh_names_config {
    struct sh_env env;            /* kept: clock, random, and the disk of the store's folder */
    struct sh_local_state *state; /* kept; empty: gets the names that are found */
    uint64_t segment_bytes;       /* of the journal; 0: its own */
    uint64_t bytes_kept;
    void (*wake)(void *arg); /* has the step run; any thread */
    void *arg;
};

struct sh_names;

/* Whether the journal in the folder, if there is one, is of a store in a process. ECLUSTER: it is not;
 * ECORRUPT, EVERSION, EIO, ENOMEM. Waits for the disk. */
SHOAL_NODISCARD enum shoal_err sh_names_check(const struct sh_env *env);
/* Reads the names that are there. Waits for the disk. Errors as of sh_journal_open. */
SHOAL_NODISCARD enum shoal_err sh_names_open(const struct sh_names_config *config,
                                             struct sh_names **names_out);
/* No change may be waited for. What was not synced may be lost. Waits for the disk. NULL is allowed. */
void sh_names_close(struct sh_names *names);

void sh_names_begin(struct sh_names *names, struct sh_name_change *change);
unsigned sh_names_step(struct sh_names *names);
uint64_t sh_names_due_ns(const struct sh_names *names);
struct sh_journal_counts sh_names_counts(const struct sh_names *names);

/* --- Between names_durable.c and names_stream.c ------------------------------------------------ */

/* A shard, and its stream of the journal. */
struct sh_names_shard {
    struct sh_names *names;
    uint64_t applied; /* index of the last entry that is in the state */
    uint64_t last;    /* of the last one that was appended */
    /* While the journal is read: entries that are not in the state, and a snapshot. */
    struct sh_entries entries;
    struct sh_metadata_restore *loading;
    uint64_t loading_index;
    struct sh_metadata_snapshot *saving; /* NULL: none is being written */
};

/* A change that is in the journal and not in the state. */
struct sh_names_pending {
    struct sh_name_change *change; /* NULL: nobody waits for it any more */
    sh_lsn lsn;
    uint64_t index; /* in its shard's stream */
    uint16_t size;  /* 0: it changes nothing */
    uint8_t shard;
    uint8_t bytes[45 + SH_NAME_BYTES_MAX]; /* the update */
};

struct sh_names {
    struct sh_names_config config;
    struct sh_journal *journal;
    struct sh_spin queue_lock; /* guards the queue */
    struct sh_name_change *first, **end;
    struct sh_names_pending *pending; /* a ring of SH_NAMES_PENDING_MAX */
    unsigned pending_first, pending_count;
    uint64_t trouble_ns; /* since when the disk takes nothing; 0: it does */
    bool is_stuck;       /* for longer than SH_NAMES_PATIENCE_NS */
    bool is_garbage;     /* the metadata may have memory to free */
    struct sh_names_shard shards[SH_SHARDS];
};

static inline struct sh_names_pending *sh_names_pending_at(const struct sh_names *names, unsigned i)
{
    return &names->pending[(names->pending_first + i) % SH_NAMES_PENDING_MAX];
}

/* names_stream.c */
struct sh_journal_stream sh_names_stream(struct sh_names *names, unsigned shard);
/* The journal has been read: applies the entries behind the snapshots. ECORRUPT, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_names_loaded(struct sh_names *names);
/* Gives up what reading has left. */
void sh_names_load_end(struct sh_names *names);

#endif
