/* Where a simple record goes, and what it has, without any Python code: what append_records.c and topic_appender.c share.
 *
 * A record is simple if its parts are of the plainest types and within their ranges. All others are left to Python,
 * which checks them, converts them, or raises: so nothing in here sets an exception.
 */

#ifndef AIOKC_PLACING_H
#define AIOKC_PLACING_H

#include "record_appender.h"

/* How a key chooses the partition. */
enum { KEYS_CHOOSE_NOTHING, KEYS_CHOOSE_BY_MURMUR2, KEYS_STOP };

/* The partitions of a topic, for records that name none. */
typedef struct {
    PyTypeObject *appender_type;
    Py_ssize_t count;
    Py_ssize_t sticky; /* the partition of what no key decides on; -1: none is chosen */
    int keys;
    int64_t largest; /* the most bytes of a record, by its upper bound */
} Places;

/* The partitions that a call has appended to: each once, in order of their first record. */
typedef struct {
    char *seen;       /* a byte for each partition; NULL until there is one */
    PyObject *listed; /* a list that the caller looks into */
} Touched;

/* Note a partition. False: there is an exception. */
static inline int note(Touched *touched, Py_ssize_t partition, Py_ssize_t count) {
    if (touched->seen == NULL && (touched->seen = PyMem_Calloc((size_t)count, 1)) == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    if (touched->seen[partition])
        return 1;
    touched->seen[partition] = 1;
    PyObject *number = PyLong_FromSsize_t(partition);
    int done = number != NULL && PyList_Append(touched->listed, number) == 0;
    Py_XDECREF(number);
    return done;
}

/* A record with its partition; its headers lie in ``few``. */
typedef struct {
    NewRecord record;
    Py_ssize_t partition;
    Header few[FEW_HEADERS];
} Placed;

/* The upper bound of a record's size, without its contents: length, attributes, timestamp, offset, three counts. */
#define RECORD_OVERHEAD 36
#define HEADER_OVERHEAD 10

static inline int is_plain(PyObject *object, Content *content) {
    if (object == Py_None) {
        *content = (Content){.bytes = NULL, .size = -1};
        return 1;
    }
    if (!PyBytes_CheckExact(object))
        return 0;
    *content = (Content){.bytes = PyBytes_AS_STRING(object), .size = PyBytes_GET_SIZE(object)};
    return 1;
}

/* Return an int's value if it is between 0 and ``most``, or else -1. */
static inline int64_t within(PyObject *object, int64_t most) {
    if (!PyLong_CheckExact(object))
        return -1;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 && value >= 0 && value <= most ? value : -1;
}

static inline int are_plain_headers(PyObject *headers, Placed *placed) {
    if (!PyTuple_CheckExact(headers) || PyTuple_GET_SIZE(headers) > FEW_HEADERS)
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(headers);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *pair = PyTuple_GET_ITEM(headers, i);
        if (!PyTuple_CheckExact(pair) || PyTuple_GET_SIZE(pair) != 2)
            return 0;
        PyObject *name = PyTuple_GET_ITEM(pair, 0);
        if (!PyUnicode_CheckExact(name) || !is_plain(PyTuple_GET_ITEM(pair, 1), &placed->few[i].value))
            return 0;
        Py_ssize_t size;
        const char *bytes = PyUnicode_AsUTF8AndSize(name, &size);
        if (bytes == NULL) {
            PyErr_Clear(); /* half a surrogate pair: Python raises that */
            return 0;
        }
        placed->few[i].name = (Content){.bytes = bytes, .size = size};
    }
    placed->record.headers = placed->few;
    placed->record.header_count = count;
    return 1;
}

static inline int64_t bound_of(const NewRecord *record) {
    int64_t bound = RECORD_OVERHEAD + Py_MAX(record->key.size, 0) + Py_MAX(record->value.size, 0);
    for (int64_t i = 0; i < record->header_count; i++)
        bound += HEADER_OVERHEAD + record->headers[i].name.size + Py_MAX(record->headers[i].value.size, 0);
    return bound;
}

/* Whether neither the caller nor a key has chosen the partition of a record. */
static inline int is_sticky(const Places *places, PyObject *given, const Placed *placed) {
    return given == Py_None && (placed->record.key.size < 0 || places->keys == KEYS_CHOOSE_NOTHING);
}

/* Choose the partition: the given one, that of the key, or the sticky one. False: Python has to. */
static inline int choose_partition(const Places *places, PyObject *given, Placed *placed) {
    const Content *key = &placed->record.key;
    if (given != Py_None) {
        placed->partition = (Py_ssize_t)within(given, places->count - 1);
    } else if (is_sticky(places, given, placed)) {
        placed->partition = places->sticky;
    } else if (places->keys == KEYS_CHOOSE_BY_MURMUR2 && places->count > 0) {
        placed->partition = (Py_ssize_t)((murmur2(key->bytes, key->size) & 0x7FFFFFFF) % (uint64_t)places->count);
    } else {
        return 0;
    }
    return placed->partition >= 0 && placed->partition < places->count;
}

#endif
