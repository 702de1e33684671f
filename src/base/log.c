#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/lock.h"
#include "base/log_int.h"

struct output {
    int fd;
    bool may_signal; /* a pipe or socket, whose other end may be closed: SIGPIPE */
    enum sh_log_format format;
};

struct log {
    struct sh_lock lock; /* everything below but dropped */
    struct output output;
    uint64_t (*wall_ns)(void *arg); /* NULL: the system's clock */
    void *wall_arg;
    uint64_t failing; /* lines lost since writing last worked; not 0: said so on stderr */
    bool torn;        /* the last line was written in part */
    uint16_t node;
    _Atomic uint64_t dropped;
};

static struct log state = {
    .lock = SH_LOCK_STATIC(SH_LOCK_LOG),
    /* What stderr is, nobody has looked at yet: assume the worst. */
    .output = {.fd = STDERR_FILENO, .may_signal = true, .format = SH_LOG_AS_TEXT},
};

static const char *describe(int cause)
{
    const char *text = strerrordesc_np(cause);
    return text ? text : "unknown cause";
}

static bool may_signal(int fd)
{
    struct stat stat;
    return fstat(fd, &stat) != 0 || S_ISFIFO(stat.st_mode) || S_ISSOCK(stat.st_mode);
}

enum shoal_err sh_log_output_set(const char *path, enum sh_log_format format)
{
    bool to_stderr = !path || *path == '\0' || strcmp(path, "-") == 0;
    int fd = STDERR_FILENO;
    if (!to_stderr)
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0640);
    if (fd < 0) {
        int cause = errno;
        SH_ERROR("base", "log file cannot be opened", SH_TEXT("path", path),
                 SH_TEXT("cause", describe(cause)));
        return cause == ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
    }
    struct output output = {.fd = fd, .may_signal = may_signal(fd), .format = format};
    sh_lock_take(&state.lock);
    int old_fd = state.output.fd;
    state.output = output;
    state.torn = false;
    sh_lock_release(&state.lock);
    if (old_fd != STDERR_FILENO)
        (void)close(old_fd); /* each line was written at once: nothing is lost with it */
    return SHOAL_OK;
}

void sh_log_node_set(uint16_t nid)
{
    sh_lock_take(&state.lock);
    state.node = nid;
    sh_lock_release(&state.lock);
}

void sh_log_clock_set(uint64_t (*wall_ns)(void *arg), void *arg)
{
    sh_lock_take(&state.lock);
    state.wall_ns = wall_ns;
    state.wall_arg = arg;
    sh_lock_release(&state.lock);
}

uint64_t sh_log_dropped(void)
{
    /* relaxed: a count that publishes nothing. */
    return atomic_load_explicit(&state.dropped, memory_order_relaxed);
}

static uint64_t wall_now(void)
{
    if (state.wall_ns)
        return state.wall_ns(state.wall_arg);
    struct timespec now;
    int failure = clock_gettime(CLOCK_REALTIME, &now);
    SH_ASSERT(failure == 0);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Writes all of it; 0, or what went wrong. One call, unless the kernel takes only a part. */
static int write_whole(int fd, const char *bytes, size_t size, bool *torn_out)
{
    size_t written = 0;
    while (written < size) {
        ssize_t part = write(fd, bytes + written, size - written);
        if (part < 0 && errno == EINTR)
            continue;
        if (part <= 0) {
            *torn_out = written > 0;
            return part < 0 ? errno : EIO;
        }
        written += (size_t)part;
    }
    return 0;
}

/* A closed pipe must not kill the program through the log, and what the program does about
 * SIGPIPE is its own business: block it here, and take back the one that we caused. */
static int write_signal_free(const struct output *output, const char *bytes, size_t size,
                             bool *torn_out)
{
    if (!output->may_signal)
        return write_whole(output->fd, bytes, size, torn_out);
    sigset_t pipe_only, old, pending;
    sigemptyset(&pipe_only);
    sigaddset(&pipe_only, SIGPIPE);
    sigemptyset(&pending);
    (void)sigpending(&pending);
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
    int cause = write_whole(output->fd, bytes, size, torn_out);
    if (cause == EPIPE && !sigismember(&pending, SIGPIPE)) {
        static const struct timespec now = {0, 0};
        while (sigtimedwait(&pipe_only, NULL, &now) < 0 && errno == EINTR)
            continue;
    }
    (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
    return cause;
}

/* To stderr and past the log. If that fails too, there is nobody left to tell. */
static void say(const char *text)
{
    static const struct output last_resort = {.fd = STDERR_FILENO, .may_signal = true};
    bool torn = false;
    (void)write_signal_free(&last_resort, text, strlen(text), &torn);
}

static void lose_line(int cause)
{
    if (state.failing++ == 0) {
        char text[160];
        snprintf(text, sizeof text, "shoal: the log cannot be written (%s); lines are dropped\n",
                 describe(cause));
        say(text);
    }
    /* relaxed: a count that publishes nothing. */
    atomic_fetch_add_explicit(&state.dropped, 1, memory_order_relaxed);
}

static void note_recovery(void)
{
    char text[120];
    snprintf(text, sizeof text, "shoal: the log is written again; %" PRIu64 " lines were lost\n",
             state.failing);
    say(text);
    state.failing = 0;
}

static void write_line(const struct sh_log_line *line)
{
    sh_lock_assert_held(&state.lock);
    bool torn = false;
    int cause = 0;
    /* The rest of a line that was torn must not swallow this one. */
    if (state.torn)
        cause = write_signal_free(&state.output, "\n", 1, &torn);
    if (cause == 0) {
        state.torn = false;
        cause = write_signal_free(&state.output, line->text, line->size, &torn);
        state.torn = torn;
    }
    if (cause != 0)
        lose_line(cause);
    else if (state.failing > 0)
        note_recovery();
}

void sh_log_write(enum sh_log_level level, const char *module, const char *event,
                  const struct sh_field *fields, size_t field_count)
{
    SH_ASSERT(module != NULL && event != NULL);
    SH_ASSERT(field_count <= SH_LOG_FIELDS_MAX);
    int saved_errno = errno; /* callers log between a failed call and looking at its errno */
    struct sh_log_line line;
    sh_lock_take(&state.lock);
    struct sh_log_event whole = {
        .wall_ns = wall_now(),
        .level = level,
        .node = state.node,
        .module = module,
        .event = event,
        .fields = fields,
        .field_count = field_count,
    };
    sh_log_line_make(&line, &whole, state.output.format);
    write_line(&line);
    sh_lock_release(&state.lock);
    errno = saved_errno;
}
