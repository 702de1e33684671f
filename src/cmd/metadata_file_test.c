/* The file of `shoal metadata save`: what was written is read, and damage is found, also behind a
 * checksum that fits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/hash.h"
#include "cmd/metadata_file_int.h"
#include "ring/arcs.h"

#define NAMES 200
#define FILE_BYTES_MAX (1u << 20)

static char path[64];
static uint8_t bytes[FILE_BYTES_MAX];
static size_t size;

static struct sh_bytes name_of(unsigned i, char *text)
{
    return sh_bytes_make(text, (size_t)snprintf(text, 32, "name %u", i));
}

static struct sh_metadata *metadata_make(void)
{
    struct sh_metadata *metadata;
    assert_int_equal(sh_metadata_create(&metadata), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        sh_metadata_begin(metadata, i, 7, true);
    for (unsigned i = 0; i < NAMES; i++) {
        static struct sh_metadata_update update;
        char text[32];
        update = (struct sh_metadata_update){.kind = SH_METADATA_NAME,
                                             .condition = SH_NAME_ANY,
                                             .cid = {i + 1},
                                             .name = name_of(i, text)};
        unsigned shard = sh_metadata_shard(&update);
        assert_int_equal(sh_metadata_apply(metadata, shard, &update).err, SHOAL_OK);
    }
    return metadata;
}

static void shard_put(struct sh_metadata_writer *writer, struct sh_metadata *metadata,
                      unsigned shard)
{
    static uint8_t pieces[SH_METADATA_PIECE_BYTES_MIN * 16];
    struct sh_metadata_snapshot *snapshot;
    size_t used = 0, piece;
    assert_int_equal(sh_metadata_snapshot_begin(metadata, shard, SH_METADATA_ALL, &snapshot),
                     SHOAL_OK);
    while ((piece = sh_metadata_snapshot_next(snapshot, pieces + used + 4,
                                              SH_METADATA_PIECE_BYTES_MIN))) {
        sh_store32(pieces + used, (uint32_t)piece);
        used += 4 + piece;
        assert_true(used + 4 + SH_METADATA_PIECE_BYTES_MIN <= sizeof pieces);
    }
    sh_metadata_snapshot_end(snapshot);
    assert_int_equal(sh_metadata_file_shard(writer, shard, sh_bytes_make(pieces, used)), SHOAL_OK);
}

static void file_write(void)
{
    static const struct shoal_node nodes[] = {
        {.nid = {1}, .role = SHOAL_SUPERPEER, .state = SHOAL_NODE_UP, .address = "127.0.0.1:1"},
        {.nid = {64}, .role = SHOAL_PEER, .state = SHOAL_NODE_FAILED, .address = "127.0.0.1:2"}};
    struct sh_metadata_writer writer;
    struct sh_metadata *metadata = metadata_make();
    assert_int_equal(sh_metadata_file_begin(&writer, path, "a cluster", nodes, 2), SHOAL_OK);
    for (unsigned i = 0; i < SH_SHARDS; i++)
        shard_put(&writer, metadata, i);
    assert_int_equal(sh_metadata_file_end(&writer, true), SHOAL_OK);
    sh_metadata_destroy(metadata);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    assert_in_range(size, 1000, sizeof bytes - 1);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(path, sizeof path, "/tmp/shoal-metadata-%d", (int)getpid());
    file_write();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return remove(path);
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    struct sh_metadata_saved saved;
    assert_int_equal(sh_metadata_file_read(path, &saved), SHOAL_OK);
    assert_string_equal(saved.cluster, "a cluster");
    assert_int_equal(saved.count, 2);
    assert_int_equal(saved.nodes[1].nid.v, 64);
    assert_int_equal(saved.nodes[1].state, SHOAL_NODE_FAILED);
    assert_string_equal(saved.nodes[1].address, "127.0.0.1:2");
    for (unsigned i = 0; i < NAMES; i++) {
        char text[32];
        shoal_cid cid;
        assert_int_equal(sh_metadata_lookup(saved.metadata, name_of(i, text), &cid), SHOAL_OK);
        assert_true(cid.v == i + 1);
    }
    sh_metadata_saved_free(&saved);
    assert_int_equal(sh_metadata_file_read("/tmp/no such file", &saved), SHOAL_ENONAME);
}

static enum shoal_err parse(size_t of)
{
    struct sh_metadata_saved saved;
    enum shoal_err err = sh_metadata_file_parse(sh_bytes_make(bytes, of), &saved);
    if (!err)
        sh_metadata_saved_free(&saved);
    return err;
}

static void damage_is_found(void **state)
{
    (void)state;
    for (size_t at = 0; at < size; at += at < 200 ? 1 : 37) {
        bytes[at] ^= 0x10;
        assert_int_not_equal(parse(size), SHOAL_OK);
        bytes[at] ^= 0x10;
    }
    for (size_t of = 0; of < size; of += of < 200 ? 1 : 41)
        assert_int_not_equal(parse(of), SHOAL_OK);
    assert_int_equal(parse(size), SHOAL_OK);
}

/* Whoever makes a file with a good checksum gets no further than an error. */
static void hostile_files_are_refused(void **state)
{
    (void)state;
    uint64_t draws = 3;
    unsigned refused = 0;
    for (unsigned i = 0; i < 300; i++) {
        uint8_t before[3];
        size_t at[3];
        for (unsigned k = 0; k < 3; k++) {
            draws = sh_mix64(draws + i + k);
            at[k] = draws % (k ? size - 8 : 100);
            before[k] = bytes[at[k]];
            bytes[at[k]] = (uint8_t)(draws >> 32);
        }
        sh_store32(bytes + size - 4, sh_crc32c(0, sh_bytes_make(bytes, size - 4)));
        refused += parse(size) != SHOAL_OK;
        for (unsigned k = 3; k-- > 0;)
            bytes[at[k]] = before[k];
    }
    sh_store32(bytes + size - 4, sh_crc32c(0, sh_bytes_make(bytes, size - 4)));
    assert_int_equal(parse(size), SHOAL_OK);
    assert_true(refused > 200);
}

/* One that is not ended as a whole leaves what was there. */
static void an_unfinished_file_leaves_the_old_one(void **state)
{
    (void)state;
    struct sh_metadata_writer writer;
    struct sh_metadata_saved saved;
    assert_int_equal(sh_metadata_file_begin(&writer, path, "another", NULL, 0), SHOAL_OK);
    assert_int_equal(sh_metadata_file_end(&writer, false), SHOAL_OK);
    assert_int_equal(sh_metadata_file_read(path, &saved), SHOAL_OK);
    assert_string_equal(saved.cluster, "a cluster");
    sh_metadata_saved_free(&saved);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(an_unfinished_file_leaves_the_old_one),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
