/* Histories of registers, as programs saw them, and whether they are linearizable. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "sim/cluster_programs_int.h"

/* Each call whose end nobody saw may have been done at any time after, or never: too many of them
 * make the search long. */
#define PENDING_MAX 8
#define ROOM 32 /* calls that may be under way while a history ends */
#define DROPPED UINT64_MAX

bool cw_register_has_room(const struct cw_register *of)
{
    return !of->is_over && of->count + ROOM < LINEAR_OPS_MAX && of->pending < PENDING_MAX;
}

static void tell(struct cw_world *world, const struct cw_register *of, struct linear_op *ops,
                 unsigned count)
{
    struct linear_op *part = calloc(LINEAR_OPS_MAX, sizeof *part);
    unsigned shortest = part ? linear_shortest(ops, count, 0, part) : 0;
    if (shortest)
        shortest = linear_shrink(part, shortest);
    FILE *story = world->config.story;
    if (story) {
        fprintf(story,
                "No order explains what programs saw of %s, from and to when in virtual ns:\n",
                of->text);
        linear_print(story, shortest ? part : ops, shortest ? shortest : count);
    }
    free(part);
}

void cw_register_check(struct cw_world *world, struct cw_register *of)
{
    struct linear_op *ops = calloc(LINEAR_OPS_MAX, sizeof *ops);
    unsigned count = 0;
    SH_ASSERT(ops);
    for (unsigned i = 0; i < of->count; i++) {
        bool says_nothing = of->ops[i].key == DROPPED ||
                            (of->ops[i].end == LINEAR_PENDING && of->ops[i].kind == LINEAR_GET);
        if (!says_nothing)
            ops[count++] = of->ops[i];
    }
    enum linear_verdict verdict = count ? linear_check(ops, count, 0) : LINEAR_YES;
    world->result->unjudged += verdict == LINEAR_TOO_LARGE;
    world->result->judged += count;
    if (verdict == LINEAR_NO && !world->result->failed) {
        tell(world, of, ops, count);
        cw_fail(world, "%s is not linearizable", of->text);
    }
    free(ops);
}

void cw_register_end(struct cw_world *world, struct cw_register *of)
{
    if (of->is_over)
        return;
    cw_register_check(world, of);
    of->is_over = true;
}

void cw_register_begin(struct cw_world *world, struct cw_register *of, const char *text)
{
    if (of->count)
        cw_register_end(world, of);
    of->is_over = false;
    of->count = of->pending = 0;
    of->generation++;
    (void)snprintf(of->text, sizeof of->text, "%s", text);
}

/* Virtual time, but never the same twice: what happens within one step has an order. */
static uint64_t tick(struct cw_world *world)
{
    uint64_t now = sh_world_now(world->sim), next = world->programs->tick + 1;
    world->programs->tick = now > next ? now : next;
    return world->programs->tick;
}

struct cw_recording cw_record(struct cw_world *world, struct cw_register *of,
                              const struct linear_op *op)
{
    if (of->is_over || of->count == LINEAR_OPS_MAX)
        return (struct cw_recording){.of = NULL};
    struct cw_recording recording = {of, of->count++, of->generation};
    of->ops[recording.at] = *op;
    of->ops[recording.at].key = 0;
    of->ops[recording.at].begin = tick(world);
    of->ops[recording.at].end = LINEAR_PENDING;
    of->pending += op->kind != LINEAR_GET;
    return recording;
}

/* NULL: its history is over. */
static struct linear_op *op_of(const struct cw_recording *recording)
{
    struct cw_register *of = recording->of;
    if (!of || of->is_over || of->generation != recording->generation)
        return NULL;
    return &of->ops[recording->at];
}

void cw_record_end(struct cw_world *world, const struct cw_recording *recording,
                   enum linear_result result, uint64_t got)
{
    struct linear_op *op = op_of(recording);
    if (!op)
        return;
    recording->of->pending -= op->kind != LINEAR_GET;
    op->end = tick(world);
    op->result = result;
    op->got = got;
}

void cw_record_drop(const struct cw_recording *recording)
{
    struct linear_op *op = op_of(recording);
    if (!op)
        return;
    recording->of->pending -= op->kind != LINEAR_GET;
    op->key = DROPPED;
}
