/* Where chunks are: lookups that a thread waits for, and what the superpeers know of a node's. */
#include <stdlib.h>

#include "client/client_int.h"
#include "cluster/proto.h"

#define HOPS_MAX 4 /* superpeers that point to each other */

struct sh_directory *sh_client_directory(shoal *store)
{
    SH_ASSERT(!store->is_embedded);
    return store->directory;
}

static void on_located(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_waited_locate *waited = op->arg;
    waited->err = err;
    waited->nid = nid;
    sh_waiter_complete(&waited->waiter);
}

void sh_client_locate_begin(shoal *store, shoal_cid cid, uint64_t deadline_ns, uint64_t mark,
                            struct sh_waited_locate *waited)
{
    *waited = (struct sh_waited_locate){
        .locate = {.done = on_located, .arg = waited, .deadline_ns = deadline_ns, .mark = mark}};
    sh_directory_locate(store->directory, cid, &waited->locate);
}

enum shoal_err sh_client_locate_wait(shoal *store, struct sh_waited_locate *waited,
                                     shoal_nid *nid_out)
{
    bool is_done = sh_crew_wait(store->crew, 0, &waited->waiter, SH_NEVER);
    SH_ASSERT(is_done);
    *nid_out = waited->nid;
    /* A lost question has done nothing: it may be asked again, whatever the call. */
    return waited->err == SHOAL_ECONNLOST ? SHOAL_EUNREACHABLE : waited->err;
}

enum shoal_err sh_client_locate(shoal *store, shoal_cid cid, uint64_t deadline_ns,
                                shoal_nid *nid_out)
{
    enum shoal_err err = sh_directory_owner(store->directory, cid, nid_out);
    if (err != SHOAL_EAGAIN)
        return err;
    if (deadline_ns && sh_now(&store->env.clock) >= deadline_ns)
        return SHOAL_ETIMEOUT;
    struct sh_waited_locate waited;
    sh_client_locate_begin(store, cid, deadline_ns, 0, &waited);
    return sh_client_locate_wait(store, &waited, nid_out);
}

enum shoal_err shoal_lookups(shoal *store, struct shoal_lookups *lookups_out)
{
    if (!store || !lookups_out)
        return SHOAL_EINVAL;
    struct shoal_lookups lookups = {0};
    if (!store->is_embedded) {
        struct sh_directory_stats stats = sh_directory_stats(store->directory);
        lookups = (struct shoal_lookups){.hits = stats.cache.hits,
                                         .misses = stats.cache.misses,
                                         .healed = stats.cache.drops,
                                         .questions = stats.requests,
                                         .ranges = stats.cache.ranges,
                                         .bytes = stats.cache.bytes};
    }
    *lookups_out = lookups;
    return SHOAL_OK;
}

/* --- For people ------------------------------------------------------------------------------ */

static bool may_ask_again(enum shoal_err err)
{
    return err == SHOAL_EBUSY || err == SHOAL_EUNREACHABLE || err == SHOAL_ECONNLOST;
}

/* Waits a moment before the next question; false: there is no time for one. */
static bool pause_before(shoal *store, uint64_t deadline_ns)
{
    uint64_t now = sh_now(&store->env.clock);
    struct sh_waiter pause = {0};
    if (now + SH_ROUND_PAUSE_NS >= deadline_ns)
        return false;
    sh_client_refresh_begin(store);
    (void)sh_crew_wait(store->crew, 0, &pause, now + SH_ROUND_PAUSE_NS);
    return true;
}

static enum shoal_err check(shoal *store)
{
    enum shoal_err err = sh_client_blocking();
    if (err == SHOAL_OK && store->is_embedded) {
        sh_client_detail_set("a store in this process has no superpeer");
        err = SHOAL_EINVAL;
    }
    return err;
}

enum shoal_err sh_client_lookup(shoal *store, shoal_cid cid, struct sh_client_lookup *lookup_out)
{
    enum shoal_err err = check(store);
    if (err != SHOAL_OK)
        return err;
    uint64_t deadline_ns = sh_client_deadline_ns(store);
    struct sh_client_lookup lookup;
    do {
        sh_directory_forget(store->directory, cid);
        err = sh_client_locate(store, cid, deadline_ns, &lookup.owner);
    } while (may_ask_again(err) && pause_before(store, deadline_ns));
    if (err != SHOAL_OK)
        return err;
    lookup.superpeer = sh_directory_superpeer(store->directory, shoal_cid_creator(cid));
    struct sh_range range = {cid, cid, lookup.owner.v};
    (void)sh_directory_range(store->directory, cid, &range); /* it may be dropped by now */
    lookup.first = range.first;
    lookup.last = range.last;
    *lookup_out = lookup;
    return SHOAL_OK;
}

/* --- Trees ----------------------------------------------------------------------------------- */

struct page {
    uint8_t *bytes;
    size_t size;
    shoal_nid superpeer; /* that answered */
};

/* Asks for the ranges from `from` on, whoever is pointed to; the caller frees the bytes. */
static enum shoal_err page_ask(shoal *store, shoal_cid from, struct page *page_out)
{
    struct sh_caller caller = sh_client_caller(store);
    uint8_t request[SH_TREE_BYTES];
    sh_store64(request, from.v);
    sh_store64(request + 8, 0); /* as of any view */
    struct page page = {.superpeer =
                            sh_directory_superpeer(store->directory, shoal_cid_creator(from))};
    for (unsigned hops = 0; hops < HOPS_MAX; hops++) {
        enum shoal_err err = sh_call(&caller, page.superpeer, SH_CLUSTER_TREE,
                                     sh_bytes_make(request, sizeof request), store->timeout_ns,
                                     &page.bytes, &page.size, sh_client_detail());
        if (err != SHOAL_OK)
            return err;
        shoal_nid other = {page.size >= 2 ? sh_load16(page.bytes) : 0};
        if (!other.v) {
            *page_out = page;
            return SHOAL_OK;
        }
        free(page.bytes);
        page.superpeer = other;
    }
    sh_client_detail_set("superpeers point to each other, since one is taking another's place");
    return SHOAL_EBUSY;
}

/* Hands a page's ranges on, and moves *from_inout behind them. */
static enum shoal_err page_read(const struct page *page, shoal_cid *from_inout,
                                sh_client_tree_each each, void *arg, bool *more_out)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(page->bytes, page->size));
    shoal_nid creator = shoal_cid_creator(*from_inout);
    shoal_cid end = shoal_cid_make(creator, SHOAL_LOCAL_ID_MAX);
    (void)sh_get16(&r);
    bool goes_on = sh_get8(&r);
    if (!sh_reader_ok(&r))
        return SHOAL_EPROTO;
    while (sh_reader_left(&r) > 0) {
        struct sh_client_lookup range = {.superpeer = page->superpeer};
        range.first.v = sh_get64(&r);
        range.last.v = sh_get64(&r);
        range.owner.v = sh_get16(&r);
        (void)sh_reader_take(&r, SH_TREE_RANGE_BYTES -
                                     SH_LOOKUP_ANSWER_BYTES); /* how the owner has come by it */
        if (!sh_reader_ok(&r) || range.last.v < from_inout->v || range.last.v < range.first.v ||
            range.first.v > end.v)
            return SHOAL_EPROTO;
        range.first = range.first.v < from_inout->v ? *from_inout : range.first;
        bool is_last = range.last.v >= end.v;
        range.last = is_last ? end : range.last;
        *from_inout = (shoal_cid){range.last.v + 1};
        if (!each(arg, &range) || is_last) {
            goes_on = false;
            break;
        }
    }
    *more_out = goes_on;
    return SHOAL_OK;
}

enum shoal_err sh_client_lookup_tree(shoal *store, shoal_nid creator, sh_client_tree_each each,
                                     void *arg)
{
    enum shoal_err err = check(store);
    if (err != SHOAL_OK)
        return err;
    uint64_t deadline_ns = sh_client_deadline_ns(store);
    shoal_cid from = shoal_cid_make(creator, 0);
    bool more = creator.v >= SH_PEER_NID_MIN && creator.v <= SH_PEER_NID_MAX;
    struct sh_node node;
    if (!more)
        return SHOAL_EROLE;
    err = sh_directory_node(store->directory, creator, &node);
    if (err != SHOAL_OK)
        return err;
    while (more) {
        struct page page;
        err = page_ask(store, from, &page);
        if (err == SHOAL_OK) {
            shoal_cid before = from;
            err = page_read(&page, &from, each, arg, &more);
            free(page.bytes);
            if (err == SHOAL_OK && more && from.v == before.v)
                err = SHOAL_EPROTO;
            deadline_ns = sh_client_deadline_ns(store);
        } else if (may_ask_again(err) && pause_before(store, deadline_ns)) {
            continue;
        }
        if (err != SHOAL_OK)
            return err;
    }
    return SHOAL_OK;
}
