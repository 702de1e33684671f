/* The files of the journal: the one for the next segment, and those that nobody needs any more. */
#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "journal/journal_int.h"

#define RETRY_NS UINT64_C(1000000000)

/* --- Slots ----------------------------------------------------------------------------------- */

/* The first slot of a kind; SH_JOURNAL_SLOTS: there is none. */
static unsigned slot_of(const struct sh_journal *journal, enum sh_journal_slot kind)
{
    unsigned slot = 0;
    while (slot < SH_JOURNAL_SLOTS && journal->slots[slot].kind != kind)
        slot++;
    return slot;
}

void sh_journal_slot_remove(struct sh_journal *journal, unsigned slot)
{
    char name[SH_JOURNAL_NAME_BYTES];
    sh_journal_name(name, slot);
    enum shoal_err err = journal->env.disk->ops->remove(journal->env.disk, name);
    /* After a crash it may be back: what it holds then counts as little as now. */
    if (!err || err == SHOAL_ENONAME)
        journal->slots[slot].kind = SH_JOURNAL_NO_FILE;
}

void sh_journal_slots_release(struct sh_journal *journal)
{
    for (unsigned i = 0; i < SH_JOURNAL_SLOTS; i++) {
        if (journal->slots[i].kind != SH_JOURNAL_SEGMENT ||
            journal->slots[i].number >= journal->needed)
            continue;
        if (journal->slots[i].is_spoilt)
            sh_journal_slot_remove(journal, i);
        else
            journal->slots[i].kind = SH_JOURNAL_FREE_FILE;
    }
}

bool sh_journal_slots_trim(struct sh_journal *journal)
{
    unsigned slot = slot_of(journal, SH_JOURNAL_FREE_FILE);
    if (slot == SH_JOURNAL_SLOTS ||
        sh_journal_bytes(journal) <= sh_journal_allowed(journal) + 2 * journal->segment_bytes)
        return false;
    sh_journal_slot_remove(journal, slot);
    return journal->slots[slot].kind == SH_JOURNAL_NO_FILE;
}

/* --- The spare ------------------------------------------------------------------------------- */

static void fail(struct sh_journal *journal, uint64_t now_ns, enum shoal_err err)
{
    struct sh_journal_spare *spare = &journal->spare;
    if (spare->phase != SH_SPARE_NONE) {
        journal->env.disk->ops->close(journal->env.disk, spare->file);
        /* Until it can be removed it stands for a segment from before all that are needed. */
        journal->slots[spare->slot].kind = SH_JOURNAL_SEGMENT;
        journal->slots[spare->slot].number = 0;
        journal->slots[spare->slot].is_spoilt = true;
        sh_journal_slot_remove(journal, spare->slot);
    }
    if (spare->trouble != err)
        SH_WARN("journal", "no file for the journal's next segment; tried again every second",
                SH_ERR(err));
    spare->phase = SH_SPARE_NONE;
    spare->trouble = err;
    spare->retry_ns = now_ns + RETRY_NS;
}

/* A free file is written to its end already, so the next segment costs the least there. */
static void begin(struct sh_journal *journal, uint64_t now_ns)
{
    struct sh_journal_spare *spare = &journal->spare;
    char name[SH_JOURNAL_NAME_BYTES];
    spare->slot = slot_of(journal, SH_JOURNAL_FREE_FILE);
    bool is_new = spare->slot == SH_JOURNAL_SLOTS;
    if (is_new)
        spare->slot = slot_of(journal, SH_JOURNAL_NO_FILE);
    if (spare->slot == SH_JOURNAL_SLOTS) {
        fail(journal, now_ns, SHOAL_ELIMIT);
        return;
    }
    sh_journal_name(name, spare->slot);
    enum shoal_err err = sh_disk_open(journal->env.disk, name, is_new, &spare->file);
    if (err) {
        if (err == SHOAL_ENONAME)
            journal->slots[spare->slot].kind = SH_JOURNAL_NO_FILE;
        fail(journal, now_ns, err);
        return;
    }
    journal->slots[spare->slot].kind = SH_JOURNAL_SPARE_FILE;
    journal->slots[spare->slot].is_spoilt = false;
    spare->zeroed = 0;
    spare->phase = is_new ? SH_SPARE_NAMING : SH_SPARE_READY;
    if (is_new)
        sh_journal_op_begin(journal, &spare->op, SH_DISK_SYNC_DIR, spare->file, 0,
                            (struct sh_bytes){NULL, 0});
}

/* Whether the writer waits for it. */
static bool is_wanted(const struct sh_journal *journal)
{
    return !journal->is_open && journal->chunks;
}

static void zeros_write(struct sh_journal *journal)
{
    struct sh_journal_spare *spare = &journal->spare;
    uint64_t left = journal->segment_bytes - spare->zeroed;
    if (!left || is_wanted(journal)) {
        spare->phase = SH_SPARE_READY;
        spare->trouble = SHOAL_OK;
        return;
    }
    size_t size = left < SH_JOURNAL_ZEROS_BYTES ? (size_t)left : SH_JOURNAL_ZEROS_BYTES;
    spare->phase = SH_SPARE_ZEROING;
    sh_journal_op_begin(journal, &spare->op, SH_DISK_WRITE_SYNC, spare->file, spare->zeroed,
                        sh_bytes_make(journal->zeros, size));
    spare->zeroed += size;
}

unsigned sh_journal_spare_step(struct sh_journal *journal, uint64_t now_ns)
{
    struct sh_journal_spare *spare = &journal->spare;
    enum shoal_err err;
    if (spare->phase == SH_SPARE_NONE) {
        if (now_ns < spare->retry_ns)
            return 0;
        begin(journal, now_ns);
        return 1;
    }
    if (!sh_journal_op_end(journal, &spare->op, &err))
        return 0;
    if (err)
        fail(journal, now_ns, err);
    else
        zeros_write(journal);
    return 1;
}

uint64_t sh_journal_spare_due_ns(const struct sh_journal *journal, uint64_t now_ns)
{
    const struct sh_journal_spare *spare = &journal->spare;
    if (spare->phase == SH_SPARE_NONE)
        return spare->retry_ns;
    return spare->op.is_busy && spare->op.is_done ? now_ns : SH_NEVER;
}

bool sh_journal_spare_take(struct sh_journal *journal)
{
    struct sh_journal_spare *spare = &journal->spare;
    SH_ASSERT(!journal->is_open);
    if (spare->phase != SH_SPARE_READY)
        return false;
    spare->phase = SH_SPARE_NONE;
    spare->retry_ns = 0;
    journal->file = spare->file;
    journal->is_open = true;
    journal->offset = 0;
    journal->slot = spare->slot;
    journal->segment++;
    /* From here on the file may have the new header, whatever comes of it. */
    journal->slots[journal->slot].kind = SH_JOURNAL_SEGMENT;
    journal->slots[journal->slot].number = journal->segment;
    return true;
}

void sh_journal_spare_close(struct sh_journal *journal)
{
    struct sh_journal_spare *spare = &journal->spare;
    sh_journal_op_await(journal, &spare->op);
    if (spare->phase != SH_SPARE_NONE)
        journal->env.disk->ops->close(journal->env.disk, spare->file);
    spare->phase = SH_SPARE_NONE;
}
