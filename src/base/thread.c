#include "base/thread.h"

#include <signal.h>

int sh_thread_start(pthread_t *thread_out, void *(*run)(void *arg), void *arg, const char *name)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(thread_out, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!failed)
        (void)pthread_setname_np(*thread_out, name);
    return failed;
}
