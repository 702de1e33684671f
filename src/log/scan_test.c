/* Spans are found again: those of one use, in order, whatever else lies there. */
#include "log/scan.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/random_test.h"

#define USE UINT64_C(0x1234567800000001)
#define FORMER UINT64_C(0x8765432100000001)
#define ROOM (64 * SH_SCAN_BLOCK_BYTES)
#define SPANS_MAX 200

static uint8_t bytes[ROOM], payload[5000];
static size_t filled;
static struct sh_span written[SPANS_MAX];
static size_t places[SPANS_MAX]; /* of their heads */
static unsigned count;

/* Appends a span of some entries of so many bytes each. */
static void span_add(uint64_t use, unsigned entries, size_t each)
{
    struct sh_span span = {.zone = 5 + count,
                           .use = use,
                           .first = 100 * count,
                           .sequences = entries,
                           .context = sh_replog_context_first(64, 3, 1000, 77 * count)};
    struct sh_replog_context context = span.context;
    size_t head = filled;
    filled += SH_SPAN_HEAD_BYTES;
    for (unsigned i = 0; i < entries; i++) {
        struct sh_replog_entry entry = {.local_id = 10 * count + i,
                                        .creator = 64,
                                        .version = {3, i},
                                        .seconds = 1000,
                                        .pieces = 1,
                                        .payload = sh_bytes_make(payload, each)};
        assert_true(filled + SH_REPLOG_ENTRY_HEAD_MAX + each <= ROOM);
        filled += sh_replog_entry_head(&entry, &context, bytes + filled);
        memcpy(bytes + filled, payload, each);
        filled += each;
    }
    span.bytes = (uint32_t)(filled - head - SH_SPAN_HEAD_BYTES);
    sh_span_put(&span, bytes + head);
    assert_true(count < SPANS_MAX);
    places[count] = head;
    written[count++] = span;
}

/* Ends a write: zeros up to the next block. */
static void write_end(void)
{
    while (filled % SH_SCAN_BLOCK_BYTES)
        bytes[filled++] = 0;
}

static void begin(uint8_t left_over)
{
    memset(bytes, left_over, sizeof bytes);
    filled = count = 0;
}

static struct sh_scan scan_of(void)
{
    return (struct sh_scan){.bytes = sh_bytes_make(bytes, ROOM), .use = USE, .mask = UINT64_MAX};
}

/* The scan's next span is that one, whole. */
static void assert_next(struct sh_scan *scan, unsigned which)
{
    struct sh_span span;
    struct sh_reader entries;
    assert_true(sh_scan_next(scan, &span, &entries));
    assert_int_equal(span.zone, written[which].zone);
    assert_int_equal(span.first, written[which].first);
    assert_ptr_equal(entries.at, bytes + places[which] + SH_SPAN_HEAD_BYTES);
    assert_int_equal(sh_reader_left(&entries), written[which].bytes);
    unsigned got = 0;
    struct sh_replog_entry entry;
    while (sh_replog_entry_get(&entries, &span.context, &entry) == SH_REPLOG_ENTRY)
        got++;
    assert_int_equal(sh_reader_left(&entries), 0);
    assert_int_equal(got, written[which].sequences);
}

static void assert_end(struct sh_scan *scan)
{
    struct sh_span span = {.zone = 1};
    struct sh_reader entries;
    for (unsigned i = 0; i < 2; i++) {
        assert_false(sh_scan_next(scan, &span, &entries));
        assert_int_equal(span.zone, 1);
    }
}

static void test_random(void **state)
{
    uint64_t seed = test_seed(3);
    (void)state;
    for (unsigned round = 0; round < 200; round++) {
        begin((uint8_t)test_draw(&seed));
        for (unsigned spans = (unsigned)(test_draw(&seed) % 40); count < spans;) {
            uint64_t draw = test_draw(&seed);
            span_add(USE, (unsigned)(draw % 20), draw >> 8 & 255);
            if (draw >> 16 & 1)
                write_end();
        }
        write_end();
        struct sh_scan scan = scan_of();
        for (unsigned i = 0; i < count; i++) {
            assert_next(&scan, i);
            assert_false(scan.is_behind_gap);
            assert_int_equal(scan.begin, places[i]);
        }
        assert_end(&scan);
    }
}

/* A span ends with the bytes, or at a block's end, or leaves too little of it for another head. */
static void test_borders(void **state)
{
    (void)state;
    for (size_t last = SH_SCAN_BLOCK_BYTES - 2 * SH_SPAN_HEAD_BYTES - 20;
         last < SH_SCAN_BLOCK_BYTES; last++) {
        begin(0);
        span_add(USE, 1, last);
        write_end();
        span_add(USE, 1, 9);
        write_end();
        struct sh_scan scan = scan_of();
        assert_next(&scan, 0);
        assert_next(&scan, 1);
        assert_end(&scan);
    }
    begin(0);
    span_add(USE, ROOM / 4096 - 1, 4080);
    size_t whole = filled;
    struct sh_scan scan = scan_of();
    scan.bytes.size = whole;
    assert_next(&scan, 0);
    assert_end(&scan);
}

/* What is cut off gives the entries that are there. */
static void test_cut(void **state)
{
    (void)state;
    begin(0);
    span_add(USE, 10, 30);
    size_t whole = filled;
    for (size_t size = 0; size <= whole; size++) {
        struct sh_scan scan = scan_of();
        struct sh_span span;
        struct sh_reader entries;
        scan.bytes.size = size;
        bool has_head = size >= SH_SPAN_HEAD_BYTES;
        assert_int_equal(sh_scan_next(&scan, &span, &entries), has_head);
        if (has_head)
            assert_int_equal(sh_reader_left(&entries), size - SH_SPAN_HEAD_BYTES);
        assert_end(&scan);
    }
}

/* Spans of a former use, and what was torn, are passed over. */
static void test_gaps(void **state)
{
    (void)state;
    begin(0xaa);
    span_add(USE, 3, 100);
    write_end();
    span_add(FORMER, 3, 5000); /* some blocks */
    write_end();
    span_add(USE, 3, 100);
    span_add(FORMER, 3, 100); /* in the middle of a write, where none can be */
    write_end();
    span_add(USE, 2, 5000);
    write_end();
    span_add(USE, 1, 100);
    write_end();
    bytes[places[4] + 3] ^= 1; /* a head that was torn: its entries' blocks begin no span */
    struct sh_scan scan = scan_of();
    assert_next(&scan, 0);
    assert_false(scan.is_behind_gap);
    assert_next(&scan, 2);
    assert_true(scan.is_behind_gap);
    assert_next(&scan, 5);
    assert_true(scan.is_behind_gap);
    assert_end(&scan);
    scan = scan_of();
    scan.mask = UINT32_MAX; /* which both uses have */
    for (unsigned i = 0; i < 6; i++) {
        if (i != 4)
            assert_next(&scan, i);
    }
    assert_end(&scan);
}

/* The rest of a torn span is not taken from what was there before, though it lies at the same place. */
static void test_torn(void **state)
{
    (void)state;
    static uint8_t former[2 * SH_SCAN_BLOCK_BYTES];
    begin(0);
    span_add(USE, 80, 90);
    assert_true(filled > SH_SCAN_BLOCK_BYTES + 1000 && filled < sizeof former);
    memcpy(former, bytes, sizeof former);
    begin(0);
    count = 0;
    written[0] = (struct sh_span){.zone = 0};
    span_add(USE, 80, 90); /* the same entries */
    struct sh_span again = written[0];
    again.context.sum++; /* of another chain, then */
    struct sh_replog_context context = again.context;
    size_t at = SH_SPAN_HEAD_BYTES;
    for (unsigned i = 0; i < 80; i++) {
        struct sh_replog_entry entry = {.local_id = i,
                                        .creator = 64,
                                        .version = {3, i},
                                        .seconds = 1000,
                                        .pieces = 1,
                                        .payload = sh_bytes_make(payload, 90)};
        at += sh_replog_entry_head(&entry, &context, bytes + at) + 90;
    }
    assert_int_equal(at, filled);
    sh_span_put(&again, bytes);
    memcpy(bytes + SH_SCAN_BLOCK_BYTES, former + SH_SCAN_BLOCK_BYTES, SH_SCAN_BLOCK_BYTES);
    struct sh_scan scan = scan_of();
    struct sh_span span;
    struct sh_reader entries;
    struct sh_replog_entry entry;
    enum sh_replog_got got;
    unsigned read = 0;
    assert_true(sh_scan_next(&scan, &span, &entries));
    while ((got = sh_replog_entry_get(&entries, &span.context, &entry)) == SH_REPLOG_ENTRY)
        read++;
    assert_int_equal(got, SH_REPLOG_DAMAGED);
    /* The last one may have its payload there, which is the same. */
    assert_true(read > 0 && (size_t)(entries.at - bytes) < SH_SCAN_BLOCK_BYTES + 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random), cmocka_unit_test(test_borders), cmocka_unit_test(test_cut),
        cmocka_unit_test(test_gaps),   cmocka_unit_test(test_torn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
