/* A superpeer's report: what was put is got, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/report.h"

static struct sh_report sample(unsigned shard_count)
{
    struct sh_report report = {.kind = SH_REPORT_RAFT,
                               .is_current = true,
                               .role = SH_REPORT_LEADER,
                               .nid = {3},
                               .leader = {3},
                               .epoch = 17,
                               .peers_up = 4,
                               .voters = 14,
                               .resident_bytes = UINT64_MAX,
                               .lookups = 1000,
                               .lookups_nobody = 7,
                               .journal_saving_ns = 5,
                               .shard_count = shard_count};
    for (unsigned i = 0; i < shard_count; i++)
        report.shards[i] = (struct sh_report_shard){.owner = (uint8_t)(i % 4),
                                                    .is_here = i & 1,
                                                    .has_more = i & 2,
                                                    .version = i + 1,
                                                    .replicas = 14,
                                                    .bytes = i,
                                                    .zones = 9 * i,
                                                    .zones_short = 2 * i,
                                                    .zones_recovering = 3 * i,
                                                    .zones_lost = i / 2,
                                                    .is_searching = i & 4,
                                                    .origin = (uint8_t)(i % 4),
                                                    .copy_nid = (uint8_t)(i % 64),
                                                    .copy_sequence = i};
    return report;
}

static size_t encode(const struct sh_report *report, uint8_t *bytes)
{
    struct sh_writer w = sh_writer_make(bytes, SH_REPORT_BYTES_MAX);
    sh_report_put(&w, report);
    assert_true(sh_writer_ok(&w));
    assert_int_equal(w.at - bytes, sh_report_size(report));
    return (size_t)(w.at - bytes);
}

static enum shoal_err decode(const uint8_t *bytes, size_t size, struct sh_report *report_out)
{
    struct sh_reader r = sh_reader_make(sh_bytes_make(bytes, size));
    return sh_report_get(&r, report_out);
}

static void round_trips(void **state)
{
    (void)state;
    uint8_t bytes[SH_REPORT_BYTES_MAX], again[SH_REPORT_BYTES_MAX];
    for (unsigned count = 0; count <= SH_SHARDS; count += SH_SHARDS) {
        struct sh_report report = sample(count), found;
        size_t size = encode(&report, bytes);
        assert_int_equal(decode(bytes, size, &found), SHOAL_OK);
        assert_int_equal(encode(&found, again), size);
        assert_memory_equal(bytes, again, size);
        assert_int_equal(found.nid.v, 3);
        assert_int_equal(found.epoch, 17);
        assert_true(found.resident_bytes == UINT64_MAX);
        assert_int_equal(found.shard_count, count);
    }
}

static void what_no_superpeer_says_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[SH_REPORT_BYTES_MAX + 1];
    struct sh_report report = sample(SH_SHARDS), found = {.epoch = 99};
    size_t size = encode(&report, bytes);
    for (size_t less = 0; less < size; less++)
        assert_int_equal(decode(bytes, less, &found), SHOAL_EPROTO);
    bytes[size] = 0;
    assert_int_equal(decode(bytes, size + 1, &found), SHOAL_EPROTO);
    static const struct {
        size_t at;
        uint8_t value;
        enum shoal_err err;
    } wrong[] = {
        {0, 1, SHOAL_EVERSION},                         /* format */
        {1, 0, SHOAL_EPROTO},                           /* kind */
        {1, 4, SHOAL_EPROTO},                           /* kind */
        {2, 4, SHOAL_EPROTO},                           /* flags */
        {3, SH_REPORT_ROLES, SHOAL_EPROTO},             /* role */
        {4, 64, SHOAL_EPROTO},                          /* the superpeer */
        {6, 64, SHOAL_EPROTO},                          /* the leader */
        {8 + 8 * SH_REPORT_NUMBERS, 1, SHOAL_EPROTO},   /* shards */
        {10 + 8 * SH_REPORT_NUMBERS, 64, SHOAL_EPROTO}, /* a shard's owner */
        {11 + 8 * SH_REPORT_NUMBERS, 16, SHOAL_EPROTO}, /* its flags */
        {12 + 8 * SH_REPORT_NUMBERS, 4, SHOAL_EPROTO},  /* its origin */
        {13 + 8 * SH_REPORT_NUMBERS, 64, SHOAL_EPROTO}, /* the superpeer of its copy */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        uint8_t before = bytes[wrong[i].at];
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(decode(bytes, size, &found), wrong[i].err);
        bytes[wrong[i].at] = before;
    }
    assert_int_equal(found.epoch, 99);
    assert_int_equal(decode(bytes, size, &found), SHOAL_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trips),
        cmocka_unit_test(what_no_superpeer_says_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
