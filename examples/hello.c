/* A store inside this process: create a chunk, put bytes into it, get them back.
 *
 *     cc hello.c $(pkg-config --cflags --libs shoal) -o hello && ./hello
 *
 * No daemon and no socket is involved: without addresses, shoal_open starts a whole node in the
 * calling process. With the address of a cluster's node the same program would work on that. */
#include <stdio.h>
#include <string.h>

#include <shoal/shoal.h>

/* Says what failed, with the library's own words about it. */
static int complain(const char *what, enum shoal_err err)
{
    fprintf(stderr, "hello: %s: %s (%s) %s\n", what, shoal_err_text(err), shoal_err_hint(err),
            shoal_error_detail());
    return 1;
}

static int greet(shoal *store)
{
    const char greeting[] = "hello from a chunk";
    char answer[64];
    uint32_t size;
    shoal_cid cid;

    /* A chunk keeps its size until it is resized; its ID is all that is needed to find it. */
    enum shoal_err err = shoal_create(store, SHOAL_NID_NONE, sizeof greeting, &cid);
    if (err != SHOAL_OK) {
        return complain("create", err);
    }
    err = shoal_put(store, cid, greeting, sizeof greeting);
    if (err != SHOAL_OK) {
        return complain("put", err);
    }
    err = shoal_get(store, cid, answer, sizeof answer, &size);
    if (err != SHOAL_OK) {
        return complain("get", err);
    }
    printf("chunk %016llx holds %u bytes: %s\n", (unsigned long long)cid.v, (unsigned)size, answer);
    err = shoal_remove(store, cid);
    return err == SHOAL_OK ? 0 : complain("remove", err);
}

int main(void)
{
    shoal *store;
    enum shoal_err err = shoal_open(NULL, &store);
    if (err != SHOAL_OK) {
        return complain("open", err);
    }
    int status = greet(store);
    shoal_close(store);
    return status;
}
