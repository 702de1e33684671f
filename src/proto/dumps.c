#include "proto/dumps.h"

#include <stdio.h>

#include "base/err.h"

void sh_job_put(struct sh_writer *w, const struct sh_job *job)
{
    const uint64_t values[] = {job->done,          job->all,        job->chunks,
                               job->payload_bytes, job->file_bytes, job->fault_offset,
                               job->fault_cid};
    sh_put64(w, job->number);
    sh_put8(w, (uint8_t)job->kind);
    sh_put8(w, (uint8_t)job->phase);
    sh_put8(w, job->is_over);
    sh_put8(w, 0);
    sh_put16(w, (uint16_t)job->err);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        sh_put64(w, values[i]);
    sh_put_raw(w, sh_bytes_text(job->fault_text));
}

bool sh_job_get(struct sh_reader *r, struct sh_job *job_out)
{
    struct sh_job job = {.number = sh_get64(r)};
    unsigned kind = sh_get8(r), phase = sh_get8(r), is_over = sh_get8(r), reserved = sh_get8(r);
    uint16_t err = sh_get16(r);
    uint64_t *const fields[] = {&job.done,          &job.all,        &job.chunks,
                                &job.payload_bytes, &job.file_bytes, &job.fault_offset,
                                &job.fault_cid};
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        *fields[i] = sh_get64(r);
    size_t size = sh_reader_left(r);
    if (!sh_reader_ok(r) || kind > SH_JOB_ANALYZE || phase > SH_LOAD_UNDOING || is_over > 1 ||
        reserved != 0 || !sh_err_is_known(err) || size >= sizeof job.fault_text)
        return false;
    const uint8_t *text = sh_reader_take(r, size);
    for (size_t i = 0; i < size; i++)
        job.fault_text[i] = text[i] >= ' ' && text[i] < 0x7f ? (char)text[i] : '?';
    job.kind = (enum sh_job_kind)kind;
    job.phase = (enum sh_dump_phase)phase;
    job.is_over = is_over;
    job.err = (enum shoal_err)err;
    *job_out = job;
    return true;
}

void sh_job_note(struct sh_job *job, const struct sh_dump_state *state)
{
    job->phase = state->phase;
    job->is_over = state->is_over;
    job->err = state->err;
    job->done = state->done_bytes;
    job->all = state->all_bytes;
    job->chunks = state->sums.chunks;
    job->payload_bytes = state->sums.payload_bytes;
    job->file_bytes = state->sums.file_bytes;
    job->fault_offset = state->fault.offset;
    job->fault_cid = state->fault.cid.v;
    snprintf(job->fault_text, sizeof job->fault_text, "%s", state->fault.what);
}
