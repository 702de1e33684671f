/* A peer's side of safety copies (docs/safety-copy.md): hands out all of its chunks as they were at one moment, in blocks, and takes back what a
 * copy has. One copy is handed out at a time, in a step beside everything else.
 *
 * The messages are in proto/saves.h. */
#ifndef SH_NODE_SAVES_H
#define SH_NODE_SAVES_H

#include "base/crew.h"
#include "env/env.h"
#include "node/chunks.h"
#include "proto/saves.h"

struct sh_saves;

struct sh_saves_config {
    struct sh_msg *msg;       /* kept */
    struct sh_store *store;   /* kept */
    struct sh_backup *backup; /* of the store; kept */
    struct sh_chunks *chunks; /* kept */
    struct sh_clock clock;
};

/* Registers the handlers with msg, before its steps run. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_saves_create(const struct sh_saves_config *config,
                                               struct sh_saves **saves_out);
/* Takes an event of msg's on_event: the copy of a reader that is gone ends. */
void sh_saves_link_event(struct sh_saves *saves, const struct sh_msg_event *event);
/* For the thread of the transport step. */
struct sh_step sh_saves_step(struct sh_saves *saves);
/* After the steps have stopped. NULL is allowed. */
void sh_saves_destroy(struct sh_saves *saves);

#endif
