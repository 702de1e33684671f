/* How many files this process has open, for tests of what is left over. */
#ifndef SH_BASE_OPEN_FILES_TEST_H
#define SH_BASE_OPEN_FILES_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>

/* The same constant too much each time, for the folder that is read. */
static inline unsigned test_open_files(void)
{
    DIR *listed = opendir("/proc/self/fd");
    assert_non_null(listed);
    unsigned count = 0;
    while (readdir(listed))
        count++;
    closedir(listed);
    return count;
}

#endif
