/* Superpeers of the ring in a simulated world, for ring_test.c: each with a journal on a disk that
 * loses what was not synced; a network of their own that loses, doubles, delays and partitions; a
 * registry that is one place, reached over that network, and silent while a majority of them is not
 * there; a register in each of three shards, and what must hold whatever happens (ring_state_int.h). */
#ifndef TESTS_RING_RIG_INT_H
#define TESTS_RING_RIG_INT_H

#include "tests/ring_state_int.h"

/* --- The network ----------------------------------------------------------------------------- */

static struct letter *letter_make(struct rig *rig, unsigned server)
{
    struct letter *letter = calloc(1, sizeof *letter);
    assert_non_null(letter);
    letter->rig = rig;
    letter->server = server;
    letter->boot = rig->servers[server].boot;
    letter->next = rig->letters;
    letter->before = &rig->letters;
    if (letter->next)
        letter->next->before = &letter->next;
    rig->letters = letter;
    return letter;
}

static void letter_free(struct letter *letter)
{
    *letter->before = letter->next;
    if (letter->next)
        letter->next->before = letter->before;
    free(letter->message);
    free(letter->arcs);
    free(letter);
}

static void post(struct rig *rig, struct letter *letter, sh_world_event event)
{
    uint64_t delay_ns = MS / 10 + sh_prng_below(&rig->prng, rig->lines.delay_ns_max);
    sh_world_at(rig->world, sh_world_now(rig->world) + delay_ns, event, letter, 0, 0);
}

/* A letter reaches a server; whether it is another process by now, the connection would tell. */
static void deliver(void *arg, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct letter *letter = arg;
    struct rig *rig = letter->rig;
    struct server *to = &rig->servers[letter->server];
    bool is_stopped =
        letter->message ? rig->lines.blocked[letter->from - 1][letter->server] : to->is_cut;
    if (is_stopped || !to->ring || letter->boot != to->boot) {
        letter_free(letter);
        return;
    }
    if (letter->message)
        sh_world_trace(rig->world, to->node, "message(from, size)", letter->from,
                       letter->message->size,
                       sh_bytes_make(letter->message->bytes, letter->message->size));
    else
        sh_world_trace(rig->world, to->node, "table(number, life)", letter->table, letter->life,
                       (struct sh_bytes){NULL, 0});
    *to->inbox_end = letter;
    to->inbox_end = &letter->in_next;
}

static void message_post(struct server *from, const struct sh_ring_message *message)
{
    struct rig *rig = from->rig;
    if (message->to > rig->count)
        return;
    struct letter *letter = letter_make(rig, message->to - 1u);
    size_t size = sizeof *message + message->size;
    letter->message = malloc(size);
    assert_non_null(letter->message);
    memcpy(letter->message, message, size);
    letter->from = from->nid;
    post(rig, letter, deliver);
}

static void inbox_drop(struct server *server)
{
    while (server->inbox) {
        struct letter *letter = server->inbox;
        server->inbox = letter->in_next;
        letter_free(letter);
    }
    server->inbox_end = &server->inbox;
}

/* --- The registry ---------------------------------------------------------------------------- */

static bool is_well(const struct server *server)
{
    return server->ring && !server->is_paused && !server->is_cut;
}

static bool has_quorum(const struct rig *rig)
{
    unsigned well = 0, all = 0;
    for (unsigned i = 0; i < rig->count; i++) {
        all += !rig->servers[i].is_absent;
        well += is_well(&rig->servers[i]);
    }
    return 2 * well > all;
}

static void table_changed(struct rig *rig)
{
    rig->table++;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (rig->arcs.shards[i].replicas)
            rig->had[i] = true;
        else if (rig->had[i])
            violated(rig, "a shard has no replica any more");
    }
}

static void take_part(struct rig *rig, unsigned at, uint64_t life)
{
    unsigned nid = at + 1;
    if (rig->arcs.lives[nid] != life) {
        rig->retired[at] = false;
        if (sh_arcs_start(&rig->arcs, nid, life) != SH_ARCS_STARTED)
            violated(rig, "a disk counts its starts wrongly");
        table_changed(rig);
    } else if (!(rig->arcs.present & sh_arc_bit(nid)) && !rig->retired[at]) {
        (void)sh_arcs_up(&rig->arcs, nid);
        table_changed(rig);
    }
}

/* A server's question reaches the registry. */
static void on_asked(void *arg, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct letter *letter = arg;
    struct rig *rig = letter->rig;
    unsigned at = letter->server;
    struct server *server = &rig->servers[at];
    if (!has_quorum(rig) || server->is_cut ||
        sh_life_starts(letter->life) < sh_life_starts(rig->arcs.lives[at + 1])) {
        letter_free(letter);
        return;
    }
    rig->heard_ns[at] = sh_world_now(rig->world);
    take_part(rig, at, letter->life);
    if (letter->change.kind && sh_arcs_change(&rig->arcs, &letter->change))
        table_changed(rig);
    letter->arcs = malloc(sizeof rig->arcs);
    assert_non_null(letter->arcs);
    *letter->arcs = rig->arcs;
    letter->table = rig->table;
    post(rig, letter, deliver);
}

static void ask_registry(struct server *server, const struct sh_arc_change *change)
{
    struct letter *letter = letter_make(server->rig, server->nid - 1u);
    letter->sent_ns = now_at(server);
    letter->life = life_of(server);
    if (change)
        letter->change = *change;
    post(server->rig, letter, on_asked);
}

/* Declares those failed who were silent for long enough that no lease of theirs is left. */
static void watch(void *arg, uint64_t a, uint64_t b)
{
    (void)a;
    (void)b;
    struct rig *rig = arg;
    uint64_t now_ns = sh_world_now(rig->world);
    bool has = has_quorum(rig);
    for (unsigned i = 0; i < rig->count; i++) {
        if (!rig->had_quorum)
            rig->heard_ns[i] = now_ns;
        bool is_there = rig->arcs.present & sh_arc_bit(i + 1);
        if (has && is_there && now_ns >= rig->heard_ns[i] + FAILURE) {
            (void)sh_arcs_gone(&rig->arcs, i + 1);
            table_changed(rig);
        }
    }
    rig->had_quorum = has;
    sh_world_at(rig->world, now_ns + 10 * MS, watch, rig, 0, 0);
}

/* --- Servers --------------------------------------------------------------------------------- */

static void table_take(struct server *server, uint64_t now_ns, const struct letter *letter)
{
    if (letter->arcs->lives[server->nid] != life_of(server))
        return;
    if (letter->table >= server->table) {
        server->table = letter->table;
        server->seen = *letter->arcs;
        if (server->is_started)
            sh_ring_arcs_set(server->ring, now_ns, letter->arcs);
        else
            sh_ring_start(server->ring, now_ns, letter->arcs);
        server->is_started = true;
    }
    uint64_t lease_ns = server->rig->leases_never_end ? 1000 * S : LEASE;
    sh_ring_lease_set(server->ring, now_ns, letter->sent_ns + lease_ns);
}

static unsigned inbox_step(struct server *server, uint64_t now_ns)
{
    unsigned work = 0;
    while (server->inbox && work < 8) {
        struct letter *letter = server->inbox;
        server->inbox = letter->in_next;
        if (!server->inbox)
            server->inbox_end = &server->inbox;
        if (letter->message)
            sh_ring_receive(server->ring, now_ns, letter->from,
                            sh_bytes_make(letter->message->bytes, letter->message->size));
        else
            table_take(server, now_ns, letter);
        letter_free(letter);
        work++;
    }
    return work;
}

/* The ring looks at the journal before, for what it may say, and behind: what it takes is written
 * at once. */
static unsigned disk_step(struct server *server, uint64_t now_ns)
{
    unsigned work = sh_ring_step(server->ring, now_ns);
    if (disk_notes_wants(&server->disk, sh_journal_last(server->journal)))
        disk_notes_add(&server->disk, stored_make(server), sh_journal_last(server->journal));
    work += sh_journal_step(server->journal, now_ns);
    disk_notes_sync(&server->disk, sh_journal_synced(server->journal));
    return work + sh_ring_step(server->ring, now_ns);
}

static unsigned effects_step(struct server *server, uint64_t now_ns)
{
    struct rig *rig = server->rig;
    unsigned work = 0;
    struct sh_arc_change change;
    while (sh_ring_change_next(server->ring, now_ns, &change)) {
        for (unsigned i = lines_copies(&rig->lines, &rig->prng); i > 0; i--)
            ask_registry(server, &change);
        work++;
    }
    struct sh_ring_message *message;
    while ((message = sh_ring_message_next(server->ring))) {
        for (unsigned i = lines_copies(&rig->lines, &rig->prng); i > 0; i--)
            message_post(server, message);
        free(message);
        work++;
    }
    return work;
}

static unsigned server_step(void *arg)
{
    struct server *server = arg;
    uint64_t now_ns = now_at(server);
    unsigned work = inbox_step(server, now_ns);
    if (now_ns >= server->poll_ns && sh_journal_synced(server->journal) >= server->life_lsn) {
        server->poll_ns = now_ns + POLL;
        ask_registry(server, NULL);
        work++;
    }
    work += builds_step(server, now_ns);
    work += disk_step(server, now_ns);
    return work + effects_step(server, now_ns);
}

static uint64_t server_due(void *arg)
{
    struct server *server = arg;
    uint64_t due_ns = sh_ring_due_ns(server->ring);
    uint64_t journal_ns = sh_journal_due_ns(server->journal, now_at(server));
    due_ns = journal_ns < due_ns ? journal_ns : due_ns;
    if (sh_journal_synced(server->journal) >= server->life_lsn && server->poll_ns < due_ns)
        due_ns = server->poll_ns;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        if (server->build_ns[i] && server->build_ns[i] < due_ns)
            due_ns = server->build_ns[i];
    }
    return due_ns;
}

static void journal_open(struct server *server)
{
    struct sh_journal_stream streams[1 + SH_SHARDS] = {starts_stream(&server->starts)};
    for (unsigned i = 0; i < SH_SHARDS; i++)
        streams[FIRST_STREAM + i] = sh_ring_stream(server->ring, i);
    struct sh_journal_config config = {.env = *sh_world_env(server->rig->world, server->node),
                                       .label = sh_bytes_text("ring_test"),
                                       .segment_bytes = 64u << 10,
                                       .bytes_kept = 256u << 10,
                                       .piece_bytes = 96,
                                       .streams = streams,
                                       .streams_count = 1 + SH_SHARDS};
    assert_int_equal(sh_journal_open(&config, &server->journal), SHOAL_OK);
    disk_notes_load(&server->disk, stored_make(server));
    uint8_t starts[4];
    sh_store32(starts, ++server->starts);
    server->life_lsn =
        sh_journal_state_set(server->journal, LIFE_STREAM, sh_bytes_make(starts, sizeof starts));
    sh_ring_journal_set(server->ring, server->journal, FIRST_STREAM);
}

static void server_boot(void *arg, struct sh_world *world, unsigned node)
{
    struct server *server = arg;
    server->node = node;
    server->boot = ++server->rig->boots;
    server->is_started = server->is_absent = false;
    server->table = server->poll_ns = 0;
    server->starts = 0;
    memset(server->states, 0, sizeof server->states);
    memset(server->has, 0, sizeof server->has);
    memset(server->build_ns, 0, sizeof server->build_ns);
    server->inbox = NULL;
    server->inbox_end = &server->inbox;
    struct sh_ring_config config = {
        .server = server->nid,
        .resend_ns = RESEND,
        .patience_ns = PATIENCE,
        .entries_kept = 4,
        .piece_bytes = 96,
        .fsm = {.apply = fsm_apply,
                .snapshot_begin = fsm_snapshot_begin,
                .snapshot_next = fsm_snapshot_next,
                .snapshot_end = fsm_snapshot_end,
                .restore_begin = fsm_restore_begin,
                .restore_piece = fsm_restore_piece,
                .restore_end = fsm_restore_end,
                .clear = fsm_clear,
                .build = fsm_build,
                .arg = server},
    };
    assert_int_equal(sh_ring_create(&config, &server->ring), SHOAL_OK);
    journal_open(server);
    struct sh_step step = {.name = "ring", .run = server_step, .due_ns = server_due, .arg = server};
    sh_world_step_add(world, node, step);
}

static void server_crash(void *arg, struct sh_world *world, unsigned node)
{
    (void)world;
    (void)node;
    struct server *server = arg;
    inbox_drop(server);
    disk_notes_crash(&server->disk);
    sh_journal_close(server->journal);
    sh_ring_destroy(server->ring);
    server->ring = NULL;
    server->is_paused = false;
}

/* The end of a process is seen at once by whoever had a connection to it. */
static void on_seen_dead(void *arg, uint64_t at, uint64_t life)
{
    struct rig *rig = arg;
    if (rig->servers[at].ring || rig->arcs.lives[at + 1] != life || !has_quorum(rig))
        return;
    if (sh_arcs_gone(&rig->arcs, (unsigned)at + 1))
        table_changed(rig);
}

static void kill_server(struct server *server, bool is_seen)
{
    struct rig *rig = server->rig;
    uint64_t life = life_of(server);
    sh_world_crash(rig->world, server->node);
    if (is_seen)
        sh_world_at(rig->world, sh_world_now(rig->world) + 5 * MS, on_seen_dead, rig,
                    server->nid - 1u, life);
}

/* --- Worlds ---------------------------------------------------------------------------------- */

static void rig_open(struct rig *rig, uint64_t seed)
{
    bool leases_never_end = rig->leases_never_end, answers_early = rig->answers_early;
    *rig = (struct rig){
        .seed = seed, .leases_never_end = leases_never_end, .answers_early = answers_early};
    struct sh_prng prng = sh_prng_make(seed);
    rig->prng = sh_prng_split(&prng);
    struct sh_world_config config = {.seed = sh_prng_next(&prng), .skip_ppm = 20000};
    config.disk = (struct sh_disk_faults){.delay_ns_min = 20000,
                                          .delay_ns_max = 20000 + sh_prng_below(&prng, 4 * MS),
                                          .survive_ppm = 300000,
                                          .torn_ppm = 300000};
    rig->world = sh_world_create(&config);
    rig->lines.delay_ns_max = 1 + sh_prng_below(&prng, 10 * MS);
    sh_world_at(rig->world, 1, watch, rig, 0, 0);
}

static struct server *server_add(struct rig *rig)
{
    struct server *server = &rig->servers[rig->count++];
    assert_true(rig->count <= SERVERS_MAX);
    server->rig = rig;
    server->nid = (uint8_t)rig->count;
    struct sh_world_node node = {.clock_offset_ns = (int64_t)sh_prng_below(&rig->prng, S),
                                 .boot = server_boot,
                                 .crash = server_crash,
                                 .arg = server};
    (void)sh_world_node_add(rig->world, &node);
    return server;
}

static void rig_close(struct rig *rig)
{
    for (unsigned i = 0; i < rig->count; i++) {
        if (rig->servers[i].ring)
            server_crash(&rig->servers[i], rig->world, i);
        disk_notes_clear(&rig->servers[i].disk);
    }
    while (rig->letters)
        letter_free(rig->letters);
    sh_world_destroy(rig->world);
}

static bool rig_run(struct rig *rig, bool (*predicate)(void *arg), uint64_t for_ns)
{
    return sh_world_run_until(rig->world, predicate, rig, sh_world_now(rig->world) + for_ns);
}

static bool answers(const struct server *server, unsigned shard)
{
    return server->ring && !server->is_paused &&
           !sh_ring_reads(server->ring, now_at(server), shard);
}

/* Who answers for a shard, or NULL; a second one is a violation. */
static struct server *answering(struct rig *rig, unsigned shard)
{
    struct server *found = NULL;
    for (unsigned i = 0; i < rig->count; i++) {
        if (!answers(&rig->servers[i], shard))
            continue;
        if (found)
            violated(rig, "two superpeers answer for a shard");
        found = &rig->servers[i];
    }
    return found;
}

/* Whether each shard is owned and held by those who are to, and all that was ordered is done. */
static bool has_converged(void *arg)
{
    struct rig *rig = arg;
    if (rig->broken)
        return true;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        const struct sh_shard *shard = &rig->arcs.shards[i];
        uint64_t wanted = sh_arc_wanted(rig->arcs.up, i);
        if (!shard->owner || shard->replicas != wanted ||
            shard->owner != sh_arc_successor(rig->arcs.up, i))
            return false;
        const struct server *owner = &rig->servers[shard->owner - 1];
        if (!answers(owner, i))
            return false;
        for (; wanted; wanted &= wanted - 1) {
            const struct server *server = &rig->servers[__builtin_ctzll(wanted) - 1];
            if (!server->ring || !sh_ring_holds(server->ring, i) ||
                sh_ring_applied(server->ring, i) != sh_ring_last(owner->ring, i) ||
                memcmp(&server->states[i], &owner->states[i], sizeof owner->states[i]) != 0)
                return false;
        }
    }
    return true;
}

#endif
