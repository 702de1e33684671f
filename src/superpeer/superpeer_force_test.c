/* Forcing a survivor to go on alone, where it is refused: it must have taken part in what it holds. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "journal/journal.h"
#include "raft/raft.h"
#include "superpeer/superpeer_shared_int.h"

#define MS UINT64_C(1000000)
#define OWN 1

static struct sh_disk *disk;

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)command;
}

static size_t snapshot_size(void *arg)
{
    (void)arg;
    return 0;
}

static void snapshot_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    (void)w;
}

static enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    (void)arg;
    (void)snapshot;
    return SHOAL_OK;
}

static bool no_snapshot(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    (void)index_out;
    (void)term_out;
    return false;
}

static void propose(struct sh_raft *raft, enum sh_command_kind kind, uint64_t life)
{
    uint8_t bytes[64];
    uint64_t index, term;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_command command = {.kind = (uint8_t)kind, .nid = {OWN}, .instance = life};
    sh_command_put(&w, &command);
    assert_int_equal(
        sh_raft_propose(raft, sh_bytes_make(bytes, (size_t)(w.at - bytes)), &index, &term),
        SHOAL_OK);
}

/* A superpeer's folder, as it is when the superpeer has led alone and done what the test says. */
static void folder_fill(const struct sh_env *env, bool has_started)
{
    struct sh_raft *raft;
    struct sh_journal *journal = NULL;
    struct sh_journal_stream streams[SH_JOURNAL_STREAMS_MAX];
    char label[SH_JOURNAL_LABEL_BYTES_MAX];
    struct sh_raft_config raft_config = {
        .server = OWN,
        .first = {.voters = UINT64_C(1) << OWN},
        .election_ns = 100 * MS,
        .heartbeat_ns = 10 * MS,
        .snapshot_entries = 1024,
        .piece_bytes = 4096,
        .seed = 1,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL},
    };
    assert_int_equal(sh_raft_create(&raft_config, &raft), SHOAL_OK);
    struct sh_journal_config config = {.env = *env,
                                       .label = sh_superpeer_journal_label(OWN, label),
                                       .streams = streams,
                                       .streams_count = sh_superpeer_journal_streams()};
    for (unsigned i = 0; i < config.streams_count; i++)
        streams[i] = (struct sh_journal_stream){.snapshot_begin = no_snapshot};
    streams[SH_SUPERPEER_REGISTRY_STREAM] = sh_raft_stream(raft);
    assert_int_equal(sh_journal_open(&config, &journal), SHOAL_OK);
    uint64_t now_ns = MS;
    bool has_proposed = false;
    sh_raft_start(raft, journal, SH_SUPERPEER_REGISTRY_STREAM, UINT64_C(1) << 32 | 1, now_ns);
    for (unsigned i = 0; i < 400; i++, now_ns += MS) {
        sh_raft_tick(raft, now_ns);
        (void)sh_journal_step(journal, now_ns);
        (void)sh_disk_poll(env->disk, false);
        sh_raft_synced(raft, now_ns);
        if (!has_proposed && sh_raft_role(raft) == SH_RAFT_LEADER) {
            has_proposed = true;
            propose(raft, SH_COMMAND_SUPERPEER, 5);
            if (has_started)
                propose(raft, SH_COMMAND_RING, UINT64_C(1) << 32 | 1);
        }
    }
    assert_true(sh_raft_applied(raft) > 1);
    sh_journal_close(journal);
    sh_raft_destroy(raft);
}

static void who_never_took_part_is_not_forced(void **state)
{
    (void)state;
    for (unsigned has_started = 0; has_started < 2; has_started++) {
        uint16_t index = 99;
        assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
        struct sh_env env = {.clock = sh_real_clock(), .random = sh_real_random(), .disk = disk};
        folder_fill(&env, has_started);
        assert_int_equal(sh_superpeer_force(&env, "test", &index),
                         has_started ? SHOAL_OK : SHOAL_ENONODE);
        assert_int_equal(index, has_started ? OWN - 1 : 99);
        disk->ops->destroy(disk);
    }
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(who_never_took_part_is_not_forced)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
