/* Who may be added to a shard's replicas: the messages of four rings, passed on one at a time. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ring/ring.h"

#define SERVERS 4
#define SHARD 3
#define COMMAND "an update"

static struct sh_arcs arcs;
static struct sh_ring *rings[SERVERS + 1]; /* by ID; NULL: not there */
static bool is_mute[SERVERS + 1];          /* nothing comes from there, nor arrives */
static uint64_t now_ns;
static uint64_t built_version;

static void apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    (void)epoch;
    (void)sequence;
    (void)command;
}

static size_t image_size(void *arg, unsigned shard)
{
    (void)arg;
    (void)shard;
    return 1;
}

static void image_put(void *arg, unsigned shard, struct sh_writer *w)
{
    (void)arg;
    (void)shard;
    sh_put8(w, 0);
}

static enum shoal_err image_get(void *arg, unsigned shard, struct sh_bytes image)
{
    (void)arg;
    (void)shard;
    return image.size == 1 ? SHOAL_OK : SHOAL_EPROTO;
}

static void clear(void *arg, unsigned shard)
{
    (void)arg;
    (void)shard;
}

static void build(void *arg, unsigned shard, uint64_t version)
{
    (void)arg;
    if (shard == SHARD)
        built_version = version;
}

static void tell_all(void)
{
    for (unsigned i = 1; i <= SERVERS; i++)
        if (rings[i])
            sh_ring_arcs_set(rings[i], now_ns, &arcs);
}

/* A superpeer comes up, with an empty memory. */
static void join(uint8_t nid)
{
    struct sh_ring_config config = {
        .server = nid,
        .resend_ns = 10,
        .patience_ns = 1000000,
        .entries_kept = 64,
        .piece_bytes = 4096,
        .fsm = {apply, image_size, image_put, image_get, clear, build, NULL, NULL},
    };
    assert_int_equal(sh_ring_create(&config, &rings[nid]), SHOAL_OK);
    (void)sh_arcs_up(&arcs, nid);
    (void)sh_arcs_gone(&arcs, nid, true);
    sh_ring_start(rings[nid], now_ns, &arcs);
    sh_ring_lease_set(rings[nid], now_ns, UINT64_MAX);
    tell_all();
}

/* It is dead. */
static void end(unsigned nid)
{
    sh_ring_destroy(rings[nid]);
    rings[nid] = NULL;
    assert_true(sh_arcs_gone(&arcs, nid, false));
    tell_all();
}

/* Delivers what is there to be delivered; whether that was anything. */
static bool deliver(void)
{
    bool is_any = false;
    for (unsigned from = 1; from <= SERVERS; from++) {
        struct sh_ring_message *message;
        while (rings[from] && (message = sh_ring_message_next(rings[from]))) {
            unsigned to = message->to;
            if (to <= SERVERS && rings[to] && !is_mute[to] && !is_mute[from]) {
                sh_ring_receive(rings[to], now_ns, (uint8_t)from,
                                sh_bytes_make(message->bytes, message->size));
                is_any = true;
            }
            free(message);
        }
    }
    return is_any;
}

/* The next change that somebody asks the registry for in the shard. */
static bool change_of(struct sh_arc_change *change_out)
{
    for (unsigned i = 1; i <= SERVERS; i++) {
        struct sh_arc_change change;
        while (rings[i] && sh_ring_change_next(rings[i], now_ns, &change)) {
            if (change.shard != SHARD)
                continue;
            *change_out = change;
            return true;
        }
    }
    return false;
}

/* Lets all that is to happen happen, for a while. */
static void settle(void)
{
    struct sh_arc_change change;
    for (unsigned i = 0; i < 200; i++) {
        now_ns += 11;
        for (unsigned nid = 1; nid <= SERVERS; nid++)
            if (rings[nid])
                sh_ring_tick(rings[nid], now_ns);
        while (deliver()) {
        }
        if (change_of(&change) && sh_arcs_change(&arcs, &change))
            tell_all();
    }
}

/* A new owner does not know yet whether what came to it last was answered; a holder that is added
 * without it, and owns the shard next, would not have what was. */
static void added_with_all_that_was_answered(void **state)
{
    (void)state;
    uint64_t epoch, sequence;
    struct sh_arc_change change = {.kind = 0};
    for (uint8_t nid = 1; nid <= 3; nid++)
        join(nid);
    sh_ring_built(rings[sh_ring_owner(rings[1], SHARD)], now_ns, SHARD, built_version);
    settle();
    assert_int_equal(arcs.shards[SHARD].replicas, 1 << 1 | 1 << 2 | 1 << 3);
    /* An update reaches all, and is answered; but that it was, only its owner knows. */
    unsigned first = arcs.shards[SHARD].owner;
    assert_int_equal(
        sh_ring_update(rings[first], now_ns, SHARD, sh_bytes_text(COMMAND), &epoch, &sequence),
        SHOAL_OK);
    (void)deliver();
    (void)deliver();
    assert_true(sh_ring_applied(rings[first], SHARD) == sequence);
    end(first);
    unsigned owner = arcs.shards[SHARD].owner;
    assert_true(sh_ring_last(rings[owner], SHARD) == sequence);
    assert_true(sh_ring_applied(rings[owner], SHARD) < sequence);
    /* The other holder does not answer; a new one comes. */
    for (unsigned nid = 1; nid <= 3; nid++)
        is_mute[nid] = rings[nid] && nid != owner;
    join(SERVERS);
    for (unsigned i = 0; i < 200 && change.kind != SH_ARC_ADD; i++) {
        now_ns += 11;
        sh_ring_tick(rings[owner], now_ns);
        (void)deliver();
        (void)change_of(&change);
    }
    assert_int_equal(change.kind, SH_ARC_ADD);
    assert_int_equal(change.nid, SERVERS);
    assert_true(sh_ring_last(rings[SERVERS], SHARD) >= sequence);
    for (unsigned nid = 1; nid <= SERVERS; nid++)
        sh_ring_destroy(rings[nid]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(added_with_all_that_was_answered)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
