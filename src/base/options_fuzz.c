/* Any bytes as a file of options, and then any words as flags: an error names its place, and what
 * passed the check is within its bounds when it is checked again. The file is what comes before the
 * first zero byte; each word ends with another one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/options.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define WORDS_MAX 32

static enum shoal_err file_read(struct sh_options *options, const uint8_t *data, size_t size,
                                struct sh_options_error *error_out)
{
    char path[64];
    int fd = memfd_create("options", 0);
    SH_ASSERT(fd >= 0);
    ssize_t written = write(fd, data, size);
    SH_ASSERT(written == (ssize_t)size);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    enum shoal_err err = sh_options_read_file(options, path, error_out);
    close(fd);
    return err;
}

static enum shoal_err words_read(struct sh_options *options, char *text, size_t size,
                                 struct sh_options_error *error_out)
{
    static char program[] = "program";
    char *words[WORDS_MAX + 2] = {program};
    int count = 1;
    for (size_t at = 0; at < size && count <= WORDS_MAX; at += strlen(text + at) + 1)
        words[count++] = text + at;
    return sh_options_read_flags(options, &count, words, error_out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_options options;
    struct sh_options_error error = {0};
    char *text = malloc(size + 1);
    if (!text)
        return 0;
    if (size)
        memcpy(text, data, size);
    text[size] = 0;
    if (sh_options_init(&options) == SHOAL_OK) {
        size_t file = strnlen(text, size);
        enum shoal_err err = file ? file_read(&options, data, file, &error) : SHOAL_OK;
        if (!err && file < size)
            err = words_read(&options, text + file + 1, size - file - 1, &error);
        if (!err)
            err = sh_options_check(&options, &error);
        SH_ASSERT(!err || err == SHOAL_ENOMEM || error.text[0] != '\0');
        if (!err) {
            err = sh_options_check(&options, &error);
            SH_ASSERT(!err && options.failure_ns / 10 >= options.heartbeat_ns);
        }
        sh_options_destroy(&options);
    }
    free(text);
    return 0;
}
