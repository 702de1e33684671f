#include "node/steps.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "cluster/proto.h"
#include "node/chunks.h"
#include "node/dumps.h"
#include "node/locks.h"
#include "node/moves.h"
#include "node/saves.h"
#include "proto/logs.h"

#define NAMED(module, name)                                                                        \
    {                                                                                              \
        SH_##module##_##name, #name                                                                \
    }

static const struct {
    sh_msg_type type;
    const char *name;
} names[] = {
    NAMED(CHUNKS, CREATE),
    NAMED(CHUNKS, GET),
    NAMED(CHUNKS, PUT),
    NAMED(CHUNKS, REMOVE),
    NAMED(CHUNKS, MULTI_GET),
    NAMED(CHUNKS, MULTI_PUT),
    NAMED(CHUNKS, MULTI_REMOVE),
    NAMED(CHUNKS, RANGES),
    NAMED(CHUNKS, STATUS),
    NAMED(NODE, STOP),
    NAMED(NODE, LOG_LEVELS),
    NAMED(NODE, PROMOTE),
    NAMED(NODE, STEPS),
    NAMED(NODE, LOG_TABLE),
    NAMED(NODE, LOG_SCRUB),
    NAMED(NODE, LOG_DUMP),
    NAMED(CHUNKS, CREATE_ONCE),
    NAMED(CHUNKS, PUT_ONCE),
    NAMED(CHUNKS, REMOVE_ONCE),
    NAMED(CHUNKS, GET_PART),
    NAMED(CHUNKS, PUT_PART_ONCE),
    NAMED(CHUNKS, RESIZE_ONCE),
    NAMED(CHUNKS, PUT_IF_ONCE),
    NAMED(CHUNKS, PUT_HASH_ONCE),
    NAMED(CHUNKS, ADD_ONCE),
    NAMED(CHUNKS, FILL_ONCE),
    NAMED(CHUNKS, FREE_ONCE),
    NAMED(CHUNKS, MULTI_RESIZE),
    NAMED(LOCKS, LOCK),
    NAMED(LOCKS, UNLOCK),
    NAMED(LOCKS, EXTEND),
    NAMED(LOCKS, SWAP),
    NAMED(LOCKS, LIST),
    NAMED(DUMPS, DUMP),
    NAMED(DUMPS, LOAD),
    NAMED(DUMPS, ANALYZE),
    NAMED(DUMPS, JOB),
    NAMED(DUMPS, JOB_CANCEL),
    NAMED(DUMPS, ANALYSIS),
    {SH_SAVES_BEGIN, "SAVE_BEGIN"},
    {SH_SAVES_READ, "SAVE_READ"},
    {SH_SAVES_END, "SAVE_END"},
    {SH_SAVES_ARRIVALS, "SAVE_ARRIVALS"},
    {SH_SAVES_RESTORE, "RESTORE"},
    NAMED(MOVES, MOVE),
    {SH_MOVES_JOB, "MOVE_JOB"},
    NAMED(MOVES, CANCEL),
    NAMED(MOVES, STAGE),
    NAMED(MOVES, PIECE),
    NAMED(MOVES, DONE),
    NAMED(MOVES, OUTCOME),
    NAMED(MOVES, UNDRAIN),
    NAMED(CLUSTER, JOIN),
    NAMED(CLUSTER, HEARTBEAT),
    NAMED(CLUSTER, LEAVE),
    NAMED(CLUSTER, LOOKUP),
    NAMED(CLUSTER, VIEW_GET),
    NAMED(CLUSTER, PING),
    NAMED(CLUSTER, RECRUIT),
    NAMED(CLUSTER, DISMISS),
    NAMED(CLUSTER, LOST),
    NAMED(CLUSTER, METADATA),
    NAMED(CLUSTER, ASK),
    NAMED(CLUSTER, FORGET),
    NAMED(CLUSTER, TREE),
    NAMED(CLUSTER, REPORT),
    NAMED(CLUSTER, SUSPECT),
    NAMED(CLUSTER, EVENTS),
    NAMED(CLUSTER, RAFT),
    NAMED(CLUSTER, PROPOSE),
    NAMED(CLUSTER, HEARD),
    NAMED(CLUSTER, HERE),
    NAMED(CLUSTER, DISMISSED),
    NAMED(CLUSTER, RING),
    NAMED(CLUSTER, FORMER),
    NAMED(CLUSTER, REFUSED),
    NAMED(CLUSTER, COMMIT),
    NAMED(CLUSTER, RESOLVE),
    NAMED(CLUSTER, HOLDS),
    NAMED(CLUSTER, REFERS),
    NAMED(CLUSTER, VACATE),
    NAMED(CLUSTER, ZONE),
    NAMED(CLUSTER, ZONE_GET),
    NAMED(CLUSTER, ZONES),
};

static const char *const part_names[SH_MSG_PARTS] = {
    [SH_MSG_PART_POLL] = "poll",         [SH_MSG_PART_RECEIVE] = "receive",
    [SH_MSG_PART_HELLO] = "hello",       [SH_MSG_PART_ANSWER] = "answer",
    [SH_MSG_PART_GROUP] = "16 messages", [SH_MSG_PART_UPKEEP] = "upkeep",
    [SH_MSG_PART_SEND] = "send",
};

/* Rows that are being collected. */
struct rows {
    struct sh_steps_row *at;
    size_t count;
};

static void row_add(struct rows *rows, const char *kind, const char *name,
                    struct sh_step_report time)
{
    if (time.longest_ns == 0 || rows->count == SH_STEPS_ROWS_MAX)
        return;
    struct sh_steps_row *row = &rows->at[rows->count++];
    snprintf(row->name, sizeof row->name, "%s %.20s", kind, name);
    row->time = time;
}

static void handler_add(void *arg, sh_msg_type type, struct sh_step_report time)
{
    char number[16];
    const char *name = number;
    snprintf(number, sizeof number, "%u.%u", (unsigned)type >> 8, (unsigned)type & 0xFF);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (names[i].type == type)
            name = names[i].name;
    }
    row_add(arg, "handle", name, time);
}

/* The rows of a crew and of the messaging that it runs, but for what never ran: SH_STEPS_ROWS_MAX
 * at most; returns how many. */
static size_t steps_collect(const struct sh_crew *crew, const struct sh_msg *msg,
                            struct sh_steps_row *rows_out)
{
    struct sh_crew_step_report steps[SH_CREW_STEPS_MAX];
    struct rows rows = {.at = rows_out};
    size_t count = sh_crew_step_reports(crew, steps, SH_CREW_STEPS_MAX);
    for (size_t i = 0; i < count; i++)
        row_add(&rows, "step", steps[i].name, steps[i].time);
    for (unsigned part = 0; part < SH_MSG_PARTS; part++)
        row_add(&rows, "transport", part_names[part],
                sh_msg_part_time(msg, (enum sh_msg_part)part));
    sh_msg_handler_times(msg, handler_add, &rows);
    return rows.count;
}

void sh_steps_answer(const struct sh_crew *crew, struct sh_msg_in *in)
{
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO, NULL);
        return;
    }
    struct sh_steps_row *rows = malloc(SH_STEPS_ROWS_MAX * sizeof *rows);
    if (!rows) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOMEM, NULL);
        return;
    }
    size_t count = steps_collect(crew, in->msg, rows);
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, sh_steps_bytes(rows, count), &out) ==
        SHOAL_OK) {
        sh_steps_put(&out.w, rows, count);
        sh_msg_end(in->msg, &out);
    }
    free(rows);
}
