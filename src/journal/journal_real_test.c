/* The journal on a real disk, whose owner sleeps until it is woken. */
#include <errno.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "journal/journal.h"

#define SEGMENT_BYTES (256u << 10)
#define ENTRIES 3000
#define WAIT_S 60 /* no answer is awaited longer */

static char folder[256];
static sem_t rung;

struct log {
    uint64_t last, from;
    bool is_open;
};

static struct log logs[2];
static unsigned saves; /* snapshots of the journal's own that were begun */

static enum shoal_err load_state(void *arg, struct sh_bytes state)
{
    (void)arg;
    return state.size == 3 ? SHOAL_OK : SHOAL_ECORRUPT;
}

static enum shoal_err load_entry(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    struct log *log = arg;
    bool is_good = index == log->last + 1 && term == 7 && kind == 1 && bytes.size == 100 &&
                   sh_load64(bytes.at) == index;
    log->last = index;
    return is_good ? SHOAL_OK : SHOAL_ECORRUPT;
}

static enum shoal_err load_begin(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    struct log *log = arg;
    (void)term;
    if (is_first)
        log->last = index;
    log->from = index;
    return SHOAL_OK;
}

static enum shoal_err load_piece(void *arg, struct sh_bytes piece)
{
    struct log *log = arg;
    return piece.size == 8 && sh_load64(piece.at) == log->from ? SHOAL_OK : SHOAL_ECORRUPT;
}

static enum shoal_err load_end(void *arg, bool is_reset)
{
    (void)arg;
    return is_reset ? SHOAL_ECORRUPT : SHOAL_OK;
}

static enum shoal_err load_drop(void *arg)
{
    (void)arg;
    return SHOAL_ECORRUPT;
}

static bool save_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    saves++;
    struct log *log = arg;
    log->is_open = true;
    log->from = *index_out = log->last;
    *term_out = 7;
    return true;
}

static void save_entries(void *arg)
{
    (void)arg;
}

static size_t save_next(void *arg, uint8_t *into, size_t room)
{
    struct log *log = arg;
    assert_true(room >= 8);
    sh_store64(into, log->from);
    size_t size = log->is_open ? 8 : 0;
    log->is_open = false;
    return size;
}

static void save_end(void *arg, bool is_done)
{
    (void)arg;
    (void)is_done;
}

static void ring(void *arg)
{
    sem_post(arg);
}

static void await_ring(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WAIT_S;
    while (sem_timedwait(&rung, &until))
        assert_int_equal(errno, EINTR);
}

static enum shoal_err open_journal(struct sh_journal **journal_out, struct sh_disk **disk_out)
{
    struct sh_journal_stream streams[2];
    for (unsigned i = 0; i < 2; i++) {
        logs[i] = (struct log){.last = 0};
        streams[i] = (struct sh_journal_stream){load_state, load_entry, load_begin, load_piece,
                                                load_end,   load_drop,  save_begin, save_entries,
                                                save_next,  save_end,   &logs[i]};
    }
    assert_int_equal(sh_real_disk_create(folder, false, disk_out), SHOAL_OK);
    assert_int_equal(sh_disk_wake_set(*disk_out, ring, &rung), SHOAL_OK);
    struct sh_journal_config config = {
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .disk = *disk_out},
        .label = sh_bytes_text("real"),
        .segment_bytes = SEGMENT_BYTES,
        .bytes_kept = 4 * SEGMENT_BYTES,
        .streams = streams,
        .streams_count = 2};
    enum shoal_err err = sh_journal_open(&config, journal_out);
    if (err)
        (*disk_out)->ops->destroy(*disk_out);
    return err;
}

/* Steps until everything is synced, asleep whenever a step has nothing to do. */
static void sync_all(struct sh_journal *journal)
{
    struct sh_clock clock = sh_real_clock();
    while (sh_journal_synced(journal) < sh_journal_last(journal)) {
        uint64_t now_ns = sh_now(&clock);
        if (sh_journal_step(journal, now_ns))
            continue;
        assert_int_equal(sh_journal_trouble(journal), SHOAL_OK);
        await_ring();
    }
}

static void append(struct sh_journal *journal, unsigned stream)
{
    uint8_t bytes[100] = {0};
    uint64_t index = ++logs[stream].last;
    sh_store64(bytes, index);
    (void)sh_journal_append(journal, stream, index, 7, 1, sh_bytes_make(bytes, sizeof bytes));
}

static void appended_is_read_back(void **state)
{
    (void)state;
    uint64_t last[2] = {0, 0};
    for (unsigned life = 0; life < 3; life++) {
        struct sh_journal *journal;
        struct sh_disk *disk;
        assert_int_equal(open_journal(&journal, &disk), SHOAL_OK);
        assert_int_equal(logs[0].last, last[0]);
        assert_int_equal(logs[1].last, last[1]);
        (void)sh_journal_state_set(journal, 0, sh_bytes_text("abc"));
        for (unsigned i = 0; i < ENTRIES; i++) {
            append(journal, i % 2);
            if (i % 5 == 0)
                sync_all(journal);
        }
        sync_all(journal);
        assert_true(sh_journal_bytes(journal) <= 6 * SEGMENT_BYTES);
        last[0] = logs[0].last;
        last[1] = logs[1].last;
        sh_journal_close(journal);
        disk->ops->destroy(disk);
    }
}

/* While a snapshot is being installed no segment behind its beginning can go: others' snapshots would
 * only add to the journal, one after the other without end. */
static void open_install_adds_no_snapshots(void **state)
{
    (void)state;
    struct sh_journal *journal;
    struct sh_disk *disk;
    assert_int_equal(open_journal(&journal, &disk), SHOAL_OK);
    uint64_t before = sh_journal_bytes(journal);
    sh_journal_install_begin(journal, 1, 1, 1);
    saves = 0;
    for (unsigned i = 0; i < 10 * SEGMENT_BYTES / 4096; i++) {
        append(journal, 0);
        sync_all(journal);
    }
    assert_in_range(saves, 0, 1); /* stream 0's, whose last one was older */
    assert_in_range(sh_journal_bytes(journal), 0, before + 14 * SEGMENT_BYTES);
    sh_journal_install_cancel(journal, 1);
    for (unsigned i = 0; i < 4 * SEGMENT_BYTES / 4096; i++) {
        append(journal, 0);
        sync_all(journal);
    }
    assert_in_range(sh_journal_bytes(journal), 0, 8 * SEGMENT_BYTES);
    sh_journal_close(journal);
    disk->ops->destroy(disk);
}

/* A limit on the size of files stands in for a disk that can't be written. */
static void unwritable_disk_is_said_when_opening(void **state)
{
    (void)state;
    struct sh_journal *journal;
    struct sh_disk *disk;
    struct rlimit old, none = {.rlim_cur = 0};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    none.rlim_max = old.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    enum shoal_err err = open_journal(&journal, &disk);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(err, SHOAL_EIO);
    assert_int_equal(open_journal(&journal, &disk), SHOAL_OK);
    sh_journal_close(journal);
    disk->ops->destroy(disk);
}

static int folder_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/shoal-journal-XXXXXX", base ? base : "/tmp");
    return sem_init(&rung, 0, 0) || !mkdtemp(folder) ? -1 : 0;
}

static int folder_remove(void **state)
{
    (void)state;
    struct sh_env env = {.random = sh_real_random()};
    if (sh_real_disk_create(folder, false, &env.disk))
        return -1;
    sh_journal_remove(&env);
    env.disk->ops->destroy(env.disk);
    return rmdir(folder); /* nothing else is left there */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(appended_is_read_back),
        cmocka_unit_test(open_install_adds_no_snapshots),
        cmocka_unit_test(unwritable_disk_is_said_when_opening),
    };
    if (!getenv("SHOAL_TEST_LOG") && sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1; /* every error here is meant to be */
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
