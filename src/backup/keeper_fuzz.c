/* Hostile messages of two owners, and of their later lives, to a node that keeps replicas: no assertion is reached, and each
 * request is answered.
 *
 * An input is any number of: u8 what, u8 how, and as much as that takes:
 *   what modulo 8:
 *   0  OPEN by owner how & 1: u8 zone, u8 incarnation, u8 flags, u8 first, u8 part, u8 since, u8 begun. `how` bit 1: of its life
 *      before; bit 2: of a large range
 *   1  CLOSE by owner how & 1: u8 zone, u8 incarnation
 *   2  an APPEND by owner how & 1: u8 zone, u8 incarnation, u8 number, u8 part, u8 wish, u8 count, and so many entries, each u8 kind
 *      with flags, u8 chunk, u8 size; of a piece u8 piece, u8 pieces, u8 total
 *   3  the same types with raw bytes: u8 size and so many bytes; `how` bits 1 and 2: the type
 *   4  time goes on by `how` ms; bit 7: the log stalls, or goes on
 *   5  the connection of owner how & 1 is lost
 *   6  the backup starts again
 *   7  owner how & 1 has another life; bit 1: and it is over; bit 2: SPACE is asked for instead */
#include <stdlib.h>

#include "backup/keeper_test.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define DEEDS_MAX 120
#define CUTS_MAX 12

static struct rig rig;
static struct rig_append append;
static struct rig_answer answers[DEEDS_MAX];
static unsigned asked;

static void ask(struct rig_owner *owner, sh_msg_type type, const uint8_t *bytes, size_t size)
{
    asked += rig_ask(owner, type, sh_bytes_make(bytes, size), &answers[asked]);
}

static void open_ask(struct sh_reader *r, struct rig_owner *owner, uint8_t how)
{
    uint8_t bytes[SH_REPLICATION_OPEN_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    struct sh_replication_open open = rig_open_of(owner, sh_get8(r) % RIG_ZONES, sh_get8(r), 1);
    open.life -= how >> 1 & 1;
    open.flags = sh_get8(r);
    open.first = sh_get8(r);
    open.first_part = sh_get8(r);
    open.since = sh_get8(r);
    open.begun = sh_get8(r);
    if (how & 4)
        open.range_count = UINT64_MAX;
    sh_replication_open_put(&w, &open);
    ask(owner, SH_REPLICATION_OPEN, bytes, sizeof bytes);
}

static void close_ask(struct sh_reader *r, struct rig_owner *owner)
{
    uint8_t bytes[SH_REPLICATION_CLOSE_BYTES];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    const struct sh_replication_close close = {
        .zone = rig_zone(sh_get8(r) % RIG_ZONES), .incarnation = sh_get8(r), .life = owner->life};
    sh_replication_close_put(&w, &close);
    ask(owner, SH_REPLICATION_CLOSE, bytes, sizeof bytes);
}

static void append_send(struct sh_reader *r, struct rig_owner *owner)
{
    static const uint8_t image[256];
    unsigned zone = sh_get8(r) % RIG_ZONES;
    uint32_t incarnation = sh_get8(r);
    uint64_t number = sh_get8(r);
    uint32_t part = sh_get8(r);
    rig_append_begin(&append, zone, incarnation, number, part, sh_get8(r));
    for (unsigned count = sh_get8(r); count > 0 && sh_reader_left(r) > 0; count--) {
        uint8_t kind = sh_get8(r);
        struct sh_replication_entry entry = {.kind = kind & 0x3F,
                                             .with_next = kind & SH_REPLICATION_WITH,
                                             .chunk = sh_get8(r),
                                             .size = sh_get8(r),
                                             .pieces = 1};
        if (entry.chunk & 0x80)
            entry.chunk = rig_chunk(entry.chunk & 0x7F);
        if (kind & SH_REPLICATION_PIECE) {
            entry.piece = sh_get8(r);
            entry.pieces = sh_get8(r);
            entry.total = sh_get8(r);
        }
        if (entry.kind == SH_REPLICATION_ZEROS && entry.pieces == 1)
            entry.size <<= 18;
        if (entry.kind == SH_REPLICATION_IMAGE)
            entry.bytes = sh_bytes_make(image, entry.size);
        sh_replication_entry_put(&append.w, &entry);
    }
    (void)rig_append_try(owner, &append);
}

static void raw_send(struct sh_reader *r, struct rig_owner *owner, uint8_t how)
{
    static const sh_msg_type types[] = {SH_REPLICATION_OPEN, SH_REPLICATION_APPEND,
                                        SH_REPLICATION_CLOSE, SH_REPLICATION_SPACE};
    size_t size = sh_get8(r);
    size = size < sh_reader_left(r) ? size : sh_reader_left(r);
    const uint8_t *bytes = sh_reader_take(r, size);
    sh_msg_type type = types[how >> 1 & 3];
    if (type != SH_REPLICATION_APPEND) {
        ask(owner, type, bytes, size);
        return;
    }
    append.w = sh_writer_make(append.bytes, sizeof append.bytes);
    sh_put_raw(&append.w, sh_bytes_make(bytes, size));
    (void)rig_append_try(owner, &append);
}

static void restart(void)
{
    for (unsigned i = 0; i < RIG_OWNERS; i++)
        rig_cut(&rig, &rig.owners[i]);
    rig_stop(&rig);
    rig_start(&rig);
}

static void live_on(struct rig_owner *owner, uint8_t how)
{
    unsigned i = owner->nid.v - RIG_OWNER_NID;
    if (how & 4) {
        ask(owner, SH_REPLICATION_SPACE, append.bytes, 0);
        return;
    }
    owner->life += rig.is_over[i] || !(how & 2);
    rig.is_over[i] = how & 2;
    sh_keeper_view_changed(rig.keeper);
}

/* False: there have been enough. */
static bool deed(struct sh_reader *r, unsigned *cuts)
{
    uint8_t what = sh_get8(r) % 8, how = sh_get8(r);
    struct rig_owner *owner = &rig.owners[how & 1];
    switch (what) {
    case 0:
        open_ask(r, owner, how);
        break;
    case 1:
        close_ask(r, owner);
        break;
    case 2:
        append_send(r, owner);
        break;
    case 3:
        raw_send(r, owner, how);
        break;
    case 4:
        rig.is_stalled ^= how >> 7;
        rig_pass(&rig, (how & 0x7F) * RIG_MS);
        break;
    case 5:
        rig_cut(&rig, owner);
        return ++*cuts < CUTS_MAX;
    case 6:
        restart();
        return ++*cuts < CUTS_MAX;
    default:
        live_on(owner, how);
        break;
    }
    return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool is_quiet;
    const char *bad;
    size_t bad_size;
    if (!is_quiet) {
        enum shoal_err err = sh_log_output_set("/dev/null", SH_LOG_AS_TEXT);
        SH_ASSERT(!err && !sh_log_levels_set("error", &bad, &bad_size));
        is_quiet = true;
    }
    struct sh_reader r = sh_reader_make(sh_bytes_make(data, size));
    unsigned cuts = 0;
    asked = 0;
    rig_open(&rig, 4711);
    for (unsigned i = 0; i < DEEDS_MAX && sh_reader_left(&r) > 0; i++) {
        if (!deed(&r, &cuts))
            break;
        rig_settle(&rig);
    }
    /* The keeper answers for a replica once it has dropped it; a request to a process that has ended fails with its connection. */
    rig.is_stalled = false;
    rig_pass(&rig, 1000 * RIG_MS);
    for (unsigned i = 0; i < asked; i++)
        SH_ASSERT(answers[i].is_over);
    rig_close(&rig);
    return 0;
}
