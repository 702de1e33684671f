/* Names, barriers and scratch: what programs agree on. On a cluster the superpeers keep them, each
 * part four times, on their disks; the names of a peer's chunks are in its dumps, too. In an
 * embedded store they are in this process, for its threads, and the names in its dumps. Where that
 * has a data_dir, its names are found again with its chunks; barriers and scratch are gone with the
 * handle (docs/names.md).
 *
 *     err = shoal_name_set(store, "graph/root", cid, SHOAL_NAME_ABSENT, SHOAL_CID_NONE, NULL);
 *     err = shoal_name_wait(other, "graph/root", 10 * 1000000000ull, &cid);
 *
 * Names and keys are 1 to 255 bytes without a NUL.
 *
 * Errors and threads are as in shoal.h: calls block until done or until the store's time-out is
 * over. Each change is done once, however often this library has to repeat it while superpeers
 * fail; ETIMEOUT means that it may or may not have been done. ELIMIT: a bound of
 * docs/names.md is reached. */
#ifndef SHOAL_NAMES_H
#define SHOAL_NAMES_H

#include "shoal/shoal.h"

#ifdef __cplusplus
extern "C" {
#endif

#define SHOAL_NAME_MAX 255
#define SHOAL_SCRATCH_MAX 1024
#define SHOAL_BARRIER_SIZE_MAX 1024
#define SHOAL_BARRIER_DATA_MAX 1024
#define SHOAL_BARRIER_ROUND_MAX 65536 /* data of all members of a round */

/* --- Names ------------------------------------------------------------------------------- */

enum shoal_name_if {
    SHOAL_NAME_ALWAYS,  /* whether the name is there or not */
    SHOAL_NAME_ABSENT,  /* set: only if it is not there (EEXIST) */
    SHOAL_NAME_CURRENT, /* only if it is `expected`'s (EDIFFERS: another's; ENONAME: nobody's) */
};

/* Gives a name to a chunk ID, which need not exist; or removes it (ENONAME). previous_out (may be
 * NULL) gets whose it was, SHOAL_CID_NONE for nobody's; as an exception also with EEXIST and
 * EDIFFERS. Embedded with a data_dir: durable when it returns, whatever the level, and nobody sees it
 * before; without one, refused at SHOAL_REPLICATED and SHOAL_DURABLE (ENOBACKUP); the chunk is as durable as it was written (shoal_sync). EIO, ENOSPC: the disk takes nothing,
 * and has not for 2.5 s; the detail says whether the change may still be done once it does. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_set(shoal *store, const char *name,
                                                        shoal_cid cid, enum shoal_name_if when,
                                                        shoal_cid expected,
                                                        shoal_cid *previous_out);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_remove(shoal *store, const char *name,
                                                           enum shoal_name_if when,
                                                           shoal_cid expected,
                                                           shoal_cid *previous_out);
/* ENONAME. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_get(shoal *store, const char *name,
                                                        shoal_cid *cid_out);
/* The same, but waits until the name is there. ETIMEOUT: it is not, after timeout_ns. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_wait(shoal *store, const char *name,
                                                         uint64_t timeout_ns, shoal_cid *cid_out);
/* Calls back with each name that begins with the prefix ("": all), in no order, until it returns
 * false. A name that is set or removed meanwhile may or may not be among them. The callback may
 * call anything but shoal_close. */
typedef bool (*shoal_name_each)(void *arg, const char *name, shoal_cid cid);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_list(shoal *store, const char *prefix,
                                                         shoal_name_each each, void *arg);

/* --- Barriers ---------------------------------------------------------------------------- */

/* A barrier lets a number of members go on together, round after round: each signs on, with some
 * data, and waits; when as many are there as the barrier is large, all of them get everyone's. */
typedef struct shoal_barrier {
    uint64_t v;
} shoal_barrier;

enum shoal_barrier_death {
    SHOAL_BARRIER_TELL,     /* a member that dies while it waits breaks the round: EBROKEN */
    SHOAL_BARRIER_SURVIVORS /* the barrier gets smaller by one instead, and the others go on */
};

/* Makes a barrier for 1 to SHOAL_BARRIER_SIZE_MAX members; any program on the cluster may use it by
 * its ID. It stays until it is freed, or all superpeers are restarted at once. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_barrier_create(shoal *store, uint32_t size,
                                                              enum shoal_barrier_death death,
                                                              shoal_barrier *barrier_out);
/* Changes the size from the round that is open on, which ends if enough are there. ENONAME. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_barrier_resize(shoal *store, shoal_barrier barrier,
                                                              uint32_t size);
/* Those who wait get ENONAME. ENONAME. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_barrier_free(shoal *store, shoal_barrier barrier);

struct shoal_barrier_member {
    uint64_t id; /* of a call that waits, random */
    const void *data;
    uint32_t size;
};

struct shoal_barrier_round {
    uint64_t number; /* from 1 */
    uint64_t self;   /* the member that this call was; 0 in a status */
    uint64_t gone;   /* EBROKEN: the member that died; else 0 */
    uint32_t size;   /* the barrier's, by now */
    bool survivors;  /* as it was created */
    uint32_t count;  /* members that have signed on, in that order */
    struct shoal_barrier_member *members;
};

/* Signs on with data (size bytes, at most SHOAL_BARRIER_DATA_MAX; all members' together at most
 * SHOAL_BARRIER_ROUND_MAX, or ELIMIT) and waits until the round is over. *round_out (may be NULL)
 * is to be given back with shoal_barrier_round_free; also with EBROKEN: a member died, or this one
 * was taken for dead since it was cut off for 5 seconds (then gone is 0 or itself), or was away
 * until the next round was over, too, so that nobody can tell. ETIMEOUT: after timeout_ns others
 * are still missing, and this one is not signed on any more. ENONAME. At all other errors it is
 * signed off, too, if a superpeer can be told within a second. *round_out is NULL where there is no
 * round to tell. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_barrier_wait(shoal *store, shoal_barrier barrier,
                                                            const void *data, uint32_t size,
                                                            uint64_t timeout_ns,
                                                            struct shoal_barrier_round **round_out);
/* The round that is open, and who has signed on. ENONAME. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_barrier_status(shoal *store, shoal_barrier barrier, struct shoal_barrier_round **round_out);
/* Calls back with each barrier, in no order, until it returns false. One that is made or freed
 * meanwhile may or may not be among them. The callback may call anything but shoal_close. */
struct shoal_barrier_info {
    shoal_barrier barrier;
    uint64_t round; /* that is open, from 1 */
    uint32_t size;
    uint32_t count; /* have signed on */
    bool survivors; /* as it was created */
};
typedef bool (*shoal_barrier_each)(void *arg, const struct shoal_barrier_info *info);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_barrier_list(shoal *store, shoal_barrier_each each,
                                                            void *arg);
SHOAL_API void shoal_barrier_round_free(struct shoal_barrier_round *round); /* NULL is allowed */

/* --- Scratch ----------------------------------------------------------------------------- */

/* Small values for a while: never on a disk, and gone when all superpeers are restarted at once.
 * Put replaces; size is at most SHOAL_SCRATCH_MAX (ETOOBIG). */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_put(shoal *store, const char *key,
                                                           const void *value, uint32_t size);
/* As shoal_get: ENONAME; ESIZE, with the size needed in *size_out. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_scratch_get(shoal *store, const char *key, void *into, size_t room, uint32_t *size_out);
/* ENONAME. */
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_remove(shoal *store, const char *key);
/* As shoal_name_list, with the size of each value. */
typedef bool (*shoal_scratch_each)(void *arg, const char *key, uint32_t size);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_list(shoal *store, const char *prefix,
                                                            shoal_scratch_each each, void *arg);

/* --- Asynchronous forms ------------------------------------------------------------------ */

/* As those of shoal.h: done once, never blocking, with struct shoal_call. Names, keys and values
 * are copied; `into` is kept until the call is done. In the call are then: cid, of get; of set and
 * remove whose the name was before, also with EEXIST and EDIFFERS. size, of shoal_scratch_get_async
 * the value's, also with ESIZE. EBUSY: 4,096 of them are under way. Embedded they are done when
 * they have begun, but for changes of names with a data_dir: those wait for its disk, and are done in
 * the order in which they have begun. Whoever waits for a name, or at a barrier, does so in a thread of its own. */
SHOAL_API SHOAL_NODISCARD enum shoal_err
shoal_name_set_async(shoal *store, const char *name, shoal_cid cid, enum shoal_name_if when,
                     shoal_cid expected, struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_remove_async(shoal *store, const char *name,
                                                                 enum shoal_name_if when,
                                                                 shoal_cid expected,
                                                                 struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_name_get_async(shoal *store, const char *name,
                                                              struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_put_async(shoal *store, const char *key,
                                                                 const void *value, uint32_t size,
                                                                 struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_get_async(shoal *store, const char *key,
                                                                 void *into, size_t room,
                                                                 struct shoal_call *call);
SHOAL_API SHOAL_NODISCARD enum shoal_err shoal_scratch_remove_async(shoal *store, const char *key,
                                                                    struct shoal_call *call);

#ifdef __cplusplus
}
#endif

#endif
