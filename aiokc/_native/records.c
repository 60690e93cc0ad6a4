/* The records of a batch as Python objects: the ConsumerRecord type, and the RecordReader that makes them.
 *
 * A record is checked as a whole before it is built. It has copies of all its bytes, and keeps nothing of the batch
 * alive. Key and value are objects from the start, because nearly every application reads them, and because the
 * interpreter itself reads an attribute that is an object. Headers are bytes until they are first read.
 *
 * No object in here can be part of a reference cycle, so the cyclic garbage collector tracks none. Without the GIL, a
 * record's headers and a reader's progress are each read and written within a critical section of their object.
 */

#include "record.h"

/* ConsumerRecord: a subclass of the public class, which has all methods */

static void record_dealloc(Record *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(self->origin);
    Py_DECREF(self->key);
    Py_DECREF(self->value);
    Py_DECREF(self->headers);
    Py_DECREF(self->offset);
    free_record(PyType_GetModuleState(type), self);
    Py_DECREF(type);
}

void free_spare_records(State *state) {
    while (state->spare_count > 0) {
        Record *record = state->spare_records[--state->spare_count];
        ASAN_UNPOISON_MEMORY_REGION(record, sizeof(Record));
        PyObject_Free(record);
    }
}

/* So many bytes or more are copied without the GIL: most of the time of such a copy, the kernel finds memory for it. */
#define LONG_COPY (1 << 20)

/* The caller must keep ``bytes`` alive by a reference of its own: other threads run meanwhile. */
static PyObject *copy_of(const char *bytes, Py_ssize_t size) {
#if defined(Py_GIL_DISABLED)
    return PyBytes_FromStringAndSize(bytes, size); /* other threads run in any case, and a critical section is kept */
#else
    if (size < LONG_COPY)
        return PyBytes_FromStringAndSize(bytes, size);
    PyObject *copy = PyBytes_FromStringAndSize(NULL, size);
    if (copy != NULL) {
        char *target = PyBytes_AS_STRING(copy);
        Py_BEGIN_ALLOW_THREADS
        memcpy(target, bytes, (size_t)size);
        Py_END_ALLOW_THREADS
    }
    return copy;
#endif
}

static PyObject *copied(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *copy = copy_of(view.buf, view.len);
    PyBuffer_Release(&view);
    return copy;
}

static PyObject *new_content(const Cursor *cursor, const Part *part) {
    return part->is_null ? Py_NewRef(Py_None) : copy_of((const char *)cursor->data + part->at, (Py_ssize_t)part->size);
}

static PyObject *build_header(Cursor *cursor) {
    Part name, content;
    if (!read_content(cursor, &name) || !read_content(cursor, &content)) {
        PyErr_SetString(PyExc_SystemError, cursor->problem);
        return NULL;
    }
    /* No broker checks a header's key. One that is not UTF-8 must not stop the partition (as in Java). */
    PyObject *key = PyUnicode_DecodeUTF8((const char *)cursor->data + name.at, (Py_ssize_t)name.size, "replace");
    PyObject *value = key == NULL ? NULL : new_content(cursor, &content);
    PyObject *header = value == NULL ? NULL : PyTuple_Pack(2, key, value);
    Py_XDECREF(key);
    Py_XDECREF(value);
    return header;
}

/* The collector never sees the tuple. Other threads, which run while a long value is copied, could find it by that before
 * it is full; and texts and bytes are part of no cycle. */
static PyObject *build_headers(Cursor *cursor) {
    int64_t count;
    if (!read_header_count(cursor, &count)) {
        PyErr_SetString(PyExc_SystemError, "a record was changed after it was checked");
        return NULL;
    }
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    if (headers != NULL)
        PyObject_GC_UnTrack(headers);
    for (Py_ssize_t index = 0; headers != NULL && index < count; index++) {
        PyObject *header = build_header(cursor);
        if (header == NULL) {
            Py_CLEAR(headers);
        } else {
            PyTuple_SET_ITEM(headers, index, header);
        }
    }
    return headers;
}

static PyObject *kept_headers(Record *self) {
    if (!PyBytes_CheckExact(self->headers))
        return Py_NewRef(self->headers);
    PyObject *bytes = Py_NewRef(self->headers);
    Cursor cursor = cursor_at(bytes, 0);
    PyObject *built = build_headers(&cursor);
    /* While these were built, a finalizer or another thread may have built them, too: the first ones are kept. */
    if (built != NULL && self->headers == bytes) {
        self->headers = Py_NewRef(built);
        Py_DECREF(bytes);
    } else if (built != NULL) {
        Py_SETREF(built, Py_NewRef(self->headers));
    }
    Py_DECREF(bytes);
    return built;
}

/* Return the headers as a tuple. The record keeps that tuple from the first call on. */
static PyObject *record_headers(Record *self, void *Py_UNUSED(closure)) {
    PyObject *headers;
    Py_BEGIN_CRITICAL_SECTION(self);
    headers = kept_headers(self);
    Py_END_CRITICAL_SECTION();
    return headers;
}

static PyObject *record_origin(Record *self, void *index) {
    return Py_NewRef(PyTuple_GET_ITEM(self->origin, (Py_ssize_t)(intptr_t)index));
}

static PyMemberDef record_members[] = {
    {"key", T_OBJECT_EX, offsetof(Record, key), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(Record, value), READONLY, NULL},
    {"offset", T_OBJECT_EX, offsetof(Record, offset), READONLY, NULL},
    {"timestamp", T_LONGLONG, offsetof(Record, timestamp), READONLY, NULL},
    {0},
};

static PyGetSetDef record_getset[] = {
    {.name = "topic", .get = (getter)record_origin, .closure = (void *)TOPIC},
    {.name = "partition", .get = (getter)record_origin, .closure = (void *)PARTITION},
    {.name = "timestamp_type", .get = (getter)record_origin, .closure = (void *)TIMESTAMP_TYPE},
    {.name = "headers", .get = (getter)record_headers},
    {.name = "leader_epoch", .get = (getter)record_origin, .closure = (void *)LEADER_EPOCH},
    {0},
};

/* From Python 3.12 on, the base class is tracked by the collector, because of typing.Generic. A type with a traverse
 * function of its own does not inherit that. Without Py_TPFLAGS_HAVE_GC, the interpreter never calls this function. */
static int record_traverse(PyObject *Py_UNUSED(self), visitproc Py_UNUSED(visit), void *Py_UNUSED(arg)) {
    return 0;
}

static PyType_Slot record_slots[] = {
    {Py_tp_dealloc, record_dealloc},
    {Py_tp_members, record_members},
    {Py_tp_getset, record_getset},
    {Py_tp_traverse, record_traverse},
    {0},
};

static PyType_Spec record_spec = {
    .name = "aiokc._native.extension.ConsumerRecord",
    .basicsize = sizeof(Record),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = record_slots,
};

/* RecordReader */

void raise_corrupt(const Reader *self, const Cursor *cursor) {
    State *state = PyType_GetModuleState(Py_TYPE(self));
    long long next_offset = self->head.base_offset + self->head.last_delta + 1;
    long long offset = self->head.base_offset + self->progress.previous_delta + 1;
    PyObject *what = PyUnicode_FromFormat(cursor->problem, cursor->numbers[0], cursor->numbers[1]);
    PyObject *args = what == NULL ? NULL : Py_BuildValue("(N)", PyUnicode_FromFormat(
        "%U; seek() to %lld to skip the batch", what, next_offset));
    PyObject *where = args == NULL ? NULL : Py_BuildValue("{sOsOsL}", "topic", PyTuple_GET_ITEM(self->origin, TOPIC),
        "partition", PyTuple_GET_ITEM(self->origin, PARTITION), "offset", offset);
    PyObject *error = where == NULL ? NULL : PyObject_Call(state->corrupt_record, args, where);
    if (error != NULL)
        PyErr_SetObject(state->corrupt_record, error);
    Py_XDECREF(what);
    Py_XDECREF(args);
    Py_XDECREF(where);
    Py_XDECREF(error);
}

static int read_field(PyObject *header, const char *name, int64_t *number) {
    PyObject *field = PyObject_GetAttrString(header, name);
    if (field == NULL)
        return 0;
    *number = PyLong_AsLongLong(field);
    Py_DECREF(field);
    return *number != -1 || !PyErr_Occurred();
}

static int reader_set_header(Reader *self, PyObject *header, PyObject *topic, int partition) {
    Head *head = &self->head;
    int64_t base_timestamp, record_count, timestamp_type;
    if (!read_field(header, "base_offset", &head->base_offset) ||
        !read_field(header, "last_offset_delta", &head->last_delta) ||
        !read_field(header, "base_timestamp", &base_timestamp) ||
        !read_field(header, "max_timestamp", &head->append_time) ||
        !read_field(header, "record_count", &record_count) ||
        !read_field(header, "timestamp_type", &timestamp_type))
        return 0;
    if (head->base_offset < 0 || head->last_delta < 0 || head->last_delta >= INT64_MAX - head->base_offset ||
        record_count < 0 || record_count > head->last_delta + 1) {
        PyErr_SetString(PyExc_ValueError, "the header is none that read_header returns");
        return 0;
    }
    head->base_timestamp = (uint64_t)base_timestamp;
    head->has_append_time = timestamp_type == 1;
    head->record_count = Py_MIN(record_count, PY_SSIZE_T_MAX);
    self->progress = at_first_record(head);
    PyObject *leader_epoch = PyObject_GetAttrString(header, "leader_epoch");
    topic = leader_epoch == NULL ? NULL : PyUnicode_FromObject(topic); /* a str, not a subclass with a __dict__ */
    if (topic != NULL)
        self->origin = Py_BuildValue("(OiiO)", topic, partition, (int)timestamp_type, leader_epoch);
    Py_XDECREF(topic);
    Py_XDECREF(leader_epoch);
    return self->origin != NULL;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"header", "payload", "topic", "partition", NULL};
    PyObject *header, *payload, *topic;
    int partition;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOUi:RecordReader", names, &header, &payload, &topic, &partition))
        return NULL;
    Reader *self = (Reader *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->payload = PyBytes_FromObject(payload); /* the same object if it is bytes */
    if (self->payload == NULL || !reader_set_header(self, header, topic, partition)) {
        Py_DECREF(self);
        return NULL;
    }
    Cursor cursor = cursor_at(self->payload, 0);
    cursor.numbers[0] = cursor.size;
    cursor.numbers[1] = self->progress.remaining;
    cursor.problem = wrong_size(&self->head, cursor.size);
    if (cursor.problem != NULL) {
        raise_corrupt(self, &cursor);
        Py_DECREF(self);
        return NULL;
    }
    return (PyObject *)self;
}

static void reader_dealloc(Reader *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(self->payload);
    Py_XDECREF(self->origin);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *new_record(State *state, PyObject *origin, const Head *head, const Cursor *cursor,
                            const Layout *layout) {
    PyObject *key = new_content(cursor, &layout->key);
    PyObject *value = key == NULL ? NULL : new_content(cursor, &layout->value);
    return (PyObject *)record_of(state, origin, head, cursor, layout, key, value);
}

/* Return an empty list with room for ``count`` records. While long values are copied other threads run, and could find it
 * by the collector of reference cycles: that sees it once it is full. */
static PyObject *list_with_room(int64_t count) {
    PyObject *records = PyList_New((Py_ssize_t)Py_MAX(0, count));
    if (records != NULL) {
        Py_SET_SIZE(records, 0);
        PyObject_GC_UnTrack(records);
    }
    return records;
}

/* Append up to ``most`` records to a list that has room for them; return how many. -1: there is an exception, and list
 * and progress are as they were. If the next record is malformed, there are fewer, and the cursor has a problem. No other
 * code has the list. */
static int64_t fill_list(State *state, PyObject *origin, const Head *head, Progress *progress, Cursor *cursor,
                         int64_t most, PyObject *records) {
    Progress here = *progress; /* in registers */
    Py_ssize_t first = PyList_GET_SIZE(records), filled = first;
    int64_t count = 0;
    for (most = Py_MIN(most, here.remaining); count < most; count++) {
        Layout layout;
        if (!read_record(cursor, &here, head->last_delta, &layout))
            break;
        PyObject *record = new_record(state, origin, head, cursor, &layout);
        if (record == NULL) {
            while (filled > first)
                Py_DECREF(PyList_GET_ITEM(records, --filled));
            return -1;
        }
        PyList_SET_ITEM(records, filled++, record);
        advance(&here, &layout);
    }
    Py_SET_SIZE(records, filled);
    *progress = here;
    return count;
}

static PyObject *take_records(Reader *self, Py_ssize_t count, long long from_offset) {
    int64_t most = Py_MIN(count, self->progress.remaining), filled = 0;
    PyObject *records = list_with_room(most);
    if (records == NULL)
        return NULL;
    Cursor cursor = cursor_at(self->payload, 0);
    if (self->head.base_offset + self->progress.previous_delta + 1 >= from_offset ||
        skip_to(&cursor, &self->progress, self->head.last_delta, from_offset - self->head.base_offset))
        filled = fill_list(PyType_GetModuleState(Py_TYPE(self)), self->origin, &self->head, &self->progress, &cursor,
                           most, records);
    if (filled == 0 && cursor.problem != NULL) {
        raise_corrupt(self, &cursor);
        filled = -1;
    }
    if (filled < 0)
        Py_CLEAR(records);
    else
        PyObject_GC_Track(records);
    return records;
}

static PyObject *reader_take(Reader *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"count", "from_offset", NULL};
    Py_ssize_t count;
    long long from_offset = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "n|L:take", names, &count, &from_offset))
        return NULL;
    PyObject *records = NULL;
    Py_BEGIN_CRITICAL_SECTION(self);
    if (begin_use(&self->is_used)) {
        records = take_records(self, count, from_offset);
        end_use(&self->is_used);
    }
    Py_END_CRITICAL_SECTION();
    return records;
}

static Progress progress_of(Reader *self) {
    Progress progress;
    Py_BEGIN_CRITICAL_SECTION(self);
    progress = self->progress;
    Py_END_CRITICAL_SECTION();
    return progress;
}

static PyObject *reader_mark(Reader *self, PyObject *Py_UNUSED(ignored)) {
    Progress here = progress_of(self);
    return Py_BuildValue("(LLL)", (long long)here.position, (long long)here.previous_delta, (long long)here.remaining);
}

static PyObject *reader_go_back(Reader *self, PyObject *args) {
    long long position, previous_delta, remaining;
    if (!PyArg_ParseTuple(args, "(LLL):go_back", &position, &previous_delta, &remaining))
        return NULL;
    const Head *head = &self->head;
    if (position < 0 || position > PyBytes_GET_SIZE(self->payload) || previous_delta < -1 ||
        previous_delta > head->last_delta || remaining < 0 || remaining > head->record_count) {
        PyErr_SetString(PyExc_ValueError, "the place is none that mark returned");
        return NULL;
    }
    int done;
    Py_BEGIN_CRITICAL_SECTION(self);
    if ((done = begin_use(&self->is_used))) {
        self->progress = (Progress){position, previous_delta, remaining};
        end_use(&self->is_used);
    }
    Py_END_CRITICAL_SECTION();
    return done ? Py_NewRef(Py_None) : NULL;
}

static PyObject *reader_remaining(Reader *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(progress_of(self).remaining);
}

static PyObject *reader_next_offset(Reader *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->head.base_offset + progress_of(self).previous_delta + 1);
}

static PyMethodDef reader_methods[] = {
    {"mark", (PyCFunction)reader_mark, METH_NOARGS, PyDoc_STR("The place of the next record, for go_back.")},
    {"go_back", (PyCFunction)reader_go_back, METH_VARARGS,
     PyDoc_STR("go_back(place)\n\nGo back to a place that mark returned. Raises ValueError if it can't be one.")},
    {"take", (PyCFunction)(void (*)(void))reader_take, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("take(count, from_offset=0) -> list[ConsumerRecord]\n\n"
               "The next records with an offset >= from_offset, at most count; [] once the batch is finished.")},
    {0},
};

static PyGetSetDef reader_getset[] = {
    {.name = "remaining", .get = (getter)reader_remaining,
     .doc = PyDoc_STR("Records that were not looked at yet. 0: the batch is finished.")},
    {.name = "next_offset", .get = (getter)reader_next_offset,
     .doc = PyDoc_STR("The offset behind the last record that was looked at.")},
    {0},
};

static PyType_Slot reader_slots[] = {
    {Py_tp_new, reader_new},
    {Py_tp_dealloc, reader_dealloc},
    {Py_tp_methods, reader_methods},
    {Py_tp_getset, reader_getset},
    {Py_tp_doc, PyDoc_STR("The records of one batch, decoded as they are asked for.")},
    {0},
};

static PyType_Spec reader_spec = {
    .name = "aiokc._native.extension.RecordReader",
    .basicsize = sizeof(Reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = reader_slots,
};

static PyMethodDef functions[] = {
    {"copied", copied, METH_O,
     PyDoc_STR("copied(data) -> bytes\n\nThe same bytes, copied while other threads run if they are many.")},
    {0},
};

int add_records(PyObject *module, State *state) {
    PyObject *types = PyImport_ImportModule("aiokc.types");
    PyObject *public_record = types == NULL ? NULL : PyObject_GetAttrString(types, "ConsumerRecord");
    Py_XDECREF(types);
    if (public_record == NULL)
        return -1;
    state->record_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &record_spec, public_record);
    Py_DECREF(public_record);
    state->no_headers = PyTuple_New(0);
    if (state->record_type == NULL || state->no_headers == NULL || PyModule_AddType(module, state->record_type) < 0)
        return -1;
    if (PyModule_AddFunctions(module, functions) < 0)
        return -1;
    state->reader_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &reader_spec, NULL);
    return state->reader_type == NULL ? -1 : PyModule_AddType(module, state->reader_type);
}
