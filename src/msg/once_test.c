/* At-most-once execution: answers that are lost after the request was executed. */
#include "base/random_test.h"
#include "msg/msg_edges_test.h"

#include "msg/once.h"

#define TYPE_ADD SH_MSG_TYPE(9, 9)
#define NUMBERS_MAX 20000

/* The server of these tests: adds, and remembers which number it did how often. */
struct adder {
    struct sh_once *once;
    unsigned executed[NUMBERS_MAX];
    uint64_t sum;
    unsigned repeats;
    bool does_nothing; /* refuses without having done anything */
};

static struct adder adder;

static void on_add(void *arg, struct sh_msg_in *in)
{
    struct adder *to = arg;
    struct sh_once_id id;
    struct sh_once_result result = {.err = SHOAL_OK};
    enum sh_once_state state = sh_once_begin(to->once, in, &id, &result);
    if (state == SH_ONCE_REFUSED)
        return;
    to->repeats += state == SH_ONCE_REPEATED;
    if (state == SH_ONCE_FIRST && to->does_nothing) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOTOWNER, NULL);
        return;
    }
    if (state == SH_ONCE_FIRST) {
        to->executed[id.number]++;
        to->sum += sh_get64(&in->payload);
        result.value = to->sum;
        result.about = id.number * 10;
        sh_once_end(to->once, &id, &result);
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 8, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, result.value);
    sh_msg_end(in->msg, &out);
}

static struct end *adder_open(uint16_t nid, const struct sh_once_config *config)
{
    struct end *end = end_open(nid);
    adder = (struct adder){0};
    assert_int_equal(sh_once_create(end->msg, config, &adder.once), SHOAL_OK);
    sh_msg_handler_set(end->msg, TYPE_ADD, SH_MSG_INLINE, on_add, &adder);
    return end;
}

static int adder_close(void **state)
{
    sh_once_destroy(adder.once);
    return close_all(state);
}

static void add(struct end *end, const struct sh_once_id *id, uint64_t value, struct asked *asked)
{
    *asked = (struct asked){.request = {.done = on_done, .arg = asked}};
    struct sh_out out;
    assert_int_equal(sh_msg_request(end->msg, (shoal_nid){2}, TYPE_ADD, SH_ONCE_PREFIX_BYTES + 8,
                                    &asked->request, &out),
                     SHOAL_OK);
    sh_once_id_put(&out.w, id);
    sh_put64(&out.w, value);
    sh_msg_end(end->msg, &out);
}

static enum shoal_err add_now(struct end *end, struct sh_once_id id, uint64_t value,
                              uint64_t *sum_out)
{
    struct asked asked;
    add(end, &id, value, &asked);
    run_all();
    assert_int_equal(asked.done, 1);
    *sum_out = asked.first;
    return asked.err;
}

static void test_repeated(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){0});
    knows(a, b, 2);
    uint64_t sum;
    assert_int_equal(add_now(a, (struct sh_once_id){7, 1, 0}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 5);
    assert_int_equal(add_now(a, (struct sh_once_id){7, 1, 0}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 5);
    /* Another client's first is another request; a later one of the same client too. */
    assert_int_equal(add_now(a, (struct sh_once_id){8, 1, 0}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 10);
    assert_int_equal(add_now(a, (struct sh_once_id){7, 2, 1}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 15);
    /* What was acknowledged is not done again, however late it comes. */
    assert_int_equal(add_now(a, (struct sh_once_id){7, 1, 0}, 5, &sum), SHOAL_ECANCELED);
    assert_int_equal(adder.sum, 15);
    /* Refused without being done, it may be done later under the same number. */
    adder.does_nothing = true;
    assert_int_equal(add_now(a, (struct sh_once_id){7, 3, 2}, 5, &sum), SHOAL_ENOTOWNER);
    adder.does_nothing = false;
    assert_int_equal(add_now(a, (struct sh_once_id){7, 3, 2}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 20);
}

struct told {
    unsigned count;
    struct sh_once_id id;
    struct sh_once_result result;
};

static void tell_of(void *arg, const struct sh_once_id *id, const struct sh_once_result *result)
{
    struct told *told = arg;
    told->count++;
    told->id = *id;
    told->result = *result;
}

static unsigned count_of(uint64_t first, uint64_t last)
{
    struct told told = {0};
    sh_once_each(adder.once, first, last, tell_of, &told);
    return told.count;
}

/* The results that are about something in a range, from its first to its last, and not those that
 * the client has acknowledged since. */
static void test_each(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){0});
    knows(a, b, 2);
    uint64_t sum;
    for (uint64_t number = 1; number <= 9; number++)
        assert_int_equal(add_now(a, (struct sh_once_id){7, number, 0}, 5, &sum), SHOAL_OK);
    static const struct {
        uint64_t first, last;
        unsigned count, acknowledged_count;
    } cases[] = {{0, UINT64_MAX, 9, 5}, {20, 20, 1, 0}, {21, 29, 0, 0}, {11, 20, 1, 0},
                 {40, 50, 2, 1},        {90, 90, 1, 1}, {91, 99, 0, 0}};
    enum { CASES = sizeof cases / sizeof cases[0] };
    for (unsigned i = 0; i < CASES; i++) {
        assert_int_equal(count_of(cases[i].first, cases[i].last), cases[i].count);
    }
    struct told told = {0};
    sh_once_each(adder.once, 20, 29, tell_of, &told);
    assert_int_equal(told.id.client, 7);
    assert_int_equal(told.id.number, 2);
    assert_int_equal(told.result.value, 10);
    assert_int_equal(told.result.about, 20);
    assert_int_equal(add_now(a, (struct sh_once_id){7, 9, 4}, 5, &sum), SHOAL_OK);
    assert_int_equal(sum, 45); /* repeated */
    for (unsigned i = 0; i < CASES; i++) {
        assert_int_equal(count_of(cases[i].first, cases[i].last), cases[i].acknowledged_count);
    }
}

/* A request that an earlier life has done is answered as if it had been done here. */
static void test_entered(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){.clients_max = 1});
    knows(a, b, 2);
    const struct sh_once_result kept = {.value = 77, .about = 5}, other = {.value = 78, .about = 6};
    struct sh_once_result result;
    assert_int_equal(sh_once_enter(adder.once, &(struct sh_once_id){9, 5, 3}, &kept), SHOAL_OK);
    assert_int_equal(sh_once_enter(adder.once, &(struct sh_once_id){9, 5, 3}, &other), SHOAL_OK);
    assert_int_equal(sh_once_enter(adder.once, &(struct sh_once_id){9, 2, 1}, &other), SHOAL_OK);
    assert_int_equal(sh_once_enter(adder.once, &(struct sh_once_id){8, 1, 0}, &other),
                     SHOAL_ELIMIT);
    assert_true(sh_once_find(adder.once, 9, 5, &result));
    assert_true(result.value == 77 && result.about == 5);
    assert_false(sh_once_find(adder.once, 9, 4, &result));
    assert_false(sh_once_find(adder.once, 9, 2, &result)); /* it was acknowledged */
    assert_false(sh_once_find(adder.once, 7, 5, &result));
    uint64_t sum;
    assert_int_equal(add_now(a, (struct sh_once_id){9, 5, 3}, 1, &sum), SHOAL_OK);
    assert_int_equal(sum, 77);
    assert_int_equal(adder.sum, 0);
}

static void test_malformed(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){0});
    knows(a, b, 2);
    uint64_t sum;
    assert_int_equal(add_now(a, (struct sh_once_id){0, 1, 0}, 5, &sum), SHOAL_EPROTO);
    assert_int_equal(add_now(a, (struct sh_once_id){7, 0, 0}, 5, &sum), SHOAL_EPROTO);
    assert_int_equal(add_now(a, (struct sh_once_id){7, 3, 3}, 5, &sum), SHOAL_EPROTO);
    assert_int_equal(add_now(a, (struct sh_once_id){7, SH_ONCE_WINDOW + 1, 0}, 5, &sum),
                     SHOAL_EPROTO);
    assert_int_equal(add_now(a, (struct sh_once_id){7, UINT64_MAX, 0}, 5, &sum), SHOAL_EPROTO);
    struct asked cut_short;
    assert_int_equal(ask(a, 2, TYPE_ADD, 7, &cut_short), SHOAL_OK);
    struct sh_out out;
    assert_int_equal(sh_msg_begin(a->msg, (shoal_nid){2}, TYPE_ADD, SH_ONCE_PREFIX_BYTES + 8, &out),
                     SHOAL_OK); /* one-way: dropped */
    sh_once_id_put(&out.w, &(struct sh_once_id){7, 1, 0});
    sh_put64(&out.w, 5);
    sh_msg_end(a->msg, &out);
    run_all();
    assert_int_equal(cut_short.err, SHOAL_EPROTO);
    assert_int_equal(adder.sum, 0);
    uint32_t clients, results;
    sh_once_count(adder.once, &clients, &results);
    assert_int_equal(clients, 0);
}

static void test_limits_and_age(void **state)
{
    (void)state;
    const struct sh_once_config config = {.clients_max = 2, .results_max = 64};
    struct end *a = end_open(1), *b = adder_open(2, &config);
    knows(a, b, 2);
    uint64_t sum;
    uint32_t clients, results;
    assert_int_equal(add_now(a, (struct sh_once_id){1, 1, 0}, 1, &sum), SHOAL_OK);
    assert_int_equal(add_now(a, (struct sh_once_id){2, 1, 0}, 1, &sum), SHOAL_OK);
    assert_int_equal(add_now(a, (struct sh_once_id){3, 1, 0}, 1, &sum), SHOAL_ELIMIT);
    /* A window of 33 would be 64 results. */
    assert_int_equal(add_now(a, (struct sh_once_id){1, 33, 0}, 1, &sum), SHOAL_ELIMIT);
    assert_int_equal(add_now(a, (struct sh_once_id){1, 32, 0}, 1, &sum), SHOAL_OK);
    sh_once_count(adder.once, &clients, &results);
    assert_int_equal(results, 48);
    assert_int_equal(add_now(a, (struct sh_once_id){1, 1, 0}, 1, &sum), SHOAL_OK); /* has moved */
    assert_int_equal(adder.sum, 3);
    /* One goes on, the other is silent: only that one is forgotten. */
    pass(SH_ONCE_KEEP_NS / 2);
    assert_int_equal(add_now(a, (struct sh_once_id){1, 1, 0}, 1, &sum), SHOAL_OK);
    pass(SH_ONCE_KEEP_NS / 2);
    assert_int_equal(add_now(a, (struct sh_once_id){3, 1, 0}, 1, &sum), SHOAL_OK);
    assert_int_equal(sum, 4);
    assert_int_equal(add_now(a, (struct sh_once_id){1, 1, 0}, 1, &sum), SHOAL_OK);
    assert_int_equal(sum, 1);
    sh_once_count(adder.once, &clients, &results);
    assert_int_equal(clients, 2);
}

/* However many a client has open, each is done once: as its room grows, up to the window. */
static void test_growth(void **state)
{
    (void)state;
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){0});
    knows(a, b, 2);
    uint64_t sum;
    static const uint64_t more[] = {17, 18, 33, 40, 70, 200};
    for (uint64_t number = 1; number <= 16; number++)
        assert_int_equal(add_now(a, (struct sh_once_id){7, number, 0}, 1, &sum), SHOAL_OK);
    for (unsigned i = 0; i < 6; i++) {
        assert_int_equal(add_now(a, (struct sh_once_id){7, more[i], 0}, 1, &sum), SHOAL_OK);
        for (uint64_t number = 1; number <= 16; number++)
            assert_int_equal(add_now(a, (struct sh_once_id){7, number, 0}, 1, &sum), SHOAL_OK);
        for (unsigned j = 0; j <= i; j++)
            assert_int_equal(add_now(a, (struct sh_once_id){7, more[j], 0}, 1, &sum), SHOAL_OK);
    }
    assert_int_equal(adder.sum, 16 + 6);
    assert_int_equal(count_of(0, UINT64_MAX), 16 + 6);
    assert_int_equal(add_now(a, (struct sh_once_id){7, SH_ONCE_WINDOW, 0}, 1, &sum), SHOAL_OK);
    assert_int_equal(adder.sum, 16 + 7);
    /* What was acknowledged leaves room for as many again. */
    assert_int_equal(add_now(a, (struct sh_once_id){7, SH_ONCE_WINDOW + 200, 200}, 1, &sum),
                     SHOAL_OK);
    assert_int_equal(add_now(a, (struct sh_once_id){7, SH_ONCE_WINDOW, 200}, 1, &sum), SHOAL_OK);
    assert_int_equal(adder.sum, 16 + 8);
    assert_int_equal(count_of(0, UINT64_MAX), 2);
}

/* Those that are forgotten give back all that they had, two at a time; and come back as new ones. */
static void test_forgotten(void **state)
{
    (void)state;
    const struct sh_once_config config = {.clients_max = 8, .results_max = 80};
    struct end *a = end_open(1), *b = adder_open(2, &config);
    knows(a, b, 2);
    uint64_t sum;
    uint32_t clients, results;
    for (unsigned round = 1; round <= 3; round++) {
        for (uint64_t client = 1; client <= 5; client++)
            assert_int_equal(add_now(a, (struct sh_once_id){client << 52, 1, 0}, 1, &sum),
                             SHOAL_OK);
        assert_int_equal(add_now(a, (struct sh_once_id){6, 1, 0}, 1, &sum), SHOAL_ELIMIT);
        sh_once_count(adder.once, &clients, &results);
        assert_true(clients == 5 && results == 80);
        assert_int_equal(adder.sum, 5 * round + (round - 1));
        pass(SH_ONCE_KEEP_NS);
        assert_int_equal(add_now(a, (struct sh_once_id){6, 1, 0}, 1, &sum), SHOAL_OK);
        sh_once_count(adder.once, &clients, &results);
        assert_true(clients == 4 && results == 64);
        assert_int_equal(count_of(0, UINT64_MAX), 4);
        pass(SH_ONCE_KEEP_NS);
    }
}

/* A client with several requests open loses its connection at any time: before they have arrived,
 * between execution and answer, after. It repeats what failed until it is answered. */
static void lose(uint64_t *random, unsigned *lost_answers_out)
{
    enum { OPEN = 12, TOTAL = 1000, LOSSES = 12 };
    struct end *a = end_open(1), *b = adder_open(2, &(struct sh_once_config){0});
    knows(a, b, 2);
    static struct sh_once_numbers numbers;
    numbers = (struct sh_once_numbers){0};
    struct asked asked[OPEN];
    uint64_t open[OPEN] = {0}, last_lost[OPEN] = {0};
    unsigned answered = 0, losses = 0, lost_answers = 0;
    while (answered < TOTAL) {
        size_t i = test_draw(random) % OPEN;
        if (open[i] == 0) {
            open[i] = sh_once_number(&numbers);
            add(a, &(struct sh_once_id){77, open[i], numbers.finished}, 1, &asked[i]);
        }
        for (uint64_t rounds = test_draw(random) % 4; rounds > 0; rounds--)
            (void)round_run(0);
        if (losses < LOSSES && test_draw(random) % 8 == 0) {
            bool is_executed = adder.executed[open[i]] && !asked[i].done;
            cut(a, b);
            losses++;
            run_all();
            /* Executed, and the answer gone: this is the loss that matters. The repetition may be
             * lost as well. */
            if (is_executed && asked[i].err != SHOAL_OK && last_lost[i] != open[i]) {
                last_lost[i] = open[i];
                lost_answers++;
            }
        }
        for (size_t j = 0; j < OPEN; j++) {
            if (open[j] == 0 || !asked[j].done)
                continue;
            if (asked[j].err == SHOAL_OK) {
                assert_int_equal(adder.executed[open[j]], 1);
                sh_once_finish(&numbers, open[j]);
                open[j] = 0;
                answered++;
            } else {
                /* EUNREACHABLE: cut while it was being opened. */
                assert_true(asked[j].err == SHOAL_ECONNLOST || asked[j].err == SHOAL_EUNREACHABLE);
                add(a, &(struct sh_once_id){77, open[j], numbers.finished}, 1, &asked[j]);
            }
        }
    }
    run_all();
    for (uint64_t number = 1; number <= numbers.last; number++)
        assert_true(adder.executed[number] <= 1);
    assert_int_equal(losses, LOSSES);
    assert_true(adder.repeats >= lost_answers);
    *lost_answers_out += lost_answers;
}

static void test_losses(void **state)
{
    uint64_t random = test_seed(20181) * 2654435761u + 1;
    unsigned lost_answers = 0;
    for (int i = 0; i < 20; i++) {
        lose(&random, &lost_answers);
        (void)adder_close(state);
        adder.once = NULL;
    }
    assert_true(lost_answers > 5);
}

static void test_numbers(void **state)
{
    (void)state;
    struct sh_once_numbers numbers = {0};
    for (uint64_t i = 1; i <= SH_ONCE_WINDOW; i++)
        assert_int_equal(sh_once_number(&numbers), i);
    assert_int_equal(sh_once_number(&numbers), 0);
    sh_once_finish(&numbers, 2);
    assert_int_equal(numbers.finished, 0);
    assert_int_equal(sh_once_number(&numbers), 0);
    sh_once_finish(&numbers, 1);
    assert_int_equal(numbers.finished, 2);
    assert_int_equal(sh_once_number(&numbers), SH_ONCE_WINDOW + 1);
    for (uint64_t i = SH_ONCE_WINDOW + 1; i > 2; i--)
        sh_once_finish(&numbers, i);
    assert_int_equal(numbers.finished, SH_ONCE_WINDOW + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(test_repeated, adder_close),
        cmocka_unit_test_teardown(test_each, adder_close),
        cmocka_unit_test_teardown(test_entered, adder_close),
        cmocka_unit_test_teardown(test_malformed, adder_close),
        cmocka_unit_test_teardown(test_limits_and_age, adder_close),
        cmocka_unit_test_teardown(test_growth, adder_close),
        cmocka_unit_test_teardown(test_forgotten, adder_close),
        cmocka_unit_test_teardown(test_losses, adder_close),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
