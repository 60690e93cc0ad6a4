/* Packed runs: compressed batches side by side, of which one call makes a run of plain ones. See unpack_run.c. */

#ifndef AIOKC_UNPACKING_H
#define AIOKC_UNPACKING_H

#include "compressed.h"
#include "runs.h"

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

typedef struct {
    Whole whole;
    int codec;
    Packed packed;
} PackedBatch;

/* What one call may do. */
typedef struct {
    long long limit;   /* the most that a batch may hold */
    long long at_once; /* so many bytes are read or written, and at most one batch more */
} Limits;

/* Who checks the CRCs: nobody here; the package, with the GIL; the CPU's instruction (crc32c.h). */
typedef enum { UNCHECKED, BY_PACKAGE, BY_CPU } Checks;

/* What the first batches of a packed run need, until they are enough for one call. */
typedef struct {
    int64_t room;   /* for the most that any of them can hold, behind what those before it probably hold */
    int64_t size;   /* what they probably hold */
    int64_t packed; /* the bytes that they have */
    int is_large;   /* the first one holds more than may be unpacked here, so there is no room */
} Plan;

/* Read the header of the batch at byte ``at``. False: it is incomplete, not compressed, has no records, or is a control
 * batch; or read_header would refuse it. */
int read_packed(const Py_buffer *records, int64_t at, PackedBatch *batch);

Plan plan_of(const Py_buffer *records, const Limits *limits);

/* Unpack batches to ``out``, which has the room of the plan. Return how many bytes they had; ``unpacked`` is how many they
 * have. -1: there is an exception. Without BY_PACKAGE, and without the function ``unpack``, it needs no GIL, and ends
 * before a batch that no library unpacks. */
int64_t unpack_batches(const State *state, PyObject *unpack, const Py_buffer *records, const Limits *limits,
                       Checks checks, const Py_buffer *out, int64_t *unpacked);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
