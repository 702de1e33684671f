/* shoal backup restore --spread FILE: chunks whose creator is not there get new IDs, on the peers that are, in turn.
 *
 *   create, IDs are new ──► FILE has old and new, on the disk ──► bytes
 *
 * FILE, a line for each chunk ("64:17 70:3"), is what a restore that was interrupted goes on by: a chunk that it names gets its bytes once more, and no
 * other ID. What was created before FILE had it stays, as chunks of zeros that nothing refers to: those of one call at most. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "cmd/safety_int.h"
#include "cmd/text_int.h"

#define AT_ONCE 256u
#define LINE_MAX_BYTES 128

struct pair {
    uint64_t from, to;
};

struct sh_safety_spread {
    struct sh_safety_run *run;
    const char *path;
    FILE *file;
    struct pair *pairs; /* those up to `sorted` in order */
    size_t count, sorted, room;
    /* Chunks that are to be created. */
    struct sh_cut_record waiting[AT_ONCE];
    uint8_t *bytes[AT_ONCE]; /* theirs */
    size_t waiting_count;
    shoal_cid large; /* where the pieces at hand go */
    uint64_t made, again;
};

static enum shoal_err pair_add(struct sh_safety_spread *spread, uint64_t from, uint64_t to)
{
    if (spread->count == spread->room) {
        size_t room = spread->room ? 2 * spread->room : 1024;
        struct pair *pairs = realloc(spread->pairs, room * sizeof *pairs);
        if (!pairs)
            return SHOAL_ENOMEM;
        spread->pairs = pairs;
        spread->room = room;
    }
    spread->pairs[spread->count++] = (struct pair){.from = from, .to = to};
    return SHOAL_OK;
}

static int pair_compare(const void *a, const void *b)
{
    uint64_t x = ((const struct pair *)a)->from, y = ((const struct pair *)b)->from;
    return x < y ? -1 : x > y;
}

static void pairs_sort(struct sh_safety_spread *spread)
{
    if (spread->count)
        qsort(spread->pairs, spread->count, sizeof spread->pairs[0], pair_compare);
    spread->sorted = spread->count;
}

static const struct pair *pair_find(const struct sh_safety_spread *spread, shoal_cid cid)
{
    const struct pair key = {.from = cid.v};
    return spread->sorted ? bsearch(&key, spread->pairs, spread->sorted, sizeof key, pair_compare)
                          : NULL;
}

/* --- The file ------------------------------------------------------------------------------------ */

static enum shoal_err file_note(struct sh_safety_spread *spread, enum shoal_err err)
{
    return sh_safety_note(spread->run, err, "%s", spread->path);
}

/* A line, without its end. */
static bool line_read(char *line, shoal_cid *from_out, shoal_cid *to_out)
{
    char *blank = strchr(line, ' ');
    if (!blank)
        return false;
    *blank = '\0';
    return sh_cid_parse(line, from_out) == SHOAL_OK && sh_cid_parse(blank + 1, to_out) == SHOAL_OK;
}

/* Reads what an earlier restore has written. A last line without an end was interrupted, and is cut off. */
static enum shoal_err file_read(struct sh_safety_spread *spread)
{
    char line[LINE_MAX_BYTES];
    long whole = 0;
    while (fgets(line, sizeof line, spread->file)) {
        size_t size = strlen(line);
        shoal_cid from, to;
        if (size == 0 || line[size - 1] != '\n')
            break;
        line[size - 1] = '\0';
        if (!line_read(line, &from, &to))
            return file_note(spread, SHOAL_EPARSE);
        enum shoal_err err = pair_add(spread, from.v, to.v);
        if (err)
            return err;
        whole += (long)size;
    }
    if (ferror(spread->file) || ftruncate(fileno(spread->file), whole) ||
        fseek(spread->file, 0, SEEK_END))
        return file_note(spread, SHOAL_EIO);
    pairs_sort(spread);
    return SHOAL_OK;
}

/* Has the file name chunks from `first` on. */
static enum shoal_err file_write(struct sh_safety_spread *spread, size_t first)
{
    for (size_t i = first; i < spread->count; i++) {
        char from[SH_CID_TEXT_MAX], to[SH_CID_TEXT_MAX];
        fprintf(spread->file, "%s %s\n", sh_cid_format((shoal_cid){spread->pairs[i].from}, from),
                sh_cid_format((shoal_cid){spread->pairs[i].to}, to));
    }
    if (fflush(spread->file) || ferror(spread->file) || fsync(fileno(spread->file)))
        return file_note(spread, sh_copy_file_err());
    return SHOAL_OK;
}

enum shoal_err sh_safety_spread_open(struct sh_safety_run *run, const char *path,
                                     struct sh_safety_spread **spread_out)
{
    struct sh_safety_spread *spread = calloc(1, sizeof *spread);
    if (!spread)
        return SHOAL_ENOMEM;
    spread->run = run;
    spread->path = path;
    *spread_out = spread;
    spread->file = fopen(path, "a+b");
    if (!spread->file || fseek(spread->file, 0, SEEK_SET))
        return file_note(spread, sh_copy_file_err());
    return file_read(spread);
}

void sh_safety_spread_close(struct sh_safety_spread *spread)
{
    if (!spread)
        return;
    for (size_t i = 0; i < spread->waiting_count; i++)
        free(spread->bytes[i]);
    if (spread->file)
        (void)fclose(spread->file);
    free(spread->pairs);
    free(spread);
}

/* --- Chunks -------------------------------------------------------------------------------------- */

static enum shoal_err call_note(struct sh_safety_spread *spread, enum shoal_err err)
{
    return sh_safety_note(spread->run, err, "%s", shoal_error_detail());
}

/* Makes chunks of those sizes, on one peer, and has the file name them. */
static enum shoal_err create(struct sh_safety_spread *spread, const struct sh_cut_record *records,
                             size_t count, shoal_cid *cids_out)
{
    uint32_t sizes[AT_ONCE];
    size_t first = spread->count;
    SH_ASSERT(count && count <= AT_ONCE);
    for (size_t i = 0; i < count; i++)
        sizes[i] = records[i].size;
    enum shoal_err err =
        shoal_create_sizes(spread->run->cmd->store, SHOAL_NID_NONE, sizes, count, cids_out);
    if (err)
        return call_note(spread, err);
    for (size_t i = 0; !err && i < count; i++)
        err = pair_add(spread, records[i].cid.v, cids_out[i].v);
    spread->made += count;
    return err ? err : file_write(spread, first);
}

enum shoal_err sh_safety_spread_flush(struct sh_safety_spread *spread)
{
    struct shoal_op ops[AT_ONCE];
    shoal_cid cids[AT_ONCE];
    size_t count = spread->waiting_count;
    if (!count)
        return SHOAL_OK;
    enum shoal_err err = create(spread, spread->waiting, count, cids);
    for (size_t i = 0; !err && i < count; i++)
        ops[i] = (struct shoal_op){
            .cid = cids[i], .data = spread->bytes[i], .size = spread->waiting[i].size};
    if (!err) {
        err = shoal_multi_put(spread->run->cmd->store, ops, count);
        if (err)
            call_note(spread, err);
    }
    for (size_t i = 0; i < count; i++)
        free(spread->bytes[i]);
    spread->waiting_count = 0;
    return err;
}

static enum shoal_err piece_put(struct sh_safety_spread *spread, const struct sh_cut_record *record)
{
    enum shoal_err err = shoal_put_part(spread->run->cmd->store, spread->large, record->offset,
                                        record->bytes.at, (uint32_t)record->bytes.size);
    return err ? call_note(spread, err) : SHOAL_OK;
}

enum shoal_err sh_safety_spread_chunk(struct sh_safety_spread *spread,
                                      const struct sh_cut_record *record)
{
    const struct pair *pair = pair_find(spread, record->cid);
    bool is_large = record->bytes.size < record->size;
    enum shoal_err err = SHOAL_OK;
    if (pair) {
        spread->again += record->offset == 0;
        spread->large.v = pair->to;
        return piece_put(spread, record);
    }
    if (is_large) {
        if (record->offset == 0)
            err = create(spread, record, 1, &spread->large);
        return err ? err : piece_put(spread, record);
    }
    if (spread->waiting_count == AT_ONCE)
        err = sh_safety_spread_flush(spread);
    if (err)
        return err;
    uint8_t *bytes = malloc(record->size + 1);
    if (!bytes)
        return SHOAL_ENOMEM;
    if (record->size)
        memcpy(bytes, record->bytes.at, record->size);
    spread->bytes[spread->waiting_count] = bytes;
    spread->waiting[spread->waiting_count++] = *record;
    return SHOAL_OK;
}

void sh_safety_spread_settle(struct sh_safety_spread *spread)
{
    SH_ASSERT(!spread->waiting_count);
    pairs_sort(spread);
}

shoal_cid sh_safety_spread_find(const struct sh_safety_spread *spread, shoal_cid cid)
{
    const struct pair *pair = spread ? pair_find(spread, cid) : NULL;
    return pair ? (shoal_cid){pair->to} : cid;
}

uint64_t sh_safety_spread_count(const struct sh_safety_spread *spread)
{
    return spread ? spread->made + spread->again : 0;
}
