/* The ColumnBuilder type: its columns and its batches. Its counterpart in Python is records/_pure_columns.py. */

#include "rows.h"

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
    /* Spark's name for timestamp_type */
    [COLUMNS] = {.name = "timestampType", .format = "i", .buffers = 2, .width = 4},
};

#define SHAPES ((int)(sizeof(shapes) / sizeof(shapes[0])))

/* Making a builder */

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

/* Begin another batch. If there is no memory for it, nothing changes. */
static int start_batch(Builder *self) {
    const Shape *wanted[COLUMNS] = {NULL};
    for (int index = 0; index < self->wanted_count; index++) {
        int shape = self->wanted[index];
        wanted[index] = shape == COLUMN_TIMESTAMP && self->in_microseconds ? &microseconds : &shapes[shape];
    }
    Batch *batch = new_batch(wanted, self->wanted_count);
    if (batch == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (int index = 0; index < self->wanted_count; index++)
        self->columns[column_of(self->wanted[index])] = batch->nodes[0].children[index];
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

/* The type */

static PyObject *builder_finish(Builder *self, PyObject *Py_UNUSED(ignored)) {
    Batch *batch = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    if (begin_use(&self->is_used)) {
        Batch *filled = self->batch;
        if (start_batch(self))
            batch = filled;
        end_use(&self->is_used);
    }
    Py_END_CRITICAL_SECTION();
    if (batch == NULL)
        return NULL;
    trim_batch(batch);
    return wrap_batch(PyType_GetModuleState(Py_TYPE(self)), batch);
}

enum { ROWS, SIZE, IS_FULL };

static PyObject *builder_state(Builder *self, void *which) {
    int64_t state[3];
    Py_BEGIN_CRITICAL_SECTION(self);
    state[ROWS] = self->batch->nodes[0].length;
    state[SIZE] = self->size;
    state[IS_FULL] = self->is_full;
    Py_END_CRITICAL_SECTION();
    int64_t number = state[(intptr_t)which];
    return (intptr_t)which == IS_FULL ? PyBool_FromLong((long)number) : PyLong_FromLongLong(number);
}

static PyMethodDef builder_methods[] = {
    {"append", (PyCFunction)(void (*)(void))builder_append, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("append(reader, from_offset, until, rows, size) -> int\n\n"
               "Append the reader's records in [from_offset, until): at most so many rows, until all count so much.")},
    {"append_run", (PyCFunction)(void (*)(void))builder_append_run, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("append_run(run, at, topic, partition, from_offset, until, rows, size, check_crcs)"
               " -> (count, at, next_offset, leader_epoch)\n\n"
               "The same with batches that lie side by side, from the one at ``at`` on.")},
    {"append_records", (PyCFunction)(void (*)(void))builder_append_records, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("append_records(records, until, size) -> int\n\nThe same with records that are objects already.")},
    {"finish", (PyCFunction)builder_finish, METH_NOARGS,
     PyDoc_STR("finish() -> ArrowBatch\n\nThe rows so far. The next ones begin another batch.")},
    {0},
};

static PyGetSetDef builder_getset[] = {
    {.name = "rows", .get = (getter)builder_state, .closure = (void *)ROWS},
    {.name = "size", .get = (getter)builder_state, .closure = (void *)SIZE,
     .doc = PyDoc_STR("What all rows count, in bytes.")},
    {.name = "is_full", .get = (getter)builder_state, .closure = (void *)IS_FULL,
     .doc = PyDoc_STR("Whether the next row would be too much for 32-bit offsets.")},
    {0},
};

static PyType_Slot builder_slots[] = {
    {Py_tp_new, builder_new},
    {Py_tp_dealloc, builder_dealloc},
    {Py_tp_methods, builder_methods},
    {Py_tp_getset, builder_getset},
    {Py_tp_doc, PyDoc_STR("Records as columns, one batch after the other.")},
    {0},
};

static PyType_Spec builder_spec = {
    .name = "aiokc._native.extension.ColumnBuilder",
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
