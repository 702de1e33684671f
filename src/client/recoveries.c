/* Lists the zones whose owners have failed, and how far the recovery of each is, as the superpeers have it; and tells them that a loss is accepted. */
#include <stdlib.h>

#include "base/assert.h"
#include "client/client.h"
#include "client/service_int.h"

struct listing {
    bool (*each)(void *arg, const struct sh_recovery *recovery);
    void *arg;
    bool goes_on;
    uint64_t epoch;       /* the oldest by which a superpeer has answered */
    uint64_t patience_ns; /* for one answer */
    uint64_t least;       /* what a superpeer says by an older view than that does not count */
};

static bool on_recovery(void *arg, const struct sh_recovery *recovery)
{
    struct listing *listing = arg;
    listing->goes_on = listing->each(listing->arg, recovery);
    return listing->goes_on;
}

static void pause_for(shoal *store)
{
    struct sh_waiter nobody = {0};
    (void)sh_crew_wait(store->crew, 0, &nobody, sh_now(&store->env.clock) + SH_ROUND_PAUSE_NS);
}

static enum shoal_err shard_list(shoal *store, unsigned shard, struct listing *listing)
{
    struct sh_service_ask ask = {.kind = SH_ASK_RECOVERIES, .shard = (uint8_t)shard};
    struct sh_recoveries_head head = {.is_more = true};
    uint64_t deadline_ns = sh_now(&store->env.clock) + listing->patience_ns;
    while (head.is_more && listing->goes_on) {
        uint8_t *answer;
        struct sh_reader r;
        ask.deadline_ns = sh_now(&store->env.clock) + listing->patience_ns;
        enum shoal_err err = sh_service_ask(store, &ask, &answer, &r);
        if (err)
            return err;
        /* A superpeer that has not heard of a failure yet would say that nothing is under way. */
        if (sh_recoveries_page_epoch(r) < listing->least) {
            free(answer);
            if (sh_now(&store->env.clock) >= deadline_ns)
                return SHOAL_EAGAIN;
            pause_for(store);
            continue;
        }
        err = sh_recoveries_page_get(&r, shard, ask.barrier, on_recovery, listing, &head);
        free(answer);
        if (err)
            return err;
        ask.barrier = head.after;
        if (head.epoch < listing->epoch)
            listing->epoch = head.epoch;
    }
    return SHOAL_OK;
}

static enum shoal_err list(shoal *store, struct listing *listing)
{
    enum shoal_err err = sh_service_begin(store);
    if (!err && store->is_embedded)
        err = SHOAL_EROLE;
    listing->goes_on = true;
    listing->epoch = UINT64_MAX;
    for (unsigned shard = 0; !err && listing->goes_on && shard < SH_SHARDS; shard++)
        err = shard_list(store, shard, listing);
    return err;
}

enum shoal_err sh_client_recoveries_within(shoal *store, uint64_t patience_ns,
                                           bool (*each)(void *arg,
                                                        const struct sh_recovery *recovery),
                                           void *arg, uint64_t *epoch_out)
{
    struct listing listing = {.each = each, .arg = arg, .patience_ns = patience_ns};
    enum shoal_err err = list(store, &listing);
    if (!err)
        *epoch_out = listing.epoch;
    return err;
}

enum shoal_err sh_client_recoveries(shoal *store,
                                    bool (*each)(void *arg, const struct sh_recovery *recovery),
                                    void *arg)
{
    enum shoal_err err = sh_service_begin(store);
    if (!err && !store->is_embedded)
        err = sh_client_refresh(store, sh_client_deadline_ns(store));
    if (err)
        return err;
    struct listing listing = {.each = each, .arg = arg, .patience_ns = store->timeout_ns};
    listing.least = store->is_embedded ? 0 : sh_directory_epoch(store->directory);
    return list(store, &listing);
}

enum shoal_err sh_client_loss_accept(shoal *store, uint64_t zone, uint32_t version)
{
    uint8_t bytes[SH_ACCEPT_LOSS_BYTES], *answer;
    size_t size;
    SH_ASSERT(sh_zone_is_id(zone) && version);
    enum shoal_err err = sh_service_begin(store);
    if (!err && store->is_embedded)
        err = SHOAL_EROLE;
    if (err)
        return err;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, zone);
    sh_put32(&w, version);
    struct sh_exchange ex = {.type = SH_CLUSTER_ACCEPT_LOSS,
                             .shard = sh_zone_shard(zone),
                             .payload = sh_bytes_make(bytes, sizeof bytes),
                             .is_update = true,
                             .deadline_ns = sh_client_deadline_ns(store)};
    err = sh_exchange_run(store, &ex, &answer, &size);
    if (err)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer + 2, size - 2));
    enum shoal_err result = sh_err_get(sh_get16(&r));
    err = sh_reader_done(&r) ? result : SHOAL_EPROTO;
    free(answer);
    return err;
}
