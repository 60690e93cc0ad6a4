/* A span: the records of a run that one call of take_run has checked. See record_span.c. */

#ifndef AIOKC_RECORD_SPAN_H
#define AIOKC_RECORD_SPAN_H

#include "runs.h"

/* A place before a record, or behind the last one of a batch. All bytes count from the span's first record on. */
typedef struct {
    Progress progress; /* ``position`` is where the next record begins */
    int64_t batch_end; /* where the batch ends, and the next one begins; may be behind the span's end */
    Head head;
    int32_t epoch;
} Place;

/* What take_run has found. */
typedef struct {
    int64_t count;
    int64_t start; /* bytes from the run's beginning */
    int64_t end;
    Place first; /* before the first record; relative to ``start`` */
    Place last;  /* before the last record */
} Found;

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Return the records of ``run`` that were found: a RecordSpan that keeps a view of the run, or a list. */
PyObject *records_found(const State *state, PyObject *run, PyObject *topic, int partition, const Found *found);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
