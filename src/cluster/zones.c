/* Questions about zones, to the superpeers. */
#include "cluster/zones_int.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/err.h"
#include "metadata/metadata.h"
#include "ring/arcs.h"

#define PAUSE_NS UINT64_C(20000000) /* before a question is asked again */
#define TRY_NS UINT64_C(1000000000) /* for which one superpeer is waited for */
#define HOPS_MAX 4                  /* superpeers that point to each other, before a pause */

/* A question is in one of two states:
 *
 *   waiting --due, by the step--> asking --an answer, or an error that is no reason to repeat it--> over
 *      ^                            | another superpeer is to be asked: due at once
 *      '----------------------------' else: due after a pause, unless its deadline is over before that */
struct sh_zones {
    struct sh_msg *msg;
    struct sh_directory *directory;
    struct sh_clock clock;
    struct sh_zones_ask *asks;    /* that are not over */
    uint16_t creators[SH_SHARDS]; /* a peer's ID whose shard that is, by which the directory goes */
};

static uint64_t now_of(const struct sh_zones *zones)
{
    return sh_now(&zones->clock);
}

/* --- Asking ---------------------------------------------------------------------------------- */

/* Takes a question out, and tells who asked. */
static void ask_end(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_zones_ask **at = &ask->zones->asks;
    SH_ASSERT(!ask->is_asking);
    while (*at != ask)
        at = &(*at)->next;
    *at = ask->next;
    ask->answered(ask, err, payload);
}

static bool may_repeat(enum shoal_err err)
{
    switch (err) {
    case SHOAL_EAGAIN:
    case SHOAL_EBUSY:
    case SHOAL_ELIMIT:
    case SHOAL_ENOMEM:
    case SHOAL_ENONODE:
    case SHOAL_EROLE:
    case SHOAL_EUNREACHABLE:
    case SHOAL_ECANCELED:
    case SHOAL_ECONNLOST:
    case SHOAL_ETIMEOUT:
    case SHOAL_ESTOPPED:
        return true;
    default:
        return false;
    }
}

/* A try has failed: another one comes after a pause, if there is time for it. */
static void ask_again(struct sh_zones_ask *ask, enum shoal_err err)
{
    uint64_t due_ns = now_of(ask->zones) + PAUSE_NS;
    ask->hops = 0;
    if (may_repeat(err) && due_ns < ask->deadline_ns)
        ask->due_ns = due_ns;
    else
        ask_end(ask, may_repeat(err) && ask->is_unclear ? SHOAL_ETIMEOUT : err, NULL);
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_zones_ask *ask = request->arg;
    struct sh_zones *zones = ask->zones;
    shoal_nid other = SHOAL_NID_NONE;
    SH_ASSERT(ask->is_asking);
    ask->is_asking = false;
    if (!err) {
        other.v = sh_get16(payload);
        err = sh_reader_ok(payload) ? SHOAL_OK : SHOAL_EPROTO;
    }
    ask->is_unclear |= err == SHOAL_ECONNLOST || err == SHOAL_ETIMEOUT || err == SHOAL_ESTOPPED ||
                       err == SHOAL_ECANCELED || err == SHOAL_ENOMEM;
    if (err) {
        ask_again(ask, sh_err_get(err));
    } else if (!other.v) {
        ask_end(ask, SHOAL_OK, payload);
    } else if (other.v > SH_SUPERPEERS_MAX) {
        ask_end(ask, SHOAL_EPROTO, NULL);
    } else {
        shoal_nid creator = {zones->creators[ask->shard]};
        sh_directory_superpeer_set(zones->directory, creator, other);
        if (other.v == ask->asked.v || ++ask->hops >= HOPS_MAX)
            ask_again(ask, SHOAL_EBUSY);
        else
            ask->due_ns = 0;
    }
}

static void ask_send(struct sh_zones_ask *ask, uint64_t now_ns)
{
    struct sh_zones *zones = ask->zones;
    struct sh_out out;
    SH_ASSERT(!ask->is_asking && ask->shard < SH_SHARDS);
    if (now_ns >= ask->deadline_ns) {
        ask_end(ask, SHOAL_ETIMEOUT, NULL);
        return;
    }
    uint64_t left_ns = ask->deadline_ns - now_ns;
    ask->request = (struct sh_request){
        .done = on_answer, .arg = ask, .timeout_ns = left_ns < TRY_NS ? left_ns : TRY_NS};
    ask->asked = sh_directory_superpeer(zones->directory, (shoal_nid){zones->creators[ask->shard]});
    enum shoal_err err = ask->asked.v ? sh_msg_request(zones->msg, ask->asked, ask->type, ask->size,
                                                       &ask->request, &out)
                                      : SHOAL_ENONODE;
    if (err) {
        ask_again(ask, err);
        return;
    }
    ask->is_asking = true;
    ask->due_ns = SH_NEVER;
    sh_put_raw(&out.w, sh_bytes_make(ask->payload, ask->size));
    sh_msg_end(zones->msg, &out);
}

/* Begins a question, whose payload is there; the step sends it. */
static void ask_begin(struct sh_zones *zones, struct sh_zones_ask *ask, sh_msg_type type,
                      unsigned shard, uint64_t deadline_ns)
{
    ask->zones = zones;
    ask->type = type;
    ask->shard = (uint8_t)shard;
    ask->hops = 0;
    ask->is_asking = ask->is_unclear = false;
    ask->due_ns = 0;
    ask->deadline_ns = deadline_ns;
    ask->next = zones->asks;
    zones->asks = ask;
}

static uint64_t deadline_of(const struct sh_zones *zones, uint64_t wished_ns)
{
    return wished_ns ? wished_ns : now_of(zones) + SH_ZONES_DEADLINE_NS;
}

/* --- One zone -------------------------------------------------------------------------------- */

enum shoal_err sh_zone_answer_get(struct sh_reader *r, uint64_t id, struct sh_zone_answer *answer)
{
    const uint8_t known = SH_ZONE_RECORDED | SH_ZONE_OLD;
    *answer = (struct sh_zone_answer){.is_there = false};
    enum shoal_err result = sh_err_get(sh_get16(r));
    uint8_t flags = sh_get8(r);
    answer->last = sh_get64(r);
    answer->is_there = flags & SH_ZONE_ANSWER_RECORD;
    answer->is_doubtful = flags & SH_ZONE_ANSWER_DOUBT;
    if (answer->is_there && (sh_zone_get(r, known, &answer->zone) || answer->zone.id != id))
        return SHOAL_EPROTO;
    bool is_good = sh_reader_done(r) && !(flags & ~(SH_ZONE_ANSWER_RECORD | SH_ZONE_ANSWER_DOUBT));
    return is_good ? result : SHOAL_EPROTO;
}

static struct sh_zone_op *op_of(struct sh_zones_ask *ask)
{
    return (struct sh_zone_op *)(void *)((uint8_t *)ask - offsetof(struct sh_zone_op, ask));
}

/* The zone's ID, by the question's payload. */
static uint64_t id_of(const struct sh_zones_ask *ask)
{
    return sh_load64(ask->payload + (ask->type == SH_CLUSTER_ZONE ? SH_ZONE_UPDATE_HEAD : 0));
}

static void op_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_zone_op *op = op_of(ask);
    struct sh_zone_answer answer;
    bool is_answer = !err;
    if (!err)
        err = sh_zone_answer_get(payload, id_of(ask), &answer);
    op->done(op, err, is_answer && err != SHOAL_EPROTO ? &answer : NULL);
}

static void update_begin(struct sh_zones *zones, const struct sh_metadata_update *update,
                         struct sh_zone_op *op)
{
    struct sh_zones_ask *ask = &op->ask;
    SH_ASSERT(op->done && update->sequence);
    struct sh_writer w = sh_writer_make(ask->payload, sizeof ask->payload);
    sh_metadata_update_put(&w, update);
    SH_ASSERT(sh_writer_ok(&w));
    ask->size = (size_t)(w.at - ask->payload);
    ask->answered = op_answered;
    ask_begin(zones, ask, SH_CLUSTER_ZONE, sh_zone_shard(update->zone.id),
              deadline_of(zones, op->deadline_ns));
}

static struct sh_metadata_update update_of(const struct sh_zones *zones, uint8_t kind,
                                           uint64_t life, const struct sh_zone *zone)
{
    struct sh_metadata_update update = {
        .kind = kind, .from = sh_msg_nid(zones->msg), .sequence = life, .zone = *zone};
    update.zone.flags &= (uint8_t)~SH_ZONE_OLD;
    return update;
}

void sh_zones_new(struct sh_zones *zones, uint64_t life, const struct sh_zone *zone,
                  struct sh_zone_op *op)
{
    struct sh_metadata_update update = update_of(zones, SH_METADATA_ZONE_NEW, life, zone);
    update_begin(zones, &update, op);
}

void sh_zones_change(struct sh_zones *zones, uint64_t life, const struct sh_zone *zone,
                     struct sh_zone_op *op)
{
    struct sh_metadata_update update = update_of(zones, SH_METADATA_ZONE_CHANGE, life, zone);
    update_begin(zones, &update, op);
}

void sh_zones_remove(struct sh_zones *zones, uint64_t life, uint64_t id, uint32_t version,
                     struct sh_zone_op *op)
{
    const struct sh_zone zone = {.id = id, .version = version};
    struct sh_metadata_update update = update_of(zones, SH_METADATA_ZONE_REMOVE, life, &zone);
    update_begin(zones, &update, op);
}

void sh_zones_get(struct sh_zones *zones, uint64_t id, struct sh_zone_op *op)
{
    struct sh_zones_ask *ask = &op->ask;
    SH_ASSERT(op->done);
    sh_store64(ask->payload, id);
    ask->size = SH_ZONE_GET_BYTES;
    ask->answered = op_answered;
    ask_begin(zones, ask, SH_CLUSTER_ZONE_GET, sh_zone_shard(id),
              deadline_of(zones, op->deadline_ns));
}

/* --- Lists ----------------------------------------------------------------------------------- */

static struct sh_zone_list *list_of(struct sh_zones_ask *ask)
{
    return (struct sh_zone_list *)(void *)((uint8_t *)ask - offsetof(struct sh_zone_list, ask));
}

static void list_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload);

/* Asks for what comes behind list->after in a shard. */
static void list_ask(struct sh_zones *zones, struct sh_zone_list *list, unsigned shard)
{
    struct sh_zones_ask *ask = &list->ask;
    struct sh_writer w = sh_writer_make(ask->payload, sizeof ask->payload);
    sh_put8(&w, (uint8_t)list->by);
    sh_put8(&w, (uint8_t)shard);
    sh_put16(&w, list->nid.v);
    sh_put64(&w, list->disk);
    sh_put64(&w, list->after);
    SH_ASSERT(sh_writer_ok(&w) && w.at == ask->payload + SH_ZONES_BYTES);
    ask->size = SH_ZONES_BYTES;
    ask->answered = list_answered;
    ask_begin(zones, ask, SH_CLUSTER_ZONES, shard, list->deadline_ns);
}

/* Whether a record belongs where a superpeer has put it: so no list is without end. */
static bool is_listed(const struct sh_zone_list *list, unsigned shard, const struct sh_zone *zone)
{
    if (zone->id <= list->after || sh_zone_shard(zone->id) != shard)
        return false;
    if (list->by == SH_ZONES_OF_CREATOR)
        return sh_zone_creator(zone->id).v == list->nid.v;
    if (list->by == SH_ZONES_OF_FORMER && zone->former.v == list->nid.v)
        return true;
    return list->by == SH_ZONES_OF_BACKUP ? sh_zone_has_backup(zone, list->nid, list->disk)
                                          : zone->owner.v == list->nid.v;
}

enum shoal_err sh_zone_page_get(struct sh_zone_list *list, struct sh_reader *r, bool *is_more_out)
{
    const uint8_t known = SH_ZONE_RECORDED | SH_ZONE_OLD;
    uint64_t before = list->after;
    uint8_t flags = sh_get8(r);
    uint64_t until = sh_get64(r);
    struct sh_zone zone;
    if (!sh_reader_ok(r) || flags & ~(SH_ZONES_ANSWER_MORE | SH_ZONE_ANSWER_DOUBT))
        return SHOAL_EPROTO;
    list->is_doubtful |= (flags & SH_ZONE_ANSWER_DOUBT) != 0;
    *is_more_out = flags & SH_ZONES_ANSWER_MORE;
    while (sh_reader_left(r)) {
        if (sh_zone_get(r, known, &zone) || !is_listed(list, list->ask.shard, &zone))
            return SHOAL_EPROTO;
        list->after = zone.id;
        list->each(list, &zone);
    }
    if (*is_more_out && (until <= before || until < list->after))
        return SHOAL_EPROTO;
    list->after = until;
    return SHOAL_OK;
}

static void list_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_zone_list *list = list_of(ask);
    unsigned shard = ask->shard;
    bool is_more = false;
    if (!err)
        err = sh_zone_page_get(list, payload, &is_more);
    if (!err && !is_more) {
        list->after = 0;
        shard = list->by == SH_ZONES_OF_CREATOR ? SH_SHARDS : shard + 1;
    }
    if (err || shard == SH_SHARDS)
        list->done(list, err);
    else
        list_ask(ask->zones, list, shard);
}

void sh_zones_list(struct sh_zones *zones, enum sh_zones_of by, shoal_nid nid, uint64_t disk,
                   struct sh_zone_list *list)
{
    SH_ASSERT(list->done && list->each);
    SH_ASSERT(sh_nid_is_peer(nid) || (by == SH_ZONES_OF_BACKUP && !nid.v && disk));
    SH_ASSERT(!disk || by == SH_ZONES_OF_BACKUP);
    list->by = by;
    list->nid = nid;
    list->disk = disk;
    list->after = 0;
    list->is_doubtful = false;
    list->deadline_ns = deadline_of(zones, list->deadline_ns);
    list_ask(zones, list, by == SH_ZONES_OF_CREATOR ? sh_arc_shard(nid) : 0);
}

/* --- Recovery --------------------------------------------------------------------------------- */

enum shoal_err sh_take_answer_get(struct sh_reader *r)
{
    enum shoal_err result = sh_err_get(sh_get16(r));
    return sh_reader_done(r) ? result : SHOAL_EPROTO;
}

static void take_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_take_op *op =
        (struct sh_take_op *)(void *)((uint8_t *)ask - offsetof(struct sh_take_op, ask));
    /* The question did not get out, as there was too much to send: superpeers that keep no more ranges answer. */
    if (err == SHOAL_ELIMIT)
        err = SHOAL_EBUSY;
    op->done(op, err ? err : sh_take_answer_get(payload));
}

void sh_zones_take(struct sh_zones *zones, const struct sh_zone *record,
                   const struct sh_metadata_run *runs, size_t count, struct sh_take_op *op)
{
    struct sh_zones_ask *ask = &op->ask;
    SH_ASSERT(op->done && record->life && record->former_life && sh_zone_is_id(record->id));
    SH_ASSERT(count && count <= SH_TAKE_RUNS_MAX);
    struct sh_writer w = sh_writer_make(ask->payload, sizeof ask->payload);
    sh_put64(&w, record->life);
    sh_put16(&w, record->former.v);
    sh_put64(&w, record->former_life);
    sh_put64(&w, record->id);
    sh_put32(&w, record->incarnation);
    sh_put8(&w, record->flags & SH_ZONE_TAKEN);
    sh_put16(&w, (uint16_t)count);
    for (size_t i = 0; i < count; i++) {
        SH_ASSERT(runs[i].first.v <= runs[i].last.v &&
                  (!i || runs[i - 1].last.v < runs[i].first.v));
        sh_put64(&w, runs[i].first.v);
        sh_put64(&w, runs[i].last.v);
    }
    shoal_nid creator = shoal_cid_creator(runs[0].first);
    SH_ASSERT(sh_writer_ok(&w) && shoal_cid_creator(runs[count - 1].last).v == creator.v);
    ask->size = (size_t)(w.at - ask->payload);
    ask->answered = take_answered;
    ask_begin(zones, ask, SH_CLUSTER_TAKE, sh_arc_shard(creator),
              deadline_of(zones, op->deadline_ns));
}

static void order_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload);

/* Asks for what comes behind op->after. */
static void order_ask(struct sh_zones *zones, struct sh_order_op *op)
{
    struct sh_zones_ask *ask = &op->ask;
    struct sh_writer w = sh_writer_make(ask->payload, sizeof ask->payload);
    sh_put16(&w, op->former.v);
    sh_put64(&w, op->life);
    sh_put64(&w, sh_directory_epoch(zones->directory));
    sh_put64(&w, op->after);
    sh_put8(&w, op->near);
    SH_ASSERT(sh_writer_ok(&w) && w.at == ask->payload + SH_ORDER_BYTES);
    ask->size = SH_ORDER_BYTES;
    ask->answered = order_answered;
    ask_begin(zones, ask, SH_CLUSTER_ORDER, sh_arc_shard(op->former), op->deadline_ns);
}

/* The zones that are told rise: so no question is without end. */
enum shoal_err sh_order_answer_get(struct sh_order_op *op, struct sh_reader *r,
                                   enum sh_order *result_out)
{
    uint8_t flagged = sh_get8(r), result = flagged & (uint8_t)~SH_ORDER_LOST;
    uint64_t zone = sh_get64(r);
    bool is_of_former = zone > op->after && sh_zone_creator(zone).v == op->former.v;
    if (!sh_reader_done(r) || result > SH_ORDER_MORE ||
        (result == SH_ORDER_NONE ? zone != 0 : !is_of_former))
        return SHOAL_EPROTO;
    if (result != SH_ORDER_NONE)
        op->after = zone;
    op->has_lost |= flagged & SH_ORDER_LOST;
    *result_out = (enum sh_order)result;
    return SHOAL_OK;
}

static void order_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_order_op *op =
        (struct sh_order_op *)(void *)((uint8_t *)ask - offsetof(struct sh_order_op, ask));
    enum sh_order result = SH_ORDER_NONE;
    if (!err)
        err = sh_order_answer_get(op, payload, &result);
    if (!err && result == SH_ORDER_MORE)
        order_ask(ask->zones, op);
    else
        op->done(op, err, !err && result == SH_ORDER_WAIT ? op->after : 0);
}

void sh_zones_order(struct sh_zones *zones, shoal_nid former, uint64_t life, uint64_t after,
                    bool near, struct sh_order_op *op)
{
    SH_ASSERT(op->done && sh_nid_is_peer(former) && life);
    SH_ASSERT(!after || sh_zone_creator(after).v == former.v);
    op->former = former;
    op->life = life;
    op->near = near;
    op->after = after;
    op->has_lost = false;
    op->deadline_ns = deadline_of(zones, op->deadline_ns);
    order_ask(zones, op);
}

/* The next range of an answer, which begins where the one before has ended. */
static bool range_get(struct sh_reader *r, struct sh_metadata_range *range_out)
{
    struct sh_metadata_note *note = &range_out->note;
    range_out->first.v = sh_get64(r);
    range_out->last.v = sh_get64(r);
    note->owner.v = sh_get16(r);
    note->life = sh_get64(r);
    note->zone = sh_get64(r);
    note->incarnation = sh_get32(r);
    bool is_taken =
        sh_nid_is_peer(note->owner) && note->life && sh_zone_is_id(note->zone) && note->incarnation;
    return sh_reader_ok(r) && range_out->first.v <= range_out->last.v &&
           shoal_cid_creator(range_out->first).v == shoal_cid_creator(range_out->last).v &&
           (!note->owner.v || sh_nid_is_peer(note->owner)) &&
           (is_taken || (!note->life && !note->zone && !note->incarnation));
}

enum shoal_err sh_tree_answer_get(struct sh_tree_op *op, shoal_cid from, struct sh_reader *r,
                                  bool *is_more_out)
{
    shoal_nid creator = shoal_cid_creator(from);
    struct sh_metadata_range range = {.last = {0}};
    shoal_cid next = from;
    uint8_t is_more = sh_get8(r);
    struct sh_reader told = *r;
    size_t count = 0;
    if (!sh_reader_ok(r) || is_more > 1)
        return SHOAL_EPROTO;
    for (; sh_reader_left(r); next.v = range.last.v + 1, count++) {
        if (!range_get(r, &range) || shoal_cid_creator(range.first).v != creator.v ||
            range.first.v > next.v || range.last.v < next.v || (count && range.first.v < next.v))
            return SHOAL_EPROTO;
    }
    bool is_whole = count && shoal_cid_local(range.last) == SHOAL_LOCAL_ID_MAX;
    if (!count || count > SH_TREE_RANGES_MAX || is_whole == (is_more == 1))
        return SHOAL_EPROTO;
    while (range_get(&told, &range))
        op->each(op, &range);
    *is_more_out = is_more;
    return SHOAL_OK;
}

static void tree_answered(struct sh_zones_ask *ask, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_tree_op *op =
        (struct sh_tree_op *)(void *)((uint8_t *)ask - offsetof(struct sh_tree_op, ask));
    bool is_more = false;
    if (!err)
        err = sh_tree_answer_get(op, (shoal_cid){sh_load64(ask->payload)}, payload, &is_more);
    op->done(op, err, is_more);
}

void sh_zones_tree(struct sh_zones *zones, shoal_cid from, struct sh_tree_op *op)
{
    struct sh_zones_ask *ask = &op->ask;
    SH_ASSERT(op->done && op->each && sh_nid_is_peer(shoal_cid_creator(from)));
    sh_store64(ask->payload, from.v);
    sh_store64(ask->payload + 8, sh_directory_epoch(zones->directory));
    ask->size = SH_TREE_BYTES;
    ask->answered = tree_answered;
    ask_begin(zones, ask, SH_CLUSTER_TREE, sh_arc_shard(shoal_cid_creator(from)),
              deadline_of(zones, op->deadline_ns));
}

/* --- Life ------------------------------------------------------------------------------------ */

static unsigned run(void *arg)
{
    struct sh_zones *zones = arg;
    uint64_t now_ns = now_of(zones);
    unsigned work = 0;
    /* What is sent may end, and what ends may begin another, which goes to the front: it is sent in the next
     * round. */
    for (struct sh_zones_ask *ask = zones->asks, *next; ask; ask = next) {
        next = ask->next;
        if (ask->is_asking || ask->due_ns > now_ns)
            continue;
        ask_send(ask, now_ns);
        work++;
    }
    return work;
}

static uint64_t due_ns(void *arg)
{
    const struct sh_zones *zones = arg;
    uint64_t due = SH_NEVER;
    for (const struct sh_zones_ask *ask = zones->asks; ask; ask = ask->next)
        due = ask->due_ns < due ? ask->due_ns : due;
    return due;
}

struct sh_step sh_zones_step(struct sh_zones *zones)
{
    return (struct sh_step){.name = "zones", .run = run, .due_ns = due_ns, .arg = zones};
}

enum shoal_err sh_zones_create(const struct sh_zones_config *config, struct sh_zones **zones_out)
{
    SH_ASSERT(config->msg && config->directory);
    struct sh_zones *zones = calloc(1, sizeof *zones);
    if (!zones)
        return SHOAL_ENOMEM;
    zones->msg = config->msg;
    zones->directory = config->directory;
    zones->clock = config->clock;
    for (uint16_t i = 0; i < SH_SHARDS; i++) {
        shoal_nid nid = {(uint16_t)(SH_PEER_NID_MIN + i)};
        zones->creators[sh_arc_shard(nid)] = nid.v;
    }
    for (unsigned i = 0; i < SH_SHARDS; i++)
        SH_ASSERT(zones->creators[i]); /* any 64 IDs in a row have one of each shard */
    *zones_out = zones;
    return SHOAL_OK;
}

void sh_zones_destroy(struct sh_zones *zones)
{
    if (!zones)
        return;
    while (zones->asks) {
        struct sh_zones_ask *ask = zones->asks;
        if (ask->is_asking)
            (void)sh_msg_cancel(zones->msg, &ask->request);
        ask->is_asking = false;
        ask_end(ask, SHOAL_ESTOPPED, NULL);
    }
    free(zones);
}
