/* ConsumerRecords as structs (the type is in records.c), and how one is made of its parts. */

#ifndef AIOKC_RECORD_H
#define AIOKC_RECORD_H

#include "module.h"

typedef struct Record {
    PyObject_HEAD
    PyObject *origin; /* topic, partition, timestamp type and leader epoch, the same for all records of a batch */
    PyObject *key;
    PyObject *value;
    PyObject *headers; /* the bytes to build a tuple from, until they are first read; then that tuple. Nothing else of a
                        * record changes that anybody refers to (rewriting.h is for the others). */
    PyObject *offset; /* an object, since the interpreter is five times as fast with those */
    long long timestamp;
} Record;

/* The memory of records that were freed, for the next ones: to allocate a record and to free it takes a fifth of the time
 * that it takes to make one. Not without the GIL, where threads would have to share it. */
static inline Record *allocate_record(State *state) {
    if (state->spare_count == 0)
        return PyObject_New(Record, state->record_type);
    Record *record = state->spare_records[--state->spare_count];
    ASAN_UNPOISON_MEMORY_REGION(record, sizeof(Record));
    return (Record *)PyObject_Init((PyObject *)record, state->record_type);
}

static inline void free_record(State *state, Record *record) {
#if !defined(Py_GIL_DISABLED)
    if (state->spare_count < SPARE_RECORDS) {
        state->spare_records[state->spare_count++] = record;
        ASAN_POISON_MEMORY_REGION(record, sizeof(Record));
        return;
    }
#endif
    PyObject_Free(record);
}

/* Copy the headers of a record that was read. They are built of these bytes when they are first asked for. */
static inline PyObject *new_headers(const State *state, const Cursor *cursor, const Layout *layout) {
    if (layout->headers == NO_HEADERS)
        return Py_NewRef(state->no_headers);
    return PyBytes_FromStringAndSize((const char *)cursor->data + layout->headers,
                                     (Py_ssize_t)(layout->end - layout->headers));
}

/* Make a record of a key and a value, and take over the references to both. NULL for one of them says that there is an
 * exception. */
static inline Record *record_of(State *state, PyObject *origin, const Head *head, const Cursor *cursor,
                                const Layout *layout, PyObject *key, PyObject *value) {
    PyObject *headers = key == NULL || value == NULL ? NULL : new_headers(state, cursor, layout);
    PyObject *offset = headers == NULL ? NULL : PyLong_FromLongLong(head->base_offset + layout->offset_delta);
    Record *record = offset == NULL ? NULL : allocate_record(state);
    if (record == NULL) {
        Py_XDECREF(key);
        Py_XDECREF(value);
        Py_XDECREF(headers);
        Py_XDECREF(offset);
        return NULL;
    }
    record->origin = Py_NewRef(origin);
    record->key = key;
    record->value = value;
    record->headers = headers;
    record->offset = offset;
    record->timestamp = timestamp_of(head, layout);
    return record;
}

#endif
