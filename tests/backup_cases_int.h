/* Shared by tests of an owner and its backups: one owner, calm weather, and backups that fail and return. */
#ifndef TESTS_BACKUP_CASES_INT_H
#define TESTS_BACKUP_CASES_INT_H

#include "backup/placement.h"
#include "tests/backup_owner_int.h"

static struct owner owner;

static const struct sh_world_config calm = {.seed = 7,
                                            .wire = {.delay_ns_min = 20000,
                                                     .delay_ns_max = 200000,
                                                     .window_bytes_min = 1 << 16,
                                                     .window_bytes_max = 1 << 18}};

static inline void write_for(uint64_t ns)
{
    owner.is_quiet = false;
    owner_pass(&owner, ns);
    owner.is_quiet = true;
}

/* A backup's process is gone, and the view says so, or does not yet. */
static inline void backup_fail(unsigned i, bool is_seen)
{
    if (owner.backups[i].msg)
        sh_world_crash(owner.world, 2 + i);
    if (is_seen && !owner.are_failed[i]) {
        owner.are_failed[i] = true;
        owner_view(&owner);
    }
}

/* The same, with all that it has taken on its disk: it was stopped in order, and is to be back. */
static inline void backup_stop(unsigned i)
{
    if (!owner.backups[i].msg || owner.are_failed[i])
        return;
    fake_backup_sync(&owner.backups[i]);
    owner.are_away[i] = true;
    backup_fail(i, true);
}

/* It is there again, in another life, with what its disk had. */
static inline void backup_return(unsigned i)
{
    if (!owner.backups[i].msg) {
        owner.backups[i].life += UINT64_C(1) << 32;
        sh_world_restart(owner.world, 2 + i);
    }
    owner.are_failed[i] = owner.are_away[i] = false;
    owner_view(&owner);
}

static inline unsigned backups_up(void)
{
    unsigned up = 0;
    for (unsigned i = 0; i < owner.backups_count; i++)
        up += owner.backups[i].msg && !owner.are_failed[i];
    return up;
}

#endif
