#include "msg/once.h"

#include <stdlib.h>

#include "base/chunk_index.h"
#include "msg/msg_int.h"

#define BUCKETS 4096
#define RESULTS_LEAST 16
#define CLIENTS_MAX_USUAL 65536
#define RESULTS_MAX_USUAL (1u << 21)

struct client;

struct kept {
    struct sh_chunk_link about; /* linked while it may be asked for, if it is about anything */
    struct client *client;
    uint64_t number; /* 0: none */
    uint64_t value;
    enum shoal_err err;
};

_Static_assert(sizeof(struct kept) == 56, "the header states the memory of a result");
_Static_assert(offsetof(struct kept, about) == 0, "a link is taken for its result");

struct client {
    uint64_t id;
    uint64_t acknowledged; /* highest heard of: numbers up to it are forgotten */
    uint64_t highest;      /* number whose result was kept */
    uint64_t heard_ns;
    struct client *bucket_next;
    struct client *older, *newer; /* by heard_ns */
    struct kept *kept;            /* a number's place is its lowest bits */
    uint32_t room;                /* a power of two */
};

struct sh_once {
    const struct sh_msg *msg;
    struct sh_once_config config;
    uint32_t clients, results;
    struct client *oldest, *newest;
    struct client *buckets[BUCKETS];
    struct sh_chunk_index by_chunk;
};

void sh_once_id_put(struct sh_writer *w, const struct sh_once_id *id)
{
    sh_put64(w, id->client);
    sh_put64(w, id->number);
    sh_put64(w, id->acknowledged);
}

/* --- Clients ------------------------------------------------------------------------------- */

enum shoal_err sh_once_create(const struct sh_msg *msg, const struct sh_once_config *config,
                              struct sh_once **once_out)
{
    struct sh_once *once = calloc(1, sizeof *once);
    if (!once)
        return SHOAL_ENOMEM;
    once->msg = msg;
    once->config = *config;
    if (once->config.clients_max == 0)
        once->config.clients_max = CLIENTS_MAX_USUAL;
    if (once->config.results_max == 0)
        once->config.results_max = RESULTS_MAX_USUAL;
    *once_out = once;
    return SHOAL_OK;
}

/* Client IDs are random: any bits will do, but others may make theirs up. */
static struct client **bucket_of(struct sh_once *once, uint64_t id)
{
    return &once->buckets[(id * UINT64_C(0x9E3779B97F4A7C15)) >> 52];
}

static void unlink_age(struct sh_once *once, struct client *client)
{
    *(client->older ? &client->older->newer : &once->oldest) = client->newer;
    *(client->newer ? &client->newer->older : &once->newest) = client->older;
}

static void link_newest(struct sh_once *once, struct client *client)
{
    client->older = once->newest;
    client->newer = NULL;
    *(once->newest ? &once->newest->newer : &once->oldest) = client;
    once->newest = client;
}

static void client_free(struct sh_once *once, struct client *client)
{
    struct client **at = bucket_of(once, client->id);
    while (*at != client)
        at = &(*at)->bucket_next;
    *at = client->bucket_next;
    unlink_age(once, client);
    once->clients--;
    once->results -= client->room;
    for (uint32_t i = 0; i < client->room; i++)
        sh_chunk_unlink(&client->kept[i].about);
    free(client->kept);
    free(client);
}

void sh_once_destroy(struct sh_once *once)
{
    while (once && once->oldest)
        client_free(once, once->oldest);
    free(once);
}

void sh_once_count(const struct sh_once *once, uint32_t *clients_out, uint32_t *results_out)
{
    *clients_out = once->clients;
    *results_out = once->results;
}

static struct client *client_find(struct sh_once *once, uint64_t id)
{
    struct client *client = *bucket_of(once, id);
    while (client && client->id != id)
        client = client->bucket_next;
    return client;
}

static enum shoal_err client_add(struct sh_once *once, const struct sh_once_id *id,
                                 struct client **client_out)
{
    if (once->clients >= once->config.clients_max ||
        once->results + RESULTS_LEAST > once->config.results_max)
        return SHOAL_ELIMIT;
    struct client *client = calloc(1, sizeof *client);
    struct kept *kept = calloc(RESULTS_LEAST, sizeof *kept);
    if (!client || !kept) {
        free(client);
        free(kept);
        return SHOAL_ENOMEM;
    }
    struct client **bucket = bucket_of(once, id->client);
    *client = (struct client){.id = id->client, .bucket_next = *bucket, .kept = kept};
    client->room = RESULTS_LEAST;
    *bucket = client;
    link_newest(once, client);
    once->clients++;
    once->results += RESULTS_LEAST;
    *client_out = client;
    return SHOAL_OK;
}

static void kept_move(struct sh_once *once, struct kept *from, struct kept *to)
{
    *to = *from;
    to->about.from = NULL;
    if (!from->about.from)
        return;
    sh_chunk_unlink(&from->about);
    sh_chunk_link(&once->by_chunk, &to->about, from->about.chunk);
}

/* Makes room for all numbers that are open, up to the given one. */
static enum shoal_err client_grow(struct sh_once *once, struct client *client, uint64_t number)
{
    uint32_t room = client->room;
    while (number - client->acknowledged > room)
        room *= 2;
    if (room == client->room)
        return SHOAL_OK;
    SH_ASSERT(room <= SH_ONCE_WINDOW);
    if (once->results + (room - client->room) > once->config.results_max)
        return SHOAL_ELIMIT;
    struct kept *kept = calloc(room, sizeof *kept);
    if (!kept)
        return SHOAL_ENOMEM;
    for (uint32_t i = 0; i < client->room; i++) {
        struct kept *old = &client->kept[i];
        if (old->number > client->acknowledged)
            kept_move(once, old, &kept[old->number & (room - 1)]);
    }
    free(client->kept);
    client->kept = kept;
    once->results += room - client->room;
    client->room = room;
    return SHOAL_OK;
}

/* --- Requests ------------------------------------------------------------------------------ */

/* Forgets clients that were not heard of for long; two for each request, so that no request pays
 * for all of them and they can't pile up. */
static void forget_old(struct sh_once *once, uint64_t now_ns)
{
    for (int i = 0; i < 2 && once->oldest; i++) {
        if (now_ns - once->oldest->heard_ns < SH_ONCE_KEEP_NS)
            return;
        client_free(once, once->oldest);
    }
}

static struct kept *place_of(struct client *client, uint64_t number)
{
    return &client->kept[number & (client->room - 1)];
}

/* Numbers up to it are not asked for any more. No further than results were kept. */
static void acknowledge(struct client *client, uint64_t number)
{
    while (client->acknowledged < number && client->acknowledged < client->highest) {
        struct kept *kept = place_of(client, ++client->acknowledged);
        if (kept->number == client->acknowledged)
            sh_chunk_unlink(&kept->about);
    }
    if (number > client->acknowledged)
        client->acknowledged = number;
}

/* The client of a request, with room for its number. */
static enum shoal_err client_for(struct sh_once *once, const struct sh_once_id *id,
                                 struct client **client_out)
{
    uint64_t now = sh_now(&once->msg->config.env.clock);
    forget_old(once, now);
    struct client *client = client_find(once, id->client);
    enum shoal_err err = client ? SHOAL_OK : client_add(once, id, &client);
    if (err != SHOAL_OK)
        return err;
    client->heard_ns = now;
    unlink_age(once, client);
    link_newest(once, client);
    acknowledge(client, id->acknowledged);
    *client_out = client;
    if (id->number <= client->acknowledged)
        return SHOAL_ECANCELED;
    return client_grow(once, client, id->number);
}

enum sh_once_state sh_once_begin(struct sh_once *once, struct sh_msg_in *in,
                                 struct sh_once_id *id_out, struct sh_once_result *result_out)
{
    struct sh_once_id id = {.client = sh_get64(&in->payload)};
    id.number = sh_get64(&in->payload);
    id.acknowledged = sh_get64(&in->payload);
    struct client *client = NULL;
    enum shoal_err err = SHOAL_EPROTO;
    const char *text = "a number outside the window, or no number";
    if (sh_reader_ok(&in->payload) && in->is_request && id.client != 0 &&
        id.number > id.acknowledged && id.number - id.acknowledged <= SH_ONCE_WINDOW) {
        err = client_for(once, &id, &client);
        text = err == SHOAL_ELIMIT ? "too many clients whose results are kept" : NULL;
    }
    if (err != SHOAL_OK) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
        return SH_ONCE_REFUSED;
    }
    *id_out = id;
    const struct kept *kept = place_of(client, id.number);
    if (kept->number != id.number)
        return SH_ONCE_FIRST;
    *result_out = (struct sh_once_result){kept->err, kept->value, kept->about.chunk};
    sh_count(&in->msg->repeats, 1);
    return SH_ONCE_REPEATED;
}

void sh_once_end(struct sh_once *once, const struct sh_once_id *id,
                 const struct sh_once_result *result)
{
    struct client *client = client_find(once, id->client);
    SH_ASSERT(client && id->number > client->acknowledged);
    struct kept *kept = place_of(client, id->number);
    /* The window: what lay here before has been acknowledged. */
    SH_ASSERT(kept->number <= client->acknowledged);
    SH_ASSERT(!kept->about.from);
    *kept = (struct kept){.about = {.chunk = result->about},
                          .client = client,
                          .number = id->number,
                          .value = result->value,
                          .err = result->err};
    if (result->about)
        sh_chunk_link(&once->by_chunk, &kept->about, result->about);
    if (id->number > client->highest)
        client->highest = id->number;
}

enum shoal_err sh_once_enter(struct sh_once *once, const struct sh_once_id *id,
                             const struct sh_once_result *result)
{
    struct client *client;
    SH_ASSERT(id->client && id->number > id->acknowledged &&
              id->number - id->acknowledged <= SH_ONCE_WINDOW);
    enum shoal_err err = client_for(once, id, &client);
    if (err == SHOAL_ECANCELED)
        return SHOAL_OK;
    if (!err && place_of(client, id->number)->number != id->number)
        sh_once_end(once, id, result);
    return err;
}

bool sh_once_find(struct sh_once *once, uint64_t client, uint64_t number,
                  struct sh_once_result *result_out)
{
    struct client *of = client_find(once, client);
    const struct kept *kept = of && number > of->acknowledged ? place_of(of, number) : NULL;
    if (!kept || kept->number != number)
        return false;
    *result_out = (struct sh_once_result){kept->err, kept->value, kept->about.chunk};
    return true;
}

struct each {
    void (*each)(void *arg, const struct sh_once_id *id, const struct sh_once_result *result);
    void *arg;
};

static void tell(void *arg, const struct sh_chunk_link *link)
{
    const struct each *to = arg;
    const struct kept *kept = (const struct kept *)link;
    struct sh_once_id id = {kept->client->id, kept->number, kept->client->acknowledged};
    struct sh_once_result result = {kept->err, kept->value, link->chunk};
    to->each(to->arg, &id, &result);
}

void sh_once_each(const struct sh_once *once, uint64_t first, uint64_t last,
                  void (*each)(void *arg, const struct sh_once_id *id,
                               const struct sh_once_result *result),
                  void *arg)
{
    struct each to = {each, arg};
    sh_chunk_index_each(&once->by_chunk, first, last, tell, &to);
}

/* --- Numbers ------------------------------------------------------------------------------- */

static uint64_t bit_of(uint64_t number)
{
    return UINT64_C(1) << (number % 64);
}

static uint64_t *word_of(struct sh_once_numbers *numbers, uint64_t number)
{
    return &numbers->done[number % SH_ONCE_WINDOW / 64];
}

uint64_t sh_once_number(struct sh_once_numbers *numbers)
{
    SH_ASSERT(numbers->last - numbers->finished <= SH_ONCE_WINDOW);
    if (numbers->last - numbers->finished == SH_ONCE_WINDOW)
        return 0;
    return ++numbers->last;
}

void sh_once_finish(struct sh_once_numbers *numbers, uint64_t number)
{
    SH_ASSERT(number > numbers->finished && number <= numbers->last);
    SH_ASSERT(!(*word_of(numbers, number) & bit_of(number)));
    *word_of(numbers, number) |= bit_of(number);
    while (numbers->finished < numbers->last) {
        uint64_t next = numbers->finished + 1;
        if (!(*word_of(numbers, next) & bit_of(next)))
            return;
        *word_of(numbers, next) &= ~bit_of(next);
        numbers->finished = next;
    }
}
