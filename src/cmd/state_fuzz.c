/* Any bytes as the note of `shoal up`: an error says why, and what is accepted is within its bounds
 * and reads the same after it was written again. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "cmd/state_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char folder[64];

static void folder_remove(void)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/cluster.json", folder);
    (void)unlink(path);
    (void)rmdir(folder);
}

/* In memory, where there is such a file system. */
static void folder_make(void)
{
    const char *parent = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    (void)snprintf(folder, sizeof folder, "%s/shoal-state-fuzz.XXXXXX", parent);
    char *made = mkdtemp(folder);
    SH_ASSERT(made);
    atexit(folder_remove);
}

static void note_write(const uint8_t *data, size_t size)
{
    char path[96];
    (void)snprintf(path, sizeof path, "%s/cluster.json", folder);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    SH_ASSERT(fd >= 0);
    ssize_t written = write(fd, data, size);
    SH_ASSERT(written == (ssize_t)size);
    close(fd);
}

static void is_bounded(const struct sh_state *state)
{
    SH_ASSERT(state->count <= SH_STATE_NODES_MAX);
    SH_ASSERT(memchr(state->cluster, 0, sizeof state->cluster));
    SH_ASSERT(memchr(state->secret_file, 0, sizeof state->secret_file));
    SH_ASSERT(memchr(state->tls, 0, sizeof state->tls));
    for (size_t i = 0; i < state->count; i++) {
        SH_ASSERT(memchr(state->nodes[i].name, 0, sizeof state->nodes[i].name));
        SH_ASSERT(memchr(state->nodes[i].address, 0, sizeof state->nodes[i].address));
        SH_ASSERT(state->nodes[i].pid > 0); /* `shoal down` signals it */
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static char detail[SH_STATE_TEXT_MAX];
    struct sh_state state = {0}, again = {0};
    if (!folder[0])
        folder_make();
    note_write(data, size);
    detail[0] = 0;
    enum shoal_err err = sh_state_read(folder, &state, detail);
    if (err) {
        SH_ASSERT(detail[0] || err == SHOAL_ENOMEM || err == SHOAL_ENONAME);
        return 0;
    }
    is_bounded(&state);
    err = sh_state_write(folder, &state, detail);
    SH_ASSERT(!err);
    err = sh_state_read(folder, &again, detail);
    SH_ASSERT(!err && again.count == state.count && strcmp(again.cluster, state.cluster) == 0);
    for (size_t i = 0; i < state.count; i++)
        SH_ASSERT(again.nodes[i].pid == state.nodes[i].pid &&
                  strcmp(again.nodes[i].name, state.nodes[i].name) == 0);
    sh_state_free(&again);
    sh_state_free(&state);
    return 0;
}
