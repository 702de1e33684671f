#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/log.h"
#include "bench/store_bench_int.h"

#define DIGEST_KEYS 65536
#define GOLDEN UINT64_C(0x9e3779b97f4a7c15)

uint32_t sh_store_plan_size(const struct sh_store_plan *plan, uint64_t key, unsigned generation)
{
    if (plan->sizes.bins == 0 && !plan->sizes.is_etc)
        return plan->sizes.most;
    uint64_t random = sh_mix64(plan->seed * 7919 + generation + 1) ^ sh_mix64(key + GOLDEN);
    return sh_sizes_draw(&plan->sizes, sh_mix64(random));
}

uint64_t sh_store_plan_payload(const struct sh_store_plan *plan, unsigned generation)
{
    if (strcmp(plan->sizes.name, "fixed") == 0)
        return plan->count * plan->sizes.most;
    uint64_t payload = 0;
    for (uint64_t key = 0; key < plan->count; key++)
        payload += sh_store_plan_size(plan, key, generation);
    return payload;
}

/* The words of a content go up in equal steps from one that is the key's, with the version in its
 * lowest bits: as cheap to make as to copy, and never the same in two versions or two chunks. */
void sh_store_content_make(uint64_t key, uint16_t version, void *bytes, uint64_t size)
{
    uint8_t *at = bytes;
    uint64_t word = sh_mix64(key + 1) ^ version;
    for (; size >= 8; size -= 8, at += 8, word += GOLDEN)
        memcpy(at, &word, 8);
    memcpy(at, &word, size);
}

bool sh_store_content_check(uint64_t key, const void *bytes, uint64_t size)
{
    const uint8_t *at = bytes;
    uint64_t first = 0;
    if (size == 0)
        return true;
    memcpy(&first, at, size < 8 ? size : 8);
    uint64_t version =
        (first ^ sh_mix64(key + 1)) & (size < 8 ? (UINT64_C(1) << 8 * size) - 1 : UINT64_MAX);
    bool good = version <= UINT16_MAX;
    uint64_t expected = first;
    for (; size >= 8; size -= 8, at += 8, expected += GOLDEN)
        good &= memcmp(at, &expected, 8) == 0;
    return good && memcmp(at, &expected, size) == 0;
}

enum shoal_err sh_subject_open(struct sh_subject *subject, uint64_t chunks_max,
                               uint64_t payload_max)
{
    SH_ASSERT(!subject->store && !subject->base);
    if (subject->allocator)
        return sh_malloc_base_create(subject->allocator, chunks_max, &subject->base);
    /* 16 bytes a chunk for tables and rounding, a quarter for what is not compact, and a page where
     * a chunk is long. */
    struct sh_store_config config = {
        .bytes_max = payload_max + payload_max / 4 + chunks_max * 16 + (UINT64_C(64) << 20),
        .chunk_bytes_max = UINT32_C(1) << 30,
        .small_pages = subject->plan->small_pages,
    };
    return sh_store_create(&config, &subject->store);
}

void sh_subject_close(struct sh_subject *subject)
{
    sh_store_destroy(subject->store);
    sh_malloc_base_destroy(subject->base);
    subject->store = NULL;
    subject->base = NULL;
}

static enum shoal_err base_create(struct sh_subject *subject, const uint32_t *sizes, unsigned count,
                                  const uint64_t *handles)
{
    enum shoal_err err = SHOAL_OK;
    for (unsigned i = 0; i < count && !err; i++)
        err = sh_malloc_base_add(subject->base, handles[i], sizes[i]);
    return err;
}

enum shoal_err sh_subject_create(struct sh_subject *subject, const uint32_t *sizes, unsigned count,
                                 uint64_t *handles)
{
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    if (subject->allocator)
        return base_create(subject, sizes, count, handles);
    shoal_cid cids[SH_STORE_BATCH_MAX];
    enum shoal_err err = sh_store_new(subject->store, sizes, count, cids);
    for (unsigned i = 0; i < count && !err; i++)
        handles[i] = cids[i].v;
    return err;
}

bool sh_subject_get(struct sh_subject *subject, const struct sh_touch *touches, unsigned count)
{
    SH_ASSERT(count <= SH_STORE_BATCH_MAX);
    bool good = true;
    if (subject->allocator) {
        for (unsigned i = 0; i < count; i++)
            good &= sh_malloc_base_get(subject->base, touches[i].handle, touches[i].bytes,
                                       touches[i].size);
        return good;
    }
    if (count == 1) {
        uint32_t size = 0;
        return sh_store_get(subject->store, (shoal_cid){touches->handle}, touches->bytes,
                            touches->size, &size) == SHOAL_OK &&
               size == touches->size;
    }
    struct sh_store_op ops[SH_STORE_BATCH_MAX];
    for (unsigned i = 0; i < count; i++)
        ops[i] = (struct sh_store_op){
            .lid = {touches[i].handle}, .data = touches[i].bytes, .size = touches[i].size};
    good = sh_store_get_multi(subject->store, ops, count) == count;
    for (unsigned i = 0; i < count; i++)
        good &= ops[i].size == touches[i].size;
    return good;
}

bool sh_subject_put(struct sh_subject *subject, const struct sh_touch *touches, unsigned count)
{
    SH_ASSERT(count <= SH_STORE_BATCH_MAX);
    bool good = true;
    if (subject->allocator) {
        for (unsigned i = 0; i < count; i++)
            good &= sh_malloc_base_put(subject->base, touches[i].handle, touches[i].bytes,
                                       touches[i].size);
        return good;
    }
    if (count == 1)
        return sh_store_put(subject->store, (shoal_cid){touches->handle},
                            sh_bytes_make(touches->bytes, touches->size)) == SHOAL_OK;
    struct sh_store_op ops[SH_STORE_BATCH_MAX];
    for (unsigned i = 0; i < count; i++)
        ops[i] = (struct sh_store_op){
            .lid = {touches[i].handle}, .data = touches[i].bytes, .size = touches[i].size};
    return sh_store_put_multi(subject->store, ops, count) == count;
}

bool sh_subject_remove(struct sh_subject *subject, const uint64_t *handles, unsigned count)
{
    SH_ASSERT(count <= SH_STORE_BATCH_MAX);
    bool good = true;
    if (subject->allocator) {
        for (unsigned i = 0; i < count; i++)
            good &= sh_malloc_base_remove(subject->base, handles[i]);
        return good;
    }
    shoal_cid cids[SH_STORE_BATCH_MAX];
    enum shoal_err errs[SH_STORE_BATCH_MAX];
    for (unsigned i = 0; i < count; i++)
        cids[i] = (shoal_cid){handles[i]};
    return sh_store_remove_multi(subject->store, cids, count, errs) == count;
}

void sh_subject_defragment(struct sh_subject *subject)
{
    if (subject->allocator)
        subject->allocator->trim();
    else
        sh_store_defrag_all(subject->store);
}

/* Writes the contents of loaded chunks, first and up, in pieces. room: bytes at `bytes`. */
static bool batch_fill(struct sh_subject *subject, uint64_t first, unsigned count, uint8_t *bytes,
                       uint64_t room)
{
    struct sh_touch touches[SH_STORE_BATCH_MAX];
    bool good = true;
    unsigned filled = 0;
    uint64_t used = 0;
    for (unsigned i = 0; i < count; i++) {
        uint32_t size = sh_store_plan_size(subject->plan, first + i, 0);
        if (size > room - used) {
            good &= sh_subject_put(subject, touches, filled);
            filled = 0;
            used = 0;
        }
        SH_ASSERT(size <= room);
        sh_store_content_make(first + i, 0, bytes + used, size);
        touches[filled++] = (struct sh_touch){first + i + 1, bytes + used, size};
        used += size;
    }
    return sh_subject_put(subject, touches, filled) && good;
}

static enum shoal_err batch_load(struct sh_subject *subject, uint64_t first, unsigned count,
                                 uint8_t *bytes, uint64_t room)
{
    uint32_t sizes[SH_STORE_BATCH_MAX];
    uint64_t handles[SH_STORE_BATCH_MAX];
    SH_ASSERT(count > 0 && count <= SH_STORE_BATCH_MAX);
    for (unsigned i = 0; i < count; i++) {
        sizes[i] = sh_store_plan_size(subject->plan, first + i, 0);
        handles[i] = first + i + 1;
    }
    enum shoal_err err = sh_subject_create(subject, sizes, count, handles);
    if (err)
        return err;
    for (unsigned i = 0; i < count; i++) {
        if (handles[i] == first + i + 1)
            continue;
        SH_ERROR("bench", "an ID is not the smallest free one", SH_U64("id", handles[i]),
                 SH_U64("expected", first + i + 1));
        return SHOAL_EINTERNAL;
    }
    if (bytes && !batch_fill(subject, first, count, bytes, room))
        return SHOAL_EINTERNAL;
    return SHOAL_OK;
}

enum shoal_err sh_subject_load(struct sh_subject *subject, bool fill)
{
    const struct sh_store_plan *plan = subject->plan;
    uint64_t room =
        plan->sizes.most > SH_STORE_BATCH_BYTES ? plan->sizes.most : SH_STORE_BATCH_BYTES;
    uint8_t *bytes = fill ? malloc(room) : NULL;
    if (fill && !bytes)
        return SHOAL_ENOMEM;
    enum shoal_err err = SHOAL_OK;
    if (!subject->store && !subject->base)
        err =
            sh_subject_open(subject, plan->count + SH_STORE_SPARE, sh_store_plan_payload(plan, 0));
    for (uint64_t first = 0; first < plan->count && !err; first += plan->load_batch) {
        uint64_t left = plan->count - first;
        unsigned count = left < plan->load_batch ? (unsigned)left : plan->load_batch;
        err = batch_load(subject, first, count, bytes, room);
    }
    free(bytes);
    return err;
}

enum shoal_err sh_subject_digest(struct sh_subject *subject, uint64_t *digest_out)
{
    const struct sh_store_plan *plan = subject->plan;
    struct sh_keys keys = {.state = plan->seed, .count = plan->count};
    uint8_t *bytes = malloc((uint64_t)plan->sizes.most + 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    uint64_t digest = 0;
    bool good = true;
    for (unsigned i = 0; i < DIGEST_KEYS && good; i++) {
        uint64_t key = sh_keys_next(&keys);
        uint32_t size = sh_store_plan_size(plan, key, 0);
        struct sh_touch touch = {key + 1, bytes, size};
        good = sh_subject_get(subject, &touch, 1) && sh_store_content_check(key, bytes, size);
        /* With --verify a put has a version of its own, so contents differ from run to run. */
        digest += plan->verify ? sh_mix64(key) + size : sh_hash64(sh_bytes_make(bytes, size), key);
    }
    free(bytes);
    *digest_out = digest;
    return good ? SHOAL_OK : SHOAL_EINTERNAL;
}
