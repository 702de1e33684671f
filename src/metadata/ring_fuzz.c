/* The ring and what it keeps on any bytes from the wire: nothing breaks, what is applied only
 * grows, and what can be decoded is encoded to the same. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "env/disk.h"
#include "journal/journal.h"
#include "metadata/snapshot.h"
#include "ring/ring.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define SEGMENT_BYTES (64u << 10)

static struct sh_metadata *metadata;
static struct sh_journal *journal;
static struct sh_disk *disk;
static struct sh_metadata_update update;

static void apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    (void)arg;
    (void)epoch;
    (void)sequence;
    if (!sh_metadata_update_get(command, shard, &update))
        (void)sh_metadata_apply(metadata, shard, &update);
}

static enum shoal_err snapshot_begin(void *arg, unsigned shard, void **snapshot_out)
{
    struct sh_metadata_snapshot *snapshot;
    enum shoal_err err = sh_metadata_snapshot_begin(metadata, shard, SH_METADATA_ALL, &snapshot);
    (void)arg;
    if (!err)
        *snapshot_out = snapshot;
    return err;
}

static size_t snapshot_next(void *arg, void *snapshot, uint8_t *into, size_t room)
{
    (void)arg;
    return sh_metadata_snapshot_next(snapshot, into, room);
}

static void snapshot_end(void *arg, void *snapshot)
{
    (void)arg;
    sh_metadata_snapshot_end(snapshot);
}

static enum shoal_err restore_begin(void *arg, unsigned shard, void **restore_out)
{
    struct sh_metadata_restore *restore;
    enum shoal_err err = sh_metadata_restore_begin(metadata, shard, &restore);
    (void)arg;
    if (!err)
        *restore_out = restore;
    return err;
}

static enum shoal_err restore_piece(void *arg, void *restore, struct sh_bytes piece)
{
    (void)arg;
    return sh_metadata_restore_piece(restore, piece);
}

static enum shoal_err restore_end(void *arg, void *restore, bool install)
{
    (void)arg;
    return sh_metadata_restore_end(restore, install);
}

static void clear(void *arg, unsigned shard)
{
    (void)arg;
    sh_metadata_clear(metadata, shard);
}

static void build(void *arg, unsigned shard, uint64_t version)
{
    (void)arg;
    (void)shard;
    (void)version;
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return 1;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 7, size);
}

static void journal_open(struct sh_ring *ring)
{
    struct sh_journal_stream streams[SH_SHARDS];
    for (unsigned i = 0; i < SH_SHARDS; i++)
        streams[i] = sh_ring_stream(ring, i);
    if (sh_memory_disk_create(&disk))
        abort();
    struct sh_journal_config config = {
        .env = {.clock = {.now_ns = clock_now}, .random = {.fill = random_fill}, .disk = disk},
        .label = sh_bytes_text("fuzz"),
        .segment_bytes = SEGMENT_BYTES,
        .bytes_kept = 4 * SEGMENT_BYTES,
        .streams = streams,
        .streams_count = SH_SHARDS};
    if (sh_journal_open(&config, &journal))
        abort();
    sh_ring_journal_set(ring, journal, 0);
}

static void step(struct sh_ring *ring, uint64_t now_ns)
{
    (void)sh_ring_step(ring, now_ns);
    while (sh_journal_step(journal, now_ns)) {
    }
    (void)sh_ring_step(ring, now_ns);
}

/* Sends what there is, and has what is asked for changed. */
static void drain(struct sh_ring *ring, uint64_t now_ns, struct sh_arcs *arcs)
{
    step(ring, now_ns);
    struct sh_ring_message *message;
    struct sh_arc_change change;
    bool is_changed = false;
    while ((message = sh_ring_message_next(ring)))
        free(message);
    while (sh_ring_change_next(ring, now_ns, &change)) {
        /* A superpeer that is added must have said that it has everything, which here any says. */
        if (change.kind != SH_ARC_ADD || change.nid != 1)
            is_changed |= sh_arcs_change(arcs, &change);
    }
    if (is_changed)
        sh_ring_arcs_set(ring, now_ns, arcs);
}

/* Superpeer 1 owns a few shards, with 2 as a holder, and is to hold others, which 2 owns. */
static struct sh_ring *ring_make(struct sh_arcs *arcs)
{
    struct sh_ring_config config = {
        .server = 1,
        .resend_ns = 10,
        .patience_ns = 100,
        .entries_kept = 2,
        .piece_bytes = SH_METADATA_PIECE_BYTES_MIN,
        .fsm = {.apply = apply,
                .snapshot_begin = snapshot_begin,
                .snapshot_next = snapshot_next,
                .snapshot_end = snapshot_end,
                .restore_begin = restore_begin,
                .restore_piece = restore_piece,
                .restore_end = restore_end,
                .clear = clear,
                .build = build},
    };
    struct sh_ring *ring;
    if (sh_ring_create(&config, &ring) || sh_metadata_create(&metadata))
        abort();
    journal_open(ring);
    memset(arcs, 0, sizeof *arcs);
    (void)sh_arcs_start_empty(arcs, 1, 7, true);
    (void)sh_arcs_start_empty(arcs, 2, 9, true);
    for (uint8_t i = 0; i < 4; i++)
        (void)sh_arcs_change(
            arcs, &(struct sh_arc_change){SH_ARC_BUILT, i, arcs->shards[i].owner, 1, 0, 0, 0});
    /* At the start it holds nothing. */
    (void)sh_arcs_start_empty(arcs, 1, 8, true);
    sh_ring_start(ring, 1, arcs);
    for (unsigned i = 0; i < 8; i++)
        sh_ring_built(ring, 1, i, arcs->shards[i].version);
    sh_ring_lease_set(ring, 1, 100000);
    return ring;
}

/* Takes a message; with bit 2 of the sender, of the version and the incarnation that the shard has here,
 * of which the bytes can know nothing. */
static void take(struct sh_ring *ring, const struct sh_arcs *arcs, uint64_t now_ns, uint8_t from,
                 struct sh_bytes bytes)
{
    uint8_t message[128];
    uint8_t nid = from % 4;
    memcpy(message, bytes.at, bytes.size);
    if ((from & 4) && bytes.size >= 20) {
        sh_store64(message + 4, arcs->shards[message[1] % SH_SHARDS].version);
        sh_store64(message + 12, arcs->incarnations[nid]);
    }
    sh_ring_receive(ring, now_ns, nid, sh_bytes_make(message, bytes.size));
}

static void events(struct sh_ring *ring, struct sh_arcs *arcs, struct sh_reader *r)
{
    uint64_t now_ns = 1, epoch, sequence;
    while (sh_reader_left(r)) {
        uint8_t what = sh_get8(r);
        if (what < 128) {
            uint8_t from = sh_get8(r);
            const uint8_t *bytes = sh_reader_take(r, what);
            if (!sh_reader_ok(r))
                break;
            take(ring, arcs, now_ns, from, sh_bytes_make(bytes, what));
        } else if (what < 140) {
            (void)!sh_ring_update(ring, now_ns, what % 8, sh_bytes_text("an update"), &epoch,
                                  &sequence);
        } else {
            now_ns += what;
            step(ring, now_ns);
        }
        if (what & 1)
            drain(ring, now_ns, arcs);
        for (unsigned i = 0; i < SH_SHARDS; i++)
            SH_ASSERT(sh_ring_applied(ring, i) <= sh_ring_last(ring, i));
    }
    drain(ring, now_ns, arcs);
}

static void decode(struct sh_bytes bytes)
{
    uint8_t again[SH_METADATA_BYTES_MAX];
    struct sh_writer w = sh_writer_make(again, sizeof again);
    unsigned shard = bytes.size ? bytes.at[bytes.size - 1] % SH_SHARDS : 0;
    if (!sh_metadata_update_get(bytes, shard, &update)) {
        sh_metadata_update_put(&w, &update);
        SH_ASSERT(sh_writer_ok(&w) && (size_t)(w.at - again) == bytes.size);
        SH_ASSERT(memcmp(again, bytes.at, bytes.size) == 0);
        SH_ASSERT(!update.name.size || !memchr(update.name.at, 0, update.name.size));
    }
    struct sh_arcs arcs;
    struct sh_reader r = sh_reader_make(bytes);
    (void)!sh_arcs_get(&r, &arcs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_arcs arcs;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t how = sh_get8(&r);
    struct sh_ring *ring = ring_make(&arcs);
    if (how & 1)
        decode(sh_bytes_make(r.at, sh_reader_left(&r)));
    else
        events(ring, &arcs, &r);
    sh_journal_close(journal);
    sh_ring_destroy(ring);
    disk->ops->destroy(disk);
    sh_metadata_destroy(metadata);
    return 0;
}
