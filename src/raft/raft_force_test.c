/* One server of three is forced to go on alone: with all that it has, in a log that the others do not
 * share, whatever they say. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "raft/raft_int.h"
#include "raft/raft_journal_test.h"

#define MS UINT64_C(1000000)
#define ELECTION (200 * MS)
#define SERVERS 3

static struct server {
    struct sh_raft *raft;
    struct memory_journal journal;
    uint64_t starts;
    char applied[256]; /* all commands, in order */
} servers[SERVERS + 1];

static uint64_t now_ns;

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    struct server *server = arg;
    size_t used = strlen(server->applied);
    (void)index;
    (void)term;
    assert_true(used + command.size < sizeof server->applied);
    memcpy(server->applied + used, command.at, command.size);
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

static struct sh_raft *make(struct server *server)
{
    struct sh_raft *raft;
    struct sh_raft_config config = {
        .server = (uint8_t)(server - servers),
        .first = {.voters = 14},
        .election_ns = ELECTION,
        .heartbeat_ns = ELECTION / 5,
        .snapshot_entries = 1000,
        .piece_bytes = 4096,
        .seed = ++server->starts * 10 + (uint64_t)(server - servers),
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, server},
    };
    assert_int_equal(sh_raft_create(&config, &raft), SHOAL_OK);
    memset(server->applied, 0, sizeof server->applied);
    return raft;
}

static void boot(struct server *server)
{
    server->raft = make(server);
    if (server->journal.disk)
        assert_int_equal(memory_journal_load(&server->journal, server->raft), SHOAL_OK);
    else
        memory_journal_open(&server->journal, server->raft);
    sh_raft_start(server->raft, server->journal.journal, 0, server->starts << 32 | 1, now_ns);
}

static void stop(struct server *server)
{
    if (server->raft)
        memory_journal_close(&server->journal);
    sh_raft_destroy(server->raft);
    server->raft = NULL;
}

static void run_for(uint64_t ns)
{
    for (uint64_t end_ns = now_ns + ns; now_ns < end_ns; now_ns += 10 * MS) {
        for (unsigned i = 1; i <= SERVERS; i++) {
            struct server *from = &servers[i];
            struct sh_raft_message *message;
            if (!from->raft)
                continue;
            sh_raft_tick(from->raft, now_ns);
            (void)memory_journal_sync(&from->journal, from->raft, now_ns);
            while ((message = sh_raft_message_next(from->raft))) {
                struct sh_raft *to = servers[message->to].raft;
                if (to)
                    sh_raft_receive(to, now_ns, (uint8_t)i,
                                    sh_bytes_make(message->bytes, message->size));
                free(message);
            }
        }
    }
}

static struct server *leader(void)
{
    for (unsigned i = 1; i <= SERVERS; i++)
        if (servers[i].raft && sh_raft_role(servers[i].raft) == SH_RAFT_LEADER)
            return &servers[i];
    return NULL;
}

static void propose(const char *command)
{
    uint64_t index, term;
    assert_non_null(leader());
    assert_int_equal(sh_raft_propose(leader()->raft, sh_bytes_text(command), &index, &term),
                     SHOAL_OK);
    run_for(2 * ELECTION);
}

static enum shoal_err force(struct server *server, const char *command)
{
    struct sh_raft *raft = make(server);
    assert_int_equal(memory_journal_load(&server->journal, raft), SHOAL_OK);
    enum shoal_err err = sh_raft_force(raft, server->journal.journal, 0, sh_bytes_text(command));
    while (!err &&
           sh_journal_synced(server->journal.journal) != sh_journal_last(server->journal.journal))
        (void)sh_journal_step(server->journal.journal, now_ns);
    memory_journal_close(&server->journal);
    sh_raft_destroy(raft);
    return err;
}

static void close_all(void)
{
    for (unsigned i = 1; i <= SERVERS; i++) {
        stop(&servers[i]);
        if (servers[i].journal.disk)
            servers[i].journal.disk->ops->destroy(servers[i].journal.disk);
    }
    memset(servers, 0, sizeof servers);
}

static void the_survivor_goes_on(void **state)
{
    (void)state;
    struct server *survivor = &servers[3];
    for (unsigned i = 1; i <= SERVERS; i++)
        boot(&servers[i]);
    run_for(10 * ELECTION);
    propose("a");
    propose("b");
    uint64_t log_id = sh_raft_log_id(survivor->raft);
    for (unsigned i = 1; i <= SERVERS; i++)
        stop(&servers[i]);
    assert_int_equal(force(survivor, "F"), SHOAL_OK);
    assert_int_equal(force(survivor, "G"), SHOAL_OK); /* again: as if it had been cut off */
    boot(survivor);
    run_for(4 * ELECTION);
    assert_ptr_equal(leader(), survivor);
    assert_string_equal(survivor->applied, "abFG");
    assert_int_not_equal(sh_raft_log_id(survivor->raft), log_id);
    assert_int_equal(sh_raft_members(survivor->raft).voters, 1 << 3);
    propose("c");
    /* The others, whose log is longer soon, are strangers, and the survivor goes on. */
    boot(&servers[1]);
    boot(&servers[2]);
    for (unsigned i = 0; i < 20; i++) {
        run_for(2 * ELECTION);
        struct server *other = leader();
        if (other && other != survivor)
            propose("x");
    }
    assert_int_equal(sh_raft_role(survivor->raft), SH_RAFT_LEADER);
    assert_int_equal(sh_raft_withdrawal(survivor->raft), SH_RAFT_TAKES_PART);
    assert_string_equal(survivor->applied, "abFGc");
    assert_true(strstr(servers[1].applied, "x"));
    stop(survivor);
    boot(survivor);
    run_for(4 * ELECTION);
    assert_string_equal(survivor->applied, "abFGc");
    close_all();
}

static void nothing_stored_is_not_forced(void **state)
{
    (void)state;
    struct server *server = &servers[1];
    assert_int_equal(sh_memory_disk_create(&server->journal.disk), SHOAL_OK);
    assert_int_equal(force(server, "F"), SHOAL_ENONAME);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_survivor_goes_on),
        cmocka_unit_test(nothing_stored_is_not_forced),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
