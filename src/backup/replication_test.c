/* Messages of replication: each there and back, cut short and with a byte more, and random bytes: what is read is what can be
 * written. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "backup/replication.h"
#include "base/random_test.h"
#include "log/entry.h"

#define ROOM 4096

struct written {
    uint8_t bytes[ROOM];
    struct sh_writer w;
};

static struct sh_writer *begin(struct written *written)
{
    written->w = sh_writer_make(written->bytes, sizeof written->bytes);
    return &written->w;
}

static size_t size_of(const struct written *written)
{
    assert_true(sh_writer_ok(&written->w));
    return (size_t)(written->w.at - written->bytes);
}

static struct sh_reader read_of(const struct written *written)
{
    return sh_reader_make(sh_bytes_make(written->bytes, size_of(written)));
}

/* A message of a fixed size is none when a byte is missing, or there is one more. */
#define ASSERT_WHOLE(written, get, type)                                                           \
    do {                                                                                           \
        type read_;                                                                                \
        for (size_t size_ = 0; size_ <= size_of(written) + 1; size_++) {                           \
            struct sh_reader r_ = sh_reader_make(sh_bytes_make((written)->bytes, size_));          \
            assert_int_equal(get(&r_, &read_), size_ == size_of(written));                         \
        }                                                                                          \
    } while (0)

static const struct sh_replication_open an_open = {.zone = UINT64_C(64) << 48 | 7,
                                                   .incarnation = 5,
                                                   .life = UINT64_C(3) << 32 | 99,
                                                   .flags = 0,
                                                   .first = 1001,
                                                   .first_part = 17,
                                                   .since = 4,
                                                   .begun = 500,
                                                   .bytes_max = 512 << 20,
                                                   .range_first = UINT64_C(64) << 48 | 1,
                                                   .range_count = 4711};

static void test_open(void **state)
{
    (void)state;
    struct written written;
    struct sh_replication_open open;
    sh_replication_open_put(begin(&written), &an_open);
    assert_int_equal(size_of(&written), SH_REPLICATION_OPEN_BYTES);
    struct sh_reader r = read_of(&written);
    assert_true(sh_replication_open_get(&r, &open));
    assert_int_equal(open.zone, an_open.zone);
    assert_int_equal(open.incarnation, 5);
    assert_int_equal(open.life, an_open.life);
    assert_int_equal(open.flags, 0);
    assert_int_equal(open.first, 1001);
    assert_int_equal(open.first_part, 17);
    assert_int_equal(open.since, 4);
    assert_int_equal(open.begun, 500);
    assert_int_equal(open.bytes_max, an_open.bytes_max);
    assert_int_equal(open.range_first, an_open.range_first);
    assert_int_equal(open.range_count, 4711);
    ASSERT_WHOLE(&written, sh_replication_open_get, struct sh_replication_open);
}

static bool open_is_read(const struct sh_replication_open *open)
{
    struct written written;
    struct sh_replication_open read;
    sh_replication_open_put(begin(&written), open);
    struct sh_reader r = read_of(&written);
    return sh_replication_open_get(&r, &read);
}

static void test_open_that_is_none(void **state)
{
    (void)state;
    struct sh_replication_open open = an_open;
    open.flags = SH_REPLICATION_ANEW; /* in the middle of a write */
    assert_false(open_is_read(&open));
    open.first_part = 0;
    assert_true(open_is_read(&open));
    open.flags = 0x02;
    assert_false(open_is_read(&open));
    open = an_open;
    open.since = 6;
    assert_false(open_is_read(&open));
    open.since = 0;
    assert_false(open_is_read(&open));
    open = an_open;
    open.incarnation = 0;
    assert_false(open_is_read(&open));
    open = an_open;
    open.first = 0;
    assert_false(open_is_read(&open));
    open = an_open;
    open.begun = 0;
    assert_false(open_is_read(&open));
}

static void test_opened_close_space(void **state)
{
    (void)state;
    struct written written;
    const struct sh_replication_opened opened = {
        .next = 77, .part = 3, .durable = 70, .credit = 1 << 20, .disk = 0xD15C};
    struct sh_replication_opened opened_read;
    sh_replication_opened_put(begin(&written), &opened);
    assert_int_equal(size_of(&written), SH_REPLICATION_OPENED_BYTES);
    struct sh_reader r = read_of(&written);
    assert_true(sh_replication_opened_get(&r, &opened_read));
    assert_int_equal(opened_read.next, 77);
    assert_int_equal(opened_read.part, 3);
    assert_int_equal(opened_read.durable, 70);
    assert_int_equal(opened_read.credit, 1 << 20);
    assert_int_equal(opened_read.disk, 0xD15C);
    ASSERT_WHOLE(&written, sh_replication_opened_get, struct sh_replication_opened);

    const struct sh_replication_close close = {.zone = 9, .incarnation = 2, .life = 1234567890123};
    struct sh_replication_close close_read;
    sh_replication_close_put(begin(&written), &close);
    assert_int_equal(size_of(&written), SH_REPLICATION_CLOSE_BYTES);
    r = read_of(&written);
    assert_true(sh_replication_close_get(&r, &close_read));
    assert_int_equal(close_read.zone, 9);
    assert_int_equal(close_read.incarnation, 2);
    assert_int_equal(close_read.life, 1234567890123);
    ASSERT_WHOLE(&written, sh_replication_close_get, struct sh_replication_close);

    const struct sh_replication_space space = {.keeps = true,
                                               .disk = 5,
                                               .disk_bytes = UINT64_C(1) << 40,
                                               .disk_free_bytes = UINT64_C(1) << 39,
                                               .zones = 12,
                                               .zones_max = 2000};
    struct sh_replication_space space_read;
    sh_replication_space_put(begin(&written), &space);
    assert_int_equal(size_of(&written), SH_REPLICATION_SPACE_BYTES);
    r = read_of(&written);
    assert_true(sh_replication_space_get(&r, &space_read));
    assert_true(space_read.keeps);
    assert_int_equal(space_read.disk, 5);
    assert_int_equal(space_read.disk_bytes, UINT64_C(1) << 40);
    assert_int_equal(space_read.disk_free_bytes, UINT64_C(1) << 39);
    assert_int_equal(space_read.zones, 12);
    assert_int_equal(space_read.zones_max, 2000);
    ASSERT_WHOLE(&written, sh_replication_space_get, struct sh_replication_space);
    written.bytes[0] = 2;
    r = read_of(&written);
    assert_false(sh_replication_space_get(&r, &space_read));
}

static void test_acks(void **state)
{
    (void)state;
    struct written written;
    const struct sh_replication_ack acks[] = {
        {.zone = 1, .incarnation = 2, .next = 30, .part = 4, .durable = 29},
        {.zone = 5, .incarnation = 6, .next = 7, .durable = 7, .state = SH_REPLICATION_LOST},
        {.zone = 8, .incarnation = 9, .state = SH_REPLICATION_GONE},
    };
    struct sh_replication_ack read;
    begin(&written);
    for (unsigned i = 0; i < 3; i++)
        sh_replication_ack_put(&written.w, &acks[i]);
    assert_int_equal(size_of(&written), 3 * SH_REPLICATION_ACK_BYTES);
    struct sh_reader r = read_of(&written);
    for (unsigned i = 0; i < 3; i++) {
        assert_true(sh_replication_ack_get(&r, &read));
        assert_int_equal(read.zone, acks[i].zone);
        assert_int_equal(read.incarnation, acks[i].incarnation);
        assert_int_equal(read.next, acks[i].next);
        assert_int_equal(read.part, acks[i].part);
        assert_int_equal(read.durable, acks[i].durable);
        assert_int_equal(read.state, acks[i].state);
    }
    assert_false(sh_replication_ack_get(&r, &read));
    struct sh_replication_ack bad = acks[0];
    bad.durable = 31;
    sh_replication_ack_put(begin(&written), &bad);
    r = read_of(&written);
    assert_false(sh_replication_ack_get(&r, &read));
    bad = acks[0];
    bad.state = SH_REPLICATION_LOST + 1;
    sh_replication_ack_put(begin(&written), &bad);
    r = read_of(&written);
    assert_false(sh_replication_ack_get(&r, &read));
}

static const uint8_t image[128] = "some bytes";

/* One of each kind, and what its head takes. */
static const struct {
    struct sh_replication_entry entry;
    size_t head;
} entries[] = {
    {{.kind = SH_REPLICATION_IMAGE, .chunk = 5, .size = 40, .pieces = 1, .bytes = {image, 40}}, 13},
    {{.kind = SH_REPLICATION_IMAGE,
      .with_next = true,
      .chunk = 6,
      .size = 16,
      .pieces = 1,
      .bytes = {image, 16}},
     13},
    {{.kind = SH_REPLICATION_IMAGE,
      .chunk = 7,
      .size = 39,
      .piece = 1,
      .pieces = 3,
      .total = 100,
      .bytes = {image, 39}},
     21},
    {{.kind = SH_REPLICATION_IMAGE, .chunk = 8, .pieces = 1, .bytes = {image, 0}}, 13},
    {{.kind = SH_REPLICATION_ZEROS, .chunk = UINT64_MAX, .size = 1 << 20, .pieces = 1}, 13},
    {{.kind = SH_REPLICATION_ZEROS,
      .chunk = 9,
      .size = 8 << 20,
      .piece = 0,
      .pieces = 2,
      .total = 9 << 20},
     21},
    {{.kind = SH_REPLICATION_REMOVAL, .chunk = 10, .pieces = 1}, 13},
    {{.kind = SH_REPLICATION_REMOVAL, .with_next = true, .chunk = 11, .pieces = 1}, 13},
    {{.kind = SH_REPLICATION_ABANDON, .pieces = 1}, 13},
    {{.kind = SH_REPLICATION_IMAGE,
      .chunk = 12,
      .size = 40,
      .pieces = 1,
      .bytes = {image, 40},
      .completion = {image + 7, 22}},
     13 + 23},
    {{.kind = SH_REPLICATION_ZEROS,
      .chunk = 13,
      .size = 1 << 20,
      .piece = 1,
      .pieces = 2,
      .total = 9 << 20,
      .completion = {image + 9, SH_COMPLETION_BYTES_MAX}},
     22 + SH_COMPLETION_BYTES_MAX},
    {{.kind = SH_REPLICATION_REMOVAL, .chunk = 14, .pieces = 1, .completion = {image, 1}}, 15},
};
#define ENTRIES (sizeof entries / sizeof *entries)

static void entry_assert_equal(const struct sh_replication_entry *a,
                               const struct sh_replication_entry *b)
{
    assert_int_equal(a->kind, b->kind);
    assert_int_equal(a->with_next, b->with_next);
    assert_int_equal(a->chunk, b->chunk);
    assert_int_equal(a->size, b->size);
    assert_int_equal(a->piece, b->piece);
    assert_int_equal(a->pieces, b->pieces);
    assert_int_equal(a->total, b->total);
    assert_int_equal(a->bytes.size, b->bytes.size);
    if (a->bytes.size)
        assert_memory_equal(a->bytes.at, b->bytes.at, a->bytes.size);
    assert_int_equal(a->completion.size, b->completion.size);
    if (a->completion.size)
        assert_memory_equal(a->completion.at, b->completion.at, a->completion.size);
}

static void test_append(void **state)
{
    (void)state;
    struct written written;
    const struct sh_replication_append append = {
        .zone = 3, .incarnation = 4, .number = 5, .part = 6, .wish = SH_REPLICATION_DURABLE};
    struct sh_replication_append read;
    struct sh_replication_entry entry;
    sh_replication_append_put(begin(&written), &append);
    assert_int_equal(size_of(&written), SH_REPLICATION_APPEND_BYTES);
    for (unsigned i = 0; i < ENTRIES; i++) {
        size_t before = size_of(&written);
        sh_replication_entry_put(&written.w, &entries[i].entry);
        size_t size = size_of(&written) - before;
        assert_int_equal(size, sh_replication_entry_size(&entries[i].entry));
        assert_int_equal(size, entries[i].head + entries[i].entry.bytes.size);
        assert_true(entries[i].head <= SH_REPLICATION_ENTRY_BYTES_MAX);
    }
    struct sh_reader r = read_of(&written);
    assert_true(sh_replication_append_get(&r, &read));
    assert_int_equal(read.zone, 3);
    assert_int_equal(read.incarnation, 4);
    assert_int_equal(read.number, 5);
    assert_int_equal(read.part, 6);
    assert_int_equal(read.wish, SH_REPLICATION_DURABLE);
    for (unsigned i = 0; i < ENTRIES; i++) {
        assert_true(sh_replication_entry_get(&r, &entry));
        entry_assert_equal(&entry, &entries[i].entry);
    }
    assert_int_equal(sh_reader_left(&r), 0);
    assert_false(sh_replication_entry_get(&r, &entry));
}

static bool entry_is_read(const struct sh_replication_entry *entry)
{
    struct written written;
    struct sh_replication_entry read;
    sh_replication_entry_put(begin(&written), entry);
    struct sh_reader r = read_of(&written);
    return sh_replication_entry_get(&r, &read);
}

static void test_entries_that_are_none(void **state)
{
    (void)state;
    struct written written;
    struct sh_replication_entry entry;
    for (unsigned i = 0; i < ENTRIES; i++) { /* a byte is missing */
        sh_replication_entry_put(begin(&written), &entries[i].entry);
        struct sh_reader r = sh_reader_make(sh_bytes_make(written.bytes, size_of(&written) - 1));
        assert_false(sh_replication_entry_get(&r, &entry));
    }
    const struct sh_replication_entry bad[] = {
        {.kind = SH_REPLICATION_KINDS, .chunk = 1, .pieces = 1},
        {.kind = SH_REPLICATION_IMAGE, .chunk = 0, .pieces = 1, .bytes = {image, 0}},
        {.kind = SH_REPLICATION_REMOVAL, .chunk = 1, .size = 1, .pieces = 1},
        {.kind = SH_REPLICATION_REMOVAL, .chunk = 1, .pieces = 2},
        /* A completion record that is too long, not with the last piece, of the first of a pair, and of nothing. */
        {.kind = SH_REPLICATION_REMOVAL,
         .chunk = 1,
         .pieces = 1,
         .completion = {image, SH_COMPLETION_BYTES_MAX + 1}},
        {.kind = SH_REPLICATION_ZEROS,
         .chunk = 1,
         .size = 1,
         .pieces = 2,
         .total = 2,
         .completion = {image, 22}},
        {.kind = SH_REPLICATION_REMOVAL,
         .with_next = true,
         .chunk = 1,
         .pieces = 1,
         .completion = {image, 22}},
        {.kind = SH_REPLICATION_ABANDON, .pieces = 1, .completion = {image, 22}},
        {.kind = SH_REPLICATION_REMOVAL, .chunk = SH_REPLOG_COMPLETION_ID, .pieces = 1},
        {.kind = SH_REPLICATION_ABANDON, .with_next = true, .pieces = 1},
        {.kind = SH_REPLICATION_ZEROS, .chunk = 1, .size = 1, .piece = 2, .pieces = 2, .total = 2},
        {.kind = SH_REPLICATION_ZEROS, .chunk = 1, .size = 2, .pieces = 2, .total = 2},
        {.kind = SH_REPLICATION_ZEROS, .chunk = 1, .size = 0, .pieces = 2, .total = 2},
        {.kind = SH_REPLICATION_ZEROS,
         .with_next = true,
         .chunk = 1,
         .size = 1,
         .pieces = 2,
         .total = 2},
    };
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(entry_is_read(&bad[i]));
    assert_true(entry_is_read(&(struct sh_replication_entry){
        .kind = SH_REPLICATION_ZEROS, .chunk = 1, .size = 1, .piece = 1, .pieces = 2, .total = 2}));
}

/* Places: pieces, what was abandoned and the first of a pair have the number of the write that they lead to. */
static void test_places(void **state)
{
    (void)state;
    uint64_t number = 10;
    uint32_t part = 0;
    const struct sh_replication_entry piece = {
        .kind = SH_REPLICATION_IMAGE, .piece = 0, .pieces = 2};
    struct sh_replication_entry last = piece;
    last.piece = 1;
    sh_replication_pass(&piece, &number, &part);
    assert_true(number == 10 && part == 1);
    sh_replication_pass(&entries[8].entry, &number, &part);
    assert_true(number == 10 && part == 2);
    sh_replication_pass(&entries[1].entry, &number, &part);
    assert_true(number == 10 && part == 3);
    sh_replication_pass(&piece, &number, &part);
    assert_true(number == 10 && part == 4);
    sh_replication_pass(&last, &number, &part);
    assert_true(number == 11 && part == 0);
    sh_replication_pass(&entries[6].entry, &number, &part);
    assert_true(number == 12 && part == 0);
}

/* Reads one message of random bytes; what is read is written as the same bytes. */
static void random_read(struct sh_bytes bytes, unsigned which)
{
    struct sh_reader r = sh_reader_make(bytes);
    struct written written;
    struct sh_replication_open open;
    struct sh_replication_append append;
    struct sh_replication_entry entry;
    struct sh_replication_ack ack;
    bool is_read = false;
    begin(&written);
    if (which == 0 && (is_read = sh_replication_open_get(&r, &open)))
        sh_replication_open_put(&written.w, &open);
    else if (which == 1 && (is_read = sh_replication_append_get(&r, &append)))
        sh_replication_append_put(&written.w, &append);
    else if (which == 2 && (is_read = sh_replication_entry_get(&r, &entry)))
        sh_replication_entry_put(&written.w, &entry);
    else if (which == 3 && (is_read = sh_replication_ack_get(&r, &ack)))
        sh_replication_ack_put(&written.w, &ack);
    if (!is_read)
        return;
    assert_int_equal(size_of(&written), r.at - bytes.at);
    assert_memory_equal(written.bytes, bytes.at, size_of(&written));
}

static void test_random_bytes(void **state)
{
    (void)state;
    uint64_t seed = test_seed(20261126);
    uint8_t bytes[128];
    for (unsigned i = 0; i < 100000; i++) {
        size_t size = test_draw(&seed) % (sizeof bytes + 1);
        for (size_t k = 0; k < size; k++)
            bytes[k] = test_draw(&seed) % 2 ? 0 : (uint8_t)(test_draw(&seed) % 64);
        /* Small sizes are read more often than not. */
        random_read(sh_bytes_make(bytes, size), i % 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_open),
        cmocka_unit_test(test_open_that_is_none),
        cmocka_unit_test(test_opened_close_space),
        cmocka_unit_test(test_acks),
        cmocka_unit_test(test_append),
        cmocka_unit_test(test_entries_that_are_none),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_random_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
