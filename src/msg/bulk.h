/* Answers that are written in pieces, by handlers that go on from call to call (struct sh_msg_in): in
 * memory of their own until they are complete, so that the connection's ring waits for nobody.
 *
 *   open --> write through the writer, in any number of calls --> reply
 *
 * One of up to 64 KiB is then copied into the ring. A larger one is streamed from where it lies, so
 * that the ring need not grow for it, which takes time; the memory of one of more than 1 MiB goes
 * back to the kernel piece by piece while it is sent. */
#ifndef SH_MSG_BULK_H
#define SH_MSG_BULK_H

#include "msg/msg.h"

struct sh_bulk;

/* Room for an answer of so many bytes. ETOOBIG, ENOMEM. Any thread. */
SHOAL_NODISCARD enum shoal_err sh_bulk_open(struct sh_msg *msg, size_t bytes,
                                            struct sh_bulk **bulk_out);
/* Where it is written: all of its bytes, in order, before it is sent. */
struct sh_writer *sh_bulk_writer(struct sh_bulk *bulk);
/* Sends and takes it. A lost asker is ignored. Where there is no memory for sending it, the asker of a
 * read, which has changed nothing, is told so (ENOMEM); another must not take it for not done, and gets
 * no answer. Any thread. */
void sh_bulk_reply(struct sh_bulk *bulk, struct sh_reply_to to, sh_msg_type type, bool is_read);
/* Gives it back unsent; NULL is allowed. Any thread. */
void sh_bulk_drop(struct sh_bulk *bulk);

/* Memory for what such a handler keeps from call to call, 8-aligned, 1 byte to 2 GiB. Of more than
 * 1 MiB it goes back to the kernel in pieces, so that giving it costs no step its time. NULL: out of
 * memory. Any thread. */
void *sh_scratch_take(struct sh_msg *msg, size_t bytes);
/* NULL is allowed. Any thread. */
void sh_scratch_give(struct sh_msg *msg, void *scratch);

#endif
