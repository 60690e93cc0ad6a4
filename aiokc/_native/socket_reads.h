/* Reads of sockets by a thread of its own, which knows nothing of Python: the bytes go into memory that the caller keeps
 * in place until the read has ended or was cancelled. */

#ifndef AIOKC_SOCKET_READS_H
#define AIOKC_SOCKET_READS_H

#include <stddef.h>

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* No more reads are under way at once; further ones fail with EAGAIN. */
#define MOST_READS 256

/* One read. Its fields belong to the thread until ``socket_reads_ended`` has returned it, or it was cancelled. Then the
 * caller closes its descriptor. */
typedef struct SocketRead {
    struct SocketRead *next;
    int descriptor; /* the read's own: it stays open, and that of this socket, until the caller closes it */
    int place;      /* in what the thread waits for; 0: it has not looked at this read yet */
    unsigned char *to;
    size_t missing;
    size_t count; /* of bytes that were received */
    int error;    /* errno; 0 with bytes missing: the peer has closed in good order */
    enum { READING, RECEIVING, ENDED } state;
    int is_cancelled;
} SocketRead;

typedef struct SocketReads SocketReads;

/* Return what reads are begun with. NULL, with errno: there are no descriptors or no memory. No thread runs yet. */
SocketReads *socket_reads_open(void);

/* Return a descriptor that is readable as long as ``socket_reads_ended`` has something to return. */
int socket_reads_signal(const SocketReads *reads);

/* Begin to read ``missing`` bytes from a socket to ``to``; the thread starts with the first read. Return errno, or 0. */
int socket_reads_begin(SocketReads *reads, SocketRead *read, int descriptor, void *to, size_t missing);

/* Return a read that has ended, NULL if there is none. */
SocketRead *socket_reads_ended(SocketReads *reads);

/* End a read that ``socket_reads_ended`` has not returned. From here on the thread touches neither the read, nor its
 * memory, nor the socket. Waits for one call of recv() that does not block, where the thread is in the middle of it. */
void socket_reads_cancel(SocketReads *reads, SocketRead *read);

/* No read is under way: end the thread, without waiting for it. */
void socket_reads_close(SocketReads *reads);

/* In a process that was forked, which has no such thread, and where its lock may be held for ever: close the copies of
 * all descriptors but those of reads. */
void socket_reads_close_in_child(SocketReads *reads);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
