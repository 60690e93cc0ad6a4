/* Exports a finished batch of columns without a copy, by Arrow's C data interface and its PyCapsule interface. What the
 * consumer of a capsule calls may run in any thread, without the GIL. */

#include "batch_columns.h"

#include <errno.h>

/* The C data interface */

static void release_schema(struct ArrowSchema *schema) {
    for (int64_t index = 0; index < schema->n_children; index++) {
        if (schema->children[index]->release != NULL)
            schema->children[index]->release(schema->children[index]);
    }
    PyMem_RawFree(schema->private_data);
    schema->release = NULL;
}

/* The memory for the children of one schema: pointers to them, and the children themselves. */
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

/* The consumer may have moved children away from their parent, so each array has a reference of its own. */
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
    hold_batch(batch);
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

/* A stream of one batch */
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
    hold_batch(batch);
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

/* Capsules. A capsule whose content no consumer has taken over releases that content. */

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

/* A consumer that requests other types for the same columns gets these types all the same. Other columns are an
 * error. */
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
    .name = "aiokc._native.extension.ArrowBatch",
    .basicsize = sizeof(ArrowBatch),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = arrow_slots,
};

int add_arrow(PyObject *module, State *state) {
    state->arrow_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &arrow_spec, NULL);
    return state->arrow_type == NULL ? -1 : PyModule_AddType(module, state->arrow_type);
}
