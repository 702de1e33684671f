#include "bench/redis_client.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/log.h"
#include "bench/child.h"

static enum shoal_err lost(const char *what, int cause)
{
    SH_ERROR("bench", "connection to the Redis server failed", SH_TEXT("in", what),
             SH_TEXT("cause", strerror(cause)));
    return cause == EAGAIN ? SHOAL_ETIMEOUT : SHOAL_ECONNLOST;
}

enum shoal_err sh_redis_client_open(struct sh_redis_client *client, uint16_t port, size_t in_bytes,
                                    unsigned seconds)
{
    struct timeval limit = {.tv_sec = seconds};
    *client = (struct sh_redis_client){.fd = -1, .in = malloc(in_bytes), .in_room = in_bytes};
    if (!client->in)
        return SHOAL_ENOMEM;
    client->fd = sh_child_connect(port);
    if (client->fd < 0 || fcntl(client->fd, F_SETFL, 0) != 0 ||
        setsockopt(client->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0 ||
        setsockopt(client->fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) != 0)
        return lost("connect", errno);
    return SHOAL_OK;
}

enum shoal_err sh_redis_client_send(const struct sh_redis_client *client, const void *bytes,
                                    size_t size)
{
    for (const uint8_t *from = bytes; size > 0;) {
        ssize_t sent = send(client->fd, from, size, MSG_NOSIGNAL);
        if (sent <= 0)
            return lost("send", errno);
        from += sent;
        size -= (size_t)sent;
    }
    return SHOAL_OK;
}

enum shoal_err sh_redis_client_take(struct sh_redis_client *client,
                                    enum shoal_err (*each)(void *arg, const struct sh_resp *reply),
                                    void *arg)
{
    ssize_t got =
        recv(client->fd, client->in + client->in_size, client->in_room - client->in_size, 0);
    if (got <= 0)
        return lost("recv", got < 0 ? errno : ECONNRESET);
    client->in_size += (size_t)got;
    size_t taken = 0;
    for (;;) {
        struct sh_resp reply =
            sh_resp_read(sh_bytes_make(client->in + taken, client->in_size - taken));
        if (reply.kind == SH_RESP_PARTIAL)
            break;
        enum shoal_err err = each(arg, &reply);
        if (err)
            return err;
        taken += reply.taken;
    }
    client->in_size -= taken;
    memmove(client->in, client->in + taken, client->in_size);
    return SHOAL_OK;
}

enum shoal_err sh_redis_client_ask(const struct sh_redis_client *client, const char *command,
                                   char *text_out, size_t room)
{
    size_t used = 0;
    enum shoal_err err = sh_redis_client_send(client, command, strlen(command));
    text_out[0] = '\0';
    /* A bulk ends with an empty line, whatever is in it; these commands have no other answers of several lines. */
    while (!err && used + 1 < room && !strstr(text_out, text_out[0] == '$' ? "\r\n\r\n" : "\r\n")) {
        ssize_t got = recv(client->fd, text_out + used, room - 1 - used, 0);
        if (got <= 0)
            return lost("recv", got < 0 ? errno : ECONNRESET);
        used += (size_t)got;
        text_out[used] = '\0';
    }
    return err;
}

void sh_redis_client_close(struct sh_redis_client *client)
{
    if (client->fd >= 0)
        close(client->fd);
    free(client->in);
    *client = (struct sh_redis_client){.fd = -1};
}
