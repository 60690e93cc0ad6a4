/* Declarations that the extension's files share: the module's state, and the reader of one batch. */

#ifndef AIOKC_NATIVE_H
#define AIOKC_NATIVE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <structmember.h>

#include "reader.h"

/* A sanitizer is to find who still uses a record that waits to be used again. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#define ASAN_UNPOISON_MEMORY_REGION(address, size) ((void)(address), (void)(size))
#endif

/* Names that the files share are not exported from the library. */
#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* Without the GIL, a critical section is the lock of one object, or of two. A thread that has to wait for anything else
 * inside one gives the lock up meanwhile. So what must not be entered twice is marked as used, too. */
#if PY_VERSION_HEX < 0x030D0000
#define Py_BEGIN_CRITICAL_SECTION(object) {
#define Py_END_CRITICAL_SECTION() }
#define Py_BEGIN_CRITICAL_SECTION2(object, other) {
#define Py_END_CRITICAL_SECTION2() }
#endif

/* Mark an object as used, within its critical section. False, with an exception: it is used already. */
static inline int begin_use(char *is_used) {
    if (*is_used) {
        PyErr_SetString(PyExc_RuntimeError, "another thread uses this object");
        return 0;
    }
    *is_used = 1;
    return 1;
}

static inline void end_use(char *is_used) {
    *is_used = 0;
}

/* Pointers that threads, and interpreters, share. */
#if defined(_MSC_VER)
#include <intrin.h>
#define EXCHANGE(place, value) (_InterlockedExchangePointer((void *volatile *)(place), value))
#define LOAD(place) (*(void *const volatile *)(place))
#else
#define EXCHANGE(place, value) __atomic_exchange_n(place, value, __ATOMIC_ACQ_REL)
#define LOAD(place) __atomic_load_n(place, __ATOMIC_ACQUIRE)
#endif

#define LIBRARIES 2 /* of lz4, of zstd */
#define SPARE_RECORDS 512 /* what one call hands out as a rule: 32 kB */

typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *reader_type;
    PyTypeObject *span_type;
    PyTypeObject *span_iterator_type;
    PyTypeObject *arrow_type;
    PyTypeObject *step_type;
    PyTypeObject *memory_type;
    PyTypeObject *appender_type;
    PyTypeObject *place_type;
    PyTypeObject *producer_record_type;
    PyObject *corrupt_record;
    PyObject *crc32c;
    PyObject *no_headers;
    PyObject *chain; /* itertools.chain.from_iterable */
    struct CodecLibrary *libraries[LIBRARIES]; /* see compressed.h */
    struct Record *spare_records[SPARE_RECORDS]; /* see record.h */
    int spare_count;
} State;

/* By it a type finds its module, and the state. */
extern struct PyModuleDef module_definition;

/* The origin of a batch is a tuple of what all its records have in common: topic, partition, timestamp type, leader
 * epoch. */
enum { TOPIC, PARTITION, TIMESTAMP_TYPE, LEADER_EPOCH };

/* What a batch's header says about its records. */
typedef struct {
    int64_t base_offset;
    int64_t last_delta;
    int64_t record_count;
    uint64_t base_timestamp; /* unsigned, because Java's sum of it and a delta wraps around */
    int64_t append_time;
    int has_append_time;
} Head;

typedef struct {
    PyObject_HEAD
    PyObject *payload;
    PyObject *origin;
    Head head;
    Progress progress; /* read and written within the reader's critical section */
    char is_used;
} Reader;

static inline Cursor cursor_at(PyObject *payload, int64_t at) {
    return (Cursor){.data = (const uint8_t *)PyBytes_AS_STRING(payload), .size = PyBytes_GET_SIZE(payload), .at = at};
}

static inline Progress at_first_record(const Head *head) {
    return (Progress){.previous_delta = -1, .remaining = head->record_count};
}

/* Return what is wrong with a batch that has ``size`` bytes of records, as a format for ``size`` and the number of
 * records. NULL: nothing is wrong. */
static inline const char *wrong_size(const Head *head, int64_t size) {
    if (head->record_count > size / SMALLEST_RECORD)
        return "%lld bytes cannot hold %lld records";
    return head->record_count == 0 && size > 0 ? "%lld bytes in a batch without records" : NULL;
}

static inline int64_t timestamp_of(const Head *head, const Layout *layout) {
    return head->has_append_time ? head->append_time : (int64_t)(head->base_timestamp + layout->timestamp_delta);
}

/* Return a name of a module, which is imported first. */
PyObject *imported(const char *module_name, const char *name);

/* Add the types and functions of records.c to the module, and the types to its state. */
int add_records(PyObject *module, State *state);
void free_spare_records(State *state);

/* Add the type of columns.c to the module. */
int add_columns(PyObject *module, State *state);

/* Add the functions of run_columns.c and run_records.c, and the types of record_span.c and record_parts.c. */
int add_runs(PyObject *module, State *state);
int add_take_run(PyObject *module, State *state);
int add_record_span(PyObject *module, State *state);
int add_record_parts(PyObject *module, State *state);

/* Add the functions of codec_libraries.c and unpack_run.c; free what the former keeps. */
int add_codec_libraries(PyObject *module, State *state);
int add_unpack_run(PyObject *module, State *state);
void free_libraries(State *state);

/* Add the type of unpack_ahead.c. */
int add_unpack_ahead(PyObject *module);

/* Add the type of record_appender.c, and its functions. */
int add_appender(PyObject *module, State *state);

/* Add the function of append_records.c. */
int add_append_records(PyObject *module, State *state);

/* Add the type of column_records.c. */
int add_column_records(PyObject *module, State *state);

/* Add the types of topic_appender.c. */
int add_topic_appender(PyObject *module, State *state);

/* Add the types of async_steps.c. */
int add_steps(PyObject *module, State *state);

/* Add the type of reader_thread.c, and its function. */
int add_reader_thread(PyObject *module);

/* Set CorruptRecord for the cursor's problem in this reader's batch. */
void raise_corrupt(const Reader *reader, const Cursor *cursor);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
