/* What the workers of a campaign (worker.c) share: a file that each of them maps, and that campaign.py makes, full of zeros, and writes
 * phase and era to. Entries are only added. */
#ifndef TESTS_CAMPAIGN_TABLE_H
#define TESTS_CAMPAIGN_TABLE_H

#include <stdatomic.h>
#include <stdint.h>

#define ENTRIES_MAX 65536u

enum phase { PHASE_WRITE, PHASE_CHECK, PHASE_END };

/* What a chunk is used for. */
enum use {
    USE_REGISTER, /* its worker writes it, all read it */
    USE_COUNTER,  /* all add to it */
    USE_WORD      /* all replace it, where it is still what they have read */
};

/* What a power failure leaves of it. */
enum class {
    CLASS_FIRM, /* all of it: each change is durable */
    CLASS_SOFT, /* any part of it: each change is replicated. Nobody uses it in another era than its own */
    CLASS_MIXED, /* of a register, it is made and removed durably, and put at either level */
    CLASSES
};

struct entry {
    _Atomic uint64_t cid; /* last: the entry is whole */
    uint64_t key;
    uint32_t era;
    uint8_t use, class;
};

struct table {
    _Atomic uint32_t phase;
    _Atomic uint32_t era; /* how often all nodes have lost their power */
    _Atomic uint32_t count;
    struct entry entries[ENTRIES_MAX];
};

#endif
