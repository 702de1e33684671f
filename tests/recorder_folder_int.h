/* A folder on a real disk for a recorded run, and what all recorded tests ask the environment. Setup and teardown of a cmocka case, whose state is the
 * folder's path. */
#ifndef TESTS_RECORDER_FOLDER_INT_H
#define TESTS_RECORDER_FOLDER_INT_H

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "tests/recorder_int.h"

#define RECORDER_FOLDER "/tmp/shoal-recorded-XXXXXX"

static inline int recorder_folder_make(void **state)
{
    static char folder[sizeof RECORDER_FOLDER];
    strcpy(folder, RECORDER_FOLDER);
    *state = mkdtemp(folder);
    return !*state;
}

/* Removes the folder with its one file. */
static inline int recorder_folder_remove(const char *folder, const char *file)
{
    char path[sizeof RECORDER_FOLDER + 64];
    snprintf(path, sizeof path, "%s/%s", folder, file);
    (void)unlink(path);
    return rmdir(folder);
}

/* Skips the case where the folder's file system refuses O_DIRECT: the disk would go through the page cache instead. */
static inline void recorder_folder_needs_direct(const char *folder)
{
    char path[sizeof RECORDER_FOLDER + 64];
    snprintf(path, sizeof path, "%s/direct", folder);
    int file = open(path, O_CREAT | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    bool is_refused = file < 0 && errno == EINVAL;
    assert_true(file >= 0 || is_refused);
    if (file >= 0)
        assert_int_equal(close(file), 0);
    assert_int_equal(unlink(path), 0); /* O_CREAT comes before the refusal */
    if (is_refused)
        skip();
}

/* How many states of a run are looked at. */
static inline size_t recorder_states(size_t most)
{
    const char *text = getenv("SHOAL_TEST_STATES");
    return text && *text ? (size_t)strtoull(text, NULL, 0) : most;
}

#endif
