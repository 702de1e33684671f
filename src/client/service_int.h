/* Asking the superpeers for names, barriers and scratch: what service.c does for the others. */
#ifndef SH_CLIENT_SERVICE_INT_H
#define SH_CLIENT_SERVICE_INT_H

#include "client/client_int.h"
#include "cluster/proto.h"
#include "metadata/metadata.h"
#include "shoal/names.h"

/* A question, as in ASK of cluster/proto.h. */
struct sh_service_ask {
    uint8_t kind, shard;
    uint64_t barrier, round, member;
    struct sh_bytes key, after;
    uint64_t deadline_ns; /* when nobody has answered, the call fails */
    /* Until then it is waited for what is asked for, a second at a time; 0: not at all. */
    uint64_t wait_until_ns;
};

/* What every public call begins with. EINVAL: no store; EBUSY within a completion. */
SHOAL_NODISCARD enum shoal_err sh_service_begin(shoal *store);
/* A name or key; EINVAL with a detail. */
SHOAL_NODISCARD enum shoal_err sh_service_key(const char *text, struct sh_bytes *key_out);

/* Asks until the superpeer that owns the shard answers; *answer_out is allocated, and what *r_out
 * reads. EAGAIN: it is not there, and wait_until_ns is over. */
SHOAL_NODISCARD enum shoal_err sh_service_ask(shoal *store, const struct sh_service_ask *ask,
                                              uint8_t **answer_out, struct sh_reader *r_out);

/* The same question as bytes, and of which shard it is. */
#define SH_SERVICE_ASK_BYTES_MAX (SH_ASK_BYTES + 2 * SHOAL_NAME_MAX)
void sh_service_ask_put(struct sh_writer *w, const struct sh_service_ask *ask, uint64_t wait_ns);
unsigned sh_service_ask_shard(const struct sh_service_ask *ask);

#define SH_SERVICE_PATIENCE_NS UINT64_C(500000000) /* for an answer, before another is asked */

/* A question or an update on its way to a shard's owner. */
struct sh_exchange {
    sh_msg_type type;
    unsigned shard;
    struct sh_bytes payload;
    uint8_t *repeat; /* set to 1 before it is sent again; NULL: that need not be said */
    uint64_t wait_ns;
    uint64_t deadline_ns;
    unsigned hops, tries;
    bool is_update;
    bool is_unclear; /* it was sent, and nobody has said what came of it */
};

/* The shard's owner as far as is known, or another superpeer at each try, who will point to it.
 * NONE: no superpeer is up. */
shoal_nid sh_exchange_whom(shoal *store, unsigned shard, unsigned tries);
/* What comes after a try, that `to` has answered, or whose error is err: another at once, another
 * after SH_ROUND_PAUSE_NS, or nothing: *err_out is what came of it all. */
enum sh_verdict { SH_VERDICT_OVER, SH_VERDICT_AGAIN, SH_VERDICT_PAUSE };
enum sh_verdict sh_exchange_after(shoal *store, struct sh_exchange *ex, shoal_nid to,
                                  enum shoal_err err, uint16_t redirect, enum shoal_err *err_out);

/* Asks until the owner answers. The answer is allocated; what counts of it begins at its third byte. */
SHOAL_NODISCARD enum shoal_err sh_exchange_run(shoal *store, struct sh_exchange *ex,
                                               uint8_t **answer_out, size_t *size_out);

/* A caller's number of its own (metadata.h), as long as it is taken. */
struct sh_service_caller {
    unsigned slot;
    uint64_t id;
};
/* Waits for a free one until the deadline. ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_service_caller_take(shoal *store, uint64_t deadline_ns,
                                                      struct sh_service_caller *caller_out);
bool sh_service_caller_try(shoal *store, struct sh_service_caller *caller_out);
void sh_service_caller_release(shoal *store, const struct sh_service_caller *caller);
/* The next number of a caller's updates. */
uint64_t sh_service_number(shoal *store, const struct sh_service_caller *caller);
/* The shard's count of updates (metadata.h), if it was asked for within the last second. */
bool sh_service_count(shoal *store, unsigned shard, uint64_t *count_out);
void sh_service_count_set(shoal *store, unsigned shard, uint64_t count, uint64_t asked_ns);
/* Reads what came of an update. Its error is returned, too. */
SHOAL_NODISCARD enum shoal_err sh_service_result_get(struct sh_reader *r,
                                                     const struct sh_exchange *ex,
                                                     struct sh_metadata_result *result_out);
/* Has an update done, once; sets its caller and number. The result's error is returned, too. */
SHOAL_NODISCARD enum shoal_err sh_service_update_as(shoal *store,
                                                    const struct sh_service_caller *caller,
                                                    struct sh_metadata_update *update,
                                                    uint64_t deadline_ns,
                                                    struct sh_metadata_result *result_out);
/* The same for one update, in the store's time-out. */
SHOAL_NODISCARD enum shoal_err sh_service_update(shoal *store, struct sh_metadata_update *update,
                                                 struct sh_metadata_result *result_out);
/* Calls back with each entry of the pages of all shards; `kind` is NAMES or SCRATCHES; value is
 * the chunk ID or the size. The text ends with a NUL. */
SHOAL_NODISCARD enum shoal_err
sh_service_list(shoal *store, uint8_t kind, const char *prefix,
                bool (*each)(void *arg, const char *text, uint64_t value), void *arg);

/* The same for a store in this process (service_embedded.c). An update of a name that is found again
 * waits for the disk: then one must not be within a completion. */
SHOAL_NODISCARD enum shoal_err sh_local_update(shoal *store,
                                               const struct sh_metadata_update *update,
                                               struct sh_metadata_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_local_ask(shoal *store, const struct sh_service_ask *ask,
                                            uint8_t **answer_out, struct sh_reader *r_out);
/* Whether an update waits for the disk, so that it has to be begun (sh_names_begin). */
bool sh_local_is_durable(const shoal *store, const struct sh_metadata_update *update);
/* Waits until such an update is done; NULL: until all that were begun before are. */
SHOAL_NODISCARD enum shoal_err sh_local_names_run(shoal *store,
                                                  const struct sh_metadata_update *update,
                                                  struct sh_metadata_result *result_out);
/* The names' state. */
struct sh_local_state;
struct sh_local_state *sh_local_names(shoal *store);

#endif
