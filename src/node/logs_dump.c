#include "node/logs_dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crew.h"

#define LAPSE_NS UINT64_C(10000000000)
#define FIRST_BYTES 16 /* of a payload, that are told */

static const char *const names[] = {"chunk",  "epoch",      "number",   "standing", "seconds",
                                    "size",   "kind",       "sequence", "piece",    "pieces",
                                    "offset", "total",      "flags",    "life",     "incarnation",
                                    "slot",   "first_high", "first_low"};
#define COLUMNS (sizeof names / sizeof names[0])
#define ROWS_MAX (SH_LOG_VALUES_MAX / COLUMNS)

static void page_clear(struct sh_logs_dump *dump)
{
    dump->page->rows = 0;
    dump->page->next = 0;
    dump->page_number++;
    dump->is_full = false;
}

/* The first bytes of a payload, eight in a number, the first one highest; zeros behind its end. */
static void first_bytes(const struct sh_replog_entry *entry, uint64_t values_out[2])
{
    size_t size = sh_replog_entry_stored(entry);
    values_out[0] = values_out[1] = 0;
    for (size_t i = 0; i < FIRST_BYTES; i++)
        values_out[i / 8] = values_out[i / 8] << 8 | (i < size ? entry->payload.at[i] : 0);
}

static bool on_entry(void *arg, const struct sh_inspect_entry *found)
{
    struct sh_logs_dump *dump = arg;
    struct sh_log_table *page = dump->page;
    const struct sh_replog_entry *entry = &found->entry;
    uint64_t first[2];
    if (dump->is_full)
        return false;
    bool is_zeros = sh_replog_entry_stored(entry) < entry->payload.size;
    uint64_t flags = (entry->is_removal ? SH_LOG_DUMP_REMOVAL : 0) |
                     (is_zeros ? SH_LOG_DUMP_ZEROS : 0) |
                     (entry->is_with_next ? SH_LOG_DUMP_WITH_NEXT : 0);
    first_bytes(entry, first);
    const uint64_t values[] = {entry->local_id | (uint64_t)entry->creator << 48,
                               entry->version.epoch,
                               entry->version.number,
                               found->standing,
                               entry->seconds,
                               entry->payload.size,
                               found->kind,
                               found->kind == SH_SLOT_ENTRIES ? found->sequence : 0,
                               entry->piece,
                               entry->pieces,
                               entry->offset,
                               entry->total,
                               flags,
                               found->life,
                               found->incarnation,
                               found->slot,
                               first[0],
                               first[1]};
    _Static_assert(sizeof values / sizeof values[0] == COLUMNS, "a value for each column");
    memcpy(&page->values[page->rows * COLUMNS], values, sizeof values);
    dump->is_full = ++page->rows == ROWS_MAX;
    return true;
}

static void on_done(void *arg, const struct sh_replog_dumped *dumped, enum shoal_err err)
{
    struct sh_logs_dump *dump = arg;
    dump->log = NULL;
    dump->is_over = true;
    dump->dumped = *dumped;
    dump->err = err;
}

/* Nobody reads it any more. */
static void leave(struct sh_logs_dump *dump)
{
    if (dump->log)
        sh_replog_dump_stop(dump->log);
    dump->log = NULL;
    free(dump->page);
    dump->page = NULL;
}

enum shoal_err sh_logs_dump_begin(struct sh_logs_dump *dump, struct sh_replog *log, uint64_t zone,
                                  uint64_t chunk, uint64_t now_ns)
{
    const struct sh_replog_dump_config config = {
        .zone = zone, .chunk = chunk, .take = on_entry, .done = on_done, .arg = dump};
    sh_logs_dump_step(dump, now_ns);
    if (dump->page && !dump->is_read)
        return SHOAL_EBUSY;
    leave(dump);
    struct sh_log_table *page = malloc(sizeof *page);
    if (!page)
        return SHOAL_ENOMEM;
    enum shoal_err err = sh_replog_dump_begin(log, &config);
    if (err) {
        free(page);
        return err;
    }
    page->columns = COLUMNS;
    for (unsigned i = 0; i < COLUMNS; i++)
        snprintf(page->names[i], SH_LOG_NAME_MAX, "%s", names[i]);
    *dump = (struct sh_logs_dump){
        .log = log, .number = dump->number + 1, .zone = zone, .page = page, .asked_ns = now_ns};
    page_clear(dump);
    return SHOAL_OK;
}

const char *sh_logs_dump_busy(const struct sh_logs_dump *dump)
{
    return dump->page ? "somebody reads a dump there, or has stopped doing so less than ten "
                        "seconds ago: one at a time"
                      : "nobody reads the dump before any more, but the node still waits for the "
                        "disk to end it";
}

enum shoal_err sh_logs_dump_page(struct sh_logs_dump *dump, uint64_t number, uint32_t page,
                                 uint64_t now_ns, const struct sh_log_table **page_out)
{
    *page_out = NULL;
    if (!dump->page || number != dump->number)
        return SHOAL_ECANCELED;
    bool is_next = dump->is_full && page == dump->page_number + 1;
    if (!is_next && page != dump->page_number)
        return SHOAL_ECANCELED;
    dump->asked_ns = now_ns;
    if (is_next)
        page_clear(dump);
    if (dump->err) {
        enum shoal_err err = dump->err;
        leave(dump);
        return err;
    }
    if (!dump->is_full && !dump->is_over)
        return SHOAL_OK;
    dump->is_read = dump->is_over;
    dump->page->next = dump->is_over ? 0 : dump->page_number + 1;
    *page_out = dump->page;
    return SHOAL_OK;
}

void sh_logs_dump_step(struct sh_logs_dump *dump, uint64_t now_ns)
{
    if (dump->page && now_ns >= dump->asked_ns + LAPSE_NS)
        leave(dump);
}

uint64_t sh_logs_dump_due_ns(const struct sh_logs_dump *dump)
{
    return dump->page ? dump->asked_ns + LAPSE_NS : SH_NEVER;
}

void sh_logs_dump_end(struct sh_logs_dump *dump)
{
    dump->log = NULL; /* ends with it */
    leave(dump);
}
