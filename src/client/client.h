/* What the programs of this house use of libshoal beyond its public API (shoal/shoal.h). */
#ifndef SH_CLIENT_CLIENT_H
#define SH_CLIENT_CLIENT_H

#include "base/crew.h"
#include "base/options.h"
#include "cluster/recoveries.h"
#include "cluster/report.h"
#include "env/env.h"
#include "msg/call.h"
#include "proto/logs.h"
#include "proto/saves.h"
#include "proto/steps.h"
#include "shoal/shoal.h"

/* Opens a cluster like shoal_open, with the addresses in options->connect, or those of
 * options->superpeers if that is empty, and the options' limits and time-outs. detail (may be
 * NULL, 256 bytes) gets the reason of a failure. */
SHOAL_NODISCARD enum shoal_err sh_client_open(const struct sh_options *options, shoal **store_out,
                                              char *detail);

/* A client in a simulated world: with its env, of which the wire is destroyed with the store, and
 * which runs its steps and waits for it. Else as sh_client_open. */
struct sh_client_world {
    struct sh_env env;
    struct sh_crew_world crew;
};
SHOAL_NODISCARD enum shoal_err sh_client_open_in(const struct sh_client_world *world,
                                                 const struct sh_options *options,
                                                 shoal **store_out);

/* For requests of other modules: messages to this client's cluster. Not for an embedded store. */
struct sh_caller sh_client_caller(shoal *store);

/* The peers that are up, by ID: at most room of them; *count_out is how many there are. ENONODE
 * when there is none. */
SHOAL_NODISCARD enum shoal_err sh_client_peers(shoal *store, shoal_nid *peers, size_t room,
                                               size_t *count_out);

/* How many nodes are up by the view that this client has, without asking for a newer one: just opened, that of the address which has answered. */
size_t sh_client_nodes_known(shoal *store);

/* Whether a peer that does not answer, or any that has failed, has chunks that come back: with the peer or at others, as of this client's view
 * (sh_client_peers has a new one). peer NONE: any that has failed. Not of an embedded store. */
bool sh_client_awaits_peer(shoal *store, shoal_nid peer);

/* How long a node's steps and their parts have taken at most: SH_STEPS_ROWS_MAX rows at most.
 * ENONODE, ENOTYPE (it is older), EPROTO, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_steps(shoal *store, shoal_nid nid,
                                               struct sh_steps_row *rows_out, size_t *count_out);

/* A page of what a peer says of its logs (proto/logs.h); cursor 0, or table_out->next of the page before. *table_out may be changed
 * with any error. ENONODE, ENONAME (it has no log), ENOTYPE (it is older), EPROTO, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_log_table(shoal *store, shoal_nid nid,
                                                   enum sh_log_table_kind kind, uint64_t cursor,
                                                   struct sh_log_table *table_out);

/* Begins a scrub of a peer's log, of a zone or of all: 0; rate in bytes a second, or 0. ENONODE, ENONAME (it has no log, or the log nothing of
 * the zone), EIO, ENOTYPE (it is older), EPROTO, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_log_scrub(shoal *store, shoal_nid nid, uint64_t zone,
                                                   uint64_t rate, uint64_t *number_out);

/* Asks for a page of a dump of a zone. ask->dump is 0 for the first, and then what *ask was changed to. *table_out as above. Errors as of
 * LOG_DUMP (proto/logs.h), ENONODE, ENOTYPE, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_log_dump(shoal *store, shoal_nid nid,
                                                  struct sh_log_dump_ask *ask,
                                                  struct sh_log_table *table_out);

/* Asks a node to stop in order, as SIGTERM would. back_ms: within which it will be started again, a day at most; 0: it
 * leaves for good. EROLE: only peers are waited for; EINVAL: it has no data_dir. */
SHOAL_NODISCARD enum shoal_err sh_client_stop_node(shoal *store, shoal_nid nid, uint32_t back_ms);

/* Sets what a node logs, as its option log_levels ("info,msg=debug"), until it is set again or the
 * node ends. EPARSE with the bad word in the detail. */
SHOAL_NODISCARD enum shoal_err sh_client_log_levels(shoal *store, shoal_nid nid,
                                                    const char *levels);

/* Makes a peer a superpeer too. address_out, SH_MSG_ADDRESS_MAX bytes: where that one will be, once
 * the others have taken it. EROLE (no peer), EEXIST (it is one), EINVAL (it has no data_dir). */
SHOAL_NODISCARD enum shoal_err sh_client_promote(shoal *store, shoal_nid peer, char *address_out);
/* Calls each(arg, recovery) for every zone that is to be brought back, is being, is lost, or came back older, by shard and ascending ID, until that
 * returns false; each may call nothing. Zones that change meanwhile may be missed. EROLE: an embedded store; and what a call may say. */
SHOAL_NODISCARD enum shoal_err
sh_client_recoveries(shoal *store, bool (*each)(void *arg, const struct sh_recovery *recovery),
                     void *arg);
/* Accepts that a zone is lost, which the list has in that version: its record is removed, and calls on chunks that may have been in it end with ENOCHUNK once no
 * other lost zone may have had them. OK also if it was removed before. EINVAL: it is not lost; EDIFFERS: it is not what was listed; ENONAME; EROLE:
 * an embedded store; ENOTYPE: a superpeer is older; ETIMEOUT: it may or may not have been done. */
SHOAL_NODISCARD enum shoal_err sh_client_loss_accept(shoal *store, uint64_t zone, uint32_t version);
/* Takes a superpeer out of the cluster for good; its process ends, unless it is a peer's. ENONODE,
 * ELIMIT (it is the last one), EROLE (ZooKeeper has the registry), EBUSY. */
SHOAL_NODISCARD enum shoal_err sh_client_demote(shoal *store, shoal_nid superpeer);
/* Declares a node's disk lost for good: shards of which a superpeer is the last replica go on from old copies; zones that wait
 * for a peer's replica go on with those of others. ENONODE; EINVAL, it is up; EBUSY; EROLE: ZooKeeper has the registry. */
SHOAL_NODISCARD enum shoal_err sh_client_disk_lost(shoal *store, shoal_nid node);
/* Has a peer forgotten that left or failed, so that its ID may be given out again. EROLE: no peer's ID;
 * EINVAL: it is up; EBUSY: names or moved chunks refer to it, as the detail says; ENONODE. */
SHOAL_NODISCARD enum shoal_err sh_client_forget(shoal *store, shoal_nid peer);

/* --- Giving many names ------------------------------------------------------------------------ */

#define SH_NAME_GIVER_CALLS 64 /* as many as a client's changes go at a time */

/* Zeroed but for the store. One thread. */
struct sh_name_giver {
    shoal *store;
    size_t taken; /* names that were not given, since they were there */
    size_t next;
    struct shoal_call calls[SH_NAME_GIVER_CALLS];
    bool is_busy[SH_NAME_GIVER_CALLS];
};

/* Begins to give a chunk a name, if nobody has; may wait for an earlier one, and say its error. */
SHOAL_NODISCARD enum shoal_err sh_name_give(struct sh_name_giver *giver, struct sh_bytes name,
                                            shoal_cid cid);
/* Waits for all; also after an error. What the first that failed says. */
SHOAL_NODISCARD enum shoal_err sh_name_give_end(struct sh_name_giver *giver);

/* --- Saving metadata --------------------------------------------------------------------------- */

/* A snapshot of a shard of the metadata, of one moment: the pieces of metadata/snapshot.h, each behind
 * its u32 size, allocated. EROLE: embedded. EBUSY, EPROTO, ENOMEM, ETIMEOUT. */
SHOAL_NODISCARD enum shoal_err sh_client_shard_save(shoal *store, unsigned shard,
                                                    uint8_t **bytes_out, size_t *size_out);
/* Makes a barrier of that ID, without members. EEXIST, ELIMIT, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_barrier_put(shoal *store, uint64_t barrier, uint32_t size,
                                                     uint8_t flags);

/* --- Safety copies (proto/saves.h) ------------------------------------------------------------- */

/* A copy of a peer's chunks that is being read. */
struct sh_client_save {
    shoal *store;
    shoal_nid node;
    uint64_t number, block;
};

/* Begins one. EBUSY: another one of that peer is read. ENONODE, EROLE, EFAILED, ENOTYPE (it is older), and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_save_begin(shoal *store, shoal_nid node,
                                                    struct sh_client_save *save_out);
/* Reads the next block: *head_out, and the records, which have been checked against its checksum, in an answer that the caller frees. ELIMIT: more was
 * changed meanwhile than the peer can keep; ENONAME: the peer has ended it; ECORRUPT, EPROTO, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_save_read(struct sh_client_save *save,
                                                   struct sh_saves_block *head_out,
                                                   uint8_t **answer_out,
                                                   struct sh_bytes *records_out);
/* Ends it, wherever it is. */
void sh_client_save_end(struct sh_client_save *save);
/* The process of a peer, and how many chunks have come to it from elsewhere so far. */
SHOAL_NODISCARD enum shoal_err sh_client_arrivals(shoal *store, shoal_nid node,
                                                  uint64_t *instance_out, uint64_t *arrivals_out);
/* Chunks that a restore has made, found there as they were, left as they were, and replaced. */
struct sh_client_restored {
    uint64_t made, same, skipped, replaced;
    shoal_cid cid; /* with EEXIST: that is there, with other bytes */
};
/* Has a peer make chunks of its own again: records of a RESTORE. Where the peer's log has no room it goes on when it has; a sum of all is
 * added to *sums_inout. EEXIST; ENONODE: it is being drained; EINVAL: a chunk of another creator; and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_restore(shoal *store, shoal_nid node,
                                                 enum sh_saves_policy policy,
                                                 struct sh_bytes records,
                                                 struct sh_client_restored *sums_inout);

/* --- Where chunks are ------------------------------------------------------------------------- */

/* What this client knows of the cluster, for benchmarks. Not of an embedded store. */
struct sh_directory;
struct sh_directory *sh_client_directory(shoal *store);

/* The owner of a chunk, from the cache or by one question to a superpeer, which fails at
 * deadline_ns; 0: after the time-out of requests. Not of an embedded store; blocks. Errors as of
 * sh_directory_locate (cluster), but EUNREACHABLE for ECONNLOST: it may be asked again. */
SHOAL_NODISCARD enum shoal_err sh_client_locate(shoal *store, shoal_cid cid, uint64_t deadline_ns,
                                                shoal_nid *nid_out);

/* A range of chunk IDs, its owner, and the superpeer that said so. */
struct sh_client_lookup {
    shoal_cid first, last;
    shoal_nid owner, superpeer;
};
/* Asks where a chunk is, whatever is cached. ENOCHUNK, EFAILED, ELOST; EINVAL: an embedded store. */
SHOAL_NODISCARD enum shoal_err sh_client_lookup(shoal *store, shoal_cid cid,
                                                struct sh_client_lookup *lookup_out);

/* False: enough. */
typedef bool (*sh_client_tree_each)(void *arg, const struct sh_client_lookup *range);
/* Calls back for each range of IDs that a node has created chunks in, or may yet, and what owner
 * the superpeers have for it, whatever has become of that one; ascending. Between pages of some
 * hundred ranges they may change. EROLE: only peers create chunks. ENONODE. EINVAL: an embedded
 * store. */
SHOAL_NODISCARD enum shoal_err sh_client_lookup_tree(shoal *store, shoal_nid creator,
                                                     sh_client_tree_each each, void *arg);
/* What a superpeer says of itself and its metadata. ENONODE, EROLE (no superpeer), EVERSION,
 * EPROTO, and what a call may say. */
SHOAL_NODISCARD enum shoal_err sh_client_report(shoal *store, shoal_nid superpeer,
                                                struct sh_report *report_out);

/* The text for people that came with this thread's last failed call, as shoal_error_detail. */
void sh_client_detail_set(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
