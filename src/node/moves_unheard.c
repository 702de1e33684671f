/* A batch that its target has by the word of a superpeer (RESOLVE), as the source could not be
 * heard, and of which the source may not know. If the superpeers forget it, and the target has
 * given the chunks on and is gone, the source takes them for its own: so the target gives nothing
 * away before the source has heard of it, or is taken for dead. It asks for that (ASK). A drain
 * waits for more: until a source that is taken for dead is back, or can't come back. Other jobs do
 * not, since what is on a node whose source is gone for good could never be moved away. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "node/moves_int.h"

struct sh_unheard {
    struct sh_unheard *next;
    struct sh_moves *moves;
    shoal_nid source;
    uint64_t instance; /* of the source; 0: not known */
    char address[SH_MSG_ADDRESS_MAX];
    uint64_t sequence;
    uint64_t due_ns;
    bool is_asking;
    struct sh_request request;
};

static void unheard_free(struct sh_moves *moves, struct sh_unheard *unheard)
{
    struct sh_unheard **at = &moves->unheard;
    while (*at != unheard)
        at = &(*at)->next;
    *at = unheard->next;
    if (unheard->is_asking)
        (void)sh_msg_cancel(moves->config.msg, &unheard->request);
    free(unheard);
}

/* What is known of the source: UP; FAILED, or nothing: it may come back; LEFT, also if its ID is
 * another process's by now. */
static enum sh_node_state state_of(const struct sh_unheard *unheard)
{
    struct sh_node node;
    if (sh_directory_node(unheard->moves->config.directory, unheard->source, &node) != SHOAL_OK)
        return SH_NODE_FAILED;
    bool is_it = !unheard->instance || node.instance == unheard->instance;
    return is_it ? node.state : SH_NODE_LEFT;
}

void sh_moves_unheard_add(struct sh_moves *moves, const struct sh_staged *staged)
{
    struct sh_node node;
    bool is_known = !sh_directory_node(moves->config.directory, staged->source, &node);
    struct sh_unheard *unheard = malloc(sizeof *unheard);
    if (!unheard) {
        SH_WARN("node", "no memory to wait until a source has heard of its batch",
                SH_U64("source", staged->source.v));
        return;
    }
    *unheard = (struct sh_unheard){.next = moves->unheard,
                                   .moves = moves,
                                   .source = staged->source,
                                   .instance = is_known ? node.instance : 0,
                                   .sequence = staged->sequence,
                                   .due_ns = sh_now(&moves->config.clock) + SH_MOVES_ASK_NS};
    memcpy(unheard->address, staged->source_address, sizeof unheard->address);
    moves->unheard = unheard;
}

void sh_moves_unheard_over(struct sh_moves *moves, shoal_nid source)
{
    struct sh_unheard *next;
    for (struct sh_unheard *unheard = moves->unheard; unheard; unheard = next) {
        next = unheard->next;
        if (unheard->source.v == source.v)
            unheard_free(moves, unheard);
    }
}

bool sh_moves_is_unheard(struct sh_moves *moves)
{
    for (const struct sh_unheard *unheard = moves->unheard; unheard; unheard = unheard->next) {
        if (state_of(unheard) == SH_NODE_UP)
            return true;
    }
    return false;
}

shoal_nid sh_moves_unheard_next(struct sh_moves *moves)
{
    while (moves->unheard &&
           sh_moves_has_ended(moves, moves->unheard->source, moves->unheard->address))
        unheard_free(moves, moves->unheard);
    return moves->unheard ? moves->unheard->source : SHOAL_NID_NONE;
}

static void answered(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_unheard *unheard = request->arg;
    unheard->is_asking = false;
    unheard->due_ns = sh_now(&unheard->moves->config.clock) + SH_MOVES_ASK_NS;
    uint8_t says = err ? 1 : sh_get8(payload);
    if (!err && sh_reader_done(payload) && says != 1)
        unheard_free(unheard->moves, unheard);
}

static void ask(struct sh_moves *moves, struct sh_unheard *unheard)
{
    struct sh_out out;
    unheard->request = (struct sh_request){.done = answered, .arg = unheard};
    if (sh_msg_request(moves->config.msg, unheard->source, SH_MOVES_ASK, 8, &unheard->request,
                       &out))
        return;
    unheard->is_asking = true;
    sh_put64(&out.w, unheard->sequence);
    sh_msg_end(moves->config.msg, &out);
}

unsigned sh_moves_unheard_step(struct sh_moves *moves, uint64_t now_ns)
{
    struct sh_unheard *unheard = moves->unheard;
    while (unheard && (unheard->is_asking || now_ns < unheard->due_ns))
        unheard = unheard->next;
    if (!unheard)
        return 0;
    unheard->due_ns = now_ns + SH_MOVES_ASK_NS;
    enum sh_node_state state = state_of(unheard);
    if (state == SH_NODE_LEFT || sh_moves_has_ended(moves, unheard->source, unheard->address))
        unheard_free(moves, unheard);
    else if (state == SH_NODE_UP)
        ask(moves, unheard);
    return 1;
}

uint64_t sh_moves_unheard_due_ns(const struct sh_moves *moves)
{
    uint64_t due_ns = SH_NEVER;
    for (const struct sh_unheard *unheard = moves->unheard; unheard; unheard = unheard->next) {
        if (!unheard->is_asking && unheard->due_ns < due_ns)
            due_ns = unheard->due_ns;
    }
    return due_ns;
}

void sh_moves_unheard_end(struct sh_moves *moves)
{
    while (moves->unheard)
        unheard_free(moves, moves->unheard);
}
