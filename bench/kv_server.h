/* The server side of the key-value benchmark: nodes as shoald runs them, in child processes.
 *
 *   no replicas        one process: a superpeer, a peer
 *   replicas           a process each: a superpeer, the backups, and last the peer that is asked, the owner;
 *                      each has a data_dir of its own in a folder of the servers' */
#ifndef SH_BENCH_KV_SERVER_H
#define SH_BENCH_KV_SERVER_H

#include "bench/child.h"
#include "bench/kv.h"

#define SH_KV_NODES_MAX 16
#define SH_KV_SERVERS_MAX (SH_KV_NODES_MAX + 1)

struct sh_kv_servers {
    struct sh_child
        children[SH_KV_SERVERS_MAX]; /* the first has the superpeer, the last the owner */
    int asks[SH_KV_SERVERS_MAX];     /* sockets to their main threads */
    unsigned count;
    char folder[128]; /* "": none */
};

/* Counts of a server's process since its start. */
struct sh_kv_counts {
    uint64_t nid;             /* of its peer, or else of its superpeer */
    uint64_t messages, bytes; /* in and out, of its peer */
    uint64_t blocks_out;
    uint64_t cpu_ns;
    uint64_t disk_bytes; /* that it gave the kernel for the disk, as the kernel counts them */
};

/* Starts the processes, and waits until they serve. The caller has no other threads. On failure they
 * have to be stopped, too. EIO, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_kv_servers_start(const struct sh_kv_shape *shape,
                                                   enum sh_placement placement,
                                                   struct sh_kv_servers *servers_out);
/* Those of zeros are allowed. */
void sh_kv_servers_stop(struct sh_kv_servers *servers);

/* Asks the process with that index. EIO: it is gone. */
SHOAL_NODISCARD enum shoal_err sh_kv_servers_count(const struct sh_kv_servers *servers,
                                                   unsigned index, struct sh_kv_counts *counts_out);
static inline unsigned sh_kv_servers_owner(const struct sh_kv_servers *servers)
{
    return servers->count - 1;
}

#endif
