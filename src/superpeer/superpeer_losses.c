/* Losses that an operator accepts (docs/recovery.md): the record of a zone that is lost goes, and with it all that is said of the loss.
 *
 *   ACCEPT_LOSS --> the record's version is another, or it went before: answered at once
 *               --> the record has the flag LOST: its removal is ordered, and answered once it is carried out
 *               --> else EINVAL: the zone is with an owner, or may still come back
 *
 * The removal names the version that has been looked at, and a record that gets or loses a flag gets another version: so no record is removed that
 * is not lost when the update is carried out. */
#include "base/assert.h"
#include "base/log.h"
#include "cluster/proto.h"
#include "superpeer/superpeer_ring_int.h"

static void refuse(struct sh_msg_in *in, enum shoal_err err)
{
    sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
}

/* Orders the removal of a record that has the flag LOST in that version, and answers all else at once. */
static void loss_accept(struct sh_superpeer *superpeer, struct sh_msg_in *in, uint64_t id,
                        uint32_t version)
{
    const struct sh_metadata *metadata = superpeer->ring->metadata;
    const struct sh_metadata_update update = {.kind = SH_METADATA_ZONE_REMOVE,
                                              .condition = SH_ZONE_BY_OTHER,
                                              .from = {(uint16_t)(superpeer->index + 1)},
                                              .sequence = 1,
                                              .zone = {.id = id, .version = version}};
    struct sh_zone zone;
    enum shoal_err err = sh_metadata_zone_look(metadata, &update);
    if (err != SHOAL_EAGAIN) {
        sh_superpeer_result_answer(superpeer, in->reply_to, in->type, err);
        return;
    }
    bool is_there = sh_metadata_zone(metadata, id, &zone);
    SH_ASSERT(is_there && zone.version == version);
    if (!(zone.flags & SH_ZONE_LOST)) {
        sh_superpeer_result_answer(superpeer, in->reply_to, in->type, SHOAL_EINVAL);
        return;
    }
    SH_WARN("cluster", "an operator accepts the loss of a zone: its record is removed",
            SH_U64("zone", id), SH_U64("owner", zone.owner.v), SH_U64("former", zone.former.v),
            SH_U64("first", zone.first.v), SH_U64("last", zone.last.v));
    sh_superpeer_zone_order(superpeer, in, &update);
}

static void on_accept_loss(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t id = sh_get64(&in->payload);
    uint32_t version = sh_get32(&in->payload);
    if (!sh_reader_done(&in->payload) || !sh_zone_is_id(id) || !version) {
        refuse(in, SHOAL_EPROTO);
        return;
    }
    if (sh_superpeer_zone_may_answer(superpeer, in, sh_zone_shard(id), SH_ACCEPT_LOSS_ANSWER_BYTES))
        loss_accept(superpeer, in, id, version);
}

void sh_superpeer_loss_handlers(struct sh_superpeer *superpeer)
{
    sh_msg_handler_set(superpeer->msg, SH_CLUSTER_ACCEPT_LOSS, SH_MSG_INLINE, on_accept_loss,
                       superpeer);
}
