/* A superpeer of which the test is the rest: a consensus that says what the test wants and takes down
 * what is proposed, a registry fed by hand, and another superpeer that is nothing but messages. */
#ifndef SH_SUPERPEER_SUPERPEER_RIG_TEST_H
#define SH_SUPERPEER_SUPERPEER_RIG_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "cluster/proto.h"
#include "msg/loopback.h"
#include "superpeer/superpeer_shared_int.h"

#define MS UINT64_C(1000000)
#define S UINT64_C(1000000000)
#define HEARTBEAT (100 * MS)
#define FAILURE (2 * S)
#define ELECTION (4 * HEARTBEAT)
#define DRIFT (FAILURE / 16)
/* docs/cluster.md: failure_ns less a sixteenth for the clocks, less a heartbeat, less four more. */
#define LEASE (FAILURE - DRIFT - HEARTBEAT - ELECTION)
#define OWN 1
#define OTHER 2
#define THIRD 3
#define DECIDED_MAX 64
#define ROUNDS_MAX 1000

/* --- The consensus ---------------------------------------------------------------------------- */

static struct {
    struct sh_consensus base;
    bool leads, is_unsettled, is_out_of_date;
    uint16_t leader;
    uint64_t led_ns;
    uint64_t heard_ns[SH_SUPERPEERS_MAX + 1];
    uint64_t members;
    struct sh_command decided[DECIDED_MAX];
    unsigned count;
    uint8_t last[256]; /* the last of them, as bytes */
    size_t last_size;
} agreed;

static void propose(struct sh_consensus *consensus, struct sh_bytes bytes, bool is_verdict)
{
    struct sh_command *command = &agreed.decided[agreed.count++];
    (void)consensus;
    (void)is_verdict;
    assert_true(agreed.count <= DECIDED_MAX && sh_command_get(bytes, command));
    command->address = (struct sh_bytes){0};
    assert_true(bytes.size <= sizeof agreed.last);
    memcpy(agreed.last, bytes.at, bytes.size);
    agreed.last_size = bytes.size;
}

static bool is_settled(const struct sh_consensus *consensus)
{
    (void)consensus;
    return !agreed.is_unsettled;
}

static bool leads(const struct sh_consensus *consensus)
{
    (void)consensus;
    return agreed.leads;
}

static uint16_t leader(const struct sh_consensus *consensus)
{
    (void)consensus;
    return agreed.leader;
}

static uint64_t led_ns(const struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)consensus;
    (void)now_ns;
    return agreed.leads ? agreed.led_ns : 0;
}

static bool is_current(const struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)consensus;
    (void)now_ns;
    return !agreed.is_out_of_date;
}

static uint64_t heard_ns(const struct sh_consensus *consensus, shoal_nid nid)
{
    (void)consensus;
    return agreed.heard_ns[nid.v];
}

static uint64_t members(const struct sh_consensus *consensus)
{
    (void)consensus;
    return agreed.members;
}

static bool needs(const struct sh_consensus *consensus, shoal_nid nid)
{
    (void)consensus;
    (void)nid;
    return false;
}

static const struct sh_consensus_ops ops = {.is_led = true,
                                            .propose = propose,
                                            .is_settled = is_settled,
                                            .leads = leads,
                                            .leader = leader,
                                            .led_ns = led_ns,
                                            .is_current = is_current,
                                            .heard_ns = heard_ns,
                                            .members = members,
                                            .needs = needs};

/* How often a command of that kind about that node was decided. */
static inline unsigned decided(enum sh_command_kind kind, shoal_nid nid)
{
    unsigned count = 0;
    for (unsigned i = 0; i < agreed.count; i++)
        count += agreed.decided[i].kind == kind && agreed.decided[i].nid.v == nid.v;
    return count;
}

/* --- Two superpeers --------------------------------------------------------------------------- */

static uint64_t now_ns;
static struct sh_superpeer superpeer;
#define ENDS_MAX 7 /* this superpeer, the other one, and others where a test has these */
static struct sh_wire *wires[ENDS_MAX];
static struct sh_step steps[2 * ENDS_MAX];
static struct sh_msg *other; /* the other superpeer's; its HEARD is answered by on_heard below */
static shoal_nid peers[2];

static struct {
    unsigned reports;
    uint16_t count, nids[8];
    bool is_silent; /* the answer comes when the test says */
    struct sh_reply_to reply_to;
    uint64_t epoch;  /* that is answered */
    uint16_t refuse; /* that is refused; 0: none is */
} heard_there;

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

static void wake_nobody(void *arg)
{
    (void)arg;
}

static void answer_there(void)
{
    struct sh_out out;
    uint16_t refused = heard_there.refuse != 0;
    assert_int_equal(sh_msg_reply(other, heard_there.reply_to, SH_CLUSTER_HEARD,
                                  SH_HEARD_ANSWER_BYTES + 2u * refused, &out),
                     SHOAL_OK);
    sh_put64(&out.w, heard_there.epoch);
    sh_put16(&out.w, refused);
    if (refused)
        sh_put16(&out.w, heard_there.refuse);
    sh_msg_end(other, &out);
}

/* The other superpeer leads, and is told. */
static void on_heard(void *arg, struct sh_msg_in *in)
{
    (void)arg;
    heard_there.reports++;
    (void)sh_get64(&in->payload);
    heard_there.count = sh_get16(&in->payload);
    assert_true(heard_there.count <= 8);
    for (unsigned i = 0; i < heard_there.count; i++)
        heard_there.nids[i] = sh_get16(&in->payload);
    assert_true(sh_reader_done(&in->payload));
    heard_there.reply_to = in->reply_to;
    if (!heard_there.is_silent)
        answer_there();
}

static struct sh_msg *msg_open(unsigned at, uint16_t nid)
{
    static const char *const addresses[ENDS_MAX] = {"loop:own",   "loop:other", "loop:third",
                                                    "loop:peer1", "loop:peer2", "loop:peer3",
                                                    "loop:peer4"};
    struct sh_msg *msg;
    char bound[SH_MSG_ADDRESS_MAX];
    assert_int_equal(sh_loopback_create(8, &wires[at]), SHOAL_OK);
    struct sh_env env = {
        .clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}, .wire = wires[at]};
    struct sh_msg_config config = {.cluster = "test",
                                   .connections_max = 8,
                                   .requests_max = 8192,
                                   .ring_bytes = 1 << 16,
                                   .payload_bytes_max = 1 << 16,
                                   .request_timeout_ns = 10 * S,
                                   .connect_timeout_ns = 10 * S,
                                   .env = env,
                                   .wake_transport = wake_nobody,
                                   .wake_handlers = wake_nobody};
    assert_int_equal(sh_msg_create(&config, &msg), SHOAL_OK);
    sh_msg_nid_set(msg, (shoal_nid){nid});
    assert_int_equal(sh_msg_listen(msg, addresses[at], bound), SHOAL_OK);
    superpeer.env = at ? superpeer.env : env;
    steps[2 * at] = sh_msg_transport_step(msg);
    steps[2 * at + 1] = sh_msg_handler_step(msg);
    return msg;
}

/* Carries messages until nothing is under way any more. */
static inline void carry(void)
{
    unsigned idle = 0;
    for (unsigned i = 0; i < ROUNDS_MAX && idle < 4; i++) {
        unsigned work = 0;
        for (unsigned k = 0; k < sizeof steps / sizeof steps[0]; k++)
            work += steps[k].run ? steps[k].run(steps[k].arg) : 0;
        idle = work ? 0 : idle + 1;
    }
}

static void registry_fill(void)
{
    static const char *const addresses[] = {"loop:own", "loop:other", "loop:third"};
    struct sh_registry_config config = {.cluster = "test", .failure_ns = FAILURE};
    assert_int_equal(sh_registry_create(&config, &superpeer.registry), SHOAL_OK);
    for (uint16_t i = 0; i < 3; i++) {
        shoal_nid nid;
        assert_int_equal(sh_registry_superpeer_put(superpeer.registry, sh_bytes_text(addresses[i]),
                                                   i + 1u, (shoal_nid){(uint16_t)(i + 1)}, &nid),
                         SHOAL_OK);
    }
    /* The ring has a part here, without which nobody joins. */
    assert_int_equal(
        sh_registry_arcs_start(superpeer.registry, (shoal_nid){OWN}, UINT64_C(1) << 32 | 1, false),
        SHOAL_OK);
    for (unsigned i = 0; i < 2; i++)
        assert_int_equal(sh_registry_join(superpeer.registry, now_ns,
                                          sh_bytes_text(i ? "loop:peer1" : "loop:peer0"), 10 + i,
                                          SHOAL_NID_NONE, NULL, &peers[i]),
                         SHOAL_OK);
}

static inline int setup(void **state)
{
    (void)state;
    now_ns = 1000 * S;
    memset(&agreed, 0, sizeof agreed);
    memset(&heard_there, 0, sizeof heard_there);
    superpeer = (struct sh_superpeer){
        .index = OWN - 1, .instance = 1, .heartbeat_ns = HEARTBEAT, .failure_ns = FAILURE};
    superpeer.msg = msg_open(0, OWN);
    other = msg_open(1, OTHER);
    superpeer.shared = calloc(1, sizeof *superpeer.shared);
    assert_non_null(superpeer.shared);
    agreed.base.ops = &ops;
    agreed.leader = OTHER;
    superpeer.shared->consensus = &agreed.base;
    superpeer.shared->pending_end = &superpeer.shared->pending;
    superpeer.shared->election_ns = ELECTION;
    superpeer.shared->watched_ns = now_ns;
    memcpy(superpeer.shared->address, "loop:own", 9);
    registry_fill();
    sh_msg_handler_set(superpeer.msg, SH_CLUSTER_HEARD, SH_MSG_INLINE, sh_shared_on_heard,
                       &superpeer);
    sh_msg_handler_set(other, SH_CLUSTER_HEARD, SH_MSG_INLINE, on_heard, NULL);
    assert_int_equal(sh_msg_node_set(superpeer.msg, (shoal_nid){OTHER}, "loop:other"), SHOAL_OK);
    assert_int_equal(sh_msg_node_set(other, (shoal_nid){OWN}, "loop:own"), SHOAL_OK);
    return 0;
}

/* Of a real superpeer in place of the rig's: alone in its cluster, with Raft, and with its disk in memory. */
static inline struct sh_superpeer_config config_alone(void)
{
    static const char *const addresses[] = {"loop:own"};
    struct sh_superpeer_config config = {.msg = superpeer.msg,
                                         .env = superpeer.env,
                                         .cluster = "test",
                                         .address = addresses[0],
                                         .addresses = addresses,
                                         .count = 1,
                                         .instance = 5,
                                         .heartbeat_ns = HEARTBEAT,
                                         .failure_ns = FAILURE};
    config.env.disk = NULL;
    return config;
}

static inline int teardown(void **state)
{
    (void)state;
    sh_shared_report_cancel(&superpeer);
    sh_shared_pending_drop(&superpeer);
    sh_msg_destroy(superpeer.msg);
    sh_msg_destroy(other);
    for (unsigned i = 0; i < 2; i++)
        wires[i]->ops->destroy(wires[i]);
    sh_registry_destroy(superpeer.registry);
    free(superpeer.shared);
    return 0;
}

static inline uint64_t lease_of(shoal_nid nid)
{
    return sh_superpeer_lease_ns(&superpeer, nid, now_ns);
}

/* This superpeer leads from now on, and was sure of that just now. */
static inline void lead(void)
{
    agreed.leads = true;
    agreed.leader = OWN;
    agreed.led_ns = now_ns;
    sh_shared_lease_step(&superpeer, now_ns);
}

/* Lets time pass in steps of a heartbeat's quarter; who leads stays sure of it. */
static inline void pass(uint64_t duration_ns)
{
    for (uint64_t end_ns = now_ns + duration_ns; now_ns < end_ns;) {
        now_ns += HEARTBEAT / 4;
        agreed.led_ns = now_ns;
        (void)sh_shared_watch_step(&superpeer, now_ns);
        carry();
    }
}

#endif
