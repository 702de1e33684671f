/* Where a node's log is: in its folder, through the page cache or around it, or on a device of its own, which is a partition or a file used as one.
 *
 * The folder of a node whose log is on a device has a note of it, the file SH_LOG_NOTE_NAME: the device's path, and a new line. Without it a node
 * that is started without the device, or with another one, would begin an empty log, and find none of its chunks. The note is written once the
 * log is open, before anything is served. It says where the log is, not whose: that is in the log's head (log/slot.h), so a device may be named otherwise
 * the next time.
 *
 * Threads: that of the disks' owner; all of it waits for the disk. */
#ifndef SH_RECOVER_LOG_PLACE_H
#define SH_RECOVER_LOG_PLACE_H

#include "env/disk.h"

#define SH_LOG_NOTE_NAME "replicas.device"
#define SH_LOG_PATH_MAX 4096
#define SH_LOG_PLACE_DETAIL 256

enum sh_log_access {
    SH_LOG_CACHED, /* in the folder, through the page cache */
    SH_LOG_DIRECT, /* in the folder, around it */
    SH_LOG_RAW,    /* the device, around it */
};

struct sh_log_place {
    enum sh_log_access access;
    const char *path; /* of the folder, or with SH_LOG_RAW of the device */
    /* All such logs have one name, as stores in processes do: one whose path the note does not name is not this node's. */
    bool is_nameless;
};

/* Which access a word means: cached, direct, raw; or auto, which is direct where the replicas are at peers, else cached. False: none. */
bool sh_log_access_of(const char *word, bool is_at_peers, enum sh_log_access *access_out);

/* The device that the folder's note names, with a 0 at the end. ENONAME: it has no note. ECORRUPT: it is no such note. EIO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_log_note_read(struct sh_disk *folder,
                                                char path_out[SH_LOG_PATH_MAX]);

/* Whether the folder has a log, or a note of one. */
bool sh_log_place_is_used(struct sh_disk *folder);

/* Opens the disk for the log of a node with that folder. *disk_out NULL: it is the folder's own (SH_LOG_CACHED). A device is this disk's alone.
 * EINVAL: the node's log is elsewhere, by the note or a file in the folder, or the device has none though the note says that there was one, or has
 * one that is_nameless and that the note does not tell of, or it is neither a file nor a device. ENONAME: there is no such device. EBUSY: it is in use. EIO: it can't be opened. ECORRUPT: of the note. ENOMEM. With
 * an error detail (SH_LOG_PLACE_DETAIL bytes) says why, and what to do. */
SHOAL_NODISCARD enum shoal_err sh_log_place_open(const struct sh_log_place *place,
                                                 struct sh_disk *folder, struct sh_disk **disk_out,
                                                 char *detail);
/* The log there is open: the note of a device is on the folder's disk when this returns. EIO, ENOSPC, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_log_place_note(const struct sh_log_place *place,
                                                 struct sh_disk *folder);

/* The bytes of a raw disk, for struct sh_home_log; 0: the place is no device. */
uint64_t sh_log_place_bytes(const struct sh_log_place *place, struct sh_disk *disk);

#endif
