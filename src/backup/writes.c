/* The one way in: the store's changes, for a write that stands for them. */
#include "backup/backup_int.h"
#include "store/dump.h"

/* The calling thread changes chunks for that write, until it is over. */
static void change_begin(struct sh_backup *backup, struct sh_write *write)
{
    if (!backup->is_on)
        return;
    /* acquire: room that is given from here on is after what is refused now */
    write->room_seen = atomic_load_explicit(&backup->rooms, memory_order_acquire);
    write->was_refused = false;
    sh_backup_writer_set(write);
}

static void change_end(const struct sh_backup *backup)
{
    if (backup->is_on)
        sh_backup_writer_set(NULL);
}

enum shoal_err sh_backup_new_as(struct sh_backup *backup, struct sh_write *write,
                                const struct sh_store_wish *wish, shoal_cid *cids_out,
                                size_t *made_out)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_new_as(backup->config.store, wish, cids_out, made_out);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_put(struct sh_backup *backup, struct sh_write *write, shoal_cid cid,
                             struct sh_bytes data)
{
    if (!backup->is_on)
        return sh_store_put(backup->config.store, cid, data);
    change_begin(backup, write);
    enum shoal_err err = sh_store_put(backup->config.store, cid, data);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_rewrite(struct sh_backup *backup, struct sh_write *write,
                                 const struct sh_store_rewrite *rewrite)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_rewrite_do(backup->config.store, rewrite);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_adopt(struct sh_backup *backup, struct sh_write *write, shoal_cid cid,
                               struct sh_bytes data)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_adopt(backup->config.store, cid, data);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_remove(struct sh_backup *backup, struct sh_write *write, shoal_cid cid)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_remove(backup->config.store, cid);
    change_end(backup);
    return err;
}

size_t sh_backup_put_multi(struct sh_backup *backup, struct sh_write *write,
                           struct sh_store_op *ops, size_t count)
{
    change_begin(backup, write);
    size_t done = sh_store_put_multi(backup->config.store, ops, count);
    change_end(backup);
    return done;
}

size_t sh_backup_resize_multi(struct sh_backup *backup, struct sh_write *write,
                              struct sh_store_op *ops, size_t count)
{
    change_begin(backup, write);
    size_t done = sh_store_resize_multi(backup->config.store, ops, count);
    change_end(backup);
    return done;
}

size_t sh_backup_remove_multi(struct sh_backup *backup, struct sh_write *write,
                              const shoal_cid *cids, size_t count, enum shoal_err *errs_out)
{
    change_begin(backup, write);
    size_t done = sh_store_remove_multi(backup->config.store, cids, count, errs_out);
    change_end(backup);
    return done;
}

bool sh_backup_rewriting_step(struct sh_backup *backup, struct sh_write *write,
                              struct sh_store_rewriting *rewriting)
{
    change_begin(backup, write);
    bool is_over = sh_store_rewriting_step(rewriting);
    change_end(backup);
    return is_over;
}

bool sh_backup_making_step(struct sh_backup *backup, struct sh_write *write,
                           struct sh_store_making *making, size_t chunks_most)
{
    change_begin(backup, write);
    bool is_over = sh_store_making_step(making, chunks_most);
    change_end(backup);
    return is_over;
}

enum shoal_err sh_backup_new_many(struct sh_backup *backup, struct sh_write *write, uint32_t size,
                                  size_t count, shoal_cid *cids_out)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_new_many(backup->config.store, size, count, cids_out);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_release(struct sh_backup *backup, struct sh_write *write, shoal_cid cid)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_release(backup->config.store, cid);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_hand_back(struct sh_backup *backup, struct sh_write *write, shoal_cid cid)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_hand_back(backup->config.store, cid);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_take_over(struct sh_backup *backup, struct sh_write *write, shoal_cid cid,
                                   struct sh_bytes data)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_take_over(backup->config.store, cid, data);
    change_end(backup);
    return err;
}

enum shoal_err sh_backup_arriving_end(struct sh_backup *backup, struct sh_write *write,
                                      struct sh_store_arriving *arriving)
{
    change_begin(backup, write);
    enum shoal_err err = sh_store_arriving_end(backup->config.store, arriving);
    change_end(backup);
    return err;
}

unsigned sh_backup_load_step(struct sh_backup *backup, struct sh_write *write, struct sh_load *load,
                             unsigned budget_bytes)
{
    change_begin(backup, write);
    unsigned done = sh_load_step(load, budget_bytes);
    change_end(backup);
    return done;
}
