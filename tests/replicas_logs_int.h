/* Reads the logs of peers that do not run, for world_replicas_test.c, and checks them against the records of the superpeers:
 *
 *   - each backup in a zone's record has of each of its chunks the last write that was acknowledged as durable, or a later one; and the last
 *     that was acknowledged as replicated, if its process has run since before that was begun;
 *   - nothing that was not written, nor half of a write;
 *   - each replica is a prefix of what was written to the zone, so of two the shorter one is a prefix of the other.
 *
 * As a recovery does, a chunk is looked for from the highest zone down that claims it. A log of which a bit has gone bad may lack any write, but the
 * owner has to know that (rw_is_told); and what such a log has was written. */
#ifndef TESTS_REPLICAS_LOGS_INT_H
#define TESTS_REPLICAS_LOGS_INT_H

#include "tests/replicas_clients_int.h"

#define RW_ZONES 256
#define RW_REPLICAS 1200
#define RW_CLAIMS 64

struct rw_replica {
    unsigned peer; /* whose log it is in */
    uint64_t zone, end;
    bool is_damaged;
    unsigned claims_count;
    struct {
        uint64_t first, last;
    } claims[RW_CLAIMS];
    int16_t states[RW_CHUNKS]; /* by chunk: which of its writes it has last, or RW_ABSENT */
};

struct rw_logs {
    struct rw *rw;
    struct rw_client *client;
    struct sh_zone *zones; /* RW_ZONES: all records, by ascending ID for each creator */
    unsigned zone_count;
    struct rw_replica **replicas; /* RW_REPLICAS */
    unsigned replica_count;
    bool is_listed;
    enum shoal_err list_err;
    unsigned checks[SH_LEVELS]; /* of a chunk in a log for which something was needed, by level */
    unsigned pairs, moved, damaged, lone;
    unsigned orphans; /* replicas that no record names, of owners that were there all the time */
};

/* --- Records ------------------------------------------------------------------------------------ */

static inline void rw_zone_told(struct sh_zone_list *list, const struct sh_zone *zone)
{
    struct rw_logs *logs = list->arg;
    assert_true(logs->zone_count < RW_ZONES);
    logs->zones[logs->zone_count++] = *zone;
}

static inline void rw_zones_told(struct sh_zone_list *list, enum shoal_err err)
{
    struct rw_logs *logs = list->arg;
    logs->list_err = err;
    logs->is_listed = true;
}

static inline bool rw_are_zones_told(void *arg)
{
    return ((struct rw_logs *)arg)->is_listed;
}

static inline bool rw_is_refreshed(void *arg)
{
    return !((struct rw_client *)arg)->is_refreshing;
}

/* The client's view may be an old one, by which it asks nobody who answers. */
static inline void rw_client_refresh(struct rw_client *client)
{
    uint64_t until_ns = sh_world_now(client->rw->world) + 60 * S;
    (void)sh_world_run_until(client->rw->world, rw_is_refreshed, client, until_ns);
    client->is_refreshing = true;
    client->refresh = (struct sh_directory_op){.done = rw_refreshed, .arg = client};
    sh_directory_refresh(client->directory, &client->refresh);
    (void)sh_world_run_until(client->rw->world, rw_is_refreshed, client, until_ns);
}

/* Asks the superpeers, which run, for the records of the zones that a node has made. */
static inline void rw_zones_of(struct rw_logs *logs, shoal_nid nid)
{
    struct sh_zone_list list = {.each = rw_zone_told, .done = rw_zones_told, .arg = logs};
    unsigned before = logs->zone_count;
    logs->list_err = SHOAL_EAGAIN;
    for (unsigned tries = 0; logs->list_err && tries < 6; tries++) {
        rw_client_refresh(logs->client);
        logs->zone_count = before;
        logs->is_listed = false;
        sh_zones_list(logs->client->zones, SH_ZONES_OF_CREATOR, nid, 0, &list);
        bool is_told = sh_world_run_until(logs->rw->world, rw_are_zones_told, logs,
                                          sh_world_now(logs->rw->world) + 60 * S);
        assert_true(is_told);
    }
    if (logs->list_err)
        RW_FAIL(logs->rw, "the superpeers do not tell of zones: %s",
                shoal_err_name(logs->list_err));
}

static inline void rw_zones_list(struct rw_logs *logs)
{
    for (unsigned i = 0; i < RW_PEERS; i++) {
        if (rw_peer(logs->rw, i)->nid.v)
            rw_zones_of(logs, rw_peer(logs->rw, i)->nid);
    }
}

/* --- Replicas ----------------------------------------------------------------------------------- */

struct rw_reading {
    struct rw_logs *logs;
    struct rw_replica *replica;
    bool is_over;
    struct {
        uint8_t *bytes;
        uint32_t size;
        uint64_t pieces; /* bit by bit: that were read */
        uint16_t count;  /* of pieces that there are to be */
    } chunks[RW_CHUNKS];
};

static inline unsigned rw_peer_of(const struct rw_logs *logs, shoal_nid nid)
{
    for (unsigned i = 0; i < RW_PEERS; i++) {
        if (rw_peer(logs->rw, i)->nid.v == nid.v)
            return i;
    }
    RW_FAIL(logs->rw, "a record has node %u, which is no peer", nid.v);
    return 0;
}

/* Whether there may be a chunk of that size of which nobody knows, with an ID that was perhaps used before. */
static inline bool rw_may_be_lost(const struct rw_client *client, unsigned peer, uint32_t size)
{
    for (unsigned i = 0; i < client->lost_count; i++) {
        if (client->lost[i].peer == peer && client->lost[i].size == size)
            return true;
    }
    return false;
}

static inline enum shoal_err rw_item(void *arg, struct sh_replog_zone *zone,
                                     const struct sh_replog_item *item)
{
    struct rw_reading *reading = arg;
    struct rw_logs *logs = reading->logs;
    (void)zone;
    if (!item->creator && item->local_id == SH_REPLOG_COMPLETION_ID)
        return SHOAL_OK;
    if (!item->creator) {
        size_t slot = item->local_id - 1;
        assert_true(slot < RW_CLAIMS && item->payload.size == 16);
        for (; reading->replica->claims_count <= slot; reading->replica->claims_count++)
            reading->replica->claims[reading->replica->claims_count].first = 1;
        reading->replica->claims[slot].first = sh_load64(item->payload.at);
        reading->replica->claims[slot].last = sh_load64(item->payload.at + 8);
        return SHOAL_OK;
    }
    const struct rw_chunk *chunk =
        rw_chunk_find(logs->client, shoal_cid_make((shoal_nid){item->creator}, item->local_id));
    if (!chunk) {
        unsigned peer = rw_peer_of(logs, (shoal_nid){item->creator});
        if (!rw_may_be_lost(logs->client, peer, item->total))
            RW_FAIL(logs->rw, "peer %u has a chunk of %u bytes that nobody has created", peer,
                    item->total);
        return SHOAL_OK;
    }
    size_t at = (size_t)(chunk - logs->client->chunks);
    assert_true(item->total <= RW_CHUNK_BYTES_MAX &&
                item->offset + item->payload.size <= item->total);
    if (!reading->chunks[at].bytes)
        reading->chunks[at].bytes = calloc(1, item->total);
    if (reading->chunks[at].size && reading->chunks[at].size != item->total)
        RW_FAIL(logs->rw, "the pieces of a chunk are of two sizes");
    reading->chunks[at].size = item->total;
    assert_true(item->pieces <= 64);
    reading->chunks[at].count = item->pieces;
    reading->chunks[at].pieces |= UINT64_C(1) << item->piece;
    if (item->payload.at)
        memcpy(reading->chunks[at].bytes + item->offset, item->payload.at, item->payload.size);
    return SHOAL_OK;
}

static inline void rw_zone_read(void *arg, struct sh_replog_zone *zone, uint64_t end,
                                enum shoal_err err)
{
    struct rw_reading *reading = arg;
    const struct rw_host *host = rw_peer(reading->logs->rw, reading->replica->peer);
    (void)zone;
    if (err && (err != SHOAL_ECORRUPT || !host->is_flipped))
        RW_FAIL(host->rw, "zone %" PRIx64 " at node %u can't be read: %s", reading->replica->zone,
                host->nid.v, shoal_err_name(err));
    reading->replica->end = end;
    reading->replica->is_damaged = err != SHOAL_OK;
    reading->is_over = true;
}

/* Whether all pieces of a chunk were read; of a log of which a bit has gone bad some may be missing. */
static inline bool rw_is_whole(const struct rw_reading *reading, unsigned at)
{
    const struct rw_host *host = rw_peer(reading->logs->rw, reading->replica->peer);
    unsigned count = reading->chunks[at].count;
    bool is_whole = (unsigned)__builtin_popcountll(reading->chunks[at].pieces) == count;
    if (!is_whole && !host->is_flipped)
        RW_FAIL(host->rw, "node %u has some pieces only of chunk %" PRIx64, host->nid.v,
                reading->logs->client->chunks[at].cid.v);
    return is_whole;
}

static inline void rw_states_set(struct rw_reading *reading)
{
    struct rw_client *client = reading->logs->client;
    for (unsigned i = 0; i < client->chunk_count; i++) {
        struct rw_chunk *chunk = &client->chunks[i];
        uint8_t *bytes = reading->chunks[i].bytes;
        uint32_t size = reading->chunks[i].size;
        reading->replica->states[i] = RW_ABSENT;
        bool is_anew =
            bytes && rw_is_zeros(bytes, size) && rw_may_be_lost(client, chunk->peer, size);
        if (bytes && !is_anew && !reading->replica->is_damaged && rw_is_whole(reading, i))
            reading->replica->states[i] =
                (int16_t)rw_write_of(client, chunk, bytes, size, "a replica");
        free(bytes);
    }
}

static inline void rw_replica_read(struct rw_logs *logs, unsigned peer, struct sh_replog_zone *zone)
{
    struct rw_host *host = rw_peer(logs->rw, peer);
    struct rw_reading *reading = calloc(1, sizeof *reading);
    struct rw_replica *replica = calloc(1, sizeof *replica);
    assert_true(reading && replica && logs->replica_count < RW_REPLICAS);
    logs->replicas[logs->replica_count++] = replica;
    *replica = (struct rw_replica){.peer = peer, .zone = sh_replog_zone_id(zone)};
    *reading = (struct rw_reading){.logs = logs, .replica = replica};
    const struct sh_replog_read read = {.take = rw_item, .done = rw_zone_read, .arg = reading};
    enum shoal_err err = sh_replog_zone_read(zone, &read);
    if (err)
        RW_FAIL(logs->rw, "a zone can't be read: %s", shoal_err_name(err));
    while (!reading->is_over) {
        (void)sh_replog_step(host->log, rw_now(host), 1);
        (void)sh_disk_poll(sh_world_env(logs->rw->world, host->node)->disk, true);
    }
    rw_states_set(reading);
    logs->damaged += replica->is_damaged;
    free(reading);
}

/* Reads the log of a peer that does not run, as a process that begins does, and ends that process. */
static inline void rw_log_read(struct rw_logs *logs, unsigned peer)
{
    struct rw_host *host = rw_peer(logs->rw, peer);
    uint64_t above = UINT64_MAX;
    struct sh_replog_zone *zone;
    if (!host->nid.v)
        return;
    host->is_read = true;
    uint64_t sound_since = host->sound_since;
    sh_world_restart(logs->rw->world, host->node);
    while (host->log && (zone = sh_replog_zone_below(host->log, above))) {
        above = sh_replog_zone_id(zone);
        rw_replica_read(logs, peer, zone);
    }
    sh_world_crash(logs->rw->world, host->node);
    host->sound_since = sound_since;
}

/* --- Checks ------------------------------------------------------------------------------------- */

static inline bool rw_claims(const struct rw_replica *replica, shoal_cid cid)
{
    for (unsigned i = 0; i < replica->claims_count; i++) {
        if (replica->claims[i].first <= cid.v && cid.v <= replica->claims[i].last)
            return true;
    }
    return false;
}

/* NULL: the peer's log has nothing of the zone. */
static inline const struct rw_replica *rw_replica_of(const struct rw_logs *logs, unsigned peer,
                                                     uint64_t zone)
{
    for (unsigned i = 0; i < logs->replica_count; i++) {
        if (logs->replicas[i]->peer == peer && logs->replicas[i]->zone == zone)
            return logs->replicas[i];
    }
    return NULL;
}

/* Whether any of the zone's backups claims the chunk. */
static inline bool rw_is_claimed(const struct rw_logs *logs, const struct sh_zone *zone,
                                 shoal_cid cid)
{
    if (sh_zone_creator(zone->id).v != shoal_cid_creator(cid).v)
        return false;
    for (unsigned i = 0; i < zone->count; i++) {
        const struct rw_replica *replica =
            rw_replica_of(logs, rw_peer_of(logs, zone->backups[i].nid), zone->id);
        if (replica && rw_claims(replica, cid))
            return true;
    }
    return false;
}

/* How many zones claim a chunk: more than one where it has moved, and the former zone is still there. */
static inline unsigned rw_claiming(const struct rw_logs *logs, shoal_cid cid)
{
    unsigned count = 0;
    for (unsigned i = 0; i < logs->zone_count; i++)
        count += rw_is_claimed(logs, &logs->zones[i], cid);
    return count;
}

/* The newest write of a chunk that a backup must have; level_out: because of what it is acknowledged at. */
static inline int rw_needed(const struct rw_chunk *chunk, const struct rw_host *backup,
                            enum sh_level *level_out)
{
    for (int i = (int)chunk->count - 1; i >= 0; i--) {
        const struct rw_write *write = &chunk->writes[i];
        bool is_kept = !backup->is_sick && write->begun > backup->sound_since;
        *level_out = write->level;
        if (write->acked &&
            (write->level == SH_LEVEL_DURABLE || (write->level == SH_LEVEL_REPLICATED && is_kept)))
            return i;
    }
    *level_out = SH_LEVEL_ASYNC;
    return RW_ABSENT;
}

/* Prints what is known of a chunk of which something is missing, for whoever looks for the reason. */
static inline void rw_chunk_print(const struct rw_logs *logs, const struct rw_chunk *chunk)
{
    size_t at = (size_t)(chunk - logs->client->chunks);
    for (unsigned i = 0; i < chunk->count; i++)
        print_message("  write %u: kind %d at level %d, %u bytes, begun %" PRIu64 ", acked %" PRIu64
                      "\n",
                      i, (int)chunk->writes[i].op, (int)chunk->writes[i].level,
                      chunk->writes[i].size, chunk->writes[i].begun, chunk->writes[i].acked);
    for (unsigned i = 0; i < logs->zone_count; i++) {
        const struct sh_zone *zone = &logs->zones[i];
        if (sh_zone_creator(zone->id).v != shoal_cid_creator(chunk->cid).v)
            continue;
        print_message("  zone %" PRIx64 ", incarnation %u, life %" PRIx64 ", wants %u:", zone->id,
                      zone->incarnation, zone->life, zone->wanted);
        for (unsigned k = 0; k < zone->count; k++)
            print_message(" node %u", zone->backups[k].nid.v);
        print_message("\n");
        for (unsigned k = 0; k < logs->replica_count; k++) {
            const struct rw_replica *replica = logs->replicas[k];
            const struct rw_host *host = rw_peer(logs->rw, replica->peer);
            if (replica->zone == zone->id)
                print_message("    at node %u, which runs since %" PRIu64 "%s%s: up to %" PRIu64
                              ", claims it %d, as of write %d\n",
                              host->nid.v, host->sound_since, host->is_sick ? ", sick" : "",
                              host->is_flipped ? ", flipped" : "", replica->end,
                              rw_claims(replica, chunk->cid), replica->states[at]);
        }
    }
}

/* The only backup of a zone, when it has lost what it had taken and not written, gets the zone anew from its owner, where there is
 * no other node for it: until that is over it has less than was acknowledged, and is in the record all the while. */
static inline bool rw_is_begun_anew(const struct sh_zone *zone, const struct rw_host *backup)
{
    return zone->count == 1 && (backup->boots > 1 || backup->is_sick);
}

/* Whether the chunk may be in such a zone. */
static inline bool rw_may_be_begun_anew(const struct rw_logs *logs, const struct rw_chunk *chunk)
{
    for (unsigned i = 0; i < logs->zone_count; i++) {
        const struct sh_zone *zone = &logs->zones[i];
        if (sh_zone_creator(zone->id).v == shoal_cid_creator(chunk->cid).v && zone->count &&
            rw_is_begun_anew(zone, rw_peer(logs->rw, rw_peer_of(logs, zone->backups[0].nid))))
            return true;
    }
    return false;
}

/* Whether the owner of a zone knows that a replica of which a bit has gone bad lacks something: by the log's word, or as another one has more. */
static inline bool rw_is_told(const struct rw_logs *logs, const struct sh_zone *zone, unsigned peer)
{
    const struct rw_replica *replica = rw_replica_of(logs, peer, zone->id);
    bool is_short = !replica || replica->is_damaged;
    if (!rw_peer(logs->rw, peer)->is_flipped)
        return false;
    for (unsigned i = 0; i < zone->count && !is_short; i++) {
        const struct rw_replica *other =
            rw_replica_of(logs, rw_peer_of(logs, zone->backups[i].nid), zone->id);
        is_short = other && other->end > replica->end;
    }
    return is_short;
}

/* Checks a chunk in one backup of a zone that claims it. False: the backup does not claim it, or has nothing: a zone below may have it. */
static inline bool rw_chunk_check_in(struct rw_logs *logs, const struct sh_zone *zone,
                                     unsigned peer, unsigned at)
{
    const struct rw_chunk *chunk = &logs->client->chunks[at];
    const struct rw_host *host = rw_peer(logs->rw, peer);
    const struct rw_replica *replica = rw_replica_of(logs, peer, zone->id);
    enum sh_level level;
    int needed = rw_needed(chunk, host, &level);
    if (rw_is_told(logs, zone, peer) || rw_is_begun_anew(zone, host))
        return true;
    if (!replica || !rw_claims(replica, chunk->cid))
        return false;
    logs->checks[level]++;
    if (rw_has(chunk, replica->states[at], needed))
        return true;
    rw_chunk_print(logs, chunk);
    RW_FAIL(logs->rw,
            "node %u, a backup of zone %" PRIx64 " of %u, has chunk %" PRIx64
            " as of write %d, though write %d (of %u) was acknowledged at level %d",
            host->nid.v, zone->id, zone->count, chunk->cid.v, replica->states[at], needed,
            chunk->count, (int)level);
    return true;
}

/* Whether zones that the node made were with other nodes: these may have moved chunks on to zones of their own, of which the node knows nothing. */
static inline bool rw_were_with_others(const struct rw_logs *logs, shoal_nid creator)
{
    bool were = rw_peer(logs->rw, rw_peer_of(logs, creator))->boots > 1;
    for (unsigned i = 0; i < logs->zone_count && !were; i++) {
        const struct sh_zone *zone = &logs->zones[i];
        were = sh_zone_creator(zone->id).v == creator.v && zone->owner.v != creator.v;
    }
    return were;
}

/* Whether all backups of a zone have that write of a chunk, or a later one, as far as that is known, and some claim the chunk. */
static inline bool rw_zone_has(const struct rw_logs *logs, const struct sh_zone *zone, unsigned at,
                               int needed)
{
    const struct rw_chunk *chunk = &logs->client->chunks[at];
    bool is_claimed = false;
    for (unsigned i = 0; i < zone->count; i++) {
        unsigned peer = rw_peer_of(logs, zone->backups[i].nid);
        const struct rw_replica *replica = rw_replica_of(logs, peer, zone->id);
        bool claims = replica && rw_claims(replica, chunk->cid);
        is_claimed |= claims;
        if (rw_is_told(logs, zone, peer) || rw_is_begun_anew(zone, rw_peer(logs->rw, peer)))
            continue;
        if (!claims || !rw_has(chunk, replica->states[at], needed))
            return false;
    }
    return is_claimed;
}

/* Checks a chunk that may be in a zone of any node: all backups of some zone have what was acknowledged as durable. Which were its backups when more was acknowledged as replicated, is not known. */
static inline void rw_somewhere_check(struct rw_logs *logs, unsigned at)
{
    const struct rw_chunk *chunk = &logs->client->chunks[at];
    enum sh_level level;
    const struct rw_host nobody = {.sound_since = UINT64_MAX};
    int needed = rw_needed(chunk, &nobody, &level);
    if (rw_has(chunk, RW_ABSENT, needed))
        return;
    for (unsigned i = 0; i < logs->zone_count; i++) {
        if (rw_zone_has(logs, &logs->zones[i], at, needed)) {
            logs->checks[level]++;
            return;
        }
    }
    rw_chunk_print(logs, chunk);
    RW_FAIL(logs->rw,
            "chunk %" PRIx64
            " is in no zone of which all backups have it, though its write %d (of %u) "
            "was acknowledged at level %d",
            chunk->cid.v, needed, chunk->count, (int)level);
}

/* Checks a chunk: in all backups of the highest zone that claims it; where some of these do not, in those of the next one, too; and
 * if no zone claims it, nobody may have been told of it. Where zones of its creator were with others, it may be in zones of any node. */
static inline void rw_chunk_check(struct rw_logs *logs, unsigned at)
{
    const struct rw_chunk *chunk = &logs->client->chunks[at];
    if (rw_were_with_others(logs, shoal_cid_creator(chunk->cid))) {
        rw_somewhere_check(logs, at);
        return;
    }
    unsigned missing[RW_PEERS], missing_count = 0, zones = 0;
    bool goes_on = true;
    for (unsigned i = logs->zone_count; goes_on && i > 0; i--) {
        const struct sh_zone *zone = &logs->zones[i - 1];
        if (!rw_is_claimed(logs, zone, chunk->cid))
            continue;
        goes_on = false;
        zones++;
        missing_count = 0;
        for (unsigned k = 0; k < zone->count; k++) {
            unsigned peer = rw_peer_of(logs, zone->backups[k].nid);
            if (!rw_chunk_check_in(logs, zone, peer, at))
                missing[missing_count++] = peer;
        }
        goes_on = missing_count > 0;
    }
    logs->moved += rw_claiming(logs, chunk->cid) > 1;
    if (!zones && rw_may_be_begun_anew(logs, chunk))
        return;
    if (!zones) /* it may be in any log, and is in none */
        for (; missing_count < RW_PEERS; missing_count++)
            missing[missing_count] = missing_count;
    for (unsigned i = 0; i < missing_count; i++) {
        enum sh_level level;
        struct rw_host host = *rw_peer(logs->rw, missing[i]);
        if (!zones)
            host.sound_since = UINT64_MAX; /* which were its backups, nobody knows */
        int needed = rw_needed(chunk, &host, &level);
        if (host.is_flipped || rw_has(chunk, RW_ABSENT, needed))
            continue;
        rw_chunk_print(logs, chunk);
        RW_FAIL(logs->rw,
                "chunk %" PRIx64 " is not in the log of node %u, though its write %d (of %u) "
                "was acknowledged at level %d; %u zones claim it",
                chunk->cid.v, host.nid.v, needed, chunk->count, (int)level, zones);
    }
}

/* Whether no other zone has ever had the chunk, as far as the logs tell. */
static inline bool rw_is_of_one_zone(const struct rw_logs *logs, shoal_cid cid)
{
    uint64_t zone = 0;
    if (rw_were_with_others(logs, shoal_cid_creator(cid)))
        return false;
    for (unsigned i = 0; i < logs->replica_count; i++) {
        if (!rw_claims(logs->replicas[i], cid))
            continue;
        if (zone && zone != logs->replicas[i]->zone)
            return false;
        zone = logs->replicas[i]->zone;
    }
    return true;
}

/* The replica has a write that was begun when others had been answered: it has these as well. */
static inline void rw_prefix_check(struct rw_logs *logs, const struct rw_replica *replica)
{
    uint64_t newest = 0;
    unsigned latest = 0;
    struct rw_client *client = logs->client;
    for (unsigned i = 0; i < client->chunk_count; i++) {
        const struct rw_chunk *chunk = &client->chunks[i];
        if (replica->states[i] != RW_ABSENT && rw_claims(replica, chunk->cid) &&
            rw_is_of_one_zone(logs, chunk->cid) &&
            chunk->writes[replica->states[i]].begun > newest) {
            newest = chunk->writes[replica->states[i]].begun;
            latest = i;
        }
    }
    for (unsigned i = 0; i < client->chunk_count; i++) {
        const struct rw_chunk *chunk = &client->chunks[i];
        int needed = (int)chunk->count - 1;
        if (!rw_claims(replica, chunk->cid) || !rw_is_of_one_zone(logs, chunk->cid))
            continue;
        while (needed >= 0 &&
               (!chunk->writes[needed].acked || chunk->writes[needed].acked > newest))
            needed--;
        if (rw_has(chunk, replica->states[i], needed))
            continue;
        rw_chunk_print(logs, &client->chunks[latest]);
        rw_chunk_print(logs, chunk);
        RW_FAIL(logs->rw,
                "the replica of zone %" PRIx64 " at node %u has a write that is later than "
                "write %d of chunk %" PRIx64 ", which it has as of write %d",
                replica->zone, rw_peer(logs->rw, replica->peer)->nid.v, needed, chunk->cid.v,
                replica->states[i]);
    }
}

/* The shorter one is a prefix of the longer one, and of two that are as long both are the same. */
static inline void rw_pair_check(struct rw_logs *logs, const struct rw_replica *shorter,
                                 const struct rw_replica *longer)
{
    struct rw_client *client = logs->client;
    for (unsigned i = 0; i < client->chunk_count; i++) {
        const struct rw_chunk *chunk = &client->chunks[i];
        int one = shorter->states[i], other = longer->states[i];
        bool is_anew = client->lost_count && (one == RW_ABSENT || other == RW_ABSENT);
        bool agrees = shorter->end == longer->end ? one == other : rw_has(chunk, other, one);
        if (!agrees && !is_anew)
            RW_FAIL(logs->rw,
                    "of zone %" PRIx64 " peer %u has chunk %" PRIx64 " as of write %d at %" PRIu64
                    ", and peer %u as of write %d at %" PRIu64,
                    shorter->zone, shorter->peer, chunk->cid.v, one, shorter->end, longer->peer,
                    other, longer->end);
    }
    logs->pairs++;
}

static inline void rw_zone_check(struct rw_logs *logs, const struct sh_zone *zone)
{
    const struct rw_replica *sound[SH_ZONE_BACKUPS_MAX];
    unsigned count = 0;
    for (unsigned i = 0; i < zone->count; i++) {
        const struct rw_replica *replica =
            rw_replica_of(logs, rw_peer_of(logs, zone->backups[i].nid), zone->id);
        if (!replica || rw_peer(logs->rw, replica->peer)->is_flipped ||
            rw_is_begun_anew(zone, rw_peer(logs->rw, replica->peer)))
            continue;
        rw_prefix_check(logs, replica);
        for (unsigned k = 0; k < count; k++) {
            bool is_shorter = replica->end <= sound[k]->end;
            rw_pair_check(logs, is_shorter ? replica : sound[k], is_shorter ? sound[k] : replica);
        }
        sound[count++] = replica;
    }
    logs->lone += zone->count < zone->wanted;
}

/* Whether no record names the replica, nor has its owner failed, whose replicas all stay. */
static inline bool rw_is_orphan(const struct rw_logs *logs, const struct rw_replica *replica)
{
    shoal_nid nid = rw_peer(logs->rw, replica->peer)->nid;
    if (rw_were_with_others(logs, sh_zone_creator(replica->zone)))
        return false;
    for (unsigned i = 0; i < logs->zone_count; i++) {
        if (logs->zones[i].id == replica->zone)
            return !sh_zone_has_backup(&logs->zones[i], nid, 0);
    }
    return true;
}

/* Reads the logs of all peers, none of which runs, and checks them. */
static inline void rw_logs_check(struct rw_logs *logs, struct rw *rw, struct rw_client *client)
{
    *logs = (struct rw_logs){.rw = rw, .client = client};
    logs->zones = calloc(RW_ZONES, sizeof *logs->zones);
    logs->replicas = calloc(RW_REPLICAS, sizeof(struct rw_replica *));
    assert_true(logs->zones && logs->replicas);
    rw_zones_list(logs);
    for (unsigned i = 0; i < RW_PEERS; i++)
        rw_log_read(logs, i);
    for (unsigned i = 0; i < client->chunk_count; i++)
        rw_chunk_check(logs, i);
    for (unsigned i = 0; i < logs->zone_count; i++)
        rw_zone_check(logs, &logs->zones[i]);
    for (unsigned i = 0; i < logs->replica_count; i++) {
        logs->orphans += rw_is_orphan(logs, logs->replicas[i]);
        free(logs->replicas[i]);
    }
    free(logs->replicas);
    free(logs->zones);
}

#endif
