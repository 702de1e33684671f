/* How commands answer: errors for people and as JSON, and the cluster they talk to. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/state_int.h"
#include "cmd/text_int.h"

/* How many nodes are looked at; twice as many as there are node IDs of one cluster in practice. */
#define NODES_FIRST 256

static int exit_status(enum shoal_err err)
{
    switch (err) {
    case SHOAL_OK:
        return SH_EXIT_OK;
    case SHOAL_EOPTION:
        return SH_EXIT_USAGE;
    case SHOAL_EUNREACHABLE:
    case SHOAL_ESECRET:
    case SHOAL_ETLS:
    case SHOAL_ECLUSTER:
    case SHOAL_EVERSION:
        return SH_EXIT_NO_CLUSTER;
    default:
        return SH_EXIT_FAILED;
    }
}

static void error_print(struct sh_cmd *cmd, const char *name, const char *text, const char *detail,
                        const char *hint)
{
    if (cmd->flags.json) {
        struct sh_json *object = sh_json_object();
        sh_json_set_text(object, "error", name);
        sh_json_set_text(object, "text", text);
        sh_json_set_text(object, "detail", detail);
        sh_json_set_text(object, "hint", hint);
        sh_json_print(object, cmd->out);
        sh_json_free(object);
        return;
    }
    fflush(cmd->out);
    fprintf(stderr, "shoal%s%s: %s%s%s\n", cmd->command ? " " : "",
            cmd->command ? cmd->command->name : "", text, *text && *detail ? ": " : "", detail);
    if (*hint)
        fprintf(stderr, "  hint: %s\n", hint);
}

int sh_cmd_fail_hint(struct sh_cmd *cmd, enum shoal_err err, const char *detail, const char *hint)
{
    SH_ASSERT(err != SHOAL_OK);
    error_print(cmd, shoal_err_name(err), shoal_err_text(err), detail, hint);
    return exit_status(err);
}

int sh_cmd_fail(struct sh_cmd *cmd, enum shoal_err err, const char *format, ...)
{
    char detail[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    return sh_cmd_fail_hint(cmd, err, detail, shoal_err_hint(err));
}

int sh_cmd_fail_node(struct sh_cmd *cmd, enum shoal_err err, shoal_nid nid)
{
    const char *detail = shoal_error_detail();
    /* Some name the node by themselves. */
    if (strncmp(detail, "node ", 5) == 0)
        return sh_cmd_fail(cmd, err, "%s", detail);
    return sh_cmd_fail(cmd, err, "node %u%s%s", (unsigned)nid.v, *detail ? ": " : "", detail);
}

int sh_cmd_usage(struct sh_cmd *cmd, const char *format, ...)
{
    char detail[1024], hint[160];
    va_list args;
    va_start(args, format);
    vsnprintf(detail, sizeof detail, format, args);
    va_end(args);
    if (cmd->command)
        snprintf(hint, sizeof hint, "usage: shoal %s%s%s; see shoal %s --help", cmd->command->name,
                 *cmd->command->arguments ? " " : "", cmd->command->arguments, cmd->command->name);
    else
        snprintf(hint, sizeof hint, "see shoal --help");
    if (cmd->flags.json)
        error_print(cmd, shoal_err_name(SHOAL_EINVAL), shoal_err_text(SHOAL_EINVAL), detail, hint);
    else
        error_print(cmd, "", detail, "", hint);
    return SH_EXIT_USAGE;
}

int sh_cmd_time(struct sh_cmd *cmd, const char *name, const char *text, uint64_t least_ns,
                uint64_t most_ns, uint64_t *ns_inout)
{
    size_t size = text ? strlen(text) : 0;
    /* Without a unit it would be nanoseconds, which nobody means. */
    bool has_unit = size && (text[size - 1] < '0' || text[size - 1] > '9');
    uint64_t ns;
    if (!text)
        return SH_EXIT_OK;
    if ((!has_unit && strcmp(text, "0") != 0) || sh_number_parse(text, "ns", &ns) != SHOAL_OK)
        return sh_cmd_usage(
            cmd, "--%s: \"%.40s\" is not a time (a number and ns, us, ms, s or min)", name, text);
    if (ns < least_ns)
        return sh_cmd_usage(cmd, "--%s is %" PRIu64 " ms at least", name, least_ns / 1000000);
    if (ns > most_ns)
        return sh_cmd_usage(cmd, "--%s is %" PRIu64 " min at most", name,
                            most_ns / UINT64_C(60000000000));
    *ns_inout = ns;
    return SH_EXIT_OK;
}

int sh_cmd_answer(struct sh_cmd *cmd, struct sh_json *root)
{
    sh_json_print(root, cmd->out);
    sh_json_free(root);
    return SH_EXIT_OK;
}

/* An option that says nothing takes what the state folder says. */
static enum shoal_err take_over(struct sh_cmd *cmd, const char *name, const char *now,
                                const char *nothing, const char *noted, const char *folder,
                                struct sh_options_error *error_out)
{
    if (strcmp(now, nothing) != 0 || *noted == '\0')
        return SHOAL_OK;
    return sh_options_set(&cmd->options, name, noted, folder, error_out);
}

static enum shoal_err take_over_secrets(struct sh_cmd *cmd, const struct sh_state *state,
                                        const char *folder, struct sh_options_error *error_out)
{
    const struct sh_options *now = &cmd->options;
    enum shoal_err err =
        take_over(cmd, "secret_file", now->secret_file, "", state->secret_file, folder, error_out);
    if (err == SHOAL_OK)
        err = take_over(cmd, "tls", now->tls, "off", state->tls, folder, error_out);
    if (err == SHOAL_OK)
        err = take_over(cmd, "tls_cert_file", now->tls_cert_file, "", state->tls_cert_file, folder,
                        error_out);
    if (err == SHOAL_OK)
        err = take_over(cmd, "tls_key_file", now->tls_key_file, "", state->tls_key_file, folder,
                        error_out);
    if (err == SHOAL_OK)
        err = take_over(cmd, "tls_ca_file", now->tls_ca_file, "", state->tls_ca_file, folder,
                        error_out);
    return err;
}

#define PEERS_CALLED 4 /* besides the superpeers: those may have been demoted since */

/* Takes the addresses of the state folder's cluster, and its name, secret and TLS where the
 * options do not say another. */
static int use_state(struct sh_cmd *cmd, char folder_out[SH_STATE_PATH_MAX])
{
    struct sh_state state;
    char detail[SH_STATE_TEXT_MAX] = "", hint[SH_STATE_PATH_MAX + 128];
    enum shoal_err err = sh_state_folder(cmd->flags.dir, folder_out, detail);
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "%s", detail);
    err = sh_state_read(folder_out, &state, detail);
    if (err == SHOAL_ENONAME) {
        snprintf(detail, sizeof detail, "no cluster was started in %s", folder_out);
        snprintf(hint, sizeof hint,
                 "start one with `shoal up 3`, or name one with --connect HOST:PORT");
        return sh_cmd_fail_hint(cmd, SHOAL_EUNREACHABLE, detail, hint);
    }
    if (err != SHOAL_OK)
        return sh_cmd_fail(cmd, err, "%s", detail);
    struct sh_options_error error;
    char addresses[SH_STATE_TEXT_MAX];
    sh_state_addresses(&state, PEERS_CALLED, addresses, sizeof addresses);
    err = sh_options_set(&cmd->options, "connect", addresses, folder_out, &error);
    if (err == SHOAL_OK && strcmp(cmd->options.cluster, "shoal") == 0)
        err = sh_options_set(&cmd->options, "cluster", state.cluster, folder_out, &error);
    if (err == SHOAL_OK)
        err = take_over_secrets(cmd, &state, folder_out, &error);
    sh_state_free(&state);
    return err == SHOAL_OK ? SH_EXIT_OK : sh_cmd_fail(cmd, err, "%s", error.text);
}

int sh_cmd_open(struct sh_cmd *cmd)
{
    char folder[SH_STATE_PATH_MAX] = "", detail[256] = "";
    bool named = cmd->options.connect.count > 0 || cmd->options.superpeers.count > 0;
    if (!named || cmd->flags.dir) {
        int status = use_state(cmd, folder);
        if (status != SH_EXIT_OK)
            return status;
    }
    enum shoal_err err = sh_client_open(&cmd->options, &cmd->store, detail);
    if (err == SHOAL_OK)
        return SH_EXIT_OK;
    if (err == SHOAL_EUNREACHABLE && *folder) {
        char hint[SH_STATE_PATH_MAX + 128];
        snprintf(hint, sizeof hint,
                 "the cluster in %s does not answer; `shoal down` clears what is left of it",
                 folder);
        return sh_cmd_fail_hint(cmd, err, detail, hint);
    }
    return sh_cmd_fail(cmd, err, "%s", detail);
}

enum shoal_err sh_cmd_nodes_read(struct sh_cmd *cmd, struct shoal_node **nodes_out,
                                 size_t *count_out)
{
    size_t room = NODES_FIRST, count = 0;
    for (;;) {
        struct shoal_node *nodes = calloc(room, sizeof *nodes);
        enum shoal_err err = nodes ? shoal_nodes(cmd->store, nodes, room, &count) : SHOAL_ENOMEM;
        if (err == SHOAL_OK && count <= room) {
            *nodes_out = nodes;
            *count_out = count;
            return SHOAL_OK;
        }
        free(nodes);
        if (err != SHOAL_OK)
            return err;
        room = count + NODES_FIRST; /* some more may join before the next look */
    }
}

int sh_cmd_nodes(struct sh_cmd *cmd, struct shoal_node **nodes_out, size_t *count_out)
{
    enum shoal_err err = sh_cmd_nodes_read(cmd, nodes_out, count_out);
    if (err == SHOAL_OK)
        return SH_EXIT_OK;
    return sh_cmd_fail(cmd, err, "%s", err == SHOAL_ENOMEM ? "" : shoal_error_detail());
}

int sh_cmd_open_for_node(struct sh_cmd *cmd, shoal_nid *nid_out)
{
    *nid_out = SHOAL_NID_NONE;
    if (cmd->word_count > 0 && sh_nid_parse(cmd->words[0], nid_out) != SHOAL_OK)
        return sh_cmd_usage(cmd, "\"%.40s\" is not a node ID (1 to 65535; see `shoal node list`)",
                            cmd->words[0]);
    return sh_cmd_open(cmd);
}

int sh_cmd_each_peer(struct sh_cmd *cmd, shoal_nid only,
                     enum shoal_err (*visit)(void *arg, shoal_nid nid), void *arg)
{
    struct shoal_node *nodes = NULL;
    size_t count = 1;
    int status = only.v == 0 ? sh_cmd_nodes(cmd, &nodes, &count) : SH_EXIT_OK;
    for (size_t i = 0; i < count && status == SH_EXIT_OK; i++) {
        shoal_nid nid = nodes ? nodes[i].nid : only;
        if (nodes && (nodes[i].role != SHOAL_PEER || nodes[i].state != SHOAL_NODE_UP))
            continue;
        enum shoal_err err = visit(arg, nid);
        if (err != SHOAL_OK)
            status = sh_cmd_fail_node(cmd, err, nid);
    }
    free(nodes);
    return status;
}
