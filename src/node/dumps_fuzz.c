/* What a client reads of a node's jobs: whatever is taken comes out again as it was. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "node/dumps.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void job_check(struct sh_bytes bytes)
{
    uint8_t again[SH_JOB_HEAD_BYTES + 128];
    struct sh_job job;
    struct sh_reader r = sh_reader_make(bytes);
    if (!sh_job_get(&r, &job))
        return;
    SH_ASSERT(strlen(job.fault_text) < sizeof job.fault_text);
    struct sh_writer w = sh_writer_make(again, sizeof again);
    sh_job_put(&w, &job);
    SH_ASSERT(sh_writer_ok(&w));
    /* Of the text, what could harm a terminal is replaced. */
    SH_ASSERT(memcmp(again, bytes.at, SH_JOB_HEAD_BYTES) == 0);
}

static void analysis_check(struct sh_bytes bytes)
{
    uint8_t again[SH_ANALYSIS_BYTES];
    struct sh_analysis found;
    struct sh_reader r = sh_reader_make(bytes);
    bool is_taken = sh_analysis_get(&r, &found);
    SH_ASSERT(is_taken == (bytes.size == SH_ANALYSIS_BYTES));
    if (!is_taken)
        return;
    struct sh_writer w = sh_writer_make(again, sizeof again);
    sh_analysis_put(&w, &found);
    SH_ASSERT(sh_writer_ok(&w));
    SH_ASSERT(memcmp(again, bytes.at, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    job_check(sh_bytes_make(data, size));
    analysis_check(sh_bytes_make(data, size));
    return 0;
}
