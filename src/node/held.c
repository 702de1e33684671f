#include "node/held.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/lock.h"
#include "proto/chunks.h"

#define COUNT_MAX 65536u
#define BYTES_MAX (UINT64_C(64) << 20)
#define AT_ONCE 256u /* held ones that the pool grows by */
#define FEW_BYTES 64

enum held_kind { HELD_NOTHING, HELD_BYTES, HELD_ERROR, HELD_BULK };

struct sh_held {
    struct sh_write write;
    struct sh_helds *helds;
    struct sh_held *next; /* in the pool */
    enum held_kind kind;
    bool is_read; /* so nothing was done */
    sh_msg_type type;
    struct sh_reply_to to;
    enum shoal_err err;
    size_t size;    /* of the bytes, or an error's text */
    size_t counted; /* in what all together may have */
    uint8_t *bytes;
    uint8_t few[FEW_BYTES];
    struct sh_writer w;
    struct sh_bulk *bulk;
};

/* So many held ones that came into being together. */
struct slab {
    struct slab *next;
    struct sh_held all[AT_ONCE];
};

struct sh_helds {
    struct sh_helds_config config;
    struct sh_spin lock; /* guards the rest */
    struct slab *slabs;
    struct sh_held *free;
    uint32_t made, used;
    uint64_t counted; /* bytes of reads, in memory of their own */
};

/* --- The pool ---------------------------------------------------------------------------------- */

enum shoal_err sh_helds_create(const struct sh_helds_config *config, struct sh_helds **helds_out)
{
    struct sh_helds *helds = calloc(1, sizeof *helds);
    if (!helds)
        return SHOAL_ENOMEM;
    helds->config = *config;
    if (!helds->config.count_max)
        helds->config.count_max = COUNT_MAX;
    if (!helds->config.bytes_max)
        helds->config.bytes_max = BYTES_MAX;
    sh_spin_init(&helds->lock, SH_LOCK_NODE_HELDS);
    *helds_out = helds;
    return SHOAL_OK;
}

static void slab_free(struct slab *slab)
{
    for (unsigned i = 0; i < AT_ONCE; i++) {
        struct sh_held *held = &slab->all[i];
        if (held->bytes != held->few)
            free(held->bytes);
        sh_bulk_drop(held->bulk);
    }
    free(slab);
}

void sh_helds_destroy(struct sh_helds *helds)
{
    while (helds && helds->slabs) {
        struct slab *slab = helds->slabs;
        helds->slabs = slab->next;
        slab_free(slab);
    }
    free(helds);
}

uint32_t sh_helds_count(struct sh_helds *helds)
{
    sh_spin_take(&helds->lock);
    uint32_t used = helds->used;
    sh_spin_release(&helds->lock);
    return used;
}

/* Makes some more; false: there are as many as may be, or there is no memory. */
static bool pool_grow(struct sh_helds *helds)
{
    struct slab *slab = calloc(1, sizeof *slab);
    bool has_grown = false;
    if (!slab)
        return false;
    sh_spin_take(&helds->lock);
    if (helds->made + AT_ONCE <= helds->config.count_max || helds->made == 0) {
        uint32_t count = helds->config.count_max - helds->made;
        for (unsigned i = 0; i < AT_ONCE && i < count; i++) {
            slab->all[i] = (struct sh_held){.helds = helds, .next = helds->free};
            helds->free = &slab->all[i];
            helds->made++;
        }
        slab->next = helds->slabs;
        helds->slabs = slab;
        has_grown = true;
    }
    sh_spin_release(&helds->lock);
    if (!has_grown)
        free(slab);
    return has_grown;
}

static struct sh_held *pool_take(struct sh_helds *helds)
{
    struct sh_held *held;
    do {
        sh_spin_take(&helds->lock);
        held = helds->free;
        if (held) {
            helds->free = held->next;
            helds->used++;
        }
        sh_spin_release(&helds->lock);
    } while (!held && pool_grow(helds));
    return held;
}

static void pool_give(struct sh_held *held)
{
    struct sh_helds *helds = held->helds;
    if (held->bytes != held->few)
        free(held->bytes);
    sh_spin_take(&helds->lock);
    helds->counted -= held->counted;
    held->counted = 0;
    held->bytes = NULL;
    held->kind = HELD_NOTHING;
    held->next = helds->free;
    helds->free = held;
    helds->used--;
    sh_spin_release(&helds->lock);
}

static struct sh_held *held_take(struct sh_helds *helds, const struct sh_msg_in *in)
{
    struct sh_held *held = pool_take(helds);
    if (!held) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_EBUSY,
                           "too many answers wait for their changes to be logged");
        return NULL;
    }
    held->type = in->type;
    held->to = in->reply_to;
    held->err = SHOAL_OK;
    return held;
}

/* Whether a read's answer of so many bytes may wait: together they may only have so much. */
static bool bytes_count(struct sh_held *held, size_t size)
{
    struct sh_helds *helds = held->helds;
    sh_spin_take(&helds->lock);
    /* One alone may be larger, as chunks may. */
    bool has_room = !helds->counted || helds->counted + size <= helds->config.bytes_max;
    if (has_room) {
        helds->counted += size;
        held->counted = size;
    }
    sh_spin_release(&helds->lock);
    return has_room;
}

/* Memory for so many bytes. */
static enum shoal_err bytes_take(struct sh_held *held, size_t size)
{
    held->size = size;
    held->bytes = held->few;
    if (size <= FEW_BYTES)
        return SHOAL_OK;
    held->bytes = NULL;
    if (held->is_read && !bytes_count(held, size))
        return SHOAL_EBUSY;
    held->bytes = malloc(size);
    return held->bytes ? SHOAL_OK : SHOAL_ENOMEM;
}

/* --- What it waits for ------------------------------------------------------------------------- */

enum sh_level sh_helds_level(const struct sh_helds *helds, sh_msg_type type)
{
    unsigned level = sh_chunks_level_of(type);
    return level ? (enum sh_level)(level - 1) : helds->config.level;
}

/* A level that is named is a promise to the caller, which a node without a log can't keep. The node's own level is none: whoever started the node
 * knows that it has no log. */
static bool is_refused(const struct sh_helds *helds, const struct sh_msg_in *in)
{
    char text[200];
    if (sh_chunks_level_of(in->type) <= SH_LEVEL_ASYNC + 1)
        return false;
    snprintf(text, sizeof text,
             "node %u has no log, so it keeps chunks at the level async only: start it with the "
             "option replicas, or write at that level",
             sh_msg_nid(helds->config.msg).v);
    sh_msg_reply_error(in->msg, in->reply_to, in->type, SHOAL_ENOBACKUP, text);
    return true;
}

bool sh_held_begin(struct sh_helds *helds, const struct sh_msg_in *in, struct sh_held **held_out)
{
    *held_out = NULL;
    if (!sh_backup_is_on(helds->config.backup))
        return !is_refused(helds, in);
    struct sh_held *held = held_take(helds, in);
    if (!held)
        return false;
    held->is_read = false;
    sh_write_begin(&held->write, sh_helds_level(helds, in->type));
    *held_out = held;
    return true;
}

struct sh_write *sh_held_write(struct sh_held *held)
{
    return held ? &held->write : NULL;
}

/* One that has changed nothing so far. */
static bool read_begin(struct sh_helds *helds, const struct sh_msg_in *in,
                       struct sh_held **held_out)
{
    struct sh_held *held = held_take(helds, in);
    if (!held)
        return false;
    held->is_read = true;
    sh_write_begin(&held->write, SH_LEVEL_ASYNC);
    *held_out = held;
    return true;
}

bool sh_held_saw(struct sh_helds *helds, const struct sh_msg_in *in, shoal_cid lid,
                 struct sh_held **held_inout)
{
    struct sh_write seen;
    if (sh_backup_read_is_clean(helds->config.backup, lid, &seen))
        return true;
    if (!*held_inout && !read_begin(helds, in, held_inout))
        return false;
    sh_write_join(&(*held_inout)->write, &seen);
    return true;
}

bool sh_held_saw_all(struct sh_helds *helds, const struct sh_msg_in *in,
                     struct sh_held **held_inout)
{
    struct sh_write seen;
    if (sh_backup_is_clean(helds->config.backup, &seen))
        return true;
    if (!*held_inout && !read_begin(helds, in, held_inout))
        return false;
    sh_write_join(&(*held_inout)->write, &seen);
    return true;
}

/* --- Sending it -------------------------------------------------------------------------------- */

/* Sends the answer once its write is acknowledged or has failed. */
static void held_send(void *arg, enum shoal_err err)
{
    struct sh_held *held = arg;
    struct sh_msg *msg = held->helds->config.msg;
    struct sh_out out;
    char text[200] = "";
    if (err) {
        bool has_changed = !held->is_read && held->kind != HELD_ERROR;
        snprintf(text, sizeof text,
                 !has_changed
                     ? "what is there on node %u may be lost with it: its log is out of service"
                     : "it is done on node %u, but may not be logged: its log is out of service",
                 sh_msg_nid(msg).v);
        sh_msg_reply_error(msg, held->to, held->type, err, text);
        sh_bulk_drop(held->bulk);
    } else if (held->kind == HELD_BULK) {
        sh_bulk_reply(held->bulk, held->to, held->type, held->is_read);
    } else if (held->kind == HELD_ERROR) {
        memcpy(text, held->bytes, held->size);
        sh_msg_reply_error(msg, held->to, held->type, held->err, text);
    } else if (sh_msg_reply(msg, held->to, held->type, held->size, &out) == SHOAL_OK) {
        sh_put_raw(&out.w, sh_bytes_make(held->bytes, held->size));
        sh_msg_end(msg, &out);
    }
    held->bulk = NULL;
    pool_give(held);
}

/* From here on it is another thread's, or gone. */
static void held_wait(struct sh_held *held)
{
    if (!sh_write_wait(held->helds->config.backup, &held->write, held_send, held))
        held_send(held, SHOAL_OK);
}

static void on_dropped(void *arg, enum shoal_err err)
{
    (void)err;
    pool_give(arg);
}

/* One that may have written waits for that all the same, so that others wait for it. */
void sh_held_drop(struct sh_held *held)
{
    if (!held)
        return;
    if (held->is_read || !sh_write_wait(held->helds->config.backup, &held->write, on_dropped, held))
        pool_give(held);
}

/* --- Answers ----------------------------------------------------------------------------------- */

bool sh_answer_begin(const struct sh_msg_in *in, struct sh_held *held, size_t bytes,
                     struct sh_answer *answer_out)
{
    enum shoal_err err;
    answer_out->held = held;
    if (held) {
        err = bytes_take(held, bytes);
        if (err) {
            sh_answer_error(in, held, err, NULL);
            return false;
        }
        held->kind = HELD_BYTES;
        held->w = sh_writer_make(held->bytes, bytes);
        answer_out->w = &held->w;
        return true;
    }
    err = sh_msg_reply(in->msg, in->reply_to, in->type, bytes, &answer_out->out);
    if (err == SHOAL_ENOMEM)
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, NULL);
    answer_out->w = &answer_out->out.w;
    return err == SHOAL_OK;
}

void sh_answer_end(const struct sh_msg_in *in, struct sh_answer *answer)
{
    if (!answer->held) {
        sh_msg_end(in->msg, &answer->out);
        return;
    }
    SH_ASSERT(sh_writer_ok(&answer->held->w) && answer->held->w.at == answer->held->w.end);
    held_wait(answer->held);
}

void sh_answer_ok(const struct sh_msg_in *in, struct sh_held *held)
{
    if (!held) {
        sh_msg_reply_ok(in->msg, in->reply_to, in->type);
        return;
    }
    held->kind = HELD_BYTES;
    held->size = 0;
    held->bytes = held->few;
    held_wait(held);
}

void sh_answer_error(const struct sh_msg_in *in, struct sh_held *held, enum shoal_err err,
                     const char *text)
{
    if (!held) {
        sh_msg_reply_error(in->msg, in->reply_to, in->type, err, text);
        return;
    }
    size_t size = text ? strlen(text) : 0;
    if (size > 199)
        size = 199;
    held->kind = HELD_ERROR;
    held->err = err;
    held->size = size;
    held->bytes = size <= FEW_BYTES ? held->few : malloc(size);
    if (!held->bytes)
        held->size = 0; /* it goes without */
    if (held->size)
        memcpy(held->bytes, text, held->size);
    held_wait(held);
}

void sh_answer_bulk(const struct sh_msg_in *in, struct sh_held *held, struct sh_bulk *bulk,
                    size_t bytes, bool is_read)
{
    if (!held) {
        sh_bulk_reply(bulk, in->reply_to, in->type, is_read);
        return;
    }
    if (is_read && !bytes_count(held, bytes)) {
        sh_bulk_drop(bulk);
        sh_answer_error(in, held, SHOAL_EBUSY, NULL);
        return;
    }
    held->kind = HELD_BULK;
    held->bulk = bulk;
    held->is_read = is_read;
    held_wait(held);
}
