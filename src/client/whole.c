/* Calls on a whole store: dump, load, analyze. On a cluster the peer does the work (proto/dumps.h),
 * and this thread asks how far it is; embedded, this thread does it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/client_int.h"
#include "proto/dumps.h"
#include "store/analyze.h"
#include "store/dump.h"

/* Between two questions; the first come sooner, for what takes no time. */
#define PAUSE_NS_MIN UINT64_C(500000)
#define PAUSE_NS_MAX UINT64_C(50000000)
#define EMBEDDED_STEP_BYTES (1u << 20)
#define EMBEDDED_STEP_GROUPS 16384

_Static_assert(sizeof(struct shoal_analysis) == sizeof(struct sh_analysis), "the same members");
_Static_assert(offsetof(struct shoal_analysis, used_bytes) ==
                   offsetof(struct sh_analysis, used_bytes),
               "the same members");
_Static_assert(SHOAL_ANALYSIS_EXACT == SH_ANALYZE_EXACT, "the same members");
_Static_assert(SHOAL_ANALYSIS_POWERS == SH_ANALYZE_POWERS, "the same members");
_Static_assert(SHOAL_ANALYSIS_RUNS == SH_ANALYZE_RUNS, "the same members");

/* What a call of this file is to do. */
struct whole {
    shoal *store;
    shoal_nid node;
    enum sh_job_kind kind;
    const char *name; /* NULL: an analysis */
    bool rename;      /* a load */
    shoal_progress progress;
    void *arg;
    uint64_t number; /* of the job on the peer */
};

static const char *phase_name(const struct sh_job *job)
{
    if (job->kind == SH_JOB_ANALYZE)
        return "analyze";
    switch (job->phase) {
    case SH_DUMP_WRITING:
        return "write";
    case SH_LOAD_CHECKING:
        return "check";
    case SH_LOAD_CREATING:
        return "create";
    case SH_LOAD_UNDOING:
        return "undo";
    }
    return "";
}

/* False: it shall be canceled. */
static bool tell(const struct whole *whole, const struct sh_job *job)
{
    return !whole->progress || whole->progress(whole->arg, phase_name(job), job->done, job->all);
}

/* Says, for people, what is wrong with a file, and what could not be undone. */
static void explain(const struct whole *whole, const struct sh_job *job)
{
    char chunk[64] = "", left[64] = "";
    shoal_cid cid = {job->fault_cid};
    if (job->kind != SH_JOB_LOAD || job->err == SHOAL_ECANCELED || job->err == SHOAL_OK)
        return;
    if (cid.v != 0)
        snprintf(chunk, sizeof chunk, " (chunk %u:%" PRIu64 ")", shoal_cid_creator(cid).v,
                 shoal_cid_local(cid));
    if (job->chunks > 0)
        snprintf(left, sizeof left, "; %" PRIu64 " chunks could not be removed again", job->chunks);
    sh_client_detail_set("%s%s at byte %" PRIu64 "%s%s%s%s", whole->name,
                         whole->store->is_embedded ? "" : SH_DUMP_SUFFIX, job->fault_offset,
                         *job->fault_text ? ": " : "", job->fault_text, chunk, left);
}

/* --- On a cluster -------------------------------------------------------------------------- */

/* Lost questions and answers can be repeated: the job has a number. */
static bool may_ask_again(enum shoal_err err)
{
    return err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE || err == SHOAL_EAGAIN ||
           err == SHOAL_ELIMIT || err == SHOAL_EFENCED;
}

static void pause_for(shoal *store, uint64_t ns)
{
    struct sh_waiter pause = {0};
    (void)sh_crew_wait(store->crew, 0, &pause, sh_now(&store->env.clock) + ns);
}

enum shoal_err sh_client_ask_again(shoal *store, shoal_nid node, sh_msg_type type,
                                   struct sh_bytes request, uint8_t **answer_out, size_t *size_out)
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

static enum shoal_err ask_with(const struct whole *whole, sh_msg_type type, struct sh_bytes request,
                               uint8_t **answer_out, size_t *size_out)
{
    return sh_client_ask_again(whole->store, whole->node, type, request, answer_out, size_out);
}

/* Asks about the job. */
static enum shoal_err ask(const struct whole *whole, sh_msg_type type, uint8_t **answer_out,
                          size_t *size_out)
{
    uint8_t request[8];
    sh_store64(request, whole->number);
    return ask_with(whole, type, sh_bytes_make(request, sizeof request), answer_out, size_out);
}

/* Begins the job on the peer. */
static enum shoal_err job_begin(struct whole *whole)
{
    static const sh_msg_type types[] = {[SH_JOB_DUMP] = SH_DUMPS_DUMP,
                                        [SH_JOB_LOAD] = SH_DUMPS_LOAD,
                                        [SH_JOB_ANALYZE] = SH_DUMPS_ANALYZE};
    uint8_t request[9 + SH_DUMP_NAME_BYTES_MAX];
    struct sh_writer w = sh_writer_make(request, sizeof request);
    whole->number = sh_random64(&whole->store->env.random) | 1;
    sh_put64(&w, whole->number);
    if (whole->kind == SH_JOB_LOAD)
        sh_put8(&w, whole->rename ? SH_DUMPS_RENAME : 0);
    if (whole->name)
        sh_put_raw(&w, sh_bytes_text(whole->name));
    if (!sh_writer_ok(&w)) {
        sh_client_detail_set("a dump's name has at most %d characters", SH_DUMP_LABEL_MAX);
        return SHOAL_EINVAL;
    }
    return ask_with(whole, types[whole->kind], sh_bytes_make(request, (size_t)(w.at - request)),
                    NULL, NULL);
}

static enum shoal_err ask_job(const struct whole *whole, struct sh_job *job_out)
{
    uint8_t *answer;
    size_t size;
    enum shoal_err err = ask(whole, SH_DUMPS_JOB, &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_job_get(&r, job_out) || job_out->number != whole->number ||
        job_out->kind != whole->kind)
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

/* Begins the job on the peer and follows it to its end. */
static enum shoal_err job_run(struct whole *whole, struct sh_job *job_out)
{
    uint64_t pause_ns = PAUSE_NS_MIN;
    bool is_canceled = false;
    enum shoal_err err = job_begin(whole);
    while (err == SHOAL_OK) {
        struct sh_job job;
        err = ask_job(whole, &job);
        if (err != SHOAL_OK)
            break;
        if (job.is_over) {
            explain(whole, &job);
            *job_out = job;
            return job.err;
        }
        if (!tell(whole, &job) && !is_canceled) {
            is_canceled = true;
            err = ask(whole, SH_DUMPS_JOB_CANCEL, NULL, NULL);
        }
        pause_for(whole->store, pause_ns);
        pause_ns = pause_ns * 2 < PAUSE_NS_MAX ? pause_ns * 2 : PAUSE_NS_MAX;
    }
    return err;
}

/* --- Embedded ------------------------------------------------------------------------------ */

/* Cuts a path into its folder, allocated, and the file's name. */
static enum shoal_err path_cut(const char *path, char **folder_out, const char **name_out)
{
    const char *slash = strrchr(path, '/');
    size_t size = slash ? (size_t)(slash - path) : 1;
    char *folder = malloc(size + 2);
    if (!folder)
        return SHOAL_ENOMEM;
    memcpy(folder, slash ? path : ".", size);
    folder[size] = '\0';
    if (size == 0)
        memcpy(folder, "/", 2);
    *folder_out = folder;
    *name_out = slash ? slash + 1 : path;
    return SHOAL_OK;
}

static void dump_embedded(const struct whole *whole, struct sh_disk *disk, struct sh_dump *dump,
                          struct sh_job *job)
{
    for (; !job->is_over;) {
        if (!tell(whole, job))
            sh_dump_cancel(dump);
        if (sh_dump_step(dump, EMBEDDED_STEP_BYTES) == 0)
            (void)sh_disk_poll(disk, true);
        struct sh_dump_state state = sh_dump_state_get(dump);
        sh_job_note(job, &state);
    }
}

static void load_embedded(const struct whole *whole, struct sh_disk *disk, struct sh_load *load,
                          struct sh_job *job)
{
    struct sh_write write;
    sh_write_begin(&write, SH_LEVEL_ASYNC);
    for (; !job->is_over;) {
        if (!tell(whole, job))
            sh_load_cancel(load);
        if (sh_backup_load_step(whole->store->backup, &write, load, EMBEDDED_STEP_BYTES) == 0)
            (void)sh_disk_poll(disk, true);
        struct sh_dump_state state = sh_load_state_get(load);
        sh_job_note(job, &state);
    }
}

static enum shoal_err file_embedded(const struct whole *whole, struct sh_job *job)
{
    char *folder;
    struct sh_disk *disk;
    struct sh_dump *dump = NULL;
    struct sh_load *load = NULL;
    struct sh_dump_config config = {
        .store = whole->store->store, .own = {SH_EMBEDDED_NID}, .rename = whole->rename};
    enum shoal_err err = path_cut(whole->name, &folder, &config.name);
    if (err != SHOAL_OK)
        return err;
    /* A disk makes its folder, which may be a mistyped one. */
    if (access(folder, F_OK) != 0)
        err = SHOAL_ENONAME;
    else
        err = sh_real_disk_create(folder, false, &disk);
    free(folder);
    if (err != SHOAL_OK) {
        sh_client_detail_set("%s", whole->name);
        return err;
    }
    config.disk = disk;
    err =
        whole->kind == SH_JOB_DUMP ? sh_dump_begin(&config, &dump) : sh_load_begin(&config, &load);
    if (dump)
        dump_embedded(whole, disk, dump, job);
    if (load)
        load_embedded(whole, disk, load, job);
    sh_dump_end(dump);
    sh_load_end(load);
    disk->ops->destroy(disk);
    if (err != SHOAL_OK)
        sh_client_detail_set("%s", whole->name);
    explain(whole, job);
    return err ? err : job->err;
}

static enum shoal_err analyze_embedded(const struct whole *whole, struct sh_job *job,
                                       struct sh_analysis *found)
{
    struct sh_analyze *analyze;
    enum shoal_err err =
        sh_analyze_begin(whole->store->store, (shoal_nid){SH_EMBEDDED_NID}, &analyze);
    if (err != SHOAL_OK)
        return err;
    while (err == SHOAL_OK && sh_analyze_step(analyze, EMBEDDED_STEP_GROUPS)) {
        sh_analyze_progress(analyze, &job->done, &job->all);
        if (!tell(whole, job))
            err = SHOAL_ECANCELED;
    }
    *found = *sh_analyze_result(analyze);
    sh_analyze_end(analyze);
    return err;
}

/* --- The calls ----------------------------------------------------------------------------- */

/* What all calls check first. */
static enum shoal_err begin(const struct whole *whole, const void *needed)
{
    enum shoal_err err = sh_client_blocking();
    if (err != SHOAL_OK || !whole->store || !needed)
        return err != SHOAL_OK ? err : SHOAL_EINVAL;
    if (!whole->store->is_embedded)
        return sh_client_peer_check(whole->store, whole->node);
    return whole->node.v == 0 || whole->node.v == SH_EMBEDDED_NID ? SHOAL_OK : SHOAL_ENONODE;
}

static enum shoal_err file_call(struct whole *whole, struct shoal_dump_sums *sums_out)
{
    struct sh_job job = {.kind = whole->kind,
                         .phase = whole->kind == SH_JOB_LOAD ? SH_LOAD_CHECKING : SH_DUMP_WRITING};
    enum shoal_err err = begin(whole, whole->name);
    if (err != SHOAL_OK)
        return err;
    shoal_nid node = whole->store->is_embedded ? (shoal_nid){SH_EMBEDDED_NID} : whole->node;
    if (whole->kind == SH_JOB_DUMP)
        err = sh_names_dumped_put(whole->store, node);
    if (err == SHOAL_OK)
        err = whole->store->is_embedded ? file_embedded(whole, &job) : job_run(whole, &job);
    if (err == SHOAL_OK && whole->kind == SH_JOB_LOAD)
        err = sh_names_dumped_give(whole->store, node);
    else if (err == SHOAL_OK)
        sh_names_dumped_drop(whole->store, node);
    if (err == SHOAL_OK && sums_out)
        *sums_out = (struct shoal_dump_sums){job.chunks, job.payload_bytes, job.file_bytes};
    return err;
}

enum shoal_err shoal_dump(shoal *store, shoal_nid node, const char *name, shoal_progress progress,
                          void *arg, struct shoal_dump_sums *sums_out)
{
    struct whole whole = {.store = store,
                          .node = node,
                          .kind = SH_JOB_DUMP,
                          .name = name,
                          .progress = progress,
                          .arg = arg};
    return file_call(&whole, sums_out);
}

enum shoal_err shoal_load(shoal *store, shoal_nid node, const char *name, enum shoal_load_ids ids,
                          shoal_progress progress, void *arg, struct shoal_dump_sums *sums_out)
{
    struct whole whole = {.store = store,
                          .node = node,
                          .kind = SH_JOB_LOAD,
                          .name = name,
                          .rename = ids == SHOAL_LOAD_RENAMED,
                          .progress = progress,
                          .arg = arg};
    return file_call(&whole, sums_out);
}

/* The result of an analysis that is over. */
static enum shoal_err analysis_fetch(const struct whole *whole, struct sh_analysis *found)
{
    uint8_t *answer;
    size_t size;
    enum shoal_err err = ask(whole, SH_DUMPS_ANALYSIS, &answer, &size);
    if (err != SHOAL_OK)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_analysis_get(&r, found))
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

enum shoal_err shoal_analyze(shoal *store, shoal_nid node, shoal_progress progress, void *arg,
                             struct shoal_analysis *analysis_out)
{
    struct whole whole = {
        .store = store, .node = node, .kind = SH_JOB_ANALYZE, .progress = progress, .arg = arg};
    struct sh_job job = {.kind = SH_JOB_ANALYZE};
    struct sh_analysis found;
    enum shoal_err err = begin(&whole, analysis_out);
    if (err == SHOAL_OK && store->is_embedded) {
        err = analyze_embedded(&whole, &job, &found);
    } else if (err == SHOAL_OK) {
        err = job_run(&whole, &job);
        if (err == SHOAL_OK)
            err = analysis_fetch(&whole, &found);
    }
    /* The members are the same, one by one: all of 64 bits. */
    if (err == SHOAL_OK)
        memcpy(analysis_out, &found, sizeof found);
    return err;
}
