/* A zone of a failed owner that this node brings back (backup/adopt.c): its backups get what they lack, under the numbers that it has, the record changes once,
 * and from then on the zone is as any other. Backups are models that note each entry; the superpeer keeps records as real ones do. */
#include "backup/backlog.h"
#include "backup/completion.h"
#include "log/replog.h"
#include "recover/tail.h"
#include "tests/backup_adopt_int.h"

#define OTHER_ZONE (FORMER << 48 | 4)
#define PIECE (32u << 10)
#define ENTRIES 64u

/* What a backup got of a zone, since it was counted last. */
struct noted {
    uint64_t number;
    uint64_t chunk;
    uint8_t kind, with_next, completion_size, first;
    uint16_t piece, pieces;
    uint32_t size;
    struct sh_completion completion;
};

static struct {
    struct noted entries[ENTRIES];
    unsigned count;
} got[FAKE_BACKUPS];

static uint8_t bytes[3 * PIECE];

static void on_entry(const struct fake_backup *backup, const struct fake_zone *zone,
                     const struct sh_replication_entry *entry)
{
    unsigned i = backup->nid.v - FAKE_OWNER - 1u;
    if (zone->id != ZONE)
        return;
    struct noted *noted = &got[i].entries[got[i].count++ % ENTRIES];
    *noted = (struct noted){.number = zone->now.next,
                            .chunk = entry->chunk,
                            .kind = entry->kind,
                            .with_next = entry->with_next,
                            .completion_size = (uint8_t)entry->completion.size,
                            .piece = entry->piece,
                            .pieces = entry->pieces,
                            .size = entry->size};
    if (entry->kind == SH_REPLICATION_IMAGE && entry->size)
        noted->first = entry->bytes.at[0];
    if (entry->completion.size)
        assert_true(sh_completion_get(entry->completion, &noted->completion));
}

/* --- Rig ----------------------------------------------------------------------------------------- */

static uint64_t number;
static struct sh_zone record;

static void open_with(unsigned backups, unsigned up, unsigned replicas)
{
    memset(got, 0, sizeof got);
    owner_open(&owner, &calm, backups, up, (uint8_t)replicas);
    for (unsigned i = 0; i < backups; i++) {
        owner.backups[i].is_lenient = true;
        owner.backups[i].on_entry = on_entry;
    }
    owner_pass(&owner, 500 * FAKE_MS); /* it knows the others, and has made a zone */
}

static uint64_t adopt(uint64_t begin)
{
    uint64_t made;
    assert_int_equal(sh_backup_zone_adopt(owner.backup, &record, begin, END, &made), SHOAL_OK);
    return made;
}

static enum shoal_err tell(struct sh_replog_write write)
{
    return sh_backup_adopt_write(owner.backup, number, &write);
}

static struct sh_replog_write image(uint64_t local, uint8_t stamp, uint32_t size)
{
    memset(bytes, stamp, size);
    return (struct sh_replog_write){
        .local_id = local, .creator = FORMER, .pieces = 1, .payload = {bytes, size}};
}

static struct sh_replog_write piece(uint64_t local, uint16_t at, uint16_t pieces, uint32_t size,
                                    bool is_zeros)
{
    uint32_t each = is_zeros ? SH_BACKLOG_ZEROS_BYTES : PIECE;
    return (struct sh_replog_write){
        .local_id = local,
        .creator = FORMER,
        .piece = at,
        .pieces = pieces,
        .total = (pieces - 1u) * each + size,
        .payload = {is_zeros ? NULL : bytes, at + 1 < pieces ? each : size}};
}

static const struct sh_zone_claim claims[] = {{FORMER << 48 | 1, FORMER << 48 | 100},
                                              {UINT64_C(1), 0},
                                              {UINT64_C(91) << 48 | 7, UINT64_C(91) << 48 | 7},
                                              {FORMER << 48 | 300, FORMER << 48 | 400}};

static enum shoal_err claim(uint64_t live)
{
    return sh_backup_adopt_claims(owner.backup, number, claims, 4, live, false);
}

/* Adopts the zone whose backups all end there, with chunks of so many bytes. */
static void adopt_all(unsigned others, uint64_t live)
{
    record = record_make(ZONE, others);
    for (unsigned i = 0; i < others; i++)
        (void)replica_make(i, ZONE, END);
    number = adopt(END);
    assert_int_equal(claim(live), SHOAL_OK);
}

static bool is_open(void *arg)
{
    (void)arg;
    return sh_backup_adopt_state(owner.backup, number) == SHOAL_OK;
}

static bool needs_own(void)
{
    return sh_backup_adopted_needs_own(owner.backup, ZONE);
}

/* The record names these backups, and no former owner. */
static void assert_opened(unsigned backups_count, const unsigned *backups)
{
    const struct sh_zone now = record_of(ZONE);
    assert_true(!now.former.v && now.owner.v == FAKE_OWNER && now.count == backups_count);
    for (unsigned i = 0; i < backups_count; i++)
        assert_true(sh_zone_has_backup(&now, owner.backups[backups[i]].nid,
                                       owner.backups[backups[i]].disk));
}

/* A chunk of the zone comes to the store, as what a replica has. */
static void chunk_put(uint64_t local, uint32_t size)
{
    memset(bytes, 1, size);
    sh_store_witness_pause(true);
    assert_int_equal(
        sh_store_take_over(owner.store, (shoal_cid){chunk_of(local)}, sh_bytes_make(bytes, size)),
        SHOAL_OK);
    sh_store_witness_pause(false);
}

static struct {
    unsigned calls;
    enum shoal_err err;
} acked;

static void on_acked(void *arg, enum shoal_err err)
{
    (void)arg;
    acked.calls++;
    acked.err = err;
}

static struct sh_write write_;

/* Changes a chunk of the zone, and waits for that to be acknowledged; on_acked is told. */
static enum shoal_err chunk_write(uint64_t local, uint8_t stamp, uint32_t size, enum sh_level level,
                                  const struct sh_write_request *request)
{
    memset(bytes, stamp, size);
    const struct sh_store_rewrite put = {
        .kind = SH_STORE_PUT, .cid = {chunk_of(local)}, .data = sh_bytes_make(bytes, size)};
    memset(&acked, 0, sizeof acked);
    sh_write_begin(&write_, level);
    if (request)
        sh_write_request_set(&write_, request);
    enum shoal_err err = sh_backup_rewrite(owner.backup, &write_, &put);
    if (!err && !sh_write_wait(owner.backup, &write_, on_acked, NULL))
        on_acked(NULL, SHOAL_OK);
    return err;
}

static bool is_acked(void *arg)
{
    (void)arg;
    return acked.calls;
}

static void assert_got(unsigned i, unsigned at, struct noted is)
{
    const struct noted *has = &got[i].entries[at];
    assert_true(at < got[i].count);
    assert_int_equal(has->number, is.number);
    assert_int_equal(has->chunk, is.chunk);
    assert_int_equal(has->kind, is.kind);
    assert_int_equal(has->size, is.size);
    assert_int_equal(has->piece, is.piece);
    assert_int_equal(has->pieces, is.pieces);
    assert_int_equal(has->with_next, is.with_next);
    assert_int_equal(has->first, is.first);
}

/* --- The tail ------------------------------------------------------------------------------------ */

/* Copies a write, of which nothing stays. */
static void tail_add(struct sh_tail *tail, uint64_t sequence, struct sh_replog_write write)
{
    assert_int_equal(sh_tail_add(tail, sequence, &write), SHOAL_OK);
    assert_int_equal(tail->next, sequence + 1);
    memset(bytes, 0xee, sizeof bytes);
}

/* Writes 4 to 9, of each kind. */
static void tail_tell(void)
{
    uint8_t range[16], completion[SH_COMPLETION_BYTES_MAX];
    struct sh_tail tail = {.count = 0};
    const struct sh_completion done = {
        .client = 8, .number = 3, .acknowledged = 2, .chunk = chunk_of(2), .value = 77};
    sh_store64(range, claims[3].first);
    sh_store64(range + 8, claims[3].last);
    const struct sh_replog_write note = {
        .local_id = 4, .pieces = 1, .payload = {range, sizeof range}};
    tail_add(&tail, 4, image(1, 41, 100));
    struct sh_replog_write with = image(2, 51, 64);
    with.completion = sh_bytes_make(completion, sh_completion_put(&done, completion));
    tail_add(&tail, 5, with);
    memset(completion, 0xee, sizeof completion);
    for (uint16_t i = 0; i < 3; i++) {
        memset(bytes, 61 + i, sizeof bytes);
        tail_add(&tail, 6, piece(3, i, 3, 1000, false));
    }
    for (uint16_t i = 0; i < 3; i++) /* zeros, more than one entry has */
        tail_add(&tail, 7, piece(4, i, 3, 1000, true));
    const struct sh_replog_write removal = {
        .local_id = 5, .creator = FORMER, .pieces = 1, .is_removal = true};
    tail_add(&tail, 8, removal);
    with = image(300, 91, 64);
    with.with = &note;
    tail_add(&tail, 9, with);
    memset(range, 0xee, sizeof range);
    assert_int_equal(tail.count, 11 - 1); /* of a pair there is one */
    assert_int_equal(sh_tail_tell(&tail, owner.backup, number), SHOAL_OK);
    sh_tail_end(&tail);
    assert_true(!tail.count && !tail.next);
}

static void tail_check(unsigned i, uint64_t from)
{
    const uint64_t zeros = SH_BACKLOG_ZEROS_BYTES;
    const struct noted all[] = {
        {.number = 4, .chunk = chunk_of(1), .pieces = 1, .size = 100, .first = 41},
        {.number = 5, .chunk = chunk_of(2), .pieces = 1, .size = 64, .first = 51},
        {.number = 6, .chunk = chunk_of(3), .pieces = 3, .size = PIECE, .first = 61},
        {.number = 6, .chunk = chunk_of(3), .piece = 1, .pieces = 3, .size = PIECE, .first = 62},
        {.number = 6, .chunk = chunk_of(3), .piece = 2, .pieces = 3, .size = 1000, .first = 63},
        {.number = 7,
         .chunk = chunk_of(4),
         .kind = SH_REPLICATION_ZEROS,
         .pieces = 3,
         .size = zeros},
        {.number = 7,
         .chunk = chunk_of(4),
         .kind = SH_REPLICATION_ZEROS,
         .piece = 1,
         .pieces = 3,
         .size = zeros},
        {.number = 7,
         .chunk = chunk_of(4),
         .kind = SH_REPLICATION_ZEROS,
         .piece = 2,
         .pieces = 3,
         .size = 1000},
        {.number = 8, .chunk = chunk_of(5), .kind = SH_REPLICATION_REMOVAL, .pieces = 1},
        {.number = 9, .chunk = 4, .pieces = 1, .size = 16, .with_next = 1, .first = 44},
        {.number = 9, .chunk = chunk_of(300), .pieces = 1, .size = 64, .first = 91},
    };
    unsigned count = sizeof all / sizeof *all, first = 0;
    while (first < count && all[first].number < from)
        first++;
    assert_int_equal(got[i].count, count - first);
    for (unsigned k = first; k < count; k++)
        assert_got(i, k - first, all[k]);
    for (unsigned k = 0; k < got[i].count; k++) {
        const struct noted *noted = &got[i].entries[k];
        assert_int_equal(noted->completion_size > 0, noted->number == 5);
        if (noted->completion_size)
            assert_true(noted->completion.client == 8 && noted->completion.value == 77 &&
                        !noted->completion.node);
    }
}

/* Backups that lack different amounts get just these. */
static void backups_get_what_they_lack(void **state)
{
    (void)state;
    const unsigned named[] = {0, 1, 2};
    open_with(3, 3, 2);
    record = record_make(ZONE, 3);
    record.wanted = 3;
    (void)replica_make(0, ZONE, 4);
    (void)replica_make(1, ZONE, 8);
    (void)replica_make(2, ZONE, END);
    number = adopt(4);
    tail_tell();
    unsigned changes = owner.superpeer.changes;
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(!got[0].count && !got[1].count); /* it is not known yet what the zone has */
    assert_int_equal(claim(1000), SHOAL_OK);
    owner_pass(&owner, 500 * FAKE_MS);
    tail_check(0, 4);
    tail_check(1, 8);
    tail_check(2, END);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(fake_find(&owner.backups[i], ZONE)->durable.next, END);
    assert_int_equal(owner.superpeer.changes, changes);
    assert_true(needs_own() && !is_open(NULL) && record_of(ZONE).former.v);
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    assert_int_equal(owner.superpeer.changes, changes + 1);
    assert_opened(3, named);
    assert_int_equal(record_of(ZONE).incarnation, record.incarnation + 1);
    assert_false(needs_own());
    owner_close(&owner);
}

/* Writes that no owner has recorded are refused, and the zone can still be given up. */
static void a_tail_that_is_none(void **state)
{
    (void)state;
    const struct sh_replog_write note = {.local_id = 4, .pieces = 1, .payload = {bytes, 65}};
    open_with(1, 1, 1);
    record = record_make(ZONE, 1);
    for (unsigned i = 0; i < 9; i++) {
        struct sh_replog_write write = image(1, 1, 64);
        number = adopt(4);
        switch (i) {
        case 0:
            write.with = &note; /* which is too large */
            break;
        case 1:
            write.completion = sh_bytes_make(bytes, SH_COMPLETION_BYTES_MAX + 1);
            break;
        case 2:
            write = piece(3, 1, 3, 1000, false); /* the first one is missing */
            break;
        case 3:
            assert_int_equal(tell(piece(3, 0, 3, 1000, false)), SHOAL_OK);
            break; /* the others are */
        case 4:
            assert_int_equal(tell(piece(3, 0, 3, 1000, false)), SHOAL_OK);
            write = piece(3, 0, 3, 1000, false);
            break;
        case 5:
            assert_int_equal(tell(piece(3, 0, 3, 1000, false)), SHOAL_OK);
            write = piece(3, 1, 3, 1000, false);
            write.payload.at = NULL; /* zeros among others */
            break;
        case 6:
            write = piece(3, 0, 3, 1000, false);
            write.payload.size = PIECE + 1;
            break;
        case 7:
            write = piece(3, 3, 3, 1000, false);
            break;
        default:
            write = piece(4, 0, 4, 1000, true);
            write.total = 77; /* which is cut otherwise */
            break;
        }
        assert_int_equal(tell(write), SHOAL_ECORRUPT);
        sh_backup_adopt_cancel(owner.backup, number);
    }
    owner_close(&owner);
}

/* A backup whose former owner wrote more there, and one that lacks what is not to be had: others take their place, and the record does not name them when the
 * zone opens. */
static void backups_that_do_not_fit_are_replaced(void **state)
{
    (void)state;
    const unsigned named[] = {2};
    open_with(4, 4, 3);
    record = record_make(ZONE, 3);
    (void)replica_make(0, ZONE, END + 1);
    (void)replica_make(1, ZONE, 3);
    (void)replica_make(2, ZONE, END - 1);
    number = adopt(END - 1);
    assert_int_equal(tell(image(1, 41, 100)), SHOAL_OK);
    assert_int_equal(claim(1000), SHOAL_OK);
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    assert_opened(1, named);
    assert_int_equal(fake_find(&owner.backups[0], ZONE)->now.next, END + 1);
    owner_pass(&owner, 3000 * FAKE_MS);
    const struct sh_zone now = record_of(ZONE);
    assert_true(now.count == 2 && sh_zone_has_backup(&now, owner.backups[2].nid, 0));
    assert_true(owner_status(&owner).copies_done > 0);
    owner_close(&owner);
}

/* --- When it opens ------------------------------------------------------------------------------- */

/* Whoever is slow is waited for, but not for ever. */
static void a_slow_backup_is_waited_for(void **state)
{
    (void)state;
    const unsigned both[] = {0, 1}, one[] = {0};
    for (unsigned is_stuck = 0; is_stuck < 2; is_stuck++) {
        open_with(2, 2, 2);
        owner.backups[1].is_stuck = true;
        record = record_make(ZONE, 2);
        (void)replica_make(0, ZONE, END - 1);
        (void)replica_make(1, ZONE, END - 1);
        number = adopt(END - 1);
        assert_int_equal(tell(image(1, 41, 100)), SHOAL_OK);
        assert_int_equal(claim(1000), SHOAL_OK);
        sh_backup_adopt_open(owner.backup, number);
        owner_pass(&owner, 2800 * FAKE_MS);
        assert_int_equal(fake_find(&owner.backups[1], ZONE)->now.next, END);
        assert_false(is_open(NULL));
        owner.backups[1].is_stuck = is_stuck;
        owner_pass(&owner, 100 * FAKE_MS);
        assert_int_equal(is_open(NULL), !is_stuck);
        owner_pass(&owner, 200 * FAKE_MS);
        assert_true(is_open(NULL));
        assert_opened(2 - is_stuck, is_stuck ? one : both);
        owner_close(&owner);
    }
}

/* This node's own replica is the only one: it stays in the record, and nothing is acknowledged, until another one has a copy. */
static void without_others_the_own_replica_stays(void **state)
{
    (void)state;
    const unsigned one[] = {0};
    open_with(1, 0, 2);
    adopt_all(0, 100);
    chunk_put(1, 64);
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    struct sh_zone now = record_of(ZONE);
    assert_true(!now.former.v && now.count == 1 &&
                sh_zone_has_backup(&now, (shoal_nid){FAKE_OWNER}, OWN_DISK));
    assert_true(needs_own());
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_int_equal(chunk_write(1, 5, 64, SH_LEVEL_REPLICATED, NULL), SHOAL_ENOBACKUP);
    assert_int_equal(chunk_write(1, 6, 64, SH_LEVEL_ASYNC, NULL), SHOAL_OK);
    owner.are_failed[0] = false;
    owner_view(&owner);
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_opened(1, one);
    assert_false(needs_own());
    assert_int_equal(chunk_write(1, 7, 64, SH_LEVEL_REPLICATED, NULL), SHOAL_OK);
    owner_until(&owner, is_acked, NULL);
    assert_int_equal(acked.err, SHOAL_OK);
    unsigned images = 0, told = 0;
    for (unsigned i = 0; i < got[0].count; i++) {
        told += !(got[0].entries[i].chunk >> 48) && got[0].entries[i].size == 16;
        images += got[0].entries[i].chunk == chunk_of(1);
    }
    assert_true(told == 3 &&
                images == 2); /* claims that are not empty places; the copy, and the write */
    owner_close(&owner);
}

/* Another restorer was at the zone before. Replicas end where this node's does, by what that one sent: none goes on, and nothing is acknowledged before they are made anew. Until then
 * each may be all that is left. */
static void a_zone_that_comes_back_again(void **state)
{
    (void)state;
    const unsigned both[] = {0, 1};
    open_with(2, 2, 2);
    record = record_make(ZONE, 2);
    record.flags |= SH_ZONE_AGAIN;
    record_apply(SH_METADATA_ZONE_CHANGE, &record, (shoal_nid){FAKE_SUPERPEER}, 1);
    record = record_of(ZONE);
    for (unsigned i = 0; i < 2; i++)
        (void)replica_make(i, ZONE, END);
    number = adopt(END);
    assert_int_equal(claim(100), SHOAL_OK);
    chunk_put(1, 64);
    owner_pass(&owner, 100 * FAKE_MS);
    assert_true(!got[0].count && !got[1].count);
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    struct sh_zone now = record_of(ZONE);
    assert_true(!now.former.v && now.count == 3 && !(now.flags & SH_ZONE_AGAIN));
    assert_true(needs_own());
    owner_pass(&owner, 3000 * FAKE_MS);
    assert_opened(2, both);
    for (unsigned i = 0; i < 2; i++) {
        unsigned images = 0;
        for (unsigned k = 0; k < got[i].count; k++)
            images += got[i].entries[k].chunk == chunk_of(1);
        assert_int_equal(images, 1);
    }
    owner_close(&owner);
}

/* A recorded backup that is down has less than was brought back: this node's own replica stays in the record beside it, until that one is back and has all. */
static void while_others_are_down_the_own_replica_stays(void **state)
{
    (void)state;
    for (uint64_t begin = END - 5; begin <= END; begin += 5) {
        open_with(1, 1, 1);
        record = record_make(ZONE, 1);
        (void)replica_make(0, ZONE, begin);
        owner.are_failed[0] = true;
        owner_view(&owner);
        number = adopt(begin);
        for (uint64_t i = begin; i < END; i++)
            assert_int_equal(tell(image(1 + i, 7, 64)), SHOAL_OK);
        assert_int_equal(claim(100), SHOAL_OK);
        sh_backup_adopt_open(owner.backup, number);
        owner_until(&owner, is_open, NULL);
        owner_pass(&owner, 10000 * FAKE_MS);
        assert_true(record_of(ZONE).count == 2 && needs_own());
        owner.are_failed[0] = false;
        owner_view(&owner);
        owner_pass(&owner, 10000 * FAKE_MS);
        assert_opened(1, (const unsigned[]){0});
        owner_close(&owner);
    }
}

/* Images that are not the zone's leave its replicas before it opens, though there are so many that the backlog has no room for all. */
static void leftovers_go_before_it_opens(void **state)
{
    (void)state;
    const uint64_t many = (UINT64_C(4) << 20) / SH_BACKLOG_HEAD_BYTES + 3000;
    open_with(2, 2, 2);
    adopt_all(2, 100);
    for (uint64_t i = 0; i < many; i++)
        sh_backup_left_found(owner.backup, number, chunk_of(1000 + i));
    sh_backup_adopt_open(owner.backup, number);
    uint64_t left = UINT64_MAX;
    while (!is_open(NULL)) {
        owner_pass(&owner, FAKE_MS);
        left = 0;
        for (unsigned i = 0; i < 2; i++) {
            const struct fake_zone *zone = fake_find(&owner.backups[i], ZONE);
            left += END + many - zone->durable.next;
        }
        if (!record_of(ZONE).former.v)
            assert_int_equal(left, 0);
    }
    assert_int_equal(left, 0);
    owner_close(&owner);
}

/* --- Giving it up -------------------------------------------------------------------------------- */

static bool has_two(void *arg)
{
    const struct sh_zone now = record_of(ZONE);
    (void)arg;
    return now.count == 2 && !sh_zone_has_backup(&now, (shoal_nid){FAKE_OWNER}, 0);
}

/* Each of them leaves nothing behind: the zone can be adopted again, and what it was made of becomes other zones. */
static void a_zone_that_is_given_up(void **state)
{
    (void)state;
    const unsigned both[] = {0, 1};
    const struct sh_zone_claim later = {chunk_of(50), chunk_of(50)};
    uint64_t found, outweighed, begun[3];
    open_with(2, 2, 2);
    struct sh_zone other = record_make(OTHER_ZONE, 2);
    record = record_make(ZONE, 2);
    for (unsigned i = 0; i < 2; i++) {
        (void)replica_make(i, ZONE, 4);
        (void)replica_make(i, OTHER_ZONE, END);
    }
    /* In the middle of a chunk's pieces. */
    number = adopt(4);
    assert_int_equal(tell(piece(3, 0, 3, 1000, false)), SHOAL_OK);
    assert_false(sh_backup_adopt_cancel(owner.backup, number));
    /* The tail is larger than the backlog. */
    number = adopt(4);
    enum shoal_err err = SHOAL_OK;
    for (uint16_t i = 0; !err; i++)
        err = tell(piece(3, i, 1000, 1000, false));
    assert_int_equal(err, SHOAL_EAGAIN);
    sh_backup_adopt_cancel(owner.backup, number);
    assert_false(sh_backup_is_claimed(owner.backup, chunk_of(50)));
    /* With claims, images that are left in it and in a zone that it outweighs, and writes that its backups have by then. */
    number = adopt(4);
    tail_tell();
    assert_int_equal(claim(1000), SHOAL_OK);
    sh_backup_left_found(owner.backup, number, chunk_of(60));
    assert_int_equal(sh_backup_zone_adopt(owner.backup, &other, END, END, &outweighed), SHOAL_OK);
    assert_int_equal(sh_backup_adopt_claims(owner.backup, outweighed, &later, 1, 100, false),
                     SHOAL_OK);
    sh_backup_left_found(owner.backup, outweighed, chunk_of(50));
    owner_pass(&owner, 500 * FAKE_MS);
    assert_true(sh_backup_zone_number(owner.backup, (shoal_cid){chunk_of(50)}, &found) &&
                found == number);
    assert_int_equal(fake_find(&owner.backups[0], ZONE)->now.next, END + 1);
    assert_true(sh_backup_adopt_cancel(owner.backup, number));
    assert_false(sh_backup_is_claimed(owner.backup, chunk_of(50)));
    sh_backup_adopt_cancel(owner.backup, outweighed);
    assert_false(needs_own());
    /* They become other zones. */
    for (unsigned i = 0; i < 3; i++)
        begun[i] = owner_status(&owner).zones;
    write_for(1500 * FAKE_MS);
    assert_true(owner_status(&owner).zones > begun[0] + 4);
    owner_settle(&owner);
    /* Once more. Its backups have a removal by now that it does not know of: they are replaced, and it does not take their word that they have its own. */
    number = adopt(4);
    tail_tell();
    assert_int_equal(claim(1000), SHOAL_OK);
    sh_backup_left_found(owner.backup, number, chunk_of(61));
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    assert_true(needs_own());
    owner_until(&owner, has_two, NULL);
    assert_opened(2, both);
    for (unsigned i = 0; i < 2; i++)
        assert_true(fake_find(&owner.backups[i], ZONE)->began > END);
    owner_close(&owner);
}

/* --- As any other -------------------------------------------------------------------------------- */

static uint8_t need;

static void on_need(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    (void)request;
    assert_int_equal(err, SHOAL_OK);
    assert_int_equal(sh_get64(payload), FAKE_LIFE);
    need = sh_get8(payload);
}

/* What the owner says of that backup's replica. */
static uint8_t need_of(unsigned i, uint64_t id)
{
    struct sh_request request = {.done = on_need};
    struct sh_out out;
    need = UINT8_MAX;
    assert_int_equal(sh_msg_request(owner.backups[i].msg, (shoal_nid){FAKE_OWNER},
                                    SH_REPLICATION_KEPT, 8, &request, &out),
                     SHOAL_OK);
    sh_put64(&out.w, id);
    sh_msg_end(owner.backups[i].msg, &out);
    owner_pass(&owner, 50 * FAKE_MS);
    assert_true(need != UINT8_MAX);
    return need;
}

static void an_open_one_is_as_any_other(void **state)
{
    (void)state;
    const unsigned both[] = {0, 1};
    const struct sh_write_request request = {.client = 9, .number = 4, .acknowledged = 3};
    open_with(3, 2, 2);
    owner.are_failed[2] = false;
    owner_view(&owner);
    owner_pass(&owner, 500 * FAKE_MS);
    adopt_all(2, 64 + SH_ZONE_CHUNK_BYTES);
    chunk_put(1, 64);
    assert_int_equal(need_of(2, ZONE), SH_REPLICATION_NEEDED); /* it is being brought back */
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_open, NULL);
    assert_opened(2, both);
    owner_pass(&owner, 500 * FAKE_MS);
    assert_int_equal(need_of(0, ZONE), SH_REPLICATION_NEEDED);
    assert_int_equal(need_of(2, ZONE), SH_REPLICATION_ELSEWHERE);
    assert_int_equal(need_of(2, OTHER_ZONE), SH_REPLICATION_NEEDED); /* of which it knows nothing */
    assert_int_equal(need_of(2, sh_zone_id((shoal_nid){FAKE_OWNER}, number)),
                     SH_REPLICATION_DROPPED); /* the number is no zone of this node's own */
    /* It says which node ran the request, as that is not the one that has made the zone. */
    unsigned before = got[0].count;
    assert_int_equal(chunk_write(1, 5, 64, SH_LEVEL_DURABLE, &request), SHOAL_OK);
    owner_until(&owner, is_acked, NULL);
    assert_int_equal(acked.err, SHOAL_OK);
    const struct noted *noted = &got[0].entries[before];
    assert_int_equal(got[0].count, before + 1);
    assert_true(noted->chunk == chunk_of(1) && noted->first == 5 && noted->number == END);
    assert_true(noted->completion.client == 9 && noted->completion.number == 4 &&
                noted->completion.node == FAKE_OWNER && !noted->completion.acknowledged);
    /* It is concluded, by IDs of its creator. */
    owner_pass(&owner, 2000 * FAKE_MS);
    struct sh_zone now = record_of(ZONE);
    assert_true(now.flags & SH_ZONE_CONCLUDED);
    assert_true(now.first.v == claims[0].first && now.last.v == claims[3].last);
    /* A backup fails: another one gets a copy. */
    backup_fail(1, true);
    owner_pass(&owner, 5000 * FAKE_MS);
    now = record_of(ZONE);
    assert_true(now.count == 2 && sh_zone_has_backup(&now, owner.backups[2].nid, 0));
    bool has_image = false;
    for (unsigned i = 0; i < got[2].count; i++)
        has_image |= got[2].entries[i].chunk == chunk_of(1) && got[2].entries[i].first == 5;
    assert_true(has_image && got[2].count == 4); /* and its claims */
    owner_close(&owner);
}

static bool is_dropped(void *arg)
{
    struct sh_zone now;
    (void)arg;
    return !sh_metadata_zone(owner.superpeer.metadata, ZONE, &now);
}

/* One that has nothing, and one that gets empty, are dropped, and the ID is known no more. */
static void an_empty_one_is_dropped(void **state)
{
    (void)state;
    for (unsigned has_chunk = 0; has_chunk < 2; has_chunk++) {
        open_with(2, 2, 2);
        adopt_all(2, has_chunk ? 64 + SH_ZONE_CHUNK_BYTES : 0);
        if (has_chunk)
            chunk_put(1, 64);
        owner_pass(&owner, 500 * FAKE_MS);
        assert_false(is_dropped(NULL)); /* it may not before it is open */
        sh_backup_adopt_open(owner.backup, number);
        owner_until(&owner, is_open, NULL);
        if (has_chunk) {
            owner_pass(&owner, 3000 * FAKE_MS);
            assert_false(is_dropped(NULL));
            sh_write_begin(&write_, SH_LEVEL_ASYNC);
            assert_int_equal(sh_backup_remove(owner.backup, &write_, (shoal_cid){chunk_of(1)}),
                             SHOAL_OK);
        }
        owner_until(&owner, is_dropped, NULL);
        owner_pass(&owner, 500 * FAKE_MS);
        assert_false(needs_own() || sh_backup_is_claimed(owner.backup, chunk_of(1)));
        assert_int_equal(sh_backup_adopt_state(owner.backup, number), SHOAL_OK);
        assert_null(fake_find(&owner.backups[0], ZONE));
        owner_close(&owner);
    }
}

/* One with few chunks is emptied: these go to the open zone. */
static void a_sparse_one_is_evacuated(void **state)
{
    (void)state;
    owner.config.sparse_zones = 1;
    open_with(2, 2, 2);
    owner.config.sparse_zones = 0; /* of the next owner */
    write_for(300 * FAKE_MS);      /* there is an open zone */
    adopt_all(2, 64 + SH_ZONE_CHUNK_BYTES);
    chunk_put(1, 64);
    sh_backup_adopt_open(owner.backup, number);
    owner_until(&owner, is_dropped, NULL);
    uint64_t found;
    assert_true(sh_backup_zone_number(owner.backup, (shoal_cid){chunk_of(1)}, &found));
    assert_true(found != number);
    owner_close(&owner);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(backups_get_what_they_lack),
        cmocka_unit_test(a_tail_that_is_none),
        cmocka_unit_test(backups_that_do_not_fit_are_replaced),
        cmocka_unit_test(a_slow_backup_is_waited_for),
        cmocka_unit_test(without_others_the_own_replica_stays),
        cmocka_unit_test(a_zone_that_comes_back_again),
        cmocka_unit_test(while_others_are_down_the_own_replica_stays),
        cmocka_unit_test(leftovers_go_before_it_opens),
        cmocka_unit_test(a_zone_that_is_given_up),
        cmocka_unit_test(an_open_one_is_as_any_other),
        cmocka_unit_test(an_empty_one_is_dropped),
        cmocka_unit_test(a_sparse_one_is_evacuated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
