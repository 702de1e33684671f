/* What a migration does with answers that decide nothing, with targets that can't be asked, and
 * with more results than fit into a batch; and what superpeers hear that ask: in a simulated world,
 * against a superpeer whose decisions are told here. Drains: migrate_drain_test.c.
 *
 * SHOAL_TEST_SEED: the world (default: random; printed). */
#include "metadata/metadata.h"
#include "tests/migrate_says_int.h"

/* --- Tests ----------------------------------------------------------------------------------- */

/* An answer that decides nothing leaves the batch as it is: it may be committed. */
static void unclear_answers(void **state)
{
    (void)state;
    static const enum shoal_err errs[] = {
        SHOAL_ENOMEM, SHOAL_ENOTYPE, SHOAL_EPROTO,   SHOAL_EINVAL, SHOAL_EROLE, SHOAL_EINTERNAL,
        SHOAL_EBUSY,  SHOAL_EFENCED, SHOAL_ESTOPPED, SHOAL_ELIMIT, SHOAL_EIO,   SHOAL_ENONODE};
    open_quiet(2);
    for (unsigned i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        says_set(errs[i], 3, SHOAL_OK);
        (void)move_begin(A, B, i, i, 0);
        struct sh_move_job job = job_end(A, 20 * S);
        assert_int_equal(job.err, SHOAL_OK);
        assert_int_equal(job.chunks, 1);
        assert_true(says.is_same && says.commits == 4);
        assert_true(comes_to(B, world.cids[i]) && !serves(A, world.cids[i]));
    }
    /* What was decided is believed. */
    static const enum shoal_err refusals[] = {SHOAL_ECANCELED, SHOAL_ENOTOWNER};
    for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        says_set(refusals[i], 1, SHOAL_OK);
        (void)move_begin(A, B, 20 + i, 20 + i, 0);
        assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
        assert_true(!says.is_same && says.commits == 2);
    }
    world_close(&world);
}

/* ELIMIT is a refusal whose answer may be lost: the repetition says ECANCELED, but the job ends
 * with what was the reason. */
static void limit_is_told(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_ELIMIT, 1, SHOAL_ECANCELED);
    says.each = true;
    (void)move_begin(A, B, 0, 0, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_ELIMIT);
    assert_true(says.commits > 2);
    assert_true(serves(A, world.cids[0]));
    world_close(&world);
}

static bool is_committed_at_b(void *arg)
{
    (void)watch(&world);
    return serves(B, *(shoal_cid *)arg);
}

/* The target has a batch by the superpeer's word, of which its source, which the other peers don't reach, has not
 * heard; what it gives on then is not the source's either. */
static void source_unaware(void **state)
{
    (void)state;
    open_quiet(3);
    move_undecided(A, B, world.cids[0]);
    sh_world_partition(world.sim, 1 << A, 1 << B | 1 << C, false);
    says.resolve = SHOAL_OK;
    assert_true(sh_world_run_until(world.sim, is_committed_at_b, &world.cids[0],
                                   sh_world_now(world.sim) + 20 * S));
    says_set(SHOAL_OK, 0, SHOAL_OK);
    says.unheard = nid_of(A);
    (void)move_begin(B, C, 0, 0, 0);
    assert_int_equal(job_end(B, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(C, world.cids[0]) && !serves(A, world.cids[0]));
    assert_false(job_of(A).is_over);
    says.unheard = SHOAL_NID_NONE;
    sh_world_heal(world.sim);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(C, world.cids[0]) && !serves(A, world.cids[0]));
    world_close(&world);
}

/* Chunks that come back to a source that does not know yet that it gave them away are refused until it
 * does. */
static void back_to_an_unaware_source(void **state)
{
    (void)state;
    open_quiet(2);
    move_undecided(A, B, world.cids[0]);
    says.resolve = SHOAL_OK;
    assert_true(comes_to(B, world.cids[0]));
    says.finally = SHOAL_EBUSY;
    (void)move_begin(B, A, 0, 0, 0);
    run_for(&world, S / 2);
    assert_false(job_of(B).is_over);
    assert_int_equal(job_of(B).err, SHOAL_EBUSY);
    assert_true(serves(B, world.cids[0]));
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_int_equal(job_end(B, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(A, world.cids[0]) && !serves(B, world.cids[0]));
    world_close(&world);
}

/* A source that goes on before its target knows what came of the batch before is told to wait, and
 * the target asks at once. */
static void batch_before_is_unclear(void **state)
{
    (void)state;
    open_quiet(2);
    move_undecided(A, B, world.cids[0]);
    says_set(SHOAL_ECANCELED, 1, SHOAL_OK);
    says.resolve = SHOAL_EBUSY;
    sh_world_partition(world.sim, 1 << A, 1 << B, false); /* DONE is lost */
    run_for(&world, S / 2);
    assert_true(serves(A, world.cids[0]));
    sh_world_heal(world.sim);
    run_for(&world, S / 2);
    assert_false(job_of(A).is_over);
    assert_int_equal(says.commits, 1);
    says.resolve = SHOAL_ECANCELED;
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[0]) && !serves(A, world.cids[0]));
    world_close(&world);
}

/* --- Several batches under way --------------------------------------------------------------- */

/* Batches are sent and asked for while the superpeer has not answered about those before, in order; a
 * target keeps no more of one source, and a source holds still no more. */
static void several_under_way(void **state)
{
    (void)state;
    enum { COUNT = 5 * SH_MOVES_CHUNKS_MAX };
    static shoal_cid cids[COUNT];
    open_quiet(2);
    says_set(SHOAL_EBUSY, UINT32_MAX, SHOAL_EBUSY);
    says.resolve = SHOAL_EBUSY;
    assert_int_equal(sh_store_new_many(world.hosts[A].store, 8, COUNT, cids), SHOAL_OK);
    for (unsigned i = 0; i < COUNT; i++)
        cids[i] = shoal_cid_make(nid_of(A), shoal_cid_local(cids[i]));
    (void)move_ask(A, nid_of(B), cids[0], cids[COUNT - 1], 0);
    run_for(&world, S);
    assert_int_equal(says.batches_count, 4);
    for (unsigned i = 1; i < 4; i++)
        assert_true(says.batches[i] > says.batches[i - 1]);
    for (unsigned i = 0; i < COUNT; i++) {
        assert_int_equal(serves(A, cids[i]), i >= 4 * SH_MOVES_CHUNKS_MAX);
        assert_false(serves(B, cids[i]));
    }
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    for (unsigned i = 0; i < COUNT; i++)
        assert_true(comes_to(B, cids[i]) && !serves(A, cids[i]));
    world_close(&world);
}

/* While the superpeer can't be asked, each batch is tried again by itself: they are asked for in order
 * all the same. */
static void asked_in_order_after_a_restart(void **state)
{
    (void)state;
    enum { COUNT = 4 * SH_MOVES_CHUNKS_MAX };
    static shoal_cid cids[COUNT];
    open_quiet(2);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(sh_store_new_many(world.hosts[A].store, 8, COUNT, cids), SHOAL_OK);
    struct sh_holdings *holdings = sh_chunks_holdings(world.hosts[A].chunks);
    unsigned entered = sh_holdings_enter(holdings); /* all batches begin, and wait for that */
    (void)move_ask(A, nid_of(B), shoal_cid_make(nid_of(A), shoal_cid_local(cids[0])),
                   shoal_cid_make(nid_of(A), shoal_cid_local(cids[COUNT - 1])), 0);
    run_for(&world, S / 10);
    sh_world_crash(world.sim, 0);
    sh_holdings_leave(holdings, entered);
    run_for(&world, S / 10);
    sh_world_restart(world.sim, 0);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_int_equal(says.batches_count, 4);
    for (unsigned i = 1; i < 4; i++)
        assert_true(says.batches[i] > says.batches[i - 1]);
    world_close(&world);
}

/* Of large ones fewer are under way: another one only while a whole batch has room beside them. */
static void few_large_under_way(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_EBUSY, UINT32_MAX, SHOAL_EBUSY);
    says.resolve = SHOAL_EBUSY;
    for (unsigned i = 0; i < CHUNKS; i++) /* a batch each */
        assert_int_equal(
            sh_store_resize(world.hosts[A].store, (sh_lid){shoal_cid_local(world.cids[i])}, 200000),
            SHOAL_OK);
    (void)move_begin(A, B, 0, CHUNKS - 1, 0);
    run_for(&world, S);
    assert_int_equal(says.batches_count, 2);
    assert_true(says.batches[1] > says.batches[0]);
    unsigned still = 0, at_b = 0;
    for (unsigned i = 0; i < CHUNKS; i++) {
        still += !serves(A, world.cids[i]);
        at_b += serves(B, world.cids[i]);
    }
    assert_int_equal(still, 2);
    assert_int_equal(at_b, 0);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_true(comes_to(B, world.cids[i]) && !serves(A, world.cids[i]));
    world_close(&world);
}

/* One of them is refused, and those behind it are not: its chunks go with a later one. */
static void one_of_several_is_refused(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_ECANCELED, 1, SHOAL_OK);
    says.resolve = SHOAL_ECANCELED;
    says.remembers = true;
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_int_equal(
            sh_store_resize(world.hosts[A].store, (sh_lid){shoal_cid_local(world.cids[i])}, 200000),
            SHOAL_OK);
    (void)move_begin(A, B, 0, CHUNKS - 1, 0);
    struct sh_move_job job = job_end(A, 20 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, CHUNKS);
    for (unsigned i = 0; i < CHUNKS; i++)
        assert_true(comes_to(B, world.cids[i]) && !serves(A, world.cids[i]));
    world_close(&world);
}

/* --- Pieces of a large chunk ------------------------------------------------------------------ */

static struct {
    unsigned count;
    uint64_t sequence; /* of the last one */
    uint32_t end;      /* behind it */
} pieces;

/* Loses them. */
static void on_piece(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    uint64_t sequence = sh_get64(&in->payload);
    uint32_t offset = sh_get32(&in->payload);
    size_t size = sh_reader_left(&in->payload);
    if (sequence != pieces.sequence)
        pieces.end = 0;
    assert_int_equal(offset, pieces.end);
    assert_true(size == SH_STORE_PIECE_BYTES || offset + size == world.sizes[LARGE]);
    pieces.count++;
    pieces.sequence = sequence;
    pieces.end = offset + (uint32_t)size;
}

/* A batch whose pieces do not come is called off, and the chunk stays where it is. */
static void pieces_are_lost(void **state)
{
    (void)state;
    open_quiet(2);
    memset(&pieces, 0, sizeof pieces);
    sh_msg_handler_set(world.hosts[B].msg, SH_MOVES_PIECE, SH_MSG_INLINE, on_piece, NULL);
    uint8_t number[8];
    sh_store64(number, move_begin(A, B, LARGE, LARGE, 0));
    run_for(&world, 4 * S);
    assert_true(pieces.count >= 6); /* three each time */
    assert_int_equal(pieces.end, world.sizes[LARGE]);
    assert_false(job_of(A).is_over);
    assert_false(serves(B, world.cids[LARGE]));
    struct told *told =
        tell(client(), nid_of(A), SH_MOVES_CANCEL, sh_bytes_make(number, sizeof number));
    assert_int_equal(told->err, SHOAL_OK);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_ECANCELED);
    assert_true(comes_to(A, world.cids[LARGE]));
    run_for(&world, 2 * S);
    struct sh_store_status status;
    sh_store_status_get(world.hosts[B].store, &status);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.block_bytes, 0);
    world_close(&world);
}

/* Sends a PIECE of zeros from A to B. */
static void piece_send(uint64_t sequence, uint32_t offset, size_t size)
{
    struct sh_out out;
    while (sh_msg_begin(world.hosts[A].msg, nid_of(B), SH_MOVES_PIECE, SH_MOVES_PIECE_BYTES + size,
                        &out) == SHOAL_EAGAIN)
        run_for(&world, MS);
    sh_put64(&out.w, sequence);
    sh_put32(&out.w, offset);
    memset(sh_writer_take(&out.w, size), 0, size);
    sh_msg_end(world.hosts[A].msg, &out);
}

/* Sends a STAGE of a large chunk of C's to B, of which no piece follows. */
static void large_send(unsigned from, uint64_t sequence, struct told *told)
{
    struct sh_out out;
    shoal_cid cid = shoal_cid_make(nid_of(C), 5);
    *told = (struct told){.request = {.done = on_told, .arg = told, .timeout_ns = 10 * S}};
    while (sh_msg_request(world.hosts[from].msg, nid_of(B), SH_MOVES_STAGE, 38, &told->request,
                          &out) == SHOAL_EAGAIN)
        run_for(&world, MS);
    sh_put64(&out.w, sequence);
    sh_put16(&out.w, 1);
    sh_put32(&out.w, 0);
    sh_put32(&out.w, 0);
    sh_put64(&out.w, cid.v);
    sh_put64(&out.w, cid.v);
    sh_put32(&out.w, SH_STORE_PIECE_BYTES + 100);
    sh_msg_end(world.hosts[from].msg, &out);
}

/* What it is answered with, soon. */
static enum shoal_err large_answer(struct told *told)
{
    assert_true(sh_world_run_until(world.sim, is_told, told, sh_world_now(world.sim) + S / 2));
    return told->err;
}

/* Sends a STAGE from A, then a PIECE; returns what STAGE is answered with. */
static enum shoal_err piece_try(uint64_t sequence, uint32_t offset, size_t size)
{
    static struct told told;
    large_send(A, sequence, &told);
    piece_send(sequence, offset, size);
    return large_answer(&told);
}

/* A piece out of its place, or of another size, ends its batch. */
static void pieces_come_in_order(void **state)
{
    (void)state;
    open_quiet(3);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_begin(A, B, 0, 0, 0); /* there is a connection then */
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    const uint64_t from = UINT64_C(1) << 60;
    const struct {
        uint32_t offset;
        size_t size;
    } bad[] = {{SH_STORE_PIECE_BYTES, 100},
               {1, SH_STORE_PIECE_BYTES},
               {0, SH_STORE_PIECE_BYTES - 1},
               {0, SH_STORE_PIECE_BYTES + 1},
               {0, 0}};
    for (unsigned i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(piece_try(from + i, bad[i].offset, bad[i].size), SHOAL_ECANCELED);
    struct sh_store_status status;
    sh_store_status_get(world.hosts[B].store, &status);
    assert_int_equal(status.chunks, 1);
    world_close(&world);
}

static void done_send(unsigned from, uint64_t sequence, bool is_committed)
{
    struct sh_out out;
    while (sh_msg_begin(world.hosts[from].msg, nid_of(B), SH_MOVES_DONE, SH_MOVES_DONE_BYTES,
                        &out) == SHOAL_EAGAIN)
        run_for(&world, MS);
    sh_put64(&out.w, sequence);
    sh_put8(&out.w, is_committed);
    sh_msg_end(world.hosts[from].msg, &out);
}

/* A chunk that is arriving is not taken in twice; when its source sends it again, another one does,
 * one says that it is committed, or none says anything, it ends, and no superpeer is asked, which would
 * say that it is B's where another batch brought it. */
static void arriving_is_not_asked_about(void **state)
{
    (void)state;
    static struct told told[4], again;
    open_quiet(3);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    const uint64_t from = UINT64_C(1) << 60;
    large_send(A, from, &told[0]);
    large_send(A, from + 1, &again);
    assert_int_equal(large_answer(&again), SHOAL_EBUSY);
    assert_int_equal(large_answer(&told[0]), SHOAL_ECANCELED);
    large_send(A, from + 2, &told[1]);
    run_for(&world, 10 * MS);
    large_send(C, from, &again);
    assert_int_equal(large_answer(&again), SHOAL_EBUSY);
    assert_int_equal(large_answer(&told[1]), SHOAL_ECANCELED);
    large_send(C, from + 1, &told[2]);
    done_send(C, from + 1, true);
    assert_int_equal(large_answer(&told[2]), SHOAL_ECANCELED);
    large_send(A, from + 3, &told[3]);
    run_for(&world, 2 * S);
    assert_int_equal(large_answer(&told[3]), SHOAL_ECANCELED);
    assert_false(serves(B, shoal_cid_make(nid_of(C), 5)));
    struct sh_store_status status;
    sh_store_status_get(world.hosts[B].store, &status);
    assert_int_equal(status.chunks, 0);
    assert_int_equal(status.block_bytes, 0);
    world_close(&world);
}

/* What was there before a chunk comes in pieces is answered before they are sent. */
static void pieces_are_not_sent_in_vain(void **state)
{
    (void)state;
    open_quiet(2);
    memset(&pieces, 0, sizeof pieces);
    shoal_cid cid;
    struct sh_store *store = world.hosts[B].store;
    unsigned there = 0;
    while (sh_store_new_many(store, CHUNK_BYTES_MAX, 1, &cid) == SHOAL_OK)
        there++;
    assert_true(there > 10);
    sh_msg_handler_set(world.hosts[B].msg, SH_MOVES_PIECE, SH_MSG_INLINE, on_piece, NULL);
    (void)move_begin(A, B, LARGE, LARGE, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_EFULL);
    assert_true(pieces.end < world.sizes[LARGE]);
    assert_true(comes_to(A, world.cids[LARGE]));
    world_close(&world);
}

/* --- What superpeers ask that have lost their memory ----------------------------------------- */

static struct told *holds_ask(unsigned host)
{
    uint8_t from[SH_HOLDS_BYTES] = {0};
    struct told *told =
        tell(client(), nid_of(host), SH_CLUSTER_HOLDS, sh_bytes_make(from, sizeof from));
    assert_int_equal(told->err, SHOAL_OK);
    assert_int_equal(told->bytes[0], 0); /* there is no more */
    return told;
}

/* Asserts that a node has said this of its chunks, and nothing else. */
static void assert_holds(unsigned host, enum sh_claim kind, unsigned first, unsigned last)
{
    const struct told *told = holds_ask(host);
    assert_int_equal(told->size, SH_HOLDS_ANSWER_BYTES + (kind ? SH_HOLDS_RANGE_BYTES : 0));
    const uint8_t *range = told->bytes + SH_HOLDS_ANSWER_BYTES;
    if (!kind)
        return;
    assert_true(sh_load64(range) == world.cids[first].v);
    assert_true(sh_load64(range + 8) == world.cids[last].v);
    assert_int_equal(range[16], kind);
}

/* A node says what it serves of others', what it gave away of its own, and what it has of others' that
 * a superpeer may have given to somebody else; nothing of its own, or of what is staged. */
static void holds_is_told(void **state)
{
    (void)state;
    open_quiet(3);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_holds(A, 0, 0, 0);
    (void)move_begin(A, B, 0, 9, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[9]));
    assert_holds(A, SH_CLAIM_GAVE, 0, 9);
    assert_holds(B, SH_CLAIM_SERVES, 0, 9);
    move_undecided(B, C, world.cids[0]);
    (void)holds_ask(B);
    const struct told *told = holds_ask(B);
    assert_int_equal(told->size, SH_HOLDS_ANSWER_BYTES + 2 * SH_HOLDS_RANGE_BYTES);
    assert_true(sh_load64(told->bytes + 1) > 0); /* its last batch */
    const uint8_t *range = told->bytes + SH_HOLDS_ANSWER_BYTES;
    assert_true(sh_load64(range) == world.cids[0].v && sh_load64(range + 8) == world.cids[0].v);
    assert_int_equal(range[16], SH_CLAIM_FROZEN);
    assert_int_equal(range[SH_HOLDS_RANGE_BYTES + 16], SH_CLAIM_SERVES);
    assert_holds(C, 0, 0, 0);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_int_equal(job_end(B, 20 * S).err, SHOAL_OK);
    run_for(&world, 3 * S);
    assert_holds(C, SH_CLAIM_SERVES, 0, 0);
    world_close(&world);
}

static bool has_asked_again(void *arg)
{
    (void)watch(&world);
    return says.commits > *(unsigned *)arg;
}

/* A source that has said what it has does not take an answer of before. */
static void source_drops_former_answers(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    says.keeps = true;
    says.resolve = SHOAL_EBUSY;
    (void)move_begin(A, B, 0, 0, 0);
    assert_true(sh_world_run_until(world.sim, has_been_asked, NULL, sh_world_now(world.sim) + S));
    struct sh_reply_to former = says.kept;
    says.keeps = false;
    says.finally = SHOAL_EBUSY;
    assert_holds(A, 0, 0, 0);
    commit_answer(former);
    unsigned before = says.commits;
    assert_true(
        sh_world_run_until(world.sim, has_asked_again, &before, sh_world_now(world.sim) + S));
    assert_false(serves(A, world.cids[0])); /* nobody has said anything yet */
    assert_false(job_of(A).is_over);
    says.commit = SHOAL_ECANCELED;
    says.times = 1;
    says.finally = SHOAL_OK;
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[0]) && !serves(A, world.cids[0]));
    world_close(&world);
}

/* A target that has said what it has does not go by its source's word of a decision of before. */
static void target_drops_former_decisions(void **state)
{
    (void)state;
    open_quiet(2);
    move_undecided(A, B, world.cids[0]);
    assert_holds(B, 0, 0, 0);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    says.resolve = SHOAL_EBUSY;
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    run_for(&world, 2 * S);
    assert_false(serves(A, world.cids[0]) || serves(B, world.cids[0]));
    says.resolve = SHOAL_OK;
    run_for(&world, S);
    assert_true(serves(B, world.cids[0]));
    world_close(&world);
}

/* --- Who may ask ----------------------------------------------------------------------------- */

/* As a process of the host: `later` than the one that it is. */
static enum shoal_err batch_tell_as(unsigned host, uint64_t later, sh_msg_type type, shoal_nid from,
                                    shoal_nid to, uint64_t life, uint64_t sequence)
{
    uint8_t bytes[SH_COMMIT_BYTES + 16];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, sh_msg_instance(world.hosts[host].msg) + later);
    sh_put16(&w, from.v);
    sh_put16(&w, to.v);
    sh_put64(&w, life);
    sh_put64(&w, sequence);
    sh_put16(&w, 1);
    sh_put64(&w, world.cids[0].v);
    sh_put64(&w, world.cids[0].v);
    enum shoal_err err = SHOAL_EBUSY;
    for (unsigned i = 0; err == SHOAL_EBUSY && i < 500; i++) { /* the registry has yet to note it */
        err = tell(&world.hosts[host], nid_of(0), type, sh_bytes_make(bytes, sizeof bytes))->err;
        run_for(&world, 20 * MS);
    }
    return err;
}

static enum shoal_err batch_tell(unsigned host, sh_msg_type type, shoal_nid from, shoal_nid to,
                                 uint64_t life, uint64_t sequence)
{
    return batch_tell_as(host, 0, type, from, to, life, sequence);
}

/* Nobody but its source has a batch committed, and nobody but its target has it called off. */
static void senders(void **state)
{
    (void)state;
    open_quiet(3);
    const uint64_t at = UINT64_C(1) << 60, life = sh_msg_instance(world.hosts[B].msg);
    shoal_nid a = nid_of(A), b = nid_of(B), none = {4000};
    for (unsigned host = B; host <= C; host++)
        assert_int_equal(batch_tell(host, SH_CLUSTER_COMMIT, a, b, life, at), SHOAL_EINVAL);
    assert_int_equal(batch_tell(A, SH_CLUSTER_RESOLVE, a, b, life, at), SHOAL_EINVAL);
    assert_int_equal(batch_tell(C, SH_CLUSTER_RESOLVE, a, b, life, at), SHOAL_EINVAL);
    /* A target that is not there, or is another process than the one that has the batch. */
    assert_int_equal(batch_tell(A, SH_CLUSTER_COMMIT, a, none, life, at), SHOAL_ENONODE);
    assert_int_equal(batch_tell(A, SH_CLUSTER_COMMIT, a, b, life + 1, at + 1), SHOAL_ENONODE);
    /* A process of the source, or of the target, that the registry does not know. */
    assert_int_equal(batch_tell_as(A, 1, SH_CLUSTER_COMMIT, a, b, life, at + 2), SHOAL_EBUSY);
    assert_int_equal(batch_tell_as(B, 1, SH_CLUSTER_RESOLVE, a, b, life, at + 2), SHOAL_EBUSY);
    /* Nothing of it has changed what the source may do, but its numbers begin higher. */
    assert_int_equal(batch_tell(A, SH_CLUSTER_COMMIT, a, b, life, at + 1), SHOAL_ECANCELED);
    assert_true(serves(A, world.cids[0]));
    world_close(&world);
}

/* --- Results --------------------------------------------------------------------------------- */

#define RESULTS_EACH 4000 /* of a client, which acknowledges none */
#define RESULT_CLIENTS 6

static struct told adds[64];

static bool all_added(void *arg)
{
    (void)watch(&world);
    for (unsigned i = 0; i < *(unsigned *)arg; i++) {
        if (!adds[i].done)
            return false;
    }
    return true;
}

/* Adds 1 to the last field's bytes of chunks, with numbers from first on. */
static void adds_send(uint64_t of_client, uint64_t first, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        struct sh_once_id id = {of_client, first + i, 0};
        struct sh_out out;
        adds[i] = (struct told){.request = {.done = on_told, .arg = &adds[i]}};
        enum shoal_err err = sh_msg_request(client()->msg, nid_of(A), SH_CHUNKS_ADD_ONCE,
                                            SH_ONCE_PREFIX_BYTES + 21, &adds[i].request, &out);
        assert_int_equal(err, SHOAL_OK);
        sh_once_id_put(&out.w, &id);
        sh_put64(&out.w, world.cids[(first + i) % CHUNKS].v);
        sh_put32(&out.w, 0);
        sh_put8(&out.w, 8);
        sh_put64(&out.w, 1);
        sh_msg_end(client()->msg, &out);
    }
    assert_true(sh_world_run_until(world.sim, all_added, &count, sh_world_now(world.sim) + 60 * S));
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(adds[i].err, SHOAL_OK);
}

/* More results than one batch carries: they go with fewer chunks at a time, all of them. */
static void many_results(void **state)
{
    (void)state;
    open_quiet(2);
    (void)tell(client(), nid_of(A), SH_MOVES_JOB, sh_bytes_make(adds[0].bytes, 8));
    for (unsigned i = 0; i < RESULT_CLIENTS; i++) {
        for (unsigned at = 0; at < RESULTS_EACH; at += 50)
            adds_send(9000 + i, 1 + at, 50);
    }
    (void)move_begin(A, B, 0, CHUNKS - 1, 0);
    struct sh_move_job job = job_end(A, 60 * S);
    assert_int_equal(job.err, SHOAL_OK);
    assert_int_equal(job.chunks, CHUNKS);
    for (unsigned i = 0; i < 20; i++) {
        uint8_t bytes[SH_MOVES_OUTCOME_BYTES];
        uint64_t number = 1 + below(&world, RESULTS_EACH);
        struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
        sh_put64(&w, world.cids[number % CHUNKS].v);
        sh_put64(&w, 9000 + i % RESULT_CLIENTS);
        sh_put16(&w, nid_of(A).v);
        sh_put64(&w, number);
        struct told *told =
            tell(client(), nid_of(B), SH_MOVES_OUTCOME, sh_bytes_make(bytes, sizeof bytes));
        assert_int_equal(told->err, SHOAL_OK);
        assert_int_equal(told->bytes[0], 1);
    }
    world_close(&world);
}

/* Numbers rise with the epoch, through all that a cluster may be forced to. */
static void numbers_rise_with_the_epoch(void **state)
{
    (void)state;
    uint64_t epoch = 7, last = sh_moves_sequence_base(epoch);
    assert_true(sh_moves_sequence_base(0) == 0 && last == UINT64_C(7) << 32);
    for (unsigned i = 0; i < 3000; i++) {
        uint64_t before = last;
        epoch += i % 2 ? UINT64_C(1) << 32 : 1 + i;
        last = sh_moves_sequence_base(epoch);
        assert_true(last >= before + (UINT64_C(1) << 32));
    }
    /* A cluster that is forced to go on may have lost a million epochs, whose numbers were given. */
    assert_true(sh_moves_sequence_base((UINT64_C(1) << 32) + 5) >
                sh_moves_sequence_base(5 + 1000000));
}

/* A range that came here goes back when no chunk is left in it, once the superpeer has decided that. */
static void empty_ranges_go_back(void **state)
{
    (void)state;
    open_quiet(2);
    shoal_cid first = world.cids[0], last = world.cids[1];
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_begin(A, B, 0, 1, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, first) && comes_to(B, last));
    assert_int_equal(sh_store_remove(world.hosts[B].store, first), SHOAL_OK);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    vacate(B, first, last);
    vacate(A, world.cids[2], world.cids[2]); /* its own */
    assert_int_equal(says.commits, 0);
    assert_true(serves(B, first) && serves(B, last));
    assert_int_equal(sh_store_remove(world.hosts[B].store, last), SHOAL_OK);
    static const enum shoal_err refusals[] = {SHOAL_ECANCELED, SHOAL_ENONODE, SHOAL_ELIMIT};
    for (unsigned i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        says_set(refusals[i], 1, SHOAL_OK);
        vacate(B, first, last);
        assert_int_equal(says.commits, 1);
        assert_true(serves(B, first) && serves(B, last));
        /* A former process with B's ID may have used all numbers below. */
        uint64_t epoch = sh_directory_epoch(world.hosts[B].directory);
        assert_true(epoch && says.sequence >= sh_moves_sequence_base(epoch));
    }
    says_set(SHOAL_EBUSY, 3, SHOAL_OK);
    vacate(B, first, last);
    assert_true(!says.is_same && says.commits == 4);
    assert_false(serves(B, first) || serves(B, last));
    world.ends = false; /* they are nowhere */
    world_close(&world);
}

/* A range of a former life is not given back before all of that life's zones are back: one of them may have a chunk in it. */
static void empty_ranges_wait_for_former_zones(void **state)
{
    (void)state;
    open_quiet(2);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_begin(A, B, 0, 0, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[0]));
    assert_int_equal(sh_store_remove(world.hosts[B].store, world.cids[0]), SHOAL_OK);
    world.hosts[B].has_former = true;
    says_set(SHOAL_OK, 0, SHOAL_OK);
    vacate(B, world.cids[0], world.cids[0]);
    assert_int_equal(says.commits, 0);
    world.hosts[B].has_former = false;
    run_for(&world, S);
    assert_int_equal(says.commits, 1);
    assert_false(serves(B, world.cids[0]));
    world.ends = false; /* it is nowhere */
    world_close(&world);
}

/* While it is not known whether a batch was committed, nothing of it goes back. */
static void ranges_of_batches_do_not(void **state)
{
    (void)state;
    open_quiet(3);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    (void)move_begin(A, B, 0, 0, 0);
    assert_int_equal(job_end(A, 20 * S).err, SHOAL_OK);
    assert_true(comes_to(B, world.cids[0]));
    move_undecided(B, C, world.cids[0]);
    unsigned batches = says.batches_count;
    vacate(B, world.cids[0], world.cids[0]);
    vacate(C, world.cids[0], world.cids[0]);
    assert_int_equal(says.batches_count, batches);
    says_set(SHOAL_OK, 0, SHOAL_OK);
    assert_true(comes_to(C, world.cids[0]));
    world_close(&world);
}

int main(void)
{
    test_logs_set();
    seed = test_seed_fresh();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unclear_answers),
        cmocka_unit_test(limit_is_told),
        cmocka_unit_test(source_unaware),
        cmocka_unit_test(back_to_an_unaware_source),
        cmocka_unit_test(batch_before_is_unclear),
        cmocka_unit_test(several_under_way),
        cmocka_unit_test(asked_in_order_after_a_restart),
        cmocka_unit_test(few_large_under_way),
        cmocka_unit_test(one_of_several_is_refused),
        cmocka_unit_test(pieces_are_lost),
        cmocka_unit_test(pieces_come_in_order),
        cmocka_unit_test(arriving_is_not_asked_about),
        cmocka_unit_test(pieces_are_not_sent_in_vain),
        cmocka_unit_test(holds_is_told),
        cmocka_unit_test(source_drops_former_answers),
        cmocka_unit_test(target_drops_former_decisions),
        cmocka_unit_test(senders),
        cmocka_unit_test(many_results),
        cmocka_unit_test(numbers_rise_with_the_epoch),
        cmocka_unit_test(empty_ranges_go_back),
        cmocka_unit_test(empty_ranges_wait_for_former_zones),
        cmocka_unit_test(ranges_of_batches_do_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
