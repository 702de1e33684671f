/* Which zones were lost or came back older since a watch looked last (watch.c). */
#ifndef SH_CLIENT_WATCH_INT_H
#define SH_CLIENT_WATCH_INT_H

#include "cluster/recoveries.h"
#include "shoal/shoal.h"

/* A zone that is not with its owner, or not as it was; and what was told of it. */
struct sh_watched_zone {
    uint64_t id;
    uint32_t older; /* how often it had come back older, as was told last */
    bool is_lost;
};

struct sh_watched_news {
    enum shoal_event_kind kind;
    struct sh_zone zone;
};

/* Zones change only while one is to be brought back, and one is only after a change of the view: so the superpeers are asked as long as the last list was by an
 * older view, or had one.
 *
 * Memory: 16 bytes for each zone that was listed last, 128 for each that is to be told. */
struct sh_watched_zones {
    struct sh_watched_zone *told; /* in the order of lists: by shard and ID */
    size_t told_count;
    uint64_t epoch; /* by which the last list was; 0: none */
    bool is_under_way;
    uint64_t due_ns;
    /* News of the list that was read last; the caller may read them until the next list is begun. */
    struct sh_watched_news *news;
    size_t news_count;
    /* The list that is being read. */
    struct sh_watched_zone *next;
    size_t next_count, next_room, news_room, at; /* at: in told */
    bool is_next_under_way;
    enum shoal_err err;
};

/* Begins to read a list. */
void sh_watched_zones_begin(struct sh_watched_zones *zones);
/* Each zone of the list, in order; as for sh_client_recoveries. */
bool sh_watched_zones_take(void *arg, const struct sh_recovery *recovery);
/* The list is over; not OK: it is dropped, and nothing is news. Passes on err, or says ENOMEM. */
SHOAL_NODISCARD enum shoal_err sh_watched_zones_end(struct sh_watched_zones *zones,
                                                    enum shoal_err err, uint64_t epoch);
/* Whether another list may bring news, by a view of that epoch. */
static inline bool sh_watched_zones_are_old(const struct sh_watched_zones *zones, uint64_t epoch)
{
    return zones->is_under_way || zones->epoch < epoch;
}
void sh_watched_zones_destroy(struct sh_watched_zones *zones);

#endif
