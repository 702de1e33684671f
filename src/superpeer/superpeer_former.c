/* What superpeers tell each other of owners that failed (docs/recovery.md). A chunk that is noted as a former owner's may be in any zone that the
 * owner had, also in one that another node made, whose record is in that node's shard: so a superpeer that is asked for the chunk can't tell by the
 * records of its own shards alone whether the chunk comes back.
 *
 *   a look at all records is complete, and has found something else, or is of a new view
 *        |--FORMER--> every other superpeer that is up
 *   some heartbeats later
 *        '--FORMER--> the same once more: the message may have been lost, or the other superpeer is another process by now
 *
 * Of a shard, what its owner has told counts if that was in a view that is no older than the one in which it is asked about. Then it stays true that no
 * zone of a node, whose life is over in that view, is to be recovered:
 * 1. A zone becomes a node's by a record which the owner of the shard orders while the node is up in the owner's view, and a later owner of the shard
 *    knows no less than the one that has told (superpeer_forget.c).
 * 2. A record that was ordered before, and came behind the look, the node has not heard of: the answer comes when the record does, and the node's
 *    life is over by then. So no chunk is in the zone as the node's.
 * 3. A later life of the node is up, and over, in later views, for which what was told before does not count.
 * What a restorer that failed had taken for a zone, which it did not come to open, is noted as that restorer's, whom the record names no more once another one is at it. But
 * the note names the zone, and as long as that is to be recovered its creator is among those that are told: that one is asked for, too (superpeer_moves.c).
 * So what was told long ago, or by a process that has ended, may say only that zones are to be recovered that are back by now: then clients ask again.
 * Until all shards are known, as while the owner of some is down and no other superpeer has them yet, it is EFAILED. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

#define AGAIN_HEARTBEATS 4 /* in which all is told again */

struct sh_former {
    uint64_t number, due_ns; /* of what was told last; when that is told again */
    /* By superpeer, what it has told last; NULL: nothing yet. 16 KB each, so 1 MB at most, in a cluster of 63 superpeers. */
    struct sh_looked *told[SH_SUPERPEERS_MAX + 1];
};

static bool bit_has(const uint64_t *bits, shoal_nid nid)
{
    return bits[nid.v / 64] >> nid.v % 64 & 1;
}

/* Those of the shards of which all zones have a record that had one: else all replicas of the shard were lost. */
static uint64_t shards_known(const struct sh_superpeer *superpeer, uint64_t shards)
{
    uint64_t known = 0;
    for (unsigned i = 0; i < SH_SHARDS; i++)
        known |= (uint64_t)sh_metadata_is_known(superpeer->ring->metadata, i) << i;
    return known & shards;
}

/* --- Telling ----------------------------------------------------------------------------------- */

static void looked_put(struct sh_writer *w, const struct sh_looked *looked, uint64_t shards)
{
    const struct sh_former_owners *owners = &looked->owners;
    sh_put64(w, looked->epoch);
    sh_put64(w, shards);
    for (unsigned i = 0; i < SH_NIDS_WORDS; i++) {
        if (!owners->undone[i] && !owners->lost[i])
            continue;
        sh_put16(w, (uint16_t)i);
        sh_put64(w, owners->undone[i]);
        sh_put64(w, owners->lost[i]);
    }
}

static void tell(struct sh_superpeer *superpeer, const struct sh_looked *looked)
{
    _Static_assert(SH_FORMER_BYTES_MAX == SH_FORMER_BYTES + SH_NIDS_WORDS * SH_FORMER_WORD_BYTES,
                   "room for all IDs");
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    uint8_t bytes[SH_FORMER_BYTES_MAX];
    struct sh_writer w = sh_writer_make(bytes, sizeof bytes);
    looked_put(&w, looked, shards_known(superpeer, looked->shards));
    SH_ASSERT(sh_writer_ok(&w));
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        if (view->nodes[i].state == SH_NODE_UP)
            sh_shared_send(superpeer, view->nodes[i].nid, SH_CLUSTER_FORMER,
                           sh_bytes_make(bytes, (size_t)(w.at - bytes)));
    }
}

unsigned sh_superpeer_former_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_former *former = superpeer->former;
    if (now_ns < sh_superpeer_former_due_ns(superpeer))
        return 0;
    const struct sh_looked *looked = sh_superpeer_recoveries_looked(superpeer, &former->number);
    SH_ASSERT(looked);
    former->due_ns = now_ns + AGAIN_HEARTBEATS * superpeer->heartbeat_ns;
    tell(superpeer, looked);
    return 1;
}

uint64_t sh_superpeer_former_due_ns(const struct sh_superpeer *superpeer)
{
    const struct sh_former *former = superpeer->former;
    uint64_t number;
    if (sh_registry_view(superpeer->registry)->superpeers < 2 ||
        !sh_superpeer_recoveries_looked(superpeer, &number))
        return SH_NEVER;
    return number == former->number ? former->due_ns : 0;
}

/* --- What was told ----------------------------------------------------------------------------- */

static bool looked_get(struct sh_reader *r, struct sh_looked *looked)
{
    memset(looked, 0, sizeof *looked);
    looked->epoch = sh_get64(r);
    looked->shards = sh_get64(r);
    unsigned least = 0;
    while (sh_reader_ok(r) && sh_reader_left(r) > 0) {
        unsigned word = sh_get16(r);
        uint64_t undone = sh_get64(r), lost = sh_get64(r);
        if (!sh_reader_ok(r) || word < least || word >= SH_NIDS_WORDS || !(undone | lost))
            return false;
        looked->owners.undone[word] = undone;
        looked->owners.lost[word] = lost;
        least = word + 1;
    }
    return sh_reader_done(r);
}

/* Without memory nothing is known of that superpeer's shards until it tells again. */
static void on_former(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    shoal_nid from = in->reply_to.nid;
    struct sh_looked looked;
    if (!sh_shared_is_other(superpeer, from) || !looked_get(&in->payload, &looked))
        return;
    struct sh_looked **told = &superpeer->former->told[from.v];
    if (!*told)
        *told = malloc(sizeof **told);
    if (*told)
        **told = looked;
}

enum shoal_err sh_superpeer_former_of(const struct sh_superpeer *superpeer, shoal_nid former)
{
    const struct sh_arcs *arcs = sh_registry_arcs(superpeer->registry);
    uint64_t epoch = sh_registry_view(superpeer->registry)->epoch, number, known = 0;
    const struct sh_looked *own = sh_superpeer_recoveries_looked(superpeer, &number);
    bool is_lost = false;
    for (unsigned i = 0; i < SH_SHARDS; i++) {
        unsigned owner = arcs->shards[i].owner;
        SH_ASSERT(owner <= SH_SUPERPEERS_MAX);
        bool is_own = owner == superpeer->index + 1u;
        const struct sh_looked *looked = is_own              ? own
                                         : superpeer->former ? superpeer->former->told[owner]
                                                             : NULL;
        if (!looked || looked->epoch < epoch || !(looked->shards >> i & 1))
            continue;
        if (bit_has(looked->owners.undone, former))
            return SHOAL_EFAILED;
        is_lost |= bit_has(looked->owners.lost, former);
        bool is_known = !is_own || sh_metadata_is_known(superpeer->ring->metadata, i);
        known |= (uint64_t)is_known << i;
    }
    _Static_assert(SH_SHARDS == 64, "a bit for each");
    if (~known)
        return SHOAL_EAGAIN;
    return is_lost ? SHOAL_ELOST : SHOAL_ENOCHUNK;
}

/* --- Life -------------------------------------------------------------------------------------- */

enum shoal_err sh_superpeer_former_open(struct sh_superpeer *superpeer)
{
    superpeer->former = calloc(1, sizeof *superpeer->former);
    if (!superpeer->former)
        return SHOAL_ENOMEM;
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_FORMER, SH_MSG_INLINE, on_former, superpeer);
    return SHOAL_OK;
}

void sh_superpeer_former_close(struct sh_superpeer *superpeer)
{
    struct sh_former *former = superpeer->former;
    for (unsigned i = 0; former && i <= SH_SUPERPEERS_MAX; i++)
        free(former->told[i]);
    superpeer->former = NULL;
    free(former);
}
