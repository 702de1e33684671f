/* The writes of the benchmark of the log, the same for every system that it measures: chunks of one
 * size, in zones of equally many, in an order that follows from the case and the seed.
 *
 *   load        zone after zone, each from its first chunk to its last
 *   sequential  the same, twice
 *   random      a chunk drawn uniformly, and those behind it in its zone: a row of `batch`
 *   zipf        the same, drawn by Zipf's law (bench/zipf.h)
 *   hotcold     rows of `batch`, of which every tenth is hot: 90 % of the writes are to hot ones
 *
 * The cases but load update chunks that a load has written, two times as many as there are. */
#ifndef SH_BENCH_LOG_PLAN_H
#define SH_BENCH_LOG_PLAN_H

#include "base/bytes.h"
#include "bench/bench.h"
#include "bench/zipf.h"
#include "log/replog.h"

enum sh_log_case { SH_LOG_LOAD, SH_LOG_SEQUENTIAL, SH_LOG_RANDOM, SH_LOG_ZIPF, SH_LOG_HOTCOLD };
#define SH_LOG_CASES 5

/* An entry's header, at most what an update of a drawn chunk takes: counted with its chunk where a
 * zone's bytes are told. */
#define SH_LOG_ENTRY_BYTES 12

struct sh_log_plan {
    enum sh_log_case what;
    uint32_t size;
    unsigned zones;
    uint64_t chunks; /* of a zone */
    unsigned batch;  /* chunks of a row */
    uint64_t seed;
    double seconds;        /* after which a run is cut off; 0: never */
    struct sh_zipf zipf;   /* of zipf alone */
    const uint8_t *source; /* SH_LOG_SOURCE_BYTES and a chunk, that payloads are taken from */
    const char *folder;
    /* Of the log alone. */
    uint64_t zone_bytes;
    uint32_t segment_bytes;
    uint64_t log_bytes;  /* that a zone's log may take, rounded up to segments, and four more */
    uint32_t slots_each; /* of these segments */
    enum sh_replog_selection selection;
    uint64_t buffer_bytes;
    bool is_direct, is_raw; /* raw: direct, and the file has its size and its room before */
    bool has_primary;
    bool has_claims;      /* the load begins with what each zone claims */
    unsigned sync_every;  /* chunks after which nothing goes on until they are durable; 0: never */
    uint64_t disk_writes; /* a second, at most; 0: as many as the disk takes */
    /* Bytes that its last run wrote, and wrote to the disk: the raw disk writes as many. */
    uint64_t run_ops, run_bytes;
};
#define SH_LOG_SOURCE_BYTES (UINT32_C(256) << 10)

/* What a benchmark takes where the flags do not say. Chunks have 64 bytes then, and are half of what their log may take. */
struct sh_log_defaults {
    unsigned zones;
    uint64_t zone_bytes, segment_bytes, buffer_bytes;
};
/* Takes what the flags say of the log and its chunks; case, batch, folder and source are the caller's. */
void sh_log_plan_make(const struct sh_bench_flags *flags, const struct sh_log_defaults *defaults,
                      struct sh_log_plan *plan);
/* Refuses flags that do not go together. */
SHOAL_NODISCARD enum shoal_err sh_log_plan_check(struct sh_bench *bench,
                                                 const struct sh_log_plan *plan);
/* Refuses a run that takes so many bytes in a folder which has less room. */
SHOAL_NODISCARD enum shoal_err sh_log_space_check(struct sh_bench *bench, const char *folder,
                                                  uint64_t wanted);

/* The source of a plan's payloads: random bytes, which nothing can compress. The caller frees it. NULL: no memory. */
uint8_t *sh_log_source_make(const struct sh_log_plan *plan);
/* Bytes that the log's file takes at most. */
uint64_t sh_log_plan_file_bytes(const struct sh_log_plan *plan);
static inline uint64_t sh_log_plan_count(const struct sh_log_plan *plan)
{
    return plan->zones * plan->chunks;
}

/* When a run that begins then is cut off. */
static inline uint64_t sh_log_plan_deadline_ns(const struct sh_log_plan *plan, uint64_t begin_ns)
{
    return plan->seconds > 0 ? begin_ns + (uint64_t)(plan->seconds * 1e9) : UINT64_MAX;
}

/* A write: the zone, and the chunk by its place in the zone. */
struct sh_log_target {
    unsigned zone;
    uint64_t chunk;
};

struct sh_log_draws {
    const struct sh_log_plan *plan;
    bool loads;
    struct sh_keys keys;
    uint64_t drawn, count;
    uint64_t left; /* of the row */
    struct sh_log_target next;
    uint64_t digest; /* of the first writes, the same however many a run gets done */
};

/* loads: draws the load, whatever the case. */
void sh_log_draws_init(struct sh_log_draws *draws, const struct sh_log_plan *plan, bool loads);
/* False: that was all. */
bool sh_log_draw(struct sh_log_draws *draws, struct sh_log_target *target_out);
/* The payload of the last one that was drawn. */
struct sh_bytes sh_log_payload(const struct sh_log_draws *draws);

/* The number of a chunk among all, from 0. */
static inline uint64_t sh_log_key(const struct sh_log_plan *plan,
                                  const struct sh_log_target *target)
{
    return target->zone * plan->chunks + target->chunk;
}

#endif
