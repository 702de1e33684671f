/* What a stream does whose state machine says nothing of it. */
#include "journal/journal_int.h"

static enum shoal_err bytes_load(void *arg, struct sh_bytes bytes)
{
    (void)arg;
    (void)bytes;
    return SHOAL_OK;
}

static enum shoal_err entry_load(void *arg, uint64_t index, uint64_t term, uint8_t kind,
                                 struct sh_bytes bytes)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)kind;
    (void)bytes;
    return SHOAL_OK;
}

static enum shoal_err begin_load(void *arg, uint64_t index, uint64_t term, bool is_first)
{
    (void)arg;
    (void)index;
    (void)term;
    (void)is_first;
    return SHOAL_OK;
}

static enum shoal_err end_load(void *arg, bool is_reset)
{
    (void)arg;
    (void)is_reset;
    return SHOAL_OK;
}

static enum shoal_err drop_load(void *arg)
{
    (void)arg;
    return SHOAL_OK;
}

static bool snapshot_begin(void *arg, uint64_t *index_out, uint64_t *term_out)
{
    (void)arg;
    *index_out = *term_out = 0;
    return true;
}

static void snapshot_entries(void *arg)
{
    (void)arg;
}

static size_t snapshot_next(void *arg, uint8_t *into, size_t room)
{
    (void)arg;
    (void)into;
    (void)room;
    return 0;
}

static void snapshot_end(void *arg, bool is_done)
{
    (void)arg;
    (void)is_done;
}

#define DEFAULT(member, function) stream.member = stream.member ? stream.member : (function)

struct sh_journal_stream sh_journal_stream_whole(struct sh_journal_stream stream)
{
    DEFAULT(load_state, bytes_load);
    DEFAULT(load_entry, entry_load);
    DEFAULT(load_snapshot_begin, begin_load);
    DEFAULT(load_snapshot_piece, bytes_load);
    DEFAULT(load_snapshot_end, end_load);
    DEFAULT(load_drop, drop_load);
    DEFAULT(snapshot_begin, snapshot_begin);
    DEFAULT(snapshot_entries, snapshot_entries);
    DEFAULT(snapshot_next, snapshot_next);
    DEFAULT(snapshot_end, snapshot_end);
    return stream;
}
