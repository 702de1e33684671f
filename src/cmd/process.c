#include "cmd/process_int.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"

#define PAUSE_NS 5000000
#define DETAIL_MAX 256

uint64_t sh_process_started(pid_t pid)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "re");
    if (!file)
        return 0;
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = '\0';
    /* The program's name, in parentheses, may hold anything: fields count from behind it. */
    const char *at = strrchr(text, ')');
    if (!at || at[1] != ' ' || at[2] == 'Z' || at[2] == 'X')
        return 0;
    at += 2;
    /* `at` is field 3, the state; the start time is field 22. */
    for (int field = 3; field < 22 && at; field++) {
        at = strchr(at, ' ');
        at += at != NULL;
    }
    return at ? strtoull(at, NULL, 10) : 0;
}

bool sh_process_runs(pid_t pid, uint64_t started)
{
    return started != 0 && sh_process_started(pid) == started;
}

/* In the new process: puts everything in its place and runs the program; on failure sends errno
 * through the pipe, which closes by itself on success. */
_Noreturn static void child_run(const char *const *argv, int log, int pipe_end)
{
    int none = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigset_t mask;
    sigemptyset(&mask);
    if (setsid() >= 0 && none >= 0 && dup2(none, 0) >= 0 && dup2(log, 1) >= 0 &&
        dup2(log, 2) >= 0 && signal(SIGPIPE, SIG_DFL) != SIG_ERR &&
        signal(SIGINT, SIG_DFL) != SIG_ERR && signal(SIGTERM, SIG_DFL) != SIG_ERR &&
        sigprocmask(SIG_SETMASK, &mask, NULL) == 0) {
        /* A descriptor of the caller that is kept open over exec could keep its pipe open for as
         * long as the node lives. */
        close_range(3, ~0u, CLOSE_RANGE_CLOEXEC);
        /* exec takes pointers to what it does not change */
        execvp(argv[0], (char *const *)(uintptr_t)argv);
    }
    int why = errno;
    ssize_t written = write(pipe_end, &why, sizeof why);
    (void)written; /* without a reader there is nobody left to tell */
    _exit(127);
}

/* What exec failed with, or 0 once it has succeeded. */
static int exec_failure(int pipe_end)
{
    int why = 0;
    ssize_t size;
    do {
        size = read(pipe_end, &why, sizeof why);
    } while (size < 0 && errno == EINTR);
    return size == (ssize_t)sizeof why ? why : 0;
}

enum shoal_err sh_process_start(const char *const *argv, const char *log_path, pid_t *pid_out,
                                uint64_t *started_out, char *detail)
{
    int ends[2], why;
    int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (log < 0) {
        why = errno;
        snprintf(detail, DETAIL_MAX, "%.160s: %s", log_path, strerror(why));
        return why == ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
    }
    if (pipe2(ends, O_CLOEXEC) != 0) {
        snprintf(detail, DETAIL_MAX, "pipe: %s", strerror(errno));
        close(log);
        return SHOAL_ENOMEM;
    }
    pid_t pid = fork();
    if (pid == 0)
        child_run(argv, log, ends[1]);
    why = pid < 0 ? errno : 0;
    close(log);
    close(ends[1]);
    if (pid > 0)
        why = exec_failure(ends[0]);
    close(ends[0]);
    if (why != 0) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        snprintf(detail, DETAIL_MAX, "%.160s could not be run: %s", argv[0], strerror(why));
        return pid < 0 ? SHOAL_ENOMEM : SHOAL_EIO;
    }
    *pid_out = pid;
    *started_out = sh_process_started(pid);
    return SHOAL_OK;
}

bool sh_process_signal(pid_t pid, uint64_t started, int number)
{
    SH_ASSERT(pid > 0);
    /* The descriptor holds on to the process that the ID means now: if the start time still fits
     * after it was opened, the signal reaches that one and no other. */
    int fd = pidfd_open(pid, 0);
    if (fd < 0 && errno != ENOSYS)
        return false;
    bool ours = sh_process_runs(pid, started);
    if (ours)
        ours = fd >= 0 ? pidfd_send_signal(fd, number, NULL, 0) == 0 : kill(pid, number) == 0;
    if (fd >= 0)
        close(fd);
    return ours;
}

void sh_process_pause(void)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    nanosleep(&pause, NULL);
}

uint64_t sh_process_now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void sh_file_tail(const char *path, unsigned lines, char *text_out, size_t room)
{
    SH_ASSERT(room > 1);
    *text_out = '\0';
    FILE *file = fopen(path, "re");
    if (!file)
        return;
    long end = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : 0;
    long start = end > (long)room - 1 ? end - ((long)room - 1) : 0;
    size_t size = 0;
    if (fseek(file, start, SEEK_SET) == 0)
        size = fread(text_out, 1, room - 1, file);
    fclose(file);
    while (size > 0 && text_out[size - 1] == '\n')
        size--;
    text_out[size] = '\0';
    char *from = text_out + size;
    while (from > text_out && (from[-1] != '\n' || --lines > 0))
        from--;
    memmove(text_out, from, strlen(from) + 1);
}
