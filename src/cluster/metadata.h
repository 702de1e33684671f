/* What a sector of the ring keeps (arcs.h): a state machine of updates, without input or output,
 * the same at all who hold the sector. overlay.h orders the updates.
 *
 *   moved chunks   ranges of chunk IDs that are not all with their creators, and of each source of
 *                  migrations the last batch that was decided about
 *   names          1 to 255 bytes to a chunk ID
 *
 * What an update depends on must be in it or in the state: whether a node is up, the owner looks at
 * before it orders one.
 *
 * Migrations go in batches, each with a source, a target and a sequence number that rises by
 * source. A batch is committed or aborted, once; whoever asks again is told the same. The last one
 * of each source is remembered, since a source has one batch under way at a time.
 *
 * Memory: 8 to 16 bytes for each run of IDs that is elsewhere, 16 for each source, 24 and its bytes
 * for each name; at most SH_METADATA_RANGES_MAX and SH_METADATA_NAMES_MAX in a sector, which is
 * 2^22 of each in all.
 *
 * Threads: one at a time. */
#ifndef SH_CLUSTER_METADATA_H
#define SH_CLUSTER_METADATA_H

#include "base/bytes.h"
#include "ranges/ranges.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_METADATA_RANGES_MAX (1u << 16) /* of a sector */
#define SH_METADATA_NAMES_MAX (1u << 16)  /* of a sector */
#define SH_METADATA_RUNS_MAX 256          /* of a batch */
#define SH_NAME_BYTES_MAX 255
/* Of one update. */
#define SH_METADATA_BYTES_MAX (15 + 16 * SH_METADATA_RUNS_MAX)

struct sh_metadata;

enum sh_metadata_kind {
    SH_METADATA_MOVE = 1, /* a batch is committed */
    SH_METADATA_RESOLVE,  /* what became of a batch; one that was not committed yet is aborted */
    SH_METADATA_FORGET,   /* all that a node holds is gone, and it is no source any more */
    SH_METADATA_NAME,     /* a name is given, or given another chunk */
    SH_METADATA_UNNAME,   /* a name is removed */
};

enum sh_name_condition {
    SH_NAME_ANY,     /* whether it is there or not; UNNAME: whichever chunk's it is */
    SH_NAME_ABSENT,  /* NAME only: EEXIST if it is there */
    SH_NAME_CURRENT, /* ENONAME if it is not there, EEXIST if it is not `expected`'s */
};

/* Chunk IDs first to last, both included. */
struct sh_metadata_run {
    shoal_cid first, last;
};

struct sh_metadata_update {
    uint8_t kind, condition;
    shoal_nid from, to;   /* MOVE, RESOLVE; FORGET: from */
    uint64_t sequence;    /* MOVE, RESOLVE: not 0 */
    shoal_cid cid;        /* NAME */
    shoal_cid expected;   /* with SH_NAME_CURRENT */
    struct sh_bytes name; /* NAME, UNNAME: 1 to SH_NAME_BYTES_MAX */
    /* MOVE: in rising order, all of one creator, 1 to SH_METADATA_RUNS_MAX; RESOLVE: the batch's
     * first. */
    size_t count;
    struct sh_metadata_run runs[SH_METADATA_RUNS_MAX];
};

/* What came of an update.
 * MOVE: ECANCELED, it was aborted, or is older than the source's last one; ENOTOWNER, the source
 * does not own all of it; ELIMIT, too many ranges (the last two abort it).
 * NAME, UNNAME: as the condition says; ELIMIT, too many names. */
struct sh_metadata_result {
    enum shoal_err err;
    bool is_committed; /* RESOLVE */
    shoal_cid cid;     /* NAME, UNNAME: whose the name was before; also with EEXIST; 0: nobody's */
};

/* ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_metadata_create(struct sh_metadata **metadata_out);
void sh_metadata_destroy(struct sh_metadata *metadata);

/* An update as bytes, at most SH_METADATA_BYTES_MAX; its size is written to *size_out. The update
 * is a good one. */
void sh_metadata_update_put(struct sh_writer *w, const struct sh_metadata_update *update);
/* Reads one. EPROTO: not what put wrote, or not of that sector. */
SHOAL_NODISCARD enum shoal_err sh_metadata_update_get(struct sh_bytes bytes, unsigned sector,
                                                      struct sh_metadata_update *update_out);
/* The sector of an update. */
unsigned sh_metadata_sector(const struct sh_metadata_update *update);

/* Carries an update out in its sector. Asserts that memory suffices: a holder that goes on without
 * what the others have would differ from them for ever. */
struct sh_metadata_result sh_metadata_apply(struct sh_metadata *metadata, unsigned sector,
                                            const struct sh_metadata_update *update);

/* The range that holds a chunk ID, and its owner: the creator, unless it was moved. */
struct sh_range sh_metadata_find(const struct sh_metadata *metadata, shoal_cid cid);
/* ENONAME. */
SHOAL_NODISCARD enum shoal_err sh_metadata_lookup(const struct sh_metadata *metadata,
                                                  struct sh_bytes name, shoal_cid *cid_out);
/* The first name of a sector that is greater than `after` (NULL at: from the beginning) and begins
 * with prefix; borrowed until the next change. False: there is none. By bytes, ascending. */
bool sh_metadata_name_next(const struct sh_metadata *metadata, unsigned sector,
                           struct sh_bytes prefix, struct sh_bytes after, struct sh_bytes *name_out,
                           shoal_cid *cid_out);

/* What a sector takes: how many of each, and bytes of memory. */
struct sh_metadata_sizes {
    size_t ranges, sources, names, bytes;
};
struct sh_metadata_sizes sh_metadata_measure(const struct sh_metadata *metadata, unsigned sector);

/* A sector as bytes, little-endian:
 *   u32 ranges, each u64 first, u64 last, u16 owner; u32 sources, each u16 node, u64 decision;
 *   u32 names, each u64 chunk ID, text name
 * Get replaces it. EPROTO, ENOMEM, ELIMIT change nothing. */
size_t sh_metadata_image_size(const struct sh_metadata *metadata, unsigned sector);
void sh_metadata_image_put(const struct sh_metadata *metadata, unsigned sector,
                           struct sh_writer *w);
SHOAL_NODISCARD enum shoal_err sh_metadata_image_get(struct sh_metadata *metadata, unsigned sector,
                                                     struct sh_bytes image);
void sh_metadata_clear(struct sh_metadata *metadata, unsigned sector);

#endif
