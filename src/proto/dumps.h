/* Requests for work on a peer's whole store: types and layouts. What each does is in node/dumps.h.
 *
 * Types and layouts; all are requests to a peer, little-endian, no padding. A job's number is drawn
 * by who asks for it, so that a question whose answer was lost can be repeated: the same number
 * again is answered with OK and begins nothing.
 *
 *   DUMP        u64 job, not 0; the name to the end
 *   LOAD        u64 job, not 0; u8 flags (1: rename); the name to the end
 *   ANALYZE     u64 job, not 0
 *                 EBUSY: another job is under way; EINVAL: a bad name, or there is no data_dir;
 *                 ENOTOWNER: the node has not joined yet; ENONAME: there is no such file
 *   JOB         u64 job; 0: the last one that there was. ENONAME: it is not the last one
 *     answer    struct sh_job, by sh_job_put
 *   JOB_CANCEL  u64 job. ENONAME. The job ends soon after, with ECANCELED, unless it was too late
 *   ANALYSIS    u64 job. ENONAME; EBUSY: it is not over
 *     answer    u64 each, in the order of struct sh_analysis
 */
#ifndef SH_PROTO_DUMPS_H
#define SH_PROTO_DUMPS_H

#include "base/bytes.h"
#include "msg/msg.h"
#include "store/dump.h"

#define SH_DUMPS_DUMP SH_MSG_TYPE(2, 30)
#define SH_DUMPS_LOAD SH_MSG_TYPE(2, 31)
#define SH_DUMPS_ANALYZE SH_MSG_TYPE(2, 32)
#define SH_DUMPS_JOB SH_MSG_TYPE(2, 33)
#define SH_DUMPS_JOB_CANCEL SH_MSG_TYPE(2, 34)
#define SH_DUMPS_ANALYSIS SH_MSG_TYPE(2, 35)

#define SH_DUMPS_RENAME 1

#define SH_DUMP_LABEL_MAX 128
#define SH_DUMP_SUFFIX ".dump"

enum sh_job_kind { SH_JOB_NONE, SH_JOB_DUMP, SH_JOB_LOAD, SH_JOB_ANALYZE };

struct sh_job {
    uint64_t number;
    enum sh_job_kind kind;
    enum sh_dump_phase phase; /* of a dump or load */
    bool is_over;
    enum shoal_err err; /* once it is over */
    uint64_t done, all; /* bytes; of an analysis groups of 16 IDs */
    uint64_t chunks;    /* these three as in struct sh_dump_sums */
    uint64_t payload_bytes;
    uint64_t file_bytes;
    uint64_t fault_offset; /* these three as in struct sh_load_fault */
    uint64_t fault_cid;
    char fault_text[96]; /* no control characters once it was read */
};

/* u64 number, u8 kind, u8 phase, u8 is over, u8 reserved, u16 error, then 7 u64 in the order of the
 * struct, then the text to the end. */
#define SH_JOB_HEAD_BYTES 70
void sh_job_put(struct sh_writer *w, const struct sh_job *job);
/* False: malformed. */
bool sh_job_get(struct sh_reader *r, struct sh_job *job_out);

/* Takes over how far a dump or load is. */
void sh_job_note(struct sh_job *job, const struct sh_dump_state *state);

#endif
