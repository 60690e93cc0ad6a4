/* Loads liblz4 and libzstd at run time. Nothing is linked with them: where they are not, the Python packages unpack.
 *
 * A library is used only if it has all functions, is of a version whose interface is known and whose mistakes are
 * mended, and unpacks a known payload. */

#include <string.h>

#include "compressed.h"

#if !defined(_WIN32)
#include <dlfcn.h>
#endif

/* The versions from ``first`` on, and before ``beyond``, are used. Before 1.9.4 a hostile block could make lz4 write
 * where it must not (CVE-2021-3520). */
typedef struct {
    const char *function;
    unsigned first;
    unsigned beyond;
} Versions;

static const Versions versions_of[] = {{"LZ4_versionNumber", 10904, 20000}, {"ZSTD_versionNumber", 10408, 20000}};

/* A dozen times the same word, as frames of each. */
static const char known[] = "aiokc aiokc aiokc aiokc aiokc aiokc aiokc aiokc aiokc aiokc aiokc aiokc ";
#define KNOWN_SIZE ((int64_t)sizeof known - 1)
static const char known_lz4[] = "\x04\x22\x4d\x18\x60\x40\x82\x10\0\0\0\x6f"
                                "aiokc \x06\0\x2a\x50"
                                "iokc \0\0\0";
static const char known_zstd[] = "\x28\xb5\x2f\xfd\x20\x48\x6d\0\0\x38"
                                 "aiokc \x61\x01\0\x8e\x54\x8c";

#if defined(_WIN32)

static void *opened(const char *Py_UNUSED(path)) {
    PyErr_SetString(PyExc_OSError, "aiokc looks for no libraries on Windows");
    return NULL;
}

static void *found(void *Py_UNUSED(handle), const char *Py_UNUSED(name)) {
    return NULL;
}

static void closed(void *Py_UNUSED(handle)) {
}

#else

static void *opened(const char *path) {
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        const char *why = dlerror();
        PyObject *text = PyUnicode_DecodeFSDefault(why == NULL ? path : why); /* it names the path, in any encoding */
        if (text != NULL)
            PyErr_SetObject(PyExc_OSError, text);
        Py_XDECREF(text);
    }
    return handle;
}

static void *found(void *handle, const char *name) {
    return dlsym(handle, name);
}

static void closed(void *handle) {
    dlclose(handle);
}

#endif

/* Set the function pointer at ``place``. False, with an exception: the library has no such function. */
static int set_function(void *handle, const char *name, void *place) {
    void *function = found(handle, name);
    if (function == NULL)
        PyErr_Format(PyExc_OSError, "the library has no function %s", name);
    memcpy(place, &function, sizeof function);
    return function != NULL;
}

static int set_functions(void *handle, int codec, CodecLibrary *library) {
    if (codec == LZ4)
        return set_function(handle, "LZ4_decompress_safe", &library->lz4_decompress);
    return set_function(handle, "ZSTD_createDCtx", &library->zstd_create) &&
           set_function(handle, "ZSTD_freeDCtx", &library->zstd_free) &&
           set_function(handle, "ZSTD_decompressDCtx", &library->zstd_decompress) &&
           set_function(handle, "ZSTD_isError", &library->zstd_is_error);
}

/* Return the library's version. 0, with an exception: it is not one to use. */
static unsigned version_of(void *handle, int codec) {
    const Versions *versions = &versions_of[codec - LZ4];
    unsigned (*tell)(void) = NULL;
    if (!set_function(handle, versions->function, &tell))
        return 0;
    unsigned version = tell();
    if (version >= versions->first && version < versions->beyond)
        return version;
    PyErr_Format(PyExc_OSError, "the library's version is %u: from %u on it would be used, before %u", version,
                 versions->first, versions->beyond);
    return 0;
}

/* Whether the library unpacks what is known; with an exception if it does not. */
static int is_right(int codec, CodecLibrary *library) {
    uint8_t out[2 * KNOWN_SIZE];
    Packed lz4 = {(const uint8_t *)known_lz4, sizeof known_lz4}; /* its last byte is the string's own zero */
    Packed zstd = {(const uint8_t *)known_zstd, sizeof known_zstd - 1};
    int64_t size = codec == LZ4 ? unpack_lz4(library, lz4, out, sizeof out)
                                : unpack_zstd(library, zstd, out, sizeof out);
    if (size == KNOWN_SIZE && memcmp(out, known, KNOWN_SIZE) == 0)
        return 1;
    PyErr_SetString(PyExc_OSError, "the library does not unpack what it should");
    return 0;
}

CodecLibrary *library_of(const State *state, int codec) {
    CodecLibrary *library = codec < LZ4 ? NULL : LOAD(&state->libraries[codec - LZ4]);
    return library == NULL || library->is_none ? NULL : library;
}

static void free_spare(CodecLibrary *library) {
    void *context = EXCHANGE(&library->spare, NULL);
    if (context != NULL)
        library->zstd_free(context);
}

static void free_library(CodecLibrary *library) {
    free_spare(library);
    PyMem_RawFree(library);
}

void free_libraries(State *state) {
    for (int index = 0; index < LIBRARIES; index++) {
        for (CodecLibrary *library = state->libraries[index], *previous; library != NULL; library = previous) {
            previous = library->previous;
            free_library(library);
        }
        state->libraries[index] = NULL;
    }
}

/* Load what lies at ``path``. 0, with an exception: it is not to be used. */
static unsigned load(const char *path, int codec, CodecLibrary *library) {
    void *handle = opened(path);
    if (handle == NULL)
        return 0;
    unsigned version = version_of(handle, codec);
    if (version != 0 && set_functions(handle, codec, library) && is_right(codec, library))
        return version; /* the library stays open for as long as the process runs */
    free_spare(library);
    closed(handle);
    return 0;
}

static PyObject *use_codec_library(PyObject *module, PyObject *args) {
    State *state = PyModule_GetState(module);
    PyObject *path, *encoded = NULL;
    int codec;
    if (!PyArg_ParseTuple(args, "iO:use_codec_library", &codec, &path))
        return NULL;
    if (codec != LZ4 && codec != ZSTD)
        return PyErr_Format(PyExc_ValueError, "no library is looked for that unpacks codec %d", codec);
    if (path != Py_None && !PyUnicode_FSConverter(path, &encoded)) /* a path may have bytes that are not UTF-8 */
        return NULL;
    CodecLibrary *library = PyMem_RawCalloc(1, sizeof(CodecLibrary));
    if (library == NULL) {
        Py_XDECREF(encoded);
        return PyErr_NoMemory();
    }
    library->is_none = encoded == NULL;
    unsigned version = encoded == NULL ? 0 : load(PyBytes_AS_STRING(encoded), codec, library);
    Py_XDECREF(encoded);
    if (PyErr_Occurred()) {
        free_library(library);
        return NULL;
    }
    library->previous = EXCHANGE(&state->libraries[codec - LZ4], library);
    if (library->previous != NULL) /* it stays: another thread may be in the middle of a call of it */
        free_spare(library->previous);
    return PyUnicode_FromFormat("%u.%u.%u", version / 10000, version / 100 % 100, version % 100);
}

static PyMethodDef functions[] = {
    {"use_codec_library", use_codec_library, METH_VARARGS,
     PyDoc_STR("use_codec_library(codec, path) -> version\n\n"
               "From here on the shared library at ``path`` unpacks batches of lz4 or zstd, or none does (None).\n"
               "Raises OSError if it is not one to use: then nothing has changed.")},
    {0},
};

int add_codec_libraries(PyObject *module, State *Py_UNUSED(state)) {
    return PyModule_AddFunctions(module, functions);
}
