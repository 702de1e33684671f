/* shoal up: a cluster on this machine, of real processes, all of it or nothing. */
#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "client/client.h"
#include "cmd/command_int.h"
#include "cmd/process_int.h"
#include "cmd/state_int.h"

#define PEERS_MAX 256
#define SUPERPEERS_MAX SH_OPTION_LIST_MAX
#define READY_DEADLINE_MS 60000
#define STOP_DEADLINE_MS 10000
#define TAIL_LINES 10

_Static_assert(PEERS_MAX + SUPERPEERS_MAX <= SH_STATE_NODES_MAX, "the note has room for all");

struct up {
    struct sh_cmd *cmd;
    struct sh_state state;
    char folder[SH_STATE_PATH_MAX];
    char program[SH_STATE_PATH_MAX];
    char superpeers[SH_STATE_TEXT_MAX]; /* addresses, once they are known */
    char detail[SH_STATE_TEXT_MAX];
};

static volatile sig_atomic_t interrupted;

static void note_interrupt(int number)
{
    interrupted = number;
}

/* --- Before anything is started ------------------------------------------------------------ */

/* Options that differ from node to node, which `up` gives. */
static bool is_ours(const char *word)
{
    static const char *const ours[] = {"--roles",          "--listen",       "--superpeers",
                                       "--connect",        "--ready-file",   "--data-dir",
                                       "--log-file",       "--local-socket", "--advertise",
                                       "--superpeer-port", "--log-device"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        size_t size = strlen(ours[i]);
        if (strncmp(word, ours[i], size) == 0 && (word[size] == '\0' || word[size] == '='))
            return true;
    }
    return false;
}

static int check_arguments(struct up *up, uint64_t *peers_out, uint64_t *superpeers_out)
{
    struct sh_cmd *cmd = up->cmd;
    uint64_t peers, superpeers = cmd->flags.superpeers ? cmd->flags.superpeers : 1;
    if (sh_number_parse(cmd->words[0], "", &peers) != SHOAL_OK || peers < 1 || peers > PEERS_MAX)
        return sh_cmd_usage(cmd, "\"%.40s\" is not a number of peers from 1 to %d", cmd->words[0],
                            PEERS_MAX);
    if (superpeers > SUPERPEERS_MAX)
        return sh_cmd_usage(cmd, "--superpeers: at most %d", SUPERPEERS_MAX);
    for (size_t i = 0; i < cmd->option_word_count; i++)
        if (is_ours(cmd->option_words[i]))
            return sh_cmd_usage(cmd, "%.40s differs from node to node: `shoal up` sets it",
                                cmd->option_words[i]);
    *peers_out = peers;
    *superpeers_out = superpeers;
    return SH_EXIT_OK;
}

/* shoald lies beside this program, or else is found through PATH. */
static void find_program(struct up *up)
{
    char path[SH_STATE_PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", path, sizeof path - 16);
    snprintf(up->program, sizeof up->program, "shoald");
    if (size <= 0)
        return;
    path[size] = '\0';
    char *name = strrchr(path, '/');
    if (!name)
        return;
    memcpy(name + 1, "shoald", sizeof "shoald");
    if (access(path, X_OK) == 0)
        memcpy(up->program, path, strlen(path) + 1);
}

/* Refuses to touch a folder with a running cluster; clears what a dead one has left. */
static enum shoal_err clear_old(struct up *up)
{
    struct sh_state old;
    enum shoal_err err = sh_state_read(up->folder, &old, up->detail);
    if (err == SHOAL_ENONAME)
        return SHOAL_OK;
    if (err != SHOAL_OK)
        return err;
    if (sh_state_running(&old) > 0) {
        snprintf(up->detail, sizeof up->detail, "a cluster is running in %s", up->folder);
        err = SHOAL_EEXIST;
    } else {
        old.made_folder = false;
        sh_state_clear(up->folder, &old);
    }
    sh_state_free(&old);
    return err;
}

/* Finds ports that are free now. Superpeers must know each other's before they start; the sockets
 * stay open until all are found, so that no port is found twice. */
static enum shoal_err find_ports(struct up *up, size_t count)
{
    int sockets[SUPERPEERS_MAX];
    size_t made = 0, used = 0;
    SH_ASSERT(count <= SUPERPEERS_MAX);
    for (; made < count; made++) {
        struct sockaddr_in address = {.sin_family = AF_INET,
                                      .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t size = sizeof address;
        sockets[made] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (sockets[made] < 0)
            break;
        if (bind(sockets[made], (struct sockaddr *)&address, size) != 0 ||
            getsockname(sockets[made], (struct sockaddr *)&address, &size) != 0) {
            close(sockets[made]);
            break;
        }
        char *text = up->state.nodes[made].address;
        snprintf(text, sizeof up->state.nodes[made].address, "127.0.0.1:%u",
                 (unsigned)ntohs(address.sin_port));
        used += (size_t)snprintf(up->superpeers + used, sizeof up->superpeers - used, "%s%s",
                                 used ? "," : "", text);
    }
    if (made < count)
        snprintf(up->detail, sizeof up->detail, "no free port: %s", strerror(errno));
    for (size_t i = 0; i < made; i++)
        close(sockets[i]);
    return made < count ? SHOAL_EIO : SHOAL_OK;
}

/* --- Starting ------------------------------------------------------------------------------ */

#define WORDS_OF_OURS 20

/* Starts the node that follows the last one in the state, and notes it. */
static enum shoal_err start_node(struct up *up, bool superpeer, size_t number)
{
    struct sh_state_node *node = &up->state.nodes[up->state.count];
    char ready[SH_STATE_PATH_MAX + 64], log[SH_STATE_PATH_MAX + 64], data[SH_STATE_PATH_MAX + 64];
    char why[256] = "";
    SH_ASSERT(up->state.count < SH_STATE_NODES_MAX);
    snprintf(node->name, sizeof node->name, "%s%zu", superpeer ? "superpeer" : "peer", number);
    node->superpeer = superpeer;
    sh_state_path(up->folder, node->name, "ready", ready);
    sh_state_path(up->folder, node->name, "log", log);
    sh_state_path(up->folder, node->name, "data", data);
    unlink(ready);
    unlink(log);
    const char *ours[WORDS_OF_OURS] = {
        "--roles",      superpeer ? "superpeer" : "peer",
        "--listen",     *node->address ? node->address : "127.0.0.1:0",
        "--advertise",  "",
        "--superpeers", up->superpeers,
        "--ready-file", ready,
        "--data-dir",   data,
        "--log-file",   ""};
    size_t given = up->cmd->option_word_count, at = 0;
    const char **argv = calloc(given + WORDS_OF_OURS + 2, sizeof *argv);
    if (!argv)
        return SHOAL_ENOMEM;
    argv[at++] = up->program;
    for (size_t i = 0; i < given; i++)
        argv[at++] = up->cmd->option_words[i];
    for (size_t i = 0; i < WORDS_OF_OURS && ours[i]; i++)
        argv[at++] = ours[i];
    enum shoal_err err = sh_process_start(argv, log, &node->pid, &node->started, why);
    free(argv);
    if (err != SHOAL_OK) {
        snprintf(up->detail, sizeof up->detail, "%s: %s", node->name, why);
        unlink(log);
        return err;
    }
    up->state.count++;
    return sh_state_write(up->folder, &up->state, up->detail);
}

/* Reads what a node wrote once it served; false while it has not. */
static bool ready_read(struct up *up, struct sh_state_node *node)
{
    char path[SH_STATE_PATH_MAX + 64], line[256];
    sh_state_path(up->folder, node->name, "ready", path);
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file)) {
        unsigned nid;
        line[strcspn(line, "\n")] = '\0';
        if (sscanf(line, "nid=%u", &nid) == 1)
            node->nid = (shoal_nid){(uint16_t)nid};
        else if (strncmp(line, "address=", 8) == 0)
            snprintf(node->address, sizeof node->address, "%.63s", line + 8);
    }
    fclose(file);
    return node->nid.v != 0 && *node->address;
}

/* Says why a node did not start, with the end of its log. */
static void explain(struct up *up, const struct sh_state_node *node, const char *what)
{
    char path[SH_STATE_PATH_MAX + 64], tail[2048];
    sh_state_path(up->folder, node->name, "log", path);
    sh_file_tail(path, TAIL_LINES, tail, sizeof tail);
    snprintf(up->detail, sizeof up->detail, "%s %s%s%s", node->name, what,
             *tail ? "; the end of its log:\n" : "", tail);
}

/* Why the cluster can't be waited for any more: a node has ended. */
static bool has_ended(struct up *up, const struct sh_state_node *node)
{
    char what[96];
    int status;
    if (waitpid(node->pid, &status, WNOHANG) != node->pid)
        return false;
    if (WIFSIGNALED(status))
        snprintf(what, sizeof what, "was ended by signal %d", WTERMSIG(status));
    else
        snprintf(what, sizeof what, "ended with status %d", WEXITSTATUS(status));
    explain(up, node, what);
    return true;
}

/* Waits until that is so of all nodes from `first` on, of which one that it is not so of in time `did_not`. */
static enum shoal_err nodes_await(struct up *up, size_t first,
                                  bool (*is_so)(struct up *up, struct sh_state_node *node),
                                  const char *did_not)
{
    uint64_t end_ms = sh_process_now_ms() + READY_DEADLINE_MS;
    for (size_t i = first; i < up->state.count;) {
        struct sh_state_node *node = &up->state.nodes[i];
        char what[96];
        if (is_so(up, node)) {
            i++;
            continue;
        }
        for (size_t k = 0; k < up->state.count; k++) {
            if (has_ended(up, &up->state.nodes[k]))
                return SHOAL_ESTART;
        }
        if (interrupted) {
            snprintf(up->detail, sizeof up->detail, "interrupted; all nodes are stopped again");
            return SHOAL_ECANCELED;
        }
        if (sh_process_now_ms() > end_ms) {
            snprintf(what, sizeof what, "%s within %d seconds", did_not, READY_DEADLINE_MS / 1000);
            explain(up, node, what);
            return SHOAL_ETIMEOUT;
        }
        sh_process_pause();
    }
    return SHOAL_OK;
}

static enum shoal_err wait_ready(struct up *up, size_t first)
{
    return nodes_await(up, first, ready_read, "did not serve");
}

/* Whether a peer knows all nodes. */
static bool knows_all(struct up *up, struct sh_state_node *node)
{
    struct sh_options_error error;
    shoal *store;
    if (node->superpeer)
        return true;
    if (sh_options_set(&up->cmd->options, "connect", node->address, node->name, &error) ||
        sh_client_open(&up->cmd->options, &store, up->detail))
        return false;
    size_t count = sh_client_nodes_known(store);
    shoal_close(store);
    return count >= up->state.count;
}

/* A peer hears of a node that has come when that one serves already. One that does not know the others yet refuses writes which need a replica. */
static enum shoal_err wait_known(struct up *up)
{
    return nodes_await(up, 0, knows_all, "did not hear of all other nodes");
}

static enum shoal_err start_all(struct up *up, size_t peers, size_t superpeers)
{
    enum shoal_err err = superpeers > 1 ? find_ports(up, superpeers) : SHOAL_OK;
    for (size_t i = 1; i <= superpeers && err == SHOAL_OK; i++)
        err = start_node(up, true, i);
    if (err == SHOAL_OK)
        err = wait_ready(up, 0);
    if (err == SHOAL_OK)
        sh_state_addresses(&up->state, 0, up->superpeers, sizeof up->superpeers);
    /* Nodes get their IDs in the order in which they join. One after the other, peerN has the same
     * ID in each cluster of the folder, and so finds the dumps of its chunks in its own data. */
    for (size_t i = 1; i <= peers && err == SHOAL_OK; i++) {
        err = start_node(up, false, i);
        if (err == SHOAL_OK)
            err = wait_ready(up, up->state.count - 1);
    }
    if (err == SHOAL_OK)
        err = wait_known(up);
    up->state.complete = true;
    if (err == SHOAL_OK)
        err = sh_state_write(up->folder, &up->state, up->detail);
    return err;
}

/* --- The command --------------------------------------------------------------------------- */

static int report(struct up *up)
{
    struct sh_cmd *cmd = up->cmd;
    if (cmd->flags.json) {
        struct sh_json *root = sh_json_object(), *nodes = sh_json_array();
        sh_json_set_text(root, "dir", up->folder);
        for (size_t i = 0; i < up->state.count; i++) {
            const struct sh_state_node *node = &up->state.nodes[i];
            struct sh_json *row = sh_json_object();
            sh_json_set_u64(row, "nid", node->nid.v);
            sh_json_set_text(row, "role", node->superpeer ? "superpeer" : "peer");
            sh_json_set_text(row, "address", node->address);
            sh_json_set_u64(row, "pid", (uint64_t)node->pid);
            sh_json_append(nodes, row);
        }
        sh_json_set(root, "nodes", nodes);
        return sh_cmd_answer(cmd, root);
    }
    for (size_t i = 0; i < up->state.count; i++) {
        const struct sh_state_node *node = &up->state.nodes[i];
        fprintf(cmd->out, "%-12s node %-5u %-22s process %d\n", node->name, (unsigned)node->nid.v,
                node->address, (int)node->pid);
    }
    fprintf(cmd->out, "The cluster serves. Its logs are in %s; `shoal down%s%s` stops it.\n",
            up->folder, cmd->flags.dir ? " --dir " : "", cmd->flags.dir ? cmd->flags.dir : "");
    return SH_EXIT_OK;
}

/* A file's absolute path, for commands that run elsewhere; 4096 bytes. */
static void note_path(char *note_out, const char *option)
{
    char *path = *option ? realpath(option, NULL) : NULL;
    snprintf(note_out, 4096, "%s", path ? path : option);
    free(path);
}

static enum shoal_err prepare(struct up *up, int *lock_out)
{
    const struct sh_options *options = &up->cmd->options;
    bool made = false;
    enum shoal_err err = sh_state_create(&up->state);
    if (err == SHOAL_OK)
        err = sh_state_folder(up->cmd->flags.dir, up->folder, up->detail);
    if (err == SHOAL_OK)
        err = sh_state_make(up->folder, &made, up->detail);
    up->state.made_folder = made;
    if (err == SHOAL_OK)
        err = sh_state_lock(up->folder, lock_out, up->detail);
    if (err == SHOAL_OK)
        err = clear_old(up);
    snprintf(up->state.cluster, sizeof up->state.cluster, "%s", options->cluster);
    note_path(up->state.secret_file, options->secret_file);
    snprintf(up->state.tls, sizeof up->state.tls, "%s", options->tls);
    note_path(up->state.tls_cert_file, options->tls_cert_file);
    note_path(up->state.tls_key_file, options->tls_key_file);
    note_path(up->state.tls_ca_file, options->tls_ca_file);
    return err;
}

/* Signals that ask us to end are taken note of: what was started must be stopped first. */
static void catch_interrupts(void)
{
    struct sigaction action = {.sa_handler = note_interrupt};
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

int sh_cmd_run_up(struct sh_cmd *cmd)
{
    uint64_t peers = 0, superpeers = 0;
    int lock = -1;
    struct up *up = calloc(1, sizeof *up);
    if (!up)
        return sh_cmd_fail(cmd, SHOAL_ENOMEM, "%s", "");
    up->cmd = cmd;
    int status = check_arguments(up, &peers, &superpeers);
    if (status != SH_EXIT_OK)
        goto out_free;
    find_program(up);
    catch_interrupts();
    enum shoal_err err = prepare(up, &lock);
    bool ours = err == SHOAL_OK;
    if (err == SHOAL_OK)
        err = start_all(up, peers, superpeers);
    if (err == SHOAL_OK) {
        status = report(up);
    } else {
        if (ours) {
            sh_state_stop(&up->state, STOP_DEADLINE_MS);
            sh_state_clear(up->folder, &up->state);
        }
        if (err == SHOAL_EEXIST)
            status = sh_cmd_fail_hint(cmd, err, up->detail, "stop it first with `shoal down`");
        else
            status = sh_cmd_fail(cmd, err, "%s", up->detail);
    }
out_free:
    if (lock >= 0)
        close(lock);
    sh_state_free(&up->state);
    free(up);
    return status;
}
