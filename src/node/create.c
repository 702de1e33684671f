/* CREATE: chunks with one request, all or none. Few are made at once, in the parse step. More, or
 * large ones, are made in pieces (msg/msg.h): the sizes are read, the chunks made, the answer
 * written.
 *
 * From its first piece to its last such a request counts as pooled: no migration copies chunks
 * that it may yet undo. If the node is to be drained meanwhile it undoes all, since a drain that
 * finds nothing left is over; the client asks another node, as if it had come later. */
#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/steptime.h"
#include "msg/bulk.h"
#include "node/chunks_int.h"

/* So many are made at once. */
#define FEW 256
/* So many are made before a look at the clock, and at most so many in a piece: the latter is what
 * bounds it where time is simulated. */
#define SOME 256
#define ROUND_MOST 8192
/* IDs that are looked at for the answer in a piece. */
#define ANSWER_MOST 32768
#define RUN_BYTES 12

struct create_job {
    struct sh_store_wish wish;
    uint32_t *sizes; /* NULL: all are of one size */
    size_t sizes_read;
    unsigned entered;
    sh_lid *lids;
    struct sh_store_making *making; /* NULL: it has not begun */
    struct sh_held *held;           /* from when it begins to until it is answered */
    uint64_t refused_ns;            /* since when there has been no room in a log; 0: there is */
    /* Once all are made: the IDs are looked at twice, to count the answer's runs of consecutive
     * ones, and to write them. */
    bool is_made;
    size_t looked_at;
    size_t runs;
    size_t run_first;       /* of the run that is being written */
    struct sh_bulk *answer; /* NULL: runs are being counted */
};

static bool begins_run(const sh_lid *lids, size_t i)
{
    return i == 0 || lids[i].v != lids[i - 1].v + 1;
}

/* How many runs of consecutive IDs begin at IDs from `from` to before `end`. */
static size_t runs_count(const sh_lid *lids, size_t from, size_t end)
{
    size_t runs = 0;
    for (size_t i = from; i < end; i++)
        runs += begins_run(lids, i);
    return runs;
}

/* Writes the run of the IDs from `first` to before `end`. */
static void run_put(struct sh_writer *w, shoal_nid self, const sh_lid *lids, size_t first,
                    size_t end)
{
    sh_put64(w, shoal_cid_make(self, lids[first].v).v);
    sh_put32(w, (uint32_t)(end - first));
}

/* Answers a CREATE with the IDs. */
static void create_answer(const struct sh_msg_in *in, struct sh_held *held, const sh_lid *lids,
                          size_t count)
{
    struct sh_answer answer;
    shoal_nid self = sh_msg_nid(in->msg);
    if (!sh_answer_begin(in, held, runs_count(lids, 0, count) * RUN_BYTES, &answer))
        return;
    for (size_t first = 0; first < count;) {
        size_t end = first + 1;
        while (end < count && !begins_run(lids, end))
            end++;
        run_put(answer.w, self, lids, first, end);
        first = end;
    }
    sh_answer_end(in, &answer);
}

static bool may_create(const struct sh_chunks *chunks)
{
    return sh_msg_nid(chunks->msg).v != 0 && !sh_chunks_creates_refused(chunks);
}

/* Says why nothing was created. */
static void create_refuse(struct sh_chunks *chunks, const struct sh_msg_in *in,
                          struct sh_held *held, enum shoal_err err)
{
    if (err == SHOAL_ENOTOWNER)
        sh_answer_error(in, held, err, SH_CHUNKS_NO_CREATES);
    else
        sh_chunks_refuse_store(chunks, in, held, (sh_lid){0}, err);
}

/* --- At once ------------------------------------------------------------------------------- */

static enum shoal_err create_wished(struct sh_chunks *chunks, struct sh_write *write,
                                    struct sh_reader *r, struct sh_store_wish *wish, bool has_sizes,
                                    sh_lid *lids)
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
    enum shoal_err err = sh_backup_new_as(chunks->backup, write, wish, lids, NULL);
    if (sizes != few)
        free(sizes);
    return sh_chunks_change_err(err);
}

static void create_at_once(struct sh_chunks *chunks, struct sh_msg_in *in,
                           struct sh_store_wish *wish, bool has_sizes)
{
    sh_lid few[16];
    struct sh_held *held;
    if (!sh_held_begin(chunks->helds, in, &held))
        return;
    sh_lid *lids = wish->count <= 16 ? few : malloc(wish->count * sizeof *lids);
    enum shoal_err err = SHOAL_ENOMEM;
    if (lids)
        err = create_wished(chunks, sh_held_write(held), &in->payload, wish, has_sizes, lids);
    if (err == SHOAL_OK)
        create_answer(in, held, lids, wish->count);
    else
        create_refuse(chunks, in, held, err);
    if (lids != few)
        free(lids);
}

/* --- In pieces ----------------------------------------------------------------------------- */

static void job_free(struct sh_chunks *chunks, struct create_job *create)
{
    sh_holdings_leave(&chunks->holdings, create->entered);
    sh_held_drop(create->held);
    sh_bulk_drop(create->answer);
    sh_scratch_give(chunks->msg, create->lids);
    sh_scratch_give(chunks->msg, create->sizes);
    free(create);
}

/* Reads some sizes of the request. */
static void sizes_read(struct create_job *create, struct sh_reader *r)
{
    size_t end = create->sizes_read + ROUND_MOST;
    while (create->sizes_read < create->wish.count && create->sizes_read < end)
        create->sizes[create->sizes_read++] = sh_get32(r);
}

static enum shoal_err job_begin(struct sh_chunks *chunks, struct create_job *create)
{
    if (!may_create(chunks))
        return SHOAL_ENOTOWNER;
    return sh_store_making_begin(chunks->store, &create->wish, create->lids, &create->making);
}

/* All runs are counted: makes room for the answer. True: there is none to write it in pieces, but
 * what was created must be known, so it was given. */
static bool answer_begin(struct create_job *create, const struct sh_msg_in *in)
{
    create->looked_at = 0;
    if (sh_bulk_open(in->msg, create->runs * RUN_BYTES, &create->answer) == SHOAL_OK)
        return false;
    create_answer(in, create->held, create->lids, create->wish.count);
    create->held = NULL;
    return true;
}

/* Looks at the next IDs for the answer, and gives it after the last. True: it was given. */
static bool answer_some(struct create_job *create, const struct sh_msg_in *in)
{
    size_t count = create->wish.count, from = create->looked_at, left = count - from;
    size_t end = from + (left < ANSWER_MOST ? left : ANSWER_MOST);
    create->looked_at = end;
    if (!create->answer) {
        create->runs += runs_count(create->lids, from, end);
        return end == count && answer_begin(create, in);
    }
    struct sh_writer *w = sh_bulk_writer(create->answer);
    shoal_nid self = sh_msg_nid(in->msg);
    for (size_t i = from; i < end; i++) {
        if (i == 0 || !begins_run(create->lids, i))
            continue;
        run_put(w, self, create->lids, create->run_first, i);
        create->run_first = i;
    }
    if (end < count)
        return false;
    run_put(w, self, create->lids, create->run_first, count);
    sh_answer_bulk(in, create->held, create->answer, create->runs * RUN_BYTES, false);
    create->held = NULL;
    create->answer = NULL;
    return true;
}

/* Makes some chunks. True: there are no more to be made, or none are left of what failed. Where there is no room in
 * the log for long, it fails. */
static bool make_some(const struct sh_chunks *chunks, struct create_job *create)
{
    struct sh_write *write = sh_held_write(create->held);
    if (!may_create(chunks))
        sh_store_making_fail(create->making, SHOAL_ENOTOWNER);
    bool is_over = false;
    for (size_t done = 0; !is_over && done < ROUND_MOST; done += SOME) {
        is_over = sh_backup_making_step(chunks->backup, write, create->making, SOME);
        bool was_refused = !is_over && write && sh_write_was_refused(write);
        if (!was_refused)
            create->refused_ns = 0;
        else if (sh_chunks_gives_up(chunks, &create->refused_ns))
            sh_store_making_fail(create->making, SHOAL_EBUSY);
        if (was_refused || sh_step_spent())
            break;
    }
    return is_over;
}

/* Does a piece. True: it is over, and was answered. */
static bool job_run(struct sh_chunks *chunks, struct create_job *create, struct sh_msg_in *in)
{
    if (create->sizes && create->sizes_read < create->wish.count) {
        sizes_read(create, &in->payload);
        return false;
    }
    if (create->is_made)
        return answer_some(create, in);
    enum shoal_err err = SHOAL_OK;
    if (!create->making) {
        if (!sh_held_begin(chunks->helds, in, &create->held))
            return true;
        err = job_begin(chunks, create);
    } else if (make_some(chunks, create)) {
        err = sh_store_making_end(create->making);
        create->is_made = err == SHOAL_OK;
    }
    if (err == SHOAL_OK)
        return false;
    create_refuse(chunks, in, create->held, err);
    create->held = NULL;
    return true;
}

/* The node ends, and its store with it. */
static void job_end(const struct sh_chunks *chunks, struct create_job *create)
{
    if (!create->making || create->is_made)
        return;
    sh_store_making_fail(create->making, SHOAL_ESTOPPED);
    while (!sh_backup_making_step(chunks->backup, sh_held_write(create->held), create->making,
                                  ROUND_MOST))
        continue;
    enum shoal_err err = sh_store_making_end(create->making);
    SH_DEBUG("node", "a create of many chunks was ended", SH_ERR(err));
}

/* Begins it, once its turn has come. NULL: out of memory, and the asker knows. */
static struct create_job *job_make(struct sh_chunks *chunks, struct sh_msg_in *in,
                                   const struct sh_store_wish *wish, bool has_sizes)
{
    struct create_job *create = calloc(1, sizeof *create);
    sh_lid *lids = sh_scratch_take(chunks->msg, wish->count * sizeof *lids);
    uint32_t *sizes = has_sizes ? sh_scratch_take(chunks->msg, wish->count * sizeof *sizes) : NULL;
    if (!create || !lids || (has_sizes && !sizes)) {
        sh_scratch_give(chunks->msg, sizes);
        sh_scratch_give(chunks->msg, lids);
        free(create);
        create_refuse(chunks, in, NULL, SHOAL_ENOMEM);
        return NULL;
    }
    *create = (struct create_job){.wish = *wish,
                                  .sizes = sizes,
                                  .lids = lids,
                                  .entered = sh_holdings_enter(&chunks->holdings)};
    create->wish.sizes = sizes;
    if (!has_sizes)
        create->wish.size = sh_get32(&in->payload);
    return create;
}

/* --- The request --------------------------------------------------------------------------- */

static bool create_is_well(const struct sh_reader *r, uint32_t count, uint8_t how)
{
    const uint8_t known = SH_CHUNKS_SIZES | SH_CHUNKS_CONSECUTIVE | SH_CHUNKS_RESERVE;
    size_t sizes = how & SH_CHUNKS_SIZES ? count : 1;
    return sh_reader_ok(r) && (how & ~known) == 0 && count > 0 && count <= SH_CHUNKS_MANY_MAX &&
           sh_reader_left(r) == sizes * 4;
}

static struct sh_store_wish wish_of(uint32_t count, uint8_t how)
{
    return (struct sh_store_wish){.count = count,
                                  .consecutive = how & SH_CHUNKS_CONSECUTIVE,
                                  .reserve = how & SH_CHUNKS_RESERVE};
}

/* Whether few chunks are too many bytes to be made at once. */
static bool has_large(struct sh_reader sizes, uint32_t count, uint8_t how)
{
    uint64_t bytes = 0;
    if (how & SH_CHUNKS_RESERVE)
        return false;
    while (sh_reader_left(&sizes) > 0)
        bytes += sh_get32(&sizes);
    return bytes * (how & SH_CHUNKS_SIZES ? 1 : count) > SH_STORE_PIECE_BYTES;
}

static void create_first(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct sh_msg_in before = *in;
    uint32_t count = sh_get32(&in->payload);
    uint8_t how = sh_get8(&in->payload);
    if (!create_is_well(&in->payload, count, how)) {
        sh_chunks_refuse(in, SHOAL_EPROTO, "a create is a count and one size or count sizes");
        return;
    }
    if (!may_create(chunks)) {
        sh_chunks_refuse(in, SHOAL_ENOTOWNER, SH_CHUNKS_NO_CREATES);
        return;
    }
    if (count > 16)
        sh_step_long();
    struct sh_store_wish wish = wish_of(count, how);
    if (count <= FEW && !has_large(in->payload, count, how)) {
        create_at_once(chunks, in, &wish, how & SH_CHUNKS_SIZES);
        return;
    }
    *in = before;
    in->goes_on = true;
}

static void on_create(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    if (!in->goes_on) {
        create_first(chunks, in);
        return;
    }
    struct create_job *create = in->state;
    if (!create && !in->is_ending) {
        uint32_t count = sh_get32(&in->payload);
        uint8_t how = sh_get8(&in->payload);
        struct sh_store_wish wish = wish_of(count, how);
        create = in->state = job_make(chunks, in, &wish, how & SH_CHUNKS_SIZES);
        in->goes_on = create != NULL;
        return;
    }
    if (create && in->is_ending)
        job_end(chunks, create);
    if (in->is_ending || job_run(chunks, create, in)) {
        in->goes_on = false;
        if (create)
            job_free(chunks, create);
    }
}

/* --- One, at most once --------------------------------------------------------------------- */

/* A large chunk that is being made. */
struct once_job {
    unsigned entered;
    struct sh_once_id id;
    struct sh_store_wish wish;
    sh_lid lid;
    struct sh_store_making *making;
    struct sh_held *held;
    struct sh_write_request request;
    uint64_t refused_ns; /* as of a create_job */
};

/* Keeps the result, and answers. A client repeats a create that was refused for the moment under the same number. */
static void once_answer(struct sh_chunks *chunks, struct sh_msg_in *in, struct sh_held *held,
                        const struct sh_once_id *id, const struct sh_once_result *result,
                        bool is_first)
{
    if (is_first && result->err != SHOAL_EBUSY)
        sh_once_end(chunks->once, id, result);
    /* The chunk that the first request made may not be logged yet. */
    if (!is_first && !sh_held_saw(chunks->helds, in, (sh_lid){result->value}, &held))
        return;
    if (result->err == SHOAL_OK)
        create_answer(in, held, &(sh_lid){result->value}, 1);
    else
        sh_chunks_refuse_store(chunks, in, held, (sh_lid){0}, result->err);
}

/* Takes the held answer. False: it can't be begun, as *err_out says. */
static bool once_job_begin(struct sh_chunks *chunks, struct sh_msg_in *in, struct sh_held *held,
                           const struct sh_once_id *id, uint32_t size, enum shoal_err *err_out)
{
    struct once_job *job = malloc(sizeof *job);
    if (!job) {
        *err_out = SHOAL_ENOMEM;
        return false;
    }
    *job = (struct once_job){.id = *id, .wish = {.size = size, .count = 1}, .held = held};
    *err_out = sh_store_making_begin(chunks->store, &job->wish, &job->lid, &job->making);
    if (*err_out) {
        free(job);
        return false;
    }
    job->entered = sh_holdings_enter(&chunks->holdings);
    sh_chunks_request_set(held, id, SH_WRITE_CHUNK, &job->request);
    in->state = job;
    in->goes_on = true;
    return true;
}

static void once_go_on(struct sh_chunks *chunks, struct sh_msg_in *in)
{
    struct once_job *job = in->state;
    struct sh_write *write = sh_held_write(job->held);
    bool is_over = false;
    if (in->is_ending)
        sh_store_making_fail(job->making, SHOAL_ESTOPPED);
    for (size_t done = 0; !is_over && (in->is_ending || done < ROUND_MOST); done += SOME) {
        is_over = sh_backup_making_step(chunks->backup, write, job->making, SOME);
        bool was_refused = !is_over && write && sh_write_was_refused(write);
        if (was_refused && sh_chunks_gives_up(chunks, &job->refused_ns))
            sh_store_making_fail(job->making, SHOAL_EBUSY);
        if ((was_refused || sh_step_spent()) && !in->is_ending)
            break;
    }
    if (!is_over)
        return;
    struct sh_once_result result = {.err = sh_store_making_end(job->making)};
    if (result.err == SHOAL_OK)
        result.value = job->lid.v;
    if (!in->is_ending)
        once_answer(chunks, in, job->held, &job->id, &result, true);
    sh_holdings_leave(&chunks->holdings, job->entered);
    free(job);
    in->state = NULL;
    in->goes_on = false;
}

static void once_first(struct sh_chunks *chunks, struct sh_msg_in *in, const struct sh_once_id *id,
                       uint32_t size, bool has_turn)
{
    struct sh_once_result result = {.err = SHOAL_OK};
    struct sh_held *held;
    sh_lid lid;
    if (!sh_held_begin(chunks->helds, in, &held))
        return;
    if (has_turn && once_job_begin(chunks, in, held, id, size, &result.err))
        return;
    struct sh_write_request request;
    sh_chunks_request_set(held, id, SH_WRITE_CHUNK, &request);
    if (!has_turn)
        result.err = sh_chunks_change_err(
            sh_backup_new_many(chunks->backup, sh_held_write(held), size, 1, &lid));
    if (result.err == SHOAL_OK)
        result.value = lid.v;
    once_answer(chunks, in, held, id, &result, true);
}

static void once_begin(struct sh_chunks *chunks, struct sh_msg_in *in, bool has_turn)
{
    struct sh_once_id id;
    struct sh_once_result result = {.err = SHOAL_OK};
    enum sh_once_state state = sh_once_begin(chunks->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    uint32_t size = sh_get32(&in->payload);
    bool is_well = sh_reader_done(&in->payload), is_first = state == SH_ONCE_FIRST;
    if (!is_well || (is_first && !may_create(chunks)))
        sh_chunks_refuse(in, is_well ? SHOAL_ENOTOWNER : SHOAL_EPROTO,
                         is_well ? SH_CHUNKS_NO_CREATES : NULL);
    else if (is_first)
        once_first(chunks, in, &id, size, has_turn);
    else
        once_answer(chunks, in, NULL, &id, &result, false);
}

/* A large one waits for its turn before its number is looked up: of two with the same number, the
 * second then finds the first's result. */
static void on_create_once(void *arg, struct sh_msg_in *in)
{
    struct sh_chunks *chunks = arg;
    struct sh_reader r = in->payload;
    bool has_turn = in->goes_on;
    (void)sh_reader_take(&r, SH_ONCE_PREFIX_BYTES);
    if (in->state) {
        once_go_on(chunks, in);
    } else if (!has_turn && sh_get32(&r) > SH_STORE_PIECE_BYTES) {
        sh_step_long();
        in->goes_on = true;
    } else {
        in->goes_on = false;
        if (!in->is_ending)
            once_begin(chunks, in, has_turn);
    }
}

void sh_create_register(struct sh_chunks *chunks)
{
    sh_chunks_changes_set(chunks, SH_CHUNKS_CREATE, SH_MSG_INLINE, on_create, NULL);
    sh_chunks_changes_set(chunks, SH_CHUNKS_CREATE_ONCE, SH_MSG_INLINE, on_create_once, NULL);
}
