/* Answers the STEPS of proto/steps.h. */
#ifndef SH_NODE_STEPS_H
#define SH_NODE_STEPS_H

#include "base/crew.h"
#include "proto/steps.h"

void sh_steps_answer(const struct sh_crew *crew, struct sh_msg_in *in);

#endif
