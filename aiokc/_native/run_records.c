/* Makes record objects from a run: many batches in one call, without copying a batch first. See runs.h. */

#include "runs.h"

/* How far the records of a run were taken. */
typedef struct {
    int64_t at;       /* where the first batch begins that is not read to its end */
    Progress inside;  /* how far that batch was read; remaining < 0: not at all, and its CRC is not checked */
    int64_t next_offset;
    int64_t epoch; /* of the last batch before next_offset, if next_offset has moved */
} Taken;

static const Progress NOT_BEGUN = {.previous_delta = -1, .remaining = -1};

/* Set the origin of a batch's records. If the batch before has the same origin, its tuple is used again. */
static int set_origin(PyObject **origin, PyObject *topic, int partition, const Whole *batch) {
    long timestamp_type = batch->head.has_append_time ? 1 : 0;
    if (*origin != NULL) {
        PyObject *epoch = PyTuple_GET_ITEM(*origin, LEADER_EPOCH);
        if (PyLong_AsLong(PyTuple_GET_ITEM(*origin, TIMESTAMP_TYPE)) == timestamp_type &&
            (epoch == Py_None ? batch->epoch < 0 : PyLong_AsLong(epoch) == batch->epoch))
            return 1;
    }
    PyObject *epoch = batch->epoch < 0 ? Py_NewRef(Py_None) : PyLong_FromLong(batch->epoch);
    Py_XSETREF(*origin, epoch == NULL ? NULL : Py_BuildValue("(OilO)", topic, partition, timestamp_type, epoch));
    Py_XDECREF(epoch);
    return *origin != NULL;
}

/* Begin a batch, or go on with it. False: the caller has to read it by itself, or there is an exception. */
static int go_on(const State *state, const Whole *batch, int check_crcs, Progress *progress) {
    int64_t size = batch->size - HEADER_SIZE;
    if (progress->remaining >= 0)
        return progress->position <= size && progress->remaining <= batch->head.record_count;
    *progress = at_first_record(&batch->head);
    return wrong_size(&batch->head, size) == NULL && (!check_crcs || is_sound(state, batch) > 0);
}

/* Take records of one batch, from next_offset on. True: the batch is read to its end. */
static int take_batch(const State *state, const Whole *batch, PyObject *origin, int64_t most, int check_crcs,
                      PyObject *records, Taken *taken) {
    const Head *head = &batch->head;
    Cursor cursor = {.data = batch->bytes + HEADER_SIZE, .size = batch->size - HEADER_SIZE};
    Progress progress = taken->inside;
    if (!go_on(state, batch, check_crcs, &progress))
        return 0;
    if (head->base_offset + progress.previous_delta + 1 < taken->next_offset &&
        !skip_to(&cursor, &progress, head->last_delta, taken->next_offset - head->base_offset))
        return 0;
    int64_t count = fill_list(state, origin, head, &progress, &cursor, most, records);
    if (count < 0)
        return 0;
    taken->inside = progress;
    if (count > 0) {
        taken->next_offset = head->base_offset + progress.previous_delta + 1;
        taken->epoch = batch->epoch;
    }
    return progress.remaining == 0;
}

static void take_batches(const State *state, const Py_buffer *run, PyObject *topic, int partition, int64_t count,
                         int check_crcs, PyObject *records, Taken *taken) {
    PyObject *origin = NULL;
    int64_t read = 0;
    Whole batch;
    while (PyList_GET_SIZE(records) < count && read < READ_AT_ONCE && read_batch(run, taken->at, &batch)) {
        if (batch.next_offset > taken->next_offset) {
            if (!set_origin(&origin, topic, partition, &batch) ||
                !take_batch(state, &batch, origin, count - PyList_GET_SIZE(records), check_crcs, records, taken))
                break;
            read += batch.size + BATCH_COUNTS;
            taken->next_offset = batch.next_offset;
            taken->epoch = batch.epoch;
        } else {
            read += HEADER_SIZE;
        }
        taken->at += batch.size;
        taken->inside = NOT_BEGUN;
    }
    Py_XDECREF(origin);
}

/* Return how many of ``count`` records the rest of the run can hold: none is shorter than SMALLEST_RECORD. */
static int64_t possible(const Py_buffer *run, int64_t at, int64_t count) {
    return Py_MIN(count, (run->len - at) / SMALLEST_RECORD);
}

static PyObject *take_run(PyObject *module, PyObject *args) {
    Py_buffer run;
    PyObject *topic, *records = NULL;
    long long at, position, previous_delta, remaining, from_offset, count;
    int partition, check_crcs;
    if (!PyArg_ParseTuple(args, "y*L(LLL)UiLLp:take_run", &run, &at, &position, &previous_delta, &remaining, &topic,
                          &partition, &from_offset, &count, &check_crcs))
        return NULL;
    Taken taken = {.at = at, .inside = {position, previous_delta, remaining}, .next_offset = from_offset, .epoch = -1};
    if (at < 0 || at > run.len || position < 0 || previous_delta < -1) {
        PyErr_SetString(PyExc_ValueError, "no record begins there");
    } else if ((topic = PyUnicode_FromObject(topic)) != NULL) { /* a str, not a subclass with a __dict__ */
        records = list_with_room(possible(&run, at, count));
        if (records != NULL)
            take_batches(PyModule_GetState(module), &run, topic, partition, count, check_crcs, records, &taken);
        Py_DECREF(topic);
    }
    PyBuffer_Release(&run);
    if (records != NULL && PyList_GET_SIZE(records) > 0)
        PyErr_Clear(); /* the error of the next record: the next call reads it again */
    if (PyErr_Occurred())
        Py_CLEAR(records);
    if (records == NULL)
        return NULL;
    const Progress *inside = &taken.inside;
    return Py_BuildValue("(NL(LLL)LL)", records, (long long)taken.at, (long long)inside->position,
                         (long long)inside->previous_delta, (long long)inside->remaining,
                         (long long)taken.next_offset, (long long)taken.epoch);
}

static PyMethodDef functions[] = {
    {"take_run", take_run, METH_VARARGS,
     PyDoc_STR("take_run(run, at, inside, topic, partition, from_offset, count, check_crcs)\n"
               "-> (records, at, inside, next_offset, leader_epoch)\n\n"
               "The records of a run with an offset >= from_offset, at most count, from the batch at byte ``at`` on, of\n"
               "which ``inside`` says how far it was read: (byte, offset delta before that, records left); the last is\n"
               "negative where it was not.")},
    {0},
};

int add_take_run(PyObject *module, State *Py_UNUSED(state)) {
    return PyModule_AddFunctions(module, functions);
}
