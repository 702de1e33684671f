#include "msg/call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "msg/msg_int.h"

/* A request whose thread waits. */
struct waiting {
    struct sh_request request;
    struct sh_waiter waiter;
    enum shoal_err err;
    bool wants_answer;
    uint8_t *answer;
    size_t size;
    char *detail;
};

void sh_call_detail_take(char *detail, const struct sh_reader *text)
{
    size_t size = sh_reader_left(text);
    if (!detail)
        return;
    if (size >= SH_CALL_DETAIL_BYTES)
        size = SH_CALL_DETAIL_BYTES - 1;
    for (size_t i = 0; i < size; i++) {
        uint8_t byte = text->at[i];
        detail[i] = byte >= ' ' && byte != 0x7f ? (char)byte : '?';
    }
    detail[size] = '\0';
}

/* There is no memory for it, as if it had been lost on its way: what was asked may have been done. */
static void answer_lose(struct waiting *waiting)
{
    waiting->err = SHOAL_ECONNLOST;
    if (waiting->detail)
        snprintf(waiting->detail, SH_CALL_DETAIL_BYTES, "there was no memory for the answer");
}

static void waiting_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct waiting *waiting = request->arg;
    size_t size = sh_reader_left(payload);
    waiting->err = err;
    if (err != SHOAL_OK) {
        sh_call_detail_take(waiting->detail, payload);
    } else if (waiting->wants_answer) {
        waiting->answer = malloc(size ? size : 1);
        waiting->size = size;
        if (!waiting->answer)
            answer_lose(waiting);
        else if (size)
            memcpy(waiting->answer, payload->at, size);
    }
    sh_waiter_complete(&waiting->waiter);
}

enum shoal_err sh_call_wait_room(const struct sh_caller *caller, shoal_nid to, size_t payload_bytes,
                                 uint64_t deadline_ns)
{
    struct sh_waiter room = {0};
    sh_msg_wait_room(caller->msg, to, payload_bytes, &room);
    /* A lost connection makes room too; a node that reads no more never does. */
    if (sh_crew_wait(caller->crew, caller->thread, &room, deadline_ns))
        return SHOAL_OK;
    if (sh_msg_wait_room_cancel(caller->msg, to, &room))
        return SHOAL_ETIMEOUT;
    bool is_done = sh_crew_wait(caller->crew, caller->thread, &room, SH_NEVER);
    SH_ASSERT(is_done);
    return SHOAL_OK;
}

/* When a request fails, by the clock. */
static uint64_t deadline_of(const struct sh_caller *caller, const struct sh_request *request)
{
    if (request->deadline_ns)
        return request->deadline_ns;
    uint64_t configured = caller->msg->config.request_timeout_ns;
    return sh_now(caller->clock) + (request->timeout_ns ? request->timeout_ns : configured);
}

enum shoal_err sh_call_begin(const struct sh_caller *caller, shoal_nid to, sh_msg_type type,
                             size_t payload_bytes, struct sh_request *request, struct sh_out *out)
{
    for (;;) {
        enum shoal_err err = sh_msg_request(caller->msg, to, type, payload_bytes, request, out);
        if (err != SHOAL_EAGAIN)
            return err;
        request->deadline_ns = deadline_of(caller, request);
        err = sh_call_wait_room(caller, to, payload_bytes, request->deadline_ns);
        if (err != SHOAL_OK)
            return err;
    }
}

enum shoal_err sh_call(const struct sh_caller *caller, shoal_nid to, sh_msg_type type,
                       struct sh_bytes payload, uint64_t timeout_ns, uint8_t **answer_out,
                       size_t *size_out, char *detail)
{
    struct waiting waiting = {.wants_answer = answer_out != NULL, .detail = detail};
    waiting.request =
        (struct sh_request){.done = waiting_done, .arg = &waiting, .timeout_ns = timeout_ns};
    if (detail)
        detail[0] = '\0';
    struct sh_out out;
    enum shoal_err err = sh_call_begin(caller, to, type, payload.size, &waiting.request, &out);
    if (err != SHOAL_OK)
        return err;
    sh_put_raw(&out.w, payload);
    sh_msg_end(caller->msg, &out);
    bool is_done = sh_crew_wait(caller->crew, caller->thread, &waiting.waiter, SH_NEVER);
    SH_ASSERT(is_done);
    if (waiting.err != SHOAL_OK)
        return waiting.err;
    if (answer_out) {
        *answer_out = waiting.answer;
        *size_out = waiting.size;
    }
    return SHOAL_OK;
}
