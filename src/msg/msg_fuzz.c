/* Hostile bytes for a real end, in pieces of any size: as an accepted stream, before and after a
 * good hello, and as a dialled one, before and after a good welcome.
 *
 * The first byte of an input says which; then come steps, a byte each: up to 0xdf, so many of the
 * bytes that follow arrive; above it, one of the actions below. Time and random bytes are the same
 * for each input, and so is the honest other side's hello, which is recorded once. */
#include <stdint.h>
#include <stdlib.h>

#include "msg/memwire.h"
#include "msg/msg_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUESTS 24
#define TYPE_INLINE SH_MSG_TYPE(9, 1)
#define TYPE_POOLED SH_MSG_TYPE(9, 2)
#define TYPE_ORDERED SH_MSG_TYPE(9, 3)
#define TYPE_PREFETCHED SH_MSG_TYPE(9, 4)
#define TYPE_HELD SH_MSG_TYPE(9, 5)
#define NID_TARGET 1
#define NID_OTHER 2

enum action {
    RUN_HANDLERS = 0xe0, /* the handler steps run */
    LATER,               /* 5 ms pass */
    MUCH_LATER,          /* 3 s pass: more than any deadline */
    ASK,                 /* the target asks the other side */
    TELL,                /* it sends a one-way message */
    CANCEL,              /* it cancels its oldest request */
    TAKE_LITTLE,         /* the wire takes so many bytes more (the next byte), then none */
    TAKE_ALL,            /* the wire takes everything again */
    CUT,                 /* the other side is gone */
    ANSWER_HELD,         /* the handler that held a request answers it */
    REST,                /* all the rest arrives at once */
    CLOSE_IDLE,          /* the target asks the other side to close, if the connection is idle */
};

#define LANDED_MAX 9000 /* more than is decoded only whole */

struct asked {
    struct sh_request request;
    bool is_pending;
    size_t size; /* what every second one's answer is decoded into */
    uint8_t landed[LANDED_MAX];
};

struct target {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
    sh_link link;
    struct sh_reply_to held;
    struct asked asked[REQUESTS];
    bool is_in_ordered;
    unsigned ups, losses;
};

static void wake(void *arg)
{
    (void)arg;
}

static void on_event(void *arg, const struct sh_msg_event *event)
{
    struct target *target = arg;
    target->ups += event->kind == SH_MSG_UP;
    target->losses += event->kind == SH_MSG_LOST;
}

/* Reads every byte, so that the sanitizers see where they lie, and echoes them. */
static void on_message(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    size_t size = sh_reader_left(&in->payload);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out) != SHOAL_OK) {
        uint64_t sum = 0;
        while (sh_reader_left(&in->payload) > 0)
            sum += sh_get8(&in->payload);
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY, sum ? "odd" : NULL);
        return;
    }
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
    sh_msg_end(in->msg, &out);
}

static void on_ordered(void *arg, struct sh_msg_in *in)
{
    struct target *target = arg;
    SH_ASSERT(!target->is_in_ordered);
    target->is_in_ordered = true;
    on_message(arg, in);
    target->is_in_ordered = false;
}

static void on_held(void *arg, struct sh_msg_in *in)
{
    struct target *target = arg;
    target->held = in->reply_to;
}

static void prefetch(void *arg, struct sh_bytes payload, unsigned round)
{
    (void)arg;
    SH_ASSERT(round < 2);
    if (payload.size > 0)
        SH_ASSERT(payload.at[0] + payload.at[payload.size - 1] >= 0);
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    SH_ASSERT(asked->is_pending);
    asked->is_pending = false;
    (void)err;
    while (sh_reader_left(payload) > 0)
        (void)sh_get8(payload);
}

/* Nothing is written for a request that is over. */
static void describe_answer(struct sh_codec *c, void *object)
{
    struct asked *asked = object;
    SH_ASSERT(asked->is_pending);
    sh_codec_length(c, &asked->size, LANDED_MAX);
    sh_codec_bytes(c, asked->landed, asked->size);
}

static void end_open(struct target *target, uint16_t nid)
{
    sh_memwire_init(&target->memwire);
    target->memwire.random = nid;
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "fuzz",
        .secret = sh_bytes_text("the fuzzer knows the secret"),
        .connections_max = 8,
        .requests_max = 16,
        .ring_bytes = 4096,
        .payload_bytes_max = 200000,
        .request_timeout_ns = 1000000000,
        .connect_timeout_ns = 1000000000,
        .env = sh_memwire_env(&target->memwire),
        .on_event = on_event,
        .wake_transport = wake,
        .wake_handlers = wake,
        .arg = target,
    };
    enum shoal_err err = sh_msg_create(&config, &target->msg);
    SH_ASSERT(err == SHOAL_OK);
    target->transport = sh_msg_transport_step(target->msg);
    target->handlers = sh_msg_handler_step(target->msg);
    sh_msg_handler_set(target->msg, TYPE_INLINE, SH_MSG_INLINE, on_message, target);
    sh_msg_handler_set(target->msg, TYPE_POOLED, SH_MSG_POOLED, on_message, target);
    sh_msg_handler_set(target->msg, TYPE_ORDERED, SH_MSG_ORDERED, on_ordered, target);
    sh_msg_handler_set(target->msg, TYPE_PREFETCHED, SH_MSG_INLINE, on_message, target);
    sh_msg_handler_set(target->msg, TYPE_HELD, SH_MSG_INLINE, on_held, target);
    sh_msg_prefetch_set(target->msg, TYPE_PREFETCHED, prefetch);
}

static void end_close(struct target *target)
{
    sh_msg_destroy(target->msg);
    for (unsigned i = 0; i < REQUESTS; i++)
        SH_ASSERT(!target->asked[i].is_pending);
    sh_memwire_free(&target->memwire);
}

/* --- The honest other side ----------------------------------------------------------------- */

static struct {
    uint8_t bytes[SH_HELLO_FRAME_MAX];
    size_t size;
} accepted_hello, dialled_welcome; /* what it says to an end that accepts it, and that dials it */

static void ask(struct target *target)
{
    for (unsigned i = 0; i < REQUESTS; i++) {
        struct asked *asked = &target->asked[i];
        struct sh_out out;
        if (asked->is_pending)
            continue;
        asked->request = (struct sh_request){.done = on_done, .arg = asked};
        if (i % 2 == 0) {
            asked->request.describe = describe_answer;
            asked->request.object = asked;
        }
        asked->is_pending = true;
        if (sh_msg_request(target->msg, (shoal_nid){NID_OTHER}, TYPE_INLINE, i, &asked->request,
                           &out) != SHOAL_OK) {
            asked->is_pending = false;
            return;
        }
        memset(sh_writer_take(&out.w, i), (int)i, i);
        sh_msg_end(target->msg, &out);
        return;
    }
}

static void dial(struct target *target)
{
    enum shoal_err err = sh_msg_node_set(target->msg, (shoal_nid){NID_OTHER}, "other:1");
    SH_ASSERT(err == SHOAL_OK);
    ask(target);
    target->transport.run(target->msg);
    SH_ASSERT(target->memwire.count == 1 && target->memwire.links[0].was_opened_by_us);
    target->link = 0;
    target->transport.run(target->msg);
}

/* Lets two honest ends meet and records what the other one says first. */
static void record(bool is_dialled)
{
    static struct target target, other;
    memset(&target, 0, sizeof target);
    memset(&other, 0, sizeof other);
    end_open(&target, NID_TARGET);
    end_open(&other, NID_OTHER);
    struct target *dialler = is_dialled ? &target : &other;
    struct target *acceptor = is_dialled ? &other : &target;
    if (is_dialled) {
        dial(&target);
    } else {
        enum shoal_err err = sh_msg_node_set(other.msg, (shoal_nid){NID_TARGET}, "target:1");
        struct sh_out out;
        SH_ASSERT(err == SHOAL_OK);
        err = sh_msg_begin(other.msg, (shoal_nid){NID_TARGET}, TYPE_INLINE, 0, &out);
        SH_ASSERT(err == SHOAL_OK);
        sh_msg_end(other.msg, &out);
        other.transport.run(other.msg);
    }
    acceptor->link = sh_memwire_accept(&acceptor->memwire);
    size_t dialler_at = 0, acceptor_at = 0;
    for (int i = 0; i < 4; i++) {
        dialler->transport.run(dialler->msg);
        acceptor->transport.run(acceptor->msg);
        sh_memwire_carry(&dialler->memwire, 0, &dialler_at, &acceptor->memwire, 0);
        sh_memwire_carry(&acceptor->memwire, 0, &acceptor_at, &dialler->memwire, 0);
    }
    SH_ASSERT(target.ups == 1 && other.ups == 1);
    size_t size = is_dialled ? SH_WELCOME_BYTES : SH_HELLO_BYTES + SH_PROOF_FRAME_BYTES;
    struct sh_memlink *said = &other.memwire.links[0];
    SH_ASSERT(said->out_size >= size);
    memcpy(is_dialled ? dialled_welcome.bytes : accepted_hello.bytes, said->out, size);
    *(is_dialled ? &dialled_welcome.size : &accepted_hello.size) = size;
    end_close(&other);
    end_close(&target);
}

/* --- One input ----------------------------------------------------------------------------- */

static void act(struct target *target, enum action action, struct sh_reader *r)
{
    struct sh_memlink *link = &target->memwire.links[target->link];
    struct sh_out out;
    switch (action) {
    case RUN_HANDLERS:
        target->handlers.run(target->handlers.arg);
        return;
    case LATER:
        target->memwire.now_ns += 5000000;
        return;
    case MUCH_LATER:
        target->memwire.now_ns += UINT64_C(3000000000);
        return;
    case ASK:
        ask(target);
        return;
    case TELL:
        if (sh_msg_begin(target->msg, (shoal_nid){NID_OTHER}, TYPE_INLINE, 700, &out) == SHOAL_OK) {
            memset(sh_writer_take(&out.w, 700), 7, 700);
            sh_msg_end(target->msg, &out);
        }
        return;
    case CANCEL:
        if (target->asked[0].is_pending && sh_msg_cancel(target->msg, &target->asked[0].request))
            target->asked[0].is_pending = false;
        return;
    case TAKE_LITTLE:
        link->push_room = sh_get8(r);
        return;
    case TAKE_ALL:
        link->push_room = SIZE_MAX;
        return;
    case CUT:
        sh_memwire_cut(&target->memwire, target->link);
        return;
    case ANSWER_HELD:
        sh_msg_reply_ok(target->msg, target->held, TYPE_HELD);
        return;
    case REST:
        sh_memwire_feed(&target->memwire, target->link, sh_bytes_make(r->at, sh_reader_left(r)));
        r->at = r->end;
        return;
    case CLOSE_IDLE:
        (void)sh_close_one(target->msg);
        return;
    }
}

static void steps(struct target *target, struct sh_reader *r)
{
    while (sh_reader_left(r) > 0) {
        uint8_t step = sh_get8(r);
        if (step >= RUN_HANDLERS) {
            act(target, (enum action)step, r);
        } else {
            size_t size = step < sh_reader_left(r) ? step : sh_reader_left(r);
            struct sh_bytes piece = {sh_reader_take(r, size), size};
            sh_memwire_feed(&target->memwire, target->link, piece);
        }
        target->transport.run(target->msg);
    }
}

/* Everything received is worked off, and every work is free again. */
static void settle(struct target *target)
{
    target->memwire.links[target->link].push_room = SIZE_MAX;
    for (int i = 0; i < 10000; i++) {
        unsigned done = target->transport.run(target->msg);
        done += target->handlers.run(target->handlers.arg);
        if (done == 0)
            break;
    }
    SH_ASSERT(sh_queue_count(target->msg->works_free) == SH_WORKS_MAX);
    SH_ASSERT(target->msg->stalled_count == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct target target;
    const char *bad;
    size_t bad_size;
    if (accepted_hello.size == 0) {
        enum shoal_err err = sh_log_levels_set("error", &bad, &bad_size);
        SH_ASSERT(err == SHOAL_OK);
        record(false);
        record(true);
    }
    if (size == 0)
        return 0;
    memset(&target, 0, sizeof target);
    end_open(&target, NID_TARGET);
    bool is_dialled = data[0] & 1, is_proven = data[0] & 2;
    if (is_dialled) {
        dial(&target);
    } else {
        target.link = sh_memwire_accept(&target.memwire);
        target.transport.run(target.msg);
    }
    if (is_proven) {
        sh_memwire_feed(&target.memwire, target.link,
                        is_dialled ? sh_bytes_make(dialled_welcome.bytes, dialled_welcome.size)
                                   : sh_bytes_make(accepted_hello.bytes, accepted_hello.size));
        target.transport.run(target.msg);
        target.transport.run(target.msg);
        SH_ASSERT(target.ups == 1);
    }
    struct sh_reader r = sh_reader_make(sh_bytes_make(data + 1, size - 1));
    steps(&target, &r);
    settle(&target);
    end_close(&target);
    return 0;
}
