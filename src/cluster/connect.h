/* Tells msg what a new view means for connections. */
#ifndef SH_CLUSTER_CONNECT_H
#define SH_CLUSTER_CONNECT_H

#include "cluster/view.h"
#include "msg/msg.h"

struct sh_directory;

/* Nodes that are up get their address; those that failed or are gone are forgotten, which fails
 * what waits for them. Those that left close their connections themselves. This end's own ID is
 * skipped. From the transport step's thread. */
void sh_connect_view(struct sh_msg *msg, const struct sh_view *before, const struct sh_view *after);

/* Reads the answer of VIEW_GET, or the part of another answer from its flags on: u8 flags and, if
 * they say so, a view, to the end. known_flags: those that may be set. *flags_out are those that
 * are; *view_out is replaced when SH_ANSWER_VIEW is among them. EPROTO, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_answer_view_get(struct sh_reader *r, uint8_t known_flags,
                                                  uint8_t *flags_out, struct sh_view *view_out);

/* The same part of the answer of HEARTBEAT, whose view may also come as what has changed since the one that the directory has. EDIFFERS: it is not of that view that this
 * tells, so the whole one is to be asked for; *flags_out are set, and *view_out is as it was. */
SHOAL_NODISCARD enum shoal_err sh_answer_news_get(struct sh_reader *r,
                                                  struct sh_directory *directory,
                                                  uint8_t *flags_out, struct sh_view *view_out);

/* What a superpeer said with its refusal; what is longer is cut off. */
#define SH_REASON_BYTES 320
void sh_answer_reason_get(struct sh_reader *payload, char text_out[SH_REASON_BYTES]);

#endif
