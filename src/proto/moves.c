#include "proto/moves.h"

#include "base/err.h"

void sh_move_job_put(struct sh_writer *w, const struct sh_move_job *job)
{
    const uint64_t values[] = {job->chunks, job->bytes,     job->all_chunks, job->batches,
                               job->locked, job->freeze_ns, job->stays.v};
    sh_put64(w, job->number);
    sh_put8(w, job->is_over);
    sh_put16(w, (uint16_t)job->err);
    sh_put8(w, (uint8_t)job->why);
    sh_put16(w, job->target.v);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        sh_put64(w, values[i]);
}

bool sh_move_job_get(struct sh_reader *r, struct sh_move_job *job_out)
{
    struct sh_move_job job = {.number = sh_get64(r)};
    uint8_t is_over = sh_get8(r);
    uint16_t err = sh_get16(r);
    uint8_t why = sh_get8(r);
    job.target.v = sh_get16(r);
    uint64_t *const fields[] = {&job.chunks, &job.bytes,     &job.all_chunks, &job.batches,
                                &job.locked, &job.freeze_ns, &job.stays.v};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] = sh_get64(r);
    if (!sh_reader_done(r) || is_over > 1 || !sh_err_is_known(err) || why > SH_MOVE_STAYS_UNDECIDED)
        return false;
    job.is_over = is_over;
    job.err = (enum shoal_err)err;
    job.why = (enum sh_move_stays)why;
    *job_out = job;
    return true;
}
