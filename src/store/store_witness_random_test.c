/* The witness under random operations of every kind: with refusals at random places, several rewritings,
 * creations in steps and arrivals under way at once, pins and defragmentation. After each operation the
 * store has what was told, and one that failed has told nothing. Then the same with threads, where the
 * order in which each chunk's changes are told must end in what the store has. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "store/witness_test.h"

#define MIB (UINT64_C(1) << 20)
#define LARGEST (2 * SH_STORE_PIECE_BYTES)
#define NID 5
#define POOL 48 /* chunks to work with */
#define JOBS 4
#define MAKES 40
#define FOREIGN (NID + 1)

/* A rewriting, or a creation in steps, or an arrival, that is under way. */
struct job {
    struct sh_store_rewriting *rewriting;
    struct sh_store_making *making;
    struct sh_store_arriving arriving;
    struct sh_store_rewrite rewrite;
    struct sh_store_wish wish;
    uint32_t sizes[MAKES];
    shoal_cid cids[MAKES];
    uint64_t old;
};

/* One thread's. */
struct player {
    struct sh_store *store;
    struct witness *witness;
    uint64_t rng;
    shoal_cid pool[POOL]; /* some may be gone by now */
    struct job jobs[JOBS];
    uint8_t *data; /* LARGEST bytes, and as many again */
    unsigned ok, refused, failed;
};

static uint32_t below(struct player *player, uint32_t end)
{
    return (uint32_t)(test_draw(&player->rng) % end);
}

static uint32_t draw_size(struct player *player)
{
    switch (below(player, 16)) {
    case 0:
        return 0;
    case 1:
        return SH_STORE_PIECE_BYTES + below(player, LARGEST - SH_STORE_PIECE_BYTES + 1);
    case 2:
        return 1272 + below(player, 3000);
    case 3:
        return 248 + below(player, 1271 - 248 + 1);
    default:
        return below(player, 248);
    }
}

/* Some of the player's random bytes. */
static struct sh_bytes draw_bytes(struct player *player, uint32_t size)
{
    return sh_bytes_make(player->data + below(player, LARGEST), size);
}

static shoal_cid draw_chunk(struct player *player)
{
    shoal_cid cid = player->pool[below(player, POOL)];
    bool is_own = shoal_cid_creator(cid).v == NID;
    return is_own && below(player, 4) == 0 ? (shoal_cid){shoal_cid_local(cid)} : cid;
}

/* Where a new chunk goes; the first half of the pool is the same for all players. */
static void keep(struct player *player, shoal_cid cid)
{
    player->pool[POOL / 2 + below(player, POOL / 2)] = cid;
}

static uint32_t size_of(struct player *player, shoal_cid cid)
{
    uint32_t size;
    return sh_store_size(player->store, cid, &size) ? draw_size(player) : size;
}

/* What one or another change of a chunk needs. */
static struct sh_store_rewrite draw_rewrite(struct player *player, uint64_t *old_out)
{
    static const enum sh_store_rewrite_kind kinds[] = {
        SH_STORE_PUT,    SH_STORE_PUT_PART, SH_STORE_PUT_IF, SH_STORE_PUT_IF_HASH,
        SH_STORE_RESIZE, SH_STORE_ADD,      SH_STORE_RETELL};
    shoal_cid cid = draw_chunk(player);
    uint32_t size = size_of(player, cid), part = size ? below(player, size) : 0;
    struct sh_store_rewrite rewrite = {.kind = kinds[below(player, 7)],
                                       .cid = cid,
                                       .offset = part,
                                       .size = draw_size(player),
                                       .width = below(player, 2) ? 4 : 8,
                                       .delta = test_draw(&player->rng),
                                       .data = draw_bytes(player, size),
                                       .old_out = old_out};
    if (rewrite.kind == SH_STORE_PUT_PART)
        rewrite.data = draw_bytes(player, below(player, size - part + 1));
    if (below(player, 20) == 0)
        rewrite.data.size /= 2;
    return rewrite;
}

/* What it expects is there, mostly: `bytes` is for that, and kept by the caller. */
static void expect(struct player *player, struct sh_store_rewrite *rewrite, uint8_t *bytes)
{
    uint32_t size;
    if (below(player, 8) == 0 || sh_store_get(player->store, rewrite->cid, bytes, LARGEST, &size))
        size = 0;
    rewrite->expected = sh_bytes_make(bytes, size);
    rewrite->hash = sh_hash64(rewrite->expected, 0);
}

static enum shoal_err change_once(struct player *player)
{
    static _Thread_local uint8_t bytes[LARGEST];
    uint64_t old;
    uint32_t size;
    struct sh_store_rewrite rewrite = draw_rewrite(player, &old);
    if (sh_store_size(player->store, rewrite.cid, &size) && below(player, 2))
        return sh_store_adopt(player->store, rewrite.cid, draw_bytes(player, draw_size(player)));
    expect(player, &rewrite, bytes);
    struct sh_store_op op = {rewrite.cid, player->data, rewrite.size, SHOAL_OK};
    if (rewrite.kind == SH_STORE_PUT && below(player, 2)) {
        op.size = (uint32_t)rewrite.data.size;
        (void)sh_store_put_multi(player->store, &op, 1);
        return op.err;
    }
    if (rewrite.kind == SH_STORE_RESIZE && below(player, 2)) {
        (void)sh_store_resize_multi(player->store, &op, 1);
        return op.err;
    }
    return sh_store_rewrite_do(player->store, &rewrite);
}

static enum shoal_err remove_once(struct player *player)
{
    shoal_cid cid = draw_chunk(player);
    enum shoal_err err;
    switch (below(player, 3)) {
    case 0:
        return sh_store_remove(player->store, cid);
    case 1:
        (void)sh_store_remove_multi(player->store, &cid, 1, &err);
        return err;
    default:
        err = sh_store_release(player->store, cid);
        if (!err && below(player, 4)) /* and comes back */
            (void)!sh_store_take_over(player->store, cid, draw_bytes(player, below(player, 2000)));
        return SHOAL_EBUSY; /* two changes at once are not counted */
    }
}

/* Removes chunks from some ID on, so that the store does not get full of those that nobody plays with. */
static void sweep(struct player *player)
{
    enum { MOST = 200 };
    shoal_cid cids[MOST], first, last, from = player->pool[below(player, POOL)];
    enum shoal_err errs[MOST];
    if (below(player, 2))
        from = (shoal_cid){0};
    for (unsigned i = 0; i < 4 && sh_store_range(player->store, from, &first, &last); i++) {
        size_t count = 0;
        for (; count < MOST && first.v + count <= last.v; count++)
            cids[count] = (shoal_cid){first.v + count};
        (void)sh_store_remove_multi(player->store, cids, count, errs);
        from = (shoal_cid){first.v + count};
    }
}

/* Creations that may tell of something though they fail. */
static void create_some(struct player *player)
{
    shoal_cid cids[MAKES];
    uint32_t sizes[MAKES];
    size_t made = 0;
    struct sh_store_wish wish = {.sizes = sizes,
                                 .count = 1 + below(player, MAKES),
                                 .consecutive = below(player, 4) == 0,
                                 .partial = below(player, 4) == 0,
                                 .reserve = below(player, 8) == 0};
    wish.retain = !wish.partial && below(player, 4) == 0;
    for (size_t i = 0; i < wish.count; i++)
        sizes[i] = draw_size(player);
    if (sh_store_new_as(player->store, &wish, cids, &made))
        return;
    for (size_t i = 0; i < made; i++) {
        if (wish.reserve && below(player, 4) == 0)
            (void)!sh_store_unreserve(player->store, cids[i]);
        else if (wish.reserve)
            (void)!sh_store_fill(player->store, cids[i], draw_bytes(player, sizes[i]));
        if (i < 4)
            keep(player, cids[i]);
        else /* or the store gets full */
            (void)!sh_store_remove(player->store, cids[i]);
    }
    if (wish.retain)
        sh_store_unretain(player->store, cids, made);
}

static enum shoal_err adopt_once(struct player *player)
{
    shoal_cid cid =
        shoal_cid_make((shoal_nid){below(player, 2) ? NID : FOREIGN}, 1 + below(player, 200));
    struct sh_bytes data = draw_bytes(player, draw_size(player));
    enum shoal_err err;
    keep(player, cid);
    if (shoal_cid_creator(cid).v == NID && below(player, 2)) {
        err = sh_store_adopt_as(player->store, cid, data, true, NULL);
        if (!err)
            sh_store_unretain(player->store, &cid, 1);
        return err;
    }
    return sh_store_adopt(player->store, cid, data);
}

static void job_begin(struct player *player, struct job *job)
{
    unsigned dice = below(player, 8);
    *job = (struct job){0};
    if (dice == 0) {
        shoal_cid cid = shoal_cid_make((shoal_nid){FOREIGN}, 1 + below(player, 100));
        keep(player, cid);
        uint32_t size = SH_STORE_PIECE_BYTES + 1 + below(player, LARGEST - SH_STORE_PIECE_BYTES);
        if (sh_store_arriving_begin(player->store, cid, size, &job->arriving))
            job->arriving.block = 0;
        else
            sh_store_arriving_put(player->store, &job->arriving, draw_bytes(player, size));
    } else if (dice == 1) {
        job->wish = (struct sh_store_wish){.sizes = job->sizes, .count = 1 + below(player, MAKES)};
        for (size_t i = 0; i < job->wish.count; i++)
            job->sizes[i] = draw_size(player);
        if (sh_store_making_begin(player->store, &job->wish, job->cids, &job->making))
            job->making = NULL;
    } else {
        static _Thread_local uint8_t bytes[LARGEST];
        job->rewrite = draw_rewrite(player, &job->old);
        if (job->rewrite.kind == SH_STORE_PUT_IF)
            job->rewrite.kind = SH_STORE_PUT_IF_HASH; /* needs no bytes kept */
        expect(player, &job->rewrite, bytes);
        if (sh_store_rewriting_begin(player->store, &job->rewrite, &job->rewriting))
            job->rewriting = NULL;
    }
}

static void making_end(struct player *player, struct job *job)
{
    enum shoal_err err = sh_store_making_end(job->making);
    job->making = NULL;
    for (size_t i = 0; !err && i < job->wish.count; i++) {
        if (i < 4)
            keep(player, job->cids[i]);
        else
            (void)!sh_store_remove(player->store, job->cids[i]);
    }
}

/* Begins, goes on with, or ends one of the jobs. */
static void job_step(struct player *player, bool is_ending)
{
    struct job *job = &player->jobs[below(player, JOBS)];
    bool drops = is_ending || below(player, 40) == 0;
    if (job->arriving.block) {
        if (drops)
            sh_store_arriving_drop(player->store, &job->arriving);
        else
            (void)!sh_store_arriving_end(player->store, &job->arriving);
    } else if (job->making) {
        if (drops)
            sh_store_making_fail(job->making, SHOAL_ESTOPPED);
        if (sh_store_making_step(job->making, 16))
            making_end(player, job);
    } else if (job->rewriting) {
        if (drops || sh_store_rewriting_step(job->rewriting)) {
            (void)!sh_store_rewriting_end(job->rewriting);
            job->rewriting = NULL;
        }
    } else if (!is_ending) {
        job_begin(player, job);
    }
}

/* Pins, and may write there, and if so retells. */
static void pin_once(struct player *player)
{
    shoal_cid cid = player->pool[below(player, POOL)];
    struct witness *witness = player->witness;
    uint8_t *at;
    uint32_t size;
    if (sh_store_pin(player->store, cid, &at, &size))
        return;
    struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = cid, .data = draw_bytes(player, size)};
    (void)!sh_store_rewrite_do(player->store, &put);
    if (size > 0 && size <= SH_STORE_PIECE_BYTES && !witness_zone(witness, cid)->is_in_pieces) {
        unsigned refuse_of = witness->refuse_of;
        witness->refuse_of = 0;
        witness_told(witness, cid)->is_loose = true;
        at[below(player, size)] ^= 1;
        assert_int_equal(sh_store_retell(player->store, cid), SHOAL_OK);
        witness->refuse_of = refuse_of;
    }
    assert_int_equal(sh_store_remove(player->store, cid), SHOAL_EBUSY);
    assert_int_equal(sh_store_unpin(player->store, cid), SHOAL_OK);
}

/* An operation that makes one change, or none where it fails. */
static void one_change(struct player *player, enum shoal_err (*operation)(struct player *),
                       bool is_alone)
{
    unsigned records = is_alone ? player->witness->records : 0;
    enum shoal_err err = operation(player);
    player->ok += err == SHOAL_OK;
    player->refused += err == SHOAL_EAGAIN;
    player->failed += err != SHOAL_OK && err != SHOAL_EAGAIN;
    if (is_alone && err != SHOAL_EBUSY)
        assert_int_equal(player->witness->records - records, err == SHOAL_OK);
}

static void play(struct player *player, bool is_alone)
{
    switch (below(player, 12)) {
    case 0:
        one_change(player, remove_once, is_alone);
        break;
    case 1:
        one_change(player, adopt_once, is_alone);
        break;
    case 2:
        if (below(player, 4) == 0)
            create_some(player);
        break;
    case 3:
        if (is_alone)
            pin_once(player);
        else
            (void)!sh_store_get(player->store, draw_chunk(player), player->data + LARGEST, LARGEST,
                                &(uint32_t){0});
        break;
    case 4:
        if (below(player, 8) == 0)
            (void)sh_store_defrag(player->store, 50, true);
        else if (below(player, 16) == 0)
            sweep(player);
        break;
    case 5:
    case 6:
    case 7:
    case 8:
        job_step(player, false);
        break;
    default:
        one_change(player, change_once, is_alone);
    }
}

static struct sh_store *store_make(uint64_t bytes_max)
{
    struct sh_store_config config = {
        .bytes_max = bytes_max, .chunk_bytes_max = LARGEST, .small_pages = true, .nid = {NID}};
    struct sh_store *store;
    assert_int_equal(sh_store_create(&config, &store), SHOAL_OK);
    return store;
}

static void player_open(struct player *player, struct sh_store *store, struct witness *witness,
                        uint64_t seed)
{
    *player = (struct player){.store = store, .witness = witness, .rng = seed};
    player->data = malloc(2 * LARGEST);
    assert_non_null(player->data);
    for (size_t i = 0; i < 2 * LARGEST / 8; i++)
        sh_store64(player->data + 8 * i, test_draw(&player->rng));
    for (unsigned i = 0; i < POOL; i++)
        player->pool[i] = shoal_cid_make((shoal_nid){NID}, 1 + i);
}

/* Ends what is under way. */
static void player_close(struct player *player)
{
    for (unsigned i = 0; i < JOBS;) {
        const struct job *job = &player->jobs[i];
        if (job->arriving.block || job->making || job->rewriting)
            job_step(player, true);
        else
            i++;
    }
    free(player->data);
}

static void random_run(uint64_t bytes_max, unsigned refuse_of, unsigned rounds)
{
    struct sh_store *store = store_make(bytes_max);
    struct witness witness;
    struct player player;
    uint64_t seed = test_seed(20261126) + refuse_of;
    witness_open(&witness, store, seed + 1);
    player_open(&player, store, &witness, seed);
    witness.refuse_of = refuse_of;
    for (unsigned i = 0; i < rounds; i++) {
        play(&player, true);
        assert_int_equal(witness.wrong, 0);
        for (unsigned k = 0; k < 4; k++)
            assert_true(witness_is_right(&witness, player.pool[below(&player, POOL)]));
        if (i % 512 == 0)
            witness_compare(&witness);
    }
    player_close(&player);
    witness_compare(&witness);
    sh_alloc_check(store->alloc);
    print_message("%u done, %u refused, %u failed; told %u, %u in pieces, %u not, %u cancelled\n",
                  player.ok, player.refused, player.failed, witness.records, witness.made,
                  witness.not_made, witness.cancels);
    assert_true(player.ok > rounds / 20 && witness.made > 0 && witness.not_made > 0);
    witness_close(&witness);
    sh_store_destroy(store);
}

static void test_random(void **state)
{
    (void)state;
    random_run(64 * MIB, 0, TEST_ROUNDS(30000));
    random_run(64 * MIB, 3, TEST_ROUNDS(30000));
    random_run(64 * MIB, 30, TEST_ROUNDS(30000));
}

/* Where memory ends every so often. */
static void test_random_full(void **state)
{
    (void)state;
    random_run(4 * MIB, 10, TEST_ROUNDS(20000));
}

/* --- Threads ------------------------------------------------------------------------------- */

#define THREADS 4

struct shared {
    struct sh_store *store;
    struct witness *witness;
    uint64_t seed;
    unsigned rounds;
    _Atomic unsigned started, ok, refused;
};

static void *thread_main(void *arg)
{
    struct shared *shared = arg;
    struct player player;
    unsigned self = atomic_fetch_add(&shared->started, 1);
    player_open(&player, shared->store, shared->witness, shared->seed + self * 7919);
    for (unsigned i = 0; i < shared->rounds; i++)
        play(&player, false);
    player_close(&player);
    atomic_fetch_add(&shared->ok, player.ok);
    atomic_fetch_add(&shared->refused, player.refused);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    struct sh_store *store = store_make(64 * MIB);
    struct witness witness;
    struct shared shared = {
        .store = store, .witness = &witness, .seed = test_seed(11), .rounds = TEST_ROUNDS(20000)};
    pthread_t threads[THREADS];
    witness_open(&witness, store, shared.seed);
    witness.refuse_of = 20;
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, thread_main, &shared), 0);
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    witness_compare(&witness);
    sh_alloc_check(store->alloc);
    assert_true(shared.ok > 0 && shared.refused > 0);
    assert_true(witness.made > 0 && witness.records > shared.rounds / 10);
    witness_close(&witness);
    sh_store_destroy(store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_random_full),
        cmocka_unit_test(test_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
