/* The folder of a cluster on this machine: where it is, the note in it. */
#include "cmd/state_int.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"

#define NOTE "cluster"
#define NOTE_BYTES_MAX (1u << 20)
#define NOTE_VERSION 1

enum shoal_err sh_state_create(struct sh_state *state_out)
{
    struct sh_state_node *nodes = calloc(SH_STATE_NODES_MAX, sizeof *nodes);
    if (!nodes)
        return SHOAL_ENOMEM;
    *state_out = (struct sh_state){.nodes = nodes};
    return SHOAL_OK;
}

void sh_state_free(struct sh_state *state)
{
    free(state->nodes);
    state->nodes = NULL;
}

void sh_state_path(const char *folder, const char *name, const char *suffix,
                   char path_out[SH_STATE_PATH_MAX + 64])
{
    int size = snprintf(path_out, SH_STATE_PATH_MAX + 64, "%s/%s%s%s", folder, name,
                        *suffix ? "." : "", suffix);
    SH_ASSERT(size > 0 && size < SH_STATE_PATH_MAX + 64);
}

static enum shoal_err io_failed(int why, const char *path, char *detail)
{
    snprintf(detail, SH_STATE_TEXT_MAX, "%.1100s: %s", path, strerror(why));
    return why == ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO;
}

/* A folder that others could have put there, as anybody can in /tmp, is not trusted: `down` signals
 * the processes that its note names. */
static enum shoal_err owner_check(const char *folder, char *detail)
{
    struct stat about;
    if (lstat(folder, &about) != 0)
        return errno == ENOENT ? SHOAL_OK : io_failed(errno, folder, detail);
    if (S_ISDIR(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & 077) == 0)
        return SHOAL_OK;
    snprintf(detail, SH_STATE_TEXT_MAX,
             "%s is not a folder that is yours alone (mode 0700); name another with --dir", folder);
    return SHOAL_EIO;
}

enum shoal_err sh_state_folder(const char *dir, char folder_out[SH_STATE_PATH_MAX], char *detail)
{
    char path[2 * SH_STATE_PATH_MAX], here[SH_STATE_PATH_MAX] = "";
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    bool ours = false;
    if (!dir)
        dir = getenv("SHOAL_STATE_DIR");
    if (dir && *dir) {
        if (*dir != '/' && !getcwd(here, sizeof here))
            return io_failed(errno, dir, detail);
        snprintf(path, sizeof path, "%.1000s%s%.1024s", here, *here ? "/" : "", dir);
    } else {
        ours = true;
        if (runtime && *runtime == '/')
            snprintf(path, sizeof path, "%.1000s/shoal", runtime);
        else
            snprintf(path, sizeof path, "/tmp/shoal-%u", (unsigned)geteuid());
    }
    if (strlen(path) >= SH_STATE_PATH_MAX)
        return io_failed(ENAMETOOLONG, path, detail);
    enum shoal_err err = ours ? owner_check(path, detail) : SHOAL_OK;
    if (err == SHOAL_OK)
        memcpy(folder_out, path, strlen(path) + 1);
    return err;
}

enum shoal_err sh_state_make(const char *folder, bool *made_out, char *detail)
{
    struct stat about;
    if (mkdir(folder, 0700) == 0) {
        *made_out = true;
        return SHOAL_OK;
    }
    if (errno != EEXIST)
        return io_failed(errno, folder, detail);
    if (stat(folder, &about) != 0)
        return io_failed(errno, folder, detail);
    if (!S_ISDIR(about.st_mode))
        return io_failed(ENOTDIR, folder, detail);
    *made_out = false;
    return SHOAL_OK;
}

enum shoal_err sh_state_lock(const char *folder, int *fd_out, char *detail)
{
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return io_failed(errno, folder, detail);
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        *fd_out = fd;
        return SHOAL_OK;
    }
    int why = errno;
    close(fd);
    if (why != EWOULDBLOCK)
        return io_failed(why, folder, detail);
    snprintf(detail, SH_STATE_TEXT_MAX, "another `shoal up` or `shoal down` is at work in %s",
             folder);
    return SHOAL_EBUSY;
}

/* --- The note ------------------------------------------------------------------------------ */

static void copy_text(char *into, size_t room, const struct sh_json *value)
{
    const char *text = sh_json_text(value);
    snprintf(into, room, "%s", text ? text : "");
}

static bool node_read(const struct sh_json *row, struct sh_state_node *node)
{
    const char *role = sh_json_text(sh_json_get(row, "role"));
    uint64_t pid = sh_json_u64(sh_json_get(row, "pid"));
    uint64_t nid = sh_json_u64(sh_json_get(row, "nid"));
    copy_text(node->name, sizeof node->name, sh_json_get(row, "name"));
    copy_text(node->address, sizeof node->address, sh_json_get(row, "address"));
    node->superpeer = role && strcmp(role, "superpeer") == 0;
    node->pid = (pid_t)pid;
    node->started = sh_json_u64(sh_json_get(row, "started"));
    node->nid = (shoal_nid){(uint16_t)nid};
    /* The name becomes part of paths that are removed. */
    return role && *node->name && !strchr(node->name, '/') && pid > 1 && pid <= INT32_MAX &&
           nid <= UINT16_MAX;
}

static bool note_read(const struct sh_json *root, struct sh_state *state)
{
    const struct sh_json *nodes = sh_json_get(root, "nodes");
    size_t count = sh_json_count(nodes);
    if (sh_json_u64(sh_json_get(root, "version")) != NOTE_VERSION || count > SH_STATE_NODES_MAX)
        return false;
    copy_text(state->cluster, sizeof state->cluster, sh_json_get(root, "cluster"));
    copy_text(state->secret_file, sizeof state->secret_file, sh_json_get(root, "secret_file"));
    copy_text(state->tls, sizeof state->tls, sh_json_get(root, "tls"));
    copy_text(state->tls_cert_file, sizeof state->tls_cert_file,
              sh_json_get(root, "tls_cert_file"));
    copy_text(state->tls_key_file, sizeof state->tls_key_file, sh_json_get(root, "tls_key_file"));
    copy_text(state->tls_ca_file, sizeof state->tls_ca_file, sh_json_get(root, "tls_ca_file"));
    state->made_folder = sh_json_bool(sh_json_get(root, "made_folder"));
    state->complete = sh_json_bool(sh_json_get(root, "complete"));
    for (; state->count < count; state->count++)
        if (!node_read(sh_json_at(nodes, state->count), &state->nodes[state->count]))
            return false;
    return true;
}

static enum shoal_err note_load(const char *path, char **text_out, size_t *size_out, char *detail)
{
    FILE *file = fopen(path, "re");
    if (!file)
        return errno == ENOENT || errno == ENOTDIR ? SHOAL_ENONAME : io_failed(errno, path, detail);
    char *text = malloc(NOTE_BYTES_MAX);
    size_t size = text ? fread(text, 1, NOTE_BYTES_MAX, file) : 0;
    bool failed = ferror(file) != 0;
    fclose(file);
    if (!text)
        return SHOAL_ENOMEM;
    if (failed) {
        free(text);
        return io_failed(EIO, path, detail);
    }
    *text_out = text;
    *size_out = size;
    return SHOAL_OK;
}

/* Parses a note; error_out says where it is wrong (ECORRUPT). */
static enum shoal_err note_parse(const char *text, size_t size, struct sh_state *state_out,
                                 struct sh_json_error *error_out)
{
    struct sh_json *root;
    struct sh_state state;
    enum shoal_err err = sh_json_parse(text, size, &root, error_out);
    if (err != SHOAL_OK)
        return err == SHOAL_EPARSE ? SHOAL_ECORRUPT : err;
    err = sh_state_create(&state);
    if (err == SHOAL_OK && !note_read(root, &state)) {
        sh_state_free(&state);
        *error_out = (struct sh_json_error){1, 1, "not a note of this version"};
        err = SHOAL_ECORRUPT;
    }
    sh_json_free(root);
    if (err == SHOAL_OK)
        *state_out = state;
    return err;
}

enum shoal_err sh_state_read(const char *folder, struct sh_state *state_out, char *detail)
{
    char path[SH_STATE_PATH_MAX + 64], *text = NULL;
    size_t size = 0;
    struct sh_json_error error;
    sh_state_path(folder, NOTE, "json", path);
    enum shoal_err err = note_load(path, &text, &size, detail);
    if (err == SHOAL_ENONAME)
        snprintf(detail, SH_STATE_TEXT_MAX, "no cluster was started in %s", folder);
    if (err != SHOAL_OK)
        return err;
    err = note_parse(text, size, state_out, &error);
    if (err == SHOAL_ECORRUPT)
        snprintf(detail, SH_STATE_TEXT_MAX, "%s:%d:%d: %s", path, error.line, error.column,
                 error.text);
    free(text);
    return err;
}

static struct sh_json *note_make(const struct sh_state *state)
{
    struct sh_json *root = sh_json_object(), *nodes = sh_json_array();
    sh_json_set_u64(root, "version", NOTE_VERSION);
    sh_json_set_text(root, "cluster", state->cluster);
    sh_json_set_text(root, "secret_file", state->secret_file);
    sh_json_set_text(root, "tls", state->tls);
    sh_json_set_text(root, "tls_cert_file", state->tls_cert_file);
    sh_json_set_text(root, "tls_key_file", state->tls_key_file);
    sh_json_set_text(root, "tls_ca_file", state->tls_ca_file);
    sh_json_set_bool(root, "made_folder", state->made_folder);
    sh_json_set_bool(root, "complete", state->complete);
    for (size_t i = 0; i < state->count; i++) {
        const struct sh_state_node *node = &state->nodes[i];
        struct sh_json *row = sh_json_object();
        sh_json_set_text(row, "name", node->name);
        sh_json_set_text(row, "role", node->superpeer ? "superpeer" : "peer");
        sh_json_set_u64(row, "pid", (uint64_t)node->pid);
        sh_json_set_u64(row, "started", node->started);
        sh_json_set_u64(row, "nid", node->nid.v);
        sh_json_set_text(row, "address", node->address);
        sh_json_append(nodes, row);
    }
    sh_json_set(root, "nodes", nodes);
    return root;
}

enum shoal_err sh_state_write(const char *folder, const struct sh_state *state, char *detail)
{
    char path[SH_STATE_PATH_MAX + 64], temporary[SH_STATE_PATH_MAX + 64];
    sh_state_path(folder, NOTE, "json", path);
    sh_state_path(folder, NOTE, "json.new", temporary);
    FILE *file = fopen(temporary, "we");
    if (!file)
        return io_failed(errno, temporary, detail);
    struct sh_json *root = note_make(state);
    sh_json_print(root, file);
    sh_json_free(root);
    bool failed = fflush(file) != 0 || ferror(file);
    int why = errno;
    failed |= fclose(file) != 0;
    if (!failed && rename(temporary, path) == 0)
        return SHOAL_OK;
    why = failed ? why : errno;
    unlink(temporary);
    return io_failed(why, path, detail);
}

static size_t addresses_put(const struct sh_state *state, bool superpeers, size_t most,
                            char *text_out, size_t used, size_t room)
{
    for (size_t i = 0; i < state->count && most > 0; i++) {
        const char *address = state->nodes[i].address;
        if (state->nodes[i].superpeer != superpeers || !*address ||
            used + strlen(address) + 2 > room)
            continue;
        used += (size_t)snprintf(text_out + used, room - used, "%s%s", used ? "," : "", address);
        most--;
    }
    return used;
}

void sh_state_addresses(const struct sh_state *state, size_t peers, char *text_out, size_t room)
{
    *text_out = '\0';
    size_t used = addresses_put(state, true, SIZE_MAX, text_out, 0, room);
    (void)addresses_put(state, false, peers, text_out, used, room);
}
