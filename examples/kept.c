/* A store inside this process that is found again: counts how often the program was started, in a folder of its own.
 *
 *     cc kept.c $(pkg-config --cflags --libs shoal) -o kept
 *     ./kept /tmp/kept && ./kept /tmp/kept
 *
 * With a data_dir, shoal_open keeps all chunks and names in that folder too. When a call returns, a process that is
 * killed loses nothing of it; after shoal_level_use(SHOAL_DURABLE), nor does a machine whose power fails. */
#include <stdio.h>

#include <shoal/names.h>
#include <shoal/shoal.h>

/* Says what failed, with the library's own words about it. */
static int complain(const char *what, enum shoal_err err)
{
    fprintf(stderr, "kept: %s: %s (%s) %s\n", what, shoal_err_text(err), shoal_err_hint(err),
            shoal_error_detail());
    return 1;
}

/* The chunk that counts; its name is given once it is there for good. */
static enum shoal_err counter_find(shoal *store, shoal_cid *cid_out)
{
    enum shoal_err err = shoal_name_get(store, "starts", cid_out);
    if (err != SHOAL_ENONAME) {
        return err;
    }
    err = shoal_create(store, SHOAL_NID_NONE, 8, cid_out);
    if (err == SHOAL_OK) {
        err = shoal_sync(store);
    }
    if (err == SHOAL_OK) {
        err = shoal_name_set(store, "starts", *cid_out, SHOAL_NAME_ABSENT, SHOAL_CID_NONE, NULL);
    }
    return err;
}

static int count(shoal *store)
{
    shoal_cid cid;
    uint64_t before;
    enum shoal_err err = counter_find(store, &cid);
    if (err != SHOAL_OK) {
        return complain("the counter", err);
    }
    err = shoal_add(store, cid, 0, 8, 1, &before);
    if (err != SHOAL_OK) {
        return complain("add", err);
    }
    printf("started %llu times\n", (unsigned long long)before + 1);
    return 0;
}

int main(int argc, char **argv)
{
    struct shoal_options options = {.data_dir = argc > 1 ? argv[1] : "kept-store"};
    shoal *store;
    enum shoal_err err = shoal_open(&options, &store);
    if (err != SHOAL_OK) {
        return complain("open", err);
    }
    int status = count(store);
    shoal_close(store);
    return status;
}
