/* ReaderThread: what Python sees of the thread that reads from sockets (socket_reads.c), and the memory for it.
 *
 * The memory of a read is kept in place by its Py_buffer until the read has ended or was cancelled. An object belongs to
 * the thread of one event loop. A process that was forked has a copy of it, but no such thread: there it reads nothing,
 * and closes its copies of the descriptors. It never touches the parent's lock, nor what is in the pipes.
 *
 * Another thread of Python may fork whenever this one gives up the GIL, which it does only while it cancels. So a read
 * leaves the list, and its descriptor is closed, in one step with the GIL: the child finds both or neither. */

#include "module.h"
#include "socket_reads.h"

#if !defined(_WIN32)

#include <errno.h>
#include <unistd.h>

/* A read, and what it keeps in place. */
typedef struct Pending {
    SocketRead read; /* first, so that a pointer to it is one to this */
    struct Pending *next;
    Py_buffer room;
    unsigned long long number;
} Pending;

typedef struct {
    PyObject_HEAD
    SocketReads *reads; /* NULL: closed */
    Pending *pending;
    unsigned long long begun;
    pid_t process;
    pid_t used_in; /* the process in which ``is_used`` was set last */
    char is_used;
} ReaderThread;

static int is_in_child(const ReaderThread *self) {
    return self->process != getpid();
}

static void release(Pending *pending) {
    PyBuffer_Release(&pending->room);
    PyMem_Free(pending);
}

/* Take a read out of the list: it has ended, or was cancelled, or there is no thread in this process. */
static void forget(ReaderThread *self, Pending *pending) {
    Pending **place = &self->pending;
    while (*place != pending)
        place = &(*place)->next;
    *place = pending->next;
    close(pending->read.descriptor);
    release(pending);
}

static Pending *numbered(const ReaderThread *self, unsigned long long number) {
    Pending *pending = self->pending;
    while (pending != NULL && pending->number != number)
        pending = pending->next;
    return pending;
}

static void cancel(ReaderThread *self, Pending *pending) {
    if (!is_in_child(self)) {
        Py_BEGIN_ALLOW_THREADS
        socket_reads_cancel(self->reads, &pending->read);
        Py_END_ALLOW_THREADS
    }
    forget(self, pending);
}

static void end_all(ReaderThread *self) {
    while (self->pending != NULL)
        cancel(self, self->pending);
    if (self->reads == NULL)
        return;
    if (is_in_child(self))
        socket_reads_close_in_child(self->reads);
    else
        socket_reads_close(self->reads);
    self->reads = NULL;
}

/* False, with an exception: another thread is in the middle of a call. One that was when another thread forked is not
 * in the child, and would never end its call there. */
static int begins(ReaderThread *self) {
    int is_ours;
    pid_t here = getpid();
    Py_BEGIN_CRITICAL_SECTION(self);
    if (self->used_in != here) {
        self->used_in = here;
        end_use(&self->is_used);
    }
    is_ours = begin_use(&self->is_used);
    Py_END_CRITICAL_SECTION();
    return is_ours;
}

static PyObject *thread_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, ":ReaderThread", names))
        return NULL;
    ReaderThread *self = (ReaderThread *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->process = self->used_in = getpid();
    self->reads = socket_reads_open();
    if (self->reads == NULL) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_CLEAR(self);
    }
    return (PyObject *)self;
}

static PyObject *begin(ReaderThread *self, int descriptor, PyObject *room) {
    if (self->reads == NULL || is_in_child(self)) {
        errno = EBADF;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Pending *pending = PyMem_Calloc(1, sizeof(Pending));
    if (pending == NULL)
        return PyErr_NoMemory();
    if (PyObject_GetBuffer(room, &pending->room, PyBUF_WRITABLE) < 0) {
        PyMem_Free(pending);
        return NULL;
    }
    int error = socket_reads_begin(self->reads, &pending->read, descriptor, pending->room.buf, (size_t)pending->room.len);
    if (error != 0) {
        release(pending);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    pending->number = ++self->begun;
    pending->next = self->pending;
    self->pending = pending;
    return PyLong_FromUnsignedLongLong(pending->number);
}

static PyObject *thread_read(ReaderThread *self, PyObject *args) {
    int descriptor;
    PyObject *room;
    if (!PyArg_ParseTuple(args, "iO:read", &descriptor, &room) || !begins(self))
        return NULL;
    PyObject *number = begin(self, descriptor, room);
    end_use(&self->is_used);
    return number;
}

static PyObject *thread_ended(ReaderThread *self, PyObject *Py_UNUSED(ignored)) {
    if (!begins(self))
        return NULL;
    PyObject *result = NULL;
    int has_thread = self->reads != NULL && !is_in_child(self);
    Pending *pending = has_thread ? (Pending *)socket_reads_ended(self->reads) : NULL;
    if (pending == NULL) {
        result = Py_NewRef(Py_None);
    } else {
        result = Py_BuildValue("(Kni)", pending->number, (Py_ssize_t)pending->read.count, pending->read.error);
        forget(self, pending);
    }
    end_use(&self->is_used);
    return result;
}

static PyObject *thread_cancel(ReaderThread *self, PyObject *number) {
    unsigned long long wanted = PyLong_AsUnsignedLongLong(number);
    if (PyErr_Occurred() || !begins(self))
        return NULL;
    Pending *pending = numbered(self, wanted);
    if (pending != NULL)
        cancel(self, pending);
    end_use(&self->is_used);
    Py_RETURN_NONE;
}

static PyObject *thread_close(ReaderThread *self, PyObject *Py_UNUSED(ignored)) {
    if (!begins(self))
        return NULL;
    end_all(self);
    end_use(&self->is_used);
    Py_RETURN_NONE;
}

static PyObject *thread_fileno(ReaderThread *self, PyObject *Py_UNUSED(ignored)) {
    if (self->reads != NULL)
        return PyLong_FromLong(socket_reads_signal(self->reads));
    PyErr_SetString(PyExc_ValueError, "the reader thread is closed");
    return NULL;
}

static void thread_dealloc(ReaderThread *self) {
    PyTypeObject *type = Py_TYPE(self);
    end_all(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef thread_methods[] = {
    {"fileno", (PyCFunction)thread_fileno, METH_NOARGS,
     PyDoc_STR("Return a descriptor that is readable as long as ended() has something to return.")},
    {"read", (PyCFunction)thread_read, METH_VARARGS,
     PyDoc_STR("read(descriptor, room) -> number\n\nFill ``room`` with what comes from a socket. Raises OSError.")},
    {"ended", (PyCFunction)thread_ended, METH_NOARGS,
     PyDoc_STR("ended() -> (number, bytes received, errno) of a read that has ended; None if there is none.")},
    {"cancel", (PyCFunction)thread_cancel, METH_O,
     PyDoc_STR("cancel(number)\n\nFrom here on nothing reads from the socket, or writes to the room, for this read.")},
    {"close", (PyCFunction)thread_close, METH_NOARGS, PyDoc_STR("Cancel all reads, and end the thread.")},
    {0},
};

static PyType_Slot thread_slots[] = {
    {Py_tp_new, thread_new},
    {Py_tp_methods, thread_methods},
    {Py_tp_dealloc, thread_dealloc},
    {Py_tp_doc, PyDoc_STR("ReaderThread(): reads from sockets in a thread that never takes the GIL.")},
    {0},
};

static PyType_Spec thread_spec = {
    .name = "aiokc._native.extension.ReaderThread",
    .basicsize = sizeof(ReaderThread),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = thread_slots,
};

/* Memory of malloc() costs none before it is written to. bytearray(length) would write to all of it. */
static PyObject *reserve(PyObject *Py_UNUSED(module), PyObject *args) {
    PyObject *buffer;
    Py_ssize_t length;
    if (!PyArg_ParseTuple(args, "Yn:reserve", &buffer, &length))
        return NULL;
    if (length < PyByteArray_GET_SIZE(buffer)) {
        PyErr_SetString(PyExc_ValueError, "a buffer does not become shorter");
        return NULL;
    }
    if (PyByteArray_Resize(buffer, length) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"reserve", reserve, METH_VARARGS,
     PyDoc_STR("reserve(buffer, length)\n\nMake a bytearray longer; what is behind its bytes is arbitrary.")},
    {0},
};

int add_reader_thread(PyObject *module) {
    PyObject *type = PyType_FromModuleAndSpec(module, &thread_spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added < 0 ? -1 : PyModule_AddFunctions(module, functions);
}

#else

int add_reader_thread(PyObject *Py_UNUSED(module)) {
    return 0; /* there is no such thread on Windows */
}

#endif
