/* Work for the thread, as hard as it gets: three callers at once, each with work that takes longer or shorter, which it
 * waits for, or not long enough, or cancels. Built with ThreadSanitizer or AddressSanitizer.
 *
 * Each work writes a pattern to memory that its caller frees as soon as it is over, so that a sanitizer sees if anybody
 * writes to it afterwards. Prints how many ended in which way. */

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../aiokc/_native/background_work.h"

#define CALLERS 3
#define EACH 4

typedef struct {
    BackgroundWork work;
    unsigned char *memory; /* NULL: nothing has begun */
    size_t size;
    unsigned char pattern;
    pthread_t by;
} Piece;

typedef struct {
    pthread_t thread;
    uint64_t state;
    long rounds;
    unsigned long by_thread, here, cancelled, late;
    Piece pieces[EACH];
} Caller;

static unsigned drawn(Caller *caller, unsigned below) {
    caller->state = caller->state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(caller->state >> 33) % below;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void fill(BackgroundWork *work) {
    Piece *piece = (Piece *)((char *)work - offsetof(Piece, work));
    piece->by = pthread_self();
    memset(piece->memory, piece->pattern, piece->size);
}

static void begin(Caller *caller, Piece *piece) {
    *piece = (Piece){.work = {.run = fill}, .size = 1 + drawn(caller, drawn(caller, 4) ? 1000 : 1000000)};
    piece->pattern = (unsigned char)(1 + drawn(caller, 255));
    piece->memory = calloc(1, piece->size);
    if (piece->memory == NULL || background_begin(&piece->work) != 0)
        fail("begin");
}

static void forget(Piece *piece, unsigned char expected) {
    if (piece->memory[0] != expected || piece->memory[piece->size - 1] != expected)
        fail("it is over, and not all was written");
    free(piece->memory);
    piece->memory = NULL;
}

/* Do something with a piece that has begun: see that it ends, wait a little, or cancel it. */
static void go_on(Caller *caller, Piece *piece) {
    static const long waits[] = {-1, 0, 20, 2000};
    unsigned choice = drawn(caller, 6);
    if (choice < 4 && background_end(&piece->work, waits[choice])) {
        pthread_equal(piece->by, pthread_self()) ? caller->here++ : caller->by_thread++;
        forget(piece, piece->pattern);
    } else if (choice < 4) {
        caller->late++;
    } else if (background_cancel(&piece->work)) {
        caller->cancelled++;
        forget(piece, piece->memory[0] ? piece->pattern : 0);
    }
}

static void *drive(void *argument) {
    Caller *caller = argument;
    for (long round = 0; round < caller->rounds; round++) {
        Piece *piece = &caller->pieces[drawn(caller, EACH)];
        piece->memory == NULL ? begin(caller, piece) : go_on(caller, piece);
    }
    for (int at = 0; at < EACH; at++)
        if (caller->pieces[at].memory != NULL) {
            if (!background_end(&caller->pieces[at].work, -1))
                fail("a wait without limit has ended before the work");
            forget(&caller->pieces[at], caller->pieces[at].pattern);
        }
    return NULL;
}

int main(int count, char **arguments) {
    static Caller callers[CALLERS];
    unsigned long by_thread = 0, here = 0, cancelled = 0, late = 0;
    for (int at = 0; at < CALLERS; at++) {
        callers[at].state = (uint64_t)at + 1;
        callers[at].rounds = count > 1 ? atol(arguments[1]) : 1000;
        if (pthread_create(&callers[at].thread, NULL, drive, &callers[at]) != 0)
            fail("no thread");
    }
    for (int at = 0; at < CALLERS; at++) {
        pthread_join(callers[at].thread, NULL);
        by_thread += callers[at].by_thread;
        here += callers[at].here;
        cancelled += callers[at].cancelled;
        late += callers[at].late;
    }
    printf("by the thread %lu, here %lu, cancelled %lu, late %lu\n", by_thread, here, cancelled, late);
    return 0;
}
