/* Checks the records of a run: many batches in one call, without copying a batch first. See runs.h. */

#include "record_span.h"

/* How far the records of a run were taken. */
typedef struct {
    int64_t at;       /* where the first batch begins that is not read to its end */
    Progress inside;  /* how far that batch was read; remaining < 0: not at all, and its CRC is not checked */
    int64_t next_offset;
    int64_t epoch; /* of the last batch before next_offset, if next_offset has moved */
    Found found;
} Taken;

static const Progress NOT_BEGUN = {.previous_delta = -1, .remaining = -1};

/* Begin a batch, or go on with it. False: the caller has to read it by itself, or there is an exception. */
static int go_on(const State *state, const Whole *batch, int check_crcs, Progress *progress) {
    int64_t size = batch->size - HEADER_SIZE;
    if (progress->remaining >= 0)
        return progress->position <= size && progress->remaining <= batch->head.record_count;
    *progress = at_first_record(&batch->head);
    return wrong_size(&batch->head, size) == NULL && (!check_crcs || is_sound(state, batch) > 0);
}

/* Pass up to ``most`` records, as strictly as they are decoded; return how many, and set ``last`` before the last. */
static int64_t pass_records(const Head *head, Cursor *cursor, int64_t most, Progress *progress, Progress *last) {
    Progress here = *progress; /* in registers */
    int64_t count = 0;
    for (most = Py_MIN(most, here.remaining); count < most; count++) {
        Layout layout;
        if (!read_record(cursor, &here, head->last_delta, &layout))
            break;
        *last = here;
        advance(&here, &layout);
    }
    *progress = here;
    return count;
}

/* Return a place in a batch whose records begin at byte ``payload``, counted from ``start`` on. */
static Place place_of(const Whole *batch, int64_t payload, const Progress *progress, int64_t start) {
    Place place = {*progress, payload - start + batch->size - HEADER_SIZE, batch->head, batch->epoch};
    place.progress.position += payload - start;
    return place;
}

static void add_found(Found *found, const Whole *batch, int64_t payload, const Progress *first, const Progress *last,
                      const Progress *after, int64_t count) {
    if (found->count == 0) {
        found->start = payload + first->position;
        found->first = place_of(batch, payload, first, found->start);
    }
    found->last = place_of(batch, payload, last, found->start);
    found->end = payload + after->position;
    found->count += count;
}

/* Take records of one batch, from next_offset on. True: the batch is read to its end. */
static int take_batch(const State *state, const Whole *batch, int64_t most, int check_crcs, Taken *taken) {
    const Head *head = &batch->head;
    Cursor cursor = {.data = batch->bytes + HEADER_SIZE, .size = batch->size - HEADER_SIZE};
    Progress progress = taken->inside, last;
    if (!go_on(state, batch, check_crcs, &progress))
        return 0;
    if (head->base_offset + progress.previous_delta + 1 < taken->next_offset &&
        !skip_to(&cursor, &progress, head->last_delta, taken->next_offset - head->base_offset))
        return 0;
    Progress first = progress;
    int64_t count = pass_records(head, &cursor, most, &progress, &last);
    taken->inside = progress;
    if (count > 0) {
        add_found(&taken->found, batch, taken->at + HEADER_SIZE, &first, &last, &progress, count);
        taken->next_offset = head->base_offset + progress.previous_delta + 1;
        taken->epoch = batch->epoch;
    }
    return progress.remaining == 0;
}

static void take_batches(const State *state, const Py_buffer *run, int64_t count, int check_crcs, Taken *taken) {
    int64_t read = 0;
    Whole batch;
    while (taken->found.count < count && read < READ_AT_ONCE && read_batch(run, taken->at, &batch)) {
        if (batch.next_offset > taken->next_offset) {
            if (!take_batch(state, &batch, count - taken->found.count, check_crcs, taken))
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
}

static PyObject *take_run(PyObject *module, PyObject *args) {
    const State *state = PyModule_GetState(module);
    Py_buffer run;
    PyObject *given, *topic, *records = NULL;
    long long at, position, previous_delta, remaining, from_offset, count;
    int partition, check_crcs;
    if (!PyArg_ParseTuple(args, "OL(LLL)UiLLp:take_run", &given, &at, &position, &previous_delta, &remaining, &topic,
                          &partition, &from_offset, &count, &check_crcs) ||
        PyObject_GetBuffer(given, &run, PyBUF_SIMPLE) < 0)
        return NULL;
    Taken taken = {.at = at, .inside = {position, previous_delta, remaining}, .next_offset = from_offset, .epoch = -1};
    if (at < 0 || at > run.len || position < 0 || previous_delta < -1) {
        PyErr_SetString(PyExc_ValueError, "no record begins there");
    } else {
        take_batches(state, &run, count, check_crcs, &taken);
        if (taken.found.count > 0)
            PyErr_Clear(); /* the error of the next record: the next call reads it again */
        if (!PyErr_Occurred())
            records = records_found(state, given, topic, partition, &taken.found);
    }
    PyBuffer_Release(&run);
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
               "negative where it was not. The records are a RecordSpan; a list where there are none, and where Python\n"
               "has no GIL.")},
    {0},
};

int add_take_run(PyObject *module, State *Py_UNUSED(state)) {
    return PyModule_AddFunctions(module, functions);
}
