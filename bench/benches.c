#include "bench/benches.h"

const struct sh_bench_entry sh_benches[] = {
    {"crew", "waking threads and running steps", sh_bench_crew_cases, sh_bench_crew_baselines,
     sh_bench_crew},
    {"store", "chunk memory: operations, and bytes for each chunk", sh_bench_store_cases,
     sh_bench_store_baselines, sh_bench_store},
    {"ranges", "where chunks are: ranges of IDs and their owners", sh_bench_ranges_cases,
     sh_bench_ranges_baselines, sh_bench_ranges},
    {"lookup", "which node has a chunk: cached, and asked for over loopback TCP",
     sh_bench_lookup_cases, sh_bench_lookup_baselines, sh_bench_lookup},
    {"msg", "messages between nodes, over any transport", sh_bench_msg_cases,
     sh_bench_msg_baselines, sh_bench_msg},
    {"kv", "chunks of one server process, from one client process over loopback TCP",
     sh_bench_kv_cases, sh_bench_kv_baselines, sh_bench_kv},
    {"graph", "loading a graph and traversing it, with several peers in this process",
     sh_bench_graph_cases, sh_bench_graph_baselines, sh_bench_graph},
    {"failover", "killed processes: how long until the cluster goes on", sh_bench_failover_cases,
     sh_bench_failover_baselines, sh_bench_failover},
    {"steps", "the longest steps of nodes under the largest requests", sh_bench_steps_cases,
     sh_bench_steps_baselines, sh_bench_steps},
    {.name = NULL},
};
