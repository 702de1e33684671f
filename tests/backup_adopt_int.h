/* A zone of a failed owner, its record and replicas, as this node brings it back. Backups are models; the superpeer keeps records as real ones do. */
#ifndef SH_TESTS_BACKUP_ADOPT_INT_H
#define SH_TESTS_BACKUP_ADOPT_INT_H

#include "tests/backup_cases_int.h"

#define FORMER UINT64_C(90)
#define ZONE (FORMER << 48 | 5)
#define OWN_DISK 7
#define END 10

static inline uint64_t chunk_of(uint64_t local)
{
    return FORMER << 48 | local;
}

static inline void record_apply(uint8_t kind, const struct sh_zone *record, shoal_nid from,
                                uint64_t life)
{
    struct sh_metadata *metadata = owner.superpeer.metadata;
    const struct sh_metadata_update update = {.kind = kind,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = from,
                                              .sequence = life,
                                              .zone = *record};
    unsigned shard = sh_zone_shard(record->id);
    if (!sh_metadata_incarnation(metadata, shard))
        sh_metadata_begin(metadata, shard, 1, true);
    assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
}

static inline struct sh_zone record_of(uint64_t id)
{
    struct sh_zone record;
    assert_true(sh_metadata_zone(owner.superpeer.metadata, id, &record));
    return record;
}

/* The record of a zone of the former owner, which has this node for its next one. Backups: this node, and so many others, from the first on. */
static inline struct sh_zone record_make(uint64_t id, unsigned others)
{
    struct sh_zone record = {.id = id,
                             .owner = {FORMER},
                             .life = 99,
                             .incarnation = 1,
                             .version = 1,
                             .wanted = 2,
                             .count = (uint8_t)(1 + others),
                             .backups = {{{FAKE_OWNER}, OWN_DISK}}};
    for (unsigned i = 0; i < others; i++)
        record.backups[1 + i] =
            (struct sh_zone_backup){owner.backups[i].nid, owner.backups[i].disk};
    record_apply(SH_METADATA_ZONE_NEW, &record, (shoal_nid){FORMER}, 99);
    sh_zone_former_set(&record, (shoal_nid){FORMER}, 99);
    record.owner = (shoal_nid){FAKE_OWNER};
    record.life = FAKE_LIFE;
    record_apply(SH_METADATA_ZONE_CHANGE, &record, (shoal_nid){FAKE_SUPERPEER}, 1);
    return record_of(id);
}

/* The backup has all before that number of it. */
static inline struct fake_zone *replica_make(unsigned i, uint64_t id, uint64_t next)
{
    const struct sh_replication_open open = {.zone = id, .first = next};
    struct fake_zone *zone = fake_begin(&owner.backups[i], &open);
    zone->incarnation = 1;
    return zone;
}

#endif
