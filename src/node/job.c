#include "node/job.h"

bool sh_job_is_meant(struct sh_msg_in *in, uint64_t last, bool or_last)
{
    uint64_t number = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload)) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EPROTO,
                           "a job's number is 8 bytes");
        return false;
    }
    if ((number == 0 && or_last) || (number != 0 && number == last))
        return true;
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENONAME,
                       "the node has begun another job since, or knows of none");
    return false;
}
