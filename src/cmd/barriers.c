/* shoal barrier create, wait, status, list, resize, free. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/names_int.h"
#include "cmd/text_int.h"

#define ID_DIGITS 12

/* An ID is typed and printed as 12 hexadecimal digits. The exit status. */
static int id_read(struct sh_cmd *cmd, shoal_barrier *barrier_out)
{
    const char *word = cmd->words[0];
    if (strlen(word) != ID_DIGITS || strspn(word, "0123456789abcdefABCDEF") != ID_DIGITS)
        return sh_cmd_usage(cmd, "\"%.60s\" is no barrier's ID: %d hexadecimal digits", word,
                            ID_DIGITS);
    barrier_out->v = strtoull(word, NULL, 16);
    return SH_EXIT_OK;
}

/* A number of members. The exit status. */
static int size_read(struct sh_cmd *cmd, const char *word, uint32_t *size_out)
{
    char *end;
    unsigned long size = strtoul(word, &end, 10);
    if (word[0] < '0' || word[0] > '9' || *end || !size || size > SHOAL_BARRIER_SIZE_MAX)
        return sh_cmd_usage(cmd, "\"%.40s\" is not a number of members: 1 to %d", word,
                            SHOAL_BARRIER_SIZE_MAX);
    *size_out = (uint32_t)size;
    return SH_EXIT_OK;
}

static void id_json(struct sh_json *root, shoal_barrier barrier)
{
    char text[32];
    snprintf(text, sizeof text, "%0*" PRIx64, ID_DIGITS, barrier.v);
    sh_json_set_text(root, "barrier", text);
}

/* A change was made, or not. */
static int changed_answer(struct sh_cmd *cmd, enum shoal_err err, shoal_barrier barrier,
                          uint32_t size)
{
    if (err)
        return sh_names_fail(cmd, err, cmd->words[0]);
    if (!cmd->flags.json)
        return SH_EXIT_OK;
    struct sh_json *root = sh_json_object();
    id_json(root, barrier);
    if (size)
        sh_json_set_u64(root, "size", size);
    return sh_cmd_answer(cmd, root);
}

int sh_cmd_run_barrier_create(struct sh_cmd *cmd)
{
    shoal_barrier barrier;
    uint32_t size;
    int status = size_read(cmd, cmd->words[0], &size);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_barrier_create(
        cmd->store, size, cmd->flags.survivors ? SHOAL_BARRIER_SURVIVORS : SHOAL_BARRIER_TELL,
        &barrier);
    if (!err && !cmd->flags.json)
        fprintf(cmd->out, "%0*" PRIx64 "\n", ID_DIGITS, barrier.v);
    return changed_answer(cmd, err, barrier, size);
}

int sh_cmd_run_barrier_resize(struct sh_cmd *cmd)
{
    shoal_barrier barrier;
    uint32_t size;
    int status = id_read(cmd, &barrier);
    if (status == SH_EXIT_OK)
        status = size_read(cmd, cmd->words[1], &size);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    return changed_answer(cmd, shoal_barrier_resize(cmd->store, barrier, size), barrier, size);
}

int sh_cmd_run_barrier_free(struct sh_cmd *cmd)
{
    shoal_barrier barrier;
    int status = id_read(cmd, &barrier);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    return changed_answer(cmd, shoal_barrier_free(cmd->store, barrier), barrier, 0);
}

/* --- List ------------------------------------------------------------------------------------- */

struct listing {
    struct sh_cmd *cmd;
    struct sh_json *list; /* with --json */
    unsigned count;
};

static bool info_add(void *arg, const struct shoal_barrier_info *info)
{
    struct listing *listing = arg;
    if (listing->list) {
        struct sh_json *one = sh_json_object();
        id_json(one, info->barrier);
        sh_json_set_u64(one, "size", info->size);
        sh_json_set_u64(one, "signed", info->count);
        sh_json_set_u64(one, "round", info->round);
        sh_json_set_bool(one, "survivors", info->survivors);
        sh_json_append(listing->list, one);
        return true;
    }
    if (!listing->count++)
        fprintf(listing->cmd->out, "BARRIER            SIZE   SIGNED      ROUND\n");
    fprintf(listing->cmd->out, "%0*" PRIx64 "  %8" PRIu32 " %8" PRIu32 " %10" PRIu64 "%s\n",
            ID_DIGITS, info->barrier.v, info->size, info->count, info->round,
            info->survivors ? "  survivors go on" : "");
    return true;
}

int sh_cmd_run_barrier_list(struct sh_cmd *cmd)
{
    struct listing listing = {.cmd = cmd};
    int status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    if (cmd->flags.json)
        listing.list = sh_json_array();
    enum shoal_err err = shoal_barrier_list(cmd->store, info_add, &listing);
    if (err) {
        sh_json_free(listing.list);
        return sh_names_fail(cmd, err, "barriers");
    }
    if (!listing.list)
        return SH_EXIT_OK;
    struct sh_json *root = sh_json_object();
    sh_json_set(root, "barriers", listing.list);
    return sh_cmd_answer(cmd, root);
}

/* --- Rounds ---------------------------------------------------------------------------------- */

static int round_json(struct sh_cmd *cmd, shoal_barrier barrier,
                      const struct shoal_barrier_round *round)
{
    char text[32];
    struct sh_json *root = sh_json_object(), *list = sh_json_array();
    id_json(root, barrier);
    sh_json_set_u64(root, "size", round->size);
    sh_json_set_bool(root, "survivors", round->survivors);
    sh_json_set_u64(root, "round", round->number);
    for (uint32_t i = 0; i < round->count; i++) {
        const struct shoal_barrier_member *member = &round->members[i];
        struct sh_json *one = sh_json_object();
        snprintf(text, sizeof text, "%016" PRIx64, member->id);
        sh_json_set_text(one, "member", text);
        sh_json_set_bool(one, "self", member->id == round->self);
        sh_names_json_bytes(one, sh_bytes_make(member->data, member->size));
        sh_json_append(list, one);
    }
    sh_json_set(root, "members", list);
    return sh_cmd_answer(cmd, root);
}

static int round_answer(struct sh_cmd *cmd, shoal_barrier barrier,
                        struct shoal_barrier_round *round, const char *what)
{
    int status = SH_EXIT_OK;
    if (cmd->flags.json) {
        status = round_json(cmd, barrier, round);
    } else {
        fprintf(cmd->out, "Round %" PRIu64 " %s: %" PRIu32 " of %" PRIu32 " members%s.\n",
                round->number, what, round->count, round->size,
                round->survivors ? " (survivors go on)" : "");
        for (uint32_t i = 0; i < round->count; i++) {
            const struct shoal_barrier_member *member = &round->members[i];
            fprintf(cmd->out, "%016" PRIx64 "%s ", member->id,
                    member->id == round->self ? "*" : " ");
            sh_text_print(sh_bytes_make(member->data, member->size), cmd->out);
            fputc('\n', cmd->out);
        }
    }
    shoal_barrier_round_free(round);
    return status;
}

int sh_cmd_run_barrier_status(struct sh_cmd *cmd)
{
    shoal_barrier barrier;
    struct shoal_barrier_round *round;
    int status = id_read(cmd, &barrier);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK)
        return status;
    enum shoal_err err = shoal_barrier_status(cmd->store, barrier, &round);
    if (err)
        return sh_names_fail(cmd, err, cmd->words[0]);
    return round_answer(cmd, barrier, round, "is open");
}

static int broken(struct sh_cmd *cmd, struct shoal_barrier_round *round)
{
    int status = SH_EXIT_FAILED;
    if (round && round->gone && round->gone != round->self)
        status = sh_cmd_fail(cmd, SHOAL_EBROKEN, "member %016" PRIx64, round->gone);
    else
        status = sh_cmd_fail(cmd, SHOAL_EBROKEN, "this one was cut off, and taken for dead");
    shoal_barrier_round_free(round);
    return status;
}

int sh_cmd_run_barrier_wait(struct sh_cmd *cmd)
{
    shoal_barrier barrier;
    struct shoal_barrier_round *round = NULL;
    uint8_t *bytes = NULL;
    uint32_t size = 0;
    uint64_t within_ns;
    int status = id_read(cmd, &barrier);
    if (status == SH_EXIT_OK)
        status = sh_names_within(cmd, &within_ns);
    if (status == SH_EXIT_OK)
        status = sh_names_content(cmd, SHOAL_BARRIER_DATA_MAX, &bytes, &size);
    if (status == SH_EXIT_OK)
        status = sh_cmd_open(cmd);
    if (status != SH_EXIT_OK) {
        free(bytes);
        return status;
    }
    enum shoal_err err = shoal_barrier_wait(cmd->store, barrier, bytes, size, within_ns, &round);
    free(bytes);
    if (err == SHOAL_EBROKEN)
        return broken(cmd, round);
    if (err)
        return sh_names_fail(cmd, err, cmd->words[0]);
    return round_answer(cmd, barrier, round, "is over");
}
