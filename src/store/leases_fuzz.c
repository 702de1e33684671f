/* Hostile bytes for sh_leases_import: refused without a change, or taken in whole, in a table where
 * somebody holds and somebody waits. What was taken in goes out again as it came. */
#include <stdlib.h>
#include <string.h>

#include "store/leases_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NOW_NS 1000

/* Chunk 1 is held by a reader, for whom a writer and another reader wait. */
static void populate(struct sh_leases *leases)
{
    static const enum sh_lease_mode modes[] = {SH_LEASE_READER, SH_LEASE_WRITER, SH_LEASE_READER};
    for (uint64_t i = 0; i < 3; i++) {
        struct sh_lease_wish wish = {.cid = {1},
                                     .owner = {.token = i, .nid = {1}},
                                     .mode = modes[i],
                                     .lease_ns = 100,
                                     .wait_until_ns = NOW_NS + 50};
        uint64_t deadline_ns;
        if (sh_leases_acquire(leases, &wish, NOW_NS, &deadline_ns) != (i ? SHOAL_EAGAIN : SHOAL_OK))
            abort();
    }
}

static uint32_t records(struct sh_leases *leases)
{
    struct sh_leases_status status;
    sh_leases_status_get(leases, &status);
    return status.readers + status.writers + status.waiters;
}

/* The table, empty but for these bytes, must hand out the same again. */
static void out_again(struct sh_leases *leases, const uint8_t *data, size_t size)
{
    uint8_t *out = malloc(size + SH_LEASES_LOCK_BYTES);
    size_t out_size;
    if (!out)
        abort();
    if (sh_leases_import(leases, sh_bytes_make(data, size), NOW_NS) != SHOAL_OK)
        abort();
    if (sh_leases_export(leases, SHOAL_CID_NONE, (shoal_cid){UINT64_MAX}, NOW_NS, out,
                         size + SH_LEASES_LOCK_BYTES, &out_size) != SHOAL_OK)
        abort();
    if (out_size != size || memcmp(out, data, size) != 0)
        abort();
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_leases_config config = {.locks_max = 16, .waiters_max = 4, .seed = 3};
    struct sh_leases *leases;
    if (sh_leases_create(&config, &leases) != SHOAL_OK)
        return 0;
    populate(leases);
    enum shoal_err err = sh_leases_import(leases, sh_bytes_make(data, size), NOW_NS);
    sh_leases_check(leases);
    if (err && records(leases) != 3)
        abort();
    if (!err) {
        while (sh_leases_node_drop(leases, (shoal_nid){1}, NOW_NS, 16) == 16)
            ;
        while (sh_leases_expire(leases, NOW_NS + SH_LEASE_NS_MAX, 16) == 16)
            ;
        if (records(leases) != 0)
            abort();
        out_again(leases, data, size);
    }
    sh_leases_check(leases);
    sh_leases_destroy(leases);
    return 0;
}
