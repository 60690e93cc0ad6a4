/* What appends records shares: a record as Python gives it, and its way into the appender's buffer. */

#ifndef AIOKC_RECORD_APPENDER_H
#define AIOKC_RECORD_APPENDER_H

#include "module.h"

#include "encode.h"

#define FEW_HEADERS 8

/* BufferMemory: how much memory the records of a producer take. The appenders add to ``used`` what they append. */
typedef struct {
    PyObject_HEAD
    long long used;
    long long limit;
} Memory;

/* A record that was gathered from Python objects: pointers into them, and the objects that nobody else keeps alive. */
typedef struct {
    NewRecord record;
    PyObject *kept; /* a list, or NULL */
    Header *headers;
    Header few[FEW_HEADERS];
} Given;

/* Point ``given`` at a record's contents, which the caller keeps alive; ``headers`` may be NULL. False: there is an
 * exception. It may run the application's code, so it comes before anything is looked at that this might change.
 * Then ``forget`` lets go of what was kept. */
int gather(Given *given, int64_t timestamp, PyObject *key, PyObject *value, PyObject *headers);
void forget(Given *given);

/* Where a record is that was appended, and how many bytes it has there. */
typedef struct {
    int64_t index;
    int64_t size;
} Appended;

/* Append a record to a RecordAppender. 0: there is no room. -1: there is an exception. No Python code runs in here. */
int append_record(PyObject *appender, const NewRecord *record, Appended *appended);

uint32_t murmur2(const char *bytes, int64_t size);

#endif
