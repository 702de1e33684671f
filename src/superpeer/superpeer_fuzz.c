/* Hostile messages, and hostile answers to what is asked, for a whole superpeer: from another
 * superpeer, from a peer that has joined, and from a client. Each request is answered once, at the
 * latest after the longest that a question waits.
 *
 * The first byte says what the superpeer is. Bit 0: one of two, whose other never answers well; else
 * the only one. Bit 1: forced to go on alone from a former life's disk, so that it asks peers what
 * they have. Then come any number of: u8 what, u8 how, and as much as that takes:
 *   what below TYPES  a message of the types below, from asker how & 3; `how` bit 2, or always if the
 *                     type is one-way: one-way; bit 3: the peer's own ID and instance stand in front,
 *                     as its messages have them; u8 size, and so many bytes
 *   what TYPES        time goes on by `how` times 50 ms
 *   what TYPES + 1    `how` bytes follow, the answers to what is asked next, each behind a byte for
 *                     its size */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "env/disk.h"
#include "env/env_fuzz.h"
#include "msg/loopback.h"
#include "superpeer/superpeer.h"
#include "superpeer/superpeer_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MS UINT64_C(1000000)
#define HEARTBEAT_NS (100 * MS)
#define FAILURE_NS (2000 * MS)
#define MESSAGES_MAX 64
#define ROUNDS_MAX 4000
#define PEER_INSTANCE 77
enum { OTHER, PEER, CLIENT, ASKERS, OWN = ASKERS, ENDS };

#define TYPES (sizeof superpeer_fuzz_types / sizeof superpeer_fuzz_types[0])

/* What a superpeer asks peers, and is not asked itself. */
static const sh_msg_type asked_types[] = {SH_CLUSTER_HOLDS, SH_CLUSTER_PREPARE, SH_CLUSTER_RECOVER};

static const char *const addresses[ENDS] = {"loop:2", "loop:64", "loop:client", "loop:1"};

struct end {
    struct sh_wire *wire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

static struct {
    struct end ends[ENDS];
    struct sh_env env; /* the superpeer's */
    struct sh_superpeer *superpeer;
    struct sh_step step;
    struct sh_reader answers;
    unsigned asked, answered;
} rig;

static void on_event(void *arg, const struct sh_msg_event *event)
{
    (void)arg;
    if (rig.superpeer)
        sh_superpeer_link_event(rig.superpeer, event);
}

/* The superpeer asks the peer or the other superpeer something: the input says what it is told. */
static void on_asked(void *arg, struct sh_msg_in *in)
{
    struct sh_out out;
    (void)arg;
    if (!in->is_request)
        return;
    if (!sh_reader_left(&rig.answers)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, NULL);
        return;
    }
    size_t size = sh_get8(&rig.answers), left = sh_reader_left(&rig.answers);
    size = size < left ? size : left;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&rig.answers, size), size));
    sh_msg_end(in->msg, &out);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    (void)err;
    (void)payload;
    rig.answered++;
}

static void end_open(struct end *end, unsigned which, uint16_t nid)
{
    char bound[SH_MSG_ADDRESS_MAX];
    if (sh_loopback_create(16, &end->wire))
        abort();
    struct sh_env env = {
        .clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .wire = end->wire};
    struct sh_msg_config config = {.nid = {nid},
                                   .cluster = "fuzz",
                                   .connections_max = 16,
                                   .requests_max = 1024,
                                   .ring_bytes = 1 << 17,
                                   .payload_bytes_max = 1 << 17,
                                   .request_timeout_ns = 60000 * MS,
                                   .connect_timeout_ns = 60000 * MS,
                                   .env = env,
                                   .on_event = which == OWN ? on_event : NULL,
                                   .wake_transport = wake,
                                   .wake_handlers = wake};
    if (sh_msg_create(&config, &end->msg) || sh_msg_listen(end->msg, addresses[which], bound))
        abort();
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
    for (unsigned i = 0; which != OWN && i < TYPES; i++)
        sh_msg_handler_set(end->msg, superpeer_fuzz_types[i], SH_MSG_INLINE, on_asked, NULL);
    for (unsigned i = 0; which != OWN && i < sizeof asked_types / sizeof *asked_types; i++)
        sh_msg_handler_set(end->msg, asked_types[i], SH_MSG_INLINE, on_asked, NULL);
}

/* Carries what is under way, for so many rounds at most: a superpeer may ask again at once. */
static void carry(void)
{
    for (unsigned i = 0, idle = 0; i < ROUNDS_MAX && idle < 3; i++) {
        unsigned work = rig.step.run(rig.step.arg);
        for (unsigned k = 0; k < ENDS; k++) {
            struct end *end = &rig.ends[k];
            work += end->transport.run(end->transport.arg) + end->handlers.run(end->handlers.arg);
        }
        idle = work ? 0 : idle + 1;
    }
}

static void pass(uint64_t ns)
{
    for (uint64_t end_ns = now_ns + ns; now_ns < end_ns;) {
        now_ns += HEARTBEAT_NS / 2;
        carry();
    }
}

static void ask(unsigned asker, sh_msg_type type, bool is_one_way, struct sh_bytes head,
                struct sh_bytes bytes, struct sh_request *request)
{
    struct sh_msg *msg = rig.ends[asker].msg;
    struct sh_out out;
    *request = (struct sh_request){.done = on_answer};
    size_t size = head.size + bytes.size;
    shoal_nid own = {1};
    enum shoal_err err = is_one_way ? sh_msg_begin(msg, own, type, size, &out)
                                    : sh_msg_request(msg, own, type, size, request, &out);
    if (err)
        return; /* the superpeer gave the connection up */
    rig.asked += !is_one_way;
    sh_put_raw(&out.w, head);
    sh_put_raw(&out.w, bytes);
    sh_msg_end(msg, &out);
}

static void superpeer_open(unsigned count)
{
    const char *const list[] = {addresses[OWN], addresses[OTHER]};
    struct sh_superpeer_config config = {.msg = rig.ends[OWN].msg,
                                         .env = rig.env,
                                         .cluster = "fuzz",
                                         .address = addresses[OWN],
                                         .addresses = list,
                                         .count = (uint16_t)count,
                                         .instance = 5,
                                         .heartbeat_ns = HEARTBEAT_NS,
                                         .failure_ns = FAILURE_NS,
                                         .forget_ns = 60000 * MS};
    if (sh_superpeer_create(&config, &rig.superpeer))
        abort();
    rig.step = sh_superpeer_step(rig.superpeer);
}

static void join(struct sh_request *request)
{
    uint8_t room[SH_JOIN_BYTES + 64 + SH_TRAITS_BYTES_MAX];
    static const struct sh_traits traits = {.keeps_replicas = true, .domains = {"m", "", "s"}};
    struct sh_writer w = sh_writer_make(room, sizeof room);
    sh_put8(&w, SH_ROLE_PEER);
    sh_put8(&w, 0);
    sh_put16(&w, SH_PEER_NID_MIN); /* which the inputs name; new IDs are drawn */
    sh_put64(&w, PEER_INSTANCE);
    sh_put64(&w, 0);
    sh_put64(&w, HEARTBEAT_NS);
    sh_put64(&w, FAILURE_NS);
    sh_put64(&w, 0);
    sh_put_text(&w, sh_bytes_text(addresses[PEER]));
    sh_traits_put(&w, &traits);
    ask(PEER, SH_CLUSTER_JOIN, false, sh_bytes_make(room, (size_t)(w.at - room)),
        (struct sh_bytes){0}, request);
}

static void ends_open(void)
{
    static const uint16_t nids[ENDS] = {2, 64, 0, 1};
    for (unsigned i = 0; i < ENDS; i++)
        end_open(&rig.ends[i], i, nids[i]);
    for (unsigned i = 0; i < ASKERS; i++) {
        if (sh_msg_node_set(rig.ends[i].msg, (shoal_nid){1}, addresses[OWN]))
            abort();
    }
}

static void ends_close(void)
{
    for (unsigned i = 0; i < ENDS; i++) {
        sh_msg_destroy(rig.ends[i].msg);
        rig.ends[i].wire->ops->destroy(rig.ends[i].wire);
    }
}

/* Opens the superpeer, and has the peer join; forced: in its second life, after an operator's word. */
static void open_rig(uint8_t how, struct sh_request *requests)
{
    const char *bad;
    size_t bad_size;
    uint16_t index;
    memset(&rig, 0, sizeof rig);
    rig.answers = sh_reader_make(sh_bytes_make(&how, 0));
    outside_begin();
    /* Only its second life needs a disk of the rig's; one of its own has files of 512 KiB, not of 8 MiB,
     * most of which is zeroed at each start. */
    struct sh_disk *disk = NULL;
    if (sh_log_levels_set("error", &bad, &bad_size) || (how & 2 && sh_memory_disk_create(&disk)))
        abort();
    rig.env = (struct sh_env){
        .clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .disk = disk};
    ends_open();
    superpeer_open(how & 2 ? 1 : 1 + (how & 1));
    pass(10 * HEARTBEAT_NS);
    join(&requests[0]);
    pass(4 * HEARTBEAT_NS);
    if (!(how & 2))
        return;
    sh_superpeer_destroy(rig.superpeer);
    rig.superpeer = NULL;
    ends_close();
    if (sh_superpeer_force(&rig.env, "fuzz", &index))
        abort();
    rig.asked = rig.answered = 0;
    ends_open();
    superpeer_open(1);
    pass(10 * HEARTBEAT_NS);
    join(&requests[1]);
    pass(4 * HEARTBEAT_NS);
}

/* What the peer's own messages of that type begin with. */
static struct sh_bytes head_of(sh_msg_type type, uint8_t *room, size_t size)
{
    struct sh_writer w = sh_writer_make(room, size);
    switch (type) {
    case SH_CLUSTER_COMMIT:
    case SH_CLUSTER_RESOLVE:
        sh_put64(&w, PEER_INSTANCE);
        sh_put16(&w, SH_PEER_NID_MIN);
        break;
    case SH_CLUSTER_TAKE:
        sh_put64(&w, PEER_INSTANCE);
        break;
    case SH_CLUSTER_HEARTBEAT:
    case SH_CLUSTER_LEAVE:
        sh_put32(&w, SH_PEER_NID_MIN);
        sh_put64(&w, PEER_INSTANCE);
        break;
    default:
        break;
    }
    return sh_bytes_make(room, (size_t)(w.at - room));
}

static bool is_answered(sh_msg_type type)
{
    switch (type) {
    case SH_CLUSTER_SUSPECT:
    case SH_CLUSTER_REFUSED:
    case SH_CLUSTER_RAFT:
    case SH_CLUSTER_PROPOSE:
    case SH_CLUSTER_HERE:
    case SH_CLUSTER_DISMISSED:
    case SH_CLUSTER_RING:
    case SH_CLUSTER_FORMER:
        return false;
    default:
        return true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct sh_request requests[MESSAGES_MAX + 2];
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    uint8_t room[16];
    open_rig(sh_get8(&r), requests);
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(&r) > 0; i++) {
        uint8_t what = sh_get8(&r) % (TYPES + 2), how = sh_get8(&r);
        if (what == TYPES) {
            pass(how * (HEARTBEAT_NS / 2));
            continue;
        }
        size_t bytes = what < TYPES ? sh_get8(&r) : how;
        bytes = bytes < sh_reader_left(&r) ? bytes : sh_reader_left(&r);
        struct sh_bytes taken = sh_bytes_make(sh_reader_take(&r, bytes), bytes);
        if (what > TYPES) {
            rig.answers = sh_reader_make(taken);
            continue;
        }
        struct sh_bytes head =
            how & 8 ? head_of(superpeer_fuzz_types[what], room, sizeof room) : (struct sh_bytes){0};
        ask((how & 3) % ASKERS, superpeer_fuzz_types[what],
            (how & 4) || !is_answered(superpeer_fuzz_types[what]), head, taken, &requests[2 + i]);
        carry();
        SH_ASSERT(rig.answered <= rig.asked);
    }
    for (unsigned i = 0; i < 24; i++) { /* the longest that a question waits */
        now_ns += 500 * MS;
        carry();
    }
    SH_ASSERT(rig.answered == rig.asked);
    sh_superpeer_destroy(rig.superpeer);
    rig.superpeer = NULL;
    ends_close();
    if (rig.env.disk)
        rig.env.disk->ops->destroy(rig.env.disk);
    return 0;
}
