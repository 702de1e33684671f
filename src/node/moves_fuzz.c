/* Hostile messages of migration, from a node and a client, to a node that has chunks: as source of
 * a job, as target of batches, and as one that is asked; and hostile answers to what it asks. Each
 * request is answered exactly once, no chunk is served that no batch was committed for, and what was
 * staged can be taken back.
 *
 * An input may begin with 255 and a byte. Bit 0: the node knows a superpeer, and the asking node as
 * a peer that is up, so that it asks these; else it knows nobody. Bit 1: it was started again, and
 * finds out what it had before.
 *
 * Then come any number of: u8 what, u8 how, and as much as that takes:
 *   what from 250, if it knows somebody: `how` bytes follow, the answers to what the node asks next
 *                (COMMIT, RESOLVE, TREE, STAGE), each u8 error (0: none), u8 size and so many bytes; with
 *                no answers left, EBUSY
 *   what 249, likewise: a GET from asker how & 1: u8 creator, u8 local ID. Else what modulo 10:
 *   what 0 to 7  a message of the types below in their order, from asker how & 1; `how` bit 1:
 *                one-way, as a DONE always is; bit 2: raw, u8 size and so many bytes; else a
 *                well-formed STAGE: u8 sequence, u8 creator, u8 first, u8 count, u8 size; or, if `how`
 *                bit 3, of one chunk of LARGE bytes, which comes in pieces
 *   what 8       time goes on by `how` times 100 ms
 *   what 9       a PIECE from asker how & 1: u8 sequence, u8 number; `how` bit 2: a byte is missing. If
 *                `how` bit 4: a VACATE: u8 creator, u8 first, u8 count; bit 2 as before */
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "cluster/proto.h"
#include "node/locks_test.h"
#include "node/moves.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MESSAGES_MAX 200
#define CHUNKS 20
#define LARGE (SH_STORE_PIECE_BYTES + 1000)
#define SUPERPEER_NID 1

static const sh_msg_type types[] = {
    SH_MOVES_STAGE, SH_MOVES_DONE,   SH_MOVES_OUTCOME, SH_MOVES_MOVE,
    SH_MOVES_JOB,   SH_MOVES_CANCEL, SH_CLUSTER_HOLDS, SH_MOVES_UNDRAIN,
};
static unsigned asked, answered;

/* The rig's node with a directory and migration, and a superpeer. */
struct moving {
    struct rig rig;
    struct rig_end superpeer;
    size_t carried[2]; /* from the superpeer, to it */
    bool knows;
    struct sh_reader answers;
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

static unsigned superpeer_round(struct moving *moving)
{
    struct rig_end *end = &moving->superpeer, *node = &moving->rig.node;
    unsigned done = end->transport.run(end->msg);
    done += sh_memwire_carry(&end->memwire, 0, &moving->carried[0], &node->memwire, RIG_ASKERS) > 0;
    done += sh_memwire_carry(&node->memwire, RIG_ASKERS, &moving->carried[1], &end->memwire, 0) > 0;
    return done;
}

static void settle(struct moving *moving)
{
    unsigned done;
    do {
        done = rig_round(&moving->rig);
        done += moving->step.run(moving->step.arg);
        done += moving->knows ? superpeer_round(moving) : 0;
    } while (done > 0);
}

static void time_pass(struct moving *moving, uint64_t ns)
{
    moving->superpeer.memwire.now_ns += ns;
    rig_advance(&moving->rig, ns);
}

/* The node asks the superpeer or the other node something. */
static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct moving *moving = arg;
    struct sh_reader *r = &moving->answers;
    struct sh_out out;
    if (!in->is_request)
        return;
    uint8_t err = sh_reader_left(r) ? sh_get8(r) : SHOAL_EBUSY;
    size_t size = sh_reader_left(r) ? sh_get8(r) : 0;
    size = size < sh_reader_left(r) ? size : sh_reader_left(r);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(r, size), size);
    if (err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, sh_err_get(err), NULL);
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, size, &out)) {
        sh_put_raw(&out.w, bytes);
        sh_msg_end(in->msg, &out);
    }
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

/* Opens the superpeer's connection, as rig_meet does, and has the node know it. */
static void superpeer_open(struct moving *moving)
{
    struct rig_end *end = &moving->superpeer;
    struct sh_out out;
    rig_end_open(&moving->rig, end, SUPERPEER_NID);
    enum shoal_err err = sh_msg_node_set(end->msg, (shoal_nid){RIG_NID}, "node:1");
    SH_ASSERT(err == SHOAL_OK);
    err = sh_msg_begin(end->msg, (shoal_nid){RIG_NID}, SH_NODE_STOP, 0, &out);
    SH_ASSERT(err == SHOAL_OK);
    sh_msg_end(end->msg, &out);
    end->transport.run(end->msg);
    sh_link link = sh_memwire_accept(&moving->rig.node.memwire);
    SH_ASSERT(link == RIG_ASKERS);
    settle(moving);
    sh_msg_handler_set(end->msg, SH_CLUSTER_COMMIT, SH_MSG_INLINE, on_asked, moving);
    sh_msg_handler_set(end->msg, SH_CLUSTER_RESOLVE, SH_MSG_INLINE, on_asked, moving);
    sh_msg_handler_set(end->msg, SH_CLUSTER_TREE, SH_MSG_INLINE, on_asked, moving);
    sh_msg_handler_set(moving->rig.askers[RIG_PEER].msg, SH_MOVES_STAGE, SH_MSG_INLINE, on_asked,
                       moving);
    struct sh_node nodes[] = {
        {.nid = {SUPERPEER_NID}, .role = SH_ROLE_SUPERPEER, .address = "superpeer:1"},
        {.nid = {RIG_NID}, .role = SH_ROLE_PEER, .address = "node:1"},
        {.nid = {RIG_PEER_NID}, .role = SH_ROLE_PEER, .address = "peer:1"},
    };
    struct sh_view view = {.epoch = 1, .superpeers = 1, .count = 3, .nodes = nodes};
    err = sh_directory_view_apply(moving->directory, &view);
    SH_ASSERT(err == SHOAL_OK);
    /* The rig's node has no peer's ID, for which none would be known. */
    sh_directory_superpeer_set(moving->directory, (shoal_nid){RIG_NID}, (shoal_nid){SUPERPEER_NID});
}

/* A client asks for a chunk of another creator, about which the node may have to ask. */
static void get_send(struct moving *moving, struct sh_reader *r, uint8_t how,
                     struct sh_request *request)
{
    struct rig_end *asker = &moving->rig.askers[how & 1];
    shoal_nid creator = {(uint16_t)(SH_PEER_NID_MIN + sh_get8(r) % 3)};
    struct sh_out out;
    *request = (struct sh_request){.done = on_done};
    enum shoal_err err =
        sh_msg_request(asker->msg, (shoal_nid){RIG_NID}, SH_CHUNKS_GET, 12, request, &out);
    SH_ASSERT(err == SHOAL_OK);
    asked++;
    sh_put64(&out.w, shoal_cid_make(creator, sh_get8(r)).v);
    sh_put32(&out.w, 0);
    sh_msg_end(asker->msg, &out);
}

static void moving_open(struct moving *moving, uint8_t how)
{
    struct rig *rig = &moving->rig;
    *moving = (struct moving){.knows = how & 1, .answers = sh_reader_make(sh_bytes_make(&how, 0))};
    rig_open(rig, 8);
    struct sh_clock clock = sh_memwire_env(&rig->node.memwire).clock;
    struct sh_directory_config known = {
        .msg = rig->node.msg, .clock = clock, .cache_ranges_max = 8};
    enum shoal_err err = sh_directory_create(&known, &moving->directory);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_moves_config config = {.msg = rig->node.msg,
                                     .store = rig->store,
                                     .backup = rig->backup,
                                     .chunks = rig->chunks,
                                     .locks = rig->locks,
                                     .directory = moving->directory,
                                     .clock = clock};
    err = sh_moves_create(&config, &moving->moves);
    SH_ASSERT(err == SHOAL_OK);
    moving->step = sh_moves_step(moving->moves);
    if (how & 1)
        superpeer_open(moving);
    if (how & 2)
        sh_store_ids_begin(rig->store, SH_STORE_IDS_BLOCK, 2 * SH_STORE_IDS_BLOCK);
    sh_moves_joined(moving->moves);
    sh_lid lids[CHUNKS];
    err = sh_store_new_many(rig->store, 64, CHUNKS, lids);
    SH_ASSERT(err == SHOAL_OK && lids[0].v == sh_store_ids_base(rig->store) + 1);
}

/* Its own chunks are all served, if there is nobody to take them; else those that are served are there. */
static void own_check(const struct moving *moving)
{
    uint64_t base = sh_store_ids_base(moving->rig.store);
    for (uint64_t lid = base + 1; lid <= base + CHUNKS; lid++) {
        sh_lid found;
        uint32_t bytes;
        enum shoal_err err =
            sh_holdings_look(sh_chunks_holdings(moving->rig.chunks), (shoal_nid){RIG_NID},
                             shoal_cid_make((shoal_nid){RIG_NID}, lid), true, &found);
        SH_ASSERT(err == SHOAL_OK || moving->knows);
        if (err)
            continue;
        err = sh_store_size(moving->rig.store, found, &bytes);
        SH_ASSERT(err == SHOAL_OK && bytes == 64);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_request requests[MESSAGES_MAX];
    static struct moving moving;
    asked = answered = 0;
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    bool has_head = size >= 2 && data[0] == 255;
    if (has_head)
        (void)sh_get8(&r);
    moving_open(&moving, has_head ? sh_get8(&r) : 0);
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(&r) > 0; i++) {
        uint8_t what = sh_get8(&r), how = sh_get8(&r);
        if (moving.knows && what >= 250) {
            size_t bytes = how < sh_reader_left(&r) ? how : sh_reader_left(&r);
            moving.answers = sh_reader_make(sh_bytes_make(sh_reader_take(&r, bytes), bytes));
            continue;
        }
        bool is_get = moving.knows && what == 249;
        what %= 10;
        if (is_get)
            get_send(&moving, &r, how, &requests[i]);
        else if (what < 8)
            ask(&moving, &r, what, how, &requests[i]);
        else if (what == 9 && (how & 16))
            vacate_send(&moving, &r, how);
        else if (what == 9)
            piece_send(&moving, &r, how);
        else
            time_pass(&moving, how * UINT64_C(100000000));
        settle(&moving);
    }
    sh_moves_destroy(moving.moves); /* whose chunk has come in part is answered now */
    rig_settle(&moving.rig);
    SH_ASSERT(asked == answered);
    own_check(&moving);
    sh_directory_destroy(moving.directory);
    if (moving.knows)
        rig_end_close(&moving.superpeer);
    rig_close(&moving.rig);
    return 0;
}
