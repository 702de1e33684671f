#include "node/dumps.h"
#include "node/held.h"
#include "node/holdings.h"
#include "node/job.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"

/* About 50 us of a round each. */
#define STEP_BYTES (64u << 10)
#define STEP_GROUPS 256
#define TEXT_MAX 96

struct sh_dumps {
    struct sh_dumps_config config;
    struct sh_job job; /* the one under way, or the last */
    struct sh_dump *dump;
    struct sh_load *load;
    struct sh_write
        write;       /* what the load makes; then all that is to be logged before it is over */
    bool is_logging; /* all is loaded, and that is waited for */
    struct sh_analyze *analyze; /* kept until the next job, for its result */
    uint64_t due_ns;
};

/* --- The step ------------------------------------------------------------------------------ */

static bool runs(const struct sh_dumps *dumps)
{
    return dumps->job.kind != SH_JOB_NONE && !dumps->job.is_over;
}

bool sh_dumps_is_loading(const struct sh_dumps *dumps)
{
    return runs(dumps) && dumps->job.kind == SH_JOB_LOAD;
}

static void analyze_note(struct sh_job *job, const struct sh_analyze *analyze)
{
    sh_analyze_progress(analyze, &job->done, &job->all);
    job->chunks = sh_analyze_result(analyze)->chunks;
    job->payload_bytes = sh_analyze_result(analyze)->payload_bytes;
}

static const char *kind_name(enum sh_job_kind kind)
{
    static const char *const names[] = {"none", "dump", "load", "analysis"};
    return names[kind];
}

static void job_over(struct sh_dumps *dumps)
{
    sh_dump_end(dumps->dump);
    sh_load_end(dumps->load);
    dumps->dump = NULL;
    dumps->load = NULL;
    dumps->job.is_over = true;
    SH_INFO("node", "job over", SH_TEXT("job", kind_name(dumps->job.kind)),
            SH_TEXT("result", shoal_err_text(dumps->job.err)), SH_U64("chunks", dumps->job.chunks));
    if (dumps->job.kind == SH_JOB_LOAD && dumps->config.loaded)
        dumps->config.loaded(dumps->config.arg);
}

static void loaded(void *arg, enum shoal_err err)
{
    struct sh_dumps *dumps = arg;
    dumps->is_logging = false;
    if (dumps->job.err == SHOAL_OK)
        dumps->job.err = err;
    job_over(dumps);
}

/* The node reports the end of a load only once the loaded chunks are acknowledged, as other changes are. */
static bool load_is_logged(struct sh_dumps *dumps)
{
    struct sh_backup *backup = dumps->config.backup;
    enum sh_level level = sh_helds_level(sh_chunks_helds(dumps->config.chunks), SH_DUMPS_LOAD);
    if (dumps->job.kind != SH_JOB_LOAD || level == SH_LEVEL_ASYNC)
        return true;
    sh_write_begin(&dumps->write, level);
    sh_backup_write_all(backup, &dumps->write);
    dumps->is_logging = sh_write_wait(backup, &dumps->write, loaded, dumps);
    dumps->job.is_over = !dumps->is_logging;
    return !dumps->is_logging;
}

static unsigned job_step(struct sh_dumps *dumps)
{
    struct sh_job *job = &dumps->job;
    struct sh_dump_state state;
    unsigned done;
    if (job->kind == SH_JOB_ANALYZE) {
        job->is_over = !sh_analyze_step(dumps->analyze, STEP_GROUPS);
        analyze_note(job, dumps->analyze);
        return STEP_GROUPS;
    }
    if (job->kind == SH_JOB_DUMP) {
        done = sh_dump_step(dumps->dump, STEP_BYTES);
        state = sh_dump_state_get(dumps->dump);
    } else {
        done = sh_backup_load_step(dumps->config.backup, &dumps->write, dumps->load, STEP_BYTES);
        state = sh_load_state_get(dumps->load);
    }
    sh_job_note(job, &state);
    return done;
}

static unsigned run(void *arg)
{
    struct sh_dumps *dumps = arg;
    if (!runs(dumps) || dumps->is_logging)
        return 0;
    unsigned done = job_step(dumps);
    if (dumps->job.is_over && load_is_logged(dumps))
        job_over(dumps);
    else if (dumps->is_logging)
        dumps->due_ns = SH_NEVER;
    else if (done == 0)
        dumps->due_ns = SH_NEVER; /* the disk wakes us */
    else
        dumps->due_ns = 0;
    return done;
}

static uint64_t due_ns(void *arg)
{
    const struct sh_dumps *dumps = arg;
    return runs(dumps) ? dumps->due_ns : SH_NEVER;
}

struct sh_step sh_dumps_step(struct sh_dumps *dumps)
{
    return (struct sh_step){.name = "dumps", .run = run, .due_ns = due_ns, .arg = dumps};
}

/* --- Requests ------------------------------------------------------------------------------ */

static void refuse(struct sh_msg_in *in, enum shoal_err err, const char *text)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
}

/* Reads a name and makes the file's of it. */
static bool name_read(struct sh_reader *r, char name_out[SH_DUMP_NAME_BYTES_MAX + 1])
{
    _Static_assert(SH_DUMP_LABEL_MAX + sizeof SH_DUMP_SUFFIX <= SH_DUMP_NAME_BYTES_MAX, "it fits");
    size_t size = sh_reader_left(r);
    const uint8_t *at = sh_reader_take(r, size);
    if (!sh_reader_ok(r) || size == 0 || size > SH_DUMP_LABEL_MAX || at[0] == '.')
        return false;
    for (size_t i = 0; i < size; i++) {
        bool is_letter = (at[i] >= 'a' && at[i] <= 'z') || (at[i] >= 'A' && at[i] <= 'Z');
        bool is_digit = at[i] >= '0' && at[i] <= '9';
        if (!is_letter && !is_digit && at[i] != '.' && at[i] != '-' && at[i] != '_')
            return false;
    }
    snprintf(name_out, SH_DUMP_NAME_BYTES_MAX + 1, "%.*s%s", (int)size, (const char *)at,
             SH_DUMP_SUFFIX);
    return true;
}

/* Whether a job may begin; if not, it has been answered. An asker that repeats itself is told that
 * it has begun. */
static bool may_begin(struct sh_dumps *dumps, struct sh_msg_in *in, uint64_t number)
{
    char text[TEXT_MAX];
    if (number == dumps->job.number) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return false;
    }
    if (!runs(dumps))
        return true;
    snprintf(text, sizeof text, "another job (%s) is under way", kind_name(dumps->job.kind));
    refuse(in, SHOAL_EBUSY, text);
    return false;
}

static void begun(struct sh_dumps *dumps, struct sh_msg_in *in, enum sh_job_kind kind,
                  uint64_t number)
{
    dumps->job = (struct sh_job){.number = number, .kind = kind};
    dumps->due_ns = 0;
    SH_INFO("node", "job begun", SH_TEXT("job", kind_name(kind)), SH_U64("by", in->reply_to.nid.v));
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

/* The last job, and an analysis' result with it, is kept until the next one has begun. */
static void forget(struct sh_dumps *dumps)
{
    sh_analyze_end(dumps->analyze);
    dumps->analyze = NULL;
    dumps->job = (struct sh_job){0};
}

/* What is about to move is not loaded over either. */
static bool is_elsewhere(void *arg, shoal_cid cid)
{
    struct sh_dumps *dumps = arg;
    shoal_cid last;
    shoal_nid nid;
    return sh_holdings_find(sh_chunks_holdings(dumps->config.chunks), cid, &last, &nid) !=
           SH_HOLDING_PLAIN;
}

/* Refuses a dump or load that can't be; *config_out is what it needs otherwise. */
static bool files_ready(struct sh_dumps *dumps, struct sh_msg_in *in,
                        struct sh_dump_config *config_out)
{
    shoal_nid self = sh_msg_nid(in->msg);
    if (self.v == 0) {
        refuse(in, SHOAL_ENOTOWNER, "this node has not joined yet");
        return false;
    }
    if (!dumps->config.disk) {
        refuse(in, SHOAL_EINVAL,
               "the node has no folder for dumps: start it with the option data_dir");
        return false;
    }
    config_out->store = dumps->config.store;
    config_out->disk = dumps->config.disk;
    config_out->own = self;
    config_out->is_elsewhere = is_elsewhere;
    config_out->arg = dumps;
    return true;
}

/* The names of an earlier dump make way for those of the file that is loaded. */
static void names_make_way(struct sh_dumps *dumps)
{
    enum shoal_err err = sh_backup_remove(dumps->config.backup, &dumps->write, (sh_lid){0});
    if (err && err != SHOAL_ENOCHUNK)
        SH_WARN("node", "the chunk of names is in the way of a load", SH_ERR(err));
}

/* A dump or load. */
static void on_file(struct sh_dumps *dumps, struct sh_msg_in *in, enum sh_job_kind kind)
{
    char name[SH_DUMP_NAME_BYTES_MAX + 1], text[SH_DUMP_NAME_BYTES_MAX + 64] = "";
    struct sh_dump_config config = {.name = name};
    uint64_t number = sh_get64(&in->payload);
    uint8_t flags = kind == SH_JOB_LOAD ? sh_get8(&in->payload) : 0;
    if (!sh_reader_ok(&in->payload) || number == 0 || (flags & ~SH_DUMPS_RENAME)) {
        refuse(in, SHOAL_EPROTO, "a dump or load begins with a job's number, a load's flags next");
        return;
    }
    if (!name_read(&in->payload, name)) {
        refuse(in, SHOAL_EINVAL,
               "a dump's name is 1 to 128 letters, digits, '.', '-' and '_', and does not begin "
               "with '.'");
        return;
    }
    if (!may_begin(dumps, in, number) || !files_ready(dumps, in, &config))
        return;
    if (kind == SH_JOB_LOAD && sh_chunks_creates_refused(dumps->config.chunks)) {
        refuse(in, SHOAL_ENONODE, SH_CHUNKS_DRAINED_TEXT);
        return;
    }
    config.rename = flags & SH_DUMPS_RENAME;
    struct sh_dump *dump = NULL;
    struct sh_load *load = NULL;
    enum shoal_err err =
        kind == SH_JOB_DUMP ? sh_dump_begin(&config, &dump) : sh_load_begin(&config, &load);
    if (err != SHOAL_OK) {
        snprintf(text, sizeof text, "%s%s in the node's data_dir",
                 err == SHOAL_EBUSY ? "another dump is being written to " : "", name);
        refuse(in, err, text);
        return;
    }
    forget(dumps);
    dumps->dump = dump;
    dumps->load = load;
    sh_write_begin(&dumps->write, SH_LEVEL_ASYNC);
    if (load)
        names_make_way(dumps);
    begun(dumps, in, kind, number);
}

static void on_dump(void *arg, struct sh_msg_in *in)
{
    on_file(arg, in, SH_JOB_DUMP);
}

static void on_load(void *arg, struct sh_msg_in *in)
{
    on_file(arg, in, SH_JOB_LOAD);
}

static void on_analyze(void *arg, struct sh_msg_in *in)
{
    struct sh_dumps *dumps = arg;
    uint64_t number = sh_get64(&in->payload);
    if (!sh_reader_done(&in->payload) || number == 0) {
        refuse(in, SHOAL_EPROTO, "an analysis is a job's number");
        return;
    }
    if (!may_begin(dumps, in, number))
        return;
    struct sh_analyze *analyze;
    enum shoal_err err = sh_analyze_begin(dumps->config.store, sh_msg_nid(in->msg), &analyze);
    if (err != SHOAL_OK) {
        refuse(in, err, NULL);
        return;
    }
    forget(dumps);
    dumps->analyze = analyze;
    begun(dumps, in, SH_JOB_ANALYZE, number);
}

static void on_job(void *arg, struct sh_msg_in *in)
{
    struct sh_dumps *dumps = arg;
    struct sh_out out;
    if (!sh_job_is_meant(in, dumps->job.number, true))
        return;
    size_t bytes = SH_JOB_HEAD_BYTES + strlen(dumps->job.fault_text);
    if (sh_msg_reply(in->msg, in->reply_to, in->type, bytes, &out) != SHOAL_OK)
        return;
    sh_job_put(&out.w, &dumps->job);
    sh_msg_end(in->msg, &out);
}

static void on_cancel(void *arg, struct sh_msg_in *in)
{
    struct sh_dumps *dumps = arg;
    if (!sh_job_is_meant(in, dumps->job.number, false))
        return;
    if (dumps->dump)
        sh_dump_cancel(dumps->dump);
    if (dumps->load)
        sh_load_cancel(dumps->load);
    if (runs(dumps) && dumps->job.kind == SH_JOB_ANALYZE) {
        dumps->job.err = SHOAL_ECANCELED;
        job_over(dumps);
    }
    sh_msg_reply_ok(in->msg, in->reply_to, in->type);
}

static void on_analysis(void *arg, struct sh_msg_in *in)
{
    struct sh_dumps *dumps = arg;
    struct sh_out out;
    if (!sh_job_is_meant(in, dumps->job.number, false))
        return;
    if (!dumps->analyze || !dumps->job.is_over || dumps->job.err != SHOAL_OK) {
        refuse(in, dumps->job.is_over ? SHOAL_ENONAME : SHOAL_EBUSY, "there is no analysis");
        return;
    }
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_ANALYSIS_BYTES, &out) != SHOAL_OK)
        return;
    sh_analysis_put(&out.w, sh_analyze_result(dumps->analyze));
    sh_msg_end(in->msg, &out);
}

/* --- Making it ----------------------------------------------------------------------------- */

enum shoal_err sh_dumps_create(const struct sh_dumps_config *config, struct sh_dumps **dumps_out)
{
    static const struct {
        sh_msg_type type;
        sh_msg_handler handler;
    } handlers[] = {
        {SH_DUMPS_DUMP, on_dump},         {SH_DUMPS_LOAD, on_load},
        {SH_DUMPS_ANALYZE, on_analyze},   {SH_DUMPS_JOB, on_job},
        {SH_DUMPS_JOB_CANCEL, on_cancel}, {SH_DUMPS_ANALYSIS, on_analysis},
    };
    struct sh_dumps *dumps = calloc(1, sizeof *dumps);
    if (!dumps)
        return SHOAL_ENOMEM;
    dumps->config = *config;
    /* Inline: in the transport step's thread, as the step and the disk. */
    for (size_t i = 0; i < sizeof handlers / sizeof handlers[0]; i++)
        sh_msg_handler_set(config->msg, handlers[i].type, SH_MSG_INLINE, handlers[i].handler,
                           dumps);
    *dumps_out = dumps;
    return SHOAL_OK;
}

void sh_dumps_destroy(struct sh_dumps *dumps)
{
    if (!dumps)
        return;
    sh_dump_end(dumps->dump);
    sh_load_end(dumps->load);
    sh_analyze_end(dumps->analyze);
    free(dumps);
}
