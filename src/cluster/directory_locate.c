/* Lookups: asking the superpeer of the creator's arc, once for all who want to know. */
#include "base/assert.h"
#include "base/log.h"
#include "cluster/directory_int.h"
#include "cluster/proto.h"

static enum shoal_err err_of(const struct sh_range *range)
{
    switch (range->value) {
    case SH_LOOKUP_NOBODY:
        return SHOAL_ENOCHUNK;
    case SH_LOOKUP_FAILED:
        return SHOAL_EFAILED;
    case SH_LOOKUP_LOST:
        return SHOAL_ELOST;
    default:
        return SHOAL_OK;
    }
}

/* --- What nobody has --------------------------------------------------------------------------
 *
 * What is cached of owners may be out of date, since they say so. Of a chunk that nobody has nobody
 * says that it is there by now: its node may have joined, or come back. So such an answer is good
 * for those lookups only that began before its question was sent: all of a call for many chunks,
 * and all that were waiting. Questions have numbers, and a lookup's mark says which of them are
 * behind its beginning. */

static void gap_put(struct sh_directory *directory, const struct sh_range *range, uint64_t number)
{
    directory->gaps[directory->gap_next++ % SH_GAPS_MAX] = (struct sh_gap){
        .first = range->first, .last = range->last, .err = err_of(range), .number = number};
}

/* ENOCHUNK, EFAILED, ELOST; OK: not known. */
static enum shoal_err gap_find(const struct sh_directory *directory, shoal_cid cid, uint64_t since)
{
    sh_lock_assert_held(&directory->lock);
    for (size_t i = 0; i < SH_GAPS_MAX; i++) {
        const struct sh_gap *gap = &directory->gaps[i];
        if (gap->err && gap->number >= since && gap->first.v <= cid.v && cid.v <= gap->last.v)
            return gap->err;
    }
    return SHOAL_OK;
}

uint64_t sh_directory_mark(struct sh_directory *directory)
{
    sh_lock_take(&directory->lock);
    uint64_t mark = directory->number + 1;
    sh_lock_release(&directory->lock);
    return mark;
}

/* --- Answers --------------------------------------------------------------------------------- */

/* Remembers an answer's ranges, but none whose owner is no more by the view: then the answer is
 * older than the view. An owner that the view does not have yet is newer. */
static void answer_put(struct sh_directory *directory, const struct sh_lookup_answer *answer,
                       uint64_t number)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_range ranges[SH_LOOKUP_RANGES_MAX];
    size_t count = 0;
    for (size_t i = 0; i < answer->count; i++) {
        const struct sh_range *range = &answer->ranges[i];
        if (err_of(range)) {
            gap_put(directory, range, number);
            continue;
        }
        int state = sh_directory_state(directory, (shoal_nid){(uint16_t)range->value});
        if (state < 0 || state == SH_NODE_UP)
            ranges[count++] = *range;
    }
    if (count > 0)
        sh_lookups_put_many(directory->lookups, ranges, count);
}

/* Takes op out of those that ask, and returns the first of those who wait for its answer. */
static struct sh_locate *asker_remove(struct sh_directory *directory, struct sh_locate *op)
{
    sh_lock_assert_held(&directory->lock);
    struct sh_locate **link = &directory->locating;
    while (*link != op)
        link = &(*link)->next;
    *link = op->next;
    struct sh_locate *last = op->followers;
    if (!last)
        return NULL;
    struct sh_locate *first = last->next;
    last->next = NULL;
    return first;
}

static void go_on(struct sh_directory *directory, struct sh_locate *op);

/* Ends one question: op gets the result. What it says of others' chunks those find in what is
 * remembered now, or else the first of them asks, and the others follow it; so too when op's time
 * was over, since theirs is not. An error that says nothing of a chunk is everybody's. */
static void end(struct sh_locate *op, enum shoal_err err, shoal_nid nid)
{
    struct sh_directory *directory = op->directory;
    shoal_cid cid = op->cid;
    sh_lock_take(&directory->lock);
    struct sh_locate *follower = asker_remove(directory, op);
    sh_lock_release(&directory->lock);
    op->done(op, err, nid);
    bool goes_on = err == SHOAL_OK || err == SHOAL_ENOCHUNK || err == SHOAL_EFAILED ||
                   err == SHOAL_ELOST || err == SHOAL_ETIMEOUT;
    while (follower) {
        struct sh_locate *next = follower->next;
        if (!goes_on || (err == SHOAL_OK && follower->cid.v == cid.v))
            follower->done(follower, err, nid);
        else
            go_on(directory, follower);
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
        bool is_gap = err_of(&range);
        if (!sh_reader_ok(r) || answer->count == SH_LOOKUP_RANGES_MAX ||
            (range.value > SH_PEER_NID_MAX && !is_gap) || range.last.v < range.first.v)
            return SHOAL_EPROTO;
        if (is_first ? range.first.v > cid.v || range.last.v < cid.v
                     : range.first.v <= answer->ranges[answer->count - 1].last.v)
            return SHOAL_EPROTO;
        if (range.value < SH_PEER_NID_MIN && !is_gap && (!is_first || sh_reader_left(r) > 0))
            return SHOAL_EPROTO;
        answer->ranges[answer->count++] = range;
    } while (sh_reader_left(r) > 0);
    return SHOAL_OK;
}

static void ask(struct sh_locate *op, shoal_nid superpeer);

/* Another superpeer owns the shard; while they pass it on, they may point at each other. */
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
    enum shoal_err gap = err_of(&answer.ranges[0]);
    if (!gap && owner.v < SH_PEER_NID_MIN) {
        on_redirected(op, owner);
        return;
    }
    sh_lock_take(&directory->lock);
    answer_put(directory, &answer, op->mark);
    sh_lock_release(&directory->lock);
    end(op, gap, gap ? SHOAL_NID_NONE : owner);
}

/* Queues op behind another question about the same creator, if there is one that is over before
 * op's own time is: then nobody needs to look after op's deadline but who asks. */
static bool follow(struct sh_directory *directory, struct sh_locate *op)
{
    sh_lock_assert_held(&directory->lock);
    for (struct sh_locate *asker = directory->locating; asker; asker = asker->next) {
        if (shoal_cid_creator(asker->cid).v != shoal_cid_creator(op->cid).v ||
            asker->deadline_ns > op->deadline_ns)
            continue;
        struct sh_locate *last = asker->followers;
        op->next = last ? last->next : op;
        if (last)
            last->next = op;
        asker->followers = op;
        return true;
    }
    op->followers = NULL;
    op->next = directory->locating;
    directory->locating = op;
    return false;
}

static void ask(struct sh_locate *op, shoal_nid superpeer)
{
    struct sh_directory *directory = op->directory;
    sh_lock_take(&directory->lock);
    uint64_t epoch = directory->view.epoch;
    op->mark = ++directory->number; /* who asks has no need of its own mark any more */
    sh_lock_release(&directory->lock);
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

/* Ends op with what is known, or what can't be; else it follows another one, or asks. */
static void go_on(struct sh_directory *directory, struct sh_locate *op)
{
    shoal_nid nid = SHOAL_NID_NONE;
    shoal_nid superpeer = SHOAL_NID_NONE;
    bool asks = false;
    uint64_t now = sh_now(&directory->clock);
    op->asked = 0;
    sh_lock_take(&directory->lock);
    enum shoal_err err = owner_again(directory, op->cid, &nid);
    enum shoal_err gap = err == SHOAL_EAGAIN ? gap_find(directory, op->cid, op->mark) : SHOAL_OK;
    if (gap)
        err = gap;
    else if (err == SHOAL_EAGAIN && !directory->view.superpeers)
        err = SHOAL_ENONODE;
    else if (err == SHOAL_EAGAIN && now >= op->deadline_ns)
        err = SHOAL_ETIMEOUT;
    if (err == SHOAL_EAGAIN) {
        asks = !follow(directory, op);
        superpeer = sh_directory_superpeer_locked(directory, shoal_cid_creator(op->cid));
    }
    sh_lock_release(&directory->lock);
    if (err != SHOAL_EAGAIN) {
        op->done(op, err, nid);
        return;
    }
    if (asks)
        ask(op, superpeer);
}

void sh_directory_locate(struct sh_directory *directory, shoal_cid cid, struct sh_locate *op)
{
    SH_ASSERT(op->done);
    op->cid = cid;
    op->directory = directory;
    if (!op->deadline_ns)
        op->deadline_ns = sh_now(&directory->clock) + sh_msg_request_timeout(directory->msg);
    if (!op->mark)
        op->mark = sh_directory_mark(directory);
    go_on(directory, op);
}

void sh_directory_locate_stop(struct sh_directory *directory)
{
    while (directory->locating) {
        struct sh_locate *op = directory->locating;
        (void)sh_msg_cancel(directory->msg, &op->request);
        end(op, SHOAL_ESTOPPED, SHOAL_NID_NONE);
    }
}
