/* A hundred thousand web sessions in memory, saved to a file and read back.
 *
 *   cc sessions.c $(pkg-config --cflags --libs shoalstore) && ./a.out
 *
 * Each session is a chunk: bytes under an ID that the store gives out. The program makes them in
 * batches, reads and writes them one by one and many at a time, lets one grow, holds one in place,
 * goes over all IDs, says what they cost, and dumps them into a folder of its own, which it removes
 * again. */
#define _POSIX_C_SOURCE 200809L /* mkdtemp */
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <shoalstore/dump.h>
#include <shoalstore/store.h>

#define SESSIONS 100000u
#define AT_ONCE 32u

struct session {
    uint64_t user;
    uint32_t visits;
    char page[52];
};

static shoal_cid ids[SESSIONS];

/* A store of at most 256 MiB. */
static enum shoal_err open_store(struct sh_store **store_out)
{
    struct sh_store_config config = {.bytes_max = 256u << 20, .chunk_bytes_max = 1u << 20};
    return sh_store_create(&config, store_out);
}

/* Creates all sessions, then writes each. */
static enum shoal_err sessions_make(struct sh_store *store)
{
    enum shoal_err err = sh_store_new_many(store, sizeof(struct session), SESSIONS, ids);
    for (uint32_t i = 0; i < SESSIONS && !err; i++) {
        struct session session = {.user = 1000 + i, .visits = 1};
        snprintf(session.page, sizeof session.page, "/shop/item/%u", i % 977);
        err = sh_store_put(store, ids[i], sh_bytes_make(&session, sizeof session));
    }
    return err;
}

/* Counts a visit of every session: a field in each is raised, without reading the rest. */
static enum shoal_err visits_count(struct sh_store *store)
{
    enum shoal_err err = SHOAL_OK;
    uint64_t old;
    for (uint32_t i = 0; i < SESSIONS && !err; i++)
        err = sh_store_add(store, ids[i], offsetof(struct session, visits), 4, 1, &old);
    return err;
}

/* Reads 32 sessions with one call, whose cache misses overlap. */
static enum shoal_err many_read(struct sh_store *store)
{
    struct session sessions[AT_ONCE];
    struct sh_store_op ops[AT_ONCE];
    for (uint32_t i = 0; i < AT_ONCE; i++)
        ops[i] = (struct sh_store_op){
            .lid = ids[i * 3001 % SESSIONS], .data = &sessions[i], .size = sizeof sessions[i]};
    size_t done = sh_store_get_multi(store, ops, AT_ONCE);
    if (done != AT_ONCE)
        return SHOAL_ENOCHUNK;
    printf("user %llu was on %s, visit %u\n", (unsigned long long)sessions[7].user,
           sessions[7].page, sessions[7].visits);
    return SHOAL_OK;
}

/* A session grows by a note, is written in part, and is held in place while its address is used. */
static enum shoal_err one_use(struct sh_store *store)
{
    static const char note[] = "asked for a refund";
    uint32_t size = 0;
    uint8_t *at = NULL;
    enum shoal_err err = sh_store_resize(store, ids[5], sizeof(struct session) + sizeof note);
    if (!err)
        err = sh_store_put_part(store, ids[5], sizeof(struct session),
                                sh_bytes_make(note, sizeof note));
    if (!err)
        err = sh_store_pin(store, ids[5], &at, &size);
    if (err)
        return err;
    printf("session 5 has %u bytes now: %s\n", size, (const char *)at + sizeof(struct session));
    err = sh_store_remove(store, ids[5]);
    printf("while it is pinned, removing it says: %s\n", shoal_err_text(err));
    if (err != SHOAL_EBUSY)
        return SHOAL_EINVAL;
    return sh_store_unpin(store, ids[5]);
}

/* Goes over all IDs, as ranges; removed ones leave gaps. */
static uint64_t ranges_count(struct sh_store *store, uint64_t *chunks_out)
{
    uint64_t ranges = 0, chunks = 0;
    shoal_cid from = {0}, first, last;
    while (sh_store_range(store, from, &first, &last)) {
        ranges++;
        chunks += last.v - first.v + 1;
        from.v = last.v + 1;
    }
    *chunks_out = chunks;
    return ranges;
}

static void status_print(struct sh_store *store)
{
    struct sh_store_status status;
    uint64_t chunks, ranges = ranges_count(store, &chunks);
    sh_store_status_get(store, &status);
    printf("%llu sessions in %llu ranges of IDs: %llu bytes, %.2f more for each than it holds\n",
           (unsigned long long)chunks, (unsigned long long)ranges,
           (unsigned long long)status.used_bytes,
           (double)(status.used_bytes - status.payload_bytes) / (double)status.chunks);
}

/* Saves the store into a file and makes another one from it, with the same IDs. */
static enum shoal_err save_and_load(struct sh_store *store, struct sh_disk *disk)
{
    struct sh_dump_sums saved, loaded;
    struct sh_load_fault fault = {.what = ""};
    struct sh_store *copy = NULL;
    struct session was, is;
    uint32_t size;
    enum shoal_err err = sh_store_dump(store, disk, "sessions", NULL, NULL, &saved);
    if (!err)
        err = open_store(&copy);
    if (!err)
        err = sh_store_load(copy, disk, "sessions", NULL, NULL, &loaded, &fault);
    if (!err)
        err = sh_store_get(store, ids[77], &was, sizeof was, &size);
    if (!err)
        err = sh_store_get(copy, ids[77], &is, sizeof is, &size);
    if (err)
        fprintf(stderr, "%s (byte %llu)\n", fault.what, (unsigned long long)fault.offset);
    else if (saved.chunks != loaded.chunks || memcmp(&was, &is, sizeof was) != 0)
        err = SHOAL_ECORRUPT;
    else
        printf("a file of %llu bytes brought back %llu sessions\n",
               (unsigned long long)saved.file_bytes, (unsigned long long)loaded.chunks);
    sh_store_destroy(copy);
    return err;
}

static enum shoal_err file_use(struct sh_store *store)
{
    struct sh_disk *disk;
    char folder[] = "/tmp/sessions-XXXXXX";
    if (!mkdtemp(folder))
        return SHOAL_EIO;
    enum shoal_err err = sh_real_disk_create(folder, false, &disk);
    if (!err) {
        err = save_and_load(store, disk);
        (void)disk->ops->remove(disk, "sessions");
        disk->ops->destroy(disk);
    }
    rmdir(folder);
    return err;
}

int main(void)
{
    struct sh_store *store = NULL;
    enum shoal_err err = open_store(&store);
    if (!err)
        err = sessions_make(store);
    if (!err)
        err = visits_count(store);
    if (!err)
        err = many_read(store);
    if (!err)
        err = one_use(store);
    for (uint32_t i = 0; i < SESSIONS && !err; i += 10)
        err = sh_store_remove(store, ids[i]);
    if (!err) {
        sh_store_defrag_all(store);
        status_print(store);
        err = file_use(store);
    }
    sh_store_destroy(store);
    if (err)
        fprintf(stderr, "%s\n", shoal_err_text(err));
    return err != SHOAL_OK;
}
