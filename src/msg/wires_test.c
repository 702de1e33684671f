/* What single wires do beyond the common contract: the files of Unix-domain sockets, several
 * addresses at once, and io_uring where the kernel refuses it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env/wire.h"
#include "msg/await_test.h"
#include "msg/wires.h"

struct place {
    char path[48];
    char address[64];
};

static struct sh_wire *wire_new(const char *name)
{
    struct sh_wire *wire;
    assert_int_equal(sh_wire_create(name, 16, &wire), SHOAL_OK);
    return wire;
}

static struct place place_new(void)
{
    static unsigned number;
    struct place place;
    snprintf(place.path, sizeof place.path, "/tmp/shoal-wires-%d-%u", (int)getpid(), number++);
    snprintf(place.address, sizeof place.address, "unix:%s", place.path);
    return place;
}

/* The other end of an accepted link has a name for the log. */
static void peer_is_named(void **state)
{
    struct place place = place_new();
    struct sh_wire *wire = wire_new(*state), *dialler = wire_new(*state);
    const char *const addresses[3] = {"127.0.0.1:0", "[::1]:0", place.address};
    char expected[3][SH_WIRE_ADDRESS_MAX] = {"127.0.0.1:", "[::1]:"};
    snprintf(expected[2], sizeof expected[2], "unix, process %d", (int)getpid());
    for (int i = 0; i < 3; i++) {
        char bound[SH_WIRE_ADDRESS_MAX], text[SH_WIRE_ADDRESS_MAX];
        sh_link link;
        if (wire->ops->listen(wire, addresses[i], bound) != SHOAL_OK && i == 1)
            continue; /* a machine without IPv6 */
        assert_int_equal(dialler->ops->open(dialler, bound, 1, &link), SHOAL_OK);
        sh_link accepted = test_await(wire, SH_WIRE_ACCEPTED).link;
        sh_wire_peer(wire, accepted, text);
        assert_memory_equal(text, expected[i], strlen(expected[i]));
        wire->ops->close(wire, accepted);
        sh_wire_peer(wire, accepted, text);
        assert_string_equal(text, "");
    }
    wire->ops->destroy(wire);
    dialler->ops->destroy(dialler);
}

/* Sends a word from a new link of one wire to whoever listens at an address of the other. */
static void word_over(struct sh_wire *from, struct sh_wire *to, const char *address)
{
    sh_link link;
    char got[5] = "";
    assert_int_equal(from->ops->open(from, address, 1, &link), SHOAL_OK);
    assert_int_equal(test_await(from, SH_WIRE_OPENED).link, link);
    sh_link accepted = test_await(to, SH_WIRE_ACCEPTED).link;
    assert_int_equal(from->ops->push(from, link, sh_bytes_make("word", 4)), 4);
    if (from->ops->flush)
        from->ops->flush(from);
    assert_int_equal(test_await(to, SH_WIRE_READABLE).link, accepted);
    assert_int_equal(to->ops->pull(to, accepted, got, 4), 4);
    assert_string_equal(got, "word");
}

static void socket_file(void **state)
{
    struct place place = place_new();
    struct sh_wire *wire = wire_new(*state), *other = wire_new(*state);
    char bound[64];
    struct stat file;
    assert_int_equal(wire->ops->listen(wire, place.address, bound), SHOAL_OK);
    assert_string_equal(bound, place.address);
    assert_int_equal(lstat(place.path, &file), 0);
    assert_true(S_ISSOCK(file.st_mode));
    assert_int_equal(file.st_mode & 0777, 0600);
    word_over(other, wire, place.address);
    /* Somebody listens there: not to be replaced. */
    assert_int_equal(other->ops->listen(other, place.address, bound), SHOAL_EADDRINUSE);
    wire->ops->destroy(wire);
    assert_int_not_equal(lstat(place.path, &file), 0);
    other->ops->destroy(other);
}

/* A process that was killed leaves its file behind. */
static void stale_file(void **state)
{
    struct place place = place_new();
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char bound[64];
    strcpy(address.sun_path, place.path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    close(fd);
    struct sh_wire *wire = wire_new(*state);
    assert_int_equal(wire->ops->listen(wire, place.address, bound), SHOAL_OK);
    struct sh_wire *other = wire_new(*state);
    word_over(other, wire, place.address);
    other->ops->destroy(other);
    /* Removed and made again by somebody else meanwhile: theirs is left alone. */
    assert_int_equal(unlink(place.path), 0);
    fd = open(place.path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
    wire->ops->destroy(wire);
    assert_int_equal(access(place.path, F_OK), 0);
    /* What is no socket is never removed. */
    wire = wire_new(*state);
    assert_int_equal(wire->ops->listen(wire, place.address, bound), SHOAL_EADDRINUSE);
    wire->ops->destroy(wire);
    assert_int_equal(unlink(place.path), 0);
}

static void missing_folder(void **state)
{
    struct sh_wire *wire = wire_new(*state);
    char bound[64];
    sh_link link;
    assert_int_equal(wire->ops->listen(wire, "unix:/no-such-folder/x", bound), SHOAL_EADDRESS);
    assert_int_equal(wire->ops->open(wire, "unix:/no-such-folder/x", 3, &link), SHOAL_OK);
    struct sh_wire_event lost = test_await(wire, SH_WIRE_LOST);
    assert_int_equal(lost.tag, 3);
    assert_int_equal(lost.err, SHOAL_EUNREACHABLE);
    wire->ops->destroy(wire);
}

static void several_addresses(void **state)
{
    struct place place = place_new();
    struct sh_wire *wire = wire_new(*state), *other = wire_new(*state);
    char bound[5][64];
    assert_int_equal(wire->ops->listen(wire, "127.0.0.1:0", bound[0]), SHOAL_OK);
    assert_int_equal(wire->ops->listen(wire, place.address, bound[1]), SHOAL_OK);
    assert_int_equal(wire->ops->listen(wire, "[::1]:0", bound[2]), SHOAL_OK);
    assert_int_equal(wire->ops->listen(wire, "127.0.0.1:0", bound[3]), SHOAL_OK);
    assert_int_equal(wire->ops->listen(wire, "127.0.0.1:0", bound[4]), SHOAL_EADDRINUSE);
    for (unsigned i = 0; i < 4; i++)
        word_over(other, wire, bound[i]);
    wire->ops->destroy(wire);
    other->ops->destroy(other);
}

/* Makes the kernel refuse io_uring_setup to this process, as a container's filter does. */
static bool refuse_uring(void)
{
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {sizeof rules / sizeof rules[0], rules};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

static void refused_uring_falls_back(void **state)
{
    (void)state;
    struct sh_wire *epoll = wire_new("epoll");
    pid_t child = fork();
    if (child == 0) {
        struct sh_wire *wire;
        char bound[64];
        if (!refuse_uring())
            _exit(77);
        if (sh_wire_create("uring", 16, &wire) != SHOAL_OK || wire->ops != epoll->ops)
            _exit(1);
        _exit(wire->ops->listen(wire, "127.0.0.1:0", bound) == SHOAL_OK ? 0 : 2);
    }
    assert_true(child > 0);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    epoll->ops->destroy(epoll);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

#define BOTH(test)                                                                                 \
    {#test ", epoll", test, NULL, NULL, (void *)(uintptr_t) "epoll"},                              \
    {                                                                                              \
#test ", io_uring", test, NULL, NULL, (void *)(uintptr_t) "uring"                          \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        BOTH(socket_file),       BOTH(stale_file),    BOTH(missing_folder),
        BOTH(several_addresses), BOTH(peer_is_named), cmocka_unit_test(refused_uring_falls_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
