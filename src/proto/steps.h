/* What a node says of how long its steps take, to whoever asks (`shoal status`).
 *
 *   STEPS         empty; any node
 *     answer      u16 how many rows; each: text name, u64 longest run in ns, u64 runs above
 *                 SH_STEP_BOUND_NS
 *
 * A row is a step of the node's crew ("step transport"), a part of that step ("transport send"), or
 * the handling of one type of message, in whatever step ("handle CREATE"; graphs' types go by their
 * numbers in docs/wire-format.md, "handle 3.2"). The times of parts and
 * of handlers are contained in those of the steps. base/steptime.h says how times are taken.
 *
 * Memory: 48 bytes a row. Threads: plain values. */
#ifndef SH_PROTO_STEPS_H
#define SH_PROTO_STEPS_H

#include "base/steptime.h"
#include "msg/msg.h"

#define SH_NODE_STEPS SH_MSG_TYPE(2, 61)
#define SH_STEPS_ROWS_MAX 256
#define SH_STEPS_NAME_MAX 32 /* with the NUL */

struct sh_steps_row {
    char name[SH_STEPS_NAME_MAX];
    struct sh_step_report time;
};

/* Encoded and decoded: bytes; and false when they are no such answer, with more than
 * SH_STEPS_ROWS_MAX rows, or names that are empty, too long or not printable. */
size_t sh_steps_bytes(const struct sh_steps_row *rows, size_t count);
void sh_steps_put(struct sh_writer *w, const struct sh_steps_row *rows, size_t count);
SHOAL_NODISCARD bool sh_steps_get(struct sh_reader *r, struct sh_steps_row *rows_out,
                                  size_t *count_out);

#endif
