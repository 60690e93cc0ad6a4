/* Reads of sockets by the thread, as hard as it gets: many at once, cancelled, cut off, closed in the middle of it, with
 * numbers of descriptors that are used again at once. Built with ThreadSanitizer or AddressSanitizer.
 *
 * Each socket carries bytes of its own pattern, by which it shows if one read took another one's. The memory of a read
 * is freed as soon as it has ended or was cancelled, so that a sanitizer sees if anybody writes to it afterwards.
 * Prints how many reads ended in which way. */

#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../../../aiokc/_native/socket_reads.h"

#define SOCKETS 16

typedef struct {
    SocketRead read;
    unsigned char *memory; /* NULL: nothing is read */
    size_t size;
    int ours;
    int theirs;
    unsigned char first; /* byte number n is first + n % 251 */
    size_t sent;
} Peer;

static uint64_t state = 1;
static unsigned long complete, cut, cancelled, dropped;

static unsigned drawn(unsigned below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33) % below;
}

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static unsigned char byte_of(const Peer *peer, size_t number) {
    return (unsigned char)(peer->first + number % 251);
}

static void begin(SocketReads *reads, Peer *peer) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) < 0)
        fail("no sockets");
    *peer = (Peer){.ours = ends[0], .theirs = ends[1], .first = (unsigned char)drawn(256)};
    peer->size = 1 + drawn(400000);
    peer->memory = malloc(peer->size);
    if (socket_reads_begin(reads, &peer->read, peer->ours, peer->memory, peer->size) != 0)
        fail("begin");
}

static void end(Peer *peer) {
    free(peer->memory);
    peer->memory = NULL;
    close(peer->read.descriptor);
    close(peer->ours);
    if (peer->theirs >= 0)
        close(peer->theirs);
}

static void check(Peer *peer) {
    for (size_t number = 0; number < peer->read.count; number++)
        if (peer->memory[number] != byte_of(peer, number))
            fail("bytes of another socket");
    if (peer->read.error != 0)
        fail("an error");
    if (peer->read.count == peer->size)
        complete++;
    else if (peer->theirs < 0 && peer->read.count == peer->sent)
        cut++;
    else
        fail("bytes are missing");
    end(peer);
}

static void send_some(Peer *peer) {
    unsigned char piece[32768];
    size_t size = 1 + drawn(sizeof piece);
    if (size > peer->size - peer->sent)
        size = peer->size - peer->sent;
    for (size_t number = 0; number < size; number++)
        piece[number] = byte_of(peer, peer->sent + number);
    ssize_t sent = size == 0 ? 0 : send(peer->theirs, piece, size, MSG_NOSIGNAL);
    if (sent > 0)
        peer->sent += (size_t)sent;
}

static int take_ended(SocketReads *reads, int milliseconds) {
    struct pollfd signal = {.fd = socket_reads_signal(reads), .events = POLLIN};
    if (poll(&signal, 1, milliseconds) == 0)
        return 0;
    SocketRead *read = socket_reads_ended(reads);
    if (read == NULL)
        fail("a signal for nothing");
    check((Peer *)read);
    return 1;
}

/* What is under way at the end is dropped, or cut off and then waited for. */
static void finish(SocketReads *reads, Peer *peers) {
    int waits = 0;
    for (int number = 0; number < SOCKETS; number++) {
        Peer *peer = &peers[number];
        if (peer->memory != NULL && drawn(2) == 0) {
            socket_reads_cancel(reads, &peer->read);
            dropped++;
            end(peer);
        } else if (peer->memory != NULL) {
            waits++;
            if (peer->theirs >= 0)
                close(peer->theirs);
            peer->theirs = -1;
        }
    }
    while (waits-- > 0)
        if (!take_ended(reads, 60000))
            fail("a read that does not end");
}

static void step(SocketReads *reads, Peer *peer) {
    if (peer->memory == NULL) {
        begin(reads, peer);
    } else if (drawn(100) == 0) {
        socket_reads_cancel(reads, &peer->read);
        cancelled++;
        end(peer); /* the next one gets the same numbers */
    } else if (peer->theirs >= 0 && drawn(100) == 0) {
        close(peer->theirs);
        peer->theirs = -1;
    } else if (peer->theirs >= 0) {
        send_some(peer);
    }
}

static void run(int steps) {
    Peer peers[SOCKETS] = {0};
    SocketReads *reads = socket_reads_open();
    if (reads == NULL)
        fail("open");
    while (steps-- > 0) {
        step(reads, &peers[drawn(SOCKETS)]);
        while (drawn(4) == 0 && take_ended(reads, 0))
            ;
    }
    finish(reads, peers);
    socket_reads_close(reads);
}

int main(int count, char **arguments) {
    int rounds = count > 1 ? atoi(arguments[1]) : 100;
    for (int round = 0; round < rounds; round++)
        run(1000);
    printf("complete %lu, cut off %lu, cancelled %lu, dropped %lu\n", complete, cut, cancelled, dropped);
    return 0;
}
