/* Any bytes as a file of a safety copy, as a manifest, and as what a peer answers: an error says why, and what is accepted is right through and
 * through. Magics, versions and checksums of the file's header and of its blocks are set right first, or no input would get past them: the input is
 * the header's kind and node (3 bytes), and blocks, each [kind: 1][size: 2][payload]. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "cmd/copy_folder_int.h"
#include "proto/saves.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define HEAD_BYTES 128
#define BLOCK_HEAD_BYTES 32

/* Makes a file of an input; returns its bytes, which the caller frees. */
static uint8_t *file_make(struct sh_bytes input, size_t *size_out)
{
    uint8_t *bytes = calloc(1, HEAD_BYTES + input.size * (BLOCK_HEAD_BYTES + 1));
    struct sh_reader r = sh_reader_make(input);
    uint64_t index = 0;
    size_t at = HEAD_BYTES;
    SH_ASSERT(bytes);
    memcpy(bytes, "shoalcpy", 8);
    bytes[8] = 1;
    bytes[10] = sh_get8(&r);
    sh_store16(bytes + 12, sh_get16(&r));
    sh_store32(bytes + 124, sh_crc32c(0, sh_bytes_make(bytes, 124)));
    while (sh_reader_left(&r) >= 3) {
        uint8_t kind = sh_get8(&r), *head = bytes + at;
        size_t count = sh_get16(&r);
        count = count < sh_reader_left(&r) ? count : sh_reader_left(&r);
        const uint8_t *payload = sh_reader_take(&r, count);
        memcpy(head, "shcb", 4);
        sh_store64(head + 8, index++);
        sh_store32(head + 16, (uint32_t)count);
        sh_store32(head + 20, kind);
        sh_store32(head + 24, sh_crc32c(0, sh_bytes_make(payload, count)));
        sh_store32(head + 28, sh_crc32c(0, sh_bytes_make(head, 28)));
        if (count)
            memcpy(head + BLOCK_HEAD_BYTES, payload, count);
        at += BLOCK_HEAD_BYTES + count;
    }
    *size_out = at;
    return bytes;
}

static void file_check(struct sh_bytes input)
{
    size_t size;
    uint8_t *bytes = file_make(input, &size);
    FILE *file = fmemopen(bytes, size, "rb");
    struct sh_copy_reader reader;
    struct sh_bytes payload = {.size = 1};
    SH_ASSERT(file);
    enum shoal_err err = sh_copy_read_from(&reader, file);
    SH_ASSERT(!err || err == SHOAL_ECORRUPT);
    bool is_open = !err;
    uint64_t records = 0, payload_bytes = 0;
    while (!err && payload.size) {
        err = sh_copy_read(&reader, &payload);
        SH_ASSERT(!err || err == SHOAL_ECORRUPT || err == SHOAL_ETRUNCATED);
        SH_ASSERT(!err || *reader.fault);
        if (err || reader.head.kind != SH_COPY_CHUNKS)
            continue;
        struct sh_reader r = sh_reader_make(payload);
        struct sh_cut_record record;
        while (sh_cut_record_get(&r, &record)) {
            SH_ASSERT((uint64_t)record.offset + record.bytes.size <= record.size);
            if (record.offset + record.bytes.size == record.size) {
                records++;
                payload_bytes += record.size;
            }
        }
        SH_ASSERT(sh_reader_ok(&r));
    }
    if (!err && reader.head.kind == SH_COPY_CHUNKS)
        SH_ASSERT(records == reader.sums.records && payload_bytes == reader.sums.payload_bytes);
    SH_ASSERT(err || reader.sums.file_bytes == size);
    if (is_open)
        sh_copy_read_end(&reader);
    free(bytes);
}

static void manifest_check(struct sh_bytes input)
{
    struct sh_copy_manifest manifest;
    if (sh_copy_manifest_parse(input, &manifest))
        return;
    for (size_t i = 0; i < manifest.count; i++) {
        SH_ASSERT(manifest.pieces[i].node.v != 0);
        SH_ASSERT(i == 0 || manifest.pieces[i].ordinal > manifest.pieces[i - 1].ordinal);
        SH_ASSERT(sh_copy_piece_find(&manifest, manifest.pieces[i].node) == &manifest.pieces[i]);
    }
    free(manifest.pieces);
}

static void answers_check(struct sh_bytes input)
{
    uint8_t again[SH_SAVES_BLOCK_HEAD_BYTES];
    struct sh_reader r = sh_reader_make(input);
    struct sh_writer w = sh_writer_make(again, sizeof again);
    struct sh_saves_block block;
    struct sh_saves_restored restored;
    if (sh_saves_block_get(&r, &block)) {
        sh_saves_block_put(&w, &block);
        SH_ASSERT(sh_writer_ok(&w) && memcmp(again, input.at, sizeof again) == 0);
    }
    r = sh_reader_make(input);
    w = sh_writer_make(again, SH_SAVES_RESTORED_BYTES);
    if (sh_saves_restored_get(&r, &restored)) {
        sh_saves_restored_put(&w, &restored);
        SH_ASSERT(sh_writer_ok(&w) && memcmp(again, input.at, SH_SAVES_RESTORED_BYTES) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_bytes input = sh_bytes_make(data, size);
    file_check(input);
    manifest_check(input);
    answers_check(input);
    return 0;
}
