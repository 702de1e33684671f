/* Programs give names, take them away, and look them up. Each name is a register. */
#include "ring/arcs.h"
#include "sim/cluster_programs_int.h"

#define NAME_BYTES 32

/* --- Shards ------------------------------------------------------------------------------------
 */

/* Every superpeer of a world has a disk, and no disk is lost: so no shard ever begins anew, whoever
 * dies and however many at once. */
static void shard_see(struct cw_world *world, unsigned shard, uint64_t incarnation)
{
    uint64_t *known = &world->programs->incarnations[shard];
    if (!*known)
        *known = incarnation;
    CW_HOLDS(world, *known == incarnation, "shard %u was forgotten, though disks have it", shard);
}

void cw_shards_watch(struct cw_world *world)
{
    for (unsigned i = 0; i < world->count; i++) {
        const struct cw_host *host = &world->hosts[i];
        for (unsigned shard = 0; host->superpeer && shard < SH_SHARDS; shard++) {
            uint64_t incarnation = sh_superpeer_incarnation(host->superpeer, shard);
            if (incarnation)
                shard_see(world, shard, incarnation);
        }
    }
}

/* --- Operations --------------------------------------------------------------------------------
 */

/* The name as it is called now: another one each time that its history begins anew. */
static void name_of(const struct cw_programs *all, unsigned at, char *name_out)
{
    (void)snprintf(name_out, NAME_BYTES, "name/%u/%u", at, all->names[at].generation);
}

static void name_renew(struct cw_world *world, unsigned at)
{
    struct cw_programs *all = world->programs;
    char name[NAME_BYTES];
    cw_register_begin(world, &all->names[at], "");
    name_of(all, at, name);
    (void)snprintf(all->names[at].text, sizeof all->names[at].text, "%s", name);
    all->name_values[at] = 0;
}

static void draw(struct cw_fiber *fiber, unsigned at, struct linear_op *op_out)
{
    static const enum linear_kind kinds[] = {LINEAR_SET, LINEAR_SET,  LINEAR_CREATE, LINEAR_CAS,
                                             LINEAR_CAS, LINEAR_TAKE, LINEAR_GET,    LINEAR_GET,
                                             LINEAR_GET, LINEAR_GET,  LINEAR_TAKE_IF};
    struct cw_programs *all = cw_world_of(fiber)->programs;
    *op_out = (struct linear_op){.kind = kinds[cw_draw(fiber, sizeof kinds / sizeof *kinds)]};
    if (op_out->kind == LINEAR_CAS || op_out->kind == LINEAR_TAKE_IF)
        op_out->expected = all->name_values[at] ? all->name_values[at] : 1;
    if (op_out->kind == LINEAR_CAS || op_out->kind == LINEAR_SET || op_out->kind == LINEAR_CREATE)
        op_out->arg = all->name_values[at] = ++all->values;
}

static enum shoal_err carry_out(struct cw_fiber *fiber, const char *name,
                                const struct linear_op *op, uint64_t *got_out)
{
    shoal *store = fiber->program->store;
    shoal_cid cid = {op->arg}, expected = {op->expected}, before = SHOAL_CID_NONE;
    enum shoal_err err;
    switch (op->kind) {
    case LINEAR_SET:
        err = shoal_name_set(store, name, cid, SHOAL_NAME_ALWAYS, expected, &before);
        break;
    case LINEAR_CREATE:
        err = shoal_name_set(store, name, cid, SHOAL_NAME_ABSENT, expected, &before);
        break;
    case LINEAR_CAS:
        err = shoal_name_set(store, name, cid, SHOAL_NAME_CURRENT, expected, &before);
        break;
    case LINEAR_TAKE:
        err = shoal_name_remove(store, name, SHOAL_NAME_ALWAYS, expected, &before);
        break;
    case LINEAR_TAKE_IF:
        err = shoal_name_remove(store, name, SHOAL_NAME_CURRENT, expected, &before);
        break;
    default:
        err = cw_draw(fiber, 4) ? shoal_name_get(store, name, &before)
                                : shoal_name_wait(store, name, cw_draw(fiber, CW_S), &before);
        break;
    }
    *got_out = before.v;
    return err;
}

/* What a change or look-up said; false: nobody knows whether it was done. */
static bool answer_read(enum shoal_err err, enum linear_result *result_out)
{
    switch (err) {
    case SHOAL_OK:
        *result_out = LINEAR_OK;
        return true;
    case SHOAL_EEXIST:
        *result_out = LINEAR_EXISTS;
        return true;
    case SHOAL_EDIFFERS:
        *result_out = LINEAR_DIFFERS;
        return true;
    case SHOAL_ENONAME:
        *result_out = LINEAR_ABSENT;
        return true;
    default:
        return false;
    }
}

/* Whether the call was answered. */
static bool carry_out_recorded(struct cw_fiber *fiber, unsigned at, const struct linear_op *op)
{
    struct cw_world *world = cw_world_of(fiber);
    unsigned node = fiber->program->host->node;
    char name[NAME_BYTES];
    name_of(world->programs, at, name);
    struct cw_recording recording = cw_record(world, &world->programs->names[at], op);
    const char *kind = linear_kind_name(op->kind);
    cw_say(world, node, "%s %s %" PRIu64 " (if %" PRIu64 ") begins", kind, name, op->arg,
           op->expected);
    uint64_t got = 0;
    enum linear_result result;
    enum shoal_err err = carry_out(fiber, name, op, &got);
    if (fiber->program->is_dying)
        return false; /* nobody has seen how it ended */
    cw_say(world, node, "%s %s %" PRIu64 " (if %" PRIu64 ") ended: %s, %" PRIu64, kind, name,
           op->arg, op->expected, shoal_err_name(err), got);
    bool is_answered = answer_read(err, &result);
    if (is_answered) {
        cw_record_end(world, &recording, result, got);
        world->result->names += err == SHOAL_OK;
    } else if (op->kind == LINEAR_GET || err != SHOAL_ETIMEOUT) {
        cw_record_drop(&recording);
    }
    return is_answered;
}

void cw_names_do(struct cw_fiber *fiber)
{
    struct cw_world *world = cw_world_of(fiber);
    struct cw_programs *all = world->programs;
    unsigned at = (unsigned)cw_draw(fiber, CW_NAMES);
    if (!all->names[at].generation || !cw_register_has_room(&all->names[at]))
        name_renew(world, at);
    struct linear_op op;
    draw(fiber, at, &op);
    (void)carry_out_recorded(fiber, at, &op);
}

/* --- After the last fault ----------------------------------------------------------------------
 */

void cw_names_ask(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_NAMES; i++)
        world->programs->is_name_read[i] = !world->programs->names[i].generation;
}

void cw_names_look(struct cw_fiber *fiber)
{
    static const struct linear_op op = {.kind = LINEAR_GET};
    struct cw_programs *all = cw_world_of(fiber)->programs;
    for (unsigned i = 0; i < CW_NAMES && !fiber->program->is_dying; i++) {
        if (!all->is_name_read[i] && carry_out_recorded(fiber, i, &op))
            all->is_name_read[i] = true;
    }
}

bool cw_names_are_read(const struct cw_world *world)
{
    for (unsigned i = 0; i < CW_NAMES; i++) {
        if (!world->programs->is_name_read[i])
            return false;
    }
    return true;
}

void cw_names_check(struct cw_world *world)
{
    for (unsigned i = 0; i < CW_NAMES; i++) {
        struct cw_register *of = &world->programs->names[i];
        if (of->count && !of->is_over)
            cw_register_check(world, of);
    }
}
