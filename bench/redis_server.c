#include "bench/redis_server.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

#define START_TRIES 4

struct program {
    char path[4096];
    const char *folder; /* of its append-only file; NULL: there is none */
};

/* Finds redis-server in PATH. */
static enum shoal_err program_find(struct program *program)
{
    const char *folders = getenv("PATH");
    while (folders && *folders) {
        size_t length = strcspn(folders, ":");
        snprintf(program->path, sizeof program->path, "%.*s/redis-server", (int)length, folders);
        if (length > 0 && access(program->path, X_OK) == 0)
            return SHOAL_OK;
        folders += length + (folders[length] == ':');
    }
    SH_ERROR("bench", "redis-server is not in PATH; install it (apt install redis-server)");
    return SHOAL_ENONAME;
}

/* A sh_child_main: becomes the server, silent, and with nothing on disk but the file that is wanted. The port was free a moment
 * ago; should another program take it meanwhile, the server ends and the caller tries again. */
static void program_run(void *arg, int report_fd)
{
    struct program *program = arg;
    uint16_t port = 0;
    int listener = sh_child_listen(&port);
    int nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (listener < 0 || nowhere < 0 || chdir("/") != 0)
        return;
    close(listener);
    char text[8];
    snprintf(text, sizeof text, "%u", port);
    for (int fd = 0; fd < 3; fd++)
        (void)dup2(nowhere, fd);
    sh_child_report(report_fd, port);
    const char *folder = program->folder;
    execl(program->path, "redis-server", "--port", text, "--bind", "127.0.0.1", "--save", "",
          "--dir", folder ? folder : "/", "--appendonly", folder ? "yes" : "no", "--appendfsync",
          "everysec", "--daemonize", "no", (char *)NULL);
}

/* True when the server answers PING. */
static bool server_answers(uint16_t port)
{
    int fd = sh_child_connect(port);
    if (fd < 0)
        return false;
    char answer[16] = "";
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    bool answers = send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 && poll(&wait, 1, 1000) == 1 &&
                   recv(fd, answer, sizeof answer - 1, 0) >= 5 && strncmp(answer, "+PONG", 5) == 0;
    close(fd);
    return answers;
}

enum shoal_err sh_redis_server_start(enum sh_placement placement, struct sh_child *server_out)
{
    return sh_redis_server_start_logged(placement, NULL, SH_REDIS_START_NS, server_out);
}

enum shoal_err sh_redis_server_start_logged(enum sh_placement placement, const char *folder,
                                            uint64_t timeout_ns, struct sh_child *server_out)
{
    struct program program = {.folder = folder};
    enum shoal_err err = program_find(&program);
    uint64_t deadline_ns = sh_bench_now_ns() + timeout_ns;
    for (int i = 0; !err && i < START_TRIES; i++) {
        struct sh_child server;
        err = sh_child_start(program_run, &program, placement, &server);
        while (!err && sh_child_lives(&server) && sh_bench_now_ns() < deadline_ns) {
            if (server_answers(server.port)) {
                *server_out = server;
                return SHOAL_OK;
            }
            (void)poll(NULL, 0, 2);
        }
        if (!err)
            sh_child_stop(&server);
    }
    if (err)
        return err;
    SH_ERROR("bench", "redis-server does not start", SH_TEXT("program", program.path));
    return SHOAL_EUNREACHABLE;
}
