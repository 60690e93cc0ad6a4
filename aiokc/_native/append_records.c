/* append_records: many records of one topic, each to the batch of its partition, in one call.
 *
 * It takes the records that are as simple as most are, and stops before the first one that is not (placing.h). The
 * caller appends that one by itself, and calls again. So this file decides nothing but what is the same for every
 * record, and runs no Python code in between.
 */

#include "placing.h"

/* The fields of a ProducerRecord. */
enum { RECORD_TOPIC, RECORD_VALUE, RECORD_KEY, RECORD_PARTITION, RECORD_TIMESTAMP, RECORD_HEADERS, RECORD_FIELDS };

/* What holds for all records of a call. */
typedef struct {
    Places places;
    PyTypeObject *record_type;
    PyObject *topic;
    PyObject *appenders;
    int64_t timestamp;
    int64_t room; /* the bytes that may still be appended */
    Touched touched;
} Run;

/* Read the fields of a record that has more than a value. False: the caller has to look at it. */
static int read_fields(const Run *run, PyObject *object, Placed *placed) {
    if (Py_TYPE(object) != run->record_type || PyTuple_GET_SIZE(object) != RECORD_FIELDS)
        return 0;
    PyObject *topic = PyTuple_GET_ITEM(object, RECORD_TOPIC);
    if (topic != run->topic && (!PyUnicode_CheckExact(topic) || PyUnicode_Compare(topic, run->topic) != 0))
        return 0;
    PyObject *timestamp = PyTuple_GET_ITEM(object, RECORD_TIMESTAMP);
    if (timestamp != Py_None && (placed->record.timestamp = within(timestamp, INT64_MAX)) < 0)
        return 0;
    return is_plain(PyTuple_GET_ITEM(object, RECORD_VALUE), &placed->record.value) &&
           is_plain(PyTuple_GET_ITEM(object, RECORD_KEY), &placed->record.key) &&
           are_plain_headers(PyTuple_GET_ITEM(object, RECORD_HEADERS), placed) &&
           choose_partition(&run->places, PyTuple_GET_ITEM(object, RECORD_PARTITION), placed);
}

static int place(const Run *run, PyObject *object, Placed *placed) {
    placed->record = (NewRecord){.timestamp = run->timestamp, .key = {.bytes = NULL, .size = -1}};
    if (is_plain(object, &placed->record.value))
        return choose_partition(&run->places, Py_None, placed);
    return read_fields(run, object, placed);
}

/* Append a record where it belongs. 0: the caller has to do it. -1: there is an exception. */
static int append_one(Run *run, PyObject *object) {
    Placed placed;
    if (!place(run, object, &placed) || placed.partition >= PyList_GET_SIZE(run->appenders))
        return 0;
    int64_t bound = bound_of(&placed.record);
    if (bound > run->places.largest || bound > run->room)
        return 0;
    PyObject *appender = Py_NewRef(PyList_GET_ITEM(run->appenders, placed.partition));
    int appended = 0;
    if (PyObject_TypeCheck(appender, run->places.appender_type)) {
        Appended where = {0};
        appended = append_record(appender, &placed.record, &where);
        run->room -= where.size;
    }
    Py_DECREF(appender);
    return appended == 1 && !note(&run->touched, placed.partition, run->places.count) ? -1 : appended;
}

static PyObject *append_records(PyObject *module, PyObject *args) {
    State *state = PyModule_GetState(module);
    Run run = {.record_type = state->producer_record_type, .places = {.appender_type = state->appender_type}};
    Places *places = &run.places;
    PyObject *records;
    Py_ssize_t start, stop;
    long long timestamp, largest, room;
    if (!PyArg_ParseTuple(args, "O!UO!nnLniLLO!:append_records", &PyList_Type, &run.appenders, &run.topic,
                          &PyTuple_Type, &records, &start, &stop, &timestamp, &places->sticky, &places->keys, &largest,
                          &room, &PyList_Type, &run.touched.listed))
        return NULL;
    run.timestamp = timestamp, places->largest = largest, run.room = room;
    start = Py_MAX(start, 0);
    stop = Py_MIN(stop, PyTuple_GET_SIZE(records));
    int appended = 1;
    Py_BEGIN_CRITICAL_SECTION(run.appenders);
    places->count = PyList_GET_SIZE(run.appenders);
    while (start < stop && (appended = append_one(&run, PyTuple_GET_ITEM(records, start))) == 1)
        start++;
    Py_END_CRITICAL_SECTION();
    PyMem_Free(run.touched.seen);
    return appended < 0 ? NULL : Py_BuildValue("nL", start, (long long)run.room);
}

static PyMethodDef functions[] = {
    {"append_records", append_records, METH_VARARGS,
     PyDoc_STR("append_records(appenders, topic, records, start, stop, timestamp, sticky, keys, largest, room, touched)"
               "\n\nAppend records[start:stop], up to the first one that is out of the ordinary; return its index and "
               "the room that is left. The partitions that it has appended to are added to touched.")},
    {0},
};

int add_append_records(PyObject *module, State *state) {
    state->producer_record_type = (PyTypeObject *)imported("aiokc.types", "ProducerRecord");
    return state->producer_record_type == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
