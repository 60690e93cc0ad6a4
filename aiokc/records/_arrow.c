/* A finished batch of columns, and the capsules in which others take it over without a copy (Arrow's PyCapsule
 * interface). What is called from a capsule's consumer may run in any thread, without the GIL. */

#include "_arrow.h"

#include <errno.h>

#if defined(_MSC_VER)
#include <intrin.h>
#define COUNT(counter, change) (_InterlockedExchangeAdd(counter, change) + (change))
#define EXCHANGE(place, value) (_InterlockedExchangePointer((void *volatile *)(place), value))
#else
#define COUNT(counter, change) __atomic_add_fetch(counter, change, __ATOMIC_ACQ_REL)
#define EXCHANGE(place, value) __atomic_exchange_n(place, value, __ATOMIC_ACQ_REL)
#endif

#define LEAST_ROOM 64

/* Batches that nobody holds any more, for the next ones of the same columns: fresh memory costs a page fault for every
 * 4 KiB. So many of them are kept, none of which is larger than that. */
#define SPARE_BATCHES 4
#define LARGEST_SPARE (12 << 20)

/* A batch that is larger than this, and mostly empty, gives back what it does not use before it is handed out. */
#define SMALL (1 << 20)

static Batch *spare[SPARE_BATCHES];

/* Batches */

int grow(Buffer *buffer, int64_t more) {
    int64_t room = Py_MAX(buffer->size + more, Py_MAX(2 * buffer->room, LEAST_ROOM));
    uint8_t *data = more > INT64_MAX / 4 ? NULL : PyMem_RawRealloc(buffer->data, (size_t)room);
    if (data == NULL)
        return 0;
    buffer->data = data;
    buffer->room = room;
    return 1;
}

static Node *new_node(Batch *batch, const Shape *shape) {
    Node *node = &batch->nodes[batch->node_count++];
    node->shape = shape;
    for (int index = VALIDITY; index < shape->buffers; index++) {
        if (!grow(&node->buffers[index], LEAST_ROOM))
            return NULL;
    }
    return node;
}

static Node *add_node(Batch *batch, Node *parent, const Shape *shape) {
    Node *node = new_node(batch, shape);
    for (int index = 0; node != NULL && shape->children[index] != NULL; index++) {
        if (add_node(batch, node, shape->children[index]) == NULL)
            return NULL;
    }
    if (node != NULL)
        parent->children[parent->child_count++] = node;
    return node;
}

static void free_batch(Batch *batch) {
    for (int index = 0; batch != NULL && index < batch->node_count; index++) {
        for (int number = 0; number < MOST_BUFFERS; number++)
            PyMem_RawFree(batch->nodes[index].buffers[number].data);
    }
    PyMem_RawFree(batch);
}

static Batch *fresh_batch(const Shape *const *columns, int count) {
    static const Shape shape = {.name = "", .format = "+s", .buffers = 1};
    Batch *batch = PyMem_RawCalloc(1, sizeof(Batch));
    int is_whole = batch != NULL && new_node(batch, &shape) != NULL;
    for (int index = 0; is_whole && index < count; index++)
        is_whole = add_node(batch, batch->nodes, columns[index]) != NULL;
    if (is_whole)
        return batch;
    free_batch(batch);
    return NULL;
}

static int has_columns(const Batch *batch, const Shape *const *columns, int count) {
    int is_same = batch->nodes[0].child_count == count;
    for (int index = 0; is_same && index < count; index++)
        is_same = batch->nodes[0].children[index]->shape == columns[index];
    return is_same;
}

static Batch *spare_batch(const Shape *const *columns, int count) {
    for (int index = 0; index < SPARE_BATCHES; index++) {
        Batch *batch = EXCHANGE(&spare[index], NULL);
        if (batch != NULL && has_columns(batch, columns, count))
            return batch;
        free_batch(batch); /* of columns that are not read any more */
    }
    return NULL;
}

/* Keep it for the next one; whatever it takes the place of is not needed. */
static void keep_spare(Batch *batch) {
    for (int index = 0; batch != NULL && index < SPARE_BATCHES; index++)
        batch = EXCHANGE(&spare[index], batch);
    free_batch(batch);
}

void free_spare_batches(void) {
    for (int index = 0; index < SPARE_BATCHES; index++)
        free_batch(EXCHANGE(&spare[index], NULL));
}

Batch *new_batch(const Shape *const *columns, int count) {
    Batch *batch = spare_batch(columns, count);
    if (batch == NULL)
        batch = fresh_batch(columns, count);
    if (batch == NULL)
        return NULL;
    batch->references = 1;
    for (int index = 0; index < batch->node_count; index++) {
        Node *node = &batch->nodes[index];
        node->length = node->nulls = 0;
        for (int number = 0; number < MOST_BUFFERS; number++)
            node->buffers[number].size = 0;
        if (has_offsets(node)) {
            memset(node->buffers[DATA].data, 0, sizeof(int32_t));
            node->buffers[DATA].size = sizeof(int32_t);
        }
    }
    return batch;
}

static int64_t room_of(const Batch *batch) {
    int64_t sum = 0;
    for (int index = 0; index < batch->node_count; index++) {
        for (int number = 0; number < MOST_BUFFERS; number++)
            sum += batch->nodes[index].buffers[number].room;
    }
    return sum;
}

void drop_batch(Batch *batch) {
    if (batch == NULL || COUNT(&batch->references, -1) > 0)
        return;
    if (room_of(batch) <= LARGEST_SPARE)
        keep_spare(batch);
    else
        free_batch(batch);
}

void trim_batch(Batch *batch) {
    if (room_of(batch) <= Py_MAX(SMALL, 4 * used_bytes(batch)))
        return;
    for (int index = 0; index < batch->node_count; index++) {
        for (int number = 0; number < batch->nodes[index].shape->buffers; number++) {
            Buffer *buffer = &batch->nodes[index].buffers[number];
            int64_t used = number == VALIDITY ? (batch->nodes[index].length + 7) / 8 : buffer->size;
            used = Py_MAX(used, LEAST_ROOM);
            uint8_t *data = used < buffer->room ? PyMem_RawRealloc(buffer->data, (size_t)used) : NULL;
            if (data != NULL) {
                buffer->data = data;
                buffer->room = used;
            }
        }
    }
}

int64_t used_bytes(const Batch *batch) {
    int64_t sum = 0;
    for (int index = 0; index < batch->node_count; index++) {
        const Node *node = &batch->nodes[index];
        sum += (node->nulls ? (node->length + 7) / 8 : 0) + node->buffers[DATA].size + node->buffers[CONTENT].size;
    }
    return sum;
}

/* The C data interface */

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t index = 0; index < schema->n_children; index++) {
        if (schema->children[index]->release != NULL)
            schema->children[index]->release(schema->children[index]);
    }
    PyMem_RawFree(schema->private_data);
    schema->release = NULL;
}

/* A block for the children of one structure: pointers to them, and themselves. */
typedef struct {
    struct ArrowSchema *pointers[MOST_CHILDREN];
    struct ArrowSchema children[];
} SchemaParts;

static int export_schema(const Node *node, struct ArrowSchema *schema) {
    SchemaParts *parts = PyMem_RawCalloc(1, sizeof(SchemaParts) + (size_t)node->child_count * sizeof(*schema));
    if (parts == NULL)
        return ENOMEM;
    *schema = (struct ArrowSchema){
        .format = node->shape->format,
        .name = node->shape->name,
        .flags = node->shape->name[0] ? ARROW_FLAG_NULLABLE : 0,
        .children = parts->pointers,
        .release = release_schema,
        .private_data = parts,
    };
    for (int index = 0; index < node->child_count; index++) {
        parts->pointers[index] = &parts->children[index];
        if (export_schema(node->children[index], &parts->children[index]) != 0) {
            release_schema(schema);
            return ENOMEM;
        }
        schema->n_children++;
    }
    return 0;
}

typedef struct {
    Batch *batch;
    const void *buffers[MOST_BUFFERS];
    struct ArrowArray *pointers[MOST_CHILDREN];
    struct ArrowArray children[];
} ArrayParts;

/* Children may have been moved away from their parent: each has a reference of its own. */
static void release_array(struct ArrowArray *array) {
    ArrayParts *parts = array->private_data;
    for (int64_t index = 0; index < array->n_children; index++) {
        if (array->children[index]->release != NULL)
            array->children[index]->release(array->children[index]);
    }
    drop_batch(parts->batch);
    PyMem_RawFree(parts);
    array->release = NULL;
}

static int export_array(Batch *batch, const Node *node, struct ArrowArray *array) {
    ArrayParts *parts = PyMem_RawCalloc(1, sizeof(ArrayParts) + (size_t)node->child_count * sizeof(*array));
    if (parts == NULL)
        return ENOMEM;
    COUNT(&batch->references, 1);
    parts->batch = batch;
    for (int index = VALIDITY; index < node->shape->buffers; index++)
        parts->buffers[index] = index == VALIDITY && !node->nulls ? NULL : node->buffers[index].data;
    *array = (struct ArrowArray){
        .length = node->length,
        .null_count = node->nulls,
        .n_buffers = node->shape->buffers,
        .buffers = parts->buffers,
        .children = parts->pointers,
        .release = release_array,
        .private_data = parts,
    };
    for (int index = 0; index < node->child_count; index++) {
        parts->pointers[index] = &parts->children[index];
        if (export_array(batch, node->children[index], &parts->children[index]) != 0) {
            release_array(array);
            return ENOMEM;
        }
        array->n_children++;
    }
    return 0;
}

/* A stream of the one batch. */
typedef struct {
    Batch *batch;
    int is_over;
} StreamParts;

static int stream_schema(struct ArrowArrayStream *stream, struct ArrowSchema *schema) {
    return export_schema(((StreamParts *)stream->private_data)->batch->nodes, schema);
}

static int stream_next(struct ArrowArrayStream *stream, struct ArrowArray *array) {
    StreamParts *parts = stream->private_data;
    if (parts->is_over) {
        *array = (struct ArrowArray){0};
        return 0;
    }
    int problem = export_array(parts->batch, parts->batch->nodes, array);
    parts->is_over = problem == 0;
    return problem;
}

static const char *stream_error(struct ArrowArrayStream *Py_UNUSED(stream)) {
    return "out of memory";
}

static void release_stream(struct ArrowArrayStream *stream) {
    StreamParts *parts = stream->private_data;
    drop_batch(parts->batch);
    PyMem_RawFree(parts);
    stream->release = NULL;
}

static int export_stream(Batch *batch, struct ArrowArrayStream *stream) {
    StreamParts *parts = PyMem_RawCalloc(1, sizeof(StreamParts));
    if (parts == NULL)
        return ENOMEM;
    COUNT(&batch->references, 1);
    parts->batch = batch;
    *stream = (struct ArrowArrayStream){
        .get_schema = stream_schema,
        .get_next = stream_next,
        .get_last_error = stream_error,
        .release = release_stream,
        .private_data = parts,
    };
    return 0;
}

/* Capsules. One that nobody has taken over releases what it holds. */

#define CAPSULE_OF(Type, function, capsule_name, ...)                                                                  \
    static void destroy_##function(PyObject *capsule) {                                                                \
        struct Type *held = PyCapsule_GetPointer(capsule, capsule_name);                                               \
        if (held->release != NULL)                                                                                     \
            held->release(held);                                                                                       \
        PyMem_RawFree(held);                                                                                           \
    }                                                                                                                  \
    static PyObject *function##_capsule(Batch *batch) {                                                                \
        struct Type *held = PyMem_RawCalloc(1, sizeof(struct Type));                                                   \
        if (held == NULL || function(__VA_ARGS__, held) != 0) {                                                        \
            PyMem_RawFree(held);                                                                                       \
            return PyErr_NoMemory();                                                                                   \
        }                                                                                                              \
        PyObject *capsule = PyCapsule_New(held, capsule_name, destroy_##function);                                     \
        if (capsule == NULL) {                                                                                         \
            held->release(held);                                                                                       \
            PyMem_RawFree(held);                                                                                       \
        }                                                                                                              \
        return capsule;                                                                                                \
    }

CAPSULE_OF(ArrowSchema, export_schema, "arrow_schema", batch->nodes)
CAPSULE_OF(ArrowArray, export_array, "arrow_array", batch, batch->nodes)
CAPSULE_OF(ArrowArrayStream, export_stream, "arrow_array_stream", batch)

/* ArrowBatch */

typedef struct {
    PyObject_HEAD
    Batch *batch;
} ArrowBatch;

PyObject *wrap_batch(const State *state, Batch *batch) {
    ArrowBatch *self = PyObject_New(ArrowBatch, state->arrow_type);
    if (self == NULL)
        drop_batch(batch);
    else
        self->batch = batch;
    return (PyObject *)self;
}

static void arrow_dealloc(ArrowBatch *self) {
    PyTypeObject *type = Py_TYPE(self);
    drop_batch(self->batch);
    PyObject_Free(self);
    Py_DECREF(type);
}

/* A consumer may ask for other types of the same columns, and gets those that there are. Other columns are an error. */
static int is_compatible(const ArrowBatch *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"requested_schema", NULL};
    PyObject *requested = Py_None;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O", names, &requested))
        return 0;
    if (requested == Py_None)
        return 1;
    const struct ArrowSchema *schema = PyCapsule_GetPointer(requested, "arrow_schema");
    if (schema == NULL)
        return 0;
    if (schema->release != NULL && strcmp(schema->format, "+s") == 0 &&
        schema->n_children == self->batch->nodes[0].child_count)
        return 1;
    PyErr_Format(PyExc_ValueError, "requested_schema is not one of these %d columns", self->batch->nodes[0].child_count);
    return 0;
}

static PyObject *arrow_schema(ArrowBatch *self, PyObject *Py_UNUSED(ignored)) {
    return export_schema_capsule(self->batch);
}

static PyObject *arrow_array(ArrowBatch *self, PyObject *args, PyObject *kwargs) {
    if (!is_compatible(self, args, kwargs))
        return NULL;
    PyObject *schema = export_schema_capsule(self->batch);
    PyObject *array = schema == NULL ? NULL : export_array_capsule(self->batch);
    PyObject *both = array == NULL ? NULL : PyTuple_Pack(2, schema, array);
    Py_XDECREF(schema);
    Py_XDECREF(array);
    return both;
}

static PyObject *arrow_stream(ArrowBatch *self, PyObject *args, PyObject *kwargs) {
    return is_compatible(self, args, kwargs) ? export_stream_capsule(self->batch) : NULL;
}

static Py_ssize_t arrow_length(ArrowBatch *self) {
    return (Py_ssize_t)self->batch->nodes[0].length;
}

static PyObject *arrow_nbytes(ArrowBatch *self, void *Py_UNUSED(closure)) {
    return PyLong_FromLongLong(used_bytes(self->batch));
}

static PyMethodDef arrow_methods[] = {
    {"__arrow_c_schema__", (PyCFunction)arrow_schema, METH_NOARGS, NULL},
    {"__arrow_c_array__", (PyCFunction)(void (*)(void))arrow_array, METH_VARARGS | METH_KEYWORDS, NULL},
    {"__arrow_c_stream__", (PyCFunction)(void (*)(void))arrow_stream, METH_VARARGS | METH_KEYWORDS, NULL},
    {0},
};

static PyGetSetDef arrow_getset[] = {
    {.name = "nbytes", .get = (getter)arrow_nbytes},
    {0},
};

static PyType_Slot arrow_slots[] = {
    {Py_tp_dealloc, arrow_dealloc},
    {Py_tp_methods, arrow_methods},
    {Py_tp_getset, arrow_getset},
    {Py_mp_length, arrow_length},
    {Py_tp_doc, PyDoc_STR("A batch of columns, in the memory layout of Apache Arrow.")},
    {0},
};

static PyType_Spec arrow_spec = {
    .name = "aiokc.records._native.ArrowBatch",
    .basicsize = sizeof(ArrowBatch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = arrow_slots,
};

int add_arrow(PyObject *module, State *state) {
    state->arrow_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &arrow_spec, NULL);
    return state->arrow_type == NULL ? -1 : PyModule_AddType(module, state->arrow_type);
}
