/* TopicAppender: appends single records of one topic, each to the open batch of its partition, and returns deliveries.
 *
 * It does what a send that need not wait does most often. Where a record needs nothing but another batch, it returns its
 * place, and Python begins that batch. For every other record (placing.h) it returns None: then Python does all of
 * it. Python also puts the batches here that it has begun. A batch that was sealed or sent refuses records by itself, so
 * nobody has to take it out again.
 *
 * RecordPlace is the part of a Delivery that says which record it is about.
 */

#include "placing.h"

typedef struct {
    PyObject_HEAD
    PyObject *batch;
    PyObject *index;
    PyObject *timestamp;
} Place;

typedef struct {
    PyObject_HEAD
    PyTypeObject *delivery_type; /* derived from RecordPlace, with no fields of its own */
    PyObject *clock;
    Memory *memory;
    PyObject *batches;   /* lists with an item for each partition */
    PyObject *appenders;
    Places places;
    long long appended; /* how many records, since somebody set it to 0 */
} TopicAppender;

/* RecordPlace */

static Place *new_place(PyTypeObject *type, PyObject *batch, PyObject *index, PyObject *timestamp) {
    Place *self = (Place *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->batch = Py_NewRef(batch);
    self->index = Py_NewRef(index);
    self->timestamp = Py_NewRef(timestamp);
    return self;
}

static PyObject *place_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"batch", "index", "timestamp", NULL};
    PyObject *batch, *index, *timestamp;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOO:RecordPlace", names, &batch, &index, &timestamp))
        return NULL;
    return (PyObject *)new_place(type, batch, index, timestamp);
}

static int place_traverse(Place *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->batch);
    return 0;
}

static int place_clear(Place *self) {
    Py_CLEAR(self->batch);
    return 0;
}

static void place_dealloc(Place *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    place_clear(self);
    Py_CLEAR(self->index);
    Py_CLEAR(self->timestamp);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyMemberDef place_members[] = {
    {"_batch", T_OBJECT, offsetof(Place, batch), READONLY, PyDoc_STR("The batch that the record was appended to.")},
    {"_index", T_OBJECT, offsetof(Place, index), READONLY, PyDoc_STR("Its index there.")},
    {"_timestamp", T_OBJECT, offsetof(Place, timestamp), READONLY, PyDoc_STR("Its timestamp, in ms.")},
    {0},
};

static PyType_Slot place_slots[] = {
    {Py_tp_new, place_new},
    {Py_tp_dealloc, place_dealloc},
    {Py_tp_traverse, place_traverse},
    {Py_tp_clear, place_clear},
    {Py_tp_members, place_members},
    {Py_tp_doc, PyDoc_STR("Which record a Delivery is about.")},
    {0},
};

static PyType_Spec place_spec = {
    .name = "aiokc._native.extension.RecordPlace",
    .basicsize = sizeof(Place),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = place_slots,
};

/* TopicAppender */

/* Return a list of so many Nones. */
static PyObject *list_of_none(Py_ssize_t count) {
    PyObject *list = PyList_New(count);
    for (Py_ssize_t i = 0; list != NULL && i < count; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(Py_None));
    return list;
}

static PyObject *topic_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"delivery_type", "clock", "memory", "count", "keys", "largest", NULL};
    State *state = PyType_GetModuleState(type);
    PyTypeObject *delivery_type;
    PyObject *clock, *memory;
    Places places = {.appender_type = state->appender_type, .sticky = -1};
    long long largest;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O!OO!niL:TopicAppender", names, &PyType_Type, &delivery_type, &clock,
                                     state->memory_type, &memory, &places.count, &places.keys, &largest))
        return NULL;
    if (!PyType_IsSubtype(delivery_type, state->place_type) ||
        delivery_type->tp_basicsize != state->place_type->tp_basicsize || places.count < 0) {
        PyErr_SetString(PyExc_TypeError, "delivery_type must be derived from RecordPlace, without fields of its own");
        return NULL;
    }
    TopicAppender *self = (TopicAppender *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    places.largest = largest;
    self->places = places;
    self->delivery_type = (PyTypeObject *)Py_NewRef(delivery_type);
    self->clock = Py_NewRef(clock);
    self->memory = (Memory *)Py_NewRef(memory);
    self->batches = list_of_none(places.count);
    self->appenders = list_of_none(places.count);
    if (self->batches == NULL || self->appenders == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int topic_traverse(TopicAppender *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(self->delivery_type);
    Py_VISIT(self->clock);
    Py_VISIT(self->memory);
    Py_VISIT(self->batches);
    Py_VISIT(self->appenders);
    return 0;
}

static int topic_clear(TopicAppender *self) {
    Py_CLEAR(self->delivery_type);
    Py_CLEAR(self->clock);
    Py_CLEAR(self->memory);
    Py_CLEAR(self->batches);
    Py_CLEAR(self->appenders);
    return 0;
}

static void topic_dealloc(TopicAppender *self) {
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    topic_clear(self);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* Return the time of a record that is given none, in ms; -1: there is an exception, or it is before the epoch. */
static int64_t time_of(TopicAppender *self) {
    PyObject *now = PyObject_CallNoArgs(self->clock);
    double seconds = now == NULL ? -1.0 : PyFloat_AsDouble(now);
    Py_XDECREF(now);
    return seconds < 0 || seconds > 9e15 ? -1 : (int64_t)(seconds * 1000);
}

static int64_t room_in(Memory *memory) {
    int64_t room;
    Py_BEGIN_CRITICAL_SECTION(memory);
    room = memory->limit - memory->used;
    Py_END_CRITICAL_SECTION();
    return room;
}

/* Read a record from the arguments of ``append``. 0: Python has to look at it. -1: there is an exception. */
static int read_arguments(TopicAppender *self, PyObject *const *args, Placed *placed) {
    placed->record = (NewRecord){.timestamp = 0};
    if (!is_plain(args[0], &placed->record.value) || !is_plain(args[1], &placed->record.key) ||
        !are_plain_headers(args[4], placed) || !choose_partition(&self->places, args[2], placed))
        return 0;
    placed->record.timestamp = args[3] == Py_None ? time_of(self) : within(args[3], INT64_MAX);
    if (placed->record.timestamp < 0)
        return PyErr_Occurred() ? -1 : 0;
    int64_t bound = bound_of(&placed->record);
    return bound <= self->places.largest && bound <= room_in(self->memory);
}

/* Append a record to the partition's appender, if there is one. The batch is returned with a reference. */
static int append_placed(TopicAppender *self, const Placed *placed, PyObject **batch, Appended *where) {
    PyObject *appender;
    Py_BEGIN_CRITICAL_SECTION(self);
    appender = Py_NewRef(PyList_GET_ITEM(self->appenders, placed->partition));
    *batch = Py_NewRef(PyList_GET_ITEM(self->batches, placed->partition));
    Py_END_CRITICAL_SECTION();
    int appended = appender == Py_None ? 0 : append_record(appender, &placed->record, where);
    Py_DECREF(appender);
    if (appended != 1)
        Py_CLEAR(*batch);
    Py_BEGIN_CRITICAL_SECTION(self);
    self->appended += appended == 1;
    Py_END_CRITICAL_SECTION();
    return appended;
}

static PyObject *topic_append(TopicAppender *self, PyObject *const *args, Py_ssize_t given) {
    if (given != 5) {
        PyErr_SetString(PyExc_TypeError, "append() takes value, key, partition, timestamp_ms and headers");
        return NULL;
    }
    Placed placed;
    PyObject *batch = NULL;
    Appended where;
    int appended = read_arguments(self, args, &placed);
    if (appended == 0)
        Py_RETURN_NONE;
    if (appended == 1)
        appended = append_placed(self, &placed, &batch, &where);
    if (appended == 0)
        return Py_BuildValue("(nLL)", is_sticky(&self->places, args[2], &placed) ? (Py_ssize_t)-1 : placed.partition,
                             (long long)placed.record.timestamp, (long long)bound_of(&placed.record));
    if (appended < 0)
        return NULL;
    PyObject *index = PyLong_FromLongLong(where.index);
    PyObject *timestamp = PyLong_FromLongLong(placed.record.timestamp);
    Place *delivery = index == NULL || timestamp == NULL ? NULL : new_place(self->delivery_type, batch, index, timestamp);
    Py_XDECREF(index);
    Py_XDECREF(timestamp);
    Py_DECREF(batch);
    return (PyObject *)delivery;
}

static PyObject *topic_put(TopicAppender *self, PyObject *args) {
    State *state = PyType_GetModuleState(Py_TYPE(self));
    Py_ssize_t partition;
    PyObject *batch, *appender;
    if (!PyArg_ParseTuple(args, "nOO!:put", &partition, &batch, state->appender_type, &appender))
        return NULL;
    if (partition < 0 || partition >= self->places.count) {
        PyErr_SetString(PyExc_IndexError, "the topic has no such partition");
        return NULL;
    }
    Py_BEGIN_CRITICAL_SECTION(self);
    PyList_SetItem(self->batches, partition, Py_NewRef(batch));
    PyList_SetItem(self->appenders, partition, Py_NewRef(appender));
    Py_END_CRITICAL_SECTION();
    Py_RETURN_NONE;
}

static PyMethodDef topic_methods[] = {
    {"append", (PyCFunction)(void (*)(void))topic_append, METH_FASTCALL,
     PyDoc_STR("append(value, key, partition, timestamp_ms, headers) -> Delivery | tuple[int, int, int] | None\n\n"
               "Append a record. A tuple: it was not appended, since it needs another batch, of this partition (-1: of the\n"
               "one that the sticky choice falls on); with its timestamp, and how many bytes it takes at most. None: it was\n"
               "not appended, since it needs more than that.")},
    {"put", (PyCFunction)topic_put, METH_VARARGS,
     PyDoc_STR("put(partition, batch, appender)\n\nThe batch that the records of a partition go to now.")},
    {0},
};

static PyMemberDef topic_members[] = {
    {"sticky", T_PYSSIZET, offsetof(TopicAppender, places.sticky), 0, PyDoc_STR("The sticky partition; -1: none.")},
    {"appended", T_LONGLONG, offsetof(TopicAppender, appended), 0,
     PyDoc_STR("How many records were appended since somebody set this to 0.")},
    {0},
};

static PyType_Slot topic_slots[] = {
    {Py_tp_new, topic_new},
    {Py_tp_dealloc, topic_dealloc},
    {Py_tp_traverse, topic_traverse},
    {Py_tp_clear, topic_clear},
    {Py_tp_methods, topic_methods},
    {Py_tp_members, topic_members},
    {Py_tp_doc, PyDoc_STR("Appends single records of one topic to its open batches.")},
    {0},
};

static PyType_Spec topic_spec = {
    .name = "aiokc._native.extension.TopicAppender",
    .basicsize = sizeof(TopicAppender),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = topic_slots,
};

int add_topic_appender(PyObject *module, State *state) {
    state->place_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &place_spec, NULL);
    if (state->place_type == NULL || PyModule_AddType(module, state->place_type) < 0)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &topic_spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}
