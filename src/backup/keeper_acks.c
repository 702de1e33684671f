/* ACKs: collected per owner, and sent together. */
#include "backup/keeper_int.h"
#include "base/assert.h"

#define ACKS_MAX 512u /* of one message */
#define RETRY_NS UINT64_C(1000000)

static void owner_dirty(struct sh_keeper *keeper, struct sh_keeper_owner *owner)
{
    if (owner->is_dirty)
        return;
    owner->is_dirty = true;
    owner->is_urgent = false;
    owner->due_ns = sh_now(&keeper->config.clock) + keeper->config.ack_ns;
    owner->next = keeper->dirty;
    keeper->dirty = owner;
    keeper->config.wake(keeper->config.arg);
}

void sh_kept_ack(struct sh_keeper *keeper, struct sh_kept *kept, enum sh_kept_ack ack)
{
    struct sh_keeper_owner *owner = kept->owner;
    if (kept->ack == SH_KEPT_ACK_NONE) {
        kept->next_ack = NULL;
        if (owner->last)
            owner->last->next_ack = kept;
        else
            owner->first = kept;
        owner->last = kept;
        owner_dirty(keeper, owner);
    }
    if (kept->ack < ack)
        kept->ack = (uint8_t)ack;
    if (ack == SH_KEPT_ACK_NOW && !owner->is_urgent) {
        owner->is_urgent = true;
        keeper->config.wake(keeper->config.arg);
    }
}

void sh_kept_ack_leave(struct sh_keeper *keeper, struct sh_kept *kept)
{
    struct sh_keeper_owner *owner = kept->owner;
    struct sh_kept *before = NULL;
    (void)keeper;
    if (kept->ack == SH_KEPT_ACK_NONE)
        return;
    for (struct sh_kept *at = owner->first; at != kept; at = at->next_ack)
        before = at;
    if (before)
        before->next_ack = kept->next_ack;
    else
        owner->first = kept->next_ack;
    if (owner->last == kept)
        owner->last = before;
    kept->ack = SH_KEPT_ACK_NONE;
}

/* The oldest one leaves the list. */
static struct sh_kept *ack_pop(struct sh_keeper_owner *owner)
{
    struct sh_kept *kept = owner->first;
    owner->first = kept->next_ack;
    if (!owner->first)
        owner->last = NULL;
    kept->ack = SH_KEPT_ACK_NONE;
    return kept;
}

void sh_keeper_acks_drop(struct sh_keeper *keeper, struct sh_keeper_owner *owner)
{
    (void)keeper;
    while (owner->first)
        (void)ack_pop(owner);
}

static enum sh_replication_state state_of(const struct sh_kept *kept)
{
    if (kept->is_again)
        return SH_REPLICATION_AGAIN;
    switch ((enum sh_kept_stream)kept->stream) {
    case SH_KEPT_FULL:
        return SH_REPLICATION_FULL;
    case SH_KEPT_GONE:
        return SH_REPLICATION_GONE;
    case SH_KEPT_LOST:
        return SH_REPLICATION_LOST;
    case SH_KEPT_GOES_ON:
    case SH_KEPT_WAITS:
        break;
    }
    return SH_REPLICATION_GOES_ON;
}

static void ack_put(struct sh_keeper *keeper, struct sh_kept *kept, struct sh_writer *w)
{
    SH_ASSERT(kept->state == SH_KEPT_OPEN);
    /* The cleaner may have found damage. */
    if (sh_replog_zone_damage(kept->log).slots && !kept->lost) {
        sh_kept_lose(keeper, kept, SHOAL_ECORRUPT);
        sh_kept_ack_leave(keeper, kept);
    }
    const struct sh_replication_ack ack = {.zone = kept->id,
                                           .incarnation = kept->incarnation,
                                           .next = sh_replog_next(kept->log),
                                           .part = kept->part,
                                           .durable = sh_replog_durable(kept->log),
                                           .state = state_of(kept)};
    sh_replication_ack_put(w, &ack);
    kept->is_again = false;
    kept->unacked = 0;
    keeper->status.acks++;
}

static unsigned acks_count(const struct sh_keeper_owner *owner)
{
    unsigned count = 0;
    for (const struct sh_kept *kept = owner->first; kept && count < ACKS_MAX; kept = kept->next_ack)
        count++;
    return count;
}

/* Sends what is to be told to an owner. False: some of it has to wait. */
static bool owner_send(struct sh_keeper *keeper, struct sh_keeper_owner *owner, uint64_t now_ns)
{
    struct sh_msg *msg = keeper->config.msg;
    unsigned count;
    while ((count = acks_count(owner)) > 0) {
        struct sh_out out;
        enum shoal_err err = sh_msg_begin(msg, owner->nid, SH_REPLICATION_ACKS,
                                          (size_t)count * SH_REPLICATION_ACK_BYTES, &out);
        if (err == SHOAL_EAGAIN) {
            owner->due_ns = now_ns + RETRY_NS;
            owner->is_urgent = false;
            return false;
        }
        if (err) { /* OPEN comes again */
            sh_keeper_acks_drop(keeper, owner);
            break;
        }
        while (count-- > 0)
            ack_put(keeper, ack_pop(owner), &out.w);
        sh_msg_end(msg, &out);
        keeper->status.ack_messages++;
    }
    return true;
}

/* False: there is no room now. */
static bool gone_send(struct sh_keeper *keeper, const struct sh_keeper_gone *gone)
{
    struct sh_msg *msg = keeper->config.msg;
    const struct sh_replication_ack ack = {
        .zone = gone->zone, .incarnation = gone->incarnation, .state = SH_REPLICATION_GONE};
    struct sh_out out;
    enum shoal_err err =
        sh_msg_begin(msg, gone->to, SH_REPLICATION_ACKS, SH_REPLICATION_ACK_BYTES, &out);
    if (err)
        return err != SHOAL_EAGAIN;
    sh_replication_ack_put(&out.w, &ack);
    sh_msg_end(msg, &out);
    keeper->status.acks++;
    keeper->status.ack_messages++;
    return true;
}

void sh_keeper_gone_tell(struct sh_keeper *keeper, const struct sh_keeper_gone *gone)
{
    if (gone_send(keeper, gone) || keeper->gone_count == SH_KEEPER_GONE_MAX)
        return;
    keeper->gone_ns = sh_now(&keeper->config.clock) + RETRY_NS;
    keeper->gone[keeper->gone_count++] = *gone;
    keeper->config.wake(keeper->config.arg);
}

static unsigned gone_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    unsigned left = 0, before = keeper->gone_count;
    if (!before || now_ns < keeper->gone_ns)
        return 0;
    for (unsigned i = 0; i < before; i++) {
        if (!gone_send(keeper, &keeper->gone[i]))
            keeper->gone[left++] = keeper->gone[i];
    }
    keeper->gone_count = left;
    keeper->gone_ns = now_ns + RETRY_NS;
    return before - left;
}

unsigned sh_keeper_acks_step(struct sh_keeper *keeper, uint64_t now_ns)
{
    struct sh_keeper_owner **at = &keeper->dirty, *owner;
    unsigned work = gone_step(keeper, now_ns);
    while ((owner = *at)) {
        bool is_due = owner->is_urgent || owner->due_ns <= now_ns || !owner->first;
        if (!is_due || !owner_send(keeper, owner, now_ns)) {
            at = &owner->next;
            continue;
        }
        owner->is_dirty = false;
        owner->is_urgent = false;
        *at = owner->next;
        work++;
    }
    return work;
}

uint64_t sh_keeper_acks_due_ns(const struct sh_keeper *keeper)
{
    uint64_t due_ns = keeper->gone_count ? keeper->gone_ns : UINT64_MAX;
    for (const struct sh_keeper_owner *owner = keeper->dirty; owner; owner = owner->next) {
        uint64_t its_ns = owner->is_urgent ? 0 : owner->due_ns;
        due_ns = its_ns < due_ns ? its_ns : due_ns;
    }
    return due_ns;
}
