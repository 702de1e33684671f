/* Safety copies: reading a peer's chunks, and giving them back (proto/saves.h). */
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "client/client_int.h"

#define READ_TRIES                                                                                 \
    6 /* a peer may need longer than the time-out for a block of a large, sparse store */
#define ROOM_PAUSE_NS UINT64_C(1000000)

enum shoal_err sh_client_save_begin(shoal *store, shoal_nid node, struct sh_client_save *save_out)
{
    uint8_t request[8];
    enum shoal_err err = sh_client_peer_check(store, node);
    if (err)
        return err;
    *save_out = (struct sh_client_save){
        .store = store, .node = node, .number = sh_random64(&store->env.random) | 1};
    sh_store64(request, save_out->number);
    return sh_client_ask_again(store, node, SH_SAVES_BEGIN, sh_bytes_make(request, sizeof request),
                               NULL, NULL);
}

static enum shoal_err block_get(struct sh_bytes answer, struct sh_saves_block *head_out,
                                struct sh_bytes *records_out)
{
    struct sh_reader r = sh_reader_make(answer);
    if (!sh_saves_block_get(&r, head_out)) {
        sh_client_detail_set("a block of a safety copy is none");
        return SHOAL_EPROTO;
    }
    size_t size = sh_reader_left(&r);
    *records_out = sh_bytes_make(sh_reader_take(&r, size), size);
    if (sh_crc32c(0, *records_out) == head_out->crc)
        return SHOAL_OK;
    sh_client_detail_set("a block of a safety copy has another checksum than its bytes");
    return SHOAL_ECORRUPT;
}

enum shoal_err sh_client_save_read(struct sh_client_save *save, struct sh_saves_block *head_out,
                                   uint8_t **answer_out, struct sh_bytes *records_out)
{
    uint8_t request[16], *answer;
    size_t size;
    enum shoal_err err = SHOAL_ETIMEOUT;
    sh_store64(request, save->number);
    sh_store64(request + 8, save->block);
    for (unsigned i = 0; err == SHOAL_ETIMEOUT && i < READ_TRIES; i++)
        err = sh_client_ask_again(save->store, save->node, SH_SAVES_READ,
                                  sh_bytes_make(request, sizeof request), &answer, &size);
    if (err)
        return err;
    err = block_get(sh_bytes_make(answer, size), head_out, records_out);
    if (err) {
        free(answer);
        return err;
    }
    save->block++;
    *answer_out = answer;
    return SHOAL_OK;
}

void sh_client_save_end(struct sh_client_save *save)
{
    uint8_t request[8];
    struct sh_caller caller = sh_client_caller(save->store);
    char detail[SH_CALL_DETAIL_BYTES];
    sh_store64(request, save->number);
    /* Where the peer does not hear of it, it ends the copy by itself when nobody reads on. */
    enum shoal_err err = sh_call(&caller, save->node, SH_SAVES_END,
                                 sh_bytes_make(request, sizeof request), 0, NULL, NULL, detail);
    (void)err;
}

enum shoal_err sh_client_arrivals(shoal *store, shoal_nid node, uint64_t *instance_out,
                                  uint64_t *arrivals_out)
{
    uint8_t *answer;
    size_t size;
    enum shoal_err err =
        sh_client_ask_again(store, node, SH_SAVES_ARRIVALS, sh_bytes_make(NULL, 0), &answer, &size);
    if (err)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    uint64_t instance = sh_get64(&r), arrivals = sh_get64(&r);
    err = sh_reader_done(&r) ? SHOAL_OK : SHOAL_EPROTO;
    free(answer);
    if (err)
        return err;
    *instance_out = instance;
    *arrivals_out = arrivals;
    return SHOAL_OK;
}

/* --- Giving back ----------------------------------------------------------------------------- */

/* Passes over the first records of a RESTORE. False: there are not so many. */
static bool records_skip(struct sh_reader *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        (void)sh_get64(r);
        uint32_t size = sh_get32(r);
        if (!(size & SH_SAVES_ZEROS))
            (void)sh_reader_take(r, size);
    }
    return sh_reader_ok(r);
}

static enum shoal_err restore_once(shoal *store, shoal_nid node, enum sh_saves_policy policy,
                                   struct sh_bytes records, struct sh_saves_restored *done_out)
{
    uint8_t *request = malloc(1 + records.size), *answer;
    size_t size;
    if (!request)
        return SHOAL_ENOMEM;
    request[0] = (uint8_t)policy;
    memcpy(request + 1, records.at, records.size);
    enum shoal_err err = sh_client_ask_again(
        store, node, SH_SAVES_RESTORE, sh_bytes_make(request, 1 + records.size), &answer, &size);
    free(request);
    if (err)
        return err;
    struct sh_reader r = sh_reader_make(sh_bytes_make(answer, size));
    if (!sh_saves_restored_get(&r, done_out))
        err = SHOAL_EPROTO;
    free(answer);
    return err;
}

enum shoal_err sh_client_restore(shoal *store, shoal_nid node, enum sh_saves_policy policy,
                                 struct sh_bytes records, struct sh_client_restored *sums_inout)
{
    struct sh_reader r = sh_reader_make(records);
    uint64_t deadline_ns = sh_client_deadline_ns(store);
    while (sh_reader_left(&r)) {
        struct sh_saves_restored done;
        enum shoal_err err =
            restore_once(store, node, policy, sh_bytes_make(r.at, sh_reader_left(&r)), &done);
        if (!err && !records_skip(&r, done.records))
            err = SHOAL_EPROTO;
        if (err)
            return err;
        sums_inout->made += done.made;
        sums_inout->same += done.same;
        sums_inout->skipped += done.skipped;
        sums_inout->replaced += done.replaced;
        sums_inout->cid = done.cid;
        if (done.records)
            deadline_ns = sh_client_deadline_ns(store);
        if (done.err == SHOAL_EEXIST)
            return done.err;
        if (done.err == SHOAL_EAGAIN && sh_now(&store->env.clock) >= deadline_ns) {
            sh_client_detail_set("the peer's log had no room for a chunk in all that time");
            return SHOAL_EBUSY;
        }
        if (done.err == SHOAL_EAGAIN) {
            struct sh_waiter pause = {0};
            (void)sh_crew_wait(store->crew, 0, &pause, sh_now(&store->env.clock) + ROOM_PAUSE_NS);
        }
    }
    return SHOAL_OK;
}
