#include "bench/child.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"

#define REPORT_TIMEOUT_MS 30000
#define STOP_TIMEOUT_NS UINT64_C(10000000000)

/* Reads the port that the child reports. */
static enum shoal_err port_await(int report_fd, uint16_t *port_out)
{
    struct pollfd wait = {.fd = report_fd, .events = POLLIN};
    int ready = poll(&wait, 1, REPORT_TIMEOUT_MS);
    if (ready == 0) {
        SH_ERROR("bench", "server process does not report its port");
        return SHOAL_ETIMEOUT;
    }
    uint16_t port = 0;
    if (ready < 0 || read(report_fd, &port, sizeof port) != (ssize_t)sizeof port) {
        SH_ERROR("bench", "server process ended before it served");
        return SHOAL_EIO;
    }
    *port_out = port;
    return SHOAL_OK;
}

_Noreturn static void child_run(sh_child_main main, void *arg, enum sh_placement placement,
                                int report_fd, pid_t parent)
{
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(1);
    (void)signal(SIGTERM, SIG_DFL);
    sh_bench_pin(placement, 1);
    main(arg, report_fd);
    _exit(1);
}

enum shoal_err sh_child_start(sh_child_main main, void *arg, enum sh_placement placement,
                              struct sh_child *child_out)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        SH_ERROR("bench", "no pipe to a server process", SH_TEXT("cause", strerror(errno)));
        return SHOAL_EIO;
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child_run(main, arg, placement, ends[1], parent);
    }
    close(ends[1]);
    enum shoal_err err = SHOAL_OK;
    struct sh_child child = {.pid = pid};
    if (pid < 0) {
        SH_ERROR("bench", "no server process", SH_TEXT("cause", strerror(errno)));
        err = SHOAL_EIO;
        goto out_close;
    }
    err = port_await(ends[0], &child.port);
    if (err)
        sh_child_stop(&child);
    else
        *child_out = child;
out_close:
    close(ends[0]);
    return err;
}

void sh_child_report(int report_fd, uint16_t port)
{
    ssize_t wrote = write(report_fd, &port, sizeof port);
    SH_ASSERT(wrote == (ssize_t)sizeof port);
    close(report_fd);
}

void sh_child_stop(struct sh_child *child)
{
    if (child->pid <= 0)
        return;
    (void)kill(child->pid, SIGTERM);
    uint64_t deadline_ns = sh_bench_now_ns() + STOP_TIMEOUT_NS;
    while (waitpid(child->pid, NULL, WNOHANG) == 0) {
        (void)poll(NULL, 0, 1);
        if (sh_bench_now_ns() > deadline_ns) {
            (void)kill(child->pid, SIGKILL);
            (void)waitpid(child->pid, NULL, 0);
            break;
        }
    }
    child->pid = 0;
}

bool sh_child_lives(const struct sh_child *child)
{
    /* Without WNOWAIT the end would be consumed here and stop would wait for a stranger. */
    siginfo_t info = {.si_pid = 0};
    return child->pid > 0 &&
           waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

uint64_t sh_child_cpu_ns(const struct sh_child *child)
{
    clockid_t clock;
    struct timespec used;
    if (child->pid <= 0 || clock_getcpuclockid(child->pid, &clock) != 0 ||
        clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * UINT64_C(1000000000) + (uint64_t)used.tv_nsec;
}

uint64_t sh_children_cpu_ns(const struct sh_child *children, unsigned count)
{
    uint64_t used_ns = sh_bench_cpu_ns();
    for (unsigned i = 0; i < count; i++)
        used_ns += sh_child_cpu_ns(&children[i]);
    return used_ns;
}

static struct sockaddr_in loopback(uint16_t port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
}

int sh_child_listen(uint16_t *port_out)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in address = loopback(0);
    socklen_t size = sizeof address;
    if (bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, SOMAXCONN) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0) {
        close(fd);
        return -1;
    }
    *port_out = ntohs(address.sin_port);
    return fd;
}

int sh_child_connect(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct sockaddr_in address = loopback(port);
    int on = 1;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) != 0 ||
        fcntl(fd, F_SETFL, O_NONBLOCK) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}
