/* ColumnRecords: the rows of an Arrow record batch as records to send, read where they lie.
 *
 * The columns are found by their names: value, key, partition, timestamp and headers, each of which may be missing, and
 * may be null in a row. All others are ignored. The batch comes by Arrow's PyCapsule interface, is taken over, and is
 * given back when this object ends. As with every consumer of that interface, what an exporter says is trusted.
 */

#include "arrow_abi.h"
#include "placing.h"

enum { COLUMN_VALUE, COLUMN_KEY, COLUMN_PARTITION, COLUMN_TIMESTAMP, COLUMN_HEADERS, COLUMNS };
static const char *const COLUMN_NAMES[COLUMNS] = {"value", "key", "partition", "timestamp", "headers"};

enum { MISSING, NULLS, BYTES_32, BYTES_64, INT_32, INT_64, LIST_32, LIST_64, PAIRS };

/* A column, or a part of the headers'. ``offset`` is the place of its first row in its buffers. */
typedef struct {
    int kind;
    int64_t offset;
    const uint8_t *validity; /* NULL: no row is null */
    const void *numbers;     /* values, or where the items of a row begin */
    const char *data;
    int64_t scale; /* of timestamps: how many of its units a millisecond has; negative: how many ms a unit has */
} Column;

typedef struct {
    PyObject_HEAD
    struct ArrowArray array; /* ``release`` is NULL where nothing was taken over */
    Column columns[COLUMNS];
    Column header_pair;
    Column header_name;
    Column header_value;
} ColumnRecords;

/* Reading a schema */

static int kind_of_content(const char *format) {
    if (strcmp(format, "z") == 0 || strcmp(format, "u") == 0)
        return BYTES_32;
    if (strcmp(format, "Z") == 0 || strcmp(format, "U") == 0)
        return BYTES_64;
    return strcmp(format, "n") == 0 ? NULLS : MISSING;
}

static int kind_of_number(const char *format) {
    if (strcmp(format, "i") == 0)
        return INT_32;
    if (strcmp(format, "l") == 0)
        return INT_64;
    return strcmp(format, "n") == 0 ? NULLS : MISSING;
}

static int kind_of_timestamp(const char *format, int64_t *scale) {
    static const char units[] = "smun";
    static const int64_t scales[] = {-1000, 1, 1000, 1000000};
    *scale = 1;
    if (strncmp(format, "ts", 2) != 0 || format[2] == '\0' || strchr(units, format[2]) == NULL)
        return kind_of_number(format);
    *scale = scales[strchr(units, format[2]) - units];
    return INT_64;
}

static void point(Column *column, int kind, const struct ArrowArray *array, int64_t offset) {
    column->kind = kind;
    column->offset = offset + array->offset;
    if (kind == NULLS)
        return;
    column->validity = array->null_count == 0 ? NULL : array->buffers[0];
    if (kind == PAIRS)
        return;
    column->numbers = array->buffers[1];
    column->data = kind == BYTES_32 || kind == BYTES_64 ? array->buffers[2] : NULL;
}

static int refuse(const char *name, const char *format, const char *wanted) {
    PyErr_Format(PyExc_TypeError, "column %s has Arrow's type %s: it must be %s", name, format, wanted);
    return 0;
}

static int read_headers(ColumnRecords *self, const struct ArrowSchema *schema, const struct ArrowArray *array,
                        int64_t offset) {
    static const char wanted[] = "a list of structs with a key (string) and a value (binary)";
    Column *column = &self->columns[COLUMN_HEADERS];
    if (strcmp(schema->format, "n") == 0) {
        point(column, NULLS, array, offset);
        return 1;
    }
    int is_list = strcmp(schema->format, "+l") == 0, is_large = strcmp(schema->format, "+L") == 0;
    const struct ArrowSchema *pair = is_list || is_large ? schema->children[0] : NULL;
    if (pair == NULL || strcmp(pair->format, "+s") != 0 || pair->n_children != 2)
        return refuse("headers", schema->format, wanted);
    const struct ArrowSchema *key = pair->children[0];
    int name = strcmp(key->format, "u") == 0 ? BYTES_32 : strcmp(key->format, "U") == 0 ? BYTES_64 : MISSING;
    int value = kind_of_content(pair->children[1]->format);
    if (name == MISSING || value == MISSING || key->name == NULL || strcmp(key->name, "key") != 0)
        return refuse("headers", schema->format, wanted);
    point(column, is_large ? LIST_64 : LIST_32, array, offset);
    const struct ArrowArray *pairs = array->children[0];
    point(&self->header_pair, PAIRS, pairs, 0);
    point(&self->header_name, name, pairs->children[0], pairs->offset);
    point(&self->header_value, value, pairs->children[1], pairs->offset);
    return 1;
}

static int read_column(ColumnRecords *self, int index, const struct ArrowSchema *schema,
                       const struct ArrowArray *array, int64_t offset) {
    Column *column = &self->columns[index];
    if (schema->dictionary != NULL)
        return refuse(COLUMN_NAMES[index], "dictionary", "plain, not dictionary-encoded");
    if (index == COLUMN_HEADERS)
        return read_headers(self, schema, array, offset);
    int kind = index == COLUMN_PARTITION   ? kind_of_number(schema->format)
               : index == COLUMN_TIMESTAMP ? kind_of_timestamp(schema->format, &column->scale)
                                           : kind_of_content(schema->format);
    if (kind == MISSING)
        return refuse(COLUMN_NAMES[index], schema->format,
                      index == COLUMN_PARTITION   ? "int32 or int64"
                      : index == COLUMN_TIMESTAMP ? "a timestamp, or int64 (ms)"
                                                  : "binary or string, large or not");
    point(column, kind, array, offset);
    return 1;
}

/* Rows of a record batch are never null, but those of an array of structs may be: their columns then hold anything. */
static int64_t first_null_row(const struct ArrowArray *array) {
    const uint8_t *validity = array->null_count == 0 ? NULL : array->buffers[0];
    for (int64_t row = 0; validity != NULL && row < array->length; row++) {
        int64_t at = array->offset + row;
        if (!(validity[at >> 3] >> (at & 7) & 1))
            return row;
    }
    return -1;
}

static int is_batch(const struct ArrowSchema *schema, const struct ArrowArray *array) {
    if (strcmp(schema->format, "+s") != 0) {
        PyErr_Format(PyExc_TypeError, "Arrow's type %s: give a record batch, with a column for each part of a record",
                     schema->format);
        return 0;
    }
    int64_t row = first_null_row(array);
    if (row >= 0)
        PyErr_Format(PyExc_TypeError, "row %lld is null: a record without a value is a row whose column value is null",
                     (long long)row);
    return row < 0;
}

static int read_schema(ColumnRecords *self, const struct ArrowSchema *schema) {
    const struct ArrowArray *array = &self->array;
    if (!is_batch(schema, array))
        return 0;
    for (int64_t i = 0; i < schema->n_children; i++) {
        for (int index = 0; index < COLUMNS; index++) {
            const struct ArrowSchema *child = schema->children[i];
            if (child->name == NULL || strcmp(child->name, COLUMN_NAMES[index]) != 0)
                continue;
            if (self->columns[index].kind != MISSING) {
                PyErr_Format(PyExc_TypeError, "there are two columns %s", COLUMN_NAMES[index]);
                return 0;
            }
            if (!read_column(self, index, child, array->children[i], array->offset))
                return 0;
        }
    }
    if (self->columns[COLUMN_VALUE].kind == MISSING) {
        PyErr_SetString(PyExc_TypeError, "there is no column value");
        return 0;
    }
    return 1;
}

/* The type */

static PyObject *records_new(PyTypeObject *type, PyObject *args, PyObject *Py_UNUSED(kwargs)) {
    PyObject *schema_capsule, *array_capsule;
    if (!PyArg_ParseTuple(args, "OO:ColumnRecords", &schema_capsule, &array_capsule))
        return NULL;
    struct ArrowSchema *schema = PyCapsule_GetPointer(schema_capsule, "arrow_schema");
    struct ArrowArray *array = schema == NULL ? NULL : PyCapsule_GetPointer(array_capsule, "arrow_array");
    if (array == NULL)
        return NULL;
    if (schema->release == NULL || array->release == NULL) {
        PyErr_SetString(PyExc_ValueError, "the Arrow batch was taken over before");
        return NULL;
    }
    ColumnRecords *self = (ColumnRecords *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    self->array = *array;
    array->release = NULL; /* moved: the capsule does not release it any more */
    if (!read_schema(self, schema))
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void records_dealloc(ColumnRecords *self) {
    PyTypeObject *type = Py_TYPE(self);
    if (self->array.release != NULL)
        self->array.release(&self->array);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static Py_ssize_t records_length(ColumnRecords *self) {
    return (Py_ssize_t)self->array.length;
}

/* Reading a row */

static int is_null(const Column *column, int64_t row) {
    if (column->kind == MISSING || column->kind == NULLS)
        return 1;
    int64_t at = column->offset + row;
    return column->validity != NULL && !(column->validity[at >> 3] >> (at & 7) & 1);
}

/* Return where the items or bytes of a row begin; those of the next row begin where they end. */
static int64_t begin_of(const Column *column, int64_t row) {
    int64_t at = column->offset + row;
    if (column->kind == BYTES_32 || column->kind == LIST_32)
        return ((const int32_t *)column->numbers)[at];
    return ((const int64_t *)column->numbers)[at];
}

static Content content_of(const Column *column, int64_t row) {
    if (is_null(column, row))
        return (Content){.bytes = NULL, .size = -1};
    int64_t begin = begin_of(column, row);
    return (Content){.bytes = column->data + begin, .size = begin_of(column, row + 1) - begin};
}

static int64_t number_of(const Column *column, int64_t row) {
    int64_t at = column->offset + row;
    return column->kind == INT_32 ? ((const int32_t *)column->numbers)[at] : ((const int64_t *)column->numbers)[at];
}

/* Return a row's timestamp in ms, rounded down, or ``now`` where it has none. */
static int64_t timestamp_of_row(const ColumnRecords *self, int64_t row, int64_t now) {
    const Column *column = &self->columns[COLUMN_TIMESTAMP];
    if (is_null(column, row))
        return now;
    int64_t number = number_of(column, row), scale = column->scale;
    if (scale < 0)
        return number > INT64_MAX / -scale || number < INT64_MIN / -scale ? INT64_MIN : number * -scale;
    return number / scale - (number % scale < 0);
}

static int64_t header_count_of(const ColumnRecords *self, int64_t row, int64_t *first) {
    const Column *column = &self->columns[COLUMN_HEADERS];
    if (is_null(column, row))
        return 0;
    *first = begin_of(column, row);
    return begin_of(column, row + 1) - *first;
}

static int read_row_headers(const ColumnRecords *self, int64_t row, Placed *placed) {
    int64_t first = 0, count = header_count_of(self, row, &first);
    if (count > FEW_HEADERS)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        if (is_null(&self->header_pair, first + i) || is_null(&self->header_name, first + i))
            return 0;
        placed->few[i].name = content_of(&self->header_name, first + i);
        placed->few[i].value = content_of(&self->header_value, first + i);
    }
    placed->record.headers = placed->few;
    placed->record.header_count = count;
    return 1;
}

static int read_row(const ColumnRecords *self, const Places *places, int64_t row, int64_t now, Placed *placed) {
    placed->record = (NewRecord){
        .timestamp = timestamp_of_row(self, row, now),
        .key = content_of(&self->columns[COLUMN_KEY], row),
        .value = content_of(&self->columns[COLUMN_VALUE], row),
    };
    if (placed->record.timestamp < 0 || !read_row_headers(self, row, placed))
        return 0;
    if (is_null(&self->columns[COLUMN_PARTITION], row))
        return choose_partition(places, Py_None, placed);
    int64_t partition = number_of(&self->columns[COLUMN_PARTITION], row);
    placed->partition = (Py_ssize_t)partition;
    return partition >= 0 && partition < places->count;
}

/* Appending rows */

static int append_row(const ColumnRecords *self, const Places *places, PyObject *appenders, int64_t row, int64_t now,
                      int64_t *room, Touched *touched) {
    Placed placed;
    if (!read_row(self, places, row, now, &placed) || placed.partition >= PyList_GET_SIZE(appenders))
        return 0;
    Appended where = {0};
    int64_t bound = bound_of(&placed.record);
    if (bound > places->largest || bound > *room)
        return 0;
    PyObject *appender = Py_NewRef(PyList_GET_ITEM(appenders, placed.partition));
    int appended = 0;
    if (PyObject_TypeCheck(appender, places->appender_type))
        appended = append_record(appender, &placed.record, &where);
    Py_DECREF(appender);
    *room -= where.size;
    return appended == 1 && !note(touched, placed.partition, places->count) ? -1 : appended;
}

static PyObject *records_append(ColumnRecords *self, PyObject *args) {
    State *state = PyType_GetModuleState(Py_TYPE(self));
    Places places = {.appender_type = state->appender_type};
    PyObject *appenders;
    Py_ssize_t start, stop;
    long long timestamp, largest, given_room;
    Touched touched = {.seen = NULL};
    if (!PyArg_ParseTuple(args, "O!nnLniLLO!:append", &PyList_Type, &appenders, &start, &stop, &timestamp,
                          &places.sticky, &places.keys, &largest, &given_room, &PyList_Type, &touched.listed))
        return NULL;
    places.largest = largest;
    int64_t room = given_room;
    int appended = 1;
    start = Py_MAX(start, 0);
    stop = Py_MIN(stop, records_length(self));
    Py_BEGIN_CRITICAL_SECTION(appenders);
    places.count = PyList_GET_SIZE(appenders);
    while (start < stop && (appended = append_row(self, &places, appenders, start, timestamp, &room, &touched)) == 1)
        start++;
    Py_END_CRITICAL_SECTION();
    PyMem_Free(touched.seen);
    return appended < 0 ? NULL : Py_BuildValue("nL", start, (long long)room);
}

/* A row as objects, for the caller that appends it by itself */

static PyObject *bytes_of(Content content) {
    if (content.size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize(content.bytes, (Py_ssize_t)content.size);
}

static PyObject *partition_or_none(const ColumnRecords *self, int64_t row) {
    const Column *column = &self->columns[COLUMN_PARTITION];
    return is_null(column, row) ? Py_NewRef(Py_None) : PyLong_FromLongLong(number_of(column, row));
}

/* Seconds may be too many for 64 bits of milliseconds: whoever refuses them is to name the number that was given. */
static PyObject *timestamp_or_none(const ColumnRecords *self, int64_t row) {
    const Column *column = &self->columns[COLUMN_TIMESTAMP];
    if (is_null(column, row))
        return Py_NewRef(Py_None);
    if (column->scale > 0)
        return PyLong_FromLongLong(timestamp_of_row(self, row, 0));
    PyObject *number = PyLong_FromLongLong(number_of(column, row)), *times = PyLong_FromLongLong(-column->scale);
    PyObject *timestamp = number == NULL || times == NULL ? NULL : PyNumber_Multiply(number, times);
    Py_XDECREF(number);
    Py_XDECREF(times);
    return timestamp;
}

static PyObject *header_of(const ColumnRecords *self, int64_t at) {
    if (is_null(&self->header_pair, at))
        return Py_BuildValue("OO", Py_None, Py_None);
    Content name = content_of(&self->header_name, at);
    PyObject *text = name.size < 0 ? Py_NewRef(Py_None)
                                   : PyUnicode_DecodeUTF8(name.bytes, (Py_ssize_t)name.size, NULL);
    PyObject *value = text == NULL ? NULL : bytes_of(content_of(&self->header_value, at));
    if (value != NULL)
        return Py_BuildValue("NN", text, value);
    Py_XDECREF(text);
    return NULL;
}

static PyObject *headers_of_row(const ColumnRecords *self, int64_t row) {
    int64_t first = 0, count = header_count_of(self, row, &first);
    PyObject *headers = PyTuple_New((Py_ssize_t)count);
    if (headers != NULL)
        PyObject_GC_UnTrack(headers); /* a finalizer could find it before it is full; it is part of no cycle */
    for (int64_t i = 0; headers != NULL && i < count; i++) {
        PyObject *header = header_of(self, first + i);
        if (header == NULL)
            Py_CLEAR(headers);
        else
            PyTuple_SET_ITEM(headers, i, header);
    }
    return headers;
}

static PyObject *records_record(ColumnRecords *self, PyObject *given) {
    Py_ssize_t row = PyLong_AsSsize_t(given);
    if (row == -1 && PyErr_Occurred())
        return NULL;
    if (row < 0 || row >= records_length(self)) {
        PyErr_SetString(PyExc_IndexError, "there is no such row");
        return NULL;
    }
    PyObject *parts[] = {
        bytes_of(content_of(&self->columns[COLUMN_VALUE], row)),
        bytes_of(content_of(&self->columns[COLUMN_KEY], row)),
        partition_or_none(self, row),
        timestamp_or_none(self, row),
        headers_of_row(self, row),
    };
    PyObject *record = PyTuple_New(5);
    for (int i = 0; i < 5; i++) {
        if (parts[i] == NULL)
            Py_CLEAR(record);
        if (record != NULL)
            PyTuple_SET_ITEM(record, i, parts[i]);
        else
            Py_XDECREF(parts[i]);
    }
    return record;
}

static PyMethodDef records_methods[] = {
    {"append", (PyCFunction)records_append, METH_VARARGS,
     PyDoc_STR("append(appenders, start, stop, timestamp, sticky, keys, largest, room, touched)\n\n"
               "Append rows as append_records() does records.")},
    {"record", (PyCFunction)records_record, METH_O,
     PyDoc_STR("record(row) -> (value, key, partition, timestamp_ms, headers)")},
    {0},
};

static PyType_Slot records_slots[] = {
    {Py_tp_new, records_new},
    {Py_tp_dealloc, records_dealloc},
    {Py_tp_methods, records_methods},
    {Py_sq_length, records_length},
    {Py_tp_doc, PyDoc_STR("The rows of an Arrow record batch as records to send.")},
    {0},
};

static PyType_Spec records_spec = {
    .name = "aiokc._native.extension.ColumnRecords",
    .basicsize = sizeof(ColumnRecords),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = records_slots,
};

int add_column_records(PyObject *module, State *Py_UNUSED(state)) {
    PyObject *type = PyType_FromModuleAndSpec(module, &records_spec, NULL);
    int added = type == NULL ? -1 : PyModule_AddType(module, (PyTypeObject *)type);
    Py_XDECREF(type);
    return added;
}
