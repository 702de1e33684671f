/* Nodes of one size in a reserved range of addresses, and the queue of retired ones. */
#include <sys/mman.h>

#include "ranges/ranges_int.h"

/* Huge pages from here on: below it a tree is so small that they would only waste memory. */
#define HUGE_FROM ((size_t)8 << 20)

enum shoal_err sh_pool_create(struct sh_pool *pool, uint32_t words_each, uint32_t nodes_max,
                              uint32_t reserve, uint32_t deferred)
{
    SH_ASSERT(nodes_max > reserve && nodes_max <= INT32_MAX);
    size_t bytes = (size_t)nodes_max * words_each * sizeof(sh_word);
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return SHOAL_ENOMEM;
    /* Without huge pages it works as well, only slower. */
    if (bytes > HUGE_FROM)
        (void)madvise((uint8_t *)at + HUGE_FROM, bytes - HUGE_FROM, MADV_HUGEPAGE);
    pool->words = at;
    pool->words_each = words_each;
    pool->nodes_max = nodes_max;
    pool->reserve = reserve;
    pool->deferred = deferred;
    return SHOAL_OK;
}

void sh_pool_destroy(struct sh_pool *pool)
{
    if (pool->words)
        (void)munmap(pool->words, (size_t)pool->nodes_max * pool->words_each * sizeof(sh_word));
    pool->words = NULL;
}

bool sh_pool_take(struct sh_pool *pool, bool may_dip, uint32_t *index_out)
{
    /* relaxed: written by the changer, which this is */
    uint32_t touched = atomic_load_explicit(&pool->touched, memory_order_relaxed);
    uint32_t left = pool->nodes_max - touched + pool->retired;
    if (left <= (may_dip ? 0 : pool->reserve))
        return false;
    uint32_t index = touched;
    if (pool->retired > pool->deferred || touched == pool->nodes_max) {
        index = pool->oldest;
        pool->oldest = (uint32_t)sh_word_get(&sh_pool_node(pool, index)[1]);
        pool->retired--;
    } else {
        atomic_store_explicit(&pool->touched, touched + 1, memory_order_relaxed);
    }
    sh_word *node = sh_pool_node(pool, index);
    uint64_t head = sh_word_get(&node[0]);
    /* Before all else that is written there: a reader that sees any of it, sees this. */
    sh_word_set(&node[0], sh_head_make((uint32_t)head + 1, 0, sh_head_kind(head)));
    *index_out = index;
    return true;
}

void sh_pool_retire(struct sh_pool *pool, uint32_t index)
{
    if (pool->retired)
        sh_word_set(&sh_pool_node(pool, pool->newest)[1], index);
    else
        pool->oldest = index;
    pool->newest = index;
    pool->retired++;
}
