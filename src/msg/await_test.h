/* Waiting for one event of a wire. */
#ifndef SH_MSG_AWAIT_TEST_H
#define SH_MSG_AWAIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "env/wire.h"

#define AWAIT_ROUNDS_MAX 30000 /* of a millisecond each: a deadline that no slow machine meets */

/* Polls until an event of that kind comes; others are dropped. */
static inline struct sh_wire_event test_await(struct sh_wire *wire, enum sh_wire_kind kind)
{
    for (unsigned round = 0; round < AWAIT_ROUNDS_MAX; round++) {
        struct sh_wire_event event;
        if (wire->ops->poll(wire, &event, 1, 1000000) == 1 && event.kind == kind)
            return event;
    }
    fail_msg("no event of kind %d", (int)kind);
    return (struct sh_wire_event){0};
}

#endif
