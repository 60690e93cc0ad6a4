/* Appends rows to a ColumnBuilder: from a RecordReader, without making Python objects of its records, or from records
 * that are objects already. */

#include "plain_rows.h"

/* Rows from a reader */

static int is_ascii(Content content) {
    for (int64_t at = 0; at < content.size; at++) {
        if (content.bytes[at] & 0x80)
            return 0;
    }
    return 1;
}

/* Append a header whose key may be any bytes: what is not UTF-8 is replaced, as in the headers of a record object. */
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

static Content content_of_part(const Cursor *payload, const Part *part) {
    return (Content){part->is_null ? NULL : (const char *)payload->data + part->at, part->size};
}

static Content next_content(Cursor *cursor) {
    Part part;
    if (!read_content(cursor, &part))
        return (Content){NULL, 0}; /* impossible: the record was checked just now */
    return content_of_part(cursor, &part);
}

static int put_headers(Builder *self, Cursor cursor, int64_t count) {
    while (count--) {
        Content key = next_content(&cursor), value = next_content(&cursor);
        if (!put_raw_header(self, key, value))
            return 0;
    }
    return 1;
}

static inline Fate append_record(Builder *self, const Origin *origin, const Head *head, const Cursor *payload,
                                 const Layout *layout, Row *row) {
    Cursor headers = *payload;
    row->timestamp = timestamp_of(head, layout);
    row->key = content_of_part(payload, &layout->key);
    row->value = content_of_part(payload, &layout->value);
    row->header_count = 0;
    if (layout->headers != NO_HEADERS && self->columns[COLUMN_HEADERS] != NULL) {
        headers.at = layout->headers;
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

int64_t append_rows(Builder *self, const Origin *origin, const Head *head, Progress *progress, Cursor *cursor,
                    const Wanted *wanted, Row *refused, Fate *fate) {
    Progress here = *progress;
    int64_t rows = Py_MIN(wanted->rows, here.remaining), most = possible_rows(self, origin, rows), count = 0;
    *fate = WRITTEN;
    if (!make_row_room(self, origin, most)) {
        PyErr_NoMemory();
        return -1;
    }
    while (count < most && self->size < wanted->size) {
        Layout layout;
        int64_t plain = append_plain(self, origin, head, &here, cursor, wanted, most - count);
        count += plain;
        if (count == most || self->size >= wanted->size)
            break;
        if (!read_record(cursor, &here, head->last_delta, &layout))
            break;
        refused->offset = head->base_offset + layout.offset_delta;
        if (refused->offset >= wanted->until)
            break;
        *fate = append_record(self, origin, head, cursor, &layout, refused);
        if (*fate != WRITTEN)
            break;
        advance(&here, &layout);
        count++;
    }
    put_origin(self, origin, count);
    *progress = here;
    self->is_full = self->is_full || *fate == NO_ROOM || (count == most && most < rows);
    if (count > 0)
        PyErr_Clear(); /* the error of the next row: the next call reads it again */
    return count == 0 && *fate == WRONG ? -1 : count;
}

static PyObject *append_from(Builder *self, Reader *reader, long long from_offset, const Wanted *wanted) {
    Head *head = &reader->head;
    Cursor cursor = cursor_at(reader->payload, 0);
    if (wanted->rows <= 0 || self->size >= wanted->size)
        return PyLong_FromLong(0);
    if (head->base_offset + reader->progress.previous_delta + 1 < from_offset &&
        !skip_to(&cursor, &reader->progress, head->last_delta, from_offset - head->base_offset)) {
        raise_corrupt(reader, &cursor);
        return NULL;
    }
    PyObject *topic = PyTuple_GET_ITEM(reader->origin, TOPIC), *partition = PyTuple_GET_ITEM(reader->origin, PARTITION);
    Origin origin;
    if (!read_origin(topic, partition, PyTuple_GET_ITEM(reader->origin, TIMESTAMP_TYPE),
                     PyTuple_GET_ITEM(reader->origin, LEADER_EPOCH), &origin))
        return NULL;
    Row refused = {0};
    Fate fate;
    int64_t count = append_rows(self, &origin, head, &reader->progress, &cursor, wanted, &refused, &fate);
    if (count == 0 && cursor.problem != NULL) {
        raise_corrupt(reader, &cursor);
    } else if (count == 0) {
        raise_refusal(fate, topic, partition, self, &refused);
    }
    return PyErr_Occurred() ? NULL : PyLong_FromLongLong(count);
}

PyObject *builder_append(Builder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"reader", "from_offset", "until", "rows", "size", NULL};
    const State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *given;
    long long from_offset, until, rows, size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LLLL:append", names, state->reader_type, &given, &from_offset,
                                     &until, &rows, &size))
        return NULL;
    Reader *reader = (Reader *)given;
    Wanted wanted = {.until = until, .rows = rows, .size = size};
    PyObject *result = NULL;
    Py_BEGIN_CRITICAL_SECTION2(self, given);
    if (begin_use(&self->is_used)) {
        if (begin_use(&reader->is_used)) {
            result = append_from(self, reader, from_offset, &wanted);
            end_use(&reader->is_used);
        }
        end_use(&self->is_used);
    }
    Py_END_CRITICAL_SECTION2();
    return result;
}

/* Rows from records that are objects already: those of a reader that is not in C */

static int content_of(PyObject *object, Content *content) {
    char *bytes = NULL;
    Py_ssize_t size = 0;
    if (object != Py_None && PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
        return 0;
    *content = (Content){bytes, size};
    return 1;
}

/* Append headers that are a tuple of pairs. bytes_of_pairs has checked the pairs. */
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
        Py_ssize_t size;
        if (!PyArg_ParseTuple(PyTuple_GET_ITEM(pairs, index), "UO", &key, &value) ||
            PyUnicode_AsUTF8AndSize(key, &size) == NULL)
            return -1;
        sum += 1 + size + (PyBytes_Check(value) ? PyBytes_GET_SIZE(value) : 0);
    }
    return sum;
}

enum { FIELD_TOPIC, FIELD_PARTITION, FIELD_TIMESTAMP_TYPE, FIELD_LEADER_EPOCH, FIELD_OFFSET, FIELD_TIMESTAMP, FIELD_KEY,
       FIELD_VALUE, FIELD_HEADERS, FIELDS };

static const char *const field_names[FIELDS] = {"topic", "partition", "timestamp_type", "leader_epoch", "offset",
                                                "timestamp", "key", "value", "headers"};

static Fate append_fields(Builder *self, PyObject **fields, long long until) {
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
        raise_refusal(fate, fields[FIELD_TOPIC], fields[FIELD_PARTITION], self, &row);
        return fate;
    }
    if (!make_row_room(self, &origin, 1)) {
        PyErr_NoMemory();
        return WRONG;
    }
    Mark mark = {0};
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

static Fate append_object(Builder *self, PyObject *record, long long until) {
    PyObject *fields[FIELDS] = {NULL};
    int known = 0;
    while (known < FIELDS && (fields[known] = PyObject_GetAttrString(record, field_names[known])) != NULL)
        known++;
    Fate fate = known == FIELDS ? append_fields(self, fields, until) : WRONG;
    while (known--)
        Py_DECREF(fields[known]);
    return fate;
}

/* A new reference to an item, or NULL behind the end of the list: the application has the list, too. */
static PyObject *item_at(PyObject *list, Py_ssize_t index) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject *item = PyList_GetItemRef(list, index);
    if (item == NULL)
        PyErr_Clear();
    return item;
#else
    return index < PyList_GET_SIZE(list) ? Py_NewRef(PyList_GET_ITEM(list, index)) : NULL;
#endif
}

static PyObject *append_objects(Builder *self, PyObject *records, long long until, long long size) {
    Py_ssize_t count = 0;
    PyObject *record;
    while (self->size < size && (record = item_at(records, count)) != NULL) {
        Fate fate = append_object(self, record, until);
        Py_DECREF(record);
        if (fate != WRITTEN)
            break;
        count++;
    }
    if (count > 0)
        PyErr_Clear(); /* the error of the next record: the caller passes it again */
    return PyErr_Occurred() ? NULL : PyLong_FromSsize_t(count);
}

PyObject *builder_append_records(Builder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"records", "until", "size", NULL};
    PyObject *records, *result = NULL;
    long long until, size;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!LL:append_records", names, &PyList_Type, &records, &until, &size))
        return NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    if (begin_use(&self->is_used)) {
        result = append_objects(self, records, until, size);
        end_use(&self->is_used);
    }
    Py_END_CRITICAL_SECTION();
    return result;
}
