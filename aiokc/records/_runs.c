/* Runs: batches that lie side by side in a Fetch response, uncompressed, of records and nothing else. What a batch costs
 * in Python (a header object, a reader, its part in two lists) is as much as a hundred rows cost here; so rows are made
 * of a whole run at a time.
 *
 * Nothing in here complains. A run ends before the first batch that is anything else, and rows end before whatever is
 * wrong: that one is read in the way of any other batch, which knows what to say.
 */

#include "_rows.h"

/* A batch: where its fields lie, see batch.py */

enum {
    LENGTH_AT = 8,
    PREFIX = 12, /* what the length does not count */
    EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    CRC_START = 21,
    ATTRIBUTES_AT = 21,
    LAST_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    COUNT_AT = 57,
    HEADER_SIZE = 61
};

#define LOG_APPEND_TIME 0x08
#define TRANSACTIONAL 0x10

/* So many bytes are read by one call, whatever becomes of them, and those of one batch more: some 0.3 ms. Each batch
 * counts for so many more, since its CRC is a call; one that was read before, for its header only. */
#define READ_AT_ONCE (1 << 20)
#define BATCH_COUNTS 1024

typedef struct {
    const uint8_t *bytes;
    int64_t size;
    int64_t next_offset;
    int32_t epoch;
    int attributes;
    Head head;
} Whole;

static uint64_t read_number(const uint8_t *bytes, int width) {
    uint64_t number = 0;
    for (int index = 0; index < width; index++)
        number = number << 8 | bytes[index];
    return number;
}

static int32_t read_int32(const uint8_t *bytes) {
    return (int32_t)read_number(bytes, 4);
}

/* The batch that begins there, if all of it is there and read_header would let it through; and it is plain. */
static int read_batch(const Py_buffer *run, int64_t at, Whole *batch) {
    const uint8_t *bytes = (const uint8_t *)run->buf + at;
    if (run->len - at < HEADER_SIZE)
        return 0;
    Head *head = &batch->head;
    batch->bytes = bytes;
    batch->size = PREFIX + (int64_t)read_int32(bytes + LENGTH_AT);
    batch->epoch = read_int32(bytes + EPOCH_AT);
    batch->attributes = (int)read_number(bytes + ATTRIBUTES_AT, 2);
    head->base_offset = (int64_t)read_number(bytes, 8);
    head->last_delta = read_int32(bytes + LAST_DELTA_AT);
    head->record_count = read_int32(bytes + COUNT_AT);
    head->base_timestamp = read_number(bytes + BASE_TIMESTAMP_AT, 8);
    head->append_time = (int64_t)read_number(bytes + MAX_TIMESTAMP_AT, 8);
    head->has_append_time = batch->attributes & LOG_APPEND_TIME;
    if (bytes[MAGIC_AT] != 2 || batch->attributes & ~(LOG_APPEND_TIME | TRANSACTIONAL) || batch->size < HEADER_SIZE ||
        batch->size > run->len - at || head->base_offset < 0 || head->last_delta < 0 ||
        head->last_delta >= INT64_MAX - head->base_offset || head->record_count < 0 ||
        head->record_count > head->last_delta + 1)
        return 0;
    batch->next_offset = head->base_offset + head->last_delta + 1;
    return 1;
}

/* How far a run goes */

static PyObject *measure_run(PyObject *Py_UNUSED(module), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"records", "after", "transactional", "most", NULL};
    Py_buffer records;
    long long after, most;
    int transactional;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*LpL:measure_run", names, &records, &after, &transactional, &most))
        return NULL;
    int64_t at = 0, count = 0, epoch = -1;
    Whole batch;
    while (read_batch(&records, at, &batch) && batch.size <= most && batch.next_offset > after &&
           (transactional || !(batch.attributes & TRANSACTIONAL))) {
        at += batch.size;
        after = batch.next_offset;
        epoch = batch.epoch;
        count++;
    }
    PyBuffer_Release(&records);
    return Py_BuildValue("(LLLL)", (long long)count, (long long)at, after, (long long)epoch);
}

/* Rows of a run */

/* Whether the bytes are those that the CRC was computed of; -1 with an exception. */
static int is_sound(const State *state, const Whole *batch) {
    PyObject *bytes = PyMemoryView_FromMemory((char *)batch->bytes + CRC_START, (Py_ssize_t)(batch->size - CRC_START),
                                              PyBUF_READ);
    /* The 0: it keeps the GIL, for a few microseconds. Who gives it up for each batch may wait for it each time. */
    PyObject *found = bytes == NULL ? NULL : PyObject_CallFunction(state->crc32c, "Oii", bytes, 0, 0);
    Py_XDECREF(bytes);
    unsigned long crc = found == NULL ? 0 : PyLong_AsUnsignedLong(found);
    Py_XDECREF(found);
    return PyErr_Occurred() ? -1 : crc == read_number(batch->bytes + CRC_AT, 4);
}

typedef struct {
    int64_t at;
    int64_t next_offset;
    int64_t epoch; /* of what lies before next_offset, where that has moved */
    int64_t count;
} Reached;

/* Append rows of one batch, from next_offset on. True: it is read to its end. False: it is not, or there's an exception. */
static int append_batch(Builder *self, const State *state, const Whole *batch, Origin *origin, const Wanted *wanted,
                        int check_crcs, Reached *reached) {
    const Head *head = &batch->head;
    Cursor cursor = {.data = batch->bytes + HEADER_SIZE, .size = batch->size - HEADER_SIZE};
    Progress progress = at_first_record(head);
    if (wrong_size(head, cursor.size) != NULL || (check_crcs && is_sound(state, batch) <= 0))
        return 0;
    if (head->base_offset < reached->next_offset &&
        !skip_to(&cursor, &progress, head->last_delta, reached->next_offset - head->base_offset))
        return 0;
    origin->timestamp_type = head->has_append_time ? 1 : 0;
    origin->leader_epoch = batch->epoch;
    Row refused = {0};
    Fate fate;
    int64_t count = append_rows(self, origin, head, &progress, &cursor, wanted, &refused, &fate);
    if (count > 0) {
        reached->count += count;
        reached->next_offset = head->base_offset + progress.previous_delta + 1;
        reached->epoch = batch->epoch;
    }
    return progress.remaining == 0;
}

static void append_batches(Builder *self, const State *state, const Py_buffer *run, Origin *origin, Wanted wanted,
                           int check_crcs, Reached *reached) {
    int64_t rows = wanted.rows, read = 0;
    Whole batch;
    while (reached->count < rows && self->size < wanted.size && read < READ_AT_ONCE &&
           read_batch(run, reached->at, &batch)) {
        if (batch.next_offset > reached->next_offset) {
            wanted.rows = rows - reached->count;
            if (!append_batch(self, state, &batch, origin, &wanted, check_crcs, reached))
                return;
            read += batch.size + BATCH_COUNTS;
            reached->next_offset = batch.next_offset;
            reached->epoch = batch.epoch;
        } else {
            read += HEADER_SIZE;
        }
        reached->at += batch.size;
    }
}

PyObject *builder_append_run(Builder *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {"run",  "at",   "topic", "partition",  "from_offset", "until",
                            "rows", "size", "check_crcs", NULL};
    Py_buffer run;
    PyObject *topic;
    long long at, from_offset, until, rows, size;
    int partition, check_crcs;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*LUiLLLLp:append_run", names, &run, &at, &topic, &partition,
                                     &from_offset, &until, &rows, &size, &check_crcs))
        return NULL;
    Origin origin = {.partition = partition};
    Wanted wanted = {.until = until, .rows = rows, .size = size};
    Reached reached = {.at = at, .next_offset = from_offset, .epoch = -1};
    origin.topic = PyUnicode_AsUTF8AndSize(topic, &origin.topic_size);
    if (at < 0 || at > run.len) {
        PyErr_SetString(PyExc_ValueError, "no batch begins there");
    } else if (origin.topic != NULL) {
        append_batches(self, PyType_GetModuleState(Py_TYPE(self)), &run, &origin, wanted, check_crcs, &reached);
    }
    PyBuffer_Release(&run);
    if (reached.count > 0)
        PyErr_Clear(); /* of what is behind, which will be read again */
    if (PyErr_Occurred())
        return NULL;
    return Py_BuildValue("(LLLL)", (long long)reached.count, (long long)reached.at, (long long)reached.next_offset,
                         (long long)reached.epoch);
}

/* The function of the module */

static PyMethodDef functions[] = {
    {"measure_run", (PyCFunction)(void (*)(void))measure_run, METH_VARARGS | METH_KEYWORDS,
     PyDoc_STR("measure_run(records, after, transactional, most) -> (count, size, next_offset, leader_epoch)\n\n"
               "How many batches of at most so many bytes make a run, and where it ends. Each goes on behind ``after``,\n"
               "or behind the one before.")},
    {0},
};

int add_runs(PyObject *module, State *Py_UNUSED(state)) {
    return PyModule_AddFunctions(module, functions);
}
