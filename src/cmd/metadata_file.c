#include "cmd/metadata_file_int.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/hash.h"
#include "ring/arcs.h"

#define MAGIC UINT64_C(0x54454d4c414f4853) /* "SHOALMET" */
#define FORMAT 1
#define HEAD_BYTES_MAX 512
#define TEXT_BYTES_MAX 256
#define TEMPORARY ".part"
#define PIECE_BYTES_MAX (1u << 20)

/* --- Writing --------------------------------------------------------------------------------- */

static enum shoal_err failed(void)
{
    return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? SHOAL_ENOSPC : SHOAL_EIO;
}

static enum shoal_err put(struct sh_metadata_writer *writer, struct sh_bytes bytes)
{
    writer->crc = sh_crc32c(writer->crc, bytes);
    if (bytes.size && fwrite(bytes.at, bytes.size, 1, writer->file) != 1)
        return failed();
    return SHOAL_OK;
}

static enum shoal_err node_put(struct sh_metadata_writer *writer, const struct shoal_node *node)
{
    uint8_t bytes[HEAD_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put16(&w, node->nid.v);
    sh_put8(&w, (uint8_t)node->role);
    sh_put8(&w, (uint8_t)node->state);
    sh_put_text(&w, sh_bytes_text(node->address));
    SH_ASSERT(sh_writer_ok(&w));
    return put(writer, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
}

enum shoal_err sh_metadata_file_begin(struct sh_metadata_writer *writer, const char *path,
                                      const char *cluster, const struct shoal_node *nodes,
                                      size_t count)
{
    uint8_t bytes[HEAD_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    size_t room = strlen(path) + sizeof TEMPORARY;
    *writer = (struct sh_metadata_writer){.path = path, .temporary = malloc(room)};
    if (!writer->temporary)
        return SHOAL_ENOMEM;
    (void)snprintf(writer->temporary, room, "%s%s", path, TEMPORARY);
    writer->file = fopen(writer->temporary, "wb");
    if (!writer->file)
        return failed();
    SH_ASSERT(count <= UINT16_MAX && strlen(cluster) < TEXT_BYTES_MAX);
    sh_put64(&w, MAGIC);
    sh_put16(&w, FORMAT);
    sh_put16(&w, (uint16_t)count);
    sh_put32(&w, 0);
    sh_put_text(&w, sh_bytes_text(cluster));
    SH_ASSERT(sh_writer_ok(&w));
    enum shoal_err err = put(writer, sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    for (size_t i = 0; !err && i < count; i++)
        err = node_put(writer, &nodes[i]);
    return err;
}

enum shoal_err sh_metadata_file_shard(struct sh_metadata_writer *writer, unsigned shard,
                                      struct sh_bytes pieces)
{
    struct sh_reader r = sh_reader_make(pieces);
    while (sh_reader_left(&r)) {
        uint8_t head[5];
        uint32_t size = sh_get32(&r);
        const uint8_t *at = sh_reader_take(&r, size);
        SH_ASSERT(sh_reader_ok(&r) && size);
        sh_store32(head, size);
        head[4] = (uint8_t)shard;
        enum shoal_err err = put(writer, sh_bytes_make(head, sizeof head));
        if (!err)
            err = put(writer, sh_bytes_make(at, size));
        if (err)
            return err;
    }
    return SHOAL_OK;
}

enum shoal_err sh_metadata_file_end(struct sh_metadata_writer *writer, bool is_whole)
{
    uint8_t zero[4] = {0}, crc[4];
    enum shoal_err err = SHOAL_OK;
    if (is_whole) {
        err = put(writer, sh_bytes_make(zero, sizeof zero));
        sh_store32(crc, writer->crc);
        if (!err)
            err = put(writer, sh_bytes_make(crc, sizeof crc));
        if (!err && (fflush(writer->file) || fsync(fileno(writer->file))))
            err = failed();
    }
    if (writer->file && fclose(writer->file) && !err)
        err = failed();
    if (is_whole && !err && rename(writer->temporary, writer->path))
        err = failed();
    if (writer->file && (!is_whole || err))
        (void)remove(writer->temporary);
    free(writer->temporary);
    *writer = (struct sh_metadata_writer){.file = NULL};
    return err;
}

/* --- Reading --------------------------------------------------------------------------------- */

static enum shoal_err all_read(const char *path, uint8_t **bytes_out, size_t *size_out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return errno == ENOENT ? SHOAL_ENONAME : SHOAL_EIO;
    size_t size = 0, room = 1u << 16, got;
    uint8_t *bytes = malloc(room);
    while (bytes && (got = fread(bytes + size, 1, room - size, file)) > 0) {
        size += got;
        if (size < room)
            continue;
        uint8_t *larger = realloc(bytes, 2 * room);
        if (!larger)
            free(bytes);
        bytes = larger;
        room *= 2;
    }
    enum shoal_err err = bytes ? SHOAL_OK : SHOAL_ENOMEM;
    if (!err && ferror(file))
        err = SHOAL_EIO;
    fclose(file);
    if (err) {
        free(bytes);
        return err;
    }
    *bytes_out = bytes;
    *size_out = size;
    return SHOAL_OK;
}

static enum shoal_err text_get(struct sh_reader *r, char *into, size_t room)
{
    struct sh_bytes text = sh_get_text(r);
    if (!sh_reader_ok(r) || text.size >= room)
        return SHOAL_ECORRUPT;
    memcpy(into, text.at, text.size);
    into[text.size] = '\0';
    return SHOAL_OK;
}

static enum shoal_err nodes_get(struct sh_reader *r, struct sh_metadata_saved *saved)
{
    saved->nodes = calloc(saved->count + 1, sizeof saved->nodes[0]);
    if (!saved->nodes)
        return SHOAL_ENOMEM;
    for (size_t i = 0; i < saved->count; i++) {
        struct shoal_node *node = &saved->nodes[i];
        node->nid.v = sh_get16(r);
        unsigned role = sh_get8(r), state = sh_get8(r);
        if (text_get(r, node->address, sizeof node->address) || role > SHOAL_PEER ||
            state > SHOAL_NODE_AWAY)
            return SHOAL_ECORRUPT;
        node->role = (enum shoal_role)role;
        node->state = (enum shoal_node_state)state;
    }
    return SHOAL_OK;
}

/* Reads the pieces of one shard, from the one at hand to the last. */
static enum shoal_err shard_get(struct sh_reader *r, struct sh_metadata *metadata, unsigned shard)
{
    struct sh_metadata_restore *restore;
    enum shoal_err err = sh_metadata_restore_begin(metadata, shard, &restore);
    if (err)
        return err;
    while (!err && sh_reader_left(r) > 5 && sh_load32(r->at) && r->at[4] == shard) {
        uint32_t size = sh_get32(r);
        (void)sh_get8(r);
        const uint8_t *at = sh_reader_take(r, size);
        err = sh_reader_ok(r) && size <= PIECE_BYTES_MAX
                  ? sh_metadata_restore_piece(restore, sh_bytes_make(at, size))
                  : SHOAL_ECORRUPT;
    }
    enum shoal_err ended = sh_metadata_restore_end(restore, !err);
    err = err ? err : ended;
    return err == SHOAL_EPROTO ? SHOAL_ECORRUPT : err;
}

static enum shoal_err shards_get(struct sh_reader *r, struct sh_metadata *metadata)
{
    int last = -1;
    while (sh_reader_left(r) > 5) {
        unsigned shard = r->at[4];
        if ((int)shard <= last || shard >= SH_SHARDS)
            return SHOAL_ECORRUPT;
        enum shoal_err err = shard_get(r, metadata, shard);
        if (err)
            return err;
        last = (int)shard;
    }
    return sh_get32(r) == 0 && sh_reader_done(r) ? SHOAL_OK : SHOAL_ECORRUPT;
}

static enum shoal_err body_get(struct sh_bytes bytes, struct sh_metadata_saved *saved)
{
    struct sh_reader r = sh_reader_make(bytes);
    if (sh_get64(&r) != MAGIC || !sh_reader_ok(&r))
        return SHOAL_EPARSE;
    unsigned format = sh_get16(&r);
    if (sh_reader_ok(&r) && format != FORMAT)
        return SHOAL_EVERSION;
    if (bytes.size < 24 || sh_load32(bytes.at + bytes.size - 8))
        return SHOAL_ETRUNCATED;
    size_t size = bytes.size - 4;
    if (sh_crc32c(0, sh_bytes_make(bytes.at, size)) != sh_load32(bytes.at + size))
        return SHOAL_ECORRUPT;
    r = sh_reader_make(sh_bytes_make(bytes.at, size));
    (void)sh_reader_take(&r, 10);
    saved->count = sh_get16(&r);
    (void)sh_get32(&r);
    enum shoal_err err = text_get(&r, saved->cluster, sizeof saved->cluster);
    if (!err)
        err = nodes_get(&r, saved);
    if (!err)
        err = sh_metadata_create(&saved->metadata);
    return err ? err : shards_get(&r, saved->metadata);
}

enum shoal_err sh_metadata_file_parse(struct sh_bytes bytes, struct sh_metadata_saved *saved_out)
{
    struct sh_metadata_saved saved = {.count = 0};
    enum shoal_err err = body_get(bytes, &saved);
    if (err)
        sh_metadata_saved_free(&saved);
    else
        *saved_out = saved;
    return err;
}

enum shoal_err sh_metadata_file_read(const char *path, struct sh_metadata_saved *saved_out)
{
    uint8_t *bytes;
    size_t size;
    enum shoal_err err = all_read(path, &bytes, &size);
    if (err)
        return err;
    err = sh_metadata_file_parse(sh_bytes_make(bytes, size), saved_out);
    free(bytes);
    return err;
}

void sh_metadata_saved_free(struct sh_metadata_saved *saved)
{
    sh_metadata_destroy(saved->metadata);
    free(saved->nodes);
    *saved = (struct sh_metadata_saved){.count = 0};
}
