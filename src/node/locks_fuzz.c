/* Hostile requests on a node's locks, from a node and a client, while time goes on, chunks go and
 * connections are lost. Each request is answered exactly once, at the latest when all leases have
 * run out, and then nothing is locked.
 *
 * An input is any number of: u8 what, u8 how, and as much as that takes:
 *   what 0 to 4  a request of the types of locks.h in their order, from asker how & 1; `how` bit 1:
 *                one-way; bit 2: raw, u8 size and so many bytes; else the fields from u8 chunk (of
 *                CHUNKS), u8 token, u8 lease, u8 wait, u8 mode as the type has them
 *   what 5       the chunk `how` is removed
 *   what 6       time goes on by `how` units
 *   what 7       the connection of asker how & 1 is lost, if how is over 200 */
#include <stdint.h>
#include <stdlib.h>

#include "node/locks_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define CHUNKS 4
#define REQUESTS_MAX 300
#define UNIT_NS UINT64_C(1000)
#define DAYS_MAX (REQUESTS_MAX + 2)

static const size_t payload_bytes[] = {33, 16, 24, 25, 18};
static unsigned asked, answered;

struct asking {
    struct sh_request request;
    uint8_t what;
    bool is_raw;
};

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asking *asking = request->arg;
    size_t size = sh_reader_left(payload);
    answered++;
    if (err != SHOAL_OK) {
        SH_ASSERT(err != SHOAL_ETIMEOUT);
        return;
    }
    if (asking->what == 4) {
        SH_ASSERT(size % SH_LOCKS_LIST_BYTES == 0);
        return;
    }
    SH_ASSERT(size == SH_LOCKS_ANSWER_BYTES);
    unsigned answer = sh_get16(payload);
    bool may_refuse = answer == SHOAL_EBUSY || answer == SHOAL_ETIMEOUT;
    uint8_t mode = sh_get8(payload);
    SH_ASSERT(mode <= SH_LEASE_WRITER);
    SH_ASSERT(mode == 0 || may_refuse);
}

/* Times that matter: none, short, and the longest. */
static uint64_t time_of(uint8_t byte)
{
    return byte == 0 ? 0 : byte == 255 ? UINT64_MAX : byte * UNIT_NS;
}

static struct sh_bytes fields(struct sh_reader *r, uint8_t what, const shoal_cid *cids,
                              uint8_t *room)
{
    struct sh_writer w = sh_writer_make(room, 33);
    sh_put64(&w, cids[sh_get8(r) % CHUNKS].v);
    if (what == 4)
        sh_put16(&w, RIG_PEER_NID);
    sh_put64(&w, sh_get8(r) % 3);
    if (what == 0 || what == 2 || what == 3)
        sh_put64(&w, time_of(sh_get8(r)));
    if (what == 0)
        sh_put64(&w, time_of(sh_get8(r)));
    if (what == 0 || what == 3)
        sh_put8(&w, sh_get8(r) % 4);
    return sh_bytes_make(room, payload_bytes[what]);
}

static void ask(struct rig *rig, struct sh_reader *r, uint8_t what, uint8_t how,
                const shoal_cid *cids, struct asking *asking)
{
    uint8_t room[33];
    struct sh_bytes payload;
    struct rig_end *asker = &rig->askers[how & 1];
    sh_msg_type type = (sh_msg_type)(SH_LOCKS_LOCK + what);
    struct sh_out out;
    if (how & 4) {
        size_t size = sh_get8(r);
        if (size > sh_reader_left(r))
            size = sh_reader_left(r);
        payload = sh_bytes_make(sh_reader_take(r, size), size);
    } else {
        payload = fields(r, what, cids, room);
    }
    enum shoal_err err;
    if (how & 2) {
        err = sh_msg_begin(asker->msg, (shoal_nid){RIG_NID}, type, payload.size, &out);
    } else {
        *asking = (struct asking){.request = {.done = on_done}, .what = what};
        asking->request.arg = asking;
        err = sh_msg_request(asker->msg, (shoal_nid){RIG_NID}, type, payload.size, &asking->request,
                             &out);
        asked++;
    }
    SH_ASSERT(err == SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(asker->msg, &out);
}

static void act(struct rig *rig, struct sh_reader *r, const shoal_cid *cids, struct asking *asking)
{
    uint8_t what = sh_get8(r) & 7, how = sh_get8(r);
    if (what <= 4) {
        if (!rig->is_cut[how & 1])
            ask(rig, r, what, how, cids, asking);
    } else if (what == 5) {
        shoal_cid cid = cids[how % CHUNKS];
        struct sh_write write;
        sh_write_begin(&write, SH_LEVEL_ASYNC);
        enum shoal_err err =
            sh_locks_remove(rig->locks, &write, cid, (sh_lid){shoal_cid_local(cid)});
        SH_ASSERT(err == SHOAL_OK || err == SHOAL_ENOCHUNK);
    } else if (what == 6) {
        rig_advance(rig, how * UNIT_NS);
    } else if (how > 200 && !rig->is_cut[how & 1]) {
        rig_cut(rig, how & 1);
        sh_memwire_cut(&rig->askers[how & 1].memwire, 0);
    }
    rig_settle(rig);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct asking askings[REQUESTS_MAX];
    struct rig rig;
    shoal_cid cids[CHUNKS];
    asked = answered = 0;
    rig_open(&rig, 8);
    enum shoal_err err = sh_store_new_many(rig.store, 8, CHUNKS, cids);
    SH_ASSERT(err == SHOAL_OK);
    for (size_t i = 0; i < CHUNKS; i++)
        cids[i] = shoal_cid_make((shoal_nid){RIG_NID}, cids[i].v);
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    for (unsigned i = 0; i < REQUESTS_MAX && sh_reader_left(&r) > 0; i++)
        act(&rig, &r, cids, &askings[i]);
    /* A request that waits without end has the chunk once all before it have lost it. */
    for (unsigned i = 0; i < DAYS_MAX && rig.step.due_ns(rig.step.arg) != SH_NEVER; i++)
        rig_advance(&rig, SH_LEASE_NS_MAX);
    SH_ASSERT(asked == answered);
    SH_ASSERT(rig.step.due_ns(rig.step.arg) == SH_NEVER);
    rig_close(&rig);
    return 0;
}
