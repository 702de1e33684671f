/* Jobs that a node has begun (dumps, migrations): a request names the one that it is about. */
#ifndef SH_NODE_JOB_H
#define SH_NODE_JOB_H

#include "msg/msg.h"

/* Reads the number of the job that a request is about, which has to be the last one that began:
 * that number, or if or_last is set also 0. Otherwise answers: EPROTO, ENONAME. */
bool sh_job_is_meant(struct sh_msg_in *in, uint64_t last, bool or_last);

#endif
