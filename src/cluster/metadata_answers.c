/* Answers about names, barriers and scratch as bytes. */
#include "cluster/metadata_answers.h"

#include "base/assert.h"
#include "cluster/proto.h"

size_t sh_metadata_page_put(const struct sh_metadata *metadata, uint8_t kind, unsigned shard,
                            struct sh_bytes prefix, struct sh_bytes after,
                            uint8_t bytes[SH_METADATA_PAGE_BYTES])
{
    struct sh_writer w = sh_writer_make(bytes, SH_METADATA_PAGE_BYTES);
    struct sh_bytes key = after.size ? after : (struct sh_bytes){NULL, 0};
    struct sh_bytes value;
    shoal_cid cid;
    bool is_more = false;
    sh_put8(&w, 0);
    for (;;) {
        bool is_there = kind == SH_ASK_NAMES
                            ? sh_metadata_name_next(metadata, shard, prefix, key, &key, &cid)
                            : sh_metadata_scratch_next(metadata, shard, prefix, key, &key, &value);
        is_more = is_there && (size_t)(w.end - w.at) < key.size + 10;
        if (!is_there || is_more)
            break;
        sh_put_text(&w, key);
        if (kind == SH_ASK_NAMES)
            sh_put64(&w, cid.v);
        else
            sh_put32(&w, (uint32_t)value.size);
    }
    SH_ASSERT(sh_writer_ok(&w));
    bytes[0] = is_more;
    return (size_t)(w.at - bytes);
}

size_t sh_barriers_put(const struct sh_metadata *metadata, unsigned shard,
                       uint8_t bytes[SH_METADATA_PAGE_BYTES])
{
    _Static_assert(SH_BARRIERS_MAX * 25 <= SH_METADATA_PAGE_BYTES, "all of a shard are one page");
    struct sh_writer w = sh_writer_make(bytes, SH_METADATA_PAGE_BYTES);
    const struct sh_barrier *barrier;
    for (size_t i = 0; (barrier = sh_metadata_barrier_at(metadata, shard, i)); i++) {
        sh_put64(&w, barrier->id);
        sh_put32(&w, barrier->size);
        sh_put8(&w, barrier->flags);
        sh_put64(&w, barrier->open.number);
        sh_put32(&w, (uint32_t)barrier->open.count);
    }
    SH_ASSERT(sh_writer_ok(&w));
    return (size_t)(w.at - bytes);
}

enum shoal_err sh_barrier_look(struct sh_barrier *barrier, uint64_t round, uint64_t member,
                               struct sh_barrier_member **member_out,
                               const struct sh_barrier_round **round_out)
{
    if (round == barrier->open.number) {
        size_t at = 0;
        while (at < barrier->open.count && sh_barrier_member(&barrier->open, at)->id != member)
            at++;
        if (at == barrier->open.count)
            return SHOAL_EBROKEN;
        *member_out = sh_barrier_member(&barrier->open, at);
        return SHOAL_EAGAIN;
    }
    *round_out = NULL;
    if (!round)
        *round_out = &barrier->open;
    else if (round == barrier->last.number)
        *round_out = &barrier->last;
    return SHOAL_OK;
}

size_t sh_barrier_answer_size(const struct sh_barrier_round *round)
{
    size_t size = 18 + (round ? 12 : 0);
    for (size_t i = 0; round && i < round->count; i++)
        size += 10 + sh_barrier_member(round, i)->size;
    return size;
}

void sh_barrier_answer_put(struct sh_writer *w, const struct sh_barrier *barrier,
                           const struct sh_barrier_round *round)
{
    sh_put32(w, barrier->size);
    sh_put8(w, barrier->flags);
    sh_put64(w, barrier->open.number);
    sh_put32(w, (uint32_t)barrier->open.count);
    sh_put8(w, round != NULL);
    if (round) {
        sh_put64(w, round->gone);
        sh_put32(w, (uint32_t)round->count);
    }
    for (size_t i = 0; round && i < round->count; i++) {
        const struct sh_barrier_member *member = sh_barrier_member(round, i);
        sh_put64(w, member->id);
        sh_put_text(w, sh_bytes_make(member->bytes, member->size));
    }
}
