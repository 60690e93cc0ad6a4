/* RecordAppender: the buffer of a batch that is being filled, record by record. BufferMemory: what all of them take. And
 * murmur2, which chooses partitions.
 *
 * A record is written straight into the memory that is sent later: behind room for the batch's header, in a bytearray
 * that ``take`` hands over without a copy. The same as records/encoding/_pure.py, byte for byte and error for error.
 */

#include "module.h"
#include "record_appender.h"

#define FIRST_BYTES 1024 /* room for the first small records, so that the buffer does not grow with each of them */

typedef struct {
    PyObject_HEAD
    PyObject *buffer; /* a bytearray that nobody else has; NULL once it was taken. First, for a test's sake */
    Memory *memory;   /* NULL: nobody counts */
    int64_t capacity;
    Filling filling; /* read and written within the appender's critical section */
    char is_sealed;
} Appender;

/* What was given for a record, as long as pointers into it are used. */

void forget(Given *given) {
    Py_CLEAR(given->kept);
    if (given->headers != given->few)
        PyMem_Free(given->headers);
    given->headers = given->few;
}

/* Keep an object alive until the record is written. It takes over the reference. */
static int keep(Given *given, PyObject *object) {
    if (given->kept == NULL && (given->kept = PyList_New(0)) == NULL) {
        Py_DECREF(object);
        return 0;
    }
    int done = PyList_Append(given->kept, object);
    Py_DECREF(object);
    return done == 0;
}

/* Point at the bytes of a key or value: bytes as they are, of anything else with a buffer a copy. */
static int point_at(Given *given, PyObject *object, Content *content) {
    if (object == Py_None) {
        *content = (Content){.bytes = NULL, .size = -1};
        return 1;
    }
    if (!PyBytes_Check(object)) {
        if (!PyObject_CheckBuffer(object)) {
            PyErr_Format(PyExc_TypeError, "a bytes-like object is required, not '%s'", Py_TYPE(object)->tp_name);
            return 0;
        }
        object = PyBytes_FromObject(object);
        if (object == NULL || !keep(given, object))
            return 0;
    }
    *content = (Content){.bytes = PyBytes_AS_STRING(object), .size = PyBytes_GET_SIZE(object)};
    return 1;
}

static int point_at_name(PyObject *name, Content *content) {
    if (!PyUnicode_Check(name)) {
        PyErr_Format(PyExc_TypeError, "the name of a header is a str, not '%s'", Py_TYPE(name)->tp_name);
        return 0;
    }
    Py_ssize_t size;
    content->bytes = PyUnicode_AsUTF8AndSize(name, &size); /* kept within the str; fails for half a surrogate pair */
    content->size = size;
    return content->bytes != NULL;
}

static int gather_header(Given *given, PyObject *object, Header *header) {
    PyObject *pair = PySequence_Tuple(object); /* a copy, unless it is a tuple: a list might change meanwhile */
    if (pair == NULL || !keep(given, pair))
        return 0;
    if (PyTuple_GET_SIZE(pair) != 2) {
        PyErr_Format(PyExc_ValueError, "a header is a pair of name and value, not %zd values", PyTuple_GET_SIZE(pair));
        return 0;
    }
    return point_at_name(PyTuple_GET_ITEM(pair, 0), &header->name) &&
           point_at(given, PyTuple_GET_ITEM(pair, 1), &header->value);
}

static int gather_headers(Given *given, PyObject *object) {
    if (PyTuple_CheckExact(object) && PyTuple_GET_SIZE(object) == 0)
        return 1;
    PyObject *headers = PySequence_Tuple(object);
    if (headers == NULL || !keep(given, headers))
        return 0;
    Py_ssize_t count = PyTuple_GET_SIZE(headers);
    if (count > FEW_HEADERS && (given->headers = PyMem_New(Header, count)) == NULL) {
        given->headers = given->few;
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++)
        if (!gather_header(given, PyTuple_GET_ITEM(headers, i), &given->headers[i]))
            return 0;
    given->record.headers = given->headers;
    given->record.header_count = count;
    return 1;
}

int gather(Given *given, int64_t timestamp, PyObject *key, PyObject *value, PyObject *headers) {
    given->kept = NULL;
    given->headers = given->few;
    given->record = (NewRecord){.timestamp = timestamp};
    if (point_at(given, key, &given->record.key) && point_at(given, value, &given->record.value) &&
        (headers == NULL || gather_headers(given, headers)))
        return 1;
    forget(given);
    return 0;
}

/* The buffer */

/* Make room for ``needed`` bytes: twice as much as there was, but not more than a full batch needs. */
static int make_room(Appender *self, int64_t needed) {
    int64_t size = PyByteArray_GET_SIZE(self->buffer);
    if (needed <= size)
        return 1;
    int64_t wanted = Py_MAX(2 * size, FIRST_BYTES);
    return PyByteArray_Resize(self->buffer, (Py_ssize_t)Py_MAX(needed, Py_MIN(wanted, self->capacity))) == 0;
}

/* Whether the records are gone. From Python 3.15 on, a bytearray that can't grow for want of memory is empty then
 * (gh-139871). If it grew later, its bytes would be arbitrary, and sent with a CRC that is right. */
static int is_lost(const Appender *self) {
    return self->filling.count > 0 && PyByteArray_GET_SIZE(self->buffer) < self->filling.used;
}

static int append_within(Appender *self, const NewRecord *record, Appended *where) {
    Filling *filling = &self->filling;
    if (self->buffer == NULL || self->is_sealed || is_lost(self) || filling->count == MOST_32_BITS)
        return 0;
    int64_t body = body_size(filling, record), needed = varint_size((uint64_t)body << 1) + body;
    if (filling->count > 0 && filling->used + needed > self->capacity)
        return 0;
    if (filling->used + needed > MOST_32_BITS) {
        PyErr_SetString(PyExc_OverflowError, "a record batch has less than 2 GiB");
        return -1;
    }
    if (!make_room(self, filling->used + needed))
        return -1;
    *where = (Appended){.index = filling->count, .size = needed};
    put_record((uint8_t *)PyByteArray_AS_STRING(self->buffer) + filling->used, filling, record, body);
    return 1;
}

int append_record(PyObject *appender, const NewRecord *record, Appended *where) {
    Appender *self = (Appender *)appender;
    int appended;
    Py_BEGIN_CRITICAL_SECTION(self);
    appended = append_within(self, record, where);
    Py_END_CRITICAL_SECTION();
    if (appended == 1 && self->memory != NULL) {
        Py_BEGIN_CRITICAL_SECTION(self->memory);
        self->memory->used += where->size;
        Py_END_CRITICAL_SECTION();
    }
    return appended;
}

static Filling filling_of(Appender *self) {
    Filling filling;
    Py_BEGIN_CRITICAL_SECTION(self);
    filling = self->filling;
    Py_END_CRITICAL_SECTION();
    return filling;
}

/* BufferMemory */

static PyObject *memory_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"limit", NULL};
    long long limit;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L:BufferMemory", names, &limit))
        return NULL;
    Memory *self = (Memory *)type->tp_alloc(type, 0);
    if (self != NULL)
        self->limit = limit;
    return (PyObject *)self;
}

static void memory_dealloc(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    type->tp_free(self);
    Py_DECREF(type);
}

static PyMemberDef memory_members[] = {
    {"used", T_LONGLONG, offsetof(Memory, used), 0, PyDoc_STR("The bytes that are taken.")},
    {"limit", T_LONGLONG, offsetof(Memory, limit), READONLY, PyDoc_STR("The most bytes that may be.")},
    {0},
};

static PyType_Slot memory_slots[] = {
    {Py_tp_new, memory_new},
    {Py_tp_dealloc, memory_dealloc},
    {Py_tp_members, memory_members},
    {Py_tp_doc, PyDoc_STR("How much memory the records of a producer take.")},
    {0},
};

static PyType_Spec memory_spec = {
    .name = "aiokc._native.extension.BufferMemory",
    .basicsize = sizeof(Memory),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = memory_slots,
};

/* RecordAppender */

/* Return the state of the module, also for a class that Python code derives from RecordAppender. */
static Memory *memory_of(PyTypeObject *type, PyObject *given) {
    PyObject *module = PyType_GetModuleByDef(type, &module_definition);
    State *state = module == NULL ? NULL : PyModule_GetState(module);
    if (state == NULL)
        return NULL;
    if (!PyObject_TypeCheck(given, state->memory_type)) {
        PyErr_Format(PyExc_TypeError, "memory must be a BufferMemory, not %s", Py_TYPE(given)->tp_name);
        return NULL;
    }
    return (Memory *)Py_NewRef(given);
}

static PyObject *appender_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"capacity", "memory", NULL};
    long long capacity;
    PyObject *given = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "L|O:RecordAppender", names, &capacity, &given))
        return NULL;
    Memory *memory = NULL;
    if (given != Py_None && (memory = memory_of(type, given)) == NULL)
        return NULL;
    Appender *self = (Appender *)type->tp_alloc(type, 0);
    if (self == NULL) {
        Py_XDECREF(memory);
        return NULL;
    }
    self->memory = memory;
    self->capacity = Py_MIN(capacity, MOST_32_BITS);
    self->filling = (Filling){.base_timestamp = NO_TIMESTAMP, .max_timestamp = NO_TIMESTAMP, .used = BATCH_OVERHEAD};
    self->buffer = PyByteArray_FromStringAndSize(NULL, BATCH_OVERHEAD);
    if (self->buffer == NULL) {
        Py_DECREF(self);
        return NULL;
    }
    memset(PyByteArray_AS_STRING(self->buffer), 0, BATCH_OVERHEAD);
    return (PyObject *)self;
}

static void appender_dealloc(Appender *self) {
    PyTypeObject *type = Py_TYPE(self);
    Py_CLEAR(self->buffer);
    Py_CLEAR(self->memory);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyObject *appender_append(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count < 3 || count > 4) {
        PyErr_SetString(PyExc_TypeError, "append() takes timestamp, key, value and perhaps headers");
        return NULL;
    }
    long long timestamp = PyLong_AsLongLong(args[0]);
    if (timestamp == -1 && PyErr_Occurred())
        return NULL;
    Given given;
    if (!gather(&given, timestamp, args[1], args[2], count == 4 ? args[3] : NULL))
        return NULL;
    Appended where;
    int appended = append_record(self, &given.record, &where);
    forget(&given);
    return appended < 0 ? NULL : PyBool_FromLong(appended);
}

static PyObject *appender_seal(Appender *self, PyObject *Py_UNUSED(ignored)) {
    Py_BEGIN_CRITICAL_SECTION(self);
    self->is_sealed = 1;
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

static PyObject *appender_fits(Appender *self, PyObject *size) {
    long long needed = PyLong_AsLongLong(size);
    if (needed == -1 && PyErr_Occurred())
        return NULL;
    int fits;
    Py_BEGIN_CRITICAL_SECTION(self);
    const Filling *filling = &self->filling;
    fits = !self->is_sealed && self->buffer != NULL && !is_lost(self) &&
           (filling->count == 0 || needed <= self->capacity - filling->used);
    Py_END_CRITICAL_SECTION();
    return PyBool_FromLong(fits);
}

static PyObject *appender_take(Appender *self, PyObject *Py_UNUSED(ignored)) {
    PyObject *buffer;
    int64_t used;
    int lost;
    Py_BEGIN_CRITICAL_SECTION(self);
    buffer = self->buffer;
    lost = buffer != NULL && is_lost(self);
    self->buffer = NULL;
    used = self->filling.used;
    Py_END_CRITICAL_SECTION();
    if (buffer == NULL) {
        PyErr_SetString(PyExc_ValueError, "the buffer was taken before");
        return NULL;
    }
    if (lost)
        PyErr_NoMemory();
    if (lost || PyByteArray_Resize(buffer, (Py_ssize_t)used) < 0)
        Py_CLEAR(buffer);
    return buffer;
}

/* Return the CRC-32C of bytes that stay where they are; -1: there is an exception. */
static int64_t crc_of(State *state, const char *bytes, Py_ssize_t size) {
    PyObject *view = PyMemoryView_FromMemory((char *)bytes, size, PyBUF_READ);
    PyObject *crc = view == NULL ? NULL : PyObject_CallOneArg(state->crc32c, view);
    Py_XDECREF(view);
    int64_t value = crc == NULL ? -1 : (int64_t)PyLong_AsUnsignedLong(crc);
    Py_XDECREF(crc);
    return PyErr_Occurred() ? -1 : value;
}

static PyObject *appender_write_header(Appender *self, PyObject *args) {
    PyObject *buffer, *module = PyType_GetModuleByDef(Py_TYPE(self), &module_definition);
    long long producer_id;
    short attributes, epoch;
    int base_sequence;
    if (module == NULL || !PyArg_ParseTuple(args, "O!hLhi:write_header", &PyByteArray_Type, &buffer, &attributes,
                                            &producer_id, &epoch, &base_sequence))
        return NULL;
    Py_ssize_t size = PyByteArray_GET_SIZE(buffer);
    if (size < BATCH_OVERHEAD) {
        PyErr_SetString(PyExc_ValueError, "the buffer has no room for a header");
        return NULL;
    }
    Filling filling = filling_of(self);
    uint8_t *start = (uint8_t *)PyByteArray_AS_STRING(buffer), *at = start + CRC_START;
    at = put_big_endian(at, (uint64_t)attributes, 2);
    at = put_big_endian(at, (uint64_t)(filling.count - 1), 4);
    at = put_big_endian(at, (uint64_t)filling.base_timestamp, 8);
    at = put_big_endian(at, (uint64_t)filling.max_timestamp, 8);
    at = put_big_endian(at, (uint64_t)producer_id, 8);
    at = put_big_endian(at, (uint64_t)epoch, 2);
    at = put_big_endian(at, (uint64_t)base_sequence, 4);
    put_big_endian(at, (uint64_t)filling.count, 4);
    int64_t crc = crc_of(PyModule_GetState(module), (const char *)start + CRC_START, size - CRC_START);
    if (crc < 0)
        return NULL;
    at = put_big_endian(start, 0, 8);                                  /* the base offset, which the broker chooses */
    at = put_big_endian(at, (uint64_t)(size - PREFIX_SIZE), 4);
    at = put_big_endian(at, (uint64_t)-1, 4);                          /* the leader epoch, too */
    *at++ = MAGIC;
    put_big_endian(at, (uint64_t)crc, 4);
    Py_RETURN_NONE;
}

static PyObject *appender_count(Appender *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(filling_of(self).count);
}

static PyObject *appender_size(Appender *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(filling_of(self).used);
}

static PyObject *appender_largest(Appender *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(filling_of(self).largest);
}

static PyObject *appender_base_timestamp(Appender *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(filling_of(self).base_timestamp);
}

static PyObject *appender_max_timestamp(Appender *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(filling_of(self).max_timestamp);
}

static PyObject *appender_is_full(Appender *self, void *Py_UNUSED(closure)) {
    Filling filling = filling_of(self);
    return PyBool_FromLong(filling.count > 0 && filling.used >= self->capacity);
}

static PyMethodDef appender_methods[] = {
    {"append", (PyCFunction)(void (*)(void))appender_append, METH_FASTCALL,
     PyDoc_STR("append(timestamp, key, value, headers=()) -> bool\n\n"
               "Append a record. False: it has no room, and was not appended; the first one always has room.")},
    {"fits", (PyCFunction)appender_fits, METH_O,
     PyDoc_STR("fits(size) -> bool\n\nWhether a record of this size, in bytes, has room.")},
    {"seal", (PyCFunction)appender_seal, METH_NOARGS, PyDoc_STR("seal()\n\nFrom now on nothing has room.")},
    {"take", (PyCFunction)appender_take, METH_NOARGS,
     PyDoc_STR("take() -> bytearray\n\nThe records, behind room for the batch's header. Nothing can be appended then.\n"
               "Raises MemoryError if they were lost when there was no memory for another one.")},
    {"write_header", (PyCFunction)appender_write_header, METH_VARARGS,
     PyDoc_STR("write_header(buffer, attributes, producer_id, epoch, base_sequence)\n\n"
               "Write the batch's header to the start of a buffer with its records, which may be compressed.")},
    {0},
};

static PyGetSetDef appender_getset[] = {
    {.name = "count", .get = (getter)appender_count, .doc = PyDoc_STR("How many records were appended.")},
    {.name = "size", .get = (getter)appender_size, .doc = PyDoc_STR("Their bytes, with the batch's header.")},
    {.name = "largest", .get = (getter)appender_largest, .doc = PyDoc_STR("The bytes of the longest record.")},
    {.name = "base_timestamp", .get = (getter)appender_base_timestamp, .doc = PyDoc_STR("That of the first record.")},
    {.name = "max_timestamp", .get = (getter)appender_max_timestamp, .doc = PyDoc_STR("The latest timestamp.")},
    {.name = "is_full", .get = (getter)appender_is_full, .doc = PyDoc_STR("Whether no record fits any more.")},
    {0},
};

static PyType_Slot appender_slots[] = {
    {Py_tp_new, appender_new},
    {Py_tp_dealloc, appender_dealloc},
    {Py_tp_methods, appender_methods},
    {Py_tp_getset, appender_getset},
    {Py_tp_doc, PyDoc_STR("The records of a batch that is being filled.")},
    {0},
};

static PyType_Spec appender_spec = {
    .name = "aiokc._native.extension.RecordAppender",
    .basicsize = sizeof(Appender),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = appender_slots,
};

/* murmur2, as in core/partitioning/key_partitions.py */

uint32_t murmur2(const char *bytes, int64_t size) {
    const uint8_t *data = (const uint8_t *)bytes;
    const uint32_t m = 0x5BD1E995;
    uint32_t h = 0x9747B28C ^ (uint32_t)size;
    for (; size >= 4; data += 4, size -= 4) {
        uint32_t k = (uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 | (uint32_t)data[3] << 24;
        k *= m;
        k = (k ^ k >> 24) * m;
        h = h * m ^ k;
    }
    if (size > 0) {
        uint32_t rest = 0;
        for (int64_t i = 0; i < size; i++)
            rest |= (uint32_t)data[i] << 8 * i;
        h = (h ^ rest) * m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

static PyObject *murmur2_of(PyObject *Py_UNUSED(module), PyObject *data) {
    Py_buffer view;
    if (PyObject_GetBuffer(data, &view, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t hash = murmur2(view.buf, view.len);
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(hash);
}

static PyMethodDef functions[] = {
    {"murmur2", murmur2_of, METH_O, PyDoc_STR("murmur2(data) -> int\n\nMurmurHash2 with Java's seed, unsigned.")},
    {0},
};

int add_appender(PyObject *module, State *state) {
    state->memory_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &memory_spec, NULL);
    if (state->memory_type == NULL || PyModule_AddType(module, state->memory_type) < 0)
        return -1;
    state->appender_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &appender_spec, NULL);
    if (state->appender_type == NULL || PyModule_AddType(module, state->appender_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
