/* Messages that inline handlers handle in pieces (struct sh_msg_in): kept with their payload, in
 * the order in which they came, and only the first is at work.
 *
 *   dispatch --goes_on--> last ... first --a piece a round--> over: its stream is read on
 *
 * Its stream stands still meanwhile (SH_STALL_HELD), so that what the same sender sent later is not
 * handled before it, and there is one such message for each stream at most. */
#include <stdlib.h>

#include "msg/msg_int.h"

/* Handles what can't be kept, as there is no memory, to its end. */
static void run_to_end(struct sh_msg *msg, struct sh_handler_entry *entry, struct sh_conn *conn,
                       struct sh_msg_in *in)
{
    while (in->goes_on)
        sh_message_run(entry, conn, in);
    sh_part_done(msg, &entry->time);
}

void sh_held_add(struct sh_msg *msg, struct sh_stream *stream, struct sh_handler_entry *entry,
                 const struct sh_msg_in *in)
{
    SH_ASSERT(in->goes_on && !stream->held && stream->block);
    struct sh_held *held = malloc(sizeof *held);
    if (!held) {
        struct sh_msg_in whole = *in;
        run_to_end(msg, entry, stream->conn, &whole);
        return;
    }
    *held = (struct sh_held){.stream = stream, .block = stream->block, .entry = entry, .in = *in};
    sh_block_share(held->block);
    stream->held = held;
    *(msg->helds_last ? &msg->helds_last->next : &msg->helds_first) = held;
    msg->helds_last = held;
}

/* Takes the first off the list; its stream may be read again, from the next round on. */
static void first_over(struct sh_msg *msg)
{
    struct sh_held *held = msg->helds_first;
    msg->helds_first = held->next;
    if (!held->next)
        msg->helds_last = NULL;
    if (held->stream) {
        held->stream->held = NULL;
        if (held->stream->stall == SH_STALL_HELD) {
            sh_stream_unstall(msg, held->stream);
            sh_stream_stall(msg, held->stream, SH_STALL_TURN);
        }
    }
    sh_block_release(msg, held->block);
    free(held);
}

unsigned sh_held_run(struct sh_msg *msg)
{
    struct sh_held *held = msg->helds_first;
    if (!held)
        return 0;
    SH_ASSERT(held->in.goes_on);
    sh_message_run(held->entry, NULL, &held->in);
    sh_part_done(msg, &held->entry->time);
    if (!held->in.goes_on)
        first_over(msg);
    return 1;
}

void sh_held_forget_stream(struct sh_stream *stream)
{
    if (stream->held)
        stream->held->stream = NULL;
    stream->held = NULL;
}

void sh_helds_end(struct sh_msg *msg)
{
    while (msg->helds_first) {
        struct sh_held *held = msg->helds_first;
        held->in.is_ending = true;
        sh_message_run(held->entry, NULL, &held->in);
        first_over(msg);
    }
}
