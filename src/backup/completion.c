#include "backup/completion.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/hash.h"
#include "msg/once.h"

#define NUMBER_BYTES 0x0f
#define HAS_VALUE 0x10
#define IS_CREATE 0x20
#define OF_ANOTHER 0x40
#define FLAGS 0x7f

static unsigned bytes_of(uint64_t number)
{
    unsigned bytes = 1;
    while (number >>= 8)
        bytes++;
    return bytes;
}

size_t sh_completion_put(const struct sh_completion *completion, uint8_t *into)
{
    uint64_t number = completion->number, ahead = number - completion->acknowledged;
    unsigned bytes = bytes_of(number);
    SH_ASSERT(completion->client && number > completion->acknowledged);
    SH_ASSERT(completion->node ? !completion->acknowledged : ahead <= SH_ONCE_WINDOW);
    struct sh_writer w = sh_writer_make(into, SH_COMPLETION_BYTES_MAX);
    sh_put8(&w, (uint8_t)(bytes | (completion->value ? HAS_VALUE : 0) |
                          (completion->is_create ? IS_CREATE : 0) |
                          (completion->node ? OF_ANOTHER : 0)));
    sh_put64(&w, completion->client);
    for (unsigned i = 0; i < bytes; i++)
        sh_put8(&w, (uint8_t)(number >> 8 * i));
    sh_put16(&w, completion->node ? completion->node : (uint16_t)ahead);
    sh_put64(&w, completion->chunk);
    if (completion->value)
        sh_put64(&w, completion->value);
    return (size_t)(w.at - into);
}

bool sh_completion_get(struct sh_bytes bytes, struct sh_completion *completion_out)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct sh_completion completion = {.client = 0};
    uint8_t flags = sh_get8(&r);
    unsigned number_bytes = flags & NUMBER_BYTES;
    completion.client = sh_get64(&r);
    if (flags & ~FLAGS || !number_bytes || number_bytes > 8)
        return false;
    for (unsigned i = 0; i < number_bytes; i++)
        completion.number |= (uint64_t)sh_get8(&r) << 8 * i;
    uint16_t ahead = sh_get16(&r);
    if (flags & OF_ANOTHER) {
        completion.node = ahead;
        ahead = 1; /* to be checked like the others */
    } else {
        completion.acknowledged = completion.number - ahead;
    }
    completion.chunk = sh_get64(&r);
    completion.is_create = flags & IS_CREATE;
    completion.value = flags & HAS_VALUE ? sh_get64(&r) : 0;
    bool is_node = !(flags & OF_ANOTHER) || completion.node;
    if (!sh_reader_done(&r) || !completion.client || !is_node || !ahead || ahead > SH_ONCE_WINDOW ||
        ahead > completion.number)
        return false;
    *completion_out = completion;
    return true;
}

/* --- What clients have acknowledged ------------------------------------------------------------ */

#define PLACES 8192u /* a power of two */

/* A client's place is taken from it by another one whose hash is the same: then what it has acknowledged is not known until its next
 * request. */
struct sh_acknowledged {
    struct place {
        uint64_t client; /* mixed with the owner */
        uint64_t number;
    } places[PLACES];
};

enum shoal_err sh_acknowledged_create(struct sh_acknowledged **acknowledged_out)
{
    struct sh_acknowledged *made = calloc(1, sizeof *made);
    if (!made)
        return SHOAL_ENOMEM;
    *acknowledged_out = made;
    return SHOAL_OK;
}

void sh_acknowledged_destroy(struct sh_acknowledged *acknowledged)
{
    free(acknowledged);
}

/* Clients are random numbers of 64 bits, so two pairs of client and owner do not pass for one. */
static uint64_t mixed(uint16_t owner, uint64_t client)
{
    return client ^ (uint64_t)owner * UINT64_C(0x9E3779B97F4A7C15);
}

void sh_acknowledged_note(void *arg, uint16_t owner, struct sh_bytes completion)
{
    struct sh_acknowledged *acknowledged = arg;
    struct sh_completion of;
    if (!sh_completion_get(completion, &of) || of.node)
        return;
    uint64_t client = mixed(owner, of.client);
    struct place *place = &acknowledged->places[sh_mix64(client) % PLACES];
    if (place->client != client)
        *place = (struct place){client, of.acknowledged};
    else if (place->number < of.acknowledged)
        place->number = of.acknowledged;
}

bool sh_acknowledged_has(void *arg, uint16_t owner, struct sh_bytes completion)
{
    const struct sh_acknowledged *acknowledged = arg;
    struct sh_completion of;
    if (!sh_completion_get(completion, &of) || of.node)
        return false;
    uint64_t client = mixed(owner, of.client);
    const struct place *place = &acknowledged->places[sh_mix64(client) % PLACES];
    return place->client == client && of.number <= place->number;
}
