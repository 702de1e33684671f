/* Who may be added to a shard's replicas, and whose old copy is taken when none is left: the messages
 * of four rings, passed on one at a time. */
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
static struct sh_journal *journals[SERVERS + 1];
static struct sh_disk *disks[SERVERS + 1];
static bool is_mute[SERVERS + 1]; /* nothing comes from there, nor arrives */
static uint64_t now_ns;
static uint64_t built_version;
static unsigned builds;

static void apply(void *arg, unsigned shard, uint64_t epoch, uint64_t sequence,
                  struct sh_bytes command)
{
    (void)arg;
    (void)shard;
    (void)epoch;
    (void)sequence;
    (void)command;
}

/* The state is one byte. */
static enum shoal_err snapshot_begin(void *arg, unsigned shard, void **snapshot_out)
{
    (void)arg;
    (void)shard;
    *snapshot_out = calloc(1, 1);
    return *snapshot_out ? SHOAL_OK : SHOAL_ENOMEM;
}

static size_t snapshot_next(void *arg, void *snapshot, uint8_t *into, size_t room)
{
    uint8_t *is_given = snapshot;
    (void)arg;
    assert_true(room);
    if (*is_given)
        return 0;
    *is_given = 1;
    *into = 0;
    return 1;
}

static void snapshot_end(void *arg, void *snapshot)
{
    (void)arg;
    free(snapshot);
}

static enum shoal_err restore_begin(void *arg, unsigned shard, void **restore_out)
{
    return snapshot_begin(arg, shard, restore_out);
}

static enum shoal_err restore_piece(void *arg, void *restore, struct sh_bytes piece)
{
    uint8_t *bytes = restore;
    (void)arg;
    *bytes += (uint8_t)piece.size;
    return SHOAL_OK;
}

static enum shoal_err restore_end(void *arg, void *restore, bool install)
{
    uint8_t bytes = *(uint8_t *)restore;
    (void)arg;
    free(restore);
    return install && bytes != 1 ? SHOAL_EPROTO : SHOAL_OK;
}

static void clear(void *arg, unsigned shard)
{
    (void)arg;
    (void)shard;
}

static void build(void *arg, unsigned shard, uint64_t version)
{
    (void)arg;
    if (shard != SHARD)
        return;
    built_version = version;
    builds++;
}

static void tell_all(void)
{
    for (unsigned i = 1; i <= SERVERS; i++)
        if (rings[i])
            sh_ring_arcs_set(rings[i], now_ns, &arcs);
}

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return now_ns;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 7, size);
}

static void journal_open(uint8_t nid)
{
    struct sh_journal_stream streams[SH_SHARDS];
    assert_int_equal(sh_memory_disk_create(&disks[nid]), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        streams[i] = sh_ring_stream(rings[nid], i);
    struct sh_journal_config config = {.env = {.clock = {.now_ns = clock_now},
                                               .random = {.fill = random_fill},
                                               .disk = disks[nid]},
                                       .label = sh_bytes_text("a test"),
                                       .streams = streams,
                                       .streams_count = SH_SHARDS};
    assert_int_equal(sh_journal_open(&config, &journals[nid]), SHOAL_OK);
    sh_ring_journal_set(rings[nid], journals[nid], 0);
}

/* A superpeer comes up, with an empty disk. */
static void join(uint8_t nid)
{
    struct sh_ring_config config = {
        .server = nid,
        .resend_ns = 10,
        .patience_ns = 1000000,
        .entries_kept = 64,
        .piece_bytes = 4096,
        .fsm = {.apply = apply,
                .snapshot_begin = snapshot_begin,
                .snapshot_next = snapshot_next,
                .snapshot_end = snapshot_end,
                .restore_begin = restore_begin,
                .restore_piece = restore_piece,
                .restore_end = restore_end,
                .clear = clear,
                .build = build},
    };
    assert_int_equal(sh_ring_create(&config, &rings[nid]), SHOAL_OK);
    journal_open(nid);
    assert_int_equal(sh_arcs_start(&arcs, nid, UINT64_C(1) << 32 | nid), SH_ARCS_STARTED);
    sh_ring_start(rings[nid], now_ns, &arcs);
    sh_ring_lease_set(rings[nid], now_ns, UINT64_MAX);
    tell_all();
}

static void drop(unsigned nid)
{
    if (!rings[nid])
        return;
    sh_journal_close(journals[nid]);
    sh_ring_destroy(rings[nid]);
    disks[nid]->ops->destroy(disks[nid]);
    rings[nid] = NULL;
}

/* It is dead. */
static void end(unsigned nid)
{
    drop(nid);
    assert_true(sh_arcs_gone(&arcs, nid));
    tell_all();
}

/* Lets a superpeer do what it has to do, and its disk. */
static void step(unsigned nid)
{
    for (unsigned i = 0; rings[nid] && i < 8; i++) {
        (void)sh_ring_step(rings[nid], now_ns);
        (void)sh_journal_step(journals[nid], now_ns);
    }
    if (rings[nid])
        (void)sh_ring_step(rings[nid], now_ns);
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
        do {
            for (unsigned nid = 1; nid <= SERVERS; nid++)
                step(nid);
        } while (deliver());
        if (change_of(&change) && sh_arcs_change(&arcs, &change))
            tell_all();
    }
}

/* The shard has no replica, and its owner makes its state. */
static void make(void)
{
    unsigned before = builds;
    settle();
    assert_int_equal(builds, before + 1);
    sh_ring_built(rings[arcs.shards[SHARD].owner], now_ns, SHARD, built_version);
    settle();
}

/* A new owner does not know yet whether what came to it last was answered; a replica that is added
 * without it, and owns the shard next, would not have what was. */
static void added_with_all_that_was_answered(void **state)
{
    (void)state;
    uint64_t epoch, sequence;
    struct sh_arc_change change = {.kind = 0};
    for (uint8_t nid = 1; nid <= 3; nid++)
        join(nid);
    make();
    assert_int_equal(arcs.shards[SHARD].replicas, 1 << 1 | 1 << 2 | 1 << 3);
    /* An update reaches all, and is answered; but that it was, only its owner knows. */
    unsigned first = arcs.shards[SHARD].owner;
    assert_int_equal(
        sh_ring_update(rings[first], now_ns, SHARD, sh_bytes_text(COMMAND), &epoch, &sequence),
        SHOAL_OK);
    step(first);
    (void)deliver();
    for (unsigned nid = 1; nid <= 3; nid++)
        step(nid);
    (void)deliver();
    (void)sh_ring_step(rings[first], now_ns);
    assert_true(sh_ring_applied(rings[first], SHARD) == sequence);
    end(first);
    unsigned owner = arcs.shards[SHARD].owner;
    assert_true(sh_ring_last(rings[owner], SHARD) == sequence);
    assert_true(sh_ring_applied(rings[owner], SHARD) < sequence);
    /* The other replica does not answer; a new one comes. */
    for (unsigned nid = 1; nid <= 3; nid++)
        is_mute[nid] = rings[nid] && nid != owner;
    join(SERVERS);
    for (unsigned i = 0; i < 200 && change.kind != SH_ARC_ADD; i++) {
        now_ns += 11;
        step(owner);
        step(SERVERS);
        (void)deliver();
        (void)change_of(&change);
    }
    assert_int_equal(change.kind, SH_ARC_ADD);
    assert_int_equal(change.nid, SERVERS);
    assert_true(sh_ring_last(rings[SERVERS], SHARD) >= sequence);
    for (unsigned nid = 1; nid <= SERVERS; nid++)
        drop(nid);
}

static void clean(void)
{
    for (unsigned nid = 1; nid <= SERVERS; nid++)
        drop(nid);
    memset(&arcs, 0, sizeof arcs);
    memset(is_mute, 0, sizeof is_mute);
}

static void update(void)
{
    uint64_t epoch, sequence;
    unsigned owner = arcs.shards[SHARD].owner;
    assert_int_equal(
        sh_ring_update(rings[owner], now_ns, SHARD, sh_bytes_text(COMMAND), &epoch, &sequence),
        SHOAL_OK);
    settle();
    assert_true(sh_ring_applied(rings[owner], SHARD) == sequence);
}

/* It is cut off from the others and from the registry, which calls it failed. */
static void cut(unsigned nid)
{
    is_mute[nid] = true;
    assert_true(sh_arcs_gone(&arcs, nid));
    for (unsigned i = 1; i <= SERVERS; i++)
        if (rings[i] && !is_mute[i])
            sh_ring_arcs_set(rings[i], now_ns, &arcs);
    settle();
}

static void heal(unsigned nid)
{
    is_mute[nid] = false;
    assert_true(sh_arcs_up(&arcs, nid));
    tell_all();
    settle();
}

/* All replicas of the shard are away. */
static bool is_waiting(unsigned shard)
{
    return arcs.shards[shard].replicas && !(arcs.shards[shard].replicas & arcs.present);
}

/* Superpeers 1, 2 and 3 hold a shard; its owner goes on alone after 2 and then 3 were cut off, so
 * that its disk is the only one with the last update, those two have old copies, and 4, which comes
 * last, has none. is_swapped: 3 is cut off first. Returns the owner. */
static unsigned alone_with_the_last_update(bool is_swapped, unsigned *least_out, unsigned *more_out)
{
    clean();
    for (uint8_t nid = 1; nid <= 3; nid++)
        join(nid);
    make();
    unsigned owner = arcs.shards[SHARD].owner;
    unsigned next = owner % 3 + 1, last = next % 3 + 1;
    *least_out = is_swapped ? last : next;
    *more_out = is_swapped ? next : last;
    update();
    cut(*least_out);
    update();
    cut(*more_out);
    update();
    end(owner);
    heal(*least_out);
    join(SERVERS);
    settle();
    assert_true(is_waiting(SHARD)); /* whoever else is there */
    assert_int_equal(arcs.shards[SHARD].replicas, sh_arc_bit(owner));
    return owner;
}

static void the_most_advanced_is_taken(bool is_swapped)
{
    unsigned least, more;
    unsigned owner = alone_with_the_last_update(is_swapped, &least, &more);
    unsigned before = builds;
    heal(more);
    assert_true(is_waiting(SHARD));
    assert_true(sh_arcs_forget(&arcs, owner));
    tell_all();
    settle();
    const struct sh_shard *shard = &arcs.shards[SHARD];
    assert_int_equal(builds, before); /* not of nothing */
    assert_int_equal(shard->origin, SH_ORIGIN_COPY);
    assert_int_equal(shard->copy_nid, more);
    assert_int_equal(shard->copy_sequence, 2);
    assert_int_equal(shard->replicas, sh_arc_bit(least) | sh_arc_bit(more) | sh_arc_bit(SERVERS));
    for (unsigned nid = 1; nid <= SERVERS; nid++)
        assert_true(!rings[nid] || sh_ring_applied(rings[nid], SHARD) == 2);
    update();
    clean();
}

/* Whoever looks for it, and whichever answer comes first. */
static void the_most_advanced_old_copy_is_taken(void **state)
{
    (void)state;
    the_most_advanced_is_taken(false);
    the_most_advanced_is_taken(true);
}

/* Who is there, but does not answer, is waited for: it may have the most advanced copy. */
static void all_that_are_there_are_asked(void **state)
{
    (void)state;
    unsigned least, more;
    uint64_t missing;
    unsigned owner = alone_with_the_last_update(false, &least, &more);
    heal(more);
    is_mute[more] = true;
    assert_true(sh_arcs_forget(&arcs, owner));
    tell_all();
    settle();
    unsigned maker = arcs.shards[SHARD].owner;
    assert_int_equal(arcs.shards[SHARD].replicas, 0);
    if (maker != more) {
        assert_true(sh_ring_searches(rings[maker], SHARD, &missing));
        assert_int_equal(missing, sh_arc_bit(more));
    }
    is_mute[more] = false;
    settle();
    assert_int_equal(arcs.shards[SHARD].copy_nid, more);
    clean();
}

/* A copy without updates was made in a late version, perhaps, and is worth less than one with some;
 * but more than none. */
static void an_empty_copy_is_the_last_choice(void **state)
{
    (void)state;
    clean();
    join(1);
    make();
    join(2);
    settle();
    assert_int_equal(arcs.shards[SHARD].replicas, 1 << 1 | 1 << 2);
    cut(2);
    end(1);
    heal(2);
    assert_true(sh_arcs_forget(&arcs, 1));
    unsigned before = builds;
    tell_all();
    settle();
    assert_int_equal(builds, before);
    assert_int_equal(arcs.shards[SHARD].origin, SH_ORIGIN_COPY);
    assert_int_equal(arcs.shards[SHARD].copy_sequence, 0);
    update();
    /* Nobody has one: it is made of nothing. */
    end(2);
    join(3);
    assert_true(sh_arcs_forget(&arcs, 2));
    tell_all();
    make();
    assert_int_equal(arcs.shards[SHARD].origin, SH_ORIGIN_PEERS);
    clean();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(added_with_all_that_was_answered),
        cmocka_unit_test(the_most_advanced_old_copy_is_taken),
        cmocka_unit_test(all_that_are_there_are_asked),
        cmocka_unit_test(an_empty_copy_is_the_last_choice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
