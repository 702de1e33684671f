/* Many application threads on real crews over TCP, while connections are closed under them: every
 * request completes exactly once, order per connection is kept, nothing is left behind.
 *
 * SHOAL_TEST_SEED: the seed of what the threads do (default: random; printed). */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <inttypes.h>
#include <pthread.h>
#include <sched.h>

#include "base/hash.h"
#include "base/random_test.h"
#include "msg/msg_int.h"
#include "msg/tcp.h"

#define TYPE_ECHO SH_MSG_TYPE(9, 1)
#define TYPE_POOLED SH_MSG_TYPE(9, 2)
#define TYPE_ORDERED_ECHO SH_MSG_TYPE(9, 3)
#define TYPE_TELL SH_MSG_TYPE(9, 4)
#define TYPE_TELL_ORDERED SH_MSG_TYPE(9, 5)
#define TYPE_SLOW SH_MSG_TYPE(9, 6)

#define ENDS 3 /* node 1, node 2, and a client of both */
#define CLIENT 2
#define THREADS 64
#define ROUNDS 120
#define CLOSINGS 24
#define CONNS_SEEN 64
#define DEADLINE_NS UINT64_C(60000000000)

/* What has been received last from one sender over one connection. */
struct seen {
    shoal_nid nid;
    uint32_t generation;
    uint64_t number;
};

struct end {
    struct sh_msg *msg;
    struct sh_crew *crew;
    struct sh_wire *wire;
    unsigned threads;
    char address[SH_MSG_ADDRESS_MAX];
    pthread_mutex_t seen_lock;
    struct seen seen[THREADS][2][CONNS_SEEN];
    _Atomic uint64_t told; /* one-way messages received */
};

static struct end ends[ENDS];
static uint64_t seed;
static _Atomic uint64_t rounds_done;

static uint64_t now(void)
{
    struct sh_clock clock = sh_real_clock();
    return sh_now(&clock);
}

static void wake_transport(void *arg)
{
    struct end *end = arg;
    sh_crew_wake(end->crew, 0);
}

static void wake_handlers(void *arg)
{
    struct end *end = arg;
    for (unsigned thread = end->threads > 1; thread < end->threads; thread++)
        sh_crew_wake(end->crew, thread);
}

static void on_echo(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    struct sh_out out;
    size_t size = sh_reader_left(&in->payload);
    if (in->type == TYPE_SLOW)
        sched_yield();
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out) != SHOAL_OK)
        return; /* the asker is gone */
    sh_put_raw(&out.w, sh_bytes_make(sh_reader_take(&in->payload, size), size));
    sh_msg_end(in->msg, &out);
}

/* u64 sender, u64 number: over one connection the numbers of one sender rise. */
static void on_tell(void *arg, struct sh_msg_in *in)
{
    struct end *end = arg;
    uint64_t sender = sh_get64(&in->payload), number = sh_get64(&in->payload);
    bool is_ordered = in->type == TYPE_TELL_ORDERED;
    SH_ASSERT(sender < THREADS && sh_reader_ok(&in->payload));
    pthread_mutex_lock(&end->seen_lock);
    struct seen *seen = end->seen[sender][is_ordered];
    while (seen->nid.v != 0 &&
           (seen->nid.v != in->reply_to.nid.v || seen->generation != in->reply_to.generation))
        seen++;
    SH_ASSERT(seen < end->seen[sender][is_ordered] + CONNS_SEEN);
    SH_ASSERT(seen->nid.v == 0 || number > seen->number);
    *seen = (struct seen){in->reply_to.nid, in->reply_to.generation, number};
    pthread_mutex_unlock(&end->seen_lock);
    atomic_fetch_add(&end->told, 1);
}

static void end_msg(struct end *end, uint16_t nid)
{
    assert_int_equal(sh_tcp_create(64, &end->wire), SHOAL_OK);
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "test",
        .secret = sh_bytes_text("a secret of the test"),
        .connections_max = 32,
        .requests_max = 4096,
        .ring_bytes = 16384,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = DEADLINE_NS,
        .connect_timeout_ns = DEADLINE_NS,
        .env = {.clock = sh_real_clock(), .random = sh_real_random(), .wire = end->wire},
        .wake_transport = wake_transport,
        .wake_handlers = wake_handlers,
        .arg = end,
    };
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    if (nid)
        assert_int_equal(sh_msg_listen(end->msg, "127.0.0.1:0", end->address), SHOAL_OK);
    sh_msg_handler_set(end->msg, TYPE_ECHO, SH_MSG_INLINE, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_POOLED, SH_MSG_POOLED, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_ORDERED_ECHO, SH_MSG_ORDERED, on_echo, end);
    sh_msg_handler_set(end->msg, TYPE_TELL, SH_MSG_INLINE, on_tell, end);
    sh_msg_handler_set(end->msg, TYPE_TELL_ORDERED, SH_MSG_ORDERED, on_tell, end);
    sh_msg_handler_set(end->msg, TYPE_SLOW, SH_MSG_POOLED, on_echo, end);
}

static void end_open(struct end *end, uint16_t nid, unsigned threads, bool lends)
{
    struct sh_clock clock = sh_real_clock();
    memset(end, 0, sizeof *end);
    pthread_mutex_init(&end->seen_lock, NULL);
    end->threads = threads;
    struct sh_crew_config config = {.name = "test",
                                    .threads = threads,
                                    .lends = lends,
                                    .idle = {10000, 20000, 1000000000},
                                    .now_ns = clock.now_ns,
                                    .now_arg = clock.arg};
    assert_int_equal(sh_crew_create(&config, &end->crew), SHOAL_OK);
    end_msg(end, nid);
    sh_crew_parker_set(end->crew, 0, sh_msg_parker(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_transport_step(end->msg));
    for (unsigned thread = threads > 1; thread < threads; thread++)
        sh_crew_step_add(end->crew, thread, sh_msg_handler_step(end->msg));
    assert_int_equal(sh_crew_start(end->crew), SHOAL_OK);
}

static void end_close(struct end *end)
{
    sh_crew_stop(end->crew);
    sh_msg_destroy(end->msg);
    sh_crew_destroy(end->crew);
    end->wire->ops->destroy(end->wire);
    pthread_mutex_destroy(&end->seen_lock);
}

/* --- An application thread ----------------------------------------------------------------- */

struct asked {
    struct sh_request request;
    struct sh_waiter waiter;
    _Atomic unsigned done;
    bool is_sent, is_canceled;
    enum shoal_err err;
    uint64_t value;
};

struct app {
    pthread_t thread;
    struct end *end;
    uint64_t index, random, told[ENDS];
    struct asked asked[ROUNDS];
};

static uint64_t draw(struct app *app)
{
    return app->random = sh_mix64(app->random + 1);
}

static void on_done(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct asked *asked = request->arg;
    SH_ASSERT(atomic_fetch_add(&asked->done, 1) == 0);
    asked->err = err;
    asked->value = sh_get64(payload);
    sh_waiter_complete(&asked->waiter);
}

static void wait_room(struct app *app, shoal_nid to)
{
    struct sh_waiter room = {0};
    sh_msg_wait_room(app->end->msg, to, 3000, &room);
    SH_ASSERT(sh_crew_wait(app->end->crew, 0, &room, now() + DEADLINE_NS));
}

/* Asks and waits, or cancels, or is content with a time-out. */
static void ask(struct app *app, shoal_nid to, struct asked *asked)
{
    static const sh_msg_type types[] = {TYPE_ECHO, TYPE_POOLED, TYPE_ORDERED_ECHO, TYPE_SLOW};
    uint64_t what = draw(app), value = draw(app);
    sh_msg_type type = types[what % 4];
    size_t size = what >> 8 & 7 ? 8 : 3000;
    bool cancels = (what >> 16 & 7) == 0, hurries = (what >> 20 & 7) == 0;
    struct sh_out out;
    enum shoal_err err;
    asked->request =
        (struct sh_request){.done = on_done, .arg = asked, .timeout_ns = hurries ? 20000 : 0};
    while ((err = sh_msg_request(app->end->msg, to, type, size, &asked->request, &out)) ==
           SHOAL_EAGAIN)
        wait_room(app, to);
    SH_ASSERT(err == SHOAL_OK);
    asked->is_sent = true;
    sh_put64(&out.w, value);
    memset(sh_writer_take(&out.w, size - 8), 0, size - 8);
    sh_msg_end(app->end->msg, &out);
    if (cancels && sh_msg_cancel(app->end->msg, &asked->request)) {
        asked->is_canceled = true;
        return;
    }
    SH_ASSERT(sh_crew_wait(app->end->crew, 0, &asked->waiter, now() + DEADLINE_NS));
    SH_ASSERT(asked->err == SHOAL_OK || asked->err == SHOAL_ECONNLOST ||
              (hurries && asked->err == SHOAL_ETIMEOUT));
    SH_ASSERT(asked->err != SHOAL_OK || asked->value == value);
}

static void tell(struct app *app, shoal_nid to)
{
    sh_msg_type type = draw(app) & 1 ? TYPE_TELL : TYPE_TELL_ORDERED;
    for (unsigned i = 0; i < 4; i++) {
        struct sh_out out;
        enum shoal_err err;
        while ((err = sh_msg_begin(app->end->msg, to, type, 16, &out)) == SHOAL_EAGAIN)
            wait_room(app, to);
        SH_ASSERT(err == SHOAL_OK);
        sh_put64(&out.w, app->index);
        sh_put64(&out.w, ++app->told[to.v]);
        sh_msg_end(app->end->msg, &out);
    }
}

static void *app_run(void *arg)
{
    struct app *app = arg;
    for (unsigned i = 0; i < ROUNDS; i++) {
        unsigned self = (unsigned)(app->end - ends);
        shoal_nid to = {(uint16_t)(self == CLIENT ? 1 + draw(app) % 2 : 2 - self)};
        if (draw(app) % 3 == 0)
            tell(app, to);
        else
            ask(app, to, &app->asked[i]);
        atomic_fetch_add(&rounds_done, 1);
    }
    return NULL;
}

/* --- The whole ----------------------------------------------------------------------------- */

/* The same address, written with so many zeros before the port: a new one closes the connection. */
static void name(struct end *end, uint16_t nid, unsigned zeros)
{
    char address[SH_MSG_ADDRESS_MAX];
    const char *of = ends[nid - 1].address, *colon = strrchr(of, ':');
    snprintf(address, sizeof address, "%.*s:%.*s%s", (int)(colon - of), of, (int)zeros, "000",
             colon + 1);
    assert_int_equal(sh_msg_node_set(end->msg, (shoal_nid){nid}, address), SHOAL_OK);
}

static bool is_settled(const struct end *end)
{
    return sh_msg_requests_pending(end->msg) == 0 && sh_msg_drained(end->msg) &&
           sh_queue_count(end->msg->works_free) == SH_WORKS_MAX;
}

static void close_connections(void)
{
    for (uint64_t i = 1; i <= CLOSINGS; i++) {
        uint64_t deadline = now() + DEADLINE_NS;
        while (atomic_load(&rounds_done) < i * THREADS * ROUNDS / (CLOSINGS + 1)) {
            assert_true(now() < deadline);
            sched_yield();
        }
        switch (i % 4) {
        case 0:
            name(&ends[0], 2, i / 4 % 2);
            break;
        case 1:
            name(&ends[1], 1, i / 4 % 2);
            break;
        default:
            name(&ends[CLIENT], (uint16_t)(1 + i % 2), i / 4 % 2);
            break;
        }
    }
}

static void check_apps(const struct app *apps)
{
    unsigned answered = 0, canceled = 0, failed = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        for (unsigned k = 0; k < ROUNDS; k++) {
            const struct asked *asked = &apps[i].asked[k];
            assert_int_equal(asked->done, asked->is_sent && !asked->is_canceled);
            answered += asked->done && asked->err == SHOAL_OK;
            failed += asked->done && asked->err != SHOAL_OK;
            canceled += asked->is_canceled;
        }
    }
    print_message("%u answered, %u failed, %u canceled\n", answered, failed, canceled);
    assert_true(answered > THREADS * ROUNDS / 4);
}

static void test_everything_at_once(void **state)
{
    (void)state;
    struct app *apps = calloc(THREADS, sizeof *apps);
    assert_non_null(apps);
    atomic_store(&rounds_done, 0);
    end_open(&ends[0], 1, 1, false);
    end_open(&ends[1], 2, 4, false);
    end_open(&ends[CLIENT], 0, 1, true);
    name(&ends[0], 2, 0);
    name(&ends[1], 1, 0);
    name(&ends[CLIENT], 1, 0);
    name(&ends[CLIENT], 2, 0);
    for (unsigned i = 0; i < THREADS; i++) {
        apps[i] = (struct app){
            .end = &ends[i % 4 < 2 ? CLIENT : i % 4 - 2], .index = i, .random = sh_mix64(seed + i)};
        assert_int_equal(pthread_create(&apps[i].thread, NULL, app_run, &apps[i]), 0);
    }
    close_connections();
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(apps[i].thread, NULL);
    uint64_t deadline = now() + DEADLINE_NS;
    while (!is_settled(&ends[0]) || !is_settled(&ends[1]) || !is_settled(&ends[CLIENT])) {
        assert_true(now() < deadline);
        sched_yield();
    }
    check_apps(apps);
    struct sh_msg_stats stats;
    sh_msg_stats_get(ends[CLIENT].msg, &stats);
    assert_true(stats.connections_lost > 0);
    assert_true(atomic_load(&ends[0].told) > 0 && atomic_load(&ends[1].told) > 0);
    for (unsigned i = 0; i < ENDS; i++)
        end_close(&ends[i]);
    free(apps);
}

/* --- Aliases ------------------------------------------------------------------------------- */

#define CONTACTS 40

struct contacts {
    pthread_t thread;
    unsigned index;
    shoal_nid aliases[CONTACTS];
};

static void *contacts_run(void *arg)
{
    struct contacts *contacts = arg;
    for (unsigned i = 0; i < CONTACTS; i++) {
        char address[SH_MSG_ADDRESS_MAX];
        /* Half of the addresses are this thread's own, half everybody's. */
        unsigned whose = i % 2 ? contacts->index : 99;
        snprintf(address, sizeof address, "host%u:%u", whose, i + 1);
        SH_ASSERT(sh_msg_contact(ends[0].msg, address, &contacts->aliases[i]) == SHOAL_OK);
    }
    return NULL;
}

/* No two addresses share an alias, whoever asks at the same time, nor does a client that connects.
 */
static void test_contacts_at_once(void **state)
{
    (void)state;
    struct contacts contacts[8] = {0};
    static unsigned used[65536];
    memset(used, 0, sizeof used);
    end_open(&ends[0], 1, 1, false);
    end_open(&ends[CLIENT], 0, 1, true);
    for (unsigned i = 0; i < 8; i++) {
        contacts[i].index = i;
        assert_int_equal(pthread_create(&contacts[i].thread, NULL, contacts_run, &contacts[i]), 0);
    }
    name(&ends[CLIENT], 1, 0);
    struct app app = {.end = &ends[CLIENT]};
    ask(&app, (shoal_nid){1}, &app.asked[0]);
    for (unsigned i = 0; i < 8; i++)
        pthread_join(contacts[i].thread, NULL);
    for (unsigned i = 0; i < 8; i++) {
        for (unsigned k = 0; k < CONTACTS; k++) {
            if (k % 2 == 0)
                assert_int_equal(contacts[i].aliases[k].v, contacts[0].aliases[k].v);
            if (k % 2 == 1 || i == 0)
                assert_int_equal(used[contacts[i].aliases[k].v]++, 0);
        }
    }
    end_close(&ends[CLIENT]);
    end_close(&ends[0]);
}

int main(void)
{
    struct sh_random random = sh_real_random();
    seed = test_seed(sh_random64(&random));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything_at_once),
        cmocka_unit_test(test_contacts_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
