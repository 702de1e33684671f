#include "msg/flow_int.h"

#include "base/assert.h"

#define BYTES_BITS 40
#define BYTES_MASK ((UINT64_C(1) << BYTES_BITS) - 1)

void sh_flow_reset(struct sh_flow *flow, uint32_t generation)
{
    flow->received = flow->handed_on = flow->collected = flow->told = 0;
    flow->sent = 0;
    flow->limit = UINT64_MAX;
    /* relaxed: under the connection's lock; who is late compares the generation */
    atomic_store_explicit(&flow->is_shut, false, memory_order_relaxed);
    atomic_store_explicit(&flow->finished, (uint64_t)generation << BYTES_BITS,
                          memory_order_relaxed);
}

bool sh_flow_finished(struct sh_flow *flow, uint32_t generation, uint64_t bytes, uint32_t window)
{
    uint64_t owner = (uint64_t)generation << BYTES_BITS;
    uint64_t word = atomic_load_explicit(&flow->finished, memory_order_relaxed);
    do {
        if ((word & ~BYTES_MASK) != owner)
            return false; /* that connection is gone */
        SH_ASSERT((word & BYTES_MASK) + bytes <= BYTES_MASK);
        /* relaxed: a count; the blocks that it speaks of have been given back by their own means */
    } while (!atomic_compare_exchange_weak_explicit(&flow->finished, &word, word + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    uint64_t before = word & BYTES_MASK, enough = window / 4;
    return before < enough && before + bytes >= enough;
}

/* Takes over what handler steps have finished. */
static void collect(struct sh_flow *flow)
{
    /* relaxed: as in sh_flow_finished */
    uint64_t word = atomic_load_explicit(&flow->finished, memory_order_relaxed);
    if ((word & BYTES_MASK) == 0)
        return;
    word = atomic_fetch_and_explicit(&flow->finished, ~BYTES_MASK, memory_order_relaxed);
    flow->collected += word & BYTES_MASK;
    SH_ASSERT(flow->collected <= flow->handed_on);
}

bool sh_flow_limit_due(struct sh_flow *flow, uint32_t window, uint64_t *limit_out)
{
    SH_ASSERT(window >= SH_FLOW_WINDOW_MIN);
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
