/* What writing and reading of snapshots share: the records of snapshot.h. */
#ifndef SH_METADATA_SNAPSHOT_INT_H
#define SH_METADATA_SNAPSHOT_INT_H

#include "metadata/metadata_int.h"
#include "metadata/snapshot.h"

#define SH_SNAPSHOT_VERSION 4
#define SH_SNAPSHOT_HEAD_BYTES 8 /* of a piece */

/* Of the version before, which had no zones: the first and last kind of its records that have other numbers
 * by now, and by how much. Images of it are still read. */
#define SH_SNAPSHOT_FORMER_VERSION 3
#define SH_SNAPSHOT_FORMER_MOVED 4
#define SH_SNAPSHOT_FORMER_HEAD 5
#define SH_SNAPSHOT_FORMER_END 9
#define SH_SNAPSHOT_FORMER_BY 2

/* Beside the kinds of items. */
enum sh_snapshot_record {
    SH_RECORD_HEAD = SH_ITEM_KINDS,
    SH_RECORD_COMPLETION,
    SH_RECORD_BARRIER,
    SH_RECORD_MEMBER,
    SH_RECORD_END,
};

#endif
