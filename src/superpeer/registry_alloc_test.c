/* What the superpeers have decided each of them carries out without memory: one that could not would have
 * to end, or differ from the others for ever. */
#include "base/alloc_test.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/log.h"
#include "superpeer/registry.h"

#define PEERS 200

static void join(struct sh_registry *registry, unsigned at, shoal_nid *nid_out)
{
    char address[32];
    (void)snprintf(address, sizeof address, "loop:%u", at);
    assert_int_equal(sh_registry_join(registry, 1, sh_bytes_text(address), 100 + at, SHOAL_NID_NONE,
                                      NULL, nid_out),
                     SHOAL_OK);
}

static void decisions_need_no_memory(void **state)
{
    (void)state;
    struct sh_registry_config config = {.cluster = "test", .failure_ns = 1000};
    struct sh_registry *registry;
    shoal_nid nid = {0}, peers[PEERS];
    enum shoal_err err = SHOAL_ENOMEM;
    for (size_t due = 1; err; due++) {
        alloc_fail_at(due, 1);
        err = sh_registry_create(&config, &registry);
        assert_true(alloc_fail_end() ? err == SHOAL_ENOMEM : !err);
    }
    alloc_fail_at(1, SIZE_MAX);
    for (uint16_t i = 1; i <= SH_SUPERPEERS_MAX; i++) {
        char address[32];
        (void)snprintf(address, sizeof address, "loop:super%u", i);
        assert_int_equal(
            sh_registry_superpeer_put(registry, sh_bytes_text(address), i, (shoal_nid){i}, &nid),
            SHOAL_OK);
    }
    (void)!sh_registry_arcs_start(registry, (shoal_nid){1}, UINT64_C(1) << 32 | 1, false);
    for (unsigned i = 0; i < PEERS; i++)
        join(registry, i, &peers[i]);
    for (unsigned i = 0; i < PEERS; i += 2)
        sh_registry_fail(registry, peers[i], "a test");
    for (unsigned i = 1; i < PEERS; i += 2)
        assert_int_equal(sh_registry_leave(registry, peers[i], 100 + i), SHOAL_OK);
    assert_int_equal(alloc_fail_end(), 0);
    sh_registry_destroy(registry);
}

int main(void)
{
    const char *bad;
    size_t bad_size;
    if (sh_log_levels_set("error", &bad, &bad_size))
        return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(decisions_need_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
