#include <string.h>

#include "base/options.h"
#include "bench/bench_int.h"

/* Exit statuses: what was asked is wrong; a benchmark failed. */
#define EXIT_USAGE 2
#define EXIT_RUN 1
#define BENCHES_MAX 32

static void words_print(FILE *out, const char *title, const char *const *words)
{
    if (!words || !words[0])
        return;
    fprintf(out, "    %s", title);
    for (size_t i = 0; words[i]; i++)
        fprintf(out, "%s%s", i ? ", " : " ", words[i]);
    fprintf(out, "\n");
}

static void entry_print(FILE *out, const struct sh_bench_entry *entry)
{
    fprintf(out, "%-8s %s\n", entry->name, entry->summary);
    words_print(out, "cases:", entry->cases);
    words_print(out, "baselines:", entry->baselines);
}

/* One benchmark, or all where entry is NULL. */
static void list_print(FILE *out, const struct sh_bench_entry *entry)
{
    if (entry) {
        entry_print(out, entry);
        return;
    }
    for (const struct sh_bench_entry *e = sh_benches; e->name; e++)
        entry_print(out, e);
}

static void help_print(FILE *out, const struct sh_bench_entry *entry)
{
    fprintf(out, "usage: shoal bench %s [flags]\n\n", entry ? entry->name : "NAME");
    list_print(out, entry);
    fprintf(out, "\nflags:\n");
    sh_bench_flags_help(out);
    fprintf(out, "\nexamples:\n"
                 "  shoal bench --list\n"
                 "  shoal bench msg --case request --placement all --vs tcp\n"
                 "  shoal bench kv --case get --outstanding 64 --vs redis --json\n");
}

static const struct sh_bench_entry *entry_find(const char *name)
{
    for (const struct sh_bench_entry *e = sh_benches; e->name; e++) {
        if (strcmp(e->name, name) == 0)
            return e;
    }
    return NULL;
}

static int unknown_refuse(const char *name)
{
    const char *names[BENCHES_MAX];
    size_t count = 0;
    for (const struct sh_bench_entry *e = sh_benches; e->name && count < BENCHES_MAX; e++)
        names[count++] = e->name;
    const char *nearest = sh_nearest_word(name, names, count);
    fprintf(stderr, "shoal bench: no benchmark is called \"%.60s\"%s%s%s\n", name,
            nearest ? "; did you mean \"" : "; see shoal bench --list", nearest ? nearest : "",
            nearest ? "\"?" : "");
    return EXIT_USAGE;
}

static int entry_run(const struct sh_bench_entry *entry, const struct sh_bench_flags *flags,
                     FILE *out)
{
    struct sh_bench bench = {.entry = entry, .flags = *flags, .out = out};
    sh_bench_cores_init();
    sh_bench_machine(bench.machine, sizeof bench.machine);
    enum sh_placement placements[SH_PLACEMENTS];
    if (sh_bench_placements(&bench, placements) == 0) {
        fprintf(stderr, "shoal bench: placement %s needs two cores; there is one\n",
                flags->placement);
        return EXIT_USAGE;
    }
    enum shoal_err err = entry->run(&bench);
    if (!err && (fflush(out) != 0 || ferror(out)))
        err = SHOAL_EIO;
    if (!err)
        return 0;
    if (bench.is_refused)
        return EXIT_USAGE;
    fprintf(stderr, "shoal bench %s: %s: %s\n", entry->name, shoal_err_text(err),
            shoal_err_hint(err));
    return EXIT_RUN;
}

int sh_bench_main(int argc, char **argv, FILE *out)
{
    const struct sh_bench_entry *entry = NULL;
    if (argc > 0 && strncmp(argv[0], "--", 2) != 0) {
        entry = entry_find(argv[0]);
        if (!entry)
            return unknown_refuse(argv[0]);
        argc--;
        argv++;
    }
    struct sh_bench_flags flags;
    struct sh_bench_words words;
    struct sh_bench_error error;
    if (sh_bench_flags_parse(argc, argv, entry, &flags, &words, &error)) {
        fprintf(stderr, "shoal bench: %s\n", error.text);
        return EXIT_USAGE;
    }
    if (words.help) {
        help_print(out, entry);
        return 0;
    }
    if (words.list) {
        list_print(out, entry);
        return 0;
    }
    if (!entry) {
        fprintf(stderr, "shoal bench: name a benchmark; see shoal bench --list\n");
        return EXIT_USAGE;
    }
    return entry_run(entry, &flags, out);
}
