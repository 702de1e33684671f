/* The superpeers agree in a ZooKeeper: one value, the registry's image, that each of them may replace.
 *
 *   propose --> queue --> a copy of the registry --image--> ZooKeeper, if nobody was faster
 *                                  '--- becomes the registry, and requests are answered
 *   the value changes  --> another registry in the place of ours
 *
 * What was under way when somebody was faster, or when the connection was lost, is carried out
 * again on the new value: everything may be done twice.
 *
 * A value has a bound. Commands that do not fit into it together go in ever smaller batches, down
 * to one: the one that does not fit by itself is refused, and the others are not lost with it.
 *
 * A superpeer whose data_dir does not say which one it is gets its ID from the registry, by its
 * address; until then it has neither a journal nor a part in the ring. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"
#include "superpeer/zookeeper.h"

#define QUEUE_MAX 4096

struct queued {
    struct queued *next;
    bool is_in_batch;
    bool is_of_leader; /* only whoever leads may still decide it */
    enum shoal_err err;
    shoal_nid nid;
    size_t size;
    uint8_t command[];
};

struct zookeeper_consensus {
    struct sh_consensus base;
    struct sh_superpeer *superpeer;
    struct sh_zookeeper *zookeeper;
    void (*on_enrolled)(void *arg, enum shoal_err err);
    bool is_enrolled, is_over; /* over: it can't go on with its ID, or its data_dir, there */
    uint64_t enrol_ns;         /* when it asks for its ID again */
    bool is_taken;          /* a node that is up has its address: it waits until that one is not */
    uint64_t number_loaded; /* which value the registry holds */
    bool is_unreadable;     /* the value there can't be loaded: what is here is old */
    uint64_t led_ns;
    struct sh_registry *scratch; /* what is being written; NULL: nothing */
    struct queued *queue, **queue_end;
    size_t queue_count;
    size_t batch_max; /* commands that one value takes in: fewer while it is nearly full; 0: all */
    uint64_t heard_ns[SH_SUPERPEERS_MAX + 1];
};

static struct zookeeper_consensus *of(const struct sh_consensus *consensus)
{
    return (struct zookeeper_consensus *)consensus;
}

static shoal_nid own_nid(const struct sh_superpeer *superpeer)
{
    return (shoal_nid){(uint16_t)(superpeer->index + 1)};
}

/* --- The queue ------------------------------------------------------------------------------- */

/* What is there already is not taken again. */
static void propose(struct sh_consensus *consensus, struct sh_bytes command, bool is_verdict)
{
    struct zookeeper_consensus *self = of(consensus);
    bool is_sure = command.at[0] == SH_COMMAND_FAIL && command.at[1]; /* its process has ended */
    for (const struct queued *queued = self->queue; queued; queued = queued->next) {
        if (queued->size == command.size && memcmp(queued->command, command.at, command.size) == 0)
            return;
    }
    struct queued *queued = NULL;
    if (self->queue_count < QUEUE_MAX)
        queued = malloc(sizeof *queued + command.size);
    if (!queued)
        return; /* it is proposed again */
    *queued = (struct queued){.is_of_leader = is_verdict && !is_sure, .size = command.size};
    memcpy(queued->command, command.at, command.size);
    *self->queue_end = queued;
    self->queue_end = &queued->next;
    self->queue_count++;
}

static void queued_end(struct zookeeper_consensus *self, struct queued **at)
{
    struct queued *queued = *at;
    *at = queued->next;
    if (!*at)
        self->queue_end = at;
    self->queue_count--;
    free(queued);
}

/* Drops what a leader has decided that does not lead any more, and that was not carried out: another
 * one may have granted leases since to those that were to be called failed. */
static void verdicts_drop(struct zookeeper_consensus *self)
{
    for (struct queued **at = &self->queue; *at;) {
        if ((*at)->is_of_leader && !(*at)->is_in_batch)
            queued_end(self, at);
        else
            at = &(*at)->next;
    }
}

/* --- The registry of a value ----------------------------------------------------------------- */

/* A registry as the value says; an empty value is a new cluster's. */
static enum shoal_err registry_of_value(const struct zookeeper_consensus *self,
                                        struct sh_registry **registry_out)
{
    struct sh_bytes value = sh_zookeeper_value(self->zookeeper);
    return value.size ? sh_shared_registry_read(self->superpeer, value, registry_out)
                      : sh_shared_registry_make(self->superpeer, registry_out);
}

/* Puts a registry, which is that of the value, in the place of the one that there is. */
static void adopt(struct zookeeper_consensus *self, struct sh_registry *registry)
{
    sh_shared_registry_set(self->superpeer, registry);
    self->number_loaded = sh_zookeeper_number(self->zookeeper);
}

/* The registry in ZooKeeper is not that of data_dir, whose copies of the ring's shards and whose life mean
 * nothing there: it takes no part. Nor in place of a registry that is gone does it begin one. */
static void refuse_registry(struct zookeeper_consensus *self, const struct sh_registry *registry)
{
    struct sh_superpeer *superpeer = self->superpeer;
    bool is_empty = !sh_registry_cluster(registry);
    SH_ERROR("cluster",
             is_empty
                 ? "data_dir belongs to a cluster, and ZooKeeper has no registry for it: name the "
                   "ZooKeeper that has it in the option zookeeper, or restore it; or remove the "
                   "files journal.* in data_dir, and the superpeer joins like a new one"
                 : "data_dir belongs to a superpeer of another cluster than the registry in "
                   "ZooKeeper: start the superpeer on its own data_dir, or with the cluster and "
                   "the zookeeper of this one; or remove the files journal.* there, and it joins "
                   "like a new one",
             SH_U64("superpeer", own_nid(superpeer).v), SH_U64("stored", superpeer->stored_cluster),
             SH_U64("cluster", sh_registry_cluster(registry)), SH_ERR(SHOAL_ECLUSTER));
    self->is_over = true;
    sh_superpeer_ring_close(superpeer);
    if (self->on_enrolled)
        self->on_enrolled(superpeer->arg, SHOAL_ECLUSTER);
}

static bool is_of_another(const struct zookeeper_consensus *self,
                          const struct sh_registry *registry)
{
    uint64_t stored = self->superpeer->stored_cluster;
    return stored && stored != sh_registry_cluster(registry);
}

static unsigned value_step(struct zookeeper_consensus *self)
{
    struct sh_registry *registry;
    if (self->is_over || self->scratch ||
        self->number_loaded == sh_zookeeper_number(self->zookeeper))
        return 0;
    enum shoal_err err = registry_of_value(self, &registry);
    if (err) {
        if (!self->is_unreadable)
            SH_ERROR(
                "cluster",
                "the registry in ZooKeeper can't be used: restore it from a backup; a registry "
                "that a newer shoal wrote needs that version here, too",
                SH_ERR(err));
        self->is_unreadable = true; /* tried again, and nothing is answered meanwhile */
        return 0;
    }
    self->is_unreadable = false;
    if (is_of_another(self, registry)) {
        refuse_registry(self, registry);
        sh_registry_destroy(registry);
        return 1;
    }
    adopt(self, registry);
    return 1;
}

/* --- Its ID ---------------------------------------------------------------------------------- */

/* The registry's superpeer that this one is; NULL: none yet. */
static const struct sh_node *own_node(const struct sh_superpeer *superpeer)
{
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    if (own_nid(superpeer).v)
        return sh_view_find(view, own_nid(superpeer));
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->state != SH_NODE_LEFT && strcmp(node->address, superpeer->shared->address) == 0)
            return node;
    }
    return NULL;
}

/* Whether another node that is up has this one's address: the registry takes no superpeer there. Notes it once. */
static bool is_taken(struct zookeeper_consensus *self)
{
    const struct sh_shared *shared = self->superpeer->shared;
    const struct sh_node *holder = sh_view_holder(sh_registry_view(self->superpeer->registry),
                                                  sh_bytes_text(shared->address), shared->instance);
    if (holder && !self->is_taken)
        SH_WARN("cluster",
                "a node that is up has this superpeer's address: the superpeer waits until that "
                "node has stopped; or give one of the two another option listen",
                SH_TEXT("address", holder->address), SH_U64("node", holder->nid.v));
    self->is_taken = holder;
    return holder;
}

/* From the first time on that the registry names this one, it may lead. */
static void enrol_step(struct zookeeper_consensus *self, uint64_t now_ns)
{
    struct sh_superpeer *superpeer = self->superpeer;
    const struct sh_node *own = own_node(superpeer);
    if (self->is_over || self->is_enrolled || !self->number_loaded ||
        (own && own->state == SH_NODE_LEFT))
        return;
    if (!own) {
        struct sh_command command = {.kind = SH_COMMAND_SUPERPEER,
                                     .nid = own_nid(superpeer),
                                     .instance = superpeer->shared->instance,
                                     .address = sh_bytes_text(superpeer->shared->address)};
        if (now_ns < self->enrol_ns)
            return;
        self->enrol_ns = now_ns + superpeer->heartbeat_ns;
        if (own_nid(superpeer).v || !is_taken(self))
            sh_shared_decide(superpeer, &command);
        return;
    }
    self->is_enrolled = true;
    if (!own_nid(superpeer).v) {
        superpeer->index = (uint16_t)(own->nid.v - 1);
        sh_msg_nid_set(superpeer->msg, own->nid);
        enum shoal_err err = sh_superpeer_ring_open(superpeer);
        self->is_over = err;
        if (err)
            sh_superpeer_ring_close(superpeer);
        if (self->on_enrolled)
            self->on_enrolled(superpeer->arg, err);
        if (err)
            return;
    }
    sh_zookeeper_stand(self->zookeeper, own->nid.v);
    SH_INFO("cluster", "the registry is in ZooKeeper", SH_U64("superpeer", own->nid.v));
}

/* --- Writing --------------------------------------------------------------------------------- */

/* Whether a queued command is still to be carried out: a request is over if nobody waits for it. */
static bool is_wanted(struct sh_superpeer *superpeer, const struct sh_command *command)
{
    return !command->number || sh_shared_is_pending(superpeer, command->number);
}

/* Carries out what waits, as much as one value takes in; returns how many commands that were. */
static size_t carry_out_some(struct zookeeper_consensus *self, struct sh_registry *scratch)
{
    struct sh_command command;
    size_t count = 0, most = self->batch_max ? self->batch_max : SIZE_MAX;
    for (struct queued *queued = self->queue; queued && count < most; queued = queued->next) {
        bool is_sound = sh_command_get(sh_bytes_make(queued->command, queued->size), &command);
        SH_ASSERT(is_sound);
        queued->nid = command.nid;
        queued->is_in_batch = true;
        count++;
        if (is_wanted(self->superpeer, &command))
            queued->err = sh_shared_carry_out(self->superpeer, scratch, &command, &queued->nid);
    }
    return count;
}

/* Ends the batch: its requests are answered, or will be carried out again. */
static void batch_end(struct zookeeper_consensus *self, bool is_done, enum shoal_err err)
{
    for (struct queued **at = &self->queue; *at;) {
        struct queued *queued = *at;
        struct sh_command command;
        bool is_over = queued->is_in_batch && is_done;
        queued->is_in_batch = false;
        if (!is_over) {
            at = &queued->next;
            continue;
        }
        if (sh_command_get(sh_bytes_make(queued->command, queued->size), &command) &&
            command.number)
            sh_shared_answer(self->superpeer, &command, err ? err : queued->err, queued->nid);
        queued_end(self, at);
    }
}

/* What was in a batch fits: the next one may have more, of a value that grows no more. */
static void batch_grow(struct zookeeper_consensus *self)
{
    self->batch_max = 2 * self->batch_max < self->queue_count ? 2 * self->batch_max : 0;
}

/* What was in a batch does not fit. */
static void batch_too_big(struct zookeeper_consensus *self, size_t count)
{
    if (count > 1) {
        self->batch_max = count / 2;
        batch_end(self, false, SHOAL_OK);
        return;
    }
    SH_ERROR(
        "cluster",
        "the registry has grown too big for ZooKeeper: a change is refused; `shoal node forget` "
        "makes room, and the option registry = raft has no such bound",
        SH_U64("bytes_max", SH_ZOOKEEPER_VALUE_BYTES_MAX));
    batch_end(self, true, SHOAL_ELIMIT);
}

static enum shoal_err write_image(struct zookeeper_consensus *self,
                                  const struct sh_registry *registry)
{
    size_t size = sh_registry_image_size(registry);
    if (size > SH_ZOOKEEPER_VALUE_BYTES_MAX)
        return SHOAL_ETOOBIG;
    uint8_t *bytes = malloc(size);
    if (!bytes)
        return SHOAL_ENOMEM;
    struct sh_writer w = sh_writer_make(bytes, size);
    sh_registry_image_put(&w, registry, 0);
    SH_ASSERT(sh_writer_ok(&w) && w.at == w.end);
    enum shoal_err err = sh_zookeeper_write(self->zookeeper, sh_bytes_make(bytes, size));
    free(bytes);
    return err;
}

static unsigned batch_begin(struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)now_ns;
    struct zookeeper_consensus *self = of(consensus);
    struct sh_registry *scratch;
    if (self->is_over || self->scratch || !self->queue ||
        !sh_zookeeper_can_write(self->zookeeper) || registry_of_value(self, &scratch))
        return 0;
    uint64_t changes = sh_registry_changes(scratch);
    size_t count = carry_out_some(self, scratch);
    if (sh_registry_changes(scratch) == changes) {
        sh_registry_destroy(scratch);
        batch_end(self, true, SHOAL_OK);
        batch_grow(self);
        return 1;
    }
    enum shoal_err err = write_image(self, scratch);
    if (!err) {
        self->scratch = scratch;
        return 1;
    }
    sh_registry_destroy(scratch);
    if (err == SHOAL_ETOOBIG) {
        batch_too_big(self, count);
        return 1;
    }
    batch_end(self, false, SHOAL_OK);
    return 0;
}

static unsigned written_step(struct zookeeper_consensus *self)
{
    if (!self->scratch)
        return 0;
    enum shoal_err err = sh_zookeeper_written(self->zookeeper);
    if (err == SHOAL_EAGAIN)
        return 0;
    struct sh_registry *scratch = self->scratch;
    self->scratch = NULL;
    if (err)
        sh_registry_destroy(scratch);
    else
        adopt(self, scratch);
    batch_end(self, !err, SHOAL_OK);
    if (!err)
        batch_grow(self);
    return 1;
}

/* --- The table ------------------------------------------------------------------------------- */

static unsigned step(struct sh_consensus *consensus, uint64_t now_ns)
{
    struct zookeeper_consensus *self = of(consensus);
    unsigned work = sh_zookeeper_step(self->zookeeper, now_ns);
    work += written_step(self);
    work += value_step(self);
    enrol_step(self, now_ns);
    /* A value that was read and can't be taken yet may tell of failures. */
    if (!sh_zookeeper_leads(self->zookeeper)) {
        self->led_ns = 0;
        verdicts_drop(self);
    } else if (self->number_loaded == sh_zookeeper_number(self->zookeeper)) {
        self->led_ns = sh_zookeeper_led_ns(self->zookeeper);
    }
    return work;
}

static uint64_t due_ns(const struct sh_consensus *consensus, uint64_t now_ns)
{
    return sh_zookeeper_due_ns(of(consensus)->zookeeper, now_ns);
}

static bool is_settled(const struct sh_consensus *consensus)
{
    return !of(consensus)->queue;
}

static bool leads(const struct sh_consensus *consensus)
{
    return sh_zookeeper_leads(of(consensus)->zookeeper);
}

static uint16_t leader(const struct sh_consensus *consensus)
{
    return sh_zookeeper_leader(of(consensus)->zookeeper);
}

static uint64_t term(const struct sh_consensus *consensus)
{
    return sh_zookeeper_term(of(consensus)->zookeeper);
}

static uint64_t led_ns(const struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)now_ns;
    return of(consensus)->led_ns;
}

static bool is_current(const struct sh_consensus *consensus, uint64_t now_ns)
{
    (void)now_ns;
    const struct zookeeper_consensus *self = of(consensus);
    return sh_zookeeper_is_current(self->zookeeper) && !self->is_unreadable && !self->is_over;
}

static uint64_t heard_ns(const struct sh_consensus *consensus, shoal_nid nid)
{
    return of(consensus)->heard_ns[nid.v];
}

static void heard(struct sh_consensus *consensus, shoal_nid nid, uint64_t now_ns)
{
    of(consensus)->heard_ns[nid.v] = now_ns;
}

/* ZooKeeper's servers do. */
static uint64_t members(const struct sh_consensus *consensus)
{
    (void)consensus;
    return 0;
}

static bool needs(const struct sh_consensus *consensus, shoal_nid nid)
{
    (void)consensus;
    (void)nid;
    return false;
}

static void report(const struct sh_consensus *consensus, struct sh_report *report)
{
    report->kind = SH_REPORT_ZOOKEEPER;
    report->role = leads(consensus) ? SH_REPORT_LEADER : SH_REPORT_FOLLOWER;
    report->leader.v = leader(consensus);
}

static void destroy(struct sh_consensus *consensus)
{
    struct zookeeper_consensus *self = of(consensus);
    sh_zookeeper_destroy(self->zookeeper);
    sh_registry_destroy(self->scratch);
    while (self->queue)
        queued_end(self, &self->queue);
    free(self);
}

static const struct sh_consensus_ops ops = {.destroy = destroy,
                                            .step = step,
                                            .send = batch_begin,
                                            .due_ns = due_ns,
                                            .propose = propose,
                                            .is_settled = is_settled,
                                            .leads = leads,
                                            .leader = leader,
                                            .term = term,
                                            .led_ns = led_ns,
                                            .is_current = is_current,
                                            .heard_ns = heard_ns,
                                            .heard = heard,
                                            .members = members,
                                            .needs = needs,
                                            .report = report};

enum shoal_err sh_consensus_zookeeper_open(struct sh_superpeer *superpeer,
                                           const struct sh_superpeer_config *config,
                                           uint64_t now_ns)
{
    struct zookeeper_consensus *self = calloc(1, sizeof *self);
    if (!self)
        return SHOAL_ENOMEM;
    self->base.ops = &ops;
    self->superpeer = superpeer;
    self->on_enrolled = config->on_enrolled;
    self->enrol_ns = now_ns;
    self->queue_end = &self->queue;
    superpeer->shared->consensus = &self->base;
    enum shoal_err err =
        sh_zookeeper_create(config->zookeeper, config->cluster, superpeer->failure_ns,
                            superpeer->heartbeat_ns / 2, &self->zookeeper);
    if (!err && own_nid(superpeer).v)
        err = sh_superpeer_ring_open(superpeer);
    return err;
}
