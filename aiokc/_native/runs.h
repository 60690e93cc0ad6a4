/* Reads runs: plain batches side by side in a Fetch response (uncompressed, without control records). What one batch
 * costs in Python (a header object, a reader, its part in two lists) is as much as a hundred records cost here. So one
 * call turns many batches of a run into rows or records, where they lie: it copies only what rows and records keep.
 *
 * take_run and append_run check each batch's CRC (is_sound), unless the caller switches that off. Nothing here raises an
 * error about records. A run ends before the first batch that is not plain. Rows and records end before whatever is
 * malformed: the caller then reads that batch by itself, and that raises the right error.
 *
 * take_run checks records and makes none: they become objects when its span is read. See record_span.c.
 */

#ifndef AIOKC_RUNS_H
#define AIOKC_RUNS_H

#include "module.h"

/* The positions of a batch's fields: see records/batch.py */

enum {
    LENGTH_AT = 8,
    PREFIX = 12, /* the bytes that the length does not count */
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

/* One call reads so many bytes and at most one batch more, whatever becomes of them: some 0.3 ms. Each batch counts
 * BATCH_COUNTS bytes more, because its CRC is a call. A batch that was read before counts with its header only. */
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

static inline uint64_t read_number(const uint8_t *bytes, int width) {
    uint64_t number = 0;
    for (int index = 0; index < width; index++)
        number = number << 8 | bytes[index];
    return number;
}

static inline int32_t read_int32(const uint8_t *bytes) {
    return (int32_t)read_number(bytes, 4);
}

/* Read the header of a batch of which HEADER_SIZE bytes are there. False: read_header would refuse it. */
static inline int read_any_head(const uint8_t *bytes, Whole *batch) {
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
    if (bytes[MAGIC_AT] != 2 || batch->size < HEADER_SIZE ||
        head->base_offset < 0 || head->last_delta < 0 || head->last_delta >= INT64_MAX - head->base_offset ||
        head->record_count < 0 || head->record_count > head->last_delta + 1)
        return 0;
    batch->next_offset = head->base_offset + head->last_delta + 1;
    return 1;
}

static inline int is_plain(const Whole *batch) {
    return !(batch->attributes & ~(LOG_APPEND_TIME | TRANSACTIONAL));
}

/* Do as read_any_head does. False also if the batch is not plain. */
static inline int read_head(const uint8_t *bytes, Whole *batch) {
    return read_any_head(bytes, batch) && is_plain(batch);
}

/* Read the header of the batch at byte ``at``. False: it is incomplete, or read_header would refuse it. */
static inline int read_any_batch(const Py_buffer *run, int64_t at, Whole *batch) {
    return run->len - at >= HEADER_SIZE && read_any_head((const uint8_t *)run->buf + at, batch) &&
           batch->size <= run->len - at;
}

/* Do as read_any_batch does. False also if the batch is not plain. */
static inline int read_batch(const Py_buffer *run, int64_t at, Whole *batch) {
    return read_any_batch(run, at, batch) && is_plain(batch);
}

/* Whether the batch's bytes match its CRC; -1 with an exception. */
static inline int is_sound(const State *state, const Whole *batch) {
    PyObject *bytes = PyMemoryView_FromMemory((char *)batch->bytes + CRC_START, (Py_ssize_t)(batch->size - CRC_START),
                                              PyBUF_READ);
    /* The last 0 keeps the GIL, for a few microseconds: a call that gives it up may have to wait for it, each time. */
    PyObject *found = bytes == NULL ? NULL : PyObject_CallFunction(state->crc32c, "Oii", bytes, 0, 0);
    Py_XDECREF(bytes);
    unsigned long crc = found == NULL ? 0 : PyLong_AsUnsignedLong(found);
    Py_XDECREF(found);
    return PyErr_Occurred() ? -1 : crc == read_number(batch->bytes + CRC_AT, 4);
}

#endif
