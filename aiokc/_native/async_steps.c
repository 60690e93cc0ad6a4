/* Steps: an asynchronous iterator over the items of an iterator; once these end, a step awaits a coroutine instead.
 *
 * A coroutine for each item would cost more than most of the other work on that item. Here a step is a small object.
 * When it is awaited, it returns the next item at once, without a frame, or it begins the coroutine and passes all
 * through to it. It takes its item only when it is awaited: a step that is never awaited has taken none. A step has a
 * coroutine's methods (send, throw, close), so that asyncio can make a task of it.
 */

#include "module.h"

typedef struct {
    PyObject_HEAD
    PyObject *items;
    PyObject *wait;
    PyTypeObject *step_type;
} Steps;

typedef struct {
    PyObject_HEAD
    Steps *steps;        /* NULL once the step is awaited */
    PyObject *coroutine; /* the coroutine that it passes everything through to; NULL if there is none */
} Step;

/* Step */

static PyObject *step_of(Steps *steps) {
    Step *self = PyObject_GC_New(Step, steps->step_type);
    if (self == NULL)
        return NULL;
    self->steps = (Steps *)Py_NewRef(steps);
    self->coroutine = NULL;
    PyObject_GC_Track(self);
    return (PyObject *)self;
}

static PyObject *items_of(Steps *steps) {
    PyObject *items;
    Py_BEGIN_CRITICAL_SECTION(steps);
    items = Py_NewRef(steps->items); /* Python code in tp_iternext, or another thread, may replace it */
    Py_END_CRITICAL_SECTION();
    return items;
}

/* Begin the step: it has an item to return, or a coroutine from now on. */
static PySendResult step_begin(Step *self, Steps *steps, PyObject **coroutine, PyObject **result) {
    PyObject *items = items_of(steps);
    *result = Py_TYPE(items)->tp_iternext(items);
    Py_DECREF(items);
    if (*result != NULL)
        return PYGEN_RETURN;
    *coroutine = PyErr_Occurred() ? NULL : PyObject_CallNoArgs(steps->wait);
    if (*coroutine == NULL)
        return PYGEN_ERROR;
    Py_BEGIN_CRITICAL_SECTION(self);
    self->coroutine = Py_NewRef(*coroutine);
    Py_END_CRITICAL_SECTION();
    return PYGEN_NEXT;
}

/* What a step is at: new (``steps``), waiting (``coroutine``), or neither, with an exception: it is over. */
typedef struct {
    Steps *steps;
    PyObject *coroutine;
} Stage;

/* Return new references. With ``takes``, the step has begun: one call alone gets its ``steps``. */
static Stage stage_of(Step *self, int takes) {
    Stage stage;
    Py_BEGIN_CRITICAL_SECTION(self);
    stage.steps = (Steps *)Py_XNewRef(self->steps);
    stage.coroutine = Py_XNewRef(self->coroutine);
    if (takes)
        Py_CLEAR(self->steps);
    Py_END_CRITICAL_SECTION();
    if (stage.steps == NULL && stage.coroutine == NULL)
        PyErr_SetString(PyExc_RuntimeError, "cannot await a step twice");
    return stage;
}

static void clear_coroutine(Step *self) {
    PyObject *coroutine;
    Py_BEGIN_CRITICAL_SECTION(self);
    coroutine = self->coroutine;
    self->coroutine = NULL;
    Py_END_CRITICAL_SECTION();
    Py_XDECREF(coroutine);
}

static PySendResult step_send(Step *self, PyObject *value, PyObject **result) {
    *result = NULL;
    Stage stage = stage_of(self, 1);
    if (stage.steps == NULL && stage.coroutine == NULL)
        return PYGEN_ERROR;
    if (stage.steps != NULL) {
        PySendResult begun = step_begin(self, stage.steps, &stage.coroutine, result);
        Py_DECREF(stage.steps);
        if (begun != PYGEN_NEXT)
            return begun;
    }
    PySendResult status = PyIter_Send(stage.coroutine, value, result);
    if (status != PYGEN_NEXT)
        clear_coroutine(self);
    Py_DECREF(stage.coroutine);
    return status;
}

/* Turn a result into what a generator's send() returns or raises: StopIteration carries the returned value. */
static PyObject *yielded(PySendResult status, PyObject *result) {
    if (status != PYGEN_RETURN)
        return result;
    PyObject *stop = PyObject_CallOneArg(PyExc_StopIteration, result);
    Py_DECREF(result);
    if (stop != NULL) {
        PyErr_SetObject(PyExc_StopIteration, stop);
        Py_DECREF(stop);
    }
    return NULL;
}

static PyObject *step_send_method(Step *self, PyObject *value) {
    PyObject *result;
    PySendResult status = step_send(self, value, &result);
    return yielded(status, result);
}

static PyObject *step_next(Step *self) {
    return step_send_method(self, Py_None);
}

/* Call a method of the coroutine. If the coroutine ends, the step is over. */
static PyObject *step_hand_through(Step *self, PyObject *coroutine, const char *name, PyObject *args) {
    PyObject *method = PyObject_GetAttrString(coroutine, name);
    PyObject *result = method == NULL ? NULL : PyObject_CallObject(method, args);
    Py_XDECREF(method);
    if (result == NULL)
        clear_coroutine(self);
    return result;
}

static PyObject *step_throw(Step *self, PyObject *args) {
    PyObject *type, *value = NULL, *trace = NULL;
    if (!PyArg_UnpackTuple(args, "throw", 1, 3, &type, &value, &trace))
        return NULL;
    Stage stage = stage_of(self, 1);
    if (stage.steps == NULL && stage.coroutine == NULL)
        return NULL;
    if (stage.coroutine == NULL) { /* the step has not begun: it has taken no item, and takes none */
        Py_DECREF(stage.steps);
        if (PyExceptionInstance_Check(type))
            PyErr_SetObject(PyExceptionInstance_Class(type), type);
        else if (PyExceptionClass_Check(type))
            PyErr_SetObject(type, value);
        else
            PyErr_SetString(PyExc_TypeError, "throw() takes an exception");
        return NULL;
    }
    PyObject *result = step_hand_through(self, stage.coroutine, "throw", args);
    Py_DECREF(stage.coroutine);
    return result;
}

static PyObject *step_close(Step *self, PyObject *Py_UNUSED(ignored)) {
    Stage stage = stage_of(self, 1);
    PyErr_Clear(); /* closing what is over changes nothing */
    Py_XDECREF(stage.steps);
    if (stage.coroutine == NULL)
        Py_RETURN_NONE;
    PyObject *result = step_hand_through(self, stage.coroutine, "close", NULL);
    Py_DECREF(stage.coroutine);
    clear_coroutine(self);
    return result;
}

static PyObject *step_await(PyObject *self) {
    return Py_NewRef(self);
}

static int step_traverse(Step *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->steps);
    Py_VISIT(self->coroutine);
    return 0;
}

static int step_clear(Step *self) {
    Py_CLEAR(self->steps);
    Py_CLEAR(self->coroutine);
    return 0;
}

static void step_dealloc(Step *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    step_clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

static PyMethodDef step_methods[] = {
    {"send", (PyCFunction)step_send_method, METH_O, PyDoc_STR("What a coroutine's send() does.")},
    {"throw", (PyCFunction)step_throw, METH_VARARGS, PyDoc_STR("What a coroutine's throw() does.")},
    {"close", (PyCFunction)step_close, METH_NOARGS, PyDoc_STR("What a coroutine's close() does.")},
    {0},
};

static PyType_Slot step_slots[] = {
    {Py_am_await, step_await},
    {Py_am_send, step_send},
    {Py_tp_iter, step_await},
    {Py_tp_iternext, step_next},
    {Py_tp_methods, step_methods},
    {Py_tp_traverse, step_traverse},
    {Py_tp_clear, step_clear},
    {Py_tp_dealloc, step_dealloc},
    {0},
};

static PyType_Spec step_spec = {
    .name = "aiokc._native.extension.Step",
    .basicsize = sizeof(Step),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = step_slots,
};

/* Steps */

static PyObject *steps_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"wait", NULL};
    PyObject *wait;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:Steps", names, &wait))
        return NULL;
    State *state = PyType_GetModuleState(type);
    Steps *self = (Steps *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->wait = Py_NewRef(wait);
    self->step_type = (PyTypeObject *)Py_NewRef(state->step_type);
    self->items = PyObject_GetIter(state->no_headers);
    if (self->items == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static PyObject *steps_items(Steps *self, void *Py_UNUSED(closure)) {
    return items_of(self);
}

static int steps_set_items(Steps *self, PyObject *items, void *Py_UNUSED(closure)) {
    if (items == NULL || !PyIter_Check(items)) {
        PyErr_SetString(PyExc_TypeError, "items must be an iterator");
        return -1;
    }
    PyObject *before;
    Py_BEGIN_CRITICAL_SECTION(self);
    before = self->items;
    self->items = Py_NewRef(items);
    Py_END_CRITICAL_SECTION();
    Py_DECREF(before);
    return 0;
}

static int steps_traverse(Steps *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->items);
    Py_VISIT(self->wait);
    Py_VISIT(self->step_type);
    return 0;
}

static void steps_dealloc(Steps *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    Py_XDECREF(self->items);
    Py_DECREF(self->wait);
    Py_DECREF(self->step_type);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyGetSetDef steps_getset[] = {
    {.name = "items", .get = (getter)steps_items, .set = (setter)steps_set_items,
     .doc = PyDoc_STR("The iterator whose items steps return without waiting.")},
    {0},
};

static PyType_Slot steps_slots[] = {
    {Py_tp_new, steps_new},
    {Py_am_aiter, step_await},
    {Py_am_anext, step_of},
    {Py_tp_getset, steps_getset},
    {Py_tp_traverse, steps_traverse},
    {Py_tp_dealloc, steps_dealloc},
    {Py_tp_doc, PyDoc_STR("Steps(wait): an asynchronous iterator of items, and where those end of what wait() brings.")},
    {0},
};

static PyType_Spec steps_spec = {
    .name = "aiokc._native.extension.Steps",
    .basicsize = sizeof(Steps),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = steps_slots,
};

int add_steps(PyObject *module, State *state) {
    state->step_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &step_spec, NULL);
    if (state->step_type == NULL)
        return -1;
    PyObject *steps_type = PyType_FromModuleAndSpec(module, &steps_spec, NULL);
    int added = steps_type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)steps_type);
    Py_XDECREF(steps_type);
    return added;
}
