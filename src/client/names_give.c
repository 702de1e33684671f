/* Giving many names, which takes as long as the superpeers' disks take for each: some at a time. */
#include <string.h>

#include "base/assert.h"
#include "client/client.h"
#include "shoal/names.h"

static enum shoal_err slot_free(struct sh_name_giver *giver, size_t at)
{
    if (!giver->is_busy[at])
        return SHOAL_OK;
    giver->is_busy[at] = false;
    enum shoal_err err = shoal_wait(giver->store, &giver->calls[at]);
    if (err != SHOAL_EEXIST)
        return err;
    giver->taken++;
    return SHOAL_OK;
}

enum shoal_err sh_name_give(struct sh_name_giver *giver, struct sh_bytes name, shoal_cid cid)
{
    char text[SHOAL_NAME_MAX + 1];
    SH_ASSERT(name.size && name.size <= SHOAL_NAME_MAX);
    size_t at = giver->next++ % SH_NAME_GIVER_CALLS;
    enum shoal_err err = slot_free(giver, at);
    if (err)
        return err;
    memcpy(text, name.at, name.size);
    text[name.size] = '\0';
    giver->calls[at] = (struct shoal_call){.done = NULL};
    err = shoal_name_set_async(giver->store, text, cid, SHOAL_NAME_ABSENT, SHOAL_CID_NONE,
                               &giver->calls[at]);
    giver->is_busy[at] = !err;
    return err;
}

enum shoal_err sh_name_give_end(struct sh_name_giver *giver)
{
    enum shoal_err err = SHOAL_OK;
    for (size_t i = 0; i < SH_NAME_GIVER_CALLS; i++) {
        enum shoal_err last = slot_free(giver, i);
        err = err ? err : last;
    }
    return err;
}
