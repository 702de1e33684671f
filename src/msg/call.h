/* Blocking requests, for application threads only: never from within a step. */
#ifndef SH_MSG_CALL_H
#define SH_MSG_CALL_H

#include "msg/msg.h"

/* Who waits: the messaging and the crew thread that runs its transport step. */
struct sh_caller {
    struct sh_msg *msg;
    struct sh_crew *crew;
    unsigned thread;
    const struct sh_clock *clock;
};

/* Sends a request with the given payload and waits for the answer, which is copied to *answer_out
 * (allocated; the caller frees it; size in *size_out; both may be NULL if the answer does not
 * matter). timeout_ns 0: the configured one. When the ring is full it waits for room first. detail
 * (may be NULL; SH_CALL_DETAIL_BYTES) gets the text that came with an error, or "". All errors of sh_msg_begin
 * and of struct sh_request; ECONNLOST also where there is no memory for the answer. */
SHOAL_NODISCARD enum shoal_err sh_call(const struct sh_caller *caller, shoal_nid to,
                                       sh_msg_type type, struct sh_bytes payload,
                                       uint64_t timeout_ns, uint8_t **answer_out, size_t *size_out,
                                       char *detail);

/* Takes over, for people, a text that another node sent (detail NULL: drops it), with a NUL behind it; of
 * one that is too long the beginning. What could do harm on a terminal becomes '?'. */
#define SH_CALL_DETAIL_BYTES 256
void sh_call_detail_take(char *detail, const struct sh_reader *text);

/* Waits for room in the ring to a node for a payload of that size, until the clock reaches
 * deadline_ns. OK: try again; ETIMEOUT: there is none yet. */
SHOAL_NODISCARD enum shoal_err sh_call_wait_room(const struct sh_caller *caller, shoal_nid to,
                                                 size_t payload_bytes, uint64_t deadline_ns);

/* Begins a request like sh_msg_request, waiting for room in the ring as long as the request's
 * time-out lasts, and no longer: ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_call_begin(const struct sh_caller *caller, shoal_nid to,
                                             sh_msg_type type, size_t payload_bytes,
                                             struct sh_request *request, struct sh_out *out);

#endif
