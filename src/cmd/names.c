/* shoal name set, get, wait, remove, list; shoal scratch put, get, remove, list. */
#include "cmd/names_int.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chunk_int.h"
#include "cmd/text_int.h"

int sh_names_fail(struct sh_cmd *cmd, enum shoal_err err, const char *word)
{
    const char *detail = shoal_error_detail();
    return sh_cmd_fail(cmd, err, "%s", *detail ? detail : word);
}

int sh_names_within(struct sh_cmd *cmd, uint64_t *ns_out)
{
    *ns_out = UINT64_MAX;
    return sh_cmd_time(cmd, "within", cmd->flags.within, 0, UINT64_MAX, ns_out);
}

int sh_names_content(struct sh_cmd *cmd, size_t most, uint8_t **bytes_out, uint32_t *size_out)
{
    struct sh_content content;
    bool standard = cmd->word_count == 2 && strcmp(cmd->words[1], "-") == 0;
    if (cmd->word_count == 2 && !standard)
        return sh_cmd_usage(cmd, "\"%.60s\" is one word too many; content is given by flags",
                            cmd->words[1]);
    int status = sh_content_read(cmd, standard, &content);
    if (status != SH_EXIT_OK)
        return status;
    if (content.size > most) {
        free(content.bytes);
        return sh_cmd_fail(cmd, SHOAL_ETOOBIG, "%zu bytes, at most %zu", content.size, most);
    }
    *bytes_out = content.bytes;
    *size_out = (uint32_t)content.size;
    return SH_EXIT_OK;
}

void sh_names_json_bytes(struct sh_json *object, struct sh_bytes bytes)
{
    char text[2 * SHOAL_SCRATCH_MAX + 1] = "";
    size_t size = bytes.size < SHOAL_SCRATCH_MAX ? bytes.size : SHOAL_SCRATCH_MAX;
    for (size_t i = 0; i < size; i++)
        snprintf(&text[2 * i], 3, "%02x", bytes.at[i]);
    sh_json_set_text(object, "hex", text);
    if (!sh_text_is_clean(bytes))
        return;
    if (size)
        memcpy(text, bytes.at, size);
    text[size] = 0;
    sh_json_set_text(object, "text", text);
}

/* --- Names ----------------------------------------------------------------------------------- */

static int cid_answer(struct sh_cmd *cmd, const char *name, shoal_cid cid)
{
    char text[SH_CID_TEXT_MAX];
    if (!cmd->flags.json) {
        fprintf(cmd->out, "%s\n", sh_cid_format(cid, text));
        return SH_EXIT_OK;
    }
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "name", name);
    sh_json_set_text(root, "cid", sh_cid_format(cid, text));
    return sh_cmd_answer(cmd, root);
}

/* A name was changed: says whose it was. */
static int changed_answer(struct sh_cmd *cmd, shoal_cid cid, shoal_cid previous)
{
    char text[SH_CID_TEXT_MAX];
    if (!cmd->flags.json)
        return SH_EXIT_OK;
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "name", cmd->words[0]);
    sh_json_set_text(root, "cid", cid.v ? sh_cid_format(cid, text) : NULL);
    sh_json_set_text(root, "previous", previous.v ? sh_cid_format(previous, text) : NULL);
    return sh_cmd_answer(cmd, root);
}

static int changed_fail(struct sh_cmd *cmd, enum shoal_err err, shoal_cid previous)
{
    char text[SH_CID_TEXT_MAX];
    if (err != SHOAL_EEXIST && err != SHOAL_EDIFFERS)
        return sh_names_fail(cmd, err, cmd->words[0]);
    return sh_cmd_fail(cmd, err, "the name is %s's", sh_cid_format(previous, text));
}

/* Reads --absent and --current. */
static int condition_read(struct sh_cmd *cmd, enum shoal_name_if *when_out, shoal_cid *expected_out)
{
    *when_out = cmd->flags.absent ? SHOAL_NAME_ABSENT : SHOAL_NAME_ALWAYS;
    if (!cmd->flags.current)
        return SH_EXIT_OK;
    if (cmd->flags.absent)
        return sh_cmd_usage(cmd, "a name is absent or current, not both");
    if (sh_cid_parse(cmd->flags.current, expected_out) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->flags.current);
    *when_out = SHOAL_NAME_CURRENT;
    return SH_EXIT_OK;
}

int sh_cmd_run_name_set(struct sh_cmd *cmd)
{
    shoal_cid cid, expected = SHOAL_CID_NONE, previous = SHOAL_CID_NONE;
    enum shoal_name_if when;
    if (sh_cid_parse(cmd->words[1], &cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[1]);
    int status = condition_read(cmd, &when, &expected);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_name_set(cmd->store, cmd->words[0], cid, when, expected, &previous);
    return err ? changed_fail(cmd, err, previous) : changed_answer(cmd, cid, previous);
}

int sh_cmd_run_name_remove(struct sh_cmd *cmd)
{
    shoal_cid expected = SHOAL_CID_NONE, previous = SHOAL_CID_NONE;
    enum shoal_name_if when;
    int status = condition_read(cmd, &when, &expected);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_name_remove(cmd->store, cmd->words[0], when, expected, &previous);
    return err ? changed_fail(cmd, err, previous) : changed_answer(cmd, SHOAL_CID_NONE, previous);
}

int sh_cmd_run_name_get(struct sh_cmd *cmd)
{
    shoal_cid cid;
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_name_get(cmd->store, cmd->words[0], &cid);
    return err ? sh_names_fail(cmd, err, cmd->words[0]) : cid_answer(cmd, cmd->words[0], cid);
}

int sh_cmd_run_name_wait(struct sh_cmd *cmd)
{
    shoal_cid cid;
    uint64_t within_ns;
    int status = sh_names_within(cmd, &within_ns);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_name_wait(cmd->store, cmd->words[0], within_ns, &cid);
    if (err == SHOAL_ETIMEOUT)
        return sh_cmd_fail_hint(cmd, err, shoal_error_detail(),
                                "give it with `shoal name set`, or wait for longer with --within");
    return err ? sh_names_fail(cmd, err, cmd->words[0]) : cid_answer(cmd, cmd->words[0], cid);
}

/* --- Lists ----------------------------------------------------------------------------------- */

struct row {
    char *text;
    uint64_t value;
};

/* What comes in no order is collected, and sorted. */
struct rows {
    struct row *rows;
    size_t count, room;
    bool is_full; /* out of memory */
};

static bool row_add(struct rows *rows, const char *text, uint64_t value)
{
    if (rows->count == rows->room) {
        size_t room = rows->room ? 2 * rows->room : 64;
        struct row *more = realloc(rows->rows, room * sizeof *more);
        if (!more) {
            rows->is_full = true;
            return false;
        }
        rows->rows = more;
        rows->room = room;
    }
    struct row *row = &rows->rows[rows->count];
    *row = (struct row){strdup(text), value};
    rows->is_full = !row->text;
    rows->count += !rows->is_full;
    return !rows->is_full;
}

static bool name_add(void *arg, const char *name, shoal_cid cid)
{
    return row_add(arg, name, cid.v);
}

static bool key_add(void *arg, const char *key, uint32_t size)
{
    return row_add(arg, key, size);
}

static int row_compare(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->text, ((const struct row *)b)->text);
}

static void name_print(struct sh_cmd *cmd, struct sh_json *list, const struct row *row)
{
    char text[SH_CID_TEXT_MAX];
    sh_cid_format((shoal_cid){row->value}, text);
    if (cmd->flags.json) {
        struct sh_json *one = sh_json_object();
        sh_json_set_text(one, "name", row->text);
        sh_json_set_text(one, "cid", text);
        sh_json_append(list, one);
        return;
    }
    fprintf(cmd->out, "%-20s  ", text);
    sh_text_print(sh_bytes_text(row->text), cmd->out);
    fputc('\n', cmd->out);
}

static void key_print(struct sh_cmd *cmd, struct sh_json *list, const struct row *row)
{
    if (cmd->flags.json) {
        struct sh_json *one = sh_json_object();
        sh_json_set_text(one, "key", row->text);
        sh_json_set_u64(one, "size", row->value);
        sh_json_append(list, one);
        return;
    }
    fprintf(cmd->out, "%6" PRIu64 "  ", row->value);
    sh_text_print(sh_bytes_text(row->text), cmd->out);
    fputc('\n', cmd->out);
}

static int rows_answer(struct sh_cmd *cmd, enum shoal_err err, struct rows *rows, const char *what,
                       void (*print)(struct sh_cmd *cmd, struct sh_json *list,
                                     const struct row *row))
{
    int status = SH_EXIT_OK;
    if (!err && rows->is_full)
        err = SHOAL_ENOMEM;
    struct sh_json *list = sh_json_array();
    if (rows->count)
        qsort(rows->rows, rows->count, sizeof *rows->rows, row_compare);
    for (size_t i = 0; i < rows->count; i++) {
        if (!err)
            print(cmd, list, &rows->rows[i]);
        free(rows->rows[i].text);
    }
    free(rows->rows);
    if (err) {
        status = sh_names_fail(cmd, err, "");
    } else if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set(root, what, list);
        return sh_cmd_answer(cmd, root);
    }
    sh_json_free(list);
    return status;
}

int sh_cmd_run_name_list(struct sh_cmd *cmd)
{
    struct rows rows = {0};
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err =
        shoal_name_list(cmd->store, cmd->word_count ? cmd->words[0] : "", name_add, &rows);
    return rows_answer(cmd, err, &rows, "names", name_print);
}

int sh_cmd_run_scratch_list(struct sh_cmd *cmd)
{
    struct rows rows = {0};
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err =
        shoal_scratch_list(cmd->store, cmd->word_count ? cmd->words[0] : "", key_add, &rows);
    return rows_answer(cmd, err, &rows, "keys", key_print);
}

/* --- Scratch --------------------------------------------------------------------------------- */

static int key_answer(struct sh_cmd *cmd, enum shoal_err err, const uint32_t *size)
{
    if (err)
        return sh_names_fail(cmd, err, cmd->words[0]);
    if (!cmd->flags.json)
        return SH_EXIT_OK;
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "key", cmd->words[0]);
    if (size)
        sh_json_set_u64(root, "size", *size);
    return sh_cmd_answer(cmd, root);
}

int sh_cmd_run_scratch_put(struct sh_cmd *cmd)
{
    uint8_t *bytes;
    uint32_t size;
    int status = sh_names_content(cmd, SHOAL_SCRATCH_MAX, &bytes, &size);
    if (status != SH_EXIT_OK)
        return status;
    if (!bytes)
        return sh_cmd_usage(cmd, "give the content by --text, --hex, --file, --raw or -");
    status = sh_cmd_open(cmd);
    if (status == SH_EXIT_OK)
        status = key_answer(cmd, shoal_scratch_put(cmd->store, cmd->words[0], bytes, size), &size);
    free(bytes);
    return status;
}

int sh_cmd_run_scratch_remove(struct sh_cmd *cmd)
{
    int status = sh_cmd_open(cmd);
    return status == SH_EXIT_OK
               ? key_answer(cmd, shoal_scratch_remove(cmd->store, cmd->words[0]), NULL)
               : status;
}

int sh_cmd_run_scratch_get(struct sh_cmd *cmd)
{
    uint8_t bytes[SHOAL_SCRATCH_MAX];
    uint32_t size;
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_scratch_get(cmd->store, cmd->words[0], bytes, sizeof bytes, &size);
    if (err)
        return sh_names_fail(cmd, err, cmd->words[0]);
    struct sh_bytes value = sh_bytes_make(bytes, size);
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object();
        sh_json_set_text(root, "key", cmd->words[0]);
        sh_json_set_u64(root, "size", size);
        sh_names_json_bytes(root, value);
        return sh_cmd_answer(cmd, root);
    }
    if (cmd->flags.as_raw) {
        fwrite(bytes, 1, size, cmd->out);
        return SH_EXIT_OK;
    }
    if (cmd->flags.as_hex)
        sh_hex_print(value, cmd->out);
    else
        sh_text_print(value, cmd->out);
    fputc('\n', cmd->out);
    return SH_EXIT_OK;
}
