/* Nodes that tests of libshoal play themselves: ends of messaging with a crew of their own, a superpeer's answers, and a peer's chunks. */
#ifndef SH_TESTS_CLIENT_ENDS_INT_H
#define SH_TESTS_CLIENT_ENDS_INT_H

#include "backup/backup.h"
#include "cluster/proto.h"
#include "cluster/view.h"
#include "msg/tcp.h"
#include "node/chunks.h"
#include "store/store.h"
#include "tests/client_rig.h"

/* A node, as far as a test plays one. A struct that begins with one is the argument of on_event, too. */
struct end {
    struct sh_wire *wire; /* set before it is opened, and taken; NULL: TCP */
    void (*on_event)(void *arg, const struct sh_msg_event *event); /* NULL: nobody wants to know */
    struct sh_msg *msg;
    struct sh_crew *crew;
    char address[SH_MSG_ADDRESS_MAX];
};

RIG void end_wake(void *arg)
{
    sh_crew_wake(((struct end *)arg)->crew, 0);
}

/* It listens, and handles nothing before it is started. */
RIG void end_open(struct end *end, uint16_t nid, uint64_t timeout_ns)
{
    struct sh_clock clock = sh_real_clock();
    struct sh_crew_config crew = {.name = "end", .threads = 1, .now_ns = clock.now_ns};
    if (!end->wire)
        assert_int_equal(sh_tcp_create(64, &end->wire), SHOAL_OK);
    struct sh_msg_config config = {
        .nid = {nid},
        .cluster = "shoal",
        .connections_max = 64,
        .requests_max = 64,
        .ring_bytes = 1 << 20,
        .payload_bytes_max = 1 << 20,
        .request_timeout_ns = timeout_ns,
        .connect_timeout_ns = timeout_ns,
        .env = {.clock = clock, .random = sh_real_random(), .wire = end->wire},
        .on_event = end->on_event,
        .wake_transport = end_wake,
        .wake_handlers = end_wake,
        .arg = end,
    };
    assert_int_equal(sh_crew_create(&crew, &end->crew), SHOAL_OK);
    assert_int_equal(sh_msg_create(&config, &end->msg), SHOAL_OK);
    sh_msg_instance_set(end->msg, config.nid.v); /* as the view has it */
    assert_int_equal(sh_msg_listen(end->msg, "127.0.0.1:0", end->address), SHOAL_OK);
    sh_crew_parker_set(end->crew, 0, sh_msg_parker(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_transport_step(end->msg));
    sh_crew_step_add(end->crew, 0, sh_msg_handler_step(end->msg));
}

RIG void end_start(struct end *end)
{
    assert_int_equal(sh_crew_start(end->crew), SHOAL_OK);
}

RIG void end_close(struct end *end)
{
    sh_crew_stop(end->crew);
    sh_msg_destroy(end->msg);
    sh_crew_destroy(end->crew);
    end->wire->ops->destroy(end->wire);
    end->wire = NULL;
}

/* --- A superpeer's answers ---------------------------------------------------------------------- */

/* A view of these nodes, the superpeer first. */
RIG void view_reply(struct sh_msg_in *in, uint64_t epoch, struct sh_node *nodes, unsigned count)
{
    struct sh_view view = {.epoch = epoch, .superpeers = 1, .count = count, .nodes = nodes};
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, 1 + sh_view_size(&view), &out) != SHOAL_OK)
        return;
    sh_put8(&out.w, SH_ANSWER_VIEW);
    sh_view_put_all(&out.w, &view);
    sh_msg_end(in->msg, &out);
}

/* Where all chunks are that the creator has made: a node, or SH_LOOKUP_FAILED. */
RIG void lookup_reply(struct sh_msg_in *in, uint16_t creator, uint16_t answer)
{
    struct sh_out out;
    if (sh_msg_reply(in->msg, in->reply_to, in->type, SH_LOOKUP_ANSWER_BYTES, &out) != SHOAL_OK)
        return;
    sh_put64(&out.w, shoal_cid_make((shoal_nid){creator}, 0).v);
    sh_put64(&out.w, shoal_cid_make((shoal_nid){creator}, SHOAL_LOCAL_ID_MAX).v);
    sh_put16(&out.w, answer);
    sh_msg_end(in->msg, &out);
}

/* --- A peer's chunks ---------------------------------------------------------------------------- */

/* Serves the chunks of a store, of which nothing is backed up. */
RIG void chunks_serve(struct sh_msg *msg, struct sh_store *held, struct sh_backup **backup_out,
                      struct sh_chunks **chunks_out)
{
    const struct sh_backup_config backed = {.store = held};
    assert_int_equal(sh_backup_create(&backed, backup_out), SHOAL_OK);
    const struct sh_chunks_config served = {
        .msg = msg, .store = held, .backup = *backup_out, .chunk_bytes_max = 1 << 16};
    assert_int_equal(sh_chunks_create(&served, chunks_out), SHOAL_OK);
}

#endif
