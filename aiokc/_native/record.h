/* The struct of a ConsumerRecord (records.c), for what makes and writes such objects. */

#ifndef AIOKC_RECORD_H
#define AIOKC_RECORD_H

#include "module.h"

typedef struct {
    PyObject_HEAD
    PyObject *origin; /* topic, partition, timestamp type and leader epoch, the same for all records of a batch */
    PyObject *key;
    PyObject *value;
    PyObject *headers; /* a tuple, or the bytes to build it from; the one thing of a record that ever changes */
    long long offset;
    long long timestamp;
} Record;

#endif
