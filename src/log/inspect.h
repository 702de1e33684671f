/* A look at a log's file that no process has open: what is where in it, and whether it can be read.
 *
 * Reads only, a slot at a time and the primary log whole, as an open does; what it says of a zone is what a start and a load of the
 * zone would find. Of a slot that is damaged it goes on behind the damage.
 *
 *   open ──► read (all of it, or what is of one zone) ──► seen, zones ──► dump
 *
 * Memory: the primary log, a slot, 24 bytes a slot, and for each zone its lives and ranges of numbers (24 bytes each); a dump has
 * the version of each chunk besides (currents.h). Threads: one at a time; all of it waits for the disk. */
#ifndef SH_LOG_INSPECT_H
#define SH_LOG_INSPECT_H

#include "env/disk.h"
#include "log/entry.h"
#include "log/slot.h"

struct sh_inspect;

/* In use is a slot of each kind but SH_SLOT_DROPPED. */
#define SH_INSPECT_KINDS (SH_SLOT_DROPPED + 1)
#define SH_INSPECT_PRIMARY UINT32_MAX /* for a slot's number: the primary log */

#define SH_INSPECT_UNKNOWN (UINT32_MAX - 1) /* a slot that has nothing any more which tells of it */

/* A slot that is in use. */
struct sh_inspect_slot {
    uint32_t slot;
    struct sh_log_slot_head head;
    uint32_t filled;                      /* bytes, with the head, up to what is readable last */
    uint32_t spans;                       /* or pieces of a version log */
    uint64_t entries;                     /* or tuples */
    uint32_t seconds_first, seconds_last; /* of its entries, the earliest and the latest */
    uint32_t damaged, torn;               /* places */
    bool is_unreadable;                   /* the disk can't read all of it */
};

enum sh_inspect_harm {
    SH_INSPECT_TORN,    /* a crash may have left it so: it was not known to be on the disk */
    SH_INSPECT_DAMAGED, /* it had been on the disk, and fails its checksum now */
    SH_INSPECT_HEAD, /* a copy of a slot's head fails its checksum; of both, a start does not use the slot */
    SH_INSPECT_UNREADABLE, /* the disk reports an error */
};

struct sh_inspect_place {
    enum sh_inspect_harm harm;
    uint32_t slot;   /* SH_INSPECT_PRIMARY: of the primary log; SH_INSPECT_UNKNOWN */
    uint64_t offset; /* in the file; 0: not known */
    uint64_t zone;   /* 0: not known */
};

/* Since `first`, what earlier lives have of its numbers does not count. */
struct sh_inspect_life {
    uint16_t life;
    uint64_t first, whole; /* whole: before which all was durable by its word */
};

struct sh_inspect_zone {
    uint64_t id;
    uint16_t owner;
    uint32_t incarnation;                                      /* the highest */
    uint32_t slots[SH_INSPECT_KINDS];                          /* by kind */
    uint64_t bytes[SH_INSPECT_KINDS], spans[SH_INSPECT_KINDS]; /* by kind; version log: pieces */
    uint64_t primary_bytes, primary_spans;                     /* in what a start reads */
    uint64_t entries, payload_bytes, removals; /* in slots and there; bytes but those of zeros */
    uint64_t tuples, flushes;                  /* of the version log; flushes: the highest number */
    bool has_numbers;
    uint64_t first, last; /* sequence numbers of entries that are there */
    uint64_t whole;       /* before which all are there */
    const struct sh_inspect_life *lives;
    unsigned lives_count;
    uint32_t damaged, torn; /* places */
};

struct sh_inspect_seen {
    struct sh_log_file file;
    uint64_t file_bytes;
    uint32_t slots_used, slots_dropped;    /* dropped: of a zone that was; a start frees them */
    uint32_t lap;                          /* the last of the primary log; 0: it is empty */
    uint64_t primary_bytes, primary_spans; /* that a start would copy to slots */
    uint64_t entries;
    uint32_t damaged, torn;
};

/* Opens that file of the disk, which may be one that only reads (sh_real_disk_look). ENONAME: there is no such file. EPARSE: it is
 * empty: no log was made in it yet. EVERSION: of another format. ECORRUPT: no log, or its head is damaged. EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_inspect_open(struct sh_disk *disk, const char *name,
                                               struct sh_inspect **inspect_out);
void sh_inspect_close(struct sh_inspect *inspect); /* NULL is allowed */

/* Called while the file is read; each may be NULL. */
struct sh_inspect_calls {
    void (*slot)(void *arg, const struct sh_inspect_slot *slot); /* ascending */
    void (*harm)(void *arg, const struct sh_inspect_place *place);
    void *arg;
};

/* Reads the file, once: of all zones, or of one; 0: of all. Places that can't be read are told, and no error. EIO: the primary log can't
 * be read, or a slot's head, which `harm` was told. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_inspect_read(struct sh_inspect *inspect, uint64_t zone,
                                               const struct sh_inspect_calls *calls);

/* Totals of the file. */
const struct sh_inspect_seen *sh_inspect_seen(const struct sh_inspect *inspect);
/* Zones, by ID, 0 and on; NULL: there are no more. Both stay until the end. */
const struct sh_inspect_zone *sh_inspect_zone_at(const struct sh_inspect *inspect, size_t at);
const struct sh_inspect_zone *sh_inspect_zone_find(const struct sh_inspect *inspect, uint64_t id);

enum sh_inspect_standing {
    SH_INSPECT_CURRENT,    /* the chunk's newest version */
    SH_INSPECT_SUPERSEDED, /* a newer one is known */
    SH_INSPECT_VOID,       /* behind a gap, or of a life that ended before: it does not count */
};

struct sh_inspect_entry {
    struct sh_replog_entry entry;
    enum sh_log_slot_kind kind; /* survivors have no sequence numbers any more */
    uint64_t sequence;          /* a pair has one, as have all pieces of a chunk */
    uint16_t life;
    uint32_t incarnation;
    uint32_t slot; /* SH_INSPECT_PRIMARY: of the primary log */
    uint32_t lap;  /* there */
    enum sh_inspect_standing standing;
};

/* Tells of each entry of a zone, slot by slot, then of the primary log, until `each` returns false. It has been read, all or that
 * zone. chunk 0: all; else that one. ENONAME: the log has nothing of the zone. EFULL: more chunks than can be kept in mind.
 * ENOMEM, EIO. */
SHOAL_NODISCARD enum shoal_err
sh_inspect_dump(struct sh_inspect *inspect, uint64_t zone, uint64_t chunk,
                bool (*each)(void *arg, const struct sh_inspect_entry *entry), void *arg);

#endif
