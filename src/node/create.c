/* CREATE: chunks with one request, all or none. Few are made at once, in the parse step. More are a
 * job of messaging, which makes some in each round, so that 2^20 of them keep nobody waiting: it
 * reads the sizes, makes the chunks, and answers.
 *
 * From its first piece to its last a job counts as a pooled request: no migration copies chunks
 * that it may yet undo. If the node is to be drained meanwhile it undoes all, since a drain that
 * finds nothing left is over; the client asks another node, as if it had come later. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/steptime.h"
#include "node/chunks_int.h"

/* So many are made at once. */
#define FEW 256
/* A job makes so many before it looks at the clock, and at most so many in a round: the latter is
 * what bounds a round where time is simulated. */
#define SOME 256
#define ROUND_MOST 8192
/* Jobs that wait or are at work; each holds a copy of its request. More are done at once. */
#define JOBS_MAX 64
/* IDs that are looked at for the answer in a round. */
#define ANSWER_MOST 65536
#define RUNS_LEAST 64

/* A run of consecutive IDs of the answer. */
struct id_run {
    uint64_t first;
    uint32_t count;
};

struct create_job {
    struct sh_msg_job job;
    struct sh_chunks *chunks;
    struct sh_msg *msg;
    struct sh_reply_to to;
    struct sh_store_wish wish;
    uint32_t *sizes; /* as in the request until they are read; NULL: all are of one size */
    size_t sizes_read;
    sh_lid *lids; /* NULL: it has not begun */
    struct sh_store_making *making;
    unsigned entered;
    /* Once all are made: the answer, of the IDs that were looked at. */
    bool is_made;
    size_t looked_at;
    struct id_run *runs;
    size_t runs_count, runs_room;
};

/* How many runs of consecutive IDs there are. */
static size_t runs_count(const sh_lid *lids, size_t count)
{
    size_t runs = 0;
    for (size_t i = 0; i < count; i++)
        runs += i == 0 || lids[i].v != lids[i - 1].v + 1;
    return runs;
}

void sh_chunks_create_answer(struct sh_msg *msg, struct sh_reply_to to, sh_msg_type type,
                             shoal_nid self, const sh_lid *lids, size_t count)
{
    struct sh_out out;
    if (sh_msg_reply(msg, to, type, runs_count(lids, count) * 12, &out) != SHOAL_OK)
        return;
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        while (end < count && lids[end].v == lids[end - 1].v + 1)
            end++;
        sh_put64(&out.w, shoal_cid_make(self, lids[first].v).v);
        sh_put32(&out.w, (uint32_t)(end - first));
        first = end;
    }
    sh_msg_end(msg, &out);
}

bool sh_chunks_may_create(const struct sh_chunks *chunks)
{
    return sh_msg_nid(chunks->msg).v != 0 && !sh_chunks_creates_refused(chunks);
}

/* Says why nothing was created. */
static void create_refuse(struct sh_chunks *chunks, struct sh_msg *msg, struct sh_reply_to to,
                          enum shoal_err err)
{
    struct sh_msg_in in = {.msg = msg, .type = SH_CHUNKS_CREATE, .reply_to = to};
    if (err == SHOAL_ENOTOWNER)
        sh_chunks_refuse(&in, err, SH_CHUNKS_NO_CREATES);
    else
        sh_chunks_refuse_store(chunks, &in, (sh_lid){0}, err);
}

/* --- At once ------------------------------------------------------------------------------- */

static enum shoal_err create_wished(struct sh_chunks *chunks, struct sh_reader *r,
                                    struct sh_store_wish *wish, bool has_sizes, sh_lid *lids)
{
    uint32_t few[16];
    uint32_t *sizes = NULL;
    if (has_sizes) {
        sizes = wish->count <= 16 ? few : malloc(wish->count * sizeof *sizes);
        if (!sizes)
            return SHOAL_ENOMEM;
        for (size_t i = 0; i < wish->count; i++)
            sizes[i] = sh_get32(r);
    } else {
        wish->size = sh_get32(r);
    }
    wish->sizes = sizes;
    enum shoal_err err = sh_store_new_as(chunks->store, wish, lids, NULL);
    if (sizes != few)
        free(sizes);
    return err;
}

static void create_at_once(struct sh_chunks *chunks, struct sh_msg_in *in,
                           struct sh_store_wish *wish, bool has_sizes)
{
    shoal_nid self = sh_msg_nid(chunks->msg);
    sh_lid few[16];
    sh_lid *lids = wish->count <= 16 ? few : malloc(wish->count * sizeof *lids);
    enum shoal_err err =
        lids ? create_wished(chunks, &in->payload, wish, has_sizes, lids) : SHOAL_ENOMEM;
    if (err == SHOAL_OK)
        sh_chunks_create_answer(in->msg, in->reply_to, in->type, self, lids, wish->count);
    else
        create_refuse(chunks, in->msg, in->reply_to, err);
    if (lids != few)
        free(lids);
}

/* --- In pieces ----------------------------------------------------------------------------- */

static void job_free(struct create_job *create)
{
    create->chunks->creates--;
    if (create->lids)
        sh_holdings_leave(&create->chunks->holdings, create->entered);
    free(create->runs);
    free(create->lids);
    free(create->sizes);
    free(create);
}

static void job_refuse(struct create_job *create, enum shoal_err err)
{
    create_refuse(create->chunks, create->msg, create->to, err);
    job_free(create);
}

/* Turns some sizes of the request into numbers. */
static void sizes_read(struct create_job *create)
{
    size_t end = create->sizes_read + ROUND_MOST;
    for (; create->sizes_read < create->wish.count && create->sizes_read < end;
         create->sizes_read++) {
        uint32_t *size = &create->sizes[create->sizes_read];
        *size = sh_load32((const uint8_t *)size);
    }
}

/* False: it was refused. */
static bool job_begin(struct create_job *create)
{
    struct sh_chunks *chunks = create->chunks;
    sh_lid *lids = NULL;
    enum shoal_err err = sh_chunks_may_create(chunks) ? SHOAL_OK : SHOAL_ENOTOWNER;
    if (err == SHOAL_OK && !(lids = malloc(create->wish.count * sizeof *lids)))
        err = SHOAL_ENOMEM;
    if (err == SHOAL_OK)
        err = sh_store_making_begin(chunks->store, &create->wish, lids, &create->making);
    if (err != SHOAL_OK) {
        free(lids);
        job_refuse(create, err);
        return false;
    }
    create->lids = lids;
    create->entered = sh_holdings_enter(&chunks->holdings);
    return true;
}

/* Adds an ID to the runs. False: out of memory. */
static bool run_add(struct create_job *create, uint64_t lid)
{
    struct id_run *last = create->runs_count > 0 ? &create->runs[create->runs_count - 1] : NULL;
    if (last && last->first + last->count == lid) {
        last->count++;
        return true;
    }
    if (create->runs_count == create->runs_room) {
        size_t room = create->runs_room ? 2 * create->runs_room : RUNS_LEAST;
        struct id_run *runs = realloc(create->runs, room * sizeof *runs);
        if (!runs)
            return false;
        create->runs = runs;
        create->runs_room = room;
    }
    create->runs[create->runs_count++] = (struct id_run){.first = lid, .count = 1};
    return true;
}

static void runs_answer(struct create_job *create)
{
    struct sh_out out;
    if (sh_msg_reply(create->msg, create->to, create->job.type, create->runs_count * 12, &out) !=
        SHOAL_OK)
        return;
    for (size_t i = 0; i < create->runs_count; i++) {
        sh_put64(&out.w, shoal_cid_make(sh_msg_nid(create->msg), create->runs[i].first).v);
        sh_put32(&out.w, create->runs[i].count);
    }
    sh_msg_end(create->msg, &out);
}

/* Looks at the next IDs for the answer, and gives it after the last. True: it was given. */
static bool answer_some(struct create_job *create)
{
    size_t count = create->wish.count, left = count - create->looked_at;
    size_t end = create->looked_at + (left < ANSWER_MOST ? left : ANSWER_MOST);
    for (; create->looked_at < end; create->looked_at++) {
        if (run_add(create, create->lids[create->looked_at].v))
            continue;
        /* There is no memory to do it in pieces, but what was created must be known. */
        sh_chunks_create_answer(create->msg, create->to, create->job.type, sh_msg_nid(create->msg),
                                create->lids, count);
        return true;
    }
    if (create->looked_at < count)
        return false;
    runs_answer(create);
    return true;
}

static bool job_run(struct sh_msg_job *job)
{
    struct create_job *create = (struct create_job *)job; /* its first member */
    struct sh_chunks *chunks = create->chunks;
    if (create->sizes && create->sizes_read < create->wish.count) {
        sizes_read(create);
        return false;
    }
    if (create->is_made) {
        if (!answer_some(create))
            return false;
        job_free(create);
        return true;
    }
    if (!create->lids)
        return !job_begin(create);
    if (!sh_chunks_may_create(chunks))
        sh_store_making_fail(create->making, SHOAL_ENOTOWNER);
    bool is_over = false;
    for (size_t done = 0; !is_over && done < ROUND_MOST; done += SOME) {
        is_over = sh_store_making_step(create->making, SOME);
        if (sh_step_spent())
            break;
    }
    if (!is_over)
        return false;
    enum shoal_err err = sh_store_making_end(create->making);
    create->is_made = err == SHOAL_OK;
    if (err != SHOAL_OK)
        job_refuse(create, err);
    return err != SHOAL_OK;
}

/* The node ends, and its store with it. */
static void job_drop(struct sh_msg_job *job)
{
    struct create_job *create = (struct create_job *)job;
    if (create->lids && !create->is_made) {
        sh_store_making_fail(create->making, SHOAL_ESTOPPED);
        while (!sh_store_making_step(create->making, ROUND_MOST))
            continue;
        enum shoal_err err = sh_store_making_end(create->making);
        SH_DEBUG("node", "a create of many chunks was ended", SH_ERR(err));
    }
    job_free(create);
}

/* Makes a job of a request; false: out of memory, or too many wait. */
static bool job_make(struct sh_chunks *chunks, struct sh_msg_in *in,
                     const struct sh_store_wish *wish, bool has_sizes)
{
    if (chunks->creates == JOBS_MAX)
        return false;
    struct create_job *create = calloc(1, sizeof *create);
    if (!create)
        return false;
    *create = (struct create_job){
        .job = {.run = job_run, .drop = job_drop, .type = in->type},
        .chunks = chunks,
        .msg = in->msg,
        .to = in->reply_to,
        .wish = *wish,
    };
    if (has_sizes) {
        create->sizes = malloc(wish->count * 4);
        if (!create->sizes) {
            free(create);
            return false;
        }
        memcpy(create->sizes, sh_reader_take(&in->payload, wish->count * 4), wish->count * 4);
        create->wish.sizes = create->sizes;
    } else {
        create->wish.size = sh_get32(&in->payload);
    }
    chunks->creates++;
    sh_msg_job_add(in->msg, &create->job);
    return true;
}

/* --- The request --------------------------------------------------------------------------- */

static bool create_is_well(const struct sh_reader *r, uint32_t count, uint8_t how)
{
    const uint8_t known = SH_CHUNKS_SIZES | SH_CHUNKS_CONSECUTIVE | SH_CHUNKS_RESERVE;
    size_t sizes = how & SH_CHUNKS_SIZES ? count : 1;
    return sh_reader_ok(r) && (how & ~known) == 0 && count > 0 && count <= SH_CHUNKS_MANY_MAX &&
           sh_reader_left(r) == sizes * 4;
}

static void on_create(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    uint32_t count = sh_get32(&in->payload);
    uint8_t how = sh_get8(&in->payload);
    if (!create_is_well(&in->payload, count, how)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a create is a count and one size or count sizes");
        return;
    }
    if (!sh_chunks_may_create(chunks)) {
        sh_chunks_refuse(in, SHOAL_ENOTOWNER, SH_CHUNKS_NO_CREATES);
        return;
    }
    struct sh_store_wish wish = {.count = count,
                                 .consecutive = how & SH_CHUNKS_CONSECUTIVE,
                                 .reserve = how & SH_CHUNKS_RESERVE};
    bool has_sizes = how & SH_CHUNKS_SIZES;
    if (count > 16)
        sh_step_long();
    if (count <= FEW || !job_make(chunks, in, &wish, has_sizes))
        create_at_once(chunks, in, &wish, has_sizes);
}

void sh_create_register(struct sh_chunks *chunks)
{
    sh_msg_handler_set(chunks->msg, SH_CHUNKS_CREATE, SH_MSG_INLINE, on_create, chunks);
}
