/* The identity file: each confirmed start is another life, and each start's local IDs lie above those of
 * all before; a damaged file and another cluster's are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/hash.h"
#include "base/log.h"
#include "node/identity.h"
#include "ring/arcs.h"

#define FILE_BYTES 128

static char folder[200], path[220];

struct life {
    struct sh_env env;
    struct sh_store *store;
    struct sh_identity *identity;
    char detail[256];
};

static enum shoal_err open_as(struct life *life, const char *cluster)
{
    struct sh_store_config config = {.bytes_max = 64 << 20, .chunk_bytes_max = 1 << 20};
    *life = (struct life){.env = {.clock = sh_real_clock(), .random = sh_real_random()}};
    assert_int_equal(sh_store_create(&config, &life->store), SHOAL_OK);
    assert_int_equal(sh_real_disk_create(folder, false, &life->env.disk), SHOAL_OK);
    return sh_identity_open(&life->env, cluster, life->store, &life->identity, life->detail);
}

static void close_it(struct life *life)
{
    sh_identity_close(life->identity);
    life->env.disk->ops->destroy(life->env.disk);
    sh_store_destroy(life->store);
}

/* Runs the step until it has nothing to do; counts how often it did something. */
static unsigned settle(struct life *life)
{
    struct sh_step step = sh_identity_step(life->identity);
    unsigned work = 0;
    while (step.due_ns(step.arg) != SH_NEVER || step.run(step.arg)) {
        work += step.run(step.arg);
        (void)sh_disk_poll(life->env.disk, true);
    }
    return work;
}

static uint64_t create(struct life *life, size_t count)
{
    static shoal_cid cids[3 << 20];
    struct sh_store_wish wish = {.count = count, .reserve = true};
    assert_true(count <= sizeof cids / sizeof cids[0]);
    enum shoal_err err;
    while ((err = sh_store_new_as(life->store, &wish, cids, NULL)) == SHOAL_EBUSY)
        assert_true(settle(life) > 0);
    assert_int_equal(err, SHOAL_OK);
    return shoal_cid_local(cids[count - 1]);
}

static int setup(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/shoal-identity-XXXXXX", base ? base : "/tmp");
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/identity", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    (void)remove(path);
    return remove(folder);
}

static void lives_rise(void **state)
{
    (void)state;
    struct life life;
    uint64_t last = 0;
    for (uint32_t i = 1; i <= 5; i++) {
        assert_int_equal(open_as(&life, "test"), SHOAL_OK);
        assert_int_equal(sh_life_starts(sh_identity_life(life.identity)), i);
        assert_true((uint32_t)sh_identity_life(life.identity) != 0);
        assert_false(sh_identity_is_confirmed(life.identity));
        assert_int_equal(sh_identity_nid(life.identity).v, i > 1 ? 77 : 0);
        assert_true(sh_identity_cluster(life.identity) == (i > 1 ? 9 : 0));
        sh_identity_joined(life.identity, (shoal_nid){77}, 9);
        assert_false(sh_identity_is_confirmed(life.identity)); /* the disk does not say so yet */
        if (i == 3) /* many more IDs than are allowed at once */
            for (unsigned more = 0; more < 4; more++)
                (void)create(&life, 3 << 20);
        uint64_t local = create(&life, 10);
        assert_true(local - 9 > last);
        last = local;
        (void)settle(&life);
        assert_true(sh_identity_is_confirmed(life.identity));
        close_it(&life);
    }
    /* A registry that is in memory has no identity that lasts. */
    assert_int_equal(open_as(&life, "test"), SHOAL_OK);
    sh_identity_joined(life.identity, (shoal_nid){78}, 0);
    (void)settle(&life);
    close_it(&life);
    assert_int_equal(open_as(&life, "test"), SHOAL_OK);
    assert_int_equal(sh_identity_nid(life.identity).v, 0);
    close_it(&life);
}

/* A process that was not admitted, or was and did not come to store that, leaves its life to the next,
 * and none of its local IDs. */
static void starts_count_when_confirmed(void **state)
{
    (void)state;
    struct life life;
    uint64_t last = 0, first = 0;
    for (uint32_t i = 0; i < 6; i++) {
        assert_int_equal(open_as(&life, "test"), SHOAL_OK);
        if (i % 3 == 0)
            first = sh_identity_life(life.identity);
        assert_true(sh_identity_life(life.identity) == first);
        assert_int_equal(sh_life_starts(first), i / 3 + 1);
        uint64_t local = create(&life, 10);
        assert_true(local - 9 > last);
        last = local;
        if (i % 3 > 0)
            sh_identity_joined(life.identity, (shoal_nid){77}, 9);
        if (i % 3 == 2)
            (void)settle(&life);
        close_it(&life);
    }
}

/* A life that the registry has declared over is not gone on with, though no process was told that it had been admitted:
 * whether the peer has been a node before or not. */
static void a_life_that_is_over_is_spent(void **state)
{
    (void)state;
    struct life life;
    uint64_t last = 0;
    for (uint32_t i = 1; i <= 4; i++) {
        assert_int_equal(open_as(&life, "test"), SHOAL_OK);
        assert_true(sh_identity_life(life.identity) != last);
        assert_int_equal(sh_life_starts(sh_identity_life(life.identity)), i);
        assert_int_equal(sh_identity_nid(life.identity).v, i == 4 ? 77 : 0);
        last = sh_identity_life(life.identity);
        if (i == 3) {
            sh_identity_joined(life.identity, (shoal_nid){77}, 9);
            (void)settle(&life);
        }
        assert_int_equal(sh_identity_is_confirmed(life.identity), i == 3);
        sh_identity_spent(life.identity);
        (void)settle(&life);
        assert_true(sh_identity_is_confirmed(life.identity));
        close_it(&life);
    }
}

static void file_swap(uint8_t *bytes, bool reads)
{
    FILE *file = fopen(path, reads ? "rb" : "wb");
    assert_non_null(file);
    size_t size = reads ? fread(bytes, 1, FILE_BYTES, file) : fwrite(bytes, 1, FILE_BYTES, file);
    assert_int_equal(size, FILE_BYTES);
    assert_int_equal(fclose(file), 0);
}

static void what_is_refused(void **state)
{
    (void)state;
    struct life life;
    uint8_t bytes[FILE_BYTES];
    assert_int_equal(open_as(&life, "test"), SHOAL_OK);
    close_it(&life);
    assert_int_equal(open_as(&life, "tess"), SHOAL_ECLUSTER);
    assert_non_null(strstr(life.detail, "another cluster"));
    close_it(&life);
    file_swap(bytes, true);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        bytes[i] ^= 4;
        file_swap(bytes, false);
        assert_int_equal(open_as(&life, "test"), SHOAL_ECORRUPT);
        assert_non_null(strstr(life.detail, "remove it"));
        close_it(&life);
        bytes[i] ^= 4;
    }
    file_swap(bytes, false);
    assert_int_equal(open_as(&life, "test"), SHOAL_OK);
    assert_int_equal(sh_life_starts(sh_identity_life(life.identity)), 1);
    close_it(&life);
}

/* The former format had no flags, and all of its lives had been started. */
static void a_former_file_is_confirmed(void **state)
{
    (void)state;
    struct life life;
    uint8_t bytes[FILE_BYTES] = {0};
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    sh_put64(&w, UINT64_C(0x4449504c414f4853));
    sh_put16(&w, 1);
    sh_put16(&w, 80);
    sh_put32(&w, 0);
    sh_put64(&w, UINT64_C(7) << 32 | 5);
    sh_put64(&w, 9);
    sh_put64(&w, SH_STORE_IDS_BLOCK);
    sh_put_text(&w, sh_bytes_text("test"));
    sh_store32(bytes + 12, sh_crc32c(0, sh_bytes_make(bytes, sizeof bytes)));
    file_swap(bytes, false);
    assert_int_equal(open_as(&life, "test"), SHOAL_OK);
    assert_int_equal(sh_life_starts(sh_identity_life(life.identity)), 8);
    assert_int_equal(sh_identity_nid(life.identity).v, 80);
    assert_true(create(&life, 1) > SH_STORE_IDS_BLOCK);
    close_it(&life);
}

int main(void)
{
    const char *bad;
    size_t bad_len;
    if (sh_log_levels_set("fatal", &bad, &bad_len) && sh_log_levels_set("error", &bad, &bad_len))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lives_rise, setup, teardown),
        cmocka_unit_test_setup_teardown(starts_count_when_confirmed, setup, teardown),
        cmocka_unit_test_setup_teardown(a_life_that_is_over_is_spent, setup, teardown),
        cmocka_unit_test_setup_teardown(what_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(a_former_file_is_confirmed, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
