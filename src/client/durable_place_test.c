/* Durable stores in a process whose log is read and written in each way, also on a file that is used as a partition: found again after the process
 * was killed; and devices that are not taken. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/folder_test.h"
#include "client/client_int.h"

#define MIB (1ul << 20)
#define CHUNKS 40u
#define SIZE 3000u

static const struct sh_durable_sizes sizes = {
    .slot_bytes = 512 << 10, .primary_blocks = 256, .zone_bytes = 4 << 20};
static char device[64], data[64], more[64];

static int make(void **state)
{
    if (folder_make(state))
        return 1;
    snprintf(device, sizeof device, "%s/device", folder);
    snprintf(data, sizeof data, "%s/data", folder);
    snprintf(more, sizeof more, "%s/more", folder);
    return 0;
}

static int unmake(void **state)
{
    char kept[sizeof folder];
    const char *const folders[] = {data, more};
    memcpy(kept, folder, sizeof folder);
    for (size_t i = 0; i < 2; i++) {
        snprintf(folder, sizeof folder, "%.31s", folders[i]);
        folder_empty();
        (void)rmdir(folder);
    }
    memcpy(folder, kept, sizeof folder);
    return folder_remove(state);
}

static void device_make(size_t bytes)
{
    FILE *file = fopen(device, "we");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(truncate(device, (off_t)bytes), 0);
}

static enum shoal_err try_open(const char *where, const char *access, const char *path,
                               shoal **store_out)
{
    const struct shoal_options options = {.data_dir = where,
                                          .store_bytes_max = 16 << 20,
                                          .small_pages = true,
                                          .log_access = access,
                                          .log_device = path};
    sh_client_detail()[0] = '\0';
    return sh_embedded_open(&options, &sizes, store_out);
}

static shoal *open_store(const char *access, const char *path)
{
    shoal *store;
    enum shoal_err err = try_open(data, access, path, &store);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    return store;
}

static void refused(const char *where, const char *access, const char *path,
                    enum shoal_err expected, const char *says)
{
    shoal *store = NULL;
    enum shoal_err err = try_open(where, access, path, &store);
    if (err != expected || !strstr(shoal_error_detail(), says))
        fail_msg("%s: %s", shoal_err_name(err), shoal_error_detail());
    assert_null(store);
}

/* Writes chunks at both levels, and is killed. */
static void write_and_die(const char *access, const char *path, const uint8_t *bytes)
{
    shoal *store;
    shoal_cid cids[CHUNKS];
    if (try_open(data, access, path, &store) ||
        shoal_create_many(store, SHOAL_NID_NONE, SIZE, CHUNKS, cids))
        _exit(1);
    for (unsigned i = 0; i < CHUNKS; i++) {
        if (shoal_level_use(i % 2 ? SHOAL_DURABLE : SHOAL_REPLICATED) ||
            shoal_put(store, cids[i], bytes + i, SIZE))
            _exit(2);
    }
    raise(SIGKILL);
}

static void comes_back(const char *access, const char *path)
{
    static uint8_t bytes[SIZE + CHUNKS], got[SIZE];
    uint32_t size;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (!child)
        write_and_die(access, path, bytes);
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    shoal *store = open_store(access, path);
    for (unsigned i = 0; i < CHUNKS; i++) {
        assert_int_equal(
            shoal_get(store, shoal_cid_make((shoal_nid){SH_EMBEDDED_NID}, i + 1), got, SIZE, &size),
            SHOAL_OK);
        assert_memory_equal(got, bytes + i, SIZE);
    }
    shoal_close(store);
    shoal_close(open_store(access, path));
}

static void test_cached(void **state)
{
    (void)state;
    comes_back("cached", NULL);
    refused(data, "raw", device, SHOAL_EINVAL, "data_dir has this node's log");
}

static void test_direct(void **state)
{
    (void)state;
    comes_back("direct", "");
}

static void test_raw(void **state)
{
    (void)state;
    device_make(64 * MIB);
    comes_back("raw", device);
    refused(data, NULL, NULL, SHOAL_EINVAL, "start it with log_access raw");
    refused(more, "raw", device, SHOAL_EINVAL, "data_dir does not say that it is this store's log");
    shoal *store = open_store("raw", device);
    refused(more, "raw", device, SHOAL_EBUSY, "is in use");
    refused(data, "raw", device, SHOAL_EBUSY, "has the store open");
    shoal_close(store);
    assert_int_equal(truncate(device, 48 * MIB), 0);
    refused(data, "raw", device, SHOAL_ENOSPC, "needs all the bytes that it had");
}

static void test_options(void **state)
{
    (void)state;
    device_make(8 * MIB);
    refused(data, "raw", device, SHOAL_ENOSPC, "a new log takes at least ");
    refused(data, "mmap", NULL, SHOAL_EINVAL, "cached, direct or raw, not mmap");
    refused(data, "raw", NULL, SHOAL_EINVAL, "a path from / on");
    refused(data, "raw", "device", SHOAL_EINVAL, "a path from / on");
    refused(data, "direct", device, SHOAL_EINVAL, "goes with log_access raw only");
    refused(NULL, "direct", NULL, SHOAL_EINVAL, "go with a data_dir only");
    refused(data, "raw", folder, SHOAL_EINVAL, "is neither a block device nor a file");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(test_cached), TEST(test_direct), TEST(test_raw),
                                       TEST(test_options)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
