/* A registry in ZooKeeper: one value, the registry's image, that every superpeer may replace.
 *
 *   requests, decisions --> a copy of the registry --image--> ZooKeeper, if nobody was faster
 *                                  '--- becomes the registry, and requests are answered
 *   the value changes  --> another registry in the place of ours
 *
 * What was under way when somebody was faster, or when the connection was lost, is carried out
 * again on the new value: everything may be done twice.
 *
 * A value has a bound. Commands that do not fit into it together go in ever smaller batches, down
 * to one: the one that does not fit by itself is refused, and the others are not lost with it. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/crew.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_shared_int.h"

#define DECIDED_MAX 1024

static uint64_t now_of(const struct sh_superpeer *superpeer)
{
    return sh_now(&superpeer->env.clock);
}

static shoal_nid own_nid(const struct sh_superpeer *superpeer)
{
    return (shoal_nid){(uint16_t)(superpeer->index + 1)};
}

void sh_shared_zookeeper_decide(struct sh_superpeer *superpeer, struct sh_bytes bytes)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_decided *decided = NULL;
    if (shared->decided_count < DECIDED_MAX)
        decided = malloc(sizeof *decided + bytes.size);
    if (!decided)
        return; /* it is decided again with a later heartbeat */
    *decided = (struct sh_decided){.size = bytes.size};
    memcpy(decided->command, bytes.at, bytes.size);
    struct sh_decided **end = &shared->decided;
    while (*end) /* in order, as not all may go with one value */
        end = &(*end)->next;
    *end = decided;
    shared->decided_count++;
}

/* Drops the decisions that were written, or all. */
static void decided_drop(struct sh_shared *shared, bool all)
{
    struct sh_decided **at = &shared->decided;
    while (*at) {
        struct sh_decided *decided = *at;
        if (!all && !decided->is_in_batch) {
            at = &decided->next;
            continue;
        }
        *at = decided->next;
        shared->decided_count--;
        free(decided);
    }
}

/* --- The registry of a value ----------------------------------------------------------------- */

/* A registry as the value says; an empty value is a new cluster's. */
static enum shoal_err registry_of_value(struct sh_superpeer *superpeer,
                                        struct sh_registry **registry_out)
{
    struct sh_bytes value = sh_zookeeper_value(superpeer->shared->zookeeper);
    struct sh_registry *registry;
    uint64_t sequence;
    enum shoal_err err = sh_shared_registry_make(superpeer, &registry);
    if (err)
        return err;
    if (value.size) {
        err = sh_registry_image_check(value, &sequence);
        if (!err)
            err = sh_registry_image_load(registry, now_of(superpeer), value);
    }
    if (err) {
        sh_registry_destroy(registry);
        return err;
    }
    *registry_out = registry;
    return SHOAL_OK;
}

/* From the first time on that the value names this one, it has an ID. */
static void enrol(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    const struct sh_view *view = sh_registry_view(superpeer->registry);
    for (size_t i = 0; i < view->count && view->nodes[i].role == SH_ROLE_SUPERPEER; i++) {
        const struct sh_node *node = &view->nodes[i];
        if (node->state == SH_NODE_LEFT || strcmp(node->address, shared->address) != 0)
            continue;
        superpeer->index = (uint16_t)(node->nid.v - 1);
        sh_msg_nid_set(superpeer->msg, node->nid);
        sh_zookeeper_stand(shared->zookeeper, node->nid.v);
        SH_INFO("cluster", "the registry is in ZooKeeper", SH_U64("superpeer", node->nid.v));
        if (shared->on_enrolled)
            shared->on_enrolled(superpeer->arg);
        return;
    }
    struct sh_command command = {.kind = SH_COMMAND_SUPERPEER,
                                 .instance = shared->instance,
                                 .address = sh_bytes_text(shared->address)};
    if (!shared->decided)
        sh_shared_decide(superpeer, &command);
}

/* Puts a registry in the place of the one that there is. */
static void adopt(struct sh_superpeer *superpeer, struct sh_registry *registry)
{
    struct sh_shared *shared = superpeer->shared;
    sh_registry_times_take(registry, superpeer->registry);
    sh_registry_destroy(superpeer->registry);
    superpeer->registry = registry;
    shared->number_loaded = sh_zookeeper_number(shared->zookeeper);
    const struct sh_view *view = sh_registry_view(registry);
    sh_shared_contacts_take(superpeer, view);
    if (!own_nid(superpeer).v)
        enrol(superpeer);
}

static unsigned value_step(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_registry *registry;
    if (shared->scratch || shared->number_loaded == sh_zookeeper_number(shared->zookeeper))
        return 0;
    enum shoal_err err = registry_of_value(superpeer, &registry);
    if (err) {
        if (!shared->is_unreadable)
            SH_ERROR("cluster", "the registry in ZooKeeper can't be used", SH_ERR(err));
        shared->is_unreadable = true; /* tried again, and nothing is answered meanwhile */
        return 0;
    }
    shared->is_unreadable = false;
    adopt(superpeer, registry);
    return 1;
}

/* --- Writing --------------------------------------------------------------------------------- */

/* Carries out what waits, as much as one value takes in; returns how many commands that were. */
static size_t carry_out_some(struct sh_superpeer *superpeer, struct sh_registry *scratch)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_command command;
    size_t count = 0, most = shared->batch_max ? shared->batch_max : SIZE_MAX;
    for (struct sh_pending *pending = shared->pending; pending && count < most;
         pending = pending->next) {
        if (now_of(superpeer) < pending->again_ns)
            continue;
        bool is_sound = sh_command_get(sh_bytes_make(pending->command, pending->size), &command);
        SH_ASSERT(is_sound);
        pending->nid = command.nid;
        pending->err = sh_shared_carry_out(superpeer, scratch, &command, &pending->nid);
        pending->is_in_batch = true;
        count++;
    }
    for (struct sh_decided *decided = shared->decided; decided && count < most;
         decided = decided->next) {
        shoal_nid nid;
        /* Of what a leader decided, another one may have taken the opposite for granted since. */
        if (sh_command_get(sh_bytes_make(decided->command, decided->size), &command) &&
            (command.kind != SH_COMMAND_FAIL || command.state || sh_shared_leads(superpeer)))
            (void)!sh_shared_carry_out(superpeer, scratch, &command, &nid);
        decided->is_in_batch = true;
        count++;
    }
    return count;
}

/* Ends the batch: its requests are answered, or will be carried out again. */
static void batch_end(struct sh_superpeer *superpeer, bool is_done, enum shoal_err err)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_pending *next;
    for (struct sh_pending *pending = shared->pending; pending; pending = next) {
        struct sh_command command;
        next = pending->next;
        if (!pending->is_in_batch)
            continue;
        pending->is_in_batch = false;
        if (pending->err == SHOAL_EBUSY)
            pending->again_ns = now_of(superpeer) + superpeer->heartbeat_ns / 4;
        if (is_done && sh_command_get(sh_bytes_make(pending->command, pending->size), &command))
            sh_shared_answer(superpeer, &command, err ? err : pending->err, pending->nid);
    }
    if (is_done)
        decided_drop(shared, false);
    for (struct sh_decided *decided = shared->decided; decided; decided = decided->next)
        decided->is_in_batch = false;
}

/* What was in a batch fits: the next one may have more, of a value that grows no more. */
static void batch_grow(struct sh_shared *shared)
{
    size_t all = shared->pending_count + shared->decided_count;
    shared->batch_max = 2 * shared->batch_max < all ? 2 * shared->batch_max : 0;
}

/* What was in a batch does not fit. */
static void batch_too_big(struct sh_superpeer *superpeer, size_t count)
{
    struct sh_shared *shared = superpeer->shared;
    if (count > 1) {
        shared->batch_max = count / 2;
        batch_end(superpeer, false, SHOAL_OK);
        return;
    }
    SH_ERROR("cluster", "the registry has grown too big for ZooKeeper: a change is refused",
             SH_U64("bytes_max", SH_ZOOKEEPER_VALUE_BYTES_MAX));
    batch_end(superpeer, true, SHOAL_ELIMIT);
}

static enum shoal_err write_image(struct sh_superpeer *superpeer,
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
    enum shoal_err err =
        sh_zookeeper_write(superpeer->shared->zookeeper, sh_bytes_make(bytes, size));
    free(bytes);
    return err;
}

static bool is_pending(const struct sh_superpeer *superpeer)
{
    const struct sh_pending *pending = superpeer->shared->pending;
    while (pending && now_of(superpeer) < pending->again_ns)
        pending = pending->next;
    return pending;
}

static unsigned batch_begin(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    struct sh_registry *scratch;
    if (shared->scratch || (!is_pending(superpeer) && !shared->decided) ||
        !sh_zookeeper_can_write(shared->zookeeper) || registry_of_value(superpeer, &scratch))
        return 0;
    uint64_t changes = sh_registry_changes(scratch);
    size_t count = carry_out_some(superpeer, scratch);
    if (sh_registry_changes(scratch) == changes) {
        sh_registry_destroy(scratch);
        batch_end(superpeer, true, SHOAL_OK);
        batch_grow(shared);
        return 1;
    }
    enum shoal_err err = write_image(superpeer, scratch);
    if (!err) {
        shared->scratch = scratch;
        return 1;
    }
    sh_registry_destroy(scratch);
    if (err == SHOAL_ETOOBIG) {
        batch_too_big(superpeer, count);
        return 1;
    }
    batch_end(superpeer, false, SHOAL_OK);
    return 0;
}

static unsigned written_step(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    if (!shared->scratch)
        return 0;
    enum shoal_err err = sh_zookeeper_written(shared->zookeeper);
    if (err == SHOAL_EAGAIN)
        return 0;
    struct sh_registry *scratch = shared->scratch;
    shared->scratch = NULL;
    if (err)
        sh_registry_destroy(scratch);
    else
        adopt(superpeer, scratch);
    batch_end(superpeer, !err, SHOAL_OK);
    if (!err)
        batch_grow(shared);
    return 1;
}

/* --- Life ------------------------------------------------------------------------------------ */

unsigned sh_shared_zookeeper_step(struct sh_superpeer *superpeer, uint64_t now_ns)
{
    struct sh_shared *shared = superpeer->shared;
    unsigned work = sh_zookeeper_step(shared->zookeeper, now_ns);
    work += written_step(superpeer);
    work += value_step(superpeer);
    if (own_nid(superpeer).v) {
        work += sh_shared_watch_step(superpeer, now_ns);
        if (superpeer->ring || !sh_superpeer_ring_open(superpeer))
            work += sh_superpeer_ring_step(superpeer, now_ns);
    }
    if (!shared->scratch) /* or one might be refused that is being written */
        work += sh_shared_pending_step(superpeer, now_ns);
    work += batch_begin(superpeer);
    return work;
}

bool sh_shared_zookeeper_is_current(const struct sh_superpeer *superpeer)
{
    const struct sh_shared *shared = superpeer->shared;
    const struct sh_node *own =
        sh_view_find(sh_registry_view(superpeer->registry), own_nid(superpeer));
    return sh_zookeeper_is_current(shared->zookeeper) && !shared->is_unreadable && own &&
           own->state != SH_NODE_LEFT;
}

enum shoal_err sh_shared_zookeeper_open(struct sh_superpeer *superpeer,
                                        const struct sh_superpeer_config *config)
{
    return sh_zookeeper_create(config->zookeeper, config->cluster, superpeer->failure_ns,
                               superpeer->heartbeat_ns / 2, &superpeer->shared->zookeeper);
}

void sh_shared_zookeeper_close(struct sh_superpeer *superpeer)
{
    struct sh_shared *shared = superpeer->shared;
    sh_zookeeper_destroy(shared->zookeeper);
    sh_registry_destroy(shared->scratch);
    shared->scratch = NULL;
    decided_drop(shared, true);
}
