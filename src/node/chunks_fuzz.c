/* Hostile payloads for the handlers of a node's chunks and of its jobs (no data_dir), over a real
 * end on a wire in memory. Each request is answered exactly once, and nothing else is said; the
 * store holds together.
 *
 * An input is any number of: u8 operation (of the types of chunks.h, dumps.h and saves.h) with 0x80 set for
 * a one-way message and 0x40 for "let the handler steps run first", u16 length, payload. A chunk ID
 * in it is this node's if its upper 16 bits are 5. The forms that are done at most once begin with
 * a client, a number and what is acknowledged, 8 bytes each. */
#include <stdint.h>
#include <stdlib.h>

#include "base/log.h"
#include "msg/memwire.h"
#include "node/chunks.h"
#include "node/dumps.h"
#include "node/saves.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NID 5
#define OTHER 6
#define MESSAGES_MAX 200
#define PAYLOAD_BYTES_MAX (1u << 20)
#define STORE_BYTES_MAX (4u << 20)

/* One of two ends: the node, and the one whose hello is honest and whose requests are not. */
struct end {
    struct sh_memwire memwire;
    struct sh_msg *msg;
    struct sh_step transport, handlers;
};

static struct end node, other;
static struct sh_dumps *dumps;
static struct sh_saves *saves;
static size_t carried[2]; /* from node, from other */
static unsigned asked, answered;

static void wake(void *arg)
{
    (void)arg;
}

static void end_open(struct end *end, uint16_t nid)
{
    sh_memwire_init(&end->memwire);
    end->memwire.random = nid;
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "fuzz",
        .connections_max = 8,
        .requests_max = 256,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = PAYLOAD_BYTES_MAX,
        .request_timeout_ns = 1000000000,
        .connect_timeout_ns = 1000000000,
        .env = sh_memwire_env(&end->memwire),
        .wake_transport = wake,
        .wake_handlers = wake,
    };
    enum shoal_err err = sh_msg_create(&config, &end->msg);
    SH_ASSERT(err == SHOAL_OK);
    end->transport = sh_msg_transport_step(end->msg);
    end->handlers = sh_msg_handler_step(end->msg);
}

static void end_close(struct end *end)
{
    sh_msg_destroy(end->msg);
    sh_memwire_free(&end->memwire);
}

static unsigned run(bool with_handlers)
{
    unsigned done = other.transport.run(other.msg) + node.transport.run(node.msg);
    struct sh_step jobs = sh_dumps_step(dumps), copies = sh_saves_step(saves);
    if (with_handlers)
        done += node.handlers.run(node.handlers.arg) + jobs.run(jobs.arg) + copies.run(copies.arg);
    done += sh_memwire_carry(&node.memwire, 0, &carried[0], &other.memwire, 0) > 0;
    done += sh_memwire_carry(&other.memwire, 0, &carried[1], &node.memwire, 0) > 0;
    return done;
}

static void saves_check(unsigned operation, struct sh_reader *payload)
{
    struct sh_saves_block block;
    struct sh_saves_restored restored;
    if (operation == (SH_SAVES_READ & 0xff))
        SH_ASSERT(sh_saves_block_get(payload, &block));
    if (operation == (SH_SAVES_RESTORE & 0xff))
        SH_ASSERT(sh_saves_restored_get(payload, &restored));
}

/* What an answer must look like, whatever was asked. */
static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    uint8_t *is_pending = request->arg;
    size_t size = sh_reader_left(payload);
    SH_ASSERT(*is_pending);
    answered++;
    switch (err == SHOAL_OK ? *is_pending & 0x3f : 0) {
    case SH_CHUNKS_CREATE & 0xff:
        SH_ASSERT(size > 0 && size % 12 == 0);
        break;
    case SH_CHUNKS_GET & 0xff: {
        uint16_t got = sh_get16(payload);
        uint32_t bytes = sh_get32(payload);
        SH_ASSERT(sh_reader_ok(payload));
        SH_ASSERT(got == SHOAL_OK ? size == SH_CHUNKS_GET_HEAD_BYTES + (size_t)bytes : true);
        break;
    }
    case SH_CHUNKS_CREATE_ONCE & 0xff:
        SH_ASSERT(size == 12);
        break;
    case SH_CHUNKS_ADD_ONCE & 0xff:
        SH_ASSERT(size == 8);
        break;
    case SH_CHUNKS_GET_PART & 0xff: {
        uint16_t got = sh_get16(payload);
        (void)sh_get32(payload);
        uint32_t bytes = sh_get32(payload);
        SH_ASSERT(sh_reader_ok(payload));
        SH_ASSERT(size == SH_CHUNKS_PART_HEAD_BYTES + (size_t)bytes);
        SH_ASSERT(got != SHOAL_EAGAIN);
        break;
    }
    case SH_CHUNKS_MULTI_REMOVE & 0xff:
    case SH_CHUNKS_MULTI_RESIZE & 0xff:
        SH_ASSERT(size % 2 == 0);
        break;
    case SH_CHUNKS_PUT & 0xff:
    case SH_CHUNKS_REMOVE & 0xff:
    case SH_CHUNKS_PUT_ONCE & 0xff:
    case SH_CHUNKS_REMOVE_ONCE & 0xff:
    case SH_CHUNKS_PUT_PART_ONCE & 0xff:
    case SH_CHUNKS_RESIZE_ONCE & 0xff:
    case SH_CHUNKS_PUT_IF_ONCE & 0xff:
    case SH_CHUNKS_PUT_HASH_ONCE & 0xff:
    case SH_CHUNKS_FILL_ONCE & 0xff:
    case SH_CHUNKS_FREE_ONCE & 0xff:
        SH_ASSERT(size == 0);
        break;
    case SH_CHUNKS_RANGES & 0xff:
        SH_ASSERT(size % 16 == 0);
        break;
    case SH_CHUNKS_STATUS & 0xff:
        SH_ASSERT(size == SH_CHUNKS_STATUS_BYTES);
        break;
    case SH_DUMPS_JOB & 0xff: {
        struct sh_job job;
        SH_ASSERT(sh_job_get(payload, &job));
        break;
    }
    case SH_DUMPS_ANALYSIS & 0xff: {
        struct sh_analysis found;
        SH_ASSERT(sh_analysis_get(payload, &found));
        break;
    }
    default:
        saves_check(err == SHOAL_OK ? *is_pending & 0x3f : 0, payload);
        break;
    }
    *is_pending = 0;
}

static void send(uint8_t head, struct sh_bytes payload, struct sh_request *request,
                 uint8_t *is_pending)
{
    sh_msg_type type = SH_MSG_TYPE(2, head & 0x3f);
    struct sh_out out;
    enum shoal_err err;
    if (head & 0x80) {
        err = sh_msg_begin(other.msg, (shoal_nid){NID}, type, payload.size, &out);
    } else {
        *request = (struct sh_request){.done = on_done, .arg = is_pending};
        *is_pending = head & 0x3f ? head & 0x3f : 0x3f;
        err = sh_msg_request(other.msg, (shoal_nid){NID}, type, payload.size, request, &out);
        asked++;
    }
    SH_ASSERT(err == SHOAL_OK);
    sh_put_raw(&out.w, payload);
    sh_msg_end(other.msg, &out);
}

static void meet(void)
{
    enum shoal_err err = sh_msg_node_set(other.msg, (shoal_nid){NID}, "node:1");
    SH_ASSERT(err == SHOAL_OK);
    struct sh_out out;
    err = sh_msg_begin(other.msg, (shoal_nid){NID}, SH_NODE_STOP, 0, &out);
    SH_ASSERT(err == SHOAL_OK);
    sh_msg_end(other.msg, &out);
    other.transport.run(other.msg);
    sh_memwire_accept(&node.memwire);
    while (run(true))
        ;
}

static void messages(struct sh_reader *r)
{
    static struct sh_request requests[MESSAGES_MAX];
    static uint8_t is_pending[MESSAGES_MAX];
    for (unsigned i = 0; i < MESSAGES_MAX && sh_reader_left(r) > 0; i++) {
        uint8_t head = sh_get8(r);
        size_t size = sh_get16(r);
        if (size > sh_reader_left(r))
            size = sh_reader_left(r);
        /* STATUS reads /proc, which is slow and has nothing to decode: seldom is enough. */
        if ((head & 0x3f) == (SH_CHUNKS_STATUS & 0xff) && i > 1)
            continue;
        if (head & 0x40) {
            while (run(true))
                ;
        }
        send(head, sh_bytes_make(sh_reader_take(r, size), size), &requests[i], &is_pending[i]);
    }
}

static void saves_open(struct sh_store *store, struct sh_backup *backup, struct sh_chunks *chunks)
{
    const struct sh_saves_config copies = {.msg = node.msg,
                                           .store = store,
                                           .backup = backup,
                                           .chunks = chunks,
                                           .clock = sh_memwire_env(&node.memwire).clock};
    enum shoal_err err = sh_saves_create(&copies, &saves);
    SH_ASSERT(err == SHOAL_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_store_config config = {.bytes_max = STORE_BYTES_MAX, .chunk_bytes_max = 65536};
    struct sh_store *store;
    struct sh_backup *backup;
    struct sh_chunks *chunks;
    const char *bad;
    size_t bad_size;
    enum shoal_err err = sh_log_levels_set("error", &bad, &bad_size);
    SH_ASSERT(err == SHOAL_OK);
    asked = answered = 0;
    carried[0] = carried[1] = 0;
    end_open(&node, NID);
    end_open(&other, OTHER);
    err = sh_store_create(&config, &store);
    SH_ASSERT(err == SHOAL_OK);
    err = sh_backup_create(&(struct sh_backup_config){.store = store}, &backup);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_chunks_config served = {.msg = node.msg,
                                      .store = store,
                                      .backup = backup,
                                      .chunk_bytes_max = config.chunk_bytes_max};
    err = sh_chunks_create(&served, &chunks);
    SH_ASSERT(err == SHOAL_OK);
    struct sh_dumps_config jobs = {.msg = node.msg,
                                   .store = store,
                                   .backup = backup,
                                   .chunks = chunks,
                                   .clock = sh_memwire_env(&node.memwire).clock};
    err = sh_dumps_create(&jobs, &dumps);
    SH_ASSERT(err == SHOAL_OK);
    saves_open(store, backup, chunks);
    meet();
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    messages(&r);
    while (run(true))
        ;
    SH_ASSERT(asked == answered);
    struct sh_store_status status;
    sh_store_status_get(store, &status);
    SH_ASSERT(status.used_bytes <= status.bytes_max);
    SH_ASSERT(status.chunks == status.creates - status.removes);
    end_close(&other);
    end_close(&node);
    sh_dumps_destroy(dumps);
    sh_saves_destroy(saves);
    sh_chunks_destroy(chunks);
    sh_backup_destroy(backup);
    sh_store_destroy(store);
    return 0;
}
