/* Answers clients that follow the view with the events since their last question. */
#include "cluster/proto.h"
#include "superpeer/superpeer_int.h"

/* The answer: the events that the asker has not got, or where they are not known any more, and at
 * first, the view. */
static void events_answer(struct sh_superpeer *superpeer, struct sh_msg_in *in, uint64_t log,
                          uint64_t epoch)
{
    const struct sh_registry *registry = superpeer->registry;
    const struct sh_view *view = sh_registry_view(registry);
    uint64_t own_log = sh_registry_events_log(registry), first = 0;
    size_t count = SIZE_MAX;
    if (log == own_log && epoch)
        count = sh_registry_events_after(registry, epoch, &first);
    bool follows = count == SIZE_MAX;
    if (follows)
        count = 0;
    size_t size = SH_EVENTS_ANSWER_BYTES + (follows ? sh_view_size(view) : 0), told = 0;
    for (size_t i = 0; i < count; i++) {
        const struct sh_registry_event *event = sh_registry_event(registry, first + i);
        size += event->is_forgotten ? 0 : 8 + sh_node_size(&event->node);
        told += !event->is_forgotten;
    }
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, size, &out))
        return;
    sh_put64(&out.w, own_log);
    sh_put64(&out.w, view->epoch);
    sh_put8(&out.w, follows ? SH_ANSWER_VIEW : 0);
    sh_put16(&out.w, (uint16_t)told);
    if (follows)
        sh_view_put_all(&out.w, view);
    for (size_t i = 0; i < count; i++) {
        const struct sh_registry_event *event = sh_registry_event(registry, first + i);
        if (event->is_forgotten)
            continue;
        sh_put64(&out.w, event->epoch);
        sh_node_put(&out.w, &event->node);
    }
    sh_msg_end(in->msg, &out);
}

void sh_superpeer_events_handler(void *arg, struct sh_msg_in *in)
{
    struct sh_superpeer *superpeer = arg;
    uint64_t log = sh_get64(&in->payload);
    uint64_t epoch = sh_get64(&in->payload);
    enum shoal_err err = SHOAL_OK;
    if (!sh_reader_done(&in->payload))
        err = SHOAL_EPROTO;
    else if (!sh_superpeer_shared_is_current(superpeer) ||
             !sh_registry_view(superpeer->registry)->superpeers)
        err = SHOAL_EBUSY;
    if (err)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
    else
        events_answer(superpeer, in, log, epoch);
}
