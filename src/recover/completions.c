#include "recover/completions.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define ROOM_LEAST 1024u

struct client {
    uint64_t client; /* 0: nobody's place; mixed with the node that ran its requests */
    uint64_t acknowledged;
};

struct sh_completions {
    struct client *clients; /* by hash, with linear probing */
    size_t clients_count, clients_room;
    struct sh_completion *kept;
    size_t count, room;
};

enum shoal_err sh_completions_create(struct sh_completions **completions_out)
{
    struct sh_completions *made = calloc(1, sizeof *made);
    if (!made)
        return SHOAL_ENOMEM;
    made->clients_room = made->room = ROOM_LEAST;
    made->clients = calloc(made->clients_room, sizeof *made->clients);
    made->kept = malloc(made->room * sizeof *made->kept);
    if (!made->clients || !made->kept) {
        sh_completions_destroy(made);
        return SHOAL_ENOMEM;
    }
    *completions_out = made;
    return SHOAL_OK;
}

void sh_completions_destroy(struct sh_completions *completions)
{
    if (!completions)
        return;
    free(completions->clients);
    free(completions->kept);
    free(completions);
}

static struct client *place_of(struct client *clients, size_t room, uint64_t client)
{
    size_t at = sh_mix64(client) & (room - 1);
    while (clients[at].client && clients[at].client != client)
        at = (at + 1) & (room - 1);
    return &clients[at];
}

static enum shoal_err clients_grow(struct sh_completions *completions)
{
    size_t room = 2 * completions->clients_room;
    struct client *clients = calloc(room, sizeof *clients);
    if (!clients)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < completions->clients_room; i++) {
        const struct client *client = &completions->clients[i];
        if (client->client)
            *place_of(clients, room, client->client) = *client;
    }
    free(completions->clients);
    completions->clients = clients;
    completions->clients_room = room;
    return SHOAL_OK;
}

/* A client counts its requests to each node by themselves. Clients are random numbers, so none of them is another one, mixed so; but
 * some may make theirs up. */
static uint64_t client_of(const struct sh_completion *completion)
{
    uint64_t mixed = completion->client ^ completion->node * UINT64_C(0x9E3779B97F4A7C15);
    return mixed ? mixed : 1;
}

static bool is_acknowledged(const struct sh_completions *completions,
                            const struct sh_completion *completion)
{
    const struct client *client =
        place_of(completions->clients, completions->clients_room, client_of(completion));
    SH_ASSERT(client->client == client_of(completion));
    return completion->number <= client->acknowledged;
}

/* Drops what is known by now to be acknowledged; where that was little, there is room for twice as many. */
static enum shoal_err kept_sift(struct sh_completions *completions)
{
    size_t count = 0;
    for (size_t i = 0; i < completions->count; i++) {
        if (!is_acknowledged(completions, &completions->kept[i]))
            completions->kept[count++] = completions->kept[i];
    }
    completions->count = count;
    if (count <= completions->room / 2)
        return SHOAL_OK;
    struct sh_completion *kept =
        realloc(completions->kept, 2 * completions->room * sizeof *completions->kept);
    if (!kept)
        return SHOAL_ENOMEM;
    completions->kept = kept;
    completions->room *= 2;
    return SHOAL_OK;
}

enum shoal_err sh_completions_add(struct sh_completions *completions,
                                  const struct sh_completion *completion)
{
    enum shoal_err err = SHOAL_OK;
    SH_ASSERT(completion->client);
    if (2 * (completions->clients_count + 1) > completions->clients_room)
        err = clients_grow(completions);
    if (!err && completions->count == completions->room)
        err = kept_sift(completions);
    if (err)
        return err;
    struct client *client =
        place_of(completions->clients, completions->clients_room, client_of(completion));
    completions->clients_count += !client->client;
    client->client = client_of(completion);
    if (client->acknowledged < completion->acknowledged)
        client->acknowledged = completion->acknowledged;
    if (completion->number > client->acknowledged)
        completions->kept[completions->count++] = *completion;
    return SHOAL_OK;
}

bool sh_completions_some(const struct sh_completions *completions, size_t most, size_t *at_inout,
                         void (*each)(void *arg, const struct sh_completion *completion), void *arg)
{
    size_t left = completions->count - *at_inout, end = *at_inout + (left < most ? left : most);
    for (; *at_inout < end; ++*at_inout) {
        const struct sh_completion *completion = &completions->kept[*at_inout];
        if (!is_acknowledged(completions, completion))
            each(arg, completion);
    }
    return *at_inout < completions->count;
}

void sh_completions_each(const struct sh_completions *completions,
                         void (*each)(void *arg, const struct sh_completion *completion), void *arg)
{
    size_t at = 0;
    (void)sh_completions_some(completions, SIZE_MAX, &at, each, arg);
}
