/* Which slots of a log file are free, which are whose, and how far they are filled: 48 bytes each, in memory.
 *
 *   bare ──(the disk has reserved its room)──► free ──(take)──► a zone's ──(give)──► free ──(discarded)──► bare
 *
 * Only a slot that has its room on the disk is taken: a write to it does not find the disk full. Which one is bare, and when it gets its
 * room, is for the caller to say (replog_room.c). Both kinds are queues.
 *
 * A zone's slots are a list. A batch goes to a new slot when it takes three quarters of one, else to the one in use
 * that it fits best, so that many small batches do not leave many slots half empty (DXRAM thesis 6 V.E).
 *
 * Threads: one at a time. */
#ifndef SH_LOG_SLOTS_H
#define SH_LOG_SLOTS_H

#include "log/slot.h"

#define SH_SLOT_NONE UINT32_MAX
#define SH_SLOT_GENERATION_MAX 3
#define SH_SLOT_MEAN_AGE_MAX ((1u << 24) - 1)
#define SH_SLOT_LOST 0xff /* for a slot's kind: its head is damaged, and it is nobody's */

struct sh_log_slot {
    uint64_t use;
    uint64_t end;    /* behind the highest sequence number in it */
    uint32_t next;   /* in its list; SH_SLOT_NONE: the last */
    uint32_t filled; /* bytes, with the head; of one that is_found, and not is_whole: all of it */
    uint32_t
        since; /* second of the log's clock: each entry in it was current then, or came later */
    uint32_t order; /* of those that were taken, this process's count */
    uint32_t
        parts; /* the spans in it, and their entries, as far as they can be read (replog_roll.c) */
    /* Of survivors: how often its first entries had been copied, up to SH_SLOT_GENERATION_MAX; and how old its entries were on average when they
     * were copied, by bytes, in seconds. */
    uint32_t generation : 7;
    /* It has entries from an earlier process, all of which this one has read, up to `filled`: what can't be read any more has been damaged since. */
    uint32_t is_whole : 1;
    uint32_t mean_age : 24;
    uint16_t pending : 15;       /* batches that are not durable there yet */
    uint16_t ends_in_pieces : 1; /* `end` counts a write of which the last piece lies elsewhere */
    uint8_t kind;                /* enum sh_log_slot_kind; 0: it is free, or bare */
    uint8_t eons : 2; /* of what it has, a bit each; and of lives that are only named there */
    uint8_t lives_eons : 2;
    bool is_found : 1;  /* it has entries from an earlier process */
    bool is_bad : 1;    /* the scrub has found damage there, and told */
    bool is_closed : 1; /* nothing more is written to it */
    bool
        may_have_room : 1; /* bare: an earlier process, or an allocation that failed, may have left some */
};

struct sh_log_slots {
    struct sh_log_slot *slots;
    uint32_t count, bytes; /* bytes: of each, with the head */
    uint32_t free_first, free_last, free_count;
    uint32_t bare_first, bare_last, bare_count;
    uint32_t left_count; /* bare ones that may have room */
    uint32_t lost_count; /* with damaged heads */
    uint32_t taken;      /* so far */
};

_Static_assert(sizeof(struct sh_log_slot) == 48, "bytes of memory a slot");

/* A zone's. All zero but first = SH_SLOT_NONE: none. */
struct sh_log_slot_list {
    uint32_t first, count;
};

/* So many slots. Those that are in use have to be told of (sh_log_slots_find), then the others are bare (sh_log_slots_begin).
 * ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_log_slots_create(struct sh_log_slots *slots, uint32_t count,
                                                   uint32_t bytes);
void sh_log_slots_destroy(struct sh_log_slots *slots);

/* That slot is the list's, from an earlier process: nothing more is written to it. */
void sh_log_slots_find(struct sh_log_slots *slots, struct sh_log_slot_list *list, uint32_t slot,
                       const struct sh_log_slot_head *head);

/* found_bytes: of the file behind the beginning of slot 0; a slot that begins there may have room. */
/* That slot's head is damaged: it is not used. zone: whose it was, which is kept as its use; 0: not known. */
void sh_log_slots_lose(struct sh_log_slots *slots, uint32_t slot, uint64_t zone);
void sh_log_slots_begin(struct sh_log_slots *slots, uint64_t found_bytes);

/* Takes the slot that has been bare, or free, the longest, which then is in neither queue; SH_SLOT_NONE: there is none. */
uint32_t sh_log_slots_bare_take(struct sh_log_slots *slots);
uint32_t sh_log_slots_free_take(struct sh_log_slots *slots);
/* Puts such a slot to the end of a queue. */
void sh_log_slots_bare_add(struct sh_log_slots *slots, uint32_t slot, bool may_have_room);
void sh_log_slots_free_add(struct sh_log_slots *slots, uint32_t slot);

/* Takes a free slot, which holds its head and nothing else; SH_SLOT_NONE: there is none. */
uint32_t sh_log_slots_take(struct sh_log_slots *slots, struct sh_log_slot_list *list,
                           enum sh_log_slot_kind kind, uint64_t use, uint32_t seconds);

/* The slot of a list in which so many bytes leave the least room; SH_SLOT_NONE: they go to a new one. */
uint32_t sh_log_slots_fit(const struct sh_log_slots *slots, const struct sh_log_slot_list *list,
                          enum sh_log_slot_kind kind, uint32_t bytes);

/* A slot of the list is free. */
void sh_log_slots_give(struct sh_log_slots *slots, struct sh_log_slot_list *list, uint32_t slot);

#endif
