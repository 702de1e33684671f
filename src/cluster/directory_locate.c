/* Lookups: asking the superpeer of the creator's arc, once for all who want to know. */
#include "base/assert.h"
#include "base/log.h"
#include "cluster/directory_int.h"
#include "cluster/proto.h"

/* Puts a range into the cache, and takes others out in turn when there are too many. */
static void cache_put(struct sh_directory *directory, const struct sh_range *range)
{
    sh_lock_assert_held(&directory->lock);
    enum shoal_err err = sh_ranges_set(directory->cache, range->first, range->last, range->value);
    if (err)
        SH_DEBUG("cluster", "lookup not cached", SH_ERR(err));
    while (sh_ranges_count(directory->cache) > directory->cache_ranges_max) {
        struct sh_range old;
        if (!sh_ranges_next(directory->cache, directory->evict_from, &old)) {
            directory->evict_from.v = 0;
            continue;
        }
        err = sh_ranges_remove(directory->cache, old.first, old.last);
        SH_ASSERT(!err); /* a whole range */
        directory->evict_from.v = old.last.v + 1;
    }
}

/* Takes op out of those that ask, and returns who waits for its answer. */
static struct sh_locate *asker_remove(struct sh_directory *directory, struct sh_locate *op)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_locate **link = &directory->locating;
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    struct sh_locate *followers = op->followers;
    op->followers = NULL;
    return followers;
}

/* Ends one question: op gets the result, and its followers too if it says something about their
 * chunks; else they ask themselves. */
static void end(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_directory *directory = op->directory;
    shoal_cid cid = op->cid;
    sh_lock_take(&directory->lock);
    struct sh_locate *follower = asker_remove(directory, op);
    sh_lock_release(&directory->lock);
    op->done(op, err, nid);
    bool is_about_one = err == SHOAL_OK || err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED;
    while (follower) {
        struct sh_locate *next = follower->next;
        if (is_about_one && follower->cid.v != cid.v)
            sh_directory_locate(directory, follower->cid, follower);
        else
            follower->done(follower, err, nid);
        follower = next;
    }
}

static enum shoal_err answer_get(struct sh_reader *r, shoal_cid cid, struct sh_range *range_out)
{
    struct sh_range range = {.first = {sh_get64(r)}, .last = {sh_get64(r)}};
    range.value = sh_get16(r);
    if (!sh_reader_done(r) || range.first.v > cid.v || range.last.v < cid.v || !range.value ||
        range.value > SH_PEER_NID_MAX)
        return SHOAL_EPROTO;
    *range_out = range;
    return SHOAL_OK;
}

static void ask(struct sh_locate *op, shoal_nid superpeer);

/* Another superpeer owns the sector; while they pass it on, they may point at each other. */
static void on_redirected(struct sh_locate *op, shoal_nid superpeer)
{
    struct sh_directory *directory = op->directory;
    if (op->asked >= SH_LOCATE_HOPS_MAX) {
        end(op, SHOAL_EBUSY, SHOAL_NID_NONE);
        return;
    }
    sh_directory_superpeer_set(directory, shoal_cid_creator(op->cid), superpeer);
    ask(op, superpeer);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_locate *op = request->arg;
    struct sh_directory *directory = op->directory;
    struct sh_range range = {.value = 0};
    if (!err)
        err = answer_get(payload, op->cid, &range);
    if (!err && range.value < SH_PEER_NID_MIN) {
        on_redirected(op, (shoal_nid){(uint16_t)range.value});
        return;
    }
    if (!err) {
        sh_lock_take(&directory->lock);
        cache_put(directory, &range);
        sh_lock_release(&directory->lock);
    }
    end(op, err, (shoal_nid){(uint16_t)range.value});
}

/* Queues op behind another question about the same creator, if there is one. */
static bool follow(struct sh_directory *directory, struct sh_locate *op)
{
    sh_lock_assert_held(&directory->lock);
    for (struct sh_locate *asker = directory->locating; asker; asker = asker->next) {
        if (shoal_cid_creator(asker->cid).v != shoal_cid_creator(op->cid).v)
            continue;
        op->next = asker->followers;
        asker->followers = op;
        return true;
    }
    op->next = directory->locating;
    directory->locating = op;
    return false;
}

static void ask(struct sh_locate *op, shoal_nid superpeer)
{
    struct sh_directory *directory = op->directory;
    uint64_t epoch = sh_directory_epoch(directory);
    op->asked++;
    op->request = (struct sh_request){.done = on_answer, .arg = op, .deadline_ns = op->deadline_ns};
    struct sh_out out;
    enum shoal_err err = sh_msg_request(directory->msg, superpeer, SH_CLUSTER_LOOKUP,
                                        SH_LOOKUP_BYTES, &op->request, &out);
    if (err) {
        end(op, err, SHOAL_NID_NONE);
        return;
    }
    sh_put64(&out.w, op->cid.v);
    sh_put64(&out.w, epoch);
    sh_msg_end(directory->msg, &out);
}

void sh_directory_locate(struct sh_directory *directory, shoal_cid cid, struct sh_locate *op)
{
    SH_ASSERT(op->done);
    op->asked = 0;
    op->cid = cid;
    op->directory = directory;
    op->followers = NULL;
    shoal_nid nid = SHOAL_NID_NONE;
    shoal_nid superpeer = SHOAL_NID_NONE;
    bool asks = false;
    sh_lock_take(&directory->lock);
    enum shoal_err err = sh_directory_owner_locked(directory, cid, &nid);
    if (err == SHOAL_EAGAIN && !directory->view.superpeers)
        err = SHOAL_ENONODE;
    if (err == SHOAL_EAGAIN) {
        asks = !follow(directory, op);
        superpeer = sh_directory_superpeer_locked(directory, shoal_cid_creator(cid));
    }
    sh_lock_release(&directory->lock);
    if (err != SHOAL_EAGAIN) {
        op->done(op, err, nid);
        return;
    }
    if (asks)
        ask(op, superpeer);
}

void sh_directory_locate_stop(struct sh_directory *directory)
{
    while (directory->locating) {
        struct sh_locate *op = directory->locating;
        (void)sh_msg_cancel(directory->msg, &op->request);
        end(op, SHOAL_ESTOPPED, SHOAL_NID_NONE);
    }
}
