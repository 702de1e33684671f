/* shoal lock, shoal locks. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "cmd/chunk_int.h"
#include "cmd/command_int.h"
#include "cmd/process_int.h"
#include "cmd/text_int.h"

/* As shells say that there is no such command, or that it is none. */
#define EXIT_NO_COMMAND 127
#define EXIT_NO_PROGRAM 126

#define LEASE_NS UINT64_C(10000000000)
#define LEASE_LEAST_NS UINT64_C(100000000)
#define MS_NS UINT64_C(1000000)

/* A lock that the command holds. */
struct held {
    struct sh_cmd *cmd;
    shoal_cid cid;
    enum shoal_lock_mode mode;
    uint64_t lease_ns;
    uint64_t wait_ns;
    uint64_t end_ms;    /* when the lease is over at the earliest, unless it is extended */
    uint64_t extend_ms; /* when to extend it */
    pid_t pid;          /* the command's; 0: there is none */
    int pidfd;
};

static const char *mode_name(enum shoal_lock_mode mode)
{
    return mode == SHOAL_LOCK_READ ? "read" : "write";
}

/* --- Signals ------------------------------------------------------------------------------- */

/* What a handler tells poll of: a byte for each signal. */
static int signal_pipe[2] = {-1, -1};
static bool terminal_reaches_command;

static void on_signal(int number, siginfo_t *info, void *context)
{
    int saved = errno;
    uint8_t byte = (uint8_t)number;
    (void)context;
    /* What a terminal sends (the kernel, not a process), it sends to the command as well. */
    if (!terminal_reaches_command || info->si_code != SI_KERNEL) {
        ssize_t written = write(signal_pipe[1], &byte, 1);
        (void)written; /* a full pipe holds enough of them */
    }
    errno = saved;
}

static enum shoal_err signals_catch(bool has_command)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    terminal_reaches_command = has_command;
    if (pipe2(signal_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return SHOAL_EIO;
    sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &action, NULL);
    return SHOAL_OK;
}

/* The next signal that came, or 0. */
static int signal_next(void)
{
    uint8_t byte;
    return read(signal_pipe[0], &byte, 1) == 1 ? byte : 0;
}

/* --- The command --------------------------------------------------------------------------- */

/* In the new process: runs the command, or sends errno through the pipe. */
_Noreturn static void child_run(char *const *words, pid_t parent, int pipe_end)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        signal(numbers[i], SIG_DFL);
    /* If this program is killed, the lock falls, and the command must not go on without it. */
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() == parent)
        execvp(words[0], words);
    int why = errno;
    ssize_t written = write(pipe_end, &why, sizeof why);
    (void)written; /* without a reader there is nobody left to tell */
    _exit(EXIT_NO_COMMAND);
}

/* Starts the command; 0, or what failed. */
static int command_start(struct held *held)
{
    int ends[2], why = 0;
    pid_t self = getpid();
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return errno;
    pid_t pid = fork();
    if (pid == 0)
        child_run(held->cmd->words + 1, self, ends[1]);
    why = pid < 0 ? errno : 0;
    close(ends[1]);
    ssize_t size = 0;
    /* Closes by itself once exec has succeeded. */
    while (pid > 0 && (size = read(ends[0], &why, sizeof why)) < 0 && errno == EINTR)
        continue;
    close(ends[0]);
    if (why == 0 && (held->pidfd = pidfd_open(pid, 0)) < 0) {
        why = errno;
        kill(pid, SIGTERM);
    }
    if (why != 0 && pid > 0)
        waitpid(pid, NULL, 0);
    held->pid = why == 0 ? pid : 0;
    return why;
}

/* Its end, as a shell tells it. */
static int command_status(struct held *held)
{
    int status;
    pid_t waited;
    while ((waited = waitpid(held->pid, &status, 0)) < 0 && errno == EINTR)
        continue;
    SH_ASSERT(waited == held->pid);
    close(held->pidfd);
    held->pid = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* --- Holding ------------------------------------------------------------------------------- */

/* A lease that was granted between two looks at the clock has begun at the first at the earliest.
 */
static void lease_note(struct held *held, uint64_t begun_ms)
{
    held->end_ms = begun_ms + held->lease_ns / MS_NS;
    held->extend_ms = begun_ms + held->lease_ns / MS_NS / 3;
}

/* Extends the lease when it is time. An error: the lock is lost. */
static enum shoal_err lease_keep(struct held *held)
{
    uint64_t now = sh_process_now_ms();
    if (now < held->extend_ms)
        return SHOAL_OK;
    enum shoal_err err =
        shoal_lock_extend(held->cmd->store, held->cid, SHOAL_OWNER_HANDLE, held->lease_ns);
    if (err == SHOAL_OK) {
        lease_note(held, now);
        return SHOAL_OK;
    }
    /* A node that does not answer may do so before the lease is over. */
    bool may_hold = err == SHOAL_ETIMEOUT || err == SHOAL_EUNREACHABLE || err == SHOAL_EBUSY;
    now = sh_process_now_ms();
    held->extend_ms = now + 50;
    return may_hold && now < held->end_ms ? SHOAL_OK : err;
}

/* Waits until the command ends, or, without one, for a signal, and extends the lease meanwhile.
 * Returns the exit status. */
static int hold(struct held *held)
{
    struct pollfd waits[2] = {{.fd = signal_pipe[0], .events = POLLIN},
                              {.fd = held->pid ? held->pidfd : -1, .events = POLLIN}};
    enum shoal_err lost = SHOAL_OK;
    for (;;) {
        uint64_t now = sh_process_now_ms();
        uint64_t left_ms = held->extend_ms > now ? held->extend_ms - now : 0;
        int timeout = lost != SHOAL_OK ? -1 : left_ms > 60000 ? 60000 : (int)left_ms;
        (void)poll(waits, 2, timeout);
        if (held->pid && waits[1].revents) {
            int status = command_status(held);
            return lost == SHOAL_OK ? status : sh_chunk_fail(held->cmd, lost, held->cid);
        }
        int number = signal_next();
        if (number && !held->pid)
            return SH_EXIT_OK;
        if (number)
            kill(held->pid, number);
        if (lost != SHOAL_OK)
            continue;
        lost = lease_keep(held);
        if (lost != SHOAL_OK && !held->pid)
            return sh_chunk_fail(held->cmd, lost, held->cid);
        if (lost != SHOAL_OK) {
            fputs("shoal lock: the lock is lost; the command is ended\n", stderr);
            kill(held->pid, SIGTERM);
        }
    }
}

/* Says that the lock is held, where no command's output follows. */
static void held_say(const struct held *held)
{
    struct sh_cmd *cmd = held->cmd;
    char text[SH_CID_TEXT_MAX];
    sh_cid_format(held->cid, text);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "cid", text);
        sh_json_set_text(root, "mode", mode_name(held->mode));
        sh_json_set_u64(root, "lease_ns", held->lease_ns);
        (void)sh_cmd_answer(cmd, root);
    } else {
        fprintf(cmd->out, "%s is locked for %s until this command is interrupted.\n", text,
                held->mode == SHOAL_LOCK_READ ? "reading" : "writing");
    }
    fflush(cmd->out);
}

static int not_granted(const struct held *held, enum shoal_err err)
{
    char text[512], cid[SH_CID_TEXT_MAX];
    const char *detail = shoal_error_detail();
    snprintf(text, sizeof text, "%s%s%s", sh_cid_format(held->cid, cid), *detail ? ": " : "",
             detail);
    return sh_cmd_fail_hint(held->cmd, err, text,
                            "`shoal locks` shows who holds it; --wait TIME waits longer");
}

/* The statuses are a shell's: no such command, or one that is none. */
static int not_run(struct sh_cmd *cmd, int why)
{
    char text[512];
    bool is_missing = why == ENOENT;
    bool is_none = why == EACCES || why == ENOEXEC || why == ENOTDIR || why == EISDIR;
    snprintf(text, sizeof text, "%.200s could not be run: %s", cmd->words[1], strerror(why));
    if (!is_missing && !is_none)
        return sh_cmd_fail(cmd, SHOAL_EIO, "%s", text);
    (void)sh_cmd_fail_hint(cmd, is_missing ? SHOAL_ENONAME : SHOAL_EIO, text,
                           is_missing ? "check the command's name and PATH"
                                      : "check that it is a program, and its permissions");
    return is_missing ? EXIT_NO_COMMAND : EXIT_NO_PROGRAM;
}

static int take_and_hold(struct held *held)
{
    struct sh_cmd *cmd = held->cmd;
    bool has_command = cmd->word_count > 1;
    uint64_t begun = sh_process_now_ms();
    enum shoal_err err = shoal_lock(cmd->store, held->cid, SHOAL_OWNER_HANDLE, held->mode,
                                    held->lease_ns, held->wait_ns);
    /* It may have been granted long before now; from here on the time is known. */
    if (err == SHOAL_OK && held->wait_ns > 0) {
        begun = sh_process_now_ms();
        err = shoal_lock_extend(cmd->store, held->cid, SHOAL_OWNER_HANDLE, held->lease_ns);
    }
    if (err == SHOAL_ETIMEOUT || err == SHOAL_EBUSY)
        return not_granted(held, err);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, held->cid);
    lease_note(held, begun);
    err = signals_catch(has_command);
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "pipe: %s", strerror(errno));
    int why = has_command ? command_start(held) : 0;
    if (why != 0)
        return not_run(cmd, why);
    if (!has_command)
        held_say(held);
    int status = hold(held);
    /* When this fails the connection's end, which comes next, does the same. */
    err = shoal_unlock(cmd->store, held->cid, SHOAL_OWNER_HANDLE);
    (void)err;
    return status;
}

int sh_cmd_run_lock(struct sh_cmd *cmd)
{
    struct held held = {.cmd = cmd,
                        .mode = cmd->flags.read ? SHOAL_LOCK_READ : SHOAL_LOCK_WRITE,
                        .lease_ns = LEASE_NS,
                        .wait_ns = UINT64_MAX,
                        .pidfd = -1};
    if (sh_cid_parse(cmd->words[0], &held.cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    if (cmd->flags.read && cmd->flags.write)
        return sh_cmd_usage(cmd, "a lock is for reading or for writing");
    int status =
        sh_cmd_time(cmd, "lease", cmd->flags.lease, LEASE_LEAST_NS, UINT64_MAX, &held.lease_ns);
    if (status == SH_EXIT_OK)
        status = sh_cmd_time(cmd, "wait", cmd->flags.wait, 0, UINT64_MAX, &held.wait_ns);
    if (held.lease_ns > SHOAL_LEASE_MAX_NS)
        held.lease_ns = SHOAL_LEASE_MAX_NS;
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    return status == SH_EXIT_OK ? take_and_hold(&held) : status;
}

/* --- locks --------------------------------------------------------------------------------- */

struct listing {
    struct sh_cmd *cmd;
    struct sh_json *locks;
    uint64_t held, waiting;
    bool has_header;
};

/* Only once there is something to tell: a node that does not answer has no table. */
static void header_print(struct listing *listing)
{
    if (!listing->has_header && !listing->cmd->flags.json)
        fprintf(listing->cmd->out, "%-22s %-6s %-6s %6s %20s %14s\n", "CHUNK", "MODE", "STATE",
                "NODE", "OWNER", "LEFT");
    listing->has_header = true;
}

static bool lock_print(void *arg, const struct shoal_lock_info *lock)
{
    struct listing *listing = arg;
    struct sh_cmd *cmd = listing->cmd;
    char cid[SH_CID_TEXT_MAX];
    sh_cid_format(lock->cid, cid);
    header_print(listing);
    listing->held += !lock->is_waiting;
    listing->waiting += lock->is_waiting;
    if (!cmd->flags.json) {
        char left[32] = "no end";
        if (lock->left_ns != UINT64_MAX)
            snprintf(left, sizeof left, "%.3f s", (double)lock->left_ns / 1e9);
        fprintf(cmd->out, "%-22s %-6s %-6s %6u %20" PRIu64 " %14s\n", cid, mode_name(lock->mode),
                lock->is_waiting ? "waits" : "holds", (unsigned)lock->node.v, lock->owner.v, left);
        return true;
    }
    struct sh_json *row = sh_json_object();
    sh_json_set_text(row, "cid", cid);
    sh_json_set_text(row, "mode", mode_name(lock->mode));
    sh_json_set_bool(row, "waiting", lock->is_waiting);
    sh_json_set_u64(row, "node", lock->node.v);
    sh_json_set_u64(row, "owner", lock->owner.v);
    if (lock->left_ns != UINT64_MAX)
        sh_json_set_u64(row, "left_ns", lock->left_ns);
    sh_json_set_u64(row, "holders", lock->holders);
    sh_json_set_u64(row, "waiters", lock->waiters);
    sh_json_append(listing->locks, row);
    return true;
}

static enum shoal_err locks_list(void *arg, shoal_nid nid)
{
    struct listing *listing = arg;
    return shoal_locks(listing->cmd->store, nid, lock_print, listing);
}

int sh_cmd_run_locks(struct sh_cmd *cmd)
{
    shoal_nid only;
    int status = sh_cmd_open_for_node(cmd, &only);
    if (status != SH_EXIT_OK)
        return status;
    struct listing listing = {.cmd = cmd, .locks = sh_json_array()};
    status = sh_cmd_each_peer(cmd, only, locks_list, &listing);
    if (status == SH_EXIT_OK)
        header_print(&listing);
    if (status == SH_EXIT_OK && cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "locks", listing.locks);
        sh_json_set_u64(root, "held", listing.held);
        sh_json_set_u64(root, "waiting", listing.waiting);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(listing.locks);
    return status;
}
