/* Makes a run of compressed batches side by side: many in one call, without an object for each. See compressed.h.
 *
 * What comes out are the same batches, uncompressed, with headers that say so; their CRCs are those of the compressed
 * ones, which are checked here, before anything is unpacked. Nothing here raises an error about records: the run ends
 * before the first batch that is refused, and the caller then reads that batch by itself. */

#include <string.h>

#include "crc32c.h"
#include "unpacking.h"

/* Each batch counts so many bytes more, for its CRC, and for the call that may unpack it in Python. */
#define EACH_COUNTS 2048

/* The most that a batch may hold to be unpacked here: it takes a millisecond at most. */
static const int64_t largest[] = {[GZIP] = 256 << 10, [SNAPPY] = 1 << 20, [LZ4] = 1 << 20, [ZSTD] = 1 << 20};

/* Compressed batches */

int read_packed(const Py_buffer *records, int64_t at, PackedBatch *batch) {
    const Whole *whole = &batch->whole;
    if (!read_any_batch(records, at, &batch->whole))
        return 0;
    batch->codec = whole->attributes & CODEC_MASK;
    batch->packed = (Packed){whole->bytes + HEADER_SIZE, whole->size - HEADER_SIZE};
    return batch->codec >= GZIP && batch->codec <= ZSTD && batch->packed.size > 0 &&
           !(whole->attributes & ~(CODEC_MASK | LOG_APPEND_TIME | TRANSACTIONAL));
}

static PyObject *measure_packed(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer records;
    long long after, most;
    int transactional;
    if (!PyArg_ParseTuple(args, "y*LpL:measure_packed", &records, &after, &transactional, &most))
        return NULL;
    int64_t at = 0, count = 0, epoch = -1;
    PackedBatch batch;
    while (read_packed(&records, at, &batch) && batch.whole.size <= most && batch.whole.next_offset > after &&
           (transactional || !(batch.whole.attributes & TRANSACTIONAL))) {
        at += batch.whole.size;
        after = batch.whole.next_offset;
        epoch = batch.whole.epoch;
        count++;
    }
    PyBuffer_Release(&records);
    return Py_BuildValue("(LLLL)", (long long)count, (long long)at, after, (long long)epoch);
}

/* How much they hold */

/* A stream of gzip ends with the size of its content. If that is a lie, unpacking it fails. */
static int64_t most_of_gzip(Packed packed) {
    if (packed.size < 18 || packed.data[0] != 0x1F || packed.data[1] != 0x8B)
        return -1;
    return (int64_t)read_little(packed.data + packed.size - 4, 4);
}

/* A raw block of snappy begins with the size of its content: a number of 7 bits in each byte, the least first. */
static int64_t most_of_snappy_block(const uint8_t *data, int64_t size) {
    uint64_t most = 0;
    for (int index = 0; index < 5 && index < size; index++) {
        most |= (uint64_t)(data[index] & 0x7F) << 7 * index;
        if (data[index] < 0x80)
            return (int64_t)most;
    }
    return -1;
}

/* Java writes blocks with their sizes (big-endian) behind a header of 16 bytes, others write one raw block. */
static int64_t most_of_snappy(Packed packed) {
    int64_t at = 16, sum = 0;
    if (packed.size < 8 || memcmp(packed.data, "\x82SNAPPY", 8) != 0)
        return most_of_snappy_block(packed.data, packed.size);
    while (at < packed.size) {
        int64_t left = packed.size - at - 4, size = left < 0 ? -1 : read_int32(packed.data + at);
        int64_t most = size <= 0 || size > left ? -1 : most_of_snappy_block(packed.data + at + 4, size);
        if (most < 0)
            return -1;
        sum += most;
        at += 4 + size;
    }
    return sum;
}

static int64_t most_of(const PackedBatch *batch, int64_t *likely) {
    if (batch->codec == ZSTD)
        return most_of_zstd(batch->packed, likely);
    if (batch->codec == LZ4)
        return most_of_lz4(batch->packed, likely);
    *likely = batch->codec == GZIP ? most_of_gzip(batch->packed) : most_of_snappy(batch->packed);
    return *likely;
}

/* Room */

static int64_t most_to_unpack(const Limits *limits, const PackedBatch *batch) {
    return Py_MIN(limits->limit, largest[batch->codec]);
}

Plan plan_of(const Py_buffer *records, const Limits *limits) {
    Plan plan = {0};
    PackedBatch batch;
    int64_t at = 0, held = 0, all = 0;
    while ((at == 0 || plan.size < limits->at_once) && read_packed(records, at, &batch)) {
        int64_t likely = 0, most = most_of(&batch, &likely);
        if (most < 0 || most > most_to_unpack(limits, &batch)) {
            plan.is_large = at == 0 && Py_MIN(most, limits->limit) > largest[batch.codec];
            break;
        }
        plan.room = Py_MAX(plan.room, held + HEADER_SIZE + most);
        plan.size += likely + EACH_COUNTS;
        held += HEADER_SIZE + likely;
        all += HEADER_SIZE + most;
        plan.packed = at += batch.whole.size;
    }
    plan.room = Py_MAX(plan.room, Py_MIN(all, limits->at_once));
    return plan;
}

static PyObject *room_to_unpack(PyObject *Py_UNUSED(module), PyObject *args) {
    Py_buffer records;
    Limits limits;
    if (!PyArg_ParseTuple(args, "y*LL:room_to_unpack", &records, &limits.limit, &limits.at_once))
        return NULL;
    Plan plan = plan_of(&records, &limits);
    PyBuffer_Release(&records);
    return Py_BuildValue("(LN)", (long long)plan.room, PyBool_FromLong(plan.is_large));
}

/* Unpacking */

/* Return a view of a part of a buffer, which keeps that in place: the traceback of an exception refers to the view. */
static PyObject *view_of(const Py_buffer *buffer, const uint8_t *part, int64_t size) {
    Py_ssize_t at = part - (const uint8_t *)buffer->buf;
    PyObject *whole = PyMemoryView_FromObject(buffer->obj);
    PyObject *view = whole == NULL ? NULL : PySequence_GetSlice(whole, at, at + (Py_ssize_t)size);
    Py_XDECREF(whole);
    return view;
}

/* Have the caller's function unpack it; return its size. -1: it is refused. -2: there is an exception. */
static int64_t unpack_in_python(PyObject *unpack, const PackedBatch *batch, const Py_buffer *records,
                                const Py_buffer *out, const uint8_t *payload, int64_t room) {
    PyObject *from = view_of(records, batch->packed.data, batch->packed.size);
    PyObject *to = from == NULL ? NULL : view_of(out, payload, room);
    PyObject *size = to == NULL ? NULL : PyObject_CallFunction(unpack, "iOO", batch->codec, from, to);
    Py_XDECREF(from);
    Py_XDECREF(to);
    long long unpacked = size == NULL ? -2 : PyLong_AsLongLong(size);
    Py_XDECREF(size);
    return PyErr_Occurred() ? -2 : unpacked > room ? -1 : Py_MAX(unpacked, -1);
}

static int64_t unpack_payload(const State *state, PyObject *unpack, const PackedBatch *batch, const Py_buffer *records,
                              const Py_buffer *out, uint8_t *payload, int64_t room) {
    CodecLibrary *library = library_of(state, batch->codec);
    if (library == NULL) {
        int64_t size = unpack == NULL ? -1 : unpack_in_python(unpack, batch, records, out, payload, room);
        library = size == -1 ? library_of(state, batch->codec) : NULL; /* the function may have found one */
        if (library == NULL)
            return size;
    }
    return batch->codec == LZ4 ? unpack_lz4(library, batch->packed, payload, room)
                               : unpack_zstd(library, batch->packed, payload, room);
}

static void write_number(uint8_t *bytes, uint64_t number, int width) {
    for (int index = width - 1; index >= 0; index--, number >>= 8)
        bytes[index] = (uint8_t)number;
}

/* Write the header of the same batch, uncompressed, with ``size`` bytes of records. */
static void write_header(const PackedBatch *batch, int64_t size, uint8_t *out) {
    memcpy(out, batch->whole.bytes, HEADER_SIZE);
    write_number(out + LENGTH_AT, (uint64_t)(HEADER_SIZE - PREFIX + size), 4);
    write_number(out + ATTRIBUTES_AT, (uint64_t)(batch->whole.attributes & ~CODEC_MASK), 2);
}

static int is_checked(const State *state, const Whole *batch, Checks checks) {
    if (checks == BY_CPU)
        return crc32c_of(batch->bytes + CRC_START, batch->size - CRC_START) == read_number(batch->bytes + CRC_AT, 4);
    return checks == UNCHECKED ? 1 : is_sound(state, batch);
}

int64_t unpack_batches(const State *state, PyObject *unpack, const Py_buffer *records, const Limits *limits,
                       Checks checks, const Py_buffer *out, int64_t *unpacked) {
    int64_t at = 0, used = 0, done = 0;
    PackedBatch batch;
    while ((at == 0 || done < limits->at_once) && read_packed(records, at, &batch)) {
        uint8_t *payload = (uint8_t *)out->buf + used + HEADER_SIZE;
        int64_t room = Py_MIN(out->len - used - HEADER_SIZE, most_to_unpack(limits, &batch));
        int64_t likely, most = most_of(&batch, &likely);
        if (most < 0 || most > room)
            break;
        int sound = is_checked(state, &batch.whole, checks);
        int64_t size = sound > 0 ? unpack_payload(state, unpack, &batch, records, out, payload, room) : -1;
        if (sound < 0 || size == -2)
            return -1;
        if (size < 0)
            break;
        write_header(&batch, size, payload - HEADER_SIZE);
        used += HEADER_SIZE + size;
        at += batch.whole.size;
        done += Py_MAX(batch.whole.size, size) + EACH_COUNTS;
    }
    *unpacked = used;
    return at;
}

static PyObject *unpack_run(PyObject *module, PyObject *args) {
    Py_buffer records, out;
    PyObject *buffer, *unpack;
    Limits limits;
    int check_crcs;
    if (!PyArg_ParseTuple(args, "y*O!LLpO:unpack_run", &records, &PyByteArray_Type, &buffer, &limits.limit,
                          &limits.at_once, &check_crcs, &unpack))
        return NULL;
    int64_t size = -1, unpacked = 0;
    Plan plan = plan_of(&records, &limits);
    if (PyByteArray_Resize(buffer, (Py_ssize_t)plan.room) == 0 &&
        PyObject_GetBuffer(buffer, &out, PyBUF_WRITABLE) == 0) {
        size = unpack_batches(PyModule_GetState(module), unpack, &records, &limits,
                              check_crcs ? BY_PACKAGE : UNCHECKED, &out, &unpacked);
        PyBuffer_Release(&out);
    }
    PyBuffer_Release(&records);
    if (size < 0 || PyByteArray_Resize(buffer, (Py_ssize_t)unpacked) < 0)
        return NULL;
    return PyLong_FromLongLong(size);
}

static PyMethodDef functions[] = {
    {"measure_packed", measure_packed, METH_VARARGS,
     PyDoc_STR("measure_packed(records, after, transactional, most) -> (count, size, next_offset, leader_epoch)\n\n"
               "As measure_run, of compressed batches.")},
    {"room_to_unpack", room_to_unpack, METH_VARARGS,
     PyDoc_STR("room_to_unpack(records, limit, at_once) -> (room, is_large)\n\n"
               "The room that unpack_run needs, and whether there is none because the first batch is too large.")},
    {"unpack_run", unpack_run, METH_VARARGS,
     PyDoc_STR("unpack_run(records, buffer, limit, at_once, check_crcs, unpack) -> size\n\n"
               "Make ``buffer``, a bytearray, a run of the first batches; return how many bytes these have in\n"
               "``records``. ``unpack(codec, packed, room) -> size`` unpacks what no library does; -1: it refuses, or\n"
               "has found a library.")},
    {0},
};

int add_unpack_run(PyObject *module, State *Py_UNUSED(state)) {
    return PyModule_AddFunctions(module, functions);
}
