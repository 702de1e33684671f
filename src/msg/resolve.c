#include "msg/resolve_int.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/lock.h"

enum lookup_state { WAITS, RUNS, DONE };

struct lookup {
    struct lookup *next;
    enum lookup_state state;
    bool is_canceled; /* RUNS: freed when it ends */
    struct sh_resolved resolved;
    char address[SH_WIRE_ADDRESS_MAX];
};

struct sh_resolver {
    struct sh_lock lock;  /* guards all, but for the flag */
    struct sh_wire *wire; /* NULL: it is gone */
    struct lookup *first;
    unsigned threads;
    unsigned holders;         /* the wire and the threads: the last one frees */
    _Atomic bool has_results; /* poll looks at this alone while there are none */
};

static void release(struct sh_resolver *resolver)
{
    sh_lock_assert_held(&resolver->lock);
    bool is_last = --resolver->holders == 0;
    sh_lock_release(&resolver->lock);
    if (!is_last)
        return;
    sh_lock_destroy(&resolver->lock);
    free(resolver);
}

static struct lookup *waiting(const struct sh_resolver *resolver)
{
    struct lookup *lookup = resolver->first;
    while (lookup && lookup->state != WAITS)
        lookup = lookup->next;
    return lookup;
}

static void unlink_lookup(struct sh_resolver *resolver, struct lookup *lookup)
{
    struct lookup **at = &resolver->first;
    while (*at != lookup)
        at = &(*at)->next;
    *at = lookup->next;
    free(lookup);
}

/* Looks one up. The lock is held, but not meanwhile. */
static void look_up(struct sh_resolver *resolver, struct lookup *lookup)
{
    lookup->state = RUNS;
    sh_lock_release(&resolver->lock);
    lookup->resolved.is_found =
        sh_sock_address_find(lookup->address, &lookup->resolved.address) == SHOAL_OK;
    sh_lock_take(&resolver->lock);
    lookup->state = DONE;
    if (lookup->is_canceled) {
        unlink_lookup(resolver, lookup);
        return;
    }
    /* seq_cst: before the signal, whose poll looks at it */
    atomic_store(&resolver->has_results, true);
    /* Under the lock, so that the wire is there; all it does is wake who waits. */
    resolver->wire->ops->signal(resolver->wire);
}

static void *resolver_thread(void *arg)
{
    struct sh_resolver *resolver = arg;
    struct lookup *lookup;
    sh_lock_take(&resolver->lock);
    while ((lookup = waiting(resolver)))
        look_up(resolver, lookup);
    resolver->threads--;
    release(resolver);
    return NULL;
}

/* Lock held. False: the system has no thread to give. */
static bool thread_start(struct sh_resolver *resolver)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, old;
    if (pthread_attr_init(&attributes) != 0)
        return false;
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    /* Signals are the application's business; its own threads take them. */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    bool is_started = pthread_create(&thread, &attributes, resolver_thread, resolver) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    (void)pthread_attr_destroy(&attributes);
    if (is_started) {
        resolver->threads++;
        resolver->holders++;
    }
    return is_started;
}

static struct sh_resolver *resolver_new(struct sh_wire *wire)
{
    struct sh_resolver *resolver = calloc(1, sizeof *resolver);
    if (!resolver)
        return NULL;
    sh_lock_init(&resolver->lock, SH_LOCK_MSG_RESOLVER);
    resolver->wire = wire;
    resolver->holders = 1;
    return resolver;
}

enum shoal_err sh_resolver_add(struct sh_resolver **resolver_at, struct sh_wire *wire,
                               const char *address, sh_link link)
{
    SH_ASSERT(strlen(address) < SH_WIRE_ADDRESS_MAX);
    if (!*resolver_at)
        *resolver_at = resolver_new(wire);
    struct sh_resolver *resolver = *resolver_at;
    struct lookup *lookup = resolver ? calloc(1, sizeof *lookup) : NULL;
    if (!lookup)
        return SHOAL_ENOMEM;
    lookup->resolved.link = link;
    memcpy(lookup->address, address, strlen(address) + 1);
    sh_lock_take(&resolver->lock);
    /* To the end: first come, first served. */
    struct lookup **at = &resolver->first;
    while (*at)
        at = &(*at)->next;
    *at = lookup;
    bool has_thread =
        resolver->threads == SH_RESOLVER_THREADS || thread_start(resolver) || resolver->threads > 0;
    if (!has_thread)
        unlink_lookup(resolver, lookup);
    sh_lock_release(&resolver->lock);
    return has_thread ? SHOAL_OK : SHOAL_ENOMEM;
}

bool sh_resolver_take(struct sh_resolver *resolver, struct sh_resolved *resolved_out)
{
    /* seq_cst: the signal may have been one with an earlier one; whoever has cleared that sees it
     */
    if (!resolver || !atomic_load(&resolver->has_results))
        return false;
    sh_lock_take(&resolver->lock);
    struct lookup *lookup = resolver->first;
    while (lookup && lookup->state != DONE)
        lookup = lookup->next;
    if (lookup) {
        *resolved_out = lookup->resolved;
        unlink_lookup(resolver, lookup);
    } else {
        atomic_store(&resolver->has_results, false);
    }
    bool has_one = lookup != NULL;
    sh_lock_release(&resolver->lock);
    return has_one;
}

/* Lock held. */
static void forget(struct sh_resolver *resolver, struct lookup *lookup)
{
    if (lookup->state == RUNS)
        lookup->is_canceled = true;
    else
        unlink_lookup(resolver, lookup);
}

void sh_resolver_cancel(struct sh_resolver *resolver, sh_link link)
{
    if (!resolver)
        return;
    sh_lock_take(&resolver->lock);
    struct lookup *lookup = resolver->first;
    while (lookup && (lookup->resolved.link != link || lookup->is_canceled))
        lookup = lookup->next;
    if (lookup)
        forget(resolver, lookup);
    sh_lock_release(&resolver->lock);
}

void sh_resolver_destroy(struct sh_resolver *resolver)
{
    if (!resolver)
        return;
    sh_lock_take(&resolver->lock);
    struct lookup *next;
    for (struct lookup *lookup = resolver->first; lookup; lookup = next) {
        next = lookup->next;
        forget(resolver, lookup);
    }
    resolver->wire = NULL;
    release(resolver);
}
