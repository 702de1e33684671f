/* One payload to several nodes as requests, and a handle to wait on.
 *
 *   sh_msg_request_many --> target 0 --answer or error--> each
 *                      \--> target 1 --answer or error--> each
 *                       ...                                 the last one --> all, waiter
 *
 * With one target it is a request to be waited for later. It leaves to others what a failed target
 * means: whoever is not reached counts as answered, with an error. */
#ifndef SH_MSG_MANY_H
#define SH_MSG_MANY_H

#include "msg/call.h"

struct sh_many;

/* One node asked. The caller sets nid. */
struct sh_many_target {
    shoal_nid nid;
    enum shoal_err err; /* once it has been completed */
    /* many.c's: */
    struct sh_many *many;
    struct sh_request request;
};

/* Owned by the caller, with its targets; kept from sh_msg_request_many until all has been called,
 * or, if that is NULL, until the waiter is done. The caller sets what comes first, the rest is 0.
 */
struct sh_many {
    struct sh_many_target *targets;
    size_t count; /* 1 or more; a node may be named twice and is asked twice then */
    /* Called once for each target, with its answer or why there is none: like done of a request,
     * and by the thread of sh_msg_request_many for who can't be asked at all. May be NULL. Calls
     * for different targets may run at the same time, in two threads. */
    void (*each)(struct sh_many *many, struct sh_many_target *target, enum shoal_err err,
                 struct sh_reader *payload);
    /* Called once, after the last each has returned, by the thread that ran it. The handle may be
     * freed or used again in it; then nobody may wait for it. NULL: wait with sh_many_wait. */
    void (*all)(struct sh_many *many);
    void *arg;           /* the caller's */
    uint64_t timeout_ns; /* 0: the configured one */
    /* many.c's: */
    _Atomic size_t left;
    struct sh_waiter waiter;
};

/* Asks every target. Borrows the payload. Never waits: a target whose ring is full is completed
 * with EAGAIN, and so on as sh_msg_request. Any thread. */
void sh_msg_request_many(struct sh_msg *msg, sh_msg_type type, struct sh_bytes payload,
                         struct sh_many *many);

/* Waits until all have answered (true) or the clock reaches deadline_ns (false: wait again, or
 * cancel). SH_NEVER: without end, as every request ends by itself. Application threads only. */
bool sh_many_wait(const struct sh_caller *caller, struct sh_many *many, uint64_t deadline_ns);
/* True when all have answered. Any thread. */
bool sh_many_done(const struct sh_many *many);
/* Completes with ECANCELED, by this thread, those that have not been answered; all is called (or
 * the waiter done) as ever, by whoever completes the last. Any thread, after sh_msg_request_many
 * has returned and while nobody may free the handle. */
void sh_many_cancel(struct sh_msg *msg, struct sh_many *many);

#endif
