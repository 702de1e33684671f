#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/options.h"
#include "bench/bench_int.h"
#include "bench/store_sizes.h"
#include "log/replog.h"

enum flag_kind {
    FLAG_TEXT,
    FLAG_U64,
    FLAG_UNSIGNED,
    FLAG_SECONDS,
    FLAG_SWITCH,
    FLAG_LIST,
    FLAG_HELP
};

struct flag {
    const char *name;
    enum flag_kind kind;
    const char *unit; /* as sh_number_parse takes it */
    size_t offset;    /* in struct sh_bench_flags */
    uint64_t max;     /* the smallest is 1; of --seed and --seconds too */
    const char *meaning;
    const char *users; /* the benchmarks that take it; NULL: all do */
};

#define AT(member) offsetof(struct sh_bench_flags, member)

static const struct flag flags_known[] = {
    {"case", FLAG_TEXT, "", AT(cases), 0, "one case by name, or all (default)", NULL},
    {"size", FLAG_U64, "bytes", AT(size), UINT64_C(1) << 30, "bytes of a message or chunk",
     "store msg kv log recovery"},
    {"count", FLAG_U64, "", AT(count), UINT64_C(1) << 40, "objects, or operations where it says so",
     NULL},
    {"threads", FLAG_UNSIGNED, "", AT(threads), 128, "application threads",
     "store msg kv lookup recovery"},
    {"outstanding", FLAG_UNSIGNED, "", AT(outstanding), 65536,
     "requests in flight for each thread and connection", "msg kv metadata"},
    {"batch", FLAG_UNSIGNED, "", AT(batch), 4096,
     "objects in one multi operation; in log, chunks that are written in a row",
     "store kv log recovery"},
    {"nodes", FLAG_UNSIGNED, "", AT(nodes), 256,
     "nodes; in kv and recovery peers, owners and backups alike", "graph msg lookup kv recovery"},
    {"handlers", FLAG_UNSIGNED, "", AT(handlers), 8,
     "threads for pooled handlers; without it handlers run inline", "msg"},
    {"processes", FLAG_UNSIGNED, "", AT(processes), 256,
     "processes that the nodes of alltoall are in: 1 (default) or as many as --nodes", "msg"},
    {"connections", FLAG_UNSIGNED, "", AT(connections), 256,
     "servers, a process each, that every thread talks to", "msg"},
    {"keys", FLAG_TEXT, "", AT(keys), 0, "how keys are drawn: uniform (default) or zipfian",
     "store kv"},
    {"transport", FLAG_TEXT, "", AT(transport), 0,
     "transport: tcp (default); in msg also epoll, uring, unix or loopback", NULL},
    {"idle", FLAG_TEXT, "", AT(idle), 0,
     "how threads without work wait: spin, park, sleep, or node (as nodes do by default)", "msg"},
    {"catch-up", FLAG_TEXT, "", AT(catch_up), 0,
     "on (default), or off: a sender waits for those that began before it", "msg"},
    {"sizes", FLAG_TEXT, "", AT(sizes), 0,
     "chunks' sizes in store: fixed (--size), or drawn: assocs, objects, etc", "store"},
    {"reads", FLAG_UNSIGNED, "", AT(reads), 99, "percent of mixed operations that read",
     "store recovery"},
    {"percent", FLAG_UNSIGNED, "", AT(percent), 50, "percent of chunks that have migrated",
     "ranges lookup"},
    {"length", FLAG_UNSIGNED, "", AT(length), 500, "chunks that have migrated in one run",
     "ranges lookup"},
    {"verify", FLAG_SWITCH, "", AT(verify), 0, "check in store what is read", "store"},
    {"small-pages", FLAG_SWITCH, "", AT(small_pages), 0, "no huge pages for chunks in store",
     "store"},
    {"replicas", FLAG_UNSIGNED, "", AT(replicas), 4,
     "replicas of each chunk, in the logs of other peers; in kv 1: in the owner's own (default: 3, "
     "with --durability; in recovery 2)",
     "kv recovery"},
    {"durability", FLAG_TEXT, "", AT(durability), 0,
     "how far changes get in kv before they are answered, beside async: replicated, durable, or "
     "all "
     "(default, with --replicas)",
     "kv"},
    {"folder", FLAG_TEXT, "", AT(folder), 0,
     "where log and recovery put their files, in a folder of their own (default: TMPDIR, or /tmp)",
     "log recovery"},
    {"zones", FLAG_UNSIGNED, "", AT(zones), 10000,
     "zones that log writes to, and recovery brings back", "log recovery"},
    {"zone-bytes", FLAG_U64, "bytes", AT(zone_bytes), UINT64_C(1) << 40,
     "bytes of a zone's chunks with headers; its log may take twice that", "log recovery"},
    {"segment-bytes", FLAG_U64, "bytes", AT(segment_bytes), UINT64_C(1) << 30,
     "bytes of a segment of a log, a multiple of 4096, at least 64 KiB", "log recovery"},
    {"buffer-bytes", FLAG_U64, "bytes", AT(buffer_bytes), UINT64_C(1) << 36,
     "bytes of a log's write buffer, a multiple of 64 KiB, at least 1 MiB", "log recovery"},
    {"access", FLAG_TEXT, "", AT(access), 0,
     "how log writes: direct (default); cached, through the page cache; or raw, into a file that "
     "has "
     "all its room before, as a partition has (log only)",
     "log recovery"},
    {"sync-every", FLAG_UNSIGNED, "", AT(sync_every), 4096,
     "chunks after which log waits until they are durable (default: only at the end)", "log"},
    {"disk-writes", FLAG_U64, "", AT(disk_writes), 10000000,
     "writes a second that the disk takes at most in log, of whatever size (default: as it is)",
     "log"},
    {"levels", FLAG_UNSIGNED, "", AT(levels), 2,
     "levels of a log: 2 (default), or 1: without the primary log", "log"},
    {"selection", FLAG_TEXT, "", AT(selection), 0,
     "which segments of a log are cleaned: cost-benefit (default), timestamps, age-fill, oldest or "
     "random",
     "log"},
    {"fill", FLAG_UNSIGNED, "", AT(fill), 70,
     "percent of a zone's log that its chunks take (default 50)", "log"},
    {"placement", FLAG_TEXT, "", AT(placement), 0,
     "where client and server run: spin, one-core, cross-core, free (default) or all", NULL},
    {"seconds", FLAG_SECONDS, "", AT(seconds), 3600, "length of a run, for example 0.5", NULL},
    {"runs", FLAG_UNSIGNED, "", AT(runs), SH_BENCH_RUNS_MAX, "runs, of which the median is shown",
     NULL},
    {"seed", FLAG_U64, "", AT(seed), UINT64_MAX, "seed of everything that is drawn (default 1)",
     NULL},
    {"vs", FLAG_TEXT, "", AT(vs), 0, "baseline to alternate with", NULL},
    {"json", FLAG_SWITCH, "", AT(json), 0, "one JSON object per row instead of a table", NULL},
    {"list", FLAG_LIST, "", 0, 0, "list benchmarks, cases and baselines", NULL},
    {"help", FLAG_HELP, "", 0, 0, "print this help", NULL},
};
#define FLAGS_KNOWN (sizeof flags_known / sizeof *flags_known)

static const char *const transports[] = {"tcp", "epoll", "uring", "unix", "loopback", NULL};
static const char *const transports_elsewhere[] = {"tcp", NULL};
static const char *const key_orders[] = {"uniform", "zipfian", NULL};
static const char *const idles[] = {"spin", "park", "sleep", "node", NULL};
static const char *const switches[] = {"on", "off", NULL};
static const char *const durabilities[] = {"async", "replicated", "durable", "all", NULL};
static const char *const accesses[] = {"direct", "cached", "raw", NULL};
static const char *const placements[] = {"free", "spin", "one-core", "cross-core", "all", NULL};

static size_t words_count(const char *const *words)
{
    size_t count = 0;
    while (words && words[count])
        count++;
    return count;
}

/* Refuses a word that is not among the known ones; also_known is one more, or NULL. */
static enum shoal_err word_check(const char *flag, const char *word, const char *const *known,
                                 const char *also_known, struct sh_bench_error *error_out)
{
    if (!word || (also_known && strcmp(word, also_known) == 0))
        return SHOAL_OK;
    size_t count = words_count(known);
    for (size_t i = 0; i < count; i++) {
        if (strcmp(word, known[i]) == 0)
            return SHOAL_OK;
    }
    const char *nearest = count ? sh_nearest_word(word, known, count) : NULL;
    char list[128] = "";
    for (size_t i = 0, used = 0; i < count && used < sizeof list; i++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", known[i]);
    if (nearest)
        snprintf(error_out->text, sizeof error_out->text,
                 "--%s: \"%.60s\" is not known; did you mean \"%s\"?", flag, word, nearest);
    else
        snprintf(error_out->text, sizeof error_out->text, "--%s: \"%.60s\" is not known; %s%s",
                 flag, word, count ? "there is " : "there is nothing to choose from", list);
    return SHOAL_EOPTION;
}

static enum shoal_err flag_find(const char *name, size_t name_len, const struct flag **flag_out,
                                struct sh_bench_error *error_out)
{
    const char *names[FLAGS_KNOWN];
    for (size_t i = 0; i < FLAGS_KNOWN; i++) {
        names[i] = flags_known[i].name;
        if (strlen(names[i]) == name_len && memcmp(names[i], name, name_len) == 0) {
            *flag_out = &flags_known[i];
            return SHOAL_OK;
        }
    }
    char word[64];
    snprintf(word, sizeof word, "%.*s", (int)(name_len < 60 ? name_len : 60), name);
    const char *nearest = sh_nearest_word(word, names, FLAGS_KNOWN);
    snprintf(error_out->text, sizeof error_out->text, "--%s is not a flag of bench%s%s%s", word,
             nearest ? "; did you mean --" : "; see --help", nearest ? nearest : "",
             nearest ? "?" : "");
    return SHOAL_EOPTION;
}

static enum shoal_err seconds_parse(const struct flag *flag, const char *value,
                                    struct sh_bench_flags *flags, struct sh_bench_error *error_out)
{
    char *end = NULL;
    double seconds = strtod(value, &end);
    if (end == value || *end != '\0' || isnan(seconds)) {
        snprintf(error_out->text, sizeof error_out->text,
                 "--%s: \"%.60s\" is not a number of seconds", flag->name, value);
        return SHOAL_EPARSE;
    }
    if (seconds <= 0 || seconds > (double)flag->max) {
        snprintf(error_out->text, sizeof error_out->text,
                 "--%s: %.60s is out of range; more than 0, at most %llu", flag->name, value,
                 (unsigned long long)flag->max);
        return SHOAL_ERANGE;
    }
    flags->seconds = seconds;
    return SHOAL_OK;
}

static enum shoal_err number_parse(const struct flag *flag, const char *value,
                                   struct sh_bench_flags *flags, struct sh_bench_error *error_out)
{
    uint64_t number = 0;
    enum shoal_err err = sh_number_parse(value, flag->unit, &number);
    if (err == SHOAL_EPARSE) {
        snprintf(error_out->text, sizeof error_out->text, "--%s: \"%.60s\" is not a number",
                 flag->name, value);
        return err;
    }
    if (err || number == 0 || number > flag->max) {
        snprintf(error_out->text, sizeof error_out->text, "--%s: %.60s is out of range; 1 to %llu",
                 flag->name, value, (unsigned long long)flag->max);
        return SHOAL_ERANGE;
    }
    char *at = (char *)flags + flag->offset;
    if (flag->kind == FLAG_U64)
        memcpy(at, &number, sizeof number);
    else
        memcpy(at, &(unsigned){(unsigned)number}, sizeof(unsigned));
    return SHOAL_OK;
}

static enum shoal_err value_set(const struct flag *flag, const char *value,
                                struct sh_bench_flags *flags, struct sh_bench_error *error_out)
{
    switch (flag->kind) {
    case FLAG_TEXT:
        memcpy((char *)flags + flag->offset, &value, sizeof value);
        return SHOAL_OK;
    case FLAG_SECONDS:
        return seconds_parse(flag, value, flags, error_out);
    default:
        return number_parse(flag, value, flags, error_out);
    }
}

/* True for a flag that takes no value; then it has been noted. */
static bool switch_set(const struct flag *flag, struct sh_bench_flags *flags,
                       struct sh_bench_words *words)
{
    if (flag->kind == FLAG_SWITCH)
        memcpy((char *)flags + flag->offset, &(bool){true}, sizeof(bool));
    words->list = words->list || flag->kind == FLAG_LIST;
    words->help = words->help || flag->kind == FLAG_HELP;
    return flag->kind == FLAG_SWITCH || flag->kind == FLAG_LIST || flag->kind == FLAG_HELP;
}

/* The other benchmarks run whole nodes, which talk over what nodes take by themselves. */
static const char *const *transports_of(const struct sh_bench_entry *entry)
{
    return entry && strcmp(entry->name, "msg") != 0 ? transports_elsewhere : transports;
}

static enum shoal_err words_check(const struct sh_bench_flags *flags,
                                  const struct sh_bench_entry *entry,
                                  struct sh_bench_error *error_out)
{
    enum shoal_err err = word_check("placement", flags->placement, placements, NULL, error_out);
    if (!err)
        err = word_check("keys", flags->keys, key_orders, NULL, error_out);
    if (!err)
        err = word_check("sizes", flags->sizes, sh_sizes_names, NULL, error_out);
    if (!err)
        err = word_check("idle", flags->idle, idles, NULL, error_out);
    if (!err)
        err = word_check("catch-up", flags->catch_up, switches, NULL, error_out);
    if (!err)
        err = word_check("durability", flags->durability, durabilities, NULL, error_out);
    if (!err)
        err = word_check("access", flags->access, accesses, NULL, error_out);
    if (!err)
        err = word_check("selection", flags->selection, sh_replog_selection_names, NULL, error_out);
    if (!err)
        err = word_check("transport", flags->transport, transports_of(entry), NULL, error_out);
    if (!err && entry)
        err = word_check("case", flags->cases, entry->cases, "all", error_out);
    if (!err && entry)
        err = word_check("vs", flags->vs, entry->baselines, NULL, error_out);
    return err;
}

/* Refuses a flag that this benchmark would not look at. */
static enum shoal_err user_check(const struct flag *flag, const struct sh_bench_entry *entry,
                                 struct sh_bench_error *error_out)
{
    const char *at = entry && flag->users ? strstr(flag->users, entry->name) : "";
    if (at)
        return SHOAL_OK;
    snprintf(error_out->text, sizeof error_out->text,
             "--%s is nothing to %s; these benchmarks take it: %s", flag->name, entry->name,
             flag->users);
    return SHOAL_EOPTION;
}

/* Reads the flag at argv[0]; says how many words it took. */
static enum shoal_err flag_take(int argc, char **argv, const struct sh_bench_entry *entry,
                                struct sh_bench_flags *flags, struct sh_bench_words *words,
                                int *taken_out, struct sh_bench_error *error_out)
{
    const char *word = argv[0];
    if (strncmp(word, "--", 2) != 0 || word[2] == '\0') {
        snprintf(error_out->text, sizeof error_out->text,
                 "\"%.60s\" is not expected here; flags begin with --", word);
        return SHOAL_EOPTION;
    }
    const char *equals = strchr(word, '=');
    size_t name_len = equals ? (size_t)(equals - word) - 2 : strlen(word + 2);
    const struct flag *flag = NULL;
    enum shoal_err err = flag_find(word + 2, name_len, &flag, error_out);
    if (!err)
        err = user_check(flag, entry, error_out);
    if (err)
        return err;
    *taken_out = 1;
    if (switch_set(flag, flags, words)) {
        if (!equals)
            return SHOAL_OK;
        snprintf(error_out->text, sizeof error_out->text, "--%s takes no value", flag->name);
        return SHOAL_EPARSE;
    }
    if (!equals && argc < 2) {
        snprintf(error_out->text, sizeof error_out->text, "--%s needs a value", flag->name);
        return SHOAL_EPARSE;
    }
    *taken_out = equals ? 1 : 2;
    return value_set(flag, equals ? equals + 1 : argv[1], flags, error_out);
}

enum shoal_err sh_bench_flags_parse(int argc, char **argv, const struct sh_bench_entry *entry,
                                    struct sh_bench_flags *flags_out,
                                    struct sh_bench_words *words_out,
                                    struct sh_bench_error *error_out)
{
    SH_ASSERT(argc >= 0);
    struct sh_bench_flags flags = {.runs = SH_BENCH_RUNS, .seed = SH_BENCH_SEED};
    struct sh_bench_words words = {false, false};
    int taken = 1;
    for (int i = 0; i < argc; i += taken) {
        enum shoal_err err =
            flag_take(argc - i, argv + i, entry, &flags, &words, &taken, error_out);
        if (err)
            return err;
    }
    enum shoal_err err = words_check(&flags, entry, error_out);
    if (err)
        return err;
    *flags_out = flags;
    *words_out = words;
    return SHOAL_OK;
}

void sh_bench_flags_help(FILE *out)
{
    for (size_t i = 0; i < FLAGS_KNOWN; i++)
        fprintf(out, "  --%-13s %s\n", flags_known[i].name, flags_known[i].meaning);
}
