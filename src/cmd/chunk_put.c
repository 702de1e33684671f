/* shoal chunk put, put-if, resize, add; and the content that a command is given. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chunk_int.h"
#include "cmd/command_int.h"
#include "cmd/text_int.h"

/* --- Content ------------------------------------------------------------------------------- */

static enum shoal_err file_read(FILE *file, struct sh_content *content_out)
{
    size_t room = 4096, size = 0;
    uint8_t *bytes = malloc(room);
    while (bytes) {
        size += fread(bytes + size, 1, room - size, file);
        if (size < room)
            break;
        uint8_t *more = room <= SH_CONTENT_MAX ? realloc(bytes, room * 2) : NULL;
        if (!more) {
            free(bytes);
            return room > SH_CONTENT_MAX ? SHOAL_ETOOBIG : SHOAL_ENOMEM;
        }
        bytes = more;
        room *= 2;
    }
    if (!bytes)
        return SHOAL_ENOMEM;
    if (ferror(file)) {
        free(bytes);
        return SHOAL_EIO;
    }
    *content_out = (struct sh_content){bytes, size};
    return SHOAL_OK;
}

static int path_read(struct sh_cmd *cmd, const char *path, struct sh_content *content_out)
{
    bool standard = strcmp(path, "-") == 0;
    FILE *file = standard ? stdin : fopen(path, "re");
    if (!file)
        return sh_cmd_fail(cmd, SHOAL_EIO, "%s: %s", path, strerror(errno));
    enum shoal_err err = file_read(file, content_out);
    int why = errno;
    if (!standard)
        fclose(file);
    if (err == SHOAL_EIO)
        return sh_cmd_fail(cmd, err, "%s: %s", path, strerror(why));
    return err == SHOAL_OK ? SH_EXIT_OK : sh_cmd_fail(cmd, err, "%s", path);
}

int sh_content_read(struct sh_cmd *cmd, bool standard, struct sh_content *content_out)
{
    const struct sh_flags *flags = &cmd->flags;
    unsigned given = (flags->text != NULL) + (flags->hex != NULL) + (flags->file != NULL) +
                     (flags->stdin_raw || standard);
    *content_out = (struct sh_content){0};
    if (given > 1)
        return sh_cmd_usage(cmd, "the content is given twice");
    if (flags->text) {
        content_out->bytes = (uint8_t *)strdup(flags->text);
        content_out->size = strlen(flags->text);
        return content_out->bytes ? SH_EXIT_OK : sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    }
    if (flags->hex) {
        size_t bad = 0;
        enum shoal_err err =
            sh_hex_parse(flags->hex, &content_out->bytes, &content_out->size, &bad);
        if (err == SHOAL_EPARSE)
            return sh_cmd_usage(cmd, "--hex: no pair of hexadecimal digits at character %zu",
                                bad + 1);
        return err == SHOAL_OK ? SH_EXIT_OK : sh_cmd_fail(cmd, err, "%s", "");
    }
    if (flags->file || flags->stdin_raw || standard)
        return path_read(cmd, flags->file ? flags->file : "-", content_out);
    return SH_EXIT_OK;
}

/* --- put ----------------------------------------------------------------------------------- */

/* The size is wrong: says the right one. */
static int wrong_size(struct sh_cmd *cmd, shoal_cid cid, size_t given)
{
    char text[SH_CID_TEXT_MAX], detail[128];
    uint32_t size = 0;
    enum shoal_err err = shoal_size(cmd->store, cid, &size);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    snprintf(detail, sizeof detail, "%s has %" PRIu32 " bytes, the content has %zu%s",
             sh_cid_format(cid, text), size, given,
             cmd->flags.offset.is_given ? " behind its offset" : "");
    return sh_cmd_fail_hint(cmd, SHOAL_ESIZE, detail,
                            "`shoal chunk resize` changes a chunk's size; --offset writes a part");
}

/* Checks the words of a put, reads its content and connects; on failure no content is left. */
static int put_begin(struct sh_cmd *cmd, shoal_cid *cid_out, struct sh_content *content_out)
{
    bool standard = cmd->word_count == 2 && strcmp(cmd->words[1], "-") == 0;
    if (sh_cid_parse(cmd->words[0], cid_out) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    if (cmd->word_count == 2 && !standard)
        return sh_cmd_usage(cmd, "\"%.60s\" is one word too many; content is given by flags",
                            cmd->words[1]);
    int status = sh_content_read(cmd, standard, content_out);
    if (status != SH_EXIT_OK)
        return status;
    if (!content_out->bytes)
        return sh_cmd_usage(cmd, "give the content by --text, --hex, --file, --raw or -");
    if (content_out->size > SH_CONTENT_MAX)
        status = sh_cmd_fail(cmd, SHOAL_ETOOBIG, "a chunk has at most 1 GiB");
    else
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        free(content_out->bytes);
    return status;
}

static int put_end(struct sh_cmd *cmd, enum shoal_err err, shoal_cid cid,
                   const struct sh_content *content)
{
    if (err == SHOAL_ESIZE)
        return wrong_size(cmd, cid, content->size);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    return cmd->flags.json ? sh_chunk_size_answer(cmd, cid, content->size) : SH_EXIT_OK;
}

int sh_cmd_run_chunk_put(struct sh_cmd *cmd)
{
    struct sh_content content;
    shoal_cid cid;
    const struct sh_flag_bytes *offset = &cmd->flags.offset;
    int status = put_begin(cmd, &cid, &content);
    if (status != SH_EXIT_OK)
        return status;
    uint32_t size = (uint32_t)content.size;
    enum shoal_err err = offset->is_given
                             ? shoal_put_part(cmd->store, cid, offset->bytes, content.bytes, size)
                             : shoal_put(cmd->store, cid, content.bytes, size);
    status = put_end(cmd, err, cid, &content);
    free(content.bytes);
    return status;
}

/* --- put-if -------------------------------------------------------------------------------- */

/* What the chunk must hold: bytes, or their hash if there are none. */
struct expected {
    uint8_t *bytes; /* allocated, or NULL */
    size_t size;
    uint64_t hash;
};

static int hash_parse(struct sh_cmd *cmd, const char *text, uint64_t *hash_out)
{
    uint8_t *bytes = NULL;
    size_t size = 0;
    uint64_t hash = 0;
    enum shoal_err err = sh_hex_parse(text, &bytes, &size, NULL);
    for (size_t i = 0; err == SHOAL_OK && i < size; i++)
        hash = hash << 8 | bytes[i];
    free(bytes);
    if (err == SHOAL_ENOMEM)
        return sh_cmd_fail(cmd, err, "%s", "");
    if (err != SHOAL_OK || size != 8)
        return sh_cmd_usage(cmd, "--expect-hash: \"%.40s\" is not 16 hexadecimal digits", text);
    *hash_out = hash;
    return SH_EXIT_OK;
}

static int expected_read(struct sh_cmd *cmd, struct expected *expected_out)
{
    const struct sh_flags *flags = &cmd->flags;
    unsigned given =
        (flags->expect != NULL) + (flags->expect_hex != NULL) + (flags->expect_hash != NULL);
    *expected_out = (struct expected){0};
    if (given != 1)
        return sh_cmd_usage(cmd, "give one of --expect, --expect-hex and --expect-hash");
    if (flags->expect_hash)
        return hash_parse(cmd, flags->expect_hash, &expected_out->hash);
    enum shoal_err err = SHOAL_OK;
    if (flags->expect) {
        expected_out->size = strlen(flags->expect);
        expected_out->bytes = (uint8_t *)strdup(flags->expect);
        err = expected_out->bytes ? SHOAL_OK : SHOAL_ENOMEM;
    } else {
        err = sh_hex_parse(flags->expect_hex, &expected_out->bytes, &expected_out->size, NULL);
    }
    if (err == SHOAL_EPARSE)
        return sh_cmd_usage(cmd, "--expect-hex: not pairs of hexadecimal digits");
    return err == SHOAL_OK ? SH_EXIT_OK : sh_cmd_fail(cmd, err, "%s", "");
}

int sh_cmd_run_chunk_put_if(struct sh_cmd *cmd)
{
    struct expected expected;
    struct sh_content content;
    shoal_cid cid;
    int status = expected_read(cmd, &expected);
    if (status == SH_EXIT_OK)
        status = put_begin(cmd, &cid, &content);
    if (status != SH_EXIT_OK) {
        free(expected.bytes);
        return status;
    }
    uint32_t size = (uint32_t)content.size;
    enum shoal_err err =
        expected.bytes ? shoal_put_if(cmd->store, cid, expected.bytes, (uint32_t)expected.size,
                                      content.bytes, size)
                       : shoal_put_if_hash(cmd->store, cid, expected.hash, content.bytes, size);
    status = put_end(cmd, err, cid, &content);
    free(content.bytes);
    free(expected.bytes);
    return status;
}

/* --- resize, add --------------------------------------------------------------------------- */

int sh_cmd_run_chunk_resize(struct sh_cmd *cmd)
{
    shoal_cid cid;
    uint64_t size;
    if (sh_cid_parse(cmd->words[0], &cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    if (sh_number_parse(cmd->words[1], "bytes", &size) != SHOAL_OK)
        return sh_cmd_usage(cmd,
                            "\"%.40s\" is not a size: write bytes, or B, KiB, MiB or GiB behind "
                            "the number",
                            cmd->words[1]);
    if (size > SH_CONTENT_MAX)
        return sh_cmd_fail(cmd, SHOAL_ETOOBIG, "a chunk has at most 1 GiB");
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_resize(cmd->store, cid, (uint32_t)size);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    return cmd->flags.json ? sh_chunk_size_answer(cmd, cid, size) : SH_EXIT_OK;
}

/* A whole number of at most 64 bits, with or without a sign. */
static bool delta_parse(const char *text, uint64_t *delta_out)
{
    bool is_negative = text[0] == '-';
    uint64_t number;
    if (sh_number_parse(text + (is_negative || text[0] == '+'), "", &number) != SHOAL_OK)
        return false;
    *delta_out = is_negative ? 0 - number : number;
    return true;
}

static int sum_answer(struct sh_cmd *cmd, shoal_cid cid, uint64_t old, uint64_t sum)
{
    char text[SH_CID_TEXT_MAX];
    if (!cmd->flags.json) {
        fprintf(cmd->out, "%" PRIu64 "\n", sum);
        return SH_EXIT_OK;
    }
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "cid", sh_cid_format(cid, text));
    sh_json_set_u64(root, "old", old);
    sh_json_set_u64(root, "new", sum);
    return sh_cmd_answer(cmd, root);
}

int sh_cmd_run_chunk_add(struct sh_cmd *cmd)
{
    shoal_cid cid;
    uint64_t delta, old, width = cmd->flags.width ? cmd->flags.width : 8;
    if (sh_cid_parse(cmd->words[0], &cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    if (!delta_parse(cmd->words[1], &delta))
        return sh_cmd_usage(cmd, "\"%.40s\" is not a whole number", cmd->words[1]);
    if (width != 4 && width != 8)
        return sh_cmd_usage(cmd, "--width is 4 or 8");
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err =
        shoal_add(cmd->store, cid, cmd->flags.offset.bytes, (unsigned)width, delta, &old);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    uint64_t sum = width == 8 ? old + delta : (uint32_t)(old + delta);
    return sum_answer(cmd, cid, old, sum);
}
