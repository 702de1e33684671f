/* Whole nodes in this process: several threads, two superpeers, and every combination of options
 * that a node refuses, after which nothing is left open. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/open_files_test.h"
#include "client/client.h"
#include "cluster/secret.h"
#include "node/node.h"

#define PEERS 3
#define CHUNKS 500

struct running {
    struct sh_options options;
    struct sh_node_run *node;
};

static char folder[64]; /* for files of these tests */

static void set(struct sh_options *options, const char *name, const char *value)
{
    struct sh_options_error error;
    assert_int_equal(sh_options_set(options, name, value, "test", &error), SHOAL_OK);
}

static void options_make(struct sh_options *options, const char *role, const char *superpeers)
{
    assert_int_equal(sh_options_init(options), SHOAL_OK);
    set(options, "roles", role);
    set(options, "registry", "memory");
    set(options, "listen", "127.0.0.1:0");
    set(options, "superpeers", superpeers);
    set(options, "store_bytes_max", "16MiB");
    set(options, "heartbeat_ns", "50ms");
    set(options, "failure_ns", "5s");
}

static void node_run(struct running *running)
{
    char detail[256];
    assert_int_equal(sh_node_create(&running->options, &running->node, detail), SHOAL_OK);
    assert_string_equal(detail, "");
    assert_int_equal(sh_node_start(running->node), SHOAL_OK);
    assert_true(sh_node_wait_ready(running->node));
    assert_int_not_equal(sh_node_nid(running->node).v, 0);
}

static void node_end(struct running *running)
{
    sh_node_stop(running->node);
    assert_int_equal(sh_node_wait_stopped(running->node), SHOAL_OK);
    sh_node_destroy(running->node);
    sh_options_destroy(&running->options);
}

/* Open descriptors of this process. */
/* Listens on a free port of loopback; the port in *port_out. */
static int port_take(unsigned *port_out)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof at;
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on), 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &size), 0);
    *port_out = ntohs(at.sin_port);
    return fd;
}

static shoal *open_at(const char *addresses)
{
    struct shoal_options options = {.addresses = addresses, .timeout_ns = UINT64_C(20000000000)};
    shoal *store = NULL;
    enum shoal_err err = shoal_open(&options, &store);
    if (err != SHOAL_OK)
        print_message("%s %s\n", shoal_err_name(err), shoal_error_detail());
    assert_int_equal(err, SHOAL_OK);
    return store;
}

/* Chunks on each of the nodes, by single calls and by multi forms, which are pooled. */
static void use(shoal *store, const shoal_nid *nids, unsigned count)
{
    shoal_cid cids[CHUNKS];
    static uint8_t values[CHUNKS][40], back[CHUNKS][40];
    struct shoal_op ops[CHUNKS];
    for (unsigned n = 0; n < count; n++) {
        assert_int_equal(shoal_create_many(store, nids[n], 40, CHUNKS, cids), SHOAL_OK);
        for (unsigned i = 0; i < CHUNKS; i++) {
            assert_int_equal(shoal_cid_creator(cids[i]).v, nids[n].v);
            memset(values[i], (int)(i * 7 + n), 40);
            ops[i] = (struct shoal_op){.cid = cids[i], .data = values[i], .size = 40};
        }
        assert_int_equal(shoal_multi_put(store, ops, CHUNKS), SHOAL_OK);
        for (unsigned i = 0; i < CHUNKS; i++)
            ops[i] = (struct shoal_op){.cid = cids[i], .data = back[i], .size = 40};
        assert_int_equal(shoal_multi_get(store, ops, CHUNKS), SHOAL_OK);
        assert_memory_equal(back, values, sizeof values);
        for (unsigned i = 0; i < CHUNKS; i += 50) {
            uint32_t size;
            assert_int_equal(shoal_get(store, cids[i], back[0], 40, &size), SHOAL_OK);
            assert_int_equal(size, 40);
            assert_memory_equal(back[0], values[i], 40);
            assert_int_equal(shoal_remove(store, cids[i]), SHOAL_OK);
            assert_int_equal(shoal_get(store, cids[i], back[0], 40, &size), SHOAL_ENOCHUNK);
        }
    }
}

/* Nodes of which each has four threads: pooled handlers run on other threads than the transport. */
static void test_four_threads(void **state)
{
    (void)state;
    struct running superpeer, peers[2];
    shoal_nid nids[2];
    unsigned before = test_open_files();
    options_make(&superpeer.options, "superpeer", "");
    set(&superpeer.options, "threads", "4");
    node_run(&superpeer);
    for (int i = 0; i < 2; i++) {
        options_make(&peers[i].options, "peer", sh_node_address(superpeer.node));
        set(&peers[i].options, "threads", "4");
        node_run(&peers[i]);
        nids[i] = sh_node_nid(peers[i].node);
    }
    assert_int_not_equal(nids[0].v, nids[1].v);
    shoal *store = open_at(sh_node_address(superpeer.node));
    use(store, nids, 2);
    shoal_close(store);
    for (int i = 0; i < 2; i++)
        node_end(&peers[i]);
    node_end(&superpeer);
    assert_int_equal(test_open_files(), before);
}

/* Two superpeers that know each other: peers join through either, and each answers for its arc. */
static void test_two_superpeers(void **state)
{
    (void)state;
    struct running superpeers[2], peers[PEERS];
    shoal_nid nids[PEERS];
    unsigned ports[2];
    char list[96], address[2][48];
    int taken[2] = {port_take(&ports[0]), port_take(&ports[1])};
    for (int i = 0; i < 2; i++)
        snprintf(address[i], sizeof address[i], "127.0.0.1:%u", ports[i]);
    snprintf(list, sizeof list, "%s,%s", address[0], address[1]);
    for (int i = 0; i < 2; i++) {
        options_make(&superpeers[i].options, "superpeer", list);
        set(&superpeers[i].options, "listen", address[i]);
        close(taken[i]);
        node_run(&superpeers[i]);
        assert_int_equal(sh_node_nid(superpeers[i].node).v, i + 1);
        assert_string_equal(sh_node_address(superpeers[i].node), address[i]);
    }
    for (int i = 0; i < PEERS; i++) {
        options_make(&peers[i].options, "peer", list);
        node_run(&peers[i]);
        nids[i] = sh_node_nid(peers[i].node);
        for (int k = 0; k < i; k++)
            assert_int_not_equal(nids[i].v, nids[k].v);
    }
    for (int i = 0; i < 2; i++) {
        shoal *store = open_at(address[i]);
        use(store, nids, PEERS);
        shoal_close(store);
    }
    for (int i = 0; i < PEERS; i++)
        node_end(&peers[i]);
    for (int i = 0; i < 2; i++)
        node_end(&superpeers[i]);
}

/* --- What a node refuses ------------------------------------------------------------------- */

/* Tries to make a node and expects this error, a detail that names what is wrong, and that nothing
 * stays open. */
static void refused(struct sh_options *options, enum shoal_err expected, const char *named)
{
    struct sh_node_run *node = NULL;
    char detail[256] = "unset";
    unsigned before = test_open_files();
    enum shoal_err err = sh_node_create(options, &node, detail);
    if (err != expected || !strstr(detail, named))
        print_message("%s: \"%s\"\n", shoal_err_name(err), detail);
    assert_int_equal(err, expected);
    assert_null(node);
    assert_non_null(strstr(detail, named));
    assert_int_equal(test_open_files(), before);
    sh_options_destroy(options);
}

static void write_file(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++)
        fputc('s', file);
    assert_int_equal(fclose(file), 0);
}

static void test_roles_refused(void **state)
{
    (void)state;
    struct sh_options options;
    options_make(&options, "superpeer,peer", "");
    refused(&options, SHOAL_EROLE, "roles");
    options_make(&options, "peer", "");
    refused(&options, SHOAL_EINVAL, "superpeers");
}

static void test_addresses_refused(void **state)
{
    (void)state;
    struct sh_options options;
    unsigned port;
    char address[48];
    int taken = port_take(&port);
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    const char *roles[] = {"superpeer", "peer"};
    for (int i = 0; i < 2; i++) {
        options_make(&options, roles[i], i ? "127.0.0.1:1" : "");
        set(&options, "listen", address);
        refused(&options, SHOAL_EADDRINUSE, address);
        options_make(&options, roles[i], i ? "127.0.0.1:1" : "");
        set(&options, "listen", "192.0.2.1:4100"); /* kept for documents: no machine has it */
        refused(&options, SHOAL_EADDRESS, "192.0.2.1:4100");
    }
    close(taken);
}

static void test_data_dir_refused(void **state)
{
    (void)state;
    struct sh_options options;
    char file[128], below[160];
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(below, sizeof below, "%s/data", file);
    write_file(file, 10);
    options_make(&options, "superpeer", "");
    set(&options, "registry", "raft");
    set(&options, "data_dir", below); /* can't be made: its parent is a file */
    refused(&options, SHOAL_EIO, below);
    options_make(&options, "superpeer", "");
    set(&options, "registry", "raft");
    set(&options, "data_dir", file);
    refused(&options, SHOAL_EIO, file);
    options_make(&options, "superpeer", "");
    set(&options, "registry", "raft");
    refused(&options, SHOAL_EINVAL, "data_dir");
    unlink(file);
}

static void test_secret_refused(void **state)
{
    (void)state;
    struct sh_options options;
    char file[128];
    snprintf(file, sizeof file, "%s/secret", folder);
    options_make(&options, "superpeer", "");
    set(&options, "secret_file", file);
    refused(&options, SHOAL_EIO, file); /* is not there */
    const size_t sizes[] = {0, SH_SECRET_BYTES_MIN - 1, SH_SECRET_BYTES_MAX + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        write_file(file, sizes[i]);
        options_make(&options, "superpeer", "");
        set(&options, "secret_file", file);
        refused(&options, SHOAL_ERANGE, file);
    }
    options_make(&options, "superpeer", "");
    set(&options, "secret_file", folder);
    refused(&options, SHOAL_EIO, folder);
    unlink(file);
}

/* The secret is taken at both bounds, and a node that is made but never started can be freed. */
static void test_secret_accepted(void **state)
{
    (void)state;
    char file[128], detail[256];
    unsigned before = test_open_files();
    snprintf(file, sizeof file, "%s/secret", folder);
    const size_t sizes[] = {SH_SECRET_BYTES_MIN, SH_SECRET_BYTES_MAX};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct running superpeer;
        write_file(file, sizes[i]);
        options_make(&superpeer.options, "superpeer", "");
        set(&superpeer.options, "secret_file", file);
        assert_int_equal(sh_node_create(&superpeer.options, &superpeer.node, detail), SHOAL_OK);
        sh_node_destroy(superpeer.node);
        sh_options_destroy(&superpeer.options);
    }
    unlink(file);
    assert_int_equal(test_open_files(), before);
}

/* A peer whose superpeer never answers is told to stop before it has joined. */
static void test_stopped_before_ready(void **state)
{
    (void)state;
    struct running peer;
    char detail[256], address[48];
    unsigned port, before = test_open_files();
    int taken = port_take(&port); /* accepts, and says nothing */
    snprintf(address, sizeof address, "127.0.0.1:%u", port);
    options_make(&peer.options, "peer", address);
    set(&peer.options, "failure_ns", "100ms");
    set(&peer.options, "heartbeat_ns", "10ms");
    assert_int_equal(sh_node_create(&peer.options, &peer.node, detail), SHOAL_OK);
    assert_int_equal(sh_node_start(peer.node), SHOAL_OK);
    sh_node_stop(peer.node);
    assert_false(sh_node_wait_ready(peer.node));
    assert_int_equal(sh_node_nid(peer.node).v, 0);
    (void)!sh_node_wait_stopped(peer.node);
    sh_node_destroy(peer.node);
    sh_options_destroy(&peer.options);
    close(taken);
    assert_int_equal(test_open_files(), before);
}

static int folder_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.40s/node_test.XXXXXX", base ? base : "/tmp");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size) != SHOAL_OK)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_roles_refused),    cmocka_unit_test(test_addresses_refused),
        cmocka_unit_test(test_data_dir_refused), cmocka_unit_test(test_secret_refused),
        cmocka_unit_test(test_secret_accepted),  cmocka_unit_test(test_stopped_before_ready),
        cmocka_unit_test(test_four_threads),     cmocka_unit_test(test_two_superpeers),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
