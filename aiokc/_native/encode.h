/* The layout of a record as it is written (magic 2), for the files that encode. reader.h reads it.
 *
 * A record is gathered first, as pointers; then its size is known; then it is written in one go into memory that has
 * room for it.
 */

#ifndef AIOKC_ENCODE_H
#define AIOKC_ENCODE_H

#include <stdint.h>
#include <string.h>

#define BATCH_OVERHEAD 61
#define PREFIX_SIZE 12 /* what a batch's length does not count */
#define CRC_START 21   /* the CRC covers all from here on */
#define MAGIC 2
#define NO_TIMESTAMP (-1)
#define MOST_32_BITS 0x7FFFFFFF

/* A key, a value, or a part of a header. */
typedef struct {
    const char *bytes;
    int64_t size; /* -1: null */
} Content;

typedef struct {
    Content name;
    Content value;
} Header;

typedef struct {
    int64_t timestamp;
    Content key;
    Content value;
    const Header *headers;
    int64_t header_count;
} NewRecord;

/* How far a batch is filled. */
typedef struct {
    int64_t base_timestamp;
    int64_t max_timestamp;
    int64_t count;
    int64_t used;    /* the bytes of the frame so far, with its header */
    int64_t largest; /* the longest record's */
} Filling;

static inline uint64_t zigzag(int64_t number) {
    return (uint64_t)number << 1 ^ (uint64_t)(number >> 63);
}

/* Return how many bytes a number takes that is in zigzag already. */
static inline int64_t varint_size(uint64_t number) {
    int64_t size = 1;
    while (number >>= 7)
        size++;
    return size;
}

static inline uint8_t *put_varint(uint8_t *at, uint64_t number) {
    while (number > 0x7F) {
        *at++ = (uint8_t)(number | 0x80);
        number >>= 7;
    }
    *at++ = (uint8_t)number;
    return at;
}

static inline uint8_t *put_big_endian(uint8_t *at, uint64_t number, int size) {
    for (int left = size; left > 0; left--)
        *at++ = (uint8_t)(number >> 8 * (left - 1));
    return at;
}

static inline int64_t content_size(Content content) {
    return content.size < 0 ? 1 : varint_size((uint64_t)content.size << 1) + content.size;
}

static inline uint8_t *put_content(uint8_t *at, Content content) {
    at = put_varint(at, zigzag(content.size));
    if (content.size > 0) {
        memcpy(at, content.bytes, (size_t)content.size);
        at += content.size;
    }
    return at;
}

/* Return the difference to the batch's first timestamp, which wraps around in 64 bits as Java's does. */
static inline int64_t timestamp_delta(const Filling *filling, const NewRecord *record) {
    return filling->count == 0 ? 0 : (int64_t)((uint64_t)record->timestamp - (uint64_t)filling->base_timestamp);
}

/* Return the size of a record behind its length. */
static inline int64_t body_size(const Filling *filling, const NewRecord *record) {
    int64_t size = 1 + varint_size(zigzag(timestamp_delta(filling, record))) +
                   varint_size((uint64_t)filling->count << 1) + content_size(record->key) +
                   content_size(record->value) + varint_size((uint64_t)record->header_count << 1);
    for (int64_t i = 0; i < record->header_count; i++)
        size += content_size(record->headers[i].name) + content_size(record->headers[i].value);
    return size;
}

/* Write a record whose body has ``body`` bytes behind ``start``, and take it into account. */
static inline void put_record(uint8_t *start, Filling *filling, const NewRecord *record, int64_t body) {
    uint8_t *at = put_varint(start, (uint64_t)body << 1);
    *at++ = 0; /* attributes: Kafka has none */
    at = put_varint(at, zigzag(timestamp_delta(filling, record)));
    at = put_varint(at, (uint64_t)filling->count << 1);
    at = put_content(at, record->key);
    at = put_content(at, record->value);
    at = put_varint(at, (uint64_t)record->header_count << 1);
    for (int64_t i = 0; i < record->header_count; i++) {
        at = put_content(at, record->headers[i].name);
        at = put_content(at, record->headers[i].value);
    }
    int64_t size = at - start;
    if (filling->count++ == 0)
        filling->base_timestamp = filling->max_timestamp = record->timestamp;
    if (record->timestamp > filling->max_timestamp)
        filling->max_timestamp = record->timestamp;
    if (size > filling->largest)
        filling->largest = size;
    filling->used += size;
}

#endif
