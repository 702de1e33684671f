/* A registry in ZooKeeper whose value is nearly full: what does not fit is refused by itself, and
 * nothing else is lost with it. ZooKeeper is a value in memory with a bound of the test's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/log.h"
#include "msg/memwire.h"
#include "superpeer/superpeer.h"
#include "superpeer/superpeer_shared_int.h"
#include "superpeer/zookeeper.h"

#define S UINT64_C(1000000000)

/* --- ZooKeeper ------------------------------------------------------------------------------- */

static struct {
    uint8_t *value;
    size_t size, bytes_max;
    uint64_t number;
    unsigned writes, refused;
    bool leads, is_busy;  /* busy: nothing can be written now */
    unsigned beaten;      /* writes that somebody else is faster than */
    enum shoal_err wrote; /* what came of the last one */
    uint64_t led_ns;
} keeper;

enum shoal_err sh_zookeeper_create(const char *servers, const char *cluster, uint64_t session_ns,
                                   uint64_t confirm_ns, struct sh_zookeeper **zookeeper_out)
{
    (void)servers;
    (void)cluster;
    (void)session_ns;
    (void)confirm_ns;
    *zookeeper_out = (struct sh_zookeeper *)&keeper;
    return SHOAL_OK;
}

void sh_zookeeper_destroy(struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
}

unsigned sh_zookeeper_step(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    (void)zookeeper;
    (void)now_ns;
    return 0;
}

uint64_t sh_zookeeper_due_ns(const struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    (void)zookeeper;
    return now_ns;
}

bool sh_zookeeper_is_current(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return true;
}

struct sh_bytes sh_zookeeper_value(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return sh_bytes_make(keeper.value, keeper.size);
}

uint64_t sh_zookeeper_number(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return keeper.number;
}

bool sh_zookeeper_can_write(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return !keeper.is_busy;
}

enum shoal_err sh_zookeeper_write(struct sh_zookeeper *zookeeper, struct sh_bytes value)
{
    (void)zookeeper;
    if (value.size > keeper.bytes_max) {
        keeper.refused++;
        return SHOAL_ETOOBIG;
    }
    keeper.wrote = keeper.beaten ? SHOAL_EBUSY : SHOAL_OK;
    if (keeper.beaten) {
        keeper.beaten--;
        return SHOAL_OK;
    }
    keeper.value = realloc(keeper.value, value.size);
    assert_non_null(keeper.value);
    memcpy(keeper.value, value.at, value.size);
    keeper.size = value.size;
    keeper.number++;
    keeper.writes++;
    return SHOAL_OK;
}

enum shoal_err sh_zookeeper_written(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return keeper.wrote;
}

void sh_zookeeper_stand(struct sh_zookeeper *zookeeper, uint16_t as)
{
    (void)zookeeper;
    (void)as;
}

bool sh_zookeeper_leads(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return keeper.leads;
}

uint64_t sh_zookeeper_led_ns(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return keeper.leads ? keeper.led_ns : 0;
}

uint64_t sh_zookeeper_term(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return keeper.leads;
}

uint16_t sh_zookeeper_leader(const struct sh_zookeeper *zookeeper)
{
    (void)zookeeper;
    return 0;
}

/* --- The superpeer --------------------------------------------------------------------------- */

static struct sh_memwire memwire;
static struct sh_msg *msg;
static struct sh_superpeer *superpeer;

static void wake_nobody(void *arg)
{
    (void)arg;
}

static void steps(void)
{
    struct sh_step step = sh_superpeer_step(superpeer);
    for (unsigned i = 0; i < 200; i++)
        (void)step.run(step.arg);
}

static enum shoal_err enrolled;

static void on_enrolled(void *arg, enum shoal_err err)
{
    (void)arg;
    enrolled = err;
}

static void superpeer_open_at(const char *address)
{
    enrolled = SHOAL_EAGAIN;
    sh_memwire_init(&memwire);
    memwire.random = 5;
    memwire.now_ns = S;
    struct sh_msg_config wires = {.cluster = "test",
                                  .connections_max = 8,
                                  .requests_max = 64,
                                  .ring_bytes = 1 << 16,
                                  .payload_bytes_max = 1 << 16,
                                  .request_timeout_ns = S,
                                  .connect_timeout_ns = S,
                                  .env = sh_memwire_env(&memwire),
                                  .wake_transport = wake_nobody,
                                  .wake_handlers = wake_nobody};
    assert_int_equal(sh_msg_create(&wires, &msg), SHOAL_OK);
    memset(&keeper, 0, sizeof keeper); /* a case that failed has not closed its own */
    keeper.number = 1;
    keeper.bytes_max = SH_ZOOKEEPER_VALUE_BYTES_MAX;
    struct sh_superpeer_config config = {.msg = msg,
                                         .env = sh_memwire_env(&memwire),
                                         .cluster = "test",
                                         .address = address,
                                         .zookeeper = "anywhere",
                                         .index = SH_SUPERPEER_UNKNOWN,
                                         .instance = 7,
                                         .on_enrolled = on_enrolled,
                                         .heartbeat_ns = S,
                                         .failure_ns = 10 * S};
    assert_int_equal(sh_superpeer_create(&config, &superpeer), SHOAL_OK);
}

static void superpeer_open(void)
{
    superpeer_open_at("first:1");
    steps();
    assert_int_equal(sh_msg_nid(msg).v, 1); /* it is enrolled */
}

static void superpeer_close(void)
{
    sh_superpeer_destroy(superpeer);
    sh_msg_destroy(msg);
    sh_memwire_free(&memwire);
    free(keeper.value);
    memset(&keeper, 0, sizeof keeper);
}

/* A peer is to join, under an address of so many bytes. */
static void join(uint64_t instance, size_t address_bytes)
{
    char address[64];
    memset(address, 'a', sizeof address);
    (void)snprintf(address, sizeof address, "peer%u", (unsigned)instance);
    address[strlen(address)] = 'x';
    memcpy(address + address_bytes - 2, ":1", 3);
    struct sh_command command = {
        .kind = SH_COMMAND_JOIN, .instance = instance, .address = sh_bytes_text(address)};
    sh_shared_decide(superpeer, &command);
}

static const struct sh_node *peer_of(uint64_t instance)
{
    const struct sh_view *view = sh_superpeer_view(superpeer);
    for (size_t i = 0; i < view->count; i++) {
        if (view->nodes[i].role == SH_ROLE_PEER && view->nodes[i].instance == instance)
            return &view->nodes[i];
    }
    return NULL;
}

/* --- Tests ----------------------------------------------------------------------------------- */

static void nothing_is_lost_with_it(void **state)
{
    (void)state;
    superpeer_open();
    join(100, 20);
    steps();
    size_t one = keeper.size;
    join(101, 20);
    steps();
    assert_non_null(peer_of(101));
    size_t each = keeper.size - one;
    assert_true(each > 20);
    /* Room for five more; and what takes none comes last. */
    keeper.bytes_max = keeper.size + 5 * each + each / 2;
    for (unsigned i = 0; i < 20; i++)
        join(200 + i, 20);
    const struct sh_node *first = peer_of(100);
    struct sh_command leave = {
        .kind = SH_COMMAND_LEAVE, .nid = first->nid, .instance = first->instance};
    sh_shared_decide(superpeer, &leave);
    steps();
    for (unsigned i = 0; i < 20; i++) /* in order */
        assert_true((peer_of(200 + i) != NULL) == (i < 5));
    assert_int_equal(peer_of(100)->state, SH_NODE_LEFT);
    assert_true(keeper.refused >= 15 &&
                superpeer->shared->consensus->ops->is_settled(superpeer->shared->consensus));
    /* When there is room again all go at once. */
    keeper.bytes_max = SH_ZOOKEEPER_VALUE_BYTES_MAX;
    for (unsigned i = 0; i < 20; i++)
        join(300 + i, 20);
    steps();
    unsigned writes = keeper.writes;
    for (unsigned i = 0; i < 20; i++) {
        assert_non_null(peer_of(300 + i));
        join(400 + i, 20);
    }
    steps();
    assert_int_equal(keeper.writes, writes + 1);
    superpeer_close();
}

/* One that is too big by itself is refused, and those behind it are not. */
static void too_big_by_itself(void **state)
{
    (void)state;
    superpeer_open();
    keeper.bytes_max = keeper.size + 60;
    join(500, 60);
    join(501, 16);
    steps();
    assert_null(peer_of(500));
    assert_non_null(peer_of(501));
    superpeer_close();
}

/* Lets time pass, in steps much shorter than failure_ns. */
static void pass(uint64_t duration_ns)
{
    for (uint64_t end_ns = memwire.now_ns + duration_ns; memwire.now_ns < end_ns;) {
        memwire.now_ns += S / 2;
        steps();
    }
}

/* A silent peer is declared failed by the leader alone, and not before it has led for failure_ns:
 * an earlier leader may have promised the peer as much. */
static void failures_are_the_leaders(void **state)
{
    (void)state;
    superpeer_open();
    join(600, 20);
    pass(60 * S);
    assert_int_equal(peer_of(600)->state, SH_NODE_UP);
    keeper.leads = true;
    keeper.led_ns = memwire.now_ns;
    pass(8 * S);
    assert_int_equal(peer_of(600)->state, SH_NODE_UP);
    pass(30 * S);
    assert_int_equal(peer_of(600)->state, SH_NODE_FAILED);
    superpeer_close();
}

/* What a leader decides and can't write any more is not carried out when it has been replaced: another
 * leader may have given leases since to the peer and the superpeer that were to be called failed. */
static void a_former_leaders_verdicts_are_dropped(void **state)
{
    (void)state;
    for (unsigned again = 0; again < 2; again++) {
        superpeer_open();
        join(700, 20);
        struct sh_command second = {
            .kind = SH_COMMAND_SUPERPEER, .instance = 8, .address = sh_bytes_text("second:1")};
        sh_shared_decide(superpeer, &second);
        pass(30 * S);
        shoal_nid nid = {2};
        assert_int_equal(sh_view_find(sh_superpeer_view(superpeer), nid)->state, SH_NODE_UP);
        keeper.leads = true;
        keeper.led_ns = memwire.now_ns;
        keeper.is_busy = true;
        pass(30 * S);
        assert_false(superpeer->shared->consensus->ops->is_settled(superpeer->shared->consensus));
        keeper.leads = false;
        steps();
        keeper.leads = again; /* once more, since a moment ago */
        keeper.led_ns = memwire.now_ns;
        keeper.is_busy = false;
        pass(S);
        assert_int_equal(peer_of(700)->state, SH_NODE_UP);
        assert_int_equal(sh_view_find(sh_superpeer_view(superpeer), nid)->state, SH_NODE_UP);
        superpeer_close();
    }
}

/* What its process has not survived is no leader's opinion: it is carried out whoever leads. */
static void a_death_stays_sure(void **state)
{
    (void)state;
    superpeer_open();
    join(800, 20);
    steps();
    keeper.leads = keeper.is_busy = true;
    keeper.led_ns = memwire.now_ns;
    steps();
    struct sh_command fail = {
        .kind = SH_COMMAND_FAIL, .state = 1, .nid = peer_of(800)->nid, .instance = 800};
    sh_shared_decide(superpeer, &fail);
    keeper.leads = false;
    steps();
    keeper.is_busy = false;
    steps();
    assert_int_equal(peer_of(800)->state, SH_NODE_FAILED);
    superpeer_close();
}

/* Somebody else was faster: all is carried out on what that one has written, and nothing before. */
static void the_beaten_try_again(void **state)
{
    (void)state;
    superpeer_open();
    keeper.beaten = 3;
    join(900, 20);
    unsigned writes = keeper.writes;
    struct sh_step step = sh_superpeer_step(superpeer);
    for (unsigned i = 0; keeper.beaten && i < 100; i++) {
        assert_null(peer_of(900));
        (void)step.run(step.arg);
    }
    steps();
    assert_non_null(peer_of(900));
    assert_true(keeper.writes > writes);
    superpeer_close();
}

/* The request was refused meanwhile, so whoever asked may have tried elsewhere. */
static void nobody_waits_for_it_any_more(void **state)
{
    (void)state;
    superpeer_open();
    struct sh_command command = {
        .kind = SH_COMMAND_JOIN, .number = 5, .instance = 950, .address = sh_bytes_text("peer:1")};
    sh_shared_decide(superpeer, &command);
    steps();
    assert_null(peer_of(950));
    superpeer_close();
}

static void levels(const char *spec)
{
    const char *bad;
    size_t bad_size;
    assert_int_equal(sh_log_levels_set(spec, &bad, &bad_size), SHOAL_OK);
}

/* Lets time pass; returns how many warnings have that text. */
static unsigned warnings_in(uint64_t duration_ns, const char *text)
{
    char path[] = "/tmp/shoal-zookeeper-test-XXXXXX", line[1024];
    int made = mkstemp(path);
    assert_true(made >= 0);
    assert_int_equal(sh_log_output_set(path, SH_LOG_AS_TEXT), SHOAL_OK);
    levels("warn");
    pass(duration_ns);
    levels("error");
    assert_int_equal(sh_log_output_set(NULL, SH_LOG_AS_TEXT), SHOAL_OK);
    FILE *file = fdopen(made, "r");
    assert_non_null(file);
    unsigned count = 0;
    while (fgets(line, sizeof line, file))
        count += strstr(line, text) != NULL;
    assert_int_equal(fclose(file), 0);
    assert_int_equal(unlink(path), 0);
    return count;
}

/* A superpeer at the address of a peer that is up takes no part until the peer has failed, and says so once. */
static void an_address_is_waited_for(void **state)
{
    (void)state;
    superpeer_open();
    struct sh_command command = {
        .kind = SH_COMMAND_JOIN, .instance = 950, .address = sh_bytes_text("peer:1")};
    sh_shared_decide(superpeer, &command);
    steps();
    uint8_t *value = keeper.value;
    size_t size = keeper.size;
    keeper.value = NULL;
    superpeer_close();
    superpeer_open_at("peer:1");
    keeper.value = value;
    keeper.size = size;
    assert_int_equal(warnings_in(10 * S, "has this superpeer's address"), 1);
    assert_int_equal(sh_msg_nid(msg).v, SHOAL_NID_NONE.v);
    assert_non_null(peer_of(950));
    struct sh_command fail = {
        .kind = SH_COMMAND_FAIL, .state = 1, .nid = peer_of(950)->nid, .instance = 950};
    sh_shared_decide(superpeer, &fail);
    pass(10 * S);
    assert_int_equal(sh_msg_nid(msg).v, 2);
    assert_int_equal(enrolled, SHOAL_OK);
    superpeer_close();
}

/* A value that can't be read may tell of failures: a leader that has not taken it grants no leases. */
static void an_unread_value_is_not_led_with(void **state)
{
    (void)state;
    superpeer_open();
    struct sh_consensus *consensus = superpeer->shared->consensus;
    keeper.leads = true;
    keeper.led_ns = memwire.now_ns;
    steps();
    assert_true(consensus->ops->led_ns(consensus, memwire.now_ns) == keeper.led_ns);
    assert_true(consensus->ops->is_current(consensus, memwire.now_ns));
    uint64_t led_ns = keeper.led_ns;
    uint8_t first = keeper.value[0];
    keeper.value[0] ^= 0xFF;
    keeper.number++;
    keeper.led_ns += S;
    steps();
    assert_true(consensus->ops->led_ns(consensus, memwire.now_ns) == led_ns);
    assert_false(consensus->ops->is_current(consensus, memwire.now_ns));
    keeper.value[0] = first;
    steps();
    assert_true(consensus->ops->led_ns(consensus, memwire.now_ns) == keeper.led_ns);
    assert_true(consensus->ops->is_current(consensus, memwire.now_ns));
    superpeer_close();
}

/* The registry in ZooKeeper becomes another cluster's, or is gone: this superpeer's disk means nothing
 * there, so that it ends, and writes nothing. */
static void another_clusters_registry_is_refused(void **state)
{
    (void)state;
    for (unsigned is_gone = 0; is_gone < 2; is_gone++) {
        superpeer_open();
        struct sh_consensus *consensus = superpeer->shared->consensus;
        join(1000, 20);
        steps();
        assert_true(superpeer->stored_cluster == sh_registry_cluster(superpeer->registry));
        uint64_t own = superpeer->stored_cluster;
        struct sh_registry *other;
        assert_int_equal(sh_shared_registry_make(superpeer, &other), SHOAL_OK);
        sh_registry_events_name(other, 999);
        keeper.size = is_gone ? 0 : sh_registry_image_size(other);
        keeper.value = realloc(keeper.value, keeper.size + 1);
        assert_non_null(keeper.value);
        struct sh_writer w = sh_writer_make(keeper.value, keeper.size);
        if (!is_gone)
            sh_registry_image_put(&w, other, 0);
        sh_registry_destroy(other);
        keeper.number++;
        unsigned writes = keeper.writes;
        join(1001, 20);
        steps();
        assert_int_equal(enrolled, SHOAL_ECLUSTER);
        assert_int_equal(keeper.writes, writes);
        assert_false(consensus->ops->is_current(consensus, memwire.now_ns));
        assert_true(superpeer->stored_cluster == own);
        superpeer_close();
    }
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_lost_with_it),
        cmocka_unit_test(too_big_by_itself),
        cmocka_unit_test(failures_are_the_leaders),
        cmocka_unit_test(a_former_leaders_verdicts_are_dropped),
        cmocka_unit_test(a_death_stays_sure),
        cmocka_unit_test(the_beaten_try_again),
        cmocka_unit_test(nobody_waits_for_it_any_more),
        cmocka_unit_test(an_address_is_waited_for),
        cmocka_unit_test(an_unread_value_is_not_led_with),
        cmocka_unit_test(another_clusters_registry_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
