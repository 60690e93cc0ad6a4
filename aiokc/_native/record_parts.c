/* RecordParts: what core/fetch/partition/record_sequence.py derives the sequence of a partition's records from.
 *
 * Its parts are lists of records, and spans (record_span.c), whose records are made when they are read. What needs
 * several records at once, apart from an iteration, makes all of them, and keeps their list as the only part. The class
 * in Python beside RecordSequence is its twin.
 *
 * Spans refer to nothing that refers back: only with a list does the garbage collector look at a sequence.
 */

#include "record_span.h"

typedef struct {
    PyObject_HEAD
    PyObject *part;  /* the only part; NULL if there is none, or more than one */
    PyObject *parts; /* a list of all parts where there are several, else NULL */
    Py_ssize_t count;
} Parts;

static int is_made(const Parts *self) {
    return self->part != NULL && PyList_CheckExact(self->part);
}

static void keep_tracked(Parts *self) {
    if (!PyObject_GC_IsTracked((PyObject *)self))
        PyObject_GC_Track(self);
}

/* Return a sequence of the records in ``list``, to which the reference is taken over; NULL: of none. */
static Parts *new_parts(PyTypeObject *type, PyObject *list) {
    Parts *self = (Parts *)type->tp_alloc(type, 0);
    if (self == NULL || list == NULL || PyList_GET_SIZE(list) == 0) {
        Py_XDECREF(list);
        if (self != NULL)
            PyObject_GC_UnTrack(self);
        return self;
    }
    self->part = list;
    self->count = PyList_GET_SIZE(list);
    return self;
}

static PyObject *parts_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *records = Py_None, *list = NULL;
    if (kwargs != NULL && PyDict_GET_SIZE(kwargs) > 0) {
        PyErr_SetString(PyExc_TypeError, "a sequence of records takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "|O:RecordSequence", &records) ||
        (records != Py_None && (list = PySequence_List(records)) == NULL))
        return NULL;
    return (PyObject *)new_parts(type, list);
}

static int parts_traverse(Parts *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->part);
    Py_VISIT(self->parts);
    return 0;
}

static int parts_clear(Parts *self) {
    self->count = 0;
    Py_CLEAR(self->part);
    Py_CLEAR(self->parts);
    return 0;
}

static void parts_dealloc(Parts *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    parts_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

/* Put a part that is not empty behind the others. */
static int append_part(Parts *self, PyObject *part) {
    if (self->parts != NULL)
        return PyList_Append(self->parts, part) == 0;
    if (self->count == 0) {
        Py_XSETREF(self->part, Py_NewRef(part)); /* it may be an empty list */
        return 1;
    }
    PyObject *parts = PyList_New(2);
    if (parts == NULL)
        return 0;
    PyList_SET_ITEM(parts, 0, self->part);
    PyList_SET_ITEM(parts, 1, Py_NewRef(part));
    self->part = NULL;
    self->parts = parts;
    return 1;
}

static PyObject *parts_add(Parts *self, PyObject *part) {
    Py_ssize_t count = PyObject_Size(part);
    if (count < 0)
        return NULL;
    if (count > 0) {
        if (!append_part(self, part))
            return NULL;
        self->count += count;
        if (PyList_CheckExact(part))
            keep_tracked(self);
    }
    Py_RETURN_NONE;
}

static PyObject *list_of(PyObject *part, PyObject *parts) {
    if (part != NULL)
        return PySequence_List(part);
    PyObject *made = PyList_New(0);
    for (Py_ssize_t index = 0; made != NULL && parts != NULL && index < PyList_GET_SIZE(parts); index++) {
        PyObject *next = Py_NewRef(PyList_GET_ITEM(parts, index));
        PyObject *longer = PySequence_InPlaceConcat(made, next); /* the same list */
        Py_DECREF(next);
        Py_SETREF(made, longer);
    }
    return made;
}

/* Return the list of all records. To make them may run a finalizer, or other threads: the first list is kept. */
static PyObject *made_list(Parts *self) {
    if (is_made(self))
        return Py_NewRef(self->part);
    PyObject *part = Py_XNewRef(self->part), *parts = Py_XNewRef(self->parts);
    PyObject *made = list_of(part, parts);
    if (made != NULL && is_made(self)) {
        Py_SETREF(made, Py_NewRef(self->part));
    } else if (made != NULL) {
        Py_XSETREF(self->part, Py_NewRef(made));
        Py_CLEAR(self->parts);
        keep_tracked(self);
    }
    Py_XDECREF(part);
    Py_XDECREF(parts);
    return made;
}

static PyObject *parts_as_list(Parts *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *list;
    Py_BEGIN_CRITICAL_SECTION(self);
    list = made_list(self);
    Py_END_CRITICAL_SECTION();
    return list;
}

static PyObject *parts_split(Parts *self, PyObject *argument) {
    Py_ssize_t count = PyNumber_AsSsize_t(argument, PyExc_OverflowError);
    PyObject *list = count == -1 && PyErr_Occurred() ? NULL : parts_as_list(self, NULL);
    if (list == NULL)
        return NULL;
    PyObject *first = PyList_GetSlice(list, 0, count), *rest = PyList_GetSlice(list, count, PY_SSIZE_T_MAX);
    Py_DECREF(list);
    Parts *taken = rest == NULL ? NULL : new_parts(Py_TYPE(self), Py_XNewRef(first));
    if (first == NULL || taken == NULL) {
        Py_XDECREF(taken);
    } else {
        self->count = PyList_GET_SIZE(rest);
        Py_XSETREF(self->part, Py_NewRef(rest));
    }
    Py_XDECREF(rest);
    if (first == NULL)
        return NULL;
    Py_DECREF(first);
    return (PyObject *)taken;
}

static Py_ssize_t parts_length(Parts *self) {
    return self->count;
}

static PyObject *parts_iter(Parts *self) {
    PyObject *part, *parts, *iterator = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    part = Py_XNewRef(self->part);
    parts = Py_XNewRef(self->parts);
    Py_END_CRITICAL_SECTION();
    if (part != NULL) {
        iterator = PyObject_GetIter(part);
    } else {
        PyObject *module = PyType_GetModuleByDef(Py_TYPE(self), &module_definition);
        State *state = module == NULL ? NULL : PyModule_GetState(module);
        if (state != NULL)
            iterator = PyObject_CallOneArg(state->chain, parts == NULL ? state->no_headers : parts);
    }
    Py_XDECREF(part);
    Py_XDECREF(parts);
    return iterator;
}

/* The first or the last record of a part that is not empty. */
static PyObject *edge_of(PyObject *part, int is_last) {
    if (PyList_CheckExact(part))
        return PySequence_GetItem(part, is_last ? -1 : 0);
    return PyObject_CallMethod(part, is_last ? "last" : "first", NULL);
}

/* Without a list, the first and the last record are made alone: they are asked for more often than any other. */
static PyObject *record_at(Parts *self, Py_ssize_t index) {
    if (!is_made(self) && (index == 0 || index == self->count - 1)) {
        Py_ssize_t last = self->parts == NULL ? 0 : PyList_GET_SIZE(self->parts) - 1;
        PyObject *part = self->parts == NULL ? self->part : PyList_GET_ITEM(self->parts, index == 0 ? 0 : last);
        Py_INCREF(part);
        PyObject *record = edge_of(part, index != 0);
        Py_DECREF(part);
        return record;
    }
    PyObject *list = made_list(self);
    PyObject *record = list == NULL ? NULL : PySequence_GetItem(list, index);
    Py_XDECREF(list);
    return record;
}

static PyObject *parts_item(Parts *self, Py_ssize_t index) {
    if (index < 0 || index >= self->count) {
        PyErr_SetString(PyExc_IndexError, "index of a record out of range");
        return NULL;
    }
#if !defined(Py_GIL_DISABLED)
    if (is_made(self) && index < PyList_GET_SIZE(self->part))
        return Py_NewRef(PyList_GET_ITEM(self->part, index));
#endif
    PyObject *record;
    Py_BEGIN_CRITICAL_SECTION(self);
    record = record_at(self, index);
    Py_END_CRITICAL_SECTION();
    return record;
}

static PyObject *parts_subscript(Parts *self, PyObject *key) {
    if (PyIndex_Check(key)) {
        Py_ssize_t index = PyNumber_AsSsize_t(key, PyExc_IndexError);
        if (index == -1 && PyErr_Occurred())
            return NULL;
        return parts_item(self, index < 0 ? index + self->count : index);
    }
    if (!PySlice_Check(key)) {
        PyErr_Format(PyExc_TypeError, "an index of records is an int or a slice, not %s", Py_TYPE(key)->tp_name);
        return NULL;
    }
    PyObject *list = parts_as_list(self, NULL);
    PyObject *some = list == NULL ? NULL : PyObject_GetItem(list, key);
    Py_XDECREF(list);
    return some == NULL ? NULL : (PyObject *)new_parts(Py_TYPE(self), some);
}

static PyObject *parts_parts(Parts *self, void *Py_UNUSED(closure)) {
    PyObject *parts;
    Py_BEGIN_CRITICAL_SECTION(self);
    if (self->parts != NULL) {
        parts = PySequence_Tuple(self->parts);
    } else {
        parts = self->count == 0 ? PyTuple_New(0) : PyTuple_Pack(1, self->part);
    }
    Py_END_CRITICAL_SECTION();
    return parts;
}

static PyGetSetDef parts_getset[] = {
    {.name = "parts", .get = (getter)parts_parts, .doc = PyDoc_STR("The lists and spans, in order.")},
    {0},
};

static PyMethodDef parts_methods[] = {
    {"add", (PyCFunction)parts_add, METH_O,
     PyDoc_STR("Append a span, or a list, which must not change from here on. For what makes a sequence, before any "
               "reads.")},
    {"split", (PyCFunction)parts_split, METH_O,
     PyDoc_STR("Remove the first ``count`` records, and return them. For what makes a sequence.")},
    {"as_list", (PyCFunction)parts_as_list, METH_NOARGS,
     PyDoc_STR("Make all records that are not made yet, and return the list of all, which must not be changed.")},
    {0},
};

static PyType_Slot parts_slots[] = {
    {Py_tp_new, parts_new},
    {Py_tp_dealloc, parts_dealloc},
    {Py_tp_traverse, parts_traverse},
    {Py_tp_clear, parts_clear},
    {Py_tp_iter, parts_iter},
    {Py_tp_methods, parts_methods},
    {Py_tp_getset, parts_getset},
    {Py_sq_length, parts_length},
    {Py_sq_item, parts_item},
    {Py_mp_subscript, parts_subscript},
    {Py_tp_doc, PyDoc_STR("The parts of a sequence of records: lists and spans.")},
    {0},
};

static PyType_Spec parts_spec = {
    .name = "aiokc._native.extension.RecordParts",
    .basicsize = sizeof(Parts),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = parts_slots,
};

int add_record_parts(PyObject *module, State *state) {
    PyObject *chain = imported("itertools", "chain");
    state->chain = chain == NULL ? NULL : PyObject_GetAttrString(chain, "from_iterable");
    Py_XDECREF(chain);
    PyObject *type = state->chain == NULL ? NULL : PyType_FromModuleAndSpec(module, &parts_spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}
