/* What superpeers say of zones whose owners have failed, to whoever asks (SH_ASK_RECOVERIES): for people (`shoal recovery`), never to act on.
 *
 * A page, little-endian: u8 1: there may be more, else 0; u64 the zone ID up to which was looked; u64 epoch of the view by which it says that; until the
 * end of each zone, ascending: u8 state, u8 backups that it waits for (bit i is the i-th of the record), of one that restores how far its owner has come, as below; its
 * record as in metadata/zone.h.
 *
 * How far an owner has come: u8 phase, u64 bytes of the replica that it has read, u64 bytes of the replica, u64 bytes of chunks for which there was no room.
 *
 * Once nobody is asked, waited for or restores in any shard, by a view as new as some other one, nothing becomes of zones before the next view.
 *
 * Threads: plain values. */
#ifndef SH_CLUSTER_RECOVERIES_H
#define SH_CLUSTER_RECOVERIES_H

#include "metadata/zone.h"

#define SH_RECOVERIES_PAGE_BYTES 16384
#define SH_RECOVERIES_HEAD_BYTES 17
#define SH_RESTORE_PROGRESS_BYTES 25
#define SH_RECOVERY_BYTES_MAX (2 + SH_RESTORE_PROGRESS_BYTES + SH_ZONE_BYTES_MAX)

enum sh_recovery_state {
    SH_RECOVERY_ASKS = 1, /* the backups are being asked how far their replicas go */
    SH_RECOVERY_WAITS,    /* for backups that are away, any of which may have the most */
    SH_RECOVERY_RESTORES, /* the record's owner brings the zone back */
    SH_RECOVERY_LOST,     /* for good */
    SH_RECOVERY_OLDER, /* it is back, without its last changes perhaps that were not durable: zone.older */
};

/* What the owner of a zone that restores is at (recover/restorer.h). */
enum sh_restore_phase {
    SH_RESTORE_UNKNOWN, /* it has not said it yet */
    SH_RESTORE_QUEUED, /* its replica is to be read: behind another zone, or once other backups have answered */
    SH_RESTORE_READS,
    SH_RESTORE_ORDER, /* it waits for zones that go first */
    SH_RESTORE_TAKES, /* it has the chunks that are the zone's noted as its own */
    SH_RESTORE_OPENS, /* it brings the other backups up to its end */
    SH_RESTORE_RETRIES, /* it has failed, or there was no room: it begins anew, or another backup does */
    SH_RESTORE_PHASES
};

struct sh_restore_progress {
    enum sh_restore_phase phase;
    uint64_t read;  /* bytes of the replica, at most `bytes`; all, if the phase is behind READS */
    uint64_t bytes; /* of the replica, with what is outdated; 0: not known */
    /* Of chunks, with SH_ZONE_CHUNK_BYTES for each, that found no room when the owner tried last, or, while that has not tried, an owner before; else 0. */
    uint64_t missing;
};

void sh_restore_progress_put(struct sh_writer *w, const struct sh_restore_progress *progress);
/* False: it is none. */
SHOAL_NODISCARD bool sh_restore_progress_get(struct sh_reader *r,
                                             struct sh_restore_progress *progress_out);

struct sh_recovery {
    struct sh_zone zone;
    enum sh_recovery_state state;
    uint8_t waits;                       /* WAITS: bit i is the i-th backup; else 0 */
    struct sh_restore_progress progress; /* RESTORES */
};

/* Whether something is still to become of it. */
static inline bool sh_recovery_is_under_way(const struct sh_recovery *recovery)
{
    return recovery->state <= SH_RECOVERY_RESTORES;
}

void sh_recovery_put(struct sh_writer *w, const struct sh_recovery *recovery);

struct sh_recoveries_head {
    bool is_more;
    uint64_t after; /* up to which was looked */
    uint64_t epoch;
};

/* Writes the head; those zones follow that the page has room for. */
void sh_recoveries_head_put(struct sh_writer *w, const struct sh_recoveries_head *head);
/* By which view a page was said, if it is one; the reader stays where it is. */
uint64_t sh_recoveries_page_epoch(struct sh_reader r);
/* Reads a page about a shard, behind the zone `after`, and calls each(arg, recovery) for each zone, until that returns
 * false. EPROTO: what no superpeer writes; some may have been called for. */
SHOAL_NODISCARD enum shoal_err
sh_recoveries_page_get(struct sh_reader *r, unsigned shard, uint64_t after,
                       bool (*each)(void *arg, const struct sh_recovery *recovery), void *arg,
                       struct sh_recoveries_head *head_out);

#endif
