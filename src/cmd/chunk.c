/* shoal chunk create, remove, list; chunk_get.c and chunk_put.c have the others. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chunk_int.h"
#include "cmd/command_int.h"
#include "cmd/text_int.h"

#define CREATE_MANY_MAX (UINT64_C(1) << 20) /* of one call of the library */

int sh_chunk_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_cid cid)
{
    char text[SH_CID_TEXT_MAX];
    const char *detail = shoal_error_detail();
    return sh_cmd_fail(cmd, err, "%s%s%s", sh_cid_format(cid, text), *detail ? ": " : "", detail);
}

int sh_chunk_usage(struct sh_cmd *cmd, const char *word)
{
    return sh_cmd_usage(cmd,
                        "\"%.60s\" is not a chunk ID: write NODE:LOCAL, for example 65:1, or 16 "
                        "hexadecimal digits",
                        word);
}

/* --- create -------------------------------------------------------------------------------- */

/* Puts the content into every one of the new chunks; on failure they are removed again. */
static enum shoal_err fill(struct sh_cmd *cmd, const shoal_cid *cids, size_t count,
                           const struct sh_content *content)
{
    for (size_t i = 0; i < count; i++) {
        enum shoal_err err =
            shoal_put(cmd->store, cids[i], content->bytes, (uint32_t)content->size);
        if (err != SHOAL_OK)
            return err;
    }
    return SHOAL_OK;
}

static void remove_all(struct sh_cmd *cmd, const shoal_cid *cids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        /* The failure that led here is the one to be told. */
        enum shoal_err err = shoal_remove(cmd->store, cids[i]);
        (void)err;
    }
}

static int created_print(struct sh_cmd *cmd, const shoal_cid *cids, size_t count, uint64_t size)
{
    char text[SH_CID_TEXT_MAX];
    if (!cmd->flags.json) {
        for (size_t i = 0; i < count; i++)
            fprintf(cmd->out, "%s\n", sh_cid_format(cids[i], text));
        return SH_EXIT_OK;
    }
    struct sh_json *root = sh_json_object(), *list = sh_json_array();
    for (size_t i = 0; i < count; i++)
        sh_json_append_text(list, sh_cid_format(cids[i], text));
    sh_json_set(root, "cids", list);
    sh_json_set_u64(root, "size", size);
    return sh_cmd_answer(cmd, root);
}

static int create_all(struct sh_cmd *cmd, uint64_t size, size_t count,
                      const struct sh_content *content)
{
    char detail[256] = "";
    enum shoal_err err = SHOAL_OK;
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    shoal_cid *cids = calloc(count, sizeof *cids);
    if (!cids)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    size_t made = 0;
    while (made < count && err == SHOAL_OK) {
        size_t many = count - made < CREATE_MANY_MAX ? count - made : CREATE_MANY_MAX;
        err = shoal_create_many(cmd->store, cmd->flags.node, (uint32_t)size, many, cids + made);
        made += err == SHOAL_OK ? many : 0;
    }
    if (err == SHOAL_OK && content->bytes)
        err = fill(cmd, cids, count, content);
    if (err == SHOAL_OK) {
        status = created_print(cmd, cids, count, size);
    } else {
        snprintf(detail, sizeof detail, "%s", shoal_error_detail());
        remove_all(cmd, cids, made);
        status = sh_cmd_fail(cmd, err, "%s", detail);
    }
    free(cids);
    return status;
}

int sh_cmd_run_chunk_create(struct sh_cmd *cmd)
{
    struct sh_content content = {0};
    const char *word = cmd->word_count ? cmd->words[0] : NULL;
    bool standard = word && strcmp(word, "-") == 0;
    uint64_t size = 0;
    int status = sh_content_read(cmd, standard, &content);
    if (status != SH_EXIT_OK)
        return status;
    if (content.bytes)
        size = content.size;
    if ((content.bytes != NULL) == (word != NULL && !standard))
        status = sh_cmd_usage(cmd, "give a size, or the content by --text, --hex, --file or -");
    else if (!content.bytes && sh_number_parse(word, "bytes", &size) != SHOAL_OK)
        status = sh_cmd_usage(cmd,
                              "\"%.40s\" is not a size: write bytes, or B, KiB, MiB or GiB "
                              "behind the number",
                              word);
    else if (size > SH_CONTENT_MAX)
        status = sh_cmd_fail(cmd, SHOAL_ETOOBIG, "a chunk has at most 1 GiB");
    else
        status = create_all(cmd, size, cmd->flags.count ? cmd->flags.count : 1, &content);
    free(content.bytes);
    return status;
}

/* --- remove -------------------------------------------------------------------------------- */

int sh_chunk_size_answer(struct sh_cmd *cmd, shoal_cid cid, uint64_t size)
{
    char text[SH_CID_TEXT_MAX];
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "cid", sh_cid_format(cid, text));
    sh_json_set_u64(root, "size", size);
    return sh_cmd_answer(cmd, root);
}

/* Says which chunks could not be removed: the first ones by name, as one error. */
static int remove_report(struct sh_cmd *cmd, const struct shoal_op *ops, size_t count)
{
    char detail[256] = "", text[SH_CID_TEXT_MAX];
    size_t failed = 0, used = 0;
    enum shoal_err first = SHOAL_OK;
    for (size_t i = 0; i < count; i++) {
        if (ops[i].err == SHOAL_OK)
            continue;
        first = first == SHOAL_OK ? ops[i].err : first;
        if (failed++ < 5)
            used += (size_t)snprintf(detail + used, sizeof detail - used, "%s%s", used ? ", " : "",
                                     sh_cid_format(ops[i].cid, text));
    }
    if (failed == 0 && cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_u64(root, "removed", count);
        return sh_cmd_answer(cmd, root);
    }
    if (failed == 0)
        return SH_EXIT_OK;
    if (failed > 5)
        snprintf(detail + used, sizeof detail - used, " and %zu more", failed - 5);
    return sh_cmd_fail(cmd, first, "%s", detail);
}

int sh_cmd_run_chunk_remove(struct sh_cmd *cmd)
{
    struct shoal_op *ops = calloc(cmd->word_count, sizeof *ops);
    if (!ops)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    int status = SH_EXIT_OK;
    for (size_t i = 0; i < cmd->word_count && status == SH_EXIT_OK; i++)
        if (sh_cid_parse(cmd->words[i], &ops[i].cid) != SHOAL_OK)
            status = sh_chunk_usage(cmd, cmd->words[i]);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK) {
        /* Each operation has its own result, and they tell more than the first failure. */
        enum shoal_err err = shoal_multi_remove(cmd->store, ops, cmd->word_count);
        (void)err;
        status = remove_report(cmd, ops, cmd->word_count);
    }
    free(ops);
    return status;
}

/* --- list ---------------------------------------------------------------------------------- */

struct listing {
    struct sh_cmd *cmd;
    struct sh_json *ranges;
    uint64_t chunks;
};

static bool range_print(void *arg, shoal_cid first, shoal_cid last)
{
    struct listing *listing = arg;
    char from[SH_CID_TEXT_MAX], to[SH_CID_TEXT_MAX];
    uint64_t count = last.v - first.v + 1;
    sh_cid_format(first, from);
    sh_cid_format(last, to);
    listing->chunks += count;
    if (!listing->cmd->flags.json) {
        fprintf(listing->cmd->out, "%-22s %-22s %12" PRIu64 "\n", from, to, count);
        return true;
    }
    struct sh_json *row = sh_json_object();
    sh_json_set_text(row, "first", from);
    sh_json_set_text(row, "last", to);
    sh_json_set_u64(row, "chunks", count);
    sh_json_append(listing->ranges, row);
    return true;
}

static enum shoal_err chunks_list(void *arg, shoal_nid nid)
{
    struct listing *listing = arg;
    return shoal_ranges(listing->cmd->store, nid, range_print, listing);
}

int sh_cmd_run_chunk_list(struct sh_cmd *cmd)
{
    shoal_nid only;
    int status = sh_cmd_open_for_node(cmd, &only);
    if (status != SH_EXIT_OK)
        return status;
    struct listing listing = {.cmd = cmd, .ranges = sh_json_array()};
    if (!cmd->flags.json)
        fprintf(cmd->out, "%-22s %-22s %12s\n", "FIRST", "LAST", "CHUNKS");
    status = sh_cmd_each_peer(cmd, only, chunks_list, &listing);
    if (status == SH_EXIT_OK && cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, "ranges", listing.ranges);
        sh_json_set_u64(root, "chunks", listing.chunks);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(listing.ranges);
    if (status == SH_EXIT_OK)
        fprintf(cmd->out, "%-22s %-22s %12" PRIu64 "\n", "all", "", listing.chunks);
    return status;
}
