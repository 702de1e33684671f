/* shoal backup restore.
 *
 *   read all files, and check them ──► chunks, the latest moment first ──► sync ──► names
 *
 * The first pass also finds out whose chunks there are, and which of them were on another peer than the one that created them: these may be in several
 * files, as they moved while the copy was made, and count as the file with the latest moment has them. And which chunks with names
 * there are: a name whose chunk was removed meanwhile is left out. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "cmd/process_int.h"
#include "cmd/safety_int.h"
#include "cmd/store_int.h"
#include "cmd/text_int.h"
#include "shoal/names.h"

#define GO_ON_HINT "run it again: what is restored counts as that"
#define CONFLICT_HINT                                                                              \
    "--skip leaves such ones as they are, --overwrite replaces them; what is restored stays"

/* Chunk IDs, in order once they are sorted, with a mark for each. */
struct marks {
    uint64_t *cids;
    bool *is_set;
    size_t count, room;
};

/* Records for the peer that created their chunks. */
struct target {
    shoal_nid node;
    bool is_away;     /* no such peer is up: its chunks are spread */
    uint8_t *records; /* SH_SAVES_RESTORE_BYTES */
    size_t size;
};

/* What is done with the pieces of the large chunk at hand. */
enum large { LARGE_PASS, LARGE_WRITE, LARGE_COMPARE };

struct restore {
    struct sh_safety_run run;
    enum sh_saves_policy policy;
    struct sh_client_restored sums;
    struct marks named;  /* chunks with names; set: they are in the copy */
    struct marks strays; /* chunks that were elsewhere; set: restored */
    struct target *targets;
    size_t targets_count;
    struct sh_safety_spread *spread; /* NULL: chunks keep their IDs */
    enum large large;
    bool passes; /* the pieces at hand, as a later file has had them */
    uint64_t names_given, names_same, names_skipped, names_replaced, names_left_out;
};

/* --- Marks --------------------------------------------------------------------------------------- */

static enum shoal_err mark_add(struct marks *marks, uint64_t cid)
{
    if (marks->count == marks->room) {
        size_t room = marks->room ? 2 * marks->room : 1024;
        uint64_t *cids = realloc(marks->cids, room * sizeof *cids);
        if (!cids)
            return SHOAL_ENOMEM;
        marks->cids = cids;
        marks->room = room;
    }
    marks->cids[marks->count++] = cid;
    return SHOAL_OK;
}

static int cid_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static enum shoal_err marks_sort(struct marks *marks)
{
    size_t count = 0;
    if (marks->count)
        qsort(marks->cids, marks->count, sizeof marks->cids[0], cid_compare);
    for (size_t i = 0; i < marks->count; i++) {
        if (i == 0 || marks->cids[i] != marks->cids[i - 1])
            marks->cids[count++] = marks->cids[i];
    }
    marks->count = count;
    free(marks->is_set);
    marks->is_set = calloc(count + 1, sizeof marks->is_set[0]);
    return marks->is_set ? SHOAL_OK : SHOAL_ENOMEM;
}

/* The mark of a chunk; NULL: it has none. */
static bool *mark_of(const struct marks *marks, shoal_cid cid)
{
    if (!marks->count)
        return NULL;
    const uint64_t *at =
        bsearch(&cid.v, marks->cids, marks->count, sizeof marks->cids[0], cid_compare);
    return at ? &marks->is_set[at - marks->cids] : NULL;
}

static void marks_free(struct marks *marks)
{
    free(marks->cids);
    free(marks->is_set);
}

/* --- The first pass ------------------------------------------------------------------------------ */

static enum shoal_err on_names_looked_at(void *arg, const struct sh_copy_reader *reader,
                                         struct sh_bytes payload)
{
    struct restore *restore = arg;
    struct sh_reader r = sh_reader_make(payload);
    shoal_cid cid;
    struct sh_bytes name;
    enum shoal_err err = SHOAL_OK;
    (void)reader;
    while (!err && sh_copy_name_get(&r, &cid, &name))
        err = mark_add(&restore->named, cid.v);
    return err;
}

static struct target *target_find(struct restore *restore, shoal_nid node)
{
    for (size_t i = 0; i < restore->targets_count; i++) {
        if (restore->targets[i].node.v == node.v)
            return &restore->targets[i];
    }
    return NULL;
}

static enum shoal_err target_add(struct restore *restore, shoal_nid node)
{
    struct target *targets =
        realloc(restore->targets, (restore->targets_count + 1) * sizeof *targets);
    if (!targets)
        return SHOAL_ENOMEM;
    restore->targets = targets;
    targets[restore->targets_count++] = (struct target){.node = node};
    return SHOAL_OK;
}

static enum shoal_err on_chunks_looked_at(void *arg, const struct sh_copy_reader *reader,
                                          struct sh_bytes payload)
{
    struct restore *restore = arg;
    struct sh_reader r = sh_reader_make(payload);
    struct sh_cut_record record;
    enum shoal_err err = SHOAL_OK;
    while (!err && sh_cut_record_get(&r, &record)) {
        shoal_nid creator = shoal_cid_creator(record.cid);
        bool *is_named = mark_of(&restore->named, record.cid);
        if (is_named)
            *is_named = true;
        if (creator.v != reader->head.node.v)
            err = mark_add(&restore->strays, record.cid.v);
        if (!err && !target_find(restore, creator))
            err = target_add(restore, creator);
    }
    return err;
}

static enum shoal_err all_check(struct restore *restore)
{
    const struct sh_copy_manifest *manifest = &restore->run.folder.manifest;
    enum shoal_err err =
        sh_safety_piece_read(&restore->run, NULL, "check", on_names_looked_at, restore);
    if (!err)
        err = marks_sort(&restore->named);
    for (size_t i = 0; !err && i < manifest->count; i++)
        err = sh_safety_piece_read(&restore->run, &manifest->pieces[i], "check",
                                   on_chunks_looked_at, restore);
    return err ? err : marks_sort(&restore->strays);
}

/* Each chunk's creator must be there. */
static enum shoal_err targets_check(struct restore *restore)
{
    shoal *store = restore->run.cmd->store;
    static shoal_nid peers[UINT16_MAX + 1];
    size_t count = 0;
    enum shoal_err err = sh_client_peers(store, peers, UINT16_MAX + 1, &count);
    for (size_t i = 0; !err && i < restore->targets_count; i++) {
        struct target *target = &restore->targets[i];
        bool is_there = false;
        for (size_t at = 0; at < count; at++)
            is_there |= peers[at].v == target->node.v;
        target->records = malloc(SH_SAVES_RESTORE_BYTES);
        if (!target->records)
            return SHOAL_ENOMEM;
        target->is_away = !is_there;
        if (is_there || restore->spread)
            continue;
        restore->run.hint =
            "start as many peers as there were: those of a new cluster get the same IDs, from 64 "
            "on; or let these chunks get new IDs on other peers: --spread FILE";
        return sh_safety_note(&restore->run, SHOAL_ENONODE,
                              "no peer that is up has the ID %u, which created chunks of the copy",
                              target->node.v);
    }
    return err ? sh_safety_note(&restore->run, err, "%s", shoal_error_detail()) : SHOAL_OK;
}

/* The first pass has not seen it. */
static enum shoal_err changed_note(struct restore *restore)
{
    return sh_safety_note(&restore->run, SHOAL_ECORRUPT, "%s has changed while it was read",
                          restore->run.folder.path);
}

/* --- Chunks -------------------------------------------------------------------------------------- */

static enum shoal_err conflict_note(struct restore *restore, shoal_cid cid)
{
    char text[SH_CID_TEXT_MAX];
    restore->run.hint = CONFLICT_HINT;
    return sh_safety_note(&restore->run, SHOAL_EEXIST,
                          "chunk %s is in use, and has other bytes than in the copy",
                          sh_cid_format(cid, text));
}

static enum shoal_err chunk_note(struct restore *restore, enum shoal_err err, shoal_cid cid)
{
    char text[SH_CID_TEXT_MAX];
    return sh_safety_note(&restore->run, err, "chunk %s: %s", sh_cid_format(cid, text),
                          shoal_error_detail());
}

static enum shoal_err target_flush(struct restore *restore, struct target *target)
{
    enum shoal_err err =
        sh_client_restore(restore->run.cmd->store, target->node, restore->policy,
                          sh_bytes_make(target->records, target->size), &restore->sums);
    target->size = 0;
    if (err == SHOAL_EEXIST)
        return conflict_note(restore, restore->sums.cid);
    return err ? sh_safety_note_node(&restore->run, err, target->node) : SHOAL_OK;
}

/* Of a large chunk: makes one of zeros, whose bytes then come in pieces, or finds that there is one. */
static enum shoal_err large_begin(struct restore *restore, const struct sh_cut_record *record)
{
    shoal *store = restore->run.cmd->store;
    uint8_t request[SH_CUT_RECORD_BYTES];
    struct sh_writer w = sh_writer_make(request, sizeof request);
    uint32_t size;
    sh_put64(&w, record->cid.v);
    sh_put32(&w, record->size | SH_SAVES_ZEROS);
    restore->large = LARGE_WRITE;
    enum shoal_err err = sh_client_restore(store, shoal_cid_creator(record->cid), SH_SAVES_REFUSE,
                                           sh_bytes_make(request, sizeof request), &restore->sums);
    if (err != SHOAL_EEXIST)
        return err ? chunk_note(restore, err, record->cid) : SHOAL_OK;
    if (restore->policy == SH_SAVES_SKIP) {
        restore->large = LARGE_PASS;
        restore->sums.skipped++;
        return SHOAL_OK;
    }
    err = shoal_size(store, record->cid, &size);
    if (err == SHOAL_ENOCHUNK || err == SHOAL_ELOST)
        return conflict_note(restore, record->cid);
    if (!err && restore->policy == SH_SAVES_OVERWRITE) {
        restore->sums.replaced++;
        err = size == record->size ? SHOAL_OK : shoal_resize(store, record->cid, record->size);
    } else if (!err) {
        restore->large = LARGE_COMPARE;
        if (size != record->size)
            return conflict_note(restore, record->cid);
    }
    return err ? chunk_note(restore, err, record->cid) : SHOAL_OK;
}

static bool are_zeros(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* A chunk of that size is there. Its bytes may be the same; or zeros still, where a restore was interrupted. */
static enum shoal_err piece_compare(struct restore *restore, const struct sh_cut_record *record,
                                    bool *is_same_out)
{
    static uint8_t there[SH_SAVES_BLOCK_BYTES];
    uint32_t size = (uint32_t)record->bytes.size;
    SH_ASSERT(size <= sizeof there);
    enum shoal_err err =
        shoal_get_part(restore->run.cmd->store, record->cid, record->offset, there, size);
    if (err)
        return chunk_note(restore, err, record->cid);
    *is_same_out = memcmp(there, record->bytes.at, size) == 0;
    return *is_same_out || are_zeros(there, size) ? SHOAL_OK : conflict_note(restore, record->cid);
}

static enum shoal_err large_piece(struct restore *restore, const struct sh_cut_record *record)
{
    bool is_same = false;
    enum shoal_err err = SHOAL_OK;
    if (record->offset == 0)
        err = large_begin(restore, record);
    if (err || restore->large == LARGE_PASS)
        return err;
    if (restore->large == LARGE_COMPARE)
        err = piece_compare(restore, record, &is_same);
    if (!err && !is_same) {
        err = shoal_put_part(restore->run.cmd->store, record->cid, record->offset, record->bytes.at,
                             (uint32_t)record->bytes.size);
        if (err)
            return chunk_note(restore, err, record->cid);
    }
    bool is_last = record->offset + record->bytes.size == record->size;
    restore->sums.same += !err && is_last && restore->large == LARGE_COMPARE;
    return err;
}

static enum shoal_err record_restore(struct restore *restore, const struct sh_cut_record *record)
{
    if (record->offset == 0) {
        bool *is_done = mark_of(&restore->strays, record->cid);
        restore->passes = is_done && *is_done;
        if (is_done)
            *is_done = true;
    }
    if (restore->passes)
        return SHOAL_OK;
    struct target *target = target_find(restore, shoal_cid_creator(record->cid));
    if (!target)
        return changed_note(restore);
    if (target->is_away)
        return sh_safety_spread_chunk(restore->spread, record);
    if (record->size > SH_CUT_LARGE_BYTES)
        return large_piece(restore, record);
    size_t size = SH_CUT_RECORD_BYTES + record->size;
    enum shoal_err err = SHOAL_OK;
    if (target->size + size > SH_SAVES_RESTORE_BYTES)
        err = target_flush(restore, target);
    struct sh_writer w =
        sh_writer_make(target->records + target->size, SH_SAVES_RESTORE_BYTES - target->size);
    sh_put64(&w, record->cid.v);
    sh_put32(&w, record->size);
    sh_put_raw(&w, record->bytes);
    SH_ASSERT(sh_writer_ok(&w));
    target->size += size;
    return err;
}

static enum shoal_err on_chunks(void *arg, const struct sh_copy_reader *reader,
                                struct sh_bytes payload)
{
    struct sh_reader r = sh_reader_make(payload);
    struct sh_cut_record record;
    enum shoal_err err = SHOAL_OK;
    (void)reader;
    while (!err && sh_cut_record_get(&r, &record))
        err = record_restore(arg, &record);
    return err;
}

/* All is on the disks of those that have any. */
static enum shoal_err all_sync(struct restore *restore)
{
    enum shoal_err err = shoal_sync(restore->run.cmd->store);
    if (!err || err == SHOAL_ENOBACKUP)
        return SHOAL_OK;
    return sh_safety_note(&restore->run, err, "sync: %s", shoal_error_detail());
}

static enum shoal_err chunks_restore(struct restore *restore)
{
    const struct sh_copy_manifest *manifest = &restore->run.folder.manifest;
    enum shoal_err err = shoal_level_use(SHOAL_ASYNC); /* and all together in the end */
    for (size_t i = manifest->count; !err && i > 0; i--) {
        char phase[16];
        snprintf(phase, sizeof phase, "node %u", manifest->pieces[i - 1].node.v);
        err = sh_safety_piece_read(&restore->run, &manifest->pieces[i - 1], phase, on_chunks,
                                   restore);
    }
    for (size_t i = 0; !err && i < restore->targets_count; i++)
        err = target_flush(restore, &restore->targets[i]);
    if (!err && restore->spread)
        err = sh_safety_spread_flush(restore->spread);
    if (!err)
        err = all_sync(restore);
    if (!err && restore->spread)
        sh_safety_spread_settle(restore->spread);
    enum shoal_err level = shoal_level_use(SHOAL_LEVEL_DEFAULT);
    return err ? err : level;
}

/* --- Names --------------------------------------------------------------------------------------- */

struct giving {
    struct restore *restore;
    struct sh_name_giver giver;
};

/* The next name of a record, with its chunk as that is called now. is_there: its chunk was restored; NULL: the folder has changed since the chunks were read. */
static bool name_next(struct restore *restore, struct sh_reader *r, struct sh_bytes *name_out,
                      shoal_cid *cid_out, const bool **is_there_out)
{
    shoal_cid cid;
    if (!sh_copy_name_get(r, &cid, name_out))
        return false;
    *is_there_out = mark_of(&restore->named, cid);
    *cid_out = sh_safety_spread_find(restore->spread, cid);
    return true;
}

static enum shoal_err on_names(void *arg, const struct sh_copy_reader *reader,
                               struct sh_bytes payload)
{
    struct giving *giving = arg;
    struct sh_reader r = sh_reader_make(payload);
    const bool *is_there;
    shoal_cid cid;
    struct sh_bytes name;
    enum shoal_err err = SHOAL_OK;
    (void)reader;
    while (!err && name_next(giving->restore, &r, &name, &cid, &is_there)) {
        if (!is_there)
            return changed_note(giving->restore);
        giving->restore->names_left_out += !*is_there;
        giving->restore->names_given += *is_there;
        if (*is_there)
            err = sh_name_give(&giving->giver, name, cid);
    }
    return err;
}

/* Looks at a name that may have been taken. */
static enum shoal_err name_settle(struct restore *restore, struct sh_bytes name, shoal_cid cid)
{
    shoal *store = restore->run.cmd->store;
    char text[SHOAL_NAME_MAX + 1];
    shoal_cid now;
    memcpy(text, name.at, name.size);
    text[name.size] = '\0';
    enum shoal_err err = shoal_name_get(store, text, &now);
    if (!err && now.v == cid.v) {
        restore->names_same++;
        return SHOAL_OK;
    }
    if (!err && restore->policy == SH_SAVES_REFUSE) {
        restore->run.hint = CONFLICT_HINT;
        return sh_safety_note(&restore->run, SHOAL_EEXIST, "the name \"%s\" is another chunk's",
                              text);
    }
    if (!err && restore->policy == SH_SAVES_SKIP) {
        restore->names_skipped++;
        return SHOAL_OK;
    }
    restore->names_replaced++;
    err = shoal_name_set(store, text, cid, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL);
    return err ? sh_safety_note(&restore->run, err, "name \"%s\": %s", text, shoal_error_detail())
               : SHOAL_OK;
}

static enum shoal_err on_names_settled(void *arg, const struct sh_copy_reader *reader,
                                       struct sh_bytes payload)
{
    struct restore *restore = arg;
    struct sh_reader r = sh_reader_make(payload);
    const bool *is_there;
    shoal_cid cid;
    struct sh_bytes name;
    enum shoal_err err = SHOAL_OK;
    (void)reader;
    while (!err && name_next(restore, &r, &name, &cid, &is_there)) {
        if (is_there && *is_there)
            err = name_settle(restore, name, cid);
    }
    return err;
}

/* Gives those that nobody has given; where some were taken, all are looked at. */
static enum shoal_err names_restore(struct restore *restore)
{
    struct giving *giving = calloc(1, sizeof *giving);
    if (!giving)
        return SHOAL_ENOMEM;
    giving->restore = restore;
    giving->giver.store = restore->run.cmd->store;
    enum shoal_err err = sh_safety_piece_read(&restore->run, NULL, "names", on_names, giving);
    enum shoal_err last = sh_name_give_end(&giving->giver);
    size_t taken = giving->giver.taken;
    free(giving);
    if (!err && last)
        err = sh_safety_note(&restore->run, last, "names: %s", shoal_error_detail());
    if (!err && taken) {
        uint64_t given = restore->names_given - taken;
        err = sh_safety_piece_read(&restore->run, NULL, "names", on_names_settled, restore);
        restore->names_given = given;
        /* Those that were given just now are the same. */
        restore->names_same -= given < restore->names_same ? given : restore->names_same;
    }
    return err;
}

/* --- The command --------------------------------------------------------------------------------- */

static int restored_answer(struct restore *restore, double seconds)
{
    struct sh_cmd *cmd = restore->run.cmd;
    const struct sh_client_restored *sums = &restore->sums;
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "dir", cmd->words[0]);
        sh_json_set_u64(root, "made", sums->made);
        sh_json_set_u64(root, "same", sums->same);
        sh_json_set_u64(root, "skipped", sums->skipped);
        sh_json_set_u64(root, "replaced", sums->replaced);
        sh_json_set_u64(root, "spread", sh_safety_spread_count(restore->spread));
        sh_json_set_u64(root, "names_given", restore->names_given);
        sh_json_set_u64(root, "names_same", restore->names_same);
        sh_json_set_u64(root, "names_skipped", restore->names_skipped);
        sh_json_set_u64(root, "names_replaced", restore->names_replaced);
        sh_json_set_u64(root, "names_left_out", restore->names_left_out);
        sh_json_set_f64(root, "seconds", seconds);
        return sh_cmd_answer(cmd, root);
    }
    if (restore->spread)
        fprintf(cmd->out, "%" PRIu64 " chunks have new IDs, which %s has.\n",
                sh_safety_spread_count(restore->spread), cmd->flags.spread);
    fprintf(cmd->out,
            "Restored %" PRIu64 " chunks from %s in %.3f s; %" PRIu64 " were there, %" PRIu64
            " were replaced, %" PRIu64 " skipped.\n"
            "Gave %" PRIu64 " names; %" PRIu64 " were there, %" PRIu64 " were replaced, %" PRIu64
            " skipped; %" PRIu64
            " left out, as their chunks were removed while the copy was made.\n",
            sums->made, cmd->words[0], seconds, sums->same, sums->replaced, sums->skipped,
            restore->names_given, restore->names_same, restore->names_replaced,
            restore->names_skipped, restore->names_left_out);
    return SH_EXIT_OK;
}

static enum shoal_err cluster_check(struct restore *restore)
{
    const char *cluster = restore->run.cmd->options.cluster;
    const struct sh_copy_manifest *manifest = &restore->run.folder.manifest;
    if (strcmp(manifest->cluster, cluster) == 0)
        return SHOAL_OK;
    return sh_safety_note(&restore->run, SHOAL_ECLUSTER,
                          "%s is of the cluster \"%s\", not of \"%s\"", restore->run.folder.path,
                          manifest->cluster, cluster);
}

static void restore_free(struct restore *restore)
{
    for (size_t i = 0; i < restore->targets_count; i++)
        free(restore->targets[i].records);
    free(restore->targets);
    sh_safety_spread_close(restore->spread);
    marks_free(&restore->named);
    marks_free(&restore->strays);
}

int sh_cmd_run_backup_restore(struct sh_cmd *cmd)
{
    struct restore restore = {.policy = cmd->flags.overwrite ? SH_SAVES_OVERWRITE
                                        : cmd->flags.skip    ? SH_SAVES_SKIP
                                                             : SH_SAVES_REFUSE};
    uint64_t begun_ms = sh_process_now_ms();
    if (cmd->flags.overwrite && cmd->flags.skip)
        return sh_cmd_usage(cmd, "--skip and --overwrite exclude each other");
    int status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = sh_safety_open(&restore.run, cmd, false);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = cluster_check(&restore);
    if (!err) {
        sh_store_watch(&restore.run.progress, "restoring");
        err = all_check(&restore);
    }
    if (!err && cmd->flags.spread)
        err = sh_safety_spread_open(&restore.run, cmd->flags.spread, &restore.spread);
    if (!err)
        err = targets_check(&restore);
    if (!err) {
        err = chunks_restore(&restore);
        if (!err)
            err = names_restore(&restore);
        if (err && !restore.run.hint)
            restore.run.hint = GO_ON_HINT;
    }
    if (err) {
        status = sh_safety_fail(&restore.run, err);
    } else {
        sh_progress_end(&restore.run.progress);
        status = restored_answer(&restore, (double)(sh_process_now_ms() - begun_ms) / 1e3);
        status = sh_safety_close(&restore.run, status);
    }
    restore_free(&restore);
    return status;
}
