/* Sets the fields of a record that is written anew. The objects in its fields are written anew, too, where nothing but
 * the record refers to them: the bytes of keys, values and headers, with the hash that Python remembers of them, and the
 * digits of offsets.
 *
 * Whoever keeps such an object has a reference of its own, and so the object stays as it is.
 */

#ifndef AIOKC_REWRITING_H
#define AIOKC_REWRITING_H

#include "module.h"

static inline void set_object(PyObject **slot, PyObject *object) {
    if (*slot != object)
        Py_SETREF(*slot, Py_NewRef(object));
}

static inline void forget_hash(PyObject *bytes) {
#if defined(__GNUC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#elif defined(_MSC_VER)
#pragma warning(push)
#pragma warning(disable : 4996)
#endif
    ((PyBytesObject *)bytes)->ob_shash = -1;
#if defined(__GNUC__)
#pragma GCC diagnostic pop
#elif defined(_MSC_VER)
#pragma warning(pop)
#endif
}

/* Whether only the caller refers to an object. */
static inline int is_free(void *object) {
#if defined(Py_GIL_DISABLED)
    (void)object;
    return 0; /* a reference count says less there */
#else
    return Py_REFCNT((PyObject *)object) == 1;
#endif
}

/* Most keys are short: then two moves, which may overlap, are quicker than a call. */
static inline void copy_bytes(char *to, const char *from, Py_ssize_t size) {
    if (size >= 8 && size <= 16) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else {
        memcpy(to, from, (size_t)size);
    }
}

/* Empty bytes, and those of one byte, are the interpreter's own objects: they are never written. */
static inline int set_bytes(PyObject **slot, const char *bytes, Py_ssize_t size) {
    if (size > 1 && PyBytes_CheckExact(*slot) && PyBytes_GET_SIZE(*slot) == size && is_free(*slot)) {
        copy_bytes(PyBytes_AS_STRING(*slot), bytes, size);
        forget_hash(*slot);
        return 1;
    }
    PyObject *fresh = PyBytes_FromStringAndSize(bytes, size);
    if (fresh == NULL)
        return 0;
    Py_SETREF(*slot, fresh);
    return 1;
}

#if PY_VERSION_HEX < 0x030C0000
#define DIGITS(number) ((PyLongObject *)(number))->ob_digit
#define IS_OF_DIGITS(number, count) (Py_SIZE(number) == (count))
#else
#define DIGITS(number) ((PyLongObject *)(number))->long_value.ob_digit
#define IS_OF_DIGITS(number, count) (((PyLongObject *)(number))->long_value.lv_tag == (uintptr_t)(count) << 3)
#endif

/* The largest of the interpreter's own numbers: 256 up to Python 3.14. */
#define LARGEST_OWN 1024

/* Numbers of one or two digits are written anew. The interpreter's own ones are shared, and no new ones are made of
 * their values. */
static inline int set_number(PyObject **slot, int64_t number) {
    int count = number >> PyLong_SHIFT ? 2 : 1;
    if (number > LARGEST_OWN && !(number >> 2 * PyLong_SHIFT) && IS_OF_DIGITS(*slot, count) && is_free(*slot)) {
        DIGITS(*slot)[0] = (digit)(number & PyLong_MASK);
        if (count == 2)
            DIGITS(*slot)[1] = (digit)(number >> PyLong_SHIFT);
        return 1;
    }
    PyObject *fresh = PyLong_FromLongLong(number);
    if (fresh == NULL)
        return 0;
    Py_SETREF(*slot, fresh);
    return 1;
}

#endif
