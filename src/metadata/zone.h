/* Records of zones (docs/zones.md): who owns a zone, on which disks its replicas are, and the bounds of
 * one that is concluded. A zone's record is in the shard of its creator, so all zones that one node has
 * created are in one shard.
 *
 *   NEW      not there ----> version and incarnation as the owner says
 *   CHANGE   version v ----> version v + 1; if the owner or the backups differ, incarnation + 1
 *   REMOVE   version v ----> gone, and its ID is never used again
 *
 * Who asks says which version it goes by. A change whose answer was lost may be sent again: it is told OK
 * if the record is what it asked for, one version on.
 *
 * A zone whose owner has failed gets another owner, which recovers it (docs/recovery.md). Until that owner has
 * it all, the record names the owner that failed, the *former* one:
 *
 *   owner A ----A failed: owner B, former A----> being recovered ----B, the owner: no former----> owner B
 *                                                 |         ^
 *                                                 '---------' B failed: owner C, former A still, *again*
 *
 * A restorer that fails may have taken some chunks over by then (TAKE in metadata.h); their notes name the zone, so that the next one takes them as well.
 *
 * A record that was written before all replicas of its shard were lost and an old copy took their place is
 * *old*: what was changed after that is missing, its owner and backups may be others. The next change of
 * it raises version and incarnation by SH_ZONE_JUMP instead of 1, above what the missing changes can have
 * used.
 *
 * Memory: an item of the shard's map (metadata.h) of 39 bytes and 10 for each backup, 16 with bounds, 10 with a
 * former owner and 4 if it came back older: 85 with three backups once concluded, 123 where pages are 69 % full. 1,048,576 zones at most in a shard: 85 to
 * 123 MiB. Each node that has ever created a zone takes 18 bytes more.
 *
 * Threads: as metadata.h. */
#ifndef SH_METADATA_ZONE_H
#define SH_METADATA_ZONE_H

#include "base/bytes.h"
#include "base/node_ids.h"
#include "shoal/err.h"
#include "shoal/types.h"

#define SH_ZONE_BACKUPS_MAX 4
#define SH_ZONE_NUMBER_MAX ((UINT64_C(1) << 48) - 1)
#define SH_ZONE_JUMP 65536

/* Flags. */
#define SH_ZONE_CONCLUDED 1u /* no chunk comes to it by its owner's next IDs; it has bounds */
#define SH_ZONE_LOST 2u      /* no replica is left that could be recovered */
#define SH_ZONE_OLD 4u       /* in answers only: the record is old, see above */
#define SH_ZONE_FORMER 8u    /* it is being recovered: if, and only if, `former` is a node */
/* FORMER, and another node was to bring it back before, or has, and failed before another backup had all. Some replicas may have what that one wrote, under numbers that the owner gives again: it goes on with
 * its own replica only. */
#define SH_ZONE_AGAIN 16u
#define SH_ZONE_OLDER 32u /* if, and only if, `older` is not 0 */
/* FORMER, and the former owner had brought the zone back itself, and failed before another backup had all: so what is noted as that one's for no zone came to it in another
 * zone, though this one's replicas may claim it still. */
#define SH_ZONE_TAKEN 64u
/* Those that a record may have. */
#define SH_ZONE_RECORDED                                                                           \
    (SH_ZONE_CONCLUDED | SH_ZONE_LOST | SH_ZONE_FORMER | SH_ZONE_OLDER | SH_ZONE_OF_FORMER)
/* Those that a zone has only while it has a former owner. */
#define SH_ZONE_OF_FORMER (SH_ZONE_AGAIN | SH_ZONE_TAKEN)

/* A replica belongs to a disk, which has an ID of its own, not 0. */
struct sh_zone_backup {
    shoal_nid nid;
    uint64_t disk;
};

struct sh_zone {
    uint64_t
        id; /* the creator's node ID in the upper 16 bits, its number of the zone, not 0, in the lower 48 */
    shoal_nid owner;
    shoal_nid
        former; /* the owner that failed, whose zone it was: the owner is recovering it; 0: none */
    uint64_t former_life; /* the one that had the zone; 0: none */
    uint64_t life;        /* of the owner */
    /* How often it was brought back without any replica that had all that was acknowledged, and without some replica that may have had more: so often
     * its last changes that were not durable may have been lost. Never falls. */
    uint32_t older;
    uint32_t
        incarnation;  /* not 0; rises when the owner or the backups change; what backups go by */
    uint32_t version; /* not 0; rises with each change */
    uint8_t flags;
    uint8_t wanted; /* how many backups there are to be, at most SH_ZONE_BACKUPS_MAX */
    uint8_t count;  /* of backups */
    struct sh_zone_backup backups[SH_ZONE_BACKUPS_MAX]; /* in their order; no disk twice */
    /* CONCLUDED: the first and last chunk ID of the creator's own that belong to it; 0, 0: none does. */
    shoal_cid first, last;
};

static inline uint64_t sh_zone_id(shoal_nid creator, uint64_t number)
{
    return (uint64_t)creator.v << 48 | number;
}

static inline shoal_nid sh_zone_creator(uint64_t id)
{
    return (shoal_nid){(uint16_t)(id >> 48)};
}

static inline uint64_t sh_zone_number(uint64_t id)
{
    return id & SH_ZONE_NUMBER_MAX;
}

static inline bool sh_zone_is_id(uint64_t id)
{
    return sh_nid_is_peer(sh_zone_creator(id)) && sh_zone_number(id);
}

/* The shard of its record. */
unsigned sh_zone_shard(uint64_t id);

/* Whether it has fewer backups than it is to have. */
static inline bool sh_zone_is_short(const struct sh_zone *zone)
{
    return zone->count < zone->wanted;
}

/* Whether one of its backups is on that node, with that disk: NONE, 0: any. */
bool sh_zone_has_backup(const struct sh_zone *zone, shoal_nid nid, uint64_t disk);
/* NONE, 0: the zone is not being recovered. */
static inline void sh_zone_former_set(struct sh_zone *zone, shoal_nid former, uint64_t life)
{
    zone->former = former;
    zone->former_life = life;
    zone->flags = (uint8_t)((zone->flags & ~(SH_ZONE_FORMER | SH_ZONE_OF_FORMER)) |
                            (former.v ? SH_ZONE_FORMER : 0));
}

static inline void sh_zone_older_set(struct sh_zone *zone, uint32_t older)
{
    zone->older = older;
    zone->flags = (uint8_t)((zone->flags & ~SH_ZONE_OLDER) | (older ? SH_ZONE_OLDER : 0));
}

/* Whether two records say the same but for incarnation, version, SH_ZONE_OLD, and what no asker but a superpeer goes by: how often the zone came
 * back older. */
bool sh_zone_is_same(const struct sh_zone *a, const struct sh_zone *b);

/* A record as bytes: u64 ID, u16 owner, u64 life, u32 incarnation, u32 version, u8 flags, u8 wanted, u8 count,
 * each u16 node, u64 disk; if CONCLUDED u64 first, u64 last; if FORMER u16 former owner, u64 its life; if OLDER u32 how often. */
#define SH_ZONE_BYTES_MAX (29 + 10 * SH_ZONE_BACKUPS_MAX + 16 + 10 + 4)
void sh_zone_put(struct sh_writer *w, const struct sh_zone *zone);
/* Reads one; flags: those that it may have. EPROTO: not what put wrote of a good record. */
SHOAL_NODISCARD enum shoal_err sh_zone_get(struct sh_reader *r, uint8_t flags,
                                           struct sh_zone *zone_out);

struct sh_metadata;
struct sh_metadata_update;

/* False: there is none. */
bool sh_metadata_zone(const struct sh_metadata *metadata, uint64_t id, struct sh_zone *zone_out);
/* The first zone of a shard with an ID above `after`. False: there is none. */
bool sh_metadata_zone_next(const struct sh_metadata *metadata, unsigned shard, uint64_t after,
                           struct sh_zone *zone_out);
/* The highest number that a node has given a zone, be it there or removed; 0: none. */
uint64_t sh_metadata_zone_last(const struct sh_metadata *metadata, shoal_nid creator);
/* What an update of a zone would come to, as far as the record's version says it: OK, it was done before;
 * EDIFFERS; ENONAME, the record is not there; EAGAIN: the version fits, it would be carried out if its
 * asker may. */
SHOAL_NODISCARD enum shoal_err sh_metadata_zone_look(const struct sh_metadata *metadata,
                                                     const struct sh_metadata_update *update);

#endif
