#include "cmd/progress_int.h"

#include <inttypes.h>
#include <string.h>

#include "cmd/text_int.h"

#define QUIET_MS 1000 /* what is done by then needs no bar */
#define BAR_EVERY_MS 100
#define LINE_EVERY_MS 5000
#define BAR_WIDTH 30

void sh_progress_begin(struct sh_progress *progress, FILE *out, bool terminal, const char *what,
                       uint64_t now_ms)
{
    *progress =
        (struct sh_progress){.out = out, .terminal = terminal, .what = what, .started_ms = now_ms};
}

/* "12.0 MiB of 30.5 MiB", "1200 of 3000", or without a total. */
static void amount_format(uint64_t done, uint64_t total, bool unit_bytes, char *text, size_t room)
{
    char a[SH_SIZE_TEXT_MAX], b[SH_SIZE_TEXT_MAX];
    if (unit_bytes) {
        sh_size_format(done, a);
        sh_size_format(total, b);
    } else {
        snprintf(a, sizeof a, "%" PRIu64, done);
        snprintf(b, sizeof b, "%" PRIu64, total);
    }
    snprintf(text, room, "%s%s%s", a, total ? " of " : "", total ? b : "");
}

static void bar_show(struct sh_progress *progress, const char *phase, uint64_t done, uint64_t total,
                     const char *amount)
{
    char bar[BAR_WIDTH + 1];
    double part = total ? (double)done / (double)total : 0;
    unsigned full = (unsigned)((part > 1 ? 1 : part) * BAR_WIDTH);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', full);
    bar[BAR_WIDTH] = '\0';
    fprintf(progress->out, "\r\033[K%s: %-5s [%s] %3.0f%% %s", progress->what, phase, bar,
            100 * (part > 1 ? 1 : part), amount);
    fflush(progress->out);
}

void sh_progress_show(struct sh_progress *progress, const char *phase, uint64_t done,
                      uint64_t total, bool unit_bytes, uint64_t now_ms)
{
    char amount[2 * SH_SIZE_TEXT_MAX + 8];
    uint64_t every = progress->terminal ? BAR_EVERY_MS : LINE_EVERY_MS;
    bool new_phase = strncmp(progress->phase, phase, sizeof progress->phase - 1) != 0;
    if (now_ms - progress->started_ms < QUIET_MS)
        return;
    if (progress->shown_ms && !new_phase && now_ms - progress->shown_ms < every)
        return;
    progress->shown_ms = now_ms;
    snprintf(progress->phase, sizeof progress->phase, "%s", phase);
    amount_format(done, total, unit_bytes, amount, sizeof amount);
    if (progress->terminal)
        bar_show(progress, phase, done, total, amount);
    else
        fprintf(progress->out, "%s: %s %s\n", progress->what, phase, amount);
}

void sh_progress_end(struct sh_progress *progress)
{
    if (progress->terminal && progress->shown_ms) {
        fputs("\r\033[K", progress->out);
        fflush(progress->out);
    }
}
