/* The checkers of the messaging load. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/msg_load_int.h"
#include "sim/world_int.h"

void check_fail(struct check *check, const char *what, uint64_t a, uint64_t b)
{
    if (check->result->failed)
        return;
    check->result->failed = true;
    snprintf(check->result->text, sizeof check->result->text,
             "%s %" PRIu64 " %" PRIu64 " at %.6f ms", what, a, b,
             (double)sh_world_now(check->world) / 1e6);
    sh_world_trace(check->world, SH_WORLD_NOBODY, what, a, b, (struct sh_bytes){0});
}

void check_free(struct check *check)
{
    for (unsigned from = 0; from < SH_MSG_LOAD_NODES_MAX; from++) {
        for (unsigned to = 0; to < SH_MSG_LOAD_NODES_MAX; to++) {
            for (unsigned kind = 0; kind < LOAD_KINDS; kind++)
                free(check->channels[from][to][kind].next_received);
        }
    }
    free(check->records);
}

void check_lost(struct check *check, unsigned from, unsigned to)
{
    for (unsigned kind = 0; kind < LOAD_KINDS; kind++) {
        check->channels[from][to][kind].epoch++;
        check->channels[from][to][kind].next_sent = 0;
    }
}

void check_received(struct check *check, unsigned from, unsigned to, enum load_kind kind,
                    uint64_t connection, const uint32_t epoch_and_number[2])
{
    struct channel *channel = &check->channels[from][to][kind];
    uint32_t epoch = epoch_and_number[0], number = epoch_and_number[1];
    if (epoch > channel->epoch) {
        check_fail(check, "message(epoch, number) was never sent:", epoch, number);
        return;
    }
    if (epoch >= channel->epochs) {
        uint32_t epochs = 2 * epoch + 8;
        channel->next_received =
            sh_sim_realloc(channel->next_received, epochs * sizeof *channel->next_received);
        memset(channel->next_received + channel->epochs, 0,
               (epochs - channel->epochs) * sizeof *channel->next_received);
        channel->epochs = epochs;
    }
    if (connection == channel->connection && epoch != channel->connection_epoch)
        check_fail(check, "message(epoch, other) came over one connection:", epoch,
                   channel->connection_epoch);
    channel->connection = connection;
    channel->connection_epoch = epoch;
    uint32_t *next = &channel->next_received[epoch];
    if (number < *next)
        check_fail(check, "message(number, expected) came twice or late:", number, *next);
    else if (number > *next)
        check_fail(check, "message(number, expected) came early:", number, *next);
    ++*next;
    check->result->messages++;
}

uint32_t check_request(struct check *check, unsigned from, unsigned to, unsigned boot)
{
    if (check->record_count == check->record_room) {
        check->record_room = check->record_room ? 2 * check->record_room : 1024;
        check->records =
            sh_sim_realloc(check->records, check->record_room * sizeof *check->records);
    }
    uint32_t id = check->record_count++;
    check->records[id] = (struct record){.from = from, .to = to, .boot = boot};
    check->pending++;
    check->result->requests++;
    return id;
}

void check_handled(struct check *check, uint32_t id, unsigned from, unsigned at)
{
    if (id >= check->record_count) {
        check_fail(check, "request(id, at) was never sent:", id, at);
        return;
    }
    struct record *record = &check->records[id];
    if (record->to != at || record->from != from)
        check_fail(check, "request(id, at) went astray:", id, at);
    if (++record->handled > 1)
        check_fail(check, "request(id, times) was handled again:", id, record->handled);
}

void check_completed(struct check *check, uint32_t id, enum shoal_err err, bool broken)
{
    SH_ASSERT(id < check->record_count);
    struct record *record = &check->records[id];
    bool may_fail = err == SHOAL_ETIMEOUT || err == SHOAL_ECONNLOST || err == SHOAL_EUNREACHABLE ||
                    err == SHOAL_ESTOPPED || err == SHOAL_ELIMIT;
    if (record->state != RECORD_PENDING)
        check_fail(check, "request(id, error) completed again:", id, err);
    if (!may_fail && err != SHOAL_OK && err != SHOAL_EBUSY)
        check_fail(check, "request(id, error) failed oddly:", id, err);
    if (!may_fail && !record->handled)
        check_fail(check, "request(id, error) was answered by nobody:", id, err);
    check->result->answers += !may_fail;
    if (broken)
        return;
    record->state = RECORD_DONE;
    check->pending--;
}

void check_canceled(struct check *check, uint32_t id)
{
    SH_ASSERT(id < check->record_count);
    if (check->records[id].state != RECORD_PENDING)
        check_fail(check, "request(id, state) was canceled late:", id, check->records[id].state);
    check->records[id].state = RECORD_CANCELED;
    check->pending--;
}

static uint8_t pattern_byte(uint64_t key, size_t at)
{
    return (uint8_t)(sh_mix64(key + at / 8) >> (8 * (at % 8)));
}

void pattern_write(uint8_t *at, size_t size, uint64_t key)
{
    for (size_t i = 0; i < size; i++)
        at[i] = pattern_byte(key, i);
}

bool pattern_holds(struct sh_bytes bytes, uint64_t key)
{
    for (size_t i = 0; i < bytes.size; i++) {
        if (bytes.at[i] != pattern_byte(key, i))
            return false;
    }
    return true;
}
