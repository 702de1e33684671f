/* Asking the superpeers for names, barriers and scratch: what service.c does for the others. */
#ifndef SH_CLIENT_SERVICE_INT_H
#define SH_CLIENT_SERVICE_INT_H

#include "client/client_int.h"
#include "cluster/metadata.h"
#include "shoal/names.h"

/* A question, as in ASK of cluster/proto.h. */
struct sh_service_ask {
    uint8_t kind, sector;
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

/* Asks until the superpeer that owns the sector answers; *answer_out is allocated, and what *r_out
 * reads. EAGAIN: it is not there, and wait_until_ns is over. */
SHOAL_NODISCARD enum shoal_err sh_service_ask(shoal *store, const struct sh_service_ask *ask,
                                              uint8_t **answer_out, struct sh_reader *r_out);

/* A caller's number of its own (metadata.h), as long as it is taken. */
struct sh_service_caller {
    unsigned slot;
    uint64_t id;
};
/* Waits for a free one until the deadline. ELIMIT. */
SHOAL_NODISCARD enum shoal_err sh_service_caller_take(shoal *store, uint64_t deadline_ns,
                                                      struct sh_service_caller *caller_out);
void sh_service_caller_release(shoal *store, const struct sh_service_caller *caller);
/* Has an update done, once; sets its caller and number. The result's error is returned, too. */
SHOAL_NODISCARD enum shoal_err sh_service_update_as(shoal *store,
                                                    const struct sh_service_caller *caller,
                                                    struct sh_metadata_update *update,
                                                    uint64_t deadline_ns,
                                                    struct sh_metadata_result *result_out);
/* The same for one update, in the store's time-out. */
SHOAL_NODISCARD enum shoal_err sh_service_update(shoal *store, struct sh_metadata_update *update,
                                                 struct sh_metadata_result *result_out);
/* Calls back with each entry of the pages of all sectors; `kind` is NAMES or SCRATCHES; value is
 * the chunk ID or the size. The text ends with a NUL. */
SHOAL_NODISCARD enum shoal_err
sh_service_list(shoal *store, uint8_t kind, const char *prefix,
                bool (*each)(void *arg, const char *text, uint64_t value), void *arg);

/* The same for a store in this process (service_embedded.c). */
SHOAL_NODISCARD enum shoal_err sh_local_update(shoal *store,
                                               const struct sh_metadata_update *update,
                                               struct sh_metadata_result *result_out);
SHOAL_NODISCARD enum shoal_err sh_local_ask(shoal *store, const struct sh_service_ask *ask,
                                            uint8_t **answer_out, struct sh_reader *r_out);

#endif
