/* A program on libshoal that the end-to-end tests drive: it keeps one cluster open, takes one
 * command a line from its standard input, and answers each with one line.
 *
 *     e2e_client ADDRESSES TIMEOUT_NS SECRET_FILE      ("" for none)
 *
 *     create SIZE [NID]   ok NODE:LOCAL        size CID        ok SIZE
 *     put CID TEXT        ok                   get CID         ok TEXT
 *     add CID NUMBER      ok SUM               remove CID      ok
 *     creates COUNT SIZE NID                   ok NODE:LOCAL ...
 *     mput TEXT CID ...   each NAME ...        mget CID ...    each NAME:TEXT ...      (the error's name of each operation)
 *     mresize SIZE CID ... each NAME ...       mremove CID ... each NAME ...
 *     lock CID OWNER      ok                   unlock, extend  (for writing, at once; its lease is a minute)
 *     name NAME CID       ok                   named NAME      ok NODE:LOCAL
 *     level LEVEL         ok                   sync            ok       (async, replicated, durable, or default)
 *     nodes               ok NID:STATE:ADDRESS ...   (STATE as the public header numbers it)
 *
 * A failure is "NAME detail", with the error's name. Ends at the end of its input. */
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shoal/names.h"
#include "shoal/shoal.h"

#define LINE_MAX_BYTES 4096
#define NODES_MAX 1024
#define OPS_MAX 256
#define ROOM_BYTES 64
#define LEASE_NS UINT64_C(60000000000)

static void answer_error(enum shoal_err err)
{
    printf("%s %s\n", shoal_err_name(err), shoal_error_detail());
}

static bool cid_read(const char *text, shoal_cid *cid_out)
{
    unsigned node;
    uint64_t local;
    if (sscanf(text, "%u:%" SCNu64, &node, &local) != 2 || node > UINT16_MAX)
        return false;
    cid_out->v = (uint64_t)node << 48 | local;
    return true;
}

static void cid_answer(shoal_cid cid)
{
    printf("ok %u:%" PRIu64 "\n", (unsigned)(cid.v >> 48), cid.v & UINT64_C(0xffffffffffff));
}

static enum shoal_err run_create(shoal *store, const char *rest)
{
    unsigned size, node = 0;
    shoal_cid cid;
    if (sscanf(rest, "%u %u", &size, &node) < 1 || node > UINT16_MAX)
        return SHOAL_EINVAL;
    enum shoal_err err = shoal_create(store, (shoal_nid){(uint16_t)node}, size, &cid);
    if (!err)
        cid_answer(cid);
    return err;
}

static enum shoal_err run_nodes(shoal *store)
{
    static struct shoal_node nodes[NODES_MAX];
    size_t count;
    enum shoal_err err = shoal_nodes(store, nodes, NODES_MAX, &count);
    if (err)
        return err;
    printf("ok");
    for (size_t i = 0; i < count && i < NODES_MAX; i++)
        printf(" %u:%d:%s", (unsigned)nodes[i].nid.v, (int)nodes[i].state, nodes[i].address);
    printf("\n");
    return SHOAL_OK;
}

static enum shoal_err run_get(shoal *store, shoal_cid cid)
{
    char text[LINE_MAX_BYTES];
    uint32_t size;
    enum shoal_err err = shoal_get(store, cid, text, sizeof text, &size);
    if (!err)
        printf("ok %.*s\n", (int)size, text);
    return err;
}

static enum shoal_err multi_do(shoal *store, const shoal_cid *cids, size_t count, uint32_t size,
                               uint8_t *in, uint8_t *out, struct shoal_op *ops)
{
    for (size_t i = 0; i < count; i++)
        ops[i] = (struct shoal_op){.cid = cids[i], .data = in + i * size, .size = size};
    enum shoal_err err = shoal_multi_put(store, ops, count);
    for (size_t i = 0; i < count; i++)
        ops[i].data = out + i * size;
    if (!err)
        err = shoal_multi_get(store, ops, count);
    if (!err && memcmp(in, out, count * size) != 0)
        err = SHOAL_EDIFFERS;
    for (size_t i = 0; i < count; i++)
        ops[i].size = size / 2;
    if (!err)
        err = shoal_multi_resize(store, ops, count);
    return err ? err : shoal_multi_remove(store, ops, count);
}

/* Creates so many chunks on a node, and puts, gets, resizes and removes all of them with a call each. */
static enum shoal_err run_multi(shoal *store, const char *rest)
{
    unsigned count, size, node;
    if (sscanf(rest, "%u %u %u", &count, &size, &node) != 3 || !count || !size || node > UINT16_MAX)
        return SHOAL_EINVAL;
    enum shoal_err err = SHOAL_ENOMEM;
    shoal_cid *cids = calloc(count, sizeof *cids);
    struct shoal_op *ops = calloc(count, sizeof *ops);
    uint8_t *in = malloc((size_t)count * size), *out = calloc(count, size);
    if (cids && ops && in && out) {
        for (size_t i = 0; i < (size_t)count * size; i++)
            in[i] = (uint8_t)(i / size + i);
        err = shoal_create_many(store, (shoal_nid){(uint16_t)node}, size, count, cids);
    }
    if (!err)
        err = multi_do(store, cids, count, size, in, out, ops);
    if (!err)
        printf("ok %u\n", count);
    free(out);
    free(in);
    free(ops);
    free(cids);
    return err;
}

static enum shoal_err run_creates(shoal *store, const char *rest)
{
    shoal_cid cids[OPS_MAX];
    unsigned count, size, node;
    if (sscanf(rest, "%u %u %u", &count, &size, &node) != 3 || count > OPS_MAX || node > UINT16_MAX)
        return SHOAL_EINVAL;
    enum shoal_err err = shoal_create_many(store, (shoal_nid){(uint16_t)node}, size, count, cids);
    if (err)
        return err;
    printf("ok");
    for (unsigned i = 0; i < count; i++)
        printf(" %u:%" PRIu64, (unsigned)(cids[i].v >> 48), cids[i].v & UINT64_C(0xffffffffffff));
    printf("\n");
    return SHOAL_OK;
}

/* mput, mget, mresize and mremove: their operations may fail one by one. */
static enum shoal_err run_each(shoal *store, const char *command, char *rest)
{
    static char got[OPS_MAX][ROOM_BYTES];
    struct shoal_op ops[OPS_MAX];
    size_t count = 0;
    bool is_get = strcmp(command, "mget") == 0;
    bool has_word = strcmp(command, "mput") == 0 || strcmp(command, "mresize") == 0;
    char *word = has_word ? strtok(rest, " ") : NULL;
    for (char *text = strtok(has_word ? NULL : rest, " "); text; text = strtok(NULL, " ")) {
        struct shoal_op *op = &ops[count];
        *op = (struct shoal_op){.data = is_get ? got[count] : word, .size = ROOM_BYTES};
        if (++count == OPS_MAX || !cid_read(text, &op->cid))
            return SHOAL_EINVAL;
        if (has_word)
            op->size = strcmp(command, "mput") == 0 ? (uint32_t)strlen(word) : (uint32_t)atoi(word);
    }
    if (is_get)
        (void)!shoal_multi_get(store, ops, count);
    else if (strcmp(command, "mput") == 0)
        (void)!shoal_multi_put(store, ops, count);
    else if (strcmp(command, "mresize") == 0)
        (void)!shoal_multi_resize(store, ops, count);
    else if (strcmp(command, "mremove") == 0)
        (void)!shoal_multi_remove(store, ops, count);
    else
        return SHOAL_EINVAL;
    printf("each");
    for (size_t i = 0; i < count; i++) {
        printf(" %s", shoal_err_name(ops[i].err));
        if (is_get && !ops[i].err)
            printf(":%.*s", (int)ops[i].size, got[i]);
    }
    printf("\n");
    return SHOAL_OK;
}

static enum shoal_err run_lock(shoal *store, const char *command, shoal_cid cid, const char *rest)
{
    const shoal_owner owner = {strtoull(rest, NULL, 10)};
    enum shoal_err err = SHOAL_EINVAL;
    if (strcmp(command, "lock") == 0)
        err = shoal_lock(store, cid, owner, SHOAL_LOCK_WRITE, LEASE_NS, 0);
    else if (strcmp(command, "unlock") == 0)
        err = shoal_unlock(store, cid, owner);
    else if (strcmp(command, "extend") == 0)
        err = shoal_lock_extend(store, cid, owner, LEASE_NS);
    if (!err)
        printf("ok\n");
    return err;
}

/* The commands about one chunk; rest is what follows its ID. */
static enum shoal_err run_chunk(shoal *store, const char *command, shoal_cid cid, const char *rest)
{
    enum shoal_err err = SHOAL_EINVAL;
    uint64_t old;
    uint32_t size;
    if (strcmp(command, "get") == 0)
        return run_get(store, cid);
    if (strcmp(command, "add") == 0) {
        uint64_t delta = (uint64_t)strtoll(rest, NULL, 10);
        err = shoal_add(store, cid, 0, 8, delta, &old);
        if (!err)
            printf("ok %" PRIu64 "\n", old + delta);
        return err;
    }
    if (strcmp(command, "size") == 0) {
        err = shoal_size(store, cid, &size);
        if (!err)
            printf("ok %u\n", (unsigned)size);
        return err;
    }
    if (strstr(command, "lock") || strcmp(command, "extend") == 0)
        return run_lock(store, command, cid, rest);
    if (strcmp(command, "put") == 0)
        err = shoal_put(store, cid, rest, (uint32_t)strlen(rest));
    else if (strcmp(command, "remove") == 0)
        err = shoal_remove(store, cid);
    if (!err)
        printf("ok\n");
    return err;
}

static enum shoal_err run_name(shoal *store, const char *name, const char *rest)
{
    shoal_cid cid;
    if (!cid_read(rest, &cid))
        return SHOAL_EINVAL;
    enum shoal_err err = shoal_name_set(store, name, cid, SHOAL_NAME_ALWAYS, SHOAL_CID_NONE, NULL);
    if (!err)
        printf("ok\n");
    return err;
}

static enum shoal_err run_named(shoal *store, const char *name)
{
    shoal_cid cid;
    enum shoal_err err = shoal_name_get(store, name, &cid);
    if (!err)
        cid_answer(cid);
    return err;
}

/* Cuts the first word off a line, in place; returns what follows it. */
static char *word_cut(char *line)
{
    char *end = line + strcspn(line, " ");
    if (*end)
        *end++ = '\0';
    return end;
}

static enum shoal_err run_level(const char *name)
{
    static const char *const names[] = {"default", "async", "replicated", "durable"};
    for (unsigned level = 0; level < 4; level++) {
        if (strcmp(name, names[level]) != 0)
            continue;
        enum shoal_err err = shoal_level_use((enum shoal_level)level);
        if (!err)
            printf("ok\n");
        return err;
    }
    return SHOAL_EINVAL;
}

static enum shoal_err run_sync(shoal *store)
{
    enum shoal_err err = shoal_sync(store);
    if (!err)
        printf("ok\n");
    return err;
}

static enum shoal_err run(shoal *store, char *line)
{
    char *rest = word_cut(line);
    shoal_cid cid;
    if (strcmp(line, "create") == 0)
        return run_create(store, rest);
    if (strcmp(line, "nodes") == 0)
        return run_nodes(store);
    if (strcmp(line, "multi") == 0)
        return run_multi(store, rest);
    if (strcmp(line, "creates") == 0)
        return run_creates(store, rest);
    if (*line == 'm')
        return run_each(store, line, rest);
    if (strcmp(line, "level") == 0)
        return run_level(rest);
    if (strcmp(line, "sync") == 0)
        return run_sync(store);
    char *behind = word_cut(rest);
    if (strcmp(line, "name") == 0)
        return run_name(store, rest, behind);
    if (strcmp(line, "named") == 0)
        return run_named(store, rest);
    return cid_read(rest, &cid) ? run_chunk(store, line, cid, behind) : SHOAL_EINVAL;
}

int main(int argc, char **argv)
{
    char line[LINE_MAX_BYTES];
    if (argc != 4) {
        fprintf(stderr, "usage: e2e_client ADDRESSES TIMEOUT_NS SECRET_FILE\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    struct shoal_options options = {.addresses = argv[1],
                                    .timeout_ns = strtoull(argv[2], NULL, 10),
                                    .secret_file = argv[3][0] ? argv[3] : NULL};
    shoal *store;
    enum shoal_err err = shoal_open(&options, &store);
    if (err) {
        answer_error(err);
        return 1;
    }
    printf("ok\n");
    while (fgets(line, sizeof line, stdin)) {
        line[strcspn(line, "\n")] = '\0';
        err = run(store, line);
        if (err)
            answer_error(err);
    }
    shoal_close(store);
    return 0;
}
