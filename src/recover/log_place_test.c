/* Where a node's log is: the note that its folder has of a device, what each way of opening it refuses, and logs on devices, of one level and of
 * two. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <sys/stat.h>

#include "base/folder_test.h"
#include "recover/home_log.h"
#include "recover/log_place.h"

#define MIB (UINT64_C(1) << 20)
#define SLOT_BYTES (256u << 10)

static struct sh_disk *disk; /* of the folder */
static char device[64], other[64], detail[SH_LOG_PLACE_DETAIL];

static int make(void **state)
{
    if (folder_make(state))
        return 1;
    snprintf(device, sizeof device, "%s/device", folder);
    snprintf(other, sizeof other, "%s/other", folder);
    detail[0] = '\0';
    return sh_real_disk_create(folder, false, &disk) != SHOAL_OK;
}

static int unmake(void **state)
{
    disk->ops->destroy(disk);
    return folder_remove(state);
}

static void file_put(const char *path, const void *bytes, size_t size)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(file >= 0);
    assert_int_equal(write(file, bytes, size), size);
    close(file);
}

static void device_make(const char *path, uint64_t bytes)
{
    file_put(path, "", 0);
    assert_int_equal(truncate(path, (off_t)bytes), 0);
}

static void note_put(const char *bytes, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "%s/" SH_LOG_NOTE_NAME, folder);
    file_put(path, bytes, size);
}

static struct sh_log_place raw(const char *path)
{
    return (struct sh_log_place){.access = SH_LOG_RAW, .path = path};
}

static struct sh_log_place in_folder(enum sh_log_access access)
{
    return (struct sh_log_place){.access = access, .path = folder};
}

static struct sh_disk *place_open(struct sh_log_place place)
{
    struct sh_disk *found = NULL;
    enum shoal_err err = sh_log_place_open(&place, disk, &found, detail);
    if (err)
        fail_msg("%s: %s", shoal_err_name(err), detail);
    return found;
}

static void refused(struct sh_log_place place, enum shoal_err expected, const char *says)
{
    struct sh_disk *found = disk;
    assert_int_equal(sh_log_place_open(&place, disk, &found, detail), expected);
    assert_ptr_equal(found, disk); /* written only on success */
    if (!strstr(detail, says))
        fail_msg("%s", detail);
}

static struct sh_home_log home_on(struct sh_disk *its)
{
    uint64_t bytes, left;
    assert_int_equal(sh_disk_space(its, &bytes, &left), SHOAL_OK);
    return (struct sh_home_log){.disk = its,
                                .random = sh_real_random(),
                                .cluster = 1,
                                .nid = {64},
                                .store_bytes_max = 32 * MIB,
                                .zone_bytes = 2 * MIB,
                                .slot_bytes = SLOT_BYTES,
                                .primary_blocks = 256,
                                .buffer_bytes = 8 * MIB,
                                .device_bytes = bytes};
}

/* Opens a log there, and closes it; which levels it has. */
static enum shoal_err log_opens(const struct sh_home_log *home, unsigned *levels_out)
{
    struct sh_replog *log;
    enum shoal_err err = sh_home_log_open(home, 1, 1, &log);
    if (err)
        return err;
    *levels_out = sh_replog_look(log).primary_bytes ? 2 : 1;
    sh_replog_close(log);
    return SHOAL_OK;
}

static void words(void **state)
{
    (void)state;
    enum sh_log_access access;
    assert_true(sh_log_access_of("auto", true, &access));
    assert_int_equal(access, SH_LOG_DIRECT);
    assert_true(sh_log_access_of("auto", false, &access));
    assert_int_equal(access, SH_LOG_CACHED);
    assert_true(sh_log_access_of("cached", true, &access));
    assert_int_equal(access, SH_LOG_CACHED);
    assert_true(sh_log_access_of("direct", false, &access));
    assert_int_equal(access, SH_LOG_DIRECT);
    assert_true(sh_log_access_of("raw", false, &access));
    assert_int_equal(access, SH_LOG_RAW);
    assert_false(sh_log_access_of("", false, &access));
}

static void the_note(void **state)
{
    (void)state;
    char path[SH_LOG_PATH_MAX], longest[SH_LOG_PATH_MAX];
    const struct sh_log_place first = raw(device), second = raw(other), longer = raw(longest);
    const struct sh_log_place cached = in_folder(SH_LOG_CACHED);
    assert_int_equal(sh_log_note_read(disk, path), SHOAL_ENONAME);
    assert_false(sh_log_place_is_used(disk));
    assert_int_equal(sh_log_place_note(&cached, disk), SHOAL_OK);
    assert_false(sh_log_place_is_used(disk));
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(sh_log_place_note(&first, disk), SHOAL_OK);
        assert_int_equal(sh_log_note_read(disk, path), SHOAL_OK);
        assert_string_equal(path, device);
    }
    assert_true(sh_log_place_is_used(disk));
    assert_int_equal(sh_log_place_note(&second, disk), SHOAL_OK);
    assert_int_equal(sh_log_note_read(disk, path), SHOAL_OK);
    assert_string_equal(path, other);
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[SH_LOG_PATH_MAX - 2] = '\0'; /* as long as the option may be */
    assert_int_equal(sh_log_place_note(&longer, disk), SHOAL_OK);
    assert_int_equal(sh_log_note_read(disk, path), SHOAL_OK);
    assert_string_equal(path, longest);
    static const char *const wrong[] = {"", "\n", "/dev/x", "dev/x\n", "/dev/x\n/dev/y\n", "/\n\n"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        note_put(wrong[i], strlen(wrong[i]));
        assert_int_equal(sh_log_note_read(disk, path), SHOAL_ECORRUPT);
        refused(raw(device), SHOAL_ECORRUPT, "write the device's path and a new line into it");
    }
    note_put("/dev/\0x\n", 8);
    assert_int_equal(sh_log_note_read(disk, path), SHOAL_ECORRUPT);
}

static void each_place(void **state)
{
    (void)state;
    device_make(device, 32 * MIB);
    assert_null(place_open(in_folder(SH_LOG_CACHED)));
    struct sh_disk *direct = place_open(in_folder(SH_LOG_DIRECT));
    assert_non_null(direct);
    direct->ops->destroy(direct);
    const struct sh_log_place place = raw(device);
    struct sh_disk *its = place_open(place);
    assert_int_equal(sh_log_place_bytes(&place, its), 32 * MIB);
    const struct sh_log_place cached = in_folder(SH_LOG_CACHED);
    assert_int_equal(sh_log_place_bytes(&cached, disk), 0);
    refused(raw(device), SHOAL_EBUSY, "is in use");
    its->ops->destroy(its);
    refused(raw(other), SHOAL_ENONAME, "is not there");
    refused(raw(folder), SHOAL_EINVAL, "is neither a block device nor a file");
}

/* A log is looked for where it was. */
static void not_elsewhere(void **state)
{
    (void)state;
    unsigned levels;
    char path[64];
    const struct sh_log_place place = raw(device);
    device_make(device, 32 * MIB);
    device_make(other, 32 * MIB);
    struct sh_disk *its = place_open(place);
    const struct sh_home_log home = home_on(its);
    assert_int_equal(log_opens(&home, &levels), SHOAL_OK);
    its->ops->destroy(its);
    assert_int_equal(sh_log_place_note(&place, disk), SHOAL_OK);
    refused(in_folder(SH_LOG_CACHED), SHOAL_EINVAL, "start it with log_access raw");
    refused(in_folder(SH_LOG_DIRECT), SHOAL_EINVAL, device);
    refused(raw(other), SHOAL_EINVAL, "has no log, and this node's was on");
    assert_int_equal(rename(device, other), 0);
    its = place_open(raw(other)); /* named otherwise */
    its->ops->destroy(its);
    /* Of those without names of their own only the device that the note names is taken: another one may have another store's log. */
    struct sh_log_place nameless = raw(other);
    nameless.is_nameless = true;
    refused(nameless, SHOAL_EINVAL, "data_dir does not say that it is this store's log");
    assert_int_equal(sh_log_place_note(&nameless, disk), SHOAL_OK);
    its = place_open(nameless);
    its->ops->destroy(its);
    snprintf(path, sizeof path, "%s/" SH_LOG_NOTE_NAME, folder);
    assert_int_equal(unlink(path), 0);
    refused(nameless, SHOAL_EINVAL, "data_dir does not say that it is this store's log");
    its = place_open(raw(other));
    its->ops->destroy(its);
    assert_int_equal(truncate(other, 0), 0);
    assert_int_equal(truncate(other, 32 * MIB), 0);
    its = place_open(nameless);
    its->ops->destroy(its);
    snprintf(path, sizeof path, "%s/" SH_HOME_LOG_NAME, folder);
    file_put(path, "", 0);
    refused(raw(other), SHOAL_EINVAL, "data_dir has this node's log");
}

static void levels_and_sizes(void **state)
{
    (void)state;
    unsigned levels = 0;
    device_make(device, 32 * MIB);
    device_make(other, 32 * MIB);
    struct sh_disk *two = place_open(raw(device)), *one = place_open(raw(other));
    struct sh_home_log home = home_on(two), flat = home_on(one);
    flat.is_one_level = true;
    assert_int_equal(sh_home_log_least(&home), sh_home_log_least(&flat) + MIB);
    assert_int_equal(log_opens(&home, &levels), SHOAL_OK);
    assert_int_equal(levels, 2);
    assert_int_equal(log_opens(&flat, &levels), SHOAL_OK);
    assert_int_equal(levels, 1);
    /* A log that is there keeps its levels and segments, whatever is asked for. */
    flat.is_one_level = false;
    flat.slot_bytes = 0;
    assert_true(sh_home_log_least(&flat) > flat.device_bytes);
    assert_int_equal(log_opens(&flat, &levels), SHOAL_OK);
    assert_int_equal(levels, 1);
    /* On a device that has got larger, it takes more. */
    one->ops->destroy(one);
    assert_int_equal(truncate(other, 40 * MIB), 0);
    one = place_open(raw(other));
    flat = home_on(one);
    flat.is_one_level = true;
    struct sh_replog *log;
    assert_int_equal(sh_home_log_open(&flat, 1, 1, &log), SHOAL_OK);
    uint64_t file_bytes = sh_replog_look(log).file_bytes;
    assert_true(file_bytes > 40 * MIB - SLOT_BYTES && file_bytes <= 40 * MIB);
    sh_replog_close(log);
    home.nid.v = 65;
    assert_int_equal(log_opens(&home, &levels), SHOAL_ECLUSTER);
    two->ops->destroy(two);
    one->ops->destroy(one);
}

static void too_little(void **state)
{
    (void)state;
    unsigned levels;
    device_make(device, 32 * MIB);
    struct sh_disk *its = place_open(raw(device));
    struct sh_home_log home = home_on(its);
    uint64_t least = sh_home_log_least(&home);
    home.is_one_level = true;
    home.slot_bytes = 4 * MIB;
    assert_int_equal(log_opens(&home, &levels), SHOAL_ENOSPC);
    home.device_bytes = 0; /* its size is not told: the log itself finds out */
    assert_int_equal(log_opens(&home, &levels), SHOAL_ENOSPC);
    its->ops->destroy(its);
    device_make(device, least - 4096);
    its = place_open(raw(device));
    home = home_on(its);
    assert_int_equal(log_opens(&home, &levels), SHOAL_ENOSPC);
    its->ops->destroy(its);
    device_make(device, least);
    its = place_open(raw(device));
    home = home_on(its);
    home.buffer_bytes = MIB;
    assert_int_equal(log_opens(&home, &levels), SHOAL_ERANGE);
    home.buffer_bytes = 8 * MIB;
    home.bytes_max = 10 * SLOT_BYTES;
    assert_int_equal(log_opens(&home, &levels), SHOAL_EINVAL);
    home.bytes_max = 0;
    assert_int_equal(log_opens(&home, &levels), SHOAL_OK);
    its->ops->destroy(its);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make, unmake)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(words),         TEST(the_note),         TEST(each_place),
        TEST(not_elsewhere), TEST(levels_and_sizes), TEST(too_little),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
