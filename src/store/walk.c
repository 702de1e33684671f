#include "store/walk_int.h"

#include "base/assert.h"

static bool is_empty(const struct sh_group *group)
{
    struct sh_layout layout = sh_group_layout(group);
    return (layout.codes[0] | layout.codes[1]) == 0;
}

/* The own group at hand, or NULL when there are no more. */
static struct sh_group *own_take(const struct sh_store *store, struct sh_walk *walk,
                                 struct sh_walk_group *found)
{
    struct sh_group *group = sh_idtable_find(&store->table, walk->next << SH_GROUP_BITS);
    if (!group) {
        walk->is_foreign = true;
        walk->next = 0;
        return NULL;
    }
    *found = (struct sh_walk_group){.group = group, .first = {walk->next << SH_GROUP_BITS}};
    walk->next++;
    return group;
}

static struct sh_group *foreign_take(const struct sh_store *store, struct sh_walk *walk,
                                     struct sh_walk_group *found)
{
    uint64_t number;
    struct sh_group *group = sh_foreign_next(&store->foreign, walk->next, UINT64_MAX, &number);
    if (!group) {
        walk->is_over = true;
        return NULL;
    }
    *found = (struct sh_walk_group){
        .group = group, .first = {number << SH_GROUP_BITS}, .is_foreign = true};
    walk->next = number + 1;
    return group;
}

bool sh_walk_next(const struct sh_store *store, struct sh_walk *walk, unsigned *budget_inout,
                  struct sh_walk_group *group_out)
{
    SH_ASSERT(budget_inout && group_out);
    while (*budget_inout > 0 && !walk->is_over) {
        struct sh_walk_group found;
        (*budget_inout)--;
        const struct sh_group *group =
            walk->is_foreign ? foreign_take(store, walk, &found) : own_take(store, walk, &found);
        if (group && !is_empty(group)) {
            *group_out = found;
            return true;
        }
    }
    return false;
}

void sh_walk_progress(const struct sh_store *store, const struct sh_walk *walk, uint64_t *done_out,
                      uint64_t *all_out)
{
    uint64_t own = (sh_idtable_limit(&store->table) + SH_GROUP_IDS - 1) >> SH_GROUP_BITS;
    uint64_t foreign = sh_foreign_bytes(&store->foreign) / sizeof(struct sh_group);
    *all_out = own + foreign;
    *done_out = walk->is_over ? own + foreign : walk->is_foreign ? own : walk->next;
    if (*done_out > *all_out)
        *done_out = *all_out;
}
