/* Work that a thread of its own does beside those of Python. It must not touch Python's objects. */

#ifndef AIOKC_BACKGROUND_WORK_H
#define AIOKC_BACKGROUND_WORK_H

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

enum { WAITS, RUNS, ENDED };

/* A piece of work, in the memory of who has it done; the first member of a struct that says what is to be done. */
typedef struct BackgroundWork {
    void (*run)(struct BackgroundWork *work);
    struct BackgroundWork *next;
    unsigned family; /* the process that began it: each child that is forked is another one */
    int state;
} BackgroundWork;

/* Have the thread ``run`` it. Return an errno: then nothing has begun. */
int background_begin(BackgroundWork *work);

/* Wait until it has ended, ``most`` microseconds at most (below 0: however long it takes). What has not begun is run
 * here instead. Return whether it has ended; 0 in a forked child for what its parent began, since nobody runs that. */
int background_end(BackgroundWork *work, long most);

/* Return whether it has ended, or will never begin from here on. */
int background_cancel(BackgroundWork *work);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
