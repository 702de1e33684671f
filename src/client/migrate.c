/* Migration: the source does the work (proto/moves.h), and this thread asks how far it is. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/client_int.h"
#include "proto/moves.h"

/* Between two questions; the first come sooner, for what takes no time. */
#define PAUSE_NS_MIN UINT64_C(500000)
#define PAUSE_NS_MAX UINT64_C(50000000)
#define WAITS_NS UINT64_C(1000000000) /* without progress, until that is said */

static void pause_for(shoal *store, uint64_t ns)
{
    struct sh_waiter pause = {0};
    (void)sh_crew_wait(store->crew, 0, &pause, sh_now(&store->env.clock) + ns);
}

/* Lost questions and answers can be repeated: the job has a number. */
static bool may_ask_again(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE || err == SHOAL_EAGAIN ||
           err == SHOAL_EFENCED || err == SHOAL_ELIMIT;
}

/* Asks the source, until it answers or the time-out is over. answer_out may be NULL. */
static enum shoal_err ask(shoal *store, shoal_nid node, sh_msg_type type, struct sh_bytes request,
                          uint8_t **answer_out, size_t *size_out)
{
    struct sh_caller caller = sh_client_caller(store);
    uint64_t deadline = sh_client_deadline_ns(store);
    for (;;) {
        uint64_t now = sh_now(&store->env.clock);
        enum shoal_err err =
            sh_call(&caller, node, type, request, deadline > now ? deadline - now : 1, answer_out,
                    size_out, sh_client_detail());
        if (!may_ask_again(err) || sh_now(&store->env.clock) + SH_ROUND_PAUSE_NS >= deadline)
            return err;
        pause_for(store, SH_ROUND_PAUSE_NS);
    }
}

static enum shoal_err job_begin(shoal *store, shoal_nid node,
                                const struct shoal_migration *migration, uint64_t number)
{
    uint8_t request[SH_MOVE_BYTES];
    struct sh_writer w = sh_writer_make(request, sizeof request);
    sh_put64(&w, number);
    sh_put64(&w, migration->first.v);
    sh_put64(&w, migration->last.v);
    sh_put16(&w, migration->target.v);
    sh_put8(&w, migration->drain ? SH_MOVES_DRAIN : 0);
    sh_put64(&w, migration->bytes_per_s);
    sh_put64(&w, migration->bytes_max);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    return ask(store, node, SH_MOVES_MOVE, sh_bytes_make(request, sizeof request), NULL, NULL);
}

static enum shoal_err job_ask(shoal *store, shoal_nid node, uint64_t number,
                              struct sh_move_job *job_out)
{
    uint8_t request[8], *answer;
    size_t size;
    sh_store64(request, number);
    enum shoal_err err =
        ask(store, node, SH_MOVES_JOB, sh_bytes_make(request, sizeof request), &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_move_job_get(&r, job_out) || job_out->number != number)
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

static void sums_set(struct shoal_migration_sums *sums_out, const struct sh_move_job *job)
{
    if (sums_out)
        *sums_out = (struct shoal_migration_sums){.chunks = job->chunks,
                                                  .bytes = job->bytes,
                                                  .batches = job->batches,
                                                  .locked = job->locked,
                                                  .freeze_ns = job->freeze_ns};
}

static void explain(const struct sh_move_job *job)
{
    if (job->err == SHOAL_EFULL)
        sh_client_detail_set(job->target.v ? "no room is left on node %u" : "no peer has room left",
                             job->target.v);
    else if (job->err == SHOAL_EBUSY && job->why == SH_MOVE_STAYS_UNDECIDED)
        sh_client_detail_set(
            "chunk %u:%" PRIu64 " and others came to the node, but no superpeer says "
            "whether for good: drain again when the superpeers agree, and no shard "
            "waits for a peer (shoal status)",
            shoal_cid_creator(job->stays).v, shoal_cid_local(job->stays));
    else if (job->err == SHOAL_EBUSY && job->why == SH_MOVE_STAYS_LOCKED)
        sh_client_detail_set("chunk %u:%" PRIu64 " can't be moved: its lock is an owner's who told "
                             "no number, and was not released",
                             shoal_cid_creator(job->stays).v, shoal_cid_local(job->stays));
    else if (job->err == SHOAL_ELIMIT)
        sh_client_detail_set("node %u or a superpeer keeps no more ranges, or results of requests",
                             job->target.v);
    else if (job->err == SHOAL_ENONODE)
        sh_client_detail_set("there is no other peer that is up and takes chunks: one that is "
                             "being drained takes none");
    else if (job->err != SHOAL_OK && job->err != SHOAL_ECANCELED && job->target.v)
        sh_client_detail_set("while moving chunks to node %u", job->target.v);
}

/* What the progress is called: after a second without any, also what is in the way. */
static const char *phase_of(const struct sh_move_job *job, uint64_t still_ns, char *text,
                            size_t size)
{
    if (job->err == SHOAL_OK || still_ns < WAITS_NS)
        return "move";
    snprintf(text, size, "move waits: %s", shoal_err_name(job->err));
    return text;
}

/* Begins the job and follows it to its end. */
static enum shoal_err job_run(shoal *store, shoal_nid node, const struct shoal_migration *migration,
                              shoal_progress progress, void *arg,
                              struct shoal_migration_sums *sums_out)
{
    uint64_t number = sh_random64(&store->env.random) | 1;
    uint64_t pause_ns = PAUSE_NS_MIN;
    bool is_canceled = false;
    uint64_t chunks = 0, moved_ns = sh_now(&store->env.clock);
    enum shoal_err err = job_begin(store, node, migration, number);
    while (err == SHOAL_OK) {
        struct sh_move_job job;
        err = job_ask(store, node, number, &job);
        if (err != SHOAL_OK)
            break;
        sums_set(sums_out, &job);
        if (job.is_over) {
            explain(&job);
            return job.err;
        }
        char text[64];
        uint64_t now = sh_now(&store->env.clock);
        if (job.chunks != chunks || job.err == SHOAL_OK)
            moved_ns = now;
        chunks = job.chunks;
        const char *phase = phase_of(&job, now - moved_ns, text, sizeof text);
        if (progress && !is_canceled && !progress(arg, phase, job.chunks, job.all_chunks)) {
            uint8_t request[8];
            sh_store64(request, number);
            is_canceled = true;
            err = ask(store, node, SH_MOVES_CANCEL, sh_bytes_make(request, sizeof request), NULL,
                      NULL);
        }
        pause_for(store, pause_ns);
        pause_ns = pause_ns * 2 < PAUSE_NS_MAX ? pause_ns * 2 : PAUSE_NS_MAX;
    }
    return err;
}

enum shoal_err shoal_migrate(shoal *store, shoal_nid node, const struct shoal_migration *migration,
                             shoal_progress progress, void *arg,
                             struct shoal_migration_sums *sums_out)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store || !migration || migration->first.v > migration->last.v)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded) {
        sh_client_detail_set("a store in this process has nowhere to move chunks to");
        return SHOAL_EINVAL;
    }
    err = sh_client_peer_check(store, node);
    if (err == SHOAL_OK && migration->target.v)
        err = sh_client_peer_check(store, migration->target);
    if (err != SHOAL_OK)
        return err;
    return job_run(store, node, migration, progress, arg, sums_out);
}

enum shoal_err shoal_undrain(shoal *store, shoal_nid node)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !store)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (store->is_embedded)
        return SHOAL_EINVAL;
    err = sh_client_peer_check(store, node);
    if (err == SHOAL_OK)
        err = ask(store, node, SH_MOVES_UNDRAIN, sh_bytes_make(NULL, 0), NULL, NULL);
    return err;
}
