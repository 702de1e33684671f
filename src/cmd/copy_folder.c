#include "cmd/copy_folder_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"

#define BEGUN "begun.json"
#define MANIFEST "manifest.json"
#define FORMAT 1
#define TEXT_BYTES_MAX (16u << 20)
#define PIECES_MAX 65536u

__attribute__((format(printf, 3, 4))) static enum shoal_err
fault(struct sh_copy_folder *folder, enum shoal_err err, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    (void)vsnprintf(folder->fault, sizeof folder->fault, format, args);
    va_end(args);
    return err;
}

/* --- Pieces ------------------------------------------------------------------------------------ */

void sh_copy_path(const struct sh_copy_folder *folder, shoal_nid node,
                  char path_out[SH_COPY_PATH_MAX])
{
    int size = node.v
                   ? snprintf(path_out, SH_COPY_PATH_MAX, "%s/node-%u.copy", folder->path, node.v)
                   : snprintf(path_out, SH_COPY_PATH_MAX, "%s/names.copy", folder->path);
    SH_ASSERT(size > 0 && size < SH_COPY_PATH_MAX); /* by sh_copy_folder_open */
}

struct sh_copy_totals sh_copy_totals(const struct sh_copy_manifest *manifest)
{
    struct sh_copy_totals sums = {.chunks = 0};
    for (size_t i = 0; i < manifest->count; i++) {
        sums.chunks += manifest->pieces[i].chunks;
        sums.payload_bytes += manifest->pieces[i].payload_bytes;
        sums.file_bytes += manifest->pieces[i].file_bytes;
    }
    return sums;
}

const struct sh_copy_piece *sh_copy_piece_find(const struct sh_copy_manifest *manifest,
                                               shoal_nid node)
{
    for (size_t i = 0; i < manifest->count; i++) {
        if (manifest->pieces[i].node.v == node.v)
            return &manifest->pieces[i];
    }
    return NULL;
}

enum shoal_err sh_copy_piece_set(struct sh_copy_manifest *manifest,
                                 const struct sh_copy_piece *piece)
{
    size_t count = 0, at;
    struct sh_copy_piece *pieces = calloc(manifest->count + 1, sizeof *pieces);
    if (!pieces)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < manifest->count; i++) {
        if (manifest->pieces[i].node.v != piece->node.v)
            pieces[count++] = manifest->pieces[i];
    }
    for (at = count; at > 0 && pieces[at - 1].ordinal > piece->ordinal; at--)
        pieces[at] = pieces[at - 1];
    pieces[at] = *piece;
    free(manifest->pieces);
    manifest->pieces = pieces;
    manifest->count = count + 1;
    return SHOAL_OK;
}

/* --- Small files ------------------------------------------------------------------------------- */

static void path_of(const struct sh_copy_folder *folder, const char *name, const char *suffix,
                    char path_out[SH_COPY_PATH_MAX])
{
    (void)snprintf(path_out, SH_COPY_PATH_MAX, "%s/%s%s", folder->path, name, suffix);
}

/* Writes a tree, which it frees, as a file of that name. */
static enum shoal_err tree_write(struct sh_copy_folder *folder, const char *name,
                                 struct sh_json *root)
{
    char path[SH_COPY_PATH_MAX], part[SH_COPY_PATH_MAX];
    enum shoal_err err = SHOAL_OK;
    path_of(folder, name, "", path);
    path_of(folder, name, ".part", part);
    FILE *file = fopen(part, "wb");
    if (file)
        sh_json_print(root, file);
    sh_json_free(root);
    if (!file)
        return fault(folder, sh_copy_file_err(), "%s", part);
    if (ferror(file) || fflush(file) || fsync(fileno(file)))
        err = sh_copy_file_err();
    if (fclose(file) && !err)
        err = sh_copy_file_err();
    if (!err && rename(part, path))
        err = sh_copy_file_err();
    if (err) {
        (void)remove(part);
        return fault(folder, err, "%s", path);
    }
    return sh_copy_folder_sync(folder);
}

/* Reads all of a file, allocated. ENONAME. */
static enum shoal_err text_read(struct sh_copy_folder *folder, const char *name, char **text_out,
                                size_t *size_out)
{
    char path[SH_COPY_PATH_MAX];
    path_of(folder, name, "", path);
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT ? SHOAL_ENONAME : fault(folder, SHOAL_EIO, "%s", path);
    char *text = malloc(TEXT_BYTES_MAX);
    enum shoal_err err = text ? SHOAL_OK : SHOAL_ENOMEM;
    size_t size = text ? fread(text, 1, TEXT_BYTES_MAX, file) : 0;
    if (!err && (ferror(file) || size == TEXT_BYTES_MAX))
        err = fault(folder, ferror(file) ? SHOAL_EIO : SHOAL_EPARSE, "%s", path);
    (void)fclose(file);
    if (err) {
        free(text);
        return err;
    }
    *text_out = text;
    *size_out = size;
    return SHOAL_OK;
}

/* --- What they say ----------------------------------------------------------------------------- */

static bool number_get(const struct sh_json *object, const char *key, uint64_t *number_out)
{
    const struct sh_json *value = sh_json_get(object, key);
    if (!sh_json_is_number(value) || sh_json_is_negative(value))
        return false;
    *number_out = sh_json_u64(value);
    return true;
}

/* What both files begin with. */
static bool beginning_get(const struct sh_json *root, struct sh_copy_manifest *manifest)
{
    uint64_t format;
    const char *cluster = sh_json_text(sh_json_get(root, "cluster"));
    if (!number_get(root, "format", &format) || format != FORMAT || !cluster ||
        strlen(cluster) >= SH_COPY_CLUSTER_MAX)
        return false;
    (void)snprintf(manifest->cluster, sizeof manifest->cluster, "%s", cluster);
    return number_get(root, "copy", &manifest->copy) && number_get(root, "begun", &manifest->begun);
}

static bool piece_get(const struct sh_json *object, struct sh_copy_piece *piece_out)
{
    uint64_t node;
    if (!number_get(object, "node", &node) || node == 0 || node > UINT16_MAX)
        return false;
    piece_out->node.v = (uint16_t)node;
    return number_get(object, "ordinal", &piece_out->ordinal) &&
           number_get(object, "chunks", &piece_out->chunks) &&
           number_get(object, "payload_bytes", &piece_out->payload_bytes) &&
           number_get(object, "file_bytes", &piece_out->file_bytes);
}

/* Pieces are in the order of their ordinals, and one of each node. */
static enum shoal_err pieces_get(const struct sh_json *array, struct sh_copy_manifest *manifest)
{
    size_t count = sh_json_count(array);
    if (!sh_json_is_array(array) || count > PIECES_MAX)
        return SHOAL_EPARSE;
    manifest->pieces = calloc(count + 1, sizeof manifest->pieces[0]);
    if (!manifest->pieces)
        return SHOAL_ENOMEM;
    uint64_t last = 0;
    for (size_t i = 0; i < count; i++) {
        struct sh_copy_piece piece;
        if (!piece_get(sh_json_at(array, i), &piece) || piece.ordinal <= last ||
            sh_copy_piece_find(manifest, piece.node))
            return SHOAL_EPARSE;
        last = piece.ordinal;
        manifest->pieces[manifest->count++] = piece;
    }
    return SHOAL_OK;
}

enum shoal_err sh_copy_manifest_parse(struct sh_bytes text, struct sh_copy_manifest *manifest_out)
{
    struct sh_copy_manifest manifest = {.count = 0};
    struct sh_json_error at;
    struct sh_json *root;
    enum shoal_err err = sh_json_parse((const char *)text.at, text.size, &root, &at);
    if (err)
        return err;
    if (!beginning_get(root, &manifest) || !number_get(root, "ended", &manifest.ended) ||
        !number_get(root, "names", &manifest.names))
        err = SHOAL_EPARSE;
    if (!err)
        err = pieces_get(sh_json_get(root, "pieces"), &manifest);
    sh_json_free(root);
    if (err) {
        free(manifest.pieces);
        return err;
    }
    *manifest_out = manifest;
    return SHOAL_OK;
}

static enum shoal_err begun_parse(struct sh_bytes text, struct sh_copy_manifest *manifest_out)
{
    struct sh_copy_manifest manifest = {.count = 0};
    struct sh_json_error at;
    struct sh_json *root;
    enum shoal_err err = sh_json_parse((const char *)text.at, text.size, &root, &at);
    if (err)
        return err;
    if (!beginning_get(root, &manifest))
        err = SHOAL_EPARSE;
    sh_json_free(root);
    if (!err)
        *manifest_out = manifest;
    return err;
}

static struct sh_json *beginning_make(const struct sh_copy_manifest *manifest)
{
    struct sh_json *root = sh_json_object();
    sh_json_set_u64(root, "format", FORMAT);
    sh_json_set_text(root, "cluster", manifest->cluster);
    sh_json_set_u64(root, "copy", manifest->copy);
    sh_json_set_u64(root, "begun", manifest->begun);
    return root;
}

enum shoal_err sh_copy_folder_begin(struct sh_copy_folder *folder, const char *cluster,
                                    uint64_t copy)
{
    struct sh_copy_manifest *manifest = &folder->manifest;
    SH_ASSERT(!folder->has_begun && strlen(cluster) < SH_COPY_CLUSTER_MAX && copy <= INT64_MAX);
    (void)snprintf(manifest->cluster, sizeof manifest->cluster, "%s", cluster);
    manifest->copy = copy;
    manifest->begun = (uint64_t)time(NULL);
    enum shoal_err err = tree_write(folder, BEGUN, beginning_make(manifest));
    folder->has_begun = !err;
    return err;
}

enum shoal_err sh_copy_folder_complete(struct sh_copy_folder *folder)
{
    struct sh_copy_manifest *manifest = &folder->manifest;
    struct sh_json *pieces = sh_json_array();
    enum shoal_err err = sh_copy_folder_sync(folder);
    manifest->ended = (uint64_t)time(NULL);
    for (size_t i = 0; i < manifest->count; i++) {
        const struct sh_copy_piece *piece = &manifest->pieces[i];
        struct sh_json *object = sh_json_object();
        sh_json_set_u64(object, "node", piece->node.v);
        sh_json_set_u64(object, "ordinal", piece->ordinal);
        sh_json_set_u64(object, "chunks", piece->chunks);
        sh_json_set_u64(object, "payload_bytes", piece->payload_bytes);
        sh_json_set_u64(object, "file_bytes", piece->file_bytes);
        sh_json_append(pieces, object);
    }
    struct sh_json *root = beginning_make(manifest);
    sh_json_set_u64(root, "ended", manifest->ended);
    sh_json_set_u64(root, "names", manifest->names);
    sh_json_set(root, "pieces", pieces);
    if (err) {
        sh_json_free(root);
        return err;
    }
    err = tree_write(folder, MANIFEST, root);
    folder->is_complete = !err;
    return err;
}

/* --- The folder -------------------------------------------------------------------------------- */

enum shoal_err sh_copy_folder_sync(struct sh_copy_folder *folder)
{
    return fsync(folder->fd) ? fault(folder, sh_copy_file_err(), "%s", folder->path) : SHOAL_OK;
}

static bool is_empty(const char *path)
{
    DIR *dir = opendir(path);
    bool is_so = dir != NULL;
    for (struct dirent *entry; is_so && (entry = readdir(dir));)
        is_so = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
                strcmp(entry->d_name, "lost+found") == 0 ||
                strcmp(entry->d_name, BEGUN ".part") == 0;
    if (dir)
        (void)closedir(dir);
    return is_so;
}

/* Reads what the folder has. */
static enum shoal_err contents_read(struct sh_copy_folder *folder)
{
    char *text;
    size_t size;
    enum shoal_err err = text_read(folder, MANIFEST, &text, &size);
    if (!err) {
        err = sh_copy_manifest_parse(sh_bytes_make(text, size), &folder->manifest);
        free(text);
        folder->has_begun = folder->is_complete = !err;
        return err ? fault(folder, err, "%s/" MANIFEST, folder->path) : SHOAL_OK;
    }
    if (err == SHOAL_ENONAME)
        err = text_read(folder, BEGUN, &text, &size);
    if (err)
        return err;
    err = begun_parse(sh_bytes_make(text, size), &folder->manifest);
    free(text);
    folder->has_begun = !err;
    return err ? fault(folder, err, "%s/" BEGUN, folder->path) : SHOAL_OK;
}

enum shoal_err sh_copy_folder_open(struct sh_copy_folder *folder, const char *path, bool is_new)
{
    *folder = (struct sh_copy_folder){.path = path, .fd = -1};
    if (!*path || strlen(path) + SH_COPY_NAME_MAX > SH_COPY_PATH_MAX)
        return fault(folder, SHOAL_EINVAL, "the folder's path is empty, or too long");
    if (is_new && mkdir(path, 0700) && errno != EEXIST)
        return fault(folder, sh_copy_file_err(), "%s: %s", path, strerror(errno));
    folder->fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0)
        return fault(folder, errno == ENOENT || errno == ENOTDIR ? SHOAL_ENONAME : SHOAL_EIO,
                     "%s: %s", path, strerror(errno));
    if (flock(folder->fd, LOCK_EX | LOCK_NB))
        return fault(folder, SHOAL_EBUSY, "another `shoal backup` works in %s", path);
    enum shoal_err err = contents_read(folder);
    if (err == SHOAL_ENONAME && is_new)
        return is_empty(path)
                   ? SHOAL_OK
                   : fault(folder, SHOAL_EEXIST, "%s is not empty, and has no safety copy", path);
    return err == SHOAL_ENONAME ? fault(folder, err, "%s has no safety copy", path) : err;
}

void sh_copy_folder_close(struct sh_copy_folder *folder)
{
    if (folder->fd >= 0)
        (void)close(folder->fd);
    free(folder->manifest.pieces);
    *folder = (struct sh_copy_folder){.fd = -1};
}
