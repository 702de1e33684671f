/* Any bytes as the file in which a peer's identity is: it opens with what a peer can have written, or
 * not at all, and what it has written then opens again, unless its chunk IDs are used up.
 *
 * The first byte: bit 0, the magic number is put in; bit 1, the checksum is made good. The rest is the
 * file. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/life.h"
#include "base/log.h"
#include "base/node_ids.h"
#include "env/disk.h"
#include "node/identity.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define FILE_MAX 512
#define FILE_BYTES 128
#define CRC_AT 12

static uint64_t clock_now(void *arg)
{
    (void)arg;
    return 1000;
}

static void random_fill(void *arg, void *into, size_t size)
{
    (void)arg;
    memset(into, 7, size);
}

static void file_put(struct sh_disk *disk, uint8_t *bytes, size_t size)
{
    int file;
    if (disk->ops->claim(disk, "identity", &file))
        abort();
    struct sh_disk_op op = {.kind = SH_DISK_WRITE_SYNC, .file = file, .data = bytes, .size = size};
    if (size && sh_disk_do(disk, &op))
        abort();
    disk->ops->close(disk, file);
}

static struct sh_identity *open_in(const struct sh_env *env, struct sh_store **store_out)
{
    struct sh_identity *identity = NULL;
    char detail[256] = "";
    struct sh_store_config config = {
        .bytes_max = 1 << 20, .chunk_bytes_max = 4096, .small_pages = true};
    if (sh_store_create(&config, store_out))
        abort();
    enum shoal_err err = sh_identity_open(env, "fuzz", *store_out, &identity, detail);
    SH_ASSERT((err == SHOAL_OK) == (identity != NULL) && (err == SHOAL_OK) == !*detail);
    if (!identity)
        return NULL;
    shoal_nid nid = sh_identity_nid(identity);
    SH_ASSERT(!nid.v || sh_nid_is_peer(nid));
    SH_ASSERT(sh_life_starts(sh_identity_life(identity)) && !sh_identity_is_confirmed(identity));
    return identity;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *bad;
    size_t bad_size;
    uint8_t bytes[FILE_MAX];
    struct sh_env env = {.clock = {clock_now, clock_now, NULL}, .random = {random_fill, NULL}};
    struct sh_store *store;
    if (!size || size > FILE_MAX)
        return 0;
    if (sh_log_levels_set("error", &bad, &bad_size) || sh_memory_disk_create(&env.disk))
        abort();
    size--;
    memcpy(bytes, data + 1, size);
    if (data[0] & 1 && size >= 8)
        memcpy(bytes, "SHOALPID", 8);
    if (data[0] & 2 && size >= FILE_BYTES) {
        sh_store32(bytes + CRC_AT, 0);
        sh_store32(bytes + CRC_AT, sh_crc32c(0, sh_bytes_make(bytes, FILE_BYTES)));
    }
    file_put(env.disk, bytes, size);
    struct sh_identity *identity = open_in(&env, &store);
    if (identity) {
        uint64_t life = sh_identity_life(identity);
        sh_identity_close(identity);
        sh_store_destroy(store);
        identity = open_in(&env, &store);
        /* Nobody has confirmed it; or now no chunk IDs are left for another start. */
        SH_ASSERT(!identity || sh_identity_life(identity) == life);
        sh_identity_close(identity);
    }
    sh_store_destroy(store);
    env.disk->ops->destroy(env.disk);
    return 0;
}
