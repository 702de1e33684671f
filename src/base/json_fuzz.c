/* Fuzzes reading: whatever the bytes, parsing ends in a tree or in an error with a place, every
 * member of a tree has a place, and what is printed can be parsed again. */
#include "base/json.h"

#include <stdlib.h>

#include "base/assert.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void print_and_parse_again(const struct sh_json *root)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    SH_ASSERT(out != NULL);
    sh_json_print(root, out);
    int failure = fclose(out);
    SH_ASSERT(failure == 0);
    struct sh_json *again = NULL;
    struct sh_json_error error;
    enum shoal_err err = sh_json_parse(text, size, &again, &error);
    SH_ASSERT(err == SHOAL_OK);
    SH_ASSERT(sh_json_count(again) == sh_json_count(root));
    sh_json_free(again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct sh_json *root = NULL;
    struct sh_json_error error = {0, 0, ""};
    if (sh_json_parse((const char *)data, size, &root, &error) != SHOAL_OK) {
        SH_ASSERT(error.line >= 1 && error.column >= 1 && error.text[0] != '\0');
        return 0;
    }
    size_t members = sh_json_is_object(root) ? sh_json_count(root) : 0;
    int line = 0, column = 0;
    for (size_t i = 0; i < members; i++) {
        bool found = sh_json_member_place((const char *)data, size, i, &line, &column);
        SH_ASSERT(found);
    }
    bool more = sh_json_member_place((const char *)data, size, members, &line, &column);
    SH_ASSERT(!more);
    print_and_parse_again(root);
    sh_json_free(root);
    return 0;
}
