/* The records of a run that take_run has checked, made into objects when they are read: RecordSpan and its iterator.
 *
 * A span refers to the run, or to a copy of its own part of it (``detach``). Records copy all their bytes, so that a
 * record keeps neither alive.
 *
 * As zip() does with its tuple, the iterator writes a record anew that nobody else refers to, and the objects in it
 * (rewriting.h). While a loop's variable still refers to the last record, only the one before it is free: so the
 * iterator keeps two, and uses them in turn. Whoever keeps a record, or one of its objects, has another reference to
 * that, and it stays as it is.
 *
 * Every byte is checked again when it is read: so no mistake here, and no change of the run, can lead out of it.
 *
 * Each function keeps the GIL and calls no code in Python, but where it says so. Python without a GIL has no spans:
 * there, take_run returns lists.
 */

#include "record.h"
#include "record_span.h"
#include "rewriting.h"

#define CHANGED "the bytes of records were changed after they were checked"

typedef struct {
    PyObject_HEAD
    Py_buffer run;  /* ``obj`` is NULL: the bytes are the span's own copy */
    PyObject *copy; /* NULL: the bytes are those of the run */
    const uint8_t *bytes;
    int64_t size;
    int64_t count;
    PyObject *topic;
    int partition;
    Place first;
    Place last;
} Span;

#define MADE 2

/* After so many records that somebody else has kept, the iterator keeps none itself any more: list() keeps all. */
#define KEPT 8

typedef struct {
    PyObject_HEAD
    State *state;
    Span *span; /* NULL: all records were read */
    Place place;
    int64_t left;
    PyObject *origin;
    Record *made[MADE]; /* the last records, which may be written anew */
    unsigned turn;
    int kept; /* how many records in a row could not be written anew */
} Iterator;

/* Making and writing records */

static PyObject *new_origin(const Span *span, const Place *place) {
    PyObject *epoch = place->epoch < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(place->epoch);
    if (epoch == NULL)
        return NULL;
    return Py_BuildValue("(OiiN)", span->topic, span->partition, place->head.has_append_time ? 1 : 0, epoch);
}

/* Whether the records of two batches have the same origin. */
static int is_same_origin(const Place *place, const Place *other) {
    return !place->head.has_append_time == !other->head.has_append_time &&
           (place->epoch == other->epoch || (place->epoch < 0 && other->epoch < 0));
}

static inline PyObject *new_content(const Cursor *cursor, const Part *part) {
    if (part->is_null)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)cursor->data + part->at, (Py_ssize_t)part->size);
}

static Record *new_record(State *state, PyObject *origin, const Head *head, const Cursor *cursor,
                          const Layout *layout) {
    PyObject *key = new_content(cursor, &layout->key);
    PyObject *value = key == NULL ? NULL : new_content(cursor, &layout->value);
    return record_of(state, origin, head, cursor, layout, key, value);
}

static inline int set_content(PyObject **slot, const Cursor *cursor, const Part *part) {
    if (!part->is_null)
        return set_bytes(slot, (const char *)cursor->data + part->at, (Py_ssize_t)part->size);
    set_object(slot, Py_None);
    return 1;
}

/* Write all fields of a record that only the caller refers to. If it fails, the record is a mixture of two. */
static int write_record(const State *state, Record *record, PyObject *origin, const Head *head, const Cursor *cursor,
                        const Layout *layout) {
    if (!set_content(&record->key, cursor, &layout->key) || !set_content(&record->value, cursor, &layout->value) ||
        !set_number(&record->offset, head->base_offset + layout->offset_delta))
        return 0;
    if (layout->headers == NO_HEADERS) {
        set_object(&record->headers, state->no_headers);
    } else if (!set_bytes(&record->headers, (const char *)cursor->data + layout->headers,
                          (Py_ssize_t)(layout->end - layout->headers))) {
        return 0;
    }
    set_object(&record->origin, origin);
    record->timestamp = timestamp_of(head, layout);
    return 1;
}

/* Reading a span */

/* Set a cursor to the batch at this place, of which the span may hold the beginning only. */
static inline void point_at(Cursor *cursor, const Span *span, const Place *place) {
    cursor->data = span->bytes;
    cursor->size = Py_MIN(place->batch_end, span->size);
}

static inline int read_next(const Span *span, const Place *place, Cursor *cursor, Layout *layout) {
    point_at(cursor, span, place);
    if (read_record(cursor, &place->progress, place->head.last_delta, layout))
        return 1;
    PyErr_SetString(PyExc_SystemError, CHANGED);
    return 0;
}

/* Go on to the next batch; and there, as take_run does, to the first offset behind the batch before. */
static int next_batch(const Span *span, Place *place) {
    Whole batch;
    int64_t at = place->batch_end, from = place->head.base_offset + place->head.last_delta + 1;
    do {
        if (at > span->size - HEADER_SIZE || !read_head(span->bytes + at, &batch)) {
            PyErr_SetString(PyExc_SystemError, CHANGED);
            return 0;
        }
        at += batch.size;
    } while (batch.next_offset <= from);
    Place next = {at_first_record(&batch.head), at, batch.head, batch.epoch};
    next.progress.position = at - batch.size + HEADER_SIZE;
    Cursor cursor;
    point_at(&cursor, span, &next);
    if (batch.head.base_offset < from &&
        !skip_to(&cursor, &next.progress, batch.head.last_delta, from - batch.head.base_offset)) {
        PyErr_SetString(PyExc_SystemError, CHANGED);
        return 0;
    }
    *place = next;
    return 1;
}

/* Go on to a batch with records, and set the origin of these. To make a tuple may run the garbage collector, and so any
 * code: if that has read from this iterator, nothing is changed. */
static int iterator_to_batch(Iterator *self) {
    Place place = self->place;
    int64_t left = self->left;
    while (place.progress.remaining == 0)
        if (!next_batch(self->span, &place))
            return 0;
    if (is_same_origin(&place, &self->place)) {
        self->place = place;
        return 1;
    }
    Span *span = (Span *)Py_NewRef((PyObject *)self->span);
    PyObject *origin = new_origin(span, &place);
    Py_DECREF(span);
    if (origin == NULL)
        return 0;
    if (self->left == left) {
        self->place = place;
        Py_SETREF(self->origin, origin);
    } else {
        Py_DECREF(origin);
    }
    return 1;
}

static void iterator_clear(Iterator *self) {
    for (int index = 0; index < MADE; index++)
        Py_CLEAR(self->made[index]);
    Py_CLEAR(self->origin);
    Py_CLEAR(self->span);
}

static PyObject *iterator_next(Iterator *self) {
    while (self->left > 0 && self->place.progress.remaining == 0)
        if (!iterator_to_batch(self))
            return NULL;
    if (self->left == 0) {
        iterator_clear(self);
        return NULL;
    }
    Record **made = &self->made[self->turn], *record;
    Cursor cursor;
    Layout layout;
    if (!read_next(self->span, &self->place, &cursor, &layout))
        return NULL;
    if (*made != NULL && is_free(*made)) {
        record = *made;
        if (!write_record(self->state, record, self->origin, &self->place.head, &cursor, &layout))
            return NULL;
        self->kept = 0;
        Py_INCREF(record);
    } else {
        record = new_record(self->state, self->origin, &self->place.head, &cursor, &layout);
        if (record == NULL)
            return NULL;
        if (self->kept < KEPT) {
            self->kept += *made != NULL;
            Py_XSETREF(*made, (Record *)Py_NewRef((PyObject *)record));
        }
    }
    advance(&self->place.progress, &layout);
    self->left--;
    self->turn = (self->turn + 1) % MADE;
    return (PyObject *)record;
}

static void iterator_dealloc(Iterator *self) {
    PyTypeObject *type = Py_TYPE(self);
    iterator_clear(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyObject *iterator_length_hint(Iterator *self, PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLongLong(self->left);
}

static PyMethodDef iterator_methods[] = {
    {"__length_hint__", (PyCFunction)iterator_length_hint, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot iterator_slots[] = {
    {Py_tp_dealloc, iterator_dealloc},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, iterator_next},
    {Py_tp_methods, iterator_methods},
    {0},
};

static PyType_Spec iterator_spec = {
    .name = "aiokc._native.extension.RecordSpanIterator",
    .basicsize = sizeof(Iterator),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = iterator_slots,
};

/* RecordSpan */

static PyObject *span_iter(Span *self) {
    State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *origin = new_origin(self, &self->first);
    Iterator *iterator = origin == NULL ? NULL : (Iterator *)state->span_iterator_type->tp_alloc(
                                                     state->span_iterator_type, 0);
    if (iterator == NULL) {
        Py_XDECREF(origin);
        return NULL;
    }
    iterator->state = state;
    iterator->span = (Span *)Py_NewRef((PyObject *)self);
    iterator->place = self->first;
    iterator->left = self->count;
    iterator->origin = origin;
    return (PyObject *)iterator;
}

static PyObject *record_at(Span *self, const Place *place) {
    State *state = PyType_GetModuleState(Py_TYPE(self));
    PyObject *origin = new_origin(self, place);
    Record *record = NULL;
    Cursor cursor;
    Layout layout;
    if (origin != NULL && read_next(self, place, &cursor, &layout))
        record = new_record(state, origin, &place->head, &cursor, &layout);
    Py_XDECREF(origin);
    return (PyObject *)record;
}

static PyObject *span_first(Span *self, PyObject *Py_UNUSED(ignored)) {
    return record_at(self, &self->first);
}

static PyObject *span_last(Span *self, PyObject *Py_UNUSED(ignored)) {
    return record_at(self, &self->last);
}

static int detach(Span *self) {
    if (self->copy != NULL)
        return 1;
    self->copy = PyBytes_FromStringAndSize((const char *)self->bytes, (Py_ssize_t)self->size);
    if (self->copy == NULL)
        return 0;
    self->bytes = (const uint8_t *)PyBytes_AS_STRING(self->copy);
    PyBuffer_Release(&self->run);
    return 1;
}

static PyObject *span_detach(Span *self, PyObject *Py_UNUSED(ignored)) {
    return detach(self) ? Py_NewRef(Py_None) : NULL;
}

static PyObject *span_is_detached(Span *self, void *Py_UNUSED(closure)) {
    return PyBool_FromLong(self->copy != NULL);
}

static PyObject *span_size(Span *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(self->size);
}

static Py_ssize_t span_length(Span *self) {
    return (Py_ssize_t)self->count;
}

static void span_dealloc(Span *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyBuffer_Release(&self->run);
    Py_XDECREF(self->copy);
    Py_XDECREF(self->topic);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMethodDef span_methods[] = {
    {"first", (PyCFunction)span_first, METH_NOARGS, PyDoc_STR("Return the first record.")},
    {"last", (PyCFunction)span_last, METH_NOARGS, PyDoc_STR("Return the last record.")},
    {"detach", (PyCFunction)span_detach, METH_NOARGS,
     PyDoc_STR("Copy the bytes of these records, and let go of the run.")},
    {0},
};

static PyGetSetDef span_getset[] = {
    {.name = "is_detached", .get = (getter)span_is_detached, .doc = PyDoc_STR("Whether it has let go of the run.")},
    {.name = "size", .get = (getter)span_size, .doc = PyDoc_STR("The bytes from the first record to the last one.")},
    {0},
};

static PyType_Slot span_slots[] = {
    {Py_tp_dealloc, span_dealloc},
    {Py_tp_iter, span_iter},
    {Py_tp_methods, span_methods},
    {Py_tp_getset, span_getset},
    {Py_sq_length, span_length},
    {Py_tp_doc, PyDoc_STR("Records of a run that were checked. They are made when they are read, anew each time.")},
    {0},
};

static PyType_Spec span_spec = {
    .name = "aiokc._native.extension.RecordSpan",
    .basicsize = sizeof(Span),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = span_slots,
};

static PyObject *new_span(const State *state, PyObject *run, PyObject *topic, int partition, const Found *found) {
    Span *span = (Span *)state->span_type->tp_alloc(state->span_type, 0);
    if (span == NULL)
        return NULL;
    if (PyObject_GetBuffer(run, &span->run, PyBUF_SIMPLE) < 0 ||
        (span->topic = PyUnicode_FromObject(topic)) == NULL) { /* a str, not a subclass with a __dict__ */
        Py_DECREF(span);
        return NULL;
    }
    span->bytes = (const uint8_t *)span->run.buf + found->start;
    span->size = found->end - found->start;
    span->count = found->count;
    span->partition = partition;
    span->first = found->first;
    span->last = found->last;
    return (PyObject *)span;
}

PyObject *records_found(const State *state, PyObject *run, PyObject *topic, int partition, const Found *found) {
    if (found->count == 0)
        return PyList_New(0);
    PyObject *span = new_span(state, run, topic, partition, found);
#if defined(Py_GIL_DISABLED)
    PyObject *list = span == NULL ? NULL : PySequence_List(span);
    Py_XDECREF(span);
    return list;
#else
    return span;
#endif
}

/* Detach the spans of a list that anything but the list refers to, as far as the one with which ``most`` bytes are
 * copied. To copy all of a long response at once would hold the event loop for tens of milliseconds. */
static PyObject *detach_held(PyObject *module, PyObject *args) {
    const State *state = PyModule_GetState(module);
    PyObject *spans;
    Py_ssize_t most, index = 0;
    int64_t copied = 0;
    if (!PyArg_ParseTuple(args, "O!n", &PyList_Type, &spans, &most))
        return NULL;
    for (; index < PyList_GET_SIZE(spans) && copied < most; index++) {
        PyObject *item = PyList_GET_ITEM(spans, index);
        if (!Py_IS_TYPE(item, state->span_type)) {
            PyErr_SetString(PyExc_TypeError, "a list of RecordSpans");
            return NULL;
        }
        Span *span = (Span *)item;
        if (Py_REFCNT(item) == 1 || span->copy != NULL)
            continue;
        if (!detach(span))
            return NULL;
        copied += span->size;
    }
    return PyLong_FromSsize_t(index);
}

static PyMethodDef functions[] = {
    {"detach_held", detach_held, METH_VARARGS,
     PyDoc_STR("detach_held(spans, most)\n\nDetach those that anything but this list refers to, until so many bytes "
               "are copied; return how many were looked at.")},
    {0},
};

int add_record_span(PyObject *module, State *state) {
    state->span_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &span_spec, NULL);
    state->span_iterator_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &iterator_spec, NULL);
    if (state->span_type == NULL || state->span_iterator_type == NULL)
        return -1;
    return PyModule_AddType(module, state->span_type) < 0 ? -1 : PyModule_AddFunctions(module, functions);
}
