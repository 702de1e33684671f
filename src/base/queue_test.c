#include "base/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka needs the four headers above. */
#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/random_test.h"

static void *item_of(uintptr_t number)
{
    return (void *)number;
}

static void test_full_refuses_and_empty_returns_null(void **state)
{
    (void)state;
    struct sh_queue *ring = NULL;
    assert_int_equal(sh_queue_create(2, &ring), SHOAL_OK);
    assert_null(sh_queue_pop(ring));
    assert_int_equal(sh_queue_count(ring), 0);
    assert_true(sh_queue_push(ring, item_of(1)));
    assert_true(sh_queue_push(ring, item_of(2)));
    assert_int_equal(sh_queue_count(ring), 2);
    assert_false(sh_queue_push(ring, item_of(3)));
    assert_ptr_equal(sh_queue_pop(ring), item_of(1));
    assert_true(sh_queue_push(ring, item_of(3)));
    assert_ptr_equal(sh_queue_pop(ring), item_of(2));
    assert_ptr_equal(sh_queue_pop(ring), item_of(3));
    assert_null(sh_queue_pop(ring));
    sh_queue_destroy(ring);
    sh_queue_destroy(NULL);
}

static void test_against_a_counting_model(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261120);
    struct sh_queue *ring = NULL;
    assert_int_equal(sh_queue_create(16, &ring), SHOAL_OK);
    uintptr_t pushed = 0, popped = 0;
    for (int i = 0; i < 100000; i++) {
        if (test_draw(&seed) % 2) {
            bool fits = pushed - popped < 16;
            assert_int_equal(sh_queue_push(ring, item_of(pushed + 1)), fits);
            pushed += fits;
        } else {
            void *item = sh_queue_pop(ring);
            assert_ptr_equal(item, pushed > popped ? item_of(popped + 1) : NULL);
            popped += item != NULL;
        }
        assert_int_equal(sh_queue_count(ring), pushed - popped);
    }
    sh_queue_destroy(ring);
}

#define PRODUCERS 3
#define CONSUMERS 3
#define ITEMS_EACH 20000

/* What a pointer in the ring names: written plainly by its producer, read plainly by whoever pops
 * it, so that the thread sanitizer sees whether the ring orders the two. */
struct parcel {
    unsigned producer;
    unsigned number;
};

struct stress {
    struct sh_queue *ring;
    struct parcel parcels[PRODUCERS][ITEMS_EACH];
    _Atomic unsigned popped;
    _Atomic unsigned disorders;
    unsigned char seen[CONSUMERS][PRODUCERS][ITEMS_EACH];
};

struct worker {
    struct stress *stress;
    unsigned index;
};

static void *produce(void *arg)
{
    struct worker *worker = arg;
    struct stress *stress = worker->stress;
    for (unsigned i = 0; i < ITEMS_EACH; i++) {
        struct parcel *parcel = &stress->parcels[worker->index][i];
        parcel->producer = worker->index;
        parcel->number = i;
        while (!sh_queue_push(stress->ring, parcel))
            sched_yield();
    }
    return NULL;
}

static void *consume(void *arg)
{
    struct worker *worker = arg;
    struct stress *stress = worker->stress;
    int last[PRODUCERS];
    for (int i = 0; i < PRODUCERS; i++)
        last[i] = -1;
    /* relaxed: counts only; the ring orders the parcels. */
    while (atomic_load_explicit(&stress->popped, memory_order_relaxed) < PRODUCERS * ITEMS_EACH) {
        struct parcel *parcel = sh_queue_pop(stress->ring);
        if (!parcel) {
            sched_yield();
            continue;
        }
        if ((int)parcel->number <= last[parcel->producer])
            atomic_fetch_add_explicit(&stress->disorders, 1, memory_order_relaxed);
        last[parcel->producer] = (int)parcel->number;
        stress->seen[worker->index][parcel->producer][parcel->number]++;
        atomic_fetch_add_explicit(&stress->popped, 1, memory_order_relaxed);
    }
    return NULL;
}

static void test_many_producers_and_consumers(void **state)
{
    (void)state;
    struct stress *stress = calloc(1, sizeof *stress);
    assert_non_null(stress);
    assert_int_equal(sh_queue_create(8, &stress->ring), SHOAL_OK);
    pthread_t threads[PRODUCERS + CONSUMERS];
    struct worker workers[PRODUCERS + CONSUMERS];
    for (unsigned i = 0; i < PRODUCERS + CONSUMERS; i++) {
        bool produces = i < PRODUCERS;
        workers[i] = (struct worker){stress, produces ? i : i - PRODUCERS};
        assert_int_equal(
            pthread_create(&threads[i], NULL, produces ? produce : consume, &workers[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS + CONSUMERS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    for (unsigned p = 0; p < PRODUCERS; p++) {
        for (unsigned i = 0; i < ITEMS_EACH; i++) {
            unsigned times = 0;
            for (unsigned c = 0; c < CONSUMERS; c++)
                times += stress->seen[c][p][i];
            assert_int_equal(times, 1);
        }
    }
    assert_int_equal(atomic_load_explicit(&stress->disorders, memory_order_relaxed), 0);
    assert_int_equal(sh_queue_count(stress->ring), 0);
    sh_queue_destroy(stress->ring);
    free(stress);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_full_refuses_and_empty_returns_null),
        cmocka_unit_test(test_against_a_counting_model),
        cmocka_unit_test(test_many_producers_and_consumers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
