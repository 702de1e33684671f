#include "superpeer/superpeer_claims.h"

#include "superpeer/superpeer_ring_int.h"

bool sh_superpeer_leads(const struct sh_superpeer *superpeer, uint64_t *term_out)
{
    const struct sh_consensus *consensus = superpeer->shared->consensus;
    if (!sh_shared_leads(superpeer))
        return false;
    *term_out = consensus->ops->term(consensus);
    return true;
}

bool sh_superpeer_would_fail(const struct sh_superpeer *superpeer, shoal_nid nid)
{
    const struct sh_node *node = sh_view_find(sh_registry_view(superpeer->registry), nid);
    return node && node->state == SH_NODE_UP && node->role == SH_ROLE_PEER &&
           sh_shared_may_fail(superpeer, nid, false);
}

bool sh_superpeer_answers_for(struct sh_superpeer *superpeer, unsigned shard)
{
    shoal_nid other;
    return sh_superpeer_ring_reads(superpeer, shard, &other) == SHOAL_OK;
}
