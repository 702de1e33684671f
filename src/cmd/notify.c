#include "cmd/notify_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"

#define DETAIL_MAX 256

enum shoal_err sh_notify_send(const char *state)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    if (!name || !*name)
        return SHOAL_OK;
    size_t size = strlen(name);
    if ((*name != '/' && *name != '@') || size >= sizeof address.sun_path)
        return SHOAL_EADDRESS;
    memcpy(address.sun_path, name, size);
    if (*name == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return SHOAL_EIO;
    ssize_t sent = sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size));
    close(fd);
    return sent == (ssize_t)strlen(state) ? SHOAL_OK : SHOAL_EIO;
}

static enum shoal_err io_failed(const char *path, int why, char *detail)
{
    snprintf(detail, DETAIL_MAX, "ready file %.160s: %s", path, strerror(why));
    return why == ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
}

enum shoal_err sh_ready_begin(struct sh_ready *ready, const char *path, char *detail)
{
    *ready = (struct sh_ready){.path = path, .fd = -1};
    if (*path == '\0')
        return SHOAL_OK;
    snprintf(ready->temporary, sizeof ready->temporary, "%s.%ld.new", path, (long)getpid());
    ready->fd = open(ready->temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (ready->fd < 0)
        return io_failed(path, errno, detail);
    if (unlink(path) != 0 && errno != ENOENT) {
        int why = errno;
        sh_ready_end(ready);
        return io_failed(path, why, detail);
    }
    return SHOAL_OK;
}

enum shoal_err sh_ready_publish(struct sh_ready *ready, shoal_nid nid, const char *address,
                                char *detail)
{
    char text[256];
    if (ready->fd < 0)
        return SHOAL_OK;
    int size = snprintf(text, sizeof text, "nid=%u\naddress=%s\npid=%ld\n", (unsigned)nid.v,
                        address, (long)getpid());
    SH_ASSERT(size > 0 && (size_t)size < sizeof text);
    ssize_t written = write(ready->fd, text, (size_t)size);
    int why = written < 0 ? errno : ENOSPC;
    if (written != size || rename(ready->temporary, ready->path) != 0) {
        why = written == size ? errno : why;
        return io_failed(ready->path, why, detail);
    }
    close(ready->fd);
    ready->fd = -1;
    ready->temporary[0] = '\0';
    return SHOAL_OK;
}

void sh_ready_end(struct sh_ready *ready)
{
    if (!ready->path || *ready->path == '\0')
        return;
    if (ready->fd >= 0)
        close(ready->fd);
    ready->fd = -1;
    /* What was published goes by its own name, what was not by the temporary one. */
    unlink(ready->temporary[0] ? ready->temporary : ready->path);
}
