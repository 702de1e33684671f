/* The dates of a leadership that is in ZooKeeper, against a libzookeeper of this test's own, whose
 * answers come when the test says so. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <zookeeper/zookeeper.h>

#include "base/bytes.h"
#include "superpeer/zookeeper.h"

#define MS UINT64_C(1000000)
#define CONFIRM (50 * MS)
#define WAITING_MAX 32

/* A question without an answer yet. */
struct waiting {
    data_completion_t data;
    stat_completion_t stat;
    string_completion_t text;
    const void *question;
    bool is_leader; /* about the leader's node; else the value's */
};

/* What the server has, and one client. */
static struct {
    watcher_fn watcher;
    void *context;
    clientid_t client;
    char leader[8]; /* empty: nobody leads */
    int64_t leader_owner;
    int version;
    int64_t changed; /* when that was written */
    bool sync_fails;
    struct waiting waiting[WAITING_MAX];
    size_t count;
} server;

static int later(struct waiting waiting)
{
    assert_true(server.count < WAITING_MAX);
    server.waiting[server.count++] = waiting;
    return ZOK;
}

static void answer(const struct waiting *waiting)
{
    struct Stat stat = {.version = server.version, .mzxid = server.changed};
    if (waiting->text) {
        waiting->text(server.sync_fails ? ZCONNECTIONLOSS : ZOK, "", waiting->question);
    } else if (waiting->stat) {
        waiting->stat(ZOK, &stat, waiting->question);
    } else if (waiting->is_leader) {
        stat.ephemeralOwner = server.leader_owner;
        waiting->data(*server.leader ? ZOK : ZNONODE, server.leader, (int)strlen(server.leader),
                      &stat, waiting->question);
    } else {
        waiting->data(ZOK, "", 0, &stat, waiting->question);
    }
}

static void answer_all(void)
{
    size_t count = server.count;
    struct waiting waiting[WAITING_MAX];
    memcpy(waiting, server.waiting, sizeof waiting);
    server.count = 0;
    for (size_t i = 0; i < count; i++)
        answer(&waiting[i]);
}

static bool is_leader_path(const char *path)
{
    return strstr(path, "/leader");
}

zhandle_t *zookeeper_init2(const char *host, watcher_fn fn, int recv_timeout,
                           const clientid_t *clientid, void *context, int flags,
                           log_callback_fn log_callback)
{
    (void)host;
    (void)recv_timeout;
    (void)clientid;
    (void)flags;
    (void)log_callback;
    server.watcher = fn;
    server.context = context;
    server.client.client_id = 7;
    return (zhandle_t *)&server;
}

int zookeeper_close(zhandle_t *zh)
{
    (void)zh;
    return ZOK;
}

const clientid_t *zoo_client_id(zhandle_t *zh)
{
    (void)zh;
    return &server.client;
}

int zoo_awget(zhandle_t *zh, const char *path, watcher_fn watcher, void *watcherCtx,
              data_completion_t completion, const void *data)
{
    (void)zh;
    (void)watcher;
    (void)watcherCtx;
    return later(
        (struct waiting){.data = completion, .question = data, .is_leader = is_leader_path(path)});
}

int zoo_aget(zhandle_t *zh, const char *path, int watch, data_completion_t completion,
             const void *data)
{
    (void)watch;
    return zoo_awget(zh, path, NULL, NULL, completion, data);
}

int zoo_async(zhandle_t *zh, const char *path, string_completion_t completion, const void *data)
{
    (void)zh;
    (void)path;
    return later((struct waiting){.text = completion, .question = data});
}

int zoo_acreate(zhandle_t *zh, const char *path, const char *value, int valuelen,
                const struct ACL_vector *acl, int flags, string_completion_t completion,
                const void *data)
{
    (void)zh;
    (void)acl;
    (void)flags;
    if (is_leader_path(path)) {
        snprintf(server.leader, sizeof server.leader, "%.*s", valuelen, value);
        server.leader_owner = server.client.client_id;
    }
    return later((struct waiting){.text = completion, .question = data});
}

int zoo_aset(zhandle_t *zh, const char *path, const char *buffer, int buflen, int version,
             stat_completion_t completion, const void *data)
{
    (void)zh;
    (void)path;
    (void)buffer;
    (void)buflen;
    (void)version;
    server.version++;
    return later((struct waiting){.stat = completion, .question = data});
}

/* --- Tests ----------------------------------------------------------------------------------- */

/* Lets it ask and be answered until nothing is under way any more at that time. */
static void settle(struct sh_zookeeper *zookeeper, uint64_t now_ns)
{
    for (unsigned i = 0; i < 20; i++) {
        (void)sh_zookeeper_step(zookeeper, now_ns);
        answer_all();
    }
    (void)sh_zookeeper_step(zookeeper, now_ns);
}

static struct sh_zookeeper *leader_make(uint64_t now_ns)
{
    struct sh_zookeeper *zookeeper;
    memset(&server, 0, sizeof server);
    assert_int_equal(sh_zookeeper_create("host:1", "test", 2000 * MS, CONFIRM, &zookeeper),
                     SHOAL_OK);
    sh_zookeeper_stand(zookeeper, 3);
    server.watcher((zhandle_t *)&server, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, "",
                   server.context);
    settle(zookeeper, now_ns);
    assert_true(sh_zookeeper_leads(zookeeper));
    assert_int_equal(sh_zookeeper_leader(zookeeper), 3);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), now_ns);
    return zookeeper;
}

static void changed(void)
{
    server.version++;
    server.watcher((zhandle_t *)&server, ZOO_CHANGED_EVENT, ZOO_CONNECTED_STATE, "",
                   server.context);
}

/* An answer that was read late, as by a process that was stopped, dates it no later. */
static void dated_by_the_sending(void **state)
{
    (void)state;
    struct sh_zookeeper *zookeeper = leader_make(1000 * MS);
    (void)sh_zookeeper_step(zookeeper, 1060 * MS); /* asks */
    (void)sh_zookeeper_step(zookeeper, 9000 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 1000 * MS);
    answer_all();
    (void)sh_zookeeper_step(zookeeper, 9000 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 1060 * MS);
    settle(zookeeper, 9001 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 9000 * MS);
    settle(zookeeper, 9001 * MS + CONFIRM);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 9001 * MS + CONFIRM);
    sh_zookeeper_destroy(zookeeper);
}

/* An answer of a server that could not catch up with the others says nothing. */
static void not_without_sync(void **state)
{
    (void)state;
    struct sh_zookeeper *zookeeper = leader_make(1000 * MS);
    server.sync_fails = true;
    settle(zookeeper, 2000 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 1000 * MS);
    server.sync_fails = false;
    settle(zookeeper, 3000 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 3000 * MS);
    sh_zookeeper_destroy(zookeeper);
}

/* What has changed by then must have been read first: it may tell of failures. */
static void not_before_the_value_is_read(void **state)
{
    (void)state;
    struct sh_zookeeper *zookeeper = leader_make(1000 * MS);
    (void)sh_zookeeper_step(zookeeper, 2000 * MS); /* asks */
    changed();
    answer_all();
    (void)sh_zookeeper_step(zookeeper, 2001 * MS); /* reads, and reads who leads */
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 1000 * MS);
    answer_all();
    (void)sh_zookeeper_step(zookeeper, 2002 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 2000 * MS);
    sh_zookeeper_destroy(zookeeper);
}

/* ZooKeeper was restored from a backup, and another superpeer has written since: the version that this one
 * knows is another value's. */
static void a_version_comes_again(void **state)
{
    (void)state;
    struct sh_zookeeper *zookeeper = leader_make(1000 * MS);
    uint64_t number = sh_zookeeper_number(zookeeper);
    for (int64_t changed = 0; changed < 2; changed++) {
        server.changed = changed;
        server.watcher((zhandle_t *)&server, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, "",
                       server.context);
        (void)sh_zookeeper_step(zookeeper, 1001 * MS);
        server.watcher((zhandle_t *)&server, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, "",
                       server.context);
        settle(zookeeper, (uint64_t)(2000 + changed) * MS);
        assert_int_equal(sh_zookeeper_number(zookeeper), number + (uint64_t)changed);
    }
    sh_zookeeper_destroy(zookeeper);
}

/* Somebody else, and a lost connection, end it. */
static void ended(void **state)
{
    (void)state;
    struct sh_zookeeper *zookeeper = leader_make(1000 * MS);
    server.watcher((zhandle_t *)&server, ZOO_SESSION_EVENT, ZOO_CONNECTING_STATE, "",
                   server.context);
    (void)sh_zookeeper_step(zookeeper, 1001 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 0);
    server.watcher((zhandle_t *)&server, ZOO_SESSION_EVENT, ZOO_CONNECTED_STATE, "",
                   server.context);
    settle(zookeeper, 3000 * MS);
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 3000 * MS);
    strcpy(server.leader, "2");
    server.leader_owner = 8;
    changed();
    settle(zookeeper, 4000 * MS);
    assert_false(sh_zookeeper_leads(zookeeper));
    assert_int_equal(sh_zookeeper_led_ns(zookeeper), 0);
    sh_zookeeper_destroy(zookeeper);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dated_by_the_sending),
        cmocka_unit_test(not_without_sync),
        cmocka_unit_test(not_before_the_value_is_read),
        cmocka_unit_test(a_version_comes_again),
        cmocka_unit_test(ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
