/* Migrations in a simulated world with a superpeer whose decisions a test tells: messages to nodes,
 * jobs, and what COMMIT and RESOLVE are answered with. */
#ifndef TESTS_MIGRATE_SAYS_INT_H
#define TESTS_MIGRATE_SAYS_INT_H

#include "cluster/proto.h"
#include "tests/migrate_rig_int.h"
#include "tests/seed_int.h"

#define A 1 /* hosts: 0 is the superpeer, A has all chunks */
#define B 2
#define C 3

static struct world world;

/* --- Messages -------------------------------------------------------------------------------- */

struct told {
    struct sh_request request;
    bool done;
    enum shoal_err err;
    size_t size;
    uint8_t bytes[256];
};

static void on_told(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct told *told = request->arg;
    size_t size = sh_reader_left(payload);
    told->err = err;
    told->done = true;
    told->size = size < sizeof told->bytes ? size : sizeof told->bytes;
    if (told->size)
        memcpy(told->bytes, sh_reader_take(payload, told->size), told->size);
}

static bool is_told(void *arg)
{
    (void)watch(&world);
    return ((struct told *)arg)->done;
}

/* Asks again while the connection is being made. */
static struct told *tell(struct host *host, shoal_nid to, sh_msg_type type, struct sh_bytes payload)
{
    static struct told told;
    for (unsigned i = 0; i < 100; i++) {
        struct sh_out out;
        told = (struct told){.request = {.done = on_told, .arg = &told}};
        enum shoal_err err = sh_msg_request(host->msg, to, type, payload.size, &told.request, &out);
        if (!err) {
            sh_put_raw(&out.w, payload);
            sh_msg_end(host->msg, &out);
            assert_true(
                sh_world_run_until(world.sim, is_told, &told, sh_world_now(world.sim) + 10 * S));
            return &told;
        }
        run_for(&world, 20 * MS);
    }
    fail_msg("seed %" PRIu64 ": a message can't be sent", seed);
    return &told;
}

static shoal_nid nid_of(unsigned host)
{
    return sh_msg_nid(world.hosts[host].msg);
}

static struct host *client(void)
{
    return &world.hosts[world.superpeers + world.peers];
}

/* --- Jobs ------------------------------------------------------------------------------------ */

static uint64_t move_ask(unsigned from, shoal_nid to, shoal_cid first, shoal_cid last,
                         uint8_t flags)
{
    static uint64_t number = 1000;
    uint8_t bytes[SH_MOVE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, ++number);
    sh_put64(&w, first.v);
    sh_put64(&w, last.v);
    sh_put16(&w, to.v);
    sh_put8(&w, flags);
    sh_put64(&w, 0);
    sh_put64(&w, 0);
    struct told *told =
        tell(client(), nid_of(from), SH_MOVES_MOVE, sh_bytes_make(bytes, sizeof bytes));
    assert_int_equal(told->err, SHOAL_OK);
    return number;
}

static inline uint64_t move_begin(unsigned from, unsigned to, unsigned first, unsigned last,
                                  uint8_t flags)
{
    return move_ask(from, nid_of(to), world.cids[first], world.cids[last], flags);
}

static struct sh_move_job job_of(unsigned host)
{
    uint8_t number[8] = {0};
    struct sh_move_job job;
    struct told *told = tell(client(), nid_of(host), SH_MOVES_JOB, sh_bytes_make(number, 8));
    assert_int_equal(told->err, SHOAL_OK);
    struct sh_reader r = sh_reader_make(sh_bytes_make(told->bytes, told->size));
    assert_true(sh_move_job_get(&r, &job));
    return job;
}

static struct sh_move_job job_end(unsigned host, uint64_t within_ns)
{
    uint64_t deadline = sh_world_now(world.sim) + within_ns;
    struct sh_move_job job = job_of(host);
    while (!job.is_over && sh_world_now(world.sim) < deadline) {
        run_for(&world, 20 * MS);
        job = job_of(host);
    }
    if (!job.is_over)
        fail_msg("seed %" PRIu64 ": the job does not end: %s", seed, shoal_err_name(job.err));
    return job;
}

static void open_quiet(unsigned peers)
{
    world_open(&world, 1, peers, true);
    world.ends = true;
    run_for(&world, S);
    assert_true(nid_of(A).v == shoal_cid_creator(world.cids[0]).v);
}

static bool serves(unsigned host, shoal_cid cid)
{
    sh_lid lid;
    return sh_holdings_look(sh_chunks_holdings(world.hosts[host].chunks), nid_of(host), cid, false,
                            &lid) == SHOAL_OK;
}

struct coming {
    unsigned host;
    shoal_cid cid;
};

static bool has_come(void *arg)
{
    const struct coming *coming = arg;
    (void)watch(&world);
    return serves(coming->host, coming->cid);
}

/* Whether a host serves a chunk, or soon does: its source's job may be over a message earlier. */
static bool comes_to(unsigned host, shoal_cid cid)
{
    struct coming coming = {host, cid};
    return sh_world_run_until(world.sim, has_come, &coming, sh_world_now(world.sim) + 2 * S);
}

/* --- A superpeer that says what it is told ---------------------------------------------------- */

#define SAYS_BATCHES_MAX 256

static struct {
    enum shoal_err commit;  /* what COMMIT is answered with, `times` times; OK: committed */
    enum shoal_err finally; /* and from then on */
    unsigned times;
    uint64_t sequence; /* of the first COMMIT since it was set */
    unsigned commits;
    uint64_t batches[SAYS_BATCHES_MAX]; /* that COMMIT was about since it was set, in their order */
    unsigned batches_count;
    bool is_same;           /* all of them were of that one */
    bool each;              /* the first answer about each batch is `commit` */
    enum shoal_err resolve; /* what RESOLVE is answered with; OK: committed, ECANCELED: aborted */
    bool remembers;         /* RESOLVE is answered with OK where COMMIT was, else with `resolve` */
    uint64_t committed[64];
    unsigned committed_count;
    shoal_nid unheard; /* COMMIT of that node is answered with EBUSY, whatever the others' are */
    bool keeps;        /* COMMIT is not answered, but `kept` */
    struct sh_reply_to kept;
} says;

/* Says that a batch is committed. */
static void commit_answer(struct sh_reply_to to)
{
    struct sh_msg *msg = world.hosts[0].msg;
    struct sh_out out;
    if (sh_msg_reply(msg, to, SH_CLUSTER_COMMIT, 2, &out))
        return;
    sh_put16(&out.w, 0);
    sh_msg_end(msg, &out);
}

static void on_commit(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    if (says.unheard.v && in->reply_to.nid.v == says.unheard.v) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    uint64_t sequence = 0;
    (void)sh_get64(&in->payload);
    (void)sh_get32(&in->payload);
    (void)sh_get64(&in->payload);
    sequence = sh_get64(&in->payload);
    if (!says.commits++)
        says.sequence = sequence;
    unsigned known = 0;
    while (known < says.batches_count && says.batches[known] != sequence)
        known++;
    bool is_new = known == says.batches_count;
    if (is_new && known < SAYS_BATCHES_MAX)
        says.batches[says.batches_count++] = sequence;
    says.is_same &= sequence == says.sequence;
    if (says.each)
        says.times = is_new;
    enum shoal_err err = says.finally;
    if (says.times) {
        says.times--;
        err = says.commit;
    }
    if (!err && says.remembers && says.committed_count < 64)
        says.committed[says.committed_count++] = sequence;
    if (says.keeps)
        says.kept = in->reply_to;
    else if (err)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
    else
        commit_answer(in->reply_to);
}

/* The same about each batch, as the test has said. */
static void on_resolve(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    (void)sh_get64(&in->payload);
    (void)sh_get32(&in->payload);
    (void)sh_get64(&in->payload);
    uint64_t sequence = sh_get64(&in->payload);
    bool is_committed = says.resolve == SHOAL_OK;
    for (unsigned i = 0; says.remembers && i < says.committed_count; i++)
        is_committed |= says.committed[i] == sequence;
    if (says.resolve && says.resolve != SHOAL_ECANCELED) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, says.resolve, NULL);
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 3, &out))
        return;
    sh_put16(&out.w, 0);
    sh_put8(&out.w, is_committed);
    sh_msg_end(in->msg, &out);
}

static void says_set(enum shoal_err commit, unsigned times, enum shoal_err finally)
{
    says.commit = commit;
    says.times = times;
    says.finally = finally;
    says.commits = says.batches_count = 0;
    says.is_same = true;
    says.each = says.keeps = says.remembers = false;
    says.committed_count = 0;
    says.unheard = SHOAL_NID_NONE;
    says.resolve = SHOAL_OK;
    sh_msg_handler_set(world.hosts[0].msg, SH_CLUSTER_COMMIT, SH_MSG_INLINE, on_commit, NULL);
    sh_msg_handler_set(world.hosts[0].msg, SH_CLUSTER_RESOLVE, SH_MSG_INLINE, on_resolve, NULL);
}

static bool has_been_asked(void *arg)
{
    (void)arg;
    (void)watch(&world);
    return says.commits > 0;
}

/* Begins to move a chunk; the superpeer is asked, and does not say whether it is committed. */
static inline void move_undecided(unsigned from, unsigned to, shoal_cid cid)
{
    says_set(SHOAL_EBUSY, UINT32_MAX, SHOAL_EBUSY);
    says.resolve = SHOAL_EBUSY;
    (void)move_ask(from, nid_of(to), cid, cid, 0);
    assert_true(sh_world_run_until(world.sim, has_been_asked, NULL, sh_world_now(world.sim) + S));
}

/* The superpeer asks for a range of which no chunk may be left. */
static inline void vacate(unsigned host, shoal_cid first, shoal_cid last)
{
    struct sh_msg *msg = world.hosts[0].msg;
    struct sh_out out;
    assert_int_equal(sh_msg_begin(msg, nid_of(host), SH_CLUSTER_VACATE, SH_VACATE_BYTES, &out),
                     SHOAL_OK);
    sh_put64(&out.w, first.v);
    sh_put64(&out.w, last.v);
    sh_msg_end(msg, &out);
    run_for(&world, S);
}

#endif
