/* Names in dumps. While a peer writes a dump, the names of the chunks that it created are the bytes
 * of its chunk with the local ID 0 (metadata/namechunk.h), so the dump has them; after a load the
 * names in that chunk are given. An embedded store's dump has all names. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "client/client.h"
#include "client/client_int.h"
#include "metadata/namechunk.h"
#include "shoal/names.h"

/* No node has a larger chunk (chunk_bytes_max of base/options.def), whatever it says. */
#define CHUNK_BYTES_MOST (UINT32_C(1) << 30)

/* The bytes of a chunk of names, as it grows. */
struct growing {
    shoal_nid node;
    bool is_all; /* also names of chunks that another node created */
    uint8_t *bytes;
    size_t size, room;
    enum shoal_err err;
};

static shoal_cid chunk_of(shoal_nid node)
{
    return shoal_cid_make(node, 0);
}

static bool room_make(struct growing *growing, size_t more)
{
    size_t room = growing->room;
    if (growing->size + more <= room)
        return true;
    while (room < growing->size + more)
        room = room ? 2 * room : 4096;
    uint8_t *bytes = realloc(growing->bytes, room);
    growing->err = bytes ? SHOAL_OK : SHOAL_ENOMEM;
    if (bytes) {
        growing->bytes = bytes;
        growing->room = room;
    }
    return bytes;
}

static bool entry_add(void *arg, const char *name, shoal_cid cid)
{
    struct growing *growing = arg;
    size_t some = SH_NAME_ENTRY_HEAD_BYTES + strlen(name);
    if (!growing->is_all && shoal_cid_creator(cid).v != growing->node.v)
        return true;
    if (!room_make(growing, some))
        return false;
    struct sh_writer w = sh_writer_make(growing->bytes + growing->size, some);
    sh_put64(&w, cid.v);
    sh_put_text(&w, sh_bytes_text(name));
    growing->size += some;
    return true;
}

/* Makes the chunk, or gives it other bytes. Nobody else writes to it but who dumps the same names. It is gone when the dump is over: so it is written
 * asynchronously, whatever the thread has chosen, and on nodes without a log, too. */
static enum shoal_err chunk_set(shoal *store, shoal_cid cid, struct sh_bytes bytes)
{
    enum shoal_level chosen = sh_client_level_swap(SHOAL_ASYNC);
    enum shoal_err err = shoal_fill(store, cid, NULL, 0);
    if (!err || err == SHOAL_ENOCHUNK) /* the latter: it is there */
        err = shoal_resize(store, cid, (uint32_t)bytes.size);
    if (!err)
        err = shoal_put(store, cid, bytes.at, (uint32_t)bytes.size);
    (void)sh_client_level_swap(chosen);
    return err;
}

enum shoal_err sh_names_dumped_put(shoal *store, shoal_nid node)
{
    struct growing growing = {.node = node, .is_all = store->is_embedded};
    if (!room_make(&growing, SH_NAME_CHUNK_HEAD_BYTES))
        return SHOAL_ENOMEM;
    growing.size = SH_NAME_CHUNK_HEAD_BYTES;
    enum shoal_err err = shoal_name_list(store, "", entry_add, &growing);
    err = err ? err : growing.err;
    if (!err && growing.size > UINT32_MAX)
        err = SHOAL_ETOOBIG;
    if (!err && growing.size == SH_NAME_CHUNK_HEAD_BYTES) {
        sh_names_dumped_drop(store, node);
    } else if (!err) {
        sh_name_chunk_head(growing.bytes, growing.size, node);
        err = chunk_set(store, chunk_of(node), sh_bytes_make(growing.bytes, growing.size));
    }
    free(growing.bytes);
    if (err == SHOAL_ENONODE) /* it is drained: its chunks are elsewhere */
        return SHOAL_OK;
    return err;
}

void sh_names_dumped_drop(shoal *store, shoal_nid node)
{
    enum shoal_level chosen = sh_client_level_swap(SHOAL_ASYNC);
    enum shoal_err err = shoal_remove(store, chunk_of(node));
    (void)sh_client_level_swap(chosen);
    if (err && err != SHOAL_ENOCHUNK)
        SH_WARN("client", "the names of a dump stay in a chunk", SH_U64("node", node.v),
                SH_ERR(err));
}

static enum shoal_err names_give(shoal *store, shoal_nid node, struct sh_bytes chunk)
{
    struct sh_bytes entries, name;
    shoal_nid was;
    shoal_cid cid;
    enum shoal_err err = sh_name_chunk_get(chunk, &was, &entries);
    if (err)
        return err;
    struct sh_name_giver *giver = calloc(1, sizeof *giver);
    if (!giver)
        return SHOAL_ENOMEM;
    giver->store = store;
    struct sh_reader r = sh_reader_make(entries);
    while (!err && sh_name_entry_get(&r, &cid, &name))
        err = sh_name_give(giver, name, sh_name_entry_renamed(cid, was, node));
    enum shoal_err last = sh_name_give_end(giver);
    free(giver);
    return err ? err : last;
}

enum shoal_err sh_names_dumped_give(shoal *store, shoal_nid node)
{
    uint32_t size;
    enum shoal_err err = shoal_size(store, chunk_of(node), &size);
    if (err)
        return err == SHOAL_ENOCHUNK || err == SHOAL_ELOST ? SHOAL_OK : err;
    if (size > CHUNK_BYTES_MOST)
        return SHOAL_EPROTO;
    uint8_t *bytes = malloc(size ? size : 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    err = shoal_get(store, chunk_of(node), bytes, size, &size);
    if (!err)
        err = names_give(store, node, sh_bytes_make(bytes, size));
    free(bytes);
    if (err)
        return err;
    sh_names_dumped_drop(store, node);
    return SHOAL_OK;
}
