/* One server, and messages that a test makes, for the tests of raft's rules. */
#ifndef SH_RAFT_RAFT_ONE_TEST_H
#define SH_RAFT_RAFT_ONE_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "raft/raft_int.h"
#include "raft/raft_journal_test.h"

#define MS UINT64_C(1000000)
#define ELECTION (200 * MS)
#define HEARTBEAT (40 * MS)
#define SNAPSHOT_ENTRIES 4
#define VOTERS UINT64_C(14) /* servers 1, which is looked at, 2 and 3 */
#define BODY_MAX 70000

static struct sh_raft *raft;
static struct memory_journal journal;
static uint64_t now_ns;

/* --- Messages ---------------------------------------------------------------------------------- */

static inline void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)command;
}

static size_t own_size; /* of the snapshots that are taken */

static inline size_t snapshot_size(void *arg)
{
    (void)arg;
    return own_size;
}

static inline void snapshot_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    for (size_t i = 0; i < own_size; i++)
        sh_put8(w, (uint8_t)i);
}

static uint8_t taken[64]; /* the last snapshot that it was given */
static size_t taken_size;
static bool refuses; /* it takes none */

static inline enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    (void)arg;
    taken_size = snapshot.size < sizeof taken ? snapshot.size : sizeof taken;
    memcpy(taken, snapshot.at, taken_size);
    return refuses ? SHOAL_ECLUSTER : SHOAL_OK;
}

static uint8_t body[BODY_MAX];
static struct sh_writer body_w;

/* Begins what follows a message's head. */
static inline struct sh_writer *body_begin(void)
{
    body_w = sh_writer_make(body, sizeof body);
    return &body_w;
}

/* A message of that log, with the body that was made. */
static inline void send_of(uint64_t log_id, uint8_t from, unsigned type, unsigned flags,
                           uint64_t term)
{
    uint8_t bytes[SH_RAFT_HEAD_BYTES + BODY_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, (uint8_t)type);
    sh_put8(&w, (uint8_t)flags);
    sh_put16(&w, 0);
    sh_put64(&w, term);
    sh_put64(&w, log_id);
    sh_put64(&w, UINT64_C(1) << 32 | from);
    sh_put_raw(&w, sh_bytes_make(body, (size_t)(body_w.at - body)));
    assert_true(sh_writer_ok(&w) && sh_writer_ok(&body_w));
    sh_raft_receive(raft, now_ns, from, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

static inline void send(uint8_t from, unsigned type, unsigned flags, uint64_t term)
{
    send_of(sh_raft_log_id(raft), from, type, flags, term);
}

/* Stores all, and takes what is sent; returns what follows the head of the last message of that type to
 * that server, or a reader that is at its end, and its flags and term. */
static inline struct sh_reader take(uint8_t to, unsigned type, unsigned *flags_out,
                                    uint64_t *term_out)
{
    static uint8_t found[4096];
    size_t size = 0;
    struct sh_raft_message *message;
    (void)memory_journal_sync(&journal, raft, now_ns);
    *flags_out = 0;
    while ((message = sh_raft_message_next(raft))) {
        if (message->to == to && message->bytes[0] == type) {
            assert_true(message->size <= sizeof found);
            memcpy(found, message->bytes, message->size);
            size = message->size;
            *flags_out = message->bytes[1];
            *term_out = sh_load64(message->bytes + 4);
        }
        free(message);
        (void)memory_journal_sync(&journal, raft, now_ns);
    }
    return size ? sh_reader_make(
                      sh_bytes_make(found + SH_RAFT_HEAD_BYTES, size - SH_RAFT_HEAD_BYTES))
                : sh_reader_make(sh_bytes_make(found, 0));
}

static inline bool is_sent(uint8_t to, unsigned type)
{
    unsigned flags;
    uint64_t term = 0;
    (void)take(to, type, &flags, &term);
    return term || flags;
}

static inline void drop_sent(void)
{
    (void)is_sent(0, 0);
}

static inline void vote_ask(uint8_t from, unsigned flags, uint64_t term, uint64_t last,
                            uint64_t last_term)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, last);
    sh_put64(w, last_term);
    send(from, SH_RAFT_VOTE_ASK, flags, term);
}

static inline void vote_answer(uint8_t from, unsigned flags, uint64_t term)
{
    (void)body_begin();
    send(from, SH_RAFT_VOTE_ANSWER, flags, term);
}

/* An append of the leader `from`: one entry of that kind and term, or none (kind 0). */
static inline void append(uint8_t from, uint64_t term, uint64_t before, uint64_t before_term,
                          uint64_t commit, unsigned kind, uint64_t entry_term)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, before);
    sh_put64(w, before_term);
    sh_put64(w, commit);
    sh_put64(w, 1);
    sh_put32(w, kind != 0);
    if (kind) {
        sh_put8(w, (uint8_t)kind);
        sh_put64(w, entry_term);
        sh_put32(w, kind == SH_RAFT_MEMBERS ? 16 : 0);
    }
    if (kind == SH_RAFT_MEMBERS) {
        sh_put64(w, VOTERS);
        sh_put64(w, 1u << 4); /* with the learner 4 */
    }
    send(from, SH_RAFT_APPEND, 0, term);
}

static inline void append_answer(uint8_t from, unsigned flags, uint64_t index, uint64_t round)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, index);
    sh_put64(w, round);
    send(from, SH_RAFT_APPEND_ANSWER, flags, sh_raft_term(raft));
}

/* --- The server -------------------------------------------------------------------------------- */

static uint64_t nonce;

static inline int setup(void **state)
{
    (void)state;
    memset(&journal, 0, sizeof journal);
    refuses = false;
    own_size = 0;
    now_ns = 1000 * MS;
    struct sh_raft_config config = {
        .server = 1,
        .first = {.voters = VOTERS},
        .election_ns = ELECTION,
        .heartbeat_ns = HEARTBEAT,
        .snapshot_entries = SNAPSHOT_ENTRIES,
        .piece_bytes = 128,
        .seed = 5,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL},
    };
    assert_int_equal(sh_raft_create(&config, &raft), SHOAL_OK);
    memory_journal_open(&journal, raft);
    sh_raft_start(raft, journal.journal, 0, UINT64_C(1) << 32 | 1, now_ns);
    sh_raft_tick(raft, now_ns);
    unsigned flags;
    uint64_t term;
    struct sh_reader r = take(2, SH_RAFT_PROBE, &flags, &term);
    nonce = sh_get64(&r);
    assert_true(sh_reader_done(&r) && sh_raft_is_recovering(raft));
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    memory_journal_close(&journal);
    journal.disk->ops->destroy(journal.disk);
    sh_raft_destroy(raft);
    return 0;
}

static inline void probe_answer(uint8_t from, uint64_t of_nonce, uint64_t term, uint64_t log_id)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, of_nonce);
    sh_put64(w, 40u + from);
    send_of(log_id, from, SH_RAFT_PROBE_ANSWER, 0, term);
}

/* All servers are new. */
static inline void found(void)
{
    probe_answer(2, nonce, 0, 0);
    probe_answer(3, nonce, 0, 0);
    assert_false(sh_raft_is_recovering(raft));
    drop_sent();
}

/* Server 2 elects it, in term 1; its first entry is on its own disk only. */
static inline void lead(void)
{
    found();
    now_ns += 2 * ELECTION + 1;
    sh_raft_tick(raft, now_ns);
    vote_answer(2, SH_RAFT_PRE | SH_RAFT_YES, 1);
    drop_sent();
    vote_answer(2, SH_RAFT_YES, 1);
    assert_int_equal(sh_raft_role(raft), SH_RAFT_LEADER);
    drop_sent();
}

static inline enum shoal_err put(void)
{
    uint64_t index, term;
    return sh_raft_propose(raft, sh_bytes_text("x"), &index, &term);
}

static inline void tick_after(uint64_t ns)
{
    now_ns += ns;
    sh_raft_tick(raft, now_ns);
    drop_sent();
}

static inline struct sh_raft_members with(uint64_t voters, uint64_t learners)
{
    return (struct sh_raft_members){.voters = voters, .learners = learners};
}

#endif
