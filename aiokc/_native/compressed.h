/* Compressed batches: how much their payloads hold, and the libraries that unpack them.
 *
 * What is unpacked here is what records/compression.py would make of the same bytes. Whatever is out of the ordinary is
 * refused, and read by that: so each error has one place, and one text.
 */

#ifndef AIOKC_COMPRESSED_H
#define AIOKC_COMPRESSED_H

#include "module.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

enum { GZIP = 1, SNAPPY, LZ4, ZSTD, CODEC_MASK = 7 };

/* The functions of a library that was found on this machine. They are never changed, and never freed before the module:
 * a call in another thread may use them. */
typedef struct CodecLibrary {
    struct CodecLibrary *previous;
    int is_none; /* instead of a library: none is to be used */
    int (*lz4_decompress)(const char *, char *, int, int);
    void *(*zstd_create)(void);
    size_t (*zstd_free)(void *);
    size_t (*zstd_decompress)(void *, void *, size_t, const void *, size_t);
    unsigned (*zstd_is_error)(size_t);
    void *spare; /* a context of zstd that no call uses; exchanged atomically */
} CodecLibrary;

/* A compressed payload. */
typedef struct {
    const uint8_t *data;
    int64_t size;
} Packed;

/* What a payload probably holds whose headers do not say it. */
static inline int64_t likely_size(Packed packed) {
    return 4 * packed.size;
}

static inline uint64_t read_little(const uint8_t *bytes, int width) {
    uint64_t number = 0;
    for (int index = width; index > 0; index--)
        number = number << 8 | bytes[index - 1];
    return number;
}

/* Read the size that a frame states of its content. 0: it is more than any frame can hold. */
static inline int read_content_size(const uint8_t *bytes, int width, int64_t *size) {
    uint64_t stated = read_little(bytes, width);
    *size = (int64_t)stated;
    return stated <= INT64_MAX;
}

/* Return the most bytes that a payload can hold, judged by its headers alone. -1: it is not one to unpack here. Where
 * that may be far from what it holds, ``likely`` is less. */
int64_t most_of_lz4(Packed packed, int64_t *likely);
int64_t most_of_zstd(Packed packed, int64_t *likely);

/* Unpack a payload to ``out``, where there is room for the most that it can hold; return its size. -1: it is malformed,
 * or there is no memory. No exception is set. */
int64_t unpack_lz4(const CodecLibrary *library, Packed packed, uint8_t *out, int64_t room);
int64_t unpack_zstd(CodecLibrary *library, Packed packed, uint8_t *out, int64_t room);

/* Return the library in use for a codec. NULL: there is none. */
CodecLibrary *library_of(const State *state, int codec);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
