/* append_records: many records of one topic, each to the batch of its partition, in one call.
 *
 * It takes the records that are as simple as most are, and stops before the first one that is not: one that needs a new
 * batch, a check, an error, or code of the application. The caller appends that one by itself, and calls again. So this
 * file decides nothing but what is the same for every record, and runs no Python code in between.
 */

#include "record_appender.h"

/* The fields of a ProducerRecord. */
enum { RECORD_TOPIC, RECORD_VALUE, RECORD_KEY, RECORD_PARTITION, RECORD_TIMESTAMP, RECORD_HEADERS, RECORD_FIELDS };

/* How a key chooses the partition. */
enum { KEYS_CHOOSE_NOTHING, KEYS_CHOOSE_BY_MURMUR2, KEYS_STOP };

/* What holds for all records of a call. */
typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *appender_type;
    PyObject *topic;
    PyObject *appenders;
    Py_ssize_t partitions;
    int64_t timestamp;
    Py_ssize_t sticky;
    int keys;
    int64_t largest; /* the most bytes of a record, by its upper bound */
    int64_t room;    /* the bytes that may still be appended */
} Run;

/* A record with its partition; header contents lie in ``few``. */
typedef struct {
    NewRecord record;
    Py_ssize_t partition;
    Header few[FEW_HEADERS];
} Placed;

/* The upper bound of a record's size, without its contents: length, attributes, timestamp, offset, three counts. It is
 * RECORD_OVERHEAD and HEADER_OVERHEAD of records/encoding/batch_builder.py. */
#define RECORD_OVERHEAD 36
#define HEADER_OVERHEAD 10

static int is_plain(PyObject *object, Content *content) {
    if (object == Py_None) {
        *content = (Content){.bytes = NULL, .size = -1};
        return 1;
    }
    if (!PyBytes_CheckExact(object))
        return 0;
    *content = (Content){.bytes = PyBytes_AS_STRING(object), .size = PyBytes_GET_SIZE(object)};
    return 1;
}

/* Return an int's value if it is in this range, or else -1. */
static int64_t within(PyObject *object, int64_t most) {
    if (!PyLong_CheckExact(object))
        return -1;
    int overflow;
    long long value = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow == 0 && value >= 0 && value <= most ? value : -1;
}

static int are_plain_headers(PyObject *headers, Placed *placed) {
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
            PyErr_Clear(); /* half a surrogate pair: the caller raises that */
            return 0;
        }
        placed->few[i].name = (Content){.bytes = bytes, .size = size};
    }
    placed->record.headers = placed->few;
    placed->record.header_count = count;
    return 1;
}

static int64_t bound_of(const NewRecord *record) {
    int64_t bound = RECORD_OVERHEAD + Py_MAX(record->key.size, 0) + Py_MAX(record->value.size, 0);
    for (int64_t i = 0; i < record->header_count; i++)
        bound += HEADER_OVERHEAD + record->headers[i].name.size + Py_MAX(record->headers[i].value.size, 0);
    return bound;
}

/* Read the fields of a record that has more than a value. False: the caller has to look at it. */
static int read_fields(const Run *run, PyObject *object, Placed *placed) {
    if (Py_TYPE(object) != run->record_type || PyTuple_GET_SIZE(object) != RECORD_FIELDS)
        return 0;
    PyObject *topic = PyTuple_GET_ITEM(object, RECORD_TOPIC);
    if (topic != run->topic && (!PyUnicode_CheckExact(topic) || PyUnicode_Compare(topic, run->topic) != 0))
        return 0;
    if (!is_plain(PyTuple_GET_ITEM(object, RECORD_VALUE), &placed->record.value) ||
        !is_plain(PyTuple_GET_ITEM(object, RECORD_KEY), &placed->record.key) ||
        !are_plain_headers(PyTuple_GET_ITEM(object, RECORD_HEADERS), placed))
        return 0;
    PyObject *timestamp = PyTuple_GET_ITEM(object, RECORD_TIMESTAMP);
    if (timestamp != Py_None && (placed->record.timestamp = within(timestamp, INT64_MAX)) < 0)
        return 0;
    PyObject *partition = PyTuple_GET_ITEM(object, RECORD_PARTITION);
    if (partition != Py_None)
        return (placed->partition = (Py_ssize_t)within(partition, run->partitions - 1)) >= 0;
    if (placed->record.key.size < 0 || run->keys == KEYS_CHOOSE_NOTHING)
        return placed->partition >= 0;
    if (run->keys == KEYS_STOP)
        return 0;
    uint32_t hash = murmur2(placed->record.key.bytes, placed->record.key.size);
    placed->partition = (Py_ssize_t)((hash & 0x7FFFFFFF) % (uint64_t)run->partitions);
    return 1;
}

static int place(const Run *run, PyObject *object, Placed *placed) {
    placed->record = (NewRecord){.timestamp = run->timestamp, .key = {.bytes = NULL, .size = -1}};
    placed->partition = run->sticky;
    if (is_plain(object, &placed->record.value))
        return placed->partition >= 0;
    return read_fields(run, object, placed);
}

/* Append a record where it belongs. 0: the caller has to do it. -1: there is an exception. */
static int append_one(Run *run, PyObject *object) {
    Placed placed;
    if (!place(run, object, &placed) || placed.partition >= PyList_GET_SIZE(run->appenders))
        return 0;
    int64_t bound = bound_of(&placed.record);
    if (bound > run->largest || bound > run->room)
        return 0;
    PyObject *appender = Py_NewRef(PyList_GET_ITEM(run->appenders, placed.partition));
    int appended = 0;
    if (PyObject_TypeCheck(appender, run->appender_type)) {
        int64_t size = 0;
        appended = append_record(appender, &placed.record, &size);
        run->room -= size;
    }
    Py_DECREF(appender);
    return appended;
}

static PyObject *append_records(PyObject *module, PyObject *args) {
    State *state = PyModule_GetState(module);
    Run run = {.record_type = state->producer_record_type, .appender_type = state->appender_type};
    PyObject *records;
    Py_ssize_t start, stop;
    long long timestamp, largest, room;
    if (!PyArg_ParseTuple(args, "O!UO!nnLniLL:append_records", &PyList_Type, &run.appenders, &run.topic, &PyTuple_Type,
                          &records, &start, &stop, &timestamp, &run.sticky, &run.keys, &largest, &room))
        return NULL;
    run.timestamp = timestamp, run.largest = largest, run.room = room;
    start = Py_MAX(start, 0);
    stop = Py_MIN(stop, PyTuple_GET_SIZE(records));
    int appended = 1;
    Py_BEGIN_CRITICAL_SECTION(run.appenders);
    run.partitions = PyList_GET_SIZE(run.appenders);
    while (start < stop && (appended = append_one(&run, PyTuple_GET_ITEM(records, start))) == 1)
        start++;
    Py_END_CRITICAL_SECTION();
    return appended < 0 ? NULL : Py_BuildValue("nL", start, (long long)run.room);
}

static PyMethodDef functions[] = {
    {"append_records", append_records, METH_VARARGS,
     PyDoc_STR("append_records(appenders, topic, records, start, stop, timestamp, sticky, keys, largest, room)\n\n"
               "Append records[start:stop], up to the first one that is out of the ordinary; return its index and the "
               "room that is left.")},
    {0},
};

int add_append_records(PyObject *module, State *state) {
    state->producer_record_type = (PyTypeObject *)imported("aiokc.types", "ProducerRecord");
    return state->producer_record_type == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
