#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "cmd/notify_int.h"
#include "cmd/progress_int.h"

static char folder[256];

static int folder_make(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/shoal-notify.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state)
{
    (void)state;
    return rmdir(folder);
}

/* A socket as the service manager has one, bound to a path or, for '@', an abstract name. */
static int manager_open(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = strlen(name);
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path, name, size);
    if (*name == '@')
        address.sun_path[0] = '\0';
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)),
                     0);
    return fd;
}

static void is_told(const char *name)
{
    char text[64];
    int fd = manager_open(name);
    setenv("NOTIFY_SOCKET", name, 1);
    assert_int_equal(sh_notify_send("READY=1"), SHOAL_OK);
    ssize_t size = recv(fd, text, sizeof text, MSG_DONTWAIT);
    assert_int_equal(size, 7);
    assert_memory_equal(text, "READY=1", 7);
    close(fd);
}

static void the_manager_is_told(void **state)
{
    (void)state;
    char name[128];
    unsetenv("NOTIFY_SOCKET");
    assert_int_equal(sh_notify_send("READY=1"), SHOAL_OK);
    snprintf(name, sizeof name, "%.100s/socket", folder);
    is_told(name);
    unlink(name);
    assert_int_equal(sh_notify_send("READY=1"), SHOAL_EIO); /* it has gone */
    snprintf(name, sizeof name, "@shoal-notify-test-%d", (int)getpid());
    is_told(name);
    setenv("NOTIFY_SOCKET", "relative", 1);
    assert_int_equal(sh_notify_send("READY=1"), SHOAL_EADDRESS);
}

static void the_ready_file_is_whole(void **state)
{
    (void)state;
    struct sh_ready ready;
    char detail[256], path[300], text[128] = "", expected[128];
    snprintf(path, sizeof path, "%s/ready", folder);
    /* What an earlier process has left must not look like ours. */
    FILE *file = fopen(path, "w");
    fputs("nid=9\n", file);
    fclose(file);
    assert_int_equal(sh_ready_begin(&ready, path, detail), SHOAL_OK);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(sh_ready_publish(&ready, (shoal_nid){64}, "127.0.0.1:5", detail), SHOAL_OK);
    file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    snprintf(expected, sizeof expected, "nid=64\naddress=127.0.0.1:5\npid=%d\n", (int)getpid());
    assert_string_equal(text, expected);
    sh_ready_end(&ready);
    assert_int_equal(access(path, F_OK), -1);
    /* One that never was published leaves nothing either: the folder is empty at the end. */
    assert_int_equal(sh_ready_begin(&ready, path, detail), SHOAL_OK);
    sh_ready_end(&ready);
    assert_int_equal(sh_ready_begin(&ready, "/nowhere/ready", detail), SHOAL_EIO);
    assert_non_null(strstr(detail, "/nowhere/ready"));
    assert_int_equal(sh_ready_begin(&ready, "", detail), SHOAL_OK);
    sh_ready_end(&ready);
}

/* What progress prints when it is shown at these milliseconds. */
static char *progress_of(bool terminal, const uint64_t *at_ms, size_t count)
{
    char *text = NULL;
    size_t size = 0;
    struct sh_progress progress;
    FILE *out = open_memstream(&text, &size);
    sh_progress_begin(&progress, out, terminal, "loading", 10);
    for (size_t i = 0; i < count; i++)
        sh_progress_show(&progress, i < 3 ? "read" : "sort", i, 4, false, 10 + at_ms[i]);
    sh_progress_end(&progress);
    fclose(out);
    return text;
}

static void progress_is_shown(void **state)
{
    (void)state;
    static const uint64_t quick[] = {0, 500, 999}, slow[] = {0, 1000, 1050, 2000, 6000, 7100};
    char *text = progress_of(false, quick, 3);
    assert_string_equal(text, ""); /* what takes less than a second needs none */
    free(text);
    text = progress_of(false, slow, 6);
    assert_string_equal(text, "loading: read 1 of 4\nloading: sort 3 of 4\nloading: sort 5 of 4\n");
    free(text);
    text = progress_of(true, slow, 4);
    assert_non_null(strstr(text, "\r\033[Kloading: read  [#######.......................]  25%"));
    assert_null(strstr(text, " 50%")); /* too soon after the one before */
    assert_non_null(strstr(text, " 75%"));
    assert_string_equal(text + strlen(text) - 4, "\r\033[K");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_manager_is_told),
        cmocka_unit_test(the_ready_file_is_whole),
        cmocka_unit_test(progress_is_shown),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
