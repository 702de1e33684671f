/* A shard's state beside a slow, obvious model: batches that are committed, aborted, asked about
 * and repeated; names; images.
 *
 * SHOAL_TEST_SEED: which seed. */
#include "metadata/image_test.h"
#include "metadata/metadata.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "env/env.h"
#include "ring/arcs.h"

#define CHUNKS 200
#define PEERS 4
#define NAMES 40
#define CREATOR 64

static uint64_t draws;

static uint64_t below(uint64_t bound)
{
    draws += UINT64_C(0x9e3779b97f4a7c15);
    return sh_mix64(draws) % bound;
}

/* Who has each of one creator's first chunks; each peer's last batch; names' chunks. */
struct model {
    uint16_t owners[CHUNKS];
    uint64_t sequences[PEERS];
    uint64_t names[NAMES];
};

static shoal_cid cid_of(unsigned chunk)
{
    return shoal_cid_make((shoal_nid){CREATOR}, chunk);
}

static struct sh_bytes name_of(unsigned i, char *into)
{
    return sh_bytes_make(into, (size_t)snprintf(into, 16, i % 2 ? "user/%u" : "%u", i * i));
}

/* An update goes as bytes, as it does between superpeers. */
static struct sh_metadata_result apply(struct sh_metadata *metadata, unsigned shard,
                                       const struct sh_metadata_update *update)
{
    static uint8_t bytes[SH_METADATA_BYTES_MAX];
    static struct sh_metadata_update got;
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, update);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(
        sh_metadata_update_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), shard, &got),
        SHOAL_OK);
    bool is_batch = update->kind < SH_METADATA_NAME || update->kind == SH_METADATA_CLAIM;
    if (is_batch ? update->count : update->kind < SH_METADATA_CLAIM)
        assert_int_equal(sh_metadata_shard(&got), shard);
    return sh_metadata_apply(metadata, shard, &got);
}

static void act_move(struct sh_metadata *metadata, struct model *model)
{
    static struct sh_metadata_update update;
    unsigned from = (unsigned)below(PEERS), to = (unsigned)below(PEERS);
    if (from == to)
        return;
    uint64_t last = model->sequences[from];
    uint64_t sequence = below(4) ? last + 1 : last > 1 ? last - below(2) : last + 1;
    update = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                         .from = {(uint16_t)(CREATOR + from)},
                                         .to = {(uint16_t)(CREATOR + to)},
                                         .sequence = sequence};
    bool owns_all = true;
    for (unsigned at = (unsigned)below(50); at < CHUNKS && update.count < 5;) {
        unsigned size = 1 + (unsigned)below(9);
        if (at + size > CHUNKS)
            break;
        if (model->owners[at] != CREATOR + from && below(20)) {
            at++;
            continue;
        }
        unsigned end = at + 1;
        while (end < at + size && model->owners[end] == CREATOR + from)
            end++;
        owns_all &= model->owners[at] == CREATOR + from;
        update.runs[update.count++] = (struct sh_metadata_run){cid_of(at), cid_of(end - 1)};
        at = end + 1 + (unsigned)below(5);
    }
    if (!update.count)
        return;
    struct sh_metadata_result result = apply(metadata, 0, &update);
    if (sequence <= last) {
        uint16_t owner = model->owners[shoal_cid_local(update.runs[0].first)];
        assert_int_equal(result.err, owner == CREATOR + from ? SHOAL_ECANCELED : SHOAL_OK);
    } else {
        assert_int_equal(result.err, owns_all ? SHOAL_OK : SHOAL_ENOTOWNER);
        model->sequences[from] = sequence;
        for (size_t i = 0; owns_all && i < update.count; i++) {
            for (uint64_t at = update.runs[i].first.v; at <= update.runs[i].last.v; at++)
                model->owners[shoal_cid_local((shoal_cid){at})] = (uint16_t)(CREATOR + to);
        }
    }
}

/* A batch that is asked about is never committed later. */
static void act_resolve(struct sh_metadata *metadata, struct model *model)
{
    static struct sh_metadata_update update;
    unsigned from = (unsigned)below(PEERS), to = (from + 1) % PEERS;
    uint64_t sequence = model->sequences[from] + below(2);
    if (!sequence)
        return;
    update = (struct sh_metadata_update){.kind = SH_METADATA_RESOLVE,
                                         .from = {(uint16_t)(CREATOR + from)},
                                         .to = {(uint16_t)(CREATOR + to)},
                                         .sequence = sequence,
                                         .count = 1,
                                         .runs = {{cid_of(0), cid_of(0)}}};
    struct sh_metadata_result result = apply(metadata, 0, &update);
    assert_int_equal(result.err, SHOAL_OK);
    assert_int_equal(result.is_committed, model->owners[0] == CREATOR + to);
    if (sequence > model->sequences[from])
        model->sequences[from] = sequence;
}

static void act_name(struct sh_metadata *metadata, struct model *model)
{
    static struct sh_metadata_update update;
    char text[16];
    unsigned at = (unsigned)below(NAMES);
    update = (struct sh_metadata_update){.kind = below(3) ? SH_METADATA_NAME : SH_METADATA_UNNAME,
                                         .condition = (uint8_t)below(3),
                                         .cid = {1 + below(5)},
                                         .expected = {1 + below(5)},
                                         .name = name_of(at, text)};
    struct sh_metadata_result result = apply(metadata, sh_arc_shard_of_name(update.name), &update);
    uint64_t before = model->names[at];
    bool is_removal = update.kind == SH_METADATA_UNNAME;
    enum shoal_err expected = SHOAL_OK;
    if (!before && (is_removal || update.condition == SH_NAME_CURRENT))
        expected = SHOAL_ENONAME;
    else if (before && update.condition == SH_NAME_CURRENT && before != update.expected.v)
        expected = SHOAL_EDIFFERS;
    else if (before && !is_removal && update.condition == SH_NAME_ABSENT)
        expected = SHOAL_EEXIST;
    assert_int_equal(result.err, expected);
    assert_true(result.cid.v == before);
    if (!expected)
        model->names[at] = is_removal ? 0 : update.cid.v;
}

static void check(const struct sh_metadata *metadata, const struct model *model)
{
    for (unsigned i = 0; i < CHUNKS; i++) {
        struct sh_metadata_range range = sh_metadata_find(metadata, cid_of(i));
        assert_true(range.first.v <= cid_of(i).v && range.last.v >= cid_of(i).v);
        assert_int_equal(range.note.owner.v, model->owners[i]);
    }
    unsigned there = 0, listed = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        char text[16];
        shoal_cid cid = {0};
        enum shoal_err err = sh_metadata_lookup(metadata, name_of(i, text), &cid);
        assert_int_equal(err, model->names[i] ? SHOAL_OK : SHOAL_ENONAME);
        assert_true(cid.v == model->names[i]);
        there += model->names[i] && i % 2;
    }
    for (unsigned shard = 0; shard < SH_SHARDS; shard++) {
        struct sh_bytes name = {NULL, 0};
        shoal_cid cid;
        while (sh_metadata_name_next(metadata, shard, sh_bytes_text("user/"), name, &name, &cid))
            listed++;
    }
    assert_int_equal(listed, there);
}

/* All shards go as images to another one, which is then the same. */
static struct sh_metadata *copied(struct sh_metadata *metadata)
{
    struct sh_metadata *copy;
    assert_int_equal(sh_metadata_create(&copy), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        size_t size = image_size(metadata, i);
        uint8_t *bytes = malloc(size);
        assert_non_null(bytes);
        struct sh_writer w = sh_writer_make(bytes, size);
        image_put(metadata, i, &w);
        assert_true(sh_writer_ok(&w) && w.at == w.end);
        assert_int_equal(image_get(copy, i, sh_bytes_make(bytes, size)), SHOAL_OK);
        /* A damaged one changes nothing. */
        assert_int_equal(image_get(copy, i, sh_bytes_make(bytes, size - 1)), SHOAL_EPROTO);
        assert_int_equal(image_size(copy, i), size);
        free(bytes);
    }
    return copy;
}

static void test_model(void **state)
{
    (void)state;
    struct sh_random random = sh_real_random();
    const char *given = getenv("SHOAL_TEST_SEED");
    draws = given ? strtoull(given, NULL, 0) : sh_random64(&random) >> 16;
    print_message("seed %" PRIu64 " (SHOAL_TEST_SEED)\n", draws);
    struct model model = {.sequences = {0}};
    for (unsigned i = 0; i < CHUNKS; i++)
        model.owners[i] = CREATOR;
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < 4000; i++) {
        switch (below(6)) {
        case 0:
        case 1:
            act_move(metadata, &model);
            break;
        case 2:
            act_resolve(metadata, &model);
            break;
        default:
            act_name(metadata, &model);
        }
        if (i % 50 == 0)
            check(metadata, &model);
        if (i % 500 == 0) {
            struct sh_metadata *copy = copied(metadata);
            sh_metadata_destroy(metadata);
            metadata = copy;
        }
    }
    check(metadata, &model);
    sh_metadata_destroy(metadata);
}

static struct sh_metadata_update claim_of(enum sh_claim kind, unsigned peer, unsigned first,
                                          unsigned last)
{
    return (struct sh_metadata_update){.kind = SH_METADATA_CLAIM,
                                       .condition = (uint8_t)kind,
                                       .from = {(uint16_t)(CREATOR + peer)},
                                       .count = 1,
                                       .runs = {{cid_of(first), cid_of(last)}}};
}

static enum shoal_err known(struct sh_metadata *metadata)
{
    static struct sh_metadata_update update;
    update = (struct sh_metadata_update){.kind = SH_METADATA_KNOWN};
    return apply(metadata, 0, &update).err;
}

/* What is gathered after a loss, in each order: whoever serves is believed before a source that does
 * not know what came of its batch, and that before the creator. */
static void test_claims(void **state)
{
    (void)state;
    static struct sh_metadata_update claims[3];
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    for (unsigned order = 0; order < 6; order++) {
        struct sh_metadata *metadata;
        assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
        assert_false(sh_metadata_is_known(metadata, 0));
        sh_metadata_begin(metadata, 0, 7, false);
        claims[0] = claim_of(SH_CLAIM_GAVE, 0, 10, 29);
        claims[1] = claim_of(SH_CLAIM_FROZEN, 1, 15, 24);
        claims[2] = claim_of(SH_CLAIM_SERVES, 2, 20, 22);
        for (unsigned i = 0; i < 3; i++)
            assert_int_equal(apply(metadata, 0, &claims[orders[order][i]]).err, SHOAL_OK);
        for (unsigned i = 0; i < 40; i++) {
            unsigned owner = i < 10 || i > 29   ? CREATOR
                             : i < 15 || i > 24 ? 0
                             : i < 20 || i > 22 ? CREATOR + 1
                                                : CREATOR + 2;
            assert_int_equal(sh_metadata_find(metadata, cid_of(i)).note.owner.v, owner);
        }
        assert_int_equal(known(metadata), SHOAL_OK);
        struct sh_metadata *copy = copied(metadata);
        assert_true(sh_metadata_is_known(copy, 0));
        assert_true(sh_metadata_incarnation(copy, 0) == 7);
        assert_int_equal(sh_metadata_find(copy, cid_of(15)).note.owner.v, CREATOR + 1);
        /* What comes late changes nothing. */
        assert_int_equal(apply(copy, 0, &claims[0]).err, SHOAL_ECANCELED);
        sh_metadata_begin(copy, 0, 8, false);
        assert_int_equal(sh_metadata_find(copy, cid_of(15)).note.owner.v, CREATOR);
        assert_false(sh_metadata_is_known(copy, 0));
        sh_metadata_destroy(copy);
        sh_metadata_destroy(metadata);
    }
}

/* Batches that were begun before a loss are not committed after it: the nodes' word says what came of
 * them. Whoever has the only copy that is left gets it. */
static void test_batches_over_a_loss(void **state)
{
    (void)state;
    static struct sh_metadata_update claim, batch;
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, 0, 7, false);
    claim = (struct sh_metadata_update){.kind = SH_METADATA_CLAIM,
                                        .condition = SH_CLAIM_SERVES,
                                        .from = {CREATOR + 1},
                                        .sequence = 9};
    assert_int_equal(apply(metadata, 0, &claim).err, SHOAL_OK);
    claim = claim_of(SH_CLAIM_FROZEN, 1, 10, 14);
    assert_int_equal(apply(metadata, 0, &claim).err, SHOAL_OK);
    claim = claim_of(SH_CLAIM_SERVES, 2, 20, 24);
    assert_int_equal(apply(metadata, 0, &claim).err, SHOAL_OK);
    claim = claim_of(SH_CLAIM_GAVE, 0, 0, 39);
    assert_int_equal(apply(metadata, 0, &claim).err, SHOAL_OK);
    assert_int_equal(known(metadata), SHOAL_OK);
    batch = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                        .from = {CREATOR + 1},
                                        .to = {CREATOR + 2},
                                        .sequence = 9,
                                        .count = 1,
                                        .runs = {{cid_of(10), cid_of(14)}}};
    assert_int_equal(apply(metadata, 0, &batch).err, SHOAL_ECANCELED); /* nobody else serves it */
    batch.runs[0] = (struct sh_metadata_run){cid_of(20), cid_of(24)};
    assert_int_equal(apply(metadata, 0, &batch).err, SHOAL_OK); /* its target had heard before */
    batch.kind = SH_METADATA_RESOLVE;
    assert_true(apply(metadata, 0, &batch).is_committed);
    batch.runs[0] = (struct sh_metadata_run){cid_of(10), cid_of(14)};
    assert_false(apply(metadata, 0, &batch).is_committed);
    /* The source had heard, and has let go; the target has not. */
    batch.runs[0] = (struct sh_metadata_run){cid_of(30), cid_of(34)};
    assert_true(apply(metadata, 0, &batch).is_committed);
    assert_int_equal(sh_metadata_find(metadata, cid_of(32)).note.owner.v, CREATOR + 2);
    batch.runs[0] =
        (struct sh_metadata_run){cid_of(33), cid_of(36)}; /* not all of it is nobody's */
    batch.to.v = CREATOR + 3;
    assert_false(apply(metadata, 0, &batch).is_committed);
    batch.kind = SH_METADATA_MOVE;
    batch.sequence = 10;
    batch.runs[0] = (struct sh_metadata_run){cid_of(10), cid_of(14)};
    assert_int_equal(apply(metadata, 0, &batch).err, SHOAL_OK);
    sh_metadata_destroy(metadata);
}

/* A batch whose target is down is never committed later. */
static void test_refusal(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    update = (struct sh_metadata_update){.kind = SH_METADATA_REFUSE,
                                         .from = {CREATOR},
                                         .to = {CREATOR + 1},
                                         .sequence = 1,
                                         .count = 1,
                                         .runs = {{cid_of(10), cid_of(19)}}};
    assert_int_equal(apply(metadata, 0, &update).err, SHOAL_ENONODE);
    update.kind = SH_METADATA_MOVE;
    assert_int_equal(apply(metadata, 0, &update).err, SHOAL_ECANCELED);
    update.sequence = 2;
    assert_int_equal(apply(metadata, 0, &update).err, SHOAL_OK);
    update.kind = SH_METADATA_REFUSE; /* it has been committed */
    assert_int_equal(apply(metadata, 0, &update).err, SHOAL_OK);
    assert_int_equal(sh_metadata_find(metadata, cid_of(10)).note.owner.v, CREATOR + 1);
    sh_metadata_destroy(metadata);
}

static struct sh_metadata_result batch(struct sh_metadata *metadata, uint8_t kind, uint16_t from,
                                       uint16_t to, uint64_t sequence, unsigned chunk)
{
    static struct sh_metadata_update update;
    update = (struct sh_metadata_update){.kind = kind,
                                         .from = {from},
                                         .to = {to},
                                         .sequence = sequence,
                                         .count = 1,
                                         .runs = {{cid_of(chunk), cid_of(chunk)}}};
    return apply(metadata, 0, &update);
}

/* What became of a source's batch is known after later ones too, however many. */
static void test_older_batches(void **state)
{
    (void)state;
    struct sh_metadata *metadata;
    const uint16_t other = CREATOR + 2;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    /* Batches of the creator, of which each third is refused. */
    for (uint64_t at = 1; at <= 100; at++)
        (void)batch(metadata, at % 3 ? SH_METADATA_MOVE : SH_METADATA_REFUSE, CREATOR, other,
                    2 * at, (unsigned)at + 20);
    struct sh_metadata *copy = copied(metadata);
    for (uint64_t at = 1; at <= 100; at++) {
        bool is_committed =
            batch(copy, SH_METADATA_RESOLVE, CREATOR, other, 2 * at, (unsigned)at + 20)
                .is_committed;
        assert_int_equal(is_committed, at % 3 != 0);
        if (at < 100) /* of one in between nobody has heard */
            assert_false(
                batch(copy, SH_METADATA_RESOLVE, CREATOR, other, 2 * at + 1, 200).is_committed);
    }
    sh_metadata_destroy(copy);
    sh_metadata_destroy(metadata);
}

/* --- Many ranges ----------------------------------------------------------------------------- */

/* What a node says that it has: chunks 2 * i, for i from first on, each a run by itself. */
static enum shoal_err claim_many(struct sh_metadata *metadata, uint64_t first, uint64_t count)
{
    static struct sh_metadata_update claim;
    for (uint64_t at = first; at < first + count;) {
        claim = (struct sh_metadata_update){
            .kind = SH_METADATA_CLAIM, .condition = SH_CLAIM_SERVES, .from = {CREATOR + 1}};
        for (; at < first + count && claim.count < SH_METADATA_RUNS_MAX; at++) {
            shoal_cid cid = shoal_cid_make((shoal_nid){CREATOR}, 2 * at);
            claim.runs[claim.count++] = (struct sh_metadata_run){cid, cid};
        }
        enum shoal_err err = apply(metadata, 0, &claim).err;
        if (err)
            return err;
    }
    return SHOAL_OK;
}

/* A node that has more runs than migrations could make of one creator's chunks says so all the
 * same; where that has an end, the shard is not taken for known, also by who gets its image. */
static void test_claims_of_many(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* a million claims, by one thread: ten minutes for nothing */
#endif
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, 0, 7, false);
    assert_int_equal(claim_many(metadata, 0, SH_METADATA_RANGES_MAX), SHOAL_OK);
    assert_int_equal(known(metadata), SHOAL_OK);
    assert_true(sh_metadata_is_known(metadata, 0));
    struct sh_metadata *copy = copied(metadata);
    uint64_t last = 2 * (SH_METADATA_RANGES_MAX - 1);
    for (uint64_t local = last - 20; local <= last + 1; local++) {
        shoal_cid cid = shoal_cid_make((shoal_nid){CREATOR}, local);
        assert_int_equal(sh_metadata_find(copy, cid).note.owner.v, CREATOR + (local % 2 == 0));
    }
    sh_metadata_destroy(metadata);
    /* All that there is room for, and one more. */
    sh_metadata_begin(copy, 0, 8, false);
    assert_int_equal(claim_many(copy, 0, SH_METADATA_CLAIMS_MAX / 2 - 2048), SHOAL_OK);
    assert_int_equal(claim_many(copy, SH_METADATA_CLAIMS_MAX / 2 - 2048, 4096), SHOAL_ELIMIT);
    metadata = copied(copy); /* its image can be read then */
    sh_metadata_destroy(copy);
    assert_false(sh_metadata_is_known(metadata, 0));
    sh_metadata_destroy(metadata);
}

/* An old copy keeps its names, and not where chunks are. */
static void test_restored(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    struct sh_metadata *metadata;
    char text[16];
    shoal_cid cid;
    unsigned shard = sh_arc_shard((shoal_nid){CREATOR});
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, shard, 7, true);
    struct sh_bytes name = name_of(0, text);
    for (unsigned i = 1; sh_arc_shard_of_name(name) != shard; i++)
        name = name_of(i, text);
    update = (struct sh_metadata_update){
        .kind = SH_METADATA_NAME, .condition = SH_NAME_ANY, .cid = {5}, .name = name};
    assert_int_equal(apply(metadata, shard, &update).err, SHOAL_OK);
    update = (struct sh_metadata_update){.kind = SH_METADATA_MOVE,
                                         .from = {CREATOR},
                                         .to = {CREATOR + 1},
                                         .sequence = 1,
                                         .count = 1,
                                         .runs = {{cid_of(10), cid_of(19)}}};
    assert_int_equal(apply(metadata, shard, &update).err, SHOAL_OK);
    assert_int_equal(sh_metadata_find(metadata, cid_of(12)).note.owner.v, CREATOR + 1);
    update = (struct sh_metadata_update){.kind = SH_METADATA_RESTORED, .sequence = 9};
    assert_int_equal(apply(metadata, shard, &update).err, SHOAL_OK);
    struct sh_metadata *copy = copied(metadata);
    assert_true(sh_metadata_incarnation(copy, shard) == 9);
    assert_false(sh_metadata_is_known(copy, shard));
    assert_int_equal(sh_metadata_measure(copy, shard).sources, 0);
    assert_int_equal(sh_metadata_find(copy, cid_of(12)).note.owner.v, CREATOR);
    assert_int_equal(sh_metadata_lookup(copy, name, &cid), SHOAL_OK);
    assert_true(cid.v == 5);
    sh_metadata_destroy(copy);
    sh_metadata_destroy(metadata);
    uint8_t bytes[16];
    update.sequence = 0; /* no incarnation */
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_metadata_update_put(&w, &update);
    assert_int_equal(
        sh_metadata_update_get(sh_bytes_make(bytes, (size_t)(w.at - bytes)), shard, &update),
        SHOAL_EPROTO);
}

static shoal_nid peer_of(unsigned peer)
{
    return (shoal_nid){(uint16_t)(CREATOR + peer)};
}

static enum shoal_err gone(struct sh_metadata *metadata, unsigned peer)
{
    static struct sh_metadata_update update;
    update = (struct sh_metadata_update){.kind = SH_METADATA_GONE, .from = peer_of(peer)};
    return apply(metadata, 0, &update).err;
}

static enum shoal_err moved(struct sh_metadata *metadata, enum sh_metadata_kind kind, unsigned from,
                            unsigned to, uint64_t sequence, unsigned first, unsigned last)
{
    static struct sh_metadata_update update;
    update = (struct sh_metadata_update){.kind = (uint8_t)kind,
                                         .from = peer_of(from),
                                         .to = peer_of(to),
                                         .sequence = sequence,
                                         .count = 1,
                                         .runs = {{cid_of(first), cid_of(last)}}};
    struct sh_metadata_result result = apply(metadata, 0, &update);
    return kind == SH_METADATA_RESOLVE && !result.err && !result.is_committed ? SHOAL_ECANCELED
                                                                              : result.err;
}

static void refers(const struct sh_metadata *metadata, unsigned peer, uint32_t ranges,
                   uint32_t lost)
{
    struct sh_metadata_refs refs = sh_metadata_refs(metadata, 0, peer_of(peer));
    assert_int_equal(refs.ranges, ranges);
    assert_int_equal(refs.lost, lost);
}

/* What a peer had of another's chunks is lost with it, and nobody's: also if a target has a copy that was
 * not committed before. The creator is referred to until it is gone too; then by what is with others. */
static void test_gone(void **state)
{
    (void)state;
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, 0, 7, true);
    assert_int_equal(moved(metadata, SH_METADATA_MOVE, 0, 1, 1, 10, 19), SHOAL_OK);
    assert_int_equal(moved(metadata, SH_METADATA_MOVE, 0, 2, 2, 20, 29), SHOAL_OK);
    assert_int_equal(moved(metadata, SH_METADATA_MOVE, 0, 1, 3, 30, 39), SHOAL_OK);
    refers(metadata, 0, 3, 0);
    refers(metadata, 1, 2, 2);
    assert_int_equal(gone(metadata, 1), SHOAL_OK);
    assert_int_equal(gone(metadata, 1), SHOAL_OK);
    refers(metadata, 0, 3, 2);
    refers(metadata, 1, 0, 0);
    refers(metadata, 2, 1, 1);
    for (unsigned i = 0; i < 50; i++) {
        uint64_t owner = sh_metadata_find(metadata, cid_of(i)).note.owner.v;
        bool is_lost = (i >= 10 && i < 20) || (i >= 30 && i < 40);
        assert_true(is_lost ? owner > SH_PEER_NID_MAX
                            : owner == (i / 10 == 2 ? CREATOR + 2 : CREATOR));
    }
    assert_int_equal(moved(metadata, SH_METADATA_RESOLVE, 0, 2, 1, 12, 13), SHOAL_ECANCELED);
    assert_int_equal(moved(metadata, SH_METADATA_MOVE, 1, 2, 1, 12, 13), SHOAL_ENOTOWNER);
    struct sh_metadata *copy = copied(metadata);
    refers(copy, 0, 3, 2);
    assert_int_equal(gone(copy, 2), SHOAL_OK); /* one range with its neighbours */
    refers(copy, 0, 1, 1);
    assert_int_equal(gone(metadata, 0), SHOAL_OK);
    refers(metadata, 0, 1, 0);
    assert_int_equal(sh_metadata_find(metadata, cid_of(12)).note.owner.v, CREATOR);
    assert_int_equal(sh_metadata_find(metadata, cid_of(25)).note.owner.v, CREATOR + 2);
    assert_int_equal(gone(metadata, 2), SHOAL_OK);
    assert_int_equal(gone(metadata, 0), SHOAL_OK);
    refers(metadata, 0, 0, 0);
    struct sh_metadata_range all = sh_metadata_find(metadata, cid_of(12));
    assert_int_equal(all.note.owner.v, CREATOR);
    assert_int_equal(shoal_cid_local(all.last), SHOAL_LOCAL_ID_MAX);
    sh_metadata_destroy(copy);
    sh_metadata_destroy(metadata);
}

/* As many ranges as there may be go by and by, each update carried out without any more memory. */
static void test_gone_with_many(void **state)
{
    (void)state;
    struct sh_metadata *metadata;
    const uint32_t count = 5 * SH_METADATA_GONE_MAX / 2;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, 0, 7, true);
    for (unsigned i = 0; i < count; i++)
        assert_int_equal(moved(metadata, SH_METADATA_MOVE, 0, 1, i + 1, 2 * i, 2 * i), SHOAL_OK);
    for (unsigned i = 0; i < 3; i++) {
        refers(metadata, 1, count - i * SH_METADATA_GONE_MAX, count - i * SH_METADATA_GONE_MAX);
        assert_int_equal(gone(metadata, 1), SHOAL_OK);
    }
    refers(metadata, 1, 0, 0);
    refers(metadata, 0, count, count);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(gone(metadata, 0), SHOAL_OK);
    refers(metadata, 0, 0, 0);
    assert_int_equal(sh_metadata_measure(metadata, 0).ranges, 1);
    sh_metadata_destroy(metadata);
}

/* A billion chunks leave their creator, a batch of 1024 after the other, for 16 targets that take turns
 * of some length: a range for each turn stays. */
static void test_a_billion_chunks_move(void **state)
{
    (void)state;
    static struct sh_metadata_update update;
    struct sh_metadata *metadata;
    const uint64_t all = UINT64_C(1) << 30, a_batch = 1024, turn = all / 64;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    sh_metadata_begin(metadata, 0, 1, true);
    uint64_t sequence = 0;
    for (uint64_t at = 0; at < all; at += a_batch) {
        update = (struct sh_metadata_update){
            .kind = SH_METADATA_MOVE,
            .from = {CREATOR},
            .to = {(uint16_t)(CREATOR + 1 + at / turn % 16)},
            .sequence = ++sequence,
            .count = 1,
            .runs = {{shoal_cid_make((shoal_nid){CREATOR}, at),
                      shoal_cid_make((shoal_nid){CREATOR}, at + a_batch - 1)}}};
        struct sh_metadata_result result = sh_metadata_apply(metadata, 0, &update);
        assert_int_equal(result.err, SHOAL_OK);
    }
    assert_int_equal(sh_metadata_measure(metadata, 0).ranges, 64 + 1); /* and what it has itself */
    for (uint64_t at = 0; at < all; at += all / 1000)
        assert_int_equal(
            sh_metadata_find(metadata, shoal_cid_make((shoal_nid){CREATOR}, at)).note.owner.v,
            CREATOR + 1 + at / turn % 16);
    sh_metadata_destroy(metadata);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model),
        cmocka_unit_test(test_claims),
        cmocka_unit_test(test_batches_over_a_loss),
        cmocka_unit_test(test_refusal),
        cmocka_unit_test(test_claims_of_many),
        cmocka_unit_test(test_older_batches),
        cmocka_unit_test(test_restored),
        cmocka_unit_test(test_gone),
        cmocka_unit_test(test_gone_with_many),
        cmocka_unit_test(test_a_billion_chunks_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
