/* One thread reads from many sockets: it waits until some have bytes, and takes a piece of each in turn.
 *
 * The thread never blocks but in poll(), and holds the lock only to look at its lists: not while it receives. A read
 * is RECEIVING then, and whoever cancels it waits for the end of that call. Each read has a descriptor of its own, a
 * duplicate of the caller's. If it read from the caller's, the following could happen: the event loop closes the
 * socket without telling anybody (uvloop does when the loop is closed), another connection gets the same number, and
 * the thread steals that one's bytes. */

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* pipe2() */
#endif

#include "socket_reads.h"

#if !defined(_WIN32)

#include "own_thread.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* One call receives no more: so long does a cancellation wait at most, some 0.05 ms. */
#define AT_ONCE ((size_t)256 << 10)

struct SocketReads {
    pthread_mutex_t lock;
    pthread_cond_t received; /* a read that is cancelled is not RECEIVING any more */
    SocketRead *reading;     /* READING or RECEIVING, in the order in which they began */
    SocketRead *ended;
    int count;
    int wake[2];   /* a pipe: the thread is to look at its list again */
    int signal[2]; /* a pipe, with a byte in it as long as there is something ended */
    int has_thread;
    int is_waiting; /* the thread waits, or is about to, and nobody has woken it yet */
    int is_closed;
};

static int open_pipe(int ends[2]) {
#if defined(__linux__)
    return pipe2(ends, O_CLOEXEC | O_NONBLOCK);
#else
    if (pipe(ends) < 0)
        return -1;
    for (int end = 0; end < 2; end++) {
        fcntl(ends[end], F_SETFD, FD_CLOEXEC);
        fcntl(ends[end], F_SETFL, O_NONBLOCK);
    }
    return 0;
#endif
}

static void close_pipe(const int ends[2]) {
    close(ends[0]);
    close(ends[1]);
}

/* Each pipe holds one byte at most, so that neither call can fail but by a signal. */
static void put_byte(const int ends[2]) {
    while (write(ends[1], "", 1) < 0 && errno == EINTR)
        ;
}

static void take_byte(const int ends[2]) {
    char byte;
    while (read(ends[0], &byte, 1) < 0 && errno == EINTR)
        ;
}

SocketReads *socket_reads_open(void) {
    SocketReads *self = calloc(1, sizeof(SocketReads));
    if (self == NULL)
        return NULL;
    if (open_pipe(self->wake) < 0) {
        free(self);
        return NULL;
    }
    if (open_pipe(self->signal) < 0) {
        int error = errno;
        close_pipe(self->wake);
        free(self);
        errno = error;
        return NULL;
    }
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->received, NULL);
    return self;
}

int socket_reads_signal(const SocketReads *self) {
    return self->signal[0];
}

static void unlink_read(SocketRead **list, SocketRead *read) {
    while (*list != read)
        list = &(*list)->next;
    *list = read->next;
}

static void append_read(SocketRead **list, SocketRead *read) {
    while (*list != NULL)
        list = &(*list)->next;
    read->next = NULL;
    *list = read;
}

/* The thread */

static void end_read(SocketReads *self, SocketRead *read) {
    unlink_read(&self->reading, read);
    self->count--;
    read->state = ENDED;
    if (self->ended == NULL)
        put_byte(self->signal);
    append_read(&self->ended, read);
}

/* Receive a piece; return whether the read is over. The lock is given up meanwhile, but the read stays in its list. */
static int receive(SocketReads *self, SocketRead *read) {
    size_t size = read->missing < AT_ONCE ? read->missing : AT_ONCE;
    read->state = RECEIVING;
    pthread_mutex_unlock(&self->lock);
    ssize_t count = recv(read->descriptor, read->to, size, MSG_DONTWAIT);
    int error = count < 0 ? errno : 0;
    pthread_mutex_lock(&self->lock);
    read->state = READING;
    if (read->is_cancelled) {
        pthread_cond_broadcast(&self->received);
        return 0;
    }
    if (error == EAGAIN || error == EWOULDBLOCK || error == EINTR)
        return 0;
    read->error = error;
    if (count <= 0)
        return 1;
    read->to += count;
    read->count += (size_t)count;
    read->missing -= (size_t)count;
    return read->missing == 0;
}

/* Receive from the sockets that are readable, and from those that were not looked at yet: most have bytes already. */
static void receive_all(SocketReads *self, const struct pollfd *looked_at) {
    for (SocketRead *read = self->reading, *next; read != NULL; read = next) {
        int is_over = 0;
        if (!read->is_cancelled && (read->place == 0 || looked_at[read->place].revents != 0))
            is_over = receive(self, read);
        next = read->next; /* not sooner: what follows may have been cancelled while the lock was given up */
        if (is_over)
            end_read(self, read);
    }
}

static nfds_t look_at_all(SocketReads *self, struct pollfd *looked_at) {
    nfds_t count = 0;
    looked_at[count++] = (struct pollfd){.fd = self->wake[0], .events = POLLIN};
    for (SocketRead *read = self->reading; read != NULL; read = read->next) {
        read->place = (int)count;
        looked_at[count++] = (struct pollfd){.fd = read->descriptor, .events = POLLIN};
    }
    return count;
}

/* Wait until a socket is readable, or the thread was woken. What poll() refuses, for want of memory, it is to try again
 * after a moment; until then all sockets count as readable. */
static void wait_for(struct pollfd *looked_at, nfds_t count) {
    if (poll(looked_at, count, -1) >= 0 || errno == EINTR)
        return;
    for (nfds_t place = 1; place < count; place++)
        looked_at[place].revents = POLLIN;
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void free_reads(SocketReads *self) {
    close_pipe(self->wake);
    close_pipe(self->signal);
    pthread_cond_destroy(&self->received);
    pthread_mutex_destroy(&self->lock);
    free(self);
}

static void *serve(void *argument) {
    SocketReads *self = argument;
    struct pollfd looked_at[MOST_READS + 1];
#if defined(__linux__)
    pthread_setname_np(pthread_self(), "aiokc reader");
#elif defined(__APPLE__)
    pthread_setname_np("aiokc reader");
#endif
    pthread_mutex_lock(&self->lock);
    while (!self->is_closed) {
        nfds_t count = look_at_all(self, looked_at);
        self->is_waiting = 1;
        pthread_mutex_unlock(&self->lock);
        wait_for(looked_at, count);
        pthread_mutex_lock(&self->lock);
        if (!self->is_waiting) /* it was woken, so that there is a byte */
            take_byte(self->wake);
        self->is_waiting = 0;
        receive_all(self, looked_at);
    }
    pthread_mutex_unlock(&self->lock);
    free_reads(self);
    return NULL;
}

/* The caller */

static void wake(SocketReads *self) {
    if (!self->is_waiting)
        return; /* it looks at its list before it waits again */
    self->is_waiting = 0;
    put_byte(self->wake);
}

int socket_reads_begin(SocketReads *self, SocketRead *read, int descriptor, void *to, size_t missing) {
    int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    if (own < 0)
        return errno;
    *read = (SocketRead){.descriptor = own, .to = to, .missing = missing, .state = READING};
    pthread_mutex_lock(&self->lock);
    int error = self->count == MOST_READS ? EAGAIN : self->has_thread ? 0 : start_own_thread(serve, self);
    if (error == 0) {
        self->has_thread = 1;
        append_read(&self->reading, read);
        self->count++;
        wake(self);
    }
    pthread_mutex_unlock(&self->lock);
    if (error != 0)
        close(own);
    return error;
}

SocketRead *socket_reads_ended(SocketReads *self) {
    pthread_mutex_lock(&self->lock);
    SocketRead *read = self->ended;
    if (read != NULL) {
        unlink_read(&self->ended, read);
        if (self->ended == NULL)
            take_byte(self->signal);
    }
    pthread_mutex_unlock(&self->lock);
    return read;
}

void socket_reads_cancel(SocketReads *self, SocketRead *read) {
    pthread_mutex_lock(&self->lock);
    if (read->state == ENDED) {
        unlink_read(&self->ended, read);
        if (self->ended == NULL)
            take_byte(self->signal);
    } else {
        read->is_cancelled = 1;
        while (read->state == RECEIVING)
            pthread_cond_wait(&self->received, &self->lock);
        unlink_read(&self->reading, read);
        self->count--;
        wake(self); /* poll() keeps the socket open as long as it looks at it, also when the caller has closed it */
    }
    pthread_mutex_unlock(&self->lock);
}

void socket_reads_close(SocketReads *self) {
    pthread_mutex_lock(&self->lock);
    int has_thread = self->has_thread;
    self->is_closed = 1;
    wake(self);
    pthread_mutex_unlock(&self->lock);
    if (!has_thread)
        free_reads(self);
}

void socket_reads_close_in_child(SocketReads *self) {
    close_pipe(self->wake);
    close_pipe(self->signal);
    free(self);
}

#endif
