/* The traits of a peer as bytes. */
#include "cluster/traits.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"

#define KEEPS_REPLICAS 1u
#define FLAG_OF(domain) (2u << (domain))
#define KEEPS_CHUNKS FLAG_OF(SH_DOMAINS)
#define IS_REPLICATED (2 * KEEPS_CHUNKS)
#define FLAGS_ALL (2 * IS_REPLICATED - 1)

_Static_assert(FLAGS_ALL <= UINT8_MAX, "a byte holds the flags");

bool sh_traits_are_valid(const struct sh_traits *traits)
{
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        const char *name = traits->domains[i];
        if (!memchr(name, '\0', SH_DOMAIN_NAME_MAX) ||
            (*name && !sh_bytes_are_word(sh_bytes_text(name))))
            return false;
    }
    return true;
}

bool sh_traits_are_equal(const struct sh_traits *a, const struct sh_traits *b)
{
    bool are_equal = a->keeps_replicas == b->keeps_replicas && a->keeps_chunks == b->keeps_chunks &&
                     a->is_replicated == b->is_replicated;
    for (unsigned i = 0; are_equal && i < SH_DOMAINS; i++)
        are_equal = strcmp(a->domains[i], b->domains[i]) == 0;
    return are_equal;
}

size_t sh_traits_size(const struct sh_traits *traits)
{
    size_t size = 1;
    for (unsigned i = 0; i < SH_DOMAINS; i++)
        size += *traits->domains[i] ? 2 + strlen(traits->domains[i]) : 0;
    SH_ASSERT(size <= SH_TRAITS_BYTES_MAX);
    return size;
}

void sh_traits_put(struct sh_writer *w, const struct sh_traits *traits)
{
    unsigned flags = traits->keeps_replicas ? KEEPS_REPLICAS : 0;
    flags |= traits->keeps_chunks ? KEEPS_CHUNKS : 0;
    flags |= traits->is_replicated ? IS_REPLICATED : 0;
    for (unsigned i = 0; i < SH_DOMAINS; i++)
        flags |= *traits->domains[i] ? FLAG_OF(i) : 0;
    sh_put8(w, (uint8_t)flags);
    for (unsigned i = 0; i < SH_DOMAINS; i++)
        if (*traits->domains[i])
            sh_put_text(w, sh_bytes_text(traits->domains[i]));
}

enum shoal_err sh_traits_get(struct sh_reader *r, struct sh_traits *traits_out)
{
    unsigned flags = sh_get8(r);
    struct sh_traits traits = {.keeps_replicas = flags & KEEPS_REPLICAS,
                               .keeps_chunks = flags & KEEPS_CHUNKS,
                               .is_replicated = flags & IS_REPLICATED};
    if (flags & ~FLAGS_ALL)
        return SHOAL_EPROTO;
    for (unsigned i = 0; i < SH_DOMAINS; i++) {
        if (!(flags & FLAG_OF(i)))
            continue;
        struct sh_bytes name = sh_get_text(r);
        if (name.size >= SH_DOMAIN_NAME_MAX || !sh_bytes_are_word(name))
            return SHOAL_EPROTO;
        memcpy(traits.domains[i], name.at, name.size);
    }
    if (!sh_reader_ok(r))
        return SHOAL_EPROTO;
    *traits_out = traits;
    return SHOAL_OK;
}

uint64_t sh_traits_digest(const struct sh_traits *traits, uint64_t seed)
{
    uint64_t digest = sh_mix64(seed ^ traits->keeps_replicas ^ (uint64_t)traits->keeps_chunks << 1 ^
                               (uint64_t)traits->is_replicated << 2);
    for (unsigned i = 0; i < SH_DOMAINS; i++)
        digest = sh_hash64(sh_bytes_text(traits->domains[i]), digest);
    return digest;
}
