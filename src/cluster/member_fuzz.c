/* A superpeer that lies, to a peer that joins and stays, and to a superpeer that asks to be one: it
 * answers whatever it is asked with the input. Views are taken whole or not at all, a lease is no
 * longer than failure_ns, and a leave ends.
 *
 * The first byte: bit 0, a recruit, else a member; bit 1: the member has a disk. Then come any number of
 *   u8 below 240  time goes on by so many times 5 ms, and a word follows, for the next question: u8 error
 *                 (0: none), u8 size, and so many bytes
 *   u8 from 240   a SUSPECT, PING or VIEW_GET comes from the liar, of 2 bytes */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "cluster/directory.h"
#include "cluster/member.h"
#include "cluster/proto.h"
#include "cluster/recruit.h"
#include "env/env_fuzz.h"
#include "msg/loopback.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MS UINT64_C(1000000)
#define FAILURE_NS (2000 * MS)
#define STEPS_MAX 64
#define ROUNDS_MAX 400
enum { LIAR, OWN, ENDS };

static struct {
    struct sh_wire *wires[ENDS];
    struct sh_msg *msgs[ENDS];
    struct sh_step transports[ENDS], handlers[ENDS];
    struct sh_env env;
    struct sh_directory *directory;
    struct sh_member *member;
    struct sh_recruit *recruit;
    struct sh_step step;
    struct sh_reader words;
    bool has_left;
} rig;
static const char *const addresses[ENDS] = {"loop:liar", "loop:own"};

static void on_event(void *arg, const struct sh_msg_event *event)
{
    (void)arg;
    if (rig.member)
        sh_member_link_event(rig.member, event);
}

static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    enum shoal_err err = sh_err_get(sh_reader_left(&rig.words) ? sh_get8(&rig.words) : 1);
    size_t size = sh_reader_left(&rig.words) ? sh_get8(&rig.words) : 0;
    size = size < sh_reader_left(&rig.words) ? size : sh_reader_left(&rig.words);
    struct sh_bytes bytes = sh_bytes_make(sh_reader_take(&rig.words, size), size);
    if (!in->is_request)
        return;
    if (err) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, "a lie");
    } else if (!sh_msg_reply(in->msg, in->reply_to, in->type, size, &out)) {
        sh_put_raw(&out.w, bytes);
        sh_msg_end(in->msg, &out);
    }
}

static void on_left(void *arg, enum shoal_err err)
{
    (void)arg;
    (void)err;
    rig.has_left = true;
}

static void on_recruited(void *arg, shoal_nid nid, const struct sh_view *view)
{
    (void)arg;
    SH_ASSERT(nid.v && nid.v < SH_PEER_NID_MIN && view->superpeers);
}

static void end_open(unsigned which)
{
    static const sh_msg_type types[] = {SH_CLUSTER_JOIN,  SH_CLUSTER_HEARTBEAT, SH_CLUSTER_LEAVE,
                                        SH_CLUSTER_PING,  SH_CLUSTER_RECRUIT,   SH_CLUSTER_VIEW_GET,
                                        SH_CLUSTER_LOOKUP};
    char bound[SH_MSG_ADDRESS_MAX];
    if (sh_loopback_create(8, &rig.wires[which]))
        abort();
    struct sh_env env = {.clock = {clock_now, clock_now, NULL},
                         .random = {random_fill, NULL},
                         .wire = rig.wires[which]};
    struct sh_msg_config config = {.nid = {which == LIAR ? 1 : 0},
                                   .cluster = "fuzz",
                                   .connections_max = 8,
                                   .requests_max = 256,
                                   .ring_bytes = 1 << 16,
                                   .payload_bytes_max = 1 << 16,
                                   .request_timeout_ns = 500 * MS,
                                   .connect_timeout_ns = 500 * MS,
                                   .env = env,
                                   .on_event = which == OWN ? on_event : NULL,
                                   .wake_transport = wake,
                                   .wake_handlers = wake};
    if (sh_msg_create(&config, &rig.msgs[which]) ||
        sh_msg_listen(rig.msgs[which], addresses[which], bound))
        abort();
    for (size_t i = 0; which == LIAR && i < sizeof types / sizeof types[0]; i++)
        sh_msg_handler_set(rig.msgs[LIAR], types[i], SH_MSG_INLINE, on_asked, NULL);
    rig.transports[which] = sh_msg_transport_step(rig.msgs[which]);
    rig.handlers[which] = sh_msg_handler_step(rig.msgs[which]);
    rig.env = env;
}

static void carry(void)
{
    for (unsigned i = 0, idle = 0; i < ROUNDS_MAX && idle < 3; i++) {
        unsigned work = rig.step.run(rig.step.arg);
        for (unsigned k = 0; k < ENDS; k++) {
            work += rig.transports[k].run(rig.transports[k].arg);
            work += rig.handlers[k].run(rig.handlers[k].arg);
        }
        idle = work ? 0 : idle + 1;
    }
    uint64_t lease_ns = sh_msg_lease_ns(rig.msgs[OWN]);
    SH_ASSERT(lease_ns <= now_ns + FAILURE_NS || lease_ns == SH_NEVER);
}

static void member_open(bool has_disk)
{
    struct sh_directory_config known = {
        .msg = rig.msgs[OWN], .clock = rig.env.clock, .cache_ranges_max = 64};
    if (sh_directory_create(&known, &rig.directory))
        abort();
    struct sh_member_config config = {.msg = rig.msgs[OWN],
                                      .directory = rig.directory,
                                      .env = rig.env,
                                      .superpeers = &addresses[LIAR],
                                      .superpeer_count = 1,
                                      .address = addresses[OWN],
                                      .instance = has_disk ? UINT64_C(2) << 32 | 7 : 7,
                                      .nid = {has_disk ? 64 : 0},
                                      .cluster = has_disk ? 9 : 0,
                                      .heartbeat_ns = 100 * MS,
                                      .failure_ns = FAILURE_NS};
    if (sh_member_create(&config, &rig.member))
        abort();
    rig.step = sh_member_step(rig.member);
}

static void recruit_open(void)
{
    struct sh_recruit_config config = {.msg = rig.msgs[OWN],
                                       .env = rig.env,
                                       .addresses = &addresses[LIAR],
                                       .count = 1,
                                       .address = addresses[OWN],
                                       .instance = 7,
                                       .failure_ns = FAILURE_NS,
                                       .on_done = on_recruited};
    if (sh_recruit_create(&config, &rig.recruit))
        abort();
    rig.step = sh_recruit_step(rig.recruit);
}

static void liar_says(uint8_t what, struct sh_reader *r)
{
    static const sh_msg_type types[] = {SH_CLUSTER_PING, SH_CLUSTER_VIEW_GET, SH_CLUSTER_SUSPECT};
    struct sh_out out;
    uint16_t word = sh_get16(r);
    shoal_nid nid = sh_msg_nid(rig.msgs[OWN]);
    if (!nid.v || nid.v == 1 || sh_msg_node_set(rig.msgs[LIAR], nid, addresses[OWN]) ||
        sh_msg_begin(rig.msgs[LIAR], nid, types[what % 3], 2, &out))
        return;
    sh_put16(&out.w, word);
    sh_msg_end(rig.msgs[LIAR], &out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bad;
    size_t bad_size;
    memset(&rig, 0, sizeof rig);
    outside_begin();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t how = sh_get8(&r);
    rig.words = (struct sh_reader){&how, &how, false};
    if (sh_log_levels_set("error", &bad, &bad_size))
        abort();
    for (unsigned i = 0; i < ENDS; i++)
        end_open(i);
    if (how & 1)
        recruit_open();
    else
        member_open(how & 2);
    for (unsigned i = 0; i < STEPS_MAX && sh_reader_left(&r) >= 3; i++) {
        uint8_t what = sh_get8(&r);
        if (what >= 240) {
            liar_says(what, &r);
        } else {
            size_t bytes = 2u + r.at[1], left = sh_reader_left(&r);
            bytes = bytes < left ? bytes : left;
            rig.words = sh_reader_make(sh_bytes_make(sh_reader_take(&r, bytes), bytes));
            now_ns += what * 5 * MS;
        }
        carry();
    }
    rig.words = (struct sh_reader){&how, &how, false};
    if (rig.member)
        sh_member_leave(rig.member, how % 2 ? 1000 : 0, on_left, NULL);
    for (unsigned i = 0; i < 60 && rig.member && !rig.has_left; i++) {
        now_ns += 100 * MS;
        carry();
    }
    SH_ASSERT(!rig.member || rig.has_left);
    sh_member_destroy(rig.member);
    sh_recruit_destroy(rig.recruit);
    rig.member = NULL;
    sh_directory_destroy(rig.directory);
    for (unsigned i = 0; i < ENDS; i++)
        sh_msg_destroy(rig.msgs[i]);
    for (unsigned i = 0; i < ENDS; i++)
        rig.wires[i]->ops->destroy(rig.wires[i]);
    return 0;
}
