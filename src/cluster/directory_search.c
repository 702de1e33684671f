/* Fetching the view: one candidate is asked after the other until one answers. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "cluster/connect.h"
#include "cluster/directory_int.h"
#include "cluster/proto.h"
#include "msg/call.h"

static void search_go_on(struct sh_directory *directory);

static unsigned telling(enum shoal_err err)
{
    switch (err) {
    case SHOAL_OK:
        return 0;
    case SHOAL_ESECRET:
    case SHOAL_ETLS:
    case SHOAL_ECLUSTER:
    case SHOAL_EVERSION:
        return 3;
    case SHOAL_EADDRESS:
    case SHOAL_EBUSY:
        return 2;
    default:
        return 1;
    }
}

/* Remembers why a candidate was of no use; text may be empty. */
static void note(struct sh_search *search, const struct sh_candidate *candidate, enum shoal_err err,
                 struct sh_bytes text)
{
    if (telling(err) <= telling(search->err))
        return;
    search->err = err;
    char said[SH_DETAIL_MAX];
    const char *reason = shoal_err_text(err);
    (void)snprintf(said, sizeof said, "%s: %.*s", candidate->address,
                   text.size ? (int)(text.size < 100 ? text.size : 100) : (int)strlen(reason),
                   text.size ? (const char *)text.at : reason);
    struct sh_reader r = sh_reader_make(sh_bytes_text(said));
    sh_call_detail_take(search->detail, &r);
}

static void candidate_add(struct sh_search *search, shoal_nid nid, const char *address)
{
    SH_ASSERT(search->count < SH_CANDIDATES_MAX);
    struct sh_candidate *candidate = &search->candidates[search->count++];
    candidate->nid = nid;
    memcpy(candidate->address, address, strlen(address) + 1);
}

/* Superpeers and a few peers of the view. Nodes that are not up are called by address, since msg
 * has forgotten them. */
static void candidates_of_view(struct sh_directory *directory)
{
    struct sh_search *search = &directory->search;
    const struct sh_view *view = &directory->view;
    shoal_nid self = sh_msg_nid(directory->msg);
    size_t peers = 0;
    for (unsigned round = 0; round < 3; round++) {
        for (size_t i = 0; i < view->count; i++) {
            const struct sh_node *node = &view->nodes[i];
            bool is_up = node->state == SH_NODE_UP;
            bool is_peer = node->role == SH_ROLE_PEER;
            if (node->nid.v == self.v || is_peer != (round == 1) || is_up != (round < 2))
                continue;
            if (is_peer && peers == SH_SEARCH_PEERS_MAX)
                break;
            candidate_add(search, is_up ? node->nid : SHOAL_NID_NONE, node->address);
            peers += is_peer;
        }
    }
}

/* Begins a search for all that have come. */
static void search_begin(struct sh_directory *directory)
{
    struct sh_search *search = &directory->search;
    sh_lock_assert_held(&directory->lock);
    SH_ASSERT(search->later && !search->ops);
    search->ops = search->later;
    search->later = NULL;
    search->later_end = &search->later;
    search->is_running = true;
    search->count = search->next = 0;
    search->err = SHOAL_OK;
    search->detail[0] = 0;
    candidates_of_view(directory);
    for (size_t i = 0; i < directory->address_count; i++)
        candidate_add(search, SHOAL_NID_NONE, directory->addresses[i]);
}

/* Ends a search. True: the next one has begun, for operations that have come meanwhile. */
static bool finish(struct sh_directory *directory, enum shoal_err err)
{
    struct sh_search *search = &directory->search;
    char detail[SH_DETAIL_MAX];
    sh_lock_take(&directory->lock);
    SH_ASSERT(search->is_running);
    memcpy(detail, search->detail, sizeof detail);
    struct sh_directory_op *op = search->ops;
    search->ops = NULL;
    search->is_running = false;
    if (search->later)
        search_begin(directory);
    bool goes_on = search->is_running;
    sh_lock_release(&directory->lock);
    while (op) {
        struct sh_directory_op *next = op->next;
        op->done(op, err, err ? detail : "");
        op = next;
    }
    return goes_on;
}

static enum shoal_err answer_take(struct sh_directory *directory, struct sh_reader *payload)
{
    struct sh_view view = {0};
    uint8_t flags;
    enum shoal_err err = sh_answer_view_get(payload, SH_ANSWER_VIEW, &flags, &view);
    if (!err && (flags & SH_ANSWER_VIEW))
        err = sh_directory_view_apply(directory, &view);
    else if (!err && !sh_directory_epoch(directory))
        err = SHOAL_EPROTO; /* "nothing new" to one who knows nothing */
    sh_view_destroy(&view);
    return err;
}

static void on_answer(struct sh_request *request, enum shoal_err err, struct sh_reader *payload)
{
    struct sh_directory *directory = request->arg;
    struct sh_search *search = &directory->search;
    sh_lock_take(&directory->lock);
    search->is_asking = false;
    sh_lock_release(&directory->lock);
    struct sh_bytes text = {NULL, 0};
    if (err && payload)
        text = sh_bytes_make(payload->at, sh_reader_left(payload));
    if (!err)
        err = answer_take(directory, payload);
    if (!err) {
        if (finish(directory, SHOAL_OK))
            search_go_on(directory);
        return;
    }
    note(search, &search->candidates[search->next - 1], err, text);
    search_go_on(directory);
}

static enum shoal_err ask(struct sh_directory *directory, const struct sh_candidate *candidate)
{
    struct sh_search *search = &directory->search;
    shoal_nid to = candidate->nid;
    enum shoal_err err = SHOAL_OK;
    if (!to.v)
        err = sh_msg_contact(directory->msg, candidate->address, &to);
    if (err)
        return err;
    uint64_t epoch = sh_directory_epoch(directory);
    search->request = (struct sh_request){.done = on_answer, .arg = directory};
    sh_lock_take(&directory->lock);
    search->is_asking = true;
    sh_lock_release(&directory->lock);
    struct sh_out out;
    err = sh_msg_request(directory->msg, to, SH_CLUSTER_VIEW_GET, SH_VIEW_GET_BYTES,
                         &search->request, &out);
    if (err) {
        sh_lock_take(&directory->lock);
        search->is_asking = false;
        sh_lock_release(&directory->lock);
        return err;
    }
    sh_put64(&out.w, epoch);
    sh_msg_end(directory->msg, &out);
    return SHOAL_OK;
}

/* Asks the next candidate that can be asked. As soon as one has been, the answer may be here, and
 * the search is no longer ours. */
static void search_go_on(struct sh_directory *directory)
{
    struct sh_search *search = &directory->search;
    do {
        while (search->next < search->count) {
            const struct sh_candidate *candidate = &search->candidates[search->next++];
            enum shoal_err err = ask(directory, candidate);
            if (!err)
                return;
            note(search, candidate, err, (struct sh_bytes){NULL, 0});
        }
    } while (finish(directory, search->err ? search->err : SHOAL_ENONODE));
}

/* Queues op; true when the caller has to carry the search on that is for it. */
static bool op_add(struct sh_directory *directory, struct sh_directory_op *op)
{
    struct sh_search *search = &directory->search;
    sh_lock_assert_held(&directory->lock);
    SH_ASSERT(op->done);
    op->next = NULL;
    *search->later_end = op;
    search->later_end = &op->next;
    if (search->is_running)
        return false;
    search_begin(directory);
    return true;
}

static bool addresses_usable(const char *const *addresses, size_t count, const char **bad_out)
{
    *bad_out = "no address was given";
    for (size_t i = 0; i < count; i++) {
        *bad_out = addresses[i];
        size_t size = strlen(addresses[i]);
        if (!size || size >= SH_MSG_ADDRESS_MAX)
            return false;
    }
    return count && count <= SH_ADDRESSES_MAX;
}

void sh_directory_bootstrap(struct sh_directory *directory, const char *const *addresses,
                            size_t count, struct sh_directory_op *op)
{
    const char *bad;
    if (!addresses_usable(addresses, count, &bad)) {
        bool is_count = !count || count > SH_ADDRESSES_MAX;
        op->done(op, is_count ? SHOAL_EINVAL : SHOAL_EADDRESS, bad);
        return;
    }
    sh_lock_take(&directory->lock);
    for (size_t i = 0; i < count; i++)
        memcpy(directory->addresses[i], addresses[i], strlen(addresses[i]) + 1);
    directory->address_count = count;
    bool begins = op_add(directory, op);
    sh_lock_release(&directory->lock);
    if (begins)
        search_go_on(directory);
}

void sh_directory_refresh(struct sh_directory *directory, struct sh_directory_op *op)
{
    sh_lock_take(&directory->lock);
    bool begins = op_add(directory, op);
    sh_lock_release(&directory->lock);
    if (begins)
        search_go_on(directory);
}

void sh_directory_search_stop(struct sh_directory *directory)
{
    struct sh_search *search = &directory->search;
    if (!search->is_running)
        return;
    do {
        if (search->is_asking)
            (void)sh_msg_cancel(directory->msg, &search->request);
        search->is_asking = false;
    } while (finish(directory, SHOAL_ESTOPPED));
}
