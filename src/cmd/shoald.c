/* shoald: one node, in one process, in the foreground. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/lock.h"
#include "base/log.h"
#include "base/options.h"
#include "cmd/notify_int.h"
#include "node/node.h"

#define EXIT_STOPPED 0 /* an orderly stop */
#define EXIT_FAILED 1  /* could not start, or had to stop by itself */
#define EXIT_OPTIONS 2 /* wrong options; nothing was touched */

#define MODULE "shoald"

static void usage(FILE *out)
{
    fputs(
        "usage: shoald [--config FILE] [--OPTION VALUE...]\n\n"
        "One node of a shoal cluster. It runs in the foreground, logs to stderr or log_file, and\n"
        "stops in order on SIGTERM and SIGINT.\n\n"
        "  --config FILE    JSON file with options; also the variable SHOAL_CONFIG\n"
        "  --print-config   print the options in effect, as JSON, and end\n"
        "  --help           this text\n"
        "  --version        the version\n\n"
        "options:\n",
        out);
    sh_options_print_help(out);
    fputs("\nexamples:\n"
          "  shoald --roles superpeer --listen 127.0.0.1:4100 --data-dir /var/lib/shoal\n"
          "  shoald --superpeers 127.0.0.1:4100 --listen 127.0.0.1:4101\n\n"
          "exit status: 0 stopped in order; 1 could not start or had to stop; 2 wrong options\n",
          out);
}

static bool take_word(int argc, char **argv, const char *word)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], word) == 0)
            return true;
    return false;
}

/* Refuses whatever the options have left over: unknown flags and stray words. */
static bool check_left(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        char name[64];
        if (strcmp(argv[i], "--print-config") == 0)
            continue;
        if (strncmp(argv[i], "--", 2) != 0 || argv[i][2] == '\0') {
            fprintf(stderr, "shoald: \"%.60s\" is not an option; see shoald --help\n", argv[i]);
            return false;
        }
        snprintf(name, sizeof name, "%.*s", (int)strcspn(argv[i] + 2, "="), argv[i] + 2);
        const char *nearest = sh_options_nearest(name);
        char flag[64] = "";
        if (nearest)
            snprintf(flag, sizeof flag, "%s", nearest);
        for (char *c = flag; *c; c++)
            *c = *c == '_' ? '-' : *c;
        fprintf(stderr, "shoald: unknown option %.60s%s%s%s\n", argv[i],
                nearest ? "; did you mean --" : "; see shoald --help", flag, nearest ? "?" : "");
        return false;
    }
    return true;
}

/* --- Signals ------------------------------------------------------------------------------- */

/* A thread of its own takes the signals that ask us to stop, so that no system call elsewhere is
 * interrupted by them. It serves all lives of the node. */
struct stopper {
    pthread_t thread;
    sigset_t signals;
    struct sh_lock lock;
    struct sh_node_run *node; /* NULL: none can be stopped now; under lock */
    bool is_told;             /* to stop; under lock */
    atomic_bool over;         /* the process ends */
};

static void notify(const char *state)
{
    enum shoal_err err = sh_notify_send(state);
    if (err != SHOAL_OK)
        SH_WARN(MODULE, "the service manager can't be told", SH_TEXT("state", state), SH_ERR(err));
}

static void *stopper_run(void *arg)
{
    struct stopper *stopper = arg;
    for (;;) {
        int number = 0;
        if (sigwait(&stopper->signals, &number) != 0)
            continue;
        /* acquire: pairs with the release in stopper_end; set before its signal was sent */
        if (atomic_load_explicit(&stopper->over, memory_order_acquire))
            return NULL;
        SH_INFO(MODULE, "stopping", SH_TEXT("signal", number == SIGINT ? "SIGINT" : "SIGTERM"));
        notify("STOPPING=1");
        sh_lock_take(&stopper->lock);
        stopper->is_told = true;
        if (stopper->node)
            sh_node_stop(stopper->node);
        sh_lock_release(&stopper->lock);
    }
}

/* From now on it stops that node, which is to stop at once if a signal has come before. NULL: none. Whether one has. */
static bool stopper_set(struct stopper *stopper, struct sh_node_run *node)
{
    sh_lock_take(&stopper->lock);
    stopper->node = node;
    bool is_told = stopper->is_told;
    if (node && is_told)
        sh_node_stop(node);
    sh_lock_release(&stopper->lock);
    return is_told;
}

static enum shoal_err stopper_begin(struct stopper *stopper)
{
    atomic_init(&stopper->over, false);
    return pthread_create(&stopper->thread, NULL, stopper_run, stopper) == 0 ? SHOAL_OK
                                                                             : SHOAL_ENOMEM;
}

static void stopper_end(struct stopper *stopper)
{
    /* release: see stopper_run */
    atomic_store_explicit(&stopper->over, true, memory_order_release);
    pthread_kill(stopper->thread, SIGTERM);
    pthread_join(stopper->thread, NULL);
}

/* From here on all threads leave the stop signals to the stopper. */
static void signals_prepare(struct stopper *stopper)
{
    signal(SIGHUP, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&stopper->signals);
    sigaddset(&stopper->signals, SIGTERM);
    sigaddset(&stopper->signals, SIGINT);
    sh_lock_init(&stopper->lock, SH_LOCK_NODE);
    stopper->node = NULL;
    stopper->is_told = false;
    pthread_sigmask(SIG_BLOCK, &stopper->signals, NULL);
}

/* --- The node ------------------------------------------------------------------------------ */

static int failed(enum shoal_err err, const char *detail)
{
    fprintf(stderr, "shoald: %s%s%s\n", shoal_err_text(err), *detail ? ": " : "", detail);
    /* Where the detail says what to do, the general hint would only contradict it. */
    if (err != SHOAL_EBUSY && *shoal_err_hint(err))
        fprintf(stderr, "  hint: %s\n", shoal_err_hint(err));
    return EXIT_FAILED;
}

/* Serves one life: until the node is told to stop, or has to. */
static enum shoal_err serve(struct sh_node_run *node, struct sh_ready *ready, char *detail)
{
    enum shoal_err published = SHOAL_OK;
    if (sh_node_wait_ready(node)) {
        published = sh_ready_publish(ready, sh_node_nid(node), sh_node_address(node), detail);
        if (published == SHOAL_OK) {
            notify("READY=1");
            SH_INFO(MODULE, "serving", SH_U64("nid", sh_node_nid(node).v),
                    SH_TEXT("address", sh_node_address(node)));
        } else {
            /* Whoever waits for the file would wait for ever. */
            sh_node_stop(node);
        }
    }
    enum shoal_err err = sh_node_wait_stopped(node);
    return published != SHOAL_OK ? published : err;
}

static enum shoal_err live(struct sh_node_run *node, struct stopper *stopper,
                           struct sh_ready *ready, char *detail, bool *is_told_out)
{
    (void)stopper_set(stopper, node);
    enum shoal_err err = sh_node_start(node);
    if (err == SHOAL_OK)
        err = serve(node, ready, detail);
    *is_told_out = stopper_set(stopper, NULL);
    return err;
}

/* One life after the other: a peer that was declared failed, as it was stopped or cut off for too long, owns nothing any more,
 * and goes on as a node that has just been started. So nobody has to do that for it. */
static enum shoal_err live_on(struct sh_node_run **node, struct stopper *stopper,
                              struct sh_ready *ready, char *detail)
{
    bool is_told = false;
    enum shoal_err err = live(*node, stopper, ready, detail, &is_told);
    while (err && sh_node_is_over(*node)) {
        if (is_told)
            return SHOAL_OK;
        SH_WARN(MODULE, "this life of the node is over: the next one begins in this process",
                SH_ERR(err));
        const char *path = ready->path;
        sh_ready_end(ready);
        err = sh_ready_begin(ready, path, detail);
        if (err == SHOAL_OK)
            err = sh_node_renew(node, detail);
        if (err != SHOAL_OK)
            return err;
        err = live(*node, stopper, ready, detail, &is_told);
    }
    return err;
}

static int run(const struct sh_options *options)
{
    char detail[256] = "";
    struct stopper stopper;
    struct sh_ready ready;
    struct sh_node_run *node = NULL;
    signals_prepare(&stopper);
    enum shoal_err err = sh_ready_begin(&ready, options->ready_file, detail);
    if (err != SHOAL_OK)
        return failed(err, detail);
    err = sh_node_create(options, &node, detail);
    if (err == SHOAL_EINVAL || err == SHOAL_EROLE) {
        sh_ready_end(&ready);
        fprintf(stderr, "shoald: %s\n", detail);
        return EXIT_OPTIONS;
    }
    if (err != SHOAL_OK)
        goto out_ready;
    err = stopper_begin(&stopper);
    if (err != SHOAL_OK)
        goto out_destroy;
    err = live_on(&node, &stopper, &ready, detail);
    stopper_end(&stopper);
out_destroy:
    sh_node_destroy(node);
out_ready:
    sh_ready_end(&ready);
    if (err != SHOAL_OK)
        return failed(err, detail);
    SH_INFO(MODULE, "stopped");
    return EXIT_STOPPED;
}

static int log_begin(const struct sh_options *options)
{
    const char *bad;
    size_t bad_size;
    enum sh_log_format format =
        strcmp(options->log_format, "json") == 0 ? SH_LOG_AS_JSON : SH_LOG_AS_TEXT;
    enum shoal_err err = sh_log_levels_set(options->log_levels, &bad, &bad_size);
    if (err == SHOAL_OK)
        err = sh_log_output_set(options->log_file, format);
    if (err == SHOAL_OK)
        return EXIT_STOPPED;
    char detail[256];
    snprintf(detail, sizeof detail, "the log file %.200s can't be opened", options->log_file);
    return failed(err, detail);
}

int main(int argc, char **argv)
{
    struct sh_options options;
    struct sh_options_error error;
    if (take_word(argc, argv, "--help") || take_word(argc, argv, "-h")) {
        usage(stdout);
        return EXIT_STOPPED;
    }
    if (take_word(argc, argv, "--version")) {
        printf("shoald %s\n", SHOAL_VERSION);
        return EXIT_STOPPED;
    }
    enum shoal_err err = sh_options_init(&options);
    snprintf(error.text, sizeof error.text, "%s", shoal_err_text(SHOAL_ENOMEM));
    if (err == SHOAL_OK)
        err = sh_options_load(&options, &argc, argv, environ, &error);
    int status = EXIT_OPTIONS;
    if (err != SHOAL_OK) {
        fprintf(stderr, "shoald: %s\n", error.text);
    } else if (check_left(argc, argv)) {
        bool print = take_word(argc, argv, "--print-config");
        status = print ? EXIT_STOPPED : log_begin(&options);
        if (print)
            sh_options_print_json(&options, stdout);
        else if (status == EXIT_STOPPED) {
            if (sh_options_idle(&options, &error))
                SH_WARN(MODULE, "an option has no effect", SH_TEXT("option", error.text));
            status = run(&options);
        }
    }
    sh_options_destroy(&options);
    return status;
}
