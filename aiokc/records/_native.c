/* The record decoder in C: what _pure.py does, byte for byte and error for error.
 *
 * One idea each: _layout.h reads the bytes of a record, _records.c makes objects of records.
 */

#include "_native.h"

static int module_exec(PyObject *module) {
    State *state = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("aiokc.errors");
    state->corrupt_record = errors == NULL ? NULL : PyObject_GetAttrString(errors, "CorruptRecord");
    Py_XDECREF(errors);
    return state->corrupt_record == NULL ? -1 : add_records(module, state);
}

static int module_traverse(PyObject *module, visitproc visit, void *arg) {
    State *state = PyModule_GetState(module);
    Py_VISIT(state->record_type);
    Py_VISIT(state->corrupt_record);
    Py_VISIT(state->no_headers);
    return 0;
}

static int module_clear(PyObject *module) {
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->corrupt_record);
    Py_CLEAR(state->no_headers);
    return 0;
}

static PyModuleDef_Slot module_slots[] = {
    {Py_mod_exec, module_exec},
    {0},
};

static struct PyModuleDef module_definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "aiokc.records._native",
    .m_doc = PyDoc_STR("The record decoder in C; see _pure."),
    .m_size = sizeof(State),
    .m_slots = module_slots,
    .m_traverse = module_traverse,
    .m_clear = module_clear,
};

PyMODINIT_FUNC PyInit__native(void) {
    return PyModuleDef_Init(&module_definition);
}
