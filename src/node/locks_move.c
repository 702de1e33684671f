/* Locks that move with their chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "node/locks_int.h"

#define LIST_AT_ONCE 64
/* Where a record of sh_leases_export has its owner. */
#define TOKEN_AT 8
#define NID_AT 16
#define LEFT_AT 20

static uint64_t stray_token(uint64_t client, uint64_t token)
{
    return sh_mix64(client ^ sh_mix64(token));
}

static uint64_t now_of(const struct sh_locks *locks)
{
    return sh_now(&locks->config.clock);
}

/* --- At the source ------------------------------------------------------------------------- */

static bool can_move(const struct sh_locks *locks, const struct sh_lease *lease)
{
    return lease->waiting || !sh_locks_is_alias(lease->owner.nid) ||
           locks->clients[lease->owner.nid.v - SH_MSG_ALIAS_MIN] != 0;
}

bool sh_locks_can_move(struct sh_locks *locks, shoal_cid first, shoal_cid last,
                       shoal_cid *stays_out)
{
    struct sh_lease found[LIST_AT_ONCE];
    struct sh_lease_owner owner = {0};
    shoal_cid from = first;
    for (;;) {
        size_t count = sh_leases_list(locks->leases, from, owner, found, LIST_AT_ONCE);
        for (size_t i = 0; i < count; i++) {
            if (found[i].cid.v > last.v)
                return true;
            if (!can_move(locks, &found[i])) {
                *stays_out = found[i].cid;
                return false;
            }
        }
        if (count < LIST_AT_ONCE || !sh_lease_after(&found[count - 1], &from, &owner))
            return true;
    }
}

void sh_locks_bag_free(struct sh_locks_bag *bag)
{
    free(bag->bytes);
    free(bag->clients);
    *bag = (struct sh_locks_bag){0};
}

static enum shoal_err bag_grow(struct sh_locks_bag *bag)
{
    size_t used = SH_LEASES_HEAD_BYTES + (size_t)bag->count * SH_LEASES_LOCK_BYTES;
    if (bag->count >= SH_LOCKS_BAG_MAX)
        return SHOAL_ELIMIT;
    if (bag->room >= used + 2 * SH_LEASES_LOCK_BYTES)
        return SHOAL_OK;
    size_t room = 2 * used + 32 * SH_LEASES_LOCK_BYTES;
    uint64_t *clients = realloc(bag->clients, room / SH_LEASES_LOCK_BYTES * sizeof *clients);
    if (!clients)
        return SHOAL_ENOMEM;
    bag->clients = clients;
    uint8_t *grown = realloc(bag->bytes, room);
    if (!grown)
        return SHOAL_ENOMEM;
    bag->bytes = grown;
    bag->room = room;
    return SHOAL_OK;
}

static uint8_t *record_at(const struct sh_locks_bag *bag, uint32_t index)
{
    return bag->bytes + SH_LEASES_HEAD_BYTES + (size_t)index * SH_LEASES_LOCK_BYTES;
}

/* The number of the client that owns a lock in the bag, if its connection is still there. */
static uint64_t client_of(const struct sh_locks *locks, const uint8_t *record)
{
    shoal_nid nid = {sh_load16(record + NID_AT)};
    return sh_locks_is_alias(nid) ? locks->clients[nid.v - SH_MSG_ALIAS_MIN] : 0;
}

enum shoal_err sh_locks_pack(struct sh_locks *locks, shoal_cid first, shoal_cid last,
                             struct sh_locks_bag *bag)
{
    for (;;) {
        enum shoal_err err = bag_grow(bag);
        if (err)
            return err;
        /* The export writes a head of its own, where the last record ends; what was there comes
         * back. */
        uint8_t kept[SH_LEASES_HEAD_BYTES] = {0};
        size_t at = (size_t)bag->count * SH_LEASES_LOCK_BYTES, size;
        if (at > 0)
            memcpy(kept, bag->bytes + at, sizeof kept);
        err = sh_leases_export(locks->leases, first, last, now_of(locks), bag->bytes + at,
                               bag->room - at, &size);
        SH_ASSERT(err == SHOAL_OK); /* there is room for one at least */
        if (at > 0)
            memcpy(bag->bytes + at, kept, sizeof kept);
        uint32_t some = (uint32_t)((size - SH_LEASES_HEAD_BYTES) / SH_LEASES_LOCK_BYTES);
        for (uint32_t i = bag->count; i < bag->count + some; i++)
            bag->clients[i] = client_of(locks, record_at(bag, i));
        bag->count += some;
        sh_store32(bag->bytes + 4, bag->count);
        if (some == 0)
            return SHOAL_OK;
    }
}

static struct sh_bytes bag_bytes(const struct sh_locks_bag *bag)
{
    return sh_bytes_make(bag->bytes,
                         SH_LEASES_HEAD_BYTES + (size_t)bag->count * SH_LEASES_LOCK_BYTES);
}

/* Takes out what fell while it was in the bag: the connection of its owner was lost, so that nobody
 * could free it, and the next client with the alias would have it. */
static void fallen_drop(struct sh_locks *locks, struct sh_locks_bag *bag)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bag->count; i++) {
        if (bag->clients[i] != client_of(locks, record_at(bag, i)))
            continue;
        memmove(record_at(bag, kept), record_at(bag, i), SH_LEASES_LOCK_BYTES);
        bag->clients[kept++] = bag->clients[i];
    }
    bag->count = kept;
    if (bag->bytes)
        sh_store32(bag->bytes + 4, kept);
}

void sh_locks_unpack(struct sh_locks *locks, struct sh_locks_bag *bag)
{
    fallen_drop(locks, bag);
    if (bag->count > 0) {
        enum shoal_err err = sh_leases_import(locks->leases, bag_bytes(bag), now_of(locks));
        if (err) /* others took their places in the table meanwhile */
            SH_WARN("node", "locks fell when their chunks did not move",
                    SH_U64("locks", bag->count), SH_ERR(err));
    }
    bag->count = 0;
    locks->config.wake(locks->config.arg);
}

/* By chunk, node and token, as an import wants them. */
static int by_owner(const void *a, const void *b)
{
    const uint8_t *x = a, *y = b;
    uint64_t keys[2][3] = {{sh_load64(x), sh_load16(x + NID_AT), sh_load64(x + TOKEN_AT)},
                           {sh_load64(y), sh_load16(y + NID_AT), sh_load64(y + TOKEN_AT)}};
    for (unsigned i = 0; i < 3; i++) {
        if (keys[0][i] != keys[1][i])
            return keys[0][i] < keys[1][i] ? -1 : 1;
    }
    return 0;
}

void sh_locks_bag_put(const struct sh_locks_bag *bag, struct sh_writer *w)
{
    size_t bytes = (size_t)bag->count * SH_LEASES_LOCK_BYTES;
    if (bytes == 0)
        return;
    uint8_t *at = sh_writer_take(w, bytes);
    SH_ASSERT(at != NULL);
    memcpy(at, bag->bytes + SH_LEASES_HEAD_BYTES, bytes);
    for (uint32_t i = 0; i < bag->count; i++) {
        uint8_t *record = at + (size_t)i * SH_LEASES_LOCK_BYTES;
        shoal_nid nid = {sh_load16(record + NID_AT)};
        if (!sh_locks_is_alias(nid))
            continue;
        sh_store64(record + TOKEN_AT, stray_token(bag->clients[i], sh_load64(record + TOKEN_AT)));
        sh_store16(record + NID_AT, SH_LOCKS_STRAY_NID);
    }
    qsort(at, bag->count, SH_LEASES_LOCK_BYTES, by_owner);
}

/* --- At the target ------------------------------------------------------------------------- */

static void head_put(uint8_t *at, uint32_t count)
{
    sh_store16(at, SH_LEASES_EXPORT_VERSION);
    sh_store16(at + 2, 0);
    sh_store32(at + 4, count);
}

enum shoal_err sh_locks_receive(struct sh_locks *locks, struct sh_bytes travelled, uint32_t count)
{
    SH_ASSERT(travelled.size == (size_t)count * SH_LEASES_LOCK_BYTES);
    if (count == 0)
        return SHOAL_OK;
    if (count > SH_LOCKS_BAG_MAX)
        return SHOAL_EPROTO;
    uint8_t *bytes = malloc(SH_LEASES_HEAD_BYTES + travelled.size);
    if (!bytes)
        return SHOAL_ENOMEM;
    head_put(bytes, count);
    memcpy(bytes + SH_LEASES_HEAD_BYTES, travelled.at, travelled.size);
    enum shoal_err err = sh_leases_import(
        locks->leases, sh_bytes_make(bytes, SH_LEASES_HEAD_BYTES + travelled.size), now_of(locks));
    free(bytes);
    if (err == SHOAL_OK)
        locks->has_strays = true;
    return err;
}

void sh_locks_discard(struct sh_locks *locks, shoal_cid first, shoal_cid last)
{
    uint8_t bytes[SH_LEASES_HEAD_BYTES + LIST_AT_ONCE * SH_LEASES_LOCK_BYTES];
    size_t size;
    enum shoal_err err;
    do {
        err =
            sh_leases_export(locks->leases, first, last, now_of(locks), bytes, sizeof bytes, &size);
        SH_ASSERT(err == SHOAL_OK);
    } while (size > SH_LEASES_HEAD_BYTES);
}

void sh_locks_stray_claim(struct sh_locks *locks, shoal_cid cid, struct sh_lease_owner owner,
                          uint64_t client)
{
    uint8_t bytes[SH_LEASES_HEAD_BYTES + SH_LEASES_LOCK_BYTES];
    struct sh_lease_owner stray = {.token = stray_token(client, owner.token),
                                   .nid = {SH_LOCKS_STRAY_NID}};
    struct sh_lease lease;
    uint64_t now = now_of(locks);
    size_t size;
    if (!locks->has_strays || sh_leases_find(locks->leases, cid, stray, &lease) != SHOAL_OK)
        return;
    if (lease.mode == SH_LEASE_WRITER) {
        /* It is the only one; who waits asks again, and nobody gets in between. */
        enum shoal_err err =
            sh_leases_export(locks->leases, cid, cid, now, bytes, sizeof bytes, &size);
        SH_ASSERT(err == SHOAL_OK && size == sizeof bytes);
    } else {
        head_put(bytes, 1);
        memset(bytes + SH_LEASES_HEAD_BYTES, 0, SH_LEASES_LOCK_BYTES);
        sh_store64(bytes + SH_LEASES_HEAD_BYTES, cid.v);
        bytes[SH_LEASES_HEAD_BYTES + 18] = SH_LEASE_READER;
        sh_store64(bytes + SH_LEASES_HEAD_BYTES + LEFT_AT,
                   lease.deadline_ns > now ? lease.deadline_ns - now : 0);
    }
    sh_store64(bytes + SH_LEASES_HEAD_BYTES + TOKEN_AT, owner.token);
    sh_store16(bytes + SH_LEASES_HEAD_BYTES + NID_AT, owner.nid.v);
    enum shoal_err err = sh_leases_import(locks->leases, sh_bytes_make(bytes, sizeof bytes), now);
    if (err == SHOAL_OK && lease.mode == SH_LEASE_READER)
        err = sh_leases_release(locks->leases, cid, stray, now);
    if (err)
        SH_WARN("node", "a lock that came with its chunk fell", SH_ERR(err));
}
