#include "msg/many.h"

#include "base/assert.h"

/* Counts one target, or the thread that asks, as through; the last one ends it all. */
static void through(struct sh_many *many)
{
    /* acq_rel: the last one sees what the others have written, err above all */
    if (atomic_fetch_sub_explicit(&many->left, 1, memory_order_acq_rel) > 1)
        return;
    if (many->all)
        many->all(many);
    else
        sh_waiter_complete(&many->waiter);
}

static void target_through(struct sh_many_target *target, enum shoal_err err,
                           struct sh_reader *payload)
{
    struct sh_many *many = target->many;
    target->err = err;
    if (many->each)
        many->each(many, target, err, payload);
    through(many);
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    target_through(request->arg, err, payload);
}

static void target_through_without(struct sh_many_target *target, enum shoal_err err)
{
    struct sh_reader nothing = sh_reader_make(sh_bytes_text(""));
    target_through(target, err, &nothing);
}

void sh_msg_request_many(struct sh_msg *msg, sh_msg_type type, struct sh_bytes payload,
                         struct sh_many *many)
{
    SH_ASSERT(many->count > 0);
    SH_ASSERT(!sh_waiter_done(&many->waiter));
    size_t count = many->count;
    /* One more for this thread, so that it ends only after the last has been asked. relaxed: the
     * requests publish it */
    atomic_store_explicit(&many->left, count + 1, memory_order_relaxed);
    /* All are filled in before the first is asked: each may look at the others. */
    for (size_t i = 0; i < count; i++) {
        struct sh_many_target *target = &many->targets[i];
        target->many = many;
        target->err = SHOAL_OK;
        target->request =
            (struct sh_request){.done = on_done, .arg = target, .timeout_ns = many->timeout_ns};
    }
    for (size_t i = 0; i < count; i++) {
        struct sh_many_target *target = &many->targets[i];
        struct sh_out out;
        enum shoal_err err =
            sh_msg_request(msg, target->nid, type, payload.size, &target->request, &out);
        if (err != SHOAL_OK) {
            target_through_without(target, err);
            continue;
        }
        sh_put_raw(&out.w, payload);
        sh_msg_end(msg, &out);
    }
    through(many);
}

bool sh_many_wait(const struct sh_caller *caller, struct sh_many *many, uint64_t deadline_ns)
{
    SH_ASSERT(many->all == NULL);
    return sh_crew_wait(caller->crew, caller->thread, &many->waiter, deadline_ns);
}

bool sh_many_done(const struct sh_many *many)
{
    /* acquire: what the targets were completed with */
    return atomic_load_explicit(&many->left, memory_order_acquire) == 0;
}

void sh_many_cancel(struct sh_msg *msg, struct sh_many *many)
{
    struct sh_many_target *targets = many->targets;
    /* The last cancel may end the handle: none is looked at after it. Counted as one more until all
     * have been tried. */
    size_t count = many->count;
    size_t left = atomic_load_explicit(&many->left, memory_order_relaxed);
    do {
        if (left == 0)
            return;
    } while (!atomic_compare_exchange_weak_explicit(&many->left, &left, left + 1,
                                                    memory_order_acq_rel, memory_order_relaxed));
    for (size_t i = 0; i < count; i++) {
        if (sh_msg_cancel(msg, &targets[i].request))
            target_through_without(&targets[i], SHOAL_ECANCELED);
    }
    through(many);
}
