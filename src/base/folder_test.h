/* A folder of a test's own, empty at the start of each of its cases and gone behind it:
 *
 *   cmocka_unit_test_setup_teardown(test, folder_make, folder_remove) */
#ifndef SH_BASE_FOLDER_TEST_H
#define SH_BASE_FOLDER_TEST_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char folder[32];

static inline int folder_make(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/shoal-test-XXXXXX");
    return !mkdtemp(folder);
}

/* Removes the files in it. */
static inline void folder_empty(void)
{
    char path[512];
    DIR *listed = opendir(folder);
    for (const struct dirent *entry; listed && (entry = readdir(listed));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    if (listed)
        closedir(listed);
}

static inline int folder_remove(void **state)
{
    (void)state;
    folder_empty();
    return rmdir(folder);
}

#endif
