/* How a thread begins that runs code in C alone. */

#ifndef AIOKC_OWN_THREAD_H
#define AIOKC_OWN_THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

/* Start a thread that nobody joins. Return an errno. It gets no signals: those are for the threads of Python, which
 * wait for them. */
static inline int start_own_thread(void *(*serve)(void *), void *argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = pthread_attr_init(&attributes);
    if (error != 0)
        return error;
    pthread_attr_setstacksize(&attributes, (size_t)256 << 10);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&thread, &attributes, serve, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return error;
}

#endif
