/* shoal chunk get. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/chunk_int.h"
#include "cmd/text_int.h"

#define ROOM_FIRST 4096

enum shoal_err sh_chunk_read(shoal *store, shoal_cid cid, uint8_t **bytes_out, uint32_t *size_out)
{
    uint32_t size = ROOM_FIRST;
    for (;;) {
        uint32_t room = size;
        uint8_t *bytes = malloc(room ? room : 1);
        enum shoal_err err = bytes ? shoal_get(store, cid, bytes, room, &size) : SHOAL_ENOMEM;
        if (err == SHOAL_OK) {
            *bytes_out = bytes;
            *size_out = size;
            return SHOAL_OK;
        }
        free(bytes);
        /* Removed and made anew between two gets, it may be larger than it was said to be. */
        if (err != SHOAL_ESIZE || size <= room)
            return err;
    }
}

/* Reads the part that the flags name. */
static enum shoal_err part_read(const struct sh_cmd *cmd, shoal_cid cid, uint8_t **bytes_out,
                                uint32_t *size_out)
{
    uint32_t offset = cmd->flags.offset.bytes, size = cmd->flags.size.bytes;
    enum shoal_err err = SHOAL_OK;
    if (!cmd->flags.size.is_given) {
        err = shoal_size(cmd->store, cid, &size);
        size = size > offset ? size - offset : 0;
    }
    uint8_t *bytes = err == SHOAL_OK ? malloc(size ? size : 1) : NULL;
    if (!bytes)
        return err == SHOAL_OK ? SHOAL_ENOMEM : err;
    err = shoal_get_part(cmd->store, cid, offset, bytes, size);
    if (err != SHOAL_OK) {
        free(bytes);
        return err;
    }
    *bytes_out = bytes;
    *size_out = size;
    return SHOAL_OK;
}

static int json_answer(struct sh_cmd *cmd, shoal_cid cid, struct sh_bytes bytes)
{
    char text[SH_CID_TEXT_MAX], *digits = malloc(2 * bytes.size + 1);
    if (!digits)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    for (size_t i = 0; i < bytes.size; i++) {
        static const char hex[] = "0123456789abcdef";
        digits[2 * i] = hex[bytes.at[i] >> 4];
        digits[2 * i + 1] = hex[bytes.at[i] & 15];
    }
    digits[2 * bytes.size] = '\0';
    struct sh_json *root = sh_json_object();
    sh_json_set_text(root, "cid", sh_cid_format(cid, text));
    sh_json_set_u64(root, "size", bytes.size);
    sh_json_set_text(root, "hex", digits);
    snprintf(text, sizeof text, "%016" PRIx64, shoal_hash(bytes.at, bytes.size));
    sh_json_set_text(root, "hash", text);
    if (sh_text_is_clean(bytes)) {
        char *clean = strndup((const char *)bytes.at, bytes.size);
        if (clean)
            sh_json_set_text(root, "text", clean);
        free(clean);
    }
    free(digits);
    return sh_cmd_answer(cmd, root);
}

static void bytes_print(const struct sh_flags *flags, struct sh_bytes bytes, FILE *out)
{
    if (flags->as_hex) {
        sh_hex_print(bytes, out);
        fputc('\n', out);
    } else if (flags->as_text) {
        sh_text_print(bytes, out);
        fputc('\n', out);
    } else if (flags->as_raw || flags->output) {
        fwrite(bytes.at, 1, bytes.size, out);
    } else {
        sh_dump_print(bytes, out);
    }
}

static int file_write(struct sh_cmd *cmd, struct sh_bytes bytes)
{
    const char *path = cmd->flags.output;
    FILE *file = fopen(path, "we");
    if (!file)
        return sh_cmd_fail(cmd, SHOAL_EIO, "%s: %s", path, strerror(errno));
    bytes_print(&cmd->flags, bytes, file);
    bool failed = fflush(file) != 0 || ferror(file);
    int why = errno;
    if (fclose(file) != 0 && !failed) {
        failed = true;
        why = errno;
    }
    if (failed)
        return sh_cmd_fail(cmd, why == ENOSPC ? SHOAL_ENOSPC : SHOAL_EIO, "%s: %s", path,
                           strerror(why));
    return SH_EXIT_OK;
}

int sh_cmd_run_chunk_get(struct sh_cmd *cmd)
{
    const struct sh_flags *flags = &cmd->flags;
    shoal_cid cid;
    uint8_t *data;
    uint32_t size;
    if (sh_cid_parse(cmd->words[0], &cid) != SHOAL_OK)
        return sh_chunk_usage(cmd, cmd->words[0]);
    if (flags->as_text + flags->as_hex + flags->as_raw > 1)
        return sh_cmd_usage(cmd, "--text, --hex and --raw exclude each other");
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    bool is_part = flags->offset.is_given || flags->size.is_given;
    enum shoal_err err =
        is_part ? part_read(cmd, cid, &data, &size) : sh_chunk_read(cmd->store, cid, &data, &size);
    if (err != SHOAL_OK)
        return sh_chunk_fail(cmd, err, cid);
    struct sh_bytes bytes = sh_bytes_make(data, size);
    if (flags->output)
        status = file_write(cmd, bytes);
    if (status == SH_EXIT_OK && flags->json && flags->output)
        status = sh_chunk_size_answer(cmd, cid, size);
    else if (status == SH_EXIT_OK && flags->json)
        status = json_answer(cmd, cid, bytes);
    else if (status == SH_EXIT_OK && !flags->output)
        bytes_print(flags, bytes, cmd->out);
    free(data);
    return status;
}
