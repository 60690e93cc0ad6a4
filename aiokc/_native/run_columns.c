/* Measures how far a run goes, and appends its records to a ColumnBuilder: see runs.h. */

#include "rows.h"
#include "runs.h"

/* The length of a run */

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

typedef struct {
    int64_t at;
    int64_t next_offset;
    int64_t epoch; /* of the last batch before next_offset, if next_offset has moved */
    int64_t count;
} Reached;

/* Append rows of one batch, from next_offset on. True: the batch is read to its end. False: it is not, or there is an
 * exception. */
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
        Py_BEGIN_CRITICAL_SECTION(self);
        if (begin_use(&self->is_used)) {
            append_batches(self, PyType_GetModuleState(Py_TYPE(self)), &run, &origin, wanted, check_crcs, &reached);
            end_use(&self->is_used);
        }
        Py_END_CRITICAL_SECTION();
    }
    PyBuffer_Release(&run);
    if (reached.count > 0)
        PyErr_Clear(); /* the error of the next row: the next call reads it again */
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
