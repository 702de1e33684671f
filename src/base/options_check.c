/* The checks that concern an option's meaning, or several options at once. */
#include "base/options.h"
#include <inttypes.h>

#include <arpa/inet.h>
#include <string.h>

#include "base/bytes.h"
#include "base/log.h"
#include "base/options_int.h"

#define HOST_MAX 253 /* a domain name's most bytes */

struct address {
    char host[HOST_MAX + 1]; /* without brackets */
    unsigned port;
};

static bool parse_port(const char *text, unsigned *port_out)
{
    uint64_t port = 0;
    if (sh_number_parse(text, "", &port) != SHOAL_OK || port > 65535 || strlen(text) > 5)
        return false;
    *port_out = (unsigned)port;
    return true;
}

/* HOST:PORT, where HOST is a name, an IPv4 address or an IPv6 address in brackets. */
static bool parse_address(const char *text, struct address *address_out)
{
    const char *colon = strrchr(text, ':');
    if (!colon || !parse_port(colon + 1, &address_out->port))
        return false;
    bool bracketed = *text == '[' && colon > text + 1 && colon[-1] == ']';
    const char *host = text + bracketed;
    size_t size = (size_t)(colon - host) - bracketed;
    if (size == 0 || size > HOST_MAX)
        return false;
    memcpy(address_out->host, host, size);
    address_out->host[size] = '\0';
    struct in6_addr ipv6;
    if (bracketed)
        return inet_pton(AF_INET6, address_out->host, &ipv6) == 1;
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return strspn(address_out->host, allowed) == size;
}

static bool is_loopback(const char *host)
{
    struct in_addr ipv4;
    struct in6_addr ipv6;
    if (inet_pton(AF_INET, host, &ipv4) == 1)
        return ntohl(ipv4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &ipv6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&ipv6);
    return strcmp(host, "localhost") == 0;
}

/* Whether a host stands for all addresses of its machine. inet_aton takes the short forms, too. */
static bool is_wildcard(const char *host)
{
    struct in_addr ipv4;
    struct in6_addr ipv6;
    if (inet_aton(host, &ipv4))
        return ipv4.s_addr == htonl(INADDR_ANY);
    if (inet_pton(AF_INET6, host, &ipv6) != 1)
        return false;
    static const struct in6_addr mapped = {.s6_addr = {[10] = 0xFF, [11] = 0xFF}};
    return IN6_IS_ADDR_UNSPECIFIED(&ipv6) || memcmp(&ipv6, &mapped, sizeof ipv6) == 0;
}

bool sh_address_is_wildcard(const char *text)
{
    struct address address;
    return parse_address(text, &address) && is_wildcard(address.host);
}

/* Others connect to the address that they are told, so a wildcard must not be told. */
static enum shoal_err check_advertise(const struct sh_options *options,
                                      struct sh_options_error *error_out)
{
    char quoted[SH_OPTION_QUOTE_MAX];
    struct address address;
    if (*options->advertise == '\0' && sh_address_is_wildcard(options->listen)) {
        sh_option_error(error_out, "option listen",
                        "%s listens on all addresses of this machine, and other nodes must be told "
                        "one of them: set the option advertise to a HOST:PORT that they reach",
                        sh_option_quote(options->listen, quoted));
        return SHOAL_EADDRESS;
    }
    if (*options->advertise == '\0')
        return SHOAL_OK;
    sh_option_quote(options->advertise, quoted);
    if (!parse_address(options->advertise, &address)) {
        sh_option_error(error_out, "option advertise",
                        "%s is not an address: write HOST:PORT, for example 10.0.0.5:4100", quoted);
        return SHOAL_EADDRESS;
    }
    if (is_wildcard(address.host)) {
        sh_option_error(error_out, "option advertise",
                        "%s is a wildcard: name the one address that other nodes reach", quoted);
        return SHOAL_EADDRESS;
    }
    return SHOAL_OK;
}

static enum shoal_err check_listen(const struct sh_options *options,
                                   struct sh_options_error *error_out)
{
    char quoted[SH_OPTION_QUOTE_MAX];
    struct address address;
    sh_option_quote(options->listen, quoted);
    if (strncmp(options->listen, "*:", 2) == 0) {
        sh_option_error(error_out, "option listen",
                        "%s is not an address: write 0.0.0.0:PORT or [::]:PORT for all addresses "
                        "of this machine, and set the option advertise",
                        quoted);
        return SHOAL_EADDRESS;
    }
    if (!parse_address(options->listen, &address)) {
        sh_option_error(error_out, "option listen",
                        "%s is not an address: write HOST:PORT, for example 127.0.0.1:4100",
                        quoted);
        return SHOAL_EADDRESS;
    }
    if (*options->secret_file == '\0' && !is_loopback(address.host)) {
        sh_option_error(error_out, "option listen",
                        "%s is not a loopback address: others than 127.0.0.1, [::1] and localhost "
                        "need a cluster secret (option secret_file)",
                        quoted);
        return SHOAL_EADDRESS;
    }
    return SHOAL_OK;
}

/* `more` are other forms of an address that go there. */
static enum shoal_err check_peers(const struct sh_list *list, const char *source, const char *more,
                                  struct sh_options_error *error_out)
{
    for (size_t i = 0; i < list->count; i++) {
        char quoted[SH_OPTION_QUOTE_MAX];
        struct address address;
        if (parse_address(list->items[i], &address) && address.port != 0)
            continue;
        sh_option_error(error_out, source,
                        "%s is not an address to connect to: write HOST:PORT%s, for example "
                        "127.0.0.1:4100",
                        sh_option_quote(list->items[i], quoted), more);
        return SHOAL_EADDRESS;
    }
    return SHOAL_OK;
}

static bool is_unix_address(const char *text)
{
    static const char prefix[] = "unix:/";
    return strncmp(text, prefix, sizeof prefix - 1) == 0 && strlen(text) >= sizeof prefix;
}

/* What a client connects to may be a Unix-domain socket too. */
static enum shoal_err check_connect(const struct sh_options *options,
                                    struct sh_options_error *error_out)
{
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < options->connect.count && err == SHOAL_OK; i++) {
        struct sh_list one = {.count = 1, .items = {options->connect.items[i]}};
        if (!is_unix_address(one.items[0]))
            err = check_peers(&one, "option connect", " or unix:/PATH", error_out);
    }
    return err;
}

static enum shoal_err check_local_socket(const struct sh_options *options,
                                         struct sh_options_error *error_out)
{
    char quoted[SH_OPTION_QUOTE_MAX];
    const char *path = options->local_socket;
    if (*path == '\0' || (*path == '/' && path[1] != '\0'))
        return SHOAL_OK;
    sh_option_error(error_out, "option local_socket",
                    "%s is not a path from / on, for example /run/shoal/socket",
                    sh_option_quote(path, quoted));
    return SHOAL_EADDRESS;
}

/* Refuses a word that is not among the known ones. */
static enum shoal_err check_word(const char *word, const char *const *known, size_t known_count,
                                 const char *source, struct sh_options_error *error_out)
{
    for (size_t i = 0; i < known_count; i++)
        if (strcmp(word, known[i]) == 0)
            return SHOAL_OK;
    char list[160] = "", quoted[SH_OPTION_QUOTE_MAX];
    for (size_t i = 0, used = 0; i < known_count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i > 0 ? " or " : "",
                                 known[i]);
    const char *nearest = sh_nearest_word(word, known, known_count);
    sh_option_error(error_out, source, "%s is not %s%s%s%s", sh_option_quote(word, quoted), list,
                    nearest ? "; did you mean \"" : "", nearest ? nearest : "",
                    nearest ? "\"?" : "");
    return SHOAL_EPARSE;
}

static enum shoal_err check_transport(const struct sh_options *options,
                                      struct sh_options_error *error_out)
{
    static const char *const known[] = {"tcp", "epoll", "uring"};
    return check_word(options->transport, known, 3, "option transport", error_out);
}

static enum shoal_err check_registry(const struct sh_options *options,
                                     struct sh_options_error *error_out)
{
    static const char *const known[] = {"raft", "memory", "zookeeper"};
    enum shoal_err err = check_word(options->registry, known, 3, "option registry", error_out);
    if (err == SHOAL_OK && strcmp(options->registry, "zookeeper") == 0 && !*options->zookeeper) {
        sh_option_error(error_out, "option zookeeper",
                        "is empty: registry zookeeper needs its servers, HOST:PORT");
        err = SHOAL_EADDRESS;
    }
    return err;
}

static enum shoal_err check_roles(const struct sh_options *options,
                                  struct sh_options_error *error_out)
{
    static const char *const known[] = {"superpeer", "peer"};
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < options->roles.count && err == SHOAL_OK; i++)
        err = check_word(options->roles.items[i], known, 2, "option roles", error_out);
    return err;
}

static enum shoal_err check_log(const struct sh_options *options,
                                struct sh_options_error *error_out)
{
    static const char *const formats[] = {"text", "json"};
    enum shoal_err err =
        check_word(options->log_format, formats, 2, "option log_format", error_out);
    const char *bad = NULL;
    size_t bad_size = 0;
    if (err == SHOAL_OK)
        err = sh_log_levels_check(options->log_levels, &bad, &bad_size);
    if (bad) {
        char word[SH_OPTION_QUOTE_MAX], quoted[SH_OPTION_QUOTE_MAX];
        snprintf(word, sizeof word, "%.*s", (int)(bad_size < 64 ? bad_size : 64), bad);
        sh_option_error(error_out, "option log_levels",
                        "%s is not LEVEL or MODULE=LEVEL, where LEVEL is error, warn, info, debug "
                        "or trace, for at most 16 modules",
                        sh_option_quote(word, quoted));
    }
    return err;
}

static enum shoal_err check_domains(const struct sh_options *options,
                                    struct sh_options_error *error_out)
{
    static const char *const sources[] = {"option machine", "option rack", "option network_switch"};
    const char *const names[] = {options->machine, options->rack, options->network_switch};
    char quoted[SH_OPTION_QUOTE_MAX];
    for (size_t i = 0; i < 3; i++) {
        if (*names[i] == '\0' || sh_bytes_are_word(sh_bytes_text(names[i])))
            continue;
        sh_option_error(
            error_out, sources[i],
            "%s is no name: write letters, digits and signs without blanks, for example "
            "row2-rack7",
            sh_option_quote(names[i], quoted));
        return SHOAL_EINVAL;
    }
    return SHOAL_OK;
}

static enum shoal_err check_tls(const struct sh_options *options,
                                struct sh_options_error *error_out)
{
    static const char *const known[] = {"off", "on"};
    enum shoal_err err = check_word(options->tls, known, 2, "option tls", error_out);
    if (err != SHOAL_OK || strcmp(options->tls, "off") == 0)
        return err;
    const char *missing = *options->tls_cert_file == '\0'  ? "tls_cert_file"
                          : *options->tls_key_file == '\0' ? "tls_key_file"
                          : *options->tls_ca_file == '\0'  ? "tls_ca_file"
                                                           : NULL;
    if (!missing)
        return SHOAL_OK;
    sh_option_error(error_out, "option tls", "with tls on, the option %s must name a file",
                    missing);
    return SHOAL_ETLS;
}

/* A lease is shorter than failure_ns by up to five heartbeats and the clocks' drift, and must last
 * for some more (superpeer/superpeer_grant.c). */
#define HEARTBEATS_IN_FAILURE 10

static enum shoal_err check_times(const struct sh_options *options,
                                  struct sh_options_error *error_out)
{
    if (options->failure_ns / HEARTBEATS_IN_FAILURE >= options->heartbeat_ns)
        return SHOAL_OK;
    char failure[SH_NUMBER_TEXT_MAX], heartbeat[SH_NUMBER_TEXT_MAX];
    sh_option_error(error_out, "option failure_ns",
                    "%s is out of range: it must be at least ten times heartbeat_ns, which is %s",
                    sh_number_format(options->failure_ns, "ns", failure),
                    sh_number_format(options->heartbeat_ns, "ns", heartbeat));
    return SHOAL_ERANGE;
}

#define SEGMENTS_IN_BUFFER 4
#define BUFFER_BESIDE (UINT64_C(1) << 20)

/* Sizes that are multiples of something, and a buffer for what may be in it at once: where batches are as large as segments, three of these and
 * two epochs' versions (src/log/replog_open.c). */
static enum shoal_err check_log_sizes(const struct sh_options *options,
                                      struct sh_options_error *error_out)
{
    const struct {
        const char *source;
        uint64_t bytes, unit;
    } sizes[] = {{"option log_segment_bytes", options->log_segment_bytes, 4096},
                 {"option log_primary_bytes", options->log_primary_bytes, 4096},
                 {"option log_buffer_bytes", options->log_buffer_bytes, 65536}};
    char bytes[SH_NUMBER_TEXT_MAX], least[SH_NUMBER_TEXT_MAX];
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        if (sizes[i].bytes % sizes[i].unit == 0)
            continue;
        sh_option_error(error_out, sizes[i].source, "%s is not a multiple of %" PRIu64,
                        sh_number_format(sizes[i].bytes, "bytes", bytes), sizes[i].unit);
        return SHOAL_ERANGE;
    }
    uint64_t needed = SEGMENTS_IN_BUFFER * options->log_segment_bytes + BUFFER_BESIDE;
    if (options->log_two_level || options->log_buffer_bytes >= needed)
        return SHOAL_OK;
    sh_option_error(error_out, "option log_buffer_bytes",
                    "%s is out of range: without log_two_level it must be at least %s, which is "
                    "%d log_segment_bytes and 1MiB",
                    sh_number_format(options->log_buffer_bytes, "bytes", bytes),
                    sh_number_format(needed, "bytes", least), SEGMENTS_IN_BUFFER);
    return SHOAL_ERANGE;
}

static enum shoal_err check_log_place(const struct sh_options *options,
                                      struct sh_options_error *error_out)
{
    static const char *const known[] = {"auto", "direct", "cached",
                                        "raw"}; /* as src/recover/log_place.c has them */
    char quoted[SH_OPTION_QUOTE_MAX];
    const char *path = options->log_device;
    enum shoal_err err = check_word(options->log_access, known, 4, "option log_access", error_out);
    if (err != SHOAL_OK)
        return err;
    bool is_raw = strcmp(options->log_access, "raw") == 0;
    if (is_raw && *path == '\0')
        sh_option_error(
            error_out, "option log_device",
            "is empty: log_access raw needs a partition, or a file that is used as one");
    else if (!is_raw && *path != '\0')
        sh_option_error(error_out, "option log_device",
                        "%s is used with log_access raw only: set that, or leave this empty",
                        sh_option_quote(path, quoted));
    else if (is_raw && (*path != '/' || strchr(path, '\n')))
        sh_option_error(error_out, "option log_device",
                        "%s is not a path from / on, for example /dev/disk/by-partlabel/shoal",
                        sh_option_quote(path, quoted));
    else
        return SHOAL_OK;
    return SHOAL_EINVAL;
}

static enum shoal_err check_replicas(const struct sh_options *options,
                                     struct sh_options_error *error_out)
{
    static const char *const known[] = {"async", "replicated", "durable"};
    static const char *const places[] = {"self", "peers"};
    static const char *const selections[] = {"cost-benefit", "timestamps", "age-fill", "oldest",
                                             "random"}; /* as src/log/replog_select.c has them */
    char zone[SH_NUMBER_TEXT_MAX], chunk[SH_NUMBER_TEXT_MAX];
    enum shoal_err err = check_word(options->durability, known, 3, "option durability", error_out);
    if (err == SHOAL_OK)
        err = check_word(options->replicas_at, places, 2, "option replicas_at", error_out);
    if (err == SHOAL_OK)
        err = check_word(options->log_selection, selections, 5, "option log_selection", error_out);
    if (err == SHOAL_OK)
        err = check_log_place(options, error_out);
    bool is_self = strcmp(options->replicas_at, "self") == 0;
    if (err == SHOAL_OK && !options->replicas && !is_self) {
        sh_option_error(error_out, "option replicas_at",
                        "peers, but replicas is 0: say how many copies there are to be");
        return SHOAL_EINVAL;
    }
    if (err != SHOAL_OK || !options->replicas)
        return err;
    if (options->replicas > 1 && is_self) {
        sh_option_error(error_out, "option replicas",
                        "%" PRIu64 " copies need replicas_at peers: with self there is one, in "
                        "data_dir",
                        options->replicas);
        return SHOAL_EINVAL;
    }
    if (options->zone_bytes < options->chunk_bytes_max) {
        sh_option_error(error_out, "option zone_bytes",
                        "%s is out of range: a zone has one of the largest chunks at least, and "
                        "chunk_bytes_max is %s",
                        sh_number_format(options->zone_bytes, "bytes", zone),
                        sh_number_format(options->chunk_bytes_max, "bytes", chunk));
        return SHOAL_ERANGE;
    }
    return check_log_sizes(options, error_out);
}

static bool has_role(const struct sh_options *options, const char *role)
{
    for (size_t i = 0; i < options->roles.count; i++)
        if (strcmp(options->roles.items[i], role) == 0)
            return true;
    return false;
}

bool sh_options_idle(const struct sh_options *options, struct sh_options_error *text_out)
{
    bool is_peer = has_role(options, "peer");
    if (!is_peer && options->replicas)
        sh_option_error(text_out, "option replicas",
                        "%" PRIu64 " has no effect on a node that is no peer: set it for the "
                        "peers, or add peer to roles",
                        options->replicas);
    else if (is_peer && !options->replicas && strcmp(options->durability, "durable") == 0)
        sh_option_error(text_out, "option durability",
                        "durable has no effect without a log: changes are answered at once, and "
                        "end with the process; set replicas");
    else
        return false;
    return true;
}

enum shoal_err sh_options_check(const struct sh_options *options,
                                struct sh_options_error *error_out)
{
    enum shoal_err err = check_roles(options, error_out);
    if (err == SHOAL_OK)
        err = check_listen(options, error_out);
    if (err == SHOAL_OK)
        err = check_advertise(options, error_out);
    if (err == SHOAL_OK)
        err = check_peers(&options->superpeers, "option superpeers", "", error_out);
    if (err == SHOAL_OK)
        err = check_connect(options, error_out);
    if (err == SHOAL_OK)
        err = check_local_socket(options, error_out);
    if (err == SHOAL_OK)
        err = check_transport(options, error_out);
    if (err == SHOAL_OK)
        err = check_registry(options, error_out);
    if (err == SHOAL_OK)
        err = check_log(options, error_out);
    if (err == SHOAL_OK)
        err = check_times(options, error_out);
    if (err == SHOAL_OK)
        err = check_tls(options, error_out);
    if (err == SHOAL_OK)
        err = check_domains(options, error_out);
    if (err == SHOAL_OK)
        err = check_replicas(options, error_out);
    return err;
}
