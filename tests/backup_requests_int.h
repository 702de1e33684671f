/* A test keeps of numbered requests: which change each is of, and its outcome. After a crash a request's completion record is
 * there if, and only if, its change is. */
#ifndef TESTS_BACKUP_REQUESTS_INT_H
#define TESTS_BACKUP_REQUESTS_INT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "backup/backup.h"
#include "msg/once.h"

#define REQUESTS_CLIENTS 5u
#define REQUESTS_MAX 2048u /* of a client in a life */

struct requests {
    struct sh_once_numbers numbers[REQUESTS_CLIENTS];
    uint64_t before[REQUESTS_CLIENTS]; /* numbers up to it are of earlier lives */
    struct known_request {
        bool has_changed, is_lost, is_finished, is_found;
        enum sh_write_result result;
        unsigned id, state; /* the chunk, and which of its states it has led to */
        uint64_t value;     /* that was in a field before */
        struct sh_completion found;
    } all[REQUESTS_CLIENTS][REQUESTS_MAX];
    uint64_t made, found, checked, missing; /* over all lives */
};

static inline struct known_request *requests_of(struct requests *requests, uint64_t client,
                                                uint64_t number)
{
    assert_true(client >= 1 && client <= REQUESTS_CLIENTS);
    uint64_t before = requests->before[client - 1];
    assert_true(number <= requests->numbers[client - 1].last);
    if (number <= before)
        return NULL;
    assert_true(number - before <= REQUESTS_MAX);
    return &requests->all[client - 1][number - before - 1];
}

/* A request of a client; its number is 0 where there are too many. */
static inline struct sh_write_request requests_begin(struct requests *requests, unsigned client,
                                                     enum sh_write_result result)
{
    struct sh_once_numbers *numbers = &requests->numbers[client];
    struct sh_write_request request = {.client = client + 1, .result = result};
    if (numbers->last - requests->before[client] == REQUESTS_MAX)
        return request;
    request.acknowledged = numbers->finished;
    request.number = sh_once_number(numbers);
    struct known_request *known = requests_of(requests, request.client, request.number);
    memset(known, 0, sizeof *known);
    known->result = result;
    requests->made++;
    return request;
}

/* Its change was made. */
static inline void requests_changed(struct requests *requests,
                                    const struct sh_write_request *request, unsigned id,
                                    unsigned state, uint64_t value)
{
    struct known_request *known = requests_of(requests, request->client, request->number);
    if (known->has_changed)
        return;
    known->has_changed = true;
    known->id = id;
    known->state = state;
    known->value = value;
}

/* The client has its answer. */
static inline void requests_finish(struct requests *requests,
                                   const struct sh_write_request *request)
{
    struct known_request *known = requests_of(requests, request->client, request->number);
    assert_false(known->is_finished);
    known->is_finished = true;
    sh_once_finish(&requests->numbers[request->client - 1], request->number);
}

/* It was done, and the answer was lost. */
static inline void requests_lose(struct requests *requests, const struct sh_write_request *request)
{
    requests_of(requests, request->client, request->number)->is_lost = true;
}

/* The client has asked again for what it had lost. */
static inline void requests_repeat(struct requests *requests, unsigned client)
{
    for (uint64_t number = requests->before[client] + 1; number <= requests->numbers[client].last;
         number++) {
        struct known_request *known = requests_of(requests, client + 1, number);
        const struct sh_write_request request = {.client = client + 1, .number = number};
        if (known->is_lost && !known->is_finished)
            requests_finish(requests, &request);
    }
}

/* A completion record came back; it may come twice. */
static inline void requests_found(void *arg, const struct sh_completion *completion)
{
    struct requests *requests = arg;
    struct known_request *known = requests_of(requests, completion->client, completion->number);
    requests->found++;
    if (!known)
        return; /* of an earlier life, which was checked then */
    known->is_found = true;
    known->found = *completion;
}

/* Whether a chunk is in a state, or in a later one, of those that it may be in: `least` and `most`. Afterwards no client asks any more. */
static inline void requests_check(struct requests *requests, uint64_t creator,
                                  void (*state_of)(void *arg, unsigned id, unsigned *least_out,
                                                   unsigned *most_out, bool *is_there_out),
                                  void *arg)
{
    for (unsigned client = 0; client < REQUESTS_CLIENTS; client++) {
        struct sh_once_numbers *numbers = &requests->numbers[client];
        for (uint64_t number = requests->before[client] + 1; number <= numbers->last; number++) {
            struct known_request *known = requests_of(requests, client + 1, number);
            unsigned least = 0, most = 0;
            bool is_there = true;
            if (known->has_changed)
                state_of(arg, known->id, &least, &most, &is_there);
            if (known->is_found && (!known->has_changed || known->state > most))
                fail_msg("client %u, number %u: a completion, and no change", client,
                         (unsigned)number);
            bool is_create = known->result == SH_WRITE_CHUNK;
            if (known->is_found) {
                assert_int_equal(known->found.chunk, creator << 48 | known->id);
                assert_int_equal(known->found.is_create, is_create);
                assert_int_equal(known->found.value, known->value);
            }
            bool is_certain = known->has_changed && known->state <= least && !known->is_finished &&
                              (!is_create || is_there);
            if (is_certain && !known->is_found)
                fail_msg("client %u, number %u: a change, and no completion", client,
                         (unsigned)number);
            requests->checked += is_certain;
            requests->missing += known->has_changed && !known->is_found && !known->is_finished;
            if (!known->is_finished)
                sh_once_finish(numbers, number);
        }
        requests->before[client] = numbers->last;
    }
}

#endif
