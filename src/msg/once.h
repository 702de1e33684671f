/* At most once: a request that is sent again after a lost connection, with the same client and
 * number, is answered from its first result. RIFL (Lee and others, SOSP 2015) §3-4.
 *
 *   client                                      server
 *   sh_once_number --number, acknowledged-----> sh_once_begin: FIRST, handler, sh_once_end
 *                                       <-X---- answer (lost)
 *   the same number again  -------------------> sh_once_begin: REPEATED, the kept result
 *   sh_once_finish: what follows acknowledges it, and the server forgets it
 *
 * For message types whose handler does so; their payload begins with 24 bytes: u64 client, u64
 * number, u64 acknowledged (every number up to it has been answered or given up). Numbers are
 * counted for each pair of client and server, from 1; at most SH_ONCE_WINDOW of them may be open,
 * so that a server keeps no more results of a client.
 *
 * Unlike RIFL: results are kept in memory; where the objects are logged the server logs results with them (backup/completion.h), and
 * enters them here when it comes back (sh_once_enter). There are no leases: a server forgets a client that it has not heard of for SH_ONCE_KEEP_NS, and a client
 * does not repeat a request that it first sent more than SH_ONCE_REPEAT_NS ago. */
#ifndef SH_MSG_ONCE_H
#define SH_MSG_ONCE_H

#include "msg/msg.h"

#define SH_ONCE_PREFIX_BYTES 24
#define SH_ONCE_WINDOW 4096
#define SH_ONCE_KEEP_NS UINT64_C(120000000000)
#define SH_ONCE_REPEAT_NS UINT64_C(60000000000)

struct sh_once_id {
    uint64_t client; /* never 0: drawn by the client at its start */
    uint64_t number; /* never 0 */
    uint64_t acknowledged;
};

/* What a handler answered; one word must do. */
struct sh_once_result {
    enum shoal_err err;
    uint64_t value;
    uint64_t about; /* what it was done to, as sh_once_each finds it; 0: nothing */
};

void sh_once_id_put(struct sh_writer *w, const struct sh_once_id *id);

/* --- The server: the transport step only ------------------------------------------------- */

struct sh_once;

struct sh_once_config {
    uint32_t clients_max; /* 112 bytes each; 0: 65536 */
    uint32_t results_max; /* 56 bytes each, 16 for a client at least; 0: 2^21 (112 MiB) */
};

/* The clock is that of msg, which is kept. Memory is taken as clients come. ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_once_create(const struct sh_msg *msg,
                                              const struct sh_once_config *config,
                                              struct sh_once **once_out);
void sh_once_destroy(struct sh_once *once); /* NULL is allowed */

enum sh_once_state {
    SH_ONCE_FIRST,    /* do it, and say what came of it with sh_once_end */
    SH_ONCE_REPEATED, /* it has been done: answer with *result_out */
    SH_ONCE_REFUSED,  /* answered already, with an error: nothing to do */
};

/* Reads the prefix of a request's payload and looks its number up. Refuses: a malformed prefix or a
 * number outside the window (EPROTO), a number that was acknowledged (ECANCELED: it is late, and
 * nobody waits), too many clients or results (ELIMIT, nothing was done), and ENOMEM. */
enum sh_once_state sh_once_begin(struct sh_once *once, struct sh_msg_in *in,
                                 struct sh_once_id *id_out, struct sh_once_result *result_out);
/* Keeps the result of a FIRST. Not called: nothing was done, and a repetition is a FIRST again. In
 * the same handler call as sh_once_begin. */
void sh_once_end(struct sh_once *once, const struct sh_once_id *id,
                 const struct sh_once_result *result);

/* Enters a result that an earlier life of the server has left (backup/completion.h), before any request. One that is acknowledged is
 * forgotten. ELIMIT, ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_once_enter(struct sh_once *once, const struct sh_once_id *id,
                                             const struct sh_once_result *result);
/* The result of that name; false: it is not known, as nothing was done, or it was acknowledged. */
bool sh_once_find(struct sh_once *once, uint64_t client, uint64_t number,
                  struct sh_once_result *result_out);

/* Calls each for every result that may still be asked for and is about first to last (inclusive, 0
 * excepted). It must not call sh_once. Looks at no others, but for a few, and at one list for each 64 IDs. */
void sh_once_each(const struct sh_once *once, uint64_t first, uint64_t last,
                  void (*each)(void *arg, const struct sh_once_id *id,
                               const struct sh_once_result *result),
                  void *arg);

/* Clients and results that there is memory for. */
void sh_once_count(const struct sh_once *once, uint32_t *clients_out, uint32_t *results_out);

/* --- The client: under a lock of its caller ---------------------------------------------- */

/* The numbers of one client for one server. Zero is a valid start. */
struct sh_once_numbers {
    uint64_t last;     /* given out */
    uint64_t finished; /* all up to it */
    uint64_t done[SH_ONCE_WINDOW / 64];
};

/* Gives out the next number; 0 when the window is full: finish some first. */
uint64_t sh_once_number(struct sh_once_numbers *numbers);
/* A number was answered, or will not be sent again. Once for each number given out. */
void sh_once_finish(struct sh_once_numbers *numbers, uint64_t number);

#endif
