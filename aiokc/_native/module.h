/* What the files of the extension share: the module's state, and the reader of one batch. */

#ifndef AIOKC_NATIVE_H
#define AIOKC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "reader.h"

/* Names that the files share are nobody else's. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *reader_type;
    PyTypeObject *arrow_type;
    PyTypeObject *step_type;
    PyObject *corrupt_record;
    PyObject *too_large;    /* these two make errors: see unfit.py */
    PyObject *no_timestamp;
    PyObject *crc32c;
    PyObject *no_headers;
} State;

/* Topic, partition, timestamp type and leader epoch are the same for all records of a batch: a tuple, its origin. */
enum { TOPIC, PARTITION, TIMESTAMP_TYPE, LEADER_EPOCH };

/* What a batch's header says of its records. */
typedef struct {
    int64_t base_offset;
    int64_t last_delta;
    int64_t record_count;
    uint64_t base_timestamp; /* without a sign: Java's sum of it and a delta wraps around */
    int64_t append_time;
    int has_append_time;
} Head;

typedef struct {
    PyObject_HEAD
    PyObject *payload;
    PyObject *origin;
    Head head;
    Progress progress;
} Reader;

static inline Cursor cursor_at(PyObject *payload, int64_t at) {
    return (Cursor){.data = (const uint8_t *)PyBytes_AS_STRING(payload), .size = PyBytes_GET_SIZE(payload), .at = at};
}

static inline Progress at_first_record(const Head *head) {
    return (Progress){.previous_delta = -1, .remaining = head->record_count};
}

/* What is wrong with a batch of so many bytes of records, as a format of these and the number of records; or NULL. */
static inline const char *wrong_size(const Head *head, int64_t size) {
    if (head->record_count > size / SMALLEST_RECORD)
        return "%lld bytes cannot hold %lld records";
    return head->record_count == 0 && size > 0 ? "%lld bytes in a batch without records" : NULL;
}

static inline int64_t timestamp_of(const Head *head, const Layout *layout) {
    return head->has_append_time ? head->append_time : (int64_t)(head->base_timestamp + layout->timestamp_delta);
}

/* Add the types of records.c to the module, and to its state. */
int add_records(PyObject *module, State *state);

/* The same for columns.c. */
int add_columns(PyObject *module, State *state);

/* And the functions of run_columns.c and run_records.c. */
int add_runs(PyObject *module, State *state);
int add_take_run(PyObject *module, State *state);

/* An empty list that has room for so many records. */
PyObject *list_with_room(int64_t count);

/* Put ``most`` records more at the end of a list, which has room for them; return how many there were, or -1 with an
 * exception and everything as it was before. It may be fewer because of the record behind them: then
 * the cursor has a problem. No Python code runs in here, and whoever sees the list elsewhere sees whole records only. */
int64_t fill_list(const State *state, PyObject *origin, const Head *head, Progress *progress, Cursor *cursor,
                  int64_t most, PyObject *records);

/* And the type of async_steps.c. */
int add_steps(PyObject *module, State *state);

/* Set CorruptRecord for what the cursor has met in this reader's batch. */
void raise_corrupt(const Reader *reader, const Cursor *cursor);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
