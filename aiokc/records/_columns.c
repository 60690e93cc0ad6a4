/* Records into columns: ColumnBuilder appends the records of a reader, decoded as far as columns want them, and makes no
 * Python object of any. Its twin is _pure_columns.py.
 *
 * A row is complete or not there. What a row cannot be (a timestamp beyond the column's unit, more bytes than 32-bit
 * offsets can tell) is found before any of it is written.
 */

#include "_arrow.h"

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

static const Shape header_key = {.name = "key", .format = "u", .buffers = 3, .width = 4};
static const Shape header_value = {.name = "value", .format = "z", .buffers = 3, .width = 4};
static const Shape header = {
    .name = "element", .format = "+s", .buffers = 1, .children = {&header_key, &header_value}};

static const Shape microseconds = {.name = "timestamp", .format = "tsu:UTC", .buffers = 2, .width = 8};

static const Shape shapes[] = {
    [COLUMN_KEY] = {.name = "key", .format = "z", .buffers = 3, .width = 4},
    [COLUMN_VALUE] = {.name = "value", .format = "z", .buffers = 3, .width = 4},
    [COLUMN_TOPIC] = {.name = "topic", .format = "u", .buffers = 3, .width = 4},
    [COLUMN_PARTITION] = {.name = "partition", .format = "i", .buffers = 2, .width = 4},
    [COLUMN_OFFSET] = {.name = "offset", .format = "l", .buffers = 2, .width = 8},
    [COLUMN_TIMESTAMP] = {.name = "timestamp", .format = "tsm:UTC", .buffers = 2, .width = 8},
    [COLUMN_TIMESTAMP_TYPE] = {.name = "timestamp_type", .format = "i", .buffers = 2, .width = 4},
    [COLUMN_HEADERS] = {.name = "headers", .format = "+l", .buffers = 2, .width = 4, .children = {&header}},
    [COLUMN_LEADER_EPOCH] = {.name = "leader_epoch", .format = "i", .buffers = 2, .width = 4},
    /* the name that Spark has for it */
    [COLUMNS] = {.name = "timestampType", .format = "i", .buffers = 2, .width = 4},
};

#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

/* What a header counts apart from its key and value: their offsets. */
#define HEADER_BYTES 8

#define LAST_MICROSECOND_MS (INT64_MAX / 1000)

typedef struct {
    PyObject_HEAD
    Batch *batch;
    Node *columns[COLUMNS]; /* NULL: not wanted */
    int wanted[COLUMNS];    /* shapes, in the order of the columns */
    int wanted_count;
    int in_microseconds;
    int64_t most;      /* bytes of one column's content */
    int64_t row_bytes; /* of a row, apart from what is in CONTENT */
    int64_t size;      /* what all rows count */
    char is_full;
} Builder;

/* Setting one up */

static int find_shape(PyObject *name) {
    for (int index = 0; PyUnicode_Check(name) && index < SHAPES; index++) {
        if (PyUnicode_CompareWithASCIIString(name, shapes[index].name) == 0)
            return index;
    }
    PyErr_Format(PyExc_ValueError, "%R is no column", name);
    return -1;
}

static int column_of(int shape) {
    return shape == COLUMNS ? COLUMN_TIMESTAMP_TYPE : shape;
}

/* Begin another batch. Where there is no memory, nothing changes. */
static int start_batch(Builder *self) {
    Node *columns[COLUMNS] = {NULL};
    Batch *batch = new_batch();
    for (int index = 0; batch != NULL && index < self->wanted_count; index++) {
        int wanted = self->wanted[index];
        const Shape *shape = wanted == COLUMN_TIMESTAMP && self->in_microseconds ? &microseconds : &shapes[wanted];
        columns[column_of(wanted)] = add_node(batch, batch->nodes, shape);
        if (columns[column_of(wanted)] == NULL) {
            drop_batch(batch);
            batch = NULL;
        }
    }
    if (batch == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memcpy(self->columns, columns, sizeof(columns));
    self->batch = batch;
    self->size = 0;
    self->is_full = 0;
    return 1;
}

static int choose_columns(Builder *self, PyObject *names) {
    int is_wanted[COLUMNS] = {0};
    PyObject *sequence = PySequence_Fast(names, "columns must be a sequence of names");
    if (sequence == NULL)
        return 0;
    for (Py_ssize_t index = 0; index < PySequence_Fast_GET_SIZE(sequence); index++) {
        PyObject *name = PySequence_Fast_GET_ITEM(sequence, index);
        int shape = find_shape(name);
        if (shape >= 0 && is_wanted[column_of(shape)]++)
            PyErr_Format(PyExc_ValueError, "column %R is asked for twice", name);
        if (PyErr_Occurred())
            break;
        self->wanted[self->wanted_count++] = shape;
        self->row_bytes += shapes[shape].width;
    }
    Py_DECREF(sequence);
    return !PyErr_Occurred();
}

static PyObject *builder_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"columns", "timestamp_unit", "most", NULL};
    PyObject *columns;
    const char *unit = "ms";
    long long most = INT32_MAX;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|sL:ColumnBuilder", names, &columns, &unit, &most))
        return NULL;
    if ((strcmp(unit, "ms") != 0 && strcmp(unit, "us") != 0) || most < 1024 || most > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "timestamp_unit is ms or us, and most is in [1024, 2**31)");
        return NULL;
    }
    Builder *self = (Builder *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->in_microseconds = unit[0] == 'u';
    self->most = most;
    if (!choose_columns(self, columns) || !start_batch(self)) {
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void builder_dealloc(Builder *self) {
    PyTypeObject *type = Py_TYPE(self);
    drop_batch(self->batch);
    type->tp_free(self);
    Py_DECREF(type);
}

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
    int64_t header_bytes; /* at least what all headers' keys and values have together */
} Row;

/* What became of a row. WRONG: there is an exception. */
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

/* There is room for it. */
static inline void put_content(Node *node, Content content) {
    if (set_bit(node, content.bytes != NULL) && content.size) {
        memcpy(node->buffers[CONTENT].data + node->buffers[CONTENT].size, content.bytes, (size_t)content.size);
        node->buffers[CONTENT].size += content.size;
    }
    end_content(node);
}

static inline void put_number(Node *node, int64_t number) {
    int32_t narrow = (int32_t)number;
    Buffer *data = &node->buffers[DATA];
    memcpy(data->data + data->size, node->shape->width == 8 ? (const void *)&number : (const void *)&narrow,
           (size_t)node->shape->width);
    data->size += node->shape->width;
    node->length++;
}

/* How many more rows there can be, of ``rows``, as far as topics and the numbers of rows go. */
static int64_t possible_rows(const Builder *self, const Origin *origin, int64_t rows) {
    const Node *topics = self->columns[COLUMN_TOPIC];
    if (topics != NULL && origin->topic_size > 0)
        rows = Py_MIN(rows, (self->most - topics->buffers[CONTENT].size) / origin->topic_size);
    return Py_MIN(rows, INT32_MAX - 1 - self->batch->nodes[0].length);
}

/* Room for so many rows more, but for their keys, values and headers. */
static int make_row_room(Builder *self, const Origin *origin, int64_t rows) {
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

/* Of a header's key no byte becomes more than the three of U+FFFD, and there are no more headers than bytes. */
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

/* One key or value of a header. Keys that are not UTF-8 were replaced before. */
static int put_part(Node *node, Content content) {
    Buffer *validity = &node->buffers[VALIDITY];
    validity->size = (node->length + 7) / 8;
    if (!make_room(validity, 1) || !make_room(&node->buffers[DATA], 4) ||
        !make_room(&node->buffers[CONTENT], content.size))
        return 0;
    put_content(node, content);
    return 1;
}

static int put_header(Builder *self, Content key, Content value) {
    Node *element = self->columns[COLUMN_HEADERS]->children[0];
    if (!put_part(element->children[HEADER_KEY], key) || !put_part(element->children[HEADER_VALUE], value)) {
        PyErr_NoMemory();
        return 0;
    }
    element->length++;
    self->size += HEADER_BYTES + key.size + value.size;
    return 1;
}

/* Where headers were before a row, so that it can be taken back. */
typedef struct {
    int64_t size;
    int64_t elements;
    Node parts[2];
} Mark;

static void set_mark(const Builder *self, Mark *mark) {
    const Node *element = self->columns[COLUMN_HEADERS]->children[0];
    mark->size = self->size;
    mark->elements = element->length;
    for (int part = HEADER_KEY; part <= HEADER_VALUE; part++)
        mark->parts[part] = *element->children[part];
}

static void back_to_mark(Builder *self, const Mark *mark) {
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
        /* bits from here on are set anew, those of the byte that is not full are cleared */
        if (node->length & 7)
            node->buffers[VALIDITY].data[node->length >> 3] &= (uint8_t)((1 << (node->length & 7)) - 1);
    }
}

/* All of a row but its origin; headers are there already. */
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
        put_number(columns[COLUMN_OFFSET], row->offset);
    if (columns[COLUMN_TIMESTAMP] != NULL)
        put_number(columns[COLUMN_TIMESTAMP], self->in_microseconds ? row->timestamp * 1000 : row->timestamp);
    if (columns[COLUMN_HEADERS] != NULL) {
        Node *list = columns[COLUMN_HEADERS];
        set_bit(list, row->header_count > 0);
        put_number(list, list->children[0]->length);
    }
    self->size += self->row_bytes + (columns[COLUMN_TOPIC] != NULL ? origin->topic_size : 0);
    self->batch->nodes[0].length++;
    return 1;
}

/* The columns that are the same for all of these rows. */
static void put_origin(Builder *self, const Origin *origin, int64_t rows) {
    Node **columns = self->columns;
    Content topic = {origin->topic, origin->topic_size};
    for (int64_t row = 0; columns[COLUMN_TOPIC] != NULL && row < rows; row++)
        put_content(columns[COLUMN_TOPIC], topic);
    for (int64_t row = 0; columns[COLUMN_PARTITION] != NULL && row < rows; row++)
        put_number(columns[COLUMN_PARTITION], origin->partition);
    for (int64_t row = 0; columns[COLUMN_TIMESTAMP_TYPE] != NULL && row < rows; row++)
        put_number(columns[COLUMN_TIMESTAMP_TYPE], origin->timestamp_type);
    for (int64_t row = 0; columns[COLUMN_LEADER_EPOCH] != NULL && row < rows; row++) {
        set_bit(columns[COLUMN_LEADER_EPOCH], origin->leader_epoch >= 0);
        put_number(columns[COLUMN_LEADER_EPOCH], Py_MAX(origin->leader_epoch, 0));
    }
}

static int is_ascii(Content content) {
    for (int64_t at = 0; at < content.size; at++) {
        if (content.bytes[at] & 0x80)
            return 0;
    }
    return 1;
}

/* A header whose key may be any bytes: what is not UTF-8 is replaced, as a record does. */
static int put_raw_header(Builder *self, Content key, Content value) {
    if (is_ascii(key))
        return put_header(self, key, value);
    PyObject *text = PyUnicode_DecodeUTF8(key.bytes, (Py_ssize_t)key.size, "replace");
    Py_ssize_t size = 0;
    key.bytes = text == NULL ? NULL : PyUnicode_AsUTF8AndSize(text, &size);
    key.size = size;
    int done = key.bytes != NULL && put_header(self, key, value);
    Py_XDECREF(text);
    return done;
}

/* Why a row is refused, as an exception. The rows before it come first: then this is for the next call. */
static void raise_refusal(const State *state, Fate fate, PyObject *topic, PyObject *partition, const Builder *self,
                          const Row *row) {
    PyObject *error = NULL;
    if (fate == TOO_LARGE)
        error = PyObject_CallFunction(state->too_large, "OOLL", topic, partition, (long long)row->offset,
                                      (long long)self->most);
    else if (fate == NO_TIMESTAMP_THERE)
        error = PyObject_CallFunction(state->no_timestamp, "OOLL", topic, partition, (long long)row->offset,
                                      (long long)row->timestamp);
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
}

/* From a reader */

static Content next_content(Cursor *cursor) {
    Content content = {NULL, 0};
    if (!read_content(cursor, &content.bytes, &content.size))
        content.bytes = NULL; /* cannot be: the record was checked just now */
    return content;
}

static Content content_at(const Cursor *payload, int64_t place) {
    Cursor cursor = *payload;
    cursor.at = place;
    return place == NULL_PLACE ? (Content){NULL, 0} : next_content(&cursor);
}

static int put_headers(Builder *self, Cursor cursor, int64_t count) {
    while (count--) {
        Content key = next_content(&cursor), value = next_content(&cursor);
        if (!put_raw_header(self, key, value))
            return 0;
    }
    return 1;
}

static inline Fate append_record(Builder *self, const Origin *origin, const Reader *reader, const Cursor *payload,
                                 const Layout *layout, Row *row) {
    Cursor headers = *payload;
    row->timestamp = timestamp_of(reader, layout);
    row->key = content_at(payload, layout->places[KEY]);
    row->value = content_at(payload, layout->places[VALUE]);
    row->header_count = 0;
    if (layout->places[HEADERS] != NULL_PLACE && self->columns[COLUMN_HEADERS] != NULL) {
        headers.at = layout->places[HEADERS];
        read_header_count(&headers, &row->header_count);
        row->header_bytes = layout->end - headers.at;
    }
    Fate fate = check_row(self, row);
    if (fate != WRITTEN)
        return fate;
    if (row->header_count == 0)
        return put_row(self, origin, row) ? WRITTEN : WRONG;
    Mark mark;
    set_mark(self, &mark);
    if (put_headers(self, headers, row->header_count) && put_row(self, origin, row))
        return WRITTEN;
    back_to_mark(self, &mark);
    return WRONG;
}

static int read_origin(PyObject *topic, PyObject *partition, PyObject *timestamp_type, PyObject *leader_epoch,
                       Origin *origin) {
    origin->topic = PyUnicode_AsUTF8AndSize(topic, &origin->topic_size);
    origin->partition = (int32_t)PyLong_AsLong(partition);
    origin->timestamp_type = (int32_t)PyLong_AsLong(timestamp_type);
    origin->leader_epoch = leader_epoch == Py_None ? -1 : PyLong_AsLongLong(leader_epoch);
    return origin->topic != NULL && !PyErr_Occurred();
}

/* Append rows until there are so many, or all count so much; return how many, or -1 with an exception. Where there are
 * some, what is wrong with the one behind them is for the next call. */
static int64_t append_rows(Builder *self, const State *state, Reader *reader, int64_t until, int64_t rows, int64_t size) {
    PyObject *topic = PyTuple_GET_ITEM(reader->origin, TOPIC), *partition = PyTuple_GET_ITEM(reader->origin, PARTITION);
    Origin origin;
    if (!read_origin(topic, partition, PyTuple_GET_ITEM(reader->origin, TIMESTAMP_TYPE),
                     PyTuple_GET_ITEM(reader->origin, LEADER_EPOCH), &origin))
        return -1;
    Progress progress = reader->progress;
    int64_t wanted = Py_MIN(rows, progress.remaining), most = possible_rows(self, &origin, wanted), count = 0;
    if (!make_row_room(self, &origin, most)) {
        PyErr_NoMemory();
        return -1;
    }
    Cursor cursor = cursor_at(reader->payload, 0);
    Row row = {0};
    Fate fate = WRITTEN;
    for (; count < most && self->size < size; count++) {
        Layout layout;
        if (!read_record(&cursor, &progress, reader->last_delta, &layout))
            break;
        row.offset = reader->base_offset + layout.offset_delta;
        if (row.offset >= until)
            break;
        fate = append_record(self, &origin, reader, &cursor, &layout, &row);
        if (fate != WRITTEN)
            break;
        advance(&progress, &layout);
    }
    put_origin(self, &origin, count);
    reader->progress = progress;
    self->is_full = self->is_full || fate == NO_ROOM || (count == most && most < wanted);
    if (count > 0) {
        PyErr_Clear(); /* of the one behind, which will be read again */
    } else if (cursor.problem != NULL) {
        raise_corrupt(reader, &cursor);
    } else {
        raise_refusal(state, fate, topic, partition, self, &row);
    }
    return count == 0 && PyErr_Occurred() ? -1 : count;
}

static PyObject *builder_append(Builder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"reader", "from_offset", "until", "rows", "size", NULL};
    const State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *given;
    long long from_offset, until, rows, size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LLLL:append", names, state->reader_type, &given, &from_offset,
                                     &until, &rows, &size))
        return NULL;
    Reader *reader = (Reader *)given;
    Cursor cursor = cursor_at(reader->payload, 0);
    if (rows <= 0 || self->size >= size)
        return PyLong_FromLong(0);
    if (reader->base_offset + reader->progress.previous_delta + 1 < from_offset &&
        !skip_to(&cursor, &reader->progress, reader->last_delta, from_offset - reader->base_offset)) {
        raise_corrupt(reader, &cursor);
        return NULL;
    }
    int64_t count = append_rows(self, state, reader, until, rows, size);
    return count < 0 ? NULL : PyLong_FromLongLong(count);
}

/* From records that are objects already: of a reader that is none of ours */

static int content_of(PyObject *object, Content *content) {
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (object != Py_None && PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
        return 0;
    *content = (Content){bytes, size};
    return 1;
}

/* Headers as a tuple of pairs. Whoever made them checked that they are. */
static int put_pairs(Builder *self, PyObject *pairs) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(pairs); index++) {
        PyObject *key_object, *value_object;
        Content key, value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, index), "UO", &key_object, &value_object))
            return 0;
        Py_ssize_t size;
        key.bytes = PyUnicode_AsUTF8AndSize(key_object, &size);
        key.size = size;
        if (key.bytes == NULL || !content_of(value_object, &value) || !put_header(self, key, value))
            return 0;
    }
    return 1;
}

static int64_t bytes_of_pairs(PyObject *pairs) {
    int64_t sum = 0;
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(pairs); index++) {
        PyObject *key, *value;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, index), "UO", &key, &value))
            return -1;
        sum += 1 + PyUnicode_GET_LENGTH(key) + (PyBytes_Check(value) ? PyBytes_GET_SIZE(value) : 0);
    }
    return sum;
}

enum { FIELD_TOPIC, FIELD_PARTITION, FIELD_TIMESTAMP_TYPE, FIELD_LEADER_EPOCH, FIELD_OFFSET, FIELD_TIMESTAMP, FIELD_KEY,
       FIELD_VALUE, FIELD_HEADERS, FIELDS };

static const char *const field_names[FIELDS] = {"topic", "partition", "timestamp_type", "leader_epoch", "offset",
                                                "timestamp", "key", "value", "headers"};

static Fate append_fields(Builder *self, const State *state, PyObject **fields, long long until) {
    Origin origin;
    Row row = {0};
    if (!read_origin(fields[FIELD_TOPIC], fields[FIELD_PARTITION], fields[FIELD_TIMESTAMP_TYPE],
                     fields[FIELD_LEADER_EPOCH], &origin) ||
        !content_of(fields[FIELD_KEY], &row.key) || !content_of(fields[FIELD_VALUE], &row.value))
        return WRONG;
    row.offset = PyLong_AsLongLong(fields[FIELD_OFFSET]);
    row.timestamp = PyLong_AsLongLong(fields[FIELD_TIMESTAMP]);
    if (PyErr_Occurred())
        return WRONG;
    if (row.offset >= until)
        return NO_ROOM;
    if (!PyTuple_Check(fields[FIELD_HEADERS])) {
        PyErr_SetString(PyExc_TypeError, "headers must be a tuple");
        return WRONG;
    }
    if (self->columns[COLUMN_HEADERS] != NULL) {
        row.header_count = PyTuple_GET_SIZE(fields[FIELD_HEADERS]);
        row.header_bytes = bytes_of_pairs(fields[FIELD_HEADERS]);
    }
    Fate fate = row.header_bytes < 0 ? WRONG : check_row(self, &row);
    if (fate == WRITTEN && possible_rows(self, &origin, 1) == 0)
        fate = self->batch->nodes[0].length ? NO_ROOM : TOO_LARGE;
    self->is_full = self->is_full || fate == NO_ROOM;
    if (fate != WRITTEN) {
        raise_refusal(state, fate, fields[FIELD_TOPIC], fields[FIELD_PARTITION], self, &row);
        return fate;
    }
    if (!make_row_room(self, &origin, 1)) {
        PyErr_NoMemory();
        return WRONG;
    }
    Mark mark;
    if (row.header_count > 0)
        set_mark(self, &mark);
    if ((row.header_count == 0 || put_pairs(self, fields[FIELD_HEADERS])) && put_row(self, &origin, &row)) {
        put_origin(self, &origin, 1);
        return WRITTEN;
    }
    if (row.header_count > 0)
        back_to_mark(self, &mark);
    return WRONG;
}

static Fate append_object(Builder *self, const State *state, PyObject *record, long long until) {
    PyObject *fields[FIELDS] = {NULL};
    int known = 0;
    while (known < FIELDS && (fields[known] = PyObject_GetAttrString(record, field_names[known])) != NULL)
        known++;
    Fate fate = known == FIELDS ? append_fields(self, state, fields, until) : WRONG;
    while (known--)
        Py_DECREF(fields[known]);
    return fate;
}

static PyObject *builder_append_records(Builder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"records", "until", "size", NULL};
    PyObject *records;
    long long until, size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LL:append_records", names, &PyList_Type, &records, &until, &size))
        return NULL;
    const State *state = PyType_GetModuleState(Py_TYPE(self));
    Py_ssize_t count = 0;
    while (count < PyList_GET_SIZE(records) && self->size < size) {
        PyObject *record = Py_NewRef(PyList_GET_ITEM(records, count));
        Fate fate = append_object(self, state, record, until);
        Py_DECREF(record);
        if (fate != WRITTEN)
            break;
        count++;
    }
    if (count > 0)
        PyErr_Clear(); /* of the one behind, which will be given again */
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(count);
}

/* The type */

static PyObject *builder_finish(Builder *self, PyObject *Py_UNUSED(ignored)) {
    Batch *batch = self->batch;
    if (!start_batch(self))
        return NULL;
    return wrap_batch(PyType_GetModuleState(Py_TYPE(self)), batch);
}

static PyObject *builder_rows(Builder *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->batch->nodes[0].length);
}

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))builder_append, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("append(reader, from_offset, until, rows, size) -> int\n\n"
               "Append the reader's records in [from_offset, until): at most so many rows, until all count so much.")},
    {"append_records", (PyCFunction)(void (*)(void))builder_append_records, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("append_records(records, until, size) -> int\n\nThe same with records that are objects already.")},
    {"finish", (PyCFunction)builder_finish, METH_NOARGS,
     PyDoc_STR("finish() -> ArrowBatch\n\nThe rows so far. The next ones begin another batch.")},
    {0},
};

static PyMemberDef builder_members[] = {
    {"size", T_LONGLONG, offsetof(Builder, size), READONLY, PyDoc_STR("What all rows count, in bytes.")},
    {"is_full", T_BOOL, offsetof(Builder, is_full), READONLY,
     PyDoc_STR("Whether the next row would be too much for 32-bit offsets.")},
    {0},
};

static PyGetSetDef builder_getset[] = {
    {.name = "rows", .get = (getter)builder_rows},
    {0},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_members, builder_members},
    {Py_tp_getset, builder_getset},
    {Py_tp_doc, PyDoc_STR("Records as columns, one batch after the other.")},
    {0},
};

static PyType_Spec builder_spec = {
    .name = "aiokc.records._native.ColumnBuilder",
    .basicsize = sizeof(Builder),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = builder_slots,
};

int add_columns(PyObject *module, State *Py_UNUSED(state)) {
    PyObject *type = PyType_FromModuleAndSpec(module, &builder_spec, NULL);
    int result = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return result;
}
