#include "recover/former.h"

#include "base/assert.h"
#include "base/crew.h"

#define AGAIN_NS UINT64_C(20000000)
/* While zones are lost: an operator may accept that. 64 questions, where there are few zones. */
#define LOST_AGAIN_NS UINT64_C(5000000000)

static void on_zone(struct sh_zone_list *list, const struct sh_zone *zone)
{
    struct sh_former_zones *former = list->arg;
    bool is_former_life = zone->owner.v == former->nid.v && zone->life != former->life;
    bool is_lost = zone->flags & SH_ZONE_LOST;
    bool is_its = is_former_life || zone->former.v == former->nid.v;
    former->is_any |= !is_lost && is_its;
    former->is_any_lost |= is_its && is_lost;
}

static void on_over(struct sh_zone_list *list, enum shoal_err err)
{
    struct sh_former_zones *former = list->arg;
    former->is_asking = false;
    if (!err) {
        former->is_over |= !former->is_any;
        former->is_lost = former->is_any_lost;
    }
    former->due_ns = sh_now(&former->clock) + (former->is_over ? LOST_AGAIN_NS : AGAIN_NS);
    if (err != SHOAL_ESTOPPED)
        former->wake(former->arg);
}

/* Whether there is nothing to be asked for any more. */
static bool is_settled(const struct sh_former_zones *former)
{
    return former->is_over && !former->is_lost;
}

void sh_former_zones_step(struct sh_former_zones *former, uint64_t now_ns)
{
    if (is_settled(former) || former->is_asking || !former->nid.v || now_ns < former->due_ns)
        return;
    former->is_any = former->is_any_lost = false;
    former->list = (struct sh_zone_list){.each = on_zone, .done = on_over, .arg = former};
    former->is_asking = true;
    sh_zones_list(former->zones, SH_ZONES_OF_FORMER, former->nid, 0, &former->list);
}

uint64_t sh_former_zones_due_ns(const struct sh_former_zones *former)
{
    bool is_waiting = is_settled(former) || former->is_asking || !former->nid.v;
    return is_waiting ? SH_NEVER : former->due_ns;
}
