/* Raft on any bytes, from the wire and from the disk: nothing breaks, and what is committed only
 * grows. */
#include <stdlib.h>
#include <string.h>

#include "raft/raft_journal_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t applied;

static void apply(void *arg, uint64_t index, uint64_t term, struct sh_bytes command)
{
    (void)arg;
    (void)term;
    (void)command;
    SH_ASSERT(index > applied);
    applied = index;
}

static size_t snapshot_size(void *arg)
{
    (void)arg;
    return 8;
}

static void snapshot_put(void *arg, struct sh_writer *w)
{
    (void)arg;
    sh_put64(w, applied);
}

static enum shoal_err snapshot_get(void *arg, struct sh_bytes snapshot)
{
    (void)arg;
    return snapshot.size == 7 ? SHOAL_ECORRUPT : SHOAL_OK;
}

static struct sh_raft *raft_make(uint64_t voters)
{
    struct sh_raft_config config = {
        .server = 1,
        .first = {.voters = voters},
        .election_ns = 100,
        .heartbeat_ns = 10,
        .snapshot_entries = 4,
        .piece_bytes = 64,
        .seed = 1,
        .fsm = {apply, snapshot_size, snapshot_put, snapshot_get, NULL},
    };
    struct sh_raft *raft;
    applied = 0;
    if (sh_raft_create(&config, &raft))
        abort();
    return raft;
}

/* Stores and sends what there is. */
static void drain(struct sh_raft *raft, struct memory_journal *memory, uint64_t now_ns)
{
    struct sh_raft_message *message;
    while (memory_journal_sync(memory, raft, now_ns))
        continue; /* what is synced may make it lead, and append */
    while ((message = sh_raft_message_next(raft)))
        free(message);
    SH_ASSERT(sh_raft_applied(raft) <= sh_raft_commit(raft));
    SH_ASSERT(sh_raft_commit(raft) <= sh_raft_last(raft));
}

/* What was stored is loaded again, to the same. */
static void reload(struct sh_raft *raft, struct memory_journal *memory, uint64_t voters)
{
    uint64_t saved = applied;
    struct sh_raft *again = raft_make(voters);
    enum shoal_err err = memory_journal_load(memory, again);
    SH_ASSERT(!err || err == SHOAL_ECORRUPT); /* what snapshot_get refuses */
    if (!err) {
        SH_ASSERT(sh_raft_term(again) == sh_raft_term(raft));
        SH_ASSERT(sh_raft_last(again) == sh_raft_last(raft));
        SH_ASSERT(sh_raft_log_id(again) == sh_raft_log_id(raft));
        SH_ASSERT(sh_raft_members(again).voters == sh_raft_members(raft).voters);
        memory_journal_close(memory);
    }
    sh_raft_destroy(again);
    applied = saved;
}

/* What raft loads may be anything: u8 which, u8 size, bytes. */
static void loads(struct sh_raft *raft, struct sh_reader *r)
{
    struct sh_journal_stream stream = sh_raft_stream(raft);
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_reader_left(r)) {
        uint8_t which = sh_get8(r), size = sh_get8(r);
        const uint8_t *bytes = sh_reader_take(r, size);
        if (!sh_reader_ok(r))
            return;
        struct sh_reader in = sh_reader_make(sh_bytes_make(bytes, size));
        uint64_t index = which & 16 ? sh_raft_last(raft) + 1 : sh_get8(&in);
        uint64_t term = sh_get8(&in);
        size_t left = sh_reader_left(&in);
        struct sh_bytes rest = sh_bytes_make(sh_reader_take(&in, left), left);
        if (!sh_reader_ok(&in))
            return;
        if ((which & 7) == 0)
            err = stream.load_state(raft, sh_bytes_make(bytes, size));
        else if ((which & 7) == 1)
            err = stream.load_entry(raft, index, term, which >> 5, rest);
        else if ((which & 7) == 2)
            err = stream.load_snapshot_begin(raft, index, term, which & 8);
        else if ((which & 7) == 3)
            err = stream.load_snapshot_piece(raft, rest);
        else
            err = stream.load_snapshot_end(raft, which & 8);
    }
}

/* Takes a message; mostly as of this log, of which the bytes can know nothing. */
static void take(struct sh_raft *raft, uint64_t now_ns, uint8_t from, struct sh_bytes bytes)
{
    uint8_t message[128];
    memcpy(message, bytes.at, bytes.size);
    if (bytes.size >= 20 && message[12] < 200)
        sh_store64(message + 12, sh_raft_log_id(raft) ? sh_raft_log_id(raft) : message[12]);
    sh_raft_receive(raft, now_ns, from, sh_bytes_make(message, bytes.size));
}

/* Events: u8 what: 0 to 127, a message of so many bytes behind a u8 sender; above, time passes. */
static void events(struct sh_raft *raft, struct memory_journal *memory, struct sh_reader *r)
{
    uint64_t now_ns = 1;
    uint64_t index, term, commit = 0;
    sh_raft_start(raft, memory->journal, 0, UINT64_C(1) << 32 | 1, now_ns);
    while (sh_reader_left(r)) {
        uint8_t what = sh_get8(r);
        if (what < 128) {
            uint8_t from = sh_get8(r);
            const uint8_t *bytes = sh_reader_take(r, what);
            if (!sh_reader_ok(r))
                break;
            take(raft, now_ns, from, sh_bytes_make(bytes, what));
        } else {
            now_ns += what - 64u;
            sh_raft_tick(raft, now_ns);
            (void)!sh_raft_propose(raft, sh_bytes_text("command"), &index, &term);
        }
        if (what & 1)
            drain(raft, memory, now_ns);
        SH_ASSERT(sh_raft_commit(raft) >= commit);
        commit = sh_raft_commit(raft);
    }
    drain(raft, memory, now_ns);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t how = sh_get8(&r);
    uint64_t voters = how & 6 ? (how & 6) | 2 : 14;
    struct sh_raft *raft = raft_make(voters);
    if (how & 1) {
        loads(raft, &r);
    } else {
        struct memory_journal memory = {.draws = 1};
        memory_journal_open(&memory, raft);
        events(raft, &memory, &r);
        memory_journal_close(&memory);
        reload(raft, &memory, voters);
        memory.disk->ops->destroy(memory.disk);
    }
    sh_raft_destroy(raft);
    return 0;
}
