/* One superpeer's ring, and messages that a test makes: whatever the others are to have said. */
#ifndef SH_RING_RING_RULES_RIG_TEST_H
#define SH_RING_RING_RULES_RIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "ring/ring_int.h"

#define OWN 1
#define OTHER 2
#define THIRD 3
#define OURS 40   /* a shard that superpeer 1 is to own, whoever else is there */
#define THEIRS 5  /* one that superpeer 2 is to own */
#define RESEND 10 /* ns */
#define PATIENCE (UINT64_C(1) << 40)
#define KEPT 64    /* entries */
#define PIECE 4096 /* bytes of a message */
#define BODY_MAX 256
#define SMALL sh_bytes_text("update")

static struct sh_ring *ring;
static struct sh_journal *journal;
static struct sh_disk *disk;
static struct sh_arcs arcs;
static uint64_t now_ns, built_version;
static uint64_t segment; /* bytes of a file of the journal; 0: as usual */

/* --- The state: how often what was done with it ------------------------------------------------- */

static struct {
    unsigned applied, installed, cleared;
    uint64_t epoch; /* of what was applied last */
    unsigned open;  /* snapshots and restores */
    unsigned begun; /* the same, ever */
    unsigned pieces;
    bool lacks_memory, begins_fail, restores_fail;
} fsm;

static void apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    (void)sequence;
    (void)command;
    fsm.applied++;
    fsm.epoch = epoch;
}

/* Updates that begin with a v are. */
static bool is_volatile(void *arg, unsigned shard, struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    return command.size && command.at[0] == 'v';
}

static enum shoal_err reserve(void *arg, unsigned shard, struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    (void)command;
    return fsm.lacks_memory ? SHOAL_ENOMEM : SHOAL_OK;
}

/* A snapshot, or a restore, is the number of its pieces, of a byte each. */
static enum shoal_err snapshot_begin(void *arg, unsigned shard, void **snapshot_out)
{
    (void)arg;
    (void)shard;
    if (fsm.begins_fail)
        return SHOAL_ENOMEM;
    unsigned *pieces = malloc(sizeof *pieces);
    assert_non_null(pieces);
    *pieces = fsm.pieces;
    *snapshot_out = pieces;
    fsm.open++;
    fsm.begun++;
    return SHOAL_OK;
}

static size_t snapshot_next(void *arg, void *snapshot, uint8_t *into, size_t room)
{
    unsigned *pieces = snapshot;
    (void)arg;
    assert_true(room);
    if (!*pieces)
        return 0;
    *into = (uint8_t)(*pieces)--;
    return 1;
}

static void snapshot_end(void *arg, void *snapshot)
{
    (void)arg;
    free(snapshot);
    fsm.open--;
}

static enum shoal_err restore_piece(void *arg, void *restore, struct sh_bytes piece)
{
    (void)arg;
    (*(unsigned *)restore)--;
    return piece.size == 1 ? SHOAL_OK : SHOAL_EPROTO;
}

static enum shoal_err restore_end(void *arg, void *restore, bool install)
{
    bool is_whole = !*(unsigned *)restore && !fsm.restores_fail;
    snapshot_end(arg, restore);
    fsm.installed += install && is_whole;
    return install && !is_whole ? SHOAL_EPROTO : SHOAL_OK;
}

static void clear(void *arg, unsigned shard)
{
    (void)arg;
    (void)shard;
    fsm.cleared++;
}

static void build(void *arg, unsigned shard, uint64_t version)
{
    (void)arg;
    (void)shard;
    built_version = version;
}

/* --- The superpeer -------------------------------------------------------------------------------- */

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 7, size);
}

static inline void store(void)
{
    while (sh_journal_synced(journal) != sh_journal_last(journal))
        (void)sh_journal_step(journal, now_ns);
}

static inline void step(void)
{
    now_ns += RESEND;
    (void)sh_ring_step(ring, now_ns);
}

static inline void tell(void)
{
    sh_ring_arcs_set(ring, now_ns, &arcs);
}

/* Of the copy of our shard that the disk has at the next setup; 0: it has none. */
static uint64_t own_copy_epoch;

/* A process begins on the disk. */
static inline void open_ring(void)
{
    struct sh_journal_stream streams[SH_SHARDS];
    struct sh_ring_config config = {
        .server = OWN,
        .resend_ns = RESEND,
        .patience_ns = PATIENCE,
        .entries_kept = KEPT,
        .piece_bytes = PIECE,
        .fsm = {.apply = apply,
                .is_volatile = is_volatile,
                .reserve = reserve,
                .snapshot_begin = snapshot_begin,
                .snapshot_next = snapshot_next,
                .snapshot_end = snapshot_end,
                .restore_begin = snapshot_begin,
                .restore_piece = restore_piece,
                .restore_end = restore_end,
                .clear = clear,
                .build = build},
    };
    assert_int_equal(sh_ring_create(&config, &ring), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        streams[i] = sh_ring_stream(ring, i);
    struct sh_journal_config of_journal = {
        .env = {.clock = {.now_ns = clock_now}, .random = {.fill = random_fill}, .disk = disk},
        .label = sh_bytes_text("a test"),
        .segment_bytes = segment,
        .bytes_kept = 2 * segment,
        .streams = streams,
        .streams_count = SH_SHARDS};
    assert_int_equal(sh_journal_open(&of_journal, &journal), SHOAL_OK);
    const struct sh_journal_stream *ours = &streams[OURS];
    if (own_copy_epoch) {
        uint8_t piece = 1;
        assert_int_equal(ours->load_snapshot_begin(ours->arg, 9, own_copy_epoch, true), SHOAL_OK);
        assert_int_equal(ours->load_snapshot_piece(ours->arg, sh_bytes_make(&piece, 1)), SHOAL_OK);
        assert_int_equal(ours->load_snapshot_end(ours->arg, true), SHOAL_OK);
    }
    sh_ring_journal_set(ring, journal, 0);
}

static inline void close_ring(void)
{
    sh_journal_close(journal);
    sh_ring_destroy(ring);
    journal = NULL;
    ring = NULL;
    assert_int_equal(fsm.open, 0);
}

static inline int setup(void **state)
{
    (void)state;
    now_ns = 1000;
    memset(&arcs, 0, sizeof arcs);
    memset(&fsm, 0, sizeof fsm);
    fsm.pieces = 1;
    segment = 0;
    assert_int_equal(sh_memory_disk_create(&disk), SHOAL_OK);
    open_ring();
    for (unsigned nid = OWN; nid <= THIRD; nid++)
        assert_int_equal(sh_arcs_start(&arcs, nid, UINT64_C(1) << 32 | nid), SH_ARCS_STARTED);
    arcs.up &= ~sh_arc_bit(THIRD); /* until a test wants it */
    return 0;
}

static inline int teardown(void **state)
{
    (void)state;
    close_ring();
    disk->ops->destroy(disk);
    return 0;
}

/* --- Messages ------------------------------------------------------------------------------------- */

static uint8_t body[BODY_MAX];
static struct sh_writer body_w;

static inline struct sh_writer *body_begin(void)
{
    body_w = sh_writer_make(body, sizeof body);
    return &body_w;
}

static inline void send_of(unsigned from, unsigned shard, unsigned type, unsigned flags,
                           uint64_t version, uint64_t incarnation)
{
    uint8_t bytes[SH_RING_HEAD_BYTES + BODY_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put8(&w, (uint8_t)type);
    sh_put8(&w, (uint8_t)shard);
    sh_put8(&w, (uint8_t)flags);
    sh_put8(&w, 0);
    sh_put64(&w, version);
    sh_put64(&w, incarnation);
    sh_put_raw(&w, sh_bytes_make(body, (size_t)(body_w.at - body)));
    assert_true(sh_writer_ok(&w) && sh_writer_ok(&body_w));
    sh_ring_receive(ring, now_ns, (uint8_t)from, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

static inline void send(unsigned from, unsigned shard, unsigned type, unsigned flags)
{
    send_of(from, shard, type, flags, arcs.shards[shard].version, arcs.incarnations[from]);
}

static inline void answer_body(uint64_t sequence, uint64_t epoch)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, sequence);
    sh_put64(w, epoch);
    sh_put64(w, 0);
}

/* That superpeer has stored our shard's log up to there. */
static inline void has_stored(unsigned from, uint64_t sequence, uint64_t epoch)
{
    answer_body(sequence, epoch);
    send(from, OURS, SH_RING_ANSWER, SH_RING_YES);
    step();
}

/* An append of the owner of THEIRS: entries of that epoch behind `before`. */
static inline void append(unsigned from, uint64_t before, uint64_t before_epoch, uint64_t applied,
                          unsigned count, uint64_t epoch)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, before);
    sh_put64(w, before_epoch);
    sh_put64(w, applied);
    sh_put32(w, count);
    for (unsigned i = 0; i < count; i++) {
        sh_put64(w, epoch);
        sh_put32(w, 1);
        sh_put8(w, (uint8_t)epoch);
    }
    send(from, THEIRS, SH_RING_APPEND, 0);
}

/* The last message that is_sent found, behind its head. */
static struct {
    unsigned count; /* how many it found */
    uint8_t flags;
    size_t size;
    uint8_t body[2 * PIECE];
} sent;

/* Drops all that is sent; of the last message of that type about that shard to that superpeer the first
 * number behind its head, and whether there was one. */
static inline bool is_sent(unsigned to, unsigned shard, unsigned type, uint64_t *number_out)
{
    struct sh_ring_message *message;
    sent.count = 0;
    *number_out = 0;
    while ((message = sh_ring_message_next(ring))) {
        if (message->to == to && message->bytes[0] == type && message->bytes[1] == shard) {
            sent.count++;
            sent.flags = message->bytes[2];
            sent.size = message->size - SH_RING_HEAD_BYTES;
            assert_true(sent.size <= sizeof sent.body);
            memcpy(sent.body, message->bytes + SH_RING_HEAD_BYTES, sent.size);
            *number_out = sent.size >= 8 ? sh_load64(sent.body) : 0;
        }
        free(message);
    }
    return sent.count;
}

/* What is asked for about a shard, if anything is. */
static inline bool asks_for(unsigned shard, struct sh_arc_change *change_out)
{
    struct sh_arc_change change;
    bool is_any = false;
    *change_out = (struct sh_arc_change){.kind = 0};
    now_ns += RESEND;
    while (sh_ring_change_next(ring, now_ns, &change)) {
        if (change.shard != shard)
            continue;
        *change_out = change;
        is_any = true;
    }
    return is_any;
}

/* --- Shards ----------------------------------------------------------------------------------------- */

/* A superpeer has a copy of our shard, whose last update is that one; epoch 0: it has none. */
static inline void copy_answer(unsigned from, uint64_t epoch, uint64_t sequence)
{
    struct sh_writer *w = body_begin();
    sh_put64(w, epoch);
    sh_put64(w, sequence);
    send(from, OURS, SH_RING_COPY_ANSWER, epoch ? 0 : SH_RING_EMPTY);
}

/* All shards are without replicas, and superpeer 1 owns ours. */
static inline void begin(void)
{
    sh_ring_start(ring, now_ns, &arcs);
    assert_int_equal(arcs.shards[OURS].owner, OWN);
    copy_answer(OTHER, 0, 0);
    copy_answer(THIRD, 0, 0);
    built_version = 0;
    step();
    assert_true(built_version == arcs.shards[OURS].version);
}

static inline void arcs_change(enum sh_arc_kind kind, unsigned shard, unsigned nid)
{
    struct sh_arc_change change = {.kind = (uint8_t)kind,
                                   .shard = (uint8_t)shard,
                                   .nid = (uint8_t)nid,
                                   .version = arcs.shards[shard].version,
                                   .incarnation = arcs.incarnations[nid]};
    assert_true(sh_arcs_change(&arcs, &change));
    tell();
}

/* Superpeers 1 and 2 have our shard, and superpeer 1 owns it. */
static inline void own_without_lease(void)
{
    begin();
    sh_ring_built(ring, now_ns, OURS, built_version);
    store();
    step();
    arcs_change(SH_ARC_BUILT, OURS, OWN);
    arcs_change(SH_ARC_ADD, OURS, OTHER);
    has_stored(OTHER, 0, built_version);
    assert_true(arcs.shards[OURS].replicas == (sh_arc_bit(OWN) | sh_arc_bit(OTHER)));
}

static inline void own(void)
{
    own_without_lease();
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
    assert_int_equal(sh_ring_reads(ring, now_ns, OURS), SHOAL_OK);
}

/* An update is ordered, and is on the own disk. */
static inline uint64_t update(void)
{
    uint64_t epoch, sequence;
    assert_int_equal(sh_ring_update(ring, now_ns, OURS, sh_bytes_text("update"), &epoch, &sequence),
                     SHOAL_OK);
    store();
    step();
    return epoch;
}

static inline void assert_applied(uint64_t sequence)
{
    assert_int_equal(sh_ring_applied(ring, OURS), sequence);
}

static inline enum shoal_err order(struct sh_bytes command)
{
    uint64_t epoch, sequence;
    return sh_ring_update(ring, now_ns, OURS, command, &epoch, &sequence);
}

/* The registry has refused something: only the version has risen. */
static inline void refuse(void)
{
    arcs.shards[OURS].version++;
    tell();
}

static inline enum sh_arc_kind asked_kind(unsigned nid)
{
    struct sh_arc_change change;
    return asks_for(OURS, &change) && change.nid == nid ? change.kind : 0;
}

/* What is to be done at that time is done. */
static inline void step_at(uint64_t at_ns)
{
    now_ns = at_ns;
    ring->due_ns = at_ns;
    (void)sh_ring_step(ring, now_ns);
}

/* Superpeer 2 has given its state of THEIRS, as of sequence 0, which is stored; all three are replicas. */
static inline void follow(void)
{
    sh_ring_start(ring, now_ns, &arcs);
    sh_ring_lease_set(ring, now_ns, UINT64_MAX);
    arcs.up |= sh_arc_bit(THIRD);
    struct sh_shard *shard = &arcs.shards[THEIRS];
    shard->owner = OTHER;
    shard->version++;
    shard->replicas = sh_arc_bit(OTHER) | sh_arc_bit(THIRD);
    tell();
    for (unsigned piece = 0; piece < 2; piece++) {
        struct sh_writer *w = body_begin();
        sh_put64(w, 1);
        sh_put64(w, 0);
        sh_put64(w, shard->version);
        sh_put32(w, piece);
        if (!piece)
            sh_put8(w, 7);
        send(OTHER, THEIRS, SH_RING_SNAPSHOT, piece ? SH_RING_LAST : 0);
    }
    store();
    step();
    uint64_t sequence;
    assert_true(is_sent(OTHER, THEIRS, SH_RING_ANSWER, &sequence));
    arcs_change(SH_ARC_ADD, THEIRS, OWN);
    assert_true(sh_ring_holds(ring, THEIRS));
}

static inline uint64_t base_epoch(void)
{
    return arcs.shards[THEIRS].version - 1; /* of the snapshot: before superpeer 1 was added */
}

#endif
