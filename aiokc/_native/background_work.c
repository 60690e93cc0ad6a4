/* One thread of the process takes the work of all event loops, in the order in which it began.
 *
 * Whoever needs the outcome before the thread has come to that runs it in its own thread: so nobody waits for the work
 * of others, and a process whose CPUs are busy is not slower for the thread. It is never ended: it waits, and goes with
 * the process.
 *
 * A forked child has no such thread, and a copy of the lock in whatever state it was. So the child begins anew, as
 * another family; what its parent began it neither runs nor waits for. */

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* pthread_setname_np() */
#endif

#include "background_work.h"

#if !defined(_WIN32)

#include "own_thread.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t has_begun = PTHREAD_COND_INITIALIZER;
static pthread_cond_t has_ended = PTHREAD_COND_INITIALIZER;
static BackgroundWork *waiting;
static int has_thread;
static unsigned family;

static void begin_anew_in_child(void) {
    lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    has_begun = has_ended = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    waiting = NULL;
    has_thread = 0;
    family++;
}

static void *serve(void *argument) {
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "aiokc unpacking");
#elif defined(__APPLE__)
    pthread_setname_np("aiokc unpacking");
#endif
    pthread_mutex_lock(&lock);
    for (;;) {
        while (waiting == NULL)
            pthread_cond_wait(&has_begun, &lock);
        BackgroundWork *work = waiting;
        waiting = work->next;
        work->state = RUNS;
        pthread_mutex_unlock(&lock);
        work->run(work);
        pthread_mutex_lock(&lock);
        work->state = ENDED;
        pthread_cond_broadcast(&has_ended);
    }
    return argument;
}

static int start_thread(void) {
    static int is_told_of_forks;
    int error = is_told_of_forks ? 0 : pthread_atfork(NULL, NULL, begin_anew_in_child);
    if (error != 0)
        return error;
    is_told_of_forks = 1;
    error = start_own_thread(serve, NULL);
    has_thread = error == 0;
    return error;
}

int background_begin(BackgroundWork *work) {
    pthread_mutex_lock(&lock);
    int error = has_thread ? 0 : start_thread();
    if (error == 0) {
        BackgroundWork **end = &waiting;
        while (*end != NULL)
            end = &(*end)->next;
        *end = work;
        work->next = NULL;
        work->state = WAITS;
        work->family = family;
        pthread_cond_signal(&has_begun);
    }
    pthread_mutex_unlock(&lock);
    return error;
}

static void take_back(BackgroundWork *work) {
    BackgroundWork **place = &waiting;
    while (*place != work)
        place = &(*place)->next;
    *place = work->next;
    work->state = ENDED;
}

/* A wait is over when the work is; a clock that is put back meanwhile makes it no longer than that. */
static void wait_for(const BackgroundWork *work, long most) {
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += most % 1000000 * 1000;
    until.tv_sec += most / 1000000 + until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    while (work->state == RUNS) {
        if (most < 0)
            pthread_cond_wait(&has_ended, &lock);
        else if (pthread_cond_timedwait(&has_ended, &lock, &until) == ETIMEDOUT)
            return;
    }
}

int background_end(BackgroundWork *work, long most) {
    if (work->family != family)
        return 0;
    pthread_mutex_lock(&lock);
    if (work->state == WAITS) {
        take_back(work);
        pthread_mutex_unlock(&lock);
        work->run(work);
        return 1;
    }
    wait_for(work, most);
    int is_over = work->state == ENDED;
    pthread_mutex_unlock(&lock);
    return is_over;
}

int background_cancel(BackgroundWork *work) {
    if (work->family != family)
        return 1; /* the thread that would run it is not in this process */
    pthread_mutex_lock(&lock);
    if (work->state == WAITS)
        take_back(work);
    int is_over = work->state == ENDED;
    pthread_mutex_unlock(&lock);
    return is_over;
}

#endif
