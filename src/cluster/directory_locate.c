/* Lookups: asking the superpeer of the creator's arc, once for all who want to know. */
#include "base/assert.h"
#include "base/log.h"
#include "cluster/directory_int.h"
#include "cluster/proto.h"

/* Puts an answer's ranges into the cache, but none whose owner is no more by the view: then the
 * answer is older than the view. An owner that the view does not have yet is newer. */
static void cache_put(struct sh_directory *directory, const struct sh_lookup_answer *answer)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_range ranges[SH_LOOKUP_RANGES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < answer->count; i++) {
        int state = sh_directory_state(directory, (shoal_nid){(uint16_t)answer->ranges[i].value});
        if (state < 0 || state == SH_NODE_UP)
            ranges[count++] = answer->ranges[i];
    }
    if (count > 0)
        sh_lookups_put_many(directory->lookups, ranges, count);
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

enum shoal_err sh_lookup_answer_get(struct sh_reader *r, shoal_cid cid,
                                    struct sh_lookup_answer *answer)
{
    answer->count = 0;
    do {
        struct sh_range range = {.first = {sh_get64(r)}, .last = {sh_get64(r)}};
        range.value = sh_get16(r);
        bool is_first = answer->count == 0;
        if (!sh_reader_ok(r) || answer->count == SH_LOOKUP_RANGES_MAX || !range.value ||
            range.value > SH_PEER_NID_MAX || range.last.v < range.first.v)
            return SHOAL_EPROTO;
        if (is_first ? range.first.v > cid.v || range.last.v < cid.v
                     : range.first.v <= answer->ranges[answer->count - 1].last.v)
            return SHOAL_EPROTO;
        if (range.value < SH_PEER_NID_MIN && (!is_first || sh_reader_left(r) > 0))
            return SHOAL_EPROTO;
        answer->ranges[answer->count++] = range;
    } while (sh_reader_left(r) > 0);
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
    struct sh_lookup_answer answer;
    if (!err)
        err = sh_lookup_answer_get(payload, op->cid, &answer);
    if (err) {
        end(op, err, SHOAL_NID_NONE);
        return;
    }
    shoal_nid owner = {(uint16_t)answer.ranges[0].value};
    if (owner.v < SH_PEER_NID_MIN) {
        on_redirected(op, owner);
        return;
    }
    sh_lock_take(&directory->lock);
    cache_put(directory, &answer);
    sh_lock_release(&directory->lock);
    end(op, SHOAL_OK, owner);
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
    atomic_fetch_add_explicit(&directory->requests, 1, memory_order_relaxed);
    sh_put64(&out.w, op->cid.v);
    sh_put64(&out.w, epoch);
    sh_msg_end(directory->msg, &out);
}

/* As sh_directory_owner, for who has asked that before: it is not counted again. */
static enum shoal_err owner_again(struct sh_directory *directory, shoal_cid cid, shoal_nid *nid_out)
{
    struct sh_range range;
    shoal_nid creator = shoal_cid_creator(cid);
    if (sh_lookups_look(directory->lookups, cid, &range)) {
        *nid_out = (shoal_nid){(uint16_t)range.value};
        return SHOAL_OK;
    }
    if (creator.v < SH_PEER_NID_MIN || creator.v > SH_PEER_NID_MAX)
        return SHOAL_ENOCHUNK;
    return SHOAL_EAGAIN;
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
    enum shoal_err err = owner_again(directory, cid, &nid);
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
