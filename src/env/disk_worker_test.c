/* The worker of a disk: its owner waits for nothing that the disk does. */
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/open_files_test.h"
#include "env/disk_int.h"
#include "env/disk_worker_int.h"

/* A disk that does an operation when it is told to. */
struct slow {
    sem_t began;
    sem_t go;
    sem_t rung;
};

static void slow_run(void *arg, struct sh_disk_op *op)
{
    struct slow *slow = arg;
    sem_post(&slow->began);
    while (sem_wait(&slow->go))
        assert_int_equal(errno, EINTR);
    op->done_bytes = op->size;
}

static void slow_rung(void *arg)
{
    struct slow *slow = arg;
    sem_post(&slow->rung);
}

static void slow_init(struct slow *slow)
{
    assert_int_equal(sem_init(&slow->began, 0, 0), 0);
    assert_int_equal(sem_init(&slow->go, 0, 0), 0);
    assert_int_equal(sem_init(&slow->rung, 0, 0), 0);
}

static void owner_does_not_wait(void **state)
{
    (void)state;
    struct slow slow;
    struct sh_disk_worker *worker;
    struct sh_disk_op ops[SH_REAL_DISK_OPS_MAX] = {{.kind = SH_DISK_SYNC}};
    unsigned before = test_open_files();
    int file = dup(0);
    slow_init(&slow);
    assert_int_equal(sh_disk_worker_create(slow_run, &slow, &worker), SHOAL_OK);
    sh_disk_worker_wake_set(worker, slow_rung, &slow);
    for (unsigned i = 0; i < SH_REAL_DISK_OPS_MAX; i++) {
        ops[i].size = i + 1;
        sh_disk_worker_add(worker, &ops[i]);
        if (i == 3)
            assert_true(sh_disk_worker_close_file(worker, file));
    }
    assert_null(sh_disk_worker_take(worker, false));
    for (unsigned i = 0; i < SH_REAL_DISK_OPS_MAX; i++) {
        sem_post(&slow.go);
        while (sem_wait(&slow.rung))
            assert_int_equal(errno, EINTR);
        struct sh_disk_op *op = sh_disk_worker_take(worker, true);
        assert_ptr_equal(op, &ops[i]); /* in order */
        assert_int_equal(op->done_bytes, i + 1);
    }
    assert_null(sh_disk_worker_take(worker, true));
    assert_int_equal(test_open_files(), before);
    sh_disk_worker_destroy(worker);
}

/* Operations that are not bulk go before those that are, but for one after every eight. */
static void bulk_waits_its_turn(void **state)
{
    (void)state;
    enum { URGENT = 20, BULK = 4, TURN = SH_DISK_WORKER_TURN };
    struct slow slow;
    struct sh_disk_worker *worker;
    struct sh_disk_op urgent[URGENT] = {{.size = 1}}, bulk[BULK] = {{.size = 1}};
    slow_init(&slow);
    assert_int_equal(sh_disk_worker_create(slow_run, &slow, &worker), SHOAL_OK);
    sh_disk_worker_add(worker, &urgent[0]);
    while (sem_wait(&slow.began))
        assert_int_equal(errno, EINTR);
    for (unsigned i = 0; i < BULK; i++) {
        bulk[i].is_bulk = true;
        sh_disk_worker_add(worker, &bulk[i]);
    }
    for (unsigned i = 1; i < URGENT; i++)
        sh_disk_worker_add(worker, &urgent[i]);
    unsigned urgent_done = 0, bulk_done = 0;
    for (unsigned i = 0; i < URGENT + BULK; i++) {
        sem_post(&slow.go);
        const struct sh_disk_op *op = sh_disk_worker_take(worker, true);
        /* The first one began when nothing else was there. */
        bool is_bulks_turn = urgent_done == URGENT ||
                             (urgent_done == 1 + (bulk_done + 1) * TURN && bulk_done < BULK);
        if (is_bulks_turn)
            assert_ptr_equal(op, &bulk[bulk_done++]);
        else
            assert_ptr_equal(op, &urgent[urgent_done++]);
    }
    assert_int_equal(urgent_done + bulk_done, URGENT + BULK);
    sh_disk_worker_destroy(worker);
}

/* What waits is still done, and calls nobody. */
static void destroy_carries_out_what_waits(void **state)
{
    (void)state;
    struct slow slow;
    struct sh_disk_worker *worker;
    struct sh_disk_op ops[2] = {{.size = 1}, {.size = 2}};
    unsigned before = test_open_files();
    int rings;
    slow_init(&slow);
    assert_int_equal(sh_disk_worker_create(slow_run, &slow, &worker), SHOAL_OK);
    sh_disk_worker_wake_set(worker, slow_rung, &slow);
    sh_disk_worker_wake_set(worker, NULL, NULL);
    sh_disk_worker_add(worker, &ops[0]);
    sh_disk_worker_add(worker, &ops[1]);
    unsigned closed = 0;
    for (int file; (file = dup(0)) >= 0; closed++) {
        if (sh_disk_worker_close_file(worker, file))
            continue;
        close(file);
        break;
    }
    assert_true(closed > 0);
    sem_post(&slow.go);
    sem_post(&slow.go);
    sh_disk_worker_destroy(worker);
    assert_int_equal(ops[0].done_bytes, 1);
    assert_int_equal(ops[1].done_bytes, 2);
    assert_int_equal(test_open_files(), before);
    assert_int_equal(sem_getvalue(&slow.rung, &rings), 0);
    assert_int_equal(rings, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(owner_does_not_wait),
        cmocka_unit_test(bulk_waits_its_turn),
        cmocka_unit_test(destroy_carries_out_what_waits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
