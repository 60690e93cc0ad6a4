/* The module aiokc._native.extension: the record decoder and encoder in C, which do what records/_pure.py and
 * records/encoding/_pure.py do, byte for byte and error for error.
 *
 * reader.h reads the bytes of a record, and records.c makes objects of records. columns.c, append.c and rows.h make
 * columns of records, batch_columns.c owns the columns' memory, and arrow_export.c exports them. runs.h reads batches
 * side by side where they lie: run_columns.c makes columns of them, run_records.c checks their records, and
 * record_span.c makes objects of these when they are read, for the sequences of record_parts.c. unpack_run.c makes such
 * a run of compressed batches; lz4_frame.c and zstd_frame.c read their payloads, with the libraries that
 * codec_libraries.c has found, and unpack_ahead.c has that done in the thread of background_work.c. encode.h writes the
 * bytes of a record, record_appender.c fills a batch with records, append_records.c many batches; topic_appender.c
 * appends single records to the batches of a topic, and column_records.c those of an Arrow batch. async_steps.c makes
 * the steps of `async for`. socket_reads.c reads from sockets in a thread, which reader_thread.c is the object of.
 */

#include "batch_columns.h"

PyObject *imported(const char *module_name, const char *name) {
    PyObject *module = PyImport_ImportModule(module_name);
    PyObject *found = module == NULL ? NULL : PyObject_GetAttrString(module, name);
    Py_XDECREF(module);
    return found;
}

/* The collector of reference cycles looks at each object that a slot or an element refers to others by, time and again. A
 * client has several for each partition: that of ten thousand holds the event loop for tens of milliseconds. */
#if !defined(Py_GIL_DISABLED)
static int untrack_numbers(PyObject *object, void *Py_UNUSED(argument)) {
    if (!PyList_CheckExact(object) || !PyObject_GC_IsTracked(object))
        return 0;
    for (Py_ssize_t index = 0; index < PyList_GET_SIZE(object); index++)
        if (PyObject_IS_GC(PyList_GET_ITEM(object, index)))
            return 0;
    PyObject_GC_UnTrack(object);
    return 0;
}

static void untrack_one(PyObject *object) {
    if (!PyObject_IS_GC(object) || !PyObject_GC_IsTracked(object))
        return;
    PyObject_GC_UnTrack(object);
    traverseproc traverse = Py_TYPE(object)->tp_traverse;
    if (traverse != NULL)
        (void)traverse(object, untrack_numbers, NULL);
}
#endif

static PyObject *untrack(PyObject *Py_UNUSED(module), PyObject *objects) {
    PyObject *object, *iterator = PyObject_GetIter(objects);
    if (iterator == NULL)
        return NULL;
    while ((object = PyIter_Next(iterator)) != NULL) {
#if !defined(Py_GIL_DISABLED)
        untrack_one(object);
#endif
        Py_DECREF(object);
    }
    Py_DECREF(iterator);
    return PyErr_Occurred() ? NULL : Py_NewRef(Py_None);
}

/* The slots of an object whose class has these and nothing else, or NULL with an error set. */
static PyObject **slots_of(PyObject *object, Py_ssize_t *count) {
    PyTypeObject *type = Py_TYPE(object);
    *count = Py_SIZE(type);
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) && type->tp_base == &PyBaseObject_Type && type->tp_dictoffset == 0 &&
        type->tp_weaklistoffset == 0 && *count > 0 &&
        type->tp_basicsize == (Py_ssize_t)(sizeof(PyObject) + (size_t)*count * sizeof(PyObject *)))
        return (PyObject **)((char *)object + sizeof(PyObject));
    PyErr_Format(PyExc_TypeError, "a %s has more than slots", type->tp_name);
    return NULL;
}

/* What a client has one of for each partition has dozens of slots. __init__ takes a microsecond for them, and ten
 * thousand partitions are assigned in one step of the event loop. */
static PyObject *copies(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *object, *made;
    Py_ssize_t number, count;
    if (!PyArg_ParseTuple(args, "On:copies", &object, &number))
        return NULL;
    PyObject **from = slots_of(object, &count);
    if (from == NULL || (made = PyList_New(number)) == NULL)
        return NULL;
#if !defined(Py_GIL_DISABLED)
    int collects = PyGC_Disable(); /* else it looks for garbage after each 700, and may go through all that there is */
#endif
    for (Py_ssize_t index = 0; index < number; index++) {
        PyObject *copy = Py_TYPE(object)->tp_alloc(Py_TYPE(object), 0);
        if (copy == NULL) {
            Py_CLEAR(made);
            break;
        }
        PyObject **to = (PyObject **)((char *)copy + sizeof(PyObject));
        for (Py_ssize_t slot = 0; slot < count; slot++)
            to[slot] = Py_XNewRef(from[slot]);
#if !defined(Py_GIL_DISABLED)
        PyObject_GC_UnTrack(copy);
#endif
        PyList_SET_ITEM(made, index, copy);
    }
#if !defined(Py_GIL_DISABLED)
    if (collects)
        (void)PyGC_Enable();
#endif
    return made;
}

static PyMethodDef functions[] = {
    {"copies", copies, METH_VARARGS,
     PyDoc_STR("copies(object, number)\n\nMake so many copies of an object whose class has slots and nothing else. They\n"
               "refer to what its slots refer to, and are untracked, as by untrack().")},
    {"untrack", untrack, METH_O,
     PyDoc_STR("untrack(objects)\n\nHave the collector of reference cycles ignore these, which can be in none, and the\n"
               "lists of numbers that these refer to.")},
    {0},
};

static int module_exec(PyObject *module) {
    State *state = PyModule_GetState(module);
    if ((state->corrupt_record = imported("aiokc.errors", "CorruptRecord")) == NULL ||
        (state->crc32c = imported("crc32c", "crc32c")) == NULL)
        return -1;
    if (add_records(module, state) < 0 || add_arrow(module, state) < 0 || add_columns(module, state) < 0)
        return -1;
    if (add_runs(module, state) < 0 || add_take_run(module, state) < 0 || add_record_span(module, state) < 0)
        return -1;
    if (add_record_parts(module, state) < 0)
        return -1;
    if (add_appender(module, state) < 0)
        return -1;
    if (add_append_records(module, state) < 0 || add_topic_appender(module, state) < 0)
        return -1;
    if (add_column_records(module, state) < 0 || add_codec_libraries(module, state) < 0 ||
        add_unpack_run(module, state) < 0 || add_unpack_ahead(module) < 0)
        return -1;
    if (PyModule_AddFunctions(module, functions) < 0 || add_steps(module, state) < 0)
        return -1;
    return add_reader_thread(module);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    Py_VISIT(state->record_type);
    Py_VISIT(state->reader_type);
    Py_VISIT(state->span_type);
    Py_VISIT(state->span_iterator_type);
    Py_VISIT(state->arrow_type);
    Py_VISIT(state->step_type);
    Py_VISIT(state->memory_type);
    Py_VISIT(state->appender_type);
    Py_VISIT(state->place_type);
    Py_VISIT(state->producer_record_type);
    Py_VISIT(state->corrupt_record);
    Py_VISIT(state->crc32c);
    Py_VISIT(state->no_headers);
    Py_VISIT(state->chain);
    return 0;
}

static int module_clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->reader_type);
    Py_CLEAR(state->span_type);
    Py_CLEAR(state->span_iterator_type);
    Py_CLEAR(state->arrow_type);
    Py_CLEAR(state->step_type);
    Py_CLEAR(state->memory_type);
    Py_CLEAR(state->appender_type);
    Py_CLEAR(state->place_type);
    Py_CLEAR(state->producer_record_type);
    Py_CLEAR(state->corrupt_record);
    Py_CLEAR(state->crc32c);
    Py_CLEAR(state->no_headers);
    Py_CLEAR(state->chain);
    return 0;
}

static void module_free(void *module) {
    State *state = PyModule_GetState(module);
    if (state != NULL) {
        free_libraries(state);
        free_spare_records(state);
    }
    free_spare_batches();
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
/* Interpreters share nothing but the spare batches, which are exchanged atomically. */
#if PY_VERSION_HEX >= 0x030C0000
    {Py_mod_multiple_interpreters, Py_MOD_PER_INTERPRETER_GIL_SUPPORTED},
#endif
#if PY_VERSION_HEX >= 0x030D0000
    {Py_mod_gil, Py_MOD_GIL_NOT_USED},
#endif
    {0},
};

struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aiokc._native.extension",
    .m_doc = PyDoc_STR("The record decoder and encoder in C; see _pure."),
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
    .m_free = module_free,
};

PyMODINIT_FUNC PyInit_extension(void) {
    return PyModuleDef_Init(&module_definition);
}
