/* The rows of a ColumnBuilder: its struct, and how one row is written.
 *
 * A row is written completely or not at all. Whatever makes it impossible (a timestamp beyond the column's unit, more
 * bytes than 32-bit offsets can address) is found before any of it is written.
 */

#ifndef AIOKC_ROWS_H
#define AIOKC_ROWS_H

#include "batch_columns.h"

enum {
    COLUMN_KEY,
    COLUMN_VALUE,
    COLUMN_TOPIC,
    COLUMN_PARTITION,
    COLUMN_OFFSET,
    COLUMN_TIMESTAMP,
    COLUMN_TIMESTAMP_TYPE,
    COLUMN_HEADERS,
    COLUMN_LEADER_EPOCH,
    COLUMNS
};

enum { HEADER_KEY, HEADER_VALUE }; /* children of the headers' elements */

/* The bytes of a header apart from its key and value: their two offsets. */
#define HEADER_BYTES 8

#define LAST_MICROSECOND_MS (INT64_MAX / 1000)

/* All of it is read and written within the builder's critical section. A batch that is finished changes no more. */
typedef struct {
    PyObject_HEAD
    Batch *batch;
    Node *columns[COLUMNS]; /* NULL: not wanted */
    int wanted[COLUMNS];    /* indices of shapes, in the order of the columns */
    int wanted_count;
    int in_microseconds;
    int64_t most;      /* the most bytes of one column's CONTENT */
    int64_t row_bytes; /* the bytes of a row apart from its CONTENT */
    int64_t size;      /* the bytes of all rows */
    char is_full;
    char is_used;
} Builder;

/* Writing one row */

typedef struct {
    const char *bytes; /* NULL: null */
    int64_t size;
} Content;

typedef struct {
    const char *topic;
    Py_ssize_t topic_size;
    int32_t partition;
    int32_t timestamp_type;
    int64_t leader_epoch; /* negative: null */
} Origin;

typedef struct {
    int64_t offset;
    int64_t timestamp;
    Content key;
    Content value;
    int64_t header_count;
    int64_t header_bytes; /* no less than the bytes of all headers' keys and values together */
} Row;

/* The outcome of writing a row. WRONG: there is an exception. */
typedef enum { WRITTEN, NO_ROOM, TOO_LARGE, NO_TIMESTAMP_THERE, WRONG } Fate;

static inline int set_bit(Node *node, int is_valid) {
    uint8_t *bits = node->buffers[VALIDITY].data;
    int64_t index = node->length;
    if ((index & 7) == 0)
        bits[index >> 3] = 0;
    bits[index >> 3] |= (uint8_t)(is_valid << (index & 7));
    node->nulls += !is_valid;
    return is_valid;
}

static inline void end_content(Node *node) {
    int32_t end = (int32_t)node->buffers[CONTENT].size;
    memcpy(node->buffers[DATA].data + node->buffers[DATA].size, &end, sizeof(end));
    node->buffers[DATA].size += sizeof(end);
    node->length++;
}

/* Append a key, value or part of a header. The caller has made room for it. */
static inline void put_content(Node *node, Content content) {
    if (set_bit(node, content.bytes != NULL) && content.size) {
        memcpy(node->buffers[CONTENT].data + node->buffers[CONTENT].size, content.bytes, (size_t)content.size);
        node->buffers[CONTENT].size += content.size;
    }
    end_content(node);
}

static inline void put_int64(Node *node, int64_t number) {
    Buffer *data = &node->buffers[DATA];
    memcpy(data->data + data->size, &number, sizeof(number));
    data->size += sizeof(number);
    node->length++;
}

static inline void put_int32(Node *node, int32_t number) {
    Buffer *data = &node->buffers[DATA];
    memcpy(data->data + data->size, &number, sizeof(number));
    data->size += sizeof(number);
    node->length++;
}

/* Return how many of ``rows`` more rows are possible, judged by the topics' bytes and the number of rows. */
static inline int64_t possible_rows(const Builder *self, const Origin *origin, int64_t rows) {
    const Node *topics = self->columns[COLUMN_TOPIC];
    if (topics != NULL && origin->topic_size > 0)
        rows = Py_MIN(rows, (self->most - topics->buffers[CONTENT].size) / origin->topic_size);
    return Py_MIN(rows, INT32_MAX - 1 - self->batch->nodes[0].length);
}

/* Make room for so many more rows, except for their keys, values and headers. */
static inline int make_row_room(Builder *self, const Origin *origin, int64_t rows) {
    Node *topics = self->columns[COLUMN_TOPIC];
    if (topics != NULL && !make_room(&topics->buffers[CONTENT], rows * origin->topic_size))
        return 0;
    for (int index = 0; index < COLUMNS; index++) {
        Node *node = self->columns[index];
        if (node == NULL)
            continue;
        Buffer *validity = &node->buffers[VALIDITY];
        validity->size = (node->length + 7) / 8;
        if (!make_room(validity, rows / 8 + 1) || !make_room(&node->buffers[DATA], (rows + 1) * node->shape->width))
            return 0;
    }
    return 1;
}

static inline int fits(const Builder *self, int column, int64_t size) {
    const Node *node = self->columns[column];
    return node == NULL || size <= self->most - node->buffers[CONTENT].size;
}

/* The limit is a third of ``most``: a byte of a header's key becomes at most the three bytes of U+FFFD. There are no
 * more headers than bytes. */
static inline int headers_fit(const Builder *self, const Row *row) {
    const Node *node = self->columns[COLUMN_HEADERS];
    if (node == NULL || row->header_count == 0)
        return 1;
    Node *const *parts = node->children[0]->children;
    int64_t most = self->most / 3;
    return row->header_bytes <= most - parts[HEADER_KEY]->buffers[CONTENT].size / 3 &&
           row->header_bytes <= most - parts[HEADER_VALUE]->buffers[CONTENT].size / 3 &&
           row->header_bytes <= most - node->children[0]->length / 3;
}

static inline Fate check_row(const Builder *self, const Row *row) {
    if (!fits(self, COLUMN_KEY, row->key.size) || !fits(self, COLUMN_VALUE, row->value.size) ||
        !headers_fit(self, row))
        return self->batch->nodes[0].length ? NO_ROOM : TOO_LARGE;
    if (self->in_microseconds && self->columns[COLUMN_TIMESTAMP] != NULL &&
        (row->timestamp > LAST_MICROSECOND_MS || row->timestamp < -LAST_MICROSECOND_MS))
        return NO_TIMESTAMP_THERE;
    return WRITTEN;
}

/* Append the key or value of a header. In a key, the caller has replaced what is not UTF-8. */
static inline int put_part(Node *node, Content content) {
    Buffer *validity = &node->buffers[VALIDITY];
    validity->size = (node->length + 7) / 8;
    if (!make_room(validity, 1) || !make_room(&node->buffers[DATA], 4) ||
        !make_room(&node->buffers[CONTENT], content.size))
        return 0;
    put_content(node, content);
    return 1;
}

static inline int put_header(Builder *self, Content key, Content value) {
    Node *element = self->columns[COLUMN_HEADERS]->children[0];
    if (!put_part(element->children[HEADER_KEY], key) || !put_part(element->children[HEADER_VALUE], value)) {
        PyErr_NoMemory();
        return 0;
    }
    element->length++;
    self->size += HEADER_BYTES + key.size + value.size;
    return 1;
}

/* The state of the headers before a row, so that a row that fails can be undone. */
typedef struct {
    int64_t size;
    int64_t elements;
    Node parts[2];
} Mark;

static inline void set_mark(const Builder *self, Mark *mark) {
    const Node *element = self->columns[COLUMN_HEADERS]->children[0];
    mark->size = self->size;
    mark->elements = element->length;
    for (int part = HEADER_KEY; part <= HEADER_VALUE; part++)
        mark->parts[part] = *element->children[part];
}

static inline void back_to_mark(Builder *self, const Mark *mark) {
    Node *element = self->columns[COLUMN_HEADERS]->children[0];
    self->size = mark->size;
    element->length = mark->elements;
    for (int part = HEADER_KEY; part <= HEADER_VALUE; part++) {
        Node *node = element->children[part];
        const Node *old = &mark->parts[part];
        node->length = old->length;
        node->nulls = old->nulls;
        for (int index = DATA; index < MOST_BUFFERS; index++)
            node->buffers[index].size = old->buffers[index].size;
        /* Clear the bits behind the last element in its byte: set_bit clears only bytes that it begins. */
        if (node->length & 7)
            node->buffers[VALIDITY].data[node->length >> 3] &= (uint8_t)((1 << (node->length & 7)) - 1);
    }
}

/* Append all of a row but its origin. Its headers are appended already. */
static inline int put_row(Builder *self, const Origin *origin, const Row *row) {
    Node **columns = self->columns;
    if ((columns[COLUMN_KEY] != NULL && !make_room(&columns[COLUMN_KEY]->buffers[CONTENT], row->key.size)) ||
        (columns[COLUMN_VALUE] != NULL && !make_room(&columns[COLUMN_VALUE]->buffers[CONTENT], row->value.size))) {
        PyErr_NoMemory();
        return 0;
    }
    if (columns[COLUMN_KEY] != NULL) {
        put_content(columns[COLUMN_KEY], row->key);
        self->size += row->key.size;
    }
    if (columns[COLUMN_VALUE] != NULL) {
        put_content(columns[COLUMN_VALUE], row->value);
        self->size += row->value.size;
    }
    if (columns[COLUMN_OFFSET] != NULL)
        put_int64(columns[COLUMN_OFFSET], row->offset);
    if (columns[COLUMN_TIMESTAMP] != NULL)
        put_int64(columns[COLUMN_TIMESTAMP], self->in_microseconds ? row->timestamp * 1000 : row->timestamp);
    if (columns[COLUMN_HEADERS] != NULL) {
        Node *list = columns[COLUMN_HEADERS];
        set_bit(list, row->header_count > 0);
        put_int32(list, (int32_t)list->children[0]->length);
    }
    self->size += self->row_bytes + (columns[COLUMN_TOPIC] != NULL ? origin->topic_size : 0);
    self->batch->nodes[0].length++;
    return 1;
}

/* Columns with the same value in all of these rows */

static inline void repeat_int32(Node *node, int32_t number, int64_t rows) {
    if (node == NULL)
        return;
    int32_t *numbers = (int32_t *)(node->buffers[DATA].data + node->buffers[DATA].size);
    for (int64_t row = 0; row < rows; row++)
        numbers[row] = number;
    node->buffers[DATA].size += rows * (int64_t)sizeof(number);
    node->length += rows;
}

static inline void repeat_text(Node *node, const char *text, int64_t size, int64_t rows) {
    if (node == NULL || rows == 0)
        return;
    Buffer *content = &node->buffers[CONTENT];
    int32_t *ends = (int32_t *)(node->buffers[DATA].data + node->buffers[DATA].size);
    uint8_t *start = content->data + content->size;
    for (int64_t row = 0; row < rows; row++)
        ends[row] = (int32_t)(content->size + (row + 1) * size);
    memcpy(start, text, (size_t)size);
    for (int64_t done = size, whole = size * rows; done < whole; done *= 2)
        memcpy(start + done, start, (size_t)Py_MIN(done, whole - done));
    content->size += size * rows;
    node->buffers[DATA].size += rows * (int64_t)sizeof(*ends);
    node->length += rows;
}

static inline void put_origin(Builder *self, const Origin *origin, int64_t rows) {
    Node **columns = self->columns, *epochs = columns[COLUMN_LEADER_EPOCH];
    repeat_text(columns[COLUMN_TOPIC], origin->topic, origin->topic_size, rows);
    repeat_int32(columns[COLUMN_PARTITION], origin->partition, rows);
    repeat_int32(columns[COLUMN_TIMESTAMP_TYPE], origin->timestamp_type, rows);
    for (int64_t row = 0; epochs != NULL && row < rows; row++) {
        set_bit(epochs, origin->leader_epoch >= 0);
        put_int32(epochs, (int32_t)Py_MAX(origin->leader_epoch, 0));
    }
}

/* Set the exception for a row that was refused. If rows before it were appended, the caller clears it, and the next
 * call meets the same row again. */
static inline void raise_refusal(Fate fate, PyObject *topic, PyObject *partition, const Builder *self, const Row *row) {
    if (fate != TOO_LARGE && fate != NO_TIMESTAMP_THERE)
        return;
    /* Not imported with the extension: aiokc.records imports that. */
    PyObject *new_error = imported("aiokc.records.unfit", fate == TOO_LARGE ? "too_large" : "no_timestamp");
    int64_t number = fate == TOO_LARGE ? self->most : row->timestamp;
    PyObject *error = new_error == NULL ? NULL : PyObject_CallFunction(new_error, "OOLL", topic, partition,
                                                                       (long long)row->offset, (long long)number);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(new_error);
    Py_XDECREF(error);
}

static inline int read_origin(PyObject *topic, PyObject *partition, PyObject *timestamp_type, PyObject *leader_epoch,
                              Origin *origin) {
    origin->topic = PyUnicode_AsUTF8AndSize(topic, &origin->topic_size);
    origin->partition = (int32_t)PyLong_AsLong(partition);
    origin->timestamp_type = (int32_t)PyLong_AsLong(timestamp_type);
    origin->leader_epoch = leader_epoch == Py_None ? -1 : PyLong_AsLongLong(leader_epoch);
    return origin->topic != NULL && !PyErr_Occurred();
}

/* Appending the rows of one batch, in append.c */

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Which rows to append: those before offset ``until``, at most ``rows``, until all rows of the builder have ``size``
 * bytes. */
typedef struct {
    int64_t until;
    int64_t rows;
    int64_t size;
} Wanted;

/* Append rows of the payload that the cursor reads, from ``progress`` on; return how many, or -1 with an exception. If
 * there are fewer than wanted because of the next row, the cursor has a problem, or the next row is ``refused`` and
 * ``fate`` says why. */
int64_t append_rows(Builder *self, const Origin *origin, const Head *head, Progress *progress, Cursor *cursor,
                    const Wanted *wanted, Row *refused, Fate *fate);

/* Methods of a ColumnBuilder, in append.c and run_columns.c */

PyObject *builder_append(Builder *self, PyObject *args, PyObject *kwargs);
PyObject *builder_append_records(Builder *self, PyObject *args, PyObject *kwargs);
PyObject *builder_append_run(Builder *self, PyObject *args, PyObject *kwargs);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
