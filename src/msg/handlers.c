/* Handler steps, and which of their threads is woken for a work.
 *
 * To wake all of them for each message costs more than most messages do: they get up, find that
 * another was faster, and lie down. So one that has nothing to do is woken, the first of them,
 * whose thread is the likeliest to be up; and until it has come no other is, by the same argument.
 * One that comes and leaves works behind wakes the next, so that slow handlers run side by side.
 *
 * No work is left lying. Who queues one looks at `idle` after it, by a read-modify-write, as a
 * handler step does that sets its bit and then looks at the queue again: either it finds the work,
 * or its bit is seen. handler_called says who was woken and has not come: that step clears it, by a
 * read-modify-write too, before it looks at the queue. Who finds no bit set leaves the work to
 * steps that are busy, each of which looks again before it sets its bit. */
#include "msg/msg_int.h"

/* How many messages a handler step runs before the other steps have their turn, if it has not taken
 * its share of time before. */
#define HANDLED_AT_ONCE 32

void sh_handlers_wake(struct sh_msg *msg)
{
    /* acq_rel, for a load: see above */
    uint64_t idle = atomic_fetch_or_explicit(&msg->handlers_idle, 0, memory_order_acq_rel);
    if (idle == 0)
        return;
    unsigned handler = (unsigned)__builtin_ctzll(idle);
    uint32_t nobody = 0;
    /* acq_rel, for a load: the same. Where the swap fails another has called one since, who comes
     * after both. */
    if (atomic_fetch_or_explicit(&msg->handler_called, 0, memory_order_acq_rel) != 0 ||
        !atomic_compare_exchange_strong_explicit(&msg->handler_called, &nobody, handler + 1,
                                                 memory_order_acq_rel, memory_order_relaxed))
        return;
    if (msg->config.wake_handler)
        msg->config.wake_handler(msg->config.arg, handler);
    else
        msg->config.wake_handlers(msg->config.arg);
}

/* The step has come, if it was called. */
static void handler_came(struct sh_msg *msg, const struct sh_handler_step *step)
{
    /* relaxed first look: who was woken sees why, and others need not */
    if (atomic_load_explicit(&msg->handler_called, memory_order_relaxed) == step->index + 1)
        (void)atomic_exchange_explicit(&msg->handler_called, 0, memory_order_acq_rel);
}

/* The next work, and says whether the step is busy; NULL: there is none. */
static struct sh_work *work_next(struct sh_msg *msg, struct sh_handler_step *step)
{
    if (step->unfinished)
        return step->unfinished;
    uint64_t bit = UINT64_C(1) << step->index;
    struct sh_work *work = sh_queue_pop(msg->works_ready);
    if (!work && step->is_busy) {
        step->is_busy = false;
        (void)atomic_fetch_or_explicit(&msg->handlers_idle, bit, memory_order_acq_rel);
        work = sh_queue_pop(msg->works_ready);
    }
    if (work && !step->is_busy) {
        step->is_busy = true;
        (void)atomic_fetch_and_explicit(&msg->handlers_idle, ~bit, memory_order_acq_rel);
        if (sh_queue_count(msg->works_ready) > 0)
            sh_handlers_wake(msg);
    }
    return work;
}

static unsigned handlers_run(void *arg)
{
    struct sh_handler_step *step = arg;
    struct sh_msg *msg = step->msg;
    unsigned done = 0;
    struct sh_work *work;
    handler_came(msg, step);
    while (done < HANDLED_AT_ONCE && !(done > 0 && sh_step_spent()) &&
           (work = work_next(msg, step))) {
        step->unfinished = sh_work_run(msg, work) ? work : NULL;
        done++;
        if (step->unfinished)
            break; /* it has taken what a step may */
    }
    if (step->unfinished) {
        /* It stays busy, and what waits is for others. */
        if (sh_queue_count(msg->works_ready) > 0)
            sh_handlers_wake(msg);
    } else if (step->is_busy) {
        /* It is to be called for what comes until it runs again. */
        step->is_busy = false;
        (void)atomic_fetch_or_explicit(&msg->handlers_idle, UINT64_C(1) << step->index,
                                       memory_order_acq_rel);
    }
    return done;
}

struct sh_step sh_msg_handler_step(struct sh_msg *msg)
{
    SH_ASSERT(msg->handler_steps_count < SH_CREW_THREADS_MAX);
    struct sh_handler_step *step = &msg->handler_steps[msg->handler_steps_count];
    *step = (struct sh_handler_step){.msg = msg, .index = msg->handler_steps_count++};
    (void)atomic_fetch_or_explicit(&msg->handlers_idle, UINT64_C(1) << step->index,
                                   memory_order_acq_rel);
    return (struct sh_step){.name = "handlers", .run = handlers_run, .arg = step};
}
