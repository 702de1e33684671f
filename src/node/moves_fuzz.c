/* Hostile messages of migration, from a node and a client, to a node that has chunks: as source of
 * a job, as target of batches, and as one that is asked. Each request is answered exactly once, no
 * chunk is served that no batch was committed for, and what was staged can be taken back.
 *
 * An input is any number of: u8 what, u8 how, and as much as that takes:
 *   what 0 to 7  a message of the types below in their order, from asker how & 1; `how` bit 1:
 *                one-way, as a DONE always is; bit 2: raw, u8 size and so many bytes; else a
 *                well-formed STAGE: u8 sequence, u8 creator, u8 first, u8 count, u8 size; or, if `how`
 *                bit 3, of one chunk of LARGE bytes, which comes in pieces
 *   what 8       time goes on by `how` times 100 ms
 *   what 9       a PIECE from asker how & 1: u8 sequence, u8 number; `how` bit 2: a byte is missing. If
 *                `how` bit 4: a VACATE: u8 creator, u8 first, u8 count; bit 2 as before */
#include <stdint.h>
#include <stdlib.h>

#include "cluster/proto.h"
#include "node/locks_test.h"
#include "node/moves.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES_MAX 200
#define CHUNKS 20
#define LARGE (SH_STORE_PIECE_BYTES + 1000)

static const sh_msg_type types[] = {
    SH_MOVES_STAGE, SH_MOVES_DONE,   SH_MOVES_OUTCOME, SH_MOVES_MOVE,
    SH_MOVES_JOB,   SH_MOVES_CANCEL, SH_CLUSTER_HOLDS, SH_MOVES_UNDRAIN,
};
static unsigned asked, answered;

/* The rig's node with a directory, which knows nobody, and migration. */
struct moving {
    struct rig rig;
    struct sh_directory *directory;
    struct sh_moves *moves;
    struct sh_step step;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)err;
    (void)payload;
    answered++;
}

static void settle(struct moving *moving)
{
    unsigned done;
    do {
        done = rig_round(&moving->rig);
        done += moving->step.run(moving->step.arg);
    } while (done > 0);
}

static struct sh_bytes stage_make(struct sh_reader *r, bool is_large, uint8_t *room, size_t size)
{
    struct sh_writer w = sh_writer_make(room, size);
    uint8_t sequence = sh_get8(r), creator = sh_get8(r), first = sh_get8(r);
    unsigned count = is_large ? 1 : sh_get8(r) % 8 + 1, bytes = is_large ? LARGE : sh_get8(r);
    shoal_nid nid = {(uint16_t)(SH_PEER_NID_MIN + creator % 3)};
    sh_put64(&w, sequence);
    sh_put16(&w, 1);
    sh_put32(&w, 0);
    sh_put32(&w, 0);
    sh_put64(&w, shoal_cid_make(nid, first).v);
    sh_put64(&w, shoal_cid_make(nid, first + count - 1).v);
    for (unsigned i = 0; i < count; i++) {
        sh_put32(&w, bytes);
        for (unsigned k = 0; !is_large && k < bytes; k++)
            sh_put8(&w, (uint8_t)k);
    }
    SH_ASSERT(sh_writer_ok(&w));
    return sh_bytes_make(room, (size_t)(w.at - room));
}

static void ask(struct moving *moving, struct sh_reader *r, uint8_t what, uint8_t how,
                struct sh_request *request)
{
    uint8_t room[8 * 260 + 64];
    struct rig_end *asker = &moving->rig.askers[how & 1];
    struct sh_bytes payload;
    struct sh_out out;
    enum shoal_err err;
    if (what != 0 || (how & 4)) {
        size_t size = sh_get8(r);
        size = size < sh_reader_left(r) ? size : sh_reader_left(r);
        payload = sh_bytes_make(sh_reader_take(r, size), size);
    } else {
        payload = stage_make(r, how & 8, room, sizeof room);
    }
    if ((how & 2) || types[what] == SH_MOVES_DONE) {
        err = sh_msg_begin(asker->msg, (shoal_nid){RIG_NID}, types[what], payload.size, &out);
    } else {
        *request = (struct sh_request){.done = on_done};
        err = sh_msg_request(asker->msg, (shoal_nid){RIG_NID}, types[what], payload.size, request,
                             &out);
        asked++;
    }
    SH_ASSERT(err == SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(asker->msg, &out);
}

static void piece_send(struct moving *moving, struct sh_reader *r, uint8_t how)
{
    struct rig_end *asker = &moving->rig.askers[how & 1];
    uint8_t sequence = sh_get8(r);
    uint32_t offset = sh_get8(r) % 2 * SH_STORE_PIECE_BYTES;
    uint32_t left = LARGE - offset;
    size_t size = left < SH_STORE_PIECE_BYTES ? left : SH_STORE_PIECE_BYTES;
    size -= how & 4 ? 1 : 0;
    struct sh_out out;
    enum shoal_err err = sh_msg_begin(asker->msg, (shoal_nid){RIG_NID}, SH_MOVES_PIECE,
                                      SH_MOVES_PIECE_BYTES + size, &out);
    SH_ASSERT(err == SHOAL_OK);
    sh_put64(&out.w, sequence);
    sh_put32(&out.w, offset);
    uint8_t *at = sh_writer_take(&out.w, size);
    SH_ASSERT(at);
    memset(at, 7, size);
    sh_msg_end(asker->msg, &out);
}

static void vacate_send(struct moving *moving, struct sh_reader *r, uint8_t how)
{
    struct rig_end *asker = &moving->rig.askers[how & 1];
    struct sh_out out;
    shoal_nid creator = {(uint16_t)(SH_PEER_NID_MIN + sh_get8(r) % 4 - 1)};
    uint8_t bytes[16], first = sh_get8(r), count = sh_get8(r);
    size_t size = how & 4 ? 15 : 16;
    sh_store64(bytes, shoal_cid_make(creator, first).v);
    sh_store64(bytes + 8, shoal_cid_make(creator, first).v + count - 1);
    enum shoal_err err =
        sh_msg_begin(asker->msg, (shoal_nid){RIG_NID}, SH_CLUSTER_VACATE, size, &out);
    SH_ASSERT(err == SHOAL_OK);
    sh_put_raw(&out.w, sh_bytes_make(bytes, size));
    sh_msg_end(asker->msg, &out);
}

static void moving_open(struct moving *moving)
{
    struct rig *rig = &moving->rig;
    rig_open(rig, 8);
    struct sh_clock clock = sh_memwire_env(&rig->node.memwire).clock;
    struct sh_directory_config known = {
        .msg = rig->node.msg, .clock = clock, .cache_ranges_max = 8};
    enum shoal_err err = sh_directory_create(&known, &moving->directory);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_moves_config config = {.msg = rig->node.msg,
                                     .store = rig->store,
                                     .chunks = rig->chunks,
                                     .locks = rig->locks,
                                     .directory = moving->directory,
                                     .clock = clock};
    err = sh_moves_create(&config, &moving->moves);
    SH_ASSERT(err == SHOAL_OK);
    moving->step = sh_moves_step(moving->moves);
    sh_lid lids[CHUNKS];
    err = sh_store_new_many(rig->store, 64, CHUNKS, lids);
    SH_ASSERT(err == SHOAL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_request requests[MESSAGES_MAX];
    static struct moving moving;
    asked = answered = 0;
    moving_open(&moving);
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(&r) > 0; i++) {
        uint8_t what = sh_get8(&r) % 10, how = sh_get8(&r);
        if (what < 8)
            ask(&moving, &r, what, how, &requests[i]);
        else if (what == 9 && (how & 16))
            vacate_send(&moving, &r, how);
        else if (what == 9)
            piece_send(&moving, &r, how);
        else
            rig_advance(&moving.rig, how * UINT64_C(100000000));
        settle(&moving);
    }
    sh_moves_destroy(moving.moves); /* whose chunk has come in part is answered now */
    rig_settle(&moving.rig);
    SH_ASSERT(asked == answered);
    /* Its own chunks are all served, as there is nobody to take them. */
    for (uint64_t lid = 1; lid <= CHUNKS; lid++) {
        sh_lid found;
        uint32_t bytes;
        enum shoal_err err =
            sh_holdings_look(sh_chunks_holdings(moving.rig.chunks), (shoal_nid){RIG_NID},
                             shoal_cid_make((shoal_nid){RIG_NID}, lid), true, &found);
        SH_ASSERT(err == SHOAL_OK);
        err = sh_store_size(moving.rig.store, found, &bytes);
        SH_ASSERT(err == SHOAL_OK && bytes == 64);
    }
    sh_directory_destroy(moving.directory);
    rig_close(&moving.rig);
    return 0;
}
