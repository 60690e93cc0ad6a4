/* The short way of most records into columns: those that read_plain reads.
 *
 * It keeps what it needs of columns in local variables: after each byte that is stored, the compiler would have to read
 * them again from the builder. What is out of the ordinary is left to the long way in append.c, and so is whatever is
 * malformed: there are no errors here.
 */

#ifndef AIOKC_PLAIN_ROWS_H
#define AIOKC_PLAIN_ROWS_H

#include "rows.h"

/* Short keys and values are copied in whole pieces of so many bytes, without a call. */
#define PIECE 32
#define MOST_IN_PIECES (4 * PIECE)
/* Frames and batches are larger than the processor's own caches, so each line of theirs comes from afar: it is asked for
 * while the rows before it are written, so many bytes ahead. Long values are left to memcpy. */
#define AHEAD 2048
#define LINE 64
#define MOST_AHEAD 4096

/* A column of keys or values. The bits of its rows are written once for many rows, up to the next null: ``written`` rows
 * have theirs. */
typedef struct {
    uint8_t *bits;
    int32_t *ends;
    uint8_t *bytes;
    int64_t row;
    int64_t written;
    int64_t size;
    int64_t room;
    int64_t nulls;
} Texts;

/* Set the bits of rows that are not null, from ``row`` on. Those behind the last one in its byte become zero: see
 * set_bit. */
static inline void set_valid(uint8_t *bits, int64_t row, int64_t end) {
    if (row == end)
        return;
    int64_t first = row >> 3, last = (end - 1) >> 3;
    uint8_t before = (uint8_t)((1 << (row & 7)) - 1);
    uint8_t kept = before ? (uint8_t)(bits[first] & before) : 0; /* no byte that was not written yet is read */
    memset(bits + first, 0xFF, (size_t)(last - first + 1));
    bits[last] = (uint8_t)(0xFF >> (7 - ((end - 1) & 7)));
    bits[first] = (uint8_t)((bits[first] & ~before) | kept);
}

static inline void set_null(Texts *texts) {
    set_valid(texts->bits, texts->written, texts->row);
    if ((texts->row & 7) == 0)
        texts->bits[texts->row >> 3] = 0;
    texts->written = texts->row + 1;
    texts->nulls++;
}

static inline Texts open_texts(const Builder *self, int column) {
    Node *node = self->columns[column];
    if (node == NULL)
        return (Texts){.room = INT64_MAX};
    const Buffer *buffers = node->buffers;
    return (Texts){.bits = buffers[VALIDITY].data,
                   .ends = (int32_t *)(buffers[DATA].data + buffers[DATA].size),
                   .bytes = buffers[CONTENT].data,
                   .row = node->length,
                   .written = node->length,
                   .size = buffers[CONTENT].size,
                   .room = Py_MIN(buffers[CONTENT].room, self->most)};
}

static inline void close_texts(Builder *self, int column, const Texts *texts, int64_t rows) {
    Node *node = self->columns[column];
    if (node == NULL)
        return;
    set_valid(texts->bits, texts->written, texts->row);
    node->length += rows;
    node->nulls += texts->nulls;
    node->buffers[DATA].size += rows * (int64_t)sizeof(int32_t);
    node->buffers[CONTENT].size = texts->size;
}

static inline int has_text_room(const Texts *texts, int64_t size) {
    return size + PIECE <= texts->room - texts->size;
}

/* Ask for what is read and written in a while: as many lines as ``size`` bytes are long, so that all are asked for. */
static inline void ask_ahead(const uint8_t *from, const uint8_t *to, int64_t size) {
#if defined(__GNUC__)
    /* The addresses may lie behind the buffers: to ask for those does nothing. */
    uintptr_t source = (uintptr_t)from + AHEAD, target = (uintptr_t)to + AHEAD;
    for (int64_t done = 0; size <= MOST_AHEAD && done < size; done += LINE) {
        __builtin_prefetch((const void *)(source + (uintptr_t)done));
        __builtin_prefetch((const void *)(target + (uintptr_t)done), 1);
    }
#else
    (void)from, (void)to, (void)size;
#endif
}

/* Append a text of ``size`` bytes; ``is_null``: there is none. ``has_more``: PIECE bytes may be read behind its end. */
static inline void put_text(Texts *texts, const uint8_t *from, int64_t size, int has_more, int is_null) {
    if (texts->ends == NULL)
        return;
    uint8_t *to = texts->bytes + texts->size;
    if (is_null)
        set_null(texts);
    texts->row++;
    if (has_more && size <= MOST_IN_PIECES) {
        for (int64_t done = 0; done < size; done += PIECE)
            memcpy(to + done, from + done, PIECE);
    } else {
        memcpy(to, from, (size_t)size);
    }
    texts->size += size;
    *texts->ends++ = (int32_t)texts->size;
}

static inline int64_t *open_numbers(const Builder *self, int column) {
    Node *node = self->columns[column];
    return node == NULL ? NULL : (int64_t *)(node->buffers[DATA].data + node->buffers[DATA].size);
}

static inline void close_numbers(Builder *self, int column, int64_t rows) {
    Node *node = self->columns[column];
    if (node == NULL)
        return;
    node->length += rows;
    node->buffers[DATA].size += rows * (int64_t)sizeof(int64_t);
}

/* As many rows without headers: null lists. The bits behind the last one in its byte are zero already, see set_bit. */
static inline void put_no_headers(Node *list, int64_t rows) {
    if (list == NULL)
        return;
    int64_t begun = (list->length + 7) / 8, end = (list->length + rows + 7) / 8;
    memset(list->buffers[VALIDITY].data + begun, 0, (size_t)(end - begun));
    list->nulls += rows;
    repeat_int32(list, (int32_t)list->children[0]->length, rows);
}

/* Append up to ``rows`` records from ``progress`` on; return how many. The next one is for the long way, if there is
 * one, and the builder has not what was wanted. */
static inline int64_t append_plain(Builder *self, const Origin *origin, const Head *head, Progress *progress,
                                   const Cursor *cursor, const Wanted *wanted, int64_t rows) {
    Progress here = *progress;
    Texts keys = open_texts(self, COLUMN_KEY), values = open_texts(self, COLUMN_VALUE);
    int64_t *offsets = open_numbers(self, COLUMN_OFFSET), *timestamps = open_numbers(self, COLUMN_TIMESTAMP);
    int64_t size = self->size, count = 0;
    const int64_t row_bytes = self->row_bytes + (self->columns[COLUMN_TOPIC] != NULL ? origin->topic_size : 0);
    const int64_t least = self->in_microseconds ? -LAST_MICROSECOND_MS : INT64_MIN, scale = self->in_microseconds ? 1000 : 1;
    const int64_t last = self->in_microseconds ? LAST_MICROSECOND_MS : INT64_MAX;
    const int64_t until = wanted->until - head->base_offset;
    const uint8_t *data = cursor->data;
    Layout record;
    while (count < rows && size < wanted->size && read_plain(cursor, &here, head->last_delta, &record)) {
        if (record.offset_delta >= until || !has_text_room(&keys, record.key.size) ||
            !has_text_room(&values, record.value.size))
            break;
        if (timestamps != NULL) {
            int64_t timestamp =
                head->has_append_time ? head->append_time : (int64_t)(head->base_timestamp + record.timestamp_delta);
            if (timestamp < least || timestamp > last)
                break;
            timestamps[count] = timestamp * scale;
        }
        if (offsets != NULL)
            offsets[count] = head->base_offset + record.offset_delta;
        if (values.ends != NULL)
            ask_ahead(data + record.end, values.bytes + values.size, record.value.size);
        int has_more = cursor->size - record.end >= PIECE;
        put_text(&keys, data + record.key.at, record.key.size, has_more, record.key.is_null);
        put_text(&values, data + record.value.at, record.value.size, has_more, record.value.is_null);
        size += row_bytes + (keys.ends != NULL ? record.key.size : 0) + (values.ends != NULL ? record.value.size : 0);
        advance(&here, &record);
        count++;
    }
    close_texts(self, COLUMN_KEY, &keys, count);
    close_texts(self, COLUMN_VALUE, &values, count);
    close_numbers(self, COLUMN_OFFSET, count);
    close_numbers(self, COLUMN_TIMESTAMP, count);
    put_no_headers(self->columns[COLUMN_HEADERS], count);
    self->batch->nodes[0].length += count;
    self->size = size;
    *progress = here;
    return count;
}

#endif
