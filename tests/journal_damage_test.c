/* The journal on a disk that is damaged, full, read only, or lies; and one that is another's, or
 * newer. docs/simulation.md. */
#include "tests/journal_rig_int.h"

#define BLOCK 4096u
#define BATCH_MAGIC UINT64_C(0x5441424c4e524a)
#define SLOTS 256

static const struct sh_disk_faults calm = {.delay_ns_min = 1000, .delay_ns_max = 50000};

static unsigned opens_refused, opens_whole, opens_shorter;

/* --- The files as bytes ---------------------------------------------------------------------- */

struct files {
    uint8_t *bytes[SLOTS];
    size_t sizes[SLOTS];
};

static struct sh_disk *disk_of(const struct rig *rig)
{
    return sh_world_env(rig->world, rig->node)->disk;
}

static void do_op(struct rig *rig, struct sh_disk_op op)
{
    assert_int_equal(sh_disk_do(disk_of(rig), &op), SHOAL_OK);
}

static void slot_name(char name[32], unsigned slot)
{
    snprintf(name, 32, "journal.%03u", slot);
}

static void files_get(struct rig *rig, struct files *files)
{
    struct sh_disk *disk = disk_of(rig);
    memset(files, 0, sizeof *files);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char name[32];
        int file;
        uint64_t size;
        slot_name(name, slot);
        if (sh_disk_open(disk, name, false, &file))
            continue;
        assert_int_equal(disk->ops->size(disk, file, &size), SHOAL_OK);
        files->sizes[slot] = (size_t)size;
        files->bytes[slot] = malloc((size_t)size + 1);
        assert_non_null(files->bytes[slot]);
        do_op(rig, (struct sh_disk_op){.kind = SH_DISK_READ,
                                       .file = file,
                                       .data = files->bytes[slot],
                                       .size = (size_t)size});
        disk->ops->close(disk, file);
    }
}

static void files_put(struct rig *rig, const struct files *files)
{
    struct sh_disk *disk = disk_of(rig);
    for (unsigned slot = 0; slot < SLOTS; slot++) {
        char name[32];
        int file;
        slot_name(name, slot);
        enum shoal_err err = disk->ops->remove(disk, name);
        assert_true(!err || err == SHOAL_ENONAME);
        if (!files->bytes[slot])
            continue;
        assert_int_equal(sh_disk_open(disk, name, true, &file), SHOAL_OK);
        do_op(rig, (struct sh_disk_op){.kind = SH_DISK_WRITE_SYNC,
                                       .file = file,
                                       .data = files->bytes[slot],
                                       .size = files->sizes[slot]});
        disk->ops->close(disk, file);
    }
    do_op(rig, (struct sh_disk_op){.kind = SH_DISK_SYNC_DIR});
}

static void files_free(struct files *files)
{
    for (unsigned slot = 0; slot < SLOTS; slot++)
        free(files->bytes[slot]);
}

/* --- Opening again --------------------------------------------------------------------------- */

static enum shoal_err reopen_as(struct rig *rig, const char *label)
{
    struct sh_journal_stream streams[STREAMS];
    sh_journal_close(rig->journal);
    rig->journal = NULL;
    streams_clear(rig);
    struct sh_journal_config config = config_of(rig, streams);
    config.label = sh_bytes_text(label);
    rig->opened = sh_journal_open(&config, &rig->journal);
    if (rig->opened)
        rig->journal = NULL;
    return rig->opened;
}

static void work(struct rig *rig, unsigned acts)
{
    for (unsigned i = 0; i < acts; i++) {
        act(rig);
        if (sh_prng_below(&rig->prng, 3) == 0)
            rig_run(rig, sh_prng_below(&rig->prng, MS));
    }
}

static void settle(struct rig *rig)
{
    rig_run(rig, 5 * S);
    assert_int_equal(sh_journal_trouble(rig->journal), SHOAL_OK);
    assert_int_equal(sh_journal_synced(rig->journal), sh_journal_last(rig->journal));
}

static uint64_t batch_number(const struct files *files, unsigned slot, size_t at)
{
    const uint8_t *head = files->bytes[slot] + at;
    return sh_load64(head) == BATCH_MAGIC ? sh_load64(head + 16) : 0;
}

static uint64_t last_batch(const struct files *files)
{
    uint64_t last = 0;
    for (unsigned slot = 0; slot < SLOTS; slot++)
        for (size_t at = BLOCK; at + BLOCK <= files->sizes[slot]; at += BLOCK)
            if (batch_number(files, slot, at) > last)
                last = batch_number(files, slot, at);
    return last;
}

/* The bytes that mean something of the block at that place: those of a header, or of a batch. */
static size_t meaning(const struct files *files, unsigned slot, size_t at)
{
    const uint8_t *head = files->bytes[slot] + at;
    if (at == 0)
        return BLOCK;
    return batch_number(files, slot, at) ? 32 + sh_load32(head + 24) : 0;
}

static void damage(struct rig *rig, struct files *files, unsigned slot, size_t at, uint64_t seed)
{
    uint64_t number = at ? batch_number(files, slot, at) : 0;
    bool is_last = number && number == last_batch(files);
    sh_lsn all = rig->notes[rig->notes_count - 1].lsn;
    size_t size = meaning(files, slot, at);
    if (!size)
        return;
    uint64_t bit = sh_prng_below(&rig->prng, 8 * size);
    uint8_t *byte = files->bytes[slot] + at + bit / 8;
    *byte ^= (uint8_t)(1u << bit % 8);
    files_put(rig, files);
    enum shoal_err err = reopen_as(rig, LABEL);
    *byte ^= (uint8_t)(1u << bit % 8);
    if (err) {
        assert_true(err == SHOAL_ECORRUPT || err == SHOAL_EVERSION);
        opens_refused++;
        return;
    }
    /* The last batch might have been torn: it alone may be missing. */
    check(rig, is_last ? 0 : all, seed);
    /* What did not matter once never will. */
    assert_int_equal(reopen_as(rig, LABEL), SHOAL_OK);
    check(rig, is_last ? 0 : all, seed);
    opens_whole += !is_last;
    opens_shorter += is_last;
}

static void run_damage(uint64_t seed, uint64_t at_seed)
{
    static struct rig rig;
    struct files files;
    (void)at_seed;
    rig_open(&rig, seed, &calm);
    for (unsigned life = 0; life < 3; life++) {
        notes_begin(&rig);
        work(&rig, 40 + (unsigned)sh_prng_below(&rig.prng, 200));
        if (life < 2) {
            sh_world_crash(rig.world, rig.node);
            sh_world_restart(rig.world, rig.node);
            assert_int_equal(rig.opened, SHOAL_OK);
        }
    }
    settle(&rig);
    sh_journal_close(rig.journal);
    rig.journal = NULL;
    files_get(&rig, &files);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        for (size_t at = 0; at + BLOCK <= files.sizes[slot]; at += BLOCK)
            damage(&rig, &files, slot, at, seed);
    files_put(&rig, &files);
    assert_int_equal(reopen_as(&rig, LABEL), SHOAL_OK);
    check(&rig, rig.notes[rig.notes_count - 1].lsn, seed);
    files_free(&files);
    rig_close(&rig);
}

static void damage_is_noticed_at_every_batch(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 6; seed++)
        run_damage(seed, seed);
    test_fresh_seeds(16, run_damage);
    print_message("%u refused, %u whole, %u without the last batch\n", opens_refused, opens_whole,
                  opens_shorter);
    assert_true(opens_refused > 50 && opens_whole > 20 && opens_shorter > 3);
}

static enum shoal_err peek(struct rig *rig)
{
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX];
    size_t size;
    return sh_journal_peek(sh_world_env(rig->world, rig->node), label, sizeof label, &size);
}

/* The only header is damaged: there is a journal all the same, unless only its first batch is there,
 * which is written with the header and may be torn apart from it. */
static void the_only_header_is_damaged(void **state)
{
    (void)state;
    static struct rig rig;
    struct files files;
    rig_open(&rig, 7, &calm);
    notes_begin(&rig);
    for (unsigned i = 0; i < 3; i++) {
        act(&rig);
        settle(&rig);
    }
    sh_journal_close(rig.journal);
    rig.journal = NULL;
    files_get(&rig, &files);
    for (unsigned slot = 1; slot < SLOTS; slot++)
        assert_true(!files.bytes[slot] || !batch_number(&files, slot, BLOCK));
    assert_int_equal(batch_number(&files, 0, BLOCK), 1);
    assert_true(last_batch(&files) > 1);
    files.bytes[0][100] ^= 1;
    files_put(&rig, &files);
    assert_int_equal(peek(&rig), SHOAL_ECORRUPT);
    assert_int_equal(reopen_as(&rig, LABEL), SHOAL_ECORRUPT);
    size_t first = (BLOCK + meaning(&files, 0, BLOCK) + BLOCK - 1) / BLOCK * BLOCK;
    memset(files.bytes[0] + first, 0, files.sizes[0] - first);
    files_put(&rig, &files);
    assert_int_equal(peek(&rig), SHOAL_ENONAME);
    assert_int_equal(reopen_as(&rig, LABEL), SHOAL_OK);
    files_free(&files);
    rig_close(&rig);
}

/* A whole file that is gone is noticed as well, if anything in it was needed. */
static void missing_files_are_noticed(void **state)
{
    (void)state;
    unsigned refused = 0;
    for (uint64_t seed = 1; seed <= 8; seed++) {
        static struct rig rig;
        struct files files;
        rig_open(&rig, seed, &calm);
        notes_begin(&rig);
        work(&rig, 200);
        settle(&rig);
        sh_lsn all = sh_journal_last(rig.journal);
        sh_journal_close(rig.journal);
        rig.journal = NULL;
        files_get(&rig, &files);
        uint64_t last = last_batch(&files);
        for (unsigned slot = 0; slot < SLOTS; slot++) {
            uint8_t *bytes = files.bytes[slot];
            if (!bytes)
                continue;
            bool has_last = false;
            for (size_t at = BLOCK; at + BLOCK <= files.sizes[slot]; at += BLOCK)
                has_last |= batch_number(&files, slot, at) == last;
            files.bytes[slot] = NULL;
            files_put(&rig, &files);
            files.bytes[slot] = bytes;
            enum shoal_err err = reopen_as(&rig, LABEL);
            assert_true(!err || err == SHOAL_ECORRUPT);
            refused += err != SHOAL_OK;
            if (!err && !has_last)
                check(&rig, all, seed);
        }
        files_free(&files);
        rig_close(&rig);
    }
    assert_true(refused > 16);
}

/* --- A disk that fails ------------------------------------------------------------------------ */

/* What a process reads back of a write whose sync failed is in the kernel's memory only. If it
 * builds on that, it must be there after a power failure, too. */
static void nothing_is_built_on_what_is_only_cached(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 30; seed++) {
        static struct rig rig;
        struct sh_disk_faults broken = calm;
        broken.sync_err_ppm = SH_PRNG_MILLION;
        rig_open(&rig, seed, &calm);
        notes_begin(&rig);
        work(&rig, 30);
        sh_world_disk_faults_set(rig.world, &broken);
        work(&rig, 10);
        rig_run(&rig, 100 * MS);
        assert_int_equal(sh_journal_trouble(rig.journal), SHOAL_EIO);
        sh_world_disk_faults_set(rig.world, &calm);
        assert_int_equal(reopen_as(&rig, LABEL), SHOAL_OK);
        notes_begin(&rig);
        sh_world_crash(rig.world, rig.node);
        sh_world_restart(rig.world, rig.node);
        assert_int_equal(rig.opened, SHOAL_OK);
        check(&rig, 0, seed);
        rig_close(&rig);
    }
}

static uint64_t bytes_on(struct rig *rig)
{
    struct files files;
    uint64_t bytes = 0;
    files_get(rig, &files);
    for (unsigned slot = 0; slot < SLOTS; slot++)
        bytes += files.sizes[slot];
    files_free(&files);
    return bytes;
}

static void full_disk_stands_still_until_there_is_room(void **state)
{
    (void)state;
    static struct rig rig;
    struct sh_disk_faults full = calm;
    rig_open(&rig, 5, &calm);
    notes_begin(&rig);
    work(&rig, 20);
    settle(&rig);
    full.quota_bytes = bytes_on(&rig) + 100;
    sh_world_disk_faults_set(rig.world, &full);
    for (unsigned i = 0; i < 2000 && !sh_journal_trouble(rig.journal); i++)
        work(&rig, 1);
    assert_int_equal(sh_journal_trouble(rig.journal), SHOAL_ENOSPC);
    sh_lsn synced = sh_journal_synced(rig.journal);
    work(&rig, 20);
    /* Longer than there are slots, at a try a second. */
    rig_run(&rig, 600 * S);
    assert_int_equal(sh_journal_trouble(rig.journal), SHOAL_ENOSPC);
    assert_int_equal(sh_journal_synced(rig.journal), synced);
    sh_world_disk_faults_set(rig.world, &calm);
    settle(&rig);
    assert_true(sh_journal_synced(rig.journal) > synced);
    sh_world_crash(rig.world, rig.node);
    sh_world_restart(rig.world, rig.node);
    assert_int_equal(rig.opened, SHOAL_OK);
    check(&rig, rig.notes[rig.notes_count - 1].lsn, 5);
    rig_close(&rig);
}

static void full_disk_is_said_when_opening(void **state)
{
    (void)state;
    static struct rig rig;
    struct sh_disk_faults full = calm;
    full.quota_bytes = 1000;
    rig_open(&rig, 6, &full);
    assert_int_equal(rig.opened, SHOAL_ENOSPC);
    full.quota_bytes = 0;
    sh_world_disk_faults_set(rig.world, &full);
    assert_int_equal(reopen_as(&rig, LABEL), SHOAL_OK);
    rig_close(&rig);
}

/* --- Whose it is ----------------------------------------------------------------------------- */

static void labels_and_formats_are_told_apart(void **state)
{
    (void)state;
    static struct rig rig;
    struct files files;
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX];
    size_t size;
    rig_open(&rig, 7, &calm);
    const struct sh_env *env = sh_world_env(rig.world, rig.node);
    notes_begin(&rig);
    work(&rig, 30);
    settle(&rig);
    assert_int_equal(reopen_as(&rig, "another"), SHOAL_ECLUSTER);
    assert_int_equal(sh_journal_peek(env, label, sizeof label, &size), SHOAL_OK);
    assert_int_equal(size, strlen(LABEL));
    assert_memory_equal(label, LABEL, size);
    files_get(&rig, &files);
    files.bytes[0][8]++; /* the format */
    files_put(&rig, &files);
    assert_int_equal(reopen_as(&rig, LABEL), SHOAL_EVERSION);
    assert_int_equal(sh_journal_peek(env, label, sizeof label, &size), SHOAL_EVERSION);
    files_free(&files);
    rig_close(&rig);
}

/* A removal that was cut off is finished by the next one who looks. */
static void removal_is_finished(void **state)
{
    (void)state;
    static struct rig rig;
    uint8_t label[SH_JOURNAL_LABEL_BYTES_MAX];
    size_t size;
    for (unsigned gone = 0; gone < 3; gone++) {
        int file;
        rig_open(&rig, 8, &calm);
        const struct sh_env *env = sh_world_env(rig.world, rig.node);
        notes_begin(&rig);
        work(&rig, 100);
        settle(&rig);
        sh_journal_close(rig.journal);
        rig.journal = NULL;
        assert_int_equal(sh_disk_open(env->disk, "journal.removing", true, &file), SHOAL_OK);
        env->disk->ops->close(env->disk, file);
        for (unsigned slot = 0, left = gone; slot < SLOTS && left; slot++) {
            char name[32];
            slot_name(name, slot);
            left -= env->disk->ops->remove(env->disk, name) == SHOAL_OK;
        }
        if (gone < 2)
            assert_int_equal(sh_journal_peek(env, label, sizeof label, &size), SHOAL_ENONAME);
        assert_int_equal(reopen_as(&rig, "another"), SHOAL_OK);
        for (unsigned i = 0; i < STREAMS; i++)
            assert_false(rig.streams[i].now.is_there);
        sh_journal_close(rig.journal);
        rig.journal = NULL;
        sh_journal_remove(env);
        assert_int_equal(sh_journal_peek(env, label, sizeof label, &size), SHOAL_ENONAME);
        assert_int_equal(bytes_on(&rig), 0);
        rig_close(&rig);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(damage_is_noticed_at_every_batch),
        cmocka_unit_test(the_only_header_is_damaged),
        cmocka_unit_test(missing_files_are_noticed),
        cmocka_unit_test(nothing_is_built_on_what_is_only_cached),
        cmocka_unit_test(full_disk_stands_still_until_there_is_room),
        cmocka_unit_test(full_disk_is_said_when_opening),
        cmocka_unit_test(labels_and_formats_are_told_apart),
        cmocka_unit_test(removal_is_finished),
    };
    /* Every error here is meant to be. */
    if (!getenv("SHOAL_TEST_LOG") && sh_log_output_set("/dev/null", SH_LOG_AS_TEXT))
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
