#include "msg/flow_int.h"

#include "base/assert.h"

#define BYTES_BITS 40
#define BYTES_MASK ((UINT64_C(1) << BYTES_BITS) - 1)

void sh_flow_reset(struct sh_flow *flow, uint32_t generation)
{
    flow->received = flow->handed_on = flow->collected = flow->told = 0;
    flow->sent = 0;
    flow->limit = UINT64_MAX;
    atomic_store_explicit(&flow->enough, 0, memory_order_relaxed); /* the next look says it */
    /* relaxed: under the connection's lock; who is late compares the generation */
    atomic_store_explicit(&flow->is_shut, false, memory_order_relaxed);
    atomic_store_explicit(&flow->finished, (uint64_t)generation << BYTES_BITS,
                          memory_order_relaxed);
}

bool sh_flow_finished(struct sh_flow *flow, uint32_t generation, uint64_t bytes)
{
    uint64_t owner = (uint64_t)generation << BYTES_BITS;
    uint64_t word = atomic_load_explicit(&flow->finished, memory_order_relaxed);
    do {
        if ((word & ~BYTES_MASK) != owner)
            return false; /* that connection is gone */
        SH_ASSERT((word & BYTES_MASK) + bytes <= BYTES_MASK);
        /* seq_cst, before the look at what is enough: pairs with sh_flow_limit_due, which changes
         * that before it collects; so this is either collected there or compared with the change */
    } while (!atomic_compare_exchange_weak(&flow->finished, &word, word + bytes));
    return (word & BYTES_MASK) + bytes >= atomic_load(&flow->enough);
}

/* Takes over what handler steps have finished. */
static void collect(struct sh_flow *flow)
{
    /* seq_cst: as in sh_flow_finished; the first look saves writing for nothing */
    uint64_t word = atomic_load(&flow->finished);
    if ((word & BYTES_MASK) == 0)
        return;
    word = atomic_fetch_and(&flow->finished, ~BYTES_MASK);
    flow->collected += word & BYTES_MASK;
    SH_ASSERT(flow->collected <= flow->handed_on);
}

bool sh_flow_limit_due(struct sh_flow *flow, uint32_t window, uint64_t *limit_out)
{
    SH_ASSERT(window >= SH_FLOW_WINDOW_MIN);
    /* What is enough is measured by the window of this look, as what is left untold at it is:
     * together that is less than the other side may still send. A window of a later time could be
     * so much larger that nobody ever finished a quarter of it. */
    if (atomic_load_explicit(&flow->enough, memory_order_relaxed) != window / 4)
        atomic_store(&flow->enough, window / 4);
    collect(flow);
    SH_ASSERT(flow->handed_on <= flow->received);
    uint64_t limit = flow->received - flow->handed_on + flow->collected + window;
    uint64_t first = window / 4 < SH_FLOW_FIRST / 2 ? window / 4 : SH_FLOW_FIRST / 2;
    bool is_due = flow->told == 0 ? flow->received >= first
                                  : limit >= flow->told && limit - flow->told >= window / 2;
    if (is_due)
        *limit_out = limit;
    return is_due;
}

void sh_flow_sent(struct sh_flow *flow, uint64_t bytes)
{
    flow->sent += bytes;
    if (flow->sent >= flow->limit)
        atomic_store_explicit(&flow->is_shut, true, memory_order_relaxed);
}

bool sh_flow_limit_set(struct sh_flow *flow, uint64_t limit)
{
    if (flow->limit != UINT64_MAX && limit <= flow->limit)
        return false;
    flow->limit = limit;
    bool was_shut = sh_flow_is_shut(flow);
    bool is_shut = flow->sent >= limit;
    atomic_store_explicit(&flow->is_shut, is_shut, memory_order_relaxed);
    return was_shut && !is_shut;
}
