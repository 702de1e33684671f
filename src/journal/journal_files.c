/* The journal's files: names, headers, batches as bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "journal/journal_int.h"

#define LABEL_AT 48
#define CRC_AT (SH_JOURNAL_BLOCK - 4)
#define BATCH_CRC_AT 28

void sh_journal_name(char name[SH_JOURNAL_NAME_BYTES], unsigned slot)
{
    SH_ASSERT(slot < SH_JOURNAL_SLOTS);
    snprintf(name, SH_JOURNAL_NAME_BYTES, "journal.%03u", slot);
}

uint32_t sh_journal_crc(const uint8_t *bytes, size_t size, size_t crc_at)
{
    static const uint8_t zero[4];
    SH_ASSERT(size >= crc_at + 4);
    uint32_t crc = sh_crc32c(0, sh_bytes_make(bytes, crc_at));
    crc = sh_crc32c(crc, sh_bytes_make(zero, sizeof zero));
    return sh_crc32c(crc, sh_bytes_make(bytes + crc_at + 4, size - crc_at - 4));
}

enum shoal_err sh_journal_read(struct sh_disk *disk, unsigned slot, size_t bytes_max,
                               uint8_t **bytes_out, size_t *size_out)
{
    char name[SH_JOURNAL_NAME_BYTES];
    int file;
    uint64_t size;
    sh_journal_name(name, slot);
    enum shoal_err err = sh_disk_open(disk, name, false, &file);
    if (err)
        return err;
    err = disk->ops->size(disk, file, &size);
    if (size > bytes_max)
        size = bytes_max;
    uint8_t *bytes = err ? NULL : malloc(size ? (size_t)size : 1);
    struct sh_disk_op op = {
        .kind = SH_DISK_READ, .file = file, .data = bytes, .size = (size_t)size};
    if (!err)
        err = bytes ? sh_disk_do(disk, &op) : SHOAL_ENOMEM;
    disk->ops->close(disk, file);
    if (err) {
        free(bytes);
        return err;
    }
    *bytes_out = bytes;
    *size_out = op.done_bytes;
    return SHOAL_OK;
}

enum shoal_err sh_journal_header_get(struct sh_bytes file, struct sh_journal_header *header_out)
{
    if (file.size < SH_JOURNAL_BLOCK || sh_load64(file.at) != SH_JOURNAL_SEGMENT_MAGIC)
        return SHOAL_ECORRUPT;
    if (sh_load16(file.at + 8) > SH_JOURNAL_FORMAT)
        return SHOAL_EVERSION;
    size_t label = sh_load16(file.at + 10);
    if (sh_load32(file.at + CRC_AT) != sh_journal_crc(file.at, SH_JOURNAL_BLOCK, CRC_AT) ||
        !label || label > SH_JOURNAL_LABEL_BYTES_MAX || sh_load32(file.at + 12))
        return SHOAL_ECORRUPT;
    header_out->journal = sh_load64(file.at + 16);
    header_out->number = sh_load64(file.at + 24);
    header_out->needed = sh_load64(file.at + 32);
    header_out->first = sh_load64(file.at + 40);
    header_out->label = sh_bytes_make(file.at + LABEL_AT, label);
    bool is_sound = header_out->journal && header_out->first && header_out->needed &&
                    header_out->needed <= header_out->number;
    return is_sound ? SHOAL_OK : SHOAL_ECORRUPT;
}

void sh_journal_header_put(uint8_t block[SH_JOURNAL_BLOCK], const struct sh_journal *journal)
{
    memset(block, 0, SH_JOURNAL_BLOCK);
    struct sh_writer w = sh_writer_make(block, SH_JOURNAL_BLOCK);
    sh_put64(&w, SH_JOURNAL_SEGMENT_MAGIC);
    sh_put16(&w, SH_JOURNAL_FORMAT);
    sh_put16(&w, (uint16_t)journal->label_size);
    sh_put32(&w, 0);
    sh_put64(&w, journal->id);
    sh_put64(&w, journal->segment);
    sh_put64(&w, journal->needed);
    sh_put64(&w, journal->batch);
    sh_put_raw(&w, sh_bytes_make(journal->label, journal->label_size));
    SH_ASSERT(sh_writer_ok(&w));
    sh_store32(block + CRC_AT, sh_journal_crc(block, SH_JOURNAL_BLOCK, CRC_AT));
}

bool sh_journal_batch_get(struct sh_bytes file, size_t at, uint64_t journal,
                          struct sh_journal_batch *batch_out)
{
    const uint8_t *head = file.at + at;
    if (at > file.size || file.size - at < SH_JOURNAL_HEAD_BYTES ||
        sh_load64(head) != SH_JOURNAL_BATCH_MAGIC || (journal && sh_load64(head + 8) != journal))
        return false;
    size_t size = sh_load32(head + 24);
    if (size > file.size - at - SH_JOURNAL_HEAD_BYTES ||
        sh_load32(head + BATCH_CRC_AT) !=
            sh_journal_crc(head, SH_JOURNAL_HEAD_BYTES + size, BATCH_CRC_AT))
        return false;
    batch_out->number = sh_load64(head + 16);
    batch_out->records = sh_bytes_make(head + SH_JOURNAL_HEAD_BYTES, size);
    return true;
}

bool sh_journal_has_batches(struct sh_bytes file, uint64_t journal, uint64_t from)
{
    struct sh_journal_batch batch;
    for (size_t at = SH_JOURNAL_BLOCK; at < file.size; at += SH_JOURNAL_BLOCK) {
        if (sh_journal_batch_get(file, at, journal, &batch) && batch.number >= from)
            return true;
    }
    return false;
}
