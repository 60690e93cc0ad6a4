/* What the files of the extension share: the module's state, and the reader of one batch. */

#ifndef AIOKC_NATIVE_H
#define AIOKC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "_layout.h"

/* Names that the files share are nobody else's. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *reader_type;
    PyTypeObject *arrow_type;
    PyObject *corrupt_record;
    PyObject *too_large;    /* these two make errors: see unfit.py */
    PyObject *no_timestamp;
    PyObject *no_headers;
} State;

/* Topic, partition, timestamp type and leader epoch are the same for all records of a batch: a tuple, its origin. */
enum { TOPIC, PARTITION, TIMESTAMP_TYPE, LEADER_EPOCH };

typedef struct {
    PyObject_HEAD
    PyObject *payload;
    PyObject *origin;
    int64_t base_offset;
    int64_t last_delta;
    int64_t record_count;
    uint64_t base_timestamp; /* without a sign: Java's sum of it and a delta wraps around */
    int64_t append_time;
    int has_append_time;
    Progress progress;
} Reader;

static inline Cursor cursor_at(PyObject *payload, int64_t at) {
    return (Cursor){.data = (const uint8_t *)PyBytes_AS_STRING(payload), .size = PyBytes_GET_SIZE(payload), .at = at};
}

static inline int64_t timestamp_of(const Reader *reader, const Layout *layout) {
    return reader->has_append_time ? reader->append_time
                                   : (int64_t)(reader->base_timestamp + layout->timestamp_delta);
}

/* Add the types of _records.c to the module, and to its state. */
int add_records(PyObject *module, State *state);

/* The same for _columns.c. */
int add_columns(PyObject *module, State *state);

/* Set CorruptRecord for what the cursor has met in this reader's batch. */
void raise_corrupt(const Reader *reader, const Cursor *cursor);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
