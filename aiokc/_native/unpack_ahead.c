/* UnpackAhead: makes a run of compressed batches as unpack_run does, in a thread that never takes the GIL, while the
 * event loop reads the records of the run before.
 *
 * The thread checks the CRCs, if the CPU has an instruction for that (crc32c.h). Else they are checked here before it
 * begins: that is a call of Python. What has a wrong CRC, is malformed, or is unpacked by no library, ends the run before
 * it; unpack_run then sees it.
 *
 * Both buffers are kept in place by their Py_buffer until the thread is done with them. */

#include "background_work.h"
#include "crc32c.h"
#include "unpacking.h"

#if !defined(_WIN32)

typedef struct {
    PyObject_HEAD
    BackgroundWork work;
    const State *state;
    Py_buffer records; /* with the length of the batches to unpack */
    Py_buffer out;
    Py_ssize_t whole; /* the length of the records' buffer itself */
    PyObject *buffer; /* the bytearray; NULL once it is over */
    Limits limits;
    Checks checks; /* by the thread */
    int64_t taken;
    int64_t unpacked;
    char is_used;
} UnpackAhead;

static void unpack(BackgroundWork *work) {
    UnpackAhead *self = (UnpackAhead *)((char *)work - offsetof(UnpackAhead, work));
    self->taken = unpack_batches(self->state, NULL, &self->records, &self->limits, self->checks, &self->out, &self->unpacked);
}

static void release(UnpackAhead *self) {
    self->records.len = self->whole;
    PyBuffer_Release(&self->records);
    PyBuffer_Release(&self->out);
    Py_CLEAR(self->buffer);
}

/* Return how many bytes the first batches have whose CRCs are right. -1: there is an exception. */
static int64_t sound_bytes(const State *state, const Py_buffer *records, int64_t most) {
    int64_t at = 0;
    PackedBatch batch;
    while (at < most && read_packed(records, at, &batch)) {
        int sound = is_sound(state, &batch.whole);
        if (sound < 0)
            return -1;
        if (!sound)
            break;
        at += batch.whole.size;
    }
    return at;
}

/* Return how many bytes of batches the thread is to unpack; 0: none. -1: there is an exception. */
static int64_t bytes_to_unpack(const State *state, const Py_buffer *records, const Plan *plan, Checks checks) {
    PackedBatch first;
    if (plan->packed == 0 || !read_packed(records, 0, &first) || library_of(state, first.codec) == NULL)
        return 0;
    return checks == BY_PACKAGE ? sound_bytes(state, records, plan->packed) : plan->packed;
}

/* Give ``self`` the bytearray, with room for what is planned, and have the thread begin. 0: it can't; with an exception
 * if there is an error. */
static int begin(UnpackAhead *self, PyObject *buffer, int64_t room) {
    if (PyByteArray_Resize(buffer, (Py_ssize_t)room) < 0 || PyObject_GetBuffer(buffer, &self->out, PyBUF_WRITABLE) < 0)
        return 0;
    self->work.run = unpack;
    if (background_begin(&self->work) == 0) {
        self->buffer = Py_NewRef(buffer);
        return 1;
    }
    PyBuffer_Release(&self->out);
    return 0;
}

static PyObject *ahead_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"", "", "", "", "", NULL};
    PyObject *buffer;
    Py_buffer records;
    Limits limits;
    int check_crcs;
    const State *state = PyModule_GetState(PyType_GetModuleByDef(type, &module_definition));
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*O!LLp:UnpackAhead", names, &records, &PyByteArray_Type, &buffer,
                                     &limits.limit, &limits.at_once, &check_crcs))
        return NULL;
    Plan plan = plan_of(&records, &limits);
    Checks checks = !check_crcs ? UNCHECKED : has_crc32c() ? BY_CPU : BY_PACKAGE;
    int64_t size = bytes_to_unpack(state, &records, &plan, checks);
    UnpackAhead *self = size < 0 ? NULL : (UnpackAhead *)type->tp_alloc(type, 0);
    if (self == NULL) {
        PyBuffer_Release(&records);
        return NULL;
    }
    self->state = state;
    self->limits = limits;
    self->checks = checks == BY_CPU ? BY_CPU : UNCHECKED;
    self->records = records;
    self->whole = records.len;
    self->records.len = (Py_ssize_t)size;
    if (size > 0 && begin(self, buffer, plan.room))
        return (PyObject *)self;
    self->records.len = self->whole;
    PyBuffer_Release(&self->records);
    if (PyErr_Occurred())
        Py_CLEAR(self);
    return (PyObject *)self;
}

/* False, with an exception: another thread is in the middle of a call. */
static int begins(UnpackAhead *self) {
    int is_ours;
    Py_BEGIN_CRITICAL_SECTION(self);
    is_ours = begin_use(&self->is_used);
    Py_END_CRITICAL_SECTION();
    return is_ours;
}

static PyObject *ended(UnpackAhead *self, long most) {
    if (self->buffer == NULL)
        return PyLong_FromLong(0); /* it never began, or was over before */
    int has_ended;
    Py_BEGIN_ALLOW_THREADS
    has_ended = background_end(&self->work, most);
    Py_END_ALLOW_THREADS
    if (!has_ended)
        return PyLong_FromLong(-1);
    PyObject *buffer = Py_NewRef(self->buffer);
    release(self);
    int is_cut = PyByteArray_Resize(buffer, (Py_ssize_t)self->unpacked) == 0;
    Py_DECREF(buffer);
    return is_cut ? PyLong_FromLongLong(self->taken) : NULL;
}

static PyObject *ahead_end(UnpackAhead *self, PyObject *argument) {
    long most = PyLong_AsLong(argument);
    if (PyErr_Occurred() || !begins(self))
        return NULL;
    PyObject *taken = ended(self, most);
    end_use(&self->is_used);
    return taken;
}

static PyObject *ahead_cancel(UnpackAhead *self, PyObject *Py_UNUSED(ignored)) {
    if (!begins(self))
        return NULL;
    int is_over = self->buffer == NULL || background_cancel(&self->work);
    if (is_over && self->buffer != NULL)
        release(self);
    end_use(&self->is_used);
    return PyBool_FromLong(is_over);
}

static PyObject *ahead_is_begun(UnpackAhead *self, void *Py_UNUSED(closure)) {
    int is_begun;
    Py_BEGIN_CRITICAL_SECTION(self);
    is_begun = self->buffer != NULL;
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(is_begun);
}

static void ahead_dealloc(UnpackAhead *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->buffer != NULL) {
        Py_BEGIN_ALLOW_THREADS
        if (!background_cancel(&self->work))
            (void)background_end(&self->work, -1);
        Py_END_ALLOW_THREADS
        release(self);
    }
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef ahead_methods[] = {
    {"end", (PyCFunction)ahead_end, METH_O,
     PyDoc_STR("end(most) -> size\n\nReturn what unpack_run would. It waits for so many microseconds at most; -1: the\n"
               "thread is not done. What it has not begun is unpacked here.")},
    {"cancel", (PyCFunction)ahead_cancel, METH_NOARGS,
     PyDoc_STR("cancel() -> is_over\n\nIf true, nothing writes to the buffer, or reads the records, from here on.")},
    {0},
};

static PyGetSetDef ahead_fields[] = {
    {"is_begun", (getter)ahead_is_begun, NULL,
     PyDoc_STR("Whether the buffer is in use, as it is until the end. If it never was, there is nothing to end."), NULL},
    {0},
};

static PyType_Slot ahead_slots[] = {
    {Py_tp_new, ahead_new},
    {Py_tp_methods, ahead_methods},
    {Py_tp_getset, ahead_fields},
    {Py_tp_dealloc, ahead_dealloc},
    {Py_tp_doc, PyDoc_STR("UnpackAhead(records, buffer, limit, at_once, check_crcs): unpacks in a thread.")},
    {0},
};

static PyType_Spec ahead_spec = {
    .name = "aiokc._native.extension.UnpackAhead",
    .basicsize = sizeof(UnpackAhead),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = ahead_slots,
};

int add_unpack_ahead(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &ahead_spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}

#else

int add_unpack_ahead(PyObject *Py_UNUSED(module)) {
    return 0; /* there is no such thread on Windows */
}

#endif
