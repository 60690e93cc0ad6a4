/* Reads a record batch's payload: the cursor, and the layout of one record. records/_pure.py describes the format.
 *
 * Nothing of a batch is trusted: every byte is read through the cursor, which knows where the payload ends.
 */

#ifndef AIOKC_LAYOUT_H
#define AIOKC_LAYOUT_H

#include <stdint.h>

#define SMALLEST_RECORD 7
#define MOST_HEADERS 1000000

/* The cursor */

typedef struct {
    const uint8_t *data;
    int64_t size;
    int64_t at; /* may be behind the end: then the next read fails */
    const char *problem; /* why a read failed: a format for the two numbers */
    int64_t numbers[2];
} Cursor;

static inline int fail(Cursor *cursor, const char *problem, int64_t number) {
    cursor->problem = problem;
    cursor->numbers[0] = number;
    return 0;
}

static inline int read_long_varint(Cursor *cursor, int most, uint64_t *number) {
    uint64_t sum = 0;
    for (int index = 0; index < most; index++) {
        if (cursor->at >= cursor->size)
            return fail(cursor, "a record runs past the end of its batch", 0);
        uint8_t byte = cursor->data[cursor->at++];
        sum |= (uint64_t)(byte & 0x7F) << 7 * index;
        if (byte < 0x80) {
            *number = sum;
            return 1;
        }
    }
    return fail(cursor, "a number of more than %lld bytes", most);
}

/* Read a number, still in zigzag, of at most ``most`` bytes: 5 for 32 bits, 10 for 64. */
static inline int read_varint(Cursor *cursor, int most, uint64_t *number) {
    int64_t at = cursor->at;
    if (at < cursor->size && cursor->data[at] < 0x80) {
        *number = cursor->data[at];
        cursor->at = at + 1;
        return 1;
    }
    if (at + 1 < cursor->size && cursor->data[at + 1] < 0x80) {
        *number = (uint64_t)(cursor->data[at] & 0x7F) | (uint64_t)cursor->data[at + 1] << 7;
        cursor->at = at + 2;
        return 1;
    }
    return read_long_varint(cursor, most, number);
}

/* The layout of one record */

/* Where a key or value lies, of a record or a header. One that is null has no bytes. */
typedef struct {
    int64_t at; /* of its first byte */
    int64_t size;
    int is_null;
} Part;

#define NO_HEADERS (-1)

typedef struct {
    int64_t end;
    uint64_t timestamp_delta;
    int64_t offset_delta;
    Part key;
    Part value;
    int64_t headers; /* where their count lies; or NO_HEADERS */
    int negative_length;
} Layout;

/* How far a reader has come in its batch. */
typedef struct {
    int64_t position;
    int64_t previous_delta;
    int64_t remaining;
} Progress;

static inline int read_start(Cursor *cursor, int64_t previous_delta, int64_t last_delta, Layout *layout) {
    uint64_t length, timestamp, delta;
    if (!read_varint(cursor, 5, &length))
        return 0;
    layout->end = cursor->at + (int64_t)(length >> 1);
    layout->negative_length = length & 1;
    cursor->at++; /* skip the attributes: Kafka uses none */
    if (!read_varint(cursor, 10, &timestamp) || !read_varint(cursor, 5, &delta))
        return 0;
    layout->timestamp_delta = timestamp >> 1 ^ (0 - (timestamp & 1));
    layout->offset_delta = (int64_t)(delta >> 1);
    if (delta & 1 || layout->offset_delta <= previous_delta || layout->offset_delta > last_delta)
        return fail(cursor, "offset delta %lld of a record is out of range", layout->offset_delta);
    return 1;
}

/* Set where a part lies, by the number that is its length; return where it ends. */
static inline int64_t set_part(Part *part, int64_t at, uint64_t length) {
    part->at = at;
    part->is_null = (int)(length & 1);
    part->size = length & 1 ? 0 : (int64_t)(length >> 1);
    return at + part->size;
}

/* Find a key or value that begins with its length, and pass it. It may lie behind the end: then the next read fails. */
static inline int pass_content(Cursor *cursor, Part *content) {
    uint64_t length;
    if (!read_varint(cursor, 5, &length))
        return 0;
    cursor->at = set_part(content, cursor->at, length);
    return 1;
}

static inline int read_header_count(Cursor *cursor, int64_t *count) {
    uint64_t number;
    if (!read_varint(cursor, 5, &number))
        return 0;
    *count = (int64_t)(number >> 1);
    if (number & 1 || number > 2 * MOST_HEADERS || (int64_t)number > cursor->size - cursor->at)
        return fail(cursor, "no record can have %lld headers", *count);
    return 1;
}

static inline int pass_headers(Cursor *cursor, int64_t *place) {
    int64_t count, start = cursor->at;
    Part key, value;
    if (!read_header_count(cursor, &count))
        return 0;
    *place = count ? start : NO_HEADERS;
    while (count--) {
        if (!pass_content(cursor, &key))
            return 0;
        if (key.is_null)
            return fail(cursor, "a header without a key", 0);
        if (!pass_content(cursor, &value))
            return 0;
    }
    return 1;
}

static inline int is_good_end(const Cursor *cursor, const Progress *progress, const Layout *layout) {
    return !layout->negative_length && layout->end <= cursor->size &&
           (progress->remaining > 1 || layout->end == cursor->size);
}

static inline void advance(Progress *progress, const Layout *layout) {
    progress->position = layout->end;
    progress->previous_delta = layout->offset_delta;
    progress->remaining--;
}

/* The short way: a record without headers, whose numbers are small. The long way reads all others, and whatever is
 * malformed: there are no errors here. */

/* The numbers of a record before its key are no longer than this, if none is of more than four bytes. */
#define NUMBERS (1 + 4 * 4)

/* Read a number of at most four bytes. The caller knows that so many are there. */
static inline int read_short(const uint8_t *data, int64_t *at, uint64_t *number) {
    uint64_t sum = data[*at];
    if (sum < 0x80) { /* as most are */
        (*at)++;
        *number = sum;
        return 1;
    }
    sum &= 0x7F;
    for (int shift = 7; data[(*at)++] & 0x80; shift += 7) {
        if (shift > 21)
            return 0;
        sum |= (uint64_t)(data[*at] & 0x7F) << shift;
    }
    *number = sum;
    return 1;
}

static inline int pass_short_content(const uint8_t *data, int64_t *at, Part *content) {
    uint64_t length;
    if (!read_short(data, at, &length))
        return 0;
    *at = set_part(content, *at, length);
    return 1;
}

/* Read the next record. False: it is not plain, or there are too few bytes behind it to be read this way. */
static inline int read_plain(const Cursor *cursor, const Progress *progress, int64_t last_delta, Layout *layout) {
    const uint8_t *data = cursor->data;
    int64_t at = progress->position;
    uint64_t length, timestamp, delta;
    if (cursor->size - at < NUMBERS || !read_short(data, &at, &length) || length & 1)
        return 0;
    layout->end = at + (int64_t)(length >> 1);
    at++; /* the attributes */
    if (layout->end > cursor->size || !read_short(data, &at, &timestamp) || !read_short(data, &at, &delta) ||
        delta & 1 || !pass_short_content(data, &at, &layout->key))
        return 0;
    layout->offset_delta = (int64_t)(delta >> 1);
    layout->timestamp_delta = timestamp >> 1 ^ (0 - (timestamp & 1));
    if (cursor->size - at < 4 || !pass_short_content(data, &at, &layout->value))
        return 0;
    layout->headers = NO_HEADERS;
    layout->negative_length = 0;
    return at == layout->end - 1 && data[at] == 0 && layout->offset_delta > progress->previous_delta &&
           layout->offset_delta <= last_delta && (progress->remaining > 1 || layout->end == cursor->size);
}

/* Any record */

static inline int read_any_record(Cursor *cursor, const Progress *progress, int64_t last_delta, Layout *layout) {
    cursor->at = progress->position;
    if (!read_start(cursor, progress->previous_delta, last_delta, layout) || !pass_content(cursor, &layout->key) ||
        !pass_content(cursor, &layout->value) || !pass_headers(cursor, &layout->headers))
        return 0;
    if (cursor->at != layout->end || !is_good_end(cursor, progress, layout))
        return fail(cursor, "the parts of a record do not add up to its length, or to the batch's", 0);
    return 1;
}

/* Read the next record: then its key, its value and its headers lie within the payload. */
static inline int read_record(Cursor *cursor, const Progress *progress, int64_t last_delta, Layout *layout) {
    Layout any; /* of its own, so that a plain one stays in registers */
    if (read_plain(cursor, progress, last_delta, layout))
        return 1;
    if (!read_any_record(cursor, progress, last_delta, &any))
        return 0;
    *layout = any;
    return 1;
}

/* Skip the records before ``wanted_delta``. Of each, only the offset and where the record ends are read. */
static inline int skip_to(Cursor *cursor, Progress *progress, int64_t last_delta, int64_t wanted_delta) {
    while (progress->remaining) {
        Layout layout;
        cursor->at = progress->position;
        if (!read_start(cursor, progress->previous_delta, last_delta, &layout))
            return 0;
        if (layout.offset_delta >= wanted_delta)
            return 1;
        if (cursor->at > layout.end || !is_good_end(cursor, progress, &layout))
            return fail(cursor, "a record's length does not fit into the batch's", 0);
        advance(progress, &layout);
    }
    return 1;
}

/* Read a part of a header that pass_headers has passed. It lies within the payload for certain; this is checked all the
 * same. */
static inline int read_content(Cursor *cursor, Part *content) {
    if (!pass_content(cursor, content) || cursor->at > cursor->size)
        return fail(cursor, "a record was changed after it was checked", 0);
    return 1;
}

#endif
