/* Servers of raft in a simulated world, for raft_test.c: a network of their own that loses,
 * doubles, delays and partitions; a register that they replicate; and what must hold whatever
 * happens:
 *
 *   election safety       at most one leader in a term (Raft, figure 3)
 *   state machine safety  no two servers apply different commands at one index; a snapshot holds
 * what was applied up to its index log matching          two logs with the same term at an index
 * agree up to it linearizability       of what clients saw of the register (sim/linear.h) */
#ifndef TESTS_RAFT_RIG_INT_H
#define TESTS_RAFT_RIG_INT_H

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/assert.h"
#include "journal/journal.h"
#include "raft/raft.h"
#include "sim/linear.h"
#include "sim/world.h"
#include "tests/copies_int.h"
#include "tests/raft_durable_int.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define ELECTION (200 * MS)
#define HEARTBEAT (40 * MS)
#define SERVERS_MAX 6
#define INDEX_MAX 4096
#define TERM_MAX 4096
#define CALLS_MAX 200
#define SNAPSHOT_BYTES 200 /* more than a piece */
/* The first byte of two of raft's messages (raft_int.h). */
#define MESSAGE_APPEND 3
#define MESSAGE_APPEND_ANSWER 4

struct call {
    enum { CALL_NONE, CALL_COMMAND, CALL_READ } what;
    unsigned op; /* in the history */
    uint64_t index, term, life;
    uint64_t begin_ns; /* by the clock of the server that is asked */
};

struct rig;

struct server {
    struct rig *rig;
    unsigned node;
    uint8_t number;
    struct sh_raft *raft;
    struct sh_journal *journal;
    uint64_t starts; /* of its folder */
    struct state state;
    struct letter *inbox, **inbox_end;
    bool forgets; /* its disk is empty at the next boot */
    bool speaks;  /* it has stored that it is not recovering: it led or agreed to something since */
    uint64_t life; /* since it forgot last: letters of an earlier life are lost */
    uint64_t boots;
    bool is_apart; /* it replicates a log of its own: what it applies is compared with nobody's */
    enum shoal_err boot_err;
    struct durable durable; /* its disk */
};

struct letter {
    struct letter *next, **before; /* in flight: all of them, for the end */
    struct letter *in_next;
    uint8_t from, to;
    uint64_t from_life, to_life;
    struct sh_raft_message *message;
};

struct rig {
    struct sh_world *world;
    struct sh_prng prng;
    struct server servers[SERVERS_MAX];
    unsigned count;
    struct sh_raft_members first;
    uint32_t snapshot_entries, snapshot_entries_told; /* told: 0: drawn */
    struct lines lines;
    struct letter *letters;
    uint8_t leaders[TERM_MAX];
    struct chosen chosen[INDEX_MAX];
    uint64_t chosen_last;
    uint64_t committed; /* by any leader */
    struct linear_op ops[CALLS_MAX];
    struct call calls[CALLS_MAX];
    unsigned ops_count;
    unsigned answered;
    uint64_t seed;
    unsigned leaders_count, snapshots, member_changes;
    unsigned unjudged;  /* histories that were too large for the check of linearizability */
    bool reads_at_once; /* the planted bug: whoever believes to lead answers reads */
    const char *broken; /* the first property that did not hold */
};

static void violated(struct rig *rig, const char *what)
{
    if (!rig->broken)
        rig->broken = what;
}

static uint64_t now_at(const struct server *server)
{
    return sh_now(&sh_world_env(server->rig->world, server->node)->clock);
}

/* --- The state machine ----------------------------------------------------------------------- */

static uint64_t hash_of(uint64_t before, uint64_t index, uint64_t term, struct sh_bytes command)
{
    uint64_t hash = sh_mix64(before + sh_mix64(index) + 3 * term);
    return sh_mix64(hash + sh_crc32c(0, command));
}

/* All who apply an index must get there with the same history. */
static void check_chosen(struct rig *rig, const struct state *state)
{
    if (state->applied >= INDEX_MAX) {
        violated(rig, "the test's table is too small");
        return;
    }
    if (!chosen_holds(&rig->chosen[state->applied], state))
        violated(rig, "two servers applied different commands");
    if (state->applied > rig->chosen_last)
        rig->chosen_last = state->applied;
}

static struct call *call_at(struct server *server, uint64_t index, uint64_t term, bool *is_lost_out)
{
    struct rig *rig = server->rig;
    for (unsigned i = 0; i < rig->ops_count; i++) {
        struct call *call = &rig->calls[i];
        if (call->what == CALL_COMMAND && call->index == index &&
            call->life == server->boots + 1000 * server->number) {
            *is_lost_out = call->term != term;
            return call;
        }
    }
    return NULL;
}

static void call_end(struct rig *rig, struct call *call, enum linear_result result, uint64_t got)
{
    struct linear_op *op = &rig->ops[call->op];
    op->end = sh_world_now(rig->world);
    op->result = result;
    op->got = got;
    call->what = CALL_NONE;
    rig->answered++;
}

/* The call had no effect and got no answer: as if it had never been made. */
static void call_drop(struct rig *rig, struct call *call)
{
    rig->ops[call->op].key = 1;
    call->what = CALL_NONE;
}

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    struct server *server = arg;
    struct state *state = &server->state;
    uint64_t value;
    if (index <= state->applied)
        violated(server->rig, "a command was applied again");
    enum linear_result result = command_apply(state, command, &value);
    state->applied = index;
    state->hash = hash_of(state->hash, index, term, command);
    if (!server->is_apart)
        check_chosen(server->rig, state);
    bool is_lost;
    struct call *call = call_at(server, index, term, &is_lost);
    if (call && is_lost)
        call_drop(server->rig, call);
    else if (call)
        call_end(server->rig, call, result, value);
}

static size_t snapshot_size(void *arg)
{
    (void)arg;
    return SNAPSHOT_BYTES;
}

static void snapshot_put(void *arg, struct sh_writer *w)
{
    struct server *server = arg;
    uint8_t padding[SNAPSHOT_BYTES - STATE_BYTES];
    memset(padding, 7, sizeof padding);
    state_put(w, &server->state);
    sh_put_raw(w, sh_bytes_make(padding, sizeof padding));
}

static enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    struct server *server = arg;
    struct sh_reader r = sh_reader_make(snapshot);
    struct state state = state_get(&r);
    if (snapshot.size != SNAPSHOT_BYTES)
        return SHOAL_ECORRUPT;
    server->state = state;
    server->rig->snapshots++;
    if (state.applied)
        check_chosen(server->rig, &state);
    return SHOAL_OK;
}

/* --- The network ----------------------------------------------------------------------------- */

static void letter_free(struct letter *letter)
{
    *letter->before = letter->next;
    if (letter->next)
        letter->next->before = letter->before;
    free(letter->message);
    free(letter);
}

static void deliver(void *arg, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct letter *letter = arg;
    struct server *from = NULL, *to = NULL;
    from = (struct server *)(uintptr_t)a;
    to = (struct server *)(uintptr_t)b;
    struct rig *rig = to->rig;
    if (rig->lines.blocked[from - rig->servers][to - rig->servers] ||
        !sh_world_is_up(rig->world, to->node) || letter->from_life != from->life ||
        letter->to_life != to->life || !to->raft) {
        letter_free(letter);
        return;
    }
    *to->inbox_end = letter;
    to->inbox_end = &letter->in_next;
}

static void post(struct server *from, const struct sh_raft_message *message)
{
    struct rig *rig = from->rig;
    struct server *to = &rig->servers[message->to - 1];
    if (message->to > rig->count)
        return;
    struct letter *letter = calloc(1, sizeof *letter);
    assert_non_null(letter);
    size_t size = sizeof *message + message->size;
    letter->message = malloc(size);
    assert_non_null(letter->message);
    memcpy(letter->message, message, size);
    letter->from = from->number;
    letter->to = message->to;
    letter->from_life = from->life;
    letter->to_life = to->life;
    letter->next = rig->letters;
    letter->before = &rig->letters;
    if (letter->next)
        letter->next->before = &letter->next;
    rig->letters = letter;
    uint64_t delay_ns = MS / 10 + sh_prng_below(&rig->prng, rig->lines.delay_ns_max);
    sh_world_at(rig->world, sh_world_now(rig->world) + delay_ns, deliver, letter, (uintptr_t)from,
                (uintptr_t)to);
}

static void inbox_drop(struct server *server)
{
    while (server->inbox) {
        struct letter *letter = server->inbox;
        server->inbox = letter->in_next;
        letter_free(letter);
    }
    server->inbox_end = &server->inbox;
}

/* --- Servers --------------------------------------------------------------------------------- */

/* A leader answers a read once it surely led after the read began, and has applied all that it held
 * by then: what was committed before is among that. */
static enum shoal_err read_state(const struct server *server, const struct call *call)
{
    const struct sh_raft *raft = server->raft;
    if (server->rig->reads_at_once)
        return SHOAL_OK;
    if (sh_raft_role(raft) != SH_RAFT_LEADER || sh_raft_term(raft) != call->term)
        return SHOAL_EROLE;
    return sh_raft_led_ns(raft, now_at(server)) > call->begin_ns &&
                   sh_raft_applied(raft) >= call->index
               ? SHOAL_OK
               : SHOAL_EAGAIN;
}

static void reads_look(struct server *server)
{
    struct rig *rig = server->rig;
    for (unsigned i = 0; i < rig->ops_count; i++) {
        struct call *call = &rig->calls[i];
        if (call->what != CALL_READ || call->life != server->boots + 1000 * server->number)
            continue;
        enum shoal_err err = read_state(server, call);
        if (err == SHOAL_OK)
            call_end(rig, call, server->state.present ? LINEAR_OK : LINEAR_ABSENT,
                     server->state.value);
        else if (err != SHOAL_EAGAIN)
            call_drop(rig, call);
    }
}

/* By what is on the disks. Those of a log of its own are compared with nobody's. */
static void check_durable(struct server *server)
{
    struct rig *rig = server->rig;
    const struct durable *durables[SERVERS_MAX];
    for (unsigned i = 0; i < rig->count; i++)
        durables[i] = &rig->servers[i].durable;
    const char *wrong = durable_check_leader(&server->durable, server->raft, durables, rig->count);
    if (wrong)
        violated(rig, wrong);
}

static void check_leader(struct server *server)
{
    struct rig *rig = server->rig;
    uint64_t term = sh_raft_term(server->raft), commit = sh_raft_commit(server->raft);
    /* One that has committed that it is no voter any more leads no longer. */
    bool leads = sh_raft_role(server->raft) == SH_RAFT_LEADER;
    bool led = leads || server->durable.led_term == term;
    if (led)
        check_durable(server);
    if (commit > rig->committed && !led && !server->is_apart)
        violated(rig, "a follower knows as committed what no leader has committed");
    if (commit > rig->committed && !server->is_apart)
        rig->committed = commit;
    if (!leads)
        return;
    if (term >= TERM_MAX) {
        violated(rig, "elections without end");
        return;
    }
    if (!rig->leaders[term])
        rig->leaders_count++;
    if (rig->leaders[term] && rig->leaders[term] != server->number)
        violated(rig, "two leaders in one term");
    rig->leaders[term] = server->number;
}

static unsigned server_step(void *arg)
{
    struct server *server = arg;
    struct rig *rig = server->rig;
    uint64_t now_ns = now_at(server);
    unsigned work = 0;
    while (server->inbox && work < 4) {
        struct letter *letter = server->inbox;
        server->inbox = letter->in_next;
        if (!server->inbox)
            server->inbox_end = &server->inbox;
        sh_raft_receive(server->raft, now_ns, letter->from,
                        sh_bytes_make(letter->message->bytes, letter->message->size));
        check_leader(server);
        letter_free(letter);
        work++;
    }
    if (now_ns >= sh_raft_due_ns(server->raft)) {
        sh_raft_tick(server->raft, now_ns);
        work++;
    }
    struct disk_notes *disk = &server->durable.disk;
    if (disk_notes_wants(disk, sh_journal_last(server->journal)))
        disk_notes_add(disk, durable_state_make(server->raft), sh_journal_last(server->journal));
    work += sh_journal_step(server->journal, now_ns);
    disk_notes_sync(disk, sh_journal_synced(server->journal));
    sh_raft_synced(server->raft, now_ns);
    check_leader(server);
    struct sh_raft_message *message;
    while ((message = sh_raft_message_next(server->raft))) {
        server->speaks |= message->bytes[0] == MESSAGE_APPEND ||
                          (message->bytes[0] == MESSAGE_APPEND_ANSWER && !(message->bytes[1] & 4));
        for (unsigned i = lines_copies(&rig->lines, &rig->prng); i > 0; i--)
            post(server, message);
        free(message);
        work++;
    }
    reads_look(server);
    return work;
}

static uint64_t server_due(void *arg)
{
    struct server *server = arg;
    uint64_t now_ns = now_at(server);
    uint64_t due_ns = sh_raft_due_ns(server->raft);
    uint64_t disk_ns = sh_journal_due_ns(server->journal, now_ns);
    return disk_ns < due_ns ? disk_ns : due_ns;
}

/* Opens the server's journal, which gives raft what was stored, and begins its next life. */
static enum shoal_err server_load(struct server *server, const struct sh_env *env)
{
    struct sh_journal_stream stream = sh_raft_stream(server->raft);
    struct sh_journal_config config = {.env = *env,
                                       .label = sh_bytes_text("raft_test"),
                                       .segment_bytes = 16384,
                                       .bytes_kept = 4 * 16384,
                                       .piece_bytes = 64,
                                       .streams = &stream,
                                       .streams_count = 1};
    enum shoal_err err = sh_journal_open(&config, &server->journal);
    if (err)
        return err;
    disk_notes_load(&server->durable.disk, durable_state_make(server->raft));
    struct sh_random random = env->random;
    uint64_t life = ++server->starts << 32 | (uint32_t)sh_random64(&random);
    sh_raft_start(server->raft, server->journal, 0, life, now_at(server));
    return SHOAL_OK;
}

static void server_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct server *server = arg;
    struct rig *rig = server->rig;
    server->node = node;
    server->boots++;
    server->speaks = false;
    server->state = (struct state){0};
    server->inbox = NULL;
    server->inbox_end = &server->inbox;
    const struct sh_env *env = sh_world_env(world, node);
    struct sh_raft_config config = {
        .server = server->number,
        .first = rig->first,
        .election_ns = ELECTION,
        .heartbeat_ns = HEARTBEAT,
        .snapshot_entries = rig->snapshot_entries,
        .piece_bytes = 128,
        .seed = sh_random64(&env->random),
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, server},
    };
    if (!(rig->first.voters >> server->number & 1))
        config.first = (struct sh_raft_members){0};
    if (server->forgets) {
        sh_journal_remove(env);
        server->starts = 0;
        durable_lose(&server->durable);
    }
    assert_int_equal(sh_raft_create(&config, &server->raft), SHOAL_OK);
    server->boot_err = server_load(server, env);
    if (server->boot_err) {
        sh_raft_destroy(server->raft);
        server->raft = NULL;
        return;
    }
    server->forgets = false;
    struct sh_step step = {.name = "raft", .run = server_step, .due_ns = server_due, .arg = server};
    sh_world_step_add(world, node, step);
}

static void server_crash(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    struct server *server = arg;
    inbox_drop(server);
    disk_notes_crash(&server->durable.disk);
    server->durable.led_term = 0;
    sh_journal_close(server->journal);
    sh_raft_destroy(server->raft);
    server->journal = NULL;
    server->raft = NULL;
}

static void rig_open(struct rig *rig, uint64_t seed, unsigned count, uint64_t voters)
{
    bool reads_at_once = rig->reads_at_once;
    uint32_t told = rig->snapshot_entries_told;
    *rig = (struct rig){.count = count,
                        .first = {.voters = voters},
                        .seed = seed,
                        .reads_at_once = reads_at_once,
                        .snapshot_entries_told = told};
    struct sh_prng prng = sh_prng_make(seed);
    rig->prng = sh_prng_split(&prng);
    struct sh_world_config config = {.seed = sh_prng_next(&prng),
                                     .disk = {.delay_ns_min = MS / 20,
                                              .delay_ns_max = MS * (1 + sh_prng_below(&prng, 10)),
                                              .again_ppm = 50000,
                                              .write_err_ppm = sh_prng_below(&prng, 4) ? 0 : 20000,
                                              .sync_err_ppm = sh_prng_below(&prng, 4) ? 0 : 20000,
                                              .survive_ppm = 300000,
                                              .torn_ppm = 300000},
                                     .skip_ppm = 20000};
    rig->world = sh_world_create(&config);
    rig->snapshot_entries = 4 + (uint32_t)sh_prng_below(&prng, 20);
    if (told)
        rig->snapshot_entries = told;
    rig->lines.delay_ns_max = 1 + sh_prng_below(&prng, 20 * MS);
    rig->lines.drop_ppm = sh_prng_below(&prng, 3) ? 0 : 50000;
    rig->lines.twice_ppm = 20000;
    for (unsigned i = 0; i < count; i++) {
        struct server *server = &rig->servers[i];
        server->rig = rig;
        server->number = (uint8_t)(i + 1);
        struct sh_world_node node = {.clock_offset_ns = (int64_t)sh_prng_below(&prng, S),
                                     .boot = server_boot,
                                     .crash = server_crash,
                                     .arg = server};
        (void)sh_world_node_add(rig->world, &node);
    }
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        if (rig->servers[i].raft)
            server_crash(&rig->servers[i], rig->world, i);
    }
    for (unsigned i = 0; i < rig->count; i++)
        durable_clear(&rig->servers[i].durable);
    while (rig->letters)
        letter_free(rig->letters);
    sh_world_destroy(rig->world);
}

static void rig_run(struct rig *rig, bool (*predicate)(void *arg), uint64_t for_ns)
{
    (void)sh_world_run_until(rig->world, predicate, rig, sh_world_now(rig->world) + for_ns);
}

static struct server *leader_of(struct rig *rig)
{
    struct server *best = NULL;
    for (unsigned i = 0; i < rig->count; i++) {
        struct server *server = &rig->servers[i];
        if (server->raft && sh_raft_role(server->raft) == SH_RAFT_LEADER &&
            (!best || sh_raft_term(server->raft) > sh_raft_term(best->raft)))
            best = server;
    }
    return best;
}

#endif
