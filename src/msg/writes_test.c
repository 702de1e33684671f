/* One-sided writes: over loopback, which has them, and over every other wire inside the one that
 * emulates them; then what hostile bytes do to the latter, over a wire in memory. */
#include "msg/wire_test.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/bytes.h"
#include "msg/memwire.h"

#define REGION_BYTES 4096
#define CANARY_BYTES 64
#define CANARY 0xC5

/* Memory that others may write to, and what must stay as it is around it. */
struct memory {
    _Alignas(64) uint8_t before[CANARY_BYTES];
    _Alignas(64) uint8_t region[REGION_BYTES];
    uint8_t after[CANARY_BYTES];
};

static void memory_init(struct memory *memory)
{
    memset(memory, 0, sizeof *memory);
    memset(memory->before, CANARY, sizeof memory->before);
    memset(memory->after, CANARY, sizeof memory->after);
}

static void memory_check(const struct memory *memory)
{
    for (unsigned i = 0; i < CANARY_BYTES; i++) {
        assert_int_equal(memory->before[i], CANARY);
        assert_int_equal(memory->after[i], CANARY);
    }
}

static uint64_t region_add(struct end *end, void *memory, size_t size)
{
    uint64_t key;
    assert_true(end->wire->ops->abilities & SH_WIRE_WRITES);
    assert_int_equal(end->wire->ops->region_add(end->wire, memory, size, &key), SHOAL_OK);
    return key;
}

static enum shoal_err write_to(struct end *end, sh_link link, uint64_t key, uint64_t offset,
                               const void *bytes, size_t size)
{
    struct sh_wire *wire = end->wire;
    enum shoal_err err = wire->ops->write(wire, link, key, offset, sh_bytes_make(bytes, size));
    if (wire->ops->flush)
        wire->ops->flush(wire);
    return err;
}

/* --- Over real wires ----------------------------------------------------------------------- */

static void plain_wires_have_none(void **state)
{
    (void)state;
    static const char *const kinds[] = {"epoll", "uring"};
    for (unsigned i = 0; i < 2; i++) {
        struct sh_wire *wire;
        assert_int_equal(sh_wire_create(kinds[i], 4, &wire), SHOAL_OK);
        assert_int_equal(wire->ops->abilities & SH_WIRE_WRITES, 0);
        assert_null(wire->ops->write);
        wire->ops->destroy(wire);
    }
}

static void writes_are_there_before_pushes(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    struct memory memory;
    sh_link a, b;
    memory_init(&memory);
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, memory.region, 64);
    uint64_t word = UINT64_C(0x1122334455667788);
    assert_int_equal(write_to(&rig->a, a, key, 3, "abc", 3), SHOAL_OK);
    assert_int_equal(write_to(&rig->a, a, key, 56, &word, 8), SHOAL_OK);
    assert_int_equal(write_to(&rig->a, a, key, 64, "", 0), SHOAL_OK);
    assert_int_equal(push(&rig->a, a, "there", 5), 5);
    expect(rig, &rig->b, b, "there", 5);
    assert_memory_equal(memory.region + 3, "abc", 3);
    assert_memory_equal(memory.region + 56, &word, 8);
    assert_int_equal(memory.region[2] | memory.region[6] | memory.region[55], 0);
    assert_int_equal(memory.region[64], 0);
    memory_check(&memory);
    rig->b.wire->ops->region_remove(rig->b.wire, key);
    assert_int_not_equal(region_add(&rig->b, memory.region, 64), key);
    rig_free(rig);
}

/* Nothing is pushed or pulled: polling is enough. And it is nothing to tell the owner. */
static void writes_land_by_polling(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    static uint8_t bytes[SH_WIRE_WRITE_MAX], region[4 * SH_WIRE_WRITE_MAX];
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, region, sizeof region);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = pattern(i);
    memset(region, 0, sizeof region);
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    for (unsigned i = 0; i < 4; i++) {
        while (write_to(&rig->a, a, key, i * sizeof bytes, bytes, sizeof bytes) == SHOAL_EAGAIN) {
            assert_true(now_ns() < deadline_ns);
            end_poll(&rig->a, 0);
            end_poll(&rig->b, 0);
        }
    }
    while (memcmp(region + 3 * sizeof bytes, bytes, sizeof bytes) != 0) {
        assert_true(now_ns() < deadline_ns);
        end_poll(&rig->a, 0);
        end_poll(&rig->b, 0);
    }
    for (unsigned i = 0; i < 4; i++)
        assert_memory_equal(region + i * sizeof bytes, bytes, sizeof bytes);
    assert_quiet(&rig->b, SH_WIRE_LOST, b);
    rig_free(rig);
}

/* Many writes and pushed bytes, mixed: the memory is what a model of it is whenever the bytes that
 * were pushed after a write have come. */
static void writes_and_pushes_in_order(void **state)
{
    enum { ROUNDS = 4000 };
    struct rig *rig = rig_new(state, LINKS);
    struct memory memory;
    static uint8_t model[REGION_BYTES], bytes[REGION_BYTES];
    sh_link a, b;
    memory_init(&memory);
    memset(model, 0, sizeof model);
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, memory.region, REGION_BYTES);
    for (unsigned round = 0; round < ROUNDS; round++) {
        size_t size = prng(rig) % 3 == 0 ? 8 : 1 + prng(rig) % (prng(rig) % 8 ? 40 : REGION_BYTES);
        uint64_t offset = prng(rig) % (REGION_BYTES - size + 1);
        if (size == 8)
            offset &= ~UINT64_C(7);
        for (size_t i = 0; i < size; i++)
            bytes[i] = (uint8_t)prng(rig);
        assert_int_equal(write_to(&rig->a, a, key, offset, bytes, size), SHOAL_OK);
        memcpy(model + offset, bytes, size);
        if (prng(rig) % 8 != 0)
            continue;
        assert_int_equal(push(&rig->a, a, &round, sizeof round), sizeof round);
        expect(rig, &rig->b, b, &round, sizeof round);
        assert_memory_equal(memory.region, model, REGION_BYTES);
    }
    memory_check(&memory);
    rig_free(rig);
}

/* A peer that does not poll blocks who writes; it can write again once it was told so, and nothing
 * of either kind is lost or twice. */
static void blocked_writes(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    static uint8_t bytes[SH_WIRE_WRITE_MAX], region[SH_WIRE_WRITE_MAX];
    sh_link a, b;
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, region, sizeof region), times = 0;
    memset(region, 0, sizeof region);
    enum shoal_err err;
    unsigned pushed = 0;
    do { /* again, if the kernel has found more room meanwhile */
        do {
            memset(bytes, (int)(++times & 0xFF), sizeof bytes);
            err = write_to(&rig->a, a, key, 0, bytes, sizeof bytes);
            assert_true(times < 100000);
        } while (err == SHOAL_OK);
        assert_int_equal(err, SHOAL_EAGAIN);
    } while (push(&rig->a, a, "x", 1) == 1 && ++pushed < 1000);
    assert_true(pushed < 1000);
    (void)await(rig, &rig->a, SH_WIRE_WRITABLE, a);
    assert_int_equal(write_to(&rig->a, a, key, 0, bytes, sizeof bytes), SHOAL_OK);
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    while (memcmp(region, bytes, sizeof bytes) != 0) {
        assert_true(now_ns() < deadline_ns);
        end_poll(&rig->a, 0);
        end_poll(&rig->b, 0);
    }
    assert_int_equal(push(&rig->a, a, "x", 1), 1);
    for (unsigned i = 0; i <= pushed; i++)
        expect(rig, &rig->b, b, "x", 1);
    rig_free(rig);
}

struct reader {
    _Atomic uint64_t *word;
    _Atomic bool is_over;
    uint64_t seen;
};

static void *reader_thread(void *arg)
{
    struct reader *reader = arg;
    while (!atomic_load(&reader->is_over)) {
        /* acquire: as who polls a row of a table does; pairs with the release of the write */
        uint64_t word = atomic_load_explicit(reader->word, memory_order_acquire);
        if ((uint32_t)word != (uint32_t)(word >> 32))
            return reader;
        reader->seen += word != 0;
    }
    return NULL;
}

/* A thread beside the wire reads a word that is written over and over: never half of one. */
static void words_arrive_whole(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    struct memory memory;
    sh_link a, b;
    memory_init(&memory);
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, memory.region, REGION_BYTES), last = 0;
    struct reader reader = {.word = (_Atomic uint64_t *)(void *)(memory.region + 16)};
    pthread_t thread;
    void *torn;
    assert_int_equal(pthread_create(&thread, NULL, reader_thread, &reader), 0);
    for (uint64_t i = 1; i <= 3000; i++) {
        uint64_t word = i << 32 | i;
        if (write_to(&rig->a, a, key, 16, &word, 8) == SHOAL_OK)
            last = word;
        end_poll(&rig->a, 0);
        end_poll(&rig->b, 0);
    }
    uint64_t deadline_ns = now_ns() + DEADLINE_NS;
    while (atomic_load(reader.word) != last) {
        assert_true(now_ns() < deadline_ns);
        end_poll(&rig->a, 0);
        end_poll(&rig->b, 0);
    }
    atomic_store(&reader.is_over, true);
    pthread_join(thread, &torn);
    assert_null(torn);
    rig_free(rig);
}

/* Who writes where it may not is told at once (loopback) or loses the link; others notice nothing,
 * and no byte is written. */
static void refused_writes(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    struct memory memory;
    sh_link a, b, good_a, good_b;
    memory_init(&memory);
    connect_pair(rig, 7, &good_a, &good_b);
    uint64_t key = region_add(&rig->b, memory.region, 64);
    const struct {
        uint64_t key, offset;
    } wrong[] = {{key, 57},    {key, 65}, {key, UINT64_MAX}, {key, UINT64_MAX - 7},
                 {key + 1, 0}, {~key, 0}};
    for (unsigned i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        connect_pair(rig, i, &a, &b);
        enum shoal_err err = write_to(&rig->a, a, wrong[i].key, wrong[i].offset, "12345678", 8);
        if (!rig->variant->has_writes) {
            assert_int_equal(err, SHOAL_ENONAME);
            continue;
        }
        assert_int_equal(err, SHOAL_OK);
        assert_int_equal(await(rig, &rig->b, SH_WIRE_LOST, b).err, SHOAL_EPROTO);
        struct sh_wire_event lost = await_lost(rig, &rig->a, a);
        assert_int_equal(lost.tag, i);
        assert_int_equal(write_to(&rig->a, a, key, 0, "x", 1), SHOAL_ECONNLOST);
    }
    for (unsigned i = 0; i < REGION_BYTES; i++)
        assert_int_equal(memory.region[i], 0);
    memory_check(&memory);
    assert_int_equal(write_to(&rig->a, good_a, key, 63, "x", 1), SHOAL_OK);
    assert_int_equal(push(&rig->a, good_a, "on", 2), 2);
    expect(rig, &rig->b, good_b, "on", 2);
    assert_int_equal(memory.region[63], 'x');
    rig_free(rig);
}

/* After region_remove nothing is written; and a closed link writes nowhere. */
static void removed_and_closed(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    struct memory memory;
    sh_link a, b;
    memory_init(&memory);
    connect_pair(rig, 1, &a, &b);
    uint64_t key = region_add(&rig->b, memory.region, 64);
    rig->b.wire->ops->region_remove(rig->b.wire, key);
    enum shoal_err err = write_to(&rig->a, a, key, 0, "12345678", 8);
    if (rig->variant->has_writes) {
        assert_int_equal(err, SHOAL_OK);
        (void)await(rig, &rig->b, SH_WIRE_LOST, b);
        (void)await_lost(rig, &rig->a, a);
        connect_pair(rig, 1, &a, &b);
    } else {
        assert_int_equal(err, SHOAL_ENONAME);
    }
    assert_int_equal(memory.region[0], 0);
    key = region_add(&rig->b, memory.region, 64);
    rig->b.wire->ops->close(rig->b.wire, b);
    (void)await_lost(rig, &rig->a, a);
    assert_int_equal(write_to(&rig->a, a, key, 0, "12345678", 8), SHOAL_ECONNLOST);
    assert_int_equal(memory.region[0], 0);
    rig_free(rig);
}

static void regions_are_bounded(void **state)
{
    struct rig *rig = rig_new(state, LINKS);
    static uint8_t bytes[SH_WRITES_REGIONS_MAX + 1];
    uint64_t keys[SH_WRITES_REGIONS_MAX], none;
    struct sh_wire *wire = rig->a.wire;
    for (unsigned i = 0; i < SH_WRITES_REGIONS_MAX; i++)
        keys[i] = region_add(&rig->a, &bytes[i], 1);
    assert_int_equal(wire->ops->region_add(wire, &bytes[0], 1, &none), SHOAL_ELIMIT);
    wire->ops->region_remove(wire, keys[5]);
    assert_int_not_equal(region_add(&rig->a, &bytes[5], 1), keys[5]);
    rig_free(rig);
}

/* One side has the wire for writes and the other has not. */
static void plain_peer_is_cut_off(void **state)
{
    static struct variant with = {"epoll", "127.0.0.1:0", false, true};
    static struct variant without = {"epoll", "127.0.0.1:0", false, false};
    (void)state;
    void *variant = &with;
    struct rig *rig = rig_new(&variant, LINKS);
    rig->a.wire->ops->destroy(rig->a.wire);
    rig->a.wire = wire_new(&without, LINKS);
    sh_link a, b;
    connect_pair(rig, 3, &a, &b);
    assert_int_equal(push(&rig->a, a, "SHOL\1\0\60\0", 8), 8);
    assert_int_equal(await(rig, &rig->b, SH_WIRE_LOST, b).err, SHOAL_EPROTO);
    (void)await_lost(rig, &rig->a, a);
    rig_free(rig);
}

/* --- Bytes of our choice ------------------------------------------------------------------- */

struct hostile {
    struct sh_memwire memwire;
    struct sh_wire *wire;
    struct memory memory;
    uint64_t key;
};

static void hostile_init(struct hostile *hostile)
{
    sh_memwire_init(&hostile->memwire);
    memory_init(&hostile->memory);
    struct sh_env env = sh_memwire_env(&hostile->memwire);
    assert_int_equal(sh_writes_create(env.wire, env.clock, env.random, &hostile->wire), SHOAL_OK);
    assert_int_equal(hostile->wire->ops->region_add(hostile->wire, hostile->memory.region,
                                                    REGION_BYTES, &hostile->key),
                     SHOAL_OK);
}

static void hostile_free(struct hostile *hostile)
{
    hostile->wire->ops->destroy(hostile->wire);
    sh_memwire_free(&hostile->memwire);
}

static size_t frame_make(uint8_t *out, uint8_t kind, uint32_t size, uint64_t key, uint64_t offset)
{
    memset(out, 0, 8);
    out[0] = kind;
    out[1] = 1;
    sh_store32(out + 4, size);
    if (kind != 2)
        return 8;
    sh_store64(out + 8, key);
    sh_store64(out + 16, offset);
    return 24;
}

/* Polls once and pulls what there is; true: the link was lost. */
static bool hostile_poll(struct hostile *hostile, uint8_t *pulled, size_t *pulled_size)
{
    struct sh_wire_event events[4];
    bool is_lost = false;
    unsigned count = hostile->wire->ops->poll(hostile->wire, events, 4, 0);
    for (unsigned i = 0; i < count; i++) {
        is_lost |= events[i].kind == SH_WIRE_LOST;
        if (events[i].kind != SH_WIRE_READABLE)
            continue;
        size_t got;
        while ((got = hostile->wire->ops->pull(hostile->wire, events[i].link, pulled + *pulled_size,
                                               64)) > 0)
            *pulled_size += got;
    }
    return is_lost;
}

/* Two frames of data and two writes, cut at each byte. */
static void frames_cut_anywhere(void **state)
{
    (void)state;
    for (size_t cut = 0; cut <= 106; cut++) {
        struct hostile hostile;
        uint8_t stream[128], pulled[256];
        size_t size = 0, pulled_size = 0;
        hostile_init(&hostile);
        size += frame_make(stream, 1, 5, 0, 0);
        memcpy(stream + size, "first", 5), size += 5;
        size += frame_make(stream + size, 2, 8, hostile.key, 16);
        memcpy(stream + size, "eight.by", 8), size += 8;
        size += frame_make(stream + size, 2, 13, hostile.key, REGION_BYTES - 13);
        memcpy(stream + size, "to the end of", 13), size += 13;
        size += frame_make(stream + size, 1, 16, 0, 0);
        memcpy(stream + size, "sixteen bytes ok", 16), size += 16;
        assert_int_equal(size, 106);
        sh_link link = sh_memwire_accept(&hostile.memwire);
        assert_false(hostile_poll(&hostile, pulled, &pulled_size));
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(stream, cut));
        for (unsigned i = 0; i < 4; i++)
            assert_false(hostile_poll(&hostile, pulled, &pulled_size));
        /* A word is there whole or not at all. */
        assert_memory_equal(hostile.memory.region + 16, cut < 45 ? "\0\0\0\0\0\0\0" : "eight.by",
                            8);
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(stream + cut, size - cut));
        for (unsigned i = 0; i < 4; i++)
            assert_false(hostile_poll(&hostile, pulled, &pulled_size));
        assert_int_equal(pulled_size, 21);
        assert_memory_equal(pulled, "firstsixteen bytes ok", 21);
        assert_memory_equal(hostile.memory.region + 16, "eight.by", 8);
        assert_memory_equal(hostile.memory.region + REGION_BYTES - 13, "to the end of", 13);
        memory_check(&hostile.memory);
        hostile_free(&hostile);
    }
}

static void bad_frames_cut_off(void **state)
{
    (void)state;
    struct hostile hostile;
    hostile_init(&hostile);
    uint64_t key = hostile.key;
    const struct {
        uint8_t kind, version, reserved;
        uint32_t size;
        uint64_t key, offset;
    } bad[] = {
        {0, 1, 0, 8, key, 0},
        {3, 1, 0, 8, key, 0},
        {255, 1, 0, 8, key, 0},
        {1, 0, 0, 8, key, 0},
        {2, 2, 0, 8, key, 0},
        {1, 1, 1, 8, key, 0},
        {2, 1, 128, 8, key, 0},
        {1, 1, 0, 0, key, 0},
        {2, 1, 0, 0, key, 0},
        {1, 1, 0, (64 << 10) + 1, key, 0},
        {2, 1, 0, SH_WIRE_WRITE_MAX + 1, key, 0},
        {2, 1, 0, UINT32_MAX, key, 0},
        {2, 1, 0, 8, key ^ 1, 0},
        {2, 1, 0, 8, key ^ UINT64_C(1) << 63, 0},
        {2, 1, 0, 8, 0, 0},
        {2, 1, 0, 8, key, REGION_BYTES - 7},
        {2, 1, 0, 8, key, REGION_BYTES},
        {2, 1, 0, 8, key, UINT64_MAX - 7},
        {2, 1, 0, 8, key, UINT64_MAX - 6},
        {2, 1, 0, REGION_BYTES + 1, key, 0},
        {2, 1, 0, REGION_BYTES, key, 1},
    };
    static uint8_t payload[REGION_BYTES + 8];
    memset(payload, 0xEE, sizeof payload);
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        uint8_t head[24], pulled[64];
        size_t pulled_size = 0,
               size = frame_make(head, bad[i].kind, bad[i].size, bad[i].key, bad[i].offset);
        head[1] = bad[i].version;
        head[2 + i % 2] = bad[i].reserved;
        sh_link link = sh_memwire_accept(&hostile.memwire);
        (void)hostile_poll(&hostile, pulled, &pulled_size);
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(head, size));
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(payload, sizeof payload));
        bool is_lost = hostile_poll(&hostile, pulled, &pulled_size);
        is_lost |= hostile_poll(&hostile, pulled, &pulled_size);
        assert_true(is_lost);
        assert_int_equal(pulled_size, 0);
        assert_false(hostile.memwire.links[link].is_there);
    }
    for (unsigned i = 0; i < REGION_BYTES; i++)
        assert_int_equal(hostile.memory.region[i], 0);
    memory_check(&hostile.memory);
    hostile_free(&hostile);
}

/* The region goes while a write to it is under way: not a byte is written after. */
static void region_goes_under_a_write(void **state)
{
    (void)state;
    for (unsigned is_word = 0; is_word < 2; is_word++) {
        struct hostile hostile;
        uint8_t frame[48], pulled[64];
        size_t pulled_size = 0;
        hostile_init(&hostile);
        size_t size = frame_make(frame, 2, is_word ? 8 : 12, hostile.key, 0);
        memset(frame + size, 0xEE, 12);
        sh_link link = sh_memwire_accept(&hostile.memwire);
        (void)hostile_poll(&hostile, pulled, &pulled_size);
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(frame, size + 4));
        assert_false(hostile_poll(&hostile, pulled, &pulled_size));
        assert_int_equal(hostile.memory.region[0], is_word ? 0 : 0xEE);
        hostile.wire->ops->region_remove(hostile.wire, hostile.key);
        sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(frame + size + 4, 8));
        bool is_lost = hostile_poll(&hostile, pulled, &pulled_size);
        is_lost |= hostile_poll(&hostile, pulled, &pulled_size);
        assert_true(is_lost);
        assert_int_equal(hostile.memory.region[4], 0);
        hostile_free(&hostile);
    }
}

/* Frames with a byte or two changed, and plain noise: never a write outside the region. */
static void random_frames(void **state)
{
    (void)state;
    const char *text = getenv("SHOAL_TEST_SEED");
    struct rig random = {.random = text ? strtoull(text, NULL, 0) : now_ns()};
    print_message("seed %llu\n", (unsigned long long)random.random);
    for (unsigned round = 0; round < 200; round++) {
        struct hostile hostile;
        uint8_t bytes[512];
        hostile_init(&hostile);
        for (unsigned i = 0; i < 40; i++) {
            static uint8_t pulled[4096];
            size_t pulled_size = 0, payload = prng(&random) % 400;
            size_t size = frame_make(bytes, prng(&random) % 4 ? 2 : 1, (uint32_t)payload,
                                     hostile.key, prng(&random) % (REGION_BYTES + 200));
            memset(bytes + size, 0x11, payload);
            for (uint64_t k = prng(&random) % 3; k > 0; k--)
                bytes[prng(&random) % (size + payload)] ^= (uint8_t)(1 << prng(&random) % 8);
            sh_link link = sh_memwire_accept(&hostile.memwire);
            (void)hostile_poll(&hostile, pulled, &pulled_size);
            sh_memwire_feed(&hostile.memwire, link, sh_bytes_make(bytes, size + payload));
            (void)hostile_poll(&hostile, pulled, &pulled_size);
            (void)hostile_poll(&hostile, pulled, &pulled_size);
            memory_check(&hostile.memory);
        }
        hostile_free(&hostile);
    }
}

static struct variant loopback = {"loopback", "loop:0", false, false};
static struct variant epoll_tcp = {"epoll", "127.0.0.1:0", false, true};
static struct variant epoll_unix = {"epoll", NULL, false, true};
static struct variant uring_tcp = {"uring", "127.0.0.1:0", false, true};
static struct variant uring_unix = {"uring", NULL, false, true};
static struct variant epoll_tls = {"epoll", "127.0.0.1:0", true, true};
static struct variant uring_tls = {"uring", "127.0.0.1:0", true, true};

#define EMULATED(test)                                                                             \
    {#test ", epoll, tcp", test, NULL, NULL, &epoll_tcp},                                          \
        {#test ", epoll, unix", test, NULL, NULL, &epoll_unix},                                    \
        {#test ", io_uring, tcp", test, NULL, NULL, &uring_tcp},                                   \
        {#test ", io_uring, unix", test, NULL, NULL, &uring_unix},                                 \
        {#test ", epoll, tls", test, NULL, NULL, &epoll_tls},                                      \
    {                                                                                              \
#test ", io_uring, tls", test, NULL, NULL, &uring_tls                                      \
    }
#define ALL(test) {#test ", loopback", test, NULL, NULL, &loopback}, EMULATED(test)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain_wires_have_none),
        ALL(writes_are_there_before_pushes),
        ALL(writes_land_by_polling),
        ALL(writes_and_pushes_in_order),
        EMULATED(blocked_writes),
        ALL(words_arrive_whole),
        ALL(refused_writes),
        ALL(removed_and_closed),
        EMULATED(regions_are_bounded),
        cmocka_unit_test(plain_peer_is_cut_off),
        cmocka_unit_test(frames_cut_anywhere),
        cmocka_unit_test(bad_frames_cut_off),
        cmocka_unit_test(region_goes_under_a_write),
        cmocka_unit_test(random_frames),
    };
    return cmocka_run_group_tests(tests, tls_test_setup, tls_test_teardown);
}
